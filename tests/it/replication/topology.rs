//! More than two servers: chains, promotions, diverging histories.

use super::load::Load;
use super::{assert_same, figure, follow, follow_from_start, info, is_caught_up, server, syncs};
use crate::support::{Conn, Server, Value, oracle, wait_for, wait_within};
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn linked(master: &Server, replica: &Server) {
    follow(replica, master);
    wait_for("a link", || is_caught_up(master, replica));
}

fn promote(replica: &Server) {
    assert_eq!(replica.connect().cmd("REPLICAOF NO ONE"), Value::ok());
}

/// Also on the replica of a replica. A message that is published on a replica stays there.
#[test]
fn messages_reach_the_clients_of_replicas_after_what_was_written_before() {
    let servers = [server(&[]), server(&[]), server(&[])];
    let [master, replica, last] = &servers;
    linked(master, replica);
    linked(replica, last);
    let mut listeners = servers.each_ref().map(Server::connect);
    for listener in &mut listeners {
        listener.must("SUBSCRIBE news");
        listener
            .send_raw(b"SSUBSCRIBE shard\r\nPSUBSCRIBE n*\r\n")
            .unwrap();
        listener.read().unwrap();
        listener.read().unwrap();
    }
    let mut conn = master.connect();
    let [_, on_replica, on_last] = &mut listeners;
    replica.connect().must("PUBLISH news here");
    for n in 0..50 {
        conn.must(&format!("SET n {n}"));
        assert_eq!(conn.must(&format!("PUBLISH news {n}")), Value::Int(2));
        assert_eq!(conn.must(&format!("SPUBLISH shard {n}")), Value::Int(1));
    }
    for (listener, server, local) in [(on_replica, replica, true), (on_last, last, false)] {
        let mut reader = server.connect();
        let mut next = || {
            let words = listener.read().unwrap();
            let words: Vec<String> = words.items().iter().map(Value::text).collect();
            words.join(" ")
        };
        if local {
            assert_eq!(
                [next(), next()],
                ["message news here", "pmessage n* news here"]
            );
        }
        for n in 0..50 {
            assert_eq!(next(), format!("message news {n}"));
            let seen: i64 = reader.must("GET n").text().parse().unwrap();
            assert!(seen >= n, "message {n} came before its write");
            assert_eq!(next(), format!("pmessage n* news {n}"));
            assert_eq!(next(), format!("smessage shard {n}"));
        }
    }
}

#[test]
fn a_chain_carries_everything_on() {
    let master = server(&[]);
    master.connect().must("DEBUG POPULATE 5000");
    let middle = server(&[]);
    linked(&master, &middle);
    let last = server(&[]);
    let load = Load::start(&master, 2, 3);
    linked(&middle, &last);
    wait_for("some load", || load.written() > 10_000);
    load.stop();
    assert_same(&master, &middle);
    assert_same(&middle, &last);
    assert_same(&master, &last);
}

/// The master dies and a replica is promoted. The other replica and the old master follow it
/// with partial syncs.
#[test]
fn after_a_promotion_there_is_no_full_sync() {
    let mut master = server(&[]);
    let heir = server(&[]);
    let other = server(&[]);
    linked(&master, &heir);
    linked(&master, &other);
    let load = Load::start(&master, 2, 5);
    wait_for("some load", || load.written() > 5_000);
    load.stop();
    wait_for("the stream", || {
        is_caught_up(&master, &heir) && is_caught_up(&master, &other)
    });
    let old = info(&master, "replication", "master_replid");
    master.kill9();
    promote(&heir);
    assert_eq!(info(&heir, "replication", "role"), "master");
    assert_ne!(info(&heir, "replication", "master_replid"), old);
    assert_eq!(info(&heir, "replication", "master_replid2"), old);
    heir.connect().must("SET new history");
    linked(&heir, &other);
    assert_eq!(syncs(&heir), (0, 1));
    // It starts as a replica: as a master it could expire keys and so diverge.
    follow_from_start(&mut master, &heir);
    master.spawn();
    wait_for("a link", || is_caught_up(&heir, &master));
    assert_eq!(syncs(&heir), (0, 2));
    let load = Load::start(&heir, 2, 9);
    wait_for("some load", || load.written() > 5_000);
    load.stop();
    assert_same(&heir, &other);
    assert_same(&heir, &master);
}

