//! Which keys and prefixes take most space (BIGKEYS): the scan that runs, or the last one.
//!
//! One scan runs at a time, on a thread of its own. What is found is added key by key, so that
//! it can be read while the scan runs, in memory that the options bound (see [`table`]): not more
//! than 8 MiB for each depth and each of the types. The lock is held to add a key or to make a
//! report, and never while rows are read.

mod table;

pub use table::{Big, Found, PREFIX_BYTES, Prefix, Ranking, Total};

use crate::base::time::UnixMs;
use crate::encoding::ValueType;
use crate::storage::DbIndex;
use memchr::memmem;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use table::{Biggest, PREFIXES, Prefixes};

/// Most separators that are looked for in a key.
pub const DEPTH_MAX: usize = 8;
/// Most keys that are reported of a type, and prefixes of a depth.
pub const TOP_MAX: usize = 128;

/// What a scan is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The only DB that is scanned.
    pub db: Option<DbIndex>,
    /// Only keys that begin with this are scanned. Separators are looked for behind it.
    pub prefix: Vec<u8>,
    /// What ends a part of a key; not empty.
    pub separator: Vec<u8>,
    /// Prefixes end at the first so many separators.
    pub depth: usize,
    /// How many keys of a type and prefixes of a depth are reported.
    pub top: usize,
    /// Rows of a collection that are read; 0: all.
    pub samples: u64,
    /// Rows that are read in a second, at most; 0: as many as possible.
    pub rate: u64,
}

/// How a scan goes, or how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It has no snapshot yet.
    Starting,
    /// It runs.
    Running,
    /// It has seen all keys.
    Done,
    /// It was stopped.
    Stopped,
    /// It failed, and why.
    Failed(String),
}

impl State {
    /// Whether the scan runs.
    pub fn is_active(&self) -> bool {
        matches!(self, State::Starting | State::Running)
    }
}

/// How far a scan is.
#[derive(Debug, Clone)]
pub struct Progress {
    /// What it is to do.
    pub plan: Plan,
    /// How it goes.
    pub state: State,
    /// When it began.
    pub began_ms: UnixMs,
    /// How long it took, or takes by now, ms.
    pub took_ms: u64,
    /// Keys of the DBs that it scans.
    pub expected: u64,
    /// Keys that it has passed, those that do not begin with the prefix among them.
    pub passed: u64,
    /// Rows that it has read.
    pub rows: u64,
}

/// What is found of a type.
#[derive(Debug)]
pub struct OfType {
    /// The type.
    pub kind: ValueType,
    /// All keys.
    pub total: Total,
    /// Those with most bytes, the biggest first.
    pub by_bytes: Vec<Big>,
    /// Those with most elements, the biggest first.
    pub by_elements: Vec<Big>,
}

/// What a scan has found.
#[derive(Debug)]
pub struct Report {
    /// How far the scan is.
    pub progress: Progress,
    /// All keys.
    pub total: Total,
    /// Keys whose bytes are extrapolated from a part of their rows.
    pub estimated: u64,
    /// The types that have keys.
    pub types: Vec<OfType>,
    /// The prefixes by depth, from 1 on.
    pub prefixes: Vec<Ranking>,
}

struct Kind {
    kind: ValueType,
    total: Total,
    by_bytes: Biggest,
    by_elements: Biggest,
}

struct Scan {
    progress: Progress,
    /// When it began, for its duration.
    began: Instant,
    total: Total,
    estimated: u64,
    kinds: Vec<Kind>,
    depths: Vec<Prefixes>,
}

impl Scan {
    fn new(plan: Plan, now_ms: UnixMs) -> Scan {
        let (top, depth) = (plan.top, plan.depth);
        let kind = |kind: &ValueType| Kind {
            kind: *kind,
            total: Total::default(),
            by_bytes: Biggest::new(top),
            by_elements: Biggest::new(top),
        };
        Scan {
            progress: Progress {
                plan,
                state: State::Starting,
                began_ms: now_ms,
                took_ms: 0,
                expected: 0,
                passed: 0,
                rows: 0,
            },
            began: Instant::now(),
            total: Total::default(),
            estimated: 0,
            kinds: ValueType::ALL.iter().map(kind).collect(),
            depths: (0..depth).map(|_| Prefixes::new(PREFIXES)).collect(),
        }
    }

