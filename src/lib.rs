//! Kedis: a persistent key-value server that speaks the Redis protocol and keeps its data in
//! RocksDB.
//!
//! The [manual] is for people who run the server. This page is for people who read or
//! change its code: the modules, the invariants, the threads, the locks, the way of a SET
//! through the code, and a glossary. Each module describes its own part at its head.
//!
//! # Code map
//!
//! | module | what it is |
//! |---|---|
//! | [`base`] | numbers, globs, hashes: pure, and knows neither Redis nor RocksDB |
//! | [`sys`] | clocks, files, names of hosts, huge pages: what is asked of the operating system |
//! | [`tls`] | sockets in TLS, by rustls |
//! | [`resp`] | request parser, reply writer and decoder |
//! | [`lua`] | the interpreter of scripts, its sandbox and libraries |
//! | [`encoding`] | the disk format as pure functions |
//! | [`rdb`] | Redis' RDB values and files, both ways |
//! | [`storage`] | the only place that knows RocksDB: transactions, locks, commits, binlog |
//! | [`types`] | string, hash, list, set, zset, stream, JSON: operations on a transaction |
//! | [`state`] | what threads share: configuration, clients, counters |
//! | [`commands`] | one file per family, each ends with its command table |
//! | [`exec`] | from a request to a reply: checks, locks, handler, commit |
//! | [`net`] | accept loop, IO threads, connections |
//! | [`jobs`] | background threads; loading files of Redis |
//! | [`replication`] | one thread per replica that is fed, one that follows a master |
//! | [`metrics`] | figures for Prometheus and health checks, over HTTP |
//! | [`migrate`] | what the tools do that move data between servers |
//! | [`top`] | what the tool does that shows big and hot keys |
//! | [`server`] | start and stop |
//! | [`manual`] | the manual, no code |
//!
//! A module names only modules below it: net, jobs, replication, metrics → exec → commands → types,
//! lua, state → storage, rdb → encoding, resp → tls, sys → base. `migrate` talks to servers from
//! outside and names only commands, rdb, encoding, resp, tls, sys, base; `top` uses its connections. A test holds the direction
//! (`tests/it/tidy.rs`), and that `rocksdb::` is named in `storage` alone.
//!
#![doc = include_str!("../images/architecture.svg")]
//!
//! # Invariants
//!
//! Comments and tests cite these numbers.
//!
//! | | holds always | kept by |
//! |---|---|---|
//! | I1 | No client, replica or tool is told anything that a crash of the process could take back; with `appendfsync always`, a crash of the machine. This includes replies to reads of what another thread has just written. | a reply is sent after the write-ahead log has its commit; with `appendfsync always` it waits for [`storage::Engine::make_durable`] |
//! | I2 | Data, expiry index, key counts and binlog row of a commit are one RocksDB batch. `EXEC` and a script are one commit. | [`storage::Txn::commit`] |
//! | I3 | Binlog positions follow one another without holes, in the order of the commits. A row holds effects with absolute values, which mean the same on every replica at any time. | the commit lock; [`storage::Txn::effect`] |
//! | I4 | A replica removes nothing that a client can see by its own clock, neither a key nor a field. Expiry and reclaim of what is visible come from the master. | [`replication`], `exec/apply.rs` |
//! | I5 | A collection's count is the number of its elements, and `DBSIZE` the number of keys, also after `kill -9`, without a scan. | counts are written by the batch that changes what they count |
//! | I6 | Deleting, overwriting, expiring or renaming a key takes constant time for the command, whatever the key holds. | element rows stand under a collection id that is never used again; the expire thread reclaims them |
//! | I7 | Bytes from outside (requests, replies of peers, files, payloads, values that clients wrote) lead to an error at worst: no panic, no unbounded memory. | parsers grow with received bytes, never with announced lengths |
//! | I8 | Clients, `EXEC`, scripts, expiry, `RESTORE`, `MIGRATE` and the rows of a master write through the same transaction and commit, so WATCH, blocking commands, caches and replicas learn of every change. | [`storage::Txn`] |
//! | I9 | No IO thread waits for the disk: neither for a sync nor for a read. | parked ticks and [parked commands](#reads-of-the-disk) |
//!
//! # Threads
//!
#![doc = include_str!("../images/thread_model.svg")]
//!
//! | thread | number | what it does |
//! |---|---|---|
//! | main | 1 | accepts connections and deals them out to IO threads in turn; signals; once a second, figures and limits |
//! | `io-N` | `io-threads`; by default one fewer than processors, at least 1 | owns connections for their life: reads requests, runs them, commits, replies |
//! | `worker-N` | `io-threads`; by default one per processor | slow-command worker: scripts that take long, reads of thousands of rows, requests and transactions of thousands of words |
//! | `worker-turns` | 1 | slow-command worker that gives each request 100 ms, and no script any |
//! | `reader-N` | `reader-threads` (64) | reads from the disk for commands that must not wait for it |
//! | `migrate-N` | 4 | `MIGRATE` |
//! | `expire` | 1 | deletes keys and fields of hashes whose time is over; reclaims rows of deleted collections |
//! | `evict` | 1 | with `max-disk`: removes keys that there is no space for, and says when writers wait |
//! | `binlog-trim` | 1 | keeps the binlog within its bounds |
//! | `tidy` | 1 | has memtables and tables with many tombstones compacted |
//! | `value-log` | 1 | moves what lives of old segments of the value log, and removes their files |
//! | `fsync` | 1 | syncs the write-ahead log for IO threads (`appendfsync always`) |
//! | `everysec` | 1 | syncs it once a second (`appendfsync everysec`) |
//! | `disk` | 1 | watches free space and the reserve; takes writes again after errors |
//! | `memory` | 1 | keeps the process within `maxmemory` |
//! | `chores` | 1 | frees large structures, and takes clients that are gone out of large tables |
//! | `metrics` | 1, with `metrics-port` or `metrics-unixsocket` | answers Prometheus and health checks |
//! | `audit` | 1, with `audit-log` | writes the lines of the audit log |
//! | `link` | 1 | follows the master, if there is one |
//! | `feeder-N` | one per replica | sends the data set and the binlog to one replica |
//! | `bigkeys` | 1, after `BIGKEYS START` | reads all keys from a snapshot |
//! | `resolver` | as needed | looks up names of hosts |
//! | `load` | 1, at the start | `--load-rdb` |
//! | `bgsave`, `compact` | as needed | `BGSAVE`, `BGREWRITEAOF` |
//! | `signals` | 1 | turns signals into a wake-up of the main thread |
//! | RocksDB's | `rocksdb.max-background-jobs` | flushes and compactions, at a lower priority (`rocksdb.background-nice`) |
//!
//! IO threads and workers each have one [`exec::Executor`] with one
//! [`storage::Txn`] for life. What an IO thread runs between two polls of its sockets is a
//! *tick*: one pending batch, one commit, then the replies. A request that takes too long for
//! an IO thread (5 ms of a script, 4,096 rows or as many KiB of a read) is taken back and runs
//! on a worker; what only reads runs there from a snapshot, without the locks of its keys.
//!
//! An IO thread reads sixteen connections before the first of them has its turn, and looks eight
//! requests of a pipeline ahead, so that the processor fetches from memory what they will look up
//! (`net/look_ahead.rs`). A tick costs about 4 µs besides its requests. A thread that many clients keep
//! busy with two to sixteen requests in a tick that writes waits up to 15 µs (`tick-gather-us`) for more
//! of them before it polls (`net/gather.rs`). Threads reach each other through [`state::Mailbox`]es, which
//! are bounded channels with a waker.
//!
//! # Reads of the disk
//!
//! A command on an IO thread reads what the row cache, the block cache and the page cache of the
//! operating system hold. If it needs anything else it is taken back: the pending batch returns to
//! the savepoint before it, and no lock is held for it. Its connection is parked until reader
//! threads have read what it lacks ([`storage::engine::cold_reads`]), together with the rows of its
//! other keys, of the members that it names and of the keys of up to 128 requests behind it. Then it
//! runs again from its start, under its locks. A transaction and a script are taken back as a whole.
//! A command that still lacks rows after three rounds goes to a slow-command worker, which may wait.
//! So does a transaction with a command that cannot be taken back, such as CONFIG SET, once the rows
//! of its keys are in memory, and a command that reads without a look-up of rows, such as SAVE. IO
//! threads do not wait for the keys of workers. The expire thread and the thread of a link to a
//! master use the same reads between two attempts, so that they do not wait while they hold keys; in
//! their last attempt, and always for MIGRATE, they hold keys like workers.
//!
//! # Order of locks
//!
//! A thread takes a lock only if every lock that it holds stands above it in these tables, and
//! only under those that the last column names before its first full stop: none of them, some
//! or all. A row with several locks stands for one of them at a time. [`sys::lock_order`] has
//! the same tables; it checks each lock that is taken where debug assertions are on. Locks that
//! no table names are leaves: their holder takes no other lock and does not wait.
//!
//! | | lock | guards | taken under |
//! |---|---|---|---|
//! | 1 | gate ([`storage::engine::gate`]): shared by a turn that reads or writes keys, exclusive for commands that concern whole DBs | access to keys as such | nothing. A thread commits and lets go of everything before it waits here |
//! | 2 | key stripes ([`storage::engine::locks`]): 131,072 words, found by the hash of a key; and sets of very many keys, which workers lock | the keys' rows until the commit | 1. A thread waits for a stripe only while all stripes that it holds have lower numbers, and only while it collects those of one command; it commits before that. A shared stripe is held for one reading command, and its holder waits for none. A set is locked while its owner holds no stripe, and nobody waits for it who holds any |
//! | 3 | `Replication::desired` | which master to follow | 1, 2 |
//! | 4 | `SharedConfig::changing` | one change of the configuration at a time | 1, 2. `CONFIG SET` holds it while the main thread binds other addresses, and while the log is synced |
//! | 5 | `Binlog::trim` | the front of the binlog | 1. That is the installation of a data set |
//! | 6 | `Durability::flush` | one sync of the write-ahead log at a time | 1. That is before files of a cleared DB are dropped |
//! | 7 | commit lock (`Engine::commit`) | the next binlog position, the counts, the order of batches | 1 to 6. The holder writes one batch to RocksDB |
//! | 8 | `Engine::files_in_use` | whether files may be dropped | 1. Held while the log is synced before files of a cleared DB are dropped |
//! | 9 | `Engine::unstalled` | which DBs have no write stalls | nothing. The disk thread alone takes it |
//! | 10 | list of tables that are put aside (`storage::rot`) | which tables compactions leave alone | 1, 2. Held while RocksDB runs a compaction that Kedis has started; RocksDB's own threads only try it |
//! | 11 | `Families::keyspaces` | which column family is which DB | 1, 2, 4, 5, 7, 9, 10 |
//! | 12 | `Families::new` | numbers of column families | 1, 2, 11 |
//! | 13 | list of collections that are written before their commit (`Ahead`) | what reclaim must leave alone | 1, 2 |
//! | 14 | `ValueLog::syncing` | one sync of the value log at a time | 1 to 8. Each sync of the write-ahead log begins with it |
//! | 15 | `ValueLog::tail` | where the next record goes | 1, 2, 5, 7. The holder appends it to a file, or ends a file where a data set is installed |
//! | 16 | `ValueLog::listed` | which segments the file `VALUE-LOG` lists | 1. The holder writes that file |
//! | 17 | list of [`storage::engine::listeners`] | the listeners for changes of keys | 1, 2 |
//! | 18 | map of rank indexes | which sorted sets have an index | 1, 2 |
//! | 19 | a rank index | how many rows stand in each stretch of a sorted set | 1, 2, 18 |
//! | 20 | sets of the row cache | copies of rows | 1, 2, 13, 17, 19. One that is divided is held with the one that gets a half, which stands on a later page |
//! | 21 | `Lineage`'s history, watchers and holds of the binlog, `Durability::synced`, the engine's health, the reservation for clients in the block cache | a few words each | any of the above |
//! | 22 | `Disk::turn` and the last failure, marks of the write-ahead log, list of unreadable tables | the reserve, how far files are written | any of the above. RocksDB calls back into them under its own mutex, so their holder does not call RocksDB |
//!
//! And in [`state`]:
//!
//! | | lock | guards | taken under |
//! |---|---|---|---|
//! | 23 | `Workers::done` | replies of slow-command workers | nothing. Held while the worker sends what others hear of the request |
//! | 24 | shards of `Watchers` | clients that watch a key | 1, 2, 17 |
//! | 25 | `PubSub::tables` | subscriptions | 1, 2, 23 |
//! | 26 | parts of `Tracking`, and its prefixes | clients that have read a key | 1, 2, 23 |
//! | 27 | `Replication::waits` | clients in WAIT and WAITAOF | 1, 2 |
//! | 28 | phase of a waiter | how a client's wait has ended | 1, 2, 23, 27 |
//! | 29 | shards of `Waiters`, by key, by client and by thread | clients that wait for a key | 1, 2, 23, 27 |
//! | 30 | `Migrations::held` | keys that MIGRATE moves | 1, 2 |
//! | 31 | `Workers::all` | the workers | 1, 2 |
//! | 32 | `Worker::now` | what a worker runs now | 1, 2, 19, 31 |
//! | 33 | `SharedConfig::current` | the configuration in force | 1, 2, 4, 23, 25 |
//! | 34 | queue of a mailbox | what waits for a thread's clients | 1, 2, 23, 25 |
//! | 35 | list of replicas | the replicas that are fed | 1, 2, 3, 23, 25 |
//! | 36 | messages of a replica | messages of channels that wait for it | 1, 2, 23, 25, 35 |
//! | 37 | socket of the link | the connection to the master | 1, 2, 3 |
//! | 38 | table of clients | the clients by their numbers | 1, 2, 19, 23, 25, 26 |
//!
//! # The life of a SET
//!
//! 1. [`net::IoThread`] polls; a [`net::connection`] reads what its socket has into its buffer.
//!    [`resp::Parser`] finds the arguments there without a copy. While earlier requests run, the
//!    processor prefetches the places of the keys of later ones ([`exec::Executor::prefetch_place`]).
//! 2. [`exec::Executor::run`] looks the name up in the [registry](mod@commands::table::registry) and checks arity,
//!    password, role, disk and memory. Inside MULTI the request is queued, and in a
//!    pause, or while MIGRATE moves its key, it is tried again later.
//! 3. The row of SET in [`commands`]' table of strings says where the key is. The executor enters
//!    the gate ([`storage::Txn::begin`]), once per tick, and locks the key ([`storage::Txn::lock`]).
//!    If another thread holds the stripe, the pending batch is committed before the wait.
//! 4. A savepoint ([`storage::Txn::savepoint`]), then the handler: it parses the options and calls
//!    [`types::string::set_over`], which looks the old row up (pending batch, row cache, RocksDB) and
//!    writes the new one to the pending batch ([`storage::Txn::put_key`]: row, expiry index,
//!    counts, reclaim of what the key held). It states its effect for the binlog if the request
//!    depends on time ([`storage::Txn::effect`]: `EX 10` becomes `PXAT`). An error rolls back to
//!    the savepoint.
//! 5. [`storage::Txn::finish_command`] adds the request, or the stated effects, to the binlog row.
//!    Clients that watch the key are marked; clients that wait for it are served now, in the same tick.
//!    The reply stands in the connection's output and is not sent.
//! 6. The tick ends when the sockets are read or [`exec::Executor::is_full`]:
//!    [`exec::Executor::end_tick`] calls [`storage::Txn::commit`]. Under the commit lock the binlog
//!    row gets its position, counts and state row join the batch, and RocksDB writes it: to the
//!    write-ahead log first, then to the memtable. The row cache is brought up to date, and the key
//!    is let go.
//! 7. **This is where a SET becomes durable** ([`storage::engine::durability`]):
//!    - for a crash of the process, when RocksDB's write returns: the operating system has the
//!      write-ahead log;
//!    - for a crash of the machine with `appendfsync always`, when a sync passes the commit
//!      ([`storage::Engine::make_durable`]). Until then the tick is [parked](exec::Parked), and
//!      the thread serves other clients;
//!    - with `everysec`, within about a second, by the thread of that name
//!      ([`storage::Engine::sync_wal`]); with `no`, when the operating system writes it out.
//! 8. The replies go out; invalidations, messages and replies to clients that waited go to the
//!    mailboxes of their threads; feeders wake and send the binlog row to replicas.
//!
//! What a handler may not do: take a lock, write the binlog, name `rocksdb::`, sleep or wait for a
//! peer. The type of its [context](commands) decides what it can reach.
//!
//! # Rows
//!
//! Each DB is a column family. A key is one *meta row*, which holds small values; a larger
//! collection has one row for each element, under a collection id that is never used twice.
//! Deleting or renaming a key touches the meta row alone. [`encoding`] draws all rows.
//!
//! # Memory and disk
//!
//! The memtables of DBs are Kedis' own: RocksDB's would make a search for the place of a row
//! wait for memory that no cache of the processor holds. Rows stand in segments of 32,768 or
//! more rows (the first one is small), each with a B-tree; a Bloom filter per segment says
//! whether a look-up must search it. Segments are merged when the memtable is written out, so
//! a memtable can be large, and what is written again and again goes to a file once.
//! The row cache holds copies of rows that were used lately, and of the first rows of ranges
//! that were read lately (range cache). [`state::eviction`] lends memory to requests and
//! replies; the [manual's page](manual::memory) says how the budget is divided.
//!
//! # Glossary
//!
//! The [manual's glossary](manual::glossary) has the words that users meet. These are the words
//! of the code.
//!
//! | word | meaning |
//! |---|---|
//! | effect | a command with absolute values, as the binlog holds it |
//! | executor | runs the commands of one thread |
//! | handler | the function of a command; its table row declares everything else |
//! | fair queue | requests that a slow-command worker turned away, which go before its next one |
//! | keyspace | a DB's column family with its counts |
//! | meta row | the row that says that a key exists, its type, expiry and small value |
//! | overlay, pending batch | rows that a tick has written and not yet committed |
//! | owner | the holder of a stripe: one number per transaction. A *long* owner may hold it for seconds |
//! | packed | a small collection inside its meta row |
//! | parked | a tick that waits for a sync, or a command that waits for reads; its thread serves other clients |
//! | range cache | copies of rows at which range reads began |
//! | rank index | rows per stretch of a sorted set |
//! | read budget | how many rows a command may read on an IO thread |
//! | reclaim | removal of rows of dead collections |
//! | row cache | copies of rows used lately |
//! | slow-command worker | a thread for what takes long |
//! | staged data set | what a full sync has brought and not yet installed |
//! | stretch | consecutive rows that a rank index counts together |
//! | stripe | one of the key locks |
//! | system rows | the server's own rows, in the column family `default` |
//! | tick | what an IO thread runs between two polls: one commit |
//! | tombstone | what a deletion leaves until compaction |
//! | turn | what a transaction does from its begin to its commit |
//! | unit | several commands as one: EXEC, a script |
//! | upstream | the Redis master that is followed, and the offset in its stream |

pub mod base;
pub mod commands;
pub mod encoding;
pub mod exec;
pub mod jobs;
pub mod lua;
pub mod manual;
pub mod metrics;
pub mod migrate;
pub mod net;
pub mod rdb;
pub mod replication;
pub mod resp;
pub mod server;
pub mod state;
pub mod storage;
pub mod sys;
pub mod tls;
pub mod top;
pub mod types;
