//! Units: several commands as one. EXEC and scripts are units.
//!
//! The keys of a unit are locked before it starts and stay locked until the commit. Its
//! commands read what earlier ones wrote. Nothing is committed in the middle, so the whole unit
//! is in one batch and, between MULTI and EXEC, in one row of the binlog. A command that fails
//! is taken back alone. Units on different keys run in parallel on different threads. Replies
//! wait for the commit at the end of the tick, as all replies do.
//!
//! To run a unit, collect its keys in a [`Scope`]; then call [`Executor::begin_unit`],
//! [`Executor::call`] for each command, and [`Executor::end_unit`] or
//! [`Executor::roll_back_unit`]. Units nest; only the outermost one locks, commits and rolls
//! back.
//!
//! A thread must not wait for a lock while it holds others. A command that touches a key
//! outside the scope therefore gets it only if no other thread holds it: otherwise
//! [`Executor::call`] returns [`Stop::Conflict`]. The unit must then be rolled back, and may be
//! run again from its start under [`Scope::everything`], which keeps all other threads from the
//! keys. An inner unit passes the conflict on to the outer one. So undeclared keys are isolated
//! as well.

use super::record::Mark;
use super::{Executor, KeyHashes, Stop};
use crate::commands::table::keys::{Begin, Find};
use crate::commands::table::registry::Registered;
use crate::commands::{CmdResult, Command, Error, Flags};
use crate::resp::Reply;
use crate::state::Session;
use crate::storage::DbIndex;
use crate::storage::txn::{Lookups, ReadLimits, Savepoint};
use crate::sys::clock;
use std::time::Duration;

/// The keys that a unit locks before it starts.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    keys: Vec<(DbIndex, &'a [u8])>,
    everything: bool,
    slow: bool,
}

impl<'a> Scope<'a> {
    /// All keys of all DBs: no other thread reads or writes keys meanwhile.
    pub fn everything() -> Scope<'a> {
        Scope {
            everything: true,
            ..Scope::default()
        }
    }

    /// Adds one key.
    pub fn key(&mut self, db: DbIndex, key: &'a [u8]) {
        self.keys.push((db, key));
    }

    /// Adds the keys of a command; all keys, if its arguments do not name them.
    pub fn command(&mut self, db: DbIndex, command: &Command, args: &[&'a [u8]]) {
        self.slow |= command.flags.contains(Flags::SLOW);
        if !command.touches_keys() {
            return;
        }
        self.everything |= command.flags.contains(Flags::EXCLUSIVE) || !names_its_keys(command);
        // For wrong arguments there are no indices; the handler refuses them.
        let indices = command.key_indices(args).unwrap_or_default();
        let other = command.other_db(args);
        for index in indices {
            self.keys.push((db, args[index]));
            self.keys.extend(other.map(|other| (other, args[index])));
        }
    }

    /// The keys that it names.
    pub(super) fn keys(&self) -> impl Iterator<Item = (DbIndex, &'a [u8])> {
        self.keys.iter().copied()
    }

    /// Whether the scope is all keys of all DBs.
    pub(super) fn is_everything(&self) -> bool {
        self.everything
    }
}

/// Whether the arguments name all keys of the command.
fn names_its_keys(command: &Command) -> bool {
    let unknown = |find, begin| find == Find::Unknown || begin == Begin::Unknown;
    let specs = command.keys;
    !specs.is_empty() && !specs.iter().any(|spec| unknown(spec.find, spec.begin))
}

/// The unit that runs.
pub(super) struct Unit {
    depth: u32,
    /// An inner unit met a conflict, so the outermost one must be rolled back.
    conflict: bool,
    /// Whether the server was a replica when the unit began: its commands are checked against
    /// that until its end.
    on_replica: bool,
    /// When the unit began, Unix µs.
    began_us: u64,
    savepoint: Savepoint,
    /// The length of the outbox when the unit began.
    sent: usize,
    /// The number of locks when the unit began.
    mark: usize,
    /// The end of the record when the unit began.
    record: Mark,
    lookups: Lookups,
    /// Hashes of the keys whose accesses are counted if the unit is not taken back.
    accessed: KeyHashes,
}

/// What a command of a unit costs at least, in steps of [`crate::storage::View::work`].
const STEPS_OF_A_COMMAND: u64 = 8;

/// Accesses that a unit holds back at most; beyond that they are counted before its end.
const MAX_ACCESSES: usize = 64 << 10;

