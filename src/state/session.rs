//! One client, as the commands it runs see and change it. Owned by the
//! client's IO thread.

use super::Server;
use super::clients::{ClientFlags, ClientInfo};
use super::delivery::Delivery;
use super::replication::{Announcement, Psync};
use super::request::Request;
use super::subscriptions::Subscriptions;
use super::waiters::Waiter;
use super::watch::{Watch, Watchers};
use crate::encoding::binlog::Position;
use crate::storage::DbIndex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a client has chosen, beside what others must know of it.
#[derive(Debug, Default)]
pub struct TrackingOptions {
    /// Only what is read after CLIENT CACHING YES is tracked.
    pub optin: bool,
    /// What is read after CLIENT CACHING NO is not tracked.
    pub optout: bool,
    /// CLIENT CACHING was called for the command to come.
    pub caching: bool,
    /// With BCAST: which keys.
    pub prefixes: BTreeSet<Box<[u8]>>,
}

impl TrackingOptions {
    /// Whether what the running command reads is tracked.
    pub fn takes_reads(&self) -> bool {
        !(self.optin && !self.caching || self.optout && self.caching)
    }
}

/// Which replies a client gets (CLIENT REPLY).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyMode {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// Not the next one.
    SkipNext,
    /// Not the one of the command that runs.
    SkipThis,
}

/// What is looked at before a command runs; of EXEC, what holds of any queued one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traits {
    /// It may write keys.
    pub writes: bool,
    /// A pause of writes holds it back.
    pub may_replicate: bool,
    /// It may add data.
    pub grows: bool,
    /// A replica without its master may refuse it.
    pub needs_master: bool,
}

impl std::ops::BitOrAssign for Traits {
    fn bitor_assign(&mut self, other: Traits) {
        self.writes |= other.writes;
        self.may_replicate |= other.may_replicate;
        self.grows |= other.grows;
        self.needs_master |= other.needs_master;
    }
}

/// The commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub struct Multi {
    /// In order; none are kept any more once EXEC is bound to fail.
    pub queue: Vec<Request>,
    /// A command could not be queued: EXEC will refuse.
    pub aborted: bool,
    /// What holds of any of them.
    pub traits: Traits,
    /// Memory of the queue, in bytes.
    bytes: usize,
}

/// One client, as its commands see and change it.
#[derive(Debug)]
pub struct Session {
    /// What other threads see of it.
    pub info: Arc<ClientInfo>,
    /// Whether it may run commands.
    pub authenticated: bool,
    /// Which replies it gets.
    pub reply_mode: ReplyMode,
    /// Close the connection once the replies so far are sent.
    pub close_after_reply: bool,
    /// Whether it speaks RESP3.
    pub resp3: bool,
    /// What it is subscribed to.
    pub subscriptions: Subscriptions,
    /// How it tracks what it reads, if it does.
    pub tracking: Option<Box<TrackingOptions>>,
    /// Output that goes before the reply of the command that runs.
    pub overtaken: Vec<u8>,
    /// A command may not wait for other clients: it runs within EXEC or a script.
    pub deny_blocking: bool,
    /// The transaction that runs has unsubscribed it from names.
    pub left_names: bool,
    /// Whether it has written since it last asked how far replicas are.
    pub wrote: Cell<bool>,
    /// The same of the client whose script this session is of, when the script began.
    pub client_wrote: bool,
    /// Binlog position by which all that it had written then stood.
    pub written_to: Position,
    /// What it waits for, while it waits.
    pub waiting: Option<Arc<Waiter>>,
    /// Whether this is the session of a script, see [`Session::for_script`].
    pub is_script: bool,
    /// A script's: the server was a replica when it began, or the transaction that
    /// it is a part of. That holds until its end.
    pub began_on_replica: bool,
    /// A script's: its client is told when what it reads changes.
    pub tracks_for_client: bool,
    multi: Option<Box<Multi>>,
    watch: Option<Box<Watch>>,
    /// What it said of itself as a replica (REPLCONF).
    pub announced: Option<Box<Announcement>>,
    /// It asked to be fed (PSYNC): its thread gives the connection away.
    pub psync: Option<Box<Psync>>,
    db: DbIndex,
    /// A reply that another thread will send is due; whether it is wanted.
    waits_for: Cell<Option<bool>>,
}

impl Session {
    /// A client that just connected.
    pub fn new(info: Arc<ClientInfo>, authenticated: bool) -> Session {
        Session {
            info,
            authenticated,
            reply_mode: ReplyMode::On,
            close_after_reply: false,
            resp3: false,
            subscriptions: Subscriptions::default(),
            tracking: None,
            overtaken: Vec::new(),
            deny_blocking: false,
            left_names: false,
            wrote: Cell::new(false),
            client_wrote: false,
            written_to: Position::NONE,
            waiting: None,
            is_script: false,
            began_on_replica: false,
            tracks_for_client: false,
            multi: None,
            watch: None,
            announced: None,
            psync: None,
            db: DbIndex(0),
            waits_for: Cell::new(None),
        }
    }

    /// The session in which a script of this client runs its commands: what they
    /// select or switch is the script's alone. `pending` says whether writes of the
    /// thread, maybe of this client, wait for their commit.
    pub fn for_script(&self, on_replica: bool, pending: bool) -> Session {
        let mut session = Session::new(self.info.clone(), self.authenticated);
        session.deny_blocking = true;
        session.is_script = true;
        session.began_on_replica = on_replica;
        session.tracks_for_client = self.tracks_reads();
        session.client_wrote = self.wrote.get();
        // A position that no replica has, while that of its writes is not known.
        session.written_to = match self.wrote.get() && pending {
            true => Position::MAX,
            false => self.written_to,
        };
        session.db = self.db;
        session
    }

