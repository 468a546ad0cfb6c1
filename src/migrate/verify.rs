//! Compares what both sides have, key by key.
//!
//! Values are compared by digests that know their type: the order of a list
//! counts, that of a set or hash does not, and how a server encodes a value
//! never does. Small values come as payloads of DUMP, large ones in pieces, so
//! memory does not grow with them.
//!
//! The source may be written to meanwhile: keys that differ are looked at again
//! a few times before they are reported.

use super::conn::Conn;
use super::copy::{GRACE_MS, MAX_STRING};
use super::error::{Error, Result, shown};
use super::job::{dbs_with_keys, scan};
use super::mapping::Mapping;
use super::options::Options;
use super::stats::{Phase, Stats};
use super::{Stop, sleep};
use crate::base::{clock, num};
use crate::encoding::stream::StreamId;
use crate::rdb::decode::read_value;
use crate::rdb::reader::Reader;
use crate::rdb::{self, Element, StreamPart, payload};
use crate::resp::Value;
use crate::resp::encode::command;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a key that differs is looked at again.
const LOOKS: usize = 4;
/// And how long after the look before.
const LOOK_AFTER: Duration = Duration::from_millis(500);
/// Elements up to which a collection is one payload.
const SMALL_ELEMENTS: i64 = 2000;
/// Elements up to which nobody asks how many bytes they have.
const FEW_ELEMENTS: i64 = 8;
/// Bytes up to which a value is one payload.
const SMALL_BYTES: i64 = 1 << 20;
/// Elements that a piece of a collection has at the most.
const PIECE_ELEMENTS: i64 = 1000;
/// Bytes that a piece of a value has, about.
const PIECE_BYTES: i64 = 1 << 20;
/// Keys that differ and are written down; of others only the number is known.
const MAX_REPORTED: u64 = 1000;
/// Keys that wait to be looked at again.
const MAX_SUSPECTS: usize = 100_000;

/// A key's place: DB and name at the source, DB and name at the target.
type Place = (u64, Vec<u8>, u64, Vec<u8>);

/// A value, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    kind: String,
    elements: i64,
    digest: u128,
    /// Unix ms; 0: never.
    expire_ms: u64,
}

/// Compares all keys that are copied; returns how many differ.
pub fn compare(
    options: &Options,
    mapping: &Mapping,
    stop: &Stop,
    stats: &Arc<Stats>,
) -> Result<u64> {
    let mut compare = Compare {
        source: Side::new(Conn::new(&options.source(), stop)?)?,
        target: Side::new(Conn::new(&options.target(), stop)?)?,
        mapping,
        stop,
        stats,
        suspects: BTreeSet::new(),
        reported: 0,
    };
    stats.set_phase(Phase::Comparing);
    stats.keys.store(0, Ordering::Relaxed);
    stats.errors.store(0, Ordering::Relaxed);
    compare.run(options)?;
    let (keys, different) = (stats.keys.load(Ordering::Relaxed), compare.reported);
    match different {
        0 => log::info!("compared {keys} keys: all are equal"),
        _ => log::error!("compared {keys} keys: {different} differ"),
    }
    Ok(different)
}

struct Compare<'c> {
    source: Side,
    target: Side,
    mapping: &'c Mapping,
    stop: &'c Stop,
    stats: &'c Arc<Stats>,
    suspects: BTreeSet<Place>,
    reported: u64,
}

