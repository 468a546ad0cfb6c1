//! Times of set members. The hash commands are the oracle: with the same names, a hash's fields and a
//! set's members must come, expire and go alike.

use super::{clients, expire};
use crate::base::time::UnixMs;
use crate::exec::testing::{Client, START_MS, check, shown};
use crate::resp::Value;

#[test]
fn times_are_set_read_and_taken_away() {
    for mut client in clients() {
        check(
            &mut client,
            &[
                ("sadd s a b c", "3"),
                ("sttl s members 2 a x", "[-1 -2]"),
                ("sexpire s 100 members 3 a b x", "[1 1 -2]"),
                ("sttl s members 3 a b c", "[100 100 -1]"),
                ("spttl s members 1 a", "[100000]"),
                ("sexpiretime s members 1 a", "[1800000100]"),
                ("spexpiretime s members 1 a", "[1800000100000]"),
                ("spexpire s 5001 nx members 2 a c", "[0 1]"),
                ("sttl s members 1 c", "[6]"),
                ("sexpire s 50 members 2 a c gt", "[0 1]"),
                ("sexpireat s 1800000200 xx members 2 a x", "[1 -2]"),
                ("spexpireat s 1800000150000 lt members 2 a b", "[1 0]"),
                ("sadd s a", "0"),
                ("sttl s members 1 a", "[150]"),
                ("copy s copied", "1"),
                ("rename copied renamed", "OK"),
                ("sttl renamed members 3 a b c", "[150 100 50]"),
                ("move renamed 1", "1"),
                ("spersist s members 3 a b x", "[1 1 -2]"),
                ("spersist s members 2 a c", "[-1 1]"),
                ("sexpire s 10 members 1 a", "[1]"),
                ("sadd other b", "1"),
                ("smove s other a", "1"),
                ("sttl other members 1 a", "[-1]"),
                ("sexpire s 10 members 1 b", "[1]"),
                ("sunionstore united s other", "3"),
                ("sttl united members 3 a b c", "[-1 -1 -1]"),
                ("sexpire s 0 members 3 a b c", "[-2 2 2]"),
                ("exists s", "0"),
                ("sexpire s 10 members 2 a b", "[-2 -2]"),
            ],
        );
        client.check();
    }
}

#[test]
fn members_are_added_with_times() {
    for mut client in clients() {
        check(
            &mut client,
            &[
                ("saddex s mxx members 1 a", "0"),
                ("exists s", "0"),
                ("saddex s ex 10 members 2 a b", "1"),
                ("sttl s members 2 a b", "[10 10]"),
                ("saddex s keepttl members 2 a c", "1"),
                ("sttl s members 3 a b c", "[10 10 -1]"),
                ("saddex s members 1 a", "1"),
                ("sttl s members 1 a", "[-1]"),
                ("saddex s mnx members 2 x a", "0"),
                ("saddex s mxx members 2 x a", "0"),
                ("saddex s nx members 1 x", "0"),
                ("saddex none xx members 1 x", "0"),
                ("saddex s members 2 a b px 1500 mxx", "1"),
                ("spttl s members 2 a b", "[1500 1500]"),
                ("saddex s pxat 1 members 3 a b new", "1"),
                ("smembers s", "[c]"),
                ("saddex s exat 1 members 1 c", "1"),
                ("exists s", "0"),
                ("saddex s pxat 1 members 1 a", "1"),
                ("exists s", "0"),
            ],
        );
        client.check();
    }
}

