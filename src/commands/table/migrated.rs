//! What the migration tools make of a command that comes in the stream of a source. The
//! target may have other DBs, other names of keys (`--rename-prefix`) and a part of the
//! keys only (`--prefix`).

use crate::base::time::UnixMs;

/// What a command of the stream is at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrated {
    /// The command, with the names that its keys have at the target.
    Keys(Part),
    /// The command, with the new name of its key and its time to live as a Unix time.
    Expiring(TtlPlace),
    /// A SET for each key that is copied, with the time to live as a Unix time: MSETEX.
    ExpiringPairs,
    /// The commands that make the value of its payload: RESTORE.
    Payload,
    /// A copy of a key, perhaps in another DB: COPY.
    CopiedKey,
    /// A key goes to another DB: MOVE.
    MovedKey,
    /// All keys of the DB go away: FLUSHDB.
    ClearedDb,
    /// All keys of all DBs go away: FLUSHALL.
    ClearedDbs,
    /// Two DBs change places: SWAPDB.
    SwappedDbs,
    /// The same command: a message, which concerns no DB.
    Message,
    /// The same command if all DBs and all keys are copied, else nothing: scripts and
    /// functions belong to all DBs.
    Script,
    /// Nothing: it changes no data.
    Nothing,
}

/// What a command does to the keys that are copied, when only some of its keys are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It cannot be told without the other keys: an error if it writes to a copied one.
    NeedsAll,
    /// The same with fewer keys: DEL.
    FewerKeys,
    /// MSET with fewer pairs of key and value.
    FewerPairs,
    /// JSON.MSET with fewer triplets of key, path and value.
    FewerTriplets,
    /// The first key goes away, if it is the copied one: RENAME.
    Renamed,
    /// A member is removed from the first key or added to the second one: SMOVE.
    MovedMember,
    /// An element is removed from the first key: RPOPLPUSH, LMOVE.
    MovedElement(PopEnd),
    /// As many elements are removed from the first key as the number at this index says, one
    /// without it: LMOVEM.
    MovedElements(PopEnd, usize),
}

/// From which end of a list an element is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PopEnd {
    /// The tail.
    Right,
    /// The end that the argument of this index names.
    Named(usize),
}

/// Where a command has its time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TtlPlace {
    /// Behind the key: EXPIRE, PEXPIREAT.
    BehindKey(Time),
    /// Between key and value: SETEX.
    BeforeValue(Time),
    /// In an option behind key and value: SET.
    Option,
}

/// How a time to live is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Seconds from now on.
    Seconds,
    /// Milliseconds from now on.
    Milliseconds,
    /// A Unix time in seconds.
    UnixSeconds,
    /// A Unix time in milliseconds.
    UnixMilliseconds,
}

impl Time {
    /// How an option of SET gives the time, if this word is such an option.
    pub fn of_option(word: &[u8]) -> Option<Time> {
        let options = [
            ("EX", Time::Seconds),
            ("PX", Time::Milliseconds),
            ("EXAT", Time::UnixSeconds),
            ("PXAT", Time::UnixMilliseconds),
        ];
        let found = options
            .iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, time)| *time)
    }

    /// The point in time that `n` means at `now_ms`.
    pub fn at_ms(self, n: u64, now_ms: UnixMs) -> UnixMs {
        match self {
            Time::Seconds => now_ms + n.saturating_mul(1000),
            Time::Milliseconds => now_ms + n,
            Time::UnixSeconds => UnixMs(n.saturating_mul(1000)),
            Time::UnixMilliseconds => UnixMs(n),
        }
    }
}
