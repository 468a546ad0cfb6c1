//! Two coordinates in one number, bit by bit.

/// The bits of `even` at the even positions, those of `odd` at the odd ones.
pub(super) fn interleave(even: u32, odd: u32) -> u64 {
    spread(even) | spread(odd) << 1
}

/// The inverse of [`interleave`].
pub(super) fn deinterleave(bits: u64) -> (u32, u32) {
    (gather(bits), gather(bits >> 1))
}

const LANES: [(u32, u64); 5] = [
    (16, 0x0000_ffff_0000_ffff),
    (8, 0x00ff_00ff_00ff_00ff),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
];

/// Moves bit `n` to bit `2n`.
fn spread(bits: u32) -> u64 {
    let halve = |bits: u64, (shift, mask): (u32, u64)| (bits | bits << shift) & mask;
    LANES.into_iter().fold(u64::from(bits), halve)
}

/// Moves bit `2n` to bit `n`.
fn gather(bits: u64) -> u32 {
    let join = |bits: u64, (shift, mask): (u32, u64)| (bits & mask) | (bits & mask) >> shift;
    let joined = LANES.into_iter().rev().fold(bits, join);
    joined as u32
}
