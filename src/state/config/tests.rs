//! Tests of the configuration as a whole: what files, flags and clients can do to it.

mod readers;
mod rewrite;
mod start;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::memory::{available_bytes, lack};
use super::*;

const STOCK: &str = include_str!("../../../tests/fixtures/redis-7.0.conf");

fn text_of(config: &Config, name: &str) -> String {
    let param = Param::find(name.as_bytes()).unwrap();
    String::from_utf8(param.text(config)).unwrap()
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::from_text(text.as_bytes(), Path::new("test.conf"))
}

fn reason(text: &str) -> String {
    match parse(text) {
        Err(ConfigError::Directive { reason, .. }) => reason.to_string(),
        other => panic!("{text}: {other:?}"),
    }
}

fn set(config: &Config, pairs: &[(&str, &str)]) -> Result<Config, String> {
    config
        .set_many(pairs, true)
        .map_err(|error| error.to_string())
}

fn set_error(name: &str, value: &str) -> String {
    let error = set(&Config::default(), &[(name, value)]).unwrap_err();
    let prefix = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - ");
    error.strip_prefix(&prefix).unwrap_or(&error).to_owned()
}

fn args(args: &[&str]) -> Result<Startup, ConfigError> {
    Config::from_args_and_stdin(args.iter().copied(), std::io::empty())
}

fn run(list: &[&str]) -> Config {
    match args(list) {
        Ok(Startup::Run(config, _)) => *config,
        other => panic!("{list:?}: {other:?}"),
    }
}

/// The server started with that text as its password.
#[test]
fn a_flag_is_not_the_value_of_the_one_before_it() {
    for flag in [
        "--check-config",
        "--print-config",
        "--repair",
        "--accept-data-loss",
    ] {
        for before in ["--masterauth", "--requirepass", "--load-rdb"] {
            let error = args(&[before, flag]).unwrap_err().to_string();
            assert!(error.contains("wrong number of arguments"), "{error}");
        }
    }
    // A value may begin with dashes, as in Redis.
    assert_eq!(run(&["--masterauth", "--secret"]).masterauth.0, b"--secret");
}

#[test]
fn names_are_unique_and_lower_case() {
    let mut seen = HashSet::new();
    for param in PARAMS {
        for name in param.names() {
            assert!(seen.insert(name), "{name} stands twice");
            assert_eq!(name, name.to_ascii_lowercase());
        }
        assert!(param.about().ends_with('.'), "{}", param.name);
        assert!(param.about().len() > 10, "{}", param.name);
    }
}

#[test]
fn defaults_read_back_from_their_own_text() {
    let defaults = Config::default();
    for param in PARAMS {
        let lines: Vec<_> = (param.lines)(&defaults, &param.kind)
            .into_iter()
            .map(|line| [param.name.as_bytes(), &line].join(&b' '))
            .collect();
        let config = Config::from_text(&lines.join(&b'\n'), Path::new("default")).unwrap();
        assert_eq!(config.changed(&defaults), [""; 0], "{}", param.name);
        // What a stopped parameter would refuse is the caller's matter here.
        if param.has(Flag::FileOnly) || param.text(&defaults).is_empty() {
            continue;
        }
        let mut config = defaults.clone();
        let words = split_value(&param.kind, &param.text(&defaults));
        param.assign(&mut config, &words, Source::Set).unwrap();
        assert_eq!(param.text(&config), param.text(&defaults), "{}", param.name);
    }
}

#[test]
fn every_parameter_takes_the_value_it_has() {
    let open = run(&["--enable-protected-configs", "yes"]);
    for (name, value) in open.get(&["*"]) {
        let result = open.set_many(&[(&name, &value)], false);
        assert!(
            result.is_ok_and(|config| config.changed(&open).is_empty()),
            "{name}"
        );
    }
}

