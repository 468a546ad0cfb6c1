//! Times of hash fields: commands that set, read and remove when single fields expire.
//!
//! The binlog gets absolute effects that Redis 7.4 and later know, too: `HPEXPIREAT` for the fields
//! whose time was set, `HPERSIST`, `HSET`, and `HDEL` for fields whose time is over.

use super::args::{self, Options};
use super::error::quoted;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::num;
use crate::base::time::UnixMs;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::encoding::ValueType;
use crate::storage::txn::events::Class;
use crate::types::members::Members;

/// The latest time of a field, in Unix ms: that of Redis.
const MAX_MS: i64 = (1 << 46) - 1;

const NO_FIELD: i64 = -2;
const NO_TIME: i64 = -1;
const NOT_MET: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;

const NO_FIELDS: Error =
    Error::text("ERR Mandatory argument FIELDS is missing or not at the right position");
const MISCOUNTED: Error =
    Error::text("ERR The `numfields` parameter must match the number of arguments");
const NUMFIELDS: Error = Error::text("ERR Parameter `numFields` should be greater than 0");
const FIELDS_NOT_POSITIVE: Error = Error::text("ERR Number of fields must be a positive integer");
const BAD_NUMBER: Error = Error::text("ERR invalid number of fields");
const NEGATIVE: Error = Error::text("ERR invalid expire time, must be >= 0");
const ONE_CONDITION: Error = Error::text("ERR Only one of FXX or FNX arguments can be specified");
const ONE_EXPIRY: Error =
    Error::text("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified");

/// The unit and the origin of a time.
#[derive(Clone, Copy)]
struct Unit {
    ms: i64,
    from_now: bool,
}

const SECONDS: Unit = Unit {
    ms: 1000,
    from_now: true,
};
const MILLISECONDS: Unit = Unit {
    ms: 1,
    from_now: true,
};
const UNIX_SECONDS: Unit = Unit {
    ms: 1000,
    from_now: false,
};
const UNIX_MILLISECONDS: Unit = Unit {
    ms: 1,
    from_now: false,
};

/// The time that an argument means.
fn moment(arg: &[u8], unit: Unit, now_ms: UnixMs, name: &str) -> Result<UnixMs, Error> {
    let time = args::int(arg)?;
    if time < 0 {
        return Err(NEGATIVE);
    }
    let start_ms = match unit.from_now {
        true => now_ms.as_i64(),
        false => 0,
    };
    let at_ms = time
        .checked_mul(unit.ms)
        .and_then(|ms| ms.checked_add(start_ms))
        .filter(|ms| *ms <= MAX_MS)
        .and_then(|ms| u64::try_from(ms).ok());
    // 0 is no time at all.
    at_ms
        .map(|ms| UnixMs(ms.max(1)))
        .ok_or_else(|| Error::owned(format!("ERR invalid expire time in '{name}' command")))
}

/// The unit that one of the words EX, PX, EXAT and PXAT means, if it comes next.
fn unit_word(options: &mut Options<'_>) -> Option<Unit> {
    let units = [
        ("EX", SECONDS),
        ("PX", MILLISECONDS),
        ("EXAT", UNIX_SECONDS),
        ("PXAT", UNIX_MILLISECONDS),
    ];
    let found = units.into_iter().find(|(word, _)| options.word(word));
    found.map(|(_, unit)| unit)
}

/// `FIELDS n field…`, which must be all that is left.
fn fields<'a>(options: &mut Options<'a>, bad_number: Error) -> Result<&'a [&'a [u8]], Error> {
    if !options.word("FIELDS") {
        return Err(NO_FIELDS);
    }
    let number = options.value().unwrap_or_default();
    let number = match num::parse_i64(number) {
        Some(n) if n > 0 => n.unsigned_abs(),
        _ => return Err(bad_number),
    };
    let left = options.left();
    match left as u64 == number {
        true => options.values(left),
        false => Err(MISCOUNTED),
    }
}

