//! Scripts: a Lua 5.1 interpreter with the sandbox, the libraries and the `redis` table
//! that scripts for Redis expect. This module knows replies but no commands; the caller
//! of a script passes a [`Host`] that runs them.
//!
//! | module | what it is |
//! |---|---|
//! | `raw` | the code that needs Lua's C interface |
//! | `host` | Rust functions that scripts can call |
//! | `sandbox` | the globals, which scripts cannot change |
//! | [`api`] | the table `redis` |
//! | `convert` | replies to Lua values and back |
//! | [`header`] | the shebang line of scripts and libraries |
//! | `patterns` | `string.find` and the other pattern functions, interruptible |
//! | `watch` | stops a script that runs too long |
//! | `cjson` `cmsgpack` `structs` `bit` | the libraries of these names |
//!
//! Limits: the memory limit of an interpreter covers everything that scripts allocate,
//! and also replies and encoded values. Recursion of patterns, coroutines and nested
//! values is bounded, to protect the thread's stack. Scripts cannot load bytecode, open
//! files or start processes.

pub mod api;
mod bit;
mod cjson;
mod cmsgpack;
mod convert;
pub mod header;
mod host;
mod number;
mod patterns;
mod random;
mod raw;
mod sandbox;
mod structs;
mod watch;

#[cfg(test)]
mod tests;

use crate::resp::Reply;
use api::{Api, Loaded};
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use sandbox::{Sandbox, compile};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;
use watch::Watch;
pub use watch::{Limits, Trip};

/// The error reply where a function is called that no library has.
pub const NO_FUNCTION: &str = "ERR Function not found";
/// How the error reply begins of a script that wants more memory than it may have.
pub const NO_MEMORY: &str = "ERR not enough memory";
/// What each error for want of memory says.
const LACK: &str = "not enough memory";

/// Runs the commands of a script.
pub trait Host {
    /// Runs a command and writes its reply, which may be an error.
    ///
    /// # Errors
    /// The script must be stopped; it cannot catch this.
    fn call(&mut self, args: &[&[u8]], reply: &mut Reply) -> Result<(), Halted>;

    /// Sets whether the effects of later commands are replicated.
    fn replicate(&mut self, to_replicas: bool);

    /// Whether the script's user may run a command; `None` for an unknown command.
    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool>;
}

/// A command was not run, and the script must be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Halted;

/// How a script ended without a result.
#[derive(Debug)]
pub enum Failure {
    /// With an error.
    Error {
        /// The text of the error reply: code first, without the dash.
        text: Vec<u8>,
        /// Whether the statistics have counted the error.
        counted: bool,
    },
    /// The script was stopped.
    Stopped {
        /// The reason.
        why: Trip,
        /// The script and the line, as in error replies; may be empty.
        place: Vec<u8>,
    },
}

impl Failure {
    /// Prepends `prefix` to the text of an error.
    fn with_prefix(self, prefix: &[u8]) -> Failure {
        match self {
            Failure::Error { text, counted } => Failure::Error {
                text: [prefix, text.as_slice()].concat(),
                counted,
            },
            stopped => stopped,
        }
    }
}

/// The code to run.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    /// The script with this SHA-1, which must be compiled.
    Script(&'a str),
    /// A function of a library that was added.
    Function {
        /// The library's name.
        library: &'a [u8],
        /// The function's name, in the registered case.
        name: &'a [u8],
    },
}

/// An error as raised by the script.
struct Caught {
    text: Vec<u8>,
    place: Option<(String, Option<usize>)>,
    counted: bool,
}

/// The interpreter of one thread.
pub struct Interpreter {
    lua: Lua,
    sandbox: Sandbox,
    api: Api,
    /// The globals of scripts: the read-only proxy and the table behind it.
    script_globals: (Table, Table),
    function_globals: (Table, Table),
    /// The table behind the globals of libraries while they are loaded.
    loading_globals: Table,
    call_protected: Function,
    handler: Function,
    caught: Rc<RefCell<Option<Caught>>>,
    watch: Rc<Watch>,
    /// SHA-1s of the compiled scripts. Scripts and libraries are in Lua tables, since
    /// Rust can hold only a few thousand references to Lua values.
    scripts: FxHashSet<String>,
    compiled: Table,
    /// The table of functions of each library.
    libraries: Table,
    max_bytes: usize,
    /// Used bytes after the last collection.
    kept: usize,
    /// Something has failed for want of memory since [`Interpreter::tidy`].
    lacked: Cell<bool>,
    fields: convert::Fields,
}

