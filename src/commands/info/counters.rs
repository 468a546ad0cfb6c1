//! INFO sections made of counters.

use super::Text;
use crate::commands::registry;
use crate::state::Server;
use crate::state::stats::{CommandStats, LATENCY_BUCKETS, SlowStats};
use crate::state::subscriptions::SubscriptionKind;
use crate::sys::clock;
use std::sync::atomic::Ordering;

const KIB: f64 = 1024.0;

pub(super) fn stats(text: &mut Text, server: &Server) {
    let stats = &server.stats;
    let rates = server.rates.per_second();
    let kbps = |bytes: f64| format!("{:.2}", bytes / KIB);
    text.field("total_connections_received", stats.connections.get());
    text.field("total_commands_processed", stats.commands.get());
    text.field("instantaneous_ops_per_sec", rates.commands.round());
    text.field("total_net_input_bytes", stats.net_input_bytes.get());
    text.field("total_net_output_bytes", stats.net_output_bytes.get());
    let (input, output) = (&stats.net_repl_input_bytes, &stats.net_repl_output_bytes);
    text.field("total_net_repl_input_bytes", input.get());
    text.field("total_net_repl_output_bytes", output.get());
    text.field("instantaneous_input_kbps", kbps(rates.input_bytes));
    text.field("instantaneous_output_kbps", kbps(rates.output_bytes));
    let input = kbps(rates.repl_input_bytes);
    text.field("instantaneous_input_repl_kbps", input);
    let output = kbps(rates.repl_output_bytes);
    text.field("instantaneous_output_repl_kbps", output);
    text.field("rejected_connections", stats.rejected_connections.get());
    text.field("sync_full", stats.sync_full.get());
    text.field("sync_partial_ok", stats.sync_partial_ok.get());
    text.field("sync_partial_err", stats.sync_partial_err.get());
    text.field("expired_subkeys", stats.expired_subkeys.get());
    // The name of Valkey.
    text.field("expired_fields", stats.expired_subkeys.get());
    text.field("expired_keys", stats.expired_keys.get());
    text.constants(&[
        ("expired_stale_perc", "0.00"),
        ("expired_time_cap_reached_count", "0"),
        ("expire_cycle_cpu_milliseconds", "0"),
    ]);
    text.field("evicted_keys", stats.evicted_keys.get());
    text.field("evicted_clients", stats.evicted_clients.get());
    text.field("evicted_scripts", server.scripts.evicted());
    text.constants(&[
        ("total_eviction_exceeded_time", "0"),
        ("current_eviction_exceeded_time", "0"),
    ]);
    text.field("keyspace_hits", stats.keyspace_hits.get());
    text.field("keyspace_misses", stats.keyspace_misses.get());
    text.field(
        "pubsub_channels",
        server.pubsub.len(SubscriptionKind::Channel),
    );
    text.field(
        "pubsub_patterns",
        server.pubsub.len(SubscriptionKind::Pattern),
    );
    text.field(
        "pubsubshard_channels",
        server.pubsub.len(SubscriptionKind::Shard),
    );
    let cached = server.migrations.cached_sockets.load(Ordering::Relaxed);
    text.field("migrate_cached_sockets", cached);
    unsupported(text);
    let (keys, items) = server.tracking.table_size();
    text.field("tracking_total_keys", keys);
    text.field("tracking_total_items", items);
    text.field("tracking_total_prefixes", server.tracking.prefixes());
    text.field("unexpected_error_replies", 0);
    text.field("total_error_replies", stats.error_replies.get());
    // All threads that serve clients are IO threads.
    let (reads, writes) = (stats.reads.get(), stats.writes.get());
    text.field("total_reads_processed", reads);
    text.field("total_writes_processed", writes);
    text.field("io_threaded_reads_processed", reads);
    text.field("io_threaded_writes_processed", writes);
    text.field("dump_payload_sanitizations", 0);
    text.field("total_commits", server.engine.commits());
    text.field("reclaimed_rows", stats.reclaimed_rows.get());
    text.field("worker_requests", stats.worker_requests.get());
    text.field("slowlog_commands_count", stats.slow.calls.get());
    let (longest, all) = slow_ms(&stats.slow);
    text.field("slowlog_commands_time_ms_max", longest);
    text.field("slowlog_commands_time_ms_sum", all);
    refusals(text, server);
}

/// The longest and the total time of slow commands in ms.
fn slow_ms(slow: &SlowStats) -> (String, String) {
    let ms = |usec: u64| format!("{:.2}", usec as f64 / 1000.0);
    let longest = slow.longest_usec.load(Ordering::Relaxed);
    (ms(longest), ms(slow.usec.get()))
}

