//! The table `redis`, for scripts, functions, and libraries that are being loaded.

use super::header::{BAD_NAME, ScriptFlags, is_name};
use super::host::{Args, Raise, Returned, answer, as_number, function};
use super::watch::{PIECE, Watch};
use super::{Host, Resp3, convert, raw};
use crate::base::num;
use crate::resp::Reply;
use mlua::{Function, Lua, MultiValue, Table, Value};
use sha1::{Digest, Sha1};
use std::cell::RefCell;
use std::rc::Rc;

/// The first argument of the host's function: which operation the script requests.
const CALL: i64 = 1;
const PCALL: i64 = 2;
const MAY_CALL: i64 = 3;
const SET_REPL: i64 = 4;

/// The bit of `redis.set_repl` for replicas.
const REPL_REPLICA: i64 = 2;

/// Longest line that `redis.log` writes.
const MAX_LOG_LINE: usize = 1024;

/// A function that a library has registered.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The function's name.
    pub name: Vec<u8>,
    /// Its description.
    pub description: Option<Vec<u8>>,
    /// Its flags.
    pub flags: ScriptFlags,
}

/// The functions of the table, and their shared state.
pub struct Api {
    lua: Lua,
    /// Holds the host's function at index 1 while a script runs.
    pub slot: Table,
    /// The version set by `redis.setresp`.
    pub resp3: Resp3,
    /// The functions registered by the library that is being loaded; `None` outside of
    /// loading.
    loading: Rc<RefCell<Option<Vec<Loaded>>>>,
    /// Their Lua functions, by name. Rust can hold only few references to Lua values.
    callbacks: Rc<RefCell<Table>>,
}

impl Api {
    /// For an interpreter.
    pub fn new(lua: &Lua) -> mlua::Result<Api> {
        Ok(Api {
            lua: lua.clone(),
            slot: lua.create_table()?,
            resp3: Resp3::default(),
            loading: Rc::default(),
            callbacks: Rc::new(RefCell::new(lua.create_table()?)),
        })
    }

    /// The table for EVAL scripts.
    pub(super) fn for_scripts(&self, version: &str) -> mlua::Result<Table> {
        let (lua, table) = (&self.lua, self.for_functions(version)?);
        let yes = function(lua, "replicate_commands", |_| Ok(true))?;
        table.raw_set("replicate_commands", yes)?;
        table.raw_set("breakpoint", function(lua, "breakpoint", |_| Ok(false))?)?;
        table.raw_set("debug", function(lua, "debug", |_| Ok(()))?)?;
        Ok(table)
    }

    /// The table for functions.
    pub fn for_functions(&self, version: &str) -> mlua::Result<Table> {
        let (lua, table) = (&self.lua, self.basic(version)?);
        for (name, tag) in [
            ("call", CALL),
            ("pcall", PCALL),
            ("acl_check_cmd", MAY_CALL),
            ("set_repl", SET_REPL),
        ] {
            let call = raw::closure(lua, raw::call_host, (&self.slot, tag))?;
            table.raw_set(name, call)?;
        }
        for (name, value) in [
            ("REPL_NONE", 0),
            ("REPL_AOF", 1),
            ("REPL_SLAVE", REPL_REPLICA),
            ("REPL_REPLICA", REPL_REPLICA),
            ("REPL_ALL", 3),
        ] {
            table.raw_set(name, value)?;
        }
        let resp3 = self.resp3.clone();
        let setresp = function(lua, "setresp", move |args| setresp(args, &resp3))?;
        table.raw_set("setresp", setresp)?;
        let error_reply = function(lua, "error_reply", |args| single(args, error_reply))?;
        table.raw_set("error_reply", error_reply)?;
        let status_reply = function(lua, "status_reply", |args| {
            single(args, |args, text| {
                let table = args.lua.create_table()?;
                table.raw_set("ok", args.lua.create_string(text)?)?;
                Ok(table)
            })
        })?;
        table.raw_set("status_reply", status_reply)?;
        table.raw_set("sha1hex", function(lua, "sha1hex", sha1hex)?)?;
        Ok(table)
    }

