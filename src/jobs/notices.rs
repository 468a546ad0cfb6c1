//! What clients are told of the changes that background threads commit.

use crate::commands::error_of_lost_group;
use crate::state::Server;
use crate::state::config::NotifyEvents;
use crate::state::pubsub::Outbox;
use crate::state::waiters::Verdict;
use crate::storage::engine::listeners::Change;
use crate::storage::{DbIndex, StorageError, Txn};

/// Sends events and invalidations of the committed changes, once they are durable.
pub(super) fn tell_clients(
    server: &Server,
    txn: &mut Txn,
    notify: NotifyEvents,
) -> Result<(), StorageError> {
    if !txn.has_events() && !txn.has_changes() {
        return Ok(());
    }
    server.engine.make_durable()?;
    let changes = txn.take_changes();
    for change in &changes {
        if let Change::Key { db, key, .. } = change {
            end_waits_for(server, *db, key);
        }
    }
    let events = txn.take_events();
    let mut outbox = Outbox::default();
    outbox.notify(server, notify, &events);
    server.notify_clients(&changes, outbox);
    Ok(())
}

/// Ends the waits of clients that cannot continue without a removed key (XREADGROUP).
fn end_waits_for(server: &Server, db: DbIndex, key: &[u8]) {
    let waiters = &server.waiters;
    let hash = server.engine.key_hash(db, key);
    let mut ticket = None;
    while let Some(waiter) = waiters.next(hash, (db, key), ticket, |w| w.minds_loss()) {
        ticket = Some(waiter.ticket());
        let error = error_of_lost_group(&waiter.request.args(), key).to_string();
        server.unblock(waiter.client.id, Verdict::Error(error));
    }
}
