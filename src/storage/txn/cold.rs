//! What the commands of a turn do not find in memory, while they must not wait for the disk (see
//! [`crate::storage::engine::cold_reads`]).

use crate::base::num;
use crate::encoding::keys::{self, ELEMENT_PREFIX_LEN, RowKey};
use crate::encoding::meta::MetaView;
use crate::encoding::{CollectionId, ValueType, tag};
use crate::storage::engine::Keyspace;
use crate::storage::engine::cold_reads::{ColdRead, MAX_ROUNDS, ROUND_READS, Span};
use crate::storage::engine::rows::{ColdList, How, Rows};
use crate::storage::{DbIndex, Direction, Result, StorageError, Txn, View};
use rustc_hash::FxHashSet;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Longer arguments are not taken for members of a collection.
const MEMBER_MAX: usize = 1 << 10;

/// Tombstones that a look at the beginning of a collection passes.
const TOMBSTONES_AHEAD: u64 = 256;
/// So many arguments of a later command are taken for members.
const MEMBERS_AHEAD: usize = 64;

/// Whether reads may wait for the disk, and what they lack otherwise.
pub(in crate::storage) struct Cold {
    /// Never, whatever the command.
    never_waits: bool,
    may_wait: Cell<bool>,
    wanted: RefCell<Vec<ColdRead>>,
}

impl Default for Cold {
    fn default() -> Self {
        Cold {
            never_waits: false,
            may_wait: Cell::new(true),
            wanted: RefCell::default(),
        }
    }
}

impl Cold {
    pub(super) fn may_wait(&self) -> bool {
        self.may_wait.get()
    }

    pub(super) fn never_waits(&self) -> bool {
        self.never_waits
    }

    pub(super) fn want(&self, read: ColdRead) {
        self.wanted.borrow_mut().push(read);
    }

    /// Whether this is the row that the command has missed, which is asked for already.
    fn has_missed(&self, key: &[u8]) -> bool {
        let wanted = self.wanted.borrow();
        let first = wanted.first().and_then(ColdRead::as_row);
        first.is_some_and(|(_, missed)| missed == key)
    }

    /// For an iterator; `None`: it may wait.
    pub(super) fn list<'a>(&'a self, keyspace: &'a Arc<Keyspace>) -> Option<ColdList<'a>> {
        let list = || ColdList {
            keyspace,
            wanted: &self.wanted,
        };
        (!self.may_wait()).then(list)
    }
}

impl View {
    /// Whether the next reads may wait for the disk. If not, they fail with
    /// [`crate::storage::StorageError::NotInMemory`] for what is not in memory.
    pub(super) fn set_may_wait(&self, may: bool) {
        self.cold.may_wait.set(may && !self.cold.never_waits);
        if !may && self.has_cold_reads() {
            // Of a command that could do without.
            self.cold.wanted.borrow_mut().clear();
        }
    }

    /// Whether the next reads may wait for the disk.
    pub(in crate::storage) fn may_wait(&self) -> bool {
        self.cold.may_wait()
    }

    /// What the reads since the last call did not find in memory, at most [`ROUND_READS`] of it: a
    /// command that needs more asks again.
    pub fn take_cold_reads(&self) -> Vec<ColdRead> {
        let mut wanted = std::mem::take(&mut *self.cold.wanted.borrow_mut());
        if wanted.len() > 1 {
            let mut rows = FxHashSet::default();
            wanted.retain(|read| {
                let row = read.as_row();
                row.is_none_or(|(keyspace, key)| {
                    rows.insert((keyspace.id, RowKey::from_slice(key)))
                })
            });
        }
        wanted.truncate(ROUND_READS);
        wanted
    }

    /// Whether there are such reads.
    pub fn has_cold_reads(&self) -> bool {
        !self.cold.wanted.borrow().is_empty()
    }

