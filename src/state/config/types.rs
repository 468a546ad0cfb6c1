//! Types of parameters that are not numbers or strings.

use std::path::{Path, PathBuf};

use crate::base::num::parse_f64;
use crate::storage::MemtableRep;
use crate::storage::engine::options::Compression;

use super::kind::ParamKind;
use super::lex::quote;
use super::value::{Field, Source, ValueError, choice, in_units, integer, memory, utf8};

/// Defines an enum whose variants are the words of a parameter, in Redis' order.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$vmeta])* $variant,)*
        }

        words! { $name { $($variant = $word),* } }
    };
}

/// The words of an enum that a module below has.
macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        impl $name {
            /// The words of the variants, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($word),*];
            const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The word that stands for this variant.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }

        impl Field for $name {
            fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
                let word = words.first().ok_or(ValueError::Arity)?;
                let index = choice(Self::NAMES, word)?;
                *self = Self::ALL.get(index).copied().unwrap_or(*self);
                Ok(())
            }

            fn text(&self, _: &ParamKind) -> Vec<u8> {
                self.name().as_bytes().to_vec()
            }
        }
    };
}

/// An error rate: a number between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(pub f64);

/// Higher error rates are lowered to this one, as in RedisBloom.
const RATIO_MOST: f64 = 0.25;

impl Field for Ratio {
    fn assign(&mut self, kind: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let ParamKind::Ratio(name) = *kind else {
            return Ok(());
        };
        let word = words.first().ok_or(ValueError::Arity)?;
        let ratio = parse_f64(word).ok_or_else(|| ValueError::module_type(name))?;
        if !(ratio > 0.0 && ratio < 1.0) {
            return Err(ValueError::Module(format!(
                "Value for `{name}` must be in the range (0.000000, 1.000000)"
            )));
        }
        self.0 = ratio.min(RATIO_MOST);
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }
}

choices! {
    /// How much the server logs.
    LogLevel {
        /// All messages.
        Debug = "debug",
        /// Details that are rarely useful.
        Verbose = "verbose",
        /// Messages for operators.
        Notice = "notice",
        /// Warnings and errors.
        Warning = "warning",
        /// No messages.
        Nothing = "nothing",
    }
}

choices! {
    /// The form of the lines of the log.
    LogFormat {
        /// Plain text; the name that Valkey has for its own.
        Legacy = "legacy",
        /// Plain text.
        Text = "text",
        /// Words with names.
        Logfmt = "logfmt",
        /// A JSON object each.
        Json = "json",
    }
}

choices! {
    /// Which commands are refused while a script is slow.
    BusyScope {
        /// Commands that need the script's keys.
        Keys = "keys",
        /// Nearly all commands, as in Redis.
        All = "all",
    }
}

choices! {
    /// When the write-ahead log is synced.
    AppendFsync {
        /// Once a second.
        Everysec = "everysec",
        /// Before the reply.
        Always = "always",
        /// When the operating system decides.
        No = "no",
    }
}

choices! {
    /// Which keys are evicted: those that `max-disk` has no room for.
    EvictionPolicy {
        /// Of the keys with an expiry, the least recently used.
        VolatileLru = "volatile-lru",
        /// Of the keys with an expiry, the least often used.
        VolatileLfu = "volatile-lfu",
        /// Of the keys with an expiry, any.
        VolatileRandom = "volatile-random",
        /// Of the keys with an expiry, the one that expires first.
        VolatileTtl = "volatile-ttl",
        /// Of the keys with an expiry, the least recently modified.
        VolatileLrm = "volatile-lrm",
        /// The least recently used.
        AllkeysLru = "allkeys-lru",
        /// The least often used.
        AllkeysLfu = "allkeys-lfu",
        /// The least recently modified.
        AllkeysLrm = "allkeys-lrm",
        /// Any.
        AllkeysRandom = "allkeys-random",
        /// None.
        Noeviction = "noeviction",
    }
}

choices! {
    /// Whether clients must show a certificate.
    TlsAuthClients {
        /// They are not asked.
        No = "no",
        /// They must.
        Yes = "yes",
        /// They may.
        Optional = "optional",
    }
}

