//! Terms of filters and projections, and whether filters hold.
//!
//! Numbers compare by their value, but not inside of arrays and objects that stand in the path:
//! there an integer is never equal to a float. Of several selected values it is enough that one
//! compares.

use super::ast::{Expr, Operator, Pattern, Segment};
use super::read::{Kind, Rows, Val};
use super::value::Value;
use crate::encoding::json::{Item, put_item};
use crate::types::{OpError, OpResult};
use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// The value of a term.
#[derive(Debug, Clone)]
pub(super) enum Term {
    /// There is none.
    Nothing,
    /// A value of the document.
    Node(Val),
    /// Several values of the document, which a path has selected.
    Nodes(Vec<Val>),
    /// A number, string, boolean or null that stands in the path or was calculated.
    Scalar(Val),
    /// An array or an object that stands in the path, or an element of one.
    Literal(Val),
    /// Values that a function returns one after another.
    List(Vec<Val>),
}

impl Term {
    pub fn of(value: Value) -> Term {
        Term::Scalar(Val::scalar(&value))
    }

    /// The term of a value of a list.
    fn element(value: &Val) -> OpResult<Term> {
        Ok(match value.kind()?.is_container() {
            true => Term::Literal(value.clone()),
            false => Term::Scalar(value.clone()),
        })
    }

    /// The terms among which one is enough; `None` if it is a single one.
    fn several(&self) -> OpResult<Option<Vec<Term>>> {
        Ok(match self {
            Term::Nodes(nodes) => Some(nodes.iter().cloned().map(Term::Node).collect()),
            Term::List(values) => {
                let terms: OpResult<Vec<Term>> = values.iter().map(Term::element).collect();
                Some(terms?)
            }
            _ => None,
        })
    }

