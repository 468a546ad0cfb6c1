//! Compares RocksDB with this memtable and RocksDB with its own.

#![allow(unsafe_code)]

use super::super::{DbIndex, Engine, StorageConfig, StorageError, Txn};
use super::ExpectedRows;
use super::MemtableRep::{self, BTree, SkipList};
use crate::base::time::UnixMs;
use crate::encoding::keys::ELEMENT_PREFIX_LEN;
use crate::encoding::{Meta, ValueType, tag};
use librocksdb_sys as ffi;
use rocksdb::{
    AsRawPtr, DB, DBRawIterator, Options, ReadOptions, SliceTransform, Snapshot, WriteBatch,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// Options with a memtable, and without a Bloom filter of RocksDB.
fn with(memtable: MemtableRep, mut options: Options) -> Options {
    options.create_if_missing(true);
    options.set_allow_concurrent_memtable_write(false);
    let option = memtable.option(0.0);
    options.get_options_from_string(option).unwrap()
}

fn open(dir: &Path, memtable: MemtableRep) -> DB {
    DB::open(&with(memtable, Options::default()), dir).unwrap()
}

/// A random key out of few, many of which are prefixes of others.
fn key(random: &mut fastrand::Rng) -> Vec<u8> {
    let group = [
        &b""[..],
        b"a",
        b"a\0",
        b"key:0000",
        b"key:00000000000000000000000000000000000000",
    ];
    let mut key = random.choice(group).unwrap().to_vec();
    key.extend(random.u16(..500).to_be_bytes());
    key.truncate(key.len() - usize::from(random.u8(..3)));
    key
}

fn iterate<'a>(db: &'a DB, snapshot: Option<&Snapshot>) -> DBRawIterator<'a> {
    let mut options = ReadOptions::default();
    if let Some(snapshot) = snapshot {
        options.set_snapshot(snapshot);
    }
    db.raw_iterator_opt(options)
}

/// Moves both iterators by the same random steps; each has to bring them to the same row.
fn walk<'a>(
    random: &mut fastrand::Rng,
    ours: &mut DBRawIterator<'a>,
    theirs: &mut DBRawIterator<'a>,
) {
    for _ in 0..100 {
        let target = key(random);
        let step = random.u8(..8);
        for iterator in [&mut *ours, &mut *theirs] {
            match step {
                0 => iterator.seek(&target),
                1 => iterator.seek_for_prev(&target),
                2 => iterator.seek_to_first(),
                3 => iterator.seek_to_last(),
                _ if !iterator.valid() => {}
                4 | 5 => iterator.next(),
                _ => iterator.prev(),
            }
            iterator.status().unwrap();
        }
        assert_eq!(ours.item(), theirs.item(), "step {step}, target {target:?}");
    }
}

#[test]
fn reads_as_rocksdb_does_with_its_own() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let ours = open(&dir.path().join("ours"), BTree);
    let theirs = open(&dir.path().join("theirs"), SkipList);
    let mut snapshots = Vec::new();
    for round in 0..300 {
        let mut batches = [WriteBatch::default(), WriteBatch::default()];
        for i in 0..random.usize(1..60) {
            let (key, end, what) = (key(&mut random), key(&mut random), random.u8(..50));
            for batch in &mut batches {
                match what {
                    0 => batch
                        .delete_range(key.clone().min(end.clone()), key.clone().max(end.clone())),
                    1..15 => batch.delete(&key),
                    _ => batch.put(&key, format!("{round}.{i}")),
                }
            }
        }
        let [for_ours, for_theirs] = batches;
        ours.write(for_ours).unwrap();
        theirs.write(for_theirs).unwrap();
        if round % 20 == 0 {
            snapshots.push((ours.snapshot(), theirs.snapshot()));
        }
        if round == 200 {
            ours.flush().unwrap();
        }
        let (mine, other) = (iterate(&ours, None), iterate(&theirs, None));
        let mut iterators = vec![(mine, other)];
        if let Some((mine, other)) = random.choice(&snapshots) {
            iterators.push((iterate(&ours, Some(mine)), iterate(&theirs, Some(other))));
        }
        for (mine, other) in &mut iterators {
            walk(&mut random, mine, other);
        }
        let keys: Vec<Vec<u8>> = (0..20).map(|_| key(&mut random)).collect();
        for key in &keys {
            assert_eq!(ours.get(key).unwrap(), theirs.get(key).unwrap(), "{key:?}");
        }
        let (mine, other) = (ours.multi_get(&keys), theirs.multi_get(&keys));
        assert!(
            mine.iter()
                .zip(&other)
                .all(|(a, b)| a.as_ref().unwrap() == b.as_ref().unwrap())
        );
    }
}

