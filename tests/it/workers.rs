//! Requests on slow-command workers, beside other clients.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::crash::kedis_check;
use crate::support::conn::encode;
use crate::support::{Conn, Server, Value, args, wait_for};

/// More arguments and more rows than a request on an IO thread may have.
const MANY: usize = 5000;

fn words(first: &str, each: impl Fn(usize) -> Vec<String>) -> Vec<Vec<u8>> {
    let rest = (0..MANY).flat_map(each);
    let all = std::iter::once(first.to_owned()).chain(rest);
    all.map(String::into_bytes).collect()
}

/// A set of many members.
fn add_large() -> Vec<Vec<u8>> {
    let mut add = words("SADD", |n| vec![format!("member{n}")]);
    add.insert(1, b"large".to_vec());
    add
}

/// Sets the flag on drop, so that the readers end even if the test fails.
struct DoneAtEnd<'a>(&'a AtomicBool);

impl Drop for DoneAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn all_are(reply: &Value, len: usize) -> bool {
    let items = reply.items();
    items.len() == len && items.iter().all(|item| *item == items[0])
}

/// A writer repeatedly sets thousands of keys, and all items of a list, to the same number.
/// Readers of all of them must see a single number, never an older one than before or than the
/// acknowledged one.
#[test]
fn a_long_read_sees_one_moment() {
    let server = Server::start(&[]);
    let mget = words("MGET", |n| vec![format!("key{n}")]);
    let set_all = |conn: &mut Conn, to: u64| {
        let to = to.to_string();
        let mset = words("MSET", |n| vec![format!("key{n}"), to.clone()]);
        let mut push = words("RPUSH", |_| vec![to.clone()]);
        push.insert(1, b"list".to_vec());
        assert_eq!(conn.call(&mset), Value::ok());
        conn.must("MULTI");
        conn.must("DEL list");
        assert_eq!(conn.call(&push), Value::simple("QUEUED"));
        conn.must("EXEC");
    };
    let mut writer = server.connect();
    set_all(&mut writer, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = || {
            let mut conn = server.connect();
            let mut last = [0, 0];
            while !done.load(Ordering::Relaxed) {
                let requests = [&mget, &args("LRANGE list 0 -1")];
                for (request, last) in requests.into_iter().zip(&mut last) {
                    let reply = conn.call(request);
                    assert!(all_are(&reply, MANY), "torn");
                    let seen: u64 = reply.items()[0].text().parse().unwrap();
                    assert!(seen >= *last, "{seen} after {last}");
                    *last = seen;
                }
            }
        };
        let _end = DoneAtEnd(&done);
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        for round in 1..60 {
            set_all(&mut writer, round);
            let now = writer.call(&mget);
            assert!(all_are(&now, MANY));
            assert_eq!(
                now.items()[0].text(),
                round.to_string(),
                "not what was written"
            );
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
        }
    });
}

/// Requests that run on a worker keep their order in the pipeline, and so do writes that read
/// much first.
#[test]
fn long_requests_keep_their_place_in_a_pipeline() {
    let server = Server::start(&["--io-threads", "1"]);
    let mut conn = server.connect();
    let add = add_large();
    let many = MANY as i64;
    for round in 0..20 {
        let pipeline = [
            args("SET before 1"),
            add.clone(),
            args("SMEMBERS large"),
            args("SADD large another"),
            args("SUNIONSTORE union large other"),
            args("SORT large ALPHA LIMIT 0 1"),
            args("INCR before"),
            args("SREM large another"),
            args("COPY large copy"),
            args("DEL large"),
            args("SCARD copy"),
            args("DEL copy union before"),
        ];
        let replies = conn.pipeline(&pipeline);
        assert_eq!(replies[2].items().len(), MANY, "{round}");
        let rest = replies.into_iter().enumerate().filter(|(n, _)| *n != 2);
        let expected = [
            Value::ok(),
            Value::Int(many),
            Value::Int(1),
            Value::Int(many + 1),
            Value::Array(vec![Value::bulk("another")]),
            Value::Int(2),
            Value::Int(1),
            Value::Int(1),
            Value::Int(1),
            Value::Int(many),
            Value::Int(3),
        ];
        assert_eq!(rest.map(|(_, reply)| reply).collect::<Vec<_>>(), expected);
    }
}

