//! TLS: what clients, replicas, MIGRATE and the tools see of it.

use crate::support::server::free_port;
use crate::support::tls::{Authority, TlsServer};
use crate::support::{Conn, DEADLINE, Server, Value, oracle, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

fn replicates(master: &mut Conn, replica: &mut Conn, what: &str) {
    master.cmd(&format!("SET {what} value"));
    wait_for("the replica has it", || {
        replica.cmd(&format!("GET {what}")) == Value::bulk("value")
    });
}

#[test]
fn clients_are_served_as_over_tcp() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &[]);
    let mut plain = tls.server.connect();
    let mut conn = tls.connect(&authority);
    assert_eq!(conn.cmd("SET key value"), Value::ok());
    assert_eq!(plain.cmd("GET key"), Value::bulk("value"));
    // Long values go through the buffers of both ends many times.
    let long = "0123456789abcdef".repeat(1 << 20);
    assert_eq!(conn.call(&["SET", "long", &long]), Value::ok());
    assert!(conn.call(&["GET", "long"]) == Value::bulk(&long));
    // A pipeline whose replies are read only after everything was sent.
    let requests = 20_000;
    for n in 0..requests {
        conn.send(&["APPEND", "grows", &format!("{n} ")]).unwrap();
    }
    let mut last = 0;
    for _ in 0..requests {
        let Value::Int(length) = conn.read().unwrap() else {
            panic!("no length");
        };
        assert!(length > last);
        last = length;
    }
    // Messages and blocked commands wake a connection that has sent nothing.
    let mut subscriber = tls.connect(&authority);
    subscriber.cmd("SUBSCRIBE news");
    let mut waiting = tls.connect(&authority);
    waiting.send(&["BLPOP", "list", "0"]).unwrap();
    wait_for("a blocked client", || {
        plain
            .cmd("INFO clients")
            .text()
            .contains("blocked_clients:1")
    });
    assert_eq!(plain.cmd("PUBLISH news hello"), Value::Int(1));
    plain.cmd("RPUSH list element");
    assert!(format!("{:?}", subscriber.read().unwrap()).contains("hello"));
    assert!(format!("{:?}", waiting.read().unwrap()).contains("element"));
}

#[test]
fn redis_cli_speaks_to_it() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &[]);
    let cli = |flags: &[String], words: &[&str]| {
        let done = Command::new("redis-cli")
            .args(["-p", &tls.port.to_string()])
            .args(flags)
            .args(words)
            .output()
            .unwrap();
        let text = [done.stdout, done.stderr].concat();
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    let flags = authority.cli_flags();
    assert_eq!(cli(&flags, &["SET", "key", "value"]), "OK");
    assert_eq!(cli(&flags, &["GET", "key"]), "value");
    // Without a certificate, and in plain text.
    assert!(!cli(&flags[..3], &["GET", "key"]).contains("value"));
    assert!(!cli(&[], &["GET", "key"]).contains("value"));
    let mut plain = tls.server.connect();
    assert_eq!(
        plain.cmd("CONFIG SET tls-auth-clients optional"),
        Value::ok()
    );
    assert_eq!(cli(&flags[..3], &["GET", "key"]), "value");
    for (protocols, good, bad) in [("TLSv1.2", "1.2", "1.3"), ("TLSv1.3", "1.3", "1.2")] {
        let set = plain.call(&["CONFIG", "SET", "tls-protocols", protocols]);
        assert_eq!(set, Value::ok());
        for (version, is_spoken) in [(good, true), (bad, false)] {
            let names = match version {
                "1.2" => ["--tls-ciphers", "DEFAULT"],
                _ => ["--tls-ciphersuites", "TLS_AES_128_GCM_SHA256"],
            };
            let mut probe = Command::new("openssl");
            let version = format!("-tls{}", version.replace('.', "_"));
            probe.args(["s_client", "-brief", "-connect", &tls.address(), &version]);
            let done = probe.stdin(Stdio::null()).output();
            let Ok(done) = done else {
                eprintln!("openssl is missing: versions are tested with redis-cli alone");
                assert_eq!(
                    cli(&[&flags[..], &names.map(String::from)].concat(), &["PING"]),
                    "PONG"
                );
                continue;
            };
            let text = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            assert_eq!(text.contains("CONNECTION ESTABLISHED"), is_spoken, "{text}");
        }
    }
}

