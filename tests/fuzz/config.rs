//! Configuration files.

use kedis::state::config::{Config, split};
use std::path::Path;

/// A text is refused with an error, or gives a configuration that CONFIG REWRITE can write
/// and that is equal when read again.
pub fn check(data: &[u8]) {
    // An include would read files of this machine.
    if memchr::memmem::find(&data.to_ascii_lowercase(), b"include").is_some() {
        return;
    }
    let name = Path::new("fuzz.conf");
    let config = match Config::from_text(data, name) {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let values = config.get(&["*"]);
    let text = config.rewritten(data).expect("a text without includes");
    let again = Config::from_text(&text, name);
    let shown = || String::from_utf8_lossy(&text).into_owned();
    let again =
        again.unwrap_or_else(|error| panic!("{error}, in what CONFIG REWRITE wrote: {}", shown()));
    assert_eq!(again.get(&["*"]), values, "{}", shown());
    assert_eq!(again.rewritten(&text).expect("a text"), text);
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(words) = split(line) {
            let bytes: usize = words.iter().map(Vec::len).sum();
            assert!(bytes <= line.len(), "more than the line has");
        }
    }
}