#[allow(unsafe_code)]
unsafe extern "C" {
    /// From our patch of Lua's string hash.
    safe fn lua_sethashseed(seed: u64);
}

/// Seeds the hash of long strings, so that clients cannot choose strings that collide.
fn seed_hashes() -> mlua::Result<()> {
    static SEEDED: Mutex<bool> = Mutex::new(false);
    let mut seeded = SEEDED.lock();
    if !*seeded {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(mlua::Error::external)?;
        // Before the first string is created.
        lua_sethashseed(u64::from_ne_bytes(seed));
        *seeded = true;
    }
    Ok(())
}

impl Interpreter {
    /// An interpreter with a limit of `max_bytes` of memory; `version` is the server's
    /// version (`7.4.0`).
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(max_bytes: usize, version: &str) -> mlua::Result<Interpreter> {
        seed_hashes()?;
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let watch = Rc::new(Watch::default());
        watch.install(&lua)?;
        let sandbox = Sandbox::new(&lua, watch.checker(&lua)?)?;
        let api = Api::new(&lua)?;
        let script_globals = sandbox.globals(&api.for_scripts(version)?)?;
        let function_globals = sandbox.globals(&api.for_functions(version)?)?;
        let loading_globals = lua.create_table()?;
        let redis = api.for_loading(version)?;
        sandbox.refuse_unknown(&redis)?;
        loading_globals.raw_set("redis", sandbox.protect(&redis)?)?;
        sandbox.refuse_unknown(&loading_globals)?;
        let caught = Rc::new(RefCell::new(None));
        let handler = error_handler(&lua, caught.clone(), watch.clone())?;
        let (compiled, libraries) = (lua.create_table()?, lua.create_table()?);
        lua.set_memory_limit(max_bytes)?;
        Ok(Interpreter {
            fields: convert::Fields::new(&lua)?,
            call_protected: raw::closure(&lua, raw::call_protected, ())?,
            lua,
            sandbox,
            api,
            script_globals,
            function_globals,
            loading_globals,
            handler,
            caught,
            watch,
            scripts: FxHashSet::default(),
            compiled,
            libraries,
            max_bytes,
            kept: 0,
            lacked: Cell::new(false),
        })
    }

    /// Changes the memory limit.
    ///
    /// # Errors
    /// mlua cannot set a limit.
    pub fn limit_memory(&mut self, max_bytes: usize) -> mlua::Result<()> {
        if max_bytes != self.max_bytes {
            self.lua.set_memory_limit(max_bytes)?;
            self.max_bytes = max_bytes;
        }
        Ok(())
    }

    /// Bytes of memory in use.
    pub fn used_memory(&self) -> usize {
        self.lua.used_memory()
    }

    /// Whether the script with this SHA-1 is compiled.
    pub fn has_script(&self, sha: &str) -> bool {
        self.scripts.contains(sha)
    }

    /// The number of compiled scripts.
    pub fn scripts(&self) -> usize {
        self.scripts.len()
    }

    /// Compiles a script under its SHA-1.
    ///
    /// # Errors
    /// A syntax error, or compilation was stopped.
    pub fn compile(&mut self, sha: &str, body: &[u8], limits: Limits) -> Result<(), Failure> {
        let globals = self.script_globals.0.clone();
        let function = self.compile_text(body, "@user_script", &globals, limits);
        let function = function.map_err(|failure| {
            failure.with_prefix(b"ERR Error compiling script (new function): ")
        })?;
        let kept = self.compiled.raw_set(sha, function);
        kept.map_err(|error| plain_failure(&text_of(&error)))?;
        self.scripts.insert(sha.to_owned());
        Ok(())
    }

