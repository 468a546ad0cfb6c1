//! The connections over which a copy is written, each with a thread. Commands on one
//! connection run in order; between connections there is no order.

use super::Stop;
use super::conn::{Conn, Dbs};
use super::elements::{Abilities, Maker};
use super::error::{Error, Result, shown_command};
use super::options::{Endpoint, Options};
use super::stats::Stats;
use crate::resp::{Limits, Parser, Progress, Value};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Bytes of a batch, not counting its last command.
const BATCH_BYTES: usize = 128 << 10;
/// Batches queued for a connection.
const WAITING_BATCHES: usize = 2;

/// Target, connections and limits of a copy.
#[derive(Debug, Clone)]
pub struct Route {
    /// The target.
    pub target: Endpoint,
    /// Its abilities.
    pub abilities: Abilities,
    /// Number of connections.
    pub parallel: u16,
    /// Commands in a batch.
    pub pipeline: u32,
    /// Limit for all connections together, in MB/s.
    pub mb_per_s: Option<f64>,
    /// Whether refused commands are only reported.
    pub keep_going: bool,
}

impl Route {
    /// The route that these flags describe.
    pub fn new(options: &Options, abilities: Abilities) -> Route {
        Route {
            target: options.target(),
            abilities,
            parallel: options.parallel,
            pipeline: options.pipeline,
            mb_per_s: options.network_limit,
            keep_going: options.keep_going,
        }
    }
}

struct Batch {
    /// The target's DB for these commands.
    db: Option<u64>,
    bytes: Vec<u8>,
    commands: usize,
    /// All keys of the lane that end before this byte of the file are in this batch or
    /// earlier ones.
    to: u64,
    /// Signalled when the whole batch is answered.
    done: Option<Sender<()>>,
}

/// What the target has answered on a lane's connection.
#[derive(Default)]
struct Answered {
    batches: AtomicU64,
    /// [`Batch::to`] of the last answered batch.
    to: AtomicU64,
}

/// A connection with its thread.
pub struct Lane {
    /// Makes the commands of the next batch.
    pub maker: Maker,
    pipeline: usize,
    db: Option<u64>,
    batches: Option<Sender<Batch>>,
    thread: Option<JoinHandle<Result<()>>>,
    /// Byte of the file at which the lane's last key ends.
    pub to: u64,
    sent: u64,
    answered: Arc<Answered>,
}

impl Lane {
    /// The error of the thread, which has ended.
    fn failure(&mut self) -> Error {
        self.batches = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            Some(Err(_)) => Error::Refused("a writing thread panicked".into()),
            _ => Error::Stopped,
        }
    }

    /// All keys of the lane that end before this byte of the file are at the target;
    /// `None` if all keys of the lane are.
    pub fn answered(&self) -> Option<u64> {
        let is_all =
            self.maker.commands == 0 && self.answered.batches.load(Ordering::Acquire) == self.sent;
        (!is_all).then(|| self.answered.to.load(Ordering::Acquire))
    }

    /// Later commands are for this DB.
    pub fn select(&mut self, db: u64) -> Result<()> {
        if self.db != Some(db) {
            self.flush()?;
            self.db = Some(db);
        }
        Ok(())
    }

    /// Sends pending commands in the middle of a value, if they fill a batch.
    pub(super) fn flush_long(&mut self) -> Result<()> {
        match self.maker.out.len() >= BATCH_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Sends pending commands if they fill a batch.
    pub(super) fn flush_full(&mut self) -> Result<()> {
        match self.maker.commands >= self.pipeline {
            true => self.flush(),
            false => self.flush_long(),
        }
    }

    /// Sends pending commands.
    pub fn flush(&mut self) -> Result<()> {
        if self.maker.commands == 0 {
            return Ok(());
        }
        let batch = Batch {
            db: self.db,
            done: None,
            bytes: std::mem::replace(&mut self.maker.out, Vec::with_capacity(BATCH_BYTES)),
            commands: std::mem::take(&mut self.maker.commands),
            to: self.to,
        };
        self.send(batch)
    }

    fn send(&mut self, batch: Batch) -> Result<()> {
        self.sent += 1;
        let sent = self.batches.as_ref().map(|to| to.send(batch));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failure()),
        }
    }

    /// Waits until all commands are answered.
    pub fn drain(&mut self) -> Result<()> {
        self.flush()?;
        let (done, answered) = bounded(1);
        self.send(Batch {
            db: self.db,
            bytes: Vec::new(),
            commands: 0,
            to: self.to,
            done: Some(done),
        })?;
        answered.recv().map_err(|_| self.failure())
    }

    /// Sends pending commands and closes the queue.
    pub fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.batches = None;
        Ok(())
    }

    /// Waits for the end of the thread, after [`Lane::finish`].
    pub fn join(&mut self) -> Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done,
            _ => Err(Error::Refused("a writing thread panicked".into())),
        }
    }
}