/// For clients that speak no TLS.
#[test]
fn stunnel_may_stand_between() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &["--tls-auth-clients-user", "CN"]);
    let acl = "ACL SETUSER client on ~* &* +@all";
    assert_eq!(tls.server.connect().cmd(acl), Value::ok());
    let port = free_port();
    let file = |name: &str| authority.file(name);
    let text = format!(
        "foreground = yes\npid =\n[kedis]\nclient = yes\naccept = 127.0.0.1:{}\nconnect = {}\n\
         CAfile = {}\ncert = {}\nkey = {}\nverifyChain = yes\n",
        *port,
        tls.address(),
        file("ca.crt"),
        file("client.crt"),
        file("client.key")
    );
    authority.replace("stunnel.conf", &text);
    let started = Command::new("stunnel4")
        .arg(file("stunnel.conf"))
        .stderr(Stdio::null())
        .spawn();
    let mut stunnel = match started {
        Ok(stunnel) => stunnel,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("stunnel4 is missing: it was not tested");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let address = format!("127.0.0.1:{}", *port);
    let works = std::panic::catch_unwind(|| {
        wait_for("stunnel", || TcpStream::connect(&address).is_ok());
        let mut conn = Conn::open(&address).unwrap();
        assert_eq!(conn.cmd("ACL WHOAMI"), Value::bulk("client"));
        let long = "0123456789abcdef".repeat(1 << 18);
        assert_eq!(conn.call(&["SET", "long", &long]), Value::ok());
        assert!(conn.call(&["GET", "long"]) == Value::bulk(&long));
    });
    stunnel.kill().unwrap();
    stunnel.wait().unwrap();
    works.unwrap();
}

#[test]
fn certificates_change_while_clients_are_connected() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &[]);
    let mut early = tls.connect(&authority);
    let shown = || {
        let stream = TcpStream::connect(tls.address()).unwrap();
        let connector = authority.connector(Some("client"));
        let link = connector
            .connect(stream, "kedis", DEADLINE, || true)
            .unwrap();
        link.peer_certificate().unwrap().to_vec()
    };
    let first = shown();
    let facts = |conn: &mut Conn| {
        let info = conn.cmd("INFO tls").text();
        let lines = info.lines().filter_map(|line| line.split_once(':'));
        let facts = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
        facts.collect::<std::collections::HashMap<_, _>>()
    };
    let at_first = facts(&mut early);
    // By CONFIG SET.
    authority.certify("server", "second");
    let set = early.call(&[
        "CONFIG",
        "SET",
        "tls-cert-file",
        &authority.file("second.crt"),
        "tls-key-file",
        &authority.file("second.key"),
    ]);
    assert_eq!(set, Value::ok());
    let second = shown();
    assert_ne!(first, second);
    // By new files.
    authority.certify("server", "second");
    wait_for("the new certificate", || shown() != second);
    let third = shown();
    let now = facts(&mut early);
    assert_ne!(
        now["tls_server_cert_serial"],
        at_first["tls_server_cert_serial"]
    );
    assert_eq!(now["tls_ca_cert_serial"], at_first["tls_ca_cert_serial"]);
    assert_eq!(now["tls_client_cert_serial"], "none");
    for name in ["server", "ca"] {
        let left_s = &now[&format!("tls_{name}_cert_expires_in_seconds")];
        assert!(left_s.parse::<u64>().unwrap() > 86_400, "{left_s}");
    }
    assert_eq!(now["tls_client_cert_expires_in_seconds"], "0");
    // What cannot be used changes nothing.
    let set = early.call(&["CONFIG", "SET", "tls-cert-file", &authority.file("ca.crt")]);
    let refusal = set.error().unwrap();
    assert!(
        refusal.contains("Unable to update TLS configuration"),
        "{refusal}"
    );
    let get = early.cmd("CONFIG GET tls-cert-file");
    assert!(format!("{get:?}").contains("second.crt"), "{get:?}");
    authority.replace("second.crt", "half a certificate");
    wait_for("a word in the log", || {
        tls.server.log().contains("have changed and cannot be used")
    });
    assert_eq!(shown(), third);
    assert_eq!(early.cmd("PING"), Value::simple("PONG"));
}