    fn compile_text(
        &mut self,
        text: &[u8],
        name: &str,
        globals: &Table,
        limits: Limits,
    ) -> Result<Function, Failure> {
        let started = self.watch.start(&self.lua, limits);
        started.map_err(|error| plain_failure(&text_of(&error)))?;
        let text = header::without_header(text);
        let compiled = compile(&self.lua, text, name, globals);
        match self.watch.tripped() {
            Some(why) => Err(Failure::Stopped {
                why,
                place: Vec::new(),
            }),
            None => compiled.map_err(|why| self.noted(plain_failure(why.as_bytes()))),
        }
    }

    /// Notes whether the reason is want of memory.
    fn noted(&self, failure: Failure) -> Failure {
        if let Failure::Error { text, .. } = &failure
            && memchr::memmem::find(text, LACK.as_bytes()).is_some()
        {
            self.lacked.set(true);
        }
        failure
    }

    /// Drops the compiled scripts that `keep` rejects.
    pub fn retain_scripts(&mut self, keep: impl Fn(&str) -> bool) {
        let compiled = &self.compiled;
        let drop = |sha: &str| compiled.raw_set(sha, Value::Nil).is_ok();
        self.scripts.retain(|sha| keep(sha) || !drop(sha));
    }

    /// Makes the functions of the last loaded library callable, and replaces those of a
    /// library with the same name.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn add_library(&mut self, name: &[u8]) -> mlua::Result<()> {
        let name = self.lua.create_string(name)?;
        self.libraries.raw_set(name, self.api.callbacks())
    }

    /// Removes the functions of a library.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn remove_library(&mut self, name: &[u8]) -> mlua::Result<()> {
        let name = self.lua.create_string(name)?;
        self.libraries.raw_set(name, Value::Nil)
    }

    /// Compiles a library and runs its body, which registers functions. They become
    /// callable with [`Interpreter::add_library`].
    ///
    /// # Errors
    /// The library is invalid, or was stopped.
    pub fn load_library(&mut self, code: &[u8], limits: Limits) -> Result<Vec<Loaded>, Failure> {
        let started = Instant::now();
        let globals = self.function_globals.0.clone();
        let function = self.compile_text(code, "@user_function", &globals, limits.clone());
        let function =
            function.map_err(|failure| failure.with_prefix(b"ERR Error compiling function: "))?;
        let limits = Limits {
            time: limits
                .time
                .map(|time| time.saturating_sub(started.elapsed())),
            ..limits
        };
        let registering = b"ERR Error registering functions: ";
        let failed = |error: mlua::Error| plain_failure(&text_of(&error)).with_prefix(registering);
        self.set_function_globals(&self.loading_globals)
            .map_err(failed)?;
        self.api.start_loading().map_err(failed)?;
        let done = self.protected(&function, (), limits);
        let loaded = self.api.finish_loading();
        self.set_function_globals(&self.function_globals.1)
            .map_err(failed)?;
        match done {
            Ok(_) if loaded.is_empty() => Err(plain_failure(b"ERR No functions registered")),
            Ok(_) => Ok(loaded),
            Err(failure) => Err(self.noted(failure).with_prefix(registering)),
        }
    }

    /// Sets the table behind the globals of libraries.
    fn set_function_globals(&self, real: &Table) -> mlua::Result<()> {
        match self.function_globals.0.metatable() {
            Some(metatable) => metatable.raw_set("__index", real),
            None => Ok(()),
        }
    }

    /// Runs a script or function and writes its reply.
    ///
    /// # Errors
    /// The script failed or was stopped; then nothing is written.
    pub fn run(
        &mut self,
        which: Which<'_>,
        keys: &[&[u8]],
        args: &[&[u8]],
        limits: Limits,
        host: &mut dyn Host,
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        let function = match which {
            Which::Script(sha) => self.compiled.raw_get(sha),
            Which::Function { library, name } => self.function(library, name),
        };
        let Ok(Some(function)) = function else {
            return Err(plain_failure(NO_FUNCTION.as_bytes()));
        };
        let start = reply.len();
        let done = self.run_with(&function, which, keys, args, limits, host);
        match done {
            Ok(value) => {
                let written = convert::to_reply(
                    &self.lua,
                    &value,
                    &self.fields,
                    reply,
                    self.api.resp3.get(),
                    self.max_bytes,
                );
                if let Some(why) = self.watch.tripped() {
                    reply.truncate(start);
                    let place = Vec::new();
                    return Err(Failure::Stopped { why, place });
                }
                match written {
                    Ok(errors) => match errors.into_iter().next() {
                        Some(text) if reply.buf.get(start) == Some(&b'-') => {
                            reply.truncate(start);
                            Err(Failure::Error {
                                text,
                                counted: false,
                            })
                        }
                        _ => Ok(()),
                    },
                    Err(error) => {
                        reply.truncate(start);
                        Err(self.noted(plain_failure(&text_of(&error))))
                    }
                }
            }
            Err(mut failure) => {
                match &mut failure {
                    Failure::Error { text: end, .. } | Failure::Stopped { place: end, .. } => {
                        end.extend_from_slice(&self.place_of_error(which));
                    }
                }
                Err(self.noted(failure))
            }
        }
    }

    fn function(&self, library: &[u8], name: &[u8]) -> mlua::Result<Option<Function>> {
        let library = self.lua.create_string(library)?;
        let functions: Option<Table> = self.libraries.raw_get(library)?;
        match functions {
            Some(functions) => functions.raw_get(self.lua.create_string(name)?),
            None => Ok(None),
        }
    }

    /// The end of an error reply: the script, and where the error was raised.
    fn place_of_error(&self, which: Which<'_>) -> Vec<u8> {
        let caught = self.caught.borrow_mut().take();
        let Some((source, line)) = caught.and_then(|caught| caught.place) else {
            return Vec::new();
        };
        let name = match which {
            Which::Script(sha) => sha.as_bytes(),
            Which::Function { name, .. } => name,
        };
        let line = line.map_or("-1".to_owned(), |line| line.to_string());
        let at = format!("{source}:{line}.");
        [b" script: ", name, b", on ", at.as_bytes()].concat()
    }

    fn run_with(
        &self,
        function: &Function,
        which: Which<'_>,
        keys: &[&[u8]],
        args: &[&[u8]],
        limits: Limits,
        host: &mut dyn Host,
    ) -> Result<Value, Failure> {
        self.sandbox.json.reset();
        self.api.resp3.set(false);
        let host = RefCell::new(host);
        let watch = &self.watch;
        let mut result = Err(plain_failure(b"ERR the interpreter failed"));
        let scoped = self.lua.scope(|scope| {
            let callback = scope.create_function(|lua, values: MultiValue| {
                api::call_host(lua, values, &host, watch, self.api.resp3.get())
            })?;
            self.api.slot.raw_set(1, callback)?;
            let keys = strings(&self.lua, keys)?;
            let args = strings(&self.lua, args)?;
            result = match which {
                Which::Script(_) => {
                    self.script_globals.1.raw_set("KEYS", keys)?;
                    self.script_globals.1.raw_set("ARGV", args)?;
                    self.protected(function, (), limits)
                }
                Which::Function { .. } => self.protected(function, (keys, args), limits),
            };
            self.api.slot.raw_set(1, Value::Nil)
        });
        match scoped {
            Ok(()) => result,
            Err(error) => Err(plain_failure(&text_of(&error))),
        }
    }

    /// Calls a function of a script and returns its first result.
    fn protected(
        &self,
        function: &Function,
        args: impl mlua::IntoLuaMulti,
        limits: Limits,
    ) -> Result<Value, Failure> {
        raw::start();
        self.lua.gc_restart();
        *self.caught.borrow_mut() = None;
        let started = self.watch.start(&self.lua, limits);
        let mut values = match started.and_then(|()| args.into_lua_multi(&self.lua)) {
            Ok(values) => values,
            Err(error) => return Err(plain_failure(&text_of(&error))),
        };
        values.push_front(Value::Function(function.clone()));
        values.push_front(Value::Function(self.handler.clone()));
        let done = self.call_protected.call::<(bool, Value)>(values);
        if let Some(trip) = self.watch.tripped() {
            let place = Vec::new();
            return Err(Failure::Stopped { why: trip, place });
        }
        match done {
            Ok((true, value)) => Ok(value),
            Ok((false, value)) => Err(match &*self.caught.borrow() {
                Some(caught) => Failure::Error {
                    text: caught.text.clone(),
                    counted: caught.counted,
                },
                None => plain_failure(&error_text(&value).0),
            }),
            Err(error) => Err(plain_failure(&text_of(&error))),
        }
    }

    /// Frees the memory of a large script after its end, and that of all compiled scripts if
    /// something has failed for want of memory and they might be the cause: the next call compiles
    /// them again. Returns `false` if that fails: then the interpreter must be dropped.
    #[must_use]
    pub fn tidy(&mut self) -> bool {
        self.watch.stop();
        let (used, quarter) = (self.lua.used_memory(), self.max_bytes / 4);
        if self.lacked.take() {
            if !self.collect() {
                return false;
            }
            if self.kept > quarter / 2 {
                self.retain_scripts(|_| false);
                return self.collect() && self.kept <= quarter * 2;
            }
            return true;
        }
        // Memory that stays in use is not collected after each script.
        if used <= quarter || used <= self.kept.saturating_mul(2).min(quarter * 3) {
            return true;
        }
        self.collect() && self.kept <= quarter * 2
    }

    /// Collects garbage; whether that was possible.
    fn collect(&mut self) -> bool {
        // A collection itself needs some memory, which may exceed the limit.
        let unlimited = self.lua.set_memory_limit(0);
        let collected = unlimited.and_then(|_| self.lua.gc_collect());
        let limited = self.lua.set_memory_limit(self.max_bytes);
        self.kept = self.lua.used_memory();
        collected.and(limited.map(|_| ())).is_ok()
    }
}

