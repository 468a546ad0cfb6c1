//! Values in both directions: payloads of real servers, hand-made ones of older and
//! newer versions, and mutated ones with a valid checksum.

mod hand_made;
mod modules;

use crate::base::time::UnixMs;
pub(crate) use hand_made::timed_hashes;
use hand_made::{LONG, hand_made, one_string, packed, unpacked, ziplist, zipmap};

use super::decode::{kind_of, read_value};
use super::encode::{self, Encoder};
use super::payload::{self, open, seal};
use super::reader::Reader;
use super::stream::{Filling, Writer};
use super::{Dialect, Element, Error, StreamPart, StreamState, intset, kind, listpack};
use crate::base::hash::crc64;
use crate::encoding::ValueType;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write;

const MAX: u64 = 64 << 20;
const FIXTURES: &str = include_str!("../../tests/fixtures/rdb-payloads.tsv");

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes all");
    }
    text
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |pair: &[u8]| {
        std::str::from_utf8(pair)
            .ok()
            .map(|p| u8::from_str_radix(p, 16))
    };
    let bytes = text.as_bytes().chunks(2).map(digit);
    bytes
        .map(|byte| byte.expect("ASCII").expect("hexadecimal"))
        .collect()
}

/// An element in the notation of the fixtures.
fn word(element: Element<'_>) -> String {
    match element {
        Element::String(bytes)
        | Element::Item(bytes)
        | Element::Member {
            member: bytes,
            expire_ms: UnixMs::NONE,
        } => hex(bytes),
        Element::Member { member, expire_ms } => format!("{}@{expire_ms}", hex(member)),
        Element::Scored(score, member) => {
            format!("{}={}", hex(&score.to_be_bytes()), hex(member))
        }
        Element::Field {
            field,
            value,
            expire_ms: UnixMs::NONE,
        } => format!("{}={}", hex(field), hex(value)),
        Element::Field {
            field,
            value,
            expire_ms,
        } => format!("{}={}@{expire_ms}", hex(field), hex(value)),
        Element::Stream(part) => stream_word(part),
        Element::Module(part) => format!("{part:?}"),
    }
}

/// A part of a stream in the notation of the fixtures.
fn stream_word(part: StreamPart<'_>) -> String {
    match part {
        StreamPart::Entry { id, fields } => format!("{id}:{}", hex(fields)),
        StreamPart::State(state) => {
            let StreamState {
                length,
                first,
                last,
                deleted,
                added,
                groups,
            } = state;
            format!("state:{length}:{first}:{last}:{deleted}:{added}:{groups}")
        }
        StreamPart::Group {
            name,
            last,
            read,
            pending,
        } => {
            let read = read.map_or_else(String::new, |read| read.to_string());
            format!("group:{}:{last}:{read}:{pending}", hex(name))
        }
        StreamPart::Pending {
            id,
            delivered_ms,
            deliveries,
        } => format!("pending:{id}:{delivered_ms}:{deliveries}"),
        StreamPart::Consumers(count) => format!("consumers:{count}"),
        StreamPart::Consumer {
            name,
            seen_ms,
            pending,
            ..
        } => format!("consumer:{}:{seen_ms}:{pending}", hex(name)),
        StreamPart::Owned(id) => format!("owned:{id}"),
        StreamPart::Released(id) => format!("released:{id}"),
        StreamPart::Idempotence { duration_s, most } => format!("idempotence:{duration_s},{most}"),
        StreamPart::Producer(name) => format!("producer:{}", hex(name)),
        StreamPart::Iid { iid, entry } => format!("iid:{},{entry}", hex(iid)),
        StreamPart::IidCounts { added, duplicates } => format!("iids:{added},{duplicates}"),
    }
}

