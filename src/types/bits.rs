//! Bits of strings, numbered from the most significant bit of the first byte.
//!
//! The first half works on byte slices. The second half works on values, and reads only
//! the stored parts of a long one: missing parts are zeros, and take neither time nor
//! memory.

use super::OpResult;
use super::string::{self, Expiry, FRAGMENT_LEN, NewValue};
use crate::storage::{DbIndex, Txn, View};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

/// The unit of the ends of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Byte,
    /// Bits.
    Bit,
}

/// A part of a value. Both ends are inclusive; negative ones count from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The first position.
    pub start: i64,
    /// The last position.
    pub end: i64,
    /// The unit of both.
    pub unit: Unit,
}

impl Part {
    /// The whole value.
    pub const ALL: Part = Part {
        start: 0,
        end: -1,
        unit: Unit::Byte,
    };

    /// The range of bits in a value of `len` bytes.
    pub fn bits(&self, len: u64) -> Range<u64> {
        let scale = match self.unit {
            Unit::Byte => 8,
            Unit::Bit => 1,
        };
        let total = i128::from(len) * 8 / scale;
        let resolve = |index: i64| match index {
            0.. => i128::from(index),
            _ => (total + i128::from(index)).max(0),
        };
        let first = resolve(self.start);
        let behind = (resolve(self.end) + 1).min(total);
        if first >= behind {
            return 0..0;
        }
        // Neither is negative, and both are at most eight times the length of a value.
        (first * scale) as u64..(behind * scale) as u64
    }

    /// Whether both ends count from the end and are in the wrong order: then the part is
    /// empty in every value, also in one so short that both ends are clamped to its
    /// first byte.
    pub fn is_reversed(&self) -> bool {
        self.start < 0 && self.end < 0 && self.start > self.end
    }
}

/// The bytes that contain these bits.
fn bytes_of(bits: &Range<u64>) -> Range<u64> {
    bits.start / 8..bits.end.div_ceil(8)
}

fn word(chunk: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(chunk) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

/// The number of set bits in `bytes`.
pub fn count_ones(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks_exact(8);
    let rest = u64::from(word(chunks.remainder()).count_ones());
    chunks.map(|c| u64::from(word(c).count_ones())).sum::<u64>() + rest
}

/// The number of set bits in `range`; bits outside `bytes` are 0.
fn count_ones_in(bytes: &[u8], range: Range<u64>) -> u64 {
    let end = range.end.min(bytes.len() as u64 * 8);
    if range.start >= end {
        return 0;
    }
    let held = bytes_of(&(range.start..end));
    let held = &bytes[held.start as usize..held.end as usize];
    let lead = held.first().map_or(0, |b| b & !(0xff >> (range.start % 8)));
    let trail = held.last().map_or(0, |b| match end % 8 {
        0 => 0,
        used => b & (0xff >> used),
    });
    count_ones(held) - u64::from(lead.count_ones()) - u64::from(trail.count_ones())
}

/// The first bit of `range` that is `bit`. The range must lie within `bytes`.
pub fn find_in(bytes: &[u8], range: Range<u64>, bit: bool) -> Option<u64> {
    let skipped = if bit { 0x00 } else { 0xff };
    let held = bytes_of(&range);
    let bytes = bytes.get(..held.end as usize)?;
    let place = |at: u64, byte: u8| {
        let position = at * 8 + u64::from((byte ^ skipped).leading_zeros());
        (position < range.end).then_some(position)
    };
    let mut at = held.start;
    if !range.start.is_multiple_of(8) {
        let seen = 0xffu8 >> (range.start % 8);
        let byte = bytes.get(at as usize)?;
        let byte = (byte & seen) | (skipped & !seen);
        if byte != skipped {
            return place(at, byte);
        }
        at += 1;
    }
    let rest = bytes.get(at as usize..)?;
    let whole = rest
        .chunks_exact(8)
        .take_while(|chunk| word(chunk) == word(&[skipped; 8]))
        .count()
        * 8;
    let (offset, byte) = (rest.iter().enumerate())
        .skip(whole)
        .find(|(_, byte)| **byte != skipped)?;
    place(at + offset as u64, *byte)
}

/// The bit at `offset` of `bytes`; false behind their end.
fn get_in(bytes: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|i| bytes.get(i));
    byte.is_some_and(|b| b & (0x80 >> (offset % 8)) != 0)
}

