//! The commands of lists, as clients see them and as the binlog has them.

use crate::exec::testing::Client;
use crate::resp::Value;

/// A reply in one line: `OK`, `(nil)`, `:1`, `"bulk"`, `[a b]`, `ERR …`.
fn show(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(text) | Value::Error(text) => text.clone(),
        Value::Int(n) => format!(":{n}"),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Null => "(nil)".into(),
        Value::Array(values) => format!("[{}]", all(values)),
        other => panic!("no list command answers {other:?}"),
    }
}

const NOT_INT: &str = "ERR value is not an integer or out of range";
const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
const OUT_OF_I64: &str =
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
const SYNTAX: &str = "ERR syntax error";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Runs the cases on packed lists and on lists with a row per item; the database must be
/// consistent afterwards.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for packed_max_entries in [64, 0] {
        let mut client = Client::with(|storage| storage.packed_max_entries = packed_max_entries);
        for (line, expected) in cases {
            let reply = show(&client.run(line));
            assert_eq!(
                reply, *expected,
                "{line}, packed up to {packed_max_entries}"
            );
        }
        client.check();
    }
}

#[test]
fn pushes_and_pops() {
    check(&[
        ("lpushx k a", ":0"),
        ("rpushx k a", ":0"),
        ("exists k", ":0"),
        ("lpush k a b c", ":3"),
        ("rpush k d", ":4"),
        ("lpushx k e f", ":6"),
        ("rpushx k g", ":7"),
        ("lrange k 0 -1", "[f e c b a d g]"),
        ("llen k", ":7"),
        ("lpop k", "f"),
        ("rpop k", "g"),
        ("lpop k 2", "[e c]"),
        ("rpop k 2", "[d a]"),
        ("rpop k 0", "[]"),
        ("rpop k 9223372036854775807", "[b]"),
        ("exists k", ":0"),
        ("lpop k", "(nil)"),
        ("lpop k 1", "(nil)"),
        ("lpop k 0", "(nil)"),
        ("lpop k -1", NOT_POSITIVE),
        ("rpop k x", NOT_POSITIVE),
        (
            "rpop k 1 1",
            "ERR wrong number of arguments for 'rpop' command",
        ),
        ("llen k", ":0"),
    ]);
}

#[test]
fn wrong_types() {
    check(&[
        ("set s x", "OK"),
        ("rpush k a", ":1"),
        ("lpush s a", WRONG_TYPE),
        ("rpushx s a", WRONG_TYPE),
        ("lpop s", WRONG_TYPE),
        ("lpop s 0", WRONG_TYPE),
        ("llen s", WRONG_TYPE),
        ("lindex s x", WRONG_TYPE),
        ("lrange s 0 x", NOT_INT),
        ("lrange s 0 0", WRONG_TYPE),
        ("lpos s a", WRONG_TYPE),
        ("lset s 0 a", WRONG_TYPE),
        ("lrem s 0 a", WRONG_TYPE),
        ("ltrim s 0 0", WRONG_TYPE),
        ("linsert s before a b", WRONG_TYPE),
        ("lmpop 2 s k left", WRONG_TYPE),
        ("rpoplpush k s", WRONG_TYPE),
        ("rpoplpush s k", WRONG_TYPE),
        ("rpoplpush none s", "(nil)"),
        ("get k", WRONG_TYPE),
        ("lrange k 0 -1", "[a]"),
    ]);
}

#[test]
fn indices() {
    check(&[
        ("rpush k a b c", ":3"),
        ("lindex k 0", "a"),
        ("lindex k -1", "c"),
        ("lindex k 3", "(nil)"),
        ("lindex k -4", "(nil)"),
        ("lindex k x", NOT_INT),
        ("lindex none x", "(nil)"),
        ("lset k 1 B", "OK"),
        ("lset k -1 C", "OK"),
        ("lset k 3 x", "ERR index out of range"),
        ("lset k x x", NOT_INT),
        ("lset none x x", "ERR no such key"),
        ("lrange k -100 100", "[a B C]"),
        ("lrange k 2 1", "[]"),
        ("lrange none 0 -1", "[]"),
        ("ltrim k 1 -1", "OK"),
        ("lrange k 0 -1", "[B C]"),
        ("ltrim k 5 6", "OK"),
        ("exists k", ":0"),
        ("ltrim k 0 x", NOT_INT),
    ]);
}

