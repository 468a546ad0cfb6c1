//! Running in the background, and the signal of a closed terminal.
//!
//! The process forks, which is sound as long as it has one thread. The child continues with the
//! configuration as it was read, wherever that came from. It keeps the terminal until it is ready,
//! so that errors of the start are seen there. The parent waits that long, and exits with the
//! status of the start.

use rustix::process::{Pid, WaitOptions, setsid, waitpid};
use std::fs::{self, OpenOptions};
use std::io::{self, PipeWriter, Read, Write};

/// Which of the two processes this is after [`detach`].
#[derive(Debug)]
pub enum Side {
    /// The process that was started, with its exit status.
    Parent(u8),
    /// The process that becomes the server.
    Child(Detached),
}

/// A process whose parent waits for it to be ready.
#[derive(Debug)]
pub struct Detached(PipeWriter);

impl Detached {
    /// Leaves the terminal and lets the parent exit.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened.
    pub fn ready(mut self) -> io::Result<()> {
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        // The parent may have been killed meanwhile.
        let _ = self.0.write_all(&[1]);
        Ok(())
    }
}

/// Forks a child with a session of its own. This process must have one thread.
///
/// # Errors
/// There are other threads, or the system cannot create a process.
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
    // The child exited before it was ready: a failure, whatever its status.
    let status = waitpid(Some(child), WaitOptions::empty())?;
    let code = status.and_then(|(_, status)| status.exit_status());
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(Side::Parent(code.unwrap_or(1).max(1)))
}

/// Returns the child's process id in the parent, `None` in the child.
#[allow(unsafe_code)]
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller is the only thread, so the child has all threads of the process, and no
    // lock is held by a thread that it lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        child => Ok(Pid::from_raw(child)),
    }
}

/// Ignores SIGHUP, which a closed terminal sends, until a [handler](signal_hook) is installed, and
/// SIGXFSZ, so that a write beyond the limit of a file's size returns an error instead.
#[allow(unsafe_code)]
pub fn ignore_signals() {
    // SAFETY: no handler is installed, so no code runs in a signal context.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
