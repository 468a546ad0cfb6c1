//! SAVE, BGSAVE and BGREWRITEAOF.
//!
//! The data is always on disk. A save makes a consistent copy: a RocksDB checkpoint, a
//! directory `dbfilename` under `dir`, in which a server can be started. It replaces the
//! previous copy atomically. Its tables are hard links to those of the live database, which
//! share the space until compactions replace them there.
//!
//! BGSAVE RDB makes another kind of copy: an RDB file for Redis.

use super::args::Options;
use super::info::{KEDIS_VERSION, REDIS_VERSION};
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::base::time::UnixMs;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::state::config::Config;
use crate::state::saves::Turn;
use crate::storage::{Engine, StorageError, fail_point, is_copy};
use crate::sys::clock;
use crate::sys::files::sync_dir;
use crate::types::OpError;
use crate::types::export::{ExportOptions, export};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const IN_PROGRESS: Error = Error::text("ERR Background save already in progress");

/// The paths of a save.
struct Target {
    /// The final path of the copy.
    path: PathBuf,
    /// The path under which it is made, in the same directory.
    temporary: PathBuf,
}

impl Target {
    fn of(ctx: &SessionCtx<'_>) -> Target {
        let config = ctx.server.config.load();
        let name = &config.dbfilename.0;
        let temporary = format!(".{name}.{}.tmp", config.db_name.0);
        Target {
            path: config.dir.join(name),
            temporary: config.dir.join(temporary),
        }
    }
}

/// Makes the copy and moves it to its path; returns the number of writes that it contains.
fn write_copy(engine: &Engine, target: &Target) -> Result<u64, StorageError> {
    may_add_files(engine)?;
    may_replace(&target.path)?;
    remove_copy(&target.temporary)?;
    let had_copy = is_there(&target.path);
    let written = write_copy_beside(engine, target);
    // After an error the temporary copy is removed, because it keeps the space of its files,
    // unless it has become the only copy.
    if written.is_err() && (!had_copy || is_there(&target.path)) {
        // The first error is reported.
        let _ = remove_copy(&target.temporary);
    }
    written
}

/// Refuses a copy if the disk is nearly full: a copy keeps the space of what is deleted
/// after it.
fn may_add_files(engine: &Engine) -> Result<(), StorageError> {
    match engine.disk.is_low() {
        true => Err(StorageError::NoRoom),
        false => Ok(()),
    }
}

fn write_copy_beside(engine: &Engine, target: &Target) -> Result<u64, StorageError> {
    let writes = engine.writes();
    engine.checkpoint(&target.temporary)?;
    install(target)?;
    Ok(writes)
}

/// Removes a copy, if it exists.
fn remove_copy(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Whether the path exists; a dangling symbolic link counts.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Checks that what the new copy would replace is a copy, since it will be removed. It could
/// be another server's dump, or a database: a server that was started in a directory, maybe
/// this one, leaves its lock file there.
fn may_replace(place: &Path) -> io::Result<()> {
    let what = match () {
        () if !is_there(place) => return Ok(()),
        () if is_there(&place.join("LOCK")) => {
            "is a database that a server was started in, not a copy"
        }
        () if is_copy(place) => return Ok(()),
        () => "is no backup of this server",
    };
    let text = format!("{} {what}", place.display());
    Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
}

fn install(target: &Target) -> io::Result<()> {
    let (new, place) = (&target.temporary, &target.path);
    let had_copy = is_there(place);
    match had_copy {
        true => exchange(new, place)?,
        false => std::fs::rename(new, place)?,
    }
    // The new name is synced before the old copy is removed, so that a crash of the machine
    // leaves at least one of them.
    sync_dir_of(place)?;
    match had_copy {
        true => std::fs::remove_dir_all(new),
        false => Ok(()),
    }
}

/// Syncs the directory of a path, so that a new or exchanged name survives a crash of the
/// machine.
fn sync_dir_of(path: &Path) -> io::Result<()> {
    fail_point("before-dir-sync").map_err(io::Error::other)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Exchanges two directories atomically, where the file system can.
fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        // Otherwise three renames, each of which leaves a complete copy.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            let aside = a.with_extension("old");
            std::fs::rename(b, &aside)?;
            std::fs::rename(a, b)?;
            std::fs::rename(&aside, a)
        }
        Err(error) => Err(error.into()),
    }
}

