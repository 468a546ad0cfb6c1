//! One client, as its commands see and change it. Owned by the client's IO thread.

use super::Server;
use super::acl::Login;
use super::chores::{Chores, MANY};
use super::clients::{ClientFlags, ClientInfo};
use super::delivery::Delivery;
use super::fieldsets::Fieldsets;
use super::replication::{Announcement, Psync};
use super::request::Request;
use super::subscriptions::Subscriptions;
use super::waiters::Waiter;
use super::watch::{Watch, Watchers};
use crate::base::slots::Slots;
use crate::encoding::binlog::Position;
use crate::storage::DbIndex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Options of CLIENT TRACKING that other threads need not know.
#[derive(Debug, Default)]
pub struct TrackingOptions {
    /// Only reads after CLIENT CACHING YES are tracked.
    pub optin: bool,
    /// Reads after CLIENT CACHING NO are not tracked.
    pub optout: bool,
    /// Whether CLIENT CACHING was called for the next command.
    pub caching: bool,
    /// Prefixes, with BCAST.
    pub prefixes: BTreeSet<Box<[u8]>>,
}

impl TrackingOptions {
    /// Whether the reads of the running command are tracked.
    fn takes_reads(&self) -> bool {
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
    /// All but the next one.
    SkipNext,
    /// Not that of the running command.
    SkipThis,
}

/// Properties of a command that are checked before it runs; for EXEC, those of any queued
/// command.
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
    /// The slots of its keys, with `cluster-enabled`.
    pub slots: Slots,
}

impl std::ops::BitOrAssign for Traits {
    fn bitor_assign(&mut self, other: Traits) {
        self.writes |= other.writes;
        self.may_replicate |= other.may_replicate;
        self.grows |= other.grows;
        self.needs_master |= other.needs_master;
        self.slots |= other.slots;
    }
}

/// The commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub struct Multi {
    /// In order; emptied when EXEC is bound to fail.
    pub queue: Vec<Request>,
    /// Whether a command could not be queued, so that EXEC will fail.
    pub aborted: bool,
    /// The traits of all of them together.
    pub traits: Traits,
    /// The DB that the next command will find selected.
    pub db: DbIndex,
    /// Memory of the queue, in bytes.
    bytes: usize,
}

impl Multi {
    /// Memory of the queue, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What a transaction changes of its client.
#[derive(Debug)]
pub struct Selection {
    db: DbIndex,
    fieldsets: Fieldsets,
}

/// One client, as its commands see and change it.
#[derive(Debug)]
pub struct Session {
    /// The part that other threads see.
    pub info: Arc<ClientInfo>,
    /// As whom it acts.
    pub login: Login,
    /// Whether it is authenticated, or need not be.
    pub authenticated: bool,
    /// Which replies it gets.
    pub reply_mode: ReplyMode,
    /// Whether to close the connection when the replies so far are sent.
    pub close_after_reply: bool,
    /// Whether it speaks RESP3.
    pub resp3: bool,
    /// Its subscriptions.
    pub subscriptions: Subscriptions,
    /// Options of tracking, if it is on.
    pub tracking: Option<Box<TrackingOptions>>,
    /// Output that precedes the reply of the running command.
    pub output_before_reply: Vec<u8>,
    /// Whether commands must not wait for other clients: within EXEC or a script.
    pub deny_blocking: bool,
    /// Whether the running transaction has unsubscribed it from names.
    pub has_unsubscribed: bool,
    /// Whether it has written since it last learned the binlog position of its writes.
    pub wrote: Cell<bool>,
    /// A script's: `wrote` of its client when the script began.
    pub client_wrote: bool,
    /// Binlog position behind its writes, when it last learned that.
    pub written_to: Position,
    /// Its wait, if it waits.
    pub waiting: Option<Arc<Waiter>>,
    /// Whether this is the session of a script, see [`Session::for_script`].
    pub is_script: bool,
    /// A script's: whether the server was a replica when the script or its transaction began.
    /// Commands are checked against that until the end.
    pub began_on_replica: bool,
    /// The slot of the keys of its transaction or script, as far as it is known.
    pub slot: Cell<Option<u16>>,
    /// A script's: whether its keys may be in several slots.
    pub crosses_slots: bool,
    /// A script's: whether its client tracks the reads.
    pub tracks_for_client: bool,
    multi: Option<Box<Multi>>,
    watch: Option<Box<Watch>>,
    fieldsets: Fieldsets,
    /// What it has announced as a replica (REPLCONF).
    pub announced: Option<Box<Announcement>>,
    /// Its PSYNC: its thread hands the connection over to a feeder.
    pub psync: Option<Box<Psync>>,
    db: DbIndex,
    /// Set while another thread owes it a reply: whether that reply is wanted.
    waits_for: Cell<Option<bool>>,
}

impl Session {
    /// A newly connected client.
    pub fn new(info: Arc<ClientInfo>, login: Login) -> Session {
        let session = Session::acting(info, login);
        session.show_user();
        session
    }

