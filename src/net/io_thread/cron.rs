//! What an IO thread does once a second, and when a limit of a client's output ends.

use super::IoThread;
use crate::base::time::UnixMs;
use crate::state::ClientInfo;
use crate::state::clients::ClientFlags;
use crate::sys::clock;
use mio::Token;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const CRON: Duration = Duration::from_secs(1);
/// A connection whose handshake takes longer is closed.
const HANDSHAKE_MS: u64 = 10_000;
/// A connection that is idle for so long frees its buffers.
const IDLE_MS: u64 = 2000;

impl IoThread {
    /// Until the next check of the connections.
    pub(super) fn cron_in(&self) -> Duration {
        let regular = CRON.saturating_sub(self.last_cron.elapsed());
        if self.output_deadline_ms == UnixMs::MAX {
            return regular;
        }
        // The deadline itself is within the limit.
        let left_ms = (self.output_deadline_ms + 1).since(clock::unix_ms());
        regular.min(Duration::from_millis(left_ms))
    }

    /// Closes clients that are idle or killed, or whose output is over its limits for too long.
    pub(super) fn cron(&mut self) {
        self.last_cron = Instant::now();
        let mut output_deadline_ms = UnixMs::MAX;
        self.executor.refuse_waiting_jobs();
        let config = self.executor.config().clone();
        let timeout_ms = config.timeout_s * 1000;
        let now_ms = self.executor.now_ms();
        let mut too_long = Vec::new();
        let others_wait = self.executor.server().client_memory.has_waiting();
        let mut stalled = None;
        let overdue: Vec<Token> = self
            .connections
            .iter_mut()
            .filter_map(|(token, c)| {
                let info = &c.session.info;
                let idle_ms = now_ms.since(info.active_ms.load(Ordering::Relaxed));
                let idle = timeout_ms > 0 && idle_ms > timeout_ms && !exempt_from_timeout(info);
                if idle {
                    log::debug!("Closing idle client {info}");
                }
                let stalls = c.is_handshaking() && now_ms.since(info.created_ms) > HANDSHAKE_MS;
                let overdue = idle || stalls || info.kill.load(Ordering::Acquire);
                if idle_ms > IDLE_MS {
                    c.free_buffers();
                }
                if others_wait && c.sends_nothing_more(now_ms) {
                    stalled = Some(*token);
                }
                if !overdue && let Some(until_ms) = c.output_deadline(&config, now_ms) {
                    match until_ms < now_ms {
                        true => too_long.push(*token),
                        false => output_deadline_ms = output_deadline_ms.min(until_ms),
                    }
                }
                overdue.then_some(*token)
            })
            .collect();
        self.output_deadline_ms = output_deadline_ms;
        for token in overdue {
            self.close(token);
        }
        for token in too_long {
            self.close_for_output(token);
        }
        if let Some(token) = stalled {
            self.close_stalled(token);
        }
    }
}

fn exempt_from_timeout(info: &ClientInfo) -> bool {
    info.flags().intersects(
        ClientFlags::MONITOR
            | ClientFlags::BLOCKED
            | ClientFlags::PUBSUB
            | ClientFlags::REPLICA
            | ClientFlags::MASTER,
    )
}
