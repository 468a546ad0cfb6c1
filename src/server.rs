//! Start and stop of a server.
//!
//! Start: database, listening sockets, IO threads, background threads; then the main thread
//! accepts connections until the stop. While `--load-rdb` loads, clients are accepted and get
//! `LOADING`; the background threads but that of memory start after the load. Opening a
//! database after a crash replays a bounded log, which takes seconds; no client is accepted
//! meanwhile. The service manager is notified of both.
//!
//! Stop: writes are held back until the replicas have everything, for at most
//! `shutdown-timeout` seconds. Then the sockets close, the IO threads commit and send what they
//! have, the background threads end, and the database is flushed, so that the next start has
//! nothing to replay.

mod signals;

use crate::commands::table::names;
use crate::commands::{acl, load_libraries, registry};
use crate::jobs::{self, EarlyMemory, Jobs, LoadError};
use crate::metrics::{Metrics, MetricsError};
use crate::net::{IoThread, ListenError, Listeners};
use crate::replication;
use crate::state::Server;
use crate::state::Shutdown;
use crate::state::acl::Rules;
use crate::state::audit::AuditFile;
use crate::state::config::{AppendFsync, Config, Given, lack_of_memory, memory_budget};
use crate::state::descriptors::{self, Shares};
use crate::state::mailbox::{Mailbox, Message};
use crate::state::tls::Tls;
use crate::storage::engine::options::{MachineShare, StorageConfig};
use crate::storage::{self, Engine, StorageError};
use crate::sys::supervisor::Supervisor;
use crate::sys::{advice, clock, limits};
use crossbeam_channel::{Receiver, Sender, bounded};
use mio::{Events, Poll, Token, Waker};
use signals::Signals;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The token of the main thread's Waker; listening sockets have lower ones.
const WAKE: Token = Token(usize::MAX);
/// Threads that RocksDB starts besides those for flushes and compactions, at most.
const THREADS_OF_ROCKSDB: usize = 8;
/// How often the main thread's cron runs.
const CRON: Duration = Duration::from_secs(1);
/// How often a stop that waits for replicas checks their offsets.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Why a server does not start, or does not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The database cannot be opened, or fails.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The server has stopped, but the last writes may not be on disk.
    #[error("its last flush failed: {0}")]
    LastFlush(StorageError),
    /// The data cannot be loaded at the start.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The server cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The configuration is not possible.
    #[error("{reason}")]
    Config {
        /// The parameter.
        parameter: &'static str,
        /// The first word of its line, for a parameter that may have several lines.
        word: Option<String>,
        /// The reason.
        reason: String,
    },
    /// The operating system reports an error.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ServerError {
    /// The parameter that causes the error, and the first word of its line if it may have
    /// several.
    pub fn parameter(&self) -> Option<(&'static str, Option<&str>)> {
        match self {
            ServerError::Config {
                parameter, word, ..
            } => Some((parameter, word.as_deref())),
            ServerError::Listen(error) => Some((error.parameter(), None)),
            ServerError::Metrics(error) => Some((error.parameter(), None)),
            _ => None,
        }
    }

    /// What the administrator can do about it, beyond what its text says.
    pub fn advice(&self) -> String {
        match self {
            ServerError::Listen(error) => error.advice().to_owned(),
            ServerError::Metrics(error) => error.advice().to_owned(),
            error => advice::about(&error.to_string()),
        }
    }
}

