use crate::exec::testing::Client;
use crate::resp::Value;
use crate::state::Server;
use crate::state::waiters::{Verdict, Waiter};
use crate::sys::testing::wait_for;
use std::sync::Arc;

/// Runs a command that has to wait.
fn wait(client: &mut Client, line: &str) {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    assert!(client.tick(&[&args]).is_empty(), "{line} has to wait");
    assert!(client.parts().1.waiting.is_some(), "{line} has to wait");
}

/// The verdict that ended the wait, if any.
fn ended(client: &mut Client) -> Option<String> {
    let (_, session) = client.parts();
    let verdict = session.waiting.as_ref()?.take_verdict()?;
    session.waiting = None;
    Some(match verdict {
        Verdict::Reply(bytes) => String::from_utf8(bytes).unwrap().replace("\r\n", " "),
        Verdict::TimedOut => "timeout".to_owned(),
        Verdict::Error(text) => format!("-{text}"),
    })
}

#[track_caller]
fn served(client: &mut Client, expected: &str) {
    assert_eq!(ended(client).as_deref(), Some(expected));
}

fn clients<const N: usize>() -> [Client; N] {
    let first = Client::new();
    let others = std::array::from_fn(|_| first.another());
    drop(first);
    others
}

fn no_client_waits(client: &Client) {
    let server = client.server();
    let waiters = &server.waiters;
    assert_eq!((waiters.len(), waiters.keys(), waiters.timed()), (0, 0, 0));
    assert!(!server.engine.listeners.interest.any());
    client.check();
}

/// The XREAD reply with one entry of `k`.
const STREAM: &str = "*1 *2 $1 k *1 *2 $3 1-0 *2 $1 f $1 v ";

#[test]
fn every_way_to_make_a_key_ready() {
    let list = "*2 $1 k $1 x ";
    let cases: &[(&str, &[&str], &str, &str)] = &[
        ("BLPOP k 0", &[], "RPUSH k x", list),
        ("BRPOP k 0", &[], "LPUSH k x", list),
        ("BLPOP a k 0", &[], "RPUSH k x y", list),
        ("BLPOP k 0", &["RPUSH j x"], "RENAME j k", list),
        ("BLPOP k 0", &["RPUSH j x"], "RENAMENX j k", list),
        ("BLPOP k 0", &["RPUSH j x"], "COPY j k", list),
        ("BLPOP k 0", &["RPUSH j x"], "LMOVE j k LEFT LEFT", list),
        ("BLPOP k 0", &["RPUSH j x"], "RPOPLPUSH j k", list),
        ("BLPOP k 0", &["SADD j x"], "SORT j ALPHA STORE k", list),
        ("BLPOP k 0", &["SELECT 1", "RPUSH k x"], "MOVE k 0", list),
        ("BLPOP k 0", &["SELECT 1", "RPUSH k x"], "SWAPDB 0 1", list),
        (
            "BLPOP k 0",
            &["SELECT 1", "RPUSH k x"],
            "COPY k k DB 0",
            list,
        ),
        ("BLPOP k 0", &["MULTI", "RPUSH k x", "PING"], "EXEC", list),
        ("BLMOVE k d LEFT RIGHT 0", &[], "RPUSH k x", "$1 x "),
        ("BRPOPLPUSH k k 0", &[], "RPUSH k x", "$1 x "),
        (
            "BLMPOP 0 2 a k LEFT",
            &[],
            "RPUSH k x y",
            "*2 $1 k *1 $1 x ",
        ),
        (
            "BLMPOP 0 1 k RIGHT COUNT 9",
            &[],
            "RPUSH k y x",
            "*2 $1 k *2 $1 x $1 y ",
        ),
        ("BZPOPMIN k 0", &[], "ZADD k 1 x 2 y", "*3 $1 k $1 x $1 1 "),
        ("BZPOPMAX k 0", &[], "ZADD k 1 y 2 x", "*3 $1 k $1 x $1 2 "),
        ("BZPOPMIN k 0", &[], "ZINCRBY k 1 x", "*3 $1 k $1 x $1 1 "),
        (
            "BZPOPMIN k 0",
            &["ZADD j 1 x"],
            "ZUNIONSTORE k 1 j",
            "*3 $1 k $1 x $1 1 ",
        ),
        (
            "BZPOPMIN k 0",
            &["ZADD j 1 x"],
            "ZRANGESTORE k j 0 -1",
            "*3 $1 k $1 x $1 1 ",
        ),
        (
            "BZMPOP 0 2 a k MIN COUNT 2",
            &[],
            "ZADD k 1 x 2 y 3 z",
            "*2 $1 k *2 *2 $1 x $1 1 *2 $1 y $1 2 ",
        ),
        ("XREAD BLOCK 0 STREAMS k $", &[], "XADD k 1 f v", STREAM),
        (
            "XREAD COUNT 1 BLOCK 0 STREAMS a k 0 0",
            &[],
            "XADD k 1 f v",
            STREAM,
        ),
        (
            "XREAD BLOCK 0 STREAMS k $",
            &["XADD j 1 f v"],
            "RENAME j k",
            STREAM,
        ),
        (
            "XREAD BLOCK 0 STREAMS k $",
            &["SELECT 1", "XADD k 1 f v"],
            "SWAPDB 0 1",
            STREAM,
        ),
        (
            "XREAD BLOCK 0 STREAMS k 0",
            &["MULTI", "XADD k 1 f v", "PING"],
            "EXEC",
            STREAM,
        ),
    ];
    for (blocks, setup, push, expected) in cases {
        let [mut a, mut b] = clients();
        wait(&mut a, blocks);
        for line in *setup {
            b.run(line);
        }
        assert_eq!(ended(&mut a), None, "{blocks} {setup:?}");
        b.run(push);
        assert_eq!(ended(&mut a).as_deref(), Some(*expected), "{blocks} {push}");
        no_client_waits(&b);
    }
}

