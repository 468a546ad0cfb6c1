//! Changes of documents. The rows that a change touches are kept here until the document is saved,
//! so a row that many places of a path share is written once.

use super::read::{CORRUPT, LEVELS_MAX, Rows, child_of};
use super::value::Value;
use crate::encoding::CollectionId;
use crate::encoding::json::{
    ArrayChild, BRANCH_MAX, Cursor, Entry, IN_LINE_MAX, Item, LEAF_MAX, Node, NodeId, ObjectChild,
    ObjectHead, ROOT_MAX, array_branch, array_children, array_leaf, item, object_branch,
    object_children, object_entry, object_leaf, put_item, put_text, text_row,
};
use crate::storage::{DbIndex, View};
use crate::types::{OpError, OpResult};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// A step of a path to a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The member with a key.
    Key(Rc<[u8]>),
    /// The element at an index.
    Index(u64),
}

/// What becomes of a value.
pub type Change<'c> = &'c mut dyn FnMut(&mut Editor<'_>, &[u8]) -> OpResult<Option<Vec<u8>>>;

/// Values in line, one after another.
#[derive(Debug, Default, Clone)]
pub struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pieces {
    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let spans = starts.zip(&self.ends);
        spans.filter_map(|(start, end)| self.bytes.get(start..*end))
    }

    /// How many values there are.
    pub fn len(&self) -> u64 {
        self.ends.len() as u64
    }
}

/// A document that is changed.
pub struct Editor<'v> {
    view: &'v View,
    db: DbIndex,
    /// The rows' id, once there are rows.
    pub(super) id: Option<CollectionId>,
    pub(super) count: u64,
    pub(super) next: NodeId,
    /// Rows that were written or deleted (`None`).
    pub(super) changed: FxHashMap<NodeId, Option<Rc<[u8]>>>,
}

impl Rows for Editor<'_> {
    fn node(&self, node: NodeId) -> OpResult<Rc<[u8]>> {
        if let Some(changed) = self.changed.get(&node) {
            return Ok(changed.clone().ok_or(CORRUPT)?);
        }
        super::stored_node(self.view, self.db, self.id.ok_or(CORRUPT)?, node)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.view.engine().hash.hash(key)
    }

    fn hold(&self, bytes: u64) -> OpResult<()> {
        Ok(self.view.will_hold(bytes)?)
    }
}

