//! Payloads that RedisBloom has dumped, and what is left of them when bytes change.

use crate::base::hash::crc64;
use crate::exec::testing::Client;
use crate::resp::Value;

const FIXTURES: &str = include_str!("../../../tests/fixtures/bloom-payloads.tsv");

fn unhex(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16);
    bytes.map(|pair| byte(pair).expect("hexadecimal")).collect()
}

/// A reply as the fixtures have it.
fn text(reply: &Value) -> String {
    match reply {
        Value::Int(number) => number.to_string(),
        Value::Simple(text) => text.clone(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Null => "nil".to_owned(),
        other => panic!("{other:?}"),
    }
}

/// The columns of each line: name, payload, commands with their replies.
fn fixtures() -> impl Iterator<Item = (&'static str, Vec<u8>, Vec<&'static str>)> {
    let lines = FIXTURES.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let mut columns = line.split('\t');
        let mut next = || columns.next().expect("two columns");
        let (name, payload) = (next(), unhex(next()));
        (name, payload, columns.collect())
    })
}

fn restore(client: &mut Client, payload: &[u8]) -> Value {
    client.args(&[b"RESTORE", b"k", b"0", payload, b"REPLACE"])
}

#[test]
fn values_of_redisbloom_answer_as_there() {
    let mut client = Client::new();
    for (name, payload, calls) in fixtures() {
        assert_eq!(
            restore(&mut client, &payload),
            Value::Simple("OK".into()),
            "{name}"
        );
        let (calls, _) = calls.as_chunks::<2>();
        assert!(!calls.is_empty());
        for [line, reply] in calls {
            assert_eq!(text(&client.run(line)), *reply, "{name}: {line}");
        }
        let dumped = client.run("dump k");
        let dumped = dumped.as_bytes().expect("a payload").to_vec();
        client.run("copy k copy replace");
        restore(&mut client, &dumped);
        assert_eq!(client.digest(b"k"), client.digest(b"copy"), "{name}");
        client.check();
    }
}

/// Bytes from outside: an error, or a value that can be read and changed.
#[test]
fn changed_payloads_do_no_harm() {
    let mut client = Client::new();
    let (mut refused, mut taken) = (0, 0);
    for (name, payload, calls) in fixtures() {
        let body = &payload[..payload.len() - 8];
        let calls: Vec<&str> = calls.iter().step_by(2).copied().collect();
        // The head is what matters; of the arrays some bytes.
        let places = (0..body.len() - 2).filter(|at| *at < 120 || at % 13 == 0);
        for at in places {
            for value in [0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 1] {
                let mut changed = body.to_vec();
                changed[at] = value;
                let crc = crc64(0, &changed);
                changed.extend_from_slice(&crc.to_le_bytes());
                if restore(&mut client, &changed).as_error().is_some() {
                    refused += 1;
                    continue;
                }
                taken += 1;
                for line in &calls {
                    client.run(line);
                }
                for line in [
                    "bf.add k y",
                    "cf.add k y",
                    "cf.del k y",
                    "topk.add k y",
                    "tdigest.add k 1",
                ] {
                    client.run(line);
                }
                let dumped = client.run("dump k");
                let dumped = dumped
                    .as_bytes()
                    .unwrap_or_else(|| panic!("{name} {at} {value}"));
                let again = restore(&mut client, dumped);
                assert_eq!(again.as_error(), None, "{name} {at} {value}");
            }
        }
    }
    assert!(
        refused > 1000 && taken > 1000,
        "{refused} refused, {taken} taken"
    );
}

#[test]
fn large_values_cost_nothing_until_they_are_written() {
    let mut client = Client::new();
    for line in [
        "bf.reserve b 0.000001 1000000000",
        "cf.reserve c 1000000000",
        "cms.initbydim s 100000000 10",
        "topk.reserve t 1000000 100000000 10 0.9",
        "tdigest.create d compression 600000",
    ] {
        assert_eq!(client.run(line), Value::Simple("OK".into()), "{line}");
    }
    for key in ["b", "c", "s", "t", "d"] {
        let usage = client.run(&format!("memory usage {key} samples 10"));
        assert!(matches!(usage, Value::Int(..1000)), "{key}: {usage:?}");
        let refused = client.run(&format!("dump {key}"));
        let is_short = refused.as_bytes().is_some_and(|dump| dump.len() < 1000);
        assert!(is_short || refused.as_error().is_some(), "{key}");
    }
    let refused = client.run("tdigest.create e compression 1000000");
    assert_eq!(refused.as_error(), Some("ERR T-Digest: allocation failed"));
    let refused = client.run("bf.reserve e 1e-300 1000000000");
    assert_eq!(refused.as_error(), Some("ERR could not create filter"));
}

