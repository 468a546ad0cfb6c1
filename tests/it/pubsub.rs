//! Publish and subscribe: over many connections and threads, with subscribers that do not
//! read, and compared with the oracle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::conn::encode;
use crate::support::{Conn, Server, Value, args, oracle, wait_for};

fn subscriber(address: &str, resp3: bool, line: &str, confirmations: usize) -> Conn {
    let mut conn = Conn::open(address).unwrap();
    if resp3 {
        conn.hello3();
    }
    conn.send(&args(line)).unwrap();
    for _ in 0..confirmations {
        conn.read().unwrap();
    }
    conn
}

/// The last part of a message, of either protocol version.
fn payload(message: Value) -> Vec<u8> {
    match message {
        Value::Array(parts) | Value::Push(parts) => parts.last().unwrap().bytes().to_vec(),
        other => panic!("expected a message, got {other:?}"),
    }
}

/// Every subscriber on every thread gets each message of each publisher once, and
/// those of one publisher in order.
#[test]
fn thousands_of_subscribers_get_each_message_once_and_in_order() {
    const SUBSCRIBERS: usize = 3000;
    const PUBLISHERS: usize = 4;
    const MESSAGES: usize = 150;
    let server = Server::start(&["--io-threads", "4"]);
    let address = server.address();
    let mut subscribers: Vec<Conn> = (0..SUBSCRIBERS)
        .map(|n| match n % 3 {
            0 => subscriber(&address, false, "SUBSCRIBE news", 1),
            1 => subscriber(&address, true, "SUBSCRIBE news", 1),
            _ => subscriber(&address, true, "PSUBSCRIBE n[e]ws", 1),
        })
        .collect();
    std::thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let address = &address;
            scope.spawn(move || {
                let mut conn = Conn::open(address).unwrap();
                let batches: Vec<_> = (0..MESSAGES)
                    .map(|n| args(&format!("PUBLISH news {publisher}:{n}")))
                    .collect();
                for batch in batches.chunks(50) {
                    for reply in conn.pipeline(batch) {
                        assert_eq!(reply, Value::Int(SUBSCRIBERS as i64));
                    }
                }
            });
        }
        for readers in subscribers.chunks_mut(SUBSCRIBERS / 4) {
            scope.spawn(move || {
                for conn in readers {
                    let mut next = [0; PUBLISHERS];
                    for _ in 0..PUBLISHERS * MESSAGES {
                        let text = String::from_utf8(payload(conn.read().unwrap())).unwrap();
                        let (publisher, n) = text.split_once(':').unwrap();
                        let expected = &mut next[publisher.parse::<usize>().unwrap()];
                        assert_eq!(n.parse::<usize>().unwrap(), *expected, "of {publisher}");
                        *expected += 1;
                    }
                }
            });
        }
    });
    // No message came twice: the reply to PING follows the last message.
    for conn in subscribers.iter_mut().step_by(97) {
        let pong = conn.must("PING last");
        assert!(matches!(pong, Value::Array(_) | Value::Bulk(_)), "{pong:?}");
    }
    let mut conn = server.connect();
    let numbers = conn.must("PUBSUB NUMSUB news");
    assert_eq!(numbers.items()[1], Value::Int(2000));
    drop(subscribers);
    wait_for("all subscribers to be gone", || {
        let numbers = conn.must("PUBSUB NUMSUB news");
        numbers.items()[1] == Value::Int(0) && conn.must("PUBSUB NUMPAT") == Value::Int(0)
    });
}