/// Replicas of a replica continue when that one is promoted, and when they follow another
/// master of the same history.
#[test]
fn replicas_of_a_promoted_replica_go_on() {
    let master = server(&[]);
    let middle = server(&[]);
    let last = server(&[]);
    linked(&master, &middle);
    linked(&middle, &last);
    master.connect().must("SET a 1");
    wait_for("the stream", || is_caught_up(&master, &last));
    let (full, _) = syncs(&middle);
    promote(&middle);
    middle.connect().must("SET b 2");
    wait_for("the link is back", || is_caught_up(&middle, &last));
    assert_eq!(syncs(&middle).0, full, "a full sync");
    assert_same(&middle, &last);
    linked(&last, &master);
    assert_eq!(figure(&last, "stats", "sync_full"), 0);
    assert_same(&last, &master);
}

/// The old master accepted writes that the promoted replica never got: they must be discarded.
#[test]
fn a_history_that_parted_gets_everything_anew() {
    let master = server(&[]);
    let heir = server(&[]);
    linked(&master, &heir);
    master.connect().must("SET both x");
    wait_for("the stream", || is_caught_up(&master, &heir));
    promote(&heir);
    // Both histories continue, with different rows at the same positions.
    master.connect().must("SET ours x");
    heir.connect().must("SET hers x");
    linked(&heir, &master);
    assert_eq!(syncs(&heir).0, 1);
    let mut conn = master.connect();
    assert_eq!(conn.cmd("GET ours"), Value::NullBulk);
    assert_eq!(conn.cmd("GET hers"), Value::bulk("x"));
    assert_same(&heir, &master);
}

/// A replica that restarts as a master begins a history of its own, without REPLICAOF NO ONE.
#[test]
fn a_replica_started_as_a_master_has_its_own_history() {
    let master = server(&[]);
    let mut replica = server(&[]);
    linked(&master, &replica);
    replica.restart();
    assert_eq!(info(&replica, "replication", "role"), "master");
    replica.connect().must("SET stray x");
    master.connect().must("SET right x");
    master.connect().must("SET more x");
    linked(&master, &replica);
    assert_eq!(syncs(&master).0, 2);
    assert_eq!(replica.connect().cmd("GET stray"), Value::NullBulk);
    assert_same(&master, &replica);
}

/// Local writes on a writable replica change its data but not its binlog.
#[test]
fn writes_of_a_writable_replica_are_in_no_binlog() {
    let master = server(&[]);
    let replica = server(&["--replica-read-only", "no"]);
    linked(&master, &replica);
    let before = figure(&replica, "replication", "slave_repl_offset");
    replica.connect().must("SET own x");
    assert_eq!(figure(&replica, "replication", "slave_repl_offset"), before);
    master.connect().must("SET theirs x");
    wait_for("the stream", || is_caught_up(&master, &replica));
    assert_eq!(replica.connect().cmd("GET own"), Value::bulk("x"));
}

/// FAILOVER: the replica takes over, the master follows it, no write is lost and there is no
/// full sync.
#[test]
fn a_failover_changes_the_roles_and_loses_no_write() {
    let master = server(&[]);
    let replica = server(&[]);
    let mut conn = master.connect();
    let refused = |conn: &mut Conn, line: &str| conn.cmd(line).error().expect(line);
    assert_eq!(
        refused(&mut conn, "FAILOVER"),
        "ERR FAILOVER requires connected replicas."
    );
    assert_eq!(
        refused(&mut conn, "FAILOVER ABORT"),
        "ERR No failover in progress."
    );
    linked(&master, &replica);
    assert_eq!(
        refused(&mut conn, "FAILOVER TO 127.0.0.1 1"),
        "ERR FAILOVER target HOST and PORT is not a replica."
    );
    assert_eq!(
        refused(&mut conn, "FAILOVER FORCE"),
        "ERR FAILOVER with force option requires both a timeout and target HOST and IP."
    );
    assert_eq!(
        refused(&mut conn, "FAILOVER TIMEOUT 0"),
        "ERR FAILOVER timeout must be greater than 0"
    );
    assert_eq!(
        refused(&mut replica.connect(), "FAILOVER"),
        "ERR FAILOVER is not valid when server is a replica."
    );
    // Every acknowledged increment must be there afterwards.
    let address = master.address();
    let counter = std::thread::spawn(move || {
        let mut conn = Conn::open(&address).unwrap();
        let mut last = 0;
        while let Value::Int(n) = conn.cmd("INCR counter") {
            last = n;
        }
        last
    });
    let full = syncs(&master).0;
    wait_for("some steps", || match conn.must("GET counter") {
        Value::Bulk(_) => conn.must("GET counter").text().parse::<u64>().unwrap() > 100,
        _ => false,
    });
    assert_eq!(conn.cmd("FAILOVER TIMEOUT 20000"), Value::ok());
    wait_for("the roles change", || {
        info(&replica, "replication", "role") == "master"
            && info(&master, "replication", "role") == "slave"
            && info(&master, "replication", "master_failover_state") == "no-failover"
    });
    let last = counter.join().unwrap();
    assert!(last > 0);
    let found = replica.connect().must("GET counter").text();
    assert_eq!(found, last.to_string());
    replica.connect().must("SET after x");
    assert_same(&replica, &master);
    assert_eq!((syncs(&replica).0, syncs(&master).0), (0, full));
    // It tries to reach the dead master once a second, not continuously.
    let gone = Instant::now();
    replica.signal("KILL");
    let tries = || master.log().matches("Connection refused").count() as u64;
    wait_for("two tries", || tries() >= 2);
    let (tries, seconds) = (tries(), gone.elapsed().as_secs());
    assert!(tries <= seconds + 2, "{tries} tries in {seconds} s");
}

