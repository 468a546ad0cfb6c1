//! COMMAND: the command table as clients see it.
//!
//! | file | what it is for |
//! |---|---|
//! | [`categories`] | ACL categories, which follow from group and flags |
//! | [`describe`] | COMMAND INFO and DOCS: one command as a reply |
//! | [`keys`] | GETKEYS and GETKEYSANDFLAGS |

pub mod categories;
mod describe;
#[cfg(test)]
mod facts;
mod keys;

use super::args::Options;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::base::glob;
use crate::commands::table::help;
use crate::commands::table::names::Names;
use crate::commands::table::registry::Registered;
use crate::commands::table::spec::Group;
use crate::commands::table::spec::Secret;
use crate::commands::table::tips::Tip;

/// The command of a name like `get` or `config|get`, in any case.
fn find(names: &Names, name: &[u8]) -> Option<&'static Registered> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let found = names.find(parts.next()?)?;
    match parts.next() {
        Some(sub) => found.told_subcommand(sub),
        None => Some(found),
    }
}

/// The names of the commands on this server, with `rename-command` applied.
fn names(ctx: &SessionCtx<'_>) -> Names {
    Names::of(&ctx.server.config.load())
}

fn command(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let all: Vec<_> = names(ctx).iter().collect();
    ctx.reply.array(all.len());
    for command in all {
        describe::info(ctx.reply, command);
    }
    Ok(())
}

fn count(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let count = names(ctx).iter().count();
    ctx.reply.int(count as i64);
    Ok(())
}

fn info(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let asked = args.get(2..).unwrap_or_default();
    if asked.is_empty() {
        return command(ctx, args);
    }
    let names = names(ctx);
    ctx.reply.array(asked.len());
    for name in asked {
        match find(&names, name) {
            Some(command) => describe::info(ctx.reply, command),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

fn docs(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let names = names(ctx);
    let commands: Vec<_> = match args.get(2..).unwrap_or_default() {
        [] => names.iter().collect(),
        asked => asked.iter().filter_map(|name| find(&names, name)).collect(),
    };
    ctx.reply.map(commands.len());
    for command in commands {
        ctx.reply.bulk(command.full_name.as_bytes());
        describe::docs(ctx.reply, command);
    }
    Ok(())
}

/// Which commands LIST names.
enum Filter<'a> {
    Module,
    Category(&'a [u8]),
    Pattern(&'a [u8]),
}

impl Filter<'_> {
    fn fits(&self, command: &Registered) -> bool {
        match self {
            // There are no modules, so nothing belongs to one.
            Filter::Module => false,
            Filter::Category(wanted) => categories::of(command.command)
                .iter()
                .any(|name| name.as_bytes().eq_ignore_ascii_case(wanted)),
            Filter::Pattern(pattern) => glob::matches(pattern, command.full_name.as_bytes(), true),
        }
    }
}

fn list(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 2);
    let filter = if options.is_empty() {
        None
    } else if options.word("FILTERBY") && options.left() == 2 {
        Some(if options.word("MODULE") {
            Filter::Module
        } else if options.word("ACLCAT") {
            Filter::Category(options.value()?)
        } else if options.word("PATTERN") {
            Filter::Pattern(options.value()?)
        } else {
            return Err(Error::Syntax);
        })
    } else {
        return Err(Error::Syntax);
    };
    let mut names = Vec::new();
    let known = self::names(ctx);
    for command in known.iter() {
        for each in std::iter::once(command).chain(command.told_subcommands()) {
            if filter.as_ref().is_none_or(|filter| filter.fits(each)) {
                names.push(each.full_name.as_bytes());
            }
        }
    }
    ctx.reply.array(names.len());
    for name in names {
        ctx.reply.bulk(name);
    }
    Ok(())
}

const HELP: &[help::Topic] = &[
    (
        "(no subcommand)",
        &["All commands, as INFO describes them."],
    ),
    ("COUNT", &["How many commands there are."]),
    (
        "DOCS [<command-name> ...]",
        &["What commands are for; of all if none is named."],
    ),
    (
        "GETKEYS <full-command>",
        &["Which arguments of a command are keys."],
    ),
    (
        "GETKEYSANDFLAGS <full-command>",
        &["Which arguments of a command are keys, and what happens to them."],
    ),
    (
        "INFO [<command-name> ...]",
        &["Arity, flags, keys and categories; of all if none is named."],
    ),
    (
        "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
        &["The names of commands and subcommands."],
    ),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "COMMAND", HELP);
    Ok(())
}

const ALWAYS: Flags = Flags::LOADING.union(Flags::STALE).union(Flags::SENTINEL);

const fn row(command: Command, since: &'static str, summary: &'static str) -> Command {
    command
        .flags(ALWAYS)
        .categories(&["connection"])
        .doc(Group::Server, since, summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("count", 2, count),
        "2.8.13",
        "Counts the commands",
    ),
    row(
        Command::session("docs", -2, docs)
            .syntax("[command-name...]")
            .complexity("O(N), N: commands asked for")
            .tips(&[Tip::NondeterministicOutputOrder]),
        "7.0.0",
        "Returns the documentation of commands",
    ),
    row(
        Command::session("getkeys", -3, keys::getkeys)
            .syntax("command [arg...]")
            .secret(Secret::Command(2))
            .complexity("O(N), N: arguments of the command"),
        "2.8.13",
        "Finds the keys among a command's arguments",
    ),
    row(
        Command::session("getkeysandflags", -3, keys::getkeysandflags)
            .syntax("command [arg...]")
            .secret(Secret::Command(2))
            .complexity("O(N), N: arguments of the command"),
        "7.0.0",
        "Finds the keys among a command's arguments, and how they are accessed",
    ),
    row(
        Command::session("help", 2, help),
        "5.0.0",
        "Lists the subcommands",
    ),
    row(
        Command::session("info", -2, info)
            .syntax("[command-name...]")
            .complexity("O(N), N: commands asked for")
            .history(&[("7.0.0", "Names are optional")])
            .tips(&[Tip::NondeterministicOutputOrder]),
        "2.8.13",
        "Describes commands",
    ),
    row(
        Command::session("list", -2, list)
            .syntax("[FILTERBY filterby=(MODULE module-name|ACLCAT category|PATTERN pattern)]")
            .complexity("O(N), N: all commands")
            .tips(&[Tip::NondeterministicOutputOrder]),
        "7.0.0",
        "Returns the names of commands",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[row(
    Command::session("command", -1, command)
        .complexity("O(N), N: all commands")
        .subcommands(SUBCOMMANDS)
        .tips(&[Tip::NondeterministicOutputOrder]),
    "2.8.13",
    "Describes all commands",
)];
