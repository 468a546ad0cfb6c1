//! What MONITOR clients see.

use crate::base::clock;
use crate::commands::{Command, Flags, secrets};
use crate::state::clients::ClientFlags;
use crate::state::{ClientInfo, Message, Server, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sends one command to all MONITOR clients.
pub fn feed(server: &Server, session: &Session, command: &Command, args: &[&[u8]]) {
    if command.flags.intersects(Flags::SKIP_MONITOR | Flags::ADMIN) {
        return;
    }
    let now_us = clock::unix_us();
    let info = &session.info;
    let addr = match info.flags().contains(ClientFlags::UNIX_SOCKET) {
        true => format!("unix:{}", info.laddr.trim_end_matches(":0")),
        false => info.addr.clone(),
    };
    let mut line = format!(
        "+{}.{:06} [{} {addr}]",
        now_us / 1_000_000,
        now_us % 1_000_000,
        session.db().0
    )
    .into_bytes();
    for arg in secrets::visible(command, args) {
        line.push(b' ');
        quote(&mut line, arg);
    }
    line.extend_from_slice(b"\r\n");
    let line: Arc<[u8]> = line.into();
    for client in server.clients.all() {
        if client.flags().contains(ClientFlags::MONITOR) {
            send(server, &client, &line);
        }
    }
}

/// Queues a line for a client. Its thread looks at the client's output only
/// when it empties its mailbox, so what waits in there is bounded here: a
/// client with too much of it goes.
fn send(server: &Server, client: &ClientInfo, line: &Arc<[u8]>) {
    if client.kill.load(Ordering::Acquire) {
        return;
    }
    let limits = &server.config.load().client_output_buffer_limit;
    let limit = limits.pubsub.hard_bytes;
    let before = client.mailbox_bytes.fetch_add(line.len(), Ordering::AcqRel);
    let queued = before.saturating_add(line.len()) as u64;
    if limit > 0 && queued > limit {
        client.mailbox_bytes.fetch_sub(line.len(), Ordering::AcqRel);
        if !client.kill.swap(true, Ordering::AcqRel) {
            log::warn!("client {}: too slow for what it asked to see", client.id.0);
            server.stats.output_limit_disconnections.add(1);
            server.post(client.id, Message::Kill(client.id));
        }
    } else if !server.post(client.id, Message::Write(client.id, line.clone())) {
        client.mailbox_bytes.fetch_sub(line.len(), Ordering::AcqRel);
    }
}

fn quote(out: &mut Vec<u8>, arg: &[u8]) {
    out.push(b'"');
    for &byte in arg {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x20..=0x7E => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::testing::Client;
    use crate::state::ClientId;
    use crate::state::mailbox::Mailbox;

    fn watcher(server: &Server) -> Arc<ClientInfo> {
        let id: ClientId = server.clients.new_id();
        let info = ClientInfo::new(
            id,
            "127.0.0.1:3".into(),
            "127.0.0.1:2".into(),
            -1,
            0,
            0,
            ClientFlags::empty(),
        );
        let info = Arc::new(info);
        server.clients.add(info.clone());
        server.clients.set_monitor(&info, true);
        info
    }

    #[test]
    fn what_waits_for_a_busy_thread_is_bounded() {
        let mut client = Client::new();
        let server = client.server();
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let (mailbox, receiver) = Mailbox::new(waker.clone());
        server.set_threads(vec![mailbox], waker);
        let limits = &server.config.load().client_output_buffer_limit;
        let limit = limits.pubsub.hard_bytes as usize;
        let info = watcher(&server);
        let value = vec![b'v'; 1 << 20];
        let lines = limit / value.len() + 8;
        for _ in 0..lines {
            client.args(&[b"SET", b"k", &value]);
        }
        assert!(info.kill.load(Ordering::Acquire));
        let messages: Vec<Message> = receiver.try_iter().collect();
        let bytes = |m: &Message| match m {
            Message::Write(_, line) => line.len(),
            _ => 0,
        };
        let queued: usize = messages.iter().map(bytes).sum();
        assert!(queued > limit / 2 && queued <= limit, "{queued} bytes");
        assert_eq!(info.mailbox_bytes.load(Ordering::Acquire), queued);
        assert!(matches!(messages.last(), Some(Message::Kill(id)) if *id == info.id));
        assert_eq!(server.stats.output_limit_disconnections.get(), 1);
    }
}
