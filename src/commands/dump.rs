//! DUMP and RESTORE: values as payloads that travel between Kedis, Redis and
//! Valkey.

use super::args::Options;
use super::element_times::family_of;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::time::UnixMs;
use crate::commands::table::migrated::Migrated;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::rdb::encode::Encoder;
use crate::rdb::payload::{self, Checksum};
use crate::rdb::{self, Element};
use crate::state::Server;
use crate::state::config::Config;
use crate::storage::KeyMeta;
use crate::storage::txn::events::Class;
use crate::types::OpError;
use crate::types::RestoreError;
use crate::types::definition::Stored;
use crate::types::dump;
use crate::types::restore::restore as restore_value;
use crate::types::table::definition;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

fn encoder(config: &Config) -> Encoder {
    Encoder::new(config.rdbcompression)
}

fn dump(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some(found) = ctx.view.lookup(ctx.db, args[1])? else {
        ctx.reply.null();
        return Ok(());
    };
    let config = ctx.server.config.load();
    let mut encoder = encoder(&config);
    ctx.view.count_reads();
    let max_len = config.proto_max_bulk_len_bytes;
    let payload = dump::payload(ctx.view, ctx.db, Stored::of(&found), &mut encoder, max_len)?;
    ctx.reply.bulk(&payload);
    Ok(())
}

