//! Every command of the table, called by users who lack exactly one of the permissions that it
//! needs.

use super::check::{Denied, access, check_rules};
use super::*;
use crate::commands::table::keys::{KeyFlags, Keys};
use crate::commands::table::spec::Channels;
use crate::commands::table::syntax::{ArgKind, Argument};
use crate::commands::{Handler, Own};
use crate::exec::testing::Client;
use crate::resp::Value;
use crate::state::acl::Access;
use crate::storage::DbIndex;

type Words = Vec<Vec<u8>>;

/// Whether an argument is a key or has one.
fn has_key(argument: &Argument) -> bool {
    argument.kind == ArgKind::Key || argument.parts.iter().any(has_key)
}

/// Appends words for an argument. Each key gets a name of its own.
fn fill(argument: &Argument, words: &mut Words) {
    if argument.optional && !has_key(argument) {
        return;
    }
    words.extend(argument.token.map(|token| token.as_bytes().to_vec()));
    match argument.kind {
        ArgKind::PureToken => {}
        ArgKind::OneOf => {
            let with_key = argument.parts.iter().find(|part| has_key(part));
            if let Some(part) = with_key.or(argument.parts.first()) {
                fill(part, words);
            }
        }
        ArgKind::Block => argument.parts.iter().for_each(|part| fill(part, words)),
        ArgKind::Key => words.push(format!("key{}", words.len()).into_bytes()),
        // One key or field where a number announces them, and a DB that exists.
        _ => words.push(b"1".to_vec()),
    }
}

/// A request for a command: its names and arguments, as its syntax says.
fn request(command: &str, found: &Registered) -> Words {
    let mut words: Words = command
        .split('|')
        .map(|word| word.as_bytes().to_vec())
        .collect();
    for argument in &found.arguments {
        fill(argument, &mut words);
    }
    while !found.command.takes(words.len()) {
        words.push(b"1".to_vec());
    }
    words
}

/// All commands with something that runs, with their names.
fn commands() -> Vec<(String, &'static Registered)> {
    let all = registry().iter().flat_map(|command| {
        let subs = command.told_subcommands();
        std::iter::once(command).chain(subs)
    });
    let runs = all.filter(|found| !matches!(found.command.handler, Handler::Container));
    runs.map(|found| (found.full_name.clone(), found)).collect()
}

/// What a user may do who lacks one permission, and the permission.
struct Lacking {
    rules: String,
    what: &'static str,
}

/// The keys of a request, with what the command does with each.
fn uses(found: &Registered, args: &[&[u8]]) -> Vec<(usize, KeyFlags)> {
    let mut keys = Keys::new();
    let _ = found.command.find_keys(args, &mut keys);
    let mut uses = keys.to_vec();
    uses.retain(|(_, flags)| !flags.contains(KeyFlags::NOT_KEY));
    uses
}

fn lacking(found: &Registered, args: &[&[u8]]) -> Vec<Lacking> {
    const ALL: &str = "on nopass +@all";
    let name = &found.full_name;
    let mut cases = Vec::new();
    if !found.command.flags.contains(Flags::NO_AUTH) {
        cases.push(Lacking {
            rules: format!("{ALL} ~* &* -{name}"),
            what: "command",
        });
    }
    let uses = uses(found, args);
    let key = |at: usize| String::from_utf8_lossy(args[at]).into_owned();
    for &(at, flags) in &uses {
        let others = uses.iter().filter(|(other, _)| args[*other] != args[at]);
        let others: String = others
            .map(|(other, _)| format!(" ~{}", key(*other)))
            .collect();
        let mut add = |this: String, what| {
            let rules = format!("{ALL} &* resetkeys{others}{this}");
            cases.push(Lacking { rules, what });
        };
        add(String::new(), "key");
        let access = access(found.command, flags);
        if access.contains(Access::READ) {
            add(format!(" %W~{}", key(at)), "key read");
        }
        if access.contains(Access::WRITE) {
            add(format!(" %R~{}", key(at)), "key write");
        }
    }
    if found.command.channels != Channels::None {
        cases.push(Lacking {
            rules: format!("{ALL} ~* resetchannels &other"),
            what: "channel",
        });
    }
    let command = found.command;
    let of_db = ["keyspace", "read", "write"];
    if !uses.is_empty() || of_db.iter().any(|name| categories::has(command, name)) {
        cases.push(Lacking {
            rules: format!("{ALL} ~* &* db=2"),
            what: "db",
        });
    }
    for named in command.named_dbs(args) {
        let others = (0..16).filter(|db| *db != named.0).map(|db| db.to_string());
        let others = others.collect::<Vec<_>>().join(",");
        cases.push(Lacking {
            rules: format!("{ALL} ~* &* db={others}"),
            what: "named db",
        });
    }
    cases
}

