//! The values of a server, read by commands: small ones as payloads of DUMP, many
//! at a time; large ones, and all where DUMP is refused, by the commands of their
//! types. Large ones come in pieces, so memory does not grow with them; what is
//! written to such a value meanwhile may be in some pieces and not in others.

use super::conn::Conn;
use super::error::{Error, Result};
use super::piece::{PIECE_BYTES, Piece, odd};
use super::stream_reader::StreamReader;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::rdb::Element;
use crate::resp::Value;
use crate::resp::encode::command;
use crate::sys::clock;

/// Elements up to which a collection is small.
const SMALL_ELEMENTS: i64 = 2000;
/// The same where the server does not tell how many bytes they have.
const SMALL_UNSIZED: i64 = 64;
/// Elements up to which nobody asks how many bytes they have.
const FEW_ELEMENTS: i64 = 8;
/// Bytes up to which a value is small.
const SMALL_BYTES: i64 = 1 << 20;
/// Short replies under way at once: they must not fill all buffers on the way
/// while nobody reads them.
const SHORT_AT_ONCE: usize = 1000;
/// The same for values.
const AT_ONCE: usize = 256;
/// Bytes of values that are asked for at once, but for the last one.
const AT_ONCE_BYTES: i64 = 8 << 20;

/// What is known of a value before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// What TYPE says.
    pub kind: String,
    /// Elements, or bytes of a string.
    pub len: i64,
    /// Bytes, about; 0 if that is not known.
    size: i64,
    /// Unix ms; 0: never.
    pub expire_ms: UnixMs,
    /// Whether it is read at once.
    pub is_small: bool,
}

/// A part of a value.
pub enum Part<'p> {
    /// All of it.
    Payload(&'p [u8]),
    /// The next bytes of a string.
    Text(&'p [u8]),
    /// The next element; a scan may show one twice.
    Element(Element<'p>),
    /// That was all.
    End,
    /// It is not there any more, or is of another type.
    Gone,
}

/// How small values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As payloads.
    Dump,
    /// By the commands of their types.
    Typed,
}

/// One server.
pub struct Values {
    /// The connection.
    pub conn: Conn,
    /// Whether it lets DUMP be called.
    pub has_dump: bool,
    /// Whether fields of hashes can have times.
    pub has_field_times: bool,
    /// Whether it has PEXPIRETIME: since Redis 7.
    pub has_expiretime: bool,
    /// Whether it tells how much memory a value takes: since Redis 4.
    has_usage: bool,
}

impl Values {
    /// Finds out what a server lets us do with keys that begin with `prefix`.
    pub fn new(mut conn: Conn, prefix: &[u8]) -> Result<Values> {
        let none = [prefix, b"kedis:migration:none"].concat();
        let none = none.as_slice();
        Ok(Values {
            has_dump: conn.ask_maybe(&[b"DUMP".as_slice(), none])?.is_some(),
            has_field_times: conn
                .ask_maybe(&[b"HPEXPIRETIME".as_slice(), none, b"FIELDS", b"1", b"f"])?
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

    /// What follows is asked of this DB.
    pub fn select(&mut self, db: u64) -> Result<()> {
        self.conn.ask(&["SELECT", &db.to_string()])?;
        Ok(())
    }

    /// Those of these keys that the DB does not have.
    pub fn missing(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = self.each(&names, |key| vec![b"EXISTS", key])?;
        let missing = found
            .iter()
            .zip(keys)
            .filter(|(found, _)| found.as_i64() == Some(0));
        Ok(missing.map(|(_, key)| key.clone()).collect())
    }

    /// The shapes of the values of some keys of the DB; nothing for a key that is
    /// not there.
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

    /// About how many bytes the elements of each collection take; 0 if the server
    /// does not tell, or there are so few that it does not matter.
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

    /// The replies to a command for each key. That a key has another type by now
    /// is one of them, other errors are not.
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

    /// Sends commands together, and hands out the replies as they come.
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

    /// Reads values of the DB and hands out their parts, those of a value in order
    /// and together; numbers are places in `keys`. Small ones come first.
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
                    (Way::Typed, "string" | "list" | "set" | "zset") => true,
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
            "set" | "zset" | "hash" => self.scanned(key, &shape.kind, each)?,
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

    /// The reply to a command, or nothing if the key has another type by now.
    fn ask(&mut self, args: &[&[u8]]) -> Result<Option<Value>> {
        let mut found = None;
        self.pipeline(&[args.to_vec()], |_, reply| {
            found = Some(reply);
            Ok(())
        })?;
        Ok(found.filter(|reply| !matches!(reply, Value::Error(_))))
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
                return Err(odd("a scan"));
            };
            let times = match kind == "hash" && self.has_field_times {
                true => self.field_times(key, &items)?,
                false => Vec::new(),
            };
            elements(kind, &items, &times, |element| each(Part::Element(element)))?;
            piece.adapt(&items);
            cursor = next.as_bytes().unwrap_or_default().to_vec();
            if cursor == b"0" {
                return Ok(true);
            }
        }
    }

    /// When each of these fields expires, Unix ms; 0: never. Their values stand
    /// between them.
    fn field_times(&mut self, key: &[u8], items: &[Value]) -> Result<Vec<u64>> {
        let fields: Vec<&[u8]> = items
            .chunks(2)
            .filter_map(|pair| pair.first())
            .map(bytes)
            .collect();
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let count = fields.len().to_string();
        let mut args = vec![b"HPEXPIRETIME".as_slice(), key, b"FIELDS", count.as_bytes()];
        args.extend(fields);
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

/// Hands out what the reply to such a command holds.
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

/// The elements of a collection, as its commands reply them.
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
        let mut parts = group.iter().map(bytes);
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        each(match (kind, second) {
            ("zset", Some(score)) => {
                let score = num::parse_f64(score).ok_or_else(|| odd("ZSCAN"))?;
                Element::Scored(score, first)
            }
            ("hash", Some(value)) => Element::Field {
                field: first,
                value,
                expire_ms: times.get(at).copied().map_or(UnixMs::NONE, UnixMs),
            },
            ("list", _) => Element::Item(first),
            _ => Element::Member(first),
        })?;
    }
    Ok(())
}

fn bytes(value: &Value) -> &[u8] {
    value.as_bytes().unwrap_or_default()
}
