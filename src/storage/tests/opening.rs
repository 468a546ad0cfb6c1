//! Which directories are opened as a database, and the conversion of an older format.

use super::super::engine::Db;
use super::super::{DbIndex, Engine, StorageConfig, StorageError, Txn, is_copy};
use crate::base::time::UnixMs;
use crate::encoding::system::{self, Counts, KeyspaceId, State};
use crate::encoding::{FORMAT_VERSION, Meta, ValueType};
use rocksdb::Options;
use std::path::Path;
use std::sync::Arc;

/// More DBs than can have their counts in the state row.
const DBS: u16 = 20;

/// Older versions have no slots.
fn plain(dir: &Path) -> StorageConfig {
    StorageConfig {
        cluster_enabled: false,
        ..StorageConfig::for_tests(dir.to_owned())
    }
}

fn open(dir: &Path) -> Result<Arc<Engine>, StorageError> {
    let mut config = plain(dir);
    config.databases = DBS;
    Engine::open(config)
}

fn refusal(dir: &Path) -> String {
    match open(dir) {
        Ok(_) => panic!("{} was opened", dir.display()),
        Err(error) => error.to_string(),
    }
}

fn raw(dir: &Path) -> Db {
    let mut options = Options::default();
    options.create_if_missing(true);
    let names = Db::list_cf(&options, dir).unwrap_or_default();
    Db::open_cf(&options, dir, names).unwrap()
}

/// Writes keys to every DB; the n-th gets n + 1 of them, one with an expiry and a timed element.
fn fill(engine: &Arc<Engine>) {
    let mut txn = Txn::new(engine.clone());
    for db in 0..DBS {
        txn.begin(UnixMs(1)).unwrap();
        for key in 0..=db {
            let mut meta = Meta::new(ValueType::String);
            if key == 0 {
                meta.kind = ValueType::Hash;
                meta.expire_ms = UnixMs::MAX;
                meta.due_ms = UnixMs(7);
            }
            let key = key.to_be_bytes();
            txn.put_key(DbIndex(db), &key, None, meta, b"value")
                .unwrap();
        }
        txn.commit().unwrap();
    }
    engine.make_durable().unwrap();
}

fn assert_counts(engine: &Engine) {
    let all = engine.all_keyspaces();
    assert_eq!(all.len(), usize::from(DBS));
    for (db, keyspace) in all {
        let keys = u64::from(db.0) + 1;
        let counts = Counts {
            keys,
            expires: 1,
            timed: 1,
        };
        assert_eq!(keyspace.counts(), counts, "{db:?}");
    }
    let report = engine.check().unwrap();
    assert_eq!(report.faults, Vec::<String>::new());
    let snapshot = engine.snapshot().unwrap();
    assert_eq!(snapshot.keys, (1..=u64::from(DBS)).sum::<u64>());
    assert!(
        snapshot
            .dbs()
            .all(|(db, counts)| counts.keys == u64::from(db.0) + 1)
    );
}

/// Every commit once wrote the counts of all DBs: ten kilobytes with some hundred DBs.
#[test]
fn a_commit_writes_the_counts_that_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    fill(&engine);
    assert_counts(&engine);
    drop(engine);
    let rows = raw(dir.path());
    let state = rows.get(system::STATE).unwrap().unwrap();
    assert_eq!(State::decode(&state).unwrap().counts.len(), 16);
    drop(rows);
    assert_counts(&open(dir.path()).unwrap());
}

/// A full sync leaves the counts of the keyspaces that it replaces.
#[test]
fn counts_of_keyspaces_that_are_gone_count_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    fill(&engine);
    let row = system::counts_row(KeyspaceId(100)).unwrap();
    let counts = Counts {
        keys: 7,
        expires: 0,
        timed: 0,
    };
    let timed = system::timed_row(KeyspaceId(100));
    for (row, value) in [(row, counts.encode().as_slice()), (timed, &[0; 8])] {
        engine.db.put_cf(&engine.system_cf, row, value).unwrap();
    }
    assert_counts(&engine);
    drop(engine);
    assert_counts(&open(dir.path()).unwrap());
    for row in [row, timed] {
        assert_eq!(raw(dir.path()).get(row).unwrap(), None);
    }
}

#[test]
fn version_1_has_all_counts_in_the_state_row() {
    let dir = tempfile::tempdir().unwrap();
    fill(&open(dir.path()).unwrap());
    let rows = raw(dir.path());
    let mut state = State::decode(&rows.get(system::STATE).unwrap().unwrap()).unwrap();
    for id in (0..u32::from(DBS)).map(KeyspaceId) {
        if let Some(row) = system::counts_row(id) {
            let counts = rows.get(row).unwrap().unwrap();
            state.set_counts(id, Counts::decode(&counts).unwrap());
            rows.delete(row).unwrap();
        }
    }
    let mut row = Vec::new();
    state.encode(&mut row);
    rows.put(system::STATE, row).unwrap();
    rows.put(system::FORMAT, 1u32.to_be_bytes()).unwrap();
    drop(rows);
    for _ in 0..2 {
        assert_counts(&open(dir.path()).unwrap());
    }
    assert_is_converted(dir.path());
}

