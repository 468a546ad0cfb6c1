//! Each command is in a family, or is left out for a reason.

use super::families;
use crate::support::{Server, Value};
use std::collections::BTreeSet;

/// Commands that are in no family, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "acl|help bigkeys|help client|help cluster|help command|help commandlog|help config|help function|help \
         hotkeys|help latency|help memory|help module|help object|help pubsub|help script|help slowlog|help xgroup|help \
         xinfo|help",
        "the text is this server's own",
    ),
    (
        "xackdel xcfgset xdelex xidmprecord xnack",
        "newer than the oracle; `streams` compares them with one that is as new",
    ),
    (
        "client|no-touch client|setinfo cluster|myshardid cluster|slot-stats waitaof",
        "newer than the oracle",
    ),
    (
        "client|capa client|import-source commandlog commandlog|get commandlog|len \
         commandlog|reset hotkeys hotkeys|get hotkeys|reset hotkeys|start hotkeys|stop",
        "newer than the oracle; `newer` compares them with one that is as new",
    ),
    (
        "himport himport|discard himport|discardall himport|prepare himport|set script|show",
        "newer than the oracle; `newer` compares them with one that is as new",
    ),
    (
        "saddex sexpire sexpireat sexpiretime spersist spexpire spexpireat spexpiretime spttl sttl",
        "newer than any oracle: `element_times` compares them with those of hashes",
    ),
    (
        "bigkeys bigkeys|get bigkeys|reset bigkeys|start bigkeys|status bigkeys|stop",
        "this server's own: `bigkeys`",
    ),
    (
        "delex delifeq digest increx msetex lmovem blmovem sdiffcard sunioncard",
        "newer than the oracle: unit tests beside the families",
    ),
    (
        "acl|deluser acl|load acl|log acl|save acl|setuser",
        "changes as whom the others run: `users` compares them with the oracle",
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
    (
        "siadd sicard siexists sirange sirangebyvalue sirem sirevrange sirevrangebyvalue",
        "Redis does not have the type: `commands::sortedint`, `crash`, `notify`",
    ),
    (
        "bf.add bf.card bf.debug bf.exists bf.info bf.insert bf.loadchunk bf.madd \
         bf.mexists bf.reserve bf.scandump cf.add cf.addnx cf.compact cf.count cf.debug \
         cf.del cf.exists cf.info cf.insert cf.insertnx cf.loadchunk cf.mexists \
         cf.reserve cf.scandump cms.incrby cms.info cms.initbydim cms.initbyprob \
         cms.merge cms.query tdigest.add tdigest.byrank tdigest.byrevrank tdigest.cdf \
         tdigest.create tdigest.info tdigest.max tdigest.merge tdigest.min \
         tdigest.quantile tdigest.rank tdigest.reset tdigest.revrank tdigest.trimmed_mean \
         topk.add topk.count topk.incrby topk.info topk.list topk.query topk.reserve",
        "the oracle has no RedisBloom: `bloom`, and the unit tests beside the types",
    ),
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
