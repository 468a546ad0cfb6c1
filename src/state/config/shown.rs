//! What errors show of directives, which is no secret.

use super::params::{Flag, Param};

/// Whether the byte ends a word of a directive, right or wrong: that of `name=value` too, or of a
/// quote that does not end.
fn ends_word(byte: char) -> bool {
    byte.is_whitespace() || matches!(byte, '"' | '\'' | '=' | ':' | '\0')
}

/// Whether the name is that of a secret.
fn is_secret(name: &str) -> bool {
    Param::find(name.as_bytes()).is_some_and(|param| param.has(Flag::Secret))
}

/// Whether someone may have meant the name of a secret.
fn is_like_secret(name: &str) -> bool {
    let known = Param::find(name.as_bytes()).is_some();
    let similar = || Param::similar_to(name);
    is_secret(name) || !known && similar().is_some_and(is_secret)
}

/// The text of a directive up to the name of a secret; the rest is left out. It need not be right:
/// quotes may be missing, the name misspelled or joined to the value, another directive before it.
pub(super) fn without_secrets(text: &str) -> String {
    let (mut end, mut is_first) = (0, true);
    for word in text.split_inclusive(ends_word) {
        let begin = end;
        end += word.len();
        let word = word.trim_end_matches(ends_word);
        let name = word.trim_start_matches('-');
        if name.is_empty() {
            continue;
        }
        let hides = match is_first {
            true => is_like_secret(name),
            false => is_secret(name),
        };
        let rest = text.get(end..).unwrap_or_default();
        if hides && !rest.trim_matches(ends_word).is_empty() {
            return match is_first {
                true => format!("{name} ..."),
                false => format!("{}{word} ...", text.get(..begin).unwrap_or_default()),
            };
        }
        is_first = false;
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_name_of_a_secret_is_left_out() {
        for (text, expected) in [
            ("requirepass pw", "requirepass ..."),
            ("requirepass \"pw", "requirepass ..."),
            ("requirepass=pw", "requirepass ..."),
            ("requirepass: pw", "requirepass ..."),
            ("--RequirePass=pw", "RequirePass ..."),
            ("\"requirepass pw\"", "requirepass ..."),
            ("require-pass pw", "require-pass ..."),
            ("requirepas pw", "requirepas ..."),
            ("master_auth pw", "master_auth ..."),
            ("users bob >pw", "users ..."),
            ("port 1 requirepass pw", "port 1 requirepass ..."),
            (
                "port \"1\" \"--masterauth\" \"pw\"",
                "port \"1\" \"--masterauth ...",
            ),
            ("requirepass", "requirepass"),
            ("requirepass \"\"", "requirepass \"\""),
            ("port x", "port x"),
            ("maxmemory-policy  y  z", "maxmemory-policy  y  z"),
            ("pot 1", "pot 1"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(text), expected, "{text}");
        }
    }
}
