//! Memory in huge pages, for data that is accessed at random.
//!
//! An access to a random address waits for memory twice: for the data, and, on a TLB miss, for the
//! translation of the address. The TLB has some thousand entries. With pages of 4 KiB these cover
//! less than the processor's caches, with pages of 2 MiB more than all memory.
//!
//! The memory comes from an arena of jemalloc. The arena returns nothing to the system until it is
//! [told to](give_back), because a huge page of which a part was returned is split into small
//! pages. These must stay small from then on: by default the system would rebuild the huge page in
//! the background (khugepaged), with memory that is not used and that jemalloc does not count.
//!
//! On a system without huge pages this is normal memory, except that it is returned in the same
//! way.

use allocator_api2::alloc::{AllocError, Allocator};
use allocator_api2::vec::Vec;
use std::alloc::Layout;
use std::ffi::{c_int, c_uint, c_void};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use tikv_jemalloc_ctl::{Access, AsName, raw};
use tikv_jemalloc_sys::{
    MALLOCX_ALIGN, MALLOCX_ARENA, MALLOCX_TCACHE_NONE, extent_hooks_t, mallocx, nallocx, sdallocx,
};

/// Size of a huge page in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// A vector in huge pages.
#[derive(Debug)]
pub struct HugeVec<T>(Vec<T, HugePages>);

impl<T> HugeVec<T> {
    /// An empty vector with capacity for so many items.
    pub fn with_capacity(capacity: usize) -> HugeVec<T> {
        HugeVec(Vec::with_capacity_in(capacity, HugePages))
    }
}

impl<T: Copy> HugeVec<T> {
    /// Appends all items with one copy; the method of [`Vec`] copies them one by one.
    #[inline]
    #[allow(unsafe_code)]
    pub fn extend_from_slice(&mut self, items: &[T]) {
        self.reserve(items.len());
        let len = self.len();
        // SAFETY: there is room after the items so far, to which no other reference exists.
        unsafe {
            let end = self.as_mut_ptr().add(len);
            ptr::copy_nonoverlapping(items.as_ptr(), end, items.len());
            self.set_len(len + items.len());
        }
    }
}

impl<T> Default for HugeVec<T> {
    fn default() -> Self {
        HugeVec(Vec::new_in(HugePages))
    }
}

impl<T> Deref for HugeVec<T> {
    type Target = Vec<T, HugePages>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> DerefMut for HugeVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<T> FromIterator<T> for HugeVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut all = HugeVec::default();
        all.extend(items);
        all
    }
}

/// The allocator of memory in huge pages.
#[derive(Debug, Clone, Copy)]
pub struct HugePages;

/// The bytes that an allocation of so many takes: its size class.
#[allow(unsafe_code)]
pub fn usable(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        // SAFETY: the size is not 0; nothing is allocated.
        _ => unsafe { nallocx(bytes, 0) },
    }
}

/// Unused bytes that the arena keeps, as of jemalloc's last epoch.
pub fn unused_bytes() -> u64 {
    let Some(arena) = arena() else {
        return 0;
    };
    let name = format!("stats.arenas.{arena}.pdirty\0");
    let figures = [name.as_bytes(), b"arenas.page\0"];
    let read = |name: &[u8]| Access::<usize>::read(name.name()).unwrap_or(0) as u64;
    figures.map(read).iter().product()
}

/// Returns unused memory to the system.
pub fn give_back() {
    if let Some(arena) = arena() {
        let name = format!("arena.{arena}.dirty_decay_ms\0");
        // At once; after that nothing is returned any more.
        for decay_ms in [0, -1] {
            let set = Access::<isize>::write(name.as_bytes().name(), decay_ms);
            set.unwrap_or_else(|error| log::warn!("unused huge pages are not returned: {error}"));
        }
    }
}