    fn add(&mut self, found: &Found<'_>) {
        self.total.take(found);
        self.estimated += u64::from(found.estimated);
        if let Some(kind) = self.kinds.iter_mut().find(|of| of.kind == found.kind) {
            kind.total.take(found);
            kind.by_bytes.offer(found.bytes, found);
            kind.by_elements.offer(found.elements, found);
        }
        let plan = &self.progress.plan;
        let start = plan.prefix.len();
        let rest = found.key.get(start..).unwrap_or_default();
        let mut ends = memmem::find_iter(rest, &plan.separator);
        for (depth, prefixes) in self.depths.iter_mut().enumerate() {
            match ends.next() {
                Some(end) => {
                    let end = start + end + plan.separator.len();
                    prefixes.add(found.key.get(..end).unwrap_or(found.key), found);
                }
                // What has no prefix of its own counts for that of all.
                None if depth == 0 => prefixes.add(&plan.prefix, found),
                None => break,
            }
        }
    }

    fn progress(&self) -> Progress {
        let mut progress = self.progress.clone();
        if progress.state.is_active() {
            progress.took_ms = self.began.elapsed().as_millis() as u64;
        }
        progress
    }

    fn end(&mut self, state: State) {
        self.progress.took_ms = self.began.elapsed().as_millis() as u64;
        self.progress.state = state;
    }
}

#[derive(Default)]
struct Inner {
    scan: Option<Scan>,
    /// Whether the scan that runs is to stop.
    stop: bool,
    /// Whether none may begin any more.
    closed: bool,
}

impl Inner {
    fn is_active(&self) -> bool {
        let scan = self.scan.as_ref();
        scan.is_some_and(|scan| scan.progress.state.is_active())
    }
}

/// The scan that runs, or the last one.
#[derive(Default)]
pub struct BigKeys {
    inner: Mutex<Inner>,
    stopped: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl BigKeys {
    /// Begins a scan in place of what the last one has found. Returns whether none was running.
    pub fn begin(&self, plan: Plan, now_ms: UnixMs) -> bool {
        let mut inner = self.inner.lock();
        if inner.is_active() || inner.closed {
            return false;
        }
        inner.stop = false;
        inner.scan = Some(Scan::new(plan, now_ms));
        true
    }

    /// Keeps the thread of the scan that runs, which [`BigKeys::close`] waits for.
    pub fn run_by(&self, thread: JoinHandle<()>) {
        // The thread before it has ended its scan.
        *self.thread.lock() = Some(thread);
    }

    /// Asks the scan to stop. Returns whether one was running.
    pub fn stop(&self) -> bool {
        let mut inner = self.inner.lock();
        let is_active = inner.is_active();
        inner.stop = is_active;
        drop(inner);
        self.stopped.notify_all();
        is_active
    }

    /// Forgets what was found. Returns whether no scan was running.
    pub fn reset(&self) -> bool {
        let mut inner = self.inner.lock();
        if inner.is_active() {
            return false;
        }
        let scan = inner.scan.take();
        drop(inner);
        drop(scan);
        true
    }

    /// Stops the scan for good, and waits for its thread.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.stop();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            log::error!("the thread of BIGKEYS had panicked");
        }
    }

    /// How far the scan is; `None` before the first one.
    pub fn progress(&self) -> Option<Progress> {
        self.inner.lock().scan.as_ref().map(Scan::progress)
    }

    /// What is found; `None` before the first scan.
    pub fn report(&self) -> Option<Report> {
        let mut inner = self.inner.lock();
        let scan = inner.scan.as_mut()?;
        let top = scan.progress.plan.top;
        let kinds = scan.kinds.iter().filter(|kind| kind.total.keys > 0);
        let types = kinds.map(|kind| OfType {
            kind: kind.kind,
            total: kind.total,
            by_bytes: kind.by_bytes.sorted(),
            by_elements: kind.by_elements.sorted(),
        });
        Some(Report {
            progress: scan.progress(),
            total: scan.total,
            estimated: scan.estimated,
            types: types.collect(),
            prefixes: scan.depths.iter_mut().map(|of| of.ranking(top)).collect(),
        })
    }

    /// For the thread of the scan: what it adds to. When this is dropped the scan has ended.
    pub fn adding(&self) -> Adding<'_> {
        Adding {
            to: self,
            end: State::Failed("its thread has panicked".to_owned()),
        }
    }
}

/// The end of a scan at which keys are added.
pub struct Adding<'a> {
    to: &'a BigKeys,
    end: State,
}

