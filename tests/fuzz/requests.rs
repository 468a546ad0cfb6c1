//! Properties of the request parser for any bytes: it does not panic, its memory is
//! bounded by the input, the boundaries of reads do not matter, and it agrees with a very
//! simple model. The decoder of replies of other servers does not panic, and does not
//! consume more than its input.

use kedis::resp::{Limits, Parser, Progress, decode};

/// Requests read from one input.
const REQUESTS: usize = 64;
/// Longest input that is also parsed byte by byte.
const BYTEWISE: usize = 512;

/// A request and its length; `None`: more bytes are needed.
type Outcome = Result<Option<(Vec<Vec<u8>>, usize)>, String>;

/// Checks one input; its first byte chooses the cuts.
pub fn check(data: &[u8]) {
    let Some((seed, input)) = data.split_first() else {
        return;
    };
    if let Ok(Some((_, used))) = decode(input) {
        assert!(0 < used && used <= input.len());
    }
    for authenticated in [true, false] {
        let limits = Limits {
            max_bulk_len: 1 << 20,
            authenticated,
        };
        let mut rest = input;
        for _ in 0..REQUESTS {
            let expected = whole(rest, &limits);
            assert_eq!(in_pieces(rest, 1 + usize::from(*seed), &limits), expected);
            if rest.len() <= BYTEWISE {
                assert_eq!(in_pieces(rest, 1, &limits), expected);
            }
            match (model(rest, &limits), &expected) {
                (Model::Unsure, _) => {}
                (Model::Refused, found) => assert!(found.is_err(), "{found:?}"),
                (Model::Incomplete, found) => assert_eq!(*found, Ok(None)),
                (Model::Request(args, len), found) => assert_eq!(*found, Ok(Some((args, len)))),
            }
            match expected {
                Ok(Some((_, len))) => rest = &rest[len..],
                _ => break,
            }
        }
    }
}

fn advance(parser: &mut Parser, buf: &[u8], limits: &Limits) -> Outcome {
    let progress = parser
        .advance(buf, limits)
        .map_err(|error| error.to_string())?;
    assert!(parser.argc() <= buf.len(), "more arguments than bytes");
    Ok(match progress {
        Progress::Incomplete => None,
        Progress::Complete { consumed } => {
            assert!(0 < consumed && consumed <= buf.len());
            let args = parser.args(buf);
            Some((args.iter().map(|arg| arg.to_vec()).collect(), consumed))
        }
    })
}

fn whole(buf: &[u8], limits: &Limits) -> Outcome {
    advance(&mut Parser::new(), buf, limits)
}

fn in_pieces(buf: &[u8], piece: usize, limits: &Limits) -> Outcome {
    let mut parser = Parser::new();
    let cuts = (0..buf.len()).step_by(piece).chain([buf.len()]);
    for cut in cuts {
        match advance(&mut parser, &buf[..cut], limits) {
            Ok(None) => {}
            done => return done,
        }
    }
    Ok(None)
}

enum Model {
    /// Quotes, NUL bytes and long lines are not modelled.
    Unsure,
    Refused,
    Incomplete,
    Request(Vec<Vec<u8>>, usize),
}

fn model(buf: &[u8], limits: &Limits) -> Model {
    let result = match buf.first() {
        None => Err(Model::Incomplete),
        Some(b'*') => multibulk(buf, limits),
        Some(_) => inline(buf),
    };
    match result {
        Ok((args, len)) => Model::Request(args, len),
        Err(other) => other,
    }
}

/// The line at `pos` without its end, and where the next one begins.
fn line(buf: &[u8], pos: usize) -> Result<(&[u8], usize), Model> {
    let rest = &buf[pos.min(buf.len())..];
    let end = rest.iter().position(|byte| *byte == b'\r');
    let seen = &rest[..end.unwrap_or(rest.len())];
    if seen.contains(&0) || seen.len() > 60_000 {
        return Err(Model::Unsure);
    }
    match end {
        Some(end) if end + 1 < rest.len() => Ok((seen, pos + end + 2)),
        _ => Err(Model::Incomplete),
    }
}

fn number(text: &[u8]) -> Result<i64, Model> {
    let text = std::str::from_utf8(text).map_err(|_| Model::Refused)?;
    let number: i64 = text.parse().map_err(|_| Model::Refused)?;
    match number.to_string() == text {
        true => Ok(number),
        false => Err(Model::Refused),
    }
}

fn multibulk(buf: &[u8], limits: &Limits) -> Result<(Vec<Vec<u8>>, usize), Model> {
    let (count, mut pos) = line(buf, 0)?;
    let count = number(&count[1..])?;
    if count > i64::from(i32::MAX) || count > 10 && !limits.authenticated {
        return Err(Model::Refused);
    }
    let mut args = Vec::new();
    for _ in 0..count.max(0) {
        let (length, next) = line(buf, pos)?;
        let Some((b'$', digits)) = length.split_first() else {
            return Err(Model::Refused);
        };
        let len = usize::try_from(number(digits)?).map_err(|_| Model::Refused)?;
        if len > limits.max_bulk_len || len > 16 * 1024 && !limits.authenticated {
            return Err(Model::Refused);
        }
        pos = next + len + 2;
        if pos > buf.len() {
            return Err(Model::Incomplete);
        }
        args.push(buf[next..next + len].to_vec());
    }
    Ok((args, pos))
}

fn inline(buf: &[u8]) -> Result<(Vec<Vec<u8>>, usize), Model> {
    let end = buf.iter().position(|byte| *byte == b'\n');
    let seen = &buf[..end.unwrap_or(buf.len())];
    let odd = |byte: &u8| matches!(byte, 0 | b'"' | b'\'' | b'\r' | 0x0B | 0x0C);
    if seen.strip_suffix(b"\r").unwrap_or(seen).iter().any(odd) || seen.len() > 60_000 {
        return Err(Model::Unsure);
    }
    let Some(end) = end else {
        return Err(Model::Incomplete);
    };
    let line = seen.strip_suffix(b"\r").unwrap_or(seen);
    let words = line.split(|byte| matches!(byte, b' ' | b'\t'));
    let words = words.filter(|word| !word.is_empty());
    Ok((words.map(<[u8]>::to_vec).collect(), end + 1))
}
