//! Users: rules against the oracle's, connections whose users change, files.

use crate::support::{Conn, Server, Value, oracle, seed};
use std::time::{Duration, Instant};

/// Words from which rules are made. The oracle rejects some of them.
const RULES: &[&str] = &[
    "on",
    "OFF",
    "nopass",
    "resetpass",
    ">a",
    ">b",
    "<a",
    "<b",
    "#00",
    "!zz",
    "reset",
    "~*",
    "~a*",
    "~b",
    "%R~a*",
    "%W~b",
    "%rw~c",
    "%~x",
    "%RR~x",
    "%R",
    "~",
    "allkeys",
    "resetkeys",
    "&*",
    "&a*",
    "&b",
    "&",
    "allchannels",
    "resetchannels",
    "+@all",
    "-@all",
    "allcommands",
    "nocommands",
    "+get",
    "-get",
    "+GET",
    "+set",
    "-set",
    "+@read",
    "-@read",
    "+@Write",
    "-@write",
    "+@string",
    "-@dangerous",
    "+@nosuch",
    "+config",
    "-config",
    "+config|get",
    "-config|get",
    "+config|nosuch",
    "+config|",
    "+config|get|x",
    "+select|0",
    "+select",
    "-select|0",
    "+nosuch",
    "-nosuch",
    "+@hash",
    "-@slow",
    "+@keyspace",
    "sanitize-payload",
    "skip-sanitize-payload",
    "clearselectors",
    "(+get ~b)",
    "(%W~a +set)",
    "(-@all +@read",
    "~c)",
    "()",
    "(+nosuch)",
    "(>p)",
    "nosuch",
    "+",
    "-",
    "(&a* +publish)",
    "+publish",
    "+subscribe",
    "+psubscribe",
    "+@pubsub",
];

/// Requests that users may run or not.
const REQUESTS: &[&str] = &[
    "GET a1",
    "GET b",
    "SET a1 x",
    "SET b x GET",
    "SET c x",
    "COPY a1 b",
    "EXISTS c",
    "DEL b",
    "MGET a1 b",
    "SORT a1 STORE b",
    "GEORADIUS a1 1 1 1 m STORE b",
    "XREAD STREAMS a1 b 0 0",
    "CONFIG GET port",
    "CONFIG SET port 1",
    "SELECT 0",
    "SELECT 1",
    "PUBLISH a1 x",
    "SUBSCRIBE a1 b",
    "PSUBSCRIBE a*",
    "PSUBSCRIBE a1",
    "UNSUBSCRIBE x",
    "KEYS *",
    "HGET a1 f",
    "HSET b f v",
    "EVAL x 1 a1",
    "PING",
    "AUTH x",
    "ACL WHOAMI",
    "FLUSHALL",
    "MIGRATE h 1 a1 0 1",
    "PFCOUNT a1",
    "BITFIELD a1 GET u8 0",
    "BITFIELD a1 SET u8 0 1",
    "LMPOP 1 b LEFT",
    "GET",
    "NOSUCH",
];

/// The parts of a user that all versions describe in the same way.
fn described(client: &mut Conn, name: &str) -> Vec<Value> {
    fn fields(map: &Value, shown: &mut Vec<Value>) {
        for (name, value) in map.pairs() {
            match name.text().as_str() {
                // Later versions keep the rules of commands as they were given.
                "commands" | "databases" => {}
                "flags" => {
                    let mut flags = value.flat().unwrap();
                    flags.retain(|flag| !flag.text().contains("sanitize"));
                    shown.extend(flags);
                }
                "selectors" => value.items().iter().for_each(|inner| fields(inner, shown)),
                _ => shown.push(value),
            }
        }
    }
    let mut shown = Vec::new();
    fields(&client.must(&format!("ACL GETUSER {name}")), &mut shown);
    shown
}

