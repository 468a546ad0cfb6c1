//! Commands about the connection itself.

use super::args::{self, Options};
use super::info::REDIS_VERSION;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::base::num;
use crate::commands::table::migrated::Migrated;
use crate::commands::table::secrets::Secret;
use crate::commands::table::spec::{Dbs, Group};
use crate::commands::table::tips::Tip;
use crate::state::Session;
use crate::state::clients::ClientFlags;
use crate::state::session::ReplyMode;
use crate::storage::DbIndex;

/// The only user: there are no ACLs.
pub(super) const DEFAULT_USER: &str = "default";

const WRONG_PASSWORD: Error =
    Error::text("WRONGPASS invalid username-password pair or user is disabled.");
const NO_PASSWORD_SET: Error = Error::text(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
);
const HELLO_BEFORE_AUTH: Error = Error::text(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
);
const BAD_CLIENT_NAME: Error =
    Error::text("ERR Client names cannot contain spaces, newlines or special characters.");

/// Whether a text is allowed in a line of CLIENT LIST: no blanks, no control characters.
pub fn is_plain(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

/// CLIENT SETNAME and HELLO SETNAME.
pub fn set_name(session: &Session, name: &[u8]) -> CmdResult {
    if !is_plain(name) {
        return Err(BAD_CLIENT_NAME);
    }
    session.info.names.lock().name = name.to_vec();
    Ok(())
}

/// Compares in a time that depends only on the lengths (no timing side channel).
fn same_secret(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y));
    a.len() == b.len() && differences == 0
}

/// Authenticates a session. After an error the session is unchanged.
fn authenticate(ctx: &mut SessionCtx<'_>, user: &[u8], password: &[u8]) -> CmdResult {
    let config = ctx.server.config.load();
    let required = &config.requirepass;
    let right = required.is_empty() || same_secret(&required.0, password);
    if user != DEFAULT_USER.as_bytes() || !right {
        ctx.server.stats.auth_failures.add(1);
        return Err(WRONG_PASSWORD);
    }
    ctx.session.authenticated = true;
    ctx.session.info.names.lock().user = DEFAULT_USER.to_owned();
    Ok(())
}

fn auth(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    match args {
        [_, password] => {
            if ctx.server.config.load().requirepass.is_empty() {
                return Err(NO_PASSWORD_SET);
            }
            authenticate(ctx, DEFAULT_USER.as_bytes(), password)?;
        }
        [_, user, password] => authenticate(ctx, user, password)?,
        _ => return Err(Error::Syntax),
    }
    ctx.reply.ok();
    Ok(())
}

