//! Conversion of replies to Lua values and back.

use super::host::{MAX_VALUES, TABLE_COST, as_number};
use super::watch::Work;
use crate::resp::Reply;
use mlua::{Lua, Table, Value};

/// Deepest nesting of tables in a reply.
const MAX_DEPTH: usize = 1000;

/// The table for an error reply; `text` begins with the error code.
pub fn error_table(lua: &Lua, text: &[u8], counted: bool) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    if counted {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(table)
}

/// The Lua value of a reply of this server.
pub fn from_reply(lua: &Lua, bytes: &[u8]) -> mlua::Result<Value> {
    let (at, work) = (0, Work::new(lua));
    let mut input = Input {
        lua,
        bytes,
        at,
        work,
    };
    input.value()
}

struct Input<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
    at: usize,
    work: Work<'a>,
}

impl Input<'_> {
    fn line(&mut self) -> (u8, &[u8]) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        self.at += end;
        let line = rest.get(..end.saturating_sub(2)).unwrap_or_default();
        match line.split_first() {
            Some((kind, line)) => (*kind, line),
            None => (b'_', &[]),
        }
    }

    fn string(&mut self, len: i64) -> &[u8] {
        let len = usize::try_from(len).unwrap_or(0);
        let from = self.at;
        self.at += len + 2;
        self.bytes.get(from..from + len).unwrap_or_default()
    }

    fn value(&mut self) -> mlua::Result<Value> {
        let lua = self.lua;
        self.work.add(1)?;
        let (kind, line) = self.line();
        let number = || crate::base::num::parse_i64(line).unwrap_or(0);
        Ok(match kind {
            b':' => Value::Number(number() as f64),
            b'$' | b'*' if line == b"-1" => Value::Boolean(false),
            b'$' => {
                let len = number();
                Value::String(lua.create_string(self.string(len))?)
            }
            b'+' => field(lua, "ok", Value::String(lua.create_string(line)?))?,
            b'-' => Value::Table(error_table(lua, line, true)?),
            b'*' | b'>' => {
                let count = number();
                let room = usize::try_from(count).unwrap_or(0).min(1 << 16);
                let table = lua.create_table_with_capacity(room, 0)?;
                for i in 1..=count {
                    table.raw_set(i, self.value()?)?;
                }
                Value::Table(table)
            }
            b'%' => {
                let count = number();
                let table = lua.create_table()?;
                for _ in 0..count {
                    let (key, value) = (self.value()?, self.value()?);
                    table.raw_set(key, value)?;
                }
                field(lua, "map", Value::Table(table))?
            }
            b'~' => {
                let count = number();
                let table = lua.create_table()?;
                for _ in 0..count {
                    table.raw_set(self.value()?, true)?;
                }
                field(lua, "set", Value::Table(table))?
            }
            b',' => {
                let double = crate::base::num::parse_f64(line).unwrap_or(f64::NAN);
                field(lua, "double", Value::Number(double))?
            }
            b'(' => field(lua, "big_number", Value::String(lua.create_string(line)?))?,
            b'=' => {
                let len = number();
                let text = self.string(len);
                let (format, text) = text.split_at_checked(4).unwrap_or((b"txt:", text));
                let table = lua.create_table()?;
                table.raw_set("format", lua.create_string(&format[..3])?)?;
                table.raw_set("string", lua.create_string(text)?)?;
                field(lua, "verbatim_string", Value::Table(table))?
            }
            b'#' => Value::Boolean(line == b"t"),
            b'|' => {
                // Attributes of the next reply are skipped.
                for _ in 0..number().saturating_mul(2) {
                    self.value()?;
                }
                self.value()?
            }
            _ => Value::Nil,
        })
    }
}

