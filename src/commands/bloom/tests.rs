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
