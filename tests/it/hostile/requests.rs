//! Broken, torn, endless and random requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::conn::encode;
use crate::support::{DEADLINE, Server, Value, cli, oracle, seed, wait_for};

/// The last request of every exchange, so that the end of the replies is known.
const SENTINEL: &[u8] = b"*2\r\n$4\r\nECHO\r\n$8\r\nsentinel\r\n";

/// Sends the bytes, then an ECHO. Returns all bytes up to its reply or the end of the
/// connection, and whether the server closed it.
fn exchange(server: &Server, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut conn = server.connect();
    // The server may close before it has read everything.
    conn.send_raw(bytes)
        .and_then(|()| conn.send_raw(SENTINEL))
        .ok();
    conn.read_raw_until(Duration::from_secs(5), |seen| {
        seen.ends_with(b"$8\r\nsentinel\r\n")
    })
}

fn compare(ours: &Server, theirs: &Server, inputs: &[Vec<u8>]) {
    let mut wrong = Vec::new();
    for input in inputs {
        let (our_bytes, our_end) = exchange(ours, input);
        let (their_bytes, their_end) = exchange(theirs, input);
        if (&our_bytes, our_end) != (&their_bytes, their_end) {
            let shown: Vec<u8> = input.iter().copied().take(200).collect();
            wrong.push(format!(
                "{}\n    ours:   {} closed={our_end}\n    oracle: {} closed={their_end}",
                cli::quote(&shown),
                cli::quote(&our_bytes),
                cli::quote(&their_bytes),
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "different answers to:\n{}",
        wrong.join("\n")
    );
    assert_eq!(ours.connect().cmd("PING"), Value::simple("PONG"));
}

fn owned(inputs: &[&str]) -> Vec<Vec<u8>> {
    inputs.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// If long arguments are allowed, no memory can be lent for a length near the maximum integer.
/// The sum of the needed memory overflowed, which ended the server.
#[test]
fn an_argument_of_any_length_may_be_announced() {
    let server = Server::start(&["--proto-max-bulk-len", &i64::MAX.to_string()]);
    for length in [i64::MAX, i64::MAX / 2, i64::MAX / 4, 1 << 50] {
        let mut conn = server.connect();
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n");
        conn.send_raw(head.as_bytes()).unwrap();
        // Memory is requested when more bytes arrive; the server closes before it has read all.
        conn.send_raw(&vec![b'x'; 2 << 20]).ok();
        let (_, closed) = conn.read_raw_until(Duration::from_secs(10), |_| false);
        assert!(closed, "{length}");
    }
    server.connect().must("PING");
}

#[test]
fn broken_requests_are_answered_as_the_oracle_does() {
    let mut inputs = owned(&[
        "*1000000000\r\n",
        "*2147483647\r\n",
        "*2147483648\r\n",
        "*99999999999999999999\r\n",
        "*-1\r\n",
        "*-10\r\n",
        "*0\r\n",
        "*foo\r\n",
        "*\r\n",
        "* 1\r\n",
        "*+1\r\n",
        "*01\r\n$4\r\nPING\r\n",
        "*1\r\n$-5\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$foo\r\n",
        "*1\r\n$\r\n",
        "*1\r\n$536870913\r\n",
        "*1\r\n$99999999999999999999\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$2000000000\r\n",
        "*1\r\nPING\r\n",
        "*1\r\n:4\r\n",
        "*1\r\n\r\n",
        "*1\r\n$4\r\nPINGxx",
        "*1\r\n$0\r\n\r\n",
        "*2\r\n$0\r\n\r\n$1\r\nx\r\n",
        "*1\r\n$3\r\nGET\r\n",
        "*4\r\n$3\r\nGET\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
        "$5\r\nworld\r\n",
        "+OK\r\n",
        "\r\n\r\n\r\n",
        "\n\n",
        "PING\r\n",
        "PING\n",
        "  PING  \r\n",
        "ping hello\r\n",
        "PING \"a b\" \r\n",
        "ECHO \"\\x41\\n\\t\\\"\"\r\n",
        "ECHO 'it\\'s'\r\n",
        "ECHO \"\"\r\n",
        "ECHO \"open\r\n",
        "ECHO 'open\r\n",
        "ECHO \"a\"b\r\n",
        "ECHO a\"b\"\r\n",
        "\"\"\r\n",
        "GET\r\n",
        "nosuch\r\n",
        "nosuch a b c\r\n",
        "PING\r\nPING\r\nnosuch\r\nPING\r\n",
        "PING\r\nQUIT\r\nPING\r\n",
        "POST / HTTP/1.1\r\n\r\n",
        "Host: example.com\r\n\r\n",
        "HELLO 1\r\n",
        "HELLO 4\r\n",
        "HELLO foo\r\n",
        "HELLO 2 AUTH\r\n",
        "HELLO 3 SETNAME \"a b\"\r\n",
        "HELLO 2 FOO\r\n",
        "AUTH x\r\n",
        "AUTH a b c\r\n",
        "SELECT 16\r\n",
        "SELECT -1\r\n",
        "SELECT foo\r\n",
        "CLIENT SETNAME \"a b\"\r\n",
        "CLIENT NOSUCH\r\n",
        "CLIENT\r\n",
        "CONFIG GET\r\n",
        "CONFIG NOSUCH\r\n",
        "CONFIG SET nosuch 1\r\n",
        "OBJECT NOSUCH x\r\n",
        "SCAN 18446744073709551616\r\n",
        "INCRBYFLOAT none 1e400\r\n",
    ]);
    let crlf = [
        vec!["no\r\nsuch"],
        vec!["nosuch", "a\r\n+OK\r\nb", "c\0d\u{1}"],
        vec!["CLIENT", "SETNAME", "a\r\nb"],
        vec!["CONFIG", "SET", "a\r\n+OK", "x"],
        vec!["OBJECT", "no\r\nsuch", "x"],
        vec!["SET", "k", "v", "a\r\nb"],
    ];
    for command in crlf {
        let mut wire = Vec::new();
        encode(&mut wire, &command);
        inputs.push(wire);
    }
    let long = "x".repeat(400);
    inputs.push(format!("{long} {long} {long}\r\n").into_bytes());
    inputs.push(format!("PING {}\r\n", "x".repeat(30_000)).into_bytes());
    compare(&Server::start(&[]), &oracle(&[]), &inputs);
}

#[test]
fn endless_lines_are_refused_as_the_oracle_does() {
    let digits = "1".repeat(80_000);
    let inputs = [
        "x".repeat(80_000),
        format!("*{digits}"),
        format!("*1\r\n${digits}"),
    ];
    // Bytes that arrive after the error make the kernel reset the connection, so only the
    // text of the error is compared.
    let (ours, theirs) = (Server::start(&[]), oracle(&[]));
    for input in &inputs {
        let answer = |server: &Server| {
            let mut conn = server.connect();
            conn.send_raw(input.as_bytes()).ok();
            conn.read_raw_until(Duration::from_secs(20), |_| false)
        };
        let (our_bytes, our_end) = answer(&ours);
        let (their_bytes, their_end) = answer(&theirs);
        assert!(our_end && their_end, "both close");
        assert_eq!(cli::quote(&our_bytes), cli::quote(&their_bytes));
    }
}

/// The descriptor of an argument takes more memory than an empty argument.
#[test]
fn arguments_without_bytes_count_too() {
    let server = Server::start(&["--client-query-buffer-limit", "1mb"]);
    let mut conn = server.connect();
    let mut hostile = server.connect();
    hostile.send_raw(b"*1000000\r\n").unwrap();
    hostile.send_raw(&b"$0\r\n\r\n".repeat(100_000)).unwrap();
    assert!(hostile.closed_within(Duration::from_secs(20)));
    let stats = conn.must("INFO stats").text();
    let line = "client_query_buffer_limit_disconnections:1\r\n";
    assert!(stats.contains(line), "{stats}");
    // Fewer arguments are accepted, and CLIENT LIST shows their memory.
    let mut good = server.connect();
    good.send_raw(b"*20001\r\n$3\r\nDEL\r\n").unwrap();
    good.send_raw(&b"$0\r\n\r\n".repeat(19_999)).unwrap();
    wait_for("the memory of a request that is not whole", || {
        let list = conn.must("CLIENT LIST").text();
        let memory = |line: &str| {
            let field = line.split(' ').find_map(|f| f.strip_prefix("argv-mem="))?;
            field.parse::<u64>().ok()
        };
        list.lines().filter_map(memory).max() >= Some(16 * 20_000)
    });
    good.send_raw(b"$0\r\n\r\n").unwrap();
    assert_eq!(good.read().unwrap(), Value::Int(0));
}

/// The last part of a request counts as well: the parts before it are within the limit.
#[test]
fn a_request_beyond_the_limit_is_refused_when_it_is_whole() {
    const LIMIT: usize = 1 << 20;
    let flags = ["--client-query-buffer-limit", "1mb"];
    for server in [Server::start(&flags), oracle(&flags)] {
        let mut conn = server.connect();
        let value = vec![b'v'; LIMIT - 1000];
        let set = |value: &[u8]| {
            let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len());
            [head.as_bytes(), value, b"\r\n"].concat()
        };
        let mut good = server.connect();
        good.send_raw(&set(&value)).unwrap();
        assert_eq!(good.read().unwrap(), Value::ok());
        let mut long = server.connect();
        long.send_raw(&set(&vec![b'w'; LIMIT])).ok();
        assert!(long.closed_within(Duration::from_secs(20)));
        assert_eq!(conn.must("STRLEN k"), Value::Int(value.len() as i64));
    }
}

#[test]
fn before_a_password_little_is_accepted() {
    let mut inputs = owned(&[
        "PING\r\n",
        "GET x\r\n",
        "nosuch\r\n",
        "GET\r\n",
        "*10\r\n",
        "*11\r\n",
        "*1\r\n$16385\r\n",
        "AUTH wrong\r\n",
        "AUTH default wrong\r\n",
        "AUTH other secret\r\n",
        "AUTH secret\r\nPING\r\n",
        "AUTH default secret\r\nPING\r\n",
        "HELLO 2 AUTH default wrong\r\n",
        "HELLO 9\r\n",
        "QUIT\r\n",
        "RESET\r\nPING\r\n",
        "AUTH secret\r\nRESET\r\nPING\r\n",
    ]);
    inputs.push(format!("*1\r\n$16384\r\n{}\r\n", "x".repeat(16384)).into_bytes());
    let flags = ["--requirepass", "secret"];
    let (ours, theirs) = (Server::start(&flags), oracle(&flags));
    let mut wrong = Vec::new();
    for input in &inputs {
        // QUIT needs no authentication and ends the exchange.
        let answer = |server: &Server| {
            let mut conn = server.connect();
            conn.send_raw(input)
                .and_then(|()| conn.send_raw(b"QUIT\r\n"))
                .ok();
            conn.read_raw_until(Duration::from_secs(5), |_| false)
        };
        let (ours, theirs) = (answer(&ours), answer(&theirs));
        if ours != theirs {
            let shown: Vec<u8> = input.iter().copied().take(100).collect();
            wrong.push(format!(
                "{}\n    ours:   {} closed={}\n    oracle: {} closed={}",
                cli::quote(&shown),
                cli::quote(&ours.0),
                ours.1,
                cli::quote(&theirs.0),
                theirs.1
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "different answers to:\n{}",
        wrong.join("\n")
    );
    let hello = ours.connect().cmd("HELLO 3").error().unwrap_or_default();
    assert!(hello.starts_with("NOAUTH HELLO must be called"), "{hello}");
}

#[test]
fn many_half_requests_then_gone() {
    let server = Server::start(&[]);
    let mut wire = Vec::new();
    encode(&mut wire, &["SET", "half", "a value of some length"]);
    for _ in 0..5 {
        for cut in 0..wire.len() {
            let mut conn = server.connect();
            conn.send_raw(&wire[..cut]).unwrap();
        }
    }
    let mut conn = server.connect();
    assert_eq!(conn.cmd("EXISTS half"), Value::Int(0));
}

#[test]
fn one_byte_at_a_time() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let mut wire = Vec::new();
    encode(&mut wire, &["SET", "k\r\n", "*1\r\n$4\r\nPING\r\n"]);
    encode(&mut wire, &["GET", "k\r\n"]);
    wire.extend_from_slice(b"PING \"in line\"\r\n");
    encode(&mut wire, &["MGET", "k\r\n", "", "none"]);
    for byte in &wire {
        conn.send_raw(&[*byte]).unwrap();
    }
    assert_eq!(conn.read().unwrap(), Value::ok());
    let value = Value::bulk("*1\r\n$4\r\nPING\r\n");
    assert_eq!(conn.read().unwrap(), value);
    assert_eq!(conn.read().unwrap(), Value::bulk("in line"));
    let many = Value::Array(vec![value, Value::NullBulk, Value::NullBulk]);
    assert_eq!(conn.read().unwrap(), many);
}

#[test]
fn every_cut_of_a_pipeline_gives_the_same_replies() {
    let server = Server::start(&[]);
    let mut wire = Vec::new();
    encode(&mut wire, &["SET", "cut", "value"]);
    wire.extend_from_slice(b"GET cut\r\n");
    encode(&mut wire, &["DEL", "cut"]);
    for cut in 1..wire.len() {
        let mut conn = server.connect();
        conn.send_raw(&wire[..cut]).unwrap();
        // A round trip elsewhere gives the server time to see the first half.
        server.connect().must("PING");
        conn.send_raw(&wire[cut..]).unwrap();
        let replies: Vec<Value> = (0..3).map(|_| conn.read().unwrap()).collect();
        let expected = [Value::ok(), Value::bulk("value"), Value::Int(1)];
        assert_eq!(replies, expected, "cut at {cut}");
    }
}

#[test]
fn a_hundred_thousand_commands_in_one_write() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let mut wire = Vec::new();
    for _ in 0..100_000 {
        encode(&mut wire, &["INCR", "n"]);
    }
    let mut writer = conn.writer();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&wire).unwrap());
        for n in 1..=100_000 {
            assert_eq!(conn.read().unwrap(), Value::Int(n));
        }
    });
}

