//! Reads on slow-command workers, beside clients that write.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Conn, Server, Value, args};

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
