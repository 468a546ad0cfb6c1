//! Reply writer: appends replies, in the connection's protocol version, to one buffer.
//!
//! The buffer is append-only except for [`Reply::truncate`], [`Reply::insert`] and the headers
//! of replies whose length is known last. Handlers do not check the protocol version for a type
//! that has a method here.

use super::encode;
use super::room::{Lender, Room};
use crate::base::num::format_f64;
use std::collections::TryReserveError;
use std::sync::Arc;

/// For bulk strings of at least so many bytes, the buffer grows by little more than they need.
const LONG: usize = 1 << 20;
/// Bytes besides shorter ones: their head and end, and a number that follows.
const BESIDES: usize = 128;
/// Bytes besides long ones: their head and end, and what short elements follow.
const AFTER_LONG: usize = 4 << 10;

/// A buffer of replies, and the protocol version in which they are written.
#[derive(Debug, Default)]
pub struct Reply {
    /// The encoded replies.
    pub buf: Vec<u8>,
    /// Whether the connection speaks RESP3; otherwise RESP2.
    pub resp3: bool,
    /// Approximate limit of the buffer, in bytes; 0 means none. Elements beyond it are left
    /// out, and the owner of the buffer must not send the reply then.
    pub limit: usize,
    /// Whether an element was left out.
    pub overflowed: bool,
    /// Bytes of the first element that was left out.
    pub left_out: usize,
    /// The memory by which the limit can grow.
    room: Option<Room>,
}

/// The position of a header that is written last.
#[derive(Debug, Clone, Copy)]
#[must_use = "the header must be written with end_array, end_map or end_set"]
pub struct Mark(usize);

impl Reply {
    /// An empty buffer for a protocol version.
    pub fn new(resp3: bool) -> Self {
        Self {
            resp3,
            ..Self::default()
        }
    }

