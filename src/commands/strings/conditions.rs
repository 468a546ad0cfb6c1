//! Compare and set: the conditions of SET and DELEX on the value that a key holds, DELIFEQ,
//! and DIGEST, which such a condition may name in place of the value.

use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx, remove};
use crate::commands::args::{self, Options};
use crate::commands::table::spec::Group;
use crate::storage::{DbIndex, View};
use crate::types::OpError;
use crate::types::string::{self, Visited};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes of a long value that are read at once.
const CHUNK: u64 = 1 << 20;

/// Hexadecimal digits of a digest.
const DIGITS: usize = 16;

/// A condition on the string that a key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition<'a> {
    /// IFEQ, IFNE: it equals these bytes, or does not.
    Value { bytes: &'a [u8], equal: bool },
    /// IFDEQ, IFDNE: its digest is this one, or is not.
    Digest { digits: &'a [u8], equal: bool },
}

impl<'a> Condition<'a> {
    /// The condition that `word` begins and `operand` completes, if the word begins one.
    pub(super) fn of(word: &[u8], operand: &'a [u8]) -> Option<Condition<'a>> {
        let (bytes, digits) = (operand, operand);
        Some(match word {
            word if args::is(word, "IFEQ") => Condition::Value { bytes, equal: true },
            word if args::is(word, "IFNE") => Condition::Value {
                bytes,
                equal: false,
            },
            word if args::is(word, "IFDEQ") => Condition::Digest {
                digits,
                equal: true,
            },
            word if args::is(word, "IFDNE") => Condition::Digest {
                digits,
                equal: false,
            },
            _ => return None,
        })
    }

    /// Takes the next arguments if they are a condition.
    pub(super) fn take(options: &mut Options<'a>) -> Result<Option<Condition<'a>>, Error> {
        let Some(word) = options.peek().filter(|word| begins(word)) else {
            return Ok(None);
        };
        options.value()?;
        Ok(Condition::of(word, options.value()?))
    }

    /// Whether a key that does not exist meets it.
    pub(super) fn holds_without_key(self) -> bool {
        let (Condition::Value { equal, .. } | Condition::Digest { equal, .. }) = self;
        !equal
    }

    /// Whether the string of a key meets it; `None` if there is no such key.
    ///
    /// # Errors
    /// `WRONGTYPE`, or a digest that is none.
    pub(super) fn holds(
        self,
        view: &mut View,
        db: DbIndex,
        key: &[u8],
    ) -> Result<Option<bool>, Error> {
        match self {
            Condition::Value { bytes, equal } => {
                let is_equal = equals(view, db, key, bytes)?;
                Ok(is_equal.map(|is_equal| is_equal == equal))
            }
            Condition::Digest { digits, equal } => {
                let Some(found) = digest_of(view, db, key)? else {
                    return Ok(None);
                };
                if digits.len() != DIGITS {
                    return Err(Error::text("ERR must be exactly 16 hexadecimal characters"));
                }
                Ok(Some(digits.eq_ignore_ascii_case(&text(found)) == equal))
            }
        }
    }
}

fn begins(word: &[u8]) -> bool {
    Condition::of(word, b"").is_some()
}

/// Whether one of the arguments begins a condition.
pub(super) fn any(args: &[&[u8]]) -> bool {
    args.iter().any(|word| begins(word))
}

/// Whether a key holds exactly these bytes. A long value of another length is not read.
fn equals(view: &mut View, db: DbIndex, key: &[u8], bytes: &[u8]) -> Result<Option<bool>, OpError> {
    let len = bytes.len() as u64;
    Ok(
        match string::visit(view, db, key, |found| found == bytes)? {
            None => None,
            Some(Visited::Inline(equal)) => Some(equal),
            Some(Visited::Long(long)) if long.len() != len => Some(false),
            Some(Visited::Long(long)) => {
                let mut part = Vec::new();
                for (start, expected) in (0..)
                    .step_by(CHUNK as usize)
                    .zip(bytes.chunks(CHUNK as usize))
                {
                    part.clear();
                    let end = start + expected.len() as u64;
                    long.read_into(view, db, start..end, &mut part)?;
                    if part != expected {
                        return Ok(Some(false));
                    }
                }
                Some(true)
            }
        },
    )
}

/// XXH3-64 of the string of a key.
fn digest_of(view: &mut View, db: DbIndex, key: &[u8]) -> Result<Option<u64>, OpError> {
    Ok(match string::visit(view, db, key, xxh3_64)? {
        None => None,
        Some(Visited::Inline(digest)) => Some(digest),
        Some(Visited::Long(long)) => {
            let (mut hash, mut part) = (Xxh3::new(), Vec::new());
            for start in (0..long.len()).step_by(CHUNK as usize) {
                part.clear();
                let end = long.len().min(start + CHUNK);
                long.read_into(view, db, start..end, &mut part)?;
                hash.update(&part);
            }
            Some(hash.digest())
        }
    })
}

fn text(digest: u64) -> Vec<u8> {
    format!("{digest:0width$x}", width = DIGITS).into_bytes()
}

fn digest(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    match digest_of(ctx.view, ctx.db, args[1])? {
        Some(digest) => ctx.reply.bulk(&text(digest)),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn delex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (key, word, operand) = match *args {
        [_, key] => return delete_if(ctx, key, None),
        [_, key, word, operand] => (key, word, operand),
        _ => return Err(Error::Arity("delex".into())),
    };
    let condition = Condition::of(word, operand);
    match string::len(ctx.txn, ctx.db, key) {
        Err(OpError::WrongType) => Err(Error::text(
            "ERR Key should be of string type if conditions are specified",
        )),
        Err(error) => Err(error.into()),
        Ok(Some(_)) if condition.is_none() => Err(Error::text(
            "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE",
        )),
        Ok(_) => delete_if(ctx, key, condition),
    }
}

fn delifeq(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (bytes, equal) = (args[2], true);
    delete_if(ctx, args[1], Some(Condition::Value { bytes, equal }))
}

/// Deletes a key if it exists and meets the condition.
fn delete_if(ctx: &mut WriteCtx<'_>, key: &[u8], condition: Option<Condition<'_>>) -> CmdResult {
    let goes = match condition {
        Some(condition) => condition.holds(ctx.txn, ctx.db, key)? == Some(true),
        None => string::head(ctx.txn, ctx.db, key)?.is_some(),
    };
    if goes {
        remove(ctx, key)?;
    }
    ctx.reply.int(goes.into());
    Ok(())
}

/// DELEX reads its key only with a condition.
fn delex_key_flags(args: &[&[u8]]) -> KeyFlags {
    match args.len() {
        ..3 => KeyFlags::RM.union(KeyFlags::DELETE),
        _ => KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE),
    }
}

/// Whether the value is the given one is told, so who may not read it may not ask.
const COMPARED: KeyFlags = KeyFlags::RM.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);

/// The rows of DELEX, DELIFEQ and DIGEST.
pub const COMMANDS: &[Command] = &[
    Command::write("delex", -2, delex)
        .syntax(
            "key [condition=(IFEQ ifeq-value|IFNE ifne-value|IFDEQ ifdeq-digest|\
             IFDNE ifdne-digest)]",
        )
        .complexity("O(N), N: the length of the string, with a condition; else O(1)")
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE)).varying(delex_key_flags)])
        .doc(
            Group::String,
            "8.4.0",
            "Deletes a key, if its value or the digest of it is, or is not, a given one",
        ),
    Command::write("delifeq", 3, delifeq)
        .syntax("key value")
        .complexity("O(N), N: the length of the value")
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(1, COMPARED)])
        .doc(
            Group::String,
            "9.0.0",
            "Deletes a key if it holds a given string (a command of Valkey)",
        ),
    Command::read("digest", 2, digest)
        .syntax("key")
        .complexity("O(N), N: the length of the string")
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))])
        .doc(
            Group::String,
            "8.4.0",
            "Returns the XXH3 digest of a string, 64 bits in hexadecimal",
        ),
];

#[cfg(test)]
mod tests;
