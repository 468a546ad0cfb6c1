//! HyperLogLogs. Unlike in Redis, PFCOUNT does not write the computed cardinality into the
//! value; it does use a valid cached one. So it is a plain read: it needs no exclusive lock
//! and runs on replicas.

use super::args::is;
use super::error::quoted;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, SessionCtx, WriteCtx};
use crate::commands::table::spec::Group;
use crate::state::Server;
use crate::storage::txn::events::Class;
use crate::types::hll::sparse::{Run, for_each_run};
use crate::types::hll::{self, Encoding, HllError, REGISTERS};
use std::fmt::Write;

impl From<HllError> for Error {
    fn from(error: HllError) -> Self {
        match error {
            HllError::NotHll => {
                Error::text("WRONGTYPE Key is not a valid HyperLogLog string value.")
            }
            HllError::Corrupt => Error::text("INVALIDOBJ Corrupted HLL object detected"),
            HllError::Op(error) => error.into(),
        }
    }
}

fn sparse_max(server: &Server) -> usize {
    let bytes = server.config.load().hll_sparse_max_bytes;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn pfadd(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let sparse_max = sparse_max(ctx.server);
    let changed = hll::add(ctx.txn, ctx.db, args[1], &args[2..], sparse_max)?;
    if changed {
        ctx.event(Class::STRING, "pfadd", args[1]);
    }
    ctx.reply.int(changed.into());
    Ok(())
}

fn pfcount(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let count = hll::count(ctx.view, ctx.db, &args[1..])?;
    ctx.reply.int(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

fn pfmerge(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let sparse_max = sparse_max(ctx.server);
    hll::merge(ctx.txn, ctx.db, args[1], &args[2..], sparse_max)?;
    ctx.event(Class::STRING, "pfadd", args[1]);
    ctx.reply.ok();
    Ok(())
}

/// How much of an unknown subcommand is quoted, in bytes.
const NAME_SHOWN: usize = 128;

fn pfdebug(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (name, key) = (args[1], args[2]);
    let found = hll::raw(ctx.txn, ctx.db, key)?;
    let found = found.ok_or(Error::text("ERR The specified key does not exist"))?;
    if is(name, "GETREG") {
        let mut ranks = Box::new([0; REGISTERS]);
        found.raise(&mut ranks)?;
        // As in Redis, GETREG converts the value to the dense form.
        hll::make_dense(ctx.txn, ctx.db, key)?;
        ctx.reply.array(REGISTERS);
        ranks.iter().for_each(|rank| ctx.reply.int((*rank).into()));
    } else if is(name, "DECODE") {
        if found.encoding() == Encoding::Dense {
            return Err(Error::text("ERR HLL encoding is not sparse"));
        }
        ctx.reply.bulk(describe(found.body())?.as_bytes());
    } else if is(name, "ENCODING") {
        ctx.reply.simple(match found.encoding() {
            Encoding::Dense => "dense",
            Encoding::Sparse => "sparse",
        });
    } else if is(name, "TODENSE") {
        let changed = hll::make_dense(ctx.txn, ctx.db, key)?;
        ctx.reply.int((changed == Some(true)).into());
    } else {
        let name = quoted(name, NAME_SHOWN);
        let text = [b"ERR Unknown PFDEBUG subcommand '", name, b"'"].concat();
        return Err(Error::Bytes(text));
    }
    Ok(())
}

/// The opcodes of a sparse value as text: `z` (ZERO) and `Z` (XZERO) with a run length, `v`
/// (VAL) with a rank and a run length.
fn describe(body: &[u8]) -> Result<String, Error> {
    for_each_run(body, |_| {})?;
    let mut text = String::new();
    let mut rest = body;
    while let Some((run, size)) = Run::decode(rest) {
        let space = if text.is_empty() { "" } else { " " };
        // Writing into a String does not fail.
        let _ = match (run.rank, size) {
            (0, 1) => write!(text, "{space}z:{}", run.len),
            (0, _) => write!(text, "{space}Z:{}", run.len),
            (rank, _) => write!(text, "{space}v:{rank},{}", run.len),
        };
        rest = &rest[size..];
    }
    Ok(text)
}

fn pfselftest(ctx: &mut SessionCtx<'_>, _: &[&[u8]]) -> CmdResult {
    hll::selftest::run().map_err(|text| Error::owned(format!("TESTFAILED {text}")))?;
    ctx.reply.ok();
    Ok(())
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("pfadd", -2, pfadd)
        .syntax("key [element...]")
        .complexity("O(N), N: elements added")
        .flags(Flags::FAST.union(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))])
        .doc(
            Group::HyperLogLog,
            "2.8.9",
            "Adds elements to a HyperLogLog, which is made if there is none",
        ),
    Command::read("pfcount", -2, pfcount)
        .syntax("key...")
        .complexity("O(K), K: keys")
        .flags(Flags::MAY_REPLICATE)
        .keys(&[KeySpec::range(
            1,
            -1,
            1,
            KeyFlags::RW.union(KeyFlags::ACCESS),
        )])
        .doc(
            Group::HyperLogLog,
            "2.8.9",
            "Estimates how many different elements were added to some HyperLogLogs",
        ),
    Command::write("pfmerge", -2, pfmerge)
        .syntax("destkey:key [sourcekey:key...]")
        .complexity("O(K), K: keys")
        .flags(Flags::DENYOOM)
        .keys(&[
            KeySpec::at(
                1,
                KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::INSERT),
            ),
            KeySpec::range(2, -1, 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
        ])
        .doc(
            Group::HyperLogLog,
            "2.8.9",
            "Adds to a HyperLogLog what was added to others",
        ),
    Command::write("pfdebug", 3, pfdebug)
        .syntax("subcommand key")
        .flags(Flags::ADMIN.union(Flags::DENYOOM))
        .keys(&[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::ACCESS))])
        .internal()
        .doc(
            Group::HyperLogLog,
            "2.8.9",
            "Shows how a HyperLogLog is encoded, or makes it dense",
        ),
    Command::session("pfselftest", 1, pfselftest)
        .flags(Flags::ADMIN)
        .internal()
        .doc(
            Group::HyperLogLog,
            "2.8.9",
            "Checks the HyperLogLog code of the server",
        ),
];

#[cfg(test)]
mod tests;
