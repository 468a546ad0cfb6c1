//! The memory of the process stays within its budget.

mod bulk;
mod long_args;
mod payloads;

use crate::crash::kedis_check;
use crate::support::cgroup::Cgroup;
use crate::support::conn::encode;
use crate::support::{Conn, Server, Value, wait_for, wait_within};
use std::time::Duration;

/// Values of a size that is cached in the block cache, not in the row cache.
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

/// The queues of the workers took 14 MB.
#[test]
fn a_server_without_data_takes_little_memory() {
    let server = Server::start(&["--maxmemory", "64mb"]);
    let takes = server
        .connect()
        .info_number("memory", "used_memory_startup");
    assert!(takes < 8 << 20, "{takes} bytes at the start");
}

/// The caches alone would fill the budget; they shrink to make room for other memory.
#[test]
fn the_process_stays_within_maxmemory() {
    const MAXMEMORY: u64 = 160 << 20;
    let server = Server::start(&["--maxmemory", "160mb", "--value-log-min", "0"]);
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
    // Reads keep the cache full.
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
    // At most half of the cache is given up; the rest is used.
    assert!(conn.info_number("rocksdb", "block_cache_usage") >= share * 2 / 5);
    // With a larger budget the cache grows to hold all values.
    conn.must("CONFIG SET maxmemory 1gb");
    let holds_all = || {
        for from in (0..VALUES).step_by(BATCH as usize) {
            get(&mut conn, from);
        }
        conn.info_number("rocksdb", "block_cache_usage") >= VALUES * VALUE_BYTES as u64
    };
    assert!(wait_within(Duration::from_secs(30), holds_all));
}

/// DBs with one key each take little memory.
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

/// The memory limit of the container, and the server's default budget in it.
const CONTAINER: u64 = 512 << 20;
const BUDGET: u64 = CONTAINER / 2;

/// Runs `test` with a server with default settings in a container; checks and prints its peak
/// memory in percent of the budget.
fn in_a_container(what: &str, test: impl FnOnce(&Server)) {
    let server = match Cgroup::new(CONTAINER) {
        Some(cgroup) => Server::start_within(cgroup, &[]),
        None => {
            println!("no cgroup can be made here: the budget is given by --maxmemory");
            Server::start(&["--maxmemory", &BUDGET.to_string()])
        }
    };
    test(&server);
    server.connect().must("PING");
    let percent = server.peak_rss() * 100 / BUDGET;
    println!("{what}: {percent} % of the budget");
    assert!(percent <= 110, "{what} took {percent} % of the budget");
}

fn set(key: &str, bytes: usize) -> Vec<u8> {
    let value: Vec<u8> = (0..bytes).map(|_| fastrand::u8(..)).collect();
    let mut wire = Vec::new();
    encode(&mut wire, &[b"SET", key.as_bytes(), &value]);
    wire
}

/// Writes and reads more than the caches hold.
fn fill_caches(server: &Server) {
    let mut conn = server.connect();
    for from in (0..VALUES).step_by(BATCH as usize) {
        let sets: Vec<u8> = (from..from + BATCH)
            .flat_map(|n| set(&n.to_string(), VALUE_BYTES))
            .collect();
        conn.send_raw(&sets).unwrap();
        for _ in 0..BATCH {
            assert_eq!(conn.read().unwrap(), Value::ok());
        }
    }
    for from in (0..VALUES).step_by(BATCH as usize) {
        get(&mut conn, from);
    }
}

