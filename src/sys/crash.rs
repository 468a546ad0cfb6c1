//! The handling of panics.

use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a stack trace is logged, too (`crash-log-enabled`).
static TRACES: AtomicBool = AtomicBool::new(true);

/// Sets whether a panic logs a stack trace.
pub fn log_traces(on: bool) {
    TRACES.store(on, Ordering::Relaxed);
}

/// Makes every panic end the process. A thread that panics may hold locks and half a batch, so the
/// process must not continue. Acknowledged writes are safe.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        log::error!("panic: {info}");
        if TRACES.load(Ordering::Relaxed) {
            log::error!("stack trace:");
            let trace = Backtrace::force_capture().to_string();
            trace.lines().for_each(|line| log::error!("{line}"));
        }
        report(info);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in the process that panics: `yes` or `no` for `crash-log-enabled`.
    const PANICS: &str = "KEDIS_TEST_PANICS";

    #[test]
    fn in_a_process_of_its_own_panics() {
        let Ok(traces) = std::env::var(PANICS) else {
            return;
        };
        env_logger::Builder::new()
            .filter_level(log::LevelFilter::Error)
            .init();
        log_traces(traces == "yes");
        abort_on_panic();
        panic!("on purpose");
    }

    #[test]
    fn a_stack_trace_is_in_the_log_if_it_is_wanted() {
        for traces in ["yes", "no"] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture"])
                .arg("sys::crash::tests::in_a_process_of_its_own_panics")
                .env(PANICS, traces)
                .env("RUST_BACKTRACE", "0")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{text}");
            assert!(
                text.contains("panic: ") && text.contains("on purpose"),
                "{text}"
            );
            let traced = text.contains("stack trace") && text.contains("crash::tests");
            assert_eq!(traced, traces == "yes", "{text}");
        }
    }
}
