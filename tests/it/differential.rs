//! Random commands against our server and Debian's redis-server, side by side.
//!
//! A sequence is drawn from the families' templates, sent to both in the same
//! pipelines, and every reply compared as bytes; at its end the whole state of
//! both is compared. A sequence that shows a difference is shrunk and printed
//! as lines for redis-cli.
//!
//! - `grammar`: the language of the templates
//! - `families`: the templates, one block per family
//! - `coverage`: each command is in a family, or on a list with a reason
//! - `newer`: what only newer oracles know
//! - `numbers`: unusual forms of numbers in each argument
//! - `pools`: the values of a template's `$name`
//! - `compare`: when two replies count as equal, and the accepted differences
//! - `run`: one sequence on both servers
//! - `shrink`: the smallest sequence that still differs
//! - `replicated`: the commands go to the oracle alone, and our server follows it
//!
//! By default the sequences are the same in every run, so that results are reproducible.
//!
//! Environment: `KEDIS_DIFF_SECONDS`: random sequences for so many seconds.
//! `KEDIS_DIFF_SEED`: the sequences of this seed. `KEDIS_DIFF_FAMILIES` (`strings,bits`).
//! `KEDIS_DIFF_COLLECT` (1): how many differences to collect before the test fails; a
//! command that differed is not drawn again. `KEDIS_DIFF_MUTE` (`SPOP,LCS`): commands that
//! are never drawn. `KEDIS_DIFF_PROTOCOL` (3): the protocol of half of the sequences; the
//! others use RESP2.

mod compare;
mod coverage;
mod families;
mod grammar;
mod newer;
mod numbers;
mod pools;
mod replicated;
pub mod run;
mod shrink;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::{Conn, Server, env_number, seed};
use families::Family;
use run::{Kind, Pair, Step};

/// Steps in one sequence, at most.
const LONGEST: usize = 160;

/// The default run: number of sequences and seed.
const SMOKE_SEQUENCES: u64 = 500;
const SMOKE_SEED: u64 = 20_261_122;

fn chosen_families() -> Vec<Family> {
    let all = families::all();
    let Ok(wanted) = std::env::var("KEDIS_DIFF_FAMILIES") else {
        return all;
    };
    let wanted: Vec<&str> = wanted.split(',').collect();
    for name in &wanted {
        assert!(
            all.iter().any(|f| f.name == *name),
            "no family {name:?}; there are: {}",
            all.iter().map(|f| f.name).collect::<Vec<_>>().join(",")
        );
    }
    all.into_iter()
        .filter(|f| wanted.contains(&f.name))
        .collect()
}

/// The families whose commands the oracle has.
fn known_to_the_oracle(families: Vec<Family>, pair: &mut Pair) -> Vec<Family> {
    let mut known = |family: &Family| match family.needs() {
        Some(command) => pair.oracle_knows(command),
        None => true,
    };
    let (known, newer): (Vec<_>, Vec<_>) = families.into_iter().partition(|family| known(family));
    for family in newer {
        println!("{} is newer than the oracle", family.name);
    }
    assert!(!known.is_empty(), "the oracle knows none of the families");
    known
}

/// Draws one sequence: one to three families, with key and database commands
/// of all kinds mixed in.
fn draw(rng: &mut fastrand::Rng, families: &[Family], muted: &BTreeSet<String>) -> Vec<Step> {
    let common = families::common();
    let chosen: Vec<&Family> = (0..rng.usize(1..=3))
        .map(|_| &families[rng.usize(..families.len())])
        .collect();
    let length = rng.usize(10..=LONGEST);
    let depth = [1, 1, 4, 16][rng.usize(..4)];
    let mut steps = Vec::new();
    // How many more are drawn for the transaction that is open.
    let mut queued = 0;
    while steps.len() < length {
        let family = if rng.u8(..100) < 14 {
            &common
        } else {
            chosen[rng.usize(..chosen.len())]
        };
        let mut step = family.draw(rng);
        if muted.contains(&step.name()) {
            continue;
        }
        step.flush = rng.usize(..depth) == 0;
        if queued > 0 {
            queued -= 1;
            if step.fits_a_queue() {
                steps.push(step);
            }
            if queued == 0 {
                let end = if rng.u8(..8) == 0 { "DISCARD" } else { "EXEC" };
                steps.push(Step::call(end));
            }
            continue;
        }
        let pause = step.pause_after();
        if step.name() == "MULTI" {
            queued = rng.u8(1..8);
        }
        steps.push(step);
        if let Some(ms) = pause {
            steps.push(Step {
                args: Vec::new(),
                kind: Kind::Pause(ms),
                flush: true,
            });
        }
    }
    steps
}

