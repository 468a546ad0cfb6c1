//! Moves the fingerprints of younger tables to older ones. A last table that becomes empty is
//! dropped.

use super::{Cuckoo, EMPTY, Place, Table};
use crate::storage::{DbIndex, Txn};
use crate::types::OpResult;

/// Bytes of slots that are read at once.
const SLICE_BYTES: u64 = 1 << 16;

impl Cuckoo {
    /// Moves what can be moved, table by table from the last one on; stops at the first table that
    /// does not become empty unless `all` are to be tried.
    pub fn compact(&mut self, txn: &mut Txn, db: DbIndex, all: bool) -> OpResult<()> {
        let tables: Vec<Table> = self.tables().collect();
        for (number, table) in tables.iter().enumerate().skip(1).rev() {
            let is_empty = self.move_all(txn, db, *table, &tables[..number])?;
            if is_empty && number + 1 == self.tables.len() {
                self.tables.pop();
                self.array.cut(table.start);
            }
            if !is_empty && !all {
                break;
            }
        }
        self.deletes = 0;
        Ok(())
    }

    /// Moves the fingerprints of a table to older ones; returns whether none is left.
    fn move_all(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        table: Table,
        older: &[Table],
    ) -> OpResult<bool> {
        let size = u64::from(self.bucket_size);
        let end = table.start + table.buckets * size;
        let (mut at, mut is_empty) = (table.start, true);
        while at < end {
            let next = (at + SLICE_BYTES).min(end);
            let slots = self.array.collect(&mut **txn, db, at..next)?;
            for (slot, fingerprint) in (at..).zip(slots) {
                if fingerprint == EMPTY {
                    continue;
                }
                let place = Place::at(fingerprint, (slot - table.start) / size);
                match self.free_slot(txn, db, older, place)? {
                    Some(free) => {
                        self.array.write(txn, db, free, &[fingerprint])?;
                        self.array.write(txn, db, slot, &[EMPTY])?;
                    }
                    None => is_empty = false,
                }
            }
            at = next;
        }
        Ok(is_empty)
    }

    /// The first empty slot for an item in these tables.
    fn free_slot(
        &self,
        txn: &Txn,
        db: DbIndex,
        tables: &[Table],
        place: Place,
    ) -> OpResult<Option<u64>> {
        for table in tables {
            let found = self.find(txn, db, *table, place, EMPTY)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}
