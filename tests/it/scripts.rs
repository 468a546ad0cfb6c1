//! Scripts that take long, that access undeclared keys, that end with the server, and that
//! exceed their limits.

use crate::crash::kedis_check;
use crate::support::{Conn, Server, Value, args, oracle, seed, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ENDLESS: &str = "local n = 0 while true do n = n + 1 end";

/// EVAL with these keys and no arguments.
fn eval(script: &str, keys: &[&str]) -> Vec<Vec<u8>> {
    let count = keys.len().to_string();
    let head = ["EVAL", script, &count];
    let words = head.iter().chain(keys.iter());
    words.map(|word| word.as_bytes().to_vec()).collect()
}

fn error(value: &Value) -> String {
    value
        .error()
        .unwrap_or_else(|| panic!("no error: {value:?}"))
}

/// Starts a script that does not end, and waits until FUNCTION STATS shows it.
fn start_endless(server: &Server, script: &str, keys: &[&str]) -> Conn {
    let mut conn = server.connect();
    conn.send(&eval(script, keys)).unwrap();
    let mut other = server.connect();
    wait_for("a script that runs", || {
        let stats = other.must("FUNCTION STATS");
        !matches!(stats.items()[1], Value::Null | Value::NullBulk)
    });
    conn
}

fn kill(conn: &mut Conn, victim: &mut Conn) {
    assert_eq!(conn.must("SCRIPT KILL"), Value::ok());
    let why = error(&victim.read().unwrap());
    assert!(why.contains("killed by user with SCRIPT KILL"), "{why}");
    assert_eq!(victim.must("PING"), Value::simple("PONG"));
}

/// The reply to the last of `requests`, whose script is killed with `kill`.
fn killed(server: &Server, kill: &str, requests: &[Vec<Vec<u8>>]) -> Value {
    let (mut victim, mut other) = (server.connect(), server.connect());
    other.must("CONFIG SET busy-reply-threshold 1");
    for request in requests {
        victim.send(request).unwrap();
    }
    wait_for("a script that can be killed", || {
        other.cmd(kill) == Value::ok()
    });
    for _ in &requests[1..] {
        victim.read().unwrap();
    }
    let reply = victim.read().unwrap();
    assert_eq!(other.must("PING"), Value::simple("PONG"));
    reply
}

#[test]
fn a_killed_script_says_where_it_was_as_the_oracle_does() {
    let (ours, theirs) = (Server::start(&[]), oracle(&[]));
    let library = "#!lua name=lib\nlocal function spin()\n while true do end\nend\n\
                   redis.register_function('deep', function() spin() end)\n\
                   redis.register_function{function_name='reads', flags={'no-writes'},\n\
                   callback=function() while true do end end}";
    for server in [&ours, &theirs] {
        let load = ["FUNCTION", "LOAD", library];
        assert_eq!(server.connect().call(&load), Value::bulk("lib"));
    }
    let endless = eval(ENDLESS, &[]);
    for (kill, requests) in [
        ("SCRIPT KILL", vec![endless.clone()]),
        (
            "SCRIPT KILL",
            vec![eval("local x\nwhile true do\nx = 1\nend", &[])],
        ),
        (
            "SCRIPT KILL",
            vec![eval("#!lua flags=no-writes\nwhile true do end", &[])],
        ),
        (
            "SCRIPT KILL",
            vec![eval("local function f()\nwhile true do end\nend\nf()", &[])],
        ),
        (
            "SCRIPT KILL",
            vec![eval("while true do redis.call('ping') end", &[])],
        ),
        (
            "SCRIPT KILL",
            vec![eval("loadstring('while true do end')()", &[])],
        ),
        ("FUNCTION KILL", vec![args("FCALL deep 0")]),
        ("FUNCTION KILL", vec![args("FCALL reads 0")]),
        ("FUNCTION KILL", vec![args("FCALL_RO reads 0")]),
        // The rest of the transaction still runs.
        (
            "SCRIPT KILL",
            vec![
                args("MULTI"),
                args("SET a 1"),
                endless,
                args("INCR a"),
                args("EXEC"),
            ],
        ),
    ] {
        let both = [&ours, &theirs].map(|server| killed(server, kill, &requests));
        assert_eq!(both[0], both[1], "{requests:?}");
    }
}

/// All clients are on one IO thread, but only requests for the script's keys wait.
#[test]
fn requests_for_other_keys_do_not_wait_for_a_slow_script() {
    let server = Server::start(&["--io-threads", "1", "--busy-reply-threshold", "200"]);
    let mut conn = server.connect();
    conn.must("SET mine 1");
    let mut victim = start_endless(&server, ENDLESS, &["mine"]);
    for i in 0..100 {
        conn.must(&format!("SET other {i}"));
        conn.must("MGET other another");
        conn.must("DBSIZE");
    }
    for line in ["GET mine", "MSET other 1 mine 2", "FLUSHALL"] {
        let busy = error(&conn.cmd(line));
        assert!(
            busy.starts_with("BUSY Redis is busy running a script."),
            "{busy}"
        );
    }
    conn.must("MULTI");
    conn.must("INCR mine");
    let aborted = error(&conn.cmd("EXEC"));
    let expected = "EXECABORT Transaction discarded because of: BUSY ";
    assert!(aborted.starts_with(expected), "{aborted}");
    conn.must("WATCH other");
    kill(&mut conn, &mut victim);
    assert_eq!(conn.must("GET mine"), Value::bulk("1"));
    let none = error(&conn.cmd("SCRIPT KILL"));
    assert!(none.starts_with("NOTBUSY"), "{none}");
}

#[test]
fn requests_for_keys_of_a_script_wait_for_its_end() {
    let server = Server::start(&["--io-threads", "2"]);
    let slow = "redis.call('INCR', KEYS[1]) \
        local n = 0 for i = 1, 2e7 do n = n + i end \
        return redis.call('INCR', KEYS[1])";
    let mut script = server.connect();
    script.send(&eval(slow, &["n"])).unwrap();
    let mut other = server.connect();
    wait_for("a script that runs", || {
        !matches!(
            other.must("FUNCTION STATS").items()[1],
            Value::Null | Value::NullBulk
        )
    });
    let mut waiting: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
    for (i, conn) in waiting.iter_mut().enumerate() {
        let line = ["INCR n", "MULTI\r\nINCR n\r\nEXEC"][i % 2];
        conn.send_raw(format!("{line}\r\n").as_bytes()).unwrap();
    }
    assert_eq!(script.read().unwrap(), Value::Int(2));
    let mut seen = Vec::new();
    for (i, conn) in waiting.iter_mut().enumerate() {
        let reply = conn.read().unwrap();
        seen.push(match i % 2 {
            0 => reply.int(),
            _ => {
                conn.read().unwrap();
                conn.read().unwrap().items()[0].int()
            }
        });
    }
    seen.sort_unstable();
    assert_eq!(seen, [3, 4, 5, 6]);
}

/// Long scripts follow each other without a pause, two at a time on the workers. Other clients,
/// and scripts and commands that need all keys, still get their turn.
#[test]
fn clients_have_their_turn_between_long_scripts() {
    let server = Server::start(&["--io-threads", "2"]);
    let long = "local n = 0 for i = 1, 5e6 do n = n + i end return redis.call('INCR', KEYS[1])";
    let over = AtomicBool::new(false);
    let runs_on = |key: &str| {
        let mut conn = server.connect();
        while !over.load(Ordering::Acquire) {
            conn.send(&eval(long, &[key])).unwrap();
            assert_eq!(conn.read().unwrap().error(), None);
        }
    };
    let slowest = std::thread::scope(|threads| {
        for key in ["a", "a", "b", "b", "c"] {
            threads.spawn(move || runs_on(key));
        }
        let mut conn = server.connect();
        let mut slowest = Duration::ZERO;
        for _ in 0..5 {
            for line in [
                "GET a",
                "MGET a b c",
                "SWAPDB 1 2",
                "EVAL return{redis.call('DBSIZE')} 0",
            ] {
                let started = Instant::now();
                conn.must(line);
                slowest = slowest.max(started.elapsed());
            }
        }
        over.store(true, Ordering::Release);
        slowest
    });
    assert!(slowest < Duration::from_secs(30), "{slowest:?}");
}

#[test]
fn a_script_that_waits_on_a_worker_for_a_slow_script_gets_busy_and_makes_room() {
    let server = Server::start(&["--io-threads", "2", "--busy-reply-threshold", "200"]);
    let (mut second, mut third) = (server.connect(), server.connect());
    let mut first = start_endless(&server, ENDLESS, &["x"]);
    kill(&mut third, &mut first);
    // The script is known as slow now.
    let mut first = start_endless(&server, ENDLESS, &["x"]);
    second.send(&eval(ENDLESS, &["x"])).unwrap();
    let busy = error(&second.read().unwrap());
    assert!(busy.starts_with("BUSY "), "{busy}");
    let slow = "local n = 0 for i = 1, 5e6 do n = n + i end return 7";
    third.send(&eval(slow, &["other"])).unwrap();
    assert_eq!(third.read().unwrap(), Value::Int(7));
    // Both workers are busy: EXEC with a script is refused, and the transaction is discarded.
    second.must("MULTI");
    second.must("PING");
    second.send(&eval(slow, &["other"])).unwrap();
    second.read().unwrap();
    let mut other = server.connect();
    other.send(&eval(ENDLESS, &[])).unwrap();
    wait_for("two slow scripts", || {
        third.send(&eval(slow, &["other"])).unwrap();
        third.read().unwrap().error().is_some()
    });
    let aborted = error(&second.cmd("EXEC"));
    assert!(aborted.starts_with("EXECABORT "), "{aborted}");
    assert_eq!(second.must("PING"), Value::simple("PONG"));
    for _ in 0..2 {
        assert_eq!(third.must("SCRIPT KILL"), Value::ok());
    }
    for victim in [&mut first, &mut other] {
        error(&victim.read().unwrap());
    }
}

#[test]
fn what_cannot_be_taken_back_is_done_once_in_a_transaction_with_a_slow_script() {
    let server = Server::start(&["--io-threads", "2"]);
    let mut conn = server.connect();
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    conn.must("MULTI");
    let load = ["FUNCTION", "LOAD", library].map(|word| word.as_bytes().to_vec());
    conn.send(&load).unwrap();
    conn.read().unwrap();
    let slow = "local n = 0 for i = 1, 5e6 do n = n + i end return 7";
    conn.send(&eval(slow, &[])).unwrap();
    conn.read().unwrap();
    let expected = [Value::bulk("lib"), Value::Int(7)];
    assert_eq!(conn.must("EXEC").items(), expected);
}

#[test]
fn a_slow_script_that_runs_alone_stalls_no_thread() {
    let server = Server::start(&["--io-threads", "2", "--busy-reply-threshold", "100"]);
    let alone = format!("redis.call('DBSIZE') {ENDLESS}");
    let mut victim = start_endless(&server, &alone, &[]);
    let mut conns: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
    for conn in &mut conns {
        assert_eq!(conn.must("PING"), Value::simple("PONG"));
        let busy = error(&conn.cmd("SET k v"));
        assert!(busy.starts_with("BUSY "), "{busy}");
        conn.must("PING");
    }
    kill(&mut conns[0], &mut victim);
    conns[1].must("SET k v");
}

#[test]
fn a_script_that_has_written_ends_with_the_server_and_leaves_nothing() {
    let mut server = Server::start(&["--enable-debug-command", "yes"]);
    let script = format!("redis.call('SET', KEYS[1], 1) redis.call('SET', 'b', 1) {ENDLESS}");
    start_endless(&server, &script, &["a"]);
    let mut conn = server.connect();
    let why = error(&conn.cmd("SCRIPT KILL"));
    assert!(why.starts_with("UNKILLABLE "), "{why}");
    let wrong = error(&conn.cmd("FUNCTION KILL"));
    assert!(wrong.starts_with("BUSY "), "{wrong}");
    conn.send(&[b"SHUTDOWN".as_slice(), b"NOSAVE"]).unwrap();
    server.wait_exit();
    server.spawn();
    let mut conn = server.connect();
    assert_eq!(conn.must("EXISTS a b"), Value::Int(0));
    kedis_check(&mut conn);
}

/// EXEC runs on a worker with the whole state of its session.
#[test]
fn a_transaction_with_a_slow_script_is_whole_and_keeps_its_session() {
    let server = Server::start(&["--io-threads", "1"]);
    let mut conn = server.connect();
    conn.must("SELECT 2");
    conn.must("WATCH w");
    conn.must("MULTI");
    conn.must("SET a 1");
    let slow = "local n = 0 for i = 1, 1e7 do n = n + i end return redis.call('INCR', KEYS[1])";
    conn.call(&eval(slow, &["a"]));
    conn.must("SELECT 3");
    conn.must("SET b 1");
    let replies = conn.must("EXEC");
    let expected = [Value::ok(), Value::Int(2), Value::ok(), Value::ok()];
    assert_eq!(replies.items(), expected);
    // The DB that the transaction selected stays selected.
    assert_eq!(conn.must("GET b"), Value::bulk("1"));
    conn.must("SELECT 2");
    assert_eq!(conn.must("GET a"), Value::bulk("2"));
    // Later requests of the pipeline wait.
    let replies = conn.pipeline(&[
        crate::support::args("SET order 1"),
        eval(
            &slow
                .replace("INCR", "APPEND")
                .replace("KEYS[1]", "KEYS[1], '2'"),
            &["order"],
        ),
        crate::support::args("APPEND order 3"),
        crate::support::args("GET order"),
    ]);
    assert_eq!(replies[3], Value::bulk("123"));
}

/// A blocked BLMOVE needs a key that a slow script has locked: no thread stalls, and the client
/// is served after the script.
#[test]
fn a_client_that_waits_is_served_after_a_script_that_has_its_other_key() {
    let server = Server::start(&["--io-threads", "2"]);
    let mut waiting = server.connect();
    waiting
        .send_raw(b"BLMOVE from to LEFT RIGHT 0\r\n")
        .unwrap();
    let mut conn = server.connect();
    wait_for("a client that waits", || {
        conn.must("INFO clients")
            .text()
            .contains("blocked_clients:1\r\n")
    });
    let mut victim = start_endless(&server, ENDLESS, &["to"]);
    // FUNCTION STATS shows a script shortly before it has locked its keys.
    conn.must("CONFIG SET busy-reply-threshold 1");
    wait_for(
        "a script that has its key",
        || matches!(conn.cmd("EXISTS to"), Value::Error(text) if text.starts_with(b"BUSY")),
    );
    conn.must("RPUSH from x");
    assert_eq!(conn.must("LLEN from"), Value::Int(1));
    kill(&mut conn, &mut victim);
    assert_eq!(waiting.read().unwrap(), Value::bulk("x"));
    assert_eq!(
        conn.must("LRANGE to 0 -1"),
        Value::Array(vec![Value::bulk("x")])
    );
    assert_eq!(conn.must("EXISTS from"), Value::Int(0));
}

/// A script runs first on its IO thread, then again on a worker: the first run, which was rolled
/// back, is neither counted nor shown by MONITOR.
#[test]
fn what_a_worker_runs_again_is_counted_and_shown_once() {
    let flags = ["--io-threads", "1", "--busy-reply-threshold", "300"];
    let server = Server::start(&flags);
    let mut conn = server.connect();
    conn.must("RPUSH list a");
    conn.must("CONFIG RESETSTAT");
    let mut monitor = server.connect();
    monitor.must("MONITOR");
    let slow = "redis.call('INCR', KEYS[1]) redis.call('GET', KEYS[1]) \
                redis.pcall('INCR', KEYS[2]) local n = 0 while n < 3e6 do n = n + 1 end return 1";
    let request = eval(slow, &["n", "list"]);
    assert_eq!(conn.call(&request), Value::Int(1));
    conn.must("MULTI");
    conn.must("APPEND n 1");
    conn.call(&request);
    let done = conn.must("EXEC");
    assert_eq!(done.items(), [Value::Int(2), Value::Int(1)]);
    // The request is retried until the script counts as busy.
    let mut victim = start_endless(&server, ENDLESS, &["mine"]);
    let busy = error(&conn.cmd("STRLEN mine"));
    assert!(busy.starts_with("BUSY "), "{busy}");
    kill(&mut conn, &mut victim);
    let stats = conn.must("INFO everything").text();
    for expected in [
        "cmdstat_incr:calls=4,",
        "cmdstat_get:calls=2,",
        "cmdstat_append:calls=1,",
        "cmdstat_exec:calls=1,",
        "cmdstat_eval:calls=3,",
        "errorstat_WRONGTYPE:count=2\r",
        "errorstat_BUSY:count=1\r",
        "keyspace_hits:2\r",
        "keyspace_misses:0\r",
    ] {
        assert!(stats.contains(expected), "no {expected} in {stats}");
    }
    conn.must("ECHO end");
    let mut seen: Vec<String> = Vec::new();
    while seen.last().is_none_or(|name| name != "echo") {
        let line = monitor.read().unwrap().text();
        let (_, request) = line.split_once("] ").unwrap();
        let name = request.split('"').nth(1).unwrap_or_default();
        seen.push(name.to_lowercase());
    }
    let times = |name: &str| seen.iter().filter(|line| *line == name).count();
    for (name, expected) in [
        ("eval", 3),
        ("incr", 4),
        ("get", 2),
        ("append", 1),
        ("multi", 1),
        ("exec", 1),
        ("strlen", 1),
    ] {
        assert_eq!(times(name), expected, "{name} in {seen:?}");
    }
    let of_transaction = ["multi", "append", "eval", "incr", "get", "incr", "exec"];
    assert!(
        seen.windows(7).any(|lines| lines == of_transaction),
        "{seen:?}"
    );
}

#[test]
fn a_client_that_leaves_before_its_script_ends_is_forgotten() {
    let server = Server::start(&["--io-threads", "1"]);
    let mut conn = server.connect();
    let gone = start_endless(&server, ENDLESS, &[]);
    gone.writer().shutdown(std::net::Shutdown::Both).unwrap();
    let mut second = start_endless(&server, ENDLESS, &["k"]);
    let mut third = server.connect();
    third.send(&eval("return 1", &[])).unwrap();
    assert_eq!(third.read().unwrap(), Value::Int(1));
    conn.must("SCRIPT KILL");
    wait_for("the second script, on the only worker", || {
        let stats = conn.must("FUNCTION STATS");
        format!("{stats:?}").contains(&format!("{:?}", Value::bulk("k")))
    });
    kill(&mut conn, &mut second);
    wait_for("clients that are left", || {
        conn.must("INFO clients")
            .text()
            .contains("connected_clients:3\r\n")
    });
}

const ACCOUNTS: usize = 10;

/// A script that moves an amount between two keys in several steps; the second key is
/// undeclared if `hidden`.
fn transfer(hidden: bool) -> String {
    let to = if hidden { "ARGV[1]" } else { "KEYS[2]" };
    format!(
        "local n = ARGV[2] \
         redis.call('DECRBY', KEYS[1], n) \
         for i = 1, 5 do redis.call('INCRBY', {to}, i) redis.call('DECRBY', {to}, i) end \
         redis.call('INCRBY', {to}, n) \
         return redis.call('INCR', 'done:' .. ARGV[3])"
    )
}

fn move_money(address: &str, writer: usize, seed: u64) -> i64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let Ok(mut conn) = Conn::open(address) else {
        return 0;
    };
    let mut acknowledged = 0;
    loop {
        let (from, to) = (rng.usize(..ACCOUNTS), rng.usize(..ACCOUNTS));
        let (from, to) = (format!("account:{from}"), format!("account:{to}"));
        let amount = rng.u32(1..100).to_string();
        let hidden = rng.bool();
        let (keys, second): (&str, &str) = if hidden { ("1", &to) } else { ("2", &from) };
        let script = transfer(hidden);
        let writer = writer.to_string();
        let mut command: Vec<&str> = vec!["EVAL", &script, keys, &from];
        if !hidden {
            command.push(&to);
        }
        command.extend([second, &amount, &writer]);
        match conn.call(&command) {
            Value::Int(n) => acknowledged = n,
            Value::Lost(_) => return acknowledged,
            other => panic!("{other:?}"),
        }
    }
}