    /// The table for libraries that are being loaded.
    pub(super) fn for_loading(&self, version: &str) -> mlua::Result<Table> {
        let table = self.basic(version)?;
        let (loading, callbacks) = (self.loading.clone(), self.callbacks.clone());
        let register = function(&self.lua, "register_function", move |args| {
            register(args, &loading, &callbacks)
        })?;
        table.raw_set("register_function", register)?;
        Ok(table)
    }

    fn basic(&self, version: &str) -> mlua::Result<Table> {
        let (lua, table) = (&self.lua, self.lua.create_table()?);
        table.raw_set("log", function(lua, "log", log)?)?;
        for (level, name) in ["DEBUG", "VERBOSE", "NOTICE", "WARNING"].iter().enumerate() {
            table.raw_set(format!("LOG_{name}"), level)?;
        }
        let number = version
            .split('.')
            .fold(0u32, |n, part| n << 8 | part.parse::<u32>().unwrap_or(0));
        table.raw_set("REDIS_VERSION", version)?;
        table.raw_set("REDIS_VERSION_NUM", number)?;
        Ok(table)
    }

    /// Begins the registration of functions.
    pub(super) fn start_loading(&self) -> mlua::Result<()> {
        *self.callbacks.borrow_mut() = self.lua.create_table()?;
        *self.loading.borrow_mut() = Some(Vec::new());
        Ok(())
    }

    /// The Lua functions registered by the last library, by name.
    pub(super) fn callbacks(&self) -> Table {
        self.callbacks.borrow().clone()
    }

    /// Ends the registration and returns the registered functions.
    pub(super) fn finish_loading(&self) -> Vec<Loaded> {
        self.loading.borrow_mut().take().unwrap_or_default()
    }
}

/// Raises an error as a table, like an error of a command.
fn refuse(lua: &Lua, text: &str) -> Raise {
    match convert::error_table(lua, text.as_bytes(), false) {
        Ok(table) => Raise::Value(Value::Table(table)),
        Err(error) => Raise::Lua(error),
    }
}

/// The host's function: runs a command for the script.
pub(super) fn call_host(
    lua: &Lua,
    values: MultiValue,
    host: &RefCell<&mut dyn Host>,
    watch: &Rc<Watch>,
    resp3: bool,
) -> mlua::Result<MultiValue> {
    let mut values = values;
    let tag = values.pop_front().and_then(|tag| tag.as_integer());
    let tag = tag.unwrap_or(CALL);
    let many = match values.front() {
        Some(Value::Table(table)) if tag < 0 => Some(table.clone()),
        _ => None,
    };
    let tag = tag.abs();
    let fail = |text: &[u8]| {
        let table = Value::Table(convert::error_table(lua, text, true)?);
        match tag {
            PCALL => answer(lua, Ok(table)),
            _ => answer::<Value>(lua, Err(Raise::Value(table))),
        }
    };
    if tag == SET_REPL {
        return match set_repl(&values) {
            Ok(to_replicas) => {
                host.borrow_mut().replicate(to_replicas);
                answer(lua, Ok(()))
            }
            Err(why) => {
                let table = convert::error_table(lua, why.as_bytes(), false)?;
                answer::<Value>(lua, Err(Raise::Value(Value::Table(table))))
            }
        };
    }
    if values.is_empty() {
        return fail(b"ERR Please specify at least one argument for this redis lib call");
    }
    let Some((strings, copies)) = arguments(lua, values, many)? else {
        return fail(b"ERR Lua redis lib command arguments must be strings or integers");
    };
    let bytes: smallvec::SmallVec<[_; 8]> = strings.iter().map(|s| s.as_bytes()).collect();
    let args = bytes.iter().map(|bytes| &**bytes);
    let args = args.chain(copies.iter().map(Vec::as_slice));
    let args: smallvec::SmallVec<[&[u8]; 8]> = args.collect();
    let mut host = host.borrow_mut();
    if tag == MAY_CALL {
        return match host.may_call(&args) {
            Some(allowed) => answer(lua, Ok(allowed)),
            None => fail(b"ERR Invalid command passed to redis.acl_check_cmd()"),
        };
    }
    watch.check(lua)?;
    let mut reply = Reply::new(resp3);
    if let Err(halted) = host.call(&args, &mut reply) {
        return Err(watch.halt(lua, halted));
    }
    drop(host);
    let value = convert::from_reply(lua, &reply.buf)?;
    match reply.buf.first() {
        Some(b'-') if tag == CALL => answer::<Value>(lua, Err(Raise::Value(value))),
        _ => answer(lua, Ok(value)),
    }
}

