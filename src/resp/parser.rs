//! Incremental request parser: finds the arguments of one request inside the
//! connection's read buffer without copying them.
//!
//! Invariants
//! - The caller passes the buffer from the request's first byte at each call;
//!   the parser resumes where it stopped and looks at no byte twice.
//! - How the bytes were cut into reads never changes the result.
//! - A request that fits the inline capacity allocates nothing; beyond it
//!   memory grows with received arguments, never with announced counts.
//! - No input panics. After an error the connection must be closed.
//!
//! Independent of sockets and commands.
#![deny(clippy::indexing_slicing)]

use memchr::{memchr2, memchr2_iter};
use smallvec::SmallVec;
use thiserror::Error;

use crate::base::num::parse_i64;

/// Longest inline request and longest count line, in bytes.
pub(super) const MAX_LINE_LEN: usize = 64 * 1024;
/// Most arguments of a request before authentication.
const UNAUTH_MAX_ARGS: usize = 10;
/// Longest argument of a request before authentication, in bytes.
const UNAUTH_MAX_BULK_LEN: usize = 16 * 1024;
/// Most arguments of any request.
const MAX_ARGS: i64 = i32::MAX as i64;
/// Range lists that grew past this many arguments are freed on reset.
const KEEP_RANGES: usize = 1024;
/// Unescaping buffers that grew past this many bytes are freed on reset.
const KEEP_UNESCAPED: usize = 4096;

/// The arguments of one request, the command's name first.
pub type Args<'a> = SmallVec<[&'a [u8]; 16]>;

/// What a connection may send at this moment.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest argument, in bytes (`proto-max-bulk-len`).
    pub max_bulk_len: usize,
    /// Whether the peer has authenticated or need not; otherwise requests are kept small.
    pub authenticated: bool,
}

/// Whether a request is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    Incomplete,
    /// The request is complete; its arguments can be taken.
    Complete {
        /// Length of the request in the buffer, in bytes.
        consumed: usize,
    },
}

/// Why a request cannot be read; the text is what the peer gets after `-ERR `.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// The count after `*` is not a number, or too large.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// An argument does not start with `$`; the byte found instead.
    #[error("Protocol error: expected '$', got '{}'", shown(*.0))]
    ExpectedDollar(u8),
    /// The length after `$` is not a number, negative, or over the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// An inline request without a newline in its first 64 KiB.
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// A `*` line without an end in its first 64 KiB.
    #[error("Protocol error: too big mbulk count string")]
    TooBigMultibulkCount,
    /// A `$` line without an end in its first 64 KiB.
    #[error("Protocol error: too big bulk count string")]
    TooBigBulkCount,
    /// A quote of an inline request does not close, or text touches a closing quote.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// More than 10 arguments before authentication.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulk,
    /// An argument of more than 16 KiB before authentication.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulk,
}

/// A byte as the error text shows it, so that replies stay valid UTF-8.
fn shown(byte: u8) -> char {
    if byte.is_ascii() { byte as char } else { '?' }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// No byte of the request has been read.
    #[default]
    Start,
    /// In the line of an inline request.
    Inline,
    /// In the line with the number of arguments.
    Count,
    /// In the line with the length of the next argument.
    Length,
    /// In an argument of this many bytes.
    Data(usize),
    /// The request is complete.
    Done,
}

/// The place of an argument in the bytes of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgRange {
    /// Its first byte.
    pub start: usize,
    /// The byte behind it.
    pub end: usize,
}

/// The state of one request between reads.
#[derive(Debug, Default)]
pub struct Parser {
    stage: Stage,
    /// Start of the line or argument being read.
    pos: usize,
    /// The current line was searched up to here.
    scanned: usize,
    /// Arguments still to come.
    pending: usize,
    /// The positions of the arguments, in the request or in `unescaped`.
    ranges: SmallVec<[ArgRange; 16]>,
    /// Arguments of an inline request with quotes.
    unescaped: Vec<u8>,
    in_unescaped: bool,
}

/// The result of a search for the end of a line.
enum Line {
    /// The line is incomplete.
    Open,
    /// The line exceeds [`MAX_LINE_LEN`].
    TooLong,
    /// The position of its CR; one more byte follows.
    Ends(usize),
}

