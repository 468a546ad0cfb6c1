//! Hash slots: the 16,384 parts into which Redis Cluster divides all keys.
//!
//! A key's slot is the CRC16 (XMODEM: polynomial 0x1021, begins with 0) of its hash tag, modulo
//! the number of slots. The hash tag is what stands between the first `{` and the first `}` behind
//! it; without it, or if it is empty, the whole key.

/// How many slots there are.
pub const SLOTS: u16 = 1 << 14;

const POLYNOMIAL: u16 = 0x1021;

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = match crc & 0x8000 {
                0 => crc << 1,
                _ => crc << 1 ^ POLYNOMIAL,
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let [high, _] = crc.to_be_bytes();
        (crc << 8) ^ TABLE[usize::from(high ^ byte)]
    })
}

/// The part of a key that its slot depends on.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else {
        return key;
    };
    let behind = &key[open + 1..];
    match memchr::memchr(b'}', behind) {
        None | Some(0) => key,
        Some(end) => &behind[..end],
    }
}

/// The slot of a key or shard channel.
pub fn of_key(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// The slot of all names that a glob pattern matches; `None` if they may be in several.
pub fn of_pattern(pattern: &[u8]) -> Option<u16> {
    let open = memchr::memchr(b'{', pattern);
    let end = open.and_then(|open| memchr::memchr(b'}', &pattern[open + 1..]));
    let fixed = match (open, end) {
        // The rest does not matter.
        (Some(open), Some(end)) if end > 0 => &pattern[..open + 1 + end],
        _ => pattern,
    };
    let varies = fixed.iter().any(|byte| b"*?[\\".contains(byte));
    (!varies).then(|| of_key(pattern))
}

/// The slots of some keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slots {
    /// There are no keys.
    #[default]
    None,
    /// All are in this one.
    One(u16),
    /// They are in several.
    Several,
}

impl Slots {
    /// The slots of these keys.
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> Slots {
        let mut found = Slots::None;
        for key in keys {
            found |= Slots::One(of_key(key));
        }
        found
    }

    /// The slot, if there is exactly one.
    pub fn one(self) -> Option<u16> {
        match self {
            Slots::One(slot) => Some(slot),
            Slots::None | Slots::Several => None,
        }
    }
}

impl std::ops::BitOrAssign for Slots {
    fn bitor_assign(&mut self, other: Slots) {
        *self = match (*self, other) {
            (Slots::None, other) => other,
            (this, Slots::None) => this,
            (Slots::One(a), Slots::One(b)) if a == b => Slots::One(a),
            _ => Slots::Several,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-16/XMODEM, and slots as redis-server gives them.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [
            (&b""[..], 0),
            (b"a", 15495),
            (b"b", 3300),
            (b"foo", 12182),
            (b"{a}b", 15495),
            (b"x{a}b{b}", 15495),
            (b"somekey", 11058),
        ] {
            assert_eq!(of_key(key), slot, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_tag_is_what_stands_in_the_first_braces() {
        let cases: [(&[u8], &[u8]); 9] = [
            (b"{user}.x", b"user"),
            (b"foo{}{bar}", b"foo{}{bar}"),
            (b"foo{{bar}}zap", b"{bar"),
            (b"foo{bar}{zap}", b"bar"),
            (b"foo{bar", b"foo{bar"),
            (b"foo}bar{", b"foo}bar{"),
            (b"}{a}", b"a"),
            (b"{}", b"{}"),
            (b"{\xFF\0}", b"\xFF\0"),
        ];
        for (key, expected) in cases {
            assert_eq!(tag(key), expected, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_pattern_has_a_slot_if_all_that_it_matches_has() {
        assert_eq!(of_pattern(b"{a}*"), Some(of_key(b"a")));
        assert_eq!(of_pattern(b"x{a}[0-9]?"), Some(of_key(b"a")));
        assert_eq!(of_pattern(b"plain"), Some(of_key(b"plain")));
        assert_eq!(of_pattern(b"plain{}"), Some(of_key(b"plain{}")));
        for several in [
            &b"*{a}"[..],
            b"{a*}",
            b"{}*",
            b"a?",
            b"[a]",
            b"\\{a}",
            b"{\\a}",
            b"{a*",
        ] {
            assert_eq!(of_pattern(several), None, "{}", several.escape_ascii());
        }
    }
}
