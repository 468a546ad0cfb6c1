//! The documents beside the code: links are valid, the README is short, environment variables
//! are documented.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::replication::{follow, info, server};
use crate::support::{Server, wait_for};

/// Maximum length of the README, in lines.
const README_LINES: usize = 150;

/// Folders whose Markdown files are checked, and single files.
const FOLDERS: &[&str] = &["src/manual", "tools/bench/results"];
const FILES: &[&str] = &[
    "README.md",
    ".github/CONTRIBUTING.md",
    "tests/README.md",
    "tools/bench/README.md",
];

/// Variables that only a test itself sets for its child processes.
const INTERNAL: &[&str] = &[
    "KEDIS_DOCKER",
    "KEDIS_FAULTS",
    "KEDIS_NUTCRACKER",
    "KEDIS_PORT",
    "KEDIS_PYTEST",
    "KEDIS_TEST_CRASH_DIR",
    "KEDIS_TEST_CRASH_MEMTABLE",
    "KEDIS_TEST_CRASH_SEED",
    "KEDIS_TEST_PANICS",
];

/// Words of the manual that look like a command, a parameter or a field of INFO, but are none.
const OTHER_NAMES: &[&str] = &[
    // Commands that do not exist here, and error codes.
    "BUSY",
    "MISCONF",
    "OOM",
    // Subcommands and arguments.
    "AGGREGATE",
    "ANDOR",
    "DIFF",
    "FILE",
    "FORMAT",
    "FPHA",
    "IFDEQ",
    "IFDNE",
    "IFEQ",
    "IFNE",
    "JSON",
    "NEW",
    "OLD",
    "ONE",
    "TDIGEST",
    // A reason in ACL LOG.
    "tls-cert",
    // A thread.
    "worker-turns",
    // Rules of users.
    "sanitize-payload",
    "skip-sanitize-payload",
    // An error.
    "NOAUTH",
    // Files, tools and variables.
    "KEDIS_CLI_ARGS",
    "KEDIS_DST_PASSWORD",
    "KEDIS_PORT",
    "KEDIS_SOCKET",
    "KEDIS_SRC_PASSWORD",
    "KEDIS_UPDATE_MANUAL",
    "KEDIS_UPDATE_README",
    "REDISCLI_AUTH",
    "RESERVE",
    "VALUE-LOG",
    "WAL-MARKS",
    "kedis-alerts",
    "kedis-db",
    "kedis-grafana",
    "kedis-healthcheck",
    "kedis-server",
    "kedis_port",
    "kedis_to_redis",
    "kedis_top",
    "redis-cli",
    "redis_to_kedis",
    "systemd-analyze",
];

/// All pages: their paths relative to the package, and their texts.
type Pages = BTreeMap<PathBuf, String>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn pages() -> Pages {
    let mut paths: Vec<PathBuf> = FILES.iter().map(PathBuf::from).collect();
    for folder in FOLDERS {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name();
            paths.push(Path::new(folder).join(name));
        }
    }
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "md"));
    let with_text = |path: PathBuf| {
        let text = read(path.to_str().unwrap());
        (path, text)
    };
    paths.into_iter().map(with_text).collect()
}

/// The lines of a page outside of code blocks, without inline code.
fn prose(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let outside = line.split('`').step_by(2);
            lines.push(outside.collect::<Vec<_>>().join("`"));
        }
    }
    lines
}

/// Definitions of links at the foot of a page: label and target.
fn definitions(text: &str) -> BTreeMap<String, String> {
    let lines = prose(text);
    let defined = lines.iter().filter_map(|line| {
        let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
        Some((label.to_owned(), target.trim().to_owned()))
    });
    defined.collect()
}

/// The texts between each `open` and the next `close`.
fn between<'t>(text: &'t str, open: &str, close: char) -> Vec<&'t str> {
    let after = text.split(open).skip(1);
    after
        .filter_map(|rest| rest.split_once(close))
        .map(|(inside, _)| inside)
        .collect()
}

/// The anchors of a page, as GitHub and rustdoc make them of its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let slug = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    lines.map(slug).collect()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// The error of a link on `page`, if there is one.
fn fault(page: &Path, target: &str, pages: &Pages) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let place = match path {
        "" => page.to_owned(),
        path => plain(&page.parent()?.join(path)),
    };
    let known = pages.get(&place);
    if known.is_none() && !root().join(&place).exists() {
        return Some(format!("{}: {target}: no such file", page.display()));
    }
    if anchor.is_empty() || known.is_some_and(|text| anchors(text).contains(anchor)) {
        return None;
    }
    Some(format!("{}: {target}: no such heading", page.display()))
}

