//! Input that no client library sends: broken, huge, slow or never read.
//!
//! Whatever comes in, the process lives, its memory stays bounded, other
//! clients are served, and the error reads as the oracle words it.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::conn::encode;
use crate::support::{Conn, Server, Value, args, cli, oracle, seed, wait_for, wait_within};

/// How far the resident memory may grow over what one hostile test does. A
/// server that believes an announced length exceeds it many times over.
const GROWTH: u64 = 300 << 20;

/// A PING that takes longer waits for what another client asked for.
const STUCK: Duration = Duration::from_secs(10);

/// Ends every exchange, so that both servers' answers have a known end.
const SENTINEL: &[u8] = b"*2\r\n$4\r\nECHO\r\n$8\r\nsentinel\r\n";

/// Sends the bytes, then an ECHO; all bytes that come back up to its reply or
/// the end, and whether the server closed.
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

/// Where long arguments are allowed, a length near the largest number is one that memory
/// can never be lent for: the sum of what it needs overflowed, which ended the server.
#[test]
fn an_argument_of_any_length_may_be_announced() {
    let server = Server::start(&["--proto-max-bulk-len", &i64::MAX.to_string()]);
    for length in [i64::MAX, i64::MAX / 2, i64::MAX / 4, 1 << 50] {
        let mut conn = server.connect();
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n");
        conn.send_raw(head.as_bytes()).unwrap();
        // Memory is asked for when more comes; the server closes before it has read all.
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
    // What arrives after the error was noticed makes the kernel reset the
    // connection, so only the error's text is compared, where it got through.
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

/// Where an argument stands takes more memory than an empty one is long.
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
    // So many are no harm, and are seen.
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

/// The last piece of a request counts like those before it, which alone are short enough.
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
        // QUIT is open to everybody and ends the exchange.
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

/// Runs `hostile` and fails when the memory grew out of bounds at any moment
/// of it or others were not served within a second.
fn bounded(server: &Server, hostile: impl FnOnce()) {
    let before = server.rss();
    let done = AtomicBool::new(false);
    let mut most = before;
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut conn = server.connect();
            let (mut most, mut slowest) = (0, Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                let start = Instant::now();
                assert_eq!(conn.cmd("PING"), Value::simple("PONG"));
                slowest = slowest.max(start.elapsed());
                most = most.max(server.rss());
                std::thread::park_timeout(Duration::from_millis(5));
            }
            (most, slowest)
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(hostile));
        done.store(true, Ordering::Relaxed);
        (most, slowest) = watch.join().expect("the other client was served");
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    let grown = most.saturating_sub(before);
    println!(
        "memory grew by {} MB, slowest PING {slowest:?}",
        grown >> 20
    );
    assert!(grown < GROWTH, "memory grew by {} MB", grown >> 20);
    assert!(slowest < STUCK, "a PING took {slowest:?}");
}

#[test]
fn announced_lengths_reserve_nothing() {
    let server = Server::start(&[]);
    let before = used_memory(&mut server.connect());
    bounded(&server, || {
        let mut held = Vec::new();
        for n in 0..600 {
            let mut conn = server.connect();
            let announcement: &[u8] = match n % 4 {
                0 => b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$536870000\r\nstart",
                1 => b"*1000000000\r\n$3\r\nDEL\r\n$1\r\nx\r\n",
                2 => b"*2147483647\r\n",
                _ => b"*2\r\n$536870912\r\n",
            };
            conn.send_raw(announcement).unwrap();
            held.push(conn);
        }
        // All have been read when a later command on each thread is answered.
        for _ in 0..32 {
            server.connect().must("PING");
        }
        // A mebibyte for each that announced more was too much.
        let each = used_memory(&mut server.connect()).saturating_sub(before) / 600;
        assert!(each < 16 << 10, "{each} bytes for each");
    });
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

/// Writes until the server takes no more for a while or has closed.
fn stuff(conn: &Conn, wire: &[u8], rounds: usize) {
    let mut writer = conn.writer();
    writer
        .set_write_timeout(Some(Duration::from_millis(700)))
        .unwrap();
    for _ in 0..rounds {
        if writer.write_all(wire).is_err() {
            return;
        }
    }
}

/// Replies are kept while clients have room for them, and not beyond that.
#[test]
fn clients_that_never_read_cost_no_more_than_clients_may() {
    let server = Server::start(&["--maxmemory-clients", "128mb"]);
    let mut conn = server.connect();
    let set = [b"SET".to_vec(), b"mega".to_vec(), vec![b'm'; 1 << 20]];
    assert_eq!(conn.call(&set), Value::ok());
    let mut wire = Vec::new();
    for _ in 0..500 {
        encode(&mut wire, &["GET", "mega"]);
    }
    bounded(&server, || {
        // Three clients, each asking for 4 GB.
        let mut greedy: Vec<Conn> = (0..3).map(|_| server.connect()).collect();
        std::thread::scope(|scope| {
            for conn in &greedy {
                scope.spawn(|| stuff(conn, &wire, 8));
            }
        });
        // Who was not thrown out gets what it asked for once it reads.
        for conn in &mut greedy {
            for _ in 0..5 {
                match conn.read() {
                    Ok(value) => assert_eq!(value.bytes().len(), 1 << 20),
                    Err(_) => break,
                }
            }
        }
    });
}

/// Bytes that the server has allocated.
fn used_memory(conn: &mut Conn) -> u64 {
    conn.info_number("memory", "used_memory")
}

/// Each costs little, but there are many: the largest are closed, one that said
/// CLIENT NO-EVICT and one that takes its replies stay.
#[test]
fn many_that_never_read_cost_no_more_than_all_may() {
    let server = Server::start(&["--maxmemory-clients", "16mb"]);
    let mut good = server.connect();
    // All that are as small as it have the same right.
    good.must("CLIENT NO-EVICT ON");
    let set = [b"SET".to_vec(), b"big".to_vec(), vec![b'b'; 900_000]];
    assert_eq!(good.call(&set), Value::ok());
    let mut spared = server.connect();
    spared.must("CLIENT NO-EVICT ON");
    let mut wire = Vec::new();
    for _ in 0..20 {
        encode(&mut wire, &["GET", "big"]);
    }
    let before = used_memory(&mut good);
    spared.send_raw(&wire).expect("a request");
    let mut greedy: Vec<Conn> = (0..300).map(|_| server.connect()).collect();
    for conn in &mut greedy {
        // Who is closed early cannot be asked.
        let _ = conn.send_raw(&wire);
    }
    // Who is evicted is counted before its thread frees what it takes. What the
    // allocator keeps of freed memory for some seconds is not counted.
    let (mut evicted, mut grown, mut peak) = (0, 0, 0);
    for _ in 0..1000 {
        evicted = good.info_number("stats", "evicted_clients");
        grown = used_memory(&mut good).saturating_sub(before);
        peak = peak.max(grown);
        if evicted >= 250 && grown < 64 << 20 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((250..=300).contains(&evicted), "{evicted} evicted");
    assert!(grown < 64 << 20, "memory grew by {} MB", grown >> 20);
    assert!(
        peak < 256 << 20,
        "memory grew by {} MB at times",
        peak >> 20
    );
    for _ in 0..20 {
        assert_eq!(spared.read().expect("a reply").bytes().len(), 900_000);
    }
    // A single reply beyond the limit is not sent, once those that read nothing for ten
    // seconds have made room and it is still too long; the others' go on.
    let mut wide = server.connect();
    wide.send(&["PING"]).expect("a request");
    let mut mget = vec!["big"; 30];
    mget[0] = "MGET";
    wide.send(&mget).expect("a request");
    assert_eq!(wide.read().expect("a reply").text(), "PONG");
    assert!(wide.closed_within(Duration::from_secs(90)));
    good.must("PING");
}

/// Requests were added up once a second: until then one client could fill the memory.
#[test]
fn a_request_that_clients_have_no_memory_for_is_refused_before_it_is_there() {
    const LIMIT: usize = 16 << 20;
    let server = Server::start(&["--maxmemory-clients", "16mb"]);
    let mut greedy = server.connect();
    let value = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${}\r\n", 512 << 20);
    greedy.send_raw(value.as_bytes()).expect("a request");
    let (mut sent, piece) = (0, vec![b'v'; 1 << 20]);
    while sent < 1 << 30 && greedy.send_raw(&piece).is_ok() {
        sent += piece.len();
    }
    // What the sockets hold, and what comes within some milliseconds.
    assert!(sent < 8 * LIMIT, "{} MiB", sent >> 20);
    let mut other = server.connect();
    let refused = other.info_number("stats", "client_query_buffer_limit_disconnections");
    assert_eq!(refused, 1);
    assert!(
        server.log().contains("takes more memory than"),
        "{}",
        server.log()
    );
    // One that is just as long and of many arguments.
    let mut many = server.connect();
    many.send_raw(b"*1000000\r\n$3\r\nDEL\r\n")
        .expect("a request");
    let mut piece = Vec::new();
    for _ in 0..100 {
        encode(&mut piece, &["k".repeat(10_000)]);
    }
    let piece = String::from_utf8(piece).unwrap().replace("*1\r\n", "");
    let mut sent = 0;
    while sent < 1 << 30 && many.send_raw(piece.as_bytes()).is_ok() {
        sent += piece.len();
    }
    assert!(sent < 8 * LIMIT, "{} MiB", sent >> 20);
    other.must("PING");
}

/// As Redis says when it is over `maxmemory`; nobody is closed for it.
#[test]
fn a_transaction_that_clients_have_no_memory_for_is_refused() {
    let server = Server::start(&["--maxmemory-clients", "16mb"]);
    let mut conn = server.connect();
    let set = |n: usize| {
        [
            b"SET".to_vec(),
            format!("k{n}").into_bytes(),
            vec![b'v'; 500_000],
        ]
    };
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    conn.must("MULTI");
    let replies: Vec<Value> = (0..100).map(|n| conn.call(&set(n))).collect();
    assert_eq!(replies[0], Value::simple("QUEUED"));
    assert!(
        replies
            .iter()
            .any(|reply| reply.error().as_deref() == Some(oom))
    );
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(conn.cmd("EXEC").error().as_deref(), Some(aborted));
    assert_eq!(conn.must("DBSIZE"), Value::Int(0));
    conn.must("MULTI");
    for n in 0..4 {
        assert_eq!(conn.call(&set(n)), Value::simple("QUEUED"));
    }
    assert_eq!(conn.must("EXEC").items().len(), 4);
    assert_eq!(conn.must("DBSIZE"), Value::Int(4));
    // It was taken; so are the next ones.
    assert_eq!(conn.call(&set(5)), Value::ok());
    assert_eq!(conn.info_number("stats", "evicted_clients"), 0);
}

/// A sparse bitmap takes some kilobytes and half a gigabyte to send: a request of
/// a few hundred bytes made the server ask for all memory there was.
#[test]
fn a_reply_of_long_values_is_bounded_as_any_other() {
    let server = Server::start(&["--maxmemory-clients", "64mb"]);
    let mut conn = server.connect();
    conn.must("SETBIT map 400000000 1");
    assert_eq!(conn.must("GET map").bytes().len(), 50_000_001);
    bounded(&server, || {
        let maps = vec!["map"; 40];
        let mut wide = server.connect();
        wide.send(&[&["MGET"], &maps[..]].concat())
            .expect("a request");
        assert!(wide.closed_within(Duration::from_secs(20)));
        let script = ["EVAL", "return redis.call('mget', unpack(KEYS))", "40"];
        let reply = conn.call(&[&script[..], &maps[..]].concat());
        let error = reply.error().unwrap_or_default();
        assert!(
            error.starts_with("ERR the reply would be too long"),
            "{error}"
        );
    });
    conn.must("PING");
}

#[test]
fn a_stranger_that_never_reads_costs_little() {
    let server = Server::start(&["--requirepass", "secret"]);
    let before = server.rss();
    let mut strangers: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
    let wire = b"GET x\r\n".repeat(10_000);
    std::thread::scope(|scope| {
        for conn in &strangers {
            scope.spawn(|| stuff(conn, &wire, 500));
        }
    });
    let grown = server.rss().saturating_sub(before);
    assert!(grown < 64 << 20, "memory grew by {} MB", grown >> 20);
    strangers.clear();
    let mut conn = server.connect();
    conn.must("AUTH secret");
    conn.must("PING");
}

#[test]
fn random_bytes_harm_nobody() {
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
            // A sound request with a few bytes broken.
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

/// Lets this process, and the servers it starts from now on, open that many
/// files.
fn allow_open_files(wanted: u64) {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|l| l.starts_with("Max open files"))
        .unwrap();
    let mut numbers = line
        .split_whitespace()
        .skip(3)
        .map(|n| n.parse().unwrap_or(u64::MAX));
    let (soft, hard) = (numbers.next().unwrap(), numbers.next().unwrap());
    if soft >= wanted {
        return;
    }
    let raised = Command::new("prlimit")
        .args(["--pid", &std::process::id().to_string()])
        .arg(format!("--nofile={wanted}:{}", hard.max(wanted)))
        .status();
    assert!(
        raised.is_ok_and(|status| status.success()),
        "this test opens {wanted} files, the limit is {soft} (hard {hard}): raise it with ulimit -n"
    );
}

#[test]
fn ten_thousand_idle_connections_and_no_more() {
    const IDLE: usize = 10_000;
    allow_open_files(12_000);
    let limit = (IDLE + 20).to_string();
    let server = Server::start(&["--maxclients", &limit]);
    let before = server.rss();
    let mut idle: Vec<Conn> = (0..IDLE).map(|_| server.connect()).collect();
    for conn in idle.iter_mut().step_by(97) {
        assert_eq!(conn.cmd("PING"), Value::simple("PONG"));
    }
    let grown = server.rss().saturating_sub(before);
    println!("{IDLE} idle connections cost {} MB", grown >> 20);
    assert!(grown < 200 << 20, "they cost {} MB", grown >> 20);

    let mut refused = None;
    for _ in 0..200 {
        let mut conn = server.connect();
        match conn.cmd("PING") {
            Value::Simple(_) => idle.push(conn),
            other => {
                refused = Some(other);
                break;
            }
        }
    }
    // The refusal may be lost when the PING meets a socket already closed.
    match refused.expect("a limit") {
        Value::Error(text) => assert_eq!(
            String::from_utf8_lossy(&text),
            "ERR max number of clients reached"
        ),
        Value::Lost(_) => {}
        other => panic!("over the limit: {other:?}"),
    }
    assert!(
        idle.len() >= IDLE,
        "the limit came too early: {}",
        idle.len()
    );
    assert!(idle.len() <= IDLE + 20, "{} clients at once", idle.len());
    idle.truncate(IDLE / 2);
    wait_for("room after clients left", || {
        server.connect().cmd("PING") == Value::simple("PONG")
    });
}

#[test]
fn idle_clients_are_closed_after_the_timeout() {
    let server = Server::start(&["--timeout", "3"]);
    let mut idle = server.connect();
    let mut busy = server.connect();
    idle.must("PING");
    let start = Instant::now();
    let closed = wait_within(Duration::from_secs(20), || {
        busy.must("PING");
        idle.closed_within(Duration::from_millis(10))
    });
    assert!(closed, "still open after {:?}", start.elapsed());
    assert!(
        start.elapsed() >= Duration::from_millis(2900),
        "closed too early"
    );
    busy.must("PING");
}

#[test]
fn who_waits_for_a_pause_is_not_idle() {
    let server = Server::start(&["--timeout", "3"]);
    let mut admin = server.connect();
    let mut waiting: Vec<Conn> = (0..2).map(|_| server.connect()).collect();
    let mut idle = server.connect();
    admin.must("SET k v");
    admin.must("CLIENT PAUSE 60000 WRITE");
    // Every byte lets the server look at the connection again.
    for conn in &mut waiting {
        for _ in 0..50 {
            conn.send_raw(b"INCR n\r\n").unwrap();
        }
    }
    let blocked = |conn: &mut Conn, n: usize| {
        let line = format!("blocked_clients:{n}\r\n");
        conn.must("INFO clients").text().contains(&line)
    };
    wait_for("clients that wait", || blocked(&mut admin, 2));
    // The time after which they would be gone, shown by one that does not wait.
    let closed = wait_within(Duration::from_secs(20), || {
        admin.must("PING");
        idle.closed_within(Duration::from_millis(10))
    });
    assert!(closed, "the idle client is still there");
    let start = Instant::now();
    wait_for("two more rounds of the cron", || {
        admin.must("PING");
        start.elapsed() > Duration::from_millis(2500)
    });
    admin.must("CLIENT UNPAUSE");
    for conn in &mut waiting {
        for _ in 0..50 {
            assert!(conn.read().unwrap().int() > 0);
        }
    }
    assert_eq!(admin.must("GET n"), Value::bulk("100"));
    assert!(blocked(&mut admin, 0));
}

#[test]
fn idle_connections_keep_no_buffers() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    let mut idle = server.connect();
    idle.must("CLIENT SETNAME idle");
    let big = vec![b'v'; 60_000];
    let mut wire = Vec::new();
    encode(&mut wire, &[b"SET".as_slice(), b"big", &big]);
    let (start, rest) = wire.split_at(wire.len() / 2);
    idle.send_raw(start).unwrap();
    let line = |admin: &mut Conn| {
        let list = admin.must("CLIENT LIST").text();
        let mut lines = list.lines();
        lines
            .find(|l| l.contains("name=idle"))
            .unwrap_or_default()
            .to_owned()
    };
    wait_for("half a request", || !line(&mut admin).contains(" qbuf=0 "));
    idle.send_raw(rest).unwrap();
    assert_eq!(idle.read().unwrap(), Value::ok());
    assert_eq!(idle.must("GET big").bytes(), big);
    let before = line(&mut admin);
    assert!(!before.contains(" rbs=0 "), "{before}");
    wait_for("buffers to be freed", || {
        let line = line(&mut admin);
        line.contains(" qbuf-free=0 ") && line.contains(" rbs=0 ")
    });
    assert_eq!(idle.must("GET big").bytes(), big);
}

#[test]
fn rows_of_deleted_collections_go_without_a_limit_too() {
    let server = Server::start(&["--reclaim-rows-per-second", "0"]);
    let mut conn = server.connect();
    for round in 0..20 {
        let mut command = args(&format!("SADD set:{round}"));
        command.extend((0..2000).map(|n| format!("member:{n}").into_bytes()));
        assert_eq!(conn.call(&command), Value::Int(2000));
        conn.must(&format!("DEL set:{round}"));
    }
    wait_for("an empty reclaim queue", || {
        let info = conn.must("INFO all").text();
        info.contains("reclaim_backlog:0\r\n")
    });
}

#[test]
fn a_wide_command_and_a_deep_pipeline_of_errors() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let mut wide = args("MSET");
    for n in 0..100_000 {
        wide.push(format!("wide:{n}").into_bytes());
        wide.push(b"v".to_vec());
    }
    assert_eq!(conn.call(&wide), Value::ok());
    assert_eq!(conn.must("DBSIZE").int(), 100_000);
    let errors: Vec<Vec<Vec<u8>>> = (0..5000).map(|_| args("INCR wide:0")).collect();
    let replies = conn.pipeline(&errors);
    let text = "ERR value is not an integer or out of range";
    assert!(replies.iter().all(|r| r.error().as_deref() == Some(text)));
    let mut unlink = args("UNLINK");
    unlink.extend((0..100_000).map(|n| format!("wide:{n}").into_bytes()));
    assert_eq!(conn.call(&unlink), Value::Int(100_000));
    assert_eq!(conn.must("DBSIZE").int(), 0);
}

/// All clients are on one thread; were KEYS run there, its reply would come
/// before any other.
/// More keys than fit one batch; the only IO thread serves others meanwhile.
#[test]
fn many_keys_are_made_in_slices() {
    let flags = ["--io-threads", "1", "--enable-debug-command", "yes"];
    let server = Server::start(&flags);
    let mut maker = server.connect();
    let mut other = server.connect();
    other.must("SET k:7 mine");
    maker.send(&args("DEBUG POPULATE 1100000 k 20")).unwrap();
    let mut turns = 0;
    while other.must("DBSIZE").int() < 1_100_000 {
        other.must("SET k:7 mine");
        turns += 1;
    }
    assert_eq!(maker.read().unwrap(), Value::ok());
    assert!(turns > 100, "{turns} turns");
    assert_eq!(other.must("GET k:7"), Value::bulk("mine"));
    let value = [b"value:1099999".as_slice(), &[0; 7]].concat();
    assert_eq!(other.must("GET k:1099999"), Value::bulk(value));
    // A transaction is one batch.
    other.must("MULTI");
    other.must("DEBUG POPULATE 1000001 q");
    other.must("DEBUG POPULATE 2 q 0");
    let replies = other.must("EXEC");
    assert_eq!(
        replies.items()[0].error().as_deref(),
        Some("ERR that is too much to make at once")
    );
    assert_eq!(replies.items()[1], Value::ok());
    assert_eq!(other.must("GET q:1"), Value::bulk("value:1"));
}

/// Whether another client's SET is answered before a request that came first; and
/// what that is answered.
fn race(asker: &mut Conn, other: &mut Conn, request: &[&str]) -> (bool, Value) {
    let socket = asker.writer();
    asker.send(request).unwrap();
    other.must("SET key:0 w");
    socket.set_nonblocking(true).unwrap();
    let early = socket.peek(&mut [0]).is_err();
    socket.set_nonblocking(false).unwrap();
    (early, asker.read().unwrap())
}

#[test]
fn the_first_rank_in_a_large_set_holds_up_nobody_else() {
    const MEMBERS: usize = 200_000;
    let server = Server::start(&["--io-threads", "1"]);
    let (mut asker, mut other) = (server.connect(), server.connect());
    let zadd = |from: usize| {
        let pairs = (from..from + 1000).flat_map(|n| [n.to_string(), format!("m{n}")]);
        let words = ["ZADD".to_owned(), "z".into()].into_iter().chain(pairs);
        words.map(String::into_bytes).collect::<Vec<_>>()
    };
    let load: Vec<_> = (0..MEMBERS).step_by(1000).map(zadd).collect();
    asker.pipeline(&load);
    let overtaken = (0..5).any(|n| {
        // Nobody has asked for a rank in this one.
        other.must(&format!("COPY z z{n}"));
        let last = format!("m{}", MEMBERS - 1);
        let (early, rank) = race(&mut asker, &mut other, &["ZRANK", &format!("z{n}"), &last]);
        assert_eq!(rank, Value::Int(MEMBERS as i64 - 1));
        early
    });
    assert!(overtaken, "ZRANK held up the others of its thread");
}

#[test]
fn a_walk_over_many_keys_holds_up_nobody_else() {
    let server = Server::start(&["--io-threads", "1"]);
    let (mut walker, mut other) = (server.connect(), server.connect());
    let mset = |from: usize| {
        let pairs = (from..from + 1000).flat_map(|n| [format!("key:{n}"), "v".into()]);
        let words = std::iter::once("MSET".to_owned()).chain(pairs);
        words.map(String::into_bytes).collect::<Vec<_>>()
    };
    let load: Vec<_> = (0..200_000).step_by(1000).map(mset).collect();
    walker.pipeline(&load);
    let overtaken = (0..20).any(|_| {
        let (early, keys) = race(&mut walker, &mut other, &["KEYS", "*k*e*y*:*none*"]);
        assert_eq!(keys.items(), &[]);
        early
    });
    assert!(overtaken, "KEYS held up the others of its thread");
    walker.send(&["KEYS", "*"]).unwrap();
    other.must("FLUSHALL");
    let keys = walker.read().unwrap().items().len();
    assert!(keys == 200_000 || keys == 0, "{keys} keys");
}