impl Adding<'_> {
    fn with<T>(&self, change: impl FnOnce(&mut Scan) -> T) -> Option<T> {
        self.to.inner.lock().scan.as_mut().map(change)
    }

    /// The scan has its snapshot, with so many keys.
    pub fn expect(&self, keys: u64) {
        self.with(|scan| {
            scan.progress.expected = keys;
            scan.progress.state = State::Running;
        });
    }

    /// Counts a key and its rows, and adds it unless it is none of those that are scanned. Returns
    /// whether the scan goes on.
    pub fn pass(&self, rows: u64, found: Option<Found<'_>>) -> bool {
        let mut inner = self.to.inner.lock();
        if let Some(scan) = &mut inner.scan {
            scan.progress.passed += 1;
            scan.progress.rows += rows;
            if let Some(found) = &found {
                scan.add(found);
            }
        }
        !inner.stop
    }

    /// Whether the scan is to stop.
    pub fn is_stopped(&self) -> bool {
        self.to.inner.lock().stop
    }

    /// Sleeps until this time, or until the scan is to stop. Returns whether it is.
    pub fn sleep_until(&self, time: Instant) -> bool {
        let mut inner: MutexGuard<'_, Inner> = self.to.inner.lock();
        while !inner.stop {
            let left = time.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            self.to.stopped.wait_for(&mut inner, left);
        }
        inner.stop
    }

    /// How the scan ends, unless it panics before.
    pub fn ends(mut self, end: State) {
        self.end = end;
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        let end = std::mem::replace(&mut self.end, State::Done);
        self.with(|scan| scan.end(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(depth: usize) -> Plan {
        Plan {
            db: None,
            prefix: Vec::new(),
            separator: b":".to_vec(),
            depth,
            top: 10,
            samples: 0,
            rate: 0,
        }
    }

    fn add(adding: &Adding<'_>, key: &str, kind: ValueType, bytes: u64) {
        let found = Found {
            db: DbIndex(0),
            key: key.as_bytes(),
            kind,
            bytes,
            elements: bytes % 10,
            estimated: false,
        };
        assert!(adding.pass(1, Some(found)));
    }

    #[test]
    fn one_scan_at_a_time() {
        let keys = BigKeys::default();
        assert!(keys.progress().is_none() && keys.report().is_none());
        assert!(!keys.stop() && keys.reset());
        assert!(keys.begin(plan(1), UnixMs(5)));
        assert!(!keys.begin(plan(1), UnixMs(6)) && !keys.reset());
        let adding = keys.adding();
        adding.expect(7);
        assert_eq!(keys.progress().unwrap().state, State::Running);
        assert!(!adding.is_stopped());
        assert!(keys.stop() && adding.is_stopped());
        assert!(adding.sleep_until(Instant::now() + Duration::from_secs(3600)));
        adding.ends(State::Stopped);
        assert!(!keys.stop());
        assert_eq!(keys.progress().unwrap().state, State::Stopped);
        assert!(keys.begin(plan(1), UnixMs(7)));
        assert!(!keys.adding().is_stopped(), "the stop was for the last one");
        let failed = keys.progress().unwrap().state;
        assert!(matches!(failed, State::Failed(_)), "{failed:?}");
        assert!(keys.reset() && keys.progress().is_none());
        keys.close();
        assert!(!keys.begin(plan(1), UnixMs(8)));
    }

    #[test]
    fn keys_count_for_each_prefix_that_they_have() {
        let keys = BigKeys::default();
        keys.begin(plan(2), UnixMs(5));
        let adding = keys.adding();
        for (key, bytes) in [
            ("a:b:c", 11),
            ("a:b:d:e", 12),
            ("a:x", 13),
            ("z", 14),
            (":", 1),
        ] {
            add(&adding, key, ValueType::String, bytes);
        }
        add(&adding, "a:list", ValueType::List, 100);
        assert!(adding.pass(0, None));
        adding.ends(State::Done);
        let report = keys.report().unwrap();
        assert_eq!((report.total.keys, report.total.bytes), (6, 151));
        assert_eq!(report.progress.passed, 7);
        let shown = |depth: usize| {
            let first = report.prefixes[depth].first.iter();
            let one = |one: &Prefix| {
                let name = String::from_utf8(one.name.to_vec()).unwrap();
                (name, one.total.keys, one.total.bytes)
            };
            first.map(one).collect::<Vec<_>>()
        };
        let named = |name: &str, keys, bytes| (name.to_owned(), keys, bytes);
        assert_eq!(
            shown(0),
            [named("a:", 4, 136), named("", 1, 14), named(":", 1, 1)]
        );
        assert_eq!(shown(1), [named("a:b:", 2, 23)]);
        let kinds: Vec<_> = report.types.iter().map(|of| of.kind).collect();
        assert_eq!(kinds, [ValueType::String, ValueType::List]);
        let strings = &report.types[0];
        assert_eq!(strings.by_bytes[0].name(), b"z");
        assert_eq!(strings.by_elements[0].elements, 4);
    }
}
