//! Figures of this process and this machine, from `/proc`. Any of them may be missing.

use std::fs::read_to_string;

/// Ticks of processor time per second: fixed for programs on Linux.
const TICKS_PER_S: f64 = 100.0;

/// Processor time, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuTimes {
    /// In user mode.
    pub user_s: f64,
    /// In the kernel.
    pub system_s: f64,
    /// As `user_s`, of terminated children.
    pub children_user_s: f64,
    /// As `system_s`, of terminated children.
    pub children_system_s: f64,
}

/// Processor time of the whole process.
pub fn cpu_times() -> CpuTimes {
    read_to_string("/proc/self/stat")
        .ok()
        .and_then(|stat| parse_cpu_times(&stat))
        .unwrap_or_default()
}

/// Processor time of the main thread.
pub fn main_thread_cpu_times() -> CpuTimes {
    let pid = std::process::id();
    read_to_string(format!("/proc/self/task/{pid}/stat"))
        .ok()
        .and_then(|stat| parse_cpu_times(&stat))
        .unwrap_or_default()
}

fn parse_cpu_times(stat: &str) -> Option<CpuTimes> {
    // The command's name, in parentheses, may contain any characters.
    let (_, fields) = stat.rsplit_once(')')?;
    const FIRST: usize = 11;
    let mut ticks = fields.split_ascii_whitespace().skip(FIRST);
    let mut next = || Some(ticks.next()?.parse::<f64>().ok()? / TICKS_PER_S);
    Some(CpuTimes {
        user_s: next()?,
        system_s: next()?,
        children_user_s: next()?,
        children_system_s: next()?,
    })
}

/// Resident memory of the process, in bytes.
pub fn rss_bytes() -> Option<u64> {
    let status = read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Memory of the machine, in bytes.
pub fn machine_memory_bytes() -> Option<u64> {
    let info = read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The name, release and architecture of the system: `Linux 6.1.0 x86_64`.
pub fn system_name() -> String {
    let read = |name: &str| {
        let text = read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let (kind, release) = (read("ostype"), read("osrelease"));
    format!("{kind} {release} {}", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_process_with_an_odd_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 3 4 20 0 1";
        let times = parse_cpu_times(stat).unwrap();
        assert_eq!((times.user_s, times.system_s), (2.5, 0.5));
        assert_eq!(times.children_user_s, 0.03);
        assert!(parse_cpu_times("nonsense").is_none());
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(rss_bytes().is_some_and(|bytes| bytes > 0));
        assert!(machine_memory_bytes().is_some_and(|bytes| bytes > 0));
    }
}
