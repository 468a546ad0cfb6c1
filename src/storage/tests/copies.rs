//! Cached rows of a collection that dies and is reclaimed before the commit that removed it has
//! updated the caches.

use super::MEMTABLES;
use super::run::config;
use crate::base::time::UnixMs;
use crate::encoding::meta::{Counted, ListSpan};
use crate::encoding::{CollectionId, Meta, RowKey, ValueType, keys, tag};
use crate::storage::Direction;
use crate::storage::engine::at_fail_point;
use crate::storage::{DbIndex, Engine, Txn};
use std::sync::Arc;

const DB: DbIndex = DbIndex(0);
const KEY: &[u8] = b"key";
/// Number of elements of a collection; they are numbered from 0.
const ELEMENTS: u64 = 9;

/// The rows of an element.
fn rows_of(kind: ValueType, id: CollectionId, n: u64) -> Vec<RowKey> {
    let member = n.to_be_bytes();
    match kind {
        ValueType::List => vec![keys::indexed(tag::LIST_ITEM, id, n as i64)],
        ValueType::Zset => vec![
            keys::hashed(tag::ZSET_MEMBER, id, n, &member),
            keys::by_score(id, n as f64, &member),
        ],
        _ => vec![keys::hashed(kind.element_tags()[0], id, n, &member)],
    }
}

fn put_elements(txn: &mut Txn, kind: ValueType, id: CollectionId, numbers: &[u64]) {
    for row in numbers.iter().flat_map(|&n| rows_of(kind, id, n)) {
        txn.put_row(DB, &row, b"value").unwrap();
    }
}

fn put_key(txn: &mut Txn, kind: ValueType, id: CollectionId) {
    let (head, tail) = (0, ELEMENTS as i64);
    let body = match kind {
        ValueType::List => ListSpan { id, head, tail }.encode().to_vec(),
        _ => Counted {
            id,
            count: ELEMENTS,
        }
        .encode()
        .to_vec(),
    };
    let mut meta = Meta::new(kind);
    meta.rows = true;
    txn.put_key(DB, KEY, None, meta, &body).unwrap();
}

/// Reads all elements by range, in both directions, and by point.
fn read_all(txn: &mut Txn, kind: ValueType, id: CollectionId) {
    for &tag in kind.element_tags() {
        let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
        for direction in [Direction::Forward, Direction::Backward] {
            let mut rows = txn.scan(DB, &from, &to, direction).unwrap();
            while rows.next().unwrap().is_some() {}
        }
    }
    for row in (0..ELEMENTS).flat_map(|n| rows_of(kind, id, n)) {
        txn.row(DB, &row).unwrap();
    }
}

fn turn<R>(txn: &mut Txn, act: impl FnOnce(&mut Txn) -> R) -> R {
    txn.begin(UnixMs(1)).unwrap();
    let hash = txn.key_hash(DB, KEY);
    txn.lock([hash].into_iter()).unwrap();
    let done = act(txn);
    txn.commit().unwrap();
    done
}

/// What the expire thread does with dead collections.
fn reclaim(engine: &Arc<Engine>) {
    let mut txn = Txn::new(engine.clone());
    let mut pass = txn.begin_reclaim(DB).unwrap();
    while txn.reclaim_slice(&mut pass, 1 << 20).unwrap().more {}
    txn.end_reclaim(pass);
}

/// Two faults. The commit cached elements that it had written itself after the reclaim pass had
/// removed the rows: the cached range of a dead list was wrong from then on. And the pass read the
/// rows to remove from a cached range that was not updated yet: an element in the middle of it
/// stayed on disk for ever.
#[test]
fn what_dies_is_reclaimed_whole_and_leaves_no_copy() {
    for kind in [
        ValueType::List,
        ValueType::Zset,
        ValueType::Set,
        ValueType::Hash,
    ] {
        for (late, memtable) in [0, ELEMENTS / 2, ELEMENTS - 1]
            .into_iter()
            .zip(MEMTABLES.into_iter().cycle())
        {
            let dir = tempfile::tempdir().unwrap();
            let engine = Engine::open(config(dir.path(), memtable)).unwrap();
            let mut txn = Txn::new(engine.clone());
            let early: Vec<u64> = (0..ELEMENTS).filter(|n| *n != late).collect();
            let id = turn(&mut txn, |txn| {
                let id = txn.new_id();
                put_elements(txn, kind, id, &early);
                put_key(txn, kind, id);
                id
            });
            turn(&mut txn, |txn| read_all(txn, kind, id));
            let meanwhile = engine.clone();
            turn(&mut txn, |txn| {
                put_elements(txn, kind, id, &[late]);
                assert!(txn.delete_key(DB, KEY).unwrap());
                at_fail_point("before-refresh", move || reclaim(&meanwhile));
            });
            let report = engine.check().unwrap();
            assert_eq!(report.faults, Vec::<String>::new(), "{kind:?}, {late}");
            assert_eq!(report.rows, 0, "{kind:?}, {late}: rows stay for ever");
            let mut copies = Vec::new();
            engine
                .memory
                .rows
                .for_each(|_, key, _| copies.push(key.to_vec()));
            assert!(copies.is_empty(), "{kind:?}, {late}: {copies:?}");
        }
    }
}
