//! Keys of several slots in commands, transactions and scripts.

use super::{node, redis_node};
use crate::support::{Conn, Server, Value};

const CROSS: &str = "CROSSSLOT Keys in request don't hash to the same slot";

fn both(ours: &mut Conn, theirs: &mut Conn, line: &str) -> Value {
    let reply = ours.cmd(line);
    assert_eq!(reply, theirs.cmd(line), "{line}");
    reply
}

#[test]
fn keys_of_several_slots_are_refused_as_by_redis() {
    let (ours, theirs) = (node(&[]), redis_node());
    let (mut a, mut b) = (ours.connect(), theirs.connect());
    let crossing = [
        "MGET a b",
        "MSET a 1 b 2",
        "DEL a b",
        "EXISTS a b",
        "RENAME a b",
        "COPY a b",
        "WATCH a b",
        "BLPOP a b 1",
        "BLMOVE a b LEFT LEFT 1",
        "SINTER a b",
        "SINTERCARD 2 a b",
        "PFMERGE a b",
        "BITOP AND a b c",
        "ZUNIONSTORE a 1 b",
        "SORT a STORE b",
        "SORT a BY nosort STORE b",
        "GEORADIUS a 1 1 1 m STORE b",
        "XREAD STREAMS a b 0 0",
        "XREADGROUP GROUP g c STREAMS a b > >",
        "LMPOP 2 a b LEFT",
        "EVAL x 2 a b",
        "EVALSHA x 2 a b",
        "FCALL x 2 a b",
        "FCALL_RO x 2 a b",
        "SSUBSCRIBE a b",
        "SUNSUBSCRIBE a b",
    ];
    for line in crossing {
        let reply = both(&mut a, &mut b, line);
        assert_eq!(reply.error().as_deref(), Some(CROSS), "{line}");
    }
    let migrate = ["MIGRATE", "127.0.0.1", "1", "", "0", "10", "KEYS", "a", "b"];
    assert_eq!(a.call(&migrate), b.call(&migrate));
    assert_eq!(a.call(&migrate).error().as_deref(), Some(CROSS));
    for line in [
        "MSET {t}a 1 {t}b 2 x{t} 3",
        "MGET {t}a {t}b x{t}",
        "COPY {t}a {t}c",
        "SPUBLISH a b",
        "PUBLISH a b",
        "PUBSUB SHARDNUMSUB a b",
        "SORT {t}l STORE {t}m",
        "EVAL x 5 a b",
        "EVAL x x a b",
        "EVAL x -1 a b",
        "SINTERCARD 5 a b",
        "MGET",
        "GET a b",
        "WATCH a",
        "WATCH b",
        "UNWATCH",
        "DBSIZE",
        "RANDOMKEY x",
    ] {
        both(&mut a, &mut b, line);
    }
}

#[test]
fn a_transaction_stays_in_one_slot_as_in_redis() {
    let (ours, theirs) = (node(&[]), redis_node());
    let (mut a, mut b) = (ours.connect(), theirs.connect());
    let lines = [
        "MULTI",
        "SET a 1",
        "SET b 1",
        "EXEC",
        "GET a",
        "EXEC",
        // A command that is refused ends the transaction.
        "MULTI",
        "MSET a 1 b 1",
        "SET a 1",
        "EXEC",
        "GET a",
        // What is not queued any more does not count.
        "MULTI",
        "SET a 1",
        "NOPE",
        "SET b 1",
        "EXEC",
        "GET a",
        "MULTI",
        "SET a 1",
        "GET a",
        "PING",
        "DEL {a}2",
        "EXEC",
        "MULTI",
        "SELECT 1",
        "SET a 2",
        "EXEC",
        "GET a",
        "WATCH b",
        "MULTI",
        "SET a 3",
        "EXEC",
        "GET a",
        "MULTI",
        "EVAL return 1 a",
        "DISCARD",
    ];
    for line in lines {
        both(&mut a, &mut b, line);
    }
    let dirty = |conn: &mut Conn, server: &Server| {
        conn.must("WATCH a");
        server.connect().must("SET a dirty");
        ["MULTI", "SET a 1", "SET b 1", "EXEC"].map(|line| conn.cmd(line))
    };
    assert_eq!(dirty(&mut a, &ours), dirty(&mut b, &theirs));
}

fn eval(conn: &mut Conn, script: &str, keys: &[&str]) -> Value {
    let count = keys.len().to_string();
    let mut command = vec!["EVAL", script, &count];
    command.extend_from_slice(keys);
    conn.call(&command)
}

const GET_BOTH: &str = "redis.call('GET', 'a') return redis.call('GET', 'b')";