/// Each command that reads or writes members, from the millisecond on in which the time is over,
/// before the expire thread has removed anything.
#[test]
fn a_member_whose_time_is_over_is_as_if_it_were_absent() {
    for mut client in clients() {
        client.run("sadd s a b c d e f");
        client.run("spexpire s 100 members 5 a b d e f");
        client.run("sadd t a c");
        client.advance_ms(99);
        check(&mut client, &[("scard s", "6"), ("sismember s a", "1")]);
        client.advance_ms(1);
        check(
            &mut client,
            &[
                ("scard s", "1"),
                ("sismember s a", "0"),
                ("smismember s a c", "[0 1]"),
                ("smembers s", "[c]"),
                ("sscan s 0", "[0 [c]]"),
                ("srandmember s", "c"),
                ("srandmember s 5", "[c]"),
                ("srandmember s -3", "[c c c]"),
                ("sinter s t", "[c]"),
                ("sunioncard 2 s t", "2"),
                ("sdiff t s", "[a]"),
                ("sintercard 2 s t", "1"),
                ("sunioncard 2 s s", "1"),
                ("sunioncard 1 s approx", "1"),
                ("sdiffcard 2 t s", "1"),
                ("sort s alpha", "[c]"),
                ("sort s by nosort limit 0 3", "[c]"),
                ("zunion 2 s t", "[a c]"),
                ("zinter 2 s t", "[c]"),
                ("zdiffstore z 2 t s", "1"),
                ("sinterstore x s t", "1"),
                ("sttl s members 2 a c", "[-2 -1]"),
                ("sexpire s 10 members 1 a", "[-2]"),
                ("spersist s members 1 a", "[-2]"),
                ("saddex s mxx members 1 a", "0"),
                ("smove s t b", "0"),
                ("smove t s a", "1"),
                ("srem s a b", "1"),
                ("sadd s d", "1"),
                ("saddex s mnx members 1 e", "1"),
                ("sttl s members 3 d e f", "[-1 -1 -2]"),
                ("scard s", "3"),
                ("smismember s a b c d e", "[0 0 1 1 1]"),
            ],
        );
        let popped = client.run("spop s 5");
        assert_eq!(popped.as_slice().map(<[Value]>::len), Some(3));
        check(&mut client, &[("exists s", "0")]);
        client.check();
        assert_eq!(expire(&client, START_MS + 100, 8), 0);
    }
}

#[test]
fn a_set_without_living_members_is_empty_and_then_gone() {
    for mut client in clients() {
        client.run("sadd s a b");
        client.run("spexpire s 100 members 2 a b");
        client.advance_ms(100);
        check(
            &mut client,
            &[
                ("scard s", "0"),
                ("smembers s", "[]"),
                ("srandmember s", "nil"),
                ("srandmember s 3", "[]"),
                ("srandmember s -3", "[]"),
                ("sscan s 0", "[0 []]"),
                ("spop s", "nil"),
                ("spop s 3", "[]"),
                ("sort s alpha", "[]"),
                ("sunionstore x s", "0"),
                ("exists x", "0"),
                ("smove s t a", "0"),
            ],
        );
        client.check();
        // A command that writes takes what it names along, and the key with the last member.
        let mut other = Client::with(|storage| storage.packed_max_entries = 0);
        for (name, rest) in [
            ("srem", "a b"),
            ("saddex", "mxx members 2 a b"),
            ("sexpire", "100 members 2 a b"),
            ("spersist", "members 2 a b"),
        ] {
            let logged = other.logged().len();
            other.run("sadd s a b");
            other.run("spexpire s 100 members 2 a b");
            other.advance_ms(100);
            other.run(&format!("{name} s {rest}"));
            check(&mut other, &[("exists s", "0")]);
            assert_eq!(other.logged()[logged + 2], "SREM s a b", "{name}");
            other.check();
        }
        expire(&client, START_MS + 100, 8);
        check(&mut client, &[("exists s", "0"), ("dbsize", "0")]);
        client.check();
    }
}

/// A large set of which some members are over: walks, samples and algebra hide those.
#[test]
fn many_members_expire_in_the_order_of_their_times() {
    const MEMBERS: u64 = 500;
    for mut client in clients() {
        for n in 0..MEMBERS {
            let at = START_MS + 1 + (n * 7919) % MEMBERS;
            client.run(&format!("saddex s pxat {} members 1 m{n}", at.0));
        }
        client.run("sadd s stays");
        let mut left = MEMBERS;
        for at in [1, 2, 100, 250, MEMBERS] {
            let removed = expire(&client, START_MS + at, 7) as u64;
            assert_eq!(removed, at + left - MEMBERS);
            left -= removed;
            let len = i64::try_from(left + 1).unwrap();
            assert_eq!(client.run("scard s"), Value::Int(len));
            client.check();
        }
        check(&mut client, &[("smembers s", "[stays]")]);
        assert!(client.server().engine.check().unwrap().faults.is_empty());
    }
}

