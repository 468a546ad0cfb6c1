//! The commands of strings, as clients see them and as the binlog has them.

use crate::exec::testing::{Client, START_MS};
use crate::resp::Value;

/// A reply in one line: `OK`, `(nil)`, `:1`, `"bulk"`, `[a b]`, `ERR …`.
pub(super) fn show(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(text) | Value::Error(text) => text.clone(),
        Value::Int(n) => format!(":{n}"),
        Value::Bulk(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Value::Null => "(nil)".into(),
        Value::Array(values) => format!("[{}]", all(values)),
        other => panic!("no string command answers {other:?}"),
    }
}

#[track_caller]
pub(super) fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        assert_eq!(show(&client.run(line)), *expected, "{line}");
    }
}

const NOT_INT: &str = "ERR value is not an integer or out of range";
const NOT_FLOAT: &str = "ERR value is not a valid float";
const SYNTAX: &str = "ERR syntax error";
const SET_TIME: &str = "ERR invalid expire time in 'set' command";

#[test]
fn set_and_its_options() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("set k v", "OK"),
            ("get k", r#""v""#),
            ("set k w xx get", r#""v""#),
            ("set k x nx get", r#""w""#),
            ("get k", r#""w""#),
            ("set k x nx", "(nil)"),
            ("set none x xx", "(nil)"),
            ("set none x xx get", "(nil)"),
            ("get none", "(nil)"),
            ("set new x nx get", "(nil)"),
            ("get new", r#""x""#),
            ("set k v ex 10 ex 20", "OK"),
            ("set k v ex 10 px 20", SYNTAX),
            ("set k v keepttl ex 10", SYNTAX),
            ("set k v ex 10 keepttl", SYNTAX),
            ("set k v nx xx", SYNTAX),
            ("set k v xx nx get", SYNTAX),
            ("set k v persist", SYNTAX),
            ("set k v ex", SYNTAX),
            ("set k v ex x", NOT_INT),
            ("set k v ex 0", SET_TIME),
            ("set k v px -1", SET_TIME),
            ("set k v ex 9223372036854775807", SET_TIME),
            ("set k v exat 9223372036854776", SET_TIME),
            ("set k v px 9223372036854775807", SET_TIME),
            ("set k v pxat 9223372036854775807", "OK"),
            ("setex k 0 v", "ERR invalid expire time in 'setex' command"),
            (
                "psetex k 0 v",
                "ERR invalid expire time in 'psetex' command",
            ),
            ("setnx k v", ":0"),
            ("setnx k4 v", ":1"),
            ("set past v pxat 1", "OK"),
            ("get past", "(nil)"),
        ],
    );
    client.check();
}

#[test]
fn expiry_is_kept_cleared_and_changed() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("set kept v px 100", "OK"),
            ("set kept w keepttl", "OK"),
            ("append kept x", ":2"),
            ("setrange kept 0 v", ":2"),
            ("set cleared v px 100", "OK"),
            ("set cleared w", "OK"),
            ("set n 1 px 100", "OK"),
            ("incr n", ":2"),
            ("incrbyfloat n 0.5", r#""2.5""#),
            ("set got v px 100", "OK"),
            ("getset got w", r#""v""#),
            ("setex ex 1 v", "OK"),
            ("psetex px 100 v", "OK"),
            ("getex px persist", r#""v""#),
            ("set later v", "OK"),
            ("getex later px 200", r#""v""#),
            ("getex later", r#""v""#),
        ],
    );
    client.advance_ms(100);
    check(
        &mut client,
        &[
            (
                "mget kept cleared n got ex px later",
                r#"[(nil) "w" (nil) "w" "v" "v" "v"]"#,
            ),
            ("setnx kept v", ":1"),
            ("incr n", ":1"),
        ],
    );
    client.advance_ms(100);
    check(&mut client, &[("mget later kept", r#"[(nil) "v"]"#)]);
    client.check();
}

#[test]
fn getex_and_getdel() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("getex none ex x", "(nil)"),
            ("getex none foo", SYNTAX),
            ("set k v", "OK"),
            ("getex k ex 0", "ERR invalid expire time in 'getex' command"),
            ("getex k ex x", NOT_INT),
            ("getex k keepttl", SYNTAX),
            ("getex k persist ex 1", SYNTAX),
            ("getex k ex 1 persist", SYNTAX),
            ("getex k persist persist", r#""v""#),
            ("getex k pxat 1", r#""v""#),
            ("get k", "(nil)"),
            ("getdel k", "(nil)"),
            ("set k v", "OK"),
            ("getdel k", r#""v""#),
            ("get k", "(nil)"),
        ],
    );
    client.check();
}

#[test]
fn numbers() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("incr n", ":1"),
            ("incrby n 41", ":42"),
            ("decr n", ":41"),
            ("decrby n -1", ":42"),
            (
                "decrby n -9223372036854775808",
                "ERR decrement would overflow",
            ),
            ("incrby n x", NOT_INT),
            ("set n 9223372036854775807", "OK"),
            ("incr n", "ERR increment or decrement would overflow"),
            ("incrby n -9223372036854775808", ":-1"),
            ("set n 01", "OK"),
            ("incr n", NOT_INT),
            ("incrbyfloat f 3", r#""3""#),
            ("incrbyfloat f 1.1", r#""4.1""#),
            ("incrbyfloat f x", NOT_FLOAT),
            ("incrbyfloat f nan", NOT_FLOAT),
            (
                "incrbyfloat f inf",
                "ERR increment would produce NaN or Infinity",
            ),
            ("set f abc", "OK"),
            ("incrbyfloat f 1", NOT_FLOAT),
        ],
    );
}

#[test]
fn parts_and_several_keys() {
    let mut client = Client::new();
    let too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    check(
        &mut client,
        &[
            ("setrange k 3 x", ":4"),
            ("get k", r#""\0\0\0x""#),
            ("setrange k -1 x", "ERR offset is out of range"),
            ("setrange k x x", NOT_INT),
            ("setrange k 536870912 x", too_long),
            ("setrange none 536870912 ", ":0"),
            ("setrange k 536870912 ", ":4"),
            ("setrange far 536870911 x", ":536870912"),
            ("append far x", too_long),
            ("config set proto-max-bulk-len 1mb", "OK"),
            ("setrange far 1048576 x", too_long),
            ("setrange far 1048575 x", ":536870912"),
            ("config set proto-max-bulk-len 512mb", "OK"),
            ("strlen far", ":536870912"),
            ("getrange far -1 -1", r#""x""#),
            ("set k hello", "OK"),
            ("getrange k 1 -2", r#""ell""#),
            ("substr k -3 100", r#""llo""#),
            ("getrange none 0 -1", r#""""#),
            ("getrange k x 1", NOT_INT),
            ("mset a 1 b 2 a 3", "OK"),
            ("mget a b none", r#"["3" "2" (nil)]"#),
            (
                "mset a 1 b",
                "ERR wrong number of arguments for 'mset' command",
            ),
            (
                "msetnx a 1 b",
                "ERR wrong number of arguments for 'msetnx' command",
            ),
            ("msetnx c 1 a 2", ":0"),
            ("get c", "(nil)"),
            ("msetnx c 1 c 2", ":1"),
            ("get c", r#""2""#),
        ],
    );
    client.check();
}

#[test]
fn long_values() {
    let mut client = Client::new();
    let long = "x".repeat(50_000);
    check(
        &mut client,
        &[
            (&format!("set k {long}"), "OK"),
            ("append k y", ":50001"),
            ("get k", &format!(r#""{long}y""#)),
            ("getrange k 49998 -1", r#""xxy""#),
            ("mget k k", &format!(r#"["{long}y" "{long}y"]"#)),
            ("incr k", NOT_INT),
            ("incrbyfloat k 1", NOT_FLOAT),
            ("getset k short", &format!(r#""{long}y""#)),
            ("strlen k", ":5"),
            (&format!("set k {long} get"), r#""short""#),
            ("getdel k", &format!(r#""{long}""#)),
        ],
    );
    client.check();
}

#[test]
fn longest_common_subsequence() {
    let mut client = Client::new();
    client.run("mset a ohmytext b mynewtext");
    check(
        &mut client,
        &[
            ("lcs a b", r#""mytext""#),
            ("lcs a b len", ":6"),
            (
                "lcs a b idx",
                r#"["matches" [[[:4 :7] [:5 :8]] [[:2 :3] [:0 :1]]] "len" :6]"#,
            ),
            (
                "lcs a b idx withmatchlen minmatchlen 4",
                r#"["matches" [[[:4 :7] [:5 :8] :4]] "len" :6]"#,
            ),
            ("lcs a none idx", r#"["matches" [] "len" :0]"#),
            ("lcs none none", r#""""#),
            (
                "lcs a b idx len",
                "ERR If you want both the length and indexes, please just use IDX.",
            ),
            ("lcs a b minmatchlen", SYNTAX),
            ("lcs a b minmatchlen x", NOT_INT),
            ("lcs a b nope", SYNTAX),
            ("setrange a 20000 x", ":20001"),
            ("setrange b 20000 x", ":20001"),
            (
                "lcs a b len",
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ),
        ],
    );
}

#[test]
fn reads_count_hits_and_misses() {
    let mut client = Client::new();
    for line in ["set k v", "get k", "mget k none k", "incr n", "get none"] {
        client.run(line);
    }
    let stats = &client.server().stats;
    let counted = (stats.keyspace_hits.get(), stats.keyspace_misses.get());
    assert_eq!(counted, (3, 2));
}

#[test]
fn the_binlog_has_effects() {
    let mut client = Client::new();
    for line in [
        "set k v",
        "set k v nx",
        "set k v xx get",
        "set k v keepttl",
        "set k 1 ex 10",
        "setex k 10 1",
        "getex k px 5",
        "getex k",
        "getex k px 5",
        "getex k persist",
        "getex k persist",
        "incrbyfloat k 0.5",
        "getex k exat 1",
        "getdel none",
        "set g 1",
        "getdel g",
        "setrange none 0 ",
        "msetnx a 1 b 2",
        "msetnx a 1 c 2",
        "incr a",
        "incrby a x",
        "set t v px 100",
    ] {
        client.run(line);
    }
    client.advance_ms(100);
    client.run("get t");
    client.run("append t w");
    let (in_5, in_10_000, in_100) = (START_MS + 5, START_MS + 10_000, START_MS + 100);
    let expected = [
        "set k v",
        "SET k v",
        "SET k v KEEPTTL",
        &format!("SET k 1 PXAT {in_10_000}"),
        &format!("SET k 1 PXAT {in_10_000}"),
        &format!("PEXPIREAT k {in_5}"),
        "PERSIST k",
        "SET k 1.5 KEEPTTL",
        "DEL k",
        "set g 1",
        "DEL g",
        "msetnx a 1 b 2",
        "incr a",
        &format!("SET t v PXAT {in_100}"),
        "DEL t",
        "append t w",
    ];
    assert_eq!(client.logged(), expected);
    client.check();
}

/// Reading the whole value would run out of memory.
#[test]
fn values_too_long_for_a_number_are_not_read() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("config set proto-max-bulk-len 9000000000000000", "OK"),
            ("setrange k 8000000000000000 1", ":8000000000000001"),
            ("incrbyfloat k 1", NOT_FLOAT),
            ("incr k", NOT_INT),
            ("getbit k 64000000000000007", ":1"),
            ("getrange k -1 -1", r#""1""#),
            ("setrange k 5 x", ":8000000000000001"),
            ("append k x", ":8000000000000002"),
            ("bitfield k get u8 64000000000000000", "[:49]"),
        ],
    );
}
