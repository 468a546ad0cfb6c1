//! The threads of MIGRATE.
//!
//! A migration waits until earlier writes of its client are committed. It sends AUTH and SELECT
//! if they are needed, and reads their replies. It dumps the keys and sends each as a RESTORE,
//! many before their replies are read. Then it deletes the keys that have arrived at the
//! target, in one commit. Only after that the client gets its reply and waiting writers
//! continue (see [`crate::state::migrations`]).
//!
//! Whatever fails, a key is here, or at the target, or in both places, and every acknowledged
//! write is in one of them. A cached connection may be dead: if it fails before the first
//! reply, the migration starts over with a new connection.

mod target;

use self::target::{Address, Broken, Step, Target};
use super::StopSign;
use crate::base::time::UnixMs;
use crate::commands::Error;
use crate::rdb::encode::Encoder;
use crate::state::Server;
use crate::state::migrations::{Hold, Migration};
use crate::storage::{DbIndex, Txn};
use crate::sys::clock;
use crate::types::OpError;
use crate::types::definition::Stored;
use crate::types::dump;
use crate::types::keyspace::{Bounds, walk};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How many migrations run at the same time.
pub(super) const THREADS: usize = 4;
/// Most cached connections.
const CACHED: usize = 64;
/// How long an unused connection is cached.
const CACHED_FOR: Duration = Duration::from_secs(10);
/// Keys that are sent before their replies are read. The replies to many more could fill all
/// buffers between the servers, and both would block.
const AT_ONCE: usize = 256;
/// Tombstones that one search for keys passes over at most.
const MAX_TOMBSTONES: i64 = 10_000;
/// How often an idle thread drops old connections.
const CHECK_EVERY: Duration = Duration::from_millis(200);

const BECAME_REPLICA: Error = Error::text(
    "READONLY this server has become a replica: the keys are at the target, and here too",
);

/// State that the threads share.
#[derive(Default)]
pub(super) struct Pool {
    cache: Mutex<HashMap<Address, Target>>,
    stop: AtomicBool,
}

/// Why a migration failed.
enum Failure {
    /// The exchange with the target failed.
    Broken(Broken),
    /// The target returned an error; its text.
    Refused(Vec<u8>),
    /// The migration fails on this server.
    Local(Error),
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        Failure::Broken(broken)
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Self {
        Failure::Local(error.into())
    }
}

impl From<crate::storage::StorageError> for Failure {
    fn from(error: crate::storage::StorageError) -> Self {
        Failure::Local(error.into())
    }
}

impl Failure {
    /// The error reply, without the leading `-`.
    fn wire(&self) -> Vec<u8> {
        match self {
            Failure::Broken(broken) => match broken.step {
                Step::Connecting => b"IOERR error or timeout connecting to the client".to_vec(),
                Step::Writing => b"IOERR error or timeout writing to target instance".to_vec(),
                Step::Reading => b"IOERR error or timeout reading from target instance".to_vec(),
            },
            Failure::Refused(words) => [
                b"ERR Target instance replied with error: ",
                words.as_slice(),
            ]
            .concat(),
            Failure::Local(error) => error.wire().into_owned(),
        }
    }
}

/// The results of an exchange.
#[derive(Default)]
struct Outcome {
    /// The keys that have arrived at the target.
    arrived: Vec<Vec<u8>>,
    /// How many replies were read.
    answers: usize,
}

pub(super) fn run(server: Arc<Server>, pool: &Pool, sign: &StopSign) {
    let mut txn = Txn::new(server.engine.clone());
    // It reads from the disk with its keys locked.
    txn.for_long();
    let mut worker = Worker {
        txn,
        encoder: Encoder::new(server.config.load().rdbcompression),
        server,
        pool,
    };
    loop {
        match worker.server.migrations.queue().recv_timeout(CHECK_EVERY) {
            Ok((migration, hold)) => worker.migrate(&migration, hold),
            Err(_) => worker.drop_old_connections(),
        }
        if sign.sleep(Duration::ZERO) {
            return;
        }
    }
}

