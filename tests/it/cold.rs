//! Data that are not in memory: commands wait for them without holding up others.

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

/// Commands on collections, strings and streams, each on keys of its own. `#` is the number of
/// the command.
const COMMANDS: &[&str] = &[
    "GET s#",
    "STRLEN s#",
    "GETRANGE s# 10 20",
    "SETRANGE s# 5000 abc",
    "APPEND s# abc",
    "GETSET s# abc",
    "GETDEL s#",
    "GETEX s# PERSIST",
    "SET s# abc KEEPTTL GET",
    "SET s# abc NX",
    "INCR n#",
    "INCRBYFLOAT n# 1.5",
    "INCREX n# BYINT 2 EX 1000",
    "SET s# abc IFNE abc KEEPTTL",
    "DELEX s# IFDNE 0000000000000000",
    "DELIFEQ s# abc",
    "DIGEST s#",
    "BITCOUNT b#",
    "SETBIT b# 200001 1",
    "BITOP NOT o# b#",
    "BITOP ONE o# b# s#",
    "BITOP DIFF o# b# s#",
    "BITFIELD b# INCRBY u8 100 1",
    "PFADD p# 1 2 3",
    "PFCOUNT p#",
    "GETRANGE b# 30000 30010",
    "EXISTS s# h# missing",
    "TYPE h#",
    "TTL s#",
    "EXPIRE h# 1000",
    "PERSIST t#",
    "OBJECT ENCODING l#",
    "RENAME h# r#",
    "COPY h# c#",
    "DEL h#",
    "UNLINK z# l#",
    "DUMP z#",
    "SORT m# BY w* GET w*",
    "SORT l# ALPHA LIMIT 0 5",
    "HGET h# f77",
    "HMGET h# f1 f50 f99 none",
    "HGETALL h#",
    "HSET h# f7 a f8 b new c",
    "HSETNX h# f7 a",
    "HINCRBY h# counter 5",
    "HDEL h# f1 f2 none",
    "HLEN h#",
    "HSTRLEN h# f5",
    "HSCAN h# 0 COUNT 500",
    "HEXISTS h# f7",
    "LLEN l#",
    "LINDEX l# 50",
    "LRANGE l# 10 20",
    "LRANGE l# 0 -1",
    "LPUSH l# a b",
    "RPOP l# 3",
    "LSET l# 30 x",
    "LINSERT l# BEFORE item40 x",
    "LREM l# 1 item60",
    "LTRIM l# 10 30",
    "LPOS l# item70",
    "LMOVE l# o# LEFT RIGHT",
    "LMOVEM l# o# LEFT LEFT COUNT 20 BULK",
    "BLMOVEM l# l# LEFT RIGHT 0 EXACTLY 3 OBO",
    "BLPOP l# 0",
    "BLMOVE l# m# LEFT LEFT 0",
    "SADD e# m1 new1",
    "SISMEMBER e# m50",
    "SMISMEMBER e# m1 m2 none",
    "SREM e# m1 m2",
    "SCARD e#",
    "SSCAN e# 0 COUNT 500",
    "SINTER e# f#",
    "SINTERCARD 2 e# f#",
    "SUNIONCARD 2 e# f#",
    "SDIFFCARD 2 e# f# LIMIT 3",
    "SUNIONSTORE o# e# f#",
    "SDIFF e# f#",
    "SMOVE e# f# m70",
    "ZADD z# 5 m1 6 new",
    "ZSCORE z# m50",
    "ZMSCORE z# m1 m99 none",
    "ZINCRBY z# 3 m20",
    "ZRANK z# m20",
    "ZREVRANK z# m20",
    "ZCOUNT z# 10 50",
    "ZRANGE z# 10 20 WITHSCORES",
    "ZRANGE z# (10 50 BYSCORE LIMIT 5 5",
    "ZREVRANGE z# 0 5",
    "ZREMRANGEBYRANK z# 0 10",
    "ZREMRANGEBYSCORE z# 50 60",
    "ZPOPMIN z# 2",
    "ZPOPMAX z# 2",
    "ZUNIONSTORE o# 2 z# y#",
    "ZINTER 2 z# y#",
    "ZRANGESTORE o# z# 0 20",
    "XLEN x#",
    "XRANGE x# 10 20",
    "XREVRANGE x# + - COUNT 3",
    "XADD x# 1000-1 a b",
    "XDEL x# 50-1",
    "XTRIM x# MAXLEN 20",
    "XREAD COUNT 5 STREAMS x# 60",
    "XREADGROUP GROUP g c COUNT 5 STREAMS x# >",
    "XPENDING x# g",
    "XACK x# g 1-1 2-1",
    "XINFO STREAM x#",
    "EVAL return{redis.call('get',KEYS[1]),redis.call('hget',KEYS[2],'f9')} 2 s# h#",
    "EVAL return{redis.call('incr',KEYS[1]),redis.call('zscore',KEYS[2],'m9')} 2 n# z#",
    "MGET s# t# n# missing",
    "MSET s# a t# b",
    "MSETNX s# a new# b",
    "MSETEX 2 s# a t# b XX KEEPTTL",
    "WATCH s# h#",
    "TOUCH s# h#",
    "RANDOMKEY",
    "MEMORY USAGE l#",
];

