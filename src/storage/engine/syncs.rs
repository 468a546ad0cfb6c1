//! The queue of IO threads that wait for the fsync thread, and how it gathers them into few syncs.
//!
//! A sync takes as much processor time as dozens of requests, and the disk can do only so many: it
//! pays to cover many clients with one. Clients that send their next request when they have a reply
//! are back soon after a sync. If the next sync began with the first of them, IO threads would take
//! turns, and each sync would cover the clients of one thread. So it waits until most of the
//! clients of the last sync are back, at most half as long as a sync takes ([`SyncGathering`]).
//!
//! Measured with SET, 50 clients, two IO threads, and a disk that takes 5 ms for a sync: 1.46 times
//! the rate of a build without the wait, run side by side.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The longest wait for further clients, however long a sync takes.
pub(in crate::storage) const LONGEST_WAIT: Duration = Duration::from_millis(2);
/// The most syncs in a row that begin without a wait.
const MOST_PAUSES: u32 = 255;

/// The threads and clients that one sync is for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::storage) struct Group {
    /// The IO threads to notify.
    pub threads: BTreeSet<usize>,
    /// The number of their clients that wait.
    pub clients: usize,
    /// The last commit that any of the threads has seen.
    pub last_seen: u64,
}

#[derive(Default)]
struct Asked {
    /// The threads whose ticks are in the next sync.
    group: Group,
    /// The number of clients that the fsync thread waits for; 0: it begins with the first request.
    enough: usize,
    /// Whether an fsync thread runs.
    served: bool,
    stop: bool,
}

/// Requests to the fsync thread.
#[derive(Default)]
pub(in crate::storage) struct SyncQueue {
    asked: Mutex<Asked>,
    /// Wakes the fsync thread.
    call: Condvar,
}

impl SyncQueue {
    /// Notes that an fsync thread runs.
    pub(in crate::storage) fn serve(&self) {
        self.asked.lock().served = true;
    }

    /// Whether an fsync thread runs.
    #[cfg(test)]
    pub(in crate::storage) fn is_served(&self) -> bool {
        self.asked.lock().served
    }

    /// Asks for a sync that begins after this call, for a thread with so many clients that have
    /// seen commits up to `last_seen`. Returns false if no fsync thread runs.
    pub(in crate::storage) fn ask(&self, thread: usize, clients: usize, last_seen: u64) -> bool {
        let mut asked = self.asked.lock();
        if !asked.served {
            return false;
        }
        let group = &mut asked.group;
        group.threads.insert(thread);
        group.clients += clients;
        group.last_seen = group.last_seen.max(last_seen);
        if asked.group.clients >= asked.enough {
            self.call.notify_one();
        }
        true
    }

    /// Wakes the fsync thread after another thread's sync: the requests may be satisfied.
    pub(in crate::storage) fn recheck(&self) {
        if self.asked.lock().enough > 0 {
            self.call.notify_one();
        }
    }

    /// Makes the fsync thread end once all threads that asked are notified.
    pub(in crate::storage) fn stop(&self) {
        self.asked.lock().stop = true;
        self.call.notify_one();
    }

    /// The number of clients that are in the next sync already.
    pub(in crate::storage) fn clients(&self) -> usize {
        self.asked.lock().group.clients
    }

    /// Waits for requests and returns them. `None` if there are none and the thread must end.
    pub(in crate::storage) fn next(
        &self,
        gathering: &mut SyncGathering,
        is_durable: impl Fn(u64) -> bool,
    ) -> Option<Group> {
        let (enough, until) = gathering.wanted();
        let mut asked = self.asked.lock();
        asked.enough = enough;
        let mut in_vain = false;
        loop {
            let group = &asked.group;
            let is_empty = group.threads.is_empty();
            if asked.stop && is_empty {
                asked.served = false;
                return None;
            }
            if !is_empty
                && (group.clients >= asked.enough || asked.stop || is_durable(group.last_seen))
            {
                break;
            }
            if asked.enough == 0 {
                self.call.wait(&mut asked);
                continue;
            }
            let in_time = Instant::now() < until;
            let timed_out = self.call.wait_until(&mut asked, until).timed_out();
            if timed_out && asked.group.clients < asked.enough {
                // A wait in vain is one for which clients were held back, not one that had ended
                // before they came.
                in_vain = in_time && !asked.group.threads.is_empty();
                asked.enough = 0;
            }
        }
        if in_vain {
            gathering.note(false);
        } else if asked.enough > 0 && asked.group.clients >= asked.enough {
            gathering.note(true);
        }
        asked.enough = 0;
        Some(std::mem::take(&mut asked.group))
    }
}

