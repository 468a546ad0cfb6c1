//! The event loop: sends requests when they are due, and counts the replies.

use crate::command::Command;
use crate::figures::Figures;
use crate::replies::{Reply, Scanner};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Of one read.
const READ_BYTES: usize = 1 << 18;
/// A connection with this many unsent bytes gets no further requests; they stay due.
const UNSENT_BYTES: usize = 1 << 16;
/// In the open loop, requests are sent, and replies seen, up to this much late: the timeouts of
/// epoll are whole milliseconds.
const TICK: Duration = Duration::from_micros(100);
const POLL_MS: u64 = 100;

/// When requests are sent.
pub enum Pace {
    /// Together, after all replies to the ones before.
    Closed { pipeline: u32 },
    /// At fixed times, over all connections.
    Open { interval_ns: f64 },
}

/// What to do, and until when.
pub struct Plan {
    pub address: (String, u16),
    pub clients: u32,
    pub pace: Pace,
    /// No request is sent or due from then on.
    pub until_ns: Option<u64>,
    pub requests: Option<u64>,
    /// How long to wait for replies: after `until_ns`, or else after the last reply.
    pub grace_ns: u64,
    /// Whether a null is an error.
    pub all_exist: bool,
}

/// A connection.
struct Connection {
    socket: TcpStream,
    scanner: Scanner,
    /// Requests to be sent.
    out: Vec<u8>,
    /// Bytes of `out` that have been sent.
    sent: usize,
    /// Of each request without a reply: the time from which its latency counts.
    asked: VecDeque<u64>,
    /// The number of its next request among all, in the open loop.
    next: u64,
}

/// Runs a plan and returns what was measured.
pub fn run(plan: &Plan, command: Command) -> io::Result<Figures> {
    let mut poll = Poll::new()?;
    let connections = connect(plan, &poll)?;
    let load = Load {
        plan,
        command,
        begun: 0,
        figures: Figures::new(plan.until_ns),
        last_reply: 0,
        start: Instant::now(),
        buffer: vec![0; READ_BYTES],
    };
    load.run(&mut poll, connections)
}

fn connect(plan: &Plan, poll: &Poll) -> io::Result<Vec<Connection>> {
    let (host, port) = &plan.address;
    let failed = |error| io::Error::other(format!("{host}:{port}: {error}"));
    let mut connections = Vec::new();
    for number in 0..plan.clients as usize {
        let socket = std::net::TcpStream::connect((host.as_str(), *port)).map_err(failed)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(&mut socket, Token(number), interest)?;
        connections.push(Connection {
            socket,
            scanner: Scanner::default(),
            out: Vec::new(),
            sent: 0,
            asked: VecDeque::new(),
            next: number as u64,
        });
    }
    Ok(connections)
}

/// A run.
struct Load<'a> {
    plan: &'a Plan,
    command: Command,
    /// Requests begun, over all connections.
    begun: u64,
    figures: Figures,
    last_reply: u64,
    start: Instant,
    buffer: Vec<u8>,
}

