//! Commands that take long or have many arguments, while other clients are served.

use crate::support::{Conn, Server, Value, args, wait_for};

#[test]
fn rows_of_deleted_collections_go_without_a_limit_too() {
    let server = Server::start(&["--reclaim-rows-per-second", "0"]);
    let mut conn = server.connect();
    for round in 0..20 {
        let mut command = args(&format!("SADD set:{round}"));
        command.extend((0..2000).map(|n| format!("member:{n}").into_bytes()));
        assert_eq!(conn.call(&command), Value::Int(2000));
        conn.must(&format!("DEL set:{round}"));
    }
    wait_for("an empty reclaim queue", || {
        let info = conn.must("INFO all").text();
        info.contains("reclaim_backlog:0\r\n")
    });
}

#[test]
fn a_wide_command_and_a_deep_pipeline_of_errors() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let mut wide = args("MSET");
    for n in 0..100_000 {
        wide.push(format!("wide:{n}").into_bytes());
        wide.push(b"v".to_vec());
    }
    assert_eq!(conn.call(&wide), Value::ok());
    assert_eq!(conn.must("DBSIZE").int(), 100_000);
    let errors: Vec<Vec<Vec<u8>>> = (0..5000).map(|_| args("INCR wide:0")).collect();
    let replies = conn.pipeline(&errors);
    let text = "ERR value is not an integer or out of range";
    assert!(replies.iter().all(|r| r.error().as_deref() == Some(text)));
    let mut unlink = args("UNLINK");
    unlink.extend((0..100_000).map(|n| format!("wide:{n}").into_bytes()));
    assert_eq!(conn.call(&unlink), Value::Int(100_000));
    assert_eq!(conn.must("DBSIZE").int(), 0);
}

/// More keys than fit one batch; the only IO thread serves others meanwhile.
#[test]
fn many_keys_are_made_in_slices() {
    let flags = ["--io-threads", "1", "--enable-debug-command", "yes"];
    let server = Server::start(&flags);
    let mut maker = server.connect();
    let mut other = server.connect();
    other.must("SET k:7 mine");
    maker.send(&args("DEBUG POPULATE 1100000 k 20")).unwrap();
    let mut turns = 0;
    while other.must("DBSIZE").int() < 1_100_000 {
        other.must("SET k:7 mine");
        turns += 1;
    }
    assert_eq!(maker.read().unwrap(), Value::ok());
    assert!(turns > 100, "{turns} turns");
    assert_eq!(other.must("GET k:7"), Value::bulk("mine"));
    let value = [b"value:1099999".as_slice(), &[0; 7]].concat();
    assert_eq!(other.must("GET k:1099999"), Value::bulk(value));
    // A transaction is one batch.
    other.must("MULTI");
    other.must("DEBUG POPULATE 1000001 q");
    other.must("DEBUG POPULATE 2 q 0");
    let replies = other.must("EXEC");
    assert_eq!(
        replies.items()[0].error().as_deref(),
        Some("ERR that is too much to make at once")
    );
    assert_eq!(replies.items()[1], Value::ok());
    assert_eq!(other.must("GET q:1"), Value::bulk("value:1"));
}

/// Sends `request`, then a SET on another connection. Returns whether the SET got its reply
/// first, and the reply of `request`.
fn race(asker: &mut Conn, other: &mut Conn, request: &[&str]) -> (bool, Value) {
    let socket = asker.writer();
    asker.send(request).unwrap();
    other.must("SET key:0 w");
    socket.set_nonblocking(true).unwrap();
    let set_was_first = socket.peek(&mut [0]).is_err();
    socket.set_nonblocking(false).unwrap();
    (set_was_first, asker.read().unwrap())
}

#[test]
fn the_first_rank_in_a_large_set_delays_no_other_client() {
    const MEMBERS: usize = 200_000;
    let server = Server::start(&["--io-threads", "1"]);
    let (mut asker, mut other) = (server.connect(), server.connect());
    let zadd = |from: usize| {
        let pairs = (from..from + 1000).flat_map(|n| [n.to_string(), format!("m{n}")]);
        let words = ["ZADD".to_owned(), "z".into()].into_iter().chain(pairs);
        words.map(String::into_bytes).collect::<Vec<_>>()
    };
    let load: Vec<_> = (0..MEMBERS).step_by(1000).map(zadd).collect();
    asker.pipeline(&load);
    let overtaken = (0..5).any(|n| {
        // A new copy, which has no rank index yet.
        other.must(&format!("COPY z z{n}"));
        let last = format!("m{}", MEMBERS - 1);
        let (set_was_first, rank) =
            race(&mut asker, &mut other, &["ZRANK", &format!("z{n}"), &last]);
        assert_eq!(rank, Value::Int(MEMBERS as i64 - 1));
        set_was_first
    });
    assert!(overtaken, "ZRANK held up the others of its thread");
}

/// All clients are on one IO thread. If KEYS ran there, its reply would always come first.
#[test]
fn keys_of_a_large_db_delays_no_other_client() {
    let server = Server::start(&["--io-threads", "1"]);
    let (mut walker, mut other) = (server.connect(), server.connect());
    let mset = |from: usize| {
        let pairs = (from..from + 1000).flat_map(|n| [format!("key:{n}"), "v".into()]);
        let words = std::iter::once("MSET".to_owned()).chain(pairs);
        words.map(String::into_bytes).collect::<Vec<_>>()
    };
    let load: Vec<_> = (0..200_000).step_by(1000).map(mset).collect();
    walker.pipeline(&load);
    let overtaken = (0..20).any(|_| {
        let (set_was_first, keys) = race(&mut walker, &mut other, &["KEYS", "*k*e*y*:*none*"]);
        assert_eq!(keys.items(), &[]);
        set_was_first
    });
    assert!(overtaken, "KEYS held up the others of its thread");
    walker.send(&["KEYS", "*"]).unwrap();
    other.must("FLUSHALL");
    let keys = walker.read().unwrap().items().len();
    assert!(keys == 200_000 || keys == 0, "{keys} keys");
}
