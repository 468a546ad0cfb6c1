use super::*;
use crate::state::config::quote_always;

const DEFAULTS: Defaults = Defaults {
    all_channels: false,
};

fn parsed(text: &str) -> Result<ByName, String> {
    parse(text.as_bytes(), "users.acl", DEFAULTS)
}

#[test]
fn a_file_describes_users() {
    let users = parsed(
        "user a on nopass ~* +@all\n\n  user b (~x +get) ( ~y   +set )\r\nuser default on >p",
    );
    let users = users.unwrap();
    let names: Vec<&[u8]> = users.keys().map(Vec::as_slice).collect();
    assert_eq!(names, [&b"a"[..], b"b", b"default"]);
    assert_eq!(users[&b"b"[..]].selectors.len(), 2);
    assert!(users[&b"default"[..]].accepts(b"p"));
}

#[test]
fn all_that_is_wrong_with_a_file_is_told() {
    const END: &str =
        "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    for (text, expected) in [
        (
            "users a",
            "users.acl:1 should start with user keyword followed by the username. ",
        ),
        (
            "user",
            "users.acl:1 should start with user keyword followed by the username. ",
        ),
        (
            "user a\n\nuser a",
            "WARNING: Duplicate user 'a' found on line 3. ",
        ),
        (
            "user a\tb on",
            "'users.acl:1: username 'a\\tb' contains invalid characters. ",
        ),
        (
            "user a (~x",
            "users.acl:1: Unmatched parenthesis in selector definition. ",
        ),
        (
            "user a +nosuch nosuch %x <p",
            "users.acl:1: Error in applying operation '+nosuch': Unknown command or category name in ACL. \
             users.acl:1: Syntax error. ",
        ),
        // A selector that is not closed where it was meant to be.
        (
            "user a (+nosuch on >secret ~x)",
            "users.acl:1: Error in applying operation '(redacted)': Unknown command or category name in ACL. ",
        ),
        (
            "user a\ton\t>secret",
            "'users.acl:1: username 'a ...' contains invalid characters. ",
        ),
        (
            "user a #12",
            "users.acl:1: The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters. ",
        ),
    ] {
        assert_eq!(
            parsed(text).unwrap_err(),
            format!("{expected}{END}"),
            "{text}"
        );
    }
}

