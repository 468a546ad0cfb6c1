//! What Redis has added since 8.2: references, released entries, claims, limits of a whole reply,
//! and idempotent XADD.

use super::{Client, INVALID, START_MS, SYNTAX, Value, WRONG_TYPE, expect, show};
use crate::rdb::payload;

pub(super) fn random_command(rng: &mut fastrand::Rng) -> String {
    let key = rng.choice(["s", "t"]).expect("some");
    let group = rng.choice(["g", "h"]).expect("some");
    let consumer = rng.choice(["a", "b", "c"]).expect("some");
    let (id, count) = (START_MS + rng.u64(..200), rng.u8(1..5));
    match rng.u8(..8) {
        0 => format!("xnack {key} {group} fail ids 2 {id} {id}-1"),
        1 => format!("xnack {key} {group} silent ids 2 {id}-1 {id} force"),
        2 => format!("xnack {key} {group} fatal ids 1 {id} retrycount {count}"),
        3 | 4 => format!(
            "xreadgroup group {group} {consumer} count {count} claim {} streams {key} >",
            rng.u8(..20)
        ),
        5 => format!("xadd {key} idmp p{} {} * f v", rng.u8(..3), rng.u8(..20)),
        6 => format!("xadd {key} maxlen {} idmp q {count} * f v", rng.u8(..30)),
        _ => format!("xcfgset {key} idmp-duration 1 idmp-maxsize {count}"),
    }
}

#[test]
fn entries_are_deleted_by_their_references() {
    let mut client = Client::new();
    for id in 1..=8 {
        client.run(&format!("xadd s {id} f v"));
    }
    expect(
        &mut client,
        &[
            ("xgroup create s g 0", "OK"),
            ("xgroup create s h 0", "OK"),
            ("config set stream-node-max-entries 2", "OK"),
        ],
    );
    client.run("xreadgroup group g c count 6 streams s >");
    client.run("xreadgroup group h c count 4 streams s >");
    expect(
        &mut client,
        &[
            ("xdel s 1 2", ":2"),
            ("xdelex s delref ids 3 1 3 9", "[:-1 :1 :-1]"),
            ("xpending s h", "[:2 2-0 4-0 [[c 2]]]"),
            ("xack s g 4", ":1"),
            ("xdelex s acked ids 3 4 2 9", "[:2 :2 :2]"),
            ("xack s h 4", ":1"),
            ("xdelex s ids 3 4 4 5 acked", "[:1 :-1 :2]"),
            ("xackdel s g delref ids 3 2 5 3", "[:1 :1 :-1]"),
            ("xpending s h", "[:0 (nil) (nil) (nil)]"),
            ("xackdel s g acked ids 3 6 7 8", "[:2 :-1 :-1]"),
            ("xlen s", ":3"),
            ("xackdel s none ids 1 x", "[:-1]"),
            ("xackdel none g ids 1 x", "[:-1]"),
            ("xackdel s g ids 1 x", INVALID),
            ("xdelex none ids 2 x y", "[:-1 :-1]"),
            ("xdelex none foo ids 1 1", SYNTAX),
            ("xdelex s ids 1 1 2", SYNTAX),
            ("xdelex s acked acked ids 1 1", SYNTAX),
            ("xdelex s keepref delref acked", SYNTAX),
            (
                "xdelex s ids 0 1",
                "ERR Number of IDs must be a positive integer",
            ),
            (
                "xdelex s ids 2 1",
                "ERR The `numids` parameter must match the number of arguments",
            ),
            ("set str x", "OK"),
            ("xdelex str foo ids 1 1", WRONG_TYPE),
        ],
    );
    client.check();
    let logged = client.logged();
    let has = |line: &str| {
        logged
            .iter()
            .any(|logged| logged.eq_ignore_ascii_case(line))
    };
    assert!(
        logged
            .iter()
            .all(|line| !line.contains("xdelex") && !line.contains("ackdel"))
    );
    assert!(
        has("xack s g 1-0 3-0") && has("xack s h 2-0") && has("xdel s 5-0"),
        "{logged:?}"
    );
}

