//! References: which groups of a stream still need an entry.
//!
//! A group needs an entry that it has not read, and one that is pending in it. Nothing records
//! this per entry, so that adding and delivering entries cost nothing more: the groups are asked
//! by point reads.

use super::{Group, Keep, Stream, StreamId, Trim, all};
use crate::storage::{Direction, Txn, View};
use crate::types::OpResult;
use std::ops::ControlFlow;

/// The name of a group, and the entries that it refers to no more.
pub type Forgotten = (Box<[u8]>, Vec<StreamId>);

/// What becomes of references to an entry that is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum References {
    /// They stay: the entry remains pending in groups.
    #[default]
    Keep,
    /// They go with the entry.
    Delete,
    /// An entry with references is not removed.
    Acknowledged,
}

/// What trimming has removed.
#[derive(Debug, Default)]
pub struct Trimmed {
    /// The number of entries.
    pub count: u64,
    /// For [`References::Acknowledged`]: their ids, if entries before some of them remain.
    pub scattered: Vec<StreamId>,
    /// For [`References::Delete`]: the groups in which entries were pending, and the ids of those.
    pub forgotten: Vec<Forgotten>,
}

/// The groups of a stream, asked about entries.
#[derive(Debug)]
#[must_use = "changes are lost unless the groups are saved"]
pub struct Referrers {
    groups: Vec<Group>,
    /// Up to this id all groups have read the entries.
    read_by_all: StreamId,
    /// What [`Referrers::forget`] has removed, by index of the group.
    forgotten: Vec<Vec<StreamId>>,
}

impl Referrers {
    /// All groups of a stream.
    pub fn of(stream: &Stream<'_>, view: &mut View) -> OpResult<Referrers> {
        let groups = stream.groups(view)?;
        let read_by_all = groups.iter().map(|group| group.row().last).min();
        Ok(Referrers {
            read_by_all: read_by_all.unwrap_or(StreamId::MAX),
            forgotten: vec![Vec::new(); groups.len()],
            groups,
        })
    }

    /// The group with this name.
    pub fn group(&mut self, name: &[u8]) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.name() == name)
    }

    /// Whether a group needs the entry with this id.
    pub fn need(&self, view: &View, id: StreamId) -> OpResult<bool> {
        if id > self.read_by_all {
            return Ok(true);
        }
        for group in &self.groups {
            if group.pending(view, id)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes an entry from the pending entries of all groups.
    pub fn forget(&mut self, txn: &mut Txn, id: StreamId) -> OpResult<()> {
        for (group, forgotten) in self.groups.iter_mut().zip(&mut self.forgotten) {
            if let Some(pending) = group.pending(txn, id)? {
                group.remove(txn, id, &pending)?;
                forgotten.push(id);
            }
        }
        Ok(())
    }

    /// Removes the pending entries up to an id that are still in the stream.
    fn forget_up_to(&mut self, txn: &mut Txn, stream: &Stream<'_>, end: StreamId) -> OpResult<()> {
        for (group, forgotten) in self.groups.iter_mut().zip(&mut self.forgotten) {
            let mut found = Vec::new();
            let range = (stream.body.first, end);
            group.visit_pending(txn, range, Direction::Forward, |id, row| {
                found.push((id, row));
                Ok(ControlFlow::Continue(()))
            })?;
            for (id, row) in found {
                if stream.has(txn, id)? {
                    group.remove(txn, id, &row)?;
                    forgotten.push(id);
                }
            }
        }
        Ok(())
    }

    /// Writes the changes. Returns what [`Referrers::forget`] has removed: names of groups, and
    /// ids.
    pub fn save(self, txn: &mut Txn) -> OpResult<Vec<Forgotten>> {
        let mut all_forgotten = Vec::new();
        for (group, forgotten) in self.groups.into_iter().zip(self.forgotten) {
            if !forgotten.is_empty() {
                all_forgotten.push((group.name().into(), forgotten));
            }
            group.save(txn)?;
        }
        Ok(all_forgotten)
    }
}

impl Stream<'_> {
    /// Removes the entries that the rule excludes, as far as references to them allow.
    ///
    /// Approximate trimming looks at the entries that it would remove without references, no
    /// others.
    pub fn trim_with(
        &mut self,
        txn: &mut Txn,
        trim: Trim,
        references: References,
    ) -> OpResult<Trimmed> {
        if references == References::Keep || self.body.groups == 0 {
            let count = self.trim(txn, trim)?;
            return Ok(Trimmed {
                count,
                ..Trimmed::default()
            });
        }
        let count = match (references, trim.keep) {
            // The number before an id is not needed: the walk ends there.
            (References::Acknowledged, Keep::From(_)) if trim.slack.is_none() => u64::MAX,
            _ => self.excess(txn, trim)?,
        };
        if count == 0 {
            return Ok(Trimmed::default());
        }
        let mut referrers = Referrers::of(self, txn)?;
        if references == References::Acknowledged {
            return self.trim_acknowledged(txn, trim, count, &referrers);
        }
        let end = match count >= self.body.length {
            true => StreamId::MAX,
            false => self.nth(txn, count)?.previous().unwrap_or(StreamId::MIN),
        };
        referrers.forget_up_to(txn, self, end)?;
        self.drop_first(txn, count)?;
        Ok(Trimmed {
            count,
            forgotten: referrers.save(txn)?,
            ..Trimmed::default()
        })
    }

    /// Removes up to `most` entries that no group needs, the oldest first. If entries before them
    /// remain, they are deleted as by XDEL, so that the lag of groups is not counted wrongly.
    fn trim_acknowledged(
        &mut self,
        txn: &mut Txn,
        trim: Trim,
        most: u64,
        referrers: &Referrers,
    ) -> OpResult<Trimmed> {
        /// Ids that are read at a time.
        const PART: usize = 1024;
        let end = match trim.keep {
            Keep::Last(_) => StreamId::MAX,
            Keep::From(id) => match id.previous() {
                Some(end) => end,
                None => return Ok(Trimmed::default()),
            },
        };
        let end = end.min(referrers.read_by_all);
        let mut looks = trim.slack.map_or(u64::MAX, |_| most);
        let (mut removed, mut kept_one, mut is_prefix) = (Vec::new(), false, true);
        let mut from = Some(all().0);
        while let Some(start) = from {
            let mut part = Vec::new();
            self.visit(txn, (start, end), Direction::Forward, |id, _| {
                part.push(id);
                Ok(match part.len() < PART {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
            let has_more = part.len() == PART;
            from = part.last().filter(|_| has_more).and_then(|id| id.next());
            for id in part {
                if looks == 0 || removed.len() as u64 == most {
                    from = None;
                    break;
                }
                looks -= 1;
                if referrers.need(txn, id)? {
                    kept_one = true;
                } else {
                    is_prefix &= !kept_one;
                    removed.push(id);
                }
            }
        }
        let count = removed.len() as u64;
        if is_prefix {
            self.drop_first(txn, count)?;
            removed.clear();
        } else {
            self.delete(txn, &removed)?;
        }
        Ok(Trimmed {
            count,
            scattered: removed,
            ..Trimmed::default()
        })
    }
}
