//! The events of every command on a missing key, on a value of each type, and without a
//! change, compared with the oracle's.
//!
//! Each line runs with each of the keys on the same data set.

use super::{events, listener, newer};
use crate::support::{Conn, Server, Value, args, oracle};
use std::collections::BTreeSet;

/// One command to a line: `{k}` is each of [`KEYS`], `""` an empty argument.
const COMMANDS: &str = r#"
GET {k}
GETRANGE {k} 0 -1
SUBSTR {k} 0 -1
STRLEN {k}
GETDEL {k}
GETEX {k}
GETEX {k} PERSIST
GETEX {k} EX 100
GETEX {k} PXAT 1
GETSET {k} v
SET {k} v XX
SET {k} v NX
SET {k} v NX GET
SET {k} v XX GET
SET {k} v GET
SET {k} v KEEPTTL
SETNX {k} v
SETEX {k} 100 v
PSETEX {k} 100000 v
APPEND {k} ""
SETRANGE {k} 0 ""
SETRANGE {k} 5 ""
SETRANGE {k} 1 x
INCR {k}
DECR {k}
DECRBY {k} 0
INCRBY {k} 9223372036854775807
INCRBYFLOAT {k} 1
INCRBYFLOAT {k} nan
MGET {k} {k}
MSET {k} v
MSETNX {k} v
LCS {k} s
LCS s {k}
GETBIT {k} 0
SETBIT {k} 0 0
SETBIT {k} 0 1
BITCOUNT {k}
BITPOS {k} 1
BITFIELD {k} GET u8 0
BITFIELD {k} SET u8 0 0
BITFIELD {k} OVERFLOW FAIL INCRBY u2 0 9
BITFIELD {k} OVERFLOW FAIL SET u2 0 9
BITFIELD {k} OVERFLOW FAIL INCRBY u2 100 9
BITFIELD {k} OVERFLOW FAIL INCRBY u2 0 9 SET u8 8 3
BITFIELD {k} OVERFLOW FAIL INCRBY u2 0 9 GET u8 8
BITFIELD {k} INCRBY u8 0 0
BITFIELD {k}
BITFIELD_RO {k} GET u8 0
BITOP AND d {k} {k}
BITOP NOT d {k}
BITOP OR {k} s none
BITOP AND {k} none none
PFADD {k}
PFADD {k} a
PFCOUNT {k}
PFCOUNT {k} none
PFMERGE {k}
PFMERGE d {k}
PFMERGE {k} none
LPUSH {k} x
RPUSH {k} x
LPUSHX {k} x
RPUSHX {k} x
LINSERT {k} BEFORE none x
LINSERT {k} BEFORE a x
LSET {k} 0 a
LSET {k} 0 z
LSET {k} 99 z
LREM {k} 0 none
LREM {k} 0 a
LTRIM {k} 0 -1
LTRIM {k} 1 0
LPOP {k}
RPOP {k}
LPOP {k} 0
RPOP {k} 0
LPOP {k} 1
LPOP {k} -1
LMPOP 1 {k} LEFT
LMPOP 2 none {k} LEFT COUNT 10
BLMPOP 0.01 1 {k} LEFT
BLPOP {k} 0.01
BRPOP {k} 0.01
BLPOP none {k} 0.01
LMOVE {k} d LEFT LEFT
LMOVE {k} {k} LEFT RIGHT
LMOVE l {k} LEFT RIGHT
BLMOVE {k} d LEFT LEFT 0.01
BLMOVE l {k} LEFT LEFT 0.01
RPOPLPUSH {k} d
RPOPLPUSH l {k}
BRPOPLPUSH {k} d 0.01
LLEN {k}
LINDEX {k} 0
LRANGE {k} 0 -1
LPOS {k} a
HSET {k} f v
HMSET {k} f v
HSETNX {k} f v
HINCRBY {k} n 0
HINCRBY {k} f 1
HINCRBYFLOAT {k} n 0
HINCRBYFLOAT {k} f 1
HDEL {k} none
HDEL {k} f
HDEL {k} f n g
HGET {k} f
HMGET {k} f
HGETALL {k}
HKEYS {k}
HVALS {k}
HLEN {k}
HEXISTS {k} f
HSTRLEN {k} f
HSCAN {k} 0
HRANDFIELD {k}
HRANDFIELD {k} 0
HRANDFIELD {k} 2 WITHVALUES
SADD {k} a
SREM {k} none
SREM {k} a
SREM {k} a b c
SMOVE {k} d a
SMOVE {k} d none
SMOVE {k} {k} a
SMOVE t {k} a
SMOVE t {k} none
SPOP {k}
SPOP {k} 0
SPOP {k} 9
SRANDMEMBER {k}
SRANDMEMBER {k} 0
SRANDMEMBER {k} 2
SCARD {k}
SISMEMBER {k} a
SMISMEMBER {k} a
SMEMBERS {k}
SSCAN {k} 0
SINTER {k} t
SINTER t {k}
SUNION t {k}
SDIFF t {k}
SDIFF {k} t
SINTERCARD 2 {k} t
SINTERCARD 2 t {k}
SINTERSTORE d {k} t
SINTERSTORE d t {k}
SUNIONSTORE d {k} t
SDIFFSTORE d {k} t
SDIFFSTORE d t {k}
SUNIONSTORE {k} none
SINTERSTORE {k} none t
SDIFFSTORE {k} none
ZADD {k} 1 a
ZADD {k} NX 1 a
ZADD {k} XX 1 none
ZADD {k} GT 0 a
ZADD {k} XX CH 7 a
ZADD {k} INCR 0 a
ZADD {k} XX INCR 1 none
ZADD {k} NX INCR 1 a
ZINCRBY {k} 0 a
ZINCRBY {k} 1 a
ZREM {k} none
ZREM {k} a
ZREM {k} a b c
ZREMRANGEBYRANK {k} 5 9
ZREMRANGEBYRANK {k} 0 -1
ZREMRANGEBYSCORE {k} 50 90
ZREMRANGEBYSCORE {k} 0 1
ZREMRANGEBYLEX {k} [x [y
ZREMRANGEBYLEX {k} - +
ZPOPMIN {k}
ZPOPMIN {k} 0
ZPOPMAX {k} 9
ZMPOP 1 {k} MIN
ZMPOP 2 none {k} MIN COUNT 9
BZPOPMIN {k} 0.01
BZPOPMAX none {k} 0.01
BZMPOP 0.01 1 {k} MIN
ZCARD {k}
ZSCORE {k} a
ZMSCORE {k} a
ZRANK {k} a
ZREVRANK {k} a
ZRANGE {k} 0 -1
ZRANGE {k} 5 1
ZREVRANGE {k} 0 -1
ZRANGEBYSCORE {k} 0 1
ZREVRANGEBYSCORE {k} 1 0
ZRANGEBYLEX {k} - +
ZREVRANGEBYLEX {k} + -
ZCOUNT {k} 0 1
ZCOUNT {k} 5 1
ZLEXCOUNT {k} - +
ZRANDMEMBER {k}
ZRANDMEMBER {k} 0
ZRANDMEMBER {k} 3
ZSCAN {k} 0
ZUNION 2 {k} z
ZINTER 2 {k} z
ZINTER 2 z {k}
ZDIFF 2 {k} z
ZDIFF 2 z {k}
ZINTERCARD 2 {k} z
ZRANGESTORE d {k} 0 -1
ZRANGESTORE d {k} 5 9
ZRANGESTORE {k} none 0 -1
ZRANGESTORE {k} z 5 9
GEOADD {k} 1 1 a
GEODIST {k} a b
GEOHASH {k} a
GEOPOS {k} a
GEOSEARCH {k} FROMLONLAT 0 0 BYRADIUS 1 m
GEORADIUS_RO {k} 0 0 1 m
GEORADIUSBYMEMBER_RO {k} a 1 m
GEOADD {k} NX 2 2 b
GEOADD {k} XX 1 1 none
GEOSEARCHSTORE d {k} FROMLONLAT 0 0 BYRADIUS 30000 km
GEOSEARCHSTORE d {k} FROMLONLAT 10 10 BYRADIUS 1 m
GEOSEARCHSTORE {k} none FROMLONLAT 0 0 BYRADIUS 1 m
GEORADIUS {k} 0 0 30000 km STORE d
GEORADIUS {k} 10 10 1 m STOREDIST {k}
GEORADIUSBYMEMBER {k} a 1 m STORE d
ZUNIONSTORE d 2 {k} z
ZINTERSTORE d 2 {k} z
ZINTERSTORE d 2 z {k}
ZDIFFSTORE d 2 {k} z
ZDIFFSTORE d 2 z {k}
ZUNIONSTORE {k} 1 none
ZINTERSTORE {k} 1 none
ZDIFFSTORE {k} 1 none
XADD {k} NOMKSTREAM 9-1 f v
XADD {k} 9-1 f v
XADD {k} 0-1 f v
XADD {k} MAXLEN 1 9-9 f v
XADD {k} MAXLEN 0 9-9 f v
XDEL {k} 8-8
XDEL {k} 1-1
XDEL {k} 1-1 2-1 3-1
XTRIM {k} MAXLEN 100
XTRIM {k} MAXLEN 1
XTRIM {k} MAXLEN 0
XTRIM {k} MINID 0
XLEN {k}
XRANGE {k} - +
XREVRANGE {k} + -
XREAD STREAMS {k} 0
XREAD STREAMS {k} $
XREAD STREAMS none {k} 0 0
XREAD BLOCK 10 STREAMS {k} $
XREADGROUP GROUP g c STREAMS {k} >
XREADGROUP GROUP g c STREAMS {k} 0
XREADGROUP GROUP none c STREAMS {k} >
XREADGROUP GROUP g new STREAMS {k} >
XREADGROUP GROUP g new2 STREAMS {k} 0
XREADGROUP GROUP g c NOACK STREAMS {k} >
XREADGROUP GROUP g c BLOCK 10 STREAMS {k} >
XREADGROUP GROUP g c STREAMS st {k} > >
XACK {k} g 1-1
XACK {k} none 1-1
XACK {k} g 8-8
XPENDING {k} g
XPENDING {k} none
XPENDING {k} g - + 10
XCLAIM {k} g c 0 1-1
XCLAIM {k} none c 0 1-1
XCLAIM {k} g c 0 8-8
XCLAIM {k} g new3 0 8-8
XCLAIM {k} g c 0 1-1 JUSTID
XCLAIM {k} g c 0 3-1 FORCE
XAUTOCLAIM {k} g c 0 0
XAUTOCLAIM {k} none c 0 0
XAUTOCLAIM {k} g new4 0 0
XAUTOCLAIM {k} g c 99999999 0
XINFO STREAM {k}
XINFO STREAM {k} FULL
XINFO GROUPS {k}
XINFO CONSUMERS {k} g
XINFO CONSUMERS {k} none
XGROUP CREATE {k} g2 $
XGROUP CREATE {k} g $
XGROUP CREATE {k} g3 $ MKSTREAM
XGROUP SETID {k} g 0
XGROUP SETID {k} none 0
XGROUP DESTROY {k} g
XGROUP DESTROY {k} none
XGROUP CREATECONSUMER {k} g cc
XGROUP CREATECONSUMER {k} g c0
XGROUP CREATECONSUMER {k} none cc
XGROUP DELCONSUMER {k} g c0
XGROUP DELCONSUMER {k} g none
XGROUP DELCONSUMER {k} none c
XSETID {k} 9-9
XSETID {k} 1-0
XSETID {k} 9-9 ENTRIESADDED 9 MAXDELETEDID 1-1
EXISTS {k}
TYPE {k}
TTL {k}
PTTL {k}
EXPIRETIME {k}
PEXPIRETIME {k}
TOUCH {k}
OBJECT ENCODING {k}
OBJECT REFCOUNT {k}
OBJECT IDLETIME {k}
OBJECT FREQ {k}
DUMP {k}
MEMORY USAGE {k}
DEBUG OBJECT {k}
EXPIRE {k} 100
EXPIRE {k} 100 XX
EXPIRE {k} 100 GT
EXPIRE {k} 0
EXPIREAT {k} 1
EXPIREAT {k} 99999999999 NX
PEXPIRE {k} 100000 LT
EXPIRE {k} -1 XX
PEXPIREAT {k} 1
PERSIST {k}
RENAME {k} d
RENAME {k} {k}
RENAME s {k}
RENAMENX {k} d
RENAMENX {k} {k}
RENAMENX s {k}
MOVE {k} 1
COPY {k} d
COPY {k} d REPLACE
COPY s {k}
COPY s {k} REPLACE
COPY none {k}
DEL {k}
DEL {k} {k}
UNLINK {k}
SORT {k}
SORT {k} ALPHA
SORT {k} BY nosort GET w_* GET #
SORT {k} BY w_*->f
SORT_RO {k} ALPHA
SORT {k} ALPHA STORE d
SORT none STORE {k}
SORT {k} LIMIT 0 0 STORE {k}
RESTORE {k} 0 x
MIGRATE 127.0.0.1 1 {k} 0 10
SCAN 0 TYPE string
RANDOMKEY
KEYS {k}
EVAL return(1) 1 {k}
WATCH {k}
"#;

/// Likewise, for an oracle of Redis 8.
const FIELDS: &str = r#"
HTTL {k} FIELDS 1 f
HPTTL {k} FIELDS 1 f
HEXPIRETIME {k} FIELDS 1 f
HPEXPIRETIME {k} FIELDS 1 f
HEXPIRE {k} 100 FIELDS 1 none
HEXPIRE {k} 100 FIELDS 2 f none
HEXPIRE {k} 100 XX FIELDS 1 n
HPEXPIRE {k} 100000 NX FIELDS 2 f n
HEXPIREAT {k} 1 FIELDS 1 f
HPEXPIREAT {k} 1 FIELDS 2 f n
HPERSIST {k} FIELDS 2 f n
HPERSIST {k} FIELDS 1 none
HGETEX {k} FIELDS 1 f
HGETEX {k} PERSIST FIELDS 2 f n
HGETEX {k} EX 100 FIELDS 2 f none
HGETEX {k} PXAT 1 FIELDS 2 f n
HSETEX {k} FIELDS 1 f w
HSETEX {k} FNX FIELDS 1 f w
HSETEX {k} FXX FIELDS 1 none w
HSETEX {k} EX 100 FIELDS 2 f w g w
HSETEX {k} KEEPTTL FIELDS 1 f w
HSETEX {k} PXAT 1 FIELDS 2 f w n w
HGETDEL {k} FIELDS 1 none
HGETDEL {k} FIELDS 2 f n
"#;

/// A missing key, and one of each type; also a number and a key with an expiry.
const KEYS: [&str; 9] = ["none", "s", "n", "exp", "l", "h", "t", "z", "st"];

/// The commands that create the data set.
const DATA: [&str; 15] = [
    "DEL none s n exp l h t z st d w_a",
    "SET s string",
    "SET n 5",
    "RPUSH l a b c",
    "HSET h f v n 1",
    "SADD t a b c",
    "ZADD z 1 a 2 b 3 c",
    "XADD st 1-1 f v",
    "XADD st 2-1 f v",
    "XADD st 3-1 f v",
    "XGROUP CREATE st g 0",
    "XREADGROUP GROUP g c0 COUNT 2 STREAMS st >",
    "SET d x",
    "SET w_a 1",
    "SET exp x EX 1000",
];

/// An event that the oracle (7.0) does not have for a consumer that XCLAIM creates (7.2).
const NEWER: &str = "xgroup-createconsumer";

fn words(line: &str) -> Vec<Vec<u8>> {
    super::command(line)
}

fn set_up(client: &mut Conn) {
    let data: Vec<_> = DATA.iter().map(|line| args(line)).collect();
    for (line, reply) in DATA.iter().zip(client.pipeline(&data)) {
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
}

#[test]
fn on_no_key_other_types_and_without_change() {
    let flags = ["--enable-debug-command", "yes"];
    let (ours, oracle) = (Server::start(&flags), oracle(&flags));
    let mut both = [&ours, &oracle].map(|server| listener(server, "EAnm"));
    let mut differences = Vec::new();
    let reads = commands(&mut ours.connect(), |said| {
        said[2].items().contains(&Value::simple("readonly"))
    });
    let mut is_set_up = false;
    let (mut lines, mut total) = (0, 0);
    let has_fields = oracle.connect().must("COMMAND INFO HSETEX");
    let has_fields = matches!(has_fields.items(), [Value::Array(_)]);
    let more = FIELDS.lines().filter(|_| has_fields);
    for line in COMMANDS.lines().chain(more).filter(|line| !line.is_empty()) {
        let keys = if line.contains("{k}") {
            &KEYS[..]
        } else {
            &KEYS[..1]
        };
        for key in keys {
            let line = line.replace("{k}", key);
            let [ours, theirs] = both.each_mut().map(|(listener, client)| {
                if !is_set_up {
                    set_up(client);
                    events(listener, client);
                }
                client.call(&words(&line));
                let mut seen = events(listener, client);
                if line.starts_with("XCLAIM") || line.starts_with("XAUTOCLAIM") {
                    seen.retain(|(channel, _)| !channel.ends_with(NEWER));
                }
                if line.starts_with("SORT") {
                    // The order of events follows the order of the set, which differs between
                    // servers.
                    seen.sort();
                }
                client.must("UNWATCH");
                seen
            });
            let name = line.split(' ').next().unwrap_or_default();
            is_set_up = reads.contains(&name.to_ascii_lowercase());
            (lines, total) = (lines + 1, total + ours.len());
            if ours != theirs {
                differences.push(format!("{line}\n  ours   {ours:?}\n  theirs {theirs:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(lines > 2500 && total > 800, "{lines} lines, {total} events");
}

/// The names of the commands whose COMMAND reply fits.
fn commands(client: &mut Conn, is_said: impl Fn(&[Value]) -> bool) -> BTreeSet<String> {
    let all = client.must("COMMAND");
    let all = all.items().iter().map(Value::items);
    let such = all.filter(|said| is_said(said));
    such.map(|said| said[0].text()).collect()
}

/// Commands whose keys are channels, that run scripts, or that are for developers and other
/// servers.
const NO_KEYS: [&str; 10] = [
    "pfdebug",
    "spublish",
    "ssubscribe",
    "sunsubscribe",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "restore-asking",
];

#[test]
fn no_command_with_keys_is_left_out() {
    let server = Server::start(&[]);
    let mut missing = commands(&mut server.connect(), |said| !said[8].items().is_empty());
    for line in COMMANDS.lines().chain(FIELDS.lines()) {
        let name = line.split(' ').next().unwrap_or_default();
        missing.remove(&name.to_ascii_lowercase());
    }
    for name in newer::names() {
        missing.remove(&name);
    }
    for name in NO_KEYS {
        assert!(missing.remove(name), "{name} is no command with keys");
    }
    assert!(missing.is_empty(), "{missing:?}");
}
