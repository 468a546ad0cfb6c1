//! The state that all threads of a server share ([`Server`]), and the state of one client.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | the configuration |
//! | [`acl`] | users and what they may do |
//! | [`audit`] | refusals and administrative commands in a file |
//! | [`session`] | one client, as commands see it |
//! | [`clients`] | all clients, as other threads see them |
//! | [`cluster`] | the nodes of the cluster, as clients see them |
//! | [`node`] | a node of a cluster |
//! | [`request`] | a request that is kept for later |
//! | [`waiters`] | clients that wait for a key |
//! | [`fieldsets`] | lists of fields that HIMPORT has named |
//! | [`watch`] | which clients watch which keys |
//! | [`mailbox`] | messages between threads |
//! | [`delivery`] | queues of messages to clients |
//! | [`tracking`] | which clients may have cached which keys |
//! | [`subscriptions`] | the subscriptions of one client |
//! | [`pubsub`] | all subscriptions, and published messages |
//! | [`ticks`] | what the ticks of IO threads were like |
//! | [`stats`] | counters, per command and overall |
//! | [`commandlog`] | commands that took long, or were long |
//! | [`slot_stats`] | what the commands on each slot take |
//! | [`hotkeys`] | which keys take most time and bytes |
//! | [`bigkeys`] | which keys and prefixes take most space |
//! | [`access`] | times and frequencies of accesses to keys |
//! | [`latency`] | slow events over time |
//! | [`rates`] | rates at which counters grow |
//! | [`memory`] | the process' memory |
//! | [`descriptors`] | division of the file descriptors |
//! | [`process`] | what the operating system reports about the process |
//! | [`replication`] | the master of this server, and its replicas |
//! | [`scripts`] | scripts and functions |
//! | [`loading`] | a load of data at the start |
//! | [`workers`] | slow requests, and the threads on which they run |
//! | [`chores`] | what takes long and what no client waits for |
//! | [`saves`] | state of SAVE and BGSAVE |
//! | [`migrations`] | MIGRATE: the queue, and the keys that are being moved |
//! | [`cursors`] | cursors of SCAN |
//! | [`client_memory`] | how much memory clients take |
//! | [`eviction`] | closing clients when all take too much memory |
//! | [`evicting`] | whether keys are evicted from the disk, and commands wait for that |
//!
//! State knows neither how connections are served nor how commands run: a command that acts on
//! a layer above leaves a request here.

pub mod access;
pub mod acl;
pub mod audit;
pub mod bigkeys;
mod budget;
pub mod chores;
mod client_id;
pub mod client_memory;
pub mod clients;
pub mod cluster;
pub mod commandlog;
pub mod config;
pub mod cursors;
pub mod delivery;
pub mod descriptors;
pub mod evicting;
pub mod eviction;
pub mod fieldsets;
pub mod hotkeys;
pub mod latency;
pub mod loading;
pub mod mailbox;
pub mod memory;
pub mod migrations;
pub mod node;
pub mod process;
pub mod pubsub;
pub mod rates;
pub mod replication;
pub mod request;
pub mod saves;
pub mod scripts;
pub mod session;
pub mod slot_stats;
pub mod socket;
pub mod stats;
pub mod subscriptions;
pub mod ticks;
pub mod tls;
pub mod tracking;
pub mod waiters;
pub mod watch;
pub mod workers;

pub use client_id::ClientId;
pub use clients::{ClientInfo, Clients};
pub use mailbox::{Mailbox, Message};
pub use session::Session;

use crate::base::time::UnixMs;
use crate::storage::Engine;
use crate::storage::engine::listeners::Change;
use crate::sys::clock;
use access::Accesses;
use acl::{AclLog, Rules, Users};
use audit::Audit;
use bigkeys::BigKeys;
use chores::Chores;
use client_memory::ClientMemory;
use clients::ClientFlags;
use commandlog::CommandLogs;
use config::{Config, SharedConfig};
use cursors::Cursors;
use delivery::Delivery;
use evicting::Evicting;
use hotkeys::HotKeys;
use latency::Latency;
use loading::Loading;
use memory::MemoryProbe;
use migrations::Migrations;
use parking_lot::{Condvar, Mutex, RwLock};
use pubsub::{Outbox, PubSub};
use rates::Rates;
use replication::Replication;
use saves::Saves;
use scripts::Scripts;
use slot_stats::SlotStats;
use stats::Stats;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use ticks::Ticks;
use tracking::Tracking;
use waiters::{Verdict, Waiters};
use watch::Watchers;
use workers::Workers;

