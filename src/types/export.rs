//! All keys as an RDB file, as of one point in time.
//!
//! The keys come from a snapshot, so writes can continue. Only one element of a value is
//! in memory at a time, besides those that [`crate::rdb::encode`] buffers.

use super::definition::{Output, Stored};
use super::source::EachRow;
use super::table::definition;
use super::{OpError, OpResult};
use crate::base::time::UnixMs;
use crate::encoding::{CollectionId, MetaView, ValueType, keys, tag};
use crate::rdb::file::FileWriter;
use crate::storage::full_sync::snapshot::Snapshot;
use crate::storage::{DbIndex, StorageError};
use crate::types::source::Source;
use std::io::Write;
use std::ops::{ControlFlow, Range};

impl Source for &Snapshot<'_> {
    fn each_row(
        &mut self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        each: EachRow<'_>,
    ) -> OpResult<ControlFlow<()>> {
        self.scan(db, from, to, each)
    }

    fn base(
        &mut self,
        db: DbIndex,
        id: CollectionId,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> OpResult<u64> {
        Ok(self.read_base(db, id, range, out)?)
    }
}

/// The size of an exported file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exported {
    /// Keys.
    pub keys: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// How to write a file.
#[derive(Debug, Clone, Copy)]
pub struct ExportOptions<'a> {
    /// Whether strings are compressed.
    pub compress: bool,
    /// The time, in Unix ms; keys that have expired by then are left out.
    pub now_ms: UnixMs,
    /// The aux fields of the file: names and texts.
    pub about: &'a [(&'a str, String)],
    /// Whether function libraries are written.
    pub functions: bool,
    /// Whether keys are written.
    pub keys: bool,
    /// Whether times of members of sets are written; Redis refuses a file that has some.
    pub member_times: bool,
}

/// Writes the file; returns the sink.
pub fn export<W: Write>(
    snapshot: &Snapshot<'_>,
    sink: W,
    options: ExportOptions<'_>,
) -> OpResult<(W, Exported)> {
    let has_times = options.keys && has_timed_elements(snapshot)?;
    let mut writer = FileWriter::new(sink, options.compress, has_times);
    if !options.member_times {
        writer.encoder.leave_member_times_out();
    }
    for (name, text) in options.about {
        writer.aux(name.as_bytes(), text.as_bytes());
    }
    if options.functions {
        for (_, code) in &snapshot.libraries {
            writer.function(code);
        }
    }
    let mut exported = Exported::default();
    let ((from, to), layout) = (keys::METAS, snapshot.layout());
    for (db, counts) in snapshot.dbs() {
        if counts.keys == 0 || !options.keys {
            continue;
        }
        writer.select_db(db.0.into(), counts.keys, counts.expires);
        snapshot
            .scan(db, &from, &to, |row_key, row| -> OpResult<_> {
                let key = layout.user_key(row_key)?;
                let MetaView { meta, body } = MetaView::decode(row)?;
                if meta.is_expired(options.now_ms) {
                    return Ok(ControlFlow::Continue(()));
                }
                if meta.expire_ms.is_some() {
                    writer.expires(meta.expire_ms);
                }
                let (encoder, buffer, mut outlet) = writer.parts();
                let mut source = snapshot;
                let stored = Stored { meta, body };
                let output = Output {
                    key: Some(key),
                    encoder,
                    out: buffer,
                    flush: &mut |out| outlet.flush(out).map_err(io_error),
                };
                definition(meta.kind).write(&mut source, db, stored, output)?;
                exported.keys += 1;
                Ok(ControlFlow::Continue(()))
            })
            .map(drop)?;
    }
    // The end of the file: EOF opcode and checksum.
    exported.bytes = writer.len() + 9;
    let sink = writer.end().map_err(io_error)?;
    Ok((sink, exported))
}

/// Whether fields of a hash have times: a file with such fields has a version of its own.
fn has_timed_elements(snapshot: &Snapshot<'_>) -> OpResult<bool> {
    for (db, _) in snapshot.dbs() {
        let found = snapshot.scan(db, &[tag::DUE], &[tag::DUE + 1], |_, row| -> OpResult<_> {
            Ok(match row.first() == Some(&(ValueType::Hash as u8)) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        if found.is_break() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn io_error(error: std::io::Error) -> OpError {
    OpError::Storage(StorageError::Io(error))
}
