//! Files of the value log that the disk has lost or changed.
//!
//! Past faults: a database without a segment was started, and reads of its strings got errors for ever.
//! `--repair` left such strings in place. One of them kept the space of all other segments from coming
//! back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::repair::{kill_repair, repair};
use super::{
    ACCEPT, assert_misses_current, assert_refused, assert_sound, db, files_below, flip, name_of,
    with_ending,
};
use crate::support::{Conn, Server, Value, wait_for};

/// Strings go into segments of a few KB.
pub(super) const SHORT_SEGMENTS: &[&str] = &[
    "--enable-debug-command",
    "yes",
    "--value-log-min",
    "100",
    "--value-log-segment-size",
    "16kb",
];

const VALUES: usize = 100;

/// A value of random bytes, which is not packed.
fn value(n: usize) -> Vec<u8> {
    let mut dice = fastrand::Rng::with_seed(n as u64);
    std::iter::repeat_with(|| dice.u8(..)).take(1000).collect()
}

/// Sets the keys `value0` and so on. Every second one has an expiry.
pub(super) fn set_values(conn: &mut Conn) {
    let commands = (0..VALUES).map(|n| {
        let mut set = vec![b"SET".to_vec(), format!("value{n}").into_bytes(), value(n)];
        if n % 2 == 0 {
            set.extend([b"EX".to_vec(), b"100000".to_vec()]);
        }
        set
    });
    let replies = conn.pipeline(&commands.collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| *reply == Value::ok()));
}

fn read_values(conn: &mut Conn) -> Vec<Value> {
    let gets = (0..VALUES).map(|n| vec![b"GET".to_vec(), format!("value{n}").into_bytes()]);
    conn.pipeline(&gets.collect::<Vec<_>>())
}

/// DB 1 has all values except those that are lost, and the database is sound.
pub(super) fn assert_has_values(server: &Server, lost: &[usize]) {
    let mut conn = server.connect();
    conn.hello3();
    conn.must("SELECT 1");
    for (n, found) in read_values(&mut conn).into_iter().enumerate() {
        let wanted = match lost.contains(&n) {
            true => Value::Null,
            false => Value::bulk(value(n)),
        };
        assert!(found == wanted, "value{n}");
    }
    let left = VALUES - lost.len();
    assert_eq!(conn.must("DBSIZE"), Value::Int(left as i64));
    assert_sound(&mut conn);
    assert_eq!(conn.info_text("storage", "storage_status"), "ok");
}

/// A stopped server with the values in DB 1.
fn stopped() -> Server {
    let mut server = Server::start(SHORT_SEGMENTS);
    let mut conn = server.connect();
    conn.must("SELECT 1");
    set_values(&mut conn);
    server.terminate();
    server
}

fn segments(server: &Server) -> Vec<PathBuf> {
    let found = with_ending(&db(server).join("values"), "values");
    assert!(found.len() > 5, "{found:?}");
    found
}

fn place_in(bytes: &[u8], value: &[u8]) -> Option<usize> {
    bytes
        .windows(value.len())
        .position(|window| window == value)
}

/// The values in a segment.
fn values_in(segment: &Path) -> Vec<usize> {
    let bytes = fs::read(segment).unwrap();
    let is_there = |n: &usize| place_in(&bytes, &value(*n)).is_some();
    (0..VALUES).filter(is_there).collect()
}

/// The segment with a value, and where the value stands.
fn place_of(server: &Server, value: &[u8]) -> (PathBuf, usize) {
    let mut found = segments(server).into_iter().filter_map(|segment| {
        let at = place_in(&fs::read(&segment).unwrap(), value)?;
        Some((segment, at))
    });
    found.next().unwrap()
}