/// Each of these once ended with an OOM kill, or with one and a half times the budget.
#[test]
fn what_clients_hold_stays_within_the_budget() {
    in_a_container("a transaction", |server| {
        let mut conn = server.connect();
        conn.must("MULTI");
        let (set, mut refused) = (set("key", 5 << 20), 0);
        for _ in 0..30 {
            conn.send_raw(&set).unwrap();
            refused += usize::from(conn.read().unwrap().error().is_some());
        }
        // There is memory for a part of the commands only, so EXEC fails.
        assert!(refused > 0);
        let error = conn.cmd("EXEC").error().unwrap_or_default();
        assert!(error.starts_with("EXECABORT "), "{error}");
    });
    in_a_container("pipelines of long values beside full caches", |server| {
        fill_caches(server);
        let wire = set("key", 10 << 20).repeat(4);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut conn = server.connect();
                    conn.send_raw(&wire).unwrap();
                    for _ in 0..4 {
                        assert_eq!(conn.read().unwrap(), Value::ok());
                    }
                });
            }
        });
    });
}

#[test]
fn replies_that_nobody_reads_stay_within_the_budget() {
    in_a_container("unread replies with long values", |server| {
        fill_caches(server);
        let mut good = server.connect();
        good.send_raw(&set("big", 10 << 20)).unwrap();
        assert_eq!(good.read().unwrap(), Value::ok());
        let mut wire = Vec::new();
        encode(&mut wire, &["GET", "big"]);
        let mut never_read: Vec<Conn> = (0..50).map(|_| server.connect()).collect();
        for conn in &mut never_read {
            conn.send_raw(&wire.repeat(4)).unwrap();
        }
        // A client that reads gets its reply, maybe after one of the others was closed.
        assert_eq!(good.must("GET big").bytes().len(), 10 << 20);
    });
    in_a_container("unread replies with long lists", |server| {
        let mut conn = server.connect();
        // Otherwise it could be evicted: it is as large as the clients that read nothing.
        conn.must("CLIENT NO-EVICT ON");
        let elements: Vec<String> = (0..20_000).map(|n| format!("element:{n}")).collect();
        let push: Vec<&str> = ["RPUSH", "list"]
            .into_iter()
            .chain(elements.iter().map(String::as_str))
            .collect();
        assert_eq!(conn.call(&push), Value::Int(20_000));
        let mut wire = Vec::new();
        encode(&mut wire, &["LRANGE", "list", "0", "-1"]);
        let mut never_read: Vec<Conn> = (0..2000).map(|_| server.connect()).collect();
        for other in &mut never_read {
            other.send_raw(&wire).unwrap();
        }
        // Replies that do not fit are sent after other clients that read nothing were
        // closed.
        wait_for("all to be answered", || {
            conn.must("LLEN list");
            conn.info_number("clients", "blocked_clients") == 0
        });
    });
}

/// The client was closed because of the memory that its request had while it ran.
#[test]
fn a_client_stays_connected_after_long_values() {
    let server = Server::start(&["--maxmemory", "2gb"]);
    let mut conn = server.connect();
    let wire = set("key", 100 << 20);
    for _ in 0..2 {
        conn.send_raw(&wire).unwrap();
        assert_eq!(conn.read().unwrap(), Value::ok());
        conn.must("PING");
    }
    assert_eq!(conn.must("STRLEN key"), Value::Int(100 << 20));
    assert_eq!(conn.info_number("stats", "evicted_clients"), 0);
}

/// Checks that the peak memory of a request is at most `most` percent of its length. `what`
/// names it.
fn takes_of_its_length(server: &Server, what: &str, args: &[&[u8]], most: u64) {
    let mut conn = server.connect();
    let before = conn.info_number("memory", "used_memory_rss");
    let mut wire = Vec::new();
    encode(&mut wire, args);
    conn.send_raw(&wire).unwrap();
    let reply = conn.read().unwrap();
    assert_eq!(reply.error(), None, "{what}");
    let takes = (server.peak_rss() - before) * 100 / wire.len() as u64;
    println!("{what} takes {takes} % of its length");
    assert!(takes <= most, "{what} takes {takes} % of its length");
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| fastrand::u8(..)).collect()
}

