//! Data received from the source that the target does not have yet, in files beside the
//! checkpoint:
//!
//! ```text
//! FILE.rdb      the data set
//! FILE.stream   the commands after it, unchanged
//! FILE.spool    description of both, once FILE.rdb is complete
//! ```
//!
//! A thread receives at the pace of the source while the target loads at its own pace.
//! So the source need not buffer for a slow target, and a copy continues after a restart
//! of the tool or of a server. The connection to the source has to last until the data
//! set is received, not until it is loaded.
//!
//! Once the target has everything, the connection passes to the follower and the files
//! are removed. They are not synced to disk: after a reboot of the machine they are
//! ignored.

use super::checkpoint::{Progress, Stage, write_whole};
use super::error::{Error, Result};
use super::options::Endpoint;
use super::psync::{
    Acknowledged, Acknowledger, Answer, Feed, MARK_LEN, Position, Stream, Transfer, check_len,
};
use super::stats::Stats;
use super::{RETRY, Stop, conn, sleep};
use crate::resp::Input;
use memchr::memmem::Finder;
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// An id that changes with every boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Description of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The replication id of the data set.
    id: String,
    /// The replication id at the end of the stream.
    latest: String,
    /// The offset at which the stream begins.
    next: u64,
    /// Length of the data set in bytes.
    rdb: u64,
}

impl Held {
    /// The position at which the stream begins.
    fn start(&self) -> Position {
        Position {
            id: self.id.clone(),
            next: self.next,
            db: 0,
        }
    }

    fn parse(text: &str, boot: &str) -> Option<Held> {
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        let [of_boot, id, latest, next, rdb] = *words.as_slice() else {
            return None;
        };
        (of_boot == boot).then_some(Held {
            id: id.to_owned(),
            latest: latest.to_owned(),
            next: next.parse().ok()?,
            rdb: rdb.parse().ok()?,
        })
    }

    fn text(&self, boot: &str) -> String {
        let Held {
            id,
            latest,
            next,
            rdb,
        } = self;
        format!("{boot} {id} {latest} {next} {rdb}\n")
    }
}

/// Paths of the files.
#[derive(Debug, Clone)]
pub struct Spool {
    rdb: PathBuf,
    stream: PathBuf,
    note: PathBuf,
    boot: String,
}

impl Spool {
    /// The files beside this checkpoint.
    pub(super) fn beside(checkpoint: &Path) -> Spool {
        let beside = |ending: &str| {
            let mut name = checkpoint.file_name().unwrap_or_default().to_owned();
            name.push(ending);
            checkpoint.with_file_name(name)
        };
        // Without a boot id the files are valid for this process only.
        let boot = std::fs::read_to_string(BOOT_ID)
            .map(|id| id.trim_end().to_owned())
            .unwrap_or_else(|_| format!("process-{}", std::process::id()));
        Spool {
            rdb: beside(".rdb"),
            stream: beside(".stream"),
            note: beside(".spool"),
            boot,
        }
    }

    /// The description of the files, if they continue from the target's progress.
    pub fn held(&self, known: Option<&Progress>) -> Result<Option<Held>> {
        let text = match std::fs::read_to_string(&self.note) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file(&self.note, error)),
        };
        let (Some(held), Some(known)) = (Held::parse(&text, &self.boot), known) else {
            return Ok(None);
        };
        let len = |path: &Path| std::fs::metadata(path).map(|file| file.len()).ok();
        let Some(stream) = len(&self.stream) else {
            return Ok(None);
        };
        let leads_on = match &known.stage {
            Stage::Copying(_) => len(&self.rdb) == Some(held.rdb),
            Stage::Following(at) => {
                (held.id == at.id || held.latest == at.id)
                    && (held.next..=held.next + stream).contains(&at.next)
            }
        };
        Ok(leads_on.then_some(held))
    }

    /// Removes the files.
    pub fn remove(&self) -> Result<()> {
        self.forget()?;
        remove(&self.rdb)?;
        remove(&self.stream)
    }

    /// Invalidates the files.
    fn forget(&self) -> Result<()> {
        remove(&self.note)
    }

    /// Removes the data set once the target has it.
    pub(super) fn remove_rdb(&self) -> Result<()> {
        remove(&self.rdb)
    }

    fn write_note(&self, held: &Held) -> Result<()> {
        let text = held.text(&self.boot);
        write_whole(&self.note, text.as_bytes(), |_| Ok(()))
            .map_err(|e| Error::file(&self.note, e))?;
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file(path, error)),
        _ => Ok(()),
    }
}

