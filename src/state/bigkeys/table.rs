//! What a scan keeps of keys: sums by prefix and the biggest keys, in bounded memory.

use crate::encoding::ValueType;
use crate::storage::DbIndex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// How many prefixes of a depth are kept. Twice as many stand in the table before the smallest are
/// added to the rest.
pub(super) const PREFIXES: usize = 2048;
/// Bytes of a prefix that are told apart: longer ones that begin with the same bytes are one.
pub const PREFIX_BYTES: usize = 256;
/// Bytes of the name of a big key that are kept.
const NAME_BYTES: usize = 1024;

/// A key as a scan has found it.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// Its DB.
    pub db: DbIndex,
    /// Its name.
    pub key: &'a [u8],
    /// Its type.
    pub kind: ValueType,
    /// Bytes of its rows and long values.
    pub bytes: u64,
    /// Its elements.
    pub elements: u64,
    /// Whether the bytes are extrapolated from a part of its rows.
    pub estimated: bool,
}

/// Sums over keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Keys.
    pub keys: u64,
    /// Their elements.
    pub elements: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Total {
    pub(super) fn take(&mut self, found: &Found<'_>) {
        self.add(Total {
            keys: 1,
            elements: found.elements,
            bytes: found.bytes,
        });
    }

    fn add(&mut self, other: Total) {
        self.keys = self.keys.saturating_add(other.keys);
        self.elements = self.elements.saturating_add(other.elements);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A key with much of something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Big {
    /// What it is measured by.
    measure: u64,
    /// Of equal ones the first by name is kept.
    place: Reverse<(DbIndex, Box<[u8]>)>,
    /// Bytes of its whole name.
    pub name_bytes: usize,
    /// Bytes of its rows and long values.
    pub bytes: u64,
    /// Its elements.
    pub elements: u64,
    /// Whether the bytes are extrapolated from a part of its rows.
    pub estimated: bool,
}

impl Big {
    /// Its DB.
    pub fn db(&self) -> DbIndex {
        self.place.0.0
    }

    /// Its name, up to 1,024 bytes of it.
    pub fn name(&self) -> &[u8] {
        &self.place.0.1
    }
}

/// The keys that measure most.
#[derive(Debug)]
pub(super) struct Biggest {
    most: usize,
    keys: BinaryHeap<Reverse<Big>>,
}

impl Biggest {
    pub(super) fn new(most: usize) -> Biggest {
        Biggest {
            most,
            keys: BinaryHeap::new(),
        }
    }

    pub(super) fn offer(&mut self, measure: u64, found: &Found<'_>) {
        let name = found.key.get(..NAME_BYTES).unwrap_or(found.key);
        let is_full = self.keys.len() >= self.most;
        // Most keys end here: no name is copied.
        if is_full
            && let Some(Reverse(least)) = self.keys.peek()
            && (measure, Reverse((found.db, name)))
                <= (least.measure, Reverse((least.db(), least.name())))
        {
            return;
        }
        self.keys.push(Reverse(Big {
            measure,
            place: Reverse((found.db, name.into())),
            name_bytes: found.key.len(),
            bytes: found.bytes,
            elements: found.elements,
            estimated: found.estimated,
        }));
        if is_full {
            self.keys.pop();
        }
    }

    /// The keys, the biggest first.
    pub(super) fn sorted(&self) -> Vec<Big> {
        let mut keys: Vec<Big> = self.keys.iter().map(|Reverse(key)| key.clone()).collect();
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys
    }
}

/// A prefix and its sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    /// The DB.
    pub db: DbIndex,
    /// The prefix, up to [`PREFIX_BYTES`] of it.
    pub name: Box<[u8]>,
    /// The keys that begin with it.
    pub total: Total,
}

/// The prefixes of a depth, as they are reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranking {
    /// Those with most bytes.
    pub first: Vec<Prefix>,
    /// How many others there are. One that was added to the rest several times, because its keys do
    /// not follow one another, counts as often.
    pub others: u64,
    /// The keys of these.
    pub rest: Total,
}

/// Sums by prefix.
///
/// When there are twice [`PREFIXES`], those with fewest bytes are added to the rest. Where keys are
/// scanned in their order, all keys of a prefix follow one another: so a prefix is complete when it
/// is compared with others, and the biggest are exact. In a database with slots a prefix has keys in
/// every slot: one that was added to the rest begins anew.
#[derive(Debug)]
pub(super) struct Prefixes {
    most: usize,
    sums: HashMap<(DbIndex, Box<[u8]>), Total>,
    /// The prefix of the last key, which the next key most often has, too.
    last: (DbIndex, Vec<u8>),
    of_last: Total,
    merged: u64,
    rest: Total,
}

impl Prefixes {
    pub(super) fn new(most: usize) -> Prefixes {
        Prefixes {
            most,
            sums: HashMap::new(),
            last: (DbIndex(0), Vec::new()),
            of_last: Total::default(),
            merged: 0,
            rest: Total::default(),
        }
    }

    pub(super) fn add(&mut self, prefix: &[u8], found: &Found<'_>) {
        let prefix = prefix.get(..PREFIX_BYTES).unwrap_or(prefix);
        if (self.last.0, self.last.1.as_slice()) != (found.db, prefix) {
            self.put_last();
            self.last.0 = found.db;
            self.last.1.clear();
            self.last.1.extend_from_slice(prefix);
        }
        self.of_last.take(found);
    }