impl Compare<'_> {
    fn run(&mut self, options: &Options) -> Result<()> {
        let dbs = self.dbs()?;
        // What the source has must be at the target, and be the same.
        for (from, to) in &dbs {
            let mut scanner = Conn::new(&options.source(), self.stop)?;
            let prefix = self.mapping.prefix().to_vec();
            let (stop, mapping) = (self.stop, self.mapping);
            scan(&mut scanner, *from, &prefix, stop, |_, keys| {
                let places = keys.into_iter().filter_map(|key| {
                    let name = mapping.key(&key)?.into_owned();
                    Some((*from, key, *to, name))
                });
                let places: Vec<Place> = places.collect();
                self.stats
                    .keys
                    .fetch_add(places.len() as u64, Ordering::Relaxed);
                let different = self.differences(&places)?;
                self.suspect(different)?;
                Ok(true)
            })?;
        }
        // What the target has must be at the source.
        for (from, to) in &dbs {
            for prefix in self.mapping.target_prefixes() {
                let mut scanner = Conn::new(&options.target(), self.stop)?;
                let (stop, mapping) = (self.stop, self.mapping);
                scan(&mut scanner, *to, &prefix, stop, |_, names| {
                    let places = names.into_iter().filter_map(|name| {
                        let key = mapping.source_key(&name)?;
                        Some((*from, key, *to, name))
                    });
                    let places: Vec<Place> = places.collect();
                    let missing = self.source.missing(*from, &places)?;
                    self.suspect(missing)?;
                    Ok(true)
                })?;
            }
        }
        self.look_again(LOOKS)?;
        let left = std::mem::take(&mut self.suspects);
        for place in left {
            self.report(&place)?;
        }
        Ok(())
    }

    /// The DBs to compare and where they are at the target.
    fn dbs(&mut self) -> Result<Vec<(u64, u64)>> {
        if let Some(dbs) = self.mapping.dbs() {
            return Ok(dbs.iter().map(|(from, to)| (*from, *to)).collect());
        }
        let mut dbs: BTreeSet<u64> = dbs_with_keys(&mut self.source.conn)?.into_iter().collect();
        dbs.extend(dbs_with_keys(&mut self.target.conn)?);
        Ok(dbs.into_iter().map(|db| (db, db)).collect())
    }

    fn suspect(&mut self, places: Vec<Place>) -> Result<()> {
        self.suspects.extend(places);
        if self.suspects.len() > MAX_SUSPECTS {
            self.look_again(1)?;
            // Those that still differ will hardly be equal later.
            for place in std::mem::take(&mut self.suspects) {
                self.report(&place)?;
            }
        }
        Ok(())
    }

    fn look_again(&mut self, times: usize) -> Result<()> {
        for _ in 0..times {
            if self.suspects.is_empty() {
                return Ok(());
            }
            sleep(LOOK_AFTER, self.stop);
            let suspects: Vec<Place> = std::mem::take(&mut self.suspects).into_iter().collect();
            for places in suspects.chunks(500) {
                self.stop.check()?;
                for same_dbs in places.chunk_by(|a, b| (a.0, a.2) == (b.0, b.2)) {
                    let different = self.differences(same_dbs)?;
                    self.suspects.extend(different);
                }
            }
        }
        Ok(())
    }

    /// Those of these places, all of one DB, whose values differ.
    fn differences(&mut self, places: &[Place]) -> Result<Vec<Place>> {
        let Some((from, _, to, _)) = places.first() else {
            return Ok(Vec::new());
        };
        let (from, to) = (*from, *to);
        let keys: Vec<&[u8]> = places.iter().map(|place| place.1.as_slice()).collect();
        let names: Vec<&[u8]> = places.iter().map(|place| place.3.as_slice()).collect();
        let source = self.source.look(from, &keys)?;
        let target = self.target.look(to, &names)?;
        let pairs = source.into_iter().zip(target).zip(places);
        let different = pairs.filter(|((a, b), _)| !are_equal(a.as_ref(), b.as_ref()));
        Ok(different.map(|(_, place)| place.clone()).collect())
    }

    fn report(&mut self, place: &Place) -> Result<()> {
        self.reported += 1;
        self.stats.errors.fetch_add(1, Ordering::Relaxed);
        if self.reported > MAX_REPORTED {
            return Ok(());
        }
        let (from, key, to, name) = place;
        let a = self.source.look(*from, &[key])?.pop().flatten();
        let b = self.target.look(*to, &[name])?.pop().flatten();
        let what = match (a, b) {
            (Some(a), None) => format!("a {} that the target does not have", a.kind),
            (None, Some(b)) => format!("a {} that only the target has", b.kind),
            (Some(a), Some(b)) if a.kind != b.kind => format!("{} here, {} there", a.kind, b.kind),
            (Some(a), Some(b)) if a.elements != b.elements => {
                format!("{} of {} here, of {} there", a.kind, a.elements, b.elements)
            }
            (Some(a), Some(b)) if a.digest != b.digest => format!("{}s that differ", a.kind),
            (Some(a), Some(b)) => {
                format!("expires at {} here, at {} there", a.expire_ms, b.expire_ms)
            }
            (None, None) => "it was there a moment ago".to_owned(),
        };
        log::error!("DB {from} key {:?}: {what}", shown(key));
        Ok(())
    }
}