/// A database with one key.
fn with_a_key(config: StorageConfig) -> Arc<Engine> {
    let engine = Engine::open(config).unwrap();
    let txn = &mut Txn::new(engine.clone());
    txn.begin(UnixMs(1)).unwrap();
    let meta = Meta::new(ValueType::String);
    txn.put_key(DbIndex(0), b"key", None, meta, b"value")
        .unwrap();
    txn.commit().unwrap();
    engine
}

/// The options in force, from the newest OPTIONS file: those of the database, and those of the
/// column family of a DB.
fn options_in_force(dir: &Path) -> (String, String) {
    let files = std::fs::read_dir(dir).unwrap();
    let names = files.map(|file| file.unwrap().path());
    let newest = names
        .filter(|path| path.to_string_lossy().contains("OPTIONS-"))
        .max();
    let text = std::fs::read_to_string(newest.unwrap()).unwrap();
    let part = |head: &str| {
        let mut parts = text.split("\n[").filter(|part| part.starts_with(head));
        parts.next().unwrap().to_owned()
    };
    (part("DBOptions]"), part("CFOptions \"ks"))
}

#[test]
fn dbs_have_the_memtable_that_is_wanted() {
    for (memtable, name) in [(BTree, "kedis.BTree"), (SkipList, "SkipListFactory")] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().to_owned());
        config.memtable = memtable;
        let _engine = with_a_key(config);
        let (_, of_db) = options_in_force(dir.path());
        assert!(
            of_db.contains(&format!("memtable_factory={name}")),
            "{of_db}"
        );
        let has_filter = !of_db.contains("memtable_prefix_bloom_size_ratio=0.000000");
        assert_eq!(has_filter, memtable == SkipList, "{of_db}");
    }
}

/// An option that [`BTree`] excludes.
struct Excluded {
    name: &'static str,
    /// Its value in the OPTIONS file when it is not set.
    unset: &'static str,
    set: fn(&mut Options),
}

macro_rules! excluded {
    ($($name:ident, $setter:ident($value:expr), $unset:literal;)*) => {
        [$(Excluded {
            name: stringify!($name),
            unset: $unset,
            // SAFETY: the options live during the call.
            set: |options| unsafe { ffi::$setter(options.as_raw_ptr(), $value) },
        }),*]
    };
}

const EXCLUDED: [Excluded; 5] = excluded! {
    allow_concurrent_memtable_write, rocksdb_options_set_allow_concurrent_memtable_write(1), "false";
    inplace_update_support, rocksdb_options_set_inplace_update_support(1), "false";
    experimental_mempurge_threshold, rocksdb_options_set_experimental_mempurge_threshold(1.0), "0.000000";
    paranoid_memory_checks, rocksdb_options_set_paranoid_memory_checks(1), "false";
    memtable_verify_per_key_checksum_on_seek, rocksdb_options_set_memtable_verify_per_key_checksum_on_seek(1), "false";
};

#[test]
fn options_that_would_lose_rows_are_not_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let _engine = with_a_key(StorageConfig::for_tests(dir.path().to_owned()));
    let (of_all, of_db) = options_in_force(dir.path());
    for Excluded { name, unset, .. } in EXCLUDED {
        let lines = of_all.lines().chain(of_db.lines());
        let expected = format!("{name}={unset}");
        let found = lines.filter(|line| line.trim() == expected).count();
        assert_eq!(found, 1, "{expected}: {of_all} {of_db}");
    }
    // The memtable orders rows by their bytes, whatever the comparator.
    assert!(
        of_db.contains("comparator=leveldb.BytewiseComparator"),
        "{of_db}"
    );
}

