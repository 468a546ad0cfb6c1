//! One sequence on both servers, and the comparison of their whole state.

use std::time::{Duration, Instant};

use super::compare::{Judge, agree, judge};
use super::pools::DATABASES;
use crate::support::{Conn, Server, Value, args, cli, oracle, wait_within};

/// What a step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Sends the command and compares the replies.
    Call,
    /// A call that sets an expiry of a few milliseconds.
    Short,
    /// Runs a command of the SCAN family to the end; compares the elements.
    Iterate,
    /// Lets time pass, so that what expires has expired on both.
    Pause(u64),
}

/// One step of a sequence.
#[derive(Clone, Debug)]
pub struct Step {
    pub args: Vec<Vec<u8>>,
    pub kind: Kind,
    /// Whether the pipeline ends after this step.
    pub flush: bool,
}

impl Step {
    /// The command's name in upper case; empty for a pause.
    pub fn name(&self) -> String {
        let name = self.args.first().cloned().unwrap_or_default();
        String::from_utf8_lossy(&name).to_uppercase()
    }

    /// A command without arguments, at the end of a pipeline.
    pub fn call(name: &str) -> Step {
        Step {
            args: vec![name.as_bytes().to_vec()],
            kind: Kind::Call,
            flush: true,
        }
    }

    /// May it be queued in a transaction? The reply of EXEC is compared as bytes, so those of
    /// the queued commands have to be.
    pub fn fits_a_queue(&self) -> bool {
        // Their replies are not those of the oracle (`is_newer_behaviour`), count keys that are
        // past their time, or need a command before them for the oracle's sake. And the oracle
        // refuses DEBUG before it queues it.
        const OTHERS: [&str; 15] = [
            "BITCOUNT",
            "BITPOS",
            "ZRANK",
            "ZREVRANK",
            "XREAD",
            "XREADGROUP",
            "XGROUP",
            "GET",
            "DBSIZE",
            "SORT",
            "SORT_RO",
            "MULTI",
            "EXEC",
            "DISCARD",
            "DEBUG",
        ];
        let is_other = OTHERS.contains(&self.name().as_str());
        self.kind == Kind::Call && judge(&self.args) == Judge::Exact && !is_other
    }

    /// Milliseconds to wait after the step: longer than any short expiry, with a margin for the
    /// two servers to get the command at different times.
    pub fn pause_after(&self) -> Option<u64> {
        (self.kind == Kind::Short).then_some(15)
    }
}

/// Where and how the servers differed.
pub struct Difference {
    /// Index of the step; the length of the sequence for the final state.
    pub at: usize,
    command: String,
    ours: String,
    theirs: String,
}

impl Difference {
    /// One line for a list.
    pub fn summary(&self) -> String {
        let cut = |text: &str| text.chars().take(200).collect::<String>();
        format!(
            "{}\n    ours:   {}\n    oracle: {}",
            cut(&self.command),
            cut(&self.ours),
            cut(&self.theirs)
        )
    }

    /// Whether the other difference is about the same command.
    pub fn same_command(&self, other: &Difference) -> bool {
        self.command.split(' ').next() == other.command.split(' ').next()
    }

    /// Whether one of the replies is an arity error.
    pub fn is_about_arity(&self) -> bool {
        [&self.ours, &self.theirs]
            .iter()
            .any(|reply| reply.contains("wrong number of arguments"))
    }

    fn new(at: usize, command: String, ours: &Value, theirs: &Value) -> Difference {
        Difference {
            at,
            command,
            ours: format!("{ours:?}"),
            theirs: format!("{theirs:?}"),
        }
    }
}

/// The sequence as lines for redis-cli, and what differed.
pub fn report(steps: &[Step], protocol: u8, difference: &Difference, log: String) -> String {
    let mut lines = vec![format!("--- a difference; HELLO {protocol}, then:")];
    for step in steps {
        let pipelined = if step.flush {
            ""
        } else {
            "   # pipelined with the next"
        };
        lines.push(match step.kind {
            Kind::Pause(ms) => format!("  # {ms} ms pass"),
            Kind::Iterate => format!("  # iterate: {}", cli::line(&step.args)),
            Kind::Call | Kind::Short => format!("  {}{pipelined}", cli::line(&step.args)),
        });
    }
    if difference.at >= steps.len() {
        lines.push(format!(
            "  # then, comparing the state: {}",
            difference.command
        ));
    }
    lines.push(format!("  ours:   {}", difference.ours));
    lines.push(format!("  oracle: {}", difference.theirs));
    if !log.is_empty() {
        lines.push(format!("  our server ended:\n{log}"));
    }
    lines.join("\n")
}