#[test]
fn inserting_and_removing() {
    check(&[
        ("linsert k before a b", ":0"),
        ("rpush k a b a c a", ":5"),
        ("linsert k before a x", ":6"),
        ("linsert k AFTER a y", ":7"),
        ("linsert k after none y", ":-1"),
        ("linsert k beside a y", SYNTAX),
        ("lrange k 0 -1", "[x a y b a c a]"),
        ("lrem k 1 a", ":1"),
        ("lrem k -1 a", ":1"),
        ("lrange k 0 -1", "[x y b a c]"),
        ("lrem k 0 none", ":0"),
        ("lrem k x a", NOT_INT),
        ("lrem k -9223372036854775808 a", OUT_OF_I64),
        ("lrem none 0 a", ":0"),
        ("rpush k x", ":6"),
        ("lrem k 0 x", ":2"),
        ("lrange k 0 -1", "[y b a c]"),
    ]);
}

#[test]
fn moves() {
    check(&[
        ("rpush k a b c", ":3"),
        ("rpoplpush k l", "c"),
        ("lmove k l left right", "a"),
        ("lrange l 0 -1", "[c a]"),
        ("lmove k k LEFT RIGHT", "b"),
        ("rpoplpush k k", "b"),
        ("lrange k 0 -1", "[b]"),
        ("lmove k l right left", "b"),
        ("exists k", ":0"),
        ("lrange l 0 -1", "[b c a]"),
        ("rpoplpush l l", "a"),
        ("lmove l l right right", "c"),
        ("lmove l l left left", "a"),
        ("lrange l 0 -1", "[a b c]"),
        ("lmove k l left right", "(nil)"),
        ("lmove l k up down", SYNTAX),
        ("exists k", ":0"),
    ]);
}

#[test]
fn lmpop_takes_from_the_first_list() {
    let count = "ERR count should be greater than 0";
    let numkeys = "ERR numkeys should be greater than 0";
    check(&[
        ("lmpop 2 j k left", "(nil)"),
        ("rpush k a b c d", ":4"),
        ("rpush l x", ":1"),
        ("lmpop 3 j k l left", "[k [a]]"),
        ("lmpop 2 k l right count 2", "[k [d c]]"),
        ("lmpop 2 k l right count 10", "[k [b]]"),
        ("lmpop 2 k l RIGHT COUNT 10", "[l [x]]"),
        ("lmpop 0 k left", numkeys),
        ("lmpop x k left", numkeys),
        ("lmpop 9223372036854775807 k left", SYNTAX),
        ("lmpop 2 k left", SYNTAX),
        ("lmpop 1 k up", SYNTAX),
        ("lmpop 1 k left count 0", count),
        ("lmpop 1 k left count", SYNTAX),
        ("lmpop 1 k left count 1 count 1", SYNTAX),
    ]);
}

