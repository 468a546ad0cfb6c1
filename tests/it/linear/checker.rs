//! The checker: a search for an order of operations that explains all replies.
//!
//! The algorithm is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993) with
//! Lowe's cache of visited configurations ("Testing for linearizability", 2017). A
//! configuration is the set of operations that have happened and the state after them. The
//! next operation may be any that began before the earliest end of those that have not
//! happened. All configurations are visited, because all possible final states are wanted.
//! Operations without a reply may happen or not.

use std::collections::HashSet;
use std::fmt::Write;

/// The numbers of a pair of keys.
pub type State = [Option<i64>; 2];

/// What is done to one key of the pair.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Replies with the number.
    Get(usize),
    /// Replies with nothing.
    Set(usize, i64),
    /// Replies with the new number.
    Add(usize, i64),
    /// Replies with the number before.
    Swap(usize, i64),
    /// Replies with the count of keys that were deleted.
    Delete(usize),
}

/// Calls that happen atomically.
#[derive(Debug, Clone)]
pub struct Operation {
    pub calls: Vec<Call>,
    /// The replies; `None`: the connection broke.
    pub replies: Option<Vec<Option<i64>>>,
    /// When it was sent, in nanoseconds; `ended`: when its reply arrived.
    pub began: u128,
    pub ended: u128,
}

fn apply(state: &mut State, call: &Call) -> Option<i64> {
    match *call {
        Call::Get(key) => state[key],
        Call::Set(key, value) => {
            state[key] = Some(value);
            None
        }
        Call::Add(key, by) => {
            state[key] = Some(state[key].unwrap_or(0) + by);
            state[key]
        }
        Call::Swap(key, value) => state[key].replace(value),
        Call::Delete(key) => Some(i64::from(state[key].take().is_some())),
    }
}

/// The state after an operation; `None` if its replies are impossible in `state`.
fn after(mut state: State, operation: &Operation) -> Option<State> {
    for (i, call) in operation.calls.iter().enumerate() {
        let reply = apply(&mut state, call);
        let seen = operation.replies.as_ref().map(|replies| replies[i]);
        if seen.is_some_and(|seen| seen != reply) {
            return None;
        }
    }
    Some(state)
}

/// The operations that have happened, and the state after them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Configuration {
    /// The index of the first operation with a reply that has not happened.
    first: usize,
    /// Later ones that have happened, in order.
    beyond: Vec<usize>,
    /// A bit for each operation without a reply that has happened.
    lost: u64,
    state: State,
}

/// The possible final states of a history that begins in one of `starts`.
///
/// # Errors
/// No order explains the replies: a description of the longest explained prefix.
pub fn outcomes(
    starts: &HashSet<State>,
    history: Vec<Operation>,
) -> Result<HashSet<State>, String> {
    let (mut answered, lost): (Vec<_>, Vec<_>) =
        history.into_iter().partition(|o| o.replies.is_some());
    answered.sort_by_key(|operation| operation.began);
    assert!(lost.len() <= 64, "too many operations without an answer");
    let begin = |state: &State| Configuration {
        first: 0,
        beyond: Vec::new(),
        lost: 0,
        state: *state,
    };
    let mut todo: Vec<Configuration> = starts.iter().map(begin).collect();
    let mut seen: HashSet<Configuration> = todo.iter().cloned().collect();
    let mut ends = HashSet::new();
    let mut furthest = todo[0].clone();
    while let Some(now) = todo.pop() {
        if now.first + now.beyond.len() > furthest.first + furthest.beyond.len() {
            furthest = now.clone();
        }
        if now.first == answered.len() {
            ends.insert(now.state);
        }
        let missing = |i: &usize| !now.beyond.contains(i);
        let ahead = (now.first..answered.len()).filter(missing);
        let mut deadline = u128::MAX;
        for i in ahead.clone() {
            if answered[i].began > deadline {
                // Later operations end later still.
                break;
            }
            deadline = deadline.min(answered[i].ended);
        }
        let mut next = Vec::new();
        for i in ahead.take_while(|&i| answered[i].began <= deadline) {
            if let Some(state) = after(now.state, &answered[i]) {
                let mut then = Configuration {
                    state,
                    ..now.clone()
                };
                then.beyond.push(i);
                then.beyond.sort_unstable();
                while then.beyond.first() == Some(&then.first) {
                    then.beyond.remove(0);
                    then.first += 1;
                }
                next.push(then);
            }
        }
        for (i, operation) in lost.iter().enumerate() {
            if now.lost >> i & 1 == 0
                && operation.began <= deadline
                && let Some(state) = after(now.state, operation)
            {
                let mut then = Configuration {
                    state,
                    ..now.clone()
                };
                then.lost |= 1 << i;
                next.push(then);
            }
        }
        todo.extend(next.into_iter().filter(|then| seen.insert(then.clone())));
    }
    match ends.is_empty() {
        false => Ok(ends),
        true => Err(describe(&answered, &lost, &furthest)),
    }
}

