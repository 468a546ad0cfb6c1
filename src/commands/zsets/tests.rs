//! The commands of sorted sets, as clients see them and as the binlog has them.

use crate::exec::testing::Client;
use crate::resp::Value;

/// A reply in one line: `OK`, `(nil)`, `:1`, `bulk`, `,1.5`, `[a b]`, `ERR …`.
fn show(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(text) | Value::Error(text) => text.clone(),
        Value::Int(n) => format!(":{n}"),
        Value::Double(n) => format!(",{n}"),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Null => "(nil)".into(),
        Value::Array(values) => format!("[{}]", all(values)),
        Value::Map(_) => "{}".into(),
        other => panic!("no sorted set command answers {other:?}"),
    }
}

/// The replies of Redis for sorted sets of at most a hundred elements, except that Redis also
/// removes `b` here, which is below the minimum.
#[test]
fn ranges_of_members_over_differing_scores() {
    check(&[
        ("zadd z 1 a 2 z 3 m 4 b 5 x", ":5"),
        ("zrangebylex z [b [y", "[]"),
        ("zrangebylex z [a [n", "[a]"),
        ("zrangebylex z (a +", "[z m b x]"),
        ("zrangebylex z (a + limit 1 2", "[m b]"),
        ("zrevrangebylex z [y [c", "[x]"),
        ("zrange z [y [c bylex rev", "[x]"),
        ("zlexcount z (a +", ":4"),
        ("zlexcount z [m [z", ":4"),
        ("zrangebylex z (z [a", "[]"),
        ("zremrangebylex z [m [z", ":3"),
        ("zrange z 0 -1", "[a b]"),
    ]);
}

#[test]
fn a_weight_of_zero_keeps_the_sign() {
    check(&[
        ("zadd z -5 m", ":1"),
        ("zunion 1 z weights 0 withscores", "[m -0]"),
        ("zunionstore d 1 z weights 0", ":1"),
        ("zscore d m", "0"),
        ("zadd y -0 m", ":1"),
        ("zscore y m", "0"),
        ("zunion 1 y weights -1 withscores", "[m -0]"),
    ]);
}

const SYNTAX: &str = "ERR syntax error";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_FLOAT: &str = "ERR value is not a valid float";

/// Runs the cases on packed sorted sets and on sorted sets with rows per element; the
/// database must be consistent afterwards.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for packed_max_entries in [64, 0] {
        let mut client = Client::with(|storage| storage.packed_max_entries = packed_max_entries);
        for (line, expected) in cases {
            let reply = show(&client.run(line));
            assert_eq!(
                reply, *expected,
                "{line}, packed up to {packed_max_entries}"
            );
        }
        client.check();
    }
}

#[test]
fn zadd_and_its_options() {
    check(&[
        ("zadd k 1 a 2 b 1 a", ":2"),
        ("zadd k ch 5 a 2 b 1 c", ":2"),
        ("zadd k nx 9 a 9 d", ":1"),
        ("zadd k xx ch 9 a 9 e", ":1"),
        ("zadd k gt ch 1 a 10 d 3 f", ":2"),
        ("zadd k lt ch 1 a 11 d 4 g", ":2"),
        ("zadd k incr 1.5 a", "2.5"),
        ("zadd k nx incr 1 a", "(nil)"),
        ("zadd k gt incr -1 a", "(nil)"),
        ("zadd none xx 1 a", ":0"),
        ("zadd none xx incr 1 a", "(nil)"),
        ("exists none", ":0"),
        ("zrange k 0 -1 withscores", "[c 1 b 2 a 2.5 f 3 g 4 d 10]"),
        ("zadd k 1 a 2", SYNTAX),
        ("zadd k nx xx", SYNTAX),
        (
            "zadd k nx xx 1 a",
            "ERR XX and NX options at the same time are not compatible",
        ),
        (
            "zadd k gt lt 1 a",
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ),
        (
            "zadd k incr 1 a 2 b",
            "ERR INCR option supports a single increment-element pair",
        ),
        ("zadd k 1 a x b", NOT_FLOAT),
        ("zadd k nan a", NOT_FLOAT),
        ("zincrby k inf a", "inf"),
        (
            "zincrby k -inf a",
            "ERR resulting score is not a number (NaN)",
        ),
        ("zscore k a", "inf"),
        ("zadd k -0 z", ":1"),
        ("zscore k z", "0"),
        // The reply is the given score, although 0 is stored.
        ("zincrby k -0 new", "-0"),
        ("zscore k new", "0"),
        ("zadd k incr -0 newer", "-0"),
        ("zincrby k -0 newer", "0"),
        ("set s x", "OK"),
        ("zadd s 1 a", WRONG_TYPE),
        ("zadd s x a", NOT_FLOAT),
    ]);
}