impl Executor {
    /// The time for the commands of the present unit, Unix time in µs: that of its beginning. Once it
    /// has run for `busy-reply-threshold`, it is the present: a script may wait for a time.
    pub(super) fn unit_time_us(&self) -> Option<u64> {
        let began_us = self.unit.as_ref()?.began_us;
        let now_us = clock::unix_us();
        let ran = Duration::from_micros(now_us.saturating_sub(began_us));
        Some(match ran < self.busy_threshold() {
            true => began_us,
            false => now_us,
        })
    }

    /// Begins a unit. May commit what earlier commands of the tick left pending.
    ///
    /// # Errors
    /// That commit failed, or a script that runs for long holds a key. No unit has begun then.
    pub(super) fn begin_unit(&mut self, scope: &Scope<'_>) -> Result<(), Stop> {
        if let Some(unit) = &mut self.unit {
            unit.depth += 1;
            return Ok(());
        }
        self.tick.touched_keys |= scope.everything || !scope.keys.is_empty();
        if scope.slow {
            // The replies of earlier commands need not wait for the slow ones.
            self.commit_pending()?;
        }
        self.prefetch(scope.keys.iter().copied());
        let hash = |&(db, key): &(DbIndex, &[u8])| self.txn.key_hash(db, key);
        let hashes: KeyHashes = scope.keys.iter().map(hash).collect();
        let first = self.txn.give_way(&hashes, scope.everything);
        first.map_err(|error| self.not_locked(error, false))?;
        self.tick.commands_in_unit = 0;
        let mark = if scope.everything {
            self.begin_exclusive()?;
            0
        } else {
            self.begin(false)?;
            let locked = self.txn.lock(hashes.iter().copied());
            locked.map_err(|error| self.not_locked(error, false))?
        };
        let may_be_taken_back = self.may_be_slow() || self.request.in_memory;
        self.tick.record.hold(may_be_taken_back);
        self.unit = Some(Unit {
            depth: 1,
            conflict: false,
            on_replica: self.server.replication.is_replica(),
            began_us: clock::unix_us(),
            savepoint: self.txn.savepoint(),
            sent: self.tick.outbox.len(),
            mark,
            record: self.tick.record.mark(),
            lookups: self.txn.lookups(),
            accessed: KeyHashes::new(),
        });
        // The read budget is that of the unit as a whole.
        self.txn.limit_reads_and_watch(self.read_limits());
        Ok(())
    }

    /// Adds accessed keys of a command of the unit.
    pub(super) fn note_accesses_in_unit(&mut self, hashes: impl Iterator<Item = u64>) {
        if let Some(unit) = &mut self.unit {
            unit.accessed.extend(hashes);
            if unit.accessed.len() >= MAX_ACCESSES {
                let accessed = std::mem::take(&mut unit.accessed);
                self.touch(&accessed);
            }
        }
    }

    /// Whether a unit runs.
    pub fn in_unit(&self) -> bool {
        self.unit.is_some()
    }