/// All errors in the links of some pages.
fn faults(pages: &Pages) -> Vec<String> {
    let mut faults = Vec::new();
    for (page, text) in pages {
        let definitions = definitions(text);
        let lines = prose(text).join("\n");
        let inline = between(&lines, "](", ')').into_iter();
        let targets = inline.chain(definitions.values().map(String::as_str));
        faults.extend(targets.filter_map(|target| fault(page, target, pages)));
        for label in between(&lines, "][", ']') {
            if !definitions.contains_key(label) {
                faults.push(format!("{}: [{label}] is not defined", page.display()));
            }
        }
    }
    faults
}

#[test]
fn links_lead_somewhere() {
    let faults = faults(&pages());
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let text = "# Title\n[a](gone.md) [b](#title) [c](#other) [d](README.md#title) [e][f] [g][h]\n\
                `[i](code.md)`\n```text\n[j](code.md)\n```\n[h]: src/gone.rs\n";
    let pages = Pages::from([(PathBuf::from("README.md"), text.to_owned())]);
    let expected = [
        "README.md: gone.md: no such file",
        "README.md: #other: no such heading",
        "README.md: src/gone.rs: no such file",
        "README.md: [f] is not defined",
    ];
    assert_eq!(faults(&pages), expected);
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= README_LINES, "the README has {lines} lines");
}

