//! What is counted and logged of a command that has run.

use super::super::Executor;
use super::super::record::{Hot, Slow};
use crate::commands::Flags;
use crate::commands::Own;
use crate::commands::acl::audit;
use crate::commands::table::registry::Registered;
use crate::commands::table::secrets;
use crate::state::Session;
use crate::state::acl::Context;
use crate::state::commandlog::{Bounds, Entry, LogKind, shorten};
use crate::state::hotkeys::Taken;
use crate::state::slot_stats::Figures;
use crate::sys::clock;

impl Executor {
    /// Counts a command, and logs it if it took long or was long. `reply_bytes`: the length of
    /// its reply.
    pub(in crate::exec) fn count(
        &mut self,
        session: &Session,
        found: &Registered,
        args: &[&[u8]],
        failed: bool,
        reply_bytes: usize,
    ) {
        let now_us = clock::mono_us();
        let usec = now_us.saturating_sub(self.tick.last_us);
        self.tick.last_us = now_us;
        match self.in_unit() {
            true => {
                self.tick.commands_in_unit += 1;
                self.tick
                    .record
                    .call(&self.server, found.index, usec, failed);
            }
            false => self.server.stats.ran(found.index, usec, failed),
        }
        let (ms, threshold_ms) = (usec / 1000, self.thread.config.latency_monitor_threshold_ms);
        if threshold_ms > 0 && ms >= threshold_ms {
            let class = match found.command.flags.contains(Flags::FAST) {
                true => "fast-command",
                false => "command",
            };
            self.note_slow(Slow::Latency(class, ms, self.tick.now_ms.0 / 1000));
        }
        let request_bytes = length_of(args);
        if !found.command.flags.contains(Flags::SKIP_SLOWLOG) {
            let values = [usec, request_bytes as u64, reply_bytes as u64];
            self.log_command(session, found, args, values);
        }
        if !failed && found.command.is_administrative() && self.server.audit.is_on() {
            self.audit(session, found, args);
        }
        if self.thread.config.cluster_slot_stats_enabled && !session.is_script {
            self.note_slot(
                session,
                found,
                args,
                [usec, request_bytes as u64, reply_bytes as u64],
            );
        }
        if self.server.hotkeys.is_active() && !session.is_script {
            self.note_hot(found, args, usec, (request_bytes + reply_bytes) as u64);
        }
    }

    /// Notes what a command on a slot has taken. What EXEC takes besides its commands, and its MULTI,
    /// belong to the slot of these; what the commands of a script take, the script has taken.
    fn note_slot(&self, session: &Session, found: &Registered, args: &[&[u8]], taken: Figures) {
        const MULTI_BYTES: u64 = 15;
        let [usec, bytes, reply_bytes] = taken;
        let (slot, bytes) = match found.command.is_own(Own::Exec) {
            true => (session.slot.get(), bytes + MULTI_BYTES),
            false => (found.command.slots(args).one(), bytes),
        };
        // The reply of a transaction is that of EXEC.
        let reply_bytes = if self.in_unit() { 0 } else { reply_bytes };
        if let Some(slot) = slot.filter(|_| self.thread.config.cluster_enabled) {
            self.server
                .slot_stats
                .note(slot, [usec, bytes, reply_bytes]);
        }
    }

    /// Logs a command in those of the logs whose limits its values reach; they are in the order
    /// of [`LogKind::ALL`].
    fn log_command(
        &mut self,
        session: &Session,
        found: &Registered,
        args: &[&[u8]],
        values: [u64; LogKind::ALL.len()],
    ) {
        for (kind, value) in LogKind::ALL.into_iter().zip(values) {
            let (limit, max_len) = self.thread.config.command_log(kind);
            let reached = u64::try_from(limit).is_ok_and(|limit| value >= limit);
            if !reached || max_len == 0 {
                continue;
            }
            let config = &self.thread.config;
            let bounds = Bounds {
                args: config.slowlog_entry_max_argc as usize,
                arg_bytes: config.slowlog_entry_max_string_len as usize,
            };
            let shown = shorten(&secrets::visible(found.command.secret, args), bounds);
            let (at_s, info) = (self.tick.now_ms.0 / 1000, &session.info);
            let entry = Entry::new(shown, value, at_s, &info.addr, &info.names.lock().name);
            self.note_slow(Slow::Log {
                kind,
                index: found.index,
                entry,
                max_len: max_len as usize,
            });
        }
    }

