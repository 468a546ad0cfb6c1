//! What a start reads: lines, files, the command line.

use std::path::Path;

use super::super::*;
use super::{STOCK, args, parse, reason, run, text_of};

#[test]
fn a_stock_file_is_taken() {
    let config = parse(STOCK).unwrap();
    assert_eq!(config.bind, ["127.0.0.1", "-::1"]);
    assert_eq!(config.max_memory_bytes, 2 << 30);
    assert_eq!(config.requirepass.0, b"a secret with spaces");
    assert_eq!(config.masterauth.0, b"it's");
    assert_eq!(config.save.points, [(900, 1), (300, 10)]);
    assert_eq!(config.io_threads, 4);
    assert_eq!(
        config.replicaof,
        Some(MasterAddr {
            host: "10.0.0.1".into(),
            port: 6379
        })
    );
    assert_eq!(config.renames.0, [("config".into(), String::new())]);
    assert_eq!(config.users.0.len(), 1);
    let debian = Path::new("/etc/redis/redis.conf");
    if debian.exists() {
        let config = Config::from_file(debian).unwrap();
        assert_eq!(config.databases, 16);
    }
}

/// Valkey's file used to fail at a parameter that this server did not know.
#[test]
fn files_of_newer_servers_are_taken() {
    for file in [
        include_str!("../../../../tests/fixtures/redis-8.conf"),
        include_str!("../../../../tests/fixtures/valkey-8.conf"),
    ] {
        let config = parse(file).unwrap();
        // Values that are the default here are not reported.
        let inert = config.without_effect();
        let is_lazy = |name: &&str| name.contains("lazy");
        assert!(inert.iter().all(is_lazy), "{inert:?}");
    }
    let known = include_str!("../../../../tests/fixtures/parameters.txt");
    let unknown = |name: &&str| !name.starts_with('#') && Param::find(name.as_bytes()).is_none();
    let unknown: Vec<_> = known.lines().filter(unknown).collect();
    assert_eq!(unknown, Vec::<&str>::new());
}

#[test]
fn parameters_without_effect_are_named() {
    let config = parse("syslog-enabled yes\nhz 10\nport 1\ndynamic-hz no").unwrap();
    assert_eq!(config.without_effect(), ["dynamic-hz", "syslog-enabled"]);
}

/// A start with a path ended with an error: redis-rs' suite starts its clusters so.
#[test]
fn the_file_of_a_cluster_may_have_a_path() {
    for name in ["/var/lib/redis/nodes.conf", ""] {
        let config = parse(&format!("cluster-config-file \"{name}\"")).unwrap();
        assert_eq!(config.cluster_config_file, name);
    }
}