/// The contents of a payload: type number and elements in order; trailing bytes are an
/// error.
fn read(bytes: &[u8]) -> Result<(u8, Vec<String>), Error> {
    let payload = open(bytes)?;
    kind_of(payload.kind)?;
    let mut words = Vec::new();
    let mut reader = Reader::new(payload.value, MAX);
    let count = read_value(&mut reader, payload.kind, payload.dialect, |element| {
        words.push(word(element));
        Ok::<(), Error>(())
    })?;
    if kind_of(payload.kind)? != ValueType::Stream {
        assert_eq!(count as usize, words.len());
    }
    match reader.input.is_empty() {
        true => Ok((payload.kind, words)),
        false => Err(Error::Corrupt("something behind the value")),
    }
}

fn sorted(number: u8, mut words: Vec<String>) -> Vec<String> {
    if matches!(
        kind_of(number),
        Ok(ValueType::Set | ValueType::Hash | ValueType::Zset)
    ) {
        words.sort();
    }
    words
}

struct Fixture {
    name: &'static str,
    number: u8,
    payload: Vec<u8>,
    words: Vec<String>,
}

fn fixtures() -> Vec<Fixture> {
    let lines = FIXTURES.lines().filter(|line| !line.starts_with('#'));
    let fixture = |line: &'static str| {
        let mut columns = line.split('\t');
        let mut next = || columns.next().expect("four columns");
        Fixture {
            name: next(),
            number: next().parse().expect("a number"),
            payload: unhex(next()),
            words: next().split(',').map(str::to_owned).collect(),
        }
    };
    lines.map(fixture).collect()
}