/// The overlay and the binlog row were copies beside the batch and the memtables: the commands
/// took one or two times the argument more.
#[test]
fn a_long_argument_is_not_copied_more_often_than_it_is_written() {
    const BYTES: usize = 40 << 20;
    let long = noise(BYTES);
    // They run on a worker: what the IO thread has freed while its buffer grew, up to two thirds of
    // the argument, is not used again for their copies.
    for (what, most, args) in [
        // The value is written before the batch.
        ("SET", 440, [b"SET".as_slice(), b"key", &long].as_slice()),
        ("SADD", 540, &[b"SADD", b"key", &long]),
        ("HSET", 540, &[b"HSET", b"key", b"field", &long]),
        ("RPUSH", 540, &[b"RPUSH", b"key", &long]),
        ("XADD", 540, &[b"XADD", b"key", b"*", b"field", &long]),
    ] {
        let server = Server::start(&["--maxmemory", "2gb"]);
        takes_of_its_length(&server, what, args, most);
    }
}

/// The size of their data is known only when it is read: these took up to twice the budget.
#[test]
fn what_commands_make_of_stored_data_stays_within_the_budget() {
    const ITEMS: usize = 10;
    in_a_container("commands that copy long items", |server| {
        let mut conn = server.connect();
        for _ in 0..ITEMS {
            let mut wire = Vec::new();
            encode(&mut wire, &[b"RPUSH", b"list".as_slice(), &noise(10 << 20)]);
            conn.send_raw(&wire).unwrap();
            assert!(matches!(conn.read().unwrap(), Value::Int(_)));
        }
        for line in [
            "SORT list ALPHA STORE sorted",
            // Items that cannot be returned are not removed.
            "LPOP list 10",
        ] {
            let error = conn.cmd(line).error().unwrap_or_default();
            assert!(error.starts_with("OOM "), "{line}: {error}");
        }
        assert_eq!(conn.must("LLEN list"), Value::Int(ITEMS as i64));
        assert_eq!(conn.must("EXISTS sorted"), Value::Int(0));
        for _ in 0..ITEMS {
            assert_eq!(conn.must("LPOP list").bytes().len(), 10 << 20);
        }
    });
}

/// All clients but the first were closed, although there was room for one after the other.
#[test]
fn gets_of_a_long_value_wait_for_one_another() {
    const PIECE: usize = 4 << 20;
    const PIECES: usize = 25;
    in_a_container("GETs of a long value", |server| {
        let mut conn = server.connect();
        let piece = noise(PIECE);
        for n in 0..PIECES {
            let mut wire = Vec::new();
            let at = (n * PIECE).to_string();
            encode(
                &mut wire,
                &[b"SETRANGE", b"big".as_slice(), at.as_bytes(), &piece],
            );
            conn.send_raw(&wire).unwrap();
            assert!(matches!(conn.read().unwrap(), Value::Int(_)));
        }
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let value = server.connect().must("GET big");
                    assert_eq!(value.bytes().len(), PIECES * PIECE);
                });
            }
        });
        assert_eq!(conn.info_number("stats", "evicted_clients"), 0);
    });
}

/// Pops were refused while other replies had the memory, although a GET would have waited.
#[test]
fn pops_of_long_items_wait_for_one_another() {
    const BYTES: usize = 24 << 20;
    const CLIENTS: usize = 12;
    let server = Server::start(&["--maxmemory", "256mb"]);
    let mut conn = server.connect();
    for _ in 0..CLIENTS {
        let mut wire = Vec::new();
        encode(&mut wire, &[b"RPUSH", b"list".as_slice(), &noise(BYTES)]);
        conn.send_raw(&wire).unwrap();
        assert!(matches!(conn.read().unwrap(), Value::Int(_)));
    }
    conn.must("CONFIG RESETSTAT");
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let item = server.connect().must("LPOP list");
                assert_eq!(item.bytes().len(), BYTES);
            });
        }
    });
    assert_eq!(conn.must("EXISTS list"), Value::Int(0));
    for counter in ["evicted_clients", "total_error_replies"] {
        assert_eq!(conn.info_number("stats", counter), 0, "{counter}");
    }
}

