//! Glob patterns as KEYS, SCAN, PSUBSCRIBE and ACL rules use them: `*`, `?`, `[a-z]`, `[^a-z]` and
//! backslash escapes, over bytes. The empty text matches only the empty pattern; commands for which
//! `*` matches it, too, handle that themselves.
//!
//! Each run between two stars of a pattern matches a fixed number of bytes. So each is searched for
//! once, after the first match of the run before, and the last one is compared with the end of the
//! text only: time is linear in pattern and text whatever the number of stars. (Redis gives up on a
//! pattern with more than 1000 of them.) The exception is a long run with `?` or classes between
//! two stars: its worst case is the product of the lengths of the run and the text.

use memchr::memmem;

/// A run of at least so many bytes without `?` and classes is searched for with an algorithm in
/// linear time, which costs some preparation.
const LONG_LITERAL: usize = 32;

/// Whether the whole text matches the pattern; `nocase` folds ASCII letters.
pub fn matches(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    if text.is_empty() {
        // As in Redis, stars do not match the empty text.
        return pattern.is_empty();
    }
    let (mut pattern, mut text) = (pattern, text);
    // Each byte before the first star has a fixed place.
    while !matches!(pattern, [b'*', ..]) {
        let Some((byte, later)) = text.split_first() else {
            return pattern.is_empty();
        };
        match match_one(pattern, *byte, nocase) {
            Some((true, rest)) => (pattern, text) = (rest, later),
            _ => return false,
        }
    }
    loop {
        while let [b'*', rest @ ..] = pattern {
            pattern = rest;
        }
        if pattern.is_empty() {
            return true;
        }
        let Some(run) = Run::first_of(pattern, text.len()) else {
            return false;
        };
        if run.rest.is_empty() {
            return run.is_at(text, text.len() - run.width, nocase);
        }
        let Some(at) = run.find(text, nocase) else {
            return false;
        };
        text = &text[at + run.width..];
        pattern = run.rest;
    }
}

/// The elements of a pattern up to the next star.
struct Run<'a> {
    elements: &'a [u8],
    /// The number of bytes that they match.
    width: usize,
    /// Whether they are only bytes and escapes.
    literal: bool,
    /// What follows: a star, or nothing.
    rest: &'a [u8],
}

impl<'a> Run<'a> {
    /// The run at the beginning of a pattern, unless it is wider than `widest`.
    fn first_of(pattern: &'a [u8], widest: usize) -> Option<Run<'a>> {
        let (mut rest, mut width, mut literal) = (pattern, 0, true);
        while !matches!(rest, [] | [b'*', ..]) {
            if width == widest {
                return None;
            }
            literal &= !matches!(rest, [b'?' | b'[', ..]);
            rest = match_one(rest, 0, false)?.1;
            width += 1;
        }
        Some(Run {
            elements: &pattern[..pattern.len() - rest.len()],
            width,
            literal,
            rest,
        })
    }

    /// The first place where the run matches.
    fn find(&self, text: &[u8], nocase: bool) -> Option<usize> {
        if self.literal && !nocase && self.width >= LONG_LITERAL {
            return memmem::find(text, &literal_prefix(self.elements).0);
        }
        (0..=text.len() - self.width).find(|at| self.is_at(text, *at, nocase))
    }

    /// Whether the run matches at `at`.
    fn is_at(&self, text: &[u8], at: usize, nocase: bool) -> bool {
        let mut elements = self.elements;
        text[at..at + self.width].iter().all(|byte| {
            let one = match_one(elements, *byte, nocase);
            elements = one.map_or(elements, |(_, rest)| rest);
            one.is_some_and(|(matched, _)| matched)
        })
    }
}

/// Matches one byte against the pattern's first element, which is no star. Returns whether it
/// matches, and the rest of the pattern. `None` if there is no element.
fn match_one(pattern: &[u8], byte: u8, nocase: bool) -> Option<(bool, &[u8])> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some((true, rest)),
        [b'[', rest @ ..] => Some(match_class(rest, byte, nocase)),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            Some((fold(*literal, nocase) == fold(byte, nocase), rest))
        }
    }
}

/// Matches one byte against a class, given from after its bracket. A class that is not closed ends
/// with the pattern. As in Redis, an escaped byte of a class is never folded, and the ends of a
/// range are sorted before they are folded.
fn match_class(class: &[u8], byte: u8, nocase: bool) -> (bool, &[u8]) {
    let (negated, mut class) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let folded = fold(byte, nocase);
    let mut found = false;
    let rest = loop {
        class = match class {
            [] => break class,
            [b']', rest @ ..] => break rest,
            [b'\\', literal, rest @ ..] => {
                found |= *literal == byte;
                rest
            }
            [first, b'-', last, rest @ ..] => {
                let (first, last) = (first.min(last), first.max(last));
                found |= (fold(*first, nocase)..=fold(*last, nocase)).contains(&folded);
                rest
            }
            [literal, rest @ ..] => {
                found |= fold(*literal, nocase) == folded;
                rest
            }
        };
    };
    (found != negated, rest)
}