    /// Bounds what is written from here on: by `free` bytes ([`super::FREE_BYTES`] if the reply
    /// soon counts as its client's memory), and beyond that by what `lender` lends.
    pub fn bound<L: Lender + 'static>(&mut self, lender: &Arc<L>, free: usize) {
        self.give_back();
        self.room
            .get_or_insert_with(|| Room::new(Arc::<L>::clone(lender)));
        self.limit = (self.buf.len() + free).max(1);
    }

    /// As [`Reply::bound`], for a reply to which `lender` has lent so many bytes already.
    pub fn bound_with<L: Lender + 'static>(&mut self, lender: &Arc<L>, lent: usize) {
        self.bound(lender, lent);
        if let Some(room) = &mut self.room {
            room.take(lent);
        }
    }

    /// Returns the borrowed memory: the replies are gone.
    pub fn give_back(&mut self) {
        if let Some(room) = &mut self.room {
            room.give_back();
        }
    }

    /// Leaves the borrowed memory to the caller, who counts it as the client's. Returns how many
    /// bytes these are.
    pub fn hand_over(&mut self) -> usize {
        self.room.as_mut().map_or(0, Room::hand_over)
    }

    /// Whether it holds borrowed memory.
    pub fn has_borrowed(&self) -> bool {
        self.room.as_ref().is_some_and(Room::has_borrowed)
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.buf.extend_from_slice(b"+OK\r\n");
    }

    /// A status reply; CR and LF become spaces.
    pub fn simple(&mut self, text: &str) {
        self.simple_bytes(text.as_bytes());
    }

    /// As [`Reply::simple`], for bytes that need not be UTF-8.
    pub fn simple_bytes(&mut self, text: &[u8]) {
        self.buf.push(b'+');
        self.line(text);
    }

    /// An error reply. The text begins with its code (`ERR …`), without the
    /// dash; CR and LF become spaces.
    #[cold]
    pub fn error(&mut self, text: &str) {
        self.buf.push(b'-');
        self.line(text.as_bytes());
    }

    /// As [`Reply::error`], for texts that quote bytes of a client.
    #[cold]
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.buf.push(b'-');
        self.line(text);
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        match usize::try_from(value) {
            Ok(value) => self.header(b':', value),
            Err(_) => {
                self.buf.push(b':');
                self.buf
                    .extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
                self.crlf();
            }
        }
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if !self.has_room(bytes.len()) {
            return;
        }
        // If memory is lacking, the buffer reports that when it is written to.
        let _ = self.reserve(bytes.len());
        self.header(b'$', bytes.len());
        self.buf.extend_from_slice(bytes);
        self.crlf();
    }

    /// A bulk string of `len` bytes, which `append` appends to the buffer.
    ///
    /// # Errors
    /// Those of `append`.
    pub fn bulk_with<E>(
        &mut self,
        len: usize,
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.has_room(len) {
            return Ok(());
        }
        // If memory is lacking, `append` reports that.
        let _ = self.reserve(len);
        self.header(b'$', len);
        append(&mut self.buf)?;
        self.crlf();
        Ok(())
    }

    /// Makes room for a bulk string of `len` bytes with its head and end: the last two bytes must not
    /// double the buffer. To double it for a long one could take the length of all elements before it
    /// once more.
    #[inline]
    fn reserve(&mut self, len: usize) -> Result<(), TryReserveError> {
        match len < LONG {
            true if self.buf.capacity() - self.buf.len() >= len + BESIDES => Ok(()),
            true if self.limit == 0 => self.buf.try_reserve(len + BESIDES),
            true => {
                // What is beyond the limit is not lent. That grows as buffers do.
                let doubled = (2 * self.buf.capacity()).min(self.limit);
                let more = doubled.saturating_sub(self.buf.len());
                self.buf.try_reserve_exact(more.max(len + BESIDES))
            }
            false => {
                let least = len.saturating_add(AFTER_LONG);
                let spare = match self.limit {
                    0 => self.buf.len() / 4,
                    limit => limit.saturating_sub(self.buf.len()).min(self.buf.len() / 4),
                };
                match self.buf.capacity() - self.buf.len() < least {
                    true => self.buf.try_reserve_exact(least.max(spare)),
                    false => Ok(()),
                }
            }
        }
    }

    /// Whether `bytes` more are within the limit, without borrowing memory.
    #[inline]
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.limit == 0 || self.buf.len().saturating_add(bytes) <= self.limit
    }

    /// Whether `bytes` more are within the limit; otherwise the element is left out.
    #[inline]
    fn has_room(&mut self, bytes: usize) -> bool {
        self.has_room_for(bytes) || self.find_room(self.buf.len().saturating_add(bytes))
    }

    #[cold]
    fn find_room(&mut self, wanted: usize) -> bool {
        let more = match (&mut self.room, self.overflowed) {
            (Some(room), false) => room.extend(self.limit, wanted - self.limit),
            _ => None,
        };
        if more.is_none() && !self.overflowed {
            self.left_out = wanted - self.buf.len();
        }
        self.overflowed = more.is_none();
        self.limit = more.unwrap_or(self.limit);
        more.is_some()
    }

    /// A bulk string that is an integer.
    pub fn bulk_i64(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// No value: `$-1`, in RESP3 `_`.
    #[inline]
    pub fn null(&mut self) {
        self.either(b"$-1\r\n", b"_\r\n");
    }

    /// No array: `*-1`, in RESP3 `_`.
    pub fn null_array(&mut self) {
        self.either(b"*-1\r\n", b"_\r\n");
    }

    /// The header of an array of `len` replies.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// The header of a map of `len` pairs; in RESP2 an array of twice as many.
    pub fn map(&mut self, len: usize) {
        self.map_header(len);
    }

    /// The header of a set of `len` members; in RESP2 an array.
    pub fn set(&mut self, len: usize) {
        self.header(if self.resp3 { b'~' } else { b'*' }, len);
    }

    /// The header of an out-of-band message of `len` parts; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        self.header(if self.resp3 { b'>' } else { b'*' }, len);
    }

    /// A double; in RESP2 a bulk string of the same text.
    pub fn double(&mut self, value: f64) {
        if self.resp3 {
            self.buf.push(b',');
            format_f64(value, &mut self.buf);
            self.crlf();
        } else {
            let start = self.buf.len();
            format_f64(value, &mut self.buf);
            let len = self.buf.len() - start;
            self.insert_header(start, b'$', len);
            self.crlf();
        }
    }

    /// A double of which this is the text; in RESP2 a bulk string.
    pub fn double_text(&mut self, text: &[u8]) {
        if self.resp3 {
            self.buf.push(b',');
            self.line(text);
        } else {
            self.bulk(text);
        }
    }

    /// A truth value: `#t`/`#f`, in RESP2 `:1`/`:0`.
    pub fn boolean(&mut self, value: bool) {
        if value {
            self.either(b":1\r\n", b"#t\r\n");
        } else {
            self.either(b":0\r\n", b"#f\r\n");
        }
    }

    /// Text with a type of three letters (`txt`, `mkd`); in RESP2 a bulk string.
    pub fn verbatim(&mut self, ext: &str, bytes: &[u8]) {
        if !self.resp3 {
            return self.bulk(bytes);
        }
        if !self.has_room(bytes.len()) {
            return;
        }
        let mut kind = *b"   :";
        for (to, from) in kind.iter_mut().zip(ext.bytes().take(3)) {
            *to = from;
        }
        self.header(b'=', bytes.len() + kind.len());
        self.buf.extend_from_slice(&kind);
        self.buf.extend_from_slice(bytes);
        self.crlf();
    }

    /// An integer of any size, as decimal text; in RESP2 a bulk string.
    pub fn big_number(&mut self, digits: &str) {
        if self.resp3 {
            self.buf.push(b'(');
            self.line(digits.as_bytes());
        } else {
            self.bulk(digits.as_bytes());
        }
    }

    /// Bytes that are already encoded replies.
    pub fn raw(&mut self, encoded: &[u8]) {
        self.buf.extend_from_slice(encoded);
    }

    /// Appends another buffer, including its borrowed memory.
    pub fn append(&mut self, other: Reply) {
        match self.buf.is_empty() {
            true => self.buf = other.buf,
            false => self.buf.extend_from_slice(&other.buf),
        }
        self.overflowed |= other.overflowed;
        match (&mut self.room, other.room) {
            (Some(room), Some(others)) => room.join(others),
            (room, others) => *room = room.take().or(others),
        }
    }

    /// Inserts encoded bytes at offset `at`.
    pub fn insert(&mut self, at: usize, encoded: &[u8]) {
        let at = at.min(self.buf.len());
        self.buf.splice(at..at, encoded.iter().copied());
    }

    /// Length of all replies so far, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing was written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Takes back everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.buf.truncate(len);
    }

    /// Starts a reply whose length is known at its end. Marks may nest; the inner one ends
    /// first. Ending moves the bytes of the elements once.
    pub fn begin(&mut self) -> Mark {
        Mark(self.buf.len())
    }

    /// Ends a reply as an array of `len` elements.
    pub fn end_array(&mut self, mark: Mark, len: usize) {
        self.insert_header(mark.0, b'*', len);
    }

    /// Ends a reply as a map of `len` pairs.
    pub fn end_map(&mut self, mark: Mark, len: usize) {
        if self.resp3 {
            self.insert_header(mark.0, b'%', len);
        } else {
            self.insert_header(mark.0, b'*', len * 2);
        }
    }

    /// Ends a reply as a set of `len` members.
    pub fn end_set(&mut self, mark: Mark, len: usize) {
        self.insert_header(mark.0, if self.resp3 { b'~' } else { b'*' }, len);
    }

    fn map_header(&mut self, len: usize) {
        if self.resp3 {
            self.header(b'%', len);
        } else {
            self.header(b'*', len * 2);
        }
    }

    fn insert_header(&mut self, at: usize, kind: u8, len: usize) {
        let end = self.buf.len();
        self.header(kind, len);
        let header_len = self.buf.len() - end;
        if let Some(tail) = self.buf.get_mut(at..) {
            tail.rotate_right(header_len);
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, count: usize) {
        encode::head(&mut self.buf, kind, count);
    }

    #[inline]
    fn either(&mut self, resp2: &[u8], resp3: &[u8]) {
        self.buf
            .extend_from_slice(if self.resp3 { resp3 } else { resp2 });
    }

    fn line(&mut self, text: &[u8]) {
        let start = self.buf.len();
        self.buf.extend_from_slice(text);
        for byte in self.buf.iter_mut().skip(start) {
            if matches!(*byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.crlf();
    }

    #[inline]
    fn crlf(&mut self) {
        self.buf.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::decode::{Value, decode};
    use proptest::prelude::*;

    #[track_caller]
    fn check(write: impl Fn(&mut Reply), resp2: &str, resp3: &str) {
        for (version3, expected) in [(false, resp2), (true, resp3)] {
            let mut reply = Reply::new(version3);
            write(&mut reply);
            assert_eq!(String::from_utf8_lossy(&reply.buf), expected);
        }
    }

    /// The buffer used to double: a client whose replies fit could be closed for what was empty.
    #[test]
    fn a_buffer_takes_no_more_than_is_lent() {
        struct Little;
        impl Lender for Little {
            fn lend(&self, least: usize, _most: usize) -> Option<usize> {
                Some(least.max(100_000))
            }
            fn take_back(&self, _bytes: usize) {}
        }
        let mut reply = Reply::new(false);
        reply.bound(&Arc::new(Little), 50_000);
        for member in [&[b'v'; 10_000][..], &[b'v'; 2 * LONG]] {
            for n in 0..1000 * 10_000 / member.len() {
                reply.bulk(member);
                reply.double(n as f64 / 3.0);
                let (taken, limit) = (reply.buf.capacity(), reply.limit);
                assert!(taken <= limit + AFTER_LONG + 32, "{taken} of {limit}");
            }
        }
    }

    /// A score after a long member doubled the buffer.
    #[test]
    fn long_elements_do_not_double_the_buffer() {
        let member = vec![b'm'; 8 * LONG];
        let mut reply = Reply::new(false);
        for with_scores in 1..8 {
            reply.bulk(&member);
            reply.bulk(b"1.5");
            let len = reply.buf.len();
            let spare = reply.buf.capacity() - len;
            assert!(spare <= (len / 4).max(AFTER_LONG), "{with_scores}: {spare}");
        }
    }

    #[test]
    fn one_text_for_both_versions() {
        for (write, expected) in [
            ((|r| r.ok()) as fn(&mut Reply), "+OK\r\n"),
            (|r| r.simple("a\r\nb"), "+a  b\r\n"),
            (|r| r.error("ERR x\ny"), "-ERR x y\r\n"),
            (|r| r.error_bytes(b"ERR x\0"), "-ERR x\0\r\n"),
            (|r| r.int(0), ":0\r\n"),
            (|r| r.int(42), ":42\r\n"),
            (|r| r.int(100), ":100\r\n"),
            (|r| r.int(-1), ":-1\r\n"),
            (|r| r.int(i64::MIN), ":-9223372036854775808\r\n"),
            (|r| r.bulk(b""), "$0\r\n\r\n"),
            (|r| r.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n"),
            (|r| r.bulk_i64(-10), "$3\r\n-10\r\n"),
            (|r| r.array(0), "*0\r\n"),
            (|r| r.array(12345), "*12345\r\n"),
            (|r| r.raw(b"+x\r\n"), "+x\r\n"),
        ] {
            check(write, expected, expected);
        }
        check(
            |r| r.bulk(&[b'x'; 100]),
            &format!("$100\r\n{}\r\n", "x".repeat(100)),
            &format!("$100\r\n{}\r\n", "x".repeat(100)),
        );
    }

    #[test]
    fn types_of_resp3() {
        check(|r| r.null(), "$-1\r\n", "_\r\n");
        check(|r| r.null_array(), "*-1\r\n", "_\r\n");
        check(|r| r.map(2), "*4\r\n", "%2\r\n");
        check(|r| r.set(2), "*2\r\n", "~2\r\n");
        check(|r| r.push(3), "*3\r\n", ">3\r\n");
        check(|r| r.boolean(true), ":1\r\n", "#t\r\n");
        check(|r| r.boolean(false), ":0\r\n", "#f\r\n");
        check(|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(|r| r.double(-0.0), "$2\r\n-0\r\n", ",-0\r\n");
        check(|r| r.double(f64::INFINITY), "$3\r\ninf\r\n", ",inf\r\n");
        check(
            |r| r.double(f64::NEG_INFINITY),
            "$4\r\n-inf\r\n",
            ",-inf\r\n",
        );
        check(|r| r.double(f64::NAN), "$3\r\nnan\r\n", ",nan\r\n");
        check(
            |r| r.verbatim("txt", b"hello"),
            "$5\r\nhello\r\n",
            "=9\r\ntxt:hello\r\n",
        );
        check(
            |r| r.big_number("-123456789012345678901234567890"),
            "$31\r\n-123456789012345678901234567890\r\n",
            "(-123456789012345678901234567890\r\n",
        );
    }

    #[test]
    fn headers_written_last() {
        check(
            |r| {
                r.ok();
                let outer = r.begin();
                r.int(1);
                let inner = r.begin();
                r.int(2);
                r.int(3);
                r.end_set(inner, 2);
                let empty = r.begin();
                r.end_map(empty, 0);
                let pair = r.begin();
                r.bulk(b"k");
                r.bulk(b"v");
                r.end_map(pair, 1);
                r.end_array(outer, 4);
            },
            "+OK\r\n*4\r\n:1\r\n*2\r\n:2\r\n:3\r\n*0\r\n*2\r\n$1\r\nk\r\n$1\r\nv\r\n",
            "+OK\r\n*4\r\n:1\r\n~2\r\n:2\r\n:3\r\n%0\r\n%1\r\n$1\r\nk\r\n$1\r\nv\r\n",
        );
    }

    #[test]
    fn truncation() {
        let mut reply = Reply::new(false);
        assert!(reply.is_empty());
        reply.ok();
        let len = reply.len();
        reply.int(7);
        reply.truncate(len);
        assert_eq!(reply.buf, b"+OK\r\n");
    }

    proptest! {
        #[test]
        fn replies_read_back(number: i64, double: f64, bytes: Vec<u8>, resp3: bool) {
            let mut reply = Reply::new(resp3);
            let mark = reply.begin();
            reply.int(number);
            reply.bulk_i64(number);
            reply.bulk(&bytes);
            reply.verbatim("txt", &bytes);
            reply.null();
            reply.double(double);
            reply.end_array(mark, 6);
            let (value, len) = decode(&reply.buf).unwrap().unwrap();
            prop_assert_eq!(len, reply.len());
            let items = value.as_slice().unwrap();
            prop_assert_eq!(&items[0], &Value::Int(number));
            prop_assert_eq!(items[1].as_i64(), Some(number));
            prop_assert_eq!(items[2].as_bytes(), Some(bytes.as_slice()));
            prop_assert_eq!(items[3].as_bytes(), Some(bytes.as_slice()));
            prop_assert_eq!(&items[4], &Value::Null);
            if resp3 {
                prop_assert_eq!(&items[5], &Value::Double(double));
            }
        }
    }
}
