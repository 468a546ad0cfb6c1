use crate::encoding::ValueType;
use crate::encoding::keys;
use crate::encoding::values::ValueRef;
use crate::exec::testing::Client;
use crate::resp::Value;
use crate::storage::StorageError;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The fields of a map.
fn fields(value: &Value) -> BTreeMap<String, Value> {
    let words = value.as_slice().unwrap_or_default();
    let pairs = words.chunks_exact(2);
    let name = |value: &Value| String::from_utf8(value.as_bytes().unwrap().to_vec()).unwrap();
    pairs
        .map(|pair| (name(&pair[0]), pair[1].clone()))
        .collect()
}

fn int(of: &BTreeMap<String, Value>, name: &str) -> i64 {
    of[name].as_i64().unwrap()
}

/// Scans with these options, and returns what is found.
fn scan(client: &mut Client, options: &str) -> BTreeMap<String, Value> {
    let line = format!("bigkeys start {options}");
    let begun = client.run(line.trim_end());
    assert_eq!(begun, Value::Simple("OK".into()), "{line}");
    crate::sys::testing::wait_for("the end of the scan", || {
        let state = fields(&client.run("bigkeys status"))["state"].clone();
        ![&b"starting"[..], b"running"].contains(&state.as_bytes().unwrap())
    });
    let found = fields(&client.run("bigkeys get"));
    assert_eq!(found["state"].as_bytes(), Some(&b"done"[..]), "{found:?}");
    found
}

#[test]
fn options_are_checked() {
    let mut client = Client::new();
    for (line, error) in [
        ("db", "ERR syntax error"),
        ("db x", "ERR value is not an integer or out of range"),
        ("db -1", "ERR DB index is out of range"),
        ("db 16", "ERR DB index is out of range"),
        ("db 65536", "ERR DB index is out of range"),
        ("depth 9", "ERR DEPTH must be between 0 and 8"),
        ("depth -1", "ERR DEPTH must be between 0 and 8"),
        ("depth 1.5", "ERR DEPTH must be between 0 and 8"),
        ("top 0", "ERR TOP must be between 1 and 128"),
        ("top 129", "ERR TOP must be between 1 and 128"),
        ("samples -1", "ERR SAMPLES must be between 0 and 1000000000"),
        (
            "rate 99999999999999999999",
            "ERR RATE must be between 0 and 1000000000",
        ),
        ("separator ", "ERR SEPARATOR must have 1 to 16 bytes"),
        (
            "separator 12345678901234567",
            "ERR SEPARATOR must have 1 to 16 bytes",
        ),
        ("match x", "ERR syntax error"),
        ("top 5 top", "ERR syntax error"),
    ] {
        let reply = client.run(&format!("bigkeys start {line}"));
        assert_eq!(reply.as_error(), Some(error), "{line}");
    }
    let long = format!("bigkeys start prefix {}", "x".repeat(257));
    let error = "ERR PREFIX must have 0 to 256 bytes";
    assert_eq!(client.run(&long).as_error(), Some(error));
    for line in ["get", "status", "stop"] {
        assert_eq!(client.run(&format!("bigkeys {line}")), Value::Null);
    }
    assert_eq!(client.run("bigkeys reset"), Value::Simple("OK".into()));
    scan(&mut client, "");
    assert_eq!(client.run("bigkeys stop"), Value::Null);
    assert_eq!(client.run("bigkeys reset"), Value::Simple("OK".into()));
    assert_eq!(client.run("bigkeys get"), Value::Null);
}

