//! All rows as they are at one binlog position, for a replica that needs a full sync. Writers
//! continue meanwhile.
//!
//! Rows are sent as they stand on disk, and with them the bytes that they refer to, in chunks of a
//! bounded size: so a collection may be larger
//! than memory, and replication needs no code for each type. The replica must read the same version
//! of rows; it adopts the key of the hash that orders members (see
//! [`crate::storage::full_sync::staging`]).
//!
//! ```text
//! chunk  key length (4) ‖ key ‖ value length (4) ‖ value ‖ next row …
//! ```

use crate::encoding::binlog::Position;
use crate::encoding::keys::Layout;
use crate::encoding::reader::Reader;
use crate::encoding::system::{self, Counts, State};
use crate::encoding::values::ValueRef;
use crate::encoding::{CollectionId, Corrupt, keys};
use crate::storage::engine::{Db, Engine, KeepFiles, Keyspace, read_counts};
use crate::storage::{DbIndex, Result, StorageError};
use rocksdb::{ReadOptions, SnapshotWithThreadMode};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A chunk is full when it has so many bytes; one row may be longer.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes that an iterator reads ahead.
const READAHEAD_BYTES: usize = 2 << 20;
/// A scan that has read so many bytes reads ahead from then on, and how much at a time.
const LONG_SCAN_BYTES: usize = 64 << 10;
const LONG_SCAN_READAHEAD_BYTES: usize = 256 << 10;

/// The metadata of a data set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DataSet {
    /// The history that it belongs to.
    pub history_id: String,
    /// Its position in that history: that of the next row of the binlog.
    pub position: Position,
    /// The number of the next entry of the binlog.
    pub entry: u64,
    /// All collections have lower ids.
    pub next_id: u64,
    /// Key of the hash that orders members.
    pub hash_key: [u8; 16],
}

/// All rows as they are at one position of the binlog.
pub struct Snapshot<'e> {
    engine: &'e Engine,
    rows: SnapshotWithThreadMode<'e, Db>,
    // Dropped after the rows.
    _files: KeepFiles<'e>,
    /// Its metadata.
    pub data_set: DataSet,
    dbs: Vec<(DbIndex, Arc<Keyspace>)>,
    counts: BTreeMap<u32, Counts>,
    /// The number of keys in all DBs.
    pub keys: u64,
    /// Libraries of functions: names and texts.
    pub libraries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Snapshot<'_> {
    /// What stands in the keys of its meta rows.
    pub fn layout(&self) -> Layout {
        self.engine.layout
    }
}

impl Engine {
    /// A snapshot of the current rows.
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        let files = KeepFiles::for_snapshot(self);
        let rows = self.db.snapshot();
        let own = |key: &[u8]| rows.get_cf(&self.system_cf, key);
        let state = match own(system::STATE)? {
            Some(row) => State::decode(&row)?,
            // Nothing was ever committed.
            None => self.commit.lock().state.clone(),
        };
        let id = own(system::REPLICATION_ID)?.ok_or(Corrupt("replication id"))?;
        let hash_key = own(system::HASH_KEY)?.ok_or(Corrupt("hash key"))?;
        let data_set = DataSet {
            history_id: String::from_utf8_lossy(&id).into_owned(),
            position: state.binlog_position,
            entry: state.binlog_entry,
            next_id: state.next_id,
            hash_key: hash_key.try_into().map_err(|_| Corrupt("hash key"))?,
        };
        let known = self.all_keyspaces();
        let mut dbs = Vec::new();
        let mut libraries = Vec::new();
        let mut map = rows.raw_iterator_cf(&self.system_cf);
        map.seek([system::LIBRARY_TAG]);
        while let Some((key, value)) = map.item()
            && let Some(name) = key.strip_prefix(&[system::LIBRARY_TAG])
        {
            libraries.push((name.to_vec(), value.to_vec()));
            map.next();
        }
        map.status()?;
        map.seek([system::DB_TAG]);
        while let Some((key, value)) = map.item()
            && key.first() == Some(&system::DB_TAG)
        {
            let db = DbIndex(system::split_db_row(key)?);
            let id = Reader::new(value, "DB map").u32()?;
            let keyspace = known.iter().find(|(_, keyspace)| keyspace.id.0 == id);
            match keyspace {
                Some((_, keyspace)) => dbs.push((db, keyspace.clone())),
                None => return Err(StorageError::Detached),
            }
            map.next();
        }
        map.status()?;
        drop(map);
        let counts = read_counts(&state, rows.raw_iterator_cf(&self.system_cf))?;
        // Only counts of DBs: counts of dropped keyspaces may still stand there.
        let of_dbs = dbs.iter().filter_map(|(_, ks)| counts.get(&ks.id.0));
        let keys = of_dbs.map(|counts| counts.keys).sum();
        Ok(Snapshot {
            engine: self,
            _files: files,
            rows,
            data_set,
            dbs,
            counts,
            keys,
            libraries,
        })
    }
}

