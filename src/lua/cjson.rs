//! The library `cjson`: JSON with configurable settings.

use super::host::{Args, Encoded, Raise, Returned, as_number, function, type_name};
use super::number::write_g;
use super::watch::{PIECE, Work};
use mlua::{Lua, MultiValue, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

/// Deepest nesting, whatever the settings, since values are encoded and decoded by
/// recursion.
const MAX_DEPTH: i64 = 2000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Off,
    On,
    Null,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_max_depth: i64,
    decode_max_depth: i64,
    encode_invalid: Invalid,
    decode_invalid: Invalid,
    keep_buffer: bool,
    precision: i64,
}

const DEFAULTS: Settings = Settings {
    sparse_convert: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_max_depth: 1000,
    decode_max_depth: 1000,
    encode_invalid: Invalid::Off,
    decode_invalid: Invalid::On,
    keep_buffer: true,
    precision: 14,
};

/// The settings of a library, shared by all clones.
#[derive(Clone)]
pub struct Shared(Rc<Cell<Settings>>);

impl Shared {
    /// The default settings.
    pub fn new() -> Shared {
        Shared(Rc::new(Cell::new(DEFAULTS)))
    }

    /// Restores the default settings.
    pub fn reset(&self) {
        self.0.set(DEFAULTS);
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = self.0.get();
        change(&mut settings);
        self.0.set(settings);
        settings
    }
}

