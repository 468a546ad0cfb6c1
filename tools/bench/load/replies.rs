//! Finds the ends of replies (RESP2) in a stream, and keeps of each only what is counted.

use std::error::Error;
use std::fmt;

/// Bytes of a line at most: an error's text, or a number.
const LINE_MAX: usize = 1 << 16;

/// What is known of a reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The text of the first error in it, without the dash.
    pub error: Option<String>,
    /// Nulls in it.
    pub nulls: u64,
    /// The length, of an array.
    pub elements: Option<u64>,
}

/// Bytes that are no reply.
#[derive(Debug)]
pub struct NotResp(String);

impl fmt::Display for NotResp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no reply in RESP2: {}", self.0)
    }
}

impl Error for NotResp {}

/// Reads a stream of replies in pieces of any size.
#[derive(Default)]
pub struct Scanner {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// Bytes of a bulk string that have not come, its line end included.
    skip: usize,
    /// Values of the current reply that have not ended; 0 between replies.
    open: u64,
    reply: Reply,
}

impl Scanner {
    /// Reads the next bytes and gives the replies that end in them to `each`.
    pub fn feed(&mut self, mut data: &[u8], mut each: impl FnMut(Reply)) -> Result<(), NotResp> {
        while !data.is_empty() {
            if self.skip > 0 {
                let taken = self.skip.min(data.len());
                data = &data[taken..];
                self.skip -= taken;
                if self.skip == 0 {
                    self.end_value(&mut each);
                }
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', data) else {
                self.line.extend_from_slice(data);
                if self.line.len() > LINE_MAX {
                    return Err(self.refused(b"a line without end"));
                }
                return Ok(());
            };
            let (rest, after) = data.split_at(end + 1);
            data = after;
            let mut line = std::mem::take(&mut self.line);
            if line.is_empty() {
                self.take_line(rest, &mut each)?;
            } else {
                line.extend_from_slice(rest);
                self.take_line(&line, &mut each)?;
                line.clear();
                self.line = line;
            }
        }
        Ok(())
    }

    /// Takes a line with its end.
    fn take_line(&mut self, line: &[u8], each: &mut impl FnMut(Reply)) -> Result<(), NotResp> {
        let Some((kind, text)) = line.strip_suffix(b"\r\n").and_then(|l| l.split_first()) else {
            return Err(self.refused(line));
        };
        let is_first = self.open == 0;
        self.open += u64::from(is_first);
        let length = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
        match kind {
            b'+' | b':' => {}
            b'-' => {
                let error = || String::from_utf8_lossy(text).into_owned();
                self.reply.error.get_or_insert_with(error);
            }
            b'$' | b'*' => match (kind, length()) {
                (_, Some(-1)) => self.reply.nulls += 1,
                (b'$', Some(bytes @ 0..)) => {
                    self.skip = bytes as usize + 2;
                    return Ok(());
                }
                (b'*', Some(elements @ 0..)) => {
                    let elements = elements as u64;
                    if is_first {
                        self.reply.elements = Some(elements);
                    }
                    let Some(open) = self.open.checked_add(elements) else {
                        return Err(self.refused(line));
                    };
                    self.open = open;
                }
                _ => return Err(self.refused(line)),
            },
            _ => return Err(self.refused(line)),
        }
        self.end_value(each);
        Ok(())
    }

    /// Ends a value, which may end the reply.
    fn end_value(&mut self, each: &mut impl FnMut(Reply)) {
        self.open -= 1;
        if self.open == 0 {
            each(std::mem::take(&mut self.reply));
        }
    }

    fn refused(&self, line: &[u8]) -> NotResp {
        let start = &line[..line.len().min(100)];
        NotResp(String::from_utf8_lossy(start).trim_end().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of a stream that comes in pieces of `step` bytes.
    fn scanned(stream: &[u8], step: usize) -> Result<Vec<Reply>, NotResp> {
        let (mut scanner, mut found) = (Scanner::default(), Vec::new());
        for piece in stream.chunks(step) {
            scanner.feed(piece, |reply| found.push(reply))?;
        }
        assert_eq!((scanner.open, scanner.skip), (0, 0), "ends within a reply");
        Ok(found)
    }

    fn reply(error: Option<&str>, nulls: u64, elements: Option<u64>) -> Reply {
        let error = error.map(str::to_string);
        Reply {
            error,
            nulls,
            elements,
        }
    }

    #[test]
    fn replies_are_found_whatever_the_pieces() {
        let stream =
            b"+OK\r\n:-12\r\n-ERR no\r\n$0\r\n\r\n$9\r\n\r\n-ERR\r\n$\r\n$-1\r\n*-1\r\n*0\r\n\
            *3\r\n$1\r\na\r\n$-1\r\n:1\r\n*2\r\n*2\r\n+a\r\n*1\r\n-NO x\r\n*0\r\n+OK\r\n";
        let expected = [
            reply(None, 0, None),
            reply(None, 0, None),
            reply(Some("ERR no"), 0, None),
            reply(None, 0, None),
            reply(None, 0, None),
            reply(None, 1, None),
            reply(None, 1, None),
            reply(None, 0, Some(0)),
            reply(None, 1, Some(3)),
            reply(Some("NO x"), 0, Some(2)),
            reply(None, 0, None),
        ];
        for step in 1..=stream.len() {
            assert_eq!(scanned(stream, step).unwrap(), expected, "{step}");
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let long = vec![b'+'; LINE_MAX + 1];
        let streams: [&[u8]; 8] = [
            b"OK\r\n",
            b"\r\n",
            b"+OK\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"*99999999999999999999\r\n",
            b"%1\r\n",
            &long,
        ];
        for stream in streams {
            for step in [1, stream.len()] {
                let mut scanner = Scanner::default();
                let mut pieces = stream.chunks(step);
                let refused = pieces.any(|piece| scanner.feed(piece, |_| ()).is_err());
                assert!(refused, "{:?}", stream.get(..20).unwrap_or(stream));
            }
        }
        // Lengths that together are more than a number holds.
        let huge = format!("*{0}\r\n*{0}\r\n*{0}\r\n", i64::MAX);
        let mut scanner = Scanner::default();
        assert!(scanner.feed(huge.as_bytes(), |_| ()).is_err());
    }
}
