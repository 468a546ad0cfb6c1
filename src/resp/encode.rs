//! Encodes requests: arrays of bulk strings.

/// Approximate bytes per argument besides the argument itself.
const ARGUMENT_OVERHEAD: usize = 8;

/// Appends a command.
pub fn command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    let bytes = args
        .iter()
        .map(|arg| arg.as_ref().len() + ARGUMENT_OVERHEAD);
    out.reserve(bytes.sum());
    command_head(out, args.len());
    for arg in args {
        argument(out, arg.as_ref());
    }
}

/// Appends the head of a command with so many arguments, including its name.
pub fn command_head(out: &mut Vec<u8>, args: usize) {
    head(out, b'*', args);
}

/// Appends one argument.
#[inline]
pub fn argument(out: &mut Vec<u8>, arg: &[u8]) {
    argument_head(out, arg.len());
    out.extend_from_slice(arg);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of an argument; its bytes and CRLF follow.
#[inline]
pub fn argument_head(out: &mut Vec<u8>, len: usize) {
    head(out, b'$', len);
}

/// Appends a type byte, a count and CRLF. Counts of one and two digits, which are nearly all,
/// are written as one small copy.
#[inline]
pub fn head(out: &mut Vec<u8>, kind: u8, count: usize) {
    if count < 10 {
        out.extend_from_slice(&[kind, b'0' + count as u8, b'\r', b'\n']);
    } else if count < 100 {
        let (tens, ones) = (b'0' + (count / 10) as u8, b'0' + (count % 10) as u8);
        out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
    } else {
        out.push(kind);
        out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Limits, Parser, Progress};

    #[test]
    fn what_is_sent_is_parsed() {
        let args: [&[u8]; 4] = [b"SET", b"", b"\r\n$3", &[7; 1000]];
        let mut out = Vec::new();
        command(&mut out, &args);
        let limits = Limits {
            max_bulk_len: 1000,
            authenticated: true,
        };
        let mut parser = Parser::new();
        let consumed = out.len();
        assert_eq!(
            parser.advance(&out, &limits),
            Ok(Progress::Complete { consumed })
        );
        assert_eq!(parser.args_of(&out).collect::<Vec<_>>(), args);
    }
}
