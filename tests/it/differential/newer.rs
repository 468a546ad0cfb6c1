//! Random commands that are newer than Debian's redis-server, against an oracle that knows
//! them: `KEDIS_ORACLE` names a newer Redis or Valkey, or a script that starts a Redis with the module
//! of RedisBloom. What it does not know is not drawn.
//!
//! `KEDIS_DIFF_SEED`: the sequences of this seed.

use super::families::Family;
use super::run::{Pair, Step, report};
use super::shrink;
use crate::support::{Value, env_number, oracle};
use std::collections::BTreeSet;

/// Commands that are newer than 7.0.
struct Newer {
    /// The letter of the family whose keys they are about; see [`VALUES`].
    letter: char,
    /// A command that only an oracle takes that knows them.
    probe: &'static str,
    templates: &'static str,
}

const fn newer(letter: char, probe: &'static str, templates: &'static str) -> Newer {
    Newer {
        letter,
        probe,
        templates,
    }
}

const NEWER: &[Newer] = &[
    newer(
        's',
        "BITOP ONE probe a b",
        "
        BITOP ( DIFF | DIFF1 | ANDOR | ONE ) $k $k { $k }
        BITOP ( DIFF | DIFF1 | ANDOR | ONE ) $K { $K }
        ",
    ),
    newer(
        's',
        "SET probe v IFEQ v",
        "
        SET $k $v IFEQ $v
        SET $k $v IFEQ $v [ GET ] [ EX $ex | KEEPTTL ]
        SET $K $v IFEQ $v [ GET ] [ NX | XX ]
        ",
    ),
    newer(
        's',
        "SET probe v IFNE v",
        "
        SET $k $v IFNE $v [ GET ] [ EX $ex | KEEPTTL ]
        SET $K $v IFNE $v [ GET ] [ NX | XX | IFEQ $v ]
        SET $K $v ( IFDEQ | IFDNE ) ( 9555e8555c62dcfd | $v ) [ GET ]
        ",
    ),
    newer(
        's',
        "DELIFEQ probe v",
        "DELIFEQ $k $v\nDELIFEQ $K $v",
    ),
    newer(
        's',
        "MSETEX 1 probe v",
        "
        ! MSETEX 1 $k $v [ NX | XX ] [ EX $ex | PX $px | KEEPTTL ]
        ! MSETEX 2 $k $v $K $v [ NX | XX | FOO ] [ EX $ex | KEEPTTL ]
        ! MSETEX ( 0 | -1 | foo ) $k $v
        ",
    ),
    newer(
        's',
        "INCREX probe",
        "
        INCREX $k [ BYINT $n ] [ LBOUND $n ] [ UBOUND $n ] [ SATURATE ] [ EX $ex | PERSIST ]
        INCREX $k BYFLOAT $float [ UBOUND $float ] [ SATURATE ] [ EX $ex [ ENX ] ]
        ",
    ),
    newer(
        's',
        "DELEX probe",
        "DELEX $K [ IFEQ $v | IFNE $v | IFDEQ 9555e8555c62dcfd | FOO x ]\nDIGEST $K",
    ),
    newer(
        'h',
        "HGETEX probe FIELDS 1 f",
        // Whole: the two lines of servers word errors of syntax in their own ways.
        "
        ! HGETEX $k ( EX $ex | PX $px | EXAT $exat | PERSIST ) FIELDS 2 $m $m
        ! HGETEX $k FIELDS 2 $m $m
        ! HGETDEL $k FIELDS 2 $m $m
        ! HEXPIRE $k ( 100 | 400000 ) ( NX | XX | GT | LT ) FIELDS 2 $m $m
        ! HEXPIRE $k ( 100 | 400000 ) FIELDS 2 $m $m
        ! HPERSIST $k FIELDS 2 $m $m
        ! HTTL $k FIELDS 2 $m $m
        ! HEXPIRETIME $K FIELDS 1 $m
        ",
    ),
    newer(
        'h',
        "HSETEX probe EX 10 FIELDS 1 f v",
        "! HSETEX $k ( EX $ex | PX $px | KEEPTTL ) FIELDS 2 $m $v $m $v",
    ),
    newer(
        'h',
        "HIMPORT DISCARDALL",
        "
        HIMPORT PREPARE ( one | two ) $m $m [ $m ]
        HIMPORT PREPARE ( one | two ) $m
        HIMPORT SET $k ( one | two | none ) $v [ $v ]
        HIMPORT SET $K ( one | two ) $v $v
        HIMPORT DISCARD ( one | two )
        HIMPORT DISCARDALL
        ",
    ),
    newer(
        's',
        "SCRIPT SHOW ffffffffffffffffffffffffffffffffffffffff",
        "
        SCRIPT LOAD return(1)
        SCRIPT SHOW ( 930269f31393d0be681588b6ab08dccee7d6bb67 | foo )
        SCRIPT FLUSH
        ",
    ),
    newer(
        'l',
        "LMOVEM probe none LEFT RIGHT",
        "
        LMOVEM $k $k ( LEFT | RIGHT ) ( LEFT | RIGHT ) [ ( COUNT | EXACTLY ) $count ( OBO | BULK ) ]
        LMOVEM $K $k ( LEFT | RIGHT ) ( LEFT | RIGHT | FOO ) [ COUNT $count ] [ OBO ]
        BLMOVEM $k $k ( LEFT | RIGHT ) ( LEFT | RIGHT ) 0.001 [ ( COUNT | EXACTLY ) $count ( OBO | BULK ) ]
        ",
    ),
    newer(
        'e',
        "SUNIONCARD 1 probe",
        "
        SUNIONCARD 2 $k $k [ LIMIT $count ]
        SUNIONCARD $count { $k } [ LIMIT $i ]
        ",
    ),
    newer(
        'e',
        "SDIFFCARD 1 probe",
        "
        SDIFFCARD 2 $k $k [ LIMIT $count ]
        SDIFFCARD $count { $k } [ LIMIT $i ]
        ",
    ),
    newer(
        'z',
        "ZUNION 1 probe AGGREGATE COUNT",
        "
        ZUNION 2 $k $k [ WEIGHTS $float $float ] AGGREGATE COUNT WITHSCORES
        ZINTER 2 $k $k [ WEIGHTS $float $float ] AGGREGATE COUNT WITHSCORES
        ZUNIONSTORE $k 2 $k $k [ WEIGHTS 2 $float ] AGGREGATE COUNT
        ZINTERSTORE $k 2 $k $k [ WEIGHTS 2 $float ] AGGREGATE COUNT
        ",
    ),
    newer(
        'm',
        "XDELEX probe IDS 1 1-1",
        "
        XDELEX $k [ KEEPREF | DELREF | ACKED ] IDS 2 $sid $sid
        XACKDEL $k $g [ KEEPREF | DELREF | ACKED ] IDS 2 $sid $sid
        XADD $k [ KEEPREF | DELREF ] MAXLEN = $len $up $m $v
        XTRIM $k MAXLEN = $len [ KEEPREF | DELREF | ACKED ]
        ",
    ),
    newer(
        'm',
        "XCFGSET none IDMP-DURATION 0",
        "XCFGSET $k [ IDMP-DURATION ( 1 | 86400 | 0 | 86401 ) ] [ IDMP-MAXSIZE ( 1 | 10000 | 0 ) ]",
    ),
    newer(
        'm',
        "XNACK none g SILENT IDS 1 1-1",
        "XNACK $k $g ( SILENT | FAIL | FATAL | FOO ) IDS 2 $sid $sid [ RETRYCOUNT $len ] [ FORCE ]",
    ),
    newer(
        's',
        "CLIENT LIST USER default",
        "
        ! CLIENT LIST ID 1000000 1000001 [ TYPE ( normal | replica | foo ) ]
        CLIENT LIST ( USER | NOT-USER ) ( default | nobody )
        CLIENT LIST ( NAME | NOT-NAME | LIB-NAME | NOT-LIB-NAME | LIB-VER | NOT-LIB-VER ) $m
        CLIENT LIST ( FLAGS | NOT-FLAGS ) ( N | xb | Z | q )
        CLIENT LIST ( CAPA | NOT-CAPA ) ( r | x )
        CLIENT LIST ( DB | NOT-DB ) ( 0 | 3 | -1 | 16 | foo )
        CLIENT LIST ( MAXAGE | IDLE ) ( 1 | 0 | -1 | foo )
        CLIENT LIST ( IP | NOT-IP | ADDR | NOT-ADDR | LADDR | NOT-LADDR ) ( 127.0.0.1 | 10.0.0.1:1 )
        CLIENT LIST SKIPME ( YES | NO | FOO ) [ FOO bar ]
        ! CLIENT KILL ID ( 1000000 | 0 | -1 )
        ! CLIENT KILL ID 1000000 1000001 SKIPME ( YES | NO )
        CLIENT KILL ( NAME | LIB-NAME | LIB-VER ) nobody [ IDLE 100000 ] [ DB ( 3 | 99 ) ]
        CLIENT KILL ( FLAGS | NOT-FLAGS ) Z
        CLIENT KILL ( MAXAGE | IDLE ) ( 100000 | 0 | foo )
        CLIENT KILL USER ( nobody | default ) IP 10.0.0.1
        CLIENT KILL NOT-USER default
        CLIENT KILL CAPA ( r | x ) IP 10.0.0.1
        ! CLIENT CAPA { ( redirect | foo ) }
        ! CLIENT IMPORT-SOURCE ( ON | OFF | FOO )
        ",
    ),
    newer(
        's',
        "COMMANDLOG LEN slow",
        "
        COMMANDLOG LEN ( large-request | large-reply | LARGE-REPLY | foo )
        COMMANDLOG RESET ( large-request | large-reply | foo )
        COMMANDLOG GET ( -1 | 3 | -2 | foo ) ( large-request | large-reply | foo )
        ",
    ),
    newer(
        's',
        "HOTKEYS GET",
        "
        HOTKEYS START METRICS ( 0 | 3 | foo )
        HOTKEYS START METRICS 1 ( CPU | NET | GPU ) FOO
        HOTKEYS START METRICS 2 ( CPU | NET ) ( CPU | FOO ) COUNT ( 0 | 65 | foo )
        HOTKEYS ( STOP | RESET )
        ",
    ),
    newer(
        'z',
        "GEOSEARCH probe:geo BYPOLYGON 3 0 0 1 1 0 1",
        "
        GEOADD $k { $at $m }
        GEOADD $k {* $at $m }
        GEOSEARCH $k BYPOLYGON 3 $at $at $at [ ASC | DESC ] [ WITHCOORD ] [ WITHDIST ]
        GEOSEARCH $k BYPOLYGON 4 -40 -40 60 -40 60 60 -40 60 [ ASC | DESC ] [ COUNT $count | COUNT 3 ANY ] [ WITHHASH ]
        GEOSEARCH $k BYPOLYGON 5 $at $at $at $at $at [ ASC | DESC ] [ WITHDIST ]
        GEOSEARCH $k BYPOLYGON ( 2 | 3 | 4 | foo ) $at $at $at [ FROMMEMBER $m | FROMLONLAT $at ]
        GEOSEARCHSTORE $k $k BYPOLYGON 3 $at $at $at [ STOREDIST ]
        ",
    ),
    newer(
        'u',
        "BF.ADD probe:bf x",
        "
        ! BF.RESERVE $k ( 0.1 | 0.01 | 0.001 ) ( 1 | 10 | 300 ) [ EXPANSION ( 1 | 2 | 4 ) | NONSCALING ]
        ! BF.ADD $k $m
        ! BF.MADD $k { $m }
        ! BF.MADD $k {* $M }
        ! BF.INSERT $k [ CAPACITY ( 5 | 200 ) ] [ ERROR ( 0.1 | 0.001 ) ] [ EXPANSION ( 1 | 3 ) ] [ NOCREATE ] [ NONSCALING ] ITEMS { $m }
        ! BF.EXISTS $k $m
        ! BF.MEXISTS $k { $M }
        ! BF.CARD $K
        ! BF.INFO $k [ CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION ]
        ! BF.SCANDUMP $k ( 0 | 1 )
        DEL $k
        ",
    ),
    newer(
        'c',
        "CF.ADD probe:cf x",
        "
        ! CF.RESERVE $k ( 8 | 20 | 500 ) [ BUCKETSIZE ( 1 | 2 | 4 ) ] [ MAXITERATIONS ( 1 | 20 ) ] [ EXPANSION ( 0 | 1 | 2 ) ]
        ! CF.ADD $k $m
        ! CF.ADDNX $k $m
        ! CF.INSERT $k [ CAPACITY ( 10 | 200 ) ] [ NOCREATE ] ITEMS { $m }
        ! CF.INSERT $k ITEMS {* $M }
        ! CF.INSERTNX $k [ NOCREATE ] ITEMS { $M }
        ! CF.EXISTS $k $m
        ! CF.MEXISTS $k { $M }
        ! CF.COUNT $k $m
        ! CF.DEL $k $m
        ! CF.INFO $K
        ! CF.COMPACT $k
        DEL $k
        ",
    ),
    newer(
        'y',
        "CMS.INITBYDIM probe:cms 1 1",
        "
        ! CMS.INITBYDIM $k ( 10 | 50 ) ( 3 | 5 )
        ! CMS.INITBYDIM $k 10 3
        ! CMS.INITBYPROB $k ( 0.1 | 0.01 ) ( 0.1 | 0.5 )
        ! CMS.INCRBY $k { $m ( 1 | 5 | 70000 ) }
        ! CMS.QUERY $k { $m }
        ! CMS.MERGE $k 1 $k [ WEIGHTS ( 1 | 2 ) ]
        ! CMS.INFO $K
        DEL $k
        ",
    ),
    newer(
        'd',
        "TDIGEST.CREATE probe:td",
        "
        ! TDIGEST.CREATE $k [ COMPRESSION ( 10 | 100 ) ]
        ! TDIGEST.ADD $k { $float }
        ! TDIGEST.RESET $k
        ! TDIGEST.MIN $k
        ! TDIGEST.MAX $K
        DEL $k
        ",
    ),
    // Wide enough that no two items share a counter: chance has no part.
    newer(
        'f',
        "TOPK.RESERVE probe:topk 1",
        "
        ! TOPK.RESERVE $k ( 2 | 5 ) ( 2000 | 3000 ) ( 4 | 7 ) 0.9
        ! TOPK.RESERVE $k ( 0 | 3 | foo ) [ 2000 5 ( 0.5 | 2 ) ]
        ! TOPK.ADD $k { $m }
        ! TOPK.INCRBY $k $m ( 1 | 7 | 100 )
        ! TOPK.INCRBY $k $m 3 $m 2
        ! TOPK.QUERY $k { $m }
        ! TOPK.COUNT $k { $m }
        ! TOPK.LIST $k [ WITHCOUNT ]
        ! TOPK.INFO $K
        DEL $k
        ",
    ),
];

