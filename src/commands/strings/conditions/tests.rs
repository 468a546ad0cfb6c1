//! Compare and set and delete, as clients see it and as the binlog has it.

use crate::commands::strings::tests::check;
use crate::exec::testing::Client;
use crate::resp::Value;

const SYNTAX: &str = "ERR syntax error";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_DIGEST: &str = "ERR must be exactly 16 hexadecimal characters";
const HELLO: &str = "9555e8555c62dcfd";

#[test]
fn set_compares_first() {
    let mut client = Client::new();
    client.run("rpush list a");
    check(
        &mut client,
        &[
            ("set k v ifeq x", "(nil)"),
            ("set k v ifdeq 9555e8555c62dcfd get", "(nil)"),
            ("exists k", ":0"),
            ("set k hello ifne x", "OK"),
            ("set k v ifne hello", "(nil)"),
            ("set k v IFEQ hell get", r#""hello""#),
            ("set k v ifdeq 0000000000000000", "(nil)"),
            ("set k v ifdne 9555E8555C62DCFD", "(nil)"),
            ("set k v ifdeq 9555", NO_DIGEST),
            ("get k", r#""hello""#),
            ("set k w ifdeq 9555E8555C62DCFD get", r#""hello""#),
            ("set k x ifeq w ex 10", "OK"),
            ("ttl k", ":10"),
            ("set k y ifne w keepttl", "OK"),
            ("ttl k", ":10"),
            ("set new v ifdne 9555e8555c62dcfd", "OK"),
            ("set k v ifeq", SYNTAX),
            ("set k v ifeq y nx", SYNTAX),
            ("set k v xx ifeq y", SYNTAX),
            ("set k v ifeq y ifne y", SYNTAX),
            ("set k v ifeq y ifeq y", SYNTAX),
            ("set list v ifeq a", WRONG_TYPE),
            ("set list v ifdne 9555e8555c62dcfd", WRONG_TYPE),
            ("get k", r#""y""#),
        ],
    );
}

#[test]
fn keys_are_deleted_under_a_condition() {
    let mut client = Client::new();
    let not_string = "ERR Key should be of string type if conditions are specified";
    let arity = "ERR wrong number of arguments for 'delex' command";
    client.run("set k hello");
    client.run("rpush list a");
    check(
        &mut client,
        &[
            ("delex none", ":0"),
            ("delex none ifdeq x", ":0"),
            ("delex none foo bar", ":0"),
            ("delex k ifeq hell", ":0"),
            ("delex k ifne hello", ":0"),
            ("delex k ifdeq 0000000000000000", ":0"),
            ("delex k ifdne 9555E8555C62DCFD", ":0"),
            ("delex k ifdeq x", NO_DIGEST),
            (
                "delex k foo hello",
                "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE",
            ),
            ("delex k ifeq", arity),
            ("delex k ifeq hello x", arity),
            ("delex list foo a", not_string),
            ("delex list ifeq a", not_string),
            ("delifeq list a", WRONG_TYPE),
            ("delifeq none a", ":0"),
            ("delifeq k hell", ":0"),
            ("delex k ifdeq 9555E8555C62DCFD", ":1"),
            ("set k 0123", "OK"),
            ("delex k ifeq 123", ":0"),
            ("delifeq k 0123", ":1"),
            ("delex list", ":1"),
            ("exists k list", ":0"),
        ],
    );
}

/// Known digests, of values in one row and in fragments.
#[test]
fn digests_are_those_of_xxh3() {
    let mut client = Client::new();
    client.run("rpush list a");
    let known = [
        ("Hello world", "b6acb9d84a38ff74"),
        ("hello", HELLO),
        ("", "2d06800538d394c2"),
        ("123", "404a763b3f4c8c9a"),
        ("v8", "0cc76dbb41381419"),
    ];
    for (value, digest) in known {
        client.args(&[b"SET", b"k", value.as_bytes()]);
        assert_eq!(client.run("digest k"), Value::Bulk(digest.into()));
    }
    check(
        &mut client,
        &[("digest none", "(nil)"), ("digest list", WRONG_TYPE)],
    );
    // Longer than what is read at once, with a hole of zeros.
    let mut long = vec![b'x'; 3 << 20];
    long[5_000..2_000_000].fill(0);
    client.args(&[b"SET", b"k", &long]);
    let digest = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&long));
    assert_eq!(client.run("digest k"), Value::Bulk(digest.into()));
    let mut other = long.clone();
    other[3 << 19] ^= 1;
    for (value, deleted) in [(&other, 0), (&long[1..].to_vec(), 0), (&long, 1)] {
        let reply = client.args(&[b"DELEX", b"k", b"IFEQ", value]);
        assert_eq!(reply, Value::Int(deleted));
    }
}

#[test]
fn the_binlog_has_what_was_done() {
    let mut client = Client::new();
    for line in [
        "set k v ifeq x",
        "set k v ifne x",
        "set k w ifeq v",
        "set k x ifdeq 0000000000000000",
        "delex k ifeq x",
        "delex k ifne x",
        "delex k",
        "set k v",
        "delifeq k w",
        "delifeq k v",
    ] {
        client.run(line);
    }
    let expected = ["SET k v", "SET k w", "DEL k", "set k v", "DEL k"];
    assert_eq!(client.logged(), expected);
    client.check();
}
