//! Commands and options that Redis 7.0 lacks: a Redis 7.0 that follows gets their effects as commands
//! that it has. Otherwise it logs an error, goes on, and differs from its master.

use std::collections::{BTreeMap, BTreeSet};

use super::redis_peers::{assert_same_values, is_linked, redis_of};
use super::{figure, server};
use crate::support::{Conn, Value, oracle, wait_for};

/// Writes with each command and each option that writes and that Redis 7.0 lacks. `{digest}` is that
/// of the key before it.
const LINES: &str = "
SET a xyz
SET b abc
SET gone x
BITOP DIFF diff a b
BITOP DIFF1 diff1 a b
BITOP ANDOR andor a b
BITOP ONE one a b
SETBIT wide 9000001 1
SETBIT wide 5000 1
SETBIT wider 9000099 1
BITOP ONE wide1 wide a wider
BITOP DIFF zeros wide wide
BITOP ANDOR rest wide wide
BITOP DIFF wide1 a wide
BITOP DIFF gone none none
BITOP ANDOR none none none
ZADD z 1 x 2 y
ZADD y 1 y 5 z
ZADD old 1 y 5 z
ZADD old2 1 y 5 z
ZUNIONSTORE zu 2 z y AGGREGATE COUNT
ZUNIONSTORE old2 2 z y AGGREGATE COUNT
ZINTERSTORE zi 2 z y WEIGHTS 2 0.5 AGGREGATE COUNT
ZINTERSTORE old 2 z none AGGREGATE COUNT
SET s v
SET s w IFEQ v
SET s w2 IFNE q EX 1000
SET s w3 IFDNE 0000000000000000 GET
SET s w4 IFDEQ {digest}
SET s2 v
DELEX s2 IFEQ v
SET s3 v
DELIFEQ s3 v
SET s4 v
DELEX s4 IFDNE 0000000000000000
SET s5 v
DELEX s5
SET s6 v
DELEX s6 IFNE w
SET s7 v
DELEX s7 IFDEQ {digest}
INCREX c BYINT 5 EX 100
INCREX c BYINT 50 UBOUND 7 SATURATE
INCREX c PERSIST
INCREX f BYFLOAT 1.5 LBOUND 1 PX 100000 ENX
INCREX e EXAT 4000000000
INCREX e2 PXAT 4000000000000
MSETEX 2 a1 1 b1 2 EX 1000
MSETEX 1 a1 2 KEEPTTL XX
MSETEX 1 a2 2 NX PXAT 4000000000000
MSETEX 2 a3 2 a4 3 EXAT 4000000000
MSETEX 1 a5 2 PX 1000000
RPUSH l a b c d e f g
LMOVEM l l2 LEFT RIGHT COUNT 2 BULK
LMOVEM l l2 RIGHT LEFT EXACTLY 2 OBO
BLMOVEM l l2 LEFT LEFT 1 COUNT 2 BULK
BLMOVEM l l2 RIGHT RIGHT 1 EXACTLY 1 OBO
GEOADD g 1 1 a 10 10 b
ZADD g3 1 x
GEOSEARCHSTORE g2 g BYPOLYGON 3 -5 -5 5 -5 0 50
GEOSEARCHSTORE g3 g BYPOLYGON 3 -5 -5 5 -5 0 50 STOREDIST
GEOSEARCHSTORE g3 g BYPOLYGON 3 -5 -5 -4 -5 -4 -4
XADD x 1-1 f v
XADD x 1-2 f v
XADD x 1-3 f v
XADD x 1-4 f v
XADD x 1-5 f v
XGROUP CREATE x group 0
XREADGROUP GROUP group c STREAMS x >
XADD x KEEPREF MAXLEN 5 1-6 f v
XADD x DELREF MAXLEN 5 1-7 f v
XADD x ACKED MAXLEN 1 1-8 f v
XTRIM x MAXLEN 5 KEEPREF
XTRIM x MAXLEN 4 DELREF
XTRIM x MAXLEN 1 ACKED
XDELEX x KEEPREF IDS 1 1-4
XDELEX x DELREF IDS 1 1-5
XDELEX x ACKED IDS 1 1-6
XADD x2 1-1 f v
XADD x2 1-2 f v
XADD x2 1-3 f v
XGROUP CREATE x2 group 0
XREADGROUP GROUP group c COUNT 3 STREAMS x2 >
XACKDEL x2 group KEEPREF IDS 1 1-1
XACKDEL x2 group DELREF IDS 1 1-2
XACKDEL x2 group ACKED IDS 1 1-3
XADD x4 1-1 f v
XADD x4 1-2 f v
XGROUP CREATE x4 group 0
XREADGROUP GROUP group c COUNT 1 STREAMS x4 >
XREADGROUP GROUP group d CLAIM 0 STREAMS x4 >
XADD x5 1-1 f v
XADD x5 1-2 f v
XADD x5 1-3 f v
XGROUP CREATE x5 group 0
XREADGROUP GROUP group c MAXCOUNT 1 STREAMS x5 >
XREADGROUP GROUP group c MAXSIZE 1000 STREAMS x5 >
HSET h a 1 b 2 c 3 d 4
HGETDEL h FIELDS 1 a
HSETEX h FNX FIELDS 2 e 1 f 2
HGETEX h FIELDS 1 e
SADDEX t MEMBERS 2 a b
HIMPORT PREPARE fieldset a b
HIMPORT SET hi fieldset 1 2
";