/// The source of a receiver, and what it shares with other threads.
#[derive(Clone)]
pub struct Link {
    /// The source.
    pub source: Endpoint,
    /// `--network_limit`.
    pub mb_per_s: Option<f64>,
    /// The stop flag.
    pub stop: Stop,
    /// Counters.
    pub stats: Arc<Stats>,
    /// Offset up to which the target has the stream.
    pub applied: Arc<AtomicU64>,
}

impl Link {
    /// Asks the source for the stream after a position, or for a full sync.
    pub fn psync(&self, from: Option<&Position>) -> Result<(Stream, Answer)> {
        Stream::psync(&self.source, from, self.mb_per_s, &self.stop, &self.stats)
    }
}

/// Progress of the receiver.
#[derive(Default)]
struct State {
    /// Bytes of the data set in the file.
    rdb: u64,
    is_rdb_whole: bool,
    /// Bytes of the stream in the file.
    stream: u64,
    /// Whether the source is connected and sends the stream.
    is_connected: bool,
    /// Whether the receiver has ended, maybe with this error.
    is_over: bool,
    error: Option<Error>,
    /// Whether the receiver should hand over the connection and end.
    is_asked: bool,
    /// The current replication id.
    latest: String,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }
}

/// The receiving thread.
pub struct Receiver {
    spool: Spool,
    link: Link,
    shared: Arc<Shared>,
    /// Returns the connection, if there is one.
    thread: Option<JoinHandle<Option<Stream>>>,
    held: Held,
}

impl Receiver {
    /// Receives a data set that the source has announced, and the stream after it.
    pub fn begin(
        spool: &Spool,
        link: &Link,
        stream: Stream,
        transfer: Transfer,
        start: &Position,
    ) -> Result<Receiver> {
        spool.remove()?;
        let rdb = create(&spool.rdb)?;
        let held = Held {
            id: start.id.clone(),
            latest: start.id.clone(),
            next: start.next,
            rdb: 0,
        };
        Receiver::spawn(spool, link, held, Some((stream, transfer, rdb)))
    }

    /// Continues at the end of the files.
    pub fn resume(spool: &Spool, link: &Link, held: Held) -> Result<Receiver> {
        Receiver::spawn(spool, link, held, None)
    }

    fn spawn(
        spool: &Spool,
        link: &Link,
        held: Held,
        first: Option<(Stream, Transfer, File)>,
    ) -> Result<Receiver> {
        let file = match &first {
            Some(_) => create(&spool.stream)?,
            None => File::options()
                .append(true)
                .open(&spool.stream)
                .map_err(|e| Error::file(&spool.stream, e))?,
        };
        let len = file.metadata().map_err(|e| Error::file(&spool.stream, e))?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                rdb: held.rdb,
                is_rdb_whole: first.is_none(),
                stream: len.len(),
                latest: held.latest.clone(),
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        let mut inbox = Inbox {
            spool: spool.clone(),
            link: link.clone(),
            shared: shared.clone(),
            held: held.clone(),
            stream: file,
        };
        let thread = std::thread::Builder::new().name("receive".into());
        let thread = thread.spawn(move || inbox.run(first));
        Ok(Receiver {
            spool: spool.clone(),
            link: link.clone(),
            shared,
            thread: Some(thread.map_err(Error::Source)?),
            held,
        })
    }

    /// The position at which the stream begins.
    pub fn start(&self) -> Position {
        self.held.start()
    }

    /// Whether the thread is running.
    pub(super) fn is_running(&self) -> bool {
        !self.shared.state.lock().is_over
    }

    /// The error with which the receiver ended; taken by the first call.
    pub fn failure(&self) -> Option<Error> {
        self.shared.state.lock().error.take()
    }

    /// Reads the data set while it is received.
    pub fn rdb(&self) -> Result<RdbReader> {
        Ok(RdbReader {
            file: open(&self.spool.rdb)?,
            input: Input::default(),
            read: 0,
            shared: self.shared.clone(),
            stop: self.link.stop.clone(),
        })
    }

    /// Waits for the end of the data set and checks that it has `read` bytes.
    pub(super) fn check_rdb(&self, read: u64) -> Result<()> {
        let mut state = self.shared.state.lock();
        while !state.is_rdb_whole {
            if state.is_over {
                return Err(state.error.take().unwrap_or(Error::Stopped));
            }
            self.link.stop.check()?;
            self.shared.changed.wait_for(&mut state, conn::NAP);
        }
        check_len(state.rdb, read)
    }

    /// Reads the stream from an offset on.
    pub fn feed(self, next: u64) -> Result<SpoolFeed> {
        let mut file = open(&self.spool.stream)?;
        let read = next.saturating_sub(self.held.next);
        file.seek(SeekFrom::Start(read))
            .map_err(|e| Error::file(&self.spool.stream, e))?;
        Ok(SpoolFeed {
            file,
            input: Input::default(),
            read,
            receiver: self,
            live: None,
            latest: None,
        })
    }

