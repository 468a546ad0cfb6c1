//! FUNCTION: libraries of functions, which are rows of the database.
//!
//! Commands that change libraries run while no other thread reads or writes keys, so all
//! threads see the change at the same time. New libraries are compiled before that, while
//! others use keys. DUMP and RESTORE use Redis' format: for each library its RDB opcode and its
//! code, then version and checksum.

use super::ahead::{AheadCtx, NewLibraries};
use super::dump::checksum;
use super::scripts::{LOAD_TIME, check_interpreter, kill_running};
use super::{CmdResult, Command, Error, Flags, SessionCtx, WriteCtx, args};
use crate::base::glob;
use crate::commands::table::help::{self, Topic};
use crate::commands::table::migrated::Migrated;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::encoding::system;
use crate::lua::header::library_name;
use crate::lua::{Failure, Limits};
use crate::rdb;
use crate::rdb::encode::Encoder;
use crate::rdb::input::Lent;
use crate::rdb::payload::{self, Checksum};
use crate::rdb::reader::Reader;
use crate::resp::Reply;
use crate::state::clients::ClientFlags;
use crate::state::scripts::{Function, Libraries, Library};
use crate::state::workers::Running;
use crate::state::{Server, Session};
use crate::storage::{StorageError, View};
use crate::types::OpError;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The RDB opcode of a library (`RDB_OPCODE_FUNCTION2`).
const OPCODE: u8 = 245;

/// Steps of work that a library counts as: after each one it is asked whether the command must end.
const STEPS_OF_A_LIBRARY: u64 = 16 << 10;

const TIMEOUT: Error = Error::text("ERR Error registering functions: ERR FUNCTION LOAD timeout");
const NO_LIBRARY: Error = Error::text("ERR Library not found");

/// Runs the code of a library once, to check it and to collect its functions. `time` is the
/// limit for that; a library that was accepted before, here or by a master, has none.
fn read_library(code: &[u8], time: Option<Duration>) -> Result<Library, Error> {
    let name = library_name(code).map_err(Error::Bytes)?.to_vec();
    let limits = Limits {
        time,
        ..Limits::default()
    };
    let loaded = check_interpreter()?.load_library(code, limits);
    let loaded = loaded.map_err(|failure| match failure {
        Failure::Error { text, .. } => Error::Bytes(text),
        Failure::Stopped { .. } => TIMEOUT,
    })?;
    let functions = loaded.into_iter().map(|function| {
        Arc::new(Function {
            name: function.name,
            description: function.description,
            flags: function.flags,
            runs_alone: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
        })
    });
    Ok(Library {
        name,
        code: code.to_vec(),
        functions: functions.collect(),
    })
}

/// Reads the libraries of the database when the server starts.
///
/// # Errors
/// They cannot be read.
pub fn load_libraries(server: &Server) -> Result<(), Error> {
    let mut libraries = Libraries::default();
    let mut codes = Vec::new();
    server
        .engine
        .system_rows(system::LIBRARY_TAG, |name, code| {
            // The row with the tag and an empty name marks a load in progress.
            if !name.is_empty() {
                codes.push(code.to_vec());
            }
        })?;
    for code in codes {
        libraries.insert(Arc::new(read_library(&code, None)?));
    }
    if !libraries.is_empty() {
        server.scripts.set_libraries(libraries);
    }
    Ok(())
}

/// Checks that the names of a library's functions are free.
///
/// # Errors
/// Another library has a function of the same name.
fn check_names(libraries: &Libraries, library: &Library) -> Result<(), Error> {
    let Some(known) = libraries.clash(library) else {
        return Ok(());
    };
    let text: &[&[u8]] = &[b"ERR Function ", &known.name, b" already exists"];
    Err(Error::Bytes(text.concat()))
}

/// Adds a library; `replace`: in place of the one of its name.
fn add(libraries: &mut Libraries, library: Arc<Library>, replace: bool) -> Result<(), Error> {
    let name = &library.name;
    if libraries.get(name).is_some() && !replace {
        let text: &[&[u8]] = &[b"ERR Library ", name, b" already exists"];
        return Err(Error::Bytes(text.concat()));
    }
    check_names(libraries, &library)?;
    libraries.insert(library);
    Ok(())
}

