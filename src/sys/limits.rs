//! Limits of the process that cannot be raised, only reported.

use crossbeam_channel::bounded;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::thread::Builder;

/// The stack of a thread that does nothing, in bytes.
const STACK: usize = 64 << 10;

/// The limit of the address space, if there is one.
pub fn address_space_bytes() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Whether so many more threads can run at the same time: starts them, and ends them.
///
/// # Errors
/// One of them cannot be started.
pub fn try_threads(count: usize) -> io::Result<()> {
    let (end, is_end) = bounded::<()>(0);
    let mut threads = Vec::with_capacity(count);
    let mut started = Ok(());
    for _ in 0..count {
        let is_end = is_end.clone();
        let builder = Builder::new().stack_size(STACK);
        match builder.spawn(move || is_end.recv()) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                let text = format!("cannot start a thread: {error}");
                started = Err(io::Error::new(error.kind(), text));
                break;
            }
        }
    }
    drop(end);
    for thread in threads {
        // It has nothing to report.
        let _ = thread.join();
    }
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_can_be_started() {
        try_threads(4).unwrap();
    }
}