    /// A session of a client that others know already.
    fn acting(info: Arc<ClientInfo>, login: Login) -> Session {
        Session {
            info,
            authenticated: login.is_open(),
            login,
            reply_mode: ReplyMode::On,
            close_after_reply: false,
            resp3: false,
            subscriptions: Subscriptions::default(),
            tracking: None,
            output_before_reply: Vec::new(),
            deny_blocking: false,
            has_unsubscribed: false,
            wrote: Cell::new(false),
            client_wrote: false,
            written_to: Position::NONE,
            waiting: None,
            is_script: false,
            began_on_replica: false,
            slot: Cell::new(None),
            crosses_slots: false,
            tracks_for_client: false,
            multi: None,
            watch: None,
            fieldsets: Fieldsets::default(),
            announced: None,
            psync: None,
            db: DbIndex(0),
            waits_for: Cell::new(None),
        }
    }

    /// The server itself, which may do everything.
    pub fn of_server(info: Arc<ClientInfo>) -> Session {
        Session::new(info, Login::superuser())
    }

    /// A session for the command of a client that waits, on another thread than its own.
    pub fn of_waiter(info: Arc<ClientInfo>) -> Session {
        let user = info.names.lock().user.clone();
        Session::acting(info, user.map_or_else(Login::superuser, Login::of))
    }

    /// Acts as somebody else from now on. `authenticated`: it has proved to be the one.
    pub fn log_in(&mut self, login: Login, authenticated: bool) {
        self.login = login;
        self.authenticated = authenticated;
        self.show_user();
    }

    /// Shows other threads as whom it acts.
    fn show_user(&self) {
        self.info.names.lock().user = self.login.user().cloned();
    }

    /// A session for the commands of a script of this client: SELECT and HELLO affect the
    /// script only. `pending`: writes of this thread, maybe of this client, wait for their
    /// commit.
    pub fn for_script(&self, on_replica: bool, pending: bool) -> Session {
        let mut session = Session::acting(self.info.clone(), self.login.clone());
        session.authenticated = self.authenticated;
        session.deny_blocking = true;
        session.is_script = true;
        session.began_on_replica = on_replica;
        session.slot.set(self.slot.get());
        session.tracks_for_client = self.tracks_reads();
        session.client_wrote = self.wrote.get();
        // The position of its writes is not known yet, so use one that no replica has.
        session.written_to = match self.wrote.get() && pending {
            true => Position::MAX,
            false => self.written_to,
        };
        session.db = self.db;
        session
    }

    /// Moves the session out, for another thread that runs a request of the client. A
    /// placeholder stays, which waits for the reply.
    pub fn detach(&mut self) -> Session {
        let mut stays = Session::acting(self.info.clone(), self.login.clone());
        stays.authenticated = self.authenticated;
        stays.resp3 = self.resp3;
        stays.wait_for_answer(true);
        std::mem::replace(self, stays)
    }

