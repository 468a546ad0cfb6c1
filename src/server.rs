//! Start and stop of a server.
//!
//! Start: database, IO threads, background threads, listening sockets; the
//! main thread then accepts until it is told to stop. Stop: writes are held back
//! until replicas have all that was written, for `shutdown-timeout` seconds at
//! most; the sockets close, the IO threads commit and send what they have, the
//! background threads end, the database is flushed, so that the next start has
//! nothing to replay.

use crate::base::clock;
use crate::commands::{load_libraries, names, registry};
use crate::jobs::{self, Jobs, LoadError};
use crate::net::{IoThread, ListenError, Listeners};
use crate::rdb::FieldTimes;
use crate::replication;
use crate::state::Server;
use crate::state::config::{
    AppendFsync, Compression as ConfigCompression, Config, Given, memory_budget,
};
use crate::state::descriptors::{self, Shares};
use crate::state::mailbox::{Mailbox, Message};
use crate::state::server::Shutdown;
use crate::storage::options::{Compression, StorageConfig};
use crate::storage::{self, Engine, StorageError};
use crossbeam_channel::{Receiver, Sender, bounded};
use mio::{Events, Poll, Token, Waker};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// An RDB file.
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
    let engine = Engine::open(wanted).map_err(cannot_open)?;
    let mut listeners = Listeners::bind(&config)?;
    match &given.load_rdb {
        Some(path) => drop(jobs::load_rdb(&engine, path)?),
        None => jobs::refuse_half_loaded(&engine)?,
    }
    engine.set_fsync_each(config.appendfsync == AppendFsync::Always);
    // Whatever else may have a copy of this data, or of more than this: what is written
    // from here on is this server's own history. Rows of a Kedis master are not.
    engine.begin_history_on_write();
    if config.replicaof.is_some() {
        // Nobody runs yet, so no commit is under way.
        engine.begin_following();
    }
    let io_threads = config.io_thread_count();
    let port = u64::from(config.port);
    let run_id = run_id()?;
    let commands = registry().len();
    let server = Server::new(engine, config, given.file.clone(), run_id, commands);
    let server = Arc::new(server);
    server.port.store(port, Ordering::Relaxed);
    let reserved = &server.reserved_descriptors;
    reserved.store(shares.reserved, Ordering::Relaxed);
    load_libraries(&server).map_err(|error| {
        io::Error::other(format!(
            "the libraries of functions cannot be loaded: {error}"
        ))
    })?;
    let mut poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
    let signals = watch_signals(&waker)?;
    let moves = take_moves(&server, waker.clone());
    let threads = start_io_threads(&server, io_threads, waker)?;
    let jobs = Jobs::start(&server)?;
    let links = replication::Threads::start(&server)?;
    listeners.register(poll.registry())?;
    ready(&server);
    log::info!(
        "Ready to accept connections on {} after {} ms, {} keys, {io_threads} IO threads",
        listeners.addresses().join(", "),
        started.elapsed().as_millis(),
        keys(&server),
    );
    let leave = accept_loop(&mut poll, &mut listeners, &server, &signals, &moves)?;
    log::info!("stopping");
    listeners.close(poll.registry());
    stop(&server, threads, jobs, links, &leave)
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
    // Whoever wrote that counts on it: the server would be open to everybody.
    let reason = "there are no ACL users: remove `user` and `aclfile`, or set `requirepass`";
    Err(ServerError::Config {
        parameter,
        word: None,
        reason: reason.to_owned(),
    })
}

fn accept_loop(
    poll: &mut Poll,
    listeners: &mut Listeners,
    server: &Server,
    signals: &Signals,
    moves: &Receiver<Move>,
) -> io::Result<Leave> {
    let mut events = Events::with_capacity(64);
    let mut again: Vec<Token> = Vec::new();
    let mut last_cron = Instant::now();
    let mut leave = Leave::default();
    loop {
        let timeout = match again.is_empty() {
            true if leave.deadline.is_some() => LOOK_EVERY,
            true => CRON.saturating_sub(last_cron.elapsed()),
            false => Duration::ZERO,
        };
        match poll.poll(&mut events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if leave.is_time(server, signals) {
            return Ok(leave);
        }
        let ready: Vec<Token> = events
            .iter()
            .map(|e| e.token())
            .chain(again.drain(..))
            .collect();
        for (config, answer) in moves.try_iter() {
            let done = listeners.rebind(&config, poll.registry());
            // Who does not wait for the answer any more has given up.
            let _ = answer.send(done.map_err(io::Error::other));
        }
        for token in ready {
            if token != WAKE && listeners.accept(token, server) {
                again.push(token);
            }
        }
        if last_cron.elapsed() >= CRON {
            last_cron = Instant::now();
            cron(server);
            // A connection that was left in the queue for lack of descriptors
            // causes no second event.
            again = listeners.tokens();
        }
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
            && let Some(how) = signals.wanted(&server.config.load())
        {
            self.signalled = true;
            server.request_shutdown(how, None);
        }
        let Some(how) = server.shutdown_request() else {
            if self.deadline.take().is_some() {
                log::info!("the server does not stop: that was taken back");
                signals.forget();
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
    jobs: Jobs,
    links: replication::Threads,
    leave: &Leave,
) -> Result<(), ServerError> {
    server.lanes.stop_all();
    for (mailbox, _) in &threads {
        mailbox.send(Message::Stop);
    }
    for (_, handle) in threads {
        if handle.join().is_err() {
            log::error!("an IO thread had panicked");
        }
    }
    server.engine.stop_syncs();
    jobs.stop();
    leave.wait_for_replicas(server);
    links.stop();
    server.engine.sync_wal().map_err(ServerError::LastFlush)?;
    if leave.how.save
        && let Err(error) = server.engine.flush_memtables()
    {
        log::warn!("the next start replays the write-ahead log, which has everything: {error}");
    }
    log::info!("all is on disk, bye");
    Ok(())
}

/// Flags that SIGINT and SIGTERM set.
struct Signals {
    /// Either of them.
    any: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
}

impl Signals {
    /// How the server is to stop, if a signal says that it shall.
    fn wanted(&self, config: &Config) -> Option<Shutdown> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let words = match self.interrupt.load(Ordering::Acquire) {
            true => &config.shutdown_on_sigint,
            false => &config.shutdown_on_sigterm,
        };
        Some(Shutdown {
            save: !words.0.contains(&"nosave"),
            now: words.0.contains(&"now"),
        })
    }

    fn forget(&self) {
        self.interrupt.store(false, Ordering::Release);
        self.any.store(false, Ordering::Release);
    }
}

/// Flags that SIGTERM and SIGINT set, waking the main thread. A second signal
/// ends the process at once.
fn watch_signals(waker: &Arc<Waker>) -> io::Result<Signals> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    let interrupt = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, interrupt.clone())?;
    let (sender, receiver) = std::os::unix::net::UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    let waker = waker.clone();
    Builder::new().name("signals".into()).spawn(move || {
        use std::io::Read;
        let mut byte = [0];
        while let Ok(1) = (&receiver).read(&mut byte) {
            if let Err(error) = waker.wake() {
                log::error!("cannot wake the main thread: {error}");
            }
        }
    })?;
    Ok(Signals {
        any: flag,
        interrupt,
    })
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
