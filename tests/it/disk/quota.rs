//! `max-disk`: the bound, and what is evicted to keep it.

use super::is_misconf;
use crate::support::checks::check;
use crate::support::{Conn, Pace, Server, Value, wait_for};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

const MIB: u64 = 1 << 20;

/// The space that a directory takes, in bytes. Files may go meanwhile.
fn taken(dir: &Path) -> u64 {
    let Ok(entries) = dir.read_dir() else {
        return 0;
    };
    let entries = entries.filter_map(Result::ok);
    let bytes = |path: PathBuf| match path.symlink_metadata() {
        Ok(found) if found.is_dir() => taken(&path),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(|entry| bytes(entry.path())).sum()
}

/// Measures a directory until it is asked for the most that it took.
struct Gauge {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Gauge {
    fn start(server: &Server) -> Gauge {
        let dir = server.data_dir().join("kedis-db");
        assert!(dir.is_dir(), "{}", dir.display());
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        let thread = thread::spawn(move || {
            let (mut pace, mut most) = (Pace::per_second(200), 0);
            while !stops.load(Ordering::Relaxed) {
                most = most.max(taken(&dir));
                pace.wait();
            }
            most
        });
        Gauge { stop, thread }
    }

    fn most(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Bytes that do not compress.
fn random(len: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..))
        .take(len)
        .collect()
}

fn command(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

/// The first keys with a prefix.
fn names(prefix: &str, count: u32) -> String {
    let names: Vec<_> = (0..count).map(|n| format!("{prefix}{n}")).collect();
    names.join(" ")
}

/// SETs of keys `prefix‖number`, some at once; the replies.
fn set(conn: &mut Conn, prefix: &str, numbers: std::ops::Range<u32>, len: usize) -> Vec<Value> {
    let sets = numbers.map(|n| {
        let key = format!("{prefix}{n}");
        command(&[b"SET", key.as_bytes(), &random(len)])
    });
    conn.pipeline(&sets.collect::<Vec<_>>())
}

fn small(policy: &str, quota: u64) -> Server {
    Server::start(&[
        "--maxmemory",
        "48mb",
        "--max-disk",
        &format!("{}", quota * MIB),
        "--max-disk-policy",
        policy,
        "--enable-debug-command",
        "yes",
        "--notify-keyspace-events",
        "Ee",
    ])
}

/// Three times as much as fits is written, as short and as long values, and in collections. No write
/// is refused, the directory never takes more, and what was used in between is there.
#[test]
fn a_cache_takes_no_more_than_its_quota() {
    const QUOTA: u64 = 128;
    const HOT: u32 = 50;
    let server = small("allkeys-lru", QUOTA);
    let gauge = Gauge::start(&server);
    let mut conn = server.connect();
    let mut events = server.connect();
    events.must("PSUBSCRIBE __keyevent@0__:evicted");
    set(&mut conn, "hot", 0..HOT, 1_000);
    let mut kept_hot = 0;
    for round in 0..100u32 {
        let from = round * 100;
        let replies = [
            set(&mut conn, "short", from * 10..from * 10 + 1000, 1_000),
            set(&mut conn, "long", from..from + 100, 20_000),
        ];
        for reply in replies.iter().flatten() {
            assert_eq!(*reply, Value::ok(), "round {round}");
        }
        let fields: Vec<Vec<u8>> = (0..500u32)
            .flat_map(|n| [n.to_string().into_bytes(), random(1_000)])
            .collect();
        let mut hset = command(&[b"HSET", format!("hash{round}").as_bytes()]);
        hset.extend(fields);
        assert_eq!(conn.call(&hset), Value::Int(500));
        kept_hot = conn.must(&format!("TOUCH {}", names("hot", HOT))).int();
    }
    assert!(conn.info_number("stats", "evicted_keys") > 10_000);
    assert!(events.read().is_ok_and(|event| !event.items().is_empty()));
    let most = gauge.most();
    assert!(most <= QUOTA * MIB, "the directory took {most} bytes");
    assert!(
        most > QUOTA * MIB / 2,
        "more was evicted than had to be: {most}"
    );
    // Which keys go is an approximation. Without what is known of their use, those that were used would
    // be gone as the others are.
    let kept_cold = conn.must(&format!("EXISTS {}", names("short", HOT))).int();
    assert!(
        kept_hot * 10 >= i64::from(HOT) * 8 && kept_cold * 2 <= kept_hot,
        "of {HOT} keys that were used {kept_hot} are left, of as many others {kept_cold}"
    );
    assert_eq!(conn.must("EXISTS long9999 short99999"), Value::Int(2));
    let checked = check(&mut conn);
    assert!(checked.is_ok(), "{checked:?}");
}

#[test]
fn a_quota_without_a_policy_is_a_full_disk() {
    let server = small("noeviction", 64);
    let gauge = Gauge::start(&server);
    let mut conn = server.connect();
    let mut from = 0;
    wait_for("a refusal", || {
        from += 500;
        let replies = set(&mut conn, "k", from - 500..from, 2_000);
        replies.iter().any(is_misconf)
    });
    assert!(gauge.most() <= 64 * MIB);
    assert_eq!(conn.info_number("stats", "evicted_keys"), 0);
    assert_eq!(conn.must("GET k1").bytes().len(), 2_000);
    assert_eq!(conn.must("DEL k1"), Value::Int(1));
    conn.must(&format!("CONFIG SET max-disk {}", 512 * MIB));
    wait_for("writes", || conn.cmd("SET more 1") == Value::ok());
    // A lower bound, with a policy: keys go until the rest fits.
    conn.must(&format!(
        "CONFIG SET max-disk-policy allkeys-random max-disk {}",
        32 * MIB
    ));
    wait_for("the lower bound", || {
        conn.info_number("persistence", "disk_used_bytes") <= 32 * MIB
            && conn.info_number("persistence", "max_disk") == 32 * MIB
            && conn.cmd("SET more 2") == Value::ok()
    });
    assert!(conn.info_number("stats", "evicted_keys") > 0);
}

/// Keys without an expiry stay, of the others those go first that expire first; and when none is left,
/// writes are refused.
#[test]
fn only_keys_go_that_the_policy_allows() {
    let server = small("volatile-ttl", 96);
    let mut conn = server.connect();
    let stays = set(&mut conn, "stays", 0..5_000, 2_000);
    assert!(stays.iter().all(|reply| *reply == Value::ok()));
    // Later keys expire earlier.
    const KEYS: u32 = 60_000;
    for from in (0..KEYS).step_by(500) {
        let sets = (from..from + 500).map(|n| {
            let (key, seconds) = (format!("goes{n}"), (1_000_000 - n).to_string());
            let value = random(2_000);
            command(&[b"SET", key.as_bytes(), &value, b"EX", seconds.as_bytes()])
        });
        let replies = conn.pipeline(&sets.collect::<Vec<_>>());
        assert!(replies.iter().all(|reply| *reply == Value::ok()), "{from}");
    }
    let count = |conn: &mut Conn, prefix: &str, numbers: std::ops::Range<u32>| -> i64 {
        let names: Vec<_> = numbers.map(|n| format!("{prefix}{n}")).collect();
        let exists = |names: &[String]| conn.must(&format!("EXISTS {}", names.join(" "))).int();
        names.chunks(500).map(exists).sum()
    };
    assert_eq!(count(&mut conn, "stays", 0..5_000), 5_000);
    let (early, late) = (
        count(&mut conn, "goes", 0..5_000),
        count(&mut conn, "goes", KEYS - 15_000..KEYS - 10_000),
    );
    assert!(
        early > late && late < 5_000,
        "{early} of the last to expire, {late} of the first"
    );
    // What stays takes all of the quota: nothing is left to evict.
    let mut from = 5_000;
    wait_for("a refusal", || {
        from += 500;
        let replies = set(&mut conn, "stays", from - 500..from, 2_000);
        replies.iter().any(is_misconf)
    });
    assert_eq!(count(&mut conn, "stays", 0..5_000), 5_000);
}

/// The replica has the keys of its master, evicts none itself, and says so.
#[test]
fn a_replica_follows_the_evictions_of_its_master() {
    let master = small("allkeys-lfu", 96);
    let address = master.address();
    let (host, port) = address.rsplit_once(':').unwrap();
    let replica = Server::start(&[
        "--maxmemory",
        "48mb",
        "--replicaof",
        &format!("{host} {port}"),
        "--enable-debug-command",
        "yes",
    ]);
    let (mut conn, mut copy) = (master.connect(), replica.connect());
    wait_for("the link", || {
        copy.info_text("replication", "master_link_status") == "up"
    });
    for from in (0..60_000).step_by(500) {
        let replies = set(&mut conn, "k", from..from + 500, 2_000);
        assert!(replies.iter().all(|reply| *reply == Value::ok()), "{from}");
    }
    assert!(conn.info_number("stats", "evicted_keys") > 1_000);
    conn.must("CONFIG SET max-disk 0");
    wait_for("the same keys", || {
        let sizes = (conn.must("DBSIZE"), copy.must("DBSIZE"));
        sizes.0 == sizes.1
            && conn.info_number("replication", "master_repl_offset")
                == copy.info_number("replication", "master_repl_offset")
    });
    assert_eq!(conn.must("DEBUG DIGEST"), copy.must("DEBUG DIGEST"));
    assert_eq!(copy.info_number("stats", "evicted_keys"), 0);
}

/// Several clients with long values at once found space for one of them, and the others were refused.
#[test]
fn long_values_at_once_wait_for_one_another() {
    let server = Server::start(&[
        "--maxmemory",
        "1gb",
        "--max-disk",
        "200mb",
        "--max-disk-policy",
        "allkeys-lru",
    ]);
    let replies: Vec<Value> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let mut conn = server.connect();
                scope.spawn(move || -> Vec<Value> {
                    let one = |n| set(&mut conn, &format!("{writer}:"), n..n + 1, 4 << 20);
                    (0..40).flat_map(one).collect()
                })
            })
            .collect();
        writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect()
    });
    assert_eq!(replies.len(), 160);
    for reply in replies {
        assert_eq!(reply, Value::ok());
    }
    assert!(server.connect().info_number("stats", "evicted_keys") > 100);
}
