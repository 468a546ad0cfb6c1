//! The state of replication that threads share: the desired master and the state of the link to
//! it; the replicas and their positions.
//!
//! Commands change [`Replication::desired`] and read figures; the threads that do the work are
//! in [`crate::replication`](../../replication/index.html).

use super::client_memory::Account;
use super::config::MasterAddr;
use super::node::Node;
use super::socket::Socket;
use super::subscriptions::SubscriptionKind;
use super::waiters::{AckWait, Verdict, Waiters};
use super::{ClientId, ClientInfo};
use crate::base::time::{AtomicUnixMs, UnixMs};
use crate::encoding::binlog::{AtomicPosition, Position};
use crate::encoding::keys::Layout;
use crate::sys::clock;
use crate::sys::lock_order::{Lock, Mutex, MutexGuard, RwLock};
use parking_lot::Condvar;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// What a replica announces before PSYNC (REPLCONF).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Its listening port; 0 if not announced.
    pub port: u16,
    /// The address at which others reach it; empty if not announced.
    pub ip: String,
    /// Its `run_id`; empty if not announced.
    pub run_id: String,
    /// The format version of rows that it accepts; `None` if it speaks Redis' protocol.
    pub format: Option<u32>,
    /// The layout of its rows, which are of no use to a server with another one; `None`: plain, of a
    /// build that knows no other.
    pub layout: Option<Layout>,
    /// Whether it accepts a data set of unknown length (`eof`).
    pub eof: bool,
    /// Whether it reads sets whose members have times (`set-times`).
    pub set_times: bool,
    /// Whether it wants only the data set, without the stream that follows.
    pub rdb_only: bool,
    /// The parts of the data set that it wants; `None`: all.
    pub filter: Option<Filter>,
    /// It as a node of a cluster, if it is one.
    pub node: Option<Node>,
}

/// Parts of a data set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// Whether it has the libraries of functions.
    pub functions: bool,
}

/// The PSYNC request of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Psync {
    /// The replication id of its history; `?` for none.
    pub id: String,
    /// The position of the next byte that it needs, if it has any.
    pub next: Option<Position>,
    /// Whether the command was SYNC: no line is sent before the data set, and the replica never
    /// acknowledges a position.
    pub is_sync: bool,
    /// Whether this server is asked to become master (FAILOVER).
    pub takes_over: bool,
    /// What the replica has announced.
    pub announced: Announcement,
}

/// A connection on its way from an IO thread to a feeder.
pub struct Taken {
    /// The socket.
    pub socket: Socket,
    /// The client.
    pub info: Arc<ClientInfo>,
    /// Bytes that were read from it and not processed.
    pub input: Vec<u8>,
    /// Its request.
    pub psync: Psync,
}

/// The state of a replica's feeding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Feeding {
    /// Waiting for the snapshot.
    Waiting = 0,
    /// Sending the data set.
    Snapshot = 1,
    /// Sending the stream.
    Online = 2,
}

