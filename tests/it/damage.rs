//! Files that the disk has lost or changed. Each test damages a fresh database.
//!
//! Past faults: with one changed byte in the write-ahead log the server started without
//! thousands of acknowledged keys; without the log it started without a message. A directory
//! without `CURRENT` was taken for an empty one, and its tables were removed.

mod repair;
mod values;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::server::free_port;
use crate::support::{Conn, DEADLINE, Server, Value, wait_for, wait_within};
use repair::{IN_TABLES, repair};

const KEYS: i64 = 2000;

/// The database of a server.
fn db(server: &Server) -> PathBuf {
    server.data_dir().join("kedis-db")
}

fn with_ending(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|end| end == ending))
        .collect();
    files.sort();
    files
}

/// The largest file of the write-ahead log.
fn log(dir: &Path) -> PathBuf {
    let logs = with_ending(dir, "log");
    let size = |path: &PathBuf| path.metadata().unwrap().len();
    logs.into_iter().max_by_key(size).unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

fn flip_middle(path: &Path) {
    flip(path, path.metadata().unwrap().len() as usize / 2);
}

fn set_keys(conn: &mut Conn, from: i64, to: i64) {
    for n in from..to {
        conn.must(&format!("SET key{n} value{n}"));
    }
}

/// Allows DEBUG KEDIS-CHECK.
const DEBUG: &[&str] = &["--enable-debug-command", "yes"];

/// A killed server, whose keys are only in the log.
fn killed(flags: &[&str]) -> Server {
    let mut server = Server::start(&[DEBUG, flags].concat());
    set_keys(&mut server.connect(), 0, KEYS);
    server.kill9();
    server
}

/// A stopped server, whose keys are only in tables.
fn stopped(flags: &[&str]) -> Server {
    let mut server = Server::start(&[DEBUG, flags].concat());
    set_keys(&mut server.connect(), 0, KEYS);
    server.terminate();
    server
}

fn run(server: &Server, flags: &[&str]) -> Output {
    let port = free_port();
    run_to_its_end(Server::command(&server.data_dir(), *port, flags))
}

fn run_to_its_end(mut command: Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    if !wait_within(DEADLINE, || child.try_wait().unwrap().is_some()) {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("it started: {command:?}");
    }
    child.wait_with_output().unwrap()
}

/// The start is refused with a message that contains `words`, and changes no file.
fn assert_refused(server: &Server, words: &[&str]) {
    let before = contents(&db(server));
    for _ in 0..2 {
        let output = run(server, &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "it started: {text}");
        for word in words {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
    }
    assert!(
        contents(&db(server)) == before,
        "the refusal changed something"
    );
}

/// All files in a directory and in those below it.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let found = entries.flat_map(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_below(&path),
            false => vec![path],
        }
    });
    found.collect()
}

fn name_of(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// All files except RocksDB's info log.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file() && !name_of(path).starts_with("LOG"));
    let mut all: Vec<_> = files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    all.sort();
    all
}

fn assert_has_keys(server: &Server, keys: i64) {
    let mut conn = server.connect();
    assert_eq!(conn.must("DBSIZE"), Value::Int(keys));
    for n in 0..keys {
        let value = Value::bulk(format!("value{n}"));
        assert_eq!(conn.must(&format!("GET key{n}")), value);
    }
    assert_sound(&mut conn);
}

fn assert_sound(conn: &mut Conn) {
    conn.must("DEBUG KEDIS-CHECK");
}

const ACCEPT: &str = "--accept-data-loss";

/// Starts the server once with `--accept-data-loss`; returns the number of keys that are
/// left, a prefix of those that were written.
fn accept_loss(server: &mut Server) -> i64 {
    server.flags.push(ACCEPT.into());
    server.spawn();
    server.flags.pop();
    let keys = server.connect().must("DBSIZE").int();
    assert!(keys < KEYS, "{keys}");
    assert_has_keys(server, keys);
    set_keys(&mut server.connect(), keys, KEYS);
    server.kill9();
    server.spawn();
    assert_has_keys(server, KEYS);
    keys
}

#[test]
fn a_log_with_a_changed_byte_is_not_started_over() {
    for flags in [
        &[][..],
        &["--appendfsync", "always"],
        &["--appendfsync", "no"],
    ] {
        let mut server = killed(flags);
        let log = log(&db(&server));
        flip_middle(&log);
        let name = log.file_name().unwrap().to_str().unwrap();
        assert_refused(&server, &[name, "lost a part", "backup", ACCEPT]);
        let kept = accept_loss(&mut server);
        assert!(kept > 0, "what stood before the damage is there");
        let lost = db(&server).join("lost").join(name);
        assert!(lost.exists(), "what was cut off is kept");
    }
}

