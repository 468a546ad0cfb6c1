//! COMMAND GETKEYS and GETKEYSANDFLAGS.

use super::super::args;
use super::super::{CmdResult, Command, Error, Flags, KeyFlags, SessionCtx};
use super::describe;
use crate::commands::table::names::Names;
use crate::commands::table::spec::{Begin, Find};

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
    // A script may have no keys at all; other commands always have some.
    if keys.is_empty() && !command.flags.contains(Flags::NO_MANDATORY_KEYS) {
        return Err(Error::text("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}

fn keys_by_specs(command: &Command, args: &[&[u8]]) -> Option<Vec<(usize, KeyFlags)>> {
    let mut keys = Vec::new();
    for spec in command.keys {
        let flags = known_flags(command, args, spec.flags);
        let before = keys.len();
        let found = spec.for_each(args, |index| keys.push((index, flags)));
        if matches!(spec.find, Find::KeyNum { .. }) && keys.len() == before {
            return None;
        }
        // A word that introduces keys may be missing.
        let introduced = matches!(spec.begin, Begin::Keyword(..));
        if found.is_none() && !introduced {
            return None;
        }
        if introduced && keys.len() > before && spec.flags.contains(KeyFlags::INCOMPLETE) {
            // MIGRATE: the keys stand here instead.
            keys.drain(..before);
        }
    }
    // Keys that only a function finds are those that a result is stored under.
    if let Some(find) = command.more_keys {
        let stored = KeyFlags::OW | KeyFlags::UPDATE;
        find(args, &mut |index| keys.push((index, stored)));
    }
    Some(keys)
}

/// What happens to a key, where that depends on the arguments too. That a spec may
/// miss keys says nothing of those that it finds.
fn known_flags(command: &Command, args: &[&[u8]], flags: KeyFlags) -> KeyFlags {
    let flags = flags - KeyFlags::INCOMPLETE;
    if !flags.contains(KeyFlags::VARIABLE_FLAGS) {
        return flags;
    }
    let has = |word: &str| args.iter().skip(2).any(|arg| args::is(arg, word));
    match command.name {
        "set" if has("GET") => KeyFlags::RW | KeyFlags::ACCESS | KeyFlags::UPDATE,
        "set" => KeyFlags::OW | KeyFlags::UPDATE,
        "bitfield" if !has("SET") && !has("INCRBY") => KeyFlags::RO | KeyFlags::ACCESS,
        _ => flags - KeyFlags::VARIABLE_FLAGS,
    }
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