#[test]
fn handshakes_that_stall_end() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &[]);
    let mut silent = TcpStream::connect(tls.address()).unwrap();
    let mut halting = TcpStream::connect(tls.address()).unwrap();
    // The head of a record whose rest never comes.
    halting.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    let mut others = tls.connect(&authority);
    for stalled in [&mut silent, &mut halting] {
        stalled.set_read_timeout(Some(DEADLINE)).unwrap();
        // An alert may come first.
        let mut rest = Vec::new();
        let end = stalled.read_to_end(&mut rest);
        let timed_out = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
        assert!(!end.is_err_and(|error| timed_out.contains(&error.kind())));
        assert!(rest.len() < 16, "{rest:?}");
    }
    assert_eq!(others.cmd("PING"), Value::simple("PONG"));
    assert!(
        others
            .cmd("INFO clients")
            .text()
            .contains("connected_clients:1")
    );
}

/// Each was a warning: whoever could connect could fill the disk of the log.
#[test]
fn broken_handshakes_are_not_logged() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &[]);
    let broken: [&[u8]; 5] = [
        b"PING\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        // Data, an alert, and a greeting in which nothing is right.
        &[23, 3, 3, 0, 2, 1, 1],
        &[21, 3, 3, 0, 2, 2, 40],
        &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0],
    ];
    let break_all = || {
        for bytes in broken {
            let mut stranger = TcpStream::connect(tls.address()).unwrap();
            stranger.set_read_timeout(Some(DEADLINE)).unwrap();
            stranger.write_all(bytes).unwrap();
            // The server ends the connection, perhaps with an alert.
            let _ = stranger.shutdown(std::net::Shutdown::Write);
            let end = stranger.read_to_end(&mut Vec::new());
            let timed_out = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
            assert!(!end.is_err_and(|error| timed_out.contains(&error.kind())));
        }
    };
    break_all();
    let log = tls.server.log();
    assert!(!log.contains("WARN"), "{log}");
    // For who looks for a fault in the other end.
    let set = tls
        .server
        .connect()
        .call(&["CONFIG", "SET", "log-levels", "tls debug"]);
    assert_eq!(set, Value::ok());
    break_all();
    let log = tls.server.log();
    assert!(log.contains("WARN"), "{log}");
}

#[test]
fn ports_change_and_the_plain_one_may_be_closed() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &[]);
    let mut conn = tls.connect(&authority);
    let other = free_port();
    let set = conn.call(&["CONFIG", "SET", "tls-port", &other.to_string()]);
    assert_eq!(set, Value::ok());
    let address = format!("127.0.0.1:{}", *other);
    let mut moved = Conn::open_tls(&address, &authority.connector(Some("client"))).unwrap();
    assert_eq!(moved.cmd("PING"), Value::simple("PONG"));
    assert!(TcpStream::connect(tls.address()).is_err());
    assert_eq!(conn.cmd("CONFIG SET port 0"), Value::ok());
    assert!(TcpStream::connect(tls.server.address()).is_err());
    let info = moved.cmd("INFO server").text();
    assert!(info.contains(&format!("tcp_port:{}", *other)), "{info}");
    assert_eq!(conn.cmd("PING"), Value::simple("PONG"));
}