#[test]
fn errors_of_a_file_say_where_what_and_why() {
    let error = parse("# fine\nport 1\n  foo bar\n")
        .unwrap_err()
        .to_string();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        error,
        format!(
            "*** FATAL CONFIG FILE ERROR (Kedis {version}) ***\n\
             Reading the configuration file test.conf, at line 3\n\
             >>> 'foo bar'\n\
             Bad directive or wrong number of arguments: no parameter has the name 'foo'. \
             `kedis-server --help` lists them"
        )
    );
    let arity = "wrong number of arguments";
    assert_eq!(reason("hz"), arity);
    assert_eq!(reason("hz 10 20"), arity);
    assert_eq!(reason("slaveof a"), arity);
    assert_eq!(reason("rename-command a"), arity);
    assert_eq!(reason("user"), arity);
    assert_eq!(reason("replicaof a 99999"), "Invalid master port");
    assert_eq!(reason("replicaof \"\" 9"), "Invalid master host");
    assert_eq!(
        reason("requirepass \"abc"),
        "Unbalanced quotes in configuration line"
    );
    assert_eq!(
        reason("port \"1\"x"),
        "Unbalanced quotes in configuration line"
    );
    assert_eq!(reason("port 1\0"), "The line contains a zero byte");
    assert_eq!(
        reason("pidfile \"a\\x00\""),
        "argument must not contain a zero byte"
    );
    assert_eq!(
        reason("unixsocketperm 999"),
        "argument couldn't be parsed as an octal number"
    );
    assert_eq!(
        reason("unixsocketperm 7777"),
        "argument must be between 0 and 777 inclusive"
    );
    assert_eq!(
        reason("databases 0"),
        "argument must be between 1 and 65535 inclusive"
    );
    assert_eq!(
        reason("db-name ../x"),
        "argument can't be a path, just a filename"
    );
    assert_eq!(
        reason("cluster-announce-hostname a_b"),
        "Hostnames may only contain alphanumeric characters, hyphens or dots"
    );
    assert_eq!(
        reason(&format!("cluster-announce-hostname {}", "h".repeat(256))),
        "Hostnames must be less than 256 characters"
    );
    assert_eq!(
        reason("loadmodule x.so"),
        "Modules cannot be loaded into this server"
    );
    assert_eq!(reason("include a b"), arity);
    assert_eq!(
        reason("include /a*/b"),
        "Only the last part of an included path may have wildcards"
    );
    let error = parse("hz 10\ninclude /nonexistent/x.conf")
        .unwrap_err()
        .to_string();
    for part in [
        "test.conf, at line 2",
        "'include /n",
        "x.conf: No such file",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn lines_of_one_parameter_add_up_or_replace() {
    assert_eq!(text_of(&parse("hz 20\nHZ 30").unwrap(), "hz"), "30");
    let save = |text: &str| text_of(&parse(text).unwrap(), "save");
    assert_eq!(save(""), "3600 1 300 100 60 10000");
    assert_eq!(save("save 900 1\nsave 300 10 1 2"), "900 1 300 10 1 2");
    assert_eq!(save("save 900 1\nsave \"\"\nsave 5 6"), "5 6");
    assert_eq!(save("save \"900 1 300 10\""), "900 1 300 10");
    // Redis refuses a second description of a user. The line may hold a password.
    let twice = parse("user a on\nuser a >hunter2").unwrap_err().to_string();
    assert!(
        twice.contains("Duplicate user") && !twice.contains("hunter2"),
        "{twice}"
    );
    let config = parse("user b on\nuser a off").unwrap();
    let names: Vec<_> = config.users.0.iter().map(|user| user.0.clone()).collect();
    assert_eq!(names, [b"b", b"a"]);
    assert_eq!(
        parse("replicaof a 1\nreplicaof no one").unwrap().replicaof,
        None
    );
    assert_eq!(parse("unixsocketperm 770").unwrap().unixsocketperm, 0o770);
    assert_eq!(
        text_of(&parse("unixsocketperm 770").unwrap(), "unixsocketperm"),
        "770"
    );
    assert!(parse("\r\n# x\r\nport 1\r\n").is_ok());
}

#[test]
fn includes_are_read_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: String| std::fs::write(path(name), text).unwrap();
    std::fs::create_dir(path("d")).unwrap();
    write("d/1.conf", "hz 20\ntimeout 1".into());
    write("d/2.conf", "hz 30".into());
    write("d/3.txt", "hz 40".into());
    let pattern = format!("{}/d/*.conf", folder.path().display());
    write("a.conf", format!("hz 10\ninclude {pattern}\ntimeout 2\n"));
    let config = Config::from_file(&path("a.conf")).unwrap();
    assert_eq!((config.hz, config.timeout_s), (30, 2));
    write("d/2.conf", "\nbad".into());
    let error = Config::from_file(&path("a.conf")).unwrap_err().to_string();
    assert!(error.contains("d/2.conf, at line 2"), "{error}");
    write(
        "loop.conf",
        format!("include {}", path("loop.conf").display()),
    );
    let error = Config::from_file(&path("loop.conf"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("Too many files"), "{error}");
}

#[test]
fn the_command_line_is_read_as_directives() {
    let config = run(&[
        "--port",
        "6380",
        "--BIND",
        "127.0.0.1",
        "::1",
        "--slaveof",
        "h",
        "1",
    ]);
    assert_eq!(config.port, 6380);
    assert_eq!(config.bind, ["127.0.0.1", "::1"]);
    assert_eq!(config.replicaof.unwrap().host, "h");
    assert_eq!(run(&["--port 6381", "--hz", "3"]).port, 6381);
    assert_eq!(run(&["--requirepass", "--x"]).requirepass.0, b"--x");
    assert!(run(&["--save"]).save.points.is_empty());
    let config = run(&["--save", "--port", "1"]);
    assert_eq!((config.port, config.save.points.len()), (1, 0));
    assert_eq!(run(&["--save", "60", "1"]).save.points, [(60, 1)]);
    assert_eq!(
        text_of(
            &run(&["--shutdown-on-sigint", "now force"]),
            "shutdown-on-sigint"
        ),
        "now force"
    );
    assert!(matches!(args(&["--version"]), Ok(Startup::Version)));
    assert!(matches!(args(&["-v"]), Ok(Startup::Version)));
    assert!(matches!(
        args(&["--port", "1", "--help"]),
        Ok(Startup::Help)
    ));
    assert!(matches!(args(&["-h"]), Ok(Startup::Help)));
    let error = |list: &[&str]| args(list).unwrap_err().to_string();
    for (list, text, reason) in [
        (&["--port"][..], "'port'", "wrong number"),
        (&["--port", "1", "--loglevel"], "'loglevel'", "wrong number"),
        (
            &["--port", "6379", "6380"],
            r#"'port "6379" "6380"'"#,
            "wrong number",
        ),
        (
            &["--port", "--loglevel", "verbose"],
            r#"'port "--loglevel" "verbose"'"#,
            "wrong number",
        ),
        (
            &["--port", "--bla"],
            r#"'port "--bla"'"#,
            "parsed into an integer",
        ),
        (
            &["--loglevel", "--my--log--file"],
            r#"'loglevel "--my--log--file"'"#,
            "one of the following",
        ),
        (
            &["--shutdown-on-sigint"],
            "'shutdown-on-sigint'",
            "one of the following",
        ),
        (
            &["--replicaof", "127.0.0.1", "abc"],
            r#"'replicaof "127.0.0.1" "abc"'"#,
            "Invalid master port",
        ),
        (
            &["--replicaof", "--127.0.0.1", "--abc"],
            r#"'replicaof "--127.0.0.1"'"#,
            "wrong number",
        ),
        (
            &["--port", "1", "--foo"],
            "'foo'",
            "Bad directive or wrong number of arguments",
        ),
        (&["--"], "'--'", "Bad directive"),
        (&["--port=1"], "'port=1'", "value: `port 1`"),
        (&["--foo=1"], "'foo=1'", "no parameter has the name 'foo'."),
        (
            &["--prot", "1"],
            "'prot \"1\"'",
            "'prot', did you mean 'port'?",
        ),
        (&["--max-memory", "1"], "memory", "mean 'maxmemory'?"),
        (&["--load_rbd", "x"], "load_rbd", "mean '--load-rdb'?"),
        (&["-x"], "'-x'", "first argument"),
        (&["--port \"1"], "'port \"1'", "Unbalanced quotes"),
    ] {
        let error = error(list);
        assert!(
            error.contains(text) && error.contains(reason),
            "{list:?}: {error}"
        );
        assert!(error.contains("FATAL CONFIG FILE ERROR"));
    }
    let error = error(&["/nonexistent.conf", "--port", "1"]);
    assert!(error.contains("/nonexistent.conf"), "{error}");
}

#[test]
fn a_file_or_standard_input_comes_before_the_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kedis.conf");
    std::fs::write(&path, "port 1\nhz 20\n").unwrap();
    let name = path.to_str().unwrap();
    match args(&[name, "--port", "2"]) {
        Ok(Startup::Run(config, given)) => {
            assert_eq!((config.port, config.hz), (2, 20));
            assert_eq!(given.file, Some(path.clone()));
        }
        other => panic!("{other:?}"),
    }
    // As in Redis, the first directive after the file may begin without dashes, and a flag may
    // contain its value.
    match args(&[name, "loglevel", "verbose", "--maxmemory '700mb'"]) {
        Ok(Startup::Run(config, _)) => {
            assert_eq!(config.loglevel, LogLevel::Verbose);
            assert_eq!(config.max_memory_bytes, 700 << 20);
        }
        other => panic!("{other:?}"),
    }
    for stray in [
        &[name, "nonsense"][..],
        &[name, name],
        &[name, "port", "1", "hz", "2"],
    ] {
        assert!(args(stray).is_err(), "{stray:?}");
    }
    match Config::from_args_and_stdin(["-", "--port", "2"], &b"hz 7\nport 9"[..]) {
        Ok(Startup::Run(config, given)) => {
            assert_eq!((config.port, config.hz, given.file), (2, 7, None));
        }
        other => panic!("{other:?}"),
    }
    let error = Config::from_args_and_stdin(["-"], &b"\nx"[..]).unwrap_err();
    assert!(error.to_string().contains("standard input, at line 2"));
}

