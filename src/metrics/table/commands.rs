//! Commands by name.

use super::super::samples::Kind::{Counter, Histogram};
use super::super::samples::{Samples, Scale};
use super::super::scrape::Scrape;
use super::{Metric, counter, gauge, many, seconds, some};
use crate::commands::registry;
use crate::state::stats::CommandStats;

/// Calls `each` with name and counters of every command that was called or refused.
fn each(scrape: &Scrape<'_>, mut each: impl FnMut(&str, &CommandStats)) {
    let names = registry().names();
    for (name, stats) in names.into_iter().zip(&scrape.stats.per_command) {
        if stats.calls.get() + stats.rejected.get() + stats.failed.get() > 0 {
            each(name, stats);
        }
    }
}

fn times(scrape: &Scrape<'_>, to: &mut Samples) {
    if !scrape.config.latency_tracking {
        return;
    }
    each(scrape, |name, stats| {
        to.histogram(&[("command", name)], &stats.times(), Scale::Micros);
    });
}

pub(super) const ROWS: &[Metric] = &[
    many(
        Counter,
        "kedis_commands_total",
        &["command"],
        "Calls of a command.",
        |s, to| {
            each(s, |name, stats| {
                to.add(&[("command", name)], stats.calls.get())
            })
        },
    ),
    many(
        Counter,
        "kedis_commands_failed_total",
        &["command"],
        "Calls of a command that failed.",
        |s, to| {
            each(s, |name, stats| {
                to.add(&[("command", name)], stats.failed.get())
            })
        },
    ),
    many(
        Counter,
        "kedis_commands_rejected_total",
        &["command"],
        "Calls of a command that were refused before it ran.",
        |s, to| {
            each(s, |name, stats| {
                to.add(&[("command", name)], stats.rejected.get())
            })
        },
    ),
    many(
        Counter,
        "kedis_commands_busy_seconds_total",
        &["command"],
        "Time that all calls of a command took.",
        |s, to| {
            each(s, |name, stats| {
                to.add(&[("command", name)], stats.usec.get() as f64 / 1e6);
            });
        },
    ),
    many(
        Histogram,
        "kedis_command_duration_seconds",
        &["command"],
        "Time of a call of a command; absent while `latency-tracking` is `no`.",
        times,
    ),
    many(
        Counter,
        "kedis_commands_slow_total",
        &["command"],
        "Calls of a command that took longer than `slowlog-log-slower-than`.",
        |s, to| {
            each(s, |name, stats| {
                let slow = stats.slow.calls.get();
                if slow > 0 {
                    to.add(&[("command", name)], slow);
                }
            });
        },
    ),
    counter(
        "kedis_commands_processed_total",
        "Calls of all commands.",
        |s| some(s.stats.commands.get()),
    )
    .info("total_commands_processed"),
    counter(
        "kedis_slow_commands_total",
        "Calls that took longer than `slowlog-log-slower-than`.",
        |s| some(s.stats.slow.calls.get()),
    )
    .info("slowlog_commands_count"),
    counter(
        "kedis_slow_commands_seconds_total",
        "Time that these calls took.",
        |s| seconds(s.stats.slow.usec.get()),
    ),
    counter("kedis_error_replies_total", "Error replies.", |s| {
        some(s.stats.error_replies.get())
    })
    .info("total_error_replies"),
    many(
        Counter,
        "kedis_errors_total",
        &["code"],
        "Error replies by their first word, for the first 128 different ones.",
        |s, to| {
            // A copy: replies with errors take the lock, too.
            let errors = s.stats.errors.lock().clone();
            for (code, count) in errors {
                to.add(&[("code", &code)], count);
            }
        },
    ),
    counter(
        "kedis_lookups_hits_total",
        "Look-ups of reading commands that found their key.",
        |s| some(s.stats.keyspace_hits.get()),
    )
    .info("keyspace_hits"),
    counter(
        "kedis_lookups_misses_total",
        "Look-ups of reading commands that did not.",
        |s| some(s.stats.keyspace_misses.get()),
    )
    .info("keyspace_misses"),
    gauge(
        "kedis_scripts_cached",
        "Scripts in the cache of EVAL.",
        |s| some(s.server.scripts.cached().0),
    )
    .info("number_of_cached_scripts"),
    counter(
        "kedis_scripts_evicted_total",
        "Scripts that the cache has given up.",
        |s| some(s.server.scripts.evicted()),
    )
    .info("evicted_scripts"),
    gauge("kedis_function_libraries", "Libraries of functions.", |s| {
        some(s.server.scripts.libraries().len())
    })
    .info("number_of_libraries"),
];
