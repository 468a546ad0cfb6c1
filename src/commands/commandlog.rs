//! COMMANDLOG: commands that took long, and commands with long requests or long replies.

use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::base::num;
use crate::commands::table::help;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::state::commandlog::LogKind;

const BAD_COUNT: Error = Error::text("ERR count should be greater than or equal to -1");

/// How many entries to return at most; `None`: all.
pub(super) fn count(arg: &[u8]) -> Result<Option<usize>, Error> {
    match num::parse_i64(arg) {
        Some(-1) => Ok(None),
        Some(count @ 0..) => Ok(Some(usize::try_from(count).unwrap_or(usize::MAX))),
        _ => Err(BAD_COUNT),
    }
}

/// Replies with the newest `most` entries of a log.
pub(super) fn reply(ctx: &mut SessionCtx<'_>, kind: LogKind, most: Option<usize>) {
    let entries = ctx.server.commandlog.of(kind).newest(most);
    let reply = &mut *ctx.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.int(entry.id as i64);
        reply.int(entry.unix_s as i64);
        reply.int(entry.value as i64);
        reply.array(entry.args.len());
        for arg in &entry.args {
            reply.bulk(arg);
        }
        reply.bulk(entry.addr.as_bytes());
        reply.bulk(&entry.name);
    }
}

fn kind(arg: &[u8]) -> Result<LogKind, Error> {
    let is = |kind: &LogKind| arg.eq_ignore_ascii_case(kind.name().as_bytes());
    LogKind::ALL.into_iter().find(is).ok_or(Error::text(
        "ERR type should be one of the following: slow, large-request, large-reply",
    ))
}

fn get(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let most = count(args[2])?;
    let kind = kind(args[3])?;
    reply(ctx, kind, most);
    Ok(())
}

fn len(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let log = ctx.server.commandlog.of(kind(args[2])?);
    ctx.reply.int(log.len() as i64);
    Ok(())
}

fn reset(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    ctx.server.commandlog.of(kind(args[2])?).clear();
    ctx.reply.ok();
    Ok(())
}

const HELP: &[help::Topic] = &[
    (
        "GET <count> <type>",
        &[
            "The newest entries of a log (-1: all). Of each: its number, when it began",
            "(Unix seconds), how long it took (microseconds) or how long it was (bytes),",
            "the arguments, the client's address and name.",
        ],
    ),
    ("LEN <type>", &["How many entries a log has."]),
    ("RESET <type>", &["Forget all entries of a log."]),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "COMMANDLOG", HELP);
    Ok(())
}

const HELPS: Flags = Flags::LOADING.union(Flags::STALE);
const ADMIN: Flags = HELPS.union(Flags::ADMIN);
/// The argument that names a log.
macro_rules! kind_of_log {
    ($before:literal) => {
        concat!($before, "type=(SLOW|LARGE-REQUEST|LARGE-REPLY)")
    };
}

const fn row(command: Command, summary: &'static str) -> Command {
    command.doc(Group::Server, "8.1.0", summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("get", 4, get)
            .syntax(kind_of_log!("count:int "))
            .complexity("O(N), N: entries answered")
            .flags(ADMIN)
            .tips(&[Tip::RequestAllNodes, Tip::NondeterministicOutput]),
        "Returns the newest entries of a log of commands",
    ),
    row(
        Command::session("help", 2, help).flags(HELPS),
        "Lists the subcommands",
    ),
    row(
        Command::session("len", 3, len)
            .syntax(kind_of_log!(""))
            .flags(ADMIN)
            .tips(&[
                Tip::RequestAllNodes,
                Tip::ResponseAggSum,
                Tip::NondeterministicOutput,
            ]),
        "Counts the entries of a log of commands",
    ),
    row(
        Command::session("reset", 3, reset)
            .syntax(kind_of_log!(""))
            .complexity("O(N), N: entries")
            .flags(ADMIN)
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
        "Empties a log of commands",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[row(
    Command::container("commandlog", -2, SUBCOMMANDS),
    "Commands about the logs of commands that took long or were long",
)];

#[cfg(test)]
mod tests {
    use crate::exec::testing::Client;
    use crate::resp::Value;

    fn values(client: &mut Client, kind: &str) -> Vec<(String, i64)> {
        let entries = client.run(&format!("commandlog get -1 {kind}"));
        let entries = entries.as_slice().unwrap().iter();
        let of = |entry: &Value| {
            let entry = entry.as_slice().unwrap();
            let word = entry[3].as_slice().unwrap()[0].as_bytes().unwrap();
            let word = String::from_utf8(word.to_vec()).unwrap();
            (word, entry[2].as_i64().unwrap())
        };
        entries.map(of).collect()
    }

    #[test]
    fn requests_and_replies_are_logged_by_their_length() {
        let mut client = Client::new();
        client.run("config set commandlog-request-larger-than 60 commandlog-reply-larger-than 60");
        // On a busy machine any command may be slow.
        client.run("config set slowlog-log-slower-than -1");
        client.run("commandlog reset large-request");
        let long = "x".repeat(100);
        let sent = format!("*3\r\n$3\r\nset\r\n$1\r\nk\r\n$100\r\n{long}\r\n").len() as i64;
        let got = format!("$100\r\n{long}\r\n").len() as i64;
        client.run(&format!("set k {long}"));
        client.run("get k");
        client.run("set k short");
        let requests = values(&mut client, "large-request");
        assert_eq!(requests, [("set".to_owned(), sent)]);
        let replies = values(&mut client, "LARGE-REPLY");
        // The reply of COMMANDLOG itself is long as well.
        assert_eq!(replies[1], ("get".to_owned(), got));
        assert_eq!(client.run("commandlog len slow"), Value::Int(0));
        client.run("config set commandlog-large-reply-max-len 1");
        assert_eq!(client.run("commandlog len large-reply"), Value::Int(1));
        client.run("commandlog reset large-request");
        assert_eq!(client.run("commandlog len large-request"), Value::Int(0));
        for (line, error) in [
            (
                "commandlog len huge",
                "ERR type should be one of the following: slow, large-request, large-reply",
            ),
            (
                "commandlog get -2 slow",
                "ERR count should be greater than or equal to -1",
            ),
            (
                "commandlog get 1",
                "ERR wrong number of arguments for 'commandlog|get' command",
            ),
        ] {
            assert_eq!(client.run(line).as_error(), Some(error), "{line}");
        }
    }

    #[test]
    fn commands_of_a_transaction_are_logged_each() {
        let mut client = Client::new();
        let long = "x".repeat(100);
        client.run("config set commandlog-request-larger-than 100");
        client.run("multi");
        client.run(&format!("set k {long}"));
        client.run("get k");
        assert_eq!(client.run("commandlog len large-request").as_error(), None);
        client.run("exec");
        let logged = values(&mut client, "large-request");
        assert_eq!(logged.len(), 1);
        assert_eq!(logged[0].0, "set");
    }
}
