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

/// Runs what a writer does; no other thread is one meanwhile.
///
/// Loom looks for the point before which a store could have come only at the last access
/// before it. A writer loads before it stores, and where loom takes its own load for that
/// access it tries one order alone. So a writer's loads are hidden from it: only writers
/// store, one at a time, and loom still reports a load that another store races with.
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
        // Loom does not take the creation for a step of its own.
        plain.0.with_mut(|_| ());
        plain
    }

    pub fn read(&self) {
        self.0.with(|_| ());
    }
}
