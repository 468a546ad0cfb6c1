//! The rows of a column family, read as if some of its tables were not there.
//!
//! RocksDB merges the rows of all tables. To be at any key, it must know the next key of each table:
//! if the first block of a table cannot be read, nothing before it can be either. Without the table,
//! all before its first key is readable, and is the same.
//!
//! The Rust bindings have no such option, so this calls RocksDB's C interface.

use super::Result;
use crate::storage::StorageError;
use crate::storage::corruption::{corruptions, file_named_in};
use crate::storage::engine::{ColumnFamily, Db};
use librocksdb_sys as ffi;
use rocksdb::{AsColumnFamilyRef, AsRawPtr};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::path::Path;

/// The number of a table: part of its name.
type Table = u64;

/// The tables of a column family.
pub(super) struct Tables<'a> {
    db: &'a Db,
    cf: &'a ColumnFamily,
    /// Those in which an unreadable block was met, with their first keys.
    damaged: BTreeMap<Table, Vec<u8>>,
    last_error: String,
}

impl<'a> Tables<'a> {
    /// None is known to be damaged.
    pub(super) fn new(db: &'a Db, cf: &'a ColumnFamily) -> Tables<'a> {
        Tables {
            db,
            cf,
            damaged: BTreeMap::new(),
            last_error: String::new(),
        }
    }

    /// What RocksDB said of the unreadable block that was met last.
    pub(super) fn last_error(&self) -> &str {
        &self.last_error
    }

    /// Rows from `place` on, without the damaged tables that begin after it; `None` if they cannot be
    /// read from there.
    pub(super) fn rows_from(&mut self, place: &[u8]) -> Result<Option<Readable<'a>>> {
        loop {
            let begin_after = |first: &Vec<u8>| first.as_slice() > place;
            let later = self.damaged.iter().filter(|(_, first)| begin_after(first));
            let until = later.clone().map(|(_, first)| first).min().cloned();
            let later: BTreeSet<Table> = later.map(|(table, _)| *table).collect();
            let mut rows = Rows::without(self.db, self.cf, later);
            rows.seek(place);
            let Some(message) = rows.unreadable()? else {
                return Ok(Some(Readable { rows, until }));
            };
            match self.note(&message)? {
                Some(first) if begin_after(&first) => {}
                _ => return Ok(None),
            }
        }
    }

    /// Notes the table that an error names. Returns its first key if it was not known.
    fn note(&mut self, message: &str) -> Result<Option<Vec<u8>>> {
        message.clone_into(&mut self.last_error);
        let number = file_named_in(message).and_then(|file| number_of(&file));
        if number.is_some_and(|number| self.damaged.contains_key(&number)) {
            return Ok(None);
        }
        corruptions().note_text(message);
        let files = self.db.live_files()?;
        let is_it = |name: &str| number.is_some() && number_of(Path::new(name)) == number;
        let table = files.into_iter().find(|live| is_it(&live.name));
        let first = table.and_then(|table| table.start_key);
        if let Some((number, first)) = number.zip(first.clone()) {
            self.damaged.insert(number, first);
        }
        Ok(first)
    }
}

/// Rows from a place on.
pub(super) struct Readable<'a> {
    rows: Rows<'a>,
    /// The first key of the tables that are left out.
    until: Option<Vec<u8>>,
}

impl Readable<'_> {
    /// The present row.
    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.rows.item()?;
        let is_before = self.until.as_deref().is_none_or(|until| key < until);
        is_before.then_some((key, value))
    }

    /// Goes to the next row.
    pub(super) fn next(&mut self) {
        self.rows.next();
    }

    /// Whether the rows did not end at an unreadable block. Its table is noted.
    pub(super) fn is_sound(&self, tables: &mut Tables<'_>) -> Result<bool> {
        let message = self.rows.unreadable()?;
        if let Some(message) = &message {
            tables.note(message)?;
        }
        Ok(message.is_none())
    }

    /// Where rows that are not read here begin: the first key of the tables that are left out.
    pub(super) fn until(&self) -> Option<&[u8]> {
        self.until.as_deref()
    }

    /// The first key from the place on that is there: the present one, or that of a table that is
    /// left out.
    pub(super) fn first(&self) -> Option<Vec<u8>> {
        let key = self.item().map(|(key, _)| key);
        key.or(self.until()).map(<[u8]>::to_vec)
    }
}