/// Invalidations and events of a write arrive before any reply to a request that was sent after
/// the reply to the write, also if a worker ran it.
#[test]
fn events_of_a_worker_are_published_before_its_reply() {
    let server = Server::start(&["--notify-keyspace-events", "KEA"]);
    let mut writer = server.connect();
    writer.call(&add_large());
    let mut reader = server.connect();
    reader.hello3();
    reader.must("CLIENT TRACKING ON");
    let mut subscriber = server.connect();
    subscriber.hello3();
    subscriber
        .send(&args("PSUBSCRIBE __keyevent@0__:* done"))
        .unwrap();
    for pattern in ["subscription", "another"] {
        assert!(
            matches!(subscriber.read().unwrap(), Value::Push(_)),
            "{pattern}"
        );
    }
    for round in 0..100 {
        reader.must("SCARD to");
        assert_eq!(writer.cmd("SUNIONSTORE to large"), Value::Int(MANY as i64));
        reader.send(&args("PING")).unwrap();
        assert!(matches!(reader.read().unwrap(), Value::Push(_)), "{round}");
        assert_eq!(reader.read().unwrap(), Value::simple("PONG"));
        writer.must("DEL to");
        writer.must("PUBLISH done x");
        let channels = [(); 3].map(|()| match subscriber.read().unwrap() {
            Value::Push(parts) => parts[2].text(),
            other => panic!("{other:?}"),
        });
        let expected = ["__keyevent@0__:sunionstore", "__keyevent@0__:del", "done"];
        assert_eq!(channels, expected, "{round}");
    }
}

/// Sends commands of which one occupies a worker, and has another client of the same IO thread
/// served until they are answered. Returns the last reply.
fn served_beside(
    name: &str,
    conn: &mut Conn,
    neighbour: &mut Conn,
    control: &mut Conn,
    request: &[Vec<Vec<u8>>],
) -> Option<Value> {
    let (last, served) = run_beside(name, conn, neighbour, control, request);
    // A held IO thread would answer what it has read already, once.
    assert!(served >= 3, "{name}: {served} served beside it");
    last
}

/// The same for commands that may be over before another client is served. Returns the last reply,
/// and how often the other client was served.
fn run_beside(
    name: &str,
    conn: &mut Conn,
    neighbour: &mut Conn,
    control: &mut Conn,
    request: &[Vec<Vec<u8>>],
) -> (Option<Value>, u64) {
    let before = control.info_number("stats", "worker_requests");
    let mut wire = Vec::new();
    request
        .iter()
        .for_each(|command| encode(&mut wire, command));
    let replies = request.len();
    let answered = AtomicBool::new(false);
    let mut served = 0_u64;
    let last = std::thread::scope(|scope| {
        let mut writer = conn.writer();
        scope.spawn(move || writer.write_all(&wire).unwrap());
        let answered = &answered;
        let reads = scope.spawn(move || {
            let last = (0..replies).map(|_| conn.read().unwrap()).last();
            answered.store(true, Ordering::Release);
            last
        });
        wait_for("a worker has the request", || {
            control.info_number("clients", "blocked_clients") > 0
                || answered.load(Ordering::Acquire)
        });
        while !answered.load(Ordering::Acquire) {
            let key = format!("other{served}");
            assert_eq!(neighbour.cmd(&format!("SET {key} {served}")), Value::ok());
            assert_eq!(
                neighbour.cmd(&format!("GET {key}")),
                Value::bulk(served.to_string())
            );
            served += 1;
        }
        reads.join().unwrap()
    });
    assert_eq!(
        control.info_number("stats", "worker_requests"),
        before + 1,
        "{name}"
    );
    (last, served)
}

/// Paths of a few bytes can visit the values of a small document millions of times. They occupied
/// the IO thread, as its reads are few.
#[test]
fn paths_that_visit_many_values_hold_up_no_neighbour() {
    let server = Server::start(&["--io-threads", "1", "--enable-debug-command", "yes"]);
    let (mut conn, mut neighbour) = (server.connect(), server.connect());
    let mut control = server.connect();
    let nested = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    conn.must(&format!("JSON.SET nested $ {nested}"));
    let numbers: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
    conn.must(&format!("JSON.SET wide $ [{}]", numbers.join(",")));
    let pattern = "JSON.GET wide $[?(\"aaaa\"=~\"((a{40}){40}){9}\")]";
    for (line, fails) in [
        ("JSON.GET nested $..*..*..*", false),
        ("JSON.TYPE nested $..*..*..*", false),
        ("JSON.NUMINCRBY nested $..*..*..* 0", false),
        ("JSON.GET wide $[?(@in$)]", false),
        ("JSON.MGET nested nested nested $..*..*..*", false),
        (pattern, false),
        ("JSON.GET nested $..*..*..*..*..*..*..*..*..x", true),
    ] {
        let request = [args(line)];
        let (reply, _) = run_beside(line, &mut conn, &mut neighbour, &mut control, &request);
        let error = reply.as_ref().and_then(Value::error);
        let expected = fails.then_some("ERR the path visits too many values");
        assert_eq!(error.as_deref(), expected, "{line}");
    }
    kedis_check(&mut control);
}

