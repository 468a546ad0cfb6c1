//! Full and partial syncs between two servers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::load::Load;
use super::redis_master::redis;
use super::{
    assert_same, binlog, cut_links, eventually, families, figure, first_position, follow,
    follow_from_start, info, is_caught_up, server, syncs,
};
use crate::support::{Conn, Server, Value, env_number, seed, unix_ms, wait_for};

const READONLY: &str = "READONLY You can't write against a read only replica.";

fn rounds() -> u64 {
    env_number("KEDIS_REPLICATION_ROUNDS", 3)
}

/// Enough data for a full sync to take some time.
fn fill(master: &Server) {
    let mut conn = master.connect();
    // Most of it in a DB that the load does not clear.
    conn.must("SELECT 8");
    conn.must("DEBUG POPULATE 150000 key 150");
    for db in 0..3 {
        conn.must(&format!("SELECT {db}"));
        let items: Vec<String> = (0..3000).map(|n| format!("item-{n}")).collect();
        conn.must(&format!("RPUSH long {}", items.join(" ")));
        conn.must(&format!("SADD many {}", items.join(" ")));
        let scored: Vec<String> = (0..3000).map(|n| format!("{n} item-{n}")).collect();
        conn.must(&format!("ZADD ranked {}", scored.join(" ")));
        conn.must(&format!("HSET fields {}", scored.join(" ")));
        conn.must("SETRANGE huge 5000000 end");
        conn.must("SET fleeting x PX 900000");
    }
}

#[test]
fn a_replica_gets_everything_and_then_the_stream_under_load() {
    let seed = seed("KEDIS_REPLICATION_SEED");
    let master = server(&[]);
    fill(&master);
    let replica = server(&[]);
    replica.connect().must("SET stale data");
    let load = Load::start(&master, 3, seed);
    follow(&replica, &master);
    wait_for("some load after the sync", || {
        info(&replica, "replication", "master_link_status") == "up" && load.written() > 20_000
    });
    assert!(load.stop() > 0);
    assert_same(&master, &replica);
    assert_eq!(replica.connect().cmd("EXISTS stale"), Value::Int(0));
    assert_eq!(syncs(&master).0, 1);
}

