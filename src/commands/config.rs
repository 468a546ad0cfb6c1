//! CONFIG: the configuration as clients see and change it.
//!
//! Most parameters are read where they are used, so a change needs nothing more. The
//! others are applied here before the new configuration is published. If that fails, the
//! old configuration stays in force.

use super::acl::{self, audit};
use super::memory::no_eviction;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::commands::table::help;
use crate::commands::table::spec::Group;
use crate::commands::table::spec::Secret;
use crate::commands::table::tips::Tip;
use crate::state::Server;
use crate::state::acl::Context;
use crate::state::audit::AuditFile;
use crate::state::commandlog::LogKind;
use crate::state::config::{AppendFsync, Config, memory_budget};
use crate::state::descriptors;
use crate::sys::crash;
use std::sync::atomic::Ordering;

/// The full name of the command that changes parameters.
const NAME_OF_SET: &str = "config|set";

fn get(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let config = ctx.server.config.load();
    let found = config.get(args.get(2..).unwrap_or_default());
    ctx.reply.map(found.len());
    for (name, value) in found {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.bulk(&value);
    }
    Ok(())
}

fn set(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let words = args.get(2..).unwrap_or_default();
    if !words.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let pairs: Vec<(&[u8], &[u8])> = words
        .chunks_exact(2)
        .filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)))
        .collect();
    let local = ctx.session.is_local();
    let server = ctx.server;
    server.config.update(|old| {
        let new = old
            .set_many(&pairs, local)
            .map_err(|error| Error::owned(error.to_string()))?;
        let file = other_audit_log(old, &new)?;
        apply(server, old, &new)?;
        if let Some(file) = file {
            change_audit_log(ctx, args, file);
        }
        Ok::<_, Error>(new)
    })?;
    ctx.reply.ok();
    Ok(())
}

/// The file of the audit log, if that is another one from now on.
fn other_audit_log(old: &Config, new: &Config) -> Result<Option<Option<AuditFile>>, Error> {
    let path = new.path(&new.audit_log);
    if path == old.path(&old.audit_log) {
        return Ok(None);
    }
    let opened = path.map(AuditFile::open).transpose();
    opened.map(Some).map_err(|error| {
        Error::owned(format!(
            "ERR CONFIG SET failed (possibly related to argument 'audit-log') - The file cannot \
             be written: {error}"
        ))
    })
}

/// Changes the file of the audit log. The last line of the one before says who did it.
fn change_audit_log(ctx: &SessionCtx<'_>, args: &[&[u8]], file: Option<AuditFile>) {
    let (server, context) = (
        ctx.server,
        match ctx.unit_time_us {
            Some(_) => Context::Multi,
            None => Context::TopLevel,
        },
    );
    if let Some(line) = audit::done(
        server,
        ctx.session,
        NAME_OF_SET,
        (ctx.command, args),
        context,
    ) {
        server.audit.add(line);
    }
    if let Err(error) = server.audit.write_to(file) {
        log::error!("the audit log keeps its file: {error}");
    }
}

/// Applies the parameters that take effect immediately. If one of them cannot be applied,
/// none is: the steps that can fail come first and are undone.
fn apply(server: &Server, old: &Config, new: &Config) -> CmdResult {
    let changed = old.changed(new);
    let changes = |name: &str| changed.contains(&name);
    if changes("maxclients") {
        check_descriptors(server, new)?;
    }
    if let Err(error) = apply_or_fail(server, &changed, new) {
        undo(server, &changed, old);
        return Err(error);
    }
    if ["loglevel", "log-levels", "log-format"]
        .into_iter()
        .any(changes)
    {
        server.change_log(new);
    }
    if changes("maxmemory-policy")
        && let Some(warning) = no_eviction(new)
    {
        log::warn!("{warning}");
    }
    if changes("latency-tracking") {
        server.stats.time_commands(new.latency_tracking);
    }
    if changes("crash-log-enabled") {
        crash::log_traces(new.crash_log_enabled);
    }
    if changes("requirepass") {
        server.users.require(&new.requirepass.0);
    }
    for kind in LogKind::ALL {
        let (_, max_len) = new.command_log(kind);
        server.commandlog.of(kind).trim(max_len as usize);
    }
    Ok(())
}

/// The limit of open files must leave room for `maxclients`.
fn check_descriptors(server: &Server, new: &Config) -> CmdResult {
    let reserved = server.reserved_descriptors.load(Ordering::Relaxed);
    let most = descriptors::clients_for(reserved, new.max_clients);
    if most < new.max_clients {
        return Err(Error::owned(format!(
            "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The \
             operating system is not able to handle the specified number of clients, \
             try with {most}"
        )));
    }
    Ok(())
}

