//! Commands about the connection itself.

use super::spec::Group;
use super::{CmdResult, Command, Flags, SessionCtx};

fn ping(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    match args {
        [_] => ctx.reply.simple("PONG"),
        [_, message] => ctx.reply.bulk(message),
        _ => return Err(super::Error::Arity("ping".into())),
    }
    Ok(())
}

/// The table.
pub const COMMANDS: &[Command] = &[Command::session("ping", -1, ping).flags(Flags::FAST).doc(
    Group::Connection,
    "1.0.0",
    "Answers PONG, or the message",
)];
