//! Tests of the request parser.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    max_bulk_len: 512 * 1024 * 1024,
    authenticated: true,
};

type Outcome = Result<Option<(Vec<Vec<u8>>, usize)>, ProtocolError>;

fn outcome(parser: &mut Parser, buf: &[u8], limits: &Limits) -> Outcome {
    Ok(match parser.advance(buf, limits)? {
        Progress::Incomplete => None,
        Progress::Complete { consumed }
            if *parser.head(buf) != parser.args(buf)[..parser.argc().min(2)] =>
        {
            panic!("{:?} at {consumed}", parser.head(buf))
        }
        Progress::Complete { consumed } => Some((
            parser.args(buf).iter().map(|arg| arg.to_vec()).collect(),
            consumed,
        )),
    })
}

/// The first request, parsed in one call.
fn whole(buf: &[u8], limits: &Limits) -> Outcome {
    outcome(&mut Parser::new(), buf, limits)
}

/// The first request, parsed in calls with the bytes up to each of the cuts.
fn in_pieces(buf: &[u8], cuts: impl Iterator<Item = usize>, limits: &Limits) -> Outcome {
    let mut parser = Parser::new();
    for cut in cuts.chain([buf.len()]) {
        let part = buf.get(..cut).unwrap_or(buf);
        match outcome(&mut parser, part, limits) {
            Ok(None) => {}
            done => return done,
        }
    }
    Ok(None)
}

#[track_caller]
fn check(request: &[u8], args: &[&[u8]]) {
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.to_vec()).collect();
    let mut buf = request.to_vec();
    buf.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
    let expected = Ok(Some((args, request.len())));
    assert_eq!(whole(&buf, &LIMITS), expected, "{request:?}");
    assert_eq!(in_pieces(&buf, 0..buf.len(), &LIMITS), expected);
    for len in 0..request.len() {
        assert_eq!(whole(&buf[..len], &LIMITS), Ok(None), "cut at {len}");
    }
}

#[track_caller]
fn refuse(request: &[u8], text: &str) {
    refuse_under(request, &LIMITS, text);
}

#[track_caller]
fn refuse_under(request: &[u8], limits: &Limits, text: &str) {
    let error = whole(request, limits).expect_err("accepted");
    assert_eq!(error.to_string(), format!("Protocol error: {text}"));
    assert_eq!(in_pieces(request, 0..request.len(), limits), Err(error));
}

#[test]
fn multibulk() {
    check(b"*1\r\n$4\r\nPING\r\n", &[b"PING"]);
    check(
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\nb\0\r\n",
        &[b"SET", b"k", b"a\r\nb\0"],
    );
    check(
        b"*2\r\n$0\r\n\r\n$12\r\nabcdefghijkl\r\n",
        &[b"", b"abcdefghijkl"],
    );
    check(b"*0\r\n", &[]);
    check(b"*-1\r\n", &[]);
    check(b"*-9\r\n", &[]);
    // Neither the byte after a count's CR nor the two after an argument are checked.
    check(b"*1\rx$1\rxaxx", &[b"a"]);
}

#[test]
fn many_arguments() {
    let mut request = b"*2000\r\n".to_vec();
    let mut args = Vec::new();
    for index in 0..2000 {
        let arg = index.to_string();
        request.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
        args.push(arg.into_bytes());
    }
    let expected = Ok(Some((args, request.len())));
    assert_eq!(whole(&request, &LIMITS), expected);
    assert_eq!(in_pieces(&request, 0..request.len(), &LIMITS), expected);
}

#[test]
fn inline() {
    check(b"PING\r\n", &[b"PING"]);
    check(b"PING\n", &[b"PING"]);
    check(b"\r\n", &[]);
    check(b"\n", &[]);
    check(b" \t \r\n", &[]);
    check(b"  SET \t k   v  \r\n", &[b"SET", b"k", b"v"]);
    check(b"a\rb\r\r\n", &[b"a", b"b"]);
    check(b"\x0ba\x0bb\n", &[b"a\x0bb"]);
    check(b"SET k \"a b\"\r\n", &[b"SET", b"k", b"a b"]);
    check(b"SET k ''\r\n", &[b"SET", b"k", b""]);
    check(
        b"\"\\x41\\n\\r\\t\\b\\a\\\"\\\\\\q\"\n",
        &[b"A\n\r\t\x08\x07\"\\q"],
    );
    check(b"\"\\xfF\\x4\\xg1\"\n", &[b"\xffx4xg1"]);
    check(b"'it\\'s \\n' x\n", &[b"it's \\n", b"x"]);
    check(b"pre\"fix\" y\n", &[b"prefix", b"y"]);
    check(b"a\\b\n", &[b"a\\b"]);
}

