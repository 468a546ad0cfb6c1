//! Reads and writes the values of parameters as text.
//!
//! Knows types, not parameters. Any input from a file or client yields a value or an error in
//! Redis' words.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::base::num::parse_i64;

use super::kind::ParamKind;
use super::lex::quote;

/// Why a value is not accepted. The texts are those of Redis.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ValueError {
    /// Neither `yes` nor `no`.
    #[error("argument must be 'yes' or 'no'")]
    NotBool,
    /// Not a decimal integer of 64 bits.
    #[error("argument couldn't be parsed into an integer")]
    NotInteger,
    /// Not an octal number.
    #[error("argument couldn't be parsed as an octal number")]
    NotOctal,
    /// Not digits with an optional unit.
    #[error("argument must be a memory value")]
    NotMemory,
    /// Neither a memory value nor a percentage.
    #[error("argument must be a memory or percent value")]
    NotMemoryOrPercent,
    /// More than 100 percent.
    #[error("percentage argument must be less or equal to 100")]
    PercentTooLarge,
    /// Outside the bounds, which are written as the parameter's values are.
    #[error("argument must be between {min} and {max} inclusive")]
    Range {
        /// Smallest value.
        min: String,
        /// Largest value.
        max: String,
    },
    /// Not one of the words of the parameter.
    #[error("argument(s) must be one of the following: {0}")]
    Choice(String),
    /// A word and its opposite.
    #[error("shutdown options SAVE and NOSAVE can't be used simultaneously")]
    SaveAndNoSave,
    /// A user that another line describes.
    #[error("Duplicate user found. A user can only be defined once in config files")]
    DuplicateUser,
    /// Too few or too many words.
    #[error("wrong number of arguments")]
    Arity,
    /// Not UTF-8 where text is needed.
    #[error("argument must be valid UTF-8 text")]
    NotUtf8,
    /// A zero byte, which no path may contain.
    #[error("argument must not contain a zero byte")]
    ZeroByte,
    /// An error of a single parameter.
    #[error("{0}")]
    Special(&'static str),
    /// An error of a single parameter that names what is wrong.
    #[error("{0}")]
    Named(String),
    /// The error of the operating system for a path.
    #[error("{0}")]
    Path(String),
    /// The error of a module of Redis.
    #[error("{0}")]
    Module(String),
}

impl ValueError {
    /// A module's parameter that is no number.
    pub(super) fn module_type(name: &str) -> ValueError {
        ValueError::Module(format!("Invalid value for `{name}`"))
    }

    /// A module's parameter outside its bounds.
    pub(super) fn module_range(name: &str, min: i64, max: i64) -> ValueError {
        ValueError::Module(format!(
            "Value for `{name}` must be in the range [{min}, {max}]"
        ))
    }
}

/// Where a directive comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file or the command line: lines of one directive add up.
    File,
    /// CONFIG SET: the value replaces the old one.
    Set,
}

/// The type of a parameter.
pub(super) trait Field: Sized {
    /// Sets the value from the words of a directive; an error leaves it unchanged. Kinds that
    /// do not take many words get exactly one.
    fn assign(
        &mut self,
        kind: &ParamKind,
        words: &[Vec<u8>],
        source: Source,
    ) -> Result<(), ValueError>;

    /// The value as CONFIG GET shows it.
    fn text(&self, kind: &ParamKind) -> Vec<u8>;

    /// The arguments of the lines that express the value in a file.
    fn lines(&self, kind: &ParamKind) -> Vec<Vec<u8>> {
        vec![quote(&self.text(kind))]
    }
}

/// The only word of a directive.
fn single(words: &[Vec<u8>]) -> Result<&[u8], ValueError> {
    match words {
        [word] => Ok(word),
        _ => Err(ValueError::Arity),
    }
}

/// A word that must be UTF-8.
pub(super) fn utf8(word: &[u8]) -> Result<&str, ValueError> {
    if word.contains(&0) {
        return Err(ValueError::ZeroByte);
    }
    std::str::from_utf8(word).map_err(|_| ValueError::NotUtf8)
}

/// A decimal integer without `+`, leading zeros or spaces, as in Redis.
pub(super) fn integer(word: &[u8]) -> Result<i64, ValueError> {
    parse_i64(word).ok_or(ValueError::NotInteger)
}

/// A number of bytes: digits and an optional unit. As in Redis, no digits mean zero. What
/// exceeds 64 bits becomes the largest number.
pub(super) fn memory(word: &[u8]) -> Option<u64> {
    let split = word
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(word.len());
    let (digits, unit) = word.split_at_checked(split)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number: u64 = match digits {
        b"" => 0,
        // Digits alone can only overflow.
        digits => (std::str::from_utf8(digits).ok()?.parse()).unwrap_or(u64::MAX),
    };
    Some(number.saturating_mul(factor))
}

