//! Starts that fail: one line says what is wrong and what to do, the status is 1, and nothing is
//! left behind.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::disk::SmallDisk;
use crate::support::Server;
use crate::support::server::{binary, free_port};

/// A user without rights.
const NOBODY: u32 = 65_534;

/// Runs a start that must fail; returns the line that says why.
fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let is_why = |line: &&str| line.contains("the server does not run") || line.contains("cannot ");
    let mut why = text.lines().filter(is_why);
    let line = why.next().unwrap_or_else(|| panic!("no reason: {text}"));
    assert_eq!(why.next(), None, "{text}");
    line.to_owned()
}

fn start(dir: &Path) -> Command {
    Server::command(dir, *free_port(), &["--bind", "127.0.0.1"])
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

/// It used to leave a new database.
#[test]
fn a_port_in_use() {
    let first = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b");
    for data in [deep.as_path(), dir.path()] {
        let why = refused(&mut Server::command(
            data,
            first.port(),
            &["--bind", "127.0.0.1"],
        ));
        let advice = "another process listens there: stop it, or choose another port";
        assert!(why.contains(advice), "{why}");
        assert!(why.contains(&first.port().to_string()), "{why}");
        assert!(is_empty(dir.path()), "{data:?}");
    }
    let why = refused(&mut start(&first.data_dir()));
    assert!(why.contains("stop it, or choose another `dir`"), "{why}");
}

#[test]
fn an_address_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    // A network for documentation.
    let why = refused(&mut Server::command(
        dir.path(),
        *free_port(),
        &["--bind", "192.0.2.1"],
    ));
    assert!(why.contains("no interface of this machine has"), "{why}");
    let flags = ["--bind", "127.0.0.1", "--unixsocket", "/nowhere/k.sock"];
    let why = refused(&mut Server::command(dir.path(), *free_port(), &flags));
    assert!(why.contains("its directory must exist"), "{why}");
    let flags = ["--tls-port", "1", "--tls-cert-file", "/nowhere/k.crt"];
    let flags = [&flags[..], &["--tls-key-file", "/nowhere/k.key"]].concat();
    let why = refused(&mut Server::command(dir.path(), *free_port(), &flags));
    assert!(why.contains("/nowhere/k.crt"), "{why}");
    assert!(is_empty(dir.path()));
}

#[test]
fn without_permission() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut server = Server::prepare(&[]);
    server.data = Some(data.clone());
    server.spawn();
    server.terminate();
    let as_nobody = |dir: &Path| {
        let mut command = start(dir);
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    // Only root may become another user, and that one may not reach the program.
    let mut version = Command::new(binary());
    let version = version.arg("--version").uid(NOBODY).gid(NOBODY).output();
    if !version.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: this test runs the server as another user");
        return;
    }
    let open = |path: &Path| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    };
    open(home.path());
    open(&data);
    for dir in [
        data.clone(),
        home.path().join("new"),
        home.path().to_owned(),
    ] {
        let why = refused(&mut as_nobody(&dir));
        let advice = format!("the user {NOBODY}, as which this process runs, must be able");
        assert!(why.contains(&advice), "{why}");
        assert!(why.contains(&dir.display().to_string()), "{why}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    let why = refused(Server::command(home.path(), 80, &["--bind", "127.0.0.1"]).uid(NOBODY));
    let is_allowed = !why.contains("Permission denied");
    let advice = "CAP_NET_BIND_SERVICE: choose another port";
    assert!(
        is_allowed || why.contains(advice) || why.contains("must be able"),
        "{why}"
    );
}

/// The first start used to leave an incomplete file, with which the next failed, too.
#[test]
fn on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(40) else {
        return;
    };
    for dir in [disk.path(), disk.path().join("a/b")] {
        let hog = disk.fill();
        let why = refused(&mut start(&dir));
        assert!(
            why.contains("No space left on device; free space there"),
            "{why}"
        );
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 1, "{dir:?}");
        drop(hog);
    }
    let mut server = Server::prepare(&[]);
    server.data = Some(disk.path());
    server.spawn();
    server.connect().must("SET a 1");
    server.terminate();
}

#[test]
fn on_a_read_only_disk() {
    let Some(disk) = SmallDisk::mount(40) else {
        return;
    };
    let mut server = Server::prepare(&[]);
    server.data = Some(disk.path().join("data"));
    server.spawn();
    server.terminate();
    let remount = |how: &str| {
        let mut command = Command::new("mount");
        let command = command.args(["-o", how]).arg(disk.path());
        assert!(command.status().unwrap().success());
    };
    remount("remount,ro");
    for dir in ["data", "new", ""] {
        let why = refused(&mut start(&disk.path().join(dir)));
        let advice = "mount that file system for writing, or name another place";
        assert!(why.contains(advice), "{why}");
        assert!(why.contains(&disk.path().display().to_string()), "{why}");
    }
    remount("remount,rw");
    server.spawn();
    server.terminate();
}

#[test]
fn where_a_file_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let why = refused(&mut start(&file));
    assert!(why.contains("not a directory"), "{why}");
}

/// RocksDB used to end the process by a signal.
#[test]
fn with_too_little_address_space() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = start(&data);
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -v 300000; exec \"$@\"", "sh"])
        .arg(server.get_program())
        .args(server.get_args());
    let why = refused(&mut command);
    assert!(
        why.contains("raise that limit, or lower `maxmemory`"),
        "{why}"
    );
    assert!(is_empty(dir.path()));
}
