//! Keyspace notifications: every command causes the same events as in Redis.

mod every;
mod newer;

use crate::support::{Conn, Server, Value, args, oracle, unix_ms, wait_for};

/// One command to a line; `""` is an empty argument.
const COMMANDS: &str = r#"
SET a 1
SET a 2
SET a 3 EX 100
SET a 4 KEEPTTL
SET a 5 NX
SET b 5 NX
SET c 1 XX
SET c 1 PX 100000 GET
SET c 2 GET
SETNX a 1
SETNX d 1
SETEX e 100 v
PSETEX e 100000 v
GETSET e v
GETSET f v
MSET a 1 g 2
MSETNX a 1 h 2
MSETNX h 1 i 2
GETDEL h
GETDEL nokey
GETEX i
GETEX i EX 100
GETEX i PERSIST
GETEX i PERSIST
GETEX i PXAT 1
GETEX nokey EX 1
APPEND a xx
APPEND ap xx
APPEND ap ""
SETRANGE a 1 zz
SETRANGE a 1 ""
SETRANGE nokey 1 ""
SETRANGE sr 1 x
INCR n
INCRBY n 5
DECR n
DECRBY n 2
INCRBYFLOAT n 1.5
SETBIT bits 3 1
SETBIT bits2 0 0
SETBIT bits 4 1
BITOP AND dest bits bits
BITOP AND dest nokey nokey2
BITOP AND dest nokey nokey2
BITOP NOT bits2 bits
BITFIELD bits SET u8 0 77
BITFIELD bits GET u8 0
BITFIELD bits INCRBY u8 0 1
BITFIELD nb GET u8 0
PFADD hll a b c
PFADD hll a
PFADD hll2
PFMERGE hll3 hll hll2
PFCOUNT hll
LPUSH l a b c
RPUSH l d
LPUSHX l x
LPUSHX nokey x
RPUSHX l y
LINSERT l BEFORE a zz
LINSERT l BEFORE nosuch zz
LINSERT nokey BEFORE a b
LSET l 0 q
LREM l 0 q
LREM l 0 nosuch
LTRIM l 0 100
LTRIM l 0 3
LTRIM nokey 0 3
LTRIM l 5 3
RPUSH l a b c d e f
LPOP l
RPOP l 2
LPOP l 0
LPOP nokey
LMPOP 2 nokey l LEFT COUNT 1
LMOVE l l2 LEFT RIGHT
LMOVE l l LEFT RIGHT
RPOPLPUSH l l2
RPOPLPUSH l l2
RPOPLPUSH l l2
RPUSH one 1
LMOVE one two LEFT LEFT
LMOVE two two LEFT LEFT
RPOP two
LMPOP 1 l2 RIGHT COUNT 100
HSET h f v
HSET h f v2 g 1
HSETNX h f v
HSETNX h z v
HMSET h a b c d
HINCRBY h n 3
HINCRBYFLOAT h n 1.5
HDEL h nosuch
HDEL h f
HDEL h g z a c n
HDEL nokey f
HINCRBY hh n 1
SADD s a b c
SADD s a
SREM s zz
SREM s a
SMOVE s s2 b
SMOVE s s2 nosuch
SMOVE s s c
SADD s3 c
SMOVE s s3 c
SADD p a b c d
SPOP p
SPOP p 2
SPOP p 0
SPOP p 5
SPOP nokey
SADD s1 a b c
SADD s2 b c d
SINTERSTORE dst s1 s2
SUNIONSTORE dst s1 s2
SDIFFSTORE dst s1 s2
SINTERSTORE dst s1 nokey
SINTERSTORE dst s1 nokey
SUNIONSTORE s1 s1 s2
ZADD z 1 a 2 b 3 c
ZADD z 1 a
ZADD z XX 5 nosuch
ZADD z 7 a
ZADD z INCR 1 a
ZADD z NX INCR 1 a
ZINCRBY z 0 a
ZINCRBY z 3 a
ZINCRBY z2 3 a
ZREM z nosuch
ZREM z a
ZREM nokey a
ZADD z 1 a 2 b 3 c 4 d 5 e 6 f
ZREMRANGEBYRANK z 0 0
ZREMRANGEBYSCORE z 2 2
ZREMRANGEBYSCORE z 100 200
ZADD zlex 0 a 0 b 0 c
ZREMRANGEBYLEX zlex [b [b
ZPOPMIN z
ZPOPMAX z 1
ZPOPMAX z 10
ZPOPMIN nokey
ZADD z 1 a 2 b 3 c
ZMPOP 2 nokey z MIN
ZMPOP 1 z MAX COUNT 10
ZADD z 1 a 2 b
ZRANGESTORE zd z 0 -1
ZRANGESTORE zd z 5 9
ZRANGESTORE zd z 5 9
ZUNIONSTORE zu 2 z z2
ZINTERSTORE zu 2 z z2
ZDIFFSTORE zu 2 z z2
ZINTERSTORE zu 2 z nokey
ZDIFFSTORE zu 1 nokey
ZREM z a b
EXPIRE a 100
EXPIRE a 200 NX
EXPIRE nokey 100
PEXPIRE a 100000
EXPIREAT a 99999999999
PEXPIREAT a 9999999999999
PERSIST a
PERSIST a
PERSIST nokey
EXPIRE a -1
SET a 1
PEXPIREAT a 1
SET a 1
SET b 1
RENAME a b
RENAME b c2
RENAME c2 c2
RENAMENX c2 d
RENAMENX c2 d2
RENAMENX d2 d2
MOVE d2 1
MOVE nokey 1
COPY d d3
COPY d d3
COPY d d3 REPLACE
COPY d d4 DB 2
COPY nokey d5
DEL d3 d nokey
UNLINK e f
RPUSH src 3 1 2
SORT src STORE sorted
SORT src STORE sorted
SORT nokey STORE sorted
SORT nokey STORE sorted
SORT src
SORT_RO src
GET nokey
GET src
MGET nokey src nokey2
STRLEN nokey
EXISTS nokey nokey
TYPE nokey
TTL nokey
PTTL nokey
EXPIRETIME nokey
TOUCH nokey
OBJECT ENCODING nokey
HGET nokey f
HGETALL nokey
HMGET nokey f
HKEYS nokey
HLEN nokey
HEXISTS nokey f
HSTRLEN nokey f
HSCAN nokey 0
HRANDFIELD nokey
LLEN nokey
LRANGE nokey 0 1
LINDEX nokey 0
LPOS nokey a
SCARD nokey
SISMEMBER nokey a
SMEMBERS nokey
SMISMEMBER nokey a
SRANDMEMBER nokey
SINTER nokey s1
SUNION nokey s1
SDIFF nokey s1
SDIFF s1 nokey
SINTERCARD 2 nokey s1
SSCAN nokey 0
ZCARD nokey
ZSCORE nokey a
ZMSCORE nokey a
ZRANK nokey a
ZRANGE nokey 0 1
ZRANGEBYSCORE nokey 0 1
ZCOUNT nokey 0 1
ZLEXCOUNT nokey [a [b
ZRANDMEMBER nokey
ZSCAN nokey 0
ZUNION 2 nokey z2
ZINTER 2 nokey z2
ZDIFF 2 nokey z2
ZINTERCARD 2 nokey z2
GETRANGE nokey 0 1
SUBSTR nokey 0 1
GETBIT nokey 0
BITCOUNT nokey
BITPOS nokey 1
BITFIELD_RO nokey GET u8 0
PFCOUNT nokey
PFCOUNT nokey hll
LCS nokey src2
DUMP nokey
MEMORY USAGE nokey
RANDOMKEY
SCAN 0
KEYS nokey
DBSIZE
SWAPDB 0 1
SWAPDB 0 1
FLUSHDB
SET a 1
FLUSHALL
"#;

fn command(line: &str) -> Vec<Vec<u8>> {
    let words = line.split(' ').map(|word| word.replace("\"\"", ""));
    words.map(String::into_bytes).collect()
}

/// Channel and message of each event since the last call.
fn events(listener: &mut Conn, client: &mut Conn) -> Vec<(String, String)> {
    // The messages that one client causes are in order, so all events precede this one.
    client.must("PUBLISH end-of-events x");
    let mut events = Vec::new();
    loop {
        let message = listener.read().unwrap();
        let parts = message.items();
        match parts[0].text().as_str() {
            "pmessage" => events.push((parts[2].text(), parts[3].text())),
            _ => return events,
        }
    }
}

fn listener(server: &Server, classes: &str) -> (Conn, Conn) {
    let (mut listener, mut client) = (server.connect(), server.connect());
    let config = ["CONFIG", "SET", "notify-keyspace-events", classes];
    assert_eq!(client.call(&config), Value::ok());
    for line in ["SUBSCRIBE end-of-events", "PSUBSCRIBE __key*__:*"] {
        listener.must(line);
    }
    (listener, client)
}

#[test]
fn every_command_has_the_events_of_redis() {
    let (ours, oracle) = (Server::start(&[]), oracle(&[]));
    let mut both = [&ours, &oracle].map(|server| listener(server, "KEAnm"));
    let mut total = 0;
    for line in COMMANDS.lines().filter(|line| !line.is_empty()) {
        let [ours, theirs] = both.each_mut().map(|(listener, client)| {
            client.call(&command(line));
            events(listener, client)
        });
        assert_eq!(ours, theirs, "{line}");
        total += ours.len();
    }
    assert!(total > 300, "{total} events");
}

#[test]
fn keys_tell_that_they_expired_whoever_finds_out() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut listener, mut client) = listener(&server, "Ex");
    client.must("SET by-the-thread x PX 1");
    let message = listener.read().unwrap();
    assert_eq!(message.items()[2].text(), "__keyevent@0__:expired");
    assert_eq!(message.items()[3].text(), "by-the-thread");
    client.must("DEBUG SET-ACTIVE-EXPIRE 0");
    client.must("SET by-a-command x PX 1");
    let last = unix_ms() + 1;
    wait_for("the end of its life", || unix_ms() > last);
    client.must("INCR by-a-command");
    let expired = ("__keyevent@0__:expired".into(), "by-a-command".into());
    assert_eq!(events(&mut listener, &mut client), [expired]);
}

/// There are no events of failed commands, and only those of the chosen classes.
#[test]
fn only_enabled_events_of_real_changes_are_published() {
    let server = Server::start(&[]);
    let (mut listener, mut client) = listener(&server, "Kl");
    for line in ["RPUSH l a", "SET s x", "LPUSH s x", "LPOP l", "LPUSH l a b"] {
        client.cmd(line);
    }
    let names = events(&mut listener, &mut client);
    let names: Vec<&str> = names.iter().map(|(_, event)| event.as_str()).collect();
    assert_eq!(names, ["rpush", "lpop", "lpush"]);
    client.call(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    let pipeline = ["CONFIG SET notify-keyspace-events Kg", "DEL l", "DEL s"];
    let pipeline: Vec<_> = pipeline.iter().map(|line| args(line)).collect();
    client.pipeline(&pipeline);
    assert_eq!(events(&mut listener, &mut client).len(), 2);
}

/// In a transaction, events and messages keep the order of the commands.
#[test]
fn events_and_messages_keep_their_order() {
    let server = Server::start(&[]);
    let (mut listener, mut client) = listener(&server, "E$");
    let lines = [
        "MULTI",
        "SET a 1",
        "PUBLISH end-of-events 1",
        "SET b 1",
        "EXEC",
    ];
    let lines: Vec<_> = lines.iter().map(|line| args(line)).collect();
    client.pipeline(&lines);
    let mut last = || listener.read().unwrap().items().last().cloned().unwrap();
    assert_eq!([last(), last(), last()], ["a", "1", "b"].map(Value::bulk));
}

/// A command that finds elements whose time is over removes them before it does anything else, and
/// clients are told so in this order.
#[test]
fn what_is_over_is_told_before_what_the_command_does() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut listener, mut client) = listener(&server, "Eghs");
    client.must("DEBUG SET-ACTIVE-EXPIRE 0");
    for (line, want) in [
        (
            "HGETEX h EX 100 FIELDS 2 a stays",
            &["hexpired", "hexpire"][..],
        ),
        ("HEXPIRE h 100 FIELDS 2 a stays", &["hexpired", "hexpire"]),
        (
            "HGETEX h PX 0 FIELDS 2 a stays",
            &["hexpired", "hdel", "del"],
        ),
        ("HDEL h a stays", &["hexpired", "hdel", "del"]),
        ("HGETDEL h FIELDS 2 a stays", &["hexpired", "hdel", "del"]),
        ("HINCRBY h a 2", &["hexpired", "hincrby"]),
        ("SEXPIRE t 100 MEMBERS 2 a stays", &["sexpired", "sexpire"]),
        ("SREM t a stays", &["sexpired", "srem", "del"]),
    ] {
        client.must("DEL h t");
        client.must("HSET h stays 1");
        client.must("HSETEX h PX 1 FIELDS 1 a 1");
        client.must("SADD t stays");
        client.must("SADDEX t PX 1 MEMBERS 1 a");
        let last = unix_ms() + 1;
        wait_for("the end of their time", || unix_ms() > last);
        events(&mut listener, &mut client);
        client.must(line);
        let seen = events(&mut listener, &mut client);
        let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
        let want: Vec<_> = want
            .iter()
            .map(|name| format!("__keyevent@0__:{name}"))
            .collect();
        assert_eq!(names, want, "{line}");
    }
}

/// Members of sets that expire have the events of fields, in the words of sets.
#[test]
fn times_of_members_have_events() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut listener, mut client) = listener(&server, "Egs");
    client.must("DEBUG SET-ACTIVE-EXPIRE 0");
    let at = unix_ms() + 60_000;
    for (line, want) in [
        ("SADD t a b c d".to_owned(), &["sadd"][..]),
        (format!("SPEXPIREAT t {at} MEMBERS 2 a x"), &["sexpire"]),
        (format!("SPEXPIREAT t {at} NX MEMBERS 2 a x"), &[]),
        ("STTL t MEMBERS 1 a".to_owned(), &[]),
        ("SPERSIST t MEMBERS 2 a b".to_owned(), &["spersist"]),
        ("SPERSIST t MEMBERS 1 a".to_owned(), &[]),
        ("SEXPIRE t 0 MEMBERS 2 a x".to_owned(), &["srem"]),
        (
            format!("SADDEX t PXAT {at} MEMBERS 2 a b"),
            &["sadd", "sexpire"],
        ),
        ("SADDEX t MNX MEMBERS 1 a".to_owned(), &[]),
        ("SADDEX t PXAT 1 MEMBERS 2 a b".to_owned(), &["srem"]),
        ("SADDEX t PXAT 1 MEMBERS 1 none".to_owned(), &[]),
        ("SEXPIRE t 0 MEMBERS 2 c d".to_owned(), &["srem", "del"]),
        (
            "SADDEX t PX 1 MEMBERS 2 a b".to_owned(),
            &["sadd", "sexpire"],
        ),
    ] {
        client.must(&line);
        let seen = events(&mut listener, &mut client);
        let want = want
            .iter()
            .map(|name| (format!("__keyevent@0__:{name}"), "t".to_owned()));
        assert_eq!(seen, want.collect::<Vec<_>>(), "{line}");
    }
    let last = unix_ms() + 1;
    wait_for("the end of their time", || unix_ms() > last);
    client.must("DEBUG SET-ACTIVE-EXPIRE 1");
    let mut seen = Vec::new();
    wait_for("the expire thread", || {
        seen.extend(events(&mut listener, &mut client));
        seen.len() >= 2
    });
    let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["__keyevent@0__:sexpired", "__keyevent@0__:del"]);
}
