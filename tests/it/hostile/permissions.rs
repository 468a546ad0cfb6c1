//! Random requests of a user who may use some of the keys: the others neither change nor show
//! what they hold.
//!
//! Requests are made from the syntax in the rows of the commands and then disfigured. They run
//! in transactions and scripts, in which nothing blocks.

use crate::support::{Conn, Server, Value, env_number, seed};
use kedis::commands::registry;
use kedis::commands::table::registry::Registered;
use kedis::commands::table::spec::Group;
use kedis::commands::table::syntax::{ArgKind, Argument};

/// What stands in the values that the user may not read.
const MARK: &str = "forbidden";
/// Beginnings of names: keys that the user may use, may not, may read, may write.
const KINDS: [&str; 4] = ["a:", "b:", "r:", "w:"];
const TYPES: [&str; 10] = [
    "string", "list", "set", "zset", "hash", "stream", "json", "topk", "number", "none",
];
const REQUESTS_PER_ROUND: usize = 200;

/// The commands of data types, and of keys in general.
fn commands() -> Vec<(Vec<String>, &'static Registered)> {
    let all = registry().iter().flat_map(|command| {
        let subs = command.subcommands.values();
        let subs = subs.map(|sub| {
            let words = vec![command.full_name.clone(), sub.command.name.to_owned()];
            (words, sub)
        });
        std::iter::once((vec![command.full_name.clone()], command)).chain(subs)
    });
    let others = [
        Group::Connection,
        Group::Transactions,
        Group::PubSub,
        Group::Server,
        Group::Cluster,
    ];
    all.filter(|(_, found)| !others.contains(&found.command.group))
        .collect()
}

struct Maker {
    random: fastrand::Rng,
}

impl Maker {
    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    fn key(&mut self) -> String {
        let kind = match self.random.bool() {
            true => "a:",
            false => self.one_of(&KINDS),
        };
        kind.to_owned() + self.one_of(&TYPES)
    }

    fn text(&mut self) -> String {
        match self.random.u8(..4) {
            0 => self.key(),
            1 => self
                .one_of(&["0", "1", "2", "-1", "3", "1.5", "+inf"])
                .to_owned(),
            2 => self
                .one_of(&[
                    "f", "m", "$", ".", "-", "+", "*", "b:*", "*->f", ">", "0-0", "g", "(",
                ])
                .to_owned(),
            _ => self
                .one_of(&[
                    "STORE",
                    "GET",
                    "BY",
                    "KEYS",
                    "STREAMS",
                    "COUNT",
                    "STOREDIST",
                    "WEIGHTS",
                    "DB",
                    "REPLACE",
                    "LEFT",
                    "RIGHT",
                    "ASC",
                    "m",
                    "MAXLEN",
                    "IDS",
                    "BLOCK",
                    "GROUP",
                    "NX",
                ])
                .to_owned(),
        }
    }

    fn fill(&mut self, argument: &Argument, words: &mut Vec<String>, keys: &mut usize) {
        if argument.optional && self.random.u8(..3) > 0 {
            return;
        }
        let times = match (argument.multiple, argument.kind, *keys) {
            (true, ArgKind::Key, announced @ 1..) => announced,
            (true, ..) => self.random.usize(1..4),
            (false, ..) => 1,
        };
        for time in 0..times {
            if time == 0 || argument.multiple_token {
                words.extend(argument.token.map(str::to_owned));
            }
            match argument.kind {
                ArgKind::PureToken => {}
                ArgKind::OneOf => {
                    let part = &argument.parts[self.random.usize(..argument.parts.len())];
                    self.fill(part, words, keys);
                }
                ArgKind::Block => {
                    let parts = argument.parts.iter();
                    parts.for_each(|part| self.fill(part, words, keys));
                }
                ArgKind::Key => words.push(self.key()),
                ArgKind::Integer if argument.name.starts_with("num") => {
                    *keys = self.random.usize(1..4);
                    words.push(keys.to_string());
                }
                ArgKind::Integer | ArgKind::Double | ArgKind::UnixTime => {
                    words.push(self.one_of(&["0", "1", "2", "-1", "100"]).to_owned());
                }
                ArgKind::String | ArgKind::Pattern => words.push(self.text()),
            }
        }
    }

    fn request(&mut self, name: &[String], found: &Registered) -> Vec<String> {
        let mut words = name.to_vec();
        let mut keys = 0;
        for argument in &found.arguments {
            self.fill(argument, &mut words, &mut keys);
        }
        let faults = match self.random.bool() {
            true => 0,
            false => self.random.usize(1..4),
        };
        for _ in 0..faults {
            let at = self.random.usize(name.len()..=words.len());
            match self.random.u8(..4) {
                0 => words.insert(at, self.text()),
                1 if at < words.len() => words[at] = self.text(),
                2 if at < words.len() => {
                    words.remove(at);
                }
                _ if at < words.len() => {
                    let other = self.random.usize(name.len()..words.len());
                    words.swap(at, other);
                }
                _ => {}
            }
        }
        words
    }
}