/// With a replica that does not respond, the failover and the writes wait.
#[test]
fn a_failover_ends_at_its_timeout_or_by_abort() {
    let master = server(&[]);
    let replica = server(&[]);
    linked(&master, &replica);
    replica.signal("STOP");
    let mut conn = master.connect();
    conn.must("SET k v");
    for end in ["FAILOVER TIMEOUT 5000", "FAILOVER"] {
        assert_eq!(conn.cmd(end), Value::ok());
        let state = || info(&master, "replication", "master_failover_state");
        assert_eq!(state(), "waiting-for-sync");
        let again = conn.cmd("FAILOVER").error().expect("refused");
        assert_eq!(again, "ERR FAILOVER already in progress.");
        let mut writer = master.connect();
        writer.send(&["INCR", "held"]).unwrap();
        assert_eq!(
            conn.cmd("EXISTS held"),
            Value::Int(i64::from(end == "FAILOVER"))
        );
        if end == "FAILOVER" {
            assert_eq!(conn.cmd("FAILOVER ABORT"), Value::ok());
        }
        wait_for("the end", || state() == "no-failover");
        assert!(matches!(writer.read(), Ok(Value::Int(_))));
    }
    replica.signal("CONT");
    assert_same(&master, &replica);
}

/// A forced failover does not wait for the replica. What the replica was sent before is not lost, and
/// no data set is sent again.
#[test]
fn a_forced_failover_takes_along_what_was_sent() {
    let master = server(&[]);
    let replica = server(&[]);
    linked(&master, &replica);
    let full = syncs(&master).0;
    replica.signal("STOP");
    let mut conn = master.connect();
    for n in 0..200 {
        conn.must(&format!("SET {n} {}", "v".repeat(500)));
    }
    let failover = format!("FAILOVER TO 127.0.0.1 {} FORCE TIMEOUT 100", replica.port());
    assert_eq!(conn.cmd(&failover), Value::ok());
    wait_for("the handover", || {
        info(&master, "replication", "master_failover_state") == "failover-in-progress"
    });
    replica.signal("CONT");
    wait_for("the roles change", || {
        info(&replica, "replication", "role") == "master"
            && info(&master, "replication", "master_failover_state") == "no-failover"
    });
    assert_eq!(replica.connect().must("DBSIZE"), Value::Int(200));
    assert_same(&replica, &master);
    assert_eq!((syncs(&replica).0, syncs(&master).0), (0, full));
}

/// A replica that still applies what it was sent does not become master once that is called off.
#[test]
fn a_forced_failover_is_called_off_while_the_replica_is_behind() {
    let master = server(&[]);
    let replica = server(&[]);
    linked(&master, &replica);
    // The script has the key that the master's writes need.
    let mut script = replica.connect();
    let endless = "while true do end";
    script.send(&["EVAL_RO", endless, "1", "held"]).unwrap();
    let mut other = replica.connect();
    wait_for("the script", || {
        let stats = other.must("FUNCTION STATS");
        !matches!(stats.items()[1], Value::Null | Value::NullBulk)
    });
    let mut conn = master.connect();
    conn.must("SET held v");
    let failover = format!("FAILOVER TO 127.0.0.1 {} FORCE TIMEOUT 1", replica.port());
    assert_eq!(conn.cmd(&failover), Value::ok());
    // One that is refused, as the replica has not been told the new id of the history, comes again.
    wait_for("the request to take over", || {
        let replicas = other.must("CLIENT LIST TYPE replica").text();
        replicas.contains("cmd=psync")
    });
    assert_eq!(conn.cmd("FAILOVER ABORT"), Value::ok());
    wait_for("the end of the request", || {
        replica.log().contains("it closed the connection")
    });
    assert_eq!(other.must("SCRIPT KILL"), Value::ok());
    assert_same(&master, &replica);
    assert_eq!(info(&master, "replication", "role"), "master");
    assert_eq!(info(&replica, "replication", "role"), "slave");
    assert!(!replica.log().contains("MASTER MODE"));
}

