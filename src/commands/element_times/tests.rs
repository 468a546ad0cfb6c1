//! Commands on times of hash fields as clients see them, in both forms of a hash.

mod members;

use crate::base::time::UnixMs;
use crate::exec::testing::{Client, START_MS, check};
use crate::resp::Value;
use crate::storage::{DbIndex, Txn};

/// Clients of servers that hold small hashes in one row, and in rows of their own.
fn clients() -> [Client; 2] {
    [
        Client::new(),
        Client::with(|storage| storage.packed_max_entries = 0),
    ]
}

/// What the expire thread does at this time.
fn expire(client: &Client, now_ms: UnixMs, limit: usize) -> usize {
    let mut txn = Txn::new(client.server().engine.clone());
    let mut removed = 0;
    // What is in one row goes at once.
    let row = client.server().engine.config.packed_max_entries.max(1);
    let Some(mut pass) = txn.begin_element_expire(DbIndex(0), now_ms) else {
        return 0;
    };
    loop {
        let slice = txn.element_expire_slice(&mut pass, limit).unwrap();
        assert!(slice.removed < limit + row);
        removed += slice.removed;
        if !slice.more {
            break;
        }
    }
    txn.end_element_expire(pass);
    removed
}

#[test]
fn times_are_set_read_and_taken_away() {
    for mut client in clients() {
        check(
            &mut client,
            &[
                ("hset h a 1 b 2 c 3", "3"),
                ("httl h fields 2 a x", "[-1 -2]"),
                ("hexpire h 100 fields 3 a b x", "[1 1 -2]"),
                ("httl h fields 3 a b c", "[100 100 -1]"),
                ("hpttl h fields 1 a", "[100000]"),
                ("hexpiretime h fields 1 a", "[1800000100]"),
                ("hpexpiretime h fields 1 a", "[1800000100000]"),
                ("hpexpire h 5001 nx fields 2 a c", "[0 1]"),
                ("httl h fields 1 c", "[6]"),
                ("hexpire h 50 gt fields 2 a c", "[0 1]"),
                ("hexpire h 200 xx fields 2 a x", "[1 -2]"),
                ("hexpire h 150 lt fields 2 a b", "[1 0]"),
                ("hpersist h fields 3 a b x", "[1 1 -2]"),
                ("hpersist h fields 2 a c", "[-1 1]"),
                ("httl h fields 3 a b c", "[-1 -1 -1]"),
                ("hexpire h 10 gt fields 1 a", "[0]"),
                ("hexpire h 10 lt fields 1 a", "[1]"),
                ("hset h a 5", "0"),
                ("httl h fields 1 a", "[-1]"),
                ("hexpire h 10 fields 1 a", "[1]"),
                ("hincrby h a 2", "7"),
                ("hincrbyfloat h a 0.5", "7.5"),
                ("hsetnx h a 1", "0"),
                ("httl h fields 1 a", "[10]"),
                ("copy h copied", "1"),
                ("rename copied renamed", "OK"),
                ("httl renamed fields 2 a b", "[10 -1]"),
                ("move renamed 1", "1"),
                ("hexpire h 0 fields 3 a b c", "[2 2 2]"),
                ("exists h", "0"),
                ("hexpire h 10 fields 2 a b", "[-2 -2]"),
            ],
        );
        client.check();
    }
}

#[test]
fn values_are_read_and_written_with_times() {
    for mut client in clients() {
        check(
            &mut client,
            &[
                ("hsetex h ex 10 fields 2 a 1 b 2", "1"),
                ("httl h fields 2 a b", "[10 10]"),
                ("hsetex h keepttl fields 2 a 3 c 4", "1"),
                ("httl h fields 3 a b c", "[10 10 -1]"),
                ("hsetex h fields 1 a 5", "1"),
                ("httl h fields 1 a", "[-1]"),
                ("hsetex h fnx fields 2 x 1 a 1", "0"),
                ("hsetex h nx fields 1 a 1", "0"),
                ("hsetex none xx fields 1 a 1", "0"),
                ("hsetex h fxx fields 2 x 1 a 1", "0"),
                ("hsetex h fxx px 1500 fields 2 a 6 b 7", "1"),
                ("hpttl h fields 2 a b", "[1500 1500]"),
                ("hgetex h fields 3 a b x", "[6 7 nil]"),
                ("hgetex h persist fields 2 a x", "[6 nil]"),
                ("hgetex h exat 1800000020 fields 2 a c", "[6 4]"),
                ("httl h fields 3 a b c", "[20 2 20]"),
                ("hgetex h pxat 1 fields 1 c", "[4]"),
                ("hgetdel h fields 3 a c a", "[6 nil nil]"),
                ("hgetall h", "[b 7]"),
                ("hsetex h pxat 1 fields 2 b 1 new 1", "1"),
                ("exists h", "0"),
                ("hsetex h pxat 1 fields 1 b 1", "1"),
                ("exists h", "0"),
                ("hgetdel h fields 1 b", "[nil]"),
                ("hgetex h ex 10 fields 2 b c", "[nil nil]"),
            ],
        );
        client.check();
    }
}