#[test]
fn a_broken_link_resumes_at_its_position_in_any_db() {
    let master = server(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    let mut conn = master.connect();
    conn.must("SELECT 7");
    for n in 0..5 {
        conn.must(&format!("SET before{n} x"));
        cut_links(&master);
        conn.must(&format!("SET after{n} x"));
        wait_for("the link is back", || is_caught_up(&master, &replica));
    }
    assert_same(&master, &replica);
    let mut conn = replica.connect();
    conn.must("SELECT 7");
    assert_eq!(conn.must("DBSIZE"), Value::Int(10));
    let (full, partial) = syncs(&master);
    assert_eq!(full, 1);
    assert!(partial >= 5, "{partial} partial syncs");
}

fn library(name: &str, value: u32) -> String {
    format!(
        "#!lua name={name}\n\
         redis.register_function{{function_name='{name}_get', flags={{'no-writes'}}, \
             callback=function() return {value} end}}"
    )
}

#[test]
fn libraries_of_functions_come_with_the_data_and_with_the_stream() {
    let master = server(&[]);
    let mut replica = server(&[]);
    let load = |server: &Server, name, value| {
        let mut conn = server.connect();
        let code = library(name, value);
        let reply = conn.call(&["FUNCTION", "LOAD", "REPLACE", &code]);
        assert_eq!(reply, Value::bulk(name));
    };
    let call = |server: &Server, name: &str| server.connect().cmd(&format!("FCALL {name}_get 0"));
    load(&master, "both", 1);
    load(&master, "ours", 2);
    load(&replica, "both", 3);
    load(&replica, "theirs", 4);
    follow(&replica, &master);
    follow_from_start(&mut replica, &master);
    assert_same(&master, &replica);
    assert_eq!(call(&replica, "both"), Value::Int(1));
    assert_eq!(call(&replica, "ours"), Value::Int(2));
    assert!(call(&replica, "theirs").error().is_some());
    load(&master, "both", 5);
    load(&master, "later", 6);
    master.connect().must("FUNCTION DELETE ours");
    assert_same(&master, &replica);
    assert_eq!(call(&replica, "both"), Value::Int(5));
    replica.kill9();
    replica.spawn();
    assert_same(&master, &replica);
    assert_eq!(call(&replica, "later"), Value::Int(6));
    assert!(call(&replica, "ours").error().is_some());
    // A transaction that changes libraries is one row; a flush without libraries is also
    // logged.
    let mut conn = master.connect();
    for line in ["MULTI", "SET k v", "FUNCTION FLUSH"] {
        conn.must(line);
    }
    conn.must("EXEC");
    conn.must("FUNCTION FLUSH");
    assert_same(&master, &replica);
    let listed = replica.connect().must("FUNCTION LIST");
    assert_eq!(listed.items().len(), 0);
    assert_eq!(syncs(&master).0, 1);
}

/// The positions of a replica's old data have no meaning for a new master. The replica used to
/// acknowledge them, and WAIT counted it.
#[test]
fn a_replica_with_a_longer_past_acknowledges_nothing_of_it() {
    let master = server(&[]);
    fill(&master);
    let replica = server(&[]);
    replica.connect().must("DEBUG POPULATE 200000 key 150");
    let past = figure(&replica, "replication", "master_repl_offset");
    assert!(past > figure(&master, "replication", "master_repl_offset"));
    follow(&replica, &master);
    wait_for("the sync", || {
        let text = master.connect().must("INFO replication").text();
        text.contains("state=send_bulk")
    });
    wait_for("the link", || is_caught_up(&master, &replica));
    replica.signal("STOP");
    let mut conn = master.connect();
    conn.must("SET k v");
    assert_eq!(conn.cmd("WAIT 1 300"), Value::Int(0));
    assert_eq!(conn.cmd("WAITAOF 0 1 300").items()[1], Value::Int(0));
    replica.signal("CONT");
    assert_eq!(conn.cmd("WAIT 1 20000"), Value::Int(1));
    assert_same(&master, &replica);
}

/// Either side is killed at a random time in a full sync or in the stream after it.
#[test]
fn kill_9_of_either_side_loses_nothing() {
    let seed = seed("KEDIS_REPLICATION_SEED");
    let mut rng = fastrand::Rng::with_seed(seed);
    for round in 0..rounds() {
        let mut master = server(&[]);
        fill(&master);
        let mut replica = server(&[]);
        replica.connect().must("SET old data");
        let load = Load::start(&master, 2, seed ^ round);
        follow(&replica, &master);
        follow_from_start(&mut replica, &master);
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(rng.u64(..900)));
            match rng.bool() {
                true => {
                    replica.kill9();
                    replica.spawn();
                }
                false => {
                    master.kill9();
                    master.spawn();
                }
            }
            // The replica has the old data or the new, never a part.
            let old = eventually(&replica, "GET old");
            let found = figure(&replica, "replication", "slave_repl_offset");
            let whole = old == Value::bulk("data") || found > 0;
            assert!(whole, "neither the old nor the new data");
        }
        load.stop();
        assert_same(&master, &replica);
        replica.terminate();
        replica.spawn();
        wait_for("the link is back", || is_caught_up(&master, &replica));
        // The master may have a column family of a DB that it has never logged.
        assert!(
            families(&replica) <= families(&master),
            "orphan column families"
        );
    }
}