#[test]
fn first_come_first_served_on_any_thread() {
    let [mut a, mut b, mut c, mut p] = clients();
    wait(&mut b, "BLPOP k 0");
    wait(&mut a, "BRPOP other k k 0");
    wait(&mut c, "BLPOP k 0");
    p.run("RPUSH k 1 2");
    served(&mut b, "*2 $1 k $1 1 ");
    served(&mut a, "*2 $1 k $1 2 ");
    assert_eq!(ended(&mut c), None);
    assert_eq!(p.run("EXISTS k"), Value::Int(0));
    p.run("RPUSH k 3 4");
    served(&mut c, "*2 $1 k $1 3 ");
    assert_eq!(p.run("LLEN k"), Value::Int(1));
    no_client_waits(&p);
}

#[test]
fn moves_in_a_chain() {
    let [mut a, mut b, mut c, mut p] = clients();
    wait(&mut c, "BLPOP l3 0");
    wait(&mut b, "BLMOVE l2 l3 LEFT LEFT 0");
    wait(&mut a, "BLMOVE l1 l2 LEFT LEFT 0");
    p.run("RPUSH l1 x");
    served(&mut a, "$1 x ");
    served(&mut b, "$1 x ");
    served(&mut c, "*2 $2 l3 $1 x ");
    assert_eq!(p.run("EXISTS l1 l2 l3"), Value::Int(0));
    let logged = p.logged();
    let expected = [
        "RPUSH l1 x",
        "LMOVE l1 l2 LEFT LEFT",
        "LMOVE l2 l3 LEFT LEFT",
        "LPOP l3",
    ];
    assert_eq!(logged, expected);
    no_client_waits(&p);
}

#[test]
fn values_of_other_types_are_waited_out() {
    let [mut a, mut b, mut p] = clients();
    wait(&mut a, "BLPOP k 0");
    wait(&mut b, "BZPOPMIN k 0");
    for line in ["SET k x", "DEL k", "SADD k x", "DEL k"] {
        p.run(line);
        assert_eq!((ended(&mut a), ended(&mut b)), (None, None), "{line}");
    }
    p.run("ZADD k 1 x");
    served(&mut b, "*3 $1 k $1 x $1 1 ");
    p.run("RPUSH k y");
    served(&mut a, "*2 $1 k $1 y ");
    for line in ["BLPOP s 0", "BZPOPMIN s 0", "BLMOVE s d LEFT LEFT 0"] {
        p.run("SET s x");
        let error = p.run(line);
        let error = error.as_error().unwrap();
        assert!(error.starts_with("WRONGTYPE "), "{line}");
    }
    no_client_waits(&p);
}

