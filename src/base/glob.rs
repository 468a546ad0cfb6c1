//! Glob patterns as KEYS, SCAN, PSUBSCRIBE and ACL rules use them: `*`, `?`,
//! `[a-z]`, `[^a-z]` and backslash escapes, over bytes. The empty text matches no
//! pattern but the empty one; commands for which `*` is everything see to that.
//!
//! Matching remembers only the last star, so the worst case is the product of
//! both lengths, whatever the pattern.

/// Whether the whole text matches the pattern; `nocase` folds ASCII letters.
pub fn matches(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    if text.is_empty() {
        // Redis' quirk: nothing is matched by nothing only, not by stars.
        return pattern.is_empty();
    }
    let (mut pattern, mut text) = (pattern, text);
    // What follows the last star, and the text it was tried on first.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            if rest.is_empty() {
                return true;
            }
            retry = Some((rest, text));
            pattern = rest;
            continue;
        }
        let step = match text.split_first() {
            Some((byte, rest)) => match_one(pattern, *byte, nocase).map(|after| (after, rest)),
            None if pattern.is_empty() => return true,
            // A star would have to take less than nothing.
            None => return false,
        };
        (pattern, text) = match (step, retry) {
            (Some(next), _) => next,
            (None, Some((after_star, [_, shorter @ ..]))) => {
                retry = Some((after_star, shorter));
                (after_star, shorter)
            }
            (None, _) => return false,
        };
    }
}

/// Matches one byte against the pattern's first element, which is no star, and
/// returns the rest of the pattern.
fn match_one(pattern: &[u8], byte: u8, nocase: bool) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => match_class(rest, byte, nocase),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            (fold(*literal, nocase) == fold(byte, nocase)).then_some(rest)
        }
    }
}

/// Matches one byte against a class, given from behind its bracket. A class
/// that does not close ends with the pattern.
fn match_class(class: &[u8], byte: u8, nocase: bool) -> Option<&[u8]> {
    let (negated, mut class) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let byte = fold(byte, nocase);
    let mut found = false;
    let rest = loop {
        class = match class {
            [] => break class,
            [b']', rest @ ..] => break rest,
            [b'\\', literal, rest @ ..] => {
                found |= fold(*literal, nocase) == byte;
                rest
            }
            [first, b'-', last, rest @ ..] => {
                let (first, last) = (fold(*first, nocase), fold(*last, nocase));
                found |= (first.min(last)..=first.max(last)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                found |= fold(*literal, nocase) == byte;
                rest
            }
        };
    };
    (found != negated).then_some(rest)
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
        assert!(!matches(b"HeL*", b"hello", false));
    }

    #[test]
    fn hostile_patterns_end() {
        let text = vec![b'a'; 20_000];
        let pattern = [b"a*".repeat(1000).as_slice(), b"b"].concat();
        assert!(!matches(&pattern, &text, false));
        assert!(!matches(&b"*?".repeat(20_001), &text, false));
        assert!(matches(&b"*".repeat(100_000), &text, false));
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
                match_one(pattern, *byte, false).is_some_and(|rest| plain(rest, tail))
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
