//! What paths select, and whether filters hold.

use super::ast::{Expr, Function, Operator, Path, Pattern, Segment, Select};
use super::edit::Step;
use super::read::{Kind, Rows, Val};
use super::value::Value;
use crate::encoding::json::Item;
use crate::types::OpResult;
use std::cmp::Ordering;
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

/// The values that a path selects of a document.
pub fn values(rows: &dyn Rows, root: &Val, path: &Path) -> OpResult<Vec<Val>> {
    let mut found = Places::values();
    select(&Scope { rows, root }, &path.segments, root, &mut found)?;
    Ok(found.into_values())
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
    select(&Scope { rows, root }, segments, root, &mut found)?;
    Ok(found.found)
}

/// Adds what segments select of a value.
pub(super) fn select(
    scope: &Scope<'_>,
    segments: &[Segment],
    value: &Val,
    found: &mut Places,
) -> OpResult<()> {
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
        Select::Filter(filter) => each_child(scope, value, found, &mut |child, found| match scope
            .holds(filter, child)?
        {
            true => select(scope, rest, child, found),
            false => Ok(()),
        }),
    }
}

/// The value of a term: nothing, one value, or several that a path has selected.
#[derive(Debug)]
enum Term {
    Nothing,
    One(Val),
    Many(Vec<Val>),
}

impl Term {
    fn of(value: Value) -> Term {
        Term::One(Val::scalar(&value))
    }

