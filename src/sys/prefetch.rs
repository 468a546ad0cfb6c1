//! Hints for the processor: which memory will be needed soon. Memory is slow, but
//! answers many questions at once, and a hint is not waited for.

// Other processors get no hints, and neither does Miri.
#![cfg_attr(
    any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(unused)
)]

use std::arch::asm;

/// Bytes that the processor fetches at a time.
pub const LINE: usize = 64;

/// Has the line of the processor's cache fetched where a value begins.
#[inline]
pub fn to_read<T>(value: &T) {
    line_to_read(std::ptr::from_ref(value).cast());
}

/// Has the line at an address fetched; there need not be anything.
#[inline]
#[allow(unsafe_code)]
pub fn line_to_read(at: *const u8) {
    // SAFETY: a hint changes no memory and no register, and cannot fail.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        asm!("prefetcht0 [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
}

/// Has all lines fetched that a value stands on, which will be changed: no other
/// processor keeps them.
#[inline]
pub fn to_write<T>(value: &T) {
    let first = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(LINE) {
        line_to_write(first.wrapping_add(offset));
    }
}

/// Has the line at an address fetched, to change it; there need not be anything.
#[inline]
#[allow(unsafe_code)]
pub fn line_to_write(at: *const u8) {
    // SAFETY: as above. Processors that lack the instruction take it for another hint.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        asm!("prefetchw [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        asm!("prfm pstl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
}
