//! Commands about connections and the server, run in-process.

use crate::base::time::UnixMs;
use crate::commands::registry;
use crate::commands::table::syntax::Argument;
use crate::exec::testing::Client;
use crate::resp::{FREE_BYTES, Lender, Reply, Value};
use crate::state::config::{AllowAccess, Config, Directory, Secret};
use crate::state::eviction::STALLED_MS;
use crate::state::{
    ClientId,
    clients::{ClientFlags, ClientInfo},
};
use crate::sys::clock;
use crate::sys::testing::wait_for;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A client whose server's configuration was changed.
fn client(change: impl FnOnce(&mut Config)) -> Client {
    let client = Client::new();
    let server = client.server();
    let mut config = Config::clone(&server.config.load());
    change(&mut config);
    server.users.require(&config.requirepass.0);
    server.config.publish(config);
    client
}

/// A client that may use DEBUG, and saves into `dir`.
fn developer(dir: &Path) -> Client {
    client(|config| {
        config.enable_debug_command = AllowAccess::Yes;
        config.dir = Directory::new(dir);
    })
}

fn text(value: &Value) -> String {
    let bytes = value.as_bytes().expect("a text");
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn fails(client: &mut Client, line: &str, error: &str) {
    assert_eq!(client.run(line).as_error(), Some(error), "{line}");
}

#[test]
fn passwords() {
    const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
    let mut client = client(|config| config.requirepass = Secret(b"secret".to_vec()));
    fails(&mut client, "auth wrong", WRONG);
    fails(&mut client, "auth nobody secret", WRONG);
    fails(&mut client, "auth secre", WRONG);
    client.run("reset");
    fails(&mut client, "get k", "NOAUTH Authentication required.");
    fails(&mut client, "hello 3 auth default wrong", WRONG);
    assert!(
        client
            .run("hello 3")
            .as_error()
            .unwrap()
            .starts_with("NOAUTH HELLO")
    );
    assert_eq!(
        client.run("auth default secret"),
        Value::Simple("OK".into())
    );
    assert_eq!(client.run("ping"), Value::Simple("PONG".into()));
    assert_eq!(client.server().stats.auth_failures.get(), 4);
}

#[test]
fn hello_switches_the_protocol_and_reset_switches_back() {
    let mut client = Client::new();
    assert!(matches!(client.run("hello 3 setname me"), Value::Map(_)));
    assert_eq!(text(&client.run("client getname")), "me");
    assert!(matches!(client.run("config get port"), Value::Map(_)));
    assert_eq!(client.run("reset"), Value::Simple("RESET".into()));
    assert!(matches!(client.run("config get port"), Value::Array(_)));
    assert_eq!(client.run("client getname"), Value::Null);
}

/// What was applied before the step that failed stayed applied.
#[test]
fn a_config_set_that_fails_applies_nothing() {
    let mut client = Client::new();
    client.run("config set maxmemory 400mb");
    // A server without sockets cannot listen on others.
    let failed = client.run("config set maxmemory 300mb appendfsync always port 1");
    assert!(matches!(failed, Value::Error(text) if text.starts_with("ERR CONFIG SET failed")));
    assert_eq!(client.server().engine.memory_budget(), 400 << 20);
    let config = client.server().config.load();
    assert_eq!((config.max_memory_bytes, config.port), (400 << 20, 6379));
}

#[test]
fn a_refused_change_changes_nothing() {
    let mut client = Client::new();
    client.run("config set maxclients 123 timeout 5");
    fails(
        &mut client,
        "config set maxclients 77 timeout nonsense",
        "ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer",
    );
    fails(
        &mut client,
        "config set databases 99",
        "ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
    );
    assert_eq!(
        client.run("config set databases 16"),
        Value::Simple("OK".into())
    );
    let config = client.server().config.load();
    assert_eq!((config.max_clients, config.timeout_s), (123, 5));
}

#[test]
fn info_by_section() {
    let mut client = Client::new();
    client.run("set k v");
    let keyspace = text(&client.run("info keyspace"));
    assert_eq!(
        keyspace,
        "# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0,subexpiry=0,keys_with_volatile_items=0\r\n"
    );
    assert_eq!(text(&client.run("info nonsense")), "");
    let default = text(&client.run("info"));
    assert!(default.contains("used_memory:") && !default.contains("cmdstat_"));
    let all = text(&client.run("info all"));
    assert!(all.contains("cmdstat_set:calls=1,") && all.contains("# Modules"));
    for line in text(&client.run("info everything cpu")).split("\r\n") {
        let well_formed = line.is_empty() || line.starts_with("# ") || line.contains(':');
        assert!(well_formed, "{line:?}");
    }
}

#[test]
fn saves_replace_each_other_and_spare_what_is_not_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = developer(dir.path());
    client.run("set k v");
    for _ in 0..2 {
        assert_eq!(client.run("save"), Value::Simple("OK".into()));
    }
    let copy = dir.path().join("dump.rdb");
    assert!(copy.join("CURRENT").exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    std::fs::remove_dir_all(&copy).unwrap();
    std::fs::write(&copy, b"REDIS0011").unwrap();
    assert!(client.run("save").as_error().unwrap().contains("no backup"));
    assert_eq!(std::fs::read(&copy).unwrap(), b"REDIS0011");
    let persistence = text(&client.run("info persistence"));
    assert!(persistence.contains("rdb_last_bgsave_status:err"));
    assert!(persistence.contains("rdb_saves:2"));
}

#[test]
fn debug_needs_its_permission() {
    let mut client = Client::new();
    let refused = client.run("debug help");
    assert!(
        refused
            .as_error()
            .unwrap()
            .starts_with("ERR DEBUG command not allowed")
    );
}

/// Test suites damage a payload without computing its checksum again. A version that is
/// too new is still refused, and DUMP still writes a correct checksum.
#[test]
fn checksums_of_payloads_are_ignored_where_debug_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = developer(dir.path());
    client.run("set k v");
    let good = client.run("dump k").as_bytes().unwrap().to_vec();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    let restore = |client: &mut Client, payload: &[u8]| {
        client.args(&[b"RESTORE", b"k", b"0", payload, b"REPLACE"])
    };
    let ok = Value::Simple("OK".into());
    let refused = Value::Error("ERR DUMP payload version or checksum are wrong".into());
    assert_eq!(restore(&mut client, &bad), refused);
    assert_eq!(client.run("debug set-skip-checksum-validation 1"), ok);
    assert_eq!(restore(&mut client, &bad), ok);
    let mut newer = bad.clone();
    newer[good.len() - 10..good.len() - 8].fill(0xFF);
    assert_eq!(restore(&mut client, &newer), refused);
    assert_eq!(client.run("dump k").as_bytes().unwrap(), good);
    assert_eq!(client.run("debug set-skip-checksum-validation 0"), ok);
    assert_eq!(restore(&mut client, &bad), refused);
}

