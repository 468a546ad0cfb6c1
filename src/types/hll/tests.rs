//! Both encodings compared with plain ranks; invalid values.

use super::*;

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
}

fn ranks<B: AsRef<[u8]>>(hll: &Hll<B>) -> Ranks {
    let mut ranks = [0; REGISTERS];
    hll.raise(&mut ranks).unwrap();
    ranks
}

#[test]
fn selftest_passes() {
    assert_eq!(selftest::run(), Ok(()));
}

#[test]
fn places_never_change() {
    // Stored registers depend on these numbers, which come from Redis 7.0.
    for (element, expected) in [
        (&b""[..], (5_938, 2)),
        (b"a", (12_711, 2)),
        (b"1234567", (10_327, 3)),
        (b"12345678", (10_579, 3)),
        (b"123456789", (9_293, 2)),
        (b"a much longer element of a set", (6_877, 5)),
    ] {
        assert_eq!(place(element), expected, "{element:?}");
    }
}

#[test]
fn encodings_agree_with_plain_ranks() {
    let mut random = Random::new();
    for _ in 0..30 {
        let mut plain = [0; REGISTERS];
        let mut sparse = Hll::new();
        let mut dense = Hll::new();
        dense.make_dense().unwrap();
        let (registers, highest) = (1 + random.below(600), 1 + random.below(51));
        for _ in 0..random.below(1_500) {
            let index = random.below(registers) as usize;
            let rank = 1 + random.below(highest) as u8;
            let raised = plain[index] < rank;
            plain[index] = plain[index].max(rank);
            assert_eq!(sparse.set(index, rank, 3_000).unwrap(), raised);
            assert_eq!(dense.set(index, rank, 3_000).unwrap(), raised);
        }
        assert!(ranks(&sparse) == plain);
        assert!(ranks(&dense) == plain);
        assert_eq!(sparse.estimate().unwrap(), dense.estimate().unwrap());
        if sparse.encoding() == Encoding::Sparse {
            assert!(sparse.bytes.len() <= 3_000);
        }
        sparse.make_dense().unwrap();
        assert!(sparse.body() == dense.body());
        let again = Hll::open(sparse.into_bytes()).unwrap();
        assert!(ranks(&again) == plain);
    }
}

#[test]
fn a_high_rank_or_much_to_say_needs_the_dense_form() {
    let mut hll = Hll::new();
    hll.set(5, 32, 3_000).unwrap();
    assert_eq!(hll.encoding(), Encoding::Sparse);
    hll.set(6, 33, 3_000).unwrap();
    assert_eq!(hll.encoding(), Encoding::Dense);
    let mut hll = Hll::new();
    for index in 0..7 {
        hll.set(index * 100, 1, 30).unwrap();
    }
    assert_eq!(hll.encoding(), Encoding::Dense);
    assert_eq!(hll.estimate().unwrap(), 7);
}

#[test]
fn neighbours_are_joined() {
    let mut hll = Hll::new();
    for index in [10, 12, 11, 13, 14] {
        hll.set(index, 3, 3_000).unwrap();
    }
    let mut runs = Vec::new();
    sparse::for_each_run(hll.body(), |run| runs.push((run.rank, run.len))).unwrap();
    assert_eq!(runs, [(0, 10), (3, 4), (3, 1), (0, REGISTERS - 15)]);
}

#[test]
fn what_is_no_hyperloglog() {
    let good = Hll::new().into_bytes();
    let mut dense = Hll::new();
    dense.make_dense().unwrap();
    let mut long = dense.into_bytes();
    assert!(Hll::open(&long).is_ok());
    long.push(0);
    let mut encoding = good.clone();
    encoding[4] = 2;
    for bytes in [
        &b""[..],
        b"HYLL",
        &good[..15],
        b"hyll000000000000",
        &long,
        &encoding,
    ] {
        assert!(matches!(Hll::open(bytes), Err(HllError::NotHll)));
    }
}

/// Every operation on these registers either works or reports them as corrupt.
fn try_all(body: &[u8]) -> bool {
    let mut bytes = Hll::new().into_bytes();
    bytes.truncate(HEADER_LEN);
    bytes[HEADER_LEN - 1] = STALE;
    bytes.extend_from_slice(body);
    let mut hll = Hll::open(bytes).unwrap();
    let corrupt = matches!(hll.count(), Err(HllError::Corrupt));
    let mut ranks = [0; REGISTERS];
    assert_eq!(hll.raise(&mut ranks).is_err(), corrupt);
    assert_eq!(hll.clone().make_dense().is_err(), corrupt);
    for index in [0, 1, 77, REGISTERS / 2, REGISTERS - 1] {
        for rank in [1, 32, 33, 51] {
            let _ = hll.clone().set(index, rank, 3_000);
            let _ = hll.set(index, rank, 100);
        }
    }
    corrupt
}

#[test]
fn corrupt_registers_are_found() {
    for body in [
        &b""[..],
        b"\x7f",
        b"\x7f\xff\x00",
        b"\x7f\xfe",
        b"\xff",
        b"\x7f\xff\x7f\xff",
        b"\x7f\xfe\xff",
        b"\x7f\xff\x7f",
        &b"\x7f\xff".repeat(140_000),
        &b"\x3f".repeat(40_000_000 / 64),
    ] {
        assert!(try_all(body), "{:?}", &body[..body.len().min(8)]);
    }
    assert!(!try_all(b"\x7f\xff"));
    assert!(!try_all(b"\x7f\xfe\xfc"));
    let mut random = Random::new();
    for _ in 0..3_000 {
        let mut body = vec![0x7f, 0xf0, 0x8c, 0x88, 0x0b];
        for _ in 0..random.below(12) {
            let at = random.below(body.len() as u64) as usize;
            match random.below(3) {
                0 => body[at] = random.below(256) as u8,
                1 => body.insert(at, random.below(256) as u8),
                _ => body.truncate(at.max(1)),
            }
        }
        try_all(&body);
    }
}
