//! The server as a service: systemd notifications, moved log files, messages about the
//! configuration, and commands for features that Kedis does not have.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::support::server::free_port;
use crate::support::{Conn, DEADLINE, Server, Value, oracle, wait_for};

/// The notification socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    received: Vec<String>,
}

impl Manager {
    fn new(socket: UnixDatagram) -> Manager {
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Manager {
            socket,
            received: Vec::new(),
        }
    }

    /// Waits for a message with this line; returns it.
    fn wait_for(&mut self, line: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let read = self.socket.recv(&mut buffer);
            let read = read.unwrap_or_else(|error| panic!("{line}: {error}: {:?}", self.received));
            let text = String::from_utf8(buffer[..read].to_vec()).unwrap();
            self.received.push(text.clone());
            if text.lines().any(|text| text == line) {
                return text;
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let read = self.socket.recv(&mut [0; 16]);
        self.socket.set_nonblocking(false).unwrap();
        read.is_err()
    }
}

/// Without notifications a unit of Type=notify never started.
#[test]
fn systemd_is_notified_of_start_reload_and_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let name = format!("kedis-test-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
    let sockets = [
        (
            UnixDatagram::bind(&path).unwrap(),
            path.display().to_string(),
            "systemd",
        ),
        (
            UnixDatagram::bind_addr(&abstract_name).unwrap(),
            format!("@{name}"),
            "auto",
        ),
    ];
    for (socket, name, supervised) in sockets {
        let mut manager = Manager::new(socket);
        // A supervised server stays in the foreground.
        let flags = ["--supervised", supervised, "--daemonize", "yes"];
        let mut server = Server::prepare(&flags);
        server.env = vec![
            ("NOTIFY_SOCKET".into(), name),
            ("WATCHDOG_USEC".into(), "600000".into()),
        ];
        server.spawn();
        manager.wait_for("READY=1");
        let opening = manager.received.first().unwrap();
        assert!(opening.contains("EXTEND_TIMEOUT_USEC="), "{opening}");
        let mut conn = server.connect();
        assert_eq!(conn.info_text("server", "process_supervised"), "systemd");
        manager.wait_for("WATCHDOG=1");
        manager.wait_for("WATCHDOG=1");
        server.signal("HUP");
        let reloading = manager.wait_for("RELOADING=1");
        let since = reloading
            .lines()
            .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(since.unwrap().parse::<u64>().unwrap() > 0);
        manager.wait_for("READY=1");
        conn.must("PING");
        server.terminate();
        manager.wait_for("STOPPING=1");
    }
}

#[test]
fn a_server_that_is_not_supervised_sends_no_notifications() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = Manager::new(UnixDatagram::bind(&path).unwrap());
    let mut server = Server::prepare(&[]);
    server.env = vec![("NOTIFY_SOCKET".into(), path.display().to_string())];
    server.spawn();
    server.terminate();
    assert!(manager.is_silent());
    // A server that is configured as supervised but is not logs that.
    let server = Server::start(&["--supervised", "systemd"]);
    assert!(server.log().contains("supervised is systemd, but"));
    let mut conn = server.connect();
    assert_eq!(conn.info_text("server", "process_supervised"), "no");
}

/// The server continued to write to the moved file.
#[test]
fn a_log_file_that_is_moved_away_is_created_again() {
    let flags = ["--logfile", "k.log", "--loglevel", "verbose"];
    let server = Server::start(&flags);
    let path = |name: &str| server.data_dir().join(name);
    let read = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
    assert!(read("k.log").contains("Ready to accept connections on"));
    fs::rename(path("k.log"), path("k.log.1")).unwrap();
    server.connect().must("PING");
    wait_for("a line of the new file", || {
        read("k.log").contains("Accepted")
    });
    // Lines in flight have reached the old file before.
    let before = read("k.log.1").len();
    fs::rename(path("k.log"), path("k.log.2")).unwrap();
    server.signal("HUP");
    wait_for("the line of the signal", || {
        read("k.log").contains("SIGHUP")
    });
    assert!(!read("k.log.2").contains("SIGHUP"));
    assert_eq!(read("k.log.1").len(), before);
}

