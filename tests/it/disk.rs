//! A full disk, and a disk with I/O errors.
//!
//! Past faults: after one failed write every command with a key was refused until a restart,
//! which failed as well while the disk was full. A replica logged a wrong reason and tried
//! again every second.
//!
//! - this file: failing system calls, by a preloaded library (`faults.c`)
//! - `full`: a small tmpfs that is really full
//! - `quota`: a bound of the data, and eviction
//! - `replica`: replicas on either kind

mod full;
mod quota;
mod replica;

pub use full::SmallDisk;

use crate::support::{Conn, Server, Value, wait_for};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Whether a write was refused with MISCONF and may be repeated.
fn is_misconf(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"MISCONF"))
}

/// The library, compiled once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap().keep();
        let library = dir.join("faults.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/disk/faults.c");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .status()
            .expect("a C compiler, as RocksDB needs one");
        assert!(status.success(), "cc: {status}");
        library
    })
}

/// A server whose system calls can be made to fail.
pub struct Faulty {
    server: Server,
    rules: tempfile::NamedTempFile,
}

impl Faulty {
    pub fn start(flags: &[&str]) -> Faulty {
        let rules = tempfile::NamedTempFile::new().unwrap();
        let mut server = Server::prepare(flags);
        let path = |path: &Path| path.display().to_string();
        server.env.push(("LD_PRELOAD".into(), path(library())));
        server.env.push(("KEDIS_FAULTS".into(), path(rules.path())));
        server.spawn();
        Faulty { server, rules }
    }

    /// Replaces the rules: from now on only these calls fail.
    pub fn fail(&self, rules: &str) {
        std::fs::write(self.rules.path(), rules).unwrap();
    }

    pub fn connect(&self) -> Conn {
        self.server.connect()
    }
}

/// One kind of failure.
struct Kind {
    name: &'static str,
    /// `{}` is replaced by the number of failures.
    rules: &'static str,
    flags: &'static [&'static str],
}

const fn kind(name: &'static str, rules: &'static str) -> Kind {
    Kind {
        name,
        rules,
        flags: &[],
    }
}

const ALWAYS: &[&str] = &["--appendfsync", "always"];
/// A small memtable, so that tables are written soon.
const SMALL: &[&str] = &["--rocksdb.write-buffer-size", "64kb"];

/// Values of 1,000 bytes in small segments of the value log.
const LOGGED: &[&str] = &[
    "--value-log-min",
    "100",
    "--value-log-packed-min",
    "0",
    "--value-log-segment-size",
    "16kb",
];

const ENOSPC: &str = "28";
const EIO: &str = "5";
const EMFILE: &str = "24";

fn kinds() -> Vec<Kind> {
    let with = |flags, kind: Kind| Kind { flags, ..kind };
    vec![
        kind("no space for the log", "write .log ENOSPC {}"),
        kind("an error of the log", "write .log EIO {}"),
        with(ALWAYS, kind("no space, always", "write .log ENOSPC {}")),
        kind("a sync of the log", "sync .log EIO {}"),
        with(ALWAYS, kind("a sync, always", "sync .log EIO {}")),
        with(SMALL, kind("no space for a table", "write .sst ENOSPC {}")),
        with(SMALL, kind("a sync of a table", "sync .sst EIO {}")),
        with(
            SMALL,
            kind("no descriptor for a log", "open .log EMFILE {}"),
        ),
        with(
            SMALL,
            kind("no descriptor for a table", "open .sst EMFILE {}"),
        ),
        with(LOGGED, kind("a sync of values", "sync .values EIO {}")),
    ]
}

fn rules(kind: &Kind, count: &str) -> String {
    let numbers = [("ENOSPC", ENOSPC), ("EIO", EIO), ("EMFILE", EMFILE)];
    let rules = numbers
        .iter()
        .fold(kind.rules.to_owned(), |rules, (name, number)| {
            rules.replace(name, number)
        });
    rules.replace("{}", count)
}

/// Writes until one is refused; returns the keys that were acknowledged.
fn write_until_refused(conn: &mut Conn, prefix: &str, name: &str) -> Vec<String> {
    let value = "v".repeat(1000);
    let mut acknowledged = Vec::new();
    wait_for(&format!("{name}: a refusal"), || {
        let key = format!("{prefix}{}", acknowledged.len());
        let reply = conn.cmd(&format!("SET {key} {value}"));
        if reply == Value::ok() {
            acknowledged.push(key);
            return false;
        }
        assert!(is_misconf(&reply), "{name}: {reply:?}");
        true
    });
    acknowledged
}