/// A replica whose user may not be followed refuses to take over. Everything stays as it was.
#[test]
fn a_refused_failover_changes_nothing() {
    let master = server(&[]);
    let replica = server(&[]);
    linked(&master, &replica);
    let mut conn = master.connect();
    conn.must("SET k v");
    replica.connect().must("ACL SETUSER default -psync");
    let before = (syncs(&master), syncs(&replica));
    assert_eq!(conn.cmd("FAILOVER"), Value::ok());
    wait_for("the end", || {
        info(&master, "replication", "master_failover_state") == "no-failover"
    });
    assert_eq!(info(&master, "replication", "role"), "master");
    assert_eq!(info(&replica, "replication", "role"), "slave");
    replica.connect().must("ACL SETUSER default +psync");
    conn.must("SET after x");
    assert_same(&master, &replica);
    assert_eq!(
        (syncs(&master).0, syncs(&replica).0),
        (before.0.0, before.1.0)
    );
}

/// A port that neither accepts nor refuses connections, like a machine that is down: its
/// backlog is full.
fn black_hole() -> (u16, Vec<Socket>) {
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let listener = socket();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let port = address.as_socket().unwrap().port();
    let mut sockets = vec![listener];
    for _ in 0..4 {
        let filler = socket();
        filler.set_nonblocking(true).unwrap();
        // The connection attempt continues in the background.
        let _ = filler.connect(&address);
        sockets.push(filler);
    }
    (port, sockets)
}

/// A connection attempt to a machine that is down used to delay every other request to the
/// link thread, including the shutdown, by `repl-timeout` seconds.
#[test]
fn a_master_that_is_gone_holds_nobody_up() {
    let soon = Duration::from_secs(15);
    let (port, _sockets) = black_hole();
    let master = server(&[]);
    let mut replica = server(&[]);
    let into_the_hole = |replica: &Server| {
        let line = format!("REPLICAOF 127.0.0.1 {port}");
        assert_eq!(replica.connect().cmd(&line), Value::ok());
        wait_for("the attempt", || {
            let role = replica.connect().must("ROLE");
            role.items()[3] == Value::bulk("connecting")
        });
    };
    into_the_hole(&replica);
    follow(&replica, &master);
    assert!(wait_within(soon, || is_caught_up(&master, &replica)));
    into_the_hole(&replica);
    let started = Instant::now();
    replica.terminate();
    assert!(started.elapsed() < soon, "{:?}", started.elapsed());
}

