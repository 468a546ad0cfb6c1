//! The source files of the package, parsed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// One file.
pub struct Source {
    /// Relative to the package.
    pub path: String,
    /// Its module path, from the root of its crate: `["storage", "txn"]`.
    pub module: Vec<String>,
    /// Its length in lines.
    pub lines: usize,
    /// Whether all of it is test code.
    pub is_test: bool,
    /// Its syntax tree, tests included.
    pub file: syn::File,
    /// The same without items for tests.
    pub product: syn::File,
}

/// All files under these directories of the package.
pub fn sources(dirs: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in dirs {
        collect(&root.join(dir), "rs", &mut files);
    }
    files.sort();
    files.iter().map(|file| read(root, file)).collect()
}

/// The contents of all files with this extension under a directory of the package.
pub fn texts(dir: &str, extension: &str) -> Vec<String> {
    let mut files = Vec::new();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    collect(&dir, extension, &mut files);
    let texts = files.iter().map(fs::read_to_string);
    texts.map(|text| text.expect("a readable file")).collect()
}

fn collect(dir: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            collect(&path, extension, files);
        } else if path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
}

fn read(root: &Path, file: &Path) -> Source {
    let text = fs::read_to_string(file).expect("a readable file");
    let path = file.strip_prefix(root).expect("below the package");
    let path = path.to_string_lossy().into_owned();
    let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut module: Vec<String> = path
        .trim_end_matches(".rs")
        .split('/')
        .skip(1)
        .map(str::to_owned)
        .collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    let is_test_name = |part: &String| part == "tests" || part == "testing";
    let is_test = path.starts_with("tests/")
        || module.iter().any(is_test_name)
        || module.last().is_some_and(|last| last.ends_with("_tests"));
    let product = syn::File {
        items: match is_test {
            true => Vec::new(),
            false => without_tests(&file.items),
        },
        ..file.clone()
    };
    Source {
        lines: text.lines().count(),
        path,
        module,
        is_test,
        file,
        product,
    }
}

fn without_tests(items: &[syn::Item]) -> Vec<syn::Item> {
    let kept = items.iter().filter(|item| !is_for_tests(attributes(item)));
    let kept = kept.cloned().map(|mut item| {
        match &mut item {
            syn::Item::Mod(module) => {
                if let Some((_, items)) = &mut module.content {
                    *items = without_tests(items);
                }
            }
            syn::Item::Impl(block) => block.items.retain(|item| match item {
                syn::ImplItem::Fn(function) => !is_for_tests(&function.attrs),
                _ => true,
            }),
            _ => {}
        }
        item
    });
    kept.collect()
}

/// Whether an item is only for tests.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Ident>()
                    .is_ok_and(|what| what == "test")
    })
}

/// The attributes of an item.
pub fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::TraitAlias(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// A path as it is written, and the name that a `use` gives to its target.
pub struct Named {
    pub path: Vec<String>,
    pub alias: String,
    /// Whether a `pub use` exports it.
    pub is_public: bool,
}

/// All paths that a file names.
pub fn named(file: &syn::File) -> Vec<Named> {
    let mut names = Names::default();
    names.visit_file(file);
    names.found
}

#[derive(Default)]
struct Names {
    found: Vec<Named>,
}

impl Names {
    fn tree(&mut self, tree: &syn::UseTree, before: &[String], is_public: bool) {
        let with = |name: &syn::Ident| {
            let mut path = before.to_vec();
            path.push(name.to_string());
            path
        };
        let (path, alias) = match tree {
            syn::UseTree::Path(path) => {
                return self.tree(&path.tree, &with(&path.ident), is_public);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(tree, before, is_public);
                }
                return;
            }
            syn::UseTree::Name(name) => (with(&name.ident), name.ident.to_string()),
            syn::UseTree::Rename(name) => (with(&name.ident), name.rename.to_string()),
            syn::UseTree::Glob(_) => (before.to_vec(), String::new()),
        };
        let is_self = path.len() > 1 && path.last().is_some_and(|last| last == "self");
        let (path, alias) = match (is_self, alias.as_str()) {
            (true, "self") => (before.to_vec(), before.last().cloned().unwrap_or_default()),
            (true, _) => (before.to_vec(), alias),
            (false, _) => (path, alias),
        };
        self.found.push(Named {
            path,
            alias,
            is_public,
        });
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, &[], is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if parts.len() > 1 {
            let alias = parts.last().cloned().unwrap_or_default();
            self.found.push(Named {
                path: parts,
                alias,
                is_public: false,
            });
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, macro_: &'ast syn::Macro) {
        // Macros whose arguments are expressions, such as `assert!` and `log::info!`.
        let parse = syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        if let Ok(arguments) = macro_.parse_body_with(parse) {
            for argument in &arguments {
                self.visit_expr(argument);
            }
        }
        self.visit_path(&macro_.path);
    }
}

/// The modules of the crate under `src`, and their dependencies.
pub struct Graph {
    /// For each module, the modules that it names.
    pub arrows: BTreeMap<Vec<String>, Vec<Vec<String>>>,
    /// All modules that are files, and all folders above them.
    pub modules: std::collections::BTreeSet<Vec<String>>,
    exports: BTreeMap<(Vec<String>, String), Vec<String>>,
}

impl Graph {
    /// Builds the graph from the files without their tests.
    pub fn of(sources: &[Source]) -> Graph {
        let sources: Vec<&Source> = sources.iter().filter(|source| !source.is_test).collect();
        let mut graph = Graph {
            arrows: BTreeMap::new(),
            modules: Default::default(),
            exports: BTreeMap::new(),
        };
        for source in &sources {
            for len in 1..=source.module.len() {
                graph.modules.insert(source.module[..len].to_vec());
            }
        }
        let names: Vec<Vec<Named>> = sources.iter().map(|s| named(&s.product)).collect();
        for (source, names) in sources.iter().zip(&names) {
            for name in names.iter().filter(|name| name.is_public) {
                if let Some(path) = graph.absolute(&name.path, &source.module) {
                    let export = (source.module.clone(), name.alias.clone());
                    graph.exports.insert(export, path);
                }
            }
        }
        for (source, names) in sources.iter().zip(&names) {
            let mut to: Vec<Vec<String>> = names
                .iter()
                .filter_map(|name| graph.absolute(&name.path, &source.module))
                .filter_map(|path| graph.module_of(&path, 0))
                .filter(|module| *module != source.module)
                .collect();
            to.sort();
            to.dedup();
            graph.arrows.insert(source.module.clone(), to);
        }
        graph
    }

    /// The path from the root of the crate; `None` if it is outside of the crate.
    fn absolute(&self, path: &[String], module: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let supers = path.iter().take_while(|part| *part == "super").count();
                let above = module.len().checked_sub(supers)?;
                Some([&module[..above], &path[supers..]].concat())
            }
            _ => {
                let below = [module, path].concat();
                let is_child = self.modules.contains(&below[..=module.len()]);
                is_child.then_some(below)
            }
        }
    }

    /// The module of a path's target, with re-exports resolved.
    fn module_of(&self, path: &[String], depth: usize) -> Option<Vec<String>> {
        for len in (1..=path.len()).rev() {
            if !self.modules.contains(&path[..len]) {
                continue;
            }
            let (module, rest) = path.split_at(len);
            if let Some((name, rest)) = rest.split_first()
                && let Some(export) = self.exports.get(&(module.to_vec(), name.clone()))
                && depth < 8
            {
                return self.module_of(&[export.as_slice(), rest].concat(), depth + 1);
            }
            return Some(module.to_vec());
        }
        None
    }
}