impl<'v> Editor<'v> {
    /// Begins a change of a document with so many rows under an id.
    pub(super) fn new(
        view: &'v View,
        db: DbIndex,
        id: Option<CollectionId>,
        count: u64,
        next: NodeId,
    ) -> Editor<'v> {
        Editor {
            view,
            db,
            id,
            count,
            next,
            changed: FxHashMap::default(),
        }
    }

    fn add_node(&mut self, row: Vec<u8>) -> NodeId {
        let node = self.next;
        self.next += 1;
        self.count += 1;
        self.changed.insert(node, Some(row.into()));
        node
    }

    fn set_node(&mut self, node: NodeId, row: Vec<u8>) {
        self.changed.insert(node, Some(row.into()));
    }

    fn drop_node(&mut self, node: NodeId) {
        self.count = self.count.saturating_sub(1);
        self.changed.insert(node, None);
    }

    /// The value at the end of a path is given to `change`, which returns what takes its place
    /// in the row above, or `None` if that stays as it is. Returns the new root, if it is
    /// another.
    ///
    /// # Errors
    /// There is nothing at the path.
    pub fn edit(
        &mut self,
        root: &[u8],
        path: &[Step],
        change: Change<'_>,
    ) -> OpResult<Option<Vec<u8>>> {
        self.edit_value(root, path, ROOT_MAX, change)
    }

    pub(super) fn edit_value(
        &mut self,
        value: &[u8],
        path: &[Step],
        max: usize,
        change: Change<'_>,
    ) -> OpResult<Option<Vec<u8>>> {
        let Some((step, rest)) = path.split_first() else {
            return change(self, value);
        };
        match (item(value)?, step) {
            (Item::Array(values), Step::Index(index)) => {
                let (mut cursor, mut at) = (Cursor(values), 0);
                while !cursor.is_empty() {
                    let before = values.len() - cursor.0.len();
                    let old = cursor.value()?;
                    if at == *index {
                        let new = self.edit_value(old, rest, IN_LINE_MAX, change)?;
                        let Some(new) = new else { return Ok(None) };
                        let parts = [values.get(..before).unwrap_or_default(), &new, cursor.0];
                        return Ok(Some(self.array_of(&parts.concat(), max)?));
                    }
                    at += 1;
                }
                Err(OpError::NoSuchPath)
            }
            (Item::Object(members), Step::Key(key)) => {
                let mut cursor = Cursor(members);
                while !cursor.is_empty() {
                    let (found, old) = cursor.member()?;
                    if *found == **key {
                        let new = self.edit_value(old, rest, IN_LINE_MAX, change)?;
                        let Some(new) = new else { return Ok(None) };
                        let before = members.len() - cursor.0.len() - old.len();
                        let parts = [members.get(..before).unwrap_or_default(), &new, cursor.0];
                        return Ok(Some(self.object_of(&parts.concat(), max)?));
                    }
                }
                Err(OpError::NoSuchPath)
            }
            (Item::ArrayNode(node), Step::Index(index)) => {
                let changed = self.edit_element(node, *index, LEVELS_MAX, rest, change)?;
                if let Some(parts) = changed {
                    self.end_array(node, &parts)?;
                }
                Ok(None)
            }
            (Item::ObjectNode(node), Step::Key(key)) => {
                let hash = self.hash(key);
                let mut how = InLeaf::Edit(rest, change);
                let changed = self.in_object(node, (0, hash), key, LEVELS_MAX, &mut how)?;
                if let Some(parts) = changed.parts {
                    self.end_object(node, &parts, None)?;
                }
                Ok(None)
            }
            _ => Err(OpError::NoSuchPath),
        }
    }

    // Building.

    /// The form of a value in the row above; what is large gets rows.
    pub fn put(&mut self, value: &Value) -> OpResult<Vec<u8>> {
        let mut out = Vec::new();
        self.put_into(value, IN_LINE_MAX, &mut out)?;
        Ok(out)
    }

    /// The form of a value as the root.
    pub fn put_root(&mut self, value: &Value) -> OpResult<Vec<u8>> {
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

    fn put_into(&mut self, value: &Value, max: usize, out: &mut Vec<u8>) -> OpResult<()> {
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

    fn array_of(&mut self, values: &[u8], max: usize) -> OpResult<Vec<u8>> {
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

    fn object_of(&mut self, members: &[u8], max: usize) -> OpResult<Vec<u8>> {
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

    fn build_array(&mut self, pieces: &Pieces) -> NodeId {
        let values: Vec<&[u8]> = pieces.iter().collect();
        let leaves = self.array_leaves(&values, None, true);
        self.array_root(leaves)
    }

    /// Writes values to leaves, the first of them to a node that exists.
    fn array_leaves(
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

    fn put_node(&mut self, node: Option<NodeId>, row: Vec<u8>) -> NodeId {
        match node {
            Some(node) => {
                self.set_node(node, row);
                node
            }
            None => self.add_node(row),
        }
    }

    /// Puts branches above nodes until there is one node.
    fn array_root(&mut self, mut nodes: Vec<ArrayChild>) -> NodeId {
        while nodes.len() > 1 {
            nodes = self.array_branches(&nodes, None);
        }
        match nodes.first() {
            Some(root) => root.node,
            None => self.add_node(array_leaf(0, &[])),
        }
    }

    fn array_branches(
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

    fn build_object(&mut self, pieces: &Pieces) -> OpResult<NodeId> {
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
    fn object_leaves(
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

    fn object_branches(
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

    fn set_head(&mut self, node: NodeId, head: ObjectHead) -> OpResult<()> {
        let row = self.node(node)?;
        let row = match Node::decode(&row)? {
            Node::ObjectLeaf(_, entries) => object_leaf(head, &entries_of(entries)?),
            Node::ObjectBranch(_, children) => object_branch(head, &object_children(children)?),
            _ => return Err(CORRUPT.into()),
        };
        self.set_node(node, row);
        Ok(())
    }

    fn head_of(&self, node: NodeId) -> OpResult<ObjectHead> {
        match Node::decode(&self.node(node)?)? {
            Node::ObjectLeaf(head, _) | Node::ObjectBranch(head, _) => Ok(head),
            _ => Err(CORRUPT.into()),
        }
    }

    // Removal.

    /// Deletes the rows of a value that is no longer there.
    pub fn free(&mut self, value: &[u8]) -> OpResult<()> {
        match item(value)? {
            Item::TextNode(node, _) => self.drop_node(node),
            Item::ArrayNode(node) | Item::ObjectNode(node) => self.free_node(node, LEVELS_MAX)?,
            Item::Array(values) => self.free_all(values)?,
            Item::Object(members) => {
                let mut cursor = Cursor(members);
                while !cursor.is_empty() {
                    let (_, value) = cursor.member()?;
                    self.free(value)?;
                }
            }
            Item::Null
            | Item::Bool(_)
            | Item::Int(_)
            | Item::Large(_)
            | Item::Float(_)
            | Item::Text(_) => {}
        }
        Ok(())
    }

    fn free_all(&mut self, values: &[u8]) -> OpResult<()> {
        let mut cursor = Cursor(values);
        while !cursor.is_empty() {
            self.free(cursor.value()?)?;
        }
        Ok(())
    }

    fn free_node(&mut self, node: NodeId, levels: usize) -> OpResult<()> {
        let levels = levels.checked_sub(1).ok_or(CORRUPT)?;
        let row = self.node(node)?;
        match Node::decode(&row)? {
            Node::Text(_) => {}
            Node::ArrayLeaf(_, values) => self.free_all(values.0)?,
            Node::ArrayBranch(children) => {
                for child in array_children(children)? {
                    self.free_node(child.node, levels)?;
                }
            }
            Node::ObjectLeaf(_, mut entries) => {
                while !entries.is_empty() {
                    self.free(object_entry(&mut entries)?.value)?;
                }
            }
            Node::ObjectBranch(_, children) => {
                for child in object_children(children)? {
                    self.free_node(child.node, levels)?;
                }
            }
        }
        self.drop_node(node);
        Ok(())
    }

    // Arrays.

    /// Removes elements of an array from an index on and puts others there. Returns what takes
    /// the array's place, or `None`.
    ///
    /// # Errors
    /// The value is no array, or has fewer elements.
    pub fn splice(
        &mut self,
        array: &[u8],
        start: u64,
        removed: u64,
        added: &Pieces,
        max: usize,
    ) -> OpResult<Option<Vec<u8>>> {
        match item(array)? {
            Item::Array(values) => {
                let (before, gone, after) = cut(values, start, removed)?;
                self.free_all(gone)?;
                let values = [before, &added.bytes, after].concat();
                Ok(Some(self.array_of(&values, max)?))
            }
            Item::ArrayNode(node) => {
                let Some(parts) = self.splice_node(node, start, removed, added, LEVELS_MAX)? else {
                    return Ok(None);
                };
                if parts.is_empty() {
                    let mut out = Vec::new();
                    put_item(Item::Array(b""), &mut out);
                    return Ok(Some(out));
                }
                self.end_array(node, &parts)?;
                Ok(None)
            }
            _ => Err(CORRUPT.into()),
        }
    }

    /// Makes the nodes that a root has become one node again, with the number of the root.
    fn end_array(&mut self, root: NodeId, parts: &[ArrayChild]) -> OpResult<()> {
        let mut parts = parts.to_vec();
        while parts.len() > 1 {
            // The first has the root's number, which is needed above it.
            if let Some(first) = parts.first_mut().filter(|first| first.node == root) {
                let row = self.node(root)?;
                first.node = self.add_node(row.to_vec());
                self.drop_node(root);
            }
            parts = match parts.len() <= BRANCH_MAX {
                true => {
                    self.count += 1;
                    self.array_branches(&parts, Some(root))
                }
                false => self.array_branches(&parts, None),
            };
        }
        Ok(())
    }

    /// What becomes of the node; `None` if it is written already and counts what it did.
    fn splice_node(
        &mut self,
        node: NodeId,
        start: u64,
        removed: u64,
        added: &Pieces,
        levels: usize,
    ) -> OpResult<Option<Vec<ArrayChild>>> {
        let levels = levels.checked_sub(1).ok_or(CORRUPT)?;
        let row = self.node(node)?;
        match Node::decode(&row)? {
            Node::ArrayLeaf(_, values) => {
                let (before, gone, after) = cut(values.0, start, removed)?;
                self.free_all(gone)?;
                let mut parts = values_of(before)?;
                parts.extend(added.iter());
                parts.extend(values_of(after)?);
                if parts.is_empty() {
                    self.drop_node(node);
                    return Ok(Some(Vec::new()));
                }
                Ok(Some(self.array_leaves(
                    &parts,
                    Some(node),
                    after.is_empty(),
                )))
            }
            Node::ArrayBranch(children) => {
                let children = array_children(children)?;
                let mut now = Vec::with_capacity(children.len() + 1);
                let (mut first, mut left, mut added) = (0, removed, Some(added));
                let (end, last) = (start + removed, children.len().saturating_sub(1));
                for (at, child) in children.iter().enumerate() {
                    let after = first + child.count;
                    let takes = added.is_some() && (start < after || at == last);
                    let cuts = left > 0 && first < end && start < after;
                    if takes || cuts {
                        let from = start.max(first) - first;
                        let gone = end.min(after).saturating_sub(first + from);
                        left -= gone;
                        let empty = Pieces::default();
                        let more = added.take().filter(|_| takes).unwrap_or(&empty);
                        let parts = match (gone == child.count, more.len()) {
                            (true, 0) => {
                                self.free_node(child.node, levels)?;
                                Some(Vec::new())
                            }
                            _ => self.splice_node(child.node, from, gone, more, levels)?,
                        };
                        now.extend(parts.unwrap_or_else(|| vec![*child]));
                    } else {
                        now.push(*child);
                    }
                    first = after;
                }
                if now.is_empty() {
                    self.drop_node(node);
                    return Ok(Some(Vec::new()));
                }
                if now == children {
                    return Ok(None);
                }
                Ok(Some(self.array_branches(&now, Some(node))))
            }
            _ => Err(CORRUPT.into()),
        }
    }

    fn edit_element(
        &mut self,
        node: NodeId,
        index: u64,
        levels: usize,
        rest: &[Step],
        change: Change<'_>,
    ) -> OpResult<Option<Vec<ArrayChild>>> {
        let levels = levels.checked_sub(1).ok_or(CORRUPT)?;
        let row = self.node(node)?;
        match Node::decode(&row)? {
            Node::ArrayLeaf(count, values) => {
                if index >= count {
                    return Err(OpError::NoSuchPath);
                }
                let (before, old, after) = cut(values.0, index, 1)?;
                let Some(new) = self.edit_value(old, rest, IN_LINE_MAX, change)? else {
                    return Ok(None);
                };
                if values.0.len() - old.len() + new.len() <= LEAF_MAX {
                    self.set_node(node, array_leaf(count, &[before, &new, after]));
                    return Ok(None);
                }
                let mut parts = values_of(before)?;
                parts.push(&new);
                parts.extend(values_of(after)?);
                Ok(Some(self.array_leaves(&parts, Some(node), false)))
            }
            Node::ArrayBranch(children) => {
                let mut children = array_children(children)?;
                let mut first = 0;
                let mut found = None;
                for (at, child) in children.iter().enumerate() {
                    if index < first + child.count {
                        found = Some((at, child.node));
                        break;
                    }
                    first += child.count;
                }
                let (at, child) = found.ok_or(OpError::NoSuchPath)?;
                let parts = self.edit_element(child, index - first, levels, rest, change)?;
                let Some(parts) = parts else { return Ok(None) };
                children.splice(at..=at, parts);
                Ok(Some(self.array_branches(&children, Some(node))))
            }
            _ => Err(CORRUPT.into()),
        }
    }

    // Objects.

    /// Sets a member of an object. Returns what takes the object's place, or `None`.
    ///
    /// # Errors
    /// The value is no object.
    pub fn set_member(
        &mut self,
        object: &[u8],
        key: &[u8],
        value: &[u8],
        max: usize,
    ) -> OpResult<Option<Vec<u8>>> {
        match item(object)? {
            Item::Object(members) => {
                let mut out = Vec::with_capacity(members.len() + key.len() + value.len() + 4);
                let (mut cursor, mut found) = (Cursor(members), false);
                while !cursor.is_empty() {
                    let (name, old) = cursor.member()?;
                    put_text(name, &mut out);
                    let is_it = name == key;
                    if is_it {
                        self.free(old)?;
                    }
                    out.extend_from_slice(if is_it { value } else { old });
                    found |= is_it;
                }
                if !found {
                    put_text(key, &mut out);
                    out.extend_from_slice(value);
                }
                Ok(Some(self.object_of(&out, max)?))
            }
            Item::ObjectNode(node) => {
                let head = self.head_of(node)?;
                let hash = self.hash(key);
                let mut how = InLeaf::Set(head.next, value);
                let done = self.in_object(node, (0, hash), key, LEVELS_MAX, &mut how)?;
                let new = done.is_new.then_some(ObjectHead {
                    count: head.count + 1,
                    next: head.next + 1,
                });
                if let Some(parts) = done.parts {
                    self.end_object(node, &parts, new)?;
                } else if let Some(new) = new {
                    self.set_head(node, new)?;
                }
                Ok(None)
            }
            _ => Err(CORRUPT.into()),
        }
    }

    /// Removes a member of an object. Returns what takes the object's place, or `None`.
    ///
    /// # Errors
    /// The value is no object, or does not have the member.
    pub fn remove_member(
        &mut self,
        object: &[u8],
        key: &[u8],
        max: usize,
    ) -> OpResult<Option<Vec<u8>>> {
        match item(object)? {
            Item::Object(members) => {
                let mut out = Vec::with_capacity(members.len());
                let mut cursor = Cursor(members);
                while !cursor.is_empty() {
                    let (name, old) = cursor.member()?;
                    if name == key {
                        self.free(old)?;
                        continue;
                    }
                    put_text(name, &mut out);
                    out.extend_from_slice(old);
                }
                Ok(Some(self.object_of(&out, max)?))
            }
            Item::ObjectNode(node) => {
                let mut head = self.head_of(node)?;
                head.count = head.count.checked_sub(1).ok_or(CORRUPT)?;
                let hash = self.hash(key);
                let done = self.in_object(node, (0, hash), key, LEVELS_MAX, &mut InLeaf::Remove)?;
                match done.parts {
                    Some(parts) if parts.is_empty() => {
                        let mut out = Vec::new();
                        put_item(Item::Object(b""), &mut out);
                        return Ok(Some(out));
                    }
                    Some(parts) => self.end_object(node, &parts, Some(head))?,
                    None => self.set_head(node, head)?,
                }
                Ok(None)
            }
            _ => Err(CORRUPT.into()),
        }
    }

    fn end_object(
        &mut self,
        root: NodeId,
        parts: &[ObjectChild],
        head: Option<ObjectHead>,
    ) -> OpResult<()> {
        let mut parts = parts.to_vec();
        let now = match head {
            Some(head) => head,
            None => self.head_of(root)?,
        };
        while parts.len() > 1 {
            if let Some(first) = parts.first_mut().filter(|first| first.node == root) {
                let row = self.node(root)?;
                first.node = self.add_node(row.to_vec());
                self.set_head(first.node, ObjectHead::default())?;
                self.drop_node(root);
            }
            parts = match parts.len() <= BRANCH_MAX {
                true => {
                    self.count += 1;
                    self.object_branches(&parts, Some(root), now)
                }
                false => self.object_branches(&parts, None, ObjectHead::default()),
            };
        }
        self.set_head(root, now)
    }

    fn in_object(
        &mut self,
        node: NodeId,
        (low, hash): (u64, u64),
        key: &[u8],
        levels: usize,
        how: &mut InLeaf<'_, '_>,
    ) -> OpResult<Done> {
        let levels = levels.checked_sub(1).ok_or(CORRUPT)?;
        let row = self.node(node)?;
        match Node::decode(&row)? {
            Node::ObjectLeaf(head, entries) => {
                self.in_leaf(node, head, entries_of(entries)?, (low, key), how)
            }
            Node::ObjectBranch(head, children) => {
                let mut children = object_children(children)?;
                let at = child_of(&children, hash)?;
                let child = *children.get(at).ok_or(CORRUPT)?;
                let done = self.in_object(child.node, (child.low, hash), key, levels, how)?;
                let Some(parts) = done.parts else {
                    return Ok(done);
                };
                if let [only] = parts[..]
                    && only == child
                {
                    return Ok(Done {
                        parts: None,
                        ..done
                    });
                }
                children.splice(at..=at, parts);
                if let Some(first) = children.first_mut() {
                    first.low = low;
                }
                if children.is_empty() {
                    self.drop_node(node);
                    return Ok(Done {
                        parts: Some(Vec::new()),
                        ..done
                    });
                }
                let parts = match children.len() <= BRANCH_MAX {
                    true => {
                        self.set_node(node, object_branch(head, &children));
                        None
                    }
                    false => Some(self.object_branches(&children, Some(node), head)),
                };
                Ok(Done { parts, ..done })
            }
            _ => Err(CORRUPT.into()),
        }
    }

    fn in_leaf(
        &mut self,
        node: NodeId,
        head: ObjectHead,
        entries: Vec<Entry<'_>>,
        (low, key): (u64, &[u8]),
        how: &mut InLeaf<'_, '_>,
    ) -> OpResult<Done> {
        let at = entries.iter().position(|entry| entry.key == key);
        let old = at.and_then(|at| entries.get(at).copied());
        let mut is_new = false;
        let new;
        let mut entries: Vec<Entry<'_>> = entries;
        match how {
            InLeaf::Edit(rest, change) => {
                let old = old.ok_or(OpError::NoSuchPath)?;
                match self.edit_value(old.value, rest, IN_LINE_MAX, &mut **change)? {
                    Some(changed) => new = changed,
                    None => return Ok(Done::default()),
                }
                replace(&mut entries, at, &new);
            }
            InLeaf::Set(place, value) => match old {
                Some(old) => {
                    self.free(old.value)?;
                    replace(&mut entries, at, value);
                }
                None => {
                    is_new = true;
                    let place = *place;
                    entries.push(Entry { place, key, value });
                }
            },
            InLeaf::Remove => {
                let (at, old) = at.zip(old).ok_or(OpError::NoSuchPath)?;
                self.free(old.value)?;
                entries.remove(at);
                if entries.is_empty() {
                    self.drop_node(node);
                    return Ok(Done {
                        parts: Some(Vec::new()),
                        is_new,
                    });
                }
            }
        }
        let row = object_leaf(head, &entries);
        if row.len() <= LEAF_MAX || entries.len() == 1 {
            self.set_node(node, row);
            return Ok(Done {
                parts: None,
                is_new,
            });
        }
        let mut hashed: Vec<_> = entries.iter().map(|e| (self.hash(e.key), *e)).collect();
        hashed.sort_by_key(|(hash, entry)| (*hash, entry.place));
        let parts = self.object_leaves(&mut hashed, low, Some(node), head);
        let parts = (parts.len() > 1).then_some(parts);
        Ok(Done { parts, is_new })
    }
}

fn replace<'e>(entries: &mut [Entry<'e>], at: Option<usize>, value: &'e [u8]) {
    if let Some(entry) = at.and_then(|at| entries.get_mut(at)) {
        entry.value = value;
    }
}

/// What is done in the leaf of a key.
enum InLeaf<'a, 'c> {
    /// The value is changed.
    Edit(&'a [Step], Change<'c>),
    /// The value is set; a new member gets this place.
    Set(u64, &'a [u8]),
    /// The member is removed.
    Remove,
}

/// What has become of a node of an object.
#[derive(Default)]
struct Done {
    /// The nodes in its place; `None`: itself.
    parts: Option<Vec<ObjectChild>>,
    /// Whether there is one member more.
    is_new: bool,
}

fn entries_of(mut cursor: Cursor<'_>) -> OpResult<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    while !cursor.is_empty() {
        entries.push(object_entry(&mut cursor)?);
    }
    Ok(entries)
}

fn values_of(bytes: &[u8]) -> OpResult<Vec<&[u8]>> {
    let (mut cursor, mut values) = (Cursor(bytes), Vec::new());
    while !cursor.is_empty() {
        values.push(cursor.value()?);
    }
    Ok(values)
}

/// The values before, in and after a range.
fn cut(values: &[u8], start: u64, len: u64) -> OpResult<(&[u8], &[u8], &[u8])> {
    let mut cursor = Cursor(values);
    for _ in 0..start {
        cursor.value()?;
    }
    let from = values.len() - cursor.0.len();
    for _ in 0..len {
        cursor.value()?;
    }
    let to = values.len() - cursor.0.len();
    let parts = (values.get(..from), values.get(from..to), values.get(to..));
    let (Some(before), Some(gone), Some(after)) = parts else {
        return Err(CORRUPT.into());
    };
    Ok((before, gone, after))
}

/// Divides elements into chunks of at most [`LEAF_MAX`] bytes, but at least one element: full ones
/// if there will be more at the end, otherwise even ones.
fn chunks<'p, T>(elements: &'p [T], size: impl Fn(&T) -> usize, fills: bool) -> Vec<&'p [T]> {
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
