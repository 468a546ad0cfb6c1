//! Scripts and functions, as all threads know them: their texts.
//!
//! Each thread compiles for itself what it runs; here stand the texts. Scripts
//! that came by EVAL are kept up to a number, the one used longest ago goes
//! first; those of SCRIPT LOAD stay until SCRIPT FLUSH. Libraries are also rows
//! of the database (see [`crate::encoding::own`]).

use crate::lua::header::ScriptFlags;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Scripts that EVAL leaves behind.
pub const EVAL_SCRIPTS: usize = 500;

/// What INFO counts for an entry besides its text.
const ENTRY_OVERHEAD: usize = 128;

/// A script of the cache.
#[derive(Debug)]
pub struct Script {
    /// Its SHA-1 in hexadecimal digits: its name.
    pub sha: String,
    /// The text.
    pub body: Vec<u8>,
    /// What its first line says; `None`: it has no such line.
    pub flags: Option<ScriptFlags>,
    /// It used keys that it had not declared and that others held, or DBs as a
    /// whole: it runs while nobody else reads or writes keys.
    pub runs_alone: AtomicBool,
    /// It took longer than a slice: it runs on a lane (see [`super::lanes`]).
    pub is_slow: AtomicBool,
    used: AtomicU64,
    /// Whether it may go to make room.
    evictable: AtomicBool,
}

impl Script {
    /// A script that is in no cache yet.
    pub fn new(sha: String, body: &[u8], flags: Option<ScriptFlags>) -> Script {
        Script {
            sha,
            body: body.to_vec(),
            flags,
            runs_alone: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            used: AtomicU64::new(0),
            evictable: AtomicBool::new(true),
        }
    }

    fn memory(&self) -> usize {
        self.body.len() + self.sha.len() + ENTRY_OVERHEAD
    }
}

/// A function of a library.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is for.
    pub description: Option<Vec<u8>>,
    /// What it says of itself.
    pub flags: ScriptFlags,
    /// As of a [`Script`].
    pub runs_alone: AtomicBool,
    /// As of a [`Script`].
    pub is_slow: AtomicBool,
}

/// A library of functions.
#[derive(Debug)]
pub struct Library {
    /// Its name.
    pub name: Vec<u8>,
    /// The text, with its first line.
    pub code: Vec<u8>,
    /// Its functions.
    pub functions: Vec<Arc<Function>>,
}

impl Library {
    fn memory(&self) -> usize {
        let of_function = |f: &Arc<Function>| {
            f.name.len() + f.description.as_ref().map_or(0, Vec::len) + ENTRY_OVERHEAD
        };
        let functions: usize = self.functions.iter().map(of_function).sum();
        self.code.len() + self.name.len() + ENTRY_OVERHEAD + functions
    }
}

/// All libraries at one moment, by name.
#[derive(Debug, Default, Clone)]
pub struct Libraries {
    /// The libraries.
    pub by_name: BTreeMap<Vec<u8>, Arc<Library>>,
}

impl Libraries {
    /// The function of this name, in any case.
    pub fn function(&self, name: &[u8]) -> Option<&Arc<Function>> {
        let mut all = self.by_name.values().flat_map(|library| &library.functions);
        all.find(|function| function.name.eq_ignore_ascii_case(name))
    }

    /// How many functions there are.
    pub fn functions(&self) -> usize {
        self.by_name.values().map(|lib| lib.functions.len()).sum()
    }

    /// Bytes of their texts and of what is known of them.
    pub fn memory(&self) -> usize {
        self.by_name.values().map(|library| library.memory()).sum()
    }
}

#[derive(Default)]
struct Cache {
    scripts: FxHashMap<String, Arc<Script>>,
    /// How many of them may go.
    evictable: usize,
    clock: u64,
    memory: usize,
}

/// See the module.
#[derive(Default)]
pub struct Scripts {
    cache: Mutex<Cache>,
    /// Grows with every SCRIPT FLUSH: interpreters start over.
    flushes: AtomicU64,
    evicted: AtomicU64,
    libraries: RwLock<Arc<Libraries>>,
    /// Grows with every change of the libraries.
    libraries_version: AtomicU64,
    /// Bytes of all interpreters.
    interpreters: AtomicUsize,
}