#[test]
fn digests_see_values_and_not_their_form() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = developer(dir.path());
    let empty = client.run("debug digest");
    assert_eq!(empty, Value::Simple("0".repeat(40)));
    client.run("sadd a 1 2 3");
    client.run("zadd z 1 x 2 y");
    client.run("rpush l 1 2");
    let digest = client.run("debug digest");
    client.run("srem a 1");
    assert_ne!(client.run("debug digest"), digest);
    client.run("sadd a 1");
    assert_eq!(client.run("debug digest"), digest);
    // The same members, now with a row each.
    for n in 0..200 {
        client.run(&format!("sadd a m{n}"));
        client.run(&format!("zadd z {n} m{n}"));
    }
    for n in 0..200 {
        client.run(&format!("srem a m{n}"));
        client.run(&format!("zrem z m{n}"));
    }
    assert_eq!(client.run("debug digest"), digest);
    client.run("lset l 0 3");
    assert_ne!(client.run("debug digest"), digest);
    client.run("debug populate 100 p 10");
    assert_eq!(client.run("strlen p:99"), Value::Int(10));
    assert!(text(&client.run("debug kedis-check")).starts_with("keys: 103\n"));
    client.check();
}

#[test]
fn sizes_of_keys() {
    let mut client = Client::new();
    assert_eq!(client.run("memory usage k"), Value::Null);
    client.run("set k v");
    let small = client.run("memory usage k").as_i64().unwrap();
    for n in 0..1000 {
        client.run(&format!("rpush k2 {n:0100}"));
    }
    let large = client.run("memory usage k2 samples 0").as_i64().unwrap();
    assert!(small < 100 && large > 100_000, "{small} {large}");
    // For a string, the stored fragments count, estimated from at most as many samples.
    client.run("setbit sparse 4294967295 1");
    let sparse = client.run("memory usage sparse").as_i64().unwrap();
    client.run("setrange dense 1000000 x");
    for n in 0..1000 {
        client.run(&format!("setrange dense {} x", n * 1000));
    }
    let whole = client.run("memory usage dense samples 0").as_i64().unwrap();
    let sampled = client.run("memory usage dense").as_i64().unwrap();
    assert!(sparse < 10_000, "{sparse}");
    assert!(
        whole > 700_000 && (sampled - whole).abs() < whole / 10,
        "{whole} {sampled}"
    );
}

