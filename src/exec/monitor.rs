//! What MONITOR clients see.

use crate::base::clock;
use crate::commands::{Command, Flags, secrets};
use crate::state::clients::ClientFlags;
use crate::state::{Message, Server, Session};
use std::sync::Arc;

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
            server.post(client.id, Message::Write(client.id, line.clone()));
        }
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
