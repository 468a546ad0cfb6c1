//! Reads a stream with XRANGE, XINFO and XPENDING, as the parts of an RDB file. Delivery
//! times are computed from idle times, so they are as inexact as the round trip of the
//! reply.

use super::conn::Conn;
use super::error::Result;
use super::piece::{Piece, unexpected_reply};
use crate::encoding::packed;
use crate::encoding::stream::{StreamId, UNKNOWN};
use crate::rdb::{StreamPart, StreamState};
use crate::resp::Value;
use crate::sys::clock;
use std::collections::BTreeMap;

/// Pending entries in one reply.
const PENDING_AT_ONCE: &[u8] = b"1000";

type Each<'e> = &'e mut dyn FnMut(StreamPart<'_>) -> Result<()>;

/// Reads one stream.
pub struct StreamReader<'s> {
    conn: &'s mut Conn,
    key: &'s [u8],
}

/// The named fields of a reply of XINFO.
struct Fields<'v>(&'v [Value]);

impl<'v> Fields<'v> {
    fn get(&self, name: &str) -> Option<&'v Value> {
        let mut pairs = self.0.chunks(2);
        let pair = pairs.find(|pair| {
            let found = pair.first().and_then(Value::as_bytes);
            found == Some(name.as_bytes())
        });
        pair?.get(1)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_i64()
    }

    fn count(&self, name: &str) -> u64 {
        let number = self.number(name).unwrap_or(0);
        u64::try_from(number).unwrap_or(0)
    }

    fn id(&self, name: &str) -> Option<StreamId> {
        id_of(self.get(name)?)
    }

    fn text(&self, name: &str) -> &'v [u8] {
        self.get(name).and_then(Value::as_bytes).unwrap_or_default()
    }
}

/// The entries of a reply of XINFO, sorted by name.
fn named(reply: &Value) -> Result<Vec<Fields<'_>>> {
    let all = reply.as_slice().ok_or_else(|| unexpected_reply("XINFO"))?;
    let fields = all.iter().map(|one| one.as_slice().map(Fields));
    let fields: Option<Vec<Fields<'_>>> = fields.collect();
    let mut fields = fields.ok_or_else(|| unexpected_reply("XINFO"))?;
    fields.sort_by_key(|one| one.text("name"));
    Ok(fields)
}

fn id_of(value: &Value) -> Option<StreamId> {
    let id = std::str::from_utf8(value.as_bytes()?).ok()?;
    let (ms, seq) = id.split_once('-')?;
    Some(StreamId {
        ms: ms.parse().ok()?,
        seq: seq.parse().ok()?,
    })
}

