//! Bits compared with a `Vec<bool>`; cost of sparse values.

use super::*;
use crate::base::time::UnixMs;
use crate::storage::{Engine, StorageConfig};
use std::sync::Arc;

const DB: DbIndex = DbIndex(0);
const LIMIT: u64 = 1 << 29;

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
        let len = self.below(max + 1);
        let kind = self.below(4);
        let byte = |random: &mut Random| match kind {
            0 => 0,
            1 => 0xff,
            _ => random.below(256) as u8,
        };
        (0..len).map(|_| byte(self)).collect()
    }
}

fn model(bytes: &[u8]) -> Vec<bool> {
    let bits = |byte: &u8| {
        let byte = *byte;
        (0..8).map(move |nth| byte >> (7 - nth) & 1 == 1)
    };
    bytes.iter().flat_map(bits).collect()
}

#[test]
fn slices_agree_with_single_bits() {
    let mut random = Random::new();
    for _ in 0..2_000 {
        let mut bytes = random.bytes(40);
        let model = model(&bytes);
        let end = random.below(model.len() as u64 + 1);
        let range = random.below(end + 1)..end;
        let part = &model[range.start as usize..range.end as usize];
        let ones = part.iter().filter(|bit| **bit).count() as u64;
        assert_eq!(
            count_ones_in(&bytes, range.clone()),
            ones,
            "{bytes:?} {range:?}"
        );
        for bit in [false, true] {
            let at = part.iter().position(|b| *b == bit);
            let at = at.map(|at| at as u64 + range.start);
            assert_eq!(
                find_in(&bytes, range.clone(), bit),
                at,
                "{bytes:?} {range:?}"
            );
        }
        let (offset, width) = (random.below(330), 1 + random.below(64) as u32);
        let get = |at: u64| model.get(at as usize).copied().unwrap_or(false);
        let mut number = 0u64;
        for at in offset..offset + u64::from(width) {
            assert_eq!(get_in(&bytes, at), get(at));
            number = number << 1 | u64::from(get(at));
        }
        assert_eq!(get_field(&bytes, offset, width), number);
        let value = random.below(u64::MAX);
        let before = bytes.clone();
        set_field(&mut bytes, offset, width, value);
        for at in 0..before.len() as u64 * 8 {
            let expected = match at.checked_sub(offset) {
                Some(nth) if nth < u64::from(width) => {
                    value >> (u64::from(width) - 1 - nth) & 1 == 1
                }
                _ => get(at),
            };
            assert_eq!(get_in(&bytes, at), expected);
        }
    }
}

#[test]
fn parts() {
    let part = |start, end, unit| Part { start, end, unit };
    for (part, len, expected) in [
        (Part::ALL, 3, 0..24),
        (Part::ALL, 0, 0..0),
        (part(1, 1, Unit::Byte), 3, 8..16),
        (part(1, 1, Unit::Bit), 3, 1..2),
        (part(-2, -1, Unit::Bit), 3, 22..24),
        (part(-100, -50, Unit::Byte), 3, 0..8),
        (part(2, 1, Unit::Byte), 3, 0..0),
        (part(i64::MIN, i64::MAX, Unit::Byte), 3, 0..24),
        (part(i64::MAX, i64::MAX, Unit::Bit), 3, 0..0),
        (part(i64::MIN, i64::MIN, Unit::Bit), 3, 0..1),
    ] {
        assert_eq!(part.bits(len), expected, "{part:?} of {len}");
    }
    assert!(part(-1, -5, Unit::Byte).is_reversed());
    assert!(!part(3, 1, Unit::Byte).is_reversed());
}

struct Bench {
    txn: Txn,
    _engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(inline_max: usize) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().to_owned());
        config.string_inline_max_bytes = inline_max;
        let engine = Engine::open(config).unwrap();
        let mut txn = Txn::new(Arc::clone(&engine));
        txn.begin(UnixMs(1_000)).unwrap();
        txn.start_command();
        Bench {
            txn,
            _engine: engine,
            _dir: dir,
        }
    }

    fn commit(&mut self) {
        self.txn.commit().unwrap();
        self.txn.begin(UnixMs(1_000)).unwrap();
        self.txn.start_command();
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        string::set(&mut self.txn, DB, key, value, Expiry::Clear).unwrap();
    }

    fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        string::get(&mut self.txn, DB, key).unwrap()
    }
}

