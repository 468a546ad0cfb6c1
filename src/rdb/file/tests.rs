//! Files in both directions.

use super::*;
use crate::base::time::UnixMs;
use crate::encoding::ValueType;
use crate::rdb::{kind, mutate};

const MAX: u64 = 64 << 20;

/// A file with every kind of item.
fn sample(magic: &[u8], with_crc: bool) -> Vec<u8> {
    let mut body = magic.to_vec();
    let aux = |body: &mut Vec<u8>, name: &[u8], text: &[u8]| {
        body.push(opcode::AUX);
        let mut encoder = Encoder::new(false);
        encoder.string(name, body);
        encoder.string(text, body);
    };
    aux(&mut body, b"redis-ver", b"7.0.15");
    aux(&mut body, b"redis-bits", b"64");
    body.extend_from_slice(b"\xF5\x05#!lua");
    // Data of a module: an unsigned number, a float, a double, a string.
    body.extend_from_slice(b"\xF7\x01\x02\x02\x02\x07\x03....\x04........\x05\x01s\0");
    body.extend_from_slice(b"\xFE\x03\xFB\x04\x02");
    body.extend_from_slice(b"\0\x01a\x01x");
    body.extend_from_slice(b"\xFD\x00\x00\x00\x70\xF8\x09\0\x01b\xC0\x05");
    body.extend_from_slice(b"\xF9\x63\xFC\x10\0\0\0\0\0\0\0\x01\x01c\x02\x01p\x01q");
    body.extend_from_slice(b"\xF4\x01\x02\x03\x02\x01d\x01\x01m");
    body.push(opcode::END);
    let crc = if with_crc { crc64(0, &body) } else { 0 };
    body.extend_from_slice(&crc.to_le_bytes());
    body
}

fn entries(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>, u64)>> {
    let mut file = FileReader::open(bytes, MAX)?;
    let mut all = Vec::new();
    loop {
        let entry = file.next()?;
        let mut count = 0;
        if let Entry::Key(head) = entry {
            count = file.value(head, |_| Ok::<(), Error>(()))?;
        }
        let is_end = entry == Entry::End;
        all.push((entry, file.key().to_vec(), count));
        if is_end {
            return Ok(all);
        }
    }
}

#[test]
fn all_that_a_file_may_have_is_read() {
    for (magic, with_crc) in [
        (b"REDIS0010", true),
        (b"REDIS0010", false),
        (b"VALKEY080", true),
    ] {
        let found = entries(&sample(magic, with_crc)).expect("a file");
        let key = |kind, expire_ms, idle_s, frequency| {
            Entry::Key(Head {
                kind,
                expire_ms,
                idle_s,
                frequency,
                ..Head::default()
            })
        };
        let aux = |name: &[u8], text: &[u8]| Entry::Aux {
            name: name.to_vec(),
            text: text.to_vec(),
        };
        let expected = [
            aux(b"redis-ver", b"7.0.15"),
            aux(b"redis-bits", b"64"),
            Entry::Function(b"#!lua".to_vec()),
            Entry::ModuleAux,
            Entry::SelectDb(3),
            Entry::Sizes {
                keys: 4,
                expires: 2,
            },
            key(kind::STRING, UnixMs::NONE, None, None),
            key(kind::STRING, UnixMs(0x7000_0000 * 1000), Some(9), None),
            key(kind::LIST, UnixMs(16), None, Some(0x63)),
            key(kind::SET, UnixMs::NONE, None, None),
            Entry::End,
        ];
        assert_eq!(
            found.iter().map(|(entry, ..)| entry).collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>()
        );
        let keys: Vec<_> = found[6..10]
            .iter()
            .map(|(_, key, count)| (&key[..], *count))
            .collect();
        assert_eq!(keys, [(&b"a"[..], 1), (b"b", 1), (b"c", 2), (b"d", 1)]);
    }
}

