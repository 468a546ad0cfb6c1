//! What SORT works on: elements of a value, weights, and the values that patterns lead to.

use super::definition::Sortable;
use super::members::Members;
use super::table::definition;
use super::{OpError, OpResult, string};
use crate::base::num;
use crate::encoding::ValueType;
use crate::storage::{DbIndex, View};
use std::cmp::Ordering;

/// An element to sort.
pub type Element = Vec<u8>;

/// The value under a key; `None` if there is no such key.
///
/// # Errors
/// `WrongType`: it is of a type that is not sorted.
pub fn open<'k>(
    view: &mut View,
    db: DbIndex,
    key: &'k [u8],
) -> OpResult<Option<Box<dyn Sortable + 'k>>> {
    match view.peek(db, key, |found| found.meta.kind)? {
        None => Ok(None),
        Some(kind) => definition(kind).sortable(view, db, key),
    }
}

/// A parsed BY or GET pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern<'a> {
    /// `#`: the element itself.
    Itself,
    /// A pattern without a star has no value.
    Nowhere,
    /// The element between two texts is a key, with a field that of a hash.
    Key {
        /// The text before the star.
        before: &'a [u8],
        /// The text after the star.
        after: &'a [u8],
        /// The text after `->`.
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    /// Parses a pattern.
    pub fn new(text: &'a [u8]) -> Pattern<'a> {
        if text == b"#" {
            return Pattern::Itself;
        }
        let Some(star) = memchr::memchr(b'*', text) else {
            return Pattern::Nowhere;
        };
        let (before, after) = (&text[..star], &text[star + 1..]);
        let arrow = memchr::memmem::find(after, b"->").filter(|at| at + 2 < after.len());
        match arrow {
            Some(at) => Pattern::Key {
                before,
                after: &after[..at],
                field: Some(&after[at + 2..]),
            },
            None => Pattern::Key {
                before,
                after,
                field: None,
            },
        }
    }

    /// The value of the pattern for an element. A value of another type than the pattern
    /// needs counts as missing.
    pub fn resolve(
        &self,
        view: &mut View,
        db: DbIndex,
        element: &[u8],
    ) -> OpResult<Option<Vec<u8>>> {
        let (before, after, field) = match *self {
            Pattern::Itself => return Ok(Some(element.to_vec())),
            Pattern::Nowhere => return Ok(None),
            Pattern::Key {
                before,
                after,
                field,
            } => (before, after, field),
        };
        let key = [before, element, after].concat();
        let found = match field {
            None => string::get(view, db, &key),
            Some(field) => hash_field(view, db, &key, field),
        };
        match found {
            Err(OpError::WrongType) => Ok(None),
            found => found,
        }
    }
}

fn hash_field(view: &mut View, db: DbIndex, key: &[u8], field: &[u8]) -> OpResult<Option<Vec<u8>>> {
    let Some(hash) = Members::load(view, db, key, ValueType::Hash)? else {
        return Ok(None);
    };
    Ok(hash.get(view, field)?.map(|value| value.to_vec()))
}

/// How elements are compared.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// Compares bytes, not numbers.
    pub alpha: bool,
    /// Compares bytes only up to a NUL, as Redis does with C strings if it does not
    /// store the result.
    pub up_to_nul: bool,
    /// The largest first.
    pub descending: bool,
    /// The pattern for weights; without, the elements themselves.
    pub by: Option<Pattern<'a>>,
}

enum Weight {
    Number(f64),
    /// A missing weight comes first.
    Text(Option<Vec<u8>>),
    /// The element itself.
    Own,
}

/// Sorts elements. Elements with equal weights are ordered by their bytes if the weights
/// are numbers, and keep their order if they are texts.
///
/// # Errors
/// `NotFloat` if a numeric weight is not a number.
pub fn sort(
    view: &mut View,
    db: DbIndex,
    elements: Vec<Element>,
    order: Order<'_>,
) -> OpResult<Vec<Element>> {
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements {
        let weight = weigh(view, db, &element, order)?;
        weighed.push((weight, element));
    }
    view.sort_by(&mut weighed, |a, b| {
        let ordering = compare(a, b, order.up_to_nul);
        match order.descending {
            true => ordering.reverse(),
            false => ordering,
        }
    })?;
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}

fn weigh(view: &mut View, db: DbIndex, element: &[u8], order: Order<'_>) -> OpResult<Weight> {
    Ok(match (order.by, order.alpha) {
        (None, true) => Weight::Own,
        (None, false) => Weight::Number(number(element)?),
        (Some(by), true) => Weight::Text(by.resolve(view, db, element)?),
        (Some(by), false) => match by.resolve(view, db, element)? {
            Some(text) => Weight::Number(number(&text)?),
            None => Weight::Number(0.0),
        },
    })
}

fn compare(
    (a, a_element): &(Weight, Element),
    (b, b_element): &(Weight, Element),
    up_to_nul: bool,
) -> Ordering {
    let text = |text| match up_to_nul {
        true => before_nul(text),
        false => text,
    };
    match (a, b) {
        (Weight::Number(a), Weight::Number(b)) => a
            .partial_cmp(b)
            .unwrap_or(Ordering::Equal)
            .then_with(|| a_element.cmp(b_element)),
        (Weight::Text(a), Weight::Text(b)) => a.as_deref().map(text).cmp(&b.as_deref().map(text)),
        _ => text(a_element.as_slice()).cmp(text(b_element.as_slice())),
    }
}

/// The bytes before the first NUL.
fn before_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A weight: a decimal number up to a NUL, infinite if it is too large; an empty one is 0.
fn number(text: &[u8]) -> OpResult<f64> {
    match before_nul(text) {
        [] => Ok(0.0),
        text => num::parse_decimal_clamped(text).ok_or(OpError::NotFloat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let key = |before, after, field| Pattern::Key {
            before,
            after,
            field,
        };
        let none: Option<&[u8]> = None;
        for (text, pattern) in [
            (&b"#"[..], Pattern::Itself),
            (b"nosort", Pattern::Nowhere),
            (b"", Pattern::Nowhere),
            (b"*", key(b"", b"", none)),
            (b"w_*", key(b"w_", b"", none)),
            (b"w_*_x", key(b"w_", b"_x", none)),
            (b"w_*->f", key(b"w_", b"", Some(b"f"))),
            (b"w_*_x->f->g", key(b"w_", b"_x", Some(b"f->g"))),
            (b"w_*->", key(b"w_", b"->", none)),
            (b"a->b*", key(b"a->b", b"", none)),
        ] {
            assert_eq!(Pattern::new(text), pattern, "{text:?}");
        }
    }

    #[test]
    fn weights_are_decimal() {
        for (text, weight) in [
            (&b""[..], Some(0.0)),
            (b"\0junk", Some(0.0)),
            (b"12", Some(12.0)),
            (b"5\0junk", Some(5.0)),
            (b"1e400", Some(f64::INFINITY)),
            (b" 5", None),
            (b"0x5", None),
            (b"5 ", None),
            (b" ", None),
            (b"1.5e2", Some(150.0)),
            (b"x", None),
            (b"nan", None),
        ] {
            assert_eq!(number(text).ok(), weight, "{text:?}");
        }
    }
}
