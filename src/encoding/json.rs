//! JSON documents: the form of values inside rows, and the rows of large documents.
//!
//! A value is written in line: a byte for its kind, then
//!
//! ```text
//! 0 null   1 false   2 true
//! 3 integer           zigzag varint
//! 4 large integer     varint, of integers above 2^63 - 1
//! 5 float             bits (8)
//! 6 string            length (varint) ‖ UTF-8
//! 7 array             length of the rest (varint) ‖ values
//! 8 object            length of the rest (varint) ‖ members: key length (varint) ‖ key ‖ value
//! 9 string node       node (varint) ‖ length (varint)
//! A array node        node (varint)
//! B object node       node (varint)
//! ```
//!
//! A string or a container whose form is longer than [`IN_LINE_MAX`] stands in rows of its own, and
//! 9, A or B stands in its place: the number of the node where it begins. A document of which all
//! is in line needs no rows: it is the body of the meta row, which may be [`ROOT_MAX`] bytes long.
//! The body of others:
//!
//! ```text
//! id (8) ‖ rows (8) ‖ next node (8) ‖ value
//! ```
//!
//! The highest bit of the next node says that there is a node [`GONE`].
//!
//! The rows of a document are its nodes, `18 ‖ id ‖ node (8)`:
//!
//! ```text
//! 0 string            UTF-8
//! 1 array leaf        count (varint) ‖ values
//! 2 array branch      children: node (varint) ‖ count (varint)
//! 3 object leaf       count (varint) ‖ next place (varint) ‖ members: place (varint) ‖ key ‖ value
//! 4 object branch     count (varint) ‖ next place (varint) ‖ children: lowest hash (8) ‖ node (varint)
//! 5 gone              nodes (varints)
//! ```
//!
//! The nodes that [`GONE`] lists, and all below them, were part of the document: a change deletes a
//! bounded number of rows, and later changes delete the rest.
//!
//! An array is a B-tree by position, an object a B-tree by the keyed hash of its keys, so that an
//! element is found by reading one row per level. A member's place says where it stands in the
//! order of the object; members of a leaf are in that order. Count and next place of an object
//! stand in the node where it begins; in its other nodes they are 0. That node keeps its
//! number while the container grows, so a change of a container writes the rows from there to the
//! leaf, and no row above: a change at a path costs the same in a large document as in a small
//! one.

use super::{CollectionId, Corrupt, keys::RowKey, reader::Reader, tag};

/// Most bytes of a container or string in line, below the root.
pub const IN_LINE_MAX: usize = 1024;

/// Most bytes of the root in line.
pub const ROOT_MAX: usize = 2048;

/// Most bytes of a leaf with several elements.
pub const LEAF_MAX: usize = 2048;

/// Most children of a branch.
pub const BRANCH_MAX: usize = 64;

const CORRUPT: Corrupt = Corrupt("JSON");

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INTEGER: u8 = 3;
const LARGE_INTEGER: u8 = 4;
const FLOAT: u8 = 5;
const STRING: u8 = 6;
const ARRAY: u8 = 7;
const OBJECT: u8 = 8;
const STRING_NODE: u8 = 9;
const ARRAY_NODE: u8 = 10;
const OBJECT_NODE: u8 = 11;

const TEXT: u8 = 0;
const ARRAY_LEAF: u8 = 1;
const ARRAY_BRANCH: u8 = 2;
const OBJECT_LEAF: u8 = 3;
const OBJECT_BRANCH: u8 = 4;
const GONE_NODES: u8 = 5;

/// The number of a row of a document.
pub type NodeId = u64;

/// The node of what is no longer part of the document; the others are counted from 1.
pub const GONE: NodeId = 0;

/// The bit of the next node that says whether there is one.
const HAS_GONE: u64 = 1 << 63;

/// The key of a node's row.
pub fn row_key(id: CollectionId, node: NodeId) -> RowKey {
    let mut key = RowKey::new();
    key.push(tag::JSON_NODE);
    key.extend_from_slice(&id.0.to_be_bytes());
    key.extend_from_slice(&node.to_be_bytes());
    key
}

/// The node of a key that [`row_key`] made.
pub fn split_row_key(key: &[u8]) -> Result<NodeId, Corrupt> {
    let mut r = Reader::new(key, "JSON");
    r.take(super::keys::ELEMENT_PREFIX_LEN)?;
    r.u64()
}

/// The body of a document in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonBody<'a> {
    /// The id under which the rows stand.
    pub id: CollectionId,
    /// How many rows there are.
    pub rows: u64,
    /// The number of the next node.
    pub next: NodeId,
    /// Whether there is a node [`GONE`].
    pub has_gone: bool,
    /// The root.
    pub root: &'a [u8],
}

