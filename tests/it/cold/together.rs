//! What several commands need is read together, and no key is locked meanwhile.

use super::{COLD, chilled, delay, fill, reads_of_io_threads};
use crate::support::{Conn, Server, Value, args, wait_for};

/// Collections of each type.
const COUNT: usize = 50;

/// Collections that are not in memory. Each has more than a block, and none is packed.
fn collections() -> Server {
    chilled(COLD, |conn| {
        fill(conn, 2000);
        let padding = "p".repeat(60);
        let mut lines = Vec::new();
        for n in 0..COUNT {
            for i in 0..100 {
                lines.push(format!("HSET hash{n} f{i} {padding}"));
                lines.push(format!("RPUSH list{n} {i}{padding}"));
                lines.push(format!("SADD set{n} {i}{padding}"));
                lines.push(format!("ZADD zset{n} {i} {i}{padding}"));
                lines.push(format!("XADD stream{n} 1-{} f {padding}", i + 1));
            }
        }
        for some in lines.chunks(1000) {
            let some: Vec<_> = some.iter().map(|line| args(line)).collect();
            let replies = conn.pipeline(&some);
            assert!(replies.iter().all(|reply| reply.error().is_none()));
        }
    })
}

fn rounds(conn: &mut Conn) -> u64 {
    conn.info_number("rocksdb", "total_parked_commands")
}

/// How often requests wait for reads until all of these have run.
fn rounds_of(server: &mut Server, lines: &[String]) -> u64 {
    // Nothing of the requests before is in memory.
    server.restart();
    let mut conn = server.connect();
    let lines: Vec<_> = lines.iter().map(|line| args(line)).collect();
    let replies = conn.pipeline(&lines);
    for reply in replies {
        assert!(reply.error().is_none(), "{reply:?}");
        if let Value::Array(replies) = reply {
            assert!(replies.iter().all(|reply| reply.error().is_none()));
        }
    }
    assert_eq!(reads_of_io_threads(&mut conn), 0);
    rounds(&mut conn)
}

/// The keys of the commands behind one that waited were read with its own, but not what they needed
/// of their collections: fifty commands waited fifty times.
#[test]
fn what_requests_need_of_collections_is_read_together() {
    let mut server = collections();
    for line in [
        "HGET hash# f50",
        "HGETALL hash#",
        "HSET hash# f7 x",
        "LRANGE list# 0 -1",
        "LPOP list#",
        "LINDEX list# 3",
        "SMEMBERS set#",
        "SPOP set#",
        "ZRANGE zset# 0 -1",
        "ZADD zset# INCR 1 m",
        "XRANGE stream# - + COUNT 5",
    ] {
        let lines: Vec<String> = (0..COUNT)
            .map(|n| line.replace('#', &n.to_string()))
            .collect();
        let took = rounds_of(&mut server, &lines);
        assert!((1..=10).contains(&took), "{took} rounds for {line}");
        let unit: Vec<String> = [&["MULTI".to_owned()], &lines[..], &["EXEC".to_owned()]].concat();
        let took = rounds_of(&mut server, &unit);
        assert!((1..=10).contains(&took), "{took} rounds for {line} in EXEC");
    }
    let keys = |of: &str| {
        let keys: Vec<String> = (0..COUNT).map(|n| format!("{of}{n}")).collect();
        keys.join(" ")
    };
    for line in [
        format!("SUNION {}", keys("set")),
        format!("SUNIONSTORE union {}", keys("set")),
        format!("ZUNION {COUNT} {}", keys("zset")),
        format!(
            "XREAD COUNT 3 STREAMS {} {}",
            keys("stream"),
            "0 ".repeat(COUNT).trim()
        ),
    ] {
        let took = rounds_of(&mut server, std::slice::from_ref(&line));
        assert!((1..=10).contains(&took), "{took} rounds for {line}");
    }
}

/// A request that still lacked rows after some rounds waited for all others with its keys locked.
#[test]
fn no_key_is_locked_while_a_worker_has_rows_read() {
    let server = chilled(COLD, |conn| fill(conn, 4000));
    let (mut hot, mut cold) = (server.connect(), server.connect());
    hot.must("SET hot 1");
    let mut n = 0;
    let script = "redis.call('incr',KEYS[1]) \
        for i=1,12 do redis.call('strlen','key:'..i*ARGV[1]) end \
        return redis.call('set','done','1')";
    for line in [
        vec!["EVAL", script, "1", "hot", "300"],
        // It names no key, so it has all of them.
        vec!["EVAL", &script.replace("KEYS[1]", "'hot'"), "0", "301"],
    ] {
        let before = rounds(&mut hot);
        hot.must("DEL done");
        delay(&mut hot, 100);
        cold.send(&line).unwrap();
        // More than an IO thread makes.
        wait_for("reads for a worker", || rounds(&mut hot) >= before + 6);
        assert!(hot.must("INCR hot").int() > n);
        assert_eq!(hot.must("EXISTS done"), Value::Int(0));
        n = hot.must("GET hot").text().parse().unwrap();
        delay(&mut hot, 0);
        assert_eq!(cold.read().unwrap(), Value::ok());
    }
    assert_eq!(hot.must("GET hot"), Value::bulk("5"));
    assert_eq!(reads_of_io_threads(&mut hot), 0);
}