/// A number of bytes as CONFIG REWRITE writes it: in the largest unit that yields a whole
/// number, as in Redis.
pub(super) fn in_units(bytes: u64) -> String {
    let units = [("gb", 30), ("mb", 20), ("kb", 10)];
    let whole = |(_, shift): &(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    match units.into_iter().find(whole) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

fn range<T: ToString>(min: T, max: T) -> ValueError {
    ValueError::Range {
        min: min.to_string(),
        max: max.to_string(),
    }
}

/// The value of a word of a numeric kind.
fn number(kind: &ParamKind, word: &[u8]) -> Result<i128, ValueError> {
    match *kind {
        ParamKind::Memory { min, max } => {
            let bytes = memory(word).ok_or(ValueError::NotMemory)?;
            match (min..=max).contains(&bytes) {
                true => Ok(i128::from(bytes)),
                false => Err(range(min, max)),
            }
        }
        ParamKind::Octal => {
            let text = utf8(word).map_err(|_| ValueError::NotOctal)?;
            let mode = u32::from_str_radix(text, 8).map_err(|_| ValueError::NotOctal)?;
            match mode <= 0o777 {
                true => Ok(i128::from(mode)),
                false => Err(range(0, 777)),
            }
        }
        ParamKind::OfModule { name, min, max } => {
            let value = parse_i64(word).ok_or_else(|| ValueError::module_type(name))?;
            match (min..=max).contains(&value) {
                true => Ok(i128::from(value)),
                false => Err(ValueError::module_range(name, min, max)),
            }
        }
        ParamKind::Int { min, max } => {
            let value = integer(word)?;
            match (min..=max).contains(&value) {
                true => Ok(i128::from(value)),
                false => Err(range(min, max)),
            }
        }
        _ => integer(word).map(i128::from),
    }
}

macro_rules! integer_fields {
    ($($type:ty),*) => { $(
        impl Field for $type {
            fn assign(&mut self, kind: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
                let value = number(kind, single(words)?)?;
                *self = <$type>::try_from(value).map_err(|_| range(<$type>::MIN, <$type>::MAX))?;
                Ok(())
            }

            fn text(&self, kind: &ParamKind) -> Vec<u8> {
                match kind {
                    ParamKind::Octal => format!("{self:o}").into_bytes(),
                    _ => self.to_string().into_bytes(),
                }
            }

            fn lines(&self, kind: &ParamKind) -> Vec<Vec<u8>> {
                let line = match (kind, u64::try_from(*self)) {
                    (ParamKind::Memory { .. }, Ok(bytes)) => in_units(bytes).into_bytes(),
                    _ => self.text(kind),
                };
                vec![line]
            }
        }
    )* };
}
integer_fields!(u16, u32, u64, usize, i32, i64);

impl Field for bool {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        *self = match single(words)?.to_ascii_lowercase().as_slice() {
            b"yes" => true,
            b"no" => false,
            _ => return Err(ValueError::NotBool),
        };
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        if *self { b"yes".into() } else { b"no".into() }
    }
}

impl Field for String {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        *self = utf8(single(words)?)?.to_owned();
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.clone().into_bytes()
    }
}

impl Field for PathBuf {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let word = single(words)?;
        if word.contains(&0) {
            return Err(ValueError::ZeroByte);
        }
        *self = PathBuf::from(OsString::from_vec(word.to_vec()));
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.as_os_str().as_bytes().to_vec()
    }
}

/// The position of a word among `names`, in any case.
pub(super) fn choice(names: &[&str], word: &[u8]) -> Result<usize, ValueError> {
    names
        .iter()
        .position(|name| name.as_bytes().eq_ignore_ascii_case(word))
        .ok_or_else(|| ValueError::Choice(names.join(", ")))
}

/// A parameter without effect whose values are the words of its kind.
impl Field for &'static str {
    fn assign(&mut self, kind: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let word = single(words)?;
        if let ParamKind::Choice(names) = *kind {
            let index = choice(names, word)?;
            *self = names.get(index).copied().unwrap_or_default();
        }
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

/// Words in the given order.
impl Field for Vec<String> {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        *self = words
            .iter()
            .map(|word| utf8(word).map(str::to_owned))
            .filter(|word| word != &Ok(String::new()))
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.join(" ").into_bytes()
    }

    fn lines(&self, _: &ParamKind) -> Vec<Vec<u8>> {
        match self.is_empty() {
            true => vec![quote(b"")],
            false => vec![
                self.iter()
                    .map(|word| quote(word.as_bytes()))
                    .collect::<Vec<_>>()
                    .join(&b' '),
            ],
        }
    }
}
