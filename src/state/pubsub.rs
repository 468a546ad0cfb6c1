//! Publish and subscribe: who listens to what, and messages on their way out.
//!
//! [`PubSub`] is the one structure for channels, patterns and shard channels:
//! ordered by name, for each name the subscribers by IO thread. A publisher takes
//! what it finds there as it stands (a list of subscribers is replaced, never
//! changed, while somebody holds it).
//!
//! What a command publishes is for who is subscribed at that moment, and waits in its
//! thread's [`Outbox`] until the tick is durable. Then it goes into the queues of the
//! recipients' threads, under the lock that subscribing needs, but not to who has
//! unsubscribed since: so when a client has unsubscribed, all it will ever get from
//! other threads is in its thread's queue already, and is taken from there before the
//! confirmation, as is what waits in the outbox of its own thread (see
//! [`PubSub::leave`]).
//!
//! The receivers of a keyspace event are found when the tick is durable, or before that if
//! the thread runs a command that changes subscriptions.
//!
//! Order: a thread's messages go out in the order of its commands, and a queue
//! keeps it.

use super::Server;
use super::client_id::ClientId;
use super::clients::ClientFlags;
use super::config::NotifyEvents;
use super::delivery::{Delivery, Form, Recipients};
use super::replication::Published;
use super::session::Session;
use super::subscriptions::{KINDS, Name, SubscriptionKind};
use crate::base::glob;
use crate::resp::Reply;
use crate::storage::txn::events::Event;
use crate::sys::lock_order::{Lock, RwLock};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The subscribers of one name, by thread.
#[derive(Debug, Clone, Default)]
struct Subscribers(SmallVec<[(usize, Arc<Vec<ClientId>>); 4]>);

impl Subscribers {
    fn len(&self) -> usize {
        self.0.iter().map(|(_, clients)| clients.len()).sum()
    }

    fn add(&mut self, thread: usize, client: ClientId) {
        let at = match self.0.iter().position(|(t, _)| *t == thread) {
            Some(at) => at,
            None => {
                self.0.push((thread, Arc::default()));
                self.0.len() - 1
            }
        };
        let clients = Arc::make_mut(&mut self.0[at].1);
        if let Err(place) = clients.binary_search(&client) {
            clients.insert(place, client);
        }
    }

    fn has(&self, thread: usize, client: ClientId) -> bool {
        let of_thread = self.0.iter().find(|(t, _)| *t == thread);
        of_thread.is_some_and(|(_, clients)| clients.binary_search(&client).is_ok())
    }

    fn remove(&mut self, thread: usize, client: ClientId) {
        let Some(at) = self.0.iter().position(|(t, _)| *t == thread) else {
            return;
        };
        let clients = Arc::make_mut(&mut self.0[at].1);
        if let Ok(place) = clients.binary_search(&client) {
            clients.remove(place);
        }
        if clients.is_empty() {
            self.0.swap_remove(at);
        }
    }

    /// Removes who is neither among these nor among those that have `left`.
    fn keep_those_in(&mut self, others: Option<&Subscribers>, left: &[(usize, ClientId)]) {
        self.0.retain(|(thread, clients)| {
            let others = others.and_then(|others| others.0.iter().find(|(t, _)| t == thread));
            let now = others.map(|(_, now)| now);
            if !now.is_some_and(|now| Arc::ptr_eq(clients, now)) {
                let is_there =
                    |client: &ClientId| now.is_some_and(|now| now.binary_search(client).is_ok());
                let stays =
                    |client: &ClientId| is_there(client) || left.contains(&(*thread, *client));
                Arc::make_mut(clients).retain(stays);
            }
            !clients.is_empty()
        });
    }
}

#[derive(Debug, Default)]
struct Tables {
    /// Grows with every change.
    version: u64,
    by_kind: [BTreeMap<Name, Subscribers>; 3],
}

impl Tables {
    fn of(&self, kind: SubscriptionKind) -> &BTreeMap<Name, Subscribers> {
        &self.by_kind[kind as usize]
    }