fn field(lua: &Lua, name: &str, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

/// The names of the fields of tables that represent replies.
pub struct Fields {
    err: mlua::String,
    ok: mlua::String,
    double: mlua::String,
    map: mlua::String,
    set: mlua::String,
    big_number: mlua::String,
    verbatim_string: mlua::String,
}

impl Fields {
    /// Creates the names as strings of an interpreter.
    pub fn new(lua: &Lua) -> mlua::Result<Fields> {
        let name = |name: &str| lua.create_string(name);
        Ok(Fields {
            err: name("err")?,
            ok: name("ok")?,
            double: name("double")?,
            map: name("map")?,
            set: name("set")?,
            big_number: name("big_number")?,
            verbatim_string: name("verbatim_string")?,
        })
    }
}

/// Writes the reply for a script's result; `resp3` is the script's choice with
/// `redis.setresp`. Returns the errors in it that have not been counted yet.
///
/// # Errors
/// The reply exceeds `max` bytes, or Lua failed.
pub fn to_reply(
    lua: &Lua,
    value: &Value,
    fields: &Fields,
    reply: &mut Reply,
    resp3: bool,
    max: usize,
) -> mlua::Result<Vec<Vec<u8>>> {
    let end = reply.len().saturating_add(max);
    let mut output = Output {
        fields,
        reply,
        resp3,
        end,
        values: 0,
        work: Work::new(lua),
        errors: Vec::new(),
    };
    output.value(value, 0)?;
    Ok(output.errors)
}

struct Output<'a> {
    fields: &'a Fields,
    reply: &'a mut Reply,
    resp3: bool,
    end: usize,
    values: u32,
    work: Work<'a>,
    errors: Vec<Vec<u8>>,
}

impl Output<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.values += 1;
        self.work.add(1)?;
        if self.reply.len() > self.end || self.values > MAX_VALUES {
            return Err(mlua::Error::MemoryError("the reply is too long".into()));
        }
        match value {
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Boolean(on) if self.resp3 => self.reply.boolean(*on),
            Value::Boolean(true) => self.reply.int(1),
            Value::Boolean(false) => self.reply.null(),
            Value::Integer(n) => self.reply.int(*n),
            Value::Number(n) => self.reply.int(as_c_casts(*n)),
            Value::Table(_) if depth >= MAX_DEPTH => {
                self.error(b"ERR reached lua stack limit");
            }
            Value::Table(table) => self.table(table, depth + 1)?,
            _ => self.reply.null(),
        }
        Ok(())
    }

    fn error(&mut self, text: &[u8]) {
        let end = text.iter().rposition(|b| !matches!(b, b'\r' | b'\n'));
        let text = &text[..end.map_or(0, |end| end + 1)];
        self.errors.push(text.to_vec());
        self.reply.error_bytes(text);
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        self.values += TABLE_COST;
        let fields = self.fields;
        if let Value::String(text) = table.raw_get(&fields.err)? {
            self.error(&text.as_bytes());
            let counted = table.raw_get::<Value>("ignore_error_stats_update")?;
            if counted == Value::Boolean(true) {
                self.errors.pop();
            }
            return Ok(());
        }
        if let Value::String(text) = table.raw_get(&fields.ok)? {
            self.reply.simple_bytes(&text.as_bytes());
            return Ok(());
        }
        if let Some(double) = as_number(&table.raw_get(&fields.double)?) {
            self.reply.double(double);
            return Ok(());
        }
        if let Value::Table(map) = table.raw_get(&fields.map)? {
            self.reply.map(self.count(&map)?);
            return map.for_each(|key: Value, value: Value| {
                self.value(&key, depth)?;
                self.value(&value, depth)
            });
        }
        if let Value::Table(set) = table.raw_get(&fields.set)? {
            self.reply.set(self.count(&set)?);
            return set.for_each(|key: Value, _: Value| self.value(&key, depth));
        }
        if let Value::String(number) = table.raw_get(&fields.big_number)? {
            let digits = number.to_string_lossy().replace(['\r', '\n'], " ");
            self.reply.big_number(&digits);
            return Ok(());
        }
        if let Value::Table(verbatim) = table.raw_get(&fields.verbatim_string)?
            && let Value::String(format) = verbatim.raw_get("format")?
            && let Value::String(text) = verbatim.raw_get("string")?
        {
            self.reply
                .verbatim(&format.to_string_lossy(), &text.as_bytes());
            return Ok(());
        }
        let mut len = 0;
        while !table.raw_get::<Value>(len + 1)?.is_nil() {
            self.work.add(1)?;
            len += 1;
        }
        self.reply.array(len);
        for i in 1..=len {
            self.value(&table.raw_get(i)?, depth)?;
        }
        Ok(())
    }

    fn count(&self, table: &Table) -> mlua::Result<usize> {
        let mut count = 0;
        table.for_each(|_: Value, _: Value| {
            count += 1;
            self.work.add(1)
        })?;
        Ok(count)
    }
}

/// A double cast to an integer as in C: numbers out of range become the least integer.
fn as_c_casts(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match (-LIMIT..LIMIT).contains(&number) {
        true => number as i64,
        false => i64::MIN,
    }
}