#[test]
fn lpos_and_its_options() {
    check(&[
        ("rpush k a b c 1 2 3 c c", ":8"),
        ("lpos k c", ":2"),
        ("lpos k c rank 2", ":6"),
        ("lpos k c rank 4", "(nil)"),
        ("lpos k c rank -1", ":7"),
        ("lpos k c count 2", "[:2 :6]"),
        ("lpos k c count 0", "[:2 :6 :7]"),
        ("lpos k c rank 2 count 0", "[:6 :7]"),
        ("lpos k c count 0 rank -1", "[:7 :6 :2]"),
        ("lpos k c rank -3 count 5", "[:2]"),
        ("lpos k c count 0 maxlen 3", "[:2]"),
        ("lpos k c count 0 maxlen 2", "[]"),
        ("lpos k c maxlen 2", "(nil)"),
        ("lpos k c count 0 maxlen 0", "[:2 :6 :7]"),
        ("lpos k c rank -1 count 0 maxlen 1", "[:7]"),
        ("lpos none c", "(nil)"),
        ("lpos none c count 3", "[]"),
        ("lpos k c rank 0", super::RANK_ZERO),
        ("lpos k c rank -9223372036854775808", OUT_OF_I64),
        ("lpos k c rank x", NOT_INT),
        ("lpos k c count -1", "ERR COUNT can't be negative"),
        ("lpos k c maxlen -1", "ERR MAXLEN can't be negative"),
        ("lpos k c rank", SYNTAX),
        ("lpos k c bogus 1", SYNTAX),
    ]);
}

#[test]
fn only_changes_are_logged() {
    let mut client = Client::new();
    let changes = [
        "rpush k a b c d e f",
        "lpop k 2",
        "lset k 0 x",
        "linsert k after x y",
        "lrem k 1 y",
        "ltrim k 0 2",
        "lmove k l left right",
        "lmpop 2 j l left",
    ];
    for line in changes {
        client.run(line);
    }
    for line in [
        "rpop k 0",
        "lpop none",
        "lpushx none a",
        "linsert k after none y",
        "lrem k 0 none",
        "ltrim k 0 -1",
        "lset k 100 x",
        "lmove none k left left",
        "lmpop 1 none left",
    ] {
        client.run(line);
    }
    assert_eq!(client.logged(), changes);
    client.check();
}

/// A pending batch sees its own pushes, pops and the conversion from packed to rows.
#[test]
fn changes_within_one_tick() {
    let mut client = Client::new();
    let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
    for n in 0..200 {
        commands.push(vec![
            b"rpush".to_vec(),
            b"k".to_vec(),
            format!("{n}").into_bytes(),
        ]);
    }
    for _ in 0..50 {
        commands.push(vec![b"lpop".to_vec(), b"k".to_vec()]);
    }
    commands.push(["lrange", "k", "0", "2"].map(|word| word.into()).into());
    commands.push(["rpop", "k", "148"].map(|word| word.into()).into());
    let slices: Vec<Vec<&[u8]>> = commands
        .iter()
        .map(|args| args.iter().map(Vec::as_slice).collect())
        .collect();
    let lines: Vec<&[&[u8]]> = slices.iter().map(Vec::as_slice).collect();
    let replies = client.tick(&lines);
    assert_eq!(show(&replies[199]), ":200");
    assert_eq!(show(&replies[249]), "49");
    assert_eq!(show(&replies[250]), "[50 51 52]");
    assert_eq!(show(&client.run("lrange k 0 -1")), "[50 51]");
    client.check();
}

const MANY: &str = "ERR count should be greater than 0";

