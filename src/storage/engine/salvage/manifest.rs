//! Takes tables out of the manifest of a database that is not open: those that are missing, and those
//! that RocksDB cannot open. All others stay where they are, with their levels, so that what newer
//! tables delete or overwrite stays deleted and overwritten.
//!
//! RocksDB's C interface has no function for that; `manifest.cc` calls its classes.

use crate::storage::engine::whole::{RESTORE, keep_table, set_unmended};
use crate::storage::engine::{BINLOG, DEFAULT};
use crate::storage::{Result, StorageError};
use rocksdb::{AsRawPtr, Options};
use std::ffi::{CStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A table that was taken out.
#[derive(Debug)]
pub(in crate::storage) struct LostTable {
    /// The name of its column family.
    pub family: String,
    /// The name of its file.
    pub name: String,
    /// Its first key, and its last one.
    pub keys: (Vec<u8>, Vec<u8>),
    /// Why it cannot be opened.
    pub why: String,
}

impl LostTable {
    /// What is lost with it, in words, as long as it is not known which DB has its column family.
    fn told(&self) -> String {
        let (first, last) = &self.keys;
        format!(
            "what the table {} of the column family {} has from the row {} to the row {} ({})",
            self.name,
            self.family,
            first.escape_ascii(),
            last.escape_ascii(),
            self.why
        )
    }

    /// Whether it was a table of the binlog.
    pub(in crate::storage) fn is_of_binlog(&self) -> bool {
        self.family == BINLOG
    }
}

#[repr(C)]
struct Bytes {
    data: *const u8,
    len: usize,
}

/// `Table` in manifest.cc.
#[repr(C)]
struct RawTable {
    family: Bytes,
    number: u64,
    first: Bytes,
    last: Bytes,
    why: Bytes,
}

type MayTakeOut = unsafe extern "C" fn(*mut c_void, *const RawTable, usize) -> bool;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_manifest_take_out(
        options: *const c_void,
        dir: *const u8,
        dir_len: usize,
        may_take_out: MayTakeOut,
        context: *mut c_void,
    ) -> *mut c_char;
}

/// What became of a manifest.
pub(super) enum Taken {
    /// These tables were taken out. All others can be opened.
    Out(Vec<LostTable>),
    /// It cannot be read. The text says why.
    Unreadable(String),
}

/// Takes the tables out of the manifest that `CURRENT` names, and notes that the database must be
/// mended. `options`: those of any column family. Files of these tables are kept in the directory of lost
/// ones.
///
/// # Errors
/// A file or a directory cannot be read or written, or a table of the system rows cannot be opened:
/// without them no DB is known. Then the manifest stays as it is.
pub(super) fn take_out(options: &Options, dir: &Path) -> Result<Taken> {
    let mut taking = Taking {
        dir,
        tables: Vec::new(),
        result: Ok(()),
    };
    let path = dir.as_os_str().as_bytes();
    // SAFETY: the pointers are valid during the call, and `may_take_out` gets the pointer to
    // `taking`, which nothing else uses meanwhile.
    #[allow(unsafe_code)]
    let error = unsafe {
        kedis_manifest_take_out(
            options.as_raw_ptr().cast(),
            path.as_ptr(),
            path.len(),
            may_take_out,
            (&raw mut taking).cast(),
        )
    };
    taking.result?;
    if error.is_null() {
        return Ok(Taken::Out(taking.tables));
    }
    let error = text_of(error);
    match error.starts_with("Corruption: ") {
        true => Ok(Taken::Unreadable(error)),
        false => Err(StorageError::Io(std::io::Error::other(error))),
    }
}

/// What [`may_take_out`] needs, and what comes of it.
struct Taking<'a> {
    dir: &'a Path,
    tables: Vec<LostTable>,
    result: Result<()>,
}

impl Taking<'_> {
    fn take(&mut self, tables: Vec<LostTable>) -> Result<()> {
        if let Some(table) = tables.iter().find(|table| table.family == DEFAULT) {
            return Err(StorageError::Damaged(format!(
                "{} cannot be used: the table {}, with the rows that say where each DB is, cannot be \
                 opened: {}. {RESTORE}",
                self.dir.display(),
                table.name,
                table.why
            )));
        }
        let losses: Vec<String> = tables.iter().map(LostTable::told).collect();
        set_unmended(self.dir, &losses)?;
        for loss in losses {
            log::warn!("the database continues without {loss}");
        }
        for table in &tables {
            let path = self.dir.join(&table.name);
            if path.try_exists()? {
                keep_table(self.dir, &path)?;
            }
        }
        self.tables = tables;
        Ok(())
    }
}

/// Whether these tables are taken out of the manifest.
///
/// # Safety
/// `context` is a [`Taking`] that nothing else uses, and `tables` points to `count` tables.
#[allow(unsafe_code)]
unsafe extern "C" fn may_take_out(
    context: *mut c_void,
    tables: *const RawTable,
    count: usize,
) -> bool {
    // SAFETY: by the contract.
    let (taking, tables) = unsafe {
        (
            &mut *context.cast::<Taking<'_>>(),
            std::slice::from_raw_parts(tables, count),
        )
    };
    let tables = tables.iter().map(|table| LostTable {
        family: String::from_utf8_lossy(table.family.get()).into_owned(),
        name: format!("{:06}.sst", table.number),
        keys: (table.first.get().to_vec(), table.last.get().to_vec()),
        why: String::from_utf8_lossy(table.why.get()).into_owned(),
    });
    taking.result = taking.take(tables.collect());
    taking.result.is_ok()
}

impl Bytes {
    #[allow(unsafe_code)]
    fn get(&self) -> &[u8] {
        // SAFETY: manifest.cc makes it from a `Slice`, which lives until the call is over.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// The text of an error, which is freed.
fn text_of(error: *mut c_char) -> String {
    // SAFETY: it is a C string from `strdup`, and is not used after this.
    #[allow(unsafe_code)]
    unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        libc::free(error.cast());
        text
    }
}
