//! The server as a process: daemon mode, signals, file descriptor limits, and the log.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::server::{binary, free_port};
use crate::support::{Conn, Server, Value, wait_for};

/// A daemonized server, found by its pidfile.
struct Background {
    pidfile: PathBuf,
    pid: i32,
}

impl Background {
    fn of(pidfile: PathBuf) -> Background {
        let pid = fs::read_to_string(&pidfile).unwrap();
        let pid = pid.trim().parse().unwrap();
        Background { pidfile, pid }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid).unwrap(), signal).unwrap();
    }

    /// The target of a standard stream.
    fn stream(&self, number: u32) -> PathBuf {
        fs::read_link(format!("/proc/{}/fd/{number}", self.pid)).unwrap()
    }

    /// The session id of the process.
    fn session(&self) -> i32 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(3).unwrap().parse().unwrap()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.pidfile.exists() {
            self.signal(Signal::KILL);
        }
    }
}

/// Starts a server that daemonizes; fails if the start fails.
fn start_in_background(command: &mut Command) {
    // Waits until no process holds the pipes.
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
}

#[test]
fn in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let flags = ["--bind", "127.0.0.1", "--daemonize", "yes"];
    let files = ["--pidfile", "k.pid", "--logfile", "k.log"];
    let mut command = Server::command(dir.path(), *port, &[&flags[..], &files].concat());
    start_in_background(&mut command);
    let server = Background::of(dir.path().join("k.pid"));
    // The server accepts connections immediately: the parent has waited for it.
    let mut conn = Conn::open(&format!("127.0.0.1:{}", *port)).unwrap();
    conn.must("SET a 1");
    assert_eq!(server.session(), server.pid);
    for number in 0..3 {
        assert_eq!(server.stream(number), Path::new("/dev/null"));
    }
    server.signal(Signal::HUP);
    conn.must("SET a 2");
    server.signal(Signal::TERM);
    wait_for("the end", || !server.pidfile.exists());
    let log = fs::read_to_string(dir.path().join("k.log")).unwrap();
    assert!(log.contains("Ready to accept connections on"), "{log}");
}

#[test]
fn in_the_background_with_relative_paths_from_standard_input() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut child = Command::new(binary())
        .arg("-")
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = format!(
        "port {}\nbind 127.0.0.1\ndaemonize yes\ndir data\npidfile k.pid\n",
        *port
    );
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("there is no log"), "{text}");
    let server = Background::of(dir.path().join("data/k.pid"));
    let mut conn = Conn::open(&format!("127.0.0.1:{}", *port)).unwrap();
    let reply = conn.must("CONFIG GET dir");
    let data = dir.path().canonicalize().unwrap().join("data");
    assert_eq!(reply.pairs()[0].1.text(), data.display().to_string());
    assert!(matches!(conn.cmd("SHUTDOWN"), Value::Lost(_)));
    wait_for("the end", || !server.pidfile.exists());
}

/// Also with a log file the error goes to standard error, where the user who starts the server
/// sees it.
#[test]
fn a_start_in_the_background_that_fails_says_why() {
    let first = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    for logfile in ["", "k.log"] {
        let flags = ["--bind", "127.0.0.1", "--daemonize", "yes"];
        let files = ["--pidfile", "k.pid", "--logfile", logfile];
        let flags = [&flags[..], &files].concat();
        let output = Server::command(dir.path(), first.port(), &flags)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&first.port().to_string()), "{text}");
        assert!(!dir.path().join("k.pid").exists());
    }
}

/// Neither the data directory nor the port is touched.
#[test]
fn a_configuration_is_checked_without_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k.conf");
    let data = dir.path().join("data");
    let check = |text: &str| {
        fs::write(&file, format!("dir {}\n{text}", data.display())).unwrap();
        let output = Command::new(binary())
            .arg(&file)
            .arg("--check-config")
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (valid, text) =
        check("port 1\ncluster-migration-barrier 2\nmaxmemory-policy allkeys-lru\n");
    assert!(valid, "{text}");
    for part in [
        "cluster-migration-barrier",
        "no key is evicted because of it",
        "is valid",
    ] {
        assert!(text.contains(part), "{text}");
    }
    for (line, reason) in [
        ("prot 6379", "port"),
        ("port 70000", "between 0 and 65535"),
        ("rename-command get set", "has this new name"),
        ("user a on >b ~* +nothing", "category name in ACL"),
        ("aclfile /nowhere/users.acl", "/nowhere/users.acl"),
        (
            "tls-port 7000\ntls-cert-file /nowhere/x.crt\ntls-key-file a",
            "/nowhere/x.crt",
        ),
    ] {
        let (valid, text) = check(line);
        assert!(!valid && text.contains(reason), "{line}: {text}");
    }
    assert!(!data.exists());
}

