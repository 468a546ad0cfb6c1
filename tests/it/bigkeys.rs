//! BIGKEYS, and the tool `kedis_top`, which shows what it finds.

use crate::support::server::binary;
use crate::support::{Conn, Server, Value, oracle, wait_for};
use crate::types::samples::SAMPLES;
use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

type Fields = BTreeMap<String, Value>;

/// The fields of a map.
fn fields(value: &Value) -> Fields {
    let pairs = value.pairs().into_iter();
    pairs.map(|(name, value)| (name.text(), value)).collect()
}

fn int(of: &Fields, name: &str) -> u64 {
    of[name].int().try_into().unwrap()
}

fn state(conn: &mut Conn) -> String {
    fields(&conn.must("BIGKEYS STATUS"))["state"].text()
}

/// Waits until the scan that was begun has ended, and returns what it has found.
fn found(conn: &mut Conn) -> Fields {
    wait_for("the end of the scan", || {
        !["starting", "running"].contains(&state(conn).as_str())
    });
    fields(&conn.must("BIGKEYS GET"))
}

fn scan(conn: &mut Conn, options: &str) -> Fields {
    conn.must(&format!("BIGKEYS START {options}"));
    let found = found(conn);
    assert_eq!(found["state"].text(), "done", "{found:?}");
    found
}

/// The prefixes of a depth that are reported: DB, name, keys.
fn prefixes(found: &Fields, depth: usize) -> Vec<(u64, String, u64)> {
    let of = fields(&found["prefixes"].items()[depth - 1]);
    assert_eq!(int(&of, "depth"), depth as u64);
    let one = |one: &Value| {
        let one = fields(one);
        (int(&one, "db"), one["prefix"].text(), int(&one, "keys"))
    };
    of["biggest"].items().iter().map(one).collect()
}

/// Keys, elements and bytes of maps, added up.
fn sums(maps: impl Iterator<Item = Fields>) -> [u64; 3] {
    maps.fold([0; 3], |sums, of| {
        let more = ["keys", "elements", "bytes"].map(|name| int(&of, name));
        [sums[0] + more[0], sums[1] + more[1], sums[2] + more[2]]
    })
}

/// The biggest keys of a type: DB and name.
fn biggest(found: &Fields, list: &str, kind: &str) -> Vec<(u64, String)> {
    let keys = fields(&found[list])[kind].items().to_vec();
    let keys = keys.iter().map(fields);
    keys.map(|key| (int(&key, "db"), key["key"].text()))
        .collect()
}

#[test]
fn every_type_is_counted() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    conn.hello3();
    let mut of_types = BTreeMap::<String, u64>::new();
    for sample in SAMPLES {
        for line in sample.lines(sample.key) {
            conn.must(&line);
        }
        *of_types.entry(sample.kind.name().to_owned()).or_default() += 1;
    }
    conn.must("SELECT 3");
    conn.call(&["SET", "other:long:string", &"x".repeat(1_000_000)]);
    conn.must("RPUSH other:list a b c d e");
    *of_types.get_mut("string").unwrap() += 1;
    *of_types.get_mut("list").unwrap() += 1;

    let all = scan(&mut conn, "DEPTH 2 TOP 100");
    assert!(matches!(conn.must("BIGKEYS GET"), Value::Map(_)));
    let keys: u64 = of_types.values().sum();
    assert_eq!(int(&all, "keys"), keys);
    assert_eq!(
        (int(&all, "keys-expected"), int(&all, "keys-scanned")),
        (keys, keys)
    );
    let types = fields(&all["types"]);
    for (kind, keys) in &of_types {
        assert_eq!(int(&fields(&types[kind]), "keys"), *keys, "{kind}");
    }
    let whole = sums([all.clone()].into_iter());
    assert_eq!(sums(types.values().map(fields)), whole);
    let depth = fields(&all["prefixes"].items()[0]);
    let listed = depth["biggest"].items().iter().map(fields);
    assert_eq!(sums(listed.chain([fields(&depth["rest"])])), whole);

    // The string of a megabyte is the biggest, and takes little more than its bytes.
    let first = &biggest(&all, "biggest-by-bytes", "string")[0];
    assert_eq!(*first, (3, "other:long:string".to_owned()));
    let strings = fields(&all["biggest-by-bytes"])["string"].items().to_vec();
    let bytes = int(&fields(&strings[0]), "bytes");
    assert!((1_000_000..1_000_200).contains(&bytes), "{bytes}");
    let of_lists = biggest(&all, "biggest-by-elements", "list");
    assert_eq!(of_lists[0].1, "list:long");
    assert_eq!(of_lists[1], (3, "other:list".to_owned()));
    let lists = fields(&all["biggest-by-elements"])["list"].items().to_vec();
    assert_eq!(int(&fields(&lists[0]), "elements"), 300);
    let sorted = |list: &[Value], by: &str| {
        let measures: Vec<_> = list.iter().map(|key| int(&fields(key), by)).collect();
        assert!(measures.is_sorted_by(|a, b| a >= b), "{measures:?}");
    };
    sorted(&strings, "bytes");
    sorted(&lists, "elements");

    assert!(prefixes(&all, 1).contains(&(3, "other:".to_owned(), 2)));
    assert_eq!(prefixes(&all, 2), [(3, "other:long:".to_owned(), 1)]);
    let one = scan(&mut conn, "DB 3");
    assert_eq!(int(&one, "keys"), 2);
    let one = scan(&mut conn, "PREFIX list");
    assert_eq!(int(&one, "keys"), 2);
    assert_eq!(
        prefixes(&one, 1),
        [(0, "list:".to_owned(), 1), (0, "list".to_owned(), 1)]
    );
    let one = scan(&mut conn, "SEPARATOR ng DEPTH 1 PREFIX other:lo TOP 1");
    assert_eq!(prefixes(&one, 1), [(3, "other:long".to_owned(), 1)]);
    // In RESP2 maps are arrays.
    conn.must("HELLO 2");
    assert_eq!(int(&fields(&conn.must("BIGKEYS GET")), "keys"), 1);
}

