//! Whether the server lives, and whether it is ready.
//!
//! A server that does not live should be started again; one that is not ready should get no
//! requests for now.

use crate::state::Server;
use crate::state::replication::LinkPhase;
use crate::sys::clock;

/// An IO thread that has not come back to its sockets for so long does not serve. A thread polls at
/// least once a second, and no request keeps it for more than milliseconds.
const STUCK_US: u64 = 60_000_000;

/// Why the server does not live; empty if it does.
pub(super) fn not_alive(server: &Server) -> Vec<String> {
    let now_us = clock::mono_us();
    let stuck = server
        .ticks
        .iter()
        .enumerate()
        .filter_map(|(number, ticks)| {
            // A thread that has not begun yet is not stuck.
            let since_us = Some(ticks.seen_us()).filter(|seen_us| *seen_us > 0)?;
            let us = now_us.saturating_sub(since_us);
            (us > STUCK_US).then(|| format!("io-{number} serves nobody since {} s", us / 1_000_000))
        });
    stuck.collect()
}

/// Why the server is not ready; empty if it is.
pub(super) fn not_ready(server: &Server) -> Vec<String> {
    let config = server.config.load();
    let replication = &server.replication;
    let is_up = !replication.is_replica() || replication.link.phase() == LinkPhase::Connected;
    let reasons = [
        (server.loading.is_on(), "it loads a file"),
        (server.shutdown_request().is_some(), "it is to stop"),
        (
            server.engine.has_failed(),
            "a write to the disk has failed, so writes are refused",
        ),
        (
            !is_up && !config.replica_serve_stale_data,
            "the link to its master is down, and `replica-serve-stale-data` is `no`",
        ),
    ];
    let holding = reasons.into_iter().filter(|(holds, _)| *holds);
    let words = holding.map(|(_, reason)| reason.to_owned());
    words.chain(not_alive(server)).collect()
}