#[test]
fn wrong_requests() {
    refuse(b"*x\r\n", "invalid multibulk length");
    refuse(b"*\r\n", "invalid multibulk length");
    refuse(b"*01\r\n", "invalid multibulk length");
    refuse(b"*+1\r\n", "invalid multibulk length");
    refuse(b"* 1\r\n", "invalid multibulk length");
    refuse(b"*2147483648\r\n", "invalid multibulk length");
    refuse(b"*20000000000000000000\r\n", "invalid multibulk length");
    refuse(b"*1\r\nfooz\r\n", "expected '$', got 'f'");
    refuse(b"*2\r\n$1\r\na\r\n\xff\r\n", "expected '$', got '?'");
    refuse(b"*1\r\n\r\n", "expected '$', got '\r'");
    refuse(b"*1\r\n$-1\r\n", "invalid bulk length");
    refuse(b"*1\r\n$\r\n", "invalid bulk length");
    refuse(b"*1\r\n$00\r\n", "invalid bulk length");
    refuse(b"*1\r\n$blabla\r\n", "invalid bulk length");
    refuse(b"*1\r\n$536870913\r\n", "invalid bulk length");
    refuse(b"*1\r\n$9223372036854775807\r\n", "invalid bulk length");
    refuse(b"*1\r\n$9999999999999999999\r\n", "invalid bulk length");
    refuse(b"\"a\n", "unbalanced quotes in request");
    refuse(b"'a\n", "unbalanced quotes in request");
    refuse(b"\"a\"b\n", "unbalanced quotes in request");
    refuse(b"'a''b'\n", "unbalanced quotes in request");
    refuse(b"\"a\\\"\n", "unbalanced quotes in request");
}

#[test]
fn counts_at_their_limits() {
    assert_eq!(whole(b"*2147483647\r\n", &LIMITS), Ok(None));
    assert_eq!(whole(b"*1\r\n$536870912\r\n", &LIMITS), Ok(None));
    let no_limit = Limits {
        max_bulk_len: usize::MAX,
        ..LIMITS
    };
    let request = b"*1\r\n$9223372036854775807\r\nabc";
    let mut parser = Parser::new();
    assert_eq!(parser.advance(request, &no_limit), Ok(Progress::Incomplete));
}