/// Floods subscribers of which one does not read: it must be closed, and the others must get
/// every message.
fn closes_only_the_slow_subscriber(limit: &str) {
    const MESSAGES: usize = 4000;
    let server = Server::start(&["--io-threads", "2"]);
    let address = server.address();
    let mut admin = server.connect();
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", limit];
    assert_eq!(admin.call(&limit), Value::ok());
    let mut slow = subscriber(&address, false, "SUBSCRIBE flood", 1);
    let mut healthy: Vec<Conn> = (0..4)
        .map(|_| subscriber(&address, true, "SUBSCRIBE flood", 1))
        .collect();
    std::thread::scope(|scope| {
        for conn in &mut healthy {
            scope.spawn(move || {
                for n in 0..MESSAGES {
                    let message = payload(conn.read().unwrap());
                    assert!(message.starts_with(format!("{n}:").as_bytes()), "at {n}");
                }
            });
        }
        let filler = "x".repeat(16 << 10);
        for n in 0..MESSAGES {
            let message = format!("{n}:{filler}");
            let got = admin.call(&["PUBLISH", "flood", &message]).int();
            assert!(got == 4 || got == 5, "{got}");
        }
    });
    wait_for("the slow subscriber to be closed", || {
        admin.must("PUBSUB NUMSUB flood").items()[1] == Value::Int(4)
    });
    let (_, closed) = slow.read_raw_until(Duration::from_secs(20), |_| false);
    assert!(closed);
    let info = admin.must("INFO stats").text();
    assert!(
        info.contains("client_output_buffer_limit_disconnections:1\r\n"),
        "{info}"
    );
}

#[test]
fn a_subscriber_over_its_hard_limit_is_closed_while_others_go_on() {
    closes_only_the_slow_subscriber("pubsub 16mb 0 0");
}

#[test]
fn a_subscriber_over_its_soft_limit_for_long_is_closed_while_others_go_on() {
    closes_only_the_slow_subscriber("pubsub 0 16mb 1");
}

/// A publisher that is faster than the thread of its subscribers waits for it. Subscribers that
/// read are not closed, although far more than the limit is sent.
#[test]
fn a_fast_publisher_does_not_overrun_subscribers_that_read() {
    const BATCHES: usize = 40;
    let server = Server::start(&["--io-threads", "2"]);
    let address = server.address();
    let mut admin = server.connect();
    let limit = [
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 16mb 0 0",
    ];
    assert_eq!(admin.call(&limit), Value::ok());
    let mut readers: Vec<Conn> = (0..40)
        .map(|_| subscriber(&address, false, "SUBSCRIBE flood", 1))
        .collect();
    let filler = "x".repeat(1000);
    let batch: Vec<_> = (0..1000)
        .map(|_| args(&format!("PUBLISH flood {filler}")))
        .collect();
    std::thread::scope(|scope| {
        for conn in &mut readers {
            scope.spawn(move || {
                for n in 0..BATCHES * 1000 {
                    conn.read().unwrap_or_else(|e| panic!("at {n}: {e}"));
                }
            });
        }
        for _ in 0..BATCHES {
            for reply in admin.pipeline(&batch) {
                assert_eq!(reply, Value::Int(40));
            }
        }
    });
}

/// In RESP2 a message after the confirmation would be taken for a reply.
#[test]
fn no_message_comes_after_the_confirmation_of_unsubscribing() {
    let server = Server::start(&["--io-threads", "4"]);
    let address = server.address();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let running = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut publisher = server.connect();
            scope.spawn(move || {
                let batch = vec![args("PUBLISH busy message"); 20];
                while running() {
                    publisher.pipeline(&batch);
                }
            });
        }
        let deadline = Instant::now() + Duration::from_secs(4);
        let mut conn = Conn::open(&address).unwrap();
        let mut messages = 0;
        while Instant::now() < deadline {
            conn.send(&args("SUBSCRIBE busy")).unwrap();
            conn.send(&args("UNSUBSCRIBE")).unwrap();
            conn.send(&args("PING")).unwrap();
            loop {
                match conn.read().unwrap() {
                    Value::Array(parts) if parts[0] == Value::bulk("unsubscribe") => break,
                    Value::Array(parts) => messages += usize::from(parts[0].bytes() == b"message"),
                    other => panic!("{other:?} before the confirmation"),
                }
            }
            assert_eq!(conn.read().unwrap(), Value::simple("PONG"));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(messages > 0);
    });
}

