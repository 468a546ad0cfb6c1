//! SADDEX: members that are added with a time. The binlog gets `SADD`, and what
//! [`super::element_times`] states.

use super::args::{self, Options};
use super::element_times::{
    DONE, Elements, MEMBERS, NOT_MET, NewTime, PLACES, Terms, UPDATE, drop_over, state,
    unknown_argument,
};
use super::{CmdResult, Command, Error, Flags, WriteCtx};
use crate::base::time::UnixMs;
use crate::commands::table::spec::Group;
use crate::encoding::ValueType;
use crate::storage::txn::events::Class;
use crate::types::members::Members;

const NAME: &str = "saddex";

/// What SADDEX is to do, and the members: both may come first.
fn parse<'a>(args: &'a [&'a [u8]], now_ms: UnixMs) -> Result<(Terms, Elements<'a>), Error> {
    let (mut options, mut terms, mut members) = (Options::new(args, 2), Terms::none(), None);
    while let Some(word) = options.peek() {
        if args::is(word, "MEMBERS") && members.is_none() && options.left() == 1 {
            return Err(Error::Arity(NAME.into()));
        }
        let missing = Error::text("ERR missing expire time");
        if !MEMBERS.some_elements(&mut options, &mut members, "ERR invalid number of members")?
            && !terms.take(&mut options, &MEMBERS, now_ms, (NAME, missing))?
        {
            return Err(unknown_argument(word));
        }
    }
    Ok((terms, members.ok_or_else(|| MEMBERS.missing())?))
}

fn saddex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let (terms, members) = parse(args, ctx.txn.now_ms())?;
    let set = Members::open(ctx.txn, ctx.db, key, ValueType::Set)?;
    if !terms.are_met(ctx.txn, &set, members)? {
        ctx.reply.int(NOT_MET);
        return drop_over(ctx, key, set, members);
    }
    match terms.time {
        NewTime::At(at_ms) if at_ms <= ctx.txn.over_when_set_ms() => {
            remove_over(ctx, key, set, members)?;
        }
        time => add(ctx, key, set, members, time)?,
    }
    ctx.reply.int(DONE);
    Ok(())
}

/// A time that is over removes the members that exist, and adds none.
fn remove_over(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    mut set: Members,
    members: Elements<'_>,
) -> CmdResult {
    let mut removed = Vec::new();
    for member in members {
        if set.remove(ctx.txn, member)? {
            removed.push(*member);
        }
    }
    MEMBERS.finish_times(ctx, key, set, members, &removed, None)
}

fn add(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    mut set: Members,
    members: Elements<'_>,
    time: NewTime,
) -> CmdResult {
    let (mut new, mut lost) = (Vec::new(), Vec::new());
    for member in members {
        if set.insert(ctx.txn, member, &[])? {
            new.push(*member);
        }
        match time {
            NewTime::At(at_ms) => set.set_time(ctx.txn, member, at_ms)?,
            NewTime::None if set.clear_time(ctx.txn, member)? => lost.push(*member),
            NewTime::None | NewTime::Kept => {}
        }
    }
    set.save(ctx.txn, key)?;
    ctx.event(Class::SET, "sadd", key);
    ctx.txn.no_effect();
    state(ctx, &[b"SADD", key], &new);
    if let NewTime::At(at_ms) = time {
        MEMBERS.got_time(ctx, key);
        MEMBERS.state_times(ctx, key, at_ms, members);
    } else if !lost.is_empty() {
        MEMBERS.state_lost(ctx, key, &lost);
    }
    Ok(())
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[Command::write(NAME, -5, saddex)
    .syntax(
        "key [condition=(MNX|MXX)] [expiration=(EX seconds:int|PX milliseconds:int|EXAT \
         unix-time-seconds:time|PXAT unix-time-milliseconds:time|KEEPTTL)] \
         MEMBERS members=(nummembers:int member...)",
    )
    .complexity("O(N), N: members named")
    .flags(Flags::FAST.union(Flags::DENYOOM))
    .places(PLACES + 2)
    .keys(UPDATE)
    .doc(
        Group::Set,
        "8.12.0",
        "Adds members and sets when they expire, perhaps only if all or none of them exist",
    )];
