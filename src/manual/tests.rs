//! The files under `tools/packaging` that are made from the tables: an example of a configuration,
//! manual pages, completions for shells. They are kept in the tree, so that a package is made of
//! what is built anyway; this test fails if one is not what the tables say.

use crate::migrate::Tool;
use crate::state::config::{
    Config, FLAGS, Param, ParamKind, Startup, config_file, inert, sections,
};
use crate::sys::testing::up_to_date;
use crate::top;
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use std::fmt::Write;

/// The settings of the packages that differ from the defaults.
const PACKAGED: [&str; 8] = [
    "--bind",
    "127.0.0.1 -::1",
    "--dir",
    "/var/lib/kedis",
    "--logfile",
    "/var/log/kedis/kedis-server.log",
    "--supervised",
    "systemd",
];

/// The command lines of the tools.
fn tools() -> [Command; 4] {
    let [port, to, from] = [Tool::KEDIS_PORT, Tool::KEDIS_TO_REDIS, Tool::REDIS_TO_KEDIS];
    [port.command(), to.command(), top::command(), from.command()]
}

const SERVER_ABOUT: &str = "a persistent, Redis-compatible key-value server";

const SERVER_TEXT: &str = "\
.SH DESCRIPTION
.B kedis\\-server
serves clients of Redis and stores their data on disk, in RocksDB.
It reads parameters from
.IR FILE ,
which has the syntax of redis.conf, or with
.B \\-
from standard input.
Every parameter is a flag as well, and flags win over the file.
.BR kedis.conf (5)
describes the parameters.
.PP
Without arguments the server listens on port 6379 of all addresses, accepts only
clients of this machine, and stores its data in the directory
.I kedis\\-db
below the one in which it was started.
";

const SERVER_FOOT: &str = "\
.SH SIGNALS
.TP
.B SIGTERM\\fR, \\fBSIGINT
Stop the server: writes wait until replicas have everything, for
.B shutdown\\-timeout
seconds at most, then the data is flushed.
.TP
.B SIGHUP
Reopen the log file and the audit log.
.SH EXIT STATUS
0 after a stop that was asked for, 1 after an error, which is on standard error or
in the log.
.SH ENVIRONMENT
.TP
.B NOTIFY_SOCKET\\fR, \\fBWATCHDOG_USEC
Set by systemd for services of Type=notify, and used as
.B supervised
says.
.SH FILES
.TP
.I /etc/kedis/kedis.conf
The configuration of the service.
.TP
.I /var/lib/kedis
Its data.
.TP
.I /var/log/kedis/kedis\\-server.log
Its log.
.TP
.I /usr/share/doc/kedis/manual
The manual.
.SH EXAMPLES
.nf
kedis\\-server /etc/kedis/kedis.conf \\-\\-port 6380
kedis\\-server \\-\\-dir /srv/kedis \\-\\-bind 127.0.0.1 \\-\\-maxmemory 4gb
kedis\\-server redis.conf \\-\\-print\\-config >kedis.conf
.fi
.SH SEE ALSO
.BR kedis.conf (5),
.BR kedis_port (1),
.BR kedis_to_redis (1),
.BR kedis_top (1),
.BR redis_to_kedis (1)
";

