//! Several threads on the same keys.

use super::MEMTABLES;
use super::run::config;
use crate::base::time::UnixMs;
use crate::encoding::{Meta, ValueType};
use crate::storage::{DbIndex, Engine, KeyMeta, MemtableRep, StorageError, Txn, View};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const KEYS: usize = 24;
const THREADS: u64 = 4;
const TRANSFERS: usize = 3_000;
const START: i64 = 1_000;
/// So many keys are locked as a set by an owner that may hold them for long.
const VERY_MANY: usize = 2_000;

fn name(n: usize) -> Vec<u8> {
    format!("account:{n}").into_bytes()
}

fn amount(found: &KeyMeta) -> i64 {
    i64::from_be_bytes(found.body.as_slice().try_into().unwrap())
}

fn write(txn: &mut Txn, key: &[u8], old: Option<&Meta>, amount: i64) {
    let meta = Meta::new(ValueType::String);
    txn.put_key(DbIndex(0), key, old, meta, &amount.to_be_bytes())
        .unwrap();
}

/// Each command moves money between two keys; several commands share a turn. The sum is constant
/// whatever the interleaving, and no thread waits for ever. Reads from a snapshot see the sum at
/// every moment.
#[test]
fn transfers_between_locked_keys_keep_the_sum() {
    let seed = super::seed();
    let memtable = MEMTABLES[seed as usize % MEMTABLES.len()];
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(dir.path(), memtable)).unwrap();
    let mut txn = Txn::new(engine.clone());
    txn.begin(UnixMs(1)).unwrap();
    for n in 0..KEYS {
        write(&mut txn, &name(n), None, START);
    }
    txn.commit().unwrap();
    let sum = |view: &mut View| {
        let found = (0..KEYS).map(|n| view.lookup(DbIndex(0), &name(n)));
        found.map(|found| amount(&found.unwrap().unwrap())).sum()
    };
    std::thread::scope(|scope| {
        let transfer = |thread| {
            let engine = engine.clone();
            scope.spawn(move || transfer(engine, seed ^ thread))
        };
        let mut threads: Vec<_> = (0..THREADS).map(transfer).collect();
        let engine = engine.clone();
        threads.push(scope.spawn(move || rotate(engine)));
        let mut sums = 0;
        while sums < KEYS || threads.iter().any(|thread| !thread.is_finished()) {
            txn.begin(UnixMs(1)).unwrap();
            let all: i64 = txn.read_apart(sum);
            assert_eq!(all, START * KEYS as i64, "after {sums}");
            txn.commit().unwrap();
            sums += 1;
        }
    });
    txn.begin(UnixMs(1)).unwrap();
    let all: i64 = sum(&mut txn);
    assert_eq!(all, START * KEYS as i64);
    assert_eq!(txn.counts(DbIndex(0)).keys, KEYS as u64);
    txn.commit().unwrap();
    let report = engine.check().unwrap();
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
}

#[test]
fn a_snapshot_shows_one_moment_also_of_cached_rows() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(dir.path(), MemtableRep::BTree)).unwrap();
    let [mut reader, mut writer] = [(); 2].map(|()| Txn::new(engine.clone()));
    let mut set = |n: usize, to: i64| {
        writer.begin(UnixMs(1)).unwrap();
        let hash = writer.key_hash(DbIndex(0), &name(n));
        writer.lock([hash].into_iter()).unwrap();
        let old = writer.lookup(DbIndex(0), &name(n)).unwrap();
        let old = old.map(|found| found.meta);
        write(&mut writer, &name(n), old.as_ref(), to);
        writer.commit().unwrap();
    };
    (0..KEYS).for_each(|n| set(n, 1));
    reader.begin(UnixMs(1)).unwrap();
    reader.read_apart(|view| {
        set(1, 2);
        set(KEYS, 2);
        let mut get = |n| view.lookup(DbIndex(0), &name(n)).unwrap();
        for n in 0..KEYS {
            assert_eq!(get(n).map(|found| amount(&found)), Some(1), "{n}");
        }
        assert!(get(KEYS).is_none());
    });
    let mut get = |n| reader.lookup(DbIndex(0), &name(n)).unwrap();
    for (n, now) in [(0, 1), (1, 2), (KEYS, 2)] {
        assert_eq!(get(n).map(|found| amount(&found)), Some(now), "{n}");
    }
    reader.commit().unwrap();
}

