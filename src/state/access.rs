//! Times and frequencies of accesses to keys, for OBJECT IDLETIME and FREQ.
//!
//! Accesses are not stored on disk, and memory is bounded: a table of fixed size remembers the
//! most recently used keys, some hundred thousand, or more if keys are evicted by it. For other keys
//! it yields a lower bound of the idle time: the time since the start of the server, or since the
//! oldest access in the key's set.

use crate::base::time::UnixMs;
use crate::sys::huge_pages::HugeVec;
use crate::sys::prefetch;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys per set of the table: one cache line.
const WAYS: usize = 8;
/// The least number of sets; a power of two.
const SETS: usize = 1 << 14;
/// The most: the bits of a hash beside the tag choose among them.
const MOST_SETS: usize = 1 << 30;
/// Times are known to such a part of a second, so that what was used last is not taken for what was used
/// shortly before. They have 32 bits and wrap around after eight years: a key counts as idle for half of
/// that at the most.
const TICKS_PER_S: u32 = 16;
/// The longest idle time, in ticks.
const MOST_IDLE: u32 = i32::MAX as u32;
/// Initial frequency of a key.
const FREQUENCY_FIRST: u8 = 5;

#[repr(align(64))]
#[derive(Debug, Default)]
struct Set([AtomicU64; WAYS]);

/// `tag (24) ‖ frequency (8) ‖ time in ticks (32)`; 0 if empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot(u64);

impl Slot {
    fn new(tag: u64, frequency: u8, at: u32) -> Slot {
        Slot(tag << 40 | u64::from(frequency) << 32 | u64::from(at))
    }

    fn tag(self) -> u64 {
        self.0 >> 40
    }

    fn frequency(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// How long it was not used, in ticks. A time to come counts as now.
    fn idle(self, now: u32) -> u32 {
        now.wrapping_sub(self.0 as u32).cast_signed().max(0) as u32
    }

    /// The same, but an empty one was used before all others.
    fn age(self, now: u32) -> u32 {
        match self.0 {
            0 => u32::MAX,
            _ => self.idle(now),
        }
    }
}

/// Parameters of frequencies (`lfu-log-factor`, `lfu-decay-time`).
#[derive(Debug, Clone, Copy)]
pub struct Lfu {
    /// The larger, the more accesses an increment takes.
    pub log_factor: u32,
    /// Minutes without access per decrement; 0: none.
    pub decay_min: u32,
}

impl Lfu {
    fn decayed(self, slot: Slot, now: u32) -> u8 {
        let minutes = slot.idle(now) / (60 * TICKS_PER_S);
        let steps = minutes.checked_div(self.decay_min).unwrap_or(0);
        let steps = u8::try_from(steps).unwrap_or(u8::MAX);
        slot.frequency().saturating_sub(steps)
    }

    /// The frequency approximates the logarithm of the number of accesses, as in Redis.
    fn risen(self, frequency: u8) -> u8 {
        let base = f64::from(frequency.saturating_sub(FREQUENCY_FIRST));
        let chance = 1.0 / (base * f64::from(self.log_factor) + 1.0);
        frequency.saturating_add(u8::from(fastrand::f64() < chance))
    }
}

/// Times and frequencies of accesses to keys, by the hashes of their names.
#[derive(Debug)]
pub struct Accesses {
    sets: HugeVec<Set>,
    started_ms: UnixMs,
}

impl Accesses {
    /// An empty table of a server that starts now, of about so many bytes, but no less than a
    /// mebibyte.
    pub fn new(now_ms: UnixMs, bytes: u64) -> Accesses {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<Set>();
        let sets = (wanted.max(1).ilog2()).min(MOST_SETS.ilog2());
        Accesses {
            sets: (0..SETS.max(1 << sets)).map(|_| Set::default()).collect(),
            started_ms: now_ms,
        }
    }

    /// Prefetches what [`Accesses::touch`] will access.
    pub fn prefetch(&self, hash: u64) {
        prefetch::to_write(self.place(hash).0);
    }

