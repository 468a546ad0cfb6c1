//! A client library in everyday use, over RESP2 and RESP3.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis::Commands;

use crate::replication::{follow, is_caught_up};
use crate::support::{Server, wait_for};

fn everyday_use(suffix: &str) {
    let server = Server::start(&[]);
    let url = format!("redis://{}/0{suffix}", server.address());
    let mut conn = redis::Client::open(url).unwrap().get_connection().unwrap();

    let _: () = conn.set("greeting", "hello").unwrap();
    let text: String = conn.get("greeting").unwrap();
    assert_eq!(text, "hello");
    let missing: Option<String> = conn.get("missing").unwrap();
    assert_eq!(missing, None);
    let n: i64 = conn.incr("n", 41).unwrap();
    assert_eq!(n, 41);
    let _: () = conn.set_ex("short", "x", 100).unwrap();
    let ttl: i64 = conn.ttl("short").unwrap();
    assert!((90..=100).contains(&ttl));

    let _: () = conn.hset_multiple("h", &[("a", "1"), ("b", "2")]).unwrap();
    let hash: HashMap<String, i64> = conn.hgetall("h").unwrap();
    assert_eq!(hash, HashMap::from([("a".into(), 1), ("b".into(), 2)]));
    let _: () = conn.rpush("l", &["x", "y", "z"]).unwrap();
    let list: Vec<String> = conn.lrange("l", 0, -1).unwrap();
    assert_eq!(list, ["x", "y", "z"]);
    let _: () = conn.sadd("e", &["x", "y", "x"]).unwrap();
    let set: BTreeSet<String> = conn.smembers("e").unwrap();
    assert_eq!(set, BTreeSet::from(["x".into(), "y".into()]));
    let _: () = conn
        .zadd_multiple("z", &[(1.5, "a"), (0.5, "b"), (2.5, "c")])
        .unwrap();
    let ranked: Vec<(String, f64)> = conn.zrange_withscores("z", 0, -1).unwrap();
    let expected = [("b", 0.5), ("a", 1.5), ("c", 2.5)].map(|(m, s)| (m.to_string(), s));
    assert_eq!(ranked, expected);

    let error = conn.incr::<_, _, i64>("greeting", 1).unwrap_err();
    assert!(error.to_string().contains("not an integer"), "{error}");
    let error = conn.lpush::<_, _, i64>("h", "x").unwrap_err();
    assert_eq!(error.code(), Some("WRONGTYPE"));
}

fn pipelines_and_iterators(suffix: &str) {
    let server = Server::start(&[]);
    let url = format!("redis://{}/3{suffix}", server.address());
    let mut conn = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut pipe = redis::pipe();
    for n in 0..1000 {
        pipe.cmd("SET").arg(format!("key:{n}")).arg(n).ignore();
        pipe.cmd("HSET").arg("hash").arg(format!("f{n}")).arg(n);
    }
    let replies: Vec<i64> = pipe.query(&mut conn).unwrap();
    assert_eq!(replies, vec![1; 1000]);
    let keys: BTreeSet<String> = conn
        .scan_match::<_, String>("key:*")
        .unwrap()
        .map(|key| key.unwrap())
        .collect();
    assert_eq!(keys.len(), 1000);
    let fields: BTreeMap<String, i64> = conn
        .hscan::<_, (String, i64)>("hash")
        .unwrap()
        .map(|pair| pair.unwrap())
        .collect();
    assert_eq!(fields.len(), 1000);
    assert!(fields.iter().all(|(field, n)| *field == format!("f{n}")));
    let size: i64 = redis::cmd("DBSIZE").query(&mut conn).unwrap();
    assert_eq!(size, 1001);
    let info: redis::InfoDict = redis::cmd("INFO").query(&mut conn).unwrap();
    assert!(
        info.get::<String>("redis_version")
            .is_some_and(|v| v.starts_with("8."))
    );
}

#[test]
fn redis_rs_in_resp2() {
    everyday_use("");
    pipelines_and_iterators("");
}

#[test]
fn redis_rs_in_resp3() {
    everyday_use("?protocol=resp3");
    pipelines_and_iterators("?protocol=resp3");
}

/// The client for clusters goes by what the node says of slots and nodes.
#[test]
fn a_client_for_clusters() {
    let flags = ["--cluster-enabled", "yes"];
    let (master, replica) = (Server::start(&flags), Server::start(&flags));
    follow(&replica, &master);
    wait_for("the replica", || {
        let slots = master.connect().must("CLUSTER SLOTS");
        slots.items()[0].items().len() == 4
    });
    for suffix in ["", "?protocol=resp3"] {
        let url = format!("redis://{}/{suffix}", master.address());
        let client = redis::cluster::ClusterClient::builder(vec![url])
            .read_routing_strategy(redis::cluster_read_routing::RandomReplicaStrategy)
            .build()
            .unwrap();
        let mut conn = client.get_connection().unwrap();
        for n in 0..200 {
            let _: () = conn.set(format!("k:{n}"), n).unwrap();
        }
        wait_for("the replica to have all", || {
            is_caught_up(&master, &replica)
        });
        for n in 0..200 {
            let found: i64 = conn.get(format!("k:{n}")).unwrap();
            assert_eq!(found, n);
        }
        let mut pipe = redis::cluster::cluster_pipe();
        for n in 0..200 {
            pipe.incr(format!("k:{n}"), 1);
        }
        let replies: Vec<i64> = pipe.query(&mut conn).unwrap();
        assert_eq!(replies, (1..=200).collect::<Vec<i64>>());
        wait_for("the replica to have these, too", || {
            is_caught_up(&master, &replica)
        });
        // It divides the command by slots.
        let found: Vec<Option<i64>> = conn.mget(&["k:1", "k:2", "none"]).unwrap();
        assert_eq!(found, [Some(2), Some(3), None]);
    }
    assert!(
        replica
            .connect()
            .info_text("commandstats", "cmdstat_get")
            .starts_with("calls=")
    );
}