/// The library's table, with these settings.
pub fn library(lua: &Lua, shared: &Shared) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let add = |name: &'static str,
               run: fn(&Args<'_>, &Shared) -> Returned<MultiValue>|
     -> mlua::Result<()> {
        let shared = shared.clone();
        table.raw_set(name, function(lua, name, move |args| run(args, &shared))?)
    };
    add("encode", encode)?;
    add("decode", decode)?;
    add("encode_sparse_array", |args, shared| {
        at_most(args, 3)?;
        let convert = switch(args, 1, &["off", "on"])?;
        let ratio = bounded(args, 2, 0, i32::MAX)?;
        let safe = bounded(args, 3, 0, i32::MAX)?;
        let now = shared.change(|s| {
            s.sparse_convert = convert.map_or(s.sparse_convert, |c| c == 1);
            s.sparse_ratio = ratio.unwrap_or(s.sparse_ratio);
            s.sparse_safe = safe.unwrap_or(s.sparse_safe);
        });
        Ok([
            Value::Boolean(now.sparse_convert),
            Value::Integer(now.sparse_ratio),
            Value::Integer(now.sparse_safe),
        ]
        .into_iter()
        .collect())
    })?;
    add("encode_max_depth", |args, shared| {
        at_most(args, 1)?;
        let depth = bounded(args, 1, 1, i32::MAX)?;
        let now = shared.change(|s| s.encode_max_depth = depth.unwrap_or(s.encode_max_depth));
        one(Value::Integer(now.encode_max_depth))
    })?;
    add("decode_max_depth", |args, shared| {
        at_most(args, 1)?;
        let depth = bounded(args, 1, 1, i32::MAX)?;
        let now = shared.change(|s| s.decode_max_depth = depth.unwrap_or(s.decode_max_depth));
        one(Value::Integer(now.decode_max_depth))
    })?;
    add("encode_number_precision", |args, shared| {
        at_most(args, 1)?;
        let precision = bounded(args, 1, 1, 14)?;
        let now = shared.change(|s| s.precision = precision.unwrap_or(s.precision));
        one(Value::Integer(now.precision))
    })?;
    add("encode_keep_buffer", |args, shared| {
        at_most(args, 1)?;
        let keep = switch(args, 1, &["off", "on"])?;
        let now = shared.change(|s| s.keep_buffer = keep.map_or(s.keep_buffer, |k| k == 1));
        one(Value::Boolean(now.keep_buffer))
    })?;
    add("encode_invalid_numbers", |args, shared| {
        at_most(args, 1)?;
        let how = switch(args, 1, &["off", "on", "null"])?;
        let now = shared.change(|s| s.encode_invalid = how.map_or(s.encode_invalid, invalid));
        match now.encode_invalid {
            Invalid::Null => one(Value::String(args.lua.create_string("null")?)),
            other => one(Value::Boolean(other == Invalid::On)),
        }
    })?;
    add("decode_invalid_numbers", |args, shared| {
        at_most(args, 1)?;
        let how = switch(args, 1, &["off", "on"])?;
        let now = shared.change(|s| s.decode_invalid = how.map_or(s.decode_invalid, invalid));
        one(Value::Boolean(now.decode_invalid == Invalid::On))
    })?;
    add("new", |args, _| {
        one(Value::Table(library(args.lua, &Shared::new())?))
    })?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

fn one(value: Value) -> Returned<MultiValue> {
    Ok([value].into_iter().collect())
}

fn invalid(choice: usize) -> Invalid {
    [Invalid::Off, Invalid::On, Invalid::Null][choice.min(2)]
}

fn at_most(args: &Args<'_>, count: usize) -> Returned<()> {
    match args.len() > count {
        true => Err(args.bad(count + 1, "found too many arguments")),
        false => Ok(()),
    }
}

fn bounded(args: &Args<'_>, i: usize, min: i32, max: i32) -> Returned<Option<i64>> {
    if args.get(i).is_nil() {
        return Ok(None);
    }
    let value = args.integer(i)?;
    if value < i64::from(min) || value > i64::from(max) {
        let why = format!("expected integer between {min} and {max}");
        return Err(args.bad(1, &why));
    }
    Ok(Some(value))
}

/// One of several words, or a boolean for the first two.
fn switch(args: &Args<'_>, i: usize, words: &[&str]) -> Returned<Option<usize>> {
    match args.get(i) {
        Value::Nil => Ok(None),
        Value::Boolean(on) => Ok(Some(usize::from(*on))),
        _ => {
            let word = args.string(i)?;
            let found = words.iter().position(|w| word.as_bytes() == w.as_bytes());
            let shown = word.to_string_lossy();
            found
                .map(Some)
                .ok_or_else(|| args.bad(i, &format!("invalid option '{shown}'")))
        }
    }
}

fn encode(args: &Args<'_>, shared: &Shared) -> Returned<MultiValue> {
    if args.len() != 1 {
        return Err(args.bad(1, "expected 1 argument"));
    }
    let mut out = Encoded::new(&args.work);
    let settings = shared.0.get();
    write(&mut out, args.get(1), &settings, 0)?;
    one(Value::String(args.lua.create_string(&*out)?))
}

fn cannot(value: &Value, why: &str) -> Raise {
    Raise::at(format!("Cannot serialise {}: {why}", type_name(value)))
}

fn write(out: &mut Encoded<'_>, value: &Value, settings: &Settings, depth: i64) -> Returned<()> {
    out.count(value)?;
    match value {
        Value::String(text) => write_text(out, &text.as_bytes())?,
        Value::Integer(_) | Value::Number(_) => write_number(out, value, settings)?,
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Table(table) => {
            let depth = depth + 1;
            if depth > settings.encode_max_depth.min(MAX_DEPTH) {
                let text = format!("Cannot serialise, excessive nesting ({depth})");
                return Err(Raise::at(text));
            }
            match array_len(out.work, value, table, settings)? {
                Some(len) => write_array(out, table, len, settings, depth)?,
                None => write_object(out, table, settings, depth)?,
            }
        }
        other => return Err(cannot(other, "type not supported")),
    }
    Ok(())
}

/// The length of the array that a table represents; `None` for an object.
fn array_len(
    work: &Work<'_>,
    value: &Value,
    table: &Table,
    settings: &Settings,
) -> Returned<Option<i64>> {
    let (mut count, mut highest) = (0i64, 0i64);
    let mut is_array = true;
    table.for_each(|key: Value, _: Value| {
        work.add(1)?;
        match as_number(&key) {
            Some(n) if n >= 1.0 && n.floor() == n => {
                highest = highest.max(n as i64);
                count += 1;
            }
            _ => is_array = false,
        }
        Ok(())
    })?;
    if !is_array || highest == 0 {
        return Ok(None);
    }
    let sparse = settings.sparse_ratio > 0
        && highest > count.saturating_mul(settings.sparse_ratio)
        && highest > settings.sparse_safe;
    match (sparse, settings.sparse_convert) {
        (false, _) => Ok(Some(highest)),
        (true, true) => Ok(None),
        (true, false) => Err(cannot(value, "excessively sparse array")),
    }
}

fn write_array(
    out: &mut Encoded<'_>,
    table: &Table,
    len: i64,
    settings: &Settings,
    depth: i64,
) -> Returned<()> {
    out.push(b'[');
    for i in 1..=len {
        if i > 1 {
            out.push(b',');
        }
        write(out, &table.raw_get::<Value>(i)?, settings, depth)?;
    }
    out.push(b']');
    Ok(())
}

fn write_object(
    out: &mut Encoded<'_>,
    table: &Table,
    settings: &Settings,
    depth: i64,
) -> Returned<()> {
    out.push(b'{');
    let mut first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        match &key {
            Value::String(text) => write_text(out, &text.as_bytes())?,
            Value::Integer(_) | Value::Number(_) => {
                out.push(b'"');
                write_number(out, &key, settings)?;
                out.push(b'"');
            }
            _ => return Err(cannot(&key, "table key must be a number or string")),
        }
        out.push(b':');
        write(out, &value, settings, depth)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_number(out: &mut Vec<u8>, value: &Value, settings: &Settings) -> Returned<()> {
    let number = as_number(value).unwrap_or_default();
    if !number.is_finite() {
        match settings.encode_invalid {
            Invalid::Off => return Err(cannot(value, "must not be NaN or Inf")),
            Invalid::Null => {
                out.extend_from_slice(b"null");
                return Ok(());
            }
            Invalid::On => {}
        }
    }
    write_g(out, number, settings.precision as usize);
    Ok(())
}

/// Bytes of a text that are encoded or decoded between two looks at the limits.
const STRIDE: usize = 256 * PIECE;

fn write_text(out: &mut Encoded<'_>, text: &[u8]) -> Returned<()> {
    out.push(b'"');
    for stride in text.chunks(STRIDE) {
        // Encoding takes longer by far than copying.
        out.progress(stride.len().div_ceil(PIECE) * 4)?;
        write_stride(out, stride);
    }
    out.push(b'"');
    Ok(())
}

fn write_stride(out: &mut Vec<u8>, text: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in text {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            b'/' => b'/',
            8 => b'b',
            9 => b't',
            10 => b'n',
            12 => b'f',
            13 => b'r',
            0..32 | 127 => {
                let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
                continue;
            }
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
}

fn decode(args: &Args<'_>, shared: &Shared) -> Returned<MultiValue> {
    if args.len() != 1 {
        return Err(args.bad(1, "expected 1 argument"));
    }
    let text = args.string(1)?;
    let text = text.as_bytes();
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(Raise::at("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut parser = Parser {
        lua: args.lua,
        work: &args.work,
        text: &text,
        at: 0,
        depth: 0,
        settings: shared.0.get(),
    };
    let token = parser.next()?;
    let value = parser.value(token)?;
    match parser.next()? {
        (Token::End, _) => one(value),
        token => Err(parser.unexpected("the end", &token)),
    }
}

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Text(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

/// A token and its position.
type Found = (Token, usize);

struct Parser<'a> {
    lua: &'a Lua,
    work: &'a Work<'a>,
    text: &'a [u8],
    at: usize,
    depth: i64,
    settings: Settings,
}

impl Parser<'_> {
    fn unexpected(&self, expected: &str, (token, at): &Found) -> Raise {
        let found = token.name();
        let character = at + 1;
        Raise::at(format!(
            "Expected {expected} but found {found} at character {character}"
        ))
    }

    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// The next token.
    fn next(&mut self) -> Returned<Found> {
        let before = self.at;
        let found = self.token()?;
        self.work.add(1 + (self.at - before) / PIECE)?;
        Ok(found)
    }

    /// The next token; a NUL ends the text.
    fn token(&mut self) -> Returned<Found> {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let simple = match self.peek() {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            0 => return Ok((Token::End, at)),
            b'"' => return self.text_token(),
            b'-' | b'0'..=b'9' => {
                let refused =
                    self.settings.decode_invalid == Invalid::Off && self.is_invalid_number();
                return Ok(match refused {
                    true => (Token::Error("invalid number"), at),
                    false => self.number_token(),
                });
            }
            _ => return Ok(self.word_token()),
        };
        self.at += 1;
        Ok((simple, at))
    }

    fn word_token(&mut self) -> Found {
        let at = self.at;
        let rest = &self.text[at..];
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return (token, at);
            }
        }
        if self.settings.decode_invalid == Invalid::On && self.is_invalid_number() {
            return self.number_token();
        }
        (Token::Error("invalid token"), at)
    }

    /// Whether C would parse a number here that JSON does not allow.
    fn is_invalid_number(&self) -> bool {
        let rest = &self.text[self.at..];
        if rest.first() == Some(&b'+') {
            return true;
        }
        let rest = rest.strip_prefix(b"-").unwrap_or(rest);
        let starts = |word: &[u8]| {
            rest.get(..word.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(word))
        };
        match rest.first() {
            Some(b'0') => matches!(rest.get(1), Some(b'x' | b'X' | b'0'..=b'9')),
            Some(0..=b'9') | None => false,
            _ => starts(b"inf") || starts(b"nan"),
        }
    }

    fn number_token(&mut self) -> Found {
        let at = self.at;
        match c_number(&self.text[at..]) {
            Some((number, len)) => {
                self.at += len;
                (Token::Number(number), at)
            }
            None => (Token::Error("invalid number"), at),
        }
    }

    fn text_token(&mut self) -> Returned<Found> {
        let start = self.at;
        self.at += 1;
        let mut text = Vec::new();
        let mut counted = self.at;
        loop {
            if self.at - counted >= STRIDE {
                self.work.add(3 * STRIDE / PIECE)?;
                counted = self.at;
            }
            match self.peek() {
                b'"' => break,
                0 => return Ok((Token::Error("unexpected end of string"), self.at)),
                b'\\' => {
                    let at = self.at;
                    if let Err(error) = self.escape(&mut text) {
                        return Ok((Token::Error(error), at));
                    }
                }
                byte => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Ok((Token::Text(text), start))
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        let byte = self.text.get(self.at + 1).copied().unwrap_or(0);
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b't' => 9,
            b'n' => 10,
            b'f' => 12,
            b'r' => 13,
            b'u' => {
                let error = "invalid unicode escape code";
                let point = self.code_point().ok_or(error)?;
                push_utf8(text, point);
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        text.push(plain);
        self.at += 2;
        Ok(())
    }

    fn hex4(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        digits.iter().try_fold(0, |n, digit| {
            Some(n << 4 | char::from(*digit).to_digit(16)?)
        })
    }

    /// The character of a `\u` escape, or of two that form a surrogate pair.
    fn code_point(&mut self) -> Option<u32> {
        let first = self.hex4(self.at + 2)?;
        if first & 0xF800 != 0xD800 {
            self.at += 6;
            return Some(first);
        }
        let pair = self.text.get(self.at + 6..self.at + 8)?;
        if first & 0x400 != 0 || pair != b"\\u" {
            return None;
        }
        let second = self.hex4(self.at + 8)?;
        if second & 0xFC00 != 0xDC00 {
            return None;
        }
        self.at += 12;
        Some(0x1_0000 + ((first & 0x3FF) << 10) + (second & 0x3FF))
    }

    fn descend(&mut self) -> Returned<()> {
        self.depth += 1;
        if self.depth > self.settings.decode_max_depth.min(MAX_DEPTH) {
            let (depth, at) = (self.depth, self.at);
            return Err(Raise::at(format!(
                "Found too many nested data structures ({depth}) at character {at}"
            )));
        }
        Ok(())
    }

    fn value(&mut self, found: Found) -> Returned<Value> {
        Ok(match found.0 {
            Token::Text(text) => Value::String(self.lua.create_string(&text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(on) => Value::Boolean(on),
            Token::Null => Value::NULL,
            Token::ObjectBegin => self.object()?,
            Token::ArrayBegin => self.array()?,
            _ => return Err(self.unexpected("value", &found)),
        })
    }

    fn object(&mut self) -> Returned<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut found = self.next()?;
        if !matches!(found.0, Token::ObjectEnd) {
            loop {
                let Token::Text(key) = &found.0 else {
                    return Err(self.unexpected("object key string", &found));
                };
                let key = self.lua.create_string(key)?;
                found = self.next()?;
                if !matches!(found.0, Token::Colon) {
                    return Err(self.unexpected("colon", &found));
                }
                found = self.next()?;
                table.raw_set(key, self.value(found)?)?;
                found = self.next()?;
                match found.0 {
                    Token::ObjectEnd => break,
                    Token::Comma => found = self.next()?,
                    _ => return Err(self.unexpected("comma or object end", &found)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Returned<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut found = self.next()?;
        if !matches!(found.0, Token::ArrayEnd) {
            for i in 1.. {
                table.raw_set(i, self.value(found)?)?;
                found = self.next()?;
                match found.0 {
                    Token::ArrayEnd => break,
                    Token::Comma => found = self.next()?,
                    _ => return Err(self.unexpected("comma or array end", &found)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
}

/// Appends UTF-8, also for invalid code points.
fn push_utf8(text: &mut Vec<u8>, point: u32) {
    let tail = |shift: u32| 0x80 | (point >> shift & 0x3F) as u8;
    match point {
        0..0x80 => text.push(point as u8),
        0x80..0x800 => text.extend_from_slice(&[0xC0 | (point >> 6) as u8, tail(0)]),
        0x800..0x1_0000 => {
            text.extend_from_slice(&[0xE0 | (point >> 12) as u8, tail(6), tail(0)]);
        }
        _ => text.extend_from_slice(&[0xF0 | (point >> 18) as u8, tail(12), tail(6), tail(0)]),
    }
}

/// The longest number at the front of `text`, as parsed by C's `strtod`.
fn c_number(text: &[u8]) -> Option<(f64, usize)> {
    let negative = text.first() == Some(&b'-');
    let signed = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let body = &text[signed..];
    let sign = if negative { -1.0 } else { 1.0 };
    let starts = |word: &[u8]| {
        body.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    if starts(b"infinity") {
        return Some((sign * f64::INFINITY, signed + 8));
    }
    if starts(b"inf") {
        return Some((sign * f64::INFINITY, signed + 3));
    }
    if starts(b"nan") {
        return Some((f64::NAN.copysign(sign), signed + 3));
    }
    if starts(b"0x") && body.get(2).is_some_and(u8::is_ascii_hexdigit) {
        let (value, len) = hex_number(&body[2..]);
        return Some((sign * value, signed + 2 + len));
    }
    let digits = |from: usize| {
        let rest = body.get(from..).unwrap_or_default();
        rest.iter().take_while(|b| b.is_ascii_digit()).count()
    };
    let mut len = digits(0);
    let mut seen = len;
    if body.get(len) == Some(&b'.') {
        let decimals = digits(len + 1);
        if seen + decimals > 0 {
            seen += decimals;
            len += 1 + decimals;
        }
    }
    if seen == 0 {
        return None;
    }
    if matches!(body.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(body.get(len + 1), Some(b'-' | b'+')));
        let exponent = digits(len + 1 + sign);
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    let number: f64 = std::str::from_utf8(&body[..len]).ok()?.parse().ok()?;
    Some((sign * number, signed + len))
}

/// The hexadecimal number at the front of `text`, without its `0x`.
fn hex_number(text: &[u8]) -> (f64, usize) {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16).map(f64::from);
    let (mut value, mut at) = (0.0, 0);
    while let Some(d) = digit(at) {
        value = value * 16.0 + d;
        at += 1;
    }
    if text.get(at) == Some(&b'.') {
        let mut scale = 1.0 / 16.0;
        at += 1;
        while let Some(d) = digit(at) {
            value += d * scale;
            scale /= 16.0;
            at += 1;
        }
    }
    if matches!(text.get(at), Some(b'p' | b'P')) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'-' | b'+')));
        let rest = text.get(at + 1 + sign..).unwrap_or_default();
        let len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let exponent = std::str::from_utf8(&rest[..len]).ok();
        if let Some(exponent) = exponent.and_then(|e| e.parse::<i32>().ok()) {
            let exponent = if text.get(at + 1) == Some(&b'-') {
                -exponent
            } else {
                exponent
            };
            value *= 2f64.powi(exponent);
            at += 1 + sign + len;
        }
    }
    (value, at)
}