/// Commands that make a short and a long value of each type; # is the number of the run.
const VALUES: &[(u32, &str)] = &[
    (1, "set string:short value"),
    (1, "setbit string:sparse 9000000 1"),
    (1, "set string:timed value pxat 4000000000000"),
    (1, "hset hash:short a b c d"),
    (3000, "hset hash:long field# value#"),
    (50, "hpexpireat hash:long 4000000000000 fields 1 field#"),
    (1, "rpush list:short a b c"),
    (3000, "rpush list:long item-of-a-list-number-#"),
    (1, "sadd set:short a b c"),
    (3000, "sadd set:long member#"),
    (1, "spexpireat set:long 4000000000000 members 1 member5"),
    (1, "zadd zset:short 1 a 2 b"),
    (3000, "zadd zset:long # member#"),
    (3000, "xadd stream:long #-1 field value#"),
    (1, "xgroup create stream:long g 0"),
    (1, "xreadgroup group g c count 700 streams stream:long >"),
    (1, "json.set json:short $ {\"a\":1}"),
    (1, "json.set json:long $ {\"list\":[]}"),
    (
        600,
        "json.arrappend json:long $.list \"item-of-a-long-document-number-#\"",
    ),
    (1, "siadd ints:short 1 2 3"),
    (3000, "siadd ints:long #00"),
    (1, "bf.reserve bloom:long 0.001 500000"),
    (3000, "bf.add bloom:long item#"),
    (1, "cf.reserve cuckoo:long 500000"),
    (3000, "cf.add cuckoo:long item#"),
    (1, "cms.initbydim sketch:long 5000 10"),
    (300, "cms.incrby sketch:long item# 2"),
    (1, "topk.reserve top:long 50 2000 7 0.9"),
    (300, "topk.add top:long item#"),
    (1, "tdigest.create digest:long compression 1000"),
    (3000, "tdigest.add digest:long #"),
];

fn fill(client: &mut Client) {
    for (times, line) in VALUES {
        for n in 1..=*times {
            let reply = client.run(&line.replace('#', &n.to_string()));
            assert_eq!(reply.as_error(), None, "{line}");
        }
    }
    client.args(&[b"SET", b"string:long", &[b'x'; 100_000]]);
    client.args(&[b"SET", b"string:changed", &[b'x'; 100_000]]);
    client.run("setrange string:changed 50000 other");
    client.run("append string:changed more");
}

/// Bytes of all rows of DB 0 and of the values that they refer to.
fn bytes_of_rows(client: &Client) -> u64 {
    let server = client.server();
    let snapshot = server.engine.snapshot().unwrap();
    let (db, _) = snapshot.dbs().next().unwrap();
    let mut bytes = 0;
    snapshot
        .scan(db, &[0], &[0xFF], |key, row| -> Result<_, StorageError> {
            bytes += (key.len() + row.len()) as u64;
            if keys::split_base(key).is_some() {
                bytes += ValueRef::decode(row).unwrap().len;
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)
        .unwrap();
    bytes
}

/// With all rows read, the bytes are those of all rows; with a part of them, nearly.
#[test]
fn bytes_are_those_of_the_rows() {
    let mut client = Client::with(|storage| storage.value_log_min_bytes = 4096);
    fill(&mut client);
    let exact = scan(&mut client, "samples 0");
    let bytes = bytes_of_rows(&client);
    assert_eq!(int(&exact, "bytes"), bytes as i64);
    assert_eq!(int(&exact, "keys-estimated"), 0);
    let types = fields(&exact["types"]);
    assert_eq!(types.len(), ValueType::ALL.len(), "{types:?}");
    for (name, elements) in [
        ("hash", 3002),
        ("list", 3003),
        ("zset", 3002),
        ("ReJSON-RL", 2),
    ] {
        assert_eq!(int(&fields(&types[name]), "elements"), elements, "{name}");
    }
    let keys = client.run("dbsize").as_i64().unwrap();
    assert_eq!(int(&exact, "keys"), keys);
    assert_eq!(int(&exact, "keys-expected"), keys);

    let sampled = scan(&mut client, "samples 100");
    assert!(int(&sampled, "keys-estimated") >= 8, "{sampled:?}");
    assert!(int(&sampled, "rows-read") * 5 < int(&exact, "rows-read"));
    let of = fields(&sampled["types"]);
    for (name, sums) in &types {
        let exact = int(&fields(sums), "bytes");
        let estimate = int(&fields(&of[name]), "bytes");
        assert!(
            (estimate - exact).abs() * 10 <= exact,
            "{name}: {estimate} of {exact}"
        );
    }
    client.server().bigkeys.close();
}
