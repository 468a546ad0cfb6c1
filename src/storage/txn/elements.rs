//! Elements whose own time is over: how their removal is logged and told.

use crate::encoding::ValueType;
use crate::storage::DbIndex;
use crate::storage::txn::Txn;
use crate::storage::txn::events::Class;

/// Most elements of one command in the binlog.
const LOGGED_ELEMENTS: usize = 1024;

impl Txn {
    /// Counts fields or members that a value has brought and that are not stored, as their time is
    /// over.
    pub fn count_expired_elements(&mut self, count: u64) {
        self.command.expired_elements += count;
    }

    /// Logs that fields or members were removed because their time is over, before anything else of
    /// the current command, and notes the event. So a replica, which removes none by its own clock,
    /// sees the same state when it runs the command.
    pub fn note_expired_elements(
        &mut self,
        db: DbIndex,
        key: &[u8],
        kind: ValueType,
        members: &[Box<[u8]>],
    ) {
        let (command, class, event): (&[u8], _, _) = if kind == ValueType::Set {
            (b"SREM", Class::SET, "sexpired")
        } else {
            (b"HDEL", Class::HASH, "hexpired")
        };
        for members in members.chunks(LOGGED_ELEMENTS) {
            let members = members.iter().map(AsRef::as_ref);
            let effect: Vec<&[u8]> = [command, key].into_iter().chain(members).collect();
            self.batch.log.append(db, &effect);
        }
        if !members.is_empty() {
            self.event_before(class, event, db, key);
            self.command.expired_elements += members.len() as u64;
        }
    }
}