/// The `width` bits (1 to 64) from `offset` on as one number, the first bit the
/// most significant; bits behind the end are 0.
pub fn get_field(bytes: &[u8], offset: u64, width: u32) -> u64 {
    let end = offset + u64::from(width);
    let held = bytes_of(&(offset..end));
    let mut wide = 0u128;
    for at in held.clone() {
        wide = wide << 8 | u128::from(bytes.get(at as usize).copied().unwrap_or(0));
    }
    let behind = held.end * 8 - end;
    (wide >> behind) as u64 & mask(width)
}

/// Writes the low `width` bits (1 to 64) of `value` at `offset`; bits behind the end of
/// `bytes` are dropped.
pub fn set_field(bytes: &mut [u8], offset: u64, width: u32, value: u64) {
    let end = offset + u64::from(width);
    let held = bytes_of(&(offset..end));
    let behind = held.end * 8 - end;
    let mut set = u128::from(value & mask(width)) << behind;
    let mut clear = u128::from(mask(width)) << behind;
    for at in held.rev() {
        if let Some(byte) = bytes.get_mut(at as usize) {
            *byte = (*byte & !(clear as u8)) | set as u8;
        }
        set >>= 8;
        clear >>= 8;
    }
}

/// The lowest `width` bits (1 to 64).
fn mask(width: u32) -> u64 {
    u64::MAX >> 64u32.saturating_sub(width).min(63)
}

/// The bit at `offset` of a value.
pub fn get(view: &mut View, db: DbIndex, key: &[u8], offset: u64) -> OpResult<bool> {
    let byte = offset / 8;
    let pick = |_| byte..byte + 1;
    let found = string::with_range(view, db, key, pick, |bytes| get_in(bytes, offset % 8))?;
    Ok(found.unwrap_or(false))
}

/// Sets the bit at `offset` of a value, which grows if needed; returns the old bit.
pub fn set(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    offset: u64,
    bit: bool,
    max_len: u64,
) -> OpResult<bool> {
    let mask = 0x80u8 >> (offset % 8);
    string::update_byte(txn, db, key, offset / 8, max_len, |byte| {
        let before = *byte & mask != 0;
        *byte = if bit { *byte | mask } else { *byte & !mask };
        before
    })
}

/// The number of set bits in a part of a value; 0 for a missing key.
pub fn count(view: &mut View, db: DbIndex, key: &[u8], part: Part) -> OpResult<u64> {
    let Some(len) = string::len(view, db, key)? else {
        return Ok(0);
    };
    let bits = part.bits(len);
    let mut ones = 0;
    let pick = |_| bytes_of(&bits);
    string::for_each_fragment(view, db, key, pick, |offset, bytes| {
        let base = offset * 8;
        let within = bits.start.saturating_sub(base)..bits.end.saturating_sub(base);
        ones += count_ones_in(bytes, within);
        ControlFlow::Continue(())
    })?;
    Ok(ones)
}

/// What [`find`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No such key.
    NoKey,
    /// The part is empty.
    EmptyPart,
    /// The bit at this position.
    At(u64),
    /// The part has no such bit, and ends before this position.
    NotBefore(u64),
}

