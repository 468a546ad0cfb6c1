//! Counters: overall and per command.

use crate::base::histogram::{BUCKETS, Counts, bucket_of};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A counter that all threads can change.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it to 0.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// How many buckets a latency histogram has: powers of two of microseconds.
pub const LATENCY_BUCKETS: usize = BUCKETS;

/// Commands over the slow log's limit.
#[derive(Debug, Default)]
pub struct SlowStats {
    /// How many.
    pub calls: Counter,
    /// Their total duration in microseconds.
    pub usec: Counter,
    /// The longest of them, in microseconds.
    pub longest_usec: AtomicU64,
}

impl SlowStats {
    fn note(&self, usec: u64) {
        self.calls.add(1);
        self.usec.add(usec);
        self.longest_usec.fetch_max(usec, Ordering::Relaxed);
    }

    fn reset(&self) {
        self.calls.reset();
        self.usec.reset();
        self.longest_usec.store(0, Ordering::Relaxed);
    }
}

/// The counters of one command.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Number of runs.
    pub calls: Counter,
    /// Total duration in microseconds.
    pub usec: Counter,
    /// Number of refusals before it ran.
    pub rejected: Counter,
    /// Number of failures.
    pub failed: Counter,
    /// Slow runs.
    pub slow: SlowStats,
    /// The part of `usec` of calls that are not in the histogram.
    untimed_usec: Counter,
    /// Calls by duration: bucket `i` counts those below 2^i µs.
    pub latency: [Counter; LATENCY_BUCKETS],
}

impl CommandStats {
    /// Counts one run; `timed`: also in the histogram.
    fn ran(&self, usec: u64, failed: bool, timed: bool) {
        self.calls.add(1);
        self.usec.add(usec);
        if failed {
            self.failed.add(1);
        }
        if !timed {
            self.untimed_usec.add(usec);
            return;
        }
        if let Some(counter) = self.latency.get(bucket_of(usec)) {
            counter.add(1);
        }
    }

    /// The histogram, in microseconds.
    pub fn times(&self) -> Counts {
        Counts {
            buckets: std::array::from_fn(|i| self.latency[i].get()),
            sum: self.usec.get().saturating_sub(self.untimed_usec.get()),
        }
    }

    fn reset(&self) {
        self.calls.reset();
        self.usec.reset();
        self.rejected.reset();
        self.failed.reset();
        self.untimed_usec.reset();
        self.slow.reset();
        self.latency.iter().for_each(Counter::reset);
    }
}

/// All counters.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections accepted.
    pub connections: Counter,
    /// Connections refused because of `maxclients` or protected mode.
    pub rejected_connections: Counter,
    /// Commands run.
    pub commands: Counter,
    /// Bytes read from clients, and over links between masters and replicas.
    pub net_input_bytes: Counter,
    /// Bytes sent to clients, and over links between masters and replicas.
    pub net_output_bytes: Counter,
    /// Reads of IO threads from clients.
    pub reads: Counter,
    /// Writes of IO threads to clients.
    pub writes: Counter,
    /// Bytes read from the master; part of `net_input_bytes`.
    pub net_repl_input_bytes: Counter,
    /// Bytes sent to replicas; part of `net_output_bytes`.
    pub net_repl_output_bytes: Counter,
    /// Keys deleted because they had expired.
    pub expired_keys: Counter,
    /// Keys evicted for want of space on the disk.
    pub evicted_keys: Counter,
    /// Fields of hashes and members of sets deleted because their time was over.
    pub expired_subkeys: Counter,
    /// Look-ups that found their key.
    pub keyspace_hits: Counter,
    /// Look-ups that did not.
    pub keyspace_misses: Counter,
    /// Error replies.
    pub error_replies: Counter,
    /// Failed AUTHs.
    pub auth_failures: Counter,
    /// Commands denied for want of the permission for the command,
    pub denied_commands: Counter,
    /// for a key,
    pub denied_keys: Counter,
    /// for a channel,
    pub denied_channels: Counter,
    /// and for a DB.
    pub denied_dbs: Counter,
    /// Certificates of clients with a name that no user has.
    pub denied_certificates: Counter,
    /// Rows of dead collections removed.
    pub reclaimed_rows: Counter,
    /// Bytes of values that the collection of the value log has written again.
    pub value_log_moved_bytes: Counter,
    /// Bytes of old segments over which the collection of the value log went.
    pub value_log_collected_bytes: Counter,
    /// Commands over the slow log's limit.
    pub slow: SlowStats,
    /// Requests that a slow-command worker has run.
    pub worker_requests: Counter,
    /// Clients closed because of the memory of all clients.
    pub evicted_clients: Counter,
    /// Clients closed because their unsent output was too large.
    pub output_limit_disconnections: Counter,
    /// Clients closed because their requests were too large.
    pub query_limit_disconnections: Counter,
    /// Full syncs of replicas.
    pub sync_full: Counter,
    /// Partial syncs of replicas.
    pub sync_partial_ok: Counter,
    /// Partial syncs that were refused.
    pub sync_partial_err: Counter,
    /// Whether the histograms of commands are switched off.
    untimed: AtomicBool,
    /// Error replies by their code.
    pub errors: parking_lot::Mutex<std::collections::BTreeMap<String, u64>>,
    /// Per command, by registry index.
    pub per_command: Box<[CommandStats]>,
}

