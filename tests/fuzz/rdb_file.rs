//! RDB files, of a master or from a directory of Redis.

use crate::aof::load;
use crate::rdb_value::{MAX_STRING, owned};
use kedis::rdb::Error;
use kedis::rdb::file::{Entry, FileReader};

/// The reader advances with each entry and ends; loading a file into a server leaves all of
/// its keys or none.
pub fn check(data: &[u8]) {
    read_through(data);
    load(data);
}

fn read_through(data: &[u8]) {
    let Ok(mut file) = FileReader::open(data, MAX_STRING) else {
        return;
    };
    loop {
        let position = file.position();
        match file.next() {
            Ok(Entry::Key(head)) => {
                let read = file.value(head, |element| {
                    owned(element);
                    Ok::<(), Error>(())
                });
                if !matches!(read, Ok(_) | Err(Error::Empty)) {
                    return;
                }
            }
            Ok(Entry::End) | Err(_) => return,
            Ok(_) => {}
        }
        assert!(file.position() > position, "it does not move on");
    }
}
