use crate::exec::testing::Client;
use crate::resp::Value;
use crate::state::clients::ClientFlags;
use crate::storage::StorageConfig;
use std::sync::atomic::Ordering;

/// Two clients of one server, each with an executor of its own.
fn pair() -> (Client, Client) {
    let a = Client::new();
    let b = a.another();
    (a, b)
}

fn queued() -> Value {
    Value::Simple("QUEUED".into())
}

fn text(value: &Value) -> String {
    match value {
        Value::Simple(text) => text.clone(),
        Value::Error(text) => text.clone(),
        Value::Int(n) => n.to_string(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Null => "nil".into(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(","))
        }
        other => format!("{other:?}"),
    }
}

/// Runs lines on one client, those with an `@` on the other. Each comes with its reply as
/// [`text`] shows it, or `-` and the beginning of an error.
fn play(script: &[(&str, &str)]) {
    let (mut a, mut b) = pair();
    for (line, expected) in script {
        let reply = match line.strip_prefix('@') {
            Some(line) => b.run(line),
            None => a.run(line),
        };
        let reply = match reply.as_error() {
            Some(error) => format!("-{error}"),
            None => text(&reply),
        };
        assert_eq!(&reply, expected, "{line} of {script:?}");
    }
    a.check();
}

#[test]
fn what_is_queued_runs_as_one() {
    play(&[
        ("MULTI", "OK"),
        ("SET a 1", "QUEUED"),
        ("INCR a", "QUEUED"),
        ("LPUSH a x", "QUEUED"),
        ("GET a", "QUEUED"),
        ("@GET a", "nil"),
        (
            "EXEC",
            "[OK,2,WRONGTYPE Operation against a key holding the wrong kind of value,2]",
        ),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "OK"),
        ("EXEC", "[]"),
    ]);
}

