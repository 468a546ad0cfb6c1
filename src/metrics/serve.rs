//! The thread `metrics`: it listens, reads requests and answers them.
//!
//! No client can block the thread or make it take more memory:
//!
//! - There are at most [`SCRAPERS`] connections, with bounded buffers. When all are in use, a new
//!   one replaces the one that has been in its state for longest.
//! - A request and a response have [`REQUEST_TIME`] each. After the last response the thread reads
//!   for [`END_TIME`] what the client still sends, so that the client gets the response.
//! - A page is made again only after a time in which the thread may have used a tenth of a
//!   processor for pages.

use super::health;
use super::http::{Asked, HEAD_MAX, Parsed, Request, Response, Status, parse};
use super::samples::Format;
use super::scrape::Scrape;
use super::table;
use super::threads::Threads;
use crate::base::recurring::Recurring;
use crate::state::Server;
use crate::state::config::Config;
use crate::state::descriptors::SCRAPERS;
use crate::sys::listen::{advice, bind_tcp, bind_unix, may_be_missing, remove_socket_file};
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The token of the Waker; listeners have those from 0 on, connections those from [`FIRST`] on.
const WAKE: Token = Token(usize::MAX);
const FIRST: usize = 1 << 16;
/// How long a client may take for a request once it has begun, and for reading a response.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How long a connection may be idle between two requests: scrapes come once a minute at least.
const IDLE_TIME: Duration = Duration::from_secs(150);
/// How long a connection that is over waits for its client to close it, too.
const END_TIME: Duration = Duration::from_secs(2);
/// How often times are checked while there are connections.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Requests of one connection before others have their turn.
const AT_ONCE: u32 = 8;
/// New connections before others have their turn.
const ACCEPT_AT_ONCE: u32 = 8;
/// Length of the queues of connections to be accepted.
const BACKLOG: u32 = 16;
/// The page stays for so many times the time that it took.
const PAGE_KEPT: u32 = 10;

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// An address cannot be bound.
    #[error("cannot listen on {address} for metrics: {error}")]
    Bind {
        /// The parameter that names the address.
        parameter: &'static str,
        /// As configured.
        address: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The operating system reports an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl MetricsError {
    /// The parameter that causes the error.
    pub fn parameter(&self) -> &'static str {
        match self {
            MetricsError::Bind { parameter, .. } => parameter,
            MetricsError::Io(_) => "metrics-port",
        }
    }

    /// What the administrator can do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            MetricsError::Bind {
                parameter, error, ..
            } => advice(error.kind(), parameter.ends_with("unixsocket")),
            MetricsError::Io(_) => "",
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Listener::Tcp(listener) => listener,
            Listener::Unix(listener, _) => listener,
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => {
                let (tcp, _) = listener.accept()?;
                if let Err(error) = tcp.set_nodelay(true) {
                    log::debug!("metrics: {error}");
                }
                Ok(Stream::Tcp(tcp))
            }
            Listener::Unix(listener, _) => listener.accept().map(|(unix, _)| Stream::Unix(unix)),
        }
    }

    /// Its address, for the log.
    fn address(&self) -> String {
        match self {
            Listener::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|error| error.to_string(), |address| address.to_string()),
            Listener::Unix(_, path) => path.display().to_string(),
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }

    /// Tells the client that nothing more comes.
    fn end(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Binds the configured addresses.
fn bind(config: &Config) -> Result<Vec<Listener>, MetricsError> {
    let mut listeners = Vec::new();
    let port = config.metrics_port;
    let hosts = config.metrics_bind.iter().filter(|_| port != 0);
    for text in hosts {
        let host = text.trim_start_matches('-');
        match bind_tcp(host, port, Some(BACKLOG)) {
            Ok(listener) => listeners.push(Listener::Tcp(listener)),
            Err(error) if may_be_missing(&error, text.starts_with('-')) => {
                log::info!("not listening on {host} for metrics: {error}");
            }
            Err(error) => {
                let kinds = [io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied];
                return Err(MetricsError::Bind {
                    parameter: match kinds.contains(&error.kind()) {
                        true => "metrics-port",
                        false => "metrics-bind",
                    },
                    address: format!("{host}:{port}"),
                    error,
                });
            }
        }
    }
    if let Some(path) = config.path(&config.metrics_unixsocket) {
        let bound = bind_unix(&path, config.metrics_unixsocketperm);
        let listener = bound.map_err(|error| MetricsError::Bind {
            parameter: "metrics-unixsocket",
            address: path.display().to_string(),
            error,
        })?;
        listeners.push(Listener::Unix(listener, path));
    }
    Ok(listeners)
}

/// The running thread, which ends when this is dropped.
pub struct Metrics {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Starts the thread, if the configuration wants one.
    ///
    /// # Errors
    /// An address cannot be bound, or the thread cannot be started.
    pub fn start(server: &Arc<Server>) -> Result<Option<Metrics>, MetricsError> {
        let config = server.config.load();
        if !config.has_metrics() {
            return Ok(None);
        }
        let mut listeners = bind(&config)?;
        let poll = Poll::new()?;
        for (i, listener) in listeners.iter_mut().enumerate() {
            let source = listener.source();
            poll.registry()
                .register(source, Token(i), Interest::READABLE)?;
        }
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let addresses: Vec<String> = listeners.iter().map(Listener::address).collect();
        log::info!("metrics are served on {}", addresses.join(", "));
        let stop = Arc::<AtomicBool>::default();
        let serving = Serving {
            stop: stop.clone(),
            poll,
            listeners,
            connections: BTreeMap::new(),
            next: FIRST,
            again: Vec::new(),
            pages: Pages::new(server.clone()),
            accept_fails: Recurring::default(),
            refused: false,
        };
        let thread = Builder::new().name("metrics".to_owned());
        let thread = thread.spawn(move || serving.run())?;
        Ok(Some(Metrics {
            stop,
            waker,
            thread: Some(thread),
        }))
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            return log::error!("cannot wake the metrics thread: {error}");
        }
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            log::error!("the metrics thread had panicked");
        }
    }
}

