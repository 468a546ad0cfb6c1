//! Applies the model's operations to a database, and reads databases back.

use super::model::{At, Content, DBS, Key, Model, Op};
use crate::base::time::UnixMs;
use crate::encoding::meta::{Counted, MetaView};
use crate::encoding::reader::Reader;
use crate::encoding::{CollectionId, Meta, ValueType, keys, tag};
use crate::storage::Direction;
use crate::storage::engine::cold_reads::MAX_ROUNDS;
use crate::storage::txn::ReadLimits;
use crate::storage::{
    DbIndex, Engine, KeyMeta, MemtableRep, Result, StorageConfig, StorageError, Txn, View,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub struct Runner {
    txn: Txn,
    other: Txn,
    pub engine: Arc<Engine>,
    elapsed_ms: u64,
    entries_before: u64,
    model_entries_before: u64,
    /// How many attempts of commands lacked rows.
    pub retries: u64,
}

pub fn config(dir: &Path, memtable: MemtableRep) -> StorageConfig {
    let mut config = StorageConfig::for_tests(dir.join("db"));
    config.memtable = memtable;
    config.databases = DBS;
    config.machine.memory_budget_bytes = 16 << 20;
    // Small, so that rows are flushed to table files.
    config.write_buffer_size_bytes = 64 << 10;
    // So small that collections are written ahead.
    config.ahead_bytes = 64;
    config
}

impl Runner {
    /// `model` must be equal to the contents of the database.
    pub fn open(dir: &Path, memtable: MemtableRep, model: &Model) -> Runner {
        let engine = Engine::open(config(dir, memtable)).unwrap();
        Runner {
            txn: Txn::new(engine.clone()),
            other: Txn::new(engine.clone()),
            elapsed_ms: model.elapsed_ms,
            entries_before: engine.binlog.range().next_entry,
            model_entries_before: model.entries,
            retries: 0,
            engine,
        }
    }

    fn now_ms(&self) -> UnixMs {
        super::model::START_MS + self.elapsed_ms
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Advance(ms) => self.elapsed_ms += ms,
            Op::Commit => self.commit(),
            Op::Expire(db) => {
                self.commit();
                let Some(mut pass) = self.other.begin_expire(DbIndex(*db), self.now_ms()) else {
                    return;
                };
                while self.other.expire_slice(&mut pass, 2).unwrap().more {}
                self.other.end_expire(pass);
                self.engine.make_durable().unwrap();
            }
            Op::Reclaim(db) => {
                self.commit();
                let Some(mut pass) = self.other.begin_reclaim(DbIndex(*db)) else {
                    return;
                };
                while self.other.reclaim_slice(&mut pass, 3).unwrap().more {}
                self.other.end_reclaim(pass);
                self.engine.make_durable().unwrap();
            }
            Op::Group(ops, rollback) => {
                self.txn.begin(self.now_ms()).unwrap();
                let savepoint = self.txn.savepoint();
                ops.iter().for_each(|op| self.command(op));
                if *rollback {
                    self.txn.rollback(&savepoint);
                }
            }
            Op::Clear(_) | Op::Swap(..) => {
                self.txn.begin_exclusive(self.now_ms()).unwrap();
                // Rolled back once, to test that, too.
                let savepoint = self.txn.savepoint();
                self.command(op);
                self.txn.rollback(&savepoint);
                self.command(op);
                self.commit();
            }
            command => {
                self.txn.begin(self.now_ms()).unwrap();
                self.command(command);
            }
        }
    }

    fn commit(&mut self) {
        self.txn.commit().unwrap();
        self.engine.make_durable().unwrap();
    }

    /// Runs a command as an IO thread does: without waiting for the disk, and again when the rows
    /// that it lacked were read. A command that lacks rows leaves nothing behind.
    fn command(&mut self, op: &Op) {
        for _ in 0..MAX_ROUNDS {
            let savepoint = self.txn.savepoint();
            self.txn.limit_reads(ReadLimits::InMemory);
            let done = run(&mut self.txn, op);
            self.txn.limit_reads(ReadLimits::None);
            match done {
                Err(StorageError::NotInMemory) => {
                    self.txn.rollback(&savepoint);
                    self.retries += 1;
                    let reads = self.txn.take_cold_reads();
                    assert!(!reads.is_empty(), "{op:?} does not say what it lacks");
                    self.engine.wait_for_reads(reads);
                }
                done => return done.unwrap(),
            }
        }
        run(&mut self.txn, op).unwrap();
    }

    /// Compares what the writing thread reads, its own writes included.
    pub(super) fn compare_pending(&mut self, model: &Model) {
        self.txn.begin(self.now_ms()).unwrap();
        compare(self.txn.reading(), model);
    }

    /// Compares what another thread reads, which is what is committed.
    pub(super) fn compare_committed_state(&mut self, model: &Model) {
        self.other.begin(self.now_ms()).unwrap();
        compare(self.other.reading(), model);
        self.other.commit().unwrap();
    }

    /// The same, and the number of new entries in the binlog.
    pub(super) fn compare_committed(&mut self, model: &Model) {
        self.compare_committed_state(model);
        let entries = self.engine.binlog.range().next_entry - self.entries_before;
        assert_eq!(
            entries,
            model.entries - self.model_entries_before,
            "binlog entries"
        );
    }

    pub fn check(&mut self) {
        let report = self.engine.check().unwrap();
        assert!(report.faults.is_empty(), "{:#?}", report.faults);
    }
}

