//! Long names, members and values: what commands make of them, at once and when it is written to
//! tables, stays within the budget, or the command is refused. The server goes on in either case.

use super::noise;
use crate::support::conn::encode;
use crate::support::{Conn, Server, Value, args, wait_within};
use std::fs;
use std::time::Duration;

const BUDGET: u64 = 256 << 20;
/// A member of 33 MB took 1.3 of the budget when its table was written, two long names of a request
/// up to 5.4.
const MOST_PERCENT: u64 = 110;

/// Stands for the long argument.
const LONG: &str = "<long>";
/// Stands for a member that makes rows of its sorted set, and has the beginning of the argument.
const BEGINNING: &str = "<4mb>";
const BEGINNING_BYTES: usize = 4 << 20;

/// Commands with one long argument, after others that prepare a key.
const COMMANDS: &[(&[&str], &str)] = &[
    (&[], "SET k <long>"),
    (&[], "SET <long> v"),
    (&[], "SET <long> v EX 1000"),
    (&["SET k v"], "RENAME k <long>"),
    (&[], "APPEND k <long>"),
    (&[], "SADD k <long>"),
    (&["SADD k m"], "SMOVE k other <long>"),
    (&[], "HSET k <long> v"),
    (&[], "HSET k f <long>"),
    (&[], "HSETEX k EX 1000 FIELDS 1 <long> v"),
    (&[], "RPUSH k <long>"),
    (&["RPUSH k m"], "LINSERT k BEFORE m <long>"),
    (&[], "ZADD k 1 <long>"),
    (&[], "ZINCRBY k 1 <long>"),
    (&[], "GEOADD k 1 1 <long>"),
    (&["ZADD k 1 m"], "ZRANK k <long>"),
    (&["ZADD k 1 m 1 n"], "ZLEXCOUNT k [<long> +"),
    (ROWS, "ZLEXCOUNT k [<long> +"),
    (ROWS, "ZRANGEBYLEX k [<long> +"),
    (ROWS, "ZRANGEBYLEX k - (<long> LIMIT 0 1"),
    (ROWS, "ZREVRANGEBYLEX k + [<long>"),
    (ROWS, "ZRANGE k [<long> + BYLEX"),
    (ROWS, "ZRANGESTORE d k [<long> + BYLEX"),
    (ROWS, "ZREMRANGEBYLEX k [<long> +"),
    (&[], "XADD k * f <long>"),
    (&[], "XGROUP CREATE k <long> 0 MKSTREAM"),
    (GROUP, "XGROUP CREATECONSUMER k g <long>"),
    (GROUP, "XREADGROUP GROUP g <long> STREAMS k >"),
    (GROUP, "XREADGROUP GROUP g <long> NOACK STREAMS k >"),
    (READ, "XCLAIM k g <long> 0 1-1"),
    (READ, "XAUTOCLAIM k g <long> 0 0"),
    (&[], "ECHO <long>"),
    (&[], "EVAL redis.call('sadd',KEYS[1],ARGV[1]) 1 k <long>"),
];
const ROWS: &[&str] = &["ZADD k 1 <4mb>"];
const GROUP: &[&str] = &["XGROUP CREATE k g 0 MKSTREAM", "XADD k 1-1 f v"];
const READ: &[&str] = &[
    "XGROUP CREATE k g 0 MKSTREAM",
    "XADD k 1-1 f v",
    "XREADGROUP GROUP g c STREAMS k >",
];

fn call(conn: &mut Conn, args: &[Vec<u8>]) -> Value {
    let mut wire = Vec::new();
    encode(&mut wire, args);
    // A request that never fits is refused, and the connection closed, before all of it is sent.
    let _ = conn.send_raw(&wire);
    conn.read().unwrap()
}

/// The words of a line, with the long argument in place.
fn with_long(line: &str, long: &[u8]) -> Vec<Vec<u8>> {
    with(line, LONG, long)
}

fn with(line: &str, mark: &str, long: &[u8]) -> Vec<Vec<u8>> {
    let words = line.split(' ').map(|word| match word.split_once(mark) {
        Some((before, _)) => [before.as_bytes(), long].concat(),
        None => word.as_bytes().to_vec(),
    });
    words.collect()
}

/// Checks the peak memory so far, after memtables are written to tables.
fn within_budget(server: &Server, what: &str) {
    server.connect().must("SAVE");
    let percent = server.peak_rss() * 100 / BUDGET;
    println!("{what}: {percent} % of the budget");
    assert!(
        percent <= MOST_PERCENT,
        "{what} took {percent} % of the budget"
    );
}