#[test]
fn trimming_minds_references() {
    let mut client = Client::new();
    let fill = |client: &mut Client, acked: &[u64]| {
        client.run("del s");
        for id in 1..=10 {
            client.run(&format!("xadd s {id} f v"));
        }
        client.run("xgroup create s g 0");
        client.run("xreadgroup group g c count 8 streams s >");
        for id in acked {
            client.run(&format!("xack s g {id}"));
        }
    };
    client.run("config set stream-node-max-entries 2");
    fill(&mut client, &[1, 2, 4, 5]);
    expect(
        &mut client,
        &[
            (
                "xtrim s maxlen 0 acked limit 1",
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ),
            ("xtrim s maxlen 0 acked delref", SYNTAX),
            // The first two nodes are looked at.
            ("xtrim s maxlen ~ 6 acked", ":3"),
            ("xtrim s maxlen 6 acked", ":1"),
            ("xtrim s maxlen 0 acked", ":0"),
            ("xrange s - + count 2", "[[3-0 [f v]] [6-0 [f v]]]"),
            ("xtrim s minid 7 delref", ":2"),
            ("xpending s g", "[:2 7-0 8-0 [[c 2]]]"),
            ("xadd s delref maxlen 2 11 f v", "11-0"),
            ("xpending s g", "[:0 (nil) (nil) (nil)]"),
            ("xadd s acked maxlen 1 12 f v", "12-0"),
            ("xlen s", ":3"),
        ],
    );
    fill(&mut client, &[1, 2, 3]);
    expect(&mut client, &[("xtrim s maxlen = 0 acked", ":3")]);
    let logged = client.logged();
    let last = logged.last().expect("some");
    assert!(last.eq_ignore_ascii_case("xtrim s minid = 4-0"), "{last}");
    client.check();
}

/// Entries that were released belong to no consumer, and come first in claims.
#[test]
fn entries_are_released() {
    let mut client = Client::new();
    for id in 1..=4 {
        client.run(&format!("xadd s {id} f v"));
    }
    const MAX: i64 = i64::MAX;
    expect(
        &mut client,
        &[
            ("xgroup create s g 0", "OK"),
            ("xnack s g fail ids 1 1", ":0"),
            ("xnack s g fail ids 2 1 9 force", ":1"),
            ("xpending s g - + 9", "[[1-0  :-1 :0]]"),
            ("xack s g 1", ":1"),
        ],
    );
    client.run("xreadgroup group g c streams s >");
    expect(
        &mut client,
        &[
            ("xnack s g fail ids 3 3 1 9", ":2"),
            ("xnack s g fatal ids 1 2", ":1"),
            ("xnack s g silent ids 1 3", ":1"),
            ("xpending s g - + 9 c", "[[4-0 c :0 :1]]"),
            ("xreadgroup group g c streams s 0", "[[s [[4-0 [f v]]]]]"),
            ("xnack s g fail force ids 1 4 retrycount 7", ":1"),
        ],
    );
    let pending = format!("[[1-0  :-1 :1] [2-0  :-1 :{MAX}] [3-0  :-1 :0] [4-0  :-1 :7]]");
    expect(&mut client, &[("xpending s g - + 9", &pending)]);
    expect(
        &mut client,
        &[
            ("xgroup delconsumer s g c", ":0"),
            ("xdel s 1", ":1"),
            // In the order of release; the deleted entry is left out and forgotten.
            (
                "xreadgroup group g d count 3 claim 99999 streams s >",
                &format!("[[s [[2-0 [f v] :{START_MS} :{MAX}] [3-0 [f v] :{START_MS} :0]]]]"),
            ),
            ("xpending s g", "[:3 2-0 4-0 [[d 2]]]"),
            ("xclaim s g e 99999 4 2", "[[4-0 [f v]]]"),
            ("xnack s g fail ids 1 4", ":1"),
            ("xautoclaim s g e 99999 0", "[0-0 [[4-0 [f v]]] []]"),
            ("xnack s g fail ids 1 4", ":1"),
            ("xack s g 4", ":1"),
            (
                "xnack s none fail ids 1 4",
                "NOGROUP No such key 's' or consumer group 'none'",
            ),
            (
                "xnack none g fail ids 1 4",
                "NOGROUP No such key 'none' or consumer group 'g'",
            ),
            (
                "xnack s g bad ids 1 4",
                "ERR mode must be SILENT, FAIL, or FATAL",
            ),
            (
                "xnack s g fail fatal ids 1 4",
                "ERR Unrecognized XNACK option 'fatal'",
            ),
            (
                "xnack s g fail ids 1 4 5",
                "ERR Unrecognized XNACK option '5'",
            ),
            (
                "xnack s g fail ids 1 4 retrycount",
                "ERR Unrecognized XNACK option 'retrycount'",
            ),
            (
                "xnack s g fail ids 0 4",
                "ERR numids must be a positive integer",
            ),
            (
                "xnack s g fail ids 2 4",
                "ERR number of IDs doesn't match numids",
            ),
            ("xnack s g fail ids 1 x", INVALID),
            (
                "xnack s g fail ids 1 4 retrycount -1",
                "ERR Invalid RETRYCOUNT value, must be >= 0",
            ),
            (
                "xnack s g silent force retrycount 5",
                "ERR syntax error, expected IDS keyword",
            ),
            ("xnack s g fail ids 1 2", ":1"),
            ("xgroup destroy s g", ":1"),
        ],
    );
    client.check();
}