/// The oracle's reply as it would be if it did not quote passwords.
fn without_passwords(reply: Value) -> Value {
    const BEFORE: &str = "ERR Error in ACL SETUSER modifier '";
    let Some(text) = reply.error() else {
        return reply;
    };
    let Some((rule, reason)) = text
        .strip_prefix(BEFORE)
        .and_then(|rest| rest.split_once("': "))
    else {
        return reply;
    };
    let shown = match rule.as_bytes() {
        [b'(', inner @ ..] if inner.iter().any(|byte| b"<>#!".contains(byte)) => {
            "(redacted)".to_owned()
        }
        [sign @ (b'<' | b'#' | b'!'), _, ..] => format!("{}(redacted)", char::from(*sign)),
        _ => rule.to_owned(),
    };
    Value::Error(format!("{BEFORE}{shown}': {reason}").into_bytes())
}

/// Whether a selector begins within another one: Redis 7.0 forgets the first then, later versions and
/// this server take it for a part of the first.
fn opens_twice(rules: &[&str]) -> bool {
    let mut is_open = false;
    rules.iter().any(|rule| {
        let begins = rule.starts_with('(') && !rule.ends_with(')');
        let twice = begins && is_open;
        is_open = begins || is_open && !rule.ends_with(')');
        twice
    })
}

#[test]
fn random_rules_mean_what_they_mean_to_the_oracle() {
    let seed = seed("KEDIS_USERS_SEED");
    let mut random = fastrand::Rng::with_seed(seed);
    let servers = [Server::start(&[]), oracle(&[])];
    let [mut ours, mut theirs] = servers.each_ref().map(|server| server.connect());
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..300 {
        let name = format!("u{}", random.usize(..5));
        let count = random.usize(1..8);
        let rules: Vec<&str> = (0..count)
            .map(|_| RULES[random.usize(..RULES.len())])
            .collect();
        if opens_twice(&rules) {
            continue;
        }
        let words: Vec<&str> = ["ACL", "SETUSER", &name].into_iter().chain(rules).collect();
        let case = format!("seed {seed}, round {round}: {}", words.join(" "));
        let [our, their] = [&mut ours, &mut theirs].map(|client| client.call(&words));
        assert_eq!(our, without_passwords(their), "{case}");
        match our {
            Value::Error(_) => refused += 1,
            _ => accepted += 1,
        }
        if ours
            .must("ACL USERS")
            .items()
            .iter()
            .all(|known| known.text() != name)
        {
            continue;
        }
        let [our, their] = [&mut ours, &mut theirs].map(|client| described(client, &name));
        assert_eq!(our, their, "{case}");
        for request in REQUESTS {
            let line = format!("ACL DRYRUN {name} {request}");
            let [our, their] = [&mut ours, &mut theirs].map(|client| {
                // Before Redis 7.2 the user was not named.
                let reply = format!("{:?}", client.cmd(&line));
                reply.replace("This user has", &format!("User {name} has"))
            });
            assert_eq!(our, their, "{case}: {line}");
        }
        // What is listed makes the same user.
        let list = ours.must("ACL LIST");
        let begin = format!("user {name} ");
        let line = list
            .items()
            .iter()
            .map(Value::text)
            .find(|line| line.starts_with(&begin));
        let line = line.expect("the user is listed");
        let rules = line.strip_prefix(&begin).unwrap();
        ours.must(&format!("ACL SETUSER again reset {rules}"));
        let again = ours.must("ACL LIST").items()[0].text();
        assert_eq!(again, line.replacen(&name, "again", 1), "{case}");
    }
    assert!(
        accepted > 50 && refused > 50,
        "{accepted} accepted, {refused} refused"
    );
}

fn is_closed(client: &mut Conn) -> bool {
    client.set_timeout(Duration::from_secs(10));
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        match client.read() {
            Ok(_) => {}
            Err(error) => {
                return error.kind() == std::io::ErrorKind::UnexpectedEof
                    || error.kind() == std::io::ErrorKind::ConnectionReset;
            }
        }
    }
    false
}