#[test]
fn a_move_to_where_no_list_is_fails_and_the_next_is_served() {
    let [mut a, mut b, mut p] = clients();
    wait(&mut a, "BRPOPLPUSH k d1 0");
    wait(&mut b, "BRPOPLPUSH k d2 0");
    p.run("SET d1 x");
    p.run("RPUSH k 1");
    served(
        &mut a,
        "-WRONGTYPE Operation against a key holding the wrong kind of value ",
    );
    served(&mut b, "$1 1 ");
    assert_eq!(p.run("LLEN d2"), Value::Int(1));
    no_client_waits(&p);
}

#[test]
fn clients_are_served_when_a_transaction_is_over() {
    let [mut a, mut p] = clients();
    wait(&mut a, "BLPOP k1 k2 0");
    for line in ["MULTI", "RPUSH k1 1", "DEL k1", "EXEC"] {
        p.run(line);
    }
    assert_eq!(ended(&mut a), None);
    for line in ["MULTI", "RPUSH k2 2", "RPUSH k1 1", "LLEN k1", "EXEC"] {
        p.run(line);
    }
    served(&mut a, "*2 $2 k1 $1 1 ");
    assert_eq!(p.run("LLEN k2"), Value::Int(1));
    let expected = [
        "MULTI",
        "RPUSH k1 1",
        "DEL k1",
        "EXEC",
        "MULTI",
        "RPUSH k2 2",
        "RPUSH k1 1",
        "EXEC",
        "LPOP k1",
    ];
    assert_eq!(p.logged(), expected);
    no_client_waits(&p);
}

#[test]
fn blocking_commands_do_not_wait_in_a_transaction() {
    let mut a = Client::new();
    a.run("MULTI");
    for line in [
        "BLPOP k 0",
        "BLMOVE k d LEFT LEFT 0",
        "BRPOPLPUSH k d 0",
        "BZPOPMAX k 0",
        "BLMPOP 0 1 k LEFT",
        "BZMPOP 0 1 k MAX",
        "BLPOP k x",
        "RPUSH k 1",
        "BLPOP k 0",
    ] {
        a.run(line);
    }
    let mut reply = crate::resp::Reply::new(false);
    let (executor, session) = a.parts();
    executor.start_tick();
    executor.run(session, &[b"EXEC"], &mut reply);
    executor.finish_tick().unwrap();
    let text = String::from_utf8(reply.buf).unwrap().replace("\r\n", " ");
    let expected = "*9 *-1 $-1 $-1 *-1 *-1 *-1 \
         -ERR timeout is not a float or out of range :1 *2 $1 k $1 1 ";
    assert_eq!(text, expected);
    no_client_waits(&a);
}

#[test]
fn clients_served_in_a_failed_tick_get_its_error() {
    let [mut a, mut p] = clients();
    wait(&mut a, "BLPOP k 0");
    let (executor, session) = p.parts();
    executor.start_tick();
    let mut reply = crate::resp::Reply::new(false);
    executor.run(session, &[b"RPUSH", b"k", b"1"], &mut reply);
    executor.server().engine.refuse_writes();
    assert!(executor.finish_tick().is_err());
    let verdict = ended(&mut a).unwrap();
    assert!(verdict.starts_with("-MISCONF "), "{verdict}");
}