/// Further error codes are not counted separately.
const MAX_ERROR_CODES: usize = 128;

impl Stats {
    /// Counters for a registry of `commands` commands.
    pub fn new(commands: usize) -> Stats {
        Stats {
            per_command: (0..commands).map(|_| CommandStats::default()).collect(),
            ..Stats::default()
        }
    }

    /// Switches the histograms of commands on or off (`latency-tracking`).
    pub fn time_commands(&self, on: bool) {
        self.untimed.store(!on, Ordering::Relaxed);
    }

    /// Counts one read of `bytes` bytes from a client.
    pub fn read(&self, bytes: u64) {
        self.reads.add(1);
        self.net_input_bytes.add(bytes);
    }

    /// Counts one write of `bytes` bytes to a client, unless it is empty.
    pub fn sent(&self, bytes: u64) {
        if bytes > 0 {
            self.writes.add(1);
            self.net_output_bytes.add(bytes);
        }
    }

    /// Counts one run of the command with this registry index.
    pub fn ran(&self, index: usize, usec: u64, failed: bool) {
        self.commands.add(1);
        if let Some(command) = self.per_command.get(index) {
            let timed = !self.untimed.load(Ordering::Relaxed);
            command.ran(usec, failed, timed);
        }
    }

    /// Counts a slow run of the command with this registry index.
    pub fn was_slow(&self, index: usize, usec: u64) {
        self.slow.note(usec);
        if let Some(command) = self.per_command.get(index) {
            command.slow.note(usec);
        }
    }

    /// Counts an error reply; `text` begins with its code.
    pub fn error(&self, text: &str) {
        self.error_replies.add(1);
        let code = text.split([' ', '\r', '\n']).next().unwrap_or_default();
        let mut errors = self.errors.lock();
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if errors.len() < MAX_ERROR_CODES {
            errors.insert(code.to_owned(), 1);
        }
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        for counter in [
            &self.connections,
            &self.sync_full,
            &self.sync_partial_ok,
            &self.sync_partial_err,
            &self.rejected_connections,
            &self.commands,
            &self.net_input_bytes,
            &self.net_output_bytes,
            &self.reads,
            &self.writes,
            &self.net_repl_input_bytes,
            &self.net_repl_output_bytes,
            &self.expired_keys,
            &self.evicted_keys,
            &self.expired_subkeys,
            &self.keyspace_hits,
            &self.keyspace_misses,
            &self.error_replies,
            &self.auth_failures,
            &self.denied_commands,
            &self.denied_keys,
            &self.denied_channels,
            &self.denied_dbs,
            &self.denied_certificates,
            &self.reclaimed_rows,
            &self.value_log_moved_bytes,
            &self.value_log_collected_bytes,
            &self.worker_requests,
            &self.evicted_clients,
            &self.output_limit_disconnections,
            &self.query_limit_disconnections,
        ] {
            counter.reset();
        }
        self.slow.reset();
        self.errors.lock().clear();
        self.per_command.iter().for_each(CommandStats::reset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_ends_with_the_word() {
        let stats = Stats::new(0);
        for text in ["ERR", "ERR x", "ERR\r\n-ERR x"] {
            stats.error(text);
        }
        assert_eq!(*stats.errors.lock(), [("ERR".to_owned(), 3)].into());
    }

    #[test]
    fn error_codes_are_bounded() {
        let stats = Stats::new(0);
        for n in 0..2 * MAX_ERROR_CODES {
            stats.error(&format!("CODE{n} text"));
        }
        stats.error("CODE0 text");
        let errors = stats.errors.lock();
        assert_eq!(errors.len(), MAX_ERROR_CODES);
        assert_eq!(errors["CODE0"], 2);
        assert_eq!(stats.error_replies.get(), 2 * MAX_ERROR_CODES as u64 + 1);
    }
}
