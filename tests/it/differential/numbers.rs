//! Unusual forms of numbers in each numeric argument of each command: with blanks, signs, zeros
//! in front, in hexadecimal, too large, not a number. What arguments there are, the oracle's
//! COMMAND DOCS says.

use super::compare::{agree, judge};
use super::run::Pair;
use crate::support::{Value, args, cli};

const FORMS: &[&str] = &[
    "",
    " ",
    " 7",
    "7 ",
    "+7",
    "-7",
    "007",
    "-0",
    "+0",
    "0",
    "1",
    "0x10",
    "nan",
    "inf",
    "-inf",
    "+Infinity",
    "1e2",
    "1.5",
    "-1.5",
    ".5",
    "5.",
    "1e400",
    "1e-400",
    "-1",
    "--7",
    "1_0",
    "1,5",
    "1e",
    "7a",
    "abc",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "123456789012345678901",
    "4294967296",
    "(7",
    "( 7",
    "(0x10",
    "(inf",
    "#1",
    "1-1",
    " 1-1",
    "1-",
    "+1-1",
    "1- 1",
    "1-+1",
    "01-01",
    "-",
    "+",
];

/// A key of each group, named after it.
const SETUP: &[&str] = &[
    "SELECT 0",
    "DEL string bitmap list set sorted-set hash stream hyperloglog geo generic to",
    "SET string 10",
    "SET bitmap abcdef",
    "RPUSH list 3 1 2",
    "SADD set 1 2 3",
    "ZADD sorted-set 1 a 2 b 7 c",
    "HSET hash f 1 g 2.5",
    "XADD stream 1-1 a b",
    "XADD stream 7-1 a b",
    "XGROUP CREATE stream g 0",
    "PFADD hyperloglog a",
    "GEOADD geo 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
    "SET generic 1",
];

/// Commands that are left out: what they do is random, takes for ever, goes to another server,
/// or concerns the server as a whole.
const LEFT_OUT: &[&str] = &[
    "migrate",
    "randomkey",
    "scan",
    "keys",
    "sort",
    "sort_ro",
    "spop",
    "wait",
    "waitaof",
    "object",
    "dump",
    "pfdebug",
    "pfselftest",
    "restore-asking",
];

/// Their results depend on chance, so that they are asked for a key that does not exist.
const RANDOM: &[&str] = &["srandmember", "hrandfield", "zrandmember"];

const GROUPS: &[&str] = &[
    "string",
    "bitmap",
    "list",
    "set",
    "sorted-set",
    "hash",
    "stream",
    "hyperloglog",
    "geo",
    "generic",
];

/// An argument as COMMAND DOCS describes it.
struct Arg {
    name: String,
    kind: String,
    token: Option<String>,
    is_optional: bool,
    inner: Vec<Arg>,
}

/// A word of a request.
#[derive(Clone)]
enum Word {
    Is(String),
    /// Where the forms go.
    Number,
}

fn field(map: &Value, name: &str) -> Option<Value> {
    let mut pairs = map.pairs().into_iter();
    pairs
        .find(|(key, _)| key.text() == name)
        .map(|(_, value)| value)
}

impl Arg {
    fn all(docs: Option<Value>) -> Vec<Arg> {
        let docs = docs.map(|docs| docs.items().to_vec()).unwrap_or_default();
        docs.iter().map(Arg::parse).collect()
    }

    fn parse(docs: &Value) -> Arg {
        let text = |name| field(docs, name).map(|value| value.text());
        let flags = field(docs, "flags").map(|flags| flags.flat().unwrap_or_default());
        Arg {
            name: text("name").unwrap(),
            kind: text("type").unwrap(),
            token: text("token"),
            is_optional: flags.is_some_and(|flags| flags.iter().any(|f| f.text() == "optional")),
            inner: Arg::all(field(docs, "arguments")),
        }
    }

    fn token(&self) -> Vec<Word> {
        self.token.iter().cloned().map(Word::Is).collect()
    }

    /// The shortest form of the argument that the command takes.
    fn shortest(&self, group: &str) -> Vec<Word> {
        let mut words = self.token();
        match self.kind.as_str() {
            "pure-token" => {}
            "oneof" => words.extend(self.inner[0].shortest(group)),
            "block" => words.extend(shortest(&self.inner, group)),
            kind => words.push(Word::Is(self.usual(kind, group).to_owned())),
        }
        words
    }

    fn usual<'g>(&self, kind: &str, group: &'g str) -> &'g str {
        match (kind, self.name.as_str(), group) {
            ("key", "destination" | "newkey" | "destkey", _) => "to",
            ("key", ..) => group,
            (_, "member" | "member1" | "member2", "geo") => "Palermo",
            (_, "start" | "min", "stream") => "1-1",
            (_, "end" | "max", "stream") => "9-9",
            (_, "id" | "lastid", _) => "1-1",
            (_, "group", _) => "g",
            (_, "consumer", _) => "c",
            (_, "field", _) => "f",
            (_, "member", _) => "a",
            (_, "encoding", _) => "u8",
            (_, "max" | "stop" | "end", _) => "5",
            (_, "cursor" | "start" | "offset" | "min" | "min-idle-time", _) => "0",
            (_, "longitude", _) => "13",
            (_, "latitude", _) => "38",
            (_, "seconds" | "milliseconds" | "radius" | "width" | "height", _) => "100000",
            (_, "unix-time-seconds", _) => "99999999999",
            (_, "unix-time-milliseconds", _) => "99999999999999",
            _ => "1",
        }
    }

    /// The forms of the argument with a number left open.
    fn with_number(&self, group: &str) -> Vec<Vec<Word>> {
        let inner = match self.kind.as_str() {
            "integer" | "double" | "unix-time" => vec![vec![Word::Number]],
            // Bounds and IDs.
            "string" if !matches!(self.name.as_str(), "element" | "value" | "member" | "id") => {
                vec![vec![Word::Number]]
            }
            "oneof" => self
                .inner
                .iter()
                .flat_map(|arg| arg.with_number(group))
                .collect(),
            "block" => with_number(&self.inner, group),
            _ => Vec::new(),
        };
        let behind = |words: Vec<Word>| [self.token(), words].concat();
        inner.into_iter().map(behind).collect()
    }
}

