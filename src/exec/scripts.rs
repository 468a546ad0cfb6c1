//! EVAL, EVALSHA, FCALL and their read-only variants.
//!
//! A script is a [unit](super::unit): its declared keys are locked before it starts, so it runs
//! in parallel with everything that does not touch them, and its writes are one batch. A
//! command of a script that fails is taken back alone; as in Redis, an error that ends the
//! script takes back nothing.
//!
//! An undeclared key is locked when the script touches it, if no other thread holds it. If one
//! does, or if a command concerns a DB as a whole, the attempt ends: its writes and published
//! messages are taken back, and the script runs again from its start while no other thread
//! reads or writes keys. The script is marked (`runs_alone`), so that its next run begins in
//! this way.
//!
//! On an IO thread a script has a time slice. A script that takes longer is taken back in the
//! same way, and the client's request runs on a worker (see [`crate::state::workers`]), where
//! only clients that need its keys wait for it. The script is marked (`is_slow`) until a run is
//! quick.
//!
//! Each thread compiles scripts and functions for itself, from the texts in
//! [`crate::state::scripts`]. Compilation is bounded in the same way: a text that takes longer
//! than a slice is compiled on a worker, where it can be killed.

use self::limits::RunLimits;
use super::Executor;
use super::Stop;
use super::unit::Scope;
use crate::base::num;
use crate::base::slots::Slots;
use crate::commands::info::REDIS_VERSION;
use crate::commands::{Command, Error, Flags, Handler, Own, ScriptCall};
use crate::lua::api::sha1_hex;
use crate::lua::header::{ScriptFlags, script_flags};
use crate::lua::{self, Failure, Halted, Host, Interpreter, Trip, Which};
use crate::resp::{FREE_BYTES, Reply};
use crate::state::acl::Context;
use crate::state::scripts::{Known, Library, SHORT_TEXT, Script};
use crate::state::workers::Running;
use crate::state::{Server, Session};
use crate::storage::txn::Savepoint;
use crate::types::OpError;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

mod limits;

/// Bytes that the interpreter of a thread may use at most,
const MOST_BYTES: usize = 256 << 20;
/// and at least, however small the budget is.
const LEAST_BYTES: usize = 4 << 20;
/// All interpreters together may use `1 / PART_OF_BUDGET` of the memory budget.
const PART_OF_BUDGET: usize = 2;
/// Of that, IO threads have `1 / PART_OF_IO_THREADS`: scripts that need more run on workers.
const PART_OF_IO_THREADS: usize = 4;
/// Bytes that the writes of one script may take.
const PENDING_BYTES: usize = 512 << 20;
/// How long a script may run on an IO thread.
const SLICE: Duration = Duration::from_millis(5);
/// How long the compilation of a script may take on a worker.
const COMPILE_TIME: Duration = Duration::from_secs(5);
/// Compiled scripts that an interpreter keeps beyond those in the cache.
const STALE_SCRIPTS: usize = 64;
/// Digits of the name of a script.
const SHA_DIGITS: usize = 40;

const NEGATIVE_KEYS: Error = Error::text("ERR Number of keys can't be negative");
const BAD_KEYS: Error = Error::text("ERR Bad number of keys provided");
const NO_FUNCTION: Error = Error::text(lua::NO_FUNCTION);
const WRITE_FLAG: Error =
    Error::text("ERR Can not execute a script with write flag using *_ro command.");
const NO_CLUSTER: Error =
    Error::text("ERR Can not run script on cluster, 'no-cluster' flag is set.");
const READ_ONLY: Error = Error::text("ERR Write commands are not allowed from read-only scripts.");
const UNKNOWN: Error = Error::text("ERR Unknown Redis command called from script");
const ARITY: Error = Error::text("ERR Wrong number of args calling Redis command from script");
const NOT_ALLOWED: Error = Error::text("ERR This Redis command is not allowed from script");
/// Error of a killed script or function; the place in its code follows.
const KILLED: &[u8] = b"ERR Script killed by user with SCRIPT KILL...";
const TOO_LARGE: Error = Error::text("OOM the script has written more than fits one transaction");

