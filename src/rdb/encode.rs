//! Writes values element by element, in encodings that Redis 7.0 and later can load; a hash whose
//! fields have times, in one that Redis 7.4 and later can load.
//!
//! A small collection becomes a listpack or an intset, within Redis' default limits.
//! Larger ones are written element by element, so that a collection larger than memory
//! can be written: [`Encoder::begin`], any number of [`Encoder::element`],
//! [`Encoder::end`]. The caller may empty its buffer in between.
//!
//! A list that is not small becomes nodes of listpacks if it fits into [`MAX_BUFFERED_BYTES`],
//! otherwise a sequence of items. The number of nodes comes before them, so all nodes
//! must be buffered.

use super::module::{self, ModulePart};
use super::{Element, Error, Result, VERSION_WITH_TIMES, VERSION_WRITTEN, intset, kind, listpack};
use crate::base::time::UnixMs;
use crate::base::{lzf, num};
use crate::encoding::ValueType;

/// Most bytes of elements that are buffered before the encoding is chosen.
pub const MAX_BUFFERED_BYTES: usize = 4 << 20;

/// Most elements of a hash or sorted set in a listpack.
const LISTPACK_ELEMENTS: u64 = 128;
/// Most bytes of their elements.
const LISTPACK_ELEMENT_BYTES: usize = 64;
/// Most members of an intset.
const INTSET_MEMBERS: u64 = 512;
/// Bytes of a list node.
const NODE_BYTES: usize = 8 << 10;
/// An item of this length or more is a plain node without a listpack.
const PLAIN_BYTES: usize = 1 << 30;
/// Shortest string that is compressed.
const COMPRESSED_MIN: usize = 21;
/// Bytes that compression must save.
const COMPRESSED_GAIN: usize = 4;

const COUNT: Error = Error::Corrupt("another number of elements than announced");
const ANOTHER_TYPE: Error = Error::Corrupt("an element of another type");

/// Writes values. Reuse it for many values, since it keeps its buffers.
#[derive(Default)]
pub struct Encoder {
    compress: bool,
    /// Types whose elements are written without their times.
    timeless: &'static [ValueType],
    /// Created when first needed.
    compressor: Option<lzf::Compressor>,
    buffered: Buffered,
    state: State,
}

/// The state of the current value.
#[derive(Default)]
struct State {
    kind: Option<ValueType>,
    /// The key to write between type and value, in files.
    between: Vec<u8>,
    /// Announced elements that have not been written yet.
    left: u64,
    count: u64,
    /// Elements are written at once; otherwise they are buffered.
    streaming: bool,
    /// Whether all buffered members of a set are integers.
    integers: bool,
    /// Whether parts of a module's value were written.
    is_module: bool,
    /// Fields of the hash, or members of the set, have times, none before this; 0 if none has one.
    first_ms: UnixMs,
}

/// Concatenated elements, with the end and the score of each.
#[derive(Default)]
struct Buffered {
    bytes: Vec<u8>,
    ends: Vec<(usize, f64)>,
}

impl Buffered {
    fn push(&mut self, element: &[u8], score: f64) {
        self.bytes.extend_from_slice(element);
        self.ends.push((self.bytes.len(), score));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], f64)> {
        let mut start = 0;
        self.ends.iter().map(move |(end, score)| {
            let element = self.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            (element, *score)
        })
    }
}

impl Encoder {
    /// An encoder; `compress` is `rdbcompression`.
    pub fn new(compress: bool) -> Encoder {
        Encoder {
            compress,
            ..Encoder::default()
        }
    }

    /// Leaves the times of fields and members out, so that Redis 7.0 can load every hash and set.
    pub fn without_times(self) -> Encoder {
        Encoder {
            timeless: &[ValueType::Hash, ValueType::Set],
            ..self
        }
    }

    /// Leaves the times of members out from now on: Redis knows no set that is written with them.
    pub fn leave_member_times_out(&mut self) {
        self.timeless = &[ValueType::Set];
    }

    /// Begins a collection of `count` elements (of a hash: fields). A `key` is written
    /// between type and value, as in files; payloads have none.
    pub fn begin(&mut self, kind: ValueType, count: u64, key: Option<&[u8]>) {
        let mut between = std::mem::take(&mut self.state.between);
        between.clear();
        if let Some(key) = key {
            self.string(key, &mut between);
        }
        self.buffered.clear();
        self.state = State {
            kind: Some(kind),
            between,
            left: count,
            count,
            streaming: false,
            integers: true,
            is_module: false,
            first_ms: UnixMs::NONE,
        };
    }

