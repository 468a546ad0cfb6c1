//! Linearizability: the replies to concurrent clients must be explained by a sequential order
//! in which each operation takes effect between its request and its reply; also across kill
//! -9, where an operation without a reply took effect before the kill or not at all.
//!
//! Keys come in pairs. Operations, EXECs and scripts stay within one pair, so the history of
//! each pair is checked separately.
//!
//! Environment: `KEDIS_LINEAR_ROUNDS` (4), `KEDIS_LINEAR_SEED`.

mod checker;

use crate::crash::kedis_check;
use crate::support::checks::Checks;
use crate::support::{Conn, Server, Value, env_number, seed, wait_for};
use checker::{Call, Operation, State, outcomes};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PAIRS: usize = 3;
const CLIENTS: usize = 8;

fn key(pair: usize, which: usize) -> String {
    format!("{pair}:{}", ["a", "b"][which])
}

fn random_call(rng: &mut fastrand::Rng) -> Call {
    let which = rng.usize(..2);
    match rng.u32(..8) {
        0..=2 => Call::Get(which),
        3 => Call::Set(which, rng.i64(0..1000)),
        4 | 5 => Call::Add(which, rng.i64(1..5)),
        6 => Call::Swap(which, rng.i64(0..1000)),
        _ => Call::Delete(which),
    }
}

fn words(call: &Call, pair: usize) -> Vec<String> {
    let (name, which, value) = match call {
        Call::Get(which) => ("GET", which, None),
        Call::Set(which, value) => ("SET", which, Some(value)),
        Call::Add(which, by) => ("INCRBY", which, Some(by)),
        Call::Swap(which, value) => ("GETSET", which, Some(value)),
        Call::Delete(which) => ("DEL", which, None),
    };
    let mut words = vec![name.to_owned(), key(pair, *which)];
    words.extend(value.map(i64::to_string));
    words
}

/// The number in a reply, if there is one.
fn number(reply: &Value) -> Option<i64> {
    match reply {
        Value::Int(n) => Some(*n),
        Value::Bulk(text) => Some(String::from_utf8_lossy(text).parse().unwrap()),
        Value::NullBulk | Value::Null | Value::Simple(_) => None,
        other => panic!("{other:?}"),
    }
}

/// How a client sends several calls as one operation.
enum Form {
    One,
    Exec,
    /// A script that declares both keys, or none of them.
    Script(bool),
}

/// Runs several calls: each argument is a line with the words of one call. A reply without a
/// number becomes nil.
const SCRIPT: &str = "local replies = {} \
    for i, line in ipairs(ARGV) do \
        local words = {} \
        for word in string.gmatch(line, '%S+') do words[#words + 1] = word end \
        local reply = redis.call(unpack(words)) \
        replies[i] = tonumber(type(reply) ~= 'table' and reply or nil) or false \
    end \
    return replies";

fn ask(conn: &mut Conn, pair: usize, calls: &[Call], form: &Form) -> Option<Vec<Option<i64>>> {
    let lines: Vec<Vec<String>> = calls.iter().map(|call| words(call, pair)).collect();
    let reply = match form {
        Form::One => match conn.call(&lines[0]) {
            Value::Lost(_) => return None,
            reply => return Some(vec![number(&reply)]),
        },
        Form::Exec => {
            let one = |word: &str| vec![word.as_bytes().to_vec()];
            let mut commands = vec![one("MULTI")];
            let bytes = |line: &Vec<String>| line.iter().map(|w| w.clone().into_bytes()).collect();
            commands.extend(lines.iter().map(bytes));
            commands.push(one("EXEC"));
            conn.pipeline(&commands).pop().unwrap()
        }
        Form::Script(declared) => {
            let mut command = vec!["EVAL".to_owned(), SCRIPT.to_owned()];
            match declared {
                true => command.extend(["2".to_owned(), key(pair, 0), key(pair, 1)]),
                false => command.push("0".to_owned()),
            }
            command.extend(lines.iter().map(|line| line.join(" ")));
            conn.call(&command)
        }
    };
    match reply {
        Value::Array(replies) => Some(replies.iter().map(number).collect()),
        Value::Lost(_) => None,
        other => panic!("{other:?}"),
    }
}

/// Runs operations until the connection breaks; returns each with its pair.
fn work(address: &str, origin: Instant, seed: u64, count: &AtomicUsize) -> Vec<(usize, Operation)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut done = Vec::new();
    let Ok(mut conn) = Conn::open(address) else {
        return done;
    };
    loop {
        let pair = rng.usize(..PAIRS);
        let (form, len) = match rng.u32(..10) {
            0..=5 => (Form::One, 1),
            6 | 7 => (Form::Exec, rng.usize(2..5)),
            8 => (Form::Script(true), rng.usize(2..5)),
            _ => (Form::Script(false), rng.usize(2..5)),
        };
        let calls: Vec<Call> = (0..len).map(|_| random_call(&mut rng)).collect();
        let began = origin.elapsed().as_nanos();
        let replies = ask(&mut conn, pair, &calls, &form);
        let ended = origin.elapsed().as_nanos();
        let lost = replies.is_none();
        let operation = Operation {
            calls,
            replies,
            began,
            ended,
        };
        done.push((pair, operation));
        count.fetch_add(1, Ordering::Relaxed);
        if lost {
            return done;
        }
    }
}

#[test]
fn histories_are_linearizable_across_kill9() {
    let seed = seed("KEDIS_LINEAR_SEED");
    let mut rng = fastrand::Rng::with_seed(seed);
    let flags = ["--io-threads", "4", "--enable-debug-command", "yes"];
    let mut server = Server::start(&flags);
    let _checks = Checks::start_every(Duration::from_millis(300), &[&server]);
    let mut possible: Vec<HashSet<State>> = vec![[State::default()].into(); PAIRS];
    for round in 0..env_number("KEDIS_LINEAR_ROUNDS", 4) {
        let address = server.address();
        let (count, goal) = (AtomicUsize::new(0), rng.usize(500..5000));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| rng.u64(..)).collect();
        let origin = Instant::now();
        let done: Vec<(usize, Operation)> = std::thread::scope(|scope| {
            let (address, count) = (&address, &count);
            let work = |&seed: &u64| scope.spawn(move || work(address, origin, seed, count));
            let clients: Vec<_> = seeds.iter().map(work).collect();
            wait_for("the time of the kill", || {
                count.load(Ordering::Relaxed) >= goal
            });
            server.kill9();
            clients
                .into_iter()
                .flat_map(|c| c.join().unwrap())
                .collect()
        });
        for (pair, possible) in possible.iter_mut().enumerate() {
            let history: Vec<Operation> = done
                .iter()
                .filter(|(of, _)| *of == pair)
                .map(|(_, operation)| operation.clone())
                .collect();
            *possible = outcomes(possible, history).unwrap_or_else(|stuck| {
                panic!("round {round}, pair {pair}, seed {seed}: no order explains\n{stuck}")
            });
        }
        server.change_memtable();
        server.spawn();
        // The present state must be one of the possible final states of the history.
        let mut conn = server.connect();
        for (pair, possible) in possible.iter_mut().enumerate() {
            let found =
                [0, 1].map(|which| number(&conn.must(&format!("GET {}", key(pair, which)))));
            assert!(
                possible.contains(&found),
                "round {round}, pair {pair}, seed {seed}: {found:?} is none of {possible:?}"
            );
            *possible = [found].into();
        }
        kedis_check(&mut conn);
    }
}
