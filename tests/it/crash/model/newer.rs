//! Streams, JSON documents and the types of RedisBloom: what the model knows of them, the commands
//! that a plan draws, and how a key is read.
//!
//! The items are few, so that filters and sketches are exact: they are larger than what would make
//! two items collide.

use super::{Command, Data, Entry, Model, Plan, count, number};
use crate::crash::json::{self, Document};
use crate::support::{Conn, Value, args};
use std::collections::{BTreeMap, BTreeSet};

/// How many items the filters and sketches have at most.
const ITEMS: u32 = 24;

/// The letters of keys with these values.
pub const LETTERS: [char; 7] = ['x', 'j', 'b', 'c', 'm', 't', 'd'];

/// A stream with at most one group, `g`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// The first part of each id, and the value of the only field. The second part is 1.
    entries: BTreeMap<i64, Vec<u8>>,
    group: Option<Group>,
}

/// What a group was given last, and the consumers of what it has not acknowledged.
#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    last: i64,
    pending: BTreeMap<i64, Vec<u8>>,
}

/// How many observations a t-digest has, and its least and greatest one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    number: usize,
    bounds: Option<(i64, i64)>,
}

/// Items with how often they were counted.
pub type Counts = BTreeMap<Vec<u8>, i64>;

impl Stream {
    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Observed {
    /// Observations.
    pub fn len(&self) -> usize {
        self.number
    }
}

fn error(text: &str) -> Value {
    Value::Error(text.as_bytes().to_vec())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn id(number: i64) -> Vec<u8> {
    format!("{number}-1").into_bytes()
}

/// The number of an id.
fn number_of(id: &[u8]) -> i64 {
    number(id.strip_suffix(b"-1").expect("an id of the plan"))
}

fn entry(number: i64, value: &[u8]) -> Value {
    let fields = vec![Value::bulk("f"), Value::bulk(value)];
    Value::Array(vec![Value::Bulk(id(number)), Value::Array(fields)])
}

impl Model {
    /// The reply of a command for these types; `None`: it is for another type.
    pub fn apply_newer(&mut self, name: &str, rest: &[Vec<u8>]) -> Option<Value> {
        let (family, _) = name.split_once('.').unwrap_or((name, ""));
        Some(match family {
            "XADD" | "XDEL" | "XTRIM" | "XACK" => self.apply_to_stream(name, rest),
            "XGROUP" | "XREADGROUP" => self.apply_to_group(name, rest),
            "JSON" => self.apply_to_document(name, rest),
            "BF" | "CF" => self.apply_to_filter(name, rest),
            "CMS" | "TOPK" => self.apply_to_counts(name, rest),
            "TDIGEST" => self.apply_to_digest(name, rest),
            _ => return None,
        })
    }

    fn found(&mut self, key: &[u8]) -> Option<&mut Data> {
        let entry = self.keys.get_mut(&(self.db, key.to_vec()));
        entry.map(|entry| &mut entry.data)
    }

    /// The data of a key, which is created if missing.
    fn create(&mut self, key: &[u8], data: Data) -> &mut Data {
        let fresh = Entry {
            data,
            expire_ms: None,
        };
        let place = (self.db, key.to_vec());
        &mut self.keys.entry(place).or_insert(fresh).data
    }

    fn stream(&mut self, key: &[u8]) -> &mut Stream {
        match self.create(key, Data::Stream(Stream::default())) {
            Data::Stream(stream) => stream,
            other => panic!("a plan mixed types: {other:?}"),
        }
    }

    fn apply_to_stream(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        if name == "XADD" {
            // Only `XADD key id f value`.
            let entries = &mut self.stream(&rest[0]).entries;
            entries.insert(number_of(&rest[1]), rest[3].clone());
            return Value::Bulk(rest[1].clone());
        }
        let Some(Data::Stream(stream)) = self.found(&rest[0]) else {
            return Value::Int(0);
        };
        match name {
            "XDEL" => {
                let ids = rest[1..].iter().map(|id| number_of(id));
                count(ids.filter(|id| stream.entries.remove(id).is_some()).count())
            }
            "XTRIM" => {
                // Only `XTRIM key MAXLEN = n`.
                let most = usize::try_from(number(&rest[3])).unwrap();
                let surplus = stream.entries.len().saturating_sub(most);
                for _ in 0..surplus {
                    stream.entries.pop_first();
                }
                count(surplus)
            }
            _ => {
                // Only `XACK key g id…`.
                let Some(group) = &mut stream.group else {
                    return Value::Int(0);
                };
                let ids = rest[2..].iter().map(|id| number_of(id));
                count(ids.filter(|id| group.pending.remove(id).is_some()).count())
            }
        }
    }

    fn apply_to_group(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        if name == "XGROUP" {
            // Only `XGROUP CREATE key g 0 MKSTREAM`.
            let stream = self.stream(&rest[1]);
            if stream.group.is_some() {
                return error("BUSYGROUP Consumer Group name already exists");
            }
            stream.group = Some(Group::default());
            return Value::ok();
        }
        // Only `XREADGROUP GROUP g consumer COUNT n STREAMS key >`.
        let key = &rest[6];
        let missing = format!(
            "NOGROUP No such key '{}' or consumer group 'g' in XREADGROUP with GROUP option",
            text(key)
        );
        let Some(Data::Stream(Stream {
            entries,
            group: Some(group),
        })) = self.found(key)
        else {
            return error(&missing);
        };
        let most = usize::try_from(number(&rest[4])).unwrap();
        let given: Vec<_> = entries.range(group.last + 1..).take(most).collect();
        let Some((last, _)) = given.last() else {
            return Value::NullArray;
        };
        group.last = **last;
        for (id, _) in &given {
            group.pending.insert(**id, rest[2].clone());
        }
        let given = given.iter().map(|(id, value)| entry(**id, value)).collect();
        let stream = Value::Array(vec![Value::Bulk(key.clone()), Value::Array(given)]);
        Value::Array(vec![stream])
    }

    fn apply_to_document(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        if name == "JSON.SET" && rest[1] == b"$" {
            // Only an empty document. A key that exists keeps its time.
            let empty = || Data::Document(Document::default());
            let found = self.create(&rest[0], empty());
            *found = empty();
            return Value::ok();
        }
        let Some(Data::Document(document)) = self.found(&rest[0]) else {
            return json::without_document(name);
        };
        document.apply(name, &rest[1..])
    }

    fn apply_to_filter(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        let (key, item) = (&rest[0], &rest[1]);
        if name == "CF.DEL" && self.found(key).is_none() {
            return error("Not found");
        }
        let fresh = match name {
            "BF.ADD" => Data::Bloom(BTreeSet::new()),
            _ => Data::Cuckoo(BTreeSet::new()),
        };
        let (Data::Bloom(items) | Data::Cuckoo(items)) = self.create(key, fresh) else {
            panic!("a plan mixed types");
        };
        count(usize::from(match name {
            "CF.DEL" => items.remove(item),
            _ => items.insert(item.clone()),
        }))
    }

    fn apply_to_counts(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        let key = &rest[0];
        let (kind, fresh) = match name.starts_with("CMS") {
            true => ("CMS", Data::Sketch(Counts::new())),
            false => ("TopK", Data::Top(Counts::new())),
        };
        if matches!(name, "CMS.INITBYDIM" | "TOPK.RESERVE") {
            if self.found(key).is_some() {
                return error(&format!("{kind}: key already exists"));
            }
            self.create(key, fresh);
            return Value::ok();
        }
        let Some(Data::Sketch(counts) | Data::Top(counts)) = self.found(key) else {
            return error(&format!("{kind}: key does not exist"));
        };
        let replies = rest[1..].chunks(2).map(|pair| {
            let counted = counts.entry(pair[0].clone()).or_default();
            *counted += number(&pair[1]);
            match kind {
                "CMS" => Value::Int(*counted),
                _ => Value::NullBulk,
            }
        });
        Value::Array(replies.collect())
    }

    fn apply_to_digest(&mut self, name: &str, rest: &[Vec<u8>]) -> Value {
        match (name, self.found(&rest[0])) {
            ("TDIGEST.CREATE", Some(_)) => error("ERR T-Digest: key already exists"),
            ("TDIGEST.CREATE", None) => {
                self.create(&rest[0], Data::Digest(Observed::default()));
                Value::ok()
            }
            (_, Some(Data::Digest(observed))) => {
                for value in rest[1..].iter().map(|value| number(value)) {
                    let (least, greatest) = observed.bounds.unwrap_or((value, value));
                    observed.bounds = Some((least.min(value), greatest.max(value)));
                    observed.number += 1;
                }
                Value::ok()
            }
            _ => error("ERR T-Digest: key does not exist"),
        }
    }
}

impl Plan {
    /// A command for one of these types.
    pub fn next_newer(&mut self) -> Command {
        let letter = LETTERS[self.rng.usize(..LETTERS.len())];
        let key = text(&self.key(letter));
        let (a, b) = (self.rng.u32(..ITEMS), self.rng.u32(..ITEMS));
        let (choice, by) = (self.rng.u8(..8), self.rng.u8(1..));
        let line = match (letter, choice) {
            ('x', _) => return self.next_for_stream(&key),
            ('j', _) => return json::draw(key.into_bytes(), &mut self.rng),
            ('b', _) => format!("BF.ADD {key} it{a}"),
            ('c', 0..3) => format!("CF.DEL {key} it{a}"),
            ('c', _) => format!("CF.ADDNX {key} it{a}"),
            ('m', 0) => format!("CMS.INITBYDIM {key} 900 4"),
            ('m', _) => format!("CMS.INCRBY {key} it{a} {by} it{b} 1"),
            ('t', 0) => format!("TOPK.RESERVE {key} 30 900 5 0.9"),
            ('t', _) => format!("TOPK.INCRBY {key} it{a} {by}"),
            (_, 0) => format!("TDIGEST.CREATE {key}"),
            (_, _) => {
                let values = (0..self.rng.u8(1..40)).map(|_| self.rng.i16(..).to_string());
                format!("TDIGEST.ADD {key} {}", values.collect::<Vec<_>>().join(" "))
            }
        };
        args(&line)
    }

    fn next_for_stream(&mut self, key: &str) -> Command {
        let mut old = || text(&id((self.ids - self.rng.i64(..300)).max(0)));
        let (one, other) = (old(), old());
        let line = match self.rng.u8(..20) {
            0 => format!("XGROUP CREATE {key} g 0 MKSTREAM"),
            1 => format!("XTRIM {key} MAXLEN = {}", self.rng.u8(..)),
            2..=3 => format!("XDEL {key} {one} {other}"),
            4..=5 => format!("XACK {key} g {one} {other}"),
            6..=9 => {
                let (consumer, most) = (self.rng.u8(..3), self.rng.u8(1..20));
                format!("XREADGROUP GROUP g c{consumer} COUNT {most} STREAMS {key} >")
            }
            _ => {
                // Ids only grow, whatever stream they are for.
                self.ids += 1;
                let mut line = args(&format!("XADD {key} {}-1 f", self.ids));
                line.push(self.item());
                return line;
            }
        };
        args(&line)
    }
}

/// A key on a server.
struct Found<'c> {
    conn: &'c mut Conn,
    key: String,
}

impl Found<'_> {
    /// The reply to a command; `{k}` is the key, and `{all}` are all items.
    fn ask(&mut self, line: &str) -> Value {
        let all: Vec<String> = (0..ITEMS).map(|n| format!("it{n}")).collect();
        let line = line.replace("{k}", &self.key);
        self.conn.must(&line.replace("{all}", &all.join(" ")))
    }