/// Fifty clients requested three gigabytes each and read nothing. Every thread built such
/// a reply at the same time, on top of full caches, and the OOM killer ended the server.
#[test]
fn replies_that_are_made_at_once_share_what_is_left() {
    const MIB: usize = 1 << 20;
    let server = Client::new().server();
    let limit = server.clients_limit_bytes(&server.config.load()) as usize;
    let value = vec![b'v'; MIB];
    let fill = |reply: &mut Reply, bytes: usize| {
        reply.bound(&server, FREE_BYTES);
        while reply.len() < bytes && !reply.overflowed {
            reply.bulk(&value);
        }
    };
    let mut first = Reply::new(false);
    fill(&mut first, limit / 4 * 3);
    assert!(!first.overflowed);
    // Each long reply fits alone; a short one fits at any time.
    let mut second = Reply::new(false);
    fill(&mut second, limit / 2);
    assert!(second.overflowed);
    let mut short = Reply::new(false);
    fill(&mut short, MIB);
    assert!(!short.overflowed);
    // The memory of a reply that is sent or dropped is returned.
    drop((first, second));
    let mut third = Reply::new(false);
    fill(&mut third, limit / 2);
    assert!(!third.overflowed);
    // Appending moves the loan to the other reply, as from a worker to the connection.
    short.append(third);
    assert!(server.lend(limit / 4 * 3, limit / 4 * 3).is_none());
    short.give_back();
    assert!(server.lend(limit / 4 * 3, limit / 4 * 3).is_some());
    server.take_back(limit / 4 * 3);
}

/// Each key was compared with all others: seconds for tens of thousands of keys, minutes
/// for these.
#[test]
fn very_many_keys_of_one_command_are_not_compared_with_each_other() {
    const KEYS: usize = 200_000;
    const LONG: Duration = Duration::from_secs(30);
    let mut client = Client::new();
    let names: Vec<Vec<u8>> = (0..KEYS).map(|n| format!("k{n:06}").into_bytes()).collect();
    let names = || names.iter().map(Vec::as_slice);
    let mut within = |args: &[&[u8]], replies: usize| {
        let began = Instant::now();
        let found = client.tick(&[args]);
        assert_eq!(found.len(), replies);
        assert!(found.iter().all(|reply| reply.as_error().is_none()));
        let took = began.elapsed();
        assert!(took < LONG, "{took:?} for {}", args[0].escape_ascii());
    };
    let watch: Vec<&[u8]> = [&b"watch"[..]].into_iter().chain(names()).collect();
    within(&watch, 1);
    within(&[b"unwatch"], 1);
    let on: [&[u8]; 4] = [b"client", b"tracking", b"on", b"bcast"];
    let prefixes = names().flat_map(|name| [&b"prefix"[..], name]);
    let tracking: Vec<&[u8]> = on.into_iter().chain(prefixes).collect();
    within(&[b"hello", b"3"], 1);
    within(&tracking, 1);
    let pairs = names().take(20_000).flat_map(|name| [name, name]);
    let mset: Vec<&[u8]> = [&b"mset"[..]].into_iter().chain(pairs).collect();
    within(&mset, 1);
    within(&[b"client", b"tracking", b"off"], 1);
    let lists = names().skip(20_000).chain([&b"100"[..]]);
    let blpop: Vec<&[u8]> = [&b"blpop"[..]].into_iter().chain(lists).collect();
    within(&blpop, 0);
}