    /// Records an access to the key with this hash; counts its frequency only with `lfu`.
    pub fn touch(&self, hash: u64, now_ms: UnixMs, lfu: Option<Lfu>) {
        let (set, tag) = self.place(hash);
        let now = ticks(now_ms.0) as u32;
        let mut oldest = (0, &set.0[0]);
        for way in &set.0 {
            let slot = Slot(way.load(Ordering::Relaxed));
            if slot.0 != 0 && slot.tag() == tag {
                let frequency = match lfu {
                    Some(lfu) => lfu.risen(lfu.decayed(slot, now)),
                    None => slot.frequency(),
                };
                let new = Slot::new(tag, frequency, now);
                if new != slot {
                    way.store(new.0, Ordering::Relaxed);
                }
                return;
            }
            let age = slot.age(now);
            if age > oldest.0 {
                oldest = (age, way);
            }
        }
        let slot = Slot::new(tag, FREQUENCY_FIRST, now);
        oldest.1.store(slot.0, Ordering::Relaxed);
    }

    /// Sets the idle time or the frequency of a key, as another server reports them. `None`
    /// leaves a value as it is.
    pub fn remember(&self, hash: u64, now_ms: UnixMs, idle_s: Option<u64>, frequency: Option<u8>) {
        // Ensures that there is a slot.
        self.touch(hash, now_ms, None);
        let (set, tag) = self.place(hash);
        let now = ticks(now_ms.0) as u32;
        for way in &set.0 {
            let slot = Slot(way.load(Ordering::Relaxed));
            if slot.0 == 0 || slot.tag() != tag {
                continue;
            }
            let idle = idle_s.unwrap_or(0).saturating_mul(TICKS_PER_S.into());
            let at = now.wrapping_sub(u32::try_from(idle).unwrap_or(MOST_IDLE).min(MOST_IDLE));
            let frequency = frequency.unwrap_or(slot.frequency());
            way.store(Slot::new(tag, frequency, at).0, Ordering::Relaxed);
            return;
        }
    }

    /// Seconds since the last access; for an unknown key a lower bound.
    pub fn idle_s(&self, hash: u64, now_ms: UnixMs) -> u64 {
        u64::from(self.idle_ticks(hash, now_ms) / TICKS_PER_S)
    }

    /// The same, in parts of a second.
    pub fn idle_ticks(&self, hash: u64, now_ms: UnixMs) -> u32 {
        let (set, tag) = self.place(hash);
        let now = ticks(now_ms.0) as u32;
        find(set, tag).map_or_else(
            || {
                let ages = (set.0.iter()).map(|way| Slot(way.load(Ordering::Relaxed)).age(now));
                let since_start = u32::try_from(ticks(now_ms.since(self.started_ms)));
                let oldest = ages.max().unwrap_or(MOST_IDLE);
                oldest.min(since_start.unwrap_or(MOST_IDLE)).min(MOST_IDLE)
            },
            |slot| slot.idle(now),
        )
    }

    /// The frequency of accesses, on a logarithmic scale from 0 to 255.
    pub fn frequency(&self, hash: u64, now_ms: UnixMs, lfu: Lfu) -> u8 {
        let (set, tag) = self.place(hash);
        find(set, tag).map_or(0, |slot| lfu.decayed(slot, ticks(now_ms.0) as u32))
    }