/// Runs a server until SIGTERM, SIGINT or SHUTDOWN, or repairs the database if `given` says so.
/// `ready` is called with the shared state once the server accepts commands.
///
/// # Errors
/// The configuration is not possible, the database cannot be opened, an address cannot be
/// bound, a thread cannot be started, the last flush fails.
pub fn run(
    mut config: Config,
    given: &Given,
    ready: impl FnOnce(&Arc<Server>),
) -> Result<(), ServerError> {
    let started = Instant::now();
    check_config(&config)?;
    check_machine(&config)?;
    // The database's lock comes before the sockets: a second server on the same data must not
    // touch the sockets of the first.
    let shares = descriptors::claim(&mut config).map_err(io::Error::other)?;
    let wanted = StorageConfig {
        accept_data_loss: given.accept_data_loss,
        ..config.storage(machine_share(&config, &shares))
    };
    if given.repair {
        return repair(&wanted);
    }
    let supervisor = Supervisor::find(config.supervised);
    let engine = open(wanted, &config, supervisor)?;
    let mut listeners = Listeners::bind(&config)?;
    if given.load_rdb.is_none() {
        jobs::refuse_half_loaded(&engine)?;
        jobs::name_what_is_not_loaded(&engine, &config);
        begin_history(&engine, &config);
    }
    let io_threads = config.io_thread_count();
    let server = share(engine, config, given, &shares)?;
    apply_tls(&server.tls, &server.config.load())?;
    begin_audit(&server)?;
    let metrics = Metrics::start(&server)?;
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
    let signals = Signals::watch(&waker)?;
    let rebinds = accept_rebinds(&server, waker.clone());
    let threads = start_io_threads(&server, io_threads, waker.clone())?;
    listeners.register(poll.registry())?;
    let mut main = Main {
        server: server.clone(),
        poll,
        listeners,
        signals,
        rebinds,
        supervisor,
        watchdog_period: supervisor.watchdog_period(),
        events: Events::with_capacity(64),
        again: Vec::new(),
        last_cron: Instant::now(),
        last_alive: Instant::now(),
        leave: Leave::default(),
        metrics,
    };
    if let Some(path) = &given.load_rdb
        && !main.load(path, &waker)?
    {
        log::warn!("stopping before the load has ended: start with --load-rdb again");
        return main.stop(threads, None);
    }
    load_libraries(&server).map_err(|error| {
        io::Error::other(format!(
            "the libraries of functions cannot be loaded: {error}"
        ))
    })?;
    let jobs = Jobs::start(&server)?;
    let links = replication::Threads::start(&server)?;
    server.loading.end();
    ready(&server);
    log::info!(
        "Ready to accept connections on {} after {} ms, {} keys, {io_threads} IO threads",
        main.listeners.addresses().join(", "),
        started.elapsed().as_millis(),
        keys(&server),
    );
    supervisor.ready(main.ready_status());
    while !main.turn()? {}
    log::info!("stopping");
    main.stop(threads, Some((jobs, links)))
}

/// Opens the database.
fn open(
    wanted: StorageConfig,
    config: &Config,
    supervisor: Supervisor,
) -> Result<Arc<Engine>, ServerError> {
    if !wanted.dir.exists() {
        // A start that must fail leaves no new database.
        Listeners::check(config)?;
    }
    let dir = wanted.dir.clone();
    let opening = || Engine::open(wanted).map_err(|error| cannot_open(error, &dir));
    supervisor.patiently("Opening the database", opening)
}

/// Makes the state that all threads share.
fn share(
    engine: Arc<Engine>,
    config: Config,
    given: &Given,
    shares: &Shares,
) -> Result<Arc<Server>, ServerError> {
    let port = u64::from(config.first_port());
    let commands = registry().len();
    let users = users(&config)?;
    let server = Server::new(engine, config, given.file.clone(), run_id()?, commands);
    server.users.replace(users);
    server.port.store(port, Ordering::Relaxed);
    let reserved = &server.reserved_descriptors;
    reserved.store(shares.reserved, Ordering::Relaxed);
    if given.load_rdb.is_some() {
        server.loading.begin();
    }
    Ok(Arc::new(server))
}

/// Opens the audit log.
fn begin_audit(server: &Server) -> Result<(), ServerError> {
    let config = server.config.load();
    let Some(path) = config.path(&config.audit_log) else {
        return Ok(());
    };
    let shown = path.display().to_string();
    let opened = AuditFile::open(path).and_then(|file| server.audit.write_to(Some(file)));
    opened.map_err(|error| ServerError::Config {
        parameter: "audit-log",
        word: None,
        reason: format!("cannot write to the audit log {shown}: {error}"),
    })
}

/// Reads the certificates and keys.
fn apply_tls(tls: &Tls, config: &Config) -> Result<(), ServerError> {
    tls.apply(config).map_err(|error| {
        let parameter = match config.tls_port {
            0 => "tls-replication",
            _ => "tls-port",
        };
        ServerError::Config {
            parameter,
            word: None,
            reason: error.to_string(),
        }
    })
}

/// Decides which history new writes belong to.
fn begin_history(engine: &Engine, config: &Config) {
    engine.set_fsync_each(config.appendfsync == AppendFsync::Always);
    // Other servers may have copies of this data, or of more: new writes begin a history of
    // this server's own. Rows of a Kedis master do not.
    engine.begin_history_on_write();
    if config.replicaof.is_some() {
        // There are no clients yet, so no commit runs.
        engine.begin_following();
    }
}

