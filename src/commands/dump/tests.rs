//! DUMP and RESTORE as clients see them.

use crate::base::hash::crc64;
use crate::encoding::ValueType;
use crate::exec::testing::{Client, START_MS};
use crate::rdb::decode::kind_of;
use crate::rdb::{kind, timed_hashes};
use crate::resp::Value;
use crate::types::stream::row_of;

const FIXTURES: &str = include_str!("../../../tests/fixtures/rdb-payloads.tsv");

fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    let reply = client.run(&format!("dump {key}"));
    reply.as_bytes().expect("a payload").to_vec()
}

fn sealed(body: &[u8]) -> Vec<u8> {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&10u16.to_le_bytes());
    let crc = crc64(0, &payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn error(reply: &Value) -> &str {
    reply.as_error().unwrap_or("no error")
}

fn unhex(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16);
    bytes.map(|pair| byte(pair).expect("hexadecimal")).collect()
}

/// The elements of a key as the fixtures have them.
fn words(client: &mut Client, key: &str) -> Vec<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let kind = client.run(&format!("type {key}"));
    let Value::Simple(kind) = kind else {
        panic!("{kind:?}");
    };
    let all = |reply: Value| -> Vec<Vec<u8>> {
        let items = reply.as_slice().expect("an array").iter();
        items
            .map(|item| item.as_bytes().expect("bytes").to_vec())
            .collect()
    };
    let mut words: Vec<String> = match kind.as_str() {
        "string" => vec![hex(client
            .run(&format!("get {key}"))
            .as_bytes()
            .expect("a value"))],
        "list" => {
            let items = all(client.run(&format!("lrange {key} 0 -1")));
            return items.iter().map(|item| hex(item)).collect();
        }
        "set" => all(client.run(&format!("smembers {key}")))
            .iter()
            .map(|m| hex(m))
            .collect(),
        "hash" => all(client.run(&format!("hgetall {key}")))
            .chunks(2)
            .map(|pair| format!("{}={}", hex(&pair[0]), hex(&pair[1])))
            .collect(),
        "stream" => {
            let entries = client.run(&format!("xrange {key} - +"));
            let entries = entries.as_slice().expect("entries").iter();
            let word = |entry: &Value| {
                let entry = entry.as_slice().expect("an entry");
                let fields = entry[1].as_slice().expect("fields").iter();
                let row = row_of(fields.filter_map(Value::as_bytes));
                let id = String::from_utf8_lossy(entry[0].as_bytes().expect("an id"));
                format!("{id}:{}", hex(&row))
            };
            entries.map(word).collect()
        }
        _ => all(client.run(&format!("zrange {key} 0 -1 withscores")))
            .chunks(2)
            .map(|pair| {
                let score = String::from_utf8_lossy(&pair[1])
                    .parse::<f64>()
                    .expect("a score");
                format!("{}={}", hex(&score.to_be_bytes()), hex(&pair[0]))
            })
            .collect(),
    };
    words.sort();
    words
}

#[test]
fn payloads_of_redis_become_the_same_values() {
    let mut client = Client::new();
    let mut seen = 0;
    for line in FIXTURES.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [name, number, payload, expected] = columns[..] else {
            panic!("{line}");
        };
        let payload = unhex(payload);
        assert_eq!(
            client.args(&[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]),
            ok()
        );
        let kind = kind_of(number.parse().expect("a number")).expect("a known one");
        let mut expected: Vec<String> = expected.split(',').map(str::to_owned).collect();
        if kind != ValueType::List {
            expected.sort();
        }
        if kind == ValueType::Stream {
            // The digests below compare the rest of a stream.
            expected.retain(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        }
        assert_eq!(words(&mut client, "k"), expected, "{name}");
        // Another round trip, with a payload of our own.
        let ours = dump(&mut client, "k");
        assert_eq!(
            client.args(&[b"RESTORE", b"l", b"0", &ours, b"REPLACE"]),
            ok()
        );
        assert_eq!(words(&mut client, "l"), expected, "{name}");
        assert_eq!(client.digest(b"k"), client.digest(b"l"), "{name}");
        seen += 1;
    }
    assert!(seen > 50, "{seen}");
    client.check();
}

