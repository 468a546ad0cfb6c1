//! Strings compared with a `Vec<u8>`, in both forms and over many commits.

use super::*;
use crate::base::time::UnixMs;
use crate::storage::{Engine, StorageConfig};
use std::sync::Arc;

const DB: DbIndex = DbIndex(0);
const LIMIT: u64 = 1 << 29;

struct Bench {
    txn: Txn,
    engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(inline_max: usize) -> Bench {
        Bench::with(inline_max, 0)
    }

    /// With strings of at least `logged_min` bytes in the value log; 0 for none.
    fn with(inline_max: usize, logged_min: u64) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().to_owned());
        config.string_inline_max_bytes = inline_max;
        config.value_log_min_bytes = logged_min;
        config.value_log_segment_bytes = 64 << 10;
        let engine = Engine::open(config).unwrap();
        let mut txn = Txn::new(Arc::clone(&engine));
        txn.begin(UnixMs(1_000)).unwrap();
        txn.start_command();
        Bench {
            txn,
            engine,
            _dir: dir,
        }
    }

    fn commit(&mut self) {
        self.txn.commit().unwrap();
        self.txn.begin(UnixMs(1_000)).unwrap();
        self.txn.start_command();
    }

    fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        get(&mut self.txn, DB, key).unwrap()
    }

    fn fragments(&mut self, key: &[u8]) -> Vec<(u64, usize)> {
        let mut seen = Vec::new();
        for_each_fragment(
            &mut self.txn,
            DB,
            key,
            |len| 0..len,
            |offset, bytes| {
                seen.push((offset, bytes.len()));
                ControlFlow::Continue(())
            },
        )
        .unwrap();
        seen
    }

    fn check(&mut self) {
        self.commit();
        let report = self.engine.check().unwrap();
        assert_eq!(report.faults, Vec::<String>::new());
    }
}

/// xorshift, seeded from the clock; the seed is printed when a test fails.
struct Random(u64);