/// A member of a sorted set is written to two rows, and a consumer's name to two rows and the
/// binlog: they took more memory than was lent for them. What is read only is copied once.
#[test]
fn what_is_written_more_than_once_is_lent_for_each_time() {
    let mut client = Client::new();
    let (executor, _) = client.parts();
    for (line, work) in [
        ("set k v", 100),
        ("get k", 50),
        ("no-such-command", 100),
        ("zadd k 1 m", 150),
        ("ZREM k m", 150),
        ("smove k l m", 150),
        ("xgroup createconsumer k g c", 150),
        ("xreadgroup group g c streams k >", 150),
        ("xautoclaim k g c 0 0", 150),
    ] {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        assert_eq!(executor.work_of(&args, 100), work, "{line}");
    }
}

/// Connections that sent PSYNC and read nothing caused other clients to be closed.
#[test]
fn replicas_take_nothing_of_what_clients_may() {
    let server = Client::new().server();
    let config = server.config.load();
    let limit = server.clients_limit_bytes(&config) as usize;
    let holds = |id, bytes, flags: ClientFlags| {
        let (id, addr) = (ClientId(id), String::new);
        let info = ClientInfo::new(id, addr(), addr(), -1, 0, UnixMs::NONE, flags);
        info.output_capacity.store(bytes, Ordering::Relaxed);
        if !flags.contains(ClientFlags::REPLICA) {
            server.client_memory.set(&info.account, info.memory_bytes());
        }
        server.clients.add(Arc::new(info));
    };
    holds(100, limit / 4, ClientFlags::empty());
    holds(101, limit, ClientFlags::empty());
    for id in 200..300 {
        holds(id, limit, ClientFlags::REPLICA);
    }
    // The larger client is closed. The other stays, although the replicas exceed the limit.
    assert_eq!(server.evict_clients(&config), [ClientId(101)]);
    assert!(server.clients.get(ClientId(100)).is_some());
    let (clients, replicas) = server.buffer_bytes();
    assert_eq!(clients, limit as u64 / 4);
    assert_eq!(replicas, 100 * limit as u64);
}

/// The memory of a closed client may be free a while later. Others are not closed for it, nor for
/// what is lent for the bytes of their own requests.
#[test]
fn memory_of_closed_clients_closes_no_others() {
    let server = Client::new().server();
    let config = server.config.load();
    let limit = server.clients_limit_bytes(&config) as usize;
    let client = |id, input: usize, output| {
        let (id, addr) = (ClientId(id), String::new);
        let info = ClientInfo::new(
            id,
            addr(),
            addr(),
            -1,
            0,
            UnixMs::NONE,
            ClientFlags::empty(),
        );
        info.output_capacity.store(output, Ordering::Relaxed);
        info.query_capacity.store(input, Ordering::Relaxed);
        let counted = info.memory_bytes() - input;
        server.client_memory.set(&info.account, counted);
        Arc::new(info)
    };
    assert_eq!(server.lend(limit / 3, limit / 3), Some(limit / 3));
    let closed = client(100, 0, limit);
    server.clients.add(client(101, limit / 3, limit / 3));
    assert_eq!(server.evict_clients(&config), []);
    server.clients.add(client(102, 0, limit / 2));
    // Evictions have a shortest interval.
    wait_for("an eviction", || {
        server.evict_clients(&config) == [ClientId(101)]
    });
    server.client_memory.end(&closed.account);
}

