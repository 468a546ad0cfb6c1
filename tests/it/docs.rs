//! COMMAND DOCS beside the oracle's: which arguments commands take, and since when.
//!
//! Names of arguments, summaries and complexities are left out: the names are others
//! since Redis 7.2, and the texts are ours.

use crate::support::{Conn, Server, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Where Redis 7.0 says less of the arguments than there is, or says it less exactly
/// than versions after it do.
const SAID_OTHERWISE: &[(&str, &str)] = &[
    ("bitop", "the operations by name"),
    ("client|kill", "filters of their own, MAXAGE"),
    ("client|list", "ID without a block of one"),
    ("command|getkeys", "the command and its arguments"),
    ("command|getkeysandflags", "the command and its arguments"),
    ("config|get", "patterns without a block of one"),
    ("hscan", "NOVALUES"),
    ("migrate", "the empty key as it is typed"),
    ("pfmerge", "the sources are optional"),
    ("psubscribe", "patterns without a block of one"),
    ("psync", "FAILOVER"),
    ("replconf", "options and their values"),
    ("shutdown", "ABORT alone"),
    ("xinfo|stream", "FULL with COUNT behind it"),
    ("zrank", "WITHSCORE"),
    ("zrevrank", "WITHSCORE"),
];

/// Commands to which versions after 7.0 added something.
const MORE_HISTORY: &[&str] = &[
    "client|kill",
    "hscan",
    "xinfo|consumers",
    "xinfo|stream",
    "zrank",
    "zrevrank",
];

/// What a command says of itself, without the subcommands.
type Fields = BTreeMap<String, Value>;

fn fields(map: &Value) -> Fields {
    let pairs = map.pairs().into_iter();
    pairs.map(|(name, value)| (name.text(), value)).collect()
}

fn docs(server: &Server) -> BTreeMap<String, Fields> {
    let mut client: Conn = server.connect();
    client.hello3();
    let mut all = BTreeMap::new();
    let mut more = client.must("COMMAND DOCS").pairs();
    while let Some((name, said)) = more.pop() {
        let mut said = fields(&said);
        if let Some(subcommands) = said.remove("subcommands") {
            more.extend(subcommands.pairs());
        }
        all.insert(name.text(), said);
    }
    all
}

/// The arguments without their names, as one text.
fn shape(arguments: Option<&Value>) -> String {
    let Some(arguments) = arguments else {
        return String::new();
    };
    let shapes = arguments.items().iter().map(|argument| {
        let said = fields(argument);
        let text = |name: &str| said.get(name).map(Value::text).unwrap_or_default();
        let flags: BTreeSet<String> = said
            .get("flags")
            .map(|flags| flags.items().iter().map(Value::text).collect())
            .unwrap_or_default();
        let key_spec = said.get("key_spec_index").map(Value::int);
        format!(
            "{} {:?} {key_spec:?} {flags:?} since {:?} ({})",
            text("type"),
            text("token"),
            text("since"),
            shape(said.get("arguments")),
        )
    });
    shapes.collect::<Vec<_>>().join(", ")
}

fn history(said: &Fields) -> Vec<String> {
    let changes = said.get("history").map(Value::items).unwrap_or_default();
    changes
        .iter()
        .map(|change| change.items()[0].text())
        .collect()
}

#[test]
fn arguments_and_history_are_those_of_redis() {
    let (ours, theirs) = (Server::start(&[]), crate::support::oracle(&[]));
    let (ours, theirs) = (docs(&ours), docs(&theirs));
    let mut differences = Vec::new();
    let mut compared = 0;
    for (name, our) in &ours {
        let Some(their) = theirs.get(name) else {
            continue;
        };
        compared += 1;
        let shapes = [our, their].map(|said| shape(said.get("arguments")));
        let excused = SAID_OTHERWISE.iter().any(|(other, _)| other == name);
        if (shapes[0] != shapes[1]) != excused {
            differences.push(format!("{name}\n  {}\n  {}", shapes[0], shapes[1]));
        }
        let histories = [our, their].map(history);
        if (histories[0] != histories[1]) != MORE_HISTORY.contains(&name.as_str()) {
            differences.push(format!("{name}\n  {histories:?}"));
        }
        assert!(our.contains_key("complexity"), "{name} has no complexity");
    }
    assert!(compared > 290, "only {compared} commands are known to both");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
