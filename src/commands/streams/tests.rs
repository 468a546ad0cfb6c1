//! The commands of streams, as clients see them and as the binlog has them.

use crate::exec::testing::{Client, START_MS};
use crate::resp::Value;

mod newer;

/// A reply in one line: `OK`, `(nil)`, `:1`, `bulk`, `[a b]`, `ERR …`.
fn show(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(text) | Value::Error(text) => text.clone(),
        Value::Int(n) => format!(":{n}"),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Null => "(nil)".into(),
        Value::Array(values) => format!("[{}]", all(values)),
        Value::Map(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(k, v)| format!("{}={}", show(k), show(v)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(" "))
        }
        other => panic!("no stream command answers {other:?}"),
    }
}

#[track_caller]
fn expect(client: &mut Client, cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        assert_eq!(show(&client.run(line)), *expected, "{line}");
    }
}

/// Runs the cases; the database must be consistent afterwards.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let mut client = Client::new();
    expect(&mut client, cases);
    client.check();
}

const INVALID: &str = "ERR Invalid stream ID specified as stream command argument";
const SYNTAX: &str = "ERR syntax error";
const NOT_INT: &str = "ERR value is not an integer or out of range";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_ABOVE: &str =
    "ERR The ID specified in XADD is equal or smaller than the target stream top item";
const ARITY: &str = "ERR wrong number of arguments for 'xadd' command";

#[test]
fn entries_get_ids_that_rise() {
    check(&[
        ("xadd s * a 1", "1800000000000-0"),
        ("xadd s * a 1", "1800000000000-1"),
        ("xadd s 1800000000000-5 a 1", "1800000000000-5"),
        ("xadd s 1800000000000-* a 1", "1800000000000-6"),
        ("xadd s 1800000000000-6 a 1", NOT_ABOVE),
        ("xadd s 1800000000000 a 1", NOT_ABOVE),
        ("xadd s 1700000000000-* a 1", NOT_ABOVE),
        ("xadd s 1900000000000-* a 1", "1900000000000-0"),
        ("xadd s * a 1", "1900000000000-1"),
        ("xlen s", ":6"),
        ("type s", "stream"),
        ("object encoding s", "stream"),
        (
            "xadd t 0-0 a 1",
            "ERR The ID specified in XADD must be greater than 0-0",
        ),
        ("xadd t 0-* a 1", "0-1"),
        ("xadd t 0-* a 1", "0-2"),
        (
            "xadd t 18446744073709551615-18446744073709551614 a 1",
            "18446744073709551615-18446744073709551614",
        ),
        ("xadd t * a 1", "18446744073709551615-18446744073709551615"),
        (
            "xadd t * a 1",
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ),
        ("xadd n NOMKSTREAM * a 1", "(nil)"),
        ("exists n", ":0"),
        ("xadd t 1-1-1 a 1", INVALID),
        ("xadd t - a 1", INVALID),
        ("xadd t + a 1", INVALID),
        ("xadd t x a 1", INVALID),
        ("xadd t 18446744073709551616-0 a 1", INVALID),
        (
            "xadd t * a",
            "ERR wrong number of arguments for 'xadd' command",
        ),
        ("xadd t * a b c", ARITY),
        ("xadd t maxlen 1 *", ARITY),
        ("set str x", "OK"),
        ("xadd str * a 1", WRONG_TYPE),
        ("xlen str", WRONG_TYPE),
        ("xlen none", ":0"),
    ]);
}

#[test]
fn ranges_of_ids() {
    let mut client = Client::new();
    for id in ["1-0", "1-1", "2-0", "2-5", "3-0"] {
        client.run(&format!("xadd s {id} f v{id}"));
    }
    let entries = |ids: &[&str]| {
        let shown: Vec<String> = ids.iter().map(|id| format!("[{id} [f v{id}]]")).collect();
        format!("[{}]", shown.join(" "))
    };
    for (line, ids) in [
        ("xrange s - +", &["1-0", "1-1", "2-0", "2-5", "3-0"][..]),
        ("xrevrange s + -", &["3-0", "2-5", "2-0", "1-1", "1-0"]),
        ("xrange s 1 1", &["1-0", "1-1"]),
        ("xrange s 1-1 2", &["1-1", "2-0", "2-5"]),
        ("xrange s (1-1 (2-5", &["2-0"]),
        ("xrange s (1 (3", &["1-1", "2-0", "2-5", "3-0"]),
        ("xrange s 2 1", &[]),
        ("xrange s - + COUNT 2", &["1-0", "1-1"]),
        ("xrevrange s + - COUNT 1", &["3-0"]),
        ("xrevrange s (3-0 2-1", &["2-5"]),
        ("xrange none - +", &[]),
    ] {
        assert_eq!(show(&client.run(line)), entries(ids), "{line}");
    }
    expect(
        &mut client,
        &[
            ("xrange s - + COUNT 0", "(nil)"),
            ("xrange s - + COUNT -1", "(nil)"),
            ("xrange s - + COUNT", SYNTAX),
            ("xrange s - + COUNT x", NOT_INT),
            ("xrange s - + LIMIT 1", SYNTAX),
            ("xrange s (- +", INVALID),
            (
                "xrange s (18446744073709551615-18446744073709551615 +",
                "ERR invalid start ID for the interval",
            ),
            ("xrange s - (0-0", "ERR invalid end ID for the interval"),
        ],
    );
    client.check();
}

