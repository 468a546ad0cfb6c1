//! The expressions of filters, `[?(…)]`.

use super::eval::{Places, select};
use super::path::Segment;
use super::read::{Kind, Rows, Val};
use super::value::Value;
use crate::encoding::json::Item;
use crate::types::OpResult;
use regex::{Regex, RegexBuilder};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// Most bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// An expression.
#[derive(Debug)]
pub enum Expr {
    /// A value that stands in the path.
    Literal(Val),
    /// What a path selects of the value that is tested.
    Current(Vec<Segment>),
    /// What a path selects of the document.
    Root(Vec<Segment>),
    /// A function.
    Call(Function, Vec<Expr>, Option<Pattern>),
    /// `+ - * / %`.
    Arithmetic(Box<(Expr, Expr)>, u8),
    /// A comparison.
    Compare(Box<(Expr, Expr)>, Operator, Option<Pattern>),
    /// Whether there is such a value.
    Exists(Box<Expr>),
    /// Not.
    Not(Box<Expr>),
    /// All of them hold.
    All(Vec<Expr>),
    /// One of them holds.
    Any(Vec<Expr>),
}

/// An operator between two terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `==`.
    Equal,
    /// `!=`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `=~`: a pattern is found in a string.
    Matches,
    /// The right array has the left value.
    In,
    /// It does not.
    NotIn,
    /// The right array has all elements of the left one.
    SubsetOf,
    /// It has one of them.
    AnyOf,
    /// It has none of them.
    NoneOf,
    /// The left value has so many elements.
    Size,
    /// Whether the left value has none.
    Empty,
}

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Characters, elements or members.
    Length,
    /// Selected values.
    Count,
    /// The value, if one is selected.
    Value,
    /// Whether a pattern is the whole string.
    Match,
    /// Whether a pattern is in the string.
    Search,
    /// Smallest of an array's numbers.
    Min,
    /// Largest.
    Max,
    /// Sum.
    Sum,
    /// Mean.
    Avg,
    /// Without a sign.
    Abs,
    /// Rounded down.
    Floor,
    /// Rounded up.
    Ceiling,
    /// First element.
    First,
    /// Last element.
    Last,
    /// No function of that name: its result is nothing.
    Unknown,
}

impl Function {
    /// The function with a name.
    pub fn named(name: &[u8]) -> Function {
        match name {
            b"length" => Function::Length,
            b"count" => Function::Count,
            b"value" => Function::Value,
            b"match" => Function::Match,
            b"search" => Function::Search,
            b"min" => Function::Min,
            b"max" => Function::Max,
            b"sum" => Function::Sum,
            b"avg" => Function::Avg,
            b"abs" => Function::Abs,
            b"floor" => Function::Floor,
            b"ceiling" => Function::Ceiling,
            b"first" => Function::First,
            b"last" => Function::Last,
            _ => Function::Unknown,
        }
    }
}

/// A compiled pattern, and one that has to be the whole string; `None` if the text is no pattern.
#[derive(Debug)]
pub struct Pattern(Option<[Regex; 2]>);

impl Pattern {
    /// The pattern of a string that stands in the path, compiled once.
    pub fn of(expr: &Expr) -> Option<Pattern> {
        match expr {
            Expr::Literal(value) => match value.item() {
                Ok(Item::Text(text)) => Some(Pattern::compile(text)),
                _ => None,
            },
            _ => None,
        }
    }

    fn compile(text: &[u8]) -> Pattern {
        let compile = |text: &str| {
            RegexBuilder::new(text)
                .size_limit(PATTERN_BYTES)
                .build()
                .ok()
        };
        let Ok(text) = std::str::from_utf8(text) else {
            return Pattern(None);
        };
        let whole = compile(&format!("^(?:{text})$"));
        Pattern(compile(text).zip(whole).map(|(part, whole)| [part, whole]))
    }

    fn is_match(&self, text: &[u8], whole: bool) -> bool {
        let text = std::str::from_utf8(text).unwrap_or_default();
        match &self.0 {
            Some([part, _]) if !whole => part.is_match(text),
            Some([_, all]) => all.is_match(text),
            None => false,
        }
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
