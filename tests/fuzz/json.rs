//! JSON text, paths and RedisJSON's CBOR.

use crate::instance::{Instance, with_kept};
use kedis::resp::Value as Reply;
use kedis::types::json::{Path, Value, cbor};
use std::cell::RefCell;

thread_local! {
    static INSTANCE: RefCell<Option<(Instance, u32)>> = const { RefCell::new(None) };
}

/// Text that can be parsed is stored, and read as the same value.
pub fn check_text(data: &[u8]) {
    let parsed = Value::parse(data);
    with_kept(&INSTANCE, Instance::new, |instance| {
        let reply = instance.run(&[b"JSON.SET", b"k", b"$", data]);
        assert_eq!(reply.as_error().is_none(), parsed.is_ok(), "{reply:?}");
        let Ok(value) = &parsed else { return };
        let text = instance.must(&[b"JSON.GET", b"k"]);
        let again = Value::parse(text.as_bytes().expect("a text"));
        assert_eq!(again.as_ref(), Ok(value));
        instance.must(&[b"DEL", b"k"]);
    });
}

const DOCUMENT: &[u8] =
    br#"{"a":[1,2.5,"x",{"b":null,"c":[true,{"a":3}]}],"b":{"c":"text","d":{}},"$":[[1],[2]]}"#;

/// A path is refused, or selects values that can be changed and removed.
pub fn check_path(data: &[u8]) {
    let parsed = Path::parse(data);
    with_kept(&INSTANCE, Instance::new, |instance| {
        instance.must(&[b"JSON.SET", b"k", b"$", DOCUMENT]);
        let (kind, got) = (
            instance.run(&[b"JSON.TYPE", b"k", data]),
            instance.run(&[b"JSON.GET", b"k", data]),
        );
        match &parsed {
            // A legacy path that is none has no type.
            Err(_) => assert!(got.as_error().is_some(), "{got:?}"),
            Ok(path) if path.projection.is_some() => {
                assert!(kind.as_error().is_some(), "{kind:?}");
                let text = got.as_bytes().expect("a text");
                assert!(matches!(Value::parse(text), Ok(Value::Array(_))), "{got:?}");
            }
            Ok(_) => assert!(kind.as_error().is_none(), "{kind:?}"),
        }
        for command in [
            &[&b"JSON.GET"[..], b"k", data][..],
            &[b"JSON.NUMINCRBY", b"k", data, b"1"],
            &[b"JSON.ARRAPPEND", b"k", data, b"[1]"],
            &[b"JSON.ARRPOP", b"k", data, b"0"],
            &[b"JSON.SET", b"k", data, b"{\"z\":[]}"],
            &[b"JSON.MERGE", b"k", data, b"{\"z\":null,\"y\":1}"],
            &[b"JSON.CLEAR", b"k", data],
            &[b"JSON.DEL", b"k", data],
        ] {
            instance.run(command);
        }
        let left = instance.run(&[b"JSON.GET", b"k"]);
        if left != Reply::Null {
            Value::parse(left.as_bytes().expect("a text")).expect("JSON");
        }
        instance.must(&[b"DEL", b"k"]);
    });
}

/// CBOR is refused, or becomes a value of which the memory was announced.
pub fn check_cbor(data: &[u8]) {
    let mut held = 0;
    let value = cbor::decode(data, &mut |more| {
        held += more;
        Ok(())
    });
    // The value that is not there is counted, too.
    let most = cbor::HELD_PER_BYTE * (data.len() + 1);
    assert!(held <= most as u64, "{held} bytes for {}", data.len());
    if let Ok(value) = value {
        assert!(value.depth() <= 128);
    }
}