#[test]
fn entries_are_deleted_and_trimmed() {
    check(&[
        ("xadd s 1 a 1", "1-0"),
        ("xadd s 2 a 1", "2-0"),
        ("xadd s 3 a 1", "3-0"),
        ("xadd s 4 a 1", "4-0"),
        ("xdel s 2 2 9", ":1"),
        ("xdel s 1 x", INVALID),
        ("xlen s", ":3"),
        ("xdel s 1", ":1"),
        ("xrange s - + COUNT 1", "[[3-0 [a 1]]]"),
        ("xtrim s maxlen 1", ":1"),
        ("xrange s - +", "[[4-0 [a 1]]]"),
        ("xadd s minid 5 5 b 2", "5-0"),
        ("xrange s - +", "[[5-0 [b 2]]]"),
        ("xadd s maxlen 0 6 b 2", "6-0"),
        ("xlen s", ":0"),
        ("exists s", ":1"),
        ("xrange s - +", "[]"),
        ("xadd s 6 b 2", NOT_ABOVE),
        ("xadd s 7 b 2", "7-0"),
        ("xdel s 7", ":1"),
        ("xtrim s maxlen 0", ":0"),
        ("xtrim none maxlen 0", ":0"),
        ("xdel none x", ":0"),
        ("xtrim s maxlen -1", "ERR The MAXLEN argument must be >= 0."),
        (
            "xtrim s maxlen ~ 1 limit -1",
            "ERR The LIMIT argument must be >= 0.",
        ),
        (
            "xtrim s maxlen 1 limit 1",
            "ERR syntax error, LIMIT cannot be used without the special ~ option",
        ),
        (
            "xtrim s maxlen 1 minid 1",
            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        ),
        (
            "xtrim s limit 1 limit 1",
            "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        ),
        (
            "xtrim s limit 0",
            "ERR syntax error, XTRIM must be called with a trimming strategy",
        ),
        ("xtrim s maxlen = 1 x", SYNTAX),
        ("xtrim s nomkstream 1", SYNTAX),
    ]);
}

/// Trimming removes whole nodes, as in Redis with full nodes.
#[test]
fn approximate_rules_leave_parts_of_nodes() {
    let mut client = Client::new();
    for n in 1..=1000 {
        client.run(&format!("xadd s {n} f v"));
    }
    expect(
        &mut client,
        &[
            ("xtrim s maxlen ~ 1000", ":0"),
            ("xtrim s maxlen ~ 901", ":0"),
            ("xtrim s maxlen ~ 850", ":100"),
            ("xtrim s maxlen 555", ":345"),
            ("xtrim s maxlen ~ 444", ":55"),
            ("xtrim s maxlen ~ 100 limit 250", ":200"),
            ("xtrim s minid ~ 805", ":100"),
            ("xrange s - + count 1", "[[801-0 [f v]]]"),
            ("xtrim s minid ~ 5000", ":200"),
            ("xlen s", ":0"),
            ("config set stream-node-max-entries 10", "OK"),
        ],
    );
    for n in 1001..=1030 {
        client.run(&format!("xadd s {n} f v"));
    }
    expect(
        &mut client,
        &[
            ("xadd s maxlen ~ 12 limit 5 1031 f v", "1031-0"),
            ("xlen s", ":31"),
            ("xadd s nomkstream maxlen ~ 12 limit 10 1032 f v", "1032-0"),
            ("xlen s", ":22"),
        ],
    );
    let logged = client.logged();
    let last: Vec<&str> = logged.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(
        last,
        [
            "xadd s nomkstream maxlen = 22 1032-0 f v",
            "xadd s maxlen = 31 1031-0 f v",
        ]
    );
    client.check();
}

#[test]
fn ids_and_counters_are_set() {
    check(&[
        ("xsetid s 1", "ERR no such key"),
        ("xadd s 5 a 1", "5-0"),
        ("xadd s 6 a 1", "6-0"),
        (
            "xsetid s 5",
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ),
        ("xsetid s 10-3 entriesadded 7 maxdeletedid 4-4", "OK"),
        (
            "xsetid s 10 entriesadded 1",
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ),
        (
            "xsetid s 10 maxdeletedid 11",
            "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
        ),
        (
            "xsetid s 10 entriesadded -1",
            "ERR entries_added must be positive",
        ),
        ("xsetid s 10 entriesadded", SYNTAX),
        (
            "xinfo stream s",
            "[length :2 radix-tree-keys :1 radix-tree-nodes :2 last-generated-id 10-3 \
             max-deleted-entry-id 4-4 entries-added :7 recorded-first-entry-id 5-0 \
             idmp-duration :100 idmp-maxsize :100 pids-tracked :0 iids-tracked :0 iids-added :0 \
             iids-duplicates :0 groups :0 \
             first-entry [5-0 [a 1]] last-entry [6-0 [a 1]]]",
        ),
        ("xadd s 10-3 a 1", NOT_ABOVE),
    ]);
}

#[test]
fn reading_without_waiting() {
    check(&[
        ("xadd s 1 a 1", "1-0"),
        ("xadd s 2 a 2", "2-0"),
        ("xadd t 1 b 1", "1-0"),
        (
            "xread streams s t 0 0",
            "[[s [[1-0 [a 1]] [2-0 [a 2]]]] [t [[1-0 [b 1]]]]]",
        ),
        ("xread count 1 streams s none 0 0", "[[s [[1-0 [a 1]]]]]"),
        ("xread streams s 1", "[[s [[2-0 [a 2]]]]]"),
        ("xread streams s $", "(nil)"),
        ("xread streams s +", "[[s [[2-0 [a 2]]]]]"),
        ("xread streams none +", "(nil)"),
        ("xread streams s 2", "(nil)"),
        ("xdel s 2", ":1"),
        ("xread streams s 1", "(nil)"),
        ("xread streams s +", "[[s [[1-0 [a 1]]]]]"),
        (
            "xread streams s",
            "ERR wrong number of arguments for 'xread' command",
        ),
        (
            "xread count 1 streams s",
            "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
        ),
        ("xread count 1 block 1", SYNTAX),
        (
            "xread block x streams s 0",
            "ERR timeout is not an integer or out of range",
        ),
        ("xread block -1 streams s 0", "ERR timeout is negative"),
        (
            "xread streams s >",
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        ),
        (
            "xread group g c streams s 0",
            "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        ("multi", "OK"),
        ("xread block 0 streams none $", "QUEUED"),
        ("exec", "[(nil)]"),
    ]);
    let mut client = Client::new();
    client.run("hello 3");
    expect(
        &mut client,
        &[
            ("xadd s 1 a 1", "1-0"),
            ("xread streams s 0", "{s=[[1-0 [a 1]]]}"),
            ("xread streams s 1", "(nil)"),
        ],
    );
}

#[test]
fn groups_share_a_stream() {
    check(&[
        ("xadd s 1 a 1", "1-0"),
        ("xadd s 2 a 2", "2-0"),
        ("xadd s 3 a 3", "3-0"),
        ("xgroup create s g 0", "OK"),
        (
            "xgroup create s g 0",
            "BUSYGROUP Consumer Group name already exists",
        ),
        (
            "xreadgroup group g a count 1 streams s >",
            "[[s [[1-0 [a 1]]]]]",
        ),
        (
            "xreadgroup group g b streams s >",
            "[[s [[2-0 [a 2]] [3-0 [a 3]]]]]",
        ),
        ("xreadgroup group g c streams s >", "(nil)"),
        (
            "xreadgroup group g b streams s 0",
            "[[s [[2-0 [a 2]] [3-0 [a 3]]]]]",
        ),
        (
            "xreadgroup group g b count 1 streams s 2",
            "[[s [[3-0 [a 3]]]]]",
        ),
        ("xreadgroup group g c streams s 0", "[[s []]]"),
        ("xpending s g", "[:3 1-0 3-0 [[a 1] [b 2]]]"),
        (
            "xpending s g - + 10",
            "[[1-0 a :0 :1] [2-0 b :0 :2] [3-0 b :0 :3]]",
        ),
        ("xpending s g - + 10 b", "[[2-0 b :0 :2] [3-0 b :0 :3]]"),
        ("xpending s g (1 3 1", "[[2-0 b :0 :2]]"),
        ("xpending s g idle 1 - + 10", "[]"),
        ("xpending s g - + 10 nobody", "[]"),
        ("xack s g 1 2 2 9", ":2"),
        ("xpending s g", "[:1 3-0 3-0 [[b 1]]]"),
        ("xdel s 3", ":1"),
        ("xreadgroup group g b streams s 0", "[[s [[3-0 (nil)]]]]"),
        ("xack s g 3", ":1"),
        ("xpending s g", "[:0 (nil) (nil) (nil)]"),
        (
            "xinfo groups s",
            "[[name g consumers :3 pending :0 last-delivered-id 3-0 entries-read :3 lag :0]]",
        ),
        ("xgroup delconsumer s g c", ":0"),
        ("xgroup createconsumer s g c", ":1"),
        ("xgroup createconsumer s g c", ":0"),
        ("xgroup destroy s g", ":1"),
        ("xgroup destroy s g", ":0"),
        ("xinfo groups s", "[]"),
        ("xack s g 1", ":0"),
        ("xack none g 1", ":0"),
        (
            "xpending s g",
            "NOGROUP No such key 's' or consumer group 'g'",
        ),
        (
            "xreadgroup group g a streams s >",
            "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        (
            "xinfo consumers s g",
            "NOGROUP No such consumer group 'g' for key name 's'",
        ),
        (
            "xgroup setid s g 0",
            "NOGROUP No such consumer group 'g' for key name 's'",
        ),
        (
            "xgroup create none g $",
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to \
             use the MKSTREAM option to create an empty stream automatically.",
        ),
        ("xgroup create none g $ mkstream entriesread 5", "OK"),
        ("xlen none", ":0"),
        (
            "xgroup create none h $ entriesread -2",
            "ERR value for ENTRIESREAD must be positive or -1",
        ),
        (
            "xgroup create none h $ nonsense",
            "ERR unknown subcommand or wrong number of arguments for 'create'. Try XGROUP HELP.",
        ),
        ("xreadgroup group g a noack streams none >", "(nil)"),
        ("xadd none 1 a 1", "1-0"),
        (
            "xreadgroup group g a noack streams none >",
            "[[none [[1-0 [a 1]]]]]",
        ),
        ("xpending none g", "[:0 (nil) (nil) (nil)]"),
        ("xgroup setid none g 0-5 entriesread 3", "OK"),
        (
            "xreadgroup group g b streams none >",
            "[[none [[1-0 [a 1]]]]]",
        ),
        ("xgroup delconsumer none g b", ":1"),
        ("xpending none g", "[:0 (nil) (nil) (nil)]"),
    ]);
}

#[test]
fn entries_are_claimed() {
    let mut client = Client::new();
    for n in 1..=5 {
        client.run(&format!("xadd s {n} f {n}"));
    }
    expect(
        &mut client,
        &[
            ("xgroup create s g 0", "OK"),
            (
                "xreadgroup group g a count 3 streams s >",
                "[[s [[1-0 [f 1]] [2-0 [f 2]] [3-0 [f 3]]]]]",
            ),
        ],
    );
    client.advance_ms(100);
    expect(
        &mut client,
        &[
            ("xclaim s g b 101 1", "[]"),
            ("xclaim s g b 100 1", "[[1-0 [f 1]]]"),
            (
                "xclaim s g b 0 1 2 justid idle 50 retrycount 9",
                "[1-0 2-0]",
            ),
            (
                "xpending s g - + 10",
                "[[1-0 b :50 :9] [2-0 b :50 :9] [3-0 a :100 :1]]",
            ),
            ("xclaim s g b 0 4", "[]"),
            ("xclaim s g b 0 4 force", "[[4-0 [f 4]]]"),
            ("xclaim s g b 0 9 force", "[]"),
            (
                "xclaim s g b 0 4 nonsense",
                "ERR Unrecognized XCLAIM option 'nonsense'",
            ),
            (
                "xclaim s g b x 4",
                "ERR Invalid min-idle-time argument for XCLAIM",
            ),
            (
                "xclaim s h b 0 4",
                "NOGROUP No such key 's' or consumer group 'h'",
            ),
            ("xdel s 2", ":1"),
            ("xclaim s g a 0 2", "[]"),
            ("xpending s g", "[:3 1-0 4-0 [[a 1] [b 2]]]"),
            ("xautoclaim s g c 100 0 count 1", "[4-0 [[3-0 [f 3]]] []]"),
            ("xdel s 3", ":1"),
            ("xautoclaim s g c 0 0 count 1 justid", "[3-0 [1-0] []]"),
            (
                "xautoclaim s g c 0 3-0 count 9",
                "[0-0 [[4-0 [f 4]]] [3-0]]",
            ),
            (
                "xautoclaim s g c 0 (18446744073709551615-18446744073709551615",
                "ERR invalid start ID for the interval",
            ),
            ("xautoclaim s g c 0 0 count 0", "ERR COUNT must be > 0"),
            (
                "xinfo consumers s g",
                "[[name a pending :0 idle :0 inactive :100] [name b pending :0 idle :0 inactive :0] [name c pending :2 idle :0 inactive :0]]",
            ),
        ],
    );
    client.check();
}

#[test]
fn everything_about_a_stream() {
    let mut client = Client::new();
    expect(
        &mut client,
        &[
            ("xgroup create s g 0 mkstream", "OK"),
            ("xgroup createconsumer s g idle", ":1"),
            ("xadd s 1 a 1", "1-0"),
            ("xadd s 2 a 2", "2-0"),
            (
                "xreadgroup group g c count 1 streams s >",
                "[[s [[1-0 [a 1]]]]]",
            ),
            (
                "xinfo stream s full",
                "[length :2 radix-tree-keys :1 radix-tree-nodes :2 last-generated-id 2-0 \
                 max-deleted-entry-id 0-0 entries-added :2 recorded-first-entry-id 1-0 \
                 idmp-duration :100 idmp-maxsize :100 pids-tracked :0 iids-tracked :0 iids-added :0 \
                 iids-duplicates :0 entries [[1-0 [a 1]] [2-0 [a 2]]] groups [[name g last-delivered-id 1-0 \
                 entries-read :1 lag :1 pel-count :1 nacked-count :0 pending [[1-0 c :1800000000000 :1]] \
                 consumers [[name c seen-time :1800000000000 active-time :1800000000000 \
                 pel-count :1 pending [[1-0 :1800000000000 :1]]] [name idle \
                 seen-time :1800000000000 active-time :-1 pel-count :0 pending []]]]]]",
            ),
            ("xinfo stream none", "ERR no such key"),
            (
                "xinfo stream s full count",
                "ERR unknown subcommand or wrong number of arguments for 'stream'. Try XINFO HELP.",
            ),
        ],
    );
    client.check();
}

/// `entries-read` and `lag`, where they are known, as in Redis 7.4.
#[test]
fn groups_know_how_far_behind_they_are() {
    let mut client = Client::new();
    let progress = |client: &mut Client| {
        let shown = show(&client.run("xinfo groups s"));
        let at = shown.find("entries-read").expect("a group");
        shown[at..].trim_end_matches(']').to_owned()
    };
    client.run("xgroup create s g 0 mkstream");
    for (lines, expected) in [
        (&[][..], "entries-read (nil) lag :0"),
        (
            &[
                "xadd s 1 a 1",
                "xadd s 2 a 1",
                "xadd s 3 a 1",
                "xadd s 4 a 1",
                "xadd s 5 a 1",
            ],
            "entries-read (nil) lag :5",
        ),
        (
            &["xreadgroup group g c count 1 streams s >"],
            "entries-read :1 lag :4",
        ),
        (&["xdel s 1"], "entries-read :1 lag :4"),
        (
            &["xreadgroup group g c count 1 streams s >"],
            "entries-read :2 lag :3",
        ),
        // A deleted entry after the group's position: the lag is unknown.
        (&["xdel s 4"], "entries-read :2 lag (nil)"),
        (
            &["xreadgroup group g c count 1 streams s >"],
            "entries-read (nil) lag (nil)",
        ),
        (
            &["xreadgroup group g c count 1 streams s >"],
            "entries-read :5 lag :0",
        ),
        (&["xadd s 6 a 1"], "entries-read :5 lag :1"),
        (&["xtrim s maxlen 1"], "entries-read :5 lag :1"),
        (&["xgroup setid s g 0"], "entries-read (nil) lag :1"),
        (&["xtrim s maxlen 0"], "entries-read (nil) lag :0"),
    ] {
        for line in lines {
            client.run(line);
        }
        assert_eq!(progress(&mut client), expected, "{lines:?}");
    }
    client.check();
}

/// A replica that runs the binlog has the same streams as the master.
#[test]
fn what_is_logged_makes_the_same_stream() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut master = Client::new();
        for _ in 0..150 {
            let line = match rng.u8(..4) {
                0 => newer::random_command(&mut rng),
                _ => random_command(&mut rng),
            };
            master.run(&line);
            if rng.u8(..8) == 0 {
                master.advance_ms(rng.u64(1..50));
            }
        }
        master.check();
        let mut replica = Client::new();
        replica.advance_ms(100_000);
        for line in master.logged() {
            let reply = show(&replica.run(&line));
            assert!(!reply.starts_with("ERR"), "seed {seed}: {line}: {reply}");
        }
        replica.check();
        for key in ["s", "t"] {
            assert_eq!(
                master.digest(key.as_bytes()),
                replica.digest(key.as_bytes()),
                "seed {seed}: {}\n{}",
                show(&master.run(&format!("xinfo stream {key} full count 0"))),
                show(&replica.run(&format!("xinfo stream {key} full count 0"))),
            );
        }
    }
}