/// A pipe without another end held the thread with the connection for ever.
#[test]
fn what_is_no_usual_file_is_refused() {
    let authority = Authority::new();
    let tls = TlsServer::start(
        &authority,
        &["--io-threads", "1", "--tls-replication", "yes"],
    );
    let mut conn = tls.connect(&authority);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (pipe, long) = (path("pipe"), path("long"));
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let file = std::fs::File::create(&long).unwrap();
    file.set_len(1 << 40).unwrap();
    for name in [
        "tls-cert-file",
        "tls-key-file",
        "tls-client-cert-file",
        "tls-client-key-file",
        "tls-ca-cert-file",
    ] {
        for (path, why) in [(&pipe, "no regular file"), (&long, "too large")] {
            // The two files of an identity are named together.
            let other = match name {
                "tls-client-cert-file" => "tls-client-key-file",
                "tls-client-key-file" => "tls-client-cert-file",
                _ => "tls-session-caching",
            };
            let value = match other {
                "tls-session-caching" => "yes".to_owned(),
                "tls-client-key-file" => authority.file("client.key"),
                _ => authority.file("client.crt"),
            };
            let reasons = || tls.server.log().matches(why).count();
            let before = reasons();
            let reply = conn.call(&["CONFIG", "SET", name, path, other, &value]);
            assert!(reply.error().is_some(), "{name} {path}: {reply:?}");
            assert_eq!(reasons(), before + 1, "{name}: {}", tls.server.log());
        }
    }
    let reply = conn.call(&["CONFIG", "SET", "tls-ca-cert-dir", &pipe]);
    assert!(reply.error().is_some(), "{reply:?}");
    // One in a directory is passed over.
    std::fs::copy(authority.file("ca.crt"), dir.path().join("ca.crt")).unwrap();
    let dir = dir.path().to_str().unwrap();
    let reply = conn.call(&["CONFIG", "SET", "tls-ca-cert-dir", dir]);
    assert_eq!(reply, Value::ok());
    assert_eq!(conn.cmd("PING"), Value::simple("PONG"));
}

#[test]
fn a_server_without_what_tls_needs_does_not_start() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let (plain, port) = (free_port(), free_port());
    let start = |flags: &[&str]| {
        let done = Server::command(dir.path(), *plain, flags).output().unwrap();
        assert!(!done.status.success());
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    };
    let port = port.to_string();
    let text = start(&["--tls-port", &port]);
    assert!(text.contains("No tls-cert-file configured"), "{text}");
    let (certificate, key) = (authority.file("server.crt"), authority.file("client.key"));
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
    let text = start(&[&["--tls-port", &port], &files[..]].concat());
    assert!(
        text.contains("does not belong to the certificate"),
        "{text}"
    );
    let text = start(&["--tls-replication", "yes"]);
    assert!(
        text.contains("Either tls-ca-cert-file or tls-ca-cert-dir"),
        "{text}"
    );
}

#[test]
fn replicas_follow_in_tls() {
    let authority = Authority::new();
    let tls = ["--tls-replication", "yes"];
    let master = TlsServer::start(&authority, &tls);
    let replica = TlsServer::start(&authority, &tls);
    let mut writes = master.connect(&authority);
    for n in 0..2000 {
        writes
            .send(&["SET", &format!("before:{n}"), &"x".repeat(1000)])
            .unwrap();
    }
    for _ in 0..2000 {
        assert_eq!(writes.read().unwrap(), Value::ok());
    }
    let mut reads = replica.connect(&authority);
    let follow = |port: u16| {
        [
            "REPLICAOF".to_owned(),
            "127.0.0.1".to_owned(),
            port.to_string(),
        ]
    };
    assert_eq!(reads.call(&follow(*master.port)), Value::ok());
    replicates(&mut writes, &mut reads, "after");
    assert_eq!(reads.cmd("DBSIZE"), Value::Int(2001));
    assert!(
        writes
            .cmd("INFO replication")
            .text()
            .contains(&format!("port={}", *replica.port))
    );
    // The plain port is not spoken to in TLS.
    assert_eq!(reads.call(&follow(master.server.port())), Value::ok());
    wait_for("a link that is down", || {
        reads
            .cmd("INFO replication")
            .text()
            .contains("master_link_status:down")
    });
    assert_eq!(reads.call(&follow(*master.port)), Value::ok());
    replicates(&mut writes, &mut reads, "again");
}

