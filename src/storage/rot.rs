//! Tables with unreadable blocks, and compactions.
//!
//! A compaction that meets such a block fails, and RocksDB accepts no write from then on. So the
//! error is hidden from RocksDB, and the table is *put aside*: it stays where it is, its readable
//! blocks are read as before and the others return the error, but no compaction uses it, nor writes
//! to its level and range. What would have to be merged with it stays in the level above; tables of
//! the first level are merged with each other then.
//!
//! That lasts until the table is deleted: by a full sync, FLUSHDB, or `kedis-server --repair`.
//! After a restart, the next compaction that meets it puts it aside again. RocksDB calls
//! `listener.cc`.

use crate::storage::corruption::{corruptions, file_named_in};
use crate::sys::lock_order::{Lock, RwLock, RwLockReadGuard};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::Once;

const LISTENER: &CStr = c"kedis.Listener";

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_rot_register(name: *const c_char);
    fn kedis_rot_put_aside(db: *mut c_void, table: u64) -> bool;
}

/// The name of the listener of compactions in a RocksDB option string.
pub(super) fn listener() -> String {
    static KNOWN: Once = Once::new();
    // SAFETY: the name is a C string; `Once` ensures a single call.
    #[allow(unsafe_code)]
    KNOWN.call_once(|| unsafe { kedis_rot_register(LISTENER.as_ptr()) });
    LISTENER.to_string_lossy().into_owned()
}

/// Tables of all databases of this process that were put aside.
///
/// A requested compaction waits for one that has a table it needs: for a table that is put aside,
/// it would wait for ever. So it holds this lock shared, and tables are put aside only while no
/// requested compaction runs.
static ASIDE: RwLock<BTreeSet<PathBuf>, { Lock::TablesAside as u8 }> = RwLock::new(BTreeSet::new());

/// The tables that are put aside and still exist.
pub fn tables_aside() -> Vec<PathBuf> {
    let aside = ASIDE.read().clone();
    aside.into_iter().filter(|table| table.exists()).collect()
}

/// The right to request a compaction in a database; `None` while a table is put aside.
pub(super) fn compaction_of(
    dir: &Path,
) -> Option<RwLockReadGuard<'static, BTreeSet<PathBuf>, { Lock::TablesAside as u8 }>> {
    let aside = ASIDE.read();
    let is_there = |table: &PathBuf| table.parent() == Some(dir) && table.exists();
    (!aside.iter().any(is_there)).then_some(aside)
}

/// The functions that `listener.cc` calls.
#[allow(unsafe_code)]
mod calls {
    use super::*;

    /// # Safety
    /// `text` points to `len` bytes.
    unsafe fn text<'a>(text: *const u8, len: usize) -> std::borrow::Cow<'a, str> {
        // SAFETY: by the contract.
        String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text, len) })
    }

    /// Whether a compaction's error is about a table that can be put aside.
    ///
    /// # Safety
    /// `message` points to `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_rot_is_of_table(message: *const u8, len: usize) -> bool {
        // SAFETY: by the contract.
        let file = file_named_in(&unsafe { text(message, len) });
        file.is_some_and(|file| number(&file).is_some())
    }

    /// Handles a compaction that has failed with this error.
    ///
    /// # Safety
    /// `message` points to `len` bytes, and the database is open.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_rot_met(db: *mut c_void, message: *const u8, len: usize) {
        // SAFETY: by the contract.
        let message = unsafe { text(message, len) };
        corruptions().note_text(&message);
        let Some(file) = file_named_in(&message) else {
            return;
        };
        // If the lock is taken now, the compaction fails again later and calls this again.
        let (Some(mut aside), Some(table)) = (ASIDE.try_write(), number(&file)) else {
            return;
        };
        // SAFETY: by the contract.
        if unsafe { kedis_rot_put_aside(db, table) } {
            log::error!(
                "{} is put aside, no compaction uses it any more; writes continue, and reads of \
                 its unreadable blocks fail with an error: see \"Damaged files\" in the \
                 manual",
                file.display()
            );
            aside.insert(file);
        }
    }

    /// The number of a table.
    fn number(file: &Path) -> Option<u64> {
        let name = file.file_name()?.to_str()?;
        name.strip_suffix(".sst")?.parse().ok()
    }
}
