//! The protocol between a master and a replica.
//!
//! It consists of commands in RESP, so both ends can be examined with a plain client.
//! After `+FULLRESYNC id offset` or `+CONTINUE id` the master sends
//!
//! ```text
//! REPL_SNAPSHOT_BEGIN    id position entry next-id keys hash-key      only after FULLRESYNC:
//! REPL_SNAPSHOT_LIBRARY  text                                         a function library
//! REPL_SNAPSHOT_ROWS     db rows checksum                             the data set, in chunks
//! REPL_SNAPSHOT_COMPLETE id keys position                             end of the data set
//! REPL_ROW               position row                                 one row of the binlog
//! REPL_HISTORY           id                                           new id of the history from here on
//! REPL_PUBLISH           shard channel message                        for subscribers of the replica
//! REPL_NODES             lines                                        the nodes of the cluster, to one of them
//! REPL_PING              position unix-ms                             end of the master's binlog
//! REPLCONF GETACK *                                                   asks for an acknowledgement
//! ```
//!
//! and the replica sends `REPLCONF ACK offset FACK offset` at least once a second: what
//! it has applied, and what it has synced to its disk. It sends `REPLCONF relays yes`
//! once it has a Redis replica itself, which recognises a live master only by the
//! stream, and `REPLCONF relays no` when it has none any more.
//!
//! The format of `rows` is in [`crate::storage::full_sync::snapshot`], `row` is a row of
//! the binlog as on disk, and `checksum` is the CRC-64 of `rows`. Position and offset
//! differ by one: an offset counts bytes, a position is where the next byte goes.

use crate::base::hash::crc64;
use crate::base::num;
use crate::encoding::binlog::{Offset, Position, Row};
use crate::resp::encode::{argument, argument_head, command, command_head};
use crate::state::node::{Node, parse_nodes};
use crate::state::replication::Published;
use crate::state::subscriptions::SubscriptionKind;
use crate::storage::DbIndex;
use crate::storage::full_sync::snapshot::DataSet;

/// Appends one row of the binlog.
pub(super) fn row(out: &mut Vec<u8>, position: Position, row: &Row<'_>) {
    command_head(out, 3);
    argument(out, b"REPL_ROW");
    argument(out, itoa::Buffer::new().format(position.0).as_bytes());
    argument_head(out, crate::encoding::binlog::HEADER_LEN + row.bytes.len());
    row.encode(out);
    out.extend_from_slice(b"\r\n");
}

/// Appends a message.
pub(super) fn publish(out: &mut Vec<u8>, published: &Published) {
    let shard: &[u8] = if published.kind == SubscriptionKind::Shard {
        b"1"
    } else {
        b"0"
    };
    command(
        out,
        &[
            b"REPL_PUBLISH",
            shard,
            &published.channel,
            &published.message,
        ],
    );
}

/// Appends the beginning of a data set.
pub(super) fn snapshot_begin(out: &mut Vec<u8>, set: &DataSet, keys: u64) {
    command(
        out,
        &[
            b"REPL_SNAPSHOT_BEGIN",
            set.history_id.as_bytes(),
            set.position.to_string().as_bytes(),
            set.entry.to_string().as_bytes(),
            set.next_id.to_string().as_bytes(),
            keys.to_string().as_bytes(),
            &set.hash_key,
        ],
    );
}

/// Appends a function library of a data set.
pub(super) fn snapshot_library(out: &mut Vec<u8>, text: &[u8]) {
    command(out, &[b"REPL_SNAPSHOT_LIBRARY", text]);
}

/// Appends a chunk of a data set.
pub(super) fn snapshot_rows(out: &mut Vec<u8>, db: DbIndex, rows: &[u8]) {
    let checksum = crc64(0, rows).to_be_bytes();
    let db = db.0.to_string();
    command(
        out,
        &[b"REPL_SNAPSHOT_ROWS", db.as_bytes(), rows, &checksum],
    );
}

/// Appends the end of a data set.
pub(super) fn snapshot_complete(out: &mut Vec<u8>, set: &DataSet, keys: u64) {
    command(
        out,
        &[
            b"REPL_SNAPSHOT_COMPLETE",
            set.history_id.as_bytes(),
            keys.to_string().as_bytes(),
            set.position.to_string().as_bytes(),
        ],
    );
}

/// A command of a master.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromMaster<'a> {
    Begin {
        set: DataSet,
        keys: u64,
    },
    Library {
        text: &'a [u8],
    },
    Rows {
        db: DbIndex,
        rows: &'a [u8],
    },
    Complete {
        position: Position,
        keys: u64,
    },
    Row {
        position: Position,
        value: &'a [u8],
    },
    History {
        id: String,
    },
    Publish {
        kind: SubscriptionKind,
        channel: &'a [u8],
        message: &'a [u8],
    },
    Ping {
        position: Position,
    },
    Nodes {
        nodes: Vec<Node>,
    },
    GetAck,
}

fn number(arg: &[u8]) -> Option<u64> {
    num::parse_i64(arg).and_then(|n| u64::try_from(n).ok())
}

fn position(arg: &[u8]) -> Option<Position> {
    number(arg).map(Position)
}

