//! INFO sections about the process and its clients.

use super::{KEDIS_VERSION, REDIS_VERSION, Text, human_bytes};
use crate::base::time::UnixMs;
use crate::state::clients::ClientFlags;
use crate::state::config::Config;
use crate::state::tls::InUse;
use crate::state::{Server, memory, process};
use crate::sys::clock;
use crate::sys::supervisor::Supervisor;
use std::sync::atomic::Ordering;

/// Width of Redis' LRU clock, which counts seconds, in bits.
const LRU_CLOCK_BITS: u32 = 24;

/// What clients are told of how this server runs.
pub(in crate::commands) fn mode(config: &Config) -> &'static str {
    match config.cluster_enabled {
        true => "cluster",
        false => "standalone",
    }
}

pub(super) fn server(text: &mut Text, server: &Server) {
    let config = server.config.load();
    let now_us = clock::unix_us();
    let uptime_s = UnixMs(now_us / 1000).since(server.started_ms) / 1000;
    text.field("redis_version", REDIS_VERSION);
    text.field("kedis_version", KEDIS_VERSION);
    text.constants(&[
        ("redis_git_sha1", "00000000"),
        ("redis_git_dirty", "0"),
        ("redis_build_id", "0"),
    ]);
    text.field("redis_mode", mode(&config));
    text.field("os", process::system_name());
    text.field("arch_bits", usize::BITS);
    text.constants(&[
        ("monotonic_clock", "POSIX clock_gettime"),
        ("multiplexing_api", "epoll"),
        ("atomicvar_api", "rust"),
        ("gcc_version", "0.0.0"),
    ]);
    text.field("process_id", std::process::id());
    text.field(
        "process_supervised",
        Supervisor::find(config.supervised).name(),
    );
    text.field("run_id", &server.run_id);
    text.field("tcp_port", server.port.load(Ordering::Relaxed));
    text.field("server_time_usec", now_us);
    text.field("uptime_in_seconds", uptime_s);
    text.field("uptime_in_days", uptime_s / 86_400);
    text.field("hz", config.hz);
    text.field("configured_hz", config.hz);
    let lru_clock = (now_us / 1_000_000) & ((1 << LRU_CLOCK_BITS) - 1);
    text.field("lru_clock", lru_clock);
    let executable = std::env::current_exe().unwrap_or_default();
    text.field("executable", executable.display());
    let file = server.config_file.clone().unwrap_or_default();
    text.field("config_file", file.display());
    text.field("io_threads_active", u8::from(server.mailboxes().len() > 1));
    text.field("io_threads", server.mailboxes().len());
}

/// Certificates in use, with Valkey's names.
pub(super) fn tls(text: &mut Text, server: &Server) {
    let InUse {
        server: own,
        client,
        authority,
    } = server.tls.in_use();
    let now_s = clock::unix_ms().0 / 1000;
    for (name, known) in [("server", own), ("client", client), ("ca", authority)] {
        let (serial, left_s) = match &known {
            Some(known) => (&*known.serial, known.not_after_s.saturating_sub(now_s)),
            None => ("none", 0),
        };
        text.field(&format!("tls_{name}_cert_serial"), serial);
        text.field(&format!("tls_{name}_cert_expires_in_seconds"), left_s);
    }
}

