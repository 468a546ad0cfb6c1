//! Models of readers beside a writer. Loom runs each in all orders of the threads' steps, up to
//! a number of preemptions (`LOOM_MAX_PREEMPTIONS`), and with all values that the memory model
//! lets a load see. `mutations.py` lists changes to the memtable with which the models must fail.

#![allow(unsafe_code)]

use super::index::Index;
use super::row::{Key, Row};
use super::segments::{Cursor, Segments, Walk};
use super::sync::as_writer;
use super::testing::{Heap, internal, new_row, next, parts};
use loom::sync::Mutex;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Acquire, Release};
use loom::thread;
use std::ptr::NonNull;
use std::sync::Arc;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_up_to(2, model);
}

/// Faults of such protocols show with one preemption or two, and each further one takes many
/// times as long.
fn explore_up_to(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// An index and the memory of its rows.
struct Shared {
    heap: Heap,
    index: Index<Heap>,
}

impl Shared {
    fn with(users: &[&str]) -> Arc<Shared> {
        let heap = Heap::default();
        let index = Index::new(heap.clone());
        let shared = Shared { heap, index };
        users.iter().for_each(|user| shared.insert(user));
        Arc::new(shared)
    }

    /// Adds a row; no other thread does meanwhile.
    fn insert(&self, user: &str) {
        let row = new_row(&self.heap, user.as_bytes(), 1);
        // SAFETY: the heap stays as long as the index, and all user keys differ.
        as_writer(|| unsafe { self.index.insert(row) });
    }

    /// The same for several rows whose places are looked up first.
    fn insert_together(&self, users: &[&str]) {
        let keys: Vec<_> = users.iter().map(|user| key(user)).collect();
        let keys: Vec<Key> = keys.iter().map(|key| Key::new(key)).collect();
        let mut places = Vec::new();
        // SAFETY: no other thread adds rows.
        as_writer(|| unsafe { self.index.places(&keys, &mut places) });
        for (user, place) in users.iter().zip(places) {
            let row = new_row(&self.heap, user.as_bytes(), 1);
            // SAFETY: as in `insert`; the place is that of the row's key.
            as_writer(|| unsafe { self.index.insert_at(row, place) });
        }
    }

    /// Checks searches for `wanted`. `at_or_after` finds the first of `there` that is not less,
    /// or one of `coming` before that. `before` finds the last lesser one of `there`, or a lesser
    /// row after that.
    fn check(&self, wanted: &str, there: &[&str], coming: &[&str]) {
        let bytes = key(wanted);
        let found = user(self.index.at_or_after(Key::new(&bytes)));
        let certain = there.iter().copied().filter(|user| *user >= wanted).min();
        let mut possible = coming
            .iter()
            .copied()
            .filter(|user| *user >= wanted && certain.is_none_or(|certain| *user < certain));
        let found = found.as_deref();
        assert!(
            found == certain || possible.any(|user| found == Some(user)),
            "{wanted}: {found:?} is found, {certain:?} is there"
        );
        let before = user(self.index.before(Key::new(&bytes)));
        let certain = there.iter().copied().filter(|user| *user < wanted).max();
        let before = before.as_deref();
        assert!(
            before < Some(wanted) && before >= certain,
            "{wanted}: {before:?} is before it"
        );
    }

    /// Checks that a walk visits all of `there`, in order.
    fn walk(&self, there: &[&str]) {
        let mut row = self.index.first();
        let mut users = Vec::new();
        while row.is_some() {
            users.extend(user(row));
            row = row.and_then(next);
        }
        assert!(users.is_sorted_by(|a, b| a < b), "{users:?}");
        assert!(
            there.iter().all(|user| users.iter().any(|it| it == user)),
            "{users:?}"
        );
    }
}

fn key(user: &str) -> Vec<u8> {
    internal(user.as_bytes(), 1)
}

fn user(row: Option<NonNull<Row>>) -> Option<String> {
    parts(row).map(|(user, _)| String::from_utf8_lossy(&user).into_owned())
}

/// One thread adds `coming`, one after the other, while another one looks for `wanted`.
fn insert_against_search(there: &'static [&str], coming: &'static [&str], wanted: &'static str) {
    explore(move || {
        let shared = Shared::with(there);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || coming.iter().for_each(|user| shared.insert(user)))
        };
        shared.check(wanted, there, coming);
        writer.join().unwrap();
        for user in there.iter().chain(coming) {
            shared.check(user, &[there, coming].concat(), &[]);
        }
    });
}

/// The leaf has room, and its row moves to the right.
#[test]
fn a_row_comes_in_before_another() {
    insert_against_search(&["m"], &["a"], "c");
}

/// The marks of all rows change, since their common prefix gets shorter.
#[test]
fn the_common_prefix_gets_shorter() {
    insert_against_search(&["pppppppq"], &["pa"], "pppb");
}

