//! Replicas as nodes of the cluster.

use super::{id, node};
use crate::replication::{follow, is_caught_up};
use crate::support::{Server, Value, wait_for};

fn is_up(replica: &Server, master: &Server) {
    wait_for("a link", || is_caught_up(master, replica));
}

/// The lines of CLUSTER NODES, without what changes with time.
fn nodes(server: &Server) -> Vec<String> {
    let text = server.connect().must("CLUSTER NODES").text();
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| {
            let mut words: Vec<&str> = line.split(' ').collect();
            words[5] = "PONG";
            words.join(" ").replace("myself,", "")
        })
        .collect();
    lines.sort();
    lines
}

fn line_of(server: &Server, role: &str, master: &str, slots: &str) -> String {
    let port = server.port();
    let (id, bus) = (id(server), port + 10_000);
    format!("{id} 127.0.0.1:{port}@{bus} {role} {master} 0 PONG 0 connected{slots}")
}

#[test]
fn every_node_shows_all_nodes() {
    let master = node(&[]);
    let replicas = [
        node(&[]),
        node(&["--cluster-announce-hostname", "b.example"]),
    ];
    for replica in &replicas {
        follow(replica, &master);
        is_up(replica, &master);
    }
    let owner = id(&master);
    let mut expected = vec![
        line_of(&master, "master", "-", " 0-16383"),
        line_of(&replicas[0], "slave", &owner, ""),
        line_of(&replicas[1], "slave", &owner, ""),
    ];
    let bus = format!("@{}", replicas[1].port() + 10_000);
    expected[2] = expected[2].replace(&bus, &format!("{bus},b.example"));
    expected.sort();
    for server in [&master, &replicas[0], &replicas[1]] {
        wait_for("all nodes", || nodes(server) == expected);
        let mut conn = server.connect();
        let mine = format!("{} ", id(server));
        let text = conn.must("CLUSTER NODES").text();
        let own = text.lines().find(|line| line.starts_with(&mine)).unwrap();
        assert!(own.contains(" myself,"), "{own}");
        let slots = conn.must("CLUSTER SLOTS");
        let range = slots.items()[0].items();
        assert_eq!(range.len(), 5, "{slots:?}");
        let ports: Vec<i64> = range[2..]
            .iter()
            .map(|node| node.items()[1].int())
            .collect();
        assert_eq!(ports[0], i64::from(master.port()));
        let listed = conn.must(&format!("CLUSTER REPLICAS {owner}"));
        assert_eq!(listed.items().len(), 2);
        let error = conn.cmd(&format!("CLUSTER REPLICAS {}", id(&replicas[0])));
        let error = error.error().unwrap();
        assert_eq!(error, "ERR The specified node is not a master");
        let shards = conn.must("CLUSTER SHARDS");
        let shard = shards.items()[0].pairs();
        assert_eq!(shard[1].1.items().len(), 3, "{shards:?}");
        let info = conn.must("CLUSTER INFO").text();
        assert!(info.contains("cluster_known_nodes:3\r\n"), "{info}");
    }
    let shard = |server: &Server| server.connect().must("CLUSTER MYSHARDID").text();
    assert_eq!(shard(&master), shard(&replicas[0]));
    assert_ne!(id(&master), id(&replicas[0]));
}

/// A replica of a replica knows all nodes above it.
#[test]
fn a_chain_ends_at_its_master() {
    let (master, middle, last) = (node(&[]), node(&[]), node(&[]));
    follow(&middle, &master);
    is_up(&middle, &master);
    follow(&last, &middle);
    is_up(&last, &middle);
    let owner = id(&master);
    let mut expected = vec![
        line_of(&master, "master", "-", " 0-16383"),
        line_of(&middle, "slave", &owner, ""),
        line_of(&last, "slave", &owner, ""),
    ];
    expected.sort();
    for server in [&middle, &last] {
        wait_for("all nodes", || nodes(server) == expected);
    }
    let moved = format!("MOVED 15495 127.0.0.1:{}", master.port());
    assert_eq!(last.connect().cmd("GET a").error(), Some(moved));
}