/// What gives the keys of a family values in between.
const VALUES: &[(char, &str)] = &[
    (
        's',
        "
        SET $k $v
        SET $k $n
        APPEND $k $v
        SETRANGE $k $far $v
        SETBIT $k $bit 1
        GET $k
        PEXPIRE $k $px
        ",
    ),
    ('h', "HSET $k { $m $v }\nHSET $k $m $n\nHGETALL $k"),
    ('l', "RPUSH $k { $m }\nLRANGE $k 0 -1\nEXPIRE $k $ex"),
    ('e', "SADD $k { $m }\nSREM $k $m"),
    (
        'z',
        "ZADD $k { $score $m }\nGEOADD $k { $at $m }\nZRANGE $k 0 -1 WITHSCORES",
    ),
    (
        'm',
        "
        XADD $k $up $m $v
        XADD $k $up $m $v
        XGROUP CREATE $k $g 0 MKSTREAM
        XREADGROUP GROUP $g $w [ COUNT $count ] STREAMS $k >
        XRANGE $k - +
        XPENDING $k $g
        ",
    ),
];

const SEQUENCES: u64 = 300;
const STEPS: usize = 60;
const SEED: u64 = 20_261_126;

/// Whether the reply says that the oracle has no such command, or not with these options.
fn is_unknown(reply: &Value) -> bool {
    let text = match reply {
        Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        _ => return false,
    };
    let words = [
        "unknown command",
        "unknown subcommand",
        "syntax error",
        "unsupported unit",
    ];
    words.iter().any(|words| text.contains(words))
}

