//! The memory budget: `maxmemory`, or a share of what the process may use.

use std::path::Path;

use super::Config;

/// The share of the machine or cgroup that the server takes by default, in percent.
/// The other half is the page cache's, which RocksDB's files live in.
const DEFAULT_SHARE_PERCENT: u64 = 50;
/// The least that the server can work with.
const BUDGET_MIN_BYTES: u64 = 32 << 20;
/// What a machine is taken to have that does not say.
const UNKNOWN_MACHINE_BYTES: u64 = 1 << 30;

/// Bytes that caches, memtables and buffers may take together; no more than there
/// are, whatever the configuration says.
pub fn memory_budget(config: &Config) -> u64 {
    let available = available_bytes(Path::new("/"));
    let budget = match config.max_memory_bytes {
        0 => available / 100 * DEFAULT_SHARE_PERCENT,
        bytes => bytes.min(available),
    };
    budget.max(BUDGET_MIN_BYTES)
}

/// The memory of the machine, or the cgroup's limit if that is less. `root` is
/// the root of the file system.
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

/// The least limit on the way from the process' cgroup up to the root, v2 and v1.
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

/// The least number in files called `name` from `base`/`path` up to `base`.
/// Inside a container the path may name folders that only the host has; those
/// are passed over, and the mount's own root holds the limit.
fn least_limit(base: &Path, path: &str, name: &str) -> Option<u64> {
    base.join(path.trim_start_matches('/'))
        .ancestors()
        .take_while(|folder| folder.starts_with(base))
        .filter_map(|folder| read(&folder.join(name))?.trim().parse::<u64>().ok())
        .filter(|limit| *limit > 0)
        .min()
}
