//! Reads the values of a server with commands. Small values are read many at a time,
//! with DUMP; large ones, and all where DUMP is refused, with the commands of their
//! types. Large values are read in pieces, so memory stays bounded; concurrent writes
//! may be in some pieces and not in others.

use super::conn::Conn;
use super::error::{Error, Result};
use super::piece::{PIECE_BYTES, Piece, unexpected_reply};
use super::stream_reader::StreamReader;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::encoding::ValueType;
use crate::rdb::Element;
use crate::rdb::module::{self, ModulePart, id_of};
use crate::resp::Value;
use crate::resp::encode::command;
use crate::sys::clock;

/// Most elements of a small collection.
const SMALL_ELEMENTS: i64 = 2000;
/// The same if the server does not report sizes in bytes.
const SMALL_UNSIZED: i64 = 64;
/// Most elements of a collection whose size in bytes is not asked for.
const FEW_ELEMENTS: i64 = 8;
/// Most bytes of a small value.
const SMALL_BYTES: i64 = 1 << 20;
/// Short replies outstanding at once. More could fill all buffers while the client still
/// sends.
const SHORT_AT_ONCE: usize = 1000;
/// Integers in one reply.
const SORTED_INTS_AT_ONCE: usize = 10_000;
/// Values outstanding at once.
const AT_ONCE: usize = 256;
/// Bytes of values outstanding at once, not counting the last value.
const AT_ONCE_BYTES: i64 = 8 << 20;

/// Type and size of a value, from commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The reply of TYPE.
    pub kind: String,
    /// Number of elements, or bytes of a string.
    pub len: i64,
    /// Approximate bytes; 0 if unknown.
    size: i64,
    /// Expiry in Unix ms; 0: none.
    pub expire_ms: UnixMs,
    /// Whether it is read with one command.
    pub is_small: bool,
}