/// Both servers, with a connection to each.
pub struct Pair {
    our_server: Server,
    oracle_server: Server,
    ours: Conn,
    theirs: Conn,
    crash_log: String,
}

impl Pair {
    /// Starts both.
    pub fn start() -> Pair {
        let our_server = Server::start(&[]);
        let oracle_server = oracle(&[]);
        let (ours, theirs) = (our_server.connect(), oracle_server.connect());
        Pair {
            our_server,
            oracle_server,
            ours,
            theirs,
            crash_log: String::new(),
        }
    }

    /// Whether the oracle has a command.
    pub fn oracle_knows(&mut self, command: &str) -> bool {
        let info = self.theirs.must(&format!("COMMAND INFO {command}"));
        matches!(info.items(), [Value::Array(_)])
    }

    /// The end of our server's log when it died last, if it has since this was asked.
    pub fn crash_log(&mut self) -> String {
        std::mem::take(&mut self.crash_log)
    }

    /// Empty databases, fresh connections; a server that died is restarted.
    fn reset(&mut self, protocol: u8) {
        self.revive();
        self.ours = self.our_server.connect();
        self.theirs = self.oracle_server.connect();
        let hello = format!("HELLO {protocol}");
        for conn in [&mut self.ours, &mut self.theirs] {
            conn.set_timeout(Duration::from_secs(20));
            for all in ["FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH"] {
                conn.must(all);
            }
            if protocol > 2 {
                conn.must(&hello);
            }
        }
    }

    fn revive(&mut self) {
        if !self.our_server.alive() {
            let log = self.our_server.log();
            let lines: Vec<&str> = log.lines().collect();
            self.crash_log = lines[lines.len().saturating_sub(15)..].join("\n");
            self.our_server.kill9();
            self.our_server.spawn();
        }
    }

    /// Runs the sequence on empty databases; the first difference, if any.
    pub fn run(&mut self, steps: &[Step], protocol: u8) -> Option<Difference> {
        self.reset(protocol);
        let difference = self.run_steps(steps);
        if difference.is_some() {
            // The process needs some time to end after a panic.
            wait_within(Duration::from_millis(50), || !self.our_server.alive());
            self.revive();
        }
        difference
    }

    fn run_steps(&mut self, steps: &[Step]) -> Option<Difference> {
        let mut start = 0;
        let mut expired = false;
        for (at, step) in steps.iter().enumerate() {
            expired |= step.kind == Kind::Short;
            let alone = step.kind == Kind::Iterate
                || matches!(step.kind, Kind::Pause(_))
                || judge(&step.args) == Judge::Random;
            if alone {
                if let Some(found) = self.pipeline(steps, start, at, expired) {
                    return Some(found);
                }
                start = at + 1;
                if let Some(found) = self.run_alone(step, at) {
                    return Some(found);
                }
            } else if step.flush {
                if let Some(found) = self.pipeline(steps, start, at + 1, expired) {
                    return Some(found);
                }
                start = at + 1;
            }
        }
        self.pipeline(steps, start, steps.len(), expired)
            .or_else(|| self.compare_state(steps.len()))
    }

    /// Sends `steps[from..to]` to both in one write each.
    fn pipeline(
        &mut self,
        steps: &[Step],
        from: usize,
        to: usize,
        expired: bool,
    ) -> Option<Difference> {
        let commands: Vec<Vec<Vec<u8>>> = steps[from..to]
            .iter()
            .map(|step| step.args.clone())
            .collect();
        let replies = self.both(&commands);
        for (offset, (ours, theirs)) in replies.iter().enumerate() {
            let command = &commands[offset];
            // DBSIZE counts expired keys until they are removed.
            let uncertain = expired && steps[from + offset].name() == "DBSIZE";
            if !uncertain && !agree(judge(command), command, ours, theirs) {
                let line = cli::line(command);
                return Some(Difference::new(from + offset, line, ours, theirs));
            }
        }
        None
    }