impl<'a> JsonBody<'a> {
    /// Reads the body.
    pub fn decode(body: &'a [u8]) -> Result<JsonBody<'a>, Corrupt> {
        let mut r = Reader::new(body, "meta JSON");
        let (id, rows, next) = (CollectionId(r.u64()?), r.u64()?, r.u64()?);
        Ok(JsonBody {
            id,
            rows,
            next: next & !HAS_GONE,
            has_gone: next & HAS_GONE != 0,
            root: r.rest(),
        })
    }

    /// The body's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(24 + self.root.len());
        let has_gone = if self.has_gone { HAS_GONE } else { 0 };
        for number in [self.id.0, self.rows, self.next | has_gone] {
            body.extend_from_slice(&number.to_be_bytes());
        }
        body.extend_from_slice(self.root);
        body
    }
}

/// A value in line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Item<'a> {
    /// null.
    Null,
    /// true or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above `i64::MAX`.
    Large(u64),
    /// A finite number with a fraction or an exponent.
    Float(f64),
    /// A string.
    Text(&'a [u8]),
    /// The values of an array, one after another.
    Array(&'a [u8]),
    /// The members of an object, one after another.
    Object(&'a [u8]),
    /// A string of so many bytes in a row of its own.
    TextNode(NodeId, u64),
    /// An array in rows.
    ArrayNode(NodeId),
    /// An object in rows.
    ObjectNode(NodeId),
}

/// Reads values and parts of rows from the front of some bytes.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// Whether all is read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> Result<u8, Corrupt> {
        let (first, rest) = self.0.split_first().ok_or(CORRUPT)?;
        self.0 = rest;
        Ok(*first)
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Corrupt> {
        let len = usize::try_from(len).map_err(|_| CORRUPT)?;
        let (taken, rest) = self.0.split_at_checked(len).ok_or(CORRUPT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn eight(&mut self) -> Result<[u8; 8], Corrupt> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(CORRUPT)?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// Reads a number.
    fn varint(&mut self) -> Result<u64, Corrupt> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                return Err(CORRUPT);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(CORRUPT)
    }

    /// Reads a number and so many bytes.
    pub fn text(&mut self) -> Result<&'a [u8], Corrupt> {
        let len = self.varint()?;
        self.take(len)
    }

    /// Reads a value.
    pub fn item(&mut self) -> Result<Item<'a>, Corrupt> {
        Ok(match self.byte()? {
            NULL => Item::Null,
            FALSE => Item::Bool(false),
            TRUE => Item::Bool(true),
            INTEGER => {
                let zigzag = self.varint()?;
                Item::Int((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
            }
            LARGE_INTEGER => Item::Large(self.varint()?),
            FLOAT => Item::Float(f64::from_bits(u64::from_be_bytes(self.eight()?))),
            STRING => Item::Text(self.text()?),
            ARRAY => Item::Array(self.text()?),
            OBJECT => Item::Object(self.text()?),
            STRING_NODE => Item::TextNode(self.varint()?, self.varint()?),
            ARRAY_NODE => Item::ArrayNode(self.varint()?),
            OBJECT_NODE => Item::ObjectNode(self.varint()?),
            _ => return Err(CORRUPT),
        })
    }

    /// Reads the bytes of a value.
    pub fn value(&mut self) -> Result<&'a [u8], Corrupt> {
        let before = self.0;
        self.item()?;
        let len = before.len() - self.0.len();
        before.get(..len).ok_or(CORRUPT)
    }

    /// Reads the key of a member and the bytes of its value.
    pub fn member(&mut self) -> Result<(&'a [u8], &'a [u8]), Corrupt> {
        Ok((self.text()?, self.value()?))
    }
}

/// Decodes a value that is alone.
pub fn item(bytes: &[u8]) -> Result<Item<'_>, Corrupt> {
    Cursor(bytes).item()
}

