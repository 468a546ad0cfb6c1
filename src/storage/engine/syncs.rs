//! Ticks that wait for the fsync thread, and how it gathers them into few syncs.
//!
//! A sync costs the processor as much as dozens of requests, and the disk can do only so
//! many: it pays to have many clients in one. Clients that send their next request when
//! they have an answer are back soon after a sync; if the next one begins with the first
//! of them, IO threads take turns, and each sync is for the clients of one. So it waits
//! for most of those who were there before, at most half as long as a sync takes
//! ([`SyncGathering`]).
//!
//! 50 clients that SET, two IO threads, a disk that takes 5 ms for a sync: 1.46 times the
//! rate of a build without the wait, measured side by side.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The longest wait for others, whatever a sync takes.
pub(in crate::storage) const LONGEST_WAIT: Duration = Duration::from_millis(2);
/// The most syncs in a row that are not waited for.
const MOST_PAUSES: u32 = 255;

/// Those who are in one sync.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::storage) struct Group {
    /// The IO threads that are to be told of it.
    pub threads: BTreeSet<usize>,
    /// How many of their clients wait.
    pub clients: usize,
    /// The last commit that any of them has seen.
    pub last_seen: u64,
}

#[derive(Default)]
struct Asked {
    /// The threads whose ticks are in the next sync.
    group: Group,
    /// The clients that the fsync thread waits for; with 0 it begins with whoever asks.
    enough: usize,
    /// Whether there is a fsync thread.
    served: bool,
    stop: bool,
}

/// What the fsync thread is asked.
#[derive(Default)]
pub(in crate::storage) struct SyncQueue {
    asked: Mutex<Asked>,
    /// There is something to do for the fsync thread.
    call: Condvar,
}

impl SyncQueue {
    /// There is a fsync thread from now on.
    pub(in crate::storage) fn serve(&self) {
        self.asked.lock().served = true;
    }

    /// Whether there is a fsync thread.
    #[cfg(test)]
    pub(in crate::storage) fn is_served(&self) -> bool {
        self.asked.lock().served
    }

    /// Asks for a sync that begins after this call, for a thread with so many clients
    /// that have seen commits up to this one. `false`: nobody would do it.
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

    /// The disk has more than before: those who ask may have what they ask for.
    pub(in crate::storage) fn look_again(&self) {
        if self.asked.lock().enough > 0 {
            self.call.notify_one();
        }
    }

    /// The fsync thread shall end once all who asked are told.
    pub(in crate::storage) fn stop(&self) {
        self.asked.lock().stop = true;
        self.call.notify_one();
    }

    /// How many clients are in the next sync already.
    pub(in crate::storage) fn clients(&self) -> usize {
        self.asked.lock().group.clients
    }

    /// Waits for those who ask. `None`: there are none, and the thread is to end.
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
            let nobody = group.threads.is_empty();
            if asked.stop && nobody {
                asked.served = false;
                return None;
            }
            if !nobody
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
                // Those who are here have waited, unless they came after that.
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

/// What a sync waits for before it begins: for three in four of as many clients as were
/// answered by the last one, or waited already when that ended. Waiting for all of them
/// costs rate, since nothing is done then while the disk works. Where not so many come in
/// time, the wait is left out: for one sync, then for three, for seven and so on.
pub(in crate::storage) struct SyncGathering {
    longest: Duration,
    /// How many clients were there.
    before: usize,
    /// Until when it is worth waiting for them.
    until: Instant,
    /// How many syncs in a row are not waited for, and how many of these are left.
    pauses: u32,
    left: u32,
}

impl SyncGathering {
    /// With this as the longest wait.
    pub(in crate::storage) fn new(longest: Duration) -> SyncGathering {
        SyncGathering {
            longest,
            before: 0,
            until: Instant::now(),
            pauses: 0,
            left: 0,
        }
    }

    /// A sync of this length has ended: so many clients are answered or wait.
    pub(in crate::storage) fn synced(&mut self, took: Duration, clients: usize) {
        self.before = clients;
        self.until = Instant::now() + (took / 2).min(self.longest);
    }

    /// For how many clients to wait, and until when; 0 for not at all.
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

    /// Whether those who were waited for came.
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
    /// Longer than a test's thread is kept from the processor.
    const WHILE: Duration = Duration::from_secs(3);
    const SOON: Duration = Duration::from_secs(20);
    const NOTHING: fn(u64) -> bool = |_| false;

    /// A thread that forms a group ends also when the test fails.
    struct StopAtEnd<'q>(&'q SyncQueue);

    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }

    impl SyncQueue {
        /// Returns once a group is formed that waits for clients.
        fn is_waited_for(&self) {
            let until = Instant::now() + SOON;
            while self.asked.lock().enough == 0 {
                assert!(Instant::now() < until, "nobody waits for clients");
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

    /// One thread has asked for one client, and the next group is formed meanwhile, which
    /// waits for three. `test` begins once it waits.
    fn while_it_waits(
        is_durable: impl Fn(u64) -> bool + Send,
        test: impl FnOnce(&SyncQueue, &Receiver<Option<Group>>),
    ) {
        let queue = queue();
        assert!(queue.ask(0, 1, 1));
        let (tell, told) = bounded(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut gathering = gathering(4);
                tell.send(queue.next(&mut gathering, is_durable)).unwrap();
                tell.send(queue.next(&mut gathering, NOTHING)).unwrap();
            });
            let _end = StopAtEnd(&queue);
            queue.is_waited_for();
            assert!(told.is_empty(), "it did not wait");
            test(&queue, &told);
        });
    }

    #[test]
    fn a_group_is_most_of_those_who_were_there_before() {
        while_it_waits(NOTHING, |queue, told| {
            assert!(queue.ask(1, 1, 3));
            assert!(queue.ask(0, 1, 2));
            assert_eq!(told.recv_timeout(SOON).unwrap(), Some(group(&[0, 1], 3, 3)));
        });
    }

    #[test]
    fn a_stop_ends_the_wait_for_others() {
        while_it_waits(NOTHING, |queue, told| {
            queue.stop();
            assert_eq!(told.recv_timeout(SOON).unwrap(), Some(group(&[0], 1, 1)));
            assert_eq!(told.recv_timeout(SOON).unwrap(), None);
            assert!(!queue.is_served());
            assert!(!queue.ask(0, 1, 1), "nobody would tell");
        });
    }

    #[test]
    fn who_has_what_he_asks_for_does_not_wait_for_others() {
        let durable = AtomicU64::new(0);
        let is_durable = |commit| commit <= durable.load(Ordering::Relaxed);
        while_it_waits(is_durable, |queue, told| {
            durable.store(1, Ordering::Relaxed);
            queue.look_again();
            assert_eq!(told.recv_timeout(SOON).unwrap(), Some(group(&[0], 1, 1)));
        });
    }

    #[test]
    fn a_wait_ends_also_when_nobody_comes() {
        let queue = queue();
        queue.ask(0, 1, 1);
        let mut gathering = SyncGathering::new(WHILE);
        gathering.synced(AGES, 4);
        assert_eq!(queue.next(&mut gathering, NOTHING), Some(group(&[0], 1, 1)));
        assert_eq!(gathering.pauses, 1);
        // Nor is there a wait when its time has passed before somebody asks.
        gathering.left = 0;
        queue.ask(0, 1, 1);
        queue.next(&mut gathering, NOTHING);
        assert_eq!(gathering.pauses, 1, "nobody waited");
    }

    #[test]
    fn it_counts_as_a_wait_also_when_nobody_was_there_at_its_begin() {
        // Of the three who are waited for, so many come; what becomes of seven pauses.
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