/// A client that has read nothing for a while is closed if a long reply needs its memory;
/// a client that reads its replies stays.
#[test]
fn a_stalled_client_makes_room_for_a_long_reply() {
    const MIB: usize = 1 << 20;
    let server = Client::new().server();
    let limit = server.clients_limit_bytes(&server.config.load()) as usize;
    let holds = |id, output, active_ms| {
        let (id, addr) = (ClientId(id), String::new);
        let info = ClientInfo::new(id, addr(), addr(), -1, 0, active_ms, ClientFlags::empty());
        info.output_capacity.store(output, Ordering::Relaxed);
        info.output_bytes.store(output, Ordering::Relaxed);
        server.client_memory.set(&info.account, info.memory_bytes());
        server.clients.add(Arc::new(info));
    };
    let stays = |id| server.clients.get(ClientId(id)).is_some();
    holds(101, limit / 3, UnixMs::NONE);
    holds(102, MIB, UnixMs::NONE);
    let more_than_there_is = || server.lend(limit * 2, limit * 2);
    assert!(more_than_there_is().is_none());
    assert!(stays(101), "in vain");
    holds(100, limit / 2, clock::unix_ms() + 60_000);
    assert!(more_than_there_is().is_none());
    assert!(stays(101));
    assert!(server.lend(limit / 4, limit / 4).is_some());
    assert_eq!([100, 101, 102].map(stays), [true, false, true]);
    server.take_back(limit / 4);
    // For a request that has waited as long, it may be closed sooner.
    holds(103, limit / 3, clock::unix_ms().before(STALLED_MS * 3 / 4));
    let config = server.config.load();
    for (waited_ms, finds) in [(STALLED_MS, false), (STALLED_MS + 1, true)] {
        server.find_room(&config, limit as u64 / 4, waited_ms);
        assert_eq!(stays(103), !finds, "after {waited_ms} ms");
    }
}

#[test]
fn killed_clients_are_gone_at_once() {
    use crate::state::ClientInfo;
    use crate::state::clients::ClientFlags;
    let mut client = Client::new();
    let server = client.server();
    let id = server.clients.new_id();
    let other = ClientInfo::new(
        id,
        "1.2.3.4:5".into(),
        "127.0.0.1:2".into(),
        -1,
        0,
        UnixMs::NONE,
        ClientFlags::empty(),
    );
    let other = std::sync::Arc::new(other);
    server.clients.add(other.clone());
    server.clients.set_monitor(&other, true);
    assert!(text(&client.run("client list")).contains("addr=1.2.3.4:5 "));
    assert_eq!(
        client.run("client kill type normal maxage 1"),
        Value::Int(1)
    );
    assert_eq!((server.clients.len(), server.clients.monitors()), (1, 0));
    fails(&mut client, "client kill 1.2.3.4:5", "ERR No such client");
}

#[test]
fn a_monitor_cannot_use_keys() {
    const REFUSED: &str = "ERR Replica can't interact with the keyspace";
    let mut client = Client::new();
    assert_eq!(client.run("monitor"), Value::Simple("OK".into()));
    let again: &[&[u8]] = &[b"monitor"];
    assert_eq!(client.tick(&[again]), []);
    for line in ["get k", "set k v", "publish c m", "eval 1 0", "scan 0"] {
        fails(&mut client, line, REFUSED);
    }
    assert_eq!(client.run("ping"), Value::Simple("PONG".into()));
    client.run("multi");
    fails(&mut client, "get k", REFUSED);
    assert!(client.run("exec").as_error().is_some());
    client.run("reset");
    assert_eq!(client.run("get k"), Value::Null);
}

#[test]
fn a_shorter_slow_log_forgets_at_once() {
    let mut client = Client::new();
    client.run("config set slowlog-log-slower-than 0");
    for _ in 0..5 {
        client.run("ping");
    }
    client.run("config set slowlog-max-len 2");
    assert_eq!(client.run("slowlog len"), Value::Int(2));
}

