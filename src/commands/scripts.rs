//! EVAL, EVALSHA, FCALL and their read-only variants, which the executor runs itself, and
//! SCRIPT.

use super::args;
use super::info::REDIS_VERSION;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, Own, ScriptCall, SessionCtx};
use crate::commands::table::help::{self, Topic};
use crate::commands::table::migrated::Migrated;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::lua::api::sha1_hex;
use crate::lua::header::script_flags;
use crate::lua::{Failure, Interpreter, Limits};
use crate::state::scripts::Script;
use crate::state::workers::NotKilled;
use std::time::Duration;

/// Memory limit of the interpreter that checks scripts and libraries, in bytes.
const CHECK_BYTES: usize = 64 << 20;
/// Time limit for compiling a script, or compiling and running a library, when it is loaded.
pub(super) const LOAD_TIME: Duration = Duration::from_millis(500);

const NOT_BUSY: Error = Error::text("NOTBUSY No scripts in execution right now.");
const UNKILLABLE: Error = Error::text(
    "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
);
const BUSY: Error = Error::text(
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
);
const BUSY_FUNCTION: Error = Error::text(
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
);

/// The error for commands that are refused while a script or function is busy.
pub fn busy(function: bool) -> Error {
    match function {
        true => BUSY_FUNCTION,
        false => BUSY,
    }
}

/// An interpreter that only checks scripts and libraries.
pub(super) fn check_interpreter() -> Result<Interpreter, Error> {
    Interpreter::new(CHECK_BYTES, REDIS_VERSION).map_err(Error::no_interpreter)
}

fn load(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let body = args[2];
    let sha = sha1_hex(body);
    if ctx.server.scripts.contains(&sha) {
        if let Some(known) = ctx.server.scripts.find(&sha) {
            let again = Script::new(sha.clone(), body, known.flags);
            ctx.server.scripts.add(again, true);
        }
    } else {
        let flags = script_flags(body).map_err(Error::Bytes)?;
        let mut lua = check_interpreter()?;
        let limits = Limits {
            time: Some(LOAD_TIME),
            ..Limits::default()
        };
        let compiled = lua.compile(&sha, body, limits);
        compiled.map_err(|failure| match failure {
            Failure::Error { text, .. } => Error::Bytes(text),
            Failure::Stopped { .. } => Error::COMPILES_LONG,
        })?;
        let script = Script::new(sha.clone(), body, flags);
        ctx.server.scripts.add(script, true);
    }
    ctx.reply.bulk(sha.as_bytes());
    Ok(())
}

fn exists(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    ctx.reply.array(args.len() - 2);
    for sha in &args[2..] {
        let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
        ctx.reply.int(ctx.server.scripts.contains(&sha).into());
    }
    Ok(())
}

/// The text of a cached script.
fn show(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let sha = String::from_utf8_lossy(args[2]).to_ascii_lowercase();
    let script = ctx.server.scripts.find(&sha).ok_or(Error::NO_SCRIPT)?;
    ctx.reply.bulk(&script.body);
    Ok(())
}

fn flush(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    match args.get(2..) {
        None | Some([]) => {}
        Some([how]) if args::is(how, "SYNC") || args::is(how, "ASYNC") => {}
        _ => {
            return Err(Error::text(
                "ERR SCRIPT FLUSH only support SYNC|ASYNC option",
            ));
        }
    }
    ctx.server.scripts.flush();
    ctx.reply.ok();
    Ok(())
}

fn kill(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    kill_running(ctx, false)
}

/// SCRIPT KILL and FUNCTION KILL.
pub(super) fn kill_running(ctx: &mut SessionCtx<'_>, function: bool) -> CmdResult {
    let killed = ctx.server.workers.kill(function);
    killed.map_err(|why| match why {
        NotKilled::NotBusy => NOT_BUSY,
        NotKilled::Unkillable => UNKILLABLE,
        NotKilled::OtherSort => busy(!function),
    })?;
    ctx.reply.ok();
    Ok(())
}

fn debug(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let how = args[2];
    if args::is(how, "NO") {
        ctx.reply.ok();
        return Ok(());
    }
    if args::is(how, "YES") || args::is(how, "SYNC") {
        // A debugging session would block the thread and all its clients until the user
        // continues.
        return Err(Error::text(
            "ERR the script debugger is not available in this server",
        ));
    }
    Err(Error::text("ERR Use SCRIPT DEBUG YES/SYNC/NO"))
}

const TOPICS: &[Topic] = &[
    (
        "DEBUG (YES|SYNC|NO)",
        &["Set the debug mode for subsequent scripts executed."],
    ),
    (
        "EXISTS <sha1> [<sha1> ...]",
        &["Return information about the existence of the scripts in the script cache."],
    ),
    (
        "FLUSH [ASYNC|SYNC]",
        &[
            "Flush the Lua scripts cache. Very dangerous on replicas.",
            "When called without the optional mode argument, the behavior is determined by the",
            "lazyfree-lazy-user-flush configuration directive. Valid modes are:",
            "* ASYNC: Asynchronously flush the scripts cache.",
            "* SYNC: Synchronously flush the scripts cache.",
        ],
    ),
    ("KILL", &["Kill the currently executing Lua script."]),
    (
        "LOAD <script>",
        &["Load a script into the scripts cache without executing it."],
    ),
    ("SHOW <sha1>", &["Show a script from the scripts cache."]),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "SCRIPT", TOPICS);
    Ok(())
}