/// Repairs the database and logs what is lost.
fn repair(config: &StorageConfig) -> Result<(), ServerError> {
    let lost = storage::repair(config).map_err(|error| cannot_open(error, &config.dir))?;
    for what in &lost {
        log::warn!("lost: {what}");
    }
    match lost.len() {
        0 => log::info!("the database is whole"),
        losses => log::warn!("the database is repaired, {losses} losses are named above"),
    }
    Ok(())
}

/// Names the parameter for an error of the storage, and the directory.
fn cannot_open(error: StorageError, dir: &Path) -> ServerError {
    let parameter = match error {
        StorageError::TooFewDbs { .. } => "databases",
        StorageError::Layout(_) => "cluster-enabled",
        _ => "dir",
    };
    ServerError::Config {
        parameter,
        word: None,
        reason: match error {
            // Its text names no file.
            StorageError::Io(error) => format!("storage: {}: {error}", dir.display()),
            error => error.to_string(),
        },
    }
}

/// Refuses a machine, container or user with so little memory, address space or threads that
/// allocations of RocksDB would end the process without a word.
fn check_machine(config: &Config) -> Result<(), ServerError> {
    if let Some(reason) = lack_of_memory(config) {
        return Err(ServerError::Config {
            parameter: "maxmemory",
            word: None,
            reason,
        });
    }
    let threads = config.background_jobs() as usize + THREADS_OF_ROCKSDB;
    Ok(limits::try_threads(threads)?)
}

/// Checks what a start would refuse of the configuration, with the files of users and certificates.
/// The data directory is not looked at, and no address is bound.
///
/// # Errors
/// The configuration is not possible.
pub fn check_config(config: &Config) -> Result<(), ServerError> {
    check(config)?;
    apply_tls(&Tls::default(), config)
}

/// Refuses combinations of parameters that are valid one by one.
fn check(config: &Config) -> Result<(), ServerError> {
    names::check_renames(config).map_err(|(name, reason)| ServerError::Config {
        parameter: "rename-command",
        word: Some(name),
        reason,
    })?;
    users(config).map(|_| ())
}

/// The users that the configuration describes.
fn users(config: &Config) -> Result<BTreeMap<Vec<u8>, Rules>, ServerError> {
    acl::file::read_users(config).map_err(|bad| ServerError::Config {
        parameter: bad.parameter,
        word: bad.user,
        reason: bad.reason,
    })
}

/// The main thread.
struct Main {
    server: Arc<Server>,
    poll: Poll,
    listeners: Listeners,
    signals: Signals,
    rebinds: Receiver<Rebind>,
    supervisor: Supervisor,
    /// How often the service manager expects a sign of life, if it does.
    watchdog_period: Option<Duration>,
    events: Events,
    /// Listening sockets with more clients in their queues.
    again: Vec<Token>,
    last_cron: Instant,
    /// When the last sign of life was sent to the service manager.
    last_alive: Instant,
    leave: Leave,
    metrics: Option<Metrics>,
}

impl Main {
    /// Waits for events, accepts connections and runs what is due. Returns whether it is time
    /// to stop.
    fn turn(&mut self) -> io::Result<bool> {
        let timeout = self.timeout();
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if self.leave.is_time(&self.server, &self.signals) {
            return Ok(true);
        }
        if self.signals.take_hang_up() {
            self.reload();
        }
        for (config, answer) in self.rebinds.try_iter() {
            let done = self.listeners.rebind(&config, self.poll.registry());
            // The requesting thread may have stopped waiting.
            let _ = answer.send(done.map_err(io::Error::other));
        }
        let ready = self.events.iter().map(|event| event.token());
        let ready: Vec<Token> = ready.chain(self.again.drain(..)).collect();
        for token in ready {
            if token != WAKE && self.listeners.accept(token, &self.server) {
                self.again.push(token);
            }
        }
        if self.last_cron.elapsed() >= CRON {
            self.last_cron = Instant::now();
            cron(&self.server);
            // A connection that was left in the queue for lack of descriptors raises no second
            // event.
            self.again = self.listeners.tokens();
        }
        if let Some(period) = self.watchdog_period
            && self.last_alive.elapsed() >= period
        {
            self.last_alive = Instant::now();
            self.supervisor.alive();
        }
        Ok(false)
    }

    /// The timeout of the next poll.
    fn timeout(&self) -> Duration {
        if !self.again.is_empty() {
            return Duration::ZERO;
        }
        if self.leave.deadline.is_some() {
            return CHECK_EVERY;
        }
        let cron = CRON.saturating_sub(self.last_cron.elapsed());
        let alive = self.watchdog_period;
        let alive = alive.map(|period| period.saturating_sub(self.last_alive.elapsed()));
        alive.map_or(cron, |alive| alive.min(cron))
    }