/// Writes keys `p0:k`, `p1:k` and so on.
fn fill(conn: &mut Conn, keys: usize) {
    let one = |n: usize| ["SET".to_owned(), format!("p{n}:k"), "value".to_owned()];
    let lines: Vec<_> = (0..keys)
        .map(|n| one(n).map(String::into_bytes).to_vec())
        .collect();
    for reply in conn.pipeline(&lines) {
        assert_eq!(reply, Value::ok());
    }
}

#[test]
fn one_scan_runs_at_a_time_and_can_be_stopped() {
    let mut server = Server::start(&[]);
    let mut conn = server.connect();
    fill(&mut conn, 5000);
    conn.must("BIGKEYS START RATE 100");
    for busy in ["BIGKEYS START", "BIGKEYS RESET"] {
        let error = conn.cmd(busy).error();
        assert_eq!(error.as_deref(), Some("ERR a scan is already in progress"));
    }
    wait_for("keys", || {
        int(&fields(&conn.must("BIGKEYS GET")), "keys") > 0
    });
    conn.must("BIGKEYS STOP");
    let partial = found(&mut conn);
    assert_eq!(partial["state"].text(), "stopped");
    let keys = int(&partial, "keys");
    assert!((1..5000).contains(&keys), "{keys}");
    assert_eq!(int(&partial, "keys-expected"), 5000);
    assert_eq!(conn.cmd("BIGKEYS STOP"), Value::NullBulk);
    assert_eq!(int(&scan(&mut conn, ""), "keys"), 5000);
    // A stop of the server does not wait for the end of a scan.
    conn.must("BIGKEYS START RATE 1");
    wait_for("the scan", || state(&mut conn) == "running");
    assert!(server.terminate().success());
}

#[test]
fn a_scan_sees_the_keys_as_they_were() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    fill(&mut conn, 3000);
    for n in 0..2000 {
        conn.must(&format!("RPUSH z:list item{n}"));
    }
    conn.must("BIGKEYS START RATE 2000 SAMPLES 0");
    wait_for("a snapshot", || state(&mut conn) != "starting");
    conn.must("DEL z:list");
    conn.must("FLUSHALL");
    conn.must("SET other value");
    let all = found(&mut conn);
    assert_eq!(all["state"].text(), "done");
    assert_eq!((int(&all, "keys"), int(&all, "elements")), (3001, 5000));
    assert_eq!(int(&all, "rows-read"), 5001);
    assert_eq!(int(&scan(&mut conn, ""), "keys"), 1);
}

#[test]
fn many_prefixes_are_added_up() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    fill(&mut conn, 20_000);
    conn.must("HSET heavy:hash a 1 b 2 c 3");
    conn.call(&["SET", "heavy:string", &"x".repeat(1000)]);
    let all = scan(&mut conn, "TOP 5");
    let depth = fields(&all["prefixes"].items()[0]);
    assert_eq!(prefixes(&all, 1)[0], (0, "heavy:".to_owned(), 2));
    assert_eq!(depth["biggest"].items().len(), 5);
    assert_eq!(int(&depth, "other-prefixes"), 20_001 - 5);
    assert_eq!(int(&fields(&depth["rest"]), "keys"), 20_002 - 2 - 4);
}

#[test]
fn prefixes_go_through_the_slots_of_a_cluster() {
    let server = Server::start(&["--cluster-enabled", "yes"]);
    let mut conn = server.connect();
    for n in 0..300 {
        conn.must(&format!("SET user:{n} value"));
        conn.must(&format!("RPUSH {{q{n}}}:jobs 1 2"));
    }
    let all = scan(&mut conn, "");
    assert_eq!(int(&all, "keys"), 600);
    assert_eq!(prefixes(&all, 1)[0], (0, "user:".to_owned(), 300));
    let some = scan(&mut conn, "PREFIX user:2 SEPARATOR 9");
    assert_eq!(int(&some, "keys"), 111);
    let ends: Vec<_> = prefixes(&some, 1).into_iter().map(|one| one.1).collect();
    assert!(ends.contains(&"user:29".to_owned()), "{ends:?}");
}

