//! LZF, the compression of strings in RDB files and DUMP payloads.
//!
//! The format is a sequence of tokens; the first byte gives the type:
//!
//! | first byte | follows | meaning |
//! |---|---|---|
//! | `000nnnnn` | n + 1 bytes | copy them |
//! | `nnnddddd`, n < 7 | low byte of d | repeat n + 2 bytes from d + 1 back |
//! | `111ddddd` | n, low byte of d | repeat n + 9 bytes from d + 1 back |

use thiserror::Error;

/// Most bytes of a literal token.
const MAX_LITERAL: usize = 32;
/// Fewest bytes for which a repeat token is shorter.
const MIN_REPEAT: usize = 3;
/// Most bytes of a repeat token.
const MAX_REPEAT: usize = 264;
/// How far back a repeat token reaches.
const MAX_DISTANCE: usize = 8192;
const HASH_BITS: u32 = 14;
/// The best ratio: a token of three bytes makes at most [`MAX_REPEAT`] bytes.
const MAX_RATIO: usize = MAX_REPEAT / 3;

/// Why a payload cannot be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LzfError {
    /// A token ends after the payload, or reaches back before its start.
    #[error("corrupt LZF data")]
    Corrupt,
    /// The payload has more or fewer bytes than announced.
    #[error("LZF data of unexpected length")]
    WrongLength,
}

/// Whether a payload of so many bytes can become `len` bytes.
pub fn is_possible(packed_len: usize, len: u64) -> bool {
    len <= packed_len.saturating_mul(MAX_RATIO) as u64
}

/// Decompresses a payload that must have exactly `len` bytes. Memory is bounded
/// by the payload's own size, whatever `len` claims.
///
/// # Errors
/// The payload is corrupt or of another length.
pub fn decompress(payload: &[u8], len: usize) -> Result<Vec<u8>, LzfError> {
    if !is_possible(payload.len(), len as u64) {
        return Err(LzfError::WrongLength);
    }
    let mut out = Vec::with_capacity(len);
    let mut rest = payload;
    while let Some((control, tail)) = rest.split_first() {
        let control = usize::from(*control);
        if control < MAX_LITERAL {
            let (literal, tail) = tail
                .split_at_checked(control + 1)
                .ok_or(LzfError::Corrupt)?;
            if literal.len() > len - out.len() {
                return Err(LzfError::WrongLength);
            }
            out.extend_from_slice(literal);
            rest = tail;
            continue;
        }
        let (count, low, tail) = match (control >> 5, tail) {
            (7, [more, low, tail @ ..]) => (usize::from(*more) + 9, *low, tail),
            (short @ 1..=6, [low, tail @ ..]) => (short + 2, *low, tail),
            _ => return Err(LzfError::Corrupt),
        };
        let distance = ((control & 0x1f) << 8 | usize::from(low)) + 1;
        let start = out.len().checked_sub(distance).ok_or(LzfError::Corrupt)?;
        if count > len - out.len() {
            return Err(LzfError::WrongLength);
        }
        repeat(&mut out, start, count);
        rest = tail;
    }
    if out.len() == len {
        Ok(out)
    } else {
        Err(LzfError::WrongLength)
    }
}

/// Appends `count` bytes from `start` on, which may overlap the appended ones.
fn repeat(out: &mut Vec<u8>, start: usize, count: usize) {
    let period = out.len() - start;
    let mut left = count;
    while left > 0 {
        let from = out.len() - period;
        let step = left.min(period);
        out.extend_from_within(from..from + step);
        left -= step;
    }
}

/// Compresses strings. Used for many strings, since it keeps its table.
#[derive(Debug)]
pub struct Compressor {
    /// By hash of three bytes: `base` plus the position after their last occurrence. Numbers up to
    /// `base` are from earlier strings.
    seen: Box<[u32]>,
    base: u32,
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor {
            seen: vec![0; 1 << HASH_BITS].into_boxed_slice(),
            base: 0,
        }
    }
}

impl Compressor {
    /// Compresses to fewer than `max_len` bytes, or returns `None`.
    pub fn compress(&mut self, bytes: &[u8], max_len: usize) -> Option<Vec<u8>> {
        let len = u32::try_from(bytes.len()).ok()?;
        if bytes.len() <= MIN_REPEAT {
            return None;
        }
        if self.base.checked_add(len).is_none() {
            self.seen.fill(0);
            self.base = 0;
        }
        let packed = self.pack(bytes, max_len);
        self.base += len;
        packed
    }