/// A connected replica.
pub struct Replica {
    /// Its connection.
    pub client: Arc<ClientInfo>,
    /// Its address.
    pub ip: String,
    /// Its port.
    pub port: u16,
    run_id: String,
    /// It as a node of a cluster, if it is one.
    pub(super) node: Option<Node>,
    feeding: AtomicU8,
    /// It has applied everything before this position.
    pub acked: AtomicPosition,
    /// It has synced everything before this position to its disk.
    pub synced: AtomicPosition,
    /// When it last acknowledged a position, Unix ms.
    pub acked_ms: AtomicUnixMs,
    /// Whether it is to be asked for an acknowledgement.
    pub ask: AtomicBool,
    /// Whether it is a Redis replica, or has one behind it: such replicas detect a dead master
    /// only by logged PINGs.
    pub wants_pings: AtomicBool,
    /// Memory of the queue for it.
    pub account: Account,
    messages: Mutex<Messages, { Lock::ReplicaMessages as u8 }>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// A published message for clients of replicas.
#[derive(Debug)]
pub struct Published {
    /// The kind of the channel.
    pub kind: SubscriptionKind,
    /// The channel.
    pub channel: Box<[u8]>,
    /// The message.
    pub message: Box<[u8]>,
}

/// Bytes of messages that are queued for a replica; beyond them the oldest are dropped.
const MESSAGE_BYTES: usize = 16 << 20;

/// Messages for a replica, each with the binlog position that it follows.
#[derive(Debug, Default)]
struct Messages {
    waiting: VecDeque<(Position, Arc<Published>)>,
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
        now_ms: UnixMs,
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
            node: announced.node.clone(),
            client,
            feeding: AtomicU8::new(Feeding::Waiting as u8),
            account: Account::default(),
            messages: Mutex::default(),
            acked: AtomicPosition::default(),
            synced: AtomicPosition::default(),
            acked_ms: AtomicUnixMs::new(now_ms),
            ask: AtomicBool::new(false),
            wants_pings: AtomicBool::new(false),
            wake,
        }
    }

    /// The state of its feeding.
    pub fn feeding(&self) -> Feeding {
        match self.feeding.load(Ordering::Acquire) {
            0 => Feeding::Waiting,
            1 => Feeding::Snapshot,
            _ => Feeding::Online,
        }
    }

    /// Sets the state of its feeding.
    pub fn set_feeding(&self, feeding: Feeding) {
        self.feeding.store(feeding as u8, Ordering::Release);
    }

    /// Seconds since its last acknowledgement.
    pub fn silent_s(&self, now_ms: UnixMs) -> u64 {
        now_ms.since(self.acked_ms.load(Ordering::Relaxed)) / 1000
    }

    /// Asks it to acknowledge its position at once.
    pub fn ask(&self) {
        self.ask.store(true, Ordering::Release);
        (self.wake)();
    }

    /// Wakes its feeder.
    pub fn wake(&self) {
        (self.wake)();
    }

    fn publish(&self, after: Position, messages: &[Arc<Published>]) {
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

    /// The next message, if everything before it in the binlog is sent.
    pub fn next_message(&self, sent_to: Position) -> Option<Arc<Published>> {
        let mut all = self.messages.lock();
        all.waiting.front().filter(|(after, _)| *after <= sent_to)?;
        let (_, message) = all.waiting.pop_front()?;
        all.bytes -= message.memory();
        Some(message)
    }
}

/// The state of the link to the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkPhase {
    /// Not connected.
    Connect = 0,
    /// Connecting.
    Connecting = 1,
    /// Exchange of password, port and position.
    Handshake = 2,
    /// Receiving the data set.
    Sync = 3,
    /// Receiving the stream.
    Connected = 4,
}

impl LinkPhase {
    /// Its name in ROLE.
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
    /// When data of the master last arrived, Unix ms; 0: never.
    pub heard_ms: AtomicUnixMs,
    /// When the link went down, Unix ms.
    pub down_ms: AtomicUnixMs,
    /// Position of the master's next row, as far as it is known.
    pub master_next: AtomicPosition,
    /// When the master committed the row that was applied last, Unix ms.
    pub applied_ms: AtomicUnixMs,
    /// The offset of the next byte of a Redis master's stream to apply; 0 if no Redis master is
    /// followed.
    pub stream_next: AtomicPosition,
    /// The offset up to which that stream has been read.
    pub stream_read: AtomicPosition,
    /// Bytes of the data set that is being received, if the master announced them, as Redis
    /// masters do; otherwise 0.
    pub sync_bytes: AtomicU64,
    /// Keys of the data set that is being received.
    pub sync_keys: AtomicU64,
    /// Keys of it that have arrived.
    pub sync_keys_here: AtomicU64,
    /// Bytes of it that have arrived.
    pub sync_bytes_here: AtomicU64,
    nodes: parking_lot::Mutex<Vec<Node>>,
    socket: Mutex<Option<TcpStream>, { Lock::LinkSocket as u8 }>,
    hung_up: Arc<AtomicBool>,
}

