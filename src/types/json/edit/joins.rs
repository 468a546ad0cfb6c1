//! What becomes of the rows of an array or object from which elements are removed: small rows
//! beside each other are joined, and what is small as a whole is in line again. A row is joined
//! when it is much smaller than one that was split, so that removals and additions in turn do not
//! join and split it each time.

use super::{Editor, entries_of};
use crate::encoding::json::{
    ArrayChild, BRANCH_MAX, Cursor, Entry, Item, LEAF_MAX, Node, NodeId, ObjectChild, ObjectHead,
    array_branch, array_children, array_leaf, object_branch, object_children, object_leaf,
    put_item, put_text,
};
use crate::types::OpResult;
use crate::types::json::read::{CORRUPT, Rows};

/// A leaf of at most so many bytes is joined with one beside it.
const SMALL_LEAF: usize = LEAF_MAX / 4;
/// The same for the children of a branch.
const SMALL_BRANCH: usize = BRANCH_MAX / 4;
/// What is joined has at most so many bytes.
const JOINED_LEAF: usize = LEAF_MAX / 4 * 3;
/// The same for the children of a branch.
const JOINED_BRANCH: usize = BRANCH_MAX / 4 * 3;

/// The two children of which the one at an index may become a part of the other.
fn pair(at: usize, len: usize) -> Option<(usize, usize)> {
    match at + 1 < len {
        true => Some((at, at + 1)),
        false => Some((at.checked_sub(1)?, at)),
    }
}

fn in_line(item: Item<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    put_item(item, &mut out);
    out
}

impl Editor<'_> {
    /// Whether a node is so small that it should be joined with another.
    fn is_small(&self, node: NodeId) -> OpResult<bool> {
        let row = self.node(node)?;
        Ok(match Node::decode(&row)? {
            Node::ArrayLeaf(..) | Node::ObjectLeaf(..) => row.len() <= SMALL_LEAF,
            Node::ArrayBranch(children) => array_children(children)?.len() <= SMALL_BRANCH,
            Node::ObjectBranch(_, children) => object_children(children)?.len() <= SMALL_BRANCH,
            Node::Text(_) | Node::Gone(_) => return Err(CORRUPT.into()),
        })
    }

    /// Joins the child at an index with one beside it, if it is small enough.
    pub(super) fn join_array(
        &mut self,
        children: &mut Vec<ArrayChild>,
        at: usize,
    ) -> OpResult<bool> {
        let Some((left, right)) = pair(at, children.len()) else {
            return Ok(false);
        };
        let (Some(a), Some(b), Some(child)) =
            (children.get(left), children.get(right), children.get(at))
        else {
            return Ok(false);
        };
        let (a, b) = (*a, *b);
        if !self.is_small(child.node)? {
            return Ok(false);
        }
        let rows = (self.node(a.node)?, self.node(b.node)?);
        let count = a.count + b.count;
        let joined = match (Node::decode(&rows.0)?, Node::decode(&rows.1)?) {
            (Node::ArrayLeaf(_, x), Node::ArrayLeaf(_, y))
                if x.0.len() + y.0.len() <= JOINED_LEAF =>
            {
                array_leaf(count, &[x.0, y.0])
            }
            (Node::ArrayBranch(x), Node::ArrayBranch(y)) => {
                let all = [array_children(x)?, array_children(y)?].concat();
                if all.len() > JOINED_BRANCH {
                    return Ok(false);
                }
                array_branch(&all)
            }
            _ => return Ok(false),
        };
        self.set_node(a.node, joined);
        self.drop_node(b.node);
        children.splice(left..=right, [ArrayChild { count, ..a }]);
        Ok(true)
    }

    /// The same for a child of a branch of an object.
    pub(super) fn join_object(
        &mut self,
        children: &mut Vec<ObjectChild>,
        at: usize,
    ) -> OpResult<bool> {
        let Some((left, right)) = pair(at, children.len()) else {
            return Ok(false);
        };
        let (Some(a), Some(b), Some(child)) =
            (children.get(left), children.get(right), children.get(at))
        else {
            return Ok(false);
        };
        let (a, b) = (*a, *b);
        if !self.is_small(child.node)? {
            return Ok(false);
        }
        let rows = (self.node(a.node)?, self.node(b.node)?);
        let joined = match (Node::decode(&rows.0)?, Node::decode(&rows.1)?) {
            (Node::ObjectLeaf(head, x), Node::ObjectLeaf(_, y))
                if x.0.len() + y.0.len() <= JOINED_LEAF =>
            {
                let mut all = [entries_of(x)?, entries_of(y)?].concat();
                all.sort_unstable_by_key(|entry| entry.place);
                object_leaf(head, &all)
            }
            (Node::ObjectBranch(head, x), Node::ObjectBranch(_, y)) => {
                let all = [object_children(x)?, object_children(y)?].concat();
                if all.len() > JOINED_BRANCH {
                    return Ok(false);
                }
                object_branch(head, &all)
            }
            _ => return Ok(false),
        };
        self.set_node(a.node, joined);
        self.drop_node(b.node);
        children.remove(right);
        Ok(true)
    }

    /// Takes away levels that an array no longer needs. Returns what takes its place if it is in
    /// line again.
    pub(super) fn shrink_array(&mut self, root: NodeId, max: usize) -> OpResult<Option<Vec<u8>>> {
        loop {
            let row = self.node(root)?;
            match Node::decode(&row)? {
                Node::ArrayLeaf(_, Cursor(values)) if values.len() <= max / 2 => {
                    self.drop_node(root);
                    return Ok(Some(in_line(Item::Array(values))));
                }
                Node::ArrayBranch(children) => {
                    let [only] = array_children(children)?[..] else {
                        return Ok(None);
                    };
                    let row = self.node(only.node)?;
                    self.set_node(root, row.to_vec());
                    self.drop_node(only.node);
                }
                _ => return Ok(None),
            }
        }
    }

    /// The same for an object.
    pub(super) fn shrink_object(&mut self, root: NodeId, max: usize) -> OpResult<Option<Vec<u8>>> {
        loop {
            let row = self.node(root)?;
            match Node::decode(&row)? {
                Node::ObjectLeaf(_, entries) if entries.0.len() <= max / 2 => {
                    let mut members = Vec::with_capacity(entries.0.len());
                    for Entry { key, value, .. } in entries_of(entries)? {
                        put_text(key, &mut members);
                        members.extend_from_slice(value);
                    }
                    self.drop_node(root);
                    return Ok(Some(in_line(Item::Object(&members))));
                }
                Node::ObjectBranch(head, children) => {
                    let [only] = object_children(children)?[..] else {
                        return Ok(None);
                    };
                    self.set_headed(root, only.node, head)?;
                    self.drop_node(only.node);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Writes the row of a node under the number of a root.
    fn set_headed(&mut self, root: NodeId, from: NodeId, head: ObjectHead) -> OpResult<()> {
        let row = self.node(from)?;
        self.set_node(root, row.to_vec());
        self.set_head(root, head)
    }
}
