//! The threads of this process and their processor time.

use rustix::process::{Resource, getrlimit};
use std::fs;

/// The numbers of all threads.
pub fn ids() -> Vec<u32> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let names = tasks.flatten().map(|task| task.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// The name of a thread, which the system cuts to 15 bytes.
pub fn name(id: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// The processor time that a thread has taken, in nanoseconds. `None` if there is no such thread.
pub fn cpu_ns(id: u32) -> Option<u64> {
    // Linux numbers the clocks of threads by the complement of the thread's number; 6 stands for
    // the time of a single thread in user mode and in the kernel.
    let clock = (((!i64::from(id)) << 3) | 6) as libc::clockid_t;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid for the call. A clock that does not exist is an error.
    #[allow(unsafe_code)]
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    (done == 0).then_some(seconds.ok()? * 1_000_000_000 + ns.ok()?)
}

/// The number of open file descriptors, as far as the system tells without listing them, which
/// Linux does since 6.2.
pub fn open_files() -> Option<u64> {
    let listed = fs::metadata("/proc/self/fd").ok()?.len();
    (listed > 0).then_some(listed)
}

/// The most file descriptors; `None`: without a limit.
pub fn most_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_takes_processor_time() {
        let own = std::thread::Builder::new().name("worker-of-a-test".into());
        let own = own.spawn(|| {
            let listed = ids();
            let mine = listed.iter().filter(|id| {
                name(**id).is_some_and(|name| name == "worker-of-a-test".get(..15).unwrap())
            });
            let mine = *mine.min().unwrap();
            let before = cpu_ns(mine).unwrap();
            while cpu_ns(mine).unwrap() == before {
                std::hint::spin_loop();
            }
            mine
        });
        let id = own.unwrap().join().unwrap();
        assert!(cpu_ns(id).is_none_or(|ns| ns > 0));
        assert_eq!(cpu_ns(u32::MAX / 16), None);
    }
}
