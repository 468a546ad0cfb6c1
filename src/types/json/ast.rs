//! Paths and the expressions of their filters, as parsed.

use super::read::Val;
use crate::encoding::json::Item;
use regex::{Regex, RegexBuilder};
use std::cell::OnceCell;
use std::rc::Rc;

/// Most bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// A path.
#[derive(Debug)]
pub struct Path {
    /// What selects the values, one segment after another.
    pub segments: Vec<Segment>,
    /// Whether it is a legacy path.
    pub is_legacy: bool,
    /// What is calculated, if that is more than what segments select: there are no segments
    /// then, and the results stand nowhere in the document.
    pub projection: Option<Expr>,
}

/// A part of a path.
#[derive(Debug)]
pub struct Segment {
    /// Whether it applies to the values and to all inside of them (`..`).
    pub is_deep: bool,
    /// What it selects of a value.
    pub select: Select,
}

/// What a segment selects of a container.
#[derive(Debug)]
pub enum Select {
    /// Members by their keys.
    Keys(Vec<Rc<[u8]>>),
    /// Elements by their indices; from the end if negative.
    Indices(Vec<i64>),
    /// Elements from an index to one before another, by steps.
    Range(Option<i64>, Option<i64>, u64),
    /// All.
    All,
    /// Those for which a filter holds.
    Filter(Expr),
}

impl Path {
    /// The root.
    pub fn root() -> Path {
        Path {
            segments: Vec::new(),
            is_legacy: true,
            projection: None,
        }
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.segments.is_empty() && self.projection.is_none()
    }

    /// Whether it selects at most one value of any document.
    pub fn is_static(&self) -> bool {
        self.segments.iter().all(|segment| {
            !segment.is_deep
                && match &segment.select {
                    Select::Keys(keys) => keys.len() == 1,
                    Select::Indices(indices) => indices.len() == 1,
                    Select::Range(..) | Select::All | Select::Filter(_) => false,
                }
        })
    }
}

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
    /// A sign in front of a term.
    Sign(Box<Expr>, u8),
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
    /// Strings one after another.
    Concat,
    /// Smallest of an array's numbers.
    Min,
    /// Largest.
    Max,
    /// Sum.
    Sum,
    /// Mean.
    Avg,
    /// Standard deviation of all numbers there are.
    StdDev,
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
    /// Element at an index.
    Index,
    /// Keys of objects.
    Keys,
    /// Elements and one more.
    Append,
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
            b"concat" => Function::Concat,
            b"min" => Function::Min,
            b"max" => Function::Max,
            b"sum" => Function::Sum,
            b"avg" => Function::Avg,
            b"stddev" => Function::StdDev,
            b"abs" => Function::Abs,
            b"floor" => Function::Floor,
            b"ceiling" => Function::Ceiling,
            b"first" => Function::First,
            b"last" => Function::Last,
            b"index" => Function::Index,
            b"keys" => Function::Keys,
            b"append" => Function::Append,
            _ => Function::Unknown,
        }
    }
}

/// A pattern, compiled when it is first used; `None` if its text is no pattern.
#[derive(Debug, Default)]
pub struct Pattern(OnceCell<Option<Regex>>);

impl Pattern {
    /// The pattern of a string that stands in the path.
    pub fn of(expr: &Expr) -> Option<Pattern> {
        match expr {
            Expr::Literal(value) => match value.item() {
                Ok(Item::Text(_)) => Some(Pattern::default()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it is compiled.
    pub(super) fn is_compiled(&self) -> bool {
        self.0.get().is_some()
    }

    /// Whether the pattern with this text is found in a string, or is all of it. It must always be
    /// asked for the same of both.
    pub(super) fn is_match(&self, pattern: &[u8], text: &[u8], whole: bool) -> bool {
        let compiled = self.0.get_or_init(|| {
            let pattern = std::str::from_utf8(pattern).ok()?;
            let part = compile(pattern)?;
            match whole {
                true => compile(&format!("^(?:{pattern})$")),
                false => Some(part),
            }
        });
        let text = std::str::from_utf8(text).unwrap_or_default();
        compiled.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

fn compile(pattern: &str) -> Option<Regex> {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(PATTERN_BYTES).build().ok()
}