    /// Ends the thread; returns the connection, if there is one.
    fn end(&mut self) -> Option<Stream> {
        self.shared.change(|state| state.is_asked = true);
        self.thread.take()?.join().ok()?
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end();
        // An incomplete data set is useless.
        if !self.shared.state.lock().is_rdb_whole
            && let Err(error) = self.spool.remove()
        {
            log::error!("{error}");
        }
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|e| Error::file(path, e))
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|e| Error::file(path, e))
}

/// The state of the thread.
struct Inbox {
    spool: Spool,
    link: Link,
    shared: Arc<Shared>,
    held: Held,
    stream: File,
}

impl Inbox {
    fn run(&mut self, first: Option<(Stream, Transfer, File)>) -> Option<Stream> {
        let done = self.receive(first);
        let (stream, error) = match done {
            Ok(stream) => (stream, None),
            Err(error) => (None, Some(error)),
        };
        self.shared.change(|state| {
            state.is_over = true;
            state.error = error;
        });
        stream
    }

    fn receive(&mut self, first: Option<(Stream, Transfer, File)>) -> Result<Option<Stream>> {
        let mut connected = None;
        if let Some((mut stream, transfer, rdb)) = first {
            // An incomplete data set cannot be continued, since another one would be of
            // another point in time. So an error here is not retried.
            let acknowledging = stream.acknowledge(self.link.applied.clone())?;
            self.receive_rdb(&mut stream, transfer, rdb)?;
            // The source may wait for an acknowledgement.
            acknowledging.now();
            connected = Some((stream, acknowledging));
        }
        loop {
            let done = match connected.take() {
                Some(connected) => Ok(Some(connected)),
                None => self.connect(),
            };
            let error = match done {
                Ok(None) => return Ok(None),
                Ok(Some((mut stream, _acknowledging))) => {
                    self.shared.change(|state| state.is_connected = true);
                    let received = self.receive_stream(&mut stream);
                    self.shared.change(|state| state.is_connected = false);
                    match received {
                        Ok(()) => return Ok(Some(stream)),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if !error.is_passing() || matches!(error, Error::Lost(_)) {
                return Err(error);
            }
            log::warn!("{error}; trying again");
            self.link.stats.reconnects.fetch_add(1, Ordering::Relaxed);
            sleep(RETRY, &self.link.stop);
        }
    }

    /// Whether the receiver should end.
    fn is_over(&self) -> bool {
        self.link.stop.is_wanted() || self.shared.state.lock().is_asked
    }

    /// Connects and continues at the end of the file; `None` if the receiver should end.
    fn connect(&mut self) -> Result<Option<(Stream, Acknowledger)>> {
        if self.is_over() {
            return Ok(None);
        }
        let at = Position {
            id: self.held.latest.clone(),
            next: self.held.next + self.shared.state.lock().stream,
            db: 0,
        };
        let (stream, answer) = self.link.psync(Some(&at))?;
        let Answer::Continue(id) = answer else {
            self.spool.forget()?;
            return Err(Error::Lost(at.next - 1));
        };
        if id != self.held.latest {
            self.held.latest = id.clone();
            self.spool.write_note(&self.held)?;
            self.shared.change(|state| state.latest = id);
        }
        let acknowledging = stream.acknowledge(self.link.applied.clone())?;
        Ok(Some((stream, acknowledging)))
    }

    fn receive_rdb(&mut self, from: &mut Stream, transfer: Transfer, mut to: File) -> Result<()> {
        let finder = match &transfer {
            Transfer::Mark(mark) => Some(Finder::new(mark)),
            Transfer::Length(_) => None,
        };
        loop {
            if self.link.stop.is_wanted() || self.shared.state.lock().is_asked {
                return Err(Error::Stopped);
            }
            let waiting = from.waiting();
            let (take, after) = match (&transfer, &finder) {
                (Transfer::Length(length), _) => {
                    let left = length - self.held.rdb;
                    let take = usize::try_from(left).unwrap_or(usize::MAX);
                    (
                        take.min(waiting.len()),
                        (take <= waiting.len()).then_some(0),
                    )
                }
                (_, Some(finder)) => match finder.find(waiting) {
                    Some(at) => (at, Some(MARK_LEN)),
                    // The last bytes may be the beginning of the end mark.
                    None => (waiting.len().saturating_sub(MARK_LEN - 1), None),
                },
                (_, None) => (0, None),
            };
            let bytes = waiting.get(..take).unwrap_or_default();
            to.write_all(bytes)
                .map_err(|e| Error::file(&self.spool.rdb, e))?;
            self.held.rdb += take as u64;
            Feed::consume(from, take + after.unwrap_or(0));
            let whole = after.is_some();
            if whole {
                self.spool.write_note(&self.held)?;
            }
            let rdb = self.held.rdb;
            self.shared.change(|state| {
                state.rdb = rdb;
                state.is_rdb_whole = whole;
            });
            if whole {
                return Ok(());
            }
            from.fill()?;
        }
    }

    /// Receives until the connection is to be handed over.
    fn receive_stream(&mut self, from: &mut Stream) -> Result<()> {
        loop {
            let waiting = from.waiting();
            let came = waiting.len();
            if came > 0 {
                self.stream
                    .write_all(waiting)
                    .map_err(|e| Error::file(&self.spool.stream, e))?;
                Feed::consume(from, came);
                self.shared.change(|state| state.stream += came as u64);
            }
            if self.is_over() {
                return Ok(());
            }
            from.fill()?;
        }
    }
}

/// The data set, while it is received.
pub struct RdbReader {
    file: File,
    input: Input,
    read: u64,
    shared: Arc<Shared>,
    stop: Stop,
}

impl Read for RdbReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.input.consume(n);
        Ok(n)
    }
}

impl BufRead for RdbReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.input.waiting().is_empty() {
            let mut state = self.shared.state.lock();
            if self.stop.is_wanted() || state.is_over {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            let left = state.rdb - self.read;
            if left == 0 {
                if state.is_rdb_whole {
                    break;
                }
                self.shared.changed.wait_for(&mut state, conn::NAP);
                continue;
            }
            drop(state);
            let step = READ_BYTES.min(usize::try_from(left).unwrap_or(READ_BYTES));
            match self.input.read_from(&mut self.file, step)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => self.read += n as u64,
            }
        }
        Ok(self.input.waiting())
    }

    fn consume(&mut self, n: usize) {
        self.input.consume(n);
    }
}