impl Parser {
    /// A parser at the start of a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues to parse. `buf` begins with the request's first byte at each call and may hold
    /// more than the request. Once complete, [`Parser::args`] is valid until [`Parser::reset`].
    ///
    /// # Errors
    /// The bytes are not a request; the connection cannot be used further.
    #[inline]
    pub fn advance(&mut self, buf: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        if self.stage == Stage::Start {
            match buf.first() {
                None => return Ok(Progress::Incomplete),
                Some(b'*') => self.stage = Stage::Count,
                Some(_) => self.stage = Stage::Inline,
            }
        }
        match self.stage {
            Stage::Inline => self.inline(buf),
            Stage::Done => Ok(Progress::Complete { consumed: self.pos }),
            _ => self.multibulk(buf, limits),
        }
    }

    /// The arguments of a complete request, slices of `buf` (the buffer given to
    /// the last [`Parser::advance`]) or, for quoted inline requests, of the parser.
    #[inline]
    pub fn args<'a>(&'a self, buf: &'a [u8]) -> Args<'a> {
        let mut args = Args::new();
        self.read_args(buf, &mut args);
        args
    }

    /// [`Parser::args`] for a place that is there already: a returned list would be copied to it.
    #[inline]
    pub fn read_args<'a>(&'a self, buf: &'a [u8], args: &mut Args<'a>) {
        args.extend(self.args_in(buf));
    }

    /// The first two arguments, or fewer if the request has no more or they have not arrived. A
    /// long request has millions, and is asked for its command after each read.
    pub fn head<'a>(&'a self, buf: &'a [u8]) -> SmallVec<[&'a [u8]; 2]> {
        self.args_in(buf).take(2).collect()
    }

    fn args_in<'a>(&'a self, buf: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let source = if self.in_unescaped {
            self.unescaped.as_slice()
        } else {
            buf
        };
        self.ranges
            .iter()
            .map(|range| source.get(range.start..range.end).unwrap_or_default())
    }

    /// The arguments of a complete request, all slices of `buf`. An inline request with quotes
    /// yields none.
    pub fn args_of<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let ranges = match self.in_unescaped {
            true => &[],
            false => self.ranges.as_slice(),
        };
        ranges
            .iter()
            .map(|range| buf.get(range.start..range.end).unwrap_or_default())
    }

    /// Takes the places of the arguments of a complete request in the buffer given to the last
    /// [`Parser::advance`]; `None` if some are not there.
    pub fn take_places(&mut self) -> Option<Vec<ArgRange>> {
        let here = !self.in_unescaped;
        here.then(|| std::mem::take(&mut self.ranges).into_vec())
    }

    /// Number of arguments read so far.
    pub fn argc(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes of the request up to the end of the argument that is being received; 0 if none is.
    pub fn announced(&self) -> usize {
        match self.stage {
            Stage::Data(len) => self.pos.saturating_add(len).saturating_add(2),
            _ => 0,
        }
    }

    /// Estimated bytes of the whole request, if the missing arguments are as long as those
    /// received.
    pub fn estimated(&self) -> usize {
        let so_far = self.pos / self.ranges.len().max(1);
        let to_come = so_far.saturating_mul(self.pending);
        self.announced().max(self.pos.saturating_add(to_come))
    }

    /// The number of arguments of the request, as far as it is known.
    pub fn expected_argc(&self) -> usize {
        self.ranges.len().saturating_add(self.pending)
    }

    /// Memory of the argument list besides the buffer, in bytes. For many short arguments it
    /// exceeds their length by far.
    pub fn memory(&self) -> usize {
        let ranges = match self.ranges.spilled() {
            true => self.ranges.capacity() * size_of::<ArgRange>(),
            false => 0,
        };
        ranges + self.unescaped.capacity()
    }

    /// Prepares for the next request.
    #[inline]
    pub fn reset(&mut self) {
        self.stage = Stage::Start;
        self.pos = 0;
        self.scanned = 0;
        self.pending = 0;
        self.in_unescaped = false;
        if self.ranges.capacity() > KEEP_RANGES {
            self.ranges = SmallVec::new();
        } else {
            self.ranges.clear();
        }
        if self.unescaped.capacity() > KEEP_UNESCAPED {
            self.unescaped = Vec::new();
        } else {
            self.unescaped.clear();
        }
    }

    fn complete(&mut self, consumed: usize) -> Result<Progress, ProtocolError> {
        self.stage = Stage::Done;
        self.pos = consumed;
        Ok(Progress::Complete { consumed })
    }

    fn multibulk(&mut self, buf: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        if self.stage == Stage::Count {
            let Some((count, next)) = self.count_line(buf)? else {
                return Ok(Progress::Incomplete);
            };
            let Ok(count) = usize::try_from(count) else {
                return self.complete(next);
            };
            if count > UNAUTH_MAX_ARGS && !limits.authenticated {
                return Err(ProtocolError::UnauthenticatedMultibulk);
            }
            self.pending = count;
            self.line_at(next);
        }
        while self.pending > 0 {
            let len = match self.stage {
                Stage::Data(len) => len,
                _ => {
                    let Some((len, next)) = self.length_line(buf, limits)? else {
                        return Ok(Progress::Incomplete);
                    };
                    self.stage = Stage::Data(len);
                    self.pos = next;
                    len
                }
            };
            // As in Redis, the two bytes after an argument are not checked.
            let next = self.pos.saturating_add(len).saturating_add(2);
            if next > buf.len() {
                return Ok(Progress::Incomplete);
            }
            self.ranges.push(ArgRange {
                start: self.pos,
                end: self.pos + len,
            });
            self.pending -= 1;
            self.line_at(next);
        }
        self.complete(self.pos)
    }

    fn line_at(&mut self, pos: usize) {
        self.stage = Stage::Length;
        self.pos = pos;
        self.scanned = pos;
    }

    /// The count of the `*` line, and the start of the next line.
    #[inline]
    fn count_line(&mut self, buf: &[u8]) -> Result<Option<(i64, usize)>, ProtocolError> {
        if let Some((count, next)) = short_number(buf, self.pos + 1) {
            return Ok(Some((count as i64, next)));
        }
        let end = match self.line_end(buf) {
            Line::Open => return Ok(None),
            Line::TooLong => return Err(ProtocolError::TooBigMultibulkCount),
            Line::Ends(end) => end,
        };
        buf.get(self.pos + 1..end)
            .and_then(parse_i64)
            .filter(|count| *count <= MAX_ARGS)
            .map(|count| Some((count, end + 2)))
            .ok_or(ProtocolError::InvalidMultibulkLength)
    }

    /// The length of the `$` line, and the start of the argument.
    #[inline]
    fn length_line(
        &mut self,
        buf: &[u8],
        limits: &Limits,
    ) -> Result<Option<(usize, usize)>, ProtocolError> {
        let quick = match buf.get(self.pos) {
            Some(b'$') => short_number(buf, self.pos + 1),
            _ => None,
        };
        let (len, next) = match quick {
            Some(found) => found,
            None => match self.unusual_length_line(buf)? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        if len > limits.max_bulk_len {
            return Err(ProtocolError::InvalidBulkLength);
        }
        if len > UNAUTH_MAX_BULK_LEN && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedBulk);
        }
        Ok(Some((len, next)))
    }

    /// Handles a `$` line that is incomplete, long or wrong.
    #[cold]
    fn unusual_length_line(&mut self, buf: &[u8]) -> Result<Option<(usize, usize)>, ProtocolError> {
        let end = match self.line_end(buf) {
            Line::Open => return Ok(None),
            Line::TooLong => return Err(ProtocolError::TooBigBulkCount),
            Line::Ends(end) => end,
        };
        match buf.get(self.pos) {
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::ExpectedDollar(*other)),
            None => return Ok(None),
        }
        buf.get(self.pos + 1..end)
            .and_then(parse_i64)
            .and_then(|len| usize::try_from(len).ok())
            .map(|len| Some((len, end + 2)))
            .ok_or(ProtocolError::InvalidBulkLength)
    }

    /// Searches the end of the count line at `pos`.
    fn line_end(&mut self, buf: &[u8]) -> Line {
        match self.search(buf, b'\r') {
            Line::Ends(end) if end + 1 >= buf.len() => Line::Open,
            found => found,
        }
    }

    /// Searches for the byte that ends the line at `pos`, from where the last search stopped.
    /// As in Redis a NUL byte hides everything after it, so a peer that has lost the framing is
    /// disconnected once it has sent [`MAX_LINE_LEN`] bytes.
    fn search(&mut self, buf: &[u8], stop: u8) -> Line {
        let rest = buf.get(self.scanned..).unwrap_or_default();
        let (at, found) = match memchr2(stop, 0, rest) {
            Some(offset) => {
                let at = self.scanned + offset;
                (at, rest.get(offset) == Some(&stop))
            }
            None => (buf.len().max(self.scanned), false),
        };
        self.scanned = at;
        let seen = if found { at } else { buf.len() };
        if seen.saturating_sub(self.pos) > MAX_LINE_LEN {
            Line::TooLong
        } else if found {
            Line::Ends(at)
        } else {
            Line::Open
        }
    }

    fn inline(&mut self, buf: &[u8]) -> Result<Progress, ProtocolError> {
        let newline = match self.search(buf, b'\n') {
            Line::Open => return Ok(Progress::Incomplete),
            Line::TooLong => return Err(ProtocolError::TooBigInline),
            Line::Ends(at) => at,
        };
        let line = buf.get(..newline).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.ranges.clear();
        self.unescaped.clear();
        self.in_unescaped = memchr2_iter(b'"', b'\'', line).next().is_some();
        if self.in_unescaped {
            self.split_quoted(line)?;
        } else {
            self.split_plain(line);
        }
        self.complete(newline + 1)
    }

    fn split_plain(&mut self, line: &[u8]) {
        let mut pos = 0;
        loop {
            let rest = line.get(pos..).unwrap_or_default();
            let Some(skip) = rest.iter().position(|byte| !is_space(*byte)) else {
                return;
            };
            let word = rest.get(skip..).unwrap_or_default();
            let len = word
                .iter()
                .position(|byte| ends_word(*byte))
                .unwrap_or(word.len());
            let start = pos + skip;
            pos = start + len;
            self.ranges.push(ArgRange { start, end: pos });
        }
    }

    fn split_quoted(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        let mut rest = line;
        loop {
            while let Some((first, tail)) = rest.split_first()
                && is_space(*first)
            {
                rest = tail;
            }
            if rest.is_empty() {
                return Ok(());
            }
            let start = self.unescaped.len();
            rest = unescape_word(rest, &mut self.unescaped)?;
            self.ranges.push(ArgRange {
                start,
                end: self.unescaped.len(),
            });
        }
    }
}

