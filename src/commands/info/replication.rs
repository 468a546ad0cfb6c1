//! The INFO section about replication: Redis' fields and the progress of both sides.

use super::Text;
use crate::base::time::UnixMs;
use crate::state::Server;
use crate::state::config::MasterAddr;
use crate::state::replication::{Feeding, LinkPhase};
use crate::sys::clock;
use std::sync::atomic::Ordering;

pub(super) fn replication(text: &mut Text, server: &Server) {
    let now_ms = clock::unix_ms();
    let master = server.replication.desired().master.clone();
    match &master {
        Some(master) => {
            text.field("role", "slave");
            link(text, server, master, now_ms);
        }
        None => text.field("role", "master"),
    }
    replicas(text, server, now_ms);
    let failover = server.replication.desired().failover.clone();
    let failover = match failover.map(|failover| failover.in_progress) {
        None => "no-failover",
        Some(false) => "waiting-for-sync",
        Some(true) => "failover-in-progress",
    };
    text.field("master_failover_state", failover);
    history(text, server);
}

/// Seconds from `then_ms` to `now_ms`; −1 if `then_ms` is 0 (never).
fn seconds_since(then_ms: UnixMs, now_ms: UnixMs) -> i64 {
    match then_ms {
        UnixMs::NONE => -1,
        then_ms => (now_ms.since(then_ms) / 1000) as i64,
    }
}

fn link(text: &mut Text, server: &Server, master: &MasterAddr, now_ms: UnixMs) {
    let config = server.config.load();
    let link = &server.replication.link;
    let next = server.engine.binlog.range().next_position;
    let phase = link.phase();
    let up = phase == LinkPhase::Connected;
    let last_io = seconds_since(link.heard_ms.load(Ordering::Relaxed), now_ms);
    text.field("master_host", &master.host);
    text.field("master_port", master.port);
    text.field("master_link_status", if up { "up" } else { "down" });
    text.field("master_last_io_seconds_ago", if up { last_io } else { -1 });
    let syncing = phase == LinkPhase::Sync;
    text.field("master_sync_in_progress", u8::from(syncing));
    let (next, read) = link.stream().unwrap_or((next, next));
    text.field("slave_read_repl_offset", read.offset());
    text.field("slave_repl_offset", next.offset());
    if syncing {
        let keys = link.sync_keys.load(Ordering::Relaxed);
        let here = link.sync_keys_here.load(Ordering::Relaxed);
        let read = link.sync_bytes_here.load(Ordering::Relaxed);
        // A Kedis master announces the number of keys, a Redis master the number of bytes;
        // the other total is unknown until the end.
        let (total, left, percent) = match link.sync_bytes.load(Ordering::Relaxed) {
            0 => (-1, -1, here as f64 / keys.max(1) as f64),
            total => {
                let left = total.saturating_sub(read);
                (total as i64, left as i64, read as f64 / total as f64)
            }
        };
        text.field("master_sync_total_bytes", total);
        text.field("master_sync_read_bytes", read);
        text.field("master_sync_left_bytes", left);
        let percent = percent * 100.0;
        text.field("master_sync_perc", format_args!("{percent:.2}"));
        text.field("master_sync_last_io_seconds_ago", last_io);
        text.field("master_sync_total_keys", keys);
        text.field("master_sync_read_keys", here);
    }
    if !up {
        let down = seconds_since(link.down_ms.load(Ordering::Relaxed), now_ms);
        text.field("master_link_down_since_seconds", down);
    }
    let ahead = match link.stream() {
        Some((_, read)) => read,
        None => link.master_next.load(Ordering::Relaxed),
    };
    let behind = ahead.since(next);
    text.field("master_link_lag_bytes", behind);
    let lag = match behind {
        0 => 0,
        _ => seconds_since(link.applied_ms.load(Ordering::Relaxed), now_ms),
    };
    text.field("master_link_lag_seconds", lag);
    text.field("slave_priority", config.replica_priority);
    text.field("slave_read_only", u8::from(config.replica_read_only));
    text.field("replica_announced", u8::from(config.replica_announced));
}

fn replicas(text: &mut Text, server: &Server, now_ms: UnixMs) {
    let config = server.config.load();
    let next = server.engine.binlog.range().next_position;
    let replicas = server.replication.replicas();
    text.field("connected_slaves", replicas.len());
    if config.min_replicas_to_write > 0 && config.min_replicas_max_lag_s > 0 {
        let max_lag_s = config.min_replicas_max_lag_s;
        let good = server.replication.good_replicas(max_lag_s, now_ms);
        text.field("min_slaves_good_slaves", good);
    }
    for (i, replica) in replicas.iter().enumerate() {
        let state = match replica.feeding() {
            Feeding::Waiting => "wait_bgsave",
            Feeding::Snapshot => "send_bulk",
            Feeding::Online => "online",
        };
        let acked = replica.acked.load(Ordering::Relaxed);
        let behind = next.since(acked);
        text.field(
            &format!("slave{i}"),
            format_args!(
                "ip={},port={},state={state},offset={},lag={},lag_bytes={behind}",
                replica.ip,
                replica.port,
                acked.offset(),
                replica.silent_s(now_ms),
            ),
        );
    }
}

fn history(text: &mut Text, server: &Server) {
    let range = server.engine.binlog.range();
    let history = server.engine.history();
    let before = history.ancestors.last();
    text.field("master_replid", &history.id);
    match before {
        Some(before) => text.field("master_replid2", &before.id),
        None => text.field("master_replid2", "0".repeat(40)),
    }
    text.field("master_repl_offset", range.next_position.offset());
    let end = before.map_or(-1, |before| before.end.0 as i64);
    text.field("second_repl_offset", end);
    let enabled = server.engine.binlog.is_enabled();
    text.field("repl_backlog_active", u8::from(enabled));
    text.field("repl_backlog_size", server.config.load().binlog_bytes());
    text.field("repl_backlog_first_byte_offset", range.first_position);
    text.field(
        "repl_backlog_histlen",
        range.next_position.since(range.first_position),
    );
}
