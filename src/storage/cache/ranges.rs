//! The range cache: copies in memory of the rows at which range reads of a collection began lately,
//! such as the head of a leaderboard. To find its first row, a range read searches every memtable
//! and a file of each level; compared with that, copying the ten rows that it wants costs next to
//! nothing.
//!
//! A cached range holds all rows in a range of keys, so a read that begins within the range needs
//! nothing else until it leaves it. Each map in a fixed order ([`is_cacheable_range_row`]) can have
//! two, one read forward and one read backward. They stand among the
//! [`crate::storage::cache::rows`] rows, in their sets and under their versions; a commit updates
//! them row by row.

use crate::encoding::keys::is_one_map;
use crate::encoding::keys::{self, ELEMENT_PREFIX_LEN, RowKey};
use crate::encoding::{CollectionId, tag};
use crate::storage::Direction;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Range;

/// The most bytes of keys and values in a cached range.
pub(in crate::storage) const RANGE_BYTES: usize = 1024;

/// A cached range that was read to its end is refilled with this many rows: a client that pops from
/// an end returns for the next.
pub(in crate::storage) const READ_AHEAD: usize = 16;

/// Reads whose bounds are longer than this, in bytes, are not cached.
const BOUND_MAX: usize = 256;

/// Bytes of the lengths of a pair.
const PAIR_HEAD: usize = 4;

/// The tags of rows that may stand in cached ranges.
pub(in crate::storage) const TAGS: [u8; 2] = [tag::LIST_ITEM, tag::ZSET_SCORE];

/// Whether a read of `[from, to)` may begin with a cached range and leave one behind.
pub(in crate::storage) fn is_worth_it(from: &[u8], to: &[u8]) -> bool {
    from.len().max(to.len()) <= BOUND_MAX && map_of(from, to).is_some()
}

/// Whether the row with this key may stand in a cached range.
pub(in crate::storage) fn is_cacheable_range_row(key: &[u8]) -> bool {
    key.first().is_some_and(|tag| TAGS.contains(tag)) && key.len() >= ELEMENT_PREFIX_LEN
}

/// The prefix of the map that `[from, to)` lies in, if that has cached ranges.
pub(in crate::storage) fn map_of<'k>(from: &'k [u8], to: &[u8]) -> Option<&'k [u8]> {
    (is_cacheable_range_row(from) && is_one_map(from, to)).then(|| &from[..ELEMENT_PREFIX_LEN])
}

/// The names in the row cache of the two cached ranges of a map, by its prefix.
pub(in crate::storage) fn names(prefix: &[u8]) -> [RowKey; 2] {
    [Direction::Forward, Direction::Backward].map(|direction| {
        let mut name = RowKey::from_slice(prefix);
        name.push(direction as u8);
        name
    })
}

/// Prefix and direction of a cached range, from its name in the row cache.
pub(in crate::storage) fn split_name(name: &[u8]) -> Option<(&[u8], Direction)> {
    let (prefix, rest) = name.split_at_checked(ELEMENT_PREFIX_LEN)?;
    let directions = [Direction::Forward, Direction::Backward];
    let mut directions = directions.into_iter();
    let direction = directions.find(|direction| rest == [*direction as u8])?;
    is_cacheable_range_row(prefix).then_some((prefix, direction))
}

/// All rows with keys in `[from, to)`, in the order of `direction`.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::storage) struct CachedRange {
    direction: Direction,
    from: RowKey,
    to: RowKey,
    /// The offset in `bytes` of each row.
    rows: SmallVec<[u16; 24]>,
    /// The rows, each as a pair of key and value ([`put_pair`]).
    bytes: Vec<u8>,
}

impl CachedRange {
    /// A cached range that begins where a read of `[from, to)` does, without rows yet.
    pub(in crate::storage) fn starting(
        direction: Direction,
        from: &[u8],
        to: &[u8],
    ) -> CachedRange {
        let start = match direction {
            Direction::Forward => from,
            Direction::Backward => to,
        };
        CachedRange {
            direction,
            from: RowKey::from_slice(start),
            to: RowKey::from_slice(start),
            rows: SmallVec::new(),
            bytes: Vec::new(),
        }
    }

    /// In which direction it was read.
    pub(in crate::storage) fn direction(&self) -> Direction {
        self.direction
    }

    /// This cached range, if a read in `direction` can append the rows that follow it.
    pub(in crate::storage) fn extends(self, direction: Direction) -> Option<CachedRange> {
        (self.direction == direction).then_some(self)
    }