/// Readers that had to wait for a writer share the key, too.
#[test]
fn readers_share_a_key_that_they_waited_for() {
    const READERS: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(dir.path(), MemtableRep::BTree)).unwrap();
    let mut writer = Txn::new(engine.clone());
    writer.begin(UnixMs(1)).unwrap();
    // Three hashes, two of which share a stripe.
    let hash = writer.key_hash(DbIndex(0), b"key");
    let hashes = [hash, hash ^ 1 << 40, hash ^ (1 << 40 | 1)];
    writer.lock([hash].into_iter()).unwrap();
    write(&mut writer, b"key", None, START);
    let mark = writer.lock_to_read(hashes.into_iter()).unwrap();
    writer.unlock_since(mark);
    let reading = AtomicUsize::new(0);
    let (reading, engine) = (&reading, &engine);
    std::thread::scope(|scope| {
        for n in 0..READERS {
            scope.spawn(move || {
                let mut txn = Txn::new(engine.clone());
                txn.begin(UnixMs(1)).unwrap();
                // What is pending is committed before a thread waits.
                txn.lock([txn.key_hash(DbIndex(0), &name(n))].into_iter())
                    .unwrap();
                write(&mut txn, &name(n), None, START);
                let mark = txn.lock_to_read(hashes.into_iter()).unwrap();
                let found = txn.lookup(DbIndex(0), b"key").unwrap().unwrap();
                assert_eq!(amount(&found), START);
                reading.fetch_add(1, Ordering::Relaxed);
                // No reader releases the key before all have it.
                while reading.load(Ordering::Relaxed) < READERS {
                    std::thread::yield_now();
                }
                txn.unlock_since(mark);
                txn.commit().unwrap();
            });
        }
        while writer.counts(DbIndex(0)).keys < 1 + READERS as u64 {
            std::thread::yield_now();
        }
        assert_eq!(reading.load(Ordering::Relaxed), 0);
        writer.commit().unwrap();
    });
    writer.begin(UnixMs(1)).unwrap();
    assert_eq!(writer.lock(hashes.into_iter()).unwrap(), 0);
    writer.commit().unwrap();
    let report = engine.check().unwrap();
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
}

fn transfer(engine: Arc<Engine>, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut txn = Txn::new(engine.clone());
    for _ in 0..TRANSFERS {
        txn.begin(UnixMs(1)).unwrap();
        let (from, to) = (name(rng.usize(..KEYS)), name(rng.usize(..KEYS)));
        if from != to {
            let locked = [&from, &to].map(|key| txn.key_hash(DbIndex(0), key));
            txn.lock(locked.into_iter()).unwrap();
            let savepoint = txn.savepoint();
            txn.start_command();
            for (key, change) in [(&from, -1), (&to, 1)] {
                let old = txn.lookup(DbIndex(0), key).unwrap().unwrap();
                write(&mut txn, key, Some(&old.meta), amount(&old) + change);
            }
            txn.finish_command(DbIndex(0), &[b"transfer"]);
            if rng.u8(..) < 30 {
                txn.rollback(&savepoint);
            }
        }
        if rng.u8(..) < 40 {
            txn.commit().unwrap();
            engine.make_durable().unwrap();
        }
    }
    txn.commit().unwrap();
    engine.make_durable().unwrap();
}

