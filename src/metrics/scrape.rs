//! What several metrics need, read once for a scrape.

use super::threads::Threads;
use crate::base::time::UnixMs;
use crate::state::clients::ClientFlags;
use crate::state::config::Config;
use crate::state::memory::Figures;
use crate::state::replication::Replica;
use crate::state::stats::Stats;
use crate::state::{ClientInfo, Server, workers};
use crate::storage::DbIndex;
use crate::storage::Engine;
use crate::storage::engine::Keyspace;
use crate::storage::engine::binlog::BinlogRange;
use crate::storage::engine::disk::DiskFigures;
use crate::storage::engine::figures::{Blocks, Tables, Work};
use crate::storage::engine::readers::ReaderFigures;
use crate::sys::clock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sums over all clients.
#[derive(Debug, Default)]
pub(super) struct ClientSums {
    pub(super) clients: u64,
    pub(super) blocked: u64,
    pub(super) pubsub: u64,
    /// Bytes of the buffers of clients, and of replicas.
    pub(super) buffer_bytes: u64,
    pub(super) replica_buffer_bytes: u64,
    /// The largest buffers.
    pub(super) largest_input: u64,
    pub(super) largest_output: u64,
}

impl ClientSums {
    fn of(server: &Server) -> ClientSums {
        let mut sums = ClientSums::default();
        server.clients.for_each(|client| sums.add(client));
        sums
    }

    fn add(&mut self, client: &ClientInfo) {
        let flags = client.flags();
        let input = client.query_capacity.load(Ordering::Relaxed) as u64;
        let output = client.output_capacity.load(Ordering::Relaxed) as u64;
        let is_replica = flags.contains(ClientFlags::REPLICA);
        self.clients += u64::from(!is_replica && !flags.contains(ClientFlags::MASTER));
        self.blocked += u64::from(flags.contains(ClientFlags::BLOCKED));
        self.pubsub += u64::from(flags.contains(ClientFlags::PUBSUB));
        match is_replica {
            true => self.replica_buffer_bytes += input + output,
            false => self.buffer_bytes += input + output,
        }
        self.largest_input = self.largest_input.max(input);
        self.largest_output = self.largest_output.max(output);
    }
}

/// The figures of one scrape.
pub(super) struct Scrape<'a> {
    pub(super) server: &'a Server,
    pub(super) stats: &'a Stats,
    pub(super) engine: &'a Engine,
    pub(super) config: Arc<Config>,
    pub(super) now_ms: UnixMs,
    pub(super) memory: Figures,
    pub(super) disk: DiskFigures,
    pub(super) binlog: BinlogRange,
    pub(super) tables: Tables,
    pub(super) work: Work,
    pub(super) blocks: Blocks,
    pub(super) readers: ReaderFigures,
    pub(super) row_reads: (u64, u64),
    pub(super) table_bytes_written: (u64, u64),
    pub(super) cache: (u64, u64),
    pub(super) memtable_bytes: u64,
    pub(super) keyspaces: Vec<(DbIndex, Arc<Keyspace>)>,
    pub(super) clients: ClientSums,
    pub(super) workers: workers::Figures,
    pub(super) replicas: Vec<Arc<Replica>>,
    /// Processor times in nanoseconds, by thread.
    pub(super) threads: BTreeMap<String, u64>,
}

impl Scrape<'_> {
    pub(super) fn of<'a>(server: &'a Server, threads: &mut Threads) -> Scrape<'a> {
        let engine = &*server.engine;
        Scrape {
            server,
            stats: &server.stats,
            engine,
            config: server.config.load(),
            now_ms: clock::unix_ms(),
            memory: server.memory.last(),
            disk: engine.disk.figures(),
            binlog: engine.binlog.range(),
            tables: engine.tables(),
            work: engine.background_work(),
            blocks: engine.block_reads(),
            readers: engine.reader_figures(),
            row_reads: engine.row_reads(),
            table_bytes_written: engine.table_bytes_written(),
            cache: engine.cache_usage(),
            memtable_bytes: engine.memtable_bytes(),
            keyspaces: engine.all_keyspaces(),
            clients: ClientSums::of(server),
            workers: server.workers.figures(),
            replicas: server.replication.replicas(),
            threads: threads.update(),
        }
    }
}
