//! MEMORY: memory use of the server and size of values.

use super::args::Options;
use super::info::human_bytes;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, SessionCtx};
use crate::commands::table::help;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::resp::Reply;
use crate::state::Server;
use crate::state::config::{Config, EvictionPolicy};
use crate::state::memory;
use crate::sys::huge_pages;
use crate::types::inspect;

/// Default number of elements that MEMORY USAGE samples.
const DEFAULT_SAMPLES: u64 = 5;

fn usage(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 3);
    let mut samples = DEFAULT_SAMPLES;
    while !options.is_empty() {
        if !options.word("SAMPLES") {
            return Err(Error::Syntax);
        }
        samples = u64::try_from(options.int()?).map_err(|_| Error::Syntax)?;
    }
    let key = args.get(2).copied().unwrap_or_default();
    match ctx.view.quietly(|view| view.lookup(ctx.db, key))? {
        None => ctx.reply.null(),
        Some(found) => {
            let bytes = inspect::stored_bytes(ctx.view, ctx.db, key, &found, samples)?;
            ctx.reply.int(bytes as i64);
        }
    }
    Ok(())
}

/// Memory use of the server, in bytes, and its number of keys.
struct Breakdown {
    used: u64,
    peak: u64,
    startup: u64,
    clients: u64,
    replicas: u64,
    cache: u64,
    memtables: u64,
    budget: u64,
    keys: u64,
}

impl Breakdown {
    fn of(server: &Server) -> Breakdown {
        let (cache, _) = server.engine.cache_usage();
        let (clients, replicas) = server.buffer_bytes();
        let keyspaces = server.engine.all_keyspaces();
        Breakdown {
            used: server.memory.figures().allocated,
            peak: server.memory.peak(),
            startup: server.memory.startup(),
            clients,
            replicas,
            cache,
            memtables: server
                .engine
                .property_sum("rocksdb.cur-size-all-mem-tables"),
            budget: server.engine.memory_budget(),
            keys: keyspaces.iter().map(|(_, ks)| ks.counts().keys).sum(),
        }
    }
}

fn stats(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let server = ctx.server;
    let all = Breakdown::of(server);
    let now = server.memory.figures();
    let overhead = all.startup + all.clients + all.replicas;
    let dataset = all.used.saturating_sub(overhead);
    let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let ratio = |outer: u64, inner: u64| outer as f64 / inner.max(1) as f64;
    let difference = |outer: u64, inner: u64| outer as i64 - inner as i64;
    let dbs: Vec<_> = server
        .engine
        .all_keyspaces()
        .into_iter()
        .filter(|(_, keyspace)| keyspace.counts().keys > 0)
        .collect();
    let reply = &mut *ctx.reply;
    let mark = reply.begin();
    let mut fields = Fields { reply, count: 0 };
    fields.int("peak.allocated", all.peak as i64);
    fields.int("total.allocated", all.used as i64);
    fields.int("startup.allocated", all.startup as i64);
    fields.int("replication.backlog", 0);
    fields.int("clients.slaves", all.replicas as i64);
    fields.int("clients.normal", all.clients as i64);
    fields.int("cluster.links", 0);
    fields.int("aof.buffer", 0);
    fields.int("lua.caches", 0);
    fields.int("functions.caches", 0);
    fields.int("block.cache", all.cache as i64);
    fields.int("memtables", all.memtables as i64);
    for (db, _) in &dbs {
        fields.name(&format!("db.{}", db.0));
        fields.reply.map(2);
        // Keys and expiries are on disk; there is no memory overhead per key.
        for name in ["overhead.hashtable.main", "overhead.hashtable.expires"] {
            fields.reply.bulk(name.as_bytes());
            fields.reply.int(0);
        }
    }
    fields.int("overhead.total", overhead as i64);
    fields.int("keys.count", all.keys as i64);
    fields.int("keys.bytes-per-key", (dataset / all.keys.max(1)) as i64);
    fields.int("dataset.bytes", dataset as i64);
    let beyond_startup = all.used.saturating_sub(all.startup);
    fields.double(
        "dataset.percentage",
        share(dataset, beyond_startup).min(100.0),
    );
    fields.double("peak.percentage", share(all.used, all.peak));
    fields.int("allocator.allocated", now.allocated as i64);
    fields.int("allocator.active", now.active as i64);
    fields.int("allocator.resident", now.resident as i64);
    fields.int("allocator.muzzy", 0);
    for (name, outer, inner) in [
        ("allocator-fragmentation", now.active, now.allocated),
        ("allocator-rss", now.resident, now.active),
        ("rss-overhead", now.rss, now.resident),
    ] {
        fields.double(&format!("{name}.ratio"), ratio(outer, inner));
        fields.int(&format!("{name}.bytes"), difference(outer, inner));
    }
    fields.double("fragmentation", ratio(now.rss, all.used));
    fields.int("fragmentation.bytes", difference(now.rss, all.used));
    let count = fields.count;
    reply.end_map(mark, count);
    Ok(())
}

/// A map that counts its fields.
struct Fields<'a> {
    reply: &'a mut Reply,
    count: usize,
}

