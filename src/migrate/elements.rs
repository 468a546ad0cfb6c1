//! Values as the commands that make them.

mod streams;

use crate::base::num;
use crate::base::time::UnixMs;
use crate::encoding::ValueType;
use crate::rdb::encode::Encoder;
use crate::rdb::module::{self, ModulePart};
use crate::rdb::{Element, StreamPart, payload};
use crate::resp::encode::{argument, command, command_head};
use streams::StreamMaker;

/// Elements in one command at the most.
const MAX_ELEMENTS: usize = 512;
/// Bytes of elements in one command, not counting the last element.
const MAX_BYTES: usize = 64 << 10;

/// What the target can do.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    /// `SET key value PXAT ms`, since Redis 6.2.
    pub set_pxat: bool,
    /// Consumer groups with counters, since Redis 7.0.
    pub stream_counters: bool,
    /// Expiry of hash fields, since Redis 7.4.
    pub field_times: bool,
    /// Expiry of set members, since Redis 8.12.
    pub member_times: bool,
}

impl Abilities {
    /// Whether elements of values of this type can have times of their own.
    pub(super) fn keep_times(self, kind: ValueType) -> bool {
        match kind == ValueType::Set {
            true => self.member_times,
            false => self.field_times,
        }
    }

    /// Whether an element like this can have a time of its own.
    pub(super) fn keep_time(self, element: &Element<'_>) -> bool {
        self.keep_times(match element {
            Element::Member { .. } => ValueType::Set,
            _ => ValueType::Hash,
        })
    }
}

/// Treatment of hash fields and set members with an expiry of their own.
#[derive(Debug, Clone, Copy, Default)]
pub struct TimeRule {
    /// Elements that expire at or before this time are left out.
    pub over_ms: UnixMs,
    /// Others do not expire at the target before this time.
    pub not_before_ms: UnixMs,
}

/// Turns the elements of a key into commands.
pub struct Maker {
    /// The commands, encoded.
    pub out: Vec<u8>,
    /// Number of commands in `out`.
    pub commands: usize,
    key: Vec<u8>,
    expire_ms: UnixMs,
    abilities: Abilities,
    /// The name of the command that is being collected.
    name: &'static [u8],
    args: Vec<u8>,
    elements: usize,
    /// Elements with a time, and the time, in ms.
    timed: Vec<(Vec<u8>, UnixMs)>,
    /// Number of elements of this key whose times the target does not support.
    lost_times: u64,
    rule: TimeRule,
    is_set: bool,
    stream: StreamMaker,
    /// The payload of a module's value, as far as it was added.
    module: Vec<u8>,
    /// Whether the value is sorted ints, which commands make.
    is_sorted_int: bool,
    encoder: Encoder,
}

impl Maker {
    /// What the target can do.
    pub(super) fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// A maker for a target with these abilities.
    pub fn new(abilities: Abilities) -> Maker {
        Maker {
            out: Vec::new(),
            commands: 0,
            key: Vec::new(),
            expire_ms: UnixMs::NONE,
            abilities,
            name: b"",
            args: Vec::new(),
            elements: 0,
            timed: Vec::new(),
            lost_times: 0,
            rule: TimeRule::default(),
            is_set: false,
            stream: StreamMaker::default(),
            module: Vec::new(),
            is_sorted_int: false,
            encoder: Encoder::new(true),
        }
    }

    /// Appends a command.
    pub fn command(&mut self, args: &[&[u8]]) {
        command(&mut self.out, args);
        self.commands += 1;
    }

    /// Swaps the commands collected so far, and their number, with `others`.
    pub(super) fn swap_commands(&mut self, others: &mut (Vec<u8>, usize)) {
        std::mem::swap(&mut self.out, &mut others.0);
        std::mem::swap(&mut self.commands, &mut others.1);
    }

    /// Begins a key. `expire_ms` is 0 for a key without expiry. With `replace`, an old
    /// value is deleted first.
    pub fn begin(&mut self, key: &[u8], expire_ms: UnixMs, replace: bool, rule: TimeRule) {
        self.rule = rule;
        self.lost_times = 0;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.expire_ms = expire_ms;
        self.is_set = false;
        self.args.clear();
        self.module.clear();
        self.is_sorted_int = false;
        self.elements = 0;
        if replace {
            self.command(&[b"DEL", key]);
        }
    }

    /// Number of elements of the key whose times the target does not support.
    pub(super) fn lost_times(&self) -> u64 {
        self.lost_times
    }

