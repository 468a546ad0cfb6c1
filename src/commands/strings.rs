//! Strings: GET and SET with their variants, counters, ranges. LCS is in [`super::lcs`].

pub mod conditions;
pub mod increx;
pub mod msetex;

use super::args::{self, Options};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::longdouble::{self, LongDouble};
use crate::base::time::UnixMs;
use crate::commands::table::migrated::{Migrated, Part, Time, TtlPlace};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::encoding::meta::StringForm;
use crate::resp::Reply;
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, KeyMeta, View};
use crate::types::OpError;
use crate::types::string::{self, Expiry, Visited};
use conditions::Condition;
use std::ops::Range;

/// Replies with a part of a string as one bulk, read directly from storage; `pick` gets the
/// length and returns the range. Returns whether the key exists; if not, writes nothing.
fn reply_part(
    view: &mut View,
    reply: &mut Reply,
    db: DbIndex,
    key: &[u8],
    pick: impl Fn(u64) -> Range<u64>,
) -> Result<bool, OpError> {
    let mut copied = None;
    let found = string::visit(view, db, key, |bytes| {
        let range = pick(bytes.len() as u64);
        let part = &bytes[range.start as usize..range.end as usize];
        match reply.has_room_for(part.len()) {
            true => reply.bulk(part),
            // The row may be in the row cache, whose lock is held here; borrowing takes others.
            false => copied = Some(part.to_vec()),
        }
    })?;
    if let Some(part) = copied {
        reply.bulk(&part);
    }
    if let Some(Visited::Long(long)) = &found {
        let range = pick(long.len());
        let len = (range.end - range.start) as usize;
        reply.bulk_with(len, |buf| long.read_into(view, db, range, buf))?;
    }
    Ok(found.is_some())
}

/// Replies with a string, or null if the key does not exist; returns whether it exists.
fn reply_value(
    view: &mut View,
    reply: &mut Reply,
    db: DbIndex,
    key: &[u8],
) -> Result<bool, OpError> {
    let found = reply_part(view, reply, db, key, |len| 0..len)?;
    if !found {
        reply.null();
    }
    Ok(found)
}

/// [`reply_value`] for a command that writes afterwards.
fn reply_old(ctx: &mut WriteCtx<'_>, key: &[u8]) -> Result<bool, OpError> {
    ctx.txn
        .counting(|txn| reply_value(txn, ctx.reply, ctx.db, key))
}

/// Maximum length of a string, in bytes. Effects of a master are applied whatever the local
/// limit is.
pub(super) fn max_len(ctx: &WriteCtx<'_>) -> u64 {
    match ctx.txn.is_received() {
        true => i64::MAX.unsigned_abs(),
        false => ctx.server.config.load().proto_max_bulk_len_bytes,
    }
}

fn get(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_value(ctx.view, ctx.reply, ctx.db, args[1])?;
    Ok(())
}