/// The fast path for nearly every count: one to nine digits without a leading zero, CR, and one
/// more byte. Returns the number and the position after that byte; `None`: use the general
/// path.
#[inline]
fn short_number(buf: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = buf.get(at..)?;
    let mut value = 0usize;
    for (index, byte) in line.iter().take(10).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            if value == 0 && index > 0 {
                return None;
            }
            value = value * 10 + usize::from(digit);
        } else if *byte == b'\r' && index > 0 && line.len() > index + 1 {
            return Some((value, at + index + 2));
        } else {
            return None;
        }
    }
    None
}

/// Looks ahead at the request at the front of `buf`. Returns its second argument, which most
/// often is a key, and the length of the request. `None` if it has no second argument, is
/// incomplete or unusual.
pub fn glance(buf: &[u8]) -> Option<(&[u8], usize)> {
    let argument = |at: usize| {
        let (len, start) = short_number(buf, (buf.get(at) == Some(&b'$')).then_some(at + 1)?)?;
        Some((start, start.checked_add(len)?))
    };
    let (count, at) = short_number(buf, (buf.first() == Some(&b'*')).then_some(1)?)?;
    let (_, end) = argument((count > 1).then_some(at)?)?;
    let (start, mut end) = argument(end + 2)?;
    let key = buf.get(start..end)?;
    for _ in 2..count {
        end = argument(end + 2)?.1;
    }
    (end + 2 <= buf.len()).then_some((key, end + 2))
}

