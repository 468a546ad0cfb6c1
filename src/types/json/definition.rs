//! The definition of documents; see [`crate::types::definition`].
//!
//! In RDB a document is a value of RedisJSON's module, version 3 of its encoding: one string, the
//! text, which every RedisJSON reads. Versions 0 (a tree of nodes), 2 (the text, and what an index
//! once needed) and 4 ([`cbor`]) are read too.

use super::read::{CORRUPT, Rows, Val};
use super::value::{MAX_DEPTH, PARSED_BYTES, PARSED_KEY_BYTES, Value};
use super::{JsonBody, cbor, put, text};
use crate::encoding::json::{NodeId, split_row_key};
use crate::encoding::{CollectionId, ValueType, keys, tag};
use crate::rdb::module::{ModulePart, id_of};
use crate::rdb::{self, Element};
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use crate::types::definition::{
    Added, Build, Definition, Each, Limits, ROW_OVERHEAD, Stored, of_another_type,
};
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use rustc_hash::FxHashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

/// The definition of documents.
pub struct JsonType;

/// All rows of a document.
#[derive(Default)]
pub struct AllRows(FxHashMap<NodeId, Rc<[u8]>>);

impl AllRows {
    /// Reads them in one walk.
    pub fn read(source: &mut dyn Source, db: DbIndex, id: CollectionId) -> OpResult<AllRows> {
        let from = keys::element_prefix(tag::JSON_NODE, id);
        let to = keys::element_end(tag::JSON_NODE, id);
        let mut rows = FxHashMap::default();
        source
            .each_row(db, &from, &to, &mut |key, row| {
                rows.insert(split_row_key(key)?, Rc::from(row));
                Ok(ControlFlow::Continue(()))
            })
            .map(drop)?;
        Ok(AllRows(rows))
    }
}

impl Rows for AllRows {
    fn node(&self, node: NodeId) -> OpResult<Rc<[u8]>> {
        Ok(self.0.get(&node).cloned().ok_or(CORRUPT)?)
    }

    /// Elements have no hash: all rows are read one after the other.
    fn hash(&self, _: &[u8]) -> u64 {
        0
    }
}

/// The text of a document.
fn text_of(source: &mut dyn Source, db: DbIndex, stored: Stored<'_>) -> OpResult<Vec<u8>> {
    if !stored.meta.rows {
        return text::of(
            &AllRows(FxHashMap::default()),
            &Val::whole(stored.body.into()),
        );
    }
    let body = JsonBody::decode(stored.body)?;
    let rows = AllRows::read(source, db, body.id)?;
    text::of(&rows, &Val::whole(body.root.into()))
}

impl Definition for JsonType {
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        let text = text_of(source, db, stored)?;
        source.will_make(text.len() as u64)?;
        let id = id_of(ValueType::Json).ok_or(CORRUPT)?;
        if each(Element::Module(ModulePart::Begin(id)))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        each(Element::Module(ModulePart::Text(&text)))
    }

    fn count(&self, _: Stored<'_>) -> OpResult<u64> {
        Ok(2)
    }

    fn build<'k>(&self, _: &mut Txn, db: DbIndex, key: &'k [u8]) -> OpResult<Box<dyn Build + 'k>> {
        Ok(Box::new(BuildJson {
            db,
            key,
            version: None,
            parts: 0,
            value: None,
            tree: Vec::new(),
            unheld: 0,
        }))
    }

    fn encoding(
        &self,
        _: &mut View,
        _: DbIndex,
        _: &KeyMeta,
        _: &Limits,
    ) -> OpResult<&'static str> {
        Ok("raw")
    }

    fn rows_bytes(
        &self,
        view: &mut View,
        db: DbIndex,
        found: &KeyMeta,
        samples: u64,
    ) -> OpResult<u64> {
        let body = JsonBody::decode(&found.body)?;
        let from = keys::element_prefix(tag::JSON_NODE, body.id);
        let to = keys::element_end(tag::JSON_NODE, body.id);
        let (mut seen, mut bytes) = (0u64, 0u64);
        view.each_row(db, &from, &to, &mut |_, row| {
            seen += 1;
            bytes += row.len() as u64 + ROW_OVERHEAD;
            Ok(match samples == 0 || seen < samples {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })
        .map(drop)?;
        let average = bytes as f64 / seen.max(1) as f64;
        Ok((average * body.rows.max(seen) as f64) as u64)
    }
}

const BAD: rdb::Error = rdb::Error::Corrupt("a JSON document");

/// A document that is being built.
struct BuildJson<'k> {
    db: DbIndex,
    key: &'k [u8],
    version: Option<u16>,
    parts: u64,
    value: Option<Value>,
    /// Containers of version 0 that are not complete.
    tree: Vec<Open>,
    /// Bytes of version 0 that are not announced yet.
    unheld: usize,
}