/// Thousands of members that are over are counted with a rank index, which follows what is changed.
#[test]
fn many_members_that_are_over_are_counted_once() {
    let mut client = Client::with(|storage| storage.packed_max_entries = 0);
    for first in 0..5 {
        let members = (0..1000).map(|n| format!("m{}", first * 1000 + n));
        let members = members.collect::<Vec<_>>().join(" ");
        let at = START_MS + 10 + first % 2;
        client.run(&format!("saddex s pxat {} members 1000 {members}", at.0));
    }
    client.run("sadd s stays");
    client.advance_ms(10);
    check(&mut client, &[("scard s", "2001"), ("scard s", "2001")]);
    assert_eq!(client.server().engine.rank_index_usage().0, 1);
    check(
        &mut client,
        &[
            ("srem s m0", "0"),
            ("spersist s members 1 m1000", "[1]"),
            ("scard s", "2001"),
            ("srem s m1000 m1001", "2"),
            ("scard s", "1999"),
        ],
    );
    client.check();
    assert_eq!(expire(&client, START_MS + 10, 700), 2999);
    check(&mut client, &[("scard s", "1999")]);
    client.advance_ms(1);
    check(&mut client, &[("scard s", "1"), ("sadd s m1002", "1")]);
    check(&mut client, &[("scard s", "2")]);
    client.check();
    assert_eq!(expire(&client, START_MS + 11, 700), 1997);
    check(&mut client, &[("scard s", "2")]);
    client.check();
    assert_eq!(client.server().engine.rank_index_usage().0, 1);
}

/// The binlog says what happened in absolute terms, and first which members were over.
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
        logs(&mut client, "sadd s a b c d", &["sadd s a b c d"]);
        let set = format!("SPEXPIREAT s {} MEMBERS 2 a b", at(10));
        logs(&mut client, "spexpire s 10 members 3 a b x", &[&set]);
        logs(&mut client, "spexpire s 10 nx members 2 a x", &[]);
        logs(&mut client, "sttl s members 1 a", &[]);
        logs(
            &mut client,
            "spersist s members 3 b c x",
            &["SPERSIST s MEMBERS 1 b"],
        );
        let set = format!("SPEXPIREAT s {} MEMBERS 2 a e", at(1000));
        logs(
            &mut client,
            "saddex s ex 1 members 2 a e",
            &["SADD s e", &set],
        );
        logs(&mut client, "saddex s keepttl members 1 a", &[]);
        logs(
            &mut client,
            "saddex s members 2 a b",
            &["SPERSIST s MEMBERS 1 a"],
        );
        logs(&mut client, "sexpire s 0 members 2 b x", &["SREM s b"]);
        let set = format!("SPEXPIREAT s {} MEMBERS 1 c", at(5));
        logs(&mut client, "spexpire s 5 members 1 c", &[&set]);
        client.advance_ms(5);
        logs(&mut client, "sadd s c", &["SREM s c", "sadd s c"]);
        let set = format!("SPEXPIREAT s {} MEMBERS 1 d", at(10));
        logs(&mut client, "spexpire s 5 members 1 d", &[&set]);
        expire(&client, START_MS + 10, 8);
        client.advance_ms(5);
        assert_eq!(&client.logged()[seen..], ["SREM s d"]);
        check(&mut client, &[("smismember s a c d e", "[1 1 0 1]")]);
        check(&mut client, &[("scard s", "3")]);
        client.check();
    }
}