/// Creates the keys of command number `n`.
fn keys_of(n: usize) -> Vec<Vec<Vec<u8>>> {
    let padding = "p".repeat(100);
    let mut made = vec![
        args(&format!("SET s{n} {}", padding.repeat(30))),
        args(&format!("SET t{n} {padding} EX 100000")),
        args(&format!("SET n{n} 41")),
        args(&format!("SETBIT b{n} 400000 1")),
        args(&format!("PFADD p{n} a b c d")),
        args(&format!("XGROUP CREATE x{n} g 0 MKSTREAM")),
        args(&format!("RPUSH m{n} 3 1 2")),
    ];
    for i in 0..100 {
        made.push(args(&format!("HSET h{n} f{i} {padding}{i}")));
        made.push(args(&format!("RPUSH l{n} item{i} {padding}")));
        made.push(args(&format!("SADD e{n} m{i} {padding}{i}")));
        made.push(args(&format!("SADD f{n} m{i} x{padding}{i}")));
        made.push(args(&format!("ZADD z{n} {i} m{i} {i} {padding}{i}")));
        made.push(args(&format!("ZADD y{n} {i} m{i}")));
        made.push(args(&format!("XADD x{n} {}-1 field {padding}", i + 1)));
    }
    made.push(args(&format!(
        "XREADGROUP GROUP g c COUNT 10 STREAMS x{n} >"
    )));
    made
}

/// Every command on keys that are not in memory answers as on keys that are, and no IO thread
/// reads from the disk for it.
#[test]
fn commands_answer_the_same_and_no_io_thread_reads_the_disk() {
    let load = |conn: &mut Conn| {
        for n in 0..COMMANDS.len() {
            conn.pipeline(&keys_of(n));
        }
    };
    let in_memory = Server::start(&[]);
    let mut warm = in_memory.connect();
    load(&mut warm);
    let server = chilled(COLD, load);
    let mut cold = server.connect();
    for (n, line) in COMMANDS.iter().enumerate() {
        let line = line.replace('#', &n.to_string());
        let (found, expected) = (cold.cmd(&line), warm.cmd(&line));
        if line == "RANDOMKEY" {
            continue;
        }
        let sorted = |reply: &Value| match reply {
            // The order of members depends on a hash key of each server.
            Value::Array(items) if line.contains('h') || line.contains('e') => {
                let mut texts: Vec<String> = items.iter().map(|v| format!("{v:?}")).collect();
                texts.sort();
                format!("{texts:?}")
            }
            reply => format!("{reply:?}"),
        };
        let same_size = |reply: &Value| format!("{reply:?}").len();
        let alike = match line.split(' ').next() {
            Some("HSCAN" | "SSCAN" | "MEMORY" | "DUMP" | "XINFO") => {
                same_size(&found).abs_diff(same_size(&expected)) < 200
            }
            _ => sorted(&found) == sorted(&expected),
        };
        assert!(alike, "{line}: {found:?} instead of {expected:?}");
    }
    assert!(cold.info_number("rocksdb", "total_parked_commands") > COMMANDS.len() as u64 / 2);
    assert_eq!(reads_of_io_threads(&mut cold), 0);
    assert!(check(&mut cold).is_ok());
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

#[test]
fn cold_keys_cost_one_read_and_missing_ones_none() {
    let flags = [COLD, &["--maxmemory", "128mb", "--row-cache-share", "0"]].concat();
    let server = chilled(&flags, |conn| fill(conn, 8000));
    let mut conn = server.connect();
    // Filters and indexes of all tables come into memory with the first reads.
    reads_per_command(&mut conn, "GET key:#", 0);
    let lines = [
        "GET key:#",
        "SET key:# x",
        "EXISTS key:#",
        "TTL key:#",
        "DEL key:#",
    ];
    for (n, line) in lines.iter().enumerate() {
        let reads = reads_per_command(&mut conn, line, (n + 1) * 100);
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
