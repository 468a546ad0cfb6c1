//! A memtable's segments against an ordered map, one thread and several.

use super::super::testing::{Heap, Sorted, amount, cases, internal, new_row, parts, user_key};
use super::*;
use crate::encoding::keys::ELEMENT_PREFIX_LEN;
use crate::encoding::tag;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

/// User key and version.
type Parts = (Vec<u8>, Reverse<u64>);

fn insert(segments: &Segments<Heap>, user: &[u8], version: u64) {
    let row = new_row(&segments.arena, user, version);
    // SAFETY: the heap stays as long as the segments; versions and the one writer are
    // the caller's affair.
    unsafe { segments.insert(row) }
}

/// A memtable and a map with these rows. The version of a row is its number.
fn filled(users: &[Vec<u8>]) -> (Segments<Heap>, Sorted) {
    let segments = Segments::new(Heap::default());
    let mut sorted = Sorted::new();
    for (version, user) in (0..).zip(users) {
        insert(&segments, user, version);
        sorted.insert((user.clone(), Reverse(version)), ());
    }
    (segments, sorted)
}

#[derive(Debug, Clone)]
enum Step {
    First,
    Last,
    AtOrAfter(Vec<u8>, u64),
    AtOrBefore(Vec<u8>, u64),
    Next(usize),
    Previous(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let version = 0..1000u64;
    prop_oneof![
        1 => Just(Step::First),
        1 => Just(Step::Last),
        4 => (user_key(), version.clone()).prop_map(|(user, version)| Step::AtOrAfter(user, version)),
        4 => (user_key(), version).prop_map(|(user, version)| Step::AtOrBefore(user, version)),
        4 => (1..400usize).prop_map(Step::Next),
        4 => (1..400usize).prop_map(Step::Previous),
    ]
}

fn after(sorted: &Sorted, at: &Parts) -> Option<Parts> {
    let mut behind = sorted.range((Excluded(at.clone()), Unbounded));
    behind.next().map(|(key, ())| key.clone())
}

fn before(sorted: &Sorted, at: &Parts) -> Option<Parts> {
    let mut before = sorted.range((Unbounded, Excluded(at.clone())));
    before.next_back().map(|(key, ())| key.clone())
}

/// Takes the steps with a cursor; each has to end at the row that the map says.
fn walk(segments: &Segments<Heap>, sorted: &Sorted, steps: &[Step]) {
    let mut cursor = Cursor::new(segments, Walk::Everywhere);
    let mut at: Option<Parts> = None;
    for step in steps {
        let bound = |user: &Vec<u8>, version: &u64| (user.clone(), Reverse(*version));
        let (found, expected) = match step {
            Step::First => (cursor.first(), sorted.keys().next().cloned()),
            Step::Last => (cursor.last(), sorted.keys().next_back().cloned()),
            Step::AtOrAfter(user, version) => {
                let mut rows = sorted.range(bound(user, version)..);
                let found = cursor.at_or_after(Key::new(&internal(user, *version)));
                (found, rows.next().map(|(key, ())| key.clone()))
            }
            Step::AtOrBefore(user, version) => {
                let mut rows = sorted.range(..=bound(user, version));
                let found = cursor.at_or_before(Key::new(&internal(user, *version)));
                (found, rows.next_back().map(|(key, ())| key.clone()))
            }
            Step::Next(times) | Step::Previous(times) => {
                for _ in 0..*times {
                    let Some(from) = at else { break };
                    let (found, expected) = one_step(&mut cursor, sorted, step, &from);
                    assert_eq!(found, expected, "{step:?}");
                    at = found;
                }
                continue;
            }
        };
        at = parts(found);
        assert_eq!(at, expected, "{step:?}");
    }
}

/// The row to which one step of the cursor leads, and the row to which it should.
fn one_step(
    cursor: &mut Cursor<Heap>,
    sorted: &Sorted,
    step: &Step,
    from: &Parts,
) -> (Option<Parts>, Option<Parts>) {
    match step {
        Step::Previous(_) => (parts(cursor.previous()), before(sorted, from)),
        _ => (parts(cursor.next()), after(sorted, from)),
    }
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn cursors_bring_the_rows_of_all_segments_in_order(
        users in prop::collection::vec(user_key(), 0..amount(1000, 100)),
        steps in prop::collection::vec(step(), 0..amount(40, 8)),
    ) {
        let (segments, sorted) = filled(&users);
        walk(&segments, &sorted, &steps);
    }
}

/// The number of rows, with three forms of keys.
const ROWS: u64 = amount(6000, 300) as u64;

/// The common prefix of a cursor's keys is shorter in the middle of the walk than at its ends.
#[test]
fn rows_of_several_kinds_are_in_order() {
    let users: Vec<Vec<u8>> = (0..ROWS)
        .map(|i| match i % 3 {
            0 => format!("key:{:012}", i * 7919 % ROWS).into_bytes(),
            1 => format!("{}:{:04}", "k".repeat(30), i % 500).into_bytes(),
            _ => [&b"\x05"[..], &(i * 31 % 97).to_be_bytes()].concat(),
        })
        .collect();
    let (segments, sorted) = filled(&users);
    let there_and_back = [
        Step::First,
        Step::Next(7000),
        Step::Last,
        Step::Previous(7000),
        Step::AtOrAfter(b"key:".to_vec(), 0),
        Step::Previous(3000),
        Step::AtOrBefore(b"key:".to_vec(), 0),
        Step::Next(3000),
    ];
    walk(&segments, &sorted, &there_and_back);
}

/// The number of segments matters since a look-up checks the filter of each.
#[test]
fn there_are_few_segments() {
    let segments = Segments::new(Heap::default());
    const ROWS: usize = amount(100_000, 1000);
    for version in 0..ROWS as u64 {
        insert(&segments, &version.to_be_bytes(), version);
    }
    // Each segment takes an eighth of the rows before it, so six segments double their number.
    let doublings = (ROWS / (SEGMENTS * SEGMENT_ROWS)).ilog2() as usize + 1;
    let count = segments.all().count();
    assert!(count <= SEGMENTS + 6 * doublings, "{count} segments");
}

/// A seek takes new segments into account. Until the next seek a cursor stays in the segments
/// that it has, in both directions, while rows are added.
#[test]
fn cursors_see_what_came_later_when_they_start_again() {
    let users: Vec<Vec<u8>> = (0..100u64)
        .map(|i| (10 * i).to_be_bytes().to_vec())
        .collect();
    let (segments, mut sorted) = filled(&users);
    let mut cursor = Cursor::new(&segments, Walk::Everywhere);
    let mut at = parts(cursor.first());
    for round in 0..amount(300, 20) as u64 {
        for i in 0..SEGMENT_ROWS as u64 / 4 {
            let (user, version) = ((round * 37 + i * 113) % 1000, 1000 + round);
            if sorted
                .insert((user.to_be_bytes().to_vec(), Reverse(version)), ())
                .is_none()
            {
                insert(&segments, &user.to_be_bytes(), version);
            }
        }
        let on = at.and_then(|_| parts(cursor.next()));
        let back = on.clone().and_then(|_| parts(cursor.previous()));
        if let (Some(on), Some(back)) = (on, back) {
            assert!(back < on);
        }
        let user = (round * 71 % 1000).to_be_bytes();
        let key = internal(&user, u64::MAX);
        let bound = (user.to_vec(), Reverse(u64::MAX));
        at = match round % 4 {
            0 => parts(cursor.first()),
            1 => parts(cursor.last()),
            2 => parts(cursor.at_or_after(Key::new(&key))),
            _ => parts(cursor.at_or_before(Key::new(&key))),
        };
        let expected = match round % 4 {
            0 => sorted.keys().next(),
            1 => sorted.keys().next_back(),
            2 => sorted.range(bound..).next().map(|(key, ())| key),
            _ => sorted.range(..=bound).next_back().map(|(key, ())| key),
        };
        assert_eq!(at.as_ref(), expected, "round {round}");
    }
}

/// Versions of a key are found newest first if newer segments are searched first.
#[test]
fn newer_segments_have_newer_versions() {
    let users: Vec<Vec<u8>> = (0..amount(2000, 500) as u64)
        .map(|i| vec![(i % 7) as u8])
        .collect();
    let (segments, _) = filled(&users);
    assert!(segments.all().count() > 10);
    let newest = internal(&[3], u64::MAX);
    let key = Key::new(&newest);
    let mut left = segments.with_versions_of(key);
    let mut versions = Vec::new();
    while left != 0 {
        let segment = left.ilog2() as usize;
        left ^= 1 << segment;
        versions.extend(parts(segments.at_or_after(segment, key)).map(|(_, version)| version.0));
    }
    assert!(versions.len() > 10);
    assert!(versions.is_sorted_by(|newer, older| newer > older));
}

/// Row `i` of the map of collection `id`.
fn row_of_map(id: u8, i: u64) -> Vec<u8> {
    [
        &[tag::SET_MEMBER][..],
        &[0, 0, 0, 0, 0, 0, 0, id],
        &i.to_be_bytes(),
    ]
    .concat()
}

const MAPS: u8 = amount(60, 20) as u8;

/// Rows of many maps, one map after the other: each has rows in a few segments.
fn rows_of_maps() -> Vec<Vec<u8>> {
    (0..MAPS)
        .flat_map(|id| (0..30).map(move |i| row_of_map(id, i)))
        .collect()
}

#[test]
fn look_ups_leave_out_segments() {
    let users = rows_of_maps();
    let (segments, _) = filled(&users);
    let count = segments.all().count();
    let (mut found, mut wrong) = (0, 0);
    for user in &users {
        let key = internal(user, u64::MAX);
        let with = segments.with_versions_of(Key::new(&key));
        let has = |at: &usize| {
            let row = parts(segments.at_or_after(*at, Key::new(&key)));
            row.is_some_and(|(found, _)| found == *user)
        };
        let right = (0..count).find(has).unwrap();
        assert_ne!(with & 1 << right, 0);
        found += 1;
        wrong += with.count_ones() - 1;
    }
    // A filter has two entries for each row: its key and its map.
    let others = found * (count - 1);
    assert!(wrong as usize * 10 < others, "{wrong} of {others}");
}

#[test]
fn walks_within_a_map_have_all_its_rows_and_few_segments() {
    let (segments, sorted) = filled(&rows_of_maps());
    let count = segments.all().count();
    let mut places = 0;
    for id in 0..MAPS {
        let mut cursor = Cursor::new(&segments, Walk::WithinMap);
        let first = internal(&row_of_map(id, 0), u64::MAX);
        let mut row = cursor.at_or_after(Key::new(&first));
        places += cursor.places.len();
        let of_map = sorted
            .keys()
            .filter(|(user, _)| user.starts_with(&row_of_map(id, 0)[..ELEMENT_PREFIX_LEN]));
        for expected in of_map {
            assert_eq!(parts(row).as_ref(), Some(expected));
            row = cursor.next();
        }
    }
    assert!(
        places < usize::from(MAPS) * count / 5,
        "{places} of {count} segments each"
    );
    let nowhere = internal(&row_of_map(200, 0), u64::MAX);
    let mut cursor = Cursor::new(&segments, Walk::WithinMap);
    let row = parts(cursor.at_or_after(Key::new(&nowhere)));
    assert!(row.is_none_or(|(user, _)| user > row_of_map(200, 0)));
    // A key that belongs to no map is looked for in all segments.
    let before = internal(&[tag::META], u64::MAX);
    assert_eq!(
        parts(cursor.at_or_after(Key::new(&before))).as_ref(),
        sorted.keys().next()
    );
}

/// A walk while rows are added visits all rows that were there when it began, in order, in
/// either direction.
#[test]
fn cursors_pass_what_was_there_when_they_began() {
    const ROWS: usize = amount(40_000, 20);
    let segments = Segments::new(Heap::default());
    let user = |i: usize| format!("key:{:012}", i * 7919 % ROWS).into_bytes();
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for backward in [false, true] {
            let (segments, done, over) = (&segments, &done, &over);
            scope.spawn(move || {
                while !over.load(Acquire) {
                    let there = done.load(Acquire);
                    let mut missing: std::collections::HashSet<Vec<u8>> =
                        (there.saturating_sub(500)..there).map(user).collect();
                    let mut cursor = Cursor::new(segments, Walk::Everywhere);
                    let mut row = match backward {
                        true => cursor.last(),
                        false => cursor.first(),
                    };
                    let mut last = None;
                    while let Some(now) = parts(row) {
                        let in_order = last.as_ref().is_none_or(|last| match backward {
                            true => *last > now,
                            false => *last < now,
                        });
                        assert!(in_order, "{last:?} and {now:?}");
                        missing.remove(&now.0);
                        last = Some(now);
                        row = match backward {
                            true => cursor.previous(),
                            false => cursor.next(),
                        };
                    }
                    assert!(missing.is_empty(), "{} of {there}", missing.len());
                }
            });
        }
        for i in 0..ROWS {
            insert(&segments, &user(i), i as u64);
            done.store(i + 1, Release);
        }
        over.store(true, Release);
    });
}