    /// Leaves for another thread, which runs a request of the client; what stays
    /// here waits for the answer.
    pub fn leave(&mut self) -> Session {
        let mut stays = Session::new(self.info.clone(), self.authenticated);
        stays.resp3 = self.resp3;
        stays.wait_for_answer(true);
        std::mem::replace(self, stays)
    }

    /// Whether it hears of what it does itself.
    pub fn listens(&self) -> bool {
        !self.subscriptions.is_empty() || self.tracking.is_some()
    }

    /// Whether it is told when what the running command reads changes.
    pub fn tracks_reads(&self) -> bool {
        let chosen = self.tracking.as_ref().is_some_and(|choice| {
            choice.takes_reads() && !self.info.flags().contains(ClientFlags::TRACKING_BCAST)
        });
        chosen || self.tracks_for_client
    }

    /// Lets all that waits for it in its thread's queue go out before the reply of
    /// the command that runs.
    pub fn overtake(&mut self, server: &Server) {
        for delivery in self.take_deliveries(server) {
            delivery.write(self.resp3, &mut self.overtaken);
        }
    }

    /// Takes all that waits for it in its thread's queue.
    pub fn take_deliveries(&self, server: &Server) -> Vec<Delivery> {
        let mailbox = server.mailboxes().get(self.info.thread);
        mailbox.map_or_else(Vec::new, |mailbox| {
            mailbox.deliveries.take_for(self.info.id)
        })
    }

    /// The command that runs gets its reply from another thread: nothing more
    /// of the client is run until then.
    pub fn wait_for_answer(&self, wanted: bool) {
        self.waits_for.set(Some(wanted));
    }

    /// Whether a reply from another thread is due.
    pub fn waits_for_answer(&self) -> bool {
        self.waits_for.get().is_some()
    }

    /// That reply is there; whether it is wanted.
    pub fn answered(&self) -> bool {
        self.waits_for.take().unwrap_or(false)
    }

    /// The selected DB.
    pub fn db(&self) -> DbIndex {
        self.db
    }

    /// Selects a DB that exists.
    pub fn select(&mut self, db: DbIndex) {
        self.db = db;
        if !self.is_script {
            self.info.db.store(u32::from(db.0), Ordering::Relaxed);
        }
    }

    /// Switches the protocol version.
    pub fn set_resp3(&mut self, on: bool) {
        self.resp3 = on;
        self.info
            .resp
            .store(if on { 3 } else { 2 }, Ordering::Relaxed);
    }

    /// The commands since MULTI, if there was one.
    pub fn multi(&self) -> Option<&Multi> {
        self.multi.as_deref()
    }

    /// MULTI: commands are queued from now on.
    pub fn begin_multi(&mut self) {
        self.multi = Some(Box::default());
        self.info.set_flag(ClientFlags::MULTI, true);
        self.info.multi_commands.store(0, Ordering::Relaxed);
    }

    /// Queues a command, unless EXEC is bound to fail anyway.
    pub fn queue(&mut self, args: &[&[u8]], traits: Traits) {
        let doomed = self.watch.as_ref().is_some_and(|watch| watch.is_dirty());
        let Some(multi) = self.multi.as_deref_mut() else {
            return;
        };
        multi.traits |= traits;
        if doomed || multi.aborted {
            return;
        }
        let request = Request::new(args);
        multi.bytes += request.memory();
        multi.queue.push(request);
        let info = &self.info;
        let len = i32::try_from(multi.queue.len()).unwrap_or(i32::MAX);
        info.multi_commands.store(len, Ordering::Relaxed);
        info.multi_bytes.store(multi.bytes, Ordering::Relaxed);
    }

    /// A command could not be queued: EXEC will refuse, and needs none of the others.
    pub fn abort_multi(&mut self) {
        if let Some(multi) = self.multi.as_deref_mut() {
            multi.aborted = true;
            multi.queue = Vec::new();
            multi.bytes = 0;
            self.info.multi_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Takes the queue out, to run it; the session counts as inside MULTI until
    /// [`Session::end_multi`].
    pub fn take_multi(&mut self) -> Option<Box<Multi>> {
        self.multi.take()
    }

    /// EXEC could not run the queue now.
    pub fn put_back_multi(&mut self, multi: Box<Multi>) {
        self.multi = Some(multi);
    }

    /// Ends MULTI; what is queued is forgotten, and nothing is watched any more.
    pub fn end_multi(&mut self) {
        self.multi = None;
        self.info.set_flag(ClientFlags::MULTI, false);
        self.info.multi_commands.store(-1, Ordering::Relaxed);
        self.info.multi_bytes.store(0, Ordering::Relaxed);
        self.unwatch();
    }

    /// What it watches, made if there is nothing yet.
    pub fn watch(&mut self, table: &Arc<Watchers>) -> &mut Watch {
        self.watch
            .get_or_insert_with(|| Box::new(Watch::new(table.clone())))
    }

    /// What it watches, if anything.
    pub fn watching(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// Forgets what it watches, and whether that has changed.
    pub fn unwatch(&mut self) {
        self.watch = None;
        self.info.watched_keys.store(0, Ordering::Relaxed);
    }

    /// Memory that waits for EXEC, in bytes: bounded like a request.
    pub fn waiting_bytes(&self) -> usize {
        let queued = self.multi.as_ref().map_or(0, |multi| multi.bytes);
        queued + self.watch.as_ref().map_or(0, |watch| watch.memory())
    }

    /// Whether the client came by loopback or the Unix socket.
    pub fn is_local(&self) -> bool {
        self.info.flags().contains(ClientFlags::UNIX_SOCKET)
            || self.info.addr.starts_with("127.")
            || self.info.addr.starts_with("[::1]")
    }
}
