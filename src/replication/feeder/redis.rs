//! The Redis dialect, for Redis replicas, tools that move data, and tools that want a
//! file: the data set as an RDB file, then the bytes of the binlog's rows one after the
//! other, which are commands.
//!
//! ```text
//! +FULLRESYNC id offset                            not after SYNC
//! $EOF:mark ‖ file ‖ mark   or   $length ‖ file    without REPLCONF capa eof
//! commands                                         after $EOF: only after its REPLCONF ACK
//! ```
//!
//! Offsets count the same bytes on both sides. A replica may therefore reconnect at any
//! of them, also inside a row: it knows its DB, and each row selects its DB again. For
//! the same reason a ping is a row of the binlog.

use super::{End, Feeder};
use crate::commands::save;
use crate::storage::full_sync::snapshot::Snapshot;
use crate::storage::{DbIndex, Engine, StorageError, Txn};
use crate::sys::clock;
use crate::types::OpError;
use crate::types::export::export;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;

/// Bytes of a file sent in one step.
const STEP_BYTES: usize = 256 << 10;

/// Sends the data set.
pub(super) fn send_data_set(feeder: &mut Feeder<'_>, snapshot: &Snapshot<'_>) -> Result<(), End> {
    let about = save::about(clock::unix_ms());
    let mut options = save::export_options(&feeder.server.config.load(), &about);
    options.member_times = feeder.psync.announced.set_times;
    if let Some(filter) = feeder.psync.announced.filter {
        (options.functions, options.keys) = (filter.functions, false);
    }
    if !feeder.psync.announced.eof {
        return send_with_length(feeder, |file| export(snapshot, file, options).map(|_| ()));
    }
    let mark: String = std::iter::repeat_with(fastrand::alphanumeric)
        .take(40)
        .collect();
    feeder.queue(format!("$EOF:{mark}\r\n").as_bytes());
    let mut sink = Sink { feeder, end: None };
    let exported = export(snapshot, &mut sink, options).map(|_| ());
    if let Some(end) = sink.end {
        return Err(end);
    }
    exported.map_err(failure)?;
    feeder.queue(mark.as_bytes());
    Ok(())
}

/// Waits until the replica has found the end of a data set without a length: the replica
/// looks for the mark at the end of what it has read, so nothing may follow the mark
/// before that.
pub(super) fn wait_until_loaded(feeder: &mut Feeder<'_>) -> Result<(), End> {
    let announced = &feeder.psync.announced;
    match announced.eof && !announced.rdb_only {
        true => feeder.wait_for_ack(),
        false => Ok(()),
    }
}

/// Writes the data set to a file first, since its length is sent before it.
fn send_with_length(
    feeder: &mut Feeder<'_>,
    write: impl FnOnce(&File) -> Result<(), OpError>,
) -> Result<(), End> {
    let mut file = save::unnamed_file(&feeder.server.config.load())?;
    write(&file).map_err(failure)?;
    let mut left = file.stream_position()?;
    file.rewind()?;
    feeder.queue(format!("${left}\r\n").as_bytes());
    let mut step = vec![0; STEP_BYTES];
    while left > 0 {
        let n = file.read(&mut step)?;
        if n == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        feeder.queue(step.get(..n).unwrap_or_default());
        feeder.send_until_room()?;
        left -= n as u64;
    }
    Ok(())
}

/// Writes a ping to the binlog, unless this server is a replica, whose binlog is its
/// master's, or accepts no writes.
pub(super) fn log_ping(engine: &Arc<Engine>) -> Result<(), StorageError> {
    if engine.is_following() || !engine.takes_data() {
        return Ok(());
    }
    let mut txn = Txn::new(engine.clone());
    txn.begin(clock::unix_ms())?;
    txn.effect(DbIndex(0), &[b"PING"]);
    txn.commit()
}

fn failure(error: OpError) -> End {
    match error {
        OpError::Storage(error) => End::Storage(error),
        other => End::Export(other),
    }
}

/// A writer that sends to the replica.
struct Sink<'f, 's> {
    feeder: &'f mut Feeder<'s>,
    /// Why sending ended.
    end: Option<End>,
}

impl Write for Sink<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.feeder.queue(bytes);
        match self.feeder.send_until_room() {
            Ok(()) => Ok(bytes.len()),
            Err(end) => {
                self.end = Some(end);
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