fn finish(turn: Turn, done: Result<u64, StorageError>) -> Result<(), StorageError> {
    match done {
        Ok(writes) => {
            turn.end(Some(writes));
            log::info!("saved");
            Ok(())
        }
        Err(error) => {
            log::error!("save failed: {error}");
            turn.end(None);
            Err(error)
        }
    }
}

fn save(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let turn = ctx.server.saves.begin().ok_or(IN_PROGRESS)?;
    let done = write_copy(&ctx.server.engine, &Target::of(ctx));
    finish(turn, done)?;
    ctx.reply.ok();
    Ok(())
}

/// Name, inside `dir`, of the RDB file that BGSAVE RDB writes without one.
const RDB_NAME: &str = "export.rdb";

const BAD_NAME: Error =
    Error::text("ERR the name of the file must not name a directory or hold a zero byte");

/// Where BGSAVE RDB writes to: a file in `dir`.
fn rdb_target(ctx: &SessionCtx<'_>, name: &[u8]) -> Result<Target, Error> {
    let name = std::str::from_utf8(name).map_err(|_| BAD_NAME)?;
    let mut parts = Path::new(name).components();
    let plain = matches!(
        (parts.next(), parts.next()),
        (Some(std::path::Component::Normal(only)), None) if only == name
    );
    if !plain || name.contains('\0') {
        return Err(BAD_NAME);
    }
    let config = ctx.server.config.load();
    let path = config.dir.join(name);
    // Databases and checkpoints in `dir` are directories.
    if path.is_dir() {
        return Err(BAD_NAME);
    }
    let temporary = config.dir.join(format!(".{name}.{}.tmp", config.db_name.0));
    Ok(Target { path, temporary })
}

/// The auxiliary fields of an RDB file.
pub fn about(now_ms: UnixMs) -> [(&'static str, String); 4] {
    [
        ("redis-ver", REDIS_VERSION.to_owned()),
        ("kedis-ver", KEDIS_VERSION.to_owned()),
        ("redis-bits", "64".to_owned()),
        ("ctime", (now_ms.0 / 1000).to_string()),
    ]
}

/// The options for writing an RDB file, with the auxiliary fields of [`about`].
pub fn export_options<'a>(config: &Config, about: &'a [(&str, String)]) -> ExportOptions<'a> {
    ExportOptions {
        compress: config.rdbcompression,
        now_ms: clock::unix_ms(),
        about,
        functions: true,
        keys: true,
        member_times: true,
    }
}

