use crate::exec::testing::Client;
use crate::resp::Value;

fn error(client: &mut Client, line: &str) -> String {
    let reply = client.run(line);
    reply.as_error().unwrap_or("no error").to_owned()
}

#[test]
fn bits_are_numbered_from_the_most_significant_one() {
    let mut client = Client::new();
    assert_eq!(client.run("setbit k 1 1"), Value::Int(0));
    assert_eq!(client.run("setbit k 1 1"), Value::Int(1));
    assert_eq!(client.run("setbit k 15 1"), Value::Int(0));
    assert_eq!(client.run("getbit k 1"), Value::Int(1));
    assert_eq!(client.run("getbit k 4294967295"), Value::Int(0));
    assert_eq!(client.run("bitcount k"), Value::Int(2));
    assert_eq!(client.run("bitpos k 1 1"), Value::Int(15));
    assert_eq!(client.run("bitpos k 0 -1 -1 bit"), Value::Int(-1));
    assert_eq!(client.run("bitop not k k"), Value::Int(2));
    assert_eq!(client.run("bitcount k 1 -1 bit"), Value::Int(13));
    assert_eq!(client.run("bitop and k none1 none2"), Value::Int(0));
    assert_eq!(client.run("bitcount k"), Value::Int(0));
    client.check();
}

#[test]
fn mistakes() {
    let mut client = Client::new();
    client.run("lpush list a");
    let offset = "ERR bit offset is not an integer or out of range";
    let bit = "ERR bit is not an integer or out of range";
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for (line, text) in [
        ("getbit k -1", offset),
        ("getbit k 4294967296", offset),
        ("getbit k 9223372036854775808", offset),
        ("getbit k #1", offset),
        ("setbit k 4294967296 1", offset),
        ("setbit k 0 2", bit),
        ("setbit k 0 x", bit),
        ("setbit list 0 1", wrong),
        ("bitcount list", wrong),
        ("bitpos list 1", wrong),
        ("bitop or d list", wrong),
        ("bitcount k 1", "ERR syntax error"),
        ("bitcount k 1 2 hello", "ERR syntax error"),
        ("bitcount k 1 2 bit 3", "ERR syntax error"),
        (
            "bitcount k a b",
            "ERR value is not an integer or out of range",
        ),
        ("bitpos k 2", "ERR The bit argument must be 1 or 0."),
        ("bitpos k 1 2 3 hello", "ERR syntax error"),
        ("bitop what d k", "ERR syntax error"),
        (
            "bitop not d k k",
            "ERR BITOP NOT must be called with a single source key.",
        ),
    ] {
        assert_eq!(error(&mut client, line), text, "{line}");
    }
    client.check();
}
