//! Reports the state of this process to a service manager (`supervised`): to systemd over the
//! socket that `NOTIFY_SOCKET` names, to upstart by stopping itself.
//!
//! A service manager that cannot be reached is logged; the server continues.

use crossbeam_channel::{RecvTimeoutError, bounded};
use rustix::process::{Signal, getpid, kill_process};
use sd_notify::NotifyState;
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The environment variable with the name of systemd's socket; in the abstract namespace if it
/// begins with `@`.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// How often systemd is notified that a long operation continues.
const NOTIFY_EVERY: Duration = Duration::from_secs(5);
/// By how much each notification extends systemd's timeout, in µs.
const EXTENSION_US: u32 = 60_000_000;

/// The service manager that started this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supervisor {
    /// There is none.
    None,
    /// upstart, with `expect stop`.
    Upstart,
    /// systemd, with `Type=notify` or `notify-reload`.
    Systemd,
}

impl Supervisor {
    /// The service manager that `supervised` names (`no`, `auto`, `systemd`, `upstart`), if it
    /// started this process.
    pub fn find(wanted: &str) -> Supervisor {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let wants = |name| wanted == name || wanted == "auto";
        if wants("upstart") && is_set("UPSTART_JOB") {
            Supervisor::Upstart
        } else if wants("systemd") && is_set(NOTIFY_SOCKET) {
            Supervisor::Systemd
        } else {
            Supervisor::None
        }
    }

    /// Its name, as `supervised` and INFO have it.
    pub fn name(self) -> &'static str {
        match self {
            Supervisor::None => "no",
            Supervisor::Upstart => "upstart",
            Supervisor::Systemd => "systemd",
        }
    }

    /// Reports that the server is ready; `status` is a text for the administrator.
    pub fn ready(self, status: &str) {
        if self == Supervisor::Upstart
            && let Err(error) = kill_process(getpid(), Signal::STOP)
        {
            log::error!("cannot notify upstart that the server is ready: {error}");
        }
        self.notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Reports that the start or stop takes longer.
    pub fn wait(self, status: &str) {
        self.notify(&[
            NotifyState::Status(status),
            NotifyState::ExtendTimeoutUsec(EXTENSION_US),
        ]);
    }

    /// Runs `work`, which may take long, and notifies systemd meanwhile that it continues.
    pub fn patiently<T>(self, status: &str, work: impl FnOnce() -> T) -> T {
        if self != Supervisor::Systemd {
            return work();
        }
        let (done, is_done) = bounded::<()>(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    self.wait(status);
                    let waited = is_done.recv_timeout(NOTIFY_EVERY);
                    if !matches!(waited, Err(RecvTimeoutError::Timeout)) {
                        return;
                    }
                }
            });
            let result = work();
            drop(done);
            result
        })
    }

    /// Reports that the server reloads after SIGHUP, until it is [ready](Supervisor::ready) again.
    pub fn reloading(self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(error) => log::error!("no monotonic clock: {error}"),
        }
    }

    /// Reports that the server stops.
    pub fn stopping(self) {
        self.notify(&[NotifyState::Stopping, NotifyState::Status("Stopping")]);
    }

    /// The interval in which systemd's watchdog expects [`Supervisor::alive`], if it is enabled:
    /// half of its `WatchdogSec`.
    pub fn watchdog_period(self) -> Option<Duration> {
        let period = sd_notify::watchdog_enabled().filter(|_| self == Supervisor::Systemd);
        period.map(|period| period / 2)
    }

    /// Notifies the watchdog.
    pub fn alive(self) {
        self.notify(&[NotifyState::Watchdog]);
    }

    fn notify(self, states: &[NotifyState<'_>]) {
        static FAILS: AtomicBool = AtomicBool::new(false);
        if self != Supervisor::Systemd {
            return;
        }
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        match send(&message) {
            Ok(()) => FAILS.store(false, Ordering::Relaxed),
            // Logged once, not with every message.
            Err(error) if !FAILS.swap(true, Ordering::Relaxed) => {
                log::warn!("cannot notify systemd: {error}");
            }
            Err(_) => {}
        }
    }
}

/// Sends systemd a message. The function of the crate `sd_notify` does not support abstract
/// sockets, and blocks if the manager does not read.
fn send(message: &str) -> io::Result<()> {
    let name = env::var_os(NOTIFY_SOCKET).unwrap_or_default();
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}
