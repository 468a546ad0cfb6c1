//! Tips of COMMAND INFO: what a proxy or a cluster client should know of the replies of a
//! command, and of how to spread the command over several servers.

/// One tip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tip {
    /// The same data and arguments can give another reply.
    NondeterministicOutput,
    /// The elements of the reply can come in another order.
    NondeterministicOutputOrder,
    /// A proxy sends the command to all nodes, replicas included.
    RequestAllNodes,
    /// A proxy sends the command to all masters.
    RequestAllShards,
    /// A proxy sends each part of the keys to the master that has them.
    RequestMultiShard,
    /// A proxy has to know the command to send it.
    RequestSpecial,
    /// The reply of several servers is the logical AND of theirs.
    ResponseAggLogicalAnd,
    /// The reply of several servers is the lowest of theirs.
    ResponseAggMin,
    /// The reply of several servers is the sum of theirs.
    ResponseAggSum,
    /// The command is successful if it is on all servers.
    ResponseAllSucceeded,
    /// The command is successful if it is on one server.
    ResponseOneSucceeded,
    /// A proxy has to know the command to make one reply of several.
    ResponseSpecial,
}

impl Tip {
    /// The text in COMMAND INFO.
    pub fn name(self) -> &'static str {
        match self {
            Tip::NondeterministicOutput => "nondeterministic_output",
            Tip::NondeterministicOutputOrder => "nondeterministic_output_order",
            Tip::RequestAllNodes => "request_policy:all_nodes",
            Tip::RequestAllShards => "request_policy:all_shards",
            Tip::RequestMultiShard => "request_policy:multi_shard",
            Tip::RequestSpecial => "request_policy:special",
            Tip::ResponseAggLogicalAnd => "response_policy:agg_logical_and",
            Tip::ResponseAggMin => "response_policy:agg_min",
            Tip::ResponseAggSum => "response_policy:agg_sum",
            Tip::ResponseAllSucceeded => "response_policy:all_succeeded",
            Tip::ResponseOneSucceeded => "response_policy:one_succeeded",
            Tip::ResponseSpecial => "response_policy:special",
        }
    }
}