const FILE_TEXT: &str = "\
.SH DESCRIPTION
A line is a parameter and its values.
Words with spaces stand in quotes, and lines that begin with # are comments.
Of two lines that set the same parameter the last one counts.
.B include
.I PATH
reads another file, or all that match, if the last part of the path has wildcards.
.PP
Numbers of bytes may have units: 1k is 1,000 bytes, 1kb 1,024; m, mb, g and gb likewise.
.PP
CONFIG SET changes a parameter of a running server, unless \\(lqat the start only\\(rq is said of
it; those that are \\(lqprotected\\(rq need
.BR enable\\-protected\\-configs .
CONFIG REWRITE writes the values in force into the file.
.PP
.B kedis\\-server
.I FILE
.B \\-\\-check\\-config
says what is wrong with a file,
.B \\-\\-print\\-config
prints one with all parameters.
";

/// A text in roff: hyphens that can be copied, no requests, code in bold.
fn roff(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        let part = part.replace('\\', "\\e").replace('-', "\\-");
        match index % 2 {
            0 => out.push_str(&part),
            _ => _ = write!(out, "\\fB{part}\\fR"),
        }
    }
    match out.starts_with(['.', '\'']) {
        true => format!("\\&{out}"),
        false => out,
    }
}

/// The head of a manual page.
fn head(page: &str, section: u8, about: &str) -> String {
    let (name, about) = (roff(page), roff(about));
    format!(
        ".TH {} {section} \"\" \"Kedis {}\" \"Kedis\"\n.SH NAME\n{name} \\- {about}\n",
        page.to_uppercase(),
        env!("CARGO_PKG_VERSION")
    )
}

fn server_page() -> String {
    let mut page = head("kedis-server", 1, SERVER_ABOUT);
    page.push_str(
        ".SH SYNOPSIS\n.B kedis\\-server\n[\\fIFILE\\fR | \\fB\\-\\fR]\n\
         [\\fB\\-\\-\\fIPARAMETER VALUE\\fR ...] ...\n",
    );
    page.push_str(SERVER_TEXT);
    page.push_str(".SH OPTIONS\n");
    for (flag, about) in FLAGS {
        let (name, value) = flag
            .split_once(" FILE")
            .map_or((flag, ""), |(name, _)| (name, " FILE"));
        let about = match about {
            "this text" => "print what the flags and parameters mean, and exit",
            "the version" => "print the version, and exit",
            about => about,
        };
        let _ = writeln!(
            page,
            ".TP\n\\fB{}\\fI{value}\\fR\n{}",
            roff(name),
            roff(about)
        );
    }
    page + SERVER_FOOT
}

fn file_page() -> String {
    let defaults = Config::default();
    let mut page = head("kedis.conf", 5, "the configuration of kedis-server");
    page.push_str(FILE_TEXT);
    page.push_str(".SH PARAMETERS\n");
    for (title, params) in sections() {
        let _ = writeln!(page, ".SS {}", roff(title));
        for param in params {
            let names: Vec<String> = param.names().map(|name| format!("`{name}`")).collect();
            let live = match param.live_text() {
                "no" => "; at the start only",
                "protected" => "; protected",
                _ => "",
            };
            let values = format!(
                "Values: {}; default {}{live}.",
                param.kind.describe(),
                param.default_text(&defaults)
            );
            let (names, about) = (roff(&names.join(", ")), roff(&param.about()));
            let _ = writeln!(page, ".TP\n{names}\n{about}\n.br\n{}", roff(&values));
        }
    }
    page.push_str(".SS Without effect\nAccepted so that a redis.conf works:\n");
    for (reason, names) in inert() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, ".TP\n{}\n{}", roff(&names.join(", ")), roff(reason));
    }
    page.push_str(
        ".SH FILES\n.TP\n.I /etc/kedis/kedis.conf\nThe configuration of the service.\n\
         .SH SEE ALSO\n.BR kedis\\-server (1)\n",
    );
    page
}

/// A flag for a parameter.
fn arg(param: &'static Param) -> Arg {
    let arg = Arg::new(param.name)
        .long(param.name)
        .help(param.about())
        .value_name("VALUE")
        .num_args(1);
    match param.kind {
        ParamKind::Bool => arg.value_parser(["yes", "no"]),
        ParamKind::Choice(words) => arg.value_parser(words.to_vec()),
        ParamKind::Flags(words) => arg.value_parser(words.to_vec()).num_args(1..),
        ParamKind::Text if param.name.ends_with("dir") => arg.value_hint(ValueHint::DirPath),
        ParamKind::Text => arg.value_hint(ValueHint::AnyPath),
        ParamKind::Words(_) | ParamKind::Lines(_) => arg.num_args(1..),
        _ => arg,
    }
}

/// The command line of the server, for completions.
fn server() -> Command {
    let file = Arg::new("FILE")
        .help("Configuration file")
        .value_hint(ValueHint::FilePath);
    let mut command = Command::new("kedis-server")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .arg(file);
    for (flag, about) in FLAGS {
        let (short, long) = flag.split_once(", ").unwrap_or(("", flag));
        let (long, value) = long.split_once(' ').unwrap_or((long, ""));
        let name = &long[2..];
        let mut arg = Arg::new(name).long(name).help(about);
        arg = match value {
            "" => arg.action(ArgAction::SetTrue),
            _ => arg.value_hint(ValueHint::FilePath),
        };
        if let Some(letter) = short.chars().nth(1) {
            arg = arg.short(letter);
        }
        command = command.arg(arg);
    }
    let params = sections().into_iter().flat_map(|(_, params)| params);
    command.args(params.map(arg))
}

/// The completions of a command, in the shells' own places.
fn completions(mut command: Command) {
    let name = command.get_name().to_owned();
    for (shell, file) in [
        (Shell::Bash, name.clone()),
        (Shell::Zsh, format!("_{name}")),
        (Shell::Fish, format!("{name}.fish")),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, &name, &mut text);
        let path = format!("tools/packaging/completions/{shell}/{file}");
        up_to_date(&path, &text);
    }
}

#[test]
fn the_manual_pages_are_up_to_date() {
    up_to_date(
        "tools/packaging/man/kedis-server.1",
        server_page().as_bytes(),
    );
    up_to_date("tools/packaging/man/kedis.conf.5", file_page().as_bytes());
    for command in tools() {
        let name = command.get_name().to_owned();
        let path = format!("tools/packaging/man/{name}.1");
        let page = clap_mangen::Man::new(command);
        let mut text = Vec::new();
        page.render(&mut text).unwrap();
        // Without a date its head says other things in the place of that.
        let text = String::from_utf8(text).unwrap();
        let is_head = |line: &&str| line.starts_with(".TH ");
        let old = text.lines().find(is_head).unwrap();
        let own = head(&name, 1, "");
        let new = own.lines().find(is_head).unwrap();
        up_to_date(&path, text.replace(old, new).as_bytes());
    }
}

#[test]
fn the_completions_are_up_to_date() {
    server().debug_assert();
    completions(server());
    for command in tools() {
        completions(command);
    }
}

#[test]
fn the_example_of_a_configuration_is_up_to_date() {
    let Startup::Run(config, _) = Config::from_args(PACKAGED).unwrap() else {
        panic!("flags that run a server");
    };
    up_to_date("tools/packaging/kedis.conf", &config_file(&config));
}
