//! EVAL, EVALSHA, FCALL and their sisters that only read.
//!
//! A script is a [unit](super::unit): the keys it declares are locked before it
//! starts, so it runs in parallel with all that does not touch them, and what it
//! writes is one batch. A command of a script that fails is taken back alone; as
//! in Redis, an error that ends the script takes back nothing.
//!
//! A key that was not declared is locked when it is met, if nobody holds it. If
//! somebody does, or a command concerns a DB as a whole, the attempt ends there:
//! all it did is taken back, with what it had published, and the script runs
//! again from its start while nobody else reads or writes keys. That it needs
//! this is remembered, so that the next run begins so.
//!
//! On an IO thread a script has a slice of time. One that takes longer is taken
//! back in the same way, and the client's request runs on a lane (see
//! [`crate::state::lanes`]), where nobody waits behind it but who needs its keys.
//! That is remembered, too, as long as it takes long.
//!
//! Scripts and functions are compiled by each thread for itself, from the texts
//! in [`crate::state::scripts`].

use super::dispatch::Executor;
use super::unit::{Scope, Stop};
use crate::base::num;
use crate::commands::info::REDIS_VERSION;
use crate::commands::{Command, Error, Flags, Handler, Own, ScriptCall};
use crate::lua::api::sha1_hex;
use crate::lua::header::{ScriptFlags, script_flags};
use crate::lua::{Failure, Halted, Host, Interpreter, Limits, Trip, Which};
use crate::resp::{FREE_BYTES, Reply};
use crate::state::lanes::{Lane, Running};
use crate::state::scripts::{Function, Script};
use crate::state::{Server, Session};
use crate::types::OpError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes that the interpreter of a thread may use.
pub const INTERPRETER_BYTES: usize = 256 << 20;
/// Bytes that the writes of one script may take until it ends.
const PENDING_BYTES: usize = 512 << 20;
/// How long a script may run on an IO thread.
const SLICE: Duration = Duration::from_millis(5);
/// Scripts that an interpreter keeps compiled beyond those that are cached.
const STALE_SCRIPTS: usize = 64;

const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");
const NEGATIVE_KEYS: Error = Error::text("ERR Number of keys can't be negative");
const MANY_KEYS: Error = Error::text("ERR Number of keys can't be greater than number of args");
const BAD_KEYS: Error = Error::text("ERR Bad number of keys provided");
const NO_FUNCTION: Error = Error::text("ERR Function not found");
const WRITE_FLAG: Error =
    Error::text("ERR Can not execute a script with write flag using *_ro command.");
const READ_ONLY: Error = Error::text("ERR Write commands are not allowed from read-only scripts.");
const UNKNOWN: Error = Error::text("ERR Unknown Redis command called from script");
const ARITY: Error = Error::text("ERR Wrong number of args calling Redis command from script");
const NOT_ALLOWED: Error = Error::text("ERR This Redis command is not allowed from script");
/// What a killed script or function fails with; where it was follows.
const KILLED: &[u8] = b"ERR Script killed by user with SCRIPT KILL...";
const TOO_LONG: Error = Error::text("ERR the reply would be too long");
const TOO_LARGE: Error = Error::text("OOM the script has written more than fits one transaction");

/// The interpreter of a thread, and what it was made from.
pub(super) struct ThreadScripts {
    lua: Interpreter,
    flushes: u64,
    libraries_version: Option<u64>,
    /// Bytes that are counted for it.
    counted: usize,
}

/// What is to be run.
enum Code {
    Script(Arc<Script>),
    Function(Arc<Function>),
}

