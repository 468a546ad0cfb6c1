//! LCS: the longest common subsequence of two strings.
//!
//! Dynamic programming over all pairs of prefixes: time and memory grow with the product of
//! the lengths, so `proto-max-bulk-len` bounds the table.

use super::args::Options;
use super::{CmdResult, Error, ReadCtx};
use crate::resp::Reply;
use crate::storage::View;
use crate::types::OpError;
use crate::types::string;
use std::ops::Range;

/// Cells of the table that are computed in a step of [`View::work`].
const CELLS_OF_A_STEP: u64 = 16;

/// The options of LCS.
#[derive(Debug, Default)]
struct Wanted {
    len: bool,
    idx: bool,
    with_match_len: bool,
    min_match_len: usize,
}

impl Wanted {
    fn parse(args: &[&[u8]]) -> Result<Wanted, Error> {
        let mut wanted = Wanted::default();
        let mut options = Options::new(args, 3);
        while !options.is_empty() {
            if options.word("IDX") {
                wanted.idx = true;
            } else if options.word("LEN") {
                wanted.len = true;
            } else if options.word("WITHMATCHLEN") {
                wanted.with_match_len = true;
            } else if options.word("MINMATCHLEN") {
                // A negative minimum has no effect.
                wanted.min_match_len = usize::try_from(options.int()?).unwrap_or(0);
            } else {
                return Err(Error::Syntax);
            }
        }
        if wanted.len && wanted.idx {
            return Err(Error::text(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(wanted)
    }
}

/// The handler of LCS.
pub(super) fn lcs(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    // The lengths are checked first, so that no value is read for which the table would
    // be too large.
    let mut len = |key| match ctx.view.quietly(|view| string::len(view, ctx.db, key)) {
        Ok(len) => Ok(len.unwrap_or(0)),
        Err(OpError::WrongType) => Err(Error::text(
            "ERR The specified keys must contain string values",
        )),
        Err(error) => Err(error.into()),
    };
    let (a_len, b_len) = (len(args[1])?, len(args[2])?);
    let wanted = Wanted::parse(args)?;
    let max_bytes = ctx.server.config.load().proto_max_bulk_len_bytes;
    let cells = cells(a_len, b_len, max_bytes)?;
    let a = string::get(ctx.view, ctx.db, args[1])?.unwrap_or_default();
    let b = string::get(ctx.view, ctx.db, args[2])?.unwrap_or_default();
    let table = Table::new(ctx.view, &a, &b, cells)?;
    if wanted.idx {
        reply_matches(ctx.reply, &table, &wanted);
    } else if wanted.len {
        ctx.reply.int(i64::from(table.at(a.len(), b.len())));
    } else {
        ctx.reply.bulk(&table.common());
    }
    Ok(())
}

/// The number of cells of the table for strings of these lengths; an error if it is too
/// large.
fn cells(a_len: u64, b_len: u64, max_bytes: u64) -> Result<usize, Error> {
    const LEN_MAX: u64 = u32::MAX as u64 - 1;
    if a_len >= LEN_MAX || b_len >= LEN_MAX {
        return Err(Error::text("ERR String too long for LCS"));
    }
    let cells = (a_len + 1) * (b_len + 1);
    if cells > max_bytes / size_of::<u32>() as u64 {
        return Err(Error::text(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    Ok(cells as usize)
}

fn reply_matches(reply: &mut Reply, table: &Table<'_>, wanted: &Wanted) {
    reply.map(2);
    reply.bulk(b"matches");
    let mark = reply.begin();
    let mut matches = 0;
    table.walk(|in_a, in_b| {
        if in_a.len() < wanted.min_match_len {
            return;
        }
        matches += 1;
        reply.array(if wanted.with_match_len { 3 } else { 2 });
        for range in [&in_a, &in_b] {
            reply.array(2);
            reply.int(range.start as i64);
            reply.int(range.end as i64 - 1);
        }
        if wanted.with_match_len {
            reply.int(in_a.len() as i64);
        }
    });
    reply.end_array(mark, matches);
    reply.bulk(b"len");
    reply.int(i64::from(table.at(table.a.len(), table.b.len())));
}

/// The length of the longest common subsequence for each pair of prefixes of `a` and `b`.
struct Table<'a> {
    a: &'a [u8],
    b: &'a [u8],
    /// Row-major, one row for each prefix of `a`.
    lens: Vec<u32>,
}

impl<'a> Table<'a> {
    fn new(view: &View, a: &'a [u8], b: &'a [u8], cells: usize) -> Result<Table<'a>, Error> {
        let width = b.len() + 1;
        let mut lens: Vec<u32> = Vec::new();
        if lens.try_reserve_exact(cells).is_err() {
            return Err(Error::text(
                "ERR Insufficient memory, failed allocating transient memory for LCS",
            ));
        }
        lens.resize(width, 0);
        for (row, x) in a.iter().enumerate() {
            view.work(width as u64 / CELLS_OF_A_STEP)?;
            let above = row * width;
            let mut left = 0;
            lens.push(left);
            for (column, y) in b.iter().enumerate() {
                left = match x == y {
                    true => lens[above + column] + 1,
                    false => left.max(lens[above + column + 1]),
                };
                lens.push(left);
            }
        }
        Ok(Table { a, b, lens })
    }

    /// The length for the first `i` bytes of `a` and the first `j` bytes of `b`.
    fn at(&self, i: usize, j: usize) -> u32 {
        self.lens[i * (self.b.len() + 1) + j]
    }

    /// Calls `each` with the positions of every byte of the subsequence, last first.
    fn walk_bytes(&self, mut each: impl FnMut(usize, usize)) {
        let (mut i, mut j) = (self.a.len(), self.b.len());
        while i > 0 && j > 0 {
            if self.a[i - 1] == self.b[j - 1] {
                i -= 1;
                j -= 1;
                each(i, j);
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }

    /// Calls `each` with the ranges of every contiguous match, last first.
    fn walk(&self, mut each: impl FnMut(Range<usize>, Range<usize>)) {
        let mut run: Option<(Range<usize>, Range<usize>)> = None;
        self.walk_bytes(|i, j| match &mut run {
            Some((in_a, in_b)) if in_a.start == i + 1 && in_b.start == j + 1 => {
                in_a.start = i;
                in_b.start = j;
            }
            _ => {
                if let Some((in_a, in_b)) = run.replace((i..i + 1, j..j + 1)) {
                    each(in_a, in_b);
                }
            }
        });
        if let Some((in_a, in_b)) = run {
            each(in_a, in_b);
        }
    }

    fn common(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.walk_bytes(|i, _| bytes.push(self.a[i]));
        bytes.reverse();
        bytes
    }
}
