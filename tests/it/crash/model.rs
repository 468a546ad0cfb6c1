//! The expected state of one writer's keys: its commands, applied to maps.
//!
//! `Model` knows every command that `Plan` draws and predicts the reply. Keys carry their type
//! in their name, so there are no type errors. No other client writes a writer's keys.

mod newer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use newer::read;
use newer::{Counts, Observed, Stream};

use super::json::Document;
use crate::support::Value;

/// A command with its arguments.
pub type Command = Vec<Vec<u8>>;

/// What a key holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Field>),
    List(VecDeque<Vec<u8>>),
    /// Members, and when each expires, in ms, if it does.
    Set(BTreeMap<Vec<u8>, Option<i64>>),
    /// Scores are whole numbers.
    Zset(BTreeMap<Vec<u8>, i64>),
    SortedInt(BTreeSet<u64>),
    Stream(Stream),
    Document(Document),
    Bloom(BTreeSet<Vec<u8>>),
    Cuckoo(BTreeSet<Vec<u8>>),
    Sketch(Counts),
    Top(Counts),
    Digest(Observed),
}

/// The value of a field, and when the field expires, in ms, if it does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Field {
    pub value: Vec<u8>,
    pub expire_ms: Option<i64>,
}

impl Data {
    /// Elements, or bytes of a string.
    pub fn len(&self) -> usize {
        match self {
            Data::String(bytes) => bytes.len(),
            Data::Hash(map) => map.len(),
            Data::List(items) => items.len(),
            Data::Set(members) => members.len(),
            Data::Zset(scores) => scores.len(),
            Data::SortedInt(ids) => ids.len(),
            Data::Stream(stream) => stream.len(),
            Data::Document(_) => Document::MEMBERS,
            Data::Bloom(items) | Data::Cuckoo(items) => items.len(),
            Data::Sketch(counts) | Data::Top(counts) => counts.len(),
            Data::Digest(observed) => observed.len(),
        }
    }
}

/// A key's content and its absolute expiry in ms, if any.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub data: Data,
    pub expire_ms: Option<i64>,
}

/// Keys by database and name.
pub type Keys = BTreeMap<(i64, Vec<u8>), Entry>;

/// One writer's keys, and the selected database of its connection.
#[derive(Clone, Default)]
pub struct Model {
    pub keys: Keys,
    pub db: i64,
}

fn number(arg: &[u8]) -> i64 {
    std::str::from_utf8(arg).unwrap().parse().unwrap()
}

fn count(n: usize) -> Value {
    Value::Int(i64::try_from(n).unwrap())
}

fn field(value: &[u8], expire_ms: Option<i64>) -> Field {
    let value = value.to_vec();
    Field { value, expire_ms }
}

/// The reply of a command for one field.
fn one(answer: i64) -> Value {
    Value::Array(vec![Value::Int(answer)])
}

/// A method that returns the container inside an entry, which is created if missing.
macro_rules! collection {
    ($name:ident, $variant:ident, $inner:ty) => {
        fn $name(&mut self, key: &[u8]) -> &mut $inner {
            let fresh = || Entry {
                data: Data::$variant(Default::default()),
                expire_ms: None,
            };
            let entry = self
                .keys
                .entry((self.db, key.to_vec()))
                .or_insert_with(fresh);
            match &mut entry.data {
                Data::$variant(inner) => inner,
                other => panic!("a plan mixed types: {other:?}"),
            }
        }
    };
}

impl Model {
    collection!(string, String, Vec<u8>);
    collection!(hash, Hash, BTreeMap<Vec<u8>, Field>);
    collection!(list, List, VecDeque<Vec<u8>>);
    collection!(set, Set, BTreeMap<Vec<u8>, Option<i64>>);
    collection!(zset, Zset, BTreeMap<Vec<u8>, i64>);
    collection!(sorted_int, SortedInt, BTreeSet<u64>);