/// Whether C's `isspace` holds: the separators of an inline request.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Whether the byte ends an unquoted word. Fewer bytes do than in [`is_space`], as in Redis.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Appends the word at the start of `text` to `out`, without quotes and escapes, and returns
/// the rest.
fn unescape_word<'a>(mut text: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    while let Some((first, tail)) = text.split_first() {
        text = match *first {
            quote @ (b'"' | b'\'') => {
                let after = if quote == b'"' {
                    unescape_double(tail, out)?
                } else {
                    unescape_single(tail, out)?
                };
                return match after.first() {
                    Some(byte) if !is_space(*byte) => Err(ProtocolError::UnbalancedQuotes),
                    _ => Ok(after),
                };
            }
            byte if ends_word(byte) => return Ok(text),
            byte => {
                out.push(byte);
                tail
            }
        };
    }
    Ok(text)
}

/// Reads up to the closing double quote. Escapes are `\n \r \t \b \a`, `\xHH` and escaped
/// bytes.
fn unescape_double<'a>(mut text: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match text {
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex_digit(*high) << 4 | hex_digit(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => {
                let byte = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                };
                (byte, tail)
            }
            [byte, tail @ ..] => (*byte, tail),
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
        out.push(byte);
        text = tail;
    }
}

/// Reads up to the closing single quote; only `\'` is an escape.
fn unescape_single<'a>(mut text: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match text {
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [byte, tail @ ..] => (*byte, tail),
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
        out.push(byte);
        text = tail;
    }
}

/// The value of a hexadecimal digit.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests;
