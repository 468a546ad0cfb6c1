//! Commands on hash fields that also set or remove times, or take the fields away: HGETEX, HSETEX and
//! HGETDEL. The binlog gets `HSET`, and what [`super::element_times`] states.

use super::args::Options;
use super::element_times::{
    DONE, FIELDS, NOT_MET, NewTime, PLACES, Terms, UPDATE, drop_over, moment, number, state,
    unit_word, unknown_argument,
};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, WriteCtx};
use crate::base::time::UnixMs;
use crate::commands::table::spec::Group;
use crate::encoding::ValueType;
use crate::storage::txn::events::Class;
use crate::types::members::Members;

const BAD_NUMBER: Error = Error::text("ERR invalid number of fields");

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
    let fields = FIELDS.elements(&mut options)?;
    ctx.reply.array(fields.len());
    let Some(mut hash) = hash else {
        fields.iter().for_each(|_| ctx.reply.null());
        return Ok(());
    };
    let is_over = at_ms.is_some() && at_ms <= ctx.txn.over_when_set_ms();
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
        true => FIELDS.finish_persist(ctx, key, hash, fields, &changed),
        false => {
            let at_ms = (!is_over).then_some(at_ms);
            FIELDS.finish_times(ctx, key, hash, fields, &changed, at_ms)
        }
    }
}

fn hgetdel(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let hash = Members::load(ctx.txn, ctx.db, key, ValueType::Hash)?;
    let fields = FIELDS.elements(&mut Options::new(args, 2))?;
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
    FIELDS.finish_times(ctx, key, hash, fields, &removed, None)
}

/// A field and its value.
type Pair<'a> = [&'a [u8]; 2];

/// What HSETEX is to do, and the fields with their values.
fn set_options<'a>(args: &'a [&'a [u8]], now_ms: UnixMs) -> Result<(Terms, &'a [Pair<'a>]), Error> {
    const NAME: &str = "hsetex";
    let arity = || Error::Arity(NAME.into());
    let (mut options, mut terms) = (Options::new(args, 2), Terms::none());
    while !options.word("FIELDS") {
        if !terms.take(&mut options, &FIELDS, now_ms, (NAME, arity()))? {
            let word = options.value().map_err(|_| arity())?;
            return Err(unknown_argument(word));
        }
    }
    if options.left() < 3 {
        return Err(arity());
    }
    let number = number(options.value()?).ok_or(BAD_NUMBER)?;
    let (pairs, rest) = options.values(options.left())?.as_chunks::<2>();
    match rest.is_empty() && pairs.len() == number {
        true => Ok((terms, pairs)),
        false => Err(arity()),
    }
}

fn hsetex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let (terms, pairs) = set_options(args, ctx.txn.now_ms())?;
    let mut hash = Members::open(ctx.txn, ctx.db, key, ValueType::Hash)?;
    let fields: Vec<&[u8]> = pairs.iter().map(|[field, _]| *field).collect();
    if !terms.are_met(ctx.txn, &hash, &fields)? {
        ctx.reply.int(NOT_MET);
        return drop_over(ctx, key, hash, &fields);
    }
    let time = terms.time;
    match time {
        NewTime::At(at_ms) if at_ms <= ctx.txn.over_when_set_ms() => {
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
    state(ctx, &[b"HDEL", key], &removed);
    Ok(())
}

/// Saves a hash whose fields HSETEX has set.
fn set_with_times(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    hash: Members,
    pairs: &[Pair<'_>],
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
    state(ctx, &[b"HSET", key], pairs.as_flattened());
    if let NewTime::At(at_ms) = time {
        FIELDS.got_time(ctx, key);
        let fields: Vec<&[u8]> = pairs.iter().map(|[field, _]| *field).collect();
        FIELDS.state_times(ctx, key, at_ms, &fields);
    }
    // HSET takes the times away.
    kept.dedup();
    for (at_ms, field) in kept {
        FIELDS.state_times(ctx, key, at_ms, &[field]);
    }
    Ok(())
}

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
        .places(PLACES)
        .keys(keys)
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
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
    .places(PLACES + 2)
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