    /// Looks the rows of these keys up, as far as there is room for what they lack: a command that
    /// has missed one will need the others, too.
    pub fn look_for<'k>(&self, keys: impl Iterator<Item = (DbIndex, &'k [u8])>) {
        keys.for_each(|(db, key)| self.look_up(db, &self.engine.layout.meta(key)));
    }

    /// If the row of a member of a collection was not in memory: looks the rows of these members of
    /// the same collection up. Those that are none cost a search in its filters.
    pub fn look_for_members(&self, members: &[&[u8]]) {
        let missed = self.cold.wanted.borrow().last().and_then(|read| {
            let (keyspace, key) = read.as_row()?;
            let is_number = key.first() == Some(&tag::SORTED_INT);
            let is_hashed = keys::map_prefix(key).is_some()
                && keys::split_hashed(key)
                    .is_ok_and(|(hash, member)| hash == self.engine.hash.hash(member));
            let prefix = RowKey::from_slice(key.get(..ELEMENT_PREFIX_LEN)?);
            (is_number || is_hashed).then(|| (keyspace.clone(), prefix))
        });
        let Some((keyspace, prefix)) = missed else {
            return;
        };
        let db = self
            .keyspaces
            .iter()
            .position(|here| here.as_ref().is_some_and(|here| here.id == keyspace.id));
        let Some(db) = db.and_then(|db| u16::try_from(db).ok()) else {
            return;
        };
        let members = members.iter().filter(|member| member.len() <= MEMBER_MAX);
        for member in members.take(ROUND_READS) {
            let mut key = prefix.clone();
            if key.first() == Some(&tag::SORTED_INT) {
                let Some(n) = num::parse_u64(member) else {
                    continue;
                };
                key.extend_from_slice(&n.to_be_bytes());
            } else {
                key.extend_from_slice(&self.engine.hash.hash(member).to_be_bytes());
                key.extend_from_slice(member);
            }
            self.look_up(DbIndex(db), &key);
        }
    }

    /// Looks for what commands on these keys read of their collections, as far as their keys are in
    /// memory: the rows of `members`, or the first rows if there are none, or if the elements are not
    /// found by their bytes.
    pub fn look_for_elements<'k>(
        &self,
        keys: impl Iterator<Item = (DbIndex, &'k [u8])>,
        members: &[&[u8]],
    ) {
        let may_wait = self.cold.may_wait.replace(false);
        for (db, key) in keys {
            if self.has_a_round_of_cold_reads() {
                break;
            }
            // Any other error is met again.
            if let Ok(Some((kind, id))) = self.collection_of(db, key) {
                self.look_for_rows_of(db, (kind, id), members);
            }
        }
        self.cold.may_wait.set(may_wait);
    }

    /// The type and id of a collection in rows.
    fn collection_of(&self, db: DbIndex, key: &[u8]) -> Result<Option<(ValueType, CollectionId)>> {
        let Some(row) = self.meta_row(db, key)? else {
            return Ok(None);
        };
        let found = MetaView::decode(&row)?;
        Ok(match found.meta.rows {
            true => Some((found.meta.kind, found.id()?)),
            false => None,
        })
    }

    fn look_for_rows_of(
        &self,
        db: DbIndex,
        (kind, id): (ValueType, CollectionId),
        members: &[&[u8]],
    ) {
        // Members of sorted sets are found by their bytes and by their scores.
        let ways = if kind == ValueType::Zset { 2 } else { 1 };
        let tags = kind.element_tags().get(..ways).unwrap_or_default();
        if let (Some(&by_hash), false) = (tags.first(), members.is_empty())
            && tag::HASHED.contains(&by_hash)
        {
            let before = self.cold.wanted.borrow().len();
            let those = members.iter().filter(|member| member.len() <= MEMBER_MAX);
            for member in those.take(MEMBERS_AHEAD) {
                let hash = self.engine.hash.hash(member);
                self.look_up(db, &keys::hashed(by_hash, id, hash, member));
            }
            // Those that are none may be positions, scores or a count.
            let may_be_range = kind == ValueType::Zset
                || members.iter().all(|word| num::parse_i64(word).is_some());
            if !may_be_range || self.cold.wanted.borrow().len() > before {
                return;
            }
        }
        let Some(keyspace) = self.keyspace(db) else {
            return;
        };
        // Any error is met again.
        if kind == ValueType::String && !matches!(self.has_base_at_hand(db, id), Ok(false)) {
            return;
        }
        for &tag in tags {
            let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
            let span = Span::new(&from, &to, Direction::Forward);
            let how = How {
                // The command may begin behind the tombstones of what was popped, as many as they are.
                bound: Some(TOMBSTONES_AHEAD),
                cold: self.cold.list(keyspace),
                ..How::default()
            };
            // What it lacks is noted.
            let _ = Rows::open(&self.engine, keyspace, &span, how).status();
        }
    }

    /// Looks a row up, as far as there is room for what is not in memory.
    fn look_up(&self, db: DbIndex, key: &[u8]) {
        if !self.has_a_round_of_cold_reads() && !self.cold.has_missed(key) {
            let may_wait = self.cold.may_wait.replace(false);
            // Any other error is met again.
            let _ = self.row(db, key);
            self.cold.may_wait.set(may_wait);
        }
    }

    /// Whether the reads that are asked for are as many as one round has.
    pub fn has_a_round_of_cold_reads(&self) -> bool {
        self.cold.wanted.borrow().len() >= ROUND_READS
    }

    /// Whether no further reads should be asked for in advance.
    pub fn has_many_cold_reads(&self) -> bool {
        self.engine.readers.are_busy()
    }
}