/// The interpreter of a thread, and the state of the caches that it was made from.
pub(super) struct ThreadScripts {
    lua: Interpreter,
    flushes: u64,
    libraries_version: u64,
    /// The loaded libraries, by name: those whose functions were called.
    libraries: FxHashMap<Vec<u8>, Arc<Library>>,
    /// The memory budget from which `bytes` was computed.
    budget: u64,
    bytes: usize,
    counted: Counted,
}

/// Bytes that INFO counts for an interpreter until this is dropped.
struct Counted {
    server: Arc<Server>,
    interpreter: Arc<AtomicUsize>,
    libraries: usize,
}

impl Counted {
    fn new(server: Arc<Server>) -> Counted {
        Counted {
            interpreter: server.scripts.count_interpreter(),
            server,
            libraries: 0,
        }
    }

    fn set_libraries(&mut self, libraries: usize) {
        let scripts = &self.server.scripts;
        scripts.loaded_libraries_grew(self.libraries, libraries);
        self.libraries = libraries;
    }
}

impl ThreadScripts {
    /// Loads a library unless this version of it is loaded.
    fn load(&mut self, library: &Arc<Library>, run_limits: &RunLimits) -> Result<(), Stop> {
        let loaded = self.libraries.get(&library.name);
        if loaded.is_some_and(|loaded| Arc::ptr_eq(loaded, library)) {
            return Ok(());
        }
        let before = self.lua.used_memory();
        let loaded = self
            .lua
            .load_library(&library.code, run_limits.limits(None));
        loaded.map_err(|failure| run_limits.stop(failure))?;
        self.lua
            .add_library(&library.name)
            .map_err(Error::no_interpreter)?;
        self.libraries.insert(library.name.clone(), library.clone());
        let grown = self.lua.used_memory().saturating_sub(before);
        self.counted.set_libraries(self.counted.libraries + grown);
        Ok(())
    }

    /// Unloads the libraries for which `keep` is false.
    fn retain_libraries(&mut self, keep: impl Fn(&[u8]) -> bool) -> Result<(), Error> {
        let (lua, mut done) = (&mut self.lua, Ok(()));
        let count = self.libraries.len();
        self.libraries.retain(|name, _| {
            let stays = keep(name) || done.is_err();
            if !stays {
                done = lua.remove_library(name);
            }
            stays
        });
        let each = self.counted.libraries / count.max(1);
        self.counted.set_libraries(each * self.libraries.len());
        done.map_err(Error::no_interpreter)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set_libraries(0);
    }
}

/// A script or a function.
enum Code {
    Script(Arc<Script>),
    Function(Known),
}

impl Code {
    fn which(&self) -> Which<'_> {
        match self {
            Code::Script(script) => Which::Script(&script.sha),
            Code::Function(known) => Which::Function {
                library: &known.library.name,
                name: &known.function.name,
            },
        }
    }

    /// The flags of the script's first line or of the function's registration.
    fn flags(&self) -> Option<ScriptFlags> {
        match self {
            Code::Script(script) => script.flags,
            Code::Function(known) => Some(known.function.flags),
        }
    }

    fn is_slow(&self) -> &AtomicBool {
        match self {
            Code::Script(script) => &script.is_slow,
            Code::Function(known) => &known.function.is_slow,
        }
    }

    fn runs_alone(&self) -> &AtomicBool {
        match self {
            Code::Script(script) => &script.runs_alone,
            Code::Function(known) => &known.function.runs_alone,
        }
    }
}

/// A script's keys and arguments.
struct Given<'a> {
    keys: &'a [&'a [u8]],
    args: &'a [&'a [u8]],
}

impl<'a> Given<'a> {
    fn read(call: ScriptCall, args: &'a [&'a [u8]]) -> Result<Given<'a>, Error> {
        let given = args.get(3..).unwrap_or_default();
        // What cannot be a SHA-1 is refused before anything else is looked at.
        let is_sha = args.get(1).is_some_and(|sha| sha.len() == SHA_DIGITS);
        if matches!(call, ScriptCall::EvalSha | ScriptCall::EvalShaRo) && !is_sha {
            return Err(Error::NO_SCRIPT);
        }
        let count = num::parse_i64(args.get(2).copied().unwrap_or_default());
        let count = count.ok_or(match call.is_function() {
            true => BAD_KEYS,
            false => Error::Op(OpError::NotInteger),
        })?;
        if count > given.len() as i64 {
            return Err(Error::NUMKEYS_TOO_LARGE);
        }
        let count = usize::try_from(count).map_err(|_| NEGATIVE_KEYS)?;
        let (keys, args) = given.split_at(count);
        Ok(Given { keys, args })
    }
}

