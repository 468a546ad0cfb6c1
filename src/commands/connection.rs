//! Commands about the connection itself.

use super::acl::refusal;
use super::args::{self, Options};
use super::client::{BAD_CLIENT_NAME, is_plain, set_name};
use super::himport;
use super::info::REDIS_VERSION;
use super::info::process::mode;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::base::num;
use crate::commands::table::migrated::Migrated;
use crate::commands::table::spec::Secret;
use crate::commands::table::spec::{Dbs, Group};
use crate::commands::table::tips::Tip;
use crate::state::acl::{Context, DEFAULT_USER, Login, PasswordHash};
use crate::state::clients::ClientFlags;
use crate::state::session::ReplyMode;
use crate::storage::DbIndex;

const WRONG_PASSWORD: Error =
    Error::text("WRONGPASS invalid username-password pair or user is disabled.");
const NO_PASSWORD_SET: Error = Error::text(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
);
const HELLO_BEFORE_AUTH: Error = Error::text(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
);

/// Authenticates a session, for the command whose name is the first argument. After an error
/// the session is unchanged.
fn authenticate(
    ctx: &mut SessionCtx<'_>,
    args: &[&[u8]],
    name: &[u8],
    password: &[u8],
) -> CmdResult {
    let user = ctx.server.users.get(name);
    if user.is_none() {
        // The time that a refusal takes does not tell which users exist.
        std::hint::black_box(PasswordHash::of(password));
    }
    if let Some(user) = user.filter(|user| user.rules().accepts(password)) {
        ctx.session.log_in(Login::of(user), true);
        return Ok(());
    }
    let context = match ctx.session.info.flags().contains(ClientFlags::MULTI) {
        true => Context::Multi,
        false => Context::TopLevel,
    };
    let called = args.first().copied().unwrap_or_default();
    let refused = refusal::of_login(ctx.session, ctx.command.name, called, name, context);
    refusal::report(ctx.server, refused);
    Err(WRONG_PASSWORD)
}

fn auth(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    match args {
        [_, password] => {
            if ctx.server.users.default_user().rules().no_password {
                return Err(NO_PASSWORD_SET);
            }
            authenticate(ctx, args, DEFAULT_USER.as_bytes(), password)?;
        }
        [_, user, password] => authenticate(ctx, args, user, password)?,
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
        authenticate(ctx, args, user, password)?;
    }
    if !ctx.session.authenticated && !ctx.server.users.default_user().is_open() {
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
    let role = match ctx.server.replication.is_replica() {
        true => "replica",
        false => "master",
    };
    let mode = mode(&ctx.server.config.load());
    for (key, value) in [("mode", mode), ("role", role)] {
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
    if number != 0 && ctx.server.engine.config.cluster_enabled {
        return Err(Error::text("ERR SELECT is not allowed in cluster mode"));
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
    session.end_multi(&ctx.server.chores);
    ctx.server.clients.set_monitor(&session.info, false);
    ctx.server.pubsub.leave_all(ctx.server, session, ctx.outbox);
    ctx.server.tracking.stop(session);
    for flag in [
        ClientFlags::NO_EVICT,
        ClientFlags::NO_TOUCH,
        ClientFlags::READS_REPLICA,
        ClientFlags::IMPORT_SOURCE,
        ClientFlags::CROSSES_SLOTS,
    ] {
        session.info.set_flag(flag, false);
    }
    session.info.names.lock().name.clear();
    session.select(DbIndex(0));
    himport::discard_all(session, ctx.server);
    session.set_resp3(false);
    session.reply_mode = ReplyMode::On;
    let login = Login::of_new_client(&ctx.server.users);
    let is_open = login.is_open();
    session.log_in(login, is_open);
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

/// The rows of these commands in the command table.
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
            first: 1,
            names: &[],
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
    Command::session("reset", 1, reset)
        .flags(LAST.union(Flags::COUNTS_NAMES))
        .doc(
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
