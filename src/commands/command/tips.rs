//! The tips of COMMAND INFO: what a proxy or a cluster client should know of a
//! command's replies and of how to spread it over several servers.

const UNSTABLE: &str = "nondeterministic_output";
const UNORDERED: &str = "nondeterministic_output_order";
const TO_NODES: &str = "request_policy:all_nodes";
const TO_SHARDS: &str = "request_policy:all_shards";
const SPLIT: &str = "request_policy:multi_shard";
const SUM: &str = "response_policy:agg_sum";
const LEAST: &str = "response_policy:agg_min";
const ALL_OK: &str = "response_policy:all_succeeded";
const ONE_OK: &str = "response_policy:one_succeeded";
const OWN_WAY: &str = "response_policy:special";

/// The tips of a command, by its full name (`config|get`).
pub(super) fn of(name: &str) -> &'static [&'static str] {
    match name {
        "client|info" | "client|list" | "dump" | "hrandfield" | "hscan" | "lastsave"
        | "migrate" | "object|encoding" | "object|freq" | "object|idletime" | "object|refcount"
        | "pttl" | "spop" | "srandmember" | "sscan" | "time" | "ttl" | "xadd" | "xautoclaim"
        | "xclaim" | "xinfo|consumers" | "xpending" | "xtrim" | "zrandmember" | "zscan" => {
            &[UNSTABLE]
        }
        "command" | "command|docs" | "command|info" | "command|list" | "function|list"
        | "hgetall" | "hkeys" | "hvals" | "module|list" | "sdiff" | "sinter" | "smembers"
        | "sunion" => &[UNORDERED],
        "slowlog|get" => &[TO_NODES, UNSTABLE],
        "slowlog|len" => &[TO_NODES, SUM, UNSTABLE],
        "latency|doctor" | "latency|graph" | "latency|histogram" | "latency|history"
        | "latency|latest" => &[UNSTABLE, TO_NODES, OWN_WAY],
        "function|stats" | "info" | "memory|doctor" | "memory|malloc-stats" | "memory|stats" => {
            &[UNSTABLE, TO_SHARDS, OWN_WAY]
        }
        "randomkey" => &[TO_SHARDS, OWN_WAY, UNSTABLE],
        "scan" => &[UNSTABLE, "request_policy:special", OWN_WAY],
        "keys" => &[TO_SHARDS, UNORDERED],
        "client|setinfo" | "client|setname" | "config|resetstat" | "config|rewrite"
        | "config|set" | "script|flush" | "script|load" | "slowlog|reset" => &[TO_NODES, ALL_OK],
        "latency|reset" => &[TO_NODES, SUM],
        "script|exists" => &[TO_SHARDS, "response_policy:agg_logical_and"],
        "wait" | "waitaof" => &[TO_SHARDS, LEAST],
        "dbsize" => &[TO_SHARDS, SUM],
        "flushall" | "flushdb" | "function|delete" | "function|flush" | "function|load"
        | "function|restore" | "memory|purge" | "ping" => &[TO_SHARDS, ALL_OK],
        "function|kill" | "script|kill" => &[TO_SHARDS, ONE_OK],
        "mget" => &[SPLIT],
        "del" | "exists" | "touch" | "unlink" => &[SPLIT, SUM],
        "mset" => &[SPLIT, ALL_OK],
        _ => &[],
    }
}