    /// Applies the command; returns the expected reply.
    pub fn apply(&mut self, command: &Command) -> Value {
        let name = std::str::from_utf8(&command[0]).unwrap();
        let rest = &command[1..];
        match name {
            "SELECT" => {
                self.db = number(&rest[0]);
                Value::ok()
            }
            "SWAPDB" | "FLUSHDB" => self.apply_to_databases(name, rest),
            "DEL" | "PEXPIREAT" | "PERSIST" | "RENAME" | "COPY" | "MOVE" => {
                self.apply_to_keys(name, rest)
            }
            "SET" | "INCR" | "APPEND" | "SETRANGE" => self.apply_to_string(name, rest),
            _ => {
                if let Some(reply) = self.apply_newer(name, rest) {
                    return reply;
                }
                let reply = self.apply_to_collection(name, rest);
                let place = (self.db, rest[0].clone());
                if self.keys.get(&place).is_some_and(|e| e.data.len() == 0) {
                    self.keys.remove(&place);
                }
                reply
            }
        }
    }

    fn apply_to_databases(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        let old = std::mem::take(&mut self.keys);
        if name == "FLUSHDB" {
            let db = self.db;
            self.keys = old.into_iter().filter(|((at, _), _)| *at != db).collect();
            return Value::ok();
        }
        let (a, b) = (number(&rest[0]), number(&rest[1]));
        let swapped = |db| match db {
            db if db == a => b,
            db if db == b => a,
            db => db,
        };
        self.keys = old
            .into_iter()
            .map(|((db, key), entry)| ((swapped(db), key), entry))
            .collect();
        Value::ok()
    }

    fn apply_to_keys(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        let place = (self.db, rest[0].clone());
        match name {
            "DEL" => {
                let db = self.db;
                let gone = rest
                    .iter()
                    .filter(|key| self.keys.remove(&(db, key.to_vec())).is_some());
                count(gone.count())
            }
            "PEXPIREAT" => match self.keys.get_mut(&place) {
                Some(entry) => {
                    entry.expire_ms = Some(number(&rest[1]));
                    Value::Int(1)
                }
                None => Value::Int(0),
            },
            "PERSIST" => match self.keys.get_mut(&place) {
                Some(entry) => count(usize::from(entry.expire_ms.take().is_some())),
                None => Value::Int(0),
            },
            "RENAME" => match self.keys.remove(&place) {
                Some(entry) => {
                    self.keys.insert((self.db, rest[1].clone()), entry);
                    Value::ok()
                }
                None => Value::Error(b"ERR no such key".to_vec()),
            },
            "COPY" => match self.keys.get(&place).cloned() {
                Some(entry) => {
                    self.keys.insert((self.db, rest[1].clone()), entry);
                    Value::Int(1)
                }
                None => Value::Int(0),
            },
            _ => {
                let target = (number(&rest[1]), rest[0].clone());
                if self.keys.contains_key(&target) || !self.keys.contains_key(&place) {
                    return Value::Int(0);
                }
                let entry = self.keys.remove(&place).unwrap();
                self.keys.insert(target, entry);
                Value::Int(1)
            }
        }
    }

    fn apply_to_string(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        let key = &rest[0];
        match name {
            "SET" => {
                let entry = Entry {
                    data: Data::String(rest[1].clone()),
                    expire_ms: rest.get(3).map(|at| number(at)),
                };
                self.keys.insert((self.db, key.clone()), entry);
                Value::ok()
            }
            "INCR" => {
                let text = self.string(key);
                let next = if text.is_empty() { 1 } else { number(text) + 1 };
                *text = next.to_string().into_bytes();
                Value::Int(next)
            }
            "APPEND" => {
                let text = self.string(key);
                text.extend_from_slice(&rest[1]);
                count(text.len())
            }
            _ => {
                let text = self.string(key);
                let at = usize::try_from(number(&rest[1])).unwrap();
                let end = at + rest[2].len();
                if text.len() < end {
                    text.resize(end, 0);
                }
                text[at..end].copy_from_slice(&rest[2]);
                count(text.len())
            }
        }
    }

    fn apply_to_set(&mut self, name: &str, key: &[u8], items: &[Vec<u8>]) -> Value {
        match name {
            "SADD" => {
                let set = self.set(key);
                let before = set.len();
                for member in items {
                    set.entry(member.clone()).or_default();
                }
                count(set.len() - before)
            }
            "SADDEX" => {
                // Only `SADDEX key PXAT at MEMBERS 1 member`.
                self.set(key)
                    .insert(items[4].clone(), Some(number(&items[1])));
                Value::Int(1)
            }
            "SPEXPIREAT" => {
                // Only `SPEXPIREAT key at MEMBERS 1 member`.
                one(match self.set(key).get_mut(&items[3]) {
                    Some(expire_ms) => {
                        *expire_ms = Some(number(&items[0]));
                        1
                    }
                    None => -2,
                })
            }
            "SPERSIST" => {
                // Only `SPERSIST key MEMBERS 1 member`.
                one(match self.set(key).get_mut(&items[2]).map(Option::take) {
                    Some(Some(_)) => 1,
                    Some(None) => -1,
                    None => -2,
                })
            }
            _ => {
                let set = self.set(key);
                count(items.iter().filter(|m| set.remove(*m).is_some()).count())
            }
        }
    }