#[test]
fn unblocked_from_outside() {
    let [mut a, mut p] = clients();
    let id = a.parts().1.info.id.0;
    for (how, expected) in [
        ("", "timeout"),
        (" TIMEOUT", "timeout"),
        (" error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        wait(&mut a, "BLPOP k 0");
        let line = format!("CLIENT UNBLOCK {id}{how}");
        assert_eq!(p.run(&line), Value::Int(1));
        assert_eq!(p.run(&line), Value::Int(0));
        served(&mut a, expected);
    }
    assert_eq!(p.run("CLIENT UNBLOCK -1"), Value::Int(0));
    for (line, error) in [
        ("x", "ERR value is not an integer or out of range"),
        (
            "1 x",
            "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
        ),
    ] {
        let refused = p.run(&format!("CLIENT UNBLOCK {line}"));
        assert_eq!(refused.as_error(), Some(error));
    }
    wait(&mut a, "BLPOP k 0");
    p.server().unblock_all();
    served(
        &mut a,
        "-UNBLOCKED force unblock from blocking operation, \
         instance state changed (master -> replica?)",
    );
    p.run("RPUSH k 1");
    assert_eq!(p.run("LLEN k"), Value::Int(1));
    no_client_waits(&p);
}

#[test]
fn nothing_is_taken_for_clients_that_are_gone_or_late() {
    let [mut a, mut b, mut p] = clients();
    wait(&mut a, "BLPOP k 0");
    let waiter = a.parts().1.waiting.clone().unwrap();
    p.server().waiters.abandon(&waiter);
    wait(&mut b, "BLPOP k 5");
    let waiter = b.parts().1.waiting.clone().unwrap();
    assert!(waiter.deadline_ms.is_some());
    assert!(p.server().waiters.time_out(&waiter));
    p.run("RPUSH k 1");
    assert_eq!(p.run("LLEN k"), Value::Int(1));
    served(&mut b, "timeout");
    assert_eq!(ended(&mut a), None);
    no_client_waits(&p);
}

#[test]
fn arguments_that_are_refused() {
    let mut a = Client::new();
    let cases = [
        ("BLPOP k x", "ERR timeout is not a float or out of range"),
        ("BLPOP k nan", "ERR timeout is not a float or out of range"),
        ("BLPOP k -1", "ERR timeout is negative"),
        ("BLPOP k inf", "ERR timeout is out of range"),
        ("BLPOP k 1e400", "ERR timeout is out of range"),
        ("BLPOP k 9223372036854775807", "ERR timeout is out of range"),
        ("BLPOP k 9223372036854774", "ERR timeout is out of range"),
        ("BLMOVE a b x LEFT z", "ERR syntax error"),
        ("BLMOVE a b LEFT LEFT -1", "ERR timeout is negative"),
        ("BRPOPLPUSH a b -1", "ERR timeout is negative"),
        ("BLMPOP x 0 k LEFT", "ERR numkeys should be greater than 0"),
        (
            "BLMPOP x 1 k LEFT",
            "ERR timeout is not a float or out of range",
        ),
        ("BLMPOP 0 2 k LEFT", "ERR syntax error"),
        (
            "BLMPOP 0 1 k LEFT COUNT 0",
            "ERR count should be greater than 0",
        ),
        ("BZMPOP x 1 k foo", "ERR syntax error"),
        ("BZMPOP -1 1 k MIN", "ERR timeout is negative"),
        ("BZPOPMIN k z", "ERR timeout is not a float or out of range"),
        (
            "BLPOP k",
            "ERR wrong number of arguments for 'blpop' command",
        ),
    ];
    for (line, error) in cases {
        assert_eq!(a.run(line).as_error(), Some(error), "{line}");
    }
    no_client_waits(&a);
}

#[test]
fn pops_are_logged_as_those_that_do_not_wait() {
    let mut a = Client::new();
    let table = [
        ("RPUSH k 1 2 3 4 5 6 7 8 9", ""),
        ("BLPOP none k 0", "LPOP k"),
        ("BRPOP k 0", "RPOP k"),
        ("BLMPOP 0 1 k RIGHT COUNT 2", "RPOP k 2"),
        ("BLMOVE k d RIGHT LEFT 0", "LMOVE k d RIGHT LEFT"),
        ("BRPOPLPUSH k d 0", "RPOPLPUSH k d"),
        ("ZADD z 1 a 2 b 3 c 4 d", ""),
        ("BZPOPMIN z 0", "ZPOPMIN z"),
        ("BZPOPMAX z 0", "ZPOPMAX z"),
        ("BZMPOP 0 1 z MIN COUNT 5", "ZPOPMIN z 5"),
    ];
    for (line, logged) in table {
        a.run(line);
        let expected = if logged.is_empty() { line } else { logged };
        assert_eq!(a.logged().last().map(String::as_str), Some(expected));
    }
    no_client_waits(&a);
}

#[test]
fn all_readers_of_a_stream_get_new_entries() {
    let [mut a, mut c, mut p] = clients();
    p.run("XADD k 0-1 old 1");
    wait(&mut a, "XREAD BLOCK 0 STREAMS k $");
    wait(&mut c, "XREAD BLOCK 0 STREAMS k other 0-1 $");
    // Commands that add no entry.
    p.run("XREAD BLOCK 0 STREAMS k +");
    p.run("XDEL k 0-1");
    p.run("XGROUP CREATE k g 0");
    assert_eq!(ended(&mut a), None);
    p.tick(&[
        &[b"XADD", b"k", b"1", b"f", b"v"],
        &[b"XADD", b"k", b"2", b"f", b"v"],
    ]);
    served(&mut a, STREAM);
    served(&mut c, STREAM);
}

#[test]
fn a_group_serves_its_readers_in_order() {
    let [mut a, mut b, mut p] = clients();
    p.run("XGROUP CREATE k g $ MKSTREAM");
    wait(&mut a, "XREADGROUP GROUP g a BLOCK 0 STREAMS k >");
    wait(&mut b, "XREADGROUP GROUP g b BLOCK 0 STREAMS k >");
    p.run("XADD k 1 f v");
    served(&mut a, STREAM);
    assert_eq!(ended(&mut b), None);
    // Changes of the group do not wake its readers.
    p.run("XACK k g 1");
    p.run("XGROUP SETID k g 0");
    p.run("XADD k 2 f v");
    let both = "*1 *2 $1 k *2 *2 $3 1-0 *2 $1 f $1 v *2 $3 2-0 *2 $1 f $1 v ";
    served(&mut b, both);
    no_client_waits(&p);
    let logged = p.logged();
    let claims = logged.iter().filter(|line| line.starts_with("XCLAIM"));
    let claims: Vec<&str> = claims.map(String::as_str).collect();
    assert_eq!(
        claims,
        [
            "XCLAIM k g a 0 1-0 TIME 1800000000000 RETRYCOUNT 1 FORCE JUSTID LASTID 1-0",
            "XCLAIM k g b 0 1-0 2-0 TIME 1800000000000 RETRYCOUNT 1 FORCE JUSTID LASTID 2-0",
        ]
    );
}

#[test]
fn a_group_that_is_gone_ends_the_wait() {
    let no_group =
        "-NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option ";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value ";
    let cases: &[(&[&str], &str)] = &[
        (&["DEL k"], no_group),
        (&["UNLINK k"], no_group),
        (&["XGROUP DESTROY k g"], no_group),
        (&["RENAME k j"], no_group),
        (&["MOVE k 5"], no_group),
        (&["FLUSHDB"], no_group),
        (&["FLUSHALL"], no_group),
        (&["SWAPDB 0 1"], no_group),
        (&["PEXPIREAT k 1"], no_group),
        (&["SET k v"], wrong_type),
        (&["MULTI", "DEL k", "SADD k m", "EXEC"], wrong_type),
        (&["SELECT 1", "SET k v", "SWAPDB 1 0"], wrong_type),
    ];
    for (lines, expected) in cases {
        let [mut a, mut b, mut p] = clients();
        p.run("XGROUP CREATE k g $ MKSTREAM");
        wait(&mut a, "XREADGROUP GROUP g a BLOCK 0 STREAMS k >");
        wait(&mut b, "XREAD BLOCK 0 STREAMS k $");
        for line in *lines {
            p.run(line);
        }
        assert_eq!(ended(&mut a).as_deref(), Some(*expected), "{lines:?}");
        // A read without a group goes on waiting for a stream of that name.
        assert_eq!(ended(&mut b), None, "{lines:?}");
        p.check();
    }
}

#[test]
fn keys_that_are_waited_for_are_counted() {
    let [mut a, mut b, mut p] = clients();
    let counted = |p: &mut Client| {
        let info = p.run("INFO clients");
        let info = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
        let field = |name: &str| {
            let line = info.split("\r\n").find_map(|line| line.strip_prefix(name));
            line.unwrap().parse::<u64>().unwrap()
        };
        let all = field("total_blocking_keys:");
        (all, field("total_blocking_keys_on_nokey:"))
    };
    wait(&mut a, "BLPOP k l 0");
    assert_eq!(counted(&mut p), (2, 0));
    p.run("XGROUP CREATE k g $ MKSTREAM");
    wait(&mut b, "XREADGROUP GROUP g b BLOCK 0 STREAMS k >");
    assert_eq!(counted(&mut p), (2, 1));
    p.run("DEL k");
    assert!(ended(&mut b).is_some());
    assert_eq!(counted(&mut p), (2, 0));
}

/// A wait for very many keys is taken apart by another thread. The client used to be answered
/// before that was done, and its next wait was taken out of the table of clients instead: nothing
/// could unblock it any more.
#[test]
fn a_wait_is_over_when_nothing_is_left_of_it() {
    let [mut a, mut b] = clients();
    let keys: Vec<String> = (0..3000).map(|n| format!("k{n}")).collect();
    let many = format!("BLPOP {} 0", keys.join(" "));
    let server = b.server().clone();
    let chores = {
        let server = server.clone();
        std::thread::spawn(move || server.do_chores())
    };
    let ends: [fn(&mut Client, &Arc<Waiter>); 3] = [
        |b, _| drop(b.run("RPUSH k7 x")),
        |b, waiter| {
            let unblock = format!("CLIENT UNBLOCK {}", waiter.client.id.0);
            assert_eq!(b.run(&unblock), Value::Int(1));
        },
        |b, waiter| assert!(b.server().waiters.time_out(waiter)),
    ];
    let expected = ["*2 $2 k7 $1 x ", "timeout", "timeout"];
    for (end, expected) in ends.into_iter().zip(expected) {
        // The thread that does chores waits until this is dropped.
        let (go, gate) = crossbeam_channel::bounded::<()>(0);
        let stands_still = || {
            let gate = gate.clone();
            Box::new(move |_: &Server| assert!(gate.recv().is_err()))
        };
        wait_for("a thread that does chores", || {
            server.chores.leave(stands_still()).is_ok()
        });
        wait(&mut a, &many);
        let waiter = a.parts().1.waiting.clone().unwrap();
        end(&mut b, &waiter);
        assert_eq!(ended(&mut a), None, "{expected}");
        assert_eq!(server.waiters.keys(), keys.len());
        drop(go);
        let mut over = None;
        wait_for("the end of the wait", || {
            over = ended(&mut a);
            over.is_some()
        });
        assert_eq!(over.as_deref(), Some(expected));
        assert_eq!((server.waiters.keys(), server.waiters.len()), (0, 0));
    }
    // A wait that is abandoned, as if its commit had failed, while the client waits again.
    let (go, gate) = crossbeam_channel::bounded::<()>(0);
    let stands_still = Box::new(move |_: &Server| assert!(gate.recv().is_err()));
    assert!(server.chores.leave(stands_still).is_ok());
    wait(&mut a, &many);
    let before = a.parts().1.waiting.take().unwrap();
    server.waiters.abandon(&before);
    wait(&mut a, "BLPOP other 0");
    drop(go);
    wait_for("only the second wait", || server.waiters.len() == 1);
    let unblock = format!("CLIENT UNBLOCK {}", before.client.id.0);
    assert_eq!(b.run(&unblock), Value::Int(1));
    served(&mut a, "timeout");
    server.chores.stop();
    chores.join().unwrap();
    no_client_waits(&b);
}
