//! What paths select.

use super::ast::{Path, Segment, Select};
use super::edit::Step;
use super::filter::Scope;
use super::read::{Kind, Rows, Val};
use crate::types::OpResult;
use std::cell::Cell;
use std::ops::ControlFlow;

/// So many bytes of places are announced at once.
const HELD_AT_ONCE: usize = 64 << 10;

/// A selected value.
#[derive(Debug, Clone)]
pub struct Place {
    /// The value.
    pub value: Val,
    /// Where it is, if that was asked for.
    pub path: Vec<Step>,
}

/// Selected values.
#[derive(Debug, Default)]
pub struct Places {
    found: Vec<Place>,
    /// The path to the current value, if paths are wanted.
    path: Option<Vec<Step>>,
    /// Bytes of places that are not announced yet.
    unheld: usize,
}

impl Places {
    /// Collects values alone.
    pub fn values() -> Places {
        Places::default()
    }

    /// The values.
    pub fn into_values(self) -> Vec<Val> {
        self.found.into_iter().map(|place| place.value).collect()
    }

    fn add(&mut self, rows: &dyn Rows, value: &Val) -> OpResult<()> {
        let path = self.path.clone().unwrap_or_default();
        self.unheld += size_of::<Place>() + path.len() * size_of::<Step>();
        if self.unheld >= HELD_AT_ONCE {
            rows.hold(std::mem::take(&mut self.unheld) as u64)?;
        }
        self.found.push(Place {
            value: value.clone(),
            path,
        });
        Ok(())
    }

    fn inside(
        &mut self,
        step: impl FnOnce() -> Step,
        work: impl FnOnce(&mut Places) -> OpResult<()>,
    ) -> OpResult<()> {
        let Some(path) = &mut self.path else {
            return work(self);
        };
        path.push(step());
        work(self)?;
        if let Some(path) = &mut self.path {
            path.pop();
        }
        Ok(())
    }
}

fn scope<'s>(rows: &'s dyn Rows, root: &'s Val) -> Scope<'s> {
    let select = |scope: &Scope<'_>, segments: &[Segment], from: &Val| {
        let mut found = Places::values();
        select(scope, segments, from, &mut found)?;
        Ok(found.into_values())
    };
    let visited = Cell::new(0);
    Scope {
        rows,
        root,
        select,
        visited,
    }
}

/// The values that a path selects of a document.
pub fn values(rows: &dyn Rows, root: &Val, path: &Path) -> OpResult<Vec<Val>> {
    let mut found = Places::values();
    select(&scope(rows, root), &path.segments, root, &mut found)?;
    Ok(found.into_values())
}

/// What a projection calculates of a document; `None` if the path is none.
pub fn computed(rows: &dyn Rows, root: &Val, path: &Path) -> OpResult<Option<Vec<Val>>> {
    let Some(projection) = &path.projection else {
        return Ok(None);
    };
    let term = scope(rows, root).term(projection, root)?;
    Ok(Some(term.into_results(rows)?))
}

/// The same with the places of the values.
pub fn places(rows: &dyn Rows, root: &Val, path: &Path) -> OpResult<Vec<Place>> {
    places_of(rows, root, &path.segments)
}

/// The same for some of a path's segments.
pub fn places_of(rows: &dyn Rows, root: &Val, segments: &[Segment]) -> OpResult<Vec<Place>> {
    let mut found = Places {
        found: Vec::new(),
        path: Some(Vec::new()),
        unheld: 0,
    };
    select(&scope(rows, root), segments, root, &mut found)?;
    Ok(found.found)
}

/// Adds what segments select of a value.
fn select(
    scope: &Scope<'_>,
    segments: &[Segment],
    value: &Val,
    found: &mut Places,
) -> OpResult<()> {
    scope.visit(1)?;
    let Some((segment, rest)) = segments.split_first() else {
        return found.add(scope.rows, value);
    };
    one_level(scope, segment, rest, value, found)?;
    if !segment.is_deep {
        return Ok(());
    }
    each_child(scope, value, found, &mut |child, found| {
        select(scope, segments, child, found)
    })
}

type EachChild<'e> = &'e mut dyn FnMut(&Val, &mut Places) -> OpResult<()>;

/// Calls `each` with all elements or members.
fn each_child(
    scope: &Scope<'_>,
    value: &Val,
    found: &mut Places,
    each: EachChild<'_>,
) -> OpResult<()> {
    match value.kind()? {
        Kind::Array => value.each_element(scope.rows, &mut |index, child| {
            found.inside(|| Step::Index(index), |found| each(&child, found))?;
            Ok(ControlFlow::Continue(()))
        }),
        Kind::Object => value.each_member(scope.rows, &mut |key, child| {
            found.inside(|| Step::Key(key.into()), |found| each(&child, found))?;
            Ok(ControlFlow::Continue(()))
        }),
        _ => return Ok(()),
    }
    .map(drop)
}

/// The index of an element that counts from the end if it is negative, at most `len`.
fn absolute(index: i64, len: u64) -> u64 {
    match u64::try_from(index) {
        Ok(index) => index.min(len),
        Err(_) => len.saturating_sub(index.unsigned_abs()),
    }
}

fn one_level(
    scope: &Scope<'_>,
    segment: &Segment,
    rest: &[Segment],
    value: &Val,
    found: &mut Places,
) -> OpResult<()> {
    let element = |index: u64, found: &mut Places| match value.element(scope.rows, index)? {
        Some(child) => found.inside(
            || Step::Index(index),
            |found| select(scope, rest, &child, found),
        ),
        None => Ok(()),
    };
    match &segment.select {
        Select::Keys(keys) => {
            for key in keys {
                if let Some(child) = value.member(scope.rows, key)? {
                    found.inside(
                        || Step::Key(key.clone()),
                        |found| select(scope, rest, &child, found),
                    )?;
                }
            }
            Ok(())
        }
        Select::Indices(indices) => {
            if value.kind()? != Kind::Array {
                return Ok(());
            }
            let len = match indices.iter().any(|index| *index < 0) {
                true => value.len(scope.rows)?,
                false => u64::MAX,
            };
            indices
                .iter()
                .try_for_each(|index| element(absolute(*index, len), found))
        }
        Select::Range(start, end, step) => {
            if value.kind()? != Kind::Array {
                return Ok(());
            }
            let len = value.len(scope.rows)?;
            let start = start.map_or(0, |start| absolute(start, len));
            let end = end.map_or(len, |end| absolute(end, len));
            let step = usize::try_from(*step).unwrap_or(usize::MAX);
            (start..end)
                .step_by(step)
                .try_for_each(|index| element(index, found))
        }
        Select::All => each_child(scope, value, found, &mut |child, found| {
            select(scope, rest, child, found)
        }),
        Select::Filter(filter) => each_child(scope, value, found, &mut |child, found| {
            scope.visit(1)?;
            match scope.holds(filter, child)? {
                true => select(scope, rest, child, found),
                false => Ok(()),
            }
        }),
    }
}
