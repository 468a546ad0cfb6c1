//! Three servers and three bad networks: random failures of a master and its replicas under
//! load.
//!
//! - processes die (kill -9) and restart, or are stopped for a while
//! - connections are cut, torn, delayed and silent, in full and partial syncs
//! - replicas are promoted: by FAILOVER, after the master's death, and without the master's
//!   knowledge, so that both accept writes for a while
//! - replicas follow replicas, switch between masters, fall behind the trim
//!
//! Every few seconds each server runs DEBUG KEDIS-CHECK. After each round the failures pause,
//! and the servers must become equal. Writes that `WAIT 2` has confirmed on all three must
//! never be lost.
//!
//! Environment: `KEDIS_CHAOS_SECONDS` (40, in continuous integration, where `CI` is
//! set, 120; an hour: 3600), `KEDIS_CHAOS_SEED`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::load::Load;
use super::{assert_same, eventually, families, info, is_caught_up, server};
use crate::support::checks::Checks;
use crate::support::{Conn, Pace, Proxy, Server, Value, env_number, seed, wait_for, wait_within};

/// Steps between two comparisons.
const STEPS: u32 = 12;
/// The DB for confirmed writes only.
const CONFIRMED_DB: u32 = 15;
/// The number of DBs that are written to: four by the load, the large one, the confirmed one.
const DBS: usize = 6;

struct Node {
    server: Server,
    /// The proxy through which its replicas connect.
    proxy: Proxy,
}

struct Cluster {
    nodes: Vec<Node>,
    master: usize,
    load: Load,
    confirmed: Confirmed,
    _checks: Checks,
    rng: fastrand::Rng,
    /// Counts of the steps that were taken.
    done: BTreeMap<&'static str, u32>,
}

/// A writer of numbers that records which of them are confirmed on all servers.
struct Confirmed {
    stop: Arc<AtomicBool>,
    target: Arc<Mutex<String>>,
    numbers: Arc<Mutex<Vec<u64>>>,
    thread: Option<JoinHandle<()>>,
}

impl Confirmed {
    fn start(master: &Server) -> Confirmed {
        let stop = Arc::<AtomicBool>::default();
        let target = Arc::new(Mutex::new(master.address()));
        let numbers = Arc::<Mutex<Vec<u64>>>::default();
        let (ending, aim, noted) = (stop.clone(), target.clone(), numbers.clone());
        let next = AtomicU64::new(0);
        let mut pace = Pace::per_second(50);
        let thread = std::thread::spawn(move || {
            while !ending.load(Ordering::Relaxed) {
                let address = aim.lock().unwrap().clone();
                if let Ok(mut conn) = Conn::open(&address) {
                    conn.set_timeout(Duration::from_secs(2));
                    conn.cmd(&format!("SELECT {CONFIRMED_DB}"));
                    while !ending.load(Ordering::Relaxed) && *aim.lock().unwrap() == address {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if conn.cmd(&format!("SET {number} x")) != Value::ok() {
                            break;
                        }
                        match conn.cmd("WAIT 2 500") {
                            Value::Int(2..) => noted.lock().unwrap().push(number),
                            Value::Int(_) => {}
                            _ => break,
                        }
                    }
                }
                pace.wait();
            }
        });
        Confirmed {
            stop,
            target,
            numbers,
            thread: Some(thread),
        }
    }

    fn count(&self) -> usize {
        self.numbers.lock().unwrap().len()
    }

    /// Checks that all confirmed numbers are there.
    fn check(&self, server: &Server) {
        let numbers = self.numbers.lock().unwrap().clone();
        let mut conn = server.connect();
        conn.must(&format!("SELECT {CONFIRMED_DB}"));
        for part in numbers.chunks(1000) {
            let line: Vec<String> = part.iter().map(u64::to_string).collect();
            let found = conn.must(&format!("MGET {}", line.join(" ")));
            let lost = part.iter().zip(found.items());
            let lost: Vec<_> = lost.filter(|(_, v)| **v == Value::NullBulk).collect();
            assert!(lost.is_empty(), "confirmed and lost: {lost:?}");
        }
    }
}

