//! For unit tests: waiting for a condition, with a deadline, and files and parts of the manual that
//! are made from tables.

use std::path::Path;
use std::time::{Duration, Instant};

/// With this variable tests write the files, or parts of them, that are made from tables.
const UPDATE: &str = "KEDIS_UPDATE_MANUAL";

/// The longest wait for one condition.
const DEADLINE: Duration = Duration::from_secs(60);
/// Between two checks of a condition.
const CHECK_EVERY: Duration = Duration::from_millis(1);
/// Between two rounds of a loop that is slow on purpose.
const PERIOD: Duration = Duration::from_micros(20);

/// Waits until a condition is true.
///
/// # Panics
/// The condition was not true before the deadline.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "gave up waiting for: {what}");
        std::thread::sleep(CHECK_EVERY);
    }
}

/// Lets other threads run between two rounds of a loop that does its work in small pieces. What a
/// test proves does not depend on how long that takes.
pub fn pace() {
    std::thread::sleep(PERIOD);
}

/// Checks that a file of the package has this content, or, if [`UPDATE`] is set, writes it.
///
/// # Panics
/// The file has other content, or cannot be written.
pub fn up_to_date(path: &str, content: &[u8]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let old = std::fs::read(&file).unwrap_or_default();
    if std::env::var_os(UPDATE).is_some() {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(&file, content).unwrap();
    } else {
        assert!(
            old == content,
            "{path} is out of date: run the tests once with {UPDATE}=1"
        );
    }
}

/// The text with other content between the markers of a part.
fn with_part(text: &str, part: &str, content: &str) -> String {
    let (begin, end) = (
        format!("<!-- {part}:begin -->"),
        format!("<!-- {part}:end -->"),
    );
    let (head, rest) = text.split_once(&begin).expect("the part's begin marker");
    let (_, tail) = rest.split_once(&end).expect("the part's end marker");
    format!("{head}{begin}\n{}\n{end}{tail}", content.trim_end())
}

/// Checks that a part of a page of the manual is `content`, or writes it there.
///
/// # Panics
/// It is not.
pub fn check_manual(page: &str, part: &str, content: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = format!("src/manual/{page}");
    let old = std::fs::read_to_string(root.join(&path)).expect("the page");
    up_to_date(&path, with_part(&old, part, content).as_bytes());
}