/// A row of a document.
#[derive(Debug, Clone, Copy)]
pub enum Node<'a> {
    /// A string.
    Text(&'a [u8]),
    /// Values of an array, and how many.
    ArrayLeaf(u64, Cursor<'a>),
    /// Children of a branch of an array: see [`array_child`].
    ArrayBranch(Cursor<'a>),
    /// Members of an object: see [`object_entry`].
    ObjectLeaf(ObjectHead, Cursor<'a>),
    /// Children of a branch of an object: see [`object_child`].
    ObjectBranch(ObjectHead, Cursor<'a>),
    /// Nodes: see [`gone_nodes`].
    Gone(Cursor<'a>),
}

/// What the node states where an object begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectHead {
    /// Members.
    pub count: u64,
    /// The place of the next member.
    pub next: u64,
}

impl<'a> Node<'a> {
    /// Decodes a row.
    pub fn decode(row: &'a [u8]) -> Result<Node<'a>, Corrupt> {
        let mut cursor = Cursor(row);
        let kind = cursor.byte()?;
        let head = |cursor: &mut Cursor<'a>| {
            Ok::<_, Corrupt>(ObjectHead {
                count: cursor.varint()?,
                next: cursor.varint()?,
            })
        };
        Ok(match kind {
            TEXT => Node::Text(cursor.0),
            ARRAY_LEAF => Node::ArrayLeaf(cursor.varint()?, cursor),
            ARRAY_BRANCH => Node::ArrayBranch(cursor),
            OBJECT_LEAF => Node::ObjectLeaf(head(&mut cursor)?, cursor),
            OBJECT_BRANCH => Node::ObjectBranch(head(&mut cursor)?, cursor),
            GONE_NODES => Node::Gone(cursor),
            _ => return Err(CORRUPT),
        })
    }
}

/// A child of a branch of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayChild {
    /// The child.
    pub node: NodeId,
    /// Elements in it.
    pub count: u64,
}

/// Reads the children of a branch of an array.
pub fn array_children(mut cursor: Cursor<'_>) -> Result<Vec<ArrayChild>, Corrupt> {
    let mut children = Vec::with_capacity(BRANCH_MAX);
    while !cursor.is_empty() {
        let (node, count) = (cursor.varint()?, cursor.varint()?);
        children.push(ArrayChild { node, count });
    }
    Ok(children)
}

/// A child of a branch of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectChild {
    /// No hash of a key in the child is lower.
    pub low: u64,
    /// The child.
    pub node: NodeId,
}

/// Reads the children of a branch of an object.
pub fn object_children(mut cursor: Cursor<'_>) -> Result<Vec<ObjectChild>, Corrupt> {
    let mut children = Vec::with_capacity(BRANCH_MAX);
    while !cursor.is_empty() {
        let low = u64::from_be_bytes(cursor.eight()?);
        let node = cursor.varint()?;
        children.push(ObjectChild { low, node });
    }
    Ok(children)
}

/// Reads the nodes that [`GONE`] lists.
pub fn gone_nodes(mut cursor: Cursor<'_>) -> Result<Vec<NodeId>, Corrupt> {
    let mut nodes = Vec::new();
    while !cursor.is_empty() {
        nodes.push(cursor.varint()?);
    }
    Ok(nodes)
}

/// A member of a leaf of an object.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Where it stands in the order.
    pub place: u64,
    /// The key.
    pub key: &'a [u8],
    /// The bytes of the value.
    pub value: &'a [u8],
}

/// Reads a member of a leaf of an object.
pub fn object_entry<'a>(cursor: &mut Cursor<'a>) -> Result<Entry<'a>, Corrupt> {
    let place = cursor.varint()?;
    let (key, value) = cursor.member()?;
    Ok(Entry { place, key, value })
}

/// Writes a number.
fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_text(bytes, out);
}

