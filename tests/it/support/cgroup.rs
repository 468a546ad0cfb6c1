//! A memory cgroup for one server: what a container gives it, page cache included.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// It is removed when this is dropped, after its processes have ended.
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// One of `limit` bytes of memory. `None`: this process may not make one.
    pub fn new(limit: u64) -> Option<Cgroup> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kedis-test-{}-{n}", std::process::id());
        let parents = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        parents.iter().find_map(|(parent, file)| {
            let path = Path::new(parent).join(&name);
            fs::create_dir(&path).ok()?;
            let cgroup = Cgroup { path };
            let file = cgroup.path.join(file);
            // Where memory is not under control here there is no such file.
            let limited = file.exists() && fs::write(file, limit.to_string()).is_ok();
            limited.then_some(cgroup)
        })
    }

    /// Where the id of a process is written that is to be in it.
    pub fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // It stays as long as the kernel counts pages for it.
        let removed = super::wait_within(super::DEADLINE, || fs::remove_dir(&self.path).is_ok());
        if !removed {
            println!("{} is left behind", self.path.display());
        }
    }
}
