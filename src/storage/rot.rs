//! Tables with blocks that cannot be read, and compactions.
//!
//! A compaction that meets such a block fails, and RocksDB takes no write from then on. So
//! the error is kept from it, and the table is *put aside*: it stays where it is, its
//! blocks that can be read are read as ever and the others answer with the error, but no
//! compaction takes it, nor writes to where it stands. What would have to be merged with it
//! stays in the level above; tables of the first level are merged with each other then.
//!
//! That lasts until the table is gone: with a full sync, with FLUSHDB, or by
//! `kedis-server --repair`. After a start the next compaction that meets it puts it aside
//! again. `listener.cc` is what RocksDB calls.

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

/// What a string of RocksDB's options says for its compactions to be looked after.
pub fn option() -> String {
    static KNOWN: Once = Once::new();
    // SAFETY: the name is a C string; `Once` sees to it that it is said once.
    #[allow(unsafe_code)]
    KNOWN.call_once(|| unsafe { kedis_rot_register(LISTENER.as_ptr()) });
    format!("listeners={}", LISTENER.to_string_lossy())
}

/// Tables of all databases of this process that were put aside.
///
/// A compaction that somebody has asked for waits for one that has a table it needs: for a
/// table that is put aside, for ever. So it holds this shared, and tables are put aside
/// only while there is none.
static ASIDE: RwLock<BTreeSet<PathBuf>, { Lock::TablesAside as u8 }> = RwLock::new(BTreeSet::new());

/// The tables that are put aside and still there.
pub fn tables_aside() -> Vec<PathBuf> {
    let aside = ASIDE.read().clone();
    aside.into_iter().filter(|table| table.exists()).collect()
}

/// The right to ask for a compaction in a database; `None` while a table is put aside.
pub fn compaction_of(
    dir: &Path,
) -> Option<RwLockReadGuard<'static, BTreeSet<PathBuf>, { Lock::TablesAside as u8 }>> {
    let aside = ASIDE.read();
    let is_there = |table: &PathBuf| table.parent() == Some(dir) && table.exists();
    (!aside.iter().any(is_there)).then_some(aside)
}

/// What `listener.cc` calls.
#[allow(unsafe_code)]
mod calls {
    use super::*;

    /// # Safety
    /// The text has this length.
    unsafe fn text<'a>(text: *const u8, len: usize) -> std::borrow::Cow<'a, str> {
        // SAFETY: by the contract.
        String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text, len) })
    }

    /// Whether a compaction's error is about a table that can be put aside.
    ///
    /// # Safety
    /// The text has this length.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_rot_is_of_table(message: *const u8, len: usize) -> bool {
        // SAFETY: by the contract.
        let file = file_named_in(&unsafe { text(message, len) });
        file.is_some_and(|file| number(&file).is_some())
    }

    /// A compaction has failed with this error.
    ///
    /// # Safety
    /// The text has this length, and the database is open.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_rot_met(db: *mut c_void, message: *const u8, len: usize) {
        // SAFETY: by the contract.
        let message = unsafe { text(message, len) };
        corruptions().note_text(&message);
        let Some(file) = file_named_in(&message) else {
            return;
        };
        // It will fail again, and then this comes up again.
        let (Some(mut aside), Some(table)) = (ASIDE.try_write(), number(&file)) else {
            return;
        };
        // SAFETY: by the contract.
        if unsafe { kedis_rot_put_aside(db, table) } {
            log::error!(
                "{} is put aside, no compaction takes it any more; writes go on, and what \
                 cannot be read of it is answered with an error: see \"Damaged files\" in the \
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
