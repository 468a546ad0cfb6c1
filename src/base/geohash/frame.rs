//! A rectangle of the finest grid. Of the numbers that a cell of a coarser grid holds, most may lie
//! outside of the area that it helps to cover: [`Frame::first_from`] tells where the next ones begin
//! that do not.

use super::bits::interleave;

/// Bits of numbers: one more for each coordinate than positions have, since the upper edges of the map
/// have numbers of their own.
const BITS: u32 = 2 * 27;
/// The bits of rows.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Rows and columns, those at both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Number of the first row and the first column.
    min: u64,
    /// Number of the last row and the last column.
    max: u64,
}

impl Frame {
    /// The highest row and column that a frame can have.
    pub(super) const LAST: u32 = (1 << (BITS / 2)) - 1;

    pub(super) fn new(rows: (u32, u32), columns: (u32, u32)) -> Frame {
        Frame {
            min: interleave(rows.0, columns.0),
            max: interleave(rows.1, columns.1),
        }
    }

    /// Whether a number lies in it.
    pub fn contains(&self, number: u64) -> bool {
        let within = |mask: u64| (self.min & mask..=self.max & mask).contains(&(number & mask));
        within(EVEN) && within(!EVEN)
    }

    /// The first number from this one on that lies in it.
    pub fn first_from(&self, number: u64) -> Option<u64> {
        if self.contains(number) {
            return Some(number);
        }
        if number >> BITS > 0 {
            return None;
        }
        let Frame { mut min, mut max } = *self;
        let mut found = None;
        // The quarters of the grid, of quarters, and so on: what is left of the frame lies in one of
        // them, or in two or four.
        for bit in (0..BITS).rev() {
            let is_set = |number: u64| number >> bit & 1 == 1;
            let below = (1u64 << bit) - 1;
            // The lower bits of the same coordinate.
            let same = below & if bit % 2 == 0 { EVEN } else { !EVEN };
            match (is_set(number), is_set(min), is_set(max)) {
                (false, false, true) => {
                    // The number lies in the lower half. If that has nothing, the upper half begins.
                    found = Some((min & !same) | 1 << bit);
                    max = (max & !(1 << bit)) | same;
                }
                (false, true, _) => return Some(min),
                (true, _, false) => return found,
                (true, false, true) => min = (min & !same) | 1 << bit,
                (false, false, false) | (true, true, true) => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_number_is_that_of_a_search_one_by_one() {
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..2000 {
            let size = 1 << rng.u32(0..5);
            let mut range = || {
                let (a, b) = (rng.u32(0..size), rng.u32(0..size));
                (a.min(b), a.max(b))
            };
            let (rows, columns) = (range(), range());
            let frame = Frame::new(rows, columns);
            let end = u64::from(size * size);
            let mut next = None;
            for number in (0..end + 3).rev() {
                if frame.contains(number) {
                    next = Some(number);
                }
                assert_eq!(
                    frame.first_from(number),
                    next,
                    "seed {seed}: {rows:?} {columns:?} {number}"
                );
            }
        }
    }

    #[test]
    fn a_frame_holds_its_rows_and_columns() {
        let frame = Frame::new((3, 5), (7, Frame::LAST));
        for (row, column, is_inside) in [
            (3, 7, true),
            (5, Frame::LAST, true),
            (2, 7, false),
            (6, 7, false),
            (4, 6, false),
            (4, 1 << 26, true),
        ] {
            assert_eq!(frame.contains(interleave(row, column)), is_inside);
        }
    }
}