#[test]
fn a_policy_that_asks_for_eviction_is_warned_of() {
    const WARNING: &str = "but no key is evicted because of it";
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru", "--maxmemory", "64mb"]);
    assert!(server.log().contains(WARNING), "{}", server.log());
    let mut conn = server.connect();
    assert!(conn.must("MEMORY DOCTOR").text().contains(WARNING));
    conn.must("CONFIG SET maxmemory-policy noeviction");
    let said = conn.must("MEMORY DOCTOR").text();
    assert!(!said.contains(WARNING), "{said}");
    let before = server.log().matches(WARNING).count();
    conn.must("CONFIG SET maxmemory-policy volatile-ttl");
    wait_for("the warning", || {
        server.log().matches(WARNING).count() > before
    });
    let server = Server::start(&["--maxmemory", "512mb"]);
    assert!(!server.log().contains(WARNING));
    // INFO and MEMORY DOCTOR report the same budget.
    let mut conn = server.connect();
    let budget = conn.info_text("memory", "memory_budget_human");
    let said = conn.must("MEMORY DOCTOR").text();
    assert!(said.contains(&format!("the budget is {budget}")), "{said}");
}

#[test]
fn a_start_says_what_it_makes_of_its_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let run = |data: &std::path::Path, flags: &[&str]| {
        let output = Server::command(data, *port, flags).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (ok, text) = run(dir.path(), &["--maxmemmory", "1gb"]);
    let expected = "no parameter has the name 'maxmemmory', did you mean 'maxmemory'?";
    assert!(!ok && text.contains(expected), "{text}");
    let mut server = Server::prepare(&["--logfile", "k.log", "--dynamic-hz", "no"]);
    let data = dir.path().join("a/b");
    server.data = Some(data.clone());
    // The harness creates `dir`, so the test uses a directory below it.
    server
        .flags
        .extend(["--dir".into(), data.join("c").display().to_string()]);
    server.spawn();
    let log = fs::read_to_string(data.join("c/k.log")).unwrap();
    assert!(log.contains("did not exist and was made"), "{log}");
    assert!(log.contains("without effect here: dynamic-hz"), "{log}");
    server.restart();
    let log = fs::read_to_string(data.join("c/k.log")).unwrap();
    assert_eq!(log.matches("did not exist").count(), 1);
    fs::write(dir.path().join("file"), "").unwrap();
    let (ok, text) = run(&dir.path().join("file"), &[]);
    assert!(!ok && text.contains("cannot make the directory"), "{text}");
}

/// These were unknown commands.
#[test]
fn users_modules_and_clusters_are_answered_as_by_a_redis_without_them() {
    let flags = ["--save", ""];
    let (ours, theirs) = (Server::start(&flags), oracle(&[]));
    let mut clients = [ours.connect(), theirs.connect()];
    for line in [
        "ACL",
        "ACL WHOAMI",
        "ACL WHOAMI x",
        "ACL USERS",
        "ACL USERS x",
        "ACL NOPE",
        "ACL CAT nope",
        "ACL CAT read x",
        "ACL GETUSER nobody",
        "ACL LOG",
        "ACL LOG 5",
        "ACL LOG x",
        "ACL LOG -1",
        "ACL LOG RESET",
        "ACL LOG RESET x",
        "ACL GENPASS x",
        "ACL GENPASS 0",
        "ACL GENPASS 4097",
        "ACL GENPASS 1 2",
        "ACL DELUSER default",
        "ACL DELUSER nobody",
        "ACL SAVE",
        "ACL LOAD",
        "ACL DRYRUN default get x",
        "ACL DRYRUN nobody get x",
        "ACL DRYRUN default nope",
        "ACL DRYRUN default get",
        "ACL DRYRUN default config nope",
        "ACL DRYRUN default config get",
        "MODULE",
        "MODULE LIST",
        "MODULE LIST x",
        "MODULE NOPE",
        "MODULE LOAD /x",
        "MODULE LOADEX /x",
        "MODULE UNLOAD x",
        "CLUSTER",
        "CLUSTER INFO",
        "CLUSTER INFO x",
        "CLUSTER NODES",
        "CLUSTER SLOTS",
        "CLUSTER SHARDS",
        "CLUSTER MYID",
        "CLUSTER KEYSLOT x",
        "CLUSTER HELP",
        "CLUSTER NOPE",
        "CLUSTER MEET x",
        "CLUSTER ADDSLOTS 1",
        "CLUSTER RESET",
        "READONLY",
        "READWRITE",
        "READONLY x",
        "ASKING",
        "ASKING x",
    ] {
        let [our, their] = clients.each_mut().map(|client| client.cmd(line));
        assert_eq!(our, their, "{line}");
    }
    let [our, their] = clients;
    check_users(our, their);
    let allowed = ["--enable-module-command", "yes"];
    let mut clients = [Server::start(&allowed), oracle(&allowed)].map(|server| {
        let client = server.connect();
        (server, client)
    });
    for line in [
        "MODULE LOAD /nowhere.so",
        "MODULE UNLOAD nope",
        "MODULE LIST",
    ] {
        let [our, their] = clients.each_mut().map(|(_, client)| client.cmd(line));
        assert_eq!(our, their, "{line}");
    }
}

