//! Start and stop: signals, SHUTDOWN, addresses, configuration mistakes.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::server::{binary, free_port};
use crate::support::{Conn, DEADLINE, Server, Value, args, oracle, unix_ms, wait_for, wait_within};

/// Appends numbers to a list until the connection ends; returns how many were acknowledged
/// and how many were sent.
fn append_numbers(server: &str, list: &str) -> (u64, u64) {
    let mut conn = Conn::open(server).unwrap();
    let (mut acknowledged, mut sent) = (0, 0);
    loop {
        let batch: Vec<_> = (sent..sent + 8)
            .map(|n| args(&format!("RPUSH {list} {n}")))
            .collect();
        sent += 8;
        for reply in conn.pipeline(&batch) {
            match reply {
                Value::Int(length) => {
                    acknowledged += 1;
                    assert_eq!(length, acknowledged as i64);
                }
                Value::Lost(_) => return (acknowledged, sent),
                other => panic!("RPUSH: {other:?}"),
            }
        }
    }
}

fn loses_nothing_when_stopped_by(signal: &str) {
    let mut server = Server::start(&[]);
    let address = server.address();
    let counts: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let address = &address;
        let writers: Vec<_> = (0..4)
            .map(|n| scope.spawn(move || append_numbers(address, &format!("list:{n}"))))
            .collect();
        let mut watch = server.connect();
        wait_for("some load", || watch.cmd("LLEN list:0") >= Value::Int(500));
        server.signal(signal);
        let status = server.wait_exit();
        assert!(status.success(), "SIG{signal}: {status}");
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    server.spawn();
    let mut conn = server.connect();
    for (n, (acknowledged, sent)) in counts.iter().enumerate() {
        let list = conn.must(&format!("LRANGE list:{n} 0 -1"));
        let length = list.items().len() as u64;
        assert!(
            (*acknowledged..=*sent).contains(&length),
            "list:{n} has {length}, acknowledged {acknowledged}, sent {sent}"
        );
        for (at, item) in list.items().iter().enumerate() {
            assert_eq!(item.text(), at.to_string());
        }
    }
}

#[test]
fn sigterm_under_load_loses_nothing() {
    loses_nothing_when_stopped_by("TERM");
}

#[test]
fn sigint_under_load_loses_nothing() {
    loses_nothing_when_stopped_by("INT");
}

#[test]
fn a_restart_is_quick_and_complete() {
    let mut server = Server::start(&[]);
    let mut conn = server.connect();
    for round in 0..20 {
        let batch: Vec<_> = (0..5000)
            .map(|n| args(&format!("SET key:{round}:{n} {n} PX 100000000")))
            .chain((0..500).map(|n| args(&format!("HSET hash:{round} f{n} v"))))
            .collect();
        assert!(
            conn.pipeline(&batch)
                .iter()
                .all(|r| !matches!(r, Value::Error(_)))
        );
    }
    let gone_ms = unix_ms() + 300;
    conn.must(&format!("SET fleeting x PXAT {gone_ms}"));
    let took = server.restart();
    println!("restarted in {took:?}");
    assert!(took < Duration::from_secs(5), "the start took {took:?}");
    wait_for("the expiry", || unix_ms() > gone_ms);
    let mut conn = server.connect();
    assert_eq!(conn.must("EXISTS fleeting").int(), 0);
    wait_for("DBSIZE without the expired key", || {
        conn.must("DBSIZE").int() == 20 * 5001
    });
    assert_eq!(conn.must("HLEN hash:7").int(), 500);
    assert!(conn.must("PTTL key:3:4999").int() > 0);
}

#[test]
fn shutdown_in_all_its_forms() {
    let mut server = Server::start(&[]);
    for (n, form) in [
        "SHUTDOWN",
        "SHUTDOWN NOSAVE",
        "shutdown save",
        "SHUTDOWN NOW FORCE",
    ]
    .iter()
    .enumerate()
    {
        let mut conn = server.connect();
        let mut bystander = server.connect();
        conn.must(&format!("SET before:{n} {n}"));
        let reply = conn.cmd(form);
        assert!(matches!(reply, Value::Lost(_)), "{form}: {reply:?}");
        assert!(server.wait_exit().success(), "{form}");
        assert!(bystander.closed_within(Duration::from_secs(5)));
        server.spawn();
        let value = server.connect().must(&format!("GET before:{n}"));
        assert_eq!(value, Value::bulk(n.to_string()), "{form}");
    }
    let mut conn = server.connect();
    for form in ["SHUTDOWN FOO", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW"] {
        assert_eq!(
            conn.cmd(form).error().as_deref(),
            Some("ERR syntax error"),
            "{form}"
        );
    }
    let abort = conn.cmd("SHUTDOWN ABORT");
    assert_eq!(
        abort.error().as_deref(),
        Some("ERR No shutdown in progress.")
    );
}

