//! Scripts against a whole server.

use crate::base::time::UnixMs;
use crate::exec::testing::Client;
use crate::exec::{Executor, Outcome};
use crate::resp::{Reply, Value};
use crate::state::Session;
use crate::state::scripts::EVAL_SCRIPTS;
use crate::state::workers::NotKilled;
use crate::storage::{DbIndex, Txn};
use crate::sys::testing::wait_for;
use std::sync::{Arc, Barrier};

fn eval(client: &mut Client, script: &str, keys: &[&str]) -> Value {
    let count = keys.len().to_string();
    let mut args: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
    args.extend(keys.iter().map(|key| key.as_bytes()));
    client.args(&args)
}

#[track_caller]
fn fails(reply: &Value, expected: &str) {
    let error = reply.as_error().unwrap_or_else(|| panic!("{reply:?}"));
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_script_is_one_batch_and_an_error_takes_nothing_back() {
    let mut client = Client::new();
    let script = "redis.call('SET', KEYS[1], 1) redis.call('INCR', KEYS[1]) \
                  return redis.call('GET', KEYS[1])";
    assert_eq!(
        eval(&mut client, script, &["a"]),
        Value::Bulk(b"2".to_vec())
    );
    assert_eq!(client.logged(), ["MULTI", "SET a 1", "INCR a", "EXEC"]);
    let script = "redis.call('SET', KEYS[1], 'x') redis.call('INCR', KEYS[1])";
    fails(
        &eval(&mut client, script, &["b"]),
        "ERR value is not an integer or out of range script: ",
    );
    assert_eq!(client.run("GET b"), Value::Bulk(b"x".to_vec()));
    let script = "redis.call('SELECT', 3) redis.call('SET', 'k', 1)";
    eval(&mut client, script, &[]);
    assert_eq!(client.run("EXISTS k"), Value::Int(0));
    client.run("SELECT 3");
    assert_eq!(client.run("EXISTS k"), Value::Int(1));
    client.check();
}

#[test]
fn an_undeclared_key_that_others_hold_makes_the_script_run_alone() {
    let mut client = Client::new();
    client.run("SET held 1");
    let script = "redis.call('INCR', KEYS[1]) return redis.call('INCR', 'held')";
    let engine = client.server().engine.clone();
    let holds = Arc::new(Barrier::new(2));
    let held = holds.clone();
    let holder = std::thread::spawn(move || {
        let mut other = Txn::new(engine);
        other.begin(UnixMs(0)).unwrap();
        let held_key = other.key_hash(DbIndex(0), b"held");
        other.lock([held_key].into_iter()).unwrap();
        held.wait();
        wait_for("the script, which wants to be alone", || {
            other.is_waited_for()
        });
        other.commit().unwrap();
    });
    holds.wait();
    assert_eq!(eval(&mut client, script, &["own"]), Value::Int(2));
    holder.join().unwrap();
    // The first attempt was taken back.
    assert_eq!(client.run("GET own"), Value::Bulk(b"1".to_vec()));
    let whole = "redis.call('SET', 'x', 1) return redis.call('DBSIZE')";
    assert_eq!(eval(&mut client, whole, &[]), Value::Int(3));
    assert_eq!(
        eval(
            &mut client,
            "redis.call('FLUSHALL') return redis.call('DBSIZE')",
            &[]
        ),
        Value::Int(0)
    );
    client.check();
}

#[test]
fn what_scripts_may_not_do() {
    let mut client = Client::new();
    for (script, expected) in [
        (
            "redis.call('NOPE')",
            "ERR Unknown Redis command called from script script: ",
        ),
        (
            "redis.call('GET')",
            "ERR Wrong number of args calling Redis command from script script: ",
        ),
        (
            "redis.call('CONFIG')",
            "ERR Wrong number of args calling Redis command from script script: ",
        ),
        (
            "redis.call('MULTI')",
            "ERR This Redis command is not allowed from script script: ",
        ),
        (
            "redis.call('EVAL', 'return 1', 0)",
            "ERR This Redis command is not allowed from script",
        ),
        (
            "#!lua flags=no-writes\nredis.call('SET', 'a', 1)",
            "ERR Write commands are not allowed from read-only scripts. script: ",
        ),
        (
            "#!lua flags=none\nreturn 1",
            "ERR Unexpected flag in script shebang: none",
        ),
        (
            "return (",
            "ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'",
        ),
    ] {
        fails(&eval(&mut client, script, &[]), expected);
    }
    fails(
        &client.args(&[b"EVAL_RO", b"redis.call('SET', 'a', 1)", b"0"]),
        "ERR Write commands",
    );
    fails(
        &client.args(&[b"EVAL_RO", b"#!lua\nreturn 1", b"0"]),
        "ERR Can not execute a script with write flag",
    );
    fails(&client.run("EVAL x y"), "ERR value is not an integer");
    fails(
        &client.run("EVAL x 1"),
        "ERR Number of keys can't be greater",
    );
    fails(
        &client.run("EVAL x -1"),
        "ERR Number of keys can't be negative",
    );
    for line in ["EVALSHA abc 0", "EVALSHA abc -1", "EVALSHA_RO abc x"] {
        fails(
            &client.run(line),
            "NOSCRIPT No matching script. Please use EVAL.",
        );
    }
    assert!(client.logged().is_empty());
}

#[test]
fn scripts_are_cached_by_their_sha() {
    let mut client = Client::new();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let loaded = client.args(&[b"SCRIPT", b"LOAD", b"return 1"]);
    assert_eq!(loaded.as_bytes(), Some(sha.as_bytes()));
    assert_eq!(
        client.run(&format!("EVALSHA {} 0", sha.to_uppercase())),
        Value::Int(1)
    );
    for n in 0..EVAL_SCRIPTS + 20 {
        assert_eq!(
            eval(&mut client, &format!("return {n}"), &[]),
            Value::Int(n as i64)
        );
    }
    let server = client.server();
    // `return 1` was loaded with SCRIPT LOAD and is not evicted.
    assert_eq!(server.scripts.cached().0, EVAL_SCRIPTS + 1);
    assert_eq!(server.scripts.evicted(), 19);
    let exists = client.run(&format!("SCRIPT EXISTS {sha} x"));
    assert_eq!(exists, Value::Array(vec![Value::Int(1), Value::Int(0)]));
    client.run("SCRIPT FLUSH");
    fails(&client.run(&format!("EVALSHA {sha} 0")), "NOSCRIPT");
}

#[test]
fn functions_are_rows_of_the_database() {
    let mut client = Client::new();
    let code = b"#!lua name=lib\nredis.register_function('f', function(keys, args) \
        return redis.call('INCRBY', keys[1], args[1]) end)";
    let loaded = client.args(&[b"FUNCTION", b"LOAD", code]);
    assert_eq!(loaded, Value::Bulk(b"lib".to_vec()));
    assert_eq!(client.run("FCALL f 1 n 5"), Value::Int(5));
    fails(
        &client.run("FCALL_RO f 1 n 5"),
        "ERR Can not execute a script with write flag",
    );
    fails(
        &client.args(&[b"FUNCTION", b"LOAD", code]),
        "ERR Library 'lib' already exists",
    );
    let dump = client.run("FUNCTION DUMP");
    let dump = dump.as_bytes().unwrap().to_vec();
    client.run("FUNCTION FLUSH");
    fails(&client.run("FCALL f 1 n 5"), "ERR Function not found");
    client.args(&[b"FUNCTION", b"RESTORE", &dump]);
    assert_eq!(client.run("FCALL f 1 n 5"), Value::Int(10));
    let server = client.server();
    server.scripts.set_libraries(Default::default());
    crate::commands::load_libraries(&server).unwrap();
    assert_eq!(client.run("FCALL f 1 n 5"), Value::Int(15));
    let mut rows = Vec::new();
    let tag = crate::encoding::system::LIBRARY_TAG;
    let engine = &server.engine;
    engine
        .system_rows(tag, |name, value| {
            rows.push((name.to_vec(), value.to_vec()))
        })
        .unwrap();
    assert_eq!(rows, [(b"lib".to_vec(), code.to_vec())]);
    client.run("FUNCTION DELETE lib");
    fails(&client.run("FUNCTION DELETE lib"), "ERR Library not found");
    let logged = client.logged();
    let heads: Vec<&str> = logged
        .iter()
        .map(|line| line.split('\n').next().unwrap())
        .collect();
    let expected = [
        "FUNCTION LOAD #!lua name=lib",
        "INCRBY n 5",
        "FUNCTION FLUSH",
    ];
    assert_eq!(heads[..3], expected);
    client.check();
}

#[test]
fn functions_reject_broken_payloads() {
    let mut client = Client::new();
    fails(
        &client.args(&[b"FUNCTION", b"RESTORE", b"x"]),
        "ERR DUMP payload version or checksum are wrong",
    );
    let dump = client.run("FUNCTION DUMP");
    let dump = dump.as_bytes().unwrap().to_vec();
    assert_eq!(
        client.args(&[b"FUNCTION", b"RESTORE", &dump]),
        Value::Simple("OK".into())
    );
    for (i, _) in dump.iter().enumerate() {
        let mut broken = dump.clone();
        broken[i] ^= 1;
        fails(
            &client.args(&[b"FUNCTION", b"RESTORE", &broken]),
            "ERR DUMP payload",
        );
    }
}

#[test]
fn scripts_within_exec_are_part_of_it() {
    let mut client = Client::new();
    client.run("MULTI");
    client.run("SET a 1");
    client.args(&[b"EVAL", b"return redis.call('INCR', KEYS[1])", b"1", b"a"]);
    client.args(&[b"EVAL", b"return redis.call('INCR', 'b')", b"0"]);
    client.args(&[b"EVAL", b"return redis.call('DBSIZE')", b"0"]);
    let replies = client.run("EXEC");
    let expected = [
        Value::Simple("OK".into()),
        Value::Int(2),
        Value::Int(1),
        Value::Int(2),
    ];
    assert_eq!(replies.as_slice().unwrap(), expected);
    assert_eq!(
        client.logged(),
        ["MULTI", "SET a 1", "INCR a", "INCR b", "EXEC"]
    );
    client.check();
}

#[test]
fn errors_are_counted_once() {
    let mut client = Client::new();
    client.run("SET s x");
    let failing = "return redis.call('INCR', KEYS[1])";
    eval(&mut client, failing, &["s"]);
    let count = |client: &Client, code: &str| {
        let server = client.server();
        let errors = server.stats.errors.lock();
        errors.get(code).copied().unwrap_or(0)
    };
    assert_eq!(count(&client, "ERR"), 1);
    eval(&mut client, "return redis.pcall('INCR', KEYS[1])", &["s"]);
    assert_eq!(count(&client, "ERR"), 2);
    eval(&mut client, "return {err = 'MY error'}", &[]);
    assert_eq!(count(&client, "MY"), 1);
    eval(&mut client, "return redis.call('NOPE')", &[]);
    assert_eq!(count(&client, "ERR"), 3);
    eval(&mut client, "error('x')", &[]);
    assert_eq!(count(&client, "ERR"), 4);
}

#[test]
fn a_script_that_wrote_nothing_can_be_killed_and_one_that_wrote_cannot() {
    let mut client = Client::new().on_worker();
    let server = client.server();
    let watcher = std::thread::spawn(move || {
        let kill = |function| {
            let started = std::time::Instant::now();
            loop {
                match server.workers.kill(function) {
                    Err(NotKilled::NotBusy) if started.elapsed().as_secs() < 60 => {
                        std::thread::yield_now();
                    }
                    other => return other,
                }
            }
        };
        let first = kill(false);
        let has_written = || {
            let running = server.workers.longest();
            running.is_some_and(|running| running.has_written())
        };
        while !has_written() {
            std::thread::yield_now();
        }
        let wrong_sort = kill(true);
        let second = kill(false);
        server.workers.stop_all();
        (first, wrong_sort, second)
    });
    let killed = "ERR Script killed by user with SCRIPT KILL... script: ";
    let endless = "while true do pcall(function() while true do end end) end";
    fails(&eval(&mut client, endless, &[]), killed);
    let writing = "redis.call('SET', KEYS[1], 1) while true do end";
    fails(&eval(&mut client, writing, &["a"]), killed);
    let seen = watcher.join().unwrap();
    let expected = (
        Ok(()),
        Err(NotKilled::OtherSort),
        Err(NotKilled::Unkillable),
    );
    assert_eq!(seen, expected);
    // A stop of the server takes an unfinished script back.
    assert_eq!(client.run("EXISTS a"), Value::Int(0));
    assert!(client.logged().is_empty());
    client.check();
}

#[test]
fn a_slow_script_leaves_its_thread_and_nothing_behind() {
    let mut client = Client::new();
    let (executor, session) = client.parts();
    executor.thread.slices = true;
    let slow = "redis.call('SET', KEYS[1], 1) redis.call('PUBLISH', 'c', 'm') while true do end";
    let request: [&[u8]; 4] = [b"EVAL", slow.as_bytes(), b"1", b"a"];
    let mut reply = Reply::new(false);
    for _ in 0..2 {
        executor.start_tick();
        let outcome = executor.run(session, &request, &mut reply);
        assert_eq!(outcome, Outcome::Slow);
        executor.finish_tick().unwrap();
        assert!(reply.is_empty());
    }
    let run = |executor: &mut Executor, session: &mut Session, line: &str| {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut reply = Reply::new(false);
        executor.start_tick();
        executor.run(session, &args, &mut reply);
        executor.finish_tick().unwrap();
        reply
    };
    run(executor, session, "MULTI");
    run(executor, session, "SELECT 3");
    executor.start_tick();
    executor.run(session, &request, &mut Reply::new(false));
    executor.run(session, &[b"SET", b"b", b"1"], &mut Reply::new(false));
    let outcome = executor.run(session, &[b"EXEC"], &mut reply);
    assert_eq!(outcome, Outcome::Slow);
    executor.finish_tick().unwrap();
    // EXEC can be run again.
    assert_eq!(session.multi().map(|multi| multi.queue.len()), Some(3));
    assert_eq!(session.db(), DbIndex(0));
    run(executor, session, "DISCARD");
    assert_eq!(client.run("DBSIZE"), Value::Int(0));
    assert!(client.logged().is_empty());
    client.check();
}

#[test]
fn replicas_get_what_the_script_wants_them_to_get() {
    let mut client = Client::new();
    let script = "redis.call('SET', 'a', 1) redis.set_repl(redis.REPL_NONE) \
        redis.call('SET', 'b', 2) redis.call('INCR', 'a') redis.set_repl(redis.REPL_AOF) \
        redis.call('SELECT', 3) redis.call('SET', 'c', 3) redis.set_repl(redis.REPL_REPLICA) \
        redis.call('SELECT', 0) redis.call('SET', 'd', 4)";
    eval(&mut client, script, &[]);
    assert_eq!(client.logged(), ["MULTI", "SET a 1", "SET d 4", "EXEC"]);
    assert_eq!(client.run("GET a"), Value::Bulk(b"2".to_vec()));
    // `set_repl` does not outlive its script.
    eval(&mut client, "redis.call('SET', 'e', 5)", &[]);
    assert_eq!(client.logged()[4..], ["SET e 5"]);
    fails(
        &eval(&mut client, "redis.set_repl(4)", &[]),
        "ERR Invalid replication flags",
    );
    client.check();
}

#[test]
fn commands_take_as_many_arguments_as_lua_can_pass() {
    let mut client = Client::new();
    let push = "local a = {} for i = 1, 7999 do a[i] = i end \
        return redis.call('RPUSH', 'l', unpack(a))";
    assert_eq!(eval(&mut client, push, &[]), Value::Int(7999));
    assert_eq!(client.run("LINDEX l -1"), Value::Bulk(b"7999".to_vec()));
    // The number of Lua values that Rust holds at a time is bounded, whatever a script does.
    let many = "local a = {} for i = 1, 7999 do a[i] = 'x' .. i end ";
    for (script, expected) in [
        ("return redis.call('DEL', unpack(a))", None),
        ("return #redis.call('LRANGE', 'l', 0, -1)", None),
        (
            "return cmsgpack.pack(unpack(a))",
            Some("too many arguments"),
        ),
        (
            "return redis.sha1hex(unpack(a))",
            Some("too many arguments"),
        ),
        ("redis.log(1, unpack(a))", Some("too many arguments")),
        ("return #cmsgpack.unpack(cmsgpack.pack(a))", None),
        (
            "return cmsgpack.unpack(string.rep('\\161x', 7999))",
            Some("too many results"),
        ),
        (
            "return struct.unpack(string.rep('s', 7000), string.rep('x\\0', 7000))",
            Some("too many results"),
        ),
        ("return #cjson.decode(cjson.encode(a))", None),
        (
            "cjson.decode_max_depth(2000) return #cjson.decode(string.rep('{\"a\":[1,', 900) .. '1' .. string.rep(']}', 900))",
            None,
        ),
    ] {
        let reply = eval(&mut client, &format!("{many}{script}"), &[]);
        match expected {
            Some(expected) => {
                let error = reply
                    .as_error()
                    .unwrap_or_else(|| panic!("{script}: {reply:?}"));
                assert!(error.contains(expected), "{script}: {error}");
            }
            None => assert!(reply.as_error().is_none(), "{script}: {reply:?}"),
        }
    }
    for script in [
        "return {unpack({1}, 1, 8001)}",
        "return {unpack({}, -2, 2147483647)}",
        "return {unpack({}, -2147483648, 2147483647)}",
    ] {
        fails(
            &eval(&mut client, script, &[]),
            "ERR user_script:1: too many results",
        );
    }
    let some = eval(
        &mut client,
        "return {unpack({1, 2, 3}, 2), unpack({}, 3, 2)}",
        &[],
    );
    assert_eq!(some, Value::Array(vec![Value::Int(2)]));
}

#[test]
fn there_is_room_for_many_scripts_and_functions() {
    let mut client = Client::new();
    for n in 0..9000 {
        let script = format!("return {n}");
        let loaded = client.args(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        let sha = String::from_utf8(loaded.as_bytes().unwrap().to_vec()).unwrap();
        assert_eq!(client.run(&format!("EVALSHA {sha} 0")), Value::Int(n));
    }
    for library in 0..9 {
        let line =
            |n| format!("redis.register_function('f{library}_{n}', function() return {n} end)");
        let lines: Vec<String> = (0..1000).map(line).collect();
        let chunks: Vec<String> = lines
            .chunks(100)
            .map(|lines| format!("do {} end", lines.join("\n")))
            .collect();
        let code = format!("#!lua name=many{library}\n{}", chunks.join("\n"));
        let loaded = client.args(&[b"FUNCTION", b"LOAD", code.as_bytes()]);
        assert_eq!(loaded.as_error(), None);
    }
    assert_eq!(client.run("FCALL f0_999 0"), Value::Int(999));
    assert_eq!(client.run("FCALL f8_998 0"), Value::Int(998));
}

/// All libraries used to be loaded again after each change of one, and values that a script
/// left on Lua's stack ended all later scripts of the thread.
#[test]
fn a_thread_loads_the_libraries_that_it_needs() {
    let mut client = Client::new();
    let load = |client: &mut Client, name: &str, functions: &[(&str, i64)]| {
        let mut code = format!("#!lua name={name}\nlocal n = 0 ");
        for (name, value) in functions {
            code += &format!(
                "redis.register_function('{name}', function() n = n + 1 return {value} + n end) "
            );
        }
        let args: [&[u8]; 4] = [b"FUNCTION", b"LOAD", b"REPLACE", code.as_bytes()];
        client.args(&args)
    };
    load(&mut client, "a", &[("f", 10), ("g", 20)]);
    assert_eq!(client.run("FCALL f 0"), Value::Int(11));
    let clash = load(&mut client, "b", &[("F", 30)]);
    fails(&clash, "ERR Function f already exists");
    // The variables of a library survive a change of another one.
    load(&mut client, "b", &[("h", 30)]);
    assert_eq!(client.run("FCALL G 0"), Value::Int(22));
    // A function moves from one library to another.
    load(&mut client, "a", &[("g", 40)]);
    load(&mut client, "b", &[("f", 50)]);
    assert_eq!(client.run("FCALL f 0"), Value::Int(51));
    assert_eq!(client.run("FCALL g 0"), Value::Int(41));
    assert_eq!(client.run("FCALL f 0"), Value::Int(52));
    fails(&client.run("FCALL h 0"), "ERR Function not found");
    let info = client.run("INFO memory");
    let info = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
    assert!(!info.contains("used_memory_vm_functions:0\r"), "{info}");
    client.run("FUNCTION DELETE a");
    fails(&client.run("FCALL g 0"), "ERR Function not found");
    assert_eq!(client.run("FCALL f 0"), Value::Int(53));
}

#[test]
fn a_script_that_runs_out_of_memory_ends_alone() {
    let mut client = Client::new();
    let full = "return cjson.decode('[' .. string.rep('1,', 4e7) .. '1]')";
    fails(&eval(&mut client, full, &[]), "ERR not enough memory");
    assert_eq!(eval(&mut client, "return 7", &[]), Value::Int(7));
    let all = client.server().scripts.interpreters();
    assert!(all < 32 << 20, "{all}");
}

#[test]
fn time_stands_still_in_scripts_and_transactions() {
    let mut client = Client::new();
    let script = "local a, n = redis.call('TIME'), 0
        for i = 1, 1e5 do n = n + i end
        local b = redis.call('TIME')
        return {a[1] == b[1] and a[2] == b[2] and 1 or 0}";
    let same = eval(&mut client, script, &[]);
    assert_eq!(same, Value::Array(vec![Value::Int(1)]));
    for line in ["MULTI", "TIME", "DEBUG SLEEP 0.002", "TIME"] {
        client.run(line);
    }
    let times = client.run("EXEC");
    let times = times.as_slice().unwrap();
    assert_eq!(times[0], times[2]);
    assert_ne!(client.run("TIME"), times[0]);
}

/// A script that waited for a time never ended.
#[test]
fn time_moves_on_in_scripts_that_run_for_long() {
    let mut client = Client::new();
    client.run("CONFIG SET busy-reply-threshold 2");
    let script = "local begin = redis.call('TIME')
        for calls = 1, 1e6 do
            local now = redis.call('TIME')
            local passed = (now[1] - begin[1]) * 1e6 + now[2] - begin[2]
            if passed > 0 then return passed end
        end
        return 0";
    let passed_us = eval(&mut client, script, &[]);
    assert!(matches!(passed_us, Value::Int(2000..)), "{passed_us:?}");
}

#[test]
fn scripts_do_not_wait_for_streams() {
    let mut client = Client::new();
    client.run("XADD s 1-1 f v");
    client.run("XGROUP CREATE s g $");
    for script in [
        "return redis.call('XREAD', 'BLOCK', 0, 'STREAMS', KEYS[1], '$')",
        "return redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'BLOCK', 0, 'STREAMS', KEYS[1], '>')",
    ] {
        assert_eq!(eval(&mut client, script, &["s"]), Value::Null);
    }
    let script = "return #redis.call('XREAD', 'BLOCK', 0, 'STREAMS', KEYS[1], 0)";
    assert_eq!(eval(&mut client, script, &["s"]), Value::Int(1));
    let script = "return redis.call('XREAD', 'BLOCK', 'x', 'STREAMS', KEYS[1], 0)";
    fails(
        &eval(&mut client, script, &["s"]),
        "ERR timeout is not an integer",
    );
}

/// Compilation used to block the clients of an IO thread for seconds.
#[test]
fn texts_that_take_long_are_compiled_on_a_worker() {
    let mut client = Client::new();
    let mut on_io = Executor::of_thread(client.server(), 0);
    let mut outcome_of = |client: &mut Client, args: &[&[u8]]| {
        on_io.start_tick();
        let mut reply = Reply::new(false);
        let outcome = on_io.run(client.parts().1, args, &mut reply);
        on_io.finish_tick().unwrap();
        outcome
    };
    let long = ["local a ", &"a = 1 ".repeat(200_000), "return 7"].concat();
    let eval = |text: &'static str| -> [&[u8]; 3] { [b"EVAL", text.as_bytes(), b"0"] };
    let request: [&[u8]; 3] = [b"EVAL", long.as_bytes(), b"0"];
    assert_eq!(outcome_of(&mut client, &request), Outcome::Slow);
    assert_eq!(outcome_of(&mut client, &eval("return 1")), Outcome::Done);
    let load: [&[u8]; 3] = [b"SCRIPT", b"LOAD", b"return 1"];
    assert_eq!(outcome_of(&mut client, &load), Outcome::Slow);
    let mut worker = client.another().on_worker();
    assert_eq!(worker.args(&request), Value::Int(7));
    let too_long = vec![b' '; 17 << 20];
    let request: [&[u8]; 3] = [b"EVAL", &too_long, b"0"];
    fails(
        &worker.args(&request),
        "ERR Error compiling script (new function): user_script: the text is too long",
    );
}

/// Each thread's interpreter used to have 256 MB, whatever the budget was.
#[test]
fn all_interpreters_together_have_half_of_the_budget() {
    let client = Client::with(|storage| storage.machine.memory_budget_bytes = 256 << 20);
    let server = client.server();
    let config = server.config.load();
    let (threads, workers) = (config.io_thread_count(), config.worker_count());
    let on_io = Executor::of_thread(server.clone(), 0).interpreter_bytes();
    let on_worker = Executor::on_worker(server, false).interpreter_bytes();
    let least = super::LEAST_BYTES * (threads + workers);
    assert!(on_io * threads + on_worker * workers <= (128 << 20).max(least));
    assert!(on_io <= on_worker);
}

/// Of a transaction's scripts the one that runs is killed, not one that is over.
#[test]
fn a_kill_in_a_transaction_hits_the_script_that_runs() {
    let mut client = Client::new().on_worker();
    let server = client.server();
    let endless = "while(1)do\tend";
    let sha = crate::lua::api::sha1_hex(endless.as_bytes()).into_bytes();
    let watcher = std::thread::spawn(move || {
        let runs = || (server.workers.longest()).is_some_and(|running| running.name == sha);
        while !runs() {
            std::thread::yield_now();
        }
        server.workers.kill(false)
    });
    for line in [
        "MULTI",
        "EVAL return(1) 0",
        &format!("EVAL {endless} 0"),
        "EVAL return(2) 0",
    ] {
        client.run(line);
    }
    let Value::Array(replies) = client.run("EXEC") else {
        panic!("no array");
    };
    assert_eq!(watcher.join().unwrap(), Ok(()));
    assert_eq!((&replies[0], &replies[2]), (&Value::Int(1), &Value::Int(2)));
    fails(&replies[1], "ERR Script killed by user");
}
