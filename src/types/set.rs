//! Intersection, union and difference of sets, member by member.
//!
//! Memory is bounded by the number of sets, not by their sizes. All sets in rows are in
//! the order of the same hash. So they are either merged like sorted files, a chunk of
//! each at a time, or one of them is walked and each member is looked up in the others,
//! whichever reads fewer rows.

use super::OpResult;
use super::hashed::{Chunk, Walk};
use super::members::Members;
use crate::base::num;
use crate::encoding::ValueType;
use crate::storage::{DbIndex, View};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The operation on several sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Members of all sets.
    Intersection,
    /// Members of any set.
    Union,
    /// Members of the first set and no other.
    Difference,
}

/// Cost of a look-up of a row, in rows of a sequential read.
const LOOKUP_COST: u64 = 8;

/// Unions of up to this many members, and bytes of members, keep the order of the sets.
const SMALL_UNION: u64 = 512;
const SMALL_UNION_BYTES: usize = 1 << 20;

/// An operation in progress: call [`Algebra::advance`], then read [`Algebra::member`].
#[derive(Debug)]
pub struct Algebra {
    operation: Operation,
    plan: Plan,
}

#[derive(Debug)]
enum Plan {
    /// No result.
    Empty,
    /// Walks over the first set and looks members up in the others.
    LookUp {
        base: Box<Source>,
        others: Vec<Members>,
    },
    /// Walks over all sets in hash order.
    Merge(Merge),
    /// The whole result.
    Collected { chunk: Chunk, next: usize },
}

/// A set that is being walked over; `at` is the index of the current member.
#[derive(Debug)]
struct Source {
    set: Members,
    walk: Walk,
    chunk: Chunk,
    at: usize,
}

#[derive(Debug)]
struct Merge {
    sources: Vec<Source>,
    /// The hashes of the current members, with the index of their source.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// The sources whose current member is the result's; they advance with the next
    /// call.
    group: Vec<usize>,
}

impl Algebra {
    /// Looks up all sets; a missing key is an empty set.
    ///
    /// # Errors
    /// `WrongType` if a key is not a set.
    pub fn new(
        view: &mut View,
        db: DbIndex,
        keys: &[&[u8]],
        operation: Operation,
    ) -> OpResult<Algebra> {
        let mut sets = Vec::with_capacity(keys.len());
        for key in keys {
            sets.push(Members::load(view, db, key, ValueType::Set)?);
        }
        let plan = match operation {
            Operation::Union => Plan::for_union(view, sets.into_iter().flatten().collect())?,
            Operation::Intersection => match sets.into_iter().collect::<Option<Vec<_>>>() {
                Some(mut sets) => {
                    sets.sort_by_key(Members::len);
                    Plan::for_few(sets)
                }
                None => Plan::Empty,
            },
            Operation::Difference => {
                let mut sets = sets.into_iter();
                match sets.next().flatten() {
                    Some(first) => {
                        let mut sets: Vec<Members> =
                            std::iter::once(first).chain(sets.flatten()).collect();
                        // Larger sets are more likely to have a member, so they are
                        // asked first.
                        if let Some(others) = sets.get_mut(1..) {
                            others.sort_by_key(|set| Reverse(set.len()));
                        }
                        Plan::for_few(sets)
                    }
                    None => Plan::Empty,
                }
            }
        };
        Ok(Algebra { operation, plan })
    }

