//! The master of this server, and its replicas.

use super::super::samples::Kind::Gauge;
use super::super::samples::{Number, Samples};
use super::super::scrape::Scrape;
use super::{Metric, counter, gauge, many, some};
use crate::base::time::UnixMs;
use crate::state::replication::{Feeding, LinkPhase, Replica};
use std::sync::atomic::Ordering;

/// A sample for each replica: the client's number tells replicas with one address apart.
fn each_replica(scrape: &Scrape<'_>, to: &mut Samples, of: impl Fn(&Replica) -> Number) {
    for replica in &scrape.replicas {
        let address = match replica.ip.contains(':') {
            true => format!("[{}]:{}", replica.ip, replica.port),
            false => format!("{}:{}", replica.ip, replica.port),
        };
        let mut number = itoa::Buffer::new();
        let labels = [
            ("replica", address.as_str()),
            ("client", number.format(replica.client.id.0)),
        ];
        to.add(&labels, of(replica));
    }
}

fn is_replica(scrape: &Scrape<'_>) -> bool {
    scrape.server.replication.is_replica()
}

/// How many bytes this replica is behind what its master has told it of.
fn behind(scrape: &Scrape<'_>) -> u64 {
    let link = &scrape.server.replication.link;
    match link.stream() {
        Some((next, read)) => read.since(next),
        None => {
            let there = link.master_next.load(Ordering::Relaxed);
            there.since(scrape.binlog.next_position)
        }
    }
}

/// Whether this server follows a master and is connected to it.
fn is_linked(scrape: &Scrape<'_>) -> bool {
    is_replica(scrape) && scrape.server.replication.link.phase() == LinkPhase::Connected
}

/// Seconds since a time, if there was one.
fn seconds_since(scrape: &Scrape<'_>, then_ms: UnixMs) -> Option<Number> {
    let ms = scrape.now_ms.since(then_ms);
    (then_ms != UnixMs::NONE).then(|| Number::Real(ms as f64 / 1000.0))
}

pub(super) const ROWS: &[Metric] = &[
    gauge(
        "kedis_replication_is_replica",
        "Whether this server follows a master.",
        |s| some(is_replica(s)),
    ),
    gauge("kedis_replication_replicas", "Connected replicas.", |s| {
        some(s.replicas.len())
    })
    .info("connected_slaves"),
    many(
        Gauge,
        "kedis_replica_online",
        &["replica", "client"],
        "Whether a replica gets the stream of changes; it waits for the data set otherwise.",
        |s, to| each_replica(s, to, |r| (r.feeding() == Feeding::Online).into()),
    ),
    many(
        Gauge,
        "kedis_replica_lag_bytes",
        &["replica", "client"],
        "Bytes of the binlog that a replica has not acknowledged.",
        |s, to| {
            each_replica(s, to, |replica| {
                let acked = replica.acked.load(Ordering::Relaxed);
                s.binlog.next_position.since(acked).into()
            });
        },
    ),
    many(
        Gauge,
        "kedis_replica_silent_seconds",
        &["replica", "client"],
        "Time since a replica's last acknowledgement.",
        |s, to| {
            each_replica(s, to, |replica| {
                let acked_ms = replica.acked_ms.load(Ordering::Relaxed);
                Number::Real(s.now_ms.since(acked_ms) as f64 / 1000.0)
            });
        },
    ),
    gauge(
        "kedis_link_up",
        "Whether this replica's link to its master is up; absent on a master.",
        |s| is_replica(s).then(|| is_linked(s).into()),
    ),
    gauge(
        "kedis_link_sync_running",
        "Whether this replica receives a data set.",
        |s| {
            let syncs = s.server.replication.link.phase() == LinkPhase::Sync;
            is_replica(s).then(|| syncs.into())
        },
    ),
    gauge(
        "kedis_link_lag_bytes",
        "Bytes of the master's stream that this replica has not applied; absent without a link.",
        |s| is_linked(s).then(|| behind(s).into()),
    ),
    gauge(
        "kedis_link_lag_seconds",
        "Time since this replica last applied a change; 0 if it has all, absent without a link.",
        |s| {
            let applied = s.server.replication.link.applied_ms.load(Ordering::Relaxed);
            match behind(s) {
                _ if !is_linked(s) => None,
                0 => some(0u64),
                _ => seconds_since(s, applied),
            }
        },
    ),
    gauge(
        "kedis_link_silent_seconds",
        "Time since this replica heard of its master.",
        |s| {
            let heard = s.server.replication.link.heard_ms.load(Ordering::Relaxed);
            seconds_since(s, heard).filter(|_| is_replica(s))
        },
    ),
    counter(
        "kedis_replication_full_syncs_total",
        "Data sets that replicas have asked for.",
        |s| some(s.stats.sync_full.get()),
    )
    .info("sync_full"),
    counter(
        "kedis_replication_partial_syncs_total",
        "Replicas that went on from where they were.",
        |s| some(s.stats.sync_partial_ok.get()),
    )
    .info("sync_partial_ok"),
    counter(
        "kedis_replication_partial_syncs_refused_total",
        "Replicas that could not go on from where they were.",
        |s| some(s.stats.sync_partial_err.get()),
    )
    .info("sync_partial_err"),
    counter(
        "kedis_replication_received_bytes_total",
        "Bytes that were received from the master.",
        |s| some(s.stats.net_repl_input_bytes.get()),
    )
    .info("total_net_repl_input_bytes"),
    counter(
        "kedis_replication_sent_bytes_total",
        "Bytes that were sent to replicas.",
        |s| some(s.stats.net_repl_output_bytes.get()),
    )
    .info("total_net_repl_output_bytes"),
];