fn mget(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    ctx.reply.array(args.len() - 1);
    for (at, key) in args[1..].iter().enumerate() {
        ctx.view.prefetch_from(ctx.db, &args[1..], 1, at);
        match reply_value(ctx.view, ctx.reply, ctx.db, key) {
            Ok(_) => {}
            Err(OpError::WrongType) => ctx.reply.null(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn strlen(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let len = string::len(ctx.view, ctx.db, args[1])?.unwrap_or(0);
    ctx.reply.int(len as i64);
    Ok(())
}

fn getrange(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (start, end) = (args::int(args[2])?, args::int(args[3])?);
    let pick = |len| string::resolve_range(start, end, len);
    if !reply_part(ctx.view, ctx.reply, ctx.db, args[1], pick)? {
        ctx.reply.bulk(b"");
    }
    Ok(())
}

/// The expiry option of SET and GETEX; at most one is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ttl<'a> {
    None,
    /// KEEPTTL, PERSIST.
    Word,
    At(When, &'a [u8]),
}

/// The unit of an expiry, and whether it is relative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Ex,
    Px,
    Exat,
    Pxat,
}

impl<'a> Ttl<'a> {
    /// Takes the next argument if it is an expiry option. The same option may be repeated, a
    /// different one is a syntax error.
    fn take(&mut self, options: &mut Options<'a>, word: &str) -> Result<bool, Error> {
        if options.word(word) {
            if !matches!(self, Ttl::None | Ttl::Word) {
                return Err(Error::Syntax);
            }
            *self = Ttl::Word;
            return Ok(true);
        }
        for (name, when) in [
            ("EX", When::Ex),
            ("PX", When::Px),
            ("EXAT", When::Exat),
            ("PXAT", When::Pxat),
        ] {
            if options.word(name) {
                match self {
                    Ttl::None => {}
                    Ttl::At(before, _) if *before == when => {}
                    _ => return Err(Error::Syntax),
                }
                *self = Ttl::At(when, options.value()?);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The expiry in Unix ms; the error names `command`.
fn expire_ms(when: When, number: &[u8], now_ms: UnixMs, command: &str) -> Result<UnixMs, Error> {
    let number = args::int(number)?;
    let absolute = || {
        let number = u64::try_from(number).ok().filter(|n| *n > 0)?;
        let ms = match when {
            When::Ex | When::Exat => number.checked_mul(1000)?,
            When::Px | When::Pxat => number,
        };
        let ms = match when {
            When::Ex | When::Px => ms.checked_add(now_ms.0)?,
            When::Exat | When::Pxat => ms,
        };
        (ms <= i64::MAX.unsigned_abs()).then_some(UnixMs(ms))
    };
    absolute()
        .ok_or_else(|| Error::owned(format!("ERR invalid expire time in '{command}' command")))
}

/// The options of SET.
#[derive(Debug)]
struct SetOptions<'a> {
    ttl: Ttl<'a>,
    nx: bool,
    xx: bool,
    condition: Option<Condition<'a>>,
    get: bool,
}

impl<'a> SetOptions<'a> {
    fn parse(args: &'a [&'a [u8]]) -> Result<Self, Error> {
        let mut parsed = SetOptions {
            ttl: Ttl::None,
            nx: false,
            xx: false,
            condition: None,
            get: false,
        };
        let mut options = Options::new(args, 3);
        while !options.is_empty() {
            if options.word("NX") {
                parsed.nx = true;
            } else if options.word("XX") {
                parsed.xx = true;
            } else if options.word("GET") {
                parsed.get = true;
            } else if let Some(condition) = Condition::take(&mut options)? {
                if parsed.condition.replace(condition).is_some() {
                    return Err(Error::Syntax);
                }
            } else if !parsed.ttl.take(&mut options, "KEEPTTL")? {
                return Err(Error::Syntax);
            }
        }
        let conditions = [parsed.nx, parsed.xx, parsed.condition.is_some()];
        if conditions.iter().filter(|given| **given).count() > 1 {
            return Err(Error::Syntax);
        }
        Ok(parsed)
    }

    /// Whether the key, which has this head, meets the conditions.
    fn hold(
        &self,
        ctx: &mut WriteCtx<'_>,
        key: &[u8],
        old: Option<&KeyMeta>,
    ) -> Result<bool, Error> {
        if (self.nx && old.is_some()) || (self.xx && old.is_none()) {
            return Ok(false);
        }
        let Some(condition) = self.condition else {
            return Ok(true);
        };
        let holds = condition.holds(ctx.txn, ctx.db, key)?;
        Ok(holds.unwrap_or(condition.holds_without_key()))
    }
}

fn set(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.len() == 3 {
        put(ctx, args[1], args[2])?;
        ctx.reply.ok();
        return Ok(());
    }
    let (key, value) = (args[1], args[2]);
    let options = SetOptions::parse(args)?;
    let expiry = match options.ttl {
        Ttl::None => Expiry::Clear,
        Ttl::Word => Expiry::Keep,
        Ttl::At(when, number) => Expiry::At(expire_ms(when, number, ctx.txn.now_ms(), "set")?),
    };
    if options.get {
        reply_old(ctx, key)?;
    }
    let old = string::head(ctx.txn, ctx.db, key)?;
    if !options.hold(ctx, key, old.as_ref())? {
        if !options.get {
            ctx.reply.null();
        }
        return Ok(());
    }
    set_with_effect(ctx, key, old.as_ref(), value, expiry)?;
    set_events(ctx, key, expiry);
    if !options.get {
        ctx.reply.ok();
    }
    Ok(())
}

/// Sets a key without expiry.
fn put(ctx: &mut WriteCtx<'_>, key: &[u8], value: &[u8]) -> CmdResult {
    string::set(ctx.txn, ctx.db, key, value, Expiry::Clear)?;
    ctx.event(Class::STRING, "set", key);
    Ok(())
}

/// Sets a key and states the effect with an absolute expiry.
fn set_with_effect(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    old: Option<&KeyMeta>,
    value: &[u8],
    expiry: Expiry,
) -> CmdResult {
    string::set_over(ctx.txn, ctx.db, key, old, value, StringForm::Given, expiry)?;
    set_effect(ctx, key, value, expiry);
    Ok(())
}

/// States the effect SET with an absolute expiry.
fn set_effect(ctx: &mut WriteCtx<'_>, key: &[u8], value: &[u8], expiry: Expiry) {
    match expiry {
        Expiry::Clear => ctx.txn.effect(ctx.db, &[b"SET", key, value]),
        Expiry::Keep => ctx.txn.effect(ctx.db, &[b"SET", key, value, b"KEEPTTL"]),
        Expiry::At(ms) => {
            let mut text = itoa::Buffer::new();
            let ms = text.format(ms.0).as_bytes();
            ctx.txn.effect(ctx.db, &[b"SET", key, value, b"PXAT", ms]);
        }
    }
}

fn set_events(ctx: &mut WriteCtx<'_>, key: &[u8], expiry: Expiry) {
    ctx.event(Class::STRING, "set", key);
    if matches!(expiry, Expiry::At(_)) {
        ctx.event(Class::GENERIC, "expire", key);
    }
}

fn set_with_expiry(ctx: &mut WriteCtx<'_>, args: &[&[u8]], when: When, command: &str) -> CmdResult {
    let ms = expire_ms(when, args[2], ctx.txn.now_ms(), command)?;
    let old = string::head(ctx.txn, ctx.db, args[1])?;
    set_with_effect(ctx, args[1], old.as_ref(), args[3], Expiry::At(ms))?;
    set_events(ctx, args[1], Expiry::At(ms));
    ctx.reply.ok();
    Ok(())
}

fn setex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    set_with_expiry(ctx, args, When::Ex, "setex")
}

fn psetex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    set_with_expiry(ctx, args, When::Px, "psetex")
}

fn setnx(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let old = string::head(ctx.txn, ctx.db, args[1])?;
    if old.is_none() {
        string::set(ctx.txn, ctx.db, args[1], args[2], Expiry::Clear)?;
        ctx.event(Class::STRING, "set", args[1]);
    }
    ctx.reply.int(i64::from(old.is_none()));
    Ok(())
}

fn getset(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_old(ctx, args[1])?;
    put(ctx, args[1], args[2])?;
    ctx.txn.effect(ctx.db, &[b"SET", args[1], args[2]]);
    Ok(())
}

fn getdel(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if reply_old(ctx, args[1])? {
        remove(ctx, args[1])?;
    }
    Ok(())
}

fn remove(ctx: &mut WriteCtx<'_>, key: &[u8]) -> CmdResult {
    ctx.txn.delete_key(ctx.db, key)?;
    ctx.txn.effect(ctx.db, &[b"DEL", key]);
    Ok(())
}

fn getex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let mut ttl = Ttl::None;
    let mut options = Options::new(args, 2);
    while !options.is_empty() {
        if !ttl.take(&mut options, "PERSIST")? {
            return Err(Error::Syntax);
        }
    }
    if !reply_old(ctx, key)? {
        return Ok(());
    }
    let now_ms = ctx.txn.now_ms();
    let new_ms = match ttl {
        Ttl::None => return Ok(()),
        Ttl::Word => UnixMs::NONE,
        Ttl::At(when, number) => expire_ms(when, number, now_ms, "getex")?,
    };
    if new_ms.is_some() && new_ms <= ctx.txn.over_when_set_ms() {
        return remove(ctx, key);
    }
    let Some(old) = ctx.txn.lookup(ctx.db, key)? else {
        return Ok(());
    };
    if old.meta.expire_ms == new_ms {
        return Ok(());
    }
    ctx.txn.set_expiry(ctx.db, key, &old, new_ms)?;
    if new_ms == UnixMs::NONE {
        ctx.txn.effect(ctx.db, &[b"PERSIST", key]);
        ctx.event(Class::GENERIC, "persist", key);
    } else {
        let mut text = itoa::Buffer::new();
        let ms = text.format(new_ms.0).as_bytes();
        ctx.txn.effect(ctx.db, &[b"PEXPIREAT", key, ms]);
        ctx.event(Class::GENERIC, "expire", key);
    }
    Ok(())
}

fn mset(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    for (at, (key, value)) in pairs(args, "mset")?.enumerate() {
        ctx.txn.prefetch_from(ctx.db, &args[1..], 2, at);
        put(ctx, key, value)?;
    }
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    for (at, (key, _)) in pairs(args, "msetnx")?.enumerate() {
        ctx.txn.prefetch_from(ctx.db, &args[1..], 2, at);
        if string::head(ctx.txn, ctx.db, key)?.is_some() {
            ctx.reply.int(0);
            return Ok(());
        }
    }
    for (at, (key, value)) in pairs(args, "msetnx")?.enumerate() {
        ctx.txn.prefetch_from(ctx.db, &args[1..], 2, at);
        put(ctx, key, value)?;
    }
    ctx.reply.int(1);
    Ok(())
}

/// The pairs of keys and values after the command's name.
fn pairs<'a>(
    args: &'a [&'a [u8]],
    command: &'static str,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])>, Error> {
    if args.len().is_multiple_of(2) {
        return Err(Error::Arity(command.into()));
    }
    Ok(args[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])))
}