#[test]
fn several_items_move() {
    let mut client = Client::new();
    client.run("set string x");
    for (line, reply, left, there) in [
        ("left right", "[1]", "[2 3 4 5]", "[x y 1]"),
        ("left left count 3 obo", "[3 2 1]", "[4 5]", "[3 2 1 x y]"),
        ("left left count 3 bulk", "[1 2 3]", "[4 5]", "[1 2 3 x y]"),
        ("left right count 2 obo", "[1 2]", "[3 4 5]", "[x y 1 2]"),
        ("right right count 3 obo", "[5 4 3]", "[1 2]", "[x y 5 4 3]"),
        (
            "right right exactly 3 bulk",
            "[3 4 5]",
            "[1 2]",
            "[x y 3 4 5]",
        ),
        ("right left count 2 obo", "[4 5]", "[1 2 3]", "[4 5 x y]"),
        ("right left count 2 bulk", "[4 5]", "[1 2 3]", "[4 5 x y]"),
        (
            "left right count 9 bulk",
            "[1 2 3 4 5]",
            "[]",
            "[x y 1 2 3 4 5]",
        ),
        ("left right exactly 6 bulk", "(nil)", "[1 2 3 4 5]", "[x y]"),
    ] {
        client.run("del s d");
        client.run("rpush s 1 2 3 4 5");
        client.run("rpush d x y");
        assert_eq!(
            show(&client.run(&format!("lmovem s d {line}"))),
            reply,
            "{line}"
        );
        assert_eq!(show(&client.run("lrange s 0 -1")), left, "{line}");
        assert_eq!(show(&client.run("lrange d 0 -1")), there, "{line}");
    }
    for (line, reply) in [
        ("lmovem none d left right", "(nil)"),
        ("lmovem none d left right count 5 bulk", "(nil)"),
        (
            "lmovem s d left",
            "ERR wrong number of arguments for 'lmovem' command",
        ),
        ("lmovem s d left right count 0 bulk", MANY),
        ("lmovem s d left right exactly -1 foo", MANY),
        ("lmovem s d left right count a bulk", MANY),
        ("lmovem s d left right count 2", "ERR syntax error"),
        (
            "lmovem s d left right count 2 obo extra",
            "ERR syntax error",
        ),
        ("lmovem s d left right bad 2 obo", "ERR syntax error"),
        ("lmovem s d left right count 2 bad", "ERR syntax error"),
        ("lmovem s d bad right count 2 obo", "ERR syntax error"),
        ("lmovem s d left bad", "ERR syntax error"),
        (
            "blmovem s d left right x",
            "ERR timeout is not a float or out of range",
        ),
    ] {
        assert_eq!(show(&client.run(line)), reply, "{line}");
    }
    for line in ["lmovem string d left right", "lmovem s string left right"] {
        assert!(show(&client.run(line)).starts_with("WRONGTYPE"), "{line}");
    }
    assert_eq!(show(&client.run("lrange s 0 -1")), "[1 2 3 4 5]");
}

/// The binlog has commands that older servers know, with the same result, expiry included.
#[test]
fn several_items_move_on_replicas_too() {
    let mut client = Client::new();
    let mut replica = Client::new();
    let ends = ["left left", "left right", "right left", "right right"];
    for target in ["s", "d"] {
        for end in ends {
            for many in [
                "",
                "count 2 obo",
                "count 2 bulk",
                "exactly 5 obo",
                "count 9 bulk",
            ] {
                for line in [
                    "del s d",
                    "rpush s 1 2 3 4 5",
                    "pexpireat s 1900000000000",
                    "rpush d x",
                ] {
                    client.run(line);
                }
                client.run(&format!("{} s {target} {end} {many}", "lmovem"));
                for line in [
                    "lrange s 0 -1",
                    "lrange d 0 -1",
                    "pexpiretime s",
                    "pexpiretime d",
                ] {
                    let name = format!("seen {target} {end} {many} {line}");
                    let seen = show(&client.run(line));
                    client.args(&[b"set", name.replace(' ', ":").as_bytes(), seen.as_bytes()]);
                }
            }
        }
    }
    let mut compared = 0;
    for line in client.logged() {
        assert!(!line.contains("lmovem"), "{line}");
        if let Some(seen) = line.strip_prefix("set seen:") {
            let (name, expected) = seen.split_once(' ').expect("a value");
            let asked = [
                "lrange:s:0:-1",
                "lrange:d:0:-1",
                "pexpiretime:s",
                "pexpiretime:d",
            ];
            let asked = asked.iter().find(|asked| name.ends_with(**asked));
            let asked = asked.expect("a question").replace(':', " ");
            assert_eq!(show(&replica.run(&asked)), expected, "{name}");
            compared += 1;
        } else {
            replica.run(&line);
        }
    }
    assert_eq!(compared, 2 * 4 * 5 * 4);
    client.check();
    replica.check();
}
