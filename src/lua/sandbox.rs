//! The globals of scripts, which scripts cannot change.
//!
//! Lua 5.1 has no read-only tables. Shared tables are therefore hidden behind empty
//! proxies that forward reads and refuse writes, and the few functions that bypass
//! metamethods check their first argument (see [`super::raw`]).

use super::cjson;
use super::host::{Args, Raise, Returned, function};
use super::random::{MAX, Random};
use super::{bit, cmsgpack, patterns, raw, structs};
use mlua::{ChunkMode, Function, IntoLua, Lua, MultiValue, Table, Value, lua_CFunction};
use std::rc::Rc;
use std::time::Instant;

/// Functions of Lua that are used unchanged.
const BASE: &[&str] = &[
    "_VERSION",
    "assert",
    "collectgarbage",
    "error",
    "gcinfo",
    "ipairs",
    "rawequal",
    "select",
    "tonumber",
    "tostring",
    "type",
];

/// Creates the tables that scripts share.
pub struct Sandbox {
    lua: Lua,
    /// The table behind each proxy.
    shared: Table,
    /// The results of `getmetatable` for proxies; for strings at 1.
    metatables: Table,
    read_only: Function,
    no_such_global: Function,
    /// All globals except `redis`, `KEYS` and `ARGV`.
    common: Table,
    /// The settings of `cjson`.
    pub json: cjson::Shared,
    /// `next` that reads the table behind a proxy.
    next: Function,
    /// Fails if the script must stop.
    check: Function,
}

impl Sandbox {
    /// The sandbox of an interpreter; `check` fails if the script must stop.
    pub fn new(lua: &Lua, check: Function) -> mlua::Result<Sandbox> {
        let shared = lua.create_table()?;
        let globals = lua.globals();
        let next: Function = globals.get("next")?;
        let mut sandbox = Sandbox {
            lua: lua.clone(),
            metatables: lua.create_table()?,
            read_only: raw::closure(lua, raw::read_only, ())?,
            no_such_global: raw::closure(lua, raw::no_such_global, ())?,
            common: lua.create_table()?,
            json: cjson::Shared::new(),
            next: raw::closure(lua, raw::guarded_read, (next, &shared))?,
            shared,
            check,
        };
        sandbox.fill(&globals)?;
        Ok(sandbox)
    }

    fn guarded(&self, library: &Table, name: &str, guard: lua_CFunction) -> mlua::Result<()> {
        let plain: Function = library.get(name)?;
        library.raw_set(name, raw::closure(&self.lua, guard, (plain, &self.shared))?)
    }

    fn fill(&mut self, globals: &Table) -> mlua::Result<()> {
        let (lua, common) = (self.lua.clone(), self.common.clone());
        for name in BASE {
            common.raw_set(*name, globals.get::<Value>(*name)?)?;
        }
        common.raw_set("next", &self.next)?;
        let next: Function = globals.get("next")?;
        let pairs = raw::closure(&lua, raw::pairs, (next, &self.shared, &self.next))?;
        common.raw_set("pairs", pairs)?;
        common.raw_set("pcall", raw::closure(&lua, raw::pcall, ())?)?;
        common.raw_set("xpcall", raw::closure(&lua, raw::xpcall, ())?)?;
        for (name, guard) in [
            ("rawget", raw::guarded_read as lua_CFunction),
            ("rawset", raw::guarded_write),
            ("setmetatable", raw::guarded_write),
            ("unpack", raw::unpack),
        ] {
            self.guarded(globals, name, guard)?;
            common.raw_set(name, globals.get::<Value>(name)?)?;
        }
        let getmetatable: Function = globals.get("getmetatable")?;
        let upvalues = (getmetatable, &self.shared, &self.metatables);
        common.raw_set(
            "getmetatable",
            raw::closure(&lua, raw::getmetatable, upvalues)?,
        )?;
        self.add_strings(globals)?;
        let table: Table = globals.get("table")?;
        for name in ["insert", "remove", "setn", "sort"] {
            self.guarded(&table, name, raw::guarded_write)?;
        }
        for name in ["foreach", "foreachi", "getn", "maxn"] {
            self.guarded(&table, name, raw::guarded_read)?;
        }
        self.add_coroutines(globals)?;
        let math: Table = globals.get("math")?;
        add_random(&lua, &math)?;
        let os = lua.create_table()?;
        let started = Instant::now();
        let clock = function(&lua, "clock", move |_| Ok(started.elapsed().as_secs_f64()))?;
        os.raw_set("clock", clock)?;
        for (name, library) in [
            ("table", table),
            ("math", math),
            ("os", os),
            ("bit", bit::library(&lua)?),
            ("struct", structs::library(&lua)?),
            ("cmsgpack", cmsgpack::library(&lua)?),
            ("cjson", cjson::library(&lua, &self.json)?),
        ] {
            common.raw_set(name, self.protect(&library)?)?;
        }
        Ok(())
    }

