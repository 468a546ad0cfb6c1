//! Requests of published advisories against servers of this kind. What they did to others they
//! do not do here: the server answers, and serves its other clients meanwhile.
//!
//! Where other tests hold the same: clients that do not log in (`memory`, `requests`), values that
//! lie (`src/rdb`, fuzz targets), TLS (`tls`), users (`acl`).

use super::bounded;
use crate::crash::kedis_check;
use crate::support::{Conn, Pace, Server, Value, oracle, wait_for};
use kedis::commands::{Flags, Handler, registry};
use std::io::Read;
use std::process::Command;
use std::time::Duration;

fn eval(conn: &mut Conn, script: &str) -> Value {
    conn.call(&["EVAL", script, "0"])
}

fn is_alive(conn: &mut Conn) {
    assert_eq!(conn.cmd("PING"), Value::simple("PONG"));
}

/// CVE-2024-31228: a pattern that a matcher walks again for each of its stars.
#[test]
fn patterns_with_a_million_stars() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    conn.cmd(&format!("SET {} value", "a".repeat(2000)));
    conn.cmd("SADD set member");
    let mut listener = server.connect();
    bounded(&server, || {
        for pairs in [100_000, 1_000_000] {
            let pattern = "*?".repeat(pairs);
            let pattern = pattern.as_str();
            let empty = Value::Array(vec![]);
            assert_eq!(conn.call(&["KEYS", pattern]), empty);
            let scanned = conn.call(&["SCAN", "0", "MATCH", pattern, "COUNT", "1000"]);
            assert_eq!(scanned.items()[1], empty);
            let scanned = conn.call(&["SSCAN", "set", "0", "MATCH", pattern]);
            assert_eq!(scanned.items()[1], empty);
            let listed = conn.call(&["FUNCTION", "LIST", "LIBRARYNAME", pattern]);
            assert_eq!(listed, empty);
            let listed = conn.call(&["COMMAND", "LIST", "FILTERBY", "PATTERN", pattern]);
            assert_eq!(listed, empty);
            assert_eq!(conn.call(&["CONFIG", "GET", pattern]).flat().unwrap(), []);
            listener.call(&["PSUBSCRIBE", pattern]);
            let channel = "c".repeat(1000);
            assert_eq!(conn.call(&["PUBLISH", &channel, "message"]), Value::Int(0));
            listener.call(&["PUNSUBSCRIBE", pattern]);
        }
    });
}

/// CVE-2024-31228: the same patterns as rules of users.
#[test]
fn rules_with_millions_of_stars() {
    let server = Server::start(&["--client-query-buffer-limit", "2gb"]);
    let mut admin = server.connect();
    admin.must(&format!("SET {} value", "a".repeat(2000)));
    for pairs in [100_000, 1_000_000, 10_000_000] {
        let stars = "*?".repeat(pairs);
        let words = [
            "ACL SETUSER user reset on >p +@all",
            &format!("~{stars}"),
            &format!("%R~{stars}a"),
            &format!("&{stars}"),
        ];
        admin.must(&words.join(" "));
        admin.must(&format!("ACL SETUSER user (~{stars}b +get)"));
        let mut conn = server.connect();
        conn.must("AUTH user p");
        let key = "a".repeat(2000);
        for request in [
            vec!["GET", &key],
            vec!["PUBLISH", &key, "message"],
            vec!["ACL", "DRYRUN", "user", "GET", &key],
        ] {
            let began = std::time::Instant::now();
            let refused = format!("{:?}", conn.call(&request)).to_lowercase();
            assert!(refused.contains("no permissions"), "{refused}");
            assert!(began.elapsed() < Duration::from_secs(20));
        }
        admin.must("ACL LOG RESET");
        admin.must("ACL DELUSER user");
        is_alive(&mut admin);
    }
}

