//! Configuration files: lines, `include`, and errors that prevent a start.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::kind::ParamKind;
use super::lex::{LexError, quote, quote_always, split};
use super::params::{Flag, Param};
use super::shown::without_secrets;
use super::value::{Source, ValueError};
use super::{Config, split_value};
use crate::base::glob;
use crate::sys::files::open_regular;

/// Longest file that is accepted, in bytes.
const FILE_MAX_BYTES: u64 = 16 << 20;
/// Deepest nesting of `include`.
const INCLUDE_MAX_DEPTH: usize = 16;
/// Most included files in one start.
const FILES_MAX: usize = 256;

/// The place of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line, counted from 1, of a file.
    File(PathBuf, usize),
    /// A line, counted from 1, of standard input.
    Stdin(usize),
    /// The command line.
    Args,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::File(path, line) => write!(
                f,
                "Reading the configuration file {}, at line {line}",
                path.display()
            ),
            Origin::Stdin(line) => {
                write!(
                    f,
                    "Reading the configuration from standard input, at line {line}"
                )
            }
            Origin::Args => f.write_str("Reading the command line"),
        }
    }
}

/// The place and text of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    origin: Origin,
    /// The text of its line.
    text: String,
}

/// Where each parameter was set last, for errors that are found later.
#[derive(Clone, Debug, Default)]
pub struct Places {
    of: HashMap<&'static str, Place>,
    /// The same for directives with several lines, by their first argument.
    of_lines: HashMap<(&'static str, Vec<u8>), Place>,
}

impl Places {
    /// `reason`, and the directive that set the parameter, if one did. `word` selects a line by
    /// its first argument if there are several.
    pub fn explain(&self, reason: &str, parameter: &str, word: Option<&str>) -> String {
        let of_word = word.and_then(|word| {
            let mut lines = self.of_lines.iter();
            let word = word.as_bytes();
            lines.find(|((name, first), _)| *name == parameter && first == word)
        });
        let place = of_word.map(|(_, place)| place);
        match place.or_else(|| self.of.get(parameter)) {
            Some(Place { origin, text }) => {
                let reason = reason.trim_end_matches(['.', '!']);
                format!("{reason}. {origin}: '{text}'")
            }
            None => reason.to_owned(),
        }
    }

    fn add(&mut self, param: &'static Param, arguments: &[Vec<u8>], place: Place) {
        if let (ParamKind::Lines(_), [first, ..]) = (param.kind, arguments) {
            let key = (param.name, first.to_ascii_lowercase());
            self.of_lines.insert(key, place.clone());
        }
        self.of.insert(param.name, place);
    }
}

/// Why a directive is not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Reason {
    /// The line cannot be split into words.
    #[error(transparent)]
    Lex(#[from] LexError),
    /// There is no parameter of this name; the most similar name.
    #[error("Bad directive or wrong number of arguments: no parameter has the name '{0}'{hint} `kedis-server --help` lists them", hint = hint(.1))]
    Unknown(String, Option<&'static str>),
    /// The same, for a parameter and its value joined by `=`.
    #[error("Bad directive: a space stands between a parameter and its value: `{0}`")]
    Joined(String),
    /// The parameter does not accept the value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The directive loads a module.
    #[error("Modules cannot be loaded into this server")]
    Module,
    /// Files include each other too deeply, or too many.
    #[error("Too many files include each other")]
    IncludeDepth,
    /// An included file cannot be read.
    #[error("Can't read the included file {}: {error}", path.display())]
    Include {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: String,
    },
    /// An included path has wildcards before its last part.
    #[error("Only the last part of an included path may have wildcards")]
    IncludePattern,
    /// A word where a flag was expected.
    #[error("Only the first argument may be a configuration file; parameters start with --")]
    StrayArgument,
    /// `--load-rdb` does not name exactly one file.
    #[error("--load-rdb takes the name of one file")]
    RdbFile,
}

/// Why a server does not start with this configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("Can't read the configuration file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// A directive is not accepted.
    #[error("*** FATAL CONFIG FILE ERROR (Kedis {version}) ***\n{origin}\n>>> '{text}'\n{reason}", version = env!("CARGO_PKG_VERSION"))]
    Directive {
        /// Its place.
        origin: Origin,
        /// The line, or the equivalent of the command line.
        text: String,
        /// The reason.
        reason: Reason,
    },
}

/// Reads files into a configuration, with limits on all of them together.
pub(super) struct Loader<'a> {
    config: &'a mut Config,
    places: Places,
    files: usize,
    depth: usize,
    /// Whether a file may be a pipe, whose other end is waited for.
    waits: bool,
}

