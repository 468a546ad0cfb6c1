//! MSETEX, as clients see it and as the binlog has it.

use crate::commands::strings::tests::check;
use crate::exec::testing::{Client, START_MS};

const SYNTAX: &str = "ERR syntax error";
const NUMKEYS: &str = "ERR invalid numkeys value";
const PAIRS: &str = "ERR wrong number of key-value pairs";
const TIME: &str = "ERR invalid expire time in 'msetex' command";

#[test]
fn all_keys_are_set_or_none() {
    let mut client = Client::new();
    client.run("rpush list a");
    check(
        &mut client,
        &[
            (
                "msetex 1 a",
                "ERR wrong number of arguments for 'msetex' command",
            ),
            ("msetex 0 a b", NUMKEYS),
            ("msetex -1 a b", NUMKEYS),
            ("msetex x a b", NUMKEYS),
            ("msetex 2147483648 a b", NUMKEYS),
            ("msetex 2 a b", PAIRS),
            ("msetex 2147483647 a b", PAIRS),
            ("msetex 1 a b foo", SYNTAX),
            ("msetex 1 a b nx xx", SYNTAX),
            ("msetex 1 a b keepttl ex 1", SYNTAX),
            ("msetex 1 a b ex 0", TIME),
            ("exists a", ":0"),
            ("msetex 2 a 1 b 2 nx ex 10", ":1"),
            ("msetex 2 b 3 c 3 nx", ":0"),
            ("msetex 2 b 3 c 3 xx", ":0"),
            ("mget a b c", r#"["1" "2" (nil)]"#),
            ("msetex 2 a 4 b 5 xx keepttl", ":1"),
            ("ttl a", ":10"),
            ("msetex 3 a 6 a 7 list 8", ":1"),
            ("mget a b list", r#"["7" "5" "8"]"#),
            ("ttl a", ":-1"),
            ("msetex 2 a nx nx xx nx", ":0"),
        ],
    );
}

#[test]
fn the_binlog_has_each_key() {
    let mut client = Client::new();
    for line in [
        "msetex 2 a 1 b 2 px 50",
        "msetex 1 a 1 nx",
        "msetex 2 a 3 b 4 keepttl xx",
        "msetex 1 a 5",
    ] {
        client.run(line);
    }
    let at = START_MS + 50;
    let expected = [
        &format!("SET a 1 PXAT {at}"),
        &format!("SET b 2 PXAT {at}"),
        "SET a 3 KEEPTTL",
        "SET b 4 KEEPTTL",
        "SET a 5",
    ];
    assert_eq!(client.logged(), expected);
    client.check();
}