/// Whether a command did what it should; otherwise it must be refused for want of memory.
fn is_done(reply: &Value, what: &str) -> bool {
    let error = reply.error().unwrap_or_default();
    assert!(
        error.is_empty() || error.starts_with("OOM "),
        "{what}: {error}"
    );
    error.is_empty()
}

#[test]
fn a_long_argument_stays_within_the_budget_or_is_refused() {
    let budget = BUDGET.to_string();
    for (bytes, must_fit) in [(4 << 20, true), (30 << 20, false), (48 << 20, false)] {
        let long = noise(bytes);
        for (before, line) in COMMANDS {
            // What is stored is refused before that.
            if bytes > 30 << 20 && !line.contains("LEX") {
                continue;
            }
            let server = Server::start(&["--maxmemory", &budget]);
            let mut conn = server.connect();
            for line in *before {
                let words = with(line, BEGINNING, &long[..BEGINNING_BYTES]);
                assert_eq!(call(&mut conn, &words).error(), None, "{line}");
            }
            let what = format!("{line} of {} MB", bytes >> 20);
            let done = is_done(&call(&mut conn, &with_long(line, &long)), &what);
            assert!(done || !must_fit, "{what} is refused");
            within_budget(&server, &what);
            server.connect().must("SET after v");
        }
    }
}

const ELEMENTS: usize = 8;
const ELEMENT_BYTES: usize = 8 << 20;

/// Commands on a key with long elements, by the command that adds one. Those that remove elements
/// come last.
const OF_STORED: &[(&str, &[&str])] = &[
    (
        "SADD k <long>",
        &[
            "SUNIONSTORE d k none",
            "SINTERSTORE d k k",
            "SDIFFSTORE d k none",
            "ZUNIONSTORE d 1 k",
            "SORT k ALPHA STORE d",
            "COPY k d",
            "SORT k ALPHA",
            "SSCAN k 0",
            "SPOP k 7",
            "SPOP k",
        ],
    ),
    (
        "ZADD k 1 <long>",
        &[
            "ZUNIONSTORE d 1 k",
            "ZINTERSTORE d 2 k k",
            "ZDIFFSTORE d 2 k none",
            "ZRANGESTORE d k 0 -1",
            "SUNIONSTORE d none",
            "COPY k d",
            "ZUNION 1 k",
            "ZSCAN k 0",
            "BZMPOP 1 1 k MIN COUNT 7",
            "ZPOPMAX k 7",
            "ZPOPMIN k",
        ],
    ),
    (
        "RPUSH k <long>",
        &[
            "SORT k ALPHA STORE d",
            "COPY k d",
            "LMOVE k d LEFT RIGHT",
            "BLMPOP 1 1 k LEFT COUNT 6",
            "LPOP k 6",
            "LPOP k",
        ],
    ),
    (
        "HSET k <long> v",
        &["COPY k d", "HKEYS k", "HSCAN k 0", "HRANDFIELD k 7"],
    ),
    ("APPEND k <long>", &["COPY k d", "GETDEL k"]),
];

/// Sets the peak back to what is used now, once no compaction runs: that of rows of 8 MB takes 80 MB
/// besides the budget, as the manual says.
fn reset_peak(server: &Server, what: &str) {
    let mut conn = server.connect();
    let is_quiet = || conn.info_number("rocksdb", "running_compactions") == 0;
    assert!(wait_within(Duration::from_secs(60), is_quiet), "{what}");
    fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").unwrap();
}

#[test]
fn what_is_made_of_long_elements_stays_within_the_budget_or_is_refused() {
    for (add, lines) in OF_STORED {
        let server = Server::start(&["--maxmemory", "2gb"]);
        let mut conn = server.connect();
        for _ in 0..ELEMENTS {
            let added = call(&mut conn, &with_long(add, &noise(ELEMENT_BYTES)));
            assert_eq!(added.error(), None, "{add}");
        }
        conn.must("SAVE");
        conn.must(&format!("CONFIG SET maxmemory {BUDGET}"));
        let shrinks = || server.rss() < BUDGET * 2 / 3;
        assert!(wait_within(Duration::from_secs(30), shrinks), "{add}");
        for line in *lines {
            reset_peak(&server, line);
            let mut conn = server.connect();
            conn.send(&args(line)).unwrap();
            // A reply that is longer than what clients may have is not sent.
            match conn.read() {
                Ok(reply) => _ = is_done(&reply, line),
                Err(_) => println!("{line}: closed"),
            }
            within_budget(&server, line);
            server.connect().must("DEL d");
        }
    }
}
