//! The library `cmsgpack`: MessagePack.

use super::host::{Args, Encoded, Raise, Returned, add_result, as_number, function};
use super::watch::{PIECE, Work};
use mlua::{Lua, MultiValue, Table, Value};

/// Deeper tables are packed as nil.
const MAX_NESTING: usize = 16;
/// Deepest nesting that can be unpacked.
const MAX_DEPTH: usize = 2000;

/// The library's table.
pub fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", function(lua, "pack", pack)?)?;
    table.raw_set(
        "unpack",
        function(lua, "unpack", |args| unpack(args, 0, 0))?,
    )?;
    let one = function(lua, "unpack_one", |args| {
        unpack(args, 1, args.integer_or(2, 0)?)
    })?;
    table.raw_set("unpack_one", one)?;
    let limited = function(lua, "unpack_limit", |args| {
        unpack(args, args.integer(2)?, args.integer_or(3, 0)?)
    })?;
    table.raw_set("unpack_limit", limited)?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "The Kedis project")?;
    table.raw_set("_DESCRIPTION", "MessagePack for scripts")?;
    Ok(table)
}

fn pack(args: &Args<'_>) -> Returned<mlua::String> {
    if args.len() == 0 {
        return Err(args.bad(0, "MessagePack pack needs input."));
    }
    let mut out = Encoded::new(&args.work);
    for value in &args.values {
        pack_value(&mut out, value, 0)?;
    }
    Ok(args.lua.create_string(&*out)?)
}

fn pack_value(out: &mut Encoded<'_>, value: &Value, level: usize) -> Returned<()> {
    out.count(value)?;
    match value {
        Value::Boolean(false) => out.push(0xC2),
        Value::Boolean(true) => out.push(0xC3),
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                n @ 0..=31 => out.push(0xA0 | n as u8),
                n @ 32..=0xFF => out.extend_from_slice(&[0xD9, n as u8]),
                n => header(out, n, 0xDA, 0xDB),
            }
            out.extend_from_slice(&text);
        }
        Value::Integer(n) => pack_integer(out, *n),
        Value::Number(n) => pack_number(out, *n),
        Value::Table(table) if level < MAX_NESTING => pack_table(out, table, level)?,
        _ => out.push(0xC0),
    }
    Ok(())
}

/// Appends a type byte and a count of two or four bytes.
fn header(out: &mut Vec<u8>, count: usize, short: u8, long: u8) {
    match u16::try_from(count) {
        Ok(count) => {
            out.push(short);
            out.extend_from_slice(&count.to_be_bytes());
        }
        Err(_) => {
            out.push(long);
            out.extend_from_slice(&(count as u32).to_be_bytes());
        }
    }
}