/// The address and port that a replica announces are what clients are told.
#[test]
fn a_replica_is_shown_where_it_says_it_is() {
    let master = node(&[]);
    let flags = [
        "--replica-announce-ip",
        "10.1.1.1",
        "--replica-announce-port",
        "7777",
    ];
    let replica = node(&flags);
    follow(&replica, &master);
    is_up(&replica, &master);
    let text = master.connect().must("CLUSTER NODES").text();
    assert!(text.contains(" 10.1.1.1:7777@"), "{text}");
    // One that is no node is not shown.
    let plain = Server::start(&[]);
    follow(&plain, &master);
    is_up(&plain, &master);
    assert_eq!(nodes(&master).len(), 2);
}

#[test]
fn a_replica_sends_clients_to_its_master_unless_they_read_there() {
    let master = node(&[]);
    let replica = node(&[]);
    master.connect().must("SET a 1");
    follow(&replica, &master);
    is_up(&replica, &master);
    let moved = format!("MOVED 15495 127.0.0.1:{}", master.port());
    let mut conn = replica.connect();
    let error = |value: Value| value.error().unwrap_or_else(|| panic!("{value:?}"));
    for line in [
        "GET a",
        "SET a 2",
        "EVAL return 1 a",
        "BLPOP a 0",
        "WATCH a",
        "SUNSUBSCRIBE a",
        "SPUBLISH a x",
    ] {
        assert_eq!(error(conn.cmd(line)), moved, "{line}");
    }
    assert_eq!(
        error(conn.cmd("MGET a b")),
        "CROSSSLOT Keys in request don't hash to the same slot"
    );
    // Without keys, commands run here; subscribers of shard channels are here, too.
    let mut subscriber = replica.connect();
    subscriber.must("SSUBSCRIBE a");
    master.connect().must("SPUBLISH a news");
    assert_eq!(subscriber.read().unwrap().items()[2], Value::bulk("news"));
    for line in ["PING", "DBSIZE", "PUBLISH a x", "SCAN 0"] {
        conn.must(line);
    }
    conn.must("MULTI");
    assert_eq!(error(conn.cmd("GET a")), moved);
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(error(conn.cmd("EXEC")), aborted);
    let script = "return redis.call('GET', 'a')";
    let text = error(conn.call(&["EVAL", script, "0"]));
    let not_local = "ERR Script attempted to access a non local key in a cluster node script: ";
    assert!(text.starts_with(not_local), "{text}");

    conn.must("READONLY");
    assert_eq!(conn.must("GET a"), Value::bulk("1"));
    assert_eq!(conn.call(&["EVAL", script, "1", "a"]), Value::bulk("1"));
    assert_eq!(error(conn.cmd("SET a 2")), moved);
    let writes = "return redis.call('SET', 'a', '2')";
    let text = error(conn.call(&["EVAL", writes, "1", "a"]));
    let read_only = "READONLY You can't write against a read only replica. script: ";
    assert!(text.starts_with(read_only), "{text}");
    conn.must("MULTI");
    conn.must("GET a");
    assert_eq!(conn.must("EXEC").items(), [Value::bulk("1")]);
    conn.must("READWRITE");
    assert_eq!(error(conn.cmd("GET a")), moved);
    conn.must("READONLY");
    conn.must("RESET");
    assert_eq!(error(conn.cmd("GET a")), moved);
    let refused = error(conn.cmd("CLUSTER RESET"));
    assert!(refused.contains("REPLICAOF NO ONE"), "{refused}");

    replica.connect().must("REPLICAOF NO ONE");
    assert_eq!(conn.must("GET a"), Value::bulk("1"));
    assert_eq!(
        nodes(&replica),
        [line_of(&replica, "master", "-", " 0-16383")]
    );
}

/// A failover sends clients to the new master; a transaction that was begun before fails as a
/// whole.
#[test]
fn clients_follow_a_failover() {
    let (master, replica) = (node(&[]), node(&[]));
    follow(&replica, &master);
    is_up(&replica, &master);
    let mut conn = master.connect();
    conn.must("MULTI");
    conn.must("SET a 1");
    master.connect().must("FAILOVER");
    wait_for("the new master", || {
        replica.connect().cmd("SET b 1") == Value::ok()
    });
    let moved = format!("MOVED 15495 127.0.0.1:{}", replica.port());
    wait_for("the old one to follow", || is_caught_up(&replica, &master));
    assert_eq!(conn.cmd("EXEC").error(), Some(moved.clone()));
    assert_eq!(conn.cmd("GET a").error(), Some(moved));
    assert_eq!(replica.connect().must("EXISTS a"), Value::Int(0));
}
