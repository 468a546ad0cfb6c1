//! The sparse encoding of a HyperLogLog's registers: runs of equal ones, in order.
//!
//! ```text
//! 00nnnnnn            n+1 registers of rank 0 (up to 64)
//! 01nnnnnn nnnnnnnn   n+1 registers of rank 0 (up to 16384)
//! 1rrrrrnn            n+1 registers (up to 4) of rank r+1 (up to 32)
//! ```
//!
//! The same registers can be written in several ways, depending on the order in which
//! they were set. This module writes the same bytes as Redis: a split inserts the new
//! run between the remains of the old one, then a few neighbours with equal ranks are
//! joined, from left to right.

use super::{HllError, HllResult, REGISTERS};
use smallvec::SmallVec;

/// The encoding of empty registers.
pub const EMPTY: [u8; 2] = [0x7f, 0xff];

/// The highest rank of a run; higher ones need the dense encoding.
const RANK_MAX: u8 = 32;

/// The longest run with a rank above 0.
const RANKED_MAX: usize = 4;

/// The longest run of zeros in one byte.
const SHORT_ZEROS_MAX: usize = 64;

/// How many runs are checked for equal neighbours.
const JOIN_STEPS: usize = 5;

/// Registers of the same rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The rank.
    pub rank: u8,
    /// The number of registers.
    pub len: usize,
}

type Encoded = SmallVec<[u8; 8]>;

impl Run {
    /// The run that `bytes` begin with, and how many bytes it takes.
    pub fn decode(bytes: &[u8]) -> Option<(Run, usize)> {
        let first = *bytes.first()?;
        let low = usize::from(first & 0x3f);
        let zeros = |len| Run { rank: 0, len };
        Some(match first >> 6 {
            0 => (zeros(low + 1), 1),
            1 => (zeros((low << 8 | usize::from(*bytes.get(1)?)) + 1), 2),
            _ => {
                let rank = (first >> 2 & 0x1f) + 1;
                let len = usize::from(first & 3) + 1;
                (Run { rank, len }, 1)
            }
        })
    }

    /// Appends the encoded run; nothing for an empty run.
    fn encode(self, out: &mut Encoded) {
        match (self.rank, self.len) {
            (_, 0) => {}
            (0, len @ 1..=SHORT_ZEROS_MAX) => out.push(len as u8 - 1),
            (0, len) => out.extend_from_slice(&(0x4000 | (len - 1) as u16).to_be_bytes()),
            (rank, len) => out.push(0x80 | (rank - 1) << 2 | (len - 1) as u8),
        }
    }
}

/// Calls `each` with every run, in order, and checks that the runs cover exactly all
/// registers. A run beyond the last register is not passed on.
pub fn for_each_run(body: &[u8], mut each: impl FnMut(Run)) -> HllResult<()> {
    let mut rest = body;
    let mut seen = 0;
    while !rest.is_empty() {
        let (run, size) = Run::decode(rest).ok_or(HllError::Corrupt)?;
        seen += run.len;
        if seen > REGISTERS {
            return Err(HllError::Corrupt);
        }
        each(run);
        rest = &rest[size..];
    }
    match seen {
        REGISTERS => Ok(()),
        _ => Err(HllError::Corrupt),
    }
}

/// The result of [`set`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// The register was not lower.
    Unchanged,
    /// The register was raised.
    Raised,
    /// Nothing changed: the dense encoding is needed.
    Full,
}

/// The position of a register.
struct Place {
    /// Byte positions of its run and of the run before.
    at: usize,
    before: usize,
    run: Run,
    size: usize,
    /// Registers of the run before this one.
    within: usize,
}

fn find(bytes: &[u8], body: usize, index: usize) -> HllResult<Place> {
    let (mut at, mut before, mut first) = (body, body, 0);
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let (run, size) = Run::decode(rest).ok_or(HllError::Corrupt)?;
        if first + run.len > REGISTERS {
            return Err(HllError::Corrupt);
        }
        if index < first + run.len {
            let within = index - first;
            return Ok(Place {
                at,
                before,
                run,
                size,
                within,
            });
        }
        first += run.len;
        before = at;
        at += size;
    }
}

/// Raises a register of the encoding that begins at byte `body` of `bytes`, which may
/// grow by `room` bytes.
pub fn set(
    bytes: &mut Vec<u8>,
    body: usize,
    index: usize,
    rank: u8,
    room: usize,
) -> HllResult<Set> {
    if rank > RANK_MAX {
        return Ok(Set::Full);
    }
    let place = find(bytes, body, index)?;
    let old = place.run;
    if old.rank >= rank {
        return Ok(Set::Unchanged);
    }
    let mut new = Encoded::new();
    for (rank, len) in [
        (old.rank, place.within),
        (rank, 1),
        (old.rank, old.len - place.within - 1),
    ] {
        Run { rank, len }.encode(&mut new);
    }
    if new.len() > place.size && new.len() - place.size > room {
        return Ok(Set::Full);
    }
    bytes.splice(place.at..place.at + place.size, new);
    join(bytes, place.before);
    Ok(Set::Raised)
}

/// Joins neighbours of equal rank, from the run at `at` on.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOIN_STEPS {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some((left, size)) = Run::decode(rest) else {
            return;
        };
        let right = Run::decode(&rest[size..]).map(|(right, _)| right);
        match right {
            Some(right)
                if left.rank != 0
                    && left.rank == right.rank
                    && left.len + right.len <= RANKED_MAX =>
            {
                let mut joined = Encoded::new();
                let len = left.len + right.len;
                Run { len, ..left }.encode(&mut joined);
                // Runs with a rank take one byte each.
                bytes.splice(at..at + 2, joined);
            }
            _ => at += size,
        }
    }
}