#[test]
fn a_terminal_that_closes_does_not_end_the_server() {
    let server = Server::start(&[]);
    server.signal("HUP");
    server.signal("PIPE");
    let mut conn = server.connect();
    conn.must("SET a 1");
}

/// A server with a low limit of open files.
struct Limited {
    child: Child,
    dir: tempfile::TempDir,
    address: String,
}

impl Limited {
    fn start(descriptors: u64, flags: &[&str]) -> Limited {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let command = Server::command(dir.path(), *port, flags);
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\""), "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .args(["--bind", "127.0.0.1", "--io-threads", "2"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let address = format!("127.0.0.1:{}", *port);
        let server = Limited {
            child,
            dir,
            address,
        };
        wait_for("the server", || Conn::open(&server.address).is_ok());
        server
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// More DBs than a server with 300 descriptors can have.
const DBS: usize = 150;

/// Idle clients could use up the descriptors that a flush needs, and all writes stopped.
#[test]
fn idle_clients_do_not_take_the_databases_descriptors() {
    for more in [&[][..], &["--rocksdb.max-open-files", "-1"]] {
        let databases = DBS.to_string();
        let flags = ["--enable-debug-command", "yes", "--databases", &databases];
        let server = Limited::start(300, &[&flags, more].concat());
        let mut conn = Conn::open(&server.address).unwrap();
        // As many DBs as possible, with more table files than can be open.
        let dbs = (0..DBS).take_while(|db| {
            conn.must(&format!("SELECT {db}"));
            let set = conn.cmd("SET key 1");
            let refusal = set.error().unwrap_or_default();
            assert!(
                refusal.is_empty() || refusal.contains("another DB"),
                "{refusal}"
            );
            refusal.is_empty()
        });
        let dbs = dbs.count();
        assert!((40..DBS).contains(&dbs), "{dbs} DBs can be made");
        for _ in 0..2 {
            conn.must("SAVE");
            for db in 0..dbs {
                conn.must(&format!("SELECT {db}"));
                conn.must("GET key");
                conn.must("SET key 2");
            }
        }
        let idle: Vec<TcpStream> = (0..290)
            .map(|_| TcpStream::connect(&server.address).unwrap())
            .collect();
        wait_for("the last of them to be refused", || {
            conn.info_number("stats", "rejected_connections") > 50
        });
        for round in 0..40 {
            conn.must(&format!("SET key:{round} {round}"));
            conn.must("DEBUG RELOAD");
        }
        conn.must("BGSAVE");
        wait_for("the save", || {
            conn.info_number("persistence", "rdb_bgsave_in_progress") == 0
        });
        let info = conn.must("INFO persistence").text();
        assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
        let log = server.log();
        assert!(log.contains("only 300 file descriptors"), "{log}");
        assert!(!log.contains("Too many open files"), "{log}");
        drop(idle);
    }
}

#[test]
fn maxclients_goes_as_far_as_the_limit() {
    let server = Limited::start(300, &[]);
    let mut conn = Conn::open(&server.address).unwrap();
    let shown = conn.must("CONFIG GET maxclients").pairs()[0].1.text();
    let shown: u64 = shown.parse().unwrap();
    assert!((100..270).contains(&shown), "{shown}");
    let refusal = conn.cmd("CONFIG SET maxclients 5000").error().unwrap();
    let (text, most) = refusal.rsplit_once(' ').unwrap();
    assert_eq!(
        text,
        "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating \
         system is not able to handle the specified number of clients, try with"
    );
    conn.must(&format!("CONFIG SET maxclients {most}"));
    conn.must("CONFIG SET maxclients 10");
    assert_eq!(conn.info_number("clients", "maxclients"), 10);
}

/// The message was repeated every second.
#[test]
fn descriptors_that_run_out_are_one_line_in_the_log() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    // The connection has its descriptor.
    conn.must("PING");
    let before = server.limit_files(8);
    let waiting = TcpStream::connect(server.address()).unwrap();
    wait_for("the line", || server.log().contains("accept: "));
    // The server tries again once a second.
    let mut uptime_s = || conn.info_number("server", "uptime_in_seconds");
    let began_s = uptime_s();
    wait_for("further tries", || uptime_s() >= began_s + 3);
    assert_eq!(server.log().matches("accept: ").count(), 1);
    server.limit_files(before);
    wait_for("the client that waits", || {
        conn.info_number("clients", "connected_clients") == 2
    });
    drop(waiting);
}