fn cut(path: &Path, len: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

#[test]
fn a_segment_that_is_missing_or_cut_is_refused() {
    let mut server = stopped();
    let all = segments(&server);
    for segment in [&all[0], &all[all.len() / 2], all.last().unwrap()] {
        let number: u64 = name_of(segment).split('.').next().unwrap().parse().unwrap();
        let whole = fs::read(segment).unwrap();
        fs::remove_file(segment).unwrap();
        let missing = format!("segment {number} of the value log is missing");
        assert_refused(&server, &[&missing, "backup", ACCEPT]);
        fs::write(segment, &whole[..whole.len() / 2]).unwrap();
        let short = format!("segment {number} of the value log has {}", whole.len() / 2);
        assert_refused(&server, &[&short, ACCEPT]);
        fs::write(segment, &whole).unwrap();
    }
    fs::rename(db(&server).join("values"), db(&server).join("elsewhere")).unwrap();
    assert_refused(&server, &["is missing", ACCEPT]);
    fs::rename(db(&server).join("elsewhere"), db(&server).join("values")).unwrap();
    server.spawn();
    assert_has_values(&server, &[]);
}

/// A server that is killed has listed its segments before, but for the last second.
#[test]
fn segments_of_a_killed_server_are_missed() {
    let mut server = Server::start(SHORT_SEGMENTS);
    let mut conn = server.connect();
    conn.must("SELECT 1");
    set_values(&mut conn);
    let listed = db(&server).join("VALUE-LOG");
    wait_for("the list", || {
        let all = segments(&server).len() as u64;
        listed
            .metadata()
            .is_ok_and(|found| found.len() >= 12 + 16 * all)
    });
    server.kill9();
    let segment = segments(&server).pop().unwrap();
    let aside = db(&server).join("aside");
    fs::rename(&segment, &aside).unwrap();
    assert_refused(&server, &["is missing", ACCEPT]);
    fs::rename(&aside, &segment).unwrap();
    server.spawn();
    assert_has_values(&server, &[]);
}

#[test]
fn the_start_that_accepts_the_loss_of_a_segment_continues_without_its_strings() {
    type Lose = fn(&Path);
    let ways: [Lose; 2] = [|path| fs::remove_file(path).unwrap(), |path| cut(path, 24)];
    for lose in ways {
        for repairs in [false, true] {
            let mut server = stopped();
            let all = segments(&server);
            // The newest one, too: its number must not get other bytes.
            let damaged = [&all[2], all.last().unwrap()];
            let lost: Vec<usize> = damaged.iter().flat_map(|path| values_in(path)).collect();
            assert!((2..VALUES / 2).contains(&lost.len()), "{lost:?}");
            damaged.iter().for_each(|path| lose(path));
            match repairs {
                false => {
                    server.flags.push(ACCEPT.into());
                    server.spawn();
                    server.flags.pop();
                    assert_has_values(&server, &lost);
                    // A segment is made.
                    let mut conn = server.connect();
                    let set = conn.call(&[&b"SET"[..], b"other", &value(VALUES)]);
                    assert_eq!(set, Value::ok());
                    conn.must("DEL other");
                    server.kill9();
                }
                true => {
                    let output = repair(&server);
                    let words = [
                        "lost: segment 3 of the value log",
                        "lost: DB 1: the strings \"",
                    ];
                    for word in words {
                        assert!(output.contains(word), "{output}");
                    }
                    let named = lost
                        .iter()
                        .filter(|n| output.contains(&format!("\"value{n}\"")));
                    let more = lost.len() - named.count();
                    assert_eq!(more, lost.len().saturating_sub(20), "{output}");
                    let rest = format!(" and {more} more, whose bytes");
                    assert_eq!(output.contains(&rest), more > 0, "{output}");
                    assert!(repair(&server).contains("the database is whole"));
                }
            }
            server.spawn();
            assert_has_values(&server, &lost);
            let mut conn = server.connect();
            conn.must("SELECT 1");
            set_values(&mut conn);
            assert_has_values(&server, &[]);
            server.restart();
            assert_has_values(&server, &[]);
        }
    }
}

#[test]
fn a_repair_removes_strings_that_cannot_be_read() {
    let mut server = stopped();
    let (segment, at) = place_of(&server, &value(7));
    flip(&segment, at + 500);
    server.spawn();
    let mut conn = server.connect();
    conn.must("SELECT 1");
    let errors = read_values(&mut conn)
        .iter()
        .filter(
            |reply| matches!(reply, Value::Error(text) if text.ends_with(b"a checksum is wrong")),
        )
        .count();
    assert_eq!(errors, 1);
    assert_eq!(conn.info_text("storage", "storage_status"), "corrupt");
    assert_eq!(
        conn.info_text("storage", "storage_corrupt_files"),
        name_of(&segment)
    );
    server.terminate();
    kill_repair(&server, "repaired-strings");
    let output = repair(&server);
    let lost = "lost: DB 1: the string \"value7\", whose bytes";
    assert!(output.contains(lost), "{output}");
    assert!(repair(&server).contains("the database is whole"));
    server.spawn();
    assert_has_values(&server, &[7]);
}

#[test]
fn a_repair_empties_a_binlog_that_refers_to_what_cannot_be_read() {
    let mut server = stopped();
    let (segment, at) = place_of(&server, &value(7));
    server.spawn();
    let mut conn = server.connect();
    conn.must("SELECT 1");
    conn.must("SET value7 short");
    server.terminate();
    flip(&segment, at + 500);
    let output = repair(&server);
    assert!(output.contains("lost: the binlog"), "{output}");
    assert!(!output.contains("value7"), "{output}");
    assert!(repair(&server).contains("the database is whole"));
    server.spawn();
    let mut conn = server.connect();
    conn.must("SELECT 1");
    assert_eq!(conn.must("GET value7"), Value::bulk("short"));
    conn.call(&[&b"SET"[..], b"value7", &value(7)]);
    conn.must("PERSIST value7");
    assert_has_values(&server, &[]);
}

#[test]
fn a_damaged_list_of_segments_is_refused() {
    let mut server = stopped();
    let list = db(&server).join("VALUE-LOG");
    let whole = fs::read(&list).unwrap();
    for damaged in [
        &[][..],
        &whole[..whole.len() - 1],
        &[&whole[..], &[0]].concat(),
    ] {
        fs::write(&list, damaged).unwrap();
        assert_refused(&server, &["VALUE-LOG is damaged", ACCEPT]);
    }
    server.flags.push(ACCEPT.into());
    server.spawn();
    server.flags.pop();
    assert_has_values(&server, &[]);
    server.restart();
    assert_has_values(&server, &[]);
}

/// Such a directory was taken for an empty one, and its segments would have been removed in time.
#[test]
fn segments_alone_are_not_taken_for_an_empty_directory() {
    let server = stopped();
    let data = tempfile::tempdir().unwrap();
    let copy = data.path().join("kedis-db/values");
    fs::create_dir_all(&copy).unwrap();
    for segment in segments(&server) {
        fs::copy(&segment, copy.join(name_of(&segment))).unwrap();
    }
    assert_misses_current(data.path());
    assert_eq!(files_below(&copy).len(), segments(&server).len());
}

/// Databases of older builds have no list.
#[test]
fn a_database_without_a_list_gets_one() {
    let mut server = stopped();
    let list = db(&server).join("VALUE-LOG");
    let whole = fs::read(&list).unwrap();
    fs::remove_file(&list).unwrap();
    server.spawn();
    assert_has_values(&server, &[]);
    server.terminate();
    let found = fs::read(&list).unwrap();
    assert_eq!(found[..whole.len() - 4], whole[..whole.len() - 4]);
}
