//! Long values in blob files.

use crate::exec::testing::Client;
use crate::resp::Value;

const KEYS: usize = 200;
const LEN: usize = 10_000;

/// The value of a key after so many rounds; bytes that do not compress.
fn value(key: usize, round: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed((key * 1000 + round) as u64);
    // Every other value is so long that it is stored in fragments.
    let len = LEN * (1 + 2 * (key % 2));
    (0..len).map(|_| rng.u8(..)).collect()
}

fn set_all(client: &mut Client, round: usize) {
    for key in 0..KEYS {
        let name = format!("key{key}");
        client.args(&[b"SET", name.as_bytes(), &value(key, round)]);
    }
    client.server().engine.flush_memtables().unwrap();
}

fn bytes(client: &Client, property: &str) -> u64 {
    let name = format!("rocksdb.total-{property}-size");
    client.server().engine.property_sum(&name)
}

#[test]
fn long_values_go_to_blob_files_and_their_space_is_freed() {
    let mut client = Client::with(|config| {
        config.value_log_min_bytes = 0;
        config.min_blob_size_bytes = 4 << 10;
        config.target_file_size_bytes = 1 << 20;
        config.binlog_enabled = false;
    });
    // The last fragment of a value is a short one.
    let live = (KEYS * LEN * 2) as u64 * 9 / 10;
    set_all(&mut client, 0);
    assert!(bytes(&client, "blob-file") >= live);
    assert!(bytes(&client, "sst-files") < live / 5);
    for round in 1..=10 {
        set_all(&mut client, round);
        // Reclaim removes the old fragments.
        let mut txn = crate::storage::Txn::new(client.server().engine.clone());
        while let Some(mut pass) = txn.begin_reclaim(crate::storage::DbIndex(0)) {
            while txn.reclaim_slice(&mut pass, 1 << 20).unwrap().more {}
            if client.server().engine.reclaim_backlog(1).unwrap() == 0 {
                break;
            }
        }
    }
    client.server().engine.flush_memtables().unwrap();
    for _ in 0..3 {
        client.server().engine.compact();
    }
    let kept = bytes(&client, "blob-file");
    assert!(kept >= live && kept < 3 * live, "{kept} bytes for {live}");
    for key in 0..KEYS {
        let read = client.run(&format!("GET key{key}"));
        assert_eq!(read, Value::Bulk(value(key, 10)));
    }
    client.check();
    client.run("FLUSHALL");
    client.server().engine.flush_memtables().unwrap();
    assert_eq!(bytes(&client, "blob-file"), 0);
    client.check();
}

#[test]
fn by_default_long_values_go_to_the_value_log_or_to_tables() {
    let written = (KEYS * LEN * 2) as u64;
    let mut client = Client::new();
    set_all(&mut client, 0);
    assert!(client.server().engine.value_log_bytes() >= written);
    assert!(bytes(&client, "sst-files") < written / 20);
    let mut client = Client::with(|config| config.value_log_min_bytes = 0);
    set_all(&mut client, 0);
    assert_eq!(client.server().engine.value_log_bytes(), 0);
    assert_eq!(bytes(&client, "blob-file"), 0);
    assert!(bytes(&client, "sst-files") >= written);
}
