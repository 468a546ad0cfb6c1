//! What the process takes, whatever it holds.

use crate::support::{Conn, Server, Value, wait_within};
use std::time::Duration;

/// Values of a size that stands in the block cache, not among the hot rows.
const VALUE_BYTES: usize = 8 << 10;
const VALUES: u64 = 40_000;
const BATCH: u64 = 100;

fn get(conn: &mut Conn, from: u64) {
    let key = |n: u64| (from + n * 7_919) % VALUES;
    let gets: Vec<_> = (0..BATCH)
        .map(|n| vec![b"GET".to_vec(), key(n).to_string().into_bytes()])
        .collect();
    for value in conn.pipeline(&gets) {
        assert_eq!(value.bytes().len(), VALUE_BYTES);
    }
}

/// The caches alone would fill the budget: they make room for what comes on top.
#[test]
fn the_process_stays_within_maxmemory() {
    const MAXMEMORY: u64 = 160 << 20;
    let server = Server::start(&["--maxmemory", "160mb"]);
    let mut conn = server.connect();
    for from in (0..VALUES).step_by(BATCH as usize) {
        let set = |n: u64| {
            let value: Vec<u8> = (0..VALUE_BYTES).map(|_| fastrand::u8(..)).collect();
            vec![b"SET".to_vec(), (from + n).to_string().into_bytes(), value]
        };
        let sets: Vec<_> = (0..BATCH).map(set).collect();
        assert!(
            conn.pipeline(&sets)
                .iter()
                .all(|reply| *reply == Value::ok())
        );
    }
    // The cache is full, and stays so.
    let mut from = 0;
    while from < 4 * VALUES {
        get(&mut conn, from);
        from += BATCH;
    }
    let within = wait_within(Duration::from_secs(30), || {
        get(&mut conn, from);
        from += BATCH;
        conn.info_number("memory", "used_memory_rss") <= MAXMEMORY
    });
    let takes = conn.info_number("memory", "used_memory_rss");
    assert!(within, "the process takes {takes} bytes of {MAXMEMORY}");
    let share = conn.info_number("rocksdb", "block_cache_share");
    assert!(conn.info_number("rocksdb", "block_cache_capacity") < share);
    // At the most half of it is given up; what remains is used.
    assert!(conn.info_number("rocksdb", "block_cache_usage") >= share * 2 / 5);
    // More room is used.
    conn.must("CONFIG SET maxmemory 1gb");
    let grows = || {
        conn.info_number("rocksdb", "block_cache_capacity")
            == conn.info_number("rocksdb", "block_cache_share")
    };
    assert!(wait_within(Duration::from_secs(30), grows));
}

/// A DB with one key costs little, however many there are.
#[test]
fn dbs_with_few_keys_take_little_memory() {
    const DBS: u64 = 200;
    let server = Server::start(&["--databases", "200"]);
    let mut conn = server.connect();
    let before = conn.info_number("memory", "used_memory_memtables");
    for db in 0..DBS {
        conn.must(&format!("SELECT {db}"));
        conn.must("SET key value");
    }
    let used = conn.info_number("memory", "used_memory_memtables") - before;
    assert!(used < DBS * (32 << 10), "{} bytes for each", used / DBS);
}
