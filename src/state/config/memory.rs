//! The memory budget: `maxmemory`, or a share of the available memory.

use std::path::Path;

use super::Config;
use crate::sys::limits;

/// The default share of the machine or cgroup, in percent. The other half is left to the page
/// cache, which holds RocksDB's files.
const DEFAULT_SHARE_PERCENT: u64 = 50;
/// The smallest budget that the server can work with.
const BUDGET_MIN_BYTES: u64 = 32 << 20;
/// Address space beyond the budget: programs, stacks of threads, tables of the caches.
const ADDRESS_SPACE_BYTES: u64 = 256 << 20;
/// The memory of a machine whose size is unknown.
const UNKNOWN_MACHINE_BYTES: u64 = 1 << 30;

/// Bytes that caches, memtables and buffers may take together. At most the available memory,
/// whatever the configuration says.
pub fn memory_budget(config: &Config) -> u64 {
    let available = available_bytes(Path::new("/"));
    let budget = match config.max_memory_bytes {
        0 => available / 100 * DEFAULT_SHARE_PERCENT,
        bytes => bytes.min(available),
    };
    budget.max(BUDGET_MIN_BYTES)
}

/// Why the server cannot work with the memory that it may have, if it cannot.
pub fn lack_of_memory(config: &Config) -> Option<String> {
    let available = available_bytes(Path::new("/"));
    lack(
        available,
        memory_budget(config),
        limits::address_space_bytes(),
    )
}

/// The same for figures in bytes.
pub(super) fn lack(available: u64, budget: u64, address_space: Option<u64>) -> Option<String> {
    let mib = |bytes: u64| bytes >> 20;
    if available < BUDGET_MIN_BYTES {
        return Some(format!(
            "this machine or cgroup has {} MiB of memory, and the server needs {} at least: give it \
             more",
            mib(available),
            mib(BUDGET_MIN_BYTES)
        ));
    }
    let needed = budget.saturating_add(ADDRESS_SPACE_BYTES);
    let limit = address_space.filter(|limit| *limit < needed)?;
    Some(format!(
        "the address space may have {} MiB (ulimit -v), and with a memory budget of {} MiB it needs \
         {}: raise that limit, or lower `maxmemory`",
        mib(limit),
        mib(budget),
        mib(needed),
    ))
}

/// The memory of the machine, or the cgroup's limit if that is less. `root` is the root of the
/// file system.
pub(super) fn available_bytes(root: &Path) -> u64 {
    let machine = read(&root.join("proc/meminfo"))
        .and_then(|text| meminfo_total_bytes(&text))
        .unwrap_or(UNKNOWN_MACHINE_BYTES);
    cgroup_limit_bytes(root).map_or(machine, |limit| limit.min(machine))
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn meminfo_total_bytes(text: &str) -> Option<u64> {
    let rest = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit of the process' cgroup and its ancestors, v2 and v1.
fn cgroup_limit_bytes(root: &Path) -> Option<u64> {
    let membership = read(&root.join("proc/self/cgroup"))?;
    let base = root.join("sys/fs/cgroup");
    let limits = membership.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.is_empty() {
            least_limit(&base, path, "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            least_limit(&base.join("memory"), path, "memory.limit_in_bytes")
        } else {
            None
        }
    });
    limits.min()
}

/// The smallest number in files called `name` from `base`/`path` up to `base`. Inside a
/// container the path may name folders that exist only on the host; those are skipped, and the
/// mount's own root holds the limit.
fn least_limit(base: &Path, path: &str, name: &str) -> Option<u64> {
    base.join(path.trim_start_matches('/'))
        .ancestors()
        .take_while(|folder| folder.starts_with(base))
        .filter_map(|folder| read(&folder.join(name))?.trim().parse::<u64>().ok())
        .filter(|limit| *limit > 0)
        .min()
}