/// A payload has the form of Redis 7.0, in which each pending entry has a consumer.
#[test]
fn released_entries_in_a_payload_belong_to_a_consumer_without_a_name() {
    for names in [&[][..], &["c"][..], &["", "c"][..]] {
        let mut client = Client::new();
        for id in 1..=4 {
            client.run(&format!("xadd s {id} f v"));
        }
        client.run("xgroup create s g 0");
        for name in names {
            client.args(&[
                b"xreadgroup",
                b"group",
                b"g",
                name.as_bytes(),
                b"count",
                b"1",
                b"streams",
                b"s",
                b">",
            ]);
        }
        client.run("xnack s g fail ids 2 4 3 force");
        let Value::Bulk(payload) = client.run("dump s") else {
            panic!("no payload");
        };
        client.args(&[b"restore", b"copy", b"0", &payload]);
        let owned = 2 + names.iter().filter(|name| name.is_empty()).count();
        let summary = show(&client.run("xpending copy g"));
        assert!(
            summary.contains(&format!("[ {owned}]")),
            "{names:?}: {summary}"
        );
        client.check();
    }
}

#[test]
fn idle_entries_are_claimed_by_reading() {
    let mut client = Client::new();
    for id in 1..=3 {
        client.run(&format!("xadd s {id} f v"));
    }
    client.run("xgroup create s g 0");
    expect(
        &mut client,
        &[
            (
                "xreadgroup group g a count 1 claim 50 streams s >",
                "[[s [[1-0 [f v] :0 :0]]]]",
            ),
            (
                "xreadgroup group g a count 1 streams s >",
                "[[s [[2-0 [f v]]]]]",
            ),
        ],
    );
    client.advance_ms(60);
    expect(
        &mut client,
        &[
            // Redelivered: from now on idle for a shorter time than the other one.
            ("xclaim s g a 0 1", "[[1-0 [f v]]]"),
            (
                "xreadgroup group g b claim 61 count 1 streams s 0",
                "[[s []]]",
            ),
            (
                "xreadgroup group g b claim 50 streams s >",
                "[[s [[2-0 [f v] :60 :1] [3-0 [f v] :0 :0]]]]",
            ),
            ("xreadgroup group g b claim 50 streams s >", "(nil)"),
        ],
    );
    client.advance_ms(60);
    expect(
        &mut client,
        &[
            ("xack s g 3", ":1"),
            ("xgroup delconsumer s g b", ":1"),
            (
                "xreadgroup group g c noack claim 9 streams s >",
                "[[s [[1-0 [f v] :60 :2]]]]",
            ),
            ("xpending s g - + 9", "[[1-0 c :0 :3]]"),
            (
                "xreadgroup group g c claim x streams s >",
                "ERR min-idle-time is not an integer",
            ),
            (
                "xreadgroup group g c claim -1 streams s >",
                "ERR min-idle-time must be a positive integer",
            ),
            (
                "xread claim 1 streams s 0",
                "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
            ),
        ],
    );
    client.check();
}

