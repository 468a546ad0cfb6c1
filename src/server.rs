//! Start and stop of a server.
//!
//! Start: database, listening sockets, IO threads, background threads; the
//! main thread then accepts until it is told to stop. While `--load-rdb` loads, clients
//! are accepted and told so; the background threads start when it is done. A database
//! that is opened after a crash replays a bounded log, in seconds: until then there is
//! nothing to ask, and nobody is accepted. The service manager hears of either. Stop: writes are held back
//! until replicas have all that was written, for `shutdown-timeout` seconds at
//! most; the sockets close, the IO threads commit and send what they have, the
//! background threads end, the database is flushed, so that the next start has
//! nothing to replay.

mod signals;

use crate::commands::table::names;
use crate::commands::{load_libraries, registry};
use crate::jobs::{self, Jobs, LoadError};
use crate::net::{IoThread, ListenError, Listeners};
use crate::rdb::FieldTimes;
use crate::replication;
use crate::state::Server;
use crate::state::Shutdown;
use crate::state::config::{
    AppendFsync, Compression as ConfigCompression, Config, Given, Memtable, memory_budget,
};
use crate::state::descriptors::{self, Shares};
use crate::state::mailbox::{Mailbox, Message};
use crate::storage::engine::options::{Compression, StorageConfig};
use crate::storage::{self, Engine, MemtableRep, StorageError};
use crate::sys::clock;
use crate::sys::supervisor::Supervisor;
use crossbeam_channel::{Receiver, Sender, bounded};
use mio::{Events, Poll, Token, Waker};
use signals::Signals;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The token of the main thread's Waker; listening sockets have lower ones.
const WAKE: Token = Token(usize::MAX);
/// How often the main thread's cron runs.
const CRON: Duration = Duration::from_secs(1);
/// How often a stop that waits for replicas looks how far they are.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Why a server does not start, or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The database.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It has stopped, but the disk may lack what was written last.
    #[error("its last flush failed: {0}")]
    LastFlush(StorageError),
    /// What is loaded at the start.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The network.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The configuration asks for what cannot be.
    #[error("{reason}")]
    Config {
        /// The parameter.
        parameter: &'static str,
        /// The word that its line begins with, where it may stand on several.
        word: Option<String>,
        /// Why.
        reason: String,
    },
    /// The system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ServerError {
    /// The parameter that is to blame, and the first word of its line if it may stand
    /// on several.
    pub fn parameter(&self) -> Option<(&'static str, Option<&str>)> {
        match self {
            ServerError::Config {
                parameter, word, ..
            } => Some((parameter, word.as_deref())),
            ServerError::Listen(error) => Some((error.parameter(), None)),
            _ => None,
        }
    }
}

