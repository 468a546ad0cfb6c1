//! What a row of a command table says: name, arity, flags, where the keys are,
//! and the handler. Dispatch, locking, COMMAND and the manual's list read it.

use crate::commands::{CmdResult, ReadCtx, SessionCtx, WriteCtx};
use crate::encoding::ValueType;

bitflags::bitflags! {
    /// What dispatch must know of a command. Whether it reads or writes is said
    /// by its [`Handler`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// Constant or logarithmic time.
        const FAST = 1;
        /// Refused when memory is short.
        const DENYOOM = 1 << 1;
        /// Administrative.
        const ADMIN = 1 << 2;
        /// Not from scripts.
        const NOSCRIPT = 1 << 3;
        /// Allowed while data is being loaded.
        const LOADING = 1 << 4;
        /// Allowed on a replica without its master.
        const STALE = 1 << 5;
        /// Not shown to MONITOR.
        const SKIP_MONITOR = 1 << 6;
        /// Not in the slow log.
        const SKIP_SLOWLOG = 1 << 7;
        /// Allowed before authentication.
        const NO_AUTH = 1 << 8;
        /// Not inside MULTI.
        const NO_MULTI = 1 << 9;
        /// May be used while a script is busy.
        const ALLOW_BUSY = 1 << 10;
        /// No replacement for a loading replica.
        const NO_ASYNC_LOADING = 1 << 11;
        /// Publishes or subscribes.
        const PUBSUB = 1 << 12;
        /// May wait for other clients.
        const BLOCKING = 1 << 13;
        /// Writes only depending on its arguments (counts as a write for pauses).
        const MAY_REPLICATE = 1 << 14;
        /// Internal: keys are not where the specs say for all arguments.
        const MOVABLE_KEYS = 1 << 15;
        /// Kedis: concerns whole DBs, so runs while nobody else reads or writes keys.
        const EXCLUSIVE = 1 << 16;
        /// Kedis: slow by nature, so what is pending is committed before it starts.
        const SLOW = 1 << 17;
        /// Known to Sentinel.
        const SENTINEL = 1 << 18;
        /// Kedis: does not count as an access of its keys.
        const NO_TOUCH = 1 << 20;
        /// Kedis: what it answers are pushes, which CLIENT REPLY does not hold back.
        const PUSHES = 1 << 21;
        /// Kedis: allowed to subscribers that speak RESP2.
        const SUBSCRIBED = 1 << 22;
        /// Its arguments may name no key at all.
        const NO_MANDATORY_KEYS = 1 << 23;
        /// Runs on a node that imports the slot. Told to clients.
        const ASKING = 1 << 29;
        /// Kedis: walks over all keys of its DB, so runs on a worker if they are many.
        const WALKS = 1 << 24;
        /// Kedis: one command to clients, though its subcommands have rows of their own.
        const PLAIN = 1 << 25;
        /// Kedis: compiles a text, so runs on a worker.
        const COMPILES = 1 << 26;
    }

    /// What a command does with a key.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KeyFlags: u16 {
        /// Reads only.
        const RO = 1;
        /// Reads and writes.
        const RW = 1 << 1;
        /// Overwrites.
        const OW = 1 << 2;
        /// Removes.
        const RM = 1 << 3;
        /// Returns or copies the value.
        const ACCESS = 1 << 4;
        /// Changes the value depending on the old one.
        const UPDATE = 1 << 5;
        /// Adds data.
        const INSERT = 1 << 6;
        /// Deletes data.
        const DELETE = 1 << 7;
        /// Not a key, but routed as one.
        const NOT_KEY = 1 << 8;
        /// The spec may miss keys.
        const INCOMPLETE = 1 << 9;
        /// Depends on the arguments.
        const VARIABLE_FLAGS = 1 << 10;
    }
}

/// Where a key spec begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// At this index of the arguments (the name is index 0).
    Index(usize),
    /// After this word, looked for from this index on (negative: from the end, backwards).
    Keyword(&'static str, isize),
    /// Unknown.
    Unknown,
}