#[test]
fn what_cannot_be_queued_aborts() {
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    for (line, error) in [
        (
            "nope",
            "-ERR unknown command 'nope', with args beginning with: ",
        ),
        ("SET a", "-ERR wrong number of arguments for 'set' command"),
        (
            "CONFIG nope",
            "-ERR unknown subcommand 'nope'. Try CONFIG HELP.",
        ),
        ("SAVE", "-ERR Command not allowed inside a transaction"),
        ("SHUTDOWN", "-ERR Command not allowed inside a transaction"),
        (
            "WATCH",
            "-ERR wrong number of arguments for 'watch' command",
        ),
    ] {
        play(&[
            ("MULTI", "OK"),
            ("SET a 1", "QUEUED"),
            (line, error),
            ("SET b 1", "QUEUED"),
            ("EXEC", aborted),
            ("EXISTS a b", "0"),
        ]);
    }
    play(&[
        ("MULTI", "OK"),
        (
            "EXEC x",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
        ("SET a 1", "OK"),
        ("EXEC", "-ERR EXEC without MULTI"),
    ]);
    play(&[
        ("MULTI", "OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("EXEC", "[]"),
    ]);
}

#[test]
fn a_failed_storage_refuses_transactions_that_write() {
    let mut client = Client::new();
    client.run("MULTI");
    client.run("SET a 1");
    client.run("PING");
    client.server().engine.refuse_writes();
    let refused = client.run("EXEC");
    let refused = refused.as_error().unwrap();
    let start = "EXECABORT Transaction discarded because of: MISCONF ";
    assert!(refused.starts_with(start), "{refused}");
    client.run("MULTI");
    client.run("PING");
    assert_eq!(text(&client.run("EXEC")), "[PONG]");
}

#[test]
fn select_counts_within_and_stays() {
    play(&[
        ("SELECT 2", "OK"),
        ("MULTI", "OK"),
        ("SELECT 99", "QUEUED"),
        ("SELECT 1", "QUEUED"),
        ("SET x 1", "QUEUED"),
        ("EXEC", "[ERR DB index is out of range,OK,OK]"),
        ("GET x", "1"),
        ("SELECT 2", "OK"),
        ("GET x", "nil"),
    ]);
}

#[test]
fn monitor_and_the_like_do_not_run_within() {
    play(&[
        ("MULTI", "OK"),
        ("MONITOR", "QUEUED"),
        (
            "EXEC",
            "[ERR MONITOR isn't allowed for DENY BLOCKING client]",
        ),
    ]);
}

#[test]
fn discard_and_reset_forget() {
    play(&[
        ("WATCH a", "OK"),
        ("@SET a 1", "OK"),
        ("MULTI", "OK"),
        ("SET b 1", "QUEUED"),
        ("DISCARD", "OK"),
        ("GET b", "nil"),
        ("MULTI", "OK"),
        ("PING", "QUEUED"),
        ("EXEC", "[PONG]"),
        ("WATCH a", "OK"),
        ("@SET a 2", "OK"),
        ("MULTI", "OK"),
        ("RESET", "RESET"),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("MULTI", "OK"),
        ("EXEC", "[]"),
    ]);
}

/// Watched keys: the setup, the change by another client, whether EXEC still runs.
#[test]
fn watched_keys() {
    let cases: &[(&[&str], &str, bool)] = &[
        (&[], "SET a 1", false),
        (&["SET a 1"], "SET a 1", false),
        (&["SET a 1"], "DEL a", false),
        (&["SET a 1"], "GET a", true),
        (&["SET a 1"], "DEL b c", true),
        (&["HSET a f 1"], "HSET a f 2", false),
        (&["HSET a f 1"], "HSETNX a f 2", true),
        (&["HSET a f 1"], "SADD a f", true),
        (&["SET b 1"], "RENAME b a", false),
        (&["SET a 1"], "RENAME a b", false),
        (&["SET b 1"], "COPY b a", false),
        (&["SET a 1"], "EXPIRE a 100", false),
        (&["SET a 1"], "EXPIRE a 0", false),
        (&["SADD b x"], "SORT b ALPHA STORE a", false),
        (&["SET a 1"], "FLUSHDB", false),
        (&["SET a 1"], "FLUSHALL", false),
        (&[], "FLUSHALL", true),
        (&["SET b 1"], "FLUSHALL", true),
        (&["SET a 1"], "SWAPDB 0 1", false),
        (&["SELECT 1", "SET a 1", "SELECT 0"], "SWAPDB 0 1", false),
        (&["SELECT 1", "SET a 1", "SELECT 0"], "SWAPDB 3 1", true),
        (&[], "SWAPDB 0 1", true),
        (&["SET a 1 PX 5"], "PING", true),
    ];
    for (setup, change, runs) in cases {
        let (mut a, mut b) = pair();
        for line in *setup {
            a.run(line);
        }
        a.run("WATCH a unrelated");
        assert_eq!(b.run("MULTI"), Value::Simple("OK".into()));
        b.run(change);
        b.run("EXEC");
        a.run("MULTI");
        a.run("PING");
        let expected = if *runs { "[PONG]" } else { "nil" };
        assert_eq!(text(&a.run("EXEC")), expected, "{setup:?} {change}");
        let server = a.server();
        assert_eq!((server.watchers.clients(), server.watchers.keys()), (0, 0));
        assert!(!server.engine.listeners.interest.any());
    }
}

#[test]
fn changes_of_the_same_thread_and_tick_count() {
    let mut client = Client::new();
    let replies = client.tick(&[
        &[b"SET", b"a", b"1"],
        &[b"WATCH", b"a"],
        &[b"MULTI"],
        &[b"GET", b"a"],
        &[b"EXEC"],
        &[b"WATCH", b"a"],
        &[b"SET", b"a", b"2"],
        &[b"MULTI"],
        &[b"EXEC"],
        &[b"UNWATCH"],
        &[b"MULTI"],
        &[b"EXEC"],
    ]);
    assert_eq!(text(&replies[4]), "[1]");
    assert_eq!(text(&replies[8]), "nil");
    assert_eq!(text(&replies[11]), "[]");
}

#[test]
fn a_command_that_fails_changes_nothing_watched() {
    play(&[
        ("SET a 1", "OK"),
        ("WATCH a", "OK"),
        (
            "@LPUSH a 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("MULTI", "OK"),
        ("EXEC", "[]"),
    ]);
}

#[test]
fn time_that_passes_is_a_change() {
    let mut client = Client::new();
    client.run("SET a 1 PX 10");
    client.run("WATCH a");
    client.advance_ms(10);
    client.run("MULTI");
    assert_eq!(text(&client.run("EXEC")), "nil");
    // The key had expired before WATCH, so its deletion is no change.
    client.run("WATCH a");
    assert_eq!(text(&client.run("APPEND b x")), "1");
    let mut other = client.another();
    other.advance_ms(10);
    other.run("SETRANGE a 5 ");
    client.run("MULTI");
    assert_eq!(text(&client.run("EXEC")), "[]");
    client.run("SET a 1 PX 10");
    client.run("WATCH a");
    other.advance_ms(20);
    other.run("SETRANGE a 5 ");
    client.run("MULTI");
    assert_eq!(text(&client.run("EXEC")), "nil");
}

#[test]
fn the_queue_shows_in_the_client_list() {
    let mut client = Client::new();
    client.run("WATCH a b a");
    client.run("MULTI");
    client.run("CLIENT INFO");
    client.run("SET a 1");
    let reply = client.run("EXEC");
    let Value::Array(replies) = reply else {
        panic!("{reply:?}")
    };
    let info = text(&replies[0]);
    for field in [" flags=x ", " multi=2 watch=2 qbuf=", " multi-mem="] {
        assert!(info.contains(field), "{field} in {info}");
    }
    let info = text(&client.run("CLIENT INFO"));
    for field in [" flags=N ", " multi=-1 watch=0 qbuf=", " multi-mem=0 "] {
        assert!(info.contains(field), "{field} in {info}");
    }
}

#[test]
fn what_waits_for_exec_is_counted() {
    let mut client = Client::new();
    client.run("WATCH k");
    client.run("MULTI");
    let before = client.parts().1.waiting_bytes();
    client.args(&[b"SET", b"k", &[b'x'; 10_000]]);
    let (_, session) = client.parts();
    assert!(before > 0 && session.waiting_bytes() > before + 10_000);
    // After an error EXEC will fail, so further commands take no memory.
    client.run("nope");
    let (_, session) = client.parts();
    let before = session.waiting_bytes();
    assert_eq!(client.args(&[b"SET", b"k", &[b'x'; 10_000]]), queued());
    let (_, session) = client.parts();
    assert_eq!(session.waiting_bytes(), before);
    assert!(session.info.flags().contains(ClientFlags::MULTI));
    assert_eq!(session.info.multi_commands.load(Ordering::Relaxed), 1);
    client.run("DISCARD");
    assert_eq!(client.parts().1.waiting_bytes(), 0);
}

#[test]
fn transactions_in_the_log() {
    let mut client = Client::with(|_: &mut StorageConfig| {});
    for line in ["MULTI", "SET a 1", "INCR a", "GET a", "EXEC"] {
        client.run(line);
    }
    for line in ["MULTI", "INCR a", "EXEC", "MULTI", "GET a", "EXEC"] {
        client.run(line);
    }
    let expected = ["MULTI", "SET a 1", "INCR a", "EXEC", "INCR a"];
    assert_eq!(client.logged(), expected);
    client.check();
}
