//! RDB files: what a master or a directory of Redis' holds.

use crate::aof::load;
use crate::rdb_value::{MAX_STRING, owned};
use kedis::rdb::Error;
use kedis::rdb::file::{Entry, FileReader};

/// The reader ends and moves on with each entry; a file that a server loads leaves all of
/// it or nothing.
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
                let read = file.value(head.kind, |element| {
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