/// Adds a library of a data set that is loaded (full sync, RDB file); returns its name.
///
/// # Errors
/// The library does not load, or its name or the name of one of its functions is taken.
pub fn add_library(libraries: &mut Libraries, code: &[u8]) -> Result<Vec<u8>, Error> {
    let library = Arc::new(read_library(code, None)?);
    let name = library.name.clone();
    add(libraries, library, false)?;
    Ok(name)
}

/// Replaces the libraries by `new`: writes the rows that differ and publishes the new set
/// to all threads.
fn change(ctx: &mut WriteCtx<'_>, new: Libraries) {
    let old = ctx.server.scripts.libraries();
    for library in old.all() {
        if new.get(&library.name).is_none() {
            ctx.txn
                .put_system_row(system::library_row(&library.name), None);
        }
    }
    for library in new.all() {
        let known = old.get(&library.name);
        if !known.is_some_and(|known| Arc::ptr_eq(known, library)) {
            let code = Some(library.code.clone());
            let row = system::library_row(&library.name);
            ctx.txn.put_system_row(row, code);
        }
    }
    ctx.server.scripts.set_libraries(new);
}

/// The time limit for loading a library; none if the command comes from the master.
fn time_of(session: &Session) -> Option<Duration> {
    let flags = session.info.flags();
    (!flags.contains(ClientFlags::MASTER)).then_some(LOAD_TIME)
}

/// Loads libraries, up to the first that fails.
///
/// # Errors
/// The command must end, or run elsewhere.
fn read_libraries<'c>(
    codes: impl IntoIterator<Item = &'c [u8]>,
    view: &View,
    session: &Session,
) -> Result<NewLibraries, StorageError> {
    let mut new = NewLibraries::default();
    for code in codes {
        view.work(STEPS_OF_A_LIBRARY)?;
        match read_library(code, time_of(session)) {
            Ok(library) => new.loaded.push(Arc::new(library)),
            Err(error) => {
                new.error = Some(error.wire().into_owned());
                break;
            }
        }
    }
    Ok(new)
}

fn load_ahead(ctx: &mut AheadCtx<'_>, args: &[&[u8]]) -> Result<(), StorageError> {
    let Some(code) = args.get(2..).and_then(<[_]>::last) else {
        return Ok(());
    };
    let new = read_libraries([*code], ctx.view, ctx.session)?;
    ctx.ahead.keep(code, new);
    Ok(())
}

fn load(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (code, options) = match &args[2..] {
        [options @ .., code] => (*code, options),
        [] => return Err(Error::Arity("function|load".into())),
    };
    let mut replace = false;
    for option in options {
        if !args::is(option, "REPLACE") {
            return Err(Error::Bytes(
                [b"ERR Unknown option given: ", *option].concat(),
            ));
        }
        replace = true;
    }
    let scripts = &ctx.server.scripts;
    let name = library_name(code).map_err(Error::Bytes)?;
    if !replace && scripts.libraries().get(name).is_some() {
        let text: &[&[u8]] = &[b"ERR Library '", name, b"' already exists"];
        return Err(Error::Bytes(text.concat()));
    }
    let new = match ctx.ahead.libraries(code) {
        Some(new) => new,
        None => read_libraries([code], ctx.txn, ctx.session)?,
    };
    if let Some(error) = new.error {
        return Err(Error::Bytes(error));
    }
    for library in new.loaded {
        check_names(&scripts.libraries(), &library)?;
        let row = system::library_row(name);
        ctx.txn.put_system_row(row, Some(library.code.clone()));
        scripts.change_libraries(|libraries| libraries.insert(library));
    }
    ctx.reply.bulk(name);
    Ok(())
}