/// The first bit that equals `bit` in a part of a value.
pub fn find(view: &mut View, db: DbIndex, key: &[u8], bit: bool, part: Part) -> OpResult<Found> {
    let Some(len) = string::len(view, db, key)? else {
        return Ok(Found::NoKey);
    };
    let bits = part.bits(len);
    if bits.is_empty() {
        return Ok(Found::EmptyPart);
    }
    let mut next = bits.start;
    let mut found = None;
    let pick = |_| bytes_of(&bits);
    string::for_each_fragment(view, db, key, pick, |offset, bytes| {
        let base = offset * 8;
        if !bit && base > next {
            // Missing fragments are zeros, and come first.
            return ControlFlow::Break(());
        }
        let from = next.max(base);
        let to = bits.end.min(base + bytes.len() as u64 * 8);
        if from < to {
            found = find_in(bytes, from - base..to - base, bit).map(|at| base + at);
            next = to;
        }
        match found {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })?;
    Ok(match found {
        Some(at) => Found::At(at),
        None if !bit && next < bits.end => Found::At(next),
        None => Found::NotBefore(bits.end),
    })
}

/// The operation of BITOP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Set in all.
    And,
    /// Set in some.
    Or,
    /// Set in an odd number of them.
    Xor,
    /// Not set in the only one.
    Not,
    /// Set in the first, and in none of the others.
    Diff,
    /// Set in some of the others, and not in the first.
    Diff1,
    /// Set in the first, and in some of the others.
    AndOr,
    /// Set in exactly one.
    One,
}

impl Operation {
    /// Whether Redis 7.0 lacks it.
    fn is_newer(self) -> bool {
        match self {
            Operation::And | Operation::Or | Operation::Xor | Operation::Not => false,
            Operation::Diff | Operation::Diff1 | Operation::AndOr | Operation::One => true,
        }
    }
}

/// Fragments by index. Missing ones are zeros, as is the rest of a short one.
type Fragments = BTreeMap<u64, Vec<u8>>;

/// Bytes of the result that are computed at once.
const STEP: u64 = 256 * FRAGMENT_LEN;

/// Combines `from` into `into` with `combine`, eight bytes at a time, up to the end of
/// the shorter one.
fn combine_words(into: &mut [u8], from: &[u8], combine: impl Fn(u64, u64) -> u64) {
    let len = into.len().min(from.len());
    let (words, last) = into[..len].as_chunks_mut::<8>();
    let (others, other_last) = from[..len].as_chunks::<8>();
    for (word, other) in words.iter_mut().zip(others) {
        *word = combine(u64::from_ne_bytes(*word), u64::from_ne_bytes(*other)).to_ne_bytes();
    }
    for (byte, other) in last.iter_mut().zip(other_last) {
        *byte = combine(u64::from(*byte), u64::from(*other)) as u8;
    }
}

/// Stores the result of the operation on `sources` in `dest`; shorter sources are padded
/// with zeros. An empty result deletes `dest`. Returns the length of the result.
///
/// The result is computed in steps of [`STEP`] bytes. Ranges that no source stores are
/// skipped (except by NOT, which turns them into ones), and the rows of a large result
/// are written before the commit. So memory does not grow with the result.
pub fn combine(
    txn: &mut Txn,
    db: DbIndex,
    operation: Operation,
    dest: &[u8],
    sources: &[&[u8]],
) -> OpResult<u64> {
    let mut longest = 0;
    let mut some_is_empty = false;
    for source in sources {
        let len = txn.counting(|txn| string::len(txn, db, source))?;
        let len = len.unwrap_or(0);
        longest = longest.max(len);
        some_is_empty |= len == 0;
    }
    let is_stated = operation.is_newer() && txn.is_logged();
    if longest == 0 {
        if txn.delete_key(db, dest)? && is_stated {
            txn.effect(db, &[b"DEL", dest]);
        }
        return Ok(0);
    }
    let mut stated = is_stated.then(|| Stated::new(txn, db, dest, longest));
    let mut result = NewValue::new(txn, longest);
    match (operation, sources) {
        (Operation::Not, [source, ..]) => invert(txn, db, source, longest, &mut result)?,
        (Operation::And, _) if some_is_empty => {}
        _ => {
            let mut at = 0;
            while let Some(next) = next_stored(txn, db, operation, sources, at)? {
                let start = next - next % FRAGMENT_LEN;
                at = start + STEP;
                let mut fragments = step(txn, db, operation, sources, start..at)?;
                if let Some(stated) = &mut stated {
                    stated.put(txn, &fragments);
                }
                while let Some((index, fragment)) = fragments.pop_first() {
                    result.put(txn, db, index, &fragment)?;
                }
            }
        }
    }
    result.finish(txn, db, dest, Expiry::Clear)?;
    if let Some(stated) = stated {
        stated.finish(txn);
    }
    Ok(longest)
}

