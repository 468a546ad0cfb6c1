//! Input that no client library sends: broken, huge, slow or never read.
//!
//! For any input the process survives, its memory stays bounded, other clients are served, and
//! the error text is the oracle's.
//!
//! - `advisories`: requests of published advisories against other servers
//! - `permissions`: random requests of a user with few permissions
//! - `requests`: broken, torn and random bytes
//! - `memory`: the cost of clients that announce much or never read
//! - `idle`: connections that send nothing, and very many of them
//! - `long_commands`: commands that take long, while other clients are served
//!
//! Environment: `KEDIS_HOSTILE_SEED`, `KEDIS_HOSTILE_ROUNDS`.

mod advisories;
mod idle;
mod long_commands;
mod memory;
mod permissions;
mod requests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Conn, Pace, Server, Value};

/// Maximum growth of the resident memory during a hostile test. A server that allocates
/// announced lengths exceeds it many times.
const GROWTH: u64 = 300 << 20;

/// A PING that takes longer is blocked by the request of another client.
const STUCK: Duration = Duration::from_secs(10);

/// Runs `hostile`; fails if the memory exceeds [`GROWTH`] or a PING of another client takes
/// longer than [`STUCK`] meanwhile.
fn bounded(server: &Server, hostile: impl FnOnce()) {
    let before = server.rss();
    let done = AtomicBool::new(false);
    let mut most = before;
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut conn = server.connect();
            let (mut most, mut slowest) = (0, Duration::ZERO);
            let mut pace = Pace::per_second(200);
            while !done.load(Ordering::Relaxed) {
                let start = Instant::now();
                assert_eq!(conn.cmd("PING"), Value::simple("PONG"));
                slowest = slowest.max(start.elapsed());
                most = most.max(server.rss());
                pace.wait();
            }
            (most, slowest)
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(hostile));
        done.store(true, Ordering::Relaxed);
        (most, slowest) = watch.join().expect("the other client was served");
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    let grown = most.saturating_sub(before);
    println!(
        "memory grew by {} MB, slowest PING {slowest:?}",
        grown >> 20
    );
    assert!(grown < GROWTH, "memory grew by {} MB", grown >> 20);
    assert!(slowest < STUCK, "a PING took {slowest:?}");
}

/// Bytes that the server has allocated.
fn used_memory(conn: &mut Conn) -> u64 {
    conn.info_number("memory", "used_memory")
}