/// States that fields got a time, lost theirs, or were deleted: `command fields…`, with how many
/// there are in between for commands that want it.
fn state(ctx: &mut WriteCtx<'_>, command: &[&[u8]], counted: bool, fields: &[&[u8]]) {
    if fields.is_empty() {
        return;
    }
    let mut digits = itoa::Buffer::new();
    let mut effect = command.to_vec();
    if counted {
        effect.extend([&b"FIELDS"[..], digits.format(fields.len()).as_bytes()]);
    }
    effect.extend(fields);
    ctx.txn.effect(ctx.db, &effect);
}

/// States that fields expire at `at_ms`.
pub(super) fn state_times(ctx: &mut WriteCtx<'_>, key: &[u8], at_ms: UnixMs, fields: &[&[u8]]) {
    let mut digits = itoa::Buffer::new();
    let at_ms = digits.format(at_ms.0).as_bytes();
    state(ctx, &[b"HPEXPIREAT", key, at_ms], true, fields);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    Nx,
    Xx,
    Gt,
    Lt,
}

impl Condition {
    fn parse(options: &mut Options<'_>) -> Condition {
        let words = [
            ("NX", Condition::Nx),
            ("XX", Condition::Xx),
            ("GT", Condition::Gt),
            ("LT", Condition::Lt),
        ];
        let found = words.into_iter().find(|(word, _)| options.word(word));
        found.map_or(Condition::None, |(_, condition)| condition)
    }

    /// Whether a field that expires at `current_ms` may expire at `at_ms`. No time is later than
    /// any other.
    fn allows(self, current_ms: UnixMs, at_ms: UnixMs) -> bool {
        match self {
            Condition::None => true,
            Condition::Nx => !current_ms.is_some(),
            Condition::Xx => current_ms.is_some(),
            Condition::Gt => current_ms.is_some() && at_ms > current_ms,
            Condition::Lt => !current_ms.is_some() || at_ms < current_ms,
        }
    }
}

fn set_times(ctx: &mut WriteCtx<'_>, args: &[&[u8]], unit: Unit, name: &str) -> CmdResult {
    let key = args[1];
    let hash = Members::load(ctx.txn, ctx.db, key, ValueType::Hash)?;
    let at_ms = moment(args[2], unit, ctx.txn.now_ms(), name)?;
    let mut options = Options::new(args, 3);
    let condition = Condition::parse(&mut options);
    let fields = fields(&mut options, NUMFIELDS)?;
    ctx.reply.array(fields.len());
    let Some(mut hash) = hash else {
        fields.iter().for_each(|_| ctx.reply.int(NO_FIELD));
        return Ok(());
    };
    // On a replica nothing is over by the local clock: the master deletes.
    let is_over = at_ms <= ctx.txn.expiry_now_ms();
    let mut changed = Vec::new();
    for field in fields {
        let answer = match hash.time(ctx.txn, field)? {
            None => NO_FIELD,
            Some(current_ms) if !condition.allows(current_ms, at_ms) => NOT_MET,
            Some(_) if is_over => {
                hash.remove(ctx.txn, field)?;
                DELETED
            }
            Some(_) => {
                hash.set_time(ctx.txn, field, at_ms)?;
                DONE
            }
        };
        if answer > NOT_MET {
            changed.push(*field);
        }
        ctx.reply.int(answer);
    }
    finish_times(ctx, key, hash, fields, &changed, at_ms, is_over)
}

/// Ends a command that has changed nothing: those of its fields go whose time is over.
fn drop_over(ctx: &mut WriteCtx<'_>, key: &[u8], mut hash: Members, fields: &[&[u8]]) -> CmdResult {
    hash.drop_over(ctx.txn, fields)?;
    ctx.txn.no_effect();
    Ok(hash.save(ctx.txn, key)?)
}

/// Saves a hash fields of which got a time, or were deleted because that is over.
fn finish_times(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    hash: Members,
    fields: &[&[u8]],
    changed: &[&[u8]],
    at_ms: UnixMs,
    is_over: bool,
) -> CmdResult {
    if changed.is_empty() {
        return drop_over(ctx, key, hash, fields);
    }
    let event = if is_over { "hdel" } else { "hexpire" };
    ctx.event(Class::HASH, event, key);
    hash.save(ctx.txn, key)?;
    match is_over {
        true => state(ctx, &[b"HDEL", key], false, changed),
        false => state_times(ctx, key, at_ms, changed),
    }
    Ok(())
}

