//! Commands on keys of any type, expiry, SCAN, whole DBs, OBJECT and SORT, as
//! clients see them and as the binlog has them.

use crate::exec::testing::{Client, START_MS};
use crate::resp::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A reply in one line: `OK`, `(nil)`, `:1`, `bulk`, `[a b]`, `ERR …`.
fn show(value: &Value) -> String {
    match value {
        Value::Simple(text) | Value::Error(text) => text.clone(),
        Value::Int(n) => format!(":{n}"),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Null => "(nil)".into(),
        Value::Array(values) => {
            let all: Vec<String> = values.iter().map(show).collect();
            format!("[{}]", all.join(" "))
        }
        other => panic!("no such command answers {other:?}"),
    }
}

#[test]
fn odd_numbers_of_dbs_and_odd_patterns() {
    let range = "ERR value is out of range, value must between -2147483648 and 2147483647";
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("set a 1", "OK"),
            ("move a 3000000000", range),
            ("copy a b db 99999999999", range),
            ("move a x", "ERR value is not an integer or out of range"),
            ("move a 99", "ERR DB index is out of range"),
        ],
    );
    client.args(&[b"SET", b"", b"empty"]);
    check(
        &mut client,
        &[
            ("keys *", "[ a]"),
            ("keys **", "[a]"),
            ("keys ?", "[a]"),
            ("keys ", "[]"),
        ],
    );
}

#[track_caller]
fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        assert_eq!(show(&client.run(line)), *expected, "{line}");
    }
}

/// Checks the binlog rows of the commands.
#[track_caller]
fn check_logged(client: &mut Client, lines: &[&str], expected: &[&str]) {
    let before = client.logged().len();
    for line in lines {
        client.run(line);
    }
    assert_eq!(client.logged()[before..], *expected, "{lines:?}");
}

#[test]
fn removal_and_existence() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("mset a 1 b 2 c 3", "OK"),
            ("exists a a b x", ":3"),
            ("touch a a x", ":2"),
            ("type a", "string"),
            ("type x", "none"),
            ("del a a x", ":1"),
            ("unlink b c b", ":2"),
            ("dbsize", ":0"),
        ],
    );
    client.check();
}

#[test]
fn expiry_conditions() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("set k v", "OK"),
            // No expiry counts as later than any expiry.
            ("expire k 100 gt", ":0"),
            ("expire k 100 xx", ":0"),
            ("expire k 100 lt", ":1"),
            ("expire k 100 nx", ":0"),
            ("expire k 50 gt", ":0"),
            ("expire k 100 gt", ":0"),
            ("expire k 100 lt", ":0"),
            ("expire k 200 xx gt", ":1"),
            ("ttl k", ":200"),
            ("expire k 50 xx lt", ":1"),
            ("pttl k", ":50000"),
            ("persist k", ":1"),
            ("persist k", ":0"),
            ("ttl k", ":-1"),
            ("ttl x", ":-2"),
            ("expire k 10 nx nx", ":1"),
            ("pexpireat k 1900000000499", ":1"),
            ("expiretime k", ":1900000000"),
            ("pexpiretime k", ":1900000000499"),
            ("expire k 0", ":1"),
            ("exists k", ":0"),
        ],
    );
    client.check();
}

