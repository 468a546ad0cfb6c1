//! Which keys take most of the processor's time and of the network's bytes (HOTKEYS).
//!
//! While a collection runs, threads note the keys of the commands that they have run. A
//! collection keeps a bounded number of keys: when a new one does not fit, it takes the place of
//! the key with the least weight and begins with that weight, so that a key with more than
//! `total / capacity` is always among them. What is reported of a key is what it has certainly
//! used: its weight less what it began with.

use crate::base::slots;
use crate::base::time::UnixMs;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many keys are kept for each that is reported.
const KEPT_PER_REPORTED: usize = 10;
/// Longest key that is kept, in bytes. With the most keys of two metrics that makes 10 MiB.
const MAX_KEY_BYTES: usize = 8 << 10;

/// What a collection is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The slots whose keys are collected, in order; `None`: all.
    pub slots: Option<Arc<[u16]>>,
    /// Whether the processor's time is collected.
    pub cpu: bool,
    /// Whether bytes are collected.
    pub net: bool,
    /// How many keys are reported.
    pub count: usize,
    /// Its length, ms; 0: until it is stopped.
    pub duration_ms: u64,
    /// One command in so many is taken into account for the keys.
    pub sample: u32,
}

/// The processor's time that the process has used, ms.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// In user mode.
    pub user_ms: u64,
    /// In the kernel.
    pub system_ms: u64,
}

/// The keys with most weight.
#[derive(Debug, Default)]
struct Top {
    capacity: usize,
    slots: Vec<Slot>,
    by_key: FxHashMap<Box<[u8]>, usize>,
    by_weight: BTreeSet<(u64, usize)>,
    total: u64,
}

#[derive(Debug)]
struct Slot {
    key: Box<[u8]>,
    weight: u64,
    began_with: u64,
}

impl Top {
    fn new(reported: usize) -> Top {
        Top {
            capacity: reported * KEPT_PER_REPORTED,
            ..Top::default()
        }
    }

    fn add(&mut self, key: &[u8], weight: u64) {
        self.total += weight;
        if weight == 0 || key.len() > MAX_KEY_BYTES {
            return;
        }
        if let Some(&at) = self.by_key.get(key) {
            return self.raise(at, weight);
        }
        if self.slots.len() < self.capacity {
            let at = self.slots.len();
            self.slots.push(Slot {
                key: key.into(),
                weight: 0,
                began_with: 0,
            });
            self.by_key.insert(key.into(), at);
            self.by_weight.insert((0, at));
            return self.raise(at, weight);
        }
        let Some(&(least, at)) = self.by_weight.first() else {
            return;
        };
        if let Some(slot) = self.slots.get_mut(at) {
            let old = std::mem::replace(&mut slot.key, key.into());
            slot.began_with = least;
            self.by_key.remove(&old);
            self.by_key.insert(key.into(), at);
        }
        self.raise(at, weight);
    }

    fn raise(&mut self, at: usize, by: u64) {
        if let Some(slot) = self.slots.get_mut(at) {
            self.by_weight.remove(&(slot.weight, at));
            slot.weight += by;
            self.by_weight.insert((slot.weight, at));
        }
    }

    fn report(&self, count: usize) -> Vec<(Box<[u8]>, u64)> {
        let certain = |slot: &Slot| (slot.key.clone(), slot.weight - slot.began_with);
        let mut keys: Vec<_> = self.slots.iter().map(certain).collect();
        keys.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        keys.truncate(count);
        keys
    }

    fn memory(&self) -> usize {
        let keys: usize = self.slots.iter().map(|slot| 2 * slot.key.len()).sum();
        keys + self.slots.len() * (size_of::<Slot>() + size_of::<(u64, usize)>() * 2)
    }
}

/// What commands with keys have taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Time, µs.
    pub us: u64,
    /// Bytes of requests and replies.
    pub bytes: u64,
}

impl Taken {
    /// Adds what others have taken.
    pub fn add(&mut self, other: Taken) {
        self.us += other.us;
        self.bytes += other.bytes;
    }
}