/// Decides what a sync waits for before it begins: for three in four of as many clients as were
/// answered by the last one, or waited already when that ended. Waiting for all of them costs
/// throughput, since processors are idle while the disk works. If too few come in time, the wait is
/// skipped: for one sync, then for three, for seven and so on.
pub(in crate::storage) struct SyncGathering {
    longest: Duration,
    /// The number of clients of the last sync.
    before: usize,
    /// The end of the wait for them.
    until: Instant,
    /// How many syncs in a row skip the wait, and how many of these are left.
    pauses: u32,
    left: u32,
}

impl SyncGathering {
    /// With `longest` as the longest wait.
    pub(in crate::storage) fn new(longest: Duration) -> SyncGathering {
        SyncGathering {
            longest,
            before: 0,
            until: Instant::now(),
            pauses: 0,
            left: 0,
        }
    }

    /// Notes the end of a sync that took so long; `clients` were answered by it or wait already.
    pub(in crate::storage) fn synced(&mut self, took: Duration, clients: usize) {
        self.before = clients;
        self.until = Instant::now() + (took / 2).min(self.longest);
    }

    /// How many clients to wait for, 0 for none, and until when.
    fn wanted(&mut self) -> (usize, Instant) {
        if self.left > 0 {
            self.left -= 1;
            return (0, self.until);
        }
        match self.before * 3 / 4 {
            0 | 1 => (0, self.until),
            enough => (enough, self.until),
        }
    }

    /// Notes whether the expected clients came in time.
    fn note(&mut self, came: bool) {
        self.pauses = match came {
            true => 0,
            false => (2 * self.pauses + 1).min(MOST_PAUSES),
        };
        self.left = self.pauses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Receiver, bounded};
    use std::sync::atomic::{AtomicU64, Ordering};

    const AGES: Duration = Duration::from_secs(7200);
    /// Longer than the scheduler delays a test's thread.
    const WHILE: Duration = Duration::from_secs(3);
    const SOON: Duration = Duration::from_secs(20);
    const NOTHING: fn(u64) -> bool = |_| false;