    /// Says, after [`Encoder::begin`], that fields of the hash or members of the set have times,
    /// none of them before `first_ms`; 0: none has one. Only Redis from 7.4 on can load such a hash,
    /// and none such a set.
    pub fn has_times(&mut self, first_ms: UnixMs) {
        if self
            .state
            .kind
            .is_some_and(|kind| !self.timeless.contains(&kind))
        {
            self.state.first_ms = first_ms;
        }
    }

    /// Writes or buffers the next element. Elements other than those of lists may come
    /// in any order.
    ///
    /// # Errors
    /// The element has the wrong type, or exceeds the announced count.
    pub fn element(&mut self, element: Element<'_>, out: &mut Vec<u8>) -> Result<()> {
        if let Element::Module(part) = element {
            return self.module(part, out);
        }
        let state = &mut self.state;
        let kind = match element {
            Element::Item(_) => ValueType::List,
            Element::Member { .. } => ValueType::Set,
            Element::Scored(..) => ValueType::Zset,
            Element::Field { .. } => ValueType::Hash,
            Element::String(_) => ValueType::String,
            // Streams are written by [`super::stream::Writer`].
            Element::Stream(_) | Element::Module(_) => return Err(ANOTHER_TYPE),
        };
        if state.kind != Some(kind) {
            return Err(ANOTHER_TYPE);
        }
        state.left = state.left.checked_sub(1).ok_or(COUNT)?;
        if !state.streaming && !state.can_buffer(element, self.buffered.bytes.len()) {
            self.start_streaming(out);
        }
        if self.state.streaming {
            self.put(element, out);
            return Ok(());
        }
        match element {
            Element::Item(bytes)
            | Element::Member { member: bytes, .. }
            | Element::String(bytes) => {
                self.buffered.push(bytes, 0.0);
            }
            Element::Scored(score, member) => self.buffered.push(member, score),
            Element::Field { field, value, .. } => {
                self.buffered.push(field, 0.0);
                self.buffered.push(value, 0.0);
            }
            Element::Stream(_) | Element::Module(_) => {}
        }
        Ok(())
    }

