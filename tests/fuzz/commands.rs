//! Mutations of streams of commands that keep the lengths of arguments and the checksums
//! valid, so that most inputs get past the parser.

use kedis::base::hash::crc64;
use kedis::resp::encode::command;
use kedis::resp::{Limits, Parser, Progress};
use libfuzzer_sys::fuzzer_mutate;

/// One of this many inputs is mutated as plain bytes.
const PLAIN: u64 = 8;

/// A piece of a stream.
#[derive(Clone)]
pub enum Item {
    /// A line, with its end.
    Line(Vec<u8>),
    /// `$`, a length, and that many bytes, without CRLF: a file that a master sends.
    File(Vec<u8>),
    Command(Vec<Vec<u8>>),
    /// Other bytes.
    Rest(Vec<u8>),
}

impl Item {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Item::Line(bytes) | Item::Rest(bytes) => out.extend_from_slice(bytes),
            Item::File(bytes) => {
                out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(bytes);
            }
            Item::Command(args) => {
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                command(out, &args);
            }
        }
    }
}

/// The pieces of a stream.
pub fn items(mut rest: &[u8]) -> Vec<Item> {
    let mut items = Vec::new();
    while let Some((item, len)) = first(rest) {
        items.push(item);
        rest = &rest[len..];
    }
    if !rest.is_empty() {
        items.push(Item::Rest(rest.to_vec()));
    }
    items
}

fn first(rest: &[u8]) -> Option<(Item, usize)> {
    let line = memchr::memchr(b'\n', rest)? + 1;
    match rest.first()? {
        b'*' => {
            let limits = Limits {
                max_bulk_len: rest.len(),
                authenticated: true,
            };
            let mut parser = Parser::new();
            match parser.advance(rest, &limits) {
                Ok(Progress::Complete { consumed }) if parser.argc() > 0 => {
                    let args = parser.args_of(rest).map(<[u8]>::to_vec).collect();
                    Some((Item::Command(args), consumed))
                }
                _ => None,
            }
        }
        b'$' => {
            let len = std::str::from_utf8(&rest[1..line]).ok()?.trim();
            match len.parse::<usize>() {
                Ok(len) => {
                    let file = rest.get(line..line.checked_add(len)?)?;
                    Some((Item::File(file.to_vec()), line + len))
                }
                // `$EOF:` and an end mark.
                Err(_) => Some((Item::Line(rest[..line].to_vec()), line)),
            }
        }
        _ => Some((Item::Line(rest[..line].to_vec()), line)),
    }
}

/// Mutates the `size` bytes of `data`, which has room for `max_size`; returns the new size.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut rng = fastrand::Rng::with_seed(u64::from(seed));
    let mut items = items(&data[..size]);
    if rng.u64(..PLAIN) == 0 || items.is_empty() {
        return fuzzer_mutate(data, size, max_size);
    }
    let (one, other) = (rng.usize(..items.len()), rng.usize(..items.len()));
    match rng.u32(..8) {
        0 => drop(items.remove(one)),
        1 => items.insert(one, items[other].clone()),
        2 => items.swap(one, other),
        3 => {
            // Inserts an argument of another command.
            if let Item::Command(from) = &items[other]
                && let Some(arg) = rng.choice(from).cloned()
                && let Item::Command(args) = &mut items[one]
            {
                let at = rng.usize(..=args.len());
                match at < args.len() && rng.bool() {
                    true => args[at] = arg,
                    false => args.insert(at, arg),
                }
            }
        }
        _ => change(&mut items[one], max_size, &mut rng),
    }
    let mut out = Vec::with_capacity(max_size);
    items.iter().for_each(|item| item.write(&mut out));
    out.truncate(max_size);
    data[..out.len()].copy_from_slice(&out);
    out.len()
}

fn change(item: &mut Item, max_size: usize, rng: &mut fastrand::Rng) {
    match item {
        Item::Line(bytes) | Item::File(bytes) | Item::Rest(bytes) => change_bytes(bytes, max_size),
        Item::Command(args) => {
            // The first argument is the command's name, and changes less often.
            let at = match rng.u32(..10) {
                0 => 0,
                _ => rng.usize(..args.len()),
            };
            change_bytes(&mut args[at], max_size);
            // A chunk of a data set: its checksum is updated.
            if let [name, _, rows, checksum] = args.as_mut_slice()
                && name == b"REPL_SNAPSHOT_ROWS"
            {
                *checksum = crc64(0, rows).to_be_bytes().to_vec();
            }
        }
    }
}

fn change_bytes(bytes: &mut Vec<u8>, max_size: usize) {
    let len = bytes.len();
    let max = max_size.min(len + 64);
    if len == 0 || len > max {
        return;
    }
    bytes.resize(max, 0);
    let len = fuzzer_mutate(bytes, len, max);
    bytes.truncate(len);
}
