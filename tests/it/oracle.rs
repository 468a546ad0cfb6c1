//! Replies that do not depend on keys, compared with the oracle's.

use crate::support::{Conn, Server, Value, oracle};
use std::collections::{BTreeMap, BTreeSet};

/// Commands whose arguments COMMAND DOCS of Redis 7.0 describes incompletely, or less exactly
/// than later versions.
const SAID_OTHERWISE: &[(&str, &str)] = &[
    ("bgsave", "RDB, which is ours"),
    ("bitop", "the operations by name"),
    ("client|kill", "filters of their own, MAXAGE"),
    ("client|list", "ID without a block of one"),
    ("command|getkeys", "the command and its arguments"),
    ("command|getkeysandflags", "the command and its arguments"),
    ("config|get", "patterns without a block of one"),
    ("geohash", "the members are optional"),
    ("geopos", "the members are optional"),
    ("georadius", "STORE or STOREDIST, not both"),
    ("georadiusbymember", "STORE or STOREDIST, not both"),
    ("georadiusbymember_ro", "the count is optional"),
    ("geosearch", "BYPOLYGON"),
    ("geosearchstore", "BYPOLYGON"),
    ("hscan", "NOVALUES"),
    ("migrate", "the empty key as it is typed, USE_PREFIX"),
    ("pfmerge", "the sources are optional"),
    ("psubscribe", "patterns without a block of one"),
    ("psync", "FAILOVER"),
    ("replconf", "options and their values"),
    ("set", "conditions on the old value"),
    ("shutdown", "ABORT alone"),
    ("xadd", "references, idempotent ids"),
    ("xinfo|stream", "FULL with COUNT behind it"),
    ("xread", "MAXCOUNT, MAXSIZE"),
    ("xreadgroup", "MAXCOUNT, MAXSIZE, CLAIM"),
    ("xtrim", "references"),
    ("zinter", "COUNT"),
    ("zinterstore", "COUNT"),
    ("zrank", "WITHSCORE"),
    ("zrevrank", "WITHSCORE"),
    ("zunion", "COUNT"),
    ("zunionstore", "COUNT"),
];

/// Commands to which versions after 7.0 added something.
const MORE_HISTORY: &[&str] = &[
    "acl|log",
    "bitop",
    "client|kill",
    "client|list",
    "georadius_ro",
    "georadiusbymember",
    "georadiusbymember_ro",
    "hscan",
    "set",
    "xadd",
    "xinfo|consumers",
    "xinfo|stream",
    "xread",
    "xreadgroup",
    "xtrim",
    "zinter",
    "zinterstore",
    "zrank",
    "zrevrank",
    "zunion",
    "zunionstore",
];

/// The COMMAND DOCS of a command, without the subcommands.
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

/// Collects all tokens of arguments.
fn tokens(arguments: Option<&Value>, found: &mut BTreeSet<String>) {
    for argument in arguments.map(Value::items).unwrap_or_default() {
        let said = fields(argument);
        found.extend(said.get("token").map(Value::text));
        tokens(said.get("arguments"), found);
    }
}

fn history(said: &Fields) -> Vec<String> {
    let changes = said.get("history").map(Value::items).unwrap_or_default();
    changes
        .iter()
        .map(|change| change.items()[0].text())
        .collect()
}

/// Names of arguments, summaries and complexities are not compared: the names have changed in
/// Redis 7.2, and the texts are our own.
#[test]
fn arguments_and_history_are_those_of_redis() {
    let (ours, theirs) = (Server::start(&[]), oracle(&[]));
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
        let [ours, theirs] = [our, their].map(|said| {
            let mut found = BTreeSet::new();
            tokens(said.get("arguments"), &mut found);
            found
        });
        let forgotten: Vec<_> = theirs.difference(&ours).collect();
        // MIGRATE's token for the empty key differs from Redis'.
        if forgotten.iter().any(|token| !token.is_empty()) {
            differences.push(format!("{name} lacks {forgotten:?}"));
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

/// Replies of DEBUG PROTOCOL. After a push there is an ordinary reply as well.
#[test]
fn values_of_each_type_of_the_protocol() {
    let flags = ["--enable-debug-command", "yes"];
    let mut clients = [Server::start(&flags), oracle(&flags)].map(|server| {
        let mut client = server.connect();
        client.hello3();
        (server, client)
    });
    for kind in [
        "string", "integer", "double", "bignum", "null", "array", "set", "map", "push", "verbatim",
        "true", "false", "nonsense",
    ] {
        let [ours, theirs] = clients.each_mut().map(|(_, client)| {
            client.send(&["DEBUG", "PROTOCOL", kind]).unwrap();
            client.send(&["ECHO", "end"]).unwrap();
            let replies = std::iter::from_fn(|| {
                let reply = client.read().unwrap();
                (reply != Value::bulk("end")).then_some(reply)
            });
            replies.collect::<Vec<_>>()
        });
        assert_eq!(ours, theirs, "{kind}");
    }
}
