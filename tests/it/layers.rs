//! House rules that a compiler does not know: which module may name which, who
//! may name RocksDB, where `unsafe` stands, how long a file may get.

use std::fs;
use std::path::{Path, PathBuf};

/// Each module under `src`, and the modules that it may name.
const LAYERS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("manual", &[]),
    ("resp", &["base"]),
    ("lua", &["resp", "base"]),
    ("encoding", &["base"]),
    ("rdb", &["encoding", "base"]),
    ("storage", &["resp", "encoding", "base"]),
    ("types", &["storage", "rdb", "encoding", "base"]),
    ("state", &["storage", "encoding", "lua", "resp", "base"]),
    (
        "commands",
        &[
            "types", "state", "lua", "resp", "rdb", "storage", "encoding", "base",
        ],
    ),
    (
        "exec",
        &[
            "commands", "types", "state", "lua", "resp", "storage", "encoding", "base",
        ],
    ),
    (
        "net",
        &["exec", "commands", "state", "resp", "storage", "base"],
    ),
    (
        "replication",
        &[
            "exec", "commands", "types", "state", "resp", "storage", "encoding", "base",
        ],
    ),
    ("migrate", &["commands", "rdb", "resp", "encoding", "base"]),
    (
        "jobs",
        &[
            "exec", "commands", "types", "rdb", "state", "resp", "storage", "encoding", "base",
        ],
    ),
];

/// Files that may use `unsafe`, each for a reason written there.
const UNSAFE: &[&str] = &[
    "src/base/daemon.rs",
    "src/base/huge_pages.rs",
    "src/base/prefetch.rs",
    "src/lua/patterns.rs",
    "src/lua/raw.rs",
    "src/storage/disk.rs",
    "src/storage/engine.rs",
    "src/storage/engine/heal.rs",
    "src/storage/memtable.rs",
    "src/storage/memtable/expected.rs",
    "src/storage/memtable/filter.rs",
    "src/storage/memtable/index.rs",
    "src/storage/memtable/row.rs",
    "src/storage/memtable/segments.rs",
    "src/storage/rot.rs",
    "src/storage/wal.rs",
    "src/storage/wal/marks.rs",
    "src/storage/reserve.rs",
];

/// Lines that a source file may have.
const MAX_LINES: usize = 850;

struct Source {
    /// Relative to the package.
    path: String,
    /// Without comments and without tests.
    code: Vec<String>,
    lines: usize,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root.join("src"), &mut files);
    files.into_iter().map(|file| read(root, &file)).collect()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn read(root: &Path, file: &Path) -> Source {
    let text = fs::read_to_string(file).expect("a readable file");
    let path = file.strip_prefix(root).expect("below the package");
    let path = path.to_string_lossy().into_owned();
    let is_test =
        path.ends_with("tests.rs") || path.contains("/tests/") || path.ends_with("testing.rs");
    let code = text
        .lines()
        .take_while(|line| !is_test && line.trim() != "#[cfg(test)]")
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(str::to_owned)
        .collect();
    Source {
        path,
        code,
        lines: text.lines().count(),
    }
}

/// The modules of this crate that a line names.
fn named(line: &str) -> Vec<&str> {
    line.match_indices("crate::")
        .filter_map(|(at, _)| {
            let rest = &line[at + "crate::".len()..];
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        })
        .collect()
}

#[test]
fn arrows_between_modules_go_one_way() {
    let mut wrong = Vec::new();
    for source in sources() {
        let module = source.path.split('/').nth(1).unwrap_or_default();
        let module = module.trim_end_matches(".rs");
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            assert!(
                ["lib", "main", "server"].contains(&module),
                "{}: a module without a layer",
                source.path
            );
            continue;
        };
        for line in &source.code {
            for name in named(line) {
                if name != module && !allowed.contains(&name) {
                    wrong.push(format!("{}: {}", source.path, line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_storage_names_rocksdb() {
    for source in sources() {
        if source.path.starts_with("src/storage/") {
            continue;
        }
        for line in &source.code {
            assert!(!line.contains("rocksdb::"), "{}: {line}", source.path);
        }
    }
}

#[test]
fn unsafe_stands_where_it_is_known_to() {
    for source in sources() {
        let has = source.code.iter().any(|line| line.contains("unsafe {"));
        assert!(
            !has || UNSAFE.contains(&source.path.as_str()),
            "{}: name it in the list, with a reason in the file",
            source.path
        );
    }
}

#[test]
fn files_stay_readable() {
    for source in sources() {
        assert!(
            source.lines <= MAX_LINES,
            "{}: {} lines; split it by meaning",
            source.path,
            source.lines
        );
    }
}
