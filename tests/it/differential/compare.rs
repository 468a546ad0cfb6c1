//! When two replies count as equal.
//!
//! They are compared byte for byte, except where Redis leaves the order or the choice open, or
//! where the reply depends on the clock. All accepted differences between the oracle's 7.0 and
//! 7.4, which our server follows, are in `is_newer_behaviour`.

use crate::support::Value;

/// How a command's replies are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judge {
    /// The same bytes.
    Exact,
    /// The same elements in any order.
    Unordered,
    /// The same field-value pairs in any order.
    Pairs,
    /// The same up to the time that passed between both.
    Clock { tolerance: i64 },
    /// The same kind and number of elements.
    Shape,
    /// The same type of reply, whatever its content; errors are equal.
    Kind,
    /// Random members; see `run` for how they are checked.
    Random,
    /// Replies about streams and groups; see `plain_stream`.
    Stream,
}

/// Maximum difference between the times at which the two servers read the clock, on a machine
/// under load.
const TOLERANCE_MS: i64 = 5_000;

fn has_word(command: &[Vec<u8>], word: &str) -> bool {
    command
        .iter()
        .any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
}

/// Is the subcommand one of these?
fn is_any(command: &[Vec<u8>], words: &[&str]) -> bool {
    let is = |word: &&str| {
        let second = command.get(1);
        second.is_some_and(|second| second.eq_ignore_ascii_case(word.as_bytes()))
    };
    words.iter().any(is)
}

/// The judge for a command.
pub fn judge(command: &[Vec<u8>]) -> Judge {
    let name = command.first().map(|n| n.to_ascii_uppercase());
    match name.as_deref().unwrap_or_default() {
        b"SMEMBERS" | b"SUNION" | b"SINTER" | b"SDIFF" | b"HKEYS" | b"HVALS" | b"KEYS" => {
            Judge::Unordered
        }
        b"HGETALL" => Judge::Pairs,
        b"TTL" | b"EXPIRETIME" | b"HTTL" | b"HEXPIRETIME" => Judge::Clock {
            tolerance: TOLERANCE_MS / 1000,
        },
        b"PTTL" | b"PEXPIRETIME" | b"HPTTL" | b"HPEXPIRETIME" => Judge::Clock {
            tolerance: TOLERANCE_MS,
        },
        b"SPOP" | b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER" | b"RANDOMKEY" => Judge::Random,
        b"SORT" | b"SORT_RO" => sort_judge(command),
        b"SCAN" | b"SSCAN" | b"HSCAN" | b"ZSCAN" => Judge::Kind,
        b"XINFO" | b"XPENDING" => Judge::Stream,
        // Encodings and access statistics may differ.
        b"OBJECT" => Judge::Kind,
        // What these say is each server's own.
        b"INFO" | b"HELLO" | b"ROLE" | b"TIME" | b"LASTSAVE" | b"LOLWUT" | b"SLOWLOG"
        | b"LATENCY" | b"MEMORY" => Judge::Kind,
        b"CLIENT" if is_any(command, &["ID", "INFO", "LIST"]) => Judge::Kind,
        b"COMMAND" if is_any(command, &["COUNT", "LIST", "DOCS", "INFO"]) => Judge::Kind,
        b"ACL" if is_any(command, &["GENPASS", "GETUSER", "LIST"]) => Judge::Kind,
        // There are more commands than the oracle has.
        b"ACL" if is_any(command, &["CAT"]) => Judge::Kind,
        b"FUNCTION" if is_any(command, &["DUMP"]) => Judge::Kind,
        _ => Judge::Exact,
    }
}

/// SORT breaks ties of numeric weights by the element, but not ties of weights that are
/// compared as text. A set that is not sorted has no defined order.
fn sort_judge(command: &[Vec<u8>]) -> Judge {
    let by = command
        .iter()
        .position(|arg| arg.eq_ignore_ascii_case(b"BY"))
        .and_then(|at| command.get(at + 1));
    // The keys `q:` are never sets.
    let key_has_order = command.get(1).is_some_and(|key| key.starts_with(b"q:"));
    let unsorted = by.is_some_and(|pattern| !pattern.contains(&b'*')) && !key_has_order;
    let open_order = unsorted || (by.is_some() && has_word(command, "ALPHA"));
    match (
        open_order,
        has_word(command, "LIMIT"),
        has_word(command, "STORE"),
    ) {
        (false, _, _) | (_, _, true) => Judge::Exact,
        (true, false, _) => Judge::Unordered,
        (true, true, _) => Judge::Shape,
    }
}