/// An administrator and a user of one server.
struct Pair {
    admin: Client,
    user: Client,
    commits: usize,
}

impl Pair {
    fn new() -> Pair {
        let mut admin = Client::new();
        admin.run("SET witness 1");
        let user = admin.another();
        let commits = admin.logged().len();
        let mut pair = Pair {
            admin,
            user,
            commits,
        };
        pair.permit("on nopass +@all ~* &*");
        assert_eq!(pair.user.run("AUTH u x"), Value::Simple("OK".into()));
        pair
    }

    fn permit(&mut self, rules: &str) {
        let line = format!("ACL SETUSER u reset {rules}");
        assert_eq!(self.admin.run(&line), Value::Simple("OK".into()), "{line}");
    }

    #[track_caller]
    fn refused(&mut self, reply: &Value, case: &str) {
        let is_refused = reply
            .as_error()
            .is_some_and(|text| text.starts_with("NOPERM") || text.contains(": NOPERM"));
        assert!(is_refused, "{case}: {reply:?}");
        assert_eq!(
            self.admin.logged().len(),
            self.commits,
            "{case} changed something"
        );
        assert!(self.user.parts().1.subscriptions.is_empty(), "{case}");
        assert_eq!(self.user.parts().1.db(), DbIndex(0), "{case}");
    }
}

/// The four ways in which a request comes.
fn check_case(pair: &mut Pair, found: &Registered, args: &[&[u8]], lacking: &Lacking) {
    const SCRIPT: &[u8] = b"return redis.call(unpack(ARGV))";
    let shown = String::from_utf8_lossy(&args.join(&b' ')).into_owned();
    let case = |way: &str| format!("{shown} without {} ({way})", lacking.what);
    let command = found.command;
    pair.permit(&lacking.rules);
    let replies = pair.user.tick(&[&[b"PING"], args, &[b"PING"]]);
    assert_eq!(replies.len(), 3, "{shown}");
    pair.refused(&replies[1], &case("in a pipeline"));

    let in_script = !command.flags.contains(Flags::NOSCRIPT) && command.name != "eval";
    if in_script {
        let script = [&[b"EVAL".as_slice(), SCRIPT, b"0"], args].concat();
        let reply = pair.user.args(&script);
        pair.refused(&reply, &case("in a script"));
    }
    let of_multi = [Own::Multi, Own::Exec, Own::Discard];
    let controls = of_multi.iter().any(|own| command.is_own(*own));
    if controls || command.flags.contains(Flags::NO_MULTI) {
        return;
    }
    pair.user.run("MULTI");
    let reply = pair.user.args(args);
    pair.refused(&reply, &case("when it is queued"));
    let done = pair.user.run("EXEC");
    let aborted = done
        .as_error()
        .is_some_and(|text| text.starts_with("EXECABORT"));
    assert!(aborted, "{}: {done:?}", case("EXEC"));

    pair.permit("on nopass +@all ~* &*");
    pair.user.run("MULTI");
    if pair.user.args(args) == Value::Simple("QUEUED".into()) {
        pair.permit(&lacking.rules);
        let Value::Array(replies) = pair.user.run("EXEC") else {
            panic!("{}: no array", case("in EXEC"));
        };
        pair.refused(&replies[0], &case("in EXEC"));
    } else {
        pair.user.run("DISCARD");
    }
}

#[test]
fn a_command_needs_each_of_its_permissions() {
    let mut pair = Pair::new();
    let (mut checked, mut kinds) = (0, std::collections::BTreeMap::new());
    for (name, found) in commands() {
        let words = request(&name, found);
        let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        for lacking in lacking(found, &args) {
            check_case(&mut pair, found, &args, &lacking);
            *kinds.entry(lacking.what).or_insert(0) += 1;
            checked += 1;
        }
    }
    assert!(checked > 900, "{checked} cases");
    for (kind, least) in [
        ("command", 350),
        ("key", 200),
        ("key read", 80),
        ("key write", 80),
        ("channel", 5),
        ("db", 200),
        ("named db", 4),
    ] {
        let count = kinds.get(kind).copied().unwrap_or(0);
        assert!(count >= least, "{kind}: {count} cases");
    }
    pair.admin.check();
}

