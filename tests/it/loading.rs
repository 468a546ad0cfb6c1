//! Redis' files, loaded at the start: append-only logs, replies to clients during the load,
//! and the message of a server that finds such files and does not load them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::conn::encode;
use crate::support::server::free_port;
use crate::support::{Conn, Server, Value, oracle, wait_for};

const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

/// A Redis with an append-only log, to fill with all types.
fn redis_with_log(base: &str) -> Server {
    let flags = ["--appendonly", "yes", "--appendfsync", "always"];
    let preamble = [
        "--aof-use-rdb-preamble",
        base,
        "--aof-timestamp-enabled",
        "yes",
    ];
    let redis = oracle(&[&flags[..], &preamble, &DEBUG].concat());
    let mut conn = redis.connect();
    for n in 0..200 {
        conn.must(&format!("SET key:{n} value-{n}"));
        conn.must(&format!("RPUSH list {n}"));
        conn.must(&format!("HSET hash field-{n} {n}"));
    }
    conn.must("SET over-in-base x");
    conn.must("SET kept x PX 30");
    redis
}

/// Adds commands that are logged in the increments.
fn write_more(redis: &Server) {
    let mut conn = redis.connect();
    let code = "#!lua name=one\nredis.register_function('f', function() return 'one.f' end)";
    assert_eq!(conn.call(&["FUNCTION", "LOAD", code]), Value::bulk("one"));
    conn.must("ZADD zset 1 a 2 b 3.5 c");
    conn.must("XADD stream 5-1 field value");
    conn.must("XGROUP CREATE stream group 0");
    conn.must("XREADGROUP GROUP group me STREAMS stream >");
    conn.must("SETBIT bits 1000 1");
    conn.must("PFADD hll a b c");
    conn.must("SELECT 3");
    conn.must("SADD set 1 2 three");
    conn.must("MULTI");
    conn.must("INCR counter");
    conn.must("EXPIREAT counter 4102444800");
    conn.must("RENAME counter counted");
    conn.must("EXEC");
    conn.must("MOVE set 5");
    let script = "redis.call('SET', KEYS[1], 'by script') return redis.call('TIME')";
    conn.call(&["EVAL", script, "1", "scripted"]);
    conn.must("SET soon x PX 1");
    conn.must("DEL nothing");
    conn.must("SWAPDB 3 4");
}

/// The base file and the increment file of a log.
fn parts(redis: &Server) -> (PathBuf, PathBuf) {
    let dir = redis.data_dir().join("appendonlydir");
    let files = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.collect();
    let named = |kind: &str| {
        let mut fitting = files
            .iter()
            .filter(|file| file.to_string_lossy().contains(kind));
        fitting.next().expect(kind).clone()
    };
    (named(".base."), named(".incr."))
}

/// A server that has loaded the file.
fn loaded_from(path: &Path) -> Server {
    let path = path.display().to_string();
    let server = Server::start(&[&DEBUG[..], &["--load-rdb", &path]].concat());
    let mut conn = server.connect();
    conn.must("DEBUG KEDIS-CHECK");
    server
}

/// Runs a start that must fail; returns the output.
fn refused(dir: &Path, path: &Path, flags: &[&str]) -> String {
    let path = path.display().to_string();
    let port = free_port();
    let flags = [&["--load-rdb", &path], flags].concat();
    let output = Server::command(dir, *port, &flags).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(!output.status.success(), "it runs with {path}: {text}");
    text
}

/// The keys of a DB with their contents, in an order that does not depend on the server.
fn contents(conn: &mut Conn) -> BTreeMap<String, String> {
    let keys = conn.must("KEYS *");
    let keys: Vec<String> = keys.items().iter().map(Value::text).collect();
    let mut found = BTreeMap::new();
    for key in keys {
        let kind = conn.must(&format!("TYPE {key}")).text();
        let read = match kind.as_str() {
            "string" => "GET {}",
            "list" => "LRANGE {} 0 -1",
            "set" => "SMEMBERS {}",
            "zset" => "ZRANGE {} 0 -1 WITHSCORES",
            "hash" => "HGETALL {}",
            "stream" => "XINFO STREAM {} FULL",
            _ => continue, // it is over by now
        };
        let value = conn.must(&read.replace("{}", &key));
        let mut parts: Vec<String> = match kind.as_str() {
            "string" => vec![format!("{value:?}")],
            // Delivery times and node sizes differ between servers.
            "stream" => {
                let entries = conn.must(&format!("XRANGE {key} - +"));
                let pending = conn.must(&format!("XPENDING {key} group"));
                vec![format!("{entries:?} {pending:?}")]
            }
            _ => value
                .items()
                .iter()
                .map(|item| format!("{item:?}"))
                .collect(),
        };
        if kind == "set" || kind == "hash" {
            parts.sort();
        }
        let expires = conn.must(&format!("PEXPIRETIME {key}"));
        found.insert(key, format!("{kind} {parts:?} {expires:?}"));
    }
    found
}