impl Drop for Confirmed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok());
        }
    }
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let flags = ["--repl-timeout", "3", "--repl-ping-replica-period", "1"];
        let nodes: Vec<Node> = (0..3)
            .map(|index| {
                let server = server(&flags);
                let proxy = Proxy::to(server.address(), seed ^ index);
                Node { server, proxy }
            })
            .collect();
        // Enough data for a full sync to take some time.
        let mut conn = nodes[0].server.connect();
        conn.must("SELECT 8");
        conn.must("DEBUG POPULATE 30000 key 200");
        let mut cluster = Cluster {
            load: Load::start(&nodes[0].server, 2, seed),
            confirmed: Confirmed::start(&nodes[0].server),
            _checks: Checks::start(&[&nodes[0].server, &nodes[1].server, &nodes[2].server]),
            nodes,
            master: 0,
            rng: fastrand::Rng::with_seed(seed),
            done: BTreeMap::new(),
        };
        cluster.follow_the_master();
        cluster
    }

    fn replicas(&self) -> [usize; 2] {
        [(self.master + 1) % 3, (self.master + 2) % 3]
    }

    fn any_replica(&mut self) -> usize {
        self.replicas()[self.rng.usize(..2)]
    }

    fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.rng.u64(..most_ms)));
    }

    /// Makes a node follow another one, or none, now and at its next starts.
    fn point(&mut self, node: usize, target: Option<usize>) {
        let port = target.map(|target| self.nodes[target].proxy.port());
        let server = &mut self.nodes[node].server;
        if let Some(at) = server.flags.iter().position(|f| f == "--replicaof") {
            server.flags.drain(at..at + 3);
        }
        let line = match port {
            Some(port) => {
                let port = port.to_string();
                let flags = ["--replicaof", "127.0.0.1", &port];
                server.flags.extend(flags.map(str::to_owned));
                format!("REPLICAOF 127.0.0.1 {port}")
            }
            None => "REPLICAOF NO ONE".to_owned(),
        };
        if server.alive() {
            eventually(server, &line);
        }
    }

    fn follow_the_master(&mut self) {
        for replica in self.replicas() {
            self.point(replica, Some(self.master));
        }
    }

    /// Makes `heir` the master for the test and its writers.
    fn set_master(&mut self, heir: usize) {
        self.master = heir;
        self.load.aim(&self.nodes[heir].server);
        let address = self.nodes[heir].server.address();
        *self.confirmed.target.lock().unwrap() = address;
    }

    fn master(&self) -> &Server {
        &self.nodes[self.master].server
    }

    fn kill(&mut self, node: usize) {
        self.nodes[node].server.kill9();
        self.pause(300);
        self.nodes[node].server.spawn();
    }

    /// Takes a random step; returns its description.
    fn step(&mut self) -> &'static str {
        let replica = self.any_replica();
        let network = self.rng.usize(..3);
        match self.rng.u32(..30) {
            0..4 => {
                self.kill(replica);
                "a replica died"
            }
            4..7 => {
                self.kill(self.master);
                "the master died"
            }
            7..11 => {
                self.nodes[self.master].proxy.cut();
                "links were cut"
            }
            11..14 => {
                let lossy = self.rng.bool();
                self.nodes[network].proxy.set_lossy(lossy);
                "a network became lossy or good"
            }
            14 => {
                self.nodes[self.master].proxy.set_silent(true);
                // Longer than repl-timeout, or shorter.
                self.pause(6000);
                self.nodes[self.master].proxy.set_silent(false);
                "a network fell silent"
            }
            15..17 => {
                let node = self.rng.usize(..3);
                self.nodes[node].server.signal("STOP");
                self.pause(1500);
                self.nodes[node].server.signal("CONT");
                "a process stood still"
            }
            17..19 => self.hand_over(replica),
            19..21 => self.replace_a_dead_master(replica),
            21..23 => self.part_histories(replica),
            23..25 => {
                let other = 3 - replica - self.master;
                self.point(other, Some(replica));
                "a replica followed a replica"
            }
            25..27 => {
                eventually(self.master(), "DEBUG CHANGE-REPL-ID");
                self.nodes[self.master].proxy.cut();
                "a full sync was forced"
            }
            27 => {
                let (entries, hold) = match self.rng.bool() {
                    true => (100, 10_000),
                    false => (1_000_000, 0),
                };
                let set =
                    format!("CONFIG SET binlog-capacity {entries} binlog-hold-max-bytes {hold}");
                eventually(self.master(), &set);
                "the binlog became short or long"
            }
            _ => self.flap(replica),
        }
    }

    /// FAILOVER: the replica takes over within the timeout, or not.
    fn hand_over(&mut self, replica: usize) -> &'static str {
        // Without the proxy, because the master knows replicas by their listening ports.
        let port = self.nodes[self.master].server.port();
        let server = &self.nodes[replica].server;
        eventually(server, &format!("REPLICAOF 127.0.0.1 {port}"));
        let master = &self.nodes[self.master].server;
        wait_within(Duration::from_secs(3), || is_caught_up(master, server));
        let to = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 3000", server.port());
        let begun = self.master().connect().cmd(&to) == Value::ok();
        if begun {
            wait_for("the end of the failover", || {
                info(self.master(), "replication", "master_failover_state") == "no-failover"
            });
        }
        let done = begun && info(self.master(), "replication", "role") == "slave";
        if done {
            let old = self.master;
            self.point(replica, None);
            self.set_master(replica);
            self.point(old, Some(replica));
        } else {
            self.point(replica, Some(self.master));
        }
        self.follow_the_master();
        match done {
            true => "a failover",
            false => "a failover that was not to be",
        }
    }

    /// The master is killed and replaced by a replica; it comes back as a replica.
    fn replace_a_dead_master(&mut self, heir: usize) -> &'static str {
        let old = self.master;
        self.nodes[old].server.kill9();
        self.point(heir, None);
        self.set_master(heir);
        self.follow_the_master();
        self.pause(500);
        self.nodes[old].server.spawn();
        "a dead master was replaced"
    }

    /// A replica is promoted without the master's knowledge: both accept writes.
    fn part_histories(&mut self, heir: usize) -> &'static str {
        self.point(heir, None);
        eventually(&self.nodes[heir].server, "SET parted x");
        // Writers still use the old master.
        self.pause(500);
        self.set_master(heir);
        self.pause(500);
        self.follow_the_master();
        "histories parted"
    }

    /// A replica repeatedly becomes a master for a short time, and takes a write.
    fn flap(&mut self, replica: usize) -> &'static str {
        for _ in 0..4 {
            self.point(replica, None);
            if self.rng.bool() {
                eventually(&self.nodes[replica].server, "SET stray x");
            }
            self.point(replica, Some(self.master));
            self.pause(300);
        }
        "a replica flapped"
    }

    /// Stops all failures and writers, and compares the servers.
    fn settle(&mut self) {
        for node in &self.nodes {
            node.proxy.set_lossy(false);
        }
        self.follow_the_master();
        let before = self.confirmed.count();
        wait_for("writes that are everywhere", || {
            self.confirmed.count() > before
        });
        // Writers without an address wait.
        *self.confirmed.target.lock().unwrap() = String::new();
        self.load.pause();
        for replica in self.replicas() {
            assert_same(self.master(), &self.nodes[replica].server);
        }
        for node in &self.nodes {
            self.confirmed.check(&node.server);
            let families = families(&node.server);
            assert!(families <= DBS, "{families} column families, some orphaned");
        }
        self.set_master(self.master);
    }
}

#[test]
fn chaos() {
    let seed = seed("KEDIS_CHAOS_SEED");
    let usual = match std::env::var_os("CI") {
        Some(_) => 120,
        None => 40,
    };
    let until = Instant::now() + Duration::from_secs(env_number("KEDIS_CHAOS_SECONDS", usual));
    let mut cluster = Cluster::new(seed);
    while Instant::now() < until {
        for _ in 0..STEPS {
            cluster.pause(700);
            let what = cluster.step();
            println!("{what}");
            *cluster.done.entry(what).or_default() += 1;
        }
        cluster.settle();
        println!("equal, {} numbers confirmed", cluster.confirmed.count());
    }
    println!("{} commands, {:#?}", cluster.load.written(), cluster.done);
    cluster.load.stop();
}
