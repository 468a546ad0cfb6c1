//! Processor time of threads by name. Threads of one sort that come and go, or are many, count together.

use crate::sys::threads;
use std::collections::BTreeMap;

/// The processor times of all threads since the process began.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: BTreeMap<u32, Known>,
    /// The times of threads that have ended, by name.
    ended: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Known {
    name: String,
    ns: u64,
}

/// What a thread without a name of its own counts under: it has that of the process, and all of Kedis'
/// threads have names. This one collects RocksDB's statistics.
const UNNAMED: &str = "rocksdb:timer";

/// The name that a thread counts under: without its number, but for those that serve clients.
fn counted_as(name: &str) -> &str {
    if name.starts_with("io-") || name.starts_with("worker-") {
        return name;
    }
    let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match rest.len() == name.len() {
        true => name,
        false => rest.trim_end_matches('-'),
    }
}

impl Threads {
    /// Reads all times. Returns them in nanoseconds, by name.
    pub(super) fn update(&mut self) -> BTreeMap<String, u64> {
        let now = threads::ids();
        let now = now
            .into_iter()
            .filter_map(|id| Some((id, threads::cpu_ns(id)?)));
        self.note(now, std::process::id(), threads::name)
    }

    fn note(
        &mut self,
        now: impl Iterator<Item = (u32, u64)>,
        main: u32,
        name_of: impl Fn(u32) -> Option<String>,
    ) -> BTreeMap<String, u64> {
        let own_name = name_of(main);
        let mut before = std::mem::take(&mut self.known);
        for (id, ns) in now {
            // The number of a thread that has ended can be that of a new one.
            let same = before.remove(&id).filter(|known| {
                let same = known.ns <= ns;
                if !same {
                    *self.ended.entry(known.name.clone()).or_default() += known.ns;
                }
                same
            });
            let name = match same {
                Some(known) => known.name,
                None if id == main => "main".to_owned(),
                // It may have ended since.
                None => match name_of(id) {
                    Some(name) if own_name.as_ref() == Some(&name) => UNNAMED.to_owned(),
                    Some(name) => counted_as(&name).to_owned(),
                    None => continue,
                },
            };
            self.known.insert(id, Known { name, ns });
        }
        for gone in before.into_values() {
            *self.ended.entry(gone.name).or_default() += gone.ns;
        }
        let mut sums = self.ended.clone();
        for Known { name, ns } in self.known.values() {
            *sums.entry(name.clone()).or_default() += ns;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_numbers_but_for_those_that_serve_clients() {
        for (name, counted) in [
            ("io-0", "io-0"),
            ("worker-turns", "worker-turns"),
            ("reader-63", "reader"),
            ("rocksdb:low12", "rocksdb:low"),
            ("fsync", "fsync"),
            ("binlog-trim", "binlog-trim"),
        ] {
            assert_eq!(counted_as(name), counted);
        }
    }

    /// A counter that falls counts as one that began again, at a rate that never was.
    #[test]
    fn times_never_fall() {
        let mut threads = Threads::default();
        let name = |id: u32| Some(format!("reader-{id}"));
        let mut note = |now: &[(u32, u64)]| {
            let times = threads.note(now.iter().copied(), 1, name);
            (times.get("main").copied(), times.get("reader").copied())
        };
        assert_eq!(note(&[(1, 5), (2, 10), (3, 20)]), (Some(5), Some(30)));
        assert_eq!(note(&[(1, 6), (3, 25)]), (Some(6), Some(35)));
        // Another thread has the number 3.
        assert_eq!(note(&[(1, 6), (3, 1)]), (Some(6), Some(36)));
        assert_eq!(note(&[(1, 6)]), (Some(6), Some(36)));
    }

    #[test]
    fn a_thread_with_the_name_of_the_process_is_not_the_main_thread() {
        let name = |_| Some("kedis-server".to_owned());
        let times = Threads::default().note([(1, 5), (7, 3)].into_iter(), 1, name);
        let times: Vec<_> = times
            .iter()
            .map(|(name, ns)| (name.as_str(), *ns))
            .collect();
        assert_eq!(times, [("main", 5), (UNNAMED, 3)]);
    }
}
