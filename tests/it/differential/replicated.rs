//! Random commands on the oracle, which our server follows: connections are cut, either side
//! is killed, and in between both are compared key by key.
//!
//! Environment: `KEDIS_DIFF_REPLICATED`: approximate number of commands (3,000),
//! `KEDIS_DIFF_SEED`.

use std::collections::BTreeSet;
use std::time::Duration;

use super::pools::DATABASES;
use super::run::{Kind, compare_state};
use super::{chosen_families, draw};
use crate::replication::{eventually, figure, info, server};
use crate::support::{Proxy, Server, Value, env_number, oracle, seed, wait_for, wait_within};

/// Sequences between two comparisons.
const ROUND: u32 = 4;

struct Pair {
    master: Server,
    replica: Server,
    proxy: Proxy,
}

impl Pair {
    fn start(seed: u64) -> Pair {
        let master = oracle(&[
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--repl-diskless-sync-delay",
            "0",
            "--enable-debug-command",
            "yes",
        ]);
        let proxy = Proxy::to(master.address(), seed);
        let mut replica = server(&[]);
        let port = proxy.port().to_string();
        let follow = ["--replicaof", "127.0.0.1", &port];
        replica.flags.extend(follow.map(str::to_owned));
        replica.restart();
        Pair {
            master,
            replica,
            proxy,
        }
    }

    /// A random disturbance between two commands; mostly none.
    fn disturb(&mut self, rng: &mut fastrand::Rng) {
        match rng.u32(..1200) {
            0..3 => self.proxy.cut(),
            3 => {
                self.replica.kill9();
                self.replica.spawn();
            }
            4 if rng.bool() => {
                self.master.kill9();
                self.master.spawn();
            }
            5 => {
                self.replica.terminate();
                self.replica.spawn();
            }
            6 if rng.bool() => {
                eventually(&self.master, "DEBUG CHANGE-REPL-ID");
                self.proxy.cut();
            }
            _ => {}
        }
    }

    fn compare(&self) {
        wait_for("the replica has everything", || {
            let offset = |server, name| figure(server, "replication", name);
            info(&self.replica, "replication", "master_link_status") == "up"
                && offset(&self.replica, "slave_repl_offset")
                    == offset(&self.master, "master_repl_offset")
        });
        let mut found = None;
        // Keys may expire between the two reads.
        let same = wait_within(Duration::from_secs(5), || {
            let (mut ours, mut theirs) = (self.replica.connect(), self.master.connect());
            found = compare_state(&mut ours, &mut theirs, DATABASES, 0);
            found.is_none()
        });
        let difference = found.map(|found| found.summary()).unwrap_or_default();
        assert!(same, "the replica differs:\n{difference}");
        let report = self.replica.connect().must("DEBUG KEDIS-CHECK").text();
        assert!(report.starts_with("keys: "), "{report}");
    }
}

/// Changes that the oracle does not replicate, so that its own replicas differ from it:
/// XREADGROUP of pending entries counts deliveries, and a BITFIELD that fails has made the
/// string longer.
fn is_untold(command: &[Vec<u8>]) -> bool {
    let has = |word: &str| {
        let is = |arg: &Vec<u8>| arg.eq_ignore_ascii_case(word.as_bytes());
        command.iter().position(is)
    };
    if has("BITFIELD") == Some(0) {
        return has("FAIL").is_some();
    }
    let (Some(0), Some(at)) = (has("XREADGROUP"), has("STREAMS")) else {
        return false;
    };
    let named = &command[at + 1..];
    named[named.len() / 2..].iter().any(|id| id != b">")
}

#[test]
fn a_replica_of_the_oracle_is_what_the_oracle_is() {
    let commands = env_number("KEDIS_DIFF_REPLICATED", 3_000);
    let seed = seed("KEDIS_DIFF_SEED");
    let mut rng = fastrand::Rng::with_seed(seed);
    let families = chosen_families();
    let muted = BTreeSet::new();
    let mut pair = Pair::start(seed);
    let (mut sent, mut rounds) = (0, 0u32);
    while sent < commands {
        for _ in 0..ROUND {
            let mut conn = pair.master.connect();
            conn.set_timeout(Duration::from_secs(20));
            for step in draw(&mut rng, &families, &muted) {
                pair.disturb(&mut rng);
                if matches!(step.kind, Kind::Pause(_)) || is_untold(&step.args) {
                    continue;
                }
                if !matches!(conn.call(&step.args), Value::Lost(_)) {
                    sent += 1;
                } else {
                    conn = pair.master.connect();
                }
            }
        }
        pair.compare();
        rounds += 1;
    }
    println!("{sent} commands, equal {rounds} times");
}