impl Snapshot<'_> {
    /// The DBs that have a keyspace, with their counts.
    pub fn dbs(&self) -> impl Iterator<Item = (DbIndex, Counts)> {
        self.dbs.iter().map(|(db, keyspace)| {
            let counts = self.counts.get(&keyspace.id.0);
            (*db, counts.copied().unwrap_or_default())
        })
    }

    /// Calls `each` with the rows of a DB in `[from, to)`, in order, until it fails or breaks.
    /// Returns whether it broke.
    pub fn scan<E: From<StorageError>>(
        &self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> std::result::Result<ControlFlow<()>, E>,
    ) -> std::result::Result<ControlFlow<()>, E> {
        let Some((_, keyspace)) = self.dbs.iter().find(|(known, _)| *known == db) else {
            return Ok(ControlFlow::Continue(()));
        };
        let open = |from: &[u8], readahead: usize| {
            let mut read = ReadOptions::default();
            read.set_total_order_seek(true);
            read.fill_cache(false);
            read.set_readahead_size(readahead);
            read.set_iterate_upper_bound(to);
            let mut rows = self.rows.raw_iterator_cf_opt(&keyspace.cf, read);
            rows.seek(from);
            rows
        };
        // Most collections are short: reading ahead from the start would read what others need.
        let (mut rows, mut bytes) = (open(from, 0), 0);
        while let Some((key, value)) = rows.item() {
            if each(key, value)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let was_short = bytes < LONG_SCAN_BYTES;
            bytes += key.len() + value.len();
            if was_short && bytes >= LONG_SCAN_BYTES {
                let key = key.to_vec();
                rows = open(&key, LONG_SCAN_READAHEAD_BYTES);
            }
            rows.next();
        }
        rows.status().map_err(StorageError::from)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Appends the bytes that a row refers to.
    fn read_value(&self, at: &ValueRef, out: &mut Vec<u8>) -> Result<()> {
        self.engine.values.read(at, 0..at.len, out, true)
    }

    /// Appends a range of the bytes that a long string's base refers to, clipped to them, to `out`.
    /// Returns the number of bytes of the base.
    ///
    /// # Errors
    /// The string has no base, or its bytes cannot be read.
    pub fn read_base(
        &self,
        db: DbIndex,
        id: CollectionId,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        let known = self.dbs.iter().find(|(known, _)| *known == db);
        let (_, keyspace) = known.ok_or(Corrupt("base of a string"))?;
        let row = self.rows.get_cf(&keyspace.cf, keys::base(id))?;
        let at = ValueRef::decode(&row.ok_or(Corrupt("base of a string"))?)?;
        // While the snapshot lives, no segment is removed.
        self.engine.values.read(&at, range, out, true)?;
        Ok(at.len)
    }

    /// Calls `each` with all rows, chunk by chunk, until it fails. The row of a base has the bytes
    /// that it refers to.
    pub fn chunks<E: From<StorageError>>(
        &self,
        mut each: impl FnMut(DbIndex, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + 4096);
        let mut whole = Vec::new();
        for (db, keyspace) in &self.dbs {
            let mut read = ReadOptions::default();
            read.set_total_order_seek(true);
            read.fill_cache(false);
            read.set_readahead_size(READAHEAD_BYTES);
            let mut rows = self.rows.raw_iterator_cf_opt(&keyspace.cf, read);
            rows.seek_to_first();
            while let Some((key, mut value)) = rows.item() {
                if keys::split_base(key).is_some() {
                    whole.clear();
                    whole.shrink_to(2 * CHUNK_BYTES);
                    self.read_value(
                        &ValueRef::decode(value).map_err(StorageError::from)?,
                        &mut whole,
                    )?;
                    value = &whole;
                }
                for part in [key, value] {
                    let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
                    chunk.extend_from_slice(&len.to_be_bytes());
                    chunk.extend_from_slice(part);
                }
                if chunk.len() >= CHUNK_BYTES {
                    each(*db, &chunk)?;
                    chunk.clear();
                    chunk.shrink_to(2 * CHUNK_BYTES);
                }
                rows.next();
            }
            rows.status().map_err(StorageError::from)?;
            if !chunk.is_empty() {
                each(*db, &chunk)?;
                chunk.clear();
            }
        }
        Ok(())
    }
}

/// The rows of a chunk.
pub(in crate::storage) struct ChunkRows<'a>(Reader<'a>);

impl<'a> ChunkRows<'a> {
    pub(in crate::storage) fn new(chunk: &'a [u8]) -> Self {
        ChunkRows(Reader::new(chunk, "snapshot"))
    }

    fn part(&mut self) -> std::result::Result<&'a [u8], Corrupt> {
        let len = self.0.u32()?;
        self.0.take(len as usize)
    }
}

impl<'a> Iterator for ChunkRows<'a> {
    type Item = std::result::Result<(&'a [u8], &'a [u8]), Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let key = self.part();
        Some(key.and_then(|key| Ok((key, self.part()?))))
    }
}