/// Checks that both servers have the same data.
fn compare(ours: &Server, theirs: &Server) {
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    for db in 0..16 {
        let [our, their] = [&mut ours, &mut theirs].map(|conn| {
            conn.must(&format!("SELECT {db}"));
            // Each server expires the keys by its own clock.
            wait_for("the end of a key", || {
                conn.must("EXISTS soon kept") == Value::Int(0)
            });
            contents(conn)
        });
        assert_eq!(our, their, "DB {db}");
    }
    assert_eq!(ours.must("FCALL f 0"), Value::bulk("one.f"));
}

#[test]
fn append_only_logs_are_loaded_like_rdb_files() {
    for base in ["yes", "no"] {
        let mut redis = redis_with_log(base);
        redis.connect().must("BGREWRITEAOF");
        wait_for("the base", || {
            let mut conn = redis.connect();
            conn.info_number("persistence", "aof_rewrite_in_progress") == 0
                && conn.info_number("persistence", "aof_base_size") > 0
        });
        write_more(&redis);
        let dir = redis.data_dir().join("appendonlydir");
        let (base, increments) = parts(&redis);
        redis.kill9();
        // The directory, the manifest, and a single file of the old format.
        let manifest = dir.join("appendonly.aof.manifest");
        let single = dir.join("single.aof");
        let both = [fs::read(&base).unwrap(), fs::read(&increments).unwrap()].concat();
        fs::write(&single, both).unwrap();
        redis.spawn();
        for path in [&dir, &manifest, &single] {
            let mut server = loaded_from(path);
            compare(&server, &redis);
            // The data is kept after a restart without the files.
            server.flags.truncate(DEBUG.len());
            server.restart();
            compare(&server, &redis);
        }
    }
}

#[test]
fn what_a_crash_has_cut_off_is_left_out() {
    let mut redis = redis_with_log("yes");
    write_more(&redis);
    let dir = redis.data_dir().join("appendonlydir");
    let (_, increments) = parts(&redis);
    redis.kill9();
    for tail in [
        &b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$10\r\nhalf"[..],
        b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n",
    ] {
        let whole = fs::read(&increments).unwrap();
        let mut file = File::options().append(true).open(&increments).unwrap();
        file.write_all(tail).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let text = refused(scratch.path(), &dir, &["--aof-load-truncated", "no"]);
        assert!(text.contains("ends within a command"), "{text}");
        let server = loaded_from(&dir);
        assert!(server.log().contains("they are left out"));
        let mut conn = server.connect();
        assert_eq!(conn.must("EXISTS a"), Value::Int(0));
        assert_eq!(conn.must("GET key:7"), Value::bulk("value-7"));
        fs::write(&increments, whole).unwrap();
    }
}