/// Draws one in so many commands for a thread. Most commands only count down.
#[derive(Debug, Default)]
pub struct Draw {
    ratio: u64,
    left: u64,
}

impl Draw {
    /// Draws whether to take a command into account for the keys: one in `ratio`, at random distances.
    fn next(&mut self, ratio: u64) -> bool {
        if ratio <= 1 {
            return true;
        }
        if self.ratio != ratio {
            *self = Draw { ratio, left: 0 };
        }
        if self.left == 0 {
            // On average `ratio` commands from one that is drawn to the next.
            self.left = fastrand::u64(1..2 * ratio);
        }
        self.left -= 1;
        self.left == 0
    }
}

/// A collection, running or over.
#[derive(Debug)]
struct Collection {
    plan: Plan,
    began_ms: UnixMs,
    used: Used,
    /// When it is over: how long it took, ms.
    took_ms: Option<u64>,
    cpu: Top,
    net: Top,
    all: Taken,
    selected: Taken,
    sampled: Taken,
    /// What the collection itself took, in nanoseconds.
    own_ns: u64,
}

impl Collection {
    fn end_if_due(&mut self, now_ms: UnixMs) {
        let due = self.plan.duration_ms > 0 && now_ms.since(self.began_ms) >= self.plan.duration_ms;
        if due && self.took_ms.is_none() {
            self.took_ms = Some(self.plan.duration_ms);
        }
    }
}

/// What is known of a collection.
#[derive(Debug)]
pub struct Findings {
    /// Whether it runs.
    pub active: bool,
    /// Its plan.
    pub plan: Plan,
    /// When it began.
    pub began_ms: UnixMs,
    /// How long it took, or takes by now, ms.
    pub took_ms: u64,
    /// What the process had used when it began.
    pub used: Used,
    /// What all commands took.
    pub all: Taken,
    /// What those took whose slot is selected.
    pub selected: Taken,
    /// What those of them took that were taken into account for the keys.
    pub sampled: Taken,
    /// Bytes of the commands taken into account.
    pub net_bytes: u64,
    /// Keys by time, µs.
    pub by_cpu: Vec<(Box<[u8]>, u64)>,
    /// Keys by bytes.
    pub by_net: Vec<(Box<[u8]>, u64)>,
    /// Memory of the collection, in bytes.
    pub memory: usize,
    /// Time that the collection itself took, ms.
    pub own_ms: u64,
}

/// The collection of HOTKEYS, if there is one.
#[derive(Debug, Default)]
pub struct HotKeys {
    active: AtomicBool,
    /// `sample` of the running collection.
    sample: AtomicU64,
    /// Whether it has selected slots.
    selects: AtomicBool,
    /// When the running collection ends by itself, Unix ms.
    due_ms: AtomicU64,
    /// Time in µs and bytes of the commands that were not drawn, besides `all` of the collection.
    undrawn: [AtomicU64; 2],
    collection: Mutex<Option<Collection>>,
}