fn logged_in(server: &Server, name: &str) -> Conn {
    let mut client = server.connect();
    client.must(&format!("AUTH {name} p"));
    client
}

#[test]
fn connections_end_with_their_user_and_subscribers_with_a_channel() {
    let server = Server::start(&["--io-threads", "2"]);
    let mut admin = server.connect();
    for name in ["a", "b"] {
        admin.must(&format!("ACL SETUSER {name} on >p +@all ~* &x* &y"));
    }
    let mut of_a: Vec<Conn> = (0..4).map(|_| logged_in(&server, "a")).collect();
    let mut of_b: Vec<Conn> = (0..4).map(|_| logged_in(&server, "b")).collect();
    of_a[1].send(&["BLPOP", "nothing", "0"]).unwrap();
    of_a[2].must("SUBSCRIBE x1");
    assert_eq!(admin.must("ACL DELUSER a"), Value::Int(1));
    assert!(of_a.iter_mut().all(is_closed));
    of_b[0].must("SUBSCRIBE x1");
    of_b[1].must("PSUBSCRIBE x*");
    of_b[2].must("SSUBSCRIBE y");
    admin.must("ACL SETUSER b resetchannels &x* &z");
    assert!(is_closed(&mut of_b[2]));
    admin.must("ACL SETUSER b resetchannels &x1");
    assert!(is_closed(&mut of_b[1]));
    assert_eq!(admin.must("PUBLISH x1 m"), Value::Int(1));
    assert_eq!(of_b[0].read().unwrap().items()[2].text(), "m");
    of_b[3].must("PING");
    // A connection ends with the user that it deletes.
    let mut own = logged_in(&server, "b");
    assert_eq!(own.must("ACL DELUSER b"), Value::Int(1));
    assert!(is_closed(&mut own) && is_closed(&mut of_b[3]));
    let line = admin.must("CLIENT LIST").text();
    assert!(!line.contains("user=b"), "{line}");
}

#[test]
fn users_survive_a_restart_in_a_file_or_in_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let acl = dir.path().join("users.acl");
    std::fs::write(
        &acl,
        "user a on >p ~a* +@all\nuser default on nopass ~* &* +@all\n",
    )
    .unwrap();
    let flags = ["--aclfile", acl.to_str().unwrap()];
    let server = Server::start(&flags);
    let mut admin = server.connect();
    let mut of_a = logged_in(&server, "a");
    admin.must("ACL SETUSER b on >p +get (%R~x -@all +set)");
    let mut of_b = logged_in(&server, "b");
    admin.must("ACL SAVE");
    let listed = admin.must("ACL LIST");
    let text = std::fs::read_to_string(&acl).unwrap();
    let lines: Vec<String> = listed.items().iter().map(Value::text).collect();
    assert_eq!(text, lines.join("\n") + "\n");
    assert!(!text.contains(">p"), "{text}");
    admin.must("ACL LOAD");
    assert_eq!(admin.must("ACL LIST"), listed);
    of_a.must("PING");
    // A file with a mistake changes nothing.
    std::fs::write(&acl, format!("{text}user c +nosuch\n")).unwrap();
    let reply = admin.cmd("ACL LOAD");
    assert!(
        format!("{reply:?}").contains("Unknown command"),
        "{reply:?}"
    );
    assert_eq!(admin.must("ACL LIST"), listed);
    std::fs::write(&acl, text.replace("user b", "user c")).unwrap();
    admin.must("ACL LOAD");
    assert!(is_closed(&mut of_b));
    of_a.must("PING");
    drop(server);
    let server = Server::start(&flags);
    let names = server.connect().must("ACL USERS");
    let names: Vec<String> = names.items().iter().map(Value::text).collect();
    assert_eq!(names, ["a", "c", "default"]);
}

