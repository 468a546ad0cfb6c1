//! BITFIELD and BITFIELD_RO: integers of any width at any place of a string.

use super::args::{self, Options};
use super::bits::{READS, bit_offset, max_len};
use super::strings;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::num;
use crate::commands::table::spec::Group;
use crate::resp::Reply;
use crate::storage::txn::events::Class;
use crate::types::{bits, string};
use std::ops::Range;

/// What happens to a result that does not fit its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    signed: bool,
    /// In bits: 1 to 64 if signed, 1 to 63 if unsigned.
    width: u32,
}

impl Field {
    fn parse(arg: &[u8]) -> Result<Field, Error> {
        let parsed = arg.split_first().and_then(|(sign, width)| {
            let signed = match sign {
                b'i' => true,
                b'u' => false,
                _ => return None,
            };
            let widest = if signed { 64 } else { 63 };
            let width = num::parse_i64(width).filter(|w| (1..=widest).contains(w))?;
            let width = u32::try_from(width).ok()?;
            Some(Field { signed, width })
        });
        parsed.ok_or(Error::text(
            "ERR Invalid bitfield type. Use something like i16 u8. \
             Note that u64 is not supported but i64 is.",
        ))
    }

    /// The value of the field whose bits are the low bits of `raw`.
    fn number(self, raw: u64) -> i64 {
        let unused = 64 - self.width;
        match self.signed {
            // An arithmetic shift extends the sign.
            true => ((raw << unused) as i64) >> unused,
            false => (raw << unused >> unused) as i64,
        }
    }

    fn limits(self) -> (i128, i128) {
        match self.signed {
            true => {
                let half = 1i128 << (self.width - 1);
                (-half, half - 1)
            }
            false => (0, (1i128 << self.width) - 1),
        }
    }

