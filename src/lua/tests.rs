//! The sandbox as scripts see it.

use super::*;
use crate::resp::{Value as Decoded, decode};
use std::time::{Duration, Instant};

/// A host with a few commands.
struct Commands;

impl Host for Commands {
    fn call(&mut self, args: &[&[u8]], reply: &mut Reply) -> Result<(), Halted> {
        match args[0] {
            b"echo" => reply.bulk(args[1]),
            b"ok" => reply.ok(),
            b"null" => reply.null(),
            b"types" => {
                reply.array(5);
                reply.map(1);
                reply.bulk(b"f");
                reply.double(1.5);
                reply.set(1);
                reply.bulk(b"m");
                reply.boolean(true);
                reply.big_number("123");
                reply.verbatim("txt", b"v");
            }
            b"halt" => return Err(Halted),
            _ => reply.error("ERR no"),
        }
        Ok(())
    }

    fn replicate(&mut self, _: bool) {}

    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool> {
        (args[0] == b"echo").then_some(true)
    }
}

const MEMORY: usize = 32 << 20;

fn interpreter() -> Interpreter {
    Interpreter::new(MEMORY, "7.4.0").unwrap()
}

/// Time limit for scripts that would not end.
const SOON: Duration = Duration::from_millis(300);

/// Runs a script with `KEYS` a, b and `ARGV` c.
fn run_in(lua: &mut Interpreter, script: &str, resp3: bool) -> Result<Vec<u8>, Failure> {
    run_for(lua, script, resp3, Duration::from_secs(60))
}

fn run_for(
    lua: &mut Interpreter,
    script: &str,
    resp3: bool,
    time: Duration,
) -> Result<Vec<u8>, Failure> {
    lua.compile("sha", script.as_bytes(), Limits::default())
        .unwrap();
    let mut reply = Reply::new(resp3);
    let limits = Limits {
        time: Some(time),
        ..Limits::default()
    };
    let which = Which::Script("sha");
    let done = lua.run(
        which,
        &[b"a", b"b"],
        &[b"c"],
        limits,
        &mut Commands,
        &mut reply,
    );
    assert!(lua.tidy(), "{script}");
    done?;
    let whole = decode(&reply.buf).unwrap().unwrap();
    assert_eq!(whole.1, reply.len(), "{script}");
    Ok(reply.buf)
}

#[track_caller]
fn gives(script: &str, expected: &str) {
    let reply = run_in(&mut interpreter(), script, false).unwrap();
    assert_eq!(String::from_utf8_lossy(&reply), expected, "{script}");
}

#[track_caller]
fn fails(script: &str, expected: &str) {
    match run_in(&mut interpreter(), script, false) {
        Err(Failure::Error { text, .. }) => {
            let text = String::from_utf8_lossy(&text);
            assert!(text.starts_with(expected), "{script}: {text}");
        }
        other => panic!("{script}: {other:?}"),
    }
}