/// Enough keys for a command to run for a while.
const VERY_MANY: usize = 300_000;

/// While commands of very many keys run, clients of the same IO thread are served, whether or not
/// their keys share a lock with those; and the keys of the command are not to be had.
#[test]
fn commands_of_very_many_keys_hold_up_no_neighbour() {
    let server = Server::start(&["--io-threads", "1", "--enable-debug-command", "yes"]);
    let mut conn = server.connect();
    let mut neighbour = server.connect();
    let mut control = server.connect();
    let all = |command: &str, pairs: bool| {
        let mut words = vec![command.as_bytes().to_vec()];
        for n in 0..VERY_MANY {
            words.push(format!("key{n}").into_bytes());
            words.extend(pairs.then(|| n.to_string().into_bytes()));
        }
        words
    };
    let transaction = |commands: usize| {
        let each = (0..commands).map(|n| args(&format!("INCR key{n}")));
        let mut request = vec![args("MULTI")];
        request.extend(each);
        request.push(args("EXEC"));
        request
    };
    let requests = [
        ("MSET", vec![all("MSET", true)]),
        ("EXISTS", vec![all("EXISTS", false)]),
        ("MGET", vec![all("MGET", false)]),
        ("EXEC", transaction(VERY_MANY / 3)),
        ("DEL", vec![all("DEL", false)]),
    ];
    for (name, request) in requests {
        let last = served_beside(name, &mut conn, &mut neighbour, &mut control, &request);
        match (name, last) {
            ("MSET", last) => assert_eq!(last, Some(Value::ok())),
            ("EXISTS" | "DEL", last) => assert_eq!(last, Some(Value::Int(VERY_MANY as i64))),
            (_, Some(last)) => assert!(!last.items().is_empty(), "{name}"),
            (_, None) => panic!("no reply to {name}"),
        }
        match name {
            "MSET" => assert_eq!(neighbour.cmd("GET key7"), Value::bulk("7")),
            "EXEC" => assert_eq!(neighbour.cmd("GET key7"), Value::bulk("8")),
            "DEL" => assert_eq!(neighbour.cmd("EXISTS key7"), Value::Int(0)),
            _ => {}
        }
    }
    kedis_check(&mut control);
}