/// Passwords whose quotes were wrong, or that an equals sign joined to their parameter, stood in
/// the error, and so in the journal of the machine.
#[test]
fn errors_show_no_secrets() {
    let check = |error: ConfigError, expected: &str| {
        let error = error.to_string();
        assert!(!error.contains("TopS3cret"), "{error}");
        assert!(error.contains(expected), "{error}");
    };
    for (line, shown) in [
        ("requirepass TopS3cret extra", "requirepass ..."),
        ("requirepass \"TopS3cret", "requirepass ..."),
        ("requirepass \"TopS3cret\"y", "requirepass ..."),
        ("masterauth \"TopS3cret\" \"", "masterauth ..."),
        ("tls-key-file-pass 'TopS3cret", "tls-key-file-pass ..."),
        ("user bob on >TopS3cret \"", "user ..."),
        ("\"require\\x70ass\" TopS3cret extra", "requirepass ..."),
        ("requirepass=TopS3cret", "requirepass ..."),
        ("requirepass: TopS3cret", "requirepass ..."),
        ("\"requirepass TopS3cret\"", "requirepass ..."),
        ("requirepas TopS3cret", "requirepas ..."),
        ("\"requirepas TopS3cret\"", "requirepas ..."),
        ("--requirepass TopS3cret", "requirepass ..."),
        ("port 1 requirepass TopS3cret", "port 1 requirepass ..."),
        ("requirepass Top\0TopS3cret", "requirepass ..."),
    ] {
        let shown = format!(">>> '{shown}'");
        check(parse(line).unwrap_err(), &shown);
        let read = Config::from_args_and_stdin(["-"], line.as_bytes());
        check(read.unwrap_err(), &shown);
    }
    for (line, shown) in [
        (&["--requirepass=TopS3cret"][..], ">>> 'requirepass ...'"),
        (&["--requirepass \"TopS3cret"], ">>> 'requirepass ...'"),
        (
            &["--requirepass", "a", "TopS3cret"],
            ">>> 'requirepass ...'",
        ),
        (
            &["--port", "1", "requirepass", "TopS3cret"],
            ">>> 'port \"1\" \"requirepass ...'",
        ),
        (&["-", "requirepass=TopS3cret"], ">>> 'requirepass ...'"),
        (&["requirepass=TopS3cret"], "file requirepass ...:"),
    ] {
        check(args(line).unwrap_err(), shown);
    }
    let advice = "a space stands between a parameter and its value: `requirepass ...`";
    check(parse("requirepass=TopS3cret").unwrap_err(), advice);
    check(args(&["--requirepass=TopS3cret"]).unwrap_err(), advice);
    assert!(reason("port=1").ends_with("`port 1`"));
    assert!(reason("\"port 1\"").ends_with("`port 1`"));
    assert!(reason("port= 1").ends_with("`port ...`"));
}

