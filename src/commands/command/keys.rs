//! COMMAND GETKEYS and GETKEYSANDFLAGS.

use super::super::{CmdResult, Command, Error, Flags, KeyFlags, SessionCtx};
use super::describe;
use crate::commands::table::keys::{Begin, Find};
use crate::commands::table::names::Names;

const INVALID_COMMAND: Error = Error::text("ERR Invalid command specified");

/// Index and flags of every key of `args`, which begin with the command's name.
fn keys_of(names: &Names, args: &[&[u8]]) -> Result<Vec<(usize, KeyFlags)>, Error> {
    let name = args.first().copied().unwrap_or_default();
    let found = names.find(name).ok_or(INVALID_COMMAND)?;
    let has_subcommands = !found.subcommands.is_empty() && !found.is_plain();
    let command = match args.get(1).filter(|_| has_subcommands) {
        Some(sub) => {
            let sub = found.subcommand(sub);
            sub.ok_or(INVALID_COMMAND)?.command
        }
        None => found.command,
    };
    if command
        .keys
        .iter()
        .all(|spec| spec.flags.contains(KeyFlags::NOT_KEY))
    {
        return Err(Error::text("ERR The command has no key arguments"));
    }
    if !command.takes(args.len()) {
        return Err(Error::text(
            "ERR Invalid number of arguments specified for command",
        ));
    }
    let keys = keys_by_specs(command, args).unwrap_or_default();
    // Only commands with this flag, such as EVAL, may have no keys at all.
    if keys.is_empty() && !command.flags.contains(Flags::NO_MANDATORY_KEYS) {
        return Err(Error::text("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}

fn keys_by_specs(command: &Command, args: &[&[u8]]) -> Option<Vec<(usize, KeyFlags)>> {
    let mut keys = Vec::new();
    let mut stored: Option<std::ops::Range<usize>> = None;
    for spec in command.keys {
        let flags = spec.flags_with(args);
        let before = keys.len();
        let found = spec.for_each(args, |index| keys.push((index, flags)));
        if matches!(spec.find, Find::KeyNum { .. }) && keys.len() == before {
            return None;
        }
        // The keyword that introduces keys is optional.
        let introduced = matches!(spec.begin, Begin::Keyword(..));
        if found.is_none() && !introduced {
            return None;
        }
        if introduced {
            stored = Some(stored.map_or(before, |range| range.start)..keys.len());
        }
        if introduced && keys.len() > before && spec.flags.contains(KeyFlags::INCOMPLETE) {
            // MIGRATE: keys after KEYS replace the single key argument.
            keys.drain(..before);
        }
    }
    // Keys that only a function finds are destinations (SORT's STORE). One that is named last
    // takes the place of those behind words of specs (GEORADIUS' STORE).
    if let Some(find) = command.more_keys {
        let mut last = Vec::new();
        find(args, &mut |index| {
            last.push((index, KeyFlags::OW | KeyFlags::UPDATE))
        });
        if let Some(stored) = stored.filter(|_| !last.is_empty()) {
            keys.drain(stored);
        }
        keys.append(&mut last);
    }
    Some(keys)
}

pub(super) fn getkeys(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let args = args.get(2..).unwrap_or_default();
    let keys = keys_of(&super::names(ctx), args)?;
    ctx.reply.array(keys.len());
    for (index, _) in keys {
        ctx.reply.bulk(args.get(index).copied().unwrap_or_default());
    }
    Ok(())
}

pub(super) fn getkeysandflags(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let args = args.get(2..).unwrap_or_default();
    let keys = keys_of(&super::names(ctx), args)?;
    ctx.reply.array(keys.len());
    for (index, flags) in keys {
        ctx.reply.array(2);
        ctx.reply.bulk(args.get(index).copied().unwrap_or_default());
        let names = describe::key_flag_names(flags);
        ctx.reply.set(names.len());
        for name in names {
            ctx.reply.simple(name);
        }
    }
    Ok(())
}
