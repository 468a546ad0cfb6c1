//! MSETEX: several strings with one expiry, under one condition on all of them.

use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, Ttl, WriteCtx};
use super::{Expiry, expire_ms, set_events, set_with_effect, string};
use crate::base::num;
use crate::commands::args::Options;
use crate::commands::table::migrated::Migrated;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;

fn msetex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let count = num::parse_i64(args[1])
        .and_then(|count| i32::try_from(count).ok())
        .and_then(|count| usize::try_from(count).ok())
        .filter(|count| *count > 0)
        .ok_or(Error::text("ERR invalid numkeys value"))?;
    let mut options = Options::new(args, 2);
    let data = options
        .values(count.saturating_mul(2))
        .map_err(|_| Error::text("ERR wrong number of key-value pairs"))?;
    let (mut ttl, mut nx, mut xx) = (Ttl::None, false, false);
    while !options.is_empty() {
        if options.word("NX") {
            nx = true;
        } else if options.word("XX") {
            xx = true;
        } else if !ttl.take(&mut options, "KEEPTTL")? {
            return Err(Error::Syntax);
        }
    }
    if nx && xx {
        return Err(Error::Syntax);
    }
    let expiry = match ttl {
        Ttl::None => Expiry::Clear,
        Ttl::Word => Expiry::Keep,
        Ttl::At(when, n) => Expiry::At(expire_ms(when, n, ctx.txn.now_ms(), "msetex")?),
    };
    if nx || xx {
        for (at, pair) in data.chunks_exact(2).enumerate() {
            ctx.txn.prefetch_from(ctx.db, data, 2, at);
            if string::head(ctx.txn, ctx.db, pair[0])?.is_some() == nx {
                ctx.reply.int(0);
                return Ok(());
            }
        }
    }
    for (at, pair) in data.chunks_exact(2).enumerate() {
        ctx.txn.prefetch_from(ctx.db, data, 2, at);
        let old = string::head(ctx.txn, ctx.db, pair[0])?;
        set_with_effect(ctx, pair[0], old.as_ref(), pair[1], expiry)?;
        set_events(ctx, pair[0], expiry);
    }
    ctx.reply.int(1);
    Ok(())
}

/// The rows of MSETEX.
pub const COMMANDS: &[Command] = &[Command::write("msetex", -4, msetex)
    .syntax(
        "numkeys:int data=(key value)... [condition=(NX|XX)] \
         [expiration=(EX seconds:int|PX milliseconds:int|EXAT unix-time-seconds:time|\
         PXAT unix-time-milliseconds:time|KEEPTTL)]",
    )
    .complexity("O(K), K: keys")
    .flags(Flags::DENYOOM)
    .keys(&[KeySpec::numpairs(1, KeyFlags::OW.union(KeyFlags::UPDATE))])
    .tips(&[Tip::RequestMultiShard, Tip::ResponseAllSucceeded])
    .migrated(Migrated::ExpiringPairs)
    .doc(
        Group::String,
        "8.4.0",
        "Sets several keys at once, with one expiry and one condition for all of them",
    )];

#[cfg(test)]
mod tests;
