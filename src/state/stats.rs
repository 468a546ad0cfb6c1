//! Counters: overall and per command.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A counter that any thread adds to.
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

    /// Back to 0.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Raises it to `n` if it is lower.
    pub fn raise_to(&self, n: u64) {
        self.0.fetch_max(n, Ordering::Relaxed);
    }
}

/// How many buckets a latency histogram has: powers of two of microseconds.
pub const LATENCY_BUCKETS: usize = 32;

/// What is counted of one command.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Times run.
    pub calls: Counter,
    /// Microseconds altogether.
    pub usec: Counter,
    /// Times refused before it ran.
    pub rejected: Counter,
    /// Times it failed.
    pub failed: Counter,
    /// Calls by duration: bucket `i` counts those below 2^i µs.
    pub latency: [Counter; LATENCY_BUCKETS],
}

impl CommandStats {
    /// Counts one run; `timed`: in the histogram, too.
    fn ran(&self, usec: u64, failed: bool, timed: bool) {
        self.calls.add(1);
        self.usec.add(usec);
        if failed {
            self.failed.add(1);
        }
        if !timed {
            return;
        }
        let bucket = (u64::BITS - usec.leading_zeros()) as usize;
        if let Some(counter) = self.latency.get(bucket.min(LATENCY_BUCKETS - 1)) {
            counter.add(1);
        }
    }

    fn reset(&self) {
        self.calls.reset();
        self.usec.reset();
        self.rejected.reset();
        self.failed.reset();
        self.latency.iter().for_each(Counter::reset);
    }
}

/// All counters.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections accepted.
    pub connections: Counter,
    /// Connections refused because of `maxclients`.
    pub rejected_connections: Counter,
    /// Commands run.
    pub commands: Counter,
    /// Bytes read from clients, and over links between masters and replicas.
    pub net_input_bytes: Counter,
    /// Bytes sent to them.
    pub net_output_bytes: Counter,
    /// Times that IO threads read something of a client.
    pub reads: Counter,
    /// Times that they sent something to one.
    pub writes: Counter,
    /// Of the bytes read: from the master.
    pub net_repl_input_bytes: Counter,
    /// Of the bytes sent: to replicas.
    pub net_repl_output_bytes: Counter,
    /// Keys deleted because their time was over.
    pub expired_keys: Counter,
    /// Look-ups that found their key.
    pub keyspace_hits: Counter,
    /// Look-ups that did not.
    pub keyspace_misses: Counter,
    /// Error replies.
    pub error_replies: Counter,
    /// Failed AUTHs.
    pub auth_failures: Counter,
    /// Rows of dead collections removed.
    pub reclaimed_rows: Counter,
    /// Commands over the slow log's limit.
    pub slow_commands: Counter,
    /// Clients closed because all together took too much memory.
    pub evicted_clients: Counter,
    /// Clients closed because their output grew too long.
    pub output_limit_disconnections: Counter,
    /// Clients closed because their requests grew too long.
    pub query_limit_disconnections: Counter,
    /// Replicas that got the whole data set.
    pub sync_full: Counter,
    /// Replicas that went on where they were.
    pub sync_partial_ok: Counter,
    /// Replicas that wanted to go on where they were, and could not.
    pub sync_partial_err: Counter,
    /// Hashes that came with times of their fields, which are not kept.
    pub field_times_hashes: Counter,
    /// Fields of those that had a time.
    pub field_times_fields: Counter,
    /// Of those fields: how many the log has told of.
    field_times_told: AtomicU64,
    /// Histograms of commands stand still.
    untimed: AtomicBool,
    /// Error replies by their code.
    pub errors: parking_lot::Mutex<std::collections::BTreeMap<String, u64>>,
    /// Per command, by registry index.
    pub per_command: Box<[CommandStats]>,
}

/// Beyond this many different error codes they are no longer told apart.
const MAX_ERROR_CODES: usize = 128;

impl Stats {
    /// Counters for a registry of `commands` commands.
    pub fn new(commands: usize) -> Stats {
        Stats {
            per_command: (0..commands).map(|_| CommandStats::default()).collect(),
            ..Stats::default()
        }
    }

    /// Whether the histograms of commands go on (`latency-tracking`).
    pub fn time_commands(&self, on: bool) {
        self.untimed.store(!on, Ordering::Relaxed);
    }

    /// Counts one read of `bytes` bytes from a client.
    pub fn read(&self, bytes: u64) {
        self.reads.add(1);
        self.net_input_bytes.add(bytes);
    }

    /// Counts what was sent to a client at once, if it is anything.
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

    /// Counts a hash whose fields had times, which are not kept.
    pub fn lost_field_times(&self, fields: u64) {
        if fields > 0 {
            self.field_times_hashes.add(1);
            self.field_times_fields.add(fields);
        }
    }

    /// Whether fields have lost their times since this was asked last. Whoever
    /// serves a request may not write to the log, so somebody else looks here.
    pub fn has_untold_field_times(&self) -> bool {
        let fields = self.field_times_fields.get();
        // It is lower after CONFIG RESETSTAT.
        self.field_times_told.swap(fields, Ordering::Relaxed) < fields
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
            &self.keyspace_hits,
            &self.keyspace_misses,
            &self.error_replies,
            &self.auth_failures,
            &self.reclaimed_rows,
            &self.slow_commands,
            &self.evicted_clients,
            &self.output_limit_disconnections,
            &self.query_limit_disconnections,
            &self.field_times_hashes,
            &self.field_times_fields,
        ] {
            counter.reset();
        }
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
