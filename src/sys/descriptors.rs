//! The limit of open files and sockets of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The highest limit that [`raise`] can reach without root; `None` if there is no bound.
pub fn most() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Raises the limit to `wanted`, or as far as the system allows. Never lowers it. Returns the limit
/// after that.
pub fn raise(wanted: u64) -> u64 {
    let old = getrlimit(Resource::Nofile);
    let Some(current) = old.current.filter(|current| *current < wanted) else {
        return old.current.unwrap_or(u64::MAX);
    };
    // Root may raise the hard limit as well.
    let beyond = old.maximum.map(|maximum| maximum.max(wanted));
    for maximum in [beyond, old.maximum] {
        let reached = maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let new = Rlimit {
            current: Some(reached),
            maximum,
        };
        if setrlimit(Resource::Nofile, new).is_ok() {
            return reached;
        }
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_never_lowered() {
        let before = raise(0);
        assert_eq!(raise(16), before);
        assert!(raise(before + 1) >= before);
    }
}