/// A part of a value.
pub enum Part<'p> {
    /// The whole value.
    Payload(&'p [u8]),
    /// The next bytes of a string.
    Text(&'p [u8]),
    /// The next element; SSCAN, HSCAN and ZSCAN may return one twice.
    Element(Element<'p>),
    /// The end of the value.
    End,
    /// The value was deleted or has another type now.
    Gone,
}

/// How small values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// With DUMP.
    Dump,
    /// With the commands of their types.
    Typed,
}

/// A server and its abilities.
pub struct Values {
    /// The connection.
    pub conn: Conn,
    /// Whether it allows DUMP.
    pub has_dump: bool,
    /// Whether it supports expiry of hash fields.
    pub has_field_times: bool,
    /// Whether it supports expiry of set members.
    pub has_member_times: bool,
    /// Whether it has PEXPIRETIME, since Redis 7.
    pub has_expiretime: bool,
    /// Whether it has MEMORY USAGE, since Redis 4.
    has_usage: bool,
}

impl Values {
    /// Finds out which commands a server allows for keys that begin with `prefix`.
    pub fn new(mut conn: Conn, prefix: &[u8]) -> Result<Values> {
        let none = [prefix, b"kedis:migration:none"].concat();
        let none = none.as_slice();
        Ok(Values {
            has_dump: conn.ask_maybe(&[b"DUMP".as_slice(), none])?.is_some(),
            has_field_times: conn
                .ask_maybe(&[b"HPEXPIRETIME".as_slice(), none, b"FIELDS", b"1", b"f"])?
                .is_some(),
            has_member_times: conn
                .ask_maybe(&[b"SPEXPIRETIME".as_slice(), none, b"MEMBERS", b"1", b"m"])?
                .is_some(),
            has_expiretime: conn
                .ask_maybe(&[b"PEXPIRETIME".as_slice(), none])?
                .is_some(),
            has_usage: conn
                .ask_maybe(&[b"MEMORY".as_slice(), b"USAGE", none])?
                .is_some(),
            conn,
        })
    }

    /// Selects the DB for later commands.
    pub fn select(&mut self, db: u64) -> Result<()> {
        self.conn.ask(&["SELECT", &db.to_string()])?;
        Ok(())
    }

    /// The keys among these that the DB does not have.
    pub fn missing(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = self.each(&names, |key| vec![b"EXISTS", key])?;
        let missing = found
            .iter()
            .zip(keys)
            .filter(|(found, _)| found.as_i64() == Some(0));
        Ok(missing.map(|(_, key)| key.clone()).collect())
    }

    /// Types and sizes of the values of these keys; `None` for a missing key.
    pub fn shapes(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Shape>>> {
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
                "sortedint" => b"SICARD",
                _ => b"EXISTS",
            };
            vec![name, key]
        })?;
        let time: &[u8] = match self.has_expiretime {
            true => b"PEXPIRETIME",
            false => b"PTTL",
        };
        let times = self.each(keys, |key| vec![time, key])?;
        let now_ms = clock::unix_ms();
        let lens: Vec<i64> = lens.iter().map(|len| len.as_i64().unwrap_or(0)).collect();
        let sizes = self.sizes(keys, &lens)?;
        let known = kinds.into_iter().zip(lens).zip(times).zip(sizes);
        Ok(known
            .map(|(((kind, len), time), size)| {
                let expire_ms = match u64::try_from(time.as_i64().unwrap_or(-1)) {
                    Err(_) => UnixMs::NONE,
                    Ok(at_ms) if self.has_expiretime => UnixMs(at_ms),
                    Ok(left_ms) => now_ms + left_ms,
                };
                let bound = match (kind.as_str(), self.has_usage) {
                    ("string", _) => SMALL_BYTES,
                    (_, true) => SMALL_ELEMENTS,
                    (_, false) => SMALL_UNSIZED,
                };
                (kind != "none").then(|| Shape {
                    is_small: len <= bound && size <= SMALL_BYTES,
                    size: if kind == "string" { len } else { size },
                    len,
                    expire_ms,
                    kind,
                })
            })
            .collect())
    }

    /// Approximate bytes of each collection; 0 if the server does not report them, or
    /// for small collections.
    fn sizes(&mut self, keys: &[&[u8]], lens: &[i64]) -> Result<Vec<i64>> {
        let mut sizes = vec![0; keys.len()];
        if !self.has_usage {
            return Ok(sizes);
        }
        let asked: Vec<usize> = lens
            .iter()
            .enumerate()
            .filter(|(_, len)| (FEW_ELEMENTS..=SMALL_ELEMENTS).contains(*len))
            .map(|(at, _)| at)
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

    /// The replies to a command for each key. WRONGTYPE is returned as a reply; other
    /// errors fail.
    pub fn each<'k>(
        &mut self,
        keys: &[&'k [u8]],
        mut args: impl FnMut(&'k [u8]) -> Vec<&'k [u8]>,
    ) -> Result<Vec<Value>> {
        let mut replies = Vec::with_capacity(keys.len());
        for keys in keys.chunks(SHORT_AT_ONCE) {
            let asked: Vec<Vec<&[u8]>> = keys.iter().map(|key| args(key)).collect();
            self.pipeline(&asked, |_, reply| {
                replies.push(reply);
                Ok(())
            })?;
        }
        Ok(replies)
    }

    /// Sends commands in a pipeline and passes each reply to `each`.
    fn pipeline(
        &mut self,
        asked: &[Vec<&[u8]>],
        mut each: impl FnMut(usize, Value) -> Result<()>,
    ) -> Result<()> {
        let mut out = Vec::new();
        for args in asked {
            command(&mut out, args);
        }
        self.conn.send(&out)?;
        for (at, args) in asked.iter().enumerate() {
            match self.conn.reply()? {
                Value::Error(error) if !error.starts_with("WRONGTYPE") => {
                    return Err(self.conn.refusal(args, error));
                }
                reply => each(at, reply)?,
            }
        }
        Ok(())
    }

    /// Reads values of the DB and passes their parts to `each`, with the index in
    /// `keys`. The parts of a value come in order and together. Small values come first.
    pub fn read(
        &mut self,
        keys: &[(&[u8], &Shape)],
        way: Way,
        mut each: impl FnMut(usize, Part<'_>) -> Result<()>,
    ) -> Result<()> {
        let is_at_once = |shape: &Shape| {
            shape.is_small
                && match (way, shape.kind.as_str()) {
                    (Way::Dump, _) => true,
                    (Way::Typed, "string" | "list" | "zset") => true,
                    (Way::Typed, "set") => !self.has_member_times,
                    (Way::Typed, "hash") => !self.has_field_times,
                    (Way::Typed, _) => false,
                }
        };
        let numbered = keys.iter().enumerate();
        let (small, large): (Vec<_>, Vec<_>) =
            numbered.partition(|(_, (_, shape))| is_at_once(shape));
        let mut small = small.as_slice();
        while !small.is_empty() {
            let mut bytes = 0;
            let fitting = small.iter().take(AT_ONCE).take_while(|(_, (_, shape))| {
                let fits = bytes < AT_ONCE_BYTES;
                bytes += shape.size;
                fits
            });
            let (now, later) = small.split_at(fitting.count());
            let asked: Vec<Vec<&[u8]>> = now
                .iter()
                .map(|(_, (key, shape))| whole(key, &shape.kind, way))
                .collect();
            self.pipeline(&asked, |n, reply| match now.get(n) {
                Some((at, (_, shape))) => {
                    hand_out(&reply, &shape.kind, way, |part| each(*at, part))
                }
                None => Ok(()),
            })?;
            small = later;
        }
        for (at, (key, shape)) in large {
            self.large(key, shape, &mut |part| each(at, part))?;
        }
        Ok(())
    }

    /// Reads a value in pieces.
    fn large(
        &mut self,
        key: &[u8],
        shape: &Shape,
        each: &mut impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<()> {
        let is_there = match shape.kind.as_str() {
            "string" => self.text(key, shape.len, each)?,
            "list" => self.items(key, shape.len, each)?,
            "stream" => StreamReader::new(&mut self.conn, key)
                .read(&mut |part| each(Part::Element(Element::Stream(part))))?,
            "sortedint" => self.sorted_ints(key, each)?,
            "set" | "zset" | "hash" => self.scanned(key, &shape.kind, each)?,
            "ReJSON-RL" => self.json(key, each)?,
            kind => {
                return Err(Error::Refused(format!(
                    "values of the type {kind} cannot be read"
                )));
            }
        };
        each(match is_there {
            true => Part::End,
            false => Part::Gone,
        })
    }

    /// The reply to a command; `None` if the key has another type now.
    fn ask(&mut self, args: &[&[u8]]) -> Result<Option<Value>> {
        let mut found = None;
        self.pipeline(&[args.to_vec()], |_, reply| {
            found = Some(reply);
            Ok(())
        })?;
        Ok(found.filter(|reply| !matches!(reply, Value::Error(_))))
    }

    /// A document has one element, its text.
    fn json(&mut self, key: &[u8], each: &mut impl FnMut(Part<'_>) -> Result<()>) -> Result<bool> {
        let reply = self.ask(&[b"JSON.GET", key, b"."])?;
        let Some((text, id)) = reply
            .as_ref()
            .and_then(Value::as_bytes)
            .zip(id_of(ValueType::Json))
        else {
            return Ok(false);
        };
        each(Part::Element(Element::Module(ModulePart::Begin(id))))?;
        each(Part::Element(Element::Module(ModulePart::Text(text))))?;
        Ok(true)
    }

    fn text(
        &mut self,
        key: &[u8],
        len: i64,
        each: &mut impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<bool> {
        let mut at = 0;
        while at < len {
            let (from, to) = (at.to_string(), (at + PIECE_BYTES - 1).to_string());
            let args = [b"GETRANGE".as_slice(), key, from.as_bytes(), to.as_bytes()];
            let Some(piece) = self.ask(&args)? else {
                return Ok(false);
            };
            each(Part::Text(piece.as_bytes().unwrap_or_default()))?;
            at += PIECE_BYTES;
        }
        Ok(true)
    }

    fn items(
        &mut self,
        key: &[u8],
        len: i64,
        each: &mut impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<bool> {
        let (mut at, mut piece) = (0, Piece::default());
        while at < len {
            let (from, to) = (at.to_string(), (at + piece.elements - 1).to_string());
            let args = [b"LRANGE".as_slice(), key, from.as_bytes(), to.as_bytes()];
            let Some(Value::Array(items)) = self.ask(&args)? else {
                return Ok(false);
            };
            for item in &items {
                each(Part::Element(Element::Item(bytes(item))))?;
            }
            at += piece.elements;
            piece.adapt(&items);
        }
        Ok(true)
    }

    /// The integers, from the lowest on. Kvrocks, which has the type, has no DUMP for it, and
    /// does not return 0 from SIRANGE.
    fn sorted_ints(
        &mut self,
        key: &[u8],
        each: &mut impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<bool> {
        let mut part = |part| each(Part::Element(Element::Module(part)));
        part(ModulePart::Begin(module::SORTED_INT))?;
        let count = SORTED_INTS_AT_ONCE.to_string();
        let mut from = b"0".to_vec();
        loop {
            let args = [
                b"SIRANGEBYVALUE".as_slice(),
                key,
                &from,
                b"+inf",
                b"LIMIT",
                b"0",
            ];
            let args = [&args[..], &[count.as_bytes()]].concat();
            let Some(Value::Array(ids)) = self.ask(&args)? else {
                return Ok(false);
            };
            for id in &ids {
                let id = num::parse_u64(bytes(id));
                let id = id.ok_or_else(|| unexpected_reply("SIRANGEBYVALUE"))?;
                part(ModulePart::Unsigned(id))?;
                from = format!("({id}").into_bytes();
            }
            if ids.len() < SORTED_INTS_AT_ONCE {
                return Ok(true);
            }
        }
    }

    fn scanned(
        &mut self,
        key: &[u8],
        kind: &str,
        each: &mut impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<bool> {
        let name: &[u8] = match kind {
            "set" => b"SSCAN",
            "zset" => b"ZSCAN",
            _ => b"HSCAN",
        };
        let mut cursor = b"0".to_vec();
        let mut piece = Piece::default();
        loop {
            let count = piece.elements.to_string();
            let args = [name, key, &cursor, b"COUNT", count.as_bytes()];
            let Some(Value::Array(answer)) = self.ask(&args)? else {
                return Ok(false);
            };
            let Ok([next, Value::Array(items)]) = <[Value; 2]>::try_from(answer) else {
                return Err(unexpected_reply("a scan"));
            };
            let times = match kind {
                "hash" if self.has_field_times => {
                    let fields = items.chunks(2).filter_map(|pair| pair.first());
                    self.times(key, ["HPEXPIRETIME", "FIELDS"], fields.map(bytes).collect())?
                }
                "set" if self.has_member_times => {
                    let members = items.iter().map(bytes).collect();
                    self.times(key, ["SPEXPIRETIME", "MEMBERS"], members)?
                }
                _ => Vec::new(),
            };
            elements(kind, &items, &times, |element| each(Part::Element(element)))?;
            piece.adapt(&items);
            cursor = next.as_bytes().unwrap_or_default().to_vec();
            if cursor == b"0" {
                return Ok(true);
            }
        }
    }

    /// When each of these elements expires, in Unix ms; 0: never.
    fn times(
        &mut self,
        key: &[u8],
        [command, word]: [&str; 2],
        elements: Vec<&[u8]>,
    ) -> Result<Vec<u64>> {
        if elements.is_empty() {
            return Ok(Vec::new());
        }
        let count = elements.len().to_string();
        let mut args = vec![command.as_bytes(), key, word.as_bytes(), count.as_bytes()];
        args.extend(elements);
        let times = self.ask(&args)?;
        let times = times.as_ref().and_then(Value::as_slice).unwrap_or_default();
        let times = times.iter().map(|time| time.as_i64().unwrap_or(-1));
        Ok(times.map(|time| u64::try_from(time).unwrap_or(0)).collect())
    }
}

/// The command that reads a whole value.
fn whole<'k>(key: &'k [u8], kind: &str, way: Way) -> Vec<&'k [u8]> {
    match (way, kind) {
        (Way::Dump, _) => vec![b"DUMP", key],
        (_, "string") => vec![b"GET", key],
        (_, "list") => vec![b"LRANGE", key, b"0", b"-1"],
        (_, "set") => vec![b"SMEMBERS", key],
        (_, "zset") => vec![b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
        _ => vec![b"HGETALL", key],
    }
}

/// Passes the parts in the reply of [`whole`] to `each`.
fn hand_out(
    reply: &Value,
    kind: &str,
    way: Way,
    mut each: impl FnMut(Part<'_>) -> Result<()>,
) -> Result<()> {
    match (reply, kind, way) {
        (Value::Bulk(payload), _, Way::Dump) => each(Part::Payload(payload))?,
        (Value::Bulk(text), "string", Way::Typed) => each(Part::Text(text))?,
        (Value::Array(items), _, Way::Typed) if !items.is_empty() => {
            elements(kind, items, &[], |element| each(Part::Element(element)))?;
        }
        _ => return each(Part::Gone),
    }
    each(Part::End)
}

/// The elements of a collection in a reply of its commands.
fn elements(
    kind: &str,
    items: &[Value],
    times: &[u64],
    mut each: impl FnMut(Element<'_>) -> Result<()>,
) -> Result<()> {
    let pair = if matches!(kind, "zset" | "hash") {
        2
    } else {
        1
    };
    for (at, group) in items.chunks(pair).enumerate() {
        let expire_ms = times.get(at).copied().map_or(UnixMs::NONE, UnixMs);
        let mut parts = group.iter().map(bytes);
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        each(match (kind, second) {
            ("zset", Some(score)) => {
                let score = num::parse_f64(score).ok_or_else(|| unexpected_reply("ZSCAN"))?;
                Element::Scored(score, first)
            }
            ("hash", Some(value)) => Element::Field {
                field: first,
                value,
                expire_ms,
            },
            ("list", _) => Element::Item(first),
            _ => Element::Member {
                member: first,
                expire_ms,
            },
        })?;
    }
    Ok(())
}

fn bytes(value: &Value) -> &[u8] {
    value.as_bytes().unwrap_or_default()
}
