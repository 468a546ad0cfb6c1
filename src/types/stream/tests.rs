//! Random operations against a model, over commits and rollbacks.

use super::*;
use crate::base::time::UnixMs;
use crate::storage::{Engine, StorageConfig};
use std::collections::BTreeMap;

const DB: DbIndex = DbIndex(0);
const KEY: &[u8] = b"key";

struct Fixture {
    txn: Txn,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let config = StorageConfig::for_tests(dir.path().join("db"));
        let mut txn = Txn::new(Engine::open(config).unwrap());
        txn.begin(UnixMs(1)).unwrap();
        txn.start_command();
        Fixture { txn, _dir: dir }
    }

    fn commit(&mut self) {
        self.txn.commit().unwrap();
        self.txn.begin(UnixMs(1)).unwrap();
        self.txn.start_command();
    }

    fn edit<R>(&mut self, change: impl FnOnce(&mut Stream<'_>, &mut Txn) -> R) -> R {
        let mut stream = Stream::load_or_new(&mut self.txn, DB, KEY).unwrap();
        let result = change(&mut stream, &mut self.txn);
        stream.save(&mut self.txn).unwrap();
        result
    }

    fn ids(&mut self, range: (StreamId, StreamId), order: Direction) -> Vec<StreamId> {
        let mut ids = Vec::new();
        if let Some(stream) = Stream::load(&mut self.txn, DB, KEY).unwrap() {
            let each = |id, fields: Fields<'_>| {
                assert_eq!(fields.count().unwrap(), 2);
                ids.push(id);
                Ok(ControlFlow::Continue(()))
            };
            stream.visit(&mut self.txn, range, order, each).unwrap();
        }
        ids
    }

    fn check(&mut self) {
        self.commit();
        let report = self.txn.engine().check().unwrap();
        assert!(report.faults.is_empty(), "{:#?}", report.faults);
    }
}

fn id(ms: u64, seq: u64) -> StreamId {
    StreamId { ms, seq }
}

/// The ids of the existing entries, and the last id ever used.
#[derive(Debug, Clone, Default)]
struct Model {
    ids: Vec<StreamId>,
    last: StreamId,
}

fn change(fixture: &mut Fixture, model: &mut Model, rng: &mut fastrand::Rng) {
    let any = id(model.last.ms.saturating_sub(rng.u64(..40)), rng.u64(..3));
    match rng.u8(..10) {
        0..=5 => {
            let wanted = match rng.u8(..3) {
                0 => NewId::Now,
                1 => NewId::In(model.last.ms + rng.u64(..2)),
                _ => NewId::Given(id(model.last.ms + rng.u64(1..4), 0)),
            };
            fixture.edit(|stream, txn| {
                let new = stream.next_id(wanted, UnixMs(1)).unwrap();
                assert!(new > model.last);
                stream
                    .append(txn, new, &row_of([b"f".as_slice(), b"v"]))
                    .unwrap();
                model.ids.push(new);
                model.last = new;
            });
        }
        6 | 7 => {
            let first = model.ids.first().copied().unwrap_or_default();
            let gone = [any, first, any];
            let before = model.ids.len();
            model.ids.retain(|id| !gone.contains(id));
            let deleted = before - model.ids.len();
            fixture.edit(|stream, txn| {
                let existed = stream.delete(txn, &gone).unwrap();
                assert_eq!(existed.into_iter().filter(|e| *e).count(), deleted);
            });
        }
        8 => {
            let kept = rng.usize(..400);
            let cut = model.ids.len().saturating_sub(kept);
            model.ids.drain(..cut);
            let trim = Trim {
                keep: Keep::Last(kept as u64),
                slack: None,
            };
            fixture.edit(|stream, txn| assert_eq!(stream.trim(txn, trim).unwrap(), cut as u64));
        }
        _ => {
            let cut = model.ids.partition_point(|id| *id < any);
            model.ids.drain(..cut);
            let trim = Trim {
                keep: Keep::From(any),
                slack: None,
            };
            fixture.edit(|stream, txn| assert_eq!(stream.trim(txn, trim).unwrap(), cut as u64));
        }
    }
}

