//! The one table of parameters.
//!
//! A row is a field of [`Config`], its default, its names, the values it accepts and its flags.
//! Files, the command line, CONFIG GET, SET and REWRITE, `--help` and the manual's table are
//! derived from it. A new parameter is a row.

mod table;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::storage::MemtableRep;
use crate::storage::StorageConfig;
use crate::storage::engine::options::{Compression, MachineShare};

use super::events::NotifyEvents;
use super::hostname::Hostname;
use super::kind::ParamKind;
use super::logs::LogLevels;
use super::tls::{TlsCiphers, TlsCiphersuites, TlsProtocols};
use super::types::{
    AllowAccess, AppendFsync, BufferLimits, BusyScope, Directory, DumpName, EndpointType,
    EvictionPolicy, FileName, LogFormat, LogLevel, MasterAddr, MemoryOrPercent, Percentiles, Ratio,
    Renames, SanitizePayload, SavePoints, Secret, TlsAuthClients, TlsAuthClientsUser, UserLines,
    WordFlags,
};
use super::value::Field;

use table::params;
pub use table::{Flag, Param};

/// Bytes of a KiB, a MiB and a GiB.
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The defaults of the storage, which unit tests of it run with too.
static STORAGE: LazyLock<StorageConfig> =
    LazyLock::new(|| StorageConfig::new(PathBuf::new(), MachineShare::default()));

const INT: i64 = 2_147_483_647;
const ANY: ParamKind = int(-INT - 1, INT);
const COUNT: ParamKind = int(0, INT);
const LONG: ParamKind = int(0, i64::MAX);
const PORT: ParamKind = int(0, 65_535);
const BYTES: ParamKind = bytes(0, i64::MAX.unsigned_abs());

const fn int(min: i64, max: i64) -> ParamKind {
    ParamKind::Int { min, max }
}

const fn of_module(name: &'static str, min: i64, max: i64) -> ParamKind {
    ParamKind::OfModule { name, min, max }
}

const fn bytes(min: u64, max: u64) -> ParamKind {
    ParamKind::Memory { min, max }
}

const ACCESS: ParamKind = ParamKind::Choice(AllowAccess::NAMES);
const COMPRESSION: ParamKind = ParamKind::Choice(Compression::NAMES);
const SIGNALS: ParamKind = ParamKind::Flags(&["default", "save", "nosave", "now", "force"]);
const FACILITIES: ParamKind = ParamKind::Choice(&[
    "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
]);
const HOST_PORT: ParamKind = ParamKind::Words("HOST PORT, or no one");
const LIMITS: ParamKind = ParamKind::Lines("normal|replica|pubsub HARD SOFT SECONDS ...");
const RENAME: ParamKind = ParamKind::Lines("NAME NEWNAME, or NAME \"\"");

