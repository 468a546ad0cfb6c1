//! Server processes: ours and the oracle.
//!
//! Each has a data directory, a port and a log file of its own; dropping it
//! kills it by pid. When the test is failing, the end of the log is printed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use super::cgroup::Cgroup;
use super::conn::Conn;
use super::resp::Value;
use super::{DEADLINE, wait_within};

/// A running server, or one that was stopped and can be started again.
pub struct Server {
    binary: PathBuf,
    dir: tempfile::TempDir,
    port: Port,
    pub flags: Vec<String>,
    /// Environment variables besides those of the test.
    pub env: Vec<(String, String)>,
    /// Its data directory, if not in its own temporary directory.
    pub data: Option<PathBuf>,
    /// For the next start only: see [`Server::restart_failing`].
    fail_point: Option<String>,
    child: Option<Child>,
    /// The cgroup in which it runs.
    cgroup: Option<Cgroup>,
}

/// A loopback port that no other test of this process gets until it is dropped, so that a
/// stopped server can start again on its port.
#[derive(Debug)]
pub struct Port(u16);

/// A port without a listener. It is below the ephemeral range of the kernel, so that no outgoing
/// connection uses it.
pub fn free_port() -> Port {
    const OF_A_PROCESS: u16 = 500;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 20_000 + (std::process::id() % 24) as u16 * OF_A_PROCESS;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed) % OF_A_PROCESS;
        if GIVEN.lock().unwrap().insert(port) {
            let port = Port(port);
            if std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok() {
                return port;
            }
        }
    }
}

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

impl Deref for Port {
    type Target = u16;

    fn deref(&self) -> &u16 {
        &self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        GIVEN.lock().unwrap().remove(&self.0);
    }
}

/// The path of redis-server, the reference for behaviour. `KEDIS_ORACLE` names the program: it
/// may be another version or Valkey, for which not all tests are made. Otherwise it is looked
/// up in PATH, /usr/bin and the cache folder, where tools/env links the program of Debian's
/// package redis-tools, which has another name there.
fn oracle_binary() -> PathBuf {
    if let Some(program) = std::env::var_os("KEDIS_ORACLE") {
        return program.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let linked = cache.or(home).map(|folder| folder.join("kedis/bin"));
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/bin")])
        .chain(linked)
        .map(|folder| folder.join("redis-server"))
        .find(|program| program.exists())
        .expect(
            "redis-server is missing: install Debian's redis-server, these tests compare with it",
        )
}

/// Starts the oracle; fails if it is not installed, so that no comparison is skipped.
pub fn oracle(extra: &[&str]) -> Server {
    let mut flags = vec!["--save", "", "--appendonly", "no", "--loglevel", "warning"];
    flags.extend_from_slice(extra);
    Server::start_binary(oracle_binary(), &flags)
}

/// Starts the oracle with this configuration file.
pub fn oracle_with_file(file: &str) -> Server {
    Server::start_binary(oracle_binary(), &[file])
}

/// Starts Redis' Sentinel with this configuration file.
pub fn sentinel(file: &str) -> Server {
    Server::start_binary(oracle_binary(), &[file, "--sentinel"])
}

/// Our server: the one built with these tests, or `KEDIS_SERVER`.
pub fn binary() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_kedis-server");
    std::env::var_os("KEDIS_SERVER").map_or_else(|| PathBuf::from(built), PathBuf::from)
}

impl Server {
    /// Starts our server on an empty directory with further flags
    /// (`["--requirepass", "x"]`).
    pub fn start(flags: &[&str]) -> Server {
        Server::start_binary(binary(), flags)
    }

    fn start_binary(binary: PathBuf, flags: &[&str]) -> Server {
        let mut server = Server::new(binary, flags);
        server.spawn();
        server
    }

    fn new(binary: PathBuf, flags: &[&str]) -> Server {
        Server {
            binary,
            dir: tempfile::tempdir().unwrap(),
            port: free_port(),
            flags: flags.iter().map(|f| f.to_string()).collect(),
            env: Vec::new(),
            data: None,
            child: None,
            fail_point: None,
            cgroup: None,
        }
    }

    /// The path of its program.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Our server, to be started with [`Server::spawn`].
    pub fn prepare(flags: &[&str]) -> Server {
        Server::new(binary(), flags)
    }