/// A file that cannot be loaded completely leaves no keys.
#[test]
fn logs_that_are_damaged_are_refused_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let set = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n";
    let good = format!("*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n{set}#TS:1700000000\r\n{set}");
    let scratch = tempfile::tempdir().unwrap();
    let with = |tail: &str| format!("{good}{tail}{set}");
    for (nth, (text, reason)) in [
        (with("garbage\r\n"), "byte 93: this is no command"),
        (with("*1\r\n"), "this is no command"),
        (with("*-1\r\n"), "this is no command"),
        (with("*2\r\n:5\r\n:6\r\n"), "this is no command"),
        (with("*1\r\n$4\r\nEXEC\r\n"), "EXEC stands where"),
        (
            with("*1\r\n$5\r\nMULTI\r\n*1\r\n$5\r\nMULTI\r\n"),
            "MULTI stands where",
        ),
        (
            with("*1\r\n$4\r\nNOPE\r\n"),
            "\"NOPE\" is one that this server does not know",
        ),
        (
            with("*2\r\n$3\r\nGET\r\n$1\r\na\r\n"),
            "\"GET\" is one that this server",
        ),
        (with("*2\r\n$6\r\nSELECT\r\n$2\r\n99\r\n"), "SELECT"),
        (
            with("*3\r\n$5\r\nLPUSH\r\n$1\r\na\r\n$1\r\nx\r\n"),
            "lpush failed: WRONGTYPE",
        ),
        ("hello".to_owned(), "neither an RDB file nor"),
        (String::new(), "neither an RDB file nor"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = write(&format!("{nth}.aof"), text.as_bytes());
        let printed = refused(scratch.path(), &path, &[]);
        assert!(printed.contains(reason), "{text:?}: {printed}");
        let files = format!("file {nth}.aof seq 1 type i\n");
        if text.contains("hello") {
            let manifest = write("one.manifest", files.as_bytes());
            refused(scratch.path(), &manifest, &[]);
        }
    }
    write("good.aof", good.as_bytes());
    let cut = format!("{good}*3\r\n$3\r\nSET\r\n");
    write("cut.aof", cut.as_bytes());
    write("base.rdb", b"REDIS0010\xff\0\0\0\0\0\0\0\0");
    for (files, reason) in [
        ("nonsense", "what does \"nonsense\" mean"),
        ("file ../good.aof seq 1 type i", "what does"),
        ("file missing.aof seq 1 type i", "cannot open"),
        ("", "names no files"),
        (
            "file cut.aof seq 1 type i\nfile good.aof seq 2 type i",
            "ends within a command",
        ),
        (
            "file good.aof seq 1 type b\nfile base.rdb seq 2 type i",
            "not the first file",
        ),
    ] {
        let manifest = write("some.manifest", files.as_bytes());
        let printed = refused(scratch.path(), &manifest, &[]);
        assert!(printed.contains(reason), "{files:?}: {printed}");
    }
    let printed = refused(scratch.path(), scratch.path(), &[]);
    assert!(printed.contains("holds 0 manifests"), "{printed}");
    // The same directory is still empty.
    let mut server = Server::prepare(&DEBUG);
    server.data = Some(scratch.path().to_owned());
    server.spawn();
    let mut conn = server.connect();
    assert_eq!(conn.must("DBSIZE"), Value::Int(0));
    conn.must("DEBUG KEDIS-CHECK");
    server.terminate();
    let path = dir.path().join("good.aof").display().to_string();
    server.flags.extend(["--load-rdb".into(), path]);
    server.spawn();
    assert_eq!(server.connect().must("GET a"), Value::bulk("b"));
}

/// A SAVE of the empty server replaced the copy.
#[test]
fn a_copy_that_is_not_restored_is_named() {
    let mut server = Server::start(&[]);
    let mut conn = server.connect();
    conn.must("SET a 1");
    conn.must("SAVE");
    let lines = |server: &Server| server.log().matches("is a copy of a database").count();
    server.restart();
    assert_eq!(lines(&server), 0);
    server.terminate();
    fs::remove_dir_all(server.data_dir().join("kedis-db")).unwrap();
    server.spawn();
    assert_eq!(lines(&server), 1);
    assert_eq!(server.connect().must("DBSIZE"), Value::Int(0));
    server.terminate();
    let copy = server.data_dir().join("dump.rdb");
    let dir = tempfile::tempdir().unwrap();
    let said = refused(dir.path(), &copy, &[]);
    assert!(said.contains("is a copy of a Kedis database"), "{said}");
    // What the message says.
    fs::remove_dir_all(server.data_dir().join("kedis-db")).unwrap();
    fs::rename(&copy, server.data_dir().join("kedis-db")).unwrap();
    server.spawn();
    assert_eq!(server.connect().must("GET a"), Value::bulk("1"));
}

/// The server started empty without a message.
#[test]
fn files_of_a_redis_that_are_not_loaded_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let redis = redis_with_log("yes");
    redis.connect().must("SAVE");
    let from = redis.data_dir();
    let dump = dir.path().join("dump.rdb");
    let hint = |server: &Server| {
        let log = server.log();
        let line = log.lines().rfind(|line| line.contains("--load-rdb"));
        line.map(str::to_owned)
    };
    fs::copy(from.join("dump.rdb"), &dump).unwrap();
    let mut server = Server::prepare(&[]);
    server.data = Some(dir.path().to_owned());
    server.spawn();
    let line = hint(&server).expect("a line");
    let with = format!("with --load-rdb {} ", dump.display());
    assert!(
        line.contains("starts empty") && line.contains(&with),
        "{line}"
    );
    server.terminate();
    // The file that Redis would load with this configuration comes first.
    let log = dir.path().join("appendonlydir");
    fs::create_dir(&log).unwrap();
    for entry in fs::read_dir(from.join("appendonlydir")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), log.join(entry.file_name())).unwrap();
    }
    server.flags = vec!["--appendonly".into(), "yes".into()];
    server.spawn();
    let line = hint(&server).expect("a line");
    let with = format!("with --load-rdb {} ", log.display());
    assert!(line.contains(&with) && line.contains("dump.rdb"), "{line}");
    // No message if the server has data, or if the file is no dump.
    server.connect().must("SET a 1");
    let lines = |server: &Server| server.log().matches("--load-rdb").count();
    let before = lines(&server);
    server.restart();
    assert_eq!(lines(&server), before);
    let other = Server::prepare(&[]);
    fs::create_dir_all(other.data_dir()).unwrap();
    fs::write(other.data_dir().join("dump.rdb"), "not a dump").unwrap();
    let mut other = other;
    other.spawn();
    assert_eq!(hint(&other), None);
}