impl Executor {
    /// Carries out one of the commands that run scripts.
    pub(super) fn script(
        &mut self,
        call: ScriptCall,
        session: &mut Session,
        command: &'static Command,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        // A slice does not end before the tables of keys and arguments are made.
        if self.is_long(command, args) && self.has_workers() && !self.in_unit() {
            return Err(Stop::Slow);
        }
        match self.in_unit() {
            true => self.show(session, command, args),
            false => self.show_request(session, command, args),
        }
        let started_us = self.tick.last_us;
        let mut scripts = match self.thread.scripts.take() {
            Some(scripts) => scripts,
            None => self.new_interpreter()?,
        };
        let nth = self.request.scripts_begun;
        let done = self.find_and_run(&mut scripts, call, session, args, reply);
        let is_taken_back = done.as_ref().is_err_and(Stop::takes_back);
        if let Some(begun) = self.request.scripts.get_mut(nth).filter(|_| !is_taken_back) {
            *begun = None;
        }
        if scripts.lua.tidy() {
            let used = &scripts.counted.interpreter;
            used.store(scripts.lua.used_memory(), Ordering::Relaxed);
            self.thread.scripts = Some(scripts);
        }
        self.tick.last_us = started_us;
        done
    }

    /// The flags that the script or function of a command declares, if any.
    pub(super) fn declared(&self, command: &Command, args: &[&[u8]]) -> Option<ScriptFlags> {
        let Handler::Own(Own::Script(call)) = command.handler else {
            return None;
        };
        let name = args.get(1).copied().unwrap_or_default();
        let scripts = &self.server.scripts;
        match call {
            ScriptCall::Fcall | ScriptCall::FcallRo => {
                let libraries = scripts.libraries();
                libraries.function(name).map(|known| known.function.flags)
            }
            ScriptCall::Eval | ScriptCall::EvalRo => script_flags(name).ok().flatten(),
            ScriptCall::EvalSha | ScriptCall::EvalShaRo => {
                let sha = String::from_utf8_lossy(name).to_ascii_lowercase();
                scripts.find(&sha).and_then(|script| script.flags)
            }
        }
    }

    /// Bytes that the interpreter of this thread may use.
    fn interpreter_bytes(&self) -> usize {
        let config = self.config();
        let budget = usize::try_from(self.server.engine.memory_budget()).unwrap_or(usize::MAX);
        let all = budget / PART_OF_BUDGET;
        let of_io_threads = all / PART_OF_IO_THREADS;
        let each = match self.thread.slices {
            true => of_io_threads / config.io_thread_count().max(1),
            false => (all - of_io_threads) / config.worker_count().max(1),
        };
        each.clamp(LEAST_BYTES, MOST_BYTES)
    }

    fn new_interpreter(&self) -> Result<Box<ThreadScripts>, Error> {
        let bytes = self.interpreter_bytes();
        let lua = Interpreter::new(bytes, REDIS_VERSION).map_err(Error::no_interpreter)?;
        Ok(Box::new(ThreadScripts {
            lua,
            flushes: self.server.scripts.flushes(),
            libraries_version: 0,
            libraries: FxHashMap::default(),
            budget: self.server.engine.memory_budget(),
            bytes,
            counted: Counted::new(self.server.clone()),
        }))
    }