/// A value with long gaps of zeros, so that fragments are missing.
fn spotted(random: &mut Random) -> Vec<u8> {
    let mut value = Vec::new();
    for _ in 0..random.below(6) {
        let zeros = random.below(9_000) as usize;
        value.resize(value.len() + zeros, 0);
        value.extend_from_slice(&random.bytes(3_000));
    }
    value
}

#[test]
fn values_agree_with_slices() {
    let mut random = Random::new();
    let mut bench = Bench::new(256);
    for round in 0..300 {
        let value = spotted(&mut random);
        bench.put(b"k", &value);
        if round % 3 == 0 {
            bench.commit();
        }
        let total = value.len() as i64 * 8;
        let mut end = || random.below(total as u64 * 2 + 20) as i64 - total;
        let part = Part {
            start: end(),
            end: end(),
            unit: if round % 2 == 0 {
                Unit::Bit
            } else {
                Unit::Byte
            },
        };
        let bits = part.bits(value.len() as u64);
        let ones = count(&mut bench.txn, DB, b"k", part).unwrap();
        assert_eq!(ones, count_ones_in(&value, bits.clone()));
        for bit in [false, true] {
            let expected = match find_in(&value, bits.clone(), bit) {
                _ if bits.is_empty() => Found::EmptyPart,
                Some(at) => Found::At(at),
                None => Found::NotBefore(bits.end),
            };
            assert_eq!(find(&mut bench.txn, DB, b"k", bit, part).unwrap(), expected);
        }
        let at = random.below(total as u64 + 9);
        assert_eq!(
            get(&mut bench.txn, DB, b"k", at).unwrap(),
            get_in(&value, at)
        );
    }
}

/// One byte of the result, from those of the sources.
fn combined(operation: Operation, bytes: &[u8]) -> u8 {
    let others = bytes[1..].iter().fold(0, |a, b| a | b);
    let counted = |bit: u32| bytes.iter().filter(|byte| *byte >> bit & 1 == 1).count();
    match operation {
        Operation::And => bytes.iter().fold(0xff, |a, b| a & b),
        Operation::Or => bytes[0] | others,
        Operation::Xor => bytes.iter().fold(0, |a, b| a ^ b),
        Operation::Not => !bytes[0],
        Operation::Diff => bytes[0] & !others,
        Operation::Diff1 => others & !bytes[0],
        Operation::AndOr => bytes[0] & others,
        Operation::One => (0..8)
            .filter(|bit| counted(*bit) == 1)
            .map(|bit| 1 << bit)
            .sum(),
    }
}

#[test]
fn combinations_agree_with_slices() {
    let mut random = Random::new();
    let mut bench = Bench::new(256);
    let operations = [
        Operation::And,
        Operation::Or,
        Operation::Xor,
        Operation::Not,
        Operation::Diff,
        Operation::Diff1,
        Operation::AndOr,
        Operation::One,
    ];
    for round in 0..400 {
        let operation = operations[round % operations.len()];
        let names: &[&[u8]] = match operation {
            Operation::Not => &[b"a"],
            _ => &[&b"a"[..], b"b", b"c", b"none"][..1 + random.below(4) as usize],
        };
        let values: Vec<Vec<u8>> = names
            .iter()
            .map(|name| match *name {
                b"none" => Vec::new(),
                _ => spotted(&mut random),
            })
            .collect();
        for (name, value) in names.iter().zip(&values) {
            if *name != b"none" {
                bench.put(name, value);
            }
        }
        if round % 3 == 0 {
            bench.commit();
        }
        let dest: &[u8] = if round % 5 == 0 { b"a" } else { b"d" };
        let len = values.iter().map(Vec::len).max().unwrap_or(0);
        let expected: Vec<u8> = (0..len)
            .map(|at| {
                let bytes = values.iter().map(|v| v.get(at).copied().unwrap_or(0));
                combined(operation, &bytes.collect::<Vec<u8>>())
            })
            .collect();
        let combined = combine(&mut bench.txn, DB, operation, dest, names).unwrap();
        assert_eq!(combined, len as u64);
        let expected = (len > 0).then_some(expected);
        assert!(bench.value(dest) == expected, "{operation:?} {names:?}");
    }
    bench.commit();
    let report = bench.txn.engine().check().unwrap();
    assert_eq!(report.faults, Vec::<String>::new());
}

