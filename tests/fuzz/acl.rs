//! Rules of users, and ACL files.

use crate::instance::{Instance, with_kept};
use kedis::commands::acl::file::read_users;
use kedis::resp::Value;
use kedis::state::config::{Config, quote, quote_always};
use std::cell::RefCell;
use std::path::Path;

thread_local! {
    static INSTANCE: RefCell<Option<(Instance, u32)>> = const { RefCell::new(None) };
}

/// Each word is a rule of ACL SETUSER: it is refused in words, or gives a user that ACL LIST and
/// ACL GETUSER describe, in a way that gives the same user again.
pub fn check_rules(data: &[u8]) {
    let rules: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    with_kept(&INSTANCE, Instance::new, |instance| {
        instance.run(&[b"ACL", b"DELUSER", b"u", b"v"]);
        let set = |instance: &mut Instance, name: &[u8], rules: &[&[u8]]| {
            let head: [&[u8]; 3] = [b"ACL", b"SETUSER", name];
            instance.run(&[&head, rules].concat())
        };
        let made = set(instance, b"u", &rules);
        if made.as_error().is_some() {
            return;
        }
        let line = line_of(instance, b"u");
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let again = set(instance, b"v", &words[2..]);
        assert!(again.as_error().is_none(), "{again:?}, of {}", shown(&line));
        same(instance, &line);
        instance.run(&[b"ACL", b"DELUSER", b"v"]);
        let described = described(&instance.must(&[b"ACL", b"GETUSER", b"u"]));
        let words: Vec<&[u8]> = described.split(|byte| *byte == b' ').collect();
        let again = set(instance, b"v", &words);
        assert!(
            again.as_error().is_none(),
            "{again:?}, of {}",
            shown(&described)
        );
        same(instance, &line);
        from_files(instance.dir(), &line);
    });
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

/// The user `v` has the rules of the line of `u`.
fn same(instance: &mut Instance, line: &[u8]) {
    let other = line_of(instance, b"v");
    let rules = |line: &[u8]| shown(line).split_off("user u ".len());
    assert_eq!(rules(&other), rules(line));
}

fn line_of(instance: &mut Instance, name: &[u8]) -> Vec<u8> {
    let Value::Array(lines) = instance.must(&[b"ACL", b"LIST"]) else {
        panic!("a list");
    };
    let begin = [b"user ", name, b" "].concat();
    let mut lines = lines.iter().filter_map(Value::as_bytes);
    let line = lines.find(|line| line.starts_with(&begin));
    line.expect("the user").to_vec()
}

/// The rules that the reply of ACL GETUSER tells.
fn described(reply: &Value) -> Vec<u8> {
    let field = |fields: &[Value], name: &str| {
        let mut names = fields.iter().step_by(2);
        let at = names.position(|field| field.as_bytes() == Some(name.as_bytes()));
        fields[2 * at.expect("a field") + 1].clone()
    };
    let text = |value: &Value| value.as_bytes().expect("a text").to_vec();
    let items = |value: Value| match value {
        Value::Array(items) => items,
        other => panic!("{other:?}"),
    };
    let permissions = |fields: &[Value]| {
        let mut words = vec![
            b"resetkeys".to_vec(),
            b"resetchannels".to_vec(),
            b"resetdbs".to_vec(),
        ];
        for name in ["keys", "channels", "databases", "commands"] {
            let rules = text(&field(fields, name));
            let rules = rules.split(|byte| *byte == b' ').map(<[u8]>::to_vec);
            words.extend(rules.filter(|rule| !rule.is_empty()));
        }
        words
    };
    let Value::Array(fields) = reply else {
        panic!("{reply:?}");
    };
    let mut words: Vec<Vec<u8>> = items(field(fields, "flags")).iter().map(&text).collect();
    for hash in items(field(fields, "passwords")) {
        words.push([b"#", &*text(&hash)].concat());
    }
    words.extend(permissions(fields));
    for selector in items(field(fields, "selectors")) {
        let inner = permissions(&items(selector));
        let inner: Vec<Vec<u8>> = inner.iter().map(|word| quote_always(word)).collect();
        words.push([b"(", &*inner.join(&b' '), b")"].concat());
    }
    words.join(&b' ')
}

/// The line is the same in an ACL file and in a configuration.
fn from_files(dir: &Path, line: &[u8]) {
    let file = dir.join("users.acl");
    std::fs::write(&file, line).expect("a file");
    let of_file = format!("aclfile {}", file.display());
    let words = line.split(|byte| *byte == b' ').map(quote);
    let of_lines = words.collect::<Vec<_>>().join(&b' ');
    let read = |text: &[u8]| {
        let config = Config::from_text(text, Path::new("fuzz.conf"));
        let config = config.unwrap_or_else(|error| panic!("{error}: {}", shown(text)));
        let users = read_users(&config).unwrap_or_else(|error| panic!("{error}: {}", shown(text)));
        users[&b"u"[..]].clone()
    };
    assert_eq!(read(of_file.as_bytes()), read(&of_lines), "{}", shown(line));
}

/// An ACL file is refused in words, or read; what is saved is read as the same users.
pub fn check_file(data: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("users.acl");
    let config = Config::from_text(
        format!("aclfile {}", file.display()).as_bytes(),
        Path::new("fuzz.conf"),
    )
    .expect("a configuration");
    std::fs::write(&file, data).expect("a file");
    let users = match read_users(&config) {
        Ok(users) => users,
        Err(error) => {
            assert!(!error.reason.contains(['\n', '\r']), "{error}");
            return;
        }
    };
    let mut saved = Vec::new();
    for (name, rules) in &users {
        saved.extend([b"user ", &**name, b" ", &*rules.text(), b"\n"].concat());
    }
    std::fs::write(&file, &saved).expect("a file");
    let again = read_users(&config).unwrap_or_else(|error| panic!("{error}: {}", shown(&saved)));
    assert!(again == users, "{}", shown(&saved));
}