    /// Adds `string`, which is also the metatable's index of strings.
    fn add_strings(&self, globals: &Table) -> mlua::Result<()> {
        let string: Table = globals.get("string")?;
        for (name, function) in [
            ("find", patterns::find as lua_CFunction),
            ("match", patterns::match_),
            ("gmatch", patterns::gmatch),
            // The name before Lua 5.1.
            ("gfind", patterns::gmatch),
            ("gsub", patterns::gsub),
        ] {
            string.raw_set(name, raw::closure(&self.lua, function, &self.check)?)?;
        }
        let library = self.protect(&string)?;
        let of_strings = self.lua.create_table()?;
        of_strings.raw_set("__index", &library)?;
        self.metatables.raw_set(1, self.protect(&of_strings)?)?;
        self.common.raw_set("string", library)
    }

    fn add_coroutines(&self, globals: &Table) -> mlua::Result<()> {
        let coroutine: Table = globals.get("coroutine")?;
        self.guarded(&coroutine, "resume", raw::resume)?;
        let create: Function = coroutine.get("create")?;
        let resume: Function = coroutine.get("resume")?;
        let wrap = raw::closure(&self.lua, raw::wrap, (create, resume))?;
        coroutine.raw_set("wrap", wrap)?;
        self.common.raw_set("coroutine", self.protect(&coroutine)?)
    }

    /// A proxy that reads from `real` and refuses writes.
    pub fn protect(&self, real: &Table) -> mlua::Result<Table> {
        let proxy = self.lua.create_table()?;
        let metatable = self.lua.create_table()?;
        metatable.raw_set("__index", real)?;
        metatable.raw_set("__newindex", &self.read_only)?;
        proxy.set_metatable(Some(metatable))?;
        self.shared.raw_set(&proxy, real)?;
        Ok(proxy)
    }

    /// Makes reading a missing field an error, as for globals.
    pub fn refuse_unknown(&self, real: &Table) -> mlua::Result<()> {
        let metatable = self.lua.create_table()?;
        metatable.raw_set("__index", &self.no_such_global)?;
        real.set_metatable(Some(metatable))
    }

    /// Globals with this `redis`: the proxy and the table behind it.
    pub fn globals(&self, redis: &Table) -> mlua::Result<(Table, Table)> {
        let real = self.lua.create_table()?;
        self.common
            .for_each(|key: Value, value: Value| real.raw_set(key, value))?;
        let redis = self.protect(redis)?;
        real.raw_set("redis", &redis)?;
        real.raw_set("server", redis)?;
        self.refuse_unknown(&real)?;
        let proxy = self.protect(&real)?;
        let metatable = self.lua.create_table()?;
        metatable.raw_set("__index", &self.no_such_global)?;
        self.metatables.raw_set(&proxy, self.protect(&metatable)?)?;
        real.raw_set("_G", &proxy)?;
        self.add_loaders(&real, &proxy)?;
        Ok((proxy, real))
    }

