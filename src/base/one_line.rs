//! Text of others for the log: on one line, without control sequences for a terminal.

use std::fmt::{self, Display, Formatter, Write};

/// Displays a text with its control characters escaped (`\n`, `\u{1b}`). Errors of peers, names of
/// clients and log lines of scripts are untrusted text.
pub struct OneLine<T>(pub T);

struct Escaping<'a, 'f>(&'a mut Formatter<'f>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            let plain = part.trim_end_matches(char::is_control);
            self.0.write_str(plain)?;
            for control in part[plain.len()..].chars() {
                write!(self.0, "{}", control.escape_default())?;
            }
        }
        Ok(())
    }
}

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping(formatter), "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        for (text, shown) in [
            ("", ""),
            ("plain, ÄÖ ∞", "plain, ÄÖ ∞"),
            ("a\nb\r\n", r"a\nb\r\n"),
            ("\u{1b}[2J\u{7}\t\0", r"\u{1b}[2J\u{7}\t\u{0}"),
            ("\u{9b}31m", r"\u{9b}31m"),
            (r"back\slash", r"back\slash"),
        ] {
            assert_eq!(OneLine(text).to_string(), shown);
        }
    }
}
