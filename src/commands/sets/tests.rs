//! Set commands as clients see them.

use crate::exec::testing::{Client, check, shown};
use crate::resp::Value;

#[test]
fn members_come_and_go() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("sadd s a b a", "2"),
            ("scard s", "2"),
            ("smembers s", "[a b]"),
            ("sadd n 10 9 -1", "3"),
            ("smembers n", "[-1 9 10]"),
            ("sismember s a", "1"),
            ("smismember s a x b", "[1 0 1]"),
            ("smismember none a", "[0]"),
            ("srem s a a x", "1"),
            ("smove s n b", "1"),
            ("exists s", "0"),
            ("smove s n b", "0"),
            ("sismember n b", "1"),
            ("smove n n b", "1"),
            ("smove n n x", "0"),
            ("scard n", "4"),
            ("srem n 10 9 -1 b", "4"),
            ("exists n", "0"),
            ("smembers n", "[]"),
        ],
    );
    client.check();
}

#[test]
fn algebra() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("sadd a 1 2 3 4", "4"),
            ("sadd b 2 3 9", "3"),
            ("sadd c 3 x", "2"),
            ("sinter a b", "[2 3]"),
            ("sinter a b c", "[3]"),
            ("sinter a none", "[]"),
            ("sunion a b", "[1 2 3 4 9]"),
            ("sunion none", "[]"),
            ("sdiff a b c", "[1 4]"),
            ("sdiff none a", "[]"),
            ("sdiff a a", "[]"),
            ("sintercard 2 a b", "2"),
            ("sintercard 2 a b limit 1", "1"),
            ("sintercard 2 a b limit 0", "2"),
            ("sintercard 0 a", "-ERR numkeys should be greater than 0"),
            (
                "sintercard 2 a",
                "-ERR Number of keys can't be greater than number of args",
            ),
            ("sintercard 1 a limit -1", "-ERR LIMIT can't be negative"),
            ("sintercard 1 a b", "-ERR syntax error"),
            ("sinterstore a a b", "2"),
            ("smembers a", "[2 3]"),
            ("sunionstore d a b c", "4"),
            ("sdiffstore d d c", "2"),
            ("smembers d", "[2 9]"),
            ("sdiffstore d none", "0"),
            ("exists d", "0"),
            ("hset h f v", "1"),
            (
                "sinter none h",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("sunionstore h b", "3"),
            ("smembers h", "[2 3 9]"),
        ],
    );
    client.check();
}

#[test]
fn large_results_are_stored() {
    let mut client = Client::new();
    for block in 0..40 {
        let members = |step: u32| -> String {
            let numbers = (0..50).map(|i| format!(" m{}", (block * 50 + i) * step));
            numbers.collect()
        };
        client.run(&format!("sadd a{}", members(1)));
        client.run(&format!("sadd b{}", members(2)));
    }
    check(
        &mut client,
        &[
            ("scard a", "2000"),
            ("sinterstore i a b", "1000"),
            ("sunionstore u a b", "3000"),
            ("sdiffstore d a b", "1000"),
            ("sunionstore u u a d", "3000"),
            ("scard u", "3000"),
            ("sintercard 3 a b u", "1000"),
            ("sintercard 3 a b u limit 7", "7"),
            ("del u i d a b", "5"),
        ],
    );
    client.check();
}

#[test]
fn pops_log_what_they_took() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("spop s", "nil"),
            ("spop s 3", "[]"),
            ("spop s -1", "-ERR value is out of range, must be positive"),
            ("spop s 1 2", "-ERR syntax error"),
            ("sadd s a", "1"),
            ("spop s 0", "[]"),
            ("spop s", "a"),
            ("exists s", "0"),
            ("sadd s a b c", "3"),
        ],
    );
    let popped = shown(&client.run("spop s"));
    client.run("spop s 9");
    let logged = client.logged();
    assert_eq!(
        logged[logged.len() - 3..],
        [
            "sadd s a b c".to_owned(),
            format!("SREM s {popped}"),
            "DEL s".to_owned()
        ]
    );
    let members: String = (0..3000).map(|i| format!(" {i}")).collect();
    client.run(&format!("sadd big{members}"));
    let Value::Array(taken) = client.run("spop big 2500") else {
        panic!();
    };
    assert_eq!(taken.len(), 2500);
    check(&mut client, &[("scard big", "500")]);
    let logged = client.logged();
    let removed = logged.iter().filter(|line| line.starts_with("SREM big "));
    assert_eq!(
        removed
            .map(|line| line.split(' ').count() - 2)
            .sum::<usize>(),
        2500
    );
    client.check();
}

#[test]
fn random_members() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("srandmember s", "nil"),
            ("srandmember s 2", "[]"),
            ("sadd s a", "1"),
            ("srandmember s", "a"),
            ("srandmember s 3", "[a]"),
            ("srandmember s -3", "[a a a]"),
            ("srandmember s 1 2", "-ERR syntax error"),
            (
                "srandmember s -9223372036854775807",
                "-ERR the reply would be too long",
            ),
        ],
    );
    let members: String = (0..1000).map(|i| format!(" {i}")).collect();
    client.run(&format!("sadd big{members}"));
    for (count, expected) in [(5i64, 5), (900, 900), (2000, 1000), (-5, 5), (-3000, 3000)] {
        let Value::Array(drawn) = client.run(&format!("srandmember big {count}")) else {
            panic!();
        };
        assert_eq!(drawn.len(), expected);
        if count > 0 {
            let mut drawn: Vec<String> = drawn.iter().map(shown).collect();
            drawn.sort();
            drawn.dedup();
            assert_eq!(drawn.len(), expected);
        }
    }
}

#[test]
fn scans() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("sadd s a ab c", "3"),
            ("sscan s 0", "[0 [a ab c]]"),
            ("sscan s 0 match a* count 1", "[0 [a ab]]"),
            (
                "sscan s 0 novalues",
                "-ERR NOVALUES option can only be used in HSCAN",
            ),
            ("sscan none 0", "[0 []]"),
        ],
    );
}

#[test]
fn unions_and_differences_are_counted() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("sadd a 1 2 3", "3"),
            ("sadd b 3 4", "2"),
            ("sunioncard 2 a b", "4"),
            ("sunioncard 2 a b limit 3", "3"),
            ("sunioncard 3 a none b limit 0", "4"),
            ("sunioncard 2 a b approx", "4"),
            ("sunioncard 2 a b limit 2 approx", "2"),
            ("sunioncard 1 none", "0"),
            ("sdiffcard 2 a b", "2"),
            ("sdiffcard 2 a b limit 1", "1"),
            ("sdiffcard 2 none b", "0"),
            ("sdiffcard 2 a b approx", "-ERR syntax error"),
            ("sdiffcard 2 a b limit", "-ERR syntax error"),
            ("sunioncard 2 a b limit -1", "-ERR LIMIT can't be negative"),
            ("sunioncard 0 a", "-ERR numkeys should be greater than 0"),
            (
                "sunioncard 3 a b",
                "-ERR Number of keys can't be greater than number of args",
            ),
        ],
    );
}
