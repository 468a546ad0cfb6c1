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
use crate::encoding::binlog::Position;
use crate::state::Server;
use crate::state::config::MasterAddr;
use crate::state::replication::{Desired, Failover, Feeding, LinkPhase, Psync, Replica};
use crate::storage::StorageError;
use crate::sys::clock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval between two checks of the replicas, or of the master's stream.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for what the master sent before it handed over.
const RECEIVE_REST: Duration = Duration::from_secs(5);

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

/// The change of a replica to a master, as its master has asked with PSYNC FAILOVER.
///
/// What the master sent before is applied first, as long as the link lasts, but for no longer than
/// [`RECEIVE_REST`]: a forced failover does not wait for the replica, and without these writes the old
/// master needs a full sync.
pub(super) struct TakeOver {
    began: Instant,
    /// As it was when the master asked.
    desired: Desired,
    /// Where the master's stream ends.
    end: Option<Position>,
}

impl TakeOver {
    pub(super) fn begin(server: &Server, psync: &Psync) -> TakeOver {
        TakeOver {
            began: Instant::now(),
            desired: server.replication.desired().clone(),
            end: psync.next,
        }
    }

    /// Whether what the master sent before may still come.
    pub(super) fn is_behind(&self, server: &Server) -> bool {
        let engine = &server.engine;
        let upstream = engine.upstream();
        let next = upstream.map_or_else(|| engine.binlog.range().next_position, |up| up.next);
        self.end.is_some_and(|end| next < end)
            && server.replication.link.phase() == LinkPhase::Connected
            && self.began.elapsed() < RECEIVE_REST
            && server.replication.desired().is_still(&self.desired)
    }

    /// Makes this server a master. Returns whether it is one: it may stop, or may have been told to
    /// follow another server meanwhile.
    pub(super) fn finish(self, server: &Server) -> Result<bool, StorageError> {
        let is_still = server.replication.desired().is_still(&self.desired);
        if !is_still || server.workers.are_stopping() {
            return Ok(false);
        }
        follow(server, None)?;
        log::info!("MASTER MODE enabled (failover request from the master)");
        Ok(true)
    }
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
