//! Clients, their connections and what they were refused.

use super::super::samples::Kind::{Counter, Gauge};
use super::super::samples::Samples;
use super::super::scrape::Scrape;
use super::{Metric, counter, gauge, many, some};
use crate::state::subscriptions::SubscriptionKind;

fn subscriptions(scrape: &Scrape<'_>, to: &mut Samples) {
    let kinds = [
        ("channel", SubscriptionKind::Channel),
        ("pattern", SubscriptionKind::Pattern),
        ("shard", SubscriptionKind::Shard),
    ];
    for (name, kind) in kinds {
        to.add(&[("kind", name)], scrape.server.pubsub.len(kind));
    }
}

fn denied(scrape: &Scrape<'_>, to: &mut Samples) {
    let stats = scrape.stats;
    let reasons = [
        ("login", &stats.auth_failures),
        ("command", &stats.denied_commands),
        ("key", &stats.denied_keys),
        ("channel", &stats.denied_channels),
        ("db", &stats.denied_dbs),
        ("certificate", &stats.denied_certificates),
    ];
    for (reason, count) in reasons {
        to.add(&[("reason", reason)], count.get());
    }
}

pub(super) const ROWS: &[Metric] = &[
    gauge(
        "kedis_clients_connected",
        "Clients, without replicas and the master.",
        |s| some(s.clients.clients),
    )
    .info("connected_clients"),
    gauge("kedis_clients_max", "Most clients at a time.", |s| {
        some(s.config.max_clients)
    })
    .info("maxclients"),
    gauge(
        "kedis_clients_blocked",
        "Clients that wait for keys, acknowledgements or the end of a pause.",
        |s| some(s.clients.blocked),
    )
    .info("blocked_clients"),
    gauge("kedis_clients_pubsub", "Clients with subscriptions.", |s| {
        some(s.clients.pubsub)
    })
    .info("pubsub_clients"),
    gauge(
        "kedis_clients_tracking",
        "Clients with client-side caching.",
        |s| some(s.server.tracking.clients()),
    )
    .info("tracking_clients"),
    gauge("kedis_clients_watching", "Clients that watch keys.", |s| {
        some(s.server.watchers.clients())
    })
    .info("watching_clients"),
    gauge(
        "kedis_clients_monitor",
        "Clients that see all commands (MONITOR).",
        |s| some(s.server.clients.monitors()),
    )
    .info("monitor_clients"),
    gauge(
        "kedis_client_largest_input_buffer_bytes",
        "The largest input buffer of a client.",
        |s| some(s.clients.largest_input),
    ),
    gauge(
        "kedis_client_largest_output_buffer_bytes",
        "The largest output buffer of a client.",
        |s| some(s.clients.largest_output),
    ),
    counter(
        "kedis_connections_accepted_total",
        "Connections that were accepted.",
        |s| some(s.stats.connections.get()),
    )
    .info("total_connections_received"),
    counter(
        "kedis_connections_rejected_total",
        "Connections that were refused, because of `maxclients` or the protected mode.",
        |s| some(s.stats.rejected_connections.get()),
    )
    .info("rejected_connections"),
    counter(
        "kedis_clients_evicted_total",
        "Clients that were closed because of the memory of all clients.",
        |s| some(s.stats.evicted_clients.get()),
    )
    .info("evicted_clients"),
    counter(
        "kedis_clients_output_limit_total",
        "Clients that were closed because of their unsent output.",
        |s| some(s.stats.output_limit_disconnections.get()),
    )
    .info("client_output_buffer_limit_disconnections"),
    counter(
        "kedis_clients_query_limit_total",
        "Clients that were closed because of their requests' size.",
        |s| some(s.stats.query_limit_disconnections.get()),
    )
    .info("client_query_buffer_limit_disconnections"),
    counter(
        "kedis_network_received_bytes_total",
        "Bytes that were received from clients, and over links of replication.",
        |s| some(s.stats.net_input_bytes.get()),
    )
    .info("total_net_input_bytes"),
    counter(
        "kedis_network_sent_bytes_total",
        "Bytes that were sent to clients, and over links of replication.",
        |s| some(s.stats.net_output_bytes.get()),
    )
    .info("total_net_output_bytes"),
    counter(
        "kedis_network_reads_total",
        "Reads from sockets of clients.",
        |s| some(s.stats.reads.get()),
    )
    .info("total_reads_processed"),
    counter(
        "kedis_network_writes_total",
        "Writes to sockets of clients.",
        |s| some(s.stats.writes.get()),
    )
    .info("total_writes_processed"),
    many(
        Gauge,
        "kedis_pubsub_subscriptions",
        &["kind"],
        "Channels, patterns and shard channels with subscribers.",
        subscriptions,
    ),
    gauge(
        "kedis_tracking_keys",
        "Keys in the table for client-side caching.",
        |s| some(s.server.tracking.table_size().0),
    )
    .info("tracking_total_keys"),
    gauge(
        "kedis_tracking_items",
        "Clients recorded there, summed over its keys.",
        |s| some(s.server.tracking.table_size().1),
    )
    .info("tracking_total_items"),
    gauge(
        "kedis_watched_keys",
        "Watched keys, each counted once per client.",
        |s| some(s.server.watchers.keys()),
    )
    .info("total_watched_keys"),
    gauge("kedis_blocking_keys", "Keys that clients wait for.", |s| {
        some(s.server.waiters.keys())
    })
    .info("total_blocking_keys"),
    many(
        Counter,
        "kedis_access_denied_total",
        &["reason"],
        "Failed logins, and requests that users may not make.",
        denied,
    ),
    counter(
        "kedis_audit_log_lines_total",
        "Lines that were written to the audit log.",
        |s| some(s.server.audit.figures().written),
    )
    .info("audit_log_lines"),
    counter(
        "kedis_audit_log_lost_lines_total",
        "Lines that the audit log could not take.",
        |s| some(s.server.audit.figures().lost),
    )
    .info("audit_log_lost_lines"),
];