#[test]
fn a_changed_byte_at_the_very_end_of_the_log_is_noticed() {
    let server = killed(&[]);
    let log = log(&db(&server));
    let len = log.metadata().unwrap().len() as usize;
    flip(&log, len - 1);
    assert_refused(&server, &["lost a part"]);
    flip(&log, len - 1);
    // The length of the last record.
    let bytes = fs::read(&log).unwrap();
    let last = bytes.len() - bytes.len() % 32768;
    assert!(last > 0);
    let mut at = last;
    while at + 7 + usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]])) < bytes.len() {
        at += 7 + usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
    }
    flip(&log, at + 5);
    assert_refused(&server, &["lost a part"]);
}

#[test]
fn a_log_that_is_gone_or_cut_is_missed() {
    let mut server = killed(&[]);
    let log = log(&db(&server));
    let whole = fs::read(&log).unwrap();
    fs::remove_file(&log).unwrap();
    assert_refused(&server, &["is missing", ACCEPT]);
    fs::write(&log, &whole[..whole.len() - 1]).unwrap();
    assert_refused(&server, &["lost a part"]);
    fs::write(&log, &whole).unwrap();
    server.spawn();
    assert_has_keys(&server, KEYS);
    server.kill9();
    let log = self::log(&db(&server));
    assert!(
        log.metadata().unwrap().len() < 1000,
        "written out at the start"
    );
    server.spawn();
    set_keys(&mut server.connect(), 0, 10);
    server.kill9();
    fs::remove_file(self::log(&db(&server))).unwrap();
    assert_refused(&server, &["is missing"]);
    server.flags.push(ACCEPT.into());
    server.spawn();
    assert_has_keys(&server, KEYS);
}

/// Incomplete bytes after the last record, as left by a kill or a crash of the machine, are no
/// damage.
#[test]
fn a_torn_tail_is_no_damage() {
    let mut server = killed(&[]);
    for tail in [
        &[0; 100_000][..],
        &[1, 2, 3],
        &[9, 9, 9, 9, 200, 0, 1, 5, 5, 5],
        &[0, 0, 0, 0, 0, 0, 0, 0, 7],
    ] {
        let log = log(&db(&server));
        let mut bytes = fs::read(&log).unwrap();
        bytes.extend_from_slice(tail);
        fs::write(&log, bytes).unwrap();
        server.spawn();
        assert_has_keys(&server, KEYS);
        // The log must not be empty for the next round.
        server.connect().must("SET key0 value0");
        server.kill9();
    }
}

/// Changes the boot id in the marks of the log, as after a restart of the machine.
fn restart_machine(server: &Server) {
    let marks = db(server).join("WAL-MARKS");
    let mut bytes = fs::read(&marks).unwrap();
    let slots = bytes[32..].chunks_exact_mut(32);
    for slot in slots.filter(|slot| slot[..8] != [0; 8]) {
        slot[8..16].fill(0x55);
    }
    fs::write(&marks, bytes).unwrap();
}

/// RocksDB refuses a manifest that has zeros in its last record.
#[test]
fn what_was_not_synced_of_a_manifest_is_no_damage() {
    for is_repaired in [false, true] {
        let mut server = killed(&[]);
        let current = fs::read_to_string(db(&server).join("CURRENT")).unwrap();
        let manifest = db(&server).join(current.trim_end());
        restart_machine(&server);
        let whole = fs::read(&manifest).unwrap();
        // A record of 100 bytes, of which only the header has reached the disk.
        let torn = [&whole[..], &[1, 2, 3, 4, 100, 0, 1], &[0; 100]].concat();
        fs::write(&manifest, torn).unwrap();
        if is_repaired {
            assert!(repair(&server).contains("the database is whole"));
        }
        server.spawn();
        assert_has_keys(&server, KEYS);
    }
}

