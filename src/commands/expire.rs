//! When keys expire: setting, asking, taking back.
//!
//! What is logged is the moment (`PEXPIREAT`), or `DEL` for one that is over:
//! never a span that would begin later on a replica.

use super::args::{self, Options};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::num;
use crate::commands::table::migrated::{Migrated, Time, TtlPlace};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::storage::txn::events::Class;
use crate::types::keyspace;

/// In what an EXPIRE command counts, and from when.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Unit {
    name: &'static str,
    ms: i64,
    from_now: bool,
}

#[derive(Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: &[&[u8]], from: usize) -> Result<Conditions, Error> {
        let mut found = Conditions::default();
        let mut options = Options::new(args, from);
        while let Some(arg) = options.peek() {
            if options.word("NX") {
                found.nx = true;
            } else if options.word("XX") {
                found.xx = true;
            } else if options.word("GT") {
                found.gt = true;
            } else if options.word("LT") {
                found.lt = true;
            } else {
                let shown = String::from_utf8_lossy(arg);
                return Err(Error::owned(format!("ERR Unsupported option {shown}")));
            }
        }
        if found.nx && (found.xx || found.gt || found.lt) {
            return Err(Error::text(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if found.gt && found.lt {
            return Err(Error::text(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(found)
    }

    /// Whether they let a key that expires at `current_ms` (0: never, which is
    /// later than any time) expire at `when_ms`.
    fn allow(&self, current_ms: u64, when_ms: i64) -> bool {
        let expires = current_ms != 0;
        let current_ms = i64::try_from(current_ms).unwrap_or(i64::MAX);
        !(self.nx && expires
            || self.xx && !expires
            || self.gt && (!expires || when_ms <= current_ms)
            || self.lt && expires && when_ms >= current_ms)
    }
}

/// The moment that an argument means, in Unix ms; may lie before 1970.
fn moment_ms(arg: &[u8], unit: Unit, now_ms: u64) -> Result<i64, Error> {
    let start_ms = match unit.from_now {
        true => i64::try_from(now_ms).unwrap_or(i64::MAX),
        false => 0,
    };
    args::int(arg)?
        .checked_mul(unit.ms)
        .and_then(|ms| ms.checked_add(start_ms))
        .ok_or_else(|| {
            Error::owned(format!(
                "ERR invalid expire time in '{}' command",
                unit.name
            ))
        })
}

fn set_expiry(ctx: &mut WriteCtx<'_>, args: &[&[u8]], unit: Unit) -> CmdResult {
    let conditions = Conditions::parse(args, 3)?;
    let key = args[1];
    let now_ms = ctx.txn.now_ms();
    let when_ms = moment_ms(args[2], unit, now_ms)?;
    let Some(found) = ctx.txn.lookup(ctx.db, key)? else {
        ctx.reply.int(0);
        return Ok(());
    };
    if !conditions.allow(found.meta.expire_ms, when_ms) {
        ctx.reply.int(0);
        return Ok(());
    }
    // A replica leaves it to its master to delete.
    match u64::try_from(when_ms) {
        Ok(expire_ms) if expire_ms > ctx.txn.expiry_now_ms() => {
            ctx.txn.set_expiry(ctx.db, key, &found, expire_ms)?;
            let mut text = Vec::new();
            num::write_i64(&mut text, when_ms);
            ctx.txn.effect(ctx.db, &[b"PEXPIREAT", key, &text]);
            ctx.event(Class::GENERIC, "expire", key);
        }
        _ => {
            ctx.txn.remove_key(ctx.db, key, &found)?;
            ctx.txn.effect(ctx.db, &[b"DEL", key]);
        }
    }
    ctx.reply.int(1);
    Ok(())
}

fn expire(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let unit = Unit {
        name: "expire",
        ms: 1000,
        from_now: true,
    };
    set_expiry(ctx, args, unit)
}

fn pexpire(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let unit = Unit {
        name: "pexpire",
        ms: 1,
        from_now: true,
    };
    set_expiry(ctx, args, unit)
}

fn expireat(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let unit = Unit {
        name: "expireat",
        ms: 1000,
        from_now: false,
    };
    set_expiry(ctx, args, unit)
}

fn pexpireat(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let unit = Unit {
        name: "pexpireat",
        ms: 1,
        from_now: false,
    };
    set_expiry(ctx, args, unit)
}

fn persist(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let persisted = match ctx.txn.lookup(ctx.db, key)? {
        Some(found) if found.meta.expire_ms != 0 => {
            ctx.txn.set_expiry(ctx.db, key, &found, 0)?;
            ctx.event(Class::GENERIC, "persist", key);
            1
        }
        _ => 0,
    };
    ctx.reply.int(persisted);
    Ok(())
}

/// Answers −2 for no key, −1 for no expiry, else what `show` makes of the
/// moment and of now (Unix ms).
fn tell(ctx: &mut ReadCtx<'_>, key: &[u8], show: impl FnOnce(u64, u64) -> u64) -> CmdResult {
    let answer = match keyspace::head(ctx.view, ctx.db, key)? {
        None => -2,
        Some(head) if head.expire_ms == 0 => -1,
        Some(head) => {
            let shown = show(head.expire_ms, ctx.view.now_ms());
            i64::try_from(shown).unwrap_or(i64::MAX)
        }
    };
    ctx.reply.int(answer);
    Ok(())
}

fn rounded_s(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

fn ttl(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    tell(ctx, args[1], |at, now| rounded_s(at.saturating_sub(now)))
}

fn pttl(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    tell(ctx, args[1], u64::saturating_sub)
}

fn expiretime(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    tell(ctx, args[1], |at, _| rounded_s(at))
}

fn pexpiretime(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    tell(ctx, args[1], |at, _| at)
}

const CHANGED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];

/// The table.
pub const COMMANDS: &[Command] = &[
    Command::write("expire", -3, expire)
        .syntax("key seconds:int [condition=(NX|XX|GT|LT)@7.0.0]")
        .history(&[("7.0.0", "Added `NX`, `XX`, `GT` and `LT`")])
        .flags(Flags::FAST)
        .keys(CHANGED)
        .categories(&["keyspace"])
        .migrated(Migrated::Expiring(TtlPlace::BehindKey(Time::Seconds)))
        .doc(
            Group::Generic,
            "1.0.0",
            "Lets a key expire after some seconds",
        ),
    Command::write("pexpire", -3, pexpire)
        .syntax("key milliseconds:int [condition=(NX|XX|GT|LT)@7.0.0]")
        .history(&[("7.0.0", "Added `NX`, `XX`, `GT` and `LT`")])
        .flags(Flags::FAST)
        .keys(CHANGED)
        .categories(&["keyspace"])
        .migrated(Migrated::Expiring(TtlPlace::BehindKey(Time::Milliseconds)))
        .doc(
            Group::Generic,
            "2.6.0",
            "Lets a key expire after some milliseconds",
        ),
    Command::write("expireat", -3, expireat)
        .syntax("key unix-time-seconds:time [condition=(NX|XX|GT|LT)@7.0.0]")
        .history(&[("7.0.0", "Added `NX`, `XX`, `GT` and `LT`")])
        .flags(Flags::FAST)
        .keys(CHANGED)
        .categories(&["keyspace"])
        .migrated(Migrated::Expiring(TtlPlace::BehindKey(Time::UnixSeconds)))
        .doc(
            Group::Generic,
            "1.2.0",
            "Lets a key expire at a Unix time in seconds",
        ),
    Command::write("pexpireat", -3, pexpireat)
        .syntax("key unix-time-milliseconds:time [condition=(NX|XX|GT|LT)@7.0.0]")
        .history(&[("7.0.0", "Added `NX`, `XX`, `GT` and `LT`")])
        .flags(Flags::FAST)
        .keys(CHANGED)
        .categories(&["keyspace"])
        .migrated(Migrated::Expiring(TtlPlace::BehindKey(
            Time::UnixMilliseconds,
        )))
        .doc(
            Group::Generic,
            "2.6.0",
            "Lets a key expire at a Unix time in milliseconds",
        ),
    Command::write("persist", 2, persist)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(CHANGED)
        .categories(&["keyspace"])
        .doc(Group::Generic, "2.2.0", "Takes a key's expiry away"),
    Command::read("ttl", 2, ttl)
        .syntax("key")
        .history(&[("2.8.0", "Answers -2 if there is no key")])
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(READ)
        .categories(&["keyspace"])
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Generic,
            "1.0.0",
            "Says in how many seconds a key expires",
        ),
    Command::read("pttl", 2, pttl)
        .syntax("key")
        .history(&[("2.8.0", "Answers -2 if there is no key")])
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(READ)
        .categories(&["keyspace"])
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Generic,
            "2.6.0",
            "Says in how many milliseconds a key expires",
        ),
    Command::read("expiretime", 2, expiretime)
        .syntax("key")
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(READ)
        .categories(&["keyspace"])
        .doc(
            Group::Generic,
            "7.0.0",
            "Says when a key expires, as a Unix time in seconds",
        ),
    Command::read("pexpiretime", 2, pexpiretime)
        .syntax("key")
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(READ)
        .categories(&["keyspace"])
        .doc(
            Group::Generic,
            "7.0.0",
            "Says when a key expires, as a Unix time in milliseconds",
        ),
];