/// The arguments of a command: Lua strings, and copies of those beyond what a call can
/// hold. `None`: an argument is neither a string nor a number.
type Words = (smallvec::SmallVec<[mlua::String; 8]>, Vec<Vec<u8>>);

fn arguments(
    lua: &Lua,
    values: MultiValue,
    many: Option<mlua::Table>,
) -> mlua::Result<Option<Words>> {
    let (mut strings, mut copies) = Words::default();
    let mut whole = true;
    match many {
        Some(table) => {
            for i in 1..=table.raw_len() {
                match argument(lua, table.raw_get(i)?)? {
                    Some(string) => copies.push(string.as_bytes().to_vec()),
                    None => whole = false,
                }
            }
        }
        None => {
            for value in values {
                match argument(lua, value)? {
                    Some(string) => strings.push(string),
                    None => whole = false,
                }
            }
        }
    }
    Ok(whole.then_some((strings, copies)))
}

fn argument(lua: &Lua, value: Value) -> mlua::Result<Option<mlua::String>> {
    Ok(Some(match value {
        Value::String(string) => string,
        Value::Integer(n) => lua.create_string(itoa::Buffer::new().format(n))?,
        Value::Number(n) => {
            let mut text = Vec::new();
            num::format_f64(n, &mut text);
            lua.create_string(&text)?
        }
        _ => return Ok(None),
    }))
}

fn setresp(args: &Args<'_>, resp3: &Resp3) -> Returned<()> {
    if args.len() != 1 {
        return Err(refuse(
            args.lua,
            "ERR redis.setresp() requires one argument.",
        ));
    }
    match as_number(args.get(1)).map(|version| version as i64) {
        Some(version @ (2 | 3)) => {
            resp3.set(version == 3);
            Ok(())
        }
        _ => Err(refuse(args.lua, "ERR RESP version must be 2 or 3.")),
    }
}

/// Whether `redis.set_repl` with these arguments enables replication. There is no AOF,
/// so its flag is ignored.
fn set_repl(values: &MultiValue) -> Result<bool, &'static str> {
    let (Some(flags), 1) = (values.front(), values.len()) else {
        return Err("ERR redis.set_repl() requires two arguments.");
    };
    match as_number(flags).unwrap_or(0.0) as i64 {
        flags @ 0..=3 => Ok(flags & REPL_REPLICA != 0),
        _ => {
            Err("ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
        }
    }
}

/// A function with one string argument; other arguments lead to an error reply.
fn single(args: &Args<'_>, make: fn(&Args<'_>, &[u8]) -> mlua::Result<Table>) -> Returned<Table> {
    let table = match (args.len(), args.get(1)) {
        (1, Value::String(text)) => make(args, &text.as_bytes()),
        _ => convert::error_table(args.lua, b"ERR wrong number or type of arguments", false),
    };
    Ok(table?)
}

fn error_reply(args: &Args<'_>, text: &[u8]) -> mlua::Result<Table> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let last = text.iter().rposition(|b| !matches!(b, b'\r' | b'\n'));
    let text = &text[..last.map_or(0, |last| last + 1)];
    match text.contains(&b' ') {
        true => convert::error_table(args.lua, text, false),
        false => convert::error_table(args.lua, &[b"ERR ", text].concat(), false),
    }
}