#[test]
fn a_whole_reply_has_limits() {
    let mut client = Client::new();
    for key in ["s", "t"] {
        for id in 1..=3 {
            client.run(&format!("xadd {key} {id} f v"));
        }
        client.run(&format!("xgroup create {key} g 0"));
    }
    let both = "[[s [[1-0 [f v]] [2-0 [f v]]]] [t [[1-0 [f v]]]]]";
    let one = "[[s [[1-0 [f v]]]]]";
    expect(
        &mut client,
        &[
            ("xread count 2 maxcount 3 streams s t 0 0", both),
            ("xread maxcount 1 streams s t 0 0", one),
            ("xread maxsize 1 streams s t 0 0", one),
            ("xread maxsize 1 streams s t 9 0", "[[t [[1-0 [f v]]]]]"),
            (
                "xread maxsize 1000 count 1 streams s t 0 0",
                "[[s [[1-0 [f v]]]] [t [[1-0 [f v]]]]]",
            ),
            (
                "xread maxcount 0 streams s 0",
                "ERR MAXCOUNT must be a positive integer",
            ),
            (
                "xread maxsize x streams s 0",
                "ERR MAXSIZE must be a positive integer",
            ),
            (
                "xread count 2 maxcount 1 streams s 0",
                "ERR MAXCOUNT must be greater than or equal to COUNT",
            ),
            (
                "xreadgroup group g a count 2 maxcount 3 streams s t > >",
                both,
            ),
            // What did not fit is not delivered.
            ("xpending t g", "[:1 1-0 1-0 [[a 1]]]"),
            ("xreadgroup group g a maxsize 1 streams s t 0 0", one),
            ("xreadgroup group g a maxcount 3 streams s t 0 0", both),
            (
                "xreadgroup group g b maxcount 2 claim 0 streams s t > >",
                "[[s [[1-0 [f v] :0 :3] [2-0 [f v] :0 :2]]]]",
            ),
        ],
    );
    client.check();
}

#[test]
fn entries_are_added_once() {
    let mut client = Client::new();
    expect(
        &mut client,
        &[
            ("xadd s nomkstream idmp p a * f v", "(nil)"),
            ("xadd s idmp p a * f v", "1800000000000-0"),
            ("xadd s idmp p a * f w", "1800000000000-0"),
            ("xadd s idmp q a * f v", "1800000000000-1"),
            ("xadd s idmp p b maxlen 10 * f v", "1800000000000-2"),
            ("xadd s maxlen 10 idmpauto p * f v", "1800000000000-3"),
            ("xadd s keepref idmpauto p * f v", "1800000000000-3"),
            ("xadd s idmpauto p * f w", "1800000000000-4"),
            ("xlen s", ":5"),
            ("xcfgset s idmp-duration 100 idmp-maxsize 100", "OK"),
            ("xadd s idmp p a * f v", "1800000000000-0"),
            ("xcfgset s idmp-maxsize 2", "OK"),
            ("xadd s idmp p a * f v", "1800000000000-5"),
            ("xadd s idmp p b * f v", "1800000000000-6"),
            ("xadd s idmp p c * f v", "1800000000000-7"),
            ("xadd s idmp p b * f v", "1800000000000-6"),
            ("xadd s idmp p a * f v", "1800000000000-8"),
            ("xadd s idmp q z * f v", "1800000000000-9"),
            (
                "xadd s idmp p 1 1-1 f v",
                "ERR IDMP/IDMPAUTO can be used only with auto-generated IDs",
            ),
            (
                "xadd s idmp p 1 idmpauto q * f v",
                "ERR IDMP/IDMPAUTO specified multiple times",
            ),
            ("xadd s idmp p1 * f v", INVALID),
            ("xcfgset s", "ERR At least one parameter must be specified"),
            ("xcfgset s idmp-duration", SYNTAX),
            (
                "xcfgset s idmp-duration 0",
                "ERR IDMP-DURATION must be between 1 and 86400 seconds",
            ),
            (
                "xcfgset s idmp-maxsize 10001",
                "ERR IDMP-MAXSIZE must be between 1 and 10000 entries",
            ),
            ("xcfgset none idmp-maxsize 1", "ERR no such key"),
            ("copy s t", ":1"),
        ],
    );
    for (name, args) in [
        (
            "IDMP requires a non-empty producer ID",
            &["idmp", "", "i"][..],
        ),
        (
            "IDMP requires a non-empty idempotent ID",
            &["idmp", "p", ""],
        ),
        (
            "IDMPAUTO requires a non-empty producer ID",
            &["idmpauto", ""],
        ),
    ] {
        let args = [&["xadd", "s"][..], args, &["*", "f", "v"]].concat();
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        assert_eq!(show(&client.args(&args)), format!("ERR {name}"));
    }
    client.check();
    // After the time the id can be used again, and what nobody asks for goes.
    client.advance_ms(100_001);
    assert_eq!(
        show(&client.run("xadd t idmp p a * f v")),
        "1800000100001-0"
    );
    client.run("xadd t idmp p b * f v");
    let info = show(&client.run("xinfo stream t"));
    assert!(
        info.contains("pids-tracked :1 iids-tracked :2 iids-added :12 iids-duplicates :4"),
        "{info}"
    );
    client.check();
}

