//! All connected clients, as other threads than their own see them.

use super::acl::User;
use super::client_id::ClientId;
use super::client_memory::Account;
use crate::base::time::{AtomicUnixMs, UnixMs};
use crate::sys::lock_order::{Lock, RwLock};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

bitflags::bitflags! {
    /// The flags that CLIENT LIST shows and CLIENT KILL TYPE selects by.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ClientFlags: u32 {
        /// Receives all commands (MONITOR).
        const MONITOR = 1;
        /// Closes once its output is written.
        const CLOSE_AFTER_REPLY = 1 << 1;
        /// Connected by the Unix socket.
        const UNIX_SOCKET = 1 << 2;
        /// Is not evicted for memory.
        const NO_EVICT = 1 << 3;
        /// Does not change access times.
        const NO_TOUCH = 1 << 4;
        /// Is inside MULTI.
        const MULTI = 1 << 5;
        /// Waits: in a blocking command, or for the end of a pause.
        const BLOCKED = 1 << 6;
        /// Is subscribed to channels.
        const PUBSUB = 1 << 7;
        /// Is a replica.
        const REPLICA = 1 << 8;
        /// Is the master of this server.
        const MASTER = 1 << 9;
        /// Takes redirections to the master of this server (CLIENT CAPA redirect).
        const TAKES_REDIRECT = 1 << 10;
        /// Reads from this server though it is a replica (READONLY).
        const READS_REPLICA = 1 << 11;
        /// Brings the data of another server (CLIENT IMPORT-SOURCE): to it no key has expired.
        const IMPORT_SOURCE = 1 << 12;
        /// May use keys of several slots at once (CLIENT CAPA cross-slots).
        const CROSSES_SLOTS = 1 << 13;
        /// Gets invalidations of keys that it has read.
        const TRACKING = 1 << 16;
        /// Gets invalidations of all keys with some prefixes instead.
        const TRACKING_BCAST = 1 << 17;
        /// Gets no invalidations of its own changes.
        const TRACKING_NOLOOP = 1 << 18;
        /// The client to which its invalidations are redirected is gone.
        const TRACKING_BROKEN = 1 << 19;
        /// The options of [`ClientFlags::TRACKING`].
        const TRACKING_OPTIONS = Self::TRACKING_BCAST.bits()
            | Self::TRACKING_NOLOOP.bits()
            | Self::TRACKING_BROKEN.bits();
    }
}

/// Texts that a client sets about itself.
#[derive(Debug, Clone, Default)]
pub struct ClientNames {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_ver: Vec<u8>,
    /// As whom it acts; `None`: the server itself.
    pub user: Option<Arc<User>>,
}

/// One client. Its own thread writes the fields, others read them.
#[derive(Debug)]
pub struct ClientInfo {
    /// Its number.
    pub id: ClientId,
    /// Peer, as `ip:port` or the socket's path with `:0`.
    pub addr: String,
    /// Local address.
    pub laddr: String,
    /// File descriptor.
    pub fd: AtomicI32,
    /// The IO thread that owns it.
    pub thread: usize,
    /// When it connected, Unix ms.
    pub created_ms: UnixMs,
    /// When it last sent a request or read a reply, or when output began to wait for it,
    /// Unix ms.
    pub active_ms: AtomicUnixMs,
    /// Selected DB.
    pub db: AtomicU32,
    /// See [`ClientFlags`].
    pub flags: AtomicU32,
    /// 2 or 3.
    pub resp: AtomicU32,
    /// Bytes read and not yet run.
    pub query_bytes: AtomicUsize,
    /// Capacity of the read buffer.
    pub query_capacity: AtomicUsize,
    /// Bytes of replies not yet sent.
    pub output_bytes: AtomicUsize,
    /// Capacity of the output buffer.
    pub output_capacity: AtomicUsize,
    /// The client that gets its invalidations; 0: itself.
    pub redirect: AtomicU64,
    /// How many channels, patterns and shard channels it is subscribed to.
    pub subscriptions: [AtomicU32; 3],
    /// Memory of the arguments of the running or incomplete command.
    pub argv_bytes: AtomicUsize,
    /// Commands queued since MULTI; -1 outside.
    pub multi_commands: AtomicI32,
    /// Memory of those commands.
    pub multi_bytes: AtomicUsize,
    /// Memory of its fieldsets.
    pub fieldset_bytes: AtomicUsize,
    /// Its share of the memory of all clients.
    pub account: Account,
    /// Number of watched keys.
    pub watched_keys: AtomicUsize,
    /// Registry index of the last command; `u32::MAX`: none yet.
    pub last_command: AtomicU32,
    /// Bytes received from it.
    pub net_in_bytes: AtomicU64,
    /// Bytes sent to it.
    pub net_out_bytes: AtomicU64,
    /// Commands that it has run, those of transactions and scripts among them.
    pub commands: AtomicU64,
    /// While it watches keys: set when one of them has changed.
    pub watch_failed: Mutex<Option<Arc<AtomicBool>>>,
    /// Set by CLIENT KILL and read by the thread that owns the client.
    pub kill: AtomicBool,
    /// Names.
    pub names: Mutex<ClientNames>,
}

/// Memory of a connection without buffers, in bytes.
const CLIENT_BASE_BYTES: usize = 2048;

