//! Hand-made payloads of older and newer versions.

use super::*;
use crate::base::time::UnixMs;

/// The packed string of a value, or the value itself if it is none.
pub(super) fn unpacked(value: &[u8]) -> Vec<u8> {
    let mut string = Vec::new();
    let mut reader = Reader::new(value, MAX);
    if reader.string(&mut string).is_err() || !reader.input.is_empty() {
        return value.to_vec();
    }
    string
}

/// Builds a ziplist.
pub(super) fn ziplist(elements: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    let (mut before, mut last) = (0usize, 10);
    for element in elements {
        let start = body.len();
        last = 10 + start;
        match u8::try_from(before) {
            Ok(short) if short < 0xFE => body.push(short),
            _ => {
                body.push(0xFE);
                body.extend_from_slice(&(before as u32).to_le_bytes());
            }
        }
        match crate::base::num::parse_i64(element) {
            Some(n @ 0..=12) => body.push(0xF1 + n as u8),
            Some(n @ -0x80..=0x7F) => body.extend_from_slice(&[0xFE, n as u8]),
            Some(n @ -0x8000..=0x7FFF) => {
                body.push(0xC0);
                body.extend_from_slice(&(n as i16).to_le_bytes());
            }
            Some(n @ -0x80_0000..=0x7F_FFFF) => {
                body.push(0xF0);
                body.extend(n.to_le_bytes().iter().take(3));
            }
            Some(n @ -0x8000_0000..=0x7FFF_FFFF) => {
                body.push(0xD0);
                body.extend_from_slice(&(n as i32).to_le_bytes());
            }
            Some(n) => {
                body.push(0xE0);
                body.extend_from_slice(&n.to_le_bytes());
            }
            None => {
                match element.len() {
                    len @ 0..=0x3F => body.push(len as u8),
                    len @ 0x40..=0x3FFF => {
                        body.extend_from_slice(&[0x40 | (len >> 8) as u8, len as u8]);
                    }
                    len => {
                        body.push(0x80);
                        body.extend_from_slice(&(len as u32).to_be_bytes());
                    }
                }
                body.extend_from_slice(element);
            }
        }
        before = body.len() - start;
    }
    let mut all = ((body.len() + 11) as u32).to_le_bytes().to_vec();
    all.extend_from_slice(&(last as u32).to_le_bytes());
    all.extend_from_slice(&(elements.len() as u16).to_le_bytes());
    all.extend_from_slice(&body);
    all.push(0xFF);
    all
}

pub(super) fn zipmap(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut all = vec![pairs.len() as u8];
    let mut put = |bytes: &[u8], unused: Option<u8>| {
        match u8::try_from(bytes.len()) {
            Ok(short) if short < 0xFE => all.push(short),
            _ => {
                all.push(0xFE);
                all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            }
        }
        all.extend(unused);
        all.extend_from_slice(bytes);
        all.extend(vec![b'?'; unused.unwrap_or(0).into()]);
    };
    for (index, (field, value)) in pairs.iter().enumerate() {
        put(field, None);
        put(value, Some(index as u8 % 3));
    }
    all.push(0xFF);
    all
}

pub(super) fn packed(elements: &[&[u8]]) -> Vec<u8> {
    let mut builder = listpack::Builder::default();
    elements.iter().for_each(|element| builder.push(element));
    builder.finish()
}

/// `type ‖ string`.
pub(super) fn one_string(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut body = vec![number];
    Encoder::new(false).string(bytes, &mut body);
    body
}

pub(super) const LONG: &[u8] = &[b'x'; 20_000];

/// Payloads of lists, and of a set in a listpack, with the same items.
fn lists_and_sets() -> Vec<(Vec<u8>, u16, Vec<String>)> {
    let mut all = Vec::new();
    let items: &[&[u8]] = &[
        b"",
        b"a",
        b"0",
        b"12",
        b"13",
        b"-1",
        b"-129",
        b"40000",
        b"-8388609",
        b"2147483648",
        &LONG[..63],
        &LONG[..64],
        LONG,
        b"after",
        b"9223372036854775807",
        &LONG[..300],
        b"end",
    ];
    let words: Vec<String> = items.iter().map(|item| hex(item)).collect();
    all.push((
        one_string(kind::LIST_ZIPLIST, &ziplist(items)),
        6,
        words.clone(),
    ));
    let mut nodes = vec![kind::LIST_QUICKLIST, 2];
    let mut encoder = Encoder::new(true);
    encoder.string(&ziplist(&items[..5]), &mut nodes);
    encoder.string(&ziplist(&items[5..]), &mut nodes);
    all.push((nodes, 8, words.clone()));
    let mut mixed = vec![kind::LIST_QUICKLIST_2, 3, 1];
    encoder.string(items[0], &mut mixed);
    mixed.push(2);
    encoder.string(&packed(&items[1..5]), &mut mixed);
    mixed.push(2);
    encoder.string(&packed(&items[5..]), &mut mixed);
    all.push((mixed, 10, words.clone()));
    let mut plain = vec![kind::LIST, items.len() as u8];
    items
        .iter()
        .for_each(|item| encoder.string(item, &mut plain));
    all.push((plain, 6, words.clone()));
    all.push((one_string(kind::SET_LISTPACK, &packed(items)), 11, words));
    all
}