#[test]
fn newer_commands_answer_as_a_newer_oracle() {
    let probed = oracle(&[]);
    let mut conn = probed.connect();
    let known = |newer: &&Newer| {
        conn.must("FLUSHALL");
        !is_unknown(&conn.cmd(newer.probe))
    };
    let known: Vec<&Newer> = NEWER.iter().filter(known).collect();
    println!(
        "{} of {} groups are known to the oracle",
        known.len(),
        NEWER.len()
    );
    let values = |letter: char| VALUES.iter().filter(move |(of, _)| *of == letter);
    let mut families = Vec::new();
    for newer in known {
        families.push(Family::parse("newer", newer.letter, newer.templates));
        for (letter, templates) in values(newer.letter) {
            families.push(Family::parse("values", *letter, templates));
        }
    }
    if families.is_empty() {
        println!("nothing to compare: KEDIS_ORACLE names a newer one");
        return;
    }
    let seed = env_number("KEDIS_DIFF_SEED", SEED);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut pair = Pair::start();
    let mut found = Vec::new();
    let mut muted: BTreeSet<String> = BTreeSet::new();
    for _ in 0..SEQUENCES {
        let draw = |_| families[rng.usize(..families.len())].draw(&mut rng);
        let steps = (0..STEPS).map(draw);
        let steps: Vec<Step> = steps.filter(|step| !muted.contains(&step.name())).collect();
        let protocol = if rng.bool() { 2 } else { 3 };
        if let Some(first) = pair.run(&steps, protocol) {
            // The smallest sequence may show another one.
            println!("{}", first.summary());
            let (steps, difference) = shrink::smallest(&mut pair, steps, protocol, first);
            println!(
                "{}",
                report(&steps, protocol, &difference, pair.crash_log())
            );
            muted.extend(steps.get(difference.at).map(Step::name));
            found.push(difference.summary());
        }
    }
    assert!(
        found.is_empty(),
        "differences (printed above):\n{}",
        found.join("\n")
    );
}
