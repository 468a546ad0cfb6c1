use super::*;

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
