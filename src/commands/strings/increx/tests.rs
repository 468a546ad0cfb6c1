//! INCREX, as clients see it and as the binlog has it.

use crate::commands::strings::tests::check;
use crate::exec::testing::{Client, START_MS};

const SYNTAX: &str = "ERR syntax error";
const BOUNDS: &str = "ERR LBOUND can't be greater than UBOUND";
const MAX: &str = "9223372036854775807";

#[test]
fn integers_stay_within_their_bounds() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("increx k", "[:1 :1]"),
            ("increx k byint -3", "[:-2 :-3]"),
            ("object encoding k", r#""int""#),
            ("set k 10", "OK"),
            ("increx k byint 5 ubound 12", "[:10 :0]"),
            ("increx k byint 5 ubound 12 saturate", "[:12 :2]"),
            ("increx k byint -5 lbound 8", "[:12 :0]"),
            ("increx k byint -5 saturate lbound 8", "[:8 :-4]"),
            ("increx k byint 5 lbound 20 saturate", "[:20 :12]"),
            ("increx k byint 5 ubound 5 saturate", "[:5 :-15]"),
            ("increx k byint -1 ubound 3", "[:5 :0]"),
            ("increx k byint -2 ubound 3", "[:3 :-2]"),
            ("increx none lbound 5", "[:0 :0]"),
            ("exists none", ":0"),
            ("increx none ubound 0 saturate", "[:0 :0]"),
            ("exists none", ":1"),
            ("set k 9223372036854775800", "OK"),
            ("increx k byint 10", "[:9223372036854775800 :0]"),
            ("increx k byint 10 saturate", "[:9223372036854775807 :7]"),
            (
                "increx k byint 1 saturate ubound -9223372036854775808",
                "ERR applied increment would overflow",
            ),
            ("set k 1.5", "OK"),
            ("increx k", "ERR value is not an integer or out of range"),
        ],
    );
    assert_eq!(client.run("get k"), crate::resp::Value::Bulk("1.5".into()));
    client.run("del k");
    let steps = [(MAX, MAX), ("-1", "9223372036854775806")];
    for (by, sum) in steps {
        let reply = format!("[:{sum} :{by}]");
        check(&mut client, &[(&format!("increx k byint {by}"), &reply)]);
    }
}

#[test]
fn floats_stay_within_their_bounds() {
    let mut client = Client::new();
    let infinite = "ERR applied increment would be Infinity";
    check(
        &mut client,
        &[
            ("increx f byfloat 2.5", r#"["2.5" "2.5"]"#),
            ("increx f byfloat 1.1", r#"["3.6" "1.1"]"#),
            ("increx f byfloat 5 ubound 7.4", r#"["3.6" "0"]"#),
            ("increx f byfloat 5 ubound 7.5 saturate", r#"["7.5" "3.9"]"#),
            (
                "increx f byfloat -9 lbound -0.5 saturate",
                r#"["-0.5" "-8"]"#,
            ),
            ("increx f byfloat 1 ubound -inf", BOUNDS),
            (
                "increx f byfloat 1 lbound inf ubound inf",
                r#"["-0.5" "0"]"#,
            ),
            (
                "increx f byfloat 1 lbound inf ubound inf saturate",
                infinite,
            ),
            ("increx f byfloat 0.5 ubound inf", r#"["0" "0.5"]"#),
            (
                "increx f byfloat -inf",
                "ERR BYFLOAT increment cannot be Infinity",
            ),
            ("set f inf", "OK"),
            ("increx f byfloat 1", "ERR value cannot be Infinity"),
            ("set f x", "OK"),
            ("increx f byfloat 1", "ERR value is not a valid float"),
        ],
    );
}

#[test]
fn options_stand_once_and_make_sense() {
    let mut client = Client::new();
    client.run("rpush list a");
    for wrong in [
        "foo",
        "byint",
        "lbound",
        "byint 1 byint 2",
        "byint 1 byfloat 2",
        "lbound 0 lbound 1",
        "ubound 0 ubound 1",
        "saturate saturate",
        "sat",
        "enx enx ex 10",
        "persist persist",
        "persist ex 10",
        "ex 10 persist",
        "ex 10 ex 20",
        "ex 10 px 20",
        "persist enx",
        "enx persist",
        "nx",
        "xx",
    ] {
        check(&mut client, &[(&format!("increx k {wrong}"), SYNTAX)]);
    }
    check(
        &mut client,
        &[
            ("increx k enx", "ERR ENX flag requires an expiration"),
            (
                "increx k byint 1.5",
                "ERR Increment is not an integer or out of range",
            ),
            ("increx k byfloat x", "ERR Increment is not a valid float"),
            (
                "increx k ubound inf",
                "ERR UBOUND is not an integer or out of range",
            ),
            (
                "increx k byfloat 1 lbound x",
                "ERR LBOUND is not a valid float",
            ),
            ("increx k lbound 2 ubound 1", BOUNDS),
            (
                "increx k ex 0",
                "ERR invalid expire time in 'increx' command",
            ),
            (
                "increx list",
                "WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("exists k", ":0"),
        ],
    );
}

#[test]
fn the_expiry_follows_the_options() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("increx k ex 100 byint 5", "[:5 :5]"),
            ("ttl k", ":100"),
            ("increx k ex 10 enx", "[:6 :1]"),
            ("ttl k", ":100"),
            ("increx k ubound 6 ex 10", "[:6 :0]"),
            ("ttl k", ":100"),
            ("increx k exat 1 enx", "[:7 :1]"),
            ("ttl k", ":100"),
            ("increx k persist", "[:8 :1]"),
            ("ttl k", ":-1"),
            ("increx k exat 1", "[:9 :1]"),
            ("exists k", ":0"),
            ("increx k exat 1", "[:1 :1]"),
            ("exists k", ":0"),
        ],
    );
}

#[test]
fn the_binlog_has_the_sum() {
    let mut client = Client::new();
    for line in [
        "increx k byint 5",
        "increx k byfloat 0.5",
        "increx k byfloat 9 ubound 10 saturate px 50",
        "increx k byfloat 9 ubound 10",
        "increx k byfloat -1 px 70 enx",
        "increx k byfloat 1 persist",
        "increx k byfloat 1 exat 1",
        "increx none exat 1",
    ] {
        client.run(line);
    }
    let at = START_MS + 50;
    let expected = [
        "SET k 5 KEEPTTL",
        "SET k 5.5 KEEPTTL",
        &format!("SET k 10 PXAT {at}"),
        "SET k 9 KEEPTTL",
        "SET k 10",
        "DEL k",
    ];
    assert_eq!(client.logged(), expected);
    client.check();
}