fn run(txn: &mut Txn, op: &Op) -> Result<()> {
    txn.start_command();
    match op {
        Op::Put(at, key) => put(txn, *at, key)?,
        Op::SetField(at, field, value) => set_field(txn, *at, field, value)?,
        Op::DeleteField(at, field) => delete_field(txn, *at, field)?,
        Op::PushFront(at, value) => push_front(txn, *at, value)?,
        Op::CutFront(at, n) => cut_front(txn, *at, *n)?,
        Op::Delete(at) => {
            txn.delete_key(DbIndex(at.db), at.name)?;
        }
        Op::Rename(at, to) => rename(txn, *at, to)?,
        Op::SetExpiry(at, expire_ms) => {
            if let Some(old) = lookup(txn, *at)? {
                txn.set_expiry(DbIndex(at.db), at.name, &old, *expire_ms)?;
            }
        }
        Op::Clear(db) => {
            if txn.counts(DbIndex(*db)).keys > 0 {
                txn.clear_db(DbIndex(*db))?;
            }
        }
        Op::Swap(a, b) => txn.swap_dbs(DbIndex(*a), DbIndex(*b)),
        Op::Look(at) => {
            lookup(txn, *at)?;
        }
        _ => unreachable!("not a command"),
    }
    txn.finish_command(DbIndex(0), &[b"command"]);
    Ok(())
}

fn lookup(txn: &mut Txn, at: At) -> Result<Option<KeyMeta>> {
    let found = txn.lookup(DbIndex(at.db), at.name)?;
    let hash = txn.key_hash(DbIndex(at.db), at.name);
    txn.lock([hash].into_iter())?;
    Ok(found)
}

fn put(txn: &mut Txn, at: At, key: &Key) -> Result<()> {
    let db = DbIndex(at.db);
    let old = lookup(txn, at)?;
    let mut meta = Meta::new(ValueType::String);
    meta.expire_ms = key.expire_ms;
    let body = match &key.content {
        Content::Bytes(bytes) => bytes.clone(),
        Content::Fields(fields) => {
            meta.kind = ValueType::Hash;
            meta.rows = true;
            let id = txn.new_id();
            for (field, value) in fields {
                let row_key = field_row(txn, id, field);
                txn.put_row(db, &row_key, value)?;
            }
            let count = fields.len() as u64;
            Counted { id, count }.encode().to_vec()
        }
        Content::Items(first, items) => {
            meta.kind = ValueType::List;
            meta.rows = true;
            let id = txn.new_id();
            for (index, item) in (*first..).zip(items) {
                let row_key = keys::indexed(tag::LIST_ITEM, id, index);
                txn.put_row(db, &row_key, item)?;
            }
            list_body(id, *first, first + items.len() as i64)
        }
    };
    txn.replace_key(db, at.name, old.as_ref(), meta, &body)?;
    Ok(())
}

fn list_body(id: CollectionId, first: i64, end: i64) -> Vec<u8> {
    let parts = [id.0, first as u64, end as u64];
    parts.iter().flat_map(|part| part.to_be_bytes()).collect()
}

fn split_list_body(body: &[u8]) -> (CollectionId, i64, i64) {
    let mut r = Reader::new(body, "list");
    let id = CollectionId(r.u64().unwrap());
    (id, r.u64().unwrap() as i64, r.u64().unwrap() as i64)
}

fn field_row(view: &View, id: CollectionId, field: &[u8]) -> keys::RowKey {
    keys::hashed(tag::HASH_FIELD, id, view.engine().hash.hash(field), field)
}

fn set_field(txn: &mut Txn, at: At, field: &[u8], value: &[u8]) -> Result<()> {
    let db = DbIndex(at.db);
    let Some(old) = lookup(txn, at)?.filter(|k| k.meta.kind == ValueType::Hash) else {
        return Ok(());
    };
    let mut counted = old.counted().unwrap();
    let row_key = field_row(txn, counted.id, field);
    counted.count += u64::from(txn.row(db, &row_key)?.is_none());
    txn.put_row(db, &row_key, value)?;
    txn.put_key(db, at.name, Some(&old.meta), old.meta, &counted.encode())?;
    Ok(())
}

fn delete_field(txn: &mut Txn, at: At, field: &[u8]) -> Result<()> {
    let db = DbIndex(at.db);
    let Some(old) = lookup(txn, at)?.filter(|k| k.meta.kind == ValueType::Hash) else {
        return Ok(());
    };
    let mut counted = old.counted().unwrap();
    let row_key = field_row(txn, counted.id, field);
    if txn.row(db, &row_key)?.is_none() {
        return Ok(());
    }
    counted.count -= 1;
    if counted.count == 0 {
        txn.remove_key(db, at.name, &old)?;
        return Ok(());
    }
    txn.delete_row(db, &row_key)?;
    txn.put_key(db, at.name, Some(&old.meta), old.meta, &counted.encode())?;
    Ok(())
}