/// A client that counts one of the keys beside commands that set or delete all of them, and others
/// that read them, find them whole: the counter starts anew with each command.
#[test]
fn writes_of_very_many_keys_are_atomic_for_those_who_write_one_of_them() {
    let server = Server::start(&["--io-threads", "2", "--enable-debug-command", "yes"]);
    let done = AtomicBool::new(false);
    let zero = words("MSET", |n| vec![format!("key{n}"), "0".to_owned()]);
    let many = words("DEL", |n| vec![format!("key{n}")]);
    let mut setter = server.connect();
    assert_eq!(setter.call(&zero), Value::ok());
    std::thread::scope(|scope| {
        let _end = DoneAtEnd(&done);
        let count = |n: usize| {
            let mut conn = server.connect();
            let mut last = 0;
            let mut resets = 0;
            while !done.load(Ordering::Relaxed) {
                let replies = conn.pipeline(&[
                    args("MULTI"),
                    args(&format!("INCR key{n}")),
                    args(&format!("GET key{n}")),
                    args("EXEC"),
                ]);
                let Some(Value::Array(pair)) = replies.last() else {
                    panic!("{replies:?}");
                };
                let Value::Int(now) = pair[0] else {
                    panic!("{pair:?}");
                };
                assert_eq!(pair[1], Value::bulk(now.to_string()));
                assert!(now == last + 1 || now == 1, "{now} after {last}");
                resets += u64::from(now == 1 && last > 0);
                last = now;
            }
            resets
        };
        let counters = [7, 4000].map(|n| scope.spawn(move || count(n)));
        for round in 0..60 {
            match round % 3 {
                0 | 1 => assert_eq!(setter.call(&zero), Value::ok()),
                _ => {
                    let deleted = setter.call(&many);
                    assert!(matches!(deleted, Value::Int(n) if n > 0), "{deleted:?}");
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        for counter in counters {
            assert!(
                counter.join().unwrap() > 0,
                "no command came between two counts"
            );
        }
    });
    kedis_check(&mut setter);
}

/// Several clients pop a long list at once, and all but one find it empty on the worker: they
/// block until the next push or their timeout.
#[test]
fn a_client_that_finds_nothing_left_on_a_worker_waits() {
    let server = Server::start(&[]);
    let mut writer = server.connect();
    let mut push = words("RPUSH", |n| vec![n.to_string()]);
    push.insert(1, b"list".to_vec());
    let mut clients: [Conn; 4] = std::array::from_fn(|_| server.connect());
    for round in 0..60 {
        let gives_up = round % 4 == 3;
        let timeout = if gives_up { "0.05" } else { "0" };
        writer.call(&push);
        let pop = args(&format!("BLMPOP {timeout} 1 list LEFT COUNT {MANY}"));
        for client in &mut clients {
            client.send(&pop).unwrap();
        }
        if !gives_up {
            for _ in 1..clients.len() {
                writer.call(&push);
            }
        }
        let mut served = 0;
        for client in &mut clients {
            let reply = client.read().unwrap();
            if reply == Value::NullArray {
                continue;
            }
            assert_eq!(reply.items()[1].items().len(), MANY, "round {round}");
            served += 1;
        }
        assert_eq!(served, if gives_up { 1 } else { clients.len() });
        assert_eq!(writer.must("LLEN list"), Value::Int(0));
    }
    assert_eq!(writer.info_number("clients", "blocked_clients"), 0);
}

/// A long request goes to a worker with the buffer that it came in. What follows it in the same
/// buffer stays, however it was cut into pieces.
#[test]
fn requests_behind_long_ones_are_answered_in_order() {
    let server = Server::start(&["--io-threads", "1"]);
    let mut rng = fastrand::Rng::with_seed(7);
    let long: Vec<u8> = (0..3 << 20).map(|_| rng.u8(..)).collect();
    let requests: Vec<(Vec<Vec<u8>>, Value)> = vec![
        (args("PING"), Value::simple("PONG")),
        (
            words("MSET", |n| vec![format!("key:{n}"), format!("value:{n}")]),
            Value::ok(),
        ),
        (args("GET key:77"), Value::bulk("value:77")),
        (vec![b"ECHO".to_vec(), long.clone()], Value::bulk(&long)),
        (
            vec![b"SET".to_vec(), b"long".to_vec(), long.clone()],
            Value::ok(),
        ),
        (args("STRLEN long"), Value::Int(long.len() as i64)),
        (
            words("EXISTS", |n| vec![format!("key:{n}")]),
            Value::Int(MANY as i64),
        ),
        (
            words("DEL", |n| vec![format!("key:{n}")]),
            Value::Int(MANY as i64),
        ),
        (args("EXISTS key:77"), Value::Int(0)),
    ];
    let mut wire = Vec::new();
    for (request, _) in &requests {
        encode(&mut wire, request);
    }
    for piece in [wire.len(), 1 << 20, 100_000, 70_001] {
        let mut conn = server.connect();
        for _ in 0..2 {
            let mut writer = conn.writer();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for piece in wire.chunks(piece) {
                        writer.write_all(piece).unwrap();
                    }
                });
                for (request, reply) in &requests {
                    let name = String::from_utf8_lossy(&request[0]);
                    assert!(
                        conn.read().unwrap() == *reply,
                        "{name} in pieces of {piece}"
                    );
                }
            });
        }
    }
}

/// A request that takes hours: each of its items moves thousands of others in vain.
fn endless(key: usize) -> Vec<Vec<u8>> {
    let mut insert = args(&format!("CF.INSERT cuckoo{key} ITEMS"));
    insert.extend((0..100_000).map(|n| format!("item{n}").into_bytes()));
    insert
}

