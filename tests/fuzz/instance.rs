//! A server in this process, without a network, for targets that need a database.

use kedis::base::time::UnixMs;
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

/// Inputs per instance. Later inputs get a new database, so that a result depends on few
/// other inputs, and a check does not read an ever growing binlog.
const INPUTS: u32 = 128;
/// Memory budget of the database in bytes.
const MEMORY_BYTES: u64 = 64 << 20;

/// A server and a client.
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
            max_open_segments: 4,
            max_new_families: u32::MAX,
        };
        let mut storage = StorageConfig::new(dir.path().join("db"), machine);
        storage.disk_reserve_bytes = 0;
        // Small limits, so that small inputs reach both forms of collections and strings.
        storage.packed_max_entries = 4;
        storage.string_inline_max_bytes = 64;
        let engine = Engine::open(storage).expect("a new database");
        let commands = registry().len();
        // For DEBUG DIGEST.
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
            UnixMs::NONE,
            ClientFlags::empty(),
        );
        Instance {
            executor: Executor::new(server.clone()),
            session: Session::of_server(Arc::new(info)),
            server,
            dir,
        }
    }

    /// A directory for files.
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

    /// The number of keys in all DBs.
    pub fn keys(&self) -> u64 {
        let keyspaces = self.server.engine.all_keyspaces();
        keyspaces.iter().map(|(_, ks)| ks.counts().keys).sum()
    }

    /// Checks that the database is consistent: it accepts writes, and counts equal the rows.
    pub fn check(&self) {
        let engine = &self.server.engine;
        assert!(!engine.has_failed(), "the engine takes no more writes");
        // Another thread may still have a commit pending. An exclusive transaction waits for
        // it, so the check does not see a part of it.
        let mut alone = Txn::new(engine.clone());
        alone.begin_exclusive(UnixMs::NONE).expect("a turn alone");
        let report = engine.check().expect("a readable database");
        alone.commit().expect("the end of a turn");
        assert!(report.faults.is_empty(), "{:#?}", report.faults);
    }

    /// Removes all data.
    pub fn clear(&mut self) {
        self.must(&[b"FLUSHALL", b"SYNC"]);
        self.must(&[b"FUNCTION", b"FLUSH", b"SYNC"]);
        assert_eq!(self.keys(), 0, "keys after FLUSHALL");
    }
}

/// A target's instance, or other state, with the number of inputs served.
type Kept<T> = RefCell<Option<(T, u32)>>;

/// Calls `check` with the state that `open` creates; it is recreated after [`INPUTS`] inputs.
pub fn with_kept<T>(
    kept: &'static std::thread::LocalKey<Kept<T>>,
    open: impl FnOnce() -> T,
    check: impl FnOnce(&mut T),
) {
    kept.with_borrow_mut(|kept| {
        if kept.as_ref().is_some_and(|(_, served)| *served >= INPUTS) {
            // The old instance ends before the new one begins.
            *kept = None;
        }
        let (instance, served) = kept.get_or_insert_with(|| (open(), 0));
        *served += 1;
        check(instance);
    });
}
