//! The row of a command: all that the server knows of the command stands in it. No code
//! looks for a command by its name to find out something about it.
//!
//! A row is built in the table of its family from a constructor, which says what runs
//! ([`Command::read`], [`Command::write`] and so on), and from methods for what is not as
//! it usually is.

use super::keys::{Begin, Find, KeyFlags, KeySpec, Keys, MoreKeys};
use super::migrated::{Migrated, Part};
use super::tips::Tip;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::commands::ahead::Make;
use crate::commands::{CmdResult, ReadCtx, SessionCtx, WriteCtx};
use crate::encoding::ValueType;
use crate::storage::DbIndex;
use smallvec::SmallVec;

bitflags::bitflags! {
    /// What the dispatcher and clients have to know of a command. The [`Handler`] says
    /// whether the command reads or writes.
    ///
    /// Those marked "Kedis" are for this server alone; COMMAND INFO does not tell them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// Takes constant or logarithmic time.
        const FAST = 1;
        /// Refused when memory is short.
        const DENYOOM = 1 << 1;
        /// Administers the server.
        const ADMIN = 1 << 2;
        /// Refused in scripts.
        const NOSCRIPT = 1 << 3;
        /// Allowed while data is loaded.
        const LOADING = 1 << 4;
        /// Allowed on a replica that has lost its master and serves no stale data.
        const STALE = 1 << 5;
        /// Not shown to MONITOR.
        const SKIP_MONITOR = 1 << 6;
        /// Not in the slow log.
        const SKIP_SLOWLOG = 1 << 7;
        /// Allowed before authentication.
        const NO_AUTH = 1 << 8;
        /// Refused inside MULTI.
        const NO_MULTI = 1 << 9;
        /// Allowed while a slow script runs.
        const ALLOW_BUSY = 1 << 10;
        /// Refused while a replica loads a data set and serves the one before.
        const NO_ASYNC_LOADING = 1 << 11;
        /// Publishes or subscribes.
        const PUBSUB = 1 << 12;
        /// May wait for other clients.
        const BLOCKING = 1 << 13;
        /// May cause writes, though it writes no keys itself. CLIENT PAUSE WRITE holds it
        /// back.
        const MAY_REPLICATE = 1 << 14;
        /// Some of its keys are not where the first key, last key and step of COMMAND say.
        /// COMMAND derives it from the key specs.
        const MOVABLE_KEYS = 1 << 15;
        /// Kedis: concerns whole DBs, so it runs while no other thread reads or writes keys.
        const EXCLUSIVE = 1 << 16;
        /// Kedis: usually takes long, so the writes of the commands before are committed
        /// first.
        const SLOW = 1 << 17;
        /// Known to Sentinel.
        const SENTINEL = 1 << 18;
        /// Kedis: counts as an access of its keys even for a client that asked for none with
        /// CLIENT NO-TOUCH.
        const TOUCHES = 1 << 19;
        /// Kedis: does not count as an access of its keys.
        const NO_TOUCH = 1 << 20;
        /// Kedis: answers with pushes, which CLIENT REPLY does not hold back.
        const PUSHES = 1 << 21;
        /// Kedis: allowed to subscribers that speak RESP2.
        const SUBSCRIBED = 1 << 22;
        /// Its arguments may name no key at all.
        const NO_MANDATORY_KEYS = 1 << 23;
        /// Kedis: walks over all keys of its DB, so it runs on a worker if they are many.
        const WALKS = 1 << 24;
        /// Kedis: one command to clients, though its subcommands have rows of their own.
        const PLAIN = 1 << 25;
        /// Kedis: runs on a worker, because it compiles a script, waits for the disk in other ways
        /// than by looking rows up, or has listeners look up rows when it is done.
        const ON_WORKER = 1 << 26;
        /// Kedis: CLIENT CACHING holds for the command after it, not for this one.
        const KEEPS_CACHING = 1 << 27;
        /// Kedis: writes no key, but a Redis before 7.0 sends it to its replicas.
        const PROPAGATED = 1 << 28;
        /// Runs on a cluster node that imports the slot.
        const ASKING = 1 << 29;
        /// Kedis: takes long for a client that has subscribed to very many names or prefixes.
        const COUNTS_NAMES = 1 << 30;
        /// Kedis: parses its arguments, so they count as read: it runs on a worker if they are long.
        const PARSES = 1 << 31;
    }
}

