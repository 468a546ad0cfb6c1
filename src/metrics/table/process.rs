//! The process, its threads and their ticks.

use super::super::health;
use super::super::samples::Kind::{Counter, Gauge, Histogram};
use super::super::samples::{Samples, Scale};
use super::super::scrape::Scrape;
use super::{Metric, counter, gauge, many, some};
use crate::base::histogram::{self, Counts};
use crate::commands::info;
use crate::state::process;
use crate::state::ticks::Ticks;
use crate::sys::threads;

const NS: f64 = 1e9;

/// Calls `each` for the ticks of each IO thread, with the thread's name.
fn each_thread(scrape: &Scrape<'_>, mut each: impl FnMut(&str, &Ticks)) {
    for (number, ticks) in scrape.server.ticks.iter().enumerate() {
        each(&format!("io-{number}"), ticks);
    }
}

/// A histogram over all IO threads.
fn of_all(scrape: &Scrape<'_>, of: impl Fn(&Ticks) -> &histogram::Histogram) -> Counts {
    let mut all = histogram::Histogram::default().counts();
    for ticks in &scrape.server.ticks {
        let counts = of(ticks).counts();
        let pairs = all.buckets.iter_mut().zip(counts.buckets);
        pairs.for_each(|(sum, count)| *sum += count);
        all.sum += counts.sum;
    }
    all
}

fn build(_: &Scrape<'_>, to: &mut Samples) {
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("redis_version", info::REDIS_VERSION),
    ];
    to.add(&labels, 1u64);
}

fn cpu(scrape: &Scrape<'_>, to: &mut Samples) {
    for (name, ns) in &scrape.threads {
        to.add(&[("thread", name)], *ns as f64 / NS);
    }
}

pub(super) const ROWS: &[Metric] = &[
    many(
        Gauge,
        "kedis_build_info",
        &["version", "redis_version"],
        "Always 1; the labels have the versions.",
        build,
    ),
    gauge(
        "process_start_time_seconds",
        "When the process started, in seconds since 1970.",
        |s| some(s.server.started_ms.0 as f64 / 1000.0),
    ),
    counter(
        "process_cpu_seconds_total",
        "Processor time of the process, in user mode and in the kernel.",
        |_| {
            let all = process::cpu_times();
            some(all.user_s + all.system_s)
        },
    ),
    gauge(
        "process_resident_memory_bytes",
        "Memory of the process that is resident.",
        |s| some(s.memory.rss),
    ),
    gauge(
        "process_open_fds",
        "Open file descriptors; absent where Linux is older than 6.2.",
        |_| threads::open_files().map(Into::into),
    ),
    gauge("process_max_fds", "Limit of open file descriptors.", |_| {
        threads::most_files().map(Into::into)
    }),
    gauge(
        "kedis_ready",
        "Whether the server is ready, as /readyz says.",
        |s| some(health::not_ready(s.server).is_empty()),
    ),
    gauge(
        "kedis_loading",
        "Whether a file of Redis is being loaded.",
        |s| some(s.server.loading.is_on()),
    )
    .info("loading"),
    many(
        Counter,
        "kedis_thread_cpu_seconds_total",
        &["thread"],
        "Processor time by thread; threads that are many of a sort count together.",
        cpu,
    ),
    many(
        Counter,
        "kedis_thread_ticks_total",
        &["thread"],
        "Ticks of an IO thread that ran commands.",
        |s, to| {
            each_thread(s, |name, ticks| {
                to.add(&[("thread", name)], ticks.times.counts().total());
            });
        },
    ),
    many(
        Counter,
        "kedis_thread_commands_total",
        &["thread"],
        "Commands that an IO thread ran in its ticks.",
        |s, to| {
            each_thread(s, |name, ticks| {
                to.add(&[("thread", name)], ticks.commands.counts().sum);
            });
        },
    ),
    many(
        Counter,
        "kedis_thread_busy_seconds_total",
        &["thread"],
        "Time that an IO thread ran commands, without commits and sending.",
        |s, to| {
            each_thread(s, |name, ticks| {
                to.add(&[("thread", name)], ticks.times.counts().sum as f64 / 1e6);
            });
        },
    ),
    many(
        Histogram,
        "kedis_tick_commands",
        &[],
        "Commands in a tick of an IO thread, which are committed together.",
        |s, to| to.histogram(&[], &of_all(s, |ticks| &ticks.commands), Scale::Whole),
    ),
    many(
        Histogram,
        "kedis_tick_duration_seconds",
        &[],
        "Time that the commands of a tick ran.",
        |s, to| to.histogram(&[], &of_all(s, |ticks| &ticks.times), Scale::Micros),
    ),
    many(
        Histogram,
        "kedis_commit_duration_seconds",
        &[],
        "Time of the commit at the end of a tick that writes, the wait for other commits included.",
        |s, to| to.histogram(&[], &of_all(s, |ticks| &ticks.commits), Scale::Micros),
    ),
    many(
        Histogram,
        "kedis_sync_duration_seconds",
        &[],
        "Time of a sync of the logs to the disk.",
        |s, to| to.histogram(&[], &s.engine.sync_times(), Scale::Micros),
    ),
    gauge("kedis_workers", "Slow-command workers.", |s| {
        some(s.workers.workers)
    }),
    gauge(
        "kedis_workers_busy",
        "Slow-command workers that run a request.",
        |s| some(s.workers.busy),
    ),
    gauge(
        "kedis_workers_scripts",
        "Scripts that run on slow-command workers.",
        |s| some(s.workers.scripts),
    ),
    gauge(
        "kedis_workers_queued",
        "Requests that wait for a slow-command worker.",
        |s| some(s.workers.queued),
    ),
    counter(
        "kedis_workers_requests_total",
        "Requests that slow-command workers have run.",
        |s| some(s.stats.worker_requests.get()),
    )
    .info("worker_requests"),
];