/// The number of the arena, or `None` if it cannot be created.
pub fn arena() -> Option<c_uint> {
    static ARENA: OnceLock<Option<c_uint>> = OnceLock::new();
    *ARENA.get_or_init(|| {
        let opened = open_arena();
        let failed = opened.inspect_err(|error| log::warn!("no memory in huge pages: {error}"));
        failed.ok()
    })
}

/// The flags for jemalloc: arena and alignment.
#[inline]
fn flags(layout: Layout) -> c_int {
    let arena = arena().map_or(0, |arena| {
        MALLOCX_ARENA(arena as usize) | MALLOCX_TCACHE_NONE
    });
    arena | MALLOCX_ALIGN(layout.align())
}

/// jemalloc's own hooks, which map and return memory.
static DEFAULT: AtomicPtr<extent_hooks_t> = AtomicPtr::new(ptr::null_mut());

#[allow(unsafe_code)]
fn open_arena() -> tikv_jemalloc_ctl::Result<c_uint> {
    // SAFETY: the types are those that jemalloc documents for these names. The hooks are leaked, so
    // they stay valid.
    unsafe {
        let arena: c_uint = raw::read(b"arenas.create\0")?;
        let name = format!("arena.{arena}.extent_hooks\0");
        let default: *mut extent_hooks_t = raw::read(name.as_bytes())?;
        DEFAULT.store(default, Ordering::Release);
        let hooks = Box::leak(Box::new(extent_hooks_t {
            alloc: Some(map),
            purge_lazy: None,
            purge_forced: Some(purge),
            ..*default
        }));
        raw::write(name.as_bytes(), ptr::from_mut(hooks))?;
        let name = format!("arena.{arena}.dirty_decay_ms\0");
        raw::write::<isize>(name.as_bytes(), -1)?;
        Ok(arena)
    }
}

/// Maps memory with jemalloc's own hook, and requests huge pages for it.
#[allow(unsafe_code)]
unsafe extern "C" fn map(
    _: *mut extent_hooks_t,
    at: *mut c_void,
    size: usize,
    alignment: usize,
    zero: *mut bool,
    commit: *mut bool,
    arena: c_uint,
) -> *mut c_void {
    let default = DEFAULT.load(Ordering::Acquire);
    let alignment = match at.is_null() {
        true => alignment.max(HUGE_PAGE),
        false => alignment,
    };
    // SAFETY: jemalloc calls this with the arguments of its own hook, which only gets a stricter
    // alignment; a hint on memory that is ours changes nothing in it.
    unsafe {
        let Some(alloc) = (*default).alloc else {
            return ptr::null_mut();
        };
        let memory = alloc(default, at, size, alignment, zero, commit, arena);
        if !memory.is_null() {
            libc::madvise(memory, size, libc::MADV_HUGEPAGE);
        }
        memory
    }
}

/// Returns a part of the memory with jemalloc's own hook, and makes the system keep the huge pages
/// at its ends split.
#[allow(unsafe_code)]
unsafe extern "C" fn purge(
    _: *mut extent_hooks_t,
    at: *mut c_void,
    size: usize,
    offset: usize,
    length: usize,
    arena: c_uint,
) -> bool {
    let default = DEFAULT.load(Ordering::Acquire);
    let from = at.addr() + offset;
    for edge in [from, from + length] {
        if !edge.is_multiple_of(HUGE_PAGE) {
            let page = edge - edge % HUGE_PAGE;
            // SAFETY: a hint, also on memory that is not ours.
            unsafe {
                libc::madvise(at.with_addr(page), HUGE_PAGE, libc::MADV_NOHUGEPAGE);
            }
        }
    }
    // SAFETY: jemalloc calls this with the arguments of its own hook.
    unsafe {
        match (*default).purge_forced {
            Some(purge) => purge(default, at, size, offset, length, arena),
            None => true,
        }
    }
}

