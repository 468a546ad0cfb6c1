//! What an administrator can do about an error of the operating system that prevents a start.

use rustix::process::getuid;

/// What can be done, for the text of an error of files or threads; empty if there is nothing to
/// say. RocksDB passes on the system's texts, not its numbers.
pub fn about(error: &str) -> String {
    let is = |text: &str| error.contains(text);
    if is("Permission denied") || is("Operation not permitted") {
        let user = getuid().as_raw();
        format!(
            "; the user {user}, as which this process runs, must be able to read and write there"
        )
    } else if is("Read-only file system") {
        "; mount that file system for writing, or name another place".to_owned()
    } else if is("No space left on device") || is("quota exceeded") {
        "; free space there".to_owned()
    } else if is("Resource temporarily unavailable") {
        "; the system permits no more threads: raise the limit of processes (ulimit -u, TasksMax of \
         systemd, pids.max of the cgroup)"
            .to_owned()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn it_knows_the_texts_of_this_system() {
        let known = [
            Errno::ACCESS,
            Errno::PERM,
            Errno::ROFS,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::AGAIN,
        ];
        for errno in known {
            let error = std::io::Error::from(errno);
            assert!(about(&error.to_string()).starts_with("; "), "{error}");
        }
        assert_eq!(about("Input/output error (os error 5)"), "");
    }
}