/// Moves the amounts of all keys on by one key, again and again, under the lock of very many keys,
/// as a worker locks them.
fn rotate(engine: Arc<Engine>) {
    let mut txn = Txn::new(engine.clone());
    txn.for_long();
    txn.be_impatient();
    let all = (0..VERY_MANY).map(|n| txn.key_hash(DbIndex(0), &name(n)));
    let all: Vec<u64> = all.collect();
    let mut done = 0;
    while done < TRANSFERS / 50 {
        txn.begin(UnixMs(1)).unwrap();
        match txn.lock(all.iter().copied()) {
            Ok(_) => {}
            Err(StorageError::Held(_)) => {
                txn.commit().unwrap();
                std::thread::yield_now();
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        txn.start_command();
        let found = (0..KEYS).map(|n| txn.lookup(DbIndex(0), &name(n)).unwrap().unwrap());
        let found: Vec<KeyMeta> = found.collect();
        let sum: i64 = found.iter().map(amount).sum();
        assert_eq!(sum, START * KEYS as i64);
        for (n, from) in found.iter().enumerate() {
            let to = (n + 1) % KEYS;
            write(&mut txn, &name(to), Some(&found[to].meta), amount(from));
        }
        txn.finish_command(DbIndex(0), &[b"rotate"]);
        txn.commit().unwrap();
        done += 1;
    }
}

/// Keys that are locked as a set leave their stripes to other keys, and are locked nevertheless:
/// for writers, readers, and those that do not wait.
#[test]
fn a_set_of_very_many_keys_locks_these_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(dir.path(), MemtableRep::BTree)).unwrap();
    let [mut worker, mut other] = [(); 2].map(|()| Txn::new(engine.clone()));
    let owner = worker.for_long();
    worker.be_impatient();
    other.be_impatient();
    let db = DbIndex(0);
    let hash = |n| engine.key_hash(db, &name(n));
    let all: Vec<u64> = (0..VERY_MANY).map(hash).collect();
    for (begun, txn) in [("worker", &mut worker), ("other", &mut other)] {
        txn.begin(UnixMs(1)).expect(begun);
    }
    assert_eq!(worker.lock(all.iter().copied()).unwrap(), 0);
    // Keys of the same stripes: these do not stand in the lowest bits of a hash.
    let beside = |n| hash(n) ^ 1;
    for n in 0..VERY_MANY {
        let mark = other.lock([beside(n)].into_iter()).unwrap();
        let held = other.lock([hash(n)].into_iter());
        assert!(matches!(held, Err(StorageError::Held(by)) if by == owner));
        other.unlock_since(mark);
        let held = other.lock_to_read([beside(n), hash(n)].into_iter());
        assert!(matches!(held, Err(StorageError::Held(by)) if by == owner));
        assert!(!other.try_lock(db, &name(n)));
        assert!(worker.try_lock(db, &name(n)));
    }
    // Another lock of the worker does not release the set.
    let mark = worker.lock([hash(VERY_MANY)].into_iter()).unwrap();
    worker.unlock_since(mark);
    assert!(!other.try_lock(db, &name(0)));
    worker.commit().unwrap();
    assert!(other.try_lock(db, &name(0)));
    other.commit().unwrap();
    // An owner that holds nothing for long takes their stripes.
    other.begin(UnixMs(1)).unwrap();
    other.lock(all.iter().copied()).unwrap();
    worker.begin(UnixMs(1)).unwrap();
    assert!(!worker.try_lock(db, &name(1)));
    other.commit().unwrap();
    worker.commit().unwrap();
    // The thread that applies what a master sends locks a set as well, also behind other rows.
    let mut link = Txn::new(engine.clone());
    let begun = link.begin_following(UnixMs(1), |engine| Some(engine.begin_following()));
    link.receive_stream(begun.unwrap().unwrap(), None);
    link.begin(UnixMs(1)).unwrap();
    link.lock([hash(VERY_MANY)].into_iter()).unwrap();
    assert_eq!(link.lock(all.iter().copied()).unwrap(), 0);
    other.begin(UnixMs(1)).unwrap();
    for n in 0..VERY_MANY {
        let mark = other.lock_to_read([beside(n)].into_iter()).unwrap();
        let held = other.lock_to_read([hash(n)].into_iter());
        assert!(matches!(held, Err(StorageError::Held(_))), "{n}");
        other.unlock_since(mark);
    }
    assert!(other.lock([hash(VERY_MANY)].into_iter()).is_ok());
    link.commit().unwrap();
    assert!(other.lock([hash(0)].into_iter()).is_ok());
    other.commit().unwrap();
}

/// The first writer of a DB creates its keyspace; a turn that had begun before once did not see
/// what that writer committed, even under the key's lock.
#[test]
fn a_lock_shows_what_its_last_holder_wrote_to_a_new_db() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(dir.path(), MemtableRep::BTree)).unwrap();
    let [mut early, mut first] = [(); 2].map(|()| Txn::new(engine.clone()));
    let key = name(0);
    for db in [DbIndex(0), DbIndex(1)] {
        let hash = engine.key_hash(db, &key);
        early.begin(UnixMs(1)).unwrap();
        first.begin(UnixMs(1)).unwrap();
        first.lock([hash].into_iter()).unwrap();
        let meta = Meta::new(ValueType::String);
        first.put_key(db, &key, None, meta, b"12345678").unwrap();
        first.commit().unwrap();
        early.lock([hash].into_iter()).unwrap();
        assert!(early.lookup(db, &key).unwrap().is_some());
        early.commit().unwrap();
    }
}
