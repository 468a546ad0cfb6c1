//! What the commands on hashes and sets share: scans of their elements and
//! random samples. The bounds hold for sorted sets too.

use super::args::Options;
use super::scan::{Scanned, parse_cursor};
use super::{CmdResult, Error, ReadCtx};
use crate::base::{glob, num};
use crate::encoding::ValueType;
use crate::resp::Reply;
use crate::types::OpError;
use crate::types::members::Members;
use std::ops::ControlFlow;

/// Maximum number of elements that one call visits, whatever COUNT says. The client
/// continues with the cursor, and other requests run in between.
pub(super) const COUNT_MAX: u64 = 1 << 20;

/// Elements that a call without COUNT visits.
pub(super) const COUNT_DEFAULT: u64 = 10;

/// Maximum size of a reply of repeated samples, in bytes: their number is the client's
/// choice, however small the collection.
pub(super) const SAMPLES_MAX_BYTES: usize = 512 << 20;

/// The shortest element of a reply, in bytes.
pub(super) const ELEMENT_MIN_BYTES: u64 = 6;

/// One call of HSCAN or SSCAN.
pub struct ScanRequest<'a> {
    cursor: u64,
    args: &'a [&'a [u8]],
}

impl<'a> ScanRequest<'a> {
    /// Reads the cursor. The options are read when there is something to scan.
    pub fn new(args: &'a [&'a [u8]]) -> Result<ScanRequest<'a>, Error> {
        let cursor = parse_cursor(args.get(2).copied().unwrap_or_default())?;
        Ok(ScanRequest { cursor, args })
    }

    /// Replies with the next cursor and the elements found.
    pub fn run(&self, ctx: &mut ReadCtx<'_>, members: &Members, kind: ValueType) -> CmdResult {
        let (mut pattern, mut count, mut values) = (None, COUNT_DEFAULT, kind == ValueType::Hash);
        let mut options = Options::new(self.args, 3);
        while !options.is_empty() {
            if options.left() >= 2 && options.word("COUNT") {
                count = u64::try_from(options.int()?).map_err(|_| Error::Syntax)?;
                if count == 0 {
                    return Err(Error::Syntax);
                }
            } else if options.left() >= 2 && options.word("MATCH") {
                pattern = Some(options.value()?).filter(|pattern| *pattern != b"*");
            } else if options.word("NOVALUES") {
                if kind != ValueType::Hash {
                    return Err(Error::NOVALUES);
                }
                values = false;
            } else {
                return Err(Error::Syntax);
            }
        }
        let reply = &mut *ctx.reply;
        let (scanned, mut elements) = (Scanned::begin(reply), 0);
        let count = count.min(COUNT_MAX);
        let next = members.scan(ctx.view, self.cursor, count, |member, value| {
            if pattern.is_some_and(|pattern| !glob::matches(pattern, member, false)) {
                return;
            }
            reply.bulk(member);
            elements += 1;
            if values {
                reply.bulk(value);
                elements += 1;
            }
        })?;
        scanned.end(reply, next, elements);
        Ok(())
    }
}

/// The reply of a scan of a missing key.
pub(super) fn reply_end_of_scan(reply: &mut Reply) {
    reply.array(2);
    reply.bulk(b"0");
    reply.array(0);
}

/// The count of HRANDFIELD and SRANDMEMBER: an integer that can be negated.
pub(super) fn sample_count(arg: &[u8]) -> Result<i64, Error> {
    let count = num::parse_i64(arg).ok_or(OpError::NotInteger)?;
    if count == i64::MIN {
        return Err(Error::OUT_OF_I64);
    }
    Ok(count)
}

/// Replies with up to `count` distinct members of the `len` that there are, or, for a negative `count`, with `-count`
/// members and repeats.
pub(super) fn reply_samples(
    ctx: &mut ReadCtx<'_>,
    (members, len): (&Members, u64),
    count: i64,
    with_values: bool,
) -> CmdResult {
    let wanted = match count {
        0.. => count.unsigned_abs().min(len),
        _ => count.unsigned_abs(),
    };
    if count < 0 && wanted > SAMPLES_MAX_BYTES as u64 / ELEMENT_MIN_BYTES {
        return Err(Error::REPLY_TOO_LONG);
    }
    let reply = &mut *ctx.reply;
    let nested = with_values && reply.resp3;
    let per_sample = if with_values && !nested { 2 } else { 1 };
    reply.array(wanted as usize * per_sample);
    let limit = reply.len().saturating_add(SAMPLES_MAX_BYTES);
    let mut too_long = false;
    let write = |member: &[u8], value: &[u8]| {
        if nested {
            reply.array(2);
        }
        reply.bulk(member);
        if with_values {
            reply.bulk(value);
        }
        too_long = count < 0 && reply.len() > limit;
        match too_long {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    match count {
        0 => {}
        1.. => members.sample_distinct(ctx.view, wanted, write)?,
        _ => members.sample_repeats(ctx.view, wanted, write)?,
    }
    match too_long {
        true => Err(Error::REPLY_TOO_LONG),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
