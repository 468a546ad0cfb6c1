//! Every command on keys that are not in memory.

use super::{COLD, chilled, reads_of_io_threads};
use crate::support::checks::check;
use crate::support::{Conn, Server, Value, args};
use std::collections::BTreeSet;

/// One command to a line, each on keys of its own: `#` is a number, `{sha}` the name of a script.
const COMMANDS: &str = r#"
GET s#
STRLEN s#
GETRANGE s# 10 20
SETRANGE s# 5000 abc
APPEND s# abc
GETSET s# abc
GETDEL s#
GETEX s# PERSIST
SET s# abc KEEPTTL GET
SET s# abc NX
INCR n#
INCRBYFLOAT n# 1.5
INCREX n# BYINT 2 EX 1000
SET s# abc IFNE abc KEEPTTL
DELEX s# IFDNE 0000000000000000
DELIFEQ s# abc
DIGEST s#
BITCOUNT b#
SETBIT b# 200001 1
BITOP NOT o# b#
BITOP ONE o# b# s#
BITOP DIFF o# b# s#
BITFIELD b# INCRBY u8 100 1
PFADD p# 1 2 3
PFCOUNT p#
GETRANGE b# 30000 30010
EXISTS s# h# missing
TYPE h#
TTL s#
EXPIRE h# 1000
PERSIST t#
OBJECT ENCODING l#
RENAME h# r#
COPY h# c#
DEL h#
UNLINK z# l#
DUMP z#
SORT m# BY w* GET w*
SORT l# ALPHA LIMIT 0 5
HGET h# f77
HMGET h# f1 f50 f99 none
HGETALL h#
HSET h# f7 a f8 b new c
HSETNX h# f7 a
HINCRBY h# counter 5
HDEL h# f1 f2 none
HLEN h#
HSTRLEN h# f5
HSCAN h# 0 COUNT 500
HEXISTS h# f7
LLEN l#
LINDEX l# 50
LRANGE l# 10 20
LRANGE l# 0 -1
LPUSH l# a b
RPOP l# 3
LSET l# 30 x
LINSERT l# BEFORE item40 x
LREM l# 1 item60
LTRIM l# 10 30
LPOS l# item70
LMOVE l# o# LEFT RIGHT
LMOVEM l# o# LEFT LEFT COUNT 20 BULK
BLMOVEM l# l# LEFT RIGHT 0 EXACTLY 3 OBO
BLPOP l# 0
BLMOVE l# m# LEFT LEFT 0
SADD e# m1 new1
SISMEMBER e# m50
SMISMEMBER e# m1 m2 none
SREM e# m1 m2
SCARD e#
SSCAN e# 0 COUNT 500
SINTER e# f#
SINTERCARD 2 e# f#
SUNIONCARD 2 e# f#
SDIFFCARD 2 e# f# LIMIT 3
SUNIONSTORE o# e# f#
SDIFF e# f#
SMOVE e# f# m70
ZADD z# 5 m1 6 new
ZSCORE z# m50
ZMSCORE z# m1 m99 none
ZINCRBY z# 3 m20
ZRANK z# m20
ZREVRANK z# m20
ZCOUNT z# 10 50
ZRANGE z# 10 20 WITHSCORES
ZRANGE z# (10 50 BYSCORE LIMIT 5 5
ZREVRANGE z# 0 5
ZREMRANGEBYRANK z# 0 10
ZREMRANGEBYSCORE z# 50 60
ZPOPMIN z# 2
ZPOPMAX z# 2
ZUNIONSTORE o# 2 z# y#
ZINTER 2 z# y#
ZRANGESTORE o# z# 0 20
XLEN x#
XRANGE x# 10 20
XREVRANGE x# + - COUNT 3
XADD x# 1000-1 a b
XDEL x# 50-1
XTRIM x# MAXLEN 20
XREAD COUNT 5 STREAMS x# 60
XREADGROUP GROUP g c COUNT 5 STREAMS x# >
XPENDING x# g
XACK x# g 1-1 2-1
XINFO STREAM x#
EVAL return{redis.call('get',KEYS[1]),redis.call('hget',KEYS[2],'f9')} 2 s# h#
EVAL return{redis.call('incr',KEYS[1]),redis.call('zscore',KEYS[2],'m9')} 2 n# z#
MGET s# t# n# missing
MSET s# a t# b
MSETNX s# a new# b
MSETEX 2 s# a t# b XX KEEPTTL
WATCH s# h#
TOUCH s# h#
RANDOMKEY
MEMORY USAGE l#
DECR n#
DECRBY n# 3
INCRBY n# 3
SETEX s# 100 v
PSETEX s# 100000 v
SETNX s# v
SUBSTR s# 0 5
GETBIT b# 9
BITPOS b# 1
BITFIELD_RO b# GET u8 0
LCS t# n#
EXPIREAT s# 9999999999
EXPIRETIME s#
PEXPIRE s# 1000000
PEXPIREAT s# 9999999999999
PEXPIRETIME s#
PTTL s#
RENAMENX h# r#
MOVE h# 3
RESTORE s# 0 payload
RESTORE-ASKING s# 0 payload
MIGRATE 127.0.0.1 1 s# 0 100
KEYS s#*
SCAN 0 COUNT 100
DBSIZE
SORT_RO m# BY w* GET w*
OBJECT FREQ s#
OBJECT IDLETIME s#
OBJECT REFCOUNT s#
PFMERGE o# p#
PFDEBUG ENCODING p#
HMSET h# f7 a
HKEYS h#
HVALS h#
HRANDFIELD h# 300
HINCRBYFLOAT h# counter 1.5
HEXPIRE h# 1000 FIELDS 2 f1 f2
HEXPIREAT h# 9999999999 FIELDS 1 f1
HEXPIRETIME h# FIELDS 1 f1
HPEXPIRE h# 1000000 FIELDS 1 f1
HPEXPIREAT h# 9999999999999 FIELDS 1 f1
HPEXPIRETIME h# FIELDS 1 f1
HPERSIST h# FIELDS 1 f1
HPTTL h# FIELDS 1 f1
HTTL h# FIELDS 1 f1
HGETDEL h# FIELDS 2 f3 f4
HGETEX h# EX 100 FIELDS 1 f3
HSETEX h# EX 100 FIELDS 1 f3 v
HIMPORT SET h# fields 1 2
BLMPOP 0 1 l# LEFT COUNT 3
BRPOP l# 0
BRPOPLPUSH l# o# 0
LMPOP 1 l# LEFT
LPOP l#
LPUSHX l# a
RPUSHX l# a
RPUSH l# a
RPOPLPUSH l# o#
SEXPIRE e# 1000 MEMBERS 1 m5
SPEXPIRE e# 100000 MEMBERS 1 m5
SEXPIREAT e# 4000000000 MEMBERS 1 m5
SPEXPIREAT e# 4000000000000 MEMBERS 1 m5
STTL e# MEMBERS 1 m5
SPTTL e# MEMBERS 1 m5
SEXPIRETIME e# MEMBERS 1 m5
SPEXPIRETIME e# MEMBERS 1 m5
SPERSIST e# MEMBERS 1 m5
SADDEX e# EX 1000 MEMBERS 2 m5 new
SINTERSTORE o# e# f#
SDIFFSTORE o# e# f#
SMEMBERS e#
SPOP e# 3
SRANDMEMBER e# 3
SUNION e# f#
BZMPOP 0 1 z# MIN COUNT 2
BZPOPMAX z# 0
BZPOPMIN z# 0
ZCARD z#
ZDIFF 2 z# y#
ZDIFFSTORE o# 2 z# y#
ZINTERCARD 2 z# y#
ZINTERSTORE o# 2 z# y#
ZLEXCOUNT z# - +
ZMPOP 1 z# MIN
ZRANDMEMBER z# 3
ZRANGEBYLEX z# - + LIMIT 0 3
ZRANGEBYSCORE z# 1 5
ZREM z# m1 m50
ZREMRANGEBYLEX z# [m1 [m2
ZREVRANGEBYLEX z# + - LIMIT 0 3
ZREVRANGEBYSCORE z# 5 1
ZSCAN z# 0 COUNT 500
ZUNION 2 z# y#
GEOADD g# 1 1 new
GEODIST g# g1 g90
GEOHASH g# g1 g50
GEOPOS g# g1 g50
GEORADIUS g# 0 0 1000 km ASC
GEORADIUS_RO g# 0 0 1000 km ASC
GEORADIUSBYMEMBER g# g1 1000 km ASC
GEORADIUSBYMEMBER_RO g# g1 1000 km ASC
GEOSEARCH g# FROMMEMBER g1 BYRADIUS 1000 km ASC
GEOSEARCHSTORE o# g# FROMMEMBER g1 BYRADIUS 1000 km
XAUTOCLAIM x# g c2 0 0 COUNT 5
XCLAIM x# g c2 0 1-1
XGROUP CREATE x# g2 0
XGROUP CREATECONSUMER x# g c3
XGROUP DELCONSUMER x# g c
XGROUP DESTROY x# g
XGROUP SETID x# g 0
XINFO CONSUMERS x# g
XINFO GROUPS x#
XSETID x# 2000-0
XACKDEL x# g IDS 2 1-1 2-1
XDELEX x# IDS 2 50-1 99-1
XNACK x# g FAIL IDS 1 1-1
XCFGSET x# IDMP-DURATION 100
XIDMPRECORD x# p i 1-1
EVAL_RO return{redis.call('get',KEYS[1]),redis.call('hget',KEYS[2],'f9')} 2 s# h#
EVALSHA {sha} 1 s#
EVALSHA_RO {sha} 1 s#
FCALL f 1 s#
FCALL_RO f 1 s#
SIADD i# 3
SICARD i#
SIEXISTS i# 5 6
SIRANGE i# 0 10
SIREVRANGE i# 0 10
SIRANGEBYVALUE i# 0 100
SIREVRANGEBYVALUE i# 100 0
SIREM i# 5 300
BF.ADD q# new
BF.MADD q# new old
BF.EXISTS q# item5
BF.MEXISTS q# item5 none
BF.CARD q#
BF.INFO q#
BF.INSERT q# ITEMS a b
BF.RESERVE q# 0.01 100
BF.SCANDUMP q# 1
BF.LOADCHUNK q# 2 chunk
BF.DEBUG q#
CF.ADD u# new
CF.ADDNX u# item5
CF.COUNT u# item5
CF.DEL u# item5
CF.EXISTS u# item5
CF.MEXISTS u# item5 none
CF.INSERT u# ITEMS a b
CF.INSERTNX u# ITEMS item5 b
CF.INFO u#
CF.COMPACT u#
CF.DEBUG u#
CF.SCANDUMP u# 1
CF.LOADCHUNK u# 2 chunk
CF.RESERVE u# 100
CMS.INITBYDIM k# 10 10
CMS.INITBYPROB k# 0.1 0.1
CMS.INCRBY k# item5 3
CMS.QUERY k# item5 none
CMS.INFO k#
CMS.MERGE k# 1 k#
TDIGEST.CREATE d#
TDIGEST.ADD d# 5
TDIGEST.RESET d#
TDIGEST.MIN d#
TDIGEST.MAX d#
TDIGEST.QUANTILE d# 0.5
TDIGEST.CDF d# 5
TDIGEST.RANK d# 5
TDIGEST.REVRANK d# 5
TDIGEST.BYRANK d# 5
TDIGEST.BYREVRANK d# 5
TDIGEST.TRIMMED_MEAN d# 0.1 0.9
TDIGEST.INFO d#
TDIGEST.MERGE o# 1 d#
TOPK.RESERVE a# 10
TOPK.ADD a# item5
TOPK.COUNT a# item5
TOPK.INCRBY a# item5 10
TOPK.INFO a#
TOPK.LIST a#
TOPK.QUERY a# item5 none
JSON.ARRAPPEND j# $.list 1
JSON.ARRINDEX j# $.list 5
JSON.ARRINSERT j# $.list 0 1
JSON.ARRLEN j# $.list
JSON.ARRPOP j# $.list
JSON.ARRTRIM j# $.list 1 5
JSON.CLEAR j# $.list
JSON.DEBUG MEMORY j#
JSON.DEL j# $.m5
JSON.FORGET j# $.m5
JSON.GET j# $.m5 $.list
JSON.GET j# $..m5
JSON.GET j# $.list.append(1).count()
JSON.MERGE j# $.m5 {"a":1}
JSON.MGET j# j# $.m50
JSON.MSET j# $.m5 1
JSON.NUMINCRBY j# $.list[5] 1
JSON.NUMMULTBY j# $.list[5] 2
JSON.NUMPOWBY j# $.list[5] 2
JSON.OBJKEYS j# $
JSON.OBJLEN j# $
JSON.RESP j# $.m5
JSON.SET j# $.m5 1
JSON.STRAPPEND j# $.m5 "x"
JSON.STRLEN j# $.m5
JSON.TOGGLE j# $.flag
JSON.TYPE j# $.m5
DEBUG OBJECT l#
DEBUG DIGEST-VALUE l# h#
DEBUG DIGEST
DEBUG KEDIS-CHECK
DEBUG POPULATE 5 populated#
"#;

