//! The tick: what a thread runs between two polls of its sockets, committed together.

use crate::commands::Error;
use crate::exec::Executor;
use crate::exec::blocking::Served;
use crate::state::hotkeys::Taken;
use crate::state::pubsub::Outbox;
use crate::state::ticks::Ticks;
use crate::storage::StorageError;
use crate::storage::engine::durability::{CommitNumber, Sync};
use crate::storage::engine::listeners::Change;
use crate::sys::clock;
use std::time::Duration;

/// What a tick sends to clients besides the replies to its requests.
struct Notifications {
    /// Changed keys, for clients with tracking.
    changes: Vec<Change>,
    /// Replies to clients that waited for keys.
    served: Vec<Served>,
    outbox: Outbox,
}

impl Notifications {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.served.is_empty() && self.outbox.is_empty()
    }
}

/// A committed tick whose replies and messages wait until it is durable.
pub struct Parked {
    /// The tick is durable when this commit is.
    seen: CommitNumber,
    notifications: Notifications,
}

/// How a tick ended.
pub enum Ended {
    /// The tick is durable and its replies may be sent; or this error must replace them.
    Now(Result<(), Error>),
    /// The replies wait until [`Executor::has_ended`], then [`Executor::finish_parked`].
    Later(Parked),
}

impl Executor {
    /// Begins a tick: reads the clock, and the configuration if it changed.
    pub fn start_tick(&mut self) {
        self.read_clock();
        self.tick.started_us = clock::mono_us();
        self.tick.last_us = self.tick.started_us;
        if let Some(ticks) = self.ticks() {
            ticks.begin(self.tick.started_us);
        }
        self.tick.commands = 0;
        self.tick.free = 0;
        self.tick.must_end = false;
        self.tick.swamped = self.server.is_swamped(self.tick.now_ms);
        self.refresh_config();
    }

    /// The figures of this IO thread.
    fn ticks(&self) -> Option<&Ticks> {
        self.server.ticks.get(self.thread.number?)
    }

    /// Counts the tick that ends, and its commit if it had something to write.
    fn note_tick(&self, wrote: bool) {
        let (commands, last_us) = (self.tick.commands, self.tick.last_us);
        let Some(ticks) = self.ticks() else {
            return;
        };
        if commands > 0 {
            ticks.end(commands, last_us.saturating_sub(self.tick.started_us));
        }
        if wrote {
            let now_us = clock::mono_us();
            ticks.commits.note_alone(now_us.saturating_sub(last_us));
        }
    }

    /// Sets the clock of the next commands.
    pub(in crate::exec) fn read_clock(&mut self) {
        self.tick.now_ms = self.thread.fixed_now_ms.unwrap_or_else(clock::unix_ms);
    }

    pub(in crate::exec) fn refresh_config(&mut self) {
        let version = self.server.config.version();
        if version != self.thread.config_version {
            self.thread.config = self.server.config.load();
            self.thread.config_version = version;
            self.want_events();
        }
    }

    pub(in crate::exec) fn want_events(&mut self) {
        let notify = self.thread.config.notify_keyspace_events;
        self.txn.want_events(notify.classes());
    }

    /// How many commands the tick has run.
    pub fn commands(&self) -> u32 {
        self.tick.commands
    }

    /// Whether the tick has something to commit.
    pub fn has_writes(&self) -> bool {
        self.txn.pending_bytes() > 0
    }

    /// Whether the tick has collected enough to be finished.
    pub fn is_full(&self) -> bool {
        self.tick.must_end
            || self.tick.commands >= self.thread.config.tick_max_commands
            || self.txn.pending_bytes() as u64 >= self.thread.config.tick_max_bytes
            || self.tick.last_us - self.tick.started_us >= self.thread.config.tick_max_us
    }

