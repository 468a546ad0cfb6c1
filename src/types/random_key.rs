//! Picks a key at random, for RANDOMKEY.
//!
//! Keys are stored in the order of their places ([`keys::Layout`]), and the number of keys between
//! two of them is unknown. The search knows places alone, and narrows a range of them. It picks a
//! random point between the range's first and last key, by the bytes after their common prefix, and
//! reads a window of keys on either side. If the range ends within a window, the number of keys on that
//! side is known, and the side is chosen with its share of the keys in the range. If
//! neither end is within its window, the position of the point decides. After a few
//! steps one key of the window is taken.
//!
//! Keys that differ in digits or random bytes are drawn about evenly. Where many keys
//! share a small part of the range they are drawn less often, but each key can be drawn.
//!
//! Deleted keys leave tombstones. Reading a window stops after many of them, and that
//! end is then unknown. If nearly everything is tombstones (a million keys were just
//! deleted), a whole search finds nothing. Then a landmark is taken, a key that existed
//! when landmarks were last recorded ([`View::landmarks`]), if it still exists. Only if
//! none does, the search walks over the tombstones to the next key, and records the keys
//! after it as landmarks.

use super::OpResult;
use crate::encoding::keys::{self, METAS, RowKey};
use crate::encoding::meta::MetaView;
use crate::storage::Direction;
use crate::storage::{DbIndex, View};

/// Keys in a window on either side of a point.
const WINDOW: usize = 16;
/// With tombstones around, fewer candidates than this are not representative.
const FEW: usize = 4;
/// Tombstones that reading one window passes.
const WINDOW_TOMBSTONES: u64 = 128;
/// Approximate limit of tombstones passed for one key: some milliseconds.
const TOMBSTONES_MAX: u64 = 8192;
/// Most steps in which neither end is within its window.
const BLIND_STEPS: u32 = 8;
/// Most steps.
const STEPS: u32 = 128;
/// Most searches that end at an expired key, or at none.
const TRIES: usize = 16;
/// Landmarks tried.
const LANDMARKS: usize = 16;
/// Most keys read by the final walk over tombstones.
const SWEEP_ROWS: usize = 100_000;

struct Candidate {
    place: Vec<u8>,
    lives: bool,
}

/// A window, nearest keys first.
struct Window {
    keys: Vec<Candidate>,
    /// Whether the range ends within the window.
    ended: bool,
}

/// The keys from `first` to `last`, about `len` of them.
struct Span {
    first: Vec<u8>,
    last: Vec<u8>,
    len: f64,
}

/// The search for one key.
struct Search<'a> {
    view: &'a mut View,
    db: DbIndex,
    /// Tombstones passed.
    passed: u64,
    /// Windows that ended at the limit of tombstones.
    gave_up: u32,
}

/// A random key of `db` that has not expired. `None` if there is none, or if none was
/// found among very many expired keys.
pub fn random_key(view: &mut View, db: DbIndex) -> OpResult<Option<Vec<u8>>> {
    Ok(counted_random_key(view, db)?.0)
}

/// The key, and the number of tombstones passed.
fn counted_random_key(view: &mut View, db: DbIndex) -> OpResult<(Option<Vec<u8>>, u64)> {
    if view.counts(db).keys == 0 {
        return Ok((None, 0));
    }
    let (passed, gave_up) = (0, 0);
    let mut search = Search {
        view,
        db,
        passed,
        gave_up,
    };
    let found = search.find()?;
    let passed = search.passed;
    let layout = view.layout();
    let key = found.map(|place| layout.key_at(&place).map(<[u8]>::to_vec));
    Ok((key.transpose()?, passed))
}