choices! {
    /// By which name in its certificate a client is logged in.
    TlsAuthClientsUser {
        /// By none.
        Off = "off",
        /// The common name of the subject.
        Cn = "CN",
        /// A URI among its alternative names.
        Uri = "URI",
    }
}

choices! {
    /// Which address of a cluster's node clients are told first.
    EndpointType {
        /// Its address.
        Ip = "ip",
        /// The name of its host.
        Hostname = "hostname",
        /// None: they go to the one that they know.
        Unknown = "unknown-endpoint",
    }
}

choices! {
    /// Which clients may use a dangerous feature.
    AllowAccess {
        /// None.
        No = "no",
        /// All.
        Yes = "yes",
        /// Connections from this machine.
        Local = "local",
    }
}

words! {
    MemtableRep {
        BTree = "btree",
        SkipList = "skiplist",
    }
}

words! {
    Compression {
        None = "none",
        Lz4 = "lz4",
        Zstd = "zstd",
    }
}

choices! {
    /// When RESTORE checks a payload in full. Here it always does.
    SanitizePayload {
        /// In Redis: never.
        No = "no",
        /// Always.
        Yes = "yes",
        /// In Redis: if it comes from a client.
        Clients = "clients",
    }
}

impl AllowAccess {
    /// Whether a connection is allowed; `local`: by the Unix socket or loopback.
    pub fn allows(self, local: bool) -> bool {
        match self {
            AllowAccess::No => false,
            AllowAccess::Yes => true,
            AllowAccess::Local => local,
        }
    }
}

/// A password, which `{:?}` does not print.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

impl Secret {
    /// Whether no password is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Field for Secret {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        // A password need not be UTF-8.
        self.0 = words.first().ok_or(ValueError::Arity)?.clone();
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.0.clone()
    }
}

/// The directory of relative paths; always an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory(PathBuf);

impl Directory {
    /// `path` relative to the current directory of the process.
    pub fn new(path: &Path) -> Self {
        let absolute = std::env::current_dir().map_or_else(|_| path.into(), |dir| dir.join(path));
        // `/a/.` and `/a/` are `/a`.
        Directory(absolute.components().collect())
    }
}

impl std::ops::Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Field for Directory {
    fn assign(
        &mut self,
        kind: &ParamKind,
        words: &[Vec<u8>],
        source: Source,
    ) -> Result<(), ValueError> {
        let mut path = PathBuf::new();
        path.assign(kind, words, source)?;
        if source == Source::Set {
            // The directory is created at the start; at run time it must exist.
            let reason = |error: &std::io::Error| match error.kind() {
                std::io::ErrorKind::NotFound => "No such file or directory".to_owned(),
                _ => error.to_string(),
            };
            let found =
                std::fs::metadata(&path).map_err(|error| ValueError::Path(reason(&error)))?;
            if !found.is_dir() {
                return Err(ValueError::Path("Not a directory".into()));
            }
        }
        *self = Directory::new(&path);
        Ok(())
    }

    fn text(&self, kind: &ParamKind) -> Vec<u8> {
        self.0.text(kind)
    }
}

/// The name of a file, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName(pub String);

impl Field for FileName {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let name = utf8(words.first().ok_or(ValueError::Arity)?)?;
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return Err(ValueError::Special(
                "argument can't be a path, just a filename",
            ));
        }
        self.0 = name.to_owned();
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.0.clone().into_bytes()
    }
}

/// The `dbfilename`, which has an error text of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpName(pub String);

impl Field for DumpName {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let name = utf8(words.first().ok_or(ValueError::Arity)?)?;
        if name == "." || name == ".." || name.contains('/') {
            return Err(ValueError::Special(
                "dbfilename can't be a path, just a filename",
            ));
        }
        self.0 = name.to_owned();
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.0.clone().into_bytes()
    }
}

/// A number of bytes, or a share of the memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOrPercent {
    /// Bytes.
    Bytes(u64),
    /// Percent of the memory budget, 0 to 100.
    Percent(u8),
}