fn sorted(mut items: Vec<Value>) -> Vec<Value> {
    items.sort();
    items
}

fn same_kind(ours: &Value, theirs: &Value) -> bool {
    std::mem::discriminant(ours) == std::mem::discriminant(theirs)
}

/// Whether the replies are equal in the sense of the judge.
pub fn agree(judge: Judge, command: &[Vec<u8>], ours: &Value, theirs: &Value) -> bool {
    if matches!(ours, Value::Lost(_)) || matches!(theirs, Value::Lost(_)) {
        return false;
    }
    if ours == theirs || is_newer_behaviour(command, ours, theirs) || is_reworded(ours, theirs) {
        return true;
    }
    if !same_kind(ours, theirs) || matches!(theirs, Value::Error(_)) {
        return false;
    }
    match judge {
        Judge::Exact | Judge::Random => false,
        Judge::Unordered => match (ours.flat(), theirs.flat()) {
            (Some(a), Some(b)) => sorted(a) == sorted(b),
            _ => false,
        },
        Judge::Pairs => match (ours.flat(), theirs.flat()) {
            (Some(a), Some(b)) if a.len() == b.len() && a.len().is_multiple_of(2) => {
                let (mut a, mut b) = (ours.pairs(), theirs.pairs());
                a.sort();
                b.sort();
                a == b
            }
            _ => false,
        },
        Judge::Clock { tolerance } => match (ours, theirs) {
            (Value::Int(a), Value::Int(b)) => *a >= 0 && *b >= 0 && (a - b).abs() <= tolerance,
            (Value::Array(a), Value::Array(b)) => {
                let mut pairs = a.iter().zip(b);
                a.len() == b.len() && pairs.all(|(a, b)| agree(judge, command, a, b))
            }
            _ => false,
        },
        Judge::Shape => ours.flat().map(|v| v.len()) == theirs.flat().map(|v| v.len()),
        Judge::Kind => true,
        Judge::Stream => plain_stream(ours) == plain_stream(theirs),
    }
}

/// What both versions report about streams in the same way: without Redis' radix tree, without
/// times, without what only newer versions report, and without what 7.4 counts differently (the lag of groups, and consumers that have
/// never got an entry).
fn plain_stream(value: &Value) -> Value {
    const LEFT_OUT: [&[u8]; 15] = [
        b"idmp-duration",
        b"idmp-maxsize",
        b"pids-tracked",
        b"iids-tracked",
        b"iids-added",
        b"iids-duplicates",
        b"nacked-count",
        b"radix-tree-keys",
        b"radix-tree-nodes",
        b"seen-time",
        b"active-time",
        b"idle",
        b"inactive",
        b"entries-read",
        b"lag",
    ];
    let Some(flat) = value.flat() else {
        return value.clone();
    };
    // A pending entry: without its delivery time or idle time.
    if let [Value::Bulk(_), rest @ .., Value::Int(times)] = flat.as_slice()
        && matches!(rest, [Value::Int(_)] | [Value::Bulk(_), Value::Int(_)])
    {
        let mut plain = vec![flat[0].clone()];
        plain.extend(
            rest.iter()
                .filter(|value| matches!(value, Value::Bulk(_)))
                .cloned(),
        );
        plain.push(Value::Int(*times));
        return Value::Array(plain);
    }
    let mut plain = Vec::new();
    let mut values = flat.iter();
    while let Some(value) = values.next() {
        let name = match value {
            Value::Bulk(name) => name.as_slice(),
            _ => b"",
        };
        if LEFT_OUT.contains(&name) {
            values.next();
        } else if name == b"consumers" {
            if let Some(Value::Array(consumers)) = values.next() {
                let busy = consumers.iter().filter(|consumer| is_busy(consumer));
                plain.push(Value::Array(busy.map(plain_stream).collect()));
            }
        } else if matches!(value, Value::Array(_) | Value::Map(_)) {
            if is_consumer(value) && !is_busy(value) {
                continue;
            }
            plain.push(plain_stream(value));
        } else {
            plain.push(value.clone());
        }
    }
    Value::Array(plain)
}

