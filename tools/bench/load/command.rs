//! The requests: a command with keys and values to fill in.

use crate::keys::Keys;

/// Digits of a key's number.
const DIGITS: usize = 12;
/// Values are slices of this many random bytes, and of the length of a value more.
const POOL_BYTES: usize = 1 << 22;

/// A piece of the encoded request.
#[derive(Clone)]
enum Piece {
    Bytes(Vec<u8>),
    /// The number of the next key.
    Next,
    /// The number of that key again.
    Same,
    Value,
}

/// Encodes requests.
pub struct Command {
    pieces: Vec<Piece>,
    keys: Keys,
    pool: Vec<u8>,
    value_bytes: usize,
    /// The length of an `mget`'s reply.
    pub elements: Option<u64>,
}

impl Command {
    /// `words` are the name of an operation alone, or a command; `count` is the number of keys
    /// of an `mget`.
    pub fn new(
        words: &[String],
        prefix: &str,
        count: u32,
        value_bytes: usize,
        mut keys: Keys,
    ) -> Command {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (words, elements) = match words.as_slice() {
            ["get"] => (vec!["GET", "{key}"], None),
            ["set"] => (vec!["SET", "{key}", "{value}"], None),
            ["incr"] => (vec!["INCR", "{key}"], None),
            ["mget"] => {
                let mut words = vec!["{key}"; count as usize + 1];
                words[0] = "MGET";
                (words, Some(u64::from(count)))
            }
            _ => (words, None),
        };
        let mut pool = vec![0; POOL_BYTES + value_bytes];
        keys.random.fill(&mut pool);
        Command {
            pieces: pieces(&words, prefix, value_bytes),
            keys,
            pool,
            value_bytes,
            elements,
        }
    }

    /// Appends the next request.
    pub fn append(&mut self, out: &mut Vec<u8>) {
        let mut number = [b'0'; DIGITS];
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Next => {
                    number = digits(self.keys.next());
                    out.extend_from_slice(&number);
                }
                Piece::Same => out.extend_from_slice(&number),
                Piece::Value => {
                    let at = self.keys.random.usize(..=POOL_BYTES);
                    out.extend_from_slice(&self.pool[at..at + self.value_bytes]);
                }
            }
        }
    }
}

/// The encoded command. Keys and values have fixed lengths, so all lengths are known.
fn pieces(words: &[&str], prefix: &str, value_bytes: usize) -> Vec<Piece> {
    let slots = [
        ("{key}", prefix, Piece::Next, DIGITS),
        ("{same}", prefix, Piece::Same, DIGITS),
        ("{value}", "", Piece::Value, value_bytes),
    ];
    let mut pieces = Vec::new();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let length = slots
            .iter()
            .fold(word.len(), |length, (name, before, _, filled)| {
                let count = word.matches(name).count();
                length - count * name.len() + count * (before.len() + filled)
            });
        bytes.extend_from_slice(format!("${length}\r\n").as_bytes());
        let mut rest = *word;
        while let Some(at) = rest.find('{') {
            bytes.extend_from_slice(&rest.as_bytes()[..at]);
            rest = &rest[at..];
            let slot = slots.iter().find(|(name, ..)| rest.starts_with(name));
            let Some((name, before, piece, _)) = slot else {
                bytes.push(b'{');
                rest = &rest[1..];
                continue;
            };
            bytes.extend_from_slice(before.as_bytes());
            pieces.extend([Piece::Bytes(std::mem::take(&mut bytes)), piece.clone()]);
            rest = &rest[name.len()..];
        }
        bytes.extend_from_slice(rest.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    pieces.push(Piece::Bytes(bytes));
    pieces
}

/// The number of a key, in [`DIGITS`] digits.
fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut text = [b'0'; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Order;

    fn encoded(words: &[&str], value_bytes: usize) -> String {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        let keys = Keys::new(7, 100, Order::Sequential, 1.0);
        let mut command = Command::new(&words, "k:", 2, value_bytes, keys);
        let mut out = Vec::new();
        command.append(&mut out);
        String::from_utf8(out).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn requests_are_encoded() {
        assert_eq!(encoded(&["get"], 0), "*2 $3 GET $14 k:000000000007 ");
        assert_eq!(
            encoded(&["mget"], 0),
            "*3 $4 MGET $14 k:000000000007 $14 k:000000000008 "
        );
        assert_eq!(
            encoded(&["HSET", "h:{key}:{", "{f{value}}", "ä"], 0),
            "*4 $4 HSET $18 h:k:000000000007:{ $3 {f} $2 ä "
        );
        assert_eq!(
            encoded(&["MSET", "{key}", "1", "{same}:n", "2"], 0),
            "*5 $4 MSET $14 k:000000000007 $1 1 $16 k:000000000007:n $1 2 "
        );
        let keys = Keys::new(0, 1, Order::Uniform, 1.0);
        let mut out = Vec::new();
        Command::new(&["set".to_string()], "", 1, 500, keys).append(&mut out);
        assert!(out.starts_with(b"*3\r\n$3\r\nSET\r\n$12\r\n000000000000\r\n$500\r\n"));
        assert_eq!(
            out.len(),
            b"*3\r\n$3\r\nSET\r\n$12\r\n000000000000\r\n$500\r\n\r\n".len() + 500
        );
    }
}
