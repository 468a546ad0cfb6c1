//! File operations that survive a crash of the machine, and those that wait for nobody.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// What a file may be that [`open_without_waiting`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A regular file.
    Regular,
    /// A regular file, or a device as `/dev/null`.
    RegularOrDevice,
}

impl Kind {
    fn includes(self, found: FileType) -> bool {
        found.is_file() || self == Kind::RegularOrDevice && found.is_char_device()
    }
}

/// Opens a file whose name a client or the configuration has given. Neither the opening nor what
/// is done with the file waits for another process, as that of a pipe does.
///
/// # Errors
/// It cannot be opened, or is something else than it may be.
pub(super) fn open_without_waiting(
    path: &Path,
    options: &mut OpenOptions,
    kind: Kind,
) -> io::Result<File> {
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits();
    options.custom_flags(i32::try_from(flags).map_err(io::Error::other)?);
    let file = options.open(path)?;
    match kind.includes(file.metadata()?.file_type()) {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        )),
    }
}

/// Opens a regular file for reading, as [`open_without_waiting`] does.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_without_waiting(path, File::options().read(true), Kind::Regular)
}

/// Reads a regular file of at most `max_bytes`, as [`open_regular`] opens it.
///
/// # Errors
/// It cannot be read, is no regular file or is longer.
pub fn read_regular(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, "it is too large");
    if file.metadata()?.len() > max_bytes {
        return Err(too_large());
    }
    // It may grow, or be one of the kernel's, which have no length.
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()).is_ok_and(|read| read <= max_bytes) {
        true => Ok(bytes),
        false => Err(too_large()),
    }
}

/// The result as functions that C++ calls give it: 0, or the number of the error.
pub fn error_number(done: io::Result<()>) -> i32 {
    done.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0)
}

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
    fn what_would_wait_for_others_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let append = |path: &Path, kind| {
            open_without_waiting(path, File::options().create(true).append(true), kind)
        };
        for path in [&pipe, dir.path()] {
            assert!(open_regular(path).is_err());
            assert!(append(path, Kind::RegularOrDevice).is_err());
        }
        let null = Path::new("/dev/null");
        assert!(open_regular(null).is_err() && append(null, Kind::Regular).is_err());
        append(null, Kind::RegularOrDevice).unwrap();
        append(&dir.path().join("new"), Kind::Regular).unwrap();
    }

    #[test]
    fn long_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(read_regular(&path, 4).unwrap(), b"1234");
        let error = read_regular(&path, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        // Its length is 0.
        let maps = Path::new("/proc/self/maps");
        let error = read_regular(maps, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(read_regular(maps, 16 << 20).unwrap().len() > 3);
    }

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