impl<'a> Loader<'a> {
    pub(super) fn new(config: &'a mut Config) -> Self {
        Loader {
            config,
            places: Places::default(),
            files: 0,
            depth: 0,
            waits: true,
        }
    }

    /// For a server that runs: refuses files that are not regular.
    pub(super) fn without_waiting(self) -> Self {
        Loader {
            waits: false,
            ..self
        }
    }

    /// The places of the parameters.
    pub(super) fn into_places(self) -> Places {
        self.places
    }

    /// Reads a file.
    pub(super) fn file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let unreadable = |error| ConfigError::Unreadable {
            path: path.to_owned(),
            error,
        };
        let file = match self.waits {
            true => std::fs::File::open(path),
            false => open_regular(path),
        };
        let text = file.and_then(read_bounded).map_err(unreadable)?;
        self.text(&text, &|line| Origin::File(path.to_owned(), line))
    }

    /// Reads all lines of a text.
    pub(super) fn text(
        &mut self,
        text: &[u8],
        origin: &dyn Fn(usize) -> Origin,
    ) -> Result<(), ConfigError> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let words = split(line).map_err(Reason::from);
            self.directive(words, || {
                (
                    origin(index + 1),
                    String::from_utf8_lossy(line).into_owned(),
                )
            })?;
        }
        Ok(())
    }

    /// Applies one directive; `describe` returns its place and text.
    fn directive(
        &mut self,
        words: Result<Vec<Vec<u8>>, Reason>,
        describe: impl Fn() -> (Origin, String),
    ) -> Result<(), ConfigError> {
        let shown = |name: &[u8], text: String| match Param::find(name) {
            Some(param) if param.has(Flag::Secret) => format!("{} ...", param.name),
            _ => without_secrets(&text),
        };
        let name = words.as_ref().ok().and_then(|words| words.first().cloned());
        let failed = |reason| {
            let (origin, text) = describe();
            ConfigError::Directive {
                origin,
                text: shown(name.as_deref().unwrap_or_default(), text),
                reason,
            }
        };
        let words = words.map_err(failed)?;
        let Some((name, arguments)) = words.split_first() else {
            return Ok(());
        };
        if !name.eq_ignore_ascii_case(b"include") {
            let param = self.assign(name, arguments).map_err(failed)?;
            let (origin, text) = describe();
            let text = shown(name, text);
            self.places.add(param, arguments, Place { origin, text });
            return Ok(());
        }
        let [pattern] = arguments else {
            return Err(failed(ValueError::Arity.into()));
        };
        self.depth += 1;
        for path in included(pattern).map_err(failed)? {
            self.files += 1;
            if self.depth > INCLUDE_MAX_DEPTH || self.files > FILES_MAX {
                return Err(failed(Reason::IncludeDepth));
            }
            self.file(&path).map_err(|error| match error {
                ConfigError::Unreadable { path, error } => failed(Reason::Include {
                    path,
                    error: error.to_string(),
                }),
                other => other,
            })?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn assign(&mut self, name: &[u8], arguments: &[Vec<u8>]) -> Result<&'static Param, Reason> {
        let Some(param) = Param::find(name) else {
            return Err(match name.eq_ignore_ascii_case(b"loadmodule") {
                true => Reason::Module,
                false => joined(name).map_or_else(|| unknown(name), Reason::Joined),
            });
        };
        assign_directive(self.config, param, arguments)?;
        Ok(param)
    }

    /// Applies a directive of the command line.
    pub(super) fn argument(
        &mut self,
        name: &[u8],
        arguments: &[Vec<u8>],
    ) -> Result<(), ConfigError> {
        let words = std::iter::once(name.to_vec())
            .chain(arguments.iter().cloned())
            .collect();
        self.directive(Ok(words), || {
            let mut text = String::from_utf8_lossy(name).into_owned();
            for argument in arguments {
                text.push(' ');
                text.push_str(&String::from_utf8_lossy(&quote_always(argument)));
            }
            (Origin::Args, text)
        })
    }
}