fn push_front(txn: &mut Txn, at: At, value: &[u8]) -> Result<()> {
    let db = DbIndex(at.db);
    let Some(old) = lookup(txn, at)?.filter(|k| k.meta.kind == ValueType::List) else {
        return Ok(());
    };
    let (id, first, end) = split_list_body(&old.body);
    let row_key = keys::indexed(tag::LIST_ITEM, id, first - 1);
    txn.put_row(db, &row_key, value)?;
    let body = list_body(id, first - 1, end);
    txn.put_key(db, at.name, Some(&old.meta), old.meta, &body)?;
    Ok(())
}

fn cut_front(txn: &mut Txn, at: At, n: usize) -> Result<()> {
    let db = DbIndex(at.db);
    let Some(old) = lookup(txn, at)?.filter(|k| k.meta.kind == ValueType::List) else {
        return Ok(());
    };
    let (id, first, end) = split_list_body(&old.body);
    let cut = (first + n as i64).min(end);
    if cut == end {
        txn.remove_key(db, at.name, &old)?;
        return Ok(());
    }
    let row = |index| keys::indexed(tag::LIST_ITEM, id, index);
    txn.delete_rows(db, &row(first), &row(cut))?;
    let body = list_body(id, cut, end);
    txn.put_key(db, at.name, Some(&old.meta), old.meta, &body)?;
    Ok(())
}

fn rename(txn: &mut Txn, at: At, to: &[u8]) -> Result<()> {
    let db = DbIndex(at.db);
    let Some(found) = lookup(txn, at)? else {
        return Ok(());
    };
    if at.name == to {
        return Ok(());
    }
    let old = txn.lookup(db, to)?;
    txn.unlink_key(db, at.name, &found)?;
    txn.replace_key(db, to, old.as_ref(), found.meta, &found.body)?;
    Ok(())
}

fn compare(view: &mut View, model: &Model) {
    for db in 0..DBS {
        let expected = &model.dbs[usize::from(db)];
        let found = read_db(view, DbIndex(db));
        assert_eq!(&found, expected, "DB {db}");
        let counts = view.counts(DbIndex(db));
        let expires = expected
            .values()
            .filter(|key| key.expire_ms.is_some())
            .count();
        assert_eq!(
            (counts.keys, counts.expires),
            (expected.len() as u64, expires as u64)
        );
    }
}

/// Everything in a DB, expired keys too.
pub(super) fn read_db(view: &mut View, db: DbIndex) -> BTreeMap<Vec<u8>, Key> {
    let metas = read_range(view, db, &[tag::META], &[tag::META + 1]);
    metas
        .into_iter()
        .map(|(row_key, row)| {
            let name = view.layout().user_key(&row_key).unwrap().to_vec();
            let point = view.meta_row(db, &name).unwrap().unwrap().to_vec();
            assert_eq!(point, row, "by point and by range");
            let key = read_key(view, db, MetaView::decode(&row).unwrap());
            (name, key)
        })
        .collect()
}

fn read_key(view: &mut View, db: DbIndex, row: MetaView<'_>) -> Key {
    let content = match row.meta.kind {
        ValueType::Hash => {
            let id = row.id().unwrap();
            let rows = read_elements(view, db, tag::HASH_FIELD, id);
            let fields = rows.into_iter().map(|(row_key, value)| {
                let (_, field) = keys::split_hashed(&row_key).unwrap();
                (field.to_vec(), value)
            });
            let fields: BTreeMap<_, _> = fields.collect();
            let counted = Counted::decode(row.body).unwrap();
            assert_eq!(fields.len() as u64, counted.count);
            Content::Fields(fields)
        }
        ValueType::List => {
            let (id, first, end) = split_list_body(row.body);
            let rows = read_elements(view, db, tag::LIST_ITEM, id);
            let indices = rows.iter().map(|(k, _)| keys::split_indexed(k).unwrap());
            assert!(indices.eq(first..end));
            Content::Items(first, rows.into_iter().map(|(_, item)| item).collect())
        }
        _ => Content::Bytes(row.body.to_vec()),
    };
    Key {
        expire_ms: row.meta.expire_ms,
        content,
    }
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn read_elements(view: &mut View, db: DbIndex, tag: u8, id: CollectionId) -> Rows {
    let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
    read_range(view, db, &from, &to)
}

/// Reads a range in both directions, which must agree.
fn read_range(view: &mut View, db: DbIndex, from: &[u8], to: &[u8]) -> Rows {
    let [forward, mut backward] = [Direction::Forward, Direction::Backward].map(|direction| {
        let mut rows = Vec::new();
        let mut scan = view.scan(db, from, to, direction).unwrap();
        while let Some((row_key, row)) = scan.next().unwrap() {
            rows.push((row_key.to_vec(), row.to_vec()));
        }
        rows
    });
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}