#[test]
fn redis_follows_and_is_followed_in_tls() {
    let authority = Authority::new();
    let tls = ["--tls-replication", "yes"];
    let ours = TlsServer::start(&authority, &tls);
    let redis = TlsServer::with(&authority, &tls, oracle);
    let mut kedis = ours.connect(&authority);
    let mut other = redis.connect(&authority);
    kedis.cmd("RPUSH list 1 2 3");
    assert_eq!(
        other.cmd(&format!("REPLICAOF 127.0.0.1 {}", *ours.port)),
        Value::ok()
    );
    replicates(&mut kedis, &mut other, "to-redis");
    assert_eq!(other.cmd("LLEN list"), Value::Int(3));
    assert_eq!(other.cmd("REPLICAOF NO ONE"), Value::ok());
    assert_eq!(
        kedis.cmd(&format!("REPLICAOF 127.0.0.1 {}", *redis.port)),
        Value::ok()
    );
    replicates(&mut other, &mut kedis, "from-redis");
}

#[test]
fn keys_migrate_in_tls() {
    let authority = Authority::new();
    let source = TlsServer::start(&authority, &["--tls-replication", "yes"]);
    let target = TlsServer::start(&authority, &[]);
    let mut conn = source.connect(&authority);
    let long = "v".repeat(3 << 20);
    conn.call(&["SET", "key", &long]);
    let moved = conn.cmd(&format!("MIGRATE 127.0.0.1 {} key 0 20000", *target.port));
    assert_eq!(moved, Value::ok());
    assert!(target.connect(&authority).cmd("GET key") == Value::bulk(&long));
    assert_eq!(conn.cmd("EXISTS key"), Value::Int(0));
    // The connection is still open; it is not used when the server is to speak in plain text.
    assert_eq!(conn.info_number("stats", "migrate_cached_sockets"), 1);
    let migrate = |conn: &mut Conn, port: u16| {
        conn.cmd("SET key 1");
        conn.cmd(&format!("MIGRATE 127.0.0.1 {port} key 0 5000 REPLACE"))
    };
    assert_eq!(conn.cmd("CONFIG SET tls-replication no"), Value::ok());
    let refused = migrate(&mut conn, *target.port);
    assert!(refused.error().unwrap().starts_with("IOERR"), "{refused:?}");
    let plain = target.server.port();
    assert_eq!(migrate(&mut conn, plain), Value::ok());
    assert_eq!(conn.cmd("CONFIG SET tls-replication yes"), Value::ok());
    assert_eq!(migrate(&mut conn, *target.port), Value::ok());
    let refused = migrate(&mut conn, plain);
    assert!(refused.error().unwrap().starts_with("IOERR"), "{refused:?}");
    conn.cmd("SET key 1");
    let refused = conn.cmd(&format!(
        "MIGRATE 127.0.0.1 {} key 0 5000",
        target.server.port()
    ));
    assert!(refused.error().unwrap().starts_with("IOERR"), "{refused:?}");
    assert_eq!(conn.cmd("GET key"), Value::bulk("1"));
}

