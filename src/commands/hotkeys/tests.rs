use crate::exec::testing::Client;
use crate::resp::Value;

fn fields(client: &mut Client) -> Vec<(String, Value)> {
    let found = client.run("hotkeys get");
    let [map] = found.as_slice().unwrap() else {
        panic!("not one map: {found:?}");
    };
    let words = map.as_slice().unwrap();
    let pairs = words.chunks_exact(2);
    let name = |value: &Value| String::from_utf8(value.as_bytes().unwrap().to_vec()).unwrap();
    pairs
        .map(|pair| (name(&pair[0]), pair[1].clone()))
        .collect()
}

fn field(client: &mut Client, name: &str) -> Value {
    let all = fields(client);
    let found = all.iter().find(|(field, _)| field == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {all:?}"))
        .1
        .clone()
}

fn keys(client: &mut Client) -> Vec<(Vec<u8>, i64)> {
    let found = field(client, "by-net-bytes");
    let pairs = found.as_slice().unwrap().chunks_exact(2);
    let pair = |p: &[Value]| (p[0].as_bytes().unwrap().to_vec(), p[1].as_i64().unwrap());
    pairs.map(pair).collect()
}

#[test]
fn options_are_checked_in_the_words_of_redis() {
    let mut client = Client::new();
    for (line, error) in [
        ("start", "ERR METRICS parameter is required"),
        ("start metrics", "ERR METRICS parameter is required"),
        ("start count 1", "ERR METRICS parameter is required"),
        ("start metrics 0", "ERR METRICS count must be > 0 and <= 2"),
        (
            "start metrics 3 cpu net",
            "ERR METRICS count must be > 0 and <= 2",
        ),
        (
            "start metrics 2 cpu",
            "ERR METRICS count does not match number of metric types provided",
        ),
        ("start metrics 1 cpu net", "ERR syntax error"),
        (
            "start metrics 1 gpu",
            "ERR METRICS no valid metrics passed. Supported: CPU|NET",
        ),
        (
            "start metrics 2 cpu cpu",
            "ERR METRICS CPU defined more than once!",
        ),
        (
            "start metrics 2 net net",
            "ERR METRICS NET defined more than once!",
        ),
        (
            "start metrics 1 cpu count 65",
            "ERR COUNT must be between 1 and 64",
        ),
        ("start metrics 1 cpu count", "ERR syntax error"),
        (
            "start metrics 1 cpu duration 0",
            "ERR DURATION must be between 1 and 1000000",
        ),
        (
            "start metrics 1 cpu sample 0",
            "ERR SAMPLE ratio must be positive",
        ),
        (
            "start metrics 1 cpu slots 1 0",
            "ERR SLOTS parameter cannot be used in non-cluster mode",
        ),
    ] {
        assert_eq!(
            client.run(&format!("hotkeys {line}")).as_error(),
            Some(error),
            "{line}"
        );
    }
    assert_eq!(client.run("hotkeys get"), Value::Null);
    assert_eq!(client.run("hotkeys stop"), Value::Null);
    let ok = Value::Simple("OK".into());
    assert_eq!(client.run("hotkeys start metrics 2 gpu cpu"), ok);
    let error = "ERR hotkey tracking session already in progress";
    assert_eq!(client.run("hotkeys start").as_error(), Some(error));
    let error = "ERR hotkey tracking session in progress, stop tracking first";
    assert_eq!(client.run("hotkeys reset").as_error(), Some(error));
    assert_eq!(client.run("hotkeys stop"), ok);
    assert_eq!(client.run("hotkeys stop"), Value::Null);
    assert_eq!(client.run("hotkeys start metrics 1 net"), ok);
    assert_eq!(client.run("hotkeys stop"), ok);
    assert_eq!(client.run("hotkeys reset"), ok);
    assert_eq!(client.run("hotkeys get"), Value::Null);
}

#[test]
fn bytes_go_to_the_keys_of_a_command() {
    let mut client = Client::new();
    client.run("set before 1");
    client.run("hotkeys start metrics 2 cpu net count 2");
    // 31 bytes of request and 5 of reply.
    client.run("set a 1");
    let set = "*3\r\n$3\r\nset\r\n$1\r\na\r\n$1\r\n1\r\n+OK\r\n".len() as i64;
    assert_eq!(keys(&mut client), [(b"a".to_vec(), set)]);
    let mset =
        "*5\r\n$4\r\nmset\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n1\r\n+OK\r\n".len() as i64;
    client.run("mset a 1 b 1");
    client.run("ping");
    client.run("set c 1");
    let half = mset / 2;
    let expected = [(b"a".to_vec(), set + half), (b"c".to_vec(), set)];
    assert_eq!(keys(&mut client), expected);
    let all = field(&mut client, "net-bytes-all-commands-all-slots");
    assert_eq!(all, Value::Int(2 * set + mset));
    assert_eq!(field(&mut client, "tracking-active"), Value::Int(1));
    assert_eq!(field(&mut client, "sample-ratio"), Value::Int(1));
    client.run("hotkeys stop");
    client.run("set a 1");
    assert_eq!(keys(&mut client), expected);
}

#[test]
fn commands_that_are_not_drawn_count_for_the_sums_alone() {
    let mut client = Client::new();
    client.run("hotkeys start metrics 1 net sample 1000000000");
    for line in ["set a 1", "ping", "multi", "set a 2", "exec"] {
        client.run(line);
    }
    let set = "*3\r\n$3\r\nset\r\n$1\r\na\r\n$1\r\n1\r\n+OK\r\n".len() as i64;
    let all = field(&mut client, "net-bytes-all-commands-all-slots");
    assert_eq!(all, Value::Int(2 * set));
    assert_eq!(keys(&mut client), []);
}

#[test]
fn a_transaction_counts_its_commands_and_a_script_its_own_keys() {
    let mut client = Client::new();
    client.run("hotkeys start metrics 1 net");
    client.run("multi");
    client.run("set a 1");
    client.run("set a 2");
    client.run("exec");
    let set = "*3\r\n$3\r\nset\r\n$1\r\na\r\n$1\r\n1\r\n+OK\r\n".len() as i64;
    assert_eq!(keys(&mut client), [(b"a".to_vec(), 2 * set)]);
    let script: &[u8] = b"redis.call('set', KEYS[1], 1) redis.call('set', 'hidden', 1)";
    client.args(&[b"EVAL", script, b"1", b"x"]);
    let names: Vec<Vec<u8>> = keys(&mut client).into_iter().map(|(key, _)| key).collect();
    assert_eq!(names, [b"x".to_vec(), b"a".to_vec()]);
}

#[test]
fn info_has_a_section_while_there_is_a_collection() {
    let mut client = Client::new();
    let text = |client: &mut Client| {
        let info = client.run("info");
        String::from_utf8(info.as_bytes().unwrap().to_vec()).unwrap()
    };
    assert!(!text(&mut client).contains("# Hotkeys"));
    client.run("hotkeys start metrics 1 cpu");
    assert!(text(&mut client).contains("# Hotkeys\r\nhotkeys-tracking-active:1\r\n"));
    client.run("hotkeys stop");
    assert!(text(&mut client).contains("# Hotkeys\r\nhotkeys-tracking-active:0\r\n"));
    client.run("hotkeys reset");
    assert!(!text(&mut client).contains("# Hotkeys"));
}

#[test]
fn in_a_cluster_slots_can_be_selected() {
    let mut client = Client::in_cluster();
    for (line, error) in [
        ("0", "ERR SLOTS count must be between 1 and 16384"),
        ("16385 1", "ERR SLOTS count must be between 1 and 16384"),
        ("2 1", "ERR not enough slot numbers provided"),
        ("1 16384", "ERR Invalid or out of range slot"),
        ("1 x", "ERR Invalid or out of range slot"),
        ("2 5 5", "ERR duplicate slot number"),
        ("1 5 slots 1 6", "ERR SLOTS parameter already specified"),
        ("1 5 6", "ERR syntax error"),
    ] {
        let line = format!("hotkeys start metrics 1 net slots {line}");
        assert_eq!(client.run(&line).as_error(), Some(error), "{line}");
    }
    // The slot of foo is 12182, that of bar 5061.
    client.run("hotkeys start metrics 2 cpu net slots 4 12183 3 12182 12181");
    let set = "*3\r\n$3\r\nset\r\n$3\r\nfoo\r\n$1\r\n1\r\n+OK\r\n".len() as i64;
    client.run("set foo 1");
    client.run("set bar 1");
    assert_eq!(keys(&mut client), [(b"foo".to_vec(), set)]);
    let int = |client: &mut Client, name| field(client, name).as_i64().unwrap();
    let total = int(&mut client, "net-bytes-all-commands-all-slots");
    assert_eq!(total, 2 * set);
    let selected = int(&mut client, "net-bytes-all-commands-selected-slots");
    assert_eq!(selected, set);
    let ranges = [vec![3], vec![12181, 12183]];
    let ranges = ranges.map(|ends| Value::Array(ends.into_iter().map(Value::Int).collect()));
    let slots = field(&mut client, "selected-slots");
    assert_eq!(slots, Value::Array(ranges.to_vec()));
    let names = |client: &mut Client| -> Vec<String> {
        let all = fields(client).into_iter();
        all.map(|(name, _)| name).collect()
    };
    let sampled = |name: &String| name.contains("sampled-commands");
    assert!(!names(&mut client).iter().any(sampled));
    client.run("hotkeys stop");
    client.run("hotkeys start metrics 1 net sample 2 slots 1 12182");
    let of_samples = names(&mut client);
    assert_eq!(of_samples.iter().filter(|name| sampled(name)).count(), 2);
}
