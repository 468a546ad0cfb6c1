//! Bitmaps: bits of strings. BITFIELD is in [`super::bitfield`].

use super::args::{self, is};
use super::strings;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::num;
use crate::commands::table::spec::Group;
use crate::state::Server;
use crate::storage::txn::events::Class;
use crate::types::bits::{self, Found, Operation, Part, Unit};

/// The bound, in bytes, of offsets into strings that are only read.
pub(super) fn max_len(server: &Server) -> u64 {
    server.config.load().proto_max_bulk_len_bytes
}

/// Parses an offset in bits within a string of at most `max_len` bytes. `#N` means the
/// N-th field of `field_bits` bits; without `field_bits` it is an error.
pub(super) fn bit_offset(arg: &[u8], field_bits: Option<u32>, max_len: u64) -> Result<u64, Error> {
    let scaled = match (arg.split_first(), field_bits) {
        (Some((b'#', index)), Some(field_bits)) => {
            num::parse_i64(index).and_then(|index| index.checked_mul(i64::from(field_bits)))
        }
        _ => num::parse_i64(arg),
    };
    scaled
        .and_then(|offset| u64::try_from(offset).ok())
        .filter(|offset| offset / 8 < max_len)
        .ok_or(Error::text(
            "ERR bit offset is not an integer or out of range",
        ))
}

fn setbit(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let max_len = strings::max_len(ctx);
    let offset = bit_offset(args[2], None, max_len)?;
    let bit = match args[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(Error::text("ERR bit is not an integer or out of range")),
    };
    let before = bits::set(ctx.txn, ctx.db, args[1], offset, bit, max_len)?;
    if ctx.txn.dirty() > 0 {
        ctx.event(Class::STRING, "setbit", args[1]);
    }
    ctx.reply.int(before.into());
    Ok(())
}

fn getbit(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let offset = bit_offset(args[2], None, max_len(ctx.server))?;
    let bit = bits::get(ctx.view, ctx.db, args[1], offset)?;
    ctx.reply.int(bit.into());
    Ok(())
}

fn unit(arg: &[u8]) -> Result<Unit, Error> {
    if is(arg, "BIT") {
        Ok(Unit::Bit)
    } else if is(arg, "BYTE") {
        Ok(Unit::Byte)
    } else {
        Err(Error::Syntax)
    }
}

fn bitcount(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let part = match args[2..] {
        [] => Part::ALL,
        [start, end] | [start, end, _] => Part {
            start: args::int(start)?,
            end: args::int(end)?,
            unit: args.get(4).map_or(Ok(Unit::Byte), |arg| unit(arg))?,
        },
        _ => return Err(Error::Syntax),
    };
    let ones = bits::count(ctx.view, ctx.db, args[1], part)?;
    ctx.reply
        .int(if part.is_reversed() { 0 } else { ones as i64 });
    Ok(())
}

fn bitpos(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let bit = match args::int(args[2])? {
        0 => false,
        1 => true,
        _ => return Err(Error::text("ERR The bit argument must be 1 or 0.")),
    };
    let mut part = Part::ALL;
    let end = match args[3..] {
        [] => None,
        [start] => {
            part.start = args::int(start)?;
            None
        }
        [start, end] | [start, end, _] => {
            part.start = args::int(start)?;
            part.unit = args.get(5).map_or(Ok(Unit::Byte), |arg| unit(arg))?;
            Some(args::int(end)?)
        }
        _ => return Err(Error::Syntax),
    };
    part.end = end.unwrap_or(part.end);
    ctx.reply
        .int(match bits::find(ctx.view, ctx.db, args[1], bit, part)? {
            Found::At(position) => position as i64,
            // Without an end, an infinite number of zero bits follows the value.
            Found::NotBefore(position) if !bit && end.is_none() => position as i64,
            Found::NoKey if !bit => 0,
            _ => -1,
        });
    Ok(())
}

fn bitop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let operation = match args[1] {
        name if is(name, "AND") => Operation::And,
        name if is(name, "OR") => Operation::Or,
        name if is(name, "XOR") => Operation::Xor,
        name if is(name, "NOT") => Operation::Not,
        name if is(name, "DIFF") => Operation::Diff,
        name if is(name, "DIFF1") => Operation::Diff1,
        name if is(name, "ANDOR") => Operation::AndOr,
        name if is(name, "ONE") => Operation::One,
        _ => return Err(Error::Syntax),
    };
    if operation == Operation::Not && args.len() != 4 {
        return Err(Error::text(
            "ERR BITOP NOT must be called with a single source key.",
        ));
    }
    let compares = matches!(
        operation,
        Operation::Diff | Operation::Diff1 | Operation::AndOr
    );
    if compares && args.len() < 5 {
        let name = String::from_utf8_lossy(args[1]).to_ascii_uppercase();
        return Err(Error::owned(format!(
            "ERR BITOP {name} must be called with at least two source keys."
        )));
    }
    let len = bits::combine(ctx.txn, ctx.db, operation, args[2], &args[3..])?;
    if len > 0 {
        ctx.event(Class::STRING, "set", args[2]);
    }
    ctx.reply.int(len as i64);
    Ok(())
}

/// One key that is read.
pub(super) const READS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("setbit", 4, setbit)
        .syntax("key offset:int value:int")
        .flags(Flags::DENYOOM)
        .keys(&[KeySpec::at(
            1,
            KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE),
        )])
        .doc(
            Group::Bitmap,
            "2.2.0",
            "Sets or clears one bit of a string, extends the string if needed, and returns the \
             old bit",
        ),
    Command::read("getbit", 3, getbit)
        .syntax("key offset:int")
        .flags(Flags::FAST)
        .keys(READS)
        .doc(Group::Bitmap, "2.2.0", "Returns one bit of a string"),
    Command::read("bitcount", -2, bitcount)
        .syntax("key [range=(start:int end:int [unit=(BYTE|BIT)@7.0.0])]")
        .complexity("O(N), N: the length of the string")
        .history(&[("7.0.0", "Added `BYTE` and `BIT`")])
        .keys(READS)
        .doc(
            Group::Bitmap,
            "2.6.0",
            "Counts the bits that are set in a string or a part of it",
        ),
    Command::read("bitpos", -3, bitpos)
        .syntax(
            "key bit:int [range=(start:int \
             [end-unit-block=(end:int [unit=(BYTE|BIT)@7.0.0])])]",
        )
        .complexity("O(N), N: the length of the string")
        .history(&[("7.0.0", "Added `BYTE` and `BIT`")])
        .keys(READS)
        .doc(
            Group::Bitmap,
            "2.8.7",
            "Finds the first bit that is set, or that is not, in a string or a part of it",
        ),
    Command::write("bitop", -4, bitop)
        .syntax(
            "operation=(AND|OR|XOR|NOT|DIFF@8.2.0|DIFF1@8.2.0|ANDOR@8.2.0|ONE@8.2.0) \
             destkey:key key...",
        )
        .complexity("O(N), N: the length of the longest string")
        .history(&[("8.2.0", "Added `DIFF`, `DIFF1`, `ANDOR` and `ONE`")])
        .flags(Flags::DENYOOM)
        .keys(&[
            KeySpec::at(2, KeyFlags::OW.union(KeyFlags::UPDATE)),
            KeySpec::range(3, -1, 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
        ])
        .doc(
            Group::Bitmap,
            "2.6.0",
            "Combines strings bit by bit and stores the result in another key",
        ),
];

#[cfg(test)]
mod tests;