#[test]
fn large_collections_and_strings_travel() {
    let mut client = Client::with(|config| {
        config.packed_max_entries = 4;
        config.string_inline_max_bytes = 100;
    });
    for n in 0..600 {
        client.run(&format!("rpush list item-{n}"));
        client.run(&format!("sadd set member-{n}"));
        client.run(&format!("sadd integers {n}"));
        client.run(&format!("hset hash field-{n} value-{n}"));
        client.run(&format!("zadd zset {} member-{n}", n % 50));
    }
    client.run("setrange sparse 100000 tail");
    client.run("setrange gaps 5000 middle");
    client.run("setbit gaps 400000 0");
    client.run("setrange huge 6000000 tail");
    for key in [
        "list", "set", "integers", "hash", "zset", "sparse", "gaps", "huge",
    ] {
        let payload = dump(&mut client, key);
        assert_eq!(
            client.args(&[b"RESTORE", b"copy", b"0", &payload, b"REPLACE"]),
            ok()
        );
        let (one, other) = (words(&mut client, key), words(&mut client, "copy"));
        assert!(!one.is_empty() && one == other, "{key}");
    }
    client.check();
}

#[test]
fn restore_does_what_its_options_say() {
    let mut client = Client::new();
    assert_eq!(client.run("dump none"), Value::Null);
    client.run("set a value");
    let payload = dump(&mut client, "a");
    let mut restore = |words: &[&[u8]]| {
        let args = [
            &[b"RESTORE", words[0], words[1], &payload[..]][..],
            &words[2..],
        ]
        .concat();
        client.args(&args)
    };
    assert_eq!(
        error(&restore(&[b"a", b"0"])),
        "BUSYKEY Target key name already exists."
    );
    assert_eq!(restore(&[b"a", b"0", b"replace"]), ok());
    assert_eq!(restore(&[b"b", b"5000"]), ok());
    let at = (START_MS + 7_000).to_string();
    assert_eq!(restore(&[b"c", at.as_bytes(), b"ABSTTL"]), ok());
    for (words, text) in [
        (
            &[&b"d"[..], b"-1"][..],
            "ERR Invalid TTL value, must be >= 0",
        ),
        (&[b"d", b"x"], "ERR value is not an integer or out of range"),
        (&[b"d", b"0", b"ABC"], "ERR syntax error"),
        (&[b"d", b"0", b"IDLETIME"], "ERR syntax error"),
        (
            &[b"d", b"0", b"IDLETIME", b"-1"],
            "ERR Invalid IDLETIME value, must be >= 0",
        ),
        (
            &[b"d", b"0", b"IDLETIME", b"x"],
            "ERR value is not an integer or out of range",
        ),
        (
            &[b"d", b"0", b"FREQ", b"256"],
            "ERR Invalid FREQ value, must be >= 0 and <= 255",
        ),
        (
            &[b"d", b"0", b"FREQ", b"-1"],
            "ERR Invalid FREQ value, must be >= 0 and <= 255",
        ),
        (
            &[b"d", b"0", b"FREQ", b"1", b"IDLETIME", b"1"],
            "ERR syntax error",
        ),
        // The key is checked before the TTL.
        (&[b"a", b"-1"], "BUSYKEY Target key name already exists."),
    ] {
        assert_eq!(error(&restore(words)), text, "{words:?}");
    }
    assert_eq!(restore(&[b"idle", b"0", b"IDLETIME", b"1000"]), ok());
    assert_eq!(client.run("object idletime idle"), Value::Int(1000));
    assert_eq!(client.run("pttl b"), Value::Int(5000));
    assert_eq!(client.run("pttl c"), Value::Int(7000));
    assert_eq!(client.run("exists d"), Value::Int(0));
    client.check();
}

#[test]
fn what_is_logged_is_absolute() {
    let mut client = Client::new();
    client.run("set a value");
    let payload = dump(&mut client, "a");
    let shown = String::from_utf8_lossy(&payload).into_owned();
    client.args(&[b"RESTORE", b"b", b"5000", &payload]);
    client.args(&[b"RESTORE", b"a", b"0", &payload, b"REPLACE", b"FREQ", b"3"]);
    let at = START_MS + 5000;
    let logged = client.logged();
    assert_eq!(logged[1], format!("RESTORE b {at} {shown} REPLACE ABSTTL"));
    assert_eq!(logged[2], format!("RESTORE a 0 {shown} REPLACE ABSTTL"));
    // With an expiry in the past the key is deleted or not created; a bad payload is still
    // an error.
    let over = START_MS.before(1).to_string();
    let over = over.as_bytes();
    assert_eq!(
        client.args(&[b"RESTORE", b"n", over, &payload, b"ABSTTL"]),
        ok()
    );
    let replaced = client.args(&[b"RESTORE", b"a", over, &payload, b"REPLACE", b"ABSTTL"]);
    assert_eq!(replaced, ok());
    let bad = client.args(&[
        b"RESTORE",
        b"b",
        over,
        &sealed(b"\x01\0"),
        b"REPLACE",
        b"ABSTTL",
    ]);
    assert_eq!(error(&bad), "ERR Bad data format");
    assert_eq!(client.run("exists n a b"), Value::Int(1));
    assert_eq!(client.logged()[3..], ["DEL a".to_owned()]);
    client.check();
}