    /// Loads a file while clients get `LOADING`. `false`: the server is to stop before the end.
    fn load(&mut self, path: &Path, waker: &Arc<Waker>) -> Result<bool, ServerError> {
        let _memory = EarlyMemory::start(&self.server)?;
        let (sender, done) = bounded(1);
        let (server, path, waker) = (self.server.clone(), path.to_owned(), waker.clone());
        let thread = Builder::new()
            .name("load".into())
            .stack_size(jobs::SCRIPT_STACK);
        let loader = thread.spawn(move || {
            // The main thread waits for this message.
            let _ = sender.send(jobs::load(&server, &path));
            if let Err(error) = waker.wake() {
                log::error!("cannot wake the main thread: {error}");
            }
        })?;
        let mut reported = None::<Instant>;
        let loaded = loop {
            if let Ok(loaded) = done.try_recv() {
                break loaded;
            }
            if self.turn()? {
                self.server.loading.cancel();
            }
            if reported.is_none_or(|reported| reported.elapsed() >= CRON) {
                reported = Some(Instant::now());
                let percent = self.server.loading.progress().map_or(0.0, |at| at.percent);
                self.supervisor.wait(&format!("Loading: {percent:.1} %"));
            }
        };
        if loader.join().is_err() {
            log::error!("the load thread panicked");
        }
        match loaded {
            Ok(()) => {}
            Err(LoadError::Cancelled) => return Ok(false),
            Err(error) => {
                self.listeners.close(self.poll.registry());
                return Err(error.into());
            }
        }
        begin_history(&self.server.engine, &self.server.config.load());
        Ok(true)
    }

    /// Handles SIGHUP.
    fn reload(&self) {
        // Systemd expects `READY` after the load, not before.
        let notifies = !self.server.loading.is_on();
        if notifies {
            self.supervisor.reloading();
        }
        self.server.reload();
        log::info!("SIGHUP: the log file and the audit log, if any, are reopened");
        if notifies && self.supervisor == Supervisor::Systemd {
            self.supervisor.ready(self.ready_status());
        }
    }

    fn ready_status(&self) -> &'static str {
        match self.server.replication.is_replica() {
            false => "Ready to accept connections",
            true => "Ready to accept connections, as a replica",
        }
    }

    /// Stops the server. `jobs` is `None` while it loads.
    fn stop(
        mut self,
        threads: Vec<(Mailbox, JoinHandle<()>)>,
        jobs: Option<(Jobs, replication::Threads)>,
    ) -> Result<(), ServerError> {
        self.supervisor.stopping();
        self.listeners.close(self.poll.registry());
        let (server, leave) = (&self.server, &self.leave);
        let stopping = || stop(server, threads, jobs, leave);
        let stopped = self.supervisor.patiently("Stopping", stopping);
        // Until now health checks were answered.
        drop(self.metrics);
        stopped
    }
}

/// The state of a stop.
#[derive(Debug)]
struct Leave {
    how: Shutdown,
    /// Until when the stop waits for replicas.
    deadline: Option<Instant>,
    /// Whether the stop was requested by a signal that was handled already.
    signalled: bool,
}

impl Default for Leave {
    fn default() -> Leave {
        Leave {
            how: Shutdown {
                save: true,
                now: false,
            },
            deadline: None,
            signalled: false,
        }
    }
}

impl Leave {
    /// Whether the stop is requested and replicas need not be waited for.
    fn is_time(&mut self, server: &Server, signals: &Signals) -> bool {
        if !self.signalled
            && let Some(how) = signals.stop_wanted(&server.config.load())
        {
            self.signalled = true;
            server.request_shutdown(how, None);
        }
        let Some(how) = server.shutdown_request() else {
            if self.deadline.take().is_some() {
                log::info!("the stop is cancelled");
                signals.forget_stop();
                self.signalled = false;
                server.pause_for_shutdown(false);
            }
            server.refuse_shutdown();
            return false;
        };
        self.how = how;
        let deadline = *self.deadline.get_or_insert_with(|| {
            log::info!("to be stopped");
            server.pause_for_shutdown(true);
            Instant::now() + Duration::from_secs(server.config.load().shutdown_timeout_s)
        });
        how.now || Instant::now() >= deadline || lagging(server) == 0
    }

