//! What `--repair` saves of a damaged database, and what it says that is lost.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::{
    ACCEPT, DEBUG, KEYS, assert_has_keys, assert_sound, contents, db, flip, name_of, rot, run,
    run_to_its_end, set_keys, stopped, table_of, tables_of, with_ending,
};
use crate::support::server::free_port;
use crate::support::{Server, Value};

/// Runs `--repair`; returns its messages.
pub(super) fn repair(server: &Server) -> String {
    let output = run(server, &["--repair"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Keeps values in tables.
pub(super) const IN_TABLES: &[&str] = &["--enable-debug-command", "yes", "--value-log-min", "1gb"];
/// Bytes of a value that does not get smaller.
const LONG: usize = 200;

/// Sets [`KEYS`] keys with this prefix to random values of [`LONG`] bytes.
fn set_long_values(server: &Server, prefix: &str) {
    let mut dice = fastrand::Rng::with_seed(1);
    let commands: Vec<Vec<Vec<u8>>> = (0..KEYS)
        .map(|n| {
            let value = std::iter::repeat_with(|| dice.u8(..)).take(LONG).collect();
            vec![b"SET".to_vec(), format!("{prefix}{n}").into_bytes(), value]
        })
        .collect();
    let replies = server.connect().pipeline(&commands);
    assert!(replies.iter().all(|reply| *reply == Value::ok()));
}

/// How many of them are there.
fn count_long_values(server: &Server, prefix: &str) -> i64 {
    let keys = (0..KEYS).map(|n| vec![b"STRLEN".to_vec(), format!("{prefix}{n}").into_bytes()]);
    let found = server.connect().pipeline(&keys.collect::<Vec<_>>());
    let found = found
        .iter()
        .filter(|reply| **reply == Value::Int(LONG as i64));
    found.count() as i64
}

/// The table of DB 0 that is not among older ones.
fn table_of_new(server: &Server, older: &[PathBuf]) -> PathBuf {
    let mut new = tables_of(&db(server), "ks0");
    new.retain(|table| !older.contains(table));
    assert_eq!(new.len(), 1);
    new.remove(0)
}

#[test]
fn a_whole_database_needs_no_repair() {
    let mut server = stopped(&[]);
    assert!(repair(&server).contains("the database is whole"));
    server.spawn();
    assert_has_keys(&server, KEYS);
}

#[test]
fn a_repair_finds_the_manifest_again() {
    let mut server = stopped(&[]);
    let current = db(&server).join("CURRENT");
    let manifest = fs::read_to_string(&current).unwrap();
    for text in [None, Some(""), Some("MANIFEST-999999\n")] {
        match text {
            None => fs::remove_file(&current).unwrap(),
            Some(text) => fs::write(&current, text).unwrap(),
        }
        let output = repair(&server);
        assert!(output.contains("the database is whole"), "{output}");
        server.spawn();
        assert_has_keys(&server, KEYS);
        server.terminate();
    }
    // Without a manifest, a new one is made from the tables.
    fs::remove_file(&current).unwrap();
    for entry in fs::read_dir(db(&server)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("MANIFEST-") {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(!manifest.is_empty());
    let output = repair(&server);
    assert!(
        output.contains("lost: what the manifest alone knew"),
        "{output}"
    );
    server.spawn();
    assert_has_keys(&server, KEYS);
}

#[test]
fn a_repair_leaves_out_what_cannot_be_read_and_says_what() {
    let mut server = stopped(&[]);
    let table = rot(&db(&server));
    let output = repair(&server);
    assert!(output.contains("lost: DB 0: what stands from"), "{output}");
    assert!(output.contains(&table), "{output}");
    server.spawn();
    let mut conn = server.connect();
    let keys = conn.must("DBSIZE").int();
    assert!(
        (KEYS / 2..KEYS).contains(&keys),
        "one block is lost: {keys}"
    );
    assert_sound(&mut conn);
    assert_eq!(conn.info_text("storage", "storage_status"), "ok");
    conn.hello3();
    let found = (0..KEYS).filter(|n| {
        let reply = conn.must(&format!("GET key{n}"));
        assert!(reply == Value::Null || reply == Value::bulk(format!("value{n}")));
        reply != Value::Null
    });
    assert_eq!(found.count() as i64, keys);
    set_keys(&mut server.connect(), 0, KEYS);
    assert_has_keys(&server, KEYS);
}

/// All rows before the table used to be lost: RocksDB is at no key as long as it does not know the
/// next one of each table.
#[test]
fn a_repair_reads_what_is_before_a_table_that_begins_with_an_unreadable_block() {
    let mut server = Server::start(IN_TABLES);
    // The first table has the keys a… and z…. Those of the tables with m… and p… are between them.
    set_long_values(&server, "a");
    set_long_values(&server, "z");
    server.terminate();
    let mut tables = Vec::new();
    for prefix in ["m", "p"] {
        let before = with_ending(&db(&server), "sst");
        server.spawn();
        set_long_values(&server, prefix);
        server.terminate();
        let table = table_of_new(&server, &before);
        flip(&table, 1000);
        tables.push(table);
    }
    let output = repair(&server);
    for (table, prefix) in tables.iter().zip(["m", "p"]) {
        assert!(output.contains(name_of(table)), "{output}");
        let lost = format!("what stands from the key \"{prefix}0\" to the key \"{prefix}");
        assert!(output.contains(&lost), "{output}");
    }
    server.spawn();
    for whole in ["a", "z"] {
        assert_eq!(count_long_values(&server, whole), KEYS);
    }
    for damaged in ["m", "p"] {
        let lost = KEYS - count_long_values(&server, damaged);
        assert!((1..100).contains(&lost), "one block is lost: {lost}");
    }
    assert_sound(&mut server.connect());
}

/// All other tables stay as they are: RocksDB's own repair, which was used for that, builds a manifest of
/// what it finds in the directory, and leaves out each table in which it meets an unreadable block.
#[test]
fn a_repair_loses_no_more_than_the_tables_that_are_missing_or_cannot_be_opened() {
    const DELETED: i64 = 60;
    type Loss = fn(&Path) -> &'static str;
    let losses: [Loss; 4] = [
        |table| {
            fs::remove_file(table).unwrap();
            "No such file"
        },
        |table| {
            flip(table, table.metadata().unwrap().len() as usize - 1);
            "magic number"
        },
        |table| {
            let file = File::options().write(true).open(table).unwrap();
            file.set_len(table.metadata().unwrap().len() / 2).unwrap();
            "bytes, and had"
        },
        |table| {
            let others = with_ending(table.parent().unwrap(), "sst");
            let other = others.iter().find(|other| *other != table).unwrap();
            fs::copy(other, table).unwrap();
            "bytes, and had"
        },
    ];
    for lose in losses {
        let mut server = Server::start(IN_TABLES);
        set_long_values(&server, "a");
        set_long_values(&server, "z");
        server.terminate();
        let damaged = table_of(&db(&server), "ks0");
        server.spawn();
        // Most rows of the table are no deletions, for which a compaction would be begun.
        set_keys(&mut server.connect(), 0, 4 * DELETED);
        let gone = (0..DELETED).map(|n| vec![b"DEL".to_vec(), format!("z{n}").into_bytes()]);
        server.connect().pipeline(&gone.collect::<Vec<_>>());
        server.terminate();
        let older = with_ending(&db(&server), "sst");
        server.spawn();
        set_long_values(&server, "m");
        server.terminate();
        flip(&damaged, 1000);
        let table = table_of_new(&server, &older);
        let why = lose(&table);
        let is_there = table.exists();
        let output = repair(&server);
        let lost = format!(
            "lost: DB 0: what the table {} has from the key \"m0\" to the key \"m999\"",
            name_of(&table)
        );
        assert!(output.contains(&lost) && output.contains(why), "{output}");
        let kept = db(&server).join("lost").join(name_of(&table));
        assert_eq!(kept.exists(), is_there);
        server.spawn();
        assert_eq!(count_long_values(&server, "m"), 0);
        assert_eq!(count_long_values(&server, "z"), KEYS - DELETED);
        let lost = KEYS - count_long_values(&server, "a");
        assert!((1..100).contains(&lost), "one block is lost: {lost}");
        let mut conn = server.connect();
        assert_sound(&mut conn);
        server.terminate();
        assert!(repair(&server).contains("the database is whole"));
    }
}

/// RocksDB opens the first sixteen tables at a start, and others when they are read.
#[test]
fn a_repair_loses_no_db_to_a_table_that_cannot_be_opened() {
    const DBS: i64 = 16;
    let mut server = Server::start(DEBUG);
    let mut conn = server.connect();
    for db in 0..DBS {
        conn.must(&format!("SELECT {db}"));
        set_keys(&mut conn, 0, 100);
    }
    server.terminate();
    let table = table_of(&db(&server), "ks15");
    flip(&table, table.metadata().unwrap().len() as usize - 1);
    let output = repair(&server);
    let lost = format!("lost: DB 15: what the table {}", name_of(&table));
    assert!(output.contains(&lost), "{output}");
    server.spawn();
    let mut conn = server.connect();
    for db in 0..DBS {
        conn.must(&format!("SELECT {db}"));
        let left = if db == 15 { 0 } else { 100 };
        assert_eq!(conn.must("DBSIZE"), Value::Int(left));
    }
    assert_sound(&mut conn);
}

/// What belongs to no DB is removed at a start.
#[test]
fn a_repair_refuses_a_database_whose_system_rows_are_lost() {
    let mut server = stopped(&[]);
    let table = table_of(&db(&server), "default");
    let aside = server.data_dir().join("aside");
    fs::rename(&table, &aside).unwrap();
    let before = contents(&db(&server));
    let output = run(&server, &["--repair"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains(name_of(&table)), "{text}");
    assert!(text.contains("a backup"), "{text}");
    assert_eq!(contents(&db(&server)), before);
    fs::rename(&aside, &table).unwrap();
    assert!(repair(&server).contains("the database is whole"));
    server.spawn();
    assert_has_keys(&server, KEYS);
}

/// Keys in DB 0 and in DB 1, whose tables are damaged in some families.
fn stopped_with_two_dbs(damaged: &[&str]) -> Server {
    let mut server = Server::start(DEBUG);
    let mut conn = server.connect();
    for db in 0..2 {
        conn.must(&format!("SELECT {db}"));
        set_keys(&mut conn, 0, KEYS);
    }
    server.terminate();
    for family in damaged {
        flip(&table_of(&db(&server), family), 1000);
    }
    server
}

/// Ends a repair when it passes a fail point.
pub(super) fn kill_repair(server: &Server, point: &str) {
    let port = free_port();
    let mut command = Server::command(&server.data_dir(), *port, &["--repair"]);
    command.env("KEDIS_FAIL_POINT", format!("{point}:1"));
    assert!(!run_to_its_end(command).status.success());
}

/// The keys of the DBs that it had replaced were not counted.
#[test]
fn a_start_finishes_a_repair_that_was_killed() {
    let mut server = stopped_with_two_dbs(&["ks0"]);
    kill_repair(&server, "repaired-db");
    server.spawn();
    let mut conn = server.connect();
    let keys = conn.must("DBSIZE").int();
    assert!((KEYS / 2..KEYS).contains(&keys), "{keys}");
    assert_sound(&mut conn);
}

#[test]
fn a_repair_tells_what_one_before_it_has_lost() {
    let mut server = stopped_with_two_dbs(&["ks0", "ks1"]);
    kill_repair(&server, "repaired-db");
    let output = repair(&server);
    for db in 0..2 {
        let lost = format!("lost: DB {db}: what stands from");
        assert!(output.contains(&lost), "{output}");
    }
    server.spawn();
    assert_sound(&mut server.connect());
    server.terminate();
    assert!(repair(&server).contains("the database is whole"));
}

#[test]
fn a_repair_continues_without_tables_of_several_families_and_current() {
    let mut server = stopped_with_two_dbs(&[]);
    for family in ["ks0", "ks1", "binlog"] {
        fs::remove_file(table_of(&db(&server), family)).unwrap();
    }
    fs::remove_file(db(&server).join("CURRENT")).unwrap();
    let output = repair(&server);
    for lost in [
        "lost: DB 0: what the table",
        "lost: DB 1: what the table",
        "a table of the binlog",
    ] {
        assert!(output.contains(lost), "{output}");
    }
    server.spawn();
    let mut conn = server.connect();
    assert_eq!(conn.must("DBSIZE"), Value::Int(0));
    assert_sound(&mut conn);
}

/// It does not know newer tables, which the next start would remove.
#[test]
fn a_repair_does_not_trust_an_old_manifest_that_names_tables_that_are_gone() {
    let mut server = Server::start(IN_TABLES);
    set_long_values(&server, "a");
    server.terminate();
    let manifest = |server: &Server| {
        let name = fs::read_to_string(db(server).join("CURRENT")).unwrap();
        db(server).join(name.trim_end())
    };
    let old = (manifest(&server), fs::read(manifest(&server)).unwrap());
    let older = tables_of(&db(&server), "ks0");
    let are_merged = (0..20).any(|_| {
        server.spawn();
        set_long_values(&server, "a");
        server.terminate();
        let tables = tables_of(&db(&server), "ks0");
        older.iter().all(|table| !tables.contains(table))
    });
    assert!(are_merged);
    server.spawn();
    set_long_values(&server, "m");
    server.terminate();
    fs::remove_file(manifest(&server)).unwrap();
    fs::write(&old.0, &old.1).unwrap();
    let output = repair(&server);
    assert!(
        output.contains("lost: what the manifest alone knew"),
        "{output}"
    );
    server.spawn();
    for prefix in ["a", "m"] {
        assert_eq!(count_long_values(&server, prefix), KEYS);
    }
    assert_sound(&mut server.connect());
}

#[test]
fn a_repair_copes_with_a_damaged_log_and_an_unreadable_block() {
    let mut server = stopped(&[]);
    rot(&db(&server));
    server.spawn();
    set_keys(&mut server.connect(), KEYS, 2 * KEYS);
    server.kill9();
    let log = with_ending(&db(&server), "log").pop().unwrap();
    flip(&log, log.metadata().unwrap().len() as usize / 2);
    let output = repair(&server);
    assert!(output.contains("lost: DB 0: what stands from"), "{output}");
    assert!(output.matches("lost: ").count() > 1, "{output}");
    server.spawn();
    let mut conn = server.connect();
    let keys = conn.must("DBSIZE").int();
    assert!((KEYS..2 * KEYS).contains(&keys), "{keys}");
    assert_sound(&mut conn);
}

#[test]
fn a_repair_and_a_server_do_not_meet() {
    let server = Server::start(&[]);
    for flags in [&["--repair"][..], &[ACCEPT]] {
        let output = run(&server, flags);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains("another server uses"),
            "{text}"
        );
    }
    server.connect().must("SET key 1");
}