#[test]
fn a_pause_with_too_many_arguments_says_so_first() {
    let mistaken =
        "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.";
    let mut client = Client::new();
    for line in ["client PAUSE 1 ALL x", "client PAUSE x y z"] {
        fails(&mut client, line, mistaken);
    }
}

#[test]
fn debug_object_says_when_a_key_was_used() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = developer(dir.path());
    let field = |client: &mut Client, name: &str| -> u64 {
        let line = text(&client.run("DEBUG OBJECT k"));
        let value = line.split(' ').find_map(|field| field.strip_prefix(name));
        value.unwrap().parse().unwrap()
    };
    client.run("set k v");
    let used_s = field(&mut client, "lru:");
    assert_eq!(field(&mut client, "lru_seconds_idle:"), 0);
    client.advance_ms(7_000);
    // DEBUG OBJECT itself is not an access to the key.
    assert_eq!(field(&mut client, "lru_seconds_idle:"), 7);
    assert_eq!(field(&mut client, "lru:"), used_s);
    client.run("touch k");
    assert_eq!(field(&mut client, "lru:"), (used_s + 7) & 0x00ff_ffff);
}

#[test]
fn debug_is_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = developer(dir.path());
    for line in [
        "DEBUG FOO",
        "DEBUG FOO x",
        "DEBUG SLEEP",
        "DEBUG SLEEP 0 0",
        "DEBUG DIGEST x",
        "DEBUG OBJECT k x",
        "DEBUG POPULATE",
        "DEBUG POPULATE 1 2 3 4",
        "DEBUG REPLYBUFFER x 1",
    ] {
        let name = line.split(' ').nth(1).unwrap();
        let mistaken = format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP."
        );
        fails(&mut client, line, &mistaken);
    }
    fails(
        &mut client,
        "debug",
        "ERR wrong number of arguments for 'debug' command",
    );
    fails(
        &mut client,
        "debug reload nosave x",
        "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
    );
    for line in [
        "debug reload nosave merge noflush",
        "debug loadaof x",
        "debug sleep a",
        "debug pause-cron 1",
        "debug dict-resizing 0",
        "debug replybuffer resizing 0",
    ] {
        assert_eq!(client.run(line), Value::Simple("OK".into()), "{line}");
    }
    let none = client.run("debug digest-value");
    assert_eq!(none.as_slice().map(<[_]>::len), Some(0));

    let names = client.run("command list filterby pattern debug*");
    let names: Vec<String> = names.as_slice().unwrap().iter().map(text).collect();
    assert_eq!(names, ["debug"]);
    let part = client.run("command info debug|sleep");
    assert_eq!(part.as_slice(), Some(&[Value::Null][..]));
    fails(
        &mut client,
        "command getkeys debug object k",
        "ERR The command has no key arguments",
    );
    let calls = text(&client.run("info commandstats"));
    let debug: Vec<_> = calls
        .lines()
        .filter(|line| line.contains("_debug"))
        .collect();
    assert!(
        matches!(debug[..], [line] if line.starts_with("cmdstat_debug:calls=17,")),
        "{debug:?}"
    );
    fails(
        &mut Client::new(),
        "debug foo",
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
    );
}

#[test]
fn docs_say_what_applies() {
    let mut client = Client::new();
    for (name, more) in [
        ("time", &[][..]),
        ("get", &["arguments"]),
        ("debug", &["doc_flags"]),
        (
            "hmset",
            &["doc_flags", "deprecated_since", "replaced_by", "arguments"],
        ),
        ("set", &["history", "arguments"]),
        ("config", &["subcommands"]),
    ] {
        let docs = client.run(&format!("command docs {name}"));
        let fields = docs.as_slice().unwrap()[1].as_slice().unwrap();
        let names: Vec<_> = fields.iter().step_by(2).map(text).collect();
        let always = ["summary", "since", "group", "complexity"];
        assert_eq!(names, [&always[..], more].concat(), "{name}");
    }
    let docs = client.run("command docs hmset");
    let fields = docs.as_slice().unwrap()[1].as_slice().unwrap();
    assert_eq!(text(&fields[9].as_slice().unwrap()[0]), "deprecated");
    assert_eq!(text(&fields[11]), "4.0.0");
}

