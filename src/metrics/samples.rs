//! A page of samples: Prometheus' text format 0.0.4, or OpenMetrics 1.0, which differs in the names of
//! counters' families and has a line at the end.

use crate::base::histogram::{BUCKETS, Counts};
use std::fmt::Write;
use std::sync::LazyLock;

/// The two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Labels of a sample, with their values.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// A value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(n: u64) -> Number {
        Number::Int(n)
    }
}

impl From<u32> for Number {
    fn from(n: u32) -> Number {
        Number::Int(n.into())
    }
}

impl From<usize> for Number {
    fn from(n: usize) -> Number {
        Number::Int(n as u64)
    }
}

impl From<f64> for Number {
    fn from(n: f64) -> Number {
        Number::Real(n)
    }
}

impl From<bool> for Number {
    fn from(is: bool) -> Number {
        Number::Int(is.into())
    }
}

/// What the numbers of a histogram are, and which bounds it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// Microseconds, shown as seconds, from 1 µs to 16.8 s.
    Micros,
    /// Numbers from 1 to 8191.
    Whole,
}

impl Scale {
    /// The buckets that it shows.
    fn shown(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Scale::Micros => 0..=24,
            Scale::Whole => 1..=13,
        }
    }

    /// The bounds of the buckets as text.
    fn bounds(self) -> &'static [String; BUCKETS] {
        static MICROS: LazyLock<[String; BUCKETS]> =
            LazyLock::new(|| std::array::from_fn(|i| real((1u64 << i) as f64 / 1e6)));
        // Whole numbers below 2^i are at most one less.
        static WHOLE: LazyLock<[String; BUCKETS]> =
            LazyLock::new(|| std::array::from_fn(|i| real(((1u64 << i) - 1) as f64)));
        match self {
            Scale::Micros => &MICROS,
            Scale::Whole => &WHOLE,
        }
    }

    fn sum(self, sum: u64) -> Number {
        match self {
            Scale::Micros => Number::Real(sum as f64 / 1e6),
            Scale::Whole => Number::Int(sum),
        }
    }
}

/// A real number, with a point also if it is whole.
fn real(n: f64) -> String {
    match n.fract() == 0.0 {
        true => format!("{n:.1}"),
        false => n.to_string(),
    }
}

/// The page under construction.
pub(super) struct Samples {
    text: String,
    format: Format,
    /// The name of the present family.
    name: &'static str,
}

impl Samples {
    pub(super) fn new(format: Format) -> Samples {
        Samples {
            text: String::with_capacity(64 << 10),
            format,
            name: "",
        }
    }

