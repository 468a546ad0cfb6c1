//! Scripts: an interpreter of Lua 5.1 with the sandbox, the libraries and the
//! `redis` table that scripts of Redis count on. It knows replies, but no
//! commands: whoever runs a script lends it a [`Host`] that does.
//!
//! | module | what it is |
//! |---|---|
//! | `raw` | what needs Lua's C interface |
//! | `host` | functions that scripts call and Rust runs |
//! | `sandbox` | the globals, none of which a script can change |
//! | [`api`] | the table `redis` |
//! | `convert` | replies to Lua values and back |
//! | [`header`] | the first line of scripts and libraries |
//! | `patterns` | `string.find` and its sisters, which can be stopped |
//! | `watch` | how a script that runs too long is stopped |
//! | `cjson` `cmsgpack` `structs` `bit` | the libraries of these names |
//!
//! Bounds: an interpreter's memory has a limit, which covers all that scripts
//! make; replies and encoded values are held to the same one. Recursion of
//! patterns, coroutines and nested values is bounded, for the thread's stack.
//! Nothing that loads bytecode, opens files or starts processes can be reached.

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

/// What runs the commands of a script.
pub trait Host {
    /// Runs a command and writes its reply, an error too.
    ///
    /// # Errors
    /// The script must not go on; it cannot prevent that.
    fn call(&mut self, args: &[&[u8]], reply: &mut Reply) -> Result<(), Halted>;

    /// Whether replicas get what the commands from now on do.
    fn replicate(&mut self, to_replicas: bool);

    /// Whether the script's user may run a command; `None`: there is none such.
    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool>;
}

/// Why a command of a script was not run: the script has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Halted;

/// How a script ended that did not return.
#[derive(Debug)]
pub enum Failure {
    /// By an error: the text of the error reply, and whether that is counted already.
    Error {
        /// With its code, without a dash.
        text: Vec<u8>,
        /// Whether the statistics know of it.
        counted: bool,
    },
    /// It was stopped from outside.
    Stopped {
        /// Why.
        why: Trip,
        /// Which script, and where it was then, as error replies say it; may be empty.
        place: Vec<u8>,
    },
}

impl Failure {
    /// The error with this before its text.
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

/// What to run.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    /// The script with this SHA-1, which was compiled here.
    Script(&'a str),
    /// The function of this name, of a library that was added.
    Function {
        /// The library's name.
        library: &'a [u8],
        /// The function's name, in the case in which it was registered.
        name: &'a [u8],
    },
}

/// An error as the script raised it.
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
    /// Globals of scripts, and what stands behind them.
    script_globals: (Table, Table),
    function_globals: (Table, Table),
    /// What the globals of libraries read from while they are loaded.
    loading_globals: Table,
    call_protected: Function,
    handler: Function,
    caught: Rc<RefCell<Option<Caught>>>,
    watch: Rc<Watch>,
    /// Which scripts are compiled; they and the libraries stand in tables of Lua's
    /// by their names, since Rust can hold a few thousand Lua values only.
    scripts: FxHashSet<String>,
    compiled: Table,
    /// For each library the table of its functions.
    libraries: Table,
    max_bytes: usize,
    /// Bytes that the last collection left.
    kept: usize,
    fields: convert::Fields,
}

#[allow(unsafe_code)]
unsafe extern "C" {
    /// Of our patch of Lua's strings.
    safe fn lua_sethashseed(seed: u64);
}

/// Nobody can choose long strings that Lua hashes alike.
fn seed_hashes() -> mlua::Result<()> {
    static SEEDED: Mutex<bool> = Mutex::new(false);
    let mut seeded = SEEDED.lock();
    if !*seeded {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(mlua::Error::external)?;
        // Before there is any string.
        lua_sethashseed(u64::from_ne_bytes(seed));
        *seeded = true;
    }
    Ok(())
}