/// Which commands a pause holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseMode {
    /// Those that write.
    Writes,
    /// All.
    All,
}

/// A CLIENT PAUSE.
#[derive(Debug, Clone, Copy)]
pub struct Pause {
    /// Until when, Unix ms.
    pub until_ms: UnixMs,
    /// What it holds back.
    pub mode: PauseMode,
}

/// All reasons to hold clients back.
#[derive(Debug, Clone, Copy, Default)]
struct Pauses {
    /// A CLIENT PAUSE in force.
    client: Option<Pause>,
    /// A failover waits until a replica has all writes.
    failover: bool,
    /// A shutdown waits for all replicas.
    shutdown: bool,
}

/// How the server is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// Flush memtables, so that the next start is instant.
    pub save: bool,
    /// Do not wait for replicas.
    pub now: bool,
}

/// A request to stop, and the clients that wait for it.
#[derive(Debug, Default)]
struct Stopping {
    how: Option<Shutdown>,
    askers: Vec<ClientId>,
}

/// The state that all threads of a server share.
pub struct Server {
    /// The data.
    pub engine: Arc<Engine>,
    /// The configuration.
    pub config: SharedConfig,
    /// The file that the configuration was read from, if any.
    pub config_file: Option<PathBuf>,
    /// Users.
    pub users: Users,
    /// What users were refused.
    pub acl_log: AclLog,
    /// What users were refused, and what they administered, in a file.
    pub audit: Audit,
    /// All clients.
    pub clients: Clients,
    /// Subscriptions and published messages.
    pub pubsub: PubSub,
    /// Which clients may have cached which keys.
    pub tracking: Tracking,
    /// Counters.
    pub stats: Stats,
    /// The ticks of the IO threads, by number.
    pub ticks: Box<[Ticks]>,
    /// Scripts and functions.
    pub scripts: Scripts,
    /// The threads for slow requests.
    pub workers: Workers,
    /// What takes long and what no client waits for.
    pub chores: Arc<Chores>,
    /// A load of data at the start.
    pub loading: Loading,
    /// Commands that took long, or were long.
    pub commandlog: CommandLogs,
    /// The collection of HOTKEYS.
    pub hotkeys: HotKeys,
    /// The scan of BIGKEYS.
    pub bigkeys: Arc<BigKeys>,
    /// What the commands on each slot have taken.
    pub slot_stats: SlotStats,
    /// Times and frequencies of accesses to keys.
    pub accesses: Accesses,
    /// Whether commands wait for keys to be evicted.
    pub evicting: Evicting,
    /// SCAN iterations.
    pub cursors: Cursors,
    /// 40 hexadecimal digits, new at every start.
    pub run_id: String,
    /// When the server started, Unix ms.
    pub started_ms: UnixMs,
    /// SAVE and BGSAVE.
    pub saves: Arc<Saves>,
    /// Whether BGREWRITEAOF runs: a full compaction.
    pub compacting: Arc<AtomicBool>,
    /// WATCH.
    pub watchers: Arc<Watchers>,
    /// Clients that wait for a key.
    pub waiters: Waiters,
    /// MIGRATE.
    pub migrations: Migrations,
    /// Slow events over time.
    pub latency: Latency,
    /// Memory of the process.
    pub memory: MemoryProbe,
    /// Rates at which counters grow.
    pub rates: Rates,
    /// The master of this server, and its replicas.
    pub replication: Replication,
    /// Whether the expire thread deletes expired keys (DEBUG SET-ACTIVE-EXPIRE).
    pub active_expire: AtomicBool,
    /// Whether scripts may run commands that are not allowed in scripts (DEBUG).
    pub allow_denied: AtomicBool,
    /// Whether RESTORE accepts payloads with a wrong checksum (DEBUG).
    pub skip_checksums: AtomicBool,
    /// The ports that the server listens on, for INFO.
    pub port: AtomicU64,
    /// File descriptors that are not for clients.
    pub reserved_descriptors: AtomicU64,
    /// The mailboxes of the IO threads.
    mailboxes: OnceLock<Vec<Mailbox>>,
    /// Wakes the main thread.
    main_waker: OnceLock<Arc<mio::Waker>>,
    pauses: RwLock<Pauses>,
    paused: AtomicBool,
    /// Until when all IO threads sleep, in monotonic µs (DEBUG SLEEP).
    stalled_until_us: AtomicU64,
    /// IO threads that have ended their last tick.
    ended_threads: (Mutex<usize>, Condvar),
    /// When clients were last evicted for their memory, in monotonic µs.
    pub(super) clients_chosen_us: AtomicU64,
    /// When the log has last told of a client that speaks HTTP; 0: never.
    pub told_of_http_us: AtomicU64,
    /// Memory of the clients when the size of the process was last checked, in bytes.
    pub(super) client_memory_seen: AtomicU64,
    /// Whether a thread enforces the memory budget of the process.
    pub keeps_to_budget: AtomicBool,
    /// Since when there is no memory for a long request, in monotonic µs; 0: there is.
    pub(super) no_memory_since_us: AtomicU64,
    /// When unused pages were last returned to the system, in monotonic µs.
    pub(super) gave_back_us: AtomicU64,
    /// Memory of clients.
    pub client_memory: ClientMemory,
    /// Memory of messages that are queued for replicas.
    pub replica_memory: ClientMemory,
    shutdown: Mutex<Stopping>,
    log_change: OnceLock<Box<LogChange>>,
    reload: OnceLock<Box<dyn Fn() + Send + Sync>>,
    listen: OnceLock<Box<Listen>>,
    /// Certificates and keys.
    pub tls: tls::Tls,
}

