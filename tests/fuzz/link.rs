//! The link to a master, in both dialects: a server of this process follows a fake master
//! that answers the handshake, and sends the input as its answer to PSYNC.

use crate::commands::{Item, items};
use crate::instance::{Instance, with_kept};
use kedis::replication::Threads;
use kedis::resp::{Limits, Parser, Progress, Value};
use socket2::SockRef;
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// Timeout of all waits.
const PATIENCE: Duration = Duration::from_secs(50);
/// A key of the replica that is in no input.
const OLD: &[u8] = b"\0held before\0";

/// A replica, and the listening socket of its master.
struct Replica {
    instance: Instance,
    threads: Option<Threads>,
    master: TcpListener,
}

impl Replica {
    fn new() -> Replica {
        let instance = Instance::new();
        let threads = Threads::start(&instance.server).expect("threads");
        let master = TcpListener::bind("127.0.0.1:0").expect("a port");
        // The timeout of `accept`.
        let listening = SockRef::from(&master);
        listening
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket");
        Replica {
            instance,
            threads: Some(threads),
            master,
        }
    }

    fn accept(&self) -> TcpStream {
        let (socket, _) = self.master.accept().expect("the replica connects");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        socket.set_write_timeout(Some(PATIENCE)).expect("a socket");
        socket
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.stop();
        }
    }
}

thread_local! {
    static REPLICA: RefCell<Option<(Replica, u32)>> = const { RefCell::new(None) };
}

pub fn check_kedis(data: &[u8]) {
    with_kept(&REPLICA, Replica::new, |replica| {
        follow(replica, true, data)
    });
}

pub fn check_redis(data: &[u8]) {
    with_kept(&REPLICA, Replica::new, |replica| {
        follow(replica, false, data)
    });
}

/// Whatever a master sends, the replica stays consistent, and has its old data set or the
/// master's, not parts of both.
fn follow(replica: &mut Replica, is_kedis: bool, data: &[u8]) {
    replica.instance.must(&[b"SET", OLD, b"value"]);
    let port = replica.master.local_addr().expect("an address").port();
    let port = port.to_string();
    let instance = &mut replica.instance;
    instance.must(&[b"REPLICAOF", b"127.0.0.1", port.as_bytes()]);
    speak(replica.accept(), is_kedis, data);
    let instance = &mut replica.instance;
    instance.must(&[b"REPLICAOF", b"NO", b"ONE"]);
    instance.check();
    let old = instance.must(&[b"GET", OLD]);
    let goes_on =
        matches!(items(data).first(), Some(Item::Line(line)) if line.starts_with(b"+CONTINUE"));
    if !goes_on && old != Value::Null {
        assert_eq!(old.as_bytes(), Some(&b"value"[..]));
        assert_eq!(instance.keys(), 1, "a part of what the master sent");
    }
    instance.clear();
}

/// Replies to the replica until it disconnects.
fn speak(mut socket: TcpStream, is_kedis: bool, data: &[u8]) {
    let limits = Limits {
        max_bulk_len: 1 << 20,
        authenticated: true,
    };
    let (mut parser, mut heard) = (Parser::new(), Vec::new());
    let mut is_said = false;
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) if is_said => {}
            Ok(n) => heard.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            // Interrupted by libFuzzer's timer.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => panic!("the replica neither speaks nor hangs up: {error}"),
        }
        while !is_said && let Ok(Progress::Complete { consumed }) = parser.advance(&heard, &limits)
        {
            let words: Vec<Vec<u8>> = parser.args_of(&heard).map(<[u8]>::to_vec).collect();
            parser.reset();
            heard.drain(..consumed);
            let word = |n: usize| words.get(n).map(Vec::as_slice).unwrap_or_default();
            let answer: &[u8] = match (word(0), word(1)) {
                (b"PING", _) => b"+PONG\r\n",
                (b"REPLCONF", b"run-id") if !is_kedis => b"-ERR Unrecognized REPLCONF option\r\n",
                (b"REPLCONF", _) => b"+OK\r\n",
                (b"SELECT", _) => b"-ERR DB index is out of range\r\n",
                _ => {
                    is_said = true;
                    data
                }
            };
            // The replica may have disconnected already.
            if socket.write_all(answer).is_err() || is_said {
                let _ = socket.shutdown(Shutdown::Write);
                break;
            }
        }
    }
}
