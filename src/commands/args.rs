//! Reading numbers and options from arguments, with the usual error replies.

use super::Error;
use crate::base::num;
use crate::types::OpError;

/// A slot that there is not.
pub(super) const BAD_SLOT: Error = Error::text("ERR Invalid or out of range slot");

/// An integer of 64 bits.
pub fn int(arg: &[u8]) -> Result<i64, Error> {
    num::parse_i64(arg).ok_or(Error::Op(OpError::NotInteger))
}

/// A floating point number, not NaN.
pub fn float(arg: &[u8]) -> Result<f64, Error> {
    num::parse_f64(arg).ok_or(Error::Op(OpError::NotFloat))
}

/// An integer of at least `min`; the error `refusal` for anything else.
pub(super) fn int_from(arg: &[u8], min: i64, refusal: Error) -> Result<i64, Error> {
    match num::parse_i64(arg) {
        Some(n) if n >= min => Ok(n),
        _ => Err(refusal),
    }
}

/// Whether an argument is this word (given in upper case), in any case.
pub fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The arguments from the `from`-th on, read one after the other; for options.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    args: &'a [&'a [u8]],
    at: usize,
}

impl<'a> Options<'a> {
    /// Options from index `from` of the arguments on.
    pub fn new(args: &'a [&'a [u8]], from: usize) -> Self {
        Options { args, at: from }
    }

    /// How many arguments are left.
    pub fn left(&self) -> usize {
        self.args.len().saturating_sub(self.at)
    }

    /// Whether none are left.
    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// The next argument without taking it.
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.args.get(self.at).copied()
    }

    /// Takes the next argument if it is `word` (upper case), in any case.
    pub fn word(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|arg| is(arg, word));
        self.at += usize::from(found);
        found
    }

    /// Takes the next argument; a syntax error if there is none.
    pub fn value(&mut self) -> Result<&'a [u8], Error> {
        let arg = self.peek().ok_or(Error::Syntax)?;
        self.at += 1;
        Ok(arg)
    }

    /// Takes the next `n` arguments; a syntax error if there are fewer.
    pub fn values(&mut self, n: usize) -> Result<&'a [&'a [u8]], Error> {
        let end = self.at.checked_add(n).ok_or(Error::Syntax)?;
        let values = self.args.get(self.at..end).ok_or(Error::Syntax)?;
        self.at = end;
        Ok(values)
    }

    /// Takes an integer.
    pub fn int(&mut self) -> Result<i64, Error> {
        int(self.value()?)
    }
}
