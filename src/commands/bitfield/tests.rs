use super::*;
use crate::exec::testing::Client;
use crate::resp::Value;

fn numbers(client: &mut Client, line: &str) -> Vec<Option<i64>> {
    match client.run(line) {
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::Int(number) => Some(*number),
                _ => None,
            })
            .collect(),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn what_does_not_fit() {
    let field = |signed, width| Field { signed, width };
    for (field, exact, wrapped, saturated) in [
        (field(false, 8), 257, 1, 255),
        (field(false, 8), -1, 255, 0),
        (field(true, 8), 128, -128, 127),
        (field(true, 8), -129, 127, -128),
        (
            field(true, 64),
            i128::from(i64::MAX) + 1,
            i64::MIN,
            i64::MAX,
        ),
        (field(true, 64), i128::from(i64::MIN) * 2, 0, i64::MIN),
        (field(false, 63), -1, i64::MAX, 0),
        (field(true, 1), 1, -1, 0),
        (field(false, 1), 2, 0, 1),
    ] {
        assert_eq!(field.fit(exact, Overflow::Wrap), Some(wrapped), "{field:?}");
        assert_eq!(field.fit(exact, Overflow::Saturate), Some(saturated));
        assert_eq!(field.fit(exact, Overflow::Fail), None);
    }
}

#[test]
fn near_and_far_steps_answer_alike() {
    let mut client = Client::new();
    let near = numbers(
        &mut client,
        "bitfield k set u8 #1 200 get u4 8 overflow fail incrby u8 #1 100 incrby i5 100 -1",
    );
    assert_eq!(near, [Some(0), Some(12), None, Some(-1)]);
    let far = numbers(
        &mut client,
        "bitfield k get u8 #1 set u63 4294967295 7 get i5 100 get u63 4294967295",
    );
    assert_eq!(far, [Some(200), Some(0), Some(-1), Some(7)]);
    assert_eq!(client.run("strlen k"), Value::Int((1 << 29) + 8));
    let read = numbers(&mut client, "bitfield_ro k get u8 #1 get u63 4294967295");
    assert_eq!(read, [Some(200), Some(7)]);
    client.check();
}

#[test]
fn reading_makes_no_key_but_a_failed_write_does() {
    let mut client = Client::new();
    assert_eq!(numbers(&mut client, "bitfield k get u8 0"), [Some(0)]);
    assert_eq!(numbers(&mut client, "bitfield k"), []);
    assert_eq!(client.run("strlen k"), Value::Int(0));
    assert_eq!(
        numbers(&mut client, "bitfield k overflow fail set u8 8 256"),
        [None]
    );
    assert_eq!(client.run("strlen k"), Value::Int(2));
    client.check();
}

#[test]
fn mistakes() {
    let mut client = Client::new();
    let type_text = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
    let offset = "ERR bit offset is not an integer or out of range";
    for (line, text) in [
        ("bitfield k get u64 0", type_text),
        ("bitfield k get i65 0", type_text),
        ("bitfield k get x8 0", type_text),
        ("bitfield k get u 0", type_text),
        ("bitfield k get u0 0", type_text),
        ("bitfield k get u8 -1", offset),
        ("bitfield k get u8 #-1", offset),
        ("bitfield k get u8 #9223372036854775807", offset),
        ("bitfield k get u8", "ERR syntax error"),
        ("bitfield k set u8 0", "ERR syntax error"),
        (
            "bitfield k overflow what",
            "ERR Invalid OVERFLOW type specified",
        ),
        (
            "bitfield k set u8 0 x",
            "ERR value is not an integer or out of range",
        ),
        (
            "bitfield_ro k set u8 0 1",
            "ERR BITFIELD_RO only supports the GET subcommand",
        ),
    ] {
        let reply = client.run(line);
        assert_eq!(reply.as_error(), Some(text), "{line}");
    }
    assert_eq!(client.run("strlen k"), Value::Int(0));
}