impl Random {
    fn new() -> Random {
        let seed = crate::sys::clock::unix_us() | 1;
        println!("seed {seed}");
        Random(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn bytes(&mut self, max: u64) -> Vec<u8> {
        let len = self.below(max + 1) as usize;
        let zeros = self.below(3) == 0;
        (0..len)
            .map(|_| if zeros { 0 } else { self.below(256) as u8 })
            .collect()
    }
}

#[test]
fn agrees_with_a_vector() {
    agrees(Bench::new(64));
}

#[test]
fn agrees_with_a_vector_in_the_value_log() {
    agrees(Bench::with(64, 50));
    agrees(Bench::with(16 << 10, 10_000));
}

fn agrees(mut bench: Bench) {
    let mut random = Random::new();
    let mut model: Option<Vec<u8>> = None;
    for _ in 0..1_500 {
        let txn = &mut bench.txn;
        match random.below(9) {
            0 => {
                let value = random.bytes(20_000);
                set(txn, DB, b"k", &value, Expiry::Clear).unwrap();
                model = Some(value);
            }
            1 => {
                let value = random.bytes(70);
                set(txn, DB, b"k", &value, Expiry::At(UnixMs(5_000))).unwrap();
                model = Some(value);
            }
            2 | 3 => {
                let bytes = random.bytes(6_000);
                let len = append(txn, DB, b"k", &bytes, LIMIT).unwrap();
                model.get_or_insert_default().extend_from_slice(&bytes);
                assert_eq!(model.as_ref().map(|m| m.len() as u64), Some(len));
            }
            4 | 5 => {
                let (offset, bytes) = (random.below(40_000), random.bytes(9_000));
                set_range(txn, DB, b"k", offset, &bytes, LIMIT).unwrap();
                if !bytes.is_empty() {
                    overwrite(model.get_or_insert_default(), offset as usize, &bytes);
                }
            }
            6 => {
                let (offset, bit) = (random.below(50_000), random.below(8));
                update_byte(txn, DB, b"k", offset, LIMIT, |b| *b ^= 1 << bit).unwrap();
                let model = model.get_or_insert_default();
                let len = model.len().max(offset as usize + 1);
                model.resize(len, 0);
                model[offset as usize] ^= 1 << bit;
            }
            7 if random.below(10) == 0 => {
                assert_eq!(txn.delete_key(DB, b"k").unwrap(), model.is_some());
                model = None;
            }
            _ => bench.commit(),
        }
        let txn = &mut bench.txn;
        assert_eq!(
            len(txn, DB, b"k").unwrap(),
            model.as_ref().map(|m| m.len() as u64)
        );
        let whole = model.clone().unwrap_or_default();
        let from = random.below(whole.len() as u64 + 10) as usize;
        let to = from + random.below(30_000) as usize;
        let part = get_range(txn, DB, b"k", from as i64, to as i64).unwrap();
        assert_eq!(
            part,
            whole[from.min(whole.len())..(to + 1).min(whole.len())]
        );
        if random.below(8) == 0 {
            assert_eq!(bench.value(b"k"), model);
        }
    }
    assert_eq!(bench.value(b"k"), model);
    bench.check();
}

#[test]
fn a_far_offset_costs_its_fragment_only() {
    let mut bench = Bench::new(16 << 10);
    let bit = update_byte(&mut bench.txn, DB, b"k", 536_870_911, LIMIT, |b| {
        *b |= 1;
        *b
    });
    assert_eq!(bit.unwrap(), 1);
    assert!(bench.txn.pending_bytes() < 10_000);
    assert_eq!(bench.fragments(b"k"), [(536_866_816, 4096)]);
    assert_eq!(len(&mut bench.txn, DB, b"k").unwrap(), Some(1 << 29));
    bench.commit();
    assert_eq!(bench.fragments(b"k"), [(536_866_816, 4096)]);
    let tail = get_range(&mut bench.txn, DB, b"k", -2, -1).unwrap();
    assert_eq!(tail, [0, 1]);
    let head = get_range(&mut bench.txn, DB, b"k", 0, 20_000).unwrap();
    assert_eq!(head, vec![0; 20_001]);
}

#[test]
fn an_expiry_rewrites_no_fragment() {
    let mut bench = Bench::new(64);
    set(&mut bench.txn, DB, b"k", &[7; 100_000], Expiry::Clear).unwrap();
    bench.commit();
    let old = bench.txn.lookup(DB, b"k").unwrap().unwrap();
    bench.txn.set_expiry(DB, b"k", &old, UnixMs(9_000)).unwrap();
    assert!(bench.txn.pending_bytes() < 200);
    append(&mut bench.txn, DB, b"k", b"x", LIMIT).unwrap();
    assert!(bench.txn.pending_bytes() < 5_000);
    let kept = bench.txn.lookup(DB, b"k").unwrap().unwrap();
    assert_eq!(kept.meta.expire_ms, UnixMs(9_000));
    bench.check();
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let mut bench = Bench::new(64);
    set(&mut bench.txn, DB, b"k", &[1; 5_000], Expiry::Clear).unwrap();
    set(&mut bench.txn, DB, b"s", b"abc", Expiry::Clear).unwrap();
    bench.commit();
    for key in [&b"k"[..], b"s", b"none"] {
        set_range(&mut bench.txn, DB, key, 1 << 20, b"", LIMIT).unwrap();
    }
    for key in [&b"k"[..], b"s"] {
        update_byte(&mut bench.txn, DB, key, 1, LIMIT, |_| ()).unwrap();
    }
    assert_eq!(bench.txn.dirty(), 0);
    // Appending nothing is a change, as in Redis.
    for (key, len) in [(&b"k"[..], 5_000), (b"s", 3), (b"none", 0)] {
        bench.txn.start_command();
        let appended = append(&mut bench.txn, DB, key, b"", LIMIT);
        assert_eq!(appended.unwrap(), len);
        assert_eq!(bench.txn.dirty(), 1);
    }
    assert_eq!(bench.value(b"none"), Some(Vec::new()));
}

#[test]
fn too_long_changes_nothing() {
    let mut bench = Bench::new(64);
    set(&mut bench.txn, DB, b"k", &[1; 100], Expiry::Clear).unwrap();
    bench.commit();
    let txn = &mut bench.txn;
    for result in [
        append(txn, DB, b"k", &[2; 29], 128),
        set_range(txn, DB, b"k", 128, b"x", 128),
        set_range(txn, DB, b"k", u64::MAX, b"x", 128),
        set_range(txn, DB, b"none", 128, b"x", 128),
        // The limit holds within the value, too.
        set_range(txn, DB, b"k", 10, b"x", 10),
        update_byte(txn, DB, b"k", u64::MAX, 128, |_| 0),
    ] {
        assert!(matches!(result, Err(OpError::TooLong)), "{result:?}");
    }
    assert_eq!(txn.dirty(), 0);
    // A value longer than a limit that was lowered later can still be changed.
    assert_eq!(set_range(txn, DB, b"k", 9, b"x", 10).unwrap(), 100);
    assert_eq!(update_byte(txn, DB, b"k", 99, 10, |byte| *byte).unwrap(), 1);
}

#[test]
fn ranges_as_getrange_has_them() {
    for (start, end, len, expected) in [
        (0, 3, 10, 0..4),
        (0, -1, 10, 0..10),
        (-4, -1, 10, 6..10),
        (5, 3, 10, 4..4),
        (5, 5000, 10, 5..10),
        (-5000, 10000, 10, 0..10),
        (-1, -5, 10, 0..0),
        (-100, -50, 10, 0..1),
        (0, 0, 0, 0..0),
        (i64::MIN, i64::MAX, 10, 0..10),
        (i64::MAX, i64::MAX, 10, 10..10),
        (0, i64::MIN, 10, 0..1),
    ] {
        let range = resolve_range(start, end, len);
        assert_eq!(range, expected, "{start} {end} of {len}");
    }
}

#[test]
fn other_types_are_refused() {
    let mut bench = Bench::new(64);
    let txn = &mut bench.txn;
    txn.put_key(DB, b"h", None, Meta::new(ValueType::Hash), b"")
        .unwrap();
    assert!(matches!(get(txn, DB, b"h"), Err(OpError::WrongType)));
    assert!(matches!(
        append(txn, DB, b"h", b"x", LIMIT),
        Err(OpError::WrongType)
    ));
    assert!(matches!(len(txn, DB, b"h"), Err(OpError::WrongType)));
    set(txn, DB, b"h", b"v", Expiry::Keep).unwrap();
    assert_eq!(bench.value(b"h").as_deref(), Some(&b"v"[..]));
    bench.check();
}