/// Sums up the accounts with scripts, with undeclared and with declared keys.
fn audit(address: &str, over: &AtomicBool) -> u64 {
    let Ok(mut conn) = Conn::open(address) else {
        return 0;
    };
    let sum = |keys: &str| {
        format!(
            "local s = 0 for i = 0, {} do s = s + (tonumber(redis.call('GET', {keys})) or 0) end return s",
            ACCOUNTS - 1
        )
    };
    let names: Vec<String> = (0..ACCOUNTS).map(|i| format!("account:{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut audits = 0;
    while !over.load(Ordering::Relaxed) {
        for command in [
            eval(&sum("'account:' .. i"), &[]),
            eval(&sum("KEYS[i + 1]"), &names),
        ] {
            match conn.call(&command) {
                Value::Int(sum) => assert_eq!(sum, 0),
                Value::Lost(_) => return audits,
                other => panic!("{other:?}"),
            }
            audits += 1;
        }
    }
    audits
}

/// Scripts are atomic for other scripts, with declared and undeclared keys, and after kill -9.
#[test]
fn scripts_are_whole_after_kill9_and_in_between() {
    const WRITERS: usize = 5;
    let mut rng = fastrand::Rng::with_seed(seed("KEDIS_SCRIPT_SEED"));
    let flags = ["--io-threads", "3", "--enable-debug-command", "yes"];
    let mut server = Server::start(&flags);
    for _ in 0..3 {
        let address = server.address();
        let pause = Duration::from_millis(rng.u64(150..700));
        let seeds: Vec<u64> = (0..WRITERS).map(|_| rng.u64(..)).collect();
        let over = AtomicBool::new(false);
        let acknowledged: Vec<i64> = std::thread::scope(|scope| {
            let (address, over) = (&address, &over);
            let writers: Vec<_> = seeds
                .iter()
                .enumerate()
                .map(|(writer, &seed)| scope.spawn(move || move_money(address, writer, seed)))
                .collect();
            let auditor = scope.spawn(move || audit(address, over));
            let until = Instant::now() + pause;
            wait_for("the time of the kill", || Instant::now() >= until);
            server.kill9();
            let acknowledged = writers.into_iter().map(|w| w.join().unwrap());
            let acknowledged = acknowledged.collect();
            over.store(true, Ordering::Relaxed);
            assert!(auditor.join().unwrap() > 0, "no audit was done");
            acknowledged
        });
        assert!(acknowledged.iter().sum::<i64>() > 0, "nothing was done");
        server.change_memtable();
        server.spawn();
        let mut conn = server.connect();
        let mut sum = 0;
        for i in 0..ACCOUNTS {
            if let Value::Bulk(text) = conn.must(&format!("GET account:{i}")) {
                sum += String::from_utf8(text).unwrap().parse::<i64>().unwrap();
            }
        }
        assert_eq!(sum, 0);
        for (writer, &acknowledged) in acknowledged.iter().enumerate() {
            let done = match conn.must(&format!("GET done:{writer}")) {
                Value::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
                _ => 0,
            };
            assert!(done >= acknowledged, "{done} of {acknowledged} are left");
        }
        kedis_check(&mut conn);
    }
}

#[test]
fn a_script_cannot_exhaust_memory() {
    let server = Server::start(&["--io-threads", "1"]);
    let mut conn = server.connect();
    let before = server.rss();
    for hungry in [
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local t = {} for i = 1, 1e9 do t[i] = {tostring(i)} end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 2e9)",
        "local t = {} while true do t[#t + 1] = #t .. string.rep('x', 1e6) end",
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 3000 do t[i] = s end return table.concat(t)",
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 3000 do t[i] = s end return cjson.encode(t)",
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 3000 do t[i] = s end return cmsgpack.pack(t)",
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 3000 do t[i] = s end return t",
        "local t = {} for i = 1, 30 do t = {t, t} end return t",
        "local t = {} for i = 1, 30 do t = {t, t} end return cjson.encode(t)",
        "local s = string.rep('x', 1e6) while true do redis.call('APPEND', KEYS[1], s) end",
        "local f f = function() return 1 + f() end return f()",
        "local f f = function() return coroutine.wrap(f)() end return f()",
        "return string.rep('(', 1e5) .. string.find(string.rep('a', 1e5), string.rep('(', 1e5))",
        "return loadstring('return ' .. string.rep('(', 1e5) .. '1' .. string.rep(')', 1e5))()",
        "return cjson.decode(string.rep('[', 1e6))",
        "return cmsgpack.unpack(string.rep('\\145', 1e6))",
        "return {unpack({}, 1, 1e7)}",
        "return {unpack({}, -2, 2147483647)}",
        "return {unpack({}, -2147483648, 2147483647)}",
    ] {
        let reply = conn.call(&eval(hungry, &["k"]));
        assert!(matches!(reply, Value::Error(_)), "{hungry}: {reply:?}");
        conn.must("PING");
        conn.must("DEL k");
    }
    let grown = server.rss().saturating_sub(before);
    assert!(grown < 2 << 30, "{grown} bytes more");
}

#[test]
fn info_shows_the_memory_of_a_script_that_runs() {
    let server = Server::start(&[]);
    let script = "local t = {} for i = 1, 200000 do t[i] = tostring(i) end while true do end";
    let mut victim = start_endless(&server, script, &[]);
    let mut conn = server.connect();
    let mut used = || conn.info_number("memory", "used_memory_vm_total");
    wait_for("its memory", || used() > 6 << 20);
    kill(&mut server.connect(), &mut victim);
}

#[test]
fn a_script_reaches_nothing_outside_its_sandbox() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    for absent in [
        "io",
        "os.execute",
        "os.exit",
        "os.remove",
        "os.rename",
        "os.getenv",
        "os.tmpname",
        "package",
        "require",
        "module",
        "dofile",
        "loadfile",
        "debug",
        "print",
        "newproxy",
        "getfenv",
        "setfenv",
        "jit",
        "ffi",
        "load_aux",
    ] {
        let (head, tail) = absent.split_once('.').unwrap_or((absent, ""));
        let script = format!(
            "local ok, v = pcall(function() return _G['{head}'] end) \
             if not ok then return 'absent' end \
             if '{tail}' ~= '' then v = rawget(v, '{tail}') end \
             return type(v) == 'nil' and 'absent' or type(v)"
        );
        assert_eq!(
            conn.call(&eval(&script, &[])),
            Value::bulk("absent"),
            "{absent}"
        );
    }
    for forbidden in [
        // The loader refuses bytecode.
        "return loadstring(string.dump(function() return 1 end))()",
        "local f = load(function() return string.dump(function() end) end) return f()",
        // Shared tables cannot be changed.
        "string.format = 1",
        "rawset(string, 'format', 1)",
        "rawset(_G, 'leak', 1)",
        "_G.leak = 1",
        "leak = 1",
        "setmetatable(_G, {})",
        "getmetatable(_G).__index = function() return 1 end",
        "getmetatable('').__index = {}",
        "rawset(getmetatable(''), '__index', {})",
        "getmetatable('').__index.format = 1",
        "redis.call = 1",
        "table.insert(redis, 1)",
        "cjson.decode = 1",
        "setmetatable(redis, nil)",
        // Commands that are not for scripts.
        "return redis.call('CONFIG', 'SET', 'maxclients', '1')",
        "return redis.call('SHUTDOWN')",
        "return redis.call('EVAL', 'return 1', '0')",
        "return redis.call('MULTI')",
        "return redis.call('SUBSCRIBE', 'c')",
        "return redis.call('DEBUG', 'SLEEP', '1')",
        "return redis.call('REPLICAOF', 'NO', 'ONE')",
        "return redis.call('AUTH', 'x')",
        "return redis.call('SCRIPT', 'FLUSH')",
        "return redis.call('FUNCTION', 'FLUSH')",
    ] {
        let reply = conn.call(&eval(forbidden, &[]));
        assert!(matches!(reply, Value::Error(_)), "{forbidden}: {reply:?}");
    }
    // None of these has an effect on any thread.
    for _ in 0..4 {
        let mut conn = server.connect();
        let check = "return {string.format('%d', 1), ('x'):rep(2), type(redis.call), \
            tostring(pcall(function() return leak end))}";
        let expected = ["1", "xx", "function", "false"].map(Value::bulk);
        assert_eq!(conn.call(&eval(check, &[])).items(), expected);
    }
}