#[test]
fn ranks_pops_and_removals() {
    check(&[
        ("zadd k 1 a 2 b 3 c 4 d 5 e 6 f", ":6"),
        ("zrank k c", ":2"),
        ("zrevrank k c withscore", "[:3 3]"),
        ("zrank k none", "(nil)"),
        ("zrank k none withscore", "(nil)"),
        ("zrank k c x", SYNTAX),
        ("zpopmin k", "[a 1]"),
        ("zpopmax k 2", "[f 6 e 5]"),
        ("zpopmin k 0", "[]"),
        (
            "zpopmin k -1",
            "ERR value is out of range, must be positive",
        ),
        ("zmpop 2 none k min count 1", "[k [[b 2]]]"),
        ("zmpop 1 none max", "(nil)"),
        ("zmpop 0 k max", "ERR numkeys should be greater than 0"),
        (
            "zmpop 1 k max count 0",
            "ERR count should be greater than 0",
        ),
        ("zrem k c c x", ":1"),
        ("zrem k d", ":1"),
        ("exists k", ":0"),
        ("zadd k 1 a 2 b 3 c", ":3"),
        ("zremrangebyrank k 1 -1", ":2"),
        ("zremrangebyscore k (1 inf", ":0"),
        ("zremrangebyscore k -inf inf", ":1"),
        ("exists k", ":0"),
    ]);
}

#[test]
fn ranges() {
    check(&[
        ("zadd k 1 a 2 b 3 c 4 d", ":4"),
        ("zrange k 1 2", "[b c]"),
        ("zrange k -2 100 rev", "[b a]"),
        ("zrange k 2 1", "[]"),
        (
            "zrange k -9223372036854775808 9223372036854775807",
            "[a b c d]",
        ),
        ("zrange k (1 3 byscore", "[b c]"),
        ("zrange k +inf (2 byscore rev limit 1 1", "[c]"),
        ("zrange k 0 9 byscore limit -1 2", "[]"),
        ("zrange k 0 9 byscore limit 1 -5", "[b c d]"),
        ("zrange k - + bylex limit 9223372036854775807 1", "[]"),
        (
            "zrange k 0 1 limit 0 1",
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ),
        (
            "zrange k - + bylex withscores",
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ),
        ("zrange k x 1 byscore", "ERR min or max is not a float"),
        ("zrange k 0x1 1 byscore", "ERR min or max is not a float"),
        ("zcount k 0 (0x1", "ERR min or max is not a float"),
        (
            "zrange k x + bylex",
            "ERR min or max not valid string range item",
        ),
        ("zrevrangebyscore k 3 2 withscores", "[c 3 b 2]"),
        ("zrevrange k 0 0", "[d]"),
        ("zrevrange k 0 0 rev", SYNTAX),
        ("zcount k 2 +inf", ":3"),
        ("zcount k 3 2", ":0"),
        ("zrangestore d k 1 2 rev", ":2"),
        ("zrange d 0 -1 withscores", "[b 2 c 3]"),
        ("zrangestore d k 5 6", ":0"),
        ("exists d", ":0"),
        ("zadd l 0 a 0 b 0 c", ":3"),
        ("zrangebylex l (a [c", "[b c]"),
        ("zrevrangebylex l + (a limit 1 1", "[b]"),
        ("zlexcount l - (c", ":2"),
        ("zremrangebylex l [b +", ":2"),
        // Differing scores: a range outside of all members is still empty.
        ("zrangebylex k [f [g", "[]"),
    ]);
}

