//! The events of commands that redis-server 7.0 lacks, on a missing key, on a value of their type
//! and on values of other types.
//!
//! Those of JSON.* are RedisJSON's. Redis notifies of nothing for the filters, sketches and
//! digests, and has no sorted ints: their changes are events with the name of the command.

use super::{events, listener};
use crate::support::{Conn, Server, Value, args};
use std::collections::BTreeSet;

/// Commands on values of one type.
struct Family {
    /// What makes the data set.
    data: &'static [&'static str],
    /// A line for each command: `command => events on a missing key | events on the value`. `{k}`
    /// is the key. An event is its name, and its key unless that is `{k}`.
    lines: &'static str,
    /// Values of other types are replaced, not refused.
    takes_any: bool,
}

/// The key with the value.
const OWN: &str = "own";

const FAMILIES: &[Family] = &[
    Family {
        data: &["SET own 5"],
        lines: "
DELEX {k} IFEQ other => |
DELEX {k} IFEQ 5 => | del
DELIFEQ {k} 5 => | del
DELIFEQ {k} other => |
DIGEST {k} => |
INCREX {k} => incrby | incrby
INCREX {k} BYFLOAT 0.5 => incrbyfloat | incrbyfloat
INCREX {k} EX 100 => incrby expire | incrby expire
INCREX {k} BYINT 9 UBOUND 1 => |",
        takes_any: false,
    },
    Family {
        data: &["SET own 5"],
        lines: "
DELEX {k} => | del
MSETEX 2 {k} a d b => set set:d | set set:d
MSETEX 2 {k} a d b EX 100 => set expire set:d expire:d | set expire set:d expire:d
MSETEX 1 {k} a NX => set |
MSETEX 1 {k} a XX => | set",
        takes_any: true,
    },
    Family {
        data: &["RPUSH own a b c", "RPUSH d x"],
        lines: "
LMOVEM {k} d LEFT LEFT COUNT 2 BULK => | lpush:d lpop
LMOVEM {k} d LEFT RIGHT COUNT 9 OBO => | rpush:d lpop del
LMOVEM {k} {k} LEFT RIGHT COUNT 2 BULK => | rpush lpop
LMOVEM {k} d LEFT LEFT EXACTLY 5 BULK => |
BLMOVEM {k} d LEFT RIGHT 0.01 COUNT 2 BULK => | rpush:d lpop
BLMOVEM d {k} LEFT RIGHT 0.01 COUNT 2 BULK => rpush lpop:d del:d | rpush lpop:d del:d",
        takes_any: false,
    },
    Family {
        data: &["HSET own f v", "HIMPORT PREPARE fields a b"],
        lines: "
HIMPORT SET {k} fields 1 2 => hset | hset
HIMPORT SET {k} fields 1 => |
HIMPORT SET {k} none 1 2 => |",
        takes_any: false,
    },
    Family {
        data: &["SADD own a b", "SADD d b"],
        lines: "
SUNIONCARD 2 {k} d => |
SDIFFCARD 2 {k} d => |",
        takes_any: false,
    },
    Family {
        data: &["SADD own a b", "SEXPIRE own 1000 MEMBERS 1 b"],
        lines: "
SEXPIRE {k} 100 MEMBERS 2 a x => | sexpire
SPEXPIRE {k} 100000 MEMBERS 1 a => | sexpire
SEXPIREAT {k} 4000000000 MEMBERS 1 a => | sexpire
SPEXPIREAT {k} 4000000000000 NX MEMBERS 1 b => |
SPEXPIREAT {k} 1 MEMBERS 1 a => | srem
SPERSIST {k} MEMBERS 2 a b => | spersist
SPERSIST {k} MEMBERS 1 a => |
STTL {k} MEMBERS 1 b => |
SPTTL {k} MEMBERS 1 b => |
SEXPIRETIME {k} MEMBERS 1 b => |
SPEXPIRETIME {k} MEMBERS 1 b => |
SADDEX {k} EX 100 MEMBERS 1 x => sadd sexpire | sadd sexpire",
        takes_any: false,
    },
    Family {
        data: &[
            "XADD own 1-1 f v",
            "XADD own 2-1 f v",
            "XGROUP CREATE own g 0",
            "XREADGROUP GROUP g c COUNT 1 STREAMS own >",
        ],
        lines: "
XACKDEL {k} g DELREF IDS 1 1-1 => | xdel
XACKDEL {k} g KEEPREF IDS 1 2-1 => |
XDELEX {k} KEEPREF IDS 1 1-1 => | xdel
XDELEX {k} ACKED IDS 1 1-1 => |
XDELEX {k} DELREF IDS 1 9-9 => |
XNACK {k} g FAIL IDS 1 1-1 => |
XADD {k} IDMP p one * f v => xadd | xadd
XADD {k} KEEPREF MAXLEN = 1 9-1 f v => xadd | xadd xtrim
XTRIM {k} MAXLEN = 0 DELREF => | xtrim
XIDMPRECORD {k} p one 1-1 => |
XCFGSET {k} IDMP-DURATION 100 => |
XREADGROUP GROUP g c CLAIM 0 STREAMS {k} > => |",
        takes_any: false,
    },
    Family {
        data: &["SIADD own 1 2"],
        lines: "
SIADD {k} 1 7 => siadd | siadd
SIADD {k} 1 => siadd |
SIREM {k} 1 => | sirem
SIREM {k} 9 => |
SIREM {k} 1 2 => | sirem del
SICARD {k} => |
SIEXISTS {k} 1 => |
SIRANGE {k} 0 9 => |
SIREVRANGE {k} 0 9 => |
SIRANGEBYVALUE {k} 0 9 => |
SIREVRANGEBYVALUE {k} 9 0 => |",
        takes_any: false,
    },
    Family {
        data: &["BF.RESERVE own 0.01 100", "BF.ADD own a"],
        lines: "
BF.RESERVE {k} 0.01 100 => bf.reserve |
BF.ADD {k} x => bf.add | bf.add
BF.ADD {k} a => bf.add |
BF.MADD {k} a x => bf.madd | bf.madd
BF.MADD {k} a => bf.madd |
BF.INSERT {k} ITEMS x => bf.insert | bf.insert
BF.INSERT {k} NOCREATE ITEMS x => | bf.insert
BF.EXISTS {k} a => |
BF.MEXISTS {k} a x => |
BF.CARD {k} => |
BF.INFO {k} => |
BF.DEBUG {k} => |
BF.SCANDUMP {k} 0 => |
BF.LOADCHUNK {k} 9 x => | bf.loadchunk",
        takes_any: false,
    },
    Family {
        data: &["CF.RESERVE own 100", "CF.ADD own a"],
        lines: "
CF.RESERVE {k} 100 => cf.reserve |
CF.ADD {k} a => cf.add | cf.add
CF.ADDNX {k} a => cf.addnx |
CF.ADDNX {k} x => cf.addnx | cf.addnx
CF.INSERT {k} ITEMS a => cf.insert | cf.insert
CF.INSERTNX {k} ITEMS a => cf.insertnx |
CF.DEL {k} a => | cf.del
CF.DEL {k} other => |
CF.COMPACT {k} => | cf.compact
CF.COUNT {k} a => |
CF.EXISTS {k} a => |
CF.MEXISTS {k} a x => |
CF.INFO {k} => |
CF.DEBUG {k} => |
CF.SCANDUMP {k} 0 => |
CF.LOADCHUNK {k} 9 x => | cf.loadchunk",
        takes_any: false,
    },
    Family {
        data: &[
            "CMS.INITBYDIM own 100 4",
            "CMS.INITBYDIM d 100 4",
            "CMS.INCRBY own a 1",
        ],
        lines: "
CMS.INITBYDIM {k} 100 4 => cms.initbydim |
CMS.INITBYPROB {k} 0.01 0.01 => cms.initbyprob |
CMS.INCRBY {k} a 1 => | cms.incrby
CMS.MERGE {k} 1 d => | cms.merge
CMS.MERGE d 1 {k} => | cms.merge:d
CMS.QUERY {k} a => |
CMS.INFO {k} => |",
        takes_any: false,
    },
    Family {
        data: &["TOPK.RESERVE own 2", "TOPK.ADD own a"],
        lines: "
TOPK.RESERVE {k} 2 => topk.reserve |
TOPK.ADD {k} a => | topk.add
TOPK.INCRBY {k} a 2 => | topk.incrby
TOPK.COUNT {k} a => |
TOPK.QUERY {k} a => |
TOPK.LIST {k} => |
TOPK.INFO {k} => |",
        takes_any: false,
    },
    Family {
        data: &[
            "TDIGEST.CREATE own",
            "TDIGEST.CREATE d",
            "TDIGEST.ADD own 1 2 3",
        ],
        lines: "
TDIGEST.CREATE {k} => tdigest.create |
TDIGEST.ADD {k} 1 => | tdigest.add
TDIGEST.RESET {k} => | tdigest.reset
TDIGEST.MERGE {k} 1 d => tdigest.merge | tdigest.merge
TDIGEST.MERGE d 1 {k} => | tdigest.merge:d
TDIGEST.MIN {k} => |
TDIGEST.MAX {k} => |
TDIGEST.QUANTILE {k} 0.5 => |
TDIGEST.CDF {k} 1 => |
TDIGEST.RANK {k} 1 => |
TDIGEST.REVRANK {k} 1 => |
TDIGEST.BYRANK {k} 1 => |
TDIGEST.BYREVRANK {k} 1 => |
TDIGEST.TRIMMED_MEAN {k} 0.1 0.9 => |
TDIGEST.INFO {k} => |",
        takes_any: false,
    },
    Family {
        data: &["JSON.SET own $ {\"n\":1,\"b\":true,\"t\":\"text\",\"l\":[1,2],\"o\":{\"a\":1}}"],
        lines: "
JSON.SET {k} $ 1 => json.set | json.set
JSON.SET {k} $ 1 NX => json.set |
JSON.SET {k} $.n 1 XX => | json.set
JSON.MSET {k} $ 1 d $ 2 => json.mset json.mset:d | json.mset json.mset:d
JSON.MERGE {k} $ {\"x\":1} => json.merge | json.merge
JSON.DEL {k} $.n => | json.del
JSON.DEL {k} $.none => |
JSON.DEL {k} => | json.del del
JSON.FORGET {k} $.n => | json.del
JSON.NUMINCRBY {k} $.n 1 => | json.numincrby
JSON.NUMMULTBY {k} $.n 2 => | json.nummultby
JSON.NUMPOWBY {k} $.n 2 => | json.numpowby
JSON.STRAPPEND {k} $.t \"x\" => | json.strappend
JSON.TOGGLE {k} $.b => | json.toggle
JSON.CLEAR {k} $.l => | json.clear
JSON.ARRAPPEND {k} $.l 3 => | json.arrappend
JSON.ARRINSERT {k} $.l 0 3 => | json.arrinsert
JSON.ARRPOP {k} $.l => | json.arrpop
JSON.ARRTRIM {k} $.l 0 0 => | json.arrtrim
JSON.ARRINDEX {k} $.l 1 => |
JSON.ARRLEN {k} $.l => |
JSON.DEBUG MEMORY {k} => |
JSON.GET {k} => |
JSON.OBJKEYS {k} => |
JSON.OBJLEN {k} => |
JSON.RESP {k} => |
JSON.STRLEN {k} $.t => |
JSON.TYPE {k} => |",
        takes_any: false,
    },
    Family {
        data: &["JSON.SET own $ 1"],
        // Values of other types count as missing.
        lines: "
JSON.MGET {k} d $ => |",
        takes_any: true,
    },
];

/// All lines.
fn lines() -> impl Iterator<Item = (&'static Family, &'static str)> {
    let of = |family: &'static Family| family.lines.lines().map(move |line| (family, line));
    FAMILIES
        .iter()
        .flat_map(of)
        .filter(|(_, line)| !line.is_empty())
}

/// The names of the commands of all lines, in lower case.
pub fn names() -> BTreeSet<String> {
    let name = |line: &str| {
        line.split(' ')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    lines().map(|(_, line)| name(line)).collect()
}

/// What was told of each event: its name, with the key if that is another one.
fn told(listener: &mut Conn, client: &mut Conn, key: &str) -> String {
    let events = events(listener, client).into_iter().map(|(channel, of)| {
        let name = channel.replace("__keyevent@0__:", "");
        match of == key {
            true => name,
            false => format!("{name}:{of}"),
        }
    });
    events.collect::<Vec<_>>().join(" ")
}

/// Whether a command did nothing with a value of another type. Reads of RedisBloom may answer as if
/// there were none.
fn is_refused(reply: &Value) -> bool {
    let is_zero = |reply: &Value| *reply == Value::Int(0);
    match reply {
        Value::Error(_) => true,
        Value::Array(items) => items.iter().all(is_zero),
        reply => is_zero(reply),
    }
}

#[test]
fn newer_commands_have_events_of_real_changes_only() {
    let server = Server::start(&[]);
    let (mut listener, mut client) = listener(&server, "EA");
    let mut wrong = Vec::new();
    for (family, line) in lines() {
        let (command, expected) = line.split_once(" => ").expect("events");
        let (on_none, on_own) = expected.split_once('|').expect("two lists of events");
        let keys = [
            ("none", Some(on_none)),
            (OWN, Some(on_own)),
            ("other", None),
        ];
        for (key, expected) in keys {
            client.must("FLUSHALL");
            for line in family.data {
                client.must(line);
            }
            // A value of a type that the family does not take.
            let other = match family.data[0].starts_with("RPUSH") {
                true => "SADD other x",
                false => "RPUSH other x",
            };
            client.must(other);
            told(&mut listener, &mut client, key);
            let line = command.replace("{k}", key);
            let reply = client.call(&args(&line));
            let seen = told(&mut listener, &mut client, key);
            let right = match expected {
                Some(expected) => seen == expected.trim(),
                None if family.takes_any => true,
                None => seen.is_empty() && is_refused(&reply),
            };
            if !right {
                wrong.push(format!("{line} => {seen}   ({reply:?})"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