    /// Ends a tick: commits what is pending, makes it durable and sends its messages to other
    /// clients.
    ///
    /// # Errors
    /// No reply of the tick may be sent: each must be replaced by the returned error.
    pub fn finish_tick(&mut self) -> Result<(), Error> {
        self.finish_tick_with(|_, send| send())
    }

    /// Like [`Executor::finish_tick`]; when the result is known, `conclude` is called with it
    /// and with a function that sends the messages.
    pub(in crate::exec) fn finish_tick_with(
        &mut self,
        conclude: impl FnOnce(&Result<(), Error>, &mut dyn FnMut()),
    ) -> Result<(), Error> {
        let finished = self.commit_tick().and_then(|wants_disk| {
            if wants_disk {
                self.server.engine.make_durable()?;
            }
            Ok(())
        });
        let mut notifications = Some(self.take_notifications());
        conclude(&finished, &mut || {
            if let Some(notifications) = notifications.take() {
                self.send_notifications(notifications, finished.as_ref().err());
            }
        });
        finished
    }

    /// Ends a tick on the IO thread `thread`, which does not wait for the disk. `clients`
    /// counts the clients that would wait. `behind`: earlier ticks are still parked, and their
    /// messages come first.
    pub fn end_tick(
        &mut self,
        thread: usize,
        clients: impl FnOnce() -> usize,
        behind: bool,
    ) -> Ended {
        let wrote = self.has_writes();
        let committed = self.commit_tick();
        self.note_tick(wrote);
        let engine = &self.server.engine;
        let wants_disk = self.tick.commands > 0 && matches!(committed, Ok(true));
        let seen = match wants_disk {
            true => engine.last_seen(),
            false => CommitNumber::default(),
        };
        let sync = match wants_disk {
            true => {
                let busy = self.tick.last_us.saturating_sub(self.tick.started_us);
                engine.want_sync(thread, clients, Duration::from_micros(busy))
            }
            false => Sync::None,
        };
        let finished = match sync {
            Sync::Now => engine.make_durable().map_err(Error::from),
            _ => committed.map(|_| ()),
        };
        self.thread.owes_sync |= sync == Sync::Own;
        let waits = matches!(sync, Sync::Asked | Sync::Own);
        let notifications = self.take_notifications();
        if waits || behind && finished.is_ok() && !notifications.is_empty() {
            return Ended::Later(Parked {
                seen,
                notifications,
            });
        }
        self.send_notifications(notifications, finished.as_ref().err());
        Ended::Now(finished)
    }

    /// Whether parked ticks wait for a sync that this thread has to do: [`Executor::sync`].
    pub fn owes_sync(&self) -> bool {
        self.thread.owes_sync
    }

    /// Does the sync that [`Executor::owes_sync`] reports.
    pub fn sync(&mut self) {
        self.thread.owes_sync = false;
        if let Err(error) = self.server.engine.make_durable() {
            // The parked ticks will find the engine failed.
            log::debug!("a sync of an IO thread: {error}");
        }
        self.server.end_ack_waits();
    }

    /// Whether the result of a parked tick is known.
    pub fn has_ended(&self, tick: &Parked) -> bool {
        let engine = &self.server.engine;
        engine.is_durable(tick.seen) || engine.is_stuck()
    }

    /// Sends the messages of a parked tick that [has ended](Executor::has_ended).
    ///
    /// # Errors
    /// As of [`Executor::finish_tick`].
    pub fn finish_parked(&mut self, tick: Parked) -> Result<(), Error> {
        let finished = match self.server.engine.is_durable(tick.seen) {
            true => Ok(()),
            false => Err(StorageError::Failed.into()),
        };
        self.send_notifications(tick.notifications, finished.as_ref().err());
        finished
    }

