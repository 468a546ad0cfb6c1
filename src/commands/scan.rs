//! SCAN, and the parser for cursors.
//!
//! A call visits COUNT keys, starting at the position of the cursor (see
//! [`crate::state::cursors`]). If the pattern has a literal prefix, it visits only keys with
//! that prefix, or with the slot that the pattern names.

use super::args::Options;
use super::{CmdResult, Command, Error, ReadCtx};
use crate::base::{glob, num};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::resp::{Mark, Reply};
use crate::types::keyspace::{self, Bounds};

/// Maximum number of keys that one call visits, whatever COUNT says. The client continues
/// with the cursor, and other requests run in between.
const ROWS_MAX: u64 = 1 << 14;

/// Approximate maximum number of tombstones that one call passes, a few milliseconds' worth.
/// The call may then return no keys, but the cursor advances.
const TOMBSTONES_MAX: i64 = 1 << 15;

/// Keys that a call without COUNT visits.
const ROWS_DEFAULT: u64 = 10;

/// Parses a cursor as Redis does: an integer within 64 bits, with an optional sign and blanks in
/// front. A negative number in non-canonical form (`-007`) wraps around, as with C's `strtoull`;
/// `-1` is an error.
pub(super) fn parse_cursor(arg: &[u8]) -> Result<u64, Error> {
    const INVALID: Error = Error::text("ERR invalid cursor");
    if let Some(cursor) = num::parse_i64(arg) {
        return u64::try_from(cursor).map_err(|_| INVALID);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let blanks = arg.iter().take_while(|byte| is_blank(byte)).count();
    let (negative, digits) = match &arg[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return Err(INVALID);
    }
    let value = digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    });
    match value {
        Some(value) if negative => Ok(value.wrapping_neg()),
        Some(value) => Ok(value),
        None => Err(INVALID),
    }
}

struct Request<'a> {
    pattern: Option<&'a [u8]>,
    /// The name of a type, in any case.
    kind: Option<&'a [u8]>,
    rows: u64,
}

impl<'a> Request<'a> {
    fn parse(args: &'a [&'a [u8]]) -> Result<Request<'a>, Error> {
        let mut request = Request {
            pattern: None,
            kind: None,
            rows: ROWS_DEFAULT,
        };
        let mut options = Options::new(args, 2);
        while !options.is_empty() {
            if options.left() < 2 {
                return Err(Error::Syntax);
            } else if options.word("COUNT") {
                let count = options.int()?;
                request.rows = u64::try_from(count).map_err(|_| Error::Syntax)?;
                if request.rows == 0 {
                    return Err(Error::Syntax);
                }
            } else if options.word("MATCH") {
                request.pattern = Some(options.value()?).filter(|pattern| *pattern != b"*");
            } else if options.word("TYPE") {
                request.kind = Some(options.value()?);
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(request)
    }

    fn takes(&self, key: &[u8], kind: &str) -> bool {
        self.kind
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind.as_bytes()))
            && self.pattern.is_none_or(|p| glob::matches(p, key, false))
    }
}

/// The reply of a scan, whose cursor is known when its elements are written.
pub(super) struct Scanned {
    start: usize,
    elements: Mark,
}

impl Scanned {
    /// Begins with the elements.
    pub(super) fn begin(reply: &mut Reply) -> Scanned {
        Scanned {
            start: reply.len(),
            elements: reply.begin(),
        }
    }

    /// Ends a reply with so many elements and the next cursor.
    pub(super) fn end(self, reply: &mut Reply, next: u64, elements: usize) {
        reply.end_array(self.elements, elements);
        let mut head = Reply::new(false);
        head.array(2);
        head.bulk(itoa::Buffer::new().format(next).as_bytes());
        reply.insert(self.start, &head.buf);
    }
}

fn scan(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let cursor = parse_cursor(args[1])?;
    let request = Request::parse(args)?;
    let (prefix, is_literal) = request
        .pattern
        .map(glob::literal_prefix)
        .unwrap_or_default();
    let reply = &mut *ctx.reply;
    let (scanned, mut matching) = (Scanned::begin(reply), 0);
    let stopped_at = if is_literal {
        let head = keyspace::head(ctx.view, ctx.db, &prefix)?;
        if head.is_some_and(|meta| request.takes(&prefix, meta.kind.name())) {
            reply.bulk(&prefix);
            matching = 1;
        }
        None
    } else {
        let start = match cursor {
            0 => None,
            cursor => ctx.server.cursors.place(cursor),
        };
        let mut bounds = Bounds {
            rows: request.rows.min(ROWS_MAX),
            tombstones: TOMBSTONES_MAX,
        };
        let bounds = Some(&mut bounds);
        let start = start.as_deref();
        let pattern = request.pattern.unwrap_or(b"*");
        let within = keyspace::places(ctx.view.layout(), pattern, &prefix);
        keyspace::walk(ctx.view, ctx.db, &within, start, bounds, |key, kind| {
            if request.takes(key, kind.name()) {
                reply.bulk(key);
                matching += 1;
            }
        })?
    };
    let next = match stopped_at {
        Some(key) => {
            let max = ctx.server.config.load().scan_cursors_max as usize;
            ctx.server.cursors.remember(&key, max)
        }
        None => 0,
    };
    scanned.end(reply, next, matching);
    Ok(())
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[Command::read("scan", -2, scan)
    .syntax("cursor:int [MATCH pattern] [COUNT count:int] [TYPE type@6.0.0]")
    .complexity("O(N), N: keys looked at, about COUNT")
    .history(&[("6.0.0", "Added `TYPE`")])
    .categories(&["keyspace"])
    .tips(&[
        Tip::NondeterministicOutput,
        Tip::RequestSpecial,
        Tip::ResponseSpecial,
    ])
    .doc(
        Group::Generic,
        "2.8.0",
        "Iterates over the keys, a part with each call",
    )];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_redis_reads_them() {
        for (text, cursor) in [
            (&b"0"[..], Some(0)),
            (b"17", Some(17)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"99999999999999999999999", None),
            (b"-1", None),
            (b"+5", Some(5)),
            (b"007", Some(7)),
            (b"-007", Some(7u64.wrapping_neg())),
            (b"", None),
            (b"-", None),
            (b"1x", None),
            (b" 1", Some(1)),
            (b"\t1", Some(1)),
            (b" ", None),
            (b"1 ", None),
            (b"1\0", None),
            (b"1\0x", None),
            (b"abc", None),
        ] {
            assert_eq!(parse_cursor(text).ok(), cursor, "{text:?}");
        }
    }
}