/// A user who has every permission that a command needs is not refused.
#[test]
fn a_command_needs_no_other_permission() {
    for (name, found) in commands() {
        let words = request(&name, found);
        let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut rules = Defaults {
            all_channels: false,
        }
        .user();
        let uses = uses(found, &args);
        let mut needed = vec![format!("+{name}"), "db=0,1".to_owned()];
        for (at, flags) in uses {
            let key = String::from_utf8_lossy(args[at]).into_owned();
            let access = access(found.command, flags);
            if access.contains(Access::WRITE) {
                needed.push(format!("%W~{key}"));
            }
            if access.contains(Access::READ) || access.is_empty() {
                needed.push(format!("%R~{key}"));
            }
        }
        if found.command.channels != Channels::None {
            needed.extend(
                args[1..]
                    .iter()
                    .map(|word| format!("&{}", String::from_utf8_lossy(word))),
            );
        }
        for rule in &needed {
            let defaults = Defaults {
                all_channels: false,
            };
            rules::apply(&mut rules, rule.as_bytes(), defaults).unwrap();
        }
        let place = Place {
            db: DbIndex(0),
            databases: 2,
        };
        let checked = check_rules(&rules, found, &args, place);
        assert_eq!(checked, Ok(()), "{name} with {needed:?}");
        let elsewhere = Place {
            db: DbIndex(0),
            databases: 3,
        };
        // All DBs of this server are more than the user has.
        if name == "flushall" {
            let denied = check_rules(&rules, found, &args, elsewhere);
            assert_eq!(denied, Err(Denied::Db(None)));
        }
    }
}

/// The rows say what becomes of a key: who changes one needs the permission to write, and who
/// returns something of it the permission to read.
#[test]
fn rows_say_what_they_do_with_keys() {
    let (mut harmless, mut unchanging) = (Vec::new(), Vec::new());
    for (name, found) in commands() {
        let mut specs = found.command.keys.iter();
        if specs.all(|spec| spec.flags.contains(KeyFlags::NOT_KEY)) {
            continue;
        }
        let specs = found.command.keys.iter();
        let each = specs.map(|spec| access(found.command, spec.flags));
        let all = each
            .clone()
            .fold(Access::empty(), |sum, access| sum | access);
        if found.command.is_write() && !all.contains(Access::WRITE) {
            unchanging.push(name.clone());
        }
        if each.clone().any(|access| access.is_empty()) {
            harmless.push(name);
        }
    }
    unchanging.sort();
    harmless.sort();
    assert_eq!(unchanging, ["pfdebug", "xreadgroup"]);
    let expected = "exists hexists hlen hstrlen llen memory|usage object|encoding \
                    object|freq object|idletime object|refcount scard sicard sismember strlen \
                    touch type watch xlen zcard";
    assert_eq!(harmless.join(" "), expected);
}

#[track_caller]
fn fails(client: &mut Client, line: &str, error: &str) {
    assert_eq!(client.run(line).as_error(), Some(error), "{line}");
}