impl Link {
    /// The state of the link.
    pub fn phase(&self) -> LinkPhase {
        match self.phase.load(Ordering::Acquire) {
            0 => LinkPhase::Connect,
            1 => LinkPhase::Connecting,
            2 => LinkPhase::Handshake,
            3 => LinkPhase::Sync,
            _ => LinkPhase::Connected,
        }
    }

    fn set_phase(&self, phase: LinkPhase, now_ms: UnixMs) {
        let before = self.phase.swap(phase as u8, Ordering::AcqRel);
        if before == LinkPhase::Connected as u8 && phase != LinkPhase::Connected {
            self.down_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Resets the figures of the data set.
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

    /// Offsets of a Redis master's stream: the next byte to apply, and up to where it has been
    /// read. `None` if no Redis master is followed.
    pub fn stream(&self) -> Option<(Position, Position)> {
        let next = self.stream_next.load(Ordering::Relaxed);
        let read = self.stream_read.load(Ordering::Relaxed);
        (next > Position::NONE).then_some((next, read.max(next)))
    }

    /// The nodes that the master has told of, itself first; none if it has not.
    pub fn nodes(&self) -> Vec<Node> {
        self.nodes.lock().clone()
    }

    /// Notes the nodes that the master has told of.
    pub fn set_nodes(&self, nodes: Vec<Node>) {
        *self.nodes.lock() = nodes;
    }

    /// Stores the socket, so that [`Link::hang_up`] can end blocked reads.
    pub fn set_socket(&self, socket: Option<TcpStream>) {
        *self.socket.lock() = socket;
    }

    /// Begins a new link. Returns a flag that is set by [`Link::hang_up`].
    pub fn begin(&self) -> Arc<AtomicBool> {
        self.hung_up.store(false, Ordering::Release);
        self.hung_up.clone()
    }

    /// Closes the connection, and stops running scripts of the master's stream.
    pub fn hang_up(&self) {
        self.hung_up.store(true, Ordering::Release);
        if let Some(socket) = self.socket.lock().as_ref() {
            // A socket that is no longer connected needs no shutdown.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// What the link thread is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// The master to follow, if any.
    pub master: Option<MasterAddr>,
    /// Incremented with every change.
    pub version: u64,
    /// Whether the threads are to end.
    pub stop: bool,
    /// The running failover, if any.
    pub failover: Option<Failover>,
}

impl Desired {
    /// Whether a failover goes on in which this server has given its role away and the other one
    /// has not taken it yet.
    pub fn hands_over(&self) -> bool {
        let failover = self.failover.as_ref();
        failover.is_some_and(|failover| failover.in_progress)
    }

    /// Whether nothing has changed since `earlier`, and the threads are not to end.
    pub fn is_still(&self, earlier: &Desired) -> bool {
        self.version == earlier.version && !self.stop
    }
}

/// A running failover: the server waits until a replica has everything, then the two change
/// roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// The replica to promote; `None`: the first that has everything.
    pub target: Option<MasterAddr>,
    /// When to give up, or with `force` to continue without waiting, Unix ms.
    pub deadline_ms: Option<UnixMs>,
    /// Whether to continue at the deadline.
    pub force: bool,
    /// Whether the replica is being promoted.
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
    /// Length of `waits`.
    waiting: AtomicUsize,
}

impl Replication {
    /// A server that is to follow `master`.
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

    /// Whether a wait is already satisfied.
    pub fn is_over(&self, wait: &AckWait, synced_here: Position) -> bool {
        is_satisfied(wait, &self.replicas.read(), synced_here)
    }

    /// Registers a client's wait for [`Replication::end_waits`], for as long as `wait` exists
    /// elsewhere. Asks all replicas for acknowledgements.
    pub fn look_after(&self, client: ClientId, wait: &Arc<AckWait>) {
        let mut waits = self.waits.lock();
        waits.push((client, Arc::downgrade(wait)));
        self.waiting.store(waits.len(), Ordering::SeqCst);
        drop(waits);
        for replica in self.replicas() {
            replica.ask();
        }
    }

    /// Ends the waits that are satisfied. Called after a position has changed. Returns the
    /// threads of their clients.
    pub fn end_waits(&self, waiters: &Waiters, synced_here: Position) -> Vec<usize> {
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
            let over = is_satisfied(&wait, &replicas, synced_here);
            if over {
                let verdict = Verdict::Reply(wait.reply());
                threads.extend(waiters.interrupt(*client, verdict).1);
            }
            !over
        });
        self.waiting.store(waits.len(), Ordering::SeqCst);
        threads
    }

    /// Sets the state of the link that follows the master of `then`; ignored if that is no
    /// longer the desired one.
    pub fn set_phase(&self, then: &Desired, phase: LinkPhase) {
        let desired = self.desired.lock();
        if desired.is_still(then) {
            self.link.set_phase(phase, clock::unix_ms());
        }
    }

    /// Whether this server is a replica; read for every write.
    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Relaxed)
    }

    /// The desired state of replication.
    pub fn desired(&self) -> MutexGuard<'_, Desired, { Lock::DesiredMaster as u8 }> {
        self.desired.lock()
    }

    /// Changes the master to follow. `with` runs before the change becomes visible; if it
    /// fails, nothing changes.
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
        // The change is not visible yet, so this is the old link.
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

    /// Begins the last step of a running failover: this server follows `target`, and the link
    /// thread promotes it. Returns whether a failover was running.
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

    /// Undoes [`Replication::hand_over`]: the failover waits for a replica again.
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

    /// Tells the threads to end.
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

    /// Waits until the desired state differs from `seen`, for at most `timeout`.
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

    /// Adds a replica. If it had an earlier connection, that one is removed: WAIT would count
    /// the same replica twice.
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
    pub(super) fn replica_count(&self) -> usize {
        self.replicas.read().len()
    }

    /// Whether there are replicas.
    pub fn has_replicas(&self) -> bool {
        !self.replicas.read().is_empty()
    }

    /// Whether a replica needs logged PINGs.
    pub fn wants_pings(&self) -> bool {
        let wants = |replica: &Arc<Replica>| replica.wants_pings.load(Ordering::Relaxed);
        self.replicas.read().iter().any(wants)
    }

    /// Queues messages for all replicas that get the stream. They are sent after the binlog up
    /// to position `after`.
    pub fn publish(&self, after: Position, messages: Vec<Published>) {
        let messages: Vec<Arc<Published>> = messages.into_iter().map(Arc::new).collect();
        for replica in &*self.replicas.read() {
            if replica.feeding() == Feeding::Online {
                replica.publish(after, &messages);
            }
        }
    }

    /// The number of replicas that acknowledge positions and are behind `next_position`. Asks
    /// them for acknowledgements.
    pub fn lagging(&self, next_position: Position) -> usize {
        let mut replicas = self.replicas();
        replicas.retain(|replica| {
            let acked = replica.acked.load(Ordering::Acquire);
            replica.feeding() == Feeding::Online && acked > Position::NONE && acked < next_position
        });
        for replica in &replicas {
            replica.ask();
        }
        replicas.len()
    }

    /// The number of replicas that get the stream and have acknowledged within `max_lag_s`
    /// seconds (0: ever).
    pub fn good_replicas(&self, max_lag_s: u64, now_ms: UnixMs) -> usize {
        let replicas = self.replicas.read();
        let good = replicas.iter().filter(|replica| {
            replica.feeding() == Feeding::Online
                && (max_lag_s == 0 || replica.silent_s(now_ms) <= max_lag_s)
        });
        good.count()
    }

    /// Registers the function that starts feeders; once, by the main program.
    pub fn on_take(&self, take: Box<Take>) {
        let _ = self.take.set(take);
    }

    /// Hands a connection over to a new feeder.
    pub fn take(&self, taken: Taken) {
        if let Some(take) = self.take.get() {
            take(taken);
        }
    }
}

/// Counts the replicas and the local disk for a wait. Returns whether the wait is satisfied.
fn is_satisfied(wait: &AckWait, replicas: &[Arc<Replica>], synced_here: Position) -> bool {
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
