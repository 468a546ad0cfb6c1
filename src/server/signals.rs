//! Signals, as flags that the main thread checks when it wakes.

use crate::state::Shutdown;
use crate::state::config::Config;
use mio::Waker;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

/// Signals that have arrived and are not handled yet.
pub(super) struct Signals {
    /// SIGINT or SIGTERM.
    stop: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
}

impl Signals {
    /// Installs the handlers. A second SIGINT or SIGTERM ends the process at once.
    pub(super) fn watch(waker: &Arc<Waker>) -> io::Result<Signals> {
        let flag = || Arc::new(AtomicBool::new(false));
        let (stop, interrupt, hang_up) = (flag(), flag(), flag());
        signal_hook::flag::register(SIGINT, interrupt.clone())?;
        signal_hook::flag::register(SIGHUP, hang_up.clone())?;
        let (sender, mut receiver) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
            signal_hook::flag::register(signal, stop.clone())?;
        }
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        let waker = waker.clone();
        Builder::new().name("signals".into()).spawn(move || {
            let mut byte = [0];
            while let Ok(1) = receiver.read(&mut byte) {
                if let Err(error) = waker.wake() {
                    log::error!("cannot wake the main thread: {error}");
                }
            }
        })?;
        Ok(Signals {
            stop,
            interrupt,
            hang_up,
        })
    }

    /// The shutdown that a signal asks for, if any.
    pub(super) fn stop_wanted(&self, config: &Config) -> Option<Shutdown> {
        if !self.stop.load(Ordering::Acquire) {
            return None;
        }
        let words = match self.interrupt.load(Ordering::Acquire) {
            true => &config.shutdown_on_sigint,
            false => &config.shutdown_on_sigterm,
        };
        Some(Shutdown {
            save: !words.0.contains(&"nosave"),
            now: words.0.contains(&"now"),
        })
    }

    /// Clears a stop that was cancelled.
    pub(super) fn forget_stop(&self) {
        self.interrupt.store(false, Ordering::Release);
        self.stop.store(false, Ordering::Release);
    }

    /// Whether a SIGHUP has arrived since the last call.
    pub(super) fn take_hang_up(&self) -> bool {
        self.hang_up.swap(false, Ordering::AcqRel)
    }
}
