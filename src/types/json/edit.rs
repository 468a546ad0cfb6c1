//! Changes of documents. The rows that a change touches are kept here until the document is saved,
//! so a row that many places of a path share is written once.

mod arrays;
mod build;
mod joins;
mod objects;

use super::read::{CORRUPT, LEVELS_MAX, Rows};
use crate::encoding::CollectionId;
use crate::encoding::json::{
    Cursor, Entry, GONE, IN_LINE_MAX, Item, Node, NodeId, ROOT_MAX, array_children, gone_nodes,
    gone_row, item, object_children, object_entry,
};
use crate::storage::{DbIndex, View};
use crate::types::{OpError, OpResult};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Rows that a change deletes at most of what it removes.
const FREED_AT_ONCE: usize = 512;

/// Rows that a change deletes at most of what earlier ones have removed.
const FREED_LATER: usize = 64;

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

// Callers ask for the number alone.
#[allow(clippy::len_without_is_empty)]
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
    /// How many rows may still be deleted.
    may_free: usize,
    /// Nodes that were removed but not deleted.
    gone: Vec<NodeId>,
}

impl Rows for Editor<'_> {
    fn node(&self, node: NodeId) -> OpResult<Rc<[u8]>> {
        if let Some(changed) = self.changed.get(&node) {
            let row = changed.clone().ok_or(CORRUPT)?;
            self.scan(row.len())?;
            return Ok(row);
        }
        super::stored_node(self.view, self.db, self.id.ok_or(CORRUPT)?, node)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.view.engine().hash.hash(key)
    }

    fn visit(&self, values: u64) -> OpResult<()> {
        Ok(self.view.work(values)?)
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
            may_free: FREED_AT_ONCE,
            gone: Vec::new(),
        }
    }

    /// Deletes some of the rows that earlier changes have left, if there are any, and notes which
    /// ones are left now. A removal so costs no more than a bounded number of rows.
    pub(super) fn end_gone(&mut self, has_gone: bool) -> OpResult<()> {
        if !has_gone && self.gone.is_empty() {
            return Ok(());
        }
        let mut nodes = match has_gone {
            true => match Node::decode(&self.node(GONE)?)? {
                Node::Gone(nodes) => gone_nodes(nodes)?,
                _ => return Err(CORRUPT.into()),
            },
            false => Vec::new(),
        };
        nodes.append(&mut self.gone);
        if has_gone {
            self.may_free = FREED_LATER;
            while self.may_free > 0
                && let Some(node) = nodes.pop()
            {
                self.free_node(node, LEVELS_MAX)?;
            }
        }
        nodes.append(&mut self.gone);
        match (has_gone, nodes.is_empty()) {
            (true, true) => self.drop_node(GONE),
            (_, true) => {}
            (_, false) => {
                self.count += u64::from(!has_gone);
                self.set_node(GONE, gone_row(&nodes));
            }
        }
        Ok(())
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
        self.scan(value.len())?;
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

    /// Deletes the rows of a value that is no longer there.
    pub fn free(&mut self, value: &[u8]) -> OpResult<()> {
        match item(value)? {
            Item::TextNode(node, _) => match self.may_free.checked_sub(1) {
                Some(left) => {
                    self.may_free = left;
                    self.drop_node(node);
                }
                None => self.gone.push(node),
            },
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

    /// Deletes the rows of a node and of all below it, or notes it, if enough were deleted.
    fn free_node(&mut self, node: NodeId, levels: usize) -> OpResult<()> {
        let levels = levels.checked_sub(1).ok_or(CORRUPT)?;
        let Some(left) = self.may_free.checked_sub(1) else {
            self.gone.push(node);
            return Ok(());
        };
        self.may_free = left;
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
            Node::Gone(_) => return Err(CORRUPT.into()),
        }
        self.drop_node(node);
        Ok(())
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

fn entries_of(mut cursor: Cursor<'_>) -> OpResult<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    while !cursor.is_empty() {
        entries.push(object_entry(&mut cursor)?);
    }
    Ok(entries)
}
