//! The generator of `math.random`: the same sequence for a seed on every machine, as
//! specified by POSIX for `lrand48`.

use std::cell::Cell;

/// Largest number of the generator.
pub const MAX: i32 = 0x7FFF_FFFF;

/// The state of the generator: 48 bits.
#[derive(Debug)]
pub struct Random(Cell<u64>);

impl Random {
    /// A generator with the standard's initial state.
    pub fn new() -> Random {
        Random(Cell::new(0x1234_ABCD_330E))
    }

    /// Sets the seed.
    pub fn seed(&self, seed: i32) {
        self.0.set(u64::from(seed as u32) << 16 | 0x330E);
    }

    /// The next number, 0 to [`MAX`].
    pub fn next(&self) -> i32 {
        let state = self.0.get().wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB);
        self.0.set(state & 0xFFFF_FFFF_FFFF);
        (self.0.get() >> 17) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_the_standard() {
        let random = Random::new();
        random.seed(0);
        let first: Vec<i32> = (0..3).map(|_| random.next()).collect();
        assert_eq!(first, [366_850_414, 1_610_402_240, 206_956_554]);
    }
}