#[test]
fn get_matches_patterns_names_and_aliases() {
    let config = Config::default();
    let names = |patterns: &[&str]| -> Vec<String> {
        config
            .get(patterns)
            .into_iter()
            .map(|pair| pair.0)
            .collect()
    };
    assert_eq!(names(&["hz"]), ["hz"]);
    assert_eq!(names(&["HZ"]), ["HZ"]);
    assert_eq!(names(&["hz", "HZ", "h?"]), ["hz"]);
    assert_eq!(names(&["H[z]"]), ["hz"]);
    assert_eq!(names(&["nosuch"]), [""; 0]);
    assert_eq!(
        names(&["*-read-only"]),
        ["replica-read-only", "slave-read-only"]
    );
    assert_eq!(names(&["slave-read-only"]), ["slave-read-only"]);
    assert_eq!(names(&["busy-*", "lua-*"]).len(), 4);
    assert_eq!(names(&["watchdog-perio*"]), [""; 0]);
    assert_eq!(names(&["watchdog-period"]), ["watchdog-period"]);
    assert_eq!(names(&["user", "rename-command"]), [""; 0]);
    assert!(names(&["*"]).len() > 150);
}

#[test]
fn set_reads_values_as_redis_does() {
    let check = |name: &str, value: &str, shown: &str| {
        let config = set(
            &run(&["--enable-protected-configs", "yes"]),
            &[(name, value)],
        )
        .unwrap_or_else(|error| panic!("{name} {value}: {error}"));
        assert_eq!(text_of(&config, name), shown, "{name} {value}");
    };
    check("maxmemory", "1gB", "1073741824");
    check("maxmemory", "10K", "10000");
    check("maxmemory", "", "0");
    check("maxmemory-clients", "5%", "5%");
    check("maxmemory-clients", "1mb", "1048576");
    check("hz", "0", "1");
    check("hz", "100000", "500");
    check("repl-backlog-size", "5", "16384");
    check("loglevel", "NOTHING", "nothing");
    check("appendonly", "YES", "yes");
    check("save", "", "");
    check("save", "900 1 300 10", "900 1 300 10");
    check("shutdown-on-sigint", "force now", "now force");
    check("shutdown-on-sigint", "default now", "now");
    check("shutdown-on-sigint", "default", "default");
    check("shutdown-on-sigint", "nosave now", "nosave now");
    check("notify-keyspace-events", "KEA", "AKE");
    check("notify-keyspace-events", "Kg$lshzxetdmn", "AnKm");
    check("notify-keyspace-events", "zlgE", "glzE");
    check("notify-keyspace-events", "gKnE", "gnKE");
    check(
        "latency-tracking-info-percentiles",
        "50 99.99 12.123",
        "50 99.99 12.123",
    );
    check("latency-tracking-info-percentiles", "0.1 100", "0.1 100");
    check("latency-tracking-info-percentiles", "", "");
    check("oom-score-adj-values", "3 2 1", "3 2 1");
    check("bind", "127.0.0.1 -::1", "127.0.0.1 -::1");
    check("bind", "", "");
    check("slave-read-only", "no", "no");
    check("list-max-ziplist-size", "-1", "-1");
    check("dir", "/", "/");
    check(
        "client-output-buffer-limit",
        "replica 1mb 1k 3 NORMAL  1 0",
        "normal 0 1 0 slave 1048576 1000 3 pubsub 33554432 8388608 60",
    );
}

#[test]
fn what_is_too_large_for_64_bits_is_the_largest_that_is_not() {
    for (name, value, expected) in [
        ("maxmemory", "99999999999999999999", "18446744073709551615"),
        ("maxmemory", "99999999999gb", "18446744073709551615"),
        (
            "maxmemory-clients",
            "99999999999999999999",
            "18446744073709551615",
        ),
        (
            "cluster-link-sendbuf-limit",
            "18446744073709551615",
            "18446744073709551615",
        ),
    ] {
        let config = set(&Config::default(), &[(name, value)]).unwrap();
        let got = config.get(&[name]);
        assert_eq!(got, [(name.to_owned(), expected.as_bytes().to_vec())]);
    }
}

#[test]
fn percentiles_are_numbers_as_redis_reads_them() {
    let name = "latency-tracking-info-percentiles";
    let config = set(&Config::default(), &[(name, "0x10 1e1 +5")]).unwrap();
    assert_eq!(
        config.get(&[name]),
        [(name.to_owned(), b"16 10 5".to_vec())]
    );
}

#[track_caller]
fn refused(name: &str, value: &str, expected: &str) {
    assert_eq!(set_error(name, value), expected, "{name} {value}");
}

