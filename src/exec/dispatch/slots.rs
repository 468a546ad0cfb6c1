//! With `cluster-enabled`: the keys of a command, of a transaction and of a script are in one slot,
//! and a replica sends clients to its master.

use crate::base::slots::Slots;
use crate::commands::table::registry::Registered;
use crate::commands::table::spec::Channels;
use crate::commands::{Command, Error, Own};
use crate::exec::Executor;
use crate::state::Session;
use crate::state::clients::ClientFlags;

const CROSS_SLOT: Error = Error::text("CROSSSLOT Keys in request don't hash to the same slot");
const CROSS_SLOT_IN_SCRIPT: Error =
    Error::text("ERR Script attempted to access keys that do not hash to the same slot");
const NOT_LOCAL: Error =
    Error::text("ERR Script attempted to access a non local key in a cluster node");

/// Whether an error sends the client elsewhere, or tells of keys in several slots: its library
/// looks for the code, so it is not wrapped.
pub(in crate::exec) fn is_for_library(error: &Error) -> bool {
    let text = error.to_string();
    ["REDIRECT ", "MOVED ", "CROSSSLOT "]
        .iter()
        .any(|code| text.starts_with(code))
}

impl Executor {
    /// Checks the slots of a command, which for EXEC are those of all queued ones.
    ///
    /// # Errors
    /// The error for the client or for its script.
    pub(super) fn check_slots(
        &self,
        session: &Session,
        found: &Registered,
        args: &[&[u8]],
        writes: bool,
    ) -> Result<(), Error> {
        if self.txn.is_received() {
            return Ok(());
        }
        // As in Redis, the write of a script is refused because of the role first.
        let read_only = session.began_on_replica && self.thread.config.replica_read_only;
        if session.is_script && writes && read_only {
            return Ok(());
        }
        let crosses = session.info.flags().contains(ClientFlags::CROSSES_SLOTS);
        let slot = match slots(session, found.command, args) {
            Slots::None => return Ok(()),
            Slots::One(slot) => slot,
            // One master has all slots.
            Slots::Several if crosses && !self.moves(session, found.command, writes) => {
                return Ok(());
            }
            Slots::Several if session.is_script => {
                return Err(Error::owned(format!(
                    "ERR Command '{}' in script attempted to access keys that don't hash to the \
                     same slot",
                    found.full_name
                )));
            }
            Slots::Several => return Err(CROSS_SLOT),
        };
        if self.moves(session, found.command, writes) {
            // A failover that goes on would send the client there and back: its command is held.
            let hands_over = self.server.replication.desired().hands_over();
            return match (session.is_script, hands_over) {
                (true, _) => Err(NOT_LOCAL),
                (false, true) => Ok(()),
                (false, false) => Err(Error::owned(self.server.moved(slot, &session.info))),
            };
        }
        if session.is_script && !session.crosses_slots && !crosses {
            match session.slot.get() {
                None => session.slot.set(Some(slot)),
                Some(first) if first == slot => {}
                Some(_) => return Err(CROSS_SLOT_IN_SCRIPT),
            }
        }
        Ok(())
    }

    /// Whether a replica sends a command with keys to its master: unless the client is content
    /// with what a replica has. A message to a shard channel goes there as well, since only a master
    /// passes it on to the other nodes.
    fn moves(&self, session: &Session, command: &Command, writes: bool) -> bool {
        let is_replica = match session.is_script {
            true => session.began_on_replica,
            false => self.server.replication.is_replica(),
        };
        let reads_here = session.info.flags().contains(ClientFlags::READS_REPLICA)
            || command.channels == Channels::All;
        is_replica && (writes || command.channels == Channels::First || !reads_here)
    }

    /// Whether a failover must end before it is known where the command is to run.
    pub(super) fn waits_to_move(
        &self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
        writes: bool,
    ) -> bool {
        self.thread.config.cluster_enabled
            && self.moves(session, command, writes)
            && slots(session, command, args) != Slots::None
    }
}

/// The slots of a command, or of all commands that EXEC is to run.
fn slots(session: &Session, command: &Command, args: &[&[u8]]) -> Slots {
    match session.multi() {
        Some(multi) if command.is_own(Own::Exec) => multi.traits.slots,
        _ => command.slots(args),
    }
}