fn shortest(all: &[Arg], group: &str) -> Vec<Word> {
    let needed = all.iter().filter(|arg| !arg.is_optional);
    needed.flat_map(|arg| arg.shortest(group)).collect()
}

fn with_number(all: &[Arg], group: &str) -> Vec<Vec<Word>> {
    let mut found = Vec::new();
    for (at, arg) in all.iter().enumerate() {
        for open in arg.with_number(group) {
            let before = shortest(&all[..at], group);
            let after = shortest(&all[at + 1..], group);
            found.push([before, open, after].concat());
        }
    }
    found
}

/// What versions newer than 7.0 refuse, and the oracle may take or refuse in other words: times that
/// do not fit, and the least integer, which cannot be negated.
fn is_newer_refusal(ours: &Value) -> bool {
    ours.error().is_some_and(|text| {
        let no_least = "ERR value is out of range, value must between -9223372036854775807 and";
        text == "ERR timeout is out of range" || text.starts_with(no_least)
    })
}

/// What Redis 8.0 replies to numbers beyond its 32 bits: LSET cuts an index, and XAUTOCLAIM takes
/// memory for all that COUNT asks for.
fn is_fault_of_the_oracle(line: &[Vec<u8>], ours: &Value, theirs: &Value) -> bool {
    let theirs_fails = theirs.error().unwrap_or_default();
    match line[0].as_slice() {
        b"lset" => ours.error().as_deref() == Some("ERR index out of range"),
        b"xautoclaim" => theirs_fails.starts_with("ERR Insufficient memory"),
        _ => false,
    }
}

/// Each command of the oracle with one number left open, and its group.
fn requests(pair: &mut Pair) -> Vec<Vec<Word>> {
    let docs = pair.ask("COMMAND DOCS");
    let mut found = Vec::new();
    for (name, doc) in docs.pairs() {
        let (name, group) = (name.text(), field(&doc, "group").unwrap().text());
        if !GROUPS.contains(&group.as_str()) || LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        let group = match RANDOM.contains(&name.as_str()) {
            true => "none",
            false => &group,
        };
        let rows = match field(&doc, "subcommands") {
            Some(rows) => rows.pairs(),
            None => vec![(Value::bulk(&name), doc)],
        };
        for (full, row) in rows {
            let full = full.text();
            let words: Vec<Word> = full.split('|').map(|w| Word::Is(w.to_owned())).collect();
            for rest in with_number(&Arg::all(field(&row, "arguments")), group) {
                let request = [words.clone(), rest].concat();
                // An ID that the clock decides is another on each.
                let is_clock = |word: &Word| matches!(word, Word::Is(word) if word == "*");
                if !request.iter().any(is_clock) {
                    found.push(request);
                }
            }
        }
    }
    found
}

#[test]
fn numbers_in_any_form_are_read_as_the_oracle_does() {
    let mut pair = Pair::start();
    let setup: Vec<Vec<Vec<u8>>> = SETUP.iter().map(|line| args(line)).collect();
    let (mut compared, mut differences) = (0, Vec::new());
    for request in requests(&mut pair) {
        for form in FORMS {
            let words = request.iter().map(|word| match word {
                Word::Is(word) => word.as_bytes().to_vec(),
                Word::Number => form.as_bytes().to_vec(),
            });
            let line: Vec<Vec<u8>> = words.collect();
            let mut lines = setup.clone();
            // In a transaction it does not wait for elements.
            lines.extend([args("MULTI"), line.clone(), args("EXEC")]);
            let replies = pair.both(&lines);
            let (ours, theirs) = replies.last().unwrap();
            compared += 1;
            let one = |reply: &Value| match reply {
                Value::Array(items) if items.len() == 1 => items[0].clone(),
                other => other.clone(),
            };
            let (ours, theirs) = (one(ours), one(theirs));
            let agrees = agree(judge(&line), &line, &ours, &theirs);
            let is_known = is_newer_refusal(&ours) || is_fault_of_the_oracle(&line, &ours, &theirs);
            if !agrees && !is_known {
                let line = cli::line(&line);
                differences.push(format!("{line}\n  ours:   {ours:?}\n  oracle: {theirs:?}"));
            }
        }
    }
    assert!(compared > 3_000, "only {compared} requests");
    assert!(
        differences.is_empty(),
        "{} of {compared}:\n{}",
        differences.len(),
        differences.join("\n")
    );
}