/// A replica may have other parameters, or none of this name: the binlog has the filter in full.
#[test]
fn new_filters_are_as_the_parameters_say_on_replicas_too() {
    let mut client = Client::new();
    let set = "config set bf-error-rate 0.002 bf-initial-size 500 bf-expansion-factor 4 \
               cf-bucket-size 4 cf-initial-size 4096 cf-max-iterations 9 cf-expansion-factor 2";
    assert_eq!(client.run(set).as_error(), None);
    for line in [
        "bf.add b x",
        "bf.madd c x y",
        "bf.insert d error 0.1 items x",
        "bf.insert e nonscaling items x",
        "bf.reserve f 0.01 50",
        "bf.reserve g 0.01 50 nonscaling",
        "cf.add p x",
        "cf.addnx q x",
        "cf.insert r capacity 100 items x y",
        "cf.insertnx s items x y",
        "cf.reserve t 64",
        "cf.reserve u 64 bucketsize 3",
    ] {
        assert_eq!(client.run(line).as_error(), None, "{line}");
    }
    let info = |client: &mut Client, line: &str| {
        let found = client.run(line);
        let found = found.as_slice().expect("properties");
        found.iter().filter_map(Value::as_i64).collect::<Vec<_>>()
    };
    assert_eq!(info(&mut client, "bf.info b capacity"), [500]);
    assert_eq!(info(&mut client, "bf.info b expansion"), [4]);
    // Buckets, slots of a bucket, expansion and iterations.
    let about = info(&mut client, "cf.info p");
    assert_eq!(
        (about[1], about[5], about[6], about[7]),
        (1024, 4, 2, 9),
        "{about:?}"
    );
    // As a server with the usual parameters applies them.
    let mut replica = Client::new();
    for line in client.logged() {
        if !line.starts_with("config") {
            assert_eq!(replica.run(&line).as_error(), None, "{line}");
        }
    }
    for key in "bcdefgpqrstu".split("").filter(|key| !key.is_empty()) {
        let key = key.as_bytes();
        assert_eq!(
            client.digest(key),
            replica.digest(key),
            "{}",
            key[0] as char
        );
    }
    client.check();
    replica.check();
}

#[test]
fn parameters_of_filters_are_checked_in_the_words_of_the_module() {
    let mut client = Client::new();
    for (name, value, reason) in [
        ("bf-error-rate", "x", "Invalid value for `bf-error-rate`"),
        (
            "bf-error-rate",
            "1",
            "Value for `bf-error-rate` must be in the range (0.000000, 1.000000)",
        ),
        (
            "bf-initial-size",
            "1.5",
            "Invalid value for `bf-initial-size`",
        ),
        (
            "bf-initial-size",
            "0",
            "Value for `bf-initial-size` must be in the range [1, 1073741824]",
        ),
        (
            "cf-initial-size",
            "3",
            "Value for `cf-initial-size` must be in the range [4, 1073741824]",
        ),
        (
            "cf-max-expansions",
            "0",
            "Value for `cf-max-expansions` must be in the range [1, 65536]",
        ),
    ] {
        let refused = client.run(&format!("config set {name} {value}"));
        let expected =
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
        assert_eq!(refused.as_error(), Some(expected.as_str()));
    }
    client.run("config set cf-initial-size 100");
    let refused = client.run("config set cf-bucket-size 51");
    let refused = refused.as_error().expect("an error");
    assert!(refused.ends_with("in the range [1, 50]"), "{refused}");
    client.run("config set bf-error-rate 0.9 cf-max-expansions 1");
    let rate = client.run("config get bf-error-rate");
    let rate = rate.as_slice().expect("a pair")[1].as_bytes();
    assert_eq!(rate, Some(b"0.25".as_slice()));
    client.run("cf.reserve k 4 bucketsize 1 expansion 1");
    let added: Vec<Value> = (0..40)
        .map(|n| client.run(&format!("cf.add k {n}")))
        .collect();
    let full = "Maximum expansions reached";
    assert!(
        added.iter().any(|reply| reply.as_error() == Some(full)),
        "{added:?}"
    );
}