impl MemoryOrPercent {
    /// The bytes, for a budget of `total` bytes; 0 is no limit.
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            MemoryOrPercent::Bytes(bytes) => bytes,
            MemoryOrPercent::Percent(percent) => (total / 100).saturating_mul(u64::from(percent)),
        }
    }
}

impl Field for MemoryOrPercent {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let word = words.first().ok_or(ValueError::Arity)?;
        *self = match word.strip_suffix(b"%") {
            None => MemoryOrPercent::Bytes(memory(word).ok_or(ValueError::NotMemoryOrPercent)?),
            Some(number) => match integer(number) {
                Ok(percent @ 0..=100) => {
                    MemoryOrPercent::Percent(u8::try_from(percent).unwrap_or(100))
                }
                Ok(101..) => return Err(ValueError::PercentTooLarge),
                _ => return Err(ValueError::NotMemoryOrPercent),
            },
        };
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        match self {
            MemoryOrPercent::Bytes(bytes) => bytes.to_string(),
            MemoryOrPercent::Percent(percent) => format!("{percent}%"),
        }
        .into_bytes()
    }

    fn lines(&self, kind: &ParamKind) -> Vec<Vec<u8>> {
        vec![match self {
            MemoryOrPercent::Bytes(bytes) => in_units(*bytes).into_bytes(),
            MemoryOrPercent::Percent(_) => self.text(kind),
        }]
    }
}

/// Several words of a fixed set; written in the order of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordFlags(pub Vec<&'static str>);

impl Field for WordFlags {
    fn assign(&mut self, kind: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let ParamKind::Flags(names) = *kind else {
            return Err(ValueError::Arity);
        };
        if words.is_empty() {
            return Err(ValueError::Choice(names.join(", ")));
        }
        let chosen: Vec<usize> = words
            .iter()
            .map(|word| choice(names, word))
            .collect::<Result<_, _>>()?;
        // The first name stands for the empty set.
        let flags: Vec<&str> = (1..names.len())
            .filter(|index| chosen.contains(index))
            .filter_map(|index| names.get(index).copied())
            .collect();
        if flags.contains(&"save") && flags.contains(&"nosave") {
            return Err(ValueError::SaveAndNoSave);
        }
        self.0 = flags;
        Ok(())
    }

    fn text(&self, kind: &ParamKind) -> Vec<u8> {
        match (self.0.is_empty(), kind) {
            (true, ParamKind::Flags([none, ..])) => none.as_bytes().to_vec(),
            _ => self.0.join(" ").into_bytes(),
        }
    }

    fn lines(&self, kind: &ParamKind) -> Vec<Vec<u8>> {
        vec![self.text(kind)]
    }
}

/// Limit for the unsent output of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferLimit {
    /// The client is disconnected beyond this many bytes; 0 is no limit.
    pub hard_bytes: u64,
    /// The client is disconnected when it exceeds this many bytes for `soft_s`; 0 is no limit.
    pub soft_bytes: u64,
    /// Seconds.
    pub soft_s: u64,
}

/// [`BufferLimit`] by class of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// Ordinary clients.
    pub normal: BufferLimit,
    /// Replicas.
    pub replica: BufferLimit,
    /// Clients with subscriptions, MONITOR or tracking.
    pub pubsub: BufferLimit,
}

impl Default for BufferLimits {
    fn default() -> Self {
        let limit = |hard_mb: u64, soft_mb: u64, soft_s| BufferLimit {
            hard_bytes: hard_mb << 20,
            soft_bytes: soft_mb << 20,
            soft_s,
        };
        BufferLimits {
            normal: BufferLimit::default(),
            replica: limit(256, 64, 60),
            pubsub: limit(32, 8, 60),
        }
    }
}

impl BufferLimits {
    fn class(&mut self, name: &[u8]) -> Option<&mut BufferLimit> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Some(&mut self.normal),
            b"replica" | b"slave" => Some(&mut self.replica),
            b"pubsub" => Some(&mut self.pubsub),
            _ => None,
        }
    }

    fn named(&self, replica: &'static str) -> [(&'static str, BufferLimit); 3] {
        [
            ("normal", self.normal),
            (replica, self.replica),
            ("pubsub", self.pubsub),
        ]
    }
}