fn describe(answered: &[Operation], lost: &[Operation], furthest: &Configuration) -> String {
    let mut text = format!(
        "after {} operations: {:?}\n",
        furthest.first, furthest.state
    );
    let from = furthest.first.saturating_sub(5);
    for (i, operation) in answered.iter().enumerate().skip(from).take(30) {
        let happened = i < furthest.first || furthest.beyond.contains(&i);
        let mark = if happened { ' ' } else { '?' };
        let _ = writeln!(text, "{mark} {operation:?}");
    }
    for operation in lost {
        let _ = writeln!(text, "lost: {operation:?}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation with these times, calls and replies.
    fn op(began: u128, ended: u128, calls: &[Call], replies: Option<&[Option<i64>]>) -> Operation {
        Operation {
            calls: calls.to_vec(),
            replies: replies.map(<[_]>::to_vec),
            began,
            ended,
        }
    }

    fn ends(history: Vec<Operation>) -> Option<HashSet<State>> {
        outcomes(&[State::default()].into(), history).ok()
    }

    use Call::{Add, Get, Set};

    #[test]
    fn what_overlaps_may_happen_in_any_order() {
        let set = op(0, 10, &[Set(0, 1)], Some(&[None]));
        let before = op(1, 4, &[Get(0)], Some(&[None]));
        let later = op(5, 9, &[Get(0)], Some(&[Some(1)]));
        assert!(ends(vec![set.clone(), before.clone(), later.clone()]).is_some());
        // After a read has seen the value, the SET has happened.
        let back = op(10, 12, &[Get(0)], Some(&[None]));
        assert!(ends(vec![set, later, back]).is_none());
    }

    #[test]
    fn a_stale_read_a_lost_update_and_a_torn_transaction_are_found() {
        let set = op(0, 1, &[Set(0, 1)], Some(&[None]));
        assert!(ends(vec![set, op(2, 3, &[Get(0)], Some(&[None]))]).is_none());
        let adds = [5, 6].map(|ended| op(0, ended, &[Add(0, 1)], Some(&[Some(1)])));
        assert!(ends(adds.to_vec()).is_none());
        let both = op(0, 9, &[Set(0, 1), Set(1, 1)], Some(&[None, None]));
        let torn = op(1, 8, &[Get(0), Get(1)], Some(&[Some(1), None]));
        assert!(ends(vec![both.clone(), torn]).is_none());
        let whole = op(1, 8, &[Get(0), Get(1)], Some(&[Some(1), Some(1)]));
        assert!(ends(vec![both, whole]).is_some());
    }

    #[test]
    fn what_was_not_answered_happened_or_not() {
        let lost = op(0, 9, &[Set(0, 1)], None);
        let expected: HashSet<State> = [[None, None], [Some(1), None]].into();
        assert_eq!(ends(vec![lost.clone()]), Some(expected));
        let seen = op(2, 3, &[Get(0)], Some(&[Some(1)]));
        let expected: HashSet<State> = [[Some(1), None]].into();
        assert_eq!(ends(vec![lost, seen.clone()]), Some(expected));
        let too_late = op(4, 9, &[Set(0, 1)], None);
        assert!(ends(vec![too_late, seen]).is_none());
    }
}