fn hexpire(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    set_times(ctx, args, SECONDS, "hexpire")
}

fn hpexpire(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    set_times(ctx, args, MILLISECONDS, "hpexpire")
}

fn hexpireat(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    set_times(ctx, args, UNIX_SECONDS, "hexpireat")
}

fn hpexpireat(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    set_times(ctx, args, UNIX_MILLISECONDS, "hpexpireat")
}

/// Replies for each field with `show` of its time and the current one, in ms.
fn reply_times(
    ctx: &mut ReadCtx<'_>,
    args: &[&[u8]],
    show: fn(UnixMs, UnixMs) -> u64,
) -> CmdResult {
    let hash = Members::load(ctx.view, ctx.db, args[1], ValueType::Hash)?;
    let fields = fields(&mut Options::new(args, 2), FIELDS_NOT_POSITIVE)?;
    ctx.reply.array(fields.len());
    for field in fields {
        let time = match &hash {
            Some(hash) => hash.time(ctx.view, field)?,
            None => None,
        };
        ctx.reply.int(match time {
            None => NO_FIELD,
            Some(UnixMs::NONE) => NO_TIME,
            Some(at_ms) => i64::try_from(show(at_ms, ctx.view.now_ms())).unwrap_or(i64::MAX),
        });
    }
    Ok(())
}

fn httl(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_times(ctx, args, |at, now| at.since(now).div_ceil(1000))
}

fn hpttl(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_times(ctx, args, UnixMs::since)
}

fn hexpiretime(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_times(ctx, args, |at, _| at.0.div_ceil(1000))
}

fn hpexpiretime(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_times(ctx, args, |at, _| at.0)
}

fn hpersist(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let hash = Members::load(ctx.txn, ctx.db, key, ValueType::Hash)?;
    let fields = fields(&mut Options::new(args, 2), FIELDS_NOT_POSITIVE)?;
    ctx.reply.array(fields.len());
    let Some(mut hash) = hash else {
        fields.iter().for_each(|_| ctx.reply.int(NO_FIELD));
        return Ok(());
    };
    let mut persisted = Vec::new();
    for field in fields {
        ctx.reply.int(match hash.time(ctx.txn, field)? {
            None => NO_FIELD,
            Some(UnixMs::NONE) => NO_TIME,
            Some(_) => {
                hash.clear_time(ctx.txn, field)?;
                persisted.push(*field);
                DONE
            }
        });
    }
    finish_persist(ctx, key, hash, fields, &persisted)
}

fn finish_persist(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    hash: Members,
    fields: &[&[u8]],
    persisted: &[&[u8]],
) -> CmdResult {
    if persisted.is_empty() {
        return drop_over(ctx, key, hash, fields);
    }
    ctx.event(Class::HASH, "hpersist", key);
    hash.save(ctx.txn, key)?;
    state(ctx, &[b"HPERSIST", key], true, persisted);
    Ok(())
}

/// Replies with the value of a field, or null; returns whether there is such a field.
fn reply_value(ctx: &mut WriteCtx<'_>, hash: &Members, field: &[u8]) -> Result<bool, Error> {
    let value = hash.get(ctx.txn, field)?;
    match &value {
        Some(value) => ctx.reply.bulk(value),
        None => ctx.reply.null(),
    }
    Ok(value.is_some())
}