/// Compares ACL LIST, GETUSER and CAT; since Redis 7.2 users have one more flag.
fn check_users(mut our: Conn, mut their: Conn) {
    let without_word = |text: String| text.replace(" sanitize-payload", "");
    for password in ["", "secret"] {
        for client in [&mut our, &mut their] {
            assert_eq!(
                client.call(&["CONFIG", "SET", "requirepass", password]),
                Value::ok()
            );
        }
        let [ours, theirs] = [&mut our, &mut their].map(|client| {
            let list = client.must("ACL LIST");
            without_word(list.items()[0].text())
        });
        assert_eq!(ours, theirs);
        for hello in [false, true] {
            let [ours, theirs] = [&mut our, &mut their].map(|client| {
                if hello {
                    client.hello3();
                }
                let user = client.must("ACL GETUSER default");
                let mut fields = user.pairs();
                let flags = fields.remove(0).1.flat().unwrap();
                let word = Value::bulk("sanitize-payload");
                let flags: Vec<_> = flags.into_iter().filter(|flag| *flag != word).collect();
                // A field of Valkey.
                fields.retain(|(name, _)| *name != Value::bulk("databases"));
                (flags, fields)
            });
            assert_eq!(ours, theirs, "RESP3: {hello}");
        }
        for client in [&mut our, &mut their] {
            client.must("RESET");
            client.cmd(&format!("AUTH {password}"));
        }
    }
    let [ours, theirs] = [&mut our, &mut their].map(|client| client.must("ACL CAT"));
    for category in theirs.items() {
        assert!(ours.items().contains(category), "{category:?}");
        let line = format!("ACL CAT {}", category.text());
        let [ours, theirs] = [&mut our, &mut their].map(|client| {
            let names = client.must(&line);
            let names: std::collections::BTreeSet<_> =
                names.items().iter().map(Value::text).collect();
            names
        });
        let all = their.must("COMMAND LIST");
        let all: std::collections::BTreeSet<_> = all.items().iter().map(Value::text).collect();
        let known: Vec<_> = our
            .must("COMMAND LIST")
            .items()
            .iter()
            .map(Value::text)
            .collect();
        // WAIT counts as blocking since Redis 7.2.
        let both = |names: std::collections::BTreeSet<String>| {
            names
                .into_iter()
                .filter(|name| all.contains(name) && known.contains(name) && name != "wait")
                .collect::<Vec<_>>()
        };
        assert_eq!(both(ours), both(theirs), "{line}");
    }
    let password = our.must("ACL GENPASS 5").text();
    assert_eq!(password.len(), 2);
    let passwords = [0; 2].map(|_| our.must("ACL GENPASS").text());
    assert!(passwords.iter().all(|password| password.len() == 64));
    assert_ne!(passwords[0], passwords[1]);
}