impl Scripts {
    /// The script of this name, in lower case; counts as a use.
    pub fn find(&self, sha: &str) -> Option<Arc<Script>> {
        let mut cache = self.cache.lock();
        cache.clock += 1;
        let now = cache.clock;
        let found = cache.scripts.get(sha)?;
        found.used.store(now, Ordering::Relaxed);
        Some(found.clone())
    }

    /// Whether there is a script of this name.
    pub fn contains(&self, sha: &str) -> bool {
        self.cache.lock().scripts.contains_key(sha)
    }

    /// Adds a script; `stays`: until SCRIPT FLUSH.
    pub fn add(&self, script: Script, stays: bool) -> Arc<Script> {
        let mut cache = self.cache.lock();
        let cache = &mut *cache;
        cache.clock += 1;
        let script = match cache.scripts.get(&script.sha) {
            Some(known) => known.clone(),
            None => {
                let script = Arc::new(script);
                cache.memory += script.memory();
                cache.evictable += 1;
                cache.scripts.insert(script.sha.clone(), script.clone());
                script
            }
        };
        script.used.store(cache.clock, Ordering::Relaxed);
        if stays && script.evictable.swap(false, Ordering::Relaxed) {
            cache.evictable -= 1;
        }
        if cache.evictable > EVAL_SCRIPTS {
            self.evict(cache);
        }
        script
    }

    fn evict(&self, cache: &mut Cache) {
        let evictable = |script: &&Arc<Script>| script.evictable.load(Ordering::Relaxed);
        let candidates = cache.scripts.values().filter(evictable);
        let oldest = candidates.min_by_key(|script| script.used.load(Ordering::Relaxed));
        let Some(sha) = oldest.map(|script| script.sha.clone()) else {
            return;
        };
        if let Some(gone) = cache.scripts.remove(&sha) {
            cache.memory -= gone.memory();
            cache.evictable -= 1;
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets all scripts.
    pub fn flush(&self) {
        *self.cache.lock() = Cache::default();
        self.flushes.fetch_add(1, Ordering::Release);
    }

    /// How often they were flushed.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// How many scripts are cached, and their bytes.
    pub fn cached(&self) -> (usize, usize) {
        let cache = self.cache.lock();
        (cache.scripts.len(), cache.memory)
    }

    /// How many made room for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// The count of [`Scripts::evicted`] starts over.
    pub fn reset_stats(&self) {
        self.evicted.store(0, Ordering::Relaxed);
    }

    /// The libraries as they are now.
    pub fn libraries(&self) -> Arc<Libraries> {
        self.libraries.read().clone()
    }

    /// Replaces the libraries.
    pub fn set_libraries(&self, libraries: Libraries) {
        *self.libraries.write() = Arc::new(libraries);
        self.libraries_version.fetch_add(1, Ordering::Release);
    }

    /// How often the libraries changed.
    pub fn libraries_version(&self) -> u64 {
        self.libraries_version.load(Ordering::Acquire)
    }

    /// An interpreter grew from `before` to `now` bytes.
    pub fn interpreter_grew(&self, before: usize, now: usize) {
        self.interpreters.fetch_add(now, Ordering::Relaxed);
        self.interpreters.fetch_sub(before, Ordering::Relaxed);
    }

    /// Bytes of all interpreters.
    pub fn interpreters(&self) -> usize {
        self.interpreters.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_eval_make_room_and_loaded_ones_stay() {
        let scripts = Scripts::default();
        let add = |n: usize, stays| {
            let script = Script::new(format!("{n:040}"), b"return 1", None);
            scripts.add(script, stays);
        };
        add(0, true);
        add(1, false);
        for n in 2..EVAL_SCRIPTS + 1 {
            add(n, false);
        }
        assert!(scripts.find(&format!("{:040}", 1)).is_some());
        assert_eq!(scripts.cached().0, EVAL_SCRIPTS + 1);
        add(EVAL_SCRIPTS + 1, false);
        assert_eq!(scripts.cached().0, EVAL_SCRIPTS + 1);
        assert_eq!(scripts.evicted(), 1);
        let there = |n: usize| scripts.contains(&format!("{n:040}"));
        assert!(there(0) && there(1) && !there(2) && there(3));
        scripts.flush();
        assert_eq!(scripts.cached(), (0, 0));
    }
}