/// A file that would block whoever reads it, has no end, or is too large.
#[test]
fn what_is_no_usual_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let acl = dir.path().join("users.acl");
    std::fs::write(&acl, "").unwrap();
    let server = Server::start(&["--aclfile", acl.to_str().unwrap(), "--io-threads", "1"]);
    let mut admin = server.connect();
    admin.must("ACL SETUSER a on >p +@all ~*");
    let refused = |admin: &mut Conn, why: &str| {
        let reply = admin.cmd("ACL LOAD");
        let text = reply.error().unwrap_or_default();
        assert!(text.contains(why), "{reply:?}");
        assert_eq!(admin.must("ACL USERS").items().len(), 2);
    };
    let replace = |command: &str, args: &[&str]| {
        let _ = std::fs::remove_file(&acl);
        let _ = std::fs::remove_dir(&acl);
        let made = std::process::Command::new(command)
            .args(args)
            .arg(&acl)
            .status();
        assert!(made.unwrap().success(), "{command}");
    };
    for (command, args) in [
        ("mkfifo", &[][..]),
        ("mkdir", &[]),
        ("ln", &["-s", "/dev/zero"]),
    ] {
        replace(command, args);
        refused(&mut admin, "no regular file");
    }
    replace("truncate", &["-s", "1T"]);
    refused(&mut admin, "too large");
    // Sixteen megabytes without an end of a line, and as many lines that are wrong.
    for text in [
        "user a on ".to_owned() + &"~a".repeat(8 << 20),
        "x\n".repeat(8 << 20),
    ] {
        std::fs::write(&acl, &text[..16 << 20]).unwrap();
        let mut other = server.connect();
        admin.send(&["ACL", "LOAD"]).unwrap();
        other.must("PING");
        admin.read().unwrap();
    }
    // What could not be read again is not saved.
    assert!(admin.cmd("ACL SAVE").error().is_some());
    admin.must("ACL SETUSER a resetkeys");
    admin.must("ACL SAVE");
    admin.must("ACL LOAD");
}

/// A server that ends with the test, also if that fails.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_rewritten_configuration_has_the_users() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kedis.conf");
    std::fs::write(&file, "requirepass first\nuser a on >p ~a* +@all\n").unwrap();
    let port = crate::support::server::free_port();
    let start = || {
        let mut command =
            Server::command_with_file(file.to_str().unwrap(), &dir.path().join("data"), *port);
        Running(command.spawn().expect("a server"))
    };
    std::fs::create_dir_all(dir.path().join("data")).unwrap();
    let connect = || {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Ok(client) = Conn::open(&format!("127.0.0.1:{}", *port)) {
                return client;
            }
            assert!(Instant::now() < deadline, "the server does not start");
            std::thread::yield_now();
        }
    };
    let mut child = start();
    let mut admin = connect();
    let reply = admin.cmd("PING");
    assert!(format!("{reply:?}").contains("NOAUTH"), "{reply:?}");
    admin.must("AUTH first");
    admin.must("ACL SETUSER b on >q (~x +get)");
    // Its line is longer than a MiB.
    let long = "long:".repeat(200);
    let patterns = (0..1_500).map(|n| format!("~{long}{n}:*"));
    let patterns = patterns.collect::<Vec<_>>().join(" ");
    admin.must(&format!("ACL SETUSER long on {patterns} (+get {patterns})"));
    admin.must("CONFIG SET requirepass second");
    let listed = admin.must("ACL LIST");
    admin.must("CONFIG REWRITE");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("user b on") && !text.contains(">p"), "{text}");
    admin.must("CONFIG REWRITE");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let stop = |admin: &mut Conn, child: &mut Running| {
        admin.send(&["SHUTDOWN"]).unwrap();
        child.0.wait().unwrap();
    };
    stop(&mut admin, &mut child);
    let mut child = start();
    let mut admin = connect();
    admin.must("AUTH second");
    assert_eq!(admin.must("ACL LIST"), listed);
    connect().must("AUTH b q");
    stop(&mut admin, &mut child);
}