    fn place(&self, hash: u64) -> (&Set, u64) {
        (&self.sets[hash as usize % self.sets.len()], hash >> 40)
    }
}

fn find(set: &Set, tag: u64) -> Option<Slot> {
    let mut slots = set.0.iter().map(|way| Slot(way.load(Ordering::Relaxed)));
    slots.find(|slot| slot.0 != 0 && slot.tag() == tag)
}

/// Ticks in so many milliseconds.
fn ticks(ms: u64) -> u64 {
    // Without an overflow, whatever the clock says.
    ms / 1000 * u64::from(TICKS_PER_S) + ms % 1000 * u64::from(TICKS_PER_S) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: UnixMs = UnixMs(1_800_000_000_000);

    #[test]
    fn a_key_is_idle_since_it_was_used() {
        let accesses = Accesses::new(START_MS, 0);
        assert_eq!(accesses.idle_s(7, START_MS + 3_000), 3);
        accesses.touch(7, START_MS + 4_000, None);
        assert_eq!(accesses.idle_s(7, START_MS + 9_500), 5);
        assert_eq!(accesses.idle_s(8, START_MS + 9_500), 9);
    }

    #[test]
    fn the_oldest_key_of_a_place_is_forgotten() {
        let accesses = Accesses::new(START_MS, 0);
        let key = |n: u64| n << 40;
        for n in 0..=WAYS as u64 {
            accesses.touch(key(n), START_MS + 1_000 * n, None);
        }
        let now_ms = START_MS + 100_000;
        assert_eq!(accesses.idle_s(key(1), now_ms), 99);
        // Key 0 was replaced. It is at least as old as the oldest key of its set.
        assert_eq!(accesses.idle_s(key(0), now_ms), 99);
    }

    #[test]
    fn what_was_used_shortly_before_is_older() {
        let accesses = Accesses::new(START_MS, 0);
        for n in 0..8 {
            accesses.touch(n << 40, START_MS + 125 * n, None);
        }
        let idle = (0..8).map(|n| accesses.idle_ticks(n << 40, START_MS + 1_000));
        assert_eq!(idle.collect::<Vec<_>>(), [16, 14, 12, 10, 8, 6, 4, 2]);
    }

    /// A machine without a battery begins in 1970.
    #[test]
    fn times_hold_after_the_clock_is_set() {
        let accesses = Accesses::new(UnixMs(1_000), 0);
        accesses.touch(1 << 40, UnixMs(2_000), None);
        for n in 2..5 {
            accesses.touch(n << 40, START_MS + 1_000 * n, None);
        }
        let idle = |n: u64| accesses.idle_s(n << 40, START_MS + 5_000);
        assert_eq!([idle(2), idle(3), idle(4)], [3, 2, 1]);
        // It was set back by an hour.
        let idle = |n: u64| accesses.idle_s(n << 40, UnixMs(START_MS.0 - 3_600_000));
        assert_eq!([idle(2), idle(3), idle(4)], [0; 3]);
    }

    #[test]
    fn what_another_server_remembers_holds_here() {
        let accesses = Accesses::new(START_MS, 0);
        let lfu = Lfu {
            log_factor: 10,
            decay_min: 1,
        };
        accesses.remember(7, START_MS, Some(1_000), None);
        assert_eq!(accesses.idle_s(7, START_MS + 5_000), 1_005);
        accesses.remember(7, START_MS, None, Some(100));
        assert_eq!(accesses.frequency(7, START_MS, lfu), 100);
        accesses.remember(8, START_MS, Some(u64::MAX), None);
        assert_eq!(
            accesses.idle_s(8, START_MS),
            u64::from(MOST_IDLE / TICKS_PER_S)
        );
    }

    #[test]
    fn a_larger_table_remembers_more_keys() {
        let known = |bytes| {
            let accesses = Accesses::new(START_MS, bytes);
            let hash = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            for n in 0..400_000 {
                accesses.touch(hash(n), START_MS + 100 * n, None);
            }
            let is_known = |n: &u64| find_in(&accesses, hash(*n));
            (0..400_000).filter(is_known).count()
        };
        let (small, large) = (known(0), known(8 << 20));
        assert!(small <= WAYS * SETS && small > WAYS * SETS / 2, "{small}");
        assert!(large > 350_000, "{large}");
    }

    fn find_in(accesses: &Accesses, hash: u64) -> bool {
        let (set, tag) = accesses.place(hash);
        find(set, tag).is_some()
    }

    #[test]
    fn frequencies_rise_with_use_and_fall_with_time() {
        let accesses = Accesses::new(START_MS, 0);
        let lfu = Lfu {
            log_factor: 0,
            decay_min: 1,
        };
        for _ in 0..10 {
            accesses.touch(7, START_MS, Some(lfu));
        }
        assert_eq!(accesses.frequency(7, START_MS, lfu), FREQUENCY_FIRST + 9);
        assert_eq!(accesses.frequency(7, START_MS + 180_000, lfu), 11);
        assert_eq!(accesses.frequency(8, START_MS, lfu), 0);
        for _ in 0..1_000 {
            accesses.touch(7, START_MS, Some(lfu));
        }
        assert_eq!(accesses.frequency(7, START_MS, lfu), u8::MAX);
    }
}