/// Each command that reads or writes fields, from the millisecond on in which the time is over,
/// before the expire thread has removed anything.
#[test]
fn a_field_whose_time_is_over_is_as_if_it_were_absent() {
    for mut client in clients() {
        client.run("hset h a 1 b 2 c 3 d 4 e 5 f 6");
        client.run("hpexpire h 100 fields 5 a b d e f");
        client.advance_ms(99);
        check(&mut client, &[("hlen h", "6"), ("hget h a", "1")]);
        client.advance_ms(1);
        check(
            &mut client,
            &[
                ("hlen h", "1"),
                ("hget h a", "nil"),
                ("hmget h a c", "[nil 3]"),
                ("hexists h a", "0"),
                ("hstrlen h a", "0"),
                ("hgetall h", "[c 3]"),
                ("hkeys h", "[c]"),
                ("hvals h", "[3]"),
                ("hscan h 0", "[0 [c 3]]"),
                ("hrandfield h", "c"),
                ("hrandfield h 5", "[c]"),
                ("hrandfield h -3", "[c c c]"),
                ("httl h fields 2 a c", "[-2 -1]"),
                ("hexpire h 10 fields 1 a", "[-2]"),
                ("hpersist h fields 1 a", "[-2]"),
                ("hgetex h persist fields 1 a", "[nil]"),
                ("hgetdel h fields 1 a", "[nil]"),
                ("hsetex h fxx fields 1 a 1", "0"),
                ("hdel h a", "0"),
                ("hincrby h b 5", "5"),
                ("hsetnx h d 9", "1"),
                ("hsetex h fnx fields 1 e 8", "1"),
                ("hset h f 7", "1"),
                ("httl h fields 4 b d e f", "[-1 -1 -1 -1]"),
                ("hlen h", "5"),
            ],
        );
        client.check();
        assert_eq!(expire(&client, START_MS + 100, 8), 0);
    }
}

#[test]
fn a_hash_without_living_fields_is_empty_and_then_gone() {
    for mut client in clients() {
        client.run("hset h a 1 b 2");
        client.run("hpexpire h 100 fields 2 a b");
        client.advance_ms(100);
        check(
            &mut client,
            &[
                ("hlen h", "0"),
                ("hgetall h", "[]"),
                ("hkeys h", "[]"),
                ("hrandfield h", "nil"),
                ("hrandfield h 3", "[]"),
                ("hrandfield h -3", "[]"),
                ("hscan h 0", "[0 []]"),
            ],
        );
        client.check();
        // A command that writes takes what it names along, and the key with the last field.
        let mut other = Client::with(|storage| storage.packed_max_entries = 0);
        for (name, rest) in [
            ("hdel", "a b"),
            ("hgetdel", "fields 2 a b"),
            ("hgetex", "persist fields 2 a b"),
            ("hexpire", "100 fields 2 a b"),
            ("hpersist", "fields 2 a b"),
        ] {
            let logged = other.logged().len();
            other.run("hset h a 1 b 2");
            other.run("hpexpire h 100 fields 2 a b");
            other.advance_ms(100);
            other.run(&format!("{name} h {rest}"));
            check(&mut other, &[("exists h", "0")]);
            assert_eq!(other.logged()[logged + 2], "HDEL h a b", "{name}");
            other.check();
        }
        assert_eq!(expire(&client, START_MS + 99, 8), 0);
        assert_eq!(expire(&client, START_MS + 100, 8), 2);
        check(&mut client, &[("exists h", "0"), ("dbsize", "0")]);
        client.check();
    }
}

/// A payload may bring fields whose time is over: they are not stored, and count as expired.
#[test]
fn fields_that_come_too_late_count_as_expired() {
    for mut client in clients() {
        client.run("hset h stays 1");
        client.run("hsetex h px 10 fields 2 a 1 b 2");
        client.run("hsetex gone px 10 fields 1 a 1");
        let dumped = ["h", "gone"].map(|key| client.run(&format!("dump {key}")));
        client.run("del h gone");
        client.advance_ms(10);
        for payload in dumped {
            client.args(&[
                b"restore",
                b"again",
                b"0",
                payload.as_bytes().unwrap(),
                b"replace",
            ]);
        }
        check(&mut client, &[("exists again", "0")]);
        let stats = client.run("info stats");
        let stats = String::from_utf8_lossy(stats.as_bytes().unwrap()).into_owned();
        assert!(stats.contains("\r\nexpired_subkeys:3\r\n"), "{stats}");
        client.check();
    }
}