/// The reason for an unknown name.
pub(super) fn unknown(name: &[u8]) -> Reason {
    // The part behind is a value, which may be a password.
    let name = name.split(is_joint).next().unwrap_or_default();
    let shown = String::from_utf8_lossy(name).into_owned();
    let similar = Param::similar_to(&shown);
    Reason::Unknown(shown, similar)
}

fn hint(similar: &Option<&'static str>) -> String {
    similar.map_or_else(
        || ".".to_owned(),
        |name| format!(", did you mean '{name}'?"),
    )
}

/// Whether the byte may join a parameter and its value to one word, by mistake.
fn is_joint(byte: &u8) -> bool {
    matches!(byte, b'=' | b':' | b' ' | b'\t')
}

/// The corrected form of `port=1`.
fn joined(name: &[u8]) -> Option<String> {
    let joint = name.iter().position(is_joint)?;
    let (name, value) = name.split_at(joint);
    let param = Param::find(name)?;
    let value = value.get(1..)?.trim_ascii();
    if param.has(Flag::Secret) || value.is_empty() {
        return Some(format!("{} ...", param.name));
    }
    let value = quote(value);
    Some(format!(
        "{} {}",
        param.name,
        String::from_utf8_lossy(&value)
    ))
}

/// Applies the arguments of a parameter's line. A single argument may contain several: `save
/// "900 1 300 10"`.
pub(super) fn assign_directive(
    config: &mut Config,
    param: &Param,
    arguments: &[Vec<u8>],
) -> Result<(), ValueError> {
    match arguments {
        [only] if !param.has(Flag::FileOnly) => {
            let words = split_value(&param.kind, only);
            param.assign(config, &words, Source::File)
        }
        words => param.assign(config, words, Source::File),
    }
}

/// Whether so many bytes are too many for a file.
pub(super) fn is_too_large(bytes: usize) -> bool {
    u64::try_from(bytes).unwrap_or(u64::MAX) > FILE_MAX_BYTES
}

/// All bytes of a reader, up to [`FILE_MAX_BYTES`].
///
/// # Errors
/// It cannot be read, or has more bytes.
pub fn read_bounded(reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    reader.take(FILE_MAX_BYTES + 1).read_to_end(&mut text)?;
    if is_too_large(text.len()) {
        return Err(std::io::Error::new(
            std::io::ErrorKind::FileTooLarge,
            "the file is too large for a configuration",
        ));
    }
    Ok(text)
}

/// The files that an `include` names: one, or all that match its last part, sorted.
fn included(pattern: &[u8]) -> Result<Vec<PathBuf>, Reason> {
    use std::os::unix::ffi::OsStrExt;
    let as_path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let is_pattern = |bytes: &[u8]| bytes.iter().any(|byte| b"*?[".contains(byte));
    if !is_pattern(pattern) {
        return Ok(vec![as_path(pattern)]);
    }
    let (folder, name) = match pattern.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => pattern.split_at(slash + 1),
        None => (b"./".as_slice(), pattern),
    };
    if is_pattern(folder) {
        return Err(Reason::IncludePattern);
    }
    // A missing folder has no matching files.
    let mut paths: Vec<PathBuf> = std::fs::read_dir(as_path(folder))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| glob::matches(name, entry.file_name().as_bytes(), false))
        .filter(|entry| name.starts_with(b".") || !entry.file_name().as_bytes().starts_with(b"."))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    Ok(paths)
}

impl Config {
    /// The defaults changed by a file.
    #[cfg(test)]
    pub(super) fn from_file(path: &Path) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        Loader::new(&mut config).file(path)?;
        Ok(config)
    }

    /// The defaults changed by the text of a file; errors call the file `name`.
    pub fn from_text(text: &[u8], name: &Path) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        Loader::new(&mut config).text(text, &|line| Origin::File(name.to_owned(), line))?;
        Ok(config)
    }
}
