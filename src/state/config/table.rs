//! The shape of the parameter table: what a row says, and how a name is found.
//!
//! The rows themselves stand in `params.rs`; the macro here turns them into
//! the [`Config`](super::Config) struct, its defaults and [`PARAMS`](super::PARAMS),
//! so that a parameter cannot have a field without a row or a row without a field.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Config;
use super::params::PARAMS;
use super::value::{Source, ValueError};

/// Flags of the command line that are no parameters.
const ONCE: [&str; 5] = [
    "--load-rdb",
    "--accept-data-loss",
    "--repair",
    "--help",
    "--version",
];

/// What values a parameter takes, as far as it can be said without its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A decimal integer within bounds.
    Int {
        /// Smallest value taken.
        min: i64,
        /// Largest value taken.
        max: i64,
    },
    /// File permissions in octal, `0` to `777`.
    Octal,
    /// A number of bytes, with units (`1k` = 1000, `1kb` = 1024, m, g).
    Memory {
        /// Smallest number of bytes taken.
        min: u64,
        /// Largest number of bytes taken.
        max: u64,
    },
    /// As `Memory`, or a percentage of `maxmemory`.
    MemoryOrPercent,
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
    /// Several of these words, in any case.
    Flags(&'static [&'static str]),
    /// One string.
    Text,
    /// Several words in one directive; the text shows them for the documentation.
    Words(&'static str),
    /// As `Words`, but the directive may stand on several lines that add up.
    Lines(&'static str),
}

impl Kind {
    /// Whether a directive of this kind may have any number of arguments.
    pub fn takes_many(&self) -> bool {
        matches!(self, Kind::Flags(_) | Kind::Words(_) | Kind::Lines(_))
    }

    /// The values taken, in words for `--help` and the manual.
    pub fn describe(&self) -> String {
        match self {
            Kind::Bool => "yes, no".into(),
            Kind::Int { min, max } => match (*min, *max) {
                (min, i64::MAX) => format!("integer from {min}"),
                (0, 2_147_483_647) => "integer from 0".into(),
                (1, 2_147_483_647) => "integer from 1".into(),
                (-2_147_483_648, 2_147_483_647) => "integer".into(),
                (min, max) => format!("integer {min} to {max}"),
            },
            Kind::Octal => "octal 0 to 777".into(),
            Kind::Memory { .. } => "bytes, with units".into(),
            Kind::MemoryOrPercent => "bytes, with units, or N%".into(),
            Kind::Choice(names) => names.join(", "),
            Kind::Flags(names) => format!("any of {}", names.join(", ")),
            Kind::Text => "text".into(),
            Kind::Words(syntax) | Kind::Lines(syntax) => (*syntax).into(),
        }
    }
}

/// What sets a parameter apart from a plain one that CONFIG SET may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Takes effect at the start only; CONFIG SET refuses it.
    Start,
    /// CONFIG SET needs `enable-protected-configs`.
    Guarded,
    /// Taken, kept and listed so that a Redis file works, but has no effect here.
    Inert,
    /// CONFIG GET shows it only when it is asked for by its full name.
    Hidden,
    /// Must not appear in the slow log, MONITOR or the server's log.
    Secret,
    /// Depends on where the server was started, so CONFIG REWRITE always writes it.
    Located,
    /// A directive of files and of the command line only; CONFIG does not know it.
    FileOnly,
}

/// Reads a parameter's text from a configuration.
type Get = fn(&Config, &Kind) -> Vec<u8>;
/// Sets a parameter from the words of a directive.
type Set = fn(&mut Config, &Kind, &[Vec<u8>], Source) -> Result<(), ValueError>;
/// The argument parts of the lines that a file needs to say a value.
type Lines = fn(&Config, &Kind) -> Vec<Vec<u8>>;

/// A row of the parameter table.
pub struct Param {
    /// The name, in lower case.
    pub name: &'static str,
    /// Other names; CONFIG GET lists each as a parameter of its own.
    pub aliases: &'static [&'static str],
    /// The values taken.
    pub kind: Kind,
    /// What sets it apart.
    pub flags: &'static [Flag],
    /// One line on what it does.
    about: &'static str,
    pub(super) get: Get,
    pub(super) set: Set,
    pub(super) lines: Lines,
}