/// Commands of [`COMMANDS`] whose replies are not those of another server with the same data.
const DIFFER: [&str; 13] = [
    "DEBUG",
    "DUMP",
    "HSCAN",
    "JSON.DEBUG",
    "MEMORY",
    "OBJECT",
    "RANDOMKEY",
    "SCAN",
    "SPOP",
    "SRANDMEMBER",
    "SSCAN",
    "XINFO",
    "ZRANDMEMBER",
];

/// Commands without keys that are not run here: they end the connection or the server, turn the
/// connection into something else, make other clients wait, queue what follows, or have more than one
/// reply.
const NOT_RUN: &str = "client|pause client|reply discard exec failover flushall flushdb hello \
    monitor multi psubscribe psync punsubscribe quit replconf replicaof reset shutdown slaveof subscribe \
    swapdb sync unsubscribe";

/// Subcommands of DEBUG that read no rows.
const DEBUG_READS_NOTHING: &str = "CHANGE-REPL-ID DICT-RESIZING ERROR HELP KEDIS-DELAY-READS LOADAOF LOG \
    PAUSE-CRON PROTOCOL QUICKLIST-PACKED-THRESHOLD RELOAD REPLYBUFFER SET-ACTIVE-EXPIRE \
    SET-DISABLE-DENY-SCRIPTS SET-SKIP-CHECKSUM-VALIDATION SLEEP";

