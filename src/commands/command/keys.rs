//! COMMAND GETKEYS and GETKEYSANDFLAGS.

use super::super::{CmdResult, Error, Flags, KeyFlags, SessionCtx};
use super::describe;
use crate::commands::table::keys::Keys;
use crate::commands::table::names::Names;

const INVALID_COMMAND: Error = Error::text("ERR Invalid command specified");

/// Index and flags of every key of `args`, which begin with the command's name.
fn keys_of(names: &Names, args: &[&[u8]]) -> Result<Keys, Error> {
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
    let mut keys = Keys::new();
    if command.find_keys(args, &mut keys).is_none() {
        keys.clear();
    }
    // Only commands with this flag, such as EVAL, may have no keys at all.
    if keys.is_empty() && !command.flags.contains(Flags::NO_MANDATORY_KEYS) {
        return Err(Error::text("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
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
