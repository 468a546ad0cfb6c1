//! Rust functions that scripts can call: access to the arguments, and errors in the
//! words of Lua's own library.

use super::raw;
use super::watch::{PIECE, Work};
use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Value};

/// An error of a function, which the script can catch.
#[derive(Debug)]
pub enum Raise {
    /// A text, with the position in the script prepended.
    At(Vec<u8>),
    /// Any value, unchanged.
    Value(Value),
    /// Lua itself failed, most likely for lack of memory.
    Lua(mlua::Error),
}

impl Raise {
    /// A text with the position in the script prepended.
    pub fn at(text: impl Into<Vec<u8>>) -> Raise {
        Raise::At(text.into())
    }
}

impl From<mlua::Error> for Raise {
    fn from(error: mlua::Error) -> Raise {
        Raise::Lua(error)
    }
}

/// Most bytes of an encoded value.
const MAX_ENCODED: usize = 256 << 20;
/// Most values in an encoded value or a reply: a table that contains the same table
/// twice, and so on, would grow exponentially.
pub(super) const MAX_VALUES: u32 = 16 << 20;
/// Most values that a function returns: Rust can hold only a few thousand Lua values.
const MAX_RESULTS: usize = 4000;
/// The count of a table in addition to its elements.
pub(super) const TABLE_COST: u32 = 8;

/// A value that is being encoded.
pub struct Encoded<'a> {
    bytes: Vec<u8>,
    values: u32,
    /// Counts the work of the encoding.
    pub work: &'a Work<'a>,
}

impl<'a> Encoded<'a> {
    /// An empty buffer.
    pub fn new(work: &'a Work<'a>) -> Encoded<'a> {
        Encoded {
            bytes: Vec::new(),
            values: 0,
            work,
        }
    }

    /// Counts the next value against the limits.
    pub fn count(&mut self, value: &Value) -> Returned<()> {
        self.values += if value.is_table() { TABLE_COST } else { 1 };
        let long = match value {
            Value::String(text) => text.as_bytes().len() / PIECE,
            _ => 0,
        };
        self.progress(1 + long)
    }

    /// Counts work on a value whose encoding takes long, and checks the limits.
    pub fn progress(&mut self, units: usize) -> Returned<()> {
        self.work.add(units)?;
        match self.bytes.len() > MAX_ENCODED || self.values > MAX_VALUES {
            true => Err(Raise::at("not enough memory")),
            false => Ok(()),
        }
    }
}

impl std::ops::Deref for Encoded<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl std::ops::DerefMut for Encoded<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

/// Adds a value to a function's results.
pub(super) fn add_result(results: &mut Vec<Value>, value: Value) -> Returned<()> {
    if results.len() >= MAX_RESULTS {
        return Err(Raise::at("too many results to unpack"));
    }
    results.push(value);
    Ok(())
}

/// The result of a function.
pub type Returned<T> = std::result::Result<T, Raise>;

/// The arguments of a call.
pub struct Args<'a> {
    /// The interpreter.
    pub lua: &'a Lua,
    /// The function's name, for errors.
    pub name: &'static str,
    /// The arguments.
    pub values: Vec<Value>,
    /// Counts the work of the call.
    pub work: Work<'a>,
}

/// A Lua function that runs `run`.
pub fn function<R: IntoLuaMulti>(
    lua: &Lua,
    name: &'static str,
    run: impl Fn(&Args<'_>) -> Returned<R> + 'static,
) -> mlua::Result<Function> {
    let host = lua.create_function(move |lua, values: MultiValue| {
        let args = Args {
            lua,
            name,
            values: values.into_iter().collect(),
            work: Work::new(lua),
        };
        answer(lua, run(&args))
    })?;
    raw::closure(lua, raw::call_host, host)
}

/// The result of a call in the form that [`raw::call_host`] expects.
pub fn answer<R: IntoLuaMulti>(lua: &Lua, returned: Returned<R>) -> mlua::Result<MultiValue> {
    let raised = match returned {
        Ok(results) => {
            let mut results = results.into_lua_multi(lua)?;
            results.push_front(Value::Boolean(true));
            return Ok(results);
        }
        Err(Raise::Lua(error)) => return Err(error),
        Err(Raise::Value(value)) => (false, value, false),
        Err(Raise::At(text)) => (false, Value::String(lua.create_string(&text)?), true),
    };
    raised.into_lua_multi(lua)
}

impl Args<'_> {
    /// The number of arguments.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The `i`-th argument, counted from 1; nil if missing.
    pub fn get(&self, i: usize) -> &Value {
        self.values.get(i - 1).unwrap_or(&Value::Nil)
    }

    /// The error for an invalid `i`-th argument.
    pub fn bad(&self, i: usize, why: &str) -> Raise {
        let name = self.name;
        Raise::at(format!("bad argument #{i} to '{name}' ({why})"))
    }

    fn wrong_type(&self, i: usize, expected: &str) -> Raise {
        let got = match self.values.get(i - 1) {
            Some(value) => type_name(value),
            None => "no value",
        };
        self.bad(i, &format!("{expected} expected, got {got}"))
    }

    /// A string, or a number converted to one.
    pub fn string(&self, i: usize) -> Returned<mlua::String> {
        match self.get(i) {
            Value::String(string) => Ok(string.clone()),
            number @ (Value::Integer(_) | Value::Number(_)) => {
                let string = self.lua.coerce_string(number.clone())?;
                string.ok_or_else(|| self.wrong_type(i, "string"))
            }
            _ => Err(self.wrong_type(i, "string")),
        }
    }

    /// A number, or a string that can be converted to one.
    pub fn number(&self, i: usize) -> Returned<f64> {
        match self.get(i) {
            Value::Integer(n) => Ok(*n as f64),
            Value::Number(n) => Ok(*n),
            text @ Value::String(_) => {
                let number = self.lua.coerce_number(text.clone())?;
                number.ok_or_else(|| self.wrong_type(i, "number"))
            }
            _ => Err(self.wrong_type(i, "number")),
        }
    }

    /// An integer; fractions are truncated.
    pub fn integer(&self, i: usize) -> Returned<i64> {
        Ok(self.number(i)? as i64)
    }

    /// An integer, or `default` if the argument is missing.
    pub(super) fn integer_or(&self, i: usize, default: i64) -> Returned<i64> {
        match self.get(i) {
            Value::Nil => Ok(default),
            _ => self.integer(i),
        }
    }
}

/// Lua's name for the type of a value.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::UserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}

/// A number as `f64`; `None` for other types.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Number(n) => Some(*n),
        _ => None,
    }
}
