//! JSON documents of the model: a number, an array and an object, which grow into many rows and
//! shrink again.

use super::model::Command;
use crate::support::Value;

/// A document. Its strings have no quotes and no commas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    number: i64,
    items: Vec<String>,
    /// In the order in which they were added.
    members: Vec<(String, String)>,
}

fn text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).unwrap().to_owned()
}

fn answer(number: usize) -> Value {
    Value::Array(vec![Value::Int(number as i64)])
}

impl Document {
    /// Members of the root.
    pub const MEMBERS: usize = 3;

    /// The document that JSON.GET has replied.
    pub fn read(reply: &[u8]) -> Document {
        let reply = text(reply);
        let rest = reply.strip_prefix("{\"n\":").unwrap();
        let (number, rest) = rest.split_once(",\"a\":[").unwrap();
        let (items, rest) = rest.split_once("],\"m\":{").unwrap();
        let members = rest.strip_suffix("}}").unwrap();
        let parts = |list: &str| -> Vec<String> {
            let parts = list.split(',').filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        };
        let member = |part: String| {
            let (name, value) = part.split_once(':').unwrap();
            (name.trim_matches('"').to_owned(), value.to_owned())
        };
        Document {
            number: number.parse().unwrap(),
            items: parts(items),
            members: parts(members).into_iter().map(member).collect(),
        }
    }

    /// Applies a command that [`draw`] has made; returns the expected reply.
    pub fn apply(&mut self, name: &str, args: &[Vec<u8>]) -> Value {
        let member = args[0].strip_prefix(b"$.m.").map(text);
        match (name, member) {
            ("JSON.NUMINCRBY", _) => {
                self.number += text(&args[1]).parse::<i64>().unwrap();
                Value::Bulk(format!("[{}]", self.number).into_bytes())
            }
            ("JSON.ARRAPPEND", _) => {
                self.items.extend(args[1..].iter().map(|item| text(item)));
                answer(self.items.len())
            }
            ("JSON.ARRTRIM", _) => {
                let keep = text(&args[2]).parse::<usize>().unwrap() + 1;
                self.items.truncate(keep);
                answer(self.items.len())
            }
            ("JSON.CLEAR", _) => {
                let cleared = !self.members.is_empty();
                self.members.clear();
                Value::Int(cleared.into())
            }
            ("JSON.SET", Some(member)) => {
                let value = text(&args[1]);
                match self.members.iter_mut().find(|(name, _)| *name == member) {
                    Some((_, old)) => *old = value,
                    None => self.members.push((member, value)),
                }
                Value::ok()
            }
            ("JSON.DEL", Some(member)) => {
                let before = self.members.len();
                self.members.retain(|(name, _)| *name != member);
                Value::Int((before - self.members.len()) as i64)
            }
            other => panic!("the model does not know {other:?}"),
        }
    }
}

/// The reply to a command that needs a document where there is none.
pub fn without_document(name: &str) -> Value {
    let error: &[u8] = match name {
        "JSON.DEL" => return Value::Int(0),
        "JSON.SET" => b"ERR new objects must be created at the root",
        _ => b"ERR could not perform this operation on a key that doesn't exist",
    };
    Value::Error(error.to_vec())
}

/// The next command for a document.
pub fn draw(key: Vec<u8>, rng: &mut fastrand::Rng) -> Command {
    let member = format!("$.m.f{}", rng.u8(..60));
    let word = |rng: &mut fastrand::Rng| {
        let len = if rng.u8(..8) == 0 {
            600
        } else {
            rng.usize(1..30)
        };
        format!("\"{}\"", "x".repeat(len))
    };
    let (name, more): (_, Vec<String>) = match rng.u8(..12) {
        0 | 1 => (
            "JSON.SET",
            vec!["$".into(), r#"{"n":0,"a":[],"m":{}}"#.into()],
        ),
        2..=4 => {
            let by = rng.i16(..).to_string();
            ("JSON.NUMINCRBY", vec!["$.n".into(), by])
        }
        5 | 6 => {
            let many = if rng.u8(..4) == 0 { 300 } else { 3 };
            let items = (0..many).map(|_| word(rng));
            (
                "JSON.ARRAPPEND",
                std::iter::once("$.a".into()).chain(items).collect(),
            )
        }
        7 => {
            let last = rng.u16(..400).to_string();
            ("JSON.ARRTRIM", vec!["$.a".into(), "0".into(), last])
        }
        8..=9 => ("JSON.SET", vec![member, word(rng)]),
        10 => ("JSON.DEL", vec![member]),
        _ => ("JSON.CLEAR", vec!["$.m".into()]),
    };
    let mut command = vec![name.as_bytes().to_vec(), key];
    command.extend(more.into_iter().map(String::into_bytes));
    command
}