fn random_command(rng: &mut fastrand::Rng) -> String {
    let key = rng.choice(["s", "t"]).expect("some");
    let group = rng.choice(["g", "h"]).expect("some");
    let consumer = rng.choice(["a", "b", "c"]).expect("some");
    let id = START_MS + rng.u64(..200);
    let count = rng.u8(1..5);
    match rng.u8(..20) {
        0..=4 => format!("xadd {key} * f{} v", rng.u8(..2)),
        5 => format!("xadd {key} maxlen ~ {} * f v", rng.u8(..30)),
        6 => format!("xadd {key} maxlen {} * f v", rng.u8(..30)),
        7 => {
            let word = rng
                .choice(["", "keepref", "delref", "acked"])
                .expect("some");
            match rng.u8(..4) {
                0 => format!("xdel {key} {id} {id}-1"),
                1 => format!("xdelex {key} {word} ids 3 {id} {id}-1 {id}-2"),
                2 => format!("xackdel {key} {group} {word} ids 3 {id} {id}-1 {id}-2"),
                _ => {
                    let sign = rng.choice(["=", "~"]).expect("some");
                    let kept = rng.u8(..30);
                    match rng.bool() {
                        true => format!("xtrim {key} maxlen {sign} {kept} {word}"),
                        false => format!("xadd {key} {word} minid {sign} {id} * f v"),
                    }
                }
            }
        }
        8 => format!("xgroup create {key} {group} $ mkstream"),
        9 => format!("xgroup setid {key} {group} {id}"),
        10 => match rng.u8(..6) {
            0 => format!("xgroup destroy {key} {group}"),
            1 => format!("del {key}"),
            2 => format!("xsetid {key} {}", id + 500),
            _ => format!("xgroup delconsumer {key} {group} {consumer}"),
        },
        11..=13 => format!("xreadgroup group {group} {consumer} count {count} streams {key} >"),
        14 => format!("xreadgroup group {group} {consumer} noack count {count} streams {key} >"),
        15 => format!("xreadgroup group {group} {consumer} streams {key} 0"),
        16 => format!("xack {key} {group} {id} {id}-1 {id}-2"),
        17 => format!(
            "xclaim {key} {group} {consumer} {} {id} {id}-1",
            rng.u8(..20)
        ),
        18 => format!("xclaim {key} {group} {consumer} 0 {id} force justid lastid {id}"),
        _ => format!(
            "xautoclaim {key} {group} {consumer} {} 0 count {count}",
            rng.u8(..20)
        ),
    }
}

/// DUMP and RESTORE preserve entries, groups and consumers.
#[test]
fn payloads_hold_everything() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(1000 + seed);
        let mut client = Client::new();
        client.run("xgroup create s g 0 mkstream");
        for _ in 0..200 {
            let line = random_command(&mut rng);
            client.run(&line);
        }
        let Value::Bulk(payload) = client.run("dump s") else {
            continue;
        };
        let restored = client.args(&[b"restore", b"copy", b"0", &payload]);
        assert_eq!(show(&restored), "OK", "seed {seed}");
        assert_eq!(client.run("dump copy"), Value::Bulk(payload.clone()));
        assert_eq!(client.digest(b"s"), client.digest(b"copy"), "seed {seed}");
        client.run("copy s third");
        assert_eq!(client.run("dump third"), Value::Bulk(payload));
        client.check();
    }
}