/// Some errors are found only after the whole configuration is read.
#[test]
fn the_place_of_a_directive_is_known_later() {
    let text = b"port 1\nrename-command GET x\nrename-command set y\nUSER a >secret\nbind x";
    let started = Config::from_args_and_stdin(["-", "--bind", "y", "z"], &text[..]);
    let Ok(Startup::Run(_, given)) = started else {
        panic!("{started:?}");
    };
    let explain = |parameter, word| given.places.explain("why", parameter, word);
    let stdin = "why. Reading the configuration from standard input, at line";
    assert_eq!(
        explain("rename-command", Some("get")),
        format!("{stdin} 2: 'rename-command GET x'")
    );
    assert_eq!(
        explain("rename-command", Some("set")),
        format!("{stdin} 3: 'rename-command set y'")
    );
    assert_eq!(explain("user", None), format!("{stdin} 4: 'user ...'"));
    assert_eq!(
        explain("bind", None),
        r#"why. Reading the command line: 'bind "y" "z"'"#
    );
    assert_eq!(explain("logfile", None), "why");
}

#[test]
fn words_and_quotes() {
    let words = |line: &str| split(line.as_bytes()).map_err(|error| error.to_string());
    assert_eq!(words("  a\tb  ").unwrap(), [b"a", b"b"]);
    assert_eq!(
        words(r#""a b" 'c d' e"f""#).unwrap(),
        [&b"a b"[..], b"c d", b"ef"]
    );
    assert_eq!(
        words(r#""\x41\n\t\r\b\a\\\"\q""#).unwrap(),
        [b"A\n\t\r\x08\x07\\\"q"]
    );
    assert_eq!(words(r"'it\'s \x41'").unwrap(), [br"it's \x41"]);
    assert_eq!(words(r#""""#).unwrap(), [b""]);
    assert_eq!(words(r#""\x4""#).unwrap(), [b"x4"]);
    for bad in ["\"a", "'a", "\"a\"b", "'a'b", "\"\\"] {
        assert!(words(bad).is_err(), "{bad}");
    }
    assert_eq!(split(&vec![b'a'; 2 << 20]).unwrap()[0].len(), 2 << 20);
    // One at a time: what is wrong comes when its place is reached.
    let read: Vec<_> = super::super::words(b"a \"b c").unwrap().collect();
    assert_eq!(read, [Ok(b"a".to_vec()), Err(LexError::Quotes)]);
    assert!(super::super::words(b"a\0").is_err());
}

/// A cluster has one DB, whatever the order of the lines.
#[test]
fn a_cluster_has_one_db() {
    for text in [
        "cluster-enabled yes\ndatabases 5",
        "databases 5\ncluster-enabled yes",
        "cluster-enabled yes",
    ] {
        assert_eq!(text_of(&parse(text).unwrap(), "databases"), "1", "{text}");
    }
    let config = parse("databases 5\ncluster-enabled no").unwrap();
    assert_eq!(text_of(&config, "databases"), "5");
}