#[test]
fn keys_of_commands() {
    let mut client = Client::new();
    for (line, expected) in [
        ("command getkeys get k", &["k"][..]),
        ("command getkeys mset a 1 b 2", &["a", "b"]),
        ("command getkeys zunionstore t 2 a b", &["t", "a", "b"]),
        ("command getkeys sort a by x store b", &["a", "b"]),
        ("command getkeys memory usage k", &["k"]),
        // EVAL may have no keys, whatever its number of keys is.
        ("command getkeys eval return 1 k", &["k"]),
        ("command getkeys eval return 0 k", &[]),
        ("command getkeys eval return 5 k", &[]),
        ("command getkeys eval return many k", &[]),
        ("command getkeys migrate h 1 k 0 10 replace", &["k"]),
        ("command getkeys migrate h 1 - 0 10 keys a b", &["a", "b"]),
    ] {
        let reply = client.run(line);
        let keys: Vec<String> = reply.as_slice().unwrap().iter().map(text).collect();
        assert_eq!(keys, expected, "{line}");
    }
    for (line, expected) in [
        ("migrate h 1 - 0 10 keys a", &["RW", "access", "delete"][..]),
        ("set k v get", &["RW", "access", "update"]),
        // The value is no option: GET in its place was taken for one.
        ("set k get", &["OW", "update"]),
        ("bitfield k", &["RO", "access"]),
        ("bitfield k overflow sat get u8 0", &["RO", "access"]),
        ("bitfield k 0", &["RW", "access", "update"]),
        ("bitfield k get u8", &["RW", "access", "update"]),
        (
            "bitfield k get u8 0 incrby u8 0 1",
            &["RW", "access", "update"],
        ),
    ] {
        let flags = client.run(&format!("command getkeysandflags {line}"));
        let [key] = flags.as_slice().unwrap() else {
            panic!("{flags:?}");
        };
        let flags = key.as_slice().unwrap()[1].as_slice().unwrap();
        let names: Vec<String> = flags.iter().map(text).collect();
        assert_eq!(names, expected, "{line}");
    }
    fails(
        &mut client,
        "command getkeys sintercard 0 a",
        "ERR Invalid arguments specified for command",
    );
    fails(
        &mut client,
        "command getkeys nosuch a",
        "ERR Invalid command specified",
    );
    for channels in ["spublish a b", "ssubscribe a"] {
        let line = format!("command getkeys {channels}");
        let none = "ERR The command has no key arguments";
        fails(&mut client, &line, none);
    }
}

