//! MurmurHash2 by Austin Appleby, in its variants of 32 bits and of 64 bits (64A). RedisBloom
//! places items by these hashes, so values that travel between both need the same ones.
//!
//! Source: <https://github.com/aappleby/smhasher/blob/master/src/MurmurHash2.cpp>

const M32: u32 = 0x5BD1_E995;
const M64: u64 = 0xC6A4_A793_5BD1_E995;

/// MurmurHash2: 32 bits.
pub fn murmur2(bytes: &[u8], seed: u32) -> u32 {
    // The reference takes the length as a C `int`.
    let mut hash = seed ^ bytes.len() as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(M32);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M32) ^ word.wrapping_mul(M32);
    }
    if !tail.is_empty() {
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(tail) {
            *to = *from;
        }
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M32);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M32);
    hash ^ hash >> 15
}

/// MurmurHash64A: 64 bits.
pub fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M64);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(M64);
        word ^= word >> 47;
        hash = (hash ^ word.wrapping_mul(M64)).wrapping_mul(M64);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(tail) {
            *to = *from;
        }
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M64);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M64);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the reference implementation.
    #[test]
    fn pinned_hashes() {
        for (text, seed, hash) in PINNED_32 {
            assert_eq!(murmur2(text.as_bytes(), *seed), *hash, "{text} {seed}");
        }
        for (text, seed, hash) in PINNED_64 {
            assert_eq!(murmur64a(text.as_bytes(), *seed), *hash, "{text} {seed}");
        }
    }

    const PINNED_32: &[(&str, u32, u32)] = &[
        ("", 0x0, 0x00000000),
        ("a", 0x77F, 0xF23CF517),
        ("ab", 0x9747B28C, 0x12D8262A),
        ("abc", 0x0, 0x13577C9B),
        ("abcd", 0x77F, 0x81B55B43),
        ("hello world", 0x9747B28C, 0x48D0C363),
        ("0123456789abcdef", 0x0, 0xCF9AF71A),
        ("0123456789abcdefghijk", 0x77F, 0xBE099E81),
    ];

    const PINNED_64: &[(&str, u64, u64)] = &[
        ("", 0x0, 0x0000000000000000),
        ("a", 0xC6A4A7935BD1E995, 0x4292CEE227B9150A),
        ("ab", 0x0, 0x62BE85B2FE53D1F8),
        ("abc", 0xC6A4A7935BD1E995, 0xCA52F3863690CD7B),
        ("abcd", 0x0, 0xEC1044C45CC5097A),
        ("hello world", 0xC6A4A7935BD1E995, 0xBAE8FB35317ACDE1),
        ("0123456789abcdef", 0x0, 0x93A92D1A91A24BC7),
        (
            "0123456789abcdefghijk",
            0xC6A4A7935BD1E995,
            0x72759ED3D42ECB75,
        ),
    ];
}
