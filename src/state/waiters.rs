//! Clients that wait for a key (BLPOP and the like), on all threads.
//!
//! A client is entered under the locks of its keys, right after a check found nothing there. A
//! thread that makes such a key ready runs the client's command before it unlocks the key,
//! first come first served in the order of tickets; the reply goes to the client's own thread
//! after the commit. So no wake-up is lost, and no other client gets in between.
//!
//! A wait also ends by its timeout, by CLIENT UNBLOCK, or by a disconnection. Which of these
//! ends it is decided once, in its [`Waiter`]'s phase:
//!
//! ```text
//! Waiting → Claimed → Ending → Done   served
//!    │         └→ Waiting             there was nothing for it after all
//!    │         └→ Abandoned           gone while it was being served
//!    ├→ Ending → Done                 timed out or unblocked
//!    └→ Abandoned                     gone: nothing is taken on its behalf any more; also from Ending
//! ```
//!
//! A client may wait for a million keys: to take it out of the lists of all is a chore (see
//! [`super::chores`]). Until that is done its wait is ending, and nobody takes the result: the
//! client's next wait begins when nothing is left of this one.

use super::Server;
use super::chores::{Chores, MANY};
use super::client_id::ClientId;
use super::clients::ClientInfo;
use super::request::Request;
use crate::base::time::UnixMs;
use crate::encoding::ValueType;
use crate::encoding::binlog::Position;
use crate::storage::DbIndex;
use crate::storage::engine::listeners::Interest;
use crate::sys::lock_order::{Lock, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Shards of the table, each with a lock; a power of two.
const SHARDS: usize = 64;

/// The result of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Served, with this reply in the client's protocol version.
    Reply(Vec<u8>),
    /// The timeout has passed.
    TimedOut,
    /// With this error.
    Error(String),
}

#[derive(Debug)]
enum Phase {
    Waiting,
    Claimed,
    /// It is not yet out of the lists of its keys.
    Ending(Verdict),
    Done(Option<Verdict>),
    Abandoned,
}

/// A key that a client waits for.
#[derive(Debug)]
pub struct WaitKey {
    /// The key.
    pub key: Box<[u8]>,
    /// Its [`crate::storage::View::key_hash`].
    pub hash: u64,
}

/// A client that waits.
#[derive(Debug)]
pub struct Waiter {
    /// The client that waits.
    pub client: Arc<ClientInfo>,
    /// Its request.
    pub request: Request,
    /// Its DB.
    pub db: DbIndex,
    /// Its protocol version.
    pub resp3: bool,
    /// Until when, Unix ms; `None`: for ever.
    pub deadline_ms: Option<UnixMs>,
    /// When its command is tried again although no key has changed, Unix ms; 0: never.
    retry_ms: AtomicU64,
    awaited: Awaited,
    /// The hashes of the keys, sorted, each with the index of its key.
    by_hash: Vec<(u64, usize)>,
    ticket: u64,
    phase: Mutex<Phase, { Lock::WaiterPhase as u8 }>,
}

impl Waiter {
    /// Whether a key with a value of this type, or without a value, may serve it.
    pub fn wants(&self, found: Option<ValueType>) -> bool {
        match self.awaited {
            Awaited::Keys {
                kind, minds_loss, ..
            } => found == Some(kind) || minds_loss,
            Awaited::Acks(_) => false,
        }
    }

    /// Whether it is also served when a key is gone or holds another type.
    pub fn minds_loss(&self) -> bool {
        match self.awaited {
            Awaited::Keys { minds_loss, .. } => minds_loss,
            Awaited::Acks(_) => false,
        }
    }

    /// The replicas that it waits for, and not for a key.
    pub fn acks(&self) -> Option<&AckWait> {
        match &self.awaited {
            Awaited::Keys { .. } => None,
            Awaited::Acks(acks) => Some(acks.as_ref()),
        }
    }