/// How the keys follow from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Find {
    /// Up to `last` (relative to the beginning; negative: from the end of the
    /// arguments), every `step`-th; `limit` as Redis has it.
    Range {
        /// Index of the last key.
        last: isize,
        /// Distance between keys.
        step: usize,
        /// 0 or 1: no limit; 2: the first half of what is left, and so on.
        limit: usize,
    },
    /// A number of keys stands at `at`, the keys from `first` on (both relative).
    KeyNum {
        /// Where the number is.
        at: usize,
        /// Where the first key is.
        first: usize,
        /// Distance between keys.
        step: usize,
    },
    /// Unknown.
    Unknown,
}

/// Where some of a command's keys are, and what it does with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpec {
    /// Where to begin.
    pub begin: Begin,
    /// How to go on.
    pub find: Find,
    /// What happens to the keys.
    pub flags: KeyFlags,
}

impl KeySpec {
    /// One key at an index.
    pub const fn at(index: usize, flags: KeyFlags) -> KeySpec {
        KeySpec::range(index, 0, 1, flags)
    }

    /// Keys from index `first` to `last` (relative to it, or negative from the
    /// end), every `step`-th.
    pub const fn range(first: usize, last: isize, step: usize, flags: KeyFlags) -> KeySpec {
        KeySpec {
            begin: Begin::Index(first),
            find: Find::Range {
                last,
                step,
                limit: 0,
            },
            flags,
        }
    }

    /// A number of keys at index `at`, the keys behind it.
    pub const fn numkeys(at: usize, flags: KeyFlags) -> KeySpec {
        KeySpec {
            begin: Begin::Index(at),
            find: Find::KeyNum {
                at: 0,
                first: 1,
                step: 1,
            },
            flags,
        }
    }

    /// One key after a word, looked for from index `from` on.
    pub const fn after(word: &'static str, from: isize, flags: KeyFlags) -> KeySpec {
        KeySpec {
            begin: Begin::Keyword(word, from),
            find: Find::Range {
                last: 0,
                step: 1,
                limit: 0,
            },
            flags,
        }
    }

    /// Keys that cannot be told from the arguments.
    pub const fn unknown(flags: KeyFlags) -> KeySpec {
        KeySpec {
            begin: Begin::Unknown,
            find: Find::Unknown,
            flags,
        }
    }

    /// Whether it stands for keys that the arguments do not name.
    pub const fn is_unknown(&self) -> bool {
        matches!(self.begin, Begin::Unknown)
    }

    /// Calls `each` with the index of every key; `None` if the arguments are
    /// not what the spec wants (a bad number of keys, a missing word).
    pub fn for_each(&self, args: &[&[u8]], mut each: impl FnMut(usize)) -> Option<()> {
        let argc = args.len();
        let begin = match self.begin {
            Begin::Index(index) => index,
            Begin::Keyword(word, from) => find_keyword(args, word, from)? + 1,
            Begin::Unknown => return Some(()),
        };
        let (first, last, step) = match self.find {
            Find::Range { last, step, limit } => {
                let last = match last {
                    0.. => begin + last.unsigned_abs(),
                    _ if limit <= 1 => argc.checked_sub(last.unsigned_abs())?,
                    _ => begin + (argc - begin.min(argc)) / limit - 1,
                };
                (begin, last, step)
            }
            Find::KeyNum { at, first, step } => {
                let count = crate::base::num::parse_i64(args.get(begin + at)?)?;
                let count = usize::try_from(count).ok().filter(|n| *n <= argc)?;
                if count == 0 {
                    return Some(());
                }
                let first = begin + first;
                (first, first + (count - 1) * step, step)
            }
            Find::Unknown => return Some(()),
        };
        if last >= argc || first > last {
            return None;
        }
        (first..=last).step_by(step.max(1)).for_each(&mut each);
        Some(())
    }
}

fn find_keyword(args: &[&[u8]], word: &str, from: isize) -> Option<usize> {
    let is_word = |i: &usize| args[*i].eq_ignore_ascii_case(word.as_bytes());
    match from {
        0.. => (from.unsigned_abs()..args.len()).find(is_word),
        _ => (1..=args.len().checked_sub(from.unsigned_abs())?)
            .rev()
            .find(is_word),
    }
}

/// Calls its second argument with the index of every key that no [`KeySpec`]
/// can say. Finds nothing in arguments that the handler will refuse.
pub type MoreKeys = fn(&[&[u8]], &mut dyn FnMut(usize));

