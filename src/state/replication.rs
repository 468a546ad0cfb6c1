//! Replication as all threads see it: which master is to be followed and how
//! the link to it stands; which replicas are fed and how far they are.
//!
//! Commands change [`Replication::desired`] and look at figures; the threads
//! that do the work live in [`crate::replication`](../../replication/index.html).

use super::client_memory::Account;
use super::config::MasterAddr;
use super::mailbox::Socket;
use super::subscriptions::SubscriptionKind;
use super::waiters::{AckWait, Verdict, Waiters};
use super::{ClientId, ClientInfo};
use crate::sys::clock;
use crate::sys::lock_order::{Lock, Mutex, MutexGuard, RwLock};
use parking_lot::Condvar;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// What a replica says of itself before it asks to be fed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    /// The port that it listens on; 0 if it did not say.
    pub port: u16,
    /// The address that others reach it by; empty if it did not say.
    pub ip: String,
    /// Its `run_id`; empty if it did not say.
    pub run_id: String,
    /// The format version of the rows that it can take; `None` if it speaks
    /// Redis' dialect.
    pub format: Option<u32>,
    /// It can take a file whose length nobody knows beforehand.
    pub eof: bool,
    /// It wants the data set and not what comes after it.
    pub rdb_only: bool,
    /// The only parts of the data set that it wants; `None` for all.
    pub filter: Option<Filter>,
}

/// Parts of a data set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// The libraries of functions.
    pub functions: bool,
}

/// Where a replica wants to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Psync {
    /// The history that it holds; `?` for none.
    pub id: String,
    /// Up to which position, exclusive.
    pub next: Option<u64>,
    /// It said SYNC: it expects no line before the data set, and never says how
    /// far it is.
    pub is_sync: bool,
    /// The replica.
    pub announced: Announcement,
}

/// A connection on its way from an IO thread to a feeder.
pub struct Taken {
    /// The socket.
    pub socket: Socket,
    /// The client.
    pub info: Arc<ClientInfo>,
    /// What was read from it and not yet run.
    pub input: Vec<u8>,
    /// What it asked for.
    pub psync: Psync,
}

/// How far a replica's feeding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Feeding {
    /// It waits for the snapshot.
    Waiting = 0,
    /// It gets the data set.
    Snapshot = 1,
    /// It gets the stream.
    Online = 2,
}

/// A replica that is fed.
pub struct Replica {
    /// Its connection.
    pub client: Arc<ClientInfo>,
    /// Its address.
    pub ip: String,
    /// Its port.
    pub port: u16,
    run_id: String,
    feeding: AtomicU8,
    /// It has applied everything before this position.
    pub acked: AtomicU64,
    /// And synced everything before this one to its disk.
    pub synced: AtomicU64,
    /// When it last said so, Unix ms.
    pub acked_ms: AtomicU64,
    /// Somebody waits for it to say so.
    pub ask: AtomicBool,
    /// It is a Redis, or one is behind it: nothing but what is logged tells it that its
    /// master lives.
    pub wants_pings: AtomicBool,
    /// What waits to be sent to it, in memory.
    pub account: Account,
    messages: Mutex<Messages, { Lock::ReplicaMessages as u8 }>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// A message that clients of replicas may listen to.
#[derive(Debug)]
pub struct Published {
    /// What the channel is.
    pub kind: SubscriptionKind,
    /// The channel.
    pub channel: Box<[u8]>,
    /// The message.
    pub message: Box<[u8]>,
}

/// Bytes of messages that wait for a replica; the oldest are lost to it if there
/// are more.
const MESSAGE_BYTES: usize = 16 << 20;

/// Messages for a replica, each with the position of the binlog that it follows.
#[derive(Debug, Default)]
struct Messages {
    waiting: VecDeque<(u64, Arc<Published>)>,
    bytes: usize,
}

impl Published {
    fn memory(&self) -> usize {
        self.channel.len() + self.message.len() + size_of::<Published>()
    }
}

impl Replica {
    /// A replica whose feeder is woken by `wake`.
    pub fn new(
        client: Arc<ClientInfo>,
        announced: &Announcement,
        now_ms: u64,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Replica {
        let peer = client.addr.rsplit_once(':');
        let ip = match announced.ip.as_str() {
            "" => peer.map_or("", |(ip, _)| ip).trim_matches(['[', ']']),
            ip => ip,
        };
        Replica {
            ip: ip.to_owned(),
            port: announced.port,
            run_id: announced.run_id.clone(),
            client,
            feeding: AtomicU8::new(Feeding::Waiting as u8),
            account: Account::default(),
            messages: Mutex::default(),
            acked: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            acked_ms: AtomicU64::new(now_ms),
            ask: AtomicBool::new(false),
            wants_pings: AtomicBool::new(false),
            wake,
        }
    }

    /// How far its feeding is.
    pub fn feeding(&self) -> Feeding {
        match self.feeding.load(Ordering::Acquire) {
            0 => Feeding::Waiting,
            1 => Feeding::Snapshot,
            _ => Feeding::Online,
        }
    }

    /// Notes how far its feeding is.
    pub fn set_feeding(&self, feeding: Feeding) {
        self.feeding.store(feeding as u8, Ordering::Release);
    }

    /// Seconds since it last said how far it is.
    pub fn silent_s(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.acked_ms.load(Ordering::Relaxed)) / 1000
    }

