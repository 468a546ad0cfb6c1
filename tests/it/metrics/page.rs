//! A page of metrics, read as strictly as its format allows.

use std::collections::{BTreeMap, BTreeSet};

/// Labels with their values, `le` included.
pub type Labels = BTreeMap<String, String>;

/// A family of samples.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub help: String,
    /// The suffix after the family's name, the labels, and the value.
    pub samples: Vec<(String, Labels, f64)>,
}

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    /// By name, counters with `_total` in either format.
    pub families: BTreeMap<String, Family>,
    /// The number of samples.
    pub series: usize,
}

impl Page {
    /// Reads a page; panics where it breaks the format.
    pub fn read(text: &str, open_metrics: bool) -> Page {
        assert!(text.ends_with('\n'), "no end of the last line");
        let mut page = Page::default();
        let mut seen = BTreeSet::new();
        let mut now: Option<(String, Family)> = None;
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                page.end(now.take());
                let (name, help) = rest.split_once(' ').expect("a help");
                let kind = lines.next().and_then(|line| {
                    let rest = line.strip_prefix("# TYPE ")?;
                    rest.strip_prefix(name)?.strip_prefix(' ')
                });
                let kind = kind.unwrap_or_else(|| panic!("no type after {line}"));
                let name = match open_metrics && kind == "counter" {
                    true => format!("{name}_total"),
                    false => name.to_owned(),
                };
                assert!(is_name(&name), "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let (kind, help) = (kind.to_owned(), help.to_owned());
                let samples = Vec::new();
                now = Some((
                    name,
                    Family {
                        kind,
                        help,
                        samples,
                    },
                ));
            } else if line == "# EOF" {
                assert!(open_metrics && lines.peek().is_none(), "{line}");
            } else {
                let (name, labels, value) = sample(line);
                assert!(seen.insert((name.clone(), labels.clone())), "twice: {line}");
                let (family, all) = now.as_mut().unwrap_or_else(|| panic!("no head: {line}"));
                let suffix = name.strip_prefix(family.as_str());
                let suffix = suffix.unwrap_or_else(|| panic!("in {family}: {line}"));
                all.samples.push((suffix.to_owned(), labels, value));
                page.series += 1;
            }
        }
        page.end(now);
        assert_eq!(text.ends_with("# EOF\n"), open_metrics);
        page
    }

    /// Checks a whole family and adds it.
    fn end(&mut self, family: Option<(String, Family)>) {
        let Some((name, family)) = family else {
            return;
        };
        assert!(!family.samples.is_empty(), "{name} has no samples");
        assert!(!family.help.is_empty(), "{name}");
        assert_eq!(name.ends_with("_total"), family.kind == "counter", "{name}");
        for (suffix, labels, value) in &family.samples {
            let suffixes: &[&str] = match family.kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix.as_str()), "{name}{suffix}");
            assert_eq!(labels.contains_key("le"), suffix == "_bucket", "{name}");
            let rises = family.kind != "gauge";
            assert!(
                value.is_finite() && (!rises || *value >= 0.0),
                "{name}: {value}"
            );
        }
        if family.kind == "histogram" {
            check_histograms(&name, &family);
        }
        assert!(
            self.families.insert(name.clone(), family).is_none(),
            "{name} twice"
        );
    }

    /// The samples of a family.
    pub fn samples(&self, name: &str) -> &[(String, Labels, f64)] {
        self.families
            .get(name)
            .map_or(&[], |family| &family.samples)
    }

    /// The value of the only sample of a family.
    pub fn value(&self, name: &str) -> Option<f64> {
        match self.samples(name) {
            [(_, labels, value)] if labels.is_empty() => Some(*value),
            _ => None,
        }
    }

    /// The value of a sample with this label.
    pub fn labelled(&self, name: &str, label: &str, wanted: &str) -> Option<f64> {
        let samples = self.samples(name).iter();
        let mut found =
            samples.filter(|(_, labels, _)| labels.get(label).is_some_and(|l| l == wanted));
        found.next().map(|(.., value)| *value)
    }
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// A line with a sample: its name, labels and value.
fn sample(line: &str) -> (String, Labels, f64) {
    let broken = || -> ! { panic!("no sample: {line}") };
    let end = line.find(['{', ' ']).unwrap_or_else(|| broken());
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| broken());
            let (value, after) = quoted(after).unwrap_or_else(|| broken());
            assert!(is_name(label), "{line}");
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = match after.strip_prefix(',') {
                Some(more) if !more.starts_with('}') => more,
                _ => after,
            };
        }
        rest = rest.strip_prefix('}').unwrap_or_else(|| broken());
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| broken());
    assert!(is_name(name), "{line}");
    let value = value.parse().unwrap_or_else(|_| broken());
    (name.to_owned(), labels, value)
}

/// A value up to its closing quotation mark, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

/// The samples of a histogram with the same labels.
#[derive(Default)]
struct Histogram {
    /// Bounds and counts.
    buckets: Vec<(f64, f64)>,
    sum: Option<f64>,
    count: Option<f64>,
}

/// Buckets rise with their bounds, and the last one has all.
fn check_histograms(name: &str, family: &Family) {
    let mut all: BTreeMap<Labels, Histogram> = BTreeMap::new();
    for (suffix, labels, value) in &family.samples {
        let mut labels = labels.clone();
        let bound = labels.remove("le");
        let histogram = all.entry(labels).or_default();
        match (suffix.as_str(), bound) {
            ("_bucket", Some(bound)) => {
                let bound = bound.replace("+Inf", "inf").parse().unwrap();
                histogram.buckets.push((bound, *value));
            }
            ("_sum", _) => histogram.sum = Some(*value),
            _ => histogram.count = Some(*value),
        }
    }
    for (labels, histogram) in all {
        let Histogram {
            buckets,
            sum,
            count,
        } = histogram;
        let at = format!("{name} {labels:?}");
        for pair in buckets.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{at}: bounds fall: {buckets:?}");
            assert!(pair[0].1 <= pair[1].1, "{at}: counts fall: {buckets:?}");
        }
        let (bound, last) = buckets.last().expect("buckets");
        assert!(bound.is_infinite(), "{at}");
        assert_eq!(Some(*last), count, "{at}");
        assert!(sum.is_some(), "{at}");
    }
}

#[test]
#[should_panic(expected = "counts fall")]
fn a_histogram_that_falls_is_found() {
    let text = "# HELP a A.\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\n\
                a_sum 1\na_count 1\n";
    Page::read(text, false);
}

#[test]
#[should_panic(expected = "twice")]
fn a_sample_that_is_there_twice_is_found() {
    Page::read(
        "# HELP a A.\n# TYPE a gauge\na{b=\"1\"} 2\na{b=\"1\"} 2\n",
        false,
    );
}