    fn pack(&mut self, bytes: &[u8], max_len: usize) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(max_len.min(bytes.len()));
        let mut literal_start = 0;
        let mut pos = 0;
        while let Some(hash) = hash_at(bytes, pos) {
            let slot = self.seen.get_mut(hash)?;
            let candidate = slot.checked_sub(self.base + 1);
            *slot = self.base + pos as u32 + 1;
            let matched = candidate
                .map(|from| from as usize)
                .filter(|from| pos - from <= MAX_DISTANCE)
                .map(|from| (from, common_len(bytes, from, pos)))
                .filter(|(_, count)| *count >= MIN_REPEAT);
            let Some((from, count)) = matched else {
                pos += 1;
                continue;
            };
            put_literals(&mut out, bytes.get(literal_start..pos)?);
            put_repeat(&mut out, pos - from, count);
            if out.len() >= max_len {
                return None;
            }
            let end = pos + count;
            // Of a match only the end is entered: enough to chain repeats.
            if let Some(hash) = hash_at(bytes, end - 1) {
                *self.seen.get_mut(hash)? = self.base + end as u32;
            }
            pos = end;
            literal_start = end;
        }
        put_literals(&mut out, bytes.get(literal_start..)?);
        (out.len() < max_len).then_some(out)
    }
}

/// The hash of three bytes; `None` if fewer are left.
fn hash_at(bytes: &[u8], pos: usize) -> Option<usize> {
    match bytes.get(pos..)? {
        [a, b, c, ..] => {
            let word = u32::from(*a) << 16 | u32::from(*b) << 8 | u32::from(*c);
            Some((word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize)
        }
        _ => None,
    }
}

/// How many bytes from `pos` on equal those from `from` on, for one token.
fn common_len(bytes: &[u8], from: usize, pos: usize) -> usize {
    bytes
        .iter()
        .skip(from)
        .zip(bytes.iter().skip(pos).take(MAX_REPEAT))
        .take_while(|(old, new)| old == new)
        .count()
}

fn put_literals(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.chunks(MAX_LITERAL) {
        out.push(chunk.len() as u8 - 1);
        out.extend_from_slice(chunk);
    }
}

fn put_repeat(out: &mut Vec<u8>, distance: usize, count: usize) {
    let back = distance - 1;
    let high = (back >> 8) as u8;
    let count = count - 2;
    if count < 7 {
        out.push((count as u8) << 5 | high);
    } else {
        out.push(7 << 5 | high);
        out.push((count - 7) as u8);
    }
    out.push(back as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_every_token() {
        let payload = b"\x02abc\x20\x02\xe0\x00\x00\x40\x02";
        let expected = [b"abcabc".as_slice(), &[b'c'; 13]].concat();
        assert_eq!(decompress(payload, expected.len()).unwrap(), expected);
    }

    #[test]
    fn hostile_payloads() {
        for (payload, len, error) in [
            (&b"\x1fabc"[..], 4, LzfError::Corrupt),
            (b"\x00a\x20", 4, LzfError::Corrupt),
            (b"\x00a\xe0\x00", 10, LzfError::Corrupt),
            (b"\x20\x00", 3, LzfError::Corrupt),
            (b"\x00a\x20\x01", 4, LzfError::Corrupt),
            (b"\x00a", usize::MAX, LzfError::WrongLength),
            (b"\x00a", 2, LzfError::WrongLength),
            (b"\x01ab", 1, LzfError::WrongLength),
            (b"\x00a\xe0\xff\x00", 10, LzfError::WrongLength),
            (b"", 1, LzfError::WrongLength),
        ] {
            assert_eq!(decompress(payload, len), Err(error), "{payload:?}");
        }
        assert_eq!(decompress(b"", 0), Ok(Vec::new()));
    }

    #[test]
    fn gives_up_in_time() {
        let noise: Vec<u8> = (0..1000u64)
            .map(|index| (index * index * index % 1009) as u8)
            .collect();
        let mut compressor = Compressor::default();
        let mut compress = |bytes: &[u8], max_len| compressor.compress(bytes, max_len);
        assert_eq!(compress(&noise, noise.len() - 4), None);
        assert_eq!(compress(b"aaa", 100), None);
        let run = vec![b'x'; 100_000];
        let packed = compress(&run, run.len()).unwrap();
        assert!(packed.len() < 1200, "{}", packed.len());
        assert_eq!(decompress(&packed, run.len()).unwrap(), run);
    }

    proptest! {
        #[test]
        fn round_trips(words in prop::collection::vec("[ab]{0,6}|[a-z]{3}", 0..400)) {
            let bytes = words.concat().into_bytes();
            if let Some(packed) = Compressor::default().compress(&bytes, bytes.len()) {
                prop_assert!(packed.len() < bytes.len());
                prop_assert_eq!(decompress(&packed, bytes.len()).unwrap(), bytes);
            }
        }

        #[test]
        fn round_trips_any_bytes(strings: Vec<Vec<u8>>, base in prop_oneof![Just(0), Just(u32::MAX - 99)]) {
            let mut compressor = Compressor { base, ..Compressor::default() };
            for bytes in strings {
                if let Some(packed) = compressor.compress(&bytes, usize::MAX) {
                    prop_assert_eq!(decompress(&packed, bytes.len()).unwrap(), bytes);
                }
            }
        }

        #[test]
        fn any_payload_ends(payload: Vec<u8>, len in 0usize..2000) {
            if let Ok(out) = decompress(&payload, len) {
                prop_assert_eq!(out.len(), len);
            }
        }
    }
}
