//! A bad network between two servers: it delays data, splits it into pieces, cuts connections,
//! lets later connections overtake earlier ones, and becomes silent.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::server::{Port, free_port};

/// How often a pump checks for changed settings.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// While lossy: maximum delays of a connection and of a piece.
const CONNECT_DELAY_MS: u64 = 300;
const PIECE_DELAY_MS: u64 = 20;
/// While lossy: one of so many pieces is delayed, or cut off.
const DELAY_ONE_IN: u32 = 20;
const CUT_ONE_IN: u32 = 300;

/// A port that forwards connections to a server until it is dropped.
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    accept: Option<JoinHandle<()>>,
}

struct Shared {
    target: String,
    lossy: AtomicBool,
    silent: AtomicBool,
    stop: AtomicBool,
    next: AtomicU64,
    live: Mutex<HashMap<u64, [TcpStream; 2]>>,
    seed: u64,
}

impl Proxy {
    /// A proxy to `target`, initially without faults.
    pub fn to(target: String, seed: u64) -> Proxy {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", *port)).unwrap();
        let shared = Arc::new(Shared {
            target,
            lossy: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            next: AtomicU64::new(0),
            live: Mutex::default(),
            seed,
        });
        let accepting = shared.clone();
        let accept = std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.stop.load(Ordering::Relaxed) {
                    return;
                }
                let shared = accepting.clone();
                std::thread::spawn(move || shared.join(client));
            }
        });
        Proxy {
            port,
            shared,
            accept: Some(accept),
        }
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        *self.port
    }

    /// Switches delays, splitting and cuts on or off.
    pub fn set_lossy(&self, lossy: bool) {
        self.shared.lossy.store(lossy, Ordering::Relaxed);
    }

    /// Switches forwarding off or on; connections stay open.
    pub fn set_silent(&self, silent: bool) {
        self.shared.silent.store(silent, Ordering::Relaxed);
    }

    /// Closes all connections.
    pub fn cut(&self) {
        for (_, pair) in self.shared.live.lock().unwrap().drain() {
            hang_up(&pair);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.cut();
        // Wakes the accept thread, which then ends.
        drop(TcpStream::connect(("127.0.0.1", *self.port)));
        if let Some(accept) = self.accept.take() {
            accept.join().unwrap();
        }
    }
}

fn hang_up(pair: &[TcpStream; 2]) {
    for socket in pair {
        // The socket may be closed already.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

impl Shared {
    /// Connects a client to the target, until either closes or it is cut.
    fn join(self: Arc<Shared>, client: TcpStream) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut rng = fastrand::Rng::with_seed(self.seed ^ (id << 20));
        if self.lossy.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(rng.u64(..CONNECT_DELAY_MS)));
        }
        let Ok(server) = TcpStream::connect(&self.target) else {
            return;
        };
        let clone = |socket: &TcpStream| socket.try_clone().unwrap();
        let pair = [clone(&client), clone(&server)];
        self.live.lock().unwrap().insert(id, pair);
        let (from, to, shared) = (clone(&server), clone(&client), self.clone());
        let mut other = rng.fork();
        let back = std::thread::spawn(move || shared.pump(from, to, &mut other));
        // The end of one direction ends both.
        let _ = self.pump(client, server, &mut rng);
        let _ = back.join().unwrap();
        self.live.lock().unwrap().remove(&id);
    }

    fn pump(&self, from: TcpStream, to: TcpStream, rng: &mut fastrand::Rng) -> io::Result<()> {
        let pair = [from, to];
        let done = self.pass_on(&pair[0], &pair[1], rng);
        hang_up(&pair);
        done
    }

    fn pass_on(
        &self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        rng: &mut fastrand::Rng,
    ) -> io::Result<()> {
        from.set_read_timeout(Some(LOOK_EVERY))?;
        to.set_nodelay(true)?;
        let mut buffer = vec![0; 64 << 10];
        while !self.stop.load(Ordering::Relaxed) {
            if self.silent.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            let lossy = self.lossy.load(Ordering::Relaxed);
            let room = match lossy {
                true => rng.usize(1..buffer.len()),
                false => buffer.len(),
            };
            let piece = match from.read(&mut buffer[..room]) {
                Ok(0) => return Ok(()),
                Ok(n) => &buffer[..n],
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            if lossy && rng.u32(..DELAY_ONE_IN) == 0 {
                std::thread::sleep(Duration::from_millis(rng.u64(..PIECE_DELAY_MS)));
            }
            if lossy && rng.u32(..CUT_ONE_IN) == 0 {
                return to.write_all(&piece[..piece.len() / 2]);
            }
            to.write_all(piece)?;
        }
        Ok(())
    }
}
