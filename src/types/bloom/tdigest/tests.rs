//! Quantiles of known distributions.

use super::*;
use crate::base::time::UnixMs;
use crate::storage::{Engine, StorageConfig};

const DB: DbIndex = DbIndex(0);

fn store() -> (Txn, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
    let mut txn = Txn::new(engine);
    txn.begin(UnixMs(1)).unwrap();
    (txn, dir)
}

#[test]
fn quantiles_are_close() {
    let (mut txn, _dir) = store();
    let mut digest = TDigest::new(&txn, 100.0).unwrap();
    let count = 50_000u64;
    for n in 0..count {
        // A permutation of 0..count.
        let value = (n * 7919 % count) as f64;
        digest.add(&mut txn, DB, value, 1).unwrap().unwrap();
        if n % 1000 == 0 {
            digest.save(&mut txn, DB, b"k").unwrap();
            digest = TDigest::load(&mut txn, DB, b"k").unwrap().unwrap();
        }
    }
    digest.save(&mut txn, DB, b"k").unwrap();
    assert_eq!(digest.weight(), count as i64);
    assert_eq!(
        (digest.least(), digest.greatest()),
        (Some(0.0), Some(count as f64 - 1.0))
    );
    let all = digest.centroids(&mut txn, DB).unwrap();
    assert!(all.list.len() < 200, "{}", all.list.len());
    for quantile in [0.0, 0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999, 1.0] {
        let exact = quantile * count as f64;
        let error = (all.quantile(quantile) - exact).abs() / count as f64;
        let allowed = 0.0005 + 0.02 * quantile * (1.0 - quantile);
        assert!(error < allowed, "{quantile}: {error}");
        let error = (all.fraction_up_to(exact) - quantile).abs();
        assert!(error < allowed, "{quantile}: {error}");
    }
    let mean = all.trimmed_mean(0.1, 0.9);
    assert!((mean - 25_000.0).abs() < 100.0, "{mean}");
    digest.reset(&mut txn, DB).unwrap();
    digest.save(&mut txn, DB, b"k").unwrap();
    let empty = TDigest::load(&mut txn, DB, b"k").unwrap().unwrap();
    assert_eq!((empty.weight(), empty.least()), (0, None));
    assert!(
        empty
            .centroids(&mut txn, DB)
            .unwrap()
            .quantile(0.5)
            .is_nan()
    );
}

#[test]
fn weights_do_not_overflow() {
    let (mut txn, _dir) = store();
    let mut digest = TDigest::new(&txn, 10.0).unwrap();
    assert_eq!(digest.add(&mut txn, DB, 1.0, i64::MAX).unwrap(), Ok(()));
    assert_eq!(digest.add(&mut txn, DB, 1.0, 1).unwrap(), Err(Overflow));
    for compression in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        assert!(TDigest::new(&txn, compression).is_none(), "{compression}");
    }
}
