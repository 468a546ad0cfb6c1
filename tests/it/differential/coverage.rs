//! Each command is in a family, or is left out for a reason.

use super::families;
use crate::support::{Server, Value};
use std::collections::BTreeSet;

/// Commands that are in no family, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "acl|help client|help cluster|help command|help config|help function|help latency|help \
         memory|help module|help object|help pubsub|help script|help slowlog|help xgroup|help \
         xinfo|help",
        "the text is this server's own",
    ),
    (
        "client|no-touch client|setinfo cluster|myshardid waitaof",
        "newer than the oracle",
    ),
    (
        "acl|deluser acl|load acl|log acl|save acl|setuser",
        "there is one user, whose rights do not change",
    ),
    (
        "module|load module|loadex module|unload",
        "there are no modules",
    ),
    (
        "subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe",
        "one reply for each channel; `pubsub` compares them with the oracle",
    ),
    (
        "monitor client|tracking client|reply",
        "the connection gets more or fewer replies than requests: `exec::monitor`, `tracking`, \
         `clients`",
    ),
    (
        "client|pause quit shutdown",
        "all that follow wait or fail: `clients`, `lifecycle`",
    ),
    (
        "sync psync replconf",
        "the connection becomes a link: `replication`",
    ),
    (
        "save bgsave bgrewriteaof",
        "writes files, at its own time: `rdb`, `loading`",
    ),
    (
        "script|debug",
        "the oracle refuses it in a pipeline before it looks at it",
    ),
    ("migrate", "speaks to a third server: `migrate`"),
    (
        "json.arrappend json.arrindex json.arrinsert json.arrlen json.arrpop json.arrtrim json.clear \
         json.debug json.del json.forget json.get json.merge json.mget json.mset json.numincrby \
         json.nummultby json.numpowby json.objkeys json.objlen json.resp json.set json.strappend \
         json.strlen json.toggle json.type",
        "of a module that the oracle does not have: `commands::json`",
    ),
    ("pfselftest", "takes the oracle seconds"),
];

#[test]
fn each_command_is_in_a_family_or_left_out_for_a_reason() {
    let server = Server::start(&[]);
    let all = server.connect().must("COMMAND LIST");
    let all: BTreeSet<String> = all.items().iter().map(Value::text).collect();
    let families = families::all().into_iter().chain([families::common()]);
    let drawn: BTreeSet<String> = families
        .flat_map(|family| family.commands().collect::<Vec<_>>())
        .collect();
    let left_out = LEFT_OUT.iter().flat_map(|(names, _)| names.split(' '));
    let left_out: BTreeSet<String> = left_out.map(str::to_owned).collect();
    let missing: Vec<_> = all
        .iter()
        .filter(|name| !drawn.contains(*name) && !left_out.contains(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "neither in a family nor left out: {missing:?}"
    );
    let needless: Vec<_> = left_out
        .iter()
        .filter(|name| drawn.contains(*name) || !all.contains(*name))
        .collect();
    assert!(
        needless.is_empty(),
        "left out, but drawn or no command: {needless:?}"
    );
}