    /// Asks it to say at once how far it is.
    pub fn ask(&self) {
        self.ask.store(true, Ordering::Release);
        (self.wake)();
    }

    /// Wakes its feeder.
    pub fn wake(&self) {
        (self.wake)();
    }

    fn publish(&self, after: u64, messages: &[Arc<Published>]) {
        let mut all = self.messages.lock();
        for message in messages {
            all.bytes += message.memory();
            all.waiting.push_back((after, message.clone()));
        }
        while all.bytes > MESSAGE_BYTES
            && let Some((_, lost)) = all.waiting.pop_front()
        {
            all.bytes -= lost.memory();
        }
        drop(all);
        self.wake();
    }

    /// The next message, once all that was written before it is on its way.
    pub fn next_message(&self, sent_to: u64) -> Option<Arc<Published>> {
        let mut all = self.messages.lock();
        all.waiting.front().filter(|(after, _)| *after <= sent_to)?;
        let (_, message) = all.waiting.pop_front()?;
        all.bytes -= message.memory();
        Some(message)
    }
}

/// How the link to the master stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkPhase {
    /// It must be connected.
    Connect = 0,
    /// It is being connected.
    Connecting = 1,
    /// Password, port and position are told.
    Handshake = 2,
    /// The data set arrives.
    Sync = 3,
    /// The stream arrives.
    Connected = 4,
}

impl LinkPhase {
    /// What ROLE calls it.
    pub fn name(self) -> &'static str {
        match self {
            LinkPhase::Connect => "connect",
            LinkPhase::Connecting => "connecting",
            LinkPhase::Handshake => "handshake",
            LinkPhase::Sync => "sync",
            LinkPhase::Connected => "connected",
        }
    }
}

/// Figures of the link to the master; its thread writes them.
#[derive(Default)]
pub struct Link {
    phase: AtomicU8,
    /// When the master was last heard, Unix ms; 0: never.
    pub heard_ms: AtomicU64,
    /// When the link went down, Unix ms.
    pub down_ms: AtomicU64,
    /// Position of the master's next row, as far as it is known.
    pub master_next: AtomicU64,
    /// When the row that was applied last was committed there, Unix ms.
    pub applied_ms: AtomicU64,
    /// Where the stream of a Redis master goes on that is applied here: offset of the
    /// next byte; 0 if no Redis is followed.
    pub stream_next: AtomicU64,
    /// And up to where it has been read.
    pub stream_read: AtomicU64,
    /// Bytes that the data set under way has, if that is known, as with Redis masters;
    /// otherwise 0.
    pub sync_bytes: AtomicU64,
    /// Keys that the data set under way has, keys and bytes of it that are here.
    pub sync_keys: AtomicU64,
    /// See there.
    pub sync_keys_here: AtomicU64,
    /// See there.
    pub sync_bytes_here: AtomicU64,
    socket: Mutex<Option<TcpStream>, { Lock::LinkSocket as u8 }>,
    hung_up: Arc<AtomicBool>,
}