/// If keys are evicted, what is known of their use takes `1 / ACCESSES_OF_BUDGET` of the budget.
const ACCESSES_OF_BUDGET: u64 = 64;

/// Bytes of the table of accesses; 0 is the least that it takes.
fn access_bytes(engine: &Engine, config: &Config) -> u64 {
    match config.evicts() {
        true => engine.memory_budget() / ACCESSES_OF_BUDGET,
        false => 0,
    }
}

/// Applies the parameters of the log.
type LogChange = dyn Fn(&Config) + Send + Sync;
/// Changes the addresses to listen on to those of a configuration.
type Listen = dyn Fn(&Config) -> std::io::Result<()> + Send + Sync;

impl Server {
    /// A server over an open database; `commands` is the size of the registry.
    pub fn new(
        engine: Arc<Engine>,
        config: Config,
        config_file: Option<PathBuf>,
        run_id: String,
        commands: usize,
    ) -> Server {
        let now_ms = clock::unix_ms();
        let (access_bytes, writes) = (access_bytes(&engine, &config), engine.writes());
        let tracking = Tracking::new(engine.listeners.interest.clone());
        let chores = Arc::<Chores>::default();
        let watchers = Arc::new(Watchers::new(engine.listeners.interest.clone()));
        engine.listeners.add(watchers.clone());
        let replication = Replication::new(config.replicaof.clone());
        let interest = engine.listeners.interest.clone();
        let waiters = Waiters::new(interest, chores.clone(), config.io_thread_count());
        let stats = Stats::new(commands);
        stats.time_commands(config.latency_tracking);
        let threads = config.io_thread_count();
        let default_user = Rules::of_default_user(commands, &config.requirepass.0);
        Server {
            engine,
            users: Users::new(default_user),
            acl_log: AclLog::default(),
            audit: Audit::default(),
            config: SharedConfig::new(config),
            config_file,
            clients: Clients::default(),
            pubsub: PubSub::default(),
            tracking,
            stats,
            ticks: (0..threads).map(|_| Ticks::default()).collect(),
            scripts: Scripts::default(),
            workers: Workers::default(),
            chores,
            loading: Loading::default(),
            commandlog: CommandLogs::default(),
            hotkeys: HotKeys::default(),
            bigkeys: Arc::default(),
            slot_stats: SlotStats::default(),
            accesses: Accesses::new(now_ms, access_bytes),
            evicting: Evicting::default(),
            cursors: Cursors::default(),
            run_id,
            started_ms: now_ms,
            saves: Arc::new(Saves::new(now_ms, writes)),
            compacting: Arc::default(),
            watchers,
            waiters,
            migrations: Migrations::default(),
            latency: Latency::default(),
            memory: MemoryProbe::default(),
            rates: Rates::default(),
            replication,
            active_expire: AtomicBool::new(true),
            allow_denied: AtomicBool::new(false),
            skip_checksums: AtomicBool::new(false),
            port: AtomicU64::new(0),
            reserved_descriptors: AtomicU64::new(0),
            mailboxes: OnceLock::new(),
            main_waker: OnceLock::new(),
            pauses: RwLock::default(),
            paused: AtomicBool::new(false),
            stalled_until_us: AtomicU64::new(0),
            ended_threads: Default::default(),
            clients_chosen_us: AtomicU64::new(0),
            told_of_http_us: AtomicU64::new(0),
            client_memory_seen: AtomicU64::new(0),
            keeps_to_budget: AtomicBool::new(false),
            no_memory_since_us: AtomicU64::new(0),
            gave_back_us: AtomicU64::new(0),
            client_memory: ClientMemory::default(),
            replica_memory: ClientMemory::default(),
            shutdown: Mutex::default(),
            log_change: OnceLock::new(),
            reload: OnceLock::new(),
            listen: OnceLock::new(),
            tls: tls::Tls::default(),
        }
    }

