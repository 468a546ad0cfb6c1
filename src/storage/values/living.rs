//! Which records of the value log live: those to which the row of their string still refers.

use crate::encoding::keys;
use crate::encoding::values::ValueRef;
use crate::storage::Result;
use crate::storage::engine::values::{Owner, Record};
use crate::storage::engine::{Engine, Keyspace};
use std::sync::Arc;

/// A record that lives, and its row.
pub(super) struct Living {
    pub(super) record: Record,
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) key: keys::RowKey,
}

impl Engine {
    /// Those of the records that live, in their order.
    pub(super) fn living(&self, records: &[Record]) -> Result<Vec<Living>> {
        let keyspaces = self.all_keyspaces();
        let mut living = Vec::new();
        for &record in records {
            let Owner::Base(id, collection) = record.owner else {
                continue;
            };
            let mut known = keyspaces.iter().map(|(_, keyspace)| keyspace);
            let Some(keyspace) = known.find(|keyspace| keyspace.id == id) else {
                continue;
            };
            let found = Living {
                record,
                keyspace: keyspace.clone(),
                key: keys::base(collection),
            };
            if self.is_at(&found)? {
                living.push(found);
            }
        }
        Ok(living)
    }

    /// Whether the row refers to the record.
    pub(super) fn is_at(&self, living: &Living) -> Result<bool> {
        let row = self.db.get_pinned_cf(&living.keyspace.cf, &living.key)?;
        match row {
            Some(row) => Ok(ValueRef::decode(&row)? == living.record.at),
            None => Ok(false),
        }
    }
}