#[test]
fn random_commands_answer_as_the_oracle() {
    let families = chosen_families();
    let limit = match env_number("KEDIS_DIFF_SECONDS", 0) {
        0 => None,
        seconds => Some(Duration::from_secs(seconds)),
    };
    let collect = env_number("KEDIS_DIFF_COLLECT", 1);
    let is_smoke = limit.is_none() && std::env::var_os("KEDIS_DIFF_SEED").is_none();
    let seed = match is_smoke {
        true => SMOKE_SEED,
        false => seed("KEDIS_DIFF_SEED"),
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    let newest = u8::try_from(env_number("KEDIS_DIFF_PROTOCOL", 3)).unwrap();
    let mut pair = Pair::start();
    let families = known_to_the_oracle(families, &mut pair);
    let (mut sequences, mut commands) = (0u64, 0usize);
    let mute = std::env::var("KEDIS_DIFF_MUTE").unwrap_or_default();
    let mut muted: BTreeSet<String> = mute.split(',').map(str::to_string).collect();
    let mut found = Vec::new();
    let start = Instant::now();
    let more = |sequences| match limit {
        Some(limit) => start.elapsed() < limit,
        None => sequences < SMOKE_SEQUENCES,
    };
    while more(sequences) && (found.len() as u64) < collect {
        let protocol = if rng.bool() { 2 } else { newest };
        let steps = draw(&mut rng, &families, &muted);
        sequences += 1;
        commands += steps.len();
        if let Some(first) = pair.run(&steps, protocol) {
            let (steps, difference) = shrink::smallest(&mut pair, steps, protocol, first);
            println!(
                "{}",
                run::report(&steps, protocol, &difference, pair.crash_log())
            );
            if let Some(step) = steps.get(difference.at) {
                muted.insert(step.name());
            }
            found.push(difference.summary());
        }
    }
    println!("{sequences} sequences, {commands} commands compared");
    assert!(
        found.is_empty(),
        "differences (printed above):\n{}",
        found.join("\n")
    );
}

#[test]
fn what_is_newer_than_the_oracle() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let check = |conn: &mut Conn, line: &str, expected: &str| {
        let reply = conn.cmd(line);
        assert_eq!(format!("{reply:?}"), expected, "{line}");
    };
    check(&mut conn, "ZADD z 1 a 2.5 b 0.1 c", ":3");
    check(&mut conn, "ZRANK z b WITHSCORE", "*2[:2, $2.5]");
    check(&mut conn, "ZREVRANK z b WITHSCORE", "*2[:0, $2.5]");
    check(&mut conn, "ZRANK z none WITHSCORE", "*-1");
    check(&mut conn, "ZSCORE z c", "$0.1");
    check(&mut conn, "HSET h f v", ":1");
    check(&mut conn, "HSCAN h 0 NOVALUES", "*2[$0, *1[$f]]");
    let integer = "-\"ERR value is not an integer or out of range\"";
    check(&mut conn, "BITCOUNT none 0 x", integer);
    check(&mut conn, "XADD s 1 f v", "$1-0");
    check(&mut conn, "XADD s 2 f v", "$2-0");
    let last = "*1[*2[$s, *1[*2[$2-0, *2[$f, $v]]]]]";
    check(&mut conn, "XREAD STREAMS s +", last);
    check(&mut conn, "XGROUP CREATE s g $", "+OK");
    // XREADGROUP creates the consumer, although it delivers nothing.
    check(&mut conn, "XREADGROUP GROUP g c STREAMS s >", "*-1");
    let consumers = conn.cmd("XINFO CONSUMERS s g");
    let inactive = consumers.items()[0].items()[7].int();
    assert_eq!(inactive, -1, "{consumers:?}");
    // A group with ENTRIESREAD beyond the number of entries has read all of them.
    check(&mut conn, "XGROUP SETID s g 1 ENTRIESREAD 100", "+OK");
    check(&mut conn, "XGROUP CREATE s all 0 ENTRIESREAD 100", "+OK");
    let groups = conn.cmd("XINFO GROUPS s");
    let groups = format!("{groups:?}");
    // In the order of their names.
    let counts = "$entries-read, :2, $lag, ";
    let (all, g) = groups.split_once("$g,").unwrap();
    assert!(all.contains(&format!("{counts}:2")), "{groups}");
    assert!(g.contains(&format!("{counts}:0")), "{groups}");
    check(&mut conn, "XADD deleted 5 f v", "$5-0");
    check(&mut conn, "XDEL deleted 5", ":1");
    let smaller =
        "-\"ERR The ID specified in XSETID is smaller than current max_deleted_entry_id\"";
    check(&mut conn, "XSETID deleted 4", smaller);
    check(&mut conn, "XSETID deleted 5", "+OK");
    let too_long = "-\"ERR timeout is out of range\"";
    const LONGEST: &str = "9223372036854775807";
    for wait in [
        format!("WAIT 2 {LONGEST}"),
        format!("WAIT 0 {LONGEST}"),
        format!("WAITAOF 1 0 {LONGEST}"),
        format!("XREAD BLOCK {LONGEST} STREAMS s $"),
        format!("BLPOP none {LONGEST}"),
        format!("CLIENT PAUSE {LONGEST}"),
    ] {
        check(&mut conn, &wait, too_long);
    }
    conn.hello3();
    check(&mut conn, "ZRANK z b WITHSCORE", "*2[:2, ,2.5]");
    check(&mut conn, "ZRANK z none WITHSCORE", "_");
}
