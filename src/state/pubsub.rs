//! Publish and subscribe: the subscriptions of all clients, and published messages.
//!
//! [`PubSub`] is the one structure for channels, patterns and shard channels, ordered by name.
//! Each name has its subscribers by IO thread. A publisher takes the lists of subscribers
//! without a copy: a list is replaced, never changed, while it is shared.
//!
//! A message is for the clients that are subscribed when it is published. It stays in its
//! thread's [`Outbox`] until the tick is durable. Then it goes to the queues of the recipients'
//! threads, under the lock that subscribing takes, except for clients that have unsubscribed
//! meanwhile. So when a client has unsubscribed, all that it will ever get from other threads
//! is in its thread's queue already. That is taken from there before the confirmation, and so
//! are messages in the outbox of its own thread (see [`PubSub::leave`]).
//!
//! The recipients of a keyspace event are determined when the tick is durable, or earlier if
//! the thread runs a command that changes subscriptions.
//!
//! Order: a thread's messages are sent in the order of its commands, and queues keep that
//! order.

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
use std::collections::{BTreeMap, BTreeSet};
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

    /// Removes the subscribers that are neither in `others` nor in `left`.
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
    /// Incremented with every change.
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

    /// Removes recipients of a message that have unsubscribed since, except those in `left`,
    /// which get it nevertheless.
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

/// The subscribers of a channel at one moment.
#[derive(Debug, Default)]
pub struct Targets {
    version: u64,
    /// The pattern through which they are subscribed, if any.
    found: SmallVec<[(Option<Name>, Subscribers); 1]>,
}

impl Targets {
    /// The number of messages to send.
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
    /// The number of names of a kind with subscribers.
    pub fn len(&self, kind: SubscriptionKind) -> usize {
        self.names[kind as usize].load(Ordering::Acquire)
    }

    /// Whether no client can get a message to a channel of this kind. Costs one or two loads.
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

    /// The number of clients that are subscribed to exactly this name.
    pub fn subscribers(&self, kind: SubscriptionKind, name: &[u8]) -> usize {
        let tables = self.tables.read();
        tables.of(kind).get(name).map_or(0, Subscribers::len)
    }

    /// Calls `each` with all names of a kind, in order.
    pub fn for_each(&self, kind: SubscriptionKind, mut each: impl FnMut(&[u8])) {
        let tables = self.tables.read();
        tables.of(kind).keys().for_each(|name| each(name));
    }

    /// The clients that are subscribed to a name for which `is_meant` is true.
    pub fn subscribers_of(
        &self,
        is_meant: impl Fn(SubscriptionKind, &[u8]) -> bool,
    ) -> BTreeSet<ClientId> {
        let tables = self.tables.read();
        let mut clients = BTreeSet::new();
        for kind in KINDS {
            for (name, subscribers) in tables.of(kind) {
                if is_meant(kind, name) {
                    let lists = subscribers.0.iter();
                    clients.extend(lists.flat_map(|(_, list)| list.iter().copied()));
                }
            }
        }
        clients
    }

    /// Subscribes a client, on its own thread, which owns `outbox`.
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

    /// Unsubscribes a client, on its own thread, which owns `outbox`. Returns whether it was
    /// subscribed. If so, [`PubSub::settle`] must be called after the last name.
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

    /// Called after a client has unsubscribed from names. Earlier messages for it that are
    /// still queued are sent before the reply of the running command; messages of the running
    /// transaction itself after that reply: see [`Outbox::end_transaction`].
    pub fn settle(&self, server: &Server, session: &mut Session, outbox: &mut Outbox) {
        session.move_before_reply(server);
        match session.deny_blocking {
            true => session.has_unsubscribed = true,
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

    /// Unsubscribes a disconnected client from everything.
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

/// Updates the subscriptions that other threads see.
fn note(session: &Session, kind: SubscriptionKind) {
    let len = session.subscriptions.names(kind).len();
    session.info.subscriptions[kind as usize].store(len as u32, Ordering::Relaxed);
    let any = !session.subscriptions.is_empty();
    session.info.set_flag(ClientFlags::PUBSUB, any);
}

/// A message in an outbox.
#[derive(Debug)]
enum Outgoing {
    Publish {
        kind: SubscriptionKind,
        channel: Box<[u8]>,
        message: Box<[u8]>,
        /// The recipients when it was published; `None`: not determined yet.
        targets: Option<Targets>,
        /// Clients, with their threads, that get it although they have unsubscribed in the
        /// transaction that published it.
        left: Vec<(usize, ClientId)>,
        /// Whether replicas get it as well.
        to_replicas: bool,
    },
    Direct {
        thread: usize,
        delivery: Delivery,
    },
}

impl Outgoing {
    /// Called after a client of this thread has unsubscribed from names: it still gets messages
    /// that were published before. Now, before the reply of the running command, or with the
    /// rest of its transaction (`later`).
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
            delivery.write(session.resp3, &mut session.output_before_reply);
        }
    }

    /// Whether it is for this client although that has unsubscribed.
    fn is_owed_to(&self, client: ClientId) -> bool {
        match self {
            Outgoing::Publish { left, .. } => left.iter().any(|(_, left)| *left == client),
            Outgoing::Direct { delivery, .. } => delivery.to.as_slice() == [client],
        }
    }
}

/// Messages of the commands of one thread, to be sent when their tick is durable.
#[derive(Debug, Default)]
pub struct Outbox {
    items: Vec<Outgoing>,
    /// Whether the recipients of some messages are not determined yet.
    has_unknown_targets: bool,
    /// The IO thread that owns this outbox, which need not be woken.
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

    /// Takes all messages, to be sent later.
    #[must_use]
    pub fn take(&mut self) -> Outbox {
        let thread = self.thread;
        let empty = Outbox {
            thread,
            ..Outbox::default()
        };
        std::mem::replace(self, empty)
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Publishes a message here and to replicas; `targets` are its subscribers.
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

    /// Determines the recipients of all messages, before subscriptions change.
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

    /// Called after a client of this thread has unsubscribed from names.
    fn settle(&mut self, session: &mut Session, later: bool) {
        let items = self.items.iter_mut();
        items.for_each(|item| item.settle(session, later));
    }

    /// Called at the end of a transaction: its messages still go to its own client if that was
    /// subscribed when they were published. This runs once per transaction, since that may have
    /// many commands which publish and unsubscribe.
    pub fn end_transaction(&mut self, session: &mut Session) {
        if std::mem::take(&mut session.has_unsubscribed) {
            self.settle(session, true);
        }
    }

    /// Whether there is a message for a client that may have unsubscribed.
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

    /// The number of messages, for [`Outbox::truncate`].
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Removes all messages after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
    }

    /// Sends bytes to one client.
    pub fn send(&mut self, thread: usize, client: ClientId, bytes: Arc<[u8]>, form: Form) {
        let to = Recipients::One(client);
        let delivery = Delivery { to, bytes, form };
        self.items.push(Outgoing::Direct { thread, delivery });
    }

    /// Sends all messages to the threads of their recipients. The tick must be durable.
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
                    add_to_batches(kind, &channel, &message, &targets, &mut batches);
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
            // All earlier writes precede this position.
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

/// Adds one message to the batches of its recipients' threads. It is encoded once for all
/// subscribers of the same name.
fn add_to_batches(
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

/// The encoded message for subscribers of the channel, or of `pattern`.
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