/// Runs a start that must fail soon; returns its output.
fn failing_start(flags: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    failing_start_in(dir.path(), *free_port(), flags)
}

fn failing_start_in(dir: &Path, port: u16, flags: &[&str]) -> String {
    run_to_failure(&mut Server::command(dir, port, flags))
}

fn run_to_failure(command: &mut Command) -> String {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = wait_within(Duration::from_secs(20), || {
        child.try_wait().unwrap().is_some()
    });
    if !ended {
        child.kill().ok();
    }
    let output = child.wait_with_output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(ended, "{command:?} started, or hangs: {text}");
    assert!(!output.status.success(), "{command:?} succeeded: {text}");
    assert!(
        output.status.code().is_some(),
        "{command:?} died by a signal: {text}"
    );
    assert!(!text.contains("panicked"), "{command:?} panicked: {text}");
    text
}

#[test]
fn mistakes_in_flags_are_named() {
    for (flags, expected) in [
        (vec!["--nosuch", "1"], vec!["nosuch"]),
        (vec!["--port", "abc"], vec!["port", "abc"]),
        (vec!["--port", "70000"], vec!["port", "70000"]),
        (vec!["--databases", "0"], vec!["databases"]),
        (vec!["--appendfsync", "sometimes"], vec!["appendfsync"]),
        (vec!["--maxmemory", "12xb"], vec!["maxmemory"]),
        (vec!["--timeout", "-1"], vec!["timeout"]),
        (
            vec!["--rename-command", "nosuch", "x"],
            vec!["nosuch x", "no such"],
        ),
        (
            vec!["--rename-command", "get", "SET"],
            vec!["get set", "has this"],
        ),
        (
            vec![
                "--rename-command",
                "get",
                "x",
                "--rename-command",
                "set",
                "x",
            ],
            vec!["set x", "another"],
        ),
        (
            vec!["--user", "a", "+nosuch"],
            vec!["user", "'a'", "Unknown command"],
        ),
        (
            vec!["--user", "a", "on", "--user", "a", "off"],
            vec!["Duplicate user"],
        ),
        (
            vec!["--aclfile", "users.acl"],
            vec!["aclfile", "opening file"],
        ),
        (
            vec!["--bind", "not.an.address.invalid"],
            vec!["not.an.address.invalid", "command line: 'bind"],
        ),
    ] {
        let text = failing_start(&flags);
        for word in expected {
            assert!(
                text.contains(word),
                "{flags:?} does not say {word:?}: {text}"
            );
        }
    }
}

/// Starts with a configuration file that must be refused; returns the output.
fn refused_file(path: &Path) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = path.display().to_string();
    // The file comes first, so it cannot be a flag of `Server::command`.
    let port = free_port();
    let mut command = Server::command_with_file(&file, dir.path(), *port);
    run_to_failure(&mut command)
}

#[test]
fn mistakes_in_a_file_are_named_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.conf");
    for (content, line, word) in [
        ("# fine\ntimeout 0\nport many\n", 3, "port"),
        ("nosuch yes\n", 1, "nosuch"),
        ("timeout=5\n", 1, "`timeout 5`"),
        ("\n\nrequirepass \"open\n", 3, "requirepass"),
        ("timeout 0\ntimeout\n", 2, "timeout"),
        (
            "include /nonexistent/kedis.conf\n",
            1,
            "/nonexistent/kedis.conf",
        ),
        // Errors that only the whole file or the operating system shows.
        ("\nrename-command NOSUCH x\n", 2, "no such command"),
        ("rename-command set x\nrename-command get X\n", 2, "another"),
        ("\nuser default nosuch\n", 2, "Syntax error"),
        ("user a on\nuser a off\n", 2, "Duplicate user"),
        ("\naclfile users.acl\n", 2, "opening file"),
        ("user a on\naclfile users.acl\n", 2, "only one of them"),
        ("\nbind 300.1.1.1\n", 2, "cannot listen on 300.1.1.1"),
        ("\nbind \"\"\n", 2, "no address"),
        (
            "\nlogfile /nonexistent/x.log\n",
            2,
            "file /nonexistent/x.log:",
        ),
        ("\nunixsocket /nonexistent/x\n", 2, "/nonexistent/x"),
        ("\n\ndb-name a/b/c\n", 3, "a/b/c"),
    ] {
        fs::write(&path, content).unwrap();
        let text = refused_file(&path);
        for part in [&format!("bad.conf, at line {line}"), word] {
            assert!(
                text.contains(part),
                "{content:?} does not say {part:?}: {text}"
            );
        }
    }
    let text = refused_file(&dir.path().join("no-such-file.conf"));
    assert!(text.contains("no-such-file.conf"), "{text}");
}