fn hgetex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    const NAME: &str = "hgetex";
    let key = args[1];
    let hash = Members::load(ctx.txn, ctx.db, key, ValueType::Hash)?;
    let mut options = Options::new(args, 2);
    let persists = options.word("PERSIST");
    let at_ms = match unit_word(&mut options).filter(|_| !persists) {
        Some(unit) => {
            let at_ms = moment(options.value()?, unit, ctx.txn.now_ms(), NAME)?;
            if options.left() < 2 {
                return Err(Error::Arity(NAME.into()));
            }
            at_ms
        }
        None => UnixMs::NONE,
    };
    let fields = fields(&mut options, FIELDS_NOT_POSITIVE)?;
    ctx.reply.array(fields.len());
    let Some(mut hash) = hash else {
        fields.iter().for_each(|_| ctx.reply.null());
        return Ok(());
    };
    let is_over = at_ms.is_some() && at_ms <= ctx.txn.expiry_now_ms();
    let mut changed = Vec::new();
    for field in fields {
        let has_changed = reply_value(ctx, &hash, field)?
            && if persists {
                hash.clear_time(ctx.txn, field)?
            } else if is_over {
                hash.remove(ctx.txn, field)?
            } else if at_ms.is_some() {
                hash.set_time(ctx.txn, field, at_ms)?;
                true
            } else {
                false
            };
        if has_changed {
            changed.push(*field);
        }
    }
    match persists {
        true => finish_persist(ctx, key, hash, fields, &changed),
        false => finish_times(ctx, key, hash, fields, &changed, at_ms, is_over),
    }
}

fn hgetdel(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let hash = Members::load(ctx.txn, ctx.db, key, ValueType::Hash)?;
    let fields = fields(&mut Options::new(args, 2), FIELDS_NOT_POSITIVE)?;
    ctx.reply.array(fields.len());
    let Some(mut hash) = hash else {
        fields.iter().for_each(|_| ctx.reply.null());
        return Ok(());
    };
    let mut removed = Vec::new();
    for field in fields {
        if reply_value(ctx, &hash, field)? {
            hash.remove(ctx.txn, field)?;
            removed.push(*field);
        }
    }
    finish_times(ctx, key, hash, fields, &removed, UnixMs::NONE, true)
}

/// The time that HSETEX gives to fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NewTime {
    None,
    Kept,
    At(UnixMs),
}

/// The arguments of HSETEX behind the key.
struct SetOptions<'a> {
    /// Whether all fields must exist (FXX), or none of them (FNX).
    must_exist: Option<bool>,
    /// Whether the key must exist (XX), or not (NX): words of Valkey.
    key_must_exist: Option<bool>,
    time: NewTime,
    pairs: &'a [[&'a [u8]; 2]],
}

impl<'a> SetOptions<'a> {
    fn parse(args: &'a [&'a [u8]], now_ms: UnixMs) -> Result<SetOptions<'a>, Error> {
        const NAME: &str = "hsetex";
        let mut options = Options::new(args, 2);
        let (mut must_exist, mut key_must_exist, mut time) = (None, None, NewTime::None);
        while !options.word("FIELDS") {
            let wants_none = options.word("FNX");
            if wants_none || options.word("FXX") {
                if must_exist.replace(!wants_none).is_some() {
                    return Err(ONE_CONDITION);
                }
                continue;
            }
            let wants_no_key = options.word("NX");
            if wants_no_key || options.word("XX") {
                if key_must_exist.replace(!wants_no_key).is_some() {
                    return Err(Error::Syntax);
                }
                continue;
            }
            let new = if options.word("KEEPTTL") {
                NewTime::Kept
            } else if let Some(unit) = unit_word(&mut options) {
                if time != NewTime::None {
                    return Err(ONE_EXPIRY);
                }
                let at = options.value().map_err(|_| Error::Arity(NAME.into()))?;
                NewTime::At(moment(at, unit, now_ms, NAME)?)
            } else {
                let word = options.value().map_err(|_| Error::Arity(NAME.into()))?;
                let word = quoted(word, usize::MAX);
                return Err(Error::Bytes([b"ERR unknown argument: ", word].concat()));
            };
            if time != NewTime::None {
                return Err(ONE_EXPIRY);
            }
            time = new;
        }
        if options.left() < 3 {
            return Err(Error::Arity(NAME.into()));
        }
        let number = options.value()?;
        let number = num::parse_i64(number).and_then(|n| i32::try_from(n).ok());
        let number = number.filter(|n| *n > 0).ok_or(BAD_NUMBER)?.unsigned_abs();
        let (pairs, rest) = options.values(options.left())?.as_chunks::<2>();
        if !rest.is_empty() || pairs.len() as u64 != u64::from(number) {
            return Err(Error::Arity(NAME.into()));
        }
        Ok(SetOptions {
            must_exist,
            key_must_exist,
            time,
            pairs,
        })
    }
}