impl<'s> StreamReader<'s> {
    /// A reader for this key in the connection's DB.
    pub fn new(conn: &'s mut Conn, key: &'s [u8]) -> StreamReader<'s> {
        StreamReader { conn, key }
    }

    /// The reply to a command; `None` if the stream or group is gone.
    fn ask(&mut self, args: &[&[u8]]) -> Result<Option<Value>> {
        let mut out = Vec::new();
        crate::resp::encode::command(&mut out, args);
        self.conn.send(&out)?;
        match self.conn.reply()? {
            Value::Error(error) => {
                let gone = ["WRONGTYPE", "NOGROUP", "ERR no such key"];
                match gone.iter().any(|code| error.starts_with(code)) {
                    true => Ok(None),
                    false => Err(self.conn.refusal(args, error)),
                }
            }
            reply => Ok(Some(reply)),
        }
    }

    /// Passes all parts to `each`; false if the stream is gone.
    pub fn read(mut self, each: Each<'_>) -> Result<bool> {
        let key = self.key;
        let Some((length, first, highest)) = self.entries(each)? else {
            return Ok(false);
        };
        let Some(about) = self.ask(&[b"XINFO", b"STREAM", key])? else {
            return Ok(false);
        };
        let about = Fields(about.as_slice().ok_or_else(|| unexpected_reply("XINFO"))?);
        let Some(groups) = self.ask(&[b"XINFO", b"GROUPS", key])? else {
            return Ok(false);
        };
        let groups = named(&groups)?;
        let last = about.id("last-generated-id").unwrap_or(highest);
        each(StreamPart::State(StreamState {
            length,
            first: first.unwrap_or(StreamId::MIN),
            last: last.max(highest),
            deleted: about.id("max-deleted-entry-id").unwrap_or(StreamId::MIN),
            // Before Redis 7 there is no such counter.
            added: about.count("entries-added").max(length),
            groups: groups.len() as u64,
        }))?;
        for group in groups {
            if !self.group(&group, each)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The entries: their number, the first id and the highest.
    fn entries(&mut self, each: Each<'_>) -> Result<Option<(u64, Option<StreamId>, StreamId)>> {
        let wrong = || unexpected_reply("XRANGE");
        let (mut length, mut first, mut highest) = (0, None, StreamId::MIN);
        let mut from = Some(StreamId::MIN);
        let mut piece = Piece::default();
        while let Some(start) = from {
            let (start, count) = (start.to_string(), piece.elements.to_string());
            let args = [
                b"XRANGE",
                self.key,
                start.as_bytes(),
                b"+",
                b"COUNT",
                count.as_bytes(),
            ];
            let Some(reply) = self.ask(&args)? else {
                return Ok(None);
            };
            let entries = reply.as_slice().ok_or_else(wrong)?;
            for entry in entries {
                let [id, fields] = entry.as_slice().ok_or_else(wrong)? else {
                    return Err(wrong());
                };
                let id = id_of(id).ok_or_else(wrong)?;
                let mut row = Vec::new();
                for field in fields.as_slice().ok_or_else(wrong)? {
                    packed::put_bytes(&mut row, field.as_bytes().unwrap_or_default());
                }
                each(StreamPart::Entry { id, fields: &row })?;
                length += 1;
                first.get_or_insert(id);
                highest = id;
            }
            piece.adapt(entries);
            from = highest.next().filter(|_| !entries.is_empty());
        }
        Ok(Some((length, first, highest)))
    }

    /// A group with its pending entries and consumers.
    fn group(&mut self, about: &Fields<'_>, each: Each<'_>) -> Result<bool> {
        let (key, name) = (self.key, about.text("name"));
        let Some(consumers) = self.ask(&[b"XINFO", b"CONSUMERS", key, name])? else {
            return Ok(false);
        };
        let consumers = named(&consumers)?;
        let Some(pending) = self.pending(name)? else {
            return Ok(false);
        };
        each(StreamPart::Group {
            name,
            last: about.id("last-delivered-id").unwrap_or(StreamId::MIN),
            read: Some(about.number("entries-read").unwrap_or(UNKNOWN)),
            pending: pending.len() as u64,
        })?;
        let mut owned: BTreeMap<&[u8], Vec<StreamId>> = BTreeMap::new();
        for (id, (consumer, delivered_ms, deliveries)) in &pending {
            owned.entry(consumer).or_default().push(*id);
            each(StreamPart::Pending {
                id: *id,
                delivered_ms: *delivered_ms,
                deliveries: *deliveries,
            })?;
        }
        each(StreamPart::Consumers(consumers.len() as u64))?;
        for consumer in consumers {
            let name = consumer.text("name");
            let ids = owned.remove(name).unwrap_or_default();
            let seen_ms = clock::unix_ms().as_i64() - consumer.number("idle").unwrap_or(0);
            each(StreamPart::Consumer {
                name,
                seen_ms,
                active_ms: seen_ms,
                pending: ids.len() as u64,
            })?;
            for id in ids {
                each(StreamPart::Owned(id))?;
            }
        }
        // Entries are left if a consumer was created after XINFO: read again.
        Ok(owned.is_empty())
    }

    /// The pending entries of a group: consumer, delivery time, number of deliveries.
    #[allow(clippy::type_complexity)] // one row of XPENDING
    fn pending(&mut self, group: &[u8]) -> Result<Option<BTreeMap<StreamId, (Vec<u8>, i64, u64)>>> {
        let wrong = || unexpected_reply("XPENDING");
        let mut pending = BTreeMap::new();
        let mut from = Some(StreamId::MIN);
        while let Some(start) = from {
            let start = start.to_string();
            let args = [
                b"XPENDING",
                self.key,
                group,
                start.as_bytes(),
                b"+",
                PENDING_AT_ONCE,
            ];
            let Some(reply) = self.ask(&args)? else {
                return Ok(None);
            };
            let rows = reply.as_slice().ok_or_else(wrong)?;
            let now_ms = clock::unix_ms().as_i64();
            from = None;
            for row in rows {
                let [id, consumer, idle_ms, deliveries] = row.as_slice().ok_or_else(wrong)? else {
                    return Err(wrong());
                };
                let id = id_of(id).ok_or_else(wrong)?;
                let delivered_ms = now_ms - idle_ms.as_i64().unwrap_or(0);
                let deliveries = deliveries.as_i64().unwrap_or(0).max(0).unsigned_abs();
                let consumer = consumer.as_bytes().unwrap_or_default().to_vec();
                pending.insert(id, (consumer, delivered_ms, deliveries));
                from = id.next();
            }
        }
        Ok(Some(pending))
    }
}
