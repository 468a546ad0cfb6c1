//! Commands that set, read and remove the expiry of keys.
//!
//! The binlog gets an absolute time (`PEXPIREAT`), or `DEL` if the time is in the past,
//! never a relative TTL, which would start later on a replica.

use super::args::{self, Options};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::num;
use crate::base::time::UnixMs;
use crate::commands::table::migrated::{Migrated, Time, TtlPlace};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::storage::txn::events::Class;
use crate::types::keyspace;

/// The unit and the origin of an EXPIRE command's time.
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

    /// Whether the conditions allow the expiry `when_ms` (Unix ms) for a key that expires at
    /// `current_ms`. 0 is no expiry, which counts as later than any time.
    fn allow(&self, current_ms: UnixMs, when_ms: i64) -> bool {
        let expires = current_ms.is_some();
        let current_ms = current_ms.as_i64();
        !(self.nx && expires
            || self.xx && !expires
            || self.gt && (!expires || when_ms <= current_ms)
            || self.lt && expires && when_ms >= current_ms)
    }
}

/// The time that an argument means, in Unix ms; may be negative (before 1970).
fn moment_ms(arg: &[u8], unit: Unit, now_ms: UnixMs) -> Result<i64, Error> {
    let start_ms = match unit.from_now {
        true => now_ms.as_i64(),
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
    // `expiry_now_ms` is 0 where keys do not expire by the local clock, as for effects
    // of a master: the master deletes the key.
    let over_ms = ctx.txn.over_when_set_ms();
    let first_ms = match over_ms.is_some() || ctx.txn.is_received() {
        true => when_ms,
        // An import keeps a key whose time is over, also if that was before 1970.
        false => when_ms.max(1),
    };
    match u64::try_from(first_ms).map(UnixMs) {
        Ok(expire_ms) if expire_ms > over_ms => {
            ctx.txn.set_expiry(ctx.db, key, &found, expire_ms)?;
            let mut text = Vec::new();
            num::write_i64(&mut text, first_ms);
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
        Some(found) if found.meta.expire_ms.is_some() => {
            ctx.txn.set_expiry(ctx.db, key, &found, UnixMs::NONE)?;
            ctx.event(Class::GENERIC, "persist", key);
            1
        }
        _ => 0,
    };
    ctx.reply.int(persisted);
    Ok(())
}

/// Replies with −2 if there is no key, −1 if it has no expiry, otherwise with `show` of
/// the expiry and the current time (both Unix ms).
fn reply_expiry(
    ctx: &mut ReadCtx<'_>,
    key: &[u8],
    show: impl FnOnce(UnixMs, UnixMs) -> u64,
) -> CmdResult {
    let answer = match keyspace::head(ctx.view, ctx.db, key)? {
        None => -2,
        Some(head) if head.expire_ms == UnixMs::NONE => -1,
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
    reply_expiry(ctx, args[1], |at, now| rounded_s(at.since(now)))
}

fn pttl(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_expiry(ctx, args[1], UnixMs::since)
}

fn expiretime(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_expiry(ctx, args[1], |at, _| rounded_s(at.0))
}

fn pexpiretime(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_expiry(ctx, args[1], |at, _| at.0)
}

const CHANGED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];

/// The rows of these commands in the command table.
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
            "Sets when a key expires, in seconds from now",
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
            "Sets when a key expires, in milliseconds from now",
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
            "Sets when a key expires, as a Unix time in seconds",
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
            "Sets when a key expires, as a Unix time in milliseconds",
        ),
    Command::write("persist", 2, persist)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(CHANGED)
        .categories(&["keyspace"])
        .doc(Group::Generic, "2.2.0", "Removes the expiry of a key"),
    Command::read("ttl", 2, ttl)
        .syntax("key")
        .history(&[("2.8.0", "Returns -2 if there is no key")])
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(READ)
        .categories(&["keyspace"])
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Generic,
            "1.0.0",
            "Returns in how many seconds a key expires",
        ),
    Command::read("pttl", 2, pttl)
        .syntax("key")
        .history(&[("2.8.0", "Returns -2 if there is no key")])
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(READ)
        .categories(&["keyspace"])
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Generic,
            "2.6.0",
            "Returns in how many milliseconds a key expires",
        ),
    Command::read("expiretime", 2, expiretime)
        .syntax("key")
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(READ)
        .categories(&["keyspace"])
        .doc(
            Group::Generic,
            "7.0.0",
            "Returns when a key expires, as a Unix time in seconds",
        ),
    Command::read("pexpiretime", 2, pexpiretime)
        .syntax("key")
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(READ)
        .categories(&["keyspace"])
        .doc(
            Group::Generic,
            "7.0.0",
            "Returns when a key expires, as a Unix time in milliseconds",
        ),
];
