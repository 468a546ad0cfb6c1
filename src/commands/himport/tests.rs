//! HIMPORT as clients see it.

use crate::exec::testing::{Client, check, shown};

const UNKNOWN: &str = "-ERR no such fieldset";
const OTHER_COUNT: &str = "-ERR value count does not match the fieldset";

#[test]
fn values_get_the_fields_of_a_fieldset() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("himport prepare u name email age", "OK"),
            ("himport set u:1 u alice a@x 30", "OK"),
            ("hgetall u:1", "[name alice email a@x age 30]"),
            ("himport set u:2 u bob b@x", OTHER_COUNT),
            ("himport set u:2 u bob b@x 31 more", OTHER_COUNT),
            ("himport set u:2 none bob b@x 31", UNKNOWN),
            ("exists u:2", "0"),
            // A fieldset of the same name takes the place of the first, unless it is refused.
            ("himport prepare u a b a", "-ERR duplicate field name"),
            ("himport set u:2 u bob b@x 31", "OK"),
            ("himport prepare u a b", "OK"),
            ("himport set u:2 u 1 2", "OK"),
            ("hgetall u:2", "[a 1 b 2]"),
            ("hgetall u:1", "[name alice email a@x age 30]"),
            ("himport prepare v x", "OK"),
            ("himport discard none", "0"),
            ("himport discard v", "1"),
            ("himport discard v", "0"),
            ("himport set u:3 v 1", UNKNOWN),
            ("himport prepare v x", "OK"),
            ("himport discardall", "2"),
            ("himport discardall", "0"),
            ("himport set u:3 u 1 2", UNKNOWN),
        ],
    );
    // Names may be empty.
    let empty: [&[u8]; 5] = [b"HIMPORT", b"PREPARE", b"", b"", b"b"];
    assert_eq!(shown(&client.args(&empty)), "OK");
    let set: [&[u8]; 6] = [b"HIMPORT", b"SET", b"e", b"", b"1", b"2"];
    assert_eq!(shown(&client.args(&set)), "OK");
    assert_eq!(shown(&client.args(&[b"HGET", b"e", b""])), "1");
    client.check();
}

#[test]
fn a_hash_is_replaced_with_its_time_and_other_values_are_not() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("himport prepare s a b", "OK"),
            ("hset h old 1", "1"),
            ("hexpire h 100 fields 1 old", "[1]"),
            ("expire h 100", "1"),
            ("himport set h s 1 2", "OK"),
            ("hgetall h", "[a 1 b 2]"),
            ("ttl h", "-1"),
            ("set str x", "OK"),
            (
                "himport set str s 1 2",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("get str", "x"),
        ],
    );
    // What follows the stream knows no fieldsets.
    let logged = client.logged();
    let expected = ["DEL h", "HSET h a 1 b 2", "set str x"];
    assert_eq!(logged[logged.len() - 3..], expected);
    client.check();
}

/// More than one packed row holds.
#[test]
fn long_hashes() {
    let mut client = Client::new();
    let fields: Vec<String> = (0..1000).map(|n| format!("f{n}")).collect();
    let values: Vec<String> = (0..1000).map(|n| format!("v{n}")).collect();
    client.run(&format!("himport prepare long {}", fields.join(" ")));
    for key in ["a", "a", "b"] {
        let line = format!("himport set {key} long {}", values.join(" "));
        assert_eq!(shown(&client.run(&line)), "OK");
        assert_eq!(shown(&client.run(&format!("hlen {key}"))), "1000");
    }
    assert_eq!(shown(&client.run("hget a f999")), "v999");
    client.check();
}

#[test]
fn fieldsets_belong_to_a_connection() {
    let mut client = Client::new();
    let mut other = client.another();
    client.run("himport prepare s a");
    assert_eq!(shown(&other.run("himport set k s 1")), UNKNOWN);
    other.run("himport prepare s b");
    check(&mut client, &[("himport set k s 1", "OK")]);
    assert_eq!(shown(&client.run("hgetall k")), "[a 1]");
    check(&mut client, &[("reset", "RESET")]);
    assert_eq!(shown(&client.run("himport set k s 1")), UNKNOWN);
    check(&mut other, &[("himport set k s 1", "OK")]);
    client.check();
}

#[test]
fn transactions_and_scripts() {
    let mut client = Client::new();
    for line in [
        "multi",
        "himport prepare s a b",
        "himport set k s 1 2",
        "himport set k s 1",
    ] {
        client.run(line);
    }
    let replies = shown(&client.run("exec"));
    assert_eq!(replies, format!("[OK OK {OTHER_COUNT}]"));
    assert_eq!(shown(&client.run("hgetall k")), "[a 1 b 2]");
    // A script begins with no fieldset, and leaves none.
    let script = b"return redis.pcall('HIMPORT', 'SET', KEYS[1], 's', 1, 2)";
    let mut eval = |script: &[u8]| shown(&client.args(&[b"EVAL", script, b"1", b"k"]));
    assert_eq!(eval(script), UNKNOWN);
    let script = b"redis.call('HIMPORT', 'PREPARE', 't', 'c') \
                   return redis.call('HIMPORT', 'SET', KEYS[1], 't', 3)";
    assert_eq!(eval(script), "OK");
    check(
        &mut client,
        &[
            ("hgetall k", "[c 3]"),
            ("himport set k t 1", UNKNOWN),
            ("himport set k s 4 5", "OK"),
        ],
    );
    client.check();
}

/// Clients could otherwise hold any memory with fieldsets.
#[test]
fn fieldsets_count_as_memory_of_the_client() {
    let mut client = Client::new();
    let before = client.parts().1.info.memory_bytes();
    let fields: Vec<String> = (0..1000).map(|n| format!("field{n}")).collect();
    let line = format!("himport prepare s {}", fields.join(" "));
    client.run(&line);
    let with = client.parts().1.info.memory_bytes();
    assert!(with > before + 6000, "{before} {with}");
    client.run(&line);
    assert_eq!(client.parts().1.info.memory_bytes(), with);
    client.run("himport discardall");
    assert_eq!(client.parts().1.info.memory_bytes(), before);
}
