//! Requests as they are sent: arrays of bulk strings.

/// Appends a command.
pub fn command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    command_head(out, args.len());
    for arg in args {
        argument(out, arg.as_ref());
    }
}

/// Appends what stands before so many arguments, the command's name among them.
pub fn command_head(out: &mut Vec<u8>, args: usize) {
    head(out, b'*', args);
}

/// Appends one argument.
pub fn argument(out: &mut Vec<u8>, arg: &[u8]) {
    argument_head(out, arg.len());
    out.extend_from_slice(arg);
    out.extend_from_slice(b"\r\n");
}

/// Appends what stands before the bytes of an argument; CRLF follows them.
pub fn argument_head(out: &mut Vec<u8>, len: usize) {
    head(out, b'$', len);
}

fn head(out: &mut Vec<u8>, kind: u8, count: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
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
