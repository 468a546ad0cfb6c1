//! Writers for a master: all types, several DBs, keys that expire, commands on whole DBs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::{Conn, Pace, Server, Value, args};

/// Running writers.
pub struct Load {
    stop: Arc<AtomicBool>,
    target: Arc<Mutex<String>>,
    written: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts writers on a master. They ignore errors, because the master may be killed or
    /// demoted at any time.
    pub fn start(master: &Server, writers: u64, seed: u64) -> Load {
        Load::start_without(|_| false, master, writers, seed)
    }

    /// The same on a Redis, without a command that it does not replicate: XREADGROUP of pending
    /// entries, which counts deliveries.
    pub fn start_on_redis(master: &Server, writers: u64, seed: u64) -> Load {
        let untold = |line: &str| line.starts_with("XREADGROUP") && line.ends_with(" 0");
        Load::start_without(untold, master, writers, seed)
    }

    fn start_without(left_out: fn(&str) -> bool, master: &Server, writers: u64, seed: u64) -> Load {
        let stop = Arc::<AtomicBool>::default();
        let written = Arc::<AtomicU64>::default();
        let target = Arc::new(Mutex::new(master.address()));
        let threads = (0..writers).map(|index| {
            let (stop, written) = (stop.clone(), written.clone());
            let target = target.clone();
            let mut rng = fastrand::Rng::with_seed(seed ^ (index << 40));
            let mut pace = Pace::per_second(50);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let address = target.lock().unwrap().clone();
                    if let Ok(mut conn) = Conn::open(&address) {
                        let done =
                            || stop.load(Ordering::Relaxed) || *target.lock().unwrap() != address;
                        work(&mut conn, &mut rng, left_out, done, &written);
                    }
                    pace.wait();
                }
            })
        });
        let threads = threads.collect();
        Load {
            stop,
            target,
            written,
            threads,
        }
    }

    /// The number of acknowledged commands.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Points the writers at another master.
    pub fn aim(&self, master: &Server) {
        *self.target.lock().unwrap() = master.address();
    }

    /// Stops writing until the next [`Load::aim`].
    pub fn pause(&self) {
        self.target.lock().unwrap().clear();
    }

    /// Ends the writers.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.written.load(Ordering::Relaxed)
    }
}

/// Errors of a server that is no longer the master.
const ELSEWHERE: [&[u8]; 2] = [b"READONLY", b"UNBLOCKED"];

fn work(
    conn: &mut Conn,
    rng: &mut fastrand::Rng,
    left_out: fn(&str) -> bool,
    done: impl Fn() -> bool,
    written: &AtomicU64,
) {
    // During a failover, commands block without a limit.
    conn.set_timeout(Duration::from_secs(2));
    while !done() {
        let depth = rng.usize(1..24);
        let lines = std::iter::repeat_with(|| command(rng));
        let lines = lines.filter(|line| !left_out(line)).take(depth);
        let mut batch: Vec<Vec<Vec<u8>>> = lines.map(|line| args(&line)).collect();
        if rng.u32(..6) == 0 {
            batch.insert(0, args("MULTI"));
            batch.push(args("EXEC"));
        }
        for reply in conn.pipeline(&batch) {
            match reply {
                Value::Lost(_) => return,
                Value::Error(text) if ELSEWHERE.iter().any(|e| text.starts_with(e)) => return,
                _ => written.fetch_add(1, Ordering::Relaxed),
            };
        }
    }
}

/// Several writes, one of them with a random result.
const SCRIPT: &str = "redis.call('INCR',KEYS[1]);redis.call('RPUSH',KEYS[2],ARGV[1]);return{redis.call('SPOP','m'..ARGV[1])}";