    /// Registers the IO threads; once.
    pub fn set_threads(&self, mailboxes: Vec<Mailbox>, main_waker: Arc<mio::Waker>) {
        let _ = self.mailboxes.set(mailboxes);
        let _ = self.main_waker.set(main_waker);
    }

    /// The mailboxes of the IO threads.
    pub fn mailboxes(&self) -> &[Mailbox] {
        self.mailboxes.get().map_or(&[], Vec::as_slice)
    }

    /// Sends a message to the thread that owns a client. If the mailbox of that thread is full,
    /// the message is dropped, except for [`Message::Kill`], which also sets a flag that the
    /// thread checks.
    pub fn post(&self, client: ClientId, message: Message) -> bool {
        let Some(info) = self.clients.get(client) else {
            return false;
        };
        if matches!(message, Message::Kill(_)) {
            info.kill.store(true, Ordering::Release);
        }
        self.mailboxes()
            .get(info.thread)
            .is_some_and(|mailbox| mailbox.try_send(message).is_ok())
    }

    /// Queues messages for clients of one IO thread; `own`: it is the calling one. Clients with
    /// too many queued bytes are disconnected.
    pub fn deliver(&self, thread: usize, batch: Vec<Delivery>, own: bool) {
        let Some(mailbox) = self.mailboxes().get(thread) else {
            return;
        };
        let limit = self.config.load().client_output_buffer_limit.pubsub;
        let limit = usize::try_from(limit.hard_bytes).unwrap_or(usize::MAX);
        for client in mailbox.deliver(batch, limit, own) {
            let info = self.clients.get(client);
            if info.is_some_and(|info| !info.kill.swap(true, Ordering::AcqRel)) {
                log::warn!("client {}: reads its messages too slowly", client.0);
                self.stats.output_limit_disconnections.add(1);
                self.post(client, Message::Kill(client));
            }
        }
    }

    /// Whether clients that send messages to others should wait: see [`delivery`].
    pub fn is_swamped(&self, now_ms: UnixMs) -> bool {
        let mut mailboxes = self.mailboxes().iter();
        mailboxes.any(|mailbox| mailbox.deliveries.is_busy(now_ms))
    }

    /// Ends the wait of a client, as CLIENT UNBLOCK does. Returns whether it waited.
    pub fn unblock(&self, client: ClientId, verdict: Verdict) -> bool {
        let (waited, thread) = self.waiters.interrupt(client, verdict);
        self.wake_threads(thread);
        waited
    }

    /// Ends the waits of all clients: this server has become a replica, and its keys are no
    /// longer changed by clients. A client that begins to wait checks that as well. Clients that
    /// take redirections wait on until a failover is over.
    pub fn unblock_all(&self) {
        let hands_over = self.replication.desired().hands_over();
        for client in self.waiters.all() {
            if !(hands_over && self.takes_redirect(client)) {
                self.unblock_on_replica(client);
            }
        }
    }

