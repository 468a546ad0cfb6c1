//! Changing a sorted set.

use super::rows::{self, Rows};
use super::span::{Span, place};
use super::{Direction, Form, Member, Zset, packed};
use crate::encoding::packed::put_scored;
use crate::encoding::{CollectionId, Meta, ValueType};
use crate::storage::{DbIndex, KeyMeta, Txn, Value};
use crate::types::{OpError, OpResult, lookup};
use std::ops::Deref;

/// The options of [`Edit::add`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddRule {
    /// Only new members.
    pub only_new: bool,
    /// Only existing members.
    pub only_existing: bool,
    /// Only if the member is new or its score increases.
    pub only_greater: bool,
    /// Only if the member is new or its score decreases.
    pub only_less: bool,
    /// The score is added to the member's score.
    pub increment: bool,
}

/// The result of [`Edit::add`], with the member's score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Added {
    /// The member is new.
    New(f64),
    /// The score changed.
    Changed(f64),
    /// The score was the same.
    Same(f64),
    /// The options excluded the change.
    Refused,
}

/// A sorted set that is being changed. Changes take effect with [`Edit::save`].
pub struct Edit<'k> {
    db: DbIndex,
    key: &'k [u8],
    old: Option<Meta>,
    zset: Zset,
    dirty: bool,
    /// The body of the old value, if all its rows were dropped.
    dropped: Option<Value>,
}

impl Deref for Edit<'_> {
    type Target = Zset;

    fn deref(&self) -> &Zset {
        &self.zset
    }
}