fn delete(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (scripts, name) = (&ctx.server.scripts, args[2]);
    if scripts.libraries().get(name).is_none() {
        return Err(NO_LIBRARY);
    }
    ctx.txn.put_system_row(system::library_row(name), None);
    scripts.change_libraries(|libraries| {
        libraries.remove(name);
    });
    ctx.reply.ok();
    Ok(())
}

/// The error for too many arguments of a subcommand.
fn wrong_arguments(subcommand: &[u8]) -> Error {
    let text: &[&[u8]] = &[
        b"ERR unknown subcommand or wrong number of arguments for '",
        subcommand,
        b"'. Try FUNCTION HELP.",
    ];
    Error::Bytes(text.concat())
}

fn flush(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    match &args[2..] {
        [] => {}
        [how] if args::is(how, "SYNC") || args::is(how, "ASYNC") => {}
        [_] => {
            return Err(Error::text(
                "ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
            ));
        }
        _ => return Err(wrong_arguments(args[1])),
    }
    change(ctx, Libraries::default());
    // Also if there are no libraries here: a replica may have some.
    ctx.txn.effect(ctx.db, &[&b"FUNCTION"[..], b"FLUSH"]);
    ctx.reply.ok();
    Ok(())
}

fn restore_ahead(ctx: &mut AheadCtx<'_>, args: &[&[u8]]) -> Result<(), StorageError> {
    let Some(payload) = args.get(2) else {
        return Ok(());
    };
    if let Ok(codes) = codes_in(ctx.view, payload, checksum(ctx.server)) {
        let codes = codes.iter().map(Vec::as_slice);
        let new = read_libraries(codes, ctx.view, ctx.session)?;
        ctx.ahead.keep(payload, new);
    }
    Ok(())
}

fn restore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let policy = match &args[3..] {
        [] => "APPEND",
        [word] => {
            let known = ["FLUSH", "APPEND", "REPLACE"].into_iter();
            known.into_iter().find(|known| args::is(word, known)).ok_or(Error::text(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ))?
        }
        _ => return Err(wrong_arguments(args[1])),
    };
    let mut libraries = match policy {
        "FLUSH" => Libraries::default(),
        _ => Libraries::clone(&ctx.server.scripts.libraries()),
    };
    let new = match ctx.ahead.libraries(args[2]) {
        Some(new) => new,
        None => {
            let codes = codes_in(ctx.txn, args[2], checksum(ctx.server))?;
            read_libraries(codes.iter().map(Vec::as_slice), ctx.txn, ctx.session)?
        }
    };
    for library in &new.loaded {
        add(&mut libraries, library.clone(), policy == "REPLACE")?;
    }
    if let Some(error) = new.error {
        return Err(Error::Bytes(error));
    }
    change(ctx, libraries);
    // The client's payload may have a version that a replica cannot read.
    let compress = ctx.server.config.load().rdbcompression;
    let codes = new.loaded.iter().map(|library| &*library.code);
    let payload = payload_of(codes, compress);
    let effect: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", &payload, policy.as_bytes()];
    ctx.txn.effect(ctx.db, &effect);
    ctx.reply.ok();
    Ok(())
}

/// The libraries of a payload. Those that are compressed can be many times as long there.
fn codes_in(view: &View, bytes: &[u8], checksum: Checksum) -> Result<Vec<Vec<u8>>, Error> {
    let (contents, _) = payload::contents(bytes, checksum).map_err(|_| Error::BAD_DUMP)?;
    let broken = |error| match error {
        rdb::Error::NoMemory => OpError::from(StorageError::NoMemory).into(),
        _ => Error::text("ERR Failed loading library data"),
    };
    let input = Lent {
        rest: contents,
        will_hold: |bytes| view.will_hold(bytes).map_err(|_| rdb::Error::NoMemory),
    };
    let mut reader = Reader::new(input, contents.len() as u64 * 1024);
    let mut codes = Vec::new();
    while !reader.input.rest.is_empty() {
        let (opcode, rest) = reader.input.rest.split_first().ok_or(Error::BAD_DUMP)?;
        if *opcode != OPCODE {
            return Err(Error::text("ERR given type is not a function"));
        }
        reader.input.rest = rest;
        let mut code = Vec::new();
        reader.string(&mut code).map_err(broken)?;
        codes.push(code);
    }
    Ok(codes)
}