    fn takes_redirect(&self, client: ClientId) -> bool {
        let info = self.clients.get(client);
        !self.engine.config.cluster_enabled
            && info.is_some_and(|info| info.flags().contains(ClientFlags::TAKES_REDIRECT))
    }

    /// Ends the wait of a client because this server is a replica.
    pub fn unblock_on_replica(&self, client: ClientId) {
        const WHY: &str = "UNBLOCKED force unblock from blocking operation, \
             instance state changed (master -> replica?)";
        let master = self.replication.desired().master.clone();
        let why = match master.filter(|_| self.takes_redirect(client)) {
            Some(master) => master.redirection(),
            None => WHY.to_owned(),
        };
        self.unblock(client, Verdict::Error(why));
    }

    /// Wakes IO threads to check their clients whose waits have ended.
    pub fn wake_threads(&self, threads: impl IntoIterator<Item = usize>) {
        for thread in threads {
            if let Some(mailbox) = self.mailboxes().get(thread) {
                mailbox.wake();
            }
        }
    }

    /// Makes all IO threads sleep from their next tick on, and the calling one at once.
    pub fn stall(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let until_us = clock::mono_us().saturating_add(micros);
        self.stalled_until_us.fetch_max(until_us, Ordering::Release);
        std::thread::sleep(duration);
    }

    /// Called by an IO thread after its last tick: waits until all IO threads have ended
    /// theirs, so that it can deliver their messages; at most `at_most`.
    pub fn end_together(&self, at_most: Duration) {
        let deadline = Instant::now() + at_most;
        let (count, another) = &self.ended_threads;
        let mut ended = count.lock();
        *ended += 1;
        another.notify_all();
        while *ended < self.mailboxes().len() {
            if another.wait_until(&mut ended, deadline).timed_out() {
                log::warn!("an IO thread does not end: its clients' messages may be lost");
                return;
            }
        }
    }

