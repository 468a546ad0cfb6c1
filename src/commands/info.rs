//! INFO: state and statistics of the server, in sections of `name:value` lines.
//!
//! | file | sections |
//! |---|---|
//! | this file | the list of sections and their selection |
//! | [`process`] | server, tls, clients, memory, cpu |
//! | [`counters`] | stats, commandstats, errorstats, latencystats, hotkeys |
//! | [`replication`] | replication |
//! | [`data`] | persistence, cluster, keyspace, storage, binlog, rocksdb |
//!
//! Field names are Redis' wherever a field means the same. Fields of features that Kedis
//! does not have are present with the value that means "none".

mod counters;
mod data;
pub(in crate::commands) mod process;
mod replication;

use super::{CmdResult, Command, Flags, SessionCtx};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::state::Server;
use std::fmt::{Display, Write};

/// The Redis version whose behaviour this server has.
pub const REDIS_VERSION: &str = "8.6.0";

/// This server's own version.
pub(super) const KEDIS_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The text under construction.
#[derive(Default)]
pub struct Text {
    out: String,
}

impl Text {
    fn section(&mut self, title: &str) {
        if !self.out.is_empty() {
            self.out.push_str("\r\n");
        }
        self.line(format_args!("# {title}"));
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.out, "{line}\r\n");
    }

    /// One field; line breaks in the value become spaces.
    fn field(&mut self, name: &str, value: impl Display) {
        let start = self.out.len() + name.len() + 1;
        let _ = write!(self.out, "{name}:{value}");
        if self.out[start..].contains(['\r', '\n']) {
            let value = self.out[start..].replace(['\r', '\n'], " ");
            self.out.truncate(start);
            self.out.push_str(&value);
        }
        self.out.push_str("\r\n");
    }

    /// Fields with constant values.
    fn constants(&mut self, fields: &[(&str, &str)]) {
        for (name, value) in fields {
            self.field(name, value);
        }
    }

    /// A size in bytes, and again in human-readable form (`…_human`).
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.field(&format!("{name}_human"), human_bytes(bytes));
    }
}

/// A size in human-readable form: `1.50K`.
pub(super) fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{value:.2}{unit}")
}

/// Which replies include a section, besides those that name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum In {
    /// INFO without arguments, `default`, `all` and `everything`.
    Default,
    /// `all` and `everything`.
    All,
}

struct Section {
    name: &'static str,
    title: &'static str,
    within: In,
    /// Whether its title is left out if it has no fields.
    may_lack: bool,
    write: fn(&mut Text, &Server),
}

const fn section(
    name: &'static str,
    title: &'static str,
    within: In,
    write: fn(&mut Text, &Server),
) -> Section {
    Section {
        name,
        title,
        within,
        may_lack: false,
        write,
    }
}

/// All sections, in the order in which they are written.
const SECTIONS: &[Section] = &[
    section("server", "Server", In::Default, process::server),
    section("tls", "TLS", In::All, process::tls),
    section("clients", "Clients", In::Default, process::clients),
    section("memory", "Memory", In::Default, process::memory),
    section("persistence", "Persistence", In::Default, data::persistence),
    section("stats", "Stats", In::Default, counters::stats),
    section(
        "replication",
        "Replication",
        In::Default,
        replication::replication,
    ),
    section("cpu", "CPU", In::Default, process::cpu),
    section("modules", "Modules", In::Default, |_, _| {}),
    section("commandstats", "Commandstats", In::All, counters::commands),
    section("errorstats", "Errorstats", In::Default, counters::errors),
    section("latencystats", "Latencystats", In::All, counters::latencies),
    section("cluster", "Cluster", In::Default, data::cluster),
    section("storage", "Storage", In::Default, data::storage),
    section("binlog", "Binlog", In::Default, data::binlog),
    section("rocksdb", "RocksDB", In::Default, data::rocksdb),
    section("keyspace", "Keyspace", In::Default, data::keyspace),
    Section {
        may_lack: true,
        ..section("hotkeys", "Hotkeys", In::Default, counters::hot_keys)
    },
];

/// The text of INFO with these arguments.
fn text(server: &Server, wanted: &[&[u8]]) -> String {
    let asked = |name: &str| {
        wanted
            .iter()
            .any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let default = wanted.is_empty() || asked("default");
    let (all, everything) = (asked("all"), asked("everything"));
    let mut text = Text::default();
    for section in SECTIONS {
        let included = everything
            || match section.within {
                In::Default => default || all,
                In::All => all,
            };
        if included || asked(section.name) {
            let before = text.out.len();
            text.section(section.title);
            let empty = text.out.len();
            (section.write)(&mut text, server);
            if section.may_lack && text.out.len() == empty {
                text.out.truncate(before);
            }
        }
    }
    text.out
}

fn info(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let text = text(ctx.server, args.get(1..).unwrap_or_default());
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[Command::session("info", -1, info)
    .syntax("[section...]")
    .complexity("O(N), N: sections")
    .history(&[("7.0.0", "Takes several sections")])
    .flags(
        Flags::LOADING
            .union(Flags::STALE)
            .union(Flags::SENTINEL)
            .union(Flags::SLOW),
    )
    .categories(&["dangerous"])
    .tips(&[
        Tip::NondeterministicOutput,
        Tip::RequestAllShards,
        Tip::ResponseSpecial,
    ])
    .doc(
        Group::Server,
        "1.0.0",
        "Returns figures about the server, by section",
    )];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1536, "1.50K"),
            (1 << 20, "1.00M"),
            (u64::MAX, "16384.00P"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }

    #[test]
    fn a_value_stays_in_its_line() {
        let mut text = Text::default();
        text.field("name", "a\r\nb:c");
        assert_eq!(text.out, "name:a  b:c\r\n");
    }
}
