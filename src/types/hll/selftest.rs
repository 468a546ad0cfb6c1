//! PFSELFTEST: registers keep the ranks that were set, both encodings give the same
//! count, and the error of counts is as small as in theory.

use super::{Hll, HllResult, RANK_MAX, REGISTERS, dense};

/// Number of elements in the test of counts.
const ELEMENTS: u64 = 100_000;

/// Relative standard error of a count.
fn standard_error() -> f64 {
    1.04 / (REGISTERS as f64).sqrt()
}

/// Runs all tests; the error describes the first failure.
pub fn run() -> Result<(), String> {
    registers()?;
    match counts() {
        Ok(result) => result,
        Err(error) => Err(format!("a good HyperLogLog is refused: {error}")),
    }
}

/// Sets ranks that differ from register to register.
fn registers() -> Result<(), String> {
    let mut body = [0; dense::LEN];
    let expected = |index: usize| (index * 37 % usize::from(RANK_MAX)) as u8;
    for index in 0..REGISTERS {
        dense::set(
            &mut body,
            index * 5 % REGISTERS,
            expected(index * 5 % REGISTERS),
        );
    }
    let mut wrong = None;
    dense::for_each(&body, |index, rank| {
        if rank != expected(index) {
            wrong = Some(index);
        }
    });
    match wrong {
        None => Ok(()),
        Some(index) => Err(format!("register {index} does not hold what it was told")),
    }
}

fn counts() -> HllResult<Result<(), String>> {
    let mut sparse = Hll::new();
    let mut dense = Hll::new();
    dense.make_dense()?;
    let mut checkpoint = 1;
    for n in 1..=ELEMENTS {
        // The odd factor spreads the elements.
        let element = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        sparse.add(&element, 3000)?;
        dense.add(&element, 3000)?;
        if n < checkpoint {
            continue;
        }
        checkpoint *= 10;
        let (count, other) = (dense.estimate()?, sparse.estimate()?);
        if count != other {
            return Ok(Err(format!("dense counts {count}, sparse {other} of {n}")));
        }
        let allowed = (n as f64 * standard_error() * 6.0).ceil();
        if count.abs_diff(n) as f64 > allowed {
            return Ok(Err(format!("{count} counted of {n}")));
        }
    }
    Ok(Ok(()))
}