/// Rustdoc takes a block of code without a language for Rust, and compiles it.
#[test]
fn code_in_the_manual_says_its_language() {
    let mut wrong = Vec::new();
    let of_manual = |page: &PathBuf| page.starts_with("src/manual");
    for (page, text) in pages().into_iter().filter(|(page, _)| of_manual(page)) {
        let mut lines = text.lines().enumerate();
        let mut blank = true;
        while let Some((number, line)) = lines.next() {
            let at = format!("{}:{}: {line}", page.display(), number + 1);
            if line.trim_start().starts_with("```") {
                if line.trim_start() == "```" {
                    wrong.push(at);
                }
                lines.by_ref().find(|(_, line)| line.trim_start() == "```");
            } else if blank && line.starts_with("    ") {
                wrong.push(at);
            }
            blank = line.is_empty();
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Rustdoc renders the pages of the manual as modules, which need link definitions of their
/// own.
#[test]
fn links_of_the_manual_are_defined_for_rustdoc() {
    let modules = read("src/manual.rs");
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        let Ok(name) = page.strip_prefix("src/manual") else {
            continue;
        };
        if !modules.contains(&format!("= \"{}\";", name.display())) {
            wrong.push(format!("{} is not in src/manual.rs", page.display()));
        }
        for (label, target) in definitions(&text) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let module = file.trim_end_matches(".md").replace('-', "_");
            let path = match anchor {
                "" => format!("crate::manual::{module}"),
                anchor => format!("crate::manual::{module}#{anchor}"),
            };
            if !modules.contains(&format!("\"[{label}]: {path}\\n\"")) {
                wrong.push(format!(
                    "{}: src/manual.rs lacks [{label}]: {path}",
                    page.display()
                ));
            }
        }
        // Links to files would be relative to the page, where rustdoc has no such files.
        let prose = prose(&text).join("\n");
        let inline = between(&prose, "](", ')').into_iter();
        // Of a picture, rustdoc shows the words.
        let elsewhere = |target: &&str| target.contains("://") || target.ends_with(".png");
        let files = inline.filter(|target| !elsewhere(target) && !target.starts_with('#'));
        wrong.extend(files.map(|target| format!("{}: ]({target})", page.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The names of variables that a file reads.
fn variables(path: &Path, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            variables(&entry.unwrap().path(), found);
        }
        return;
    }
    // All files are read, since some scripts have no extension; binary files are skipped.
    let text = fs::read_to_string(path).unwrap_or_default();
    let quoted = text.split(['"', '\'']);
    let is_name = |word: &&str| {
        let rest = word.strip_prefix("KEDIS_").unwrap_or_default();
        !rest.is_empty() && rest.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    found.extend(quoted.filter(is_name).map(str::to_owned));
}

#[test]
fn variables_are_written_down() {
    let mut found = BTreeSet::new();
    for folder in ["src", "tests", "tools"] {
        variables(&root().join(folder), &mut found);
    }
    let texts: String = pages().into_values().collect();
    let known = |name: &&String| texts.contains(*name) || INTERNAL.contains(&name.as_str());
    let unknown: Vec<&String> = found.iter().filter(|name| !known(name)).collect();
    assert!(found.len() > 20, "{found:?}");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// The inline code in the prose of a page, without its generated part.
fn code_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut in_code, mut in_list) = (false, false);
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        in_list = (in_list || line.contains(":begin -->")) && !line.contains(":end -->");
        if !in_code && !in_list {
            words.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    words
}

/// The names that a server knows: commands in upper case, parameters, fields of INFO.
fn names_of(server: &Server) -> BTreeSet<String> {
    let mut conn = server.connect();
    let text = conn.must("INFO everything").text();
    let fields = text.split(['\n', ',', ':']).filter_map(|part| {
        let end = part.find('=').unwrap_or(part.len());
        Some(part.get(..end)?.trim().to_owned())
    });
    let mut names: BTreeSet<String> = fields.collect();
    let parameters = conn.must("CONFIG GET *").flat().unwrap();
    names.extend(parameters.iter().step_by(2).map(|name| name.text()));
    let commands = conn.must("COMMAND LIST").flat().unwrap();
    names.extend(commands.iter().map(|name| name.text().to_uppercase()));
    names
}

/// The name at the beginning of inline code, if it looks like one.
fn name_in(code: &str) -> Option<&str> {
    let end = code.find([' ', ':', '=', '.']).unwrap_or(code.len());
    let word = match code.starts_with("rocksdb.") {
        true => code.split(' ').next()?,
        false => &code[..end],
    };
    let joined = |c: char| c == '-' || c == '_';
    let is_large = word.chars().all(|c| c.is_ascii_uppercase() || joined(c));
    let is_small = word
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || joined(c));
    let begins = word.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_name = is_large && word.len() > 1 || is_small && word.contains(joined);
    (begins && is_name && !word.ends_with(joined)).then_some(word)
}

#[test]
fn what_the_manual_names_is_there() {
    let (master, replica) = (server(&[]), server(&[]));
    follow(&replica, &master);
    wait_for("the link", || {
        info(&replica, "replication", "master_link_status") == "up"
    });
    let mut names = names_of(&master);
    names.extend(names_of(&replica));
    let metrics = read("src/manual/metrics.md");
    let listed = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    names.extend(listed.map(|(name, _)| name.to_owned()));
    // What parameters may be, for instance policies.
    let parameters = read("src/manual/configuration.md");
    let choices = parameters
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").nth(1));
    names.extend(choices.flat_map(|listed| listed.split(", ").map(str::to_owned)));
    let mut used = BTreeSet::new();
    let mut unknown = Vec::new();
    for (page, text) in pages() {
        if !page.starts_with("src/manual") {
            continue;
        }
        for code in code_words(&text) {
            let Some(name) = name_in(&code) else {
                continue;
            };
            if !names.contains(name) && !OTHER_NAMES.contains(&name) {
                unknown.push(format!("{}: {name}", page.display()));
            }
            used.insert(name.to_owned());
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(used.len() > 150, "{used:?}");
    let is_used = |name: &&&str| used.contains(**name) && !names.contains(**name);
    let unused: Vec<_> = OTHER_NAMES.iter().filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "in the list for nothing: {unused:?}");
}

/// The names of the threads of a server, with `N` for a number.
fn threads_of(server: &Server) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.unwrap().path().join("comm")).ok()?;
        let name = name.trim();
        let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
        Some(match rest.strip_suffix('-') {
            Some(sort) if rest != name => format!("{sort}-N"),
            _ => name.to_owned(),
        })
    });
    names.collect()
}

/// Each thread has a row in the table of threads, and is drawn.
#[test]
fn every_thread_is_described_and_drawn() {
    let flags = ["--audit-log", "audit.log", "--metrics-unixsocket", "m.sock"];
    let (master, replica) = (server(&flags), server(&flags));
    follow(&replica, &master);
    wait_for("the link", || {
        info(&replica, "replication", "master_link_status") == "up"
    });
    let mut names = threads_of(&master);
    names.extend(threads_of(&replica));
    // The main thread, and those that are not ours.
    names.retain(|name| name != "kedis-server" && !name.starts_with("rocksdb:"));
    for name in ["io-N", "feeder-N", "link", "metrics", "audit"] {
        assert!(names.contains(name), "{names:?} lacks {name}");
    }
    let head = read("src/lib.rs");
    let (_, table) = head.split_once("//! # Threads\n").unwrap();
    let (table, _) = table.split_once("//! # ").unwrap();
    let drawing = read("images/thread_model.svg");
    let drawn: BTreeSet<&str> = between(&drawing, ">", '<')
        .into_iter()
        .flat_map(|text| text.split([' ', ',', ':', '.']))
        .collect();
    let described = |name: &str| table.contains(&format!("`{name}`"));
    let left_out = names
        .iter()
        .filter(|name| !described(name) || !drawn.contains(name.as_str()));
    let left_out: Vec<&String> = left_out.collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}