/// The options of RESTORE.
#[derive(Debug, Default)]
struct RestoreOptions {
    replace: bool,
    absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl RestoreOptions {
    fn parse(args: &[&[u8]]) -> Result<RestoreOptions, Error> {
        let mut parsed = RestoreOptions::default();
        let mut options = Options::new(args, 4);
        while !options.is_empty() {
            let has_value = options.left() > 1;
            if options.word("REPLACE") {
                parsed.replace = true;
            } else if options.word("ABSTTL") {
                parsed.absolute = true;
            } else if has_value && parsed.frequency.is_none() && options.word("IDLETIME") {
                let idle_s = u64::try_from(options.int()?);
                parsed.idle_s = Some(idle_s.map_err(|_| BAD_IDLETIME)?);
            } else if has_value && parsed.idle_s.is_none() && options.word("FREQ") {
                let frequency = u8::try_from(options.int()?);
                parsed.frequency = Some(frequency.map_err(|_| BAD_FREQ)?);
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(parsed)
    }
}

/// Most elements of one command in the binlog.
const LOGGED_ELEMENTS: usize = 1024;

const BAD_IDLETIME: Error = Error::text("ERR Invalid IDLETIME value, must be >= 0");
const BAD_FREQ: Error = Error::text("ERR Invalid FREQ value, must be >= 0 and <= 255");
const BAD_TTL: Error = Error::text("ERR Invalid TTL value, must be >= 0");
const BUSY: Error = Error::text("BUSYKEY Target key name already exists.");

/// Whether checksums of payloads are verified (DEBUG SET-SKIP-CHECKSUM-VALIDATION).
pub(super) fn checksum(server: &Server) -> Checksum {
    match server.skip_checksums.load(Ordering::Relaxed) {
        true => Checksum::Ignored,
        false => Checksum::Verified,
    }
}

fn refusal(error: RestoreError) -> Error {
    match error {
        RestoreError::Op(error) => error.into(),
        RestoreError::Rdb(rdb::Error::Envelope) => Error::BAD_DUMP,
        RestoreError::Rdb(rdb::Error::Unsupported(what)) => {
            Error::owned(format!("ERR Bad data format: {what} are not supported"))
        }
        RestoreError::Rdb(_) => Error::text("ERR Bad data format"),
    }
}

fn restore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let options = RestoreOptions::parse(args)?;
    let (db, key, bytes) = (ctx.db, args[1], args[3]);
    let old = ctx.txn.lookup(db, key)?;
    if old.is_some() && !options.replace {
        return Err(BUSY);
    }
    let now_ms = ctx.txn.now_ms();
    let ttl = u64::try_from(super::args::int(args[2])?).map_err(|_| BAD_TTL)?;
    let expire_ms = match ttl {
        0 => UnixMs::NONE,
        at_ms if options.absolute => UnixMs(at_ms),
        ttl_ms => now_ms + ttl_ms,
    };
    let payload =
        payload::open_with(bytes, checksum(ctx.server)).map_err(|error| refusal(error.into()))?;
    // The limit for one argument also bounds the decompressed value.
    let config = ctx.server.config.load();
    let max_bytes = config
        .proto_max_bulk_len_bytes
        .max(4 * payload.value.len() as u64);
    let before = ctx.txn.savepoint();
    if let Some(old) = &old {
        ctx.txn.vacate_key(db, key, old, false)?;
    }
    let taken = restore_value(ctx.txn, db, key, &payload, expire_ms, max_bytes).map_err(refusal)?;
    let past = expire_ms.is_some() && expire_ms <= ctx.txn.over_when_set_ms();
    if past || taken.elements == 0 {
        // The payload is parsed first, so that an invalid one is always an error.
        ctx.txn.rollback(&before);
        ctx.txn.start_command();
        ctx.txn.count_expired_elements(taken.over);
        if let Some(old) = &old {
            ctx.txn.remove_key(db, key, old)?;
            ctx.txn.effect(db, &[b"DEL", key]);
        }
        ctx.reply.ok();
        return Ok(());
    }
    ctx.txn.count_expired_elements(taken.over);
    let hash = ctx.txn.key_hash(db, key);
    if options.idle_s.is_some() || options.frequency.is_some() {
        let (idle_s, frequency) = match config.lfu() {
            Some(_) => (None, options.frequency),
            None => (options.idle_s, None),
        };
        ctx.server
            .accesses
            .remember(hash, now_ms, idle_s, frequency);
    }
    log(ctx, key, expire_ms)?;
    ctx.event(Class::GENERIC, "restore", key);
    ctx.reply.ok();
    Ok(())
}

/// States the effect: RESTORE with REPLACE and an absolute expiry, with a payload in this
/// server's own encoding, that of Redis 7.0. The client's payload may have a version that a
/// replica cannot read, or hold elements whose time is over.
fn log(ctx: &mut WriteCtx<'_>, key: &[u8], expire_ms: UnixMs) -> CmdResult {
    if !ctx.txn.is_logged() {
        ctx.txn.no_effect();
        return Ok(());
    }
    let found = ctx.txn.lookup(ctx.db, key)?;
    let found = found.ok_or(Error::Op(OpError::NoSuchKey))?;
    let mut encoder = encoder(&ctx.server.config.load()).without_times();
    let view = &mut **ctx.txn;
    let payload = dump::payload(view, ctx.db, Stored::of(&found), &mut encoder, u64::MAX)?;
    let mut digits = itoa::Buffer::new();
    let at_ms = digits.format(expire_ms.0).as_bytes();
    let effect: [&[u8]; 6] = [b"RESTORE", key, at_ms, &payload, b"REPLACE", b"ABSTTL"];
    ctx.txn.effect(ctx.db, &effect);
    match found.meta.due_ms {
        UnixMs::NONE => Ok(()),
        _ => log_times(ctx, key, &found),
    }
}

/// States the times of a hash's fields or a set's members on their own: a replica that does not know
/// them gets the elements nevertheless, and their deletion in time.
fn log_times(ctx: &mut WriteCtx<'_>, key: &[u8], found: &KeyMeta) -> CmdResult {
    let mut times: Vec<(UnixMs, Box<[u8]>)> = Vec::new();
    let view = &mut **ctx.txn;
    let value = definition(found.meta.kind);
    value
        .walk(view, ctx.db, Stored::of(found), &mut |element| {
            if let Element::Field {
                field: name,
                expire_ms,
                ..
            }
            | Element::Member {
                member: name,
                expire_ms,
            } = element
                && expire_ms.is_some()
            {
                times.push((expire_ms, name.into()));
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    let family = family_of(found.meta.kind);
    times.sort_unstable();
    for same in times.chunk_by(|a, b| a.0 == b.0) {
        for part in same.chunks(LOGGED_ELEMENTS) {
            let elements: Vec<&[u8]> = part.iter().map(|(_, name)| name.as_ref()).collect();
            let at_ms = part.first().map_or(UnixMs::NONE, |(at_ms, _)| *at_ms);
            family.state_times(ctx, key, at_ms, &elements);
        }
    }
    Ok(())
}

const RESTORED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE))];

/// The row of RESTORE under this name.
const fn restore_row(name: &'static str) -> Command {
    Command::write(name, -4, restore)
        .syntax(
            "key ttl:int serialized-value [REPLACE@3.0.0] [ABSTTL@5.0.0] \
             [IDLETIME seconds:int@5.0.0] [FREQ frequency:int@5.0.0]",
        )
        .complexity("O(N), N: the size of the value")
        .history(&[
            ("3.0.0", "Added `REPLACE`"),
            ("5.0.0", "Added `ABSTTL`"),
            ("5.0.0", "Added `IDLETIME` and `FREQ`"),
        ])
        .flags(Flags::DENYOOM.union(Flags::PARSES))
        .keys(RESTORED)
        .migrated(Migrated::Payload)
        .categories(&["keyspace", "dangerous"])
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::read("dump", 2, dump)
        .syntax("key")
        .complexity("O(N), N: the size of the value")
        .keys(&[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))])
        .categories(&["keyspace"])
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Generic,
            "2.6.0",
            "Returns a value as a payload for RESTORE, on this or another server",
        ),
    restore_row("restore").doc(
        Group::Generic,
        "2.6.0",
        "Creates a key from a payload of DUMP, of this or another server",
    ),
    restore_row("restore-asking")
        .flags(Flags::DENYOOM.union(Flags::ASKING).union(Flags::PARSES))
        .internal()
        .doc(
            Group::Server,
            "3.0.0",
            "RESTORE under the name that cluster nodes use",
        ),
];

#[cfg(test)]
mod tests;
