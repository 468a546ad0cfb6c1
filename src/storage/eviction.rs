//! Eviction: keys are removed so that the data keep to `max-disk`. A thread draws keys
//! ([`Engine::sample_keys`]), chooses some of them by the policy, and removes these in a turn
//! ([`Txn::evict_slice`]).
//!
//! **Drawing.** Keys stand in the order of their names, and nothing says how often each is used. So a
//! draw takes neighbours: it picks a byte of the tables, finds by the sizes of ranges which rows are
//! there, and reads the next keys from a row near it, unless that is long: long rows have more bytes.
//! Neighbours share blocks on the disk, and their tombstones are compacted together. Keys with an
//! expiry are drawn from the TTL index: from any of its rows, or from its begin.

use crate::base::time::UnixMs;
use crate::encoding::keys::{self, METAS, RowKey};
use crate::encoding::meta::{LongString, MetaView};
use crate::encoding::{ValueType, tag};
use crate::storage::engine::Keyspace;
use crate::storage::txn::keyspace::{KeyMeta, Value};
use crate::storage::{DbIndex, Engine, Result, StorageError, Txn};
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long [`Among::FirstToExpire`] goes on from one draw to the next: then keys are looked for again
/// that were written since and expire earlier.
const GOES_ON: Duration = Duration::from_millis(50);
/// Most halvings of a range in one draw.
const HALVINGS: usize = 128;
/// A range of so many bytes of tables is not halved: about a block.
const FEW_BYTES: u64 = 16 << 10;
/// Rows of up to so many bytes are taken whenever they are drawn, longer ones the less often.
const SHORT_ROW: u64 = 128;
/// Most draws for one row.
const TRIES: usize = 16;
/// Bytes of a row besides key and value.
const ROW_BYTES: u64 = 16;

/// Which keys are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// Any.
    All,
    /// Those with an expiry.
    Expiring,
    /// Those that expire first.
    FirstToExpire,
}

/// A key that may be evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub key: Vec<u8>,
    /// The hash of its name, as of [`Engine::key_hash`].
    pub hash: u64,
    /// Its expiry, if it was drawn among those that have one: it is evicted only if that is the same
    /// still.
    pub expire_ms: Option<UnixMs>,
}

/// What a slice has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Keys.
    pub keys: u64,
    /// About so many bytes of the disk, before compression.
    pub bytes: u64,
}

/// Where the draws of [`Among::FirstToExpire`] go on.
#[derive(Debug, Default)]
pub struct Cursor {
    next: Option<Vec<u8>>,
    began: Option<Instant>,
}

impl Cursor {
    /// The row from which to go on; `None`: from the first.
    fn take(&mut self) -> Option<Vec<u8>> {
        let goes_on = self.began.is_some_and(|began| began.elapsed() < GOES_ON);
        let next = self.next.take().filter(|_| goes_on);
        if next.is_none() {
            self.began = Some(Instant::now());
        }
        next
    }
}

impl Engine {
    /// Draws up to `max` keys of a DB. They may be gone already, or have changed. Reads the disk.
    ///
    /// # Errors
    /// The storage fails.
    pub fn sample_keys(
        &self,
        cursor: &mut Cursor,
        db: DbIndex,
        among: Among,
        max: usize,
    ) -> Result<Vec<Candidate>> {
        let Some(keyspace) = self.keyspace(db) else {
            return Ok(Vec::new());
        };
        let range = match among {
            Among::All => RowKey::from_slice(&METAS.0)..RowKey::from_slice(&METAS.1),
            _ => {
                let from = UnixMs(keyspace.ttl_low_ms.low());
                keys::ttl_from(from)..RowKey::from_slice(&[tag::TTL + 1])
            }
        };
        let from = match among {
            Among::FirstToExpire => cursor.take().unwrap_or_else(|| range.start.to_vec()),
            _ => self.draw(&keyspace, &range)?,
        };
        let mut rows = self.read_keys(&keyspace, &from..&range.end, max)?;
        if among == Among::FirstToExpire {
            cursor.next = rows.last().map(|last| [&last[..], &[0]].concat());
        }
        if rows.len() < max {
            // The range ended before there were enough.
            rows.extend(self.read_keys(&keyspace, &range.start..&from, max - rows.len())?);
        }
        rows.iter()
            .map(|row| {
                let (expire_ms, key) = match among {
                    Among::All => (None, self.layout.key_at(keys::place_of_meta(row)?)?),
                    _ => {
                        let (expire_ms, key) = keys::split_ttl(row)?;
                        (Some(expire_ms), key)
                    }
                };
                Ok(Candidate {
                    key: key.to_vec(),
                    hash: self.key_hash(db, key),
                    expire_ms,
                })
            })
            .collect()
    }

