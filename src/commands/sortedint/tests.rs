//! The commands of sorted ints: replies and error texts are those of Kvrocks.

use crate::base::hash::crc64;
use crate::exec::testing::{Client, check};
use crate::resp::Value;
use std::collections::BTreeSet;

#[test]
fn the_commands_answer_as_those_of_kvrocks() {
    for packed in [2, 100] {
        let mut client = Client::with(|config| config.packed_max_entries = packed);
        let steps = [
            ("siadd mysi 1", "1"),
            ("siadd mysi 2", "1"),
            ("siadd mysi 2", "0"),
            ("siadd mysi 3 4 5 123 245", "5"),
            ("sicard mysi", "7"),
            ("type mysi", "sortedint"),
            ("sirevrange mysi 0 3", "[245 123 5]"),
            ("sirevrange mysi 0 3 cursor 5", "[4 3 2]"),
            ("sirange mysi 0 3 cursor 123", "[245]"),
            ("sirangebyvalue mysi 1 (5", "[1 2 3 4]"),
            ("sirevrangebyvalue mysi 5 (1", "[5 4 3 2]"),
            ("siexists mysi 1 88 2", "[1 0 1]"),
            ("sirem mysi 002", "1"),
            ("sirange mysi 0 0", "[1 3 4 5 123 245]"),
            ("sirange mysi 2 2 CURSOR 1", "[5 123]"),
            ("sirangebyvalue mysi -inf +inf limit 1 2", "[3 4]"),
            (
                "sirangebyvalue mysi -inf +inf limit -1 0",
                "[1 3 4 5 123 245]",
            ),
            ("sirevrangebyvalue mysi +inf (3 LIMIT 1 1", "[123]"),
            ("sirangebyvalue mysi 9 3", "[]"),
            ("sirangebyvalue mysi (3 (4", "[]"),
            ("sirem mysi 1 3 4 5 245 9", "5"),
            ("sirange mysi 0 9", "[123]"),
            ("sirem mysi 123", "1"),
            ("exists mysi", "0"),
            ("sicard mysi", "0"),
            ("siexists mysi 1", "[0]"),
            ("sirange mysi 0 1", "[]"),
            ("sirem mysi 1", "0"),
        ];
        check(&mut client, &steps);
        client.check();
    }
}

