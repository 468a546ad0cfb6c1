//! CLIENT LIST and CLIENT INFO: one line about each connection.

use super::super::{CmdResult, Error, SessionCtx};
use super::filter::{Filter, For};
use super::flags::flag_letters;
use crate::base::time::UnixMs;
use crate::commands::registry;
use crate::state::ClientInfo;
use crate::state::clients::ClientFlags;
use crate::state::commandlog::KEPT_NAME_BYTES;
use crate::sys::clock;
use std::fmt::Write;
use std::sync::atomic::Ordering;

pub(super) fn info(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let mut text = String::new();
    let names = command_names();
    line(
        &mut text,
        &ctx.session.info,
        &names,
        clock::unix_ms(),
        usize::MAX,
    );
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

pub(super) fn list(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let clients = match args.len() {
        2 => ctx.server.clients.all(),
        3 => return Err(Error::Syntax),
        _ => Filter::parse(ctx, args, For::List)?.clients(ctx),
    };
    let names = command_names();
    let now_ms = clock::unix_ms();
    let mut text = String::new();
    for client in clients {
        line(&mut text, &client, &names, now_ms, usize::MAX);
    }
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The line of CLIENT INFO about a client, without the line break. It is kept: of names, which
/// clients choose, it has [`KEPT_NAME_BYTES`] each.
pub(in crate::commands) fn describe(client: &ClientInfo) -> String {
    let mut text = String::new();
    let now_ms = clock::unix_ms();
    line(&mut text, client, &command_names(), now_ms, KEPT_NAME_BYTES);
    text.truncate(text.trim_end_matches('\n').len());
    text
}

fn command_names() -> Vec<&'static str> {
    registry().names()
}

/// The pending output of a client in the terms of Redis: a fixed buffer per client, and a
/// list of replies for the rest. Kedis has one buffer, but monitoring tools read `omem`,
/// to which `client-output-buffer-limit` applies.
#[derive(Debug, PartialEq, Eq)]
struct Output {
    /// Size of the buffer, in bytes.
    rbs: usize,
    /// Recent peak of its use, in bytes.
    rbp: usize,
    /// Bytes in it now.
    obl: usize,
    /// Entries of the list.
    oll: usize,
    /// Memory of the list, in bytes.
    omem: usize,
}

/// Size of the buffer that Redis gives each client, and of an entry of its list.
const CLIENT_BUFFER: usize = 16 << 10;

impl Output {
    /// `waiting` bytes in a buffer with room for `capacity`.
    fn new(waiting: usize, capacity: usize) -> Output {
        let own = waiting.min(CLIENT_BUFFER);
        let listed = waiting - own;
        let memory = waiting.max(capacity).saturating_sub(CLIENT_BUFFER);
        Output {
            rbs: capacity.min(CLIENT_BUFFER),
            rbp: own,
            obl: own,
            oll: listed.div_ceil(CLIENT_BUFFER),
            omem: if listed > 0 { memory } else { 0 },
        }
    }
}

/// Appends the line about one client, with at most so many bytes of each name.
fn line(
    out: &mut String,
    client: &ClientInfo,
    commands: &[&str],
    now_ms: UnixMs,
    name_bytes: usize,
) {
    let [name, user, library, version] = {
        let names = client.names.lock();
        let user = names.user.as_ref();
        [
            names.name.as_slice(),
            user.map_or(b"(superuser)", |user| user.name()),
            &names.lib_name,
            &names.lib_ver,
        ]
        .map(|bytes| {
            let shown = bytes.get(..name_bytes).unwrap_or(bytes);
            String::from_utf8_lossy(shown).into_owned()
        })
    };
    let load = |n: &std::sync::atomic::AtomicUsize| n.load(Ordering::Relaxed);
    let age_s = now_ms.since(client.created_ms) / 1000;
    let idle_s = now_ms.since(client.active_ms.load(Ordering::Relaxed)) / 1000;
    let last_command = client.last_command.load(Ordering::Relaxed) as usize;
    let command = commands.get(last_command).copied().unwrap_or("NULL");
    let query = load(&client.query_bytes);
    let query_free = load(&client.query_capacity).saturating_sub(query);
    let args = load(&client.argv_bytes);
    let output = load(&client.output_bytes);
    let Output {
        rbs,
        rbp,
        obl,
        oll,
        omem,
    } = Output::new(output, load(&client.output_capacity));
    let multi = client.multi_commands.load(Ordering::Relaxed);
    let (multi_memory, watched) = (load(&client.multi_bytes), load(&client.watched_keys));
    let total = client.memory_bytes();
    let [sub, psub, ssub] = [0, 1, 2].map(|i| client.subscriptions[i].load(Ordering::Relaxed));
    let events = if output > 0 { "rw" } else { "r" };
    let redirect = match client.flags().contains(ClientFlags::TRACKING) {
        true => client.redirect.load(Ordering::Relaxed) as i64,
        false => -1,
    };
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "id={} addr={} laddr={} fd={} name={name} age={age_s} idle={idle_s} flags={} db={} \
         sub={sub} psub={psub} ssub={ssub} multi={multi} watch={watched} qbuf={query} qbuf-free={query_free} argv-mem={args} \
         multi-mem={multi_memory} rbs={rbs} rbp={rbp} obl={obl} oll={oll} omem={omem} tot-mem={total} \
         events={events} cmd={command} user={user} redir={redirect} resp={} ",
        client.id.0,
        client.addr,
        client.laddr,
        client.fd.load(Ordering::Relaxed),
        flag_letters(client),
        client.db.load(Ordering::Relaxed),
        client.resp.load(Ordering::Relaxed),
    );
    let count = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    let capa = match client.flags().contains(ClientFlags::TAKES_REDIRECT) {
        true => "r",
        false => "",
    };
    // Valkey has `capa` behind `flags`; scripts that were written for Redis match the fields
    // up to `io-thread` in their order.
    let _ = writeln!(
        out,
        "lib-name={library} lib-ver={version} io-thread={} tot-net-in={} tot-net-out={} \
         tot-cmds={} capa={capa}",
        client.thread,
        count(&client.net_in_bytes),
        count(&client.net_out_bytes),
        count(&client.commands),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_beyond_a_buffer_is_a_list() {
        let output = |waiting, capacity| {
            let o = Output::new(waiting, capacity);
            (o.rbs, o.rbp, o.obl, o.oll, o.omem)
        };
        assert_eq!(output(0, 0), (0, 0, 0, 0, 0));
        assert_eq!(output(100, 4096), (4096, 100, 100, 0, 0));
        // Free capacity that a longer reply has left behind is not pending output.
        assert_eq!(output(100, 65536), (16384, 100, 100, 0, 0));
        assert_eq!(output(16384, 16384), (16384, 16384, 16384, 0, 0));
        assert_eq!(output(16385, 16385), (16384, 16384, 16384, 1, 1));
        assert_eq!(output(49152, 65536), (16384, 16384, 16384, 2, 49152));
    }
}