impl<'k> Edit<'k> {
    /// The sorted set under a key, or a new one.
    pub fn open(txn: &mut Txn, db: DbIndex, key: &'k [u8]) -> OpResult<Edit<'k>> {
        let old = lookup(txn, db, key, ValueType::Zset)?;
        let (meta, form) = match old {
            Some(old) => (Some(old.meta), Form::decode(db, &old.meta, old.body)?),
            None => (None, Form::empty()),
        };
        Ok(Edit {
            db,
            key,
            old: meta,
            zset: Zset { form },
            dirty: false,
            dropped: None,
        })
    }

    /// The collection id of the rows, if the elements stand in rows.
    pub fn collection(&self) -> Option<CollectionId> {
        match &self.zset.form {
            Form::Packed { .. } => None,
            Form::Rows(rows) => Some(rows.id),
        }
    }

    /// Whether the key existed.
    pub fn existed(&self) -> bool {
        self.old.is_some()
    }

    /// Adds a member, or changes its score.
    ///
    /// # Errors
    /// [`OpError::NotFinite`] if the score or the sum is not a number.
    pub fn add(
        &mut self,
        txn: &mut Txn,
        score: f64,
        member: &[u8],
        rule: AddRule,
    ) -> OpResult<Added> {
        let old = self.zset.score(txn, member)?;
        let refused = match old {
            Some(_) => rule.only_new,
            None => rule.only_existing,
        };
        if refused {
            return Ok(Added::Refused);
        }
        let sum = match old {
            Some(old) if rule.increment => old + score,
            _ => score,
        };
        if sum.is_nan() {
            return Err(OpError::NotFinite);
        }
        // −0 + 0 is 0.
        let new = sum + 0.0;
        let Some(old) = old else {
            self.insert(txn, new, member)?;
            return Ok(Added::New(new));
        };
        if (rule.only_greater && new <= old) || (rule.only_less && new >= old) {
            return Ok(Added::Refused);
        }
        if new == old {
            return Ok(Added::Same(old));
        }
        self.dirty = true;
        match &mut self.zset.form {
            Form::Packed { body, .. } => {
                packed::remove(body, member)?;
                packed::insert(body, new, member, &place(new, member))?;
            }
            Form::Rows(rows) => rows.rescore(txn, old, new, member)?,
        }
        Ok(Added::Changed(new))
    }

    /// Removes a member; returns whether it existed.
    pub fn remove(&mut self, txn: &mut Txn, member: &[u8]) -> OpResult<bool> {
        let removed = match &mut self.zset.form {
            Form::Packed { body, count } => {
                let removed = packed::remove(body, member)?.is_some();
                *count -= u64::from(removed);
                removed
            }
            Form::Rows(rows) => match rows.score(txn, member)? {
                Some(score) => {
                    rows.remove(txn, score, member)?;
                    true
                }
                None => false,
            },
        };
        self.dirty |= removed;
        Ok(removed)
    }

    /// Removes up to `limit` elements of `span`, after the first `skip`; returns the
    /// number removed.
    pub fn remove_range(
        &mut self,
        txn: &mut Txn,
        span: &Span,
        skip: u64,
        limit: u64,
    ) -> OpResult<u64> {
        let rows = match &self.zset.form {
            Form::Rows(rows) => rows,
            Form::Packed { .. } => {
                let ignore = &mut |_, _: &[u8]| Ok(());
                return self.remove_packed(span, Direction::Forward, skip, limit, ignore);
            }
        };
        if skip == 0 && limit >= rows.count && rows.all_within(span) {
            return Ok(self.clear());
        }
        let run = self.collect(txn, span, Direction::Forward, skip, limit)?;
        self.remove_run(txn, &run)?;
        Ok(run.len() as u64)
    }

    /// Removes up to `n` elements from the end where `direction` starts.
    pub fn pop(
        &mut self,
        txn: &mut Txn,
        direction: Direction,
        n: u64,
    ) -> OpResult<Vec<(f64, Member)>> {
        let all = Span::all();
        if matches!(self.zset.form, Form::Packed { .. }) {
            let mut popped = Vec::new();
            self.remove_packed(&all, direction, 0, n, &mut |score, member| {
                popped.push((score, Member::from_slice(member)));
                Ok(())
            })?;
            return Ok(popped);
        }
        // One more than requested becomes the new end. Only its beginning is kept.
        let (mut popped, mut next) = (Vec::new(), None);
        let push = &mut |score, member: &[u8]| {
            match (popped.len() as u64) < n {
                true => popped.push((score, Member::from_slice(member))),
                false => next = Some((score, Member::from_slice(rows::cut_member(member)))),
            }
            Ok(())
        };
        txn.passes_a_row();
        self.zset
            .walk(txn, &all, direction, 0, n.saturating_add(1), push)?;
        let Some((score, member)) = next else {
            if !popped.is_empty() {
                self.clear();
            }
            return Ok(popped);
        };
        let Form::Rows(rows) = &mut self.zset.form else {
            return Ok(popped);
        };
        for (score, member) in &popped {
            rows.remove(txn, *score, member)?;
        }
        if !popped.is_empty() {
            rows.set_end(direction, score, &member);
            self.dirty = true;
        }
        Ok(popped)
    }

    /// Writes the changes: the meta row, or the deletion of the key.
    pub fn save(mut self, txn: &mut Txn) -> OpResult<()> {
        if !self.dirty {
            return Ok(());
        }
        if self.zset.len() == 0 {
            let Some(meta) = self.old else {
                return Ok(());
            };
            match self.dropped {
                Some(body) => txn.remove_key(self.db, self.key, &KeyMeta { meta, body })?,
                // Its rows, if it had any, were deleted one by one.
                None => {
                    let body = Value::new();
                    txn.unlink_key(self.db, self.key, &KeyMeta { meta, body })?;
                }
            }
            return Ok(());
        }
        let old = self.old.as_ref();
        let mut meta = self.old.unwrap_or(Meta::new(ValueType::Zset));
        match &mut self.zset.form {
            Form::Packed { body, .. } => {
                meta.rows = false;
                txn.put_key(self.db, self.key, old, meta, body)?;
            }
            Form::Rows(rows) => {
                meta.rows = true;
                rows.find_removed_ends(txn)?;
                txn.put_key(self.db, self.key, old, meta, &rows.encode())?;
            }
        }
        Ok(())
    }

    fn insert(&mut self, txn: &mut Txn, score: f64, member: &[u8]) -> OpResult<()> {
        self.dirty = true;
        let (body, count) = match &mut self.zset.form {
            Form::Rows(rows) => return rows.insert(txn, score, member),
            Form::Packed { body, count } => (body, count),
        };
        packed::insert(body, score, member, &place(score, member))?;
        *count += 1;
        let config = &txn.engine().config;
        let fits =
            body.len() <= config.packed_max_bytes && *count <= config.packed_max_entries as u64;
        if fits {
            return Ok(());
        }
        let mut rows = Rows::new(self.db, txn.new_id());
        for entry in packed::entries(body) {
            let entry = entry?;
            rows.insert(txn, entry.score(), entry.member)?;
        }
        self.zset.form = Form::Rows(rows);
        Ok(())
    }

    fn remove_packed(
        &mut self,
        span: &Span,
        direction: Direction,
        skip: u64,
        limit: u64,
        each: super::Each<'_>,
    ) -> OpResult<u64> {
        let Form::Packed { body, count } = &mut self.zset.form else {
            return Ok(0);
        };
        let removed = packed::remove_run(body, span, direction, skip, limit, each)?;
        *count -= removed;
        self.dirty |= removed > 0;
        Ok(removed)
    }

    fn remove_run(&mut self, txn: &mut Txn, run: &[(f64, Member)]) -> OpResult<()> {
        if let Form::Rows(rows) = &mut self.zset.form {
            rows.remove_run(txn, run)?;
            self.dirty |= !run.is_empty();
        }
        Ok(())
    }

    fn collect(
        &self,
        txn: &mut Txn,
        span: &Span,
        direction: Direction,
        skip: u64,
        limit: u64,
    ) -> OpResult<Vec<(f64, Member)>> {
        let mut found = Vec::new();
        let push = &mut |score, member: &[u8]| {
            found.push((score, Member::from_slice(member)));
            Ok(())
        };
        self.zset.walk(txn, span, direction, skip, limit, push)?;
        Ok(found)
    }

    /// Drops all elements at once; their rows are reclaimed with the key (I6).
    fn clear(&mut self) -> u64 {
        let count = self.zset.len();
        self.dirty = true;
        if let Form::Rows(rows) = &self.zset.form {
            self.dropped = Some(Value::from_vec(rows.encode()));
        }
        self.zset.form = Form::empty();
        count
    }
}

/// Replaces the value of `key` by these elements, which must be ascending and different;
/// without elements the key is deleted.
pub fn store(txn: &mut Txn, db: DbIndex, key: &[u8], elements: &[(f64, Member)]) -> OpResult<()> {
    let old = txn.lookup(db, key)?;
    if elements.is_empty() {
        if let Some(old) = &old {
            txn.remove_key(db, key, old)?;
        }
        return Ok(());
    }
    let mut meta = Meta::new(ValueType::Zset);
    let config = &txn.engine().config;
    let (max_bytes, max_entries) = (config.packed_max_bytes, config.packed_max_entries);
    let mut body = Vec::new();
    if elements.len() <= max_entries {
        for (score, member) in elements {
            put_scored(&mut body, *score, member);
            if body.len() > max_bytes {
                break;
            }
        }
    }
    if elements.len() > max_entries || body.len() > max_bytes {
        let mut rows = Rows::new(db, txn.new_id());
        for (score, member) in elements {
            rows.insert(txn, *score, member)?;
        }
        meta.rows = true;
        body = rows.encode();
    }
    txn.replace_key(db, key, old.as_ref(), meta, &body)?;
    Ok(())
}
