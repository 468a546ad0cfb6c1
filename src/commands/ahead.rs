//! What a command needs that takes long to make and has nothing to do with keys. It is made before
//! the command has its locks, so that no other thread waits for it meanwhile.

use crate::state::scripts::Library;
use crate::state::{Server, Session};
use crate::storage::{StorageError, View};
use rustc_hash::FxHashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Makes it for a command with these arguments. What is wrong with them the handler reports.
///
/// # Errors
/// The command must end, or run elsewhere.
pub type Make = fn(&mut AheadCtx<'_>, &[&[u8]]) -> Result<(), StorageError>;

/// The libraries of an argument, up to the first that does not load.
#[derive(Debug, Clone, Default)]
pub(super) struct NewLibraries {
    /// Those that load, in their order.
    pub(super) loaded: Vec<Arc<Library>>,
    /// The error of the next one, as [`super::Error::wire`] has it.
    pub(super) error: Option<Vec<u8>>,
}

/// What was made, by the arguments from which it was made.
#[derive(Default)]
pub struct Ahead {
    hasher: RandomState,
    libraries: FxHashMap<u64, NewLibraries>,
}

impl Ahead {
    /// The libraries of an argument, if they were loaded.
    pub(super) fn libraries(&self, arg: &[u8]) -> Option<NewLibraries> {
        self.libraries.get(&self.hasher.hash_one(arg)).cloned()
    }

    /// Keeps what came of an argument.
    pub(super) fn keep(&mut self, arg: &[u8], libraries: NewLibraries) {
        self.libraries.insert(self.hasher.hash_one(arg), libraries);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.libraries.clear();
    }
}

/// For what is made before a command has its locks.
pub struct AheadCtx<'a> {
    /// What counts the work. Nothing is read through it: no key is locked.
    pub view: &'a View,
    /// What all threads share.
    pub server: &'a Server,
    /// The client.
    pub session: &'a Session,
    /// Where it goes.
    pub ahead: &'a mut Ahead,
}
