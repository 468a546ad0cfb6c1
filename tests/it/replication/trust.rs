//! What a peer of the other side of a link may cost: connections that ask to be fed and read
//! nothing, masters that announce more than there is memory for.

use super::redis_master::{full_sync, scripted_master};
use super::server;
use crate::support::wait_for;

/// An argument of 4 GiB was waited for, and kept as it came; arguments without number, too.
#[test]
fn a_master_announces_no_more_than_there_is_memory_for() {
    let mut one = b"*2\r\n$4\r\nECHO\r\n$4000000000\r\n".to_vec();
    one.extend_from_slice(b"the beginning");
    let mut many = b"*2000000000\r\n".to_vec();
    many.extend_from_slice(&b"$0\r\n\r\n".repeat(8_000_000));
    for stream in [one, many] {
        let (port, _, master) = scripted_master(full_sync(6, &[], &stream));
        let replica = server(&["--maxmemory", "64mb"]);
        let line = format!("REPLICAOF 127.0.0.1 {port}");
        replica.connect().must(&line);
        let words = "bytes, and maxmemory has room for 67108864";
        wait_for(words, || replica.log().contains(words));
        replica.connect().must("REPLICAOF NO ONE");
        drop(replica);
        master.join().unwrap();
    }
}
