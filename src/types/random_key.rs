//! Picks a key at random, for RANDOMKEY.
//!
//! Keys stand in lexicographic order, and nothing says how many there are
//! between two of them. So the search narrows a range: it takes a point between
//! the range's first and last key at random, by the bytes behind what both have
//! in common, and looks at a window of keys on either side. A side that ends
//! within its window is known by number, and chosen with the probability that
//! this number has among the keys of the range; of two sides without a known
//! end the point's position decides. A few such steps are enough: then one key
//! of the window is taken.
//!
//! Keys that differ in digits or in random bytes come out about evenly; where
//! many keys crowd in one corner they get less than their share, but no key is
//! without a chance.

use super::OpResult;
use crate::encoding::keys;
use crate::encoding::meta::MetaView;
use crate::storage::scan::Direction;
use crate::storage::{DbIndex, View};

/// Keys looked at on either side of a point.
const WINDOW: usize = 16;
/// Steps in which both sides were larger than their windows.
const BLIND_STEPS: u32 = 8;
/// Steps at the most.
const STEPS: u32 = 64;
/// Searches that may end at a key whose time is over.
const TRIES: usize = 16;
/// Keys looked at after that for one that lives.
const SWEEP_ROWS: usize = 100_000;

struct Candidate {
    key: Vec<u8>,
    lives: bool,
}

/// The keys from `first` to `last`, about `len` of them.
struct Span {
    first: Vec<u8>,
    last: Vec<u8>,
    len: f64,
}

/// A key of `db` that lives. `None` if there is none (or, while very many keys
/// wait for their removal, none was found).
pub fn random_key(view: &mut View, db: DbIndex) -> OpResult<Option<Vec<u8>>> {
    let all = view.counts(db).keys;
    let first = look(view, db, b"", None, Direction::Forward, 1)?.pop();
    let last = look(view, db, b"", None, Direction::Backward, 1)?.pop();
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(None);
    };
    let mut from = Vec::new();
    // To take a neighbour of a key whose time is over would favour that neighbour.
    for _ in 0..TRIES {
        let span = Span {
            first: first.key.clone(),
            last: last.key.clone(),
            len: all.max(1) as f64,
        };
        let mut found = search(view, db, span)?;
        if found.is_empty() {
            break;
        }
        let candidate = found.swap_remove(fastrand::usize(..found.len()));
        if candidate.lives {
            return Ok(Some(candidate.key));
        }
        from = candidate.key;
    }
    sweep(view, db, &from)
}

/// Narrows the span down to some keys, each as good as the others.
fn search(view: &mut View, db: DbIndex, mut span: Span) -> OpResult<Vec<Candidate>> {
    let mut blind = 0;
    let mut window = Vec::new();
    for _ in 0..STEPS {
        let (point, share) = split(&span.first, &span.last);
        let before = look(
            view,
            db,
            &span.first,
            Some(&point),
            Direction::Backward,
            WINDOW,
        )?;
        let mut end = span.last.clone();
        end.push(0);
        let after = look(view, db, &point, Some(&end), Direction::Forward, WINDOW)?;
        let known = (before.len() < WINDOW, after.len() < WINDOW);
        let left_share = match known {
            (true, false) => before.len() as f64 / span.len,
            (false, true) => 1.0 - after.len() as f64 / span.len,
            _ => share,
        };
        let left = fastrand::f64() < left_share;
        blind += u32::from(known == (false, false));
        let done = match known {
            (true, true) => true,
            (true, false) if left => return Ok(before),
            (false, true) if !left => return Ok(after),
            _ => blind > BLIND_STEPS,
        };
        let nearest = if left { before.first() } else { after.first() };
        match nearest.map(|candidate| candidate.key.clone()) {
            Some(key) if left => span.last = key,
            Some(key) => span.first = key,
            None => {}
        }
        let kept = if left { left_share } else { 1.0 - left_share };
        span.len = (span.len * kept).max(WINDOW as f64);
        window = before;
        window.extend(after);
        if done {
            break;
        }
    }
    Ok(window)
}

/// A point after `first` and not after `last`, and which part of the span lies before it.
fn split(first: &[u8], last: &[u8]) -> (Vec<u8>, f64) {
    let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let (low, high) = (number(first, same), number(last, same));
    if high <= low {
        return (last.to_vec(), 0.5);
    }
    let at = fastrand::u64(low + 1..=high);
    let mut point = last.get(..same).unwrap_or_default().to_vec();
    point.extend_from_slice(&at.to_be_bytes());
    // Zeros at the end would put the point behind a shorter `last`.
    while point.len() > same && point.last() == Some(&0) {
        point.pop();
    }
    (point, (at - low) as f64 / (high - low) as f64)
}

/// Eight bytes of a key from `at` on.
fn number(key: &[u8], at: usize) -> u64 {
    let mut bytes = [0u8; 8];
    for (to, from) in bytes.iter_mut().zip(key.iter().skip(at)) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

/// Up to `max` keys in `[from, to)`, nearest first.
fn look(
    view: &mut View,
    db: DbIndex,
    from: &[u8],
    to: Option<&[u8]>,
    direction: Direction,
    max: usize,
) -> OpResult<Vec<Candidate>> {
    let now_ms = view.expiry_now_ms();
    let end = match to {
        Some(to) => keys::meta(to),
        None => keys::after_prefix(&keys::meta(b"")).unwrap_or_default(),
    };
    let mut scan = view.scan(db, &keys::meta(from), &end, direction)?;
    let mut found = Vec::new();
    while found.len() < max
        && let Some((row_key, row)) = scan.next()?
    {
        found.push(Candidate {
            key: keys::user_key_of_meta(row_key)?.to_vec(),
            lives: !MetaView::decode(row)?.meta.is_expired(now_ms),
        });
    }
    Ok(found)
}

/// The next key that lives, from `from` on and then from the beginning.
fn sweep(view: &mut View, db: DbIndex, from: &[u8]) -> OpResult<Option<Vec<u8>>> {
    let now_ms = view.expiry_now_ms();
    let end = keys::after_prefix(&keys::meta(b"")).unwrap_or_default();
    let from = keys::meta(from);
    let mut left = SWEEP_ROWS;
    for (from, to) in [(from.clone(), end), (keys::meta(b""), from)] {
        let mut scan = view.scan(db, &from, &to, Direction::Forward)?;
        while left > 0
            && let Some((row_key, row)) = scan.next()?
        {
            left -= 1;
            if !MetaView::decode(row)?.meta.is_expired(now_ms) {
                return Ok(Some(keys::user_key_of_meta(row_key)?.to_vec()));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_parts_first_from_last() {
        for (first, last) in [
            (&b"a"[..], &b"b"[..]),
            (b"", b"\0"),
            (b"", b"\0\0\0\0\0\0\0\0\0\0"),
            (b"key:1", b"key:2"),
            (b"key", b"key\x01"),
            (b"\xFF", b"\xFF\xFF"),
            (b"a\0\0\0\0\0\0\0\0\0x", b"a\0\0\0\0\0\0\0\0\0y"),
        ] {
            for _ in 0..100 {
                let (point, share) = split(first, last);
                assert!(first < point.as_slice(), "{first:?} {last:?} {point:?}");
                assert!(point.as_slice() <= last, "{first:?} {last:?} {point:?}");
                assert!((0.0..=1.0).contains(&share));
            }
        }
    }
}
