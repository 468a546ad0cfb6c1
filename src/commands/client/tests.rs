use crate::exec::testing::Client;
use crate::resp::Value;

fn lines(client: &mut Client, filter: &str) -> Vec<String> {
    let list = client.run(&format!("client list {filter}"));
    let text = list
        .as_bytes()
        .unwrap_or_else(|| panic!("{filter}: {list:?}"));
    let text = String::from_utf8(text.to_vec()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The names of the clients that a filter selects.
fn names(client: &mut Client, filter: &str) -> Vec<String> {
    let field = |line: &String| {
        let name = line
            .split(' ')
            .find_map(|field| field.strip_prefix("name="));
        name.unwrap_or_default().to_owned()
    };
    lines(client, filter).iter().map(field).collect()
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

#[test]
fn filters_select_clients() {
    let mut a = Client::new();
    let (mut b, mut c) = (a.another(), a.another());
    assert_eq!(a.run("client setname a"), ok());
    for line in [
        "client setname b",
        "client setinfo lib-name lib",
        "client setinfo lib-ver 1.2",
        "client capa redirect nonsense",
        "client no-touch on",
    ] {
        assert_eq!(b.run(line), ok(), "{line}");
    }
    for line in ["client setname c", "select 3"] {
        assert_eq!(c.run(line), ok(), "{line}");
    }
    for (filter, expected) in [
        ("id 1 3", "a c"),
        ("id 3 1 3 99 -4", "c a c"),
        ("id 3 1 type normal", "a c"),
        ("not-id 1 3", "b"),
        ("type normal", "a b c"),
        ("type pubsub", ""),
        ("not-type pubsub", "a b c"),
        ("name b", "b"),
        ("not-name b", "a c"),
        ("lib-name lib", "b"),
        ("not-lib-name lib", "a c"),
        ("lib-ver 1.2 name b", "b"),
        ("lib-ver 1.2 name a", ""),
        ("not-lib-ver 1.2", "a c"),
        ("flags T", "b"),
        ("flags N", "a c"),
        ("not-flags T", "a c"),
        ("capa r", "b"),
        ("capa r not-capa r", ""),
        ("not-capa r", "a c"),
        ("db 3", "c"),
        ("db 3 db 0", "a b"),
        ("not-db 3", "a b"),
        ("ip 127.0.0.1", "a b c"),
        ("not-ip 127.0.0.1", ""),
        ("addr 127.0.0.1:1 laddr 127.0.0.1:2", "a b c"),
        ("not-addr 127.0.0.1:1", ""),
        ("user default", "a b c"),
        ("not-user default", ""),
        ("skipme yes", "b c"),
        ("skipme no", "a b c"),
        ("maxage 1000000000", ""),
        ("idle 1000000000", ""),
    ] {
        assert_eq!(names(&mut a, filter).join(" "), expected, "{filter}");
    }
}

#[test]
fn filters_are_checked_in_the_words_of_redis_and_valkey() {
    let mut client = Client::new();
    for (line, error) in [
        ("list foo", "ERR syntax error"),
        ("list id", "ERR syntax error"),
        ("list id x", "ERR Invalid client ID"),
        ("list id 1 x", "ERR Invalid client ID"),
        ("list type foo", "ERR Unknown client type 'foo'"),
        ("list user foo", "ERR No such user 'foo'"),
        (
            "list flags Z",
            "ERR Unknown flags found in the provided filter: Z",
        ),
        (
            "kill not-flags Z",
            "ERR Unknown flags found in the NOT-FLAGS filter: Z",
        ),
        (
            "kill capa x",
            "ERR Unknown capa found in the provided filter: x",
        ),
        (
            "kill not-capa x",
            "ERR Unknown capa found in the NOT-CAPA filter: x",
        ),
        ("kill db x", "ERR DB is not an integer or out of range"),
        ("kill db -1", "ERR DB number should be between 0 and 15"),
        (
            "kill not-db 16",
            "ERR NOT-DB number should be between 0 and 15",
        ),
        ("kill idle x", "ERR idle is not an integer or out of range"),
        ("kill idle 0", "ERR idle should be greater than 0"),
        ("kill maxage -1", "ERR maxage should be greater than 0"),
        ("kill id 0", "ERR client-id should be greater than 0"),
        ("kill id x", "ERR client-id should be greater than 0"),
        ("kill id 10 wrong", "ERR syntax error"),
        ("kill not-skipme yes", "ERR syntax error"),
        ("kill skipme maybe", "ERR syntax error"),
        ("kill type normal addr", "ERR syntax error"),
        ("kill addr", "ERR No such client"),
    ] {
        let reply = client.run(&format!("client {line}"));
        assert_eq!(reply.as_error(), Some(error), "{line}");
    }
}

#[test]
fn a_client_that_is_named_twice_is_killed_once() {
    let mut a = Client::new();
    let (_b, _c) = (a.another(), a.another());
    assert_eq!(a.run("client kill id 2 2 id 3 id 3"), Value::Int(2));
    assert_eq!(lines(&mut a, "type normal").len(), 1);
    // The caller is spared unless it says otherwise.
    assert_eq!(a.run("client kill type normal"), Value::Int(0));
    assert_eq!(a.run("client kill type normal skipme no"), Value::Int(1));
}

#[test]
fn a_line_says_what_a_client_does() {
    let mut client = Client::new();
    let mut other = client.another();
    let field = |client: &mut Client, name: &str| {
        let line = client.run("client info");
        let line = String::from_utf8(line.as_bytes().unwrap().to_vec()).unwrap();
        let fields = line.trim_end().split(' ');
        let found = fields
            .into_iter()
            .find_map(|f| f.strip_prefix(name)?.strip_prefix('='));
        found
            .unwrap_or_else(|| panic!("no {name} in {line}"))
            .to_owned()
    };
    // The last command is counted when it is done.
    assert_eq!(field(&mut client, "tot-cmds"), "0");
    client.run("multi");
    client.run("set k 1");
    client.run("get k");
    client.run("exec");
    // CLIENT INFO, MULTI, EXEC and the two in between.
    assert_eq!(field(&mut client, "tot-cmds"), "5");
    client.args(&[
        b"EVAL",
        b"redis.call('get', 'k') redis.call('get', 'k')",
        b"0",
    ]);
    assert_eq!(field(&mut client, "tot-cmds"), "9");
    assert_eq!(field(&mut client, "capa"), "");
    assert_eq!(field(&mut client, "io-thread"), "0");
    client.run("watch k");
    assert_eq!(field(&mut client, "flags"), "N");
    other.run("set k 2");
    assert_eq!(field(&mut client, "flags"), "d");
    client.run("unwatch");
    assert_eq!(field(&mut client, "flags"), "N");
}

#[test]
fn to_the_source_of_an_import_no_key_expires() {
    let mut source = Client::new();
    let mut other = source.another();
    let refused = Some("ERR Server is not in import mode");
    for line in ["client import-source on", "client import-source foo"] {
        assert_eq!(source.run(line).as_error(), refused, "{line}");
    }
    assert_eq!(source.run("client import-source off"), ok());
    source.run("config set import-mode yes");
    let syntax = Some("ERR syntax error");
    assert_eq!(source.run("client import-source foo").as_error(), syntax);
    assert_eq!(source.run("client import-source on"), ok());
    source.run("set k v px 100");
    source.run("hset h f v");
    source.run("hpexpire h 100 fields 1 f");
    for client in [&mut source, &mut other] {
        client.advance_ms(200);
    }
    let is = |client: &mut Client, line: &str, expected: &str| {
        let reply = client.run(line);
        let text = match &reply {
            Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::Int(n) => n.to_string(),
            Value::Null => "nil".to_owned(),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(text, expected, "{line}");
    };
    is(&mut source, "get k", "v");
    is(&mut source, "exists k", "1");
    is(&mut source, "hget h f", "v");
    is(&mut other, "get k", "nil");
    is(&mut other, "hget h f", "nil");
    // An expiry that is over already is kept.
    source.run("set past v");
    is(&mut source, "pexpire past -1", "1");
    is(&mut source, "get past", "v");
    is(&mut other, "get past", "nil");
    other.run("set before v");
    is(&mut other, "pexpireat before -5", "1");
    is(&mut other, "get before", "nil");
    is(&mut source, "get before", "v");
    // RESET makes it a client like others.
    source.run("reset");
    is(&mut source, "get k", "nil");
    source.run("client import-source on");
    is(&mut source, "get k", "v");
    source.run("config set import-mode no");
    is(&mut source, "get k", "nil");
    source.check();
}

#[test]
fn readonly_is_for_clients_that_are_redirected() {
    let mut client = Client::new();
    let disabled = Some("ERR This instance has cluster support disabled");
    assert_eq!(client.run("readonly").as_error(), disabled);
    client.run("client capa redirect");
    assert_eq!(client.run("readonly"), ok());
    assert_eq!(client.run("readwrite"), ok());
}