#[test]
fn errors_have_the_words_of_redis() {
    let mut client = Client::new();
    client.run("sadd s a b c");
    client.run("set string 1");
    let number = "-ERR Parameter `numMembers` should be greater than 0";
    let positive = "-ERR Number of members must be a positive integer";
    let miscounted = "-ERR The `nummembers` parameter must match the number of arguments";
    let misplaced = "-ERR Mandatory argument MEMBERS is missing or not at the right position";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let many = "-ERR Multiple condition flags specified";
    let few = "-ERR wrong number of arguments";
    let twice = "-ERR MEMBERS keyword specified multiple times";
    let one_expiry = "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
    let bad = "-ERR invalid number of members";
    check(
        &mut client,
        &[
            ("sexpire s 100 nx nx nx", "-ERR missing MEMBERS argument"),
            ("sexpire s 100 a b c d", "-ERR unknown argument: a"),
            ("sexpire s 100 members 0 a", number),
            ("sexpire s 100 members -1 a", number),
            ("sexpire s 100 members x a", number),
            ("sexpire s 100 members 3 a b", few),
            ("sexpire s 100 members 1 a c", "-ERR unknown argument: c"),
            ("sexpire s 100 members 1 a members 1 b", twice),
            (
                "sexpire s 100 nx members 1",
                "-ERR MEMBERS requires at least nummembers and one member argument",
            ),
            ("sexpire s 100 nx xx members 1 a", many),
            ("sexpire s 100 gt members 1 a lt", many),
            ("sexpire s 100 members 1 a nx nx", "[1]"),
            (
                "sexpire s 100 members 1",
                "-ERR wrong number of arguments for 'sexpire' command",
            ),
            (
                "sexpire s -1 members 1 a",
                "-ERR invalid expire time, must be >= 0",
            ),
            (
                "sexpire s x members 1 a",
                "-ERR value is not an integer or out of range",
            ),
            (
                "spexpireat s 70368744177664 members 1 a",
                "-ERR invalid expire time in 'spexpireat' command",
            ),
            ("sexpire string x members 1 a", wrong_type),
            ("sttl string foo 1 a", wrong_type),
            ("sttl s foo 1 a", misplaced),
            ("sttl s members 0 a", positive),
            ("sttl s members x a", positive),
            ("spersist s members 1 a b", miscounted),
            ("spexpiretime s members 2 a", miscounted),
            ("saddex s ex 100 mxx", "-ERR missing MEMBERS argument"),
            ("saddex s members 0 a", bad),
            ("saddex s members x a", bad),
            ("saddex s members 3 a b", few),
            ("saddex s members 1 a members 1 b", twice),
            ("saddex s bad members 1 a", "-ERR unknown argument: bad"),
            ("saddex s fnx members 1 a", "-ERR unknown argument: fnx"),
            (
                "saddex s mxx mnx members 1 a",
                "-ERR Only one of MXX or MNX arguments can be specified",
            ),
            ("saddex s ex 100 px 100 members 1 a", one_expiry),
            ("saddex s keepttl exat 100 members 1 a", one_expiry),
            ("saddex s members 1 a ex", "-ERR missing expire time"),
            (
                "saddex s mxx mxx members",
                "-ERR Only one of MXX or MNX arguments can be specified",
            ),
            (
                "saddex s ex 100 members",
                "-ERR wrong number of arguments for 'saddex' command",
            ),
            ("saddex string members 1 a", wrong_type),
        ],
    );
    client.check();
}

#[test]
fn a_set_with_times_is_shown_dumped_and_restored() {
    for mut client in clients() {
        client.run("sadd n 1 2 3");
        check(&mut client, &[("object encoding n", "intset")]);
        let (plain, usage) = (client.digest(b"n"), client.run("memory usage n"));
        client.run("spexpireat n 4000000000000 members 1 2");
        check(&mut client, &[("object encoding n", "listpackex")]);
        assert_ne!(client.digest(b"n"), plain);
        assert!(client.run("memory usage n").as_i64() > usage.as_i64());
        let dumped = client.run("dump n");
        let dumped = dumped.as_bytes().expect("a payload").to_vec();
        let restored = client.args(&[b"restore", b"again", b"0", &dumped]);
        assert_eq!(shown(&restored), "OK");
        check(
            &mut client,
            &[
                (
                    "spexpiretime again members 3 1 2 3",
                    "[-1 4000000000000 -1]",
                ),
                ("type again", "set"),
            ],
        );
        let at = client.logged().len();
        assert_eq!(
            client.logged()[at - 1],
            "SPEXPIREAT again 4000000000000 MEMBERS 1 2"
        );
        assert_eq!(client.digest(b"n"), client.digest(b"again"));
        client.run("spersist n members 1 2");
        assert_eq!(client.digest(b"n"), plain);
        check(&mut client, &[("object encoding n", "intset")]);
        // What is over by now is not restored.
        let args: [&[u8]; 5] = [b"restore", b"late", b"0", &dumped, b"replace"];
        client.advance_ms(4_000_000_000_000 - START_MS.0);
        client.args(&args);
        check(
            &mut client,
            &[("scard late", "2"), ("smismember late 1 2 3", "[1 0 1]")],
        );
        client.check();
    }
}