    /// Sleeps until the end of a stall.
    pub fn wait_out_stall(&self) {
        let until_us = self.stalled_until_us.load(Ordering::Acquire);
        if until_us > 0 {
            let left_us = until_us.saturating_sub(clock::mono_us());
            std::thread::sleep(Duration::from_micros(left_us));
            // Another DEBUG SLEEP may have prolonged it meanwhile.
            let stalled = &self.stalled_until_us;
            let _ = stalled.compare_exchange(until_us, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Starts or replaces a CLIENT PAUSE.
    pub fn pause(&self, pause: Pause) {
        self.change_pauses(|pauses| pauses.client = Some(pause));
    }

    /// Ends a CLIENT PAUSE.
    pub fn unpause(&self) {
        self.change_pauses(|pauses| pauses.client = None);
    }

    /// Starts or ends the pause of writes for a failover.
    pub fn pause_for_failover(&self, on: bool) {
        self.change_pauses(|pauses| pauses.failover = on);
    }

    /// Starts or ends the pause of writes while a shutdown waits for replicas.
    pub fn pause_for_shutdown(&self, on: bool) {
        self.change_pauses(|pauses| pauses.shutdown = on);
    }

    fn change_pauses(&self, change: impl FnOnce(&mut Pauses)) {
        let mut pauses = self.pauses.write();
        change(&mut pauses);
        let paused = pauses.failover || pauses.shutdown || pauses.client.is_some();
        self.paused.store(paused, Ordering::Release);
        drop(pauses);
        self.resume_clients();
    }

    /// Sends clients the messages in `outbox`, and invalidations of changed keys that they may
    /// have cached. Both must be durable.
    pub fn notify_clients(&self, changes: &[Change], mut outbox: Outbox) {
        if !changes.is_empty() {
            // Includes keys that may be unchanged: that costs a client one read.
            self.tracking.invalidate(self, changes, &mut outbox);
        }
        if self.tracking.clients() > 0 {
            let max = self.config.load().tracking_table_max_keys;
            self.tracking.limit(self, max, &mut outbox);
        }
        outbox.flush(self);
    }

    /// Asks the IO threads to run the requests of paused clients again. They do so periodically
    /// as well, so a thread whose mailbox is full need not get the message.
    pub fn resume_clients(&self) {
        for mailbox in self.mailboxes() {
            let _ = mailbox.try_send(Message::Resume);
        }
    }

    /// Sends a client the reply that it waits for. Not for IO threads: blocks while the mailbox
    /// of the client's thread is full.
    pub fn answer(&self, client: ClientId, reply: Box<[u8]>) {
        let Some(info) = self.clients.get(client) else {
            return;
        };
        if let Some(mailbox) = self.mailboxes().get(info.thread) {
            mailbox.send(Message::Answer(client, reply));
        }
    }

    /// The pause in force at `now_ms`, if any. Costs one load when there is none.
    pub fn pause_at(&self, now_ms: UnixMs) -> Option<Pause> {
        if !self.paused.load(Ordering::Acquire) {
            return None;
        }
        let pauses = *self.pauses.read();
        let client = pauses.client.filter(|pause| now_ms < pause.until_ms);
        let handover = (pauses.failover || pauses.shutdown).then_some(Pause {
            until_ms: UnixMs::MAX,
            mode: PauseMode::Writes,
        });
        client
            .filter(|pause| pause.mode == PauseMode::All)
            .or(handover)
            .or(client)
    }

    /// Ends WAITs and WAITAOFs that further acknowledgements or syncs have satisfied.
    pub fn end_ack_waits(&self) {
        let synced_here = self.engine.synced_position();
        let threads = self.replication.end_waits(&self.waiters, synced_here);
        if !threads.is_empty() {
            self.wake_threads(threads);
        }
    }

    /// Asks the main thread to stop the server; `asker` waits for that.
    pub fn request_shutdown(&self, how: Shutdown, asker: Option<ClientId>) {
        let mut stopping = self.shutdown.lock();
        stopping.how = Some(how);
        stopping.askers.extend(asker);
        drop(stopping);
        self.wake_main();
    }

    /// Cancels the request to stop. Returns whether there was one.
    pub fn abort_shutdown(&self) -> bool {
        let aborted = self.shutdown.lock().how.take().is_some();
        self.wake_main();
        aborted
    }

    fn wake_main(&self) {
        if let Some(waker) = self.main_waker.get()
            && let Err(error) = waker.wake()
        {
            log::error!("cannot wake the main thread: {error}");
        }
    }

    /// The request to stop, if there is one.
    pub fn shutdown_request(&self) -> Option<Shutdown> {
        self.shutdown.lock().how
    }

    /// Replies to clients whose shutdown was cancelled. Not for IO threads, see
    /// [`Server::answer`].
    pub fn refuse_shutdown(&self) {
        let mut stopping = self.shutdown.lock();
        let askers = match stopping.how {
            Some(_) => Vec::new(),
            None => std::mem::take(&mut stopping.askers),
        };
        drop(stopping);
        for asker in askers {
            let error = b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n";
            self.answer(asker, Box::from(&error[..]));
        }
    }

    /// Registers the function that changes what is logged; once, by the main program.
    pub fn on_log_change(&self, change: Box<LogChange>) {
        let _ = self.log_change.set(change);
    }

    /// Logs as this configuration says from now on.
    pub fn change_log(&self, config: &Config) {
        if let Some(change) = self.log_change.get() {
            change(config);
        }
    }

    /// Registers the function that handles SIGHUP; once, by the main program.
    pub fn on_reload(&self, reload: Box<dyn Fn() + Send + Sync>) {
        let _ = self.reload.set(reload);
    }

    /// Handles SIGHUP.
    pub fn reload(&self) {
        self.audit.reopen();
        if let Some(reload) = self.reload.get() {
            reload();
        }
    }

    /// Registers the function that changes the listening addresses; once, by the main program.
    pub fn on_listen(&self, listen: Box<Listen>) {
        let _ = self.listen.set(listen);
    }

    /// Listens on the addresses of `config` from now on, and on no others.
    ///
    /// # Errors
    /// An address cannot be bound; nothing has changed then.
    pub fn listen(&self, config: &Config) -> std::io::Result<()> {
        match self.listen.get() {
            Some(listen) => listen(config),
            None => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// Samples the counters for averages and peaks; about once a second.
    pub fn sample(&self) {
        self.rates.sample(&self.stats, clock::mono_us());
        self.memory.figures();
    }
}
