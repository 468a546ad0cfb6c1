//! Data that are not in memory: commands wait for them without holding up others.

mod commands;
mod together;

use crate::support::checks::check;
use crate::support::{Conn, Server, Value, args, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Little memory, past the page cache: what is not in the small block cache is on the disk.
const COLD: &[&str] = &[
    "--maxmemory",
    "32mb",
    "--rocksdb.direct-reads",
    "yes",
    "--enable-debug-command",
    "yes",
    // The values are in the rows.
    "--value-log-min",
    "0",
];
/// Bytes of a value; a block holds four.
const VALUE: usize = 2000;

fn value(n: usize) -> String {
    let mut text = format!("{n}:");
    while text.len() < VALUE {
        text.push_str(&fastrand::u64(..).to_string());
    }
    text
}

fn fill(conn: &mut Conn, keys: usize) {
    for from in (0..keys).step_by(500) {
        let set = |n: usize| args(&format!("SET key:{n} {}", value(n)));
        let sets: Vec<_> = (from..from + 500).map(set).collect();
        assert!(conn.pipeline(&sets).iter().all(|done| *done == Value::ok()));
    }
}

fn is_value(found: &Value, n: usize) -> bool {
    found.text().starts_with(&format!("{n}:"))
}

/// A server with these flags whose data are in files, and none of them in memory.
fn chilled(flags: &[&str], load: impl FnOnce(&mut Conn)) -> Server {
    let mut server = Server::start(flags);
    let mut conn = server.connect();
    load(&mut conn);
    conn.must("DEBUG RELOAD");
    server.restart();
    server
}

fn delay(conn: &mut Conn, ms: u64) {
    conn.must(&format!("DEBUG KEDIS-DELAY-READS {}", ms * 1000));
}

fn parked(conn: &mut Conn) -> u64 {
    conn.info_number("rocksdb", "parked_commands")
}

fn reads_of_io_threads(conn: &mut Conn) -> u64 {
    conn.info_number("rocksdb", "disk_reads_of_io_threads")
}

/// Until this ends, reads take long; some of the conditions need that they have not ended.
const LONG_MS: u64 = 3000;

#[test]
fn a_client_that_waits_for_the_disk_holds_up_nobody() {
    let server = chilled(&[COLD, &["--io-threads", "1"]].concat(), |conn| {
        fill(conn, 1000);
    });
    let (mut hot, mut cold, mut unit) = (server.connect(), server.connect(), server.connect());
    assert!(is_value(&hot.must("GET key:1"), 1));
    hot.must("SET hot 1");
    delay(&mut hot, LONG_MS);
    cold.send(&args("GET key:900")).unwrap();
    for line in ["MULTI", "INCR hot", "GET key:500"] {
        unit.must(line);
    }
    unit.send(&args("EXEC")).unwrap();
    wait_for("two parked commands", || parked(&mut hot) == 2);
    // No lock of a parked command is in the way, and nothing of it is visible.
    assert!(is_value(&hot.must("GET key:1"), 1));
    assert_eq!(hot.must("GET hot"), Value::bulk("1"));
    assert_eq!(hot.must("INCR hot"), Value::Int(2));
    assert_eq!(hot.must("DBSIZE"), Value::Int(1001));
    assert_eq!(parked(&mut hot), 2, "the reads have ended");
    delay(&mut hot, 0);
    assert!(is_value(&cold.read().unwrap(), 900));
    let replies = unit.read().unwrap();
    assert_eq!(replies.items()[0], Value::Int(3));
    assert!(is_value(&replies.items()[1], 500));
    assert_eq!(hot.must("GET hot"), Value::bulk("3"));
    assert_eq!(reads_of_io_threads(&mut hot), 0);
}

/// A client that waits for a key is served by the thread that writes it, which must not wait for
/// the other keys of that client.
#[test]
fn served_clients_need_no_read_of_the_thread_that_serves_them() {
    let server = chilled(COLD, |conn| {
        fill(conn, 2000);
        conn.must("RPUSH to a");
        for n in 0..200 {
            conn.must(&format!("RPUSH long {n} {}", "x".repeat(200)));
            conn.must(&format!("HSET hash {n} {}", "x".repeat(200)));
        }
    });
    let (mut conn, mut waiter) = (server.connect(), server.connect());
    waiter.send(&args("BLMOVE from to LEFT RIGHT 0")).unwrap();
    wait_for("a waiting client", || {
        conn.info_number("clients", "blocked_clients") == 1
    });
    // What the wait itself has brought into memory leaves it.
    for n in 0..2000 {
        conn.must(&format!("GET key:{n}"));
    }
    assert_eq!(conn.must("RPUSH from b"), Value::Int(1));
    assert_eq!(waiter.read().unwrap(), Value::bulk("b"));
    assert_eq!(conn.must("LRANGE to 0 -1").items().len(), 2);
    // The rows of the items are not known before the key has its new name.
    let mut waiter = server.connect();
    waiter.send(&args("BLPOP renamed 0")).unwrap();
    wait_for("a waiting client", || {
        conn.info_number("clients", "blocked_clients") == 1
    });
    assert_eq!(conn.must("RENAME long renamed"), Value::ok());
    assert_eq!(waiter.read().unwrap().items()[1], Value::bulk("0"));
    // Until its first command that stays, a transaction is taken back as any other.
    for line in ["MULTI", "HGETALL hash", "CLIENT GETNAME"] {
        conn.must(line);
    }
    assert_eq!(conn.must("EXEC").items()[0].items().len(), 400);
    assert_eq!(reads_of_io_threads(&mut conn), 0);
}

/// Where draws and seeks go is read, not where a range begins; and each attempt draws the same.
#[test]
fn random_members_are_read_where_they_are() {
    let server = chilled(COLD, |conn| {
        for from in (0..20_000).step_by(100) {
            let members: Vec<String> = (from..from + 100)
                .map(|n| format!("{n}:{}", "m".repeat(200)))
                .collect();
            conn.must(&format!("SADD set {}", members.join(" ")));
        }
    });
    let mut conn = server.connect();
    let rounds = |conn: &mut Conn| conn.info_number("rocksdb", "total_parked_commands");
    conn.must("SRANDMEMBER set");
    let before = rounds(&mut conn);
    for _ in 0..50 {
        conn.must("SRANDMEMBER set");
    }
    let each = (rounds(&mut conn) - before) as f64 / 50.0;
    assert!(each <= 2.0, "{each} rounds for each draw");
    assert_eq!(conn.must("SRANDMEMBER set 20").items().len(), 20);
    assert_eq!(reads_of_io_threads(&mut conn), 0);
}

#[test]
fn replies_come_in_the_order_of_the_requests() {
    let server = chilled(COLD, |conn| fill(conn, 4000));
    let mut conn = server.connect();
    delay(&mut conn, 1);
    let mut commands = Vec::new();
    for n in 0..300 {
        let key = n * 13;
        commands.push(args(&format!("GET key:{key}")));
        commands.push(args("INCR count"));
        commands.push(args(&format!("APPEND key:{key} x")));
        commands.push(args("PING"));
    }
    let replies = conn.pipeline(&commands);
    for (n, replies) in replies.chunks(4).enumerate() {
        assert!(is_value(&replies[0], n * 13), "{n}: {:?}", replies[0]);
        assert_eq!(replies[1], Value::Int(n as i64 + 1));
        assert!(replies[2].int() > VALUE as i64);
        assert_eq!(replies[3], Value::simple("PONG"));
    }
    assert!(conn.info_number("rocksdb", "total_parked_commands") > 0);
    assert_eq!(reads_of_io_threads(&mut conn), 0);
}

/// What the items of a command need is read at once, not in a round for each item.
#[test]
fn the_rows_of_many_items_are_read_in_one_round() {
    // Each command has a value of its own.
    const COMMANDS: [(&str, &str, &str); 8] = [
        (
            "BF.RESERVE # 0.001 500000",
            "BF.MADD # {i}",
            "BF.MEXISTS # {i}",
        ),
        (
            "BF.RESERVE # 0.001 500000",
            "BF.MADD # {i}",
            "BF.MADD # {i}",
        ),
        (
            "CF.RESERVE # 500000",
            "CF.INSERT # ITEMS {i}",
            "CF.MEXISTS # {i}",
        ),
        (
            "CF.RESERVE # 500000",
            "CF.INSERT # ITEMS {i}",
            "CF.INSERT # ITEMS {i}",
        ),
        (
            "CMS.INITBYDIM # 100000 5",
            "CMS.INCRBY # {p}",
            "CMS.QUERY # {i}",
        ),
        (
            "CMS.INITBYDIM # 100000 5",
            "CMS.INCRBY # {p}",
            "CMS.INCRBY # {p}",
        ),
        (
            "TOPK.RESERVE # 100 10000 5 0.9",
            "TOPK.ADD # {i}",
            "TOPK.COUNT # {i}",
        ),
        (
            "TOPK.RESERVE # 100 10000 5 0.9",
            "TOPK.ADD # {i}",
            "TOPK.INCRBY # {p}",
        ),
    ];
    let line = |template: &str, n: usize, numbers: &mut dyn Iterator<Item = usize>| {
        let items: Vec<String> = numbers.map(|n| format!("i{n}")).collect();
        let pairs: Vec<String> = items.iter().map(|item| format!("{item} 1")).collect();
        let line = template.replace('#', &format!("k{n}"));
        line.replace("{i}", &items.join(" "))
            .replace("{p}", &pairs.join(" "))
    };
    let server = chilled(COLD, |conn| {
        for (n, (create, add, _)) in COMMANDS.iter().enumerate() {
            conn.must(&line(create, n, &mut std::iter::empty()));
            for from in (0..10_000).step_by(100) {
                conn.must(&line(add, n, &mut (from..from + 100)));
            }
        }
    });
    let mut conn = server.connect();
    let rounds = |conn: &mut Conn| conn.info_number("rocksdb", "total_parked_commands");
    for (n, (_, _, tried)) in COMMANDS.iter().enumerate() {
        let line = line(tried, n, &mut (0..50).map(|n| n * 197));
        let before = rounds(&mut conn);
        let replies = conn.must(&line);
        assert_eq!(replies.items().len(), 50, "{line}");
        // The key, then what its value says.
        let took = rounds(&mut conn) - before;
        assert!((1..=3).contains(&took), "{took} rounds for {line}");
    }
    assert_eq!(reads_of_io_threads(&mut conn), 0);
}

/// How many blocks are read from the disk for each of a hundred commands.
fn reads_per_command(conn: &mut Conn, line: &str, from: usize) -> f64 {
    let reads = |conn: &mut Conn| conn.info_number("rocksdb", "disk_reads");
    let before = reads(conn);
    for n in from..from + 100 {
        // Blocks hold four keys, which are read by none of the other commands.
        let line = line.replace('#', &(n * 8).to_string());
        assert_eq!(conn.cmd(&line).error(), None, "{line}");
    }
    (reads(conn) - before) as f64 / 100.0
}

/// How many blocks commands on cold keys read, each on keys of its own; the first hundred were read.
fn reads_of_commands(conn: &mut Conn) -> [(&'static str, f64); 5] {
    let lines = [
        "GET key:#",
        "SET key:# x",
        "EXISTS key:#",
        "TTL key:#",
        "DEL key:#",
    ];
    let mut from = 0;
    lines.map(|line| {
        from += 100;
        (line, reads_per_command(conn, line, from))
    })
}

#[test]
fn cold_keys_cost_one_read_and_missing_ones_none() {
    let flags = [COLD, &["--maxmemory", "128mb", "--row-cache-share", "0"]].concat();
    let server = chilled(&flags, |conn| fill(conn, 8000));
    let mut conn = server.connect();
    // Filters and indexes of all tables come into memory with the first reads.
    reads_per_command(&mut conn, "GET key:#", 0);
    for (line, reads) in reads_of_commands(&mut conn) {
        assert!((0.9..1.1).contains(&reads), "{line}: {reads} reads");
    }
    for line in [
        "GET none:#",
        "SET new:# x",
        "EXISTS none:#",
        "SADD set:# a",
        "DEL none:#",
    ] {
        let reads = reads_per_command(&mut conn, line, 0);
        assert!(reads < 0.1, "{line}: {reads} reads");
    }
}

/// Values in the value log cost a read, if the page cache lacks them, and their rows are many to a block.
#[test]
fn cold_keys_with_values_in_the_value_log_cost_no_read_but_of_the_value() {
    let flags = [
        "--maxmemory",
        "128mb",
        "--row-cache-share",
        "0",
        "--rocksdb.direct-reads",
        "yes",
        "--enable-debug-command",
        "yes",
        "--value-log-packed-min",
        "0",
    ];
    let server = chilled(&flags, |conn| fill(conn, 8000));
    let mut conn = server.connect();
    reads_per_command(&mut conn, "GET key:#", 0);
    for (line, reads) in reads_of_commands(&mut conn) {
        let most = if line.starts_with("GET") { 1.3 } else { 0.3 };
        assert!(reads < most, "{line}: {reads} reads");
    }
}

/// Clients disappear, are killed, or stop waiting, and the server stops, while reads are under way.
#[test]
fn clients_and_servers_may_end_while_reads_are_under_way() {
    let flags = [COLD, &["--timeout", "1"]].concat();
    let mut server = chilled(&flags, |conn| {
        fill(conn, 6000);
        conn.must("SET kept 1");
    });
    for round in 0..3 {
        let over = AtomicBool::new(false);
        let mut control = server.connect();
        delay(&mut control, 20);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let Ok(mut conn) = Conn::open(&server.address()) else {
                            return;
                        };
                        conn.set_timeout(Duration::from_secs(30));
                        for _ in 0..fastrand::usize(1..20) {
                            let n = fastrand::usize(..6000);
                            let line = match fastrand::u8(..5) {
                                0 => format!("GET key:{n}"),
                                1 => format!("SETRANGE key:{n} 100 x"),
                                2 => format!("MGET key:{n} key:{} key:1", n / 2),
                                3 => format!("BLPOP list:{n} key:{n} 0.05"),
                                _ => format!("EVAL return#redis.call('get',KEYS[1]) 1 key:{n}"),
                            };
                            if conn.send(&args(&line)).is_err() {
                                break;
                            }
                        }
                        // Half of the clients read a reply before they go.
                        if fastrand::bool() {
                            let _ = conn.read();
                        }
                    }
                });
            }
            for _ in 0..40 {
                let clients = control.cmd("CLIENT LIST TYPE normal").text();
                let ids = clients
                    .lines()
                    .filter_map(|line| line.split(['=', ' ']).nth(1));
                if let Some(id) = ids.max() {
                    // It may be gone already, or be this client.
                    control.cmd(&format!("CLIENT KILL ID {id} SKIPME yes"));
                }
                wait_for("parked commands", || parked(&mut control) > 0);
            }
            match round {
                0 => assert_eq!(control.must("GET kept"), Value::bulk("1")),
                // Their reads end with the server.
                1 => drop(control.send(&args("SHUTDOWN"))),
                _ => server.signal("TERM"),
            }
            over.store(true, Ordering::Relaxed);
        });
        if round > 0 {
            assert!(server.wait_exit().success());
            server.spawn();
        }
        let mut conn = server.connect();
        delay(&mut conn, 0);
        wait_for("no parked command", || parked(&mut conn) == 0);
        assert_eq!(conn.must("DBSIZE"), Value::Int(6001));
        check(&mut conn).unwrap();
    }
}