/// Makes the keys anew.
fn fill(admin: &mut Conn) {
    admin.must("FLUSHALL");
    for (db, kinds) in [("0", &KINDS[..]), ("1", &["a:"])] {
        admin.must(&format!("SELECT {db}"));
        for kind in kinds {
            let is_shown = db == "0" && ["a:", "r:"].contains(kind);
            let value = if is_shown { "shown" } else { MARK };
            for request in [
                format!("SET {kind}string {value}"),
                format!("RPUSH {kind}list {value}1 {value}2 1"),
                format!("SADD {kind}set {value}1 {value}2"),
                format!("ZADD {kind}zset 1 {value}1 2 {value}2"),
                format!("GEOADD {kind}zset 13.3 38.1 {value}3"),
                format!("HSET {kind}hash f {value} g {value}"),
                format!("XADD {kind}stream 1-1 f {value}"),
                format!("XGROUP CREATE {kind}stream g 0"),
                format!("JSON.SET {kind}json $ {{\"f\":\"{value}\",\"g\":[\"{value}\"]}}"),
                format!("TOPK.RESERVE {kind}topk 3"),
                format!("TOPK.ADD {kind}topk {value}"),
                format!("SET {kind}number 5"),
            ] {
                admin.must(&request);
            }
        }
    }
    admin.must("SELECT 0");
}

/// What must not change.
fn digests(admin: &mut Conn) -> Vec<Value> {
    let mut seen = Vec::new();
    for (db, kinds) in [("0", &["b:", "r:"][..]), ("1", &["a:"])] {
        admin.must(&format!("SELECT {db}"));
        for kind in kinds {
            for of in TYPES {
                seen.push(admin.must(&format!("DEBUG DIGEST-VALUE {kind}{of}")));
                seen.push(admin.must(&format!("PEXPIRETIME {kind}{of}")));
            }
        }
        if db == "1" {
            seen.push(admin.must("DBSIZE"));
        }
    }
    admin.must("SELECT 0");
    seen
}

/// The replies to the requests, each in a transaction or in a script.
fn run(conn: &mut Conn, requests: &[(bool, Vec<String>)]) -> Vec<String> {
    let script = "return redis.pcall(unpack(ARGV))";
    let mut sent = Vec::new();
    for (in_script, words) in requests {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_bytes()).collect();
        match in_script {
            true => {
                let head = ["EVAL", script, "0"].map(|word| word.as_bytes().to_vec());
                sent.push([&head[..], &words].concat());
            }
            false => {
                sent.push(vec![b"MULTI".to_vec()]);
                sent.push(words);
                sent.push(vec![b"EXEC".to_vec()]);
            }
        }
    }
    let mut replies = conn.pipeline(&sent).into_iter();
    let answers = requests.iter().map(|(in_script, _)| match in_script {
        true => format!("{:?}", replies.next().unwrap()),
        false => {
            let _ = replies.next();
            let queued = replies.next().unwrap();
            format!("{queued:?} {:?}", replies.next().unwrap())
        }
    });
    answers.collect()
}

#[test]
fn random_requests_touch_no_keys_of_others() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut admin = server.connect();
    admin.must(
        "ACL SETUSER app on >p resetchannels db=0 ~a:* %R~r:* %W~w:* +@all -@admin -@dangerous \
         +sort +sort_ro +restore +migrate",
    );
    let mut conn = server.connect();
    conn.must("AUTH app p");
    let mut maker = Maker {
        random: fastrand::Rng::with_seed(seed("KEDIS_HOSTILE_SEED")),
    };
    let commands = commands();
    assert!(commands.len() > 200);
    let mut refused = 0;
    let mut done = 0;
    for _ in 0..env_number("KEDIS_HOSTILE_ROUNDS", 40) {
        fill(&mut admin);
        let before = digests(&mut admin);
        let requests: Vec<(bool, Vec<String>)> = (0..REQUESTS_PER_ROUND)
            .map(|_| {
                let (name, found) = &commands[maker.random.usize(..commands.len())];
                (maker.random.bool(), maker.request(name, found))
            })
            .collect();
        let replies = run(&mut conn, &requests);
        for ((way, request), reply) in requests.iter().zip(&replies) {
            // Errors quote the request, in which there is no mark.
            assert!(!reply.contains(MARK), "{way} {request:?}: {reply}");
            refused += usize::from(reply.contains("NOPERM"));
            done += usize::from(!reply.contains("-\""));
        }
        if digests(&mut admin) != before {
            // Again, one by one, to find it.
            fill(&mut admin);
            for request in &requests {
                run(&mut conn, std::slice::from_ref(request));
                assert!(digests(&mut admin) == before, "{request:?}");
            }
            panic!("one of these: {requests:?}");
        }
    }
    println!("{done} done, {refused} refused");
    assert!(
        done > 200 && refused > 200,
        "{done} done, {refused} refused"
    );
}
