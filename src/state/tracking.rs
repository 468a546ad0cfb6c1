//! Client-side caching (CLIENT TRACKING): which client may have cached which key, and the
//! invalidations.
//!
//! By default a client gets invalidations of keys that it has read: a read records the client
//! in a table while it holds the key's lock, so every later writer finds it there. With BCAST a
//! client gets invalidations of all keys with a prefix, and nothing is recorded. Writers keep
//! the changes of their tick (see [`crate::storage::txn::changes`]). When the tick is durable
//! they turn them into invalidations, which are sent like all messages to clients: an
//! invalidation never overtakes the reply with the value, and precedes the writer's reply.
//!
//! A key leaves the table with its invalidation. The table has at most
//! `tracking-table-max-keys` keys. Disconnected clients of a key are removed when others are
//! added.

use super::Server;
use super::client_id::ClientId;
use super::clients::{ClientFlags, ClientInfo, Clients};
use super::delivery::Form;
use super::pubsub::Outbox;
use super::session::{Session, TrackingOptions};
use crate::resp::Reply;
use crate::storage::DbIndex;
use crate::storage::engine::listeners::{Change, How, Interest};
use crate::sys::lock_order::{Lock, Mutex, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shards of the table, each with a lock; a power of two.
const PARTS: usize = 64;
/// Number of clients of one key from which disconnected ones are searched for.
const PURGE_FROM: usize = 16;
/// Most keys that one tick removes from a table that is too large.
const EVICT_MAX: usize = 1000;
/// The channel on which clients that speak RESP2 get invalidations.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// The clients that have read a key.
struct Readers {
    /// The key's hash, for [`Interest`].
    hash: u64,
    clients: SmallVec<[ClientId; 2]>,
}

type Part = FxHashMap<(DbIndex, Box<[u8]>), Readers>;

/// Which client may have cached which key.
pub struct Tracking {
    interest: Arc<Interest>,
    clients: AtomicUsize,
    keys: AtomicUsize,
    items: AtomicUsize,
    parts: Box<[Mutex<Part, { Lock::TrackingPart as u8 }>]>,
    /// The shard from which the next surplus key is removed.
    victim: AtomicUsize,
    prefixes: RwLock<BTreeMap<Box<[u8]>, BTreeSet<ClientId>>, { Lock::TrackingPart as u8 }>,
}

/// Keys, and the client that changed each last.
type Changed<'a> = BTreeMap<&'a [u8], Option<ClientId>>;

/// The content of an invalidation: keys, or all keys.
enum Stale<'a> {
    Keys(&'a [&'a [u8]]),
    Everything,
}

impl Tracking {
    /// An empty table; `interest` is the engine's.
    pub fn new(interest: Arc<Interest>) -> Tracking {
        Tracking {
            interest,
            clients: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            victim: AtomicUsize::new(0),
            prefixes: RwLock::default(),
        }
    }

