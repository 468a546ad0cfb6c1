//! DEBUG: commands for tests and developers, allowed by `enable-debug-command`.

use super::args;
use super::object;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, Own, ReadCtx, SessionCtx};
use crate::base::num;
use crate::commands::table::help;
use crate::commands::table::spec::Group;
use crate::encoding::MetaView;
use crate::resp::Reply;
use crate::state::{Server, Session};
use crate::storage::engine::waiting::delay_reads;
use crate::storage::{DbIndex, KeyMeta, Value};
use crate::types::{OpError, inspect};
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum number of keys of a POPULATE that must be one batch.
const BATCH_MAX_KEYS: u64 = 1_000_000;
/// Maximum size of their values, in bytes.
const BATCH_MAX_BYTES: u64 = 1 << 30;

const TOO_MUCH: Error = Error::text("ERR that is too much to make at once");

const NOT_ALLOWED: Error = Error::text(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

fn allow(server: &Server, session: &Session) -> CmdResult {
    let access = server.config.load().enable_debug_command;
    match access.allows(session.is_local()) {
        true => Ok(()),
        false => Err(NOT_ALLOWED),
    }
}

fn arg<'a>(args: &[&'a [u8]], index: usize) -> &'a [u8] {
    args.get(index).copied().unwrap_or_default()
}

fn sleep(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    // As in Redis, an argument that is not a number counts as 0.
    let seconds = num::parse_f64(arg(args, 2)).unwrap_or(0.0);
    let duration =
        Duration::try_from_secs_f64(seconds.max(0.0)).map_err(|_| Error::Op(OpError::NotFloat))?;
    ctx.server.stall(duration);
    ctx.reply.ok();
    Ok(())
}

fn set_active_expire(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let on = num::parse_i64(arg(args, 2)).is_some_and(|n| n != 0);
    ctx.server.active_expire.store(on, Ordering::Relaxed);
    ctx.reply.ok();
    Ok(())
}

fn set_disable_deny_scripts(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let on = num::parse_i64(arg(args, 2)).is_some_and(|n| n != 0);
    ctx.server.allow_denied.store(on, Ordering::Relaxed);
    ctx.reply.ok();
    Ok(())
}

fn set_skip_checksum_validation(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let on = num::parse_i64(arg(args, 2)).is_some_and(|n| n != 0);
    ctx.server.skip_checksums.store(on, Ordering::Relaxed);
    ctx.reply.ok();
    Ok(())
}

/// RELOAD and LOADAOF: write all memtables to files, so that later reads find what a
/// restart would find. Nothing is saved or cleared, so the options of RELOAD have no
/// effect.
fn reload(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let options = args.get(2..).unwrap_or_default();
    let known = |option: &[u8]| {
        let words = ["MERGE", "NOFLUSH", "NOSAVE"];
        words.iter().any(|word| args::is(option, word))
    };
    if args::is(arg(args, 1), "RELOAD") && !options.iter().all(|option| known(option)) {
        return Err(Error::text(
            "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
        ));
    }
    ctx.server.engine.flush_memtables()?;
    ctx.reply.ok();
    Ok(())
}

/// Settings of data structures that Kedis does not have.
fn accept(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    ctx.reply.ok();
    Ok(())
}

fn reply_buffer(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let known = ["PEAK-RESET-TIME", "RESIZING"];
    match known.iter().any(|word| args::is(arg(args, 2), word)) {
        true => accept(ctx, args),
        false => unknown(ctx, args),
    }
}

/// The error for an unknown subcommand or a wrong number of arguments.
fn unknown(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    Err(help::mistaken(args))
}

fn change_repl_id(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    ctx.server.engine.renew_replication_id()?;
    ctx.reply.ok();
    Ok(())
}

fn log(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let message = String::from_utf8_lossy(arg(args, 2)).replace(['\r', '\n'], " ");
    log::warn!("DEBUG LOG: {message}");
    ctx.reply.ok();
    Ok(())
}

