//! CLIENT KILL.

use super::super::{CmdResult, Error, SessionCtx};
use super::filter::{Filter, For};
use crate::state::{ClientInfo, Message};

/// Closes a client; the calling one when its reply is sent.
pub(in crate::commands) fn close(ctx: &mut SessionCtx<'_>, client: &ClientInfo) {
    if client.id == ctx.session.info.id {
        ctx.session.close_after_reply = true;
    } else {
        ctx.server.post(client.id, Message::Kill(client.id));
    }
    // Its thread closes it a little later; CLIENT LIST must not show it from now on.
    ctx.server.clients.remove(client.id);
}

pub(super) fn kill(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    // The old form, `CLIENT KILL ip:port`, does not skip the caller.
    let old_form = args.len() == 3;
    let filter = match old_form {
        true => Filter::by_address(args[2]),
        false => Filter::parse(ctx, args, For::Kill)?,
    };
    let mut clients = filter.clients(ctx);
    // Numbers may be given twice.
    clients.sort_by_key(|client| client.id);
    clients.dedup_by_key(|client| client.id);
    for client in &clients {
        close(ctx, client);
    }
    match (old_form, clients.len()) {
        (false, killed) => ctx.reply.int(killed as i64),
        (true, 0) => return Err(Error::text("ERR No such client")),
        (true, _) => ctx.reply.ok(),
    }
    Ok(())
}