    /// The number of clients with tracking.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Acquire)
    }

    /// The number of keys in the table, and of clients recorded there.
    pub fn table_size(&self) -> (usize, usize) {
        let load = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        (load(&self.keys), load(&self.items))
    }

    /// The number of different prefixes.
    pub fn prefixes(&self) -> usize {
        self.prefixes.read().len()
    }

    /// Begins tracking for a client, or changes its options.
    pub fn start(
        &self,
        session: &mut Session,
        flags: ClientFlags,
        redirect: u64,
        choice: TrackingOptions,
    ) {
        let info = session.info.clone();
        if session.tracking.is_none() {
            self.clients.fetch_add(1, Ordering::AcqRel);
            self.interest.add_whole_dbs();
        }
        for flag in (ClientFlags::TRACKING_OPTIONS | ClientFlags::TRACKING).iter() {
            let before = info.set_flag(flag, flags.contains(flag));
            let begins = flag == ClientFlags::TRACKING_BCAST && flags.contains(flag) && !before;
            if begins {
                self.interest.add_everything();
            }
        }
        info.redirect.store(redirect, Ordering::Release);
        let TrackingOptions {
            optin,
            optout,
            mut prefixes,
            ..
        } = choice;
        if flags.contains(ClientFlags::TRACKING_BCAST) {
            if prefixes.is_empty() {
                prefixes.insert(Box::default());
            }
            let mut all = self.prefixes.write();
            for prefix in &prefixes {
                all.entry(prefix.clone()).or_default().insert(info.id);
            }
        }
        let chosen = session.tracking.get_or_insert_default();
        (chosen.optin, chosen.optout, chosen.caching) = (optin, optout, false);
        chosen.prefixes.append(&mut prefixes);
    }

    /// Ends tracking for a client. Its entries in the table are ignored from now on.
    pub fn stop(&self, session: &mut Session) {
        let Some(choice) = session.tracking.take() else {
            return;
        };
        self.interest.remove_whole_dbs();
        let info = &session.info;
        if info.flags().contains(ClientFlags::TRACKING_BCAST) {
            self.interest.remove_everything();
        }
        for flag in (ClientFlags::TRACKING_OPTIONS | ClientFlags::TRACKING).iter() {
            info.set_flag(flag, false);
        }
        info.redirect.store(0, Ordering::Release);
        if !choice.prefixes.is_empty() {
            let mut all = self.prefixes.write();
            for prefix in &choice.prefixes {
                if let Some(clients) = all.get_mut(prefix) {
                    clients.remove(&info.id);
                    if clients.is_empty() {
                        all.remove(prefix);
                    }
                }
            }
        }
        if self.clients.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.clear(|| self.clients() == 0);
        }
    }

    /// Records that a client has read a key, whose lock is held.
    pub fn note_read(
        &self,
        clients: &Clients,
        client: ClientId,
        db: DbIndex,
        key: &[u8],
        hash: u64,
    ) {
        let mut part = self.parts[hash as usize % PARTS].lock();
        let place = (db, Box::from(key));
        let readers = part.entry(place).or_insert_with(|| {
            self.interest.add(hash);
            self.keys.fetch_add(1, Ordering::Relaxed);
            let clients = SmallVec::new();
            Readers { hash, clients }
        });
        let readers = &mut readers.clients;
        if readers.contains(&client) {
            return;
        }
        if readers.len() >= PURGE_FROM && readers.len().is_power_of_two() {
            let before = readers.len();
            readers.retain(|id| clients.get(*id).is_some_and(|info| reads(&info)));
            self.items
                .fetch_sub(before - readers.len(), Ordering::Relaxed);
        }
        readers.push(client);
        self.items.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes keys while there are more than `max` (0: no limit), and sends their
    /// invalidations.
    pub fn limit(&self, server: &Server, max: u64, outbox: &mut Outbox) {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let (mut dropped, mut empty) = (0, 0);
        while max > 0
            && self.keys.load(Ordering::Relaxed) > max
            && dropped < EVICT_MAX
            && empty < PARTS
        {
            let at = self.victim.fetch_add(1, Ordering::Relaxed) % PARTS;
            let key = self.parts[at].lock().keys().next().cloned();
            match key {
                Some((db, key)) => {
                    self.invalidate_key(server, db, &key, None, outbox);
                    (dropped, empty) = (dropped + 1, 0);
                }
                None => empty += 1,
            }
        }
    }

    /// Sends the invalidations of changes that are committed and durable.
    pub(super) fn invalidate(&self, server: &Server, changes: &[Change], outbox: &mut Outbox) {
        if self.clients() == 0 {
            return;
        }
        let mut by_prefix: BTreeMap<Box<[u8]>, Changed<'_>> = BTreeMap::new();
        let mut sent_everything = false;
        for change in changes {
            match change {
                Change::Key { db, key, how, by } => {
                    let by = (*how != How::Expired).then_some(ClientId(*by));
                    self.invalidate_key(server, *db, key, by, outbox);
                    for_each_prefix(&self.prefixes.read(), key, |prefix| {
                        let keys = by_prefix.entry(prefix.into()).or_default();
                        keys.insert(key, by);
                    });
                    sent_everything = false;
                }
                Change::Cleared { .. } | Change::Swapped { .. } if sent_everything => {}
                Change::Cleared { .. } | Change::Swapped { .. } => {
                    self.clear(|| true);
                    for info in server.clients.all() {
                        if info.flags().contains(ClientFlags::TRACKING) {
                            send(server, &info, &Stale::Everything, outbox);
                        }
                    }
                    sent_everything = true;
                }
            }
        }
        for (prefix, keys) in &by_prefix {
            self.broadcast(server, prefix, keys, outbox);
        }
    }

    /// Sends a client, before its tracking ends, the invalidations of changes in the running
    /// transaction: after the commit it would not be found. The keys stay in the table, as the
    /// commit may fail.
    pub fn tell_reader(
        &self,
        server: &Server,
        info: &ClientInfo,
        changes: &[Change],
        outbox: &mut Outbox,
    ) {
        if !reads(info) {
            return;
        }
        for change in changes {
            let Change::Key { db, key, how, by } = change else {
                send(server, info, &Stale::Everything, outbox);
                return;
            };
            let by = (*how != How::Expired).then_some(ClientId(*by));
            let hash = server.engine.key_hash(*db, key);
            let part = self.parts[hash as usize % PARTS].lock();
            let readers = part.get(&(*db, key.clone()));
            let has_read = readers.is_some_and(|readers| readers.clients.contains(&info.id));
            drop(part);
            if has_read && !is_own(info, by) {
                send(server, info, &Stale::Keys(&[key]), outbox);
            }
        }
    }

    /// Removes a key from the table and sends its readers an invalidation; `by` is the client
    /// that changed it.
    fn invalidate_key(
        &self,
        server: &Server,
        db: DbIndex,
        key: &[u8],
        by: Option<ClientId>,
        outbox: &mut Outbox,
    ) {
        let hash = server.engine.key_hash(db, key);
        let removed = self.parts[hash as usize % PARTS]
            .lock()
            .remove(&(db, Box::from(key)));
        let Some(readers) = removed else {
            return;
        };
        self.forget(&readers);
        for client in readers.clients {
            if let Some(info) = server.clients.get(client)
                && reads(&info)
                && !is_own(&info, by)
            {
                send(server, &info, &Stale::Keys(&[key]), outbox);
            }
        }
    }

    fn broadcast(&self, server: &Server, prefix: &[u8], keys: &Changed<'_>, outbox: &mut Outbox) {
        let clients: Vec<ClientId> = match self.prefixes.read().get(prefix) {
            Some(clients) => clients.iter().copied().collect(),
            None => return,
        };
        for client in clients {
            let Some(info) = server.clients.get(client) else {
                continue;
            };
            let stale = keys.iter().filter(|(_, by)| !is_own(&info, **by));
            let stale: Vec<&[u8]> = stale.map(|(key, _)| *key).collect();
            if !stale.is_empty() {
                send(server, &info, &Stale::Keys(&stale), outbox);
            }
        }
    }

    /// Empties the table, as long as `wanted` holds.
    fn clear(&self, wanted: impl Fn() -> bool) {
        for part in &self.parts {
            let mut part = part.lock();
            if !wanted() {
                return;
            }
            std::mem::take(&mut *part)
                .values()
                .for_each(|readers| self.forget(readers));
        }
    }

    fn forget(&self, readers: &Readers) {
        self.interest.remove(readers.hash);
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.items
            .fetch_sub(readers.clients.len(), Ordering::Relaxed);
    }
}