/// What a command does, by what it may touch.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Reads keys.
    Read(fn(&mut ReadCtx<'_>, &[&[u8]]) -> CmdResult),
    /// Reads and writes keys.
    Write(fn(&mut WriteCtx<'_>, &[&[u8]]) -> CmdResult),
    /// Reads and perhaps writes keys, and may have to wait for them.
    Blocking(Blocking),
    /// Concerns the connection or the server, no keys.
    Session(fn(&mut SessionCtx<'_>, &[&[u8]]) -> CmdResult),
    /// Runs other commands, or decides when they run: see [`Own`].
    Own(Own),
    /// Has subcommands only.
    Container,
}

/// A command that may wait.
#[derive(Clone, Copy)]
pub struct Blocking {
    /// Tries once. It is run again, with the same arguments, whenever a key that
    /// it waits for is ready; then nobody looks at the timeout any more.
    pub run: fn(&mut WriteCtx<'_>, &[&[u8]]) -> Result<Attempt, crate::commands::Error>,
    /// Whether it writes keys when it does not wait.
    pub writes: bool,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The reply is written.
    Done,
    /// There is nothing yet, nothing is changed, no reply is written.
    Wait(Wait),
}

/// What a client waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Which arguments are the keys.
    pub keys: std::ops::Range<usize>,
    /// The type of value that must be there.
    pub kind: ValueType,
    /// For how long, in ms; 0: for ever.
    pub timeout_ms: u64,
    /// Whether it is tried again too when a key is gone or holds another type.
    pub minds_loss: bool,
    /// What is tried again in place of the command as it was given.
    pub request: Option<crate::state::request::Request>,
}

/// Commands that the executor itself carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// Queue what follows.
    Multi,
    /// Run the queue.
    Exec,
    /// Forget the queue.
    Discard,
    /// Make EXEC depend on keys.
    Watch,
    /// No longer.
    Unwatch,
    /// Run a script or function.
    Script(ScriptCall),
    /// Make keys, slice by slice.
    Populate,
}

/// The commands that run scripts and functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptCall {
    /// EVAL.
    Eval,
    /// EVALSHA.
    EvalSha,
    /// EVAL_RO.
    EvalRo,
    /// EVALSHA_RO.
    EvalShaRo,
    /// FCALL.
    Fcall,
    /// FCALL_RO.
    FcallRo,
}

impl ScriptCall {
    /// Whether it may not write.
    pub fn is_read_only(self) -> bool {
        use ScriptCall::{EvalRo, EvalShaRo, FcallRo};
        matches!(self, EvalRo | EvalShaRo | FcallRo)
    }

    /// Whether it runs a function.
    pub fn is_function(self) -> bool {
        matches!(self, ScriptCall::Fcall | ScriptCall::FcallRo)
    }
}

/// Finds in the arguments which DB besides the client's a command touches.
pub type OtherDb = fn(&[&[u8]]) -> Option<crate::storage::DbIndex>;

/// An argument stands in a row and in the binlog.
pub const USUAL_PLACES: usize = 2;

/// Says whether the argument at an index is a secret: see [`crate::commands::table::secrets`].
pub type IsSecret = fn(&[&[u8]], usize) -> bool;

/// To which group a command belongs, as COMMAND DOCS says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Any key.
    Generic,
    /// Strings.
    String,
    /// Bits of strings.
    Bitmap,
    /// HyperLogLogs.
    HyperLogLog,
    /// Hashes.
    Hash,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Streams.
    Stream,
    /// The connection.
    Connection,
    /// The server.
    Server,
    /// Transactions.
    Transactions,
    /// Publish and subscribe.
    PubSub,
    /// Scripts and functions.
    Scripting,
    /// Nodes of a cluster.
    Cluster,
}

impl Group {
    /// The name in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Transactions => "transactions",
            Group::PubSub => "pubsub",
            Group::Scripting => "scripting",
            Group::Cluster => "cluster",
        }
    }
}

/// Versions of Redis, and what changed for callers.
pub type History = &'static [(&'static str, &'static str)];