#[test]
fn a_big_value_goes_in_and_out() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let value: Vec<u8> = (0..40_000_000u32).map(|n| (n ^ (n >> 8)) as u8).collect();
    let set = [b"SET".to_vec(), b"big".to_vec(), value.clone()];
    assert_eq!(conn.call(&set), Value::ok());
    assert_eq!(conn.must("STRLEN big").int(), 40_000_000);
    assert!(
        conn.must("GET big").bytes() == value,
        "another value came back"
    );
}

#[test]
fn random_bytes_harm_no_other_client() {
    let server = Server::start(&[]);
    let mut rng = fastrand::Rng::with_seed(seed("KEDIS_HOSTILE_SEED"));
    let mut good = server.connect();
    good.must("SET witness unharmed");
    let names = [
        "GET", "SET", "HSET", "ZADD", "LPUSH", "SETRANGE", "SCAN", "OBJECT", "HELLO",
    ];
    for round in 0..600 {
        let mut conn = server.connect();
        let mut bytes: Vec<u8> = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
        if round % 3 != 0 {
            // A valid request with a few changed bytes.
            let name = names[rng.usize(..names.len())];
            bytes.clear();
            for _ in 0..rng.usize(1..5) {
                encode(&mut bytes, &[name, "x", "1", "2", "3"][..rng.usize(1..=5)]);
            }
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..bytes.len());
                bytes[at] = if rng.bool() {
                    rng.u8(..)
                } else {
                    b"*$\r\n-0123456789"[rng.usize(..15)]
                };
            }
        }
        conn.send_raw(&bytes).ok();
        if round % 20 == 0 {
            assert_eq!(
                good.cmd("GET witness"),
                Value::bulk("unharmed"),
                "round {round}"
            );
        }
    }
    assert_eq!(good.cmd("GET witness"), Value::bulk("unharmed"));
}

/// Each connection made a line, before any login.
#[test]
fn browsers_do_not_fill_the_log() {
    let server = Server::start(&["--requirepass", "secret"]);
    for _ in 0..10 {
        let mut browser = TcpStream::connect(server.address()).unwrap();
        browser.set_read_timeout(Some(DEADLINE)).unwrap();
        browser.write_all(b"POST / HTTP/1.1\r\n\r\n").unwrap();
        let mut reply = Vec::new();
        browser.read_to_end(&mut reply).expect("the end");
        assert_eq!(reply, b"");
    }
    assert_eq!(server.log().matches("speaks HTTP").count(), 1);
}