    /// The range of keys that it covers.
    pub(in crate::storage) fn range(&self) -> (&[u8], &[u8]) {
        (&self.from, &self.to)
    }

    /// How many rows it has.
    pub(in crate::storage) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Row number `n`, from 0, in the order of a read in `direction`.
    pub(in crate::storage) fn get(&self, direction: Direction, n: usize) -> Option<(&[u8], &[u8])> {
        let n = match direction == self.direction {
            true => n,
            false => self.rows.len().checked_sub(n + 1)?,
        };
        self.row(*self.rows.get(n)?)
    }

    /// Whether a read of `[from, to)` in `direction` begins within.
    pub(in crate::storage) fn serves(&self, direction: Direction, from: &[u8], to: &[u8]) -> bool {
        match direction {
            Direction::Forward => self.from.as_slice() <= from && from < self.to.as_slice(),
            Direction::Backward => self.from.as_slice() < to && to <= self.to.as_slice(),
        }
    }

    /// The rows that a read of `[from, to)` in `direction` wants, by the numbers of
    /// [`CachedRange::get`]. The range must [serve](CachedRange::serves) the read.
    pub(in crate::storage) fn wanted(
        &self,
        direction: Direction,
        from: &[u8],
        to: &[u8],
    ) -> Range<usize> {
        let key = |n| self.get(direction, n).map_or(&[][..], |(key, _)| key);
        let (starts_before, ends_behind) = match direction {
            Direction::Forward => (self.from.as_slice() < from, self.to.as_slice() > to),
            Direction::Backward => (self.to.as_slice() > to, self.from.as_slice() < from),
        };
        let precedes = |n| match direction {
            Direction::Forward => key(n) < from,
            Direction::Backward => key(n) >= to,
        };
        let follows = |n| match direction {
            Direction::Forward => key(n) >= to,
            Direction::Backward => key(n) < from,
        };
        let (mut start, mut end) = (0, self.len());
        while starts_before && start < end && precedes(start) {
            start += 1;
        }
        while ends_behind && start < end && follows(end - 1) {
            end -= 1;
        }
        start..end
    }

    /// Where a read in `direction` must continue after its last row: at keys from here on, or at
    /// keys before this one.
    pub(in crate::storage) fn end(&self, direction: Direction) -> &[u8] {
        match direction {
            Direction::Forward => &self.to,
            Direction::Backward => &self.from,
        }
    }

    /// Appends the row that follows in its direction. Returns false if it does not fit.
    pub(in crate::storage) fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        if self.bytes.len() + PAIR_HEAD + key.len() + value.len() > RANGE_BYTES {
            return false;
        }
        self.append(key, value);
        match self.direction {
            Direction::Forward => self.to = just_after(key),
            Direction::Backward => self.from = RowKey::from_slice(key),
        }
        true
    }

    /// Notes that a read of `[from, to)` found no further row.
    pub(in crate::storage) fn reach_end(&mut self, from: &[u8], to: &[u8]) {
        match self.direction {
            Direction::Forward => self.to = RowKey::from_slice(to),
            Direction::Backward => self.from = RowKey::from_slice(from),
        }
    }

    /// The pair `from` and `to`, then for each row the pair of key and value ([`put_pair`]).
    pub(in crate::storage) fn encode(&self) -> Vec<u8> {
        let head = PAIR_HEAD + self.from.len() + self.to.len();
        let mut bytes = Vec::with_capacity(head + self.bytes.len());
        put_pair(&mut bytes, &self.from, &self.to);
        bytes.extend_from_slice(&self.bytes);
        bytes
    }

    /// A cached range that [`CachedRange::encode`] has written for this direction.
    pub(in crate::storage) fn decode(direction: Direction, bytes: &[u8]) -> Option<CachedRange> {
        let (from, to, all) = take_pair(bytes)?;
        let mut rows = SmallVec::new();
        let mut rest = all;
        while !rest.is_empty() {
            rows.push(u16::try_from(all.len() - rest.len()).ok()?);
            (_, _, rest) = take_pair(rest)?;
        }
        Some(CachedRange {
            direction,
            from: RowKey::from_slice(from),
            to: RowKey::from_slice(to),
            rows,
            bytes: all.to_vec(),
        })
    }

    /// An encoded cached range after a row was written (`None`: deleted), or `None` if the row lies
    /// outside.
    pub(in crate::storage) fn amended(
        direction: Direction,
        bytes: &[u8],
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        let (from, to, rows) = take_pair(bytes)?;
        let (mut from, mut to) = (RowKey::from_slice(from), RowKey::from_slice(to));
        if key < from.as_slice() || key >= to.as_slice() {
            // An item that is pushed to a list directly follows or precedes its neighbour.
            let is_item = key[0] == tag::LIST_ITEM && value.is_some();
            match is_item {
                true if key == to.as_slice() => to = just_after(key),
                true if just_after(key) == from => from = RowKey::from_slice(key),
                _ => return None,
            }
        }
        let replaced = place_of(direction, rows, key)?;
        let (before, behind) = (&rows[..replaced.start], &rows[replaced.end..]);
        let new = value.map(|value| (key, value));
        let added = new.map_or(0, |(key, value)| PAIR_HEAD + key.len() + value.len());
        let len = before.len() + added + behind.len();
        if len > RANGE_BYTES {
            // The rows that no longer fit are the last ones.
            let mut range = CachedRange::starting(direction, &from, &to);
            let mut all = pairs(before).chain(new).chain(pairs(behind));
            while let Some((key, value)) = all.next()
                && range.push(key, value)
            {}
            return Some(range.encode());
        }
        let mut amended = Vec::with_capacity(PAIR_HEAD + from.len() + to.len() + len);
        put_pair(&mut amended, &from, &to);
        amended.extend_from_slice(before);
        if let Some((key, value)) = new {
            put_pair(&mut amended, key, value);
        }
        amended.extend_from_slice(behind);
        Some(amended)
    }

    fn append(&mut self, key: &[u8], value: &[u8]) {
        self.rows.push(self.bytes.len() as u16);
        put_pair(&mut self.bytes, key, value);
    }

    /// The row at this offset.
    fn row(&self, at: u16) -> Option<(&[u8], &[u8])> {
        let (key, value, _) = take_pair(self.bytes.get(at.into()..)?)?;
        Some((key, value))
    }
}