/// One row of a command table. Build it with [`Command::read`] and its sisters.
#[derive(Clone, Copy)]
pub struct Command {
    /// Lower case; of a subcommand: its own part.
    pub name: &'static str,
    /// Arguments with the name; negative: at least.
    pub arity: i16,
    /// See [`Flags`].
    pub flags: Flags,
    /// Its group.
    pub group: Group,
    /// The Redis version that had it first.
    pub since: &'static str,
    /// What it does, in a sentence of our own.
    pub summary: &'static str,
    /// Its arguments, in the notation of [`crate::commands::table::syntax`]; without the subcommand.
    pub syntax: &'static str,
    /// What it costs, where finding one row counts as O(1).
    pub complexity: &'static str,
    /// Since which version of Redis it does what.
    pub history: History,
    /// ACL categories that do not follow from group and flags, without `@`.
    pub categories: &'static [&'static str],
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// Finds keys that no spec can say.
    pub more_keys: Option<MoreKeys>,
    /// What runs.
    pub handler: Handler,
    /// Subcommands of a container.
    pub subcommands: &'static [Command],
    /// For commands that touch a second DB: which one, from the arguments. The
    /// keys are locked there too.
    pub other_db: Option<OtherDb>,
    /// For commands that are given secrets: which arguments are.
    pub secret: Option<IsSecret>,
    /// How often an argument may stand in what it writes, rows and binlog together.
    pub places: usize,
}

impl Command {
    const fn new(name: &'static str, arity: i16, handler: Handler) -> Command {
        Command {
            name,
            arity,
            flags: Flags::empty(),
            group: Group::Generic,
            since: "1.0.0",
            summary: "",
            syntax: "",
            complexity: "O(1)",
            history: &[],
            categories: &[],
            keys: &[],
            more_keys: None,
            handler,
            subcommands: &[],
            other_db: None,
            secret: None,
            places: USUAL_PLACES,
        }
    }

