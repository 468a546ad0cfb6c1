//! MIGRATE: moves keys to another server. The handler parses the request; a `migrate-N`
//! thread moves the keys and replies to the client (see [`crate::state::migrations`]).

use super::args::{self, Options};
use super::{CmdResult, Command, Error, KeyFlags, KeySpec, WriteCtx};
use crate::commands::table::keys::Find;
use crate::commands::table::spec::Group;
use crate::commands::table::spec::Secret;
use crate::commands::table::tips::Tip;
use crate::state::clients::ClientFlags;
use crate::state::migrations::{Credentials, Migration};
use crate::state::session::ReplyMode;
use std::time::Duration;

/// The timeout if the argument is 0 or negative.
const DEFAULT_TIMEOUT_MS: i64 = 1000;

const KEY_AND_KEYS: Error = Error::text(
    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
);
const TOO_MANY: Error = Error::text("TRYAGAIN too many migrations are waiting");
const NOT_NOW: Error = Error::text("ERR MIGRATE is not possible within a transaction or a script");

/// The options after the timeout.
struct MigrateOptions<'a> {
    copy: bool,
    replace: bool,
    credentials: Option<Credentials>,
    keys: &'a [&'a [u8]],
    /// The index of the first key behind KEYS.
    keys_at: Option<usize>,
    is_prefix: bool,
}

fn parse<'a>(args: &'a [&'a [u8]]) -> Result<MigrateOptions<'a>, Error> {
    let mut words = MigrateOptions {
        copy: false,
        replace: false,
        credentials: None,
        keys: args.get(3..4).unwrap_or_default(),
        keys_at: None,
        is_prefix: false,
    };
    let mut options = Options::new(args, 6);
    while !options.is_empty() {
        if options.word("COPY") {
            words.copy = true;
        } else if options.word("REPLACE") {
            words.replace = true;
        } else if options.word("AUTH") {
            words.credentials = Some(Credentials {
                user: None,
                password: options.value()?.to_vec(),
            });
        } else if options.word("AUTH2") {
            words.credentials = Some(Credentials {
                user: Some(options.value()?.to_vec()),
                password: options.value()?.to_vec(),
            });
        } else if options.word("USE_PREFIX") {
            words.is_prefix = true;
        } else if options.word("KEYS") {
            if words.is_prefix {
                return Err(Error::Syntax);
            }
            if args.get(3).is_some_and(|key| !key.is_empty()) {
                return Err(KEY_AND_KEYS);
            }
            words.keys_at = Some(args.len() - options.left());
            words.keys = options.values(options.left())?;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(words)
}

fn migrate(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let words = parse(args)?;
    let timeout_ms = match args::int(args[5])? {
        ms @ 1.. => ms,
        _ => DEFAULT_TIMEOUT_MS,
    };
    let target_db = args::int(args[4])?;
    let port = u16::try_from(args::int(args[2])?)
        .map_err(|_| Error::text("ERR Invalid TCP port specified"))?;
    if ctx.session.deny_blocking {
        return Err(NOT_NOW);
    }
    let mut keys = Vec::new();
    let prefix = words.is_prefix.then(|| args[3].to_vec());
    let named = match words.is_prefix {
        true => &[],
        false => words.keys,
    };
    for key in named {
        let db = ctx.db;
        if ctx.txn.counting(|txn| txn.lookup(db, key))?.is_some() {
            keys.push(key.to_vec());
        }
    }
    if keys.is_empty() && prefix.is_none() {
        ctx.reply.simple("NOKEY");
        return Ok(());
    }
    let info = &ctx.session.info;
    let wants_reply = matches!(ctx.session.reply_mode, ReplyMode::On);
    let migration = Migration {
        client: info.id,
        db: ctx.db,
        keys,
        prefix,
        host: String::from_utf8_lossy(args[1]).into_owned(),
        port,
        target_db,
        timeout: Duration::from_millis(timeout_ms.unsigned_abs()),
        copy: words.copy,
        replace: words.replace,
        credentials: words.credentials,
    };
    // The session must be waiting before the request is submitted, because the reply may
    // come immediately.
    ctx.session.wait_for_answer(wants_reply);
    info.set_flag(ClientFlags::BLOCKED, true);
    if !ctx.server.migrations.submit(migration) {
        info.set_flag(ClientFlags::BLOCKED, false);
        ctx.session.answered();
        return Err(TOO_MANY);
    }
    Ok(())
}

const MOVED: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);
/// With USE_PREFIX it is the beginning of the keys.
const FIRST: KeySpec = KeySpec {
    flags_of: Some(|args| match parse(args) {
        Ok(options) if options.is_prefix => MOVED.union(KeyFlags::PREFIX),
        _ => MOVED,
    }),
    ..KeySpec::at(3, MOVED)
};
const MORE: KeySpec = KeySpec {
    find: Find::Range {
        last: -1,
        step: 1,
        limit: 0,
    },
    begin_of: Some(|args| {
        // A password or a key may be the word KEYS, too. That the key in front is not empty is
        // refused by the handler.
        let mut args = args.to_vec();
        *args.get_mut(3)? = b"";
        parse(&args).ok()?.keys_at
    }),
    ..KeySpec::after("KEYS", -2, MOVED.union(KeyFlags::INCOMPLETE))
};

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[Command::write("migrate", -6, migrate)
    .syntax(
        "host port:int key-selector=(key|empty-string=\"\") destination-db:int timeout:int \
         [COPY@3.0.0] [REPLACE@3.0.0] \
         [authentication=(AUTH auth{password}@4.0.7|AUTH2 auth2=(username password)@6.0.0)] \
         [USE_PREFIX] [KEYS keys:key{key}@3.0.6...]",
    )
    .complexity("O(N), N: elements of the value")
    .history(&[
        ("3.0.0", "Added `COPY` and `REPLACE`"),
        ("3.0.6", "Added `KEYS`"),
        ("4.0.7", "Added `AUTH`"),
        ("6.0.0", "Added `AUTH2`"),
    ])
    .keys(&[FIRST, MORE])
    .categories(&["keyspace", "dangerous"])
    .secret(Secret::Options {
        first: 6,
        // The host and the key.
        names: &[1, 3],
        words: &[("AUTH", 1), ("AUTH2", 2)],
        end: Some("KEYS"),
    })
    .tips(&[Tip::NondeterministicOutput])
    .doc(
        Group::Generic,
        "2.6.0",
        "Moves keys to another server, Kedis or Redis; they are here until it has them",
    )];

#[cfg(test)]
mod tests;