#[test]
fn long_lines() {
    let line = |start: &[u8], len: usize, end: &[u8]| [start, &vec![b'1'; len], end].concat();
    let fits = line(b"", MAX_LINE_LEN, b"\n");
    assert!(matches!(whole(&fits, &LIMITS), Ok(Some((_, 65537)))));
    for (start, text) in [
        (&b""[..], "too big inline request"),
        (b"*", "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
    ] {
        for end in [&b""[..], b"\r\n"] {
            let request = line(start, MAX_LINE_LEN + 1, end);
            let error = whole(&request, &LIMITS).expect_err("accepted");
            assert_eq!(error.to_string(), format!("Protocol error: {text}"));
            let cuts = (0..request.len()).step_by(997);
            assert_eq!(in_pieces(&request, cuts, &LIMITS), Err(error));
        }
    }
}

/// A peer that has lost the framing sends bytes that never form a request; it must be
/// disconnected, and not read for ever.
#[test]
fn nul_ends_in_an_error() {
    let junk = [vec![b'A'; 1024], b"\r\n".to_vec()].concat().repeat(80);
    for (start, text) in [
        (&b"\0"[..], "too big inline request"),
        (b"*\0", "too big mbulk count string"),
        (b"$\0", "too big inline request"),
    ] {
        let request = [start, &junk].concat();
        let error = whole(&request, &LIMITS).expect_err("accepted");
        assert_eq!(error.to_string(), format!("Protocol error: {text}"));
        let cuts = (0..request.len()).step_by(1000);
        assert_eq!(in_pieces(&request, cuts, &LIMITS), Err(error));
    }
}

#[test]
fn before_authentication() {
    let limits = Limits {
        authenticated: false,
        ..LIMITS
    };
    assert_eq!(whole(b"*10\r\n", &limits), Ok(None));
    assert_eq!(whole(b"*1\r\n$16384\r\n", &limits), Ok(None));
    refuse_under(b"*11\r\n", &limits, "unauthenticated multibulk length");
    refuse_under(b"*1\r\n$16385\r\n", &limits, "unauthenticated bulk length");
}

#[test]
fn a_big_argument_arrives_in_parts() {
    let mut parser = Parser::new();
    let mut buf = b"*2\r\n$3\r\nab".to_vec();
    assert_eq!(parser.advance(&buf, &LIMITS), Ok(Progress::Incomplete));
    buf.extend_from_slice(b"c\r\n$40000\r\n1234567890");
    assert_eq!(parser.advance(&buf, &LIMITS), Ok(Progress::Incomplete));
    assert_eq!(parser.argc(), 1);
    buf.resize(buf.len() + 39992, b'x');
    let consumed = buf.len();
    let done = Ok(Progress::Complete { consumed });
    assert_eq!(parser.advance(&buf, &LIMITS), done);
    assert_eq!(parser.advance(&buf, &LIMITS), done);
    parser.reset();
    assert_eq!(parser.argc(), 0);
    assert_eq!(
        outcome(&mut parser, b"*0\r\n", &LIMITS),
        Ok(Some((vec![], 4)))
    );
}

/// A connection uses one parser for all its requests.
#[test]
fn pipelined_requests() {
    let buf = b"*1\r\n$1\r\na\r\n'b c' d\r\n\r\n*1\r\n$1\r\ne\r\nf\r\n";
    let mut parser = Parser::new();
    let mut rest = &buf[..];
    let mut seen = Vec::new();
    while let Some((args, consumed)) = outcome(&mut parser, rest, &LIMITS).unwrap() {
        seen.push(args.join(&b'|'));
        rest = &rest[consumed..];
        parser.reset();
    }
    assert_eq!(seen, [&b"a"[..], b"b c|d", b"", b"e", b"f"]);
}

fn request_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => "\\*[0-3]\r\n",
        6 => "\\$1\r\n[a-z]\r\n",
        2 => "\\$[0-9]{1,2}\r\n[a-z]{0,12}\r\n",
        1 => "[*$][-+0-9a\\x00]{0,4}\r?\n?",
        1 => "[a'\" \\\\x\\x00\r]{0,10}\r?\n",
        1 => "[\\x00-\\x7f]{0,4}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn cuts_change_nothing(buf in prop_oneof![request_like(), any::<Vec<u8>>()], authenticated: bool) {
        let limits = Limits { max_bulk_len: 20, authenticated };
        let expected = whole(&buf, &limits);
        for cut in 0..=buf.len() {
            prop_assert_eq!(in_pieces(&buf, std::iter::once(cut), &limits), expected.clone());
        }
        prop_assert_eq!(in_pieces(&buf, 0..buf.len(), &limits), expected);
    }

    #[test]
    fn what_a_glance_sees_is_there(buf in prop_oneof![request_like(), any::<Vec<u8>>()]) {
        if let Some((key, len)) = glance(&buf) {
            let request = whole(&buf, &LIMITS);
            let Ok(Some((args, consumed))) = request else {
                panic!("not whole: {request:?}");
            };
            prop_assert_eq!(args.get(1).map(Vec::as_slice), Some(key));
            prop_assert_eq!(consumed, len);
        }
    }

    #[test]
    fn arguments_round_trip(args in prop::collection::vec(any::<Vec<u8>>(), 1..40)) {
        let mut buf = format!("*{}\r\n", args.len()).into_bytes();
        for arg in &args {
            buf.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            buf.extend_from_slice(arg);
            buf.extend_from_slice(b"\r\n");
        }
        let len = buf.len();
        for cut in 0..len {
            prop_assert_eq!(glance(&buf[..cut]), None);
        }
        let seen = args.get(1).map(|key| (key.as_slice(), len));
        prop_assert_eq!(glance(&buf), seen);
        prop_assert_eq!(whole(&buf, &LIMITS), Ok(Some((args, len))));
    }

    #[test]
    fn quoted_words_round_trip(args in prop::collection::vec(any::<Vec<u8>>(), 1..8)) {
        let mut line = Vec::new();
        for arg in &args {
            line.push(b'"');
            for byte in arg {
                line.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
            }
            line.extend_from_slice(b"\" ");
        }
        line.push(b'\n');
        let len = line.len();
        prop_assert_eq!(whole(&line, &LIMITS), Ok(Some((args, len))));
    }
}