#[test]
fn numbers_are_refused_in_redis_words() {
    let integer = "argument couldn't be parsed into an integer";
    for value in ["abc", "", "1kb", "010", "+1", "-0", "99999999999999999999"] {
        refused("timeout", value, integer);
    }
    refused(
        "timeout",
        "-1",
        "argument must be between 0 and 2147483647 inclusive",
    );
    refused(
        "port",
        "99999",
        "argument must be between 0 and 65535 inclusive",
    );
    refused(
        "maxclients",
        "0",
        "argument must be between 1 and 4294967295 inclusive",
    );
    refused(
        "list-max-listpack-size",
        "-9999999999",
        "argument must be between -2147483648 and 2147483647 inclusive",
    );
    refused(
        "client-query-buffer-limit",
        "1",
        "argument must be between 1048576 and 9223372036854775807 inclusive",
    );
    for value in ["1%", "1.5gb", "-1", "-1kb", "1e3", "10kbb"] {
        refused("maxmemory", value, "argument must be a memory value");
    }
    // The largest number exceeds the limit of most parameters.
    for value in ["99999999999999999999", "99999999999gb"] {
        refused(
            "proto-max-bulk-len",
            value,
            "argument must be between 1048576 and 9223372036854775807 inclusive",
        );
    }
    for value in ["abc", "-5%", "5%%", "%", "1kb%"] {
        refused(
            "maxmemory-clients",
            value,
            "argument must be a memory or percent value",
        );
    }
    refused(
        "maxmemory-clients",
        "101%",
        "percentage argument must be less or equal to 100",
    );
}

#[test]
fn choices_are_refused_in_redis_words() {
    refused("appendonly", "maybe", "argument must be 'yes' or 'no'");
    refused(
        "appendfsync",
        "foo",
        "argument(s) must be one of the following: everysec, always, no",
    );
    refused(
        "loglevel",
        "notice debug",
        "argument(s) must be one of the following: debug, verbose, notice, warning, nothing",
    );
    refused(
        "shutdown-on-sigint",
        "",
        "argument(s) must be one of the following: default, save, nosave, now, force",
    );
    refused(
        "shutdown-on-sigterm",
        "save now nosave",
        "shutdown options SAVE and NOSAVE can't be used simultaneously",
    );
    refused(
        "notify-keyspace-events",
        "xyz!",
        "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.",
    );
}

#[test]
fn lists_are_refused_in_redis_words() {
    for value in [
        "abc",
        "10",
        "10 10 20",
        "-1 1",
        "0 1",
        "10 -1",
        "900 1    300 2",
    ] {
        refused("save", value, "Invalid save parameters");
    }
    let limit = "client-output-buffer-limit";
    refused(
        limit,
        "normal 1 1",
        "Wrong number of arguments in buffer limit configuration.",
    );
    refused(
        limit,
        "master 1 1 1",
        "Invalid client class specified in buffer limit configuration.",
    );
    for value in ["replica 1mb 1k -3", "replica 1x 1k 3", "normal -1 1 0"] {
        refused(
            limit,
            value,
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        );
    }
    let percentiles = "latency-tracking-info-percentiles";
    refused(
        percentiles,
        "50 abc",
        "Invalid latency-tracking-info-percentiles parameters",
    );
    refused(
        percentiles,
        "nan",
        "Invalid latency-tracking-info-percentiles parameters",
    );
    for value in ["50 101", "-1", "inf"] {
        refused(
            percentiles,
            value,
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        );
    }
    refused("oom-score-adj-values", "1 2", "wrong number of arguments");
    refused(
        "oom-score-adj-values",
        "3 2 10000",
        "Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
    );
}

#[test]
fn parameters_that_cannot_be_set_are_refused_in_redis_words() {
    refused("databases", "17", "can't set immutable config");
    refused("replicaof", "a 1", "can't set immutable config");
    refused("dir", "/", "can't set protected config");
    refused(
        "foo",
        "bar",
        "ERR Unknown option or number of arguments for CONFIG SET - 'foo'",
    );
    refused(
        "user",
        "bar",
        "ERR Unknown option or number of arguments for CONFIG SET - 'user'",
    );
    refused(
        "a\r\nb",
        "1",
        "ERR Unknown option or number of arguments for CONFIG SET - 'a  b'",
    );
}

#[test]
fn protected_parameters_open_to_those_named() {
    let error = |config: &Config, local| {
        config
            .set_many(&[("dir", "/nonexistent")], local)
            .unwrap_err()
            .to_string()
    };
    let protected =
        "ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config";
    let missing =
        "ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory";
    let local = run(&["--enable-protected-configs", "local"]);
    assert_eq!(error(&local, false), protected);
    assert_eq!(error(&local, true), missing);
    let open = run(&["--enable-protected-configs", "yes"]);
    assert_eq!(error(&open, false), missing);
    let error = open.set_many(&[("dbfilename", "a/b")], false).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("dbfilename can't be a path, just a filename")
    );
}

