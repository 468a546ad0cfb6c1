//! Hash commands as clients see them.

use crate::exec::testing::{Client, check, shown};
use crate::resp::Value;

#[test]
fn fields_are_set_read_and_removed() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("hset h a 1 b 2 a 3", "2"),
            ("hgetall h", "[a 3 b 2]"),
            ("hset h b 4 c 5", "1"),
            ("hmget h a x c", "[3 nil 5]"),
            ("hmget none a", "[nil]"),
            ("hkeys h", "[a b c]"),
            ("hvals h", "[3 4 5]"),
            ("hlen h", "3"),
            ("hstrlen h a", "1"),
            ("hstrlen h x", "0"),
            ("hsetnx h a 9", "0"),
            ("hsetnx h d 9", "1"),
            ("hget h d", "9"),
            ("hexists h d", "1"),
            ("hdel h d d x", "1"),
            ("hexists h d", "0"),
            ("hmset h e 1", "OK"),
            ("hdel h a b c e", "4"),
            ("exists h", "0"),
            (
                "hset h a 1 b",
                "-ERR wrong number of arguments for 'hset' command",
            ),
            (
                "hmset h a 1 b",
                "-ERR wrong number of arguments for 'hmset' command",
            ),
            ("hgetall h", "[]"),
        ],
    );
    client.check();
}

#[test]
fn numbers_in_fields() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("hincrby h n 5", "5"),
            ("hincrby h n -7", "-2"),
            (
                "hincrby h n x",
                "-ERR value is not an integer or out of range",
            ),
            ("hset h n 9223372036854775807 f abc", "1"),
            (
                "hincrby h n 1",
                "-ERR increment or decrement would overflow",
            ),
            ("hincrby h f 1", "-ERR hash value is not an integer"),
            ("hincrbyfloat h f 1", "-ERR hash value is not a float"),
            ("hincrbyfloat h n inf", "-ERR value is NaN or Infinity"),
            ("hincrbyfloat h n abc", "-ERR value is not a valid float"),
            ("hincrbyfloat h g 10.5", "10.5"),
            ("hincrbyfloat h g 0.1", "10.6"),
            ("hincrbyfloat none x 5.0e3", "5000"),
        ],
    );
    let logged = client.logged();
    assert!(logged.contains(&"HSET h g 10.6".to_owned()), "{logged:?}");
    assert!(!logged.iter().any(|line| line.starts_with("hincrbyfloat")));
}

#[test]
fn random_fields() {
    let mut client = Client::new();
    const RANGE: &str = "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    check(
        &mut client,
        &[
            ("hset h a 1", "1"),
            ("hrandfield h", "a"),
            ("hrandfield h 5", "[a]"),
            ("hrandfield h -3", "[a a a]"),
            ("hrandfield h -2 withvalues", "[a 1 a 1]"),
            ("hrandfield h 0", "[]"),
            ("hrandfield none", "nil"),
            ("hrandfield none 3 withvalues", "[]"),
            ("hrandfield h 3 foo", "-ERR syntax error"),
            ("hrandfield h -9223372036854775808", RANGE),
            (
                "hrandfield h -9223372036854775807 withvalues",
                "-ERR value is out of range",
            ),
            (
                "hrandfield h -9223372036854775807",
                "-ERR the reply would be too long",
            ),
        ],
    );
}

#[test]
fn scans() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("hset h a 1 b 2", "2"),
            ("hscan h 0", "[0 [a 1 b 2]]"),
            ("hscan h 0 match a*", "[0 [a 1]]"),
            ("hscan h 0 novalues count 1", "[0 [a b]]"),
            ("hscan h x", "-ERR invalid cursor"),
            ("hscan h 0 count 0", "-ERR syntax error"),
            ("hscan h 0 match", "-ERR syntax error"),
            ("hscan none 0 nonsense", "[0 []]"),
        ],
    );
    for field in 0..500 {
        client.run(&format!("hset h {field} v{field}"));
    }
    let (mut cursor, mut fields, mut calls) = ("0".to_owned(), 0, 0);
    loop {
        let reply = client.run(&format!("hscan h {cursor} count 20"));
        let Value::Array(parts) = reply else {
            panic!("{reply:?}");
        };
        let Value::Array(items) = &parts[1] else {
            panic!("{parts:?}");
        };
        (fields, calls) = (fields + items.len() / 2, calls + 1);
        cursor = shown(&parts[0]);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(fields, 502);
    assert!(calls >= 20);
    client.check();
}

#[test]
fn large_hashes_change_without_their_meta_row() {
    let mut client = Client::new();
    for field in 0..200 {
        client.run(&format!("hset h {field} v{field}"));
    }
    check(
        &mut client,
        &[
            ("hset h 7 new", "0"),
            ("hget h 7", "new"),
            ("hlen h", "200"),
            ("hincrby h n 3", "3"),
            ("hincrby h n 3", "6"),
            ("hdel h n n 7", "2"),
            ("hlen h", "199"),
        ],
    );
    client.check();
}