fn append(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let max_len = max_len(ctx);
    let len = string::append(ctx.txn, ctx.db, args[1], args[2], max_len)?;
    ctx.event(Class::STRING, "append", args[1]);
    ctx.reply.int(len as i64);
    Ok(())
}

fn setrange(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let offset = u64::try_from(args::int(args[2])?)
        .map_err(|_| Error::text("ERR offset is out of range"))?;
    let max_len = max_len(ctx);
    let len = string::set_range(ctx.txn, ctx.db, args[1], offset, args[3], max_len)?;
    if !args[3].is_empty() {
        ctx.event(Class::STRING, "setrange", args[1]);
    }
    ctx.reply.int(len as i64);
    Ok(())
}

fn count(ctx: &mut WriteCtx<'_>, key: &[u8], by: i64) -> CmdResult {
    let value = string::increment(ctx.txn, ctx.db, key, by)?;
    ctx.event(Class::STRING, "incrby", key);
    ctx.reply.int(value);
    Ok(())
}

fn incr(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count(ctx, args[1], 1)
}

fn decr(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count(ctx, args[1], -1)
}

fn incrby(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count(ctx, args[1], args::int(args[2])?)
}

fn decrby(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let by = args::int(args[2])?
        .checked_neg()
        .ok_or(Error::text("ERR decrement would overflow"))?;
    count(ctx, args[1], by)
}