fn sealed(body: &[u8], version: u16) -> Vec<u8> {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&version.to_le_bytes());
    let crc = crc64(0, &payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

/// Decodes a payload and encodes it again.
fn rewritten(bytes: &[u8], compress: bool) -> Vec<u8> {
    let payload = open(bytes).expect("a payload");
    let number = kind_of(payload.kind).expect("a known type");
    let pass = |each: &mut dyn FnMut(Element<'_>)| {
        let mut reader = Reader::new(payload.value, MAX);
        read_value(&mut reader, payload.kind, payload.dialect, |element| {
            each(element);
            Ok::<(), Error>(())
        })
        .expect("a value")
    };
    let mut encoder = Encoder::new(compress);
    let mut out = Vec::new();
    if number == ValueType::String {
        pass(&mut |element| {
            if let Element::String(value) = element {
                encoder.value_string(None, value, &mut out);
            }
        });
    } else if number == ValueType::Stream {
        let (mut filling, mut nodes) = (Filling::default(), 0);
        pass(&mut |element| {
            if let Element::Stream(StreamPart::Entry { fields, .. }) = element {
                nodes += u64::from(filling.begins_node(fields.len()));
            }
        });
        let mut writer = Writer::begin(&mut encoder, nodes, None, &mut out);
        pass(&mut |element| {
            if let Element::Stream(part) = element {
                writer.part(&mut encoder, part, &mut out).expect("parts");
            }
        });
    } else {
        let count = pass(&mut |_| {});
        encoder.begin(number, count, None);
        pass(&mut |element| encoder.element(element, &mut out).expect("room"));
        encoder.end(&mut out).expect("all of them");
    }
    seal(&mut out);
    out
}

#[test]
fn payloads_of_redis_are_read() {
    let mut numbers = BTreeSet::new();
    for fixture in fixtures() {
        let (number, words) = read(&fixture.payload).expect(fixture.name);
        assert_eq!(number, fixture.number, "{}", fixture.name);
        assert_eq!(
            sorted(number, words),
            sorted(number, fixture.words.clone()),
            "{}",
            fixture.name
        );
        numbers.insert(number);
    }
    let expected = [0, 2, 4, 5, 11, 16, 17, 18, 19];
    assert_eq!(numbers.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn values_are_written_as_redis_does() {
    let mut same = 0;
    for fixture in fixtures() {
        for compress in [false, true] {
            let written = rewritten(&fixture.payload, compress);
            let (number, words) = read(&written).expect(fixture.name);
            assert_eq!(
                kind_of(number).expect("known"),
                kind_of(fixture.number).expect("known")
            );
            assert_eq!(
                sorted(number, words),
                sorted(number, fixture.words.clone()),
                "{}",
                fixture.name
            );
            same += u32::from(written == fixture.payload);
        }
        // With Redis' default limits, the bytes are equal too, except for compressed
        // strings and the nodes of long lists.
        let name = fixture.name.strip_prefix("usual/").unwrap_or_default();
        let comparable = ["string:len-63", "set:int32", "list", "hash", "string:-129"];
        if comparable.contains(&name) {
            let written = rewritten(&fixture.payload, true);
            let (a, b) = (open(&written), open(&fixture.payload));
            let (a, b) = (a.expect("ours"), b.expect("theirs"));
            assert_eq!(a.kind, b.kind, "{name}");
            assert_eq!(unpacked(a.value), unpacked(b.value), "{name}");
        }
    }
    assert!(same > 20, "{same}");
}

#[test]
fn payloads_of_other_versions_are_read() {
    for (body, version, words) in hand_made() {
        let (number, found) = read(&sealed(&body, version)).expect("a value");
        assert_eq!(found, words, "type {number} of version {version}");
    }
}

#[test]
fn the_envelope_is_checked() {
    let good = sealed(b"\0\x01x", 10);
    assert!(read(&good).is_ok());
    for version in [0, 6, 12] {
        assert!(read(&sealed(b"\0\x01x", version)).is_ok(), "{version}");
    }
    for version in [16, 79, 81, u16::MAX] {
        let payload = sealed(b"\0\x01x", version);
        assert!(matches!(read(&payload), Err(Error::Envelope)), "{version}");
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(matches!(read(&bad), Err(Error::Envelope)), "{at}");
    }
    for len in 0..10 {
        assert!(matches!(read(&good[..len]), Err(Error::Envelope)), "{len}");
    }
    assert!(matches!(read(&sealed(b"", 10)), Err(Error::Corrupt(_))));
}

#[test]
fn what_is_not_there_yet_is_named() {
    for number in [6, 7] {
        assert!(matches!(
            kind_of(number),
            Err(Error::Unsupported("values of modules"))
        ));
    }
    for number in [28, 33] {
        assert!(matches!(kind_of(number), Err(Error::Unsupported(_))));
    }
    for number in [8, 34, 200, 255] {
        assert!(
            matches!(kind_of(number), Err(Error::Corrupt(_))),
            "{number}"
        );
    }
}

#[test]
fn hostile_values() {
    let list = |nodes: &[u8]| [&[kind::LIST_QUICKLIST_2][..], nodes].concat();
    let huge = [0x81, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
    for body in [
        // Lengths and counts without the bytes.
        [&[kind::STRING][..], &huge].concat(),
        [&[kind::LIST][..], &huge].concat(),
        [&[kind::SET][..], &huge, b"\x01a"].concat(),
        [&[kind::HASH][..], &huge, b"\x01a\x01b"].concat(),
        [&[kind::ZSET_2][..], &huge].concat(),
        list(&huge),
        [&[kind::STRING, 0xC3][..], &huge, &huge].concat(),
        b"\0\xC3\x02\x80\xFF\xFF\xFF\xFF\0a".to_vec(),
        // Encodings that do not exist.
        b"\0\x82\0\0\0\0".to_vec(),
        b"\0\xC4".to_vec(),
        list(b"\x01\x03\x01a"),
        list(b"\x01\xC0\x02\x01a"),
        // Incomplete pairs.
        one_string(kind::HASH_LISTPACK, &packed(&[b"a", b"b", b"c"])),
        one_string(
            kind::HASH_LISTPACK_EX_PRE_GA,
            &packed(&[b"a", b"b", b"0", b"c"]),
        ),
        one_string(
            kind::HASH_LISTPACK_EX_PRE_GA,
            &packed(&[b"a", b"b", b"soon"]),
        ),
        one_string(
            kind::HASH_LISTPACK_EX_PRE_GA,
            &packed(&[b"a", b"b", b"281474976710656"]),
        ),
        // Fields that are not in the order of their times, and those without one behind them.
        one_string(
            kind::HASH_LISTPACK_EX_PRE_GA,
            &packed(&[b"a", b"b", b"2000", b"c", b"d", b"1999"]),
        ),
        one_string(
            kind::HASH_LISTPACK_EX_PRE_GA,
            &packed(&[b"a", b"b", b"0", b"c", b"d", b"1999"]),
        ),
        one_string(kind::ZSET_LISTPACK, &packed(&[b"a"])),
        one_string(kind::ZSET_LISTPACK, &packed(&[b"a", b"nan"])),
        one_string(kind::ZSET_LISTPACK, &packed(&[b"a", b"one"])),
        one_string(kind::ZSET_ZIPLIST, &ziplist(&[b"a", b""])),
        b"\x03\x01\x01a\xFD".to_vec(),
        [b"\x05\x01\x01a".as_slice(), &f64::NAN.to_le_bytes()].concat(),
        // Integers out of order, or too many of them.
        one_string(kind::SET_INTSET, b"\x02\0\0\0\x02\0\0\0\x02\0\x01\0"),
        one_string(kind::SET_INTSET, b"\x02\0\0\0\x02\0\0\0\x01\0\x01\0"),
        one_string(kind::SET_INTSET, b"\x02\0\0\0\xFF\xFF\xFF\xFF\x01\0"),
        one_string(kind::SET_INTSET, b"\x03\0\0\0\x01\0\0\0\x01\0\0"),
    ] {
        let found = read(&sealed(&body, 10));
        let refused = matches!(found, Err(Error::Corrupt(_) | Error::TooLong(_)));
        assert!(refused, "{} → {found:?}", hex(&body));
    }
    for body in [
        vec![kind::LIST, 0],
        vec![kind::SET, 0],
        vec![kind::HASH, 0],
        vec![kind::ZSET_2, 0],
        list(&[0]),
        one_string(kind::HASH_LISTPACK, &packed(&[])),
        one_string(kind::LIST_ZIPLIST, &ziplist(&[])),
        one_string(kind::HASH_ZIPMAP, b"\0\xFF"),
        one_string(kind::SET_INTSET, b"\x02\0\0\0\0\0\0\0"),
    ] {
        assert!(
            matches!(read(&sealed(&body, 10)), Err(Error::Empty)),
            "{}",
            hex(&body)
        );
    }
}

/// Flips each bit of the redundant bytes in packed collections.
#[test]
fn packed_collections_that_lie_about_themselves() {
    let elements: &[&[u8]] = &[b"one", b"2", b"-3000", &LONG[..200], b"70000", b"end"];
    let check = |number: u8, good: &[u8], at: usize| {
        assert!(read(&sealed(&one_string(number, good), 10)).is_ok());
        for bit in 0..8 {
            let mut bad = good.to_vec();
            bad[at] ^= 1 << bit;
            let found = read(&sealed(&one_string(number, &bad), 10));
            assert!(
                found.is_err(),
                "type {number}, byte {at}, bit {bit}: {found:?}"
            );
        }
    };
    let good = packed(elements);
    // The lengths, the count, the terminator, and the reference behind `one`.
    for at in [0, 1, 2, 3, 4, 5, 10, good.len() - 1] {
        check(kind::SET_LISTPACK, &good, at);
    }
    let good = ziplist(elements);
    // The same, and the reference of the second element, after `one`.
    for at in (0..10).chain([10, 15, good.len() - 1]) {
        check(kind::LIST_ZIPLIST, &good, at);
    }
    let good = zipmap(&[(b"f", b"v")]);
    for at in [0, good.len() - 1] {
        check(kind::HASH_ZIPMAP, &good, at);
    }
    // A length in five bytes that would fit into one.
    for body in [
        b"\x01\xFE\x01\0\0\0f\x01\0v\xFF".as_slice(),
        b"\x01\x01f\xFE\x01\0\0\0\0v\xFF",
    ] {
        let payload = sealed(&one_string(kind::HASH_ZIPMAP, body), 10);
        assert!(
            matches!(read(&payload), Err(Error::Corrupt("a zipmap"))),
            "{}",
            hex(body)
        );
    }
}

#[test]
fn uncounted_lists_are_walked() {
    let mut builder = listpack::Builder::default();
    for n in 0..70_000u32 {
        builder.push(n.to_string().as_bytes());
    }
    let bytes = builder.finish();
    let mut count = 0;
    let found = listpack::for_each(&bytes, |element| {
        assert_eq!(element, count.to_string().as_bytes());
        count += 1;
        Ok::<(), Error>(())
    });
    assert_eq!(found.expect("a listpack"), 70_000);
}

#[test]
fn strings_have_a_limit() {
    let mut encoder = Encoder::new(true);
    let mut body = vec![kind::STRING];
    encoder.string(LONG, &mut body);
    assert!(body.len() < 1_000);
    let mut reader = Reader::new(&body[1..], LONG.len() as u64 - 1);
    let mut out = Vec::new();
    assert!(matches!(
        reader.string(&mut out),
        Err(Error::TooLong(20_000))
    ));
}

#[test]
fn collections_larger_than_small_are_streamed() {
    let mut encoder = Encoder::new(false);
    let mut out = Vec::new();
    encoder.begin(ValueType::List, 3_000, Some(b"key"));
    let item = [b'i'; 5_000];
    for n in 0..3_000 {
        encoder
            .element(Element::Item(&item), &mut out)
            .expect("room");
        assert!(n < 900 || !out.is_empty(), "held for ever");
    }
    encoder.end(&mut out).expect("all of them");
    assert_eq!(&out[..7], b"\x01\x03key\x4B\xB8");
    // Too few elements, too many, and elements of another type.
    encoder.begin(ValueType::Set, 2, None);
    encoder
        .element(Element::member(b"1"), &mut out)
        .expect("room");
    assert!(encoder.end(&mut out).is_err());
    encoder.begin(ValueType::Set, 1, None);
    assert!(encoder.element(Element::Item(b"1"), &mut out).is_err());
    encoder
        .element(Element::member(b"1"), &mut out)
        .expect("room");
    assert!(encoder.element(Element::member(b"2"), &mut out).is_err());
}

#[test]
fn a_file_begins_with_the_version() {
    assert_eq!(&encode::magic(false), b"REDIS0010");
    assert_eq!(&encode::magic(true), b"REDIS0012");
}

/// Decodes mutated payloads with a valid checksum: none may cause a panic.
/// `KEDIS_FUZZ_MS` extends the time.
#[test]
fn mutated_payloads_never_panic() {
    let ms = std::env::var("KEDIS_FUZZ_MS")
        .ok()
        .and_then(|ms| ms.parse().ok());
    let seed = std::env::var("KEDIS_FUZZ_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let mut rng = fastrand::Rng::with_seed(seed.unwrap_or(1));
    let small = |body: &Vec<u8>| body.len() < 20_000;
    let mut seeds: Vec<Vec<u8>> = fixtures()
        .iter()
        .map(|fixture| fixture.payload[..fixture.payload.len() - 10].to_vec())
        .chain(hand_made().into_iter().map(|(body, _, _)| body))
        .filter(small)
        .collect();
    let end = std::time::Instant::now() + std::time::Duration::from_millis(ms.unwrap_or(300));
    let (mut rounds, mut good) = (0u64, 0u64);
    while rounds < 20_000 || ms.is_some() {
        if rounds % 64 == 0 && std::time::Instant::now() > end {
            break;
        }
        rounds += 1;
        let mut body = seeds[rng.usize(..seeds.len())].clone();
        mutate(&mut body, &mut rng);
        let version = if rng.u8(..8) == 0 { 80 } else { 10 };
        if read(&sealed(&body, version)).is_ok() {
            good += 1;
            if seeds.len() < 500 && small(&body) {
                seeds.push(body);
            }
        }
    }
    assert!(good > 0 && good < rounds, "{good} of {rounds}");
}

/// Changes a few bytes; also used for files.
pub(crate) fn mutate(body: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    for _ in 0..rng.usize(1..4) {
        if body.is_empty() {
            return;
        }
        let at = rng.usize(..body.len());
        match rng.u8(..6) {
            0 => body[at] ^= 1 << rng.u8(..8),
            1 => body[at] = [0, 1, 0x3F, 0x40, 0x7F, 0x80, 0x81, 0xC3, 0xFE, 0xFF][rng.usize(..10)],
            2 => body[at] = body[at].wrapping_add(rng.u8(..3)).wrapping_sub(1),
            3 => body.truncate(at),
            4 => {
                let end = (at + rng.usize(1..20)).min(body.len());
                let copy = body[at..end].to_vec();
                let to = rng.usize(..=body.len());
                body.splice(to..to, copy);
            }
            _ => {
                let end = (at + rng.usize(1..9)).min(body.len());
                body.drain(at..end);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_end(mut body: Vec<u8>, number in 0u8..26, version in prop_oneof![Just(10u16), Just(80)]) {
        body.insert(0, number);
        let _ = read(&sealed(&body, version));
    }

    #[test]
    fn listpacks_round_trip(elements in prop::collection::vec(
        prop_oneof![any::<i64>().prop_map(|n| (n >> (n & 63)).to_string().into_bytes()), any::<Vec<u8>>()],
        0..50,
    )) {
        let elements: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
        let bytes = packed(&elements);
        let mut found = Vec::new();
        listpack::for_each(&bytes, |element| {
            found.push(element.to_vec());
            Ok::<(), Error>(())
        }).expect("a listpack");
        prop_assert_eq!(&found, &elements);
        let bytes = ziplist(&elements);
        let mut found = Vec::new();
        super::ziplist::for_each(&bytes, |element| {
            found.push(element.to_vec());
            Ok::<(), Error>(())
        }).expect("a ziplist");
        prop_assert_eq!(&found, &elements);
    }

    #[test]
    fn intsets_round_trip(numbers: BTreeSet<i64>, shift in 0u32..64) {
        let numbers: BTreeSet<i64> = numbers.iter().map(|n| n >> shift).collect();
        let numbers: Vec<i64> = numbers.into_iter().collect();
        let bytes = intset::build(&numbers).expect("not too many");
        let mut found = Vec::new();
        intset::for_each(&bytes, |text| {
            found.push(String::from_utf8_lossy(text).parse::<i64>().expect("a number"));
            Ok::<(), Error>(())
        }).expect("an intset");
        prop_assert_eq!(found, numbers);
    }

    #[test]
    fn back_references_are_as_long_as_redis_has_them(len in prop_oneof![0usize..300, 16_300usize..16_500]) {
        let text = vec![b'x'; len];
        let bytes = packed(&[&text]);
        prop_assert!(listpack::for_each(&bytes, |_| Ok::<(), Error>(())).is_ok());
    }
}

#[test]
fn dialects_differ_in_one_number() {
    let body = [&[kind::HASH_METADATA_PRE_GA, 1][..], b"\0\x01f\x01v"].concat();
    let redis = payload::open(&sealed(&body, 12))
        .expect("a payload")
        .dialect;
    assert_eq!(redis, Dialect::Redis);
    assert!(read(&sealed(&body, 12)).is_ok());
    assert!(read(&sealed(&body, 80)).is_err());
}

/// The reader goes by numbers, so the compiler does not name what it lacks for a new type.
#[test]
fn the_type_number_of_each_type_is_read() {
    for &value_type in ValueType::ALL {
        let number = encode::written_plain(value_type);
        if number == kind::MODULE_2 {
            let id = super::module::id_of(value_type).expect("an id");
            assert_eq!(id.value_type().ok(), Some(value_type));
            continue;
        }
        assert_eq!(kind_of(number).ok(), Some(value_type), "number {number}");
        let mut reader = Reader::new(&[0; 64][..], MAX);
        let read = read_value(&mut reader, number, Dialect::Redis, |_| Ok::<(), Error>(()));
        let is_unknown = matches!(read, Err(Error::Corrupt("a type that does not exist")));
        assert!(!is_unknown, "{value_type:?}, number {number}");
    }
}