    /// When its command is tried again although no key has changed.
    pub fn retry_ms(&self) -> Option<UnixMs> {
        let retry_ms = self.retry_ms.load(Ordering::Relaxed);
        (retry_ms != 0).then_some(UnixMs(retry_ms))
    }

    /// Sets when its command is tried again.
    pub fn set_retry_ms(&self, retry_ms: Option<UnixMs>) {
        let retry_ms = retry_ms.map_or(0, |retry_ms| retry_ms.0);
        self.retry_ms.store(retry_ms, Ordering::Relaxed);
    }

    /// Whether it still waits, and is not being served.
    pub fn is_waiting(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Waiting)
    }

    /// The keys that it waits for.
    pub fn keys(&self) -> &[WaitKey] {
        match &self.awaited {
            Awaited::Keys { keys, .. } => keys,
            Awaited::Acks(_) => &[],
        }
    }

    /// Whether it takes long to do something with each of its keys.
    pub fn has_many_keys(&self) -> bool {
        self.keys().len() > MANY
    }

    fn waits_for(&self, hash: u64, key: &[u8]) -> bool {
        let first = self.by_hash.partition_point(|(other, _)| *other < hash);
        let same_hash = self.by_hash.iter().skip(first);
        let mut same_hash = same_hash.take_while(|(other, _)| *other == hash);
        same_hash.any(|(_, at)| self.keys().get(*at).is_some_and(|known| *known.key == *key))
    }

    /// Its number in the order of arrival.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Begins to serve the client. Returns whether it still waits. The caller holds the locks
    /// of its keys, and must call [`Waiter::unclaim`] or [`Waiters::finish`] next.
    pub fn claim(&self) -> bool {
        self.step(Phase::Claimed)
    }

    /// Ends serving without a result: the client waits on.
    pub fn unclaim(&self) {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Claimed) {
            *phase = Phase::Waiting;
        }
    }

    /// Nothing is left of its wait: the result may be taken.
    fn show_verdict(&self) {
        let mut phase = self.phase.lock();
        let before = std::mem::replace(&mut *phase, Phase::Done(None));
        *phase = match before {
            Phase::Ending(verdict) => Phase::Done(Some(verdict)),
            other => other,
        };
    }

    /// Takes the result, once.
    pub fn take_verdict(&self) -> Option<Verdict> {
        match &mut *self.phase.lock() {
            Phase::Done(verdict) => verdict.take(),
            _ => None,
        }
    }

    fn step(&self, to: Phase) -> bool {
        let mut phase = self.phase.lock();
        let waits = matches!(*phase, Phase::Waiting);
        if waits {
            *phase = to;
        }
        waits
    }
}

/// The parameters of a client waits for.
#[derive(Debug)]
pub enum Awaited {
    /// A value of a type under one of some keys.
    Keys {
        /// The keys, in the order of the arguments.
        keys: Vec<WaitKey>,
        /// The type of value.
        kind: ValueType,
        /// It is also to be served when a key is gone or holds another type.
        minds_loss: bool,
    },
    /// Replicas that have what the client wrote: WAIT and WAITAOF.
    Acks(Arc<AckWait>),
}

impl Awaited {
    /// The same, each key once.
    fn once(self) -> Awaited {
        match self {
            Awaited::Keys {
                keys,
                kind,
                minds_loss,
            } => Awaited::Keys {
                keys: once(keys),
                kind,
                minds_loss,
            },
            acks @ Awaited::Acks(_) => acks,
        }
    }
}

/// What a wait, from its command.
pub struct Wanted {
    /// What the client waits for.
    pub awaited: Awaited,
    /// Timeout in ms; 0: none.
    pub timeout_ms: u64,
}

