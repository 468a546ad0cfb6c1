//! The command list of the manual, made from the registry. A test fails if the list, or the
//! table of parameters, is not what the manual has.

use crate::commands::table::registry::{Registered, registry};
use crate::commands::table::spec::Group;
use std::fmt::Write;

/// Groups in the order of the list, with their titles.
const GROUPS: [(Group, &str); 23] = [
    (Group::String, "Strings"),
    (Group::Bitmap, "Bitmaps"),
    (Group::HyperLogLog, "HyperLogLog"),
    (Group::Geo, "Geo"),
    (Group::Hash, "Hashes"),
    (Group::List, "Lists"),
    (Group::Set, "Sets"),
    (Group::SortedSet, "Sorted sets"),
    (Group::Stream, "Streams"),
    (Group::SortedInt, "Sorted ints"),
    (Group::Bloom, "Bloom filters"),
    (Group::Cuckoo, "Cuckoo filters"),
    (Group::Sketch, "Count-min sketches"),
    (Group::TopK, "Most frequent items"),
    (Group::TDigest, "t-digests"),
    (Group::Generic, "Keys"),
    (Group::Transactions, "Transactions"),
    (Group::Scripting, "Scripts"),
    (Group::PubSub, "Publish and subscribe"),
    (Group::Connection, "Connection"),
    (Group::Server, "Server"),
    (Group::Json, "JSON documents"),
    (Group::Cluster, "Cluster"),
];

/// One command with its subcommands: `` `CONFIG` (`GET`, `SET`) ``.
fn entry(command: &Registered) -> String {
    let mut subcommands: Vec<String> = command
        .subcommands
        .values()
        .map(|sub| format!("`{}`", sub.command.name.to_uppercase()))
        .collect();
    subcommands.sort();
    let name = command.command.name.to_uppercase();
    match subcommands.is_empty() {
        true => format!("`{name}`"),
        false => format!("`{name}` ({})", subcommands.join(", ")),
    }
}

/// The manual's list of commands, in Markdown.
fn markdown_list() -> String {
    let mut text = String::from("| Group | Commands |\n|---|---|\n");
    let mut total = 0;
    for (group, title) in GROUPS {
        let mut entries: Vec<String> = registry()
            .iter()
            .filter(|command| command.command.group == group)
            .map(entry)
            .collect();
        if entries.is_empty() {
            continue;
        }
        entries.sort();
        total += entries.len();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {title} | {} |", entries.join(", "));
    }
    let _ = writeln!(text, "\n{total} commands.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::config;
    use crate::sys::testing::check_manual;

    #[test]
    fn the_lists_of_the_manual_are_up_to_date() {
        check_manual("commands.md", "commands", &markdown_list());
        check_manual("configuration.md", "config", &config::markdown_table());
    }

    #[test]
    fn every_group_is_listed() {
        for command in registry().iter() {
            let group = command.command.group;
            assert!(
                GROUPS.iter().any(|(listed, _)| *listed == group),
                "{} of {group:?}",
                command.full_name
            );
        }
    }
}
