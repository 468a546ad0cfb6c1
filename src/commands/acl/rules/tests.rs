use super::*;

const DEFAULTS: Defaults = Defaults {
    all_channels: false,
};

fn made(line: &str) -> Result<Rules, RuleError> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut rules = DEFAULTS.user();
    for rule in join_selectors(&words).expect("balanced parentheses") {
        apply(&mut rules, &rule, DEFAULTS)?;
    }
    Ok(rules)
}

/// Rules, and how they are written back.
#[track_caller]
fn check(line: &str, expected: &str) {
    let rules = made(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let text = String::from_utf8(rules.text()).unwrap();
    assert_eq!(text, expected, "{line}");
    assert_eq!(made(&text).as_ref(), Ok(&rules), "{line} reads back");
}

#[test]
fn rules_are_written_back() {
    const OFF: &str = "off sanitize-payload resetchannels";
    const HASH: &str = "#9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    check("", &format!("{OFF} -@all"));
    check("ON", "on sanitize-payload resetchannels -@all");
    check(
        "nopass skip-sanitize-payload",
        "off nopass skip-sanitize-payload resetchannels -@all",
    );
    let with_password = format!("off sanitize-payload {HASH} resetchannels -@all");
    check("nopass >test >test", &with_password);
    check(&format!("{HASH} >other <other"), &with_password);
    check(&format!(">test !{}", &HASH[1..]), &format!("{OFF} -@all"));
    check(">test resetpass", &format!("{OFF} -@all"));
    check(
        "~a %R~b %w~c %rW~d %W~b",
        "off sanitize-payload ~a ~b %W~c ~d resetchannels -@all",
    );
    check("~a ALLKEYS", "off sanitize-payload ~* resetchannels -@all");
    check("~* resetkeys", &format!("{OFF} -@all"));
    check(
        "~* resetkeys %R~*",
        "off sanitize-payload %R~* resetchannels -@all",
    );
    // A pattern of everything is no flag: others may stand behind it.
    check(
        "%RW~* %R~b",
        "off sanitize-payload %RW~* %R~b resetchannels -@all",
    );
    check(
        "%R~* %W~* ~b",
        "off sanitize-payload %RW~* ~b resetchannels -@all",
    );
    check(
        "%W~x %RW~*",
        "off sanitize-payload %W~x %RW~* resetchannels -@all",
    );
    check(
        "(%rw~* %W~x +get)",
        &format!("{OFF} -@all (%RW~* %W~x resetchannels -@all +get)"),
    );
    check("&a &b &a", "off sanitize-payload resetchannels &a &b -@all");
    check("&a allchannels", "off sanitize-payload &* -@all");
    check("allchannels resetchannels", &format!("{OFF} -@all"));
    check("db=3,1,1 alldbs", &format!("{OFF} -@all"));
    check("db=3,1,1", &format!("{OFF} db=1,3 -@all"));
    check("db=3 resetdbs", &format!("{OFF} resetdbs -@all"));
    check("+GET -get +get", &format!("{OFF} -@all +get"));
    check("+@read -get +@Read", &format!("{OFF} -@all -get +@read"));
    check(
        "+config|get +config|set -config|set",
        &format!("{OFF} -@all +config|get -config|set"),
    );
    check("+config|get +config", &format!("{OFF} -@all +config"));
    check("+config|get -config", &format!("{OFF} -@all -config"));
    check(
        "+select|0 +select|1",
        &format!("{OFF} -@all +select|0 +select|1"),
    );
    check("+select|0 +select", &format!("{OFF} -@all +select"));
    check("allcommands -get", &format!("{OFF} +@all -get"));
    check("+get nocommands", &format!("{OFF} -@all"));
    check(
        "(~a +get) ( %R~b &c -@all +@write )",
        &format!("{OFF} -@all (~a resetchannels -@all +get) (%R~b resetchannels &c -@all +@write)"),
    );
    check(
        r#"("~a\"b" +get)"#,
        &format!(r#"{OFF} -@all ("~a\"b" resetchannels -@all +get)"#),
    );
    check(
        "~a\"b ~c)",
        r#"off sanitize-payload ~a"b ~c) resetchannels -@all"#,
    );
    check("(~a +get) clearselectors", &format!("{OFF} -@all"));
    check(
        "on nopass ~a &b db=1 +get (~c) reset",
        &format!("{OFF} -@all"),
    );
}

#[test]
fn errors_show_rules_without_passwords() {
    for (rule, expected) in [
        (">pw", ">(redacted)"),
        ("<pw", "<(redacted)"),
        ("#00", "#(redacted)"),
        ("!00", "!(redacted)"),
        ("(+get >pw)", "(redacted)"),
        ("(~x <pw", "(redacted)"),
        (r#"("\x3epw")"#, "(redacted)"),
        ("<", "<"),
        ("+nosuch", "+nosuch"),
        ("~a>b", "~a>b"),
        ("%~", "%~"),
        ("(+nosuch ~x)", "(+nosuch ~x)"),
        ("nosuch", "nosuch"),
    ] {
        assert_eq!(shown(rule.as_bytes()), expected.as_bytes(), "{rule}");
    }
    for (name, expected) in [
        ("a\tb", "a\tb"),
        ("a\t>pw", "a ..."),
        (">pw\tb", ">(redacted) ..."),
    ] {
        assert_eq!(shown_name(name.as_bytes()), expected.as_bytes(), "{name}");
    }
}

#[test]
fn what_is_no_rule_is_refused() {
    use RuleError::*;
    for (line, error) in [
        ("nosuch", Syntax),
        ("+", Unknown),
        ("-", Unknown),
        ("+nosuch", Unknown),
        ("-nosuch", Unknown),
        ("+@nosuch", Unknown),
        ("-@", Unknown),
        ("+config|nosuch", Unknown),
        ("+nosuch|get", Unknown),
        ("+config|get|x", FirstArgOfSubcommand),
        ("+get|", Syntax),
        ("+get|\ta", Syntax),
        ("+config|", Syntax),
        ("-get|x", Unknown),
        ("%~a", Syntax),
        ("%", Syntax),
        ("%RR~a", Syntax),
        ("%RX~a", Syntax),
        ("~a\tb", Syntax),
        ("&a\tb", Syntax),
        ("~* ~a", AllKeys),
        ("allkeys %R~a", AllKeys),
        ("&* &a", AllChannels),
        ("<p", NoSuchPassword),
        ("#00", BadHash),
        ("!00", BadHash),
        ("db=", Syntax),
        ("db=1,", Syntax),
        ("db=,1", Syntax),
        ("db=1,,2", Syntax),
        ("db=a", Syntax),
        ("db=-1", DbOutOfRange),
        ("db=2147483648", DbOutOfRange),
        ("db=99999999999999999999", DbOutOfRange),
        ("(on)", Syntax),
        ("(>p)", Syntax),
        ("(~a (~b))", Syntax),
        ("(\"~a)", Syntax),
    ] {
        assert_eq!(made(line), Err(error), "{line}");
    }
    assert_eq!(
        join_selectors(&["+get", "(~a", "+set"]),
        Err(b"(~a".to_vec())
    );
}

/// Advisories were about patterns that take exponential time, and malformed selectors.
#[test]
fn hostile_patterns_cost_little() {
    let stars = "*?".repeat(100_000);
    let rules = made(&format!("~{stars} &{stars} (~{stars})")).unwrap();
    let began = std::time::Instant::now();
    let key = vec![b'a'; 1000];
    assert!(!rules.root.allows_key(&key, Access::READ));
    assert!(!rules.allows_channel(&key, false));
    assert!(began.elapsed() < std::time::Duration::from_secs(5));
    for line in ["(", ")", "()", "( )", "((", "))", "(~", "%R", "~", "&"] {
        // Accepted or refused, in words.
        let words: Vec<&str> = line.split(' ').collect();
        if let Ok(joined) = join_selectors(&words) {
            for rule in joined {
                let _ = apply(&mut DEFAULTS.user(), &rule, DEFAULTS);
            }
        }
    }
}

#[test]
fn categories_and_commands_set_the_same_bits() {
    let allows = |line: &str, name: &str| {
        let found = find(name.as_bytes()).unwrap();
        made(line).unwrap().root.allows_command(found.index, &[])
    };
    assert!(allows("+@all", "get") && allows("+@all", "config|get"));
    assert!(!allows("+@all -config", "config|get"));
    assert!(allows("-@all +config|get", "config|get"));
    assert!(!allows("-@all +config|get", "config|set"));
    assert!(allows("+@string", "get") && !allows("+@string", "hget"));
    assert!(!allows("+@all -@dangerous", "keys"));
    assert!(!allows("+@all -@admin", "config|get"));
    assert!(allows("+@slow -@admin +acl|whoami", "acl|whoami"));
    let select = find(b"select").unwrap().index;
    let rules = made("+select|0").unwrap();
    assert!(rules.root.allows_command(select, &[b"SELECT", b"0"]));
    assert!(!rules.root.allows_command(select, &[b"SELECT", b"1"]));
    assert!(!rules.root.allows_command(select, &[b"SELECT"]));
}