    /// Ends a thread that forms a group also when the test fails.
    struct StopAtEnd<'q>(&'q SyncQueue);

    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }

    impl SyncQueue {
        /// Returns once a thread waits for clients in [`SyncQueue::next`].
        fn is_waited_for(&self) {
            let until = Instant::now() + SOON;
            while self.asked.lock().enough == 0 {
                assert!(Instant::now() < until, "no thread waits for clients");
                std::thread::yield_now();
            }
        }
    }

    fn gathering(clients: usize) -> SyncGathering {
        let mut gathering = SyncGathering::new(AGES);
        gathering.synced(AGES, clients);
        gathering
    }

    fn queue() -> SyncQueue {
        let queue = SyncQueue::default();
        queue.serve();
        queue
    }

    fn group(threads: &[usize], clients: usize, last_seen: u64) -> Group {
        Group {
            threads: threads.iter().copied().collect(),
            clients,
            last_seen,
        }
    }

    /// One thread has asked for one client, and `next` waits for three. `test` begins once it
    /// waits.
    fn while_it_waits(
        is_durable: impl Fn(u64) -> bool + Send,
        test: impl FnOnce(&SyncQueue, &Receiver<Option<Group>>),
    ) {
        let queue = queue();
        assert!(queue.ask(0, 1, 1));
        let (formed, groups) = bounded(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut gathering = gathering(4);
                formed.send(queue.next(&mut gathering, is_durable)).unwrap();
                formed.send(queue.next(&mut gathering, NOTHING)).unwrap();
            });
            let _end = StopAtEnd(&queue);
            queue.is_waited_for();
            assert!(groups.is_empty(), "it did not wait");
            test(&queue, &groups);
        });
    }

    #[test]
    fn a_group_has_most_of_the_clients_of_the_last_sync() {
        while_it_waits(NOTHING, |queue, groups| {
            assert!(queue.ask(1, 1, 3));
            assert!(queue.ask(0, 1, 2));
            assert_eq!(
                groups.recv_timeout(SOON).unwrap(),
                Some(group(&[0, 1], 3, 3))
            );
        });
    }

    #[test]
    fn a_stop_ends_the_wait_for_others() {
        while_it_waits(NOTHING, |queue, groups| {
            queue.stop();
            assert_eq!(groups.recv_timeout(SOON).unwrap(), Some(group(&[0], 1, 1)));
            assert_eq!(groups.recv_timeout(SOON).unwrap(), None);
            assert!(!queue.is_served());
            assert!(!queue.ask(0, 1, 1), "no fsync thread runs");
        });
    }

    #[test]
    fn a_durable_commit_ends_the_wait_for_others() {
        let durable = AtomicU64::new(0);
        let is_durable = |commit| commit <= durable.load(Ordering::Relaxed);
        while_it_waits(is_durable, |queue, groups| {
            durable.store(1, Ordering::Relaxed);
            queue.recheck();
            assert_eq!(groups.recv_timeout(SOON).unwrap(), Some(group(&[0], 1, 1)));
        });
    }

    #[test]
    fn a_wait_ends_when_no_client_comes() {
        let queue = queue();
        queue.ask(0, 1, 1);
        let mut gathering = SyncGathering::new(WHILE);
        gathering.synced(AGES, 4);
        assert_eq!(queue.next(&mut gathering, NOTHING), Some(group(&[0], 1, 1)));
        assert_eq!(gathering.pauses, 1);
        // There is no wait either if its time has passed before a thread asks.
        gathering.left = 0;
        queue.ask(0, 1, 1);
        queue.next(&mut gathering, NOTHING);
        assert_eq!(gathering.pauses, 1, "it did not wait");
    }

    #[test]
    fn a_wait_counts_also_if_it_begins_before_the_first_request() {
        // The number of clients that come, of three expected, and the pauses after seven.
        for (clients, pauses) in [(1, 15), (3, 0)] {
            let queue = queue();
            let mut gathering = SyncGathering::new(WHILE);
            gathering.synced(AGES, 4);
            gathering.pauses = 7;
            std::thread::scope(|scope| {
                let _end = StopAtEnd(&queue);
                let next = scope.spawn(|| queue.next(&mut gathering, NOTHING));
                queue.is_waited_for();
                (0..clients).for_each(|_| assert!(queue.ask(0, 1, 1)));
                let came = next.join().unwrap();
                assert_eq!(came, Some(group(&[0], clients, 1)));
            });
            assert_eq!(gathering.pauses, pauses, "{clients} came");
        }
    }

    #[test]
    fn few_clients_are_not_waited_for() {
        for clients in 0..=2 {
            assert_eq!(gathering(clients).wanted().0, 0, "{clients}");
        }
        assert_eq!(gathering(50).wanted().0, 37);
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let mut gathering = gathering(4);
        let waits = |gathering: &mut SyncGathering, came, syncs: usize| {
            let one = |_: &usize| {
                let waits = gathering.wanted().0 > 0;
                if waits {
                    gathering.note(came);
                }
                waits
            };
            (0..syncs).filter(one).count()
        };
        // 1 and 1, 1 and 3, 1 and 7, …
        assert_eq!(waits(&mut gathering, false, 2 + 4 + 8 + 16), 4);
        assert_eq!(waits(&mut gathering, false, 32 + 64 + 128 + 256), 4);
        assert_eq!(waits(&mut gathering, false, 256 * 100), 100);
        assert_eq!(waits(&mut gathering, true, 100), 100);
    }
}
