//! `appendfsync always`: the order of replies that wait for the disk and of those that do not,
//! for clients that pipeline.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Conn, Server, Value, args, env_number};

const ALWAYS: &[&str] = &["--appendfsync", "always"];

/// A client that checks the replies and messages that it gets.
struct Client {
    conn: Conn,
    number: usize,
    clients: usize,
    counter: i64,
    written: Option<u64>,
    /// Messages to itself that must come before the next reply.
    messages: VecDeque<String>,
}

impl Client {
    fn new(address: &str, number: usize, clients: usize) -> Client {
        let mut conn = Conn::open(address).unwrap();
        conn.hello3();
        let line = format!("SUBSCRIBE channel{number}");
        conn.send(&args(&line)).unwrap();
        assert!(matches!(conn.read().unwrap(), Value::Push(_)));
        Client {
            conn,
            number,
            clients,
            counter: 0,
            written: None,
            messages: VecDeque::new(),
        }
    }

    /// A request and its expected reply.
    fn request(&mut self, round: u64, dice: &mut fastrand::Rng) -> (String, Value) {
        let number = self.number;
        match dice.u32(..9) {
            0 => {
                self.written = Some(round);
                (format!("SET key{number} {round}"), Value::ok())
            }
            1 | 2 => {
                let written = self.written.map(|value| value.to_string());
                let reply = written.map_or(Value::Null, Value::bulk);
                (format!("GET key{number}"), reply)
            }
            3 => ("GET never".to_owned(), Value::Null),
            4 => {
                self.counter += 1;
                (format!("INCR counter{number}"), Value::Int(self.counter))
            }
            5 => {
                self.counter += 1;
                let script = format!("EVAL return(redis.call('incr',KEYS[1])) 1 counter{number}");
                (script, Value::Int(self.counter))
            }
            6 => ("PING".to_owned(), Value::simple("PONG")),
            7 => (format!("HGETALL hash{number}"), Value::Map(Vec::new())),
            _ => (format!("PUBLISH channel{number} {round}"), Value::Int(1)),
        }
    }

    /// The next reply. Expected messages must arrive before it.
    fn reply(&mut self) -> Value {
        loop {
            match self.conn.read().unwrap() {
                Value::Push(parts) => {
                    let message = parts.last().unwrap().text();
                    assert_eq!(Some(message), self.messages.pop_front());
                }
                other => {
                    assert_eq!(self.messages, VecDeque::<String>::new(), "{other:?}");
                    return other;
                }
            }
        }
    }

    /// Sends a pipeline that contains a BLPOP for the element that the previous client of the
    /// ring pushes in its own pipeline.
    fn round(&mut self, round: u64, dice: &mut fastrand::Rng) {
        let mut requests = Vec::new();
        for _ in 0..dice.usize(1..20) {
            requests.push(self.request(round, dice));
        }
        let next = (self.number + 1) % self.clients;
        requests.push((format!("RPUSH ring{next} {round}"), Value::Null));
        for _ in 0..dice.usize(..3) {
            requests.push(self.request(round, dice));
        }
        let own = format!("ring{}", self.number);
        let got = Value::Array(vec![Value::bulk(&own), Value::bulk(round.to_string())]);
        requests.push((format!("BLPOP {own} 0"), got));
        for _ in 0..dice.usize(..20) {
            requests.push(self.request(round, dice));
        }
        let mut wire = Vec::new();
        for (line, _) in &requests {
            crate::support::conn::encode(&mut wire, &args(line));
        }
        self.conn.send_raw(&wire).unwrap();
        for (line, expected) in requests {
            let reply = self.reply();
            if line.starts_with("PUBLISH") {
                self.messages.push_back(round.to_string());
            }
            if line.starts_with("RPUSH") {
                assert!(reply.int() > 0, "{line}: {reply:?}");
            } else {
                assert_eq!(reply, expected, "{line}");
            }
        }
    }
}

fn replies_are_in_order(flags: &[&str]) {
    const CLIENTS: usize = 12;
    let rounds = env_number("KEDIS_DURABILITY_ROUNDS", 150);
    let server = Server::start(flags);
    let address = server.address();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = Client::new(&address, number, CLIENTS);
            let mut dice = fastrand::Rng::with_seed(number as u64);
            scope.spawn(move || {
                for round in 0..rounds {
                    client.round(round, &mut dice);
                }
                client.conn.send(&args("PING")).unwrap();
                assert_eq!(client.reply(), Value::simple("PONG"));
            });
        }
    });
}

#[test]
fn replies_are_in_order_with_fsync_always() {
    for threads in ["1", "2", "4"] {
        replies_are_in_order(&[ALWAYS, &["--io-threads", threads]].concat());
    }
}