#[test]
fn set_changes_all_or_nothing() {
    let config = Config::default();
    let failed = |name: &str, reason: &str| {
        Err(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
        ))
    };
    assert_eq!(
        set(&config, &[("hz", "20"), ("timeout", "x")]),
        failed("timeout", "argument couldn't be parsed into an integer")
    );
    assert_eq!(
        set(&config, &[("hz", "10"), ("HZ", "20")]),
        failed("HZ", "duplicate parameter")
    );
    assert_eq!(
        set(&config, &[("hz", "x"), ("foo", "1")]),
        Err("ERR Unknown option or number of arguments for CONFIG SET - 'foo'".into())
    );
    let changed = set(
        &config,
        &[("slave-read-only", "yes"), ("replica-read-only", "no")],
    )
    .unwrap();
    assert!(!changed.replica_read_only);
    assert_eq!(config.changed(&changed), ["replica-read-only"]);
}

proptest! {
    #[test]
    fn quoted_words_read_back(words in prop::collection::vec(prop::collection::vec(1u8.., 0..20), 0..5)) {
        let line = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(&b' ');
        prop_assert_eq!(split(&line).unwrap(), words);
    }

    #[test]
    fn any_value_is_taken_or_refused(
        index in 0..PARAMS.len(),
        value in prop::collection::vec(prop::sample::select(&b"0123456789-+.%kmgbxaAKE \"'\\\xff\0"[..]), 0..12),
    ) {
        let param = &PARAMS[index];
        let mut config = Config::default();
        let words = split_value(&param.kind, &value);
        if param.assign(&mut config, &words, Source::Set).is_ok() && !param.has(Flag::FileOnly) {
            let text = param.text(&config);
            let mut again = Config::default();
            let words = split_value(&param.kind, &text);
            if param.assign(&mut again, &words, Source::Set).is_ok() {
                prop_assert_eq!(param.text(&again), text);
            } else {
                // Only an empty value, no master, cannot be set from its text.
                prop_assert!(text.is_empty(), "{} {:?}", param.name, text);
            }
        }
    }

    #[test]
    fn any_file_is_taken_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Config::from_text(&text, Path::new("random"));
    }
}

#[test]
fn shared_versions_grow_with_changes() {
    let shared = Arc::new(SharedConfig::new(Config::default()));
    let version = shared.version();
    let mut config = (*shared.load()).clone();
    config.hz = 77;
    shared.publish(config);
    assert!(shared.version() > version);
    assert_eq!(shared.load().hz, 77);
    let version = shared.version();
    let failed = shared.update(|config| config.set_many(&[("hz", "x")], true));
    assert!(failed.is_err());
    assert_eq!(shared.version(), version);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let changed: Result<_, ()> = shared.update(|config| {
                        let mut config = config.clone();
                        config.timeout_s += 1;
                        Ok(config)
                    });
                    let (old, new) = changed.unwrap();
                    assert_eq!(old.timeout_s + 1, new.timeout_s);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(shared.load().timeout_s, 400);
}

#[test]
fn the_budget_is_maxmemory_or_a_share_of_the_least_limit() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    assert_eq!(available_bytes(root.path()), 1 << 30);
    write(
        "proc/meminfo",
        "MemTotal:       4194304 kB\nMemFree: 1 kB\n",
    );
    assert_eq!(available_bytes(root.path()), 4 << 30);
    write("proc/self/cgroup", "5:cpu,memory:/a\n0::/b/c\n");
    write("sys/fs/cgroup/b/c/memory.max", "max\n");
    assert_eq!(available_bytes(root.path()), 4 << 30);
    write("sys/fs/cgroup/b/memory.max", "3000000000\n");
    assert_eq!(available_bytes(root.path()), 3_000_000_000);
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000000\n");
    assert_eq!(available_bytes(root.path()), 2_000_000_000);
    write(
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "9223372036854771712\n",
    );
    assert_eq!(available_bytes(root.path()), 3_000_000_000);

    let mut config = Config::default();
    assert!(memory_budget(&config) >= 32 << 20);
    config.max_memory_bytes = 1 << 30;
    assert_eq!(memory_budget(&config), 1 << 30);
    config.max_memory_bytes = 1;
    assert_eq!(memory_budget(&config), 32 << 20);
    // The budget is limited, since the block cache reserves address space for its whole size.
    config.max_memory_bytes = u64::MAX;
    assert!(memory_budget(&config) < 1 << 50);
    let half = MemoryOrPercent::Percent(50);
    assert_eq!(half.bytes(1000), 500);
}