/// The stream: first from the file, then from the source.
pub struct SpoolFeed {
    file: File,
    input: Input,
    /// Bytes of the stream read from the file.
    read: u64,
    receiver: Receiver,
    /// The connection, once the file was read to its end.
    live: Option<Acknowledged>,
    /// The new replication id of the stream.
    latest: Option<String>,
}

impl SpoolFeed {
    /// Takes over the connection at the end of the file.
    fn go_live(&mut self) -> Result<()> {
        let Some(mut stream) = self.receiver.end() else {
            let gone = || Error::NotReady("the source has just disconnected".into());
            return Err(self.receiver.failure().unwrap_or_else(gone));
        };
        let (came, latest) = {
            let state = self.receiver.shared.state.lock();
            (state.stream, state.latest.clone())
        };
        // The receiver may have written these bytes meanwhile.
        while self.read < came {
            self.read_file()?;
        }
        stream.put_back(std::mem::take(&mut self.input));
        let acknowledging = stream.acknowledge(self.receiver.link.applied.clone())?;
        self.latest = Some(latest);
        self.live = Some(Acknowledged::new(stream, acknowledging));
        self.receiver.spool.remove()
    }

    fn read_file(&mut self) -> Result<()> {
        let path = &self.receiver.spool.stream;
        match self.input.read_from(&mut self.file, READ_BYTES) {
            Ok(0) => Err(Error::file(path, ErrorKind::UnexpectedEof.into())),
            Ok(n) => {
                self.read += n as u64;
                Ok(())
            }
            Err(error) => Err(Error::file(path, error)),
        }
    }
}

impl Feed for SpoolFeed {
    fn waiting(&self) -> &[u8] {
        match &self.live {
            Some(live) => live.waiting(),
            None => self.input.waiting(),
        }
    }

    fn consume(&mut self, n: usize) {
        match &mut self.live {
            Some(live) => live.consume(n),
            None => self.input.consume(n),
        }
    }

    fn fill(&mut self) -> Result<bool> {
        if let Some(live) = &mut self.live {
            return live.fill();
        }
        let shared = self.receiver.shared.clone();
        let mut state = shared.state.lock();
        let has_more = self.read < state.stream;
        let is_lost = matches!(state.error, Some(Error::Lost(_)));
        if is_lost || !has_more {
            // A tool that must copy again need not read the rest.
            if let Some(error) = state.error.take() {
                return Err(error);
            }
        }
        if has_more {
            drop(state);
            self.read_file()?;
        } else if state.is_connected {
            drop(state);
            self.go_live()?;
        } else {
            shared.changed.wait_for(&mut state, conn::NAP);
        }
        Ok(true)
    }

    fn new_id(&mut self) -> Option<String> {
        self.latest.take()
    }
}

#[cfg(test)]
mod tests;