    /// Whether its own commands may cause messages to it.
    pub fn gets_messages(&self) -> bool {
        !self.subscriptions.is_empty() || self.tracking.is_some()
    }

    /// Whether the reads of the running command are tracked.
    pub fn tracks_reads(&self) -> bool {
        let chosen = self.tracking.as_ref().is_some_and(|choice| {
            choice.takes_reads() && !self.info.flags().contains(ClientFlags::TRACKING_BCAST)
        });
        chosen || self.tracks_for_client
    }

    /// Moves all messages for it in its thread's queue before the reply of the running command.
    pub(super) fn move_before_reply(&mut self, server: &Server) {
        for delivery in self.take_deliveries(server) {
            delivery.write(self.resp3, &mut self.output_before_reply);
        }
    }

    /// Takes all messages for it from its thread's queue.
    pub fn take_deliveries(&self, server: &Server) -> Vec<Delivery> {
        let mailbox = server.mailboxes().get(self.info.thread);
        mailbox.map_or_else(Vec::new, |mailbox| {
            mailbox.deliveries.take_for(self.info.id)
        })
    }

    /// The running command gets its reply from another thread; no further request runs until
    /// then.
    pub fn wait_for_answer(&self, wanted: bool) {
        self.waits_for.set(Some(wanted));
    }

    /// Whether a reply from another thread is due.
    pub fn waits_for_answer(&self) -> bool {
        self.waits_for.get().is_some()
    }

    /// Records that this reply has arrived. Returns whether it is wanted.
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

    /// What its transaction may change, and what changes back if that has to run again.
    pub fn selection(&self) -> Selection {
        Selection {
            db: self.db,
            fieldsets: self.fieldsets.clone(),
        }
    }

    /// Undoes what a transaction has changed.
    pub fn restore(&mut self, before: &Selection) {
        self.select(before.db);
        self.set_fieldsets(before.fieldsets.clone());
    }

    /// Its fieldsets.
    pub fn fieldsets(&self) -> &Fieldsets {
        &self.fieldsets
    }

    /// Takes its fieldsets, to change them.
    pub fn take_fieldsets(&mut self) -> Fieldsets {
        std::mem::take(&mut self.fieldsets)
    }