fn number_of(file: &Path) -> Option<Table> {
    file.file_stem()?.to_str()?.parse().ok()
}

/// An iterator over the rows of a column family.
struct Rows<'a> {
    iterator: *mut ffi::rocksdb_iterator_t,
    options: *mut ffi::rocksdb_readoptions_t,
    db: PhantomData<&'a Db>,
}

#[allow(unsafe_code)]
impl<'a> Rows<'a> {
    /// All rows but those of these tables.
    fn without(db: &'a Db, cf: &ColumnFamily, tables: BTreeSet<Table>) -> Rows<'a> {
        let tables = Box::into_raw(Box::new(tables));
        // SAFETY: the database outlives the iterator, and the iterator's options do as well: `drop`
        // frees them after it. The options own the set, and free it with `free_tables`.
        unsafe {
            let options = ffi::rocksdb_readoptions_create();
            ffi::rocksdb_readoptions_set_total_order_seek(options, 1);
            ffi::rocksdb_readoptions_set_fill_cache(options, 0);
            ffi::rocksdb_readoptions_set_table_filter(
                options,
                tables.cast(),
                Some(free_tables),
                Some(is_read),
            );
            let iterator = ffi::rocksdb_create_iterator_cf(db.as_raw_ptr(), options, cf.inner());
            Rows {
                iterator,
                options,
                db: PhantomData,
            }
        }
    }

    fn seek(&mut self, place: &[u8]) {
        // SAFETY: the iterator is valid until `drop`; `place` is only read during the call.
        unsafe { ffi::rocksdb_iter_seek(self.iterator, place.as_ptr().cast(), place.len()) };
    }

    fn item(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: of an iterator at a row, key and value stay as they are until it moves, for which
        // it is borrowed mutably.
        unsafe {
            if ffi::rocksdb_iter_valid(self.iterator) == 0 {
                return None;
            }
            let (mut key_len, mut value_len) = (0, 0);
            let key = ffi::rocksdb_iter_key(self.iterator, &raw mut key_len);
            let value = ffi::rocksdb_iter_value(self.iterator, &raw mut value_len);
            Some((
                std::slice::from_raw_parts(key.cast(), key_len),
                std::slice::from_raw_parts(value.cast(), value_len),
            ))
        }
    }

    fn next(&mut self) {
        if self.item().is_some() {
            // SAFETY: the iterator is valid and at a row.
            unsafe { ffi::rocksdb_iter_next(self.iterator) };
        }
    }

    /// What RocksDB says of an unreadable block that it has met.
    fn unreadable(&self) -> Result<Option<String>> {
        let mut message: *mut c_char = std::ptr::null_mut();
        // SAFETY: the iterator is valid; a message is a C string that the caller frees.
        let message = unsafe {
            ffi::rocksdb_iter_get_error(self.iterator, &raw mut message);
            if message.is_null() {
                return Ok(None);
            }
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            ffi::rocksdb_free(message.cast());
            text
        };
        if !message.starts_with("Corruption: ") {
            return Err(StorageError::Io(std::io::Error::other(message)));
        }
        Ok(Some(message))
    }
}

#[allow(unsafe_code)]
impl Drop for Rows<'_> {
    fn drop(&mut self) {
        // SAFETY: both were created in `without`, and are used nowhere else.
        unsafe {
            ffi::rocksdb_iter_destroy(self.iterator);
            ffi::rocksdb_readoptions_destroy(self.options);
        }
    }
}

/// Frees the set of tables of [`Rows::without`].
///
/// # Safety
/// `tables` comes from there, and is not used any more.
#[allow(unsafe_code)]
unsafe extern "C" fn free_tables(tables: *mut c_void) {
    // SAFETY: by the contract.
    drop(unsafe { Box::from_raw(tables.cast::<BTreeSet<Table>>()) });
}

/// Whether RocksDB reads a table.
///
/// # Safety
/// `tables` comes from [`Rows::without`], and RocksDB calls this with the properties of a table.
#[allow(unsafe_code)]
unsafe extern "C" fn is_read(
    tables: *mut c_void,
    table: *const ffi::rocksdb_table_properties_t,
) -> u8 {
    // SAFETY: by the contract.
    unsafe {
        let number = ffi::rocksdb_table_properties_orig_file_number(table);
        u8::from(!(*tables.cast::<BTreeSet<Table>>()).contains(&number))
    }
}
