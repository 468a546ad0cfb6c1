//! Patterns of keys and channels.

use crate::base::glob;

bitflags::bitflags! {
    /// What a command does with a key, or a user may do with the keys of a pattern.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Learns data of the value.
        const READ = 1;
        /// Changes the value.
        const WRITE = 2;
    }
}

/// A glob pattern. Those that need no search, which most are, are compared byte by byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<[u8]>,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// No byte has a special meaning.
    Literal,
    /// A star at the end is the only special byte.
    Prefix,
    Glob,
}

impl Pattern {
    /// The pattern of this text.
    pub fn new(text: &[u8]) -> Pattern {
        let is_plain = |bytes: &[u8]| !bytes.iter().any(|byte| b"*?[]\\^".contains(byte));
        let form = match text {
            [prefix @ .., b'*'] if !prefix.is_empty() && is_plain(prefix) => Form::Prefix,
            text if is_plain(text) => Form::Literal,
            _ => Form::Glob,
        };
        Pattern {
            text: text.into(),
            form,
        }
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether it stands for every name.
    pub fn is_any(&self) -> bool {
        *self.text == *b"*"
    }

    /// Whether all names match that begin with this one. Not all patterns of which that is true
    /// are recognised.
    pub fn covers(&self, beginning: &[u8]) -> bool {
        let begins = |prefix: &[u8]| beginning.starts_with(prefix);
        self.is_any()
            || self.form == Form::Prefix
                && self
                    .text
                    .split_last()
                    .is_some_and(|(_, prefix)| begins(prefix))
    }

    /// Whether a name matches.
    pub fn matches(&self, name: &[u8]) -> bool {
        match self.form {
            Form::Literal => *self.text == *name,
            Form::Prefix => {
                let prefix = self.text.split_last().map_or(&[][..], |(_, prefix)| prefix);
                name.starts_with(prefix)
            }
            Form::Glob => glob::matches(&self.text, name, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_forms_match_what_the_glob_does() {
        let names = [
            "", "a", "ab", "abc", "a*", "a*b", "a?", "[a]", "b", "\\a", "^a",
        ];
        let patterns = [
            "", "*", "a", "a*", "ab*", "a**", "*a", "a?", "[a]", "[a]*", "a\\*", "\\a*", "^a",
            "^a*", "a*b*", "**",
        ];
        for pattern in patterns {
            let made = Pattern::new(pattern.as_bytes());
            for name in names {
                let expected = glob::matches(pattern.as_bytes(), name.as_bytes(), false);
                assert_eq!(made.matches(name.as_bytes()), expected, "{pattern} {name}");
            }
        }
        let covers = |pattern: &str, beginning: &str| {
            Pattern::new(pattern.as_bytes()).covers(beginning.as_bytes())
        };
        assert!(covers("*", "") && covers("a*", "a") && covers("a*", "ab"));
        assert!(!covers("ab*", "a") && !covers("a", "a") && !covers("?*", "a"));
        assert!(Pattern::new(b"*").is_any() && !Pattern::new(b"**").is_any());
    }
}
