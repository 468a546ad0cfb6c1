//! The audit log: lines about refused logins and commands and about administrative commands, in
//! a file of their own.
//!
//! The thread that runs a command queues a line, and a thread of its own writes the lines, so that
//! commands do not wait for the disk. The queue is bounded: what does not fit, or cannot be written, is
//! counted as lost, and the log of the server says so once, until lines are written again.

use crate::sys::log_file::{LogFile, Reopen};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Lines that wait at most.
const MAX_QUEUED: usize = 4096;
/// Bytes of one line; [`Audit::add`] cuts longer ones.
pub const MAX_LINE_BYTES: usize = 4 << 10;
/// Bytes that are written at a time.
const WRITE_BYTES: usize = 64 << 10;
/// How often the server's log tells of lines that were lost because they were too many at a time.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// How long a change of the file, and the end of the server, wait for the thread.
const PATIENCE: Duration = Duration::from_secs(5);

/// A message to the thread.
enum Message {
    Line(Box<[u8]>),
    /// The file of later lines, if they are to be written at all.
    File(Option<LogFile>),
    /// The name may refer to another file now.
    Reopen,
}

/// What is counted.
#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
    failing: AtomicBool,
}

/// How the audit log fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Lines that were written.
    pub written: u64,
    /// Lines that were not.
    pub lost: u64,
    /// Whether the last line could not be written.
    pub failing: bool,
}

/// The thread and what reaches it.
struct Writer {
    queue: Sender<Message>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    handle: JoinHandle<()>,
}

/// The audit log. There is no thread until there is a file.
#[derive(Default)]
pub struct Audit {
    on: AtomicBool,
    counts: Arc<Counts>,
    reopen: Mutex<Reopen>,
    writer: Mutex<Option<Writer>>,
}

/// A file for the audit log.
pub struct AuditFile(LogFile);

impl AuditFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// It cannot be opened, or is something that would make the thread wait for others.
    pub fn open(path: PathBuf) -> io::Result<AuditFile> {
        LogFile::open_prompt(path).map(AuditFile)
    }
}

impl Audit {
    /// Whether lines are written.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// How it fares.
    pub fn figures(&self) -> Figures {
        Figures {
            written: self.counts.written.load(Ordering::Relaxed),
            lost: self.counts.lost.load(Ordering::Relaxed),
            failing: self.counts.failing.load(Ordering::Relaxed),
        }
    }

    /// Queues a line, without its end.
    pub fn add(&self, mut line: Vec<u8>) {
        if !self.is_on() {
            return;
        }
        if line.len() > MAX_LINE_BYTES {
            line.truncate(MAX_LINE_BYTES);
            line.extend_from_slice(b"...");
        }
        line.push(b'\n');
        let line = Message::Line(line.into());
        if self
            .queue()
            .is_some_and(|queue| queue.try_send(line).is_err())
        {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes lines to this file from now on, or to none.
    ///
    /// # Errors
    /// The thread cannot be started, or is stuck with the file before.
    pub fn write_to(&self, file: Option<AuditFile>) -> io::Result<()> {
        let is_on = file.is_some();
        let reopen = file.as_ref().map(|file| file.0.reopen());
        let queue = match self.queue() {
            Some(queue) => queue,
            None if !is_on => return Ok(()),
            None => self.start()?,
        };
        let message = Message::File(file.map(|file| file.0));
        let sent = queue.send_timeout(message, PATIENCE);
        sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        *self.reopen.lock() = reopen.unwrap_or_default();
        self.on.store(is_on, Ordering::Release);
        Ok(())
    }

    fn queue(&self) -> Option<Sender<Message>> {
        let writer = self.writer.lock();
        writer.as_ref().map(|writer| writer.queue.clone())
    }

    fn start(&self) -> io::Result<Sender<Message>> {
        let (queue, messages) = bounded(MAX_QUEUED);
        let (alive, ended) = bounded(0);
        let counts = self.counts.clone();
        let handle = Builder::new().name("audit".to_owned()).spawn(move || {
            let _alive: Sender<()> = alive;
            let mut thread = Thread {
                file: None,
                counts,
                told_lost: 0,
                told_at: None,
                is_torn: false,
                strays: false,
            };
            thread.run(&messages);
        })?;
        *self.writer.lock() = Some(Writer {
            queue: queue.clone(),
            ended,
            handle,
        });
        Ok(queue)
    }

    /// Opens the file anew, as its name may refer to another one.
    pub fn reopen(&self) {
        self.reopen.lock().ask();
        if let Some(queue) = self.queue() {
            // With a full queue the next line does it.
            let _ = queue.try_send(Message::Reopen);
        }
    }

    /// Writes what is queued and ends the thread.
    pub fn stop(&self) {
        self.on.store(false, Ordering::Release);
        let Some(writer) = self.writer.lock().take() else {
            return;
        };
        // The thread ends when it has taken everything that was queued.
        drop(writer.queue);
        match writer.ended.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) | Ok(()) => {
                log::error!("the audit log does not take its last lines");
            }
            Err(RecvTimeoutError::Disconnected) if writer.handle.join().is_err() => {
                log::error!("the audit thread had panicked");
            }
            Err(RecvTimeoutError::Disconnected) => {}
        }
    }
}

/// What the thread knows.
struct Thread {
    file: Option<LogFile>,
    counts: Arc<Counts>,
    /// How many lost lines the file tells of.
    told_lost: u64,
    /// When the server's log last told of some.
    told_at: Option<Instant>,
    /// Whether the file ends within a line.
    is_torn: bool,
    /// Whether the name of the file cannot be opened, so that lines go to the file before.
    strays: bool,
}