fn plain_failure(text: &[u8]) -> Failure {
    Failure::Error {
        text: text.to_vec(),
        counted: false,
    }
}

fn strings(lua: &Lua, strings: &[&[u8]]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(strings.len(), 0)?;
    for (i, string) in strings.iter().enumerate() {
        table.raw_set(i + 1, lua.create_string(string)?)?;
    }
    Ok(table)
}

/// The function that Lua calls with an error, at the place where it is raised.
fn error_handler(
    lua: &Lua,
    caught: Rc<RefCell<Option<Caught>>>,
    watch: Rc<Watch>,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, error: Value| {
        let (text, counted) = error_text(&error);
        let place = |level: usize| {
            lua.inspect_stack(level, |debug| {
                let source = debug.source();
                let name = source.source.unwrap_or_default().into_owned();
                (source.what == "C", name, debug.current_line())
            })
        };
        // As in Redis, the caller of a C function counts; a stopped script may be
        // several C functions deep.
        let deepest = if watch.tripped().is_some() { 8 } else { 2 };
        let mut level = 1;
        let mut found = place(level);
        while level < deepest && matches!(found, Some((true, ..))) {
            level += 1;
            found = place(level);
        }
        *caught.borrow_mut() = Some(Caught {
            text,
            counted,
            place: found.map(|(_, source, line)| (source, line)),
        });
        Ok(())
    })
}