#[test]
fn entries_behave_like_a_list_of_ids() {
    for seed in 0..8 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut fixture = Fixture::new();
        let mut model = Model::default();
        for _ in 0..600 {
            let before = (fixture.txn.savepoint(), model.clone());
            for _ in 0..rng.u8(1..4) {
                change(&mut fixture, &mut model, &mut rng);
            }
            match rng.u8(..8) {
                0 => {
                    fixture.txn.rollback(&before.0);
                    model = before.1;
                }
                1 | 2 => fixture.commit(),
                _ => {}
            }
            let (a, b) = (rng.u64(..60), rng.u64(..60));
            let from = id(model.last.ms.saturating_sub(a), 1);
            let range = (from, id(model.last.ms.saturating_sub(b), 1));
            let within = |at: &&StreamId| range.0 <= **at && **at <= range.1;
            let mut expected: Vec<StreamId> = model.ids.iter().filter(within).copied().collect();
            assert_eq!(fixture.ids(range, Direction::Forward), expected);
            expected.reverse();
            assert_eq!(fixture.ids(range, Direction::Backward), expected);
            if let Some(stream) = Stream::load(&mut fixture.txn, DB, KEY).unwrap() {
                let first = model.ids.first().copied().unwrap_or_default();
                let top = model.ids.last().copied().unwrap_or_default();
                assert_eq!(stream.body().length, model.ids.len() as u64);
                assert_eq!(
                    (stream.body().first, stream.body().last),
                    (first, model.last)
                );
                assert_eq!(stream.top(&mut fixture.txn).unwrap(), top);
            }
        }
        fixture.check();
    }
}

/// Pending entries with owner and deliveries, in a group with three consumers.
#[test]
fn groups_behave_like_a_map_of_pending_entries() {
    const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];
    for seed in 0..8 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut fixture = Fixture::new();
        let mut model: BTreeMap<StreamId, (usize, u64)> = BTreeMap::new();
        fixture.edit(|stream, txn| {
            let group = stream.create_group(b"g", StreamId::MIN, 0);
            group.save(txn).unwrap();
        });
        for _ in 0..800 {
            let before = (fixture.txn.savepoint(), model.clone());
            let at = id(rng.u64(1..60), 0);
            let owner = rng.usize(..3);
            let stream = Stream::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
            let txn = &mut fixture.txn;
            let mut group = stream.group(txn, b"g").unwrap().unwrap();
            let old = group.pending(txn, at).unwrap();
            assert_eq!(
                old.map(|old| old.deliveries),
                model.get(&at).map(|old| old.1)
            );
            match rng.u8(..8) {
                0..=3 => {
                    let (consumer, _) = group.consumer(txn, NAMES[owner]).unwrap();
                    let deliveries = old.map_or(1, |old| old.deliveries + 1);
                    let new = PendingRow {
                        consumer,
                        delivered_ms: 1,
                        deliveries,
                    };
                    group.assign(txn, at, old.as_ref(), &new).unwrap();
                    model.insert(at, (owner, deliveries));
                }
                4..=6 => {
                    // The oldest is removed as often as any other.
                    let oldest = group.row().oldest;
                    let gone = if rng.bool() { oldest } else { at };
                    if let Some(old) = group.pending(txn, gone).unwrap() {
                        group.remove(txn, gone, &old).unwrap();
                    }
                    model.remove(&gone);
                }
                _ if rng.u8(..4) == 0 => {
                    if let Some(number) = group.find_consumer(txn, NAMES[owner]).unwrap() {
                        let lost = group.delete_consumer(txn, number).unwrap();
                        let had = model.values().filter(|pending| pending.0 == owner).count();
                        assert_eq!(lost, had as u64);
                    }
                    model.retain(|_, pending| pending.0 != owner);
                }
                _ => {}
            }
            group.save(txn).unwrap();
            stream.save(txn).unwrap();
            match rng.u8(..8) {
                0 => {
                    fixture.txn.rollback(&before.0);
                    model = before.1;
                }
                1 | 2 => fixture.commit(),
                _ => {}
            }
            compare_group(&mut fixture, &model, &NAMES);
        }
        fixture.check();
        let mut stream = Stream::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
        let group = stream.group(&fixture.txn, b"g").unwrap().unwrap();
        stream.destroy_group(&mut fixture.txn, group).unwrap();
        stream.save(&mut fixture.txn).unwrap();
        fixture.check();
    }
}

