//! How many files and sockets the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most that [`raise`] can come to without the rights of root; `None`: there is no
/// bound.
pub fn most() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Raises the limit to `wanted`, or as far as the system lets it. Never lowers it.
/// Returns what it is then.
pub fn raise(wanted: u64) -> u64 {
    let old = getrlimit(Resource::Nofile);
    let Some(current) = old.current.filter(|current| *current < wanted) else {
        return old.current.unwrap_or(u64::MAX);
    };
    // Root may raise the upper bound as well.
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
