//! The name of a host, as nodes of a cluster announce it.

use super::kind::ParamKind;
use super::value::{Field, Source, ValueError};

/// A name of letters, digits, hyphens and dots; empty for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hostname(pub String);

/// The longest name has one byte fewer.
const TOO_LONG: usize = 256;

impl Field for Hostname {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let name = words.first().ok_or(ValueError::Arity)?;
        if name.len() >= TOO_LONG {
            return Err(ValueError::Special(
                "Hostnames must be less than 256 characters",
            ));
        }
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-.".contains(byte);
        if !name.iter().all(is_plain) {
            return Err(ValueError::Special(
                "Hostnames may only contain alphanumeric characters, hyphens or dots",
            ));
        }
        self.0 = String::from_utf8_lossy(name).into_owned();
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        self.0.clone().into_bytes()
    }
}