impl HotKeys {
    /// Whether a collection runs; read for every command. One that is due may count as
    /// running until something is noted.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Begins a collection in place of one that is over. Returns whether none was running.
    pub fn start(&self, plan: Plan, used: Used, now_ms: UnixMs) -> bool {
        let mut collection = self.collection.lock();
        if let Some(old) = collection.as_mut() {
            old.end_if_due(now_ms);
            if old.took_ms.is_none() {
                return false;
            }
        }
        self.sample.store(u64::from(plan.sample), Ordering::Relaxed);
        self.selects.store(plan.slots.is_some(), Ordering::Relaxed);
        let due_ms = match plan.duration_ms {
            0 => u64::MAX,
            duration_ms => now_ms.0.saturating_add(duration_ms),
        };
        self.due_ms.store(due_ms, Ordering::Relaxed);
        for undrawn in &self.undrawn {
            undrawn.store(0, Ordering::Relaxed);
        }
        let (cpu, net) = (Top::new(plan.count), Top::new(plan.count));
        *collection = Some(Collection {
            plan,
            began_ms: now_ms,
            used,
            took_ms: None,
            cpu,
            net,
            all: Taken::default(),
            selected: Taken::default(),
            sampled: Taken::default(),
            own_ns: 0,
        });
        self.active.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the running collection. Returns whether there was one.
    pub fn stop(&self, now_ms: UnixMs) -> bool {
        let mut collection = self.collection.lock();
        self.active.store(false, Ordering::Relaxed);
        let Some(running) = collection.as_mut() else {
            return false;
        };
        running.end_if_due(now_ms);
        let was_running = running.took_ms.is_none();
        let took_ms = now_ms.since(running.began_ms);
        running.took_ms.get_or_insert(took_ms);
        was_running
    }

    /// Forgets the collection. Returns whether it was not running.
    pub fn reset(&self, now_ms: UnixMs) -> bool {
        let mut collection = self.collection.lock();
        if let Some(running) = collection.as_mut() {
            running.end_if_due(now_ms);
            if running.took_ms.is_none() {
                return false;
            }
        }
        self.active.store(false, Ordering::Relaxed);
        *collection = None;
        true
    }

    /// Whether the collection must know of each command, and not only of those that are drawn.
    pub fn needs_all(&self) -> bool {
        self.selects.load(Ordering::Relaxed)
    }

    /// Draws whether to take a command into account for the keys.
    pub fn draws(&self, draw: &mut Draw) -> bool {
        draw.next(self.sample.load(Ordering::Relaxed))
    }

    /// Counts what commands have taken that were not drawn. A thread adds that up and tells it at the
    /// end of a tick.
    pub fn add_undrawn(&self, taken: Taken, now_ms: UnixMs) {
        if self.is_active() && now_ms.0 < self.due_ms.load(Ordering::Relaxed) {
            self.undrawn[0].fetch_add(taken.us, Ordering::Relaxed);
            self.undrawn[1].fetch_add(taken.bytes, Ordering::Relaxed);
        }
    }

    /// The collection, if it still runs.
    fn running<'c>(
        &self,
        collection: &'c mut Option<Collection>,
        now_ms: UnixMs,
    ) -> Option<&'c mut Collection> {
        let running = collection.as_mut()?;
        running.end_if_due(now_ms);
        if running.took_ms.is_some() {
            self.active.store(false, Ordering::Relaxed);
            return None;
        }
        Some(running)
    }

    /// Notes a command that has run with these keys and, if it was drawn, shares its time and bytes
    /// among them.
    pub fn note<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone,
        taken: Taken,
        drawn: bool,
        now_ms: UnixMs,
    ) {
        let count = keys.len() as u64;
        if count == 0 {
            return;
        }
        let mut collection = self.collection.lock();
        let Some(running) = self.running(&mut collection, now_ms) else {
            return;
        };
        running.all.add(taken);
        // The keys of a command have one slot where there are slots.
        let is_selected = running.plan.slots.as_ref().is_none_or(|slots| {
            let slot = keys.clone().next().map(slots::of_key);
            slot.is_some_and(|slot| slots.binary_search(&slot).is_ok())
        });
        if !is_selected {
            return;
        }
        running.selected.add(taken);
        if !drawn {
            return;
        }
        running.sampled.add(taken);
        let began = std::time::Instant::now();
        for key in keys {
            if running.plan.cpu {
                running.cpu.add(key, taken.us / count);
            }
            if running.plan.net {
                running.net.add(key, taken.bytes / count);
            }
        }
        running.own_ns += began.elapsed().as_nanos() as u64;
    }

    /// What is known of the collection, if there is one.
    pub fn findings(&self, now_ms: UnixMs) -> Option<Findings> {
        let mut collection = self.collection.lock();
        let found = collection.as_mut()?;
        found.end_if_due(now_ms);
        let mut all = found.all;
        let [us, bytes] = &self.undrawn;
        all.add(Taken {
            us: us.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        });
        Some(Findings {
            active: found.took_ms.is_none(),
            plan: found.plan.clone(),
            began_ms: found.began_ms,
            took_ms: found
                .took_ms
                .unwrap_or_else(|| now_ms.since(found.began_ms)),
            used: found.used,
            all,
            selected: found.selected,
            sampled: found.sampled,
            net_bytes: found.net.total,
            by_cpu: found.cpu.report(found.plan.count),
            by_net: found.net.report(found.plan.count),
            memory: size_of::<Collection>() + found.cpu.memory() + found.net.memory(),
            own_ms: found.own_ns / 1_000_000,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_keys_are_found_among_many_light_ones() {
        let mut rng = fastrand::Rng::with_seed(8);
        let mut top = Top::new(10);
        let mut real: FxHashMap<String, u64> = FxHashMap::default();
        for _ in 0..100_000 {
            let key = match rng.u32(..10) < 6 {
                true => format!("hot{}", rng.u32(..10)),
                false => format!("cold{}", rng.u32(..50_000)),
            };
            let weight = rng.u64(1..20);
            top.add(key.as_bytes(), weight);
            *real.entry(key).or_default() += weight;
        }
        let found = top.report(10);
        for (key, weight) in &found {
            let key = std::str::from_utf8(key).unwrap();
            assert!(key.starts_with("hot"), "{key}");
            assert!(*weight <= real[key], "{key}: more than it used");
            assert!(
                *weight * 10 >= real[key] * 9,
                "{key}: {weight} of {}",
                real[key]
            );
        }
        assert_eq!(found.len(), 10);
        assert_eq!(top.slots.len(), 100);
        assert_eq!(top.by_weight.len(), 100);
        assert_eq!(top.total, real.values().sum::<u64>());
    }

    #[test]
    fn a_collection_ends_when_its_time_is_over() {
        let plan = Plan {
            cpu: true,
            net: true,
            count: 10,
            duration_ms: 1000,
            sample: 1,
            slots: None,
        };
        let hot = HotKeys::default();
        let at = |ms: u64| UnixMs(1_800_000_000_000 + ms);
        assert!(hot.start(plan.clone(), Used::default(), at(0)));
        assert!(!hot.start(plan, Used::default(), at(1)));
        let taken = Taken { us: 7, bytes: 100 };
        hot.note([b"a".as_slice(), b"b"].into_iter(), taken, true, at(2));
        assert!(!hot.reset(at(999)));
        hot.note([b"c".as_slice()].into_iter(), taken, true, at(1000));
        assert!(!hot.is_active());
        let found = hot.findings(at(5000)).unwrap();
        assert_eq!((found.active, found.took_ms), (false, 1000));
        assert_eq!((found.all.us, found.all.bytes), (7, 100));
        assert_eq!(found.by_net, [(b"a"[..].into(), 50), (b"b"[..].into(), 50)]);
        hot.add_undrawn(taken, at(5000));
        assert_eq!(hot.findings(at(5000)).unwrap().all.us, 7);
        assert!(!hot.stop(at(5000)));
        assert!(hot.reset(at(5000)) && hot.findings(at(5000)).is_none());
    }

    #[test]
    fn what_is_not_drawn_counts_until_the_collection_is_due() {
        let plan = Plan {
            cpu: true,
            net: false,
            count: 10,
            duration_ms: 1000,
            sample: 100,
            slots: None,
        };
        let hot = HotKeys::default();
        let at = |ms: u64| UnixMs(1_800_000_000_000 + ms);
        let taken = Taken { us: 7, bytes: 100 };
        for _ in 0..2 {
            assert!(hot.start(plan.clone(), Used::default(), at(0)));
            hot.note([b"a".as_slice()].into_iter(), taken, true, at(1));
            hot.add_undrawn(taken, at(999));
            hot.add_undrawn(taken, at(1000));
            let found = hot.findings(at(1000)).unwrap();
            assert_eq!((found.all.us, found.all.bytes), (14, 200));
            assert_eq!(found.sampled.us, 7);
        }
    }

    #[test]
    fn one_of_so_many_commands_is_drawn() {
        let mut draw = Draw::default();
        for ratio in [1, 2, 10, 1_000] {
            let commands = 100_000 * ratio;
            let drawn = (0..commands).filter(|_| draw.next(ratio)).count();
            assert!((98_000..=102_000).contains(&drawn), "1 of {ratio}: {drawn}");
        }
    }
}