/// Writes of what Redis 7.0 has no form for, as the manual says: times of elements, and how streams
/// keep released entries and ids of producers. Such a replica has the elements and entries.
const WITHOUT_FORM: &[&str] = &[
    "hexpire",
    "hexpireat",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hsetex",
    "saddex",
    "sexpire",
    "sexpireat",
    "spersist",
    "spexpire",
    "spexpireat",
    "xcfgset",
    "xidmprecord",
    "xnack",
    "xadd IDMP",
    "xadd IDMPAUTO",
];

/// What is no option of its own: Redis 7.0 does not list the operations of BITOP, and MIGRATE writes
/// to other servers.
const KNOWN: &[&str] = &["bitop AND", "bitop OR", "bitop XOR", "bitop NOT", "migrate"];

/// Groups of commands that Redis has as modules, and types that it does not have.
const TYPES: &[&str] = &["json", "module", "sortedint"];

/// Group and words of options of each command.
type Docs = BTreeMap<String, (String, BTreeSet<String>)>;

fn pairs(list: &Value) -> impl Iterator<Item = (String, &Value)> {
    let (pairs, _) = list.items().as_chunks::<2>();
    pairs.iter().map(|[name, value]| (name.text(), value))
}

fn words_of(arguments: &Value, words: &mut BTreeSet<String>) {
    for argument in arguments.items() {
        for (name, value) in pairs(argument) {
            match name.as_str() {
                "token" => _ = words.insert(value.text()),
                "arguments" => words_of(value, words),
                _ => {}
            }
        }
    }
}

fn docs(conn: &mut Conn) -> Docs {
    let all = conn.must("COMMAND DOCS");
    let docs = pairs(&all).map(|(command, facts)| {
        let (mut group, mut words) = (String::new(), BTreeSet::new());
        for (name, value) in pairs(facts) {
            match name.as_str() {
                "group" => group = value.text(),
                "arguments" => words_of(value, &mut words),
                _ => {}
            }
        }
        (command, (group, words))
    });
    docs.collect()
}

/// The commands that write.
fn writing(conn: &mut Conn) -> BTreeSet<String> {
    let commands = conn.must("COMMAND");
    let writing = commands.items().iter().filter(|command| {
        let flags = command.items()[2].items();
        flags.iter().any(|flag| flag.text() == "write")
    });
    let names = writing.map(|command| command.items()[0].text());
    names.collect()
}

/// What writes here and Redis 7.0 lacks: commands, and commands with a word.
fn lacking(ours: &mut Conn, theirs: &mut Conn) -> BTreeSet<String> {
    let (writing, ours, theirs) = (writing(ours), docs(ours), docs(theirs));
    let mut lacking = BTreeSet::new();
    for (name, (group, words)) in ours {
        if !writing.contains(&name) || TYPES.contains(&group.as_str()) {
            continue;
        }
        let known = theirs.get(&name).map(|(_, words)| words);
        if known.is_none() {
            lacking.insert(name.clone());
        }
        let is_new = |word: &&String| known.is_none_or(|known| !known.contains(*word));
        lacking.extend(
            words
                .iter()
                .filter(is_new)
                .map(|word| format!("{name} {word}")),
        );
    }
    lacking
}

fn is_written(what: &str) -> bool {
    let words: Vec<&str> = what.split(' ').collect();
    LINES.lines().any(|line| {
        let line: Vec<&str> = line.split(' ').collect();
        line[0].eq_ignore_ascii_case(words[0]) && words[1..].iter().all(|word| line.contains(word))
    })
}

#[test]
fn effects_of_newer_commands_reach_an_older_replica() {
    let master = server(&[]);
    let lacking = lacking(&mut master.connect(), &mut oracle(&[]).connect());
    for what in &lacking {
        let name = what.split(' ').next().unwrap();
        let listed = |list: &[&str]| list.contains(&what.as_str()) || list.contains(&name);
        let known = is_written(what) || listed(WITHOUT_FORM) || listed(KNOWN);
        assert!(known, "{what} is not written, and Redis 7.0 lacks it");
    }
    assert!(lacking.len() > 50, "{}", lacking.len());
    let replica = redis_of(&master, &[]);
    wait_for("the link", || is_linked(&replica));
    let mut conn = master.connect();
    for line in LINES.lines().filter(|line| !line.is_empty()) {
        let key = line.split(' ').nth(1).unwrap();
        let line = match line.contains("{digest}") {
            true => line.replace("{digest}", &conn.must(&format!("DIGEST {key}")).text()),
            false => line.to_owned(),
        };
        conn.must(&line);
    }
    conn.must("SET last 1");
    let mut there = replica.connect();
    wait_for("the end", || there.must("EXISTS last") == Value::Int(1));
    for key in conn.must("KEYS *").items() {
        assert_same_values(&master, &replica, &key.text());
    }
    assert_eq!(there.must("DBSIZE"), conn.must("DBSIZE"));
    assert_eq!(
        figure(&replica, "stats", "unexpected_error_replies"),
        0,
        "{}",
        replica.log()
    );
    assert!(!replica.log().contains("CRITICAL"), "{}", replica.log());
    assert_eq!(figure(&master, "stats", "sync_full"), 1);
}