    /// Advances to the next member of the result; returns whether there is one.
    pub fn advance(&mut self, view: &mut View) -> OpResult<bool> {
        match &mut self.plan {
            Plan::Empty => Ok(false),
            Plan::Collected { chunk, next } => {
                *next += 1;
                Ok(*next <= chunk.len())
            }
            Plan::LookUp { base, others } => {
                let wanted = self.operation == Operation::Intersection;
                'next: while base.step(view, false)? {
                    for other in others.iter() {
                        if other.contains(view, base.member())? != wanted {
                            continue 'next;
                        }
                    }
                    return Ok(true);
                }
                Ok(false)
            }
            Plan::Merge(merge) => {
                while merge.advance(view)? {
                    let wanted = match self.operation {
                        Operation::Union => true,
                        Operation::Intersection => merge.group.len() == merge.sources.len(),
                        Operation::Difference => merge.group == [0],
                    };
                    if wanted {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// The current member.
    pub fn member(&self) -> &[u8] {
        match &self.plan {
            Plan::Empty => &[],
            Plan::Collected { chunk, next } => chunk.member(next.wrapping_sub(1)),
            Plan::LookUp { base, .. } => base.member(),
            Plan::Merge(merge) => merge.member(),
        }
    }
}

impl Plan {
    /// Intersection and difference: the first set bounds the result.
    fn for_few(mut sets: Vec<Members>) -> Plan {
        let merged = sets
            .iter()
            .fold(0, |sum: u64, s| sum.saturating_add(s.len()));
        let base = sets.first().map_or(0, Members::len);
        let per_member = sets.iter().skip(1).fold(1, |sum: u64, set| {
            sum.saturating_add(if set.in_rows() { LOOKUP_COST } else { 1 })
        });
        // A packed base is short, and its order is kept in the result.
        let in_rows = sets.first().is_some_and(Members::in_rows);
        if in_rows && base.saturating_mul(per_member) > merged {
            return Plan::Merge(Merge::new(sets));
        }
        match sets.is_empty() {
            true => Plan::Empty,
            false => {
                let others = sets.split_off(1);
                sets.pop().map_or(Plan::Empty, |first| Plan::LookUp {
                    base: Box::new(Source::new(first, 1)),
                    others,
                })
            }
        }
    }

    fn for_union(view: &mut View, sets: Vec<Members>) -> OpResult<Plan> {
        let all = sets
            .iter()
            .fold(0, |sum: u64, s| sum.saturating_add(s.len()));
        if all > SMALL_UNION {
            return Ok(Plan::Merge(Merge::new(sets)));
        }
        let mut chunk = Chunk::default();
        for set in &sets {
            if !set.copy_up_to(view, &mut chunk, SMALL_UNION_BYTES)? {
                view.released(chunk.bytes());
                return Ok(Plan::Merge(Merge::new(sets)));
            }
        }
        chunk.keep_first_of_equals();
        if chunk.iter().all(|m| num::parse_i64(m).is_some()) {
            chunk.sort_by_cached_key(num::parse_i64);
        }
        Ok(Plan::Collected { chunk, next: 0 })
    }
}

impl Source {
    fn new(set: Members, walks: usize) -> Source {
        Source {
            set,
            walk: Walk::one_of(walks),
            chunk: Chunk::default(),
            at: usize::MAX,
        }
    }

    /// Advances to the next member; returns whether there is one.
    fn step(&mut self, view: &mut View, in_hash_order: bool) -> OpResult<bool> {
        self.at = self.at.wrapping_add(1);
        if self.at < self.chunk.len() {
            return Ok(true);
        }
        self.set.fill(view, &mut self.walk, &mut self.chunk)?;
        if in_hash_order && !self.set.in_rows() {
            self.chunk.sort();
        }
        self.at = 0;
        Ok(!self.chunk.is_empty())
    }

    fn member(&self) -> &[u8] {
        self.chunk.member(self.at)
    }
}

impl Merge {
    fn new(sets: Vec<Members>) -> Merge {
        let count = sets.len();
        let source = |set| Source::new(set, count);
        Merge {
            group: (0..count).collect(),
            sources: sets.into_iter().map(source).collect(),
            due: BinaryHeap::new(),
        }
    }

    /// Advances to the next member of any source, and collects the sources that have it.
    fn advance(&mut self, view: &mut View) -> OpResult<bool> {
        for index in self.group.drain(..) {
            if let Some(source) = self.sources.get_mut(index)
                && source.step(view, true)?
                && let Some(hash) = source.chunk.hash(source.at)
            {
                self.due.push(Reverse((hash, index)));
            }
        }
        let lowest = self.due.peek().map(|due| due.0.0);
        while let Some(&Reverse((hash, index))) = self.due.peek()
            && Some(hash) == lowest
        {
            self.due.pop();
            self.group.push(index);
        }
        if self.group.len() > 1 {
            self.separate_equal_hashes();
        }
        Ok(!self.group.is_empty())
    }

    /// Different members may have the same hash: of those only the first in the order of
    /// bytes is taken, the others stay in the heap.
    fn separate_equal_hashes(&mut self) {
        let member_of = |index: &usize| self.sources.get(*index).map(Source::member);
        let first = self.group.iter().map(member_of).min().flatten();
        let due = &mut self.due;
        self.group.retain(|index| {
            let has_it = member_of(index) == first;
            if !has_it
                && let Some(source) = self.sources.get(*index)
                && let Some(hash) = source.chunk.hash(source.at)
            {
                due.push(Reverse((hash, *index)));
            }
            has_it
        });
    }

    fn member(&self) -> &[u8] {
        let source = self.group.first().and_then(|i| self.sources.get(*i));
        source.map_or(&[], Source::member)
    }
}