/// The error for another number of arguments than there must be.
pub const WRONG_NUMBER: &str = "ERR wrong number of arguments";

fn sha1hex(args: &Args<'_>) -> Returned<String> {
    if args.len() != 1 {
        return Err(refuse(args.lua, WRONG_NUMBER));
    }
    Ok(match args.get(1) {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            let text = args.string(1)?;
            let mut sha1 = Sha1::new();
            for pieces in text.as_bytes().chunks(1024 * PIECE) {
                args.work.add(pieces.len() / PIECE)?;
                sha1.update(pieces);
            }
            hex(&sha1.finalize())
        }
        _ => sha1_hex(b""),
    })
}

/// The SHA-1 of bytes, in hexadecimal digits.
pub fn sha1_hex(bytes: &[u8]) -> String {
    hex(&Sha1::digest(bytes))
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn log(args: &Args<'_>) -> Returned<()> {
    if args.len() < 2 {
        return Err(refuse(
            args.lua,
            "ERR redis.log() requires two arguments or more.",
        ));
    }
    let Some(level) = as_number(args.get(1)) else {
        return Err(refuse(
            args.lua,
            "ERR First argument must be a number (log level).",
        ));
    };
    let level = match level as i64 {
        0 => log::Level::Trace,
        1 => log::Level::Debug,
        2 => log::Level::Info,
        3 => log::Level::Warn,
        _ => return Err(refuse(args.lua, "ERR Invalid debug level.")),
    };
    if log::log_enabled!(level) {
        let line = log_line(args)?;
        log::log!(level, "{}", String::from_utf8_lossy(&line));
    }
    Ok(())
}

/// The line of `redis.log`. A script may log a long string many times between two checks of the
/// watch, so no more is copied than is written.
fn log_line(args: &Args<'_>) -> Returned<Vec<u8>> {
    let mut line = Vec::with_capacity(MAX_LOG_LINE);
    for i in 2..=args.len() {
        if line.len() >= MAX_LOG_LINE {
            break;
        }
        if let Value::String(_) | Value::Integer(_) | Value::Number(_) = args.get(i) {
            if i > 2 {
                line.push(b' ');
            }
            let text = args.string(i)?;
            let text = text.as_bytes();
            let room = MAX_LOG_LINE.saturating_sub(line.len());
            line.extend_from_slice(text.get(..room).unwrap_or(&text));
        }
    }
    Ok(line)
}

type Loading = Rc<RefCell<Option<Vec<Loaded>>>>;

fn register(args: &Args<'_>, loading: &Loading, callbacks: &RefCell<Table>) -> Returned<()> {
    let refuse = |text: &str| Err(refuse(args.lua, &format!("ERR {text}")));
    let (loaded, callback) = match (args.len(), args.get(1), args.get(2)) {
        (1, Value::Table(named), _) => match named_arguments(args, named)? {
            Ok(loaded) => loaded,
            Err(text) => return refuse(text),
        },
        (1, ..) => {
            return refuse(
                "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
            );
        }
        (2, name, callback) => {
            let Some(name) = text(args, name)? else {
                return refuse("first argument to redis.register_function must be a string");
            };
            let Value::Function(callback) = callback else {
                return refuse("second argument to redis.register_function must be a function");
            };
            let loaded = Loaded {
                name,
                description: None,
                flags: ScriptFlags::empty(),
            };
            (loaded, callback.clone())
        }
        _ => return refuse("wrong number of arguments to redis.register_function"),
    };
    if !is_name(&loaded.name) {
        return refuse(BAD_NAME);
    }
    let mut loading = loading.borrow_mut();
    let Some(all) = loading.as_mut() else {
        return refuse("redis.register_function can only be called on FUNCTION LOAD command");
    };
    if all
        .iter()
        .any(|other| other.name.eq_ignore_ascii_case(&loaded.name))
    {
        return refuse("Function already exists in the library");
    }
    let callbacks = callbacks.borrow();
    callbacks.raw_set(args.lua.create_string(&loaded.name)?, callback)?;
    all.push(loaded);
    Ok(())
}

/// A string, or a number converted to one.
fn text(args: &Args<'_>, value: &Value) -> Returned<Option<Vec<u8>>> {
    Ok(match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            let text = args.lua.coerce_string(value.clone())?;
            text.map(|text| text.as_bytes().to_vec())
        }
        _ => None,
    })
}