    fn any(&self, test: &mut dyn FnMut(&Val) -> OpResult<bool>) -> OpResult<bool> {
        match self {
            Term::Nothing => Ok(false),
            Term::One(value) => test(value),
            Term::Many(values) => {
                for value in values {
                    if test(value)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    fn number(&self) -> OpResult<Option<Number>> {
        match self {
            Term::One(value) => number(value),
            Term::Nothing | Term::Many(_) => Ok(None),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Float(number) => number,
        }
    }

    fn term(self) -> Term {
        match self {
            Number::Int(number) => Term::of(Value::Int(number)),
            Number::Float(number) if number.is_finite() => Term::of(Value::Float(number)),
            Number::Float(_) => Term::Nothing,
        }
    }
}

fn number(value: &Val) -> OpResult<Option<Number>> {
    Ok(match value.item()? {
        Item::Int(number) => Some(Number::Int(number)),
        Item::Large(number) => Some(Number::Float(number as f64)),
        Item::Float(number) => Some(Number::Float(number)),
        _ => None,
    })
}

/// What filters look at.
pub struct Scope<'s> {
    /// The document's rows.
    pub rows: &'s dyn Rows,
    /// The root.
    pub root: &'s Val,
}

impl Scope<'_> {
    /// Whether a filter holds for a value.
    pub fn holds(&self, filter: &Expr, current: &Val) -> OpResult<bool> {
        match filter {
            Expr::Not(inner) => Ok(!self.holds(inner, current)?),
            Expr::All(tests) => {
                for test in tests {
                    if !self.holds(test, current)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expr::Any(tests) => {
                for test in tests {
                    if self.holds(test, current)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expr::Compare(sides, operator, pattern) => {
                let left = self.term(&sides.0, current)?;
                let right = self.term(&sides.1, current)?;
                self.compare(&left, *operator, &right, pattern.as_ref())
            }
            Expr::Exists(term) => match (&**term, self.term(term, current)?) {
                (Expr::Current(_) | Expr::Root(_), found) => Ok(!matches!(found, Term::Nothing)),
                (_, Term::One(value)) => Ok(value.item()? != Item::Bool(false)),
                (_, found) => Ok(!matches!(found, Term::Nothing)),
            },
            Expr::Literal(_)
            | Expr::Current(_)
            | Expr::Root(_)
            | Expr::Call(..)
            | Expr::Arithmetic(..) => Ok(!matches!(self.term(filter, current)?, Term::Nothing)),
        }
    }

    fn term(&self, expr: &Expr, current: &Val) -> OpResult<Term> {
        match expr {
            Expr::Literal(value) => Ok(Term::One(value.clone())),
            Expr::Current(segments) => self.selected(segments, current),
            Expr::Root(segments) => self.selected(segments, self.root),
            Expr::Arithmetic(sides, sign) => {
                let left = self.term(&sides.0, current)?.number()?;
                let right = self.term(&sides.1, current)?.number()?;
                let done = left.zip(right).and_then(|(a, b)| arithmetic(a, *sign, b));
                Ok(done.map_or(Term::Nothing, Number::term))
            }
            Expr::Call(function, arguments, pattern) => {
                let terms: OpResult<Vec<Term>> = arguments
                    .iter()
                    .map(|term| self.term(term, current))
                    .collect();
                self.call(*function, &terms?, pattern.as_ref())
            }
            Expr::Compare(..) | Expr::Exists(_) | Expr::Not(_) | Expr::All(_) | Expr::Any(_) => {
                Ok(Term::of(Value::Bool(self.holds(expr, current)?)))
            }
        }
    }

    fn selected(&self, segments: &[Segment], from: &Val) -> OpResult<Term> {
        let mut found = Places::values();
        select(self, segments, from, &mut found)?;
        let mut values: Vec<Val> = found.into_values();
        Ok(match values.len() {
            0 => Term::Nothing,
            1 => values.pop().map_or(Term::Nothing, Term::One),
            _ => Term::Many(values),
        })
    }

    fn compare(
        &self,
        left: &Term,
        operator: Operator,
        right: &Term,
        pattern: Option<&Pattern>,
    ) -> OpResult<bool> {
        let ordered = |test: fn(Ordering) -> bool| {
            left.any(&mut |a| right.any(&mut |b| Ok(self.order(a, b)?.is_some_and(test))))
        };
        match operator {
            Operator::Equal => self.equal(left, right),
            Operator::NotEqual => Ok(!self.equal(left, right)?),
            Operator::Less => ordered(Ordering::is_lt),
            Operator::LessOrEqual => ordered(Ordering::is_le),
            Operator::Greater => ordered(Ordering::is_gt),
            Operator::GreaterOrEqual => ordered(Ordering::is_ge),
            Operator::Matches => {
                left.any(&mut |a| right.any(&mut |b| self.matches(a, b, pattern, false)))
            }
            Operator::In => self.is_in(left, right),
            Operator::NotIn => Ok(!self.is_in(left, right)?),
            Operator::SubsetOf => self.relates(left, right, true),
            Operator::AnyOf => self.relates(left, right, false),
            Operator::NoneOf => Ok(!self.relates(left, right, false)?),
            Operator::Size => left.any(&mut |a| {
                let len = self.characters(a)?;
                right.any(&mut |b| {
                    Ok(match number(b)? {
                        Some(Number::Int(size)) => len == u64::try_from(size).ok(),
                        Some(Number::Float(size)) if size >= 0.0 => len == Some(size as u64),
                        _ => false,
                    } && len.is_some())
                })
            }),
            Operator::Empty => left.any(&mut |a| {
                let is_empty = self.characters(a)?.map(|len| len == 0);
                right.any(&mut |b| {
                    Ok(match b.item()? {
                        Item::Bool(wanted) => is_empty == Some(wanted),
                        _ => false,
                    })
                })
            }),
        }
    }

    fn equal(&self, left: &Term, right: &Term) -> OpResult<bool> {
        left.any(&mut |a| right.any(&mut |b| self.is_equal(a, b)))
    }

    /// Numbers are equal if their values are, other values if [`Val::equals`] says so.
    fn is_equal(&self, a: &Val, b: &Val) -> OpResult<bool> {
        match (number(a)?, number(b)?) {
            (Some(Number::Int(a)), Some(Number::Int(b))) => Ok(a == b),
            (Some(a), Some(b)) => Ok(a.float() == b.float()),
            _ => a.equals(self.rows, b, self.rows),
        }
    }

    fn order(&self, a: &Val, b: &Val) -> OpResult<Option<Ordering>> {
        match (number(a)?, number(b)?) {
            (Some(Number::Int(a)), Some(Number::Int(b))) => return Ok(Some(a.cmp(&b))),
            (Some(a), Some(b)) => return Ok(a.float().partial_cmp(&b.float())),
            _ => {}
        }
        Ok(match (a.kind()?, b.kind()?) {
            (Kind::Text, Kind::Text) => Some(a.text(self.rows)?.cmp(&b.text(self.rows)?)),
            (Kind::Null, Kind::Null) => Some(Ordering::Equal),
            (Kind::Bool, Kind::Bool) => match (a.item()?, b.item()?) {
                (Item::Bool(a), Item::Bool(b)) => Some(a.cmp(&b)),
                _ => None,
            },
            _ => None,
        })
    }

    fn matches(&self, a: &Val, b: &Val, pattern: Option<&Pattern>, whole: bool) -> OpResult<bool> {
        let (Some(text), Some(regex)) = (a.text(self.rows)?, b.text(self.rows)?) else {
            return Ok(false);
        };
        Ok(match pattern {
            Some(pattern) => pattern.is_match(&text, whole),
            None => Pattern::compile(&regex).is_match(&text, whole),
        })
    }

    /// Whether a value is an element of an array, or one of several selected values.
    fn has(&self, array: &Term, value: &Val) -> OpResult<bool> {
        match array {
            Term::Nothing => Ok(false),
            Term::One(array) => {
                let found = array.each_element(self.rows, &mut |_, element| {
                    Ok(match self.is_equal(&element, value)? {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    })
                })?;
                Ok(found.is_break())
            }
            Term::Many(_) => array.any(&mut |element| self.is_equal(element, value)),
        }
    }

    fn is_in(&self, left: &Term, right: &Term) -> OpResult<bool> {
        left.any(&mut |value| self.has(right, value))
    }

    fn relates(&self, left: &Term, right: &Term, all: bool) -> OpResult<bool> {
        left.any(&mut |array| {
            if array.kind()? != Kind::Array {
                return Ok(false);
            }
            let ended = array.each_element(self.rows, &mut |_, element| {
                Ok(match self.has(right, &element)? == all {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
            Ok(ended.is_continue() == all)
        })
    }

    /// Characters of a string, elements or members of a container.
    fn characters(&self, value: &Val) -> OpResult<Option<u64>> {
        Ok(match value.kind()? {
            Kind::Text => value.text(self.rows)?.map(|text| {
                let is_first = |byte: &&u8| **byte & 0xC0 != 0x80;
                text.iter().filter(is_first).count() as u64
            }),
            Kind::Array | Kind::Object => Some(value.len(self.rows)?),
            _ => None,
        })
    }

    fn numbers(&self, term: &Term) -> OpResult<Vec<f64>> {
        let mut numbers = Vec::new();
        match term {
            Term::Nothing => {}
            Term::One(array) => {
                array
                    .each_element(self.rows, &mut |_, element| {
                        numbers.extend(element.float()?);
                        Ok(ControlFlow::Continue(()))
                    })
                    .map(drop)?;
            }
            Term::Many(values) => {
                for value in values {
                    numbers.extend(value.float()?);
                }
            }
        }
        Ok(numbers)
    }

    fn call(
        &self,
        function: Function,
        terms: &[Term],
        pattern: Option<&Pattern>,
    ) -> OpResult<Term> {
        let (Some(first), second) = (terms.first(), terms.get(1)) else {
            return Ok(Term::Nothing);
        };
        let takes_two = matches!(function, Function::Match | Function::Search);
        if terms.len() != 1 + usize::from(takes_two) {
            return Ok(Term::Nothing);
        }
        let float = |number: f64| Number::Float(number).term();
        let rounded = |number: f64| match number.abs() < 9e15 {
            true => Number::Int(number as i64).term(),
            false => Number::Float(number).term(),
        };
        Ok(match function {
            Function::Length => match first {
                Term::One(value) => match self.characters(value)? {
                    Some(len) => Term::of(Value::Int(len as i64)),
                    None => Term::Nothing,
                },
                _ => Term::Nothing,
            },
            Function::Count => Term::of(Value::Int(match first {
                Term::Nothing => 0,
                Term::One(_) => 1,
                Term::Many(values) => values.len() as i64,
            })),
            Function::Value => match first {
                Term::One(value) => Term::One(value.clone()),
                _ => Term::Nothing,
            },
            Function::Match | Function::Search => match (first, second) {
                (Term::One(text), Some(Term::One(regex))) => {
                    let whole = function == Function::Match;
                    Term::of(Value::Bool(self.matches(text, regex, pattern, whole)?))
                }
                _ => Term::of(Value::Bool(false)),
            },
            Function::Min => extreme(&self.numbers(first)?, f64::min),
            Function::Max => extreme(&self.numbers(first)?, f64::max),
            Function::Sum => float(self.numbers(first)?.iter().sum()),
            Function::Avg => {
                let numbers = self.numbers(first)?;
                float(numbers.iter().sum::<f64>() / numbers.len() as f64)
            }
            Function::Abs => match first.number()? {
                Some(Number::Int(number)) if number != i64::MIN => Number::Int(number.abs()).term(),
                Some(number) => float(number.float().abs()),
                None => Term::Nothing,
            },
            Function::Floor => match first.number()? {
                Some(number) => rounded(number.float().floor()),
                None => Term::Nothing,
            },
            Function::Ceiling => match first.number()? {
                Some(number) => rounded(number.float().ceil()),
                None => Term::Nothing,
            },
            Function::First => self.end_of(first, false)?,
            Function::Last => self.end_of(first, true)?,
            Function::Unknown => Term::Nothing,
        })
    }

    fn end_of(&self, term: &Term, is_last: bool) -> OpResult<Term> {
        let found = match term {
            Term::Nothing => None,
            Term::One(array) => {
                let len = array.len(self.rows)?;
                let last = len.saturating_sub(1);
                array.element(self.rows, if is_last { last } else { 0 })?
            }
            Term::Many(values) if is_last => values.last().cloned(),
            Term::Many(values) => values.first().cloned(),
        };
        Ok(found.map_or(Term::Nothing, Term::One))
    }
}

fn extreme(numbers: &[f64], of: fn(f64, f64) -> f64) -> Term {
    let found = numbers.iter().copied().reduce(of);
    found.map_or(Term::Nothing, |number| Number::Float(number).term())
}

fn arithmetic(a: Number, sign: u8, b: Number) -> Option<Number> {
    if let (Number::Int(a), Number::Int(b)) = (a, b) {
        let exact = match sign {
            b'+' => a.checked_add(b),
            b'-' => a.checked_sub(b),
            b'*' => a.checked_mul(b),
            b'%' => return a.checked_rem(b).map(Number::Int),
            _ => None,
        };
        if let Some(exact) = exact {
            return Some(Number::Int(exact));
        }
    }
    let (a, b) = (a.float(), b.float());
    Some(Number::Float(match sign {
        b'+' => a + b,
        b'-' => a - b,
        b'*' => a * b,
        _ if b == 0.0 => return None,
        b'/' => a / b,
        _ => a % b,
    }))
}