/// Writes a length and the bytes.
pub fn put_text(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a value in line.
pub fn put_item(item: Item<'_>, out: &mut Vec<u8>) {
    match item {
        Item::Null => out.push(NULL),
        Item::Bool(false) => out.push(FALSE),
        Item::Bool(true) => out.push(TRUE),
        Item::Int(number) => {
            out.push(INTEGER);
            put_varint((number << 1 ^ number >> 63) as u64, out);
        }
        Item::Large(number) => {
            out.push(LARGE_INTEGER);
            put_varint(number, out);
        }
        Item::Float(number) => {
            out.push(FLOAT);
            out.extend_from_slice(&number.to_bits().to_be_bytes());
        }
        Item::Text(text) => put_bytes(STRING, text, out),
        Item::Array(values) => put_bytes(ARRAY, values, out),
        Item::Object(members) => put_bytes(OBJECT, members, out),
        Item::TextNode(node, len) => {
            out.push(STRING_NODE);
            put_varint(node, out);
            put_varint(len, out);
        }
        Item::ArrayNode(node) => {
            out.push(ARRAY_NODE);
            put_varint(node, out);
        }
        Item::ObjectNode(node) => {
            out.push(OBJECT_NODE);
            put_varint(node, out);
        }
    }
}

/// Writes a member of a leaf of an object.
pub fn put_entry(entry: Entry<'_>, out: &mut Vec<u8>) {
    put_varint(entry.place, out);
    put_text(entry.key, out);
    out.extend_from_slice(entry.value);
}

/// The row of a string.
pub fn text_row(text: &[u8]) -> Vec<u8> {
    [&[TEXT], text].concat()
}

/// The row of a leaf of an array.
pub fn array_leaf(count: u64, values: &[&[u8]]) -> Vec<u8> {
    let mut row = vec![ARRAY_LEAF];
    put_varint(count, &mut row);
    for part in values {
        row.extend_from_slice(part);
    }
    row
}

/// The row of a branch of an array.
pub fn array_branch(children: &[ArrayChild]) -> Vec<u8> {
    let mut row = vec![ARRAY_BRANCH];
    for child in children {
        put_varint(child.node, &mut row);
        put_varint(child.count, &mut row);
    }
    row
}

/// The row of a leaf of an object.
pub fn object_leaf(head: ObjectHead, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut row = vec![OBJECT_LEAF];
    put_varint(head.count, &mut row);
    put_varint(head.next, &mut row);
    for entry in entries {
        put_entry(*entry, &mut row);
    }
    row
}

/// The row of a branch of an object.
pub fn object_branch(head: ObjectHead, children: &[ObjectChild]) -> Vec<u8> {
    let mut row = vec![OBJECT_BRANCH];
    put_varint(head.count, &mut row);
    put_varint(head.next, &mut row);
    for child in children {
        row.extend_from_slice(&child.low.to_be_bytes());
        put_varint(child.node, &mut row);
    }
    row
}

/// The row of the node [`GONE`].
pub fn gone_row(nodes: &[NodeId]) -> Vec<u8> {
    let mut row = vec![GONE_NODES];
    for node in nodes {
        put_varint(*node, &mut row);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_these_bytes() {
        for (value, bytes) in [
            (Item::Null, &[0][..]),
            (Item::Bool(false), &[1]),
            (Item::Bool(true), &[2]),
            (Item::Int(-1), &[3, 1]),
            (Item::Int(64), &[3, 0x80, 1]),
            (
                Item::Large(1 << 63),
                b"\x04\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
            ),
            (Item::Float(1.0), b"\x05\x3F\xF0\0\0\0\0\0\0"),
            (Item::Text(b"ab"), b"\x06\x02ab"),
            (Item::Array(b"\0"), b"\x07\x01\0"),
            (Item::Object(b"\x01k\0"), b"\x08\x03\x01k\0"),
            (Item::TextNode(1, 2), &[9, 1, 2]),
            (Item::ArrayNode(3), &[10, 3]),
            (Item::ObjectNode(4), &[11, 4]),
        ] {
            let mut out = Vec::new();
            put_item(value, &mut out);
            assert_eq!(out, bytes, "{value:?}");
            assert_eq!(item(bytes), Ok(value));
            for end in 0..bytes.len() {
                assert!(item(&bytes[..end]).is_err(), "{value:?} cut to {end}");
            }
        }
        for number in [i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_item(Item::Int(number), &mut out);
            assert_eq!(item(&out), Ok(Item::Int(number)));
        }
        assert!(item(&[12]).is_err());
        assert!(item(b"\x04\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02").is_err());
    }

    #[test]
    fn rows_have_these_bytes() {
        let child = ArrayChild { node: 1, count: 2 };
        assert_eq!(text_row(b"x"), b"\x00x");
        assert_eq!(array_leaf(2, &[b"\0", b"\x02"]), [1, 2, 0, 2]);
        assert_eq!(array_branch(&[child]), [2, 1, 2]);
        let head = ObjectHead { count: 5, next: 6 };
        let entry = Entry {
            place: 3,
            key: b"k",
            value: b"\0",
        };
        assert_eq!(object_leaf(head, &[entry]), b"\x03\x05\x06\x03\x01k\0");
        let child = ObjectChild { low: 1, node: 7 };
        assert_eq!(
            object_branch(head, &[child]),
            b"\x04\x05\x06\0\0\0\0\0\0\0\x01\x07"
        );
        assert_eq!(gone_row(&[7, 200]), [5, 7, 0xC8, 1]);
        for (has_gone, first) in [(false, 0), (true, 0x80)] {
            let body = JsonBody {
                id: CollectionId(1),
                rows: 2,
                next: 3,
                has_gone,
                root: &[11, 0],
            };
            let bytes = body.encode();
            assert_eq!(bytes.len(), 26);
            assert_eq!(bytes[16..24], [first, 0, 0, 0, 0, 0, 0, 3]);
            assert_eq!(JsonBody::decode(&bytes), Ok(body));
        }
        let key = row_key(CollectionId(1), 9);
        assert_eq!(key[..], *b"\x18\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x09");
        assert_eq!(split_row_key(&key), Ok(9));
    }
}