    /// Whether the unit that runs began on a replica.
    pub(in crate::exec) fn began_on_replica(&self) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.on_replica)
    }

    /// The command that `args` name, if it passes admission: `session` may run it now.
    /// # Errors
    /// The error reply.
    pub(super) fn find_command(
        &self,
        session: &Session,
        args: &[&[u8]],
    ) -> Result<&'static Registered, Error> {
        self.admit(session, args)
    }

    /// Runs a command that [`Executor::find_command`] found, within the unit, and appends its
    /// reply. Counts and logs it like any command.
    ///
    /// # Errors
    /// [`Stop::Failed`]: the command is taken back and the unit goes on; the caller writes the
    /// error reply. [`Stop::Conflict`]: see the module.
    pub fn call(
        &mut self,
        session: &mut Session,
        found: &'static Registered,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        debug_assert!(self.in_unit());
        if self.may_be_slow() && self.tick.record.is_full() {
            // More would have to be reported before the unit has ended: it could not be taken back.
            return Err(Stop::Slow);
        }
        // A unit of very many short commands is long, too.
        self.txn.work(STEPS_OF_A_COMMAND)?;
        let start = reply.len();
        let denied_before = std::mem::replace(&mut session.deny_blocking, true);
        let done = self.perform(session, found, args, reply);
        session.deny_blocking = denied_before;
        if done.is_err() {
            reply.truncate(start);
        }
        if let Err(Stop::Failed(error)) = &done {
            self.count_error(error);
        }
        if !done.as_ref().is_err_and(Stop::takes_back) {
            let reply_bytes = reply.len().saturating_sub(start);
            self.count(session, found, args, done.is_err(), reply_bytes);
        }
        done
    }

    /// Ends a unit: what it did is now part of the tick's batch.
    ///
    /// # Errors
    /// The unit was exclusive and therefore committed at once, and that commit failed.
    pub(super) fn end_unit(&mut self) -> CmdResult {
        let Some(unit) = self.leave_unit() else {
            return Ok(());
        };
        debug_assert!(!unit.conflict, "a unit with a conflict must be rolled back");
        self.tick.record.count(&self.server);
        self.touch(&unit.accessed);
        let unchanged = self.txn.is_unchanged_since(&unit.savepoint);
        self.txn.log_as_unit(&unit.savepoint);
        self.announce_changes();
        self.serve_waiters();
        if self.txn.is_exclusive() {
            self.commit_pending()?;
        } else if unchanged {
            self.txn.unlock_since(unit.mark);
        }
        Ok(())
    }

    /// Ends a unit and takes back its changes. An inner unit only ends: the outer unit must be
    /// rolled back then.
    ///
    /// # Errors
    /// The commit that releases all keys failed; the unit is taken back nevertheless.
    pub(super) fn roll_back_unit(&mut self) -> CmdResult {
        let Some(unit) = self.leave_unit() else {
            if let Some(outer) = &mut self.unit {
                outer.conflict = true;
            }
            return Ok(());
        };
        self.txn.rollback(&unit.savepoint);
        self.txn.set_lookups(unit.lookups);
        self.tick.record.take_back(unit.record);
        self.tick.outbox.truncate(unit.sent);
        if self.txn.is_exclusive() {
            self.commit_pending()?;
        } else {
            self.txn.unlock_since(unit.mark);
        }
        Ok(())
    }

    /// Ends the innermost unit; returns it if it is also the outermost.
    fn leave_unit(&mut self) -> Option<Unit> {
        match &mut self.unit {
            Some(unit) if unit.depth > 1 => {
                unit.depth -= 1;
                None
            }
            _ => {
                self.txn.limit_reads(ReadLimits::None);
                self.tick.record.hold(false);
                self.unit.take()
            }
        }
    }

    /// Locks the keys of a command in a unit. Nearly always the unit holds them already.
    pub(super) fn lock_in_unit(
        &mut self,
        db: DbIndex,
        command: &Command,
        args: &[&[u8]],
    ) -> Result<(), Stop> {
        if self.txn.is_exclusive() {
            return Ok(());
        }
        let mut scope = Scope::default();
        scope.command(db, command, args);
        let conflict = self.unit.as_ref().is_some_and(|unit| unit.conflict);
        if conflict || scope.everything || !self.txn.try_lock_in_dbs(scope.keys.into_iter()) {
            return Err(Stop::Conflict);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::exec::testing::Client;
    use crate::resp::Value;
    use crate::storage::Txn;
    use crate::storage::engine::listeners::{Change, How, Keys, Listener};

    use parking_lot::Mutex;
    use std::sync::Arc;

    /// Runs commands as one unit, as EXEC would; `Err` if one met a conflict.
    fn run_unit(client: &mut Client, scope: &Scope<'_>, lines: &[&str]) -> Result<Vec<u8>, ()> {
        let (executor, session) = client.parts();
        executor.start_tick();
        executor.begin_unit(scope).unwrap();
        let mut reply = Reply::new(false);
        for line in lines {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let found = executor.find_command(session, &args).unwrap();
            match executor.call(session, found, &args, &mut reply) {
                Ok(()) => {}
                Err(Stop::Failed(error) | Stop::Counted(error)) => {
                    reply.error_bytes(&error.wire());
                }
                Err(Stop::Conflict | Stop::Slow | Stop::Cold) => {
                    executor.roll_back_unit().unwrap();
                    executor.finish_tick().unwrap();
                    return Err(());
                }
            }
        }
        executor.end_unit().unwrap();
        executor.finish_tick().unwrap();
        Ok(reply.buf)
    }

    fn scope_of<'a>(keys: &[&'a str]) -> Scope<'a> {
        let mut scope = Scope::default();
        for key in keys {
            scope.key(DbIndex(0), key.as_bytes());
        }
        scope
    }

    fn run_script(client: &mut Client, keys: &[&str], lines: &[&str]) -> String {
        let reply = run_unit(client, &scope_of(keys), lines).unwrap();
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn a_unit_is_one_transaction_in_the_log() {
        let mut client = Client::new();
        let lines = ["SET a 1", "INCR a", "LPUSH a x", "GET a"];
        let replies = run_script(&mut client, &["a"], &lines);
        assert!(replies.starts_with("+OK\r\n:2\r\n-WRONGTYPE"), "{replies}");
        assert!(replies.ends_with("$1\r\n2\r\n"), "{replies}");
        assert_eq!(client.logged(), ["MULTI", "SET a 1", "INCR a", "EXEC"]);
        run_script(&mut client, &["a"], &["DEL a", "GET a"]);
        assert_eq!(client.logged()[4..], ["DEL a"]);
        client.check();
    }

    #[test]
    fn the_row_of_a_unit_begins_with_the_db() {
        let mut client = Client::new();
        run_script(&mut client, &["a"], &["SET a 1", "SELECT 11", "SET a 2"]);
        let mut bytes = Vec::new();
        let engine = client.server().engine.clone();
        engine
            .read_binlog(crate::encoding::binlog::Position::NONE, |_, row| {
                assert_eq!(row.entries, 2);
                bytes.extend_from_slice(row.bytes);
                true
            })
            .unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let words: Vec<&str> = text
            .split("\r\n")
            .filter(|w| !w.starts_with(['*', '$']))
            .collect();
        let expected = "SELECT 0 MULTI SET a 1 SELECT 11 SET a 2 EXEC ";
        assert_eq!(words.join(" "), expected);
        client.check();
    }

    #[test]
    fn what_a_unit_did_can_be_taken_back() {
        let mut client = Client::new();
        client.run("SET a before");
        let (executor, session) = client.parts();
        executor.start_tick();
        executor.begin_unit(&scope_of(&["a", "b"])).unwrap();
        let mut reply = Reply::new(false);
        for args in [[&b"SET"[..], b"a", b"x"], [b"SET", b"b", b"x"]] {
            let found = executor.find_command(session, &args).unwrap();
            executor.call(session, found, &args, &mut reply).unwrap();
        }
        executor.roll_back_unit().unwrap();
        executor.finish_tick().unwrap();
        assert_eq!(client.run("GET a"), Value::Bulk(b"before".to_vec()));
        assert_eq!(client.run("EXISTS b"), Value::Int(0));
        assert_eq!(client.logged(), ["SET a before"]);
        client.check();
    }

    #[test]
    fn whole_dbs_within_a_unit() {
        let mut client = Client::new();
        client.run("SET old 1");
        let lines = [
            "SET a 1",
            "FLUSHALL",
            "SET b 2",
            "SWAPDB 0 3",
            "DBSIZE",
            "KEYS *",
        ];
        let reply = run_unit(&mut client, &Scope::everything(), &lines).unwrap();
        assert_eq!(reply, b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n:0\r\n*0\r\n");
        client.run("SELECT 3");
        assert_eq!(client.run("GET b"), Value::Bulk(b"2".to_vec()));
        assert_eq!(client.run("DBSIZE"), Value::Int(1));
        client.check();
    }

    #[test]
    fn a_key_that_another_thread_holds_is_a_conflict() {
        let mut client = Client::new();
        let mut other = Txn::new(client.server().engine.clone());
        other.begin(UnixMs(0)).unwrap();
        let held = other.key_hash(DbIndex(0), b"held");
        other.lock([held].into_iter()).unwrap();
        let lines = ["SET a 1", "SET held 2"];
        assert_eq!(run_unit(&mut client, &scope_of(&["a"]), &lines), Err(()));
        assert_eq!(client.run("EXISTS a"), Value::Int(0));
        assert_eq!(
            run_unit(&mut client, &scope_of(&["a"]), &["FLUSHALL"]),
            Err(())
        );
        other.commit().unwrap();
        let both = run_script(&mut client, &["a"], &lines);
        assert_eq!(both, "+OK\r\n+OK\r\n");
        let alone = run_unit(&mut client, &Scope::everything(), &["FLUSHALL"]);
        assert_eq!(alone, Ok(b"+OK\r\n".to_vec()));
        client.check();
    }

    #[test]
    fn commands_without_declared_keys_take_everything() {
        let args: [&[u8]; 6] = [b"SORT", b"a", b"BY", b"w_*", b"STORE", b"c"];
        let of = |line: &str| {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let found = crate::commands::registry().find(args[0]).unwrap();
            let mut scope = Scope::default();
            scope.command(DbIndex(0), found.command, &args);
            (scope.everything, scope.keys.len())
        };
        assert_eq!(of("SET a 1"), (false, 1));
        assert_eq!(of("COPY a b DB 3"), (false, 4));
        assert_eq!(of("PING"), (false, 0));
        assert!(of("DBSIZE").0 && of("KEYS *").0 && of("FLUSHDB").0);
        assert!(of(&String::from_utf8(args.join(&b' ')).unwrap()).0);
    }

    #[derive(Default)]
    struct Recorder {
        changing: Mutex<Vec<String>>,
        changed: Mutex<Vec<String>>,
    }

    impl Recorder {
        fn take(&self) -> Vec<String> {
            let changing = std::mem::take(&mut *self.changing.lock());
            let changed = std::mem::take(&mut *self.changed.lock());
            assert_eq!(changing, changed);
            changed
        }
    }

    fn name(change: &Change) -> String {
        match change {
            Change::Key { db, key, how, .. } => {
                let how = match how {
                    How::Written => 'w',
                    How::Removed => 'r',
                    How::Expired => 'x',
                };
                format!("{how}{} {}", db.0, String::from_utf8_lossy(key))
            }
            Change::Cleared { db, .. } => format!("cleared {}", db.0),
            Change::Swapped { a, b, .. } => format!("swapped {} {}", a.0, b.0),
        }
    }

    impl Listener for Recorder {
        fn changing(&self, _: &dyn Keys, changes: &[Change]) {
            self.changing.lock().extend(changes.iter().map(name));
        }

        fn changed(&self, changes: &[Change]) {
            self.changed.lock().extend(changes.iter().map(name));
        }
    }

    #[test]
    fn listeners_are_notified_of_every_way_to_change_a_key() {
        let small = |storage: &mut crate::storage::StorageConfig| {
            storage.string_inline_max_bytes = 8;
            storage.packed_max_entries = 2;
        };
        let mut client = Client::with(small);
        let recorder = Arc::new(Recorder::default());
        let engine = client.server().engine.clone();
        engine.listeners.add(recorder.clone());
        client.run("SET unwatched 1");
        assert!(recorder.take().is_empty());
        engine.listeners.interest.add_everything();
        let table = [
            ("SET s 12345678901234567890", "w0 s"),
            ("SETRANGE s 3 xyz", "w0 s"),
            ("SETBIT s 9 1", "w0 s"),
            ("APPEND s 1234567890", "w0 s"),
            ("HSET h a 1 b 2 c 3 d 4", "w0 h"),
            ("HSET h a 9", "w0 h"),
            ("HINCRBY h a 1", "w0 h"),
            ("HDEL h a", "w0 h"),
            ("HSETNX h b 1", ""),
            ("RPUSH l a b c d", "w0 l"),
            ("LSET l 1 x", "w0 l"),
            ("LINSERT l BEFORE x y", "w0 l"),
            ("SADD t a b c d", "w0 t"),
            ("SADD t a", ""),
            ("SMOVE t t2 a", "w0 t,w0 t2"),
            ("ZADD z 1 a 2 b 3 c 4 d", "w0 z"),
            ("ZADD z 7 a", "w0 z"),
            ("ZADD z 7 a", ""),
            ("ZINCRBY z 1 b", "w0 z"),
            ("EXPIRE z 100", "w0 z"),
            ("PERSIST z", "w0 z"),
            ("PERSIST z", ""),
            ("RENAME z y", "r0 z,w0 y"),
            ("COPY y x DB 2", "w2 x"),
            ("MOVE y 3", "w3 y,r0 y"),
            ("DEL nothing s", "r0 s"),
            ("GETDEL unwatched", "r0 unwatched"),
            ("LMOVE l l LEFT RIGHT", "w0 l"),
            ("LPOP l 9", "r0 l"),
            ("SET e 1 PX 5", "w0 e"),
            ("LPUSH h x", ""),
            ("SWAPDB 2 3", "swapped 2 3"),
            ("SELECT 2", ""),
            ("FLUSHDB", "cleared 2"),
            // Clients with caches are notified whether or not the DB had keys.
            ("FLUSHDB", "cleared 2"),
        ];
        for (line, expected) in table {
            client.run(line);
            assert_eq!(recorder.take().join(","), expected, "{line}");
        }
        client.run("SELECT 0");
        client.advance_ms(10);
        client.run("INCR e");
        assert_eq!(recorder.take(), ["x0 e", "w0 e"]);
        engine.listeners.interest.remove_everything();
        engine
            .listeners
            .interest
            .add(engine.key_hash(DbIndex(0), b"one"));
        client.run("MSET one 1 another 2");
        assert_eq!(recorder.take(), ["w0 one"]);
        assert_eq!(
            run_unit(&mut client, &scope_of(&["one"]), &["DEL one"]),
            Ok(b":1\r\n".to_vec())
        );
        assert_eq!(recorder.take(), ["r0 one"]);
        client.check();
    }
}