    fn apply_to_collection(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        let key = &rest[0];
        let items = &rest[1..];
        match name {
            "HSET" => {
                let hash = self.hash(key);
                let new = items.chunks(2).filter(|pair| {
                    hash.insert(pair[0].clone(), field(&pair[1], None))
                        .is_none()
                });
                count(new.count())
            }
            "HSETEX" => {
                // Only `HSETEX key PXAT at FIELDS 1 field value`.
                let value = field(&items[5], Some(number(&items[1])));
                self.hash(key).insert(items[4].clone(), value);
                Value::Int(1)
            }
            "HPEXPIREAT" => {
                // Only `HPEXPIREAT key at FIELDS 1 field`.
                let found = self.hash(key).get_mut(&items[3]);
                one(match found {
                    Some(field) => {
                        field.expire_ms = Some(number(&items[0]));
                        1
                    }
                    None => -2,
                })
            }
            "HPERSIST" => {
                // Only `HPERSIST key FIELDS 1 field`.
                let found = self.hash(key).get_mut(&items[2]);
                one(match found.map(|field| field.expire_ms.take()) {
                    Some(Some(_)) => 1,
                    Some(None) => -1,
                    None => -2,
                })
            }
            "HDEL" => {
                let hash = self.hash(key);
                count(items.iter().filter(|f| hash.remove(*f).is_some()).count())
            }
            "HINCRBY" => {
                let field = self.hash(key).entry(items[0].clone()).or_default();
                let value = &mut field.value;
                let old = if value.is_empty() { 0 } else { number(value) };
                *value = (old + number(&items[1])).to_string().into_bytes();
                Value::Int(number(value))
            }
            "RPUSH" | "LPUSH" => {
                let list = self.list(key);
                for item in items {
                    match name {
                        "RPUSH" => list.push_back(item.clone()),
                        _ => list.push_front(item.clone()),
                    }
                }
                count(list.len())
            }
            "LPOP" | "RPOP" => {
                let list = self.list(key);
                let popped = match name {
                    "LPOP" => list.pop_front(),
                    _ => list.pop_back(),
                };
                popped.map_or(Value::NullBulk, Value::Bulk)
            }
            "LTRIM" => {
                // Only `LTRIM key 0 n`.
                let keep = usize::try_from(number(&items[1])).unwrap() + 1;
                self.list(key).truncate(keep);
                Value::ok()
            }
            "LREM" => {
                // Only `LREM key 0 x`.
                let list = self.list(key);
                let before = list.len();
                list.retain(|item| *item != items[1]);
                count(before - list.len())
            }
            "SADD" | "SADDEX" | "SPEXPIREAT" | "SPERSIST" | "SREM" => {
                self.apply_to_set(name, key, items)
            }
            "ZADD" => {
                let zset = self.zset(key);
                let new = items
                    .chunks(2)
                    .filter(|pair| zset.insert(pair[1].clone(), number(&pair[0])).is_none());
                count(new.count())
            }
            "ZREM" => {
                let zset = self.zset(key);
                count(items.iter().filter(|m| zset.remove(*m).is_some()).count())
            }
            "ZREMRANGEBYSCORE" => {
                let zset = self.zset(key);
                let before = zset.len();
                let (low, high) = (number(&items[0]), number(&items[1]));
                zset.retain(|_, score| *score < low || *score > high);
                count(before - zset.len())
            }
            "SIADD" => {
                let ids = self.sorted_int(key);
                let new = items.iter().filter(|id| ids.insert(number(id) as u64));
                count(new.count())
            }
            "SIREM" => {
                let ids = self.sorted_int(key);
                let removed = items.iter().filter(|id| ids.remove(&(number(id) as u64)));
                count(removed.count())
            }
            other => panic!("the model does not know {other}"),
        }
    }
}

/// The databases of a writer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// Databases that it shares with other writers.
    Shared,
    /// Databases of its own, which it may flush and swap.
    Own(i64, i64),
}