/// How many keys of each DB have elements with times, as INFO says under both of its names.
fn timed_keys(client: &mut Client) -> Vec<(u16, u64)> {
    let Value::Bulk(text) = client.run("info keyspace") else {
        panic!("INFO replied no text");
    };
    let text = String::from_utf8(text.to_vec()).unwrap();
    let dbs = text.lines().filter_map(|line| line.strip_prefix("db"));
    dbs.map(|line| {
        let (db, figures) = line.split_once(':').unwrap();
        let [.., of_redis, of_valkey] = figures.split(',').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let count = of_redis.strip_prefix("subexpiry=").unwrap();
        assert_eq!(of_valkey, format!("keys_with_volatile_items={count}"));
        (db.parse().unwrap(), count.parse().unwrap())
    })
    .collect()
}

/// The count follows whatever changes which keys have elements with times.
#[test]
fn keys_that_have_elements_with_times_are_counted() {
    for mut client in clients() {
        client.run("hset none a 1");
        assert_eq!(timed_keys(&mut client), [(0, 0)]);
        for (line, counts) in [
            ("hset h a 1 b 2 c 3", &[(0, 0)][..]),
            ("hexpire h 100 fields 2 a b", &[(0, 1)]),
            ("hexpire h 200 fields 2 b c", &[(0, 1)]),
            ("hpersist h fields 2 a b", &[(0, 1)]),
            ("hset h c 4", &[(0, 0)]),
            ("hsetex h ex 9 fields 1 d 1", &[(0, 1)]),
            ("hdel h d", &[(0, 0)]),
            ("saddex s ex 10 members 1 m", &[(0, 1)]),
            ("hexpire h 10 fields 2 a b", &[(0, 2)]),
            ("copy h copied", &[(0, 3)]),
            ("rename copied h", &[(0, 2)]),
            ("move h 3", &[(0, 1), (3, 1)]),
            ("swapdb 0 3", &[(0, 1), (3, 1)]),
            ("hexpire none 10 fields 1 a", &[(0, 1), (3, 1)]),
            ("copy h other", &[(0, 2), (3, 1)]),
            ("set other text", &[(0, 1), (3, 1)]),
            ("hexpire h 0 fields 2 a b", &[(0, 0), (3, 1)]),
            ("hsetex h ex 9 fields 1 a 1", &[(0, 1), (3, 1)]),
            ("hgetdel h fields 2 a c", &[(0, 0), (3, 1)]),
            ("hsetex h ex 9 fields 1 a 1", &[(0, 1), (3, 1)]),
            ("del h", &[(0, 0), (3, 1)]),
            ("hsetex h ex 9 fields 1 a 1", &[(0, 1), (3, 1)]),
            ("flushdb", &[(3, 1)]),
            ("swapdb 0 3", &[(0, 1)]),
        ] {
            client.run(line);
            assert_eq!(timed_keys(&mut client), counts, "{line}");
            client.check();
        }
        client.run("hsetex h px 10 fields 2 a 1 b 2");
        client.run("hset h stays 1");
        assert_eq!(timed_keys(&mut client), [(0, 2)]);
        client.advance_ms(10_000);
        assert_eq!(expire(&client, START_MS + 10_000, 8), 3);
        assert_eq!(timed_keys(&mut client), [(0, 0)]);
        client.check();
    }
}

/// Fields whose times lie in disorder go in bounded slices, each when its time is over.
#[test]
fn the_expire_thread_takes_fields_in_the_order_of_their_times() {
    const FIELDS: u64 = 500;
    for mut client in clients() {
        for n in 0..FIELDS {
            client.run(&format!("hset h f{n} v{n}"));
            let at = START_MS + 1 + (n * 7919) % FIELDS;
            client.run(&format!("hpexpireat h {} fields 1 f{n}", at.0));
        }
        client.run("hset h stays 1");
        let mut left = FIELDS;
        for at in [1, 2, 100, 250, FIELDS] {
            let removed = expire(&client, START_MS + at, 7) as u64;
            assert_eq!(removed, at + left - FIELDS);
            left -= removed;
            let len = i64::try_from(left + 1).unwrap();
            assert_eq!(client.run("hlen h"), Value::Int(len));
            client.check();
        }
        check(&mut client, &[("hgetall h", "[stays 1]")]);
        assert!(client.server().engine.check().unwrap().faults.is_empty());
    }
}