/// A replica reads what it needs before it takes locks: its clients do not wait for its disk.
#[test]
fn a_replica_beyond_its_memory_follows_without_reads_of_io_threads() {
    let master = Server::start(&["--enable-debug-command", "yes"]);
    let mut conn = master.connect();
    fill(&mut conn, 4000);
    let mut replica = chilled(COLD, |_| {});
    let follow = format!("REPLICAOF 127.0.0.1 {}", master.port());
    let mut reader = replica.connect();
    reader.must(&follow);
    let keys = Value::Int(4000);
    wait_for("the data set", || reader.must("DBSIZE") == keys);
    reader.must("DEBUG RELOAD");
    replica.restart();
    let mut reader = replica.connect();
    reader.must(&follow);
    for from in (0..4000).step_by(100) {
        let append = |n: usize| args(&format!("APPEND key:{n} y"));
        conn.pipeline(
            &(from..from + 100)
                .step_by(3)
                .map(append)
                .collect::<Vec<_>>(),
        );
        let n = fastrand::usize(..4000);
        assert!(is_value(&reader.must(&format!("GET key:{n}")), n));
    }
    let digest = conn.must("DEBUG DIGEST");
    wait_for("the same data", || reader.must("DEBUG DIGEST") == digest);
    assert!(reader.info_number("rocksdb", "total_parked_reads") > 0);
    assert_eq!(reads_of_io_threads(&mut reader), 0);
    replica.terminate();
}