impl Txn {
    /// From now on no read of this transaction waits for the disk, in a command or not.
    pub fn never_wait_for_reads(&mut self) {
        self.cold.never_waits = true;
        self.set_may_wait(false);
    }

    /// Runs a turn on a thread that may wait for the disk, at first without waiting inside the turn:
    /// other threads would wait for its locks. As long as it fails for want of rows, these are
    /// brought into memory between two attempts. The last attempt may wait: it holds keys
    /// [for long](Txn::hold_for_long). A turn that fails is abandoned.
    pub(in crate::storage) fn with_reads_before<R>(
        &mut self,
        mut turn: impl FnMut(&mut Txn) -> Result<R>,
    ) -> Result<R> {
        for _ in 0..MAX_ROUNDS {
            self.set_may_wait(false);
            let done = turn(self);
            self.set_may_wait(true);
            match self.abandon_if_failed(done) {
                Err(StorageError::NotInMemory) => {
                    let reads = self.take_cold_reads();
                    self.engine.wait_for_reads(reads);
                    self.wait_for_lacked_tables()?;
                }
                done => return done,
            }
        }
        self.hold_for_long(true);
        let done = turn(self);
        let done = self.abandon_if_failed(done);
        self.hold_for_long(false);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::storage::txn::ReadLimits;
    use crate::storage::txn::scan::TombstoneCount;
    use crate::storage::{Engine, StorageConfig};

    /// Each look at a list whose items were popped passed all of their tombstones, on an IO thread.
    #[test]
    fn a_look_ahead_passes_few_tombstones() {
        let mut client = crate::exec::testing::Client::new();
        let engine = client.server().engine.clone();
        for n in 0..100 {
            let words = (0..100).map(|m| format!("item:{n}:{m}"));
            client.run(&format!("RPUSH l {}", words.collect::<Vec<_>>().join(" ")));
        }
        engine.flush_memtables().unwrap();
        // Few at a time: more are deleted as a range, which leaves one tombstone.
        for _ in 0..500 {
            client.run("LPOP l 10");
        }
        let mut txn = Txn::new(engine);
        txn.begin(UnixMs(1)).unwrap();
        let count = TombstoneCount::counted_from_now(u64::MAX);
        txn.look_for_elements(std::iter::once((DbIndex(0), &b"l"[..])), &[]);
        let passed = count.passed();
        assert!(passed > TOMBSTONES_AHEAD / 2, "it looked, and met {passed}");
        assert!(passed <= 2 * TOMBSTONES_AHEAD, "{passed}");
    }

    /// The turn that may wait for the disk with its keys locked once held them like any other: IO
    /// threads that needed one of them waited, too.
    #[test]
    fn a_turn_whose_rows_never_come_waits_in_the_end_and_keeps_no_thread_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().join("db"))).unwrap();
        let db = DbIndex(0);
        let (mut txn, mut other) = (Txn::new(engine.clone()), Txn::new(engine.clone()));
        other.be_impatient();
        let hash = txn.key_hash(db, b"k");
        let mut attempts = 0;
        let done = txn.with_reads_before(|txn| {
            attempts += 1;
            txn.begin(UnixMs(1))?;
            txn.lock([hash].into_iter())?;
            if !txn.may_wait() {
                return Err(StorageError::NotInMemory);
            }
            other.begin(UnixMs(1))?;
            let turned_away = other.lock([hash].into_iter());
            assert!(matches!(turned_away, Err(StorageError::Held(_))));
            other.commit()?;
            txn.commit()
        });
        done.unwrap();
        assert_eq!(attempts, MAX_ROUNDS + 1);
        other.begin(UnixMs(1)).unwrap();
        other.lock([hash].into_iter()).unwrap();
        other.commit().unwrap();
    }

    #[test]
    fn a_transaction_that_never_waits_says_so_between_commands_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().join("db"))).unwrap();
        let mut txn = Txn::new(engine);
        assert!(txn.may_wait());
        txn.never_wait_for_reads();
        for limits in [ReadLimits::Budget, ReadLimits::InMemory, ReadLimits::None] {
            txn.limit_reads(limits);
            assert!(!txn.may_wait());
        }
    }
}
