//! Changes of objects: B-trees by the hash of the key.

use super::{Editor, InLeaf, entries_of};
use crate::encoding::json::{
    BRANCH_MAX, Cursor, Entry, IN_LINE_MAX, Item, LEAF_MAX, Node, NodeId, ObjectChild, ObjectHead,
    item, object_branch, object_children, object_leaf, put_item, put_text,
};
use crate::types::json::read::{CORRUPT, LEVELS_MAX, Rows, child_of};
use crate::types::{OpError, OpResult};

impl Editor<'_> {
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
                self.shrink_object(node, max)
            }
            _ => Err(CORRUPT.into()),
        }
    }

    pub(super) fn end_object(
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

    pub(super) fn in_object(
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
                    if matches!(how, InLeaf::Remove) && self.join_object(&mut children, at)? {
                        self.set_node(node, object_branch(head, &children));
                    }
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

    pub(super) fn in_leaf(
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

/// What has become of a node of an object.
#[derive(Default)]
pub(super) struct Done {
    /// The nodes in its place; `None`: itself.
    pub(super) parts: Option<Vec<ObjectChild>>,
    /// Whether there is one member more.
    pub(super) is_new: bool,
}