fn pack_integer(out: &mut Vec<u8>, n: i64) {
    match n {
        -32..=127 => out.push(n as u8),
        128..=0xFF => out.extend_from_slice(&[0xCC, n as u8]),
        0x100..=0xFFFF => {
            out.push(0xCD);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        0x1_0000..=0xFFFF_FFFF => {
            out.push(0xCE);
            out.extend_from_slice(&(n as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xCF);
            out.extend_from_slice(&n.to_be_bytes());
        }
        -128..=-33 => out.extend_from_slice(&[0xD0, n as u8]),
        -0x8000..=-129 => {
            out.push(0xD1);
            out.extend_from_slice(&(n as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            out.push(0xD2);
            out.extend_from_slice(&(n as i32).to_be_bytes());
        }
        _ => {
            out.push(0xD3);
            out.extend_from_slice(&n.to_be_bytes());
        }
    }
}

fn pack_number(out: &mut Vec<u8>, n: f64) {
    if n as i64 as f64 == n && n < 9.2e18 {
        return pack_integer(out, n as i64);
    }
    let short = n as f32;
    if f64::from(short) == n {
        out.push(0xCA);
        out.extend_from_slice(&short.to_be_bytes());
    } else {
        out.push(0xCB);
        out.extend_from_slice(&n.to_be_bytes());
    }
}

fn pack_table(out: &mut Encoded<'_>, table: &Table, level: usize) -> Returned<()> {
    let mut count = 0usize;
    let mut highest = 0.0f64;
    let mut is_array = true;
    table.for_each(|key: Value, _: Value| {
        out.work.add(1)?;
        match as_number(&key) {
            Some(n) if n > 0.0 && n as i64 as f64 == n => highest = highest.max(n),
            _ => is_array = false,
        }
        count += 1;
        Ok(())
    })?;
    if is_array && count as f64 == highest {
        match count {
            0..=15 => out.push(0x90 | count as u8),
            _ => header(out, count, 0xDC, 0xDD),
        }
        for i in 1..=count {
            pack_value(out, &table.raw_get(i)?, level + 1)?;
        }
        return Ok(());
    }
    match count {
        0..=15 => out.push(0x80 | count as u8),
        _ => header(out, count, 0xDE, 0xDF),
    }
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        pack_value(out, &key, level + 1)?;
        pack_value(out, &value, level + 1)?;
    }
    Ok(())
}

fn unpack(args: &Args<'_>, limit: i64, offset: i64) -> Returned<MultiValue> {
    let data = args.string(1)?;
    let data = data.as_bytes();
    let all = limit == 0 && offset == 0;
    let start = match usize::try_from(offset) {
        Ok(start) if limit >= 0 => start,
        _ => {
            return Err(Raise::at(format!(
                "Invalid request to unpack with offset of {offset} and limit of {}.",
                data.len()
            )));
        }
    };
    let Some(rest) = data.get(start..) else {
        return Err(Raise::at(format!(
            "Start offset {start} greater than input length {}.",
            data.len()
        )));
    };
    let mut input = Input {
        lua: args.lua,
        work: &args.work,
        rest,
    };
    let mut results = Vec::new();
    while !input.rest.is_empty() && (all || (results.len() as i64) < limit) {
        let value = input.value(0)?;
        add_result(&mut results, value)?;
    }
    if !all {
        let next = match input.rest.len() {
            0 => -1.0,
            left => (data.len() - left) as f64,
        };
        results.insert(0, Value::Number(next));
    }
    Ok(results.into_iter().collect())
}

struct Input<'a> {
    lua: &'a Lua,
    work: &'a Work<'a>,
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Returned<&'a [u8]> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(Raise::at("Missing bytes in input.")),
        }
    }

    fn array<const N: usize>(&mut self) -> Returned<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// A count of 1, 2 or 4 bytes.
    fn count(&mut self, bytes: usize) -> Returned<usize> {
        let bytes = self.take(bytes)?;
        Ok(bytes.iter().fold(0, |n, b| n << 8 | usize::from(*b)))
    }

    fn string(&mut self, len: usize) -> Returned<Value> {
        self.work.add(len / PIECE)?;
        Ok(Value::String(self.lua.create_string(self.take(len)?)?))
    }

    fn value(&mut self, depth: usize) -> Returned<Value> {
        self.work.add(1)?;
        if depth > MAX_DEPTH {
            return Err(Raise::at("Too many nested values in input."));
        }
        let number = Value::Number;
        let kind = self.array::<1>()?[0];
        Ok(match kind {
            0x00..=0x7F => number(f64::from(kind)),
            0xE0..=0xFF => number(f64::from(kind as i8)),
            0x80..=0x8F => self.map(usize::from(kind & 0x0F), depth)?,
            0x90..=0x9F => self.list(usize::from(kind & 0x0F), depth)?,
            0xA0..=0xBF => self.string(usize::from(kind & 0x1F))?,
            0xC0 => Value::Nil,
            0xC2 => Value::Boolean(false),
            0xC3 => Value::Boolean(true),
            0xCA => number(f32::from_be_bytes(self.array()?).into()),
            0xCB => number(f64::from_be_bytes(self.array()?)),
            0xCC => number(u8::from_be_bytes(self.array()?).into()),
            0xCD => number(u16::from_be_bytes(self.array()?).into()),
            0xCE => number(u32::from_be_bytes(self.array()?).into()),
            0xD0 => number(i8::from_be_bytes(self.array()?).into()),
            0xD1 => number(i16::from_be_bytes(self.array()?).into()),
            0xD2 => number(i32::from_be_bytes(self.array()?).into()),
            0xCF | 0xD3 => number(i64::from_be_bytes(self.array()?) as f64),
            0xD9 => {
                let len = self.count(1)?;
                self.string(len)?
            }
            0xDA => {
                let len = self.count(2)?;
                self.string(len)?
            }
            0xDB => {
                let len = self.count(4)?;
                self.string(len)?
            }
            0xDC => {
                let len = self.count(2)?;
                self.list(len, depth)?
            }
            0xDD => {
                let len = self.count(4)?;
                self.list(len, depth)?
            }
            0xDE => {
                let len = self.count(2)?;
                self.map(len, depth)?
            }
            0xDF => {
                let len = self.count(4)?;
                self.map(len, depth)?
            }
            _ => return Err(Raise::at("Bad data format in input.")),
        })
    }

    fn list(&mut self, count: usize, depth: usize) -> Returned<Value> {
        let table = self.lua.create_table()?;
        for i in 1..=count {
            table.raw_set(i, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: usize, depth: usize) -> Returned<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            let why: &[u8] = match as_number(&key) {
                Some(number) if number.is_nan() => b"table index is NaN",
                None if key.is_nil() => b"table index is nil",
                _ => b"",
            };
            if !why.is_empty() {
                return Err(Raise::Value(Value::String(self.lua.create_string(why)?)));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