    /// Waits for replicas to receive the last commits; no client can write any more.
    fn wait_for_replicas(&self, server: &Server) {
        let until = self.deadline.filter(|_| !self.how.now);
        let mut left = lagging(server);
        while left > 0 && until.is_some_and(|until| Instant::now() < until) {
            std::thread::sleep(CHECK_EVERY);
            left = lagging(server);
        }
        if left > 0 {
            log::warn!("{left} replicas lack the last writes");
        }
    }
}

/// How many replicas of this master are behind.
fn lagging(server: &Server) -> usize {
    match server.replication.is_replica() {
        true => 0,
        false => {
            let next = server.engine.binlog.range().next_position;
            server.replication.lagging(next)
        }
    }
}

/// Other addresses to listen on, and the channel for the result.
type Rebind = (Config, Sender<io::Result<()>>);

/// How long a CONFIG SET of addresses waits for the main thread.
const REBIND_TIMEOUT: Duration = Duration::from_secs(5);

/// Lets CONFIG SET ask the main thread to listen on other addresses.
fn accept_rebinds(server: &Server, waker: Arc<Waker>) -> Receiver<Rebind> {
    let (sender, rebinds) = bounded::<Rebind>(1);
    server.on_listen(Box::new(move |config| {
        let (answer, answered) = bounded(1);
        sender
            .send_timeout((config.clone(), answer), REBIND_TIMEOUT)
            .map_err(io::Error::other)?;
        waker.wake()?;
        answered
            .recv_timeout(REBIND_TIMEOUT)
            .map_err(io::Error::other)?
    }));
    rebinds
}

/// Runs once a second. Must not wait for the disk, as no client can connect meanwhile.
fn cron(server: &Server) {
    server.sample();
    server.evict_clients(&server.config.load());
}

fn start_io_threads(
    server: &Arc<Server>,
    count: usize,
    main_waker: Arc<Waker>,
) -> io::Result<Vec<(Mailbox, JoinHandle<()>)>> {
    let mut prepared = Vec::new();
    for _ in 0..count.max(1) {
        prepared.push(IoThread::prepare()?);
    }
    let mailboxes = prepared
        .iter()
        .map(|(_, mailbox, _)| mailbox.clone())
        .collect();
    server.set_threads(mailboxes, main_waker);
    let mut threads = Vec::new();
    for (i, (poll, mailbox, receiver)) in prepared.into_iter().enumerate() {
        let server = server.clone();
        let builder = Builder::new()
            .name(format!("io-{i}"))
            .stack_size(jobs::SCRIPT_STACK);
        let handle = builder.spawn(move || {
            if let Err(error) = IoThread::with(poll, receiver, server, i).run() {
                log::error!("IO thread {i}: {error}");
                std::process::abort();
            }
        })?;
        threads.push((mailbox, handle));
    }
    Ok(threads)
}

fn stop(
    server: &Server,
    threads: Vec<(Mailbox, JoinHandle<()>)>,
    jobs: Option<(Jobs, replication::Threads)>,
    leave: &Leave,
) -> Result<(), ServerError> {
    server.workers.stop_all();
    for (mailbox, _) in &threads {
        mailbox.send(Message::Stop);
    }
    for (_, handle) in threads {
        if handle.join().is_err() {
            log::error!("an IO thread had panicked");
        }
    }
    server.engine.stop_syncs();
    server.engine.stop_readers();
    if let Some((jobs, links)) = jobs {
        server.engine.end_recovery();
        jobs.stop();
        leave.wait_for_replicas(server);
        links.stop();
    }
    server.audit.stop();
    server
        .engine
        .sync_at_end()
        .map_err(ServerError::LastFlush)?;
    if leave.how.save
        && let Err(error) = server.engine.flush_memtables()
    {
        log::warn!("the next start replays the write-ahead log, which is complete: {error}");
    }
    log::info!("all data is on disk, bye");
    Ok(())
}

/// What the database may take of the machine.
fn machine_share(config: &Config, shares: &Shares) -> MachineShare {
    MachineShare {
        memory_budget_bytes: memory_budget(config),
        max_background_jobs: config.background_jobs(),
        max_open_files: shares.table_files,
        max_open_segments: shares.segments,
        max_new_families: shares.new_dbs,
    }
}

fn run_id() -> io::Result<String> {
    let mut bytes = [0u8; 20];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

fn keys(server: &Server) -> u64 {
    let keyspaces = server.engine.all_keyspaces();
    keyspaces.iter().map(|(_, ks)| ks.counts().keys).sum()
}

/// Seconds since the start, for INFO.
pub fn uptime_s(server: &Server) -> u64 {
    clock::unix_ms().since(server.started_ms) / 1000
}
