//! SAVE, BGSAVE and BGREWRITEAOF.
//!
//! The data is always on disk; a save makes a copy of it that stays as it is: a
//! checkpoint, a directory called `dbfilename` under `dir`, in which a server
//! can be started. It replaces the one before in one step. Its files are shared
//! with the live database until compactions replace them there.

use super::args::Options;
use super::spec::Group;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::state::saves::Turn;
use crate::storage::{Engine, StorageError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const IN_PROGRESS: Error = Error::text("ERR Background save already in progress");

/// Where a save goes.
struct Target {
    /// The copy's place.
    path: PathBuf,
    /// Where it is made, beside it.
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

/// Makes the copy and puts it in its place; returns how many writes it holds.
fn write_copy(engine: &Engine, target: &Target) -> Result<u64, StorageError> {
    if target.temporary.exists() {
        std::fs::remove_dir_all(&target.temporary)?;
    }
    let writes = engine.writes();
    engine.checkpoint(&target.temporary)?;
    install(target)?;
    Ok(writes)
}

fn install(target: &Target) -> io::Result<()> {
    let (new, place) = (&target.temporary, &target.path);
    if !place.exists() {
        return std::fs::rename(new, place);
    }
    // Something else of that name, such as another server's dump, is not ours to remove.
    if !place.join("CURRENT").exists() {
        let _ = std::fs::remove_dir_all(new);
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} is no backup of this server", place.display()),
        ));
    }
    exchange(new, place)?;
    std::fs::remove_dir_all(new)
}

/// Exchanges two directories: at every moment both names are there.
fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        // A file system that cannot: three steps, each of which leaves a whole copy.
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
            log::error!("a save failed: {error}");
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

fn bgsave(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 1);
    // Nothing that runs in the background keeps a save from starting at once.
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

/// Ends a compaction's time as the running one, however it ends.
struct Compacting(Arc<std::sync::atomic::AtomicBool>);

impl Drop for Compacting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// There is no append-only file; what rewriting it is for, getting rid of what
/// is out of date, a compaction does.
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

/// The table.
pub const COMMANDS: &[Command] = &[
    Command::session("bgrewriteaof", 1, bgrewriteaof)
        .flags(SAVING)
        .doc(
            Group::Server,
            "1.0.0",
            "Compacts the database in the background",
        ),
    Command::session("bgsave", -1, bgsave).flags(SAVING).doc(
        Group::Server,
        "1.0.0",
        "Makes a copy of the database in the background",
    ),
    Command::session("lastsave", 1, lastsave)
        .flags(Flags::FAST.union(Flags::LOADING).union(Flags::STALE))
        .categories(&["admin", "dangerous"])
        .doc(
            Group::Server,
            "1.0.0",
            "Returns when the last copy of the database was made",
        ),
    Command::session("save", 1, save)
        .flags(SAVING.union(Flags::NO_MULTI))
        .doc(Group::Server, "1.0.0", "Makes a copy of the database"),
];
