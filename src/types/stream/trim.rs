//! Trimming: the oldest entries go until what is left fits a rule.
//!
//! Redis keeps entries in nodes, and trims a node at a time where the rule is
//! approximate. Here are no nodes, but it is known how many entries came before the
//! first one, so also where Redis would begin a node if it fills each: by that
//! streams of the same commands get equally long.

use super::{Stream, StreamId, all};
use crate::storage::Direction;
use crate::storage::Txn;
use crate::types::OpResult;
use std::ops::ControlFlow;

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// So many of the last entries.
    Last(u64),
    /// All entries from this id on.
    From(StreamId),
}

/// How much more may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slack {
    /// Entries of a node, at least 1.
    pub node: u64,
    /// Entries that may be removed at once; 0: all.
    pub limit: u64,
}

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// What is kept.
    pub keep: Keep,
    /// `None`: nothing else.
    pub slack: Option<Slack>,
}

impl Stream<'_> {
    /// Removes what is older than the rule wants; returns how many entries.
    pub fn trim(&mut self, txn: &mut Txn, trim: Trim) -> OpResult<u64> {
        let bound = match trim.slack {
            Some(Slack { limit, .. }) if limit > 0 => limit,
            _ => u64::MAX,
        };
        let length = self.body.length;
        let excess = match trim.keep {
            Keep::Last(kept) => length.saturating_sub(kept),
            Keep::From(id) => self.count_before(txn, id, bound)?,
        };
        let count = match trim.slack {
            None => excess,
            // The last node may be a part of one.
            Some(_) if excess == length && length <= bound => excess,
            Some(Slack { node, .. }) => self.whole_nodes(excess.min(bound), node.max(1)),
        };
        self.drop_first(txn, count)?;
        Ok(count)
    }

    /// How many of the first `most` entries are whole nodes.
    fn whole_nodes(&self, most: u64, node: u64) -> u64 {
        let gone = self.body.added.saturating_sub(self.body.length);
        let first = node - gone % node;
        match most.checked_sub(first) {
            Some(rest) => first + rest - rest % node,
            None => 0,
        }
    }

    /// How many entries stand before an id, counted up to `bound`.
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
