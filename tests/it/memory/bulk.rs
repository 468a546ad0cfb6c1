//! Loads that are faster than tables are written.

use crate::support::{Conn, Server, Value};
use std::sync::atomic::{AtomicBool, Ordering};

const VALUE_BYTES: usize = 400;
const CLIENTS: u64 = 6;
const BATCHES: u64 = 150;
const BATCH: u64 = 200;

/// SETs of new keys.
fn load(conn: &mut Conn, client: u64) {
    for batch in 0..BATCHES {
        let set = |n: u64| {
            let value: Vec<u8> = (0..VALUE_BYTES).map(|_| fastrand::u8(..)).collect();
            let key = format!("{client}:{batch}:{n}");
            vec![b"SET".to_vec(), key.into_bytes(), value]
        };
        let sets: Vec<_> = (0..BATCH).map(set).collect();
        let replies = conn.pipeline(&sets);
        assert!(replies.iter().all(|reply| *reply == Value::ok()));
    }
}

/// Memtables took two and a half times their share: RocksDB takes rows until each column family has
/// its most memtables.
#[test]
fn clients_that_write_wait_for_memtables() {
    const SHARE: u64 = (128 << 20) * 89 / 100 * 3 / 10;
    // Tables are written slower than any client writes.
    let flags = ["--maxmemory", "128mb", "--rocksdb.rate-limit", "16mb"];
    let server = Server::start(&flags);
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut conn = server.connect();
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(conn.info_number("rocksdb", "memtable_total_bytes"));
                conn.call(&["GET", "0:0:0"]);
            }
            most
        });
        let writers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mut conn = server.connect();
                scope.spawn(move || load(&mut conn, client))
            })
            .collect();
        for writer in writers {
            writer.join().expect("all was written");
        }
        is_over.store(true, Ordering::Relaxed);
        watch.join().expect("the server answers")
    });
    let mut conn = server.connect();
    let delays = conn.info_number("rocksdb", "total_writer_delays");
    assert!(delays > 0, "nobody waited, with {most} bytes in memtables");
    assert!(
        most < SHARE * 7 / 4,
        "memtables took {most} bytes of {SHARE}"
    );
    assert_eq!(
        conn.call(&["DBSIZE"]),
        Value::Int((CLIENTS * BATCHES * BATCH) as i64)
    );
}
