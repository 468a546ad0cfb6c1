//! Rules that the compiler does not check: dependencies between modules, use of RocksDB, places
//! of `unsafe`, length of files and functions, and what tests must not do.

mod circles;
mod names;
mod source;
mod visibility;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use source::{Graph, Source, named, sources};
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Each module under `src`, and the modules that it may name.
const LAYERS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("sys", &["base"]),
    ("tls", &["sys"]),
    ("manual", &[]),
    ("resp", &["base"]),
    ("lua", &["resp", "base"]),
    ("encoding", &["base"]),
    ("rdb", &["encoding", "base"]),
    ("storage", &["resp", "encoding", "base", "sys"]),
    ("types", &["storage", "rdb", "encoding", "base"]),
    (
        "state",
        &["storage", "encoding", "lua", "resp", "base", "sys", "tls"],
    ),
    (
        "commands",
        &[
            "types", "state", "lua", "resp", "rdb", "storage", "encoding", "base", "sys", "tls",
        ],
    ),
    (
        "exec",
        &[
            "commands", "types", "state", "lua", "resp", "storage", "encoding", "base", "sys",
        ],
    ),
    (
        "net",
        &[
            "exec", "commands", "state", "resp", "storage", "base", "sys",
        ],
    ),
    (
        "replication",
        &[
            "exec", "commands", "types", "state", "resp", "storage", "encoding", "base", "sys",
            "tls",
        ],
    ),
    (
        "metrics",
        &["commands", "state", "storage", "encoding", "base", "sys"],
    ),
    (
        "migrate",
        &["commands", "rdb", "resp", "encoding", "base", "sys", "tls"],
    ),
    ("top", &["migrate", "resp", "base", "sys"]),
    (
        "jobs",
        &[
            "exec", "commands", "types", "rdb", "state", "resp", "storage", "encoding", "base",
            "sys", "tls",
        ],
    ),
];

/// Files that may use `unsafe`; each file says why.
const UNSAFE: &[&str] = &[
    "src/sys/allocator.rs",
    "src/sys/daemon.rs",
    "src/sys/huge_pages.rs",
    "src/sys/prefetch.rs",
    "src/sys/terminal.rs",
    "src/sys/threads.rs",
    "src/lua.rs",
    "src/lua/patterns.rs",
    "src/lua/raw.rs",
    "src/main.rs",
    "src/storage/engine/disk.rs",
    "src/storage/engine.rs",
    "src/storage/engine/figures.rs",
    "src/storage/engine/heal.rs",
    "src/storage/engine/snapshot.rs",
    "src/storage/memtable.rs",
    "src/storage/memtable/expected.rs",
    "src/storage/memtable/filter.rs",
    "src/storage/memtable/index.rs",
    "src/storage/memtable/index/tests.rs",
    "src/storage/memtable/options.rs",
    "src/storage/memtable/row.rs",
    "src/storage/memtable/segments.rs",
    "src/storage/memtable/segments/tests.rs",
    "src/storage/memtable/testing.rs",
    "src/storage/memtable/tests.rs",
    "src/storage/repair/rows.rs",
    "src/storage/rot.rs",
    "src/storage/engine/wal.rs",
    "src/storage/engine/wal/marks.rs",
    "src/storage/engine/reserve.rs",
    "src/storage/engine/salvage/manifest.rs",
    "src/storage/engine/waiting.rs",
    "tests/memtable/models.rs",
    "tests/memtable/sync.rs",
];

/// Files that implement the waits of tests, which may sleep.
const WAITS: &[&str] = &[
    "src/sys/testing.rs",
    "tests/it/support.rs",
    "tests/it/support/",
];

/// Maximum length of a source file in lines, tests included.
const MAX_LINES: usize = 850;

/// Maximum length of a function in lines; tests may be longer because of tables of cases.
const MAX_FUNCTION_LINES: usize = 80;
const MAX_TEST_LINES: usize = 120;