fn fold(byte: u8, nocase: bool) -> u8 {
    if nocase {
        byte.to_ascii_lowercase()
    } else {
        byte
    }
}

/// The bytes with which every matching text begins (escapes resolved), and whether they are the
/// whole pattern, so that nothing else matches. Case-sensitive.
pub fn literal_prefix(pattern: &[u8]) -> (Vec<u8>, bool) {
    let mut prefix = Vec::new();
    let mut pattern = pattern;
    loop {
        pattern = match pattern {
            [] => return (prefix, true),
            [b'*' | b'?' | b'[', ..] => return (prefix, false),
            [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
                prefix.push(*literal);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", false),
            ("**", "", false),
            ("*", "abc", true),
            ("a*", "a", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbb", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*ab", "aab", true),
            ("*abc", "ababc", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("?", "", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("[a-]", "b", false),
            ("[]", "a", false),
            ("[^]", "a", true),
            ("[\\]]", "]", true),
            ("[\\-a]", "-", true),
            ("[abc", "b", true),
            ("[", "[", false),
            ("[a-", "-", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("\\a", "a", true),
            ("a\0b", "a\0b", true),
            ("foo*[0-9]", "foobar7", true),
            ("*?", "", false),
            ("*?", "x", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes(), false),
                expected,
                "{pattern:?} on {text:?}"
            );
        }
        assert!(matches(b"HeL*[X-Z]", b"hello y", true));
        assert!(matches(b"[A-C]*[^D-F]", b"bxG", true));
        assert!(!matches(b"[\\G]et", b"get", true));
        assert!(!matches(b"[Z-_]et", b"get", true));
        assert!(!matches(b"HeL*", b"hello", false));
    }

    /// Without linear time these patterns take minutes or more.
    #[test]
    fn hostile_patterns_end() {
        let long = vec![b'a'; 1_000_000];
        for stars in [b"a*".as_slice(), b"*a", b"*?", b"*[^b]", b"*\\a?"] {
            let mut pattern = stars.repeat(100_000 / stars.len());
            assert!(matches(&pattern, &long, false), "{stars:?}");
            pattern.push(b'b');
            assert!(!matches(&pattern, &long, false), "{stars:?}");
        }
        let half = vec![b'a'; 500_000];
        assert!(!matches(
            &[b"*", half.as_slice(), b"b"].concat(),
            &long,
            false
        ));
        assert!(!matches(
            &[b"*", half.as_slice(), b"b*"].concat(),
            &long,
            false
        ));
        assert!(matches(
            &[b"*", half.as_slice(), b"*"].concat(),
            &long,
            false
        ));
        assert!(!matches(&b"*?".repeat(1_000_001), &long, false));
        assert!(matches(&b"*".repeat(100_000), &long, false));
    }

    #[test]
    fn prefixes() {
        for (pattern, prefix, literal) in [
            ("", "", true),
            ("abc", "abc", true),
            ("abc*", "abc", false),
            ("a\\*b?", "a*b", false),
            ("a\\[", "a[", true),
            ("a\\", "a\\", true),
            ("[a]", "", false),
        ] {
            assert_eq!(
                literal_prefix(pattern.as_bytes()),
                (prefix.as_bytes().to_vec(), literal),
                "{pattern:?}"
            );
        }
    }

    /// The definition, by backtracking.
    fn plain(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|skip| plain(rest, &text[skip..])),
            _ => text.split_first().is_some_and(|(byte, tail)| {
                match_one(pattern, *byte, false)
                    .is_some_and(|(matched, rest)| matched && plain(rest, tail))
            }),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", text in "[ab\\[\\]^-]{0,8}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let expected = match text {
                [] => pattern.is_empty(),
                _ => plain(pattern, text),
            };
            prop_assert_eq!(matches(pattern, text, false), expected);
        }

        #[test]
        fn long_runs_agree_with_the_definition(
            start in "[ab*?]{0,3}",
            len in LONG_LITERAL - 2..LONG_LITERAL + 2,
            end in "[ab*?]{0,3}",
            text in "b{0,3}(a{30,36}[ab]){1,2}",
        ) {
            let pattern = format!("{start}{}{end}", "a".repeat(len));
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text, false), plain(pattern, text));
        }

        #[test]
        fn a_match_has_the_prefix(pattern in "[ab*?\\\\]{0,6}", text in "[ab]{0,6}") {
            let (prefix, literal) = literal_prefix(pattern.as_bytes());
            if matches(pattern.as_bytes(), text.as_bytes(), false) {
                prop_assert!(text.as_bytes().starts_with(&prefix));
                prop_assert!(!literal || text.as_bytes() == prefix);
            }
        }

        #[test]
        fn any_bytes(pattern: Vec<u8>, text: Vec<u8>, nocase: bool) {
            matches(&pattern, &text, nocase);
            literal_prefix(&pattern);
        }
    }
}