    /// Whether a test holds for one of the selected values; a list counts as a whole.
    fn any_node(&self, test: &mut dyn FnMut(&Term) -> OpResult<bool>) -> OpResult<bool> {
        let Term::Nodes(nodes) = self else {
            return test(self);
        };
        for node in nodes {
            if test(&Term::Node(node.clone()))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The value, if it is a single one.
    pub fn value(&self) -> Option<&Val> {
        match self {
            Term::Node(value) | Term::Scalar(value) | Term::Literal(value) => Some(value),
            Term::Nothing | Term::Nodes(_) | Term::List(_) => None,
        }
    }

    pub fn number(&self) -> OpResult<Option<Number>> {
        self.value().map_or(Ok(None), number)
    }

    /// The elements of an array, the selected values or those of a list; `None` for other terms.
    pub fn elements(&self, rows: &dyn Rows) -> OpResult<Option<Vec<Val>>> {
        Ok(match self {
            Term::Nodes(values) | Term::List(values) => Some(values.clone()),
            Term::Node(array) | Term::Literal(array) if array.kind()? == Kind::Array => {
                Some(elements_of(rows, array)?)
            }
            _ => None,
        })
    }

    /// What a projection replies: a list is spread out, several selected values are one array.
    pub(super) fn into_results(self, rows: &dyn Rows) -> OpResult<Vec<Val>> {
        Ok(match self {
            Term::Nothing => Vec::new(),
            Term::Node(value) | Term::Scalar(value) | Term::Literal(value) => vec![value],
            Term::Nodes(values) => vec![array_of(rows, &values)?],
            Term::List(values) => values,
        })
    }
}

/// The elements of an array.
pub(super) fn elements_of(rows: &dyn Rows, array: &Val) -> OpResult<Vec<Val>> {
    rows.hold(array.len(rows)?.saturating_mul(size_of::<Val>() as u64))?;
    let mut values = Vec::new();
    array
        .each_element(rows, &mut |_, element| {
            values.push(element);
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    Ok(values)
}

/// An array of values; what of them is in rows of its own stays there.
pub(super) fn array_of(rows: &dyn Rows, values: &[Val]) -> OpResult<Val> {
    let bytes: usize = values.iter().map(|value| value.bytes().len()).sum();
    rows.hold(2 * bytes as u64)?;
    let mut inner = Vec::with_capacity(bytes);
    for value in values {
        inner.extend_from_slice(value.bytes());
    }
    let mut array = Vec::new();
    put_item(Item::Array(&inner), &mut array);
    Ok(Val::whole(array.into()))
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub fn float(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Float(number) => number,
        }
    }

    pub(super) fn term(self) -> Term {
        match self {
            Number::Int(number) => Term::of(Value::Int(number)),
            Number::Float(number) if number.is_finite() => Term::of(Value::Float(number)),
            Number::Float(_) => Term::Nothing,
        }
    }

    fn equals(self, other: Number) -> bool {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a == b,
            (a, b) => a.float() == b.float(),
        }
    }
}

pub(super) fn number(value: &Val) -> OpResult<Option<Number>> {
    Ok(match value.item()? {
        Item::Int(number) => Some(Number::Int(number)),
        Item::Large(number) => Some(Number::Float(number as f64)),
        Item::Float(number) => Some(Number::Float(number)),
        _ => None,
    })
}

/// Returns what segments select of a value.
pub(super) type Select = fn(&Scope<'_>, &[Segment], &Val) -> OpResult<Vec<Val>>;

/// What filters look at.
pub struct Scope<'s> {
    /// The document's rows.
    pub rows: &'s dyn Rows,
    /// The root.
    pub root: &'s Val,
    /// How paths in filters select values.
    pub(super) select: Select,
    /// How many values were visited; see [`Scope::visit`].
    pub(super) visited: Cell<u64>,
}

/// Values that one evaluation visits at most. Each segment `..*` of a path multiplies them, so that
/// a path of a few bytes could occupy its thread for ever.
const VISITED_MAX: u64 = 10_000_000;
/// What compiling a regular expression counts.
const COMPILED: u64 = 2_000;

/// What compiling a pattern counts on an IO thread: classes are large, and repetitions multiply
/// what they repeat, up to some milliseconds.
fn price_of_pattern(pattern: &[u8]) -> u64 {
    let repeats = pattern.contains(&b'{');
    let classes = pattern
        .iter()
        .filter(|byte| matches!(byte, b'\\' | b'.' | b'['));
    match repeats {
        true => COMPILED * 100,
        false => COMPILED * classes.count() as u64,
    }
}

impl Scope<'_> {
    /// Counts visited values.
    ///
    /// # Errors
    /// [`OpError::TooManyValues`], or that takes too long here.
    pub(super) fn visit(&self, values: u64) -> OpResult<()> {
        self.rows.visit(values)?;
        let visited = self.visited.get() + values;
        self.visited.set(visited);
        match visited > VISITED_MAX {
            true => Err(OpError::TooManyValues),
            false => Ok(()),
        }
    }

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
            Expr::Exists(term) => self.exists(term, current),
            Expr::Literal(_)
            | Expr::Current(_)
            | Expr::Root(_)
            | Expr::Call(..)
            | Expr::Arithmetic(..)
            | Expr::Sign(..) => self.exists(filter, current),
        }
    }

    fn exists(&self, term: &Expr, current: &Val) -> OpResult<bool> {
        Ok(match self.term(term, current)? {
            Term::Nothing => false,
            Term::Scalar(value) => value.item()? != Item::Bool(false),
            Term::List(values) => !values.is_empty(),
            Term::Node(_) | Term::Nodes(_) | Term::Literal(_) => true,
        })
    }

    pub(super) fn term(&self, expr: &Expr, current: &Val) -> OpResult<Term> {
        match expr {
            Expr::Literal(value) => Term::element(value),
            Expr::Current(segments) => self.selected(segments, current),
            Expr::Root(segments) => self.selected(segments, self.root),
            Expr::Arithmetic(sides, sign) => {
                let left = self.term(&sides.0, current)?.number()?;
                let right = self.term(&sides.1, current)?.number()?;
                let done = left.zip(right).and_then(|(a, b)| arithmetic(a, *sign, b));
                Ok(done.map_or(Term::Nothing, Number::term))
            }
            Expr::Sign(operand, sign) => {
                let number = self.term(operand, current)?.number()?;
                let done = number.map(|number| match (number, sign) {
                    (Number::Int(number), b'-') => match number.checked_neg() {
                        Some(number) => Number::Int(number),
                        None => Number::Float(-(number as f64)),
                    },
                    (Number::Float(number), b'-') => Number::Float(-number),
                    (number, _) => number,
                });
                Ok(done.map_or(Term::Nothing, Number::term))
            }
            Expr::Call(function, arguments, pattern) => {
                let terms: OpResult<Vec<Term>> = arguments
                    .iter()
                    .map(|term| self.term(term, current))
                    .collect();
                self.call(*function, terms?, pattern.as_ref())
            }
            Expr::Compare(..) | Expr::Exists(_) | Expr::Not(_) | Expr::All(_) | Expr::Any(_) => {
                Ok(Term::of(Value::Bool(self.holds(expr, current)?)))
            }
        }
    }

    fn selected(&self, segments: &[Segment], from: &Val) -> OpResult<Term> {
        let mut values = (self.select)(self, segments, from)?;
        Ok(match values.len() {
            0 => Term::Nothing,
            1 => values.pop().map_or(Term::Nothing, Term::Node),
            _ => Term::Nodes(values),
        })
    }

    fn compare(
        &self,
        left: &Term,
        operator: Operator,
        right: &Term,
        pattern: Option<&Pattern>,
    ) -> OpResult<bool> {
        match operator {
            Operator::Equal => self.equal(left, right),
            Operator::NotEqual => Ok(!self.equal(left, right)?),
            Operator::Less => self.ordered(left, right, Ordering::is_lt),
            Operator::LessOrEqual => self.ordered(left, right, Ordering::is_le),
            Operator::Greater => self.ordered(left, right, Ordering::is_gt),
            Operator::GreaterOrEqual => self.ordered(left, right, Ordering::is_ge),
            Operator::Matches => {
                left.any_node(&mut |a| right.any_node(&mut |b| self.matches(a, b, pattern, false)))
            }
            Operator::In => self.is_in(left, right),
            Operator::NotIn => Ok(!self.is_in(left, right)?),
            Operator::SubsetOf => self.relates(left, right, true),
            Operator::AnyOf => self.relates(left, right, false),
            Operator::NoneOf => Ok(!self.relates(left, right, false)?),
            Operator::Size => left.any_node(&mut |a| right.any_node(&mut |b| self.has_size(a, b))),
            Operator::Empty => left.any_node(&mut |a| {
                let is_empty = self.characters(a)?.map(|len| len == 0);
                right.any_node(&mut |b| {
                    let wanted = match b.value().map(Val::item).transpose()? {
                        Some(Item::Bool(wanted)) => Some(wanted),
                        _ => None,
                    };
                    Ok(is_empty.is_some() && is_empty == wanted)
                })
            }),
        }
    }

    fn equal(&self, left: &Term, right: &Term) -> OpResult<bool> {
        match (left, right) {
            (Term::Node(a), Term::Node(b)) => a.is_like(self.rows, b, self.rows, true),
            (Term::Node(a), Term::Literal(b))
            | (Term::Literal(a), Term::Node(b))
            | (Term::Literal(a), Term::Literal(b)) => a.equals(self.rows, b, self.rows),
            _ => self.pairs(left, right, &|a, b| match (a, b) {
                (Term::Scalar(_), _) | (_, Term::Scalar(_)) => {
                    Ok(self.order(a, b)?.is_some_and(Ordering::is_eq))
                }
                _ => self.equal(a, b),
            }),
        }
    }

    fn ordered(&self, left: &Term, right: &Term, test: fn(Ordering) -> bool) -> OpResult<bool> {
        self.pairs(left, right, &|a, b| Ok(self.order(a, b)?.is_some_and(test)))
    }

    /// Whether a test holds for one pair of the single values of two terms.
    fn pairs(
        &self,
        left: &Term,
        right: &Term,
        test: &dyn Fn(&Term, &Term) -> OpResult<bool>,
    ) -> OpResult<bool> {
        match (left.several()?, right.several()?, left, right) {
            (_, _, Term::Nothing, _) | (_, _, _, Term::Nothing) => Ok(false),
            (Some(several), ..) => {
                for term in several {
                    if self.pairs(&term, right, test)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (None, Some(several), ..) => {
                for term in several {
                    if test(left, &term)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (None, None, ..) => test(left, right),
        }
    }

    fn order(&self, a: &Term, b: &Term) -> OpResult<Option<Ordering>> {
        let (Term::Node(a) | Term::Scalar(a), Term::Node(b) | Term::Scalar(b)) = (a, b) else {
            return Ok(None);
        };
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

    pub(super) fn matches(
        &self,
        a: &Term,
        b: &Term,
        pattern: Option<&Pattern>,
        whole: bool,
    ) -> OpResult<bool> {
        let (Some(text), Some(regex)) = (self.text(a)?, self.text(b)?) else {
            return Ok(false);
        };
        let of_document = Pattern::default();
        let pattern = pattern.unwrap_or(&of_document);
        if !pattern.is_compiled() {
            self.visit(COMPILED + regex.len() as u64)?;
            self.rows.visit(price_of_pattern(&regex))?;
        }
        self.rows.scan(text.len())?;
        Ok(pattern.is_match(&regex, &text, whole))
    }

    /// The string that a term is.
    pub(super) fn text(&self, term: &Term) -> OpResult<Option<Vec<u8>>> {
        term.value().map_or(Ok(None), |value| value.text(self.rows))
    }

    /// Whether an array, some selected values or a list have a value; numbers count by their
    /// value.
    fn has(&self, array: &Term, value: &Val) -> OpResult<bool> {
        self.has_any(array, &|element| match (number(element)?, number(value)?) {
            (Some(a), Some(b)) => Ok(a.equals(b)),
            _ => element.equals(self.rows, value, self.rows),
        })
    }

    fn has_any(&self, array: &Term, test: &dyn Fn(&Val) -> OpResult<bool>) -> OpResult<bool> {
        let elements = match array {
            Term::Node(array) | Term::Literal(array) => {
                let found = array.each_element(self.rows, &mut |_, element| {
                    self.visit(1)?;
                    Ok(match test(&element)? {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    })
                })?;
                return Ok(found.is_break());
            }
            Term::Nodes(elements) | Term::List(elements) => elements,
            Term::Nothing | Term::Scalar(_) => return Ok(false),
        };
        for element in elements {
            self.visit(1)?;
            if test(element)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_in(&self, left: &Term, right: &Term) -> OpResult<bool> {
        match left {
            Term::Node(value) | Term::Scalar(value) | Term::Literal(value) => {
                self.has(right, value)
            }
            Term::Nodes(values) => self.has_any(right, &|element| {
                for value in values {
                    if value.equals(self.rows, element, self.rows)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }),
            Term::Nothing | Term::List(_) => Ok(false),
        }
    }

    fn relates(&self, left: &Term, right: &Term, all: bool) -> OpResult<bool> {
        left.any_node(&mut |array| {
            let Some(elements) = array.elements(self.rows)? else {
                return Ok(false);
            };
            for element in &elements {
                if self.has(right, element)? != all {
                    return Ok(!all);
                }
            }
            Ok(all)
        })
    }

    fn has_size(&self, term: &Term, size: &Term) -> OpResult<bool> {
        let size = match size.number()? {
            Some(Number::Int(size)) => u64::try_from(size).ok(),
            Some(Number::Float(size)) => integer(size.trunc()).and_then(|n| n.try_into().ok()),
            None => None,
        };
        Ok(size.is_some() && self.characters(term)? == size)
    }

    /// Characters of a string, elements of an array or a list, members of an object.
    pub(super) fn characters(&self, term: &Term) -> OpResult<Option<u64>> {
        let value = match term {
            Term::Node(value) | Term::Scalar(value) | Term::Literal(value) => value,
            Term::List(values) => return Ok(Some(values.len() as u64)),
            Term::Nothing | Term::Nodes(_) => return Ok(None),
        };
        Ok(match value.kind()? {
            Kind::Text => value.text(self.rows)?.map(|text| {
                let is_first = |byte: &&u8| **byte & 0xC0 != 0x80;
                text.iter().filter(is_first).count() as u64
            }),
            Kind::Array | Kind::Object => Some(value.len(self.rows)?),
            _ => None,
        })
    }
}

/// A float as an integer, if it is in the range of 64 bits; a fraction is cut off.
pub(super) fn integer(number: f64) -> Option<i64> {
    let limit = -(i64::MIN as f64);
    (-limit..limit).contains(&number).then_some(number as i64)
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