#[test]
fn expiry_refusals() {
    let mut client = Client::new();
    client.run("set k v");
    for (line, expected) in [
        ("expire k x", "ERR value is not an integer or out of range"),
        (
            "expire k 9223372036854775807",
            "ERR invalid expire time in 'expire' command",
        ),
        (
            "pexpire none 9223372036854775807",
            "ERR invalid expire time in 'pexpire' command",
        ),
        (
            "expireat k -9223372036854775808",
            "ERR invalid expire time in 'expireat' command",
        ),
        ("expire none x foo", "ERR Unsupported option foo"),
        (
            "expire k 1 nx lt",
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        (
            "expire k 1 gt lt",
            "ERR GT and LT options at the same time are not compatible",
        ),
    ] {
        assert_eq!(show(&client.run(line)), expected, "{line}");
    }
}

#[test]
fn the_binlog_has_moments_and_effects() {
    let mut client = Client::new();
    let in_10_s = format!("PEXPIREAT k {}", START_MS + 10_000);
    client.run("mset k 1 gone 1");
    check_logged(&mut client, &["expire k 10"], &[&in_10_s]);
    check_logged(&mut client, &["expire gone -1"], &["DEL gone"]);
    check_logged(&mut client, &["expire none 10", "del none"], &[]);
    check_logged(&mut client, &["persist k", "persist k"], &["persist k"]);
    check_logged(
        &mut client,
        &["rename k j", "rename j j", "renamenx j j"],
        &["rename k j"],
    );
    check_logged(
        &mut client,
        &["copy j k db 1", "copy j k db 1", "move j 1", "move j 0"],
        &["copy j k db 1", "move j 1"],
    );
    check_logged(
        &mut client,
        &[
            "flushdb",
            "flushall",
            "flushall",
            "swapdb 0 0",
            "swapdb 0 1",
        ],
        &["flushall", "swapdb 0 1"],
    );
    client.run("psetex k 5 v");
    client.advance_ms(5);
    check_logged(&mut client, &["exists k", "get k", "keys *"], &[]);
    check_logged(&mut client, &["persist k"], &["DEL k"]);
    client.check();
}

#[test]
fn rename_keeps_value_and_expiry() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("rename x y", "ERR no such key"),
            ("renamenx x y", "ERR no such key"),
            ("hset h f v", ":1"),
            ("expire h 100", ":1"),
            ("set k v", "OK"),
            ("renamenx h k", ":0"),
            ("rename h k", "OK"),
            ("hget k f", "v"),
            ("ttl k", ":100"),
            ("exists h", ":0"),
            ("renamenx k k", ":0"),
            ("rename k k", "OK"),
            ("dbsize", ":1"),
        ],
    );
    client.check();
}

/// A collection with a row per element, written in the same tick as its copies.
#[test]
fn copies_of_rows_are_independent() {
    let mut client = Client::with(|storage| storage.packed_max_entries = 4);
    let mut zadd: Vec<Vec<u8>> = vec![b"zadd".to_vec(), b"z".to_vec()];
    for n in 0..500 {
        zadd.push(n.to_string().into_bytes());
        zadd.push(format!("member:{n}").into_bytes());
    }
    let zadd: Vec<&[u8]> = zadd.iter().map(Vec::as_slice).collect();
    let replies = client.tick(&[
        &zadd,
        &[b"expire", b"z", b"100"],
        &[b"copy", b"z", b"y"],
        &[b"copy", b"z", b"z", b"db", b"3"],
        &[b"copy", b"z", b"y"],
        &[b"copy", b"z", b"y", b"replace"],
        &[b"zrem", b"z", b"member:7"],
        &[b"move", b"y", b"2"],
        &[b"zcard", b"z"],
    ]);
    let shown: Vec<String> = replies.iter().map(show).collect();
    assert_eq!(
        shown,
        [":500", ":1", ":1", ":1", ":0", ":1", ":1", ":1", ":499"]
    );
    check(
        &mut client,
        &[
            ("exists y", ":0"),
            ("del z", ":1"),
            ("select 2", "OK"),
            ("zcard y", ":500"),
            ("zscore y member:7", "7"),
            ("zrangebyscore y 7 8", "[member:7 member:8]"),
            ("ttl y", ":100"),
            (
                "move y 2",
                "ERR source and destination objects are the same",
            ),
            ("move y 16", "ERR DB index is out of range"),
            ("select 3", "OK"),
            ("zcard z", ":500"),
            ("dbsize", ":1"),
        ],
    );
    client.check();
}

#[test]
fn whole_dbs() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("mset a 1 b 2", "OK"),
            ("swapdb 0 5", "OK"),
            ("dbsize", ":0"),
            ("set c 3", "OK"),
            ("select 5", "OK"),
            ("dbsize", ":2"),
            ("swapdb 5 0", "OK"),
            ("keys *", "[c]"),
            ("flushdb sync", "OK"),
            ("dbsize", ":0"),
            ("select 0", "OK"),
            ("dbsize", ":2"),
            ("flushall async", "OK"),
            ("dbsize", ":0"),
            ("flushall now", "ERR syntax error"),
            ("swapdb x 0", "ERR invalid first DB index"),
            ("swapdb 0 x", "ERR invalid second DB index"),
            ("swapdb 0 16", "ERR DB index is out of range"),
        ],
    );
    client.check();
}

#[test]
fn keys_sees_the_tick_and_hides_the_expired() {
    let mut client = Client::new();
    client.run("mset key:1 a key:2 b other c");
    client.run("psetex key:3 5 v");
    let replies = client.tick(&[
        &[b"set", b"key:4", b"v"],
        &[b"del", b"key:1"],
        &[b"keys", b"key:*"],
        &[b"keys", b"*"],
        &[b"keys", b"key:2"],
        &[b"keys", b"none"],
    ]);
    let shown: Vec<String> = replies.iter().skip(2).map(show).collect();
    let expected = [
        "[key:2 key:3 key:4]",
        "[key:2 key:3 key:4 other]",
        "[key:2]",
        "[]",
    ];
    assert_eq!(shown, expected);
    client.advance_ms(5);
    check(&mut client, &[("keys *", "[key:2 key:4 other]")]);
}