/// A planned shutdown waits until connected replicas have everything.
#[test]
fn a_shutdown_waits_for_replicas() {
    let mut master = server(&["--shutdown-timeout", "60"]);
    let replica = server(&[]);
    linked(&master, &replica);
    replica.signal("STOP");
    let mut conn = master.connect();
    conn.must("SET early x");
    let mut asker = master.connect();
    asker.send(&["SHUTDOWN"]).unwrap();
    let mut writer = master.connect();
    let id = writer.must("CLIENT ID").int();
    let waits = |master: &Server, count| {
        wait_for("the wait", || {
            master.log().matches("to be stopped").count() == count
        });
    };
    waits(&master, 1);
    writer.send(&["SET", "late", "x"]).unwrap();
    wait_for("the write to be held back", || {
        let line = conn.must(&format!("CLIENT LIST ID {id}")).text();
        line.contains(" flags=b ")
    });
    assert_eq!(conn.must("MGET early late").items()[0], Value::bulk("x"));
    assert_eq!(conn.must("EXISTS late"), Value::Int(0), "not held back");
    assert_eq!(conn.cmd("SHUTDOWN ABORT"), Value::ok());
    let refused = asker.read().unwrap().error().expect("an error");
    assert_eq!(refused, "ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(writer.read().unwrap(), Value::ok());
    assert!(conn.cmd("SHUTDOWN ABORT").error().is_some());
    // Now without an abort.
    master.signal("TERM");
    waits(&master, 2);
    // The main thread, which stops the server, also accepts connections, so it has checked
    // the replicas again.
    for _ in 0..3 {
        master.connect().must("PING");
    }
    assert!(master.alive(), "SHUTDOWN did not wait for the replica");
    replica.signal("CONT");
    assert!(master.wait_exit().success());
    let mut conn = replica.connect();
    assert_eq!(conn.must("GET late"), Value::bulk("x"));
}

#[test]
fn a_shutdown_waits_no_longer_than_it_may() {
    let mut master = server(&["--shutdown-on-sigint", "now"]);
    let replica = server(&[]);
    linked(&master, &replica);
    let mut stop = |timeout: Duration, begin: &dyn Fn(&Server)| {
        replica.signal("STOP");
        let mut conn = master.connect();
        let timeout = timeout.as_secs();
        conn.must(&format!("CONFIG SET shutdown-timeout {timeout}"));
        conn.must("SET k v");
        let started = Instant::now();
        begin(&master);
        assert!(master.wait_exit().success());
        let took = started.elapsed();
        replica.signal("CONT");
        master.spawn();
        wait_for("a link", || is_caught_up(&master, &replica));
        took
    };
    let ask = |line: &'static str| move |master: &Server| drop(master.connect().cmd(line));
    let (short, long) = (Duration::from_secs(2), Duration::from_secs(60));
    assert!(stop(short, &ask("SHUTDOWN")) >= short);
    assert!(stop(long, &ask("SHUTDOWN NOW")) < long);
    assert!(stop(long, &|master| master.signal("INT")) < long);
}

/// Nothing that changes the offset is sent to the Redis between two writes.
#[test]
fn a_redis_behind_a_replica_counts_what_its_master_counts() {
    let ping = ["--repl-ping-replica-period", "1"];
    let (master, middle, last) = (server(&ping), server(&ping), oracle(&[]));
    linked(&master, &middle);
    // The first write begins a history.
    master.connect().must("SET n first");
    wait_for("it is there", || is_caught_up(&master, &middle));
    follow(&last, &middle);
    let at = |server: &Server, name| figure(server, "replication", name);
    let caught_up = || {
        info(&last, "replication", "master_link_status") == "up"
            && at(&last, "slave_repl_offset") == at(&middle, "master_repl_offset")
    };
    for n in 0..3 {
        master.connect().must(&format!("SET n {n}"));
        wait_for("the write", || {
            last.connect().cmd("GET n") == Value::bulk(n.to_string()) && caught_up()
        });
        let until = Instant::now() + Duration::from_millis(2500);
        wait_within(Duration::from_secs(5), || Instant::now() >= until);
    }
    assert_eq!(syncs(&middle), (1, 0));
}

/// A client that has said that it takes redirections is sent to the master by a replica.
#[test]
fn a_replica_redirects_clients_that_take_it() {
    let servers = [server(&[]), server(&[])];
    let [master, replica] = &servers;
    master.connect().must("SET k v");
    linked(master, replica);
    let mut plain = replica.connect();
    let mut conn = replica.connect();
    conn.must("CLIENT CAPA redirect");
    let elsewhere = format!("REDIRECT 127.0.0.1:{}", master.port());
    let is_sent = |conn: &mut Conn, line: &str| {
        let error = format!("{:?}", conn.cmd(line));
        assert_eq!(error, format!("-\"{elsewhere}\""), "{line}");
    };
    is_sent(&mut conn, "SET k w");
    is_sent(&mut conn, "GET k");
    conn.must("PING");
    conn.must("INFO server");
    assert_eq!(conn.must("READONLY"), Value::ok());
    assert_eq!(conn.must("GET k").text(), "v");
    is_sent(&mut conn, "SET k w");
    conn.must("MULTI");
    is_sent(&mut conn, "SET k w");
    let discarded = conn.cmd("EXEC");
    assert!(matches!(discarded, Value::Error(_)), "{discarded:?}");
    assert_eq!(conn.must("READWRITE"), Value::ok());
    is_sent(&mut conn, "GET k");
    // What was queued before the server became a replica is not run there.
    conn.must("READONLY");
    promote(replica);
    conn.must("MULTI");
    conn.must("SET k w");
    linked(master, replica);
    is_sent(&mut conn, "EXEC");
    assert_eq!(plain.must("GET k").text(), "v");
    let refused = format!("{:?}", plain.cmd("SET k w"));
    assert!(refused.contains("READONLY"), "{refused}");
}
