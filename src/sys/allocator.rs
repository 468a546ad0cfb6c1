//! The allocator of the server: jemalloc, and the system itself for long buffers.
//!
//! A buffer that grows step by step, as that of a long reply does, is copied by jemalloc at each step.
//! For a moment it takes its memory twice, and all pages of the copy are new. A mapping of the system
//! grows without either: `mremap` moves its pages. jemalloc returns allocations of this length to the
//! system as soon as they are freed, too (`oversize_threshold`), so nothing is lost by that.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use tikv_jemallocator::Jemalloc;

/// Allocations of at least so many bytes are mappings: jemalloc's `oversize_threshold`.
const LONG: usize = 8 << 20;
/// Mappings begin at multiples of this, or of more.
const PAGE: usize = 4 << 10;

/// Bytes of all mappings.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of long buffers: the figures of jemalloc are without them.
pub fn mapped_bytes() -> u64 {
    MAPPED.load(Ordering::Relaxed) as u64
}

/// The allocator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocator;

/// Whether an allocation is a mapping.
fn is_long(layout: Layout) -> bool {
    cfg!(target_os = "linux") && layout.size() >= LONG && layout.align() <= PAGE
}

/// A new mapping, of zeros. Null if there is no memory.
#[allow(unsafe_code)]
fn map(bytes: usize) -> *mut u8 {
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, at an address that the system chooses.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    MAPPED.fetch_add(bytes, Ordering::Relaxed);
    mapped.cast()
}

/// Ends a mapping.
///
/// # Safety
/// It is one of [`map`] or [`remap`] with so many bytes, and nothing refers to it.
#[allow(unsafe_code)]
unsafe fn unmap(mapped: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { libc::munmap(mapped.cast(), bytes) };
    MAPPED.fetch_sub(bytes, Ordering::Relaxed);
}

/// Changes the length of a mapping, which may move. Null, and no change, if there is no memory.
///
/// # Safety
/// It is one of [`map`] or [`remap`] with so many bytes, and no reference to it is used afterwards.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
unsafe fn remap(mapped: *mut u8, bytes: usize, new_bytes: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    let moved = unsafe { libc::mremap(mapped.cast(), bytes, new_bytes, libc::MREMAP_MAYMOVE) };
    if moved == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    MAPPED.fetch_add(new_bytes, Ordering::Relaxed);
    MAPPED.fetch_sub(bytes, Ordering::Relaxed);
    moved.cast()
}

/// No allocation is a mapping here.
///
/// # Safety
/// It has no requirements.
#[cfg(not(target_os = "linux"))]
#[allow(unsafe_code)]
unsafe fn remap(_mapped: *mut u8, _bytes: usize, _new_bytes: usize) -> *mut u8 {
    ptr::null_mut()
}

// SAFETY: an allocation comes from `map` or from jemalloc, as its layout says, and goes back to the
// same one, since each call is given that layout. Both return memory of the size and alignment of the
// layout, or null, and nobody else has it. A change of size keeps the bytes that both sizes have.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_long(layout) {
            true => map(layout.size()),
            // SAFETY: as the caller promises.
            false => unsafe { Jemalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_long(layout) {
            true => map(layout.size()),
            // SAFETY: as the caller promises.
            false => unsafe { Jemalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        match is_long(layout) {
            // SAFETY: an allocation with this layout is a mapping.
            true => unsafe { unmap(ptr, layout.size()) },
            // SAFETY: as the caller promises.
            false => unsafe { Jemalloc.dealloc(ptr, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the new size is a valid one with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (is_long(layout), is_long(new)) {
            // SAFETY: an allocation with this layout is a mapping.
            (true, true) => unsafe { remap(ptr, layout.size(), new_size) },
            // SAFETY: as the caller promises.
            (false, false) => unsafe { Jemalloc.realloc(ptr, layout, new_size) },
            // SAFETY: both allocations have the bytes that are copied, and are distinct.
            _ => unsafe {
                let moved = self.alloc(new);
                if !moved.is_null() {
                    ptr::copy_nonoverlapping(ptr, moved, layout.size().min(new_size));
                    self.dealloc(ptr, layout);
                }
                moved
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// Mappings are counted for the whole process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// The bytes of an allocation that grows and shrinks over the bound stay the same.
    #[test]
    #[allow(unsafe_code)]
    fn bytes_stay_whatever_the_size_becomes() {
        const STEP: usize = 1 << 16;
        let _one_at_a_time = ONE_AT_A_TIME.lock();
        let layout = |size| Layout::from_size_align(size, 1).unwrap();
        let sizes = [
            LONG / 2,
            LONG - 1,
            LONG,
            LONG + 1,
            4 * LONG,
            2 * LONG,
            LONG - 1,
            STEP,
        ];
        let mut size = STEP;
        let mut known = STEP;
        // SAFETY: each call has the layout of the one before, and only bytes of the allocation are
        // accessed.
        unsafe {
            let mut bytes = Allocator.alloc_zeroed(layout(size));
            assert!((0..size).all(|at| *bytes.add(at) == 0));
            for at in (0..size).step_by(STEP) {
                *bytes.add(at) = (at / STEP) as u8;
            }
            for new in sizes {
                let before = mapped_bytes();
                bytes = Allocator.realloc(bytes, layout(size), new);
                assert!(!bytes.is_null());
                if cfg!(target_os = "linux") {
                    let counted = |size| if size >= LONG { size as u64 } else { 0 };
                    assert_eq!(mapped_bytes() + counted(size), before + counted(new));
                }
                known = known.min(new);
                for at in (0..known).step_by(STEP) {
                    assert_eq!(*bytes.add(at), (at / STEP) as u8, "{size} to {new}");
                }
                size = new;
                for at in (0..size).step_by(STEP) {
                    *bytes.add(at) = (at / STEP) as u8;
                }
                known = size;
            }
            Allocator.dealloc(bytes, layout(size));
        }
    }

    #[test]
    #[allow(unsafe_code)]
    fn what_cannot_be_mapped_is_null() {
        let _one_at_a_time = ONE_AT_A_TIME.lock();
        let layout = |size| Layout::from_size_align(size, 1).unwrap();
        let most = isize::MAX as usize;
        // SAFETY: as above; what fails leaves the allocation as it was.
        unsafe {
            assert!(Allocator.alloc(layout(most)).is_null());
            let bytes = Allocator.alloc_zeroed(layout(LONG));
            *bytes = 7;
            assert!(Allocator.realloc(bytes, layout(LONG), most).is_null());
            assert_eq!((*bytes, *bytes.add(LONG - 1)), (7, 0));
            Allocator.dealloc(bytes, layout(LONG));
        }
    }
}
