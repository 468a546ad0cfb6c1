//! Commands that COMMAND DOCS marks as deprecated or as internal.

/// The deprecation of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deprecated {
    /// The Redis version that deprecated it.
    pub since: &'static str,
    /// The replacement.
    pub instead: &'static str,
}

/// The deprecation of the command with this full name, if it is deprecated.
pub(super) fn deprecated(name: &str) -> Option<Deprecated> {
    let (since, instead) = match name {
        "substr" => ("2.0.0", "`GETRANGE`"),
        "setnx" => ("2.6.12", "`SET` with `NX`"),
        "setex" => ("2.6.12", "`SET` with `EX`"),
        "psetex" => ("2.6.12", "`SET` with `PX`"),
        "hmset" => ("4.0.0", "`HSET`, which takes several fields"),
        "slaveof" => ("5.0.0", "`REPLICAOF`"),
        "getset" => ("6.2.0", "`SET` with `GET`"),
        "rpoplpush" => ("6.2.0", "`LMOVE` with `RIGHT` and `LEFT`"),
        "brpoplpush" => ("6.2.0", "`BLMOVE` with `RIGHT` and `LEFT`"),
        "zrevrange" => ("6.2.0", "`ZRANGE` with `REV`"),
        "zrangebyscore" => ("6.2.0", "`ZRANGE` with `BYSCORE`"),
        "zrevrangebyscore" => ("6.2.0", "`ZRANGE` with `BYSCORE` and `REV`"),
        "zrangebylex" => ("6.2.0", "`ZRANGE` with `BYLEX`"),
        "zrevrangebylex" => ("6.2.0", "`ZRANGE` with `BYLEX` and `REV`"),
        "cluster|slaves" => ("5.0.0", "`CLUSTER REPLICAS`"),
        "cluster|slots" => ("7.0.0", "`CLUSTER SHARDS`"),
        "quit" => ("7.2.0", "closing the connection"),
        _ => return None,
    };
    Some(Deprecated { since, instead })
}

/// Whether the command with this full name is for servers and developers only.
pub(super) fn is_internal(name: &str) -> bool {
    [
        "debug",
        "pfdebug",
        "pfselftest",
        "replconf",
        "restore-asking",
    ]
    .contains(&name)
}