/// A temporary file in `dir` without a name, which is gone when it is closed.
pub fn unnamed_file(config: &Config) -> io::Result<File> {
    let path = config
        .dir
        .join(format!(".{}.{}.tmp", config.db_name.0, fastrand::u64(..)));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Writes a snapshot of all keys to an RDB file, which replaces the previous one when it is
/// complete.
fn write_rdb(engine: &Engine, target: &Target, config: &Config) -> Result<u64, StorageError> {
    may_add_files(engine)?;
    let written = write_rdb_beside(engine, target, config);
    if written.is_err() {
        // The first error is reported.
        let _ = std::fs::remove_file(&target.temporary);
    }
    written
}

fn write_rdb_beside(
    engine: &Engine,
    target: &Target,
    config: &Config,
) -> Result<u64, StorageError> {
    let writes = engine.writes();
    let about = about(clock::unix_ms());
    let options = export_options(config, &about);
    let snapshot = engine.snapshot()?;
    let file = File::create(&target.temporary)?;
    let (file, exported) = export(&snapshot, file, options).map_err(|error| match error {
        OpError::Storage(error) => error,
        other => StorageError::Io(io::Error::other(other.to_string())),
    })?;
    file.sync_all()?;
    std::fs::rename(&target.temporary, &target.path)?;
    sync_dir_of(&target.path)?;
    log::info!(
        "{}: {} keys, {} bytes",
        target.path.display(),
        exported.keys,
        exported.bytes
    );
    Ok(writes)
}

fn bgsave_rdb(ctx: &mut SessionCtx<'_>, options: &mut Options<'_>) -> CmdResult {
    let name = match options.is_empty() {
        true => RDB_NAME.as_bytes(),
        false => options.value()?,
    };
    if !options.is_empty() {
        return Err(Error::Syntax);
    }
    let target = rdb_target(ctx, name)?;
    let config = ctx.server.config.load();
    let turn = ctx.server.saves.begin().ok_or(IN_PROGRESS)?;
    let engine = ctx.server.engine.clone();
    in_background("bgsave", move || {
        // The outcome is logged and kept for INFO.
        let _ = finish(turn, write_rdb(&engine, &target, &config));
    })?;
    ctx.reply.simple("Background saving started");
    Ok(())
}

fn bgsave(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 1);
    if options.word("RDB") {
        return bgsave_rdb(ctx, &mut options);
    }
    // SCHEDULE has no effect: no background task prevents a save from starting.
    let _ = options.word("SCHEDULE");
    if !options.is_empty() {
        return Err(Error::Syntax);
    }
    let turn = ctx.server.saves.begin().ok_or(IN_PROGRESS)?;
    let engine = ctx.server.engine.clone();
    let target = Target::of(ctx);
    in_background("bgsave", move || {
        // The outcome is logged and kept for INFO.
        let _ = finish(turn, write_copy(&engine, &target));
    })?;
    ctx.reply.simple("Background saving started");
    Ok(())
}

/// Clears the flag of the running compaction when dropped.
struct Compacting(Arc<std::sync::atomic::AtomicBool>);

impl Drop for Compacting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// There is no append-only file. A compaction serves the same purpose: it removes obsolete
/// data.
fn bgrewriteaof(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let running = ctx.server.compacting.clone();
    if running.swap(true, Ordering::AcqRel) {
        return Err(Error::text(
            "ERR Background append only file rewriting already in progress",
        ));
    }
    let running = Compacting(running);
    let engine = ctx.server.engine.clone();
    in_background("compact", move || {
        let _running = running;
        engine.compact();
    })?;
    ctx.reply
        .simple("Background append only file rewriting started");
    Ok(())
}

fn in_background(name: &str, work: impl FnOnce() + Send + 'static) -> CmdResult {
    let thread = std::thread::Builder::new().name(name.to_owned());
    match thread.spawn(work) {
        Ok(_) => Ok(()),
        Err(error) => {
            log::error!("cannot start the thread {name}: {error}");
            Err(Error::owned(format!("ERR cannot start a thread: {error}")))
        }
    }
}

fn lastsave(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.reply.int(ctx.server.saves.last_s() as i64);
    Ok(())
}

const SAVING: Flags = Flags::ADMIN
    .union(Flags::NOSCRIPT)
    .union(Flags::NO_ASYNC_LOADING)
    .union(Flags::SLOW);

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::session("bgrewriteaof", 1, bgrewriteaof)
        .flags(SAVING)
        .doc(
            Group::Server,
            "1.0.0",
            "Compacts the database in the background",
        ),
    Command::session("bgsave", -1, bgsave)
        .syntax("[what=(SCHEDULE@3.2.2|rdb=(RDB [file]))]")
        .complexity("O(F), F: the files of the DBs")
        .history(&[("3.2.2", "Added `SCHEDULE`")])
        .flags(SAVING)
        .doc(
            Group::Server,
            "1.0.0",
            "Copies the database in the background, with RDB as a file for Redis",
        ),
    Command::session("lastsave", 1, lastsave)
        .flags(Flags::FAST.union(Flags::LOADING).union(Flags::STALE))
        .categories(&["admin", "dangerous"])
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Server,
            "1.0.0",
            "Returns when the last copy of the database was made",
        ),
    Command::session("save", 1, save)
        .complexity("O(F), F: the files of the DBs")
        .flags(SAVING.union(Flags::NO_MULTI).union(Flags::ON_WORKER))
        .doc(Group::Server, "1.0.0", "Copies the database"),
];
