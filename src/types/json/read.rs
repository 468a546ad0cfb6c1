//! Reads of documents: values are looked at where they stand, in rows that are read when they are
//! needed.

use super::value::Value;
use crate::encoding::Corrupt;
use crate::encoding::json::{
    Cursor, Entry, Item, Node, NodeId, ObjectChild, array_children, item, object_children,
    object_entry,
};
use crate::types::OpResult;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::rc::Rc;

/// A source of the rows of one document.
pub trait Rows {
    /// The row of a node.
    fn node(&self, node: NodeId) -> OpResult<Rc<[u8]>>;

    /// The hash of a key, by which members of large objects are found.
    fn hash(&self, key: &[u8]) -> u64;

    /// Counts values that are looked at.
    ///
    /// # Errors
    /// That takes too long here.
    fn visit(&self, _values: u64) -> OpResult<()> {
        Ok(())
    }

    /// The same for bytes that are scanned.
    fn scan(&self, bytes: usize) -> OpResult<()> {
        self.visit(1 + (bytes / SCANNED_IN_VISIT) as u64)
    }

    /// Announces that the command holds so many bytes more.
    ///
    /// # Errors
    /// There is not that much memory.
    fn hold(&self, _bytes: u64) -> OpResult<()> {
        Ok(())
    }
}

/// A value inside a row.
#[derive(Debug, Clone)]
pub struct Val {
    row: Rc<[u8]>,
    start: usize,
    len: usize,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// null.
    Null,
    /// true or false.
    Bool,
    /// An integer that fits 64 bits with a sign.
    Int,
    /// A larger integer.
    Large,
    /// A number with a fraction.
    Float,
    /// A string.
    Text,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// The name that JSON.TYPE replies.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Bool => "boolean",
            Kind::Int | Kind::Large => "integer",
            Kind::Float => "number",
            Kind::Text => "string",
            Kind::Array => "array",
            Kind::Object => "object",
        }
    }

    /// Whether values of this type are numbers.
    pub fn is_number(self) -> bool {
        matches!(self, Kind::Int | Kind::Large | Kind::Float)
    }

    /// Whether values of this type have elements or members.
    pub fn is_container(self) -> bool {
        matches!(self, Kind::Array | Kind::Object)
    }
}

/// What walks call with an index and a value.
type EachItem<'e> = &'e mut dyn FnMut(u64, Val) -> OpResult<ControlFlow<()>>;

/// What walks call with a key and a value.
type EachMember<'e> = &'e mut dyn FnMut(&[u8], Val) -> OpResult<ControlFlow<()>>;

pub(super) const CORRUPT: Corrupt = Corrupt("JSON");

/// So many bytes are scanned while a value is looked at.
const SCANNED_IN_VISIT: usize = 64;

/// Most levels of nodes of a container: no container has more.
pub(super) const LEVELS_MAX: usize = 16;

impl Val {
    /// The value that some bytes are.
    pub fn whole(row: Rc<[u8]>) -> Val {
        let len = row.len();
        Val { row, start: 0, len }
    }

    /// A value that stands in no document. It is in line, whatever its size.
    pub fn scalar(value: &Value) -> Val {
        let mut out = Vec::new();
        value.in_line(&mut out);
        Val::whole(out.into())
    }

    /// The value that a part of the row is.
    fn part(row: &Rc<[u8]>, part: &[u8]) -> Val {
        let start = part.as_ptr() as usize - row.as_ptr() as usize;
        Val {
            row: row.clone(),
            start,
            len: part.len(),
        }
    }

