//! Texts from the table: `--help`, the manual's table of parameters, a configuration file.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Config;
use super::params::{Flag, PARAMS, Param};

/// The longest line of the texts for terminals.
const WIDTH: usize = 78;

/// The flags that are not parameters, and what they do.
pub const FLAGS: [(&str, &str); 7] = [
    ("-h, --help", "this text"),
    ("-v, --version", "the version"),
    (
        "--load-rdb FILE",
        "fill an empty server with this RDB file of Redis or Valkey, or with this append-only log: \
         its directory, manifest or file",
    ),
    (
        "--accept-data-loss",
        "start although acknowledged writes are lost",
    ),
    (
        "--repair",
        "keep what can be read of a damaged database, and exit",
    ),
    (
        "--check-config",
        "say what is wrong with the configuration, and exit",
    ),
    (
        "--print-config",
        "print the configuration as a file that explains every parameter, and exit",
    ),
];

/// Where the sections of the table begin: their titles, and their first parameters.
const SECTIONS: [(&str, &str); 16] = [
    ("Network", "bind"),
    ("TLS", "tls-port"),
    ("Server", "daemonize"),
    ("Users and passwords", "requirepass"),
    ("Data on disk", "dir"),
    ("Memory and limits", "maxmemory"),
    ("Expiry and deletion", "expire-period-ms"),
    ("Observation", "slowlog-log-slower-than"),
    (
        "Bounds that OBJECT ENCODING applies",
        "hash-max-listpack-entries",
    ),
    (
        "Filters that are created without these properties",
        "bf-error-rate",
    ),
    ("Scripts", "busy-reply-threshold"),
    ("Replication", "replicaof"),
    ("Binlog", "binlog-enabled"),
    ("RocksDB", "rocksdb.block-size"),
    ("Others", "rdbcompression"),
    ("Cluster", "cluster-enabled"),
];

const USAGE: &str = "\
Usage: kedis-server [FILE | -] [--PARAMETER VALUE ...] ...

FILE is a configuration file in the syntax of redis.conf; - reads it from
standard input. Every parameter is a flag as well, and flags win over the file.

  kedis-server
  kedis-server /etc/kedis.conf --port 6380
  kedis-server --dir /srv/kedis --bind 127.0.0.1 --save \"\"

";

impl Param {
    /// The default as the documentation shows it, independent of the directory of the build.
    pub fn default_text(&self, defaults: &Config) -> String {
        if self.has(Flag::Located) {
            return ".".into();
        }
        let bytes = self.text(defaults);
        let text = String::from_utf8_lossy(&bytes);
        if text.is_empty() {
            "\"\"".into()
        } else {
            text.into_owned()
        }
    }

    /// Whether CONFIG SET changes it, in a word.
    pub fn live_text(&self) -> &'static str {
        match (self.has(Flag::Start), self.has(Flag::Guarded)) {
            (true, _) => "no",
            (_, true) => "protected",
            _ => "yes",
        }
    }
}

/// The parameters that have an effect, by section.
pub fn sections() -> Vec<(&'static str, Vec<&'static Param>)> {
    let mut sections: Vec<(&str, Vec<&Param>)> = Vec::with_capacity(SECTIONS.len());
    for param in PARAMS.iter().filter(|param| listed(param)) {
        let begins = SECTIONS.iter().find(|(_, first)| *first == param.name);
        match (begins, sections.last_mut()) {
            (None, Some((_, params))) => params.push(param),
            (begins, _) => sections.push((begins.map_or("", |(title, _)| title), vec![param])),
        }
    }
    sections
}

/// The parameters without effect, by the reason.
pub fn inert() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut reasons = BTreeMap::<_, Vec<_>>::new();
    let inert = |param: &&Param| param.has(Flag::Inert) && !param.has(Flag::Hidden);
    for param in PARAMS.iter().filter(inert) {
        reasons.entry(param.reason()).or_default().push(param.name);
    }
    reasons
}

/// The lines of a paragraph.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Adds a flag and what it does, in two columns.
fn add_flag(out: &mut String, flag: &str, about: &str) {
    const COLUMN: usize = 19;
    let _ = write!(out, "  {flag}");
    let mut at = 2 + flag.len();
    for line in wrapped(about, WIDTH - COLUMN) {
        if at + 1 >= COLUMN {
            out.push('\n');
            at = 0;
        }
        let _ = write!(out, "{:1$}{line}", "", COLUMN - at);
        at = WIDTH;
    }
    out.push('\n');
}