/// What runs for a command. The kind of handler decides what it may touch.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Reads keys.
    Read(fn(&mut ReadCtx<'_>, &[&[u8]]) -> CmdResult),
    /// Reads and writes keys.
    Write(fn(&mut WriteCtx<'_>, &[&[u8]]) -> CmdResult),
    /// Reads and perhaps writes keys, and may have to wait for them.
    Blocking(Blocking),
    /// Concerns the connection or the server, and no keys.
    Session(fn(&mut SessionCtx<'_>, &[&[u8]]) -> CmdResult),
    /// Carried out by the executor: see [`Own`].
    Own(Own),
    /// None: the command has subcommands only.
    Container,
}

/// The handler of a command that may wait.
#[derive(Clone, Copy)]
pub struct Blocking {
    /// Tries once. It runs again, with the same arguments, whenever a key that it waits for
    /// is ready; the timeout counts from the first time.
    pub run: fn(&mut WriteCtx<'_>, &[&[u8]]) -> Result<Attempt, crate::commands::Error>,
    /// Whether the command writes keys.
    pub writes: bool,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The reply is written.
    Done,
    /// The client has to wait: nothing is changed, and no reply is written.
    Wait(Wait),
}

/// What a client waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Indices of the arguments that are the keys.
    pub keys: std::ops::Range<usize>,
    /// The type of value that has to be at one of them.
    pub kind: ValueType,
    /// The longest wait in ms; 0: no limit.
    pub timeout_ms: u64,
    /// Whether the command is also tried again when a key is gone or holds another type.
    pub minds_loss: bool,
    /// When the command is tried again although no key has changed, in Unix ms.
    pub retry_ms: Option<UnixMs>,
    /// The request that is tried again, if it is not the one that came.
    pub request: Option<crate::state::request::Request>,
}

/// The commands that the executor carries out itself: they run other commands, or decide
/// when those run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// MULTI: queues the requests that follow.
    Multi,
    /// EXEC: runs the queue.
    Exec,
    /// DISCARD: forgets the queue.
    Discard,
    /// WATCH: EXEC fails if one of the keys has changed.
    Watch,
    /// UNWATCH: EXEC depends on no keys any more.
    Unwatch,
    /// Runs a script or a function.
    Script(ScriptCall),
    /// DEBUG POPULATE: makes many keys, some in each step.
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

/// Finds in the arguments the DBs besides the client's; the command touches the last one.
pub type OtherDbs = fn(&[&[u8]]) -> SmallVec<[DbIndex; 2]>;

/// Which DBs the arguments of a command name.
#[derive(Clone, Copy)]
pub enum Dbs {
    /// None: the command concerns the client's DB, or all.
    None,
    /// The client's DB from now on: SELECT.
    Selected,
    /// Two that change places: SWAPDB.
    Swapped,
    /// None, and all are concerned: FLUSHALL.
    All,
    /// A second DB with the same keys, which are locked there too: COPY, MOVE.
    Second(OtherDbs),
}

/// Which arguments of a command are channels, for which its user needs permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    /// None, or it only leaves them.
    None,
    /// The first.
    First,
    /// All.
    All,
    /// All, as patterns.
    Patterns,
}

/// Which arguments of a command are secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secret {
    /// None.
    None,
    /// Every argument from this index on.
    From(usize),
    /// Names of users, so many from this index on, and everything behind them. The audit log
    /// shows the names, as Redis' logs do not.
    Users {
        /// Index of the first name.
        first: usize,
        /// How many arguments are names at most.
        names: usize,
    },
    /// The values of some options.
    Options {
        /// Index of the first option.
        first: usize,
        /// Arguments before the first option that may be any word, and that a number follows.
        names: &'static [usize],
        /// The words that a secret follows, and how many arguments behind each are secret.
        words: &'static [(&'static str, usize)],
        /// The word that ends the options. Behind it there are names, if there was a secret
        /// before; if not, the secret may follow by mistake.
        end: Option<&'static str>,
    },
    /// The values of parameters that the configuration keeps secret, in pairs of name and
    /// value from this index on.
    Parameters(usize),
    /// A command from this index on, with its own secrets.
    Command(usize),
}

/// How often an argument usually stands in what a command writes: in a row and in the binlog.
pub const USUAL_PLACES: usize = 2;

/// A better command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deprecated {
    /// The version of Redis that has deprecated the command.
    pub since: &'static str,
    /// What to call in its place, in Markdown.
    pub replaced_by: &'static str,
}