/// The log of a server that does not start had the word with the parenthesis.
#[test]
fn errors_of_lines_show_no_passwords() {
    for rules in [
        "bob on (secret +get",
        "bob on >secret nosuch",
        "bob on <secret",
        "bob (+nosuch >secret)",
        ">secret on nosuch",
    ] {
        let config = Config::from_text(format!("user {rules}").as_bytes(), Path::new("c"));
        let error = from_lines(&config.unwrap()).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}

/// A file of errors was a reply of many times its length.
#[test]
fn the_errors_of_a_file_are_bounded() {
    let error = parsed(&"x\n".repeat(100_000)).unwrap_err();
    assert!(error.len() < 2 * LONGEST_ERRORS, "{}", error.len());
}

#[test]
fn no_bytes_do_harm() {
    let words = [
        "user",
        "a",
        "on",
        "(",
        ")",
        "~",
        "%",
        "%R~",
        "&",
        "+",
        "-",
        "+@",
        "|",
        "+get|",
        "db=",
        ",",
        "#",
        ">",
        "<",
        "!",
        "\u{e9}",
        "\0",
        "\"",
        "'",
        "\\",
        " ",
        "\n",
        "reset",
        "99999999999999999999",
    ];
    let mut random = fastrand::Rng::with_seed(31);
    for _ in 0..20_000 {
        let text: String = (0..random.usize(1..12))
            .map(|_| words[random.usize(..words.len())])
            .collect::<Vec<_>>()
            .join(if random.bool() { " " } else { "" });
        // Either users or errors, and no panic.
        let text = format!("user x {text}");
        if let Ok(users) = parsed(&text) {
            for (name, rules) in users {
                let line = [b"user ", &*name, b" ", &rules.text()].concat();
                let again = parse(&line, "users.acl", DEFAULTS).unwrap();
                assert_eq!(again[&name], rules, "{text:?}");
            }
        }
    }
}

#[test]
fn the_default_user_is_what_the_configuration_says() {
    let mut config = Config::default();
    let of = |config: &Config| read_users(config).map(|mut users| users.remove(&b"default"[..]));
    let open = of(&config).unwrap().unwrap();
    assert!(open.is_open() && open.is_unrestricted());
    config.requirepass = crate::state::config::Secret(b"secret".to_vec());
    let closed = of(&config).unwrap().unwrap();
    assert!(!closed.is_open() && closed.accepts(b"secret") && !closed.accepts(b"other"));
    config.users = UserLines(vec![(b"default".to_vec(), vec![b"on".to_vec()])]);
    let described = of(&config).unwrap().unwrap();
    assert!(!described.accepts(b"secret") && !described.is_unrestricted());
    config.users.0[0].1.push(b"+nosuch".to_vec());
    let bad = of(&config).unwrap_err();
    assert_eq!(
        (bad.parameter, bad.user.as_deref()),
        ("user", Some("default"))
    );
    config.aclfile = "users.acl".into();
    config.users.0[0].1.pop();
    assert_eq!(of(&config).unwrap_err().parameter, "aclfile");
    config.users.0.clear();
    let missing = of(&config).unwrap_err().reason;
    assert!(missing.contains("opening file"), "{missing}");
}

/// Bytes of names and rules, some of which are hard to write down.
fn random_word(random: &mut fastrand::Rng) -> Vec<u8> {
    const PARTS: &[&[u8]] = &[
        b"a",
        b"B",
        b"*",
        b"?",
        b"\"",
        b"'",
        b"\\",
        b"#",
        b"(",
        b")",
        b"|",
        b",",
        b"=",
        b"%R~",
        b"~",
        b"&",
        b"\xff",
        b"\xc3\xa9",
        b"\x01",
        b"\x7f",
        b"\x85",
        b"\xa0",
        b" ",
        b"\t",
        b"\n",
        b"\r",
        b"\x0b",
        b"\x0c",
        b"\0",
        b"\\n",
        b"\\x41",
        b"user ",
        b"on",
    ];
    let parts = 0..random.usize(..5);
    parts
        .flat_map(|_| PARTS[random.usize(..PARTS.len())].to_vec())
        .collect()
}

fn random_rule(random: &mut fastrand::Rng) -> Vec<u8> {
    const WHOLE: &[&[u8]] = &[
        b"on",
        b"off",
        b"nopass",
        b"~*",
        b"%R~*",
        b"%W~*",
        b"%RW~*",
        b"allchannels",
        b"resetkeys",
        b"resetchannels",
        b"+@all",
        b"-@all",
        b"+get",
        b"-config",
        b"+config|get",
        b"+@read",
        b"-@admin",
        b"db=1,2",
        b"resetdbs",
        b"alldbs",
        b"skip-sanitize-payload",
        b"clearselectors",
    ];
    const BEGUN: &[&[u8]] = &[
        b"~",
        b"%R~",
        b"%W~",
        b"%RW~",
        b"&",
        b">",
        b"+get|",
        b"+select|",
        b"+",
    ];
    match random.u8(..4) {
        0 => WHOLE[random.usize(..WHOLE.len())].to_vec(),
        1 => {
            let rules = 0..random.usize(..4);
            let inner: Vec<Vec<u8>> = rules
                .map(|_| match random_rule(random) {
                    rule if random.bool() => quote_always(&rule),
                    rule => rule,
                })
                .collect();
            [b"(", &*inner.join(&b' '), b")"].concat()
        }
        _ => {
            let begun = BEGUN[random.usize(..BEGUN.len())];
            [begun, &random_word(random)].concat()
        }
    }
}

/// What the two kinds of files say of users is what the next start reads.
#[track_caller]
fn reads_back(name: &[u8], rules: &Rules) {
    let line = line_of(name, rules);
    let shown = String::from_utf8_lossy(&line).into_owned();
    let users =
        parse(&line, "users.acl", DEFAULTS).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(users.len(), 1, "{shown}");
    assert_eq!(users.get(name), Some(rules), "{shown}");
    let config = Config {
        users: UserLines(vec![(name.to_vec(), words(rules))]),
        ..Config::default()
    };
    let text = config.rewritten(b"").unwrap();
    let again = Config::from_text(&text, Path::new("kedis.conf"));
    let again = again.unwrap_or_else(|error| panic!("{shown}: {error}"));
    let users = from_lines(&again).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(users.get(name), Some(rules), "{shown}");
}

#[test]
fn all_users_that_can_be_made_can_be_written_down() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut made, mut selectors) = (0, 0);
    for _ in 0..20_000 {
        let name = random_word(&mut random);
        if rules::is_bad_name(&name) {
            continue;
        }
        let mut user = DEFAULTS.user();
        for _ in 0..random.usize(1..5) {
            let mut changed = user.clone();
            if rules::apply(&mut changed, &random_rule(&mut random), DEFAULTS).is_ok() {
                user = changed;
            }
        }
        made += 1;
        selectors += user.selectors.len();
        reads_back(&name, &user);
    }
    assert!(made > 5_000 && selectors > 1_000, "{made}, {selectors}");
}

/// A line of more than a MiB was written, and refused by the next start.
#[test]
fn long_lines_are_read_back() {
    let mut user = DEFAULTS.user();
    for n in 0..2_000 {
        let rule = format!("%R~{}{n}:*", "long:".repeat(200));
        rules::apply(&mut user, rule.as_bytes(), DEFAULTS).unwrap();
    }
    let long = vec![0xe9; 3 << 20];
    rules::apply(&mut user, &[b"(~", &*long, b")"].concat(), DEFAULTS).unwrap();
    let line = line_of(b"user", &user);
    assert!(line.len() > 4 << 20);
    reads_back(b"user", &user);
    let quoted = [b"(\"~'", &*long, b"\")"].concat();
    let mut user = DEFAULTS.user();
    rules::apply(&mut user, &quoted, DEFAULTS).unwrap();
    reads_back(b"user", &user);
}
