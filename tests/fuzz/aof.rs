//! Append-only files, and the manifests that name them.

use crate::instance::{Instance, with_kept};
use kedis::jobs;
use kedis::rdb::append_only;
use std::cell::RefCell;
use std::fs;

thread_local! {
    static INSTANCE: RefCell<Option<(Instance, u32)>> = const { RefCell::new(None) };
}

/// A log is loaded completely or leaves no keys; a manifest names files or is refused.
pub fn check(data: &[u8]) {
    load(data);
    with_kept(&INSTANCE, Instance::new, |instance| {
        let manifest = instance.dir().join("aof.manifest");
        fs::write(&manifest, data).expect("a file in the temporary directory");
        if let Ok(files) = append_only::files(&manifest) {
            assert!(!files.is_empty(), "a manifest without files");
            // Nothing outside the directory of the manifest is opened.
            let inside = |file: &&std::path::PathBuf| file.parent() != Some(instance.dir());
            let outside: Vec<_> = files.iter().filter(inside).collect();
            assert!(outside.is_empty(), "{outside:?}");
        }
    });
}

/// Loads a file like `--load-rdb`: completely, or no keys are left.
pub fn load(data: &[u8]) {
    with_kept(&INSTANCE, Instance::new, |instance| {
        let file = instance.dir().join("file");
        fs::write(&file, data).expect("a file in the temporary directory");
        let loaded = jobs::load(&instance.server, &file);
        instance.check();
        let engine = &instance.server.engine;
        assert!(!engine.is_load_unfinished().expect("a readable database"));
        match loaded {
            Ok(()) => instance.clear(),
            Err(error) => {
                assert_eq!(
                    instance.keys(),
                    0,
                    "keys of a file that was refused: {error}"
                );
                assert!(!error.to_string().is_empty());
            }
        }
    });
}
