//! Row cache and rank index against the stored rows, while several threads create, change,
//! read, replace, delete, expire and reclaim collections.
//!
//! Environment: `KEDIS_COPIES_SECONDS` (8), `KEDIS_COPIES_SEED`.

use std::time::{Duration, Instant};

use crate::support::checks::{self, Checks};
use crate::support::{Server, Value, args, env_number, seed, wait_for};

const CLIENTS: u64 = 8;
const KEYS: u64 = 12;
/// Maximum depth of a pipeline.
const DEEPEST: usize = 60;
/// More elements than a packed collection has.
const ELEMENTS: u64 = 90;
/// Keys that keep a commit busy with the row cache before it reaches the rows of a
/// collection.
const BULK: u64 = 3000;

/// The items of a list, and scores and members of a sorted set.
fn elements() -> (String, String) {
    let items = (0..ELEMENTS).map(|n| format!(" item:{n}"));
    let scored = (0..ELEMENTS).map(|n| format!(" {n} member:{n}"));
    (items.collect(), scored.collect())
}

/// Commands of one long commit, which also creates and deletes collections at its end.
fn bulky_batch(client: u64) -> Vec<Vec<Vec<u8>>> {
    let pairs = (0..BULK).map(|n| format!(" bulk:{client}:{n} value"));
    let (items, scored) = elements();
    let lines = [
        format!("MSET{}", pairs.collect::<String>()),
        format!("RPUSH list:{client}{items}"),
        format!("ZADD zset:{client}{scored}"),
        format!("DEL list:{client} zset:{client}"),
    ];
    lines.iter().map(|line| args(line)).collect()
}

/// A command on one of a few keys, which change between lists and sorted sets.
fn random_command(rng: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let key = format!("key:{}", rng.u64(..KEYS));
    let other = format!("key:{}", rng.u64(..KEYS));
    let n = rng.u64(..ELEMENTS);
    let (items, scored) = elements();
    let line = match rng.u32(..30) {
        0..4 => format!("RPUSH {key}{items}"),
        4 => format!("LPUSH {key}{items}"),
        5..8 => format!("RPUSH {key} item"),
        8 => format!("LPUSH {key} item"),
        9 => format!("LPOP {key} {n}"),
        10 => format!("RPOP {key}"),
        11..14 => format!("LRANGE {key} 0 9"),
        14 => format!("LRANGE {key} -10 -1"),
        15 => format!("LINSERT {key} BEFORE item:{n} new"),
        16 => format!("LREM {key} 2 item:{n}"),
        17 => format!("LTRIM {key} {} -2", n / 4),
        18..20 => format!("ZADD {key}{scored}"),
        20 => format!("ZADD {key} {n}.5 late"),
        21 => format!("ZREM {key} member:{n} late"),
        22 => format!("ZRANGE {key} 0 9"),
        23 => format!("ZRANGEBYSCORE {key} {n} +inf LIMIT 0 10"),
        24 => format!("ZRANK {key} member:{n}"),
        25 => format!("RENAME {key} {other}"),
        26 => format!("PEXPIRE {key} {}", rng.u64(1..40)),
        27 => format!("SET {key} value"),
        _ => format!("DEL {key}"),
    };
    args(&line)
}

#[test]
fn copies_in_memory_are_what_is_stored() {
    let seed = seed("KEDIS_COPIES_SEED");
    let until = Instant::now() + Duration::from_secs(env_number("KEDIS_COPIES_SECONDS", 8));
    let flags = "--io-threads 3 --enable-debug-command yes --expire-period-ms 1 \
                 --reclaim-rows-per-second 0 --binlog-enabled no";
    let server = Server::start(&flags.split_whitespace().collect::<Vec<_>>());
    let checks = Checks::start_every(Duration::from_millis(300), &[&server]);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ client);
                let mut conn = server.connect();
                while Instant::now() < until {
                    let depth = rng.usize(1..=DEEPEST);
                    let batch = match client % 3 {
                        0 => bulky_batch(client),
                        _ => (0..depth).map(|_| random_command(&mut rng)).collect(),
                    };
                    let replies = conn.pipeline(&batch);
                    assert!(!matches!(replies.last(), Some(Value::Lost(_))));
                }
            });
        }
    });
    let mut conn = server.connect();
    for key in 0..KEYS {
        conn.must(&format!("DEL key:{key}"));
    }
    wait_for("dead collections to be reclaimed", || {
        let report = checks::check(&mut conn).expect("no fault");
        report.is_some_and(|report| report.contains("\ndead collections: 0"))
    });
    assert!(checks.done() > 0, "no check was done");
}