/// The lines of a server's log that are JSON objects.
fn json_lines(server: &Server) -> Vec<serde_json::Value> {
    let log = server.log();
    let lines = log.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn a_log_of_json_objects() {
    let server = Server::start(&["--log-format", "json"]);
    let mut conn = server.connect();
    let log = server.log();
    assert!(log.lines().all(|line| line.starts_with('{')), "{log}");
    let script = r#"redis.log(redis.LOG_WARNING, 'a "quoted"\nword \\ \27[31m')"#;
    conn.call(&["EVAL", script, "0"]);
    wait_for("the line", || server.log().contains("quoted"));
    let lines = json_lines(&server);
    let line = lines
        .iter()
        .find(|line| line["message"].as_str().unwrap().contains("quoted"))
        .unwrap();
    let message = line["message"].as_str().unwrap();
    assert!(
        message.contains("a \"quoted\"") && message.contains("word \\"),
        "{message}"
    );
    assert_eq!(line["level"], "warn");
    assert!(
        line["thread"].as_str().unwrap().starts_with("io-"),
        "{line}"
    );
    let is_ours = |line: &serde_json::Value| line["module"].as_str().unwrap().starts_with("kedis");
    assert!(lines.iter().all(is_ours), "{lines:?}");
    let time = line["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    conn.must("CONFIG SET log-format text");
    conn.call(&["EVAL", "redis.log(redis.LOG_WARNING, 'as text')", "0"]);
    wait_for("the line", || server.log().contains("as text"));
    let log = server.log();
    let line = log.lines().find(|line| line.contains("as text")).unwrap();
    assert!(line.contains(" WARN  io-"), "{line}");
}

/// The names and values of a line in logfmt, and its message.
fn logfmt_line(line: &str) -> (Vec<(&str, &str)>, String) {
    let (words, message) = line.split_once(" message=").expect(line);
    let words = words
        .split(' ')
        .map(|word| word.split_once('=').expect(line));
    let message = serde_json::from_str(message).unwrap_or_else(|error| panic!("{error}: {line}"));
    (words.collect(), message)
}

#[test]
fn a_log_of_words_with_names() {
    let server = Server::start(&["--log-format", "logfmt"]);
    let mut conn = server.connect();
    let script = r#"redis.log(redis.LOG_WARNING, 'a "quoted"\nword=1 message="2" \27[31m')"#;
    conn.call(&["EVAL", script, "0"]);
    wait_for("the line", || server.log().contains("quoted"));
    let log = server.log();
    let lines: Vec<_> = log.lines().map(logfmt_line).collect();
    for (words, _) in &lines {
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["time", "level", "thread", "module"], "{log}");
    }
    let (words, message) = lines
        .iter()
        .find(|(_, message)| message.contains("quoted"))
        .unwrap();
    assert_eq!(words[1].1, "warn");
    assert!(words[2].1.starts_with("io-"), "{words:?}");
    assert!(
        message.contains("a \"quoted\"") && message.contains("word=1 message=\"2\""),
        "{message}"
    );
}

#[test]
fn modules_are_logged_at_levels_of_their_own() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let accepted = |server: &Server| server.log().matches("Accepted ").count();
    assert_eq!(accepted(&server), 0);
    assert_eq!(
        conn.call(&["CONFIG", "SET", "log-levels", "net verbose"]),
        Value::ok()
    );
    server.connect().must("PING");
    wait_for("a line of net", || accepted(&server) > 0);
    assert!(!server.log().contains(" DEBUG memory"), "other modules");
    assert_eq!(conn.call(&["CONFIG", "SET", "log-levels", ""]), Value::ok());
    let before = accepted(&server);
    server.connect().must("PING");
    conn.must("PING");
    assert_eq!(accepted(&server), before);
    let refused = conn.call(&["CONFIG", "SET", "log-levels", "network debug"]);
    let error = refused.error().unwrap();
    assert!(
        error.contains("must be one of the following: base"),
        "{error}"
    );
}