fn are_equal(a: Option<&Seen>, b: Option<&Seen>) -> bool {
    let (a, b) = match (a, b) {
        (None, None) => return true,
        (Some(a), Some(b)) => (a, b),
        // One that is just over may still be there on the other side.
        (Some(one), None) | (None, Some(one)) => return is_nearly_over(one.expire_ms),
    };
    let is_same_time =
        a.expire_ms == b.expire_ms || is_nearly_over(a.expire_ms) && is_nearly_over(b.expire_ms);
    is_same_time && (&a.kind, a.elements, a.digest) == (&b.kind, b.elements, b.digest)
}

/// Whether a time is so near that the tool may have put it off.
fn is_nearly_over(expire_ms: u64) -> bool {
    expire_ms != 0 && expire_ms < clock::unix_ms() + GRACE_MS
}

/// One server.
struct Side {
    conn: Conn,
    /// Whether it has PEXPIRETIME: since Redis 7.
    has_expiretime: bool,
    /// Whether it tells how much memory a value takes: since Redis 4.
    has_usage: bool,
}

fn odd(what: &str) -> Error {
    Error::Refused(format!("{what} was answered with something else"))
}

impl Side {
    fn new(mut conn: Conn) -> Result<Side> {
        let has = conn.ask(&["COMMAND", "INFO", "PEXPIRETIME"])?;
        let has = has
            .as_slice()
            .is_some_and(|info| !matches!(info, [Value::Null] | []));
        let usage = conn.ask_maybe(&["MEMORY", "USAGE", "kedis"])?;
        Ok(Side {
            conn,
            has_expiretime: has,
            has_usage: usage.is_some(),
        })
    }

    /// Those whose key is not there.
    fn missing(&mut self, db: u64, places: &[Place]) -> Result<Vec<Place>> {
        self.conn.ask(&["SELECT", &db.to_string()])?;
        let mut out = Vec::new();
        for place in places {
            command(&mut out, &[b"EXISTS".as_slice(), &place.1]);
        }
        self.conn.send(&out)?;
        let mut missing = Vec::new();
        for place in places {
            if self.conn.reply()?.as_i64() == Some(0) {
                missing.push(place.clone());
            }
        }
        Ok(missing)
    }

    /// The values of some keys.
    fn look(&mut self, db: u64, keys: &[&[u8]]) -> Result<Vec<Option<Seen>>> {
        self.conn.ask(&["SELECT", &db.to_string()])?;
        let kinds = self.each(keys, |key| vec![b"TYPE", key])?;
        let kinds: Vec<String> = kinds
            .into_iter()
            .map(|kind| String::from_utf8_lossy(kind.as_bytes().unwrap_or_default()).into_owned())
            .collect();
        let mut kind = kinds.iter();
        let lens = self.each(keys, |key| {
            let name: &[u8] = match kind.next().map_or("", String::as_str) {
                "string" => b"STRLEN",
                "list" => b"LLEN",
                "set" => b"SCARD",
                "zset" => b"ZCARD",
                "hash" => b"HLEN",
                "stream" => b"XLEN",
                _ => b"EXISTS",
            };
            vec![name, key]
        })?;
        let time: &[u8] = match self.has_expiretime {
            true => b"PEXPIRETIME",
            false => b"PTTL",
        };
        let times = self.each(keys, |key| vec![time, key])?;
        let sizes = self.sizes(keys, &lens)?;
        let now_ms = clock::unix_ms();
        let mut seen = Vec::with_capacity(keys.len());
        let mut small = Vec::new();
        for (at, (kind, key)) in kinds.into_iter().zip(keys).enumerate() {
            let len = lens.get(at).and_then(Value::as_i64).unwrap_or(0);
            let time = times.get(at).and_then(Value::as_i64).unwrap_or(-1);
            let expire_ms = match u64::try_from(time) {
                Err(_) => 0,
                Ok(at_ms) if self.has_expiretime => at_ms,
                Ok(left_ms) => left_ms + now_ms,
            };
            if kind == "none" {
                seen.push(None);
                continue;
            }
            let bound = match kind.as_str() {
                "string" => SMALL_BYTES,
                _ => SMALL_ELEMENTS,
            };
            let mut one = Seen {
                digest: 0,
                elements: len,
                expire_ms,
                kind,
            };
            let size = sizes.get(at).copied().unwrap_or(0);
            match len <= bound && size <= SMALL_BYTES {
                true => small.push((at, *key)),
                false => one.digest = self.large(key, &one.kind, len)?,
            }
            seen.push(Some(one));
        }
        let keys: Vec<&[u8]> = small.iter().map(|(_, key)| *key).collect();
        let payloads = self.each(&keys, |key| vec![b"DUMP", key])?;
        for ((at, _), payload) in small.iter().zip(payloads) {
            let place = seen.get_mut(*at);
            match (payload, place) {
                (Value::Bulk(payload), Some(Some(one))) => one.digest = digest(&payload),
                // It has gone meanwhile.
                (_, Some(place)) => *place = None,
                (_, None) => {}
            }
        }
        Ok(seen)
    }