    /// The value that the field gets for `exact`; `None` for an overflow with
    /// [`Overflow::Fail`].
    fn fit(self, exact: i128, overflow: Overflow) -> Option<i64> {
        let (lowest, highest) = self.limits();
        if (lowest..=highest).contains(&exact) {
            return i64::try_from(exact).ok();
        }
        match overflow {
            Overflow::Wrap => Some(self.number(exact as u64)),
            Overflow::Saturate => i64::try_from(exact.clamp(lowest, highest)).ok(),
            Overflow::Fail => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

/// One subcommand.
#[derive(Debug, Clone, Copy)]
struct Step {
    field: Field,
    /// In bits.
    offset: u64,
    action: Action,
}

impl Step {
    fn bytes(&self) -> Range<u64> {
        let end = self.offset + u64::from(self.field.width);
        self.offset / 8..end.div_ceil(8)
    }

    /// Runs the step on `bytes`, which begin at offset `base` (bytes) of the value. Returns
    /// the number to reply with, or `None` for null.
    fn run(&self, bytes: &mut [u8], base: u64) -> Option<i64> {
        let (field, offset) = (self.field, self.offset - base * 8);
        let old = field.number(bits::get_field(bytes, offset, field.width));
        let (new, answers_new) = match self.action {
            Action::Get => return Some(old),
            // For an unsigned field, the argument is interpreted as unsigned.
            Action::Set(new, overflow) if field.signed => (field.fit(new.into(), overflow)?, false),
            Action::Set(new, overflow) => (field.fit((new as u64).into(), overflow)?, false),
            Action::Add(by, overflow) => {
                let sum = i128::from(old) + i128::from(by);
                (field.fit(sum, overflow)?, true)
            }
        };
        bits::set_field(bytes, offset, field.width, new as u64);
        Some(if answers_new { new } else { old })
    }
}

fn parse(args: &[&[u8]], max_len: u64, read_only: bool) -> Result<Vec<Step>, Error> {
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut options = Options::new(args, 2);
    while !options.is_empty() {
        let left = options.left() - 1;
        let word = if left >= 2 && options.word("GET") {
            "GET"
        } else if left >= 3 && options.word("SET") {
            "SET"
        } else if left >= 3 && options.word("INCRBY") {
            "INCRBY"
        } else if left >= 1 && options.word("OVERFLOW") {
            overflow = parse_overflow(options.value()?)?;
            continue;
        } else {
            return Err(Error::Syntax);
        };
        let field = Field::parse(options.value()?)?;
        let offset = bit_offset(options.value()?, Some(field.width), max_len)?;
        let action = match word {
            "GET" => Action::Get,
            "SET" => Action::Set(args::int(options.value()?)?, overflow),
            _ => Action::Add(args::int(options.value()?)?, overflow),
        };
        steps.push(Step {
            field,
            offset,
            action,
        });
    }
    if read_only && steps.iter().any(|step| step.action != Action::Get) {
        return Err(Error::text(
            "ERR BITFIELD_RO only supports the GET subcommand",
        ));
    }
    Ok(steps)
}

fn parse_overflow(arg: &[u8]) -> Result<Overflow, Error> {
    if args::is(arg, "WRAP") {
        Ok(Overflow::Wrap)
    } else if args::is(arg, "SAT") {
        Ok(Overflow::Saturate)
    } else if args::is(arg, "FAIL") {
        Ok(Overflow::Fail)
    } else {
        Err(Error::text("ERR Invalid OVERFLOW type specified"))
    }
}

fn answer(reply: &mut Reply, number: Option<i64>) {
    match number {
        Some(number) => reply.int(number),
        None => reply.null(),
    }
}

/// The longest range of bytes that one update reads and writes. Steps that lie farther
/// apart run one by one, so that the bytes between them are not read.
const WINDOW_MAX: u64 = 4096;

/// The smallest range of bytes that covers all steps.
fn window(steps: &[Step]) -> Range<u64> {
    let from = steps.iter().map(|s| s.bytes().start).min().unwrap_or(0);
    from..steps.iter().map(|s| s.bytes().end).max().unwrap_or(from)
}

/// How long the value must be for the steps that write.
fn grown_len(steps: &[Step]) -> u64 {
    let writing = steps.iter().filter(|s| s.action != Action::Get);
    writing.map(|s| s.bytes().end).max().unwrap_or(0)
}

fn bitfield(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let max_len = strings::max_len(ctx);
    let steps = parse(args, max_len, false)?;
    let (db, key) = (ctx.db, args[1]);
    // A field that begins below the bound may end above it.
    let max_len = max_len.saturating_add(8);
    let all = window(&steps);
    let at_once = match all.end - all.start <= WINDOW_MAX {
        true => steps.len().max(1),
        false => 1,
    };
    ctx.reply.array(steps.len());
    if steps.iter().all(|step| step.action == Action::Get) {
        ctx.txn.counting(|txn| string::len(txn, db, key))?;
    }
    let mut changes = false;
    for steps in steps.chunks(at_once) {
        let window = window(steps);
        let base = window.start;
        let grow_to = grown_len(steps);
        let reply = &mut *ctx.reply;
        string::update_window(ctx.txn, db, key, window, grow_to, max_len, |bytes| {
            for step in steps {
                let number = step.run(bytes, base);
                changes |= step.action != Action::Get && number.is_some();
                answer(reply, number);
            }
        })?;
    }
    // A step that fails by OVERFLOW FAIL may still have made the string longer; that alone
    // is no event.
    if changes && ctx.txn.dirty() > 0 {
        ctx.event(Class::STRING, "setbit", key);
    }
    Ok(())
}

fn bitfield_ro(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let steps = parse(args, max_len(ctx.server), true)?;
    ctx.reply.array(steps.len());
    if steps.is_empty() {
        string::len(ctx.view, ctx.db, args[1])?;
    }
    for step in &steps {
        let window = step.bytes();
        let base = window.start;
        let run = |bytes: &[u8]| {
            let mut field = [0; 9];
            for (to, from) in field.iter_mut().zip(bytes) {
                *to = *from;
            }
            step.run(&mut field, base)
        };
        let number = string::with_range(ctx.view, ctx.db, args[1], |_| window, run)?;
        answer(ctx.reply, number.unwrap_or(Some(0)));
    }
    Ok(())
}

const CHANGES: KeyFlags = KeyFlags::RW.union(KeyFlags::UPDATE).union(KeyFlags::ACCESS);

/// BITFIELD only reads its key if all operations are GET.
fn key_flags(args: &[&[u8]]) -> KeyFlags {
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let values = args.len() - at - 1;
        at += match () {
            () if args::is(word, "GET") && values >= 2 => 3,
            () if args::is(word, "OVERFLOW") && values >= 1 => 2,
            // SET, INCRBY, or what the handler refuses.
            () => return CHANGES,
        };
    }
    KeyFlags::RO.union(KeyFlags::ACCESS)
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("bitfield", -2, bitfield)
        .syntax(
            "key [operation=(GET get-block=(encoding offset:int)|\
             write=([OVERFLOW overflow-block=(WRAP|SAT|FAIL)] \
             write-operation=(SET set-block=(encoding offset:int value:int)|INCRBY \
             incrby-block=(encoding offset:int increment:int))))...]",
        )
        .complexity("O(1) for each operation")
        .flags(Flags::DENYOOM)
        .keys(&[KeySpec::at(1, CHANGES).varying(key_flags)])
        .doc(
            Group::Bitmap,
            "3.2.0",
            "Reads, sets and counts up integers of any width within a string",
        ),
    Command::read("bitfield_ro", -2, bitfield_ro)
        .syntax("key [(GET get-block=(encoding offset:int))...]")
        .complexity("O(1) for each operation")
        .flags(Flags::FAST)
        .keys(READS)
        .doc(
            Group::Bitmap,
            "6.0.0",
            "Reads integers of any width within a string",
        ),
];

#[cfg(test)]
mod tests;