/// The pages that were made last.
struct Pages {
    server: Arc<Server>,
    threads: Threads,
    made: Option<(Format, Instant, Duration, String)>,
}

impl Pages {
    fn new(server: Arc<Server>) -> Pages {
        Pages {
            server,
            threads: Threads::default(),
            made: None,
        }
    }

    /// The page of metrics.
    fn metrics(&mut self, format: Format) -> &str {
        let is_new = |(of, began, took, _): &(Format, Instant, Duration, String)| {
            *of == format && began.elapsed() < *took * PAGE_KEPT
        };
        if !self.made.as_ref().is_some_and(is_new) {
            let began = Instant::now();
            let scrape = Scrape::of(&self.server, &mut self.threads);
            let page = table::page(&scrape, format);
            self.made = Some((format, began, began.elapsed(), page));
        }
        self.made.as_ref().map_or("", |(.., page)| page)
    }

    /// Appends the response to a request.
    fn respond(&mut self, request: Request, out: &mut Vec<u8>) {
        let of_health = |reasons: Vec<String>| match reasons.is_empty() {
            true => (Status::Ok, "ok\n".to_owned()),
            false => (Status::Unavailable, reasons.join("\n") + "\n"),
        };
        let (status, words) = match request.asked {
            Asked::Metrics(format) => {
                let response = Response {
                    status: Status::Ok,
                    content_type: format.content_type(),
                    body: self.metrics(format),
                };
                return response.write(request.head, request.stays, out);
            }
            Asked::Alive => of_health(health::not_alive(&self.server)),
            Asked::Ready => of_health(health::not_ready(&self.server)),
            Asked::Nothing => {
                let words = "there are /metrics, /healthz and /readyz\n";
                (Status::NotFound, words.to_owned())
            }
        };
        Response::words(status, &words).write(request.head, request.stays, out);
    }
}

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Idle,
    Receiving,
    Sending,
    /// It is over; what still comes is not read as a request.
    Ending,
}

impl Doing {
    /// How long it may take.
    fn limit(self) -> Duration {
        match self {
            Doing::Idle => IDLE_TIME,
            Doing::Receiving | Doing::Sending => REQUEST_TIME,
            Doing::Ending => END_TIME,
        }
    }
}

struct Connection {
    stream: Stream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    sent: usize,
    /// Whether it is closed once everything is sent.
    ends: bool,
    doing: Doing,
    since: Instant,
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It waits for an event.
    Waits,
    /// It has more to do.
    More,
    /// It is over.
    Over,
}

impl Connection {
    fn new(stream: Stream) -> Connection {
        Connection {
            stream,
            received: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            ends: false,
            // A client that says nothing gets no more time than one that is slow.
            doing: Doing::Receiving,
            since: Instant::now(),
        }
    }

    fn is_late(&self) -> bool {
        self.since.elapsed() > self.doing.limit()
    }

    fn now(&mut self, doing: Doing) {
        if self.doing != doing {
            (self.doing, self.since) = (doing, Instant::now());
        }
    }