impl Interpreter {
    /// An interpreter that may use `max_bytes` of memory, of a server of this
    /// version (`7.4.0`).
    ///
    /// # Errors
    /// There is not that much memory.
    pub fn new(max_bytes: usize, version: &str) -> mlua::Result<Interpreter> {
        seed_hashes()?;
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let watch = Rc::new(Watch::default());
        watch.install(&lua)?;
        let sandbox = Sandbox::new(&lua, watch.looker(&lua)?)?;
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
        })
    }

    /// It may use so many bytes from now on.
    ///
    /// # Errors
    /// mlua cannot bound it.
    pub fn limit_memory(&mut self, max_bytes: usize) -> mlua::Result<()> {
        if max_bytes != self.max_bytes {
            self.lua.set_memory_limit(max_bytes)?;
            self.max_bytes = max_bytes;
        }
        Ok(())
    }

    /// Bytes that it uses.
    pub fn used_memory(&self) -> usize {
        self.lua.used_memory()
    }

    /// Whether the script with this SHA-1 is compiled.
    pub fn has_script(&self, sha: &str) -> bool {
        self.scripts.contains(sha)
    }

    /// How many scripts are compiled.
    pub fn scripts(&self) -> usize {
        self.scripts.len()
    }

    /// Compiles a script under its SHA-1.
    ///
    /// # Errors
    /// What is wrong with it, or it was stopped.
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
            None => compiled.map_err(|why| plain_failure(why.as_bytes())),
        }
    }

    /// Forgets all scripts but those that `keep` wants.
    pub fn retain_scripts(&mut self, keep: impl Fn(&str) -> bool) {
        let compiled = &self.compiled;
        let drop = |sha: &str| compiled.raw_set(sha, Value::Nil).is_ok();
        self.scripts.retain(|sha| keep(sha) || !drop(sha));
    }

    /// Makes the functions callable that the library loaded last has registered, in place
    /// of those that one of its name had.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn add_library(&mut self, name: &[u8]) -> mlua::Result<()> {
        let name = self.lua.create_string(name)?;
        self.libraries.raw_set(name, self.api.callbacks())
    }

    /// Forgets the functions of a library.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn remove_library(&mut self, name: &[u8]) -> mlua::Result<()> {
        let name = self.lua.create_string(name)?;
        self.libraries.raw_set(name, Value::Nil)
    }

    /// Compiles a library and runs its body, which registers functions; they can be called
    /// once the library is added.
    ///
    /// # Errors
    /// What is wrong with it, or it was stopped.
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
        self.show_globals(&self.loading_globals).map_err(failed)?;
        self.api.start_loading().map_err(failed)?;
        let done = self.protected(&function, (), limits);
        let loaded = self.api.finish_loading();
        self.show_globals(&self.function_globals.1)
            .map_err(failed)?;
        match done {
            Ok(_) if loaded.is_empty() => Err(plain_failure(b"ERR No functions registered")),
            Ok(_) => Ok(loaded),
            Err(failure) => Err(failure.with_prefix(registering)),
        }
    }

    /// What the globals of libraries read from.
    fn show_globals(&self, real: &Table) -> mlua::Result<()> {
        match self.function_globals.0.metatable() {
            Some(metatable) => metatable.raw_set("__index", real),
            None => Ok(()),
        }
    }

    /// Runs a script or function and writes its reply.
    ///
    /// # Errors
    /// It failed or was stopped; nothing is written then.
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
                        Err(plain_failure(&text_of(&error)))
                    }
                }
            }
            Err(mut failure) => {
                match &mut failure {
                    Failure::Error { text: end, .. } | Failure::Stopped { place: end, .. } => {
                        end.extend_from_slice(&self.place_of_error(which));
                    }
                }
                Err(failure)
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

    /// The end of the text of an error reply: which script, and where it was raised.
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

    /// Calls a function of a script and keeps its first result.
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

    /// After a script: gives back the memory of a large one. `false`: that cannot be done,
    /// and the interpreter is of no more use.
    #[must_use]
    pub fn tidy(&mut self) -> bool {
        self.watch.stop();
        let (used, quarter) = (self.lua.used_memory(), self.max_bytes / 4);
        // What stays is not looked through after each script.
        if used <= quarter || used <= self.kept.saturating_mul(2).min(quarter * 3) {
            return true;
        }
        // A collection needs some memory, which there may not be below the limit.
        let unlimited = self.lua.set_memory_limit(0);
        let collected = unlimited.and_then(|_| self.lua.gc_collect());
        let limited = self.lua.set_memory_limit(self.max_bytes);
        self.kept = self.lua.used_memory();
        collected.and(limited.map(|_| ())).is_ok() && self.kept <= quarter * 2
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

/// The function that sees an error where it is raised.
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
        // As in Redis the caller of a function of C; a script may be stopped deep in one.
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

/// The text of an error value, with its code, and whether it is counted already.
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

/// The protocol version that a script chose; shared by its functions.
type Resp3 = Rc<Cell<bool>>;
