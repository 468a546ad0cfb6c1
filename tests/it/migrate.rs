//! MIGRATE between processes: to Kedis and to redis-server, with targets that refuse, hang or
//! are missing, and with concurrent writers, whose writes must not be lost.

use crate::support::conn::args;
use crate::support::server::free_port;
use crate::support::{Conn, DEADLINE, Server, Value, oracle, wait_for, wait_within};
use std::time::{Duration, Instant};

fn migrate(target: &Server, rest: &str) -> String {
    format!("MIGRATE 127.0.0.1 {} {rest}", target.port())
}

fn error(reply: &Value) -> String {
    match reply {
        Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("no error: {other:?}"),
    }
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

#[test]
fn keys_move_to_kedis_and_to_redis() {
    for target in [Server::start(&[]), oracle(&[])] {
        let source = Server::start(&["--enable-debug-command", "yes"]);
        let mut here = source.connect();
        let mut there = target.connect();
        there.must("SELECT 9");
        here.must("SET s value");
        here.must("PEXPIREAT s 32503680000000");
        here.must("RPUSH l a b c");
        here.must("HSET h f v");
        here.must("ZADD z 1.5 m");
        assert_eq!(here.must(&migrate(&target, "s 9 5000")), ok());
        assert_eq!(here.must("EXISTS s"), Value::Int(0));
        assert_eq!(there.must("GET s"), Value::Bulk(b"value".to_vec()));
        let at = there.must("PEXPIRETIME s");
        assert!(
            matches!(at, Value::Int(ms) if ms.abs_diff(32_503_680_000_000) < 1_000),
            "{at:?}"
        );

        assert_eq!(here.must(&migrate(&target, "l 9 5000 COPY")), ok());
        assert_eq!(here.must("LLEN l"), Value::Int(3));
        let busy = error(&here.cmd(&migrate(&target, "l 9 5000")));
        assert_eq!(
            busy,
            "ERR Target instance replied with error: BUSYKEY Target key name already exists."
        );
        let words = migrate(&target, "@ 9 5000 REPLACE KEYS l none h z l");
        let words = words.replace(" @ ", "  ");
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        here.send(&words).unwrap();
        // The next request runs only after the reply to MIGRATE.
        here.send(&[b"DBSIZE"]).unwrap();
        assert_eq!(here.read().unwrap(), ok());
        assert_eq!(here.read().unwrap(), Value::Int(0));
        assert_eq!(there.must("DBSIZE"), Value::Int(4));
        assert_eq!(there.must("ZSCORE z m"), Value::Bulk(b"1.5".to_vec()));

        here.must("SET s again");
        let refused = error(&here.cmd(&migrate(&target, "s 99 5000")));
        assert!(
            refused.starts_with("ERR Target instance replied with error: ERR DB"),
            "{refused}"
        );
        let refused = error(&here.cmd(&migrate(&target, "s 9 5000 AUTH secret REPLACE")));
        assert!(refused.contains("AUTH"), "{refused}");
        assert_eq!(here.must("EXISTS s"), Value::Int(1));
        here.must("DEBUG KEDIS-CHECK");
        assert_eq!(
            error(&here.cmd(&format!("MIGRATE 127.0.0.1 {} s 0 300", *free_port()))),
            "IOERR error or timeout connecting to the client"
        );
        // A cached connection that the target closed meanwhile.
        there.must("CLIENT KILL TYPE normal SKIPME yes");
        assert_eq!(here.must(&migrate(&target, "s 9 5000 REPLACE")), ok());
    }
}

/// A RESTORE after a failed SELECT or AUTH would run in another DB, or as another user, than
/// the request names.
#[test]
fn nothing_is_sent_before_the_target_has_agreed_to_user_and_db() {
    const PASSWORD: &str = "secret";
    for password in [&[][..], &["--requirepass", PASSWORD]] {
        for target in [Server::start(password), oracle(password)] {
            let source = Server::start(&[]);
            let (mut here, mut there) = (source.connect(), target.connect());
            if !password.is_empty() {
                there.must(&format!("AUTH {PASSWORD}"));
            }
            here.must("MSET a 1 b 2 pre:1 1 pre:2 2");
            let mut refusals = vec!["a 0 5000 AUTH wrong REPLACE", "a 0 5000 AUTH2 no user COPY"];
            match password.is_empty() {
                true => refusals.extend(["a 99 5000", "a -1 5000 COPY", "pre: 99 5000 USE_PREFIX"]),
                false => refusals.extend([
                    "a 0 5000",
                    "a 99 5000 AUTH secret",
                    "pre: 0 5000 USE_PREFIX",
                    "pre: 0 5000 USE_PREFIX AUTH wrong",
                ]),
            }
            for rest in refusals {
                // Over a new connection, and over a cached one.
                for _ in 0..2 {
                    let refused = error(&here.cmd(&migrate(&target, rest)));
                    let expected = "ERR Target instance replied with error: ";
                    assert!(refused.starts_with(expected), "{rest}: {refused}");
                }
                let ran = there.must("INFO commandstats").text();
                assert!(!ran.contains("cmdstat_restore"), "{rest}: {ran}");
                assert_eq!(here.must("DBSIZE"), Value::Int(4), "{rest}");
            }
            let words = match password.is_empty() {
                true => "a 3 5000",
                false => "a 3 5000 AUTH secret",
            };
            assert_eq!(here.must(&migrate(&target, words)), ok());
            there.must("SELECT 3");
            assert_eq!(there.must("GET a"), Value::bulk("1"));
        }
    }
}

#[test]
fn a_target_that_hangs_holds_up_nobody_but_writers_of_the_key() {
    let target = Server::start(&[]);
    let source = Server::start(&["--io-threads", "1"]);
    let mut mover = source.connect();
    let mut writer = source.connect();
    let mut other = source.connect();
    mover.must("SET counter 5");
    target.signal("STOP");
    let line = migrate(&target, "counter 0 5000");
    mover.send(&args(&line)).unwrap();
    let blocked = |other: &mut Conn, command: &str| {
        let Value::Bulk(list) = other.must("CLIENT LIST") else {
            return false;
        };
        let list = String::from_utf8_lossy(&list).into_owned();
        let mut lines = list.lines();
        lines.any(|line| line.contains(" flags=b ") && line.contains(&format!(" cmd={command} ")))
    };
    wait_for("the move", || blocked(&mut other, "migrate"));
    writer.send(&args("INCR counter")).unwrap();
    // Other commands run on the same thread while the target hangs; the increment waits for
    // the end of MIGRATE.
    for n in 0..50 {
        other.must(&format!("SET other {n}"));
        assert_eq!(other.must("GET counter"), Value::Bulk(b"5".to_vec()));
    }
    let failed = error(&mover.read().unwrap());
    assert!(failed.starts_with("IOERR error or timeout"), "{failed}");
    // The key stayed, and the increment ran afterwards.
    assert_eq!(writer.read().unwrap(), Value::Int(6));
    target.signal("CONT");
    assert!(wait_within(DEADLINE, || target.connect().cmd("PING")
        == Value::Simple(b"PONG".to_vec())));

    // The other outcome: the key is gone when the increment runs.
    let line = migrate(&target, "counter 0 20000 REPLACE");
    target.signal("STOP");
    mover.send(&args(&line)).unwrap();
    wait_for("the move", || blocked(&mut other, "migrate"));
    writer.send(&args("INCR counter")).unwrap();
    wait_for("the increment to wait", || blocked(&mut other, "incr"));
    target.signal("CONT");
    assert_eq!(mover.read().unwrap(), ok());
    assert_eq!(writer.read().unwrap(), Value::Int(1));
    assert_eq!(
        target.connect().must("GET counter"),
        Value::Bulk(b"6".to_vec())
    );
}

/// A counter moves back and forth while clients increment it: the acknowledged increments add
/// up.
#[test]
fn no_acknowledged_write_is_lost() {
    let servers = [Server::start(&[]), Server::start(&[])];
    let end = Instant::now() + Duration::from_millis(1500);
    let counted: i64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let mut conn = servers[n % 2].connect();
                scope.spawn(move || {
                    let mut acknowledged = 0;
                    while Instant::now() < end {
                        conn.must("HINCRBY total n 1");
                        acknowledged += 1;
                    }
                    acknowledged
                })
            })
            .collect();
        let mut conns = [servers[0].connect(), servers[1].connect()];
        let mut arrived = 0;
        while Instant::now() < end {
            for (conn, other) in conns.iter_mut().zip([1, 0]) {
                // `arrived` collects the sums that were moved to DB 1 of the target.
                let moved = conn.cmd(&migrate(&servers[other], "total 1 5000"));
                if moved == ok() {
                    let mut there = servers[other].connect();
                    there.must("SELECT 1");
                    let Value::Bulk(sum) = there.must("HGET total n") else {
                        panic!("nothing arrived");
                    };
                    arrived += String::from_utf8_lossy(&sum).parse::<i64>().unwrap();
                    there.must("DEL total");
                }
            }
        }
        let acknowledged: i64 = writers.into_iter().map(|w| w.join().unwrap()).sum();
        assert!(arrived > 0);
        acknowledged - arrived
    });
    let left: i64 = servers
        .iter()
        .map(|server| match server.connect().must("HGET total n") {
            Value::Bulk(sum) => String::from_utf8_lossy(&sum).parse::<i64>().unwrap(),
            _ => 0,
        })
        .sum();
    assert_eq!(left, counted);
}