/// One random command. Keys are few, so that commands conflict.
pub fn command(rng: &mut fastrand::Rng) -> String {
    let n = rng.u32(..60);
    let m = rng.u32(..400);
    let ms = rng.u32(1..800);
    match rng.u32(..300) {
        0..20 => format!("SELECT {}", rng.u32(..4)),
        20..40 => format!("SET s{n} value-{m}"),
        40..50 => format!("SET t{n} value-{m} PX {ms}"),
        50..60 => format!("PEXPIRE s{n} {ms}"),
        60..65 => format!("PERSIST s{n}"),
        65..75 => format!("INCRBYFLOAT f{n} 1.25"),
        75..85 => format!("APPEND a{n} {}", "x".repeat(m as usize)),
        85..90 => format!("SETRANGE big{n} {} word", m * 100),
        90..105 => format!("HSET h{n} f{m} v{ms} g{m} w"),
        105..110 => format!("HDEL h{n} f{m}"),
        110..125 => format!("RPUSH l{n} a{m} b{m} c{m}"),
        125..130 => format!("LPOP l{n} {}", rng.u32(1..5)),
        130..133 => format!("LTRIM l{n} 2 100"),
        133..136 => format!("LMOVE l{n} l{} LEFT RIGHT", rng.u32(..60)),
        136..150 => format!("SADD m{n} {m} x{m} y{m}"),
        150..158 => format!("SPOP m{n} {}", rng.u32(1..4)),
        158..162 => format!("SUNIONSTORE u{n} m{n} m{}", rng.u32(..60)),
        162..177 => format!("ZADD z{n} {m} a{m} {ms} b{m}"),
        177..182 => format!("ZPOPMIN z{n} 2"),
        182..187 => format!("ZRANGESTORE r{n} z{n} 0 5"),
        187..195 => format!("SETBIT bits{n} {} 1", m * 997),
        195..200 => format!("PFADD p{n} {m} {ms}"),
        200..208 => format!("DEL s{n} h{n} m{}", rng.u32(..60)),
        208..214 => format!("RENAME l{n} l{}", rng.u32(..60)),
        214..219 => format!("COPY z{n} z{} REPLACE", rng.u32(..60)),
        219..223 => format!("MOVE s{n} {}", rng.u32(..4)),
        223..228 => format!("PEXPIRE h{n} {ms}"),
        228..233 => format!("PEXPIRE l{n} {ms}"),
        233..238 => format!("GETEX s{n} PX {ms}"),
        238..243 => format!("SORT l{n} ALPHA STORE sorted{n}"),
        243..246 => "SWAPDB 1 2".into(),
        246..247 => "FLUSHDB".into(),
        247..252 => format!("GETDEL s{n}"),
        252..254 => format!("EVAL {SCRIPT} 2 c{n} l{n} {m}"),
        254..255 if m == 0 => format!("SETRANGE huge{n} 2000000 end"),
        260..300 => stream_command(rng),
        _ => format!("INCR c{n}"),
    }
}

/// One random command on one of a few streams.
pub fn stream_command(rng: &mut fastrand::Rng) -> String {
    let n = rng.u32(..6);
    let (group, consumer) = (rng.u32(..2), rng.u32(..3));
    let few = rng.u32(1..9);
    if rng.u32(..6) == 0 {
        return newer_stream_command(rng);
    }
    match rng.u32(..24) {
        0..6 => format!("XADD x{n} * field value-{few}"),
        6..8 => format!("XADD x{n} MAXLEN ~ {} * f v g w", few * 40),
        8..9 => format!("XTRIM x{n} MAXLEN {}", few * 30),
        9..11 => format!("XGROUP CREATE x{n} g{group} 0 MKSTREAM"),
        11..15 => format!("XREADGROUP GROUP g{group} c{consumer} COUNT {few} STREAMS x{n} >"),
        15..16 => format!("XREADGROUP GROUP g{group} c{consumer} NOACK COUNT 2 STREAMS x{n} >"),
        16..17 => format!("XREADGROUP GROUP g{group} c{consumer} COUNT {few} STREAMS x{n} 0"),
        17..19 => format!("XAUTOCLAIM x{n} g{group} c{consumer} 0 0 COUNT {few}"),
        19..20 => format!("XCLAIM x{n} g{group} c{consumer} 0 {few}-0 FORCE"),
        23..24 => format!("XADD x{n} {few}-* f v"),
        20..21 => format!("XGROUP DELCONSUMER x{n} g{group} c{consumer}"),
        21..22 if few == 1 => format!("XGROUP DESTROY x{n} g{group}"),
        22..23 => format!("COPY x{n} x{} REPLACE", rng.u32(..6)),
        _ => format!("XGROUP SETID x{n} g{group} {}", rng.u32(..3)),
    }
}

/// A command that is newer than Redis 7.0, but states effects that it knows.
fn newer_stream_command(rng: &mut fastrand::Rng) -> String {
    let (n, few) = (rng.u32(..6), rng.u32(1..9));
    let (group, consumer) = (rng.u32(..2), rng.u32(..3));
    let word = rng.choice(["KEEPREF", "DELREF", "ACKED"]).expect("some");
    match rng.u32(..6) {
        0 => format!("XADD x{n} {word} MAXLEN = {} * f v", few * 20),
        1 => format!("XTRIM x{n} MAXLEN ~ {} {word}", few * 20),
        2 => format!("XDELEX x{n} {word} IDS 2 {few}-0 {few}-1"),
        3 => format!("XACKDEL x{n} g{group} {word} IDS 2 {few}-0 {few}-1"),
        4 => format!("XADD x{n} IDMP p{few} i{} * f v", rng.u32(..40)),
        _ => format!("XREADGROUP GROUP g{group} c{consumer} COUNT {few} CLAIM 0 STREAMS x{n} >"),
    }
}