#[test]
fn without_any_address_the_port_is_to_blame() {
    let dir = tempfile::tempdir().unwrap();
    let text = failing_start_in(dir.path(), 0, &["--bind", "127.0.0.1"]);
    assert!(
        text.contains("no address") && text.contains("port \"0\""),
        "{text}"
    );
}

#[test]
fn a_file_and_flags_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("good.conf");
    fs::write(
        &path,
        "# comment\ntimeout 77\nMAXCLIENTS 500\nrequirepass \"a b\"\n",
    )
    .unwrap();
    let file = path.display().to_string();
    let server = Server::start(&[&file, "--maxclients", "300"]);
    let mut conn = server.connect();
    assert!(
        conn.cmd("PING")
            .error()
            .is_some_and(|e| e.starts_with("NOAUTH"))
    );
    assert_eq!(conn.call(&["AUTH", "a b"]), Value::ok());
    let value = |conn: &mut Conn, name: &str| {
        let reply = conn.must(&format!("CONFIG GET {name}"));
        reply.pairs()[0].1.text()
    };
    assert_eq!(value(&mut conn, "timeout"), "77");
    assert_eq!(value(&mut conn, "maxclients"), "300");
}

#[test]
fn one_directory_serves_one_server() {
    let first = Server::start(&[]);
    first.connect().must("SET owner first");
    let text = failing_start_in(&first.data_dir(), *free_port(), &["--bind", "127.0.0.1"]);
    let names_dir = text.contains(&first.data_dir().display().to_string());
    assert!(
        names_dir || text.contains("lock") || text.contains("in use"),
        "{text}"
    );
    assert_eq!(first.connect().must("GET owner"), Value::bulk("first"));
}

#[test]
fn a_port_in_use_is_named() {
    let first = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let pidfile = dir.path().join("first.pid");
    fs::write(&pidfile, "1").unwrap();
    let flags = ["--bind", "127.0.0.1", "--pidfile"];
    let flags = [&flags[..], &[pidfile.to_str().unwrap()]].concat();
    let text = failing_start_in(dir.path(), first.port(), &flags);
    assert!(text.contains(&first.port().to_string()), "{text}");
    first.connect().must("PING");
    assert!(pidfile.exists(), "it removed the file of the first server");
}

/// A start on an empty directory listened for a moment, to see whether it could, and reset the
/// connections of that moment.
#[test]
fn the_first_connection_that_is_accepted_is_served() {
    for _ in 0..10 {
        let mut server = Server::prepare(&[]);
        let address = format!("127.0.0.1:{}", server.port());
        std::thread::scope(|threads| {
            let first = threads.spawn(|| {
                let deadline = Instant::now() + DEADLINE;
                loop {
                    if let Ok(mut conn) = Conn::open(&address) {
                        return conn.cmd("PING");
                    }
                    assert!(Instant::now() < deadline, "the server does not listen");
                    std::thread::yield_now();
                }
            });
            server.spawn();
            assert_eq!(first.join().unwrap(), Value::simple("PONG"));
        });
    }
}

#[test]
fn help_and_version() {
    for (flag, word) in [
        ("--version", env!("CARGO_PKG_VERSION")),
        ("--help", "--port"),
    ] {
        let output = Command::new(binary()).arg(flag).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{flag}: {}", output.status);
        assert!(text.contains(word), "{flag} prints {text:?}");
    }
}

#[test]
fn a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kedis.sock");
    let text = path.display().to_string();
    let mut server = Server::start(&["--unixsocket", &text, "--unixsocketperm", "700"]);
    let mut conn = Conn::open_unix(&path).unwrap();
    conn.must("SET over socket");
    assert_eq!(server.connect().must("GET over"), Value::bulk("socket"));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // The socket file of a killed server does not prevent the next start.
    server.kill9();
    server.spawn();
    let mut conn = Conn::open_unix(&path).unwrap();
    assert_eq!(conn.must("GET over"), Value::bulk("socket"));
    server.terminate();
    assert!(!path.exists(), "the socket is still there");
}

#[test]
fn a_unix_socket_in_use_stays_its_owners() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kedis.sock");
    let text = path.display().to_string();
    let first = Server::start(&["--unixsocket", &text]);
    let flags = ["--bind", "127.0.0.1", "--unixsocket", &text];
    let refusal = failing_start(&flags);
    assert!(refusal.contains(&text), "{refusal}");
    failing_start_in(&first.data_dir(), *free_port(), &flags);
    let mut conn = Conn::open_unix(&path).unwrap();
    conn.must("SET owner first");
    assert_eq!(first.connect().must("GET owner"), Value::bulk("first"));
}