    /// A row of a range, each with about the same chance. Rows that are in memtables alone are drawn
    /// less evenly.
    fn draw(&self, keyspace: &Keyspace, range: &Range<RowKey>) -> Result<Vec<u8>> {
        let mut row = range.start.to_vec();
        for _ in 0..TRIES {
            let (found, len) = self.draw_by_bytes(keyspace, range)?;
            row = found;
            // A long row is drawn more often.
            if fastrand::u64(..len.max(1)) < SHORT_ROW {
                break;
            }
        }
        Ok(row)
    }

    /// A row of a range and its length, with the chance of its share of the bytes.
    fn draw_by_bytes(&self, keyspace: &Keyspace, range: &Range<RowKey>) -> Result<(Vec<u8>, u64)> {
        let mut rows = self.rows_of(keyspace, &range.start, &range.end);
        rows.seek_to_last();
        let mut high = rows.key().map(<[u8]>::to_vec).unwrap_or_default();
        rows.seek_to_first();
        let mut low = rows.key().map(<[u8]>::to_vec).unwrap_or_default();
        let mut bytes = self.bytes_of_range(keyspace, &low, &high);
        let mut at = fastrand::u64(..bytes.max(1));
        for _ in 0..HALVINGS {
            let point = match bytes {
                0 => between(&low, &high),
                _ => middle(&low, &high),
            };
            if bytes > 0 && bytes <= FEW_BYTES || point <= low || point >= high {
                break;
            }
            let before = self.bytes_of_range(keyspace, &low, &point);
            if bytes == 0 || at >= before {
                at = at.saturating_sub(before);
                bytes = bytes.saturating_sub(before);
                low = point;
            } else {
                (bytes, high) = (before, point);
            }
            if bytes == 0 {
                break;
            }
        }
        // Any row of the block.
        let mut passed = fastrand::u64(..FEW_BYTES);
        rows.seek(&low);
        while let Some((key, value)) = rows.item() {
            let len = (key.len() + value.len()) as u64;
            if passed < len {
                return Ok((key.to_vec(), len));
            }
            passed -= len;
            rows.next();
        }
        rows.status()?;
        Ok((range.start.to_vec(), 0))
    }

    /// About how many bytes of tables a range of rows takes.
    fn bytes_of_range(&self, keyspace: &Keyspace, from: &[u8], to: &[u8]) -> u64 {
        let ranges = [rocksdb::Range::new(from, to)];
        let sizes = self.db.get_approximate_sizes_cf(&keyspace.cf, &ranges);
        sizes.iter().sum()
    }

    /// The keys of up to `max` rows.
    fn read_keys(
        &self,
        keyspace: &Keyspace,
        range: Range<&[u8]>,
        max: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        if range.start >= range.end {
            return Ok(found);
        }
        let mut rows = self.rows_of(keyspace, range.start, range.end);
        rows.seek_to_first();
        while found.len() < max
            && let Some(key) = rows.key()
        {
            found.push(key.to_vec());
            rows.next();
        }
        rows.status()?;
        Ok(found)
    }

    /// An iterator that leaves the block cache as it is: most of what it reads is not read again.
    fn rows_of(
        &self,
        keyspace: &Keyspace,
        from: &[u8],
        to: &[u8],
    ) -> rocksdb::DBRawIteratorWithThreadMode<'_, impl rocksdb::DBAccess> {
        let mut read = rocksdb::ReadOptions::default();
        read.set_total_order_seek(true);
        read.fill_cache(false);
        read.set_iterate_lower_bound(from);
        read.set_iterate_upper_bound(to);
        self.db.raw_iterator_cf_opt(&keyspace.cf, read)
    }

    /// Writes the tombstones of evicted keys out, so that compactions free their space.
    ///
    /// # Errors
    /// The storage fails.
    pub fn flush_evicted(&self, db: DbIndex) -> Result<()> {
        self.keyspace(db)
            .map_or(Ok(()), |keyspace| self.write_tombstones(&keyspace))
    }

    /// About how many bytes of tables the rows of a value take, besides that of its key.
    fn bytes_of_rows(&self, keyspace: &Keyspace, found: &MetaView<'_>) -> Result<u64> {
        let kind = found.meta.kind;
        if kind == ValueType::String {
            return Ok(LongString::decode(found.body)?.len);
        }
        let id = found.id()?;
        let bounds: Vec<_> = kind
            .element_tags()
            .iter()
            .map(|&tag| (keys::element_prefix(tag, id), keys::element_end(tag, id)))
            .collect();
        let ranges: Vec<_> = bounds
            .iter()
            .map(|(from, to)| rocksdb::Range::new(from, to))
            .collect();
        let sizes = self.db.get_approximate_sizes_cf(&keyspace.cf, &ranges);
        Ok(sizes.iter().sum())
    }
}

