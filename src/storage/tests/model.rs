//! The expected contents of a database, and random operations on it. Nothing here depends on the
//! engine: a sequence of operations follows from its seed alone.

use crate::base::time::UnixMs;
use std::collections::BTreeMap;

pub const DBS: u16 = 3;

/// Names that are prefixes of one another, empty, or binary.
const NAMES: [&[u8]; 9] = [
    b"",
    b"\0",
    b"k",
    b"k\0",
    b"k\0\0",
    b"k1",
    b"k\xFF",
    b"\xFF\xFF",
    b"l",
];

pub const START_MS: UnixMs = UnixMs(1_000_000);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A string in its meta row.
    Bytes(Vec<u8>),
    /// A hash in rows.
    Fields(BTreeMap<Vec<u8>, Vec<u8>>),
    /// A list in rows, with the index of the first.
    Items(i64, Vec<Vec<u8>>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub expire_ms: UnixMs,
    pub content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    pub db: u16,
    pub name: &'static [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Replaces the key, whatever it was.
    Put(At, Key),
    /// Sets a field if the key is a hash.
    SetField(At, Vec<u8>, Vec<u8>),
    DeleteField(At, Vec<u8>),
    /// Puts an item in front if the key is a list.
    PushFront(At, Vec<u8>),
    /// Deletes so many items at the front by a range deletion.
    CutFront(At, usize),
    Delete(At),
    /// Within a DB.
    Rename(At, &'static [u8]),
    SetExpiry(At, UnixMs),
    /// Needs an exclusive turn: what is pending is committed first.
    Clear(u16),
    Swap(u16, u16),
    Look(At),
    /// Several commands; whether they are rolled back at the end.
    Group(Vec<Op>, bool),
    Advance(u64),
    Commit,
    /// Passes of the background work on a DB, after a commit.
    Expire(u16),
    Reclaim(u16),
}

type Db = BTreeMap<Vec<u8>, Key>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub dbs: [Db; DBS as usize],
    pub elapsed_ms: u64,
    /// The expected number of new binlog entries.
    pub entries: u64,
}

impl Model {
    pub fn now_ms(&self) -> UnixMs {
        START_MS + self.elapsed_ms
    }