/// Waits for the thread, so that no command of the lane runs after what follows.
impl Drop for Lane {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // Its error does not matter any more.
            let _ = thread.join();
        }
    }
}

/// Opens the connections.
pub fn open(route: &Route, stop: &Stop, stats: &Arc<Stats>) -> Result<Vec<Lane>> {
    (0..route.parallel)
        .map(|n| lane(n, route, stop, stats))
        .collect()
}

fn lane(n: u16, route: &Route, stop: &Stop, stats: &Arc<Stats>) -> Result<Lane> {
    let mut conn = Conn::new(&route.target, stop)?;
    let share = |rate: f64| rate / f64::from(route.parallel);
    conn.limit(route.mb_per_s.map(share));
    let (send, batches) = bounded(WAITING_BATCHES);
    let (stats, keep_going) = (stats.clone(), route.keep_going);
    let answered = Arc::new(Answered::default());
    let answers = answered.clone();
    let thread = std::thread::Builder::new().name(format!("write-{n}"));
    let thread = thread.spawn(move || write(&mut conn, &batches, keep_going, &answers, &stats));
    Ok(Lane {
        maker: Maker::new(route.abilities),
        pipeline: route.pipeline as usize,
        db: None,
        batches: Some(send),
        thread: Some(thread.map_err(Error::Target)?),
        to: 0,
        sent: 0,
        answered,
    })
}

/// Sends one batch while the replies to the previous one are outstanding. A batch for
/// another DB is sent after the target has answered SELECT: after a failed SELECT the
/// commands would run in the previous DB.
fn write(
    conn: &mut Conn,
    batches: &Receiver<Batch>,
    keep_going: bool,
    answered: &Answered,
    stats: &Stats,
) -> Result<()> {
    let (mut under_way, mut selected): (Option<Batch>, _) = (None, None);
    let finish = |conn: &mut Conn, batch: Batch| -> Result<()> {
        read_replies(conn, &batch, keep_going, stats)?;
        answered.to.store(batch.to, Ordering::Release);
        answered.batches.fetch_add(1, Ordering::AcqRel);
        if let Some(done) = batch.done {
            // The receiver may be gone.
            let _ = done.send(());
        }
        Ok(())
    };
    loop {
        let next = match under_way {
            // Outstanding replies are read when there is nothing to send.
            Some(_) => batches.try_recv().ok(),
            None => match batches.recv() {
                Ok(batch) => Some(batch),
                Err(_) => return Ok(()),
            },
        };
        if let Some(batch) = &next {
            let before = conn.sent;
            if let Some(db) = batch.db.filter(|db| selected != Some(*db)) {
                if let Some(batch) = under_way.take() {
                    finish(conn, batch)?;
                }
                conn.ask(&["SELECT", &db.to_string()])?;
                selected = Some(db);
            }
            conn.send(&batch.bytes)?;
            let sent = conn.sent - before;
            stats.bytes_out.fetch_add(sent, Ordering::Relaxed);
        }
        if let Some(batch) = under_way.take() {
            finish(conn, batch)?;
        }
        under_way = next;
    }
}

