//! Display of figures: a bar on a terminal, log lines elsewhere, JSON in the metrics
//! file.

use super::error::{Error, Result};
use super::stats::{Phase, Stats};
use crate::sys::clock;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// How often figures are appended to the metrics file.
const METRICS_EVERY: Duration = Duration::from_secs(1);
/// How often a line is logged where no bar can be drawn.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The reporting thread; ends with [`Reporter::end`] or when dropped.
pub struct Reporter {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Starts to report.
    pub fn start(metrics: Option<&Path>, stats: &Arc<Stats>) -> Result<Reporter> {
        let metrics: Option<Box<dyn Write + Send>> = match metrics {
            None => None,
            Some(path) if path == Path::new("-") => Some(Box::new(std::io::stdout())),
            Some(path) => {
                let file = File::options().create(true).append(true).open(path);
                let file = file.map_err(|error| Error::file(path, error))?;
                Some(Box::new(file))
            }
        };
        let over = Arc::new(AtomicBool::new(false));
        let mut report = Report {
            stats: stats.clone(),
            metrics,
            bar: std::io::stderr().is_terminal().then(bar),
            phase: Phase::Connecting,
            template: "",
            before: (Instant::now(), [0; 3]),
            rates: [0.0; 3],
            measured: Instant::now(),
            lined: Instant::now(),
        };
        let ends = over.clone();
        let thread = std::thread::Builder::new().name("progress".into());
        let thread = thread.spawn(move || {
            while !ends.load(Ordering::Acquire) {
                std::thread::park_timeout(DRAW_EVERY);
                report.turn(false);
            }
            report.turn(true);
        });
        Ok(Reporter {
            over,
            thread: Some(thread.map_err(|error| Error::File {
                path: "a thread".into(),
                error,
            })?),
        })
    }

    /// Shows the final figures and stops.
    pub fn end(self) {}
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn bar() -> ProgressBar {
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
}

/// Whether nothing of the data set has arrived: the source may take long to begin.
fn is_waiting(stats: &Stats) -> bool {
    let figures = [&stats.keys, &stats.left_out, &stats.keys_expected];
    figures
        .iter()
        .all(|figure| figure.load(Ordering::Relaxed) == 0)
}

/// The bar's template. There is a bar only if the total is known.
fn template(phase: Phase, expected: u64) -> &'static str {
    match phase {
        Phase::Copying | Phase::Comparing if expected > 0 => "{prefix} {wide_bar} {percent}% {msg}",
        _ => "{prefix} {spinner} {msg}",
    }
}

struct Report {
    stats: Arc<Stats>,
    metrics: Option<Box<dyn Write + Send>>,
    bar: Option<ProgressBar>,
    phase: Phase,
    /// The current template of the bar.
    template: &'static str,
    /// Keys, commands and bytes out when the rates were last measured.
    before: (Instant, [u64; 3]),
    /// Their rates per second.
    rates: [f64; 3],
    measured: Instant,
    lined: Instant,
}

impl Report {
    fn turn(&mut self, is_last: bool) {
        let phase = self.stats.phase();
        let is_new = phase != self.phase;
        self.phase = phase;
        if self.measured.elapsed() >= METRICS_EVERY || is_last {
            self.measured = Instant::now();
            self.measure();
            self.write_metrics();
        }
        match self.bar.clone() {
            Some(bar) => {
                self.draw(&bar);
                if is_last {
                    bar.abandon();
                }
            }
            // The job has told its end already.
            None if is_last => {}
            None if is_new || self.lined.elapsed() >= LINE_EVERY => {
                self.lined = Instant::now();
                log::info!("{}: {}", phase.name(), self.figures());
            }
            None => {}
        }
    }

    fn measure(&mut self) {
        let load = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        let stats = &self.stats;
        let now = [
            load(&stats.keys),
            load(&stats.commands),
            load(&stats.bytes_out),
        ];
        let (since, before) = self.before;
        let seconds = since.elapsed().as_secs_f64().max(1e-3);
        for ((rate, now), before) in self.rates.iter_mut().zip(now).zip(before) {
            *rate = now.saturating_sub(before) as f64 / seconds;
        }
        self.before = (Instant::now(), now);
    }

    fn figures(&self) -> String {
        let load = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        let stats = &self.stats;
        let [keys, commands, bytes] = self.rates;
        let mut text = match self.phase {
            Phase::Connecting => "waiting for the servers".to_owned(),
            Phase::Copying if is_waiting(stats) => "waiting for the source's data set".to_owned(),
            Phase::Copying | Phase::Comparing => {
                format!("{} keys, {keys:.0}/s", load(&stats.keys))
            }
            Phase::Watching => format!(
                "{} changes, {commands:.0}/s, {} waiting",
                load(&stats.commands),
                load(&stats.waiting)
            ),
            Phase::Following => format!(
                "{} commands, {commands:.0}/s, {} bytes behind",
                load(&stats.commands),
                load(&stats.lag)
            ),
        };
        // Writing to a String cannot fail.
        let _ = write!(text, ", {:.1} MB/s", bytes / 1e6);
        let expected = load(&stats.keys_expected);
        let left = expected.saturating_sub(load(&stats.keys) + load(&stats.left_out));
        if self.phase == Phase::Copying && keys >= 1.0 && left > 0 {
            let _ = write!(text, ", {:.0} s to go", left as f64 / keys);
        }
        let errors = load(&stats.errors);
        if errors > 0 {
            let what = match self.phase {
                Phase::Comparing => "differ",
                _ => "refused",
            };
            let _ = write!(text, ", {errors} {what}");
        }
        text
    }

    fn draw(&mut self, bar: &ProgressBar) {
        let expected = self.stats.keys_expected.load(Ordering::Relaxed);
        let template = template(self.phase, expected);
        if template != self.template {
            self.template = template;
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
        }
        bar.set_prefix(self.phase.name());
        let done = &self.stats;
        bar.set_length(expected);
        let left_out = done.left_out.load(Ordering::Relaxed);
        bar.set_position(done.keys.load(Ordering::Relaxed) + left_out);
        bar.set_message(self.figures());
        bar.tick();
    }

    fn write_metrics(&mut self) {
        let Some(out) = &mut self.metrics else {
            return;
        };
        let mut line = format!(
            "{{\"time_ms\":{},\"phase\":\"{}\"",
            clock::unix_ms(),
            self.phase.name()
        );
        for (name, figure) in self.stats.figures() {
            let _ = write!(line, ",\"{name}\":{figure}");
        }
        let [keys, commands, bytes] = self.rates;
        let _ = write!(
            line,
            ",\"keys_per_s\":{keys:.0},\"commands_per_s\":{commands:.0},\"bytes_out_per_s\":{bytes:.0}}}"
        );
        let written = writeln!(out, "{line}").and_then(|()| out.flush());
        if let Err(error) = written {
            log::error!("metrics: {error}");
            self.metrics = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bar used to be full while the source had sent nothing.
    #[test]
    fn nothing_of_an_unknown_length_is_no_full_bar() {
        for phase in [Phase::Copying, Phase::Comparing, Phase::Following] {
            assert!(!template(phase, 0).contains("bar"), "{phase:?}");
        }
        assert!(template(Phase::Copying, 5).contains("bar"));
        let stats = Stats::default();
        assert!(is_waiting(&stats));
        stats.left_out.store(1, Ordering::Relaxed);
        assert!(!is_waiting(&stats));
    }
}