impl std::fmt::Display for BufferLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.hard_bytes, self.soft_bytes, self.soft_s)
    }
}

impl Field for BufferLimits {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        const BAD_NUMBER: ValueError = ValueError::Special(
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        );
        let mut limits = *self;
        for group in words.chunks(4) {
            let [class, hard, soft, seconds] = group else {
                return Err(ValueError::Special(
                    "Wrong number of arguments in buffer limit configuration.",
                ));
            };
            let limit = limits.class(class).ok_or(ValueError::Special(
                "Invalid client class specified in buffer limit configuration.",
            ))?;
            *limit = BufferLimit {
                hard_bytes: memory(hard).ok_or(BAD_NUMBER)?,
                soft_bytes: memory(soft).ok_or(BAD_NUMBER)?,
                soft_s: match integer(seconds) {
                    Ok(seconds) => u64::try_from(seconds).map_err(|_| BAD_NUMBER)?,
                    Err(_) => return Err(BAD_NUMBER),
                },
            };
        }
        *self = limits;
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.named("slave")
            .map(|(name, limit)| format!("{name} {limit}"))
            .join(" ")
            .into_bytes()
    }

    fn lines(&self, _: &ParamKind) -> Vec<Vec<u8>> {
        self.named("replica")
            .map(|(name, limit)| {
                let (hard, soft) = (in_units(limit.hard_bytes), in_units(limit.soft_bytes));
                format!("{name} {hard} {soft} {}", limit.soft_s).into_bytes()
            })
            .into()
    }
}

/// Redis' save points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavePoints {
    /// Pairs of seconds and changes.
    pub points: Vec<(u32, u32)>,
    /// Whether a directive has replaced the default, so that further ones add up.
    given: bool,
}

impl Default for SavePoints {
    fn default() -> Self {
        SavePoints {
            points: vec![(3600, 1), (300, 100), (60, 10_000)],
            given: false,
        }
    }
}

impl Field for SavePoints {
    fn assign(
        &mut self,
        _: &ParamKind,
        words: &[Vec<u8>],
        source: Source,
    ) -> Result<(), ValueError> {
        const BAD: ValueError = ValueError::Special("Invalid save parameters");
        let mut points = match (source, self.given) {
            (Source::File, true) => self.points.clone(),
            _ => Vec::new(),
        };
        if words.iter().all(Vec::is_empty) {
            points.clear();
        } else {
            for pair in words.chunks(2) {
                let [seconds, changes] = pair else {
                    return Err(BAD);
                };
                let number = |word| {
                    integer(word)
                        .ok()
                        .and_then(|number| u32::try_from(number).ok())
                        .filter(|number| *number <= i32::MAX.unsigned_abs())
                };
                match (number(seconds), number(changes)) {
                    (Some(seconds @ 1..), Some(changes)) => points.push((seconds, changes)),
                    _ => return Err(BAD),
                }
            }
        }
        *self = SavePoints {
            points,
            given: true,
        };
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.points
            .iter()
            .map(|(seconds, changes)| format!("{seconds} {changes}"))
            .collect::<Vec<_>>()
            .join(" ")
            .into_bytes()
    }

    fn lines(&self, _: &ParamKind) -> Vec<Vec<u8>> {
        match self.points.is_empty() {
            true => vec![quote(b"")],
            false => self
                .points
                .iter()
                .map(|(seconds, changes)| format!("{seconds} {changes}").into_bytes())
                .collect(),
        }
    }
}

/// Percentiles that INFO latencystats shows, 0 to 100.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles(pub Vec<f64>);

impl Field for Percentiles {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        if words.iter().all(Vec::is_empty) {
            self.0.clear();
            return Ok(());
        }
        let percentiles = words.iter().map(|word| {
            let number = parse_f64(word).ok_or(ValueError::Special(
                "Invalid latency-tracking-info-percentiles parameters",
            ))?;
            match (0.0..=100.0).contains(&number) {
                true => Ok(number),
                false => Err(ValueError::Special(
                    "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
                )),
            }
        });
        self.0 = percentiles.collect::<Result<_, _>>()?;
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.0
            .iter()
            .map(f64::to_string)
            .collect::<Vec<_>>()
            .join(" ")
            .into_bytes()
    }

    fn lines(&self, kind: &ParamKind) -> Vec<Vec<u8>> {
        match self.0.is_empty() {
            true => vec![quote(b"")],
            false => vec![self.text(kind)],
        }
    }
}