fn compare_group(fixture: &mut Fixture, model: &BTreeMap<StreamId, (usize, u64)>, names: &[&[u8]]) {
    let txn = &mut fixture.txn;
    let stream = Stream::load(txn, DB, KEY).unwrap().unwrap();
    let group = stream.group(txn, b"g").unwrap().unwrap();
    assert_eq!(group.row().pending, model.len() as u64);
    let oldest = model.keys().next().copied().unwrap_or_default();
    assert_eq!(group.row().oldest, oldest);
    let mut ids = Vec::new();
    group
        .visit_pending(txn, all(), Direction::Forward, |id, _| {
            ids.push(id);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    assert_eq!(ids, model.keys().copied().collect::<Vec<_>>());
    for (number, consumer) in group.all_consumers(txn).unwrap() {
        let owner = names.iter().position(|name| **name == *consumer.name);
        let mut owned = Vec::new();
        group
            .visit_owned(txn, number, all(), |id| {
                owned.push(id);
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        let own = model.iter().filter(|(_, pending)| Some(pending.0) == owner);
        assert_eq!(owned, own.map(|(id, _)| *id).collect::<Vec<_>>());
        assert_eq!(consumer.pending, owned.len() as u64);
    }
}

/// A walk begins at the first entry, not at the tombstones before it.
#[test]
fn reads_pass_no_tombstones_of_what_was_trimmed() {
    let mut fixture = Fixture::new();
    let row = row_of([b"f".as_slice(), b"v"]);
    for n in 1..=3000 {
        fixture.edit(|stream, txn| {
            stream.append(txn, id(n, 0), &row).unwrap();
            let trim = Trim {
                keep: Keep::Last(10),
                slack: None,
            };
            stream.trim(txn, trim).unwrap();
        });
        fixture.commit();
    }
    let stream = Stream::load(&mut fixture.txn, DB, KEY).unwrap().unwrap();
    let (from, to) = (
        entry_key(stream.body().id, stream.body().first),
        keys::element_end(tag::STREAM_ENTRY, stream.body().id),
    );
    let mut scan = fixture
        .txn
        .scan_within(DB, &from, &to, Direction::Forward, 100)
        .unwrap();
    let mut found = 0;
    while scan.next().unwrap().is_some() {
        found += 1;
    }
    assert_eq!((found, scan.gave_up()), (10, false));
    assert!(scan.passed() < 30, "{} tombstones", scan.passed());
}

/// Dropping many entries is one range deletion, and keeps the rest.
#[test]
fn many_entries_go_at_once() {
    let mut fixture = Fixture::new();
    let row = row_of([b"f".as_slice(), b"v"]);
    fixture.edit(|stream, txn| {
        for n in 1..=2000 {
            stream.append(txn, id(n, 0), &row).unwrap();
        }
    });
    for (kept, first) in [(1500, 501), (1000, 1001), (20, 1981), (0, 0)] {
        let trim = Trim {
            keep: Keep::Last(kept),
            slack: None,
        };
        fixture.edit(|stream, txn| stream.trim(txn, trim).unwrap());
        let found = fixture.ids(all(), Direction::Forward);
        assert_eq!(found.len() as u64, kept);
        assert_eq!(found.first().map_or(0, |id| id.ms), first);
    }
    fixture.check();
}
