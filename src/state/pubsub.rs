//! Publish and subscribe: who listens to what, and messages on their way out.
//!
//! [`PubSub`] is the one structure for channels, patterns and shard channels:
//! ordered by name, for each name the subscribers by IO thread. A publisher takes
//! what it finds there as it stands (a list of subscribers is replaced, never
//! changed, while somebody holds it).
//!
//! What a command publishes waits in its thread's [`Outbox`] until the tick is
//! durable. Then the recipients are found and the message goes into the queues of
//! their threads, both under the lock that subscribing needs: so when a client has
//! unsubscribed, all it will ever get is in its thread's queue already, and is
//! taken from there before the confirmation (see [`PubSub::leave`]).
//!
//! Order: a thread's messages go out in the order of its commands, and a queue
//! keeps it.

use super::Server;
use super::clients::{ClientFlags, ClientId};
use super::config::NotifyEvents;
use super::delivery::{Delivery, Form, Recipients};
use super::replication::Published;
use super::session::Session;
use crate::base::glob;
use crate::resp::Reply;
use crate::storage::events::Event;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a subscription names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A channel.
    Channel,
    /// All channels that match a pattern.
    Pattern,
    /// A shard channel: a name space of its own.
    Shard,
}

/// All kinds; a kind's number is its place.
pub const KINDS: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];

/// The name of a channel or a pattern.
pub type Name = Arc<[u8]>;

/// What one client is subscribed to.
#[derive(Debug, Default)]
pub struct Subscriptions([BTreeSet<Name>; 3]);

impl Subscriptions {
    /// The names of a kind.
    pub fn names(&self, kind: Kind) -> &BTreeSet<Name> {
        &self.0[kind as usize]
    }

    /// What confirmations count: shard channels for themselves, channels and
    /// patterns together.
    pub fn count(&self, kind: Kind) -> usize {
        let len = |kind| self.names(kind).len();
        match kind {
            Kind::Shard => len(Kind::Shard),
            Kind::Channel | Kind::Pattern => len(Kind::Channel) + len(Kind::Pattern),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeSet::is_empty)
    }
}

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
}

#[derive(Debug, Default)]
struct Tables {
    /// Grows with every change.
    version: u64,
    by_kind: [BTreeMap<Name, Subscribers>; 3],
}

impl Tables {
    fn of(&self, kind: Kind) -> &BTreeMap<Name, Subscribers> {
        &self.by_kind[kind as usize]
    }

    fn find(&self, kind: Kind, channel: &[u8]) -> Targets {
        let mut targets = Targets {
            version: self.version,
            found: SmallVec::new(),
        };
        if let Some(subscribers) = self.of(kind).get(channel) {
            targets.found.push((None, subscribers.clone()));
        }
        if kind == Kind::Channel {
            for (pattern, subscribers) in self.of(Kind::Pattern) {
                if glob::matches(pattern, channel, false) {
                    let pattern = Some(pattern.clone());
                    targets.found.push((pattern, subscribers.clone()));
                }
            }
        }
        targets
    }
}

/// Who listens to a channel, as of one moment.
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

/// See the module.
#[derive(Debug, Default)]
pub struct PubSub {
    tables: RwLock<Tables>,
    names: [AtomicUsize; 3],
}

impl PubSub {
    /// How many names of a kind have subscribers.
    pub fn len(&self, kind: Kind) -> usize {
        self.names[kind as usize].load(Ordering::Acquire)
    }

    /// Whether nobody can get a message to a channel of this kind: one or two loads.
    pub fn is_silent(&self, kind: Kind) -> bool {
        self.len(kind) == 0 && (kind == Kind::Shard || self.len(Kind::Pattern) == 0)
    }

    /// Who listens to a channel or shard channel.
    pub fn find(&self, kind: Kind, channel: &[u8]) -> Targets {
        match self.is_silent(kind) {
            true => Targets::default(),
            false => self.tables.read().find(kind, channel),
        }
    }

