//! Collections with fewer rows than their meta rows count. The length of a reply was
//! announced from the count and fewer elements followed, so the client took its next replies
//! for elements. Disk damage, or a master that sends incomplete data, can cause this.

use crate::encoding::tag;
use crate::exec::testing::Client;
use crate::resp::Value;

const ALL: usize = 200;

/// A client of a server with a hash, a list, a set and a sorted set, of which every `n`-th
/// row is lost.
fn damaged(n: usize) -> Client {
    let mut client = Client::new();
    let words = |one: fn(usize) -> String| (0..ALL).map(one).collect::<Vec<_>>().join(" ");
    for line in [
        format!("hset h {}", words(|n| format!("field{n} value{n}"))),
        format!("rpush l {}", words(|n| format!("item{n}"))),
        format!("sadd s {}", words(|n| format!("member{n}"))),
        format!("zadd z {}", words(|n| format!("{n} member{n}"))),
    ] {
        client.run(&line);
    }
    for tag in [
        tag::HASH_FIELD,
        tag::LIST_ITEM,
        tag::SET_MEMBER,
        tag::ZSET_MEMBER,
    ] {
        client.lose_rows(tag, n);
    }
    client
}

#[track_caller]
fn is_refused(client: &mut Client, line: &str) {
    for version in [2, 3] {
        client.run(&format!("hello {version}"));
        // `Client` checks that this is one complete reply.
        let reply = client.run(line);
        let error = reply
            .as_error()
            .unwrap_or_else(|| panic!("{line}: {reply:?}"));
        assert!(error.contains("corrupt"), "{line}: {error}");
    }
}

#[test]
fn what_has_lost_elements_is_an_error_and_no_shorter_reply() {
    let mut client = damaged(10);
    for line in [
        "smembers s",
        "srandmember s 1000",
        "srandmember s 190",
        "srandmember s -1000",
        "spop s 190",
        "spop s 1000",
        "sort s alpha",
        "hgetall h",
        "hkeys h",
        "hvals h",
        "hrandfield h 1000",
        "hrandfield h 190 withvalues",
        "hrandfield h -1000",
        "zrandmember z 1000",
        "zrandmember z -1000 withscores",
        "lrange l 0 -1",
        "lpop l 1000",
        "lmpop 1 l right count 1000",
        "dump s",
        "dump h",
    ] {
        is_refused(&mut client, line);
    }
    // Nothing was popped.
    assert_eq!(client.run("scard s"), Value::Int(ALL as i64));
    assert_eq!(client.run("llen l"), Value::Int(ALL as i64));
    // What remains can be read, and the key can be removed.
    let reply = client.run("sscan s 0 count 1000");
    let found = reply.as_slice().unwrap()[1].as_slice().unwrap().len();
    assert_eq!(found, ALL - ALL / 10);
    assert_eq!(client.run("del s h z l"), Value::Int(4));
}

#[test]
fn what_has_no_elements_left_is_an_error_and_not_no_reply() {
    let mut client = damaged(1);
    for line in [
        "smembers s",
        "srandmember s",
        "srandmember s 1",
        "srandmember s -1",
        "spop s",
        "spop s 1",
        "hrandfield h",
        "hrandfield h 1",
        "hgetall h",
        "zrandmember z",
        "zrandmember z 1",
        "lindex l 0",
        "lpop l",
    ] {
        is_refused(&mut client, line);
    }
}