#[test]
fn bad_payloads_leave_everything_as_it_was() {
    let mut client = Client::with(|config| config.packed_max_entries = 4);
    client.run("set k before");
    let twice: Vec<u8> = (0..9).flat_map(|n| [1, b'0' + n % 8]).collect();
    let twice = [&[2, 9][..], &twice].concat();
    for (payload, text) in [
        (
            b"".to_vec(),
            "ERR DUMP payload version or checksum are wrong",
        ),
        (
            b"\0\x01x0123456789".to_vec(),
            "ERR DUMP payload version or checksum are wrong",
        ),
        (sealed(b"\0\x05x"), "ERR Bad data format"),
        (sealed(b"\0\x01x-"), "ERR Bad data format"),
        (sealed(b"\x01\0"), "ERR Bad data format"),
        (sealed(&twice), "ERR Bad data format"),
        (
            sealed(b"\x04\x02\x01f\x01v\x01f\x01w"),
            "ERR Bad data format",
        ),
        (
            sealed(b"\x03\x02\x01m\x011\x01m\x012"),
            "ERR Bad data format",
        ),
        (sealed(b"\x08\x01"), "ERR Bad data format"),
        (sealed(b"\x0F\x01"), "ERR Bad data format"),
        (
            sealed(b"\x07\x01"),
            "ERR Bad data format: values of modules are not supported",
        ),
        (
            sealed(b"\0\xC3\x01\x80\x7F\xFF\xFF\xFF\0"),
            "ERR Bad data format",
        ),
    ] {
        let reply = client.args(&[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]);
        assert_eq!(error(&reply), text, "{payload:?}");
        let reply = client.args(&[b"RESTORE", b"new", b"0", &payload]);
        assert_eq!(error(&reply), text, "{payload:?}");
    }
    assert_eq!(client.run("get k").as_bytes(), Some(&b"before"[..]));
    assert_eq!(client.run("dbsize"), Value::Int(1));
    assert_eq!(client.logged(), ["set k before"]);
    client.check();
}

/// Fields that expire: expired ones are dropped, the others lose their expiry, and the
/// binlog gets the resulting value.
#[test]
fn fields_with_times_of_their_own() {
    let mut client = Client::new();
    let mut body = vec![22, 3];
    for (field, time) in [(b'a', START_MS.0 - 5), (b'b', 0), (b'c', START_MS.0 + 5)] {
        crate::rdb::encode::length(time, &mut body);
        body.extend_from_slice(&[1, field, 1, b'v']);
    }
    let payload = sealed(&body);
    assert_eq!(client.args(&[b"RESTORE", b"h", b"0", &payload]), ok());
    assert_eq!(client.run("hlen h"), Value::Int(2));
    assert_eq!(client.run("hexists h a"), Value::Int(0));
    let logged = client.logged();
    client.run("hpersist h fields 1 c");
    let ours = String::from_utf8_lossy(&dump(&mut client, "h")).into_owned();
    let time = format!("HPEXPIREAT h {} FIELDS 1 c", START_MS.0 + 5);
    assert_eq!(logged, [format!("RESTORE h 0 {ours} REPLACE ABSTTL"), time]);
    // No field is left, so there is no key.
    let mut body = vec![22, 1];
    crate::rdb::encode::length(START_MS.0 - 5, &mut body);
    body.extend_from_slice(b"\x01a\x01v");
    let payload = sealed(&body);
    assert_eq!(
        client.args(&[b"RESTORE", b"h", b"0", &payload, b"REPLACE"]),
        ok()
    );
    assert_eq!(client.args(&[b"RESTORE", b"i", b"0", &payload]), ok());
    assert_eq!(client.run("exists h i"), Value::Int(0));
    assert_eq!(client.logged()[3..], ["DEL h".to_owned()]);
    client.check();
}

