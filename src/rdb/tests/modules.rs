//! Values of modules.

use crate::rdb::decode::read_value;
use crate::rdb::encode::Encoder;
use crate::rdb::module::{ModuleId, ModulePart};
use crate::rdb::reader::Reader;
use crate::rdb::{Dialect, Element, Error, kind};

#[test]
fn names_and_versions() {
    let id = ModuleId::new(b"ReJSON-RL", 3);
    assert_eq!((id.name().as_str(), id.version()), ("ReJSON-RL", 3));
    assert!(id.is_same_type(ModuleId::new(b"ReJSON-RL", 0)));
    assert!(!id.is_same_type(ModuleId::new(b"MBbloom--", 3)));
    // A is 0, so the id of nine of them is the version alone.
    assert_eq!(ModuleId::new(b"AAAAAAAAA", 5), ModuleId(5));
    assert_eq!(ModuleId::new(b"AAAAAAAAB", 0), ModuleId(1 << 10));
}

#[test]
fn parts_are_read_as_they_were_written() {
    let parts = [
        ModulePart::Begin(ModuleId::new(b"ReJSON-RL", 3)),
        ModulePart::Unsigned(u64::MAX),
        ModulePart::Float(1.5),
        ModulePart::Double(f64::NEG_INFINITY),
        ModulePart::Text(b"a text that is long enough to be compressed: aaaaaaaaaaaaaaaaaaa"),
        ModulePart::Text(b"7"),
    ];
    let (mut encoder, mut out) = (Encoder::new(true), Vec::new());
    for part in parts {
        encoder.module_part(part, Some(b"key"), &mut out);
    }
    encoder.end_module(&mut out);
    assert_eq!(out[..5], *b"\x07\x03key");
    let mut reader = Reader::new(&out[5..], 1 << 20);
    let mut at = 0;
    let count = read_value(&mut reader, kind::MODULE_2, Dialect::Redis, |element| {
        assert_eq!(element, Element::Module(parts[at]));
        at += 1;
        Ok::<(), Error>(())
    });
    assert_eq!((count.ok(), at), (Some(6), 6));
    assert!(reader.input.is_empty());
}

#[test]
fn hostile_parts() {
    for bytes in [
        &b""[..],
        b"\x01",
        b"\x01\x01\x05",
        b"\x01\x06",
        b"\x01\x05\x81\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
        b"\x01\x04\0",
    ] {
        let mut reader = Reader::new(bytes, 1 << 20);
        let read = read_value(&mut reader, kind::MODULE_2, Dialect::Redis, |_| {
            Ok::<(), Error>(())
        });
        assert!(read.is_err(), "{bytes:?}");
    }
}