/// Calls `each` with the keys of `all` that are prefixes of `key`. Looks at few others, however
/// many there are.
fn for_each_prefix<T>(all: &BTreeMap<Box<[u8]>, T>, key: &[u8], mut each: impl FnMut(&[u8])) {
    let mut bound = Bound::Included(key);
    while let Some((found, _)) = all.range::<[u8], _>((Bound::Unbounded, bound)).next_back() {
        // All other prefixes of `key` sort before this one.
        bound = match key.starts_with(found) {
            true => {
                each(found);
                Bound::Excluded(found)
            }
            false => {
                let same = found.iter().zip(key).take_while(|(a, b)| a == b).count();
                Bound::Included(&key[..same])
            }
        };
    }
}

/// Whether a client gets invalidations of keys that it has read.
fn reads(info: &ClientInfo) -> bool {
    let flags = info.flags();
    flags.contains(ClientFlags::TRACKING) && !flags.contains(ClientFlags::TRACKING_BCAST)
}

/// Whether a client has made the change itself and does not want its invalidation (NOLOOP).
fn is_own(info: &ClientInfo, by: Option<ClientId>) -> bool {
    by == Some(info.id) && info.flags().contains(ClientFlags::TRACKING_NOLOOP)
}

/// The invalidation of all keys, for a client that speaks RESP3.
pub fn everything() -> Vec<u8> {
    let mut push = Reply::new(true);
    push.push(2);
    push.bulk(b"invalidate");
    push.null();
    push.buf
}