// SAFETY: what jemalloc returns has at least that size and alignment, is not shared until it is
// freed, and does not move.
#[allow(unsafe_code)]
unsafe impl Allocator for HugePages {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let memory = match layout.size() {
            0 => ptr::without_provenance_mut(layout.align()),
            // SAFETY: the size is not 0, the alignment a power of two.
            size => unsafe { mallocx(size, flags(layout)) },
        };
        let memory = NonNull::new(memory.cast()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: it is from `allocate`, with the same layout.
            unsafe { sdallocx(memory.as_ptr().cast(), layout.size(), flags(layout)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn vectors_grow_and_shrink_where_huge_pages_are_asked_for() {
        let mut bytes: HugeVec<u8> = (0..100).collect();
        let words: HugeVec<u64> = (0..10_000).collect();
        for byte in 100..200 {
            bytes.push(byte);
        }
        assert!(bytes.iter().copied().eq(0..200));
        assert!(words.iter().copied().eq(0..10_000));
        bytes.truncate(1);
        bytes.shrink_to_fit();
        assert_eq!(bytes[..], [0]);
        drop((bytes, words));
        if fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
            // More than other tests may have returned.
            let large: HugeVec<u8> = HugeVec::with_capacity(64 << 20);
            let mut pages = (0..32).map(|n| large.as_ptr().wrapping_add(n * HUGE_PAGE));
            assert!(pages.any(advised));
        }
    }

    #[test]
    fn what_is_given_back_in_part_is_left_alone() {
        const BYTES: usize = 100 << 10;
        let pieces = (0..200u8).map(|n| (0..BYTES).map(|_| n).collect::<HugeVec<u8>>());
        let mut pieces: Vec<_> = pieces.collect();
        let mut nth = 0;
        pieces.retain(|_| {
            nth += 1;
            nth % 2 == 0
        });
        give_back();
        for (piece, n) in pieces.iter().zip((1..200).step_by(2)) {
            assert!(piece.iter().all(|byte| *byte == n));
            assert!(!advised(piece.as_ptr()), "{n}");
        }
    }

    #[test]
    fn slices_are_appended_whole() {
        let mut items = HugeVec::default();
        for len in [0, 1, 3, 1000, 0, 7] {
            let before = items.len();
            items.extend_from_slice(&vec![len as u16; len]);
            assert_eq!(items.len(), before + len);
            assert!(items[before..].iter().all(|item| *item == len as u16));
        }
    }

    #[derive(Clone, Default)]
    #[repr(align(128))]
    struct Aligned([u8; 3]);

    #[test]
    fn alignment_is_kept() {
        let empty = HugeVec::<Aligned>::default();
        assert!(empty.as_ptr().is_aligned());
        for len in [1, 2, 3, 1000] {
            let items: HugeVec<Aligned> = (0..len).map(|i| Aligned([i as u8; 3])).collect();
            assert!(items.as_ptr().is_aligned());
            assert!(
                items
                    .iter()
                    .zip(0..len)
                    .all(|(item, i)| item.0 == [i as u8; 3])
            );
        }
    }

    #[test]
    fn threads_share_the_arena() {
        let grown = |seed: usize| {
            let mut all = Vec::new();
            for i in 0..2_000 {
                let len = (i * seed) % 700;
                all.push((0..len as u32).collect::<HugeVec<u32>>());
                if i % 3 == 0 {
                    all.swap_remove(i * seed % all.len());
                }
            }
            all.iter()
                .all(|items| items.iter().copied().eq(0..items.len() as u32))
        };
        let fine = std::thread::scope(|scope| {
            let threads = [7, 11, 13, 17].map(|seed| scope.spawn(move || grown(seed)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(fine, [true; 4]);
    }

    /// Whether huge pages were requested at this address.
    fn advised<T>(at: *const T) -> bool {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((from, to)) = range.and_then(|(a, b)| Some((number(a)?, number(b)?))) {
                inside = (from..to).contains(&at.addr());
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split_whitespace().any(|flag| flag == "hg");
            }
        }
        panic!("no mapping at {at:?}");
    }
}