/// The field of a map.
fn field<'a>(flat: &'a [Value], name: &str) -> Option<&'a Value> {
    let at = flat.iter().position(|value| *value == Value::bulk(name))?;
    flat.get(at + 1)
}

fn is_consumer(value: &Value) -> bool {
    let flat = value.flat().unwrap_or_default();
    flat.first() == Some(&Value::bulk("name"))
        && field(&flat, "last-delivered-id").is_none()
        && (field(&flat, "pel-count").is_some() || field(&flat, "pending").is_some())
}

fn is_busy(consumer: &Value) -> bool {
    let flat = consumer.flat().unwrap_or_default();
    let count = field(&flat, "pel-count").or_else(|| field(&flat, "pending"));
    count.is_some_and(|count| *count != Value::Int(0))
}

/// What Redis says of newer commands, and how Valkey begins.
const REWORDED: &[(&str, &str)] = &[
    (
        "ERR invalid numkeys value",
        "ERR invalid numkeys value or out of range",
    ),
    (
        "ERR invalid expire time, must be >= 0",
        "ERR invalid expire time in '",
    ),
];

fn is_reworded(ours: &Value, theirs: &Value) -> bool {
    match (ours.error(), theirs.error()) {
        (Some(ours), Some(theirs)) => {
            let is = |(redis, valkey): &(&str, &str)| *redis == ours && theirs.starts_with(valkey);
            REWORDED.iter().any(is)
        }
        _ => false,
    }
}

/// The accepted differences between the oracle's version and ours:
///
/// - scores are printed in the shortest form that parses to the same number (7.2); before,
///   with 17 digits if they are not integers
/// - so are coordinates (8.0); before, with 17 digits after the point
/// - PFCOUNT only reads and does not store its result in the value; only the keys `u:` are
///   counted alone
/// - BITCOUNT and BITPOS check their arguments before the key (7.2)
/// - a score of -0 is 0: our rows encode scores in their order, where both are the same. The
///   oracle keeps or loses the sign depending on its encoding of the sorted set, so the
///   result of ZUNION and ZINTER with such a score and a negative weight may have either sign
/// - ZRANK and ZREVRANK take a fourth argument, WITHSCORE (7.2)
/// - cursors are parsed differently: negative and empty ones are errors (7.4), and those with
///   a zero byte, which ends a C string; those with blanks in front are none (8.0)
/// - bounds of scores and weights of SORT are decimal, without blanks in front (8.0); weights of
///   that kind are not drawn
/// - errors of XREAD and XREADGROUP about unbalanced keys and IDs name the command (7.2)
/// - XREADGROUP creates the consumer also if there is nothing to deliver (7.2)
/// - LREM and LPOS refuse the minimum integer, which cannot be negated (7.4); it is not drawn
///   for them, because the old LREM removes elements then
fn is_newer_behaviour(command: &[Vec<u8>], ours: &Value, theirs: &Value) -> bool {
    let name = command
        .first()
        .map(|n| n.to_ascii_uppercase())
        .unwrap_or_default();
    match name.as_slice() {
        b"BITCOUNT" | b"BITPOS" => {
            let wrong_type = theirs.error().is_some_and(|e| e.starts_with("WRONGTYPE"));
            matches!(ours, Value::Error(_)) && (wrong_type || matches!(theirs, Value::Int(0 | -1)))
        }
        b"GET" if command.get(1).is_some_and(|key| key.starts_with(b"u:")) => {
            same_but_for_cached_count(ours, theirs)
        }
        b"SCAN" => odd_cursor(command.get(1)),
        b"HSCAN" | b"SSCAN" => odd_cursor(command.get(2)),
        b"ZSCAN" => odd_cursor(command.get(2)) || same_but_for_digits(ours, theirs),
        b"ZRANK" | b"ZREVRANK" if command.len() == 4 => {
            matches!((ours, theirs), (Value::Error(_), Value::Error(_)))
        }
        b"XREAD" | b"XREADGROUP" => {
            let unbalanced = |value: &Value| {
                let text = value.error();
                text.is_some_and(|text| text.starts_with("ERR Unbalanced "))
            };
            unbalanced(ours) && unbalanced(theirs)
        }
        b"EXEC" => {
            let (ours, theirs) = (unsigned(ours), unsigned(theirs));
            same_but_for(&ours, &theirs, |a, b| {
                is_same_number(a, b) || is_same_coordinate(a, b)
            })
        }
        [b'G', b'E', b'O', ..] => same_but_for(ours, theirs, is_same_coordinate),
        b"XGROUP" => *ours == Value::Int(0) && *theirs == Value::Int(1),
        b"ZUNION" | b"ZINTER" => same_but_for_digits(&unsigned(ours), &unsigned(theirs)),
        [b'Z', ..] if ours.error().as_deref() == Some("ERR min or max is not a float") => {
            let is_odd = |byte: &u8| matches!(byte, b' ' | b'x' | b'X');
            command.iter().any(|word| word.iter().any(is_odd))
        }
        [b'Z', ..] | [b'B', b'Z', ..] => same_but_for_digits(ours, theirs),
        _ => false,
    }
}