    /// Ends the collection.
    ///
    /// # Errors
    /// There were fewer elements than announced, or none.
    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let state = &mut self.state;
        let kind = state.kind.take();
        if state.is_module {
            self.end_module(out);
            return Ok(());
        }
        if state.left > 0 {
            return Err(COUNT);
        }
        if state.count == 0 {
            return Err(Error::Empty);
        }
        if state.streaming {
            if kind == Some(ValueType::Set) && state.first_ms.is_some() {
                self.end_module(out);
            }
            return Ok(());
        }
        match kind {
            Some(ValueType::List) => self.end_list(out),
            Some(ValueType::Set) => self.end_intset(out)?,
            Some(ValueType::Hash) => self.end_listpack(kind::HASH_LISTPACK, out),
            Some(ValueType::Zset) => {
                self.sort_by_score();
                self.end_listpack(kind::ZSET_LISTPACK, out);
            }
            Some(
                ValueType::String
                | ValueType::Stream
                | ValueType::Json
                | ValueType::SortedInt
                | ValueType::Bloom
                | ValueType::Cuckoo
                | ValueType::CountMinSketch
                | ValueType::TopK
                | ValueType::TDigest,
            )
            | None => {}
        }
        Ok(())
    }

    /// Writes type and value of a string; see [`Encoder::begin`] for the key.
    pub fn value_string(&mut self, key: Option<&[u8]>, value: &[u8], out: &mut Vec<u8>) {
        out.push(kind::STRING);
        if let Some(key) = key {
            self.string(key, out);
        }
        self.string(value, out);
    }

    /// Writes the head of a string of `len` bytes; the caller appends the bytes.
    pub fn begin_long_string(&mut self, key: Option<&[u8]>, len: u64, out: &mut Vec<u8>) {
        out.push(kind::STRING);
        if let Some(key) = key {
            self.string(key, out);
        }
        length(len, out);
    }

    /// Writes a string: as an integer, compressed, or plain.
    pub fn string(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if bytes.len() <= 11
            && let Some(number) = num::parse_i64(bytes)
            && let Ok(number) = i32::try_from(number)
        {
            return put_number(number, out);
        }
        if self.compress
            && bytes.len() >= COMPRESSED_MIN
            && let Some(packed) = self
                .compressor
                .get_or_insert_default()
                .compress(bytes, bytes.len() - COMPRESSED_GAIN)
        {
            out.push(0xC3);
            length(packed.len() as u64, out);
            length(bytes.len() as u64, out);
            out.extend_from_slice(&packed);
            return;
        }
        length(bytes.len() as u64, out);
        out.extend_from_slice(bytes);
    }

    /// Stops buffering: writes the head of the collection and the buffered elements.
    fn start_streaming(&mut self, out: &mut Vec<u8>) {
        let Some(kind) = self.state.kind else {
            return;
        };
        self.state.streaming = true;
        let first_ms = self.state.first_ms;
        if first_ms == UnixMs::NONE {
            self.head(written_plain(kind), out);
        } else if kind == ValueType::Set {
            self.head(kind::MODULE_2, out);
            return self.put_part(ModulePart::Begin(module::TIMED_SET), out);
        } else {
            self.head(kind::HASH_METADATA, out);
            out.extend_from_slice(&first_ms.0.to_le_bytes());
        }
        length(self.state.count, out);
        let buffered = std::mem::take(&mut self.buffered);
        for (element, score) in buffered.iter() {
            self.string(element, out);
            if kind == ValueType::Zset {
                out.extend_from_slice(&score.to_le_bytes());
            }
        }
        self.buffered = buffered;
        self.buffered.clear();
    }

    fn put(&mut self, element: Element<'_>, out: &mut Vec<u8>) {
        match element {
            Element::Member { member, expire_ms } if self.state.first_ms.is_some() => {
                self.put_part(ModulePart::Text(member), out);
                self.put_part(ModulePart::Unsigned(expire_ms.0), out);
            }
            Element::Item(bytes)
            | Element::Member { member: bytes, .. }
            | Element::String(bytes) => {
                self.string(bytes, out);
            }
            Element::Scored(score, member) => {
                self.string(member, out);
                out.extend_from_slice(&score.to_le_bytes());
            }
            Element::Field {
                field,
                value,
                expire_ms,
            } => {
                if self.state.first_ms.is_some() {
                    let after = match expire_ms {
                        UnixMs::NONE => 0,
                        at => at.since(self.state.first_ms) + 1,
                    };
                    length(after, out);
                }
                self.string(field, out);
                self.string(value, out);
            }
            Element::Stream(_) | Element::Module(_) => {}
        }
    }

    /// Writes a part of the value that [`Encoder::begin`] has begun.
    fn module(&mut self, part: ModulePart<'_>, out: &mut Vec<u8>) -> Result<()> {
        let begins = matches!(part, ModulePart::Begin(_));
        if begins == self.state.is_module || self.state.kind.is_none() {
            return Err(ANOTHER_TYPE);
        }
        if begins {
            self.state.is_module = true;
            self.head(kind::MODULE_2, out);
        }
        self.put_part(part, out);
        Ok(())
    }

    /// Writes a part of a module's value that was not begun by [`Encoder::begin`]; with its
    /// beginning the type, and the key if there is one.
    pub fn module_part(&mut self, part: ModulePart<'_>, key: Option<&[u8]>, out: &mut Vec<u8>) {
        if let ModulePart::Begin(_) = part {
            out.push(kind::MODULE_2);
            if let Some(key) = key {
                self.string(key, out);
            }
        }
        self.put_part(part, out);
    }

    /// Writes the head of a string of `len` bytes in a module's value; the caller appends the bytes.
    pub fn begin_module_text(&mut self, len: u64, out: &mut Vec<u8>) {
        length(module::STRING, out);
        length(len, out);
    }

    fn put_part(&mut self, part: ModulePart<'_>, out: &mut Vec<u8>) {
        match part {
            ModulePart::Begin(id) => length(id.0, out),
            ModulePart::Unsigned(number) => {
                length(module::UNSIGNED, out);
                length(number, out);
            }
            ModulePart::Float(number) => {
                length(module::FLOAT, out);
                out.extend_from_slice(&number.to_le_bytes());
            }
            ModulePart::Double(number) => {
                length(module::DOUBLE, out);
                out.extend_from_slice(&number.to_le_bytes());
            }
            ModulePart::Text(bytes) => {
                length(module::STRING, out);
                self.string(bytes, out);
            }
        }
    }

    /// Writes the end of a module's value.
    pub fn end_module(&mut self, out: &mut Vec<u8>) {
        length(module::END, out);
    }

    fn head(&mut self, number: u8, out: &mut Vec<u8>) {
        out.push(number);
        out.extend_from_slice(&self.state.between);
    }

    fn end_list(&mut self, out: &mut Vec<u8>) {
        self.head(kind::LIST_QUICKLIST_2, out);
        let buffered = std::mem::take(&mut self.buffered);
        let (mut nodes, mut count) = (Vec::new(), 0);
        let mut packed = listpack::Builder::default();
        let mut put = |encoder: &mut Encoder, container: u64, node: &[u8]| {
            length(container, &mut nodes);
            encoder.string(node, &mut nodes);
            count += 1;
        };
        for (item, _) in buffered.iter() {
            let is_plain = item.len() >= PLAIN_BYTES;
            let is_full = packed.len() + item.len() + 10 > NODE_BYTES;
            if !packed.is_empty() && (is_full || is_plain) {
                put(self, 2, &packed.finish());
            }
            match is_plain {
                true => put(self, 1, item),
                false => packed.push(item),
            }
        }
        if !packed.is_empty() {
            put(self, 2, &packed.finish());
        }
        length(count, out);
        out.extend_from_slice(&nodes);
        self.buffered = buffered;
        self.buffered.clear();
    }

    /// A set that is still buffered has only integers.
    fn end_intset(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.head(kind::SET_INTSET, out);
        let numbers = self
            .buffered
            .iter()
            .filter_map(|(text, _)| num::parse_i64(text));
        let mut numbers: Vec<i64> = numbers.collect();
        numbers.sort_unstable();
        let bytes = intset::build(&numbers)?;
        self.string(&bytes, out);
        self.buffered.clear();
        Ok(())
    }

    fn end_listpack(&mut self, number: u8, out: &mut Vec<u8>) {
        self.head(number, out);
        let mut packed = listpack::Builder::default();
        let mut text = Vec::new();
        for (element, score) in self.buffered.iter() {
            packed.push(element);
            if number == kind::ZSET_LISTPACK {
                text.clear();
                num::format_f64(score, &mut text);
                packed.push(&text);
            }
        }
        self.string(&packed.finish(), out);
        self.buffered.clear();
    }

    /// The elements of small sorted sets must be ordered.
    fn sort_by_score(&mut self) {
        let mut elements: Vec<(&[u8], f64)> = self.buffered.iter().collect();
        elements.sort_by(|(a, x), (b, y)| x.total_cmp(y).then(a.cmp(b)));
        let mut sorted = Buffered::default();
        for (member, score) in elements {
            sorted.push(member, score);
        }
        self.buffered = sorted;
    }
}