impl Code {
    fn which(&self) -> Which<'_> {
        match self {
            Code::Script(script) => Which::Script(&script.sha),
            Code::Function(function) => Which::Function(&function.name),
        }
    }

    /// What its first line, or its registration, says.
    fn flags(&self) -> Option<ScriptFlags> {
        match self {
            Code::Script(script) => script.flags,
            Code::Function(function) => Some(function.flags),
        }
    }

    fn is_slow(&self) -> &AtomicBool {
        match self {
            Code::Script(script) => &script.is_slow,
            Code::Function(function) => &function.is_slow,
        }
    }

    fn runs_alone(&self) -> &AtomicBool {
        match self {
            Code::Script(script) => &script.runs_alone,
            Code::Function(function) => &function.runs_alone,
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
        let count = num::parse_i64(args.get(2).copied().unwrap_or_default());
        let count = count.ok_or(match call.is_function() {
            true => BAD_KEYS,
            false => Error::Op(OpError::NotInteger),
        })?;
        if count > given.len() as i64 {
            return Err(MANY_KEYS);
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
        match self.in_unit() {
            true => self.show(session, command, args),
            false => self.show_request(session, command, args),
        }
        let started_us = self.last_us;
        let mut scripts = match self.scripts.take() {
            Some(scripts) => scripts,
            None => self.new_interpreter()?,
        };
        let done = self.find_and_run(&mut scripts, call, session, args, reply);
        let now = scripts.lua.used_memory();
        self.server.scripts.interpreter_grew(scripts.counted, now);
        scripts.counted = now;
        self.scripts = Some(scripts);
        self.last_us = started_us;
        done
    }

    /// What a script says of itself that a command runs, if it says anything.
    pub(super) fn declared(&self, command: &Command, args: &[&[u8]]) -> Option<ScriptFlags> {
        let Handler::Own(Own::Script(call)) = command.handler else {
            return None;
        };
        let name = args.get(1).copied().unwrap_or_default();
        let scripts = &self.server.scripts;
        match call {
            ScriptCall::Fcall | ScriptCall::FcallRo => {
                scripts.libraries().function(name).map(|f| f.flags)
            }
            ScriptCall::Eval | ScriptCall::EvalRo => script_flags(name).ok().flatten(),
            ScriptCall::EvalSha | ScriptCall::EvalShaRo => {
                let sha = String::from_utf8_lossy(name).to_ascii_lowercase();
                scripts.find(&sha).and_then(|script| script.flags)
            }
        }
    }

    fn new_interpreter(&self) -> Result<Box<ThreadScripts>, Error> {
        let lua = Interpreter::new(INTERPRETER_BYTES, REDIS_VERSION)
            .map_err(|error| Error::owned(format!("ERR no interpreter: {error}")))?;
        Ok(Box::new(ThreadScripts {
            lua,
            flushes: self.server.scripts.flushes(),
            libraries_version: None,
            counted: 0,
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
            let counted = scripts.counted;
            *scripts = self.new_interpreter()?;
            scripts.counted = counted;
        }
        let name = args.get(1).copied().unwrap_or_default();
        let (code, given) = match call {
            ScriptCall::Fcall | ScriptCall::FcallRo => {
                let function = self.find_function(scripts, name)?;
                (Code::Function(function), Given::read(call, args)?)
            }
            ScriptCall::Eval | ScriptCall::EvalRo => {
                let given = Given::read(call, args)?;
                (Code::Script(self.find_text(scripts, name)?), given)
            }
            ScriptCall::EvalSha | ScriptCall::EvalShaRo => {
                let given = Given::read(call, args)?;
                (Code::Script(self.find_sha(scripts, name)?), given)
            }
        };
        let flags = code.flags();
        let no_writes = flags.is_some_and(|flags| flags.contains(ScriptFlags::NO_WRITES));
        if flags.is_some() && call.is_read_only() && !no_writes {
            return Err(WRITE_FLAG.into());
        }
        let read_only = call.is_read_only() || no_writes;
        self.run_script(scripts, &code, read_only, session, (args, &given), reply)
    }

    /// The script with this text, compiled.
    fn find_text(&self, scripts: &mut ThreadScripts, body: &[u8]) -> Result<Arc<Script>, Error> {
        let sha = sha1_hex(body);
        if let Some(known) = self.server.scripts.find(&sha) {
            compile(scripts, &known)?;
            return Ok(known);
        }
        let flags = script_flags(body).map_err(Error::Bytes)?;
        let script = Script::new(sha, body, flags);
        compile(scripts, &script)?;
        Ok(self.server.scripts.add(script, false))
    }

    /// The script of this name, compiled.
    fn find_sha(&self, scripts: &mut ThreadScripts, sha: &[u8]) -> Result<Arc<Script>, Error> {
        let sha = std::str::from_utf8(sha).map_err(|_| NO_SCRIPT)?;
        let found = self.server.scripts.find(&sha.to_ascii_lowercase());
        let script = found.ok_or(NO_SCRIPT)?;
        compile(scripts, &script)?;
        if scripts.lua.scripts() > self.server.scripts.cached().0 + STALE_SCRIPTS {
            let cache = &self.server.scripts;
            scripts.lua.retain_scripts(|sha| cache.contains(sha));
        }
        Ok(script)
    }

    /// The function of this name; all libraries are loaded.
    fn find_function(
        &self,
        scripts: &mut ThreadScripts,
        name: &[u8],
    ) -> Result<Arc<Function>, Error> {
        let version = self.server.scripts.libraries_version();
        let libraries = self.server.scripts.libraries();
        if scripts.libraries_version != Some(version) {
            let failed = |error: mlua::Error| Error::owned(format!("ERR no interpreter: {error}"));
            scripts.lua.clear_functions().map_err(failed)?;
            for library in libraries.by_name.values() {
                let loaded = scripts.lua.load_library(&library.code);
                let loaded = loaded.map_err(Error::Bytes)?;
                scripts.lua.add_functions(&loaded).map_err(failed)?;
            }
            scripts.libraries_version = Some(version);
        }
        libraries.function(name).cloned().ok_or(NO_FUNCTION)
    }

    fn run_script(
        &mut self,
        scripts: &mut ThreadScripts,
        code: &Code,
        read_only: bool,
        session: &Session,
        (command, given): (&[&[u8]], &Given<'_>),
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        let inside = self.in_unit();
        if self.slices && code.is_slow().load(Ordering::Relaxed) {
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
            let published = self.outbox.len();
            let before = inside.then(|| self.txn.savepoint());
            let on_lane = OnLane::start(self, code, command);
            let limits = Limits {
                time: self.slices.then_some(SLICE),
                kill: on_lane.as_ref().map(|on| on.running.kill.clone()),
            };
            let mut host = ScriptHost {
                session: session.for_script(self.began_on_replica()),
                executor: self,
                read_only,
                replicates: true,
                running: on_lane.as_ref().map(|on| on.running.clone()),
                reads_long: false,
            };
            let (keys, args) = (given.keys, given.args);
            let done = scripts
                .lua
                .run(code.which(), keys, args, limits, &mut host, reply);
            let reads_long = host.reads_long;
            if on_lane.is_some_and(|on| on.running.started.elapsed() < SLICE / 2) {
                code.is_slow().store(false, Ordering::Relaxed);
            }
            match done {
                Ok(()) => return Ok(self.end_unit()?),
                Err(Failure::Error { text, counted }) => {
                    self.end_unit()?;
                    let error = Error::Bytes(text);
                    return Err(match counted {
                        true => Stop::Told(error),
                        false => Stop::Failed(error),
                    });
                }
                Err(Failure::Stopped { why, place }) => {
                    self.outbox.truncate(published);
                    if why == Trip::Killed
                        && let Some(before) = &before
                        && !self.server.lanes.are_stopping()
                    {
                        // The transaction that it is a part of goes on without it.
                        self.txn.rollback(before);
                        self.end_unit()?;
                        return Err(killed(&place).into());
                    }
                    self.roll_back_unit()?;
                    if why == Trip::Time || reads_long {
                        code.is_slow().store(true, Ordering::Relaxed);
                        return Err(Stop::Slow);
                    }
                    if why == Trip::Killed {
                        return Err(match inside {
                            true => Stop::Conflict,
                            false => killed(&place).into(),
                        });
                    }
                    code.runs_alone().store(true, Ordering::Relaxed);
                    if inside || alone {
                        return Err(Stop::Conflict);
                    }
                }
            }
        }
    }
}

fn killed(place: &[u8]) -> Error {
    Error::Bytes([KILLED, place].concat())
}

/// A script that runs on a lane, as others know it, until this is dropped.
struct OnLane {
    server: Arc<Server>,
    lane: Arc<Lane>,
    running: Arc<Running>,
}

impl OnLane {
    fn start(executor: &Executor, code: &Code, command: &[&[u8]]) -> Option<OnLane> {
        let (server, lane) = (executor.server.clone(), executor.lane.clone()?);
        let name = match code {
            Code::Script(script) => script.sha.clone().into_bytes(),
            Code::Function(function) => function.name.clone(),
        };
        let running = Arc::new(Running {
            name,
            command: command.iter().map(|arg| arg.to_vec()).collect(),
            is_function: matches!(code, Code::Function(_)),
            started: Instant::now(),
            kill: Arc::default(),
            wrote: AtomicBool::new(false),
        });
        server.lanes.start(&lane, running.clone());
        Some(OnLane {
            server,
            lane,
            running,
        })
    }
}

impl Drop for OnLane {
    fn drop(&mut self) {
        self.server.lanes.stop(&self.lane);
    }
}

fn compile(scripts: &mut ThreadScripts, script: &Script) -> Result<(), Error> {
    if scripts.lua.has_script(&script.sha) {
        return Ok(());
    }
    let compiled = scripts.lua.compile(&script.sha, &script.body);
    compiled
        .map_err(|why| Error::owned(format!("ERR Error compiling script (new function): {why}")))
}

/// Runs the commands of one script.
struct ScriptHost<'a> {
    executor: &'a mut Executor,
    /// The script's own session.
    session: Session,
    read_only: bool,
    /// Whether replicas get what it does.
    replicates: bool,
    /// Learns that it writes: it cannot be killed then.
    running: Option<Arc<Running>>,
    /// It was halted because a command reads more than an IO thread has time for.
    reads_long: bool,
}

impl ScriptHost<'_> {
    /// Runs a command, or says why not.
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
        {
            running.wrote.store(true, Ordering::Release);
        }
        self.session.resp3 = reply.resp3;
        let before = (!self.replicates).then(|| self.executor.txn.savepoint());
        let done = (self.executor).call_shown(&mut self.session, found, args, reply);
        if let Some(before) = before {
            self.executor.txn.unlog(&before);
        }
        match done {
            // It is counted.
            Err(Stop::Failed(error)) => Err(Stop::Told(error)),
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
                reply.error_bytes(&TOO_LONG.wire());
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(Stop::Failed(error)) => {
                self.executor.count_error(&error);
                reply.error_bytes(&error.wire());
                Ok(())
            }
            Err(Stop::Told(error)) => {
                reply.error_bytes(&error.wire());
                Ok(())
            }
            Err(Stop::Slow) => {
                self.reads_long = true;
                Err(Halted)
            }
            Err(Stop::Conflict) => Err(Halted),
        }
    }

    fn replicate(&mut self, to_replicas: bool) {
        self.replicates = to_replicas;
    }

    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool> {
        self.executor.resolve(args).ok().map(|_| true)
    }
}

#[cfg(test)]
mod tests;