/// Whether two HyperLogLogs are equal except for the eight bytes of the cached cardinality.
fn same_but_for_cached_count(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Bulk(a), Value::Bulk(b)) if a.len() == b.len() && a.len() >= 16 => {
            a.starts_with(b"HYLL") && a[..8] == b[..8] && a[16..] == b[16..]
        }
        _ => false,
    }
}

fn odd_cursor(cursor: Option<&Vec<u8>>) -> bool {
    let is_odd = |first: Option<&u8>| matches!(first, None | Some(b'-' | b' '));
    cursor.is_some_and(|text| is_odd(text.first()) || text.contains(&0))
}

/// The value with each -0 replaced by 0.
fn unsigned(value: &Value) -> Value {
    match value {
        Value::Bulk(text) if text == b"-0" => Value::Bulk(b"0".to_vec()),
        Value::Double(text) if text == b"-0" => Value::Double(b"0".to_vec()),
        Value::Array(values) => Value::Array(values.iter().map(unsigned).collect()),
        value => value.clone(),
    }
}

/// Whether the values are equal, where the oracle may print 17 digits, and -0 for 0.
fn same_but_for_digits(ours: &Value, theirs: &Value) -> bool {
    same_but_for(ours, theirs, is_same_number)
}

fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whether a number that the oracle prints with 17 digits, or as -0, is ours.
fn is_same_number(ours: &[u8], theirs: &[u8]) -> bool {
    let wordy = theirs.len() >= 17 || theirs.contains(&b'e') || theirs == b"-0";
    wordy && number(ours).is_some() && number(ours) == number(theirs)
}

/// Whether a coordinate that the oracle prints with up to 17 digits after the point is ours.
fn is_same_coordinate(ours: &[u8], theirs: &[u8]) -> bool {
    let printed = |degrees: f64| {
        let text = format!("{degrees:.17}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    number(ours).is_some_and(|degrees| printed(degrees).as_bytes() == theirs)
}

/// Whether the values are equal but for texts that are the same by `is_same`.
fn same_but_for(
    ours: &Value,
    theirs: &Value,
    is_same: impl Fn(&[u8], &[u8]) -> bool + Copy,
) -> bool {
    match (ours, theirs) {
        (Value::Bulk(a), Value::Bulk(b)) | (Value::Double(a), Value::Double(b)) => {
            a == b || is_same(a, b)
        }
        (Value::Array(a), Value::Array(b)) => {
            let mut pairs = a.iter().zip(b);
            a.len() == b.len() && pairs.all(|(a, b)| same_but_for(a, b, is_same))
        }
        _ => ours == theirs,
    }
}
