//! Words and quotes of redis.conf: splits lines into words, and quotes words.

/// Why a line cannot be split into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LexError {
    /// A quote that does not end, or that something other than a space follows.
    #[error("Unbalanced quotes in configuration line")]
    Quotes,
    /// A zero byte.
    #[error("The line contains a zero byte")]
    ZeroByte,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// Splits a line into words. `"…"` supports the escapes `\n \r \t \b \a \xHH`, and any other
/// escaped byte stands for itself; `'…'` supports only `\'`.
///
/// Words take many times the bytes of their line: a line that a client has sent is read by
/// [`words`].
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, LexError> {
    words(line)?.collect()
}

/// The words of a line as in [`split`], one at a time.
///
/// # Errors
/// The line has a zero byte. What else is wrong with it is said in place of the word concerned.
pub fn words(line: &[u8]) -> Result<Words<'_>, LexError> {
    match line.contains(&0) {
        true => Err(LexError::ZeroByte),
        false => Ok(Words { rest: line }),
    }
}

/// The words of a line; see [`words`].
#[derive(Clone, Debug)]
pub struct Words<'a> {
    rest: &'a [u8],
}

impl Iterator for Words<'_> {
    type Item = Result<Vec<u8>, LexError>;

    fn next(&mut self) -> Option<Result<Vec<u8>, LexError>> {
        let begin = self.rest.iter().position(|byte| !is_space(*byte))?;
        let found = word(self.rest.get(begin..).unwrap_or_default());
        self.rest = found.as_ref().map_or(&[], |(_, rest)| rest);
        Some(found.map(|(word, _)| word))
    }
}

/// The first word of `rest`, and what follows it.
fn word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), LexError> {
    let mut out = Vec::new();
    loop {
        match rest {
            [] => return Ok((out, rest)),
            [b'"', tail @ ..] => return after_quote(double_quoted(tail, &mut out)?, out),
            [b'\'', tail @ ..] => return after_quote(single_quoted(tail, &mut out)?, out),
            [byte, ..] if is_space(*byte) => return Ok((out, rest)),
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

/// A closing quote ends the word: only a space or the end may follow.
fn after_quote(rest: &[u8], out: Vec<u8>) -> Result<(Vec<u8>, &[u8]), LexError> {
    match rest {
        [] => Ok((out, rest)),
        [byte, ..] if is_space(*byte) => Ok((out, rest)),
        _ => Err(LexError::Quotes),
    }
}

/// The value of a hexadecimal digit.
fn hex(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        _ => 0,
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], LexError> {
    loop {
        match rest {
            [] => return Err(LexError::Quotes),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(hex(*high) << 4 | hex(*low));
                rest = tail;
            }
            [b'\\', byte, tail @ ..] => {
                out.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = tail;
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], LexError> {
    loop {
        match rest {
            [] => return Err(LexError::Quotes),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => {
                out.push(b'\'');
                rest = tail;
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

/// The word in double quotes, with unprintable bytes escaped.
pub fn quote_always(word: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for &byte in word {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x07 => out.extend(b"\\a"),
            0x08 => out.extend(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    out.push(b'"');
    out
}

/// The word as it is written to a file: quoted if it would not read back unchanged.
pub fn quote(word: &[u8]) -> Vec<u8> {
    let plain = !word.is_empty()
        && word
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#'));
    if plain {
        word.to_vec()
    } else {
        quote_always(word)
    }
}