/// The three values of `oom-score-adj-values`.
impl Field for [i32; 3] {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        const BAD: ValueError = ValueError::Special(
            "Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
        );
        let [first, second, third] = words else {
            return Err(ValueError::Arity);
        };
        let number = |word| match integer(word) {
            Ok(number @ -2000..=2000) => i32::try_from(number).map_err(|_| BAD),
            _ => Err(BAD),
        };
        *self = [number(first)?, number(second)?, number(third)?];
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        let [first, second, third] = self;
        format!("{first} {second} {third}").into_bytes()
    }

    fn lines(&self, kind: &ParamKind) -> Vec<Vec<u8>> {
        vec![self.text(kind)]
    }
}

/// The address of this server's master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterAddr {
    /// Host name or address.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
}

impl MasterAddr {
    /// The error by which a replica sends a client there.
    pub fn redirection(&self) -> String {
        format!("REDIRECT {}:{}", self.host, self.port)
    }
}

impl Field for Option<MasterAddr> {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let [host, port] = words else {
            return Err(ValueError::Arity);
        };
        if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
            *self = None;
            return Ok(());
        }
        let host = utf8(host)?.to_owned();
        match integer(port).ok().and_then(|port| u16::try_from(port).ok()) {
            Some(port @ 1..) if !host.is_empty() => *self = Some(MasterAddr { host, port }),
            Some(1..) => return Err(ValueError::Special("Invalid master host")),
            _ => return Err(ValueError::Special("Invalid master port")),
        }
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        match self {
            None => Vec::new(),
            Some(MasterAddr { host, port }) => format!("{host} {port}").into_bytes(),
        }
    }

    fn lines(&self, _: &ParamKind) -> Vec<Vec<u8>> {
        self.iter()
            .map(|MasterAddr { host, port }| {
                let mut line = quote(host.as_bytes());
                line.extend(format!(" {port}").into_bytes());
                line
            })
            .collect()
    }
}

/// Renamed commands: name, and new name or an empty one. Whether the names exist is checked by
/// the command table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renames(pub Vec<(String, String)>);

impl Field for Renames {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let [from, to] = words else {
            return Err(ValueError::Arity);
        };
        let (from, to) = (
            utf8(from)?.to_ascii_lowercase(),
            utf8(to)?.to_ascii_lowercase(),
        );
        self.0.retain(|(name, _)| *name != from);
        self.0.push((from, to));
        Ok(())
    }

    fn text(&self, kind: &ParamKind) -> Vec<u8> {
        self.lines(kind).join(&b'\n')
    }

    fn lines(&self, _: &ParamKind) -> Vec<Vec<u8>> {
        self.0
            .iter()
            .map(|(from, to)| [quote(from.as_bytes()), quote(to.as_bytes())].join(&b' '))
            .collect()
    }
}

/// ACL users: names and rules, which are not interpreted here.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserLines(pub Vec<(Vec<u8>, Vec<Vec<u8>>)>);

impl std::fmt::Debug for UserLines {
    // The rules may contain passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} users", self.0.len())
    }
}

impl Field for UserLines {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let [name, rules @ ..] = words else {
            return Err(ValueError::Arity);
        };
        if self.0.iter().any(|(known, _)| known == name) {
            return Err(ValueError::DuplicateUser);
        }
        self.0.push((name.clone(), rules.to_vec()));
        Ok(())
    }

    fn text(&self, kind: &ParamKind) -> Vec<u8> {
        self.lines(kind).join(&b'\n')
    }

    fn lines(&self, _: &ParamKind) -> Vec<Vec<u8>> {
        self.0
            .iter()
            .map(|(name, rules)| {
                std::iter::once(name)
                    .chain(rules)
                    .map(|word| quote(word))
                    .collect::<Vec<_>>()
                    .join(&b' ')
            })
            .collect()
    }
}