/// A server for whose threads one of so many look-ups of a row finds it not in memory, if they must
/// not wait.
fn forgetful(one_in: u32) -> Server {
    let mut server = Server::prepare(COLD);
    server
        .env
        .push(("KEDIS_PRETEND_COLD".into(), one_in.to_string()));
    server.spawn();
    server
}

/// Rows may leave memory sooner than their command has run again. After some rounds it runs where
/// it may wait, and holds up nobody there: commands, transactions, scripts, clients that wait for
/// keys, expiry, and what a replica receives.
#[test]
fn misses_that_repeat_end() {
    let (master, replica) = (forgetful(1), forgetful(1));
    let (mut conn, mut on_replica) = (master.connect(), replica.connect());
    on_replica.must(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    for n in 0..50 {
        conn.must(&format!("HSET hash f{n} {n}"));
        conn.must(&format!("SET short{n} 1 PX 300"));
        conn.must(&format!("HSET times f{n} {n}"));
        conn.must(&format!("HPEXPIRE times 300 FIELDS 1 f{n}"));
    }
    assert_eq!(conn.must("HGETALL hash").items().len(), 100);
    conn.must("WATCH hash");
    for line in [
        "MULTI",
        "HLEN hash",
        "CONFIG SET hz 10",
        "HINCRBY hash f1 5",
        "EXEC",
    ] {
        conn.must(line);
    }
    assert_eq!(conn.must("HGET hash f1"), Value::bulk("6"));
    let script = "return{redis.call('hlen','hash'),redis.call('incr','n')}";
    let replies = conn.must(&format!("EVAL {script} 0"));
    assert_eq!(replies.items(), [Value::Int(50), Value::Int(1)]);
    let mut waiter = master.connect();
    waiter.send(&args("BLMOVE from to LEFT RIGHT 0")).unwrap();
    wait_for("a waiting client", || {
        conn.info_number("clients", "blocked_clients") == 1
    });
    assert_eq!(conn.must("RPUSH from a"), Value::Int(1));
    assert_eq!(waiter.read().unwrap(), Value::bulk("a"));
    // Of the expire thread.
    wait_for("the end of the keys", || {
        conn.must("DBSIZE") == Value::Int(3)
    });
    wait_for("the replica", || on_replica.must("DBSIZE") == Value::Int(3));
    let mut reader = replica.connect();
    reader
        .send(&args("XREAD BLOCK 0 STREAMS stream $"))
        .unwrap();
    wait_for("a waiting client", || {
        on_replica.info_number("clients", "blocked_clients") == 1
    });
    conn.must("XADD stream 1-1 f v");
    assert_eq!(reader.read().unwrap().items().len(), 1);
    let digest = conn.must("DEBUG DIGEST");
    wait_for("the same data", || {
        on_replica.must("DEBUG DIGEST") == digest
    });
    for conn in [&mut conn, &mut on_replica] {
        assert_eq!(reads_of_io_threads(conn), 0);
        check(conn).unwrap();
    }
}

/// The thread that writes a key serves the clients that wait for it, and must not wait for what
/// these need.
#[test]
fn every_waiting_client_is_served_whatever_leaves_memory() {
    let server = forgetful(3);
    let mut conn = server.connect();
    conn.must("RPUSH to 0");
    let mut waiters: Vec<Conn> = Vec::new();
    for n in 1..=200u64 {
        let mut waiter = server.connect();
        waiter.send(&args("BLMOVE from to LEFT RIGHT 0")).unwrap();
        wait_for("a waiting client", || {
            conn.info_number("clients", "blocked_clients") == n
        });
        waiters.push(waiter);
    }
    for n in 0..200 {
        conn.must(&format!("RPUSH from {n}"));
    }
    let served = |waiter: &mut Conn| waiter.read().unwrap().text().parse().unwrap();
    let mut served: Vec<u32> = waiters.iter_mut().map(served).collect();
    served.sort_unstable();
    assert_eq!(served, (0..200).collect::<Vec<_>>());
    assert_eq!(conn.must("LLEN to"), Value::Int(201));
    assert_eq!(reads_of_io_threads(&mut conn), 0);
}

/// What a long transaction has to report once filled the record of its thread, which then read what
/// it still lacked itself.
#[test]
fn a_transaction_with_much_to_report_leaves_its_reads_to_others() {
    let server = chilled(
        &[COLD, &["--slowlog-log-slower-than", "0"]].concat(),
        |conn| {
            fill(conn, 3000);
            conn.must("SET hot 1");
        },
    );
    let (mut conn, mut monitor) = (server.connect(), server.connect());
    monitor.must("MONITOR");
    conn.must("MULTI");
    let mut queue: Vec<_> = (0..1500).map(|_| args("INCR hot")).collect();
    queue.extend(
        (0..3000)
            .step_by(100)
            .map(|n| args(&format!("GET key:{n}"))),
    );
    conn.pipeline(&queue);
    let replies = conn.must("EXEC");
    assert_eq!(replies.items()[1499], Value::Int(1501));
    for (n, reply) in (0..3000).step_by(100).zip(&replies.items()[1500..]) {
        assert!(is_value(reply, n));
    }
    assert_eq!(reads_of_io_threads(&mut conn), 0);
    let calls = conn.info_text("commandstats", "cmdstat_incr");
    assert!(calls.starts_with("calls=1500,"), "{calls}");
    conn.must("SET end 1");
    let mut shown = 0;
    loop {
        let line = monitor.read().unwrap().text();
        shown += usize::from(line.contains("\"INCR\""));
        if line.contains("\"end\"") {
            break;
        }
    }
    assert_eq!(shown, 1500);
}

/// Whether a watched key came with the other DB is looked up after the command. Transactions
/// failed without a cause when that was not in memory.
#[test]
fn a_swap_of_dbs_fails_only_the_transactions_that_watch_what_changed() {
    let (master, replica) = (forgetful(1), forgetful(1));
    let (mut conn, mut on_replica) = (master.connect(), replica.connect());
    on_replica.must(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    conn.must("SELECT 2");
    conn.must("SET there 1");
    conn.must("SELECT 0");
    // A full sync after WATCH would fail every transaction.
    on_replica.must("SELECT 2");
    wait_for("the key on the replica", || {
        on_replica.must("EXISTS there") == Value::Int(1)
    });
    let swaps = [
        "SWAPDB 1 2",
        "EVAL return{redis.call('SWAPDB',2,1)} 0",
        "MULTI|SWAPDB 1 2|EXEC",
        "SWAPDB 2 1",
    ];
    for (round, swap) in swaps.into_iter().enumerate() {
        // The DB without the key.
        let empty = 1 + round % 2;
        for server in [&master, &replica] {
            wait_for("the swaps before", || {
                let mut reader = server.connect();
                reader.must(&format!("SELECT {empty}"));
                reader.must("EXISTS there") == Value::Int(0)
            });
        }
        let mut watchers = Vec::new();
        for server in [&master, &replica] {
            for (key, fails) in [("there", true), ("absent", false)] {
                let mut watcher = server.connect();
                watcher.must(&format!("SELECT {empty}"));
                watcher.must(&format!("WATCH {key}"));
                watchers.push((watcher, server, key, fails));
            }
        }
        swap.split('|').for_each(|line| drop(conn.must(line)));
        for (mut watcher, server, key, fails) in watchers {
            wait_for("the swap", || {
                let mut reader = server.connect();
                reader.must(&format!("SELECT {empty}"));
                reader.must("EXISTS there") == Value::Int(1)
            });
            watcher.must("MULTI");
            watcher.must("PING");
            let ran = matches!(watcher.cmd("EXEC"), Value::Array(_));
            assert_eq!(ran, !fails, "{swap}: {key}");
        }
    }
}