    fn find_and_run(
        &mut self,
        scripts: &mut Box<ThreadScripts>,
        call: ScriptCall,
        session: &Session,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        if scripts.flushes != self.server.scripts.flushes() {
            *scripts = self.new_interpreter()?;
        }
        let name = args.get(1).copied().unwrap_or_default();
        // The number of threads comes from a system call, which takes longer than a script.
        if scripts.budget != self.server.engine.memory_budget() {
            scripts.budget = self.server.engine.memory_budget();
            scripts.bytes = self.interpreter_bytes();
            let limited = scripts.lua.limit_memory(scripts.bytes);
            limited.map_err(Error::no_interpreter)?;
        }
        let run_limits = RunLimits::start(self, scripts, call, args);
        if run_limits.is_killed() {
            return Err(run_limits.stop_killed());
        }
        let (code, given) = match call {
            ScriptCall::Fcall | ScriptCall::FcallRo => {
                let known = self.find_function(scripts, name, &run_limits)?;
                (Code::Function(known), Given::read(call, args)?)
            }
            ScriptCall::Eval | ScriptCall::EvalRo => {
                let given = Given::read(call, args)?;
                (
                    Code::Script(self.find_text(scripts, name, &run_limits)?),
                    given,
                )
            }
            ScriptCall::EvalSha | ScriptCall::EvalShaRo => {
                let given = Given::read(call, args)?;
                (
                    Code::Script(self.find_sha(scripts, name, &run_limits)?),
                    given,
                )
            }
        };
        let flags = code.flags();
        let stays_out = flags.is_some_and(|flags| flags.contains(ScriptFlags::NO_CLUSTER));
        if stays_out && self.thread.config.cluster_enabled {
            return Err(NO_CLUSTER.into());
        }
        self.check_stale(flags)?;
        let no_writes = flags.is_some_and(|flags| flags.contains(ScriptFlags::NO_WRITES));
        if flags.is_some() && call.is_read_only() && !no_writes {
            return Err(WRITE_FLAG.into());
        }
        let read_only = call.is_read_only() || no_writes;
        self.run_script(
            scripts,
            &code,
            read_only,
            session,
            (&run_limits, &given),
            reply,
        )
    }

    /// The script with this text, compiled.
    fn find_text(
        &self,
        scripts: &mut ThreadScripts,
        body: &[u8],
        run_limits: &RunLimits,
    ) -> Result<Arc<Script>, Stop> {
        if self.thread.slices && body.len() > SHORT_TEXT {
            return Err(Stop::Slow);
        }
        let sha = sha1_hex(body);
        if let Some(known) = self.server.scripts.find(&sha) {
            compile(scripts, &known, run_limits)?;
            return Ok(known);
        }
        let flags = script_flags(body).map_err(Error::Bytes)?;
        let script = Script::new(sha, body, flags);
        compile(scripts, &script, run_limits)?;
        Ok(self.server.scripts.add(script, false))
    }

    /// The script with this SHA1, compiled.
    fn find_sha(
        &self,
        scripts: &mut ThreadScripts,
        sha: &[u8],
        run_limits: &RunLimits,
    ) -> Result<Arc<Script>, Stop> {
        let sha = std::str::from_utf8(sha).map_err(|_| Error::NO_SCRIPT)?;
        let found = self.server.scripts.find(&sha.to_ascii_lowercase());
        let script = found.ok_or(Error::NO_SCRIPT)?;
        compile(scripts, &script, run_limits)?;
        if scripts.lua.scripts() > self.server.scripts.cached().0 + STALE_SCRIPTS {
            let cache = &self.server.scripts;
            scripts.lua.retain_scripts(|sha| cache.contains(sha));
        }
        Ok(script)
    }

    /// The function of this name; its library is loaded.
    fn find_function(
        &self,
        scripts: &mut ThreadScripts,
        name: &[u8],
        run_limits: &RunLimits,
    ) -> Result<Known, Stop> {
        let version = self.server.scripts.libraries_version();
        let libraries = self.server.scripts.libraries();
        let known = libraries.function(name).ok_or(NO_FUNCTION)?;
        if scripts.libraries_version != version {
            scripts.libraries_version = version;
            // Replaced libraries are reloaded when their functions are called.
            if scripts.libraries.len() > libraries.len() {
                scripts.retain_libraries(|name| libraries.get(name).is_some())?;
            }
        }
        scripts.load(&known.library, run_limits)?;
        Ok(known.clone())
    }

