//! Values in the format of RDB files and of payloads for DUMP and RESTORE.

use crate::instance::{Instance, with_kept};
use kedis::base::hash::crc64;
use kedis::base::time::UnixMs;
use kedis::encoding::ValueType;
use kedis::rdb::decode::{kind_of, read_value};
use kedis::rdb::encode::Encoder;
use kedis::rdb::reader::Reader;
use kedis::rdb::stream::{Filling, Writer};
use kedis::rdb::{Dialect, Element, Error, StreamPart, kind};
use kedis::resp::Value;
use std::cell::RefCell;

/// Longest string.
pub const MAX_STRING: u64 = 1 << 20;
/// A version whose payloads all servers accept, and one of Valkey.
const VERSIONS: [u16; 2] = [10, 80];

/// Reads and changes of values of each type, for what RESTORE has accepted.
const CHANGES: &str = "\
APPEND k x
HSET k field value
HPEXPIRE k 1000 FIELDS 1 field
RPUSH k item
LPOP k
SADD k member
ZADD k 1 member
XADD k * field value
XTRIM k MAXLEN 1
SIADD k 7
SIRANGE k 0 5
JSON.GET k $..*
JSON.NUMINCRBY k $..* 1
JSON.ARRAPPEND k $..* 1
BF.ADD k item
BF.EXISTS k other
CF.ADD k item
CF.DEL k item
CMS.INCRBY k item 1
CMS.QUERY k other
TOPK.ADD k item
TOPK.LIST k
TDIGEST.ADD k 1 2
TDIGEST.QUANTILE k 0.5";

thread_local! {
    static INSTANCE: RefCell<Option<(Instance, u32)>> = const { RefCell::new(None) };
}

/// The first byte is the value's type. A value that can be read can be written and read again
/// unchanged; a payload that RESTORE accepts is returned by DUMP.
pub fn check(data: &[u8]) {
    let Some((&number, value)) = data.split_first() else {
        return;
    };
    for dialect in [Dialect::Redis, Dialect::Valkey] {
        check_value(number, value, dialect);
    }
    with_kept(&INSTANCE, Instance::new, |instance| {
        VERSIONS
            .iter()
            .for_each(|version| restore(instance, data, *version));
    });
}