/// What two keys begin with alike, and the eight bytes of each after that as a number.
fn numbers<'k>(low: &'k [u8], high: &[u8]) -> (&'k [u8], u64, u64) {
    let same = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(key.iter().skip(same)) {
            *to = *from;
        }
        u64::from_be_bytes(bytes)
    };
    let start = low.get(..same).unwrap_or_default();
    (start, number(low), number(high))
}

/// The point in the middle of two keys.
fn middle(low: &[u8], high: &[u8]) -> Vec<u8> {
    let (start, low, high) = numbers(low, high);
    [start, &low.midpoint(high).to_be_bytes()].concat()
}

/// A random point between two keys.
fn between(low: &[u8], high: &[u8]) -> Vec<u8> {
    let (start, low, high) = numbers(low, high);
    [start, &fastrand::u64(low..=high.max(low)).to_be_bytes()].concat()
}

impl Txn {
    /// Removes keys of a DB for want of space. Those that other owners hold stay, and those whose
    /// expiry has changed since they were drawn by it.
    ///
    /// # Errors
    /// The storage fails. Nothing of the slice is done then, and no lock is held.
    pub fn evict_slice(
        &mut self,
        db: DbIndex,
        now_ms: UnixMs,
        chosen: &[Candidate],
    ) -> Result<Evicted> {
        self.with_reads_before(|txn| txn.evict_some(db, now_ms, chosen))
    }

