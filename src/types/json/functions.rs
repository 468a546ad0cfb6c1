//! Functions of filters and projections.

use super::ast::{Function, Pattern};
use super::filter::{Number, Scope, Term, array_of, elements_of, integer, number};
use super::read::{Kind, Val};
use super::value::Value;
use crate::types::OpResult;
use std::ops::ControlFlow;

impl Scope<'_> {
    /// The result of a function. With arguments that it cannot take it is nothing.
    pub(super) fn call(
        &self,
        function: Function,
        terms: Vec<Term>,
        pattern: Option<&Pattern>,
    ) -> OpResult<Term> {
        let takes = match function {
            Function::Concat => terms.len().max(1),
            Function::Index | Function::Append => 2,
            Function::Match | Function::Search => terms.len(),
            _ => 1,
        };
        if terms.len() != takes {
            return Ok(Term::Nothing);
        }
        let mut terms = terms.into_iter();
        let Some(first) = terms.next() else {
            return Ok(match function {
                Function::Match | Function::Search => Term::of(Value::Bool(false)),
                _ => Term::Nothing,
            });
        };
        self.result(function, first, terms.collect(), pattern)
    }

    fn result(
        &self,
        function: Function,
        first: Term,
        more: Vec<Term>,
        pattern: Option<&Pattern>,
    ) -> OpResult<Term> {
        let second = || more.first().cloned().unwrap_or(Term::Nothing);
        Ok(match function {
            Function::Length => match self.characters(&first)? {
                Some(len) => Term::of(Value::Int(len as i64)),
                None => Term::Nothing,
            },
            Function::Count => Term::of(Value::Int(match &first {
                Term::Nothing => 0,
                Term::Nodes(values) | Term::List(values) => values.len() as i64,
                Term::Node(_) | Term::Scalar(_) | Term::Literal(_) => 1,
            })),
            Function::Value => match first {
                Term::Node(value) => Term::Node(value),
                Term::List(values) => match &values[..] {
                    [value] => Term::Literal(value.clone()),
                    _ => Term::Nothing,
                },
                _ => Term::Nothing,
            },
            Function::Match | Function::Search => {
                let whole = function == Function::Match;
                let matches = self.matches(&first, &second(), pattern, whole)?;
                Term::of(Value::Bool(matches))
            }
            Function::Concat => self.concat(&first, &more)?,
            Function::Min => self.aggregate(&first, |numbers| extreme(numbers, f64::min))?,
            Function::Max => self.aggregate(&first, |numbers| extreme(numbers, f64::max))?,
            Function::Sum => self.aggregate(&first, |numbers| numbers.iter().sum())?,
            Function::Avg => self.aggregate(&first, mean)?,
            Function::StdDev => self.aggregate(&first, |numbers| {
                let mean = mean(numbers);
                let squares = numbers.iter().map(|n| (n - mean) * (n - mean));
                (squares.sum::<f64>() / numbers.len() as f64).sqrt()
            })?,
            Function::Abs => match first.number()? {
                Some(Number::Int(number)) => match number.checked_abs() {
                    Some(number) => Number::Int(number).term(),
                    None => Term::Nothing,
                },
                Some(Number::Float(number)) => Number::Float(number.abs()).term(),
                None => Term::Nothing,
            },
            Function::Floor => rounded(&first, f64::floor)?,
            Function::Ceiling => rounded(&first, f64::ceil)?,
            Function::First => self.element_of(&first, 0)?,
            Function::Last => self.element_of(&first, -1)?,
            Function::Index => match second().number()?.and_then(index_of) {
                Some(index) => self.element_of(&first, index)?,
                None => Term::Nothing,
            },
            Function::Keys => self.keys_of(&first)?,
            Function::Append => self.append(first, second())?,
            Function::Unknown => Term::Nothing,
        })
    }

    fn concat(&self, first: &Term, more: &[Term]) -> OpResult<Term> {
        let mut joined = Vec::new();
        for term in std::iter::once(first).chain(more) {
            let Some(text) = self.text(term)? else {
                return Ok(Term::Nothing);
            };
            self.rows.hold(2 * text.len() as u64)?;
            joined.extend_from_slice(&text);
        }
        Ok(match String::from_utf8(joined) {
            Ok(joined) => Term::of(Value::Text(joined)),
            Err(_) => Term::Nothing,
        })
    }

    /// What becomes of an array of numbers, if there is one at least and nothing else.
    fn aggregate(&self, term: &Term, of: impl Fn(&[f64]) -> f64) -> OpResult<Term> {
        let elements = term.elements(self.rows)?.unwrap_or_default();
        let mut numbers = Vec::with_capacity(elements.len());
        for element in &elements {
            match number(element)? {
                Some(number) => numbers.push(number.float()),
                None => return Ok(Term::Nothing),
            }
        }
        Ok(match numbers.is_empty() {
            true => Term::Nothing,
            false => Number::Float(of(&numbers)).term(),
        })
    }

    /// The element at an index, which counts from the end if it is negative.
    fn element_of(&self, term: &Term, index: i64) -> OpResult<Term> {
        let place = |len: u64| match u64::try_from(index) {
            Ok(index) => (index < len).then_some(index),
            Err(_) => len.checked_sub(index.unsigned_abs()),
        };
        let listed = |values: &[Val]| {
            let at = place(values.len() as u64).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| values.get(at).cloned())
        };
        Ok(match term {
            Term::Node(array) | Term::Literal(array) if array.kind()? == Kind::Array => {
                let at = place(array.len(self.rows)?);
                let found = at.map(|at| array.element(self.rows, at)).transpose()?;
                match (found.flatten(), term) {
                    (Some(element), Term::Node(_)) => Term::Node(element),
                    (Some(element), _) => Term::Literal(element),
                    (None, _) => Term::Nothing,
                }
            }
            Term::Nodes(values) => listed(values).map_or(Term::Nothing, Term::Node),
            Term::List(values) => listed(values).map_or(Term::Nothing, Term::Literal),
            _ => Term::Nothing,
        })
    }

    /// The keys of an object, or of all selected objects.
    fn keys_of(&self, term: &Term) -> OpResult<Term> {
        let objects = match term {
            Term::Node(object) | Term::Literal(object) if object.kind()? == Kind::Object => {
                std::slice::from_ref(object)
            }
            Term::Nodes(values) => &values[..],
            _ => return Ok(Term::Nothing),
        };
        let mut keys = Vec::new();
        for object in objects {
            object
                .each_member(self.rows, &mut |key, _| {
                    self.rows.hold((2 * key.len() + size_of::<Val>()) as u64)?;
                    let key = String::from_utf8_lossy(key).into_owned();
                    keys.push(Val::scalar(&Value::Text(key)));
                    Ok(ControlFlow::Continue(()))
                })
                .map(drop)?;
        }
        Ok(Term::List(keys))
    }

    /// The elements of an array, or what is selected, and behind them one value more: several
    /// values are one array.
    fn append(&self, to: Term, more: Term) -> OpResult<Term> {
        let more = match more {
            Term::Nothing => return Ok(Term::Nothing),
            Term::Node(value) | Term::Scalar(value) | Term::Literal(value) => value,
            Term::Nodes(values) | Term::List(values) => array_of(self.rows, &values)?,
        };
        let mut values = match to {
            Term::Nothing => Vec::new(),
            Term::Nodes(values) | Term::List(values) => values,
            Term::Node(array) | Term::Literal(array) if array.kind()? == Kind::Array => {
                elements_of(self.rows, &array)?
            }
            Term::Node(value) | Term::Scalar(value) | Term::Literal(value) => vec![value],
        };
        values.push(more);
        Ok(Term::List(values))
    }
}

fn rounded(term: &Term, round: fn(f64) -> f64) -> OpResult<Term> {
    Ok(match term.number()? {
        Some(Number::Int(number)) => Number::Int(number).term(),
        Some(Number::Float(number)) => match integer(round(number)) {
            Some(number) => Number::Int(number).term(),
            None => Term::Nothing,
        },
        None => Term::Nothing,
    })
}

fn index_of(number: Number) -> Option<i64> {
    match number {
        Number::Int(index) => Some(index),
        Number::Float(index) => integer(index.trunc()),
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn extreme(numbers: &[f64], of: fn(f64, f64) -> f64) -> f64 {
    numbers.iter().copied().reduce(of).unwrap_or(f64::NAN)
}