/// The binlog says what happened in absolute terms, and first which fields were over: a replica
/// removes none by its own clock.
#[test]
fn the_binlog_holds_absolute_effects() {
    for mut client in clients() {
        let mut seen = 0;
        let mut logs = |client: &mut Client, line: &str, want: &[&str]| {
            client.run(line);
            let logged = client.logged();
            assert_eq!(&logged[seen..], want, "{line}");
            seen = logged.len();
        };
        let at = |ms: u64| (START_MS + ms).0;
        logs(
            &mut client,
            "hset h a 1 b 2 c 3 d 4",
            &["hset h a 1 b 2 c 3 d 4"],
        );
        let set = format!("HPEXPIREAT h {} FIELDS 2 a b", at(10));
        logs(&mut client, "hpexpire h 10 fields 3 a b x", &[&set]);
        logs(&mut client, "hpexpire h 10 nx fields 2 a x", &[]);
        logs(&mut client, "httl h fields 1 a", &[]);
        logs(
            &mut client,
            "hpersist h fields 3 b c x",
            &["HPERSIST h FIELDS 1 b"],
        );
        let float = format!("HPEXPIREAT h {} FIELDS 1 a", at(10));
        logs(&mut client, "hincrbyfloat h a 1", &["HSET h a 2", &float]);
        logs(
            &mut client,
            "hsetex h keepttl fields 1 a 3",
            &["HSET h a 3", &float],
        );
        let set = format!("HPEXPIREAT h {} FIELDS 1 b", at(1000));
        logs(
            &mut client,
            "hsetex h ex 1 fields 1 b 5",
            &["HSET h b 5", &set],
        );
        logs(&mut client, "hgetdel h fields 2 d x", &["HDEL h d"]);
        client.advance_ms(10);
        logs(&mut client, "hincrby h a 7", &["HDEL h a", "hincrby h a 7"]);
        logs(&mut client, "hexpire h 0 fields 2 b x", &["HDEL h b"]);
        logs(
            &mut client,
            "hpexpire h 5 fields 1 c",
            &[&format!("HPEXPIREAT h {} FIELDS 1 c", at(15))],
        );
        expire(&client, START_MS + 15, 8);
        assert_eq!(&client.logged()[seen..], ["HDEL h c"]);
        check(&mut client, &[("hgetall h", "[a 7]")]);
        client.check();
    }
}

#[test]
fn errors_have_the_words_of_redis() {
    let mut client = Client::new();
    client.run("hset h a 1");
    client.run("set s 1");
    let miscounted = "-ERR The `numfields` parameter must match the number of arguments";
    let missing = "-ERR Mandatory argument FIELDS is missing or not at the right position";
    let number = "-ERR Parameter `numFields` should be greater than 0";
    let positive = "-ERR Number of fields must be a positive integer";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let arity = "-ERR wrong number of arguments for 'hsetex' command";
    let one_expiry = "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
    check(
        &mut client,
        &[
            ("hexpire h 10 fields 2 a", miscounted),
            ("hexpire h 10 fields 1 a b", miscounted),
            ("hexpire h 10 fields 0 a", number),
            ("hexpire h 10 fields x a", number),
            ("hexpire h 10 nx xx fields 1 a", missing),
            (
                "hexpire h -1 fields 1 a",
                "-ERR invalid expire time, must be >= 0",
            ),
            (
                "hexpire h x fields 1 a",
                "-ERR value is not an integer or out of range",
            ),
            (
                "hpexpireat h 70368744177664 fields 1 a",
                "-ERR invalid expire time in 'hpexpireat' command",
            ),
            (
                "hexpire h 9223372036854775807 fields 1 a",
                "-ERR invalid expire time in 'hexpire' command",
            ),
            ("hexpire s x fields 1 a", wrong_type),
            ("httl s foo 1 a", wrong_type),
            ("httl h foo 1 a", missing),
            ("httl h fields 0 a", positive),
            ("hpersist h fields 1 a b", miscounted),
            ("hgetex h ex 10 px 5 fields 1 a", missing),
            ("hgetex h keepttl fields 1 a", missing),
            (
                "hgetex h ex fields 1 a",
                "-ERR value is not an integer or out of range",
            ),
            ("hgetdel h fields x a", positive),
            ("hgetdel h a 1 c", missing),
            ("hsetex h fields 2 a 1", arity),
            ("hsetex h fields 1 a 1 fnx", arity),
            ("hsetex h fields 0 a 1", "-ERR invalid number of fields"),
            ("hsetex h bad fields 1 a 1", "-ERR unknown argument: bad"),
            (
                "hsetex h fnx fxx fields 1 a 1",
                "-ERR Only one of FXX or FNX arguments can be specified",
            ),
            ("hsetex h ex 1 keepttl fields 1 a 1", one_expiry),
            ("hsetex s fields 1 a 1", wrong_type),
        ],
    );
    client.check();
}
