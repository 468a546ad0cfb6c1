//! Replicas that behave as no server does: they read slowly or not at all, send nothing, or are
//! many.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{assert_same, figure, follow, info, is_caught_up, server, syncs};
use crate::support::{Conn, DEADLINE, Pace, Server, Value, wait_for, wait_within};

/// More data than socket buffers hold.
const KEYS: i64 = 60_000;

fn filled(more: &[&str]) -> Server {
    let master = server(more);
    master
        .connect()
        .must(&format!("DEBUG POPULATE {KEYS} key 400"));
    master
}

/// Requests the data set in Kedis' own dialect and reads nothing.
fn ask(master: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(master.address()).unwrap();
    let lines = b"REPLCONF capa kedis3\r\nPSYNC ? -1\r\n";
    socket.write_all(lines).unwrap();
    socket
}

fn states(master: &Server, state: &str) -> usize {
    let text = master.connect().must("INFO replication").text();
    text.matches(&format!("state={state}")).count()
}

/// A Redis that receives a file sends nothing until it has all of it.
#[test]
fn a_replica_that_reads_the_data_set_slowly_need_not_send_anything() {
    let master = filled(&["--repl-timeout", "1"]);
    let mut socket = ask(&master);
    let started = Instant::now();
    let end = b"REPL_SNAPSHOT_COMPLETE";
    let (mut tail, mut piece) = (Vec::new(), vec![0; 1 << 20]);
    let mut slowly = Pace::per_second(5);
    while !tail.windows(end.len()).any(|w| w == end) {
        let read = socket.read(&mut piece).unwrap();
        assert!(read > 0, "cut off after {:?}", started.elapsed());
        let keep = tail.len().saturating_sub(end.len());
        tail.drain(..keep);
        tail.extend_from_slice(&piece[..read]);
        // The rest is read fast, before the master expects an acknowledgement.
        if started.elapsed() < Duration::from_secs(3) {
            slowly.wait();
        }
    }
    assert!(started.elapsed() > Duration::from_secs(2), "not slow");
}

/// A peer that does not read is disconnected even if it sends acknowledgements, because its
/// snapshot keeps files.
#[test]
fn who_does_not_take_the_data_set_is_let_go() {
    let master = filled(&["--repl-timeout", "1"]);
    let mut talking = ask(&master);
    let mut old = TcpStream::connect(master.address()).unwrap();
    old.write_all(b"SYNC\r\n").unwrap();
    wait_for("both", || {
        figure(&master, "replication", "connected_slaves") == 2
    });
    let gone = wait_within(Duration::from_secs(20), || {
        // The connection may be closed already.
        let _ = talking.write_all(b"REPLCONF ACK 0\r\n");
        states(&master, "send_bulk") == 0
    });
    assert!(gone, "{}", master.connect().must("INFO replication").text());
}

/// Many replicas that request the data set at once get it in turn.
#[test]
fn a_crowd_of_replicas_is_served_in_turn() {
    const AT_ONCE: usize = 16;
    let master = filled(&["--repl-ping-replica-period", "1"]);
    let mut crowd: Vec<TcpStream> = (0..3 * AT_ONCE).map(|_| ask(&master)).collect();
    wait_for("all", || {
        figure(&master, "replication", "connected_slaves") as usize == crowd.len()
    });
    wait_for("the first", || states(&master, "send_bulk") == AT_ONCE);
    assert_eq!(states(&master, "wait_bgsave"), 2 * AT_ONCE);
    let replica = server(&[]);
    follow(&replica, &master);
    // Neither the waiting replica nor the master times out: the last one in the queue gets a
    // newline once a second.
    replica.connect().must("CONFIG SET repl-timeout 2");
    wait_for("the replica", || {
        figure(&master, "replication", "connected_slaves") as usize == crowd.len() + 1
    });
    let mut last = ask(&master);
    last.set_read_timeout(Some(DEADLINE)).unwrap();
    let expected = "+OK\r\n\n\n\n\n";
    let mut got = vec![0; expected.len()];
    last.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected);
    let waits = replica.connect().must("ROLE").items()[3].text();
    assert_eq!(waits, "handshake");
    assert_eq!(syncs(&master).0 as usize, crowd.len() + 2);
    crowd.clear();
    drop(last);
    assert_same(&master, &replica);
    assert_eq!(syncs(&master).0 as usize, 3 * AT_ONCE + 2);
}

/// It used to stay subscribed permanently.
#[test]
fn a_client_that_becomes_a_replica_gets_no_messages_any_more() {
    let master = server(&[]);
    let mut conn = master.connect();
    conn.must("HELLO 3");
    conn.must("CLIENT TRACKING ON BCAST");
    for line in ["SUBSCRIBE news", "PSUBSCRIBE n*", "SSUBSCRIBE shard"] {
        conn.must(line);
    }
    let mut other = master.connect();
    assert_eq!(other.must("PUBSUB NUMPAT"), Value::Int(1));
    conn.send(&["PSYNC", "?", "-1"]).unwrap();
    wait_for("the replica", || {
        figure(&master, "replication", "connected_slaves") == 1
    });
    let none = [Value::bulk("news"), Value::Int(0)];
    assert_eq!(other.must("PUBSUB NUMSUB news").items(), none);
    assert_eq!(other.must("PUBSUB NUMPAT"), Value::Int(0));
    let none = [Value::bulk("shard"), Value::Int(0)];
    assert_eq!(other.must("PUBSUB SHARDNUMSUB shard").items(), none);
    assert_eq!(info(&master, "clients", "tracking_clients"), "0");
}

