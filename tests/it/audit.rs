//! The audit log: what stands in it, where it is written, and what never stands in it.

use crate::support::{Conn, Server, Value, wait_for};
use std::path::{Path, PathBuf};

/// The audit log of a server.
struct Log(PathBuf);

impl Log {
    fn of(server: &Server) -> Log {
        Log(server.data_dir().join("audit.log"))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }

    /// The first line with all of these words, which is waited for.
    fn line(&self, words: &[&str]) -> String {
        let mut found = None;
        wait_for(&format!("a line with {words:?}"), || {
            let text = self.text();
            let mut lines = text.lines();
            found = lines
                .find(|line| words.iter().all(|word| line.contains(word)))
                .map(str::to_owned);
            found.is_some()
        });
        found.unwrap()
    }
}

fn start(flags: &[&str]) -> Server {
    let own = ["--audit-log", "audit.log", "--enable-debug-command", "yes"];
    Server::start(&[&own, flags].concat())
}

/// A connection of a user with these rules.
fn user(server: &Server, rules: &str) -> Conn {
    let mut admin = server.connect();
    admin.must(&format!("ACL SETUSER app on >p {rules}"));
    let mut conn = server.connect();
    conn.must("AUTH app p");
    conn
}

#[test]
fn refusals_have_a_line_each() {
    let server = start(&["--hide-user-data-from-log", "no"]);
    let log = Log::of(&server);
    let mut conn = user(
        &server,
        "~a* &a* +get +set +publish +multi +exec +eval +select alldbs",
    );
    let mut admin = server.connect();
    let listed = admin.must("CLIENT LIST").text();
    let of_app = listed.lines().find(|line| line.contains("user=app"));
    let (id, _) = of_app.unwrap().split_once(' ').unwrap();
    let id = id.replace("id=", "client=");
    for (request, words) in [
        ("AUTH app wrong", "reason=auth command=auth"),
        ("AUTH no\"body wrong", r#"user="no\"body""#),
        ("DEL a", "reason=command command=del"),
        ("CONFIG SET port 1", "reason=command command=config|set"),
        ("GET b", "reason=key command=get object=\"b\""),
        ("PUBLISH b m", "reason=channel command=publish object=\"b\""),
    ] {
        assert!(conn.cmd(request).error().is_some(), "{request}");
        log.line(&["refused context=toplevel", "addr=\"127.0.0.1:", &id, words]);
    }
    admin.must("ACL SETUSER app resetdbs db=0");
    assert!(conn.cmd("SELECT 1").error().is_some());
    log.line(&[
        "reason=database command=select object=\"1\"",
        "user=\"app\"",
    ]);
    conn.must("MULTI");
    assert!(conn.cmd("GET in_multi").error().is_some());
    log.line(&["context=multi", "object=\"in_multi\""]);
    conn.cmd("EXEC");
    conn.call(&["EVAL", "return redis.pcall('GET', 'in_script')", "0"]);
    log.line(&["context=lua", "object=\"in_script\""]);
    conn.must("MULTI");
    conn.must("GET a_lost");
    admin.must("ACL SETUSER app resetkeys");
    conn.cmd("EXEC");
    log.line(&["context=multi", "object=\"a_lost\""]);
}

#[test]
fn commands_before_the_login_have_a_line() {
    let server = start(&["--requirepass", "secret"]);
    let mut conn = server.connect();
    assert!(conn.cmd("GET k").error().is_some());
    let line = Log::of(&server).line(&["reason=login command=get"]);
    assert!(line.contains("user=\"\""), "{line}");
    conn.must("AUTH secret");
    assert_eq!(conn.must("ACL LOG").items().len(), 0);
}

/// What a user administers stands in the log wherever it is called from, if it is done.
#[test]
fn administrative_commands_have_a_line_each() {
    let renamed = ["--rename-command", "CONFIG", "other"];
    let server = start(&renamed);
    let log = Log::of(&server);
    let mut conn = server.connect();
    conn.must("other SET maxmemory-samples 7");
    log.line(&[
        "done context=toplevel user=\"default\"",
        r#"command=config|set args="other" "SET" "maxmemory-samples" "7""#,
    ]);
    conn.must("ACL SETUSER bob on >secret ~*");
    log.line(&[r#"command=acl|setuser args="ACL" "SETUSER" "bob" "(redacted)""#]);
    for (request, command) in [
        ("FLUSHDB", "flushdb"),
        ("FLUSHALL ASYNC", "flushall"),
        ("SWAPDB 0 1", "swapdb"),
        ("other RESETSTAT", "config|resetstat"),
        ("ACL DELUSER bob", "acl|deluser"),
        ("REPLICAOF NO ONE", "replicaof"),
        ("DEBUG SLEEP 0", "debug"),
        ("BGSAVE", "bgsave"),
        ("CLIENT KILL ID 12345678", "client|kill"),
        ("FUNCTION FLUSH", "function|flush"),
        ("SLOWLOG RESET", "slowlog|reset"),
    ] {
        conn.must(request);
        log.line(&["done context=toplevel", &format!("command={command} args=")]);
    }
    conn.must("MULTI");
    conn.must("DEBUG SET-ACTIVE-EXPIRE 1");
    conn.must("SET k v");
    conn.must("EXEC");
    log.line(&["done context=multi", "\"SET-ACTIVE-EXPIRE\""]);
    conn.call(&["EVAL", "return redis.call('FLUSHDB', 'SYNC')", "0"]);
    log.line(&["done context=lua", "\"FLUSHDB\" \"SYNC\""]);
    // What fails, or is queued only, or concerns keys, has none.
    let before = log.text().lines().count();
    conn.cmd("other SET nosuch 1");
    conn.cmd("ACL SETUSER eve +nosuch");
    conn.must("SET k v");
    conn.must("MULTI");
    conn.must("FLUSHALL");
    conn.must("DISCARD");
    conn.must("WATCH k");
    server.connect().must("SET k other");
    conn.must("MULTI");
    conn.must("FLUSHALL");
    assert_eq!(conn.must("EXEC"), Value::NullArray);
    conn.must("DEBUG SLEEP 0");
    wait_for("the last line", || log.text().lines().count() > before);
    assert_eq!(log.text().lines().count(), before + 1, "{}", log.text());
    assert_eq!(
        conn.info_number("stats", "audit_log_lines"),
        before as u64 + 1
    );
}

#[test]
fn the_end_of_the_server_has_a_line() {
    let mut server = start(&[]);
    let log = Log::of(&server);
    server.connect().send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    server.wait_exit();
    assert!(log.text().contains("command=shutdown"), "{}", log.text());
}

#[test]
fn names_of_keys_and_channels_are_hidden() {
    let server = start(&[]);
    let log = Log::of(&server);
    let mut conn = user(&server, "+get +publish +select");
    conn.cmd("GET hidden");
    conn.cmd("PUBLISH hidden m");
    let mut admin = server.connect();
    admin.must("SET hidden v");
    admin.must("DEBUG OBJECT hidden");
    admin.must("DEBUG POPULATE 1 hidden");
    admin.must("DEBUG LOG hidden");
    admin.must("ACL DRYRUN default GET hidden");
    log.line(&[r#"command=debug args="DEBUG" "(redacted)" "(redacted)""#]);
    log.line(&[r#""DEBUG" "POPULATE" "1" "(redacted)""#]);
    log.line(&[r#""DEBUG" "LOG" "(redacted)""#]);
    log.line(&[r#""DRYRUN" "default" "GET" "(redacted)""#]);
    log.line(&["reason=channel", "object=\"(redacted)\""]);
    assert!(!log.text().contains("hidden"), "{}", log.text());
    admin.must("CONFIG SET hide-user-data-from-log no");
    conn.cmd("GET shown");
    log.line(&["object=\"shown\""]);
}

fn lines(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().count()
}

#[test]
fn the_log_is_rotated() {
    let server = start(&[]);
    let log = Log::of(&server);
    let mut conn = server.connect();
    conn.must("FLUSHDB");
    log.line(&["flushdb"]);
    let moved = server.data_dir().join("audit.log.1");
    std::fs::rename(&log.0, &moved).unwrap();
    server.signal("HUP");
    wait_for("a new file", || log.0.exists());
    conn.must("FLUSHALL");
    log.line(&["flushall"]);
    assert_eq!((lines(&moved), lines(&log.0)), (1, 1));
    std::fs::rename(&log.0, &moved).unwrap();
    // Without a signal the next line makes it anew.
    conn.must("SWAPDB 0 1");
    log.line(&["swapdb"]);
}

#[test]
fn the_log_is_switched_while_the_server_runs() {
    let server = start(&["--enable-protected-configs", "yes"]);
    let log = Log::of(&server);
    let mut conn = server.connect();
    let status = |conn: &mut Conn| conn.info_text("stats", "audit_log_status");
    assert_eq!(status(&mut conn), "ok");
    let reply = conn.call(&["CONFIG", "SET", "audit-log", "no/such/directory"]);
    assert!(reply.error().unwrap().contains("audit-log"), "{reply:?}");
    assert_eq!(
        conn.call(&["CONFIG", "SET", "audit-log", "b.log"]),
        Value::ok()
    );
    conn.must("FLUSHDB");
    let other = Log(server.data_dir().join("b.log"));
    other.line(&["flushdb"]);
    // Who changes the file stands in both.
    assert!(log.text().contains("\"b.log\"") && other.text().contains("\"b.log\""));
    assert_eq!(conn.call(&["CONFIG", "SET", "audit-log", ""]), Value::ok());
    assert_eq!(status(&mut conn), "off");
    conn.must("FLUSHALL");
    other.line(&["\"audit-log\" \"\""]);
    assert!(!other.text().contains("flushall"));
    drop(server);
    let server = start(&[]);
    let reply = server.connect().call(&["CONFIG", "SET", "audit-log", ""]);
    assert!(reply.error().unwrap().contains("protected"), "{reply:?}");
}

#[test]
fn a_full_disk_is_told_once_and_the_server_goes_on() {
    let server = Server::start(&["--audit-log", "/dev/full"]);
    let mut conn = server.connect();
    for _ in 0..20 {
        conn.must("FLUSHDB");
    }
    wait_for("lost lines", || {
        conn.info_number("stats", "audit_log_lost_lines") == 20
    });
    assert_eq!(conn.info_text("stats", "audit_log_status"), "err");
    let log = server.log();
    assert_eq!(log.matches("cannot be written").count(), 1, "{log}");
}

#[test]
fn a_file_that_cannot_be_opened_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let port = crate::support::server::free_port();
    let flags = ["--audit-log", "no/such/directory/audit.log"];
    let output = Server::command(dir.path(), *port, &flags).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("audit-log"), "{text}");
}

/// Names that clients choose were kept as they were, in each entry and line, however long.
#[test]
fn long_names_are_cut_wherever_they_are_kept() {
    let server = start(&["--slowlog-log-slower-than", "0"]);
    let log = Log::of(&server);
    let mut admin = server.connect();
    let name = "\u{e9}".repeat(1 << 20);
    let mut conn = server.connect();
    assert!(conn.call(&["AUTH", &name, "wrong"]).error().is_some());
    let line = log.line(&["reason=auth command=auth"]);
    assert!(
        line.len() < 2048 && line.contains(" addr=\"127.0.0.1:"),
        "{line}"
    );
    admin.must(&format!(
        "ACL SETUSER {name} on >p +client +ping +slowlog +config"
    ));
    assert_eq!(conn.call(&["AUTH", &name, "p"]), Value::ok());
    let plain = "n".repeat(1 << 20);
    for what in ["SETNAME", "SETINFO LIB-NAME", "SETINFO LIB-VER"] {
        conn.must(&format!("CLIENT {what} {plain}"));
    }
    let before = admin.info_number("memory", "used_memory");
    for n in 0..100 {
        conn.must("PING");
        assert!(conn.cmd(&format!("GET {n}")).error().is_some());
        let denied = ["ACL", "DRYRUN", &n.to_string()];
        assert!(conn.call(&denied).error().is_some());
    }
    // Whole names of 1 MiB in 300 entries are 300 MiB. What comes and goes meanwhile, as buffers
    // of requests, is about 16 MiB.
    let after = admin.info_number("memory", "used_memory");
    assert!(after < before + (100 << 20), "{before}, {after}");
    conn.must("SLOWLOG RESET");
    for line in log.text().lines() {
        assert!(line.len() < 4096, "{line}");
    }
    log.line(&["done", "command=slowlog|reset args=\"SLOWLOG\" \"RESET\""]);
    let logged = admin.must("ACL LOG 100");
    assert!(logged.items().len() > 1);
    for entry in logged.items() {
        for (field, value) in entry.pairs() {
            let length = format!("{value:?}").len();
            assert!(length < 16 << 10, "{field:?}: {length}");
        }
    }
    let slow = admin.must("SLOWLOG GET -1");
    assert!(!slow.items().is_empty());
    for entry in slow.items() {
        assert!(entry.items()[5].text().len() <= 1024);
    }
    // Clients are listed with their whole names.
    assert!(
        admin
            .must("CLIENT LIST")
            .text()
            .contains(&format!("name={plain} "))
    );
}
