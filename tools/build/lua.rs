//! Compiles Lua 5.1 from the sources of the package lua-src, with patches, and links it
//! instead of mlua's own Lua: mlua's feature `external` allows that.

use cargo_metadata::MetadataCommand;
use diffy::patch_set::{ParseOptions, PatchKind, PatchSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Where the patches are, applied in the order of their names.
const PATCHES: &str = "src/lua/patches";
/// The folder within the package.
const VERSION: &str = "lua-5.1.5";

/// Builds a static library and links it.
pub fn build() {
    println!("cargo:rerun-if-changed={PATCHES}");
    println!("cargo:rerun-if-changed=Cargo.lock");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let sources = out.join(VERSION);
    copy(&packaged_sources(), &sources);
    for patch in files(Path::new(PATCHES), "patch") {
        apply(&patch, &sources);
    }
    // The whole archive, since mlua's objects may follow it on the linker's command line.
    cc::Build::new()
        .include(&sources)
        .define("LUA_USE_POSIX", None)
        .flag_if_supported("-fno-common")
        // Optimised, whatever the profile of the package.
        .opt_level(3)
        .warnings(false)
        .files(files(&sources, "c"))
        .link_lib_modifier("+whole-archive")
        .compile("kedis_lua");
}

/// The folder of the unpacked package, from Cargo's metadata.
fn packaged_sources() -> PathBuf {
    let platform = env::var("HOST").expect("Cargo sets HOST");
    let metadata = MetadataCommand::new()
        .other_options(["--filter-platform".to_owned(), platform])
        .exec()
        .unwrap_or_else(|error| panic!("where the sources of Lua are: {error}"));
    let mut packages = metadata.packages.iter();
    let package = packages
        .find(|package| package.name.as_str() == "lua-src")
        .expect("lua-src is a build dependency");
    let folder = package
        .manifest_path
        .parent()
        .expect("a manifest is in a folder");
    folder.join(VERSION).into_std_path_buf()
}

/// The files in a folder with this extension, sorted.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap_or_else(|error| panic!("{to:?}: {error}"));
    for source in [files(from, "c"), files(from, "h")].concat() {
        let name = source.file_name().expect("a file has a name");
        // Files in the registry may be read-only, but the copies are patched.
        let text = fs::read(&source).unwrap_or_else(|error| panic!("{source:?}: {error}"));
        fs::write(to.join(name), text).unwrap_or_else(|error| panic!("{to:?}: {error}"));
    }
}

fn apply(patch: &Path, sources: &Path) {
    let fail = |what: &dyn std::fmt::Display| -> ! { panic!("{}: {what}", patch.display()) };
    let text = fs::read_to_string(patch).unwrap_or_else(|error| fail(&error));
    for changes in PatchSet::parse(&text, ParseOptions::gitdiff()) {
        let changes = changes.unwrap_or_else(|error| fail(&error));
        let operation = changes.operation().strip_prefix(1);
        let diffy::patch_set::FileOperation::Modify { modified, .. } = &operation else {
            fail(&"it may only change files");
        };
        let path = sources.join(&**modified);
        let PatchKind::Text(hunks) = changes.patch() else {
            fail(&"it is not text");
        };
        let before = fs::read_to_string(&path).unwrap_or_else(|error| fail(&error));
        let after = diffy::apply(&before, hunks).unwrap_or_else(|error| fail(&error));
        fs::write(&path, after).unwrap_or_else(|error| fail(&error));
    }
}
