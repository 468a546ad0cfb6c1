//! Secrets in requests, whatever shows requests: monitors, logs, figures, errors.

use crate::support::{Conn, DEADLINE, Server, Value, args, wait_for};
use kedis::commands::registry;
use kedis::commands::table::spec::Secret;
use kedis::state::config::{Flag, Param};
use std::collections::BTreeSet;

/// The secret. Scripts put it together, as their text is no secret.
const SECRET: &str = "sesame";

/// A way in which a command is called.
#[derive(Clone, Copy, Debug)]
enum Way {
    Alone,
    InExec,
    InScript,
    ByGetkeys,
    ByDryrun,
}

/// Requests with the secret, for each command with secrets that is not about users' names.
fn requests() -> Vec<String> {
    let mut requests: Vec<String> = [
        "AUTH sesame",
        "aUtH default sesame",
        "AUTH a sesame more",
        "HELLO 3 AUTH default sesame",
        "HELLO AUTH default sesame",
        "hello 3 setname auth auth default sesame",
        "HELLO 3 AUTH auth sesame SETNAME",
        "MIGRATE 127.0.0.1 1 nokey 0 10 AUTH sesame",
        "MIGRATE 127.0.0.1 1 nokey 0 10 COPY auth2 user sesame REPLACE",
        "MIGRATE 127.0.0.1 1 k 0 10 AUTH2 auth sesame",
        "MIGRATE 127.0.0.1 1 k 0 AUTH sesame",
        "MIGRATE 127.0.0.1 1 k AUTH2 user sesame",
        "ACL SETUSER bob <sesame",
        "ACL SETUSER bob #sesame",
        "ACL SETUSER bob on (+nosuch >sesame)",
        "ACL SETUSER bob on (>sesame",
        "MIGRATE 127.0.0.1 1 k 0 10 AUTH2 keys sesame nosuch",
        "ACL SETUSER bob on >sesame +@all ~*",
        "acl setuser bob >sesame +nosuch",
        "ACL GETUSER bob sesame",
        "CONFIG SET requirepass two sesame",
        "CONFIG SET maxmemory requirepass sesame",
    ]
    .map(str::to_owned)
    .to_vec();
    let all = Server::start(&[]).connect().cmd("CONFIG GET *");
    let names = all.pairs().into_iter().map(|(name, _)| name.text());
    let is_secret =
        |name: &String| Param::find(name.as_bytes()).is_some_and(|param| param.has(Flag::Secret));
    let secret: Vec<String> = names.filter(is_secret).collect();
    assert!(secret.len() > 3, "{secret:?}");
    for name in secret {
        requests.push(format!("CONFIG SET {name} sesame"));
        requests.push(format!("config set maxmemory-samples 7 {name} sesame"));
    }
    requests
}

/// Every row with secrets has a request.
fn are_complete(requests: &[String]) {
    let shown: BTreeSet<String> = requests
        .iter()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let found = registry().find(words[0].as_bytes()).unwrap();
            let sub = found.subcommand(words[1].as_bytes());
            sub.unwrap_or(found).full_name.clone()
        })
        .collect();
    for found in registry().iter() {
        for each in std::iter::once(found).chain(found.subcommands.values()) {
            let is_covered = match each.command.secret {
                Secret::None => true,
                // Those run with each of the others.
                Secret::Command(_) => true,
                // No more than names.
                Secret::Users {
                    names: usize::MAX, ..
                } => true,
                _ => shown.contains(&each.full_name),
            };
            assert!(is_covered, "{} has no request here", each.full_name);
        }
    }
}

fn call(conn: &mut Conn, way: Way, request: &str) -> Value {
    match way {
        Way::Alone => conn.cmd(request),
        Way::InExec => {
            conn.must("MULTI");
            conn.cmd(request);
            conn.cmd("EXEC")
        }
        Way::InScript => {
            let words: Vec<String> = request
                .split(' ')
                .map(|word| format!("('{}'):reverse()", word.chars().rev().collect::<String>()))
                .collect();
            let script = format!("return redis.pcall({})", words.join(", "));
            conn.call(&["EVAL", &script, "0"])
        }
        Way::ByGetkeys => {
            conn.cmd(&format!("COMMAND GETKEYS {request}"));
            conn.cmd(&format!("command getkeysandflags {request}"))
        }
        Way::ByDryrun => conn.cmd(&format!("ACL DRYRUN default {request}")),
    }
}