/// Kvrocks never returns 0: it compares each id with the cursor, also where there is none.
#[test]
fn the_lowest_and_the_highest_integer_are_ids() {
    let max = u64::MAX;
    for packed in [2, 100] {
        let mut client = Client::with(|config| config.packed_max_entries = packed);
        let lines = [
            (format!("siadd k 0 {max} 7 9"), "4".to_owned()),
            ("sirange k 0 0".into(), format!("[0 7 9 {max}]")),
            ("sirevrange k 0 0".into(), format!("[{max} 9 7 0]")),
            ("sirange k 0 0 cursor 0".into(), format!("[7 9 {max}]")),
            ("sirevrange k 0 0 cursor 0".into(), format!("[{max} 9 7 0]")),
            (format!("sirange k 0 0 cursor {max}"), "[]".into()),
            (format!("sirevrange k 0 1 cursor {max}"), "[9]".into()),
            (format!("sirangebyvalue k ({max} +inf"), "[]".into()),
            ("sirevrangebyvalue k (0 -inf".into(), "[]".into()),
            ("sirangebyvalue k 0 0".into(), "[0]".into()),
        ];
        for (line, shown) in &lines {
            check(&mut client, &[(line, shown)]);
        }
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let steps = [
        ("siadd k x", "-ERR value is not an integer or out of range"),
        ("siadd k -1", "-ERR value is not an integer or out of range"),
        (
            "siadd k 1 18446744073709551616",
            "-ERR value is not an integer or out of range",
        ),
        ("exists k", "0"),
        ("sirem k x", "-ERR value is not an integer or out of range"),
        (
            "siexists k x",
            "-ERR value is not an integer or out of range",
        ),
        (
            "sirange k x 1",
            "-ERR value is not an integer or out of range",
        ),
        ("sirange k 0 1 foo 1", "-ERR syntax error"),
        ("sirange k 0 1 cursor", "-ERR syntax error"),
        (
            "sirange k 0 1 cursor x",
            "-ERR value is not an integer or out of range",
        ),
        ("sirangebyvalue k +inf 1", "-ERR min > max"),
        ("sirangebyvalue k 1 -inf", "-ERR min > max"),
        ("sirevrangebyvalue k -inf 1", "-ERR min > max"),
        ("sirangebyvalue k x 1", "-ERR the min isn't integer"),
        ("sirangebyvalue k 1 (", "-ERR the max isn't integer"),
        ("sirangebyvalue k 0 1 foo 1 2", "-ERR syntax error"),
        (
            "sirangebyvalue k 0 1 limit 1 4294967296",
            "-ERR value is not an integer or out of range",
        ),
        ("set s v", "OK"),
        (
            "siadd s 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("siadd k 1", "1"),
        (
            "sadd k 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ];
    check(&mut Client::new(), &steps);
}

/// Random changes beside a `BTreeSet`, in transactions of several commands too; ends are removed
/// and found again.
#[test]
fn random_changes_agree_with_a_set() {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut client = Client::with(|config| config.packed_max_entries = 8);
    let mut model: BTreeSet<u64> = BTreeSet::new();
    for round in 0..3000 {
        let ids: Vec<u64> = (0..rng.usize(1..6)).map(|_| rng.u64(..60)).collect();
        let words: Vec<String> = ids.iter().map(u64::to_string).collect();
        let words = words.join(" ");
        let removes = rng.u8(..2) == 0 || model.len() > 40;
        let (line, expected) = match removes {
            true => {
                let removed = ids.iter().filter(|id| model.remove(id)).count();
                (format!("sirem k {words}"), removed)
            }
            false => {
                let added = ids.iter().filter(|id| model.insert(**id)).count();
                (format!("siadd k {words}"), added)
            }
        };
        let reply = client.run(&line);
        assert_eq!(reply, Value::Int(expected as i64), "seed {seed}: {line}");
        if round % 10 == 0 {
            let all: Vec<String> = model.iter().map(u64::to_string).collect();
            let shown = format!("[{}]", all.join(" "));
            check(&mut client, &[("sirange k 0 0", shown.as_str())]);
        }
    }
    client.check();
}

fn dumped(client: &mut Client, key: &str) -> Vec<u8> {
    let reply = client.run(&format!("dump {key}"));
    reply.as_bytes().expect("a payload").to_vec()
}

#[test]
fn values_are_dumped_and_restored_copied_and_renamed() {
    for packed in [2, 100] {
        let mut client = Client::with(|config| config.packed_max_entries = packed);
        client.run("siadd k 0 5 18446744073709551615 300 70000");
        let payload = dumped(&mut client, "k");
        assert_eq!(payload[0], 7);
        let restored = client.args(&[b"RESTORE", b"l", b"0", &payload]);
        assert_eq!(restored, Value::Simple("OK".into()));
        client.run("copy k m");
        client.run("rename m n");
        let all = "[0 5 300 70000 18446744073709551615]";
        let steps = [
            ("sirange l 0 0", all),
            ("sirange n 0 0", all),
            ("scan 0 type sortedint", "[0 [k l n]]"),
        ];
        check(&mut client, &steps);
        let digest = client.digest(b"k");
        assert_eq!(digest, client.digest(b"l"));
        assert_eq!(digest, client.digest(b"n"));
        client.run("sirem n 5");
        assert_ne!(digest, client.digest(b"n"));
        let Value::Int(bytes) = client.run("memory usage k") else {
            panic!("no size");
        };
        assert!(bytes > 40, "{bytes}");
        let encoding = if packed == 2 { "rows" } else { "packed" };
        check(&mut client, &[("object encoding k", encoding)]);
        client.check();
    }
}

/// A payload of parts, each a number behind the opcode of its kind.
fn sealed(parts: &[&[u8]]) -> Vec<u8> {
    let mut payload = parts.concat();
    payload.extend_from_slice(&10u16.to_le_bytes());
    let crc = crc64(0, &payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

#[test]
fn hostile_payloads_are_refused() {
    let mut client = Client::with(|config| config.packed_max_entries = 2);
    client.run("siadd k 1");
    let good = dumped(&mut client, "k");
    // The type, and the id behind its length byte.
    let head = &good[..10];
    let newer = {
        let mut id = u64::from_be_bytes(head[2..].try_into().unwrap());
        id += 1;
        [&head[..2], &id.to_be_bytes()].concat()
    };
    let long: Vec<u8> = (0..60u8).flat_map(|n| [2, n]).collect();
    for (parts, accepted) in [
        (&[head, b"\x02\x01\x02\x05\x02\x09\0"][..], true),
        (&[head, &long, b"\0"], true),
        // None at all, one twice, not in order, another kind, an end that is missing, more behind.
        (&[head, b"\0"], false),
        (&[head, b"\x02\x01\x02\x01\0"], false),
        (&[head, b"\x02\x05\x02\x01\0"], false),
        (&[head, &long, b"\x02\x01\0"], false),
        (&[head, b"\x05\x01a\0"], false),
        (&[head, b"\x04\0\0\0\0\0\0\0\0\0"], false),
        (&[head, b"\x02\x01"], false),
        (&[head, b"\x02\x01\0\x02"], false),
        (&[&newer, b"\x02\x01\0"], false),
    ] {
        let payload = sealed(parts);
        let reply = client.args(&[b"RESTORE", b"r", b"0", &payload]);
        assert_eq!(reply.as_error().is_none(), accepted, "{parts:?}: {reply:?}");
        let deleted = client.run("del r");
        assert_eq!(deleted, Value::Int(i64::from(accepted)), "{parts:?}");
        client.check();
    }
}

/// A walk by the cursor reads what it answers; the budget of the tests is 100 rows.
#[test]
fn a_cursor_is_a_seek() {
    let mut client = Client::with(|config| config.packed_max_entries = 2);
    for from in 0..20 {
        let ids: Vec<String> = (0..100).map(|n| (from * 100 + n).to_string()).collect();
        client.run(&format!("siadd k {}", ids.join(" ")));
    }
    let steps = [
        ("sirange k 0 2 cursor 1500", "[1501 1502]"),
        ("sirevrange k 0 2 cursor 1500", "[1499 1498]"),
        ("sirangebyvalue k 1000 1001", "[1000 1001]"),
        ("sirevrangebyvalue k 1000 0 limit 1 1", "[999]"),
    ];
    check(&mut client, &steps);
}