    /// Takes back a script that was stopped. `Ok`: it is to be run again, alone; otherwise the
    /// reason why not. `before`: the state before a killed script in a transaction, which goes
    /// on without it.
    fn take_back_stopped(
        &mut self,
        code: &Code,
        why: Trip,
        place: &[u8],
        before: Option<&Savepoint>,
        stopped: Option<Stop>,
    ) -> Result<(), Stop> {
        if why == Trip::Killed
            && let Some(before) = before
            && !self.server.workers.are_stopping()
        {
            // The transaction goes on without the script.
            self.txn.rollback(before);
            self.end_unit()?;
            return Err(killed(place).into());
        }
        self.roll_back_unit()?;
        let inside = self.in_unit();
        if matches!(stopped, Some(Stop::Cold)) {
            return Err(Stop::Cold);
        }
        if why == Trip::Time || stopped.is_some() {
            code.is_slow().store(true, Ordering::Relaxed);
            return Err(Stop::Slow);
        }
        if why == Trip::Killed {
            return Err(match inside {
                true => Stop::Conflict,
                false => killed(place).into(),
            });
        }
        Ok(())
    }

    /// The session of a script of this client.
    fn session_of(
        &self,
        client: &Session,
        code: &Code,
        given: &Given<'_>,
        pending: bool,
    ) -> Session {
        let mut session = client.for_script(self.began_on_replica(), pending);
        if self.thread.config.cluster_enabled {
            // A script that declares nothing may use keys of any slot, as before there were flags.
            session.crosses_slots = code
                .flags()
                .is_none_or(|flags| flags.contains(ScriptFlags::ALLOW_CROSS_SLOT_KEYS));
            if let Some(slot) = Slots::of(given.keys.iter().copied()).one() {
                session.slot.set(Some(slot));
            }
        }
        session
    }

    fn run_script(
        &mut self,
        scripts: &mut ThreadScripts,
        code: &Code,
        read_only: bool,
        session: &Session,
        (run_limits, given): (&RunLimits, &Given<'_>),
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        let inside = self.in_unit();
        let pending = self.txn.pending_bytes() > 0;
        if self.thread.slices && code.is_slow().load(Ordering::Relaxed) {
            return Err(Stop::Slow);
        }
        loop {
            let alone = code.runs_alone().load(Ordering::Relaxed);
            let mut scope = match alone {
                true => Scope::everything(),
                false => Scope::default(),
            };
            for key in given.keys {
                scope.key(session.db(), key);
            }
            self.begin_unit(&scope)?;
            let published = self.tick.outbox.len();
            let before = inside.then(|| self.txn.savepoint());
            let began = Instant::now();
            let running = run_limits.running();
            if let Some(running) = running {
                running.forget_writes();
            }
            let limits = run_limits.limits(None);
            let mut host = ScriptHost {
                session: self.session_of(session, code, given, pending),
                executor: self,
                read_only,
                replicates: true,
                running: running.cloned(),
                stopped: None,
            };
            let (keys, args) = (given.keys, given.args);
            let done = scripts
                .lua
                .run(code.which(), keys, args, limits, &mut host, reply);
            let stopped = host.stopped.take();
            if host.session.wrote.get() {
                session.wrote.set(true);
            }
            if running.is_some() && began.elapsed() < SLICE / 2 {
                code.is_slow().store(false, Ordering::Relaxed);
            }
            match run_limits.unless_killed(done) {
                Ok(()) => return Ok(self.end_unit()?),
                Err(Failure::Error { text, .. })
                    if self.thread.slices && text.starts_with(lua::NO_MEMORY.as_bytes()) =>
                {
                    self.tick.outbox.truncate(published);
                    self.roll_back_unit()?;
                    code.is_slow().store(true, Ordering::Relaxed);
                    return Err(Stop::Slow);
                }
                Err(Failure::Error { text, counted }) => {
                    self.end_unit()?;
                    let how = if counted { Stop::Counted } else { Stop::Failed };
                    return Err(how(Error::Bytes(text)));
                }
                Err(Failure::Stopped { why, place }) => {
                    self.tick.outbox.truncate(published);
                    let why = trip_of(why, running);
                    let before = before.as_ref().filter(|_| running.is_some());
                    self.take_back_stopped(code, why, &place, before, stopped)?;
                    code.runs_alone().store(true, Ordering::Relaxed);
                    if inside || alone || self.must_end() {
                        return Err(Stop::Conflict);
                    }
                }
            }
        }
    }
}

/// Why a script was stopped.
fn trip_of(why: Trip, running: Option<&Arc<Running>>) -> Trip {
    let is_killed = |running: &Arc<Running>| running.kill.load(Ordering::Acquire);
    match why {
        // The kill ended a command of the script.
        Trip::Halted if running.is_some_and(is_killed) => Trip::Killed,
        why => why,
    }
}

fn killed(place: &[u8]) -> Error {
    Error::Bytes([KILLED, place].concat())
}

fn compile(
    scripts: &mut ThreadScripts,
    script: &Script,
    run_limits: &RunLimits,
) -> Result<(), Stop> {
    if scripts.lua.has_script(&script.sha) {
        return Ok(());
    }
    let slowly = &script.compiles_slowly;
    if run_limits.slice.is_some() && slowly.load(Ordering::Relaxed) {
        return Err(Stop::Slow);
    }
    let began = Instant::now();
    let limits = run_limits.limits(Some(COMPILE_TIME));
    let compiled = scripts.lua.compile(&script.sha, &script.body, limits);
    if began.elapsed() >= SLICE {
        slowly.store(true, Ordering::Relaxed);
    }
    compiled.map_err(|failure| run_limits.stop(failure))
}

/// Runs the commands of one script.
struct ScriptHost<'a> {
    executor: &'a mut Executor,
    /// The script's own session.
    session: Session,
    read_only: bool,
    /// Whether its writes go to the replicas.
    replicates: bool,
    /// Is marked when the script writes, which can then not be killed any more.
    running: Option<Arc<Running>>,
    /// Why it was stopped: a command exceeds the read budget of an IO thread, or needs what is not
    /// in memory.
    stopped: Option<Stop>,
}

