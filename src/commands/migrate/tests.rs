//! Argument checks of MIGRATE, and the keys that it holds.

use crate::exec::testing::Client;
use crate::resp::Value;
use crate::storage::DbIndex;

#[test]
fn arguments_are_checked_before_anything_is_done() {
    let mut client = Client::new();
    client.run("set k v");
    for (line, text) in [
        (
            "migrate h 1 k 0",
            "ERR wrong number of arguments for 'migrate' command",
        ),
        ("migrate h 1 k 0 1 WHAT", "ERR syntax error"),
        ("migrate h 1 k 0 1 AUTH", "ERR syntax error"),
        ("migrate h 1  0 1 USE_PREFIX KEYS a", "ERR syntax error"),
        ("migrate h 1 k 0 1 AUTH2 user", "ERR syntax error"),
        (
            "migrate h 1 k x 1",
            "ERR value is not an integer or out of range",
        ),
        (
            "migrate h 1 k 0 x",
            "ERR value is not an integer or out of range",
        ),
        ("migrate h 70000 k 0 1", "ERR Invalid TCP port specified"),
        (
            "migrate h 1 k 0 1 KEYS a b",
            "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
        ),
    ] {
        assert_eq!(client.run(line).as_error(), Some(text), "{line}");
    }
    let no_key = Value::Simple("NOKEY".into());
    assert_eq!(client.run("migrate h 1 none 0 1"), no_key);
    assert_eq!(
        client.run("migrate h 1  0 1 COPY REPLACE AUTH x KEYS none nor"),
        no_key
    );
    assert!(!client.server().migrations.is_active());
}

#[test]
fn keys_on_their_way_are_read_and_not_written() {
    let mut client = Client::new();
    client.run("mset a 1 b 2 c 3");
    // The harness has no migrate thread.
    assert!(
        client
            .tick(&[&[
                b"MIGRATE", b"h", b"1", b"", b"7", b"0", b"KEYS", b"a", b"x", b"b"
            ]])
            .is_empty()
    );
    let server = client.server();
    let (migration, hold) = server.migrations.queue().try_recv().unwrap();
    assert_eq!(migration.keys, [b"a", b"b"]);
    assert_eq!(
        (migration.target_db, migration.timeout.as_millis()),
        (7, 1000)
    );
    assert!(server.migrations.holds(DbIndex(0), b"a"));
    let waits = |client: &mut Client, line: &str| {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        client.tick(&[&args]).is_empty()
    };
    for line in [
        "set a 5",
        "del c b",
        "rename c a",
        "flushall",
        "swapdb 0 1",
        "migrate h 1 a 0 1",
    ] {
        assert!(waits(&mut client, line), "{line}");
    }
    assert_eq!(client.run("get a").as_bytes(), Some(&b"1"[..]));
    assert_eq!(client.run("append c 4"), Value::Int(2));
    assert_eq!(client.run("incr x"), Value::Int(1));
    drop(hold);
    assert_eq!(client.run("incr a"), Value::Int(2));
    client.check();
}