/// All that a server shows of requests, by where it does.
fn shown(
    conn: &mut Conn,
    server: &Server,
    name: impl Fn(&str) -> String,
) -> Vec<(&'static str, String)> {
    let mut shown = vec![
        ("the log", server.log()),
        (
            "the audit log",
            std::fs::read_to_string(server.data_dir().join("audit.log")).unwrap(),
        ),
    ];
    for request in [
        "SLOWLOG GET -1",
        "COMMANDLOG GET -1 slow",
        "COMMANDLOG GET -1 large-request",
        "COMMANDLOG GET -1 large-reply",
        "HOTKEYS GET",
        "ACL LOG 1000",
        "ACL LIST",
        "INFO everything",
        "INFO errorstats",
        "CLIENT LIST",
        "CLIENT INFO",
        "LATENCY LATEST",
        "MEMORY STATS",
    ] {
        let reply = match request.starts_with("ACL") {
            true => conn.cmd(&name(request)),
            false => conn.cmd(request),
        };
        assert!(reply.error().is_none(), "{request}: {reply:?}");
        shown.push((request, format!("{reply:?}")));
    }
    shown
}

#[test]
fn secrets_are_shown_nowhere() {
    let requests = requests();
    are_complete(&requests);
    for renamed in [false, true] {
        let mut flags = args(
            "--audit-log audit.log --hide-user-data-from-log no --loglevel debug \
             --slowlog-log-slower-than 0 --slowlog-max-len 10000 \
             --commandlog-request-larger-than 0 --commandlog-large-request-max-len 10000 \
             --commandlog-reply-larger-than 0 --commandlog-large-reply-max-len 10000 \
             --latency-monitor-threshold 1 --enable-debug-command yes",
        );
        if renamed {
            for name in ["auth", "hello", "migrate", "acl", "config"] {
                flags.extend(args(&format!("--rename-command {name} my{name}")));
            }
        }
        let flags: Vec<String> = flags
            .into_iter()
            .map(|flag| String::from_utf8(flag).unwrap())
            .collect();
        let server = Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        let mut watcher = server.connect();
        watcher.must("MONITOR");
        let mut conn = server.connect();
        // Scripts may call what they usually may not.
        conn.must("DEBUG SET-DISABLE-DENY-SCRIPTS 1");
        conn.must("HOTKEYS START METRICS 2 CPU NET");
        let name = |request: &str| match renamed {
            true => format!("my{request}"),
            false => request.to_owned(),
        };
        for request in &requests {
            for way in [
                Way::Alone,
                Way::InExec,
                Way::InScript,
                Way::ByGetkeys,
                Way::ByDryrun,
            ] {
                if renamed && matches!(way, Way::ByDryrun) {
                    continue;
                }
                let reply = call(&mut conn, way, &name(request));
                let text = format!("{reply:?}");
                assert!(!text.contains(SECRET), "{way:?} {request}: {text}");
            }
            conn.call(&[&name("CONFIG"), "SET", "requirepass", ""]);
        }
        conn.must("ECHO last");
        let (seen, _) = watcher.read_raw_until(DEADLINE, |seen| {
            String::from_utf8_lossy(seen).contains("\"ECHO\" \"last\"")
        });
        let seen = String::from_utf8_lossy(&seen).into_owned();
        assert!(seen.contains("\"last\"") && seen.matches("(redacted)").count() > requests.len());
        assert!(!seen.contains(SECRET), "MONITOR: {seen}");
        conn.must("CLIENT KILL ID 123456789");
        let audited = server.data_dir().join("audit.log");
        wait_for("the audit log", || {
            let text = std::fs::read_to_string(&audited).unwrap();
            text.contains("123456789")
        });
        for (place, text) in shown(&mut conn, &server, name) {
            let at = text.find(SECRET);
            let around = at.map(|at| &text[at.saturating_sub(200)..(at + 20).min(text.len())]);
            assert!(at.is_none(), "{place}: {around:?}");
        }
    }
}
