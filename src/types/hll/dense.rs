//! The dense encoding of a HyperLogLog's registers: six bits each, the first one in the
//! lowest bits of the first byte.

use super::REGISTERS;
use super::estimate::Histogram;

/// Bytes of all registers.
pub const LEN: usize = REGISTERS * 6 / 8;

/// Calls `each` with the index and rank of every register, in order.
pub fn for_each(body: &[u8], mut each: impl FnMut(usize, u8)) {
    // Three bytes hold four registers.
    for (group, bytes) in body.chunks_exact(3).enumerate() {
        let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        for nth in 0..4 {
            each(group * 4 + nth, (bits >> (6 * nth)) as u8 & 0x3f);
        }
    }
}

/// The number of registers of each rank.
pub fn histogram(body: &[u8]) -> Histogram {
    // Pairs of registers are counted first: half as many increments, which seldom depend
    // on the previous one. No count can wrap, since there are 8192 pairs.
    let mut pairs = [0u16; 1 << 12];
    for bytes in body.chunks_exact(3) {
        let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        let (first, second) = (bits as usize & 0xfff, (bits >> 12) as usize & 0xfff);
        pairs[first] = pairs[first].wrapping_add(1);
        pairs[second] = pairs[second].wrapping_add(1);
    }
    let mut histogram = Histogram::default();
    for (high, row) in (0..).zip(pairs.chunks_exact(64)) {
        for (low, count) in (0..).zip(row).filter(|(_, count)| **count > 0) {
            histogram.add(low, u32::from(*count));
            histogram.add(high, u32::from(*count));
        }
    }
    histogram
}

/// Raises a register to `rank` if it is lower; returns whether it was.
pub fn set(body: &mut [u8], index: usize, rank: u8) -> bool {
    let group = index / 4 * 3;
    let Some([a, b, c]) = body.get_mut(group..group + 3) else {
        return false;
    };
    let shift = 6 * (index % 4);
    let bits = u32::from_le_bytes([*a, *b, *c, 0]);
    if (bits >> shift) as u8 & 0x3f >= rank {
        return false;
    }
    let bits = (bits & !(0x3f << shift)) | u32::from(rank & 0x3f) << shift;
    [*a, *b, *c, _] = bits.to_le_bytes();
    true
}