impl Param {
    pub(super) const fn new(
        names: (&'static str, &'static [&'static str]),
        kind: Kind,
        flags: &'static [Flag],
        about: &'static str,
        access: (Get, Set, Lines),
    ) -> Self {
        Param {
            name: names.0,
            aliases: names.1,
            kind,
            flags,
            about,
            get: access.0,
            set: access.1,
            lines: access.2,
        }
    }

    /// The parameter called `name`, by its own name or an alias, in any case.
    pub fn find(name: &[u8]) -> Option<&'static Param> {
        Self::find_named(name).map(|(_, param)| param)
    }

    /// As [`Param::find`], with the name or alias as the table writes it.
    pub(super) fn find_named(name: &[u8]) -> Option<(&'static str, &'static Param)> {
        static INDEX: LazyLock<HashMap<&'static str, &'static Param>> = LazyLock::new(|| {
            PARAMS
                .iter()
                .flat_map(|param| param.names().map(move |name| (name, param)))
                .collect()
        });
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        INDEX
            .get_key_value(name.as_str())
            .map(|(name, param)| (*name, *param))
    }

    /// The name, alias or [flag](ONCE) that looks most like `name`, which is none of
    /// them.
    pub(super) fn similar(name: &str) -> Option<&'static str> {
        /// From 0, nothing in common, to 1, the same.
        const ENOUGH: f64 = 0.85;
        let names = PARAMS.iter().flat_map(Param::names).chain(ONCE);
        let likeness = |known: &'static str| {
            let likeness = strsim::jaro_winkler(known.trim_start_matches('-'), name);
            (likeness, known)
        };
        let best = names.map(likeness).max_by(|a, b| a.0.total_cmp(&b.0));
        best.filter(|(likeness, _)| *likeness > ENOUGH)
            .map(|(_, known)| known)
    }

    /// Its own name, then its aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Whether the row has this flag.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// One line on what it does.
    pub fn about(&self) -> String {
        let about = self.about.trim();
        if self.has(Flag::Inert) {
            format!("Accepted for compatibility, without effect. {about}")
        } else {
            about.to_owned()
        }
    }

    /// The value in `config`, as CONFIG GET shows it.
    pub fn text(&self, config: &Config) -> Vec<u8> {
        (self.get)(config, &self.kind)
    }

    /// Takes the words of a directive into `config`.
    pub(super) fn assign(
        &self,
        config: &mut Config,
        words: &[Vec<u8>],
        source: Source,
    ) -> Result<(), ValueError> {
        if words.len() != 1 && !self.kind.takes_many() {
            return Err(ValueError::Arity);
        }
        (self.set)(config, &self.kind, words, source)?;
        config.normalise();
        Ok(())
    }
}

impl std::fmt::Debug for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Param")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

/// `/// about`, `field: Type = default => "name" | "alias", kind, Flag …;`
macro_rules! params {
    ($(
        #[doc = $about:literal]
        $field:ident : $type:ty = $default:expr
            => $name:literal $(| $alias:literal)* , $kind:expr $(, $flag:ident)* ;
    )*) => {
        /// The values of all parameters. Units stand last in a field's name.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $( #[doc = $about] pub $field: $type, )*
        }

        impl Default for Config {
            fn default() -> Self {
                let mut config = Config { $( $field: $default, )* };
                config.normalise();
                config
            }
        }

        /// All parameters, in the order in which CONFIG GET lists them.
        pub static PARAMS: &[Param] = &[
            $( Param::new(
                ($name, &[$($alias),*]),
                $kind,
                &[$(Flag::$flag),*],
                $about,
                (
                    |config, kind| Field::text(&config.$field, kind),
                    |config, kind, words, source| {
                        Field::assign(&mut config.$field, kind, words, source)
                    },
                    |config, kind| Field::lines(&config.$field, kind),
                ),
            ), )*
        ];
    };
}
pub(super) use params;