    /// Commits what is pending. Returns whether that commit, or data that was read, is still to
    /// be made durable.
    fn commit_tick(&mut self) -> Result<bool, Error> {
        let undrawn = std::mem::take(&mut self.tick.undrawn);
        if undrawn != Taken::default() {
            self.server.hotkeys.add_undrawn(undrawn, self.tick.now_ms);
        }
        let committed = self.txn.commit();
        let failed_before = std::mem::take(&mut self.tick.failed);
        match committed {
            Err(error @ (StorageError::Detached | StorageError::NoRoom)) => {
                return Err(error.into());
            }
            // The reason is in the log.
            Err(_) => return Err(StorageError::Failed.into()),
            Ok(()) if failed_before => return Err(StorageError::Failed.into()),
            Ok(()) => {}
        }
        let lookups = self.txn.take_lookups();
        if lookups.hits > 0 {
            self.server.stats.keyspace_hits.add(lookups.hits);
        }
        if lookups.misses > 0 {
            self.server.stats.keyspace_misses.add(lookups.misses);
        }
        let expired = self.txn.take_expired();
        if expired > 0 {
            self.server.stats.expired_keys.add(expired);
        }
        let elements = self.txn.take_expired_elements();
        if elements > 0 {
            self.server.stats.expired_subkeys.add(elements);
        }
        let touched_keys = std::mem::take(&mut self.tick.touched_keys);
        if self.tick.commands > 0 && self.tick.free == self.tick.commands {
            return Ok(false);
        }
        // After a failure of the engine PING, INFO and SHUTDOWN still work.
        Ok(touched_keys || !self.server.engine.has_failed())
    }

    /// Takes what the committed tick has for clients besides replies.
    fn take_notifications(&mut self) -> Notifications {
        // Events of commands that ran for waiting clients.
        self.collect_events();
        Notifications {
            changes: match self.txn.has_changes() {
                true => self.txn.take_changes(),
                false => Vec::new(),
            },
            served: self.take_served(),
            outbox: self.tick.outbox.take(),
        }
    }