    /// The key as a look-up of a writing command finds it: deleted if it has expired.
    fn find(&mut self, at: At) -> Option<&mut Key> {
        let now_ms = self.now_ms();
        let db = &mut self.dbs[usize::from(at.db)];
        if db.get(at.name).is_some_and(|key| is_due(key, now_ms)) {
            db.remove(at.name);
            self.entries += 1;
        }
        db.get_mut(at.name)
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Group(ops, false) => ops.iter().for_each(|op| self.apply(op)),
            Op::Group(..) | Op::Commit | Op::Reclaim(_) => {}
            Op::Advance(ms) => self.elapsed_ms += ms,
            Op::Expire(db) => {
                let now_ms = self.now_ms();
                let db = &mut self.dbs[usize::from(*db)];
                let before = db.len();
                db.retain(|_, key| !is_due(key, now_ms));
                self.entries += (before - db.len()) as u64;
            }
            Op::Look(at) => {
                self.find(*at);
            }
            command => self.entries += u64::from(self.command(command)),
        }
    }

    /// Applies a command. Returns whether it changed anything.
    fn command(&mut self, op: &Op) -> bool {
        match op {
            Op::Put(at, key) => {
                self.find(*at);
                let db = &mut self.dbs[usize::from(at.db)];
                db.insert(at.name.to_vec(), key.clone());
                true
            }
            Op::SetField(at, field, value) => match self.find(*at).map(|k| &mut k.content) {
                Some(Content::Fields(fields)) => {
                    fields.insert(field.clone(), value.clone());
                    true
                }
                _ => false,
            },
            Op::DeleteField(at, field) => match self.find(*at).map(|k| &mut k.content) {
                Some(Content::Fields(fields)) => {
                    let changed = fields.remove(field).is_some();
                    if fields.is_empty() {
                        self.dbs[usize::from(at.db)].remove(at.name);
                    }
                    changed
                }
                _ => false,
            },
            Op::PushFront(at, value) => match self.find(*at).map(|k| &mut k.content) {
                Some(Content::Items(first, items)) => {
                    *first -= 1;
                    items.insert(0, value.clone());
                    true
                }
                _ => false,
            },
            Op::CutFront(at, n) => match self.find(*at).map(|k| &mut k.content) {
                Some(Content::Items(first, items)) => {
                    let n = (*n).min(items.len());
                    items.drain(..n);
                    *first += n as i64;
                    if items.is_empty() {
                        self.dbs[usize::from(at.db)].remove(at.name);
                    }
                    true
                }
                _ => false,
            },
            Op::Delete(at) => {
                let found = self.find(*at).is_some();
                self.dbs[usize::from(at.db)].remove(at.name);
                found
            }
            Op::Rename(at, to) => {
                let Some(key) = self.find(*at).cloned() else {
                    return false;
                };
                if at.name == *to {
                    return false;
                }
                self.find(At { name: to, ..*at });
                let db = &mut self.dbs[usize::from(at.db)];
                db.remove(at.name);
                db.insert(to.to_vec(), key);
                true
            }
            Op::SetExpiry(at, expire_ms) => match self.find(*at) {
                Some(key) => {
                    key.expire_ms = *expire_ms;
                    true
                }
                None => false,
            },
            Op::Clear(db) => {
                let db = &mut self.dbs[usize::from(*db)];
                let had_keys = !db.is_empty();
                db.clear();
                had_keys
            }
            Op::Swap(a, b) => {
                self.dbs.swap(usize::from(*a), usize::from(*b));
                true
            }
            _ => unreachable!("not a command"),
        }
    }

    pub fn next_op(&self, rng: &mut fastrand::Rng) -> Op {
        match rng.u32(..100) {
            0..=11 => Op::Commit,
            12..=14 => Op::Advance(rng.u64(..400)),
            15..=16 => Op::Expire(rng.u16(..DBS)),
            17 => Op::Reclaim(rng.u16(..DBS)),
            18 => self.exclusive(rng),
            19..=26 => {
                let ops = (0..rng.usize(1..6)).map(|_| self.plain(rng)).collect();
                Op::Group(ops, rng.u8(..) < 170)
            }
            _ => self.plain(rng),
        }
    }

    fn exclusive(&self, rng: &mut fastrand::Rng) -> Op {
        match rng.bool() {
            true => Op::Clear(rng.u16(..DBS)),
            false => Op::Swap(rng.u16(..DBS), rng.u16(..DBS)),
        }
    }

    fn plain(&self, rng: &mut fastrand::Rng) -> Op {
        let at = At {
            db: rng.u16(..DBS),
            name: name(rng),
        };
        match rng.u32(..16) {
            0..=2 => Op::Put(at, self.key(rng)),
            3..=5 => Op::SetField(at, bytes(rng, 2), bytes(rng, 40)),
            6 => Op::DeleteField(at, bytes(rng, 2)),
            7..=8 => Op::PushFront(at, bytes(rng, 40)),
            9 => Op::CutFront(at, rng.usize(1..4)),
            10 => Op::Delete(at),
            11..=12 => Op::Rename(at, name(rng)),
            13..=14 => Op::SetExpiry(at, self.expiry(rng)),
            _ => Op::Look(at),
        }
    }

    fn key(&self, rng: &mut fastrand::Rng) -> Key {
        let content = match rng.u32(..3) {
            0 => Content::Bytes(bytes(rng, 300)),
            1 => {
                let n = rng.usize(1..8);
                Content::Fields((0..n).map(|_| (bytes(rng, 2), bytes(rng, 40))).collect())
            }
            _ => {
                let n = rng.usize(1..8);
                let items = (0..n).map(|_| bytes(rng, 40)).collect();
                Content::Items(rng.i64(-3..3), items)
            }
        };
        Key {
            expire_ms: self.expiry(rng),
            content,
        }
    }

    /// None, or a time that may have passed already.
    fn expiry(&self, rng: &mut fastrand::Rng) -> UnixMs {
        match rng.u32(..3) {
            0 => self.now_ms().before(200) + rng.u64(..1_000),
            _ => UnixMs::NONE,
        }
    }
}

fn is_due(key: &Key, now_ms: UnixMs) -> bool {
    key.expire_ms.is_some() && key.expire_ms <= now_ms
}

fn name(rng: &mut fastrand::Rng) -> &'static [u8] {
    NAMES[rng.usize(..NAMES.len())]
}

fn bytes(rng: &mut fastrand::Rng, max: usize) -> Vec<u8> {
    let len = rng.usize(..max);
    (0..len).map(|_| rng.u8(..)).collect()
}