    /// About how many bytes the elements of each collection take; 0 if the server
    /// does not tell, or there are so few that it does not matter.
    fn sizes(&mut self, keys: &[&[u8]], lens: &[Value]) -> Result<Vec<i64>> {
        let mut sizes = vec![0; keys.len()];
        if !self.has_usage {
            return Ok(sizes);
        }
        let is_asked = |len: Option<&Value>| {
            let len = len.and_then(Value::as_i64).unwrap_or(0);
            (FEW_ELEMENTS..=SMALL_ELEMENTS).contains(&len)
        };
        let asked: Vec<usize> = (0..keys.len())
            .filter(|at| is_asked(lens.get(*at)))
            .collect();
        let keys: Vec<&[u8]> = asked
            .iter()
            .filter_map(|at| keys.get(*at).copied())
            .collect();
        let found = self.each(&keys, |key| {
            vec![b"MEMORY", b"USAGE", key, b"SAMPLES", b"0"]
        })?;
        for (at, size) in asked.into_iter().zip(found) {
            if let Some(place) = sizes.get_mut(at) {
                *place = size.as_i64().unwrap_or(0);
            }
        }
        Ok(sizes)
    }

    /// The replies to a command for each key. That a key has another type by now
    /// is one of them, other errors are not.
    fn each<'k>(
        &mut self,
        keys: &[&'k [u8]],
        mut args: impl FnMut(&'k [u8]) -> Vec<&'k [u8]>,
    ) -> Result<Vec<Value>> {
        // Replies must not fill all buffers on the way while nobody reads them.
        const AT_ONCE: usize = 128;
        let mut replies = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AT_ONCE) {
            let asked: Vec<Vec<&[u8]>> = keys.iter().map(|key| args(key)).collect();
            let mut out = Vec::new();
            for args in &asked {
                command(&mut out, args);
            }
            self.conn.send(&out)?;
            for args in &asked {
                replies.push(match self.conn.reply()? {
                    Value::Error(error) if !error.starts_with("WRONGTYPE") => {
                        return Err(self.conn.refusal(args, error));
                    }
                    reply => reply,
                });
            }
        }
        Ok(replies)
    }

    /// The digest of a value in pieces.
    fn large(&mut self, key: &[u8], kind: &str, len: i64) -> Result<u128> {
        match kind {
            "string" => {
                let mut hash = start();
                let mut at = 0;
                while at < len {
                    let (from, to) = (at.to_string(), (at + PIECE_BYTES - 1).to_string());
                    let args = [b"GETRANGE".as_slice(), key, from.as_bytes(), to.as_bytes()];
                    let piece = self.conn.ask(&args)?;
                    hash.write(piece.as_bytes().unwrap_or_default());
                    at += PIECE_BYTES;
                }
                Ok(hash.finish128().as_u128())
            }
            "list" => {
                let mut sum = Sum::default();
                let (mut at, mut piece) = (0, Piece::default());
                while at < len {
                    let (from, to) = (at.to_string(), (at + piece.elements - 1).to_string());
                    let args = [b"LRANGE".as_slice(), key, from.as_bytes(), to.as_bytes()];
                    let Value::Array(items) = self.conn.ask(&args)? else {
                        return Err(odd("LRANGE"));
                    };
                    for item in &items {
                        sum.add(Element::Item(item.as_bytes().unwrap_or_default()));
                    }
                    at += piece.elements;
                    piece.adapt(&items);
                }
                Ok(sum.total)
            }
            "stream" => self.stream(key),
            _ => self.scanned(key, kind),
        }
    }