    /// The items with their numbers in the reply, unless these are 0.
    fn counts(&mut self, line: &str) -> Counts {
        let reply = self.ask(line);
        let counts = (0..ITEMS).zip(reply.items());
        let counts = counts.map(|(n, count)| (format!("it{n}").into_bytes(), count.int()));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// A field of the reply.
    fn field(&mut self, line: &str, name: &str) -> Value {
        let reply = self.ask(line);
        field(&reply, name)
    }

    fn stream(&mut self) -> (Stream, i64) {
        let entries = self.ask("XRANGE {k} - +");
        let entries = entries.items().iter().map(|entry| {
            let [id, fields] = entry.items() else {
                panic!("{entry:?}");
            };
            (number_of(id.bytes()), fields.items()[1].bytes().to_vec())
        });
        let entries = entries.collect();
        let groups = self.ask("XINFO GROUPS {k}");
        let group = groups.items().first().map(|group| {
            let pending = self.ask("XPENDING {k} g - + 100000");
            let pending = pending.items().iter().map(|pending| {
                let parts = pending.items();
                (number_of(parts[0].bytes()), parts[1].bytes().to_vec())
            });
            let pending: BTreeMap<i64, Vec<u8>> = pending.collect();
            assert_eq!(field(group, "pending").int(), pending.len() as i64);
            let last = match field(group, "last-delivered-id").bytes() {
                b"0-0" => 0,
                id => number_of(id),
            };
            Group { last, pending }
        });
        let len = self.ask("XLEN {k}").int();
        (Stream { entries, group }, len)
    }

    fn observed(&mut self) -> Observed {
        let number = self.field("TDIGEST.INFO {k}", "Observations").int();
        let mut bound = |line| self.ask(line).text().parse().expect("a whole number");
        let bounds = match number {
            0 => None,
            _ => Some((bound("TDIGEST.MIN {k}"), bound("TDIGEST.MAX {k}"))),
        };
        let number = usize::try_from(number).expect("a count");
        Observed { number, bounds }
    }
}

fn field(reply: &Value, name: &str) -> Value {
    let pairs = reply.pairs();
    let found = pairs.iter().find(|(field, _)| field.text() == name);
    found
        .unwrap_or_else(|| panic!("{name} in {reply:?}"))
        .1
        .clone()
}

/// What a key of one of these types holds, and how many elements its type's own command counts;
/// `None`: it has another type.
pub fn read(conn: &mut Conn, key: &[u8], kind: &str) -> Option<(Data, i64)> {
    let key = text(key);
    let mut found = Found { conn, key };
    Some(match kind {
        "stream" => {
            let (stream, len) = found.stream();
            (Data::Stream(stream), len)
        }
        "ReJSON-RL" => {
            let document = Document::read(found.ask("JSON.GET {k}").bytes());
            (Data::Document(document), found.ask("JSON.OBJLEN {k}").int())
        }
        "MBbloom--" => {
            let items = found.counts("BF.MEXISTS {k} {all}").into_keys().collect();
            (Data::Bloom(items), found.ask("BF.CARD {k}").int())
        }
        "MBbloomCF" => {
            let items = found.counts("CF.MEXISTS {k} {all}").into_keys().collect();
            let len = found.field("CF.INFO {k}", "Number of items inserted");
            (Data::Cuckoo(items), len.int())
        }
        "CMSk-TYPE" => {
            let counts = found.counts("CMS.QUERY {k} {all}");
            let total: i64 = counts.values().sum();
            assert_eq!(found.field("CMS.INFO {k}", "count").int(), total);
            let len = counts.len() as i64;
            (Data::Sketch(counts), len)
        }
        "TopK-TYPE" => {
            let listed = found.ask("TOPK.LIST {k} WITHCOUNT").pairs();
            let listed = listed.iter();
            let listed = listed.map(|(item, n)| (item.bytes().to_vec(), n.int()));
            let present = found.counts("TOPK.QUERY {k} {all}");
            (Data::Top(listed.collect()), present.len() as i64)
        }
        "TDIS-TYPE" => {
            let observed = found.observed();
            let len = observed.len() as i64;
            (Data::Digest(observed), len)
        }
        _ => return None,
    })
}