/// A process that loads a file.
struct Loader {
    child: Child,
    address: String,
    _port: crate::support::server::Port,
}

impl Loader {
    fn start(mut command: Command, port: crate::support::server::Port) -> Loader {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Loader {
            child,
            address: format!("127.0.0.1:{}", *port),
            _port: port,
        }
    }

    fn connect(&self) -> Conn {
        let mut conn = None;
        wait_for("a connection", || {
            conn = Conn::open(&self.address).ok();
            conn.is_some()
        });
        conn.unwrap()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// PING got no reply until everything was loaded.
#[test]
fn clients_get_loading_while_data_is_loaded() {
    let keys = 400_000;
    let redis = oracle(&DEBUG);
    redis
        .connect()
        .must(&format!("DEBUG POPULATE {keys} key 100"));
    redis.connect().must("SAVE");
    let dump = redis.data_dir().join("dump.rdb");
    let dir = tempfile::tempdir().unwrap();
    fs::copy(&dump, dir.path().join("dump.rdb")).unwrap();
    let path = dump.display().to_string();
    let data = tempfile::tempdir().unwrap();
    let port = free_port();
    let flags = ["--load-rdb", &path, "--bind", "127.0.0.1"];
    let ours = Loader::start(Server::command(data.path(), *port, &flags), port);
    let mut our = ours.connect();
    let our_replies = asked_while_loading(&mut our);
    check_progress(&mut our, fs::metadata(&dump).unwrap().len());
    stop_while_it_loads(ours, data.path());
    // The oracle loads the same file, too slowly to finish during the test.
    let port = free_port();
    let mut command = Command::new(redis.binary());
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--dir", &dir.path().display().to_string()])
        .args(["--key-load-delay", "500"])
        .args(["--loading-process-events-interval-bytes", "1024"]);
    let theirs = Loader::start(command, port);
    let their_replies = asked_while_loading(&mut theirs.connect());
    for ((line, our), (_, their)) in our_replies.iter().zip(&their_replies) {
        assert_eq!(
            is_loading(our),
            is_loading(their),
            "{line}: {our:?} {their:?}"
        );
    }
    drop(theirs);
    // The load again, from the beginning to the end.
    let mut server = Server::prepare(&flags[..2]);
    server.data = Some(data.path().to_owned());
    server.spawn();
    let mut conn = server.connect();
    assert_eq!(conn.must("DBSIZE"), Value::Int(keys));
    assert_eq!(conn.info_number("persistence", "loading"), 0);
    let info = conn.must("INFO persistence").text();
    assert!(!info.contains("loading_start_time"), "{info}");
}

/// A log of these commands, in a directory of its own.
fn log_of(commands: &[&[&str]]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.aof");
    let mut log = Vec::new();
    for command in commands {
        encode(&mut log, command);
    }
    fs::write(&path, log).unwrap();
    (dir, path)
}

/// Commands of scripts got the error LOADING.
#[test]
fn scripts_of_a_log_run_as_they_did() {
    let library = "#!lua name=lib
        redis.register_function('twice', function(keys)
            return redis.call('INCRBY', keys[1], redis.call('GET', keys[1]))
        end)";
    let (_dir, path) = log_of(&[
        &["SELECT", "0"],
        &["EVAL", "return redis.call('INCRBY', KEYS[1], 2)", "1", "n"],
        &["FUNCTION", "LOAD", library],
        &["FCALL", "twice", "1", "n"],
        &["MULTI"],
        &["EVAL", "redis.call('SET', KEYS[1], ARGV[1])", "1", "m", "3"],
        &["FCALL", "twice", "1", "m"],
        &["EXEC"],
    ]);
    let server = loaded_from(&path);
    let mut conn = server.connect();
    assert_eq!(conn.must("GET n"), Value::bulk("4"));
    assert_eq!(conn.must("GET m"), Value::bulk("6"));
    assert_eq!(conn.must("FCALL twice 1 n"), Value::Int(8));
}

/// Only a second SIGTERM ended the server.
#[test]
fn a_script_without_an_end_in_a_log_ends_with_the_server() {
    let script = "redis.call('SET', KEYS[1], '1') while true do end";
    let (_dir, path) = log_of(&[&["SET", "a", "1"], &["EVAL", script, "1", "b"]]);
    let data = tempfile::tempdir().unwrap();
    let port = free_port();
    let path = path.display().to_string();
    let flags = ["--load-rdb", &path, "--bind", "127.0.0.1"];
    let ours = Loader::start(Server::command(data.path(), *port, &flags), port);
    let mut conn = ours.connect();
    wait_for("the load", || is_loading(&conn.cmd("PING")));
    // Without the script the load would end long before.
    for _ in 0..1000 {
        let reply = conn.cmd("PING");
        assert!(is_loading(&reply), "{reply:?}");
    }
    stop_while_it_loads(ours, data.path());
}

fn is_loading(reply: &Value) -> bool {
    reply
        .error()
        .is_some_and(|error| error.starts_with("LOADING"))
}

/// The replies of a server that loads.
fn asked_while_loading(client: &mut Conn) -> Vec<(&'static str, Value)> {
    let reply = client.cmd("PING");
    let text = "LOADING Redis is loading the dataset in memory";
    assert_eq!(reply.error().as_deref(), Some(text));
    // A transaction with a refused command is refused.
    client.must("MULTI");
    assert!(is_loading(&client.cmd("SET a b")));
    let end = client.cmd("EXEC").error().unwrap();
    assert!(end.starts_with("EXECABORT"), "{end}");
    [
        "GET a",
        "SET a b",
        "EXISTS a",
        "DEL a",
        "DBSIZE",
        "FLUSHALL",
        "KEYS *",
        "SCAN 0",
        "RANDOMKEY",
        "EVAL return 0",
        "EVALSHA x 0",
        "FCALL f 0",
        "FUNCTION LIST",
        "SCRIPT EXISTS x",
        "SAVE",
        "BGSAVE",
        "BGREWRITEAOF",
        "REPLICAOF NO ONE",
        "WAIT 0 0",
        "PUBLISH c m",
        "ECHO x",
        "SELECT 1",
        "CONFIG GET port",
        "CONFIG SET hz 11",
        "TIME",
        "CLIENT ID",
        "CLIENT GETNAME",
        "CLIENT SETNAME x",
        "COMMAND COUNT",
        "LASTSAVE",
        "SLOWLOG LEN",
        "LATENCY LATEST",
        "MEMORY DOCTOR",
        "ACL WHOAMI",
        "MODULE LIST",
        "CLUSTER INFO",
        "READONLY",
        "OBJECT HELP",
        "MULTI",
        "EXEC",
        "ROLE",
        "SWAPDB 0 1",
        "MIGRATE h 1 k 0 1",
        "PSYNC ? -1",
        "UNWATCH",
        "WATCH a",
        "NOPE",
        "GET",
        "SUBSCRIBE c",
        "UNSUBSCRIBE c",
        "HELLO 3",
        "RESET",
    ]
    .map(|line| (line, client.cmd(line)))
    .into()
}

fn check_progress(our: &mut Conn, total: u64) {
    let field = |our: &mut Conn, name: &str| our.info_text("persistence", name);
    assert_eq!(field(our, "loading"), "1");
    assert_eq!(field(our, "async_loading"), "0");
    // Clients are served before the file is opened.
    wait_for("the size of the file", || {
        field(our, "loading_total_bytes") == total.to_string()
    });
    wait_for("what the file says of memory", || {
        field(our, "loading_rdb_used_mem") != "0"
    });
    assert!(field(our, "loading_start_time").parse::<u64>().unwrap() > 1_600_000_000);
    wait_for("progress", || {
        let bytes: u64 = field(our, "loading_loaded_bytes").parse().unwrap();
        bytes > 0 && bytes < total
    });
    let percent: f64 = field(our, "loading_loaded_perc").parse().unwrap();
    assert!(percent > 0.0 && percent < 100.0);
    field(our, "loading_eta_seconds").parse::<u64>().unwrap();
}

/// A stop does not wait for the end of the load, and a later start is refused instead of
/// showing a part of the data.
fn stop_while_it_loads(mut ours: Loader, data: &Path) {
    let pid = Pid::from_raw(ours.child.id() as i32).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let mut ended = None;
    wait_for("its end", || {
        ended = ours.child.try_wait().unwrap();
        ended.is_some()
    });
    let status = ended.unwrap();
    assert!(status.success(), "{status}");
    let port = free_port();
    let output = Server::command(data, *port, &[]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        !output.status.success() && text.contains("did not end"),
        "{text}"
    );
}