#[test]
fn several_addresses() {
    let server = Server::start(&["--bind", "127.0.0.1", "127.0.0.2"]);
    server.connect().must("SET from first");
    let mut second = Conn::open(&format!("127.0.0.2:{}", server.port())).unwrap();
    assert_eq!(second.must("GET from"), Value::bulk("first"));
    assert!(Conn::open(&format!("127.0.0.3:{}", server.port())).is_err());
}

/// A repeated address is an error, as in Redis: also an optional one, and one under two names.
#[test]
fn no_address_twice() {
    let dir = tempfile::tempdir().unwrap();
    for (first, second) in [
        ("127.0.0.1", "127.0.0.1"),
        ("-127.0.0.1", "-127.0.0.1"),
        ("127.0.0.1", "localhost"),
    ] {
        let text = failing_start_in(dir.path(), *free_port(), &["--bind", first, second]);
        assert!(text.contains("`bind` names it twice"), "{text}");
    }
    let other = Server::start(&[]);
    let text = failing_start_in(dir.path(), other.port(), &["--bind", "-127.0.0.1"]);
    assert!(text.contains("in use"), "{text}");
    let (ours, theirs) = (Server::start(&[]), oracle(&[]));
    let replies = [&ours, &theirs].map(|server| {
        let mut conn = server.connect();
        let replies = ["127.0.0.1 127.0.0.1", "-127.0.0.1 -127.0.0.1", "127.0.0.1"]
            .map(|bind| conn.call(&["CONFIG", "SET", "bind", bind]));
        server.connect().must("PING");
        replies
    });
    assert_eq!(replies[0], replies[1]);
}

#[test]
fn ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        println!("this machine has no ::1, so only the fallback is tested");
        let server = Server::start(&["--bind", "127.0.0.1", "-::1"]);
        server.connect().must("PING");
        return;
    }
    let server = Server::start(&["--bind", "::1", "127.0.0.1"]);
    server.connect().must("SET from six");
    let mut four = Conn::open(&format!("127.0.0.1:{}", server.port())).unwrap();
    assert_eq!(four.must("GET from"), Value::bulk("six"));
}

/// A copy replaces the previous one, which is removed. If the database itself was there, as
/// after a start in a copy, it was lost.
#[test]
fn a_copy_takes_the_place_of_no_database() {
    let mut server = Server::start(&["--db-name", "dump.rdb"]);
    let mut conn = server.connect();
    conn.must("SET key 1");
    let refused = conn.cmd("SAVE");
    assert!(
        matches!(&refused, Value::Error(text) if String::from_utf8_lossy(text).contains("is a database")),
        "{refused:?}"
    );
    conn.must("BGSAVE");
    wait_for("the end of BGSAVE", || {
        server
            .connect()
            .info_number("persistence", "rdb_bgsave_in_progress")
            == 0
    });
    conn.must("SET other 1");
    server.kill9();
    server.spawn();
    assert_eq!(server.connect().must("DBSIZE"), Value::Int(2));
}

/// A directory that only looked like a database was removed; a copy that could not be moved to
/// its path kept the space of its files.
#[test]
fn what_is_no_copy_stays_and_a_failed_one_goes() {
    let server = Server::start(&["--enable-protected-configs", "yes"]);
    let mut conn = server.connect();
    conn.must("SET key 1");
    let dir = server.data_dir();
    let notes = dir.join("notes");
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("CURRENT"), "").unwrap();
    std::os::unix::fs::symlink("/nonexistent", dir.join("link")).unwrap();
    let names = || {
        let entries = fs::read_dir(&dir).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    for name in ["notes", "link"] {
        conn.must(&format!("CONFIG SET dbfilename {name}"));
        let refused = conn.cmd("SAVE").error().unwrap();
        assert!(refused.contains("is no backup"), "{refused}");
        assert!(refused.contains(name), "{refused}");
        assert_eq!(names(), before);
    }
    assert!(notes.join("CURRENT").exists());
    conn.must("CONFIG SET dbfilename copy");
    for _ in 0..2 {
        conn.must("SAVE");
    }
    assert!(dir.join("copy/CURRENT").exists());
}

/// Each read and write system call counts once, however many requests it carries.
#[test]
fn reads_and_writes_of_connections_are_counted() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let fields = [
        "total_reads_processed",
        "total_writes_processed",
        "io_threaded_reads_processed",
        "io_threaded_writes_processed",
    ];
    for field in fields {
        let before = conn.info_number("stats", field);
        for _ in 0..5 {
            conn.must("PING");
        }
        let after = conn.info_number("stats", field);
        assert_eq!(after - before, 6, "{field}");
    }
    conn.must("CONFIG RESETSTAT");
    assert_eq!(conn.info_number("stats", fields[0]), 1);
}
