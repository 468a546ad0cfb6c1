//! What takes long and what no client waits for: freeing large structures, and taking a client that
//! has left out of the tables in which it stands a million times. A thread of its own does that, so
//! that no other client of an IO thread waits for it.
//!
//! The queue is bounded. What it does not take, and what is small, its owner does at once.

use super::Server;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::atomic::{AtomicBool, Ordering};

/// Chores that may wait.
const QUEUE: usize = 1024;
/// So many keys, names or commands are taken out of tables, or freed, at once.
pub const MANY: usize = 2048;
/// So many bytes are freed at once: returning their pages to the system takes long.
const MANY_BYTES: usize = 1 << 20;

/// One chore.
pub type Chore = Box<dyn FnOnce(&Server) + Send>;

/// The chores that wait; `None`: the thread ends.
pub struct Chores {
    queue: (Sender<Option<Chore>>, Receiver<Option<Chore>>),
    /// Whether a thread does them.
    served: AtomicBool,
}

impl Default for Chores {
    fn default() -> Self {
        Chores {
            queue: bounded(QUEUE),
            served: AtomicBool::new(false),
        }
    }
}

impl Chores {
    /// Leaves a chore to the thread that does them.
    ///
    /// # Errors
    /// There is no such thread, or the queue is full; returns the chore.
    pub fn leave(&self, chore: Chore) -> Result<(), Option<Chore>> {
        if !self.served.load(Ordering::Acquire) {
            return Err(Some(chore));
        }
        let left = self.queue.0.try_send(Some(chore));
        left.map_err(|full| full.into_inner())
    }

    /// Frees a value that has so many parts.
    pub fn free<T: Send + 'static>(&self, value: T, parts: usize) {
        if parts > MANY {
            // If nobody takes it, it is freed here.
            drop(self.leave(Box::new(move |_| drop(value))));
        }
    }

    /// Frees a buffer.
    pub fn free_bytes(&self, buffer: Vec<u8>) {
        if buffer.capacity() >= MANY_BYTES {
            drop(self.leave(Box::new(move |_| drop(buffer))));
        }
    }

    /// Ends the thread once it has done what waits.
    pub fn stop(&self) {
        self.served.store(false, Ordering::Release);
        // It fails only if the thread is gone.
        let _ = self.queue.0.send(None);
    }
}

impl Server {
    /// Does chores until [`Chores::stop`].
    pub fn do_chores(&self) {
        self.chores.served.store(true, Ordering::Release);
        while let Ok(Some(chore)) = self.chores.queue.1.recv() {
            chore(self);
        }
    }
}
