//! ACL categories: most follow from a command's group and flags, the others are in its row.

use super::super::{Command, Flags, Handler};
use crate::commands::table::spec::Group;

/// All categories, in the order in which replies list them.
pub const ALL: [&str; 27] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
    "bloom",
    "cuckoo",
    "cms",
    "topk",
    "tdigest",
    "json",
];

/// The category of a group's commands.
fn of_group(group: Group) -> Option<&'static str> {
    Some(match group {
        Group::Generic => "keyspace",
        Group::String => "string",
        Group::Bitmap => "bitmap",
        Group::HyperLogLog => "hyperloglog",
        Group::Geo => "geo",
        Group::Hash => "hash",
        Group::List => "list",
        Group::Set => "set",
        Group::SortedSet => "sortedset",
        Group::Stream => "stream",
        Group::Connection => "connection",
        Group::Transactions => "transaction",
        Group::Scripting => "scripting",
        // Those that publish or subscribe have a flag. Redis has no category for sorted ints.
        Group::PubSub | Group::Server | Group::Cluster | Group::SortedInt => return None,
        Group::Bloom => "bloom",
        Group::Cuckoo => "cuckoo",
        Group::Sketch => "cms",
        Group::TopK => "topk",
        Group::TDigest => "tdigest",
        Group::Json => "json",
    })
}

/// The categories of a command, without `@`, in the order of [`ALL`].
pub fn of(command: &Command) -> Vec<&'static str> {
    ALL.into_iter().filter(|name| has(command, name)).collect()
}

/// Whether a command is in a category.
pub fn has(command: &Command, name: &str) -> bool {
    let flags = command.flags;
    // A container has no category by group: its subcommands have their own. Generic
    // commands that concern certain types only, or no keys, name their categories in
    // their row.
    let elsewhere = || {
        command.group == Group::Generic
            && ["list", "connection"]
                .iter()
                .any(|name| command.categories.contains(name))
    };
    let by_group = || match command.handler {
        Handler::Container => None,
        _ if elsewhere() => None,
        _ => of_group(command.group),
    };
    command.categories.contains(&name)
        || match name {
            "read" => {
                command.is_read() && ![Group::Scripting, Group::Cluster].contains(&command.group)
            }
            "write" => command.is_write(),
            "admin" | "dangerous" => flags.contains(Flags::ADMIN),
            "pubsub" => flags.contains(Flags::PUBSUB),
            "fast" => flags.contains(Flags::FAST),
            "slow" => !flags.contains(Flags::FAST),
            "blocking" => flags.contains(Flags::BLOCKING),
            name => by_group() == Some(name),
        }
}
