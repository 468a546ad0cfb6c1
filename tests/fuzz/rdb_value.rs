//! The readers of RDB values and files under libFuzzer; see `run`.
#![no_main]
#![allow(dead_code)]

// The sources themselves, so that RocksDB need not be built for it.
#[path = "../../../src/base.rs"]
mod base;
#[path = "../../../src/encoding.rs"]
mod encoding;
#[path = "../../../src/rdb.rs"]
mod rdb;

use rdb::decode::{kind_of, read_value};
use rdb::encode::Encoder;
use rdb::file::{Entry, FileReader};
use rdb::reader::Reader;
use rdb::stream::{Filling, Writer};
use rdb::{Dialect, Element, Error, StreamPart};

/// Longest string that is taken.
const MAX_STRING: u64 = 1 << 20;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((&number, value)) = data.split_first() {
        for dialect in [Dialect::Redis, Dialect::Valkey] {
            check_value(number, value, dialect);
        }
    }
    check_file(data);
});

/// What an element is, owned.
fn owned(element: Element<'_>) -> (u64, u64, Vec<u8>, Vec<u8>) {
    match element {
        Element::String(bytes) => (0, 0, bytes.to_vec(), Vec::new()),
        Element::Item(bytes) => (1, 0, bytes.to_vec(), Vec::new()),
        Element::Member(bytes) => (2, 0, bytes.to_vec(), Vec::new()),
        Element::Scored(score, member) => {
            assert!(!score.is_nan(), "a score that is no number");
            (3, score.to_bits(), member.to_vec(), Vec::new())
        }
        // Encoders do not write the times of fields.
        Element::Field { field, value, .. } => (4, 0, field.to_vec(), value.to_vec()),
        Element::Stream(part) => (5, 0, shown(part).into_bytes(), Vec::new()),
    }
}

/// A part of a stream, without what the version that is written does not have.
fn shown(part: StreamPart<'_>) -> String {
    let part = match part {
        StreamPart::Consumer { name, seen_ms, pending, .. } => {
            StreamPart::Consumer { name, seen_ms, active_ms: 0, pending }
        }
        StreamPart::Group { name, last, read, pending } => {
            StreamPart::Group { name, last, read: Some(read.unwrap_or(-1)), pending }
        }
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

/// The stream, written again.
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
        writer.part(&mut encoder, part, &mut out).expect("parts that were read");
    });
    out
}

fn read(number: u8, value: &[u8], dialect: Dialect) -> Result<Vec<(u64, u64, Vec<u8>, Vec<u8>)>, Error> {
    let mut elements = Vec::new();
    let mut reader = Reader::new(value, MAX_STRING);
    let count = read_value(&mut reader, number, dialect, |element| {
        elements.push(owned(element));
        Ok::<(), Error>(())
    })?;
    if kind_of(number).ok() != Some(encoding::Kind::Stream) {
        assert_eq!(count, elements.len() as u64, "another number of elements");
    }
    assert!(count > 0, "a collection without elements");
    Ok(elements)
}

/// What can be read can be written, and is then read as the same.
fn check_value(number: u8, value: &[u8], dialect: Dialect) {
    let Ok(mut elements) = read(number, value, dialect) else {
        return;
    };
    let kind = kind_of(number).expect("a type that was read");
    let (mut encoder, mut out) = (Encoder::new(true), Vec::new());
    if kind == encoding::Kind::Stream {
        out = rewritten(number, value);
    } else if number == rdb::kind::STRING {
        encoder.value_string(None, &elements[0].2, &mut out);
    } else {
        // The receiver of elements refuses those that occur twice.
        if elements[0].0 != 1 {
            elements.sort();
            elements.dedup_by(|a, b| a.2 == b.2);
        }
        encoder.begin(kind, elements.len() as u64, None);
        for (kind, bits, a, b) in &elements {
            let element = match kind {
                1 => Element::Item(a),
                2 => Element::Member(a),
                3 => Element::Scored(f64::from_bits(*bits), a),
                _ => Element::Field { field: a, value: b, expire_ms: 0 },
            };
            encoder.element(element, &mut out).expect("an element of its kind");
        }
        encoder.end(&mut out).expect("as many as announced");
    }
    let (&number, value) = out.split_first().expect("a type");
    let mut again = read(number, value, Dialect::Redis).expect("what was written");
    if (2..5).contains(&elements[0].0) {
        elements.sort();
        again.sort();
    }
    assert_eq!(elements, again);
}

fn check_file(data: &[u8]) {
    let Ok(mut file) = FileReader::open(data, MAX_STRING) else {
        return;
    };
    loop {
        let position = file.position();
        match file.next() {
            Ok(Entry::Key(head)) => {
                let read = file.value(head.kind, |element| {
                    owned(element);
                    Ok::<(), Error>(())
                });
                if !matches!(read, Ok(_) | Err(Error::Empty)) {
                    return;
                }
            }
            Ok(Entry::End) | Err(_) => return,
            Ok(_) => {}
        }
        assert!(file.position() > position, "it does not move on");
    }
}