#[test]
fn replies_are_in_order_without() {
    replies_are_in_order(&["--io-threads", "2"]);
}

/// The way in which ticks wait for durability changes while they wait.
#[test]
fn replies_are_in_order_while_appendfsync_changes() {
    const CHANGES: usize = 100;
    let server = Server::start(&["--io-threads", "2"]);
    let address = server.address();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let mut client = Client::new(&address, number, 2);
            let mut dice = fastrand::Rng::with_seed(number as u64);
            scope.spawn(move || {
                for round in 0..400 {
                    client.round(round, &mut dice);
                }
            });
        }
        let mut conn = server.connect();
        for n in 0..CHANGES {
            let value = ["always", "everysec", "no"][n % 3];
            conn.must(&format!("CONFIG SET appendfsync {value}"));
            conn.must(&format!("SET changes {n}"));
        }
    });
}

/// A message of a tick that was durable immediately overtook those of the previous tick.
#[test]
fn messages_of_one_publisher_are_in_order() {
    const MESSAGES: u64 = 5000;
    let server = Server::start(&[ALWAYS, &["--io-threads", "1"]].concat());
    let address = server.address();
    let mut subscriber = server.connect();
    subscriber.must("SUBSCRIBE news");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (address, done) = (&address, &done);
            scope.spawn(move || {
                let mut conn = Conn::open(address).unwrap();
                while !done.load(Ordering::Relaxed) {
                    conn.must(&format!("SET key{number} value"));
                }
            });
        }
        let mut publisher = server.connect();
        publisher.send(&args("CLIENT REPLY OFF")).unwrap();
        for n in 0..MESSAGES {
            publisher.send(&args(&format!("PUBLISH news {n}"))).unwrap();
        }
        for n in 0..MESSAGES {
            let message = subscriber.read().unwrap();
            assert_eq!(message.items().last().unwrap().text(), n.to_string());
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A client gets messages that were published before its UNSUBSCRIBE, also with CLIENT REPLY
/// OFF.
#[test]
fn a_message_to_oneself_comes_before_what_one_asks_next() {
    let server = Server::start(ALWAYS);
    for _ in 0..20 {
        let mut conn = server.connect();
        conn.hello3();
        let lines = [
            "SUBSCRIBE news",
            "CLIENT REPLY OFF",
            "SET x 1",
            "PUBLISH news 1",
            "UNSUBSCRIBE news",
            "CLIENT REPLY ON",
        ];
        let mut wire = Vec::new();
        for line in lines {
            crate::support::conn::encode(&mut wire, &args(line));
        }
        conn.send_raw(&wire).unwrap();
        let words = ["subscribe", "message", "unsubscribe"];
        for word in words {
            let Value::Push(parts) = conn.read().unwrap() else {
                panic!("expected {word}");
            };
            assert_eq!(parts[0].text(), word);
        }
        assert_eq!(conn.read().unwrap(), Value::ok());
    }
}

/// The element was popped for a client that was closed before it got the reply.
#[test]
fn a_stop_while_the_disk_is_slow_loses_nothing() {
    for threads in ["1", "3"] {
        stop_while_the_disk_is_slow(threads);
    }
}

fn stop_while_the_disk_is_slow(threads: &str) {
    let flags = [ALWAYS, &["--io-threads", threads]].concat();
    let mut server = Server::start_failing(&flags, "before-flush:1:slow");
    for round in 0..3 {
        let (mut waiting, mut subscriber) = (server.connect(), server.connect());
        subscriber.must("SUBSCRIBE news");
        waiting.send(&args("BLPOP queue 0")).unwrap();
        let mut conn = server.connect();
        crate::support::wait_for("a client that waits", || {
            conn.info_number("clients", "blocked_clients") == 1
        });
        let (mut pusher, mut publisher) = (server.connect(), server.connect());
        pusher.send(&args("LPUSH queue item")).unwrap();
        publisher.send(&args("PUBLISH news item")).unwrap();
        server.signal("TERM");
        let pushed = pusher.read().is_ok();
        let published = publisher.read().is_ok();
        let got = waiting.read();
        let received = subscriber.read();
        crate::support::wait_for("the end", || server.exited().is_some());
        server.restart_failing("before-flush:1:slow");
        let left = server.connect().must("LLEN queue").int();
        assert_eq!(got.is_ok(), pushed, "round {round}: {got:?}, {left} left");
        assert_eq!(left, 0, "round {round}: {got:?}");
        assert!(
            !published || received.is_ok(),
            "round {round}: {received:?}"
        );
    }
}