impl Fields<'_> {
    fn name(&mut self, name: &str) {
        self.count += 1;
        self.reply.bulk(name.as_bytes());
    }

    fn int(&mut self, name: &str, value: i64) {
        self.name(name);
        self.reply.int(value);
    }

    fn double(&mut self, name: &str, value: f64) {
        self.name(name);
        self.reply.double(value);
    }
}

fn doctor(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let text = diagnose(ctx.server);
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn diagnose(server: &Server) -> String {
    /// Memory use below which ratios are not reported, in bytes.
    const LITTLE: u64 = 32 << 20;
    let all = Breakdown::of(server);
    let now = server.memory.figures();
    let mut findings = Vec::new();
    if all.peak > all.used / 2 * 3 && all.peak > LITTLE {
        findings.push(format!(
            "The peak was {}, much above the {} in use now: pages may be held that \
             nothing needs. MEMORY PURGE gives them back.",
            human_bytes(all.peak),
            human_bytes(all.used)
        ));
    }
    if now.rss > all.used / 5 * 7 && now.rss > LITTLE {
        findings.push(format!(
            "{} of memory are resident for {} in use: the allocator's pages are not \
             well filled.",
            human_bytes(now.rss),
            human_bytes(all.used)
        ));
    }
    if all.used > all.budget / 4 * 5 {
        findings.push(format!(
            "{} are in use, beyond the budget of {}: see maxmemory, and the buffers \
             in CLIENT LIST.",
            human_bytes(all.used),
            human_bytes(all.budget)
        ));
    }
    if all.clients > all.budget / 4 {
        findings.push(format!(
            "Buffers of clients take {}: look for large omem in CLIENT LIST.",
            human_bytes(all.clients)
        ));
    }
    if server.engine.property("rocksdb.is-write-stopped") == Some(1) {
        findings.push("RocksDB has stopped writes until compactions catch up.".to_owned());
    }
    findings.extend(no_eviction(&server.config.load()));
    match findings.is_empty() {
        true => format!(
            "Nothing stands out: {} in use, {} of them for the block cache, {} for \
             memtables; the budget is {}.\n",
            human_bytes(all.used),
            human_bytes(all.cache),
            human_bytes(all.memtables),
            human_bytes(all.budget)
        ),
        false => format!(
            "{}\nFor comparison: the budget is {}.\n",
            findings.join("\n"),
            human_bytes(all.budget)
        ),
    }
}

/// The warning for a policy that would evict keys from memory; `None` for `noeviction`.
pub fn no_eviction(config: &Config) -> Option<String> {
    let policy = config.maxmemory_policy;
    (policy != EvictionPolicy::Noeviction).then(|| {
        format!(
            "maxmemory-policy is {}, but no key is evicted because of it: data is on disk, and \
             maxmemory bounds caches and buffers alone. For a bound on the disk, with \
             eviction, set max-disk and max-disk-policy.",
            policy.name()
        )
    })
}

fn malloc_stats(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let report = memory::allocator_report(&ctx.server.memory.figures());
    ctx.reply.verbatim("txt", report.as_bytes());
    Ok(())
}

fn purge(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    memory::purge();
    huge_pages::give_back();
    ctx.reply.ok();
    Ok(())
}

const HELP: &[help::Topic] = &[
    ("DOCTOR", &["What the figures suggest."]),
    ("MALLOC-STATS", &["The allocator's figures."]),
    (
        "PURGE",
        &["Give pages that the allocator does not need back to the system."],
    ),
    ("STATS", &["What the server's memory goes to."]),
    (
        "USAGE <key> [SAMPLES <count>]",
        &[
            "About how many bytes a key and its value take. Of a large value, some",
            "entries are looked at (default: 5, 0: all).",
        ],
    ),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "MEMORY", HELP);
    Ok(())
}

const fn row(command: Command, summary: &'static str) -> Command {
    command.doc(Group::Server, "4.0.0", summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("doctor", 2, doctor).tips(&[
            Tip::NondeterministicOutput,
            Tip::RequestAllShards,
            Tip::ResponseSpecial,
        ]),
        "Returns advice from the memory figures",
    ),
    row(
        Command::session("help", 2, help).flags(Flags::LOADING.union(Flags::STALE)),
        "Lists the subcommands",
    ),
    row(
        Command::session("malloc-stats", 2, malloc_stats).tips(&[
            Tip::NondeterministicOutput,
            Tip::RequestAllShards,
            Tip::ResponseSpecial,
        ]),
        "Returns the allocator's figures",
    ),
    row(
        Command::session("purge", 2, purge)
            .tips(&[Tip::RequestAllShards, Tip::ResponseAllSucceeded]),
        "Returns unused pages to the system",
    ),
    row(
        Command::session("stats", 2, stats).tips(&[
            Tip::NondeterministicOutput,
            Tip::RequestAllShards,
            Tip::ResponseSpecial,
        ]),
        "Returns the memory use of the server by purpose",
    ),
    row(
        Command::read("usage", -3, usage)
            .syntax("key [SAMPLES count:int]")
            .complexity("O(N), N: samples")
            .keys(&[KeySpec::at(2, KeyFlags::RO)]),
        "Estimates how many bytes a key takes",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[row(
    Command::container("memory", -2, SUBCOMMANDS),
    "Commands about memory",
)];
