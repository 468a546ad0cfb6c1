//! The rows of values that become a part of a document.

use super::{Editor, Pieces, entries_of};
use crate::encoding::json::{
    ArrayChild, BRANCH_MAX, Cursor, Entry, IN_LINE_MAX, Item, LEAF_MAX, Node, NodeId, ObjectChild,
    ObjectHead, ROOT_MAX, array_branch, array_leaf, object_branch, object_children, object_leaf,
    put_item, put_text, text_row,
};
use crate::types::OpResult;
use crate::types::json::read::{CORRUPT, Rows};
use crate::types::json::value::Value;

impl Editor<'_> {
    /// The form of a value in the row above; what is large gets rows.
    pub fn put(&mut self, value: &Value) -> OpResult<Vec<u8>> {
        let mut out = Vec::new();
        self.put_into(value, IN_LINE_MAX, &mut out)?;
        Ok(out)
    }

    /// The form of a value as the root.
    pub(in crate::types::json) fn put_root(&mut self, value: &Value) -> OpResult<Vec<u8>> {
        let mut out = Vec::new();
        self.put_into(value, ROOT_MAX, &mut out)?;
        Ok(out)
    }

    /// The forms of several values.
    pub fn put_all(&mut self, values: &[Value]) -> OpResult<Pieces> {
        let mut pieces = Pieces::default();
        for value in values {
            self.put_into(value, IN_LINE_MAX, &mut pieces.bytes)?;
            pieces.end();
        }
        Ok(pieces)
    }

    /// The form of a string.
    pub fn put_text(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if text.len() <= IN_LINE_MAX {
            return put_item(Item::Text(text), out);
        }
        let node = self.add_node(text_row(text));
        put_item(Item::TextNode(node, text.len() as u64), out);
    }

    pub(super) fn put_into(
        &mut self,
        value: &Value,
        max: usize,
        out: &mut Vec<u8>,
    ) -> OpResult<()> {
        match value {
            Value::Null => put_item(Item::Null, out),
            Value::Bool(value) => put_item(Item::Bool(*value), out),
            Value::Int(value) => put_item(Item::Int(*value), out),
            Value::Large(value) => put_item(Item::Large(*value), out),
            Value::Float(value) => put_item(Item::Float(*value), out),
            Value::Text(text) => self.put_text(text.as_bytes(), out),
            Value::Array(values) => {
                let pieces = self.put_all(values)?;
                match pieces.bytes.len() <= max {
                    true => put_item(Item::Array(&pieces.bytes), out),
                    false => put_item(Item::ArrayNode(self.build_array(&pieces)), out),
                }
            }
            Value::Object(members) => {
                let mut pieces = Pieces::default();
                for (key, value) in members {
                    put_text(key.as_bytes(), &mut pieces.bytes);
                    self.put_into(value, IN_LINE_MAX, &mut pieces.bytes)?;
                    pieces.end();
                }
                match pieces.bytes.len() <= max {
                    true => put_item(Item::Object(&pieces.bytes), out),
                    false => {
                        let node = self.build_object(&pieces)?;
                        put_item(Item::ObjectNode(node), out);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn array_of(&mut self, values: &[u8], max: usize) -> OpResult<Vec<u8>> {
        let mut out = Vec::with_capacity(values.len() + 4);
        if values.len() <= max {
            put_item(Item::Array(values), &mut out);
            return Ok(out);
        }
        let mut pieces = Pieces::default();
        let mut cursor = Cursor(values);
        while !cursor.is_empty() {
            pieces.bytes.extend_from_slice(cursor.value()?);
            pieces.end();
        }
        let node = self.build_array(&pieces);
        put_item(Item::ArrayNode(node), &mut out);
        Ok(out)
    }

    pub(super) fn object_of(&mut self, members: &[u8], max: usize) -> OpResult<Vec<u8>> {
        let mut out = Vec::with_capacity(members.len() + 4);
        if members.len() <= max {
            put_item(Item::Object(members), &mut out);
            return Ok(out);
        }
        let mut pieces = Pieces::default();
        let mut cursor = Cursor(members);
        while !cursor.is_empty() {
            let (key, value) = cursor.member()?;
            put_text(key, &mut pieces.bytes);
            pieces.bytes.extend_from_slice(value);
            pieces.end();
        }
        let node = self.build_object(&pieces)?;
        put_item(Item::ObjectNode(node), &mut out);
        Ok(out)
    }

    pub(super) fn build_array(&mut self, pieces: &Pieces) -> NodeId {
        let values: Vec<&[u8]> = pieces.iter().collect();
        let leaves = self.array_leaves(&values, None, true);
        self.array_root(leaves)
    }

    /// Writes values to leaves, the first of them to a node that exists.
    pub(super) fn array_leaves(
        &mut self,
        values: &[&[u8]],
        first: Option<NodeId>,
        fills: bool,
    ) -> Vec<ArrayChild> {
        let mut leaves = Vec::new();
        let mut first = first;
        for chunk in chunks(values, |value| value.len(), fills) {
            let count = chunk.len() as u64;
            let row = array_leaf(count, chunk);
            let node = self.put_node(first.take(), row);
            leaves.push(ArrayChild { node, count });
        }
        leaves
    }

    pub(super) fn put_node(&mut self, node: Option<NodeId>, row: Vec<u8>) -> NodeId {
        match node {
            Some(node) => {
                self.set_node(node, row);
                node
            }
            None => self.add_node(row),
        }
    }

    /// Puts branches above nodes until there is one node.
    pub(super) fn array_root(&mut self, mut nodes: Vec<ArrayChild>) -> NodeId {
        while nodes.len() > 1 {
            nodes = self.array_branches(&nodes, None);
        }
        match nodes.first() {
            Some(root) => root.node,
            None => self.add_node(array_leaf(0, &[])),
        }
    }

    pub(super) fn array_branches(
        &mut self,
        children: &[ArrayChild],
        first: Option<NodeId>,
    ) -> Vec<ArrayChild> {
        let mut first = first;
        let branches = children.chunks(BRANCH_MAX).map(|chunk| {
            let node = self.put_node(first.take(), array_branch(chunk));
            let count = chunk.iter().map(|child| child.count).sum();
            ArrayChild { node, count }
        });
        branches.collect()
    }

    pub(super) fn build_object(&mut self, pieces: &Pieces) -> OpResult<NodeId> {
        let mut entries = Vec::with_capacity(pieces.ends.len());
        for (place, piece) in pieces.iter().enumerate() {
            let (key, value) = Cursor(piece).member()?;
            let place = place as u64;
            entries.push((self.hash(key), Entry { place, key, value }));
        }
        let count = entries.len() as u64;
        entries.sort_by_key(|(hash, entry)| (*hash, entry.place));
        let mut nodes = self.object_leaves(&mut entries, 0, None, ObjectHead::default());
        while nodes.len() > 1 {
            nodes = self.object_branches(&nodes, None, ObjectHead::default());
        }
        let root = nodes.first().map(|child| child.node).ok_or(CORRUPT)?;
        self.set_head(root, ObjectHead { count, next: count })?;
        Ok(root)
    }

    /// Writes members, which are in the order of their hashes, to leaves. Members with the
    /// same hash stay together.
    pub(super) fn object_leaves(
        &mut self,
        entries: &mut [(u64, Entry<'_>)],
        low: u64,
        first: Option<NodeId>,
        head: ObjectHead,
    ) -> Vec<ObjectChild> {
        let size = |entry: &Entry<'_>| entry.key.len() + entry.value.len() + 6;
        let total: usize = entries.iter().map(|(_, entry)| size(entry)).sum();
        let leaf_bytes = total.div_ceil(total.div_ceil(LEAF_MAX).max(1));
        let (mut leaves, mut first, mut low) = (Vec::new(), first, low);
        let mut rest = entries;
        while !rest.is_empty() {
            let (mut len, mut bytes) = (0, 0);
            for same in rest.chunk_by(|a, b| a.0 == b.0) {
                let more: usize = same.iter().map(|(_, entry)| size(entry)).sum();
                if len > 0 && (bytes >= leaf_bytes || bytes + more > LEAF_MAX) {
                    break;
                }
                len += same.len();
                bytes += more;
            }
            let (chunk, after) = rest.split_at_mut(len);
            chunk.sort_unstable_by_key(|(_, entry)| entry.place);
            let members: Vec<Entry<'_>> = chunk.iter().map(|(_, entry)| *entry).collect();
            let head = match leaves.is_empty() {
                true => head,
                false => ObjectHead::default(),
            };
            let row = object_leaf(head, &members);
            let node = self.put_node(first.take(), row);
            leaves.push(ObjectChild { low, node });
            low = after.first().map_or(0, |(hash, _)| *hash);
            rest = after;
        }
        leaves
    }

    pub(super) fn object_branches(
        &mut self,
        children: &[ObjectChild],
        first: Option<NodeId>,
        head: ObjectHead,
    ) -> Vec<ObjectChild> {
        let mut first = first;
        let len = children
            .len()
            .div_ceil(children.len().div_ceil(BRANCH_MAX).max(1));
        let branches = children.chunks(len.max(1)).map(|chunk| {
            let node = self.put_node(first.take(), object_branch(head, chunk));
            let low = chunk.first().map_or(0, |child| child.low);
            ObjectChild { low, node }
        });
        branches.collect()
    }

    pub(super) fn set_head(&mut self, node: NodeId, head: ObjectHead) -> OpResult<()> {
        let row = self.node(node)?;
        let row = match Node::decode(&row)? {
            Node::ObjectLeaf(_, entries) => object_leaf(head, &entries_of(entries)?),
            Node::ObjectBranch(_, children) => object_branch(head, &object_children(children)?),
            _ => return Err(CORRUPT.into()),
        };
        self.set_node(node, row);
        Ok(())
    }

    pub(super) fn head_of(&self, node: NodeId) -> OpResult<ObjectHead> {
        match Node::decode(&self.node(node)?)? {
            Node::ObjectLeaf(head, _) | Node::ObjectBranch(head, _) => Ok(head),
            _ => Err(CORRUPT.into()),
        }
    }
}

/// Divides elements into chunks of at most [`LEAF_MAX`] bytes, but at least one element: full ones
/// if there will be more at the end, otherwise even ones.
fn chunks<T>(elements: &[T], size: impl Fn(&T) -> usize, fills: bool) -> Vec<&[T]> {
    let total: usize = elements.iter().map(&size).sum();
    let goal = match fills {
        true => LEAF_MAX,
        false => total.div_ceil(total.div_ceil(LEAF_MAX).max(1)),
    };
    let (mut parts, mut rest) = (Vec::new(), elements);
    while !rest.is_empty() {
        let (mut len, mut bytes) = (0, 0);
        for element in rest {
            let more = size(element);
            if len > 0 && (bytes >= goal || bytes + more > LEAF_MAX) {
                break;
            }
            len += 1;
            bytes += more;
        }
        let (chunk, after) = rest.split_at(len);
        parts.push(chunk);
        rest = after;
    }
    parts
}
