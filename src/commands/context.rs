//! What a handler gets to work with. The type of the context decides what a
//! handler can do: only a [`WriteCtx`] has a transaction that writes.

use super::spec::Command;
use crate::resp::Reply;
use crate::state::pubsub::Outbox;
use crate::state::{Server, Session};
use crate::storage::engine::listeners::Change;
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, Txn, View};

/// For a command that reads keys.
pub struct ReadCtx<'a> {
    /// What it reads through.
    pub view: &'a mut View,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
    /// The client's DB.
    pub db: DbIndex,
    /// What all threads share.
    pub server: &'a Server,
    /// The client.
    pub session: &'a Session,
}

/// For a command that writes keys.
pub struct WriteCtx<'a> {
    /// What it reads and writes through.
    pub txn: &'a mut Txn,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
    /// The client's DB.
    pub db: DbIndex,
    /// What all threads share.
    pub server: &'a Server,
    /// The client.
    pub session: &'a Session,
}

impl WriteCtx<'_> {
    /// Tells of what the command has done to a key: what leaves the key empty,
    /// before that is saved, the rest after it.
    pub fn event(&mut self, class: Class, name: &'static str, key: &[u8]) {
        self.txn.event(class, name, self.db, key);
    }
}

/// For a command about the connection or the server.
pub struct SessionCtx<'a> {
    /// The client.
    pub session: &'a mut Session,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
    /// What all threads share.
    pub server: &'a Server,
    /// What goes to clients once the tick is durable.
    pub outbox: &'a mut Outbox,
    /// Keys that the commands before have changed, as far as somebody wants to know;
    /// nothing of it is committed.
    pub changes: &'a [Change],
    /// The command that runs; of a container, the subcommand.
    pub command: &'static Command,
    /// When the EXEC or script began that it is a part of, Unix us.
    pub unit_began_us: Option<u64>,
}