    /// Writes a family: its head, and the samples that `fill` adds. Without samples nothing is
    /// written.
    pub(super) fn family(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &str,
        fill: impl FnOnce(&mut Samples),
    ) {
        let start = self.text.len();
        let family = match (self.format, kind) {
            (Format::OpenMetrics, Kind::Counter) => name.trim_end_matches("_total"),
            _ => name,
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {family} {help}");
        let _ = writeln!(self.text, "# TYPE {family} {}", kind.name());
        let head = self.text.len();
        self.name = name;
        fill(self);
        if self.text.len() == head {
            self.text.truncate(start);
        }
    }

    /// A sample without labels.
    pub(super) fn value(&mut self, value: impl Into<Number>) {
        self.add(&[], value);
    }

    /// A sample.
    pub(super) fn add(&mut self, labels: Labels<'_>, value: impl Into<Number>) {
        self.line("", labels, None, value.into());
    }

    /// A histogram.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, counts: &Counts, scale: Scale) {
        let shown = scale.shown();
        let mut so_far = 0;
        let each = counts.buckets.iter().zip(scale.bounds()).enumerate();
        for (i, (count, bound)) in each {
            so_far += count;
            if shown.contains(&i) {
                let bound = Some(bound.as_str());
                self.line("_bucket", labels, bound, Number::Int(so_far));
            }
        }
        self.line("_bucket", labels, Some("+Inf"), Number::Int(so_far));
        self.line("_sum", labels, None, scale.sum(counts.sum));
        self.line("_count", labels, None, Number::Int(so_far));
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: Number) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        if !labels.is_empty() || bound.is_some() {
            self.text.push('{');
            for (i, (label, value)) in labels.iter().enumerate() {
                if i > 0 {
                    self.text.push(',');
                }
                self.text.push_str(label);
                self.text.push_str("=\"");
                self.escaped(value);
                self.text.push('"');
            }
            if let Some(bound) = bound {
                if !labels.is_empty() {
                    self.text.push(',');
                }
                self.text.push_str("le=\"");
                self.text.push_str(bound);
                self.text.push('"');
            }
            self.text.push('}');
        }
        self.text.push(' ');
        match value {
            Number::Int(n) => self.text.push_str(itoa::Buffer::new().format(n)),
            // Writing to a string cannot fail.
            Number::Real(n) => _ = write!(self.text, "{n}"),
        }
        self.text.push('\n');
    }

    /// A value between quotation marks.
    fn escaped(&mut self, value: &str) {
        if !value.contains(['\\', '"', '\n']) {
            return self.text.push_str(value);
        }
        for c in value.chars() {
            match c {
                '\n' => self.text.push_str("\\n"),
                '\\' | '"' => self.text.extend(['\\', c]),
                c => self.text.push(c),
            }
        }
    }

    /// The page.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::histogram::Histogram;

    #[test]
    fn both_formats() {
        let page = |format| {
            let mut page = Samples::new(format);
            page.family("a_total", Kind::Counter, "A\\b\nc.", |to| {
                to.add(&[("x", "a\"b\\c\nd"), ("y", "2")], 1u64);
            });
            page.family("none", Kind::Gauge, "None.", |_| {});
            page.family("b", Kind::Gauge, "B.", |to| to.value(0.5));
            page.finish()
        };
        let samples = "a_total{x=\"a\\\"b\\\\c\\nd\",y=\"2\"} 1\n";
        let text = format!(
            "# HELP a_total A\\\\b\\nc.\n# TYPE a_total counter\n{samples}\
             # HELP b B.\n# TYPE b gauge\nb 0.5\n"
        );
        assert_eq!(page(Format::Text), text);
        let open = text
            .replace("HELP a_total", "HELP a")
            .replace("TYPE a_total", "TYPE a");
        assert_eq!(page(Format::OpenMetrics), open + "# EOF\n");
    }

    #[test]
    fn buckets_are_cumulative_and_the_last_one_has_all() {
        let histogram = Histogram::default();
        for n in [0, 1, 5, u64::MAX >> 1] {
            histogram.note(n);
        }
        let mut page = Samples::new(Format::Text);
        page.family("t_seconds", Kind::Histogram, "T.", |to| {
            to.histogram(&[("c", "x")], &histogram.counts(), Scale::Micros);
        });
        let page = page.finish();
        for line in [
            "t_seconds_bucket{c=\"x\",le=\"0.000001\"} 1",
            "t_seconds_bucket{c=\"x\",le=\"0.000002\"} 2",
            "t_seconds_bucket{c=\"x\",le=\"0.000004\"} 2",
            "t_seconds_bucket{c=\"x\",le=\"0.000008\"} 3",
            "t_seconds_bucket{c=\"x\",le=\"16.777216\"} 3",
            "t_seconds_bucket{c=\"x\",le=\"+Inf\"} 4",
            "t_seconds_count{c=\"x\"} 4",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        let whole = Histogram::default();
        whole.note(1);
        whole.note(3);
        let mut page = Samples::new(Format::Text);
        page.family("n", Kind::Histogram, "N.", |to| {
            to.histogram(&[], &whole.counts(), Scale::Whole);
        });
        let page = page.finish();
        for line in [
            "n_bucket{le=\"1.0\"} 1",
            "n_bucket{le=\"3.0\"} 2",
            "n_sum 4",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