impl State {
    /// Whether an element can be buffered together with the others.
    fn can_buffer(&mut self, element: Element<'_>, buffered_bytes: usize) -> bool {
        match element {
            Element::Item(item) => buffered_bytes + item.len() <= MAX_BUFFERED_BYTES,
            Element::Member { .. } if self.first_ms.is_some() => false,
            Element::Member { member, .. } => {
                self.integers &= num::parse_i64(member).is_some();
                self.integers && self.count <= INTSET_MEMBERS
            }
            Element::Scored(_, member) => {
                self.count <= LISTPACK_ELEMENTS && member.len() <= LISTPACK_ELEMENT_BYTES
            }
            Element::Field { field, value, .. } => {
                self.first_ms == UnixMs::NONE
                    && self.count <= LISTPACK_ELEMENTS
                    && field.len().max(value.len()) <= LISTPACK_ELEMENT_BYTES
            }
            Element::String(_) | Element::Stream(_) | Element::Module(_) => false,
        }
    }
}

/// The type number of values that are written element by element.
pub(super) fn written_plain(value_type: ValueType) -> u8 {
    match value_type {
        ValueType::String => kind::STRING,
        ValueType::List => kind::LIST,
        ValueType::Set => kind::SET,
        ValueType::Zset => kind::ZSET_2,
        ValueType::Hash => kind::HASH,
        ValueType::Stream => kind::STREAM_LISTPACKS_2,
        ValueType::Json
        | ValueType::SortedInt
        | ValueType::Bloom
        | ValueType::Cuckoo
        | ValueType::CountMinSketch
        | ValueType::TopK
        | ValueType::TDigest => kind::MODULE_2,
    }
}

/// Writes a length.
pub fn length(len: u64, out: &mut Vec<u8>) {
    match len {
        0..=0x3F => out.push(len as u8),
        0x40..=0x3FFF => out.extend_from_slice(&[0x40 | (len >> 8) as u8, len as u8]),
        _ => match u32::try_from(len) {
            Ok(len) => {
                out.push(0x80);
                out.extend_from_slice(&len.to_be_bytes());
            }
            Err(_) => {
                out.push(0x81);
                out.extend_from_slice(&len.to_be_bytes());
            }
        },
    }
}

fn put_number(number: i32, out: &mut Vec<u8>) {
    if let Ok(number) = i8::try_from(number) {
        out.push(0xC0);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        out.push(0xC1);
        out.extend_from_slice(&number.to_le_bytes());
    } else {
        out.push(0xC2);
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// The version of a file or payload.
pub fn version(has_times: bool) -> u16 {
    match has_times {
        true => VERSION_WITH_TIMES,
        false => VERSION_WRITTEN,
    }
}

/// The magic bytes and version of a file, in which hashes may have fields with times.
pub fn magic(has_times: bool) -> [u8; 9] {
    let mut magic = *b"REDIS0000";
    let digits = version(has_times).to_string();
    for (place, digit) in magic.iter_mut().rev().zip(digits.bytes().rev()) {
        *place = digit;
    }
    magic
}
