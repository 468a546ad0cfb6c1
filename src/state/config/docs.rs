//! Texts from the table: `--help`, and the manual's table of parameters.

use std::fmt::Write;

use super::Config;
use super::params::{Flag, PARAMS, Param};

const USAGE: &str = "\
Usage: kedis-server [FILE | -] [--PARAMETER VALUE ...] ...

FILE is a configuration file in the syntax of redis.conf; - reads it from
standard input. Every parameter is a flag as well, and flags win over the file.

  kedis-server
  kedis-server /etc/kedis.conf --port 6380
  kedis-server --dir /srv/kedis --bind 127.0.0.1 --save \"\"

  -h, --help       this text
  -v, --version    the version
  --load-rdb FILE  fill an empty server with this RDB file of Redis or Valkey, or
                   with this append-only log: its directory, manifest or file
  --accept-data-loss
                   start although acknowledged writes are lost
  --repair         keep what can be read of a damaged database, and exit
  --check-config   say what is wrong with the configuration, and exit

Parameters:
";

/// The default as the documentation shows it, independent of the directory of the build.
fn default_text(param: &Param, defaults: &Config) -> String {
    if param.has(Flag::Located) {
        return ".".into();
    }
    let bytes = param.text(defaults);
    let text = String::from_utf8_lossy(&bytes);
    if text.is_empty() {
        "\"\"".into()
    } else {
        text.into_owned()
    }
}

/// What `kedis-server --help` prints.
pub fn help_text() -> String {
    let defaults = Config::default();
    let mut out = USAGE.to_owned();
    for param in PARAMS.iter().filter(|param| listed(param)) {
        let names = param.names().collect::<Vec<_>>().join(", ");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {names}");
        let _ = writeln!(out, "      {}", param.about());
        let _ = writeln!(
            out,
            "      {}; default {}",
            param.kind.describe(),
            default_text(param, &defaults)
        );
    }
    out.push_str("\nAccepted so that a redis.conf works, without effect:\n ");
    let mut column = 1;
    for param in PARAMS.iter().filter(|param| param.has(Flag::Inert)) {
        if column + 1 + param.name.len() > 78 {
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
        let live = match (param.has(Flag::Start), param.has(Flag::Guarded)) {
            (true, _) => "no",
            (_, true) => "protected",
            _ => "yes",
        };
        let cells = [
            names,
            param.kind.describe(),
            format!("`{}`", default_text(param, &defaults)),
            live.into(),
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