/// The steps of [`apply`] that can fail. The addresses come last: a failure leaves the
/// sockets as they were.
fn apply_or_fail(server: &Server, changed: &[&str], new: &Config) -> CmdResult {
    if changed.contains(&"appendfsync") {
        let each = new.appendfsync == AppendFsync::Always;
        server.engine.set_fsync_each(each);
        if each {
            // Writes that were acknowledged before the change become durable too.
            server.engine.sync_wal()?;
        }
    }
    if changed.contains(&"maxmemory") {
        server.engine.set_memory_budget(memory_budget(new))?;
    }
    if let Some(name) = changed.iter().find(|name| name.starts_with("tls-"))
        && let Err(error) = server.tls.apply(new)
    {
        log::warn!("CONFIG SET {name}: {error}");
        return Err(Error::owned(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - Unable to update \
             TLS configuration. Check server logs."
        )));
    }
    let mut addresses = ["port", "tls-port", "bind"].into_iter();
    let Some(name) = addresses.find(|name| changed.contains(name)) else {
        return Ok(());
    };
    if let Err(error) = server.listen(new) {
        log::warn!("CONFIG SET {name}: cannot listen: {error}");
        let refusal = match name {
            "port" | "tls-port" => "Unable to listen on this port. Check server logs.",
            _ => "Failed to bind to specified addresses.",
        };
        return Err(Error::owned(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {refusal}"
        )));
    }
    server
        .port
        .store(new.first_port().into(), Ordering::Relaxed);
    Ok(())
}

/// Restores what [`apply_or_fail`] may have applied before it failed.
fn undo(server: &Server, changed: &[&str], old: &Config) {
    if changed.iter().any(|name| name.starts_with("tls-"))
        && let Err(error) = server.tls.apply(old)
    {
        log::warn!("CONFIG SET failed, and the files of TLS cannot be read again: {error}");
    }
    if changed.contains(&"appendfsync") {
        let each = old.appendfsync == AppendFsync::Always;
        server.engine.set_fsync_each(each);
    }
    if changed.contains(&"maxmemory")
        && let Err(error) = server.engine.set_memory_budget(memory_budget(old))
    {
        log::warn!("CONFIG SET failed, and the sizes of memtables cannot be restored: {error}");
    }
}

fn rewrite(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let Some(file) = &ctx.server.config_file else {
        return Err(Error::text(
            "ERR The server is running without a config file",
        ));
    };
    let mut config = (*ctx.server.config.load()).clone();
    config.users = acl::file::as_lines(ctx.server, &config);
    if let Err(error) = config.rewrite(file) {
        log::warn!("CONFIG REWRITE failed: {error}");
        return Err(Error::owned(format!("ERR Rewriting config file: {error}")));
    }
    log::info!("CONFIG REWRITE executed with success");
    ctx.reply.ok();
    Ok(())
}

fn resetstat(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.server.stats.reset();
    ctx.server.scripts.reset_stats();
    ctx.server.slot_stats.reset();
    ctx.reply.ok();
    Ok(())
}

const HELP: &[help::Topic] = &[
    (
        "GET <pattern> [<pattern> ...]",
        &["Parameters whose names match, with their values."],
    ),
    ("RESETSTAT", &["Set the counters of INFO back to zero."]),
    (
        "REWRITE",
        &["Write the values in force into the configuration file."],
    ),
    (
        "SET <parameter> <value> [<parameter> <value> ...]",
        &["Change parameters, all or none."],
    ),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "CONFIG", HELP);
    Ok(())
}

const HELPS: Flags = Flags::LOADING.union(Flags::STALE);
const ADMIN: Flags = HELPS.union(Flags::ADMIN).union(Flags::NOSCRIPT);

const fn row(command: Command, since: &'static str, summary: &'static str) -> Command {
    command.doc(Group::Server, since, summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("get", -3, get)
            .syntax("parameter...")
            .complexity("O(N + P), N: patterns, P: all parameters")
            .history(&[("7.0.0", "Takes several patterns")])
            .flags(ADMIN),
        "2.0.0",
        "Returns the values of parameters",
    ),
    row(
        Command::session("help", 2, help).flags(HELPS),
        "5.0.0",
        "Lists the subcommands",
    ),
    row(
        Command::session("resetstat", 2, resetstat)
            .flags(ADMIN)
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
        "2.0.0",
        "Sets counters back to zero",
    ),
    row(
        Command::session("rewrite", 2, rewrite)
            .complexity("O(N), N: parameters")
            .flags(ADMIN.union(Flags::ON_WORKER))
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
        "2.8.0",
        "Writes the values in force into the configuration file",
    ),
    row(
        Command::session("set", -4, set)
            .syntax("data=(parameter value)...")
            .complexity("O(N), N: parameters")
            .history(&[("7.0.0", "Takes several parameters")])
            .flags(ADMIN)
            .secret(Secret::Parameters(2))
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
        "2.0.0",
        "Changes parameters while the server runs",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[row(
    Command::container("config", -2, SUBCOMMANDS),
    "2.0.0",
    "Commands about the configuration",
)];