    /// How many clients are subscribed to this very name.
    pub fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let tables = self.tables.read();
        tables.of(kind).get(name).map_or(0, Subscribers::len)
    }

    /// Calls `each` with all names of a kind in order.
    pub fn for_each(&self, kind: Kind, mut each: impl FnMut(&[u8])) {
        let tables = self.tables.read();
        tables.of(kind).keys().for_each(|name| each(name));
    }

    /// Subscribes a client, on its own thread.
    pub fn join(&self, session: &mut Session, kind: Kind, name: &[u8]) {
        if session.subscriptions.names(kind).contains(name) {
            return;
        }
        let mut tables = self.tables.write();
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

    /// Unsubscribes a client, on its own thread. What was published before and
    /// still waits for it goes before the reply of the command that runs.
    pub fn leave(&self, server: &Server, session: &mut Session, kind: Kind, name: &[u8]) {
        if self.remove(session, kind, name) {
            session.overtake(server);
        }
    }

    /// Unsubscribes a client from everything.
    pub fn leave_all(&self, server: &Server, session: &mut Session) {
        if session.subscriptions.is_empty() {
            return;
        }
        for kind in KINDS {
            while let Some(name) = session.subscriptions.names(kind).first().cloned() {
                self.remove(session, kind, &name);
            }
        }
        session.overtake(server);
    }

    fn remove(&self, session: &mut Session, kind: Kind, name: &[u8]) -> bool {
        if !session.subscriptions.0[kind as usize].remove(name) {
            return false;
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
        true
    }
}

/// Lets other threads see how a client is subscribed.
fn note(session: &Session, kind: Kind) {
    let len = session.subscriptions.names(kind).len();
    session.info.subscriptions[kind as usize].store(len as u32, Ordering::Relaxed);
    let any = !session.subscriptions.is_empty();
    session.info.set_flag(ClientFlags::PUBSUB, any);
}

/// Something on its way out.
#[derive(Debug)]
enum Outgoing {
    Publish {
        kind: Kind,
        channel: Box<[u8]>,
        message: Box<[u8]>,
        /// As of when it was published, if anybody has looked.
        targets: Targets,
        /// Clients of replicas may listen, too.
        to_replicas: bool,
    },
    Direct {
        thread: usize,
        delivery: Delivery,
    },
}

/// What the commands of one thread send to clients once their tick is durable.
#[derive(Debug, Default)]
pub struct Outbox {
    items: Vec<Outgoing>,
    /// The IO thread that this one is: it need not be woken.
    thread: Option<usize>,
}

impl Outbox {
    /// The outbox of an IO thread.
    pub fn of_thread(thread: usize) -> Outbox {
        Outbox {
            items: Vec::new(),
            thread: Some(thread),
        }
    }

    /// What waits, to be sent later; nothing waits here any more.
    #[must_use]
    pub fn take(&mut self) -> Outbox {
        Outbox {
            items: std::mem::take(&mut self.items),
            thread: self.thread,
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Publishes a message here, and to the clients of replicas; `targets` is who
    /// listened when somebody looked last.
    pub fn publish(&mut self, kind: Kind, channel: &[u8], message: &[u8], targets: Targets) {
        self.items.push(Outgoing::Publish {
            kind,
            channel: channel.into(),
            message: message.into(),
            targets,
            to_replicas: true,
        });
    }

    /// Publishes a message to the clients of this server only.
    pub fn publish_here(&mut self, kind: Kind, channel: &[u8], message: &[u8], targets: Targets) {
        self.items.push(Outgoing::Publish {
            kind,
            channel: channel.into(),
            message: message.into(),
            targets,
            to_replicas: false,
        });
    }

    /// Publishes keyspace events to the channels that `notify` names.
    pub fn notify(&mut self, server: &Server, notify: NotifyEvents, events: &[Event]) {
        if server.pubsub.is_silent(Kind::Channel) {
            return;
        }
        let mut publish = |channel: String, name: &[u8], message: &[u8]| {
            let channel = [channel.as_bytes(), name].concat();
            self.publish_here(Kind::Channel, &channel, message, Targets::default());
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
                    to_replicas,
                } => {
                    let targets = match targets.version == tables.version {
                        true => targets,
                        false => tables.find(kind, &channel),
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
    kind: Kind,
    channel: &[u8],
    message: &[u8],
    targets: &Targets,
    batches: &mut [Vec<Delivery>],
) {
    for (pattern, subscribers) in &targets.found {
        let bytes: Arc<[u8]> = match (pattern, kind) {
            (Some(pattern), _) => encode(&[b"pmessage", pattern, channel, message]),
            (None, Kind::Shard) => encode(&[b"smessage", channel, message]),
            (None, _) => encode(&[b"message", channel, message]),
        };
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

fn encode(parts: &[&[u8]]) -> Arc<[u8]> {
    let mut push = Reply::new(true);
    push.push(parts.len());
    parts.iter().for_each(|part| push.bulk(part));
    push.buf.into()
}
