//! The structure of the parameter table.
//!
//! The rows stand in the module above. The macro here turns them into the
//! [`Config`](super::Config) struct, its defaults and [`PARAMS`](super::PARAMS), so that every
//! parameter has both a field and a row.

use super::Config;
use crate::state::config::kind::ParamKind;
use crate::state::config::value::{Source, ValueError};

/// Special properties of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Takes effect at the start only; CONFIG SET refuses it.
    Start,
    /// CONFIG SET needs `enable-protected-configs`.
    Guarded,
    /// Accepted, kept and listed so that a Redis file works, but without effect here.
    Inert,
    /// CONFIG GET shows it only under its full name.
    Hidden,
    /// Must not appear in the slow log, MONITOR or the log.
    Secret,
    /// Depends on the directory in which the server was started, so CONFIG REWRITE always
    /// writes it.
    Located,
    /// A directive of files and the command line only; not visible to CONFIG.
    FileOnly,
}

/// Reads a parameter's text from a configuration.
type Get = fn(&Config, &ParamKind) -> Vec<u8>;
/// Sets a parameter from the words of a directive.
type Set = fn(&mut Config, &ParamKind, &[Vec<u8>], Source) -> Result<(), ValueError>;
/// The arguments of the lines that express a value in a file.
type Lines = fn(&Config, &ParamKind) -> Vec<Vec<u8>>;

/// A row of the parameter table.
pub struct Param {
    /// The name, in lower case.
    pub name: &'static str,
    /// Other names; CONFIG GET lists each as a parameter of its own.
    pub aliases: &'static [&'static str],
    /// The accepted values.
    pub kind: ParamKind,
    /// Special properties.
    pub flags: &'static [Flag],
    /// One line of documentation.
    about: &'static str,
    pub(in crate::state::config) get: Get,
    pub(in crate::state::config) set: Set,
    pub(in crate::state::config) lines: Lines,
}

impl Param {
    pub(super) const fn new(
        names: (&'static str, &'static [&'static str]),
        kind: ParamKind,
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

    /// Its own name, then its aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Whether the row has this flag.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// One line of documentation.
    pub fn about(&self) -> String {
        if self.has(Flag::Inert) {
            format!(
                "Accepted for compatibility, without effect. {}",
                self.reason()
            )
        } else {
            self.reason().to_owned()
        }
    }

    /// The same for a parameter without effect: only why it has none.
    pub(in crate::state::config) fn reason(&self) -> &'static str {
        self.about.trim()
    }

    /// The lines that set its value in a file, under one of its names.
    pub(in crate::state::config) fn directives(
        &self,
        config: &Config,
        name: &[u8],
    ) -> Vec<Vec<u8>> {
        (self.lines)(config, &self.kind)
            .into_iter()
            .map(|arguments| [name, &arguments].join(&b' '))
            .collect()
    }

    /// The value in `config`, as CONFIG GET shows it.
    pub fn text(&self, config: &Config) -> Vec<u8> {
        (self.get)(config, &self.kind)
    }

    /// Sets the parameter in `config` from the words of a directive.
    pub(in crate::state::config) fn assign(
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
        config.check_filters(self.name)
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
        /// The values of all parameters. The names of fields end with their units.
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
        pub(in crate::state::config) static PARAMS: &[Param] = &[
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