    /// Sends, answers and receives until it would have to wait, or others should have their turn.
    fn turn(&mut self, pages: &mut Pages) -> io::Result<Turn> {
        let mut answered = 0;
        loop {
            if self.doing == Doing::Ending {
                return self.skip();
            }
            if !self.send()? {
                return Ok(Turn::Waits);
            }
            if self.ends {
                // A socket that is closed with unread bytes takes its last response back.
                self.stream.end()?;
                self.now(Doing::Ending);
                continue;
            }
            if answered == AT_ONCE {
                return Ok(Turn::More);
            }
            if !self.received.is_empty() && self.answer(pages) {
                answered += 1;
                continue;
            }
            match self.receive() {
                Ok(0) => return Ok(Turn::Over),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Waits),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what is not wanted any more.
    fn skip(&mut self) -> io::Result<Turn> {
        let mut some = [0; 2048];
        for _ in 0..AT_ONCE {
            match self.stream.read(&mut some) {
                Ok(0) => return Ok(Turn::Over),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Waits),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Turn::More)
    }

    /// Sends what is unsent. Returns whether that is done.
    fn send(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.unsent.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !self.unsent.is_empty() {
            // The buffer of a page is freed: most connections wait for a minute now.
            (self.unsent, self.sent) = (Vec::new(), 0);
            self.now(match self.received.is_empty() {
                true => Doing::Idle,
                false => Doing::Receiving,
            });
        }
        Ok(true)
    }

    /// Answers the first request that was received. Returns whether there was one.
    fn answer(&mut self, pages: &mut Pages) -> bool {
        match parse(&self.received) {
            Parsed::Partial => return false,
            Parsed::Request(request) => {
                self.received.drain(..request.len.min(self.received.len()));
                self.ends = !request.stays;
                pages.respond(request, &mut self.unsent);
            }
            Parsed::Refused(status) => {
                self.received.clear();
                self.ends = true;
                Response::words(status, "").write(false, false, &mut self.unsent);
            }
        }
        self.now(Doing::Sending);
        true
    }

    /// Receives some bytes. Returns how many; 0: the client has closed the connection.
    fn receive(&mut self) -> io::Result<usize> {
        let mut some = [0; 2048];
        // A longer head is refused, so there is room.
        let room = HEAD_MAX.saturating_sub(self.received.len()).min(some.len());
        let n = self.stream.read(&mut some[..room])?;
        self.received.extend_from_slice(&some[..n]);
        if self.doing == Doing::Idle {
            self.now(Doing::Receiving);
        }
        Ok(n)
    }
}

/// The thread.
struct Serving {
    stop: Arc<AtomicBool>,
    poll: Poll,
    listeners: Vec<Listener>,
    connections: BTreeMap<usize, Connection>,
    next: usize,
    /// Tokens with more to do than they were given time for.
    again: Vec<Token>,
    pages: Pages,
    accept_fails: Recurring,
    /// Whether connections could not be accepted.
    refused: bool,
}

impl Serving {
    fn run(mut self) {
        let mut events = Events::with_capacity(2 * SCRAPERS);
        while !self.stop.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, self.timeout()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    log::error!("metrics are not served any more: {error}");
                    break;
                }
            }
            let ready = events.iter().map(|event| event.token());
            let refused = match std::mem::take(&mut self.refused) {
                true => self.listeners.len(),
                false => 0,
            };
            let ready = ready.chain((0..refused).map(Token));
            let ready: Vec<Token> = ready.chain(self.again.drain(..)).collect();
            for token in ready.into_iter().filter(|token| *token != WAKE) {
                match token.0 < FIRST {
                    true => self.accept(token),
                    false => self.turn(token),
                }
            }
            let late = self.connections.iter().filter(|(_, c)| c.is_late());
            let late: Vec<usize> = late.map(|(number, _)| *number).collect();
            for number in late {
                self.close(number);
            }
        }
        for listener in &self.listeners {
            if let Listener::Unix(_, path) = listener {
                remove_socket_file(path);
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let checks = self.refused || !self.connections.is_empty();
        match self.again.is_empty() {
            false => Some(Duration::ZERO),
            true => checks.then_some(CHECK_EVERY),
        }
    }

    fn accept(&mut self, token: Token) {
        for _ in 0..ACCEPT_AT_ONCE {
            let Some(listener) = self.listeners.get(token.0) else {
                return;
            };
            match listener.accept() {
                Ok(stream) => {
                    self.accept_fails.over();
                    self.begin(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if self.accept_fails.is_news(&error) {
                        log::warn!("metrics: accept: {error}");
                    }
                    // Out of descriptors, for instance. There is no second event for a connection
                    // that waits.
                    self.refused = true;
                    return;
                }
            }
        }
        self.again.push(token);
    }

    fn begin(&mut self, mut stream: Stream) {
        if self.connections.len() >= SCRAPERS {
            let longest = self.connections.iter().min_by_key(|(_, c)| c.since);
            if let Some(number) = longest.map(|(number, _)| *number) {
                self.close(number);
            }
        }
        let number = self.next;
        self.next = (self.next + 1).clamp(FIRST, WAKE.0 - 1);
        let both = Interest::READABLE.add(Interest::WRITABLE);
        let registry = self.poll.registry();
        match registry.register(stream.source(), Token(number), both) {
            Ok(()) => {
                self.connections.insert(number, Connection::new(stream));
                self.turn(Token(number));
            }
            Err(error) => log::warn!("metrics: a connection cannot be served: {error}"),
        }
    }

    fn turn(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token.0) else {
            return;
        };
        match connection.turn(&mut self.pages) {
            Ok(Turn::Waits) => {}
            Ok(Turn::More) => self.again.push(token),
            Ok(Turn::Over) => self.close(token.0),
            Err(error) => {
                log::debug!("metrics: {error}");
                self.close(token.0);
            }
        }
    }

    fn close(&mut self, number: usize) {
        let Some(mut connection) = self.connections.remove(&number) else {
            return;
        };
        let source = connection.stream.source();
        if let Err(error) = self.poll.registry().deregister(source) {
            log::debug!("metrics: deregister: {error}");
        }
    }
}