/// A message whose PUBLISH was acknowledged arrives before the replies to later requests.
#[test]
fn what_was_acknowledged_to_the_publisher_is_never_missed() {
    let server = Server::start(&["--io-threads", "4"]);
    let mut publisher = server.connect();
    for _ in 0..300 {
        let mut conn = subscriber(&server.address(), false, "SUBSCRIBE once", 1);
        assert_eq!(publisher.must("PUBLISH once x"), Value::Int(1));
        conn.send(&args("UNSUBSCRIBE")).unwrap();
        assert_eq!(payload(conn.read().unwrap()), b"x");
        let confirmation = conn.read().unwrap();
        assert_eq!(confirmation.items()[0], Value::bulk("unsubscribe"));
    }
}

/// The replies and messages for a fixed conversation of two subscribers and a publisher.
fn transcript(server: &Server, resp3: bool) -> Vec<Vec<Value>> {
    const LINES: &[(usize, &str, [usize; 3])] = &[
        (0, "SUBSCRIBE a b a", [3, 0, 0]),
        (0, "PSUBSCRIBE a*", [1, 0, 0]),
        (0, "SSUBSCRIBE a s", [2, 0, 0]),
        (1, "PSUBSCRIBE ? [c-d]", [0, 2, 0]),
        (2, "PUBLISH a one", [2, 1, 1]),
        (2, "PUBLISH b two", [1, 1, 1]),
        (2, "PUBLISH nobody x", [0, 0, 1]),
        (2, "SPUBLISH s three", [1, 0, 1]),
        (2, "SPUBLISH b nobody", [0, 0, 1]),
        (2, "PUBSUB CHANNELS b*", [0, 0, 1]),
        (2, "PUBSUB NUMSUB a b c", [0, 0, 1]),
        (2, "PUBSUB NUMPAT", [0, 0, 1]),
        (2, "PUBSUB SHARDCHANNELS s", [0, 0, 1]),
        (2, "PUBSUB SHARDNUMSUB s b", [0, 0, 1]),
        (2, "PUBSUB channels a b", [0, 0, 1]),
        (2, "PUBSUB nope", [0, 0, 1]),
        (2, "PUBSUB", [0, 0, 1]),
        (2, "SUBSCRIBE", [0, 0, 1]),
        (2, "UNSUBSCRIBE", [0, 0, 1]),
        (2, "PUNSUBSCRIBE", [0, 0, 1]),
        (2, "SUNSUBSCRIBE", [0, 0, 1]),
        (0, "GET x", [1, 0, 0]),
        (0, "CONFIG GET databases", [1, 0, 0]),
        (0, "PING", [1, 0, 0]),
        (0, "PING hi", [1, 0, 0]),
        (0, "PING a b", [1, 0, 0]),
        (0, "UNSUBSCRIBE a nope", [2, 0, 0]),
        (0, "PUNSUBSCRIBE a* a*", [2, 0, 0]),
        (0, "SUNSUBSCRIBE s", [1, 0, 0]),
        (0, "SUNSUBSCRIBE", [1, 0, 0]),
        (0, "UNSUBSCRIBE", [1, 0, 0]),
        (0, "PING", [1, 0, 0]),
        (1, "RESET", [0, 1, 0]),
        (1, "PING", [0, 1, 0]),
        (2, "PUBLISH a nobody", [0, 0, 1]),
        (1, "CLIENT REPLY OFF", [0, 0, 0]),
        (1, "SUBSCRIBE q", [0, 1, 0]),
        (2, "PUBLISH q off", [0, 1, 1]),
        (1, "UNSUBSCRIBE q", [0, 1, 0]),
        (1, "CLIENT REPLY ON", [0, 1, 0]),
    ];
    let mut clients: Vec<Conn> = (0..3).map(|_| server.connect()).collect();
    if resp3 {
        clients.iter_mut().for_each(Conn::hello3);
    }
    let mut seen = Vec::new();
    for (sender, line, replies) in LINES {
        clients[*sender].send(&args(line)).unwrap();
        for (client, expected) in clients.iter_mut().zip(replies) {
            seen.push((0..*expected).map(|_| client.read().unwrap()).collect());
        }
    }
    seen
}

#[test]
fn replies_and_messages_are_those_of_redis() {
    let (ours, oracle) = (Server::start(&[]), oracle(&[]));
    for resp3 in [false, true] {
        assert_eq!(transcript(&ours, resp3), transcript(&oracle, resp3));
    }
}