/// Payloads of Redis 8.6 and 8.8: made by hand from what is written, which has the form of 7.0.
#[test]
fn payloads_of_newer_servers_are_read() {
    let mut client = Client::new();
    client.run("xadd s 5 f v");
    client.run("xgroup create s g 5");
    let Value::Bulk(payload) = client.run("dump s") else {
        panic!("no payload");
    };
    let id = |ms: u64| [ms.to_be_bytes(), 0u64.to_be_bytes()].concat();
    let value = &payload[..payload.len() - 10];
    let group = value
        .strip_suffix(&[0, 0])
        .expect("no pending entry and no consumer");
    let pending = [&[1][..], &id(5), &7u64.to_le_bytes(), &[3]].concat();
    let ids = [&[60, 50, 1, 1, b'p', 1, 1, b'i', 5, 0, 9, 8][..]].concat();
    let with = |kind: u8, parts: &[&[u8]]| {
        let mut made = [&[group][..], parts].concat().concat();
        made[0] = kind;
        payload::seal(&mut made);
        made
    };
    let released = [&[1][..], &id(5)].concat();
    let made = with(27, &[&pending, &[0], &released, &ids]);
    assert_eq!(show(&client.args(&[b"restore", b"a", b"0", &made])), "OK");
    expect(
        &mut client,
        &[
            ("xpending a g - + 9", "[[5-0  :-1 :3]]"),
            ("xadd a idmp p i * f v", "1800000000000-0"),
            ("xadd a idmp p i * f v", "1800000000000-0"),
        ],
    );
    let info = show(&client.run("xinfo stream a"));
    assert!(info.contains("idmp-duration :60 idmp-maxsize :50 pids-tracked :1 iids-tracked :1 iids-added :10 iids-duplicates :9"), "{info}");
    let made = with(26, &[&[0, 0], &ids]);
    assert_eq!(show(&client.args(&[b"restore", b"b", b"0", &made])), "OK");
    client.check();
    // An entry that is pending and neither owned nor released, and one that is released twice.
    let twice = [&[2][..], &id(5), &id(5)].concat();
    for hostile in [
        with(27, &[&pending, &[0], &[0], &ids]),
        with(27, &[&pending, &[0], &twice, &ids]),
        with(27, &[&[0, 0], &released, &ids]),
        with(26, &[&[0, 0], &[0, 50, 0, 0, 0]]),
    ] {
        let reply = show(&client.args(&[b"restore", b"c", b"0", &hostile]));
        assert!(reply.starts_with("ERR Bad data format"), "{reply}");
    }
    client.check();
}

/// The binlog has the settings: a replica may have other parameters.
#[test]
fn new_streams_remember_as_the_parameters_say_on_replicas_too() {
    let mut client = Client::new();
    client.run("config set stream-idmp-duration 7 stream-idmp-maxsize 3");
    client.run("xadd a idmp p 1 * f v");
    client.run("xadd b 1 f v");
    client.run("xgroup create c g 0 mkstream");
    client.run("config set stream-idmp-duration 100 stream-idmp-maxsize 100");
    client.run("xadd d 1 f v");
    client.run("xadd b 2 f v");
    let mut replica = Client::new();
    for line in client.logged() {
        assert_eq!(replica.run(&line).as_error(), None, "{line}");
    }
    for key in ["a", "b", "c", "d"] {
        let settings = |client: &mut Client| {
            let info = client.run(&format!("xinfo stream {key}"));
            let info = info.as_slice().expect("fields").chunks_exact(2);
            let wanted = |pair: &&[Value]| {
                let name = pair[0].as_bytes().unwrap_or_default();
                name == b"idmp-duration" || name == b"idmp-maxsize"
            };
            let found = info.filter(wanted).filter_map(|pair| pair[1].as_i64());
            found.collect::<Vec<_>>()
        };
        let expected = if key == "d" { [100, 100] } else { [7, 3] };
        assert_eq!(settings(&mut client), expected, "{key}");
        assert_eq!(settings(&mut replica), expected, "{key}");
        assert_eq!(
            client.digest(key.as_bytes()),
            replica.digest(key.as_bytes()),
            "{key}"
        );
    }
    client.check();
    replica.check();
}