    fn find(&self, kind: SubscriptionKind, channel: &[u8]) -> Targets {
        let mut targets = Targets {
            version: self.version,
            found: SmallVec::new(),
        };
        if let Some(subscribers) = self.of(kind).get(channel) {
            targets.found.push((None, subscribers.clone()));
        }
        if kind == SubscriptionKind::Channel {
            for (pattern, subscribers) in self.of(SubscriptionKind::Pattern) {
                if glob::matches(pattern, channel, false) {
                    let pattern = Some(pattern.clone());
                    targets.found.push((pattern, subscribers.clone()));
                }
            }
        }
        targets
    }

    /// Removes from the recipients of a message who has unsubscribed since, but not those
    /// that have `left` and get it all the same.
    fn keep_subscribed(
        &self,
        kind: SubscriptionKind,
        channel: &[u8],
        targets: &mut Targets,
        left: &[(usize, ClientId)],
    ) {
        if targets.version == self.version {
            return;
        }
        for (pattern, subscribers) in &mut targets.found {
            let now = match pattern {
                Some(pattern) => self.of(SubscriptionKind::Pattern).get(pattern),
                None => self.of(kind).get(channel),
            };
            subscribers.keep_those_in(now, left);
        }
    }
}

/// The subscribers of a channel, as of one moment.
#[derive(Debug, Default)]
pub struct Targets {
    version: u64,
    /// The pattern that matched, if it was one.
    found: SmallVec<[(Option<Name>, Subscribers); 1]>,
}

impl Targets {
    /// How many messages will be sent.
    pub fn count(&self) -> usize {
        self.found.iter().map(|(_, s)| s.len()).sum()
    }
}

/// The subscribers of all channels and patterns.
#[derive(Debug, Default)]
pub struct PubSub {
    tables: RwLock<Tables, { Lock::PubSubTables as u8 }>,
    names: [AtomicUsize; 3],
}

impl PubSub {
    /// How many names of a kind have subscribers.
    pub fn len(&self, kind: SubscriptionKind) -> usize {
        self.names[kind as usize].load(Ordering::Acquire)
    }

    /// Whether nobody can get a message to a channel of this kind: one or two loads.
    pub fn is_silent(&self, kind: SubscriptionKind) -> bool {
        self.len(kind) == 0
            && (kind == SubscriptionKind::Shard || self.len(SubscriptionKind::Pattern) == 0)
    }

    /// The subscribers of a channel or shard channel.
    pub fn find(&self, kind: SubscriptionKind, channel: &[u8]) -> Targets {
        match self.is_silent(kind) {
            true => Targets::default(),
            false => self.tables.read().find(kind, channel),
        }
    }

    /// How many clients are subscribed to this very name.
    pub fn subscribers(&self, kind: SubscriptionKind, name: &[u8]) -> usize {
        let tables = self.tables.read();
        tables.of(kind).get(name).map_or(0, Subscribers::len)
    }

    /// Calls `each` with all names of a kind in order.
    pub fn for_each(&self, kind: SubscriptionKind, mut each: impl FnMut(&[u8])) {
        let tables = self.tables.read();
        tables.of(kind).keys().for_each(|name| each(name));
    }

    /// Subscribes a client, on its own thread, whose outbox this is.
    pub fn join(
        &self,
        session: &mut Session,
        outbox: &mut Outbox,
        kind: SubscriptionKind,
        name: &[u8],
    ) {
        if session.subscriptions.names(kind).contains(name) {
            return;
        }
        let mut tables = self.tables.write();
        outbox.find_targets(&tables);
        tables.version += 1;
        let table = &mut tables.by_kind[kind as usize];
        let name = match table.get_key_value(name) {
            Some((known, _)) => known.clone(),
            None => Name::from(name),
        };
        let subscribers = table.entry(name.clone()).or_default();
        subscribers.add(session.info.thread, session.info.id);
        self.names[kind as usize].store(table.len(), Ordering::Release);
        drop(tables);
        session.subscriptions.0[kind as usize].insert(name);
        note(session, kind);
    }