fn all_there(conn: &mut Conn, keys: &[String], name: &str) {
    for key in keys {
        assert_eq!(
            conn.must(&format!("EXISTS {key}")),
            Value::Int(1),
            "{name}: {key}"
        );
    }
}

/// While the disk fails, reads succeed on the same connection; afterwards writes succeed.
/// Acknowledged keys are there, also after a kill.
#[test]
fn writes_come_back_by_themselves_after_any_error() {
    for kind in kinds() {
        let name = kind.name;
        println!("{name}");
        let mut faulty = Faulty::start(kind.flags);
        let mut conn = faulty.connect();
        conn.must("SET before 1");
        faulty.fail(&rules(&kind, "-1"));
        let acknowledged = write_until_refused(&mut conn, "a", name);
        for _ in 0..3 {
            assert_eq!(
                conn.must("GET before"),
                Value::Bulk(b"1".to_vec()),
                "{name}"
            );
        }
        if kind.flags != ALWAYS {
            all_there(&mut conn, &acknowledged, name);
            conn.must("DBSIZE");
        }
        assert!(is_misconf(&conn.cmd("SET more 1")), "{name}");
        faulty.fail("");
        wait_for(&format!("{name}: writes"), || {
            let reply = conn.cmd("SET after 1");
            reply == Value::ok() || !is_misconf(&reply) && panic!("{name}: {reply:?}")
        });
        all_there(&mut conn, &acknowledged, name);
        let more = conn.must("SET last 1");
        assert_eq!(more, Value::ok(), "{name}");
        let size = conn.must("DBSIZE");
        faulty.server.kill9();
        faulty.server.spawn();
        let mut conn = faulty.connect();
        all_there(&mut conn, &acknowledged, name);
        assert_eq!(conn.must("DBSIZE"), size, "{name}");
        assert_eq!(
            conn.must("EXISTS before after last"),
            Value::Int(3),
            "{name}"
        );
    }
}

/// A single error may refuse writes, which resume without intervention.
#[test]
fn one_error_is_over_at_once() {
    for kind in kinds() {
        let name = kind.name;
        println!("{name}");
        let faulty = Faulty::start(kind.flags);
        let mut conn = faulty.connect();
        faulty.fail(&rules(&kind, "1"));
        let value = "v".repeat(1000);
        let mut keys = 0;
        for n in 0..400 {
            wait_for(&format!("{name}: writes"), || {
                let reply = conn.cmd(&format!("SET key{n} {value}"));
                assert!(
                    reply == Value::ok() || is_misconf(&reply),
                    "{name}: {reply:?}"
                );
                reply == Value::ok()
            });
            keys += 1;
        }
        assert_eq!(conn.must("DBSIZE"), Value::Int(keys), "{name}");
        let log = faulty.server.log();
        let warnings = log.matches("Writes are refused (MISCONF)").count();
        assert!(warnings <= 2, "{name}: {warnings} warnings");
    }
}

/// A value that the value log cannot take is refused, and leaves nothing. What is short is written.
#[test]
fn values_that_cannot_be_written_are_refused() {
    for (name, rule) in [
        ("no space", "write .values ENOSPC -1"),
        ("an error", "write .values EIO -1"),
        ("no descriptor", "open .values EMFILE -1"),
    ] {
        println!("{name}");
        let mut faulty = Faulty::start(&[LOGGED, &["--enable-debug-command", "yes"]].concat());
        let mut conn = faulty.connect();
        faulty.fail(&rules(&kind(name, rule), ""));
        let mut written = Vec::new();
        // The last segment that was made still takes some.
        wait_for("a refusal", || {
            let key = format!("key{}", written.len());
            let reply = conn.cmd(&format!("SET {key} {}", "v".repeat(1000 + written.len())));
            if reply == Value::ok() {
                written.push(key);
                return false;
            }
            assert!(is_misconf(&reply), "{name}: {reply:?}");
            assert_eq!(conn.must(&format!("EXISTS {key}")), Value::Int(0));
            true
        });
        assert_eq!(conn.must("SET short value"), Value::ok(), "{name}");
        faulty.fail("");
        let long = "w".repeat(2000);
        assert_eq!(conn.must(&format!("SET after {long}")), Value::ok());
        for _ in 0..2 {
            let mut conn = faulty.connect();
            all_there(&mut conn, &written, name);
            assert_eq!(
                conn.must("GET after"),
                Value::Bulk(long.clone().into_bytes())
            );
            let report = conn.must("DEBUG KEDIS-CHECK").text();
            assert!(report.starts_with("keys: "), "{name}: {report}");
            faulty.server.kill9();
            faulty.server.spawn();
        }
    }
}

