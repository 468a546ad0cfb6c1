//! Loading files into an empty database.

use super::*;
use crate::base::time::UnixMs;
use crate::encoding::ValueType;
use crate::exec::testing::{Client, START_MS};
use crate::rdb::file::FileWriter;
use crate::rdb::timed_hashes;
use crate::resp::Value;

/// Counts reports; a library's text is its name.
#[derive(Default)]
struct Reports(usize);

impl Load for Reports {
    fn report(&mut self, _: &Loaded) {
        self.0 += 1;
    }

    fn add_library(&mut self, code: &[u8]) -> Result<Vec<u8>, String> {
        Ok(code.to_vec())
    }
}

fn load(client: &Client, bytes: &[u8]) -> Result<Loaded, ImportError> {
    let mut txn = Txn::new(client.server().engine.clone());
    import(&mut txn, bytes, 1 << 30, START_MS, &mut Reports::default())
}

fn file(write: impl FnOnce(&mut FileWriter<Vec<u8>>)) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), true, false);
    write(&mut writer);
    writer.end().expect("a Vec takes all")
}

fn put(writer: &mut FileWriter<Vec<u8>>, key: &[u8], elements: &[Element<'_>]) {
    let kind = match elements.first() {
        Some(Element::Item(_)) => ValueType::List,
        Some(Element::Member { .. }) => ValueType::Set,
        Some(Element::Scored(..)) => ValueType::Zset,
        _ => ValueType::Hash,
    };
    let (encoder, buffer, mut outlet) = writer.parts();
    encoder.begin(kind, elements.len() as u64, Some(key));
    for element in elements {
        encoder.element(*element, buffer).expect("room");
        outlet.flush(buffer).expect("a Vec takes all");
    }
    encoder.end(buffer).expect("all of them");
}

fn field<'a>(field: &'a [u8], value: &'a [u8]) -> Element<'a> {
    Element::Field {
        field,
        value,
        expire_ms: UnixMs::NONE,
    }
}

#[test]
fn keys_of_all_types_arrive() {
    let mut client = Client::new();
    let bytes = file(|writer| {
        writer.select_db(0, 4, 1);
        writer
            .encoder
            .value_string(Some(b"s"), b"text", &mut writer.buffer);
        put(writer, b"l", &[Element::Item(b"a"), Element::Item(b"")]);
        writer.expires(START_MS + 5_000);
        put(writer, b"h", &[field(b"f", b"v")]);
        writer.expires(START_MS.before(1));
        put(writer, b"over", &[field(b"f", b"v")]);
        writer.select_db(3, 1, 0);
        put(
            writer,
            b"z",
            &[
                Element::Scored(1.5, b"m"),
                Element::Scored(f64::INFINITY, b"n"),
            ],
        );
    });
    let loaded = load(&client, &bytes).expect("a file");
    let expected = Loaded {
        keys: 4,
        elements: 6,
        expired: 1,
        bytes: bytes.len() as u64,
        ..Loaded::default()
    };
    assert_eq!(loaded, expected);
    assert_eq!(client.run("get s").as_bytes(), Some(&b"text"[..]));
    assert_eq!(client.run("llen l"), Value::Int(2));
    assert_eq!(client.run("pttl h"), Value::Int(5_000));
    assert_eq!(client.run("dbsize"), Value::Int(3));
    client.run("select 3");
    assert_eq!(client.run("zscore z m").as_bytes(), Some(&b"1.5"[..]));
    assert!(client.logged().is_empty());
    client.check();
}

/// Collections that take several commits, and the remains of one that is never
/// completed.
#[test]
fn collections_larger_than_a_commit() {
    let client = Client::new();
    let names: Vec<Vec<u8>> = (0..2_000)
        .map(|n| format!("{n:0>10000}").into_bytes())
        .collect();
    let value = vec![b'v'; 3_000];
    let items: Vec<Element<'_>> = names.iter().map(|n| Element::Item(n)).collect();
    let members: Vec<Element<'_>> = names.iter().map(|n| Element::member(n)).collect();
    let fields: Vec<Element<'_>> = names.iter().map(|n| field(n, &value)).collect();
    let scored: Vec<Element<'_>> = (0..)
        .zip(&names)
        .map(|(n, name)| Element::Scored(f64::from(n % 7), name))
        .collect();
    let bytes = file(|writer| {
        for (key, elements) in [
            (b"l", &items),
            (b"s", &members),
            (b"h", &fields),
            (b"z", &scored),
        ] {
            put(writer, key, elements);
        }
    });
    let mut txn = Txn::new(client.server().engine.clone());
    let mut reports = Reports::default();
    let loaded = import(&mut txn, &bytes[..], 1 << 30, START_MS, &mut reports).expect("a file");
    assert_eq!((loaded.keys, loaded.elements), (4, 8_000));
    assert!(reports.0 > 8, "{} commits", reports.0);
    drop(txn);
    let mut client = client;
    for (line, expected) in [
        ("llen l", 2_000),
        ("scard s", 2_000),
        ("hlen h", 2_000),
        ("zcard z", 2_000),
    ] {
        assert_eq!(client.run(line), Value::Int(expected), "{line}");
    }
    assert_eq!(
        client.run("lindex l 1999").as_bytes(),
        Some(&names[1999][..])
    );
    client.check();

    // The same element twice, in different commits.
    for kind in ["member", "field", "scored"] {
        let mut client = Client::new();
        let mut twice = match kind {
            "member" => members.clone(),
            "field" => fields.clone(),
            _ => scored.clone(),
        };
        twice.push(match twice[0] {
            Element::Scored(_, member) => Element::Scored(99.0, member),
            other => other,
        });
        let error = load(&client, &file(|writer| put(writer, b"k", &twice)));
        let Err(ImportError::Key { key, error, .. }) = error else {
            panic!("{kind}: {error:?}");
        };
        assert_eq!(
            (key.as_str(), error.to_string().as_str()),
            ("k", "corrupt RDB data: an element that is there twice")
        );
        assert_eq!(client.run("exists k"), Value::Int(0));
        assert!(client.server().engine.reclaim_backlog(10).expect("a count") == 1);
        client.check();
    }
}

#[test]
fn errors_name_the_key() {
    let text = |bytes: &[u8]| {
        let client = Client::new();
        let error = load(&client, bytes).expect_err("an error");
        client.check();
        error.to_string()
    };
    let twice = file(|writer| {
        put(writer, b"a", &[Element::Item(b"x")]);
        put(writer, b"a", &[Element::Item(b"x")]);
    });
    assert_eq!(
        text(&twice),
        "key \"a\" in DB 0, before byte 28: corrupt RDB data: the key is there twice"
    );
    let module = file(|writer| writer.buffer.extend_from_slice(b"\x07\x01q\0"));
    assert_eq!(
        text(&module),
        "key \"q\" in DB 0, before byte 13: values of modules are not supported"
    );
    let db = file(|writer| writer.select_db(16, 0, 0));
    assert_eq!(
        text(&db),
        "the file has keys in DB 16, but `databases` is 16"
    );
    assert_eq!(
        text(b"REDIS0099"),
        "byte 0: RDB files of version 99 are not known here"
    );
    assert_eq!(
        text(b"hello, world"),
        "byte 0: corrupt RDB data: this is no RDB file"
    );
    assert_eq!(
        text(b"REDIS0010\xFE"),
        "byte 9: corrupt RDB data: it ends too early"
    );
}

#[test]
fn empty_collections_are_passed_over() {
    let mut client = Client::new();
    let bytes = file(|writer| {
        writer.buffer.extend_from_slice(b"\x01\x05empty\0");
        put(writer, b"a", &[Element::Item(b"x")]);
    });
    let loaded = load(&client, &bytes).expect("a file");
    assert_eq!((loaded.keys, loaded.empty), (1, 1));
    assert_eq!(client.run("dbsize"), Value::Int(1));
    client.check();
}

#[test]
fn times_of_fields_are_kept_and_fields_past_them_left_out() {
    let mut client = Client::new();
    let mut hashes = timed_hashes(
        [b"over", b"plain", b"later"],
        START_MS.before(1),
        START_MS + 60_000,
    );
    hashes.extend(timed_hashes([b"a", b"b", b"c"], START_MS + 1, START_MS + 2));
    let bytes = file(|writer| {
        writer.select_db(0, 8, 0);
        for (n, (number, value)) in hashes.iter().enumerate() {
            writer.buffer.push(*number);
            let key = format!("h{n}");
            writer.encoder.string(key.as_bytes(), &mut writer.buffer);
            writer.buffer.extend_from_slice(value);
        }
    });
    let loaded = load(&client, &bytes).expect("a file");
    assert_eq!((loaded.keys, loaded.elements), (8, 20));
    assert_eq!(loaded.losses().count(), 0);
    for n in 0..8 {
        let fields = if n < 4 { 2 } else { 3 };
        assert_eq!(
            client.run(&format!("hlen h{n}")),
            Value::Int(fields),
            "h{n}"
        );
        let (later, at_ms) = match n < 4 {
            true => ("later", START_MS + 60_000),
            false => ("c", START_MS + 2),
        };
        assert_eq!(
            client.run(&format!("hpexpiretime h{n} fields 1 {later}")),
            Value::Array(vec![Value::Int(at_ms.as_i64())]),
            "h{n}"
        );
    }
    client.check();
}
