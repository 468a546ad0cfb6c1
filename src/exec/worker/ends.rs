//! Long requests that end before they are done.

use super::*;
use crate::exec::testing::Client;
use crate::resp::Value;
use crate::state::request::Request;
use crate::state::workers::NotKilled;

fn words(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

/// Data for [`LONG`].
fn filled() -> Client {
    let mut client = Client::new();
    for n in 0..300 {
        client.run(&format!("RPUSH list {n}"));
        client.run(&format!("SADD set m{n}"));
        client.run(&format!("ZADD zset {n} m{n}"));
        client.run(&format!("GEOADD places {} {} m{n}", n % 100, n % 80));
        client.run(&format!("XADD stream {}-1 f v", n + 1));
        client.run(&format!("HSET hash f{n} v"));
        client.run(&format!("SET key{} v", n % 100));
        client.run(&format!("SET text{} {}", n % 2, "abcdefghij".repeat(90)));
    }
    for key in ["sparse", "other"] {
        for n in 0..100 {
            client.run(&format!("SETRANGE {key} {} x", n * 8192));
        }
    }
    client.run("XGROUP CREATE stream g 0");
    client.run("XREADGROUP GROUP g c STREAMS stream >");
    // Whatever does not fit moves others until it gives up.
    client.run("CF.RESERVE cuckoo 64 BUCKETSIZE 1 MAXITERATIONS 65535 EXPANSION 0");
    client.run("CF.RESERVE cuckoo-rows 4096 BUCKETSIZE 1 MAXITERATIONS 65535 EXPANSION 0");
    for n in 0..200 {
        client.run(&format!("CF.ADD cuckoo-rows {n}"));
    }
    client.run("BF.RESERVE bloom 0.01 1 EXPANSION 1");
    for n in 0..100 {
        client.run(&format!("BF.ADD bloom {n}"));
    }
    for key in ["cms", "cms-other"] {
        client.run(&format!("CMS.INITBYDIM {key} 20000 8"));
        let items: Vec<String> = (0..40).map(|n| format!("i{n} 1")).collect();
        client.run(&format!("CMS.INCRBY {key} {}", items.join(" ")));
    }
    client.run("TOPK.RESERVE topk 1000 2000 7 0.9");
    for _ in 0..2 {
        client.run(&many("TOPK.ADD topk", |n| format!("kept{n}")));
    }
    for key in ["digest", "digest-other"] {
        client.run(&format!("TDIGEST.CREATE {key} COMPRESSION 1000"));
        let values: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
        client.run(&format!("TDIGEST.ADD {key} {}", values.join(" ")));
    }
    client
}

fn many(command: &str, each: impl Fn(usize) -> String) -> String {
    let words: Vec<String> = (0..500).map(each).collect();
    format!("{command} {}", words.join(" "))
}

/// Requests that are long by what they read or compute, not only by what they reply.
fn long() -> Vec<String> {
    let mut long: Vec<String> = [
        "SMEMBERS set",
        "SORT list",
        "SORT set ALPHA STORE to",
        "SUNIONSTORE to set hash-less",
        "SINTERSTORE to set set",
        "SDIFFSTORE to set other-set",
        "ZUNIONSTORE to 2 zset set",
        "ZINTERSTORE to 2 zset set",
        "ZRANGESTORE to zset 0 -1",
        "ZREMRANGEBYSCORE zset 1 298",
        "GEOSEARCH places FROMLONLAT 50 40 BYRADIUS 20000 km ASC",
        "GEOSEARCHSTORE to places FROMLONLAT 50 40 BYRADIUS 20000 km",
        "XAUTOCLAIM stream g d 0 0 COUNT 1000",
        "HGETALL hash",
        "COPY set to",
        "DUMP list",
        "LCS text0 text1 LEN",
        "BITCOUNT sparse",
        "BITCOUNT sparse 9 -9 BIT",
        "BITOP XOR to sparse other",
        "BITOP NOT to sparse",
        "CMS.MERGE cms 2 cms cms-other",
        "TDIGEST.MERGE digest 2 digest digest-other",
        "KEYS *",
    ]
    .map(str::to_owned)
    .into();
    long.push(many("CF.INSERT cuckoo ITEMS", |n| format!("i{n}")));
    long.push(many("CF.INSERT cuckoo-rows ITEMS", |n| format!("i{n}")));
    long.push(many("CF.MEXISTS cuckoo-rows", |n| format!("i{n}")));
    long.push(many("BF.MADD bloom", |n| format!("i{n}")));
    long.push(many("BF.MEXISTS bloom", |n| format!("i{n}")));
    long.push(many("CMS.INCRBY cms", |n| format!("i{n} 1")));
    long.push(many("CMS.QUERY cms", |n| format!("i{n}")));
    long.push(many("TOPK.ADD topk", |n| format!("i{n}")));
    long.push(many("TOPK.QUERY topk", |n| format!("i{n}")));
    long
}

/// A native command ran to its end, however long it took: a server that was told to stop waited for
/// it, for hours if it inserted into Cuckoo filters.
#[test]
fn long_requests_end_with_the_server_and_leave_nothing() {
    let mut client = filled();
    let (logged, digest) = (client.logged(), client.run("DEBUG DIGEST"));
    let mut worker = client.another().on_worker();
    client.server().workers.stop_all();
    let mut ended = |line: &str| {
        let (executor, session) = worker.parts();
        executor.start_tick();
        let mut reply = Reply::new(false);
        let outcome = executor.run(session, &words(line), &mut reply);
        executor.finish_tick().unwrap();
        outcome == Outcome::Paused && reply.is_empty()
    };
    let lines = long();
    let went_on = lines.iter().filter(|line| !ended(line));
    let went_on: Vec<&str> = went_on.map(|line| &line[..line.len().min(60)]).collect();
    assert!(went_on.is_empty(), "{went_on:#?}");
    // As a whole, if it is part of something.
    let script = "EVAL redis.call('SET','a',1)redis.pcall('SUNIONSTORE','to','set')return(1) 0";
    let mut queue = |line: &str| {
        let (executor, session) = worker.parts();
        executor.start_tick();
        let mut reply = Reply::new(false);
        let outcome = executor.run(session, &words(line), &mut reply);
        executor.finish_tick().unwrap();
        match reply.buf.starts_with(b"-ERR Script killed") {
            true => Outcome::Paused,
            false => outcome,
        }
    };
    assert_eq!(queue(script), Outcome::Paused);
    for line in ["MULTI", "SET a 1", "SUNIONSTORE to set"] {
        assert_eq!(queue(line), Outcome::Done);
    }
    assert_eq!(queue("EXEC"), Outcome::Paused);
    assert_eq!(client.logged(), logged);
    assert_eq!(client.run("DEBUG DIGEST"), digest);
    client.check();
}

fn job(client: &mut Client, line: &str) -> Job {
    let session = client.parts().1.detach();
    Job::new(session, Request::new(&words(line)), false)
}

#[test]
fn long_requests_end_with_their_client() {
    let mut client = filled();
    let server = client.server();
    let digest = client.run("DEBUG DIGEST");
    for line in long() {
        let mut another = client.another();
        let job = job(&mut another, &line);
        let mut worker = client.another().on_worker();
        let executor = worker.parts().0;
        let id = job.session.info.id;
        // The client leaves when the request has begun.
        executor.watch_with({
            let (server, worker) = (server.clone(), executor.worker().cloned());
            move || {
                server.clients.remove(id);
                match &worker {
                    Some(worker) => server.workers.verdict(worker, &server.clients),
                    None => Ok(()),
                }
            }
        });
        let again = executor.run_job(job);
        let again =
            again.unwrap_or_else(|| panic!("{} is not taken back", &line[..line.len().min(60)]));
        assert!(executor.run_job(again).is_none(), "nobody waits for it");
    }
    assert_eq!(client.run("DEBUG DIGEST"), digest);
    client.check();
}

/// Clients that sent long requests had all workers, and those that sent short ones had to wait.
#[test]
fn one_worker_gives_each_request_only_a_turn() {
    let mut client = filled();
    let mut turns = client.another();
    turns.give_turns();
    let mut worker = client.another().on_worker();
    let digest = client.run("DEBUG DIGEST");
    let mut lines = long();
    lines.push("EVAL return(1) 0".to_owned());
    for line in lines {
        let mut another = client.another();
        let again = turns.parts().0.run_job(job(&mut another, &line));
        let name = &line[..line.len().min(60)];
        let again = again.unwrap_or_else(|| panic!("{name} is not left to the others"));
        assert!(again.is_long, "{name}");
        assert_eq!(client.run("DEBUG DIGEST"), digest, "{name}");
        if line.starts_with("SORT list") || line.starts_with("EVAL") {
            assert!(worker.parts().0.run_job(again).is_none());
        }
    }
    let mut another = client.another();
    let short = job(&mut another, "SET short 1");
    assert!(turns.parts().0.run_job(short).is_none());
    assert_eq!(client.run("GET short"), Value::Bulk(b"1".to_vec()));
    client.check();
}

/// A kill between two attempts was acknowledged and forgotten, or refused because no worker ran the
/// script at that moment.
#[test]
fn a_script_is_killed_between_two_attempts() {
    let mut client = Client::new();
    let server = client.server();
    let mut holder = client.another().on_worker();
    let (executor, session) = holder.parts();
    executor.start_tick();
    let held = executor.run(session, &words("SET held 1"), &mut Reply::new(false));
    assert_eq!(held, Outcome::Done);
    let mut another = client.another();
    let job = job(&mut another, "EVAL redis.call('SET','held',2) 1 held");
    let mut worker = client.another().on_worker();
    let again = worker.parts().0.run_job(job);
    let again = again.expect("its key is held");
    assert_eq!(server.workers.kill(true), Err(NotKilled::OtherSort));
    assert_eq!(server.workers.kill(false), Ok(()));
    executor.finish_tick().unwrap();
    assert!(worker.parts().0.run_job(again).is_none());
    let done = server.workers.take_done(another.parts().1.info.thread);
    let reply = String::from_utf8_lossy(&done[0].reply.buf);
    assert!(reply.starts_with("-ERR Script killed by user"), "{reply}");
    assert_eq!(client.run("GET held"), Value::Bulk(b"1".to_vec()));
    assert_eq!(server.workers.kill(false), Err(NotKilled::NotBusy));
    client.check();
}
