//! `src/storage/memtable/sync.rs` with the atomics of loom.

#![allow(unsafe_code)]

pub use loom::hint::spin_loop;
pub use loom::sync::atomic::fence;
pub use loom::thread::yield_now;
use std::cell::Cell;
use std::sync::atomic::Ordering;

loom::thread_local! {
    static WRITES: Cell<bool> = Cell::new(false);
}

/// Runs `write` as the writer; there is only one at a time.
///
/// Where loom finds a store, it considers another order only with respect to the last access
/// before it. A writer loads before it stores, and if that load is the last access, loom tries
/// one order alone. So the writer's loads are hidden from loom. That is sound: only writers
/// store, one at a time, and loom still reports a load that races with a store.
pub fn as_writer(write: impl FnOnce()) {
    WRITES.with(|writes| writes.set(true));
    write();
    WRITES.with(|writes| writes.set(false));
}

fn is_writer() -> bool {
    WRITES.with(Cell::get)
}

macro_rules! atomics {
    ($($name:ident $(<$t:ident>)?: $value:ty;)*) => {
        $(
            pub struct $name$(<$t>)?(loom::sync::atomic::$name$(<$t>)?);

            impl$(<$t>)? $name$(<$t>)? {
                pub fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    match is_writer() {
                        // SAFETY: loom reports it if another thread stores.
                        true => unsafe { self.0.unsync_load() },
                        false => self.0.load(order),
                    }
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, order);
                }
            }
        )*
    };
}

atomics! {
    AtomicPtr<T>: *mut T;
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
}

/// Loom reports a read that does not see the write.
pub struct Plain(loom::cell::UnsafeCell<()>);

// SAFETY: loom sees to it.
unsafe impl Sync for Plain {}

impl Plain {
    pub fn written() -> Self {
        let plain = Plain(loom::cell::UnsafeCell::new(()));
        // Loom does not count the creation as a write.
        plain.0.with_mut(|_| ());
        plain
    }

    pub fn read(&self) {
        self.0.with(|_| ());
    }
}