/// Sends an invalidation to a client, or to the client of its REDIRECT.
fn send(server: &Server, info: &ClientInfo, stale: &Stale<'_>, outbox: &mut Outbox) {
    let resp3 = info.resp.load(Ordering::Relaxed) == 3;
    let mut value = Reply::new(resp3);
    match stale {
        Stale::Everything => value.null(),
        Stale::Keys(keys) => {
            value.array(keys.len());
            keys.iter().for_each(|key| value.bulk(key));
        }
    }
    let mut push = Reply::new(true);
    let redirect = ClientId(info.redirect.load(Ordering::Acquire));
    if redirect.0 == 0 {
        push.push(2);
        push.bulk(b"invalidate");
        push.raw(&value.buf);
        return outbox.send(info.thread, info.id, push.buf.into(), Form::Push);
    }
    let Some(target) = server.clients.get(redirect) else {
        info.set_flag(ClientFlags::TRACKING_BROKEN, true);
        push.push(2);
        push.bulk(b"tracking-redir-broken");
        push.int(redirect.0 as i64);
        return outbox.send(info.thread, info.id, push.buf.into(), Form::Push);
    };
    if target.resp.load(Ordering::Relaxed) == 3 {
        push.push(2);
        push.bulk(b"invalidate");
        push.raw(&value.buf);
        outbox.send(target.thread, target.id, push.buf.into(), Form::Push);
    } else if target.flags().contains(ClientFlags::PUBSUB) {
        push.push(3);
        push.bulk(b"message");
        push.bulk(CHANNEL);
        push.raw(&value.buf);
        outbox.send(target.thread, target.id, push.buf.into(), Form::Message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefixes_of_a_key_are_found_among_many() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut word = |most: usize| -> Box<[u8]> {
                let len = rng.usize(..=most);
                (0..len).map(|_| rng.u8(b'a'..=b'c')).collect()
            };
            let all: BTreeMap<Box<[u8]>, ()> = (0..50).map(|_| (word(5), ())).collect();
            let key = word(8);
            let mut found = Vec::new();
            for_each_prefix(&all, &key, |prefix| found.push(prefix.to_vec()));
            found.reverse();
            let expected: Vec<Vec<u8>> = all
                .keys()
                .filter(|prefix| key.starts_with(prefix))
                .map(|prefix| prefix.to_vec())
                .collect();
            assert_eq!(found, expected, "{}", key.escape_ascii());
        }
    }
}
