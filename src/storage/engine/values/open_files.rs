//! Files of segments, opened when they are read. As many stay open as there are descriptors for:
//! others are closed, in turn, those last that were read since their last turn.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The open files that may be closed.
#[derive(Debug)]
pub(super) struct OpenFiles {
    most: usize,
    turns: Mutex<VecDeque<Weak<OnDemand>>>,
}

impl OpenFiles {
    /// At most so many stay open, besides those that are kept.
    pub(super) fn new(most: usize) -> Arc<OpenFiles> {
        Arc::new(OpenFiles {
            most: most.max(1),
            turns: Mutex::default(),
        })
    }

    /// Adds a file that was opened, and closes others if there are too many.
    fn add(&self, file: &Arc<OnDemand>) {
        self.turns.lock().push_back(Arc::downgrade(file));
        // After two rounds all have had their turn.
        for _ in 0..2 * self.most + 2 {
            let mut turns = self.turns.lock();
            if turns.len() <= self.most {
                return;
            }
            let Some(next) = turns.pop_front() else {
                return;
            };
            drop(turns);
            let Some(next) = next.upgrade() else {
                continue;
            };
            if next.is_used.swap(false, Ordering::Relaxed) {
                self.turns.lock().push_back(Arc::downgrade(&next));
            } else {
                next.open.lock().take();
            }
        }
    }

    /// How many are open that may be closed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.turns.lock().len()
    }
}

/// A file that is opened when it is read.
#[derive(Debug)]
pub(super) struct OnDemand {
    pub(super) path: PathBuf,
    open: Mutex<Option<Arc<File>>>,
    is_used: AtomicBool,
    files: Arc<OpenFiles>,
}

impl OnDemand {
    /// A file that is opened when it is first read.
    pub(super) fn closed(path: PathBuf, files: &Arc<OpenFiles>) -> Arc<OnDemand> {
        OnDemand::with(path, None, files)
    }

    /// A file that stays open until [`OnDemand::may_be_closed`].
    pub(super) fn kept(path: PathBuf, file: File, files: &Arc<OpenFiles>) -> Arc<OnDemand> {
        OnDemand::with(path, Some(Arc::new(file)), files)
    }

    fn with(path: PathBuf, open: Option<Arc<File>>, files: &Arc<OpenFiles>) -> Arc<OnDemand> {
        Arc::new(OnDemand {
            path,
            open: Mutex::new(open),
            is_used: AtomicBool::new(true),
            files: files.clone(),
        })
    }

    /// A kept file is one like others from now on.
    pub(super) fn may_be_closed(self: &Arc<Self>) {
        self.files.add(self);
    }

    /// The file, if it is open: to open one may wait for the disk.
    pub(super) fn if_open(&self) -> Option<Arc<File>> {
        self.note_use();
        self.open.lock().clone()
    }

    fn note_use(&self) {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// The file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn get(self: &Arc<Self>) -> io::Result<Arc<File>> {
        self.note_use();
        let mut open = self.open.lock();
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        let file = Arc::new(File::open(&self.path)?);
        *open = Some(file.clone());
        drop(open);
        self.files.add(self);
        Ok(file)
    }
}