#[test]
fn the_tools_speak_tls_with_both_ends() {
    let authority = Authority::new();
    let source = TlsServer::with(&authority, &[], oracle);
    let target = TlsServer::start(&authority, &[]);
    let mut from = source.connect(&authority);
    for n in 0..500 {
        from.cmd(&format!("HSET hash:{n} field value{n}"));
    }
    let [redis_to_kedis, kedis_to_redis, kedis_port] = [
        env!("CARGO_BIN_EXE_redis_to_kedis"),
        env!("CARGO_BIN_EXE_kedis_to_redis"),
        env!("CARGO_BIN_EXE_kedis_port"),
    ];
    let ca = authority.file("ca.crt");
    let (certificate, key) = (authority.file("client.crt"), authority.file("client.key"));
    let run = |tool: &str, source: &TlsServer, target: &TlsServer, more: &[&str]| {
        let mut command = Command::new(tool);
        for (end, server) in [("src", source), ("dst", target)] {
            command.args([format!("--{end}_addr"), server.address()]);
            command.arg(format!("--{end}_tls"));
            for (what, file) in [("ca", &ca), ("cert", &certificate), ("key", &key)] {
                command.args([&format!("--{end}_tls_{what}"), file]);
            }
        }
        let done = command.args(more).output().unwrap();
        let text = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "{text}");
    };
    run(redis_to_kedis, &source, &target, &["--exit-when-synced"]);
    let mut to = target.connect(&authority);
    assert_eq!(to.cmd("DBSIZE"), Value::Int(500));
    run(redis_to_kedis, &source, &target, &["--verify"]);
    to.cmd("FLUSHALL");
    run(
        redis_to_kedis,
        &source,
        &target,
        &["--scan", "--exit-when-synced"],
    );
    assert_eq!(to.cmd("HGET hash:7 field"), Value::bulk("value7"));
    // And back, and on to another server of ours.
    from.cmd("FLUSHALL");
    run(kedis_to_redis, &target, &source, &["--exit-when-synced"]);
    assert_eq!(from.cmd("DBSIZE"), Value::Int(500));
    let other = TlsServer::start(&authority, &[]);
    run(kedis_port, &target, &other, &["--exit-when-synced"]);
    assert_eq!(other.connect(&authority).cmd("DBSIZE"), Value::Int(500));
}

/// CVE-2026-56684: a client is killed while data are on their way to it.
#[test]
fn clients_are_killed_while_data_are_on_their_way() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &[]);
    let mut plain = tls.server.connect();
    plain.call(&["SET", "long", &"v".repeat(4 << 20)]);
    for round in 0..40 {
        let mut victim = tls.connect(&authority);
        let id = victim.cmd("CLIENT ID").int();
        for _ in 0..=round % 4 {
            victim.send(&["GET", "long"]).unwrap();
        }
        if round % 2 == 0 {
            // Half of a request, too.
            victim.send_raw(b"*2\r\n$3\r\nGET\r\n$4\r\nlo").unwrap();
        }
        let killed = plain.cmd(&format!("CLIENT KILL ID {id}"));
        assert_eq!(killed, Value::Int(1));
    }
    wait_for("no other client", || {
        plain.info_number("clients", "connected_clients") == 1
    });
}

/// Clients that vanish in the middle of anything leave nothing behind.
#[test]
fn clients_that_vanish_are_forgotten() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &[]);
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let address = tls.address();
            let connector = authority.connector(Some("client"));
            thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..50 {
                    let Ok(mut conn) = Conn::open_tls(&address, &connector) else {
                        continue;
                    };
                    let value = "v".repeat(random.usize(..200_000));
                    let sent = conn.send(&["SET", "key", &value]);
                    if random.bool() && sent.is_ok() {
                        assert_eq!(conn.read().unwrap(), Value::ok());
                    }
                    let _ = conn.send(&["GET", "key"]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut conn = tls.connect(&authority);
    wait_for("no other client", || {
        conn.cmd("INFO clients")
            .text()
            .contains("connected_clients:1")
    });
    let pause = Duration::from_millis(10);
    conn.set_timeout(DEADLINE + pause);
    assert_eq!(conn.cmd("PING"), Value::simple("PONG"));
}
