//! A memory cgroup for one server, like that of a container; the page cache counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A cgroup; removed on drop, after its processes have ended.
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Creates a cgroup with `limit` bytes of memory; `None` if this process has no permission.
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
            // The file does not exist if the memory controller is not enabled here.
            let limited = file.exists() && fs::write(file, limit.to_string()).is_ok();
            limited.then_some(cgroup)
        })
    }

    /// The file to which process ids are written.
    pub fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The directory is busy while the kernel still accounts pages to it.
        let removed = super::wait_within(super::DEADLINE, || fs::remove_dir(&self.path).is_ok());
        if !removed {
            println!("{} is left behind", self.path.display());
        }
    }
}