/// Payloads of versions that are not installed here, with their expected elements.
pub(super) fn hand_made() -> Vec<(Vec<u8>, u16, Vec<String>)> {
    let mut all = lists_and_sets();
    let mut encoder = Encoder::new(true);
    let pairs: &[(&[u8], &[u8])] = &[
        (b"f", b"v"),
        (b"", b""),
        (b"n", b"123456"),
        (&LONG[..253], &LONG[..254]),
        (&LONG[..300], b"long field"),
    ];
    let flat: Vec<&[u8]> = pairs.iter().flat_map(|(f, v)| [*f, *v]).collect();
    let pair = |(f, v): &(&[u8], &[u8])| format!("{}={}", hex(f), hex(v));
    let words: Vec<String> = pairs.iter().map(pair).collect();
    all.push((
        one_string(kind::HASH_ZIPMAP, &zipmap(pairs)),
        2,
        words.clone(),
    ));
    all.push((
        one_string(kind::HASH_ZIPLIST, &ziplist(&flat)),
        6,
        words.clone(),
    ));
    all.push((one_string(kind::HASH_LISTPACK, &packed(&flat)), 12, words));

    let scored: &[&[u8]] = &[
        b"a", b"-inf", b"b", b"-1.5", b"c", b"0", b"d", b"3", b"e", b"1e400",
    ];
    let scores = [f64::NEG_INFINITY, -1.5, 0.0, 3.0, f64::INFINITY];
    let words: Vec<String> = scores
        .iter()
        .zip(scored.chunks(2))
        .map(|(score, pair)| format!("{}={}", hex(&score.to_be_bytes()), hex(pair[0])))
        .collect();
    all.push((
        one_string(kind::ZSET_ZIPLIST, &ziplist(scored)),
        6,
        words.clone(),
    ));
    all.push((
        one_string(kind::ZSET_LISTPACK, &packed(scored)),
        11,
        words.clone(),
    ));
    let mut texts = vec![kind::ZSET, 5];
    for (pair, text) in
        scored
            .chunks(2)
            .zip([&b"\xFF"[..], b"\x04-1.5", b"\x02-0", b"\x013", b"\xFE"])
    {
        encoder.string(pair[0], &mut texts);
        texts.extend_from_slice(text);
    }
    all.push((texts, 6, words));

    let first_ms = 1_700_000_000_000;
    let names: [&[u8]; 3] = [b"f", b"g", b"h"];
    let word = |name: &[u8], time: &str| format!("{}={}{time}", hex(name), hex(b"value"));
    let timed = vec![
        word(b"f", "@1700000000000"),
        word(b"g", ""),
        word(b"h", "@1700000000005"),
    ];
    for (number, value) in timed_hashes(names, UnixMs(first_ms), UnixMs(first_ms + 5)) {
        let body = [&[number][..], &value].concat();
        let mut words = timed.clone();
        if matches!(
            number,
            kind::HASH_LISTPACK_EX | kind::HASH_LISTPACK_EX_PRE_GA
        ) {
            words.swap(1, 2);
        }
        all.push((body, 12, words));
    }
    let mut valkey = vec![kind::HASH_METADATA_PRE_GA, 3];
    for (name, time) in names.into_iter().zip([first_ms, u64::MAX, first_ms + 5]) {
        encoder.string(name, &mut valkey);
        encoder.string(b"value", &mut valkey);
        valkey.extend_from_slice(&time.to_le_bytes());
    }
    all.push((valkey, 80, timed));
    all
}

/// A hash of each type with field expiry, without the type number: three fields, of
/// which the second does not expire.
pub(crate) fn timed_hashes(
    names: [&[u8]; 3],
    first_ms: UnixMs,
    third_ms: UnixMs,
) -> Vec<(u8, Vec<u8>)> {
    let mut encoder = Encoder::new(false);
    let (first, third) = (first_ms.to_string(), third_ms.to_string());
    let mut timed = [
        (first_ms, names[0], first.as_bytes()),
        (third_ms, names[2], third.as_bytes()),
    ];
    timed.sort();
    // In one string they stand in the order of their times, and those without one at the end.
    let [(_, one, its), (_, other, others)] = timed;
    let triples = [
        one, b"value", its, other, b"value", others, names[1], b"value", b"0",
    ];
    let lowest_ms = first_ms.min(third_ms);
    let mut small = Vec::new();
    encoder.string(&packed(&triples), &mut small);
    let mut small_ga = lowest_ms.0.to_le_bytes().to_vec();
    small_ga.extend_from_slice(&small);
    let mut table = |head: &[u8], times: [u64; 3]| {
        let mut body = head.to_vec();
        body.push(3);
        for (name, time) in names.into_iter().zip(times) {
            encode::length(time, &mut body);
            encoder.string(name, &mut body);
            encoder.string(b"value", &mut body);
        }
        body
    };
    let relative = |time: UnixMs| time.since(lowest_ms) + 1;
    let head = lowest_ms.0.to_le_bytes();
    let large_ga = table(&head, [relative(first_ms), 0, relative(third_ms)]);
    vec![
        (
            kind::HASH_METADATA_PRE_GA,
            table(&[], [first_ms.0, 0, third_ms.0]),
        ),
        (kind::HASH_LISTPACK_EX_PRE_GA, small),
        (kind::HASH_METADATA, large_ga),
        (kind::HASH_LISTPACK_EX, small_ga),
    ]
}