/// The effect of an operation that Redis 7.0 does not have: commands that write the result, and
/// which it has. Zeros are left out, so that the effect does not grow with the length.
struct Stated<'d> {
    db: DbIndex,
    dest: &'d [u8],
    len: u64,
    /// Where the last part ends.
    end: u64,
    /// A short result, which is stated at once.
    short: Option<Vec<u8>>,
}

impl<'d> Stated<'d> {
    fn new(txn: &mut Txn, db: DbIndex, dest: &'d [u8], len: u64) -> Stated<'d> {
        let short = (len <= FRAGMENT_LEN).then(|| vec![0; len as usize]);
        if short.is_none() {
            txn.effect(db, &[b"DEL", dest]);
        }
        Stated {
            db,
            dest,
            len,
            end: 0,
            short,
        }
    }

    /// The next parts of the result.
    fn put(&mut self, txn: &mut Txn, fragments: &Fragments) {
        if let Some(short) = &mut self.short {
            for (whole, part) in short.iter_mut().zip(fragments.values().flatten()) {
                *whole = *part;
            }
            return;
        }
        let (mut from, mut run) = (0, Vec::new());
        for (index, fragment) in fragments {
            if fragment.iter().all(|byte| *byte == 0) {
                continue;
            }
            let at = index * FRAGMENT_LEN;
            if at != from + run.len() as u64 {
                self.state(txn, from, &run);
                from = at;
                run.clear();
            }
            run.extend_from_slice(fragment);
        }
        self.state(txn, from, &run);
    }

    fn state(&mut self, txn: &mut Txn, from: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut digits = itoa::Buffer::new();
        let at = digits.format(from).as_bytes();
        txn.effect(self.db, &[b"SETRANGE", self.dest, at, bytes]);
        self.end = from + bytes.len() as u64;
    }

    fn finish(mut self, txn: &mut Txn) {
        if let Some(short) = &self.short {
            txn.effect(self.db, &[b"SET", self.dest, short]);
        } else if self.end < self.len {
            self.state(txn, self.len - 1, &[0]);
        }
    }
}

/// A part of the result of any operation but NOT.
fn step(
    view: &mut View,
    db: DbIndex,
    operation: Operation,
    sources: &[&[u8]],
    part: Range<u64>,
) -> OpResult<Fragments> {
    let mut all = |operation, sources: &[&[u8]]| {
        let mut fragments = Fragments::new();
        for (nth, source) in sources.iter().enumerate() {
            let is_first = nth == 0;
            fragments = fold(
                view,
                db,
                operation,
                is_first,
                source,
                part.clone(),
                fragments,
            )?;
        }
        OpResult::Ok(fragments)
    };
    let (first, others) = sources.split_at(1.min(sources.len()));
    Ok(match operation {
        Operation::And | Operation::Or | Operation::Xor | Operation::Not => {
            all(operation, sources)?
        }
        Operation::Diff => without(all(Operation::Or, first)?, &all(Operation::Or, others)?),
        Operation::Diff1 => without(all(Operation::Or, others)?, &all(Operation::Or, first)?),
        Operation::AndOr => common(all(Operation::Or, first)?, &all(Operation::Or, others)?),
        Operation::One => {
            let (mut once, mut twice) = (Fragments::new(), Fragments::new());
            for source in sources {
                for (index, bytes) in all(Operation::Or, &[source])? {
                    let once = once.entry(index).or_default();
                    count_once(once, twice.entry(index).or_default(), &bytes);
                }
            }
            once
        }
    })
}

/// Clears the bits that are set in `others`.
fn without(mut fragments: Fragments, others: &Fragments) -> Fragments {
    for (index, fragment) in &mut fragments {
        if let Some(other) = others.get(index) {
            combine_words(fragment, other, |a, b| a & !b);
        }
    }
    fragments
}

/// Keeps the bits that are set in `others` too.
fn common(fragments: Fragments, others: &Fragments) -> Fragments {
    let both = |(index, mut fragment): (u64, Vec<u8>)| {
        let other = others.get(&index)?;
        fragment.truncate(other.len());
        combine_words(&mut fragment, other, |a, b| a & b);
        Some((index, fragment))
    };
    fragments.into_iter().filter_map(both).collect()
}

/// Adds a source to the bits that are set in exactly one so far, and in more than one.
fn count_once(once: &mut Vec<u8>, twice: &mut Vec<u8>, bytes: &[u8]) {
    let len = once.len().max(bytes.len());
    once.resize(len, 0);
    twice.resize(len, 0);
    let mut again = once.clone();
    again.truncate(bytes.len());
    combine_words(&mut again, bytes, |a, b| a & b);
    combine_words(twice, &again, |a, b| a | b);
    combine_words(once, bytes, |a, b| a ^ b);
    combine_words(once, twice, |a, b| a & !b);
}

/// The first position from `at` on where the result of an operation but NOT may have ones:
/// where all sources that must have a bit (AND), or any that may, store something.
fn next_stored(
    view: &mut View,
    db: DbIndex,
    operation: Operation,
    sources: &[&[u8]],
    at: u64,
) -> OpResult<Option<u64>> {
    let mut next = None;
    let sources = match operation {
        Operation::Diff | Operation::AndOr => sources.get(..1),
        Operation::Diff1 => sources.get(1..),
        _ => Some(sources),
    };
    for source in sources.unwrap_or_default() {
        let mut first = None;
        string::for_each_fragment(
            view,
            db,
            source,
            |len| at..len,
            |offset, _| {
                first = Some(offset);
                ControlFlow::Break(())
            },
        )?;
        next = match (operation, first) {
            (Operation::And, None) => return Ok(None),
            (Operation::And, _) => next.max(first),
            (_, None) => next,
            (_, Some(first)) => Some(next.map_or(first, |next: u64| next.min(first))),
        };
    }
    Ok(next)
}

/// Combines another source into a part of the result.
fn fold(
    view: &mut View,
    db: DbIndex,
    operation: Operation,
    is_first: bool,
    source: &[u8],
    part: Range<u64>,
    mut so_far: Fragments,
) -> OpResult<Fragments> {
    let mut both = Fragments::new();
    let mut one = |index: u64, bytes: &[u8]| {
        if operation == Operation::And && !is_first {
            if let Some(mut fragment) = so_far.remove(&index) {
                fragment.truncate(bytes.len());
                combine_words(&mut fragment, bytes, |a, b| a & b);
                both.insert(index, fragment);
            }
            return;
        }
        let fragment = so_far.entry(index).or_default();
        if fragment.len() < bytes.len() {
            fragment.resize(bytes.len(), 0);
        }
        match operation {
            Operation::Xor => combine_words(fragment, bytes, |a, b| a ^ b),
            _ => combine_words(fragment, bytes, |a, b| a | b),
        }
    };
    let pick = |len: u64| part.start..part.end.min(len);
    string::for_each_fragment(view, db, source, pick, |offset, bytes| {
        let first = offset / FRAGMENT_LEN;
        (first..)
            .zip(bytes.chunks(FRAGMENT_LEN as usize))
            .for_each(|(index, bytes)| one(index, bytes));
        ControlFlow::Continue(())
    })?;
    Ok(match operation == Operation::And && !is_first {
        true => both,
        false => so_far,
    })
}

fn invert(
    txn: &mut Txn,
    db: DbIndex,
    source: &[u8],
    len: u64,
    result: &mut NewValue,
) -> OpResult<()> {
    let mut step = vec![0; STEP.min(len) as usize];
    for start in (0..len).step_by(STEP as usize) {
        txn.will_make(STEP)?;
        step.fill(0xff);
        step.truncate((len - start) as usize);
        let pick = |len: u64| start..len.min(start + STEP);
        string::for_each_fragment(txn, db, source, pick, |offset, bytes| {
            let into = &mut step[(offset - start) as usize..];
            combine_words(into, bytes, |_, stored| !stored);
            ControlFlow::Continue(())
        })?;
        let fragments = step.chunks(FRAGMENT_LEN as usize);
        for (index, fragment) in (start / FRAGMENT_LEN..).zip(fragments) {
            result.put(txn, db, index, fragment)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
