//! RocksDB with this memtable against RocksDB with its own.

use super::super::{DbIndex, Engine, StorageConfig, Txn};
use super::option;
use crate::encoding::{Kind, Meta};
use rocksdb::{DB, DBRawIterator, Options, ReadOptions, Snapshot, WriteBatch};
use std::path::Path;

fn open(dir: &Path, memtable: &str) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_allow_concurrent_memtable_write(false);
    let options = options.get_options_from_string(memtable).unwrap();
    DB::open(&options, dir).unwrap()
}

/// A key of few, each the beginning of others.
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

/// Steps of both iterators that have to end at the same place.
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
    let ours = open(&dir.path().join("ours"), &option());
    let theirs = open(&dir.path().join("theirs"), "memtable_factory=skip_list");
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

/// RocksDB writes down what its column families are opened with.
#[test]
fn dbs_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(StorageConfig::new(dir.path().to_owned())).unwrap();
    let txn = &mut Txn::new(engine.clone());
    txn.begin(1).unwrap();
    let meta = Meta::new(Kind::String);
    txn.put_key(DbIndex(0), b"key", None, meta, b"value")
        .unwrap();
    txn.commit().unwrap();
    let files = std::fs::read_dir(dir.path()).unwrap();
    let names = files.map(|file| file.unwrap().path());
    let newest = names
        .filter(|path| path.to_string_lossy().contains("OPTIONS-"))
        .max();
    let text = std::fs::read_to_string(newest.unwrap()).unwrap();
    let of_db = text
        .split("[CFOptions ")
        .find(|part| part.starts_with("\"ks"));
    assert!(of_db.unwrap().contains(&option()), "{text}");
}