    /// Sends the messages of a tick; after a failure only the error, to waiting clients.
    fn send_notifications(&mut self, notifications: Notifications, failure: Option<&Error>) {
        let Notifications {
            changes,
            served,
            mut outbox,
        } = notifications;
        if failure.is_some() {
            outbox.truncate(0);
        }
        self.reply_to_served(served, failure);
        self.server.notify_clients(&changes, outbox);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::testing::Client;
    use crate::resp::Reply;
    use crate::state::waiters::Verdict;
    use crate::storage::Engine;
    use crossbeam_channel::{Receiver, bounded};
    use std::collections::BTreeSet;

    /// Runs commands in one tick as an IO thread does. Returns how the tick ended, and which of
    /// the commands must wait for the disk if the tick does.
    fn tick(client: &mut Client, lines: &[&str]) -> (Ended, Vec<bool>) {
        let (executor, session) = client.parts();
        let mut reply = Reply::new(false);
        executor.start_tick();
        let run = |line: &&str| {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            executor.run(session, &args, &mut reply);
            executor.must_wait()
        };
        let waits = lines.iter().map(run).collect();
        (client.parts().0.end_tick(7, || 1, false), waits)
    }

    fn later(client: &mut Client, lines: &[&str]) -> Parked {
        match tick(client, lines).0 {
            Ended::Later(parked) => parked,
            Ended::Now(done) => panic!("{lines:?} did not wait: {done:?}"),
        }
    }

    fn is_now(client: &mut Client, line: &str) -> bool {
        let (ended, waits) = tick(client, &[line]);
        let now = matches!(ended, Ended::Now(Ok(())));
        assert_ne!(waits[0], now, "{line}");
        now
    }

    /// Runs `test` with clients of one server and an fsync thread that continues after a sync
    /// only when the test receives from it.
    fn with_slow_syncs(test: impl FnOnce([Client; 2], &dyn Fn() -> BTreeSet<usize>)) {
        let mut client = Client::new();
        client.run("RPUSH weights first second");
        client.run("SET old 1");
        client.run("SET weight_first 2");
        let engine = client.server().engine.clone();
        engine.set_fsync_each(true);
        // Independent of how long syncs really take.
        engine.assume_syncs_take(Duration::from_secs(1 << 30));
        let (notice, notices) = bounded(0);
        std::thread::scope(|scope| {
            let serving = engine.clone();
            engine.expect_syncs();
            scope.spawn(move || serving.serve_syncs(|threads| notice.send(threads).unwrap()));
            let _ends = End(&engine, &notices);
            let another = client.another();
            test([client, another], &|| notices.recv().unwrap());
        });
    }

    /// Stops the fsync thread, also if the test fails.
    struct End<'a>(&'a Engine, &'a Receiver<BTreeSet<usize>>);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.stop_syncs();
            // Receives the remaining notices, for which the thread would wait.
            while self.1.recv().is_ok() {}
        }
    }

    fn wait_until_durable(engine: &Engine) {
        while !engine.is_durable(engine.last_seen()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn only_what_the_disk_does_not_have_waits_for_it() {
        with_slow_syncs(|[mut client, mut other], synced| {
            let engine = client.server().engine.clone();
            assert!(is_now(&mut client, "GET old"));
            let first = later(&mut client, &["SET a 1"]);
            // The fsync thread then blocks in its notice and syncs nothing more.
            wait_until_durable(&engine);
            assert!(is_now(&mut other, "GET a"));
            let second = later(&mut other, &["SET b 1"]);
            assert!(!other.parts().0.has_ended(&second));

            for line in [
                "GET old",
                "EXISTS old a",
                "HGETALL nothing",
                "LRANGE weights 0 -1",
            ] {
                assert!(is_now(&mut client, line), "{line}");
                assert!(is_now(&mut other, line), "{line}");
            }
            for line in [
                "GET b",
                "EXISTS old b",
                "DBSIZE",
                "SORT_RO weights BY weight_*",
            ] {
                assert!(!is_now(&mut client, line), "{line}");
            }
            let (ended, waits) = tick(&mut client, &["GET old", "SET c 1", "GET old", "GET c"]);
            assert!(matches!(ended, Ended::Later(_)));
            assert_eq!(waits, [false, true, false, true]);
            let whole = later(&mut client, &["SWAPDB 1 2"]);
            assert!(!is_now(&mut other, "GET old"), "it may be another one");

            assert_eq!(synced(), BTreeSet::from([7]));
            assert_eq!(synced(), BTreeSet::from([7]));
            wait_until_durable(&engine);
            for (client, parked) in [(&mut client, first), (&mut other, second)] {
                assert!(client.parts().0.has_ended(&parked));
                client.parts().0.finish_parked(parked).unwrap();
            }
            assert!(client.parts().0.has_ended(&whole));
            client.parts().0.finish_parked(whole).unwrap();
            assert!(is_now(&mut other, "GET old"));
            engine.set_fsync_each(false);
            assert!(matches!(
                tick(&mut client, &["SET d 1"]).0,
                Ended::Now(Ok(()))
            ));
            // With fsync off no commit was recorded as waiting for the disk.
            engine.set_fsync_each(true);
            assert!(is_now(&mut other, "GET d"), "it was made durable");
        });
    }

    /// A tick that waits for a sync of its own thread. A tick that takes longer than a sync
    /// does not wait, and the test machine may be busy: so this tries until one is quick
    /// enough.
    fn owing(client: &mut Client, line: &str) -> Parked {
        let engine = client.server().engine.clone();
        let owing = (0..1000).find_map(|_| {
            engine.assume_syncs_take(Duration::from_micros(499));
            match tick(client, &[line]).0 {
                Ended::Later(parked) => Some(parked),
                Ended::Now(done) => {
                    done.unwrap();
                    None
                }
            }
        });
        let owing = owing.expect("a tick that was quick");
        assert!(client.parts().0.owes_sync());
        assert!(!client.parts().0.has_ended(&owing));
        owing
    }

    /// There is no fsync thread here that would do it.
    #[test]
    fn a_thread_does_short_syncs_itself() {
        let mut client = Client::new();
        let engine = client.server().engine.clone();
        engine.set_fsync_each(true);
        // Shorter than the tick; and too long for the thread to wait.
        for take in [0, 500] {
            engine.assume_syncs_take(Duration::from_micros(take));
            let (ended, _) = tick(&mut client, &["INCR n"]);
            assert!(matches!(ended, Ended::Now(Ok(()))), "{take} us");
            assert!(!client.parts().0.owes_sync());
            assert!(engine.is_durable(engine.last_seen()));
        }
        let parked = owing(&mut client, "INCR n");
        let mut waiting = client.another();
        waiting.parts().1.written_to = engine.binlog.range().next_position;
        tick(&mut waiting, &["WAITAOF 1 0 0"]);
        let waiter = waiting.parts().1.waiting.clone().expect("it waits");
        assert!(waiter.take_verdict().is_none());
        client.parts().0.sync();
        // Clients in WAITAOF are served at once, not with the next second.
        assert!(matches!(waiter.take_verdict(), Some(Verdict::Reply(_))));
        assert!(!client.parts().0.owes_sync());
        assert!(client.parts().0.has_ended(&parked));
        client.parts().0.finish_parked(parked).unwrap();
    }

    #[test]
    fn a_sync_of_its_own_that_fails_fails_the_tick() {
        let mut client = Client::new();
        let engine = client.server().engine.clone();
        engine.set_fsync_each(true);
        let parked = owing(&mut client, "SET a 1");
        engine.refuse_writes();
        client.parts().0.sync();
        assert!(client.parts().0.has_ended(&parked));
        assert!(client.parts().0.finish_parked(parked).is_err());
    }

    #[test]
    fn what_ticks_have_for_clients_comes_in_their_order() {
        with_slow_syncs(|[mut client, mut subscriber], _| {
            let engine = client.server().engine.clone();
            subscriber.run("SUBSCRIBE channel");
            let first = later(&mut client, &["PUBLISH channel 1", "SET a 1"]);
            wait_until_durable(&engine);
            let mut end = |line: &str, behind| {
                let (executor, session) = client.parts();
                executor.start_tick();
                let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                executor.run(session, &args, &mut Reply::new(false));
                executor.end_tick(7, || 1, behind)
            };
            assert!(matches!(
                end("PUBLISH channel 2", false),
                Ended::Now(Ok(()))
            ));
            assert!(matches!(end("GET a", true), Ended::Now(Ok(()))));
            assert!(matches!(end("PING", true), Ended::Now(Ok(()))));
            let Ended::Later(second) = end("PUBLISH channel 2", true) else {
                panic!("it overtakes the one before");
            };
            engine.set_fsync_each(false);
            let Ended::Later(third) = end("EVAL return(redis.call('publish','channel',3)) 0", true)
            else {
                panic!("it overtakes the one before");
            };
            for parked in [first, second, third] {
                assert!(client.parts().0.has_ended(&parked));
                client.parts().0.finish_parked(parked).unwrap();
            }
        });
    }

    #[test]
    fn a_tick_that_waits_fails_with_the_disk() {
        with_slow_syncs(|[mut client, mut other], _| {
            let engine = client.server().engine.clone();
            let first = later(&mut client, &["SET a 1"]);
            wait_until_durable(&engine);
            let second = later(&mut other, &["SET b 1"]);
            engine.refuse_writes();
            client.parts().0.finish_parked(first).unwrap();
            assert!(other.parts().0.has_ended(&second));
            assert!(other.parts().0.finish_parked(second).is_err());
            assert!(is_now(&mut client, "GET old"));
            assert!(is_now(&mut client, "GET a"));
            assert!(matches!(tick(&mut client, &["PING"]).0, Ended::Now(Ok(()))));
        });
    }
}