fn hsetex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let SetOptions {
        must_exist,
        key_must_exist,
        time,
        pairs,
    } = SetOptions::parse(args, ctx.txn.now_ms())?;
    let mut hash = Members::open(ctx.txn, ctx.db, key, ValueType::Hash)?;
    let fields: Vec<&[u8]> = pairs.iter().map(|[field, _]| *field).collect();
    if key_must_exist.is_some_and(|must_exist| must_exist == hash.is_empty()) {
        ctx.reply.int(NOT_MET);
        return drop_over(ctx, key, hash, &fields);
    }
    if let Some(must_exist) = must_exist {
        for field in &fields {
            if hash.contains(ctx.txn, field)? != must_exist {
                ctx.reply.int(NOT_MET);
                return drop_over(ctx, key, hash, &fields);
            }
        }
    }
    match time {
        NewTime::At(at_ms) if at_ms <= ctx.txn.expiry_now_ms() => {
            delete_over(ctx, key, hash, &fields)?;
        }
        _ => {
            for [field, value] in pairs {
                match time {
                    NewTime::None => hash.insert(ctx.txn, field, value)?,
                    _ => hash.insert_keeping_time(ctx.txn, field, value)?,
                };
                if let NewTime::At(at_ms) = time {
                    hash.set_time(ctx.txn, field, at_ms)?;
                }
            }
            set_with_times(ctx, key, hash, pairs, time)?;
        }
    }
    ctx.reply.int(DONE);
    Ok(())
}

/// HSETEX with a time that is over: the fields are gone at once.
fn delete_over(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    mut hash: Members,
    fields: &[&[u8]],
) -> CmdResult {
    let mut removed = Vec::new();
    let was_empty = hash.is_empty();
    for field in fields {
        if hash.remove(ctx.txn, field)? {
            removed.push(*field);
        }
    }
    if was_empty {
        ctx.event(Class::NEW, "new", key);
    }
    ctx.event(Class::HASH, "hset", key);
    ctx.event(Class::HASH, "hdel", key);
    hash.save(ctx.txn, key)?;
    if was_empty {
        ctx.event(Class::GENERIC, "del", key);
    }
    ctx.txn.no_effect();
    state(ctx, &[b"HDEL", key], false, &removed);
    Ok(())
}

/// Saves a hash whose fields HSETEX has set.
fn set_with_times(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    hash: Members,
    pairs: &[[&[u8]; 2]],
    time: NewTime,
) -> CmdResult {
    let mut kept = Vec::new();
    if time == NewTime::Kept {
        for [field, _] in pairs {
            let at_ms = hash.time(ctx.txn, field)?.unwrap_or_default();
            if at_ms.is_some() {
                kept.push((at_ms, *field));
            }
        }
    }
    hash.save(ctx.txn, key)?;
    ctx.event(Class::HASH, "hset", key);
    state(ctx, &[b"HSET", key], false, pairs.as_flattened());
    if let NewTime::At(at_ms) = time {
        ctx.event(Class::HASH, "hexpire", key);
        let fields: Vec<&[u8]> = pairs.iter().map(|[field, _]| *field).collect();
        state_times(ctx, key, at_ms, &fields);
    }
    // HSET takes the times away.
    kept.dedup();
    for (at_ms, field) in kept {
        state_times(ctx, key, at_ms, &[field]);
    }
    Ok(())
}

const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const READ_UPDATE: &[KeySpec] = &[KeySpec::at(
    1,
    KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE),
)];
const TAKE: &[KeySpec] = &[KeySpec::at(
    1,
    KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE),
)];

/// What most rows say.
const fn row(command: Command, syntax: &'static str, keys: &'static [KeySpec]) -> Command {
    command
        .syntax(syntax)
        .complexity("O(N), N: fields named")
        .flags(Flags::FAST)
        .keys(keys)
}