#[test]
fn too_little_memory_is_said() {
    let mib = 1 << 20;
    assert_eq!(lack(32 * mib, 32 * mib, None), None);
    assert_eq!(lack(1024 * mib, 512 * mib, Some(768 * mib)), None);
    let text = lack(16 * mib, 32 * mib, None).unwrap();
    assert!(text.contains("has 16 MiB of memory"), "{text}");
    let text = lack(1024 * mib, 512 * mib, Some(767 * mib)).unwrap();
    assert!(
        text.contains("may have 767 MiB") && text.contains("needs 768"),
        "{text}"
    );
}

#[test]
fn passwords_do_not_show_in_debug_output() {
    let config = parse("requirepass hunter2\nmasterauth hunter3\nuser a >hunter4").unwrap();
    assert!(!format!("{config:?}").contains("hunter"));
}

#[test]
fn help_and_the_readme_table_name_every_parameter() {
    let (help, table) = (help_text(), markdown_table());
    for param in PARAMS {
        if !param.has(Flag::Hidden) {
            assert!(help.contains(param.name), "{}", param.name);
            assert!(
                table.contains(&format!("`{}`", param.name)),
                "{}",
                param.name
            );
        }
    }
}

/// What is set, and, with the comments around the other lines removed, what is not.
#[test]
fn a_printed_configuration_reads_back() {
    let words = "port 7\nsave 1 2\nuser a on\nbind 127.0.0.1\nrename-command get g";
    let lines = "\nclient-output-buffer-limit normal 1 2 3\nmaxmemory 3gb\nreplicaof h 1";
    let config = parse(&format!("{words}{lines}")).unwrap();
    let text = String::from_utf8(config_file(&config)).unwrap();
    let read = parse(&text).unwrap();
    let differ =
        |param: &&Param| !param.has(Flag::Inert) && param.text(&read) != param.text(&config);
    let differ: Vec<_> = PARAMS
        .iter()
        .filter(differ)
        .map(|param| param.name)
        .collect();
    assert_eq!(differ, Vec::<&str>::new());
    let defaults = Config::default();
    let text = String::from_utf8(config_file(&defaults)).unwrap();
    for param in PARAMS
        .iter()
        .filter(|param| !param.has(Flag::Inert) && !param.has(Flag::Hidden))
    {
        let line = format!("\n# {} ", param.name);
        assert!(text.contains(&line), "{}", param.name);
    }
    // The last lines of a paragraph are the parameter.
    let mut set = String::new();
    for paragraph in text.split("\n\n") {
        let is_value = |line: &&str| {
            let words = line.strip_prefix("# ").unwrap_or_default();
            let name = words.split(' ').next().unwrap_or_default();
            let param = Param::find(name.as_bytes());
            param.is_some_and(|param| !(param.lines)(&defaults, &param.kind).is_empty())
        };
        let values = paragraph.lines().rev().take_while(is_value);
        for line in values.collect::<Vec<_>>().into_iter().rev() {
            set.push_str(&format!("{}\n", &line[2..]));
        }
    }
    assert!(set.lines().count() > 100, "{set}");
    let read = parse(&set).unwrap();
    let differ: Vec<_> = read.changed(&defaults);
    assert!(differ.iter().all(|name| *name == "dir"), "{differ:?}");
}

#[test]
fn event_sets() {
    let config = set(&Config::default(), &[("notify-keyspace-events", "Kx")]).unwrap();
    let events = config.notify_keyspace_events;
    assert!(events.contains(NotifyEvents::EXPIRED) && !events.contains(NotifyEvents::LIST));
    assert!(!events.is_silent());
    for silent in ["", "KE", "gx", "A"] {
        let config = set(&Config::default(), &[("notify-keyspace-events", silent)]).unwrap();
        assert!(config.notify_keyspace_events.is_silent(), "{silent}");
    }
}