params! {
    // Network
    /// Addresses to listen on; `*` is every address, one with `-` before it may be unavailable.
    bind: Vec<String> = vec!["*".into(), "-::*".into()] => "bind", ParamKind::Words("ADDRESS ...");
    /// TCP port to listen on; 0 listens on none.
    port: u16 = 6379 => "port", PORT;
    /// Path of a Unix socket to listen on; empty for none.
    unixsocket: PathBuf = PathBuf::new() => "unixsocket", ParamKind::Text, Start;
    /// Permissions of the Unix socket, in octal; 0 leaves them to the umask.
    unixsocketperm: u32 = 0 => "unixsocketperm", ParamKind::Octal, Start;
    /// Length of the queue of connections that wait to be accepted.
    tcp_backlog: u32 = 511 => "tcp-backlog", COUNT, Start;
    /// Seconds after which an idle client is disconnected; 0 is never.
    timeout_s: u64 = 0 => "timeout", COUNT;
    /// Idle seconds after which TCP keepalive probes are sent; 0 sends none.
    tcp_keepalive_s: u64 = 300 => "tcp-keepalive", COUNT;
    /// Without a password, accept only clients on this machine.
    protected_mode: bool = true => "protected-mode", ParamKind::Bool;
    /// Most clients at a time, as far as the limit of open files permits besides the database.
    max_clients: u32 = 10_000 => "maxclients", int(1, 4_294_967_295);
    /// Local address of outgoing connections; empty leaves it to the system.
    bind_source_addr: String = String::new() => "bind-source-addr", ParamKind::Text;
    /// Connections accepted from one listening socket before others are served.
    max_new_connections_per_cycle: u32 = 10 => "max-new-connections-per-cycle", int(1, 1000);
    /// The same for sockets of TLS. Handshakes are made by IO threads, not where connections are accepted.
    max_new_tls_connections_per_cycle: u32 = 1 => "max-new-tls-connections-per-cycle", int(1, 1000);
    /// Mark of the listening sockets for the system's packet filter.
    socket_mark_id: u32 = 0 => "socket-mark-id", int(0, 4_294_967_295), Start, Inert;
    /// Connections are plain TCP.
    mptcp: bool = false => "mptcp", ParamKind::Bool, Start, Inert;
    /// Requests of a pipeline are looked up in memory eight at a time.
    prefetch_batch_max_size: u32 = 16 => "prefetch-batch-max-size", int(0, 128), Inert;

    // TLS
    /// Port to listen on for TLS, at the addresses of `bind`; 0 listens on none.
    tls_port: u16 = 0 => "tls-port", PORT;
    /// File with the server's certificate and those of the authorities between, in PEM. A changed file is read by itself (`tls-auto-reload-interval`).
    tls_cert_file: PathBuf = PathBuf::new() => "tls-cert-file", ParamKind::Text;
    /// File with the private key of that certificate, in PEM.
    tls_key_file: PathBuf = PathBuf::new() => "tls-key-file", ParamKind::Text;
    /// Passphrase of that file, if it is encrypted (PKCS #8).
    tls_key_file_pass: Secret = Secret::default() => "tls-key-file-pass", ParamKind::Text, Secret;
    /// File with the certificate that is shown to masters and targets of MIGRATE; empty for that of `tls-cert-file`.
    tls_client_cert_file: PathBuf = PathBuf::new() => "tls-client-cert-file", ParamKind::Text;
    /// File with the private key of that certificate.
    tls_client_key_file: PathBuf = PathBuf::new() => "tls-client-key-file", ParamKind::Text;
    /// Passphrase of that file.
    tls_client_key_file_pass: Secret = Secret::default() => "tls-client-key-file-pass", ParamKind::Text, Secret;
    /// No cipher here uses parameters of Diffie and Hellman.
    tls_dh_params_file: PathBuf = PathBuf::new() => "tls-dh-params-file", ParamKind::Text, Inert;
    /// File with the certificates of the authorities that certify clients, masters and replicas.
    tls_ca_cert_file: PathBuf = PathBuf::new() => "tls-ca-cert-file", ParamKind::Text;
    /// Directory of such files.
    tls_ca_cert_dir: PathBuf = PathBuf::new() => "tls-ca-cert-dir", ParamKind::Text;
    /// Whether clients must show a certificate of these authorities.
    tls_auth_clients: TlsAuthClients = TlsAuthClients::Yes => "tls-auth-clients", ParamKind::Choice(TlsAuthClients::NAMES);
    /// The name in a client's certificate by which it is logged in as the user of that name: the common name of the subject, or a URI among its alternative names.
    tls_auth_clients_user: TlsAuthClientsUser = TlsAuthClientsUser::Off => "tls-auth-clients-user", ParamKind::Choice(TlsAuthClientsUser::NAMES);
    /// Seconds between looks whether one of these files has changed; 0: they are read at the start and by CONFIG SET only.
    tls_auto_reload_interval_s: u64 = 1 => "tls-auto-reload-interval", COUNT;
    /// Speak TLS with the master, and with targets of MIGRATE.
    tls_replication: bool = false => "tls-replication", ParamKind::Bool;
    /// A cluster has one node and no bus.
    tls_cluster: bool = false => "tls-cluster", ParamKind::Bool, Inert;
    /// Versions of TLS, `TLSv1.2` and `TLSv1.3`; empty for both.
    tls_protocols: TlsProtocols = TlsProtocols::default() => "tls-protocols", ParamKind::Text;
    /// Ciphers of TLS 1.2 by OpenSSL's names, with colons between, in order of preference; empty for all.
    tls_ciphers: TlsCiphers = TlsCiphers::default() => "tls-ciphers", ParamKind::Text;
    /// Ciphers of TLS 1.3, in the same way.
    tls_ciphersuites: TlsCiphersuites = TlsCiphersuites::default() => "tls-ciphersuites", ParamKind::Text;
    /// Choose ciphers in the server's order of preference, not in the client's.
    tls_prefer_server_ciphers: bool = false => "tls-prefer-server-ciphers", ParamKind::Bool;
    /// Keep sessions, so that clients resume them without a whole handshake.
    tls_session_caching: bool = true => "tls-session-caching", ParamKind::Bool;
    /// Sessions that are kept, at most about a million; 0 is as many.
    tls_session_cache_size: u32 = 20 * 1024 => "tls-session-cache-size", COUNT;
    /// Seconds that a session is kept.
    tls_session_cache_timeout_s: u64 = 300 => "tls-session-cache-timeout", COUNT;

    // Server
    /// Detach from the terminal and run in the background.
    daemonize: bool = false => "daemonize", ParamKind::Bool, Start;
    /// File that holds the process id while the server runs; empty for none.
    pidfile: PathBuf = PathBuf::new() => "pidfile", ParamKind::Text, Start;
    /// How much is logged.
    loglevel: LogLevel = LogLevel::Notice => "loglevel", ParamKind::Choice(LogLevel::NAMES);
    /// Levels of single modules in place of `loglevel`, as in `net debug storage warning`; the names are those of the modules in the code map.
    log_levels: LogLevels = LogLevels::default() => "log-levels", ParamKind::Words("MODULE LEVEL ...");
    /// Form of the lines: `text`, which `legacy` is, too; a JSON object each; or `logfmt`, words with names.
    log_format: LogFormat = LogFormat::Legacy => "log-format", ParamKind::Choice(LogFormat::NAMES);
    /// Log file; empty logs to standard output. If it is moved away, a new one is created, with the next line or at a SIGHUP.
    logfile: PathBuf = PathBuf::new() => "logfile" | "logpath", ParamKind::Text, Start;
    /// Number of databases.
    databases: u16 = STORAGE.databases => "databases", int(1, 65_535), Start;
    /// Threads that serve clients; 0 is one fewer than there are processors, and at least 1.
    io_threads: u32 = 0 => "io-threads" | "io-thread-num", int(0, 128), Start;
    /// Threads that read from the disk for commands that do not wait themselves: as many reads as go on side by side.
    reader_threads: u32 = 64 => "reader-threads", int(1, 1024), Start;
    /// Background tasks have intervals of their own; INFO shows this value, limited to 1 to 500.
    hz: u32 = 10 => "hz", COUNT, Inert;
    /// Seconds that a shutdown waits for replicas to catch up.
    shutdown_timeout_s: u64 = 10 => "shutdown-timeout", COUNT;
    /// Options of the shutdown at a SIGINT.
    shutdown_on_sigint: WordFlags = WordFlags(vec![]) => "shutdown-on-sigint", SIGNALS;
    /// Options of the shutdown at a SIGTERM.
    shutdown_on_sigterm: WordFlags = WordFlags(vec![]) => "shutdown-on-sigterm", SIGNALS;
    /// Which clients may use DEBUG.
    enable_debug_command: AllowAccess = AllowAccess::No => "enable-debug-command", ACCESS, Start;
    /// Which clients may change protected parameters with CONFIG SET.
    enable_protected_configs: AllowAccess = AllowAccess::No => "enable-protected-configs", ACCESS, Start;
    /// Which clients may use MODULE LOAD and UNLOAD; no module can be loaded.
    enable_module_command: AllowAccess = AllowAccess::No => "enable-module-command", ACCESS, Start;
    /// Renames a command, or disables it.
    renames: Renames = Renames::default() => "rename-command", RENAME, Start, FileOnly;
    /// Write a stack trace to the log when the server panics.
    crash_log_enabled: bool = true => "crash-log-enabled", ParamKind::Bool;

    // Security
    /// Password of the default user; empty for none.
    requirepass: Secret = Secret::default() => "requirepass", ParamKind::Text, Secret;
    /// A user and what it may do, in the rules of `ACL SETUSER`.
    users: UserLines = UserLines::default() => "user", ParamKind::Lines("NAME RULE ..."), FileOnly, Secret;
    /// File of the users, in place of `user` lines; empty for none.
    aclfile: PathBuf = PathBuf::new() => "aclfile", ParamKind::Text, Start;
    /// Entries that ACL LOG keeps.
    acllog_max_len: u64 = 128 => "acllog-max-len", LONG;
    /// The channels of new users and selectors: all or none.
    acl_pubsub_default: &'static str = "resetchannels" => "acl-pubsub-default", ParamKind::Choice(&["allchannels", "resetchannels"]);
    /// File for lines about refused logins and commands, and about administrative commands; empty for none.
    audit_log: PathBuf = PathBuf::new() => "audit-log", ParamKind::Text, Guarded;
    /// Leave names of keys and channels out of the audit log. The log never holds them, or values.
    hide_user_data_from_log: bool = true => "hide-user-data-from-log", ParamKind::Bool;

    // Data on disk
    /// Directory that holds the database's directory; backups are written here too.
    dir: Directory = Directory::new(Path::new(".")) => "dir", ParamKind::Text, Guarded, Located;
    /// Name of the database's directory inside `dir`.
    db_name: FileName = FileName("kedis-db".into()) => "db-name", ParamKind::Text, Start;
    /// Disk space that is allocated in advance for deletions and expiry on a full disk; at most a twentieth of the disk. Commands that add data are refused while it cannot be allocated. 0 is none.
    disk_reserve_bytes: u64 = STORAGE.disk_reserve_bytes => "disk-reserve", BYTES;
    /// The most space that the database's directory may take on the disk, with the binlog and the reserve. Without a `max-disk-policy` commands that add data are refused when there is no more; 0 is no bound.
    max_disk_bytes: u64 = 0 => "max-disk", BYTES;
    /// Which keys are evicted so that the data keep to `max-disk`.
    max_disk_policy: EvictionPolicy = EvictionPolicy::Noeviction => "max-disk-policy", ParamKind::Choice(EvictionPolicy::NAMES);
    /// When writes are synced to the disk: before the reply, once a second, or when the operating system decides.
    appendfsync: AppendFsync = AppendFsync::Everysec => "appendfsync", ParamKind::Choice(AppendFsync::NAMES);
    /// Name, inside `dir`, of the copy that SAVE and BGSAVE write.
    dbfilename: DumpName = DumpName("dump.rdb".into()) => "dbfilename", ParamKind::Text, Guarded;
    /// Data is always durable; there are no periodic saves.
    save: SavePoints = SavePoints::default() => "save", ParamKind::Lines("SECONDS CHANGES ..., or \"\""), Inert;
    /// Data is always durable.
    appendonly: bool = false => "appendonly", ParamKind::Bool, Inert;
    /// Strings up to this many bytes are stored in one row, longer ones in fragments.
    string_inline_max_bytes: usize = STORAGE.string_inline_max_bytes => "string-inline-max", bytes(64, MIB), Start;
    /// Strings of at least this many bytes are written once, to the value log, unless they pack well; 0 is none.
    value_log_min_bytes: u64 = STORAGE.value_log_min_bytes => "value-log-min", bytes(0, u64::MAX), Start;
    /// Strings that LZ4 makes a quarter shorter are written there from this many bytes on. Tables pack shorter ones better.
    value_log_packed_min_bytes: u64 = STORAGE.value_log_packed_min_bytes => "value-log-packed-min", bytes(0, u64::MAX), Start;
    /// Size of a file of the value log.
    value_log_segment_bytes: u64 = STORAGE.value_log_segment_bytes => "value-log-segment-size", bytes(4 * KIB, 4 << 30), Start;
    /// Collections up to this many bytes are stored in their key's row; 0 is none.
    packed_max_bytes: usize = STORAGE.packed_max_bytes => "packed-max-bytes", bytes(0, 64 * KIB), Start;
    /// Collections up to this many elements are stored in their key's row; 0 is none.
    packed_max_entries: usize = STORAGE.packed_max_entries => "packed-max-entries", int(0, 1024), Start;

    // Memory and limits
    /// Memory budget of caches, memtables and buffers; 0 takes half of the machine or cgroup.
    max_memory_bytes: u64 = 0 => "maxmemory", bytes(0, u64::MAX);
    /// Evicts nothing: data is on disk, where `max-disk-policy` evicts keys. An LFU policy enables OBJECT FREQ.
    maxmemory_policy: EvictionPolicy = EvictionPolicy::Noeviction => "maxmemory-policy", ParamKind::Choice(EvictionPolicy::NAMES);
    /// Keys that Redis samples to evict one.
    maxmemory_samples: u32 = 5 => "maxmemory-samples", int(1, INT), Inert;
    /// Effort that Redis spends on eviction.
    maxmemory_eviction_tenacity: u32 = 10 => "maxmemory-eviction-tenacity", int(0, 100), Inert;
    /// Memory of all clients together, beyond which the largest are disconnected; before that, requests and replies wait or are refused. 0 is a quarter of the memory budget, or a gigabyte if that is more; it is never more than the caches can free.
    maxmemory_clients: MemoryOrPercent = MemoryOrPercent::Bytes(0) => "maxmemory-clients", ParamKind::MemoryOrPercent;
    /// Limits for the unsent output of a client, by class.
    client_output_buffer_limit: BufferLimits = BufferLimits::default() => "client-output-buffer-limit", LIMITS;
    /// Limit for the bytes of a client's requests that wait or are incomplete, and of its queued commands.
    client_query_buffer_limit_bytes: u64 = GIB => "client-query-buffer-limit", bytes(MIB, i64::MAX.unsigned_abs());
    /// Longest string in a request or value.
    proto_max_bulk_len_bytes: u64 = 512 * MIB => "proto-max-bulk-len", bytes(MIB, i64::MAX.unsigned_abs());
    /// Keys that the table for client-side caching keeps; 0 is no limit.
    tracking_table_max_keys: u64 = 1_000_000 => "tracking-table-max-keys", LONG;
    /// SCAN cursors that are kept.
    scan_cursors_max: u32 = 65_536 => "scan-cursors-max", int(16, INT);
    /// Bytes of writes that one tick collects before it commits.
    tick_max_bytes: u64 = 4 * MIB => "tick-max-bytes", bytes(64 * KIB, GIB);
    /// Commands that one tick runs before it commits.
    tick_max_commands: u32 = 4096 => "tick-max-commands", int(1, INT);
    /// Microseconds that one tick runs commands before it commits.
    tick_max_us: u64 = 5000 => "tick-max-us", int(10, INT);
    /// Microseconds that a thread waits for further requests when many clients keep it busy with few at a time, which saves processor time; 0 never waits.
    tick_gather_us: u64 = 15 => "tick-gather-us", int(0, 1000);

    // Expiry and deletion
    /// Milliseconds between two passes of the expire thread.
    expire_period_ms: u64 = 100 => "expire-period-ms", int(1, 60_000);
    /// Keys that the expire thread deletes in one commit; of fields of hashes four times as many.
    expire_slice_keys: u32 = 256 => "expire-slice-keys", int(1, 100_000);
    /// Rows per second that the reclaim of deleted collections removes one by one; 0 is no limit.
    reclaim_rows_per_s: u64 = 500_000 => "reclaim-rows-per-second", COUNT;
    /// No key expires but by the commands of connections that bring the data of another server (CLIENT IMPORT-SOURCE), to which expired keys are visible; to others they are not.
    import_mode: bool = false => "import-mode", ParamKind::Bool;
    /// The expire thread is controlled by `expire-period-ms` and `expire-slice-keys`.
    active_expire_effort: u32 = 1 => "active-expire-effort", int(1, 10), Inert;
    /// Deleting is always lazy.
    lazyfree_lazy_eviction: bool = false => "lazyfree-lazy-eviction", ParamKind::Bool, Inert;
    /// Deleting is always lazy.
    lazyfree_lazy_expire: bool = false => "lazyfree-lazy-expire", ParamKind::Bool, Inert;
    /// Deleting is always lazy.
    lazyfree_lazy_server_del: bool = false => "lazyfree-lazy-server-del", ParamKind::Bool, Inert;
    /// Deleting is always lazy.
    lazyfree_lazy_user_del: bool = false => "lazyfree-lazy-user-del", ParamKind::Bool, Inert;
    /// Flushing is always lazy.
    lazyfree_lazy_user_flush: bool = false => "lazyfree-lazy-user-flush", ParamKind::Bool, Inert;
    /// A replica's flush is always lazy.
    replica_lazy_flush: bool = false => "replica-lazy-flush" | "slave-lazy-flush", ParamKind::Bool, Inert;
    /// Whether a command may expire keys that it was not called with.
    lazyexpire_nested_arbitrary_keys: bool = true => "lazyexpire-nested-arbitrary-keys", ParamKind::Bool, Inert;

    // Observation
    /// Microseconds beyond which a command enters the slow log; 0 logs all, -1 none.
    slowlog_log_slower_than_us: i64 = 10_000 => "slowlog-log-slower-than" | "commandlog-execution-slower-than", int(-1, i64::MAX);
    /// Entries that the slow log keeps.
    slowlog_max_len: u64 = 128 => "slowlog-max-len" | "commandlog-slow-execution-max-len", LONG;
    /// Arguments of a command that an entry of the slow log, or of the logs of COMMANDLOG, keeps.
    slowlog_entry_max_argc: u32 = 32 => "slowlog-entry-max-argc", int(2, INT);
    /// Bytes of an argument that such an entry keeps.
    slowlog_entry_max_string_len: u32 = 128 => "slowlog-entry-max-string-len", int(1, INT);
    /// Bytes from which a request enters the log of large requests (COMMANDLOG); -1 logs none.
    commandlog_request_larger_than: i64 = 1 << 20 => "commandlog-request-larger-than", int(-1, i64::MAX);
    /// Entries that the log of large requests keeps.
    commandlog_large_request_max_len: u64 = 128 => "commandlog-large-request-max-len", LONG;
    /// Bytes from which a reply enters the log of large replies (COMMANDLOG); -1 logs none.
    commandlog_reply_larger_than: i64 = 1 << 20 => "commandlog-reply-larger-than", int(-1, i64::MAX);
    /// Entries that the log of large replies keeps.
    commandlog_large_reply_max_len: u64 = 128 => "commandlog-large-reply-max-len", LONG;
    /// Milliseconds beyond which the latency monitor keeps an event; 0 keeps none.
    latency_monitor_threshold_ms: u64 = 0 => "latency-monitor-threshold", LONG;
    /// Keep a histogram of each command's time.
    latency_tracking: bool = true => "latency-tracking", ParamKind::Bool;
    /// Percentiles that INFO latencystats shows.
    latency_tracking_percentiles: Percentiles = Percentiles(vec![50.0, 99.0, 99.9]) => "latency-tracking-info-percentiles", ParamKind::Words("NUMBER ...");
    /// Keyspace events that are published: letters of `Ag$lshzxeKEtmdn`.
    notify_keyspace_events: NotifyEvents = NotifyEvents::default() => "notify-keyspace-events", ParamKind::Text;

    /// Port on which Prometheus and health checks are answered over HTTP; 0 listens on none.
    metrics_port: u16 = 0 => "metrics-port", PORT, Start;
    /// Addresses to listen on for them, as with `bind`. Whoever reaches them reads the figures without a password.
    metrics_bind: Vec<String> = vec!["127.0.0.1".into(), "-::1".into()] => "metrics-bind", ParamKind::Words("ADDRESS ..."), Start;
    /// Path of a Unix socket to listen on for them; empty for none.
    metrics_unixsocket: PathBuf = PathBuf::new() => "metrics-unixsocket", ParamKind::Text, Start;
    /// Permissions of that socket, in octal; 0 leaves them to the umask.
    metrics_unixsocketperm: u32 = 0 => "metrics-unixsocketperm", ParamKind::Octal, Start;

    // The bounds of Redis that OBJECT ENCODING applies
    /// Most fields of a hash that OBJECT ENCODING reports as listpack.
    hash_max_listpack_entries: u64 = 512 => "hash-max-listpack-entries" | "hash-max-ziplist-entries", LONG;
    /// Longest field or value, in bytes, of a hash that OBJECT ENCODING reports as listpack.
    hash_max_listpack_value_bytes: u64 = 64 => "hash-max-listpack-value" | "hash-max-ziplist-value", BYTES;
    /// Elements of one listpack of a list, or -1 to -5 for 4 to 64 KiB.
    list_max_listpack_size: i32 = -2 => "list-max-listpack-size" | "list-max-ziplist-size", ANY;
    /// Nodes at both ends of a list that Redis leaves uncompressed.
    list_compress_depth: u32 = 0 => "list-compress-depth", COUNT, Inert;
    /// Most members of a set of integers that OBJECT ENCODING reports as intset.
    set_max_intset_entries: u64 = 512 => "set-max-intset-entries", LONG;
    /// Most members of a set that OBJECT ENCODING reports as listpack.
    set_max_listpack_entries: u64 = 128 => "set-max-listpack-entries", LONG;
    /// Longest member, in bytes, of a set that OBJECT ENCODING reports as listpack.
    set_max_listpack_value_bytes: u64 = 64 => "set-max-listpack-value", BYTES;
    /// Most members of a sorted set that OBJECT ENCODING reports as listpack.
    zset_max_listpack_entries: u64 = 128 => "zset-max-listpack-entries" | "zset-max-ziplist-entries", LONG;
    /// Longest member, in bytes, of a sorted set that OBJECT ENCODING reports as listpack.
    zset_max_listpack_value_bytes: u64 = 64 => "zset-max-listpack-value" | "zset-max-ziplist-value", BYTES;
    /// Bytes up to which a HyperLogLog stays sparse.
    hll_sparse_max_bytes: u64 = 3000 => "hll-sparse-max-bytes", BYTES;
    /// Approximate trimming counts entries: see `stream-node-max-entries`.
    stream_node_max_bytes: u64 = 4096 => "stream-node-max-bytes", BYTES, Inert;
    /// Entries of a stream's node in Redis; approximate trimming works in such nodes.
    stream_node_max_entries: u64 = 100 => "stream-node-max-entries", LONG;
    /// Seconds for which a new stream remembers idempotent ids (XADD IDMP).
    stream_idmp_duration_s: u64 = 100 => "stream-idmp-duration", int(1, 86_400);
    /// Idempotent ids that a new stream remembers of each producer.
    stream_idmp_maxsize: u64 = 100 => "stream-idmp-maxsize", int(1, 10_000);

    // Filters that are created without these properties
    /// Error rate of a new Bloom filter; at most 0.25.
    bf_error_rate: Ratio = Ratio(0.01) => "bf-error-rate", ParamKind::Ratio("bf-error-rate");
    /// Items that a new Bloom filter has room for.
    bf_initial_size: u64 = 100 => "bf-initial-size", of_module("bf-initial-size", 1, 1 << 30);
    /// How much larger each further part of a Bloom filter is than the one before; 0 is a filter of one part.
    bf_expansion_factor: u32 = 2 => "bf-expansion-factor", of_module("bf-expansion-factor", 0, 32_768);
    /// Slots of a bucket of a new Cuckoo filter.
    cf_bucket_size: u16 = 2 => "cf-bucket-size", of_module("cf-bucket-size", 1, 255);
    /// Items that a new Cuckoo filter has room for.
    cf_initial_size: u64 = 1024 => "cf-initial-size", of_module("cf-initial-size", 4, 1 << 30);
    /// Fingerprints that a new Cuckoo filter moves at most to make room for one.
    cf_max_iterations: u16 = 20 => "cf-max-iterations", of_module("cf-max-iterations", 1, 65_535);
    /// How much larger each further table of a Cuckoo filter is than the one before; 0 is a filter of one table.
    cf_expansion_factor: u16 = 1 => "cf-expansion-factor", of_module("cf-expansion-factor", 0, 32_768);
    /// Tables of a Cuckoo filter beyond which it takes no more items.
    cf_max_expansions: u32 = 32 => "cf-max-expansions", of_module("cf-max-expansions", 1, 65_536);

    // Scripts
    /// Milliseconds after which a script counts as slow and other clients get the error BUSY.
    busy_reply_threshold_ms: u64 = 5000 => "busy-reply-threshold" | "lua-time-limit", LONG;
    /// Which commands get the error BUSY: those that need keys of the slow script, or all, as in Redis.
    busy_reply_scope: BusyScope = BusyScope::Keys => "busy-reply-scope", ParamKind::Choice(BusyScope::NAMES);

    /// Scripts never have the functions that bypass the sandbox.
    lua_enable_deprecated_api: bool = false => "lua-enable-deprecated-api", ParamKind::Bool, Start, Inert;

    // Replication
    /// The master of this server, which is then a replica.
    replicaof: Option<MasterAddr> = None => "replicaof" | "slaveof", HOST_PORT, Start;
    /// User name with which a replica authenticates to its master.
    masteruser: String = String::new() => "masteruser" | "primaryuser", ParamKind::Text, Secret;
    /// Password with which a replica authenticates to its master.
    masterauth: Secret = Secret::default() => "masterauth" | "primaryauth", ParamKind::Text, Secret;
    /// A replica refuses writes of clients.
    replica_read_only: bool = true => "replica-read-only" | "slave-read-only", ParamKind::Bool;
    /// A replica answers reads while the link to its master is down.
    replica_serve_stale_data: bool = true => "replica-serve-stale-data" | "slave-serve-stale-data", ParamKind::Bool;
    /// Seconds of silence after which either side drops the link.
    repl_timeout_s: u64 = 60 => "repl-timeout", int(1, INT);
    /// Seconds between two keepalive messages to a replica.
    repl_ping_replica_period_s: u64 = 10 => "repl-ping-replica-period" | "repl-ping-slave-period", int(1, INT);
    /// Partial syncs use the binlog: see `binlog-max-bytes`.
    repl_backlog_size_bytes: u64 = MIB => "repl-backlog-size", bytes(1, i64::MAX.unsigned_abs()), Inert;
    /// The binlog is kept when replicas disconnect.
    repl_backlog_ttl_s: u64 = 3600 => "repl-backlog-ttl", LONG, Inert;
    /// A full sync never goes through a file.
    repl_diskless_sync: bool = true => "repl-diskless-sync", ParamKind::Bool, Inert;
    /// The data set and the stream of a full sync share one connection.
    dual_channel_replication_enabled: bool = false => "dual-channel-replication-enabled", ParamKind::Bool, Inert;
    /// Writes during a full sync are kept in the binlog of the master.
    replica_full_sync_buffer_limit: u64 = 0 => "replica-full-sync-buffer-limit", BYTES, Inert;
    /// Links to masters are plain TCP.
    repl_mptcp: bool = false => "repl-mptcp", ParamKind::Bool, Start, Inert;
    /// Seconds to wait for more replicas before a full sync starts.
    repl_diskless_sync_delay_s: u64 = 5 => "repl-diskless-sync-delay", COUNT, Inert;
    /// Number of replicas that ends that wait early.
    repl_diskless_sync_max_replicas: u32 = 0 => "repl-diskless-sync-max-replicas", COUNT, Inert;
    /// A replica keeps its old data until the new set is complete.
    repl_diskless_load: &'static str = "disabled" => "repl-diskless-load", ParamKind::Choice(&["disabled", "on-empty-db", "swapdb"]), Inert;
    /// Let TCP delay small packets to replicas.
    repl_disable_tcp_nodelay: bool = false => "repl-disable-tcp-nodelay", ParamKind::Bool;
    /// Rank for failover, lower first; 0 is never promoted.
    replica_priority: u32 = 100 => "replica-priority" | "slave-priority", COUNT;
    /// Whether Sentinel lists this replica.
    replica_announced: bool = true => "replica-announced", ParamKind::Bool;
    /// Address that a replica announces to its master; empty leaves it to the connection.
    replica_announce_ip: String = String::new() => "replica-announce-ip" | "slave-announce-ip", ParamKind::Text;
    /// Port that a replica announces to its master; 0 announces `port`.
    replica_announce_port: u16 = 0 => "replica-announce-port" | "slave-announce-port", PORT;
    /// A replica evicts nothing.
    replica_ignore_maxmemory: bool = true => "replica-ignore-maxmemory" | "slave-ignore-maxmemory", ParamKind::Bool, Inert;
    /// A replica whose disk fails never continues.
    replica_ignore_disk_write_errors: bool = false => "replica-ignore-disk-write-errors", ParamKind::Bool, Inert;
    /// Fewest good replicas for which writes are accepted; 0 is none.
    min_replicas_to_write: u32 = 0 => "min-replicas-to-write" | "min-slaves-to-write", COUNT;
    /// Seconds since its last acknowledgement up to which a replica is good, for `min-replicas-to-write`.
    min_replicas_max_lag_s: u64 = 10 => "min-replicas-max-lag" | "min-slaves-max-lag", COUNT;
    /// What a replica does about a command of its master that fails.
    propagation_error_behavior: &'static str = "ignore" => "propagation-error-behavior", ParamKind::Choice(&["ignore", "panic", "panic-on-replicas"]), Inert;

    // Binlog
    /// Keep the binlog that replicas follow; a server without it cannot be a master.
    binlog_enabled: bool = STORAGE.binlog_enabled => "binlog-enabled", ParamKind::Bool, Start;
    /// Entries that the binlog keeps.
    binlog_capacity: u64 = 1_000_000 => "binlog-capacity", int(1, i64::MAX);
    /// Bytes that the binlog keeps, but at most an eighth of `max-disk`; 0 is no limit.
    binlog_max_bytes: u64 = GIB => "binlog-max-bytes", BYTES;
    /// Seconds for which the binlog keeps entries; 0 is no limit.
    binlog_max_age_s: u64 = 0 => "binlog-max-age", LONG;
    /// Bytes up to which the binlog is kept for lagging replicas, but at most a quarter of `max-disk`; 0 is no limit.
    binlog_hold_max_bytes: u64 = 4 * GIB => "binlog-hold-max-bytes", BYTES;
    /// The binlog is stored in the database.
    binlog_dir: PathBuf = PathBuf::new() => "binlog-dir", ParamKind::Text, Start, Inert;
    /// Key counts are stored in the database.
    key_count_file: PathBuf = PathBuf::new() => "key-count-file", ParamKind::Text, Start, Inert;

    // RocksDB
    /// Size of the blocks of RocksDB's files, before compression.
    rocksdb_block_size_bytes: u64 = STORAGE.block_size_bytes => "rocksdb.block-size", bytes(KIB, MIB), Start;
    /// What rows stand in until they are written to files: Kedis' own B-tree, or RocksDB's skip list.
    rocksdb_memtable: MemtableRep = STORAGE.memtable => "rocksdb.memtable", ParamKind::Choice(MemtableRep::NAMES), Start;
    /// Size of a memtable; at most half of the memory for all memtables.
    rocksdb_write_buffer_size_bytes: u64 = STORAGE.write_buffer_size_bytes => "rocksdb.write-buffer-size", bytes(64 * KIB, 4 * GIB), Start;
    /// Memtables of a column family before writes wait.
    rocksdb_max_write_buffer_number: u32 = STORAGE.max_write_buffer_number => "rocksdb.max-write-buffer-number", int(2, 64), Start;
    /// Size of a file of level 1.
    rocksdb_target_file_size_bytes: u64 = STORAGE.target_file_size_bytes => "rocksdb.target-file-size", bytes(MIB, 4 * GIB), Start;
    /// Length from which values of rows are stored in blob files; 0 is never.
    rocksdb_min_blob_size_bytes: u64 = STORAGE.min_blob_size_bytes => "rocksdb.min-blob-size", BYTES, Start;
    /// Size of the write-ahead log beyond which the oldest memtables are flushed; 0 leaves it to RocksDB.
    rocksdb_max_total_wal_size_bytes: u64 = STORAGE.max_total_wal_size_bytes => "rocksdb.max-total-wal-size", BYTES, Start;
    /// Threads for flushes and compactions; 0 takes one per processor, at least two.
    rocksdb_max_background_jobs: u32 = 0 => "rocksdb.max-background-jobs", int(0, 128), Start;
    /// Nice value of the threads for flushes and compactions.
    rocksdb_background_nice: u32 = STORAGE.background_nice => "rocksdb.background-nice", int(0, 19), Start;
    /// Compression of the upper levels.
    rocksdb_compression: Compression = STORAGE.compression => "rocksdb.compression", COMPRESSION, Start;
    /// Compression of the last level.
    rocksdb_bottommost_compression: Compression = STORAGE.bottommost_compression => "rocksdb.bottommost-compression", COMPRESSION, Start;
    /// Bytes per second that flushes and compactions may write; 0 is no limit.
    rocksdb_rate_limit_bytes_per_s: u64 = STORAGE.rate_limit_bytes_per_s => "rocksdb.rate-limit", BYTES, Start;
    /// Table files kept open, as far as the limit of open files permits; -1 is as many as it permits.
    rocksdb_max_open_files: i32 = 4096 => "rocksdb.max-open-files", int(-1, INT), Start;
    /// Percent of the memory budget for the row cache: copies of recently used keys, fields and members.
    row_cache_percent: u32 = STORAGE.row_cache_percent => "row-cache-share" | "hot-rows-share", int(0, 90), Start;
    /// Percent of the rest of the memory budget for the block cache, which memtables share.
    rocksdb_block_cache_percent: u32 = STORAGE.block_cache_percent => "rocksdb.block-cache-share", int(1, 95), Start;
    /// Bits per key of the Bloom filters; 0 is no filters.
    rocksdb_bloom_bits: u32 = STORAGE.bloom_bits => "rocksdb.bloom-bits", int(0, 32), Start;
    /// Bytes after which the system is asked to write back what RocksDB has written; 0 is never.
    rocksdb_bytes_per_sync: u64 = STORAGE.bytes_per_sync => "rocksdb.bytes-per-sync", BYTES, Start;
    /// Read tables past the operating system's page cache; only the block cache keeps them in memory then.
    rocksdb_direct_reads: bool = STORAGE.direct_reads => "rocksdb.direct-reads", ParamKind::Bool, Start;
    /// Collect RocksDB's statistics, for INFO.
    rocksdb_statistics: bool = STORAGE.statistics => "rocksdb.statistics", ParamKind::Bool, Start;

    // Redis' parameters that have no meaning here
    /// RESTORE always checks payloads in full.
    sanitize_dump_payload: SanitizePayload = SanitizePayload::No => "sanitize-dump-payload", ParamKind::Choice(SanitizePayload::NAMES), Inert;
    /// A failed commit always stops writes.
    stop_writes_on_bgsave_error: bool = true => "stop-writes-on-bgsave-error", ParamKind::Bool, Inert;
    /// Compress strings in RDB files and DUMP payloads.
    rdbcompression: bool = true => "rdbcompression", ParamKind::Bool;
    /// Checksum of RDB files, always written.
    rdbchecksum: bool = true => "rdbchecksum", ParamKind::Bool, Start, Inert;
    /// A file of a later version is read as far as its types are known.
    rdb_version_check: &'static str = "strict" => "rdb-version-check", ParamKind::Choice(&["strict", "relaxed"]), Inert;
    /// No RDB file is made for a sync.
    rdb_del_sync_files: bool = false => "rdb-del-sync-files", ParamKind::Bool, Inert;
    /// Sync of RDB files while they are written.
    rdb_save_incremental_fsync: bool = true => "rdb-save-incremental-fsync", ParamKind::Bool, Inert;
    /// There is no append-only file.
    appendfilename: FileName = FileName("appendonly.aof".into()) => "appendfilename", ParamKind::Text, Start, Inert;
    /// There is no append-only file.
    appenddirname: FileName = FileName("appendonlydir".into()) => "appenddirname", ParamKind::Text, Start, Inert;
    /// There is no append-only file.
    no_appendfsync_on_rewrite: bool = false => "no-appendfsync-on-rewrite", ParamKind::Bool, Inert;
    /// There is no append-only file.
    auto_aof_rewrite_percentage: u32 = 100 => "auto-aof-rewrite-percentage", COUNT, Inert;
    /// There is no append-only file.
    auto_aof_rewrite_min_size_bytes: u64 = 64 * MIB => "auto-aof-rewrite-min-size", BYTES, Inert;
    /// Whether `--load-rdb` accepts an append-only file whose last command is incomplete, and skips that.
    aof_load_truncated: bool = true => "aof-load-truncated", ParamKind::Bool;
    /// There is no append-only file.
    aof_use_rdb_preamble: bool = true => "aof-use-rdb-preamble", ParamKind::Bool, Inert;
    /// There is no append-only file.
    aof_timestamp_enabled: bool = false => "aof-timestamp-enabled", ParamKind::Bool, Inert;
    /// There is no append-only file.
    aof_rewrite_incremental_fsync: bool = true => "aof-rewrite-incremental-fsync", ParamKind::Bool, Inert;
    /// There is no append-only file.
    aof_disable_auto_gc: bool = false => "aof-disable-auto-gc", ParamKind::Bool, Inert, Hidden;
    /// There is no hash table to rehash.
    activerehashing: bool = true => "activerehashing", ParamKind::Bool, Inert;
    /// Background tasks have intervals of their own.
    dynamic_hz: bool = true => "dynamic-hz", ParamKind::Bool, Inert;
    /// How slowly the frequency that OBJECT FREQ shows rises with use.
    lfu_log_factor: u32 = 10 => "lfu-log-factor", COUNT;
    /// Minutes without use after which that frequency falls; 0 is never.
    lfu_decay_time: u32 = 1 => "lfu-decay-time", COUNT;
    /// Nothing in memory needs defragmenting.
    activedefrag: bool = false => "activedefrag", ParamKind::Bool, Inert;
    /// Nothing in memory needs defragmenting.
    active_defrag_ignore_bytes: u64 = 100 * MIB => "active-defrag-ignore-bytes", bytes(1, i64::MAX.unsigned_abs()), Inert;
    /// Nothing in memory needs defragmenting.
    active_defrag_threshold_lower: u32 = 10 => "active-defrag-threshold-lower", int(0, 1000), Inert;
    /// Nothing in memory needs defragmenting.
    active_defrag_threshold_upper: u32 = 100 => "active-defrag-threshold-upper", int(0, 1000), Inert;
    /// Nothing in memory needs defragmenting.
    active_defrag_cycle_min: u32 = 1 => "active-defrag-cycle-min", int(1, 99), Inert;
    /// Nothing in memory needs defragmenting.
    active_defrag_cycle_max: u32 = 25 => "active-defrag-cycle-max", int(1, 99), Inert;
    /// Nothing in memory needs defragmenting.
    active_defrag_max_scan_fields: u64 = 1000 => "active-defrag-max-scan-fields", int(1, i64::MAX), Inert;
    /// Nothing in memory needs defragmenting.
    active_defrag_cycle_us: u32 = 500 => "active-defrag-cycle-us", int(0, 100_000), Inert;
    /// The allocator's own thread.
    jemalloc_bg_thread: bool = true => "jemalloc-bg-thread", ParamKind::Bool, Inert;
    /// Every IO thread reads, runs and writes.
    io_threads_do_reads: bool = false => "io-threads-do-reads", ParamKind::Bool, Start, Inert;
    /// Memory is never tested.
    crash_memcheck_enabled: bool = true => "crash-memcheck-enabled", ParamKind::Bool, Inert;
    /// A panic always ends the process with an error status.
    use_exit_on_panic: bool = false => "use-exit-on-panic", ParamKind::Bool, Inert, Hidden;
    /// The process does not change its OOM score.
    oom_score_adj: &'static str = "no" => "oom-score-adj", ParamKind::Choice(&["no", "yes", "relative", "absolute"]), Inert;
    /// The process does not change its OOM score.
    oom_score_adj_values: [i32; 3] = [0, 200, 800] => "oom-score-adj-values", ParamKind::Words("MASTER REPLICA CHILD"), Inert;
    /// The server does not fork.
    disable_thp: bool = true => "disable-thp", ParamKind::Bool, Start, Inert;
    /// No system warning stops the start.
    ignore_warnings: String = String::new() => "ignore-warnings", ParamKind::Text, Inert;
    /// There is no logo.
    always_show_logo: bool = false => "always-show-logo", ParamKind::Bool, Start, Inert;
    /// The process title is not changed.
    set_proc_title: bool = true => "set-proc-title", ParamKind::Bool, Start, Inert;
    /// The process title is not changed.
    proc_title_template: String = "{title} {listen-addr} {server-mode}".into() => "proc-title-template", ParamKind::Text, Inert;
    /// Texts are compared by their bytes.
    locale_collate: String = String::new() => "locale-collate", ParamKind::Text, Inert;
    /// The service manager that is notified when the server is ready, reloads and stops: systemd through `NOTIFY_SOCKET` (`Type=notify` or `notify-reload`), upstart through a stop (`expect stop`), or, with `auto`, the one that is detected. A server that one of them has started stays in the foreground.
    supervised: &'static str = "no" => "supervised", ParamKind::Choice(&["upstart", "systemd", "auto", "no"]), Start;
    /// The log has one form of time stamps.
    log_timestamp_format: &'static str = "legacy" => "log-timestamp-format", ParamKind::Choice(&["legacy", "iso8601", "milliseconds"]), Inert;
    /// The system log can be fed from standard output.
    syslog_enabled: bool = false => "syslog-enabled", ParamKind::Bool, Start, Inert;
    /// The system log can be fed from standard output.
    syslog_ident: String = "kedis".into() => "syslog-ident", ParamKind::Text, Start, Inert;
    /// The system log can be fed from standard output.
    syslog_facility: &'static str = "local0" => "syslog-facility", FACILITIES, Start, Inert;
    /// The operating system schedules the threads.
    server_cpulist: String = String::new() => "server-cpulist" | "server_cpulist", ParamKind::Text, Start, Inert;
    /// The operating system schedules the threads.
    bio_cpulist: String = String::new() => "bio-cpulist" | "bio_cpulist", ParamKind::Text, Start, Inert;
    /// The operating system schedules the threads.
    aof_rewrite_cpulist: String = String::new() => "aof-rewrite-cpulist" | "aof_rewrite_cpulist", ParamKind::Text, Start, Inert;
    /// The operating system schedules the threads.
    bgsave_cpulist: String = String::new() => "bgsave-cpulist" | "bgsave_cpulist", ParamKind::Text, Start, Inert;
    /// There is no watchdog.
    watchdog_period: u32 = 0 => "watchdog-period", COUNT, Inert, Hidden;
    /// A delay for tests of Redis.
    rdb_key_save_delay: i32 = 0 => "rdb-key-save-delay", ANY, Inert, Hidden;
    /// A delay for tests of Redis.
    key_load_delay: i32 = 0 => "key-load-delay", ANY, Inert, Hidden;
    /// Loading does not block here.
    loading_process_events_interval_bytes: u64 = 2 * MIB => "loading-process-events-interval-bytes", int(1024, INT), Inert, Hidden;

    /// The server always reports its own name.
    extended_redis_compatibility: bool = false => "extended-redis-compatibility", ParamKind::Bool, Inert;
    /// The availability zone is not reported.
    availability_zone: String = String::new() => "availability-zone", ParamKind::Text, Inert;
    /// There are no vector sets.
    vset_force_single_threaded_execution: bool = false => "vset-force-single-threaded-execution", ParamKind::Bool, Inert, Hidden;
    /// Hash seeds are random.
    hash_seed: String = String::new() => "hash-seed", ParamKind::Text, Start, Inert;

    // Cluster
    /// Serve as a whole cluster of one node, which owns all slots, to clients that speak Redis Cluster; there is DB 0 only.
    cluster_enabled: bool = STORAGE.cluster_enabled => "cluster-enabled", ParamKind::Bool, Start;
    /// Port of a cluster bus that `CLUSTER NODES` shows, as clients expect one; 0 is 10,000 above `port`. There is no bus.
    cluster_port: u16 = 0 => "cluster-port", PORT, Start;
    /// Which address of a node `CLUSTER SLOTS` and redirections name.
    cluster_preferred_endpoint_type: EndpointType = EndpointType::Ip => "cluster-preferred-endpoint-type", ParamKind::Choice(EndpointType::NAMES);
    /// Address of this node for clients; empty is `replica-announce-ip`, or else the address that the client has connected to.
    cluster_announce_ip: String = String::new() => "cluster-announce-ip", ParamKind::Text;
    /// Name of this node's host for clients; empty for none.
    cluster_announce_hostname: Hostname = Hostname::default() => "cluster-announce-hostname", ParamKind::Text;
    /// Port of this node for clients; 0 is `replica-announce-port`, or else `port`.
    cluster_announce_port: u16 = 0 => "cluster-announce-port", PORT;
    /// Port of this node for clients with TLS; 0 is `tls-port`.
    cluster_announce_tls_port: u16 = 0 => "cluster-announce-tls-port", PORT;
    /// Port of a cluster bus that `CLUSTER NODES` shows; 0 is that of `cluster-port`.
    cluster_announce_bus_port: u16 = 0 => "cluster-announce-bus-port", PORT;
    /// Note what the commands on each slot take, for `CLUSTER SLOT-STATS`.
    cluster_slot_stats_enabled: bool = false => "cluster-slot-stats-enabled", ParamKind::Bool;
    /// A cluster has one node and no bus.
    cluster_config_file: String = "nodes.conf".into() => "cluster-config-file", ParamKind::Text, Start, Inert;
    /// A cluster has one node and no bus.
    cluster_node_timeout_ms: u64 = 15_000 => "cluster-node-timeout", LONG, Inert;
    /// A cluster has one node and no bus.
    cluster_replica_validity_factor: u32 = 10 => "cluster-replica-validity-factor" | "cluster-slave-validity-factor", COUNT, Inert;
    /// A cluster has one node and no bus.
    cluster_replica_no_failover: bool = false => "cluster-replica-no-failover" | "cluster-slave-no-failover", ParamKind::Bool, Inert;
    /// A cluster has one node and no bus.
    cluster_migration_barrier: u32 = 1 => "cluster-migration-barrier", COUNT, Inert;
    /// A cluster has one node and no bus.
    cluster_allow_replica_migration: bool = true => "cluster-allow-replica-migration", ParamKind::Bool, Inert;
    /// A cluster has one node and no bus.
    cluster_require_full_coverage: bool = true => "cluster-require-full-coverage", ParamKind::Bool, Inert;
    /// A cluster has one node and no bus.
    cluster_allow_reads_when_down: bool = false => "cluster-allow-reads-when-down", ParamKind::Bool, Inert;
    /// A cluster has one node and no bus.
    cluster_allow_pubsubshard_when_down: bool = true => "cluster-allow-pubsubshard-when-down", ParamKind::Bool, Inert;
    /// A cluster has one node and no bus.
    cluster_link_sendbuf_limit: u64 = 0 => "cluster-link-sendbuf-limit", bytes(0, u64::MAX), Inert;
    /// A cluster has one node and no bus.
    cluster_announce_human_nodename: String = String::new() => "cluster-announce-human-nodename", ParamKind::Text, Inert;
    /// A cluster has one node and no bus.
    cluster_announce_client_ipv4: String = String::new() => "cluster-announce-client-ipv4", ParamKind::Text, Inert;
    /// A cluster has one node and no bus.
    cluster_announce_client_ipv6: String = String::new() => "cluster-announce-client-ipv6", ParamKind::Text, Inert;
    /// A cluster has one node and no bus.
    cluster_announce_client_port: u16 = 0 => "cluster-announce-client-port", PORT, Inert;
    /// A cluster has one node and no bus.
    cluster_announce_client_tls_port: u16 = 0 => "cluster-announce-client-tls-port", PORT, Inert;
    /// A cluster has one node and no bus.
    cluster_blacklist_ttl_s: u64 = 60 => "cluster-blacklist-ttl", LONG, Inert;
    /// A cluster has one node and no bus.
    cluster_compatibility_sample_ratio: u32 = 0 => "cluster-compatibility-sample-ratio", int(0, 100), Inert;
    /// A cluster has one node and no bus.
    cluster_config_save_behavior: &'static str = "sync" => "cluster-config-save-behavior", ParamKind::Choice(&["sync", "best-effort"]), Inert;
    /// A cluster has one node and no bus.
    cluster_databases: u32 = 1 => "cluster-databases", int(1, INT), Start, Inert;
    /// A cluster has one node and no bus.
    cluster_manual_failover_timeout_ms: u64 = 5000 => "cluster-manual-failover-timeout", int(1, INT), Inert;
    /// A cluster has one node and no bus.
    cluster_slot_migration_log_max_len: u64 = 1000 => "cluster-slot-migration-log-max-len", LONG, Inert;
    /// A cluster has one node and no bus.
    slot_migration_max_failover_repl_bytes: i64 = 0 => "slot-migration-max-failover-repl-bytes", int(-1, i64::MAX), Inert;
}