    /// A command that reads keys.
    pub const fn read(
        name: &'static str,
        arity: i16,
        run: fn(&mut ReadCtx<'_>, &[&[u8]]) -> CmdResult,
    ) -> Command {
        Command::new(name, arity, Handler::Read(run))
    }

    /// A command that writes keys.
    pub const fn write(
        name: &'static str,
        arity: i16,
        run: fn(&mut WriteCtx<'_>, &[&[u8]]) -> CmdResult,
    ) -> Command {
        Command::new(name, arity, Handler::Write(run))
    }

    /// A command that takes something from keys and may have to wait for it.
    pub const fn blocking(
        name: &'static str,
        arity: i16,
        run: fn(&mut WriteCtx<'_>, &[&[u8]]) -> Result<Attempt, crate::commands::Error>,
    ) -> Command {
        let blocking = Blocking { run, writes: true };
        Command::new(name, arity, Handler::Blocking(blocking))
    }

    /// A command that reads keys and may have to wait for something to read.
    pub(in crate::commands) const fn blocking_read(
        name: &'static str,
        arity: i16,
        run: fn(&mut WriteCtx<'_>, &[&[u8]]) -> Result<Attempt, crate::commands::Error>,
    ) -> Command {
        let blocking = Blocking { run, writes: false };
        Command::new(name, arity, Handler::Blocking(blocking))
    }

    /// A command about the connection or the server.
    pub const fn session(
        name: &'static str,
        arity: i16,
        run: fn(&mut SessionCtx<'_>, &[&[u8]]) -> CmdResult,
    ) -> Command {
        Command::new(name, arity, Handler::Session(run))
    }

    /// A command that the executor itself carries out.
    pub const fn own(name: &'static str, arity: i16, own: Own) -> Command {
        Command::new(name, arity, Handler::Own(own))
    }

    /// A command that has subcommands only.
    pub const fn container(
        name: &'static str,
        arity: i16,
        subcommands: &'static [Command],
    ) -> Command {
        let mut command = Command::new(name, arity, Handler::Container);
        command.complexity = "That of the subcommand";
        command.subcommands = subcommands;
        command
    }

    /// Adds subcommands to a command that also runs alone. One that is
    /// [`Flags::PLAIN`] runs for all that none of them takes.
    pub const fn subcommands(mut self, subcommands: &'static [Command]) -> Command {
        self.subcommands = subcommands;
        self
    }

    /// Sets the flags.
    pub const fn flags(mut self, flags: Flags) -> Command {
        self.flags = flags;
        self
    }

    /// Sets group, first version and summary.
    pub const fn doc(
        mut self,
        group: Group,
        since: &'static str,
        summary: &'static str,
    ) -> Command {
        self.group = group;
        self.since = since;
        self.summary = summary;
        self
    }

    /// Says which arguments it takes, in the notation of [`crate::commands::table::syntax`].
    pub const fn syntax(mut self, syntax: &'static str) -> Command {
        self.syntax = syntax;
        self
    }

    /// Says what it costs, if that is not O(1).
    pub const fn complexity(mut self, complexity: &'static str) -> Command {
        self.complexity = complexity;
        self
    }

    /// Says what came to it after its first version, oldest first.
    pub const fn history(mut self, history: History) -> Command {
        self.history = history;
        self
    }

    /// Says where the keys are.
    pub const fn keys(mut self, keys: &'static [KeySpec]) -> Command {
        self.keys = keys;
        self
    }

    /// Says which DB besides the client's the command touches.
    pub const fn other_db(mut self, other_db: OtherDb) -> Command {
        self.other_db = Some(other_db);
        self
    }

    /// Says how often an argument may stand in what it writes, if that is more than once in
    /// a row and once in the binlog.
    pub const fn places(mut self, places: usize) -> Command {
        self.places = places;
        self
    }

    /// Says which arguments are secrets.
    pub const fn secret(mut self, is_secret: IsSecret) -> Command {
        self.secret = Some(is_secret);
        self
    }

    /// Says where keys are that no spec can say.
    pub(in crate::commands) const fn more_keys(mut self, find: MoreKeys) -> Command {
        self.more_keys = Some(find);
        self
    }

    /// Adds ACL categories that do not follow from group and flags.
    pub(in crate::commands) const fn categories(
        mut self,
        categories: &'static [&'static str],
    ) -> Command {
        self.categories = categories;
        self
    }

    /// Whether this number of arguments (with the name) is right.
    pub fn takes(&self, argc: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity >= 0 {
            argc == arity
        } else {
            argc >= arity
        }
    }

    /// Whether it may change keys.
    pub fn is_write(&self) -> bool {
        match self.handler {
            Handler::Write(_) => true,
            Handler::Blocking(blocking) => blocking.writes,
            _ => false,
        }
    }

    /// Whether the executor carries it out, as this.
    pub fn is_own(&self, own: Own) -> bool {
        matches!(self.handler, Handler::Own(mine) if mine == own)
    }

    /// Whether its handler can touch keys.
    pub fn touches_keys(&self) -> bool {
        let handler = &self.handler;
        matches!(
            handler,
            Handler::Read(_)
                | Handler::Write(_)
                | Handler::Blocking(_)
                | Handler::Own(Own::Script(_))
        )
    }

    /// Whether it only reads keys.
    pub fn is_read(&self) -> bool {
        match self.handler {
            Handler::Read(_) => true,
            Handler::Blocking(blocking) => !blocking.writes,
            Handler::Own(Own::Script(call)) => call.is_read_only(),
            _ => false,
        }
    }

    /// Calls `each` with every key that the command may write.
    pub fn for_each_written_key<'a>(&self, args: &[&'a [u8]], mut each: impl FnMut(&'a [u8])) {
        let written = KeyFlags::RW | KeyFlags::OW | KeyFlags::RM;
        for spec in self.keys.iter().filter(|s| s.flags.intersects(written)) {
            // Arguments without keys where the spec wants them have been refused.
            let _ = spec.for_each(args, |i| each(args[i]));
        }
        if let Some(find) = self.more_keys {
            find(args, &mut |i| each(args[i]));
        }
    }

    /// The indices of all keys in `args`, in order of the specs; `None` if the
    /// arguments are not what a spec wants.
    pub fn key_indices(&self, args: &[&[u8]]) -> Option<smallvec::SmallVec<[usize; 8]>> {
        let mut indices = smallvec::SmallVec::new();
        for spec in self.keys {
            let found = spec.for_each(args, |i| indices.push(i));
            // What an incomplete spec looks for need not be there.
            if found.is_none() && !spec.flags.contains(KeyFlags::INCOMPLETE) {
                return None;
            }
        }
        if let Some(find) = self.more_keys {
            find(args, &mut |i| indices.push(i));
        }
        Some(indices)
    }
}