/// Keys that a command uses although they do not stand where those of other commands do.
#[test]
fn keys_are_found_wherever_they_stand() {
    const NO_KEY: &str = "NOPERM No permissions to access a key";
    let mut pair = Pair::new();
    pair.admin.run("RPUSH list a b");
    pair.admin.run("GEOADD places 1 1 x");
    pair.admin.run("XADD stream 1 f v");
    pair.commits = pair.admin.logged().len();
    pair.permit("on nopass +@all ~list ~places ~stream ~mine* %R~read %W~written");
    for line in [
        "SORT list STORE other",
        "SORT list BY nosort STORE mine STORE other",
        "GEORADIUS places 1 1 1 m STORE other",
        "GEORADIUS places 1 1 1 m STORE mine STOREDIST other",
        "GEORADIUS places 1 1 1 m STOREDIST read",
        "GEORADIUSBYMEMBER places x 1 m STORE other",
        "XREAD STREAMS stream other 0 0",
        "XREADGROUP GROUP STREAMS c STREAMS stream other > >",
        "XREADGROUP GROUP g STREAMS COUNT 1 STREAMS other >",
        "MSETEX 2 mine 1 other 2",
        "MSETEX 1 other 1 EX 9",
        "COPY other mine",
        "COPY mine other",
        "COPY mine read",
        "SET read 1",
        "SET read 1 GET",
        "BITFIELD read SET u8 0 1",
        "BITFIELD read GET u8 0 INCRBY u8 0 1",
        "EVAL return 1 other",
        "EVAL return(1) 1 other",
        "ZUNION 2 mine other",
        "ZUNIONSTORE other 1 mine",
        "LMPOP 2 mine other LEFT",
        "BLMPOP 0 2 mine other LEFT",
        "MIGRATE 127.0.0.1 1 other 0 10",
        "MIGRATE 127.0.0.1 1 read 0 10",
        "OBJECT ENCODING other",
        "MEMORY USAGE other",
        "WATCH other",
        "RENAME mine other",
        "LMOVE mine other LEFT LEFT",
        "DIGEST written",
        "DELIFEQ written x",
        "DELEX written IFEQ x",
        "SET written 1 IFDEQ 0000000000000000",
        "XCLAIM written g c 0 1-1",
        "XAUTOCLAIM written g c 0 0",
    ] {
        let reply = pair.user.run(line);
        // The number of keys of the first EVAL is none.
        if line != "EVAL return 1 other" {
            assert_eq!(reply.as_error(), Some(NO_KEY), "{line}");
        }
        assert_eq!(pair.admin.logged().len(), pair.commits, "{line}");
    }
    for words in [
        &["KEYS", "other"][..],
        &["KEYS", "mine", "other"],
        &["KEYS", "other", "KEYS", "mine"],
        &["AUTH", "KEYS", "KEYS", "other", "KEYS", "mine"],
    ] {
        let begin = ["MIGRATE", "127.0.0.1", "1", "", "0", "9"];
        let words = [&begin, words].concat();
        let args: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        assert_eq!(pair.user.args(&args).as_error(), Some(NO_KEY), "{words:?}");
    }
    fails(
        &mut pair.user,
        "MIGRATE 127.0.0.1 1 m 0 9 USE_PREFIX",
        NO_KEY,
    );
    fails(
        &mut pair.user,
        "MIGRATE 127.0.0.1 1 list 0 9 USE_PREFIX",
        NO_KEY,
    );
    const BY: &str = "ERR BY option of SORT denied due to insufficient ACL permissions.";
    const GET: &str = "ERR GET option of SORT denied due to insufficient ACL permissions.";
    fails(&mut pair.user, "SORT list BY w_*", BY);
    fails(&mut pair.user, "SORT_RO list GET w_*", GET);
    fails(&mut pair.user, "SORT list GET # STORE mine", GET);
    pair.permit("on nopass +@all ~list (%R~* -@all +sort)");
    assert!(matches!(
        pair.user.run("SORT list BY nosort GET w_*"),
        Value::Array(_)
    ));
    fails(&mut pair.user, "SORT_RO list GET w_*", GET);
    pair.permit("on nopass +@all ~list (%R~* -@all)");
    fails(&mut pair.user, "SORT list BY w_*", BY);
    assert_eq!(pair.user.run("EXISTS list"), Value::Int(1));
    assert_eq!(pair.admin.logged().len(), pair.commits);
}

/// A command that waits runs again with the permissions of that moment.
#[test]
fn a_command_that_waited_is_checked_again() {
    let mut pair = Pair::new();
    let wait = |pair: &mut Pair| {
        let (executor, session) = pair.user.parts();
        executor.start_tick();
        let mut reply = crate::resp::Reply::new(false);
        executor.run(session, &[b"BLPOP", b"list", b"0"], &mut reply);
        executor.finish_tick().unwrap();
        assert!(reply.buf.is_empty());
        session.waiting.take().expect("it waits")
    };
    let text = |waiter: &crate::state::waiters::Waiter| match waiter.take_verdict() {
        Some(crate::state::waiters::Verdict::Reply(bytes)) => {
            String::from_utf8_lossy(&bytes).into_owned()
        }
        other => panic!("{other:?}"),
    };
    for (rules, expected) in [
        (
            "on +@all ~other",
            "-NOPERM No permissions to access a key\r\n",
        ),
        (
            "on +@all -blpop ~*",
            "-NOPERM User u has no permissions to run the 'blpop' command\r\n",
        ),
    ] {
        pair.permit("on nopass +@all ~* &*");
        let waiter = wait(&mut pair);
        pair.permit(rules);
        assert_eq!(pair.admin.run("RPUSH list x"), Value::Int(1));
        assert_eq!(text(&waiter), expected);
        assert_eq!(pair.admin.run("LPOP list"), Value::Bulk(b"x".to_vec()));
    }
    pair.permit("on nopass +@all ~* &*");
    let waiter = wait(&mut pair);
    pair.admin.run("ACL DELUSER u");
    pair.admin.run("RPUSH list x");
    assert!(text(&waiter).starts_with("-NOPERM"));
    assert_eq!(pair.admin.run("LLEN list"), Value::Int(1));
}