impl ScriptHost<'_> {
    /// Runs a command, or returns why it was not done.
    fn command(&mut self, args: &[&[u8]], reply: &mut Reply) -> Result<(), Stop> {
        let found = match self.executor.resolve(args) {
            Ok(found) => found,
            Err(Error::Arity(_)) => return Err(ARITY.into()),
            Err(_) => return Err(UNKNOWN.into()),
        };
        let command = found.command;
        if !command.takes(args.len()) {
            return Err(ARITY.into());
        }
        let denies = !self.executor.server.allow_denied.load(Ordering::Relaxed);
        if denies && command.flags.contains(Flags::NOSCRIPT) {
            return Err(NOT_ALLOWED.into());
        }
        self.executor
            .permit(&self.session, found, args, Context::Lua)?;
        let writes = command.is_write() || command.flags.contains(Flags::MAY_REPLICATE);
        if writes && self.read_only {
            return Err(READ_ONLY.into());
        }
        if command.is_write() && self.executor.txn.pending_bytes() > PENDING_BYTES {
            return Err(TOO_LARGE.into());
        }
        self.executor.find_command(&self.session, args)?;
        if command.is_write()
            && let Some(running) = &self.running
            && !running.note_write()
        {
            return Err(Stop::Conflict);
        }
        self.session.resp3 = reply.resp3;
        let before = (!self.replicates).then(|| self.executor.txn.savepoint());
        let done = (self.executor).call_shown(&mut self.session, found, args, reply);
        if let Some(before) = before {
            self.executor.txn.unlog(&before);
        }
        match done {
            // `call` has counted the error.
            Err(Stop::Failed(error)) => Err(Stop::Counted(error)),
            done => done,
        }
    }
}

impl Host for ScriptHost<'_> {
    fn call(&mut self, args: &[&[u8]], reply: &mut Reply) -> Result<(), Halted> {
        reply.bound(&self.executor.server, FREE_BYTES);
        match self.command(args, reply) {
            Ok(()) if reply.overflowed => {
                reply.truncate(0);
                reply.error_bytes(&Error::REPLY_TOO_LONG.wire());
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(Stop::Failed(error)) => {
                self.executor.count_error(&error);
                reply.error_bytes(&error.wire());
                Ok(())
            }
            Err(Stop::Counted(error)) => {
                reply.error_bytes(&error.wire());
                Ok(())
            }
            Err(stop @ (Stop::Slow | Stop::Cold)) => {
                self.stopped = Some(stop);
                Err(Halted)
            }
            Err(Stop::Conflict) => Err(Halted),
        }
    }

    fn replicate(&mut self, to_replicas: bool) {
        self.replicates = to_replicas;
    }

    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool> {
        let found = self.executor.resolve(args).ok()?;
        Some(self.executor.may_run(&self.session, found, args))
    }
}

#[cfg(test)]
mod tests;