/// A set command as the hash command that does the same.
fn for_a_hash(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["saddex", ..] => {
            let (head, members) = line.split_once(" members ").unwrap();
            let head = head.replace("saddex", "hsetex");
            let head = head.replace("mnx", "fnx").replace("mxx", "fxx");
            let (count, members) = members.split_once(' ').unwrap();
            let pairs = members.split(' ').map(|member| format!(" {member} v"));
            format!("{head} fields {count}{}", pairs.collect::<String>())
        }
        ["srem", ref rest @ ..] => format!("hdel {}", rest.join(" ")),
        ["sismember", key, member] => format!("hexists {key} {member}"),
        ["scard", key] => format!("hlen {key}"),
        ["sadd", key, member] => format!("hsetnx {key} {member} v"),
        ["smembers", key] => format!("hkeys {key}"),
        _ => match line.strip_prefix('s') {
            Some(rest) => format!("h{}", rest.replace(" members ", " fields ")),
            None => line.to_owned(),
        },
    }
}

/// Random commands on a set and on a hash with the same names, in both forms, with the expire thread
/// in between (its slices take a packed value as a whole): the replies are the same, but for the order of names.
#[test]
fn members_behave_as_fields() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for mut client in clients() {
        let mut now_ms = START_MS;
        for step in 0..2_000 {
            let line = random_line(&mut rng, now_ms);
            let both = [named(&line, 's'), named(&for_a_hash(&line), 'h')];
            let both = both.map(|line| sorted(client.run(&line)));
            assert_eq!(both[0], both[1], "step {step}: {line}");
            match rng.u8(..20) {
                0 => {
                    let ms = rng.u64(..40);
                    client.advance_ms(ms);
                    now_ms = now_ms + ms;
                }
                1 => drop(expire(&client, now_ms, rng.usize(8..12))),
                2 => client.check(),
                _ => {}
            }
        }
        client.check();
    }
}

/// A line in which `k1` and `k2` are the names of keys that begin with a letter.
fn named(line: &str, letter: char) -> String {
    let words = line.split(' ').map(|word| match word {
        "k1" | "k2" => word.replace('k', &letter.to_string()),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Array(mut items) if items.iter().all(|item| item.as_bytes().is_some()) => {
            items.sort_by(|a, b| a.as_bytes().cmp(&b.as_bytes()));
            Value::Array(items)
        }
        other => other,
    }
}

fn random_line(rng: &mut fastrand::Rng, now_ms: UnixMs) -> String {
    let key = ["k1", "k2"][rng.usize(..2)];
    let n = rng.usize(1..4);
    let members: Vec<String> = (0..n).map(|_| format!("m{}", rng.u8(..8))).collect();
    let members = members.join(" ");
    let counted = format!("members {n} {members}");
    let condition = ["", " nx", " xx", " gt", " lt"][rng.usize(..5)];
    let soon = rng.u64(..60);
    match rng.u8(..16) {
        0..=2 => format!("sadd {key} m{}", rng.u8(..8)),
        3 => format!("srem {key} {members}"),
        4 => format!("spexpire {key} {soon}{condition} {counted}"),
        5 => format!(
            "spexpireat {key} {}{condition} {counted}",
            (now_ms + soon).0
        ),
        6 => format!("sexpire {key} {}{condition} {counted}", rng.u8(..3)),
        7 => format!("spersist {key} {counted}"),
        8 => format!("spttl {key} {counted}"),
        9 => format!("spexpiretime {key} {counted}"),
        10 => format!("sismember {key} m{}", rng.u8(..8)),
        11 => format!("scard {key}"),
        12 => format!("smembers {key}"),
        13 | 14 => {
            let existence = ["", "mnx ", "mxx "][rng.usize(..3)];
            let time = match rng.u8(..4) {
                0 => "keepttl ".to_owned(),
                1 => String::new(),
                2 => format!("px {} ", soon.max(1)),
                _ => format!("pxat {} ", (now_ms.before(5) + soon).0),
            };
            format!("saddex {key} {existence}{time}{counted}")
        }
        _ => [
            "exists k1",
            "rename k1 k2",
            "copy k1 k2 replace",
            "persist k2",
        ][rng.usize(..4)]
        .to_owned(),
    }
}