    /// Whether an element is left out as expired; records its time if not.
    fn is_over(&mut self, element: &Element<'_>) -> bool {
        let (name, expire_ms) = match *element {
            Element::Field {
                field, expire_ms, ..
            } => (field, expire_ms),
            Element::Member { member, expire_ms } => (member, expire_ms),
            _ => return false,
        };
        if expire_ms == UnixMs::NONE {
            return false;
        }
        let is_kept = self.abilities.keep_time(element);
        self.lost_times += u64::from(!is_kept);
        if expire_ms <= self.rule.over_ms {
            return true;
        }
        if is_kept {
            let at_ms = expire_ms.max(self.rule.not_before_ms);
            self.timed.push((name.to_vec(), at_ms));
        }
        false
    }

    /// Adds the next element.
    pub fn add(&mut self, element: Element<'_>) {
        if self.is_over(&element) {
            return;
        }
        let (name, score): (&'static [u8], _) = match element {
            Element::String(value) => return self.string(value),
            Element::Item(_) => (b"RPUSH", None),
            Element::Member { .. } => (b"SADD", None),
            Element::Scored(score, _) => (b"ZADD", Some(score)),
            Element::Field { .. } => (b"HSET", None),
            Element::Stream(part) => return self.stream_part(part),
            Element::Module(part) => return self.module_part(part),
        };
        self.name = name;
        if let Some(score) = score {
            let mut text = Vec::new();
            num::format_f64(score, &mut text);
            argument(&mut self.args, &text);
        }
        match element {
            Element::Item(bytes)
            | Element::Member { member: bytes, .. }
            | Element::Scored(_, bytes) => {
                argument(&mut self.args, bytes);
            }
            Element::Field { field, value, .. } => {
                argument(&mut self.args, field);
                argument(&mut self.args, value);
            }
            Element::String(_) | Element::Stream(_) | Element::Module(_) => {}
        }
        self.flush_full();
    }

    /// Counts an element, and ends the command if it is long enough.
    fn flush_full(&mut self) {
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

    fn module_part(&mut self, part: ModulePart<'_>) {
        match part {
            ModulePart::Begin(id) if id.is_same_type(module::SORTED_INT) => {
                self.is_sorted_int = true;
                return;
            }
            ModulePart::Unsigned(n) if self.is_sorted_int => {
                self.name = b"SIADD";
                argument(&mut self.args, itoa::Buffer::new().format(n).as_bytes());
                return self.flush_full();
            }
            _ => {}
        }
        self.encoder.module_part(part, None, &mut self.module);
    }

    /// Other values of modules become a payload: no command makes one in pieces.
    fn end_module(&mut self) {
        if self.module.is_empty() {
            return;
        }
        let mut module = std::mem::take(&mut self.module);
        self.encoder.end_module(&mut module);
        payload::seal(&mut module);
        let key = std::mem::take(&mut self.key);
        let mut digits = itoa::Buffer::new();
        let at_ms = digits.format(self.expire_ms.0).as_bytes();
        self.command(&[b"RESTORE", &key, at_ms, &module, b"ABSTTL"]);
        self.key = key;
        self.is_set = true;
    }

    fn string(&mut self, value: &[u8]) {
        let key = std::mem::take(&mut self.key);
        let mut digits = itoa::Buffer::new();
        if self.expire_ms.is_some() && self.abilities.set_pxat {
            let at_ms = digits.format(self.expire_ms.0).as_bytes();
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
        let [expire, word]: [&[u8]; 2] = match self.name {
            b"SADD" => [b"SPEXPIREAT", b"MEMBERS"],
            _ => [b"HPEXPIREAT", b"FIELDS"],
        };
        for (element, at_ms) in std::mem::take(&mut self.timed) {
            let at_ms = digits.format(at_ms.0).as_bytes();
            self.command(&[expire, &key, at_ms, word, b"1", &element]);
        }
        self.key = key;
    }

    /// Ends the key.
    pub fn end(&mut self) {
        self.flush();
        self.end_module();
        let key = std::mem::take(&mut self.key);
        let mut stream = std::mem::take(&mut self.stream);
        stream.end(self, &key);
        self.stream = stream;
        self.key = key;
        if self.expire_ms.is_some() && !self.is_set {
            let key = std::mem::take(&mut self.key);
            let mut digits = itoa::Buffer::new();
            let at_ms = digits.format(self.expire_ms.0).as_bytes();
            self.command(&[b"PEXPIREAT", &key, at_ms]);
            self.key = key;
        }
    }
}