/// CVE-2024-31227, CVE-2024-51741: selectors and key permissions that are none. Each is refused
/// as the oracle refuses it, and the user stays as it was.
#[test]
fn malformed_rules_change_no_user() {
    let (ours, theirs) = (Server::start(&[]), oracle(&[]));
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    let rules = [
        "%",
        "%~",
        "%~k",
        "%R",
        "%W",
        "%RW",
        "%RWR~k",
        "%RX~k",
        "%R%W~k",
        "%R~~",
        "%r",
        "(",
        ")",
        "()",
        "(()",
        "())",
        "(%)",
        "(%~k)",
        "(%R)",
        "(%RW)",
        "(%R~k",
        "(~k))",
        "(+get",
        "((~k))",
        "(on)",
        "(nopass)",
        "(>p)",
        "(reset)",
        "(clearselectors)",
        "(~k )",
        "( )",
        "(+@)",
        "(+)",
        "(-)",
        "(&)",
        "(~)",
        "+",
        "-",
        "+@",
        "-@",
        "+|",
        "+get|",
        "+|get",
        "+config|",
        "-config|",
        "+config||get",
        "+config|get|",
        "#",
        "!",
        "#0",
        "<",
        ">",
        "~",
        "&",
        "@all",
        "+@all|get",
    ];
    let mut refused = 0;
    for rule in rules {
        for conn in [&mut ours, &mut theirs] {
            conn.must("ACL SETUSER user reset on >first ~known &known +get (%R~other +set)");
        }
        let before = ours.must("ACL LIST");
        let request = ["ACL", "SETUSER", "user", "+del", rule];
        let (mine, other) = (ours.call(&request), theirs.call(&request));
        let word = rule.trim_start_matches('(').as_bytes();
        let holds_password = matches!(word, [b'<' | b'>' | b'#' | b'!', _, ..]);
        match (mine.error(), other.error()) {
            // Redis quotes it.
            (Some(mine), Some(other)) if holds_password => {
                let (begin, quoted) = mine.split_once('\'').unwrap();
                let (quoted, why) = quoted.rsplit_once('\'').unwrap();
                assert!(other.starts_with(begin) && other.ends_with(why), "{rule}");
                assert!(quoted.ends_with("(redacted)"), "{rule}: {mine}");
            }
            _ => assert_eq!(mine, other, "{rule}"),
        }
        if mine.error().is_some() {
            refused += 1;
            assert_eq!(ours.must("ACL LIST"), before, "{rule}");
        }
    }
    assert!(refused > 30, "{refused}");
}

/// Kvrocks' CVE-2026-41566: administrative commands of a user who may administer nothing, alone
/// and where commands run in commands.
#[test]
fn users_who_are_no_administrators_administer_nothing() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut admin = server.connect();
    admin.must("ACL SETUSER user on >p ~* &* +@all -@admin");
    admin.must("DEBUG SET-DISABLE-DENY-SCRIPTS 1");
    let mut conn = server.connect();
    conn.must("AUTH user p");
    let mut rows = 0;
    for command in registry().iter() {
        let subs = command.subcommands.values();
        for found in std::iter::once(command).chain(subs) {
            let row = found.command;
            if !row.flags.contains(Flags::ADMIN) || matches!(row.handler, Handler::Container) {
                continue;
            }
            rows += 1;
            let mut words = vec![command.full_name.as_str()];
            if !std::ptr::eq(found, command) {
                words.push(row.name);
            }
            while !row.takes(words.len()) {
                words.push("1");
            }
            let denied = |reply: &Value| format!("{reply:?}").contains("NOPERM");
            let reply = conn.call(&words);
            assert!(denied(&reply), "{words:?}: {reply:?}");
            conn.must("MULTI");
            assert!(denied(&conn.call(&words)), "{words:?}");
            conn.cmd("EXEC");
            let script = ["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
            let reply = conn.call(&[&script, &*words].concat());
            assert!(denied(&reply), "{words:?}: {reply:?}");
        }
    }
    assert!(rows > 50, "{rows}");
}

/// CVE-2024-31449: numbers at the edges. The oracle has the mend.
#[test]
fn the_bit_library_at_its_edges() {
    let (ours, theirs) = (Server::start(&[]), oracle(&[]));
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    let numbers = [
        "0",
        "-1",
        "8",
        "-8",
        "31",
        "32",
        "33",
        "-2147483648",
        "2147483647",
        "4294967296",
        "-4294967297",
        "1e15",
        "0/0",
        "1/0",
        "-1/0",
    ];
    for a in numbers {
        for b in numbers {
            for call in [
                "tohex", "lshift", "rshift", "arshift", "rol", "ror", "band", "bxor",
            ] {
                let script = format!("return bit.{call}({a}, {b})");
                // What a conversion of these to an integer gives depends on the processor.
                if script.contains("/0") || script.contains("e15") {
                    eval(&mut ours, &script);
                    continue;
                }
                assert_eq!(
                    eval(&mut ours, &script),
                    eval(&mut theirs, &script),
                    "{script}"
                );
            }
        }
    }
    is_alive(&mut ours);
}

