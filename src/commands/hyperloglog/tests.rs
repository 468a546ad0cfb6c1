use crate::exec::testing::Client;
use crate::resp::Value;

#[test]
fn adding_counting_merging() {
    let mut client = Client::new();
    assert_eq!(client.run("pfadd a"), Value::Int(1));
    assert_eq!(client.run("pfadd a"), Value::Int(0));
    assert_eq!(client.run("pfcount a"), Value::Int(0));
    assert_eq!(client.run("pfadd a x y z"), Value::Int(1));
    assert_eq!(client.run("pfadd a x y"), Value::Int(0));
    assert_eq!(client.run("pfadd b z w"), Value::Int(1));
    assert_eq!(client.run("pfcount a"), Value::Int(3));
    assert_eq!(client.run("pfcount a b none"), Value::Int(4));
    assert_eq!(client.run("pfmerge c a b none"), Value::Simple("OK".into()));
    assert_eq!(client.run("pfcount c"), Value::Int(4));
    assert_eq!(client.run("pfmerge d"), Value::Simple("OK".into()));
    assert_eq!(client.run("pfcount d"), Value::Int(0));
    assert_eq!(client.run("pfdebug todense b"), Value::Int(1));
    assert_eq!(client.run("pfmerge a b"), Value::Simple("OK".into()));
    assert_eq!(
        client.run("pfdebug encoding a"),
        Value::Simple("dense".into())
    );
    assert_eq!(client.run("pfcount a"), Value::Int(4));
    assert_eq!(client.run("pfcount none"), Value::Int(0));
    client.check();
}

#[test]
fn looking_inside() {
    let mut client = Client::new();
    client.run("pfadd k a");
    let text = client.run("pfdebug decode k");
    assert_eq!(text, Value::Bulk(b"Z:12711 v:2,1 Z:3672".to_vec()));
    let Value::Array(registers) = client.run("pfdebug getreg k") else {
        panic!("no array");
    };
    assert_eq!(registers.len(), 16_384);
    assert_eq!(registers[12_711], Value::Int(2));
    let refused = client.run("pfdebug decode k");
    assert_eq!(refused.as_error(), Some("ERR HLL encoding is not sparse"));
    assert_eq!(client.run("pfdebug todense k"), Value::Int(0));
    assert_eq!(client.run("pfselftest"), Value::Simple("OK".into()));
}

#[test]
fn mistakes() {
    let mut client = Client::new();
    client.run("lpush list a");
    client.run("setbit bits 7 1");
    let list = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let bits = "WRONGTYPE Key is not a valid HyperLogLog string value.";
    for (line, text) in [
        ("pfadd list a", list),
        ("pfadd bits a", bits),
        ("pfcount bits", bits),
        ("pfcount none bits", bits),
        ("pfmerge none bits", bits),
        ("pfmerge bits none", bits),
        ("pfdebug encoding list", list),
        (
            "pfdebug encoding none",
            "ERR The specified key does not exist",
        ),
    ] {
        assert_eq!(client.run(line).as_error(), Some(text), "{line}");
    }
    client.run("pfadd k a b c");
    // A run that exceeds the number of registers by one.
    client.run("setbit k 1000 1");
    let corrupt = "INVALIDOBJ Corrupted HLL object detected";
    for line in [
        "pfcount k",
        "pfcount k k",
        "pfmerge d k",
        "pfdebug getreg k",
    ] {
        assert_eq!(client.run(line).as_error(), Some(corrupt), "{line}");
    }
    assert_eq!(client.run("pfcount d"), Value::Int(0));
    client.check();
}

/// Reading the whole value would run out of memory.
#[test]
fn values_too_long_for_a_hyperloglog_are_not_read() {
    let mut client = Client::new();
    client.run("config set proto-max-bulk-len 9000000000000000");
    let bits = "WRONGTYPE Key is not a valid HyperLogLog string value.";
    let corrupt = "INVALIDOBJ Corrupted HLL object detected";
    // Not a HyperLogLog, a dense one that is too long, and a sparse one.
    for (start, expected) in [
        (&b"HELL\x01"[..], bits),
        (b"HYLL\x00", bits),
        (b"HYLL\x01", corrupt),
    ] {
        client.run("flushall");
        client.run("setrange k 8000000000000000 x");
        client.args(&[b"setrange", b"k", b"0", start]);
        client.run("setbit k 120 1");
        for line in [
            "pfadd k a",
            "pfcount k",
            "pfcount none k",
            "pfmerge none k",
            "pfmerge k none",
            "pfdebug todense k",
            "pfdebug getreg k",
        ] {
            assert_eq!(client.run(line).as_error(), Some(expected), "{line}");
        }
        assert_eq!(client.run("strlen k"), Value::Int(8_000_000_000_000_001));
    }
}