impl Link {
    /// How it stands.
    pub fn phase(&self) -> LinkPhase {
        match self.phase.load(Ordering::Acquire) {
            0 => LinkPhase::Connect,
            1 => LinkPhase::Connecting,
            2 => LinkPhase::Handshake,
            3 => LinkPhase::Sync,
            _ => LinkPhase::Connected,
        }
    }

    fn set_phase(&self, phase: LinkPhase, now_ms: u64) {
        let before = self.phase.swap(phase as u8, Ordering::AcqRel);
        if before == LinkPhase::Connected as u8 && phase != LinkPhase::Connected {
            self.down_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Forgets what is known of the data set that came last.
    pub fn begin_sync(&self) {
        let figures = [
            &self.sync_bytes,
            &self.sync_keys,
            &self.sync_keys_here,
            &self.sync_bytes_here,
        ];
        for figure in figures {
            figure.store(0, Ordering::Relaxed);
        }
    }

    /// Where the stream of a Redis master goes on, and up to where it has been read;
    /// nothing if no Redis is followed.
    pub fn stream(&self) -> Option<(u64, u64)> {
        let next = self.stream_next.load(Ordering::Relaxed);
        let read = self.stream_read.load(Ordering::Relaxed);
        (next > 0).then_some((next, read.max(next)))
    }

    /// Notes the socket, so that [`Link::hang_up`] can end its reads.
    pub fn set_socket(&self, socket: Option<TcpStream>) {
        *self.socket.lock() = socket;
    }

    /// A new link begins. What is returned is set once it is hung up.
    pub fn begin(&self) -> Arc<AtomicBool> {
        self.hung_up.store(false, Ordering::Release);
        self.hung_up.clone()
    }

    /// Breaks the connection, and has scripts of the master's end.
    pub fn hang_up(&self) {
        self.hung_up.store(true, Ordering::Release);
        if let Some(socket) = self.socket.lock().as_ref() {
            // A socket that is not connected any more is as good as hung up.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// What the link thread is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// Whom to follow.
    pub master: Option<MasterAddr>,
    /// Grows with every change.
    pub version: u64,
    /// The threads shall end.
    pub stop: bool,
    /// The failover under way.
    pub failover: Option<Failover>,
}

impl Desired {
    /// Whether the same master is wanted, and any at all.
    pub fn is_still(&self, earlier: &Desired) -> bool {
        self.version == earlier.version && !self.stop
    }
}

/// A failover under way: the server waits until a replica has everything, then
/// they change roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// Which replica; `None`: the first that has everything.
    pub target: Option<MasterAddr>,
    /// When to give up, or to go on without waiting, Unix ms.
    pub deadline_ms: Option<u64>,
    /// At the deadline, go on.
    pub force: bool,
    /// The replica is being told.
    pub in_progress: bool,
}

type Take = dyn Fn(Taken) + Send + Sync;

/// The state of replication: the master that is followed, and the replicas that are fed.
pub struct Replication {
    desired: Mutex<Desired, { Lock::DesiredMaster as u8 }>,
    changed: Condvar,
    is_replica: AtomicBool,
    /// The link to the master.
    pub link: Link,
    replicas: RwLock<Vec<Arc<Replica>>, { Lock::Replicas as u8 }>,
    take: OnceLock<Box<Take>>,
    waits: Mutex<Vec<(ClientId, Weak<AckWait>)>, { Lock::AckWaits as u8 }>,
    /// How many those are.
    waiting: AtomicUsize,
}

impl Replication {
    /// A server that shall follow `master`.
    pub fn new(master: Option<MasterAddr>) -> Replication {
        Replication {
            is_replica: AtomicBool::new(master.is_some()),
            desired: Mutex::new(Desired {
                master,
                version: 1,
                stop: false,
                failover: None,
            }),
            changed: Condvar::new(),
            link: Link::default(),
            replicas: RwLock::default(),
            take: OnceLock::new(),
            waits: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Whether a wait is over already.
    pub fn is_over(&self, wait: &AckWait, synced_here: u64) -> bool {
        look(wait, &self.replicas.read(), synced_here)
    }

    /// From now on [`Replication::end_waits`] looks after a client's wait, for as
    /// long as somebody keeps it. All replicas are asked how far they are.
    pub fn look_after(&self, client: ClientId, wait: &Arc<AckWait>) {
        let mut waits = self.waits.lock();
        waits.push((client, Arc::downgrade(wait)));
        self.waiting.store(waits.len(), Ordering::SeqCst);
        drop(waits);
        for replica in self.replicas() {
            replica.ask();
        }
    }

    /// Ends the waits that are over, after something has moved. Returns the
    /// threads whose clients they were.
    pub fn end_waits(&self, waiters: &Waiters, synced_here: u64) -> Vec<usize> {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let replicas = self.replicas();
        let mut threads = Vec::new();
        let mut waits = self.waits.lock();
        waits.retain(|(client, wait)| {
            let Some(wait) = wait.upgrade() else {
                return false;
            };
            let over = look(&wait, &replicas, synced_here);
            if over {
                let verdict = Verdict::Reply(wait.reply());
                threads.extend(waiters.interrupt(*client, verdict));
            }
            !over
        });
        self.waiting.store(waits.len(), Ordering::SeqCst);
        threads
    }

    /// Notes how the link stands that follows what was desired `then`; one that
    /// is not wanted any more says nothing.
    pub fn set_phase(&self, then: &Desired, phase: LinkPhase) {
        let desired = self.desired.lock();
        if desired.is_still(then) {
            self.link.set_phase(phase, clock::unix_ms());
        }
    }

    /// Whether this server is a replica; looked at for every write.
    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Relaxed)
    }

    /// What the link thread is to do.
    pub fn desired(&self) -> MutexGuard<'_, Desired, { Lock::DesiredMaster as u8 }> {
        self.desired.lock()
    }

    /// Changes whom to follow; `with` happens before anybody sees the change, and
    /// if it fails there is none.
    pub fn follow<E>(
        &self,
        master: Option<MasterAddr>,
        with: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut desired = self.desired.lock();
        with()?;
        desired.failover = None;
        self.is_replica.store(master.is_some(), Ordering::SeqCst);
        desired.master = master;
        desired.version += 1;
        // Nobody knows of the change yet: this is the old link.
        self.link.hang_up();
        self.link.set_phase(LinkPhase::Connect, clock::unix_ms());
        self.changed.notify_all();
        Ok(())
    }

    /// Wakes the link thread.
    pub fn look(&self) {
        self.changed.notify_all();
    }

    /// Begins, changes or ends a failover.
    pub fn set_failover(&self, failover: Option<Failover>) {
        let mut desired = self.desired.lock();
        desired.failover = failover;
        self.changed.notify_all();
    }

    /// Hands over to `target`, if a failover is under way: follows it, and tells
    /// it to be a master. Says whether that was begun.
    pub fn hand_over(&self, target: MasterAddr) -> bool {
        let mut desired = self.desired.lock();
        let Some(failover) = &mut desired.failover else {
            return false;
        };
        failover.in_progress = true;
        desired.master = Some(target);
        desired.version += 1;
        self.is_replica.store(true, Ordering::SeqCst);
        true
    }

    /// The failover that `then` was handed over for waits for a replica again.
    pub fn hand_back(&self, then: &Desired) {
        let mut desired = self.desired.lock();
        if !desired.is_still(then) {
            return;
        }
        if let Some(failover) = &mut desired.failover {
            failover.in_progress = false;
        }
        desired.master = None;
        desired.version += 1;
        self.is_replica.store(false, Ordering::SeqCst);
    }

    /// Tells the link thread to end.
    pub fn stop(&self) {
        let mut desired = self.desired.lock();
        desired.stop = true;
        self.link.hang_up();
        self.changed.notify_all();
        drop(desired);
        for replica in self.replicas() {
            replica.wake();
        }
    }

    /// Waits until what is desired differs from `seen`, or for `timeout`.
    pub fn wait_for_change(&self, seen: &Desired, timeout: Duration) -> Desired {
        let mut desired = self.desired.lock();
        if *desired == *seen {
            MutexGuard::wait_for(&mut desired, &self.changed, timeout);
        }
        desired.clone()
    }

    /// All replicas.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().clone()
    }

    /// Adds a replica. If it has come back over a new connection, the old one
    /// counts no more: else WAIT would count the same data twice.
    pub fn add_replica(&self, replica: Arc<Replica>) {
        let mut replicas = self.replicas.write();
        replicas.retain(|old| {
            let gone = !old.run_id.is_empty() && old.run_id == replica.run_id;
            if gone {
                old.client.kill.store(true, Ordering::Release);
                old.wake();
            }
            !gone
        });
        replicas.push(replica);
    }

    /// Removes a replica.
    pub fn remove_replica(&self, replica: &Arc<Replica>) {
        self.replicas.write().retain(|r| !Arc::ptr_eq(r, replica));
    }

    /// How many replicas there are.
    pub fn replica_count(&self) -> usize {
        self.replicas.read().len()
    }

    /// Whether there are replicas.
    pub fn has_replicas(&self) -> bool {
        !self.replicas.read().is_empty()
    }

    /// Whether a replica wants pings to be logged.
    pub fn wants_pings(&self) -> bool {
        let wants = |replica: &Arc<Replica>| replica.wants_pings.load(Ordering::Relaxed);
        self.replicas.read().iter().any(wants)
    }

    /// Leaves messages to the feeders of all replicas that are online, to be sent
    /// after what stands before this position of the binlog.
    pub fn publish(&self, after: u64, messages: Vec<Published>) {
        let messages: Vec<Arc<Published>> = messages.into_iter().map(Arc::new).collect();
        for replica in &*self.replicas.read() {
            if replica.feeding() == Feeding::Online {
                replica.publish(after, &messages);
            }
        }
    }

    /// How many replicas that say how far they are lack what stands before
    /// `next_position`; they are asked for it.
    pub fn lagging(&self, next_position: u64) -> usize {
        let mut replicas = self.replicas();
        replicas.retain(|replica| {
            let acked = replica.acked.load(Ordering::Acquire);
            replica.feeding() == Feeding::Online && acked > 0 && acked < next_position
        });
        for replica in &replicas {
            replica.ask();
        }
        replicas.len()
    }

    /// How many replicas are online and said so within `max_lag_s` seconds (0:
    /// any time).
    pub fn good_replicas(&self, max_lag_s: u64, now_ms: u64) -> usize {
        let replicas = self.replicas.read();
        let good = replicas.iter().filter(|replica| {
            replica.feeding() == Feeding::Online
                && (max_lag_s == 0 || replica.silent_s(now_ms) <= max_lag_s)
        });
        good.count()
    }

    /// Says who feeds replicas; once, by the main program.
    pub fn on_take(&self, take: Box<Take>) {
        let _ = self.take.set(take);
    }

    /// Gives a connection to a feeder.
    pub fn take(&self, taken: Taken) {
        if let Some(take) = self.take.get() {
            take(taken);
        }
    }
}

/// Looks how far replicas are, and this server's disk; says whether that is
/// enough.
fn look(wait: &AckWait, replicas: &[Arc<Replica>], synced_here: u64) -> bool {
    let is_there = |replica: &&Arc<Replica>| {
        let position = match wait.synced {
            None => &replica.acked,
            Some(_) => &replica.synced,
        };
        replica.feeding() == Feeding::Online && position.load(Ordering::Acquire) >= wait.target
    };
    let found = replicas.iter().filter(is_there).count();
    let here = synced_here >= wait.target;
    wait.found.store(found, Ordering::Relaxed);
    wait.found_here.store(here, Ordering::Relaxed);
    found >= wait.replicas && (here || wait.synced != Some(true))
}