/// CVE-2024-46981, CVE-2025-49844: the collector runs while `load` reads. Stock Lua 5.1.5 uses
/// a name that was freed.
#[test]
fn the_collector_runs_inside_load() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let script = "
        local i = 0
        local function read()
            i = i + 1
            if i == 1 then return nil end
            if i == 2 then collectgarbage() return 'return 1 1' end
            return nil
        end
        local made = {}
        for n = 1, 200 do
            i = 0
            made[n] = { pcall(load, read, string.rep('name', n)) }
            collectgarbage()
            i = 1
            made[n + 200] = { pcall(load, read, string.rep('name', n)) }
        end
        return #made";
    for _ in 0..20 {
        assert_eq!(eval(&mut conn, script), Value::Int(400));
    }
}

/// CVE-2025-46817: counts that overflow. Stock Lua 5.1.5 writes outside of its stack.
#[test]
fn unpack_of_more_than_there_can_be() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    // What the last ones are as integers depends on the processor.
    let refused = 5;
    let ranges = [
        "0, 2147483647",
        "-2147483648, 2147483647",
        "-2147483648, 0",
        "1, 2147483646",
        "1e9, 2e9",
        "-1, 1e18",
        "1, 1/0",
    ];
    for (n, range) in ranges.into_iter().enumerate() {
        for script in [
            format!("return {{unpack({{}}, {range})}}"),
            format!("return {{table.unpack and table.unpack({{}}, {range})}}"),
        ] {
            eval(&mut conn, &script);
            is_alive(&mut conn);
        }
        let answer = eval(&mut conn, &format!("return {{unpack({{}}, {range})}}"));
        assert!(
            n >= refused || answer.error().is_some(),
            "{range}: {answer:?}"
        );
    }
}

/// CVE-2025-46818: a script that changes what scripts of others see.
#[test]
fn metatables_of_basic_types_are_read_only() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    for script in [
        "getmetatable('').__index = function() return 'mine' end",
        "getmetatable('').__add = function() return 'mine' end",
        "rawset(getmetatable(''), '__index', {})",
        "setmetatable(getmetatable(''), {})",
        "string.upper = nil",
        "rawset(string, 'upper', nil)",
        "rawset(_G, 'mine', 1)",
        "setmetatable(_G, {})",
        "getmetatable(_G).__index = nil",
        "redis.call = nil",
        "rawset(redis, 'call', nil)",
        "table.insert(math, 1)",
        "local p = newproxy(true) getmetatable(p).__gc = function() end",
        "setfenv(1, {})",
        "getfenv(0).mine = 1",
        "debug.setmetatable(nil, {})",
    ] {
        let refused = eval(&mut conn, script);
        assert!(refused.error().is_some(), "{script}: {refused:?}");
    }
    let mut other = server.connect();
    let script = "return {('a'):upper(), tostring(rawget(_G, 'mine')), redis.call('PING').ok}";
    let seen = eval(&mut other, script);
    let texts: Vec<String> = seen.items().iter().map(Value::text).collect();
    assert_eq!(texts, ["A", "nil", "PONG"]);
}

/// CVE-2025-46819: the delimiter of a long string, without an end.
#[test]
fn delimiters_of_millions_of_bytes() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    bounded(&server, || {
        for equals in [10_000, 3_000_000] {
            let signs = "=".repeat(equals);
            for script in [
                format!("return [{signs}[ text ]{signs}]"),
                format!("return [{signs}"),
                format!("return [{signs}[ ]{signs}"),
                format!("--[{signs}[ ]{signs}="),
            ] {
                eval(&mut conn, &script);
                is_alive(&mut conn);
            }
        }
    });
}

/// CVE-2025-67733: text of a client in an error reply must not end the reply.
#[test]
fn errors_of_scripts_are_one_line() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    for script in [
        "return redis.error_reply('ERR one\\r\\n+two\\r\\n\\0three')",
        "return redis.error_reply(ARGV[1])",
        "return {err = ARGV[1]}",
        "return redis.status_reply(ARGV[1])",
        "return {ok = ARGV[1]}",
        "error(ARGV[1])",
        "error({err = ARGV[1]})",
        "return redis.call('NO' .. ARGV[1])",
        "return redis.call('CONFIG' .. ARGV[1], ARGV[1])",
        "redis.setresp(3) return {double = ARGV[1]}",
    ] {
        let hostile = "E\r\n+INJECTED\r\n$5\r\nhello\0\r\n";
        conn.send(&["EVAL", script, "0", hostile]).unwrap();
        conn.send(&["ECHO", "after"]).unwrap();
        conn.read().unwrap();
        assert_eq!(conn.read().unwrap(), Value::bulk("after"), "{script}");
    }
}