/// The group of a command, as COMMAND DOCS says it.
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
    /// Sorted sets of positions.
    Geo,
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
    /// Sorted ints.
    SortedInt,
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
    /// Bloom filters.
    Bloom,
    /// Cuckoo filters.
    Cuckoo,
    /// Count-min sketches.
    Sketch,
    /// Most frequent items.
    TopK,
    /// t-digests.
    TDigest,
    /// JSON documents.
    Json,
}

impl Group {
    /// The name in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::Geo => "geo",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::SortedInt => "sortedint",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Transactions => "transactions",
            Group::PubSub => "pubsub",
            Group::Scripting => "scripting",
            Group::Cluster => "cluster",
            Group::Bloom | Group::Cuckoo | Group::Sketch | Group::TopK | Group::TDigest => "module",
            Group::Json => "json",
        }
    }
}

/// Versions of Redis and what changed for clients, oldest first.
pub type History = &'static [(&'static str, &'static str)];

/// The row of a command.
#[derive(Clone, Copy)]
pub struct Command {
    /// The name in lower case; of a subcommand, the part behind the `|`.
    pub name: &'static str,
    /// The number of arguments with the name; negative: at least so many.
    pub arity: i16,
    /// See [`Flags`].
    pub flags: Flags,
    /// See [`Group`].
    pub group: Group,
    /// The first version of Redis that has the command.
    pub since: &'static str,
    /// What the command does, in one sentence.
    pub summary: &'static str,
    /// The arguments behind the name, in the notation of [`super::syntax`].
    pub syntax: &'static str,
    /// What the command costs, where finding one row counts as O(1).
    pub complexity: &'static str,
    /// What changed in which version.
    pub history: History,
    /// Whether there is a better command.
    pub deprecated: Option<Deprecated>,
    /// Whether the command is for servers and their developers only.
    pub is_internal: bool,
    /// What proxies have to know.
    pub tips: &'static [Tip],
    /// ACL categories that do not follow from group and flags, without `@`.
    pub categories: &'static [&'static str],
    /// Where the keys are.
    pub keys: &'static [KeySpec],
    /// Finds the keys that no spec can find.
    pub more_keys: Option<MoreKeys>,
    /// What runs.
    pub handler: Handler,
    /// Subcommands of a container.
    pub subcommands: &'static [Command],
    /// Which DBs the arguments name.
    pub dbs: Dbs,
    /// Which arguments are channels.
    pub channels: Channels,
    /// Which arguments are secrets.
    pub secret: Secret,
    /// The first argument, if there is one, from which on arguments may name keys or hold data that
    /// no key spec finds.
    pub data_from: Option<usize>,
    /// How often an argument may stand in what the command writes, rows and binlog together.
    pub places: usize,
    /// What the migration tools make of the command.
    pub migrated: Migrated,
    /// What is made before the command has its locks; only for exclusive ones.
    pub ahead: Option<Make>,
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
            deprecated: None,
            is_internal: false,
            tips: &[],
            categories: &[],
            keys: &[],
            more_keys: None,
            handler,
            subcommands: &[],
            dbs: Dbs::None,
            channels: Channels::None,
            secret: Secret::None,
            data_from: None,
            places: USUAL_PLACES,
            migrated: Migrated::Keys(Part::NeedsAll),
            ahead: None,
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

    /// A command that takes an element from one of its keys and may have to wait for one.
    pub const fn blocking(
        name: &'static str,
        arity: i16,
        run: fn(&mut WriteCtx<'_>, &[&[u8]]) -> Result<Attempt, crate::commands::Error>,
    ) -> Command {
        let blocking = Blocking { run, writes: true };
        Command::new(name, arity, Handler::Blocking(blocking))
    }

    /// A command that reads its keys and may have to wait for something to read.
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

    /// Adds subcommands to a command that also runs without one. A [`Flags::PLAIN`] command
    /// runs too if its first argument is no subcommand.
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

    /// Sets the arguments behind the name, in the notation of [`super::syntax`].
    pub const fn syntax(mut self, syntax: &'static str) -> Command {
        self.syntax = syntax;
        self
    }

    /// Sets what the command costs, if that is not O(1).
    pub(in crate::commands) const fn complexity(mut self, complexity: &'static str) -> Command {
        self.complexity = complexity;
        self
    }

    /// Sets what changed after the first version, oldest first.
    pub const fn history(mut self, history: History) -> Command {
        self.history = history;
        self
    }

    /// Names the better command, in Markdown, and the version of Redis that said so.
    pub(in crate::commands) const fn deprecated(
        mut self,
        since: &'static str,
        replaced_by: &'static str,
    ) -> Command {
        self.deprecated = Some(Deprecated { since, replaced_by });
        self
    }

    /// Marks a command that is for servers and their developers only.
    pub const fn internal(mut self) -> Command {
        self.is_internal = true;
        self
    }

    /// Sets the tips of COMMAND INFO, in the order of its reply.
    pub(in crate::commands) const fn tips(mut self, tips: &'static [Tip]) -> Command {
        self.tips = tips;
        self
    }

    /// Sets where the keys are.
    pub const fn keys(mut self, keys: &'static [KeySpec]) -> Command {
        self.keys = keys;
        self
    }

    /// Sets which DBs the arguments name.
    pub const fn dbs(mut self, dbs: Dbs) -> Command {
        self.dbs = dbs;
        self
    }

    /// Sets which arguments are channels.
    pub(in crate::commands) const fn channels(mut self, channels: Channels) -> Command {
        self.channels = channels;
        self
    }

    /// Sets how often an argument may stand in what the command writes, if that is more than
    /// once in a row and once in the binlog.
    pub const fn places(mut self, places: usize) -> Command {
        self.places = places;
        self
    }

    /// Sets what is made before the command has its locks.
    pub(in crate::commands) const fn ahead(mut self, make: Make) -> Command {
        self.ahead = Some(make);
        self
    }

    /// Sets which arguments are secrets.
    pub const fn secret(mut self, secret: Secret) -> Command {
        self.secret = secret;
        self
    }

    /// Sets from which argument on the audit log leaves arguments out, if it is to have no names of
    /// keys. That of a command with key specs leaves them out in any case.
    pub(in crate::commands) const fn data_from(mut self, first: usize) -> Command {
        self.data_from = Some(first);
        self
    }

    /// Sets what finds the keys that no spec can find.
    pub(in crate::commands) const fn more_keys(mut self, find: MoreKeys) -> Command {
        self.more_keys = Some(find);
        self
    }

    /// Sets what the migration tools make of the command, if it is more than other names of
    /// its keys.
    pub const fn migrated(mut self, migrated: Migrated) -> Command {
        self.migrated = migrated;
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

    /// Whether the command takes this number of arguments, its name included.
    pub fn takes(&self, argc: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity >= 0 {
            argc == arity
        } else {
            argc >= arity
        }
    }

    /// Whether the command administers the server, or concerns whole DBs or all libraries.
    pub fn is_administrative(&self) -> bool {
        self.flags.intersects(Flags::ADMIN.union(Flags::EXCLUSIVE))
    }

    /// Whether the command may change keys.
    pub fn is_write(&self) -> bool {
        match self.handler {
            Handler::Write(_) => true,
            Handler::Blocking(blocking) => blocking.writes,
            _ => false,
        }
    }

    /// Whether the executor carries the command out as `own`.
    pub fn is_own(&self, own: Own) -> bool {
        matches!(self.handler, Handler::Own(mine) if mine == own)
    }

    /// Whether the command can touch keys.
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

    /// Whether the command reads keys and never changes any.
    pub fn is_read(&self) -> bool {
        match self.handler {
            Handler::Read(_) => true,
            Handler::Blocking(blocking) => !blocking.writes,
            Handler::Own(Own::Script(call)) => call.is_read_only(),
            _ => false,
        }
    }

    /// The DB besides the client's that the command touches.
    pub fn other_db(&self, args: &[&[u8]]) -> Option<DbIndex> {
        match self.dbs {
            Dbs::Second(other_dbs) => other_dbs(args).last().copied(),
            Dbs::None | Dbs::All | Dbs::Selected | Dbs::Swapped => None,
        }
    }

    /// All DBs that the arguments name. Numbers that are too high for any DB are left out.
    pub fn named_dbs(&self, args: &[&[u8]]) -> SmallVec<[DbIndex; 2]> {
        let number = |arg: &&[u8]| u16::try_from(num::parse_i64(arg)?).ok();
        match self.dbs {
            Dbs::None | Dbs::All => SmallVec::new(),
            Dbs::Selected | Dbs::Swapped => {
                let numbers = args.iter().skip(1).filter_map(number);
                numbers.map(DbIndex).collect()
            }
            Dbs::Second(other_dbs) => other_dbs(args),
        }
    }

    /// Calls `each` with every key that the command may write.
    pub fn for_each_written_key<'a>(&self, args: &[&'a [u8]], mut each: impl FnMut(&'a [u8])) {
        let written = KeyFlags::RW | KeyFlags::OW | KeyFlags::RM;
        for spec in self.keys.iter().filter(|s| s.flags.intersects(written)) {
            // Arguments that do not fit the spec have been refused.
            let _ = spec.for_each(args, |i| each(args[i]));
        }
        if let Some(find) = self.more_keys {
            find(args, &mut |i| each(args[i]));
        }
    }

    /// The index of the only key, and what the command does with it, if neither depends on the
    /// arguments: most commands are of this kind.
    #[inline]
    pub(in crate::commands) fn only_key(&self) -> Option<(usize, KeyFlags)> {
        match self.keys {
            [
                KeySpec {
                    begin: Begin::Index(at),
                    find: Find::Range { last: 0, .. },
                    flags,
                    flags_of: None,
                    begin_of: None,
                },
            ] if self.more_keys.is_none() => Some((*at, *flags - KeyFlags::INCOMPLETE)),
            _ => None,
        }
    }

    /// Finds the keys that the command uses with these arguments, and what it does with each.
    /// `None` if the arguments do not fit a spec; the keys of the specs before it are found.
    pub(in crate::commands) fn find_keys(&self, args: &[&[u8]], keys: &mut Keys) -> Option<()> {
        let mut stored: Option<std::ops::Range<usize>> = None;
        for spec in self.keys {
            let flags = spec.flags_with(args);
            let before = keys.len();
            let found = spec.for_each(args, |index| keys.push((index, flags)));
            if matches!(spec.find, Find::KeyNum { .. }) && keys.len() == before {
                return None;
            }
            // The keyword that introduces keys is optional.
            let introduced = matches!(spec.begin, Begin::Keyword(..));
            if found.is_none() && !introduced {
                return None;
            }
            if introduced {
                stored = Some(stored.map_or(before, |range| range.start)..keys.len());
            }
            if introduced && keys.len() > before && spec.flags.contains(KeyFlags::INCOMPLETE) {
                // MIGRATE: keys after KEYS replace the single key argument.
                keys.drain(..before);
            }
        }
        // Keys that only a function finds are destinations (SORT's STORE). One that is named
        // last takes the place of those behind words of specs (GEORADIUS' STORE).
        if let Some(find) = self.more_keys {
            let mut last = Keys::new();
            find(args, &mut |index| {
                last.push((index, KeyFlags::OW | KeyFlags::UPDATE));
            });
            if let Some(stored) = stored.filter(|_| !last.is_empty()) {
                keys.drain(stored);
            }
            keys.append(&mut last);
        }
        Some(())
    }

    /// Whether each call with enough arguments names a key.
    pub fn always_has_keys(&self) -> bool {
        let is_there = |spec: &KeySpec| {
            matches!(spec.begin, Begin::Index(_)) && matches!(spec.find, Find::Range { .. })
        };
        self.keys.iter().any(is_there)
    }

    /// The indices of all keys in `args`, in the order of the specs. `None` if the arguments
    /// do not fit a spec.
    pub fn key_indices(&self, args: &[&[u8]]) -> Option<SmallVec<[usize; 8]>> {
        let mut indices = SmallVec::new();
        for spec in self.keys {
            let found = spec.for_each(args, |i| indices.push(i));
            // The word that introduces keys may be missing.
            if found.is_none() && !matches!(spec.begin, Begin::Keyword(..)) {
                return None;
            }
        }
        if let Some(find) = self.more_keys {
            find(args, &mut |i| indices.push(i));
        }
        Some(indices)
    }
}
