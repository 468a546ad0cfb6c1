//! Commands about the server as a whole: MONITOR, TIME, SHUTDOWN, LOLWUT.

use super::args::{self, Options};
use super::info::{KEDIS_VERSION, REDIS_VERSION};
use super::{CmdResult, Command, Error, Flags, ReadCtx, SessionCtx};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::state::Shutdown;
use crate::state::clients::ClientFlags;
use crate::state::session::ReplyMode;
use crate::sys::clock;

fn monitor(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    if ctx.session.deny_blocking {
        return Err(Error::text(
            "ERR MONITOR isn't allowed for DENY BLOCKING client",
        ));
    }
    if ctx.session.info.flags().contains(ClientFlags::MONITOR) {
        // Like Redis, no reply, so that no OK appears among the lines.
        return Ok(());
    }
    ctx.server.clients.set_monitor(&ctx.session.info, true);
    ctx.reply.ok();
    Ok(())
}

fn time(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let now_us = ctx.unit_time_us.unwrap_or_else(clock::unix_us);
    ctx.reply.array(2);
    ctx.reply.bulk_i64((now_us / 1_000_000) as i64);
    ctx.reply.bulk_i64((now_us % 1_000_000) as i64);
    Ok(())
}

fn shutdown(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 1);
    let (mut save, mut nosave, mut abort) = (false, false, false);
    let (mut now, mut force) = (false, false);
    while !options.is_empty() {
        if options.word("SAVE") {
            save = true;
        } else if options.word("NOSAVE") {
            nosave = true;
        } else if options.word("ABORT") {
            abort = true;
        } else if options.word("NOW") {
            now = true;
        } else if options.word("FORCE") {
            // FORCE has no effect: no error prevents a shutdown.
            force = true;
        } else {
            return Err(Error::Syntax);
        }
    }
    if (save && nosave) || (abort && (save || nosave || now || force)) {
        return Err(Error::Syntax);
    }
    if abort {
        return match ctx.server.abort_shutdown() {
            true => {
                ctx.reply.ok();
                Ok(())
            }
            false => Err(Error::text("ERR No shutdown in progress.")),
        };
    }
    log::info!("SHUTDOWN requested by a client");
    // No reply now: the connection is closed with the server, or gets a reply if the
    // shutdown is aborted.
    let wants_reply = matches!(ctx.session.reply_mode, ReplyMode::On);
    ctx.session.wait_for_answer(wants_reply);
    let how = Shutdown { save: !nosave, now };
    let asker = ctx.session.info.id;
    ctx.server.request_shutdown(how, Some(asker));
    Ok(())
}

/// Largest picture that LOLWUT draws, in characters.
const LOLWUT_MAX: i64 = 200;

fn lolwut(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 1);
    if options.word("VERSION") && !options.is_empty() {
        options.int()?;
    }
    let mut size = |default: i64| match options.peek() {
        Some(arg) => {
            options.value()?;
            Ok::<i64, Error>(args::int(arg)?.clamp(1, LOLWUT_MAX))
        }
        None => Ok(default),
    };
    let (width, height) = (size(64)?, size(12)?);
    let text = format!(
        "{}\nThe level {KEDIS_VERSION} of the tree. Redis ver. {REDIS_VERSION}\n",
        levels(width, height)
    );
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// A picture of an LSM tree: each row is a level, wider and fuller than the one above, with
/// random gaps.
fn levels(width: i64, height: i64) -> String {
    let mut picture = String::new();
    for level in 1..=height {
        let runs = width * level / height;
        let margin = (width - runs) / 2;
        picture.extend(std::iter::repeat_n(' ', margin as usize));
        for _ in 0..runs {
            let full = fastrand::i64(0..=height) < level;
            picture.push(if full { '#' } else { '.' });
        }
        picture.push('\n');
    }
    picture
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::read("lolwut", -1, lolwut)
        .syntax("[VERSION version:int]")
        .flags(Flags::FAST)
        .doc(Group::Server, "5.0.0", "Shows computer art and the version"),
    Command::session("monitor", 1, monitor)
        .flags(
            Flags::ADMIN
                .union(Flags::NOSCRIPT)
                .union(Flags::LOADING)
                .union(Flags::STALE),
        )
        .doc(
            Group::Server,
            "1.0.0",
            "Shows all commands that the server runs from now on",
        ),
    Command::session("shutdown", -1, shutdown)
        .syntax(
            "[abort-selector=(save-selector-block=([save-selector=(NOSAVE|SAVE)] \
             [NOW@7.0.0] [FORCE@7.0.0])|ABORT@7.0.0)]",
        )
        .history(&[("7.0.0", "Added `NOW`, `FORCE` and `ABORT`")])
        .flags(
            Flags::ADMIN
                .union(Flags::NOSCRIPT)
                .union(Flags::LOADING)
                .union(Flags::STALE)
                .union(Flags::NO_MULTI)
                .union(Flags::SENTINEL)
                .union(Flags::ALLOW_BUSY),
        )
        .doc(Group::Server, "1.0.0", "Stops the server"),
    Command::session("time", 1, time)
        .flags(Flags::FAST.union(Flags::LOADING).union(Flags::STALE))
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Server,
            "2.6.0",
            "Returns the time in Unix seconds and microseconds",
        ),
];
