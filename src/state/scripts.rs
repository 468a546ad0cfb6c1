//! The texts of scripts and functions, shared by all threads.
//!
//! Each thread compiles the scripts that it runs. Scripts of EVAL are cached up to a number,
//! and the least recently used is evicted; those of SCRIPT LOAD stay until SCRIPT FLUSH.
//! Libraries are also stored as rows of the database (see [`crate::encoding::system`]).

use crate::lua::header::ScriptFlags;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Scripts of EVAL that are cached.
pub const EVAL_SCRIPTS: usize = 500;

/// Longest text that is hashed and compiled on an IO thread, in bytes.
pub const SHORT_TEXT: usize = 256 << 10;

/// Bytes that INFO counts for an entry besides its text.
const ENTRY_OVERHEAD: usize = 128;

/// A cached script.
#[derive(Debug)]
pub struct Script {
    /// Its SHA-1 in hexadecimal digits, which is its name.
    pub sha: String,
    /// The text.
    pub body: Vec<u8>,
    /// The flags in its first line; `None`: it has no shebang.
    pub flags: Option<ScriptFlags>,
    /// Whether it runs while no other thread reads or writes keys: it has used undeclared keys
    /// that another thread held, or whole DBs.
    pub runs_alone: AtomicBool,
    /// Whether it runs on a worker (see [`super::workers`]): it has exceeded its slice.
    pub is_slow: AtomicBool,
    /// Whether workers compile it, since that takes longer than a slice.
    pub compiles_slowly: AtomicBool,
    used: AtomicU64,
    /// Whether it may be evicted.
    evictable: AtomicBool,
}

