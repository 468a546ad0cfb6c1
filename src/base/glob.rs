//! Glob patterns as KEYS, SCAN, PSUBSCRIBE and ACL rules use them: `*`, `?`,
//! `[a-z]`, `[^a-z]` and backslash escapes, over bytes. The empty text matches no
//! pattern but the empty one; commands for which `*` is everything see to that.
//!
//! The runs between the stars of a pattern each match a fixed number of bytes. So
//! each is looked for once, behind where the one before was found first, and the
//! last one at the end of the text only: time is linear in pattern and text
//! whatever the number of stars. (Redis gives up on a pattern with more than 1000
//! of them.) What is left is a long run with `?` or classes in it, between two
//! stars: the worst case is the product of the lengths of that run and the text.

use memchr::memmem;

/// Bytes from which on a run without `?` and classes is looked for by an
/// algorithm that takes linear time, which has to be set up first.
const LONG_LITERAL: usize = 32;

/// Whether the whole text matches the pattern; `nocase` folds ASCII letters.
pub fn matches(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    if text.is_empty() {
        // Redis' quirk: nothing is matched by nothing only, not by stars.
        return pattern.is_empty();
    }
    let (mut pattern, mut text) = (pattern, text);
    // Before the first star each byte has its place.
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
    /// How many bytes they match.
    width: usize,
    /// Whether they are bytes and escapes only.
    literal: bool,
    /// What follows: a star, or nothing.
    rest: &'a [u8],
}

impl<'a> Run<'a> {
    /// The run that a pattern begins with, unless it is wider than `widest`.
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

    /// Where it matches first.
    fn find(&self, text: &[u8], nocase: bool) -> Option<usize> {
        if self.literal && !nocase && self.width >= LONG_LITERAL {
            return memmem::find(text, &literal_prefix(self.elements).0);
        }
        (0..=text.len() - self.width).find(|at| self.is_at(text, *at, nocase))
    }

    /// Whether it matches there.
    fn is_at(&self, text: &[u8], at: usize, nocase: bool) -> bool {
        let mut elements = self.elements;
        text[at..at + self.width].iter().all(|byte| {
            let one = match_one(elements, *byte, nocase);
            elements = one.map_or(elements, |(_, rest)| rest);
            one.is_some_and(|(matched, _)| matched)
        })
    }
}

/// Matches one byte against the pattern's first element, which is no star:
/// whether it does, and the rest of the pattern. `None` if there is no element.
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

/// Matches one byte against a class, given from behind its bracket. A class
/// that does not close ends with the pattern. Two quirks are Redis': an escaped
/// byte of a class is never folded, and the ends of a range are put in order
/// before they are.
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

/// The bytes every matching text begins with (escapes resolved), and whether
/// they are the whole pattern, so that nothing else matches. Case counts.
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

    /// No clock is needed: what is not linear here takes minutes and more.
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

    /// The definition, by trying everything.
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