const RUNS: Flags = Flags::NOSCRIPT
    .union(Flags::STALE)
    .union(Flags::SKIP_MONITOR)
    .union(Flags::NO_MANDATORY_KEYS);
const WRITES: &[KeySpec] = &[KeySpec::numkeys(
    2,
    KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE),
)];
const READS: &[KeySpec] = &[KeySpec::numkeys(2, KeyFlags::RO.union(KeyFlags::ACCESS))];

const fn row(
    name: &'static str,
    call: ScriptCall,
    since: &'static str,
    summary: &'static str,
) -> Command {
    let command = Command::own(name, -3, Own::Script(call)).doc(Group::Scripting, since, summary);
    match call {
        ScriptCall::Eval | ScriptCall::EvalSha | ScriptCall::Fcall => {
            command.flags(RUNS.union(Flags::MAY_REPLICATE)).keys(WRITES)
        }
        _ => command.flags(RUNS).keys(READS),
    }
}

const fn sub(
    command: Command,
    flags: Flags,
    since: &'static str,
    summary: &'static str,
) -> Command {
    command
        .flags(flags)
        .migrated(Migrated::Script)
        .doc(Group::Scripting, since, summary)
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    row("eval", ScriptCall::Eval, "2.6.0", "Runs a script")
        .syntax("script numkeys:int [key...] [arg...]")
        .complexity("That of the script"),
    row(
        "evalsha",
        ScriptCall::EvalSha,
        "2.6.0",
        "Runs a script that the server knows by its SHA-1",
    )
    .syntax("sha1 numkeys:int [key...] [arg...]")
    .complexity("That of the script"),
    row(
        "eval_ro",
        ScriptCall::EvalRo,
        "7.0.0",
        "Runs a script that only reads",
    )
    .syntax("script numkeys:int [key...] [arg...]")
    .complexity("That of the script"),
    row(
        "evalsha_ro",
        ScriptCall::EvalShaRo,
        "7.0.0",
        "Runs a script that only reads and that the server knows by its SHA-1",
    )
    .syntax("sha1 numkeys:int [key...] [arg...]")
    .complexity("That of the script"),
    row("fcall", ScriptCall::Fcall, "7.0.0", "Runs a function")
        .syntax("function numkeys:int [key...] [arg...]")
        .complexity("That of the function"),
    row(
        "fcall_ro",
        ScriptCall::FcallRo,
        "7.0.0",
        "Runs a function that only reads",
    )
    .syntax("function numkeys:int [key...] [arg...]")
    .complexity("That of the function"),
    Command::container(
        "script",
        -2,
        &[
            sub(
                Command::session("debug", 3, debug).syntax("mode=(YES|SYNC|NO)"),
                Flags::NOSCRIPT,
                "3.2.0",
                "Sets the debug mode of scripts",
            ),
            sub(
                Command::session("exists", -3, exists)
                    .syntax("sha1...")
                    .complexity("O(N), N: scripts asked for")
                    .tips(&[Tip::RequestAllShards, Tip::ResponseAggLogicalAnd]),
                Flags::NOSCRIPT,
                "2.6.0",
                "Returns which scripts are cached",
            ),
            sub(
                Command::session("flush", -2, flush)
                    .syntax("[flush-type=(ASYNC|SYNC)@6.2.0]")
                    .complexity("O(N), N: scripts")
                    .history(&[("6.2.0", "Added `ASYNC` and `SYNC`")])
                    .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
                Flags::NOSCRIPT.union(Flags::PROPAGATED),
                "2.6.0",
                "Removes all cached scripts",
            ),
            sub(
                Command::session("help", 2, help),
                Flags::LOADING.union(Flags::STALE),
                "5.0.0",
                "Explains the subcommands",
            ),
            sub(
                Command::session("kill", 2, kill)
                    .tips(&[Tip::RequestAllShards, Tip::ResponseOneSucceeded]),
                Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
                "2.6.0",
                "Ends a script that runs too long and has written nothing",
            ),
            sub(
                Command::session("load", 3, load)
                    .syntax("script")
                    .complexity("O(N), N: the length of the script")
                    .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
                Flags::NOSCRIPT
                    .union(Flags::STALE)
                    .union(Flags::ON_WORKER)
                    .union(Flags::PROPAGATED),
                "2.6.0",
                "Caches a script",
            ),
            sub(
                Command::session("show", 3, show).syntax("sha1"),
                Flags::NOSCRIPT.union(Flags::STALE),
                "8.0.0",
                "Returns the text of a cached script",
            ),
        ],
    )
    .migrated(Migrated::Script)
    .doc(Group::Scripting, "2.6.0", "Commands about cached scripts"),
];