#[test]
fn keys_of_a_prefix_move_together() {
    for target in [Server::start(&[]), oracle(&[])] {
        let source = Server::start(&["--enable-debug-command", "yes"]);
        let mut here = source.connect();
        let mut there = target.connect();
        for n in 0..1000 {
            here.must(&format!("SET user:{n} {n}"));
        }
        here.must("MSET use 1 user; 2 vuser:1 3");
        here.must("RPUSH user:list a b");
        let none = migrate(&target, "nobody: 0 5000 USE_PREFIX");
        assert_eq!(here.must(&none), Value::Simple(b"NOKEY".to_vec()));
        let copy = migrate(&target, "user: 0 5000 COPY use_prefix");
        assert_eq!(here.must(&copy), ok());
        assert_eq!(here.must("DBSIZE"), Value::Int(1004));
        assert_eq!(there.must("DBSIZE"), Value::Int(1001));
        let busy = error(&here.cmd(&migrate(&target, "user: 0 5000 USE_PREFIX")));
        assert!(busy.contains("BUSYKEY"), "{busy}");
        let moved = migrate(&target, "user: 0 5000 REPLACE USE_PREFIX");
        assert_eq!(here.must(&moved), ok());
        assert_eq!(here.must("DBSIZE"), Value::Int(3));
        assert_eq!(there.must("DBSIZE"), Value::Int(1001));
        assert_eq!(there.must("GET user:999"), Value::Bulk(b"999".to_vec()));
        here.must("DEBUG KEDIS-CHECK");
    }
}