fn dump(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let libraries = ctx.server.scripts.libraries();
    let codes = libraries.all().map(|library| &*library.code);
    let payload = payload_of(codes, ctx.server.config.load().rdbcompression);
    ctx.reply.bulk(&payload);
    Ok(())
}

/// The payload of libraries.
fn payload_of<'c>(codes: impl Iterator<Item = &'c [u8]>, compress: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut encoder = Encoder::new(compress);
    for code in codes {
        payload.push(OPCODE);
        encoder.string(code, &mut payload);
    }
    payload::seal(&mut payload);
    payload
}

fn list(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (mut pattern, mut with_code) = (None, false);
    let mut rest = args[2..].iter();
    while let Some(word) = rest.next() {
        if !with_code && args::is(word, "WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && args::is(word, "LIBRARYNAME") {
            let missing = Error::text("ERR library name argument was not given");
            pattern = Some(*rest.next().ok_or(missing)?);
        } else {
            return Err(Error::Bytes([b"ERR Unknown argument ", *word].concat()));
        }
    }
    let libraries = ctx.server.scripts.libraries();
    let wanted = |name: &[u8]| pattern.is_none_or(|p| glob::matches(p, name, true));
    let shown = libraries.all().filter(|lib| wanted(&lib.name));
    let shown: Vec<_> = shown.collect();
    ctx.reply.array(shown.len());
    for library in shown {
        show(ctx.reply, library, with_code);
    }
    Ok(())
}

fn show(reply: &mut Reply, library: &Library, with_code: bool) {
    reply.map(3 + usize::from(with_code));
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(&function.name);
        reply.bulk(b"description");
        match &function.description {
            Some(text) => reply.bulk(text),
            None => reply.null(),
        }
        reply.bulk(b"flags");
        reply.set(function.flags.names().count());
        for flag in function.flags.names() {
            reply.simple(flag);
        }
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

fn stats(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let running = ctx.server.workers.longest();
    ctx.reply.map(2);
    ctx.reply.bulk(b"running_script");
    match running {
        Some(running) => show_running(ctx.reply, &running),
        None => ctx.reply.null(),
    }
    let libraries = ctx.server.scripts.libraries();
    ctx.reply.bulk(b"engines");
    ctx.reply.map(1);
    ctx.reply.bulk(b"LUA");
    ctx.reply.map(2);
    ctx.reply.bulk(b"libraries_count");
    ctx.reply.int(libraries.len() as i64);
    ctx.reply.bulk(b"functions_count");
    ctx.reply.int(libraries.functions() as i64);
    Ok(())
}

fn show_running(reply: &mut Reply, running: &Running) {
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(&running.name);
    reply.bulk(b"command");
    reply.array(running.command.len());
    for arg in &running.command {
        reply.bulk(arg);
    }
    reply.bulk(b"duration_ms");
    reply.int(running.elapsed().as_millis() as i64);
}

fn kill(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    kill_running(ctx, true)
}

const TOPICS: &[Topic] = &[
    (
        "LOAD [REPLACE] <FUNCTION CODE>",
        &["Create a new library with the given library name and code."],
    ),
    ("DELETE <LIBRARY NAME>", &["Delete the given library."]),
    (
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        &[
            "Return general information on all the libraries:",
            "* Library name",
            "* The engine used to run the Library",
            "* Library description",
            "* Functions list",
            "* Library code (if WITHCODE is given)",
            "It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
        ],
    ),
    (
        "STATS",
        &[
            "Return information about the current function running:",
            "* Function name",
            "* Command used to run the function",
            "* Duration in MS that the function is running",
            "If no function is running, return nil",
            "In addition, returns a list of available engines.",
        ],
    ),
    ("KILL", &["Kill the current running function."]),
    (
        "FLUSH [ASYNC|SYNC]",
        &[
            "Delete all the libraries.",
            "When called without the optional mode argument, the behavior is determined by the",
            "lazyfree-lazy-user-flush configuration directive. Valid modes are:",
            "* ASYNC: Asynchronously flush the libraries.",
            "* SYNC: Synchronously flush the libraries.",
        ],
    ),
    (
        "DUMP",
        &[
            "Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
        ],
    ),
    (
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        &[
            "Restore the libraries represented by the given payload, it is possible to give a restore policy to",
            "control how to handle existing libraries (default APPEND):",
            "* FLUSH: delete all existing libraries.",
            "* APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
            "* REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
            "  libraries with the new libraries (notice that even on this option there is a chance of failure",
            "  in case of functions name collision with another library).",
        ],
    ),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "FUNCTION", TOPICS);
    Ok(())
}