/// CVE-2025-32023: a sparse HyperLogLog whose runs reach far beyond its registers.
#[test]
fn runs_of_a_hyperloglog_that_overflow() {
    let (server, theirs) = (Server::start(&[]), oracle(&[]));
    let (mut conn, mut other) = (server.connect(), theirs.connect());
    for count in [2, 132_072, 200_000] {
        for opcode in [
            [0x7f, 0xff].as_slice(),
            &[0x7f, 0xff, 0x3f],
            &[0x3f],
            &[0xff],
        ] {
            let mut value = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
            value.extend(opcode.repeat(count));
            let set: [&[u8]; 3] = [b"SET", b"hll", &value];
            for request in [
                "PFCOUNT hll",
                "PFCOUNT hll other",
                "PFMERGE target hll",
                "PFMERGE hll other",
                "PFADD hll element",
            ] {
                for conn in [&mut conn, &mut other] {
                    assert_eq!(conn.call(&set), Value::ok());
                    conn.cmd("DEL target");
                }
                let (ours, theirs) = (conn.cmd(request), other.cmd(request));
                // The oracle does not notice every fault when it adds.
                let refused = ours.error().is_some_and(|text| text.contains("INVALIDOBJ"));
                assert!(ours == theirs || refused, "{request}: {ours:?}, {theirs:?}");
                assert!(
                    refused || request.starts_with("PFADD"),
                    "{request}: {ours:?}"
                );
            }
        }
    }
}

/// CVE-2025-48367: an error of accept() must not end accepting.
#[test]
fn accepting_goes_on_after_errors() {
    let server = Server::start(&[]);
    let mut first = server.connect();
    let pid = server.pid().to_string();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count();
    let limit = |files: usize| {
        let set = Command::new("prlimit")
            .args(["--pid", &pid, &format!("--nofile={files}:")])
            .status();
        assert!(set.expect("util-linux has prlimit").success());
    };
    limit(open + 2);
    let address = server.address();
    let mut waiting: Vec<Conn> = (0..20).map(|_| Conn::open(&address).unwrap()).collect();
    for conn in &mut waiting {
        conn.send(&["PING"]).unwrap();
    }
    wait_for("accept fails", || server.log().contains("accept:"));
    is_alive(&mut first);
    limit(10_000);
    for conn in &mut waiting {
        assert_eq!(conn.read().unwrap(), Value::simple("PONG"));
    }
}

/// CVE-2025-62507: ids beyond what an array of a fixed length holds.
#[test]
fn thousands_of_ids_in_one_command() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    for n in 1..=100 {
        conn.cmd(&format!("XADD stream {n}-1 field value"));
    }
    conn.cmd("XGROUP CREATE stream group 0");
    conn.cmd("XREADGROUP GROUP group consumer STREAMS stream >");
    let ids: Vec<String> = (1..=20_000).map(|n| format!("{n}-1")).collect();
    let count = ids.len().to_string();
    let mut call = |head: &[&str]| {
        let ids = ids.iter().map(String::as_str);
        let words: Vec<&str> = head.iter().copied().chain(ids).collect();
        conn.call(&words)
    };
    let answers = call(&["XACKDEL", "stream", "group", "KEEPREF", "IDS", &count]);
    assert_eq!(answers.items().len(), 20_000);
    assert_eq!(answers.items()[0], Value::Int(1));
    assert_eq!(answers.items()[100], Value::Int(-1));
    let answers = call(&["XDELEX", "stream", "IDS", &count]);
    assert_eq!(answers.items().len(), 20_000);
    assert_eq!(call(&["XDEL", "stream"]), Value::Int(0));
}

