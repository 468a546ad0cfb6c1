complete -c kedis-server -l load-rdb -d 'fill an empty server with this RDB file of Redis or Valkey, or with this append-only log: its directory, manifest or file' -r -F
complete -c kedis-server -l bind -d 'Addresses to listen on; `*` is every address, one with `-` before it may be unavailable.' -r
complete -c kedis-server -l port -d 'TCP port to listen on; 0 listens on none.' -r
complete -c kedis-server -l unixsocket -d 'Path of a Unix socket to listen on; empty for none.' -r -F
complete -c kedis-server -l unixsocketperm -d 'Permissions of the Unix socket, in octal; 0 leaves them to the umask.' -r
complete -c kedis-server -l tcp-backlog -d 'Length of the queue of connections that wait to be accepted.' -r
complete -c kedis-server -l timeout -d 'Seconds after which an idle client is disconnected; 0 is never.' -r
complete -c kedis-server -l tcp-keepalive -d 'Idle seconds after which TCP keepalive probes are sent; 0 sends none.' -r
complete -c kedis-server -l protected-mode -d 'Without a password, accept only clients on this machine.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l maxclients -d 'Most clients at a time, as far as the limit of open files permits besides the database.' -r
complete -c kedis-server -l bind-source-addr -d 'Local address of outgoing connections; empty leaves it to the system.' -r -F
complete -c kedis-server -l max-new-connections-per-cycle -d 'Connections accepted from one listening socket before others are served.' -r
complete -c kedis-server -l max-new-tls-connections-per-cycle -d 'The same for sockets of TLS. Handshakes are made by IO threads, not where connections are accepted.' -r
complete -c kedis-server -l tls-port -d 'Port to listen on for TLS, at the addresses of `bind`; 0 listens on none.' -r
complete -c kedis-server -l tls-cert-file -d 'File with the server\'s certificate and those of the authorities between, in PEM. A changed file is read by itself (`tls-auto-reload-interval`).' -r -F
complete -c kedis-server -l tls-key-file -d 'File with the private key of that certificate, in PEM.' -r -F
complete -c kedis-server -l tls-key-file-pass -d 'Passphrase of that file, if it is encrypted (PKCS #8).' -r -F
complete -c kedis-server -l tls-client-cert-file -d 'File with the certificate that is shown to masters and targets of MIGRATE; empty for that of `tls-cert-file`.' -r -F
complete -c kedis-server -l tls-client-key-file -d 'File with the private key of that certificate.' -r -F
complete -c kedis-server -l tls-client-key-file-pass -d 'Passphrase of that file.' -r -F
complete -c kedis-server -l tls-ca-cert-file -d 'File with the certificates of the authorities that certify clients, masters and replicas.' -r -F
complete -c kedis-server -l tls-ca-cert-dir -d 'Directory of such files.' -r -f -a "(__fish_complete_directories)"
complete -c kedis-server -l tls-auth-clients -d 'Whether clients must show a certificate of these authorities.' -r -f -a "no\t''
yes\t''
optional\t''"
complete -c kedis-server -l tls-auth-clients-user -d 'The name in a client\'s certificate by which it is logged in as the user of that name: the common name of the subject, or a URI among its alternative names.' -r -f -a "off\t''
CN\t''
URI\t''"
complete -c kedis-server -l tls-auto-reload-interval -d 'Seconds between looks whether one of these files has changed; 0: they are read at the start and by CONFIG SET only.' -r
complete -c kedis-server -l tls-replication -d 'Speak TLS with the master, and with targets of MIGRATE.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l tls-protocols -d 'Versions of TLS, `TLSv1.2` and `TLSv1.3`; empty for both.' -r -F
complete -c kedis-server -l tls-ciphers -d 'Ciphers of TLS 1.2 by OpenSSL\'s names, with colons between, in order of preference; empty for all.' -r -F
complete -c kedis-server -l tls-ciphersuites -d 'Ciphers of TLS 1.3, in the same way.' -r -F
complete -c kedis-server -l tls-prefer-server-ciphers -d 'Choose ciphers in the server\'s order of preference, not in the client\'s.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l tls-session-caching -d 'Keep sessions, so that clients resume them without a whole handshake.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l tls-session-cache-size -d 'Sessions that are kept, at most about a million; 0 is as many.' -r
complete -c kedis-server -l tls-session-cache-timeout -d 'Seconds that a session is kept.' -r
complete -c kedis-server -l daemonize -d 'Detach from the terminal and run in the background.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l pidfile -d 'File that holds the process id while the server runs; empty for none.' -r -F
complete -c kedis-server -l loglevel -d 'How much is logged.' -r -f -a "debug\t''
verbose\t''
notice\t''
warning\t''
nothing\t''"
complete -c kedis-server -l log-levels -d 'Levels of single modules in place of `loglevel`, as in `net debug storage warning`; the names are those of the modules in the code map.' -r
complete -c kedis-server -l log-format -d 'Form of the lines: `text`, which `legacy` is, too; a JSON object each; or `logfmt`, words with names.' -r -f -a "legacy\t''
text\t''
logfmt\t''
json\t''"
complete -c kedis-server -l logfile -d 'Log file; empty logs to standard output. If it is moved away, a new one is created, with the next line or at a SIGHUP.' -r -F
complete -c kedis-server -l databases -d 'Number of databases.' -r
complete -c kedis-server -l io-threads -d 'Threads that serve clients; 0 is one fewer than there are processors, and at least 1.' -r
complete -c kedis-server -l reader-threads -d 'Threads that read from the disk for commands that do not wait themselves: as many reads as go on side by side.' -r
complete -c kedis-server -l shutdown-timeout -d 'Seconds that a shutdown waits for replicas to catch up.' -r
complete -c kedis-server -l shutdown-on-sigint -d 'Options of the shutdown at a SIGINT.' -r -f -a "default\t''
save\t''
nosave\t''
now\t''
force\t''"
complete -c kedis-server -l shutdown-on-sigterm -d 'Options of the shutdown at a SIGTERM.' -r -f -a "default\t''
save\t''
nosave\t''
now\t''
force\t''"
complete -c kedis-server -l enable-debug-command -d 'Which clients may use DEBUG.' -r -f -a "no\t''
yes\t''
local\t''"
complete -c kedis-server -l enable-protected-configs -d 'Which clients may change protected parameters with CONFIG SET.' -r -f -a "no\t''
yes\t''
local\t''"
complete -c kedis-server -l enable-module-command -d 'Which clients may use MODULE LOAD and UNLOAD; no module can be loaded.' -r -f -a "no\t''
yes\t''
local\t''"
complete -c kedis-server -l rename-command -d 'Renames a command, or disables it.' -r
complete -c kedis-server -l crash-log-enabled -d 'Write a stack trace to the log when the server panics.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l requirepass -d 'Password of the default user; empty for none.' -r -F
complete -c kedis-server -l user -d 'A user and what it may do, in the rules of `ACL SETUSER`.' -r
complete -c kedis-server -l aclfile -d 'File of the users, in place of `user` lines; empty for none.' -r -F
complete -c kedis-server -l acllog-max-len -d 'Entries that ACL LOG keeps.' -r
complete -c kedis-server -l acl-pubsub-default -d 'The channels of new users and selectors: all or none.' -r -f -a "allchannels\t''
resetchannels\t''"
complete -c kedis-server -l audit-log -d 'File for lines about refused logins and commands, and about administrative commands; empty for none.' -r -F
complete -c kedis-server -l hide-user-data-from-log -d 'Leave names of keys and channels out of the audit log. The log never holds them, or values.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l dir -d 'Directory that holds the database\'s directory; backups are written here too.' -r -f -a "(__fish_complete_directories)"
complete -c kedis-server -l db-name -d 'Name of the database\'s directory inside `dir`.' -r -F
complete -c kedis-server -l disk-reserve -d 'Disk space that is allocated in advance for deletions and expiry on a full disk; at most a twentieth of the disk. Commands that add data are refused while it cannot be allocated. 0 is none.' -r
complete -c kedis-server -l max-disk -d 'The most space that the database\'s directory may take on the disk, with the binlog and the reserve. Without a `max-disk-policy` commands that add data are refused when there is no more; 0 is no bound.' -r
complete -c kedis-server -l max-disk-policy -d 'Which keys are evicted so that the data keep to `max-disk`.' -r -f -a "volatile-lru\t''
volatile-lfu\t''
volatile-random\t''
volatile-ttl\t''
volatile-lrm\t''
allkeys-lru\t''
allkeys-lfu\t''
allkeys-lrm\t''
allkeys-random\t''
noeviction\t''"
complete -c kedis-server -l appendfsync -d 'When writes are synced to the disk: before the reply, once a second, or when the operating system decides.' -r -f -a "everysec\t''
always\t''
no\t''"
complete -c kedis-server -l dbfilename -d 'Name, inside `dir`, of the copy that SAVE and BGSAVE write.' -r -F
complete -c kedis-server -l string-inline-max -d 'Strings up to this many bytes are stored in one row, longer ones in fragments.' -r
complete -c kedis-server -l value-log-min -d 'Strings of at least this many bytes are written once, to the value log, unless they pack well; 0 is none.' -r
complete -c kedis-server -l value-log-packed-min -d 'Strings that LZ4 makes a quarter shorter are written there from this many bytes on. Tables pack shorter ones better.' -r
complete -c kedis-server -l value-log-segment-size -d 'Size of a file of the value log.' -r
complete -c kedis-server -l packed-max-bytes -d 'Collections up to this many bytes are stored in their key\'s row; 0 is none.' -r
complete -c kedis-server -l packed-max-entries -d 'Collections up to this many elements are stored in their key\'s row; 0 is none.' -r
complete -c kedis-server -l maxmemory -d 'Memory budget of caches, memtables and buffers; 0 takes half of the machine or cgroup.' -r
complete -c kedis-server -l maxmemory-policy -d 'Evicts nothing: data is on disk, where `max-disk-policy` evicts keys. An LFU policy enables OBJECT FREQ.' -r -f -a "volatile-lru\t''
volatile-lfu\t''
volatile-random\t''
volatile-ttl\t''
volatile-lrm\t''
allkeys-lru\t''
allkeys-lfu\t''
allkeys-lrm\t''
allkeys-random\t''
noeviction\t''"
complete -c kedis-server -l maxmemory-clients -d 'Memory of all clients together, beyond which the largest are disconnected; before that, requests and replies wait or are refused. 0 is a quarter of the memory budget, or a gigabyte if that is more; it is never more than the caches can free.' -r
complete -c kedis-server -l client-output-buffer-limit -d 'Limits for the unsent output of a client, by class.' -r
complete -c kedis-server -l client-query-buffer-limit -d 'Limit for the bytes of a client\'s requests that wait or are incomplete, and of its queued commands.' -r
complete -c kedis-server -l proto-max-bulk-len -d 'Longest string in a request or value.' -r
complete -c kedis-server -l tracking-table-max-keys -d 'Keys that the table for client-side caching keeps; 0 is no limit.' -r
complete -c kedis-server -l scan-cursors-max -d 'SCAN cursors that are kept.' -r
complete -c kedis-server -l tick-max-bytes -d 'Bytes of writes that one tick collects before it commits.' -r
complete -c kedis-server -l tick-max-commands -d 'Commands that one tick runs before it commits.' -r
complete -c kedis-server -l tick-max-us -d 'Microseconds that one tick runs commands before it commits.' -r
complete -c kedis-server -l tick-gather-us -d 'Microseconds that a thread waits for further requests when many clients keep it busy with few at a time, which saves processor time; 0 never waits.' -r
complete -c kedis-server -l expire-period-ms -d 'Milliseconds between two passes of the expire thread.' -r
complete -c kedis-server -l expire-slice-keys -d 'Keys that the expire thread deletes in one commit; of fields of hashes four times as many.' -r
complete -c kedis-server -l reclaim-rows-per-second -d 'Rows per second that the reclaim of deleted collections removes one by one; 0 is no limit.' -r
complete -c kedis-server -l import-mode -d 'No key expires but by the commands of connections that bring the data of another server (CLIENT IMPORT-SOURCE), to which expired keys are visible; to others they are not.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l slowlog-log-slower-than -d 'Microseconds beyond which a command enters the slow log; 0 logs all, -1 none.' -r
complete -c kedis-server -l slowlog-max-len -d 'Entries that the slow log keeps.' -r
complete -c kedis-server -l slowlog-entry-max-argc -d 'Arguments of a command that an entry of the slow log, or of the logs of COMMANDLOG, keeps.' -r
complete -c kedis-server -l slowlog-entry-max-string-len -d 'Bytes of an argument that such an entry keeps.' -r
complete -c kedis-server -l commandlog-request-larger-than -d 'Bytes from which a request enters the log of large requests (COMMANDLOG); -1 logs none.' -r
complete -c kedis-server -l commandlog-large-request-max-len -d 'Entries that the log of large requests keeps.' -r
complete -c kedis-server -l commandlog-reply-larger-than -d 'Bytes from which a reply enters the log of large replies (COMMANDLOG); -1 logs none.' -r
complete -c kedis-server -l commandlog-large-reply-max-len -d 'Entries that the log of large replies keeps.' -r
complete -c kedis-server -l latency-monitor-threshold -d 'Milliseconds beyond which the latency monitor keeps an event; 0 keeps none.' -r
complete -c kedis-server -l latency-tracking -d 'Keep a histogram of each command\'s time.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l latency-tracking-info-percentiles -d 'Percentiles that INFO latencystats shows.' -r
complete -c kedis-server -l notify-keyspace-events -d 'Keyspace events that are published: letters of `Ag$lshzxeKEtmdn`.' -r -F
complete -c kedis-server -l metrics-port -d 'Port on which Prometheus and health checks are answered over HTTP; 0 listens on none.' -r
complete -c kedis-server -l metrics-bind -d 'Addresses to listen on for them, as with `bind`. Whoever reaches them reads the figures without a password.' -r
complete -c kedis-server -l metrics-unixsocket -d 'Path of a Unix socket to listen on for them; empty for none.' -r -F
complete -c kedis-server -l metrics-unixsocketperm -d 'Permissions of that socket, in octal; 0 leaves them to the umask.' -r
complete -c kedis-server -l hash-max-listpack-entries -d 'Most fields of a hash that OBJECT ENCODING reports as listpack.' -r
complete -c kedis-server -l hash-max-listpack-value -d 'Longest field or value, in bytes, of a hash that OBJECT ENCODING reports as listpack.' -r
complete -c kedis-server -l list-max-listpack-size -d 'Elements of one listpack of a list, or -1 to -5 for 4 to 64 KiB.' -r
complete -c kedis-server -l set-max-intset-entries -d 'Most members of a set of integers that OBJECT ENCODING reports as intset.' -r
complete -c kedis-server -l set-max-listpack-entries -d 'Most members of a set that OBJECT ENCODING reports as listpack.' -r
complete -c kedis-server -l set-max-listpack-value -d 'Longest member, in bytes, of a set that OBJECT ENCODING reports as listpack.' -r
complete -c kedis-server -l zset-max-listpack-entries -d 'Most members of a sorted set that OBJECT ENCODING reports as listpack.' -r
complete -c kedis-server -l zset-max-listpack-value -d 'Longest member, in bytes, of a sorted set that OBJECT ENCODING reports as listpack.' -r
complete -c kedis-server -l hll-sparse-max-bytes -d 'Bytes up to which a HyperLogLog stays sparse.' -r
complete -c kedis-server -l stream-node-max-entries -d 'Entries of a stream\'s node in Redis; approximate trimming works in such nodes.' -r
complete -c kedis-server -l stream-idmp-duration -d 'Seconds for which a new stream remembers idempotent ids (XADD IDMP).' -r
complete -c kedis-server -l stream-idmp-maxsize -d 'Idempotent ids that a new stream remembers of each producer.' -r
complete -c kedis-server -l bf-error-rate -d 'Error rate of a new Bloom filter; at most 0.25.' -r
complete -c kedis-server -l bf-initial-size -d 'Items that a new Bloom filter has room for.' -r
complete -c kedis-server -l bf-expansion-factor -d 'How much larger each further part of a Bloom filter is than the one before; 0 is a filter of one part.' -r
complete -c kedis-server -l cf-bucket-size -d 'Slots of a bucket of a new Cuckoo filter.' -r
complete -c kedis-server -l cf-initial-size -d 'Items that a new Cuckoo filter has room for.' -r
complete -c kedis-server -l cf-max-iterations -d 'Fingerprints that a new Cuckoo filter moves at most to make room for one.' -r
complete -c kedis-server -l cf-expansion-factor -d 'How much larger each further table of a Cuckoo filter is than the one before; 0 is a filter of one table.' -r
complete -c kedis-server -l cf-max-expansions -d 'Tables of a Cuckoo filter beyond which it takes no more items.' -r
complete -c kedis-server -l busy-reply-threshold -d 'Milliseconds after which a script counts as slow and other clients get the error BUSY.' -r
complete -c kedis-server -l busy-reply-scope -d 'Which commands get the error BUSY: those that need keys of the slow script, or all, as in Redis.' -r -f -a "keys\t''
all\t''"
complete -c kedis-server -l replicaof -d 'The master of this server, which is then a replica.' -r
complete -c kedis-server -l masteruser -d 'User name with which a replica authenticates to its master.' -r -F
complete -c kedis-server -l masterauth -d 'Password with which a replica authenticates to its master.' -r -F
complete -c kedis-server -l replica-read-only -d 'A replica refuses writes of clients.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l replica-serve-stale-data -d 'A replica answers reads while the link to its master is down.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l repl-timeout -d 'Seconds of silence after which either side drops the link.' -r
complete -c kedis-server -l repl-ping-replica-period -d 'Seconds between two keepalive messages to a replica.' -r
complete -c kedis-server -l repl-disable-tcp-nodelay -d 'Let TCP delay small packets to replicas.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l replica-priority -d 'Rank for failover, lower first; 0 is never promoted.' -r
complete -c kedis-server -l replica-announced -d 'Whether Sentinel lists this replica.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l replica-announce-ip -d 'Address that a replica announces to its master; empty leaves it to the connection.' -r -F
complete -c kedis-server -l replica-announce-port -d 'Port that a replica announces to its master; 0 announces `port`.' -r
complete -c kedis-server -l min-replicas-to-write -d 'Fewest good replicas for which writes are accepted; 0 is none.' -r
complete -c kedis-server -l min-replicas-max-lag -d 'Seconds since its last acknowledgement up to which a replica is good, for `min-replicas-to-write`.' -r
complete -c kedis-server -l binlog-enabled -d 'Keep the binlog that replicas follow; a server without it cannot be a master.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l binlog-capacity -d 'Entries that the binlog keeps.' -r
complete -c kedis-server -l binlog-max-bytes -d 'Bytes that the binlog keeps, but at most an eighth of `max-disk`; 0 is no limit.' -r
complete -c kedis-server -l binlog-max-age -d 'Seconds for which the binlog keeps entries; 0 is no limit.' -r
complete -c kedis-server -l binlog-hold-max-bytes -d 'Bytes up to which the binlog is kept for lagging replicas, but at most a quarter of `max-disk`; 0 is no limit.' -r
complete -c kedis-server -l rocksdb.block-size -d 'Size of the blocks of RocksDB\'s files, before compression.' -r
complete -c kedis-server -l rocksdb.memtable -d 'What rows stand in until they are written to files: Kedis\' own B-tree, or RocksDB\'s skip list.' -r -f -a "btree\t''
skiplist\t''"
complete -c kedis-server -l rocksdb.write-buffer-size -d 'Size of a memtable; at most half of the memory for all memtables.' -r
complete -c kedis-server -l rocksdb.max-write-buffer-number -d 'Memtables of a column family before writes wait.' -r
complete -c kedis-server -l rocksdb.target-file-size -d 'Size of a file of level 1.' -r
complete -c kedis-server -l rocksdb.min-blob-size -d 'Length from which values of rows are stored in blob files; 0 is never.' -r
complete -c kedis-server -l rocksdb.max-total-wal-size -d 'Size of the write-ahead log beyond which the oldest memtables are flushed; 0 leaves it to RocksDB.' -r
complete -c kedis-server -l rocksdb.max-background-jobs -d 'Threads for flushes and compactions; 0 takes one per processor, at least two.' -r
complete -c kedis-server -l rocksdb.background-nice -d 'Nice value of the threads for flushes and compactions.' -r
complete -c kedis-server -l rocksdb.compression -d 'Compression of the upper levels.' -r -f -a "none\t''
lz4\t''
zstd\t''"
complete -c kedis-server -l rocksdb.bottommost-compression -d 'Compression of the last level.' -r -f -a "none\t''
lz4\t''
zstd\t''"
complete -c kedis-server -l rocksdb.rate-limit -d 'Bytes per second that flushes and compactions may write; 0 is no limit.' -r
complete -c kedis-server -l rocksdb.max-open-files -d 'Table files kept open, as far as the limit of open files permits; -1 is as many as it permits.' -r
complete -c kedis-server -l row-cache-share -d 'Percent of the memory budget for the row cache: copies of recently used keys, fields and members.' -r
complete -c kedis-server -l rocksdb.block-cache-share -d 'Percent of the rest of the memory budget for the block cache, which memtables share.' -r
complete -c kedis-server -l rocksdb.bloom-bits -d 'Bits per key of the Bloom filters; 0 is no filters.' -r
complete -c kedis-server -l rocksdb.bytes-per-sync -d 'Bytes after which the system is asked to write back what RocksDB has written; 0 is never.' -r
complete -c kedis-server -l rocksdb.direct-reads -d 'Read tables past the operating system\'s page cache; only the block cache keeps them in memory then.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l rocksdb.statistics -d 'Collect RocksDB\'s statistics, for INFO.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l rdbcompression -d 'Compress strings in RDB files and DUMP payloads.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l aof-load-truncated -d 'Whether `--load-rdb` accepts an append-only file whose last command is incomplete, and skips that.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l lfu-log-factor -d 'How slowly the frequency that OBJECT FREQ shows rises with use.' -r
complete -c kedis-server -l lfu-decay-time -d 'Minutes without use after which that frequency falls; 0 is never.' -r
complete -c kedis-server -l supervised -d 'The service manager that is notified when the server is ready, reloads and stops: systemd through `NOTIFY_SOCKET` (`Type=notify` or `notify-reload`), upstart through a stop (`expect stop`), or, with `auto`, the one that is detected. A server that one of them has started stays in the foreground.' -r -f -a "upstart\t''
systemd\t''
auto\t''
no\t''"
complete -c kedis-server -l cluster-enabled -d 'Serve as a whole cluster of one node, which owns all slots, to clients that speak Redis Cluster; there is DB 0 only.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -l cluster-port -d 'Port of a cluster bus that `CLUSTER NODES` shows, as clients expect one; 0 is 10,000 above `port`. There is no bus.' -r
complete -c kedis-server -l cluster-preferred-endpoint-type -d 'Which address of a node `CLUSTER SLOTS` and redirections name.' -r -f -a "ip\t''
hostname\t''
unknown-endpoint\t''"
complete -c kedis-server -l cluster-announce-ip -d 'Address of this node for clients; empty is `replica-announce-ip`, or else the address that the client has connected to.' -r -F
complete -c kedis-server -l cluster-announce-hostname -d 'Name of this node\'s host for clients; empty for none.' -r -F
complete -c kedis-server -l cluster-announce-port -d 'Port of this node for clients; 0 is `replica-announce-port`, or else `port`.' -r
complete -c kedis-server -l cluster-announce-tls-port -d 'Port of this node for clients with TLS; 0 is `tls-port`.' -r
complete -c kedis-server -l cluster-announce-bus-port -d 'Port of a cluster bus that `CLUSTER NODES` shows; 0 is that of `cluster-port`.' -r
complete -c kedis-server -l cluster-slot-stats-enabled -d 'Note what the commands on each slot take, for `CLUSTER SLOT-STATS`.' -r -f -a "yes\t''
no\t''"
complete -c kedis-server -s h -l help -d 'this text'
complete -c kedis-server -s v -l version -d 'the version'
complete -c kedis-server -l accept-data-loss -d 'start although acknowledged writes are lost'
complete -c kedis-server -l repair -d 'keep what can be read of a damaged database, and exit'
complete -c kedis-server -l check-config -d 'say what is wrong with the configuration, and exit'
complete -c kedis-server -l print-config -d 'print the configuration as a file that explains every parameter, and exit'