    /// Adds the sums of the last prefix to the table.
    fn put_last(&mut self) {
        let sums = std::mem::take(&mut self.of_last);
        if sums.keys == 0 {
            return;
        }
        let name = (self.last.0, self.last.1.as_slice().into());
        self.sums.entry(name).or_default().add(sums);
        if self.sums.len() >= 2 * self.most {
            self.merge();
        }
    }

    /// Adds those with fewest bytes to the rest.
    fn merge(&mut self) {
        let mut all: Vec<_> = self.sums.drain().collect();
        all.sort_unstable_by(by_bytes);
        for (_, sums) in all.drain(self.most.min(all.len())..) {
            self.merged += 1;
            self.rest.add(sums);
        }
        self.sums.extend(all);
    }

    /// The prefixes with most bytes, at most `most`, and what is left.
    pub(super) fn ranking(&mut self, most: usize) -> Ranking {
        self.put_last();
        let mut all: Vec<_> = self.sums.iter().collect();
        all.sort_unstable_by(|a, b| by_bytes(&(a.0, *a.1), &(b.0, *b.1)));
        let mut rest = self.rest;
        let others = all.split_off(most.min(all.len()));
        others.iter().for_each(|(_, sums)| rest.add(**sums));
        let prefix = |((db, name), total): (&(DbIndex, Box<[u8]>), &Total)| Prefix {
            db: *db,
            name: name.clone(),
            total: *total,
        };
        Ranking {
            first: all.into_iter().map(prefix).collect(),
            others: self.merged + others.len() as u64,
            rest,
        }
    }
}

/// The order of prefixes: most bytes first, of equal ones by name.
fn by_bytes<N: Ord>(a: &(N, Total), b: &(N, Total)) -> std::cmp::Ordering {
    (Reverse(a.1.bytes), &a.0).cmp(&(Reverse(b.1.bytes), &b.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn found<'a>(key: &'a [u8], bytes: u64) -> Found<'a> {
        Found {
            db: DbIndex(0),
            key,
            kind: ValueType::String,
            bytes,
            elements: 1,
            estimated: false,
        }
    }

    fn sum(ranking: &Ranking) -> Total {
        let mut all = ranking.rest;
        ranking.first.iter().for_each(|one| all.add(one.total));
        all
    }

    #[test]
    fn the_biggest_prefixes_are_exact_if_their_keys_follow_one_another() {
        let mut rng = fastrand::Rng::with_seed(33);
        let mut sums = BTreeMap::<String, u64>::new();
        let mut table = Prefixes::new(50);
        for n in 0..20_000 {
            let name = format!("p{n:05}:");
            for _ in 0..rng.u32(1..4) {
                let bytes = rng.u64(1..1_000_000);
                table.add(name.as_bytes(), &found(b"", bytes));
                *sums.entry(name.clone()).or_default() += bytes;
                assert!(table.sums.len() < 100, "{}", table.sums.len());
            }
        }
        let mut biggest: Vec<_> = sums.iter().collect();
        biggest.sort_by_key(|(name, bytes)| (Reverse(**bytes), *name));
        let ranking = table.ranking(20);
        let first: Vec<_> = ranking.first.iter().map(|one| &*one.name).collect();
        let wanted: Vec<_> = biggest.iter().map(|(name, _)| name.as_bytes()).collect();
        assert_eq!(first, wanted[..20]);
        for (one, (_, bytes)) in ranking.first.iter().zip(&biggest) {
            assert_eq!(one.total.bytes, **bytes);
        }
        assert_eq!(ranking.others, 20_000 - 20);
        assert_eq!(sum(&ranking).bytes, sums.values().sum::<u64>());
        assert_eq!(table.ranking(20), ranking, "a report changes nothing");
    }

    #[test]
    fn no_key_is_lost_whatever_the_order() {
        let mut rng = fastrand::Rng::with_seed(34);
        let mut table = Prefixes::new(10);
        for _ in 0..50_000 {
            let name = format!("{}:", rng.u32(..300));
            let heavy = name == "7:";
            table.add(name.as_bytes(), &found(b"", if heavy { 1000 } else { 1 }));
        }
        let ranking = table.ranking(3);
        assert_eq!(sum(&ranking).keys, 50_000);
        assert_eq!(&*ranking.first[0].name, b"7:");
        assert!(ranking.others >= 297);
    }

    #[test]
    fn long_prefixes_are_cut() {
        let mut table = Prefixes::new(10);
        let long = vec![b'x'; 5 * PREFIX_BYTES];
        table.add(&long, &found(b"", 1));
        table.add(&[&long, &b":"[..]].concat(), &found(b"", 1));
        let ranking = table.ranking(10);
        assert_eq!(ranking.first.len(), 1);
        assert_eq!(ranking.first[0].name.len(), PREFIX_BYTES);
        assert_eq!(ranking.first[0].total.keys, 2);
    }

    #[test]
    fn the_biggest_keys_are_kept_in_order() {
        let mut biggest = Biggest::new(3);
        let long = vec![b'z'; 2 * NAME_BYTES];
        for (key, bytes) in [
            (&b"d"[..], 5),
            (b"c", 5),
            (b"a", 1),
            (b"b", 5),
            (b"e", 5),
            (&long, 9),
        ] {
            biggest.offer(bytes, &found(key, bytes));
        }
        let sorted = biggest.sorted();
        let names: Vec<_> = sorted.iter().map(Big::name).collect();
        assert_eq!(names, [&long[..NAME_BYTES], b"b", b"c"]);
        assert_eq!(sorted[0].name_bytes, long.len());
    }
}
