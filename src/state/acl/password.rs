//! Hashes of passwords: SHA-256, without salt, so that users can be moved between servers as
//! Redis moves them.

use sha2::{Digest, Sha256};
use std::fmt;

/// Bytes of a hash.
const BYTES: usize = 32;

/// The SHA-256 of a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PasswordHash([u8; BYTES]);

impl PasswordHash {
    /// The hash of a password.
    pub fn of(password: &[u8]) -> PasswordHash {
        PasswordHash(Sha256::digest(password).into())
    }

    /// The hash in 64 lower-case hexadecimal digits.
    pub fn parse(digits: &[u8]) -> Option<PasswordHash> {
        if digits.len() != 2 * BYTES {
            return None;
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut hash = [0; BYTES];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(PasswordHash(hash))
    }

    /// Whether it is the same hash. The time that takes does not depend on the hashes.
    fn is(&self, other: &PasswordHash) -> bool {
        let differences = self
            .0
            .iter()
            .zip(other.0)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        differences == 0
    }

    /// Whether it is one of these hashes.
    pub(super) fn is_among(&self, known: &[PasswordHash]) -> bool {
        known
            .iter()
            .fold(false, |found, hash| found | self.is(hash))
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_64_lower_case_digits() {
        let text = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let hash = PasswordHash::of(b"test");
        assert_eq!(hash.to_string(), text);
        assert_eq!(PasswordHash::parse(text.as_bytes()), Some(hash));
        for wrong in [
            &text[1..],
            &text.to_uppercase(),
            &text.replace('9', "g"),
            "",
        ] {
            assert_eq!(PasswordHash::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(hash.is_among(&[PasswordHash::of(b""), hash]));
        assert!(!hash.is_among(&[PasswordHash::of(b"")]) && !hash.is_among(&[]));
        assert!(!format!("{hash:?}").contains("9f"));
    }
}
