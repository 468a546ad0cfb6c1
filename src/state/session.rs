//! One client, as the commands it runs see and change it. Owned by the
//! client's IO thread.

use super::Server;
use super::clients::ClientInfo;
use super::pubsub::Subscriptions;
use crate::storage::DbIndex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// See the module.
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
    /// Output that goes before the reply of the command that runs.
    pub overtaken: Vec<u8>,
    db: DbIndex,
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
            overtaken: Vec::new(),
            db: DbIndex(0),
        }
    }

    /// Whether it hears of what it does itself.
    pub fn listens(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Lets all that waits for it in its thread's queue go out before the reply of
    /// the command that runs.
    pub fn overtake(&mut self, server: &Server) {
        if let Some(mailbox) = server.mailboxes().get(self.info.thread) {
            for delivery in mailbox.deliveries.take_for(self.info.id) {
                delivery.write(self.resp3, &mut self.overtaken);
            }
        }
    }

    /// The selected DB.
    pub fn db(&self) -> DbIndex {
        self.db
    }

    /// Selects a DB that exists.
    pub fn select(&mut self, db: DbIndex) {
        self.db = db;
        self.info.db.store(u32::from(db.0), Ordering::Relaxed);
    }

    /// Switches the protocol version.
    pub fn set_resp3(&mut self, on: bool) {
        self.resp3 = on;
        self.info
            .resp
            .store(if on { 3 } else { 2 }, Ordering::Relaxed);
    }

    /// Whether the client came by loopback or the Unix socket.
    pub fn is_local(&self) -> bool {
        use super::clients::ClientFlags;
        self.info.flags().contains(ClientFlags::UNIX_SOCKET)
            || self.info.addr.starts_with("127.")
            || self.info.addr.starts_with("[::1]")
    }
}