/// The call with named arguments; the inner error is the text of the error reply.
fn named_arguments(
    args: &Args<'_>,
    named: &Table,
) -> Returned<std::result::Result<(Loaded, Function), &'static str>> {
    let (mut name, mut description, mut callback) = (None, None, None);
    let mut flags = ScriptFlags::empty();
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Value::String(key) = key else {
            return Ok(Err(
                "named argument key given to redis.register_function is not a string",
            ));
        };
        match &*key.as_bytes() {
            b"function_name" => match text(args, &value)? {
                Some(text) => name = Some(text),
                None => {
                    return Ok(Err(
                        "function_name argument given to redis.register_function must be a string",
                    ));
                }
            },
            b"description" => match text(args, &value)? {
                Some(text) => description = Some(text),
                None => {
                    return Ok(Err(
                        "description argument given to redis.register_function must be a string",
                    ));
                }
            },
            b"callback" => match value {
                Value::Function(function) => callback = Some(function),
                _ => {
                    return Ok(Err(
                        "callback argument given to redis.register_function must be a function",
                    ));
                }
            },
            b"flags" => match value {
                Value::Table(table) => match flags_in(&table)? {
                    Some(read) => flags = read,
                    None => return Ok(Err("unknown flag given")),
                },
                _ => {
                    return Ok(Err(
                        "flags argument to redis.register_function must be a table representing function flags",
                    ));
                }
            },
            _ => return Ok(Err("unknown argument given to redis.register_function")),
        }
    }
    let Some(name) = name else {
        return Ok(Err(
            "redis.register_function must get a function name argument",
        ));
    };
    let Some(callback) = callback else {
        return Ok(Err("redis.register_function must get a callback argument"));
    };
    let loaded = Loaded {
        name,
        description,
        flags,
    };
    Ok(Ok((loaded, callback)))
}

fn flags_in(table: &Table) -> Returned<Option<ScriptFlags>> {
    let mut flags = ScriptFlags::empty();
    for i in 1.. {
        match table.raw_get::<Value>(i)? {
            Value::Nil => break,
            Value::String(name) => match ScriptFlags::named(&name.as_bytes()) {
                Some(flag) => flags |= flag,
                None => return Ok(None),
            },
            _ => return Ok(None),
        }
    }
    Ok(Some(flags))
}

#[cfg(test)]
mod tests {
    use super::super::watch::Work;
    use super::*;

    /// Each line was a copy of all that was to be logged.
    #[test]
    fn no_more_is_copied_than_is_logged() {
        let lua = Lua::new();
        let text = |text: &str| Value::String(lua.create_string(text).unwrap());
        let line = |values: &[Value]| {
            let level = std::iter::once(Value::Integer(2));
            let args = Args {
                lua: &lua,
                name: "log",
                values: level.chain(values.iter().cloned()).collect(),
                work: Work::new(&lua),
            };
            let line = log_line(&args).ok().unwrap();
            assert_eq!(line.capacity(), MAX_LOG_LINE);
            String::from_utf8(line).unwrap()
        };
        assert_eq!(line(&[text("a"), Value::Nil, Value::Integer(1)]), "a 1");
        let long = "x".repeat(1 << 20);
        assert_eq!(line(&[text(&long), text("y")]), long[..MAX_LOG_LINE]);
        let nearly = &long[..MAX_LOG_LINE - 1];
        assert_eq!(line(&[text(nearly), text("y")]), format!("{nearly} "));
        assert_eq!(line(&[text("y"), text(&long)]).len(), MAX_LOG_LINE);
    }
}