/// So many bytes of values are announced at once.
const HELD_AT_ONCE: usize = 64 << 10;

/// A container of version 0, and what of it is missing.
enum Open {
    /// A node, of which the type is read.
    Node(u64),
    /// An array.
    Array(Vec<Value>, u64),
    /// An object, its next key, and whether the key is announced.
    Object(Vec<(String, Value)>, u64, Option<String>, bool),
    /// Whose length comes next.
    Unsized(bool),
}

const V0_NULL: u64 = 1;
const V0_STRING: u64 = 2;
const V0_NUMBER: u64 = 4;
const V0_INTEGER: u64 = 8;
const V0_BOOLEAN: u64 = 0x10;
const V0_OBJECT: u64 = 0x20;
const V0_ARRAY: u64 = 0x40;
const V0_MEMBER: u64 = 0x80;

impl BuildJson<'_> {
    fn text(&mut self, txn: &Txn, text: &[u8]) -> Result<(), RestoreError> {
        if self.value.is_some() {
            return Err(BAD.into());
        }
        let mut hold = |bytes| Ok(txn.will_hold(bytes)?);
        self.value = Some(match self.version {
            Some(4) => cbor::decode(text, &mut hold)?,
            _ => {
                hold(Value::bytes_of(text))?;
                Value::parse(text).map_err(|_| BAD)?
            }
        });
        Ok(())
    }

    /// Notes that so many more bytes are about to be held: a value of two bytes takes many more in
    /// memory.
    fn held(&mut self, txn: &Txn, bytes: usize) -> Result<(), RestoreError> {
        self.unheld += bytes;
        if self.unheld >= HELD_AT_ONCE {
            txn.will_hold(std::mem::take(&mut self.unheld) as u64)?;
        }
        Ok(())
    }

    /// Takes the next part of a document of version 0.
    fn node(&mut self, txn: &Txn, part: ModulePart<'_>) -> Result<(), RestoreError> {
        if let ModulePart::Text(text) = part {
            self.held(txn, text.len())?;
        }
        let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| BAD);
        let done = match (self.tree.pop(), part) {
            (Some(Open::Node(V0_STRING)), ModulePart::Text(text)) => Value::Text(utf8(text)?),
            (Some(Open::Node(V0_BOOLEAN)), ModulePart::Text(text)) => {
                Value::Bool(text.first() == Some(&b'1'))
            }
            (Some(Open::Node(V0_INTEGER)), ModulePart::Unsigned(n)) => Value::Int(n as i64),
            (Some(Open::Node(V0_NUMBER)), ModulePart::Double(n)) if n.is_finite() => {
                Value::Float(n)
            }
            (Some(Open::Unsized(is_object)), ModulePart::Unsigned(len)) => match (len, is_object) {
                (0, false) => Value::Array(Vec::new()),
                (0, true) => Value::Object(Vec::new()),
                (len, false) => {
                    self.tree.push(Open::Array(Vec::new(), len));
                    return Ok(());
                }
                (len, true) => {
                    self.tree.push(Open::Object(Vec::new(), len, None, false));
                    return Ok(());
                }
            },
            (Some(Open::Object(members, len, None, false)), ModulePart::Unsigned(V0_MEMBER)) => {
                self.held(txn, PARSED_KEY_BYTES)?;
                self.tree.push(Open::Object(members, len, None, true));
                return Ok(());
            }
            (Some(Open::Object(members, len, None, true)), ModulePart::Text(key)) => {
                let key = Some(utf8(key)?);
                self.tree.push(Open::Object(members, len, key, true));
                return Ok(());
            }
            (Some(open @ (Open::Array(..) | Open::Object(_, _, Some(_), _))), part) => {
                self.tree.push(open);
                return self.begin_node(txn, part);
            }
            (None, part) if self.value.is_none() => return self.begin_node(txn, part),
            _ => return Err(BAD.into()),
        };
        self.close(done)
    }

    fn begin_node(&mut self, txn: &Txn, part: ModulePart<'_>) -> Result<(), RestoreError> {
        self.held(txn, PARSED_BYTES)?;
        let ModulePart::Unsigned(kind) = part else {
            return Err(BAD.into());
        };
        if self.tree.len() >= MAX_DEPTH {
            return Err(BAD.into());
        }
        match kind {
            V0_NULL => return self.close(Value::Null),
            V0_STRING | V0_NUMBER | V0_INTEGER | V0_BOOLEAN => self.tree.push(Open::Node(kind)),
            V0_OBJECT => self.tree.push(Open::Unsized(true)),
            V0_ARRAY => self.tree.push(Open::Unsized(false)),
            _ => return Err(BAD.into()),
        }
        Ok(())
    }

    /// Puts a value into the container around it, and so on while containers become complete.
    fn close(&mut self, done: Value) -> Result<(), RestoreError> {
        let mut done = done;
        loop {
            match self.tree.pop() {
                None => {
                    self.value = Some(done);
                    return Ok(());
                }
                Some(Open::Array(mut values, left)) => {
                    values.push(done);
                    if left > 1 {
                        self.tree.push(Open::Array(values, left - 1));
                        return Ok(());
                    }
                    done = Value::Array(values);
                }
                Some(Open::Object(mut members, left, Some(key), _)) => {
                    members.push((key, done));
                    if left > 1 {
                        self.tree.push(Open::Object(members, left - 1, None, false));
                        return Ok(());
                    }
                    done = Value::object(members);
                }
                Some(_) => return Err(BAD.into()),
            }
        }
    }
}