fn read_replies(conn: &mut Conn, batch: &Batch, keep_going: bool, stats: &Stats) -> Result<()> {
    let mut read = 0;
    while read < batch.commands {
        read += conn.pass(b"+OK\r\n", batch.commands - read)?;
        if read == batch.commands {
            break;
        }
        if let Value::Error(error) = conn.reply()? {
            let command = nth_command(&batch.bytes, read);
            refused(command, error, false, keep_going, stats)?;
        }
        read += 1;
    }
    Ok(())
}

/// Handles a refused command: an error, or a report with `keep_going`.
pub fn refused(
    command: String,
    error: String,
    is_partial: bool,
    keep_going: bool,
    stats: &Stats,
) -> Result<()> {
    let error = Error::Command {
        command,
        error,
        is_partial,
    };
    if !keep_going {
        return Err(error);
    }
    stats.errors.fetch_add(1, Ordering::Relaxed);
    log::error!("{error}");
    Ok(())
}

/// Whether the target lacks a DB; handled like a refused command.
pub fn is_refused(dbs: &mut Dbs, db: u64, keep_going: bool, stats: &Stats) -> Result<bool> {
    let Some(error) = dbs.refusal(db)? else {
        return Ok(false);
    };
    let (command, error) = (format!("\"SELECT {db}\""), error.to_owned());
    refused(command, error, false, keep_going, stats)?;
    Ok(true)
}

/// The nth command in these bytes, for display.
pub(super) fn nth_command(bytes: &[u8], n: usize) -> String {
    let limits = Limits {
        max_bulk_len: usize::MAX,
        authenticated: true,
    };
    let mut rest = bytes;
    let mut parser = Parser::new();
    for at in 0..=n {
        match parser.advance(rest, &limits) {
            Ok(Progress::Complete { consumed }) => {
                if at == n {
                    let args: Vec<&[u8]> = parser.args_of(rest).collect();
                    return shown_command(&args);
                }
                rest = rest.get(consumed..).unwrap_or_default();
            }
            _ => break,
        }
        parser.reset();
    }
    "a command".into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::options::Address;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A target that accepts SELECT of a DB on one connection and refuses it on another.
    /// No real server does this on demand.
    #[test]
    fn commands_for_a_db_are_sent_when_the_target_has_selected_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                received.extend_from_slice(&buffer[..n]);
                let answer: &[u8] = match buffer[..n].windows(6).any(|word| word == b"SELECT") {
                    true => b"-ERR not now\r\n",
                    false => b"+PONG\r\n",
                };
                stream.write_all(answer).unwrap();
            }
            String::from_utf8(received).unwrap()
        });
        let endpoint = Endpoint {
            role: "target",
            address: Address {
                host: "127.0.0.1".into(),
                port,
            },
            user: None,
            password: None,
            tls: None,
        };
        let route = Route {
            target: endpoint,
            abilities: Abilities {
                set_pxat: true,
                stream_counters: true,
                field_times: false,
                member_times: false,
            },
            parallel: 1,
            pipeline: 1,
            mb_per_s: None,
            keep_going: true,
        };
        let stats = Arc::new(Stats::default());
        let mut lanes = open(&route, &Stop::default(), &stats).unwrap();
        let lane = &mut lanes[0];
        lane.select(3).unwrap();
        lane.maker.command(&[b"SET", b"key", b"value"]);
        let failed = lane.finish().and_then(|()| lane.join()).unwrap_err();
        assert!(failed.to_string().contains("not now"), "{failed}");
        drop(lanes);
        let received = target.join().unwrap();
        assert!(
            received.contains("SELECT") && !received.contains("SET\r\n"),
            "{received}"
        );
    }
}
