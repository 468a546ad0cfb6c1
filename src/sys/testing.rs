//! Waiting in unit tests: for a condition, with a deadline. And the generated parts of the manual.

use std::time::{Duration, Instant};

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

/// With this variable tests write the generated parts into the manual.
const UPDATE: &str = "KEDIS_UPDATE_MANUAL";

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
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("src/manual").join(page);
    let old = std::fs::read_to_string(&path).expect("the page");
    let new = with_part(&old, part, content);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &new).expect("to write the page");
    } else {
        assert!(
            old == new,
            "{} is out of date: run the tests once with {UPDATE}=1",
            path.display()
        );
    }
}