/// How a command runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Alone,
    /// After a command that concerns whole DBs.
    InExec,
    /// After a command that cannot be taken back as well.
    InLastingExec,
    /// With undeclared keys.
    InScript,
}

const FORMS: [Form; 4] = [
    Form::Alone,
    Form::InExec,
    Form::InLastingExec,
    Form::InScript,
];

impl Form {
    /// Runs the command of a line.
    fn run(self, conn: &mut Conn, line: &str) -> Value {
        let before: &[&str] = match self {
            Form::Alone => return conn.cmd(line),
            Form::InScript => {
                let mut script = args("EVAL return{redis.call(unpack(ARGV))} 0");
                script.extend(args(line));
                return conn.call(&script);
            }
            Form::InExec => &[
                "SELECT 9",
                "SET other 1",
                "SWAPDB 8 9",
                "FLUSHDB",
                "SELECT 0",
            ],
            Form::InLastingExec => &["SELECT 9", "SET other 1", "FLUSHDB", "SELECT 0", LASTING],
        };
        conn.must("MULTI");
        before.iter().for_each(|line| drop(conn.must(line)));
        let queued = conn.cmd(line);
        let mut replies = match conn.cmd("EXEC") {
            Value::Array(replies) => replies,
            // It was refused.
            other => vec![queued, other],
        };
        replies.drain(..before.len().min(replies.len() - 1));
        Value::Array(replies)
    }
}

