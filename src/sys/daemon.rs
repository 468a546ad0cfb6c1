//! Running in the background, and the signal of a terminal that closes.
//!
//! A fork, which is sound as long as the process has one thread: the child goes on with
//! the configuration as it was read, wherever that came from. It keeps the terminal until
//! it is ready, so that whoever started it sees why it does not start. The parent waits
//! that long, and ends as the start did.

use rustix::process::{Pid, WaitOptions, setsid, waitpid};
use std::fs::{self, OpenOptions};
use std::io::{self, PipeWriter, Read, Write};

/// Which of the two processes this is after [`detach`].
#[derive(Debug)]
pub enum Side {
    /// The one that was started, with the status that it is to end with.
    Parent(u8),
    /// The one that is the server.
    Child(Detached),
}

/// A process whose parent waits for it to be ready.
#[derive(Debug)]
pub struct Detached(PipeWriter);

impl Detached {
    /// Leaves the terminal and lets the parent end.
    ///
    /// # Errors
    /// The system does not have `/dev/null`.
    pub fn ready(mut self) -> io::Result<()> {
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        // A parent that was killed meanwhile does not mind.
        let _ = self.0.write_all(&[1]);
        Ok(())
    }
}

/// Makes a process in a session of its own, with one thread as this one has.
///
/// # Errors
/// There are other threads, or the system has no room for another process.
pub fn detach() -> io::Result<Side> {
    if fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 1) {
        return Err(io::Error::other("other threads run already"));
    }
    let (mut ready, says_so) = io::pipe()?;
    let Some(child) = fork()? else {
        drop(ready);
        setsid()?;
        return Ok(Side::Child(Detached(says_so)));
    };
    drop(says_so);
    if ready.read_exact(&mut [0]).is_ok() {
        return Ok(Side::Parent(0));
    }
    // It ended before: not with success, whatever it says.
    let status = waitpid(Some(child), WaitOptions::empty())?;
    let code = status.and_then(|(_, status)| status.exit_status());
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(Side::Parent(code.unwrap_or(1).max(1)))
}

/// The child's number for the parent, nothing for the child.
#[allow(unsafe_code)]
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller is the only thread, so the child has all that the process
    // consists of, and no lock is held by a thread that it lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        child => Ok(Pid::from_raw(child)),
    }
}

/// SIGHUP may say that the terminal is gone, which a server can do without, and nothing
/// more until [somebody](signal_hook) looks for it; instead of
/// SIGXFSZ a write to a file that may not get longer reports an error.
#[allow(unsafe_code)]
pub fn ignore_signals() {
    // SAFETY: no handler is installed, so nothing can run at a bad time.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