#[test]
fn algebra() {
    check(&[
        ("zadd a 1 x 2 y 3 z", ":3"),
        ("zadd b 10 y 20 z 30 w", ":3"),
        ("sadd s z y q", ":3"),
        ("zunion 2 a b withscores", "[x 1 y 12 z 23 w 30]"),
        ("zinter 3 a b s withscores", "[y 13 z 24]"),
        (
            "zinter 2 a b weights 2 -1 aggregate min withscores",
            "[z -20 y -10]",
        ),
        (
            "zunion 3 a b s aggregate count withscores",
            "[q 1 w 1 x 1 y 3 z 3]",
        ),
        (
            "zunion 2 a b weights 2 -1 aggregate count withscores",
            "[w -1 y 1 z 1 x 2]",
        ),
        ("zinter 3 a b s aggregate COUNT withscores", "[y 3 z 3]"),
        ("zdiff 2 a s aggregate count", SYNTAX),
        ("zunionstore n 2 a b aggregate count", ":4"),
        ("zrange n 0 -1 withscores", "[w 1 x 1 y 2 z 2]"),
        ("zinterstore n 2 a b weights 0.5 1 aggregate count", ":2"),
        ("zrange n 0 -1 withscores", "[y 1.5 z 1.5]"),
        ("zdiff 2 a s withscores", "[x 1]"),
        ("zdiff 2 s a withscores", "[q 1]"),
        ("zdiff 2 a none", "[x y z]"),
        ("zintercard 2 a b", ":2"),
        ("zintercard 2 a b limit 1", ":1"),
        ("zintercard 2 a b limit -1", "ERR LIMIT can't be negative"),
        ("zunionstore a 2 a s weights 1 0.5", ":4"),
        ("zrange a 0 -1 withscores", "[q 0.5 x 1 y 2.5 z 3.5]"),
        ("zinterstore a 2 a none", ":0"),
        ("exists a", ":0"),
        (
            "zunion 0 a",
            "ERR at least 1 input key is needed for 'zunion' command",
        ),
        ("zunion 2 b", SYNTAX),
        ("zunion 1 b weights x", "ERR weight value is not a float"),
        ("zdiff 1 b weights 1", SYNTAX),
        ("set t x", "OK"),
        ("zunion 1 t bogus", WRONG_TYPE),
    ]);
}

#[test]
fn resp3_has_doubles_and_pairs() {
    let mut client = Client::new();
    client.run("hello 3");
    for (line, expected) in [
        ("zadd k 1.5 a inf b", ":2"),
        ("zscore k a", ",1.5"),
        ("zincrby k 1 a", ",2.5"),
        ("zmscore k a none", "[,2.5 (nil)]"),
        ("zrange k 0 -1 withscores", "[[a ,2.5] [b ,inf]]"),
        ("zunion 1 k withscores", "[[a ,2.5] [b ,inf]]"),
        ("zrank k b withscore", "[:1 ,inf]"),
        ("zscan k 0", "[0 [a 2.5 b inf]]"),
        ("zpopmin k", "[a ,2.5]"),
        ("zpopmin k 1", "[[b ,inf]]"),
    ] {
        assert_eq!(show(&client.run(line)), expected, "{line}");
    }
}

#[test]
fn random_members_and_scans() {
    check(&[
        ("zrandmember none", "(nil)"),
        ("zrandmember none 3", "[]"),
        ("zadd k 1 a", ":1"),
        ("zrandmember k", "a"),
        ("zrandmember k 5 withscores", "[a 1]"),
        ("zrandmember k -3", "[a a a]"),
        ("zrandmember k 0", "[]"),
        (
            "zrandmember k -9223372036854775807",
            "ERR the reply would be too long",
        ),
        (
            "zrandmember k -9223372036854775807 withscores",
            "ERR value is out of range",
        ),
        ("zscan k 0 match b*", "[0 []]"),
        ("zscan k 0 count 0", SYNTAX),
        ("zscan k x", "ERR invalid cursor"),
    ]);
}

/// The effect of an increment has the resulting score.
#[test]
fn only_changes_are_logged() {
    let mut client = Client::new();
    for (line, logged) in [
        ("zadd k 1 a 2 b 3 c 4 d", Some("zadd k 1 a 2 b 3 c 4 d")),
        ("zadd k nx 5 a", None),
        ("zadd k 1 a", None),
        ("zadd k xx 1 none", None),
        ("zincrby k 0.25 a", Some("ZADD k 1.25 a")),
        ("zadd k xx incr 1 a", Some("ZADD k 2.25 a")),
        ("zincrby k 0 a", None),
        ("zrem k none", None),
        ("zpopmin k 0", None),
        ("zpopmin none", None),
        ("zpopmin k", Some("zpopmin k")),
        ("zremrangebyscore k 100 200", None),
        ("zunionstore d 1 k", Some("zunionstore d 1 k")),
        ("zunionstore none 1 none", None),
        ("zrangestore d k 0 0", Some("zrangestore d k 0 0")),
        ("zmpop 1 k max count 9", Some("zmpop 1 k max count 9")),
    ] {
        let before = client.logged().len();
        client.run(line);
        let after = client.logged();
        assert_eq!(after.get(before).map(String::as_str), logged, "{line}");
    }
    client.check();
}
