//! File operations that survive a crash of the machine.

use std::fs::File;
use std::io;
use std::path::Path;

/// Syncs a directory, which makes creations, renames and removals in it durable.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    // A path without a directory is in the working directory.
    let here = dir.as_os_str().is_empty();
    File::open(if here { Path::new(".") } else { dir })?.sync_all()
}

/// Creates a directory and its parents durably. Existing ones are left alone.
///
/// # Errors
/// One of them cannot be created, or its parent cannot be synced.
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent().unwrap_or(Path::new("/"));
    create_dir_all(if above.as_os_str().is_empty() {
        Path::new(".")
    } else {
        above
    })?;
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        done => done?,
    }
    sync_dir(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        create_dir_all(&deep).unwrap();
        create_dir_all(&deep).unwrap();
        assert!(deep.is_dir());
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(create_dir_all(&dir.path().join("file/d")).is_err());
        assert!(create_dir_all(&dir.path().join("file")).is_err());
    }
}
