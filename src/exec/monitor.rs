//! Lines for MONITOR clients.

use super::Executor;
use super::Stop;
use crate::commands::table::registry::Registered;
use crate::commands::table::secrets;
use crate::commands::{Command, Flags, Own};
use crate::resp::Reply;
use crate::state::clients::ClientFlags;
use crate::state::config::quote_always;
use crate::state::delivery::{Delivery, Form, Recipients};
use crate::state::{Server, Session};
use crate::sys::clock;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Executor {
    /// Shows a client's request, once even if the request is run again.
    pub(super) fn show_request(&mut self, session: &Session, command: &Command, args: &[&[u8]]) {
        if self.request.retry.shown {
            return;
        }
        self.show(session, command, args);
        if self.thread.worker.is_some() {
            // The request may run without end, or be run again.
            self.request.retry.shown = true;
            self.tick.record.flush(&self.server);
        }
    }

    /// Runs a command of a unit and shows it.
    pub(super) fn call_shown(
        &mut self,
        session: &mut Session,
        found: &'static Registered,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        let late = is_shown_late(found.command);
        if !late {
            self.feed_monitors(session, found.command, args);
        }
        let done = self.call(session, found, args, reply);
        if late {
            self.feed_monitors(session, found.command, args);
        }
        done
    }

    /// Shows a command unless its flags exclude it from MONITOR.
    pub(super) fn feed_monitors(&mut self, session: &Session, command: &Command, args: &[&[u8]]) {
        if is_shown(command) {
            self.show(session, command, args);
        }
    }

    /// Shows a command, if there are MONITOR clients.
    pub(super) fn show(&mut self, session: &Session, command: &Command, args: &[&[u8]]) {
        if self.server.clients.monitors() > 0 {
            let line = line(session, command, args);
            self.tick
                .record
                .line(&self.server, line, self.thread.worker.is_some());
        }
    }
}

/// Whether MONITOR shows the command.
pub(super) fn is_shown(command: &Command) -> bool {
    !command.flags.intersects(Flags::SKIP_MONITOR | Flags::ADMIN)
}

/// Whether MONITOR shows the command when it is done: the commands of EXEC come before EXEC
/// itself, and SELECT and RESET are shown with the DB that they chose.
pub(super) fn is_shown_late(command: &Command) -> bool {
    command.is_own(Own::Exec) || matches!(command.name, "select" | "reset")
}

fn line(session: &Session, command: &Command, args: &[&[u8]]) -> Arc<[u8]> {
    let now_us = clock::unix_us();
    let info = &session.info;
    let addr = match info.flags().contains(ClientFlags::UNIX_SOCKET) {
        _ if session.is_script => "lua".to_owned(),
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
    for arg in secrets::visible(command.secret, args) {
        line.push(b' ');
        line.extend(quote_always(arg));
    }
    line.extend_from_slice(b"\r\n");
    line.into()
}

/// Sends lines to all MONITOR clients.
pub(super) fn deliver(server: &Server, lines: &[Arc<[u8]>]) {
    let mut batches = vec![Vec::new(); server.mailboxes().len()];
    for client in server.clients.all() {
        let watches = client.flags().contains(ClientFlags::MONITOR);
        if watches
            && !client.kill.load(Ordering::Acquire)
            && let Some(batch) = batches.get_mut(client.thread)
        {
            batch.extend(lines.iter().map(|line| Delivery {
                to: Recipients::One(client.id),
                bytes: line.clone(),
                form: Form::Plain,
            }));
        }
    }
    for (thread, batch) in batches.into_iter().enumerate() {
        server.deliver(thread, batch, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::testing::Client;
    use crate::state::mailbox::Mailbox;
    use crate::state::{ClientId, ClientInfo, Message};

    fn watcher(server: &Server) -> Arc<ClientInfo> {
        let id: ClientId = server.clients.new_id();
        let info = ClientInfo::new(
            id,
            "127.0.0.1:3".into(),
            "127.0.0.1:2".into(),
            -1,
            0,
            crate::base::time::UnixMs::NONE,
            ClientFlags::empty(),
        );
        let info = Arc::new(info);
        server.clients.add(info.clone());
        server.clients.set_monitor(&info, true);
        info
    }

    /// The lines that a MONITOR client gets, without the time.
    fn shown(run: impl FnOnce(&mut Client)) -> Vec<String> {
        let mut client = Client::new();
        let server = client.server();
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let (mailbox, _receiver) = Mailbox::new(waker.clone());
        server.set_threads(vec![mailbox], waker);
        watcher(&server);
        run(&mut client);
        let deliveries = server.mailboxes()[0].deliveries.take(usize::MAX);
        let lines = deliveries.iter().map(|delivery| {
            let line = String::from_utf8_lossy(&delivery.bytes).into_owned();
            line.split_once(' ').unwrap().1.trim_end().to_owned()
        });
        lines.collect()
    }

    #[test]
    fn what_chooses_a_db_is_shown_with_it() {
        let lines = shown(|client| {
            for line in [
                "select 1",
                "select 99",
                "multi",
                "select 2",
                "ping",
                "exec",
                "reset",
            ] {
                client.run(line);
            }
            let script = b"redis.call('select', 4) redis.call('ping')";
            client.args(&[b"eval", script, b"0"]);
        });
        assert_eq!(
            lines,
            [
                "[1 127.0.0.1:1] \"select\" \"1\"",
                "[1 127.0.0.1:1] \"select\" \"99\"",
                "[1 127.0.0.1:1] \"multi\"",
                "[2 127.0.0.1:1] \"select\" \"2\"",
                "[2 127.0.0.1:1] \"ping\"",
                "[2 127.0.0.1:1] \"exec\"",
                "[0 127.0.0.1:1] \"reset\"",
                "[0 127.0.0.1:1] \"eval\" \"redis.call('select', 4) redis.call('ping')\" \"0\"",
                "[4 lua] \"select\" \"4\"",
                "[4 lua] \"ping\"",
            ]
        );
    }

    #[test]
    fn what_waits_for_a_busy_thread_is_bounded() {
        let mut client = Client::new();
        let server = client.server();
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let (mailbox, receiver) = Mailbox::new(waker.clone());
        server.set_threads(vec![mailbox], waker);
        let deliveries = server.mailboxes()[0].deliveries.clone();
        let limits = &server.config.load().client_output_buffer_limit;
        let limit = limits.pubsub.hard_bytes as usize;
        let info = watcher(&server);
        let value = vec![b'v'; 1 << 20];
        let set = |client: &mut Client| client.args(&[b"SET", b"k", &value]);
        let lines = limit / value.len() - 1;
        for _ in 0..lines {
            set(&mut client);
        }
        assert!(!info.kill.load(Ordering::Acquire));
        assert_eq!(deliveries.take(usize::MAX).len(), lines);
        for _ in 0..lines + 8 {
            set(&mut client);
        }
        assert!(info.kill.load(Ordering::Acquire));
        assert_eq!(server.stats.output_limit_disconnections.get(), 1);
        assert!(matches!(receiver.try_recv(), Ok(Message::Kill(id)) if id == info.id));
        assert!(deliveries.take(usize::MAX).len() <= 8);
    }
}