/// The text of an error value, with its code, and whether the error was counted already.
fn error_text(error: &Value) -> (Vec<u8>, bool) {
    match error {
        Value::Table(table) => {
            let counted = table.raw_get::<Value>("ignore_error_stats_update");
            let counted = counted.ok() == Some(Value::Boolean(true));
            match table.raw_get::<Value>("err") {
                Ok(Value::String(text)) => (text.as_bytes().to_vec(), counted),
                _ => (b"ERR unknown error".to_vec(), counted),
            }
        }
        Value::String(text) => ([b"ERR ", &*text.as_bytes()].concat(), false),
        Value::Error(error) => (text_of(error), false),
        other => {
            let text = other.to_string().unwrap_or_default();
            (format!("ERR {text}").into_bytes(), false)
        }
    }
}

fn text_of(error: &mlua::Error) -> Vec<u8> {
    match error {
        mlua::Error::MemoryError(_) => NO_MEMORY.as_bytes().to_vec(),
        mlua::Error::CallbackError { cause, .. } => text_of(cause),
        other => {
            let text = other.to_string();
            let line = text.lines().next().unwrap_or_default();
            format!("ERR {line}").into_bytes()
        }
    }
}

/// The protocol version that a script has chosen; shared by its functions.
type Resp3 = Rc<Cell<bool>>;