/// What `kedis-server --help` prints.
pub fn help_text() -> String {
    let defaults = Config::default();
    let mut out = USAGE.to_owned();
    for (flag, about) in FLAGS {
        add_flag(&mut out, flag, about);
    }
    out.push_str("\nParameters:\n");
    for param in PARAMS.iter().filter(|param| listed(param)) {
        let names = param.names().collect::<Vec<_>>().join(", ");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {names}");
        let _ = writeln!(out, "      {}", param.about());
        let _ = writeln!(
            out,
            "      {}; default {}",
            param.kind.describe(),
            param.default_text(&defaults)
        );
    }
    out.push_str("\nAccepted so that a redis.conf works, without effect:\n ");
    let mut column = 1;
    for param in PARAMS.iter().filter(|param| param.has(Flag::Inert)) {
        if column + 1 + param.name.len() > WIDTH {
            out.push_str("\n ");
            column = 1;
        }
        let _ = write!(out, " {}", param.name);
        column += 1 + param.name.len();
    }
    out.push('\n');
    out
}

fn listed(param: &Param) -> bool {
    !param.has(Flag::Inert) && !param.has(Flag::Hidden)
}

/// The manual's table of parameters, in Markdown, and the names of those without effect.
pub fn markdown_table() -> String {
    let defaults = Config::default();
    let mut out = String::from(
        "| Parameter | Values | Default | At run time | What it does |\n|---|---|---|---|---|\n",
    );
    for param in PARAMS.iter().filter(|param| listed(param)) {
        let names = param
            .names()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let cells = [
            names,
            param.kind.describe(),
            format!("`{}`", param.default_text(&defaults)),
            param.live_text().into(),
            param.about(),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    let inert = PARAMS
        .iter()
        .filter(|param| param.has(Flag::Inert) && !param.has(Flag::Hidden))
        .map(|param| format!("`{}`", param.name))
        .collect::<Vec<_>>()
        .join(", ");
    let _ = writeln!(
        out,
        "\nAccepted, kept and listed so that a `redis.conf` works, but without effect: {inert}."
    );
    out
}

/// The head of a configuration file.
const FILE_HEAD: &str = "\
# Configuration of kedis-server. A line is a parameter and its values; words
# with spaces stand in quotes, and lines that begin with # are comments. A
# parameter that no line sets has its default, which the comments show.
# kedis-server FILE --check-config says what is wrong with a file.
#
# Numbers of bytes may have units: 1k is 1,000 bytes, 1kb 1,024; m, mb, g and gb
# likewise.
#
# CONFIG SET changes the parameters of a running server, but those with the words
# \"at the start only\"; \"protected\" ones only if enable-protected-configs allows
# it. CONFIG REWRITE writes the values in force into this file.
#
# Other files may be included. The last line that sets a parameter wins.
#
# include /etc/kedis/local.conf
# include /etc/kedis/conf.d/*.conf
";

/// A configuration file with all parameters and what they do. Those of `config` that are not the
/// default are set, the others are comments.
pub fn config_file(config: &Config) -> Vec<u8> {
    let defaults = Config::default();
    let mut out = FILE_HEAD.as_bytes().to_vec();
    for (title, params) in sections() {
        let rule = "#".repeat(20);
        out.extend_from_slice(format!("\n{rule} {title} {rule}\n").as_bytes());
        for param in params {
            add_param(&mut out, param, config, &defaults);
        }
    }
    out.extend_from_slice(b"\n# Accepted so that a redis.conf works, without effect:\n");
    for (reason, names) in inert() {
        let text = format!("{}: {}.", reason.trim_end_matches('.'), names.join(", "));
        out.extend_from_slice(b"#\n");
        for line in wrapped(&text, WIDTH) {
            out.extend_from_slice(format!("# {line}\n").as_bytes());
        }
    }
    out
}

/// Adds a parameter to a configuration file.
fn add_param(out: &mut Vec<u8>, param: &Param, config: &Config, defaults: &Config) {
    let live = match param.live_text() {
        "no" => "; at the start only",
        "protected" => "; protected",
        _ => "",
    };
    let is_set = param.text(config) != param.text(defaults);
    // A comment shows the default.
    let default = match is_set {
        true => format!("; default {}", param.default_text(defaults)),
        false => String::new(),
    };
    let values = format!("Values: {}{default}{live}", param.kind.describe());
    let aliases = match param.aliases {
        [] => String::new(),
        aliases => format!(" Also called {}.", aliases.join(", ")),
    };
    out.push(b'\n');
    let about = wrapped(&format!("{}{aliases}", param.about()), WIDTH);
    for line in about.into_iter().chain(wrapped(&values, WIDTH)) {
        out.extend_from_slice(format!("# {line}\n").as_bytes());
    }
    let mut lines = param.directives(config, param.name.as_bytes());
    if param.has(Flag::Located) && !is_set {
        lines = vec![format!("{} .", param.name).into_bytes()];
    } else if lines.is_empty() {
        lines = vec![format!("{} {}", param.name, param.kind.describe()).into_bytes()];
    }
    for line in lines {
        out.extend_from_slice(if is_set { b"" } else { b"# " });
        out.extend_from_slice(&line);
        out.push(b'\n');
    }
}