impl ClientInfo {
    /// Memory of the client, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let load = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let query = load(&self.query_bytes).max(load(&self.query_capacity));
        let output = load(&self.output_bytes).max(load(&self.output_capacity));
        let kept = load(&self.multi_bytes) + load(&self.fieldset_bytes);
        CLIENT_BASE_BYTES + query + output + load(&self.argv_bytes) + kept
    }

    /// A newly connected client.
    pub fn new(
        id: ClientId,
        addr: String,
        laddr: String,
        fd: i32,
        thread: usize,
        now_ms: UnixMs,
        flags: ClientFlags,
    ) -> ClientInfo {
        ClientInfo {
            id,
            addr,
            laddr,
            fd: AtomicI32::new(fd),
            thread,
            created_ms: now_ms,
            active_ms: AtomicUnixMs::new(now_ms),
            db: AtomicU32::new(0),
            flags: AtomicU32::new(flags.bits()),
            resp: AtomicU32::new(2),
            query_bytes: AtomicUsize::new(0),
            query_capacity: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            output_capacity: AtomicUsize::new(0),
            redirect: AtomicU64::new(0),
            subscriptions: Default::default(),
            argv_bytes: AtomicUsize::new(0),
            multi_commands: AtomicI32::new(-1),
            multi_bytes: AtomicUsize::new(0),
            fieldset_bytes: AtomicUsize::new(0),
            account: Account::default(),
            watched_keys: AtomicUsize::new(0),
            last_command: AtomicU32::new(u32::MAX),
            net_in_bytes: AtomicU64::new(0),
            net_out_bytes: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            watch_failed: Mutex::new(None),
            kill: AtomicBool::new(false),
            names: Mutex::default(),
        }
    }

    /// Whether a watched key has changed, so that EXEC will fail.
    pub fn exec_fails(&self) -> bool {
        let failed = self.watch_failed.lock();
        failed
            .as_ref()
            .is_some_and(|failed| failed.load(Ordering::Relaxed))
    }

    /// Whether it acts as this user.
    pub fn acts_as(&self, user: &Arc<User>) -> bool {
        let names = self.names.lock();
        names
            .user
            .as_ref()
            .is_some_and(|mine| Arc::ptr_eq(mine, user))
    }

    /// Its flags.
    pub fn flags(&self) -> ClientFlags {
        ClientFlags::from_bits_truncate(self.flags.load(Ordering::Relaxed))
    }

    /// Sets or clears a flag; returns whether it was set before.
    pub fn set_flag(&self, flag: ClientFlags, on: bool) -> bool {
        let before = match on {
            true => self.flags.fetch_or(flag.bits(), Ordering::Relaxed),
            false => self.flags.fetch_and(!flag.bits(), Ordering::Relaxed),
        };
        before & flag.bits() != 0
    }
}

/// For the log.
impl std::fmt::Display for ClientInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, fd) = (self.id.0, self.fd.load(Ordering::Relaxed));
        write!(f, "id={id} addr={} laddr={} fd={fd}", self.addr, self.laddr)
    }
}

/// All clients.
#[derive(Debug, Default)]
pub struct Clients {
    by_id: RwLock<BTreeMap<ClientId, Arc<ClientInfo>>, { Lock::Clients as u8 }>,
    next_id: AtomicU64,
    count: AtomicUsize,
    monitors: AtomicUsize,
}

impl Clients {
    /// A number for a new client.
    pub fn new_id(&self) -> ClientId {
        ClientId(self.next_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds a client.
    pub fn add(&self, client: Arc<ClientInfo>) {
        self.by_id.write().insert(client.id, client);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a client. Returns whether it was there.
    pub fn remove(&self, id: ClientId) -> bool {
        let removed = self.by_id.write().remove(&id);
        if let Some(client) = &removed {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.set_monitor(client, false);
        }
        removed.is_some()
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The client with this number.
    pub fn get(&self, id: ClientId) -> Option<Arc<ClientInfo>> {
        self.by_id.read().get(&id).cloned()
    }

    /// All clients by number.
    pub fn all(&self) -> Vec<Arc<ClientInfo>> {
        self.by_id.read().values().cloned().collect()
    }

    /// Calls `each` for all clients that stay meanwhile. The table is locked for a few of them at a
    /// time.
    pub fn for_each(&self, mut each: impl FnMut(&ClientInfo)) {
        const AT_ONCE: usize = 64;
        let mut next = ClientId(0);
        let mut some: Vec<Arc<ClientInfo>> = Vec::with_capacity(AT_ONCE);
        loop {
            let by_id = self.by_id.read();
            some.extend(by_id.range(next..).take(AT_ONCE).map(|(_, c)| c.clone()));
            drop(by_id);
            let Some(last) = some.last() else {
                return;
            };
            next = ClientId(last.id.0 + 1);
            some.drain(..).for_each(|client| each(&client));
        }
    }

    /// The number of MONITOR clients; read for every command.
    pub fn monitors(&self) -> usize {
        self.monitors.load(Ordering::Relaxed)
    }

    /// Makes a client a MONITOR client, or ends that.
    pub fn set_monitor(&self, client: &ClientInfo, on: bool) {
        if client.set_flag(ClientFlags::MONITOR, on) == on {
            return;
        }
        if on {
            self.monitors.fetch_add(1, Ordering::Relaxed);
        } else {
            self.monitors.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