/// The rows of times of fields.
pub const COMMANDS: &[Command] = &[
    row(
        Command::write("hexpire", -6, hexpire),
        "key seconds:int [condition=(NX|XX|GT|LT)] FIELDS fields=(numfields:int field...)",
        UPDATE,
    )
    .doc(
        Group::Hash,
        "7.4.0",
        "Sets when fields expire, in seconds from now",
    ),
    row(
        Command::write("hpexpire", -6, hpexpire),
        "key milliseconds:int [condition=(NX|XX|GT|LT)] FIELDS fields=(numfields:int field...)",
        UPDATE,
    )
    .doc(
        Group::Hash,
        "7.4.0",
        "Sets when fields expire, in milliseconds from now",
    ),
    row(
        Command::write("hexpireat", -6, hexpireat),
        "key unix-time-seconds:time [condition=(NX|XX|GT|LT)] \
         FIELDS fields=(numfields:int field...)",
        UPDATE,
    )
    .doc(
        Group::Hash,
        "7.4.0",
        "Sets when fields expire, as a Unix time in seconds",
    ),
    row(
        Command::write("hpexpireat", -6, hpexpireat),
        "key unix-time-milliseconds:time [condition=(NX|XX|GT|LT)] \
         FIELDS fields=(numfields:int field...)",
        UPDATE,
    )
    .doc(
        Group::Hash,
        "7.4.0",
        "Sets when fields expire, as a Unix time in milliseconds",
    ),
    row(
        Command::read("httl", -5, httl),
        "key FIELDS fields=(numfields:int field...)",
        READ,
    )
    .tips(&[Tip::NondeterministicOutput])
    .doc(
        Group::Hash,
        "7.4.0",
        "Returns how many seconds are left until fields expire",
    ),
    row(
        Command::read("hpttl", -5, hpttl),
        "key FIELDS fields=(numfields:int field...)",
        READ,
    )
    .tips(&[Tip::NondeterministicOutput])
    .doc(
        Group::Hash,
        "7.4.0",
        "Returns how many milliseconds are left until fields expire",
    ),
    row(
        Command::read("hexpiretime", -5, hexpiretime),
        "key FIELDS fields=(numfields:int field...)",
        READ,
    )
    .doc(
        Group::Hash,
        "7.4.0",
        "Returns when fields expire, as a Unix time in seconds",
    ),
    row(
        Command::read("hpexpiretime", -5, hpexpiretime),
        "key FIELDS fields=(numfields:int field...)",
        READ,
    )
    .doc(
        Group::Hash,
        "7.4.0",
        "Returns when fields expire, as a Unix time in milliseconds",
    ),
    row(
        Command::write("hpersist", -5, hpersist),
        "key FIELDS fields=(numfields:int field...)",
        UPDATE,
    )
    .doc(Group::Hash, "7.4.0", "Makes fields stay that would expire"),
    row(
        Command::write("hgetex", -5, hgetex),
        "key [expiration=(EX seconds:int|PX milliseconds:int|EXAT \
         unix-time-seconds:time|PXAT unix-time-milliseconds:time|PERSIST)] \
         FIELDS fields=(numfields:int field...)",
        READ_UPDATE,
    )
    .doc(
        Group::Hash,
        "8.0.0",
        "Reads the values of fields and changes when the fields expire",
    ),
    row(
        Command::write("hsetex", -6, hsetex),
        "key [condition=(FNX|FXX)] [expiration=(EX seconds:int|PX milliseconds:int|EXAT \
         unix-time-seconds:time|PXAT unix-time-milliseconds:time|KEEPTTL)] \
         FIELDS fields=(numfields:int data=(field value)...)",
        UPDATE,
    )
    .flags(Flags::FAST.union(Flags::DENYOOM))
    .doc(
        Group::Hash,
        "8.0.0",
        "Sets fields and when they expire, perhaps only if all or none of them exist",
    ),
    row(
        Command::write("hgetdel", -5, hgetdel),
        "key FIELDS fields=(numfields:int field...)",
        TAKE,
    )
    .doc(
        Group::Hash,
        "8.0.0",
        "Reads the values of fields and removes the fields",
    ),
];

#[cfg(test)]
mod tests;