fn refusals(text: &mut Text, server: &Server) {
    let stats = &server.stats;
    text.field(
        "client_query_buffer_limit_disconnections",
        stats.query_limit_disconnections.get(),
    );
    text.field(
        "client_output_buffer_limit_disconnections",
        stats.output_limit_disconnections.get(),
    );
    text.field("acl_access_denied_auth", stats.auth_failures.get());
    text.field("acl_access_denied_cmd", stats.denied_commands.get());
    text.field("acl_access_denied_key", stats.denied_keys.get());
    text.field("acl_access_denied_channel", stats.denied_channels.get());
    text.field("acl_access_denied_db", stats.denied_dbs.get());
    text.field(
        "acl_access_denied_tls_cert",
        stats.denied_certificates.get(),
    );
    let audit = server.audit.figures();
    let status = match (server.audit.is_on(), audit.failing) {
        (false, _) => "off",
        (true, true) => "err",
        (true, false) => "ok",
    };
    text.field("audit_log_status", status);
    text.field("audit_log_lines", audit.written);
    text.field("audit_log_lost_lines", audit.lost);
}

fn unsupported(text: &mut Text) {
    text.constants(&[
        ("latest_fork_usec", "0"),
        ("total_forks", "0"),
        ("slave_expires_tracked_keys", "0"),
        ("active_defrag_hits", "0"),
        ("active_defrag_misses", "0"),
        ("active_defrag_key_hits", "0"),
        ("active_defrag_key_misses", "0"),
        ("total_active_defrag_time", "0"),
        ("current_active_defrag_time", "0"),
    ]);
}

/// Calls `each` with name and counters of every command, in the registry's order.
fn each_command(server: &Server, mut each: impl FnMut(&str, &CommandStats)) {
    for (name, stats) in registry().names().iter().zip(&server.stats.per_command) {
        each(name, stats);
    }
}

pub(super) fn commands(text: &mut Text, server: &Server) {
    each_command(server, |name, stats| {
        let (calls, usec) = (stats.calls.get(), stats.usec.get());
        let (rejected, failed) = (stats.rejected.get(), stats.failed.get());
        if calls + rejected + failed == 0 {
            return;
        }
        let per_call = usec as f64 / calls.max(1) as f64;
        let mut slow = String::new();
        if stats.slow.calls.get() > 0 {
            let (longest, all) = slow_ms(&stats.slow);
            slow = format!(
                ",slowlog_count={},slowlog_time_ms_sum={all},slowlog_time_ms_max={longest}",
                stats.slow.calls.get()
            );
        }
        text.line(format_args!(
            "cmdstat_{name}:calls={calls},usec={usec},usec_per_call={per_call:.2},\
             rejected_calls={rejected},failed_calls={failed}{slow}"
        ));
    });
}

pub(super) fn errors(text: &mut Text, server: &Server) {
    for (code, count) in &*server.stats.errors.lock() {
        let code: String = code
            .chars()
            .map(|c| {
                if matches!(c, ':' | '\r' | '\n') {
                    '_'
                } else {
                    c
                }
            })
            .collect();
        text.line(format_args!("errorstat_{code}:count={count}"));
    }
}

pub(super) fn latencies(text: &mut Text, server: &Server) {
    let config = server.config.load();
    if !config.latency_tracking {
        return;
    }
    each_command(server, |name, stats| {
        let buckets = stats.times().buckets;
        if buckets.iter().all(|count| *count == 0) {
            return;
        }
        let percentiles: Vec<String> = config
            .latency_tracking_percentiles
            .0
            .iter()
            .map(|p| format!("p{p}={:.3}", percentile_us(&buckets, *p)))
            .collect();
        text.line(format_args!(
            "latency_percentiles_usec_{name}:{}",
            percentiles.join(",")
        ));
    });
}

/// The collection of HOTKEYS, if there is one.
pub(super) fn hot_keys(text: &mut Text, server: &Server) {
    if let Some(found) = server.hotkeys.findings(clock::unix_ms()) {
        text.field("hotkeys-tracking-active", u8::from(found.active));
        text.field("hotkeys-used-memory", found.memory);
        text.field("hotkeys-cpu-time", found.own_ms);
    }
}

/// The percentile of call durations in microseconds, where bucket `i` counts calls below
/// 2^i µs. Interpolates linearly within a bucket.
fn percentile_us(buckets: &[u64; LATENCY_BUCKETS], percent: f64) -> f64 {
    let total: u64 = buckets.iter().sum();
    let wanted = (total as f64 * percent / 100.0).max(1.0);
    let mut below = 0;
    for (i, count) in buckets.iter().enumerate() {
        let upper = (1u64 << i) as f64;
        if *count > 0 && (below + count) as f64 >= wanted {
            let lower = if i == 0 { 0.0 } else { upper / 2.0 };
            let within = (wanted - below as f64) / *count as f64;
            return lower + (upper - lower) * within;
        }
        below += count;
    }
    (1u64 << (LATENCY_BUCKETS - 1)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_in_their_bucket() {
        let mut buckets = [0; LATENCY_BUCKETS];
        buckets[3] = 98;
        buckets[10] = 2;
        let p50 = percentile_us(&buckets, 50.0);
        assert!((4.0..=8.0).contains(&p50), "{p50}");
        let p99 = percentile_us(&buckets, 99.0);
        assert!((512.0..=1024.0).contains(&p99), "{p99}");
        assert!(percentile_us(&buckets, 0.0) <= p50);
        assert_eq!(percentile_us(&buckets, 100.0), 1024.0);
    }
}