#[test]
fn after_a_crash_of_the_machine_only_what_was_synced_must_be_there() {
    let mut server = Server::start(&[DEBUG, &["--appendfsync", "no"]].concat());
    let mut conn = server.connect();
    set_keys(&mut conn, 0, 1000);
    conn.must("CONFIG SET appendfsync always");
    conn.must("SET synced yes");
    conn.must("CONFIG SET appendfsync no");
    set_keys(&mut conn, 1000, KEYS);
    server.kill9();
    restart_machine(&server);
    let log = log(&db(&server));
    let len = log.metadata().unwrap().len() as usize;
    let whole = fs::read(&log).unwrap();
    flip(&log, len / 4);
    assert_refused(&server, &["lost a part"]);
    // A page of the part that was not synced has not reached the disk.
    let mut torn = whole;
    torn[len * 3 / 4..][..4096].fill(0);
    fs::write(&log, torn).unwrap();
    server.spawn();
    let mut conn = server.connect();
    let keys = conn.must("DBSIZE").int();
    assert!((1001..KEYS).contains(&keys), "{keys}");
    assert_eq!(conn.must("GET synced"), Value::bulk("yes"));
    assert_eq!(conn.must("GET key999"), Value::bulk("value999"));
    assert_sound(&mut conn);
}

#[test]
fn a_directory_that_was_a_database_is_not_taken_for_an_empty_one() {
    for prepare in [killed, stopped] {
        let mut server = prepare(&[]);
        let current = db(&server).join("CURRENT");
        let text = fs::read(&current).unwrap();
        fs::remove_file(&current).unwrap();
        assert_refused(&server, &["no CURRENT", "backup", "--repair"]);
        fs::write(&current, "").unwrap();
        assert_refused(&server, &["CURRENT is empty"]);
        fs::write(&current, "MANIFEST-999999\n").unwrap();
        assert_refused(&server, &["MANIFEST-999999", "is missing"]);
        fs::write(&current, "nonsense\n").unwrap();
        assert_refused(&server, &["names no manifest"]);
        fs::write(&current, text).unwrap();
        server.spawn();
        assert_has_keys(&server, KEYS);
    }
}

/// A server does not start on a directory with files of a database, and no `CURRENT`.
fn assert_misses_current(data: &Path) {
    let port = free_port();
    let output = run_to_its_end(Server::command(data, *port, &[]));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("no CURRENT"),
        "{text}"
    );
}

/// Any single file of a database is enough for a refusal.
#[test]
fn whatever_is_left_of_a_database_is_refused() {
    let server = stopped(&[]);
    let dir = db(&server);
    let files = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_left = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".sst") || name.ends_with(".log") || name.starts_with("MANIFEST-")
    };
    let files: Vec<PathBuf> = files.filter(is_left).collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let data = tempfile::tempdir().unwrap();
        let copy = data.path().join("kedis-db");
        fs::create_dir(&copy).unwrap();
        fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
        assert_misses_current(data.path());
        assert!(copy.join(file.file_name().unwrap()).exists());
    }
}

#[test]
fn an_empty_directory_is_one_also_if_a_file_system_or_a_start_left_something() {
    let mut server = Server::start(&[]);
    server.terminate();
    let dir = db(&server);
    let identity = fs::read(dir.join("IDENTITY")).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    fs::create_dir_all(dir.join("lost+found")).unwrap();
    fs::write(dir.join("LOCK"), "").unwrap();
    fs::write(dir.join("LOG"), "").unwrap();
    // The state after a kill during the first start, before the manifest is in use.
    fs::write(dir.join("IDENTITY"), identity).unwrap();
    fs::write(dir.join("MANIFEST-000001"), "").unwrap();
    fs::write(dir.join("000001.dbtmp"), "MANIFEST-000001\n").unwrap();
    server.spawn();
    server.connect().must("SET key 1");
}

#[test]
fn a_table_that_is_missing_or_cut_is_refused() {
    let mut server = stopped(&[]);
    let table = with_ending(&db(&server), "sst").pop().unwrap();
    let name = table.file_name().unwrap().to_str().unwrap().to_owned();
    let whole = fs::read(&table).unwrap();
    fs::remove_file(&table).unwrap();
    assert_refused(&server, &[&name, "is damaged", "--repair"]);
    fs::write(&table, &whole[..whole.len() / 2]).unwrap();
    assert_refused(&server, &[&name, "is damaged"]);
    fs::write(&table, whole).unwrap();
    server.spawn();
    assert_has_keys(&server, KEYS);
}