    /// Unsubscribes a client, on its own thread, whose outbox this is; says whether it was
    /// subscribed. [`PubSub::settle`] comes after the last name if it was to one.
    pub fn leave(
        &self,
        session: &mut Session,
        outbox: &mut Outbox,
        kind: SubscriptionKind,
        name: &[u8],
    ) -> bool {
        let is_subscribed = session.subscriptions.names(kind).contains(name);
        if is_subscribed {
            outbox.find_targets(&self.tables.read());
            self.remove(session, kind, name);
        }
        is_subscribed
    }

    /// A client has unsubscribed from names. What was published before and still waits
    /// for it goes before the reply of the command that runs; what the running
    /// transaction itself has published, after it: see [`Outbox::end_transaction`].
    pub fn settle(&self, server: &Server, session: &mut Session, outbox: &mut Outbox) {
        session.overtake(server);
        match session.deny_blocking {
            true => session.left_names = true,
            false => outbox.settle(session, false),
        }
    }

    /// Unsubscribes a client from everything.
    pub fn leave_all(&self, server: &Server, session: &mut Session, outbox: &mut Outbox) {
        if !session.subscriptions.is_empty() {
            outbox.find_targets(&self.tables.read());
            self.forget(session);
            self.settle(server, session, outbox);
        }
    }

    /// Unsubscribes a client that is gone from everything.
    pub fn forget(&self, session: &mut Session) {
        for kind in KINDS {
            while let Some(name) = session.subscriptions.names(kind).first().cloned() {
                self.remove(session, kind, &name);
            }
        }
    }

    fn remove(&self, session: &mut Session, kind: SubscriptionKind, name: &[u8]) {
        if !session.subscriptions.0[kind as usize].remove(name) {
            return;
        }
        let mut tables = self.tables.write();
        tables.version += 1;
        let table = &mut tables.by_kind[kind as usize];
        if let Some(subscribers) = table.get_mut(name) {
            subscribers.remove(session.info.thread, session.info.id);
            if subscribers.0.is_empty() {
                table.remove(name);
            }
        }
        self.names[kind as usize].store(table.len(), Ordering::Release);
        drop(tables);
        note(session, kind);
    }
}

/// Lets other threads see how a client is subscribed.
fn note(session: &Session, kind: SubscriptionKind) {
    let len = session.subscriptions.names(kind).len();
    session.info.subscriptions[kind as usize].store(len as u32, Ordering::Relaxed);
    let any = !session.subscriptions.is_empty();
    session.info.set_flag(ClientFlags::PUBSUB, any);
}

/// Something on its way out.
#[derive(Debug)]
enum Outgoing {
    Publish {
        kind: SubscriptionKind,
        channel: Box<[u8]>,
        message: Box<[u8]>,
        /// As of when it was published; nothing if nobody has looked yet.
        targets: Option<Targets>,
        /// Clients, with their threads, that get it although they have unsubscribed in
        /// the transaction that published it.
        left: Vec<(usize, ClientId)>,
        /// Clients of replicas may listen, too.
        to_replicas: bool,
    },
    Direct {
        thread: usize,
        delivery: Delivery,
    },
}

impl Outgoing {
    /// A client of this thread has unsubscribed from names: it gets what was published
    /// before that by those all the same. Now, before the reply of the command that runs,
    /// or with the rest of its transaction (`later`).
    fn settle(&mut self, session: &mut Session, later: bool) {
        let (thread, id) = (session.info.thread, session.info.id);
        let Outgoing::Publish {
            kind,
            channel,
            message,
            targets: Some(targets),
            left,
            ..
        } = self
        else {
            return;
        };
        for (pattern, subscribers) in &mut targets.found {
            let is_subscribed = match pattern {
                Some(pattern) => session
                    .subscriptions
                    .names(SubscriptionKind::Pattern)
                    .contains(pattern),
                None => session.subscriptions.names(*kind).contains(&**channel),
            };
            if is_subscribed || !subscribers.has(thread, id) {
                continue;
            }
            if later {
                left.push((thread, id));
                continue;
            }
            subscribers.remove(thread, id);
            let delivery = Delivery {
                to: Recipients::One(id),
                bytes: push_of(*kind, pattern.as_deref(), channel, message),
                form: Form::Message,
            };
            delivery.write(session.resp3, &mut session.overtaken);
        }
    }

