//! CLIENT LIST and CLIENT INFO: one line about each connection.

use super::super::args::{self, Options};
use super::super::{CmdResult, Error, SessionCtx};
use super::Class;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::commands::registry;
use crate::state::ClientId;
use crate::state::clients::ClientFlags;
use crate::state::{ClientInfo, Server};
use crate::sys::clock;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) fn info(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let mut text = String::new();
    let names = command_names();
    line(&mut text, &ctx.session.info, &names, clock::unix_ms());
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

pub(super) fn list(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let clients = selected(ctx.server, args)?;
    let names = command_names();
    let now_ms = clock::unix_ms();
    let mut text = String::new();
    for client in clients {
        line(&mut text, &client, &names, now_ms);
    }
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn selected(server: &Server, args: &[&[u8]]) -> Result<Vec<Arc<ClientInfo>>, Error> {
    let mut options = Options::new(args, 2);
    if options.is_empty() {
        return Ok(server.clients.all());
    }
    if args.len() == 4 && options.word("TYPE") {
        let class = Class::parse(options.value()?)?;
        let mut clients = server.clients.all();
        clients.retain(|client| Class::of(client) == class);
        return Ok(clients);
    }
    let by_id = args.get(2).is_some_and(|word| args::is(word, "ID"));
    if !by_id || args.len() < 4 {
        return Err(Error::Syntax);
    }
    options.value()?;
    let mut clients = Vec::new();
    while let Some(id) = options.peek() {
        options.value()?;
        let id = num::parse_i64(id).ok_or(Error::text("ERR Invalid client ID"))?;
        // No client has a negative number.
        if let Ok(id) = u64::try_from(id) {
            clients.extend(server.clients.get(ClientId(id)));
        }
    }
    Ok(clients)
}

fn command_names() -> Vec<&'static str> {
    registry().names()
}

/// Letters of the flags, in the order of Redis.
const FLAG_LETTERS: [(ClientFlags, char); 12] = [
    (ClientFlags::REPLICA, 'S'),
    (ClientFlags::MASTER, 'M'),
    (ClientFlags::MONITOR, 'O'),
    (ClientFlags::PUBSUB, 'P'),
    (ClientFlags::MULTI, 'x'),
    (ClientFlags::BLOCKED, 'b'),
    (ClientFlags::TRACKING, 't'),
    (ClientFlags::TRACKING_BROKEN, 'R'),
    (ClientFlags::TRACKING_BCAST, 'B'),
    (ClientFlags::CLOSE_AFTER_REPLY, 'c'),
    (ClientFlags::UNIX_SOCKET, 'U'),
    (ClientFlags::NO_EVICT, 'e'),
];

fn flag_letters(client: &ClientInfo) -> String {
    let flags = client.flags();
    let letters = FLAG_LETTERS.iter().chain(&[(ClientFlags::NO_TOUCH, 'T')]);
    let mut text: String = letters
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, letter)| letter)
        .collect();
    if text.is_empty() {
        text.push('N');
    }
    text
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

/// Appends the line about one client.
fn line(out: &mut String, client: &ClientInfo, commands: &[&str], now_ms: UnixMs) {
    let names = client.names.lock().clone();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
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
        "id={} addr={} laddr={} fd={} name={} age={age_s} idle={idle_s} flags={} db={} \
         sub={sub} psub={psub} ssub={ssub} multi={multi} watch={watched} qbuf={query} qbuf-free={query_free} argv-mem={args} \
         multi-mem={multi_memory} rbs={rbs} rbp={rbp} obl={obl} oll={oll} omem={omem} tot-mem={total} \
         events={events} cmd={command} user={} redir={redirect} resp={} ",
        client.id.0,
        client.addr,
        client.laddr,
        client.fd.load(Ordering::Relaxed),
        text(&names.name),
        flag_letters(client),
        client.db.load(Ordering::Relaxed),
        names.user,
        client.resp.load(Ordering::Relaxed),
    );
    let (library, version) = (text(&names.lib_name), text(&names.lib_ver));
    let _ = writeln!(out, "lib-name={library} lib-ver={version}");
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