/// A manifest that was truncated at the end of a record was accepted, and the tables that it
/// no longer named were removed.
#[test]
fn a_manifest_that_is_cut_or_changed_is_refused() {
    let mut server = stopped(&[]);
    let current = fs::read_to_string(db(&server).join("CURRENT")).unwrap();
    let manifest = db(&server).join(current.trim_end());
    let whole = fs::read(&manifest).unwrap();
    flip_middle(&manifest);
    assert_refused(&server, &["is damaged"]);
    fs::write(&manifest, "").unwrap();
    assert_refused(&server, &["is empty"]);
    let mut end = 0;
    while end < whole.len() {
        if end > 0 {
            fs::write(&manifest, &whole[..end]).unwrap();
            assert_refused(&server, &["ends too early", "--repair"]);
        }
        let len = u16::from_le_bytes([whole[end + 4], whole[end + 5]]);
        end += 7 + usize::from(len);
    }
    fs::write(&manifest, whole).unwrap();
    server.spawn();
    assert_has_keys(&server, KEYS);
}

/// A copy without one of its files.
#[test]
fn a_half_copied_backup_is_refused() {
    let mut server = Server::start(values::SHORT_SEGMENTS);
    let mut conn = server.connect();
    conn.must("SELECT 1");
    values::set_values(&mut conn);
    conn.must("SELECT 0");
    set_keys(&mut conn, 0, KEYS / 2);
    conn.must("SAVE");
    server.restart();
    set_keys(&mut server.connect(), KEYS / 2, KEYS);
    server.connect().must("SAVE");
    let backup = server.data_dir().join("dump.rdb");
    server.terminate();
    let files = files_below(&backup);
    let needed = |path: &&PathBuf| {
        let name = name_of(path);
        let is_empty = path.metadata().unwrap().len() == 0;
        let others = ["IDENTITY", "WAL-MARKS", "VALUE-LOG"];
        !(is_empty || name.starts_with("OPTIONS-") || others.contains(&name))
    };
    let database = db(&server);
    let copy = |file: &PathBuf| {
        let to = database.join(file.strip_prefix(&backup).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    };
    for left_out in files.iter().filter(needed) {
        fs::remove_dir_all(&database).unwrap();
        files.iter().filter(|file| *file != left_out).for_each(copy);
        let output = run(&server, &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success(),
            "without {}: {text}",
            left_out.display()
        );
        assert!(
            text.contains("is damaged") || text.contains("lost a part"),
            "{text}"
        );
        // With the missing file the copy is complete.
        copy(left_out);
        server.spawn();
        assert_has_keys(&server, KEYS);
        values::assert_has_values(&server, &[]);
        server.terminate();
    }
}

/// The client gets the error, the log and INFO report it, and the connection stays open.
#[test]
fn a_read_of_a_changed_block_is_logged() {
    let mut server = Server::start(&[]);
    let mut conn = server.connect();
    set_keys(&mut conn, 0, KEYS);
    server.terminate();
    let name = rot(&db(&server));
    server.spawn();
    let mut conn = server.connect();
    assert_eq!(conn.info_text("storage", "storage_status"), "ok");
    let replies: Vec<Value> = (0..KEYS)
        .map(|n| conn.cmd(&format!("GET key{n}")))
        .collect();
    let errors = replies
        .iter()
        .filter(|reply| matches!(reply, Value::Error(_)));
    let errors = errors.count() as i64;
    assert!((1..KEYS).contains(&errors), "{errors} errors");
    for (n, reply) in replies.iter().enumerate() {
        match reply {
            Value::Error(text) => {
                let text = String::from_utf8_lossy(text);
                assert!(
                    text.contains("Corruption") && text.contains(&name),
                    "{text}"
                );
            }
            value => assert_eq!(*value, Value::bulk(format!("value{n}"))),
        }
    }
    assert_eq!(conn.must("PING"), Value::simple("PONG"));
    assert!(conn.info_number("storage", "storage_corruptions") >= errors as u64);
    assert_eq!(conn.info_text("storage", "storage_corrupt_files"), name);
    assert_eq!(conn.info_text("storage", "storage_status"), "corrupt");
    let log = server.log();
    let warnings = log
        .lines()
        .filter(|line| line.contains("data on the disk is corrupt"));
    let warnings: Vec<&str> = warnings.collect();
    assert!(
        warnings.len() == 1 && warnings[0].contains(&name),
        "{warnings:?}"
    );
}

/// Changes a byte of a block with rows of keys; returns the name of its table.
fn rot(dir: &Path) -> String {
    let table = table_of(dir, "ks0");
    flip(&table, 1000);
    name_of(&table).to_owned()
}

/// The tables of a column family.
fn tables_of(dir: &Path, family: &str) -> Vec<PathBuf> {
    // Its properties name the column family.
    let name = format!("name{family}").into_bytes();
    let holds_rows = |path: &PathBuf| match fs::read(path) {
        Ok(bytes) => bytes.windows(name.len()).any(|word| word == name),
        // A compaction has removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let tables = with_ending(dir, "sst").into_iter();
    tables.filter(holds_rows).collect()
}

/// The largest table of a column family.
fn table_of(dir: &Path, family: &str) -> PathBuf {
    let size = |path: &PathBuf| path.metadata().unwrap().len();
    let tables = tables_of(dir, family).into_iter();
    tables.max_by_key(size).unwrap()
}

/// After a crash of the machine the copy could be missing although SAVE had replied OK.
#[test]
fn a_copy_whose_directory_is_not_synced_is_no_copy() {
    for command in ["SAVE", "BGSAVE", "BGSAVE RDB"] {
        let server = Server::start_failing(&[], "before-dir-sync:1:error");
        let mut conn = server.connect();
        conn.must("SET key 1");
        let reply = conn.cmd(command);
        assert_eq!(
            matches!(reply, Value::Error(_)),
            command == "SAVE",
            "{reply:?}"
        );
        wait_for("the save", || {
            conn.info_number("persistence", "rdb_bgsave_in_progress") == 0
        });
        assert_eq!(
            conn.info_text("persistence", "rdb_last_bgsave_status"),
            "err"
        );
        conn.must("SAVE");
        assert_eq!(
            conn.info_text("persistence", "rdb_last_bgsave_status"),
            "ok"
        );
    }
}

/// One corrupt block stopped all writes permanently once a compaction read it.
#[test]
fn a_corrupt_table_is_set_aside_and_writes_continue() {
    // In one table of the first level, which each compaction of that level reads.
    const FIRST: i64 = 10_000;
    let flags = [
        IN_TABLES,
        &[
            "--rocksdb.write-buffer-size",
            "4mb",
            "--rocksdb.target-file-size",
            "1mb",
        ],
    ];
    let mut server = Server::start(&flags.concat());
    assert_eq!(fill(&mut server.connect(), 0, FIRST), 0);
    server.terminate();
    let table = rot(&db(&server));
    server.spawn();
    let mut conn = server.connect();
    let (mut keys, mut refused) = (FIRST, 0);
    let mut write_more = |conn: &mut Conn| {
        refused += fill(conn, keys, keys + 30_000);
        keys += 30_000;
    };
    let met = (0..40).any(|_| {
        write_more(&mut conn);
        conn.info_text("storage", "storage_tables_aside") == table
    });
    assert!(met, "no compaction meets it");
    // Enough to fill the first level several times.
    for _ in 0..6 {
        write_more(&mut conn);
    }
    assert!(refused < keys / 100, "{refused}");
    assert_eq!(conn.info_text("storage", "storage_status"), "corrupt");
    assert!(server.log().contains("is put aside"));
    let mut errors = 0;
    for n in 0..FIRST {
        match conn.cmd(&format!("STRLEN {}", name(n))) {
            Value::Error(text) => {
                errors += 1;
                let text = String::from_utf8_lossy(&text);
                assert!(text.contains(&table), "{text}");
            }
            // An existing key is never reported as missing.
            reply => assert_eq!(reply, Value::Int(200)),
        }
    }
    assert!((1..1000).contains(&errors), "{errors}");
    conn.must("BGREWRITEAOF");
    server.terminate();
    let output = repair(&server);
    assert!(output.contains("lost: DB 0"), "{output}");
    server.spawn();
    let mut conn = server.connect();
    // The lost range includes keys that could still be read one by one.
    let lost = keys - conn.must("DBSIZE").int();
    assert!((errors + refused..keys / 100).contains(&lost), "{lost}");
    assert_sound(&mut conn);
}

/// Names in an order that is scattered over the key range.
fn name(n: i64) -> String {
    format!("{:08}", n * 7919 % 100_000_000)
}

/// Sets keys to incompressible values; returns how many writes were refused because of
/// corruption.
fn fill(conn: &mut Conn, from: i64, to: i64) -> i64 {
    let mut refused = 0;
    let mut dice = fastrand::Rng::with_seed(from as u64);
    for first in (from..to).step_by(1000) {
        let commands: Vec<Vec<Vec<u8>>> = (first..first + 1000)
            .map(|n| {
                let value = std::iter::repeat_with(|| dice.u8(..)).take(200).collect();
                vec![b"SET".to_vec(), name(n).into_bytes(), value]
            })
            .collect();
        for reply in conn.pipeline(&commands) {
            if reply != Value::ok() {
                assert!(format!("{reply:?}").contains("Corruption"), "{reply:?}");
                refused += 1;
            }
        }
    }
    refused
}