    /// Whether it is for this client although that is not subscribed any more.
    fn is_owed_to(&self, client: ClientId) -> bool {
        match self {
            Outgoing::Publish { left, .. } => left.iter().any(|(_, left)| *left == client),
            Outgoing::Direct { delivery, .. } => delivery.to.as_slice() == [client],
        }
    }
}

/// What the commands of one thread send to clients once their tick is durable.
#[derive(Debug, Default)]
pub struct Outbox {
    items: Vec<Outgoing>,
    /// Whether nobody has looked yet who gets some of the items.
    has_unknown_targets: bool,
    /// The IO thread that this one is: it need not be woken.
    thread: Option<usize>,
}

impl Outbox {
    /// The outbox of an IO thread.
    pub fn of_thread(thread: usize) -> Outbox {
        Outbox {
            thread: Some(thread),
            ..Outbox::default()
        }
    }

    /// What waits, to be sent later; nothing waits here any more.
    #[must_use]
    pub fn take(&mut self) -> Outbox {
        let thread = self.thread;
        let empty = Outbox {
            thread,
            ..Outbox::default()
        };
        std::mem::replace(self, empty)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Publishes a message here, and to the clients of replicas; `targets` is who
    /// listens.
    pub fn publish(
        &mut self,
        kind: SubscriptionKind,
        channel: &[u8],
        message: &[u8],
        targets: Targets,
    ) {
        self.items.push(Outgoing::Publish {
            kind,
            channel: channel.into(),
            message: message.into(),
            targets: Some(targets),
            left: Vec::new(),
            to_replicas: true,
        });
    }

    /// Publishes a message to the clients of this server only.
    pub fn publish_here(
        &mut self,
        kind: SubscriptionKind,
        channel: &[u8],
        message: &[u8],
        targets: Targets,
    ) {
        self.items.push(Outgoing::Publish {
            kind,
            channel: channel.into(),
            message: message.into(),
            targets: Some(targets),
            left: Vec::new(),
            to_replicas: false,
        });
    }

    /// Finds out who gets what waits here, before that changes.
    fn find_targets(&mut self, tables: &Tables) {
        if !std::mem::take(&mut self.has_unknown_targets) {
            return;
        }
        for item in &mut self.items {
            if let Outgoing::Publish {
                kind,
                channel,
                targets: targets @ None,
                ..
            } = item
            {
                *targets = Some(tables.find(*kind, channel));
            }
        }
    }

    /// A client of this thread has unsubscribed from names.
    fn settle(&mut self, session: &mut Session, later: bool) {
        let items = self.items.iter_mut();
        items.for_each(|item| item.settle(session, later));
    }

    /// The transaction of a client of this thread ends: what it has published goes to the
    /// client itself, too, if that was subscribed then. Once for the whole transaction, which
    /// may have many commands that publish and unsubscribe.
    pub fn end_transaction(&mut self, session: &mut Session) {
        if std::mem::take(&mut session.left_names) {
            self.settle(session, true);
        }
    }

    /// Whether something here is for a client that may not be subscribed any more.
    pub fn is_for(&self, client: ClientId) -> bool {
        self.items.iter().any(|item| item.is_owed_to(client))
    }

    /// Publishes keyspace events to the channels that `notify` names.
    pub fn notify(&mut self, server: &Server, notify: NotifyEvents, events: &[Event]) {
        if server.pubsub.is_silent(SubscriptionKind::Channel) {
            return;
        }
        self.has_unknown_targets = true;
        let mut publish = |channel: String, name: &[u8], message: &[u8]| {
            self.items.push(Outgoing::Publish {
                kind: SubscriptionKind::Channel,
                channel: [channel.as_bytes(), name].concat().into(),
                message: message.into(),
                targets: None,
                left: Vec::new(),
                to_replicas: false,
            });
        };
        for Event { db, name, key } in events {
            let name = name.as_bytes();
            if notify.contains(NotifyEvents::KEYSPACE) {
                publish(format!("__keyspace@{}__:", db.0), key, name);
            }
            if notify.contains(NotifyEvents::KEYEVENT) {
                publish(format!("__keyevent@{}__:", db.0), name, key);
            }
        }
    }

    /// How much waits, for [`Outbox::truncate`].
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Forgets what came after the first `len` items.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
    }