    /// Starts our server in a memory cgroup.
    pub fn start_within(cgroup: Cgroup, flags: &[&str]) -> Server {
        let mut server = Server::new(binary(), flags);
        server.cgroup = Some(cgroup);
        server.spawn();
        server
    }

    /// Starts our server on an empty directory with a fail point (`name:count:error`) until its
    /// next start. Needs debug assertions.
    pub fn start_failing(flags: &[&str], fail_point: &str) -> Server {
        let mut server = Server::new(binary(), flags);
        server.fail_point = Some(fail_point.to_owned());
        server.spawn();
        server.fail_point = None;
        server
    }

    /// Kills and restarts the process with a fail point (`name:count:error`) until its next start.
    /// Needs debug assertions.
    pub fn restart_failing(&mut self, fail_point: &str) {
        self.kill9();
        self.fail_point = Some(fail_point.to_owned());
        self.spawn();
        self.fail_point = None;
    }

    /// The command line without the process: for starts that must fail.
    pub fn command(dir: &Path, port: u16, flags: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(["--port", &port.to_string()])
            .args(["--dir", &dir.display().to_string()])
            .args(flags)
            .stdin(Stdio::null());
        command
    }

    /// The same with a configuration file.
    pub fn command_with_file(file: &str, dir: &Path, port: u16) -> Command {
        let mut command = Command::new(binary());
        command
            .arg(file)
            .args(["--port", &port.to_string()])
            .args(["--dir", &dir.display().to_string()])
            .stdin(Stdio::null());
        command
    }