/// Randomly mutated payloads with a valid checksum give an error or a complete value.
#[test]
fn mutated_payloads_never_leave_half_a_value() {
    let mut client = Client::with(|config| config.packed_max_entries = 4);
    let mut rng = fastrand::Rng::with_seed(7);
    let lines: Vec<&str> = FIXTURES.lines().filter(|line| line.len() < 9_000).collect();
    let mut good = 0;
    for _ in 0..1_500 {
        let line = lines[rng.usize(1..lines.len())];
        let payload = unhex(line.split('\t').nth(2).expect("a payload"));
        let mut body = payload[..payload.len() - 10].to_vec();
        crate::rdb::mutate(&mut body, &mut rng);
        let reply = client.args(&[b"RESTORE", b"k", b"0", &sealed(&body), b"REPLACE"]);
        match reply.as_error() {
            Some(text) => assert!(text.starts_with("ERR Bad data format"), "{text}"),
            None => good += 1,
        }
    }
    assert!(good > 10, "{good}");
    client.check();
}

/// The time of a consumer that was never given an entry is −1. It was read as the last time
/// there is.
#[test]
fn a_consumer_that_was_never_active_stays_so() {
    let mut client = Client::new();
    client.run("xadd s 1-1 f v");
    client.run("xgroup create s g $");
    client.run("xgroup createconsumer s g c");
    let Value::Bulk(payload) = client.run("dump s") else {
        panic!("no payload");
    };
    // Redis 7.2 adds the time behind that of the last attempt, which the number of pending
    // entries follows; version and checksum end the payload.
    let mut value = payload[..payload.len() - 10].to_vec();
    value[0] = crate::rdb::kind::STREAM_LISTPACKS_3;
    let at = value.len() - 1;
    value.splice(at..at, (-1i64).to_le_bytes());
    assert_eq!(
        client.args(&[b"RESTORE", b"t", b"0", &sealed(&value)]),
        ok()
    );
    let source = client.run("xinfo consumers s g");
    assert_eq!(client.run("xinfo consumers t g"), source);
}

/// RESTORE dropped the expiry times of fields silently.
/// Each form in which Redis and Valkey write hashes with times, and what DUMP makes of it.
#[test]
fn times_of_fields_are_kept() {
    let mut client = Client::new();
    let names: [&[u8]; 3] = [b"over", b"plain", b"later"];
    let (over_ms, later_ms) = (START_MS.before(1), START_MS + 60_000);
    let times = |later_ms: i64| Value::Array([-2, -1, later_ms].map(Value::Int).to_vec());
    for (number, value) in timed_hashes(names, over_ms, later_ms) {
        let payload = sealed(&[&[number][..], &value].concat());
        let args: [&[u8]; 5] = [b"RESTORE", b"h", b"0", &payload, b"REPLACE"];
        assert_eq!(client.args(&args), ok(), "type {number}");
        assert_eq!(client.run("hlen h"), Value::Int(2), "type {number}");
        let ask = "hpexpiretime h fields 3 over plain later";
        assert_eq!(client.run(ask), times(later_ms.as_i64()), "type {number}");
        let dumped = client.run("dump h");
        let dumped = dumped.as_bytes().expect("a payload").to_vec();
        assert_eq!(dumped[0], kind::HASH_METADATA);
        assert_eq!(&dumped[dumped.len() - 10..dumped.len() - 8], [12, 0]);
        client.args(&[b"RESTORE", b"again", b"0", &dumped, b"REPLACE"]);
        let ask = "hpexpiretime again fields 3 over plain later";
        assert_eq!(client.run(ask), times(later_ms.as_i64()), "type {number}");
        // Without times as Redis 7.0 can read it.
        client.run("hpersist h fields 1 later");
        let dumped = client.run("dump h");
        let dumped = dumped.as_bytes().expect("a payload").to_vec();
        assert_eq!(dumped[0], kind::HASH_LISTPACK);
        assert_eq!(&dumped[dumped.len() - 10..dumped.len() - 8], [10, 0]);
    }
    // All fields have expired, so the key is not written.
    for (number, value) in timed_hashes([b"a", b"b", b"c"], over_ms, over_ms) {
        let payload = sealed(&[&[number][..], &value].concat());
        client.args(&[b"RESTORE", b"h", b"0", &payload, b"REPLACE"]);
        assert_eq!(client.run("hlen h"), Value::Int(1), "type {number}");
    }
    client.check();
}