fn hello(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 1);
    let mut resp3 = ctx.session.resp3;
    if let Some(version) = options.peek() {
        options.value()?;
        resp3 = match num::parse_i64(version) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return Err(Error::text("NOPROTO unsupported protocol version")),
            None => {
                return Err(Error::text(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
    }
    let mut credentials = None;
    let mut name = None;
    while let Some(option) = options.peek() {
        options.value()?;
        if args::is(option, "AUTH") && options.left() >= 2 {
            credentials = Some((options.value()?, options.value()?));
        } else if args::is(option, "SETNAME") && options.left() >= 1 {
            let wanted = options.value()?;
            if !is_plain(wanted) {
                return Err(BAD_CLIENT_NAME);
            }
            name = Some(wanted);
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(Error::owned(format!(
                "ERR Syntax error in HELLO option '{option}'"
            )));
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(ctx, user, password)?;
    }
    if !ctx.session.authenticated {
        return Err(HELLO_BEFORE_AUTH);
    }
    if let Some(name) = name {
        set_name(ctx.session, name)?;
    }
    ctx.session.set_resp3(resp3);
    ctx.reply.resp3 = resp3;
    greet(ctx);
    Ok(())
}

fn greet(ctx: &mut SessionCtx<'_>) {
    let reply = &mut *ctx.reply;
    reply.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.int(if ctx.session.resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(ctx.session.info.id.0 as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

fn ping(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let in_messages = !ctx.session.resp3 && !ctx.session.subscriptions.is_empty();
    match args {
        [_] | [_, _] if in_messages => {
            // A RESP2 subscriber expects only pub/sub messages, so the reply has that form.
            ctx.reply.array(2);
            ctx.reply.bulk(b"pong");
            ctx.reply.bulk(args.get(1).copied().unwrap_or_default());
        }
        [_] => ctx.reply.simple("PONG"),
        [_, message] => ctx.reply.bulk(message),
        _ => return Err(Error::Arity("ping".into())),
    }
    Ok(())
}

fn echo(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    ctx.reply.bulk(args.get(1).copied().unwrap_or_default());
    Ok(())
}

fn select(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let number = args::int(args.get(1).copied().unwrap_or_default())?;
    if i32::try_from(number).is_err() {
        return Err(Error::OUT_OF_I32);
    }
    let db = u16::try_from(number)
        .ok()
        .filter(|db| *db < ctx.server.engine.config.databases)
        .ok_or(Error::NO_SUCH_DB)?;
    ctx.session.select(DbIndex(db));
    ctx.reply.ok();
    Ok(())
}

fn quit(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.session.close_after_reply = true;
    ctx.reply.ok();
    Ok(())
}

fn reset(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let session = &mut *ctx.session;
    session.end_multi();
    ctx.server.clients.set_monitor(&session.info, false);
    ctx.server.pubsub.leave_all(ctx.server, session, ctx.outbox);
    ctx.server.tracking.stop(session);
    for flag in [ClientFlags::NO_EVICT, ClientFlags::NO_TOUCH] {
        session.info.set_flag(flag, false);
    }
    session.info.names.lock().name.clear();
    session.select(DbIndex(0));
    session.set_resp3(false);
    session.reply_mode = ReplyMode::On;
    session.authenticated = ctx.server.config.load().requirepass.is_empty();
    ctx.reply.resp3 = false;
    ctx.reply.simple("RESET");
    Ok(())
}

const SMALL: Flags = Flags::FAST.union(Flags::LOADING).union(Flags::STALE);
const FIRST: Flags = SMALL
    .union(Flags::NOSCRIPT)
    .union(Flags::NO_AUTH)
    .union(Flags::ALLOW_BUSY);
const LAST: Flags = FIRST.union(Flags::SUBSCRIBED);
const LOGIN: Flags = FIRST.union(Flags::SENTINEL);

/// The table.
pub const COMMANDS: &[Command] = &[
    Command::session("auth", -2, auth)
        .syntax("[username@6.0.0] password")
        .complexity("O(N), N: the length of the user name and password")
        .history(&[("6.0.0", "A user name may be given")])
        .flags(LOGIN)
        .secret(Secret::From(1))
        .doc(Group::Connection, "1.0.0", "Authenticates the connection"),
    Command::session("echo", 2, echo)
        .syntax("message")
        .flags(SMALL)
        .doc(Group::Connection, "1.0.0", "Returns its argument"),
    Command::session("hello", -1, hello)
        .syntax(
            "[arguments=(protover:int [AUTH auth=(username password)] \
             [SETNAME clientname])]",
        )
        .history(&[("6.2.0", "The version is optional")])
        .flags(LOGIN)
        .secret(Secret::Options {
            first: 2,
            words: &[("AUTH", 2)],
            end: None,
        })
        .doc(
            Group::Connection,
            "6.0.0",
            "Chooses the protocol version, and may authenticate and name the connection",
        ),
    Command::session("ping", -1, ping)
        .syntax("[message]")
        .flags(Flags::FAST.union(Flags::SENTINEL).union(Flags::SUBSCRIBED))
        .tips(&[Tip::RequestAllShards, Tip::ResponseAllSucceeded])
        .migrated(Migrated::Nothing)
        .doc(Group::Connection, "1.0.0", "Returns PONG, or its argument"),
    Command::session("quit", -1, quit)
        .flags(LAST)
        .deprecated("7.2.0", "closing the connection")
        .doc(
            Group::Connection,
            "1.0.0",
            "Closes the connection once all replies are sent",
        ),
    Command::session("reset", 1, reset).flags(LAST).doc(
        Group::Connection,
        "6.2.0",
        "Resets the state of the connection to that of a new one",
    ),
    Command::session("select", 2, select)
        .syntax("index:int")
        .flags(SMALL)
        .dbs(Dbs::Selected)
        .doc(
            Group::Connection,
            "1.0.0",
            "Chooses the DB of the connection",
        ),
];

#[cfg(test)]
mod tests;