/// Commands that change libraries run while no other thread reads or writes keys.
const CHANGES: Flags = Flags::NOSCRIPT.union(Flags::EXCLUSIVE);
/// New libraries are compiled and run to collect the functions that they register.
const ADDS: Flags = CHANGES.union(Flags::DENYOOM).union(Flags::ON_WORKER);

const fn sub(command: Command, flags: Flags, summary: &'static str) -> Command {
    command
        .flags(flags)
        .migrated(Migrated::Script)
        .doc(Group::Scripting, "7.0.0", summary)
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[Command::container(
    "function",
    -2,
    &[
        sub(
            Command::write("delete", 3, delete)
                .syntax("library-name")
                .complexity("O(N), N: functions of the library")
                .tips(&[Tip::RequestAllShards, Tip::ResponseAllSucceeded]),
            CHANGES,
            "Deletes a library",
        ),
        sub(
            Command::session("dump", 2, dump).complexity("O(N), N: functions"),
            Flags::NOSCRIPT,
            "Returns all libraries as one payload",
        ),
        sub(
            Command::write("flush", -2, flush)
                .syntax("[flush-type=(ASYNC|SYNC)]")
                .complexity("O(N), N: functions")
                .tips(&[Tip::RequestAllShards, Tip::ResponseAllSucceeded]),
            CHANGES,
            "Deletes all libraries",
        ),
        sub(
            Command::session("help", 2, help),
            Flags::LOADING.union(Flags::STALE),
            "Explains the subcommands",
        ),
        sub(
            Command::session("kill", 2, kill)
                .tips(&[Tip::RequestAllShards, Tip::ResponseOneSucceeded]),
            Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
            "Ends a function that runs too long and has written nothing",
        ),
        sub(
            Command::session("list", -2, list)
                .syntax("[LIBRARYNAME library-name-pattern] [WITHCODE]")
                .complexity("O(N), N: functions")
                .tips(&[Tip::NondeterministicOutputOrder]),
            Flags::NOSCRIPT,
            "Lists libraries and their functions",
        ),
        sub(
            Command::write("load", -3, load)
                .syntax("[REPLACE] function-code")
                .ahead(load_ahead)
                .complexity("O(N), N: the length of the code")
                .tips(&[Tip::RequestAllShards, Tip::ResponseAllSucceeded]),
            ADDS,
            "Adds or replaces a library",
        ),
        sub(
            Command::write("restore", -3, restore)
                .syntax("serialized-value [policy=(FLUSH|APPEND|REPLACE)]")
                .ahead(restore_ahead)
                .complexity("O(N), N: functions")
                .tips(&[Tip::RequestAllShards, Tip::ResponseAllSucceeded]),
            ADDS,
            "Adds the libraries of a payload",
        ),
        sub(
            Command::session("stats", 2, stats).tips(&[
                Tip::NondeterministicOutput,
                Tip::RequestAllShards,
                Tip::ResponseSpecial,
            ]),
            Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
            "Returns which function runs",
        ),
    ],
)
.migrated(Migrated::Script)
.doc(
    Group::Scripting,
    "7.0.0",
    "Commands about libraries of functions",
)];