/// Redis 7.0 has other texts for two of these errors.
#[test]
fn scripts_with_flags_stay_in_one_slot() {
    let server = node(&[]);
    let mut conn = server.connect();
    conn.must("SET a 1");
    conn.must("SET b 2");
    let old = eval(&mut conn, GET_BOTH, &[]);
    assert_eq!(old, Value::bulk("2"));
    assert_eq!(eval(&mut conn, GET_BOTH, &["a"]), Value::bulk("2"));
    let mget = eval(&mut conn, "return redis.call('MGET', 'a', 'b')", &["a"]);
    let text = mget.error().unwrap();
    let expected = "ERR Command 'mget' in script attempted to access keys that don't hash to the \
                    same slot script: ";
    assert!(text.starts_with(expected), "{text}");
    let other = "ERR Script attempted to access keys that do not hash to the same slot script: ";
    let flagged = format!("#!lua\n{GET_BOTH}");
    for keys in [&[][..], &["a"], &["b"]] {
        let text = eval(&mut conn, &flagged, keys).error().unwrap();
        assert!(text.starts_with(other), "{text}");
    }
    let allowed = format!("#!lua flags=allow-cross-slot-keys\n{GET_BOTH}");
    for keys in [&[][..], &["a"], &["b"]] {
        assert_eq!(eval(&mut conn, &allowed, keys), Value::bulk("2"));
    }
    // The keys that it declares are in one slot all the same.
    let text = eval(&mut conn, &allowed, &["a", "b"]).error().unwrap();
    assert_eq!(text, CROSS);
    let stays_out = "#!lua flags=no-cluster\nreturn 1";
    let text = eval(&mut conn, stays_out, &[]).error().unwrap();
    assert_eq!(
        text,
        "ERR Can not run script on cluster, 'no-cluster' flag is set."
    );
    let caught = eval(&mut conn, "return redis.pcall('MGET', 'a', 'b')", &[]);
    assert!(caught.error().is_some(), "{caught:?}");
}

#[test]
fn functions_stay_in_one_slot() {
    let server = node(&[]);
    let mut conn = server.connect();
    conn.must("MSET a{t} 1 b{t} 2");
    let library = "#!lua name=l\n\
        local function get(keys, args) return redis.call('GET', args[1]) end\n\
        redis.register_function('strict', get)\n\
        redis.register_function{function_name='free', callback=get, flags={'allow-cross-slot-keys'}}\n\
        redis.register_function{function_name='out', callback=get, flags={'no-cluster'}}";
    assert_eq!(conn.call(&["FUNCTION", "LOAD", library]), Value::bulk("l"));
    assert_eq!(conn.cmd("FCALL strict 1 a{t} b{t}"), Value::bulk("2"));
    let other =
        "ERR Script attempted to access keys that do not hash to the same slot script: strict";
    let text = conn.cmd("FCALL strict 1 a{t} c").error().unwrap();
    assert!(text.starts_with(other), "{text}");
    assert_eq!(conn.cmd("FCALL free 1 a{t} c"), Value::NullBulk);
    assert_eq!(conn.cmd("FCALL strict 0 c"), Value::NullBulk);
    let text = conn.cmd("FCALL out 0 c").error().unwrap();
    assert_eq!(
        text,
        "ERR Can not run script on cluster, 'no-cluster' flag is set."
    );
    // In a transaction the script has the transaction's slot.
    conn.must("MULTI");
    conn.must("GET a{t}");
    conn.must("FCALL strict 0 c");
    let replies = conn.must("EXEC");
    let text = replies.items()[1].error().unwrap();
    assert!(text.starts_with(other), "{text}");
    assert_eq!(conn.cmd("FCALL strict 0 c"), Value::NullBulk);
}

/// As tools do that bring the data of a server without slots.
#[test]
fn a_client_may_ask_for_keys_of_several_slots() {
    let server = node(&[]);
    let mut conn = server.connect();
    conn.must("CLIENT CAPA nothing cross-slots");
    conn.must("MSET a 1 b 2");
    conn.must("MULTI");
    conn.must("SET a 3");
    conn.must("INCR b");
    assert_eq!(conn.must("EXEC").items(), [Value::ok(), Value::Int(3)]);
    let script = format!("#!lua\n{GET_BOTH}");
    assert_eq!(eval(&mut conn, &script, &["a", "b"]), Value::bulk("3"));
    assert_eq!(conn.must("MGET a b").items().len(), 2);
    conn.must("RESET");
    assert_eq!(conn.cmd("MGET a b").error().as_deref(), Some(CROSS));
}

#[test]
fn patterns_of_sort_stay_in_the_slot_of_its_key() {
    let server = node(&[]);
    let mut conn = server.connect();
    conn.must("RPUSH {x}l 2 1");
    conn.must("MSET {x}w_1 9 {x}w_2 1 {x}v_1 one {x}v_2 two");
    let denied = |option: &str| {
        format!(
            "ERR {option} option of SORT denied in Cluster mode when keys formed by the pattern \
             may be in different slots."
        )
    };
    for command in ["SORT", "SORT_RO"] {
        for (line, option) in [
            ("BY w_*", "BY"),
            ("BY {y}w_*", "BY"),
            ("GET w_*", "GET"),
            ("GET w", "GET"),
            ("BY {x}w_* GET {y}v_*", "GET"),
        ] {
            let error = conn.cmd(&format!("{command} {{x}}l {line}")).error();
            assert_eq!(error, Some(denied(option)), "{line}");
        }
        let sorted = conn.must(&format!("{command} {{x}}l BY {{x}}w_* GET # GET {{x}}v_*"));
        let words: Vec<String> = sorted.items().iter().map(Value::text).collect();
        assert_eq!(words, ["2", "two", "1", "one"]);
        conn.must(&format!("{command} {{x}}l BY nosort"));
    }
}