    /// Adds `loadstring` and `load`, which accept text only.
    fn add_loaders(&self, real: &Table, globals: &Table) -> mlua::Result<()> {
        let environment = globals.clone();
        let loadstring = function(&self.lua, "loadstring", move |args| {
            let text = args.string(1)?;
            let name = match args.get(2) {
                Value::Nil => text.clone(),
                _ => args.string(2)?,
            };
            load(
                args,
                &text.as_bytes(),
                &name.to_string_lossy(),
                &environment,
            )
        })?;
        real.raw_set("loadstring", loadstring)?;
        let environment = globals.clone();
        let load = function(&self.lua, "load", move |args| {
            let Value::Function(reader) = args.get(1) else {
                return Err(args.bad(1, "function expected"));
            };
            let name = match args.get(2) {
                Value::Nil => "=(load)".to_owned(),
                _ => args.string(2)?.to_string_lossy(),
            };
            let mut text = Vec::new();
            loop {
                match reader.call::<Value>(())? {
                    Value::String(piece) if !piece.as_bytes().is_empty() => {
                        text.extend_from_slice(&piece.as_bytes());
                    }
                    Value::String(_) | Value::Nil => break,
                    _ => return Err(Raise::at("reader function must return a string")),
                }
                if text.len() > MAX_TEXT {
                    return Err(Raise::at("not enough memory"));
                }
            }
            load(args, &text, &name, &environment)
        })?;
        real.raw_set("load", load)
    }
}

/// Longest text that is compiled.
const MAX_TEXT: usize = 16 << 20;

fn load(args: &Args<'_>, text: &[u8], name: &str, globals: &Table) -> Returned<MultiValue> {
    let compiled = compile(args.lua, text, name, globals);
    Ok(match compiled {
        Ok(function) => [Value::Function(function)].into_iter().collect(),
        Err(why) => [Value::Nil, why.into_lua(args.lua)?].into_iter().collect(),
    })
}

/// Compiles text. Bytecode is refused, since it can read and write any memory.
///
/// # Errors
/// A syntax error, or bytecode.
pub fn compile(lua: &Lua, text: &[u8], name: &str, globals: &Table) -> Result<Function, String> {
    if text.first() == Some(&0x1B) {
        return Err(format!("{name}: bytecode cannot be loaded"));
    }
    if text.len() > MAX_TEXT {
        let name = name.trim_start_matches('@');
        return Err(format!("{name}: the text is too long"));
    }
    let name = name.split('\0').next().unwrap_or_default();
    let chunk = lua
        .load(text)
        .set_name(name)
        .set_mode(ChunkMode::Text)
        .set_environment(globals.clone());
    chunk.into_function().map_err(|error| match error {
        mlua::Error::SyntaxError { message, .. } => message,
        other => other.to_string(),
    })
}

fn add_random(lua: &Lua, math: &Table) -> mlua::Result<()> {
    let random = Rc::new(Random::new());
    let generator = random.clone();
    let seed = function(lua, "randomseed", move |args| {
        generator.seed(args.number(1)? as i64 as i32);
        Ok(())
    })?;
    math.raw_set("randomseed", seed)?;
    let draw = function(lua, "random", move |args| {
        let fraction = f64::from(random.next() % MAX) / f64::from(MAX);
        let (low, high) = match args.len() {
            0 => return Ok(fraction),
            1 => (1, args.integer(1)? as i32),
            2 => (args.integer(1)? as i32, args.integer(2)? as i32),
            _ => return Err(Raise::at("wrong number of arguments")),
        };
        if low > high {
            return Err(args.bad(args.len(), "interval is empty"));
        }
        let span = f64::from(high) - f64::from(low) + 1.0;
        Ok((fraction * span).floor() + f64::from(low))
    })?;
    math.raw_set("random", draw)
}