    fn evict_some(&mut self, db: DbIndex, now_ms: UnixMs, chosen: &[Candidate]) -> Result<Evicted> {
        self.begin(now_ms)?;
        self.start_command();
        let mut evicted = Evicted::default();
        // I3, I4: a replica has the keys of its master.
        let keyspace = self.keyspace(db).cloned();
        let Some(keyspace) = keyspace.filter(|_| !self.engine().is_following()) else {
            self.commit()?;
            return Ok(evicted);
        };
        if !self.may_wait() {
            self.look_for(chosen.iter().map(|one| (db, one.key.as_slice())));
            if self.has_cold_reads() {
                return Err(StorageError::NotInMemory);
            }
        }
        for Candidate { key, expire_ms, .. } in chosen {
            if !self.try_lock(db, key) {
                continue;
            }
            let Some(row) = self.meta_row(db, key)? else {
                continue;
            };
            let found = MetaView::decode(&row)?;
            if expire_ms.is_some_and(|drawn_ms| drawn_ms != found.meta.expire_ms) {
                continue;
            }
            let mut bytes = ROW_BYTES + (key.len() + found.body.len()) as u64;
            if found.meta.rows {
                bytes += self.engine().bytes_of_rows(&keyspace, &found)?;
            }
            let old = KeyMeta {
                meta: found.meta,
                body: Value::from_slice(found.body),
            };
            drop(row);
            if old.meta.is_expired(now_ms) {
                self.reap(db, key, &old)?;
            } else {
                self.evict_key(db, key, &old)?;
                evicted.keys += 1;
            }
            evicted.bytes += bytes;
        }
        self.commit()?;
        Ok(evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::testing::Client;
    use crate::resp::Value as RespValue;
    use std::collections::BTreeSet;

    const DB: DbIndex = DbIndex(0);

    fn names(candidates: &[Candidate]) -> BTreeSet<Vec<u8>> {
        candidates.iter().map(|one| one.key.clone()).collect()
    }

    /// Each key can be drawn, from tables as from memtables, whatever the names have in common.
    #[test]
    fn every_key_is_drawn_sooner_or_later() {
        let mut client = Client::new();
        let engine = client.server().engine.clone();
        let mut all = BTreeSet::new();
        for n in 0..600 {
            let key = format!("user:{n}:profile");
            client.run(&format!("SET {key} v"));
            all.insert(key.into_bytes());
        }
        for flushes in [false, true] {
            if flushes {
                engine.flush_evicted(DB).unwrap();
            }
            let mut cursor = Cursor::default();
            let mut seen = BTreeSet::new();
            for _ in 0..10_000 {
                let drawn = engine.sample_keys(&mut cursor, DB, Among::All, 64).unwrap();
                assert_eq!(names(&drawn).len(), 64, "a key was drawn twice");
                seen.extend(names(&drawn));
                if seen == all {
                    break;
                }
            }
            assert_eq!(seen, all);
        }
    }

    #[test]
    fn keys_with_an_expiry_are_drawn_from_the_index_of_times() {
        let mut client = Client::new();
        let engine = client.server().engine.clone();
        let mut cursor = Cursor::default();
        let draw = |cursor: &mut Cursor, among| {
            let drawn = engine.sample_keys(cursor, DB, among, 5).unwrap();
            let keys = drawn
                .iter()
                .map(|one| String::from_utf8_lossy(&one.key).into_owned());
            keys.collect::<Vec<_>>()
        };
        client.run("SET stays v");
        assert!(draw(&mut cursor, Among::Expiring).is_empty());
        for n in 0..20 {
            client.run(&format!("SET k{n} v EX {}", 100_000 + n));
        }
        let in_order = |from: i32| {
            (from..from + 5)
                .map(|n| format!("k{n}"))
                .collect::<Vec<_>>()
        };
        for from in [0, 5, 10, 15, 0] {
            // However slow the test is.
            cursor.began = Some(Instant::now());
            assert_eq!(draw(&mut cursor, Among::FirstToExpire), in_order(from));
        }
        let mut seen = BTreeSet::new();
        for _ in 0..10_000 {
            seen.extend(draw(&mut cursor, Among::Expiring));
            if seen.len() == 20 {
                break;
            }
        }
        assert_eq!(seen.len(), 20);
        assert!(!seen.contains("stays"));
    }

    #[test]
    fn evicted_keys_are_gone_with_their_rows_and_indexes() {
        let mut client = Client::new();
        let engine = client.server().engine.clone();
        client.run("SET plain v");
        client.run("SET expiring v EX 100000");
        let fields: Vec<_> = (0..2000).map(|n| format!("f{n} v")).collect();
        client.run(&format!("HSET hash {}", fields.join(" ")));
        client.run(&format!("SET long {}", "x".repeat(100_000)));
        client.run("SET stays v");
        let mut txn = Txn::new(engine.clone());
        let candidate = |key: &str| Candidate {
            key: key.into(),
            hash: engine.key_hash(DB, key.as_bytes()),
            expire_ms: None,
        };
        let chosen = ["plain", "expiring", "hash", "long", "missing", "plain"].map(candidate);
        let now_ms = crate::sys::clock::unix_ms();
        let evicted = txn.evict_slice(DB, now_ms, &chosen).unwrap();
        assert_eq!(evicted.keys, 4);
        assert!((100_000..300_000).contains(&evicted.bytes), "{evicted:?}");
        let counts = engine.keyspace(DB).unwrap().counts();
        assert_eq!((counts.keys, counts.expires), (1, 0));
        assert_eq!(
            client.run("EXISTS plain expiring hash long stays"),
            RespValue::Int(1)
        );
    }

    /// Keys that lost their expiry between the draw and the eviction were evicted.
    #[test]
    fn a_key_that_was_drawn_by_its_expiry_stays_without_it() {
        let mut client = Client::new();
        let engine = client.server().engine.clone();
        let mut txn = Txn::new(engine.clone());
        for key in ["kept", "later", "gone"] {
            client.run(&format!("SET {key} v EX 100000"));
        }
        let mut cursor = Cursor::default();
        let drawn = engine.sample_keys(&mut cursor, DB, Among::FirstToExpire, 9);
        client.run("PERSIST kept");
        client.run("EXPIRE later 200000");
        let now_ms = crate::sys::clock::unix_ms();
        let evicted = txn.evict_slice(DB, now_ms, &drawn.unwrap()).unwrap();
        assert_eq!(evicted.keys, 1);
        assert_eq!(client.run("EXISTS kept later"), RespValue::Int(2));
    }

    /// A draw ended what the expire thread had begun, and keys that were written meanwhile were not
    /// found by it any more.
    #[test]
    fn a_draw_leaves_the_low_mark_of_expiry_alone() {
        let mut client = Client::new();
        let engine = client.server().engine.clone();
        client.run("SET first v PX 100000");
        let keyspace = engine.keyspace(DB).unwrap();
        let pass = keyspace.ttl_low_ms.begin();
        client.run("SET second v PX 90000");
        let mut cursor = Cursor::default();
        for among in [Among::Expiring, Among::FirstToExpire] {
            engine.sample_keys(&mut cursor, DB, among, 1).unwrap();
        }
        keyspace.ttl_low_ms.end(pass, u64::MAX - 1);
        let second_ms = client.run("PEXPIRETIME second");
        let low_ms = UnixMs(keyspace.ttl_low_ms.low());
        assert_eq!(second_ms, RespValue::Int(low_ms.as_i64()));
    }
}