/// The place in encoded rows of the row with this key. If there is none: an empty range where it
/// would be inserted.
fn place_of(direction: Direction, rows: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let mut rest = rows;
    while !rest.is_empty() {
        let (old, _, behind) = take_pair(rest)?;
        let order = match direction {
            Direction::Forward => key.cmp(old),
            Direction::Backward => old.cmp(key),
        };
        let start = rows.len() - rest.len();
        match order {
            Ordering::Less => return Some(start..start),
            Ordering::Equal => return Some(start..rows.len() - behind.len()),
            Ordering::Greater => rest = behind,
        }
    }
    Some(rows.len()..rows.len())
}

/// The first key after this one that a row of the same map can have: items of a list have
/// consecutive numbers.
fn just_after(key: &[u8]) -> RowKey {
    if key.first() == Some(&tag::LIST_ITEM)
        && let Ok(index) = keys::split_indexed(key)
        && let Some(next) = index.checked_add(1)
    {
        let mut after = RowKey::from_slice(&key[..ELEMENT_PREFIX_LEN]);
        after.extend_from_slice(
            &keys::indexed(tag::LIST_ITEM, CollectionId(0), next)[ELEMENT_PREFIX_LEN..],
        );
        return after;
    }
    let mut after = RowKey::from_slice(key);
    after.push(0);
    after
}

/// The pairs of encoded rows.
fn pairs(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (a, b, behind) = take_pair(rest)?;
        rest = behind;
        Some((a, b))
    })
}