    /// The digest of a stream: its entries, and where its groups are.
    fn stream(&mut self, key: &[u8]) -> Result<u128> {
        let mut sum = Sum::default();
        let mut from = b"-".to_vec();
        let mut piece = Piece::default();
        loop {
            let count = piece.elements.to_string();
            let args = [b"XRANGE", key, &from, b"+", b"COUNT", count.as_bytes()];
            let Value::Array(entries) = self.conn.ask(&args)? else {
                return Err(odd("XRANGE"));
            };
            piece.adapt(&entries);
            let Some(last) = entries.last() else { break };
            from = next_id(last).ok_or_else(|| odd("XRANGE"))?;
            for entry in &entries {
                add_texts(&mut sum, entry);
            }
        }
        let Value::Array(groups) = self.conn.ask(&[b"XINFO".as_slice(), b"GROUPS", key])? else {
            return Err(odd("XINFO"));
        };
        for group in &groups {
            let Value::Array(fields) = group else {
                return Err(odd("XINFO"));
            };
            for field in fields.chunks(2) {
                let known = [b"name".as_slice(), b"pending", b"last-delivered-id"];
                let name = field.first().and_then(Value::as_bytes).unwrap_or_default();
                if known.contains(&name) {
                    field.iter().for_each(|value| add_texts(&mut sum, value));
                }
            }
        }
        Ok(sum.total)
    }

    fn scanned(&mut self, key: &[u8], kind: &str) -> Result<u128> {
        let (name, each): (&[u8], _) = match kind {
            "set" => (b"SSCAN", 1),
            "zset" => (b"ZSCAN", 2),
            "hash" => (b"HSCAN", 2),
            _ => return Ok(0),
        };
        let mut cursor = b"0".to_vec();
        let mut piece = Piece::default();
        // A scan may show an element twice.
        let mut digests: BTreeSet<u128> = BTreeSet::new();
        loop {
            let count = piece.elements.to_string();
            let args = [name, key, &cursor, b"COUNT", count.as_bytes()];
            let Value::Array(answer) = self.conn.ask(&args)? else {
                return Err(odd("a scan"));
            };
            let Ok([next, Value::Array(items)]) = <[Value; 2]>::try_from(answer) else {
                return Err(odd("a scan"));
            };
            for group in items.chunks(each) {
                let mut parts = group.iter().map(|part| part.as_bytes().unwrap_or_default());
                let (first, second) = (parts.next().unwrap_or_default(), parts.next());
                digests.insert(element_digest(match (kind, second) {
                    ("zset", Some(score)) => {
                        let score = num::parse_f64(score).ok_or_else(|| odd("ZSCAN"))?;
                        Element::Scored(score, first)
                    }
                    ("hash", Some(value)) => Element::Field {
                        field: first,
                        value,
                        expire_ms: 0,
                    },
                    _ => Element::Member(first),
                }));
            }
            piece.adapt(&items);
            cursor = next.as_bytes().unwrap_or_default().to_vec();
            if cursor == b"0" {
                return Ok(digests.iter().fold(0, |sum, d| sum.wrapping_add(*d)));
            }
        }
    }
}

/// How much of a collection to ask for at once: elements may be long.
struct Piece {
    elements: i64,
}

impl Default for Piece {
    fn default() -> Self {
        Piece { elements: 10 }
    }
}

impl Piece {
    /// The next piece has about [`PIECE_BYTES`] if its elements are like those of
    /// this one.
    fn adapt(&mut self, items: &[Value]) {
        let bytes = items.iter().map(bytes_of).sum::<usize>().max(1) as i64;
        let fitting = PIECE_BYTES.saturating_mul(self.elements) / bytes;
        self.elements = fitting.clamp(1, PIECE_ELEMENTS).min(self.elements * 10);
    }
}

/// Bytes of all texts of a reply.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(bytes_of).sum(),
        value => value.as_bytes().map_or(0, <[u8]>::len),
    }
}

/// The id behind that of an entry, as XRANGE replies it.
fn next_id(entry: &Value) -> Option<Vec<u8>> {
    let Value::Array(parts) = entry else {
        return None;
    };
    let id = std::str::from_utf8(parts.first()?.as_bytes()?).ok()?;
    let (ms, seq) = id.split_once('-')?;
    let id = StreamId {
        ms: ms.parse().ok()?,
        seq: seq.parse().ok()?,
    };
    Some(id.next()?.to_string().into_bytes())
}

