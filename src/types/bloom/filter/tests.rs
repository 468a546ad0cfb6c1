//! Sizes, rates of false answers, and headers that no RedisBloom has written.

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

fn plan(capacity: u64, error_rate: f64) -> Plan {
    Plan {
        capacity,
        error_rate,
        expansion: 2,
        scales: true,
    }
}

/// As BF.DEBUG of RedisBloom says.
#[test]
fn sizes_are_those_of_redisbloom() {
    for (capacity, error_rate, bytes, hashes) in SIZES {
        let link = Link::new(*capacity, *error_rate).unwrap();
        assert_eq!(
            (link.bytes, link.hashes),
            (*bytes, *hashes),
            "{capacity} {error_rate}"
        );
        assert!(link.is_sound());
    }
    assert!(Link::new(0, 0.01).is_none());
    assert!(Link::new(100, 0.0).is_none());
    assert!(
        Link::new(1 << 40, 0.01).is_none(),
        "longer than an array may be"
    );
}

#[test]
fn false_answers_stay_below_the_rate() {
    let (mut txn, _dir) = store();
    for scales in [true, false] {
        let mut filter = Filter::new(
            &txn,
            Plan {
                scales,
                ..plan(4000, 0.01)
            },
        )
        .unwrap();
        let count = if scales { 20_000 } else { 4000 };
        for n in 0..count {
            let item = format!("item:{n}");
            let added = filter.add(&mut txn, DB, item.as_bytes()).unwrap();
            assert!(matches!(added, Added::New | Added::Present));
            assert!(filter.contains(&txn, DB, item.as_bytes()).unwrap());
        }
        let mut wrong = 0;
        for n in 0..20_000 {
            let item = format!("other:{n}");
            wrong += u32::from(filter.contains(&txn, DB, item.as_bytes()).unwrap());
        }
        // The expected number is 200, with a deviation of 14.
        assert!(wrong < 260, "{wrong} of 20,000");
        assert_eq!(filter.links.len(), if scales { 3 } else { 1 });
    }
}

#[test]
fn a_large_filter_costs_nothing_until_it_is_written() {
    let (mut txn, _dir) = store();
    let mut filter = Filter::new(&txn, plan(1 << 30, 1e-9)).unwrap();
    assert!(filter.array.len() > 5 << 30);
    filter.save(&mut txn, DB, b"k").unwrap();
    assert!(txn.pending_bytes() < 1000);
    let hashes = filter.links[0].hashes as usize;
    filter.add(&mut txn, DB, b"item").unwrap();
    assert!(txn.pending_bytes() < hashes * 700, "a page for each bit");
}

fn header(edit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let (txn, _dir) = store();
    let mut header = Filter::new(&txn, plan(100, 0.01)).unwrap().header();
    edit(&mut header);
    header
}

#[test]
fn hostile_headers_are_refused() {
    let (txn, _dir) = store();
    assert!(Filter::from_header(&txn, &header(|_| {})).is_some());
    type Edit = fn(&mut Vec<u8>);
    let edits: &[(&str, Edit)] = &[
        ("empty", |h| h.clear()),
        ("cut", |h| h.truncate(72)),
        ("longer", |h| h.push(0)),
        ("no links", |h| {
            h.truncate(20);
            h[8..12].fill(0);
        }),
        ("more links than follow", |h| h[8..12].fill(0xFF)),
        ("unknown options", |h| h[12] = 0x80),
        ("another sum of items", |h| h[0] = 1),
        ("bytes without end", |h| h[20..28].fill(0xFF)),
        ("more bits than bytes", |h| h[28..36].fill(0xFF)),
        ("no bits", |h| h[20..36].fill(0)),
        ("no error rate", |h| h[44..52].fill(0)),
        ("an error rate that is no number", |h| h[44..52].fill(0xFF)),
        ("other hashes", |h| h[60] ^= 1),
        ("bits per item for 2^31 hashes", |h| {
            h[52..60].copy_from_slice(&3.0e9f64.to_le_bytes());
            h[60..64].copy_from_slice(&((LN2 * 3.0e9).ceil() as u32).to_le_bytes());
        }),
        ("more bits in use than there are", |h| h[72] = 63),
        ("a shift beyond 63", |h| h[72] = 64),
    ];
    for (name, edit) in edits {
        assert!(Filter::from_header(&txn, &header(edit)).is_none(), "{name}");
    }
}