/// Secrets were redacted only under the name `CONFIG SET`.
#[test]
fn secrets_are_covered_whatever_their_command_is_called() {
    let renames = [
        ("config", "cfgx"),
        ("auth", "login"),
        ("hello", "hi"),
        ("migrate", "move-away"),
    ];
    let renames = renames.map(|(from, to)| (from.to_owned(), to.to_owned()));
    let mut client = client(|config| {
        config.renames.0 = renames.into();
        config.slowlog_log_slower_than_us = 0;
    })
    .another();
    for line in [
        "cfgx set masterauth secret",
        "login secret",
        "hi 2 auth user secret",
        "move-away 127.0.0.1 1 none 0 9 auth secret",
    ] {
        client.run(line);
    }
    let log = client.run("slowlog get -1");
    let entries = log.as_slice().unwrap().iter();
    let lines: Vec<String> = entries
        .map(|entry| {
            let words = entry.as_slice().unwrap()[3].as_slice().unwrap();
            words.iter().map(text).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(
        lines,
        [
            "move-away 127.0.0.1 1 none 0 9 auth (redacted)",
            "hi 2 auth (redacted) (redacted)",
            "login (redacted)",
            "cfgx set masterauth (redacted)",
        ]
    );
}

#[test]
fn command_knows_the_names_that_clients_know() {
    let renames = [("get", "fetch"), ("keys", ""), ("config", "cfg")];
    let renames = renames.map(|(from, to)| (from.to_owned(), to.to_owned()));
    let plain = Client::new().run("command count").as_i64().unwrap();
    let mut client = client(|config| config.renames.0 = renames.into()).another();
    assert_eq!(client.run("command count"), Value::Int(plain - 1));
    let known = |client: &mut Client, name: &str| {
        let row = client.run(&format!("command info {name}"));
        let docs = client.run(&format!("command docs {name}"));
        let row = &row.as_slice().unwrap()[0];
        assert_eq!(*row == Value::Null, docs.as_slice() == Some(&[]), "{name}");
        row.as_slice().map(|row| text(&row[0]))
    };
    for (name, expected) in [
        ("fetch", Some("get")),
        ("cfg", Some("config")),
        ("cfg|get", Some("config|get")),
        ("set", Some("set")),
        ("get", None),
        ("keys", None),
        ("config|get", None),
    ] {
        assert_eq!(known(&mut client, name).as_deref(), expected, "{name}");
    }
    let keys = client.run("command getkeys fetch a");
    assert_eq!(keys.as_slice().unwrap().len(), 1);
    let invalid = "ERR Invalid command specified";
    fails(&mut client, "command getkeys get a", invalid);
    let names = client.run("command list filterby pattern ke*");
    assert_eq!(names.as_slice(), Some(&[][..]));
    fails(
        &mut client,
        "cfg foo",
        "ERR unknown subcommand 'foo'. Try CFG HELP.",
    );
    fails(
        &mut client,
        "keys *",
        "ERR unknown command 'keys', with args beginning with: '*' ",
    );
}

/// Clients of one thread, in one tick: what was published before one of them
/// unsubscribed is delivered before the confirmation, and what was published before it
/// subscribed is not delivered.
#[test]
fn messages_of_a_tick_go_to_clients_that_were_subscribed_then() {
    let mut publisher = Client::new();
    let mut subscriber = publisher.another();
    subscriber.parts().1.set_resp3(true);
    let mut executor = publisher.another();
    executor.parts().0.start_tick();
    let mut run = |client: &mut Client, line: &str| {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let session = client.parts().1;
        let mut reply = Reply::new(session.resp3);
        executor.parts().0.run(session, &args, &mut reply);
        String::from_utf8(reply.buf).unwrap()
    };
    assert_eq!(run(&mut publisher, "PUBLISH c early"), ":0\r\n");
    run(&mut subscriber, "SUBSCRIBE c");
    assert_eq!(run(&mut publisher, "PUBLISH c hi"), ":1\r\n");
    let left = run(&mut subscriber, "UNSUBSCRIBE c");
    let message = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
    let confirmation = ">3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n";
    assert_eq!(left, [message, confirmation].concat());
    // It is delivered once, however often the client subscribes again.
    run(&mut subscriber, "SUBSCRIBE c");
    assert_eq!(run(&mut subscriber, "UNSUBSCRIBE c"), confirmation);
    run(&mut subscriber, "SUBSCRIBE c");
    run(&mut publisher, "PUBLISH c again");
    assert!(run(&mut subscriber, "RESET").contains("again"));
}

/// Otherwise the operating system would refuse the name after the save has begun.
#[test]
fn the_name_of_a_file_holds_no_zero_byte() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = developer(dir.path());
    for name in ["a\0b.rdb", "\0", "..", "a/b", ""] {
        let refused = client.args(&[b"BGSAVE", b"RDB", name.as_bytes()]);
        let text = refused.as_error().expect(name);
        assert!(text.contains("the name of the file"), "{text}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Names of arguments are for programs: since Redis 7.2 all are in lower case.
#[test]
fn names_of_arguments_are_in_lower_case() {
    fn check(command: &str, arguments: &[Argument]) {
        for argument in arguments {
            let name = &argument.name;
            assert_eq!(*name, name.to_ascii_lowercase(), "{command}");
            check(command, &argument.parts);
        }
    }
    for registered in registry().iter() {
        check(&registered.full_name, &registered.arguments);
        for sub in registered.subcommands.values() {
            check(&sub.full_name, &sub.arguments);
        }
    }
}