/// One SCAN call: the next cursor and the keys.
fn scan(client: &mut Client, cursor: &str, options: &str) -> (String, Vec<String>) {
    let line = format!("scan {cursor} {options}");
    match client.run(line.trim_end()) {
        Value::Array(parts) => match parts.as_slice() {
            [cursor, Value::Array(keys)] => (show(cursor), keys.iter().map(show).collect()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn scan_meets_every_key_that_stays() {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut client = Client::new();
    let stay: BTreeSet<String> = (0..200).map(|n| format!("stay:{n}")).collect();
    for key in &stay {
        client.run(&format!("set {key} v"));
    }
    for count in [1, 7, 50, 1000] {
        let (mut cursor, mut met) = ("0".to_owned(), BTreeSet::new());
        loop {
            let (next, keys) = scan(&mut client, &cursor, &format!("count {count}"));
            assert!(keys.len() <= count);
            met.extend(keys);
            if next == "0" {
                break;
            }
            cursor = next;
            // Keys appear and disappear before and after the cursor.
            let n = rng.u32(..300);
            client.run(&format!("set stay:{n}:x v"));
            client.run(&format!("del stay:{}:x", rng.u32(..300)));
        }
        assert!(stay.is_subset(&met));
    }
}

#[test]
fn scan_options_and_cursors() {
    let mut client = Client::new();
    client.run("mset a:1 v a:2 v a:3 v b:1 v");
    client.run("hset a:h f v");
    client.run("psetex a:9 5 v");
    client.advance_ms(5);
    let all = |keys: &[&str]| -> Vec<String> { keys.iter().map(|k| k.to_string()).collect() };
    let found = |client: &mut Client, options| scan(client, "0", options);
    // A literal prefix bounds the range that is scanned, so one call reaches the end.
    let (cursor, keys) = found(&mut client, "match a:[12] count 6");
    assert_eq!((cursor.as_str(), keys), ("0", all(&["a:1", "a:2"])));
    let (cursor, keys) = found(&mut client, "match b:1 count 1");
    assert_eq!((cursor.as_str(), keys), ("0", all(&["b:1"])));
    let (_, keys) = found(&mut client, "type HASH count 100");
    assert_eq!(keys, all(&["a:h"]));
    let (_, keys) = found(&mut client, "type nonsense count 100");
    assert!(keys.is_empty());
    let (first, keys) = found(&mut client, "count 2");
    assert_eq!(keys, all(&["a:1", "a:2"]));
    assert_ne!(first, "0");
    // The same cursor again, as after a lost reply.
    let again = scan(&mut client, &first, "count 2");
    assert_eq!(scan(&mut client, &first, "count 2"), again);
    // A cursor is a position in the keyspace; other calls do not change it.
    assert_ne!(scan(&mut client, &first, "count 1").0, again.0);
    assert_eq!(scan(&mut client, &first, "count 2"), again);
    let rest = scan(&mut client, &again.0, "count 9").1;
    assert_eq!([again.1, rest].concat(), all(&["a:3", "a:h", "b:1"]));
    // An unknown cursor starts from the beginning.
    assert_eq!(scan(&mut client, "123456789", "count 1").1, all(&["a:1"]));
    for (line, expected) in [
        ("scan x", "ERR invalid cursor"),
        ("scan 0 count 0", "ERR syntax error"),
        ("scan 0 count", "ERR syntax error"),
        (
            "scan 0 count x",
            "ERR value is not an integer or out of range",
        ),
        ("scan 0 foo x", "ERR syntax error"),
    ] {
        assert_eq!(show(&client.run(line)), expected, "{line}");
    }
}

fn draw(client: &mut Client, times: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        *counts.entry(show(&client.run("randomkey"))).or_default() += 1;
    }
    counts
}

#[test]
fn randomkey_finds_all_and_only_the_living() {
    let mut client = Client::new();
    assert_eq!(show(&client.run("randomkey")), "(nil)");
    client.run("set a v");
    client.run("set b v");
    assert_eq!(draw(&mut client, 200).len(), 2);
    for n in 0..300 {
        client.run(&format!("set user:{n} v"));
        client.run(&format!("psetex gone:{n} 5 v"));
    }
    client.run("set zz v");
    client.advance_ms(5);
    let counts = draw(&mut client, 15_000);
    assert!(counts.keys().all(|key| !key.starts_with("gone:")));
    assert_eq!(counts.len(), 303);
    let most = counts.values().max().expect("some");
    // The expected share is 50. An isolated key may be drawn more often, but within bounds.
    assert!(*most < 1500, "{most}");
    client.run("flushall");
    for n in 0..100 {
        client.run(&format!("psetex gone:{n} 5 v"));
    }
    client.advance_ms(5);
    assert_eq!(show(&client.run("randomkey")), "(nil)");
    client.run("set gone:50:alive v");
    assert_eq!(show(&client.run("randomkey")), "gone:50:alive");
}

#[test]
fn encodings_are_those_of_redis() {
    let mut client = Client::new();
    let long = "x".repeat(65);
    let many = |from: usize, to: usize, tail: &str| -> String {
        (from..to).map(|n| format!(" {n}{tail}")).collect()
    };
    let scored: String = (0..129).map(|n| format!(" {n} {n}")).collect();
    for (line, expected) in [
        ("set k 12".to_owned(), "int"),
        ("set k 012".to_owned(), "embstr"),
        (format!("set k {}", &long[..44]), "embstr"),
        (format!("set k {}", &long[..45]), "raw"),
        ("hset k f v".to_owned(), "listpack"),
        (format!("hset k f {long}"), "hashtable"),
        (format!("sadd k{}", many(0, 200, "")), "intset"),
        (format!("sadd k{}", many(0, 513, "")), "hashtable"),
        (format!("sadd k{}", many(0, 128, "x")), "listpack"),
        (format!("sadd k{}", many(0, 129, "x")), "hashtable"),
        (format!("sadd k x {long}"), "hashtable"),
        ("zadd k 1 x".to_owned(), "listpack"),
        (format!("zadd k{scored}"), "skiplist"),
        (format!("rpush k{}", many(0, 1000, "")), "listpack"),
        (format!("rpush k{}", many(0, 3000, "")), "quicklist"),
    ] {
        client.run("del k");
        client.run(&line);
        assert_eq!(show(&client.run("object encoding k")), expected, "{line}");
    }
    check(
        &mut client,
        &[("object encoding x", "(nil)"), ("object refcount k", ":1")],
    );
}

/// The expectations are the replies of Redis.
#[test]
fn strings_remember_how_they_were_made() {
    let mut client = Client::new();
    for (lines, expected) in [
        (["append k 12", ""], "int"),
        (["append k ab", ""], "embstr"),
        (["append k 1", "append k 2"], "raw"),
        (["set k 12", "append k "], "raw"),
        (["setrange k 0 12", ""], "raw"),
        (["set k 12", "setrange k 0 "], "int"),
        (["set k 12", "setrange k 1 3"], "raw"),
        (["setbit k 1 1", ""], "raw"),
        (["set k 1", "setbit k 0 1"], "raw"),
        (["set k 1", "bitfield k set u8 0 50"], "raw"),
        (["set k 1", "bitfield k get u8 0"], "int"),
        (["set k 1", "bitop and k k"], "raw"),
        (["pfadd k a", ""], "raw"),
        (["incrbyfloat k 3", ""], "embstr"),
        (["set k 1", "incrbyfloat k 1.5"], "embstr"),
        (["incrbyfloat k 3", "incr k"], "int"),
        (["incrbyfloat k 3", "append k 1"], "raw"),
        (["append k 1", "getset k 2"], "int"),
        (["setrange k 0 12", "incr k"], "int"),
        (["setrange k 0 12", "set k 12 keepttl"], "int"),
        (["setrange k 0 12", "expire k 100"], "raw"),
        (["setrange k 0 12", "getex k persist"], "raw"),
        (["setrange j 0 12", "rename j k"], "raw"),
        (["setrange j 0 12", "copy j k"], "raw"),
        (["incrbyfloat j 12", "copy j k"], "embstr"),
        (["setrange j 0 12", "set k 12 get"], "int"),
    ] {
        client.run("flushall");
        for line in lines.iter().filter(|line| !line.is_empty()) {
            client.run(line);
        }
        assert_eq!(
            show(&client.run("object encoding k")),
            expected,
            "{lines:?}"
        );
    }
}

/// The expectations are the replies of Redis.
#[test]
fn small_integers_are_shared() {
    let mut client = Client::new();
    for (line, expected) in [
        ("set k 0", ":2147483647"),
        ("set k 9999", ":2147483647"),
        ("set k 10000", ":1"),
        ("set k -1", ":1"),
        ("set k 007", ":1"),
        ("incr k", ":2147483647"),
        ("append k 7", ":2147483647"),
        ("setrange k 0 7", ":1"),
        ("incrbyfloat k 7", ":1"),
        ("rpush k 7", ":1"),
    ] {
        client.run("del k");
        client.run(line);
        assert_eq!(show(&client.run("object refcount k")), expected, "{line}");
    }
    check(
        &mut client,
        &[
            ("set k 7", "OK"),
            ("config set maxmemory-policy allkeys-lru", "OK"),
            ("object refcount k", ":2147483647"),
            ("config set maxmemory 1gb", "OK"),
            ("object refcount k", ":1"),
            ("config set maxmemory-policy volatile-ttl", "OK"),
            ("object refcount k", ":2147483647"),
            ("config set maxmemory-policy volatile-lfu", "OK"),
            ("object refcount k", ":1"),
        ],
    );
}

#[test]
fn idle_times_count_from_the_last_use() {
    let mut client = Client::new();
    client.run("set k v");
    client.advance_ms(20_000);
    check(
        &mut client,
        &[
            ("exists k", ":1"),
            ("ttl k", ":-1"),
            ("type k", "string"),
            ("object idletime k", ":20"),
            ("touch k", ":1"),
            ("object idletime k", ":0"),
            ("object idletime x", "(nil)"),
        ],
    );
    let refused = show(&client.run("object freq k"));
    assert!(refused.starts_with("ERR An LFU maxmemory policy is not selected"));
}

#[test]
fn sort_orders_and_windows() {
    let mut client = Client::new();
    client.run("rpush l 3 1 10 2");
    client.run("mset w_1 4 w_2 3 w_3 2 w_10 1 o_1 one o_2 two");
    client.run("hset h_3 f three");
    client.run("zadd z 3 a 1 b 2 c");
    check(
        &mut client,
        &[
            ("sort l", "[1 2 3 10]"),
            ("sort l desc limit 1 2", "[3 2]"),
            ("sort l alpha", "[1 10 2 3]"),
            ("sort l by w_*", "[10 3 2 1]"),
            ("sort l by nosort", "[3 1 10 2]"),
            ("sort l by nosort limit 1 2", "[1 10]"),
            ("sort l limit -1 -1", "[1 2 3 10]"),
            ("sort l limit 9 1", "[]"),
            ("sort l limit 0 0", "[]"),
            (
                "sort_ro l get # get o_* get h_*->f",
                "[1 one (nil) 2 two (nil) 3 (nil) three 10 (nil) (nil)]",
            ),
            ("sort z by nosort", "[b c a]"),
            ("sort z by nosort desc limit 0 2", "[a c]"),
            (
                "sort z",
                "ERR One or more scores can't be converted into double",
            ),
            (
                "sort w_1",
                "WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("sort x", "[]"),
            ("sort l limit 0", "ERR syntax error"),
            ("sort_ro l store d", "ERR syntax error"),
        ],
    );
}

#[test]
fn sort_stores_a_list() {
    let mut client = Client::new();
    client.run("rpush l 3 1 2");
    client.run("set d v ex 100");
    check_logged(
        &mut client,
        &["sort l store d"],
        &["DEL d", "RPUSH d 1 2 3"],
    );
    check(
        &mut client,
        &[("ttl d", ":-1"), ("lrange d 0 -1", "[1 2 3]")],
    );
    check_logged(&mut client, &["sort x store d"], &["DEL d"]);
    check_logged(&mut client, &["sort x store d", "sort l"], &[]);
    check_logged(
        &mut client,
        &["sort l by w_* get w_* limit 0 2 store l"],
        &["DEL l", "RPUSH l  "],
    );
    client.check();
}

/// Keys that patterns of SORT name are not locked, so SORT must not delete expired ones.
#[test]
fn sort_leaves_expired_weights_alone() {
    let mut client = Client::new();
    client.run("rpush l 2 1");
    client.run("psetex w_1 5 9");
    client.run("psetex d 5 v");
    client.advance_ms(5);
    check_logged(
        &mut client,
        &["sort l by w_* store d"],
        &["DEL d", "RPUSH d 1 2"],
    );
    // `w_1` is still there for the expire thread.
    check(&mut client, &[("dbsize", ":3"), ("exists w_1", ":0")]);
    client.check();
}