fn incrbyfloat(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    // A longer value cannot be a number, so it is not read.
    let whole = |len| match len <= longdouble::MAX_TEXT_LEN as u64 {
        true => 0..len,
        false => 0..0,
    };
    let old = string::with_range(ctx.txn, ctx.db, key, whole, LongDouble::parse)?;
    let old = match old {
        Some(old) => old.ok_or(OpError::NotFloat)?,
        None => LongDouble::parse(b"0").ok_or(OpError::NotFloat)?,
    };
    let sum = old.add(LongDouble::parse(args[2]).ok_or(OpError::NotFloat)?);
    if !sum.is_finite() {
        return Err(OpError::NotFinite.into());
    }
    let text = sum.to_human();
    let head = string::head(ctx.txn, ctx.db, key)?;
    let (form, expiry) = (StringForm::Text, Expiry::Keep);
    string::set_over(ctx.txn, ctx.db, key, head.as_ref(), &text, form, expiry)?;
    set_effect(ctx, key, &text, expiry);
    ctx.event(Class::STRING, "incrbyfloat", key);
    ctx.reply.bulk(&text);
    Ok(())
}

const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const UPDATE: &[KeySpec] = &[KeySpec::at(
    1,
    KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE),
)];
const OVERWRITE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE))];
const FAST_GROWTH: Flags = Flags::FAST.union(Flags::DENYOOM);

const EXCHANGE: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE);