/// Draws a writer's commands.
pub struct Plan {
    pub prefix: String,
    pub ground: Ground,
    pub rng: fastrand::Rng,
    db: i64,
    /// The last id of an entry of a stream.
    ids: i64,
}

/// An expiry that is never reached in a test, Unix ms.
const FAR_MS: i64 = 4_000_000_000_000;

impl Plan {
    /// A plan for keys that start with `prefix`.
    pub fn new(prefix: String, ground: Ground, rng: fastrand::Rng) -> Plan {
        Plan {
            prefix,
            ground,
            rng,
            db: 0,
            ids: 0,
        }
    }

    /// The counter, which only grows, in database 0.
    pub fn counter(&self) -> Vec<u8> {
        format!("{}:counter", self.prefix).into_bytes()
    }

    /// The first command of a new connection: SELECT.
    pub fn begin(&mut self) -> Command {
        self.db = match self.ground {
            Ground::Shared => 0,
            Ground::Own(first, _) => first,
        };
        self.select(self.db)
    }

    fn select(&mut self, db: i64) -> Command {
        self.db = db;
        vec![b"SELECT".to_vec(), db.to_string().into_bytes()]
    }

    fn databases(&self) -> [i64; 2] {
        match self.ground {
            Ground::Shared => [0, 2],
            Ground::Own(first, second) => [first, second],
        }
    }

    fn key(&mut self, letter: char) -> Vec<u8> {
        format!("{}:{letter}{}", self.prefix, self.rng.u8(..3)).into_bytes()
    }

    fn item(&mut self) -> Vec<u8> {
        match self.rng.u8(..30) {
            0 => vec![b'x'; 2000],
            1 => vec![0, 0xff, b'\r', b'\n', self.rng.u8(..)],
            _ => format!("item{}", self.rng.u16(..400)).into_bytes(),
        }
    }

    fn far_time(&mut self) -> Vec<u8> {
        (FAR_MS + i64::from(self.rng.u8(..)))
            .to_string()
            .into_bytes()
    }

    fn some(&mut self, mut make: impl FnMut(&mut Plan) -> Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let many = self.rng.u8(..20) == 0;
        let times = self.rng.usize(if many { 50..120 } else { 1..5 });
        (0..times).flat_map(|_| make(self)).collect()
    }

    /// The next command.
    pub fn next(&mut self) -> Command {
        match self.rng.u8(..100) {
            0..=5 => self.next_for_databases(),
            6..=15 => self.next_for_keys(),
            16..=25 if self.ground == Ground::Shared && self.db == 0 => {
                vec![b"INCR".to_vec(), self.counter()]
            }
            16..=35 => self.next_string(),
            36..=70 => self.next_collection(),
            _ => self.next_newer(),
        }
    }

    fn next_for_databases(&mut self) -> Command {
        let [first, second] = self.databases();
        if let Ground::Own(..) = self.ground {
            match self.rng.u8(..4) {
                0 => return vec![b"FLUSHDB".to_vec()],
                1 => {
                    return vec![
                        b"SWAPDB".to_vec(),
                        first.to_string().into_bytes(),
                        second.to_string().into_bytes(),
                    ];
                }
                _ => {}
            }
        }
        let db = if self.rng.bool() { first } else { second };
        self.select(db)
    }

    fn next_for_keys(&mut self) -> Command {
        let letters = [&['s', 'h', 'l', 'e', 'z', 'i'][..], &newer::LETTERS].concat();
        let letter = letters[self.rng.usize(..letters.len())];
        let key = self.key(letter);
        let other = self.key(letter);
        let name = ["DEL", "PEXPIREAT", "PERSIST", "RENAME", "COPY", "MOVE"][self.rng.usize(..6)];
        let mut command = vec![name.as_bytes().to_vec(), key];
        match name {
            "DEL" | "RENAME" => command.push(other),
            "PEXPIREAT" => command.push((FAR_MS + self.rng.i64(..1000).abs()).to_string().into()),
            "COPY" if command[1] != other => command.extend([other, b"REPLACE".to_vec()]),
            "MOVE" => {
                let [first, second] = self.databases();
                let target = if self.db == first { second } else { first };
                command.push(target.to_string().into_bytes());
            }
            // COPY of a key to itself is an error.
            "COPY" => command[0] = b"PERSIST".to_vec(),
            _ => {}
        }
        command
    }

