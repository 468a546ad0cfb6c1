//! The keyed hash that orders the members of collections on disk, and the
//! checksum of RDB payloads. Both are part of file formats: their values are
//! pinned by tests and never change.

use siphasher::sip::SipHasher13;
use std::sync::atomic::{AtomicU64, Ordering};

/// SipHash-1-3 under a secret key: without the key, members with equal hashes cannot be found.
#[derive(Clone)]
pub struct KeyedHash {
    hasher: SipHasher13,
}

impl KeyedHash {
    /// A hash under a key of 16 bytes.
    pub fn new(key: &[u8; 16]) -> Self {
        Self {
            hasher: SipHasher13::new_with_key(key),
        }
    }

    /// The hash of some bytes.
    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.hasher.hash(bytes)
    }
}

/// A [`KeyedHash`] that all threads share, and whose key can be replaced while no thread uses it.
pub struct SharedHash {
    key: [AtomicU64; 2],
}

impl SharedHash {
    /// A hash under a key of 16 bytes.
    pub fn new(key: &[u8; 16]) -> Self {
        let shared = Self {
            key: Default::default(),
        };
        shared.set_key(key);
        shared
    }

    /// The hash of some bytes.
    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let [a, b] = &self.key;
        let (a, b) = (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
        SipHasher13::new_with_keys(a, b).hash(bytes)
    }

    /// The key.
    pub fn key(&self) -> [u8; 16] {
        let [a, b] = &self.key;
        let (a, b) = (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
        (u128::from(b) << 64 | u128::from(a)).to_le_bytes()
    }

    /// Replaces the key. The caller keeps all other threads from using the hash.
    pub fn set_key(&self, key: &[u8; 16]) {
        let both = u128::from_le_bytes(*key);
        let [a, b] = &self.key;
        a.store(both as u64, Ordering::Relaxed);
        b.store((both >> 64) as u64, Ordering::Relaxed);
    }
}

impl From<[u8; 16]> for KeyedHash {
    fn from(key: [u8; 16]) -> Self {
        Self::new(&key)
    }
}

/// Without the key: it is a secret.
impl std::fmt::Debug for SharedHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SharedHash").finish_non_exhaustive()
    }
}

/// Without the key: it is a secret.
impl std::fmt::Debug for KeyedHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KeyedHash").finish_non_exhaustive()
    }
}

/// Jones' polynomial 0xad93d23594c935a9, bits reversed.
const CRC64_POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// `CRC64_TABLES[n][b]`: the contribution of the byte `b` to the sum `n` bytes later.
static CRC64_TABLES: [[u64; 256]; 8] = crc64_tables();

const fn crc64_tables() -> [[u64; 256]; 8] {
    let mut tables = [[0u64; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ CRC64_POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut later = 1;
    while later < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[later - 1][byte];
            tables[later][byte] = crc >> 8 ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        later += 1;
    }
    tables
}

/// Continues the CRC-64 of RDB files and DUMP payloads; starts at 0.
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    let mut crc = crc;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mixed = crc ^ u64::from_le_bytes(*word);
        crc = 0;
        for (table, byte) in CRC64_TABLES.iter().rev().zip(mixed.to_le_bytes()) {
            crc ^= table[usize::from(byte)];
        }
    }
    for byte in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = crc >> 8 ^ CRC64_TABLES[0][usize::from(low ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn crc64_check_value() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc64(0, b""), 0);
    }

    #[test]
    fn keyed_hash_golden_values() {
        let key = std::array::from_fn(|index| index as u8);
        let hash = KeyedHash::new(&key);
        // The first vectors of SipHash-1-3 over 00 01 02 …
        let bytes: Vec<u8> = (0..64).collect();
        assert_eq!(hash.hash(&bytes[..0]), 0xabac_0158_050f_c4dc);
        assert_eq!(hash.hash(&bytes[..1]), 0xc9f4_9bf3_7d57_ca93);
        assert_eq!(hash.hash(&bytes[..2]), 0x82cb_9b02_4dc7_d44d);
    }

    proptest! {
        #[test]
        fn a_shared_hash_is_the_same_hash(key: [u8; 16], other: [u8; 16], bytes: Vec<u8>) {
            let shared = SharedHash::new(&other);
            shared.set_key(&key);
            prop_assert_eq!(shared.key(), key);
            prop_assert_eq!(shared.hash(&bytes), KeyedHash::new(&key).hash(&bytes));
        }

        #[test]
        fn crc64_does_not_depend_on_the_cut(bytes: Vec<u8>, cut: prop::sample::Index) {
            let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
            let mut slow = 0;
            for byte in &bytes {
                slow = crc64(slow, &[*byte]);
            }
            prop_assert_eq!(crc64(0, &bytes), slow);
            prop_assert_eq!(crc64(crc64(0, head), tail), slow);
        }
    }
}
