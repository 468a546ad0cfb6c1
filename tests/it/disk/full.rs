//! A small file system that is really full.

use super::is_misconf;
use crate::support::{Conn, Server, Value, wait_for, wait_within};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A tmpfs that is unmounted on drop.
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// `None`, with a message, if the test has no permission to mount.
    pub fn mount(megabytes: u32) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(dir.path())
            .status();
        if !status.is_ok_and(|status| status.success()) {
            println!("SKIPPED: this test mounts a tmpfs, which needs the rights of root");
            return None;
        }
        Some(SmallDisk { dir })
    }

    /// Fills the disk except for `bytes` bytes.
    pub fn leave(&self, bytes: u64) -> Hog {
        let path = self.dir.path().join("hog");
        let found = rustix::fs::statvfs(self.dir.path()).unwrap();
        let free = found.f_bavail * found.f_frsize;
        let taken = usize::try_from(free - bytes).unwrap();
        std::fs::write(&path, vec![1; taken]).unwrap();
        Hog(path)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Fills the disk, as another program might.
    pub fn fill(&self) -> Hog {
        self.fill_with("hog")
    }

    /// The same with a file of this name.
    fn fill_with(&self, name: &str) -> Hog {
        let path = self.dir.path().join(name);
        let mut file = File::create(&path).unwrap();
        let block = vec![1; 64 << 10];
        while file.write_all(&block).is_ok() {}
        while file.write_all(&block[..512]).is_ok() {}
        Hog(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount")
            .arg("-l")
            .arg(self.dir.path())
            .status();
        assert!(status.is_ok_and(|status| status.success()), "umount");
    }
}

/// A file that fills the disk; removed on drop.
pub struct Hog(PathBuf);

impl Drop for Hog {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

pub(super) fn start_on(disk: &SmallDisk, flags: &[&str]) -> Server {
    let mut server = Server::prepare(&flags_on(flags));
    server.data = Some(disk.path().join("data"));
    server.spawn();
    server
}

/// Flags for a disk of a hundred megabytes or less.
fn flags_on<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let mut small = vec![
        "--maxmemory",
        "64mb",
        "--rocksdb.write-buffer-size",
        "1mb",
        "--enable-debug-command",
        "yes",
    ];
    if !flags.contains(&"--disk-reserve") {
        small.extend(["--disk-reserve", "4mb"]);
    }
    [&small[..], flags].concat()
}

/// Text that compresses badly.
pub(super) fn noise(bytes: usize) -> String {
    let mut rng = fastrand::Rng::new();
    std::iter::repeat_with(|| rng.alphanumeric())
        .take(bytes)
        .collect()
}

/// How long writes must be refused before the disk counts as full. Within that time the disk
/// thread has flushed what it could.
const RELIEF: Duration = Duration::from_secs(1);

/// Writes keys of 10,000 bytes until the disk is full; returns their number.
pub(super) fn write_until_refused(conn: &mut Conn, prefix: &str) -> i64 {
    write_values_until_refused(conn, prefix, 10_000)
}

/// The same with values of `bytes` bytes.
fn write_values_until_refused(conn: &mut Conn, prefix: &str, bytes: usize) -> i64 {
    let value = noise(bytes);
    let mut taken = 0;
    // The first refusals cause flushes, which may make room for more.
    while wait_within(RELIEF, || {
        let reply = conn.cmd(&format!("SET {prefix}{taken} {value}"));
        assert!(reply == Value::ok() || is_misconf(&reply), "{reply:?}");
        reply == Value::ok()
    }) {
        taken += 1;
        assert!(taken < 100_000, "the disk is not that large");
    }
    taken
}

fn number(conn: &mut Conn, field: &str) -> u64 {
    conn.info_number("persistence", field)
}

#[test]
fn a_full_disk_is_read_and_deleted_from() {
    let Some(disk) = SmallDisk::mount(100) else {
        return;
    };
    let mut server = start_on(&disk, &[]);
    let mut conn = server.connect();
    assert_eq!(number(&mut conn, "disk_reserve_bytes"), 4 << 20);
    conn.must("SET expires soon");
    let taken = write_until_refused(&mut conn, "key");
    assert!(taken > 1000, "only {taken} keys");
    assert_eq!(number(&mut conn, "disk_low"), 1);
    assert_eq!(conn.must("DBSIZE"), Value::Int(taken + 1));
    assert!(matches!(conn.must("GET key0"), Value::Bulk(value) if value.len() == 10_000));
    let refusal = conn.cmd("SET key0 1");
    let Value::Error(text) = &refusal else {
        panic!("{refusal:?}")
    };
    let text = String::from_utf8_lossy(text).into_owned();
    assert!(text.contains("No space left on device"), "{text}");
    assert!(is_misconf(&conn.cmd("LPUSH list a")));
    conn.must("MULTI");
    assert!(is_misconf(&conn.cmd("SET key0 1")));
    conn.cmd("EXEC");
    // Deletions and expiry work on the same connection, for all keys.
    conn.must("PEXPIRE expires 1");
    wait_for("expiry", || conn.must("DBSIZE") == Value::Int(taken));
    for n in 0..taken {
        assert_eq!(conn.must(&format!("UNLINK key{n}")), Value::Int(1));
    }
    assert_eq!(conn.must("DBSIZE"), Value::Int(0));
    // The binlog is the greater part; without replicas it is trimmed.
    wait_for("writes", || conn.cmd("SET again 1") == Value::ok());
    wait_for("the reserve", || {
        number(&mut conn, "disk_reserve_bytes") == 4 << 20
    });
    conn.must("DEBUG KEDIS-CHECK");
    let log = server.log();
    assert_eq!(log.matches(" is full: ").count(), 1, "{log}");
    server.restart();
    assert_eq!(server.connect().must("DBSIZE"), Value::Int(1));
}

/// Default sizes: memtables held more than the reserve could take when they had to be flushed,
/// and from then on deletions were refused permanently.
#[test]
fn what_memtables_hold_has_room_on_the_disk() {
    let Some(disk) = SmallDisk::mount(200) else {
        return;
    };
    let mut server = Server::prepare(&["--maxmemory", "200mb", "--enable-debug-command", "yes"]);
    server.data = Some(disk.path().join("data"));
    server.spawn();
    let mut conn = server.connect();
    for round in 0..3 {
        let taken = write_values_until_refused(&mut conn, &format!("key{round}-"), 100_000);
        // In later rounds the binlog may occupy the space of the deleted keys.
        assert!(taken > 10 || round > 0, "{taken}");
        for n in 0..taken {
            let deleted = conn.must(&format!("DEL key{round}-{n}"));
            assert_eq!(deleted, Value::Int(1), "round {round}, key {n}");
        }
        // Without replicas the binlog is trimmed.
        wait_for("writes", || conn.cmd("SET again 1") == Value::ok());
        conn.must("DEL again");
    }
    let log = server.log();
    assert!(!log.contains("a write failed"), "{log}");
    conn.must("DEBUG KEDIS-CHECK");
}

/// Such a value was accepted and could not be flushed, so no flush succeeded until a restart.
#[test]
fn writes_larger_than_the_free_space_are_refused_as_a_whole() {
    let Some(disk) = SmallDisk::mount(200) else {
        return;
    };
    let mut server = Server::prepare(&["--maxmemory", "1gb"]);
    server.data = Some(disk.path().join("data"));
    server.spawn();
    let mut conn = server.connect();
    let long = noise(40_000_000);
    for _ in 0..3 {
        for n in 0..30 {
            let reply = conn.cmd(&format!("SET key{n} {}", noise(1_000_000)));
            assert!(reply == Value::ok() || is_misconf(&reply), "{reply:?}");
        }
        let reply = conn.call(&["SET", "long", &long]);
        assert!(reply == Value::ok() || is_misconf(&reply), "{reply:?}");
        for n in 0..30 {
            conn.must(&format!("DEL key{n}"));
        }
        conn.must("DEL long");
        wait_for("writes", || conn.cmd("SET again 1") == Value::ok());
    }
    let reply = conn.call(&["SET", "long", &noise(80_000_000)]);
    assert!(is_misconf(&reply), "{reply:?}");
    assert_eq!(conn.must("EXISTS long"), Value::Int(0));
    wait_for("writes", || conn.cmd("SET again 2") == Value::ok());
    let log = server.log();
    assert!(!log.contains("a write failed"), "{log}");
}

#[test]
fn flushall_makes_room() {
    let Some(disk) = SmallDisk::mount(100) else {
        return;
    };
    let server = start_on(&disk, &["--binlog-enabled", "no"]);
    let mut conn = server.connect();
    for _ in 0..3 {
        write_until_refused(&mut conn, "key");
        conn.must("FLUSHALL");
        assert_eq!(conn.must("DBSIZE"), Value::Int(0));
        wait_for("writes", || conn.cmd("SET again 1") == Value::ok());
    }
}

#[test]
fn what_another_program_takes_and_gives_back_is_noticed() {
    let Some(disk) = SmallDisk::mount(60) else {
        return;
    };
    let mut server = start_on(&disk, &[]);
    let mut conn = server.connect();
    for n in 0..100 {
        conn.must(&format!("SET key{n} {}", noise(10_000)));
    }
    for round in 0..3 {
        let hog = disk.fill();
        wait_for("refusals", || is_misconf(&conn.cmd("SET new 1")));
        assert_eq!(conn.must(&format!("DEL key{round}")), Value::Int(1));
        assert!(matches!(conn.must("GET key50"), Value::Bulk(_)));
        // The server stops and starts without any free space.
        server.kill9();
        server.spawn();
        conn = server.connect();
        assert_eq!(conn.must(&format!("EXISTS key{round}")), Value::Int(0));
        assert!(matches!(conn.must("GET key50"), Value::Bulk(_)));
        // The start has removed obsolete files and so made some room.
        let more = disk.fill_with("more");
        wait_for("refusals", || is_misconf(&conn.cmd("SET new 1")));
        conn.must("DBSIZE");
        drop((hog, more));
        wait_for("writes", || conn.cmd("SET old 1") == Value::ok());
    }
}

/// The disk is full and there is no reserve.
#[test]
fn a_server_starts_without_any_room() {
    let Some(disk) = SmallDisk::mount(60) else {
        return;
    };
    let mut server = start_on(&disk, &["--disk-reserve", "0"]);
    let mut conn = server.connect();
    for n in 0..200 {
        conn.must(&format!("SET key{n} {}", noise(10_000)));
    }
    server.kill9();
    let hog = disk.fill();
    server.spawn();
    let mut conn = server.connect();
    assert_eq!(conn.must("DBSIZE"), Value::Int(200));
    assert!(matches!(conn.must("GET key199"), Value::Bulk(_)));
    drop(hog);
    wait_for("writes", || conn.cmd("SET new 1") == Value::ok());
}

#[test]
fn a_save_without_room_fails_and_says_so() {
    let Some(disk) = SmallDisk::mount(100) else {
        return;
    };
    let server = start_on(&disk, &[]);
    let mut conn = server.connect();
    write_until_refused(&mut conn, "key");
    let hog = disk.fill();
    let reply = conn.cmd("SAVE");
    assert!(matches!(&reply, Value::Error(_)), "{reply:?}");
    assert!(matches!(conn.must("GET key1"), Value::Bulk(_)));
    conn.must("DEL key1");
    drop(hog);
    conn.must("FLUSHALL");
    wait_for("writes", || conn.cmd("SET again 1") == Value::ok());
    wait_for("a save", || conn.cmd("SAVE") == Value::ok());
    assert!(Path::new(&server.data_dir()).join("dump.rdb").exists());
}

/// `storage_bytes` was 1,331 while the write-ahead log had 112 MB.
#[test]
fn the_figures_count_both_logs() {
    let server = Server::start(&[
        "--rocksdb.write-buffer-size",
        "64mb",
        "--value-log-min",
        "0",
    ]);
    let mut conn = server.connect();
    for n in 0..500 {
        conn.must(&format!("SET key{n} {}", noise(10_000)));
    }
    let least = 2 * 500 * 10_000 - 1_000_000;
    let wal = |conn: &mut Conn| conn.info_number("persistence", "wal_bytes");
    wait_for("the log's size", || wal(&mut conn) >= least / 2);
    let stored = conn.info_number("storage", "storage_bytes");
    assert!(stored >= least / 2, "{stored}");
    assert!(conn.info_number("persistence", "disk_free_bytes") > 0);
    assert!(conn.info_number("persistence", "disk_total_bytes") > 0);
    let server = Server::start(&["--value-log-min", "1000"]);
    let mut conn = server.connect();
    for n in 0..500 {
        conn.must(&format!("SET key{n} {}", noise(10_000)));
    }
    let stored = conn.info_number("storage", "storage_bytes");
    assert!((5_000_000..10_000_000).contains(&stored), "{stored}");
}
