//! Connections whose next request waits: for the end of a pause, for rows that are read from the
//! disk, for memory, for space; and what of the thread's time those get that need the disk.

use super::{IoThread, PAUSE_CHECK, ROOM_CHECK, SPACE_CHECK};
use crate::state::mailbox::FinishedRead;
use crate::sys::clock;
use mio::Token;
use std::time::Instant;

/// Requests that need rows from the disk get the time of the others divided by this.
const COLD_PART: i64 = 3;
/// Microseconds that they get while there are no others.
const COLD_ALONE_US: i64 = 500;
/// Shortest time in ms between two tries of a waiting client's command.
const RETRY_PAUSE_MS: u64 = 10;

impl IoThread {
    /// Serves connections whose requests need rows from the disk. Such a request costs several times
    /// what one on rows in memory costs, so those of many clients would hold the others up: they get
    /// a part of the time that the others have taken since `hot_since_us`; without others, as much as
    /// may pass before the next poll.
    pub(super) fn cold_turns(&mut self, hot_since_us: Option<u64>) {
        if self.cold.is_empty() {
            return;
        }
        let mut last_us = clock::mono_us();
        self.cold_credit_us = match hot_since_us {
            Some(since_us) => {
                let hot_us = last_us.saturating_sub(since_us) as i64;
                (self.cold_credit_us + hot_us / COLD_PART).min(COLD_ALONE_US)
            }
            None => COLD_ALONE_US,
        };
        while self.cold_credit_us > 0
            && let Some(token) = self.cold.pop_front()
        {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.in_cold = false;
                self.turn(token, None);
            }
            let now_us = clock::mono_us();
            self.cold_credit_us -= now_us.saturating_sub(last_us) as i64;
            last_us = now_us;
        }
    }

    /// Suspends a connection until the pause is over. It is listed once, however often this is
    /// called.
    pub(super) fn wait_for_pause(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(&token)
            && !connection.in_paused
        {
            connection.set_paused(true);
            self.paused.push(token);
        }
    }

    /// Resumes paused clients if the pause is over or `always`.
    pub(super) fn resume_paused(&mut self, always: bool) {
        if self.paused.is_empty() || !always && self.last_resumed.elapsed() < PAUSE_CHECK {
            return;
        }
        self.last_resumed = Instant::now();
        let now_ms = clock::unix_ms();
        if always || self.executor.server().pause_at(now_ms).is_none() {
            for token in std::mem::take(&mut self.paused) {
                if let Some(connection) = self.connections.get_mut(&token) {
                    connection.set_paused(false);
                }
                self.schedule(token);
            }
        }
    }

    /// Suspends a connection until the rows that its next request lacks are in memory.
    pub(super) fn wait_for_reads(&mut self, token: Token) {
        let reads = self.executor.take_cold_reads();
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        connection.set_reading(true);
        let client = connection.session.info.id;
        let server = self.executor.server();
        match server.mailboxes().get(self.number).cloned() {
            Some(own) => server.engine.read_cold(reads, move || {
                own.reads_are_done(FinishedRead::Client(client))
            }),
            None => {
                connection.set_reading(false);
                self.schedule(token);
            }
        }
    }

    /// Has the rows read that serving waiting clients needs.
    pub(super) fn read_for_waiters(&mut self) {
        for mut cold in self.executor.take_cold_keys() {
            let server = self.executor.server();
            let Some(own) = server.mailboxes().get(self.number).cloned() else {
                continue;
            };
            let number = self.next_cold_key;
            self.next_cold_key += 1;
            let done = move || own.reads_are_done(FinishedRead::Key(number));
            let reads = std::mem::take(&mut cold.reads);
            self.cold_keys.insert(number, cold);
            server.engine.read_cold(reads, done);
        }
    }

    /// Resumes the connections whose reads are done, and serves the clients of keys for which
    /// reads are done.
    pub(super) fn end_reads(&mut self) {
        for finished in self.finished_reads.take() {
            match finished {
                FinishedRead::Client(client) => {
                    if let Some(&token) = self.by_client.get(&client)
                        && let Some(connection) = self.connections.get_mut(&token)
                    {
                        connection.set_reading(false);
                        self.schedule(token);
                    }
                }
                FinishedRead::Key(number) => {
                    if let Some(key) = self.cold_keys.remove(&number) {
                        self.executor.serve_cold_key(&key);
                    }
                }
            }
        }
    }

    /// Tries the commands of waiting clients again whose time for that has come.
    pub(super) fn retry_waits(&mut self) {
        let now_ms = clock::unix_ms();
        while let Some(&(retry_ms, client)) = self.retries.first()
            && retry_ms <= now_ms
        {
            self.retries.pop_first();
            let waiter = self.by_client.get(&client).and_then(|token| {
                let connection = self.connections.get(token)?;
                connection.session.waiting.clone()
            });
            // The client may have another wait by now, which has a time of its own.
            let Some(waiter) = waiter.filter(|waiter| waiter.retry_ms().is_some()) else {
                continue;
            };
            self.executor.retry_waiter(&waiter);
            if let Some(next_ms) = waiter.retry_ms().filter(|_| waiter.is_waiting()) {
                let next_ms = next_ms.max(now_ms + RETRY_PAUSE_MS);
                self.retries.insert((next_ms, client));
            }
        }
    }

    /// Resumes connections whose pause is over, or for which there is memory or space.
    pub(super) fn resume_suspended(&mut self) {
        self.resume_paused(false);
        self.resume_for_room();
        self.resume_for_space();
    }

    /// Suspends a connection until there is memory for its requests and replies.
    pub(super) fn wait_for_room(&mut self, token: Token) {
        let now_ms = self.executor.now_ms();
        if let Some(connection) = self.connections.get_mut(&token)
            && connection.no_room_since_ms.is_none()
        {
            connection.no_room_since_ms = Some(now_ms);
            if connection.awaits_space() {
                return self.no_space.push(token);
            }
            self.no_room.push(token);
            self.executor.server().client_memory.begin_wait();
        }
    }

    /// Resumes connections for which there is memory now. Closes one of those that have
    /// stalled, which frees memory for others.
    fn resume_for_room(&mut self) {
        if self.no_room.is_empty() || self.last_room_check.elapsed() < ROOM_CHECK {
            return;
        }
        self.last_room_check = Instant::now();
        let now_ms = clock::unix_ms();
        let mut stalled = None;
        let memory = &self.executor.server().client_memory;
        for token in std::mem::take(&mut self.no_room) {
            let Some(connection) = self.connections.get_mut(&token) else {
                memory.end_wait();
                continue;
            };
            if connection.may_continue(&self.executor) {
                connection.end_wait_for_room();
                memory.end_wait();
                if !connection.in_pending {
                    connection.in_pending = true;
                    self.pending.push(token);
                }
                continue;
            }
            if stalled.is_none() && connection.has_stalled(now_ms) {
                stalled = Some(token);
            }
            self.no_room.push(token);
        }
        if let Some(token) = stalled {
            self.close_stalled(token);
        }
    }

    /// Resumes connections for whose data there is space now. They wait for no memory of other clients,
    /// of which none is closed for them.
    fn resume_for_space(&mut self) {
        if self.no_space.is_empty() || self.last_space_check.elapsed() < SPACE_CHECK {
            return;
        }
        self.last_space_check = Instant::now();
        for token in std::mem::take(&mut self.no_space) {
            let Some(connection) = self.connections.get_mut(&token) else {
                continue;
            };
            if !connection.has_space(&self.executor) {
                self.no_space.push(token);
                continue;
            }
            connection.end_wait_for_room();
            if !connection.in_pending {
                connection.in_pending = true;
                self.pending.push(token);
            }
        }
    }

    /// Closes a client that blocks others.
    pub(super) fn close_stalled(&mut self, token: Token) {
        self.executor.server().stats.evicted_clients.add(1);
        if let Some(connection) = self.connections.get(&token) {
            let info = &connection.session.info;
            log::warn!(
                "client {} at {}: {}, and maxmemory-clients has no room for more: closing it",
                info.id.0,
                info.addr,
                connection.why_stalled()
            );
        }
        self.close(token);
    }
}