    /// What the oracle replies.
    pub fn ask(&mut self, line: &str) -> Value {
        self.theirs.must(line)
    }

    /// The replies of both.
    pub fn both(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<(Value, Value)> {
        let ours = self.ours.pipeline(commands);
        ours.into_iter().zip(self.ask_oracle(commands)).collect()
    }

    /// Redis 7.0 checks `errno` after SORT's `strtod`, but does not clear it before: an earlier
    /// stream ID that was out of range makes SORT fail. A ZADD XX before SORT clears `errno` and
    /// changes nothing.
    fn ask_oracle(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Value> {
        let clear = || ["ZADD", "errno", "XX", "1", "m"].map(|word| word.as_bytes().to_vec());
        let is_sort = |command: &[Vec<u8>]| {
            let name = command.first().map(Vec::as_slice).unwrap_or_default();
            name.eq_ignore_ascii_case(b"SORT") || name.eq_ignore_ascii_case(b"SORT_RO")
        };
        let (mut asked, mut wanted) = (Vec::new(), Vec::new());
        for command in commands {
            if is_sort(command) {
                asked.push(clear().to_vec());
                wanted.push(false);
            }
            asked.push(command.clone());
            wanted.push(true);
        }
        let replies = self.theirs.pipeline(&asked).into_iter().zip(wanted);
        replies
            .filter_map(|(reply, wanted)| wanted.then_some(reply))
            .collect()
    }

    fn run_alone(&mut self, step: &Step, at: usize) -> Option<Difference> {
        match step.kind {
            Kind::Pause(ms) => {
                let until = Instant::now() + Duration::from_millis(ms);
                wait_within(Duration::from_secs(1), || Instant::now() >= until);
                None
            }
            Kind::Iterate => {
                let ours = iterate(&mut self.ours, &step.args);
                let theirs = iterate(&mut self.theirs, &step.args);
                (!agree(Judge::Exact, &step.args, &ours, &theirs))
                    .then(|| Difference::new(at, cli::line(&step.args), &ours, &theirs))
            }
            Kind::Call | Kind::Short => self.run_random(&step.args, at),
        }
    }

    /// Runs a command with a random result: the shapes must agree, every element must exist, and
    /// none may repeat unless requested. Elements that SPOP removed on one side are then removed
    /// on the other too.
    fn run_random(&mut self, command: &[Vec<u8>], at: usize) -> Option<Difference> {
        let our_universe = universe(&mut self.ours, command);
        let their_universe = universe(&mut self.theirs, command);
        let ours = self.ours.call(command);
        let theirs = self.theirs.call(command);
        let differ = |ours, theirs| Some(Difference::new(at, cli::line(command), ours, theirs));
        let (Some(picked), Some(wanted)) = (
            units(command, &ours, our_universe.width),
            units(command, &theirs, their_universe.width),
        ) else {
            let same = agree(Judge::Exact, command, &ours, &theirs);
            return if same { None } else { differ(&ours, &theirs) };
        };
        let known = picked.iter().all(|unit| our_universe.units.contains(unit));
        let mut distinct = picked.clone();
        distinct.sort();
        distinct.dedup();
        let repeats = command.get(2).is_some_and(|count| count.starts_with(b"-"));
        let same_shape = std::mem::discriminant(&ours) == std::mem::discriminant(&theirs)
            && nesting(&ours) == nesting(&theirs);
        if !same_shape
            || !known
            || picked.len() != wanted.len()
            || (!repeats && distinct.len() != picked.len())
        {
            return differ(&ours, &theirs);
        }
        if command[0].eq_ignore_ascii_case(b"SPOP") {
            self.equalize(&command[1], &picked, &wanted);
        }
        None
    }

    /// Removes from each side what the other one popped.
    fn equalize(&mut self, key: &[u8], ours: &[Vec<Value>], theirs: &[Vec<Value>]) {
        let removal = |units: &[Vec<Value>]| {
            let mut command = vec![b"SREM".to_vec(), key.to_vec()];
            command.extend(units.iter().flatten().map(|unit| unit.bytes().to_vec()));
            command
        };
        if !theirs.is_empty() {
            self.ours.call(&removal(theirs));
        }
        if !ours.is_empty() {
            self.theirs.call(&removal(ours));
        }
    }

    fn compare_state(&mut self, at: usize) -> Option<Difference> {
        compare_state(&mut self.ours, &mut self.theirs, DATABASES, at)
    }
}

/// Compares all keys of both servers. DBSIZE is repeated for a while, because it counts
/// expired keys until they are removed.
pub fn compare_state(
    ours: &mut Conn,
    theirs: &mut Conn,
    databases: i64,
    at: usize,
) -> Option<Difference> {
    // The end of the sequence may have been within a transaction.
    for conn in [&mut *ours, &mut *theirs] {
        conn.cmd("DISCARD");
    }
    for db in 0..databases {
        let differ = |command: &[Vec<u8>], ours: &Value, theirs: &Value| {
            let line = format!("SELECT {db}, {}", cli::line(command));
            Some(Difference::new(at, line, ours, theirs))
        };
        let select = format!("SELECT {db}");
        let all_keys = args("KEYS *");
        let [our_keys, their_keys] = [&mut *ours, &mut *theirs].map(|conn| {
            conn.must(&select);
            conn.call(&all_keys)
        });
        if !agree(Judge::Unordered, &all_keys, &our_keys, &their_keys) {
            return differ(&all_keys, &our_keys, &their_keys);
        }
        let keys = their_keys.flat().unwrap_or_default();
        let commands: Vec<Vec<Vec<u8>>> = keys
            .iter()
            .flat_map(|key| content_of(theirs, key.bytes()))
            .collect();
        let replies = ours.pipeline(&commands).into_iter();
        let replies = replies.zip(theirs.pipeline(&commands));
        for (command, (ours, theirs)) in commands.iter().zip(replies) {
            if !agree(judge(command), command, &ours, &theirs) {
                return differ(command, &ours, &theirs);
            }
        }
        let mut sizes = (Value::Null, Value::Null);
        let equal = wait_within(Duration::from_secs(5), || {
            sizes = (ours.cmd("DBSIZE"), theirs.cmd("DBSIZE"));
            sizes.0 == sizes.1 || matches!(sizes.0, Value::Lost(_))
        });
        if !equal || matches!(sizes.0, Value::Lost(_)) {
            return differ(&args("DBSIZE"), &sizes.0, &sizes.1);
        }
    }
    None
}

/// The commands that read a whole key, by its type on the oracle.
fn content_of(oracle: &mut Conn, key: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let with_key = |before: &str, after: &str| {
        let mut command = args(before);
        command.push(key.to_vec());
        command.extend(args(after));
        command
    };
    let mut commands = vec![with_key("TYPE", ""), with_key("PTTL", "")];
    let kind = oracle.call(&with_key("TYPE", "")).text();
    let content: &[(&str, &str)] = match kind.as_str() {
        "string" => &[("GET", ""), ("STRLEN", "")],
        "hash" => &[("HGETALL", ""), ("HLEN", "")],
        "list" => &[("LRANGE", "0 -1"), ("LLEN", "")],
        "set" => &[("SMEMBERS", ""), ("SCARD", "")],
        "zset" => &[("ZRANGE", "0 -1 WITHSCORES"), ("ZCARD", "")],
        "stream" => &[
            ("XRANGE", "- +"),
            ("XINFO STREAM", "FULL COUNT 0"),
            ("XLEN", ""),
        ],
        // Of an oracle with RedisBloom.
        "MBbloom--" => &[("BF.INFO", ""), ("BF.SCANDUMP", "1")],
        "MBbloomCF" => &[("CF.INFO", ""), ("CF.SCANDUMP", "1")],
        "CMSk-TYPE" => &[("CMS.INFO", "")],
        "TDIS-TYPE" => &[("TDIGEST.MIN", ""), ("TDIGEST.MAX", "")],
        "TopK-TYPE" => &[("TOPK.LIST", "WITHCOUNT")],
        // It has expired meanwhile.
        "none" => &[],
        other => panic!("the oracle has a {other}"),
    };
    commands.extend(content.iter().map(|(name, rest)| with_key(name, rest)));
    if kind == "hash"
        && let fields = oracle.call(&with_key("HKEYS", ""))
        && !fields.items().is_empty()
    {
        let number = fields.items().len().to_string();
        let mut times = with_key("HPEXPIRETIME", &format!("FIELDS {number}"));
        times.extend(fields.items().iter().map(|field| field.bytes().to_vec()));
        // An older oracle does not know it.
        if matches!(oracle.call(&times), Value::Array(_)) {
            commands.push(times);
        }
    }
    commands
}

/// The elements that a random command may return, in units of one or two values.
struct Universe {
    units: Vec<Vec<Value>>,
    width: usize,
}

fn universe(conn: &mut Conn, command: &[Vec<u8>]) -> Universe {
    let name = String::from_utf8_lossy(&command[0]).to_uppercase();
    let paired = command.len() == 4;
    let key = command.get(1).cloned().unwrap_or_default();
    let (ask, width): (Vec<Vec<u8>>, usize) = match (name.as_str(), paired) {
        ("RANDOMKEY", _) => (args("KEYS *"), 1),
        ("HRANDFIELD", false) => (vec![b"HKEYS".to_vec(), key], 1),
        ("HRANDFIELD", true) => (vec![b"HGETALL".to_vec(), key], 2),
        ("ZRANDMEMBER", _) => {
            let mut ask = vec![b"ZRANGE".to_vec(), key, b"0".to_vec(), b"-1".to_vec()];
            if paired {
                ask.push(b"WITHSCORES".to_vec());
            }
            (ask, if paired { 2 } else { 1 })
        }
        _ => (vec![b"SMEMBERS".to_vec(), key], 1),
    };
    let units = match conn.call(&ask) {
        reply if reply.flat().is_some() => in_units(&reply, width),
        _ => Vec::new(),
    };
    Universe { units, width }
}

/// The returned units; `None` if the reply is an error, a null or lost.
fn units(command: &[Vec<u8>], reply: &Value, width: usize) -> Option<Vec<Vec<Value>>> {
    match reply {
        Value::Bulk(_) if command.len() <= 2 => Some(vec![vec![reply.clone()]]),
        Value::Array(_) | Value::Set(_) => Some(in_units(reply, width)),
        _ => None,
    }
}

fn in_units(reply: &Value, width: usize) -> Vec<Vec<Value>> {
    let mut leaves = Vec::new();
    flatten(reply, &mut leaves);
    leaves.chunks(width).map(|chunk| chunk.to_vec()).collect()
}

fn flatten(value: &Value, out: &mut Vec<Value>) {
    match value.flat() {
        Some(items) => items.iter().for_each(|item| flatten(item, out)),
        None => out.push(value.clone()),
    }
}

/// How deep a reply's arrays go.
fn nesting(value: &Value) -> usize {
    match value.flat() {
        Some(items) => 1 + items.first().map_or(0, nesting),
        None => 0,
    }
}

/// Follows a cursor to its end. Returns the distinct elements, sorted, or the first reply that
/// is not a page.
fn iterate(conn: &mut Conn, command: &[Vec<u8>]) -> Value {
    // SCAN has its cursor first, the others after the key.
    let at = if command[0].eq_ignore_ascii_case(b"SCAN") {
        1
    } else {
        2
    };
    let width = match command[0].to_ascii_uppercase().as_slice() {
        b"HSCAN" | b"ZSCAN" => 2,
        _ => 1,
    };
    let mut command = command.to_vec();
    let mut elements = Vec::new();
    for _ in 0..100_000 {
        let page = conn.call(&command);
        let Some([cursor, page]) = page.flat().and_then(|p| <[Value; 2]>::try_from(p).ok()) else {
            return page;
        };
        elements.extend(in_units(&page, width).into_iter().map(Value::Array));
        if cursor.bytes() == b"0" {
            elements.sort();
            elements.dedup();
            return Value::Array(elements);
        }
        command[at] = cursor.bytes().to_vec();
    }
    Value::Lost("the iteration does not end".into())
}