/// Parses a command of a master; `None` if it is not one.
pub(super) fn from_master<'a>(args: &[&'a [u8]]) -> Option<FromMaster<'a>> {
    Some(match args {
        [b"REPL_ROW", position, value] => FromMaster::Row {
            position: self::position(position)?,
            value,
        },
        [b"REPL_HISTORY", id] => FromMaster::History {
            id: history_id(id)?,
        },
        [b"REPL_PUBLISH", shard, channel, message] => FromMaster::Publish {
            kind: match *shard {
                b"0" => SubscriptionKind::Channel,
                b"1" => SubscriptionKind::Shard,
                _ => return None,
            },
            channel,
            message,
        },
        [b"REPL_NODES", lines] => FromMaster::Nodes {
            nodes: parse_nodes(lines)?,
        },
        [b"REPL_PING", position, _] => FromMaster::Ping {
            position: self::position(position)?,
        },
        [b"REPLCONF", b"GETACK", _] => FromMaster::GetAck,
        [b"REPL_SNAPSHOT_LIBRARY", text] => FromMaster::Library { text },
        [b"REPL_SNAPSHOT_ROWS", db, rows, checksum] => {
            if crc64(0, rows).to_be_bytes() != *checksum {
                return None;
            }
            FromMaster::Rows {
                db: DbIndex(u16::try_from(number(db)?).ok()?),
                rows,
            }
        }
        [
            b"REPL_SNAPSHOT_BEGIN",
            id,
            position,
            entry,
            next_id,
            keys,
            hash_key,
        ] => FromMaster::Begin {
            set: DataSet {
                history_id: history_id(id)?,
                position: self::position(position)?,
                entry: number(entry)?,
                next_id: number(next_id)?,
                hash_key: <[u8; 16]>::try_from(*hash_key).ok()?,
            },
            keys: number(keys)?,
        },
        [b"REPL_SNAPSHOT_COMPLETE", _, keys, position] => FromMaster::Complete {
            keys: number(keys)?,
            position: self::position(position)?,
        },
        _ => return None,
    })
}

/// Checks and returns a replication id.
pub(super) fn history_id(id: &[u8]) -> Option<String> {
    let right = id.len() == crate::encoding::system::REPLICATION_ID_LEN
        && id.iter().all(u8::is_ascii_hexdigit);
    right.then(|| String::from_utf8_lossy(id).into_owned())
}

/// An acknowledgement of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    /// Position up to which it has applied.
    pub(super) applied: Position,
    /// Position up to which it has synced to its disk.
    pub(super) synced: Option<Position>,
}

/// Appends an acknowledgement.
pub(super) fn ack(out: &mut Vec<u8>, ack: &Ack) {
    let applied = ack.applied.offset().to_string();
    let synced = ack.synced.unwrap_or_default().offset().to_string();
    command(
        out,
        &[
            b"REPLCONF".as_slice(),
            b"ACK",
            applied.as_bytes(),
            b"FACK",
            synced.as_bytes(),
        ],
    );
}

/// Appends whether this replica has a Redis replica itself.
pub(super) fn relays(out: &mut Vec<u8>, so: bool) {
    let word: &[u8] = if so { b"yes" } else { b"no" };
    command(out, &[&b"REPLCONF"[..], b"relays", word]);
}

/// Parses whether a replica has a Redis replica itself.
pub(super) fn relays_of_replica(args: &[&[u8]]) -> Option<bool> {
    match args {
        [b"REPLCONF", b"relays", word] => Some(*word == &b"yes"[..]),
        _ => None,
    }
}

/// Parses an acknowledgement.
pub(super) fn from_replica(args: &[&[u8]]) -> Option<Ack> {
    let [name, ack, applied, rest @ ..] = args else {
        return None;
    };
    if !name.eq_ignore_ascii_case(b"replconf") || !ack.eq_ignore_ascii_case(b"ack") {
        return None;
    }
    let synced = match rest {
        [fack, synced] if fack.eq_ignore_ascii_case(b"fack") => Some(number(synced)?),
        _ => None,
    };
    Some(Ack {
        applied: Offset(number(applied)?).next(),
        synced: synced.map(|n| Offset(n).next()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Limits, Parser, Progress};

    fn read<T>(bytes: &[u8], read: impl FnOnce(&[&[u8]]) -> T) -> T {
        let limits = Limits {
            max_bulk_len: 1 << 20,
            authenticated: true,
        };
        let mut parser = Parser::new();
        let progress = parser.advance(bytes, &limits).expect("a command");
        assert_eq!(
            progress,
            Progress::Complete {
                consumed: bytes.len()
            }
        );
        read(&parser.args(bytes))
    }

    #[test]
    fn commands_are_parsed_as_written() {
        let set = DataSet {
            history_id: "0123456789".repeat(4),
            position: Position(7),
            entry: 8,
            next_id: 9,
            hash_key: *b"0123456789abcd\r\n",
        };
        let mut out = Vec::new();
        snapshot_begin(&mut out, &set, 5);
        read(&out, |args| {
            let want = FromMaster::Begin { set, keys: 5 };
            assert_eq!(from_master(args), Some(want));
        });
        let mut out = Vec::new();
        snapshot_library(&mut out, b"#!lua\r\n");
        read(&out, |args| {
            let want = FromMaster::Library { text: b"#!lua\r\n" };
            assert_eq!(from_master(args), Some(want));
        });
        let mut out = Vec::new();
        snapshot_rows(&mut out, DbIndex(3), b"rows\r\n");
        read(&out, |args| {
            let want = FromMaster::Rows {
                db: DbIndex(3),
                rows: b"rows\r\n",
            };
            assert_eq!(from_master(args), Some(want));
        });
        let flipped: Vec<u8> = out
            .iter()
            .map(|b| if *b == b'w' { b'x' } else { *b })
            .collect();
        read(&flipped, |args| assert_eq!(from_master(args), None));
        let mut out = Vec::new();
        ack(
            &mut out,
            &Ack {
                applied: Position(12),
                synced: Some(Position(5)),
            },
        );
        read(&out, |args| {
            let want = Ack {
                applied: Position(12),
                synced: Some(Position(5)),
            };
            assert_eq!(from_replica(args), Some(want));
        });
    }
}
