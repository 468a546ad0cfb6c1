//! Hints for the processor: which memory will be needed soon. Memory is slow, but
//! answers many questions at once, and a hint is not waited for.

use std::arch::asm;

/// Has the line of the processor's cache fetched where a value begins.
#[inline]
#[allow(unsafe_code)]
pub fn to_read<T>(value: &T) {
    let at = std::ptr::from_ref(value);
    // SAFETY: a hint changes no memory and no register, and cannot fail.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("prefetcht0 [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
}

/// The same where the value will be changed: no other processor keeps the line.
#[inline]
#[allow(unsafe_code)]
pub fn to_write<T>(value: &T) {
    let at = std::ptr::from_ref(value);
    // SAFETY: as above. Processors that lack the instruction take it for another hint.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("prefetchw [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("prfm pstl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
}