/// CVE-2026-27623: requests of nothing, mixed with others, before the login.
#[test]
fn empty_requests_before_the_login() {
    let (ours, theirs) = (
        Server::start(&["--requirepass", "secret"]),
        oracle(&["--requirepass", "secret"]),
    );
    let parts = [
        "*0\r\n",
        "*-1\r\n",
        "\r\n",
        "PING\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
    ];
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let text: String = (0..12)
            .map(|_| parts[random.usize(..parts.len())])
            .collect();
        let end = "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*2\r\n$4\r\nECHO\r\n$3\r\nend\r\n";
        let ask = |server: &Server| {
            let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
            stream
                .set_read_timeout(Some(crate::support::DEADLINE))
                .unwrap();
            std::io::Write::write_all(&mut stream, (text.clone() + end).as_bytes()).unwrap();
            let mut answer = Vec::new();
            let mut byte = [0];
            while !answer.ends_with(b"$3\r\nend\r\n") {
                assert_eq!(stream.read(&mut byte).unwrap(), 1, "{answer:?}");
                answer.push(byte[0]);
            }
            String::from_utf8_lossy(&answer).into_owned()
        };
        assert_eq!(ask(&ours), ask(&theirs), "{text:?}");
    }
}

/// CVE-2026-23479: a blocked client is killed while its command is run again.
#[test]
fn blocked_clients_killed_while_they_are_served() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut conn = server.connect();
    let mut taken = 0;
    let rounds = 300;
    for round in 0..rounds {
        let mut blocked = server.connect();
        let id = blocked.cmd("CLIENT ID").int();
        let wait = match round % 3 {
            0 => "BLPOP list 0",
            1 => "BLMOVE list target LEFT RIGHT 0",
            _ => "BLMPOP 0 1 list LEFT COUNT 2",
        };
        blocked.cmd("CLIENT NO-EVICT ON");
        blocked.send(&crate::support::args(wait)).unwrap();
        wait_for("a blocked client", || {
            conn.info_number("clients", "blocked_clients") == 1
        });
        let request = |line: &str| crate::support::args(line);
        let (push, kill) = (
            request("RPUSH list element"),
            request(&format!("CLIENT KILL ID {id}")),
        );
        let requests = match round % 2 {
            0 => vec![push, kill],
            _ => vec![request("MULTI"), kill, push, request("EXEC")],
        };
        conn.pipeline(&requests);
        // What it has received counts as taken; what it has not may be lost with it.
        taken += u64::from(blocked.read().is_ok());
        conn.cmd("DEL list target");
    }
    println!("{taken} of {rounds} received their element");
    is_alive(&mut conn);
    kedis_check(&mut conn);
}

/// CVE-2026-23631: a script of a writable replica runs while a full sync changes the data over.
#[test]
fn scripts_run_while_the_data_are_replaced() {
    let master = Server::start(&[]);
    let replica = Server::start(&["--replica-read-only", "no", "--enable-debug-command", "yes"]);
    let mut source = master.connect();
    for n in 0..2000 {
        source.cmd(&format!("HSET hash:{n} a 1 b 2"));
    }
    let mut conn = replica.connect();
    let address = ["127.0.0.1".to_owned(), master.port().to_string()];
    for _ in 0..5 {
        conn.cmd("REPLICAOF NO ONE");
        conn.cmd("SET own value");
        let mut scripts = replica.connect();
        let script = "for n = 0, 3e5 do
                redis.pcall('HSET', 'hash:' .. n % 2000, 'c', n)
                if n % 7 == 0 then redis.pcall('DEL', 'hash:' .. n % 2000) end
            end
            return 1";
        scripts.send(&["EVAL", script, "0"]).unwrap();
        conn.call(&["REPLICAOF", &address[0], &address[1]]);
        wait_for("the link", || {
            conn.info_text("replication", "master_link_status") == "up"
        });
        scripts.read().unwrap();
        let mut pace = Pace::per_second(20);
        wait_for("the script has ended", || {
            pace.wait();
            matches!(conn.cmd("EXISTS own"), Value::Int(_))
        });
    }
    conn.cmd("REPLICAOF NO ONE");
    is_alive(&mut conn);
    kedis_check(&mut conn);
}

/// A random choice of many elements with repetition took time by the square of both.
#[test]
fn a_million_random_elements() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    let mut words = vec!["SADD".to_owned(), "set".to_owned()];
    words.extend((0..50_000).map(|n| format!("member{n}")));
    conn.call(&words);
    let mut words = vec!["HSET".to_owned(), "hash".to_owned()];
    words.extend((0..100_000).map(|n| format!("f{n}")));
    conn.call(&words);
    conn.set_timeout(Duration::from_secs(60));
    for request in ["SRANDMEMBER set -1000000", "HRANDFIELD hash -1000000"] {
        assert_eq!(conn.cmd(request).items().len(), 1_000_000);
    }
    for request in ["SRANDMEMBER set 49999", "HRANDFIELD hash 49999"] {
        assert_eq!(conn.cmd(request).items().len(), 49_999);
    }
}
