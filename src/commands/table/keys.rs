//! Key specs: where the keys of a command stand among its arguments, and what the command
//! does with them. Locking, COMMAND, ACL rules and the migration tools read them.

use smallvec::SmallVec;

bitflags::bitflags! {
    /// What a command does with a key, as COMMAND INFO says it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KeyFlags: u16 {
        /// Reads the value.
        const RO = 1;
        /// Reads and writes the value.
        const RW = 1 << 1;
        /// Overwrites the value without reading it.
        const OW = 1 << 2;
        /// Removes the key.
        const RM = 1 << 3;
        /// Returns, copies or compares data of the value.
        const ACCESS = 1 << 4;
        /// Changes the value; the new one may depend on the old one.
        const UPDATE = 1 << 5;
        /// Adds data, and neither changes nor removes any.
        const INSERT = 1 << 6;
        /// Removes data of the value.
        const DELETE = 1 << 7;
        /// Not a key, but sent to the cluster node of its slot as if it were one.
        const NOT_KEY = 1 << 8;
        /// The spec may miss keys.
        const INCOMPLETE = 1 << 9;
        /// The flags depend on the arguments: see [`KeySpec::varying`].
        const VARIABLE_FLAGS = 1 << 10;
        /// Kedis: all keys that begin with it are meant. COMMAND INFO does not tell it.
        const PREFIX = 1 << 11;
    }
}

/// Where the keys of a spec begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// At this index of the arguments; the command's name is index 0.
    Index(usize),
    /// Behind this word. The search starts at this index and goes up; a negative index
    /// counts from the end, and the search goes down.
    Keyword(&'static str, isize),
    /// The arguments do not say.
    Unknown,
}

/// Which of the arguments from [`Begin`] on are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Find {
    /// Each `step`-th argument up to `last`, which is relative to the beginning, or
    /// negative: relative to the end of the arguments.
    Range {
        /// Index of the last key.
        last: isize,
        /// Distance between keys.
        step: usize,
        /// 0 or 1: no limit. N: the keys are in the first N-th part of the arguments.
        limit: usize,
    },
    /// As many as an argument says.
    KeyNum {
        /// Index of the number of keys, relative to the beginning.
        at: usize,
        /// Index of the first key, relative to the beginning.
        first: usize,
        /// Distance between keys.
        step: usize,
    },
    /// The arguments do not say.
    Unknown,
}

/// Computes from the arguments what a command does with the keys of a spec.
pub type FlagsOf = fn(&[&[u8]]) -> KeyFlags;

/// Computes from the arguments the index of the first key of a spec.
pub type BeginOf = fn(&[&[u8]]) -> Option<usize>;

/// Where some of a command's keys are, and what it does with them.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    /// Where the keys begin.
    pub begin: Begin,
    /// Which arguments from there on are keys.
    pub find: Find,
    /// What happens to the keys, as COMMAND INFO says it.
    pub flags: KeyFlags,
    /// For [`KeyFlags::VARIABLE_FLAGS`]: what happens to the keys with certain arguments.
    pub flags_of: Option<FlagsOf>,
    /// Where the keys begin, if the word of [`Begin::Keyword`] may also stand elsewhere.
    pub begin_of: Option<BeginOf>,
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
            flags_of: None,
            begin_of: None,
        }
    }

    /// The number of keys at index `at`, and the keys behind it.
    pub(in crate::commands) const fn numkeys(at: usize, flags: KeyFlags) -> KeySpec {
        KeySpec {
            begin: Begin::Index(at),
            find: Find::KeyNum {
                at: 0,
                first: 1,
                step: 1,
            },
            flags,
            flags_of: None,
            begin_of: None,
        }
    }

    /// The number of keys at index `at`, and the keys behind it, each with a value.
    pub(in crate::commands) const fn numpairs(at: usize, flags: KeyFlags) -> KeySpec {
        let mut spec = KeySpec::numkeys(at, flags);
        spec.find = Find::KeyNum {
            at: 0,
            first: 1,
            step: 2,
        };
        spec
    }

    /// One key behind a word, which is searched from index `from` on.
    pub const fn after(word: &'static str, from: isize, flags: KeyFlags) -> KeySpec {
        KeySpec {
            begin: Begin::Keyword(word, from),
            find: Find::Range {
                last: 0,
                step: 1,
                limit: 0,
            },
            flags,
            flags_of: None,
            begin_of: None,
        }
    }

    /// Keys that the arguments do not name.
    pub const fn unknown(flags: KeyFlags) -> KeySpec {
        KeySpec {
            begin: Begin::Unknown,
            find: Find::Unknown,
            flags,
            flags_of: None,
            begin_of: None,
        }
    }

    /// The same spec for a command that does not always do the same with its keys: COMMAND
    /// INFO says of them all that it may do.
    pub(in crate::commands) const fn varying(mut self, flags_of: FlagsOf) -> KeySpec {
        self.flags = self.flags.union(KeyFlags::VARIABLE_FLAGS);
        self.flags_of = Some(flags_of);
        self
    }

    /// What the command does with the keys, given these arguments.
    pub(in crate::commands) fn flags_with(&self, args: &[&[u8]]) -> KeyFlags {
        match self.flags_of {
            Some(flags_of) => flags_of(args),
            // That the spec may miss keys says nothing of those that it finds.
            None => self.flags - KeyFlags::INCOMPLETE,
        }
    }

    /// Whether the arguments do not name its keys.
    pub const fn is_unknown(&self) -> bool {
        matches!(self.begin, Begin::Unknown)
    }

    /// Calls `each` with the index of every key. Returns `None` if the arguments do not fit
    /// the spec (a bad number of keys, a missing word).
    pub fn for_each(&self, args: &[&[u8]], mut each: impl FnMut(usize)) -> Option<()> {
        let argc = args.len();
        let begin = match self.begin {
            _ if self.begin_of.is_some() => self.begin_of.and_then(|begin_of| begin_of(args))?,
            Begin::Index(index) => index,
            Begin::Keyword(word, from) => find_keyword(args, word, from)? + 1,
            Begin::Unknown => return Some(()),
        };
        let (first, last, step) = match self.find {
            Find::Range { last, step, limit } => {
                let last = match last {
                    0.. => begin + last.unsigned_abs(),
                    // None of keys that may be left out (PFMERGE without sources).
                    -1 if begin == argc => return Some(()),
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

/// Indices of the keys of a command, and what it does with each.
pub type Keys = SmallVec<[(usize, KeyFlags); 8]>;

/// Calls its second argument with the index of every key that no [`KeySpec`] can find: a
/// result is stored under it. Finds nothing in arguments that the handler refuses.
pub type MoreKeys = fn(&[&[u8]], &mut dyn FnMut(usize));
