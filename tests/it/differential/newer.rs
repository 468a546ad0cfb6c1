//! Random commands that are newer than Debian's redis-server, against an oracle that knows
//! them: `KEDIS_ORACLE` names a newer Redis or Valkey. What it does not know is not drawn.

use super::families::Family;
use super::run::{Pair, Step, report};
use super::shrink;
use crate::support::{Value, oracle};

/// A command that only an oracle with the templates' commands takes, and the templates.
const NEWER: &[(&str, &str)] = &[
    (
        "BITOP ONE probe a b",
        "
        BITOP ( DIFF | DIFF1 | ANDOR | ONE ) $k $k { $k }
        BITOP ( DIFF | DIFF1 | ANDOR | ONE ) $K { $K }
        ",
    ),
    (
        "SET probe v IFEQ v",
        "
        SET $k $v IFEQ $v
        SET $k $v IFEQ $v [ GET ] [ EX $ex | KEEPTTL ]
        SET $K $v IFEQ $v [ GET ] [ NX | XX ]
        ",
    ),
    (
        "SET probe v IFNE v",
        "
        SET $k $v IFNE $v [ GET ] [ EX $ex | KEEPTTL ]
        SET $K $v IFNE $v [ GET ] [ NX | XX | IFEQ $v ]
        ",
    ),
    ("DELIFEQ probe v", "DELIFEQ $k $v\nDELIFEQ $K $v"),
    (
        "MSETEX 1 probe v",
        "
        MSETEX 1 $k $v [ NX | XX ] [ EX $ex | PX $px | KEEPTTL ]
        MSETEX 2 $k $v $K $v [ NX | XX | FOO ] [ EX $ex | KEEPTTL ]
        ",
    ),
    (
        "INCREX probe",
        "
        INCREX $k [ BYINT $n ] [ LBOUND $n ] [ UBOUND $n ] [ SATURATE ] [ EX $ex | PERSIST ]
        INCREX $k BYFLOAT $float [ UBOUND $float ] [ SATURATE ] [ EX $ex [ ENX ] ]
        ",
    ),
    (
        "DELEX probe",
        "DELEX $K [ IFEQ $v | IFNE $v | IFDEQ 9555e8555c62dcfd | FOO x ]\nDIGEST $K",
    ),
];

/// What gives the keys values of all kinds in between.
const VALUES: &str = "
    SET $k $v
    SET $k $n
    APPEND $k $v
    SETRANGE $k $far $v
    SETBIT $k $bit 1
    GET $k
    PEXPIRE $k $px
";

const SEQUENCES: u64 = 300;
const STEPS: usize = 60;
const SEED: u64 = 20_261_126;

#[test]
fn newer_commands_answer_as_a_newer_oracle() {
    let probed = oracle(&[]);
    let mut conn = probed.connect();
    let known = |(probe, _): &&(&str, &'static str)| !matches!(conn.cmd(probe), Value::Error(_));
    let newer: Vec<&str> = NEWER
        .iter()
        .filter(known)
        .map(|(_, lines)| *lines)
        .collect();
    println!(
        "{} of {} groups are known to the oracle",
        newer.len(),
        NEWER.len()
    );
    let mut families = vec![Family::parse("values", 's', VALUES)];
    families.extend(newer.iter().map(|lines| Family::parse("newer", 's', lines)));
    let mut rng = fastrand::Rng::with_seed(SEED);
    let mut pair = Pair::start();
    for _ in 0..SEQUENCES {
        let draw = |_| families[rng.usize(..families.len())].draw(&mut rng);
        let steps: Vec<Step> = (0..STEPS).map(draw).collect();
        let protocol = if rng.bool() { 2 } else { 3 };
        if let Some(first) = pair.run(&steps, protocol) {
            let (steps, difference) = shrink::smallest(&mut pair, steps, protocol, first);
            panic!(
                "{}",
                report(&steps, protocol, &difference, pair.crash_log())
            );
        }
    }
}