    /// Starts the process again on the same directory and port.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "already running");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        let port = self.port.to_string();
        let data = self.data_dir();
        fs::create_dir_all(&data).unwrap();
        let mut command = match &self.cgroup {
            None => Command::new(&self.binary),
            Some(cgroup) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
                shell.arg(cgroup.processes()).arg(&self.binary);
                shell
            }
        };
        // A flag without dashes in front is a configuration file: it goes first.
        let file = self.flags.first().filter(|flag| !flag.starts_with('-'));
        command
            .args(file)
            .args(["--port", &port, "--dir", &data.display().to_string()])
            .args(&self.flags[usize::from(file.is_some())..])
            // SORT ALPHA uses strcoll: compare bytes, whatever the locale is.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command.envs(self.env.iter().cloned());
        if let Some(point) = &self.fail_point {
            command.env("KEDIS_FAIL_POINT", point);
        }
        let says = |name: &str| self.flags.iter().any(|flag| flag == name);
        if !says("--bind") {
            command.args(["--bind", "127.0.0.1"]);
        }
        // Many servers run beside each other.
        if file.is_none() && self.binary == binary() && !says("--disk-reserve") {
            command.args(["--disk-reserve", "1mb"]);
        }
        // As if data were far beyond memory: see tests/README.md.
        if let Some(one_in) = std::env::var_os("KEDIS_TEST_COLD")
            && self.binary == binary()
        {
            command.env("KEDIS_PRETEND_COLD", one_in);
            if file.is_none() && !says("--maxmemory") {
                command.args(["--maxmemory", "32mb", "--rocksdb.direct-reads", "yes"]);
            }
        }
        // With strings of so many bytes in small segments of the value log, unless the test measures what
        // the segments take.
        if let Some(least) = std::env::var_os("KEDIS_TEST_VALUES")
            && self.binary == binary()
            && file.is_none()
            && !says("--value-log-min")
            && !says("--max-disk")
            && self.cgroup.is_none()
        {
            // Short ones that pack well are in tables.
            let least = least.to_string_lossy().into_owned();
            let packed = least.parse::<u64>().map_or(0, |least| 4 * least);
            command.args([
                "--value-log-segment-size",
                "16kb",
                "--value-log-min",
                &least,
            ]);
            command.args(["--value-log-packed-min", &packed.to_string()]);
        }
        // Also on a machine where the default would be 1.
        if file.is_none() && self.binary == binary() && !says("--io-threads") {
            command.args(["--io-threads", "2"]);
        }
        let child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {}: {e}", self.binary.display()));
        self.child = Some(child);
        let up = wait_within(DEADLINE, || {
            if let Some(status) = self.exited() {
                panic!(
                    "{} ended at once with {status}; its log:\n{}",
                    self.binary.display(),
                    self.log_tail()
                );
            }
            self.answers()
        });
        assert!(
            up,
            "{} does not answer PING:\n{}",
            self.binary.display(),
            self.log_tail()
        );
    }

    /// Whether the server replies to PING; NOAUTH counts as a reply.
    fn answers(&self) -> bool {
        let Ok(mut conn) = Conn::open(&self.address()) else {
            return false;
        };
        conn.set_timeout(Duration::from_secs(5));
        match conn.cmd("PING") {
            Value::Simple(_) => true,
            Value::Error(text) => text.starts_with(b"NOAUTH"),
            _ => false,
        }
    }

    /// `127.0.0.1:port`, or the first `--bind` address.
    pub fn address(&self) -> String {
        let bind = self
            .flags
            .iter()
            .position(|f| f == "--bind")
            .and_then(|at| self.flags.get(at + 1));
        match bind.and_then(|list| list.split_whitespace().next()) {
            Some(host) if host.contains(':') => format!("[{host}]:{}", *self.port),
            Some(host) => format!("{host}:{}", *self.port),
            None => format!("127.0.0.1:{}", *self.port),
        }
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        *self.port
    }

    /// The process id of the running server.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    /// The data directory of the server.
    pub fn data_dir(&self) -> PathBuf {
        let own = || self.dir.path().join("data");
        self.data.clone().unwrap_or_else(own)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// The output of the server, over all its starts.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// A new connection; panics if the server refuses it.
    pub fn connect(&self) -> Conn {
        Conn::open(&self.address())
            .unwrap_or_else(|e| panic!("cannot connect to {}: {e}", self.address()))
    }

    /// The exit status, if the process has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child
            .as_mut()
            .and_then(|child| child.try_wait().unwrap())
    }

    /// Whether the process runs.
    pub fn alive(&mut self) -> bool {
        self.child.is_some() && self.exited().is_none()
    }

    /// SIGKILL, and reaps it.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().unwrap();
        }
    }

    /// Sends a signal by name (`TERM`, `INT`, `STOP`). For `STOP` it waits until all threads have
    /// stopped.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status()
            .unwrap();
        assert!(status.success(), "kill -s {name}: {status}");
        if name == "STOP" {
            assert!(
                wait_within(DEADLINE, || self.has_stopped()),
                "SIGSTOP had no effect"
            );
        }
    }

    /// Whether all threads are stopped, by the state field in `/proc`.
    fn has_stopped(&self) -> bool {
        let threads = format!("/proc/{}/task", self.pid());
        let threads = std::fs::read_dir(threads).expect("its threads");
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat"));
            let stat = stat.unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
            state.is_none_or(|rest| rest.starts_with('T'))
        })
    }

    /// Waits for the process to end by itself.
    pub fn wait_exit(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = wait_within(DEADLINE, || {
            status = self.exited();
            status.is_some()
        });
        assert!(ended, "the server did not end:\n{}", self.log_tail());
        self.child = None;
        status.unwrap()
    }

    /// SIGTERM, and waits for the end.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait_exit()
    }

    /// Stops gracefully and starts again; returns the duration of the start.
    pub fn restart(&mut self) -> Duration {
        self.terminate();
        let start = Instant::now();
        self.spawn();
        start.elapsed()
    }

    /// Has the server use the other one of the two memtables from its next start on.
    pub fn change_memtable(&mut self) {
        const FLAG: &str = "--rocksdb.memtable";
        match self.flags.iter().position(|flag| flag == FLAG) {
            Some(at) => _ = self.flags.drain(at..at + 2),
            None => self.flags.extend([FLAG.to_owned(), "skiplist".to_owned()]),
        }
    }

    /// Sets the soft limit of open files of the process; returns the previous one.
    pub fn limit_files(&self, most: u64) -> u64 {
        use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
        let limit = Rlimit {
            current: Some(most),
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        let pid = Pid::from_raw(self.pid() as i32);
        let before = prlimit(pid, Resource::Nofile, limit).expect("a limit");
        before.current.unwrap_or(u64::MAX)
    }

    /// Resident memory in bytes.
    pub fn rss(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Peak resident memory in bytes.
    pub fn peak_rss(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        let kb: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kb * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("--- {} log:\n{}", self.binary.display(), self.log_tail());
        }
        self.kill9();
    }
}