/// The leaf is split, and the tree gets a root above it.
#[test]
fn the_tree_grows() {
    insert_against_search(&["g", "m"], &["j"], "k");
    insert_against_search(&["g", "m"], &["a"], "m");
}

/// Rows in order: the leaf stays full and gets a neighbour.
#[test]
fn rows_come_in_order() {
    insert_against_search(&["g", "m"], &["t"], "p");
}

/// Nodes on two levels are split, and there is a new root.
#[test]
fn inner_nodes_are_split() {
    insert_against_search(&["c", "g", "m", "r"], &["e"], "g");
    insert_against_search(&["c", "g", "m", "r"], &["e"], "f");
}

#[test]
fn a_walk_goes_on_while_rows_come() {
    explore(|| {
        let shared = Shared::with(&["g", "m"]);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || ["j", "z"].iter().for_each(|user| shared.insert(user)))
        };
        shared.walk(&["g", "m"]);
        assert!(user(shared.index.last()).as_deref() >= Some("m"));
        writer.join().unwrap();
        shared.walk(&["g", "j", "m", "z"]);
    });
}

/// The first row makes the second place invalid, and the second row splits the leaf.
#[test]
fn rows_come_to_places_that_were_looked_up() {
    explore_up_to(1, || {
        let shared = Shared::with(&["g"]);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || shared.insert_together(&["a", "c"]))
        };
        shared.check("d", &["g"], &["a", "c"]);
        writer.join().unwrap();
        shared.walk(&["a", "c", "g"]);
    });
}

/// RocksDB's mutex lets one thread write after the other.
#[test]
fn two_writers_take_turns() {
    explore_up_to(1, || {
        let shared = Shared::with(&["m"]);
        let turn = Arc::new(Mutex::new(()));
        let write = |user: &'static str| {
            let (shared, turn) = (shared.clone(), turn.clone());
            thread::spawn(move || {
                let _turn = turn.lock().unwrap();
                shared.insert(user);
            })
        };
        let writers = [write("a"), write("g")];
        shared.check("h", &["m"], &["a", "g"]);
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        shared.walk(&["a", "g", "m"]);
    });
}

/// Segments, and how many of their rows are published to readers, as RocksDB publishes them.
struct Published {
    heap: Heap,
    segments: Segments<Heap>,
    told: AtomicUsize,
}

/// User keys, in the order in which their rows are added.
const USERS: [&str; 3] = ["m", "c", "t"];

impl Published {
    fn with_first() -> Arc<Published> {
        let heap = Heap::default();
        let segments = Segments::new(heap.clone());
        let told = AtomicUsize::new(0);
        let published = Published {
            heap,
            segments,
            told,
        };
        published.insert(0);
        Arc::new(published)
    }

    fn insert(&self, at: usize) {
        let row = new_row(&self.heap, USERS[at].as_bytes(), 1);
        // SAFETY: the heap stays as long as the segments; one thread adds rows.
        as_writer(|| unsafe { self.segments.insert(row) });
        self.told.store(at + 1, Release);
    }

    /// Looks a key up as RocksDB does: in the segments whose filters may have it.
    fn has(&self, user: &str) -> bool {
        let bytes = key(user);
        let key = Key::new(&bytes);
        let found = self.segments.with_versions_of(key);
        (0..USERS.len())
            .filter(|at| found & 1 << at != 0)
            .any(|at| self::user(self.segments.at_or_after(at, key)).as_deref() == Some(user))
    }
}

/// Each row begins a segment, while the reader looks up the rows that are published.
#[test]
fn segments_are_sealed_and_begun() {
    explore(|| {
        let published = Published::with_first();
        let writer = {
            let published = published.clone();
            thread::spawn(move || (1..USERS.len()).for_each(|at| published.insert(at)))
        };
        let told = published.told.load(Acquire);
        for user in &USERS[..told] {
            assert!(published.has(user), "{user} of {told}");
        }
        writer.join().unwrap();
        assert!(USERS.iter().all(|user| published.has(user)));
    });
}

/// A cursor merges the rows of several segments in order, for flushes and scans.
#[test]
fn segments_are_merged_while_they_come() {
    explore(|| {
        let published = Published::with_first();
        let writer = {
            let published = published.clone();
            thread::spawn(move || published.insert(1))
        };
        let told = published.told.load(Acquire);
        let mut cursor = Cursor::new(&published.segments, Walk::Everywhere);
        let mut users = Vec::new();
        let mut row = cursor.first();
        while row.is_some() {
            users.extend(user(row));
            row = cursor.next();
        }
        assert!(users.is_sorted_by(|a, b| a < b), "{users:?}");
        for user in &USERS[..told] {
            assert!(users.iter().any(|it| it == user), "{user} of {told}");
        }
        writer.join().unwrap();
    });
}