/// Stays although the transaction might be taken back.
const LASTING: &str = "CONFIG SET slowlog-max-len 128";

fn lines() -> impl Iterator<Item = &'static str> {
    COMMANDS.lines().filter(|line| !line.is_empty())
}

/// The line that is run in this form, on keys of its own.
fn made(line: &str, number: usize, form: Form, sha: &str) -> String {
    let number = number * FORMS.len() + form as usize;
    line.replace('#', &number.to_string()).replace("{sha}", sha)
}

/// Creates the keys of a line.
fn needs(line: &str, number: usize, form: Form) -> Vec<Vec<Vec<u8>>> {
    let padding = "p".repeat(100);
    let mut commands = Vec::new();
    let words: BTreeSet<&str> = line.split(' ').collect();
    for word in words {
        let &[kind, b'#'] = word.as_bytes() else {
            continue;
        };
        let key = made(word, number, form, "");
        let of_each = |each: &dyn Fn(usize) -> String| {
            let lines = (0..100).map(each).collect::<Vec<_>>();
            lines.iter().map(|line| args(line)).collect::<Vec<_>>()
        };
        let one = |line: String| vec![args(&line)];
        let after = |line: String, mut rest: Vec<_>| {
            rest.insert(0, args(&line));
            rest
        };
        commands.extend(match kind {
            b's' => one(format!("SET {key} {}", padding.repeat(30))),
            b't' => one(format!("SET {key} {padding} EX 100000")),
            b'n' => one(format!("SET {key} 41")),
            b'b' => one(format!("SETBIT {key} 400000 1")),
            b'p' => one(format!("PFADD {key} a b c d")),
            b'm' => one(format!("RPUSH {key} 3 1 2")),
            b'h' => of_each(&|i| format!("HSET {key} f{i} {padding}{i}")),
            b'l' => of_each(&|i| format!("RPUSH {key} item{i} {padding}")),
            b'e' => of_each(&|i| format!("SADD {key} m{i} {padding}{i}")),
            b'f' => of_each(&|i| format!("SADD {key} m{i} x{padding}{i}")),
            b'z' => of_each(&|i| format!("ZADD {key} {i} m{i} {i} {padding}{i}")),
            b'y' => of_each(&|i| format!("ZADD {key} {i} m{i}")),
            b'g' => of_each(&|i| format!("GEOADD {key} 0.{i} 0.{i} g{i}")),
            b'i' => of_each(&|i| format!("SIADD {key} {}", 5 * i)),
            b'x' => {
                let mut made = of_each(&|i| format!("XADD {key} {}-1 field {padding}", i + 1));
                made.insert(0, args(&format!("XGROUP CREATE {key} g 0 MKSTREAM")));
                let read = format!("XREADGROUP GROUP g c COUNT 10 STREAMS {key} >");
                made.push(args(&read));
                made
            }
            b'q' => after(
                format!("BF.RESERVE {key} 0.01 5000"),
                of_each(&|i| format!("BF.ADD {key} item{i}")),
            ),
            b'u' => after(
                format!("CF.RESERVE {key} 5000"),
                of_each(&|i| format!("CF.ADD {key} item{i}")),
            ),
            b'k' => after(
                format!("CMS.INITBYDIM {key} 500 5"),
                of_each(&|i| format!("CMS.INCRBY {key} item{i} {i}")),
            ),
            b'd' => after(
                format!("TDIGEST.CREATE {key}"),
                of_each(&|i| format!("TDIGEST.ADD {key} {i}")),
            ),
            b'a' => after(
                format!("TOPK.RESERVE {key} 10 500 5 0.9"),
                of_each(&|i| format!("TOPK.ADD {key} item{i}")),
            ),
            b'j' => {
                let list = (0..100)
                    .map(|i| i.to_string())
                    .collect::<Vec<_>>()
                    .join(",");
                let document = format!(r#"{{"flag":true,"list":[{list}]}}"#);
                after(
                    format!("JSON.SET {key} $ {document}"),
                    of_each(&|i| format!(r#"JSON.SET {key} $.m{i} "{padding}{padding}""#)),
                )
            }
            // Keys that are written only.
            b'c' | b'o' | b'r' => continue,
            _ => panic!("{line}: no such kind of key: {key}"),
        });
    }
    commands
}

const FUNCTIONS: &str = "#!lua name=functions\nredis.register_function{function_name='f',\
    callback=function(keys)return#redis.call('get',keys[1])end,flags={'no-writes'}}";

/// Every command on keys that are not in memory answers as on keys that are, and no IO thread
/// reads from the disk for it: alone, in transactions and in scripts.
#[test]
fn commands_answer_the_same_and_no_io_thread_reads_the_disk() {
    let load = |conn: &mut Conn| {
        conn.call(&["FUNCTION", "LOAD", FUNCTIONS]);
        for (n, line) in lines().enumerate() {
            for form in FORMS {
                let done = conn.pipeline(&needs(line, n, form));
                let failed = done.iter().find(|reply| reply.error().is_some());
                assert_eq!(failed, None, "{line}");
            }
        }
    };
    let in_memory = Server::start(&["--enable-debug-command", "yes"]);
    let mut warm = in_memory.connect();
    load(&mut warm);
    let server = chilled(COLD, load);
    let mut cold = server.connect();
    let script = ["SCRIPT", "LOAD", "return#redis.call('get',KEYS[1])"];
    let sha = cold.call(&script).text();
    warm.call(&script);
    for conn in [&mut cold, &mut warm] {
        conn.must("HIMPORT PREPARE fields a b");
    }
    for (n, line) in lines().enumerate() {
        for form in FORMS {
            let line = made(line, n, form, &sha);
            let (found, expected) = (form.run(&mut cold, &line), form.run(&mut warm, &line));
            assert!(
                are_alike(&line, &found, &expected),
                "{form:?}: {line}: {found:?} instead of {expected:?}"
            );
            let reads = reads_of_io_threads(&mut cold);
            assert_eq!(reads, 0, "{form:?}: {line}");
        }
    }
    assert!(cold.info_number("rocksdb", "total_parked_commands") > lines().count() as u64);
    for name in without_keys(&mut cold) {
        let named = name.to_uppercase().replace('|', " ");
        for line in [named.clone(), format!("{named} 1"), format!("{named} 1 1")] {
            cold.cmd(&line);
        }
        assert_eq!(reads_of_io_threads(&mut cold), 0, "{name}");
    }
    for line in [
        "SELECT 0",
        "DEBUG RELOAD",
        "SWAPDB 0 1",
        "FLUSHDB",
        "FLUSHALL",
    ] {
        assert_eq!(cold.cmd(line), Value::ok(), "{line}");
    }
    assert_eq!(reads_of_io_threads(&mut cold), 0);
    assert!(check(&mut cold).is_ok());
}

fn are_alike(line: &str, found: &Value, expected: &Value) -> bool {
    let name = line.split(' ').next().unwrap_or_default();
    if DIFFER.contains(&name) {
        return found.error().is_some() == expected.error().is_some();
    }
    sorted(found) == sorted(expected)
}

/// A reply as text. The order of fields and members depends on a hash key of each server.
fn sorted(reply: &Value) -> String {
    match reply {
        Value::Array(items) => {
            let mut texts: Vec<String> = items.iter().map(sorted).collect();
            texts.sort();
            format!("{texts:?}")
        }
        reply => format!("{reply:?}"),
    }
}

/// The names of all commands, for which `has_keys` is as said.
fn names(conn: &mut Conn, has_keys: bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let all = conn.must("COMMAND");
    for command in all.items() {
        let parts = command.items();
        let subcommands = parts[9].items();
        let rows = match subcommands.is_empty() {
            true => std::slice::from_ref(command),
            false => subcommands,
        };
        for row in rows {
            let row = row.items();
            if row[8].items().is_empty() != has_keys {
                names.insert(row[0].text());
            }
        }
    }
    names
}

/// The commands of [`COMMANDS`].
fn covered() -> BTreeSet<String> {
    let named = |line: &str| {
        let line = line.to_lowercase();
        let words: Vec<&str> = line.split(' ').collect();
        [words[0].to_owned(), words[..words.len().min(2)].join("|")]
    };
    lines().flat_map(named).collect()
}

/// The commands without keys that are neither in [`COMMANDS`] nor [`NOT_RUN`].
fn without_keys(conn: &mut Conn) -> BTreeSet<String> {
    let mut names = names(conn, false);
    let covered = covered();
    names.retain(|name| !covered.contains(name));
    let unknown: Vec<&str> = NOT_RUN
        .split_whitespace()
        .filter(|name| !names.remove(*name))
        .collect();
    assert!(unknown.is_empty(), "no commands without keys: {unknown:?}");
    names
}

#[test]
fn no_command_that_reads_is_left_out() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut conn = server.connect();
    let mut missing = names(&mut conn, true);
    let covered = covered();
    missing.retain(|name| !covered.contains(name));
    // Channels, not keys.
    for name in ["spublish", "ssubscribe", "sunsubscribe"] {
        missing.remove(name);
    }
    assert!(missing.is_empty(), "{missing:?}");
    without_keys(&mut conn);
    let help = conn.must("DEBUG HELP");
    for line in help.items().iter().map(Value::text) {
        for topic in line.split(", ").filter(|_| !line.starts_with(' ')) {
            let name = topic.split(' ').next().unwrap_or_default();
            let known = DEBUG_READS_NOTHING
                .split_whitespace()
                .any(|known| known == name);
            let covers = covered.contains(&format!("debug|{}", name.to_lowercase()));
            assert!(
                known || covers || name == "DEBUG",
                "DEBUG {name} is not covered"
            );
        }
    }
}