#[test]
fn the_log_is_about_this_server() {
    let server = Server::start(&["--loglevel", "debug"]);
    server.connect().must("PING");
    let log = server.log();
    assert!(log.contains("Accepted 127.0.0.1:"), "{log}");
    assert!(!log.contains("event source"), "lines of mio: {log}");
    wait_for("the end of the connection", || {
        let log = server.log();
        log.contains("Client closed connection id=") && log.contains("addr=127.0.0.1:")
    });
    let server = Server::start(&["--loglevel", "notice"]);
    server.connect().must("PING");
    assert!(!server.log().contains("Accepted"), "{}", server.log());
}

#[test]
fn lines_of_scripts_are_in_the_log() {
    let server = Server::start(&["--loglevel", "notice"]);
    let mut conn = server.connect();
    for (level, text) in [("NOTICE", "wanted"), ("VERBOSE", "too detailed")] {
        let script = format!("redis.log(redis.LOG_{level}, '{text}')");
        conn.call(&["EVAL", &script, "0"]);
    }
    let log = server.log();
    assert!(log.contains("wanted"), "{log}");
    assert!(!log.contains("too detailed"), "{log}");
}

#[test]
fn few_connections_at_a_time_are_still_all_of_them() {
    let server = Server::start(&["--max-new-connections-per-cycle", "1"]);
    let mut all: Vec<Conn> = (0..50).map(|_| server.connect()).collect();
    for conn in &mut all {
        conn.must("PING");
    }
}

#[test]
fn without_latency_tracking_there_are_no_histograms() {
    let server = Server::start(&["--latency-tracking", "no"]);
    let mut conn = server.connect();
    conn.must("SET a 1");
    assert_eq!(conn.must("LATENCY HISTOGRAM").flat(), Some(Vec::new()));
    assert!(
        conn.must("INFO commandstats")
            .text()
            .contains("cmdstat_set:calls=1")
    );
    conn.must("CONFIG SET latency-tracking yes");
    conn.must("SET a 1");
    let reply = conn.must("LATENCY HISTOGRAM set").flat().unwrap();
    assert_eq!(reply.first(), Some(&Value::bulk("set")));
    assert!(conn.must("INFO latencystats").text().contains("_set:"));
    conn.must("CONFIG SET latency-tracking no");
    conn.must("CONFIG RESETSTAT");
    conn.must("SET a 1");
    assert_eq!(conn.must("LATENCY HISTOGRAM set").flat(), Some(Vec::new()));
}

#[test]
fn the_memory_budget_is_maxmemory() {
    let server = Server::start(&["--maxmemory", "64mb"]);
    let mut conn = server.connect();
    assert_eq!(conn.info_number("memory", "memory_budget"), 64 << 20);
    assert!(conn.info_number("memory", "block_cache_budget") < 64 << 20);
}

/// Text from scripts, clients and masters cannot add lines to the log or send control
/// sequences to a terminal.
#[test]
fn control_characters_of_others_are_escaped_in_the_log() {
    let server = Server::start(&["--loglevel", "debug"]);
    let mut conn = server.connect();
    let script = r"redis.log(redis.LOG_WARNING, 'first\nforged \27[31mred\0end')";
    conn.call(&["EVAL", script, "0"]);
    wait_for("the line", || server.log().contains("forged"));
    let log = server.log();
    let line = log.lines().find(|line| line.contains("forged")).unwrap();
    assert!(
        line.ends_with(r"first\nforged \u{1b}[31mred\u{0}end"),
        "{line:?}"
    );
    assert!(!log.contains('\u{1b}'), "{log:?}");
}
