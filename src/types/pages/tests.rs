//! Arrays compared with plain bytes.

use super::*;
use crate::base::time::UnixMs;
use crate::encoding::tag;
use crate::storage::{Engine, StorageConfig};

const DB: DbIndex = DbIndex(0);

/// A generator of numbers, so that a failure repeats.
fn next(state: &mut u64, below: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*state >> 33) % below
}

#[test]
fn arrays_hold_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
    let mut txn = Txn::new(engine);
    txn.begin(UnixMs(1)).unwrap();
    let state = &mut 7;
    for first_len in [0, 8, 1024, 1025, 5000] {
        let mut array = Array::new(&txn, tag::BLOOM_PAGE, first_len);
        let mut model = vec![0u8; first_len as usize];
        for step in 0..400 {
            if step % 50 == 0 {
                model.resize(model.len() + next(state, 700) as usize + 1, 0);
                array.grow(&mut txn, DB, model.len() as u64).unwrap();
            }
            if step % 97 == 0 {
                txn.commit().unwrap();
                txn.begin(UnixMs(1)).unwrap();
            }
            let at = next(state, model.len() as u64) as usize;
            let len = (next(state, 1200) as usize).min(model.len() - at);
            // Zeros too, which take no space.
            let value = [0, 0xA5][next(state, 2) as usize];
            model[at..at + len].fill(value);
            array
                .write(&mut txn, DB, at as u64, &vec![value; len])
                .unwrap();
            let from = next(state, model.len() as u64) as usize;
            let to = from + (next(state, 2000) as usize).min(model.len() - from);
            let mut read = vec![0xFF; to - from];
            array.read(&txn, DB, from as u64, &mut read).unwrap();
            assert_eq!(read, model[from..to], "{first_len} {step}");
            let range = from as u64..to as u64;
            let collected = array.collect(&mut *txn, DB, range).unwrap();
            assert_eq!(collected, model[from..to], "{first_len} {step}");
            let meta = Meta {
                rows: array.collection().is_some(),
                ..Meta::new(ValueType::Bloom)
            };
            let body = array.encode(b"head");
            let head = |r: &mut Reader<'_>| r.take(4).map(<[u8]>::to_vec);
            let (head, again) = Array::decode(tag::BLOOM_PAGE, meta, &body, head).unwrap();
            assert_eq!(head, b"head");
            assert_eq!(again.len(), model.len() as u64);
            array = again;
        }
        let whole = array.len();
        array
            .write(&mut txn, DB, 0, &vec![0; whole as usize])
            .unwrap();
        if let Some(id) = array.collection() {
            let (from, to) = (
                page_key(tag::BLOOM_PAGE, id, 0),
                page_key(tag::BLOOM_PAGE, id, 99),
            );
            let mut rows = txn
                .scan(DB, &from, &to, crate::storage::Direction::Forward)
                .unwrap();
            assert!(rows.next().unwrap().is_none(), "zeros have rows");
        }
    }
}

#[test]
fn bits_that_are_set_together_are_those_set_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
    let mut txn = Txn::new(engine);
    txn.begin(UnixMs(1)).unwrap();
    let state = &mut 11;
    for len in [8, 1024, 1025, 5000] {
        let mut array = Array::new(&txn, tag::BLOOM_PAGE, len);
        let mut model = vec![0u8; len as usize];
        for step in 0..300 {
            if step % 97 == 0 {
                txn.commit().unwrap();
                txn.begin(UnixMs(1)).unwrap();
            }
            let count = next(state, 20);
            let bits: Vec<(u64, u8)> = (0..count)
                .map(|_| (next(state, len), 1 << next(state, 8)))
                .collect();
            let mut expected = false;
            for (at, mask) in &bits {
                let byte = &mut model[*at as usize];
                expected |= *byte & mask == 0;
                *byte |= mask;
            }
            let bits = bits.into_iter();
            assert_eq!(array.set_bits(&mut txn, DB, bits).unwrap(), expected);
            let at = next(state, len);
            let piece = array.piece_at(at);
            assert!(piece.contains(&at));
            let look = |bytes: &[u8]| bytes.get((at - piece.start) as usize).copied();
            let byte = array.look_at_piece(&txn, DB, piece.start, look).unwrap();
            assert_eq!(byte.unwrap_or(0), model[at as usize], "{len} {step}");
        }
        assert_eq!(array.collect(&mut *txn, DB, 0..len).unwrap(), model);
    }
}
