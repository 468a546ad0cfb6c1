//! What a service manager hears of this process (`supervised`): systemd over the socket
//! that `NOTIFY_SOCKET` names, upstart by a stop that it ends.
//!
//! A service manager that cannot be reached is said in the log; the server runs on.

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

/// Names the socket on which systemd listens; in the abstract namespace if it begins with
/// `@`.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// How often systemd hears that what takes long goes on.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// For how long it then waits for the next time, in µs.
const EXTENSION_US: u32 = 60_000_000;

/// The service manager that started this process and is told of its state.
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
    /// The one that `supervised` asks for (`no`, `auto`, `systemd`, `upstart`), if it is
    /// there.
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

    /// The server answers; `status` says how.
    pub fn ready(self, status: &str) {
        if self == Supervisor::Upstart
            && let Err(error) = kill_process(getpid(), Signal::STOP)
        {
            log::error!("upstart does not hear that the server is ready: {error}");
        }
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The server is not ready yet, or not stopped yet, but works on it.
    pub fn wait(self, status: &str) {
        self.tell(&[
            NotifyState::Status(status),
            NotifyState::ExtendTimeoutUsec(EXTENSION_US),
        ]);
    }

    /// Does what may take long; systemd hears meanwhile that it goes on.
    pub fn patiently<T>(self, status: &str, work: impl FnOnce() -> T) -> T {
        if self != Supervisor::Systemd {
            return work();
        }
        let (done, is_done) = bounded::<()>(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    self.wait(status);
                    let waited = is_done.recv_timeout(TELL_EVERY);
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

    /// The server does what SIGHUP asks for, until it is [ready](Supervisor::ready) again.
    pub fn reloading(self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(error) => log::error!("no monotonic clock: {error}"),
        }
    }

    /// The server stops.
    pub fn stopping(self) {
        self.tell(&[NotifyState::Stopping, NotifyState::Status("Stopping")]);
    }

    /// How often systemd wants to [hear](Supervisor::alive) that the server lives, if it
    /// does: twice in its `WatchdogSec`.
    pub fn watchdog_period(self) -> Option<Duration> {
        let period = sd_notify::watchdog_enabled().filter(|_| self == Supervisor::Systemd);
        period.map(|period| period / 2)
    }

    /// The server lives.
    pub fn alive(self) {
        self.tell(&[NotifyState::Watchdog]);
    }

    fn tell(self, states: &[NotifyState<'_>]) {
        static FAILS: AtomicBool = AtomicBool::new(false);
        if self != Supervisor::Systemd {
            return;
        }
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        match send(&message) {
            Ok(()) => FAILS.store(false, Ordering::Relaxed),
            // Once, not with every message.
            Err(error) if !FAILS.swap(true, Ordering::Relaxed) => {
                log::warn!("systemd does not hear how the server is: {error}");
            }
            Err(_) => {}
        }
    }
}

/// Sends systemd a message. The crate's own function knows no abstract sockets, and waits
/// for a manager that does not read.
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