/// Adds all texts and numbers of a reply, in order.
fn add_texts(sum: &mut Sum, value: &Value) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| add_texts(sum, value)),
        Value::Int(number) => sum.add(Element::Item(number.to_string().as_bytes())),
        value => sum.add(Element::Item(value.as_bytes().unwrap_or_default())),
    }
}

fn start() -> SipHasher13 {
    SipHasher13::new_with_keys(0x6B65_6469_7320_746F, 0x6F6C_7320_6D6F_7665)
}

/// The digest of one element.
fn element_digest(element: Element<'_>) -> u128 {
    let mut hash = start();
    match element {
        Element::String(bytes) | Element::Item(bytes) | Element::Member(bytes) => hash.write(bytes),
        Element::Scored(score, member) => {
            hash.write_u64((score + 0.0).to_bits());
            hash.write(member);
        }
        Element::Field {
            field,
            value,
            expire_ms,
        } => {
            hash.write_u64(field.len() as u64);
            hash.write(field);
            hash.write(value);
            hash.write_u64(expire_ms);
        }
        Element::Stream(part) => stream_part(&mut hash, part),
    }
    hash.finish128().as_u128()
}

/// What counts of a stream: not what the versions of Redis count differently, nor
/// when a consumer was last there.
fn stream_part(hash: &mut SipHasher13, part: StreamPart<'_>) {
    let mut write_id = |id: StreamId| hash.write(&id.encode());
    match part {
        StreamPart::Entry { id, fields } => {
            write_id(id);
            hash.write(fields);
        }
        StreamPart::State(state) => {
            write_id(state.last);
            hash.write_u64(state.length);
            hash.write_u64(state.groups);
        }
        StreamPart::Group {
            name,
            last,
            pending,
            ..
        } => {
            write_id(last);
            hash.write_u64(pending);
            hash.write(name);
        }
        StreamPart::Pending {
            id,
            delivered_ms,
            deliveries,
        } => {
            write_id(id);
            hash.write_i64(delivered_ms);
            hash.write_u64(deliveries);
        }
        StreamPart::Consumers(count) => hash.write_u64(count),
        StreamPart::Consumer { name, pending, .. } => {
            hash.write_u64(pending);
            hash.write(name);
        }
        StreamPart::Owned(id) => write_id(id),
    }
}

/// Sums up elements: the order counts for lists and streams alone.
#[derive(Default)]
struct Sum {
    total: u128,
    items: u128,
}

impl Sum {
    fn add(&mut self, element: Element<'_>) {
        let digest = element_digest(element);
        match element {
            Element::String(_) => self.total = digest,
            Element::Item(_) | Element::Stream(_) => {
                self.items += 1;
                let weight = self.items.wrapping_mul(2).wrapping_add(1);
                self.total = self.total.wrapping_add(digest.wrapping_mul(weight));
            }
            _ => self.total = self.total.wrapping_add(digest),
        }
    }
}

/// The digest of a payload; of one that is not understood here, that of its bytes.
fn digest(bytes: &[u8]) -> u128 {
    let mut sum = Sum::default();
    let read = payload::open(bytes).and_then(|opened| {
        let mut reader = Reader::new(opened.value, MAX_STRING);
        read_value(
            &mut reader,
            opened.kind,
            opened.dialect,
            |element: Element<'_>| {
                sum.add(element);
                Ok::<(), rdb::Error>(())
            },
        )
    });
    match read {
        Ok(_) => sum.total,
        Err(_) => element_digest(Element::String(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(elements: &[Element<'_>]) -> u128 {
        let mut sum = Sum::default();
        for element in elements {
            sum.add(*element);
        }
        sum.total
    }

    #[test]
    fn order_counts_for_lists_alone() {
        let (a, b) = (Element::Item(b"a"), Element::Item(b"b"));
        assert_ne!(sum(&[a, b]), sum(&[b, a]));
        assert_ne!(sum(&[a, a]), sum(&[a]));
        let (a, b) = (Element::Member(b"a"), Element::Member(b"b"));
        assert_eq!(sum(&[a, b]), sum(&[b, a]));
        assert_ne!(sum(&[a, b]), sum(&[a]));
        let (a, b) = (Element::Scored(0.0, b"a"), Element::Scored(-0.0, b"a"));
        assert_eq!(sum(&[a]), sum(&[b]));
        let field = |field, value| Element::Field {
            field,
            value,
            expire_ms: 0,
        };
        assert_ne!(sum(&[field(b"ab", b"c")]), sum(&[field(b"a", b"bc")]));
    }
}
