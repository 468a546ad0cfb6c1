//! Prefetch hints for the processor. Memory is slow, but serves many requests at once, and a hint
//! does not wait.

// Other processors get no hints, and neither does Miri.
#![cfg_attr(
    any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(unused)
)]

use std::arch::asm;

/// The size of a cache line, in bytes.
pub const LINE: usize = 64;

/// Prefetches the first cache line of a value.
#[inline]
pub fn to_read<T>(value: &T) {
    line_to_read(std::ptr::from_ref(value).cast());
}

/// Prefetches the cache line at an address, which need not be mapped.
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

/// Prefetches all cache lines of a value that will be changed, for exclusive access.
#[inline]
pub fn to_write<T>(value: &T) {
    let first = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(LINE) {
        line_to_write(first.wrapping_add(offset));
    }
}

/// Prefetches the cache line at an address for a change; it need not be mapped.
#[inline]
#[allow(unsafe_code)]
pub fn line_to_write(at: *const u8) {
    // SAFETY: as above. Processors without the instruction treat it as another hint.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        asm!("prefetchw [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        asm!("prfm pstl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
}