/// Results larger than one step, and than the limit of the pending batch.
#[test]
fn large_combinations_are_made_in_steps() {
    const LEN: usize = 5 << 20;
    let mut random = Random::new();
    let mut bench = Bench::new(256);
    let names: [&[u8]; 3] = [b"a", b"b", b"c"];
    let mut values = [vec![0u8; LEN], vec![0; LEN - 70_000], vec![0xff; LEN - 3]];
    for value in &mut values {
        for _ in 0..20 {
            let piece = random.bytes(9_000);
            let at = random.below((value.len() - piece.len()) as u64) as usize;
            value[at..at + piece.len()].copy_from_slice(&piece);
        }
    }
    for (name, value) in names.iter().zip(&values) {
        bench.put(name, value);
    }
    bench.commit();
    let byte = |value: &Vec<u8>, at: usize| value.get(at).copied().unwrap_or(0);
    for (operation, sources) in [
        (Operation::Not, &[0][..]),
        (Operation::Not, &[2]),
        (Operation::And, &[0, 1, 2]),
        (Operation::And, &[2, 2]),
        (Operation::Or, &[0, 1]),
        (Operation::Or, &[0, 2]),
        (Operation::Xor, &[1, 2, 0]),
        (Operation::Xor, &[2, 2]),
        (Operation::Diff, &[2, 0, 1]),
        (Operation::Diff1, &[1, 0, 2]),
        (Operation::AndOr, &[0, 1, 2]),
        (Operation::One, &[0, 1, 2, 0]),
    ] {
        let keys: Vec<&[u8]> = sources.iter().map(|n| names[*n]).collect();
        let len = sources.iter().map(|n| values[*n].len()).max().unwrap_or(0);
        let expected: Vec<u8> = (0..len)
            .map(|at| {
                let bytes = sources.iter().map(|n| byte(&values[*n], at));
                combined(operation, &bytes.collect::<Vec<u8>>())
            })
            .collect();
        let made = combine(&mut bench.txn, DB, operation, b"d", &keys).unwrap();
        assert_eq!(made, len as u64);
        let pending = bench.txn.pending_bytes();
        // The log has the result of those that Redis 7.0 lacks.
        let logged = if operation.is_newer() { LEN } else { 0 };
        assert!(
            pending < logged + (2 << 20),
            "{operation:?}: {pending} bytes pending"
        );
        assert!(
            bench.value(b"d") == Some(expected.clone()),
            "{operation:?} {sources:?}"
        );
        bench.commit();
        assert!(
            bench.value(b"d") == Some(expected),
            "{operation:?} {sources:?}"
        );
    }
    let report = bench.txn.engine().check().unwrap();
    assert_eq!(report.faults, Vec::<String>::new());
}

#[test]
fn sparse_values_cost_what_is_in_them() {
    let mut bench = Bench::new(16 << 10);
    let last = u64::from(u32::MAX);
    for (key, offset) in [(b"a", last), (b"b", 77), (b"c", last - 40_000)] {
        set(&mut bench.txn, DB, key, offset, true, LIMIT).unwrap();
        set(&mut bench.txn, DB, key, last, true, LIMIT).unwrap();
    }
    bench.commit();
    for (operation, ones) in [
        (Operation::Or, 3),
        (Operation::And, 1),
        (Operation::Xor, 3),
        (Operation::Diff, 0),
        (Operation::Diff1, 2),
        (Operation::AndOr, 1),
        (Operation::One, 2),
    ] {
        let keys: &[&[u8]] = &[b"a", b"b", b"c"];
        let len = combine(&mut bench.txn, DB, operation, b"d", keys).unwrap();
        assert_eq!(len, LIMIT);
        assert!(bench.txn.pending_bytes() < 20_000);
        assert_eq!(count(&mut bench.txn, DB, b"d", Part::ALL).unwrap(), ones);
        bench.commit();
    }
    let found = find(&mut bench.txn, DB, b"b", true, Part::ALL).unwrap();
    assert_eq!(found, Found::At(77));
    let found = find(&mut bench.txn, DB, b"a", true, Part::ALL).unwrap();
    assert_eq!(found, Found::At(last));
    let found = find(&mut bench.txn, DB, b"b", false, Part::ALL).unwrap();
    assert_eq!(found, Found::At(0));
}