    /// Changes its fieldsets.
    pub fn set_fieldsets(&mut self, fieldsets: Fieldsets) {
        self.fieldsets = fieldsets;
        if !self.is_script {
            let bytes = self.fieldsets.bytes();
            self.info.fieldset_bytes.store(bytes, Ordering::Relaxed);
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

    /// MULTI: begins to queue commands.
    pub fn begin_multi(&mut self) {
        let multi = Multi {
            db: self.db,
            ..Multi::default()
        };
        self.multi = Some(Box::new(multi));
        self.info.set_flag(ClientFlags::MULTI, true);
        self.info.multi_commands.store(0, Ordering::Relaxed);
    }

    /// The DB that a command uses which runs or is queued now.
    pub fn next_db(&self) -> DbIndex {
        self.multi.as_ref().map_or(self.db, |multi| multi.db)
    }

    /// A queued command selects a DB.
    pub fn will_select(&mut self, db: DbIndex) {
        if let Some(multi) = self.multi.as_deref_mut() {
            multi.db = db;
        }
    }

    /// Queues a command, unless EXEC will fail anyway.
    pub fn queue(&mut self, args: &[&[u8]], traits: Traits) {
        let doomed = self.watch.as_ref().is_some_and(|watch| watch.is_dirty());
        let Some(multi) = self.multi.as_deref_mut() else {
            return;
        };
        let is_lost = doomed || multi.aborted;
        multi.traits |= match is_lost {
            true => Traits {
                slots: Slots::None,
                ..traits
            },
            false => traits,
        };
        if is_lost {
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

    /// Records that a command could not be queued: EXEC will fail, so the queue is emptied.
    pub fn abort_multi(&mut self, chores: &Chores) {
        if let Some(multi) = self.multi.as_deref_mut() {
            multi.aborted = true;
            let queue = std::mem::take(&mut multi.queue);
            let commands = queue.len();
            chores.free(queue, commands);
            multi.bytes = 0;
            self.info.multi_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Takes the queue, to run it. The session counts as inside MULTI until
    /// [`Session::end_multi`].
    pub fn take_multi(&mut self) -> Option<Box<Multi>> {
        self.multi.take()
    }

    /// Restores the queue when EXEC cannot run now.
    pub fn put_back_multi(&mut self, multi: Box<Multi>) {
        self.multi = Some(multi);
    }

    /// Ends MULTI: removes the queue and all watches.
    pub fn end_multi(&mut self, chores: &Chores) {
        if let Some(multi) = self.multi.take() {
            let commands = multi.queue.len();
            chores.free(multi, commands);
        }
        self.info.set_flag(ClientFlags::MULTI, false);
        self.info.multi_commands.store(-1, Ordering::Relaxed);
        self.info.multi_bytes.store(0, Ordering::Relaxed);
        self.unwatch(chores);
    }

    /// Its watches, created if there are none.
    pub fn watch(&mut self, table: &Arc<Watchers>) -> &mut Watch {
        self.watch.get_or_insert_with(|| {
            let watch = Box::new(Watch::new(table.clone()));
            *self.info.watch_failed.lock() = Some(watch.failed());
            watch
        })
    }

    /// Its watches, if any.
    pub fn watching(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// Ends all watches.
    pub fn unwatch(&mut self, chores: &Chores) {
        if let Some(watch) = self.watch.take() {
            *self.info.watch_failed.lock() = None;
            let keys = watch.len();
            chores.free(watch, keys);
        }
        self.info.watched_keys.store(0, Ordering::Relaxed);
    }

    /// Memory of queued commands and watches, in bytes; limited like a request.
    pub fn waiting_bytes(&self) -> usize {
        let queued = self.multi.as_ref().map_or(0, |multi| multi.bytes);
        queued + self.watch.as_ref().map_or(0, |watch| watch.memory())
    }

    /// About how many parts it has that are freed, or taken out of tables, one by one.
    pub fn parts(&self) -> usize {
        let queued = self.multi.as_ref().map_or(0, |multi| multi.queue.len());
        let watched = self.watch.as_ref().map_or(0, |watch| watch.len());
        let waits_for = self.waiting.as_ref().map_or(0, |wait| wait.keys().len());
        queued + watched + waits_for + self.fieldsets.len() + self.named_parts()
    }

    /// How many of these are subscriptions and prefixes.
    pub fn named_parts(&self) -> usize {
        let tracking = self.tracking.as_ref();
        self.subscriptions.len() + tracking.map_or(0, |tracking| tracking.prefixes.len())
    }

    /// Whether the client is connected by loopback or the Unix socket.
    pub fn is_local(&self) -> bool {
        self.info.flags().contains(ClientFlags::UNIX_SOCKET)
            || self.info.addr.starts_with("127.")
            || self.info.addr.starts_with("[::1]")
    }
}

impl Server {
    /// Removes a client that has disconnected from the lists of waiters, subscribers and tracking
    /// clients; if that takes long, as a chore.
    pub fn forget(&self, mut session: Session) {
        let tracked = match session.tracking.is_some() {
            true => self.tracking.table_size().0,
            false => 0,
        };
        if session.parts().max(tracked) <= MANY {
            return self.forget_now(&mut session);
        }
        let forget = move |server: &Server| server.forget_now(&mut session);
        if let Err(Some(chore)) = self.chores.leave(Box::new(forget)) {
            chore(self);
        }
    }

    /// The same, at once.
    pub fn forget_now(&self, session: &mut Session) {
        if let Some(waiter) = &session.waiting {
            self.waiters.abandon(waiter);
        }
        self.pubsub.forget(session);
        self.tracking.stop(session);
    }
}
