use super::*;
use crate::sys::testing::{pace, wait_for};
use std::net::TcpListener;

const MARK: &str = "0123456789012345678901234567890123456789";

fn held() -> Held {
    Held {
        id: "a".repeat(40),
        latest: "b".repeat(40),
        next: 18,
        rdb: 1 << 33,
    }
}

/// A source that answers each PSYNC with the next of these byte strings, a few bytes at
/// a time, and then waits until the other end disconnects.
fn source(answers: Vec<Vec<u8>>) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut socket, _) = listener.accept().expect("a connection");
            socket.set_nodelay(true).expect("an option");
            let said = b"+OK\r\n-ERR Unrecognized REPLCONF option: version\r\n";
            socket.write_all(said).expect("a reader");
            for piece in answer.chunks(7) {
                socket.write_all(piece).expect("a reader");
                pace();
            }
            // Waits for the other end to disconnect.
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
    Endpoint {
        role: "source",
        address: format!("127.0.0.1:{port}").parse().expect("an address"),
        user: None,
        password: None,
        tls: None,
    }
}

fn link(source: Endpoint) -> Link {
    Link {
        source,
        mb_per_s: None,
        stop: Stop::default(),
        stats: Arc::default(),
        applied: Arc::default(),
    }
}

fn read_stream(feed: &mut SpoolFeed, until: &[u8]) {
    let mut found = Vec::new();
    while found != until {
        assert!(until.starts_with(&found), "{}", found.escape_ascii());
        let waiting = feed.waiting();
        let came = waiting.len();
        found.extend_from_slice(waiting);
        feed.consume(came);
        feed.fill().expect("more");
    }
}

#[test]
fn notes_of_this_boot_are_read() {
    let text = held().text("boot");
    assert_eq!(Held::parse(&text, "boot"), Some(held()));
    assert_eq!(Held::parse(&text, "another"), None);
    assert_eq!(Held::parse("boot a b 1\n", "boot"), None);
}

#[test]
fn a_data_set_ends_at_its_mark_and_the_stream_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let spool = Spool::beside(&dir.path().join("file"));
    let id = "a".repeat(40);
    // Contains two incomplete end marks.
    let rdb = format!("REDIS{}x{}x", &MARK[..39], &MARK[1..]);
    let first = format!("+FULLRESYNC {id} 100\r\n$EOF:{MARK}\r\n{rdb}{MARK}one two ");
    let again = "+CONTINUE\r\nthree".to_owned();
    let link = link(source(vec![first.into_bytes(), again.into_bytes()]));
    let (stream, answer) = link.psync(None).expect("an answer");
    let Answer::Full(start, transfer) = answer else {
        panic!("a data set");
    };
    let receiver = Receiver::begin(&spool, &link, stream, transfer, &start);
    let receiver = receiver.expect("a receiver");
    let mut found = String::new();
    let read = receiver.rdb().expect("a file").read_to_string(&mut found);
    assert_eq!(read.expect("a data set"), rdb.len());
    assert_eq!(found, rdb);
    receiver.check_rdb(rdb.len() as u64).expect("its length");
    assert!(receiver.check_rdb(3).is_err());

    // Another process continues with the files.
    let following = Progress {
        owned: true,
        stage: Stage::Following(Position {
            next: start.next + 4,
            ..start.clone()
        }),
    };
    let is_there = || std::fs::read(&spool.stream).is_ok_and(|bytes| bytes == b"one two ");
    wait_for("what was received", is_there);
    drop(receiver);
    let held = spool.held(Some(&following)).expect("a note").expect("it");
    let receiver = Receiver::resume(&spool, &link, held).expect("a receiver");
    let mut feed = receiver.feed(start.next + 4).expect("a file");
    read_stream(&mut feed, b"two three");
    // Everything was read: the files are removed.
    while feed.live.is_none() {
        feed.fill().expect("the source");
    }
    assert_eq!(feed.new_id(), Some(id));
    assert_eq!(spool.held(Some(&following)).expect("no note"), None);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
}

#[test]
fn half_a_data_set_is_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let spool = Spool::beside(&dir.path().join("file"));
    let id = "a".repeat(40);
    let first = format!("+FULLRESYNC {id} 100\r\n$100\r\nREDIS");
    let link = link(source(vec![first.into_bytes()]));
    let (stream, answer) = link.psync(None).expect("an answer");
    let Answer::Full(start, transfer) = answer else {
        panic!("a data set");
    };
    let receiver = Receiver::begin(&spool, &link, stream, transfer, &start);
    drop(receiver.expect("a receiver"));
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
}