fn restore(instance: &mut Instance, body: &[u8], version: u16) {
    let mut payload = [body, &version.to_le_bytes()].concat();
    let crc = crc64(0, &payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    let restored = instance.run(&[b"RESTORE", b"k", b"0", &payload]);
    if restored.as_error().is_some() {
        assert_eq!(
            instance.keys(),
            0,
            "a part of what was refused: {restored:?}"
        );
        return;
    }
    // A hash of which all fields have expired is accepted, and creates no key.
    if instance.keys() > 0 {
        let dump = instance.must(&[b"DUMP", b"k"]);
        let dump = dump.as_bytes().expect("a payload");
        instance.must(&[b"RESTORE", b"l", b"0", dump]);
        // The form of Redis 7.0 has no place for all that newer streams hold.
        let newer = [kind::STREAM_LISTPACKS_4, kind::STREAM_LISTPACKS_5];
        let is_whole = !body.first().is_some_and(|kind| newer.contains(kind));
        let digests = instance.must(&[b"DEBUG", b"DIGEST-VALUE", b"k", b"l"]);
        match digests.as_slice() {
            Some([k, l]) if (k == l || !is_whole) && *k != Value::Null => {}
            _ => panic!("{digests:?}"),
        }
        for line in CHANGES.lines() {
            // All but those of its type are refused.
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            instance.run(&words);
        }
        instance.check();
        instance.must(&[b"DEL", b"k", b"l"]);
    }
    assert_eq!(instance.keys(), 0);
}

/// An element: its kind, the bits of a score, and its byte strings.
type Owned = (u64, u64, Vec<u8>, Vec<u8>);

pub fn owned(element: Element<'_>) -> Owned {
    match element {
        Element::String(bytes) => (0, 0, bytes.to_vec(), Vec::new()),
        Element::Item(bytes) => (1, 0, bytes.to_vec(), Vec::new()),
        Element::Member { member, expire_ms } => (2, expire_ms.0, member.to_vec(), Vec::new()),
        Element::Scored(score, member) => {
            assert!(!score.is_nan(), "a score that is no number");
            (3, score.to_bits(), member.to_vec(), Vec::new())
        }
        // The encoder does not write field expiry.
        Element::Field { field, value, .. } => (4, 0, field.to_vec(), value.to_vec()),
        Element::Stream(part) => (5, 0, shown(part).into_bytes(), Vec::new()),
        Element::Module(part) => (6, 0, format!("{part:?}").into_bytes(), Vec::new()),
    }
}

/// A part of a stream, without the fields that the written version lacks.
fn shown(part: StreamPart<'_>) -> String {
    let part = match part {
        StreamPart::Consumer {
            name,
            seen_ms,
            pending,
            ..
        } => StreamPart::Consumer {
            name,
            seen_ms,
            active_ms: 0,
            pending,
        },
        StreamPart::Group {
            name,
            last,
            read,
            pending,
        } => StreamPart::Group {
            name,
            last,
            read: Some(read.unwrap_or(-1)),
            pending,
        },
        part => part,
    };
    format!("{part:?}")
}

/// Calls `each` with the parts of a stream that can be read.
fn each_part(number: u8, value: &[u8], mut each: impl FnMut(StreamPart<'_>)) {
    let mut reader = Reader::new(value, MAX_STRING);
    let read = read_value(&mut reader, number, Dialect::Redis, |element| {
        if let Element::Stream(part) = element {
            each(part);
        }
        Ok::<(), Error>(())
    });
    read.expect("what was read before");
}

/// The stream, encoded again.
fn rewritten(number: u8, value: &[u8]) -> Vec<u8> {
    let (mut filling, mut nodes) = (Filling::default(), 0);
    each_part(number, value, |part| {
        if let StreamPart::Entry { fields, .. } = part {
            nodes += u64::from(filling.begins_node(fields.len()));
        }
    });
    let (mut encoder, mut out) = (Encoder::new(true), Vec::new());
    let mut writer = Writer::begin(&mut encoder, nodes, None, &mut out);
    each_part(number, value, |part| {
        writer
            .part(&mut encoder, part, &mut out)
            .expect("parts that were read");
    });
    out
}

fn read(number: u8, value: &[u8], dialect: Dialect) -> Result<Vec<Owned>, Error> {
    let mut elements = Vec::new();
    let mut reader = Reader::new(value, MAX_STRING);
    let count = read_value(&mut reader, number, dialect, |element| {
        elements.push(owned(element));
        Ok::<(), Error>(())
    })?;
    if kind_of(number).ok() != Some(ValueType::Stream) {
        assert_eq!(count, elements.len() as u64, "another number of elements");
    }
    assert!(count > 0, "a collection without elements");
    Ok(elements)
}

/// The same for a value of a module.
fn check_module(value: &[u8], elements: &[Owned]) {
    let (mut encoder, mut out) = (Encoder::new(true), Vec::new());
    let mut reader = Reader::new(value, MAX_STRING);
    let read = read_value(&mut reader, kind::MODULE_2, Dialect::Redis, |element| {
        let Element::Module(part) = element else {
            panic!("an element of another type");
        };
        encoder.module_part(part, None, &mut out);
        Ok::<(), Error>(())
    });
    read.expect("what was read before");
    encoder.end_module(&mut out);
    let again = self::read(kind::MODULE_2, &out[1..], Dialect::Redis);
    assert_eq!(again.expect("what was written"), elements);
}

/// A value that can be read can be written, and read again unchanged.
fn check_value(number: u8, value: &[u8], dialect: Dialect) {
    let Ok(mut elements) = read(number, value, dialect) else {
        return;
    };
    if number == kind::MODULE_2 {
        return check_module(value, &elements);
    }
    let kind = kind_of(number).expect("a type that was read");
    let (mut encoder, mut out) = (Encoder::new(true), Vec::new());
    if kind == ValueType::Stream {
        out = rewritten(number, value);
    } else if number == kind::STRING {
        encoder.value_string(None, &elements[0].2, &mut out);
    } else {
        // The receiver of the elements refuses repeated ones.
        if elements[0].0 != 1 {
            elements.sort();
            elements.dedup_by(|a, b| a.2 == b.2);
        }
        encoder.begin(kind, elements.len() as u64, None);
        for (sort, bits, a, b) in &elements {
            let element = match sort {
                1 => Element::Item(a),
                2 => Element::Member {
                    member: a,
                    expire_ms: UnixMs(*bits),
                },
                3 => Element::Scored(f64::from_bits(*bits), a),
                _ => Element::Field {
                    field: a,
                    value: b,
                    expire_ms: UnixMs::NONE,
                },
            };
            encoder
                .element(element, &mut out)
                .expect("an element of its kind");
        }
        encoder.end(&mut out).expect("as many as announced");
    }
    let is_whole = number < kind::STREAM_LISTPACKS_4;
    let (&number, value) = out.split_first().expect("a type");
    let mut again = read(number, value, Dialect::Redis).expect("what was written");
    if !is_whole {
        return;
    }
    if (2..5).contains(&elements[0].0) {
        elements.sort();
        again.sort();
    }
    assert_eq!(elements, again);
}