    fn next_string(&mut self) -> Command {
        let key = self.key('s');
        let item = self.item();
        let mut command = match self.rng.u8(..8) {
            0..=3 => vec![b"SET".to_vec(), key, item],
            4 => vec![
                b"SET".to_vec(),
                key,
                vec![b'L'; self.rng.usize(15_000..40_000)],
            ],
            5 => {
                let at = FAR_MS + i64::from(self.rng.u8(..));
                vec![
                    b"SET".to_vec(),
                    key,
                    item,
                    b"PXAT".to_vec(),
                    at.to_string().into(),
                ]
            }
            6 => vec![b"APPEND".to_vec(), key, item],
            _ => {
                let at = self.rng.u32(..60_000).to_string().into_bytes();
                vec![b"SETRANGE".to_vec(), key, at, item]
            }
        };
        if command[2].is_empty() {
            command[2].push(b'!');
        }
        command
    }

    fn next_collection(&mut self) -> Command {
        let names = [
            ("HSET", 'h'),
            ("HSET", 'h'),
            ("HDEL", 'h'),
            ("HINCRBY", 'h'),
            ("HSETEX", 'h'),
            ("HPEXPIREAT", 'h'),
            ("HPERSIST", 'h'),
            ("RPUSH", 'l'),
            ("LPUSH", 'l'),
            ("LPOP", 'l'),
            ("RPOP", 'l'),
            ("LTRIM", 'l'),
            ("LREM", 'l'),
            ("SADD", 'e'),
            ("SADD", 'e'),
            ("SREM", 'e'),
            ("SADDEX", 'e'),
            ("SPEXPIREAT", 'e'),
            ("SPERSIST", 'e'),
            ("ZADD", 'z'),
            ("ZADD", 'z'),
            ("ZREM", 'z'),
            ("ZREMRANGEBYSCORE", 'z'),
            ("SIADD", 'i'),
            ("SIADD", 'i'),
            ("SIREM", 'i'),
        ];
        let (name, letter) = names[self.rng.usize(..names.len())];
        let mut command = vec![name.as_bytes().to_vec(), self.key(letter)];
        let more = match name {
            "HSET" => self.some(|plan| vec![plan.item(), plan.item()]),
            "HINCRBY" => vec![
                format!("n{}", self.rng.u8(..3)).into_bytes(),
                self.rng.i8(..).to_string().into_bytes(),
            ],
            "HSETEX" => {
                let mut more = vec![b"PXAT".to_vec(), self.far_time()];
                more.extend([b"FIELDS".to_vec(), b"1".to_vec(), self.item(), self.item()]);
                more
            }
            "HPEXPIREAT" => {
                let mut more = vec![self.far_time()];
                more.extend([b"FIELDS".to_vec(), b"1".to_vec(), self.item()]);
                more
            }
            "HPERSIST" => vec![b"FIELDS".to_vec(), b"1".to_vec(), self.item()],
            "SADDEX" => {
                let mut more = vec![b"PXAT".to_vec(), self.far_time()];
                more.extend([b"MEMBERS".to_vec(), b"1".to_vec(), self.item()]);
                more
            }
            "SPEXPIREAT" => {
                let mut more = vec![self.far_time()];
                more.extend([b"MEMBERS".to_vec(), b"1".to_vec(), self.item()]);
                more
            }
            "SPERSIST" => vec![b"MEMBERS".to_vec(), b"1".to_vec(), self.item()],
            "LPOP" | "RPOP" => Vec::new(),
            "LTRIM" => vec![b"0".to_vec(), self.rng.u8(..100).to_string().into_bytes()],
            "LREM" => vec![b"0".to_vec(), self.item()],
            "ZADD" => self.some(|plan| {
                vec![
                    plan.rng.i16(-500..500).to_string().into_bytes(),
                    plan.item(),
                ]
            }),
            "SIADD" | "SIREM" => {
                self.some(|plan| vec![plan.rng.u16(..400).to_string().into_bytes()])
            }
            "ZREMRANGEBYSCORE" => {
                let low = self.rng.i16(-500..500);
                vec![
                    low.to_string().into_bytes(),
                    (low + 40).to_string().into_bytes(),
                ]
            }
            _ => self.some(|plan| vec![plan.item()]),
        };
        command.extend(more);
        command
    }
}