/// Removes duplicate keys; keeps the order of first occurrence.
fn once(mut keys: Vec<WaitKey>) -> Vec<WaitKey> {
    if keys.len() < 2 {
        return keys;
    }
    let mut order: Vec<usize> = (0..keys.len()).collect();
    // The sort is stable, so equal keys stay in the order of the arguments.
    order.sort_by(|a, b| keys[*a].key.cmp(&keys[*b].key));
    let mut comes_again = vec![false; keys.len()];
    for pair in order.windows(2) {
        comes_again[pair[1]] = keys[pair[0]].key == keys[pair[1]].key;
    }
    let mut comes_again = comes_again.into_iter();
    keys.retain(|_| !comes_again.next().unwrap_or_default());
    keys
}

type Queue = BTreeMap<u64, Arc<Waiter>>;
type Shard<T> = Mutex<T, { Lock::WaitersShard as u8 }>;

/// All waiting clients.
pub struct Waiters {
    /// By the hash of a key: its waiting clients, by ticket.
    shards: Box<[Shard<FxHashMap<u64, Queue>>]>,
    by_client: Shard<FxHashMap<ClientId, Arc<Waiter>>>,
    /// By IO thread: the clients whose wait has ended. At most all waiting clients are here.
    ended: Box<[Shard<Vec<ClientId>>]>,
    interest: Arc<Interest>,
    chores: Arc<Chores>,
    next_ticket: AtomicU64,
    clients: AtomicUsize,
    timed: AtomicUsize,
    keys: AtomicUsize,
}

impl Waiters {
    /// No waiting clients, for so many IO threads.
    pub fn new(interest: Arc<Interest>, chores: Arc<Chores>, threads: usize) -> Waiters {
        Waiters {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            by_client: Mutex::default(),
            ended: (0..threads.max(1)).map(|_| Mutex::default()).collect(),
            interest,
            chores,
            next_ticket: AtomicU64::new(0),
            clients: AtomicUsize::new(0),
            timed: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
        }
    }