fn error(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let text = String::from_utf8_lossy(arg(args, 2)).into_owned();
    Err(Error::owned(text))
}

/// One reply of a named type, for the tests of client libraries.
fn protocol(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let reply = &mut *ctx.reply;
    match arg(args, 2).to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.int(12345),
        // The text that tests of client libraries expect.
        b"double" => match reply.resp3 {
            true => reply.raw(b",3.141\r\n"),
            false => reply.bulk(b"3.141"),
        },
        b"null" => reply.null(),
        b"array" => ints(reply, Reply::array),
        b"set" => ints(reply, Reply::set),
        b"map" => {
            reply.map(3);
            for n in 0..3 {
                reply.int(n);
                reply.boolean(n == 1);
            }
        }
        b"attrib" => {
            // RESP2 has no attributes, so only the reply itself follows.
            if reply.resp3 {
                reply.raw(b"|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n");
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            if !reply.resp3 {
                return Err(Error::text("ERR RESP2 is not supported by this command"));
            }
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        _ => {
            return Err(Error::text(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

fn ints(reply: &mut Reply, header: fn(&mut Reply, usize)) {
    header(reply, 3);
    for n in 0..3 {
        reply.int(n);
    }
}

fn object(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let key = arg(args, 2);
    // Expired keys are shown too.
    let row = ctx.view.meta_row(ctx.db, key)?;
    let row = row.ok_or(Error::Op(OpError::NoSuchKey))?;
    let MetaView { meta, body } = MetaView::decode(&row)?;
    let found = KeyMeta {
        meta,
        body: Value::from_slice(body),
    };
    drop(row);
    let bytes = inspect::stored_bytes(ctx.view, ctx.db, key, &found, 0)?;
    let encoding = object::encoding_of(ctx, &found)?;
    let rows = u8::from(found.meta.rows);
    let now_ms = ctx.view.now_ms();
    let idle_s = ctx
        .server
        .accesses
        .idle_s(ctx.view.key_hash(ctx.db, key), now_ms);
    // Redis' LRU clock: the low 24 bits of the Unix time in seconds.
    let used_s = (now_ms.0 / 1000).saturating_sub(idle_s) & 0x00ff_ffff;
    ctx.reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:{used_s} \
         lru_seconds_idle:{idle_s} type:{} in_rows:{rows} expire_ms:{}",
        found.meta.kind.name(),
        found.meta.expire_ms
    ));
    Ok(())
}

fn hex(hash: &crate::types::definition::Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(ctx: &mut ReadCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let mut sum = crate::types::definition::Hash::default();
    for db in 0..ctx.server.engine.config.databases {
        let of_db = inspect::db_digest(ctx.view, DbIndex(db))?;
        for (a, b) in sum.iter_mut().zip(of_db) {
            *a ^= b;
        }
    }
    ctx.reply.simple(&hex(&sum));
    Ok(())
}

fn digest_value(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let keys = args.get(2..).unwrap_or_default();
    ctx.reply.array(keys.len());
    for key in keys {
        let hash = inspect::value_digest(ctx.view, ctx.db, key)?;
        ctx.reply.simple(&hex(&hash));
    }
    Ok(())
}

/// The keys that DEBUG POPULATE creates.
#[derive(Debug, Clone, Copy)]
pub struct Population<'a> {
    /// How many keys.
    pub count: u64,
    prefix: &'a [u8],
    /// Size of each value in bytes; `None`: as long as its text.
    size: Option<u64>,
}

impl<'a> Population<'a> {
    /// Reads the command's arguments.
    ///
    /// # Errors
    /// The arguments are invalid, or `session` may not use DEBUG.
    pub fn parse(
        server: &Server,
        session: &Session,
        args: &[&'a [u8]],
    ) -> Result<Population<'a>, Error> {
        allow(server, session)?;
        if args.len() > 5 {
            return Err(help::mistaken(args));
        }
        let number = |text| args::int_from(text, 0, Error::NOT_POSITIVE).map(i64::unsigned_abs);
        let size = args.get(4).map_or(Ok(0), |size| number(size))?;
        let longest = server.config.load().proto_max_bulk_len_bytes;
        if size > longest.min(BATCH_MAX_BYTES) {
            return Err(TOO_MUCH);
        }
        Ok(Population {
            count: number(arg(args, 2))?,
            prefix: args.get(3).copied().unwrap_or(b"key"),
            size: Some(size).filter(|size| *size > 0),
        })
    }

    /// Checks that the keys fit into one batch.
    ///
    /// # Errors
    /// There are too many keys, or their values are too large.
    pub fn check_batch(&self) -> CmdResult {
        let bytes = self.count.saturating_mul(self.size.unwrap_or(0));
        match self.count > BATCH_MAX_KEYS || bytes > BATCH_MAX_BYTES {
            true => Err(TOO_MUCH),
            false => Ok(()),
        }
    }

    /// The key of this number.
    pub fn key(&self, number: u64) -> Vec<u8> {
        [self.prefix, format!(":{number}").as_bytes()].concat()
    }

    /// The value of this number.
    pub fn value(&self, number: u64) -> Vec<u8> {
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = self.size {
            value.resize(size as usize, 0);
        }
        value
    }
}

/// Reads every row of the database and checks that rows agree with each other: counts,
/// expiry index, references.
fn kedis_check(ctx: &mut ReadCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let report = ctx.server.engine.check()?;
    if !report.faults.is_empty() {
        for fault in &report.faults {
            log::error!("DEBUG KEDIS-CHECK: {fault}");
        }
        let first = report.faults.first().map(String::as_str).unwrap_or("");
        return Err(Error::owned(format!(
            "ERR {} faults, all of them in the log; the first: {first}",
            report.faults.len()
        )));
    }
    let mut text = String::new();
    for (name, count) in [
        ("keys", report.keys),
        ("rows", report.rows),
        ("dead collections", report.dead_collections),
        ("binlog rows", report.binlog_rows),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}: {count}");
    }
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Acts as a slower disk.
fn kedis_delay_reads(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    let us = num::parse_i64(arg(args, 2)).and_then(|us| u64::try_from(us).ok());
    delay_reads(us.ok_or(Error::Op(OpError::NotInteger))?);
    ctx.reply.ok();
    Ok(())
}

const HELP: &[help::Topic] = &[
    ("CHANGE-REPL-ID", &["Begin another history for replicas."]),
    ("DIGEST", &["A hash of all keys and values."]),
    ("DIGEST-VALUE <key> [<key> ...]", &["Hashes of values."]),
    ("ERROR <text>", &["Answer this error."]),
    (
        "KEDIS-CHECK",
        &["Check every row of the database; other commands wait meanwhile."],
    ),
    (
        "KEDIS-DELAY-READS <microseconds>",
        &["Make each read of the disk take so much longer."],
    ),
    ("LOADAOF", &["As RELOAD."]),
    ("LOG <message>", &["Write into the server's log."]),
    ("OBJECT <key>", &["How a value is kept."]),
    (
        "POPULATE <count> [<prefix>] [<size>]",
        &["Make string keys called prefix:number, unless they exist. In slices, but for MULTI."],
    ),
    (
        "PROTOCOL <type>",
        &["Answer a value of a type, such as double or map."],
    ),
    (
        "DICT-RESIZING <0|1>, PAUSE-CRON <0|1>, QUICKLIST-PACKED-THRESHOLD <size>, \
         REPLYBUFFER <option> <value>",
        &["Accepted, without effect."],
    ),
    (
        "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
        &["Write all memtables into files."],
    ),
    (
        "SET-ACTIVE-EXPIRE <0|1>",
        &["Whether keys are removed in the background when their time is over."],
    ),
    (
        "SET-DISABLE-DENY-SCRIPTS <0|1>",
        &["Whether scripts may run commands that are not for scripts."],
    ),
    (
        "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
        &["Whether RESTORE takes payloads whose checksum is wrong."],
    ),
    (
        "SLEEP <seconds>",
        &["Hold up this client and others of its thread."],
    ),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    allow(ctx.server, ctx.session)?;
    help::write(ctx.reply, "DEBUG", HELP);
    Ok(())
}

const ADMIN: Flags = Flags::ADMIN
    .union(Flags::NOSCRIPT)
    .union(Flags::LOADING)
    .union(Flags::STALE);
const SLOW: Flags = ADMIN.union(Flags::SLOW);
const ON_WORKER: Flags = SLOW.union(Flags::ON_WORKER);
const ALONE: Flags = ADMIN.union(Flags::EXCLUSIVE);

const fn row(command: Command, flags: Flags, summary: &'static str) -> Command {
    command.flags(flags).doc(Group::Server, "1.0.0", summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("change-repl-id", 2, change_repl_id),
        SLOW,
        "Begins another history for replicas",
    ),
    row(
        Command::read("digest", 2, digest),
        ALONE,
        "Returns a hash of all keys and values",
    ),
    row(
        Command::read("digest-value", -2, digest_value).keys(&[KeySpec::range(
            2,
            -1,
            1,
            KeyFlags::RO,
        )]),
        ADMIN,
        "Returns hashes of values",
    ),
    row(
        Command::session("dict-resizing", 3, accept),
        ADMIN,
        "Accepted, without effect",
    ),
    row(
        Command::session("error", 3, error).data_from(2),
        ADMIN,
        "Returns an error",
    ),
    row(
        Command::session("help", 2, help),
        ADMIN,
        "Lists the subcommands",
    ),
    row(
        Command::read("kedis-check", 2, kedis_check),
        ALONE.union(Flags::ON_WORKER),
        "Checks every row of the database",
    ),
    row(
        Command::session("kedis-delay-reads", 3, kedis_delay_reads),
        ADMIN,
        "Makes each read of the disk take longer",
    ),
    row(
        Command::session("loadaof", -2, reload),
        ON_WORKER,
        "Writes all memtables into files",
    ),
    row(
        Command::session("log", 3, log).data_from(2),
        ADMIN,
        "Writes into the server's log",
    ),
    row(
        Command::read("object", 3, object).keys(&[KeySpec::at(2, KeyFlags::RO)]),
        ADMIN.union(Flags::NO_TOUCH),
        "Returns how a value is stored",
    ),
    row(
        Command::session("pause-cron", 3, accept),
        ADMIN,
        "Accepted, without effect",
    ),
    row(
        Command::own("populate", -3, Own::Populate).data_from(3),
        ALONE,
        "Makes string keys",
    ),
    row(
        Command::session("protocol", 3, protocol),
        ADMIN,
        "Returns a value of a type of the protocol",
    ),
    row(
        Command::session("quicklist-packed-threshold", 3, accept),
        ADMIN,
        "Accepted, without effect",
    ),
    row(
        Command::session("reload", -2, reload),
        ON_WORKER,
        "Writes all memtables into files",
    ),
    row(
        Command::session("replybuffer", 4, reply_buffer),
        ADMIN,
        "Accepted, without effect",
    ),
    row(
        Command::session("set-active-expire", 3, set_active_expire),
        ADMIN,
        "Switches the removal of keys in the background",
    ),
    row(
        Command::session("set-disable-deny-scripts", 3, set_disable_deny_scripts),
        ADMIN,
        "Allows scripts to run commands that are denied to them",
    ),
    row(
        Command::session(
            "set-skip-checksum-validation",
            3,
            set_skip_checksum_validation,
        ),
        ADMIN,
        "Makes RESTORE accept payloads with a wrong checksum",
    ),
    row(
        Command::session("sleep", 3, sleep),
        SLOW,
        "Holds up the client's thread",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[row(
    Command::session("debug", -2, unknown)
        .subcommands(SUBCOMMANDS)
        .internal(),
    ADMIN.union(Flags::PLAIN),
    "Commands for tests",
)];