#[track_caller]
fn is_stopped(script: &str, why: Trip) {
    let started = Instant::now();
    match run_for(&mut interpreter(), script, false, SOON) {
        Err(Failure::Stopped { why: trip, .. }) => assert_eq!(trip, why, "{script}"),
        other => panic!("{script}: {other:?}"),
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{script}");
}

/// A host with a command that has the script killed.
struct Killer(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Host for Killer {
    fn call(&mut self, _: &[&[u8]], reply: &mut Reply) -> Result<(), Halted> {
        self.0.store(true, std::sync::atomic::Ordering::Release);
        reply.ok();
        Ok(())
    }

    fn replicate(&mut self, _: bool) {}

    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        None
    }
}

/// A script that was killed in line 2 went on to the next command, because the work of a call was
/// counted only if that call alone had enough, and that on texts not at all.
#[test]
fn work_is_counted_while_it_is_done_and_from_call_to_call() {
    for (before, line) in [
        (
            "local s = string.rep('\\1', 5e5)",
            "for i = 1, 5 do cjson.encode(s) end",
        ),
        (
            "local s = string.rep('x', 5e5)",
            "for i = 1, 9 do redis.sha1hex(s) end",
        ),
        (
            "local t = {[string.rep('\\1', 1e6)] = 1}",
            "cjson.encode(t)",
        ),
        (
            "local s = '\"' .. string.rep('x', 4e5) .. '\"'",
            "cjson.decode(s) cjson.decode(s)",
        ),
    ] {
        let script = format!("{before} redis.call('kill')\n{line}\nredis.call('kill')");
        let mut lua = interpreter();
        let none = Limits::default();
        lua.compile("sha", script.as_bytes(), none).unwrap();
        let kill = std::sync::Arc::default();
        let mut host = Killer(std::sync::Arc::clone(&kill));
        let limits = Limits {
            kill: Some(kill),
            ..Limits::default()
        };
        let mut reply = Reply::new(false);
        let which = Which::Script("sha");
        let done = lua.run(which, &[], &[], limits, &mut host, &mut reply);
        let Err(Failure::Stopped { why, place }) = done else {
            panic!("{line}: {done:?}");
        };
        let place = String::from_utf8_lossy(&place).into_owned();
        assert_eq!(why, Trip::Killed, "{line}");
        assert!(place.contains(":2"), "{line}: {place}");
    }
}

#[test]
fn values_and_replies() {
    gives("return 3.99", ":3\r\n");
    gives("return KEYS", "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    gives("return ARGV[1]", "$1\r\nc\r\n");
    gives("return {1,2,nil,3}", "*2\r\n:1\r\n:2\r\n");
    gives("return false", "$-1\r\n");
    gives("return {ok='fine'}", "+fine\r\n");
    gives("return redis.call('ok')", "+OK\r\n");
    gives("return redis.call('null')", "$-1\r\n");
    gives("return redis.call('echo', 0.1)", "$3\r\n0.1\r\n");
    gives("return redis.pcall('no').err", "$6\r\nERR no\r\n");
    gives("return {redis.pcall('no')}", "*1\r\n-ERR no\r\n");
    fails("return {err='MY text'}", "MY text");
    fails(
        "\nredis.call('no')",
        "ERR no script: sha, on @user_script:2.",
    );
    fails(
        "error('x')",
        "ERR user_script:1: x script: sha, on @user_script:1.",
    );
    fails("error({err='MY x'})", "MY x script: sha");
    fails("error({})", "ERR unknown error");
}

#[test]
fn types_of_resp3_go_both_ways() {
    let all = "%1\r\n$1\r\nf\r\n,1.5\r\n~1\r\n$1\r\nm\r\n#t\r\n(123\r\n=5\r\ntxt:v\r\n";
    let script = "redis.setresp(3) return redis.call('types')";
    let reply = run_in(&mut interpreter(), script, true).unwrap();
    assert_eq!(String::from_utf8_lossy(&reply), format!("*5\r\n{all}"));
    let kinds = "redis.setresp(3) local t = redis.call('types')
        return {t[1].map.f.double == 1.5, t[2].set.m, t[3], t[4].big_number, t[5].verbatim_string.format}";
    let reply = run_in(&mut interpreter(), kinds, true).unwrap();
    let (decoded, _) = decode(&reply).unwrap().unwrap();
    let yes = Decoded::Bool(true);
    let expected = [yes.clone(), yes.clone(), yes];
    assert_eq!(decoded.as_slice().unwrap()[..3], expected);
    gives(
        "return redis.call('types')[1]",
        "*2\r\n$1\r\nf\r\n$3\r\n1.5\r\n",
    );
}

#[test]
fn nothing_shared_can_be_changed() {
    let read_only = "ERR user_script:1: Attempt to modify a readonly table";
    for script in [
        "x = 1",
        "redis = nil",
        "_G.x = 1",
        "redis.call = nil",
        "string.rep = nil",
        "getmetatable('').__index = nil",
        "getmetatable('').__index.rep = nil",
        "getmetatable(_G).__index = nil",
        "for k in pairs(string) do string[k] = nil end",
        "local _, t = pairs(redis) t.call = nil",
        "table.foreach(redis, function(k) redis[k] = nil end)",
    ] {
        fails(script, read_only);
    }
    for script in [
        "rawset(_G, 'x', 1)",
        "rawset(string, 'rep', nil)",
        "setmetatable(_G, {})",
        "setmetatable(redis, nil)",
        "table.insert(redis, 1)",
        "setmetatable(getmetatable(''), {})",
    ] {
        fails(script, "ERR Attempt to modify a readonly table");
    }
    gives("return type(rawget(redis, 'call'))", "$8\r\nfunction\r\n");
    gives("return {getmetatable(redis)}", "*0\r\n");
    gives("return next(redis) ~= nil and 1", ":1\r\n");
}

#[test]
fn what_is_not_there() {
    for name in [
        "print", "dofile", "loadfile", "require", "module", "package", "io", "debug", "setfenv",
        "getfenv", "newproxy", "x",
    ] {
        let expected = format!(
            "ERR user_script:1: Script attempted to access nonexistent global variable '{name}'"
        );
        fails(&format!("return {name}"), &expected);
    }
    gives(
        "local n = 0 for k in pairs(os) do n = n + 1 end return n",
        ":1\r\n",
    );
    gives("return {loadstring(string.dump(function() end))}", "*0\r\n");
    gives("return {loadstring('\\27Lua')}", "*0\r\n");
    gives("return loadstring('return 1')()", ":1\r\n");
    fails(
        "return loadstring('return x')()",
        "ERR [string \"return x\"]:1: Script attempted",
    );
    let piecewise = "local t = {'return ', '7'} local i = 0
        return load(function() i = i + 1 return t[i] end)()";
    gives(piecewise, ":7\r\n");
}

#[test]
fn stops_cannot_be_caught() {
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "xpcall(function() while true do end end, function() while true do end end)",
        "local c = coroutine.create(function() while true do end end) coroutine.resume(c) return 1",
        "return tostring(setmetatable({}, {__tostring = function() while true do end end}))",
        "repeat until false",
        "local function f() return f() end return f()",
        "return string.find(string.rep('(', 1e6), '%b()')",
        "return string.match(string.rep('a', 1e5), string.rep('.-', 50) .. 'b')",
        "return string.gsub(string.rep('a', 1e5), string.rep('a*', 50) .. 'b', '')",
        "for a in string.gmatch(string.rep('a', 1e5), string.rep('a*', 50) .. 'b') do end",
        "while true do pcall(string.find, string.rep('(', 1e6), '%b()') end",
        "local t, x = {}, 1
        for i = 1, 1e6 do x = x * 16807 % 2147483647 t[i] = x end
        table.sort(t)
        return 1",
    ] {
        is_stopped(script, Trip::Time);
    }
    // Library functions in C, which run long without a line of Lua.
    for script in [
        "table.insert({}, -2147483648, 1)",
        "table.insert({}, 2147483648, 1)",
        "local s = string.rep('x', 2e6) while true do pcall(string.upper, s) end",
        "local s = string.rep('x', 1e6) local function f() return f(s:lower(), s:reverse()) end f()",
        "local t = {} for i = 1, 1e5 do t[i] = i end
        while true do pcall(table.remove, t, 1) table.insert(t, 1, 0) end",
        "local t = {} for i = 1, 1e5 do t[i] = 'some text' end while true do table.concat(t, ', ') end",
        "local t = {} for i = 1, 1000 do t[i] = string.rep('x', 10000) .. i end
        while true do table.sort(t, function(a, b) return a > b end) table.sort(t) end",
        "local s = string.rep('%', 1e6) while true do pcall(string.format, s) end",
        "local s = string.rep(' ', 1e6) while true do tonumber(s, 16) end",
        "local s = string.rep(' ', 1e6) while true do local n = tonumber(s) end",
        "local t = {} for i = 1, 2^20 do t[i] = i end for i = 1, 2^20 do t[i] = nil end
        while true do next(t) end",
        "while true do collectgarbage() end",
        "local t, k = {}, 2^19 + 1 while k < 2^31 do t[k] = 1 k = k * 2 end
        for i = 1, 2^19 do t[i] = i end while true do local n = #t end",
        "local s = string.rep('x', 5e6) while true do local t = s .. 'y' end",
        "local s = string.rep('x = x ', 1e6) while true do loadstring(s) end",
        "local s = '--' .. string.rep('x', 1e6) while true do loadstring(s) end",
    ] {
        is_stopped(script, Trip::Time);
    }
    for script in [
        "redis.call('halt')",
        "pcall(redis.call, 'halt')\nreturn 1",
        "while true do redis.pcall('halt') end",
        "return coroutine.wrap(function() redis.call('halt') end)()",
    ] {
        is_stopped(script, Trip::Halted);
    }
    let mut lua = interpreter();
    assert!(run_for(&mut lua, "while true do end", false, SOON).is_err());
    assert_eq!(run_in(&mut lua, "return 1", false).unwrap(), b":1\r\n");
}

#[test]
fn patterns_are_those_of_lua() {
    for (call, expected) in [
        ("find('abc', 'b')", "2 2"),
        ("find('abc', 'b', -1)", "nil"),
        ("find('a.c', '.', 2, true)", "2 2"),
        ("find('abc', '', 10)", "4 3"),
        ("find('abc', '(b)()')", "2 2 b 3"),
        ("find('a\\0b', 'a\\0b')", "1 3"),
        ("find('a\\0b', 'a%z')", "1 2"),
        ("find('abc', '^b')", "nil"),
        ("match('key = value', '^(%w+)%s*=%s*(%w+)$')", "key value"),
        ("match('  x ', '^%s*(.-)%s*$')", "x"),
        ("match('[[x]]', '%b[]')", "[[x]]"),
        ("match('THE (quick) fox', '%f[%a]%a+%f[%A]', 5)", "quick"),
        ("match('abab', '(ab)%1')", "ab"),
        ("match('a-z]', '[]%-z]+', 2)", "-z]"),
        ("match('x^', '[%^]')", "^"),
        ("match('b', '[^a-]')", "b"),
        ("match('2026-11', '%d-%-(%d?%d)')", "11"),
        ("gsub('hello', '', '-')", "-h-e-l-l-o- 6"),
        ("gsub('abc', '%w', '%0%0', 2)", "aabbc 2"),
        ("gsub('abc', '(a)(b)', '%2%1')", "bac 1"),
        ("gsub('abc', '^a', 'x%%')", "x%bc 1"),
        ("gsub('abc', 'b', {b = 7})", "a7c 1"),
        (
            "gsub('abc', '.', function(c) return c == 'b' and c:upper() end)",
            "aBc 3",
        ),
        ("gsub('a b', '()', '%1')", "1a2 3b4 4"),
        ("gsub('x', 'x', 'a%')", "a\0 1"),
    ] {
        let script = format!("return table.concat(({{s = {{string.{call}}}}}).s, ' ')");
        let script = match expected {
            "nil" => format!("return tostring(string.{call})"),
            _ => script,
        };
        let expected = format!("${}\r\n{expected}\r\n", expected.len());
        gives(&script, &expected);
    }
    let words = "local t = {} for w, at in string.gmatch('one two', '(%w+)()') do
            t[#t + 1] = w .. at
        end
        for e in string.gmatch('ab', 'x*') do t[#t + 1] = '<' .. e .. '>' end
        return table.concat(t, ' ')";
    gives(words, "$18\r\none4 two8 <> <> <>\r\n");
    for (call, why) in [
        ("find('a', '[a')", "malformed pattern (missing ']')"),
        ("find('a', 'a%')", "malformed pattern (ends with '%')"),
        ("find('a', '%f')", "missing '[' after '%f' in pattern"),
        ("find('a', '%bx')", "unbalanced pattern"),
        ("find('a', '(a')", "unfinished capture"),
        ("match('a', 'a)')", "invalid pattern capture"),
        ("find('a', '%1')", "invalid capture index"),
        ("find('a', string.rep('(', 40) .. 'a')", "too many captures"),
        ("gsub('a', 'a', '%2')", "invalid capture index"),
        (
            "gsub('a', 'a', function() return {} end)",
            "invalid replacement value (a table)",
        ),
        (
            "gsub('a', 'a')",
            "bad argument #3 to 'gsub' (string/function/table expected)",
        ),
        (
            "find('a')",
            "bad argument #2 to 'find' (string expected, got no value)",
        ),
    ] {
        fails(
            &format!("return string.{call}"),
            &format!("ERR user_script:1: {why}"),
        );
    }
    fails(
        "return pcall(string.gsub, 'a', 'a', function() error({err = 'MY own'}) end), error('no')",
        "ERR user_script:1: no",
    );
    gives(
        "local ok, why = pcall(string.gsub, 'a', 'a', function() error({err = 'MY own'}) end) return why",
        "$6\r\nMY own\r\n",
    );
    gives(
        "local t = {'c', 'a', 'b'} table.sort(t) return t",
        "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
    );
    fails("table.sort({1, 'a'})", "ERR attempt to compare");
    let many = "local t = {} for i = 1, 2000 do t[i] = -i end ";
    gives(&format!("{many} table.sort(t) return t[1]"), ":-2000\r\n");
    fails(
        &format!("{many} t[9] = 'a' table.sort(t)"),
        "ERR attempt to compare",
    );
}

#[test]
fn memory_and_stack_are_bounded() {
    // As much stack as the server's threads have.
    let thread = std::thread::Builder::new().stack_size(8 << 20);
    let run = thread.spawn(bounds_of_memory_and_stack).unwrap();
    run.join().unwrap();
}

fn bounds_of_memory_and_stack() {
    let memory = "ERR not enough memory";
    fails("return string.rep('x', 1e10)", memory);
    fails("local s = 'x' while true do s = s .. s end", memory);
    fails(
        "local t = {1} for i = 1, 60 do t = {t, t} end return t",
        memory,
    );
    fails(
        "local t = {1} for i = 1, 60 do t = {t, t} end return cjson.encode(t)",
        "ERR user_script:1: not enough memory",
    );
    let wide = "local t = {} for i = 1, 99 do t[i] = i end
        for i = 1, 15 do local u = {} for j = 1, 99 do u[j] = t end t = u end
        return cmsgpack.pack(t)";
    fails(wide, "ERR user_script:3: not enough memory");
    gives("return string.rep('', 1e15)", "$0\r\n\r\n");
    fails(
        "local function f() return 1 + f() end return f()",
        "ERR user_script:1: stack overflow",
    );
    for script in [
        "local function f() return coroutine.wrap(f)() end return f()",
        "local g = string.gsub local function f() return g('a', 'a', f) end return f()",
        "return string.find(string.rep('a', 9999), string.rep('a?', 9999))",
        "for a in string.gfind(string.rep('a', 9999), string.rep('a?', 9999)) do end",
        "return unpack({}, 1, 1e8)",
        "cjson.decode_max_depth(1e6) return cjson.decode(string.rep('[', 1e5))",
        "cjson.encode_max_depth(1e6) local t = {} for i = 1, 1e5 do t = {t} end return cjson.encode(t)",
        "return cmsgpack.unpack(string.rep('\\145', 1e5))",
        "local t = {} t[1] = t return cjson.encode(t)",
    ] {
        fails(script, "ERR ");
    }
    gives(
        "return type(loadstring(string.rep('(', 1e5)))",
        "$3\r\nnil\r\n",
    );
    let mut lua = interpreter();
    let deep = b"local t = {} t[1] = t return t";
    lua.compile("deep", deep, Limits::default()).unwrap();
    let (which, mut reply) = (Which::Script("deep"), Reply::new(false));
    lua.run(
        which,
        &[],
        &[],
        Limits::default(),
        &mut Commands,
        &mut reply,
    )
    .unwrap();
    assert!(reply.buf.ends_with(b"-ERR reached lua stack limit\r\n"));
    assert!(lua.tidy());
    assert!(lua.used_memory() < MEMORY);
}

#[test]
fn libraries_are_loaded_on_their_own_terms() {
    let mut lua = interpreter();
    let code = b"#!lua name=l\nlocal n = 0
        redis.register_function('count', function() n = n + 1 return n end)
        redis.register_function{function_name='echo', description='d', flags={'no-writes'},
            callback=function(keys, args) return {keys[1], args[1]} end}";
    let loaded = lua.load_library(code, Limits::default()).unwrap();
    let names: Vec<_> = loaded.iter().map(|f| f.name.as_slice()).collect();
    assert_eq!(names, [&b"count"[..], b"echo"]);
    assert_eq!(loaded[1].flags, header::ScriptFlags::NO_WRITES);
    lua.add_library(b"l").unwrap();
    let mut reply = Reply::new(false);
    for name in [&b"count"[..], b"count", b"echo"] {
        let which = Which::Function {
            library: b"l",
            name,
        };
        lua.run(
            which,
            &[b"k"],
            &[b"v"],
            Limits::default(),
            &mut Commands,
            &mut reply,
        )
        .unwrap();
    }
    assert_eq!(reply.buf, b":1\r\n:2\r\n*2\r\n$1\r\nk\r\n$1\r\nv\r\n");
    for (body, expected) in [
        ("", "ERR No functions registered"),
        (
            "(",
            "ERR Error compiling function: user_function:2: unexpected symbol near '<eof>'",
        ),
        (
            "redis.call('ok')",
            "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'call'",
        ),
        (
            "redis.register_function('a')",
            "ERR Error registering functions: ERR calling redis.register_function",
        ),
    ] {
        let code = format!("#!lua name=l\n{body}");
        match lua.load_library(code.as_bytes(), Limits::default()) {
            Err(Failure::Error { text, .. }) => {
                let text = String::from_utf8_lossy(&text);
                assert!(text.starts_with(expected), "{body}: {text}");
            }
            other => panic!("{body}: {other:?}"),
        }
    }
}

/// A long script stayed compiled, and the next ones lacked the memory that it took.
#[test]
fn compiled_scripts_make_room_after_a_lack_of_memory() {
    let mut lua = interpreter();
    let words: Vec<String> = (0..100_000).map(|n| format!("'k{n}'")).collect();
    let long = format!("local t = {{{}}} return #t", words.join(","));
    let run = |lua: &mut Interpreter, sha: &str| {
        let mut reply = Reply::new(false);
        let limits = Limits::default();
        let done = lua.run(
            Which::Script(sha),
            &[],
            &[],
            limits,
            &mut Commands,
            &mut reply,
        );
        assert!(lua.tidy());
        done.map(|()| reply.buf)
    };
    let compile = |lua: &mut Interpreter, sha: &str, text: &str| {
        lua.compile(sha, text.as_bytes(), Limits::default())
            .unwrap();
    };
    compile(&mut lua, "long", &long);
    assert_eq!(run(&mut lua, "long").unwrap(), b":100000\r\n");
    let kept = lua.used_memory();
    assert!((MEMORY / 8..MEMORY / 2).contains(&kept), "{kept}");
    // About the largest string that fits without the other script.
    let large = |bytes: usize| format!("return #string.rep('x', {bytes})");
    let mut bytes = MEMORY;
    let large = loop {
        let mut alone = interpreter();
        compile(&mut alone, "large", &large(bytes));
        match run(&mut alone, "large") {
            Ok(_) => break large(bytes),
            Err(_) => bytes -= bytes / 32,
        }
    };
    compile(&mut lua, "large", &large);
    match run(&mut lua, "large") {
        Err(Failure::Error { text, .. }) => {
            let text = String::from_utf8_lossy(&text);
            assert!(text.contains("not enough memory"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!lua.has_script("long"));
    assert!(!lua.has_script("large"));
    compile(&mut lua, "large", &large);
    run(&mut lua, "large").unwrap();
}

/// An interpreter that ran out of memory in `cjson` or `cmsgpack` used to stay full: its
/// collection found no memory either, and all later scripts failed.
#[test]
fn a_script_that_runs_out_of_memory_leaves_room_for_the_next() {
    let mut lua = interpreter();
    for script in [
        "return cjson.decode('[' .. string.rep('1,', 4e6) .. '1]')",
        "return cjson.decode('[' .. string.rep('[],', 1e6) .. '1]')",
        "return cmsgpack.unpack('\\221\\0\\64\\0\\0' .. string.rep('\\1', 4e6))",
        "local t = {} for i = 1, 1e8 do t[i] = {i} end",
        "local t = {} for i = 1, 1e8 do t[i] = 'a' .. i end",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 1e8 do t = setmetatable({}, {__index = t}) end",
    ] {
        match run_in(&mut lua, script, false) {
            Err(Failure::Error { text, .. }) => {
                let text = String::from_utf8_lossy(&text);
                assert!(text.contains("not enough memory"), "{script}: {text}");
            }
            other => panic!("{script}: {other:?}"),
        }
        assert!(lua.used_memory() < MEMORY / 2, "{script}");
        let next = "local t = {} for i = 1, 1e5 do t[i] = i end return #t";
        assert_eq!(run_in(&mut lua, next, false).unwrap(), b":100000\r\n");
    }
}

/// Lua 5.1 hashes every n-th byte of a long string. Strings that differ only in other
/// bytes collided, and this took a minute.
#[test]
fn long_strings_that_differ_little_are_told_apart_fast() {
    let script = "local t, x = {}, string.rep('x', 500)
        for i = 1, 4e4 do t[x .. i .. x] = i end
        local n = 0 for k, v in pairs(t) do n = n + 1 end return n";
    let mut lua = Interpreter::new(256 << 20, "7.4.0").unwrap();
    let done = run_for(&mut lua, script, false, Duration::from_secs(10));
    assert_eq!(done.unwrap(), b":40000\r\n");
}

/// Each jump of a chain used to be appended to a list that was walked from its start.
#[test]
fn texts_are_compiled_in_linear_time_and_can_be_stopped() {
    let mut lua = Interpreter::new(256 << 20, "7.4.0").unwrap();
    let start = "local a if a then ";
    for (start, piece, end) in [
        (start, "elseif a then ", "end"),
        ("local a return a ", "or a ", ""),
        ("local a return a ", "and a ", ""),
        ("while true do ", "if 1 then break end ", "end"),
    ] {
        let text = [start, &piece.repeat(60_000), end].concat();
        let limits = Limits {
            time: Some(Duration::from_secs(10)),
            ..Limits::default()
        };
        let compiled = lua.compile("long", text.as_bytes(), limits);
        assert!(!matches!(compiled, Err(Failure::Stopped { .. })), "{piece}");
    }
    // Neither local variables nor constants add up to an error, however fast the machine is.
    let text = "x='y' ".repeat(2_000_000);
    let limits = Limits {
        time: Some(Duration::from_millis(5)),
        ..Limits::default()
    };
    let stopped = lua.compile("long", text.as_bytes(), limits);
    let time = Failure::Stopped {
        why: Trip::Time,
        place: Vec::new(),
    };
    assert_eq!(format!("{stopped:?}"), format!("{:?}", Err::<(), _>(time)));
    assert!(lua.compile("short", b"return 1", Limits::default()).is_ok());
    let text = vec![b' '; 17 << 20];
    assert!(lua.compile("large", &text, Limits::default()).is_err());
}

/// Every library used to leave a value on the stack of the interpreter, which holds
/// 4,000.
#[test]
fn thousands_of_libraries_leave_nothing_on_the_stack() {
    let mut lua = interpreter();
    for n in 1..=10_000 {
        let code =
            format!("#!lua name=l\nredis.register_function('f{n}', function() return {n} end)");
        let loaded = lua
            .load_library(code.as_bytes(), Limits::default())
            .unwrap();
        assert_eq!(loaded.len(), 1);
        lua.add_library(b"l").unwrap();
    }
    let mut reply = Reply::new(false);
    let which = Which::Function {
        library: b"l",
        name: b"f10000",
    };
    lua.run(
        which,
        &[],
        &[],
        Limits::default(),
        &mut Commands,
        &mut reply,
    )
    .unwrap();
    assert_eq!(reply.buf, b":10000\r\n");
}