fn assert_is_converted(dir: &Path) {
    let version = raw(dir).get(system::FORMAT).unwrap().unwrap();
    assert_eq!(version, FORMAT_VERSION.to_be_bytes());
}

/// Version 3 has more types, version 4 counts the keys with timed elements.
#[test]
fn versions_2_and_3_have_no_counts_of_keys_with_timed_elements() {
    for version in [2u32, 3] {
        let dir = tempfile::tempdir().unwrap();
        fill(&open(dir.path()).unwrap());
        let rows = raw(dir.path());
        for id in (0..u32::from(DBS)).map(KeyspaceId) {
            assert_eq!(
                rows.get(system::timed_row(id)).unwrap().as_deref(),
                Some(&1u64.to_be_bytes()[..])
            );
            rows.delete(system::timed_row(id)).unwrap();
        }
        rows.put(system::FORMAT, version.to_be_bytes()).unwrap();
        drop(rows);
        for _ in 0..2 {
            assert_counts(&open(dir.path()).unwrap());
        }
        assert_is_converted(dir.path());
    }
}

#[test]
fn versions_that_are_not_known_are_refused() {
    for version in [0, FORMAT_VERSION + 1] {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        raw(dir.path())
            .put(system::FORMAT, version.to_be_bytes())
            .unwrap();
        let text = refusal(dir.path());
        assert!(
            text.contains(&format!("format version {version}"))
                && text.contains("start a newer build"),
            "{text}"
        );
    }
}

/// The column families of another program's database were once dropped silently.
#[test]
fn databases_of_other_programs_are_left_alone() {
    let families: [&[&str]; 3] = [&["metadata"], &["ks0"], &[]];
    for names in families {
        let dir = tempfile::tempdir().unwrap();
        let rows = raw(dir.path());
        rows.put("theirs", "a row").unwrap();
        for name in names {
            rows.create_cf(name, &Options::default()).unwrap();
        }
        drop(rows);
        let before = Db::list_cf(&Options::default(), dir.path()).unwrap();
        let text = refusal(dir.path());
        assert!(text.contains("of another program"), "{text}");
        let after = Db::list_cf(&Options::default(), dir.path()).unwrap();
        assert_eq!(before, after);
        assert_eq!(raw(dir.path()).get("theirs").unwrap().unwrap(), b"a row");
    }
}

/// An interrupted first start leaves an empty database.
#[test]
fn an_empty_database_becomes_one() {
    let dir = tempfile::tempdir().unwrap();
    drop(raw(dir.path()));
    fill(&open(dir.path()).unwrap());
    assert_counts(&open(dir.path()).unwrap());
}

/// The row of an empty DB beyond `databases` once stayed in the map, and then no snapshot could be
/// made.
#[test]
fn fewer_dbs_than_before() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    fill(&engine);
    drop(engine);
    let mut config = plain(dir.path());
    config.databases = DBS - 1;
    match Engine::open(config.clone()) {
        Err(StorageError::TooFewDbs {
            index, databases, ..
        }) => assert_eq!((index, databases), (DBS - 1, DBS - 1)),
        other => panic!("{:?}", other.map(|_| ())),
    }
    let engine = open(dir.path()).unwrap();
    let mut txn = Txn::new(engine.clone());
    txn.begin_exclusive(UnixMs(1)).unwrap();
    txn.clear_db(DbIndex(DBS - 1)).unwrap();
    txn.commit().unwrap();
    engine.make_durable().unwrap();
    drop((txn, engine));
    for _ in 0..2 {
        let engine = Engine::open(config.clone()).unwrap();
        assert_eq!(engine.all_keyspaces().len(), usize::from(DBS) - 1);
        assert_eq!(
            engine.snapshot().unwrap().keys,
            (1..u64::from(DBS)).sum::<u64>()
        );
        assert_eq!(engine.check().unwrap().faults, Vec::<String>::new());
    }
    let names = Db::list_cf(&Options::default(), dir.path()).unwrap();
    assert_eq!(names.len(), 2 + usize::from(DBS) - 1, "{names:?}");
}

#[test]
fn a_checkpoint_is_known_as_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir.path().join("db")).unwrap();
    fill(&engine);
    let copy = dir.path().join("copy");
    engine.checkpoint(&copy).unwrap();
    assert!(is_copy(&copy));
    let values = copy.join("values");
    std::fs::create_dir_all(&values).unwrap();
    std::fs::write(values.join("00000001.values"), "").unwrap();
    assert!(is_copy(&copy));
    std::fs::write(values.join("notes"), "precious").unwrap();
    assert!(!is_copy(&copy), "it has a foreign file");
    std::fs::remove_dir_all(values).unwrap();
    assert!(is_copy(&copy));
    std::fs::write(copy.join("notes"), "precious").unwrap();
    assert!(!is_copy(&copy), "it has a foreign file");
    assert!(!is_copy(dir.path()), "it has no database");
    let other = dir.path().join("other");
    let rows = raw(&other);
    rows.put("theirs", "a row").unwrap();
    drop(rows);
    assert!(!is_copy(&other), "it is another program's");
}
