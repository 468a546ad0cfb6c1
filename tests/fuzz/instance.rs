//! A server in this process, without a network, for targets that need a database.

use kedis::commands::registry;
use kedis::exec::Executor;
use kedis::resp::{Reply, Value, decode};
use kedis::state::clients::ClientFlags;
use kedis::state::config::Config;
use kedis::state::{ClientInfo, Server, Session};
use kedis::storage::engine::options::MachineShare;
use kedis::storage::{Engine, StorageConfig, Txn};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Inputs that one instance serves. The next one gets a new database, so that what an
/// input finds depends on few others, and a check does not read more and more of the binlog.
const INPUTS: u32 = 128;
/// Bytes that the database may use for its caches.
const MEMORY_BYTES: u64 = 64 << 20;

/// A server and a client of it.
pub struct Instance {
    pub server: Arc<Server>,
    executor: Executor,
    session: Session,
    dir: TempDir,
}

impl Instance {
    pub fn new() -> Instance {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let machine = MachineShare {
            memory_budget_bytes: MEMORY_BYTES,
            max_background_jobs: 2,
            max_open_files: -1,
            max_new_families: u32::MAX,
        };
        let mut storage = StorageConfig::new(dir.path().join("db"), machine);
        storage.disk_reserve_bytes = 0;
        // Small inputs reach both forms of collections and strings.
        storage.packed_max_entries = 4;
        storage.string_inline_max_bytes = 64;
        let engine = Engine::open(storage).expect("a new database");
        let commands = registry().len();
        // For digests.
        let config = Config::from_text(b"enable-debug-command yes", Path::new("fuzz.conf"));
        let config = config.expect("a configuration");
        let server = Server::new(engine, config, None, "0".repeat(40), commands);
        let server = Arc::new(server);
        let info = ClientInfo::new(
            server.clients.new_id(),
            "127.0.0.1:1".into(),
            "127.0.0.1:2".into(),
            -1,
            0,
            0,
            ClientFlags::empty(),
        );
        Instance {
            executor: Executor::new(server.clone()),
            session: Session::new(Arc::new(info), true),
            server,
            dir,
        }
    }

    /// A directory for files, of its own.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs one command and returns its reply.
    pub fn run(&mut self, args: &[&[u8]]) -> Value {
        self.executor.start_tick();
        let mut reply = Reply::new(false);
        self.executor.run(&mut self.session, args, &mut reply);
        self.executor.finish_tick().expect("a commit");
        let whole = decode(&reply.buf).expect("a well-formed reply");
        let (value, used) = whole.expect("a whole reply");
        assert_eq!(used, reply.buf.len(), "one reply");
        value
    }

    /// Runs a command that must not fail.
    pub fn must(&mut self, args: &[&[u8]]) -> Value {
        let reply = self.run(args);
        let shown = || String::from_utf8_lossy(&args.join(&b' ')).into_owned();
        assert!(reply.as_error().is_none(), "{}: {reply:?}", shown());
        reply
    }

    /// How many keys all DBs have.
    pub fn keys(&self) -> u64 {
        let keyspaces = self.server.engine.all_keyspaces();
        keyspaces.iter().map(|(_, ks)| ks.counts().keys).sum()
    }

    /// Whatever was tried, the database is in order: it takes writes, and counts equal
    /// what is there.
    pub fn check(&self) {
        let engine = &self.server.engine;
        assert!(!engine.has_failed(), "the engine takes no more writes");
        // A thread may still commit what it had begun: until that is done there is no turn
        // alone, and the check sees none of it in part.
        let mut alone = Txn::new(engine.clone());
        alone.begin_exclusive(0).expect("a turn alone");
        let report = engine.check().expect("a readable database");
        alone.commit().expect("the end of a turn");
        assert!(report.faults.is_empty(), "{:#?}", report.faults);
    }

    /// Removes all there is.
    pub fn clear(&mut self) {
        self.must(&[b"FLUSHALL", b"SYNC"]);
        self.must(&[b"FUNCTION", b"FLUSH", b"SYNC"]);
        assert_eq!(self.keys(), 0, "keys after FLUSHALL");
    }
}

/// What an instance is to its target, with something that the target keeps beside it.
type Kept<T> = RefCell<Option<(T, u32)>>;

/// Calls `check` with what `open` has made, which is made anew from time to time.
pub fn with_kept<T>(
    kept: &'static std::thread::LocalKey<Kept<T>>,
    open: impl FnOnce() -> T,
    check: impl FnOnce(&mut T),
) {
    kept.with_borrow_mut(|kept| {
        if kept.as_ref().is_some_and(|(_, served)| *served >= INPUTS) {
            // The old one ends before the new one begins.
            *kept = None;
        }
        let (instance, served) = kept.get_or_insert_with(|| (open(), 0));
        *served += 1;
        check(instance);
    });
}
