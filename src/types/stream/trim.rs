//! Trimming: the oldest entries are removed, until the rest complies with a rule.
//!
//! Redis keeps entries in nodes, and approximate trimming removes whole nodes. Here are
//! no nodes, but the number of entries before the first one is known, and so are the
//! positions where Redis would begin nodes if it fills each one. So the same commands
//! lead to streams of the same length.

use super::{Stream, StreamId, all};
use crate::storage::Direction;
use crate::storage::Txn;
use crate::types::OpResult;
use std::ops::ControlFlow;

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// This many of the last entries.
    Last(u64),
    /// Entries from this id on.
    From(StreamId),
}

/// Tolerance of approximate trimming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slack {
    /// Entries of a node, at least 1.
    pub node: u64,
    /// Most entries to remove at once; 0: no limit.
    pub limit: u64,
}

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// What is kept.
    pub keep: Keep,
    /// `None`: exact trimming.
    pub slack: Option<Slack>,
}

impl Stream<'_> {
    /// Removes the entries that the rule excludes; returns their number.
    pub fn trim(&mut self, txn: &mut Txn, trim: Trim) -> OpResult<u64> {
        let count = self.excess(txn, trim)?;
        self.drop_first(txn, count)?;
        Ok(count)
    }

    /// The number of entries that the rule excludes.
    pub(super) fn excess(&self, txn: &mut Txn, trim: Trim) -> OpResult<u64> {
        let bound = match trim.slack {
            Some(Slack { limit, .. }) if limit > 0 => limit,
            _ => u64::MAX,
        };
        let length = self.body.length;
        let excess = match trim.keep {
            Keep::Last(kept) => length.saturating_sub(kept),
            Keep::From(id) => self.count_before(txn, id, bound)?,
        };
        Ok(match trim.slack {
            None => excess,
            // The last node may be incomplete.
            Some(_) if excess == length && length <= bound => excess,
            Some(Slack { node, .. }) => self.whole_nodes(excess.min(bound), node.max(1)),
        })
    }

    /// How many of the first `most` entries form whole nodes.
    fn whole_nodes(&self, most: u64, node: u64) -> u64 {
        let gone = self.body.added.saturating_sub(self.body.length);
        let first = node - gone % node;
        match most.checked_sub(first) {
            Some(rest) => first + rest - rest % node,
            None => 0,
        }
    }

    /// The number of entries before an id, counted up to `bound`.
    fn count_before(&self, txn: &mut Txn, id: StreamId, bound: u64) -> OpResult<u64> {
        if id > self.body.last {
            return Ok(self.body.length);
        }
        let Some(last) = id.previous() else {
            return Ok(0);
        };
        let mut count = 0;
        self.visit(txn, (all().0, last), Direction::Forward, |_, _| {
            count += 1;
            Ok(match count < bound {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
        Ok(count)
    }
}