/// Clients could keep all workers busy for hours; requests of others that need one had no reply, and
/// the server did not end.
#[test]
fn endless_requests_leave_room_for_others_and_end_with_their_clients_and_with_the_server() {
    let mut server = Server::start(&["--io-threads", "2", "--enable-debug-command", "yes"]);
    let mut admin = server.connect();
    admin.call(&add_large());
    let filters = |admin: &mut Conn| {
        for key in 0..6 {
            let reserve = "BUCKETSIZE 1 MAXITERATIONS 65535 EXPANSION 0";
            admin.must(&format!("CF.RESERVE cuckoo{key} 1024 {reserve}"));
        }
    };
    let begin = |admin: &mut Conn| -> Vec<Conn> {
        let clients: Vec<Conn> = (0..6)
            .map(|key| {
                let mut conn = server.connect();
                conn.must("CLIENT SETNAME endless");
                conn.send(&endless(key)).unwrap();
                conn
            })
            .collect();
        wait_for("all workers are busy", || {
            let list = admin.cmd("CLIENT LIST").text();
            let begun =
                |line: &&str| line.contains("name=endless") && line.contains("cmd=cf.insert");
            list.lines().filter(begun).count() == clients.len()
        });
        clients
    };
    filters(&mut admin);
    let mut clients = begin(&mut admin);
    // A worker runs this in less than a turn.
    for _ in 0..5 {
        assert_eq!(admin.must("SMEMBERS large").items().len(), MANY);
    }
    // The one half hangs up, the other one is killed.
    clients.truncate(3);
    let list = admin.cmd("CLIENT LIST").text();
    for line in list.lines().filter(|line| line.contains("name=endless")) {
        let id = line
            .split(' ')
            .next()
            .and_then(|word| word.strip_prefix("id="));
        admin.cmd(&format!("CLIENT KILL ID {}", id.unwrap()));
    }
    // This takes more than a turn, and scripts run on the other workers only.
    let script = "local n = 0 for i = 1, 2e7 do n = n + i % 2 end return n";
    let eval = ["EVAL", script, "0"].map(str::as_bytes);
    assert_eq!(admin.call(&eval), Value::Int(10_000_000));
    let untouched = |admin: &mut Conn| {
        for key in 0..6 {
            let info = admin.must(&format!("CF.INFO cuckoo{key}"));
            let inserted = &info.items()[7];
            assert_eq!(*inserted, Value::Int(0), "{info:?}");
        }
    };
    untouched(&mut admin);
    drop(clients);

    let clients = begin(&mut admin);
    server.terminate();
    drop(clients);
    server.spawn();
    let mut admin = server.connect();
    untouched(&mut admin);
    kedis_check(&mut admin);
}

/// Other threads waited for the keys while libraries were compiled: half a second for each.
#[test]
fn libraries_are_compiled_while_others_use_keys() {
    let server = Server::start(&["--io-threads", "1"]);
    let (mut conn, mut neighbour) = (server.connect(), server.connect());
    let mut control = server.connect();
    let load = |n: usize| {
        let code = format!(
            "#!lua name=lib{n}\nfor i = 1, 1000000 do end \
             redis.register_function('f{n}', function() return {n} end)"
        );
        ["FUNCTION", "LOAD", &code].map(|word| word.as_bytes().to_vec())
    };
    for n in 0..200 {
        conn.call(&load(n));
    }
    let Value::Bulk(dump) = conn.must("FUNCTION DUMP") else {
        panic!("no payload");
    };
    let restore = [&b"FUNCTION"[..], b"RESTORE", &dump, b"REPLACE"].map(<[u8]>::to_vec);
    let requests = [
        ("FUNCTION RESTORE", vec![restore.to_vec()]),
        (
            "EXEC",
            vec![
                vec![b"MULTI".to_vec()],
                vec![b"FUNCTION".to_vec(), b"FLUSH".to_vec()],
                restore.to_vec(),
                vec![b"EXEC".to_vec()],
            ],
        ),
    ];
    for (name, request) in requests {
        let last = served_beside(name, &mut conn, &mut neighbour, &mut control, &request);
        let is_done = match last {
            Some(Value::Array(replies)) => replies == [Value::ok(), Value::ok()],
            last => last == Some(Value::ok()),
        };
        assert!(is_done, "{name}");
        assert_eq!(conn.must("FCALL f199 0"), Value::Int(199));
    }
}