/// SET reads its key only with GET or a condition on its value.
fn set_key_flags(args: &[&[u8]]) -> KeyFlags {
    let options = args.get(3..).unwrap_or_default();
    let gets = options.iter().any(|option| args::is(option, "GET"));
    match gets || conditions::any(options) {
        true => EXCHANGE,
        false => KeyFlags::OW.union(KeyFlags::UPDATE),
    }
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("append", 3, append)
        .syntax("key value")
        .flags(FAST_GROWTH)
        .keys(&[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))])
        .doc(
            Group::String,
            "2.0.0",
            "Appends bytes to a string, and creates it if absent",
        ),
    Command::write("decr", 2, decr)
        .syntax("key")
        .flags(FAST_GROWTH)
        .keys(UPDATE)
        .doc(Group::String, "1.0.0", "Decrements an integer by one"),
    Command::write("decrby", 3, decrby)
        .syntax("key decrement:int")
        .flags(FAST_GROWTH)
        .keys(UPDATE)
        .doc(Group::String, "1.0.0", "Subtracts from an integer"),
    Command::read("get", 2, get)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(READ)
        .doc(Group::String, "1.0.0", "Returns the string at a key"),
    Command::write("getdel", 2, getdel)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(
            1,
            KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE),
        )])
        .doc(
            Group::String,
            "6.2.0",
            "Returns the string at a key and deletes the key",
        ),
    Command::write("getex", -2, getex)
        .syntax(
            "key [expiration=(EX seconds:int|PX milliseconds:int|EXAT \
             unix-time-seconds:time|PXAT unix-time-milliseconds:time|PERSIST)]",
        )
        .flags(Flags::FAST)
        .keys(UPDATE)
        .doc(
            Group::String,
            "6.2.0",
            "Returns the string at a key and changes when the key expires",
        ),
    Command::read("getrange", 4, getrange)
        .syntax("key start:int end:int")
        .complexity("O(N), N: bytes answered")
        .keys(READ)
        .doc(
            Group::String,
            "2.4.0",
            "Returns the part of a string between two positions",
        ),
    Command::write("getset", 3, getset)
        .syntax("key value")
        .flags(FAST_GROWTH)
        .keys(UPDATE)
        .deprecated("6.2.0", "`SET` with `GET`")
        .doc(
            Group::String,
            "1.0.0",
            "Sets a key and returns the string that it held before",
        ),
    Command::write("incr", 2, incr)
        .syntax("key")
        .flags(FAST_GROWTH)
        .keys(UPDATE)
        .doc(Group::String, "1.0.0", "Increments an integer by one"),
    Command::write("incrby", 3, incrby)
        .syntax("key increment:int")
        .flags(FAST_GROWTH)
        .keys(UPDATE)
        .doc(Group::String, "1.0.0", "Adds to an integer"),
    Command::write("incrbyfloat", 3, incrbyfloat)
        .syntax("key increment:double")
        .flags(FAST_GROWTH)
        .keys(UPDATE)
        .doc(Group::String, "2.6.0", "Adds to a floating point number"),
    Command::read("lcs", -3, super::lcs::lcs)
        .syntax(
            "key1:key key2:key#0 [LEN] [IDX] [MINMATCHLEN min-match-len:int] \
             [WITHMATCHLEN]",
        )
        .complexity("O(N M), N, M: the lengths of the strings")
        .keys(&[KeySpec::range(
            1,
            1,
            1,
            KeyFlags::RO.union(KeyFlags::ACCESS),
        )])
        .doc(
            Group::String,
            "7.0.0",
            "Finds the longest common subsequence of two strings",
        ),
    Command::read("mget", -2, mget)
        .syntax("key...")
        .complexity("O(K), K: keys")
        .flags(Flags::FAST)
        .keys(&[KeySpec::range(
            1,
            -1,
            1,
            KeyFlags::RO.union(KeyFlags::ACCESS),
        )])
        .tips(&[Tip::RequestMultiShard])
        .doc(
            Group::String,
            "1.0.0",
            "Returns the strings at several keys",
        ),
    Command::write("mset", -3, mset)
        .syntax("data=(key value)...")
        .complexity("O(K), K: keys")
        .flags(Flags::DENYOOM)
        .keys(&[KeySpec::range(
            1,
            -1,
            2,
            KeyFlags::OW.union(KeyFlags::UPDATE),
        )])
        .tips(&[Tip::RequestMultiShard, Tip::ResponseAllSucceeded])
        .migrated(Migrated::Keys(Part::FewerPairs))
        .doc(Group::String, "1.0.1", "Sets several keys at once"),
    Command::write("msetnx", -3, msetnx)
        .syntax("data=(key value)...")
        .complexity("O(K), K: keys")
        .flags(Flags::DENYOOM)
        .keys(&[KeySpec::range(
            1,
            -1,
            2,
            KeyFlags::OW.union(KeyFlags::INSERT),
        )])
        .migrated(Migrated::Keys(Part::FewerPairs))
        .doc(
            Group::String,
            "1.0.1",
            "Sets several keys at once, if none of them exists",
        ),
    Command::write("psetex", 4, psetex)
        .syntax("key milliseconds:int value")
        .flags(Flags::DENYOOM)
        .keys(OVERWRITE)
        .deprecated("2.6.12", "`SET` with `PX`")
        .migrated(Migrated::Expiring(TtlPlace::BeforeValue(
            Time::Milliseconds,
        )))
        .doc(
            Group::String,
            "2.6.0",
            "Sets a key that expires after some milliseconds",
        ),
    Command::write("set", -3, set)
        .syntax(
            "key value [condition=(NX|XX|IFEQ ifeq-value@8.4.0|IFNE ifne-value@8.4.0|\
             IFDEQ ifdeq-digest@8.4.0|IFDNE ifdne-digest@8.4.0)@2.6.12] [GET@6.2.0] \
             [expiration=(EX seconds:int@2.6.12|PX milliseconds:int@2.6.12|EXAT \
             unix-time-seconds:time@6.2.0|PXAT unix-time-milliseconds:time@6.2.0|\
             KEEPTTL@6.0.0)]",
        )
        .history(&[
            ("2.6.12", "Added `EX`, `PX`, `NX` and `XX`"),
            ("6.0.0", "Added `KEEPTTL`"),
            ("6.2.0", "Added `GET`, `EXAT` and `PXAT`"),
            ("7.0.0", "`NX` and `GET` go together"),
            ("8.4.0", "Added `IFEQ`, `IFNE`, `IFDEQ` and `IFDNE`"),
        ])
        .flags(Flags::DENYOOM)
        .keys(&[KeySpec::at(1, EXCHANGE).varying(set_key_flags)])
        .migrated(Migrated::Expiring(TtlPlace::Option))
        .doc(
            Group::String,
            "1.0.0",
            "Sets a key to a string, whatever it held; conditions and expiry are options",
        ),
    Command::write("setex", 4, setex)
        .syntax("key seconds:int value")
        .flags(Flags::DENYOOM)
        .keys(OVERWRITE)
        .deprecated("2.6.12", "`SET` with `EX`")
        .migrated(Migrated::Expiring(TtlPlace::BeforeValue(Time::Seconds)))
        .doc(
            Group::String,
            "2.0.0",
            "Sets a key that expires after some seconds",
        ),
    Command::write("setnx", 3, setnx)
        .syntax("key value")
        .flags(FAST_GROWTH)
        .keys(&[KeySpec::at(1, KeyFlags::OW.union(KeyFlags::INSERT))])
        .deprecated("2.6.12", "`SET` with `NX`")
        .doc(Group::String, "1.0.0", "Sets a key, if it does not exist"),
    Command::write("setrange", 4, setrange)
        .syntax("key offset:int value")
        .complexity("O(N), N: the length of what is written")
        .flags(Flags::DENYOOM)
        .keys(&[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))])
        .doc(
            Group::String,
            "2.2.0",
            "Overwrites a part of a string from a position on",
        ),
    Command::read("strlen", 2, strlen)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(1, KeyFlags::RO)])
        .doc(
            Group::String,
            "2.2.0",
            "Returns the length of a string in bytes",
        ),
    Command::read("substr", 4, getrange)
        .syntax("key start:int end:int")
        .complexity("O(N), N: bytes answered")
        .keys(READ)
        .deprecated("2.0.0", "`GETRANGE`")
        .doc(Group::String, "1.0.0", "The old name of GETRANGE"),
];

#[cfg(test)]
mod tests;
