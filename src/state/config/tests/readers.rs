//! Code must read every parameter that is not marked as without effect. INFO counts as a
//! reader: Sentinel reads `replica-priority` there.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::*;

/// The source of the rows, with the names of the fields.
const ROWS: &str = include_str!("../params.rs");

/// The field of each row, with the parameter's name.
fn fields() -> Vec<(&'static str, &'static str)> {
    ROWS.lines()
        .filter_map(|line| {
            let (field, rest) = line.trim().split_once(": ")?;
            let (_, names) = rest.split_once(" => \"")?;
            Some((field, names.split('"').next()?))
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match path.is_dir() {
            true if name != "tests" => collect(&path, files),
            true => {}
            false if name.ends_with(".rs") && !name.ends_with("tests.rs") => files.push(path),
            false => {}
        }
    }
}

/// Code without comments and tests, in one line, independent of its layout.
fn condensed(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next();
    code.unwrap_or_default()
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default().trim())
        .map(|line| match line.starts_with('.') {
            true => line.to_owned(),
            false => format!(" {line}"),
        })
        .collect()
}

/// All code outside the configuration, and the accessors of `Config`.
fn readers() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    let own = root.join("state/config");
    files.retain(|path| !path.starts_with(&own));
    let mut code: String = files
        .iter()
        .map(|path| condensed(&fs::read_to_string(path).unwrap()))
        .collect();
    // `normalise` does not count as a reader; it is the last method.
    let (accessors, _) = include_str!("../../config.rs")
        .split_once("fn normalise")
        .unwrap();
    code += &condensed(accessors).replace("self.", "config.");
    code += &condensed(include_str!("../memory.rs"));
    code += &condensed(include_str!("../storage.rs")).replace("self.", "config.");
    code
}

/// Whether `code` reads a field of a variable that is named like a configuration.
fn is_read(code: &str, field: &str) -> bool {
    let named = |before: &str| {
        let receivers = ["config", "config()", "load()", "new", "old"];
        receivers.iter().any(|name| before.ends_with(name))
    };
    code.match_indices(&format!(".{field}")).any(|(at, found)| {
        let after = code[at + found.len()..].chars().next();
        named(&code[..at]) && !after.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '(')
    })
}

#[test]
fn a_parameter_with_an_effect_is_read_somewhere() {
    let fields = fields();
    assert_eq!(
        fields.len(),
        PARAMS.len(),
        "a row that the test cannot read"
    );
    let code = readers();
    for (field, name) in fields {
        let param = Param::find(name.as_bytes()).unwrap();
        assert!(
            param.has(Flag::Inert) || is_read(&code, field),
            "{name}: no code reads it; mark it as without effect, or give it one"
        );
    }
    assert!(!is_read(&code, "no_such_field"));
}
