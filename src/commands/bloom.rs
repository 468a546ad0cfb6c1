//! The commands of RedisBloom, one file per type. Replies and error texts are RedisBloom's, most of
//! which have no code.
//!
//! RedisBloom notifies of nothing. Here each change is an event of the class `d`, with the name of
//! the command.

pub mod cms;
pub mod cuckoo;
pub mod filter;
pub mod tdigest;
pub mod topk;

use super::table::spec::Group;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::num;

/// The key does not exist.
const NOT_FOUND: Error = Error::text("ERR not found");

/// The key exists.
const EXISTS: Error = Error::text("ERR item exists");

const RO: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO)];
const RW: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW)];

/// What the rows of a type's commands have in common. Their key is the first argument.
struct Family {
    group: Group,
    since: &'static str,
}

impl Family {
    /// A command that reads a value.
    const fn read(
        &self,
        name: &'static str,
        arity: i16,
        run: fn(&mut ReadCtx<'_>, &[&[u8]]) -> CmdResult,
        summary: &'static str,
    ) -> Command {
        Command::read(name, arity, run)
            .keys(RO)
            .doc(self.group, self.since, summary)
    }

    /// A command that changes a value, which may become larger.
    const fn write(
        &self,
        name: &'static str,
        arity: i16,
        run: fn(&mut WriteCtx<'_>, &[&[u8]]) -> CmdResult,
        summary: &'static str,
    ) -> Command {
        Command::write(name, arity, run)
            .flags(Flags::DENYOOM)
            .keys(RW)
            .doc(self.group, self.since, summary)
    }
}

/// An integer within bounds; the error `refusal` for anything else.
fn int_within(arg: &[u8], min: i64, max: i64, refusal: Error) -> Result<i64, Error> {
    match num::parse_i64(arg) {
        Some(n) if (min..=max).contains(&n) => Ok(n),
        _ => Err(refusal),
    }
}

/// The place of a word among the arguments, the name of the command included.
fn place_of(word: &str, args: &[&[u8]]) -> Option<usize> {
    args.iter().position(|arg| super::args::is(arg, word))
}

/// The first letter of an argument, in lower case; NUL if there is none.
fn letter(arg: &[u8], at: usize) -> u8 {
    arg.get(at).map_or(0, u8::to_ascii_lowercase)
}

#[cfg(test)]
mod tests;