/// With such an option a database that has DBs is not opened, and a new database gets no DBs.
#[test]
fn options_that_would_lose_rows_are_refused() {
    for Excluded { name, set, .. } in EXCLUDED {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().to_owned());
        drop(with_a_key(config.clone()));
        config.more_options = super::super::engine::options::MoreOptions(Some(set));
        let refusal = |opened: Result<_, StorageError>| match opened {
            Ok(()) => panic!("{name} is taken"),
            Err(error) => error.to_string(),
        };
        let text = refusal(Engine::open(config.clone()).map(drop));
        let expected = format!("option {name} must not be set with the memtable btree");
        assert!(text.contains(&expected), "{text}");
        let other = tempfile::tempdir().unwrap();
        config.dir = other.path().to_owned();
        let engine = Engine::open(config.clone()).unwrap();
        let text = refusal(engine.keyspace_or_create(DbIndex(0)).map(drop));
        assert!(text.contains(&expected), "{text}");
        // RocksDB's own memtable works with each of them.
        config.memtable = SkipList;
        config.dir = dir.path().to_owned();
        drop(Engine::open(config).unwrap());
    }
}

/// A random key of a writer in one of five maps; most keys beside it are of other writers.
fn key_of(writer: u8, random: &mut fastrand::Rng) -> Vec<u8> {
    let (map, member) = (random.u64(..5), random.u16(..3000));
    [
        &[tag::SET_MEMBER][..],
        &map.to_be_bytes(),
        &member.to_be_bytes(),
        &[writer],
    ]
    .concat()
}

/// Several threads write, and some of them announce their rows, in part wrongly. RocksDB has
/// one thread write the batches of others, and switches memtables meanwhile.
#[test]
fn rows_of_many_writers_are_where_they_belong() {
    const WRITERS: u8 = 6;
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.set_write_buffer_size(512 << 10);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(ELEMENT_PREFIX_LEN));
    let db = &DB::open(&with(BTree, options), dir.path()).unwrap();
    let write = &|writer: u8| {
        let mut random = fastrand::Rng::with_seed(writer.into());
        let mut mine = BTreeMap::new();
        for round in 0..500 {
            let (mut batch, mut expected) = (WriteBatch::default(), ExpectedRows::begin());
            let lies = random.u8(..4) == 0;
            for i in 0..random.usize(1..80) {
                let key = key_of(writer, &mut random);
                if !lies || random.bool() {
                    expected.push(random.u64(..2), &key);
                }
                match random.u8(..5) {
                    0 => {
                        batch.delete(&key);
                        mine.remove(&key);
                    }
                    _ => {
                        let value = format!("{round}.{i}").into_bytes();
                        batch.put(&key, &value);
                        mine.insert(key, value);
                    }
                }
            }
            match writer % 3 {
                0 => db.write(batch).unwrap(),
                _ => expected.during(|| db.write(batch)).unwrap(),
            }
            for key in (0..5).map(|_| key_of(writer, &mut random)) {
                assert_eq!(db.get(&key).unwrap().as_ref(), mine.get(&key));
            }
        }
        mine
    };
    let all: BTreeMap<Vec<u8>, Vec<u8>> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| scope.spawn(move || write(w)))
            .collect();
        let joined = writers.into_iter().map(|writer| writer.join().unwrap());
        joined.flatten().collect()
    });
    for map in 0..5u64 {
        let from = [&[tag::SET_MEMBER][..], &map.to_be_bytes()].concat();
        let to = [&[tag::SET_MEMBER][..], &(map + 1).to_be_bytes()].concat();
        let expected: Vec<_> = all.range(from.clone()..to.clone()).collect();
        for total_order in [false, true] {
            let mut read = ReadOptions::default();
            read.set_total_order_seek(total_order);
            read.set_iterate_upper_bound(to.clone());
            let mut rows = db.raw_iterator_opt(read);
            rows.seek(&from);
            for (key, value) in &expected {
                assert_eq!(rows.item(), Some((key.as_slice(), value.as_slice())));
                rows.next();
            }
            assert_eq!(rows.item(), None);
            rows.status().unwrap();
        }
    }
}