impl Script {
    /// A script that is not cached yet.
    pub fn new(sha: String, body: &[u8], flags: Option<ScriptFlags>) -> Script {
        Script {
            sha,
            body: body.to_vec(),
            flags,
            runs_alone: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            compiles_slowly: AtomicBool::new(body.len() > SHORT_TEXT),
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
    /// Its description.
    pub description: Option<Vec<u8>>,
    /// Its flags.
    pub flags: ScriptFlags,
    /// As for a [`Script`].
    pub runs_alone: AtomicBool,
    /// As for a [`Script`].
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

/// A function and its library.
#[derive(Debug, Clone)]
pub struct Known {
    /// The function.
    pub function: Arc<Function>,
    /// The library.
    pub library: Arc<Library>,
}

/// All libraries at one moment, by name.
#[derive(Debug, Default, Clone)]
pub struct Libraries {
    by_name: BTreeMap<Vec<u8>, Arc<Library>>,
    /// Their functions, by their names in lower case.
    functions: FxHashMap<Vec<u8>, Known>,
    memory: usize,
}

impl Libraries {
    /// The function of this name, in any case.
    pub fn function(&self, name: &[u8]) -> Option<&Known> {
        self.functions.get(&name.to_ascii_lowercase())
    }

    /// The library of this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Library>> {
        self.by_name.get(name)
    }

    /// The libraries, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// The first function of this library that another library has as well.
    pub fn clash(&self, library: &Library) -> Option<&Arc<Function>> {
        let mut known = library
            .functions
            .iter()
            .filter_map(|f| self.function(&f.name));
        let found = known.find(|known| known.library.name != library.name)?;
        Some(&found.function)
    }

    /// Adds a library, or replaces the one with its name.
    pub fn insert(&mut self, library: Arc<Library>) {
        self.remove(&library.name);
        for function in &library.functions {
            let known = Known {
                function: function.clone(),
                library: library.clone(),
            };
            let name = function.name.to_ascii_lowercase();
            self.functions.insert(name, known);
        }
        self.memory += library.memory();
        self.by_name.insert(library.name.clone(), library);
    }

    /// Removes a library.
    pub fn remove(&mut self, name: &[u8]) -> Option<Arc<Library>> {
        let library = self.by_name.remove(name)?;
        for function in &library.functions {
            self.functions.remove(&function.name.to_ascii_lowercase());
        }
        self.memory -= library.memory();
        Some(library)
    }

    /// The number of libraries.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are no libraries.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The number of functions.
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Bytes of their texts and metadata.
    pub fn memory(&self) -> usize {
        self.memory
    }
}

#[derive(Default)]
struct Cache {
    scripts: FxHashMap<String, Arc<Script>>,
    /// Number of scripts that may be evicted.
    evictable: usize,
    clock: u64,
    memory: usize,
}

/// The texts of scripts and of libraries of functions.
#[derive(Default)]
pub struct Scripts {
    cache: Mutex<Cache>,
    /// Incremented by every SCRIPT FLUSH, after which threads make new interpreters.
    flushes: AtomicU64,
    evicted: AtomicU64,
    libraries: RwLock<Arc<Libraries>>,
    /// Incremented with every change of the libraries.
    libraries_version: AtomicU64,
    /// Bytes of each interpreter; one that nobody else has is over.
    interpreters: Mutex<Vec<Arc<AtomicUsize>>>,
    /// Bytes that interpreters have used to load libraries.
    loaded_libraries: AtomicUsize,
}

impl Scripts {
    /// The script with this SHA-1, in lower case; counts as a use.
    pub fn find(&self, sha: &str) -> Option<Arc<Script>> {
        let mut cache = self.cache.lock();
        cache.clock += 1;
        let now = cache.clock;
        let found = cache.scripts.get(sha)?;
        found.used.store(now, Ordering::Relaxed);
        Some(found.clone())
    }

    /// Whether the script with this SHA-1 is cached.
    pub fn contains(&self, sha: &str) -> bool {
        self.cache.lock().scripts.contains_key(sha)
    }

    /// Adds a script; `stays`: it is not evicted.
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

    /// Removes all scripts.
    pub fn flush(&self) {
        *self.cache.lock() = Cache::default();
        self.flushes.fetch_add(1, Ordering::Release);
    }

    /// Number of flushes.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Number of cached scripts, and their bytes.
    pub fn cached(&self) -> (usize, usize) {
        let cache = self.cache.lock();
        (cache.scripts.len(), cache.memory)
    }

    /// Number of evicted scripts.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Resets [`Scripts::evicted`].
    pub fn reset_stats(&self) {
        self.evicted.store(0, Ordering::Relaxed);
    }

    /// The present libraries.
    pub fn libraries(&self) -> Arc<Libraries> {
        self.libraries.read().clone()
    }

    /// Replaces the libraries.
    pub fn set_libraries(&self, libraries: Libraries) {
        *self.libraries.write() = Arc::new(libraries);
        self.libraries_version.fetch_add(1, Ordering::Release);
    }

    /// Changes some of the libraries.
    pub fn change_libraries(&self, change: impl FnOnce(&mut Libraries)) {
        // Copies them only while another thread holds a reference.
        change(Arc::make_mut(&mut self.libraries.write()));
        self.libraries_version.fetch_add(1, Ordering::Release);
    }

    /// Number of changes of the libraries.
    pub fn libraries_version(&self) -> u64 {
        self.libraries_version.load(Ordering::Acquire)
    }

    /// Counts an interpreter until the result is dropped: its thread records its bytes there.
    pub fn count_interpreter(&self) -> Arc<AtomicUsize> {
        let used = Arc::<AtomicUsize>::default();
        let mut all = self.interpreters.lock();
        all.retain(|used| Arc::strong_count(used) > 1);
        all.push(used.clone());
        used
    }

    /// Records that the loaded libraries of an interpreter grew from `before` to `now` bytes.
    pub fn loaded_libraries_grew(&self, before: usize, now: usize) {
        self.loaded_libraries.fetch_add(now, Ordering::Relaxed);
        self.loaded_libraries.fetch_sub(before, Ordering::Relaxed);
    }

    /// Bytes that interpreters have used to load libraries.
    pub fn loaded_libraries(&self) -> usize {
        self.loaded_libraries.load(Ordering::Relaxed)
    }

    /// Bytes of all interpreters.
    pub fn interpreters(&self) -> usize {
        let all = self.interpreters.lock();
        let counted = all.iter().filter(|used| Arc::strong_count(used) > 1);
        counted.map(|used| used.load(Ordering::Relaxed)).sum()
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
