//! FAILOVER: writes are paused until a replica has everything; then this server follows
//! it and asks it to become master.
//!
//! ```text
//! no-failover → waiting-for-sync ─ a replica has everything ─→ failover-in-progress
//!      ↑               │ ABORT, TIMEOUT                              │
//!      └───────────────┴───── PSYNC … FAILOVER answered, or failed ──┘
//! ```
//!
//! Commands that had begun before the pause may still commit; the failover then waits
//! for a replica that has their writes, too.

use crate::commands::replication::{end_failover, follow};
use crate::state::Server;
use crate::state::config::MasterAddr;
use crate::state::replication::{Failover, Feeding, LinkPhase, Psync, Replica};
use crate::storage::StorageError;
use crate::sys::clock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval between two checks of the replicas.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for what the master sent before it handed over.
const RECEIVE_REST: Duration = Duration::from_secs(1);

/// Whether a replica has acknowledged the whole binlog.
pub(super) fn has_everything(server: &Server, target: &MasterAddr) -> bool {
    let next = server.engine.binlog.range().next_position;
    let replicas = server.replication.replicas();
    let found = replicas.iter().find(|replica| is(replica, target));
    found.is_some_and(|replica| replica.acked.load(Ordering::Acquire) == next)
}

fn is(replica: &Replica, target: &MasterAddr) -> bool {
    replica.ip == target.host && replica.port == target.port
}

/// Waits for a replica that has everything and starts the handover; returns when that is
/// done or the failover has ended.
pub(super) fn coordinate(server: &Arc<Server>) -> Result<(), StorageError> {
    loop {
        let desired = server.replication.desired().clone();
        let Some(failover) = desired.failover.clone().filter(|f| !f.in_progress) else {
            return Ok(());
        };
        if desired.stop {
            return Ok(());
        }
        let late = failover
            .deadline_ms
            .is_some_and(|deadline_ms| clock::unix_ms() >= deadline_ms);
        // A script on a worker writes its effects to the binlog when it ends.
        let ready = match server.workers.longest() {
            Some(_) => None,
            None => candidates(server, &failover)
                .into_iter()
                .find(|target| has_everything(server, target)),
        };
        let target = match (ready, late) {
            (Some(target), _) => Some(target),
            (None, true) if failover.force => {
                log::info!("FAILOVER: time out exceeded, failing over.");
                failover.target
            }
            (None, true) => {
                log::warn!("FAILOVER: no replica had everything in time");
                return end_failover(server);
            }
            (None, false) => None,
        };
        if let Some(target) = target {
            log::info!("FAILOVER: {}:{} takes over", target.host, target.port);
            if server.replication.hand_over(target) {
                server.unblock_all();
            }
            return Ok(());
        }
        for replica in server.replication.replicas() {
            replica.ask();
        }
        server.replication.wait_for_change(&desired, LOOK_EVERY);
    }
}

/// Makes this server a master, as its master asked with PSYNC FAILOVER. Returns whether it is one:
/// it may have been told to follow another server meanwhile.
///
/// What the master sent before is applied first, as long as the link lasts: a forced failover does
/// not wait for the replica, and without these writes the old master would need a full sync.
pub(super) fn take_over(server: &Server, psync: &Psync) -> Result<bool, StorageError> {
    let started = Instant::now();
    let desired = server.replication.desired().clone();
    let engine = &server.engine;
    let is_behind = || {
        let upstream = engine.upstream();
        let next = upstream.map_or_else(|| engine.binlog.range().next_position, |up| up.next);
        psync.next.is_some_and(|end| next < end)
            && server.replication.link.phase() == LinkPhase::Connected
            && started.elapsed() < RECEIVE_REST
    };
    while is_behind() && server.replication.desired().is_still(&desired) {
        server.replication.wait_for_change(&desired, LOOK_EVERY);
    }
    if !server.replication.desired().is_still(&desired) {
        return Ok(false);
    }
    follow(server, None)?;
    log::info!("MASTER MODE enabled (failover request from the master)");
    Ok(true)
}

/// The replicas that may become master.
fn candidates(server: &Server, failover: &Failover) -> Vec<MasterAddr> {
    let mut replicas = server.replication.replicas();
    replicas.retain(|replica| {
        let wanted = failover.target.as_ref().is_none_or(|t| is(replica, t));
        wanted && replica.feeding() == Feeding::Online && replica.port != 0
    });
    let address = |replica: &Arc<Replica>| MasterAddr {
        host: replica.ip.clone(),
        port: replica.port,
    };
    replicas.iter().map(address).collect()
}