impl Thread {
    fn run(&mut self, messages: &Receiver<Message>) {
        let mut batch = Vec::new();
        while let Ok(first) = messages.recv() {
            let mut next = Some(first);
            while let Some(message) = next.take() {
                match message {
                    Message::Line(line) => batch.extend_from_slice(&line),
                    Message::File(file) => {
                        self.write(&mut batch);
                        self.file = file;
                        (self.is_torn, self.strays) = (false, false);
                        self.counts.failing.store(false, Ordering::Relaxed);
                    }
                    Message::Reopen => {
                        self.write(&mut batch);
                        self.follow_name();
                    }
                }
                if batch.len() < WRITE_BYTES {
                    next = messages.try_recv().ok();
                }
            }
            self.write(&mut batch);
        }
    }

    /// Writes lines, and before them how many were lost since the last ones.
    fn write(&mut self, batch: &mut Vec<u8>) {
        if batch.is_empty() {
            return;
        }
        self.follow_name();
        let Some(file) = &mut self.file else {
            batch.clear();
            return;
        };
        let lost = self.counts.lost.load(Ordering::Relaxed);
        let mut head = Vec::new();
        if self.is_torn {
            head.push(b'\n');
        }
        if lost > self.told_lost {
            let now = crate::sys::clock::unix_ms().utc();
            let line = format!("{now} lost lines={}\n", lost - self.told_lost);
            head.extend_from_slice(line.as_bytes());
        }
        let own = head.len();
        head.append(batch);
        let (done, written) = file.append(&head);
        let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let of_lines = head.get(own..).unwrap_or_default();
        let (whole, rest) = of_lines.split_at(done.saturating_sub(own));
        self.is_torn = match done {
            0 => self.is_torn,
            _ => !head[..done].ends_with(b"\n"),
        };
        let failed_before = self
            .counts
            .failing
            .swap(written.is_err(), Ordering::Relaxed);
        self.counts
            .written
            .fetch_add(lines(whole), Ordering::Relaxed);
        match written {
            Ok(()) => {
                let since = lost - self.told_lost;
                let told = self.told_at.is_some_and(|at| at.elapsed() < TELL_EVERY);
                if failed_before || since > 0 && !told {
                    let path = file.path().display();
                    log::warn!("the audit log {path} is written; {since} lines before are lost");
                    self.told_at = Some(Instant::now());
                }
                self.told_lost = lost;
            }
            Err(error) => {
                self.counts.lost.fetch_add(lines(rest), Ordering::Relaxed);
                if !failed_before {
                    let path = file.path().display();
                    log::error!(
                        "the audit log {path} cannot be written: {error}. Its lines are lost \
                         and counted in INFO until this is over"
                    );
                }
            }
        }
    }

    fn follow_name(&mut self) {
        let Some(file) = &mut self.file else {
            return;
        };
        let followed = file.follow_name();
        if let Err(error) = &followed
            && !self.strays
        {
            log::error!(
                "the audit log {} cannot be opened anew: {error}. Lines go to the file that was \
                 open before",
                file.path().display()
            );
        }
        self.strays = followed.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(dir: &tempfile::TempDir, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn on(dir: &tempfile::TempDir, name: &str) -> AuditFile {
        AuditFile::open(dir.path().join(name)).unwrap()
    }

    #[test]
    fn lines_go_to_the_file_of_their_time() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::default();
        audit.add(b"before".to_vec());
        audit.write_to(None).unwrap();
        audit.write_to(Some(on(&dir, "a"))).unwrap();
        audit.add(b"1".to_vec());
        audit.add(vec![b'x'; 2 * MAX_LINE_BYTES]);
        audit.write_to(Some(on(&dir, "b"))).unwrap();
        audit.add(b"2".to_vec());
        audit.write_to(None).unwrap();
        audit.add(b"3".to_vec());
        audit.write_to(Some(on(&dir, "b"))).unwrap();
        audit.add(b"4".to_vec());
        audit.stop();
        audit.add(b"5".to_vec());
        let (first, second) = (lines(&dir, "a"), lines(&dir, "b"));
        assert_eq!((first.len(), first[0].as_str()), (2, "1"));
        assert_eq!(first[1].len(), MAX_LINE_BYTES + "...".len());
        assert_eq!(second, ["2", "4"]);
        let figures = Figures {
            written: 4,
            lost: 0,
            failing: false,
        };
        assert_eq!(audit.figures(), figures);
    }

    #[test]
    fn a_full_disk_is_counted_and_over_when_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::default();
        let full = AuditFile::open("/dev/full".into()).unwrap();
        audit.write_to(Some(full)).unwrap();
        for n in 0..10 {
            audit.add(vec![b'0' + n]);
        }
        audit.write_to(Some(on(&dir, "a"))).unwrap();
        audit.add(b"later".to_vec());
        audit.stop();
        let found = lines(&dir, "a");
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with(" lost lines=10"), "{found:?}");
        assert_eq!(found[1], "later");
        let figures = Figures {
            written: 1,
            lost: 10,
            failing: false,
        };
        assert_eq!(audit.figures(), figures);
    }

    #[test]
    fn what_would_block_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert!(AuditFile::open(pipe).is_err());
        assert!(AuditFile::open(dir.path().to_owned()).is_err());
    }
}