#[test]
fn restarts_of_either_side_go_on_without_a_full_sync() {
    let mut master = server(&[]);
    let mut replica = server(&[]);
    follow(&replica, &master);
    follow_from_start(&mut replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    for round in 0..3 {
        master.connect().must(&format!("SET a{round} x"));
        replica.restart();
        master.connect().must(&format!("SET b{round} x"));
        wait_for("the link is back", || is_caught_up(&master, &replica));
        assert_eq!(syncs(&master).0, i64::from(round == 0), "full syncs");
        master.restart();
        master.connect().must(&format!("SET c{round} x"));
        wait_for("the link is back", || is_caught_up(&master, &replica));
        assert_eq!(syncs(&master).0, 0, "full syncs");
        master.kill9();
        master.spawn();
        wait_for("the link is back", || is_caught_up(&master, &replica));
        assert_eq!(syncs(&master), (0, 1));
    }
    assert_same(&master, &replica);
}

#[test]
fn who_falls_behind_the_trim_gets_everything_again() {
    let master = server(&[
        "--binlog-capacity",
        "500",
        "--binlog-hold-max-bytes",
        "20000",
    ]);
    let mut replica = server(&[]);
    follow(&replica, &master);
    follow_from_start(&mut replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    replica.kill9();
    let mut conn = master.connect();
    for n in 0..5000 {
        conn.must(&format!("SET key{n} x"));
    }
    wait_for("the trim", || {
        figure(&master, "binlog", "binlog_entries") <= 500
    });
    replica.spawn();
    assert_same(&master, &replica);
    assert_eq!(syncs(&master).0, 2);
    // The first for its own unknown history, the second after the trim.
    assert_eq!(figure(&master, "stats", "sync_partial_err"), 2);
}

/// The replica is stopped during the sync: rows that it needs later must not be trimmed.
#[test]
fn a_full_sync_longer_than_the_retention_continues_with_the_stream() {
    let master = server(&["--binlog-capacity", "100"]);
    fill(&master);
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("the sync", || {
        let text = master.connect().must("INFO replication").text();
        text.contains("state=send_bulk")
    });
    replica.signal("STOP");
    let binlog = |name: &str| figure(&master, "binlog", &format!("binlog_{name}"));
    wait_for("the trim of what was before", || binlog("entries") <= 100);
    let first = binlog("first_position");
    let mut conn = master.connect();
    for n in 0..3000 {
        conn.must(&format!("SET key{n} x"));
    }
    wait_for("another trim", || binlog("first_position") > first);
    assert!(binlog("entries") >= 3000, "the replica needs all of them");
    replica.signal("CONT");
    assert_same(&master, &replica);
    assert_eq!(syncs(&master).0, 1);
    wait_for("the trim", || {
        figure(&master, "binlog", "binlog_entries") <= 100
    });
}

#[test]
fn several_replicas_at_once() {
    let master = server(&[]);
    fill(&master);
    let load = Load::start(&master, 2, 7);
    let replicas: Vec<Server> = (0..3).map(|_| server(&[])).collect();
    for replica in &replicas {
        follow(replica, &master);
    }
    wait_for("some load", || load.written() > 10_000);
    load.stop();
    for replica in &replicas {
        assert_same(&master, replica);
    }
    assert_eq!(figure(&master, "replication", "connected_slaves"), 3);
}

/// The replica came again from the same position, and failed there for ever.
#[test]
fn who_needs_a_row_of_the_binlog_that_is_damaged_gets_everything() {
    let master = server(&[]);
    let mut replica = server(&[]);
    follow_from_start(&mut replica, &master);
    follow(&replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    replica.kill9();
    let mut conn = master.connect();
    conn.must("SET first 1");
    // One row, which is long enough for the value log; its values are not.
    conn.must("MULTI");
    for n in 0..40 {
        conn.cmd(&format!("SET key:{n} {n:040}"));
    }
    conn.must("EXEC");
    conn.must("SET last 1");
    damage(&master.data_dir().join("kedis-db/values"), b"key:20");
    replica.spawn();
    // It gets the rows before the damage, and then everything.
    wait_for("a second full sync", || syncs(&master) == (2, 1));
    wait_for("the link", || is_caught_up(&master, &replica));
    let digest = |server: &Server| server.connect().must("DEBUG DIGEST");
    assert_eq!(digest(&master), digest(&replica));
    // Behind the damage there are partial syncs.
    cut_links(&master);
    wait_for("a partial sync", || syncs(&master) == (2, 2));
    conn.must("SET after 1");
    wait_for("the link again", || is_caught_up(&master, &replica));
    assert_eq!(digest(&master), digest(&replica));
    // A Redis inside of the damaged row, and a replica for which it is the next one, get everything.
    let (first, id) = (
        first_position(&master),
        info(&master, "replication", "master_replid"),
    );
    let rows = [
        ("REPLCONF capa eof", first + 70),
        ("REPLCONF capa kedis3", first),
    ];
    for (capability, position) in rows {
        let mut conn = master.connect();
        conn.must(capability);
        let reply = conn.cmd(&format!("PSYNC {id} {position}")).text();
        assert!(reply.starts_with("FULLRESYNC "), "{reply}");
    }
}

/// Replicas asked for the data set again each second, and got it up to the damage.
#[test]
fn a_data_set_that_is_damaged_is_sent_less_and_less_often() {
    let master = server(&[]);
    let mut conn = master.connect();
    let value: String = std::iter::repeat_with(fastrand::alphanumeric)
        .take(3000)
        .collect();
    conn.must(&format!("SET long {value}"));
    conn.must("SET short 1");
    damage(
        &master.data_dir().join("kedis-db/values"),
        &value.as_bytes()[1000..1100],
    );
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("a refusal", || {
        replica
            .log()
            .contains("DEBUG KEDIS-CHECK says what is damaged")
    });
    assert_eq!(conn.must("EXISTS long"), Value::Int(1));
    conn.must("DEL long");
    wait_for("the link", || is_caught_up(&master, &replica));
    assert_eq!(replica.connect().must("GET short"), Value::bulk("1"));
}

/// Changes a byte in the one file of a folder that has these bytes.
fn damage(folder: &Path, bytes: &[u8]) {
    let files = std::fs::read_dir(folder).unwrap();
    let found = files.filter_map(|entry| {
        let path = entry.unwrap().path();
        let content = std::fs::read(&path).unwrap();
        let at = content
            .windows(bytes.len())
            .position(|found| found == bytes)?;
        Some((path, at, content[at]))
    });
    let found: Vec<_> = found.collect();
    let [(path, at, byte)] = &found[..] else {
        panic!("{found:?}");
    };
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[byte ^ 0x40], *at as u64).unwrap();
}

/// The second PSYNC of a connection was one of a Redis replica, which got commands instead of rows.
#[test]
fn what_a_replica_announced_stands_after_a_refusal() {
    let server = server(&["--replicaof", "127.0.0.1", "1"]);
    let mut conn = server.connect();
    conn.must("REPLCONF capa kedis3");
    for request in ["PSYNC ? -1", "PSYNC ? -1", "SYNC"] {
        let error = conn.cmd(request).error().expect("refused");
        assert!(error.starts_with("NOMASTERLINK "), "{error}");
    }
    server.connect().must("REPLICAOF NO ONE");
    let reply = conn.cmd("PSYNC ? -1").text();
    assert!(reply.starts_with("FULLRESYNC "), "{reply}");
    let frame = conn.read().unwrap();
    assert_eq!(frame.items()[0], Value::bulk("REPL_SNAPSHOT_BEGIN"));
}

#[test]
fn a_replica_refuses_writes_and_what_only_a_link_says() {
    let master = server(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    let mut conn = replica.connect();
    for line in [
        "SET k v",
        "DEL k",
        "FLUSHALL",
        "FLUSHDB",
        "SWAPDB 0 1",
        "EXPIRE k 1",
        "SORT k STORE l",
    ] {
        assert_eq!(conn.cmd(line).error().as_deref(), Some(READONLY), "{line}");
    }
    for line in [
        "REPL_SNAPSHOT_COMPLETE a 1 1",
        "REPL_ROW 1 x",
        "REPL_SNAPSHOT_ROWS 0 x y",
    ] {
        let error = conn.cmd(line).error().expect(line);
        assert!(error.starts_with("ERR unknown command"), "{error}");
    }
    conn.must("REPLCONF capa kedis999");
    let reply = conn.cmd("PSYNC ? -1").error().expect("refused");
    assert!(reply.contains("format version 999"), "{reply}");
    conn.must("CONFIG SET replica-serve-stale-data no");
    assert_eq!(conn.cmd("GET k"), Value::NullBulk);
    // Queued while the link was up.
    let transactions = [
        (&["GET k"][..], true),
        (&["INFO server", "GET k"], true),
        // What a script may do is known when it runs.
        (
            &["INFO server", "EVAL_RO return(1) 0", "FCALL nosuch 0"],
            false,
        ),
        (&["EVAL #!lua\u{a0}flags=no-writes\nreturn(1) 0"], true),
        (&["INFO server", "CONFIG GET port"], false),
        (
            &["EVAL #!lua\u{a0}flags=allow-stale,no-writes\nreturn(1) 0"],
            false,
        ),
    ];
    let mut early = transactions.map(|(lines, refused)| {
        let mut conn = replica.connect();
        conn.must("MULTI");
        for line in lines {
            let words = line.split(' ').map(|word| word.replace('\u{a0}', " "));
            assert_eq!(
                conn.call(&words.collect::<Vec<_>>()),
                Value::simple("QUEUED")
            );
        }
        (conn, refused)
    });
    master.signal("STOP");
    conn.must("CONFIG SET repl-timeout 1");
    wait_for("the link is down", || {
        info(&replica, "replication", "master_link_status") == "down"
    });
    let down = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    assert_eq!(conn.cmd("GET k").error().as_deref(), Some(down));
    let in_script = "ERR Can not execute the command on a stale replica";
    for (line, expected) in [
        ("EVAL return(1) 0", down),
        ("EVAL_RO return(1) 0", down),
        (
            "EVAL return(1) 1",
            "ERR Number of keys can't be greater than number of args",
        ),
        ("EVAL return( 0", "ERR Error compiling script"),
        ("FCALL nosuch 0", "ERR Function not found"),
        ("FCALL_RO nosuch x", "ERR Function not found"),
        (
            "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
            "NOSCRIPT No matching script.",
        ),
        (
            "EVAL #!lua\u{a0}flags=allow-stale,no-writes\nreturn(redis.call('GET','k')) 0",
            in_script,
        ),
    ] {
        let words = line.split(' ').map(|word| word.replace('\u{a0}', " "));
        let error = conn.call(&words.collect::<Vec<_>>()).error();
        let error = error.unwrap_or_default();
        assert!(error.starts_with(expected), "{line}: {error}");
    }
    for (conn, refused) in &mut early {
        let discarded = format!("EXECABORT Transaction discarded because of: {down}");
        let expected = refused.then_some(discarded);
        let reply = conn.cmd("EXEC");
        assert_eq!(reply.error(), expected);
        if let Value::Array(items) = &reply
            && items.len() == 3
        {
            let errors = [&items[1], &items[2]].map(Value::error);
            assert_eq!(errors[0].as_deref(), Some(down));
            assert_eq!(errors[1].as_deref(), Some("ERR Function not found"));
        }
        let over = conn.cmd("EXEC").error();
        assert_eq!(over.as_deref(), Some("ERR EXEC without MULTI"));
    }
    conn.must("INFO");
    master.signal("CONT");
    wait_for("a link", || is_caught_up(&master, &replica));
}

/// Whatever the arguments are: the role is checked first.
#[test]
fn a_replica_refuses_every_command_that_writes() {
    let master = server(&[]);
    let replica = server(&[]);
    // Queued before the server became a replica.
    let mut early = replica.connect();
    early.must("MULTI");
    early.must("SET k v");
    follow(&replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    let mut conn = replica.connect();
    let error = early.cmd("EXEC").error().expect("refused");
    let discarded = format!("EXECABORT Transaction discarded because of: {READONLY}");
    assert_eq!(error, discarded);
    let mut tried = 0;
    for command in conn.must("COMMAND").items() {
        let [name, arity, flags, ..] = command.items() else {
            panic!("{command:?}");
        };
        if !flags.items().contains(&Value::simple("write")) {
            continue;
        }
        let Value::Int(arity) = arity else {
            panic!("{arity:?}");
        };
        let mut words = vec![name.text()];
        words.resize(arity.unsigned_abs() as usize, "1".to_owned());
        let line = words.join(" ");
        let reply = conn.cmd(&line);
        assert_eq!(reply.error().as_deref(), Some(READONLY), "{line}");
        // From a script too.
        let list: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let script = format!("return redis.call({})", list.join(","));
        let error = conn.call(&["EVAL", &script, "0"]).error().expect("refused");
        let ours = error.starts_with("READONLY") || error.contains("not allowed from script");
        assert!(ours, "{line}: {error}");
        tried += 1;
    }
    assert!(tried > 80, "{tried}");
    let code = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    for line in [
        &["FUNCTION", "LOAD", code][..],
        &["FUNCTION", "FLUSH"],
        &["FUNCTION", "DELETE", "l"],
        &["FUNCTION", "RESTORE", "x"],
        // Scripts whose flags allow writes.
        &["EVAL", "#!lua\nreturn 1", "0"],
        &["EVAL_RO", "#!lua\nreturn 1", "0"],
    ] {
        assert_eq!(
            conn.call(line).error().as_deref(),
            Some(READONLY),
            "{line:?}"
        );
    }
    assert_eq!(conn.must("DBSIZE"), Value::Int(0));
    assert_same(&master, &replica);
}

/// A replica hides expired keys, and only the master deletes them (I4).
#[test]
fn a_replica_hides_expired_keys_and_deletes_none() {
    let master = server(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    let mut conn = master.connect();
    conn.must("DEBUG SET-ACTIVE-EXPIRE 0");
    conn.must("SET k v PX 200");
    conn.must("HSET h f v");
    conn.must("PEXPIRE h 200");
    let last = unix_ms() + 200;
    wait_for("the stream", || is_caught_up(&master, &replica));
    wait_for("the end of their lives", || unix_ms() > last);
    let mut other = replica.connect();
    assert_eq!(other.cmd("GET k"), Value::NullBulk);
    assert_eq!(other.cmd("EXISTS h"), Value::Int(0));
    assert_eq!(other.cmd("DBSIZE"), Value::Int(2), "nothing is deleted");
    conn.must("DEBUG SET-ACTIVE-EXPIRE 1");
    wait_for("the deletion", || other.cmd("DBSIZE") == Value::Int(0));
    assert_same(&master, &replica);
    let log: Vec<u8> = binlog(&replica).into_values().flatten().collect();
    assert!(
        log.windows(3).any(|w| w == b"DEL"),
        "the deletion is logged"
    );
}

/// A replica applies effects of its master beyond its own limits.
#[test]
fn a_replica_minds_no_limit_of_its_own() {
    let master = server(&[]);
    let replica = server(&["--proto-max-bulk-len", "1mb"]);
    follow(&replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    let mut conn = master.connect();
    for line in [
        "SETRANGE k 1500000 x",
        "SETRANGE k 1400000 x",
        "APPEND k x",
        "SETBIT bits 12000000 1",
        "BITFIELD fields SET u8 12000000 7",
    ] {
        conn.must(line);
    }
    wait_for("the stream", || is_caught_up(&master, &replica));
    assert_same(&master, &replica);
    assert_eq!(figure(&master, "stats", "sync_full"), 1);
}

#[test]
fn a_master_without_enough_replicas_refuses_writes() {
    let master = server(&["--min-replicas-to-write", "1"]);
    let text = "NOREPLICAS Not enough good replicas to write.";
    let mut conn = master.connect();
    assert_eq!(conn.cmd("SET k v").error().as_deref(), Some(text));
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    wait_for("a write", || conn.cmd("SET k v") == Value::ok());
}

#[test]
fn a_password_is_said() {
    let master = server(&["--requirepass", "sesame"]);
    let replica = server(&[]);
    let mut conn = master.connect();
    conn.must("AUTH sesame");
    conn.must("SET k v");
    follow(&replica, &master);
    wait_for("the refusal", || replica.log().contains("NOAUTH"));
    let mut other = replica.connect();
    assert_eq!(info(&replica, "replication", "master_link_status"), "down");
    other.must("CONFIG SET masterauth sesame");
    wait_for("the data", || other.cmd("GET k") == Value::bulk("v"));
}

#[test]
fn wait_counts_replicas_that_have_what_the_client_wrote() {
    let master = server(&["--appendfsync", "always"]);
    let mut conn = master.connect();
    conn.must("SET k v");
    assert_eq!(conn.cmd("WAIT 0 100"), Value::Int(0));
    assert_eq!(conn.cmd("WAIT 1 100"), Value::Int(0));
    assert_eq!(
        conn.cmd("WAITAOF 1 0 0").items(),
        [Value::Int(1), Value::Int(0)]
    );
    let replicas = [
        server(&["--appendfsync", "always"]),
        server(&["--appendfsync", "always"]),
    ];
    for replica in &replicas {
        follow(replica, &master);
    }
    wait_for("the links", || {
        replicas
            .iter()
            .all(|replica| is_caught_up(&master, replica))
    });
    for n in 0..50 {
        conn.must(&format!("SET k{n} v"));
        assert_eq!(conn.cmd("WAIT 2 20000"), Value::Int(2));
        let found = replicas[1].connect().cmd(&format!("GET k{n}"));
        assert_eq!(found, Value::bulk("v"), "acknowledged and not there");
    }
    conn.must("SET on disks");
    let both = [Value::Int(1), Value::Int(2)];
    assert_eq!(conn.cmd("WAITAOF 1 2 20000").items(), both);
    replicas[0].signal("STOP");
    conn.must("SET one stopped");
    assert_eq!(conn.cmd("WAIT 2 3000"), Value::Int(1));
    assert_eq!(
        conn.cmd("WAITAOF 1 2 3000").items(),
        [Value::Int(1), Value::Int(1)]
    );
    // WAIT in a script is about the writes of its client.
    conn.must("SET asked by");
    assert_eq!(conn.cmd("WAIT 1 20000"), Value::Int(1));
    let ask = ["EVAL", "return redis.call('wait', '2', '0')", "0"];
    conn.send(&ask).unwrap();
    assert_eq!(conn.read().unwrap(), Value::Int(1));
    // Writes of scripts count too.
    replicas[1].signal("STOP");
    let write = ["EVAL", "return redis.call('set', 'by', 'a script')", "0"];
    conn.send(&write).unwrap();
    assert_eq!(conn.read().unwrap(), Value::ok());
    assert_eq!(conn.cmd("WAIT 1 300"), Value::Int(0));
    replicas[1].signal("CONT");
    assert_eq!(conn.cmd("WAIT 1 20000"), Value::Int(1));
    conn.send(&["WAIT", "2", "0"]).unwrap();
    replicas[0].signal("CONT");
    assert_eq!(conn.read().unwrap(), Value::Int(2));
    // WAIT does not block within EXEC.
    for line in ["MULTI", "SET k w", "WAIT 5 0"] {
        conn.must(line);
    }
    assert_eq!(conn.must("EXEC").items().len(), 2);
    let refused = |line: &str| replicas[0].connect().cmd(line).error().expect(line);
    assert!(refused("WAIT 0 0").starts_with("ERR WAIT cannot be used with replica"));
    assert!(refused("WAITAOF 0 0 0").starts_with("ERR WAITAOF cannot be used with replica"));
    let error = |conn: &mut Conn, line: &str| conn.cmd(line).error().expect(line);
    assert_eq!(error(&mut conn, "WAIT 1 -1"), "ERR timeout is negative");
    assert_eq!(
        error(&mut conn, "WAIT 1 x"),
        "ERR timeout is not an integer or out of range"
    );
    assert_eq!(
        error(&mut conn, "WAIT x 1"),
        "ERR value is not an integer or out of range"
    );
}

#[test]
fn a_blocked_client_gets_an_error_when_the_server_becomes_a_replica() {
    let master = server(&[]);
    let other = server(&[]);
    let mut conn = other.connect();
    conn.send(&["BLPOP", "list", "0"]).unwrap();
    wait_for("the wait", || {
        figure(&other, "clients", "blocked_clients") == 1
    });
    follow(&other, &master);
    let reply = conn.read().unwrap().error().expect("an error");
    assert!(reply.starts_with("UNBLOCKED "), "{reply}");
}

/// EXEC and scripts are one row each, and one batch on the replica.
#[test]
fn what_exec_does_arrives_as_one() {
    let master = server(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("a link", || is_caught_up(&master, &replica));
    let address = replica.address();
    let reader = std::thread::spawn(move || {
        let mut conn = Conn::open(&address).unwrap();
        loop {
            let found = conn.must("MGET {t}a {t}b");
            let [a, b] = found.items() else {
                panic!("{found:?}");
            };
            assert_eq!(a, b, "half of a transaction");
            if a == &Value::bulk("400") {
                return;
            }
        }
    });
    let mut conn = master.connect();
    for n in 0..=400 {
        let all = if n % 50 == 0 { "FLUSHALL" } else { "PING" };
        for line in [
            "MULTI",
            all,
            &format!("SET {{t}}a {n}"),
            &format!("SET {{t}}b {n}"),
        ] {
            conn.must(line);
        }
        conn.must("EXEC");
    }
    reader.join().unwrap();
    assert_same(&master, &replica);
}

/// As in Redis, MONITOR at a replica shows the commands of its master, of either kind.
#[test]
fn monitor_shows_what_the_master_sends() {
    for master in [server(&[]), redis(&[])] {
        let replica = server(&[]);
        follow(&replica, &master);
        wait_for("the end of the full sync", || {
            info(&replica, "replication", "master_link_status") == "up"
        });
        let mut monitor = replica.connect();
        monitor.must("MONITOR");
        let mut conn = master.connect();
        conn.must("SELECT 3");
        conn.must("MULTI");
        conn.must("SET k v");
        conn.must("INCR n");
        conn.must("EXEC");
        for want in ["\"SET\" \"k\" \"v\"", "\"INCR\" \"n\""] {
            let line = monitor.read().unwrap().text();
            assert!(
                line.contains(" [3 127.0.0.1:") && line.ends_with(want),
                "{line}"
            );
        }
    }
}
