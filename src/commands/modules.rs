//! MODULE: Kedis has no modules. The list is empty, and loading fails.

use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::commands::table::help;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;

const NOT_ALLOWED: Error = Error::text(
    "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);
const NOT_LOADED: Error =
    Error::text("ERR Error loading the extension. Please check the server logs.");
const NO_SUCH_MODULE: Error =
    Error::text("ERR Error unloading module: no such module with that name");

fn allow(ctx: &SessionCtx<'_>) -> CmdResult {
    let access = ctx.server.config.load().enable_module_command;
    match access.allows(ctx.session.is_local()) {
        true => Ok(()),
        false => Err(NOT_ALLOWED),
    }
}

fn list(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.reply.array(0);
    Ok(())
}

fn load(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx)?;
    let path = args.get(2).copied().unwrap_or_default();
    let path = String::from_utf8_lossy(path);
    log::warn!("module {path:?} is not loaded: this server does not support modules");
    Err(NOT_LOADED)
}

fn unload(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    allow(ctx)?;
    Err(NO_SUCH_MODULE)
}

const HELP: &[help::Topic] = &[
    ("LIST", &["The modules that are loaded: none."]),
    (
        "LOAD <path> [<arg> ...]",
        &["Load a module; this server takes none."],
    ),
    (
        "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
        &["Load a module with parameters; this server takes none."],
    ),
    ("UNLOAD <name>", &["Unload a module."]),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "MODULE", HELP);
    Ok(())
}

const ADMIN: Flags = Flags::ADMIN.union(Flags::NOSCRIPT);
const CHANGES: Flags = ADMIN.union(Flags::NO_ASYNC_LOADING);

const fn row(
    command: Command,
    flags: Flags,
    since: &'static str,
    summary: &'static str,
) -> Command {
    command.flags(flags).doc(Group::Server, since, summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("help", 2, help),
        Flags::LOADING.union(Flags::STALE),
        "5.0.0",
        "Lists the subcommands",
    ),
    row(
        Command::session("list", 2, list).tips(&[Tip::NondeterministicOutputOrder]),
        ADMIN,
        "4.0.0",
        "Returns the modules that are loaded",
    ),
    row(
        Command::session("load", -3, load).syntax("path [arg...]"),
        CHANGES,
        "4.0.0",
        "Loads a module",
    ),
    row(
        Command::session("loadex", -3, load)
            .syntax("path [(CONFIG configs=(name value))...] [ARGS args=(arg)...]"),
        CHANGES,
        "7.0.0",
        "Loads a module with parameters",
    ),
    row(
        Command::session("unload", 3, unload).syntax("name"),
        CHANGES,
        "4.0.0",
        "Unloads a module",
    ),
];

/// The rows of MODULE.
pub const COMMANDS: &[Command] = &[row(
    Command::container("module", -2, SUBCOMMANDS),
    Flags::empty(),
    "4.0.0",
    "Commands about modules",
)];