#[test]
fn values_that_cannot_be_read_are_reported() {
    let faulty = Faulty::start(&[LOGGED, &["--enable-debug-command", "yes"]].concat());
    let mut conn = faulty.connect();
    let value = "v".repeat(1000);
    for n in 0..100 {
        conn.must(&format!("SET key{n} {value}"));
    }
    // What the page cache has is read in another way.
    faulty.fail(&format!("read .values {EIO} -1"));
    let report = conn.cmd("DEBUG KEDIS-CHECK");
    assert!(matches!(&report, Value::Error(_)), "{report:?}");
    conn.must("SET key1 short");
    conn.must(&format!("SET key2 {value}"));
    assert_eq!(conn.must("STRLEN key3"), Value::Int(1000));
    faulty.fail("");
    let report = conn.must("DEBUG KEDIS-CHECK").text();
    assert!(report.starts_with("keys: "), "{report}");
    for n in 2..100 {
        let read = conn.must(&format!("GET key{n}"));
        assert_eq!(read, Value::Bulk(value.clone().into_bytes()));
    }
}

/// A refused EXEC leaves no part of itself, neither data nor binlog.
#[test]
fn what_was_refused_is_not_there_in_part() {
    let mut faulty = Faulty::start(&["--enable-debug-command", "yes"]);
    let mut conn = faulty.connect();
    conn.must("SET count 0");
    for round in 0..5 {
        // The library counts per rule text, so each round needs a rule of its own.
        let count = (round + 1).to_string();
        faulty.fail(&rules(&kind("", "write .log EIO {}"), &count));
        conn.must("MULTI");
        let value = "v".repeat(100_000);
        conn.must(&format!("SET big{round} {value}"));
        conn.must("INCR count");
        conn.must("SADD set a b c");
        let reply = conn.cmd("EXEC");
        assert!(!matches!(reply, Value::Array(_)), "{reply:?}");
        let mut again = faulty.connect();
        assert_eq!(
            again.must("GET count"),
            Value::Bulk(round.to_string().into_bytes())
        );
        assert_eq!(again.must(&format!("EXISTS big{round}")), Value::Int(0));
        faulty.fail("");
        wait_for("writes", || {
            again.cmd("INCR count") == Value::Int(round + 1)
        });
        if round % 2 == 1 {
            faulty.server.kill9();
            faulty.server.spawn();
        }
        conn = faulty.connect();
        assert_eq!(
            conn.must("GET count"),
            Value::Bulk((round + 1).to_string().into_bytes())
        );
        conn.must("DEBUG KEDIS-CHECK");
    }
}

/// A read error affects only the client that reads; one in a compaction does not stop reads
/// for good.
#[test]
fn reads_that_fail_stop_nothing() {
    let mut faulty = Faulty::start(SMALL);
    let value = "v".repeat(1000);
    let mut conn = faulty.connect();
    for n in 0..2000 {
        conn.must(&format!("SET key{n} {value}"));
    }
    // After a start, reads come from the disk.
    faulty.server.terminate();
    faulty.server.spawn();
    let mut conn = faulty.connect();
    faulty.fail(&format!("read .sst {EIO} -1"));
    let reply = conn.cmd("GET key1");
    assert!(matches!(&reply, Value::Error(_)), "{reply:?}");
    // A new table is read after it is written, so writes may be refused as well.
    for n in 0..500 {
        let reply = conn.cmd(&format!("SET more{n} {value}"));
        assert!(reply == Value::ok() || is_misconf(&reply), "{reply:?}");
    }
    faulty.fail("");
    assert!(matches!(conn.must("GET key1"), Value::Bulk(_)));
    for n in 0..500 {
        let set = format!("SET more{n} {value}");
        wait_for("writes", || conn.cmd(&set) == Value::ok());
    }
    assert_eq!(conn.must("DBSIZE"), Value::Int(2500));
}