impl Pool {
    /// Makes running exchanges end soon.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

struct Worker<'p> {
    txn: Txn,
    encoder: Encoder,
    server: Arc<Server>,
    pool: &'p Pool,
}

impl Worker<'_> {
    fn migrate(&mut self, migration: &Migration, hold: Hold) {
        let moved = match &migration.prefix {
            None => self.move_keys(migration),
            Some(prefix) => self.move_prefix(migration, prefix),
        };
        let moved = self.txn.abandon_if_failed(moved);
        let reply = match moved {
            Ok(true) => b"+OK\r\n".to_vec(),
            Ok(false) => b"+NOKEY\r\n".to_vec(),
            Err(failure) => {
                let text = failure.wire();
                self.server.stats.error(&String::from_utf8_lossy(&text));
                [b"-", text.as_slice(), b"\r\n"].concat()
            }
        };
        drop(hold);
        self.server.resume_clients();
        self.server.answer(migration.client, reply.into());
    }

    /// Moves all keys with the prefix `prefix`, in slices, in their order; keys are held only
    /// while their slice is moved. A key that is created meanwhile is moved if its slice is
    /// still to come.
    fn move_prefix(&mut self, migration: &Migration, prefix: &[u8]) -> Result<bool, Failure> {
        let (mut from, mut any) = (prefix.to_vec(), false);
        loop {
            let keys = self.next_keys(migration.db, prefix, &from)?;
            let Some(last) = keys.last() else {
                return Ok(any);
            };
            from = [last.as_slice(), b"\0"].concat();
            self.txn.begin(clock::unix_ms())?;
            self.lock(migration, &keys)?;
            let migrations = &self.server.migrations;
            // A key that another migration holds is moved by that one.
            let free = keys.into_iter();
            let free = free.filter(|key| !migrations.holds(migration.db, key));
            let slice = Migration {
                keys: free.collect(),
                ..migration.clone()
            };
            let hold = migrations.hold(slice.db, &slice.keys);
            self.txn.commit()?;
            let moved = self.move_keys(&slice);
            drop(hold);
            self.server.resume_clients();
            any |= moved?;
            if self.pool.stop.load(Ordering::Acquire) {
                return Err(Failure::Broken(Broken {
                    step: Step::Writing,
                    error: std::io::ErrorKind::ConnectionAborted.into(),
                }));
            }
        }
    }

    /// The first keys with the prefix `prefix`, from `from` on.
    fn next_keys(
        &mut self,
        db: DbIndex,
        prefix: &[u8],
        from: &[u8],
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let (mut keys, mut from) = (Vec::new(), Some(from.to_vec()));
        while let Some(start) = from.take()
            && keys.is_empty()
        {
            let mut bounds = Bounds {
                rows: AT_ONCE as u64,
                tombstones: MAX_TOMBSTONES,
            };
            self.txn.begin(clock::unix_ms())?;
            let view = self.txn.reading();
            let bounds = Some(&mut bounds);
            let rest = walk(view, db, prefix, Some(&start), bounds, |key, _| {
                keys.push(key.to_vec());
            });
            self.txn.commit()?;
            from = rest?;
        }
        Ok(keys)
    }

    /// Moves the keys of a migration. Returns whether there were any.
    fn move_keys(&mut self, migration: &Migration) -> Result<bool, Failure> {
        self.wait_for_earlier_writes(migration)?;
        let address = Address::of(migration);
        let (mut target, mut is_cached) = self.connection(&address, migration)?;
        loop {
            let mut outcome = Outcome::default();
            let done = self.exchange(&mut target, migration, &mut outcome);
            if let Err(Failure::Broken(broken)) = &done
                && is_cached
                && outcome.answers == 0
                && !broken.is_timeout()
            {
                target = Target::connect(&self.server, migration, &self.pool.stop)?;
                is_cached = false;
                continue;
            }
            if !migration.copy && !outcome.arrived.is_empty() {
                self.delete(migration, &outcome.arrived)?;
            }
            return match done {
                Ok(any) => {
                    self.keep(address, target);
                    Ok(any)
                }
                Err(Failure::Refused(words)) => {
                    self.keep(address, target);
                    Err(Failure::Refused(words))
                }
                Err(failure) => Err(failure),
            };
        }
    }

    /// Waits until all earlier writes to the keys are committed.
    fn wait_for_earlier_writes(&mut self, migration: &Migration) -> Result<(), Failure> {
        self.txn.begin(clock::unix_ms())?;
        self.lock(migration, &migration.keys)?;
        Ok(self.txn.commit()?)
    }

    fn lock(&mut self, migration: &Migration, keys: &[Vec<u8>]) -> Result<(), Failure> {
        let engine = &self.server.engine;
        let hashes = keys.iter().map(|key| engine.key_hash(migration.db, key));
        self.txn.lock(hashes)?;
        Ok(())
    }

    /// Sends the keys and reads the replies. An error reply is returned after all replies are
    /// read.
    fn exchange(
        &mut self,
        target: &mut Target,
        migration: &Migration,
        outcome: &mut Outcome,
    ) -> Result<bool, Failure> {
        let mut refused = None;
        self.authenticate_and_select(target, migration, outcome, &mut refused)?;
        let (mut any, mut chunks) = (false, migration.keys.chunks(AT_ONCE));
        while target.db == Some(migration.target_db)
            && let Some(keys) = chunks.next()
        {
            let sent = self.send_keys(target, migration, keys)?;
            any |= !sent.is_empty();
            for key in sent {
                if self.answer(target, outcome, &mut refused)? {
                    outcome.arrived.push(key.to_vec());
                }
            }
        }
        match refused {
            Some(words) => Err(Failure::Refused(words)),
            None => Ok(any),
        }
    }

    /// Sends AUTH and SELECT and reads the replies. `target.db` names the DB of the migration
    /// afterwards only if both succeeded: as another user or in another DB no key may be
    /// written.
    fn authenticate_and_select(
        &self,
        target: &mut Target,
        migration: &Migration,
        outcome: &mut Outcome,
        refused: &mut Option<Vec<u8>>,
    ) -> Result<(), Failure> {
        let stop = &self.pool.stop;
        let mut due = 0;
        if let Some(credentials) = &migration.credentials {
            let mut auth: Vec<&[u8]> = vec![b"AUTH"];
            auth.extend(credentials.user.as_deref());
            auth.push(&credentials.password);
            target.send(&auth, stop)?;
            due += 1;
        }
        if target.db != Some(migration.target_db) {
            let mut digits = itoa::Buffer::new();
            let db = digits.format(migration.target_db).as_bytes();
            target.send(&[b"SELECT", db], stop)?;
            due += 1;
        }
        target.db = None;
        for _ in 0..due {
            self.answer(target, outcome, refused)?;
        }
        if refused.is_none() {
            target.db = Some(migration.target_db);
        }
        Ok(())
    }

    /// Sends RESTORE for these keys. Returns the keys that exist.
    fn send_keys<'k>(
        &mut self,
        target: &mut Target,
        migration: &Migration,
        keys: &'k [Vec<u8>],
    ) -> Result<Vec<&'k [u8]>, Failure> {
        let mut digits = itoa::Buffer::new();
        let mut sent: Vec<&[u8]> = Vec::new();
        for key in keys {
            let Some((ttl_ms, payload)) = self.payload(migration, key)? else {
                continue;
            };
            let ttl = digits.format(ttl_ms).as_bytes();
            let restore: [&[u8]; 5] = [b"RESTORE", key, ttl, &payload, b"REPLACE"];
            let words = if migration.replace { 5 } else { 4 };
            target.send(restore.get(..words).unwrap_or(&restore), &self.pool.stop)?;
            sent.push(key);
        }
        Ok(sent)
    }

    /// Reads one reply. Returns whether it is a success.
    fn answer(
        &self,
        target: &mut Target,
        outcome: &mut Outcome,
        refused: &mut Option<Vec<u8>>,
    ) -> Result<bool, Failure> {
        let line = target.answer(&self.pool.stop)?;
        outcome.answers += 1;
        match line.split_first() {
            Some((b'-', words)) => {
                refused.get_or_insert_with(|| words.to_vec());
                Ok(false)
            }
            Some((b'+', _)) => Ok(true),
            _ => Err(Failure::Broken(Broken {
                step: Step::Reading,
                error: std::io::ErrorKind::InvalidData.into(),
            })),
        }
    }

    /// The remaining time to live of a key in ms (0: no expiry), and its serialized value.
    /// `None` if it does not exist. No client can write to the key, but it may expire.
    fn payload(
        &mut self,
        migration: &Migration,
        key: &[u8],
    ) -> Result<Option<(u64, Vec<u8>)>, Failure> {
        let Migration { db, .. } = *migration;
        self.txn.begin(clock::unix_ms())?;
        let now_ms = self.txn.now_ms();
        let view = self.txn.reading();
        let Some(found) = view.lookup(db, key)? else {
            self.txn.commit()?;
            return Ok(None);
        };
        let stored = Stored {
            meta: found.meta,
            body: &found.body,
        };
        let max_len = self.server.config.load().proto_max_bulk_len_bytes;
        let dumped = dump::payload(view, db, stored, &mut self.encoder, max_len);
        let is_there = view.lookup(db, key)?.is_some();
        self.txn.commit()?;
        let ttl_ms = match found.meta.expire_ms {
            UnixMs::NONE => 0,
            at_ms => at_ms.since(now_ms).max(1),
        };
        match dumped {
            Ok(payload) => Ok(Some((ttl_ms, payload))),
            // The key expired while it was read.
            Err(_) if !is_there => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the keys that have arrived at the target.
    fn delete(&mut self, migration: &Migration, keys: &[Vec<u8>]) -> Result<(), Failure> {
        self.txn.begin(clock::unix_ms())?;
        self.lock(migration, keys)?;
        if self.server.engine.is_following() {
            // The server has become a replica meanwhile: only its master may delete keys.
            self.txn.commit()?;
            return Err(Failure::Local(BECAME_REPLICA));
        }
        let txn = &mut self.txn;
        txn.start_command();
        let mut effect: Vec<&[u8]> = vec![b"DEL"];
        for key in keys {
            if txn.delete_key(migration.db, key)? {
                effect.push(key);
            }
        }
        if effect.len() > 1 {
            txn.effect(migration.db, &effect);
        }
        txn.commit()?;
        self.server.engine.make_durable()?;
        Ok(())
    }

    /// A cached connection that speaks as a new one would, or a new one; and whether it is cached.
    fn connection(
        &self,
        address: &Address,
        migration: &Migration,
    ) -> Result<(Target, bool), Failure> {
        let kept = self.pool.cache.lock().remove(address);
        self.count_cached();
        match kept.filter(|target| target.speaks_as_new_ones(&self.server)) {
            Some(mut target) => {
                target.set_timeout(migration.timeout);
                Ok((target, true))
            }
            None => Ok((
                Target::connect(&self.server, migration, &self.pool.stop)?,
                false,
            )),
        }
    }

    fn keep(&self, address: Address, mut target: Target) {
        target.used = Instant::now();
        let mut cache = self.pool.cache.lock();
        if cache.len() >= CACHED
            && let Some(oldest) = cache.iter().min_by_key(|(_, kept)| kept.used)
        {
            let oldest = oldest.0.clone();
            cache.remove(&oldest);
        }
        cache.insert(address, target);
        drop(cache);
        self.count_cached();
    }

    fn drop_old_connections(&self) {
        self.pool
            .cache
            .lock()
            .retain(|_, kept| kept.used.elapsed() < CACHED_FOR);
        self.count_cached();
    }

    fn count_cached(&self) {
        let cached = self.pool.cache.lock().len() as u64;
        self.server
            .migrations
            .cached_sockets
            .store(cached, Ordering::Relaxed);
    }
}