pub(super) fn clients(text: &mut Text, server: &Server) {
    let all = server.clients.all();
    let with = |flag| all.iter().filter(|c| c.flags().contains(flag)).count();
    let largest = |size: fn(&crate::state::ClientInfo) -> usize| {
        all.iter().map(|c| size(c)).max().unwrap_or(0)
    };
    let links = with(ClientFlags::REPLICA) + with(ClientFlags::MASTER);
    text.field("connected_clients", all.len() - links.min(all.len()));
    text.field("cluster_connections", 0);
    text.field("maxclients", server.config.load().max_clients);
    text.field(
        "client_recent_max_input_buffer",
        largest(|c| c.query_capacity.load(Ordering::Relaxed)),
    );
    text.field(
        "client_recent_max_output_buffer",
        largest(|c| c.output_capacity.load(Ordering::Relaxed)),
    );
    text.field("blocked_clients", with(ClientFlags::BLOCKED));
    text.field("tracking_clients", server.tracking.clients());
    text.field("pubsub_clients", with(ClientFlags::PUBSUB));
    text.field("monitor_clients", server.clients.monitors());
    text.field("watching_clients", server.watchers.clients());
    text.field("total_watched_keys", server.watchers.keys());
    text.field("clients_in_timeout_table", server.waiters.timed());
    text.field("total_blocking_keys", server.waiters.keys());
    text.field(
        "total_blocking_keys_on_nokey",
        server.waiters.keys_whose_loss_is_minded(),
    );
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

pub(super) fn memory(text: &mut Text, server: &Server) {
    let config = server.config.load();
    let now = server.memory.figures();
    let (cache_used, cache_share) = server.engine.cache_usage();
    let (clients, replicas) = server.buffer_bytes();
    let startup = server.memory.startup();
    let peak = server.memory.peak();
    let used = now.allocated;
    let overhead = (startup + clients + replicas).min(used);
    let dataset = used - overhead;
    let machine = process::machine_memory_bytes().unwrap_or(0);
    text.bytes("used_memory", used);
    text.bytes("used_memory_rss", now.rss);
    text.bytes("used_memory_peak", peak);
    text.field(
        "used_memory_peak_perc",
        format_args!("{:.2}%", ratio(used, peak) * 100.0),
    );
    text.field("used_memory_overhead", overhead);
    text.field("used_memory_startup", startup);
    text.field("used_memory_dataset", dataset);
    let dataset_share = ratio(dataset, used.saturating_sub(startup)).min(1.0);
    text.field(
        "used_memory_dataset_perc",
        format_args!("{:.2}%", dataset_share * 100.0),
    );
    text.field("used_memory_block_cache", cache_used);
    let memtables = server
        .engine
        .property_sum("rocksdb.cur-size-all-mem-tables");
    text.field("used_memory_memtables", memtables);
    text.field("allocator_allocated", now.allocated);
    text.field("allocator_active", now.active);
    text.field("allocator_resident", now.resident);
    text.field("allocator_muzzy", 0);
    text.bytes("total_system_memory", machine);
    scripts(text, server);
    text.field("maxmemory", config.max_memory_bytes);
    text.field("maxmemory_human", human_bytes(config.max_memory_bytes));
    text.field("maxmemory_policy", config.maxmemory_policy.name());
    text.bytes("memory_budget", server.engine.memory_budget());
    text.bytes("block_cache_budget", cache_share);
    let frag = |name: &str, text: &mut Text, outer: u64, inner: u64| {
        text.field(
            &format!("{name}_ratio"),
            format_args!("{:.2}", ratio(outer, inner)),
        );
        text.field(
            &format!("{name}_bytes"),
            i128::from(outer) - i128::from(inner),
        );
    };
    frag("allocator_frag", text, now.active, now.allocated);
    frag("allocator_rss", text, now.resident, now.active);
    frag("rss_overhead", text, now.rss, now.resident);
    frag("mem_fragmentation", text, now.rss, used);
    text.field("mem_not_counted_for_evict", 0);
    text.field("mem_replication_backlog", 0);
    text.field("mem_total_replication_buffers", replicas);
    text.field("mem_clients_slaves", replicas);
    text.field("mem_clients_normal", clients);
    text.field("mem_unfinished_requests", server.client_memory.lent());
    text.field("mem_cluster_links", 0);
    text.field("mem_aof_buffer", 0);
    text.field("mem_allocator", memory::allocator_version());
    text.field("active_defrag_running", 0);
    text.field("lazyfree_pending_objects", 0);
    text.field("lazyfreed_objects", 0);
}

fn scripts(text: &mut Text, server: &Server) {
    let scripts = &server.scripts;
    let libraries = scripts.libraries();
    let (cached, cached_bytes) = scripts.cached();
    let (cached_bytes, library_bytes) = (cached_bytes as u64, libraries.memory() as u64);
    // One interpreter per thread runs both scripts and functions.
    let interpreters = scripts.interpreters() as u64;
    let for_functions = (scripts.loaded_libraries() as u64).min(interpreters);
    let for_eval = interpreters - for_functions;
    text.bytes("used_memory_lua", for_eval);
    text.field("used_memory_vm_eval", for_eval);
    text.field("used_memory_scripts_eval", cached_bytes);
    text.field("number_of_cached_scripts", cached);
    text.field("number_of_functions", libraries.functions());
    text.field("number_of_libraries", libraries.len());
    text.field("used_memory_vm_functions", for_functions);
    text.bytes("used_memory_vm_total", interpreters);
    text.field("used_memory_functions", library_bytes);
    text.bytes("used_memory_scripts", cached_bytes + library_bytes);
}

pub(super) fn cpu(text: &mut Text, _server: &Server) {
    let all = process::cpu_times();
    let main = process::main_thread_cpu_times();
    for (name, seconds) in [
        ("used_cpu_sys", all.system_s),
        ("used_cpu_user", all.user_s),
        ("used_cpu_sys_children", all.children_system_s),
        ("used_cpu_user_children", all.children_user_s),
        ("used_cpu_sys_main_thread", main.system_s),
        ("used_cpu_user_main_thread", main.user_s),
    ] {
        text.field(name, format_args!("{seconds:.6}"));
    }
}
