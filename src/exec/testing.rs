//! Commands in-process, for unit tests: a server without a network, whose clock only the test
//! moves.

use super::Executor;
use crate::base::time::UnixMs;
use crate::commands::registry;
use crate::resp::{Reply, Value, decode};
use crate::state::acl::Login;
use crate::state::clients::ClientFlags;
use crate::state::config::Config;
use crate::state::{ClientInfo, Server, Session};
use crate::storage::Direction;
use crate::storage::{DbIndex, Engine, StorageConfig};
use crate::types::definition::Hash;
use crate::types::inspect::value_digest;
use std::sync::Arc;

/// One client of a server of its own.
pub struct Client {
    executor: Executor,
    session: Session,
    now_ms: UnixMs,
    dir: Arc<tempfile::TempDir>,
}

/// The time at which every test starts, Unix ms.
pub const START_MS: UnixMs = UnixMs(1_800_000_000_000);

impl Client {
    /// A client of a new, empty server.
    #[allow(clippy::new_without_default)] // a test's client is not a value to default
    pub fn new() -> Client {
        Client::with(|_| {})
    }

    /// A client of a new, empty server that is a whole cluster.
    pub fn in_cluster() -> Client {
        let config = Config {
            cluster_enabled: true,
            ..Config::default()
        };
        Client::configured(config, |storage| storage.cluster_enabled = true)
    }

    /// Like [`Client::new`], with other storage settings.
    pub fn with(change: impl FnOnce(&mut StorageConfig)) -> Client {
        Client::configured(Config::default(), change)
    }

    fn configured(config: Config, change: impl FnOnce(&mut StorageConfig)) -> Client {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut storage = StorageConfig::for_tests(dir.path().join("db"));
        // Commands of a cluster's node refuse what most tests do.
        storage.cluster_enabled = false;
        change(&mut storage);
        let engine = Engine::open(storage).expect("a new database");
        let server = Server::new(engine, config, None, "0".repeat(40), registry().len());
        Client::of(Arc::new(server), Arc::new(dir), START_MS)
    }

    /// Another client of the same server, with an executor of its own, as on another thread.
    pub fn another(&self) -> Client {
        Client::of(self.server(), self.dir.clone(), self.now_ms)
    }

    /// Runs the client's commands on a worker's executor from now on.
    pub fn on_worker(mut self) -> Client {
        self.executor = Executor::on_worker(self.server(), false);
        self.executor.fix_clock(self.now_ms);
        self
    }

    /// Runs the client's requests on the worker that gives each only a turn.
    pub fn give_turns(&mut self) {
        self.executor = Executor::on_worker(self.server(), true);
        self.executor.fix_clock(self.now_ms);
    }

    fn of(server: Arc<Server>, dir: Arc<tempfile::TempDir>, now_ms: UnixMs) -> Client {
        let id = server.clients.new_id();
        let info = ClientInfo::new(
            id,
            "127.0.0.1:1".into(),
            "127.0.0.1:2".into(),
            -1,
            0,
            START_MS,
            ClientFlags::empty(),
        );
        let info = Arc::new(info);
        server.clients.add(info.clone());
        let mut session = Session::new(info, Login::of_new_client(&server.users));
        session.authenticated = true;
        let mut executor = Executor::new(server);
        executor.fix_clock(now_ms);
        Client {
            executor,
            session,
            now_ms,
            dir,
        }
    }

    /// Moves the clock.
    pub fn advance_ms(&mut self, ms: u64) {
        self.now_ms = self.now_ms + ms;
        self.executor.fix_clock(self.now_ms);
    }

    /// The state that all threads share.
    pub fn server(&self) -> Arc<Server> {
        self.executor.server().clone()
    }

    /// The client's executor and session.
    pub fn parts(&mut self) -> (&mut Executor, &mut Session) {
        (&mut self.executor, &mut self.session)
    }