    /// The number of waiting clients. Costs one load.
    pub fn len(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Whether no client waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of clients with a timeout.
    pub fn timed(&self) -> usize {
        self.timed.load(Ordering::Relaxed)
    }

    /// The number of keys with waiting clients.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// The number of keys for which a client waits that is also served when the key is removed.
    /// Looks at all waiting clients.
    pub fn keys_whose_loss_is_minded(&self) -> usize {
        let waiters = self.by_client.lock();
        let minding = waiters.values().filter(|waiter| waiter.minds_loss());
        let keys = minding.flat_map(|waiter| waiter.keys());
        let hashes: FxHashSet<u64> = keys.map(|key| key.hash).collect();
        hashes.len()
    }

    /// Enters a client; the caller holds the locks of the keys.
    pub fn enter(
        &self,
        client: &Arc<ClientInfo>,
        (db, resp3): (DbIndex, bool),
        request: Request,
        wanted: Wanted,
        now_ms: UnixMs,
    ) -> Arc<Waiter> {
        let deadline_ms = now_ms + wanted.timeout_ms;
        let mut waiter = Waiter {
            client: client.clone(),
            request,
            db,
            resp3,
            deadline_ms: (wanted.timeout_ms != 0).then_some(deadline_ms),
            retry_ms: AtomicU64::new(0),
            awaited: wanted.awaited.once(),
            by_hash: Vec::new(),
            ticket: self.next_ticket.fetch_add(1, Ordering::Relaxed),
            phase: Mutex::new(Phase::Waiting),
        };
        let hashes = waiter.keys().iter().map(|key| key.hash);
        waiter.by_hash = hashes.zip(0..).collect();
        waiter.by_hash.sort_unstable();
        let waiter = Arc::new(waiter);
        for key in waiter.keys() {
            self.interest.add(key.hash);
            let mut shard = self.shard(key.hash).lock();
            let queue = shard.entry(key.hash).or_default();
            if queue.is_empty() {
                self.keys.fetch_add(1, Ordering::Relaxed);
            }
            queue.insert(waiter.ticket, waiter.clone());
        }
        let mut by_client = self.by_client.lock();
        self.clients.fetch_add(1, Ordering::Relaxed);
        let timed = usize::from(waiter.deadline_ms.is_some());
        self.timed.fetch_add(timed, Ordering::Relaxed);
        // Others may end the wait from now on: it is counted before.
        by_client.insert(client.id, waiter.clone());
        drop(by_client);
        waiter
    }

    /// The first client after `ticket` that waits for the key and for which `suits` is true.
    pub fn next(
        &self,
        hash: u64,
        (db, key): (DbIndex, &[u8]),
        ticket: Option<u64>,
        suits: impl Fn(&Waiter) -> bool,
    ) -> Option<Arc<Waiter>> {
        let after = ticket.map_or(Bound::Unbounded, Bound::Excluded);
        let shard = self.shard(hash).lock();
        let queue = shard.get(&hash)?.range((after, Bound::Unbounded));
        let fits =
            |waiter: &&Arc<Waiter>| waiter.db == db && suits(waiter) && waiter.waits_for(hash, key);
        queue.map(|(_, waiter)| waiter).find(fits).cloned()
    }

    /// All keys of a DB that clients wait for, for which `suits` is true.
    pub fn keys_in(
        &self,
        db: DbIndex,
        suits: impl Fn(&Waiter) -> bool,
    ) -> impl Iterator<Item = Box<[u8]>> {
        let waiters = self.by_client.lock();
        let suiting = waiters.values().filter(|w| w.db == db && suits(w));
        let mut waiters: Vec<&Arc<Waiter>> = suiting.collect();
        waiters.sort_unstable_by_key(|waiter| waiter.ticket);
        let keys = waiters.iter().flat_map(|waiter| waiter.keys());
        let keys: Vec<Box<[u8]>> = keys.map(|key| key.key.clone()).collect();
        keys.into_iter()
    }

    /// Ends the wait of a claimed client. Returns the thread that must be woken.
    pub fn finish(&self, waiter: &Arc<Waiter>, verdict: Verdict) -> Option<usize> {
        let mut phase = waiter.phase.lock();
        let here = matches!(*phase, Phase::Claimed);
        if here {
            *phase = Phase::Ending(verdict);
        }
        drop(phase);
        // The thread that abandoned it has removed it.
        here.then(|| self.end(waiter)).flatten()
    }

    /// Ends the wait of a client, unless it has ended or is being served. Returns whether it
    /// waited, and the thread that must be woken.
    pub fn interrupt(&self, client: ClientId, verdict: Verdict) -> (bool, Option<usize>) {
        let waiter = self.by_client.lock().get(&client).cloned();
        match waiter.filter(|waiter| waiter.step(Phase::Ending(verdict))) {
            Some(waiter) => (true, self.end(&waiter)),
            None => (false, None),
        }
    }

    /// Ends the wait of a client whose timeout has passed. Returns `false` if the client is
    /// being served at this moment.
    pub fn time_out(&self, waiter: &Arc<Waiter>) -> bool {
        if waiter.step(Phase::Ending(Verdict::TimedOut)) {
            self.end(waiter);
        }
        !matches!(*waiter.phase.lock(), Phase::Claimed)
    }

    /// Ends the wait of a disconnected client: nothing is served to it from now on.
    pub fn abandon(&self, waiter: &Arc<Waiter>) {
        let mut phase = waiter.phase.lock();
        let entered = matches!(*phase, Phase::Waiting | Phase::Claimed);
        *phase = Phase::Abandoned;
        drop(phase);
        if entered && self.leaves(waiter, |server, waiter| server.waiters.take_out(waiter)) {
            self.take_out(waiter);
        }
    }

    /// All clients that wait.
    pub fn all(&self) -> Vec<ClientId> {
        self.by_client.lock().keys().copied().collect()
    }

    /// The clients of an IO thread whose wait has ended since the last call.
    pub fn take_ended(&self, thread: usize) -> Vec<ClientId> {
        let list = self.ended.get(thread);
        list.map_or_else(Vec::new, |list| std::mem::take(&mut *list.lock()))
    }

    /// Takes a client out of the lists of its keys, or leaves that to others, who then tell its
    /// thread. Returns the thread that must be woken.
    fn end(&self, waiter: &Arc<Waiter>) -> Option<usize> {
        let here = self.leaves(waiter, |server, waiter| {
            let thread = server.waiters.end_now(waiter);
            server.wake_threads([thread]);
        });
        here.then(|| self.end_now(waiter))
    }

    /// Leaves a client with many keys to others, who do this. `true`: it has few, or nobody takes it.
    fn leaves(&self, waiter: &Arc<Waiter>, then: fn(&Server, &Waiter)) -> bool {
        if !waiter.has_many_keys() {
            return true;
        }
        let waiter = waiter.clone();
        let left = self
            .chores
            .leave(Box::new(move |server| then(server, &waiter)));
        left.is_err()
    }

    /// Takes a client out of the lists of its keys. Returns the thread that must be woken.
    fn end_now(&self, waiter: &Waiter) -> usize {
        self.take_out(waiter);
        waiter.show_verdict();
        let thread = waiter.client.thread;
        if let Some(list) = self.ended.get(thread) {
            list.lock().push(waiter.client.id);
        }
        thread
    }

    /// Takes a client out of the lists of its keys.
    fn take_out(&self, waiter: &Waiter) {
        for key in waiter.keys() {
            let mut shard = self.shard(key.hash).lock();
            if let Some(queue) = shard.get_mut(&key.hash) {
                queue.remove(&waiter.ticket);
                if queue.is_empty() {
                    shard.remove(&key.hash);
                    self.keys.fetch_sub(1, Ordering::Relaxed);
                }
            }
            drop(shard);
            self.interest.remove(key.hash);
        }
        let mut by_client = self.by_client.lock();
        // A client whose wait was abandoned after a failed commit may wait again.
        if (by_client.get(&waiter.client.id)).is_some_and(|last| last.ticket == waiter.ticket) {
            by_client.remove(&waiter.client.id);
        }
        drop(by_client);
        self.clients.fetch_sub(1, Ordering::Relaxed);
        let timed = usize::from(waiter.deadline_ms.is_some());
        self.timed.fetch_sub(timed, Ordering::Relaxed);
    }

    fn shard(&self, hash: u64) -> &Shard<FxHashMap<u64, Queue>> {
        &self.shards[hash as usize & (SHARDS - 1)]
    }
}

/// The condition of WAIT and WAITAOF.
#[derive(Debug)]
pub struct AckWait {
    /// The binlog position to acknowledge.
    pub target: Position,
    /// The number of replicas required.
    pub replicas: usize,
    /// For WAITAOF: acknowledgements count when synced; `true`: also the local disk is
    /// required.
    pub synced: Option<bool>,
    /// The number of replicas at the last check.
    pub(super) found: AtomicUsize,
    pub(super) found_here: AtomicBool,
}

impl AckWait {
    /// A wait that has not been checked yet.
    pub fn new(target: Position, replicas: usize, synced: Option<bool>) -> AckWait {
        AckWait {
            target,
            replicas,
            synced,
            found: AtomicUsize::new(0),
            found_here: AtomicBool::new(false),
        }
    }

    /// The reply, as of the last check.
    pub fn reply(&self) -> Vec<u8> {
        let found = self.found.load(Ordering::Relaxed);
        match self.synced {
            None => format!(":{found}\r\n"),
            Some(_) => {
                let here = u8::from(self.found_here.load(Ordering::Relaxed));
                format!("*2\r\n:{here}\r\n:{found}\r\n")
            }
        }
        .into_bytes()
    }
}