#[test]
fn a_replica_scans_its_own_keys() {
    let master = Server::start(&[]);
    let mut conn = master.connect();
    fill(&mut conn, 500);
    let port = master.port().to_string();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]);
    let mut conn = replica.connect();
    wait_for("the keys of the master", || {
        conn.must("DBSIZE") == Value::Int(500)
    });
    assert_eq!(int(&scan(&mut conn, ""), "keys"), 500);
}

fn top(server: &Server, flags: &[&str]) -> Output {
    let mut command = Command::new(binary().with_file_name("kedis_top"));
    command.args(["--addr", &server.address()]).args(flags);
    command.env("COLUMNS", "80");
    command.output().expect("a program beside the server")
}

/// The standard output of a run that succeeds.
fn shown(server: &Server, flags: &[&str]) -> String {
    let output = top(server, flags);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{flags:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a run that fails says.
fn refused(server: &Server, flags: &[&str]) -> String {
    let output = top(server, flags);
    assert!(!output.status.success(), "{flags:?}");
    assert!(output.stdout.is_empty(), "{flags:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Calls `act` while other clients use keys.
fn under_load<T>(server: &Server, act: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut conn = server.connect();
            while !ended.load(Ordering::Relaxed) {
                conn.must("GET user:1");
                conn.must("GET plain");
            }
        });
        let done = act();
        ended.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn the_tool_prints_all_as_json() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut conn = server.connect();
    conn.must("AUTH secret");
    for n in 0..100 {
        conn.must(&format!("SET user:{n} value"));
    }
    conn.must("ZADD zset\x1b[31m 1 a 2 b");
    conn.call(&[&b"SET"[..], b"\xFF\xFE", b"value"]);
    let error = refused(&server, &[]);
    assert!(error.contains("NOAUTH"), "{error}");
    let with = ["--password", "secret"];
    let error = refused(&server, &[&with[..], &["--last", "--hot", "0"]].concat());
    assert!(error.contains("no scan has run"), "{error}");

    // The load needs no password of its own.
    conn.call(&["CONFIG", "SET", "requirepass", ""]);
    let flags = ["--json", "--top", "128", "--hot", "1", "--hot_sample", "1"];
    let text = under_load(&server, || shown(&server, &flags));
    assert_eq!(text.lines().count(), 1, "one document");
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["total"]["keys"], 102);
    assert_eq!(all["scan"]["state"], "done");
    let biggest = &all["prefixes"][0]["biggest"][0];
    assert_eq!(
        (&biggest["prefix"], &biggest["keys"]),
        (&"user:".into(), &100.into())
    );
    let keys = all["biggest_by_bytes"].as_array().unwrap();
    assert_eq!(keys.len(), 102);
    let raw = keys.iter().find(|key| key["key_hex"] == "fffe");
    assert_eq!(raw.map(|key| &key["type"]), Some(&"string".into()));
    let hot = &all["hot"];
    assert_eq!(
        (&hot["of_another_client"], &hot["running"]),
        (&false.into(), &false.into())
    );
    let names = |list: &str, name: &str| -> Vec<String> {
        let list = hot[list].as_array().unwrap().iter();
        list.map(|one| one[name].as_str().unwrap().to_owned())
            .collect()
    };
    let hot_keys = names("keys_by_bytes", "key");
    assert!(hot_keys.contains(&"user:1".to_owned()), "{hot_keys:?}");
    let of_prefixes = names("prefixes_by_bytes", "prefix");
    assert!(of_prefixes.contains(&"user:".to_owned()), "{of_prefixes:?}");
    // Nothing of the collection is left to the server.
    assert_eq!(conn.cmd("HOTKEYS GET"), Value::NullBulk);

    let text = shown(&server, &["--last", "--hot", "0"]);
    assert!(
        text.contains("102 keys") && text.contains("user:"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "{text}");
    for line in text.lines().skip(2) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn the_tool_leaves_a_collection_of_another_client_alone() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    conn.must("HOTKEYS START METRICS 1 NET");
    let text = under_load(&server, || shown(&server, &["--json", "--hot", "1"]));
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hot = &all["hot"];
    assert_eq!(
        (&hot["of_another_client"], &hot["running"]),
        (&true.into(), &true.into())
    );
    assert_eq!(hot["keys_by_us"].as_array().unwrap().len(), 0);
    let running = conn.must("HOTKEYS GET");
    assert_eq!(int(&fields(&running.items()[0]), "tracking-active"), 1);
}

#[test]
fn the_tool_says_what_it_needs_of_a_server() {
    let redis = oracle(&[]);
    let error = refused(&redis, &[]);
    assert!(
        error.contains("is no Kedis") && error.contains("--bigkeys"),
        "{error}"
    );
    let server = Server::start(&[]);
    for (flags, said) in [
        (&["--db", "99"][..], "DB index is out of range"),
        (&["--separator", ""], "SEPARATOR must have"),
    ] {
        let error = refused(&server, &[flags, &["--hot", "0"]].concat());
        assert!(error.contains(said), "{error}");
    }
}