    /// Records an administrative command that has run.
    #[cold]
    fn audit(&mut self, session: &Session, found: &Registered, args: &[&[u8]]) {
        let context = match self.in_unit() {
            _ if session.is_script => Context::Lua,
            true => Context::Multi,
            false => Context::TopLevel,
        };
        if let Some(line) = audit::done(
            &self.server,
            session,
            &found.full_name,
            (found.command, args),
            context,
        ) {
            self.tick.record.audited(&self.server, line);
            if !self.in_unit() {
                self.tick.record.count(&self.server);
            }
        }
    }

    fn note_hot(&mut self, found: &Registered, args: &[&[u8]], usec: u64, bytes: u64) {
        if found.command.keys.is_empty() {
            return;
        }
        let taken = Taken { us: usec, bytes };
        let hotkeys = &self.server.hotkeys;
        let drawn = hotkeys.draws(&mut self.thread.hot_draw);
        let is_looked_at = drawn || hotkeys.needs_all();
        if !is_looked_at && found.command.always_has_keys() {
            self.note_undrawn(taken);
            return;
        }
        let indices = found.command.key_indices(args).unwrap_or_default();
        if !is_looked_at {
            if !indices.is_empty() {
                self.note_undrawn(taken);
            }
            return;
        }
        let keys = indices.iter().map(|&index| args[index]);
        match self.in_unit() {
            true => {
                let hot = Hot {
                    keys: keys.map(Box::from).collect(),
                    taken,
                    drawn,
                    now_ms: self.tick.now_ms,
                };
                self.tick.record.hot(&self.server, hot);
            }
            false => {
                let now_ms = self.tick.now_ms;
                self.server.hotkeys.note(keys, taken, drawn, now_ms);
            }
        }
    }

    fn note_undrawn(&mut self, taken: Taken) {
        match self.in_unit() {
            true => self.tick.record.undrawn(taken, self.tick.now_ms),
            false => self.tick.undrawn.add(taken),
        }
    }

    fn note_slow(&mut self, slow: Slow) {
        self.tick.record.slow(&self.server, slow);
        if !self.in_unit() {
            self.tick.record.count(&self.server);
        }
    }
}

/// The length of a request in the form in which clients send it.
fn length_of(args: &[&[u8]]) -> usize {
    // `$`, the number and two line ends; `*`, the number and a line end.
    let words: usize = args
        .iter()
        .map(|arg| arg.len() + digits(arg.len()) + 5)
        .sum();
    words + digits(args.len()) + 3
}

fn digits(n: usize) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Outcome;
    use crate::exec::testing::Client;
    use crate::resp::Reply;

    /// Commands that were not drawn counted once more when their transaction ran again.
    #[test]
    fn hotkeys_count_nothing_of_what_is_taken_back() {
        let mut client = Client::new();
        for n in 0..80 {
            client.run(&format!("RPUSH list {n}"));
        }
        let server = client.server();
        for sample in ["1", "1000000"] {
            client.run(&format!("HOTKEYS START METRICS 1 NET SAMPLE {sample}"));
            for line in ["MULTI", "GET k", "LRANGE list 0 -1", "LRANGE list 0 -1"] {
                client.run(line);
            }
            let bytes = || server.hotkeys.findings(clock::unix_ms()).unwrap().all.bytes;
            let before = bytes();
            let mut executor = Executor::of_thread(server.clone(), 0);
            executor.start_tick();
            let outcome = executor.run(client.parts().1, &[b"EXEC"], &mut Reply::new(false));
            executor.finish_tick().unwrap();
            assert_eq!((outcome, bytes()), (Outcome::Slow, before), "{sample}");
            client.run("EXEC");
            assert!(bytes() > before, "{sample}");
            client.run("HOTKEYS STOP");
            client.run("HOTKEYS RESET");
        }
    }

    #[test]
    fn a_request_is_as_long_as_it_is_sent() {
        let set: [&[u8]; 3] = [b"SET", b"k", &[b'x'; 100]];
        let sent = format!(
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\n{}\r\n",
            "x".repeat(100)
        );
        assert_eq!(length_of(&set), sent.len());
        assert_eq!(length_of(&[b""]), "*1\r\n$0\r\n\r\n".len());
    }
}