    /// Sends bytes to one client.
    pub fn send(&mut self, thread: usize, client: ClientId, bytes: Arc<[u8]>, form: Form) {
        let to = Recipients::One(client);
        let delivery = Delivery { to, bytes, form };
        self.items.push(Outgoing::Direct { thread, delivery });
    }

    /// Hands everything to the threads of its recipients. The tick is durable.
    pub fn flush(&mut self, server: &Server) {
        if self.items.is_empty() {
            return;
        }
        let mut batches: Vec<Vec<Delivery>> = vec![Vec::new(); server.mailboxes().len()];
        let mut for_replicas = Vec::new();
        let tables = server.pubsub.tables.read();
        for item in self.items.drain(..) {
            match item {
                Outgoing::Publish {
                    kind,
                    channel,
                    message,
                    targets,
                    left,
                    to_replicas,
                } => {
                    let targets = match targets {
                        None => tables.find(kind, &channel),
                        Some(mut targets) => {
                            tables.keep_subscribed(kind, &channel, &mut targets, &left);
                            targets
                        }
                    };
                    spread(kind, &channel, &message, &targets, &mut batches);
                    if to_replicas {
                        for_replicas.push(Published {
                            kind,
                            channel,
                            message,
                        });
                    }
                }
                Outgoing::Direct { thread, delivery } => {
                    if let Some(batch) = batches.get_mut(thread) {
                        batch.push(delivery);
                    }
                }
            }
        }
        if !for_replicas.is_empty() {
            // All that was written before stands before this position.
            let after = server.engine.binlog.range().next_position;
            server.replication.publish(after, for_replicas);
        }
        for (thread, batch) in batches.into_iter().enumerate() {
            if !batch.is_empty() {
                server.deliver(thread, batch, self.thread == Some(thread));
            }
        }
    }
}

/// Adds one message to the batches of its recipients' threads; encoded once for
/// all that are subscribed to the same name.
fn spread(
    kind: SubscriptionKind,
    channel: &[u8],
    message: &[u8],
    targets: &Targets,
    batches: &mut [Vec<Delivery>],
) {
    for (pattern, subscribers) in &targets.found {
        let bytes = push_of(kind, pattern.as_deref(), channel, message);
        for (thread, clients) in &subscribers.0 {
            if let Some(batch) = batches.get_mut(*thread) {
                batch.push(Delivery {
                    to: Recipients::Many(clients.clone()),
                    bytes: bytes.clone(),
                    form: Form::Message,
                });
            }
        }
    }
}

/// What a subscriber to a name gets: to a pattern, if there is one.
fn push_of(
    kind: SubscriptionKind,
    pattern: Option<&[u8]>,
    channel: &[u8],
    message: &[u8],
) -> Arc<[u8]> {
    match (pattern, kind) {
        (Some(pattern), _) => encode(&[b"pmessage", pattern, channel, message]),
        (None, SubscriptionKind::Shard) => encode(&[b"smessage", channel, message]),
        (None, _) => encode(&[b"message", channel, message]),
    }
}

fn encode(parts: &[&[u8]]) -> Arc<[u8]> {
    let mut push = Reply::new(true);
    push.push(parts.len());
    parts.iter().for_each(|part| push.bulk(part));
    push.buf.into()
}