/// A replica that lags gets the end of the binlog, from which it computes its lag.
#[test]
fn a_replica_that_lags_gets_the_end_of_the_binlog() {
    let master = server(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("the link", || is_caught_up(&master, &replica));
    let mut writer = master.connect();
    writer.must("SET k v");
    let next = figure(&master, "binlog", "binlog_next_position");
    let id = info(&master, "replication", "master_replid");
    let mut lagging = master.connect();
    lagging.must("REPLCONF capa kedis3");
    let goes_on = lagging.must(&format!("PSYNC {id} {next}"));
    assert_eq!(goes_on, Value::simple(&format!("CONTINUE {id}")));
    let value = "x".repeat(1 << 20);
    for _ in 0..40 {
        writer.call(&["SET", "big", &value]);
    }
    // REPL_PING comes once a second while the replica lags.
    let silent_s = || {
        let text = master.connect().must("INFO replication").text();
        let lags = text.split(",lag=").skip(1);
        let lags = lags.filter_map(|text| text.split(',').next()?.parse::<u64>().ok());
        lags.max().expect("a replica")
    };
    let before = silent_s();
    wait_for("two seconds of lag", || silent_s() >= before + 2);
    let mut applied = 0;
    let got_end = wait_within(Duration::from_secs(20), || {
        let frame = lagging.read().unwrap();
        let position = || frame.items()[1].text().parse::<i64>().unwrap();
        match frame.items()[0].text().as_str() {
            "REPL_ROW" => applied = position(),
            "REPL_PING" => return position() > applied + (4 << 20),
            _ => {}
        }
        false
    });
    assert!(got_end, "only rows up to {applied}");
    assert_same(&master, &replica);
}

/// The errors of REPLCONF and FAILOVER are Redis'.
#[test]
fn errors_are_those_of_redis() {
    let server = server(&[]);
    let mut conn = server.connect();
    let long = format!("REPLCONF ip-address {}", "x".repeat(300));
    for (line, text) in [
        (
            long.as_str(),
            "ERR REPLCONF ip-address provided by replica instance is too long: 300 bytes",
        ),
        (
            "REPLCONF rdb-only 2",
            "ERR value is out of range, value must between 0 and 1",
        ),
        (
            "REPLCONF rdb-filter-only keys",
            "ERR Unsupported rdb-filter-only option: keys",
        ),
        (
            "REPLCONF rdb-filter-only 'functions",
            "ERR Missing rdb-filter-only values",
        ),
        // As in Redis the filter stays set; without `capa eof` SYNC is refused.
        ("SYNC", "ERR Filtered replica requires EOF capability"),
        (
            "FAILOVER FORCE",
            "ERR FAILOVER requires connected replicas.",
        ),
        (
            "FAILOVER TO x 99999",
            "ERR FAILOVER requires connected replicas.",
        ),
        (
            "FAILOVER TIMEOUT x",
            "ERR value is not an integer or out of range",
        ),
        (
            "FAILOVER TIMEOUT -1",
            "ERR FAILOVER timeout must be greater than 0",
        ),
    ] {
        assert_eq!(conn.cmd(line).error().as_deref(), Some(text), "{line}");
    }
    conn.must("REPLICAOF localhost 1");
    assert_eq!(
        conn.cmd("REPLICAOF LOCALHOST 1"),
        Value::simple("OK Already connected to specified master")
    );
}

#[test]
fn a_script_that_runs_ends_as_it_began() {
    // TIME stands still while it runs.
    let script = "redis.call('SET', 'begun', 1)\n\
         redis.log(redis.LOG_WARNING, 'the script has begun')\n\
         local till = os.clock() + 1.5\n\
         while os.clock() < till do end\n\
         redis.call('SET', 'done', 1)\n\
         return 'whole'";
    let begin = |server: &Server| {
        let mut conn = server.connect();
        let begun = || server.log().matches("the script has begun").count();
        let before = begun();
        conn.send(&["EVAL", script, "0"]).unwrap();
        // Once on the IO thread, and again on a worker.
        wait_for("a worker to run it", || begun() >= before + 2);
        conn
    };
    let whole = |mut conn: Conn| assert_eq!(conn.read().unwrap(), Value::bulk("whole"));
    let master = server(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("the link", || is_caught_up(&master, &replica));
    let running = begin(&master);
    assert_eq!(master.connect().cmd("FAILOVER"), Value::ok());
    whole(running);
    wait_for("the roles change", || {
        info(&replica, "replication", "role") == "master"
            && info(&master, "replication", "role") == "slave"
    });
    let both = [Value::bulk("1"), Value::bulk("1")];
    assert_eq!(replica.connect().must("MGET begun done").items(), both);
    assert_same(&replica, &master);
    // REPLICAOF while a script of this server runs.
    let running = begin(&replica);
    follow(&replica, &master);
    whole(running);
    let mut conn = replica.connect();
    let refused = conn.call(&["EVAL", script, "0"]).error().expect("refused");
    assert!(refused.starts_with("READONLY "), "{refused}");
}

#[test]
fn what_goes_over_links_is_counted() {
    let (master, replica) = (server(&[]), server(&[]));
    follow(&replica, &master);
    wait_for("the link", || is_caught_up(&master, &replica));
    let sent = || figure(&master, "stats", "total_net_repl_output_bytes");
    let read = || figure(&replica, "stats", "total_net_repl_input_bytes");
    let (sent_before, read_before) = (sent(), read());
    let value = "x".repeat(100_000);
    master.connect().call(&["SET", "k", &value]);
    wait_for("the stream", || is_caught_up(&master, &replica));
    assert!(sent() >= sent_before + 100_000);
    assert!(read() >= read_before + 100_000);
    assert_eq!(figure(&master, "stats", "total_net_repl_input_bytes"), 0);
    assert_eq!(figure(&replica, "stats", "total_net_repl_output_bytes"), 0);
}
