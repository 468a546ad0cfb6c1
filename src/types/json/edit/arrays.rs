//! Changes of arrays: B-trees by position.

use super::{Change, Editor, Pieces, Step};
use crate::encoding::json::{
    ArrayChild, BRANCH_MAX, Cursor, IN_LINE_MAX, Item, LEAF_MAX, Node, NodeId, array_children,
    array_leaf, item, put_item,
};
use crate::types::json::read::{CORRUPT, LEVELS_MAX, Rows};
use crate::types::{OpError, OpResult};

impl Editor<'_> {
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
                match removed {
                    0 => Ok(None),
                    _ => self.shrink_array(node, max),
                }
            }
            _ => Err(CORRUPT.into()),
        }
    }

    /// Makes the nodes that a root has become one node again, with the number of the root.
    pub(super) fn end_array(&mut self, root: NodeId, parts: &[ArrayChild]) -> OpResult<()> {
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
    pub(super) fn splice_node(
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
                let mut cut = Vec::new();
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
                        if gone > 0 && gone < child.count {
                            cut.push(now.len());
                        }
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
                for at in cut.into_iter().rev() {
                    self.join_array(&mut now, at)?;
                }
                Ok(Some(self.array_branches(&now, Some(node))))
            }
            _ => Err(CORRUPT.into()),
        }
    }

    pub(super) fn edit_element(
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