/// As in Redis 7.2 and later; 7.0 sends the message before the reply.
#[test]
fn what_a_client_publishes_to_itself_comes_right_after_the_reply() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    conn.hello3();
    let batch = [
        "SUBSCRIBE me",
        "PUBLISH me 1",
        "PING",
        "PUBLISH me 2",
        "UNSUBSCRIBE me",
        "PUBLISH me 3",
    ];
    let batch: Vec<_> = batch.iter().map(|line| args(line)).collect();
    let mut replies = conn.pipeline(&batch);
    replies.extend((0..2).map(|_| conn.read().unwrap()));
    let push =
        |kind: &str, last: Value| Value::Push(vec![Value::bulk(kind), Value::bulk("me"), last]);
    let expected = [
        push("subscribe", Value::Int(1)),
        Value::Int(1),
        push("message", Value::bulk("1")),
        Value::simple("PONG"),
        Value::Int(1),
        push("message", Value::bulk("2")),
        push("unsubscribe", Value::Int(0)),
        Value::Int(0),
    ];
    assert_eq!(replies, expected);
}

/// What a client reads for pipelined commands, up to the reply to a final ECHO; one string for
/// each value.
fn conversation(server: &Server, resp3: bool, lines: &[&str]) -> Vec<String> {
    let mut conn = server.connect();
    if resp3 {
        conn.hello3();
    }
    for line in lines {
        conn.send(&args(line)).unwrap();
    }
    conn.send(&args("ECHO end")).unwrap();
    let values = std::iter::from_fn(|| Some(conn.read().unwrap()));
    let values = values.take_while(|value| *value != Value::bulk("end"));
    values.map(|value| format!("{value:?}")).collect()
}

/// Messages go to the clients that are subscribed at the time of PUBLISH, also within one
/// transaction. They follow the reply of EXEC, as in Redis 8.
#[test]
fn a_transaction_that_ends_its_own_subscription_gets_its_messages() {
    let server = Server::start(&["--notify-keyspace-events", "KEA"]);
    let news = [
        "MULTI",
        "PUBLISH news before",
        "SUBSCRIBE news",
        "PSUBSCRIBE n*",
        "PUBLISH news hi",
        "UNSUBSCRIBE news",
        "PUBLISH news pattern",
        "PUNSUBSCRIBE",
        "PUBLISH news after",
        "EXEC",
    ];
    let keys = [
        "MULTI",
        "SET before 1",
        "PSUBSCRIBE __key*",
        "SET a 1",
        "PUNSUBSCRIBE __key*",
        "SET after 1",
        "EXEC",
    ];
    let messages = |resp3: bool, lines: &[&str]| {
        let seen = conversation(&server, resp3, lines);
        // One reply to each command; the messages follow the reply of EXEC.
        let messages = &seen[lines.len()..];
        messages
            .iter()
            .map(|push| push[2..].to_owned())
            .collect::<Vec<_>>()
    };
    for resp3 in [false, true] {
        let replies = conversation(&server, resp3, &news);
        let exec = &replies[news.len() - 1];
        for count in [":0, ", ":2, ", ":1, "] {
            assert!(exec.contains(count), "{exec}");
        }
        assert_eq!(
            messages(resp3, &news),
            [
                "[$message, $news, $hi]",
                "[$pmessage, $n*, $news, $hi]",
                "[$pmessage, $n*, $news, $pattern]",
            ]
        );
        assert_eq!(
            messages(resp3, &keys),
            [
                "[$pmessage, $__key*, $__keyspace@0__:a, $set]",
                "[$pmessage, $__key*, $__keyevent@0__:set, $a]",
            ]
        );
    }
}