impl Load<'_> {
    fn run(mut self, poll: &mut Poll, mut connections: Vec<Connection>) -> io::Result<Figures> {
        // A sleep ends when it should, not up to 50 µs later.
        rustix::thread::set_current_timer_slack(Some(1.try_into().map_err(io::Error::other)?))?;
        let mut events = Events::with_capacity(1024);
        self.start = Instant::now();
        for connection in &mut connections {
            self.send(connection, 0)?;
        }
        loop {
            self.wait(poll, &mut events, &connections)?;
            for event in &events {
                let connection = &mut connections[event.token().0];
                if event.is_readable() || event.is_read_closed() {
                    self.receive(connection, event.is_read_closed())?;
                }
                // After a receipt, and when the socket takes more.
                let now = self.now();
                self.send(connection, now)?;
            }
            let now = self.now();
            if matches!(self.plan.pace, Pace::Open { .. }) {
                for connection in &mut connections {
                    self.send(connection, now)?;
                }
            }
            if self.is_over(now, &connections) {
                break;
            }
        }
        let now = self.now();
        for connection in &mut connections {
            self.give_up(connection, now);
        }
        self.figures.end(now);
        Ok(self.figures)
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Waits for events, or until a request is due.
    fn wait(
        &self,
        poll: &mut Poll,
        events: &mut Events,
        connections: &[Connection],
    ) -> io::Result<()> {
        let mut timeout = Duration::from_millis(POLL_MS);
        if matches!(self.plan.pace, Pace::Open { .. }) {
            let unblocked = connections.iter().filter(|c| c.out.is_empty());
            let due = unblocked
                .filter_map(|connection| self.due(connection))
                .min();
            let left =
                Duration::from_nanos(due.map_or(u64::MAX, |due| due.saturating_sub(self.now())));
            timeout = timeout.min(left);
            if timeout < Duration::from_millis(1) {
                std::thread::sleep(timeout.min(TICK));
                timeout = Duration::ZERO;
            } else {
                // Rounded down, as epoll would round it up.
                timeout = Duration::from_millis(timeout.as_millis() as u64);
            }
        }
        match poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    /// When the next request of a connection is due in the open loop; `None` after the last.
    fn due(&self, connection: &Connection) -> Option<u64> {
        let Pace::Open { interval_ns } = self.plan.pace else {
            return None;
        };
        let due = (connection.next as f64 * interval_ns) as u64;
        let is_last = self.plan.requests.is_some_and(|all| connection.next >= all)
            || self.plan.until_ns.is_some_and(|until| due >= until);
        (!is_last).then_some(due)
    }

    /// Sends the requests that a connection may send at `now`.
    fn send(&mut self, connection: &mut Connection, now: u64) -> io::Result<()> {
        match self.plan.pace {
            Pace::Closed { pipeline } if connection.asked.is_empty() && !self.is_at_end(now) => {
                let left = self.plan.requests.map_or(u64::MAX, |all| all - self.begun);
                for _ in 0..left.min(pipeline.into()) {
                    self.begin(connection, now);
                }
            }
            Pace::Closed { .. } => {}
            Pace::Open { .. } => {
                while connection.out.len() < UNSENT_BYTES
                    && let Some(due) = self.due(connection).filter(|due| *due <= now)
                {
                    self.begin(connection, due);
                    connection.next += u64::from(self.plan.clients);
                }
            }
        }
        connection.flush()
    }

    /// Appends a request whose latency counts from `since`.
    fn begin(&mut self, connection: &mut Connection, since: u64) {
        self.command.append(&mut connection.out);
        connection.asked.push_back(since);
        self.begun += 1;
    }

    /// Reads what has come; `closed` if the end of the stream is among it.
    fn receive(&mut self, connection: &mut Connection, closed: bool) -> io::Result<()> {
        loop {
            let size = match connection.socket.read(&mut self.buffer) {
                Ok(0) => return Err(io::Error::other("the server closed a connection")),
                Ok(size) => size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let now = self.now();
            let Connection { scanner, asked, .. } = connection;
            let (figures, plan, elements) = (&mut self.figures, self.plan, self.command.elements);
            let mut unexpected = false;
            let scanned = scanner.feed(&self.buffer[..size], |reply| match asked.pop_front() {
                Some(since) => {
                    figures.note(now, now - since, wrong(reply, plan.all_exist, elements))
                }
                None => unexpected = true,
            });
            scanned.map_err(io::Error::other)?;
            if unexpected {
                return Err(io::Error::other("a reply without a request"));
            }
            self.last_reply = now;
            // A short read has emptied the socket; more bytes cause another event.
            if size < READ_BYTES && !closed {
                return Ok(());
            }
        }
    }

    /// Whether no further request becomes due.
    fn is_at_end(&self, now: u64) -> bool {
        self.plan.until_ns.is_some_and(|until| now >= until)
            || self.plan.requests.is_some_and(|all| self.begun >= all)
    }

    /// Whether nothing more is to be sent or awaited, or no reply has come for too long.
    fn is_over(&self, now: u64, connections: &[Connection]) -> bool {
        let is_done = |c: &Connection| c.asked.is_empty() && self.due(c).is_none();
        if self.is_at_end(now) && connections.iter().all(is_done) {
            return true;
        }
        let waits = connections
            .iter()
            .any(|connection| !connection.asked.is_empty());
        waits && now >= self.plan.until_ns.unwrap_or(self.last_reply) + self.plan.grace_ns
    }

    /// Counts the requests of a connection that have no reply or were due and not even sent.
    fn give_up(&mut self, connection: &mut Connection, now: u64) {
        for since in connection.asked.drain(..) {
            self.figures.note_unanswered(now - since);
        }
        while let Some(due) = self.due(connection).filter(|due| *due <= now) {
            self.figures.note_unanswered(now - due);
            connection.next += u64::from(self.plan.clients);
        }
    }
}

impl Connection {
    /// Sends what the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(size) => self.sent += size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }
}

/// What is wrong with a reply.
fn wrong(reply: Reply, all_exist: bool, elements: Option<u64>) -> Option<String> {
    reply.error.or_else(|| {
        if all_exist && reply.nulls > 0 {
            Some("a key does not exist".into())
        } else if elements.is_some() && reply.elements != elements {
            Some("an array of another length".into())
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Keys, Order};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    /// An encoded request of [`measured`], and its reply.
    const REQUEST: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    const REPLY: &[u8] = b"+PONG\r\n";

    /// Runs a plan against a server with one connection, on which it does `serve`.
    fn measured(
        pace: Pace,
        (seconds, requests): (Option<u64>, Option<u64>),
        serve: impl FnOnce(TcpStream) + Send + 'static,
    ) -> io::Result<Figures> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plan = Plan {
            address: ("127.0.0.1".into(), listener.local_addr().unwrap().port()),
            clients: 1,
            pace,
            until_ns: seconds.map(|seconds| seconds * 1_000_000_000),
            requests,
            grace_ns: 100_000_000,
            all_exist: false,
        };
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        let keys = Keys::new(0, 1, Order::Uniform, 1.0);
        let figures = run(&plan, Command::new(&["PING".into()], "", 1, 0, keys));
        server.join().unwrap();
        figures
    }

    /// Reads this many requests.
    fn take(socket: &mut TcpStream, requests: usize) {
        let mut bytes = vec![0; requests * REQUEST.len()];
        socket.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, REQUEST.repeat(requests));
    }

    /// Waits until the other side closes the connection.
    fn wait_closed(mut socket: TcpStream) {
        io::copy(&mut socket, &mut io::sink()).unwrap();
    }

    #[test]
    fn the_closed_loop_waits_for_all_replies() {
        let figures = measured(
            Pace::Closed { pipeline: 5 },
            (None, Some(12)),
            |mut socket| {
                for requests in [5, 5, 2] {
                    take(&mut socket, requests);
                    socket.set_nonblocking(true).unwrap();
                    let more = socket.read(&mut [0]);
                    assert!(more.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
                    socket.set_nonblocking(false).unwrap();
                    socket.write_all(&REPLY.repeat(requests)).unwrap();
                }
                wait_closed(socket);
            },
        );
        let figures = figures.unwrap();
        assert_eq!((figures.all.count(), figures.unanswered), (12, 0));
    }

    /// The server answers only when all requests have come: in a closed loop it would wait for
    /// ever. The k-th of 100 requests, one each millisecond, then takes 99 - k ms at least.
    #[test]
    fn the_open_loop_charges_a_stall_to_all_requests() {
        let pace = Pace::Open { interval_ns: 1e6 };
        let figures = measured(pace, (None, Some(100)), |mut socket| {
            take(&mut socket, 100);
            socket.write_all(&REPLY.repeat(100)).unwrap();
            wait_closed(socket);
        });
        let figures = figures.unwrap();
        assert_eq!((figures.all.count(), figures.unanswered), (100, 0));
        assert!(figures.all.percentile(1.0) >= 99_000_000);
        assert!(figures.all.percentile(0.5) >= 49_000_000);
        assert!(figures.all.percentile(0.1) >= 9_000_000);
    }

    #[test]
    fn requests_without_a_reply_are_counted_with_their_age() {
        let pace = Pace::Open { interval_ns: 1e8 };
        let figures = measured(pace, (Some(1), None), |mut socket| {
            take(&mut socket, 2);
            socket.write_all(&REPLY.repeat(2)).unwrap();
            wait_closed(socket);
        });
        let figures = figures.unwrap();
        assert_eq!((figures.all.count(), figures.unanswered), (10, 8));
        // The third was due after 200 ms, and the grace ends after 1,100.
        assert!(figures.all.percentile(1.0) >= 900_000_000);
        assert_eq!(figures.rate(), 2.0);
    }

    #[test]
    fn errors_are_counted_and_a_broken_connection_ends_the_run() {
        let pace = || Pace::Closed { pipeline: 2 };
        let figures = measured(pace(), (None, Some(2)), |mut socket| {
            take(&mut socket, 2);
            socket.write_all(b"-ERR one\r\n-ERR two\r\n").unwrap();
            wait_closed(socket);
        });
        let figures = figures.unwrap();
        assert_eq!(
            (figures.errors, figures.first_error.as_deref()),
            (2, Some("ERR one"))
        );
        let replies: [&[u8]; 3] = [b"+OK\r\n+OK\r\n+OK\r\n", b"OK\r\n", b"+OK\r\n"];
        for bytes in replies {
            let failed = measured(pace(), (None, Some(2)), |mut socket| {
                take(&mut socket, 2);
                socket.write_all(bytes).unwrap();
            });
            assert!(failed.is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
