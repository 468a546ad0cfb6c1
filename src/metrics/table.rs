//! The one table of metrics, by subject.
//!
//! Names follow Prometheus' conventions: base units (seconds, bytes) at the end, `_total` for
//! counters. A figure that INFO has, too, in the same unit, names its field, and a test compares
//! them.

mod clients;
mod commands;
mod compaction;
mod data;
mod memory;
mod process;
mod replication;

use super::samples::{Format, Kind, Number, Samples};
use super::scrape::Scrape;

/// Where the samples of a metric come from.
#[derive(Clone, Copy)]
enum Source {
    /// One sample without labels, or none.
    One(fn(&Scrape<'_>) -> Option<Number>),
    /// Any number of samples.
    Many(fn(&Scrape<'_>, &mut Samples)),
}

/// A metric.
#[derive(Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Its labels, besides `le` of histograms.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the manual"))]
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    /// The field of INFO with the same number; empty for none.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the manual"))]
    pub(super) info: &'static str,
    source: Source,
}

impl Metric {
    const fn info(self, field: &'static str) -> Metric {
        Metric {
            info: field,
            ..self
        }
    }
}

const fn metric(name: &'static str, kind: Kind, help: &'static str, source: Source) -> Metric {
    Metric {
        name,
        kind,
        labels: &[],
        help,
        info: "",
        source,
    }
}

/// A counter without labels.
const fn counter(
    name: &'static str,
    help: &'static str,
    value: fn(&Scrape<'_>) -> Option<Number>,
) -> Metric {
    metric(name, Kind::Counter, help, Source::One(value))
}

/// A gauge without labels.
const fn gauge(
    name: &'static str,
    help: &'static str,
    value: fn(&Scrape<'_>) -> Option<Number>,
) -> Metric {
    metric(name, Kind::Gauge, help, Source::One(value))
}

/// A metric with labels, or a histogram.
const fn many(
    kind: Kind,
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    fill: fn(&Scrape<'_>, &mut Samples),
) -> Metric {
    Metric {
        labels,
        ..metric(name, kind, help, Source::Many(fill))
    }
}

/// A number that is always there.
fn some(n: impl Into<Number>) -> Option<Number> {
    Some(n.into())
}

/// Microseconds as seconds.
fn seconds(us: u64) -> Option<Number> {
    some(us as f64 / 1e6)
}

/// The metrics by subject, with the titles of the manual.
pub(super) const SUBJECTS: &[(&str, &[Metric])] = &[
    ("The server and its threads", process::ROWS),
    ("Commands", commands::ROWS),
    ("Clients", clients::ROWS),
    ("Memory and caches", memory::ROWS),
    ("Data, expiry and the disk", data::ROWS),
    ("RocksDB", compaction::ROWS),
    ("Replication", replication::ROWS),
];

/// The page of all metrics.
pub(super) fn page(scrape: &Scrape<'_>, format: Format) -> String {
    let mut page = Samples::new(format);
    for metric in SUBJECTS.iter().flat_map(|(_, metrics)| *metrics) {
        page.family(metric.name, metric.kind, metric.help, |to| {
            match metric.source {
                Source::One(value) => {
                    if let Some(value) = value(scrape) {
                        to.value(value);
                    }
                }
                Source::Many(fill) => fill(scrape, to),
            }
        });
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = &'static Metric> {
        SUBJECTS.iter().flat_map(|(_, metrics)| *metrics)
    }

    #[test]
    fn names_follow_the_conventions() {
        let mut families = BTreeSet::new();
        for metric in all() {
            let name = metric.name;
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(is_plain), "{name}");
            let owns = name.starts_with("kedis_") || name.starts_with("process_");
            assert!(owns, "{name}");
            let is_counter = metric.kind == Kind::Counter;
            assert_eq!(name.ends_with("_total"), is_counter, "{name}");
            for unit in [
                "_ms",
                "_us",
                "_usec",
                "_milliseconds",
                "_percent",
                "_kb",
                "_mb",
            ] {
                let is_base = !name.trim_end_matches("_total").ends_with(unit);
                assert!(is_base, "{name}");
            }
            // In OpenMetrics a counter's family has no `_total`, and histograms take these names.
            let family = name.trim_end_matches("_total");
            assert!(families.insert(family.to_owned()), "{name} twice");
            if metric.kind == Kind::Histogram {
                for suffix in ["_bucket", "_sum", "_count"] {
                    let taken = format!("{name}{suffix}");
                    assert!(all().all(|other| other.name != taken), "{taken}");
                }
                assert!(!metric.labels.contains(&"le"), "{name}");
            }
            let help = metric.help;
            assert!(
                help.ends_with('.') && !help.contains(['|', '\n']),
                "{name}: {help}"
            );
            let needs_fill = !metric.labels.is_empty() || metric.kind == Kind::Histogram;
            assert_eq!(
                matches!(metric.source, Source::Many(_)),
                needs_fill,
                "{name}"
            );
            assert!(metric.info.is_empty() || metric.labels.is_empty(), "{name}");
        }
    }
}