/// The command was refused, because it needed more memory than any request can get.
#[test]
fn a_very_long_member_can_be_removed() {
    let server = Server::start(&["--maxmemory", "1gb"]);
    let mut conn = server.connect();
    let member = noise(24 << 20);
    let mut call = |args: &[&[u8]]| {
        let mut wire = Vec::new();
        encode(&mut wire, args);
        conn.send_raw(&wire).unwrap();
        conn.read().unwrap()
    };
    let add = [b"ZADD".as_slice(), b"zset", b"1", &member];
    assert_eq!(call(&add), Value::Int(1));
    call(&[b"XGROUP", b"CREATE", b"stream", b"g", b"0", b"MKSTREAM"]);
    assert_eq!(
        call(&[b"CONFIG", b"SET", b"maxmemory", b"256mb"]),
        Value::ok()
    );
    let refused = call(&add).error().unwrap_or_default();
    assert!(refused.starts_with("OOM "), "{refused}");
    // Redis does not refuse XREADGROUP for memory, but it writes the consumer's name.
    let read = [b"XREADGROUP".as_slice(), b"GROUP", b"g", &member];
    let refused = call(&[&read[..], &[b"STREAMS", b"stream", b">"]].concat());
    assert!(refused.error().unwrap_or_default().starts_with("OOM "));
    assert_eq!(call(&[b"ZREM", b"zset", &member]), Value::Int(1));
    assert_eq!(call(&[b"EXISTS", b"zset"]), Value::Int(0));
}

/// A document that there is no memory for is refused before anything of it is written, and so is
/// a change that would have to hold too much.
#[test]
fn documents_without_memory_are_refused_whole() {
    let server = Server::start(&["--maxmemory", "64mb", "--enable-debug-command", "yes"]);
    let mut conn = server.connect();
    let call = |conn: &mut Conn, words: &[&[u8]]| {
        let command: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
        conn.call(&command)
    };
    let is_oom = |reply: &Value| matches!(reply, Value::Error(text) if text.starts_with(b"OOM"));
    let small = br#"{"n":1,"texts":["a"]}"#;
    assert_eq!(
        call(&mut conn, &[b"JSON.SET", b"doc", b"$", small]),
        Value::ok()
    );
    // Values take more memory than their text.
    let numbers = format!("[{}1]", "1,".repeat(1 << 20)).into_bytes();
    let refused = [
        &[&b"JSON.SET"[..], b"doc", b"$", &numbers][..],
        &[b"JSON.SET", b"new", b"$", &numbers],
        &[b"JSON.MSET", b"doc", b"$.n", b"2", b"new", b"$", &numbers],
        &[b"JSON.MERGE", b"doc", b"$.texts", &numbers],
        &[b"JSON.ARRAPPEND", b"doc", b"$.texts", &numbers],
    ];
    for command in refused {
        let reply = call(&mut conn, command);
        let name = String::from_utf8_lossy(command[0]);
        assert!(is_oom(&reply), "{name}: {reply:?}");
        let found = conn.must("JSON.GET doc");
        assert_eq!(found.bytes(), small, "{name}");
        assert_eq!(conn.must("EXISTS new"), Value::Int(0), "{name}");
    }
    // Many places that each get a long value.
    let text = format!("[{}{{}}]", "{},".repeat(200));
    let places = ["JSON.SET", "doc", "$.places", &text];
    let places: Vec<&[u8]> = places.iter().map(|word| word.as_bytes()).collect();
    assert_eq!(call(&mut conn, &places), Value::ok());
    let long = format!("\"{}\"", "x".repeat(1 << 20)).into_bytes();
    let before = conn.must("JSON.GET doc");
    let reply = call(&mut conn, &[b"JSON.SET", b"doc", b"$.places[*]", &long]);
    assert!(is_oom(&reply), "{reply:?}");
    assert_eq!(conn.must("JSON.GET doc"), before);
    assert_eq!(conn.must("JSON.NUMINCRBY doc $.n 1"), Value::bulk("[2]"));
    kedis_check(&mut conn);
}