#[test]
fn files_without_a_checksum_are_older() {
    let mut old = sample(b"REDIS0004", false);
    old.truncate(old.len() - 8);
    assert!(entries(&old).is_ok());
    assert!(matches!(
        entries(&sample(b"REDIS0010", true)[..100]),
        Err(Error::Corrupt(_))
    ));
}

#[test]
fn what_is_no_file_is_refused() {
    let good = sample(b"REDIS0010", true);
    for at in 9..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        // A checksum of zero would mean that there is none.
        assert!(entries(&bad).is_err(), "{at}");
        assert!(entries(&good[..at]).is_err(), "{at}");
    }
    for (magic, version) in [
        (b"REDIS0000", 0),
        (b"REDIS0016", 16),
        (b"VALKEY081", 81),
        (b"VALKEY011", 11),
    ] {
        let found = entries(&sample(magic, true));
        assert!(
            matches!(found, Err(Error::Version(v)) if v == version),
            "{found:?}"
        );
    }
    for magic in [b"redis0010", b"REDIS00x0", b"SQLite fo"] {
        assert!(matches!(
            entries(&sample(magic, true)),
            Err(Error::Corrupt(_))
        ));
    }
    let with = |tail: &[u8]| [&b"REDIS0010"[..], tail].concat();
    for tail in [
        &b"\xF6"[..],
        b"\xF3",
        b"\xFC\0\0\0\0\0\0\0\0\xFF",
        b"\xF7\0\0\0\x09",
        b"\xFE\xC0",
    ] {
        assert!(entries(&with(tail)).is_err(), "{tail:?}");
    }
}

#[test]
fn what_is_written_is_read() {
    let mut writer = FileWriter::new(Vec::new(), true, false);
    writer.aux(b"redis-ver", b"7.0.15");
    writer.function(b"#!lua name=lib");
    writer.select_db(70_000, 2, 1);
    writer.expires(UnixMs(123_456_789));
    {
        let (encoder, buffer, mut outlet) = writer.parts();
        encoder.value_string(Some(b"key"), b"value", buffer);
        encoder.begin(ValueType::Set, 100_000, Some(b"big"));
        for n in 0..100_000u32 {
            let member = format!("member-{n}");
            encoder
                .element(Element::member(member.as_bytes()), buffer)
                .expect("room");
            outlet.flush(buffer).expect("a Vec takes all");
            assert!(buffer.len() < 2 * BUFFER_BYTES);
        }
        encoder.end(buffer).expect("all of them");
    }
    let len = writer.len() + 9;
    let bytes = writer.end().expect("a Vec takes all");
    assert_eq!(bytes.len() as u64, len);
    let found = entries(&bytes).expect("a file");
    let heads: Vec<_> = found[4..6]
        .iter()
        .map(|(entry, key, count)| (entry, &key[..], *count))
        .collect();
    let head = |kind, expire_ms| {
        Entry::Key(Head {
            kind,
            expire_ms,
            ..Head::default()
        })
    };
    assert_eq!(found[2].0, Entry::SelectDb(70_000));
    assert_eq!(
        heads,
        [
            (&head(kind::STRING, UnixMs(123_456_789)), &b"key"[..], 1),
            (&head(kind::SET, UnixMs::NONE), b"big", 100_000)
        ]
    );
}

/// Randomly mutated files never cause a panic.
#[test]
fn mutated_files_never_panic() {
    let ms = std::env::var("KEDIS_FUZZ_MS")
        .ok()
        .and_then(|ms| ms.parse().ok());
    let mut rng = fastrand::Rng::with_seed(3);
    let end = std::time::Instant::now() + std::time::Duration::from_millis(ms.unwrap_or(200));
    let (mut rounds, mut good) = (0u32, 0u32);
    while std::time::Instant::now() < end {
        let mut bytes = sample(b"REDIS0010", false);
        mutate(&mut bytes, &mut rng);
        rounds += 1;
        good += u32::from(entries(&bytes).is_ok());
    }
    assert!(good > 0 && good < rounds, "{good} of {rounds}");
}