#[test]
fn arrows_between_modules_go_one_way() {
    let mut wrong = BTreeSet::new();
    for source in sources(&["src"]) {
        let module = source.module[0].as_str();
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            assert!(
                ["lib", "main", "server"].contains(&module),
                "{}: a module without a layer",
                source.path
            );
            continue;
        };
        for name in named(&source.product) {
            let [root, to, ..] = name.path.as_slice() else {
                continue;
            };
            if root == "crate" && to != module && !allowed.contains(&to.as_str()) {
                wrong.insert(format!("{}: {}", source.path, name.path.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_circle_of_files_inside_a_folder() {
    let circles = circles::circles(&Graph::of(&sources(&["src"])));
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn only_storage_names_rocksdb() {
    for source in sources(&["src"]) {
        if source.module[0] == "storage" {
            continue;
        }
        for name in named(&source.file) {
            assert!(
                name.path[0] != "rocksdb",
                "{}: {}",
                source.path,
                name.path.join("::")
            );
        }
    }
}

/// Names that the code of `base` must not use: its functions are pure.
const OPERATING_SYSTEM: &[&str] = &[
    "allocator_api2",
    "crossbeam_channel",
    "getrandom",
    "libc",
    "mio",
    "rustix",
    "sd_notify",
    "std::arch",
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time",
    "tikv_jemalloc_ctl",
    "tikv_jemallocator",
];

#[test]
fn base_asks_nothing_of_the_operating_system() {
    for source in sources(&["src"]) {
        if source.module[0] != "base" {
            continue;
        }
        for name in named(&source.product) {
            let path = name.path.join("::");
            let found = OPERATING_SYSTEM.iter().find(|system| {
                path.strip_prefix(**system)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            });
            assert!(found.is_none(), "{}: {path}", source.path);
        }
    }
}

#[test]
fn unsafe_stands_where_it_is_known_to() {
    let mut listed: BTreeSet<&str> = UNSAFE.iter().copied().collect();
    let mut unlisted = Vec::new();
    for source in sources(&["src", "tools", "tests"]) {
        let mut found = Unsafe::default();
        found.visit_file(&source.file);
        if found.0 && !listed.remove(source.path.as_str()) {
            unlisted.push(source.path);
        }
    }
    assert!(
        unlisted.is_empty(),
        "to be listed, with a reason in the file: {unlisted:?}"
    );
    assert!(listed.is_empty(), "no `unsafe` any more: {listed:?}");
}

/// Whether the tokens contain `unsafe`.
fn says_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "unsafe",
        TokenTree::Group(group) => says_unsafe(group.stream()),
        _ => false,
    })
}

/// Whether a file contains `unsafe` in any form.
#[derive(Default)]
struct Unsafe(bool);

impl<'ast> Visit<'ast> for Unsafe {
    fn visit_expr_unsafe(&mut self, _: &'ast syn::ExprUnsafe) {
        self.0 = true;
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.0 |= signature.unsafety.is_some();
        syn::visit::visit_signature(self, signature);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        self.0 |= block.unsafety.is_some();
        syn::visit::visit_item_impl(self, block);
    }

    fn visit_item_foreign_mod(&mut self, _: &'ast syn::ItemForeignMod) {
        self.0 = true;
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        self.0 |= attribute.path().is_ident("unsafe");
        if let syn::Meta::List(list) = &attribute.meta {
            self.0 |= says_unsafe(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.0 |= says_unsafe(called.tokens.clone());
    }
}

#[test]
fn items_are_as_visible_as_they_are_used() {
    let found = visibility::needlessly_public(&sources(&["src", "tests", "tools"]));
    assert!(
        found.is_empty(),
        "only their folder uses these: make them `pub(super)`, `pub(in ...)` or private: {found:#?}"
    );
}

#[test]
fn files_stay_readable() {
    let sources = sources(&["src", "tests", "tools"]);
    let long = sources.iter().filter(|source| source.lines > MAX_LINES);
    let long: Vec<String> = long.map(|s| format!("{}: {}", s.path, s.lines)).collect();
    assert!(long.is_empty(), "lines to be split by meaning: {long:#?}");
}

#[test]
fn functions_stay_readable() {
    let mut long = Vec::new();
    for source in sources(&["src", "tests", "tools"]) {
        let parts = [
            (&source.file, MAX_TEST_LINES),
            (&source.product, MAX_FUNCTION_LINES),
        ];
        for (part, most) in parts {
            let mut functions = Functions::default();
            functions.visit_file(part);
            let too_long = functions.0.into_iter().filter(|(_, lines)| *lines > most);
            long.extend(too_long.map(|(name, lines)| format!("{}: {name}, {lines}", source.path)));
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// Functions with their lengths in lines.
#[derive(Default)]
struct Functions(Vec<(String, usize)>);

impl Functions {
    fn note(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line - signature.span().start().line + 1;
        self.0.push((signature.ident.to_string(), lines));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }
}

/// No `match` over the type of a value has a wildcard arm, so that the compiler finds all places
/// that a new type must extend.
#[test]
fn every_type_of_value_is_named() {
    let mut wrong = Vec::new();
    for source in sources(&["src"]) {
        let mut matches = Wildcards::default();
        matches.visit_file(&source.product);
        let lines = matches.0.into_iter();
        wrong.extend(lines.map(|line| format!("{}:{line}", source.path)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Lines of matches over the type of a value that have a wildcard arm.
#[derive(Default)]
struct Wildcards(Vec<usize>);

impl<'ast> Visit<'ast> for Wildcards {
    fn visit_expr_match(&mut self, found: &'ast syn::ExprMatch) {
        let names_types = found.arms.iter().any(|arm| {
            let mut names = TypesOfValues::default();
            names.visit_pat(&arm.pat);
            names.0
        });
        let takes_rest = |arm: &syn::Arm| {
            let is_bare = match &arm.pat {
                syn::Pat::Wild(_) => true,
                syn::Pat::Ident(name) => name.subpat.is_none(),
                _ => false,
            };
            arm.guard.is_none() && is_bare
        };
        if names_types && found.arms.iter().any(takes_rest) {
            self.0.push(found.span().start().line);
        }
        syn::visit::visit_expr_match(self, found);
    }
}

/// Whether a pattern names a type of value.
#[derive(Default)]
struct TypesOfValues(bool);

impl<'ast> Visit<'ast> for TypesOfValues {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut parts = path.segments.iter().map(|part| part.ident.to_string());
        let of_type = parts.any(|part| part == "ValueType");
        self.0 |= of_type;
    }
}

/// The codes that error replies begin with.
const ERROR_CODES: &[&str] = &[
    "BUSY",
    "BUSYGROUP",
    "BUSYKEY",
    "ERR",
    "EXECABORT",
    "INPROG",
    "IOERR",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOAUTH",
    "NOGOODSLAVE",
    "NOGROUP",
    "NOPERM",
    "NOPROTO",
    "NOREPLICAS",
    "NOSCRIPT",
    "NOTBUSY",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
    "UNKILLABLE",
    "WRONGPASS",
    "WRONGTYPE",
];

/// An error that several commands give has one text, which stands once: in
/// `src/commands/error.rs` for commands. The migration tools compare what other servers say.
#[test]
fn texts_of_errors_stand_once() {
    let mut texts = Texts::default();
    for source in sources(&["src"]) {
        if source.module[0] == "migrate" {
            continue;
        }
        texts.path = source.path;
        texts.visit_file(&source.product);
    }
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (text, place) in texts.found {
        let (code, rest) = text.split_once(' ').unwrap_or_default();
        // What only gives another error a code is no text.
        let is_code_alone = rest.is_empty() || rest.starts_with('{') && rest.ends_with('}');
        if ERROR_CODES.contains(&code.trim_start_matches('-')) && !is_code_alone {
            places.entry(text).or_default().push(place);
        }
    }
    assert!(places.len() > 200, "the test sees {} texts", places.len());
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

/// All texts, with their places.
#[derive(Default)]
struct Texts {
    path: String,
    found: Vec<(String, String)>,
}

impl Texts {
    fn note(&mut self, text: String, span: proc_macro2::Span) {
        let place = format!("{}:{}", self.path, span.start().line);
        self.found.push((text, place));
    }

    /// The arguments of macros, which are not parsed.
    fn note_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.note_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    let span = literal.span();
                    match syn::Lit::new(literal) {
                        syn::Lit::Str(text) => self.note(text.value(), span),
                        syn::Lit::ByteStr(text) => {
                            let text = String::from_utf8_lossy(&text.value()).into_owned();
                            self.note(text, span);
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Texts {
    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.note(text.value(), text.span());
    }

    fn visit_lit_byte_str(&mut self, text: &'ast syn::LitByteStr) {
        let value = String::from_utf8_lossy(&text.value()).into_owned();
        self.note(value, text.span());
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.note_tokens(called.tokens.clone());
    }

    /// `#[error("…")]`.
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.note_tokens(list.tokens.clone());
        }
    }
}

/// A command that is added, or renamed, is not missing in a table by name.
#[test]
fn nothing_is_known_of_a_command_but_by_its_row() {
    let mut wrong = Vec::new();
    for source in sources(&["src"]) {
        let mut names = names::ByName::new();
        names.visit_file(&source.product);
        let lines = names.lines.into_iter();
        wrong.extend(lines.map(|line| format!("{}:{line}", source.path)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Tests wait for conditions: a fixed sleep is slow if it is too long and makes tests fail at
/// random if it is too short.
#[test]
fn tests_wait_for_conditions() {
    let mut wrong = Vec::new();
    for source in sources(&["src", "tests"]) {
        if WAITS.iter().any(|place| source.path.starts_with(place)) {
            continue;
        }
        let mut sleeps = Sleeps {
            in_tests: source.is_test,
            ..Sleeps::default()
        };
        sleeps.visit_file(&source.file);
        let lines = sleeps.lines.into_iter();
        wrong.extend(lines.map(|line| format!("{}:{line}", source.path)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Lines of tests with a sleep of constant length.
#[derive(Default)]
struct Sleeps {
    in_tests: bool,
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for Sleeps {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let before = self.in_tests;
        self.in_tests |= source::is_for_tests(source::attributes(item));
        syn::visit::visit_item(self, item);
        self.in_tests = before;
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(function) = &*call.func
            && let Some(name) = function.path.segments.last()
            && (name.ident == "sleep" || name.ident == "park_timeout")
            && self.in_tests
            && call.args.iter().any(is_written_time)
        {
            self.lines.push(call.span().start().line);
        }
        syn::visit::visit_expr_call(self, call);
    }
}

/// Whether an expression is a constant duration.
fn is_written_time(time: &syn::Expr) -> bool {
    match time {
        syn::Expr::Call(call) => call.args.iter().all(|arg| matches!(arg, syn::Expr::Lit(_))),
        syn::Expr::Path(_) => true,
        _ => false,
    }
}

/// What is left out of a suite is covered by tests of this package, which the lists name as
/// `path.rs::name`. A test that is renamed fails here, and not only when that suite runs.
#[test]
fn tests_that_lists_name_are_there() {
    let sources = sources(&["src", "tests"]);
    let tests: BTreeSet<String> = sources.iter().flat_map(tests_of).collect();
    let lists = source::texts("tests/tcl", "tsv");
    let named: BTreeSet<&str> = lists
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter(|word| word.contains(".rs::"))
        .collect();
    assert!(named.len() > 50, "only {named:?}");
    let missing: Vec<&&str> = named
        .iter()
        .filter(|name| !tests.contains(**name))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The tests of a file, as `path.rs::name`. Some stand in a macro.
fn tests_of(source: &Source) -> Vec<String> {
    let mut names = Vec::new();
    collect_tests(source.file.to_token_stream(), &mut names);
    let path = &source.path;
    names.iter().map(|name| format!("{path}::{name}")).collect()
}

/// The names of functions with `#[test]`.
fn collect_tests(tokens: TokenStream, names: &mut Vec<String>) {
    let mut tokens = tokens.into_iter();
    let mut is_test = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "fn" => {
                let name = tokens.next().filter(|_| is_test);
                names.extend(name.map(|name| name.to_string()));
                is_test = false;
            }
            TokenTree::Group(group) => {
                let is_bracket = group.delimiter() == Delimiter::Bracket;
                is_test |= is_bracket && group.stream().to_string() == "test";
                collect_tests(group.stream(), names);
            }
            _ => {}
        }
    }
}

/// Modules have one form: `name.rs`, with its submodules in `name/`.
#[test]
fn modules_have_one_form() {
    let mut wrong: Vec<String> = Vec::new();
    for Source { path, .. } in sources(&["src", "tests"]) {
        let is_own_name = !path.ends_with("/mod.rs");
        let is_tests = path.ends_with("_tests.rs");
        if !is_own_name || is_tests {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