#[test]
fn pieces_outside_of_the_bits_are_refused() {
    let (mut txn, _dir) = store();
    let mut filter = Filter::new(&txn, plan(100, 0.01)).unwrap();
    let len = filter.array.len() as i64;
    let zeros = vec![0; len as usize + 1];
    for (cursor, bytes, error) in [
        (0, 0, ChunkError::Bad),
        (-1, 1, ChunkError::Bad),
        (i64::MIN, 1, ChunkError::Bad),
        (5, 6, ChunkError::Bad),
        (5, 5, ChunkError::NoLink),
        (i64::MAX, 1, ChunkError::NoLink),
        (len + 2, 1, ChunkError::NoLink),
        (len + 2, len + 1, ChunkError::TooBig),
    ] {
        let refused = filter.load_chunk(&mut txn, DB, cursor, &zeros[..bytes as usize]);
        assert_eq!(refused.unwrap(), Err(error), "{cursor} {bytes}");
    }
    let whole = filter.load_chunk(&mut txn, DB, len + 1, &zeros[..len as usize]);
    assert_eq!(whole.unwrap(), Ok(()));
    for cursor in [i64::MIN, -1, 0, len + 1, i64::MAX] {
        assert_eq!(
            filter.chunk(&mut txn, DB, cursor).unwrap(),
            None,
            "{cursor}"
        );
    }
}

use super::chunks::ChunkError;

/// Capacity, error rate, bytes and hashes of filters that RedisBloom has made with NONSCALING.
const SIZES: &[(u64, f64, u64, u32)] = &[
    (100, 0.01, 120, 7),
    (1, 0.25, 8, 3),
    (1000, 0.001, 1800, 10),
    (12345, 0.05, 9624, 5),
    (100, 0.000000000001, 720, 40),
    (1000000, 0.0001, 2396272, 14),
    (7, 1e-300, 1264, 997),
    (1, 0.25, 8, 3),
];

/// The filters of a chain that stand in one row are looked at together.
#[test]
fn chains_of_short_filters_answer_as_one_filter_after_the_other() {
    let (mut txn, _dir) = store();
    for (capacity, error_rate) in [(1, 0.0001), (3, 0.05), (40, 0.01), (700, 0.001)] {
        let plan = Plan {
            expansion: 1,
            ..plan(capacity, error_rate)
        };
        let mut filter = Filter::new(&txn, plan).unwrap();
        let one_by_one = |filter: &Filter, txn: &Txn, item: &[u8]| {
            let hashes = filter.hashes(item);
            let mut links = filter.youngest_first();
            links.any(|(link, start)| {
                let places = link.places(hashes);
                filter.has_all(txn, DB, places, start).unwrap()
            })
        };
        for n in 0..4 * capacity.max(20) {
            let item = format!("item:{n}");
            let expected = match one_by_one(&filter, &txn, item.as_bytes()) {
                true => Added::Present,
                false => Added::New,
            };
            assert_eq!(filter.add(&mut txn, DB, item.as_bytes()).unwrap(), expected);
            if n % 50 == 0 {
                txn.commit().unwrap();
                txn.begin(UnixMs(1)).unwrap();
            }
            for item in [item, format!("item:{}", n / 2), format!("other:{n}")] {
                assert_eq!(
                    filter.contains(&txn, DB, item.as_bytes()).unwrap(),
                    one_by_one(&filter, &txn, item.as_bytes()),
                    "{item}"
                );
            }
        }
        assert!(filter.links().len() >= 4);
    }
}
