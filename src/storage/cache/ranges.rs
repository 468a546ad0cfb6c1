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

/// The most bytes of keys and values in a cached range.
pub(in crate::storage) const RANGE_BYTES: usize = 1024;

/// A cached range that was read to its end is refilled with this many rows: a client that pops from
/// an end returns for the next.
pub(in crate::storage) const READ_AHEAD: usize = 16;

/// Reads whose bounds are longer than this, in bytes, are not cached.
const BOUND_MAX: usize = 256;

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

/// Where a row of a cached range stands in its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    at: u16,
    key_len: u16,
    value_len: u16,
}

/// All rows with keys in `[from, to)`, in the order of `direction`.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::storage) struct CachedRange {
    direction: Direction,
    from: RowKey,
    to: RowKey,
    rows: SmallVec<[Row; 16]>,
    bytes: SmallVec<[u8; 512]>,
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
            bytes: SmallVec::new(),
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
        self.rows.get(n).map(|row| self.row(row))
    }

    /// Whether a read of `[from, to)` in `direction` begins within.
    pub(in crate::storage) fn serves(&self, direction: Direction, from: &[u8], to: &[u8]) -> bool {
        match direction {
            Direction::Forward => self.from.as_slice() <= from && from < self.to.as_slice(),
            Direction::Backward => self.from.as_slice() < to && to <= self.to.as_slice(),
        }
    }

    /// How many of its rows precede the first one of a read of `[from, to)` in `direction`.
    pub(in crate::storage) fn skip(&self, direction: Direction, from: &[u8], to: &[u8]) -> usize {
        let mut n = 0;
        while let Some((key, _)) = self.get(direction, n) {
            let met = match direction {
                Direction::Forward => key >= from,
                Direction::Backward => key < to,
            };
            if met {
                break;
            }
            n += 1;
        }
        n
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
        if self.size() + 4 + key.len() + value.len() > RANGE_BYTES {
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

    /// `from length (2) ‖ to length (2) ‖ from ‖ to`, then for each row
    /// `key length (2) ‖ value length (2) ‖ key ‖ value`.
    pub(in crate::storage) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.bytes.len() + 4 * self.rows.len());
        let put_pair = |bytes: &mut Vec<u8>, a: &[u8], b: &[u8]| {
            bytes.extend_from_slice(&(a.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&(b.len() as u16).to_be_bytes());
            bytes.extend_from_slice(a);
            bytes.extend_from_slice(b);
        };
        put_pair(&mut bytes, &self.from, &self.to);
        for row in &self.rows {
            let (key, value) = self.row(row);
            put_pair(&mut bytes, key, value);
        }
        bytes
    }

    /// A cached range that [`CachedRange::encode`] has written for this direction.
    pub(in crate::storage) fn decode(direction: Direction, bytes: &[u8]) -> Option<CachedRange> {
        let (from, to, mut rest) = take_pair(bytes)?;
        let mut range = CachedRange {
            direction,
            from: RowKey::from_slice(from),
            to: RowKey::from_slice(to),
            rows: SmallVec::new(),
            bytes: SmallVec::new(),
        };
        while !rest.is_empty() {
            let (key, value, behind) = take_pair(rest)?;
            range.append(key, value);
            rest = behind;
        }
        Some(range)
    }

    /// An encoded cached range after a row was written (`None`: deleted), or `None` if the row lies
    /// outside.
    pub(in crate::storage) fn amended(
        direction: Direction,
        bytes: &[u8],
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        let (from, to, _) = take_pair(bytes)?;
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
        let range = CachedRange::decode(direction, bytes)?;
        let range = CachedRange { from, to, ..range };
        Some(range.with(key, value).encode())
    }

    /// The cached range after a row inside was written (`None`: deleted).
    fn with(&self, key: &[u8], value: Option<&[u8]>) -> CachedRange {
        let (from, to) = (self.from.as_slice(), self.to.as_slice());
        let mut new = CachedRange::starting(self.direction, from, to);
        let mut written = value.map(|value| (key, value));
        let mut fits = true;
        for row in &self.rows {
            let (old, value) = self.row(row);
            let order = match self.direction {
                Direction::Forward => key.cmp(old),
                Direction::Backward => old.cmp(key),
            };
            if order != Ordering::Greater
                && let Some((key, value)) = written.take()
            {
                fits = fits && new.push(key, value);
            }
            fits = fits && (order == Ordering::Equal || new.push(old, value));
        }
        if let Some((key, value)) = written {
            fits = fits && new.push(key, value);
        }
        if fits {
            new.reach_end(from, to);
        }
        new
    }

    fn append(&mut self, key: &[u8], value: &[u8]) {
        self.rows.push(Row {
            at: self.bytes.len() as u16,
            key_len: key.len() as u16,
            value_len: value.len() as u16,
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn row(&self, row: &Row) -> (&[u8], &[u8]) {
        let key = usize::from(row.at)..usize::from(row.at + row.key_len);
        let value = key.end..key.end + usize::from(row.value_len);
        (&self.bytes[key], &self.bytes[value])
    }

    /// The bytes that the rows take when encoded.
    fn size(&self) -> usize {
        self.bytes.len() + 4 * self.rows.len()
    }
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

/// Two byte strings after their lengths, and the rest.
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
                let value = rng.bool().then(|| vec![b'w'; rng.usize(..200)]);
                match &value {
                    Some(value) => rows.insert(key.clone(), value.clone()),
                    None => rows.remove(&key),
                };
                if let Some(new) = CachedRange::amended(direction, &bytes, &key, value.as_deref()) {
                    bytes = new;
                }
                let range = CachedRange::decode(direction, &bytes).unwrap();
                assert!(range.size() <= RANGE_BYTES);
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
        assert_eq!(range.skip(Direction::Forward, &key(25), &key(99)), 2);
        assert_eq!(range.skip(Direction::Backward, &key(0), &key(30)), 1);
    }
}
