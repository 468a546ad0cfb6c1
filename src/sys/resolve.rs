//! Resolution of host names, with a wait that can be given up.
//!
//! The system's look-up cannot be interrupted, and takes as long as its name servers do not answer.
//! So it runs on a thread of its own. A caller that gives up leaves the thread behind, which ends
//! when the system gives up.

use crossbeam_channel::{RecvTimeoutError, bounded};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Duration;

/// The most look-ups that run at once, those included that were given up. Further look-ups wait
/// until one ends.
const MOST: usize = 8;
/// How often a waiting caller checks whether to give up.
const CHECK_EVERY: Duration = Duration::from_millis(50);

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The right to run a look-up; there are [`MOST`] of them.
struct Place;

impl Place {
    fn take() -> Option<Place> {
        let more = |n| (n < MOST).then_some(n + 1);
        let taken = UNDER_WAY.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok().then(|| Place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The addresses of `host`, with `port`. An address needs no look-up.
///
/// # Errors
/// The system's error; [`io::ErrorKind::Interrupted`] once `is_wanted` returns false.
pub fn resolve(host: &str, port: u16, is_wanted: impl Fn() -> bool) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let host = host.to_owned();
    look_up(is_wanted, move || {
        Ok((host.as_str(), port).to_socket_addrs()?.collect())
    })
}

fn look_up(
    is_wanted: impl Fn() -> bool,
    find: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let unwanted = || Err(io::ErrorKind::Interrupted.into());
    let place = loop {
        if let Some(place) = Place::take() {
            break place;
        }
        if !is_wanted() {
            return unwanted();
        }
        std::thread::sleep(CHECK_EVERY);
    };
    let (found, answer) = bounded(1);
    Builder::new().name("resolver".into()).spawn(move || {
        let addresses = find();
        drop(place);
        // The caller may have given up.
        let _ = found.send(addresses);
    })?;
    loop {
        match answer.recv_timeout(CHECK_EVERY) {
            Ok(addresses) => return addresses,
            Err(RecvTimeoutError::Timeout) if is_wanted() => {}
            Err(RecvTimeoutError::Timeout) => return unwanted(),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the look-up of a name panicked"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn addresses_are_found_and_names_looked_up() {
        let found = |host| resolve(host, 7, || true);
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(found("192.0.2.1").unwrap(), [address("192.0.2.1:7")]);
        assert_eq!(found("::1").unwrap(), [address("[::1]:7")]);
        let local = found("localhost").unwrap();
        assert!(local.iter().all(|a| a.ip().is_loopback()), "{local:?}");
        assert!(found("no such name").is_err());
    }

    /// Name servers that do not answer delay no caller that gives up, whatever the number of
    /// look-ups.
    #[test]
    fn a_caller_that_gives_up_waits_no_longer() {
        let started = Instant::now();
        let (end, ended) = bounded::<()>(0);
        for _ in 0..2 * MOST {
            let silent = ended.clone();
            let error = look_up(
                || false,
                move || {
                    // Until the other end is dropped.
                    let _ = silent.recv();
                    Ok(Vec::new())
                },
            );
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Interrupted);
        }
        assert!(started.elapsed() < Duration::from_secs(10));
        drop(end);
        // All look-ups have ended.
        let found = look_up(|| true, || Ok(Vec::new()));
        assert!(found.unwrap().is_empty());
    }
}
