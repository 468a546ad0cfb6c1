//! Values as the commands that make them.

use super::streams::StreamMaker;
use crate::base::num;
use crate::rdb::{Element, StreamPart};
use crate::resp::encode::{argument, command, command_head};

/// Elements in one command at the most.
const MAX_ELEMENTS: usize = 512;
/// Bytes of elements in one command, but for its last one.
const MAX_BYTES: usize = 64 << 10;

/// What the target can do.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    /// `SET key value PXAT ms`: since Redis 6.2.
    pub set_pxat: bool,
    /// Groups of consumers with counters: since Redis 7.0.
    pub stream_counters: bool,
}

/// Makes one key out of its elements.
pub struct Maker {
    /// The commands.
    pub out: Vec<u8>,
    /// How many they are.
    pub commands: usize,
    key: Vec<u8>,
    expire_ms: u64,
    abilities: Abilities,
    /// The name of the command that is being collected.
    name: &'static [u8],
    args: Vec<u8>,
    elements: usize,
    /// Fields that expire, and when.
    timed: Vec<(Vec<u8>, u64)>,
    is_set: bool,
    stream: StreamMaker,
}

impl Maker {
    /// What the target can do.
    pub(super) fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// A maker for a target that can do that.
    pub fn new(abilities: Abilities) -> Maker {
        Maker {
            out: Vec::new(),
            commands: 0,
            key: Vec::new(),
            expire_ms: 0,
            abilities,
            name: b"",
            args: Vec::new(),
            elements: 0,
            timed: Vec::new(),
            is_set: false,
            stream: StreamMaker::default(),
        }
    }

    /// Appends a command.
    pub fn command(&mut self, args: &[&[u8]]) {
        command(&mut self.out, args);
        self.commands += 1;
    }

    /// Exchanges the commands so far, and how many they are, for others.
    pub(super) fn swap_commands(&mut self, others: &mut (Vec<u8>, usize)) {
        std::mem::swap(&mut self.out, &mut others.0);
        std::mem::swap(&mut self.commands, &mut others.1);
    }

    /// Begins a key that expires then, or never. With `replace` another value of
    /// it may be there.
    pub fn begin(&mut self, key: &[u8], expire_ms: u64, replace: bool) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.expire_ms = expire_ms;
        self.is_set = false;
        self.args.clear();
        self.elements = 0;
        if replace {
            self.command(&[b"DEL", key]);
        }
    }

    /// Adds the next element.
    pub fn add(&mut self, element: Element<'_>) {
        let (name, score): (&'static [u8], _) = match element {
            Element::String(value) => return self.string(value),
            Element::Item(_) => (b"RPUSH", None),
            Element::Member(_) => (b"SADD", None),
            Element::Scored(score, _) => (b"ZADD", Some(score)),
            Element::Field { .. } => (b"HSET", None),
            Element::Stream(part) => return self.stream_part(part),
        };
        self.name = name;
        if let Some(score) = score {
            let mut text = Vec::new();
            num::format_f64(score, &mut text);
            argument(&mut self.args, &text);
        }
        match element {
            Element::Item(bytes) | Element::Member(bytes) | Element::Scored(_, bytes) => {
                argument(&mut self.args, bytes);
            }
            Element::Field {
                field,
                value,
                expire_ms,
            } => {
                argument(&mut self.args, field);
                argument(&mut self.args, value);
                if expire_ms != 0 {
                    self.timed.push((field.to_vec(), expire_ms));
                }
            }
            Element::String(_) | Element::Stream(_) => {}
        }
        self.elements += 1;
        if self.elements >= MAX_ELEMENTS || self.args.len() >= MAX_BYTES {
            self.flush();
        }
    }

    fn stream_part(&mut self, part: StreamPart<'_>) {
        let key = std::mem::take(&mut self.key);
        let mut stream = std::mem::take(&mut self.stream);
        stream.part(self, &key, part);
        self.stream = stream;
        self.key = key;
    }

    fn string(&mut self, value: &[u8]) {
        let key = std::mem::take(&mut self.key);
        let mut digits = itoa::Buffer::new();
        if self.expire_ms != 0 && self.abilities.set_pxat {
            let at_ms = digits.format(self.expire_ms).as_bytes();
            self.command(&[b"SET", &key, value, b"PXAT", at_ms]);
            self.is_set = true;
        } else {
            self.command(&[b"SET", &key, value]);
        }
        self.key = key;
    }

    fn flush(&mut self) {
        if self.elements == 0 {
            return;
        }
        let each = match self.name {
            b"ZADD" | b"HSET" => 2,
            _ => 1,
        };
        let mut digits = itoa::Buffer::new();
        command_head(&mut self.out, 2 + each * self.elements);
        argument(&mut self.out, self.name);
        argument(&mut self.out, &self.key);
        self.out.extend_from_slice(&self.args);
        self.commands += 1;
        self.args.clear();
        self.args.shrink_to(4 * MAX_BYTES);
        self.elements = 0;
        let key = std::mem::take(&mut self.key);
        for (field, at_ms) in std::mem::take(&mut self.timed) {
            let at_ms = digits.format(at_ms).as_bytes();
            self.command(&[b"HPEXPIREAT", &key, at_ms, b"FIELDS", b"1", &field]);
        }
        self.key = key;
    }

    /// Ends the key.
    pub fn end(&mut self) {
        self.flush();
        let key = std::mem::take(&mut self.key);
        let mut stream = std::mem::take(&mut self.stream);
        stream.end(self, &key);
        self.stream = stream;
        self.key = key;
        if self.expire_ms != 0 && !self.is_set {
            let key = std::mem::take(&mut self.key);
            let mut digits = itoa::Buffer::new();
            let at_ms = digits.format(self.expire_ms).as_bytes();
            self.command(&[b"PEXPIREAT", &key, at_ms]);
            self.key = key;
        }
    }
}