    /// Runs several commands in one tick, so that later ones read what earlier
    /// ones wrote before it is committed.
    pub fn tick(&mut self, commands: &[&[&[u8]]]) -> Vec<Value> {
        self.executor.start_tick();
        let mut replies = Vec::new();
        for args in commands {
            let mut reply = Reply::new(self.session.resp3);
            self.executor.run(&mut self.session, args, &mut reply);
            if let Some((value, used)) = decode(&reply.buf).expect("a well-formed reply") {
                assert_eq!(used, reply.buf.len(), "one reply");
                replies.push(value);
            }
        }
        self.executor.finish_tick().expect("a commit");
        replies
    }

    /// Runs one command, whose words are separated by single spaces.
    pub fn run(&mut self, line: &str) -> Value {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.args(&args)
    }

    /// Runs one command.
    pub fn args(&mut self, args: &[&[u8]]) -> Value {
        let mut replies = self.tick(&[args]);
        replies.pop().expect("a reply")
    }

    /// The commands in the binlog, one per line, without SELECTs.
    pub fn logged(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let engine = &self.executor.server().engine;
        let read = engine.read_binlog(crate::encoding::binlog::Position::NONE, |_, row| {
            let mut rest = row.bytes;
            while let Some((Value::Array(words), used)) = decode(rest).expect("RESP") {
                let words: Vec<_> = words.iter().filter_map(Value::as_bytes).collect();
                if words.first() != Some(&&b"SELECT"[..]) {
                    lines.push(String::from_utf8_lossy(&words.join(&b' ')).into_owned());
                }
                rest = &rest[used..];
            }
            true
        });
        read.expect("a readable binlog");
        lines
    }

    /// The digest of a key's value in DB 0.
    pub fn digest(&mut self, key: &[u8]) -> Hash {
        let txn = &mut self.executor.txn;
        txn.begin(self.now_ms).expect("a turn");
        let digest = value_digest(txn, DbIndex(0), key).expect("a readable value");
        txn.commit().expect("a commit");
        digest
    }

    /// Removes every `n`-th row of a tag in DB 0 without changing any count, as damage would.
    pub fn lose_rows(&mut self, tag: u8, n: usize) {
        let txn = &mut self.executor.txn;
        txn.begin(self.now_ms).expect("a turn");
        let mut rows = Vec::new();
        let mut scan = txn
            .scan(DbIndex(0), &[tag], &[tag + 1], Direction::Forward)
            .expect("a scan");
        while let Some((key, _)) = scan.next().expect("a row") {
            rows.push(key.to_vec());
        }
        drop(scan);
        for key in rows.iter().step_by(n) {
            txn.delete_row(DbIndex(0), key).expect("a row");
        }
        txn.commit().expect("a commit");
    }

    /// Panics with the faults of the database, if it has any.
    pub fn check(&self) {
        let report = self
            .executor
            .server()
            .engine
            .check()
            .expect("a readable database");
        assert!(report.faults.is_empty(), "{:#?}", report.faults);
    }
}

/// Runs commands in order and compares each reply, as [`shown`] writes it.
#[track_caller]
pub fn check(client: &mut Client, steps: &[(&str, &str)]) {
    for (line, expected) in steps {
        assert_eq!(shown(&client.run(line)), *expected, "{line}");
    }
}

/// A reply as one line: `nil`, a number, text, `[a b]`, or `-` and an error.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nil".into(),
        Value::Int(n) => n.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(" "))
        }
        other => match other.as_error() {
            Some(error) => format!("-{error}"),
            None => String::from_utf8_lossy(other.as_bytes().unwrap()).into_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_speaks_http_is_closed() {
        let mut client = Client::new();
        for line in [&[&b"Host:"[..], b"example.com"][..], &[b"POST", b"/"]] {
            client.session.close_after_reply = false;
            assert!(client.tick(&[line]).is_empty());
            assert!(client.session.close_after_reply);
        }
    }

    #[test]
    fn ping_and_unknown_commands() {
        let mut client = Client::new();
        assert_eq!(client.run("ping"), Value::Simple("PONG".into()));
        let error = client.run("nope a b");
        assert_eq!(
            error.as_error(),
            Some("ERR unknown command 'nope', with args beginning with: 'a' 'b' ")
        );
        client.check();
    }
}