/// Runs a server until SIGTERM, SIGINT or SHUTDOWN, or does what else is asked for in
/// `given`. `ready` is told the shared state once all is up.
///
/// # Errors
/// The configuration asks for what cannot be, the database cannot be opened, an address
/// cannot be bound, a thread cannot be started, the last flush fails.
pub fn run(
    mut config: Config,
    given: &Given,
    ready: impl FnOnce(&Arc<Server>),
) -> Result<(), ServerError> {
    let started = Instant::now();
    check(&config)?;
    // The database's lock comes before the sockets: who does not get it must not touch the
    // sockets of the server that has it.
    let shares = descriptors::claim(&mut config).map_err(io::Error::other)?;
    let wanted = StorageConfig {
        accept_data_loss: given.accept_data_loss,
        ..storage_config(&config, &shares)
    };
    if given.repair {
        return repair(&wanted);
    }
    let supervisor = Supervisor::find(config.supervised);
    let opening = || Engine::open(wanted).map_err(cannot_open);
    let engine = supervisor.patiently("Opening the database", opening)?;
    let mut listeners = Listeners::bind(&config)?;
    if given.load_rdb.is_none() {
        jobs::refuse_half_loaded(&engine)?;
        jobs::name_files_of_redis(&engine, &config);
        begin_history(&engine, &config);
    }
    let io_threads = config.io_thread_count();
    let server = share(engine, config, given, &shares)?;
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
    let signals = Signals::watch(&waker)?;
    let moves = take_moves(&server, waker.clone());
    let threads = start_io_threads(&server, io_threads, waker.clone())?;
    listeners.register(poll.registry())?;
    let mut main = Main {
        server: server.clone(),
        poll,
        listeners,
        signals,
        moves,
        supervisor,
        watchdog_period: supervisor.watchdog_period(),
        events: Events::with_capacity(64),
        again: Vec::new(),
        last_cron: Instant::now(),
        last_alive: Instant::now(),
        leave: Leave::default(),
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

/// What the threads of the server share.
fn share(
    engine: Arc<Engine>,
    config: Config,
    given: &Given,
    shares: &Shares,
) -> Result<Arc<Server>, ServerError> {
    let port = u64::from(config.port);
    let commands = registry().len();
    let server = Server::new(engine, config, given.file.clone(), run_id()?, commands);
    server.port.store(port, Ordering::Relaxed);
    let reserved = &server.reserved_descriptors;
    reserved.store(shares.reserved, Ordering::Relaxed);
    if given.load_rdb.is_some() {
        server.loading.begin();
    }
    Ok(Arc::new(server))
}

/// What is written from here on is this server's own history, or its master's.
fn begin_history(engine: &Engine, config: &Config) {
    engine.set_fsync_each(config.appendfsync == AppendFsync::Always);
    // Whatever else may have a copy of this data, or of more than this: what is written
    // from here on is this server's own history. Rows of a Kedis master are not.
    engine.begin_history_on_write();
    if config.replicaof.is_some() {
        // Nobody writes yet, so no commit is under way.
        engine.begin_following();
    }
}

/// Repairs the database, and says what is lost.
fn repair(config: &StorageConfig) -> Result<(), ServerError> {
    let lost = storage::repair(config).map_err(cannot_open)?;
    for what in &lost {
        log::warn!("lost: {what}");
    }
    match lost.len() {
        0 => log::info!("the database is whole"),
        losses => log::warn!("the database is repaired, {losses} losses are named above"),
    }
    Ok(())
}

/// Says what the configuration has to do with it.
fn cannot_open(error: StorageError) -> ServerError {
    let parameter = match error {
        StorageError::TooFewDbs { .. } => "databases",
        _ => "dir",
    };
    ServerError::Config {
        parameter,
        word: None,
        reason: error.to_string(),
    }
}

/// Refuses what each directive alone does not show to be wrong.
fn check(config: &Config) -> Result<(), ServerError> {
    names::check_renames(config).map_err(|(name, reason)| ServerError::Config {
        parameter: "rename-command",
        word: Some(name),
        reason,
    })?;
    let parameter = match config.users.0.is_empty() {
        false => "user",
        true if !config.aclfile.as_os_str().is_empty() => "aclfile",
        true => return Ok(()),
    };
    // The operator counts on it: without it the server would be open to everybody.
    let reason = "there are no ACL users: remove `user` and `aclfile`, or set `requirepass`";
    Err(ServerError::Config {
        parameter,
        word: None,
        reason: reason.to_owned(),
    })
}

/// The main thread.
struct Main {
    server: Arc<Server>,
    poll: Poll,
    listeners: Listeners,
    signals: Signals,
    moves: Receiver<Move>,
    supervisor: Supervisor,
    /// How often it wants to hear that the server lives, if it does.
    watchdog_period: Option<Duration>,
    events: Events,
    /// Listening sockets where more clients may wait.
    again: Vec<Token>,
    last_cron: Instant,
    /// When the service manager last heard that the server lives.
    last_alive: Instant,
    leave: Leave,
}

impl Main {
    /// Accepts what waits, and does what else is asked for; says whether it is time to
    /// stop.
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
        for (config, answer) in self.moves.try_iter() {
            let done = self.listeners.rebind(&config, self.poll.registry());
            // The thread that asked does not wait any more.
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
            // A connection that was left in the queue for lack of descriptors
            // causes no second event.
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

    /// How long to wait for something to do.
    fn timeout(&self) -> Duration {
        if !self.again.is_empty() {
            return Duration::ZERO;
        }
        if self.leave.deadline.is_some() {
            return LOOK_EVERY;
        }
        let cron = CRON.saturating_sub(self.last_cron.elapsed());
        let alive = self.watchdog_period;
        let alive = alive.map(|period| period.saturating_sub(self.last_alive.elapsed()));
        alive.map_or(cron, |alive| alive.min(cron))
    }

    /// Loads a file while clients are told so; `false`: the server is to stop before.
    fn load(&mut self, path: &Path, waker: &Arc<Waker>) -> Result<bool, ServerError> {
        let (sender, done) = bounded(1);
        let (server, path, waker) = (self.server.clone(), path.to_owned(), waker.clone());
        let thread = Builder::new()
            .name("load".into())
            .stack_size(jobs::SCRIPT_STACK);
        let loader = thread.spawn(move || {
            // The main thread waits for it.
            let _ = sender.send(jobs::load(&server, &path));
            if let Err(error) = waker.wake() {
                log::error!("cannot wake the main thread: {error}");
            }
        })?;
        let mut told = None::<Instant>;
        let loaded = loop {
            if let Ok(loaded) = done.try_recv() {
                break loaded;
            }
            if self.turn()? {
                self.server.loading.cancel();
            }
            if told.is_none_or(|told| told.elapsed() >= CRON) {
                told = Some(Instant::now());
                let percent = self.server.loading.progress().map_or(0.0, |at| at.percent);
                self.supervisor.wait(&format!("Loading: {percent:.1} %"));
            }
        };
        if loader.join().is_err() {
            log::error!("the thread that loads had panicked");
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

    /// What a SIGHUP asks for.
    fn reload(&self) {
        // Until it is ready it cannot be ready again.
        let tells = !self.server.loading.is_on();
        if tells {
            self.supervisor.reloading();
        }
        self.server.reload();
        log::info!("SIGHUP: the log file, if there is one, is opened anew");
        if tells && self.supervisor == Supervisor::Systemd {
            self.supervisor.ready(self.ready_status());
        }
    }

    fn ready_status(&self) -> &'static str {
        match self.server.replication.is_replica() {
            false => "Ready to accept connections",
            true => "Ready to accept connections, as a replica",
        }
    }

    /// Stops the server; without jobs it has loaded only.
    fn stop(
        mut self,
        threads: Vec<(Mailbox, JoinHandle<()>)>,
        jobs: Option<(Jobs, replication::Threads)>,
    ) -> Result<(), ServerError> {
        self.supervisor.stopping();
        self.listeners.close(self.poll.registry());
        let (server, leave) = (&self.server, &self.leave);
        let stopping = || stop(server, threads, jobs, leave);
        self.supervisor.patiently("Stopping", stopping)
    }
}

/// When and how the server stops.
#[derive(Debug)]
struct Leave {
    how: Shutdown,
    /// Until when replicas are waited for, once it is to stop.
    deadline: Option<Instant>,
    /// A signal was heeded.
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
    /// Whether it is to stop, and has nobody to wait for.
    fn is_time(&mut self, server: &Server, signals: &Signals) -> bool {
        if !self.signalled
            && let Some(how) = signals.stop_wanted(&server.config.load())
        {
            self.signalled = true;
            server.request_shutdown(how, None);
        }
        let Some(how) = server.shutdown_request() else {
            if self.deadline.take().is_some() {
                log::info!("the server does not stop: that was taken back");
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

    /// Waits for replicas to have what was committed last; nobody writes any more.
    fn wait_for_replicas(&self, server: &Server) {
        let until = self.deadline.filter(|_| !self.how.now);
        let mut left = lagging(server);
        while left > 0 && until.is_some_and(|until| Instant::now() < until) {
            std::thread::sleep(LOOK_EVERY);
            left = lagging(server);
        }
        if left > 0 {
            log::warn!("{left} replicas lack a part of what was written");
        }
    }
}

/// How many replicas of this master lack something.
fn lagging(server: &Server) -> usize {
    match server.replication.is_replica() {
        true => 0,
        false => {
            let next = server.engine.binlog.range().next_position;
            server.replication.lagging(next)
        }
    }
}

/// A request to listen elsewhere, and where its outcome goes.
type Move = (Config, Sender<io::Result<()>>);

/// How long a request to listen elsewhere waits for the main thread.
const MOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Lets commands ask for the main thread to listen elsewhere.
fn take_moves(server: &Server, waker: Arc<Waker>) -> Receiver<Move> {
    let (sender, moves) = bounded::<Move>(1);
    server.on_listen(Box::new(move |config| {
        let (answer, answered) = bounded(1);
        sender
            .send_timeout((config.clone(), answer), MOVE_TIMEOUT)
            .map_err(io::Error::other)?;
        waker.wake()?;
        answered
            .recv_timeout(MOVE_TIMEOUT)
            .map_err(io::Error::other)?
    }));
    moves
}

/// Once a second; nothing of it waits for the disk, as nobody can connect meanwhile.
fn cron(server: &Server) {
    server.sample();
    let stats = &server.stats;
    if stats.has_untold_field_times() {
        let so_far = FieldTimes {
            hashes: stats.field_times_hashes.get(),
            fields: stats.field_times_fields.get(),
        };
        log::warn!("so far, in RESTORE and from masters: {so_far}");
    }
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
    if let Some((jobs, links)) = jobs {
        jobs.stop();
        leave.wait_for_replicas(server);
        links.stop();
    }
    server.engine.sync_wal().map_err(ServerError::LastFlush)?;
    if leave.how.save
        && let Err(error) = server.engine.flush_memtables()
    {
        log::warn!("the next start replays the write-ahead log, which has everything: {error}");
    }
    log::info!("all is on disk, bye");
    Ok(())
}

fn storage_config(config: &Config, shares: &Shares) -> StorageConfig {
    StorageConfig {
        databases: config.databases.min(u32::from(u16::MAX)) as u16,
        memory_budget: memory_budget(config),
        hot_rows_percent: config.hot_rows_percent,
        block_cache_percent: config.rocksdb_block_cache_percent,
        max_total_wal_size: config.rocksdb_max_total_wal_size_bytes,
        bytes_per_sync: config.rocksdb_bytes_per_sync,
        statistics: config.rocksdb_statistics,
        memtable: memtable(config.rocksdb_memtable),
        write_buffer_size: config.rocksdb_write_buffer_size_bytes,
        max_write_buffer_number: config.rocksdb_max_write_buffer_number,
        target_file_size: config.rocksdb_target_file_size_bytes,
        min_blob_size: config.rocksdb_min_blob_size_bytes,
        block_size: config.rocksdb_block_size_bytes,
        bloom_bits: f64::from(config.rocksdb_bloom_bits),
        max_background_jobs: config.background_jobs(),
        background_nice: config.rocksdb_background_nice,
        rate_limit: config.rocksdb_rate_limit_bytes_per_s,
        max_open_files: shares.table_files,
        max_new_families: shares.new_dbs,
        compression: compression(config.rocksdb_compression),
        bottommost_compression: compression(config.rocksdb_bottommost_compression),
        binlog_enabled: config.binlog_enabled,
        string_inline_max: config.string_inline_max_bytes as usize,
        packed_max_bytes: config.packed_max_bytes as usize,
        packed_max_entries: config.packed_max_entries as usize,
        disk_reserve: config.disk_reserve_bytes,
        ..StorageConfig::new(config.data_dir())
    }
}

fn compression(configured: ConfigCompression) -> Compression {
    match configured {
        ConfigCompression::None => Compression::None,
        ConfigCompression::Lz4 => Compression::Lz4,
        ConfigCompression::Zstd => Compression::Zstd,
    }
}

fn memtable(configured: Memtable) -> MemtableRep {
    match configured {
        Memtable::BTree => MemtableRep::BTree,
        Memtable::SkipList => MemtableRep::SkipList,
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

/// When the server was started, for INFO.
pub fn uptime_s(server: &Server) -> u64 {
    clock::unix_ms().saturating_sub(server.started_ms) / 1000
}