impl Search<'_> {
    fn find(&mut self) -> OpResult<Option<Vec<u8>>> {
        let all = self.view.counts(self.db).keys;
        let first = self.read_window(b"", None, Direction::Forward, 1)?;
        let last = self.read_window(b"", None, Direction::Backward, 1)?;
        if first.ended && first.keys.is_empty() {
            return Ok(None);
        }
        // If tombstones hide the ends, the search starts from the whole range.
        let first = first.keys.into_iter().next().map(|found| found.place);
        let last = last.keys.into_iter().next().map(|found| found.place);
        let first = first.unwrap_or_default();
        let last = last.unwrap_or_else(|| vec![0xFF; 16]);
        let mut from = Vec::new();
        // Taking a neighbour of an expired key would favour that neighbour.
        for _ in 0..TRIES {
            let span = Span {
                first: first.clone(),
                last: last.clone(),
                len: all.max(1) as f64,
            };
            let mut found = self.narrow(span)?;
            if found.is_empty() && self.gave_up == 0 {
                break;
            }
            let few = found.len() < FEW;
            if !found.is_empty() {
                let candidate = found.swap_remove(fastrand::usize(..found.len()));
                if candidate.lives {
                    if self.gave_up > 0 && few {
                        // A key after a gap is drawn too often.
                        self.view.note_landmark(self.db, &candidate.place);
                        let landmark = self.landmark()?;
                        return Ok(Some(landmark.unwrap_or(candidate.place)));
                    }
                    return Ok(Some(candidate.place));
                }
                from = candidate.place;
            }
            if self.passed > TOMBSTONES_MAX {
                break;
            }
        }
        if self.gave_up > 0
            && let Some(key) = self.landmark()?
        {
            self.view.note_landmark(self.db, &key);
            return Ok(Some(key));
        }
        self.sweep(&from)
    }

    /// Narrows the span down to a few keys, each as good as the others.
    fn narrow(&mut self, mut span: Span) -> OpResult<Vec<Candidate>> {
        let mut blind = 0;
        let mut window = Vec::new();
        for _ in 0..STEPS {
            let (point, share) = split(&span.first, &span.last);
            let before =
                self.read_window(&span.first, Some(&point), Direction::Backward, WINDOW)?;
            let mut end = span.last.clone();
            end.push(0);
            let after = self.read_window(&point, Some(&end), Direction::Forward, WINDOW)?;
            let known = (before.ended, after.ended);
            let (before, after) = (before.keys, after.keys);
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
                _ => blind > BLIND_STEPS || self.passed > TOMBSTONES_MAX,
            };
            match before.first().filter(|_| left) {
                Some(nearest) => span.last.clone_from(&nearest.place),
                None if left => span.last = point,
                None => span.first = after.first().map_or(point, |nearest| nearest.place.clone()),
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

    /// Up to `max` keys in `[from, to)`.
    fn read_window(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        direction: Direction,
        max: usize,
    ) -> OpResult<Window> {
        let now_ms = self.view.expiry_now_ms();
        let end = match to {
            Some(to) => keys::meta_at(to),
            None => RowKey::from_slice(&METAS.1),
        };
        let from = keys::meta_at(from);
        let view = &mut *self.view;
        let mut scan = view.scan_within(self.db, &from, &end, direction, WINDOW_TOMBSTONES)?;
        let mut keys = Vec::new();
        while keys.len() < max
            && let Some((row_key, row)) = scan.next()?
        {
            keys.push(Candidate {
                place: keys::place_of_meta(row_key)?.to_vec(),
                lives: !MetaView::decode(row)?.meta.is_expired(now_ms),
            });
        }
        self.passed += scan.passed();
        self.gave_up += u32::from(scan.gave_up());
        let ended = keys.len() < max && !scan.gave_up();
        Ok(Window { keys, ended })
    }

    /// A landmark that still exists.
    fn landmark(&mut self) -> OpResult<Option<Vec<u8>>> {
        let now_ms = self.view.expiry_now_ms();
        for key in self.view.landmarks(self.db, LANDMARKS) {
            let row = self.view.row(self.db, &keys::meta_at(&key))?;
            let meta = row.map(|row| MetaView::decode(&row).map(|found| found.meta));
            if meta.transpose()?.is_some_and(|m| !m.is_expired(now_ms)) {
                return self.random_neighbour(key).map(Some);
            }
        }
        Ok(None)
    }

    /// A key near a landmark, so that other keys than landmarks can be drawn, too.
    fn random_neighbour(&mut self, key: Vec<u8>) -> OpResult<Vec<u8>> {
        let mut near = self
            .read_window(&key, None, Direction::Forward, WINDOW)?
            .keys;
        let before = self.read_window(b"", Some(&key), Direction::Backward, WINDOW)?;
        near.extend(before.keys);
        near.retain(|candidate| candidate.lives);
        if near.is_empty() {
            return Ok(key);
        }
        Ok(near.swap_remove(fastrand::usize(..near.len())).place)
    }

    /// The next existing key, from `from` on and then from the beginning.
    fn sweep(&mut self, from: &[u8]) -> OpResult<Option<Vec<u8>>> {
        let now_ms = self.view.expiry_now_ms();
        let end = RowKey::from_slice(&METAS.1);
        let from = keys::meta_at(from);
        let mut left = SWEEP_ROWS;
        let mut found = None;
        for (from, to) in [(from.clone(), end), (RowKey::from_slice(&METAS.0), from)] {
            let view = &mut *self.view;
            let mut scan = view.scan_within(self.db, &from, &to, Direction::Forward, u64::MAX)?;
            while left > 0
                && found.is_none()
                && let Some((row_key, row)) = scan.next()?
            {
                left -= 1;
                if !MetaView::decode(row)?.meta.is_expired(now_ms) {
                    found = Some(keys::place_of_meta(row_key)?.to_vec());
                }
            }
            self.passed += scan.passed();
            if found.is_some() {
                break;
            }
        }
        if self.gave_up > 0
            && let Some(key) = &found
        {
            for near in self
                .read_window(key, None, Direction::Forward, WINDOW)?
                .keys
            {
                self.view.note_landmark(self.db, &near.place);
            }
        }
        Ok(found)
    }
}

/// A point after `first` and not after `last`, and its relative position.
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

/// Eight bytes of a key from `at` on, as a number.
fn number(key: &[u8], at: usize) -> u64 {
    let mut bytes = [0u8; 8];
    for (to, from) in bytes.iter_mut().zip(key.iter().skip(at)) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::testing::Deleted;
    use std::collections::BTreeMap;

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

    /// Counts steps, not time: at most one call walks over all tombstones, and none once
    /// there are landmarks; then the keys are drawn evenly, too.
    #[test]
    fn deleted_keys_are_not_walked_over() {
        const MANY: u64 = TOMBSTONES_MAX + 40 * WINDOW_TOMBSTONES;
        for (pattern, survivors) in Deleted::patterns(30_000, 60).into_iter().enumerate() {
            let mut store = Deleted::store(30_000, &survivors);
            let draw = |store: &mut Deleted| {
                let (key, passed) = counted_random_key(&mut store.txn, DbIndex(0)).unwrap();
                (key.unwrap(), passed)
            };
            let long = (0..200).filter(|_| draw(&mut store).1 > MANY).count();
            assert!(long <= 1, "{long} long walks in pattern {pattern}");
            store.engine.tidy(|| false).unwrap();
            let mut drawn = BTreeMap::<Vec<u8>, u32>::new();
            for _ in 0..1200 {
                let (key, passed) = draw(&mut store);
                assert!(passed <= MANY, "{passed} in pattern {pattern}");
                *drawn.entry(key).or_default() += 1;
            }
            let missing = survivors.len() - drawn.len();
            assert!(missing <= 1, "{missing} missing in pattern {pattern}");
            let most = drawn.values().max().copied().unwrap_or_default();
            assert!(most < 200, "{most} of 1200 in pattern {pattern}");
        }
    }

    #[test]
    fn landmarks_that_died_hide_no_key() {
        let survivors = Deleted::patterns(30_000, 60)[0].clone();
        let mut store = Deleted::store(30_000, &survivors);
        for _ in 0..100 {
            for n in 0..300 {
                store
                    .txn
                    .note_landmark(DbIndex(0), format!("gone:{n}").as_bytes());
            }
            let (key, _) = counted_random_key(&mut store.txn, DbIndex(0)).unwrap();
            assert!(key.is_some_and(|key| survivors.contains(&key)));
        }
    }

    #[test]
    fn landmarks_are_chosen_after_many_deletions() {
        let survivors = Deleted::patterns(20_000, 10)[3].clone();
        let mut store = Deleted::store(20_000, &survivors);
        assert!(store.txn.landmarks(DbIndex(0), 100).is_empty());
        store.engine.tidy(|| false).unwrap();
        let (places, layout) = (store.txn.landmarks(DbIndex(0), 100), store.txn.layout());
        let keys = places.iter().map(|at| layout.key_at(at).unwrap().to_vec());
        let mut landmarks: Vec<Vec<u8>> = keys.collect();
        landmarks.sort_unstable();
        assert_eq!(landmarks, survivors);
        let (key, passed) = counted_random_key(&mut store.txn, DbIndex(0)).unwrap();
        assert!(key.is_some_and(|key| survivors.contains(&key)));
        assert!(
            passed <= TOMBSTONES_MAX + 40 * WINDOW_TOMBSTONES,
            "{passed}"
        );
    }
}