    /// The bytes of the value in line.
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.row.get(self.start..self.start + self.len);
        bytes.unwrap_or_default()
    }

    /// The value, decoded.
    pub fn item(&self) -> Result<Item<'_>, Corrupt> {
        item(self.bytes())
    }

    /// The type of the value.
    pub fn kind(&self) -> Result<Kind, Corrupt> {
        Ok(match self.item()? {
            Item::Null => Kind::Null,
            Item::Bool(_) => Kind::Bool,
            Item::Int(_) => Kind::Int,
            Item::Large(_) => Kind::Large,
            Item::Float(_) => Kind::Float,
            Item::Text(_) | Item::TextNode(..) => Kind::Text,
            Item::Array(_) | Item::ArrayNode(_) => Kind::Array,
            Item::Object(_) | Item::ObjectNode(_) => Kind::Object,
        })
    }

    /// A copy of a string; `None` for other values.
    pub fn text(&self, rows: &dyn Rows) -> OpResult<Option<Vec<u8>>> {
        Ok(match self.item()? {
            Item::Text(text) => {
                rows.scan(text.len())?;
                Some(text.to_vec())
            }
            Item::TextNode(node, _) => match Node::decode(&rows.node(node)?)? {
                Node::Text(text) => {
                    rows.scan(text.len())?;
                    Some(text.to_vec())
                }
                _ => return Err(CORRUPT.into()),
            },
            _ => None,
        })
    }

    /// Elements of an array, members of an object, bytes of a string; 0 for other values.
    pub fn len(&self, rows: &dyn Rows) -> OpResult<u64> {
        rows.scan(self.len)?;
        Ok(match self.item()? {
            Item::Array(values) => count(values, |cursor| cursor.value().map(drop))?,
            Item::Object(members) => count(members, |cursor| cursor.member().map(drop))?,
            Item::Text(text) => text.len() as u64,
            Item::TextNode(_, len) => len,
            Item::ArrayNode(node) => array_len(&rows.node(node)?)?,
            Item::ObjectNode(node) => match Node::decode(&rows.node(node)?)? {
                Node::ObjectLeaf(head, _) | Node::ObjectBranch(head, _) => head.count,
                _ => return Err(CORRUPT.into()),
            },
            Item::Null | Item::Bool(_) | Item::Int(_) | Item::Large(_) | Item::Float(_) => 0,
        })
    }

    /// The element of an array at an index.
    pub fn element(&self, rows: &dyn Rows, index: u64) -> OpResult<Option<Val>> {
        rows.scan(self.len)?;
        match self.item()? {
            Item::Array(values) => Ok(nth(values, index)?.map(|part| Val::part(&self.row, part))),
            Item::ArrayNode(node) => element_in(rows, node, index),
            _ => Ok(None),
        }
    }

    /// The member of an object with a key.
    pub fn member(&self, rows: &dyn Rows, key: &[u8]) -> OpResult<Option<Val>> {
        rows.scan(self.len)?;
        match self.item()? {
            Item::Object(members) => {
                let mut cursor = Cursor(members);
                while !cursor.is_empty() {
                    let (found, value) = cursor.member()?;
                    if found == key {
                        return Ok(Some(Val::part(&self.row, value)));
                    }
                }
                Ok(None)
            }
            Item::ObjectNode(node) => member_in(rows, node, key),
            _ => Ok(None),
        }
    }

    /// Calls `each` with all elements of an array, until it breaks.
    pub fn each_element(&self, rows: &dyn Rows, each: EachItem<'_>) -> OpResult<ControlFlow<()>> {
        match self.item()? {
            Item::Array(values) => elements_of(rows, (&self.row, Cursor(values)), 0, each),
            Item::ArrayNode(node) => elements_in(rows, node, (0, LEVELS_MAX), each),
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    /// Calls `each` with all members of an object in their order, until it breaks.
    pub fn each_member(&self, rows: &dyn Rows, each: EachMember<'_>) -> OpResult<ControlFlow<()>> {
        match self.item()? {
            Item::Object(members) => {
                let mut cursor = Cursor(members);
                while !cursor.is_empty() {
                    rows.visit(1)?;
                    let (key, value) = cursor.member()?;
                    if each(key, Val::part(&self.row, value))?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            }
            Item::ObjectNode(node) => {
                let mut leaves = Vec::new();
                leaves_of(rows, node, LEVELS_MAX, &mut leaves)?;
                for (leaf, start, len) in in_order(&leaves)? {
                    let Some(row) = leaves.get(leaf) else {
                        return Err(CORRUPT.into());
                    };
                    rows.visit(1)?;
                    let part = row.get(start..start + len).ok_or(CORRUPT)?;
                    let Entry { key, value, .. } = object_entry(&mut Cursor(part))?;
                    if each(key, Val::part(row, value))?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            }
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    /// Whether both are equal, as filters and JSON.ARRINDEX compare: an integer is not equal
    /// to a float, the order of members does not count.
    pub fn equals(&self, rows: &dyn Rows, other: &Val, others: &dyn Rows) -> OpResult<bool> {
        self.is_like(rows, other, others, false)
    }

    /// The same; `by_value`: an integer may be equal to a float.
    pub(super) fn is_like(
        &self,
        rows: &dyn Rows,
        other: &Val,
        others: &dyn Rows,
        by_value: bool,
    ) -> OpResult<bool> {
        let (kind, other_kind) = (self.kind()?, other.kind()?);
        let by_value_alone = by_value && kind != other_kind;
        let of = |kind| match kind {
            Kind::Large => Kind::Float,
            Kind::Int if by_value_alone => Kind::Float,
            kind => kind,
        };
        if of(kind) != of(other_kind) {
            return Ok(false);
        }
        match of(kind) {
            Kind::Null => Ok(true),
            Kind::Bool | Kind::Int => Ok(self.item()? == other.item()?),
            Kind::Large | Kind::Float => Ok(self.float()? == other.float()?),
            Kind::Text => {
                Ok(self.len(rows)? == other.len(others)?
                    && self.text(rows)? == other.text(others)?)
            }
            Kind::Array | Kind::Object if self.len(rows)? != other.len(others)? => Ok(false),
            Kind::Array => {
                let differs = self.each_element(rows, &mut |index, mine| {
                    Ok(match other.element(others, index)? {
                        Some(theirs) if mine.is_like(rows, &theirs, others, by_value)? => {
                            ControlFlow::Continue(())
                        }
                        _ => ControlFlow::Break(()),
                    })
                })?;
                Ok(differs.is_continue())
            }
            Kind::Object => {
                let differs = self.each_member(rows, &mut |key, mine| {
                    Ok(match other.member(others, key)? {
                        Some(theirs) if mine.is_like(rows, &theirs, others, by_value)? => {
                            ControlFlow::Continue(())
                        }
                        _ => ControlFlow::Break(()),
                    })
                })?;
                Ok(differs.is_continue())
            }
        }
    }

    /// A number as a float.
    pub fn float(&self) -> OpResult<Option<f64>> {
        Ok(match self.item()? {
            Item::Int(number) => Some(number as f64),
            Item::Large(number) => Some(number as f64),
            Item::Float(number) => Some(number),
            _ => None,
        })
    }
}

fn count(
    bytes: &[u8],
    skip: impl Fn(&mut Cursor<'_>) -> Result<(), Corrupt>,
) -> Result<u64, Corrupt> {
    let (mut cursor, mut count) = (Cursor(bytes), 0);
    while !cursor.is_empty() {
        skip(&mut cursor)?;
        count += 1;
    }
    Ok(count)
}

/// The bytes of the value at an index.
fn nth(values: &[u8], index: u64) -> Result<Option<&[u8]>, Corrupt> {
    let (mut cursor, mut at) = (Cursor(values), 0);
    while !cursor.is_empty() {
        let value = cursor.value()?;
        if at == index {
            return Ok(Some(value));
        }
        at += 1;
    }
    Ok(None)
}

/// The number of elements in a node of an array.
fn array_len(row: &[u8]) -> Result<u64, Corrupt> {
    Ok(match Node::decode(row)? {
        Node::ArrayLeaf(count, _) => count,
        Node::ArrayBranch(children) => array_children(children)?.iter().map(|c| c.count).sum(),
        _ => return Err(CORRUPT),
    })
}

fn element_in(rows: &dyn Rows, node: NodeId, mut index: u64) -> OpResult<Option<Val>> {
    let mut node = node;
    for _ in 0..LEVELS_MAX {
        let row = rows.node(node)?;
        rows.scan(row.len())?;
        match Node::decode(&row)? {
            Node::ArrayLeaf(_, values) => {
                return Ok(nth(values.0, index)?.map(|part| Val::part(&row, part)));
            }
            Node::ArrayBranch(children) => {
                let mut found = None;
                for child in array_children(children)? {
                    if index < child.count {
                        found = Some(child.node);
                        break;
                    }
                    index -= child.count;
                }
                match found {
                    Some(child) => node = child,
                    None => return Ok(None),
                }
            }
            _ => return Err(CORRUPT.into()),
        }
    }
    Err(CORRUPT.into())
}

/// The child of a branch in which a hash belongs.
pub(super) fn child_of(children: &[ObjectChild], hash: u64) -> Result<usize, Corrupt> {
    let after = children.partition_point(|child| child.low <= hash);
    after.checked_sub(1).ok_or(CORRUPT)
}

fn member_in(rows: &dyn Rows, node: NodeId, key: &[u8]) -> OpResult<Option<Val>> {
    let (hash, mut node) = (rows.hash(key), node);
    for _ in 0..LEVELS_MAX {
        let row = rows.node(node)?;
        rows.scan(row.len())?;
        match Node::decode(&row)? {
            Node::ObjectLeaf(_, mut entries) => {
                while !entries.is_empty() {
                    let entry = object_entry(&mut entries)?;
                    if entry.key == key {
                        return Ok(Some(Val::part(&row, entry.value)));
                    }
                }
                return Ok(None);
            }
            Node::ObjectBranch(_, children) => {
                let children = object_children(children)?;
                let child = children.get(child_of(&children, hash)?).ok_or(CORRUPT)?;
                node = child.node;
            }
            _ => return Err(CORRUPT.into()),
        }
    }
    Err(CORRUPT.into())
}

fn elements_of(
    rows: &dyn Rows,
    (row, mut cursor): (&Rc<[u8]>, Cursor<'_>),
    first: u64,
    each: EachItem<'_>,
) -> OpResult<ControlFlow<()>> {
    let mut index = first;
    while !cursor.is_empty() {
        rows.visit(1)?;
        if each(index, Val::part(row, cursor.value()?))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        index += 1;
    }
    Ok(ControlFlow::Continue(()))
}

fn elements_in(
    rows: &dyn Rows,
    node: NodeId,
    (first, levels): (u64, usize),
    each: EachItem<'_>,
) -> OpResult<ControlFlow<()>> {
    let levels = levels.checked_sub(1).ok_or(CORRUPT)?;
    let row = rows.node(node)?;
    match Node::decode(&row)? {
        Node::ArrayLeaf(_, values) => elements_of(rows, (&row, values), first, each),
        Node::ArrayBranch(children) => {
            let mut first = first;
            for child in array_children(children)? {
                if elements_in(rows, child.node, (first, levels), each)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                first += child.count;
            }
            Ok(ControlFlow::Continue(()))
        }
        _ => Err(CORRUPT.into()),
    }
}

fn leaves_of(
    rows: &dyn Rows,
    node: NodeId,
    levels: usize,
    leaves: &mut Vec<Rc<[u8]>>,
) -> OpResult<()> {
    let levels = levels.checked_sub(1).ok_or(CORRUPT)?;
    let row = rows.node(node)?;
    match Node::decode(&row)? {
        Node::ObjectLeaf(..) => {
            // Its members are sorted later.
            rows.scan(row.len())?;
            leaves.push(row);
            Ok(())
        }
        Node::ObjectBranch(_, children) => {
            for child in object_children(children)? {
                leaves_of(rows, child.node, levels, leaves)?;
            }
            Ok(())
        }
        _ => Err(CORRUPT.into()),
    }
}

/// Leaf, start and length of all members, in the order of their places.
fn in_order(leaves: &[Rc<[u8]>]) -> OpResult<Vec<(usize, usize, usize)>> {
    let mut found = Vec::new();
    for (leaf, row) in leaves.iter().enumerate() {
        let Node::ObjectLeaf(_, mut entries) = Node::decode(row)? else {
            return Err(CORRUPT.into());
        };
        while !entries.is_empty() {
            let start = row.len() - entries.0.len();
            let place = object_entry(&mut entries)?.place;
            let len = row.len() - entries.0.len() - start;
            found.push((place, leaf, start, len));
        }
    }
    found.sort_unstable_by(|a, b| match a.0.cmp(&b.0) {
        Ordering::Equal => a.2.cmp(&b.2),
        order => order,
    });
    Ok(found
        .into_iter()
        .map(|(_, leaf, start, len)| (leaf, start, len))
        .collect())
}