impl Build for BuildJson<'_> {
    fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<Added, RestoreError> {
        let Element::Module(part) = element else {
            return Err(of_another_type());
        };
        let at = self.parts;
        self.parts += 1;
        match (self.version, part, at) {
            (None, ModulePart::Begin(id), _) => match id.version() {
                0 | 2..=4 => self.version = Some(id.version()),
                _ => {
                    let what = "a JSON document of a newer version of RedisJSON";
                    return Err(rdb::Error::Unsupported(what).into());
                }
            },
            (Some(0), part, _) => self.node(txn, part)?,
            (Some(_), ModulePart::Text(text), 1) => self.text(txn, text)?,
            (Some(2), ModulePart::Unsigned(_), 2) | (Some(2), ModulePart::Text(_), 3 | 4) => {}
            _ => return Err(BAD.into()),
        }
        Ok(match at {
            0 => Added::New,
            _ => Added::Uncounted,
        })
    }

    /// All rows are written at the end.
    fn collection(&self) -> Option<CollectionId> {
        None
    }

    fn counted_tags(&self) -> &'static [u8] {
        &[]
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        let value = self.value.filter(|_| self.tree.is_empty()).ok_or(BAD)?;
        if value.depth() >= MAX_DEPTH {
            return Err(BAD.into());
        }
        Ok(put(txn, self.db, self.key, None, &value)?)
    }
}