/// Appends `a length (2) ‖ b length (2) ‖ a ‖ b`.
fn put_pair(bytes: &mut Vec<u8>, a: &[u8], b: &[u8]) {
    bytes.extend_from_slice(&(a.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&(b.len() as u16).to_be_bytes());
    bytes.extend_from_slice(a);
    bytes.extend_from_slice(b);
}

/// The two byte strings of a pair, and what follows it.
#[inline]
fn take_pair(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (a_len, rest) = bytes.split_first_chunk()?;
    let (b_len, rest) = rest.split_first_chunk()?;
    let (a, rest) = rest.split_at_checked(u16::from_be_bytes(*a_len).into())?;
    let (b, rest) = rest.split_at_checked(u16::from_be_bytes(*b_len).into())?;
    Some((a, b, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const ID: CollectionId = CollectionId(7);

    fn key(n: u64) -> RowKey {
        keys::by_score(ID, n as f64, b"member")
    }

    fn item(n: u64) -> RowKey {
        keys::indexed(tag::LIST_ITEM, ID, n as i64 - 50)
    }

    fn rows_of(range: &CachedRange, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        let row = |n| range.get(direction, n);
        let rows = (0..).map_while(row);
        rows.map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
    }

    /// Random reads and writes; a cached range always has exactly the rows of its range.
    #[test]
    fn a_cached_range_stays_true_under_writes() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let key: fn(u64) -> RowKey = [key, item][seed as usize % 2];
            let direction = match rng.bool() {
                true => Direction::Forward,
                false => Direction::Backward,
            };
            let mut rows: BTreeMap<RowKey, Vec<u8>> = BTreeMap::new();
            for _ in 0..rng.usize(..40) {
                rows.insert(key(rng.u64(10..90)), b"v".to_vec());
            }
            let (from, to) = (key(5), key(95));
            let mut range = CachedRange::starting(direction, &from, &to);
            let wanted = rng.usize(..45);
            let mut stored: Vec<_> = rows.iter().collect();
            if direction == Direction::Backward {
                stored.reverse();
            }
            if stored.iter().take(wanted).all(|(k, v)| range.push(k, v)) && wanted >= stored.len() {
                range.reach_end(&from, &to);
            }
            let mut bytes = range.encode();
            for _ in 0..60 {
                let key = key(rng.u64(..100));
                let len = match rng.u32(..20) {
                    0 => 1 << 16,
                    _ => rng.usize(..200),
                };
                let value = rng.bool().then(|| vec![b'w'; len]);
                match &value {
                    Some(value) => rows.insert(key.clone(), value.clone()),
                    None => rows.remove(&key),
                };
                if let Some(new) = CachedRange::amended(direction, &bytes, &key, value.as_deref()) {
                    bytes = new;
                }
                let range = CachedRange::decode(direction, &bytes).unwrap();
                assert!(range.bytes.len() <= RANGE_BYTES);
                let (from, to) = range.range();
                let mut there: Vec<(Vec<u8>, Vec<u8>)> = rows
                    .range(RowKey::from_slice(from)..RowKey::from_slice(to))
                    .map(|(k, v)| (k.to_vec(), v.clone()))
                    .collect();
                assert_eq!(rows_of(&range, Direction::Forward), there, "seed {seed}");
                there.reverse();
                assert_eq!(rows_of(&range, Direction::Backward), there, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_cached_range_grows_with_what_is_pushed_at_its_ends() {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut range = CachedRange::starting(direction, &item(10), &item(12));
            let both = match direction {
                Direction::Forward => [10, 11],
                Direction::Backward => [11, 10],
            };
            assert!(both.iter().all(|&n| range.push(&item(n), b"v")));
            let mut bytes = range.encode();
            for n in [12, 9, 13, 8] {
                bytes = CachedRange::amended(direction, &bytes, &item(n), Some(b"v")).unwrap();
            }
            let range = CachedRange::decode(direction, &bytes).unwrap();
            assert_eq!(range.range(), (&item(8)[..], &item(14)[..]));
            assert_eq!(range.len(), 6);
            assert_eq!(
                CachedRange::amended(direction, &bytes, &item(15), Some(b"v")),
                None
            );
            assert_eq!(
                CachedRange::amended(direction, &bytes, &item(14), None),
                None
            );
        }
    }

    #[test]
    fn a_cached_range_serves_reads_that_begin_within() {
        let mut range = CachedRange::starting(Direction::Forward, &key(10), &key(90));
        for n in [10, 20, 30] {
            assert!(range.push(&key(n), b""));
        }
        let serves = |direction, from, to| range.serves(direction, &key(from), &key(to));
        assert!(serves(Direction::Forward, 10, 99));
        assert!(serves(Direction::Forward, 25, 99));
        assert!(!serves(Direction::Forward, 5, 99));
        assert!(!serves(Direction::Forward, 31, 99));
        assert!(serves(Direction::Backward, 0, 30));
        assert!(!serves(Direction::Backward, 0, 31));
        assert!(!serves(Direction::Backward, 0, 10));
        let wanted = |direction, from, to| range.wanted(direction, &key(from), &key(to));
        assert_eq!(wanted(Direction::Forward, 25, 99), 2..3);
        assert_eq!(wanted(Direction::Forward, 10, 30), 0..2);
        assert_eq!(wanted(Direction::Forward, 15, 25), 1..2);
        assert_eq!(wanted(Direction::Forward, 21, 25), 2..2);
        assert_eq!(wanted(Direction::Backward, 0, 30), 1..3);
        assert_eq!(wanted(Direction::Backward, 15, 30), 1..2);
    }
}