#[test]
fn what_was_refused_is_counted_once() {
    let mut pair = Pair::new();
    pair.permit("on nopass +@all -set ~mine resetchannels");
    for line in ["GET other", "SET mine 1", "PUBLISH c m", "GET other"] {
        pair.user.run(line);
    }
    pair.user
        .args(&[b"EVAL", b"return redis.pcall('get', 'other')", b"0"]);
    fails(
        &mut pair.user,
        "AUTH u",
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
    );
    pair.admin.run("ACL SETUSER u resetpass");
    pair.user.run("AUTH u wrong");
    let Value::Array(entries) = pair.admin.run("ACL LOG") else {
        panic!("no array");
    };
    let shown: Vec<String> = entries
        .iter()
        .map(|entry| {
            let Value::Array(pairs) = entry else {
                panic!("no pairs")
            };
            let of = |name: &str| {
                let mut pairs = pairs.chunks(2);
                let pair = pairs.find(|pair| pair[0].as_bytes() == Some(name.as_bytes()));
                crate::exec::testing::shown(&pair.unwrap()[1])
            };
            let names = ["count", "reason", "context", "object", "username"];
            assert!(
                of("client-info").contains("user=u "),
                "{}",
                of("client-info")
            );
            names.map(of).join(" ")
        })
        .collect();
    assert_eq!(
        shown,
        [
            "1 auth toplevel AUTH u",
            "1 key lua other u",
            "2 key toplevel other u",
            "1 channel toplevel c u",
            "1 command toplevel set u",
        ]
    );
    let stats = &pair.admin.server().stats;
    let counts = [
        &stats.auth_failures,
        &stats.denied_commands,
        &stats.denied_keys,
        &stats.denied_channels,
    ];
    assert_eq!(counts.map(|counter| counter.get()), [1, 1, 3, 1]);
}

#[test]
fn a_script_asks_for_permissions_of_its_caller() {
    let mut pair = Pair::new();
    pair.permit("on nopass +@all -set ~mine");
    let ask = |pair: &mut Pair, words: &str| {
        let script = format!("return tostring(redis.acl_check_cmd({words}))");
        let reply = pair.user.args(&[b"EVAL", script.as_bytes(), b"0"]);
        String::from_utf8_lossy(reply.as_bytes().unwrap()).into_owned()
    };
    assert_eq!(ask(&mut pair, "'get', 'mine'"), "true");
    assert_eq!(ask(&mut pair, "'get', 'other'"), "false");
    assert_eq!(ask(&mut pair, "'set', 'mine', '1'"), "false");
    let script = b"return redis.acl_check_cmd('nonsense')";
    let reply = pair.user.args(&[b"EVAL", script, b"0"]);
    let error = reply.as_error().unwrap_or_default();
    let words = "ERR Invalid command passed to redis.acl_check_cmd()";
    assert!(error.starts_with(words), "{error}");
}

#[test]
fn a_queued_select_counts_for_the_commands_behind_it() {
    const NO_DB: &str = "NOPERM No permissions to access database";
    let mut pair = Pair::new();
    pair.permit("on nopass +@all ~* db=0,3");
    for (select, error) in [("SELECT 3", None), ("SELECT 4", Some(NO_DB))] {
        pair.user.run("MULTI");
        assert_eq!(pair.user.run(select).as_error(), error);
        assert_eq!(pair.user.run("GET x").as_error(), None);
        pair.user.run("DISCARD");
    }
    pair.permit("on nopass +@all ~* db=3");
    fails(&mut pair.user, "GET x", NO_DB);
    pair.user.run("MULTI");
    pair.user.run("SELECT 3");
    assert_eq!(pair.user.run("GET x"), Value::Simple("QUEUED".into()));
    assert_eq!(pair.user.run("EXEC").as_error(), None);
    assert_eq!(pair.user.run("GET x"), Value::Null);
    for line in [
        "COPY a b DB 1",
        "MOVE a 1",
        "SWAPDB 3 1",
        "FLUSHALL",
        "SELECT 0",
    ] {
        fails(&mut pair.user, line, NO_DB);
    }
}

/// Permissions of a user that is removed end before its connections are closed.
#[test]
fn a_removed_user_may_do_nothing() {
    let mut pair = Pair::new();
    assert_eq!(pair.admin.run("ACL DELUSER u nobody"), Value::Int(1));
    let reply = pair.user.run("SET a 1");
    pair.refused(&reply, "SET");
    pair.permit("on nopass +@all ~*");
    let reply = pair.user.run("SET a 1");
    pair.refused(&reply, "as the old user");
    assert_eq!(pair.user.run("AUTH u x"), Value::Simple("OK".into()));
    assert_eq!(pair.user.run("GET a"), Value::Null);
}