/// A worker subscribes a client to very many names. What is published meanwhile comes after the
/// confirmations, and nothing after those of the names that it has left.
#[test]
fn confirmations_of_very_many_names_come_before_their_messages_and_after_their_last() {
    const NAMES: usize = 20_000;
    let server = Server::start(&["--io-threads", "2"]);
    let all = |command: &str| {
        let names = (0..NAMES).map(|n| format!("n{n}"));
        let words = std::iter::once(command.to_owned()).chain(names);
        words.map(String::into_bytes).collect::<Vec<_>>()
    };
    let done = AtomicBool::new(false);
    let worker_requests = || server.connect().info_number("stats", "worker_requests");
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut conn = server.connect();
            let mut received = 0;
            while !done.load(Ordering::Relaxed) {
                received += conn.must("PUBLISH n0 m").int();
                received += conn.must(&format!("PUBLISH n{} m", NAMES - 1)).int();
            }
            received
        });
        let mut messages = 0;
        for round in 0..3 {
            let mut conn = server.connect();
            if round == 1 {
                conn.hello3();
            }
            let mut read = |conn: &mut Conn, word: &str| {
                let mut confirmed = 0;
                let mut early = 0;
                while confirmed < NAMES {
                    let (Value::Array(parts) | Value::Push(parts)) = conn.read().unwrap() else {
                        panic!("no message");
                    };
                    if parts[0].bytes() == word.as_bytes() {
                        assert_eq!(parts[1].bytes(), format!("n{confirmed}").as_bytes());
                        confirmed += 1;
                    } else {
                        assert_eq!(parts[0].bytes(), b"message");
                        early += usize::from(confirmed < NAMES);
                        messages += 1;
                    }
                }
                early
            };
            let before = worker_requests();
            conn.send(&all("SUBSCRIBE")).unwrap();
            assert_eq!(read(&mut conn, "subscribe"), 0);
            assert_ne!(before, worker_requests(), "no worker has run it");
            match round {
                2 => conn.send(&args("UNSUBSCRIBE")).unwrap(),
                _ => conn.send(&all("UNSUBSCRIBE")).unwrap(),
            }
            if round == 2 {
                let (mut left, mut last) = (0, 0);
                while left < NAMES {
                    let (Value::Array(parts) | Value::Push(parts)) = conn.read().unwrap() else {
                        panic!("no message");
                    };
                    match parts[0].bytes() {
                        b"unsubscribe" => (left, last) = (left + 1, parts[2].int()),
                        _ => assert_eq!(left, 0, "a message between the confirmations"),
                    }
                }
                assert_eq!(last, 0);
            } else {
                read(&mut conn, "unsubscribe");
            }
            // Nothing follows.
            conn.send(&args("PING")).unwrap();
            assert_eq!(conn.read().unwrap(), Value::simple("PONG"));
            let left = server.connect().must("PUBSUB NUMSUB n0 n1");
            assert_eq!((left.items()[1].int(), left.items()[3].int()), (0, 0));
        }
        done.store(true, Ordering::Relaxed);
        assert!(publisher.join().unwrap() > 0);
        assert!(messages > 0);
    });
}

/// What a client has published before it leaves very many names is sent to it before that.
#[test]
fn a_client_gets_its_own_messages_before_it_leaves_very_many_names() {
    const NAMES: usize = 5000;
    let server = Server::start(&["--io-threads", "1"]);
    let mut conn = server.connect();
    conn.hello3();
    let all = |command: &str| {
        let names = (0..NAMES).map(|n| format!("n{n}"));
        let words = std::iter::once(command.to_owned()).chain(names);
        words.map(String::into_bytes).collect::<Vec<_>>()
    };
    conn.send(&all("SUBSCRIBE")).unwrap();
    for _ in 0..NAMES {
        conn.read().unwrap();
    }
    let mut wire = Vec::new();
    for n in 0..10 {
        encode(&mut wire, &args(&format!("PUBLISH n7 {n}")));
    }
    encode(&mut wire, &all("UNSUBSCRIBE"));
    conn.send_raw(&wire).unwrap();
    let (mut got, mut left) = (0, 0);
    while left < NAMES {
        match conn.read().unwrap() {
            Value::Int(receivers) => assert_eq!(receivers, 1),
            Value::Push(parts) if parts[0].bytes() == b"message" => {
                assert_eq!(left, 0);
                assert_eq!(parts[2].bytes(), got.to_string().as_bytes());
                got += 1;
            }
            Value::Push(parts) => {
                assert_eq!(parts[0].bytes(), b"unsubscribe");
                left += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, 10);
}
