//! JSON documents: RedisJSON's commands.
//!
//! A path that begins with `$` may select several values, and the reply is an array with one entry
//! for each; a legacy path stands for its first value, and the reply is that entry alone.

mod arrays;
mod change;
mod format;
mod numbers;
mod read;
mod set;
mod table;

pub use table::COMMANDS;

use super::{Error, ReadCtx, WriteCtx};
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, View};
use crate::types::json::narrow::FloatType;
use crate::types::json::{self, Doc, Editor, Kind, Path, Place, Rows, Step, Val};
use crate::types::{OpError, OpResult};

const READ_ONLY: Error = Error::text(
    "ERR computed/projection expressions are only supported by JSON.GET/JSON.MGET/JSON.RESP",
);
const NO_PATH: Error = Error::Op(OpError::NoSuchPath);
const NO_KEY: Error =
    Error::text("ERR could not perform this operation on a key that doesn't exist");
const NEW_AT_ROOT: Error = Error::text("ERR new objects must be created at the root");
const TOO_DEEP: Error = Error::text("ERR recursion limit exceeded");
const BAD_FORMAT: Error = Error::text("ERR wrong reply format");
const NO_FORMAT_IN_RESP2: Error = Error::text("ERR FORMAT argument is not supported on RESP2");

/// The error for a legacy path without a value of the type that the command needs.
fn no_path_or(what: &str) -> Error {
    Error::owned(format!("ERR Path does not exist or {what}"))
}

/// The error for a value of another type than the command needs.
fn expected(what: &str) -> Error {
    Error::owned(format!(
        "WRONGTYPE wrong type of path value - expected {what}"
    ))
}

fn parse_path(text: &[u8]) -> Result<Path, Error> {
    Path::parse(text).map_err(|bad| {
        Error::owned(format!(
            "Error occurred at position {}, expected one of the following: {}",
            bad.at, bad.expected
        ))
    })
}

/// Whether the path of an argument is a legacy one, as the root is that stands for none.
fn is_legacy_at(args: &[&[u8]], at: usize) -> bool {
    args.get(at).is_none_or(|text| Path::is_legacy_text(text))
}

/// The path of an argument; the root if there is none.
fn path_at(args: &[&[u8]], at: usize) -> Result<Path, Error> {
    args.get(at)
        .map_or(Ok(Path::root()), |text| parse_path(text))
}

fn parse_value(view: &View, text: &[u8]) -> Result<json::Value, Error> {
    parse_narrow(view, text, None)
}

/// The same for an operand; what is wrong with it begins with a code.
fn parse_operand(view: &View, text: &[u8]) -> Result<json::Value, Error> {
    parse_value(view, text).map_err(|error| match error {
        Error::Text(text) => Error::owned(format!("ERR {text}")),
        error => error,
    })
}

fn parse_narrow(view: &View, text: &[u8], narrow: Option<FloatType>) -> Result<json::Value, Error> {
    let bytes = json::Value::bytes_of(text);
    view.will_hold(bytes).map_err(OpError::from)?;
    json::Value::parse_narrow(text, narrow).map_err(Error::owned)
}

/// The document under a key, if there is one.
fn find(view: &mut View, db: DbIndex, key: &[u8]) -> Result<Option<Doc>, Error> {
    Doc::load(view, db, key).map_err(|error| match error {
        OpError::WrongType => Error::text("Existing key has wrong Redis type"),
        error => error.into(),
    })
}

fn load(ctx: &mut ReadCtx<'_>, key: &[u8]) -> Result<Option<Doc>, Error> {
    find(ctx.view, ctx.db, key)
}

/// The document of a command that changes it.
fn open(ctx: &mut WriteCtx<'_>, key: &[u8]) -> Result<Doc, Error> {
    find(ctx.txn, ctx.db, key)?.ok_or(NO_KEY)
}

/// The places that a path selects of a document.
fn places(ctx: &WriteCtx<'_>, doc: &Doc, path: &Path) -> Result<Vec<Place>, Error> {
    if path.projection.is_some() {
        return Err(READ_ONLY);
    }
    Ok(json::eval::places(&doc.rows(ctx.txn), &doc.root(), path)?)
}

/// The path to a value, with its number among the selected ones.
type Numbered = (usize, Vec<Step>);

/// Called with the number of a path, the value, and how large it may be in line; returns what
/// takes the value's place, or `None`.
type EachChange<'c> =
    &'c mut dyn FnMut(&mut Editor<'_>, usize, &[u8], usize) -> OpResult<Option<Vec<u8>>>;

/// Changes the values at some paths, one after another, and saves the document. Each change adds
/// up to so many bytes. Returns which of the paths were there: an earlier change may have removed
/// them.
fn edit_all(
    ctx: &mut WriteCtx<'_>,
    doc: &mut Doc,
    key: &[u8],
    (paths, bytes_each): (&[&[Step]], usize),
    change: EachChange<'_>,
) -> Result<Vec<bool>, Error> {
    let bytes = paths.len().saturating_mul(bytes_each);
    ctx.txn.will_hold(bytes as u64).map_err(OpError::from)?;
    let done = doc.change(ctx.txn, key, |editor, root| {
        let (mut root, mut is_new) = (root, false);
        let mut done = Vec::with_capacity(paths.len());
        for (at, path) in paths.iter().enumerate() {
            let max = json::in_line_max(path);
            let edited = editor.edit(&root, path, &mut |editor, old| change(editor, at, old, max));
            match edited {
                Ok(Some(new)) => (root, is_new) = (new.into(), true),
                Ok(None) => {}
                Err(error) if json::is_gone(&error) => {
                    done.push(false);
                    continue;
                }
                Err(error) => return Err(error),
            }
            done.push(true);
        }
        Ok((done, is_new.then(|| root.to_vec())))
    })?;
    Ok(done)
}

/// Notes the event of a command.
fn notify(ctx: &mut WriteCtx<'_>, name: &'static str, key: &[u8]) {
    ctx.event(Class::MODULE, name, key);
}

/// The values that a path selects.
fn selected(rows: &dyn Rows, doc: &Doc, path: &Path) -> Result<Vec<Val>, Error> {
    if path.projection.is_some() {
        return Err(READ_ONLY);
    }
    Ok(json::eval::values(rows, &doc.root(), path)?)
}

/// What a path selects or calculates.
enum Found {
    /// The first value of a legacy path, if there is one.
    First(Option<Val>),
    /// All values.
    All(Vec<Val>),
}

impl Found {
    fn into_values(self) -> Vec<Val> {
        match self {
            Found::First(value) => value.into_iter().collect(),
            Found::All(values) => values,
        }
    }
}

/// What a path selects or calculates for a command that replies values; `is_legacy` says whether
/// the first value is enough.
fn found(rows: &dyn Rows, doc: &Doc, path: &Path, is_legacy: bool) -> Result<Found, Error> {
    if let Some(computed) = json::eval::computed(rows, &doc.root(), path)? {
        return Ok(Found::All(computed));
    }
    let values = selected(rows, doc, path)?;
    Ok(match is_legacy {
        true => Found::First(values.into_iter().next()),
        false => Found::All(values),
    })
}

/// Whether a value with this many levels of containers may stand at a path.
fn check_depth(path: &[Step], depth: usize) -> Result<(), Error> {
    match path.len() + depth >= json::MAX_DEPTH {
        true => Err(TOO_DEEP),
        false => Ok(()),
    }
}

/// Places in the order in which elements can be removed or added: what is deeper goes first,
/// and of an array what has a higher index.
fn in_order_of_change(places: &mut [(usize, Vec<Step>)]) {
    places.sort_by(|(_, a), (_, b)| {
        let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        match (a.get(common), b.get(common)) {
            (None, None) => std::cmp::Ordering::Equal,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(_), None) => std::cmp::Ordering::Less,
            (Some(Step::Index(a)), Some(Step::Index(b))) => b.cmp(a),
            (Some(a), Some(b)) => a.cmp(b),
        }
    });
}

/// Leaves out the places inside of others and repeated ones, and puts them into the order of
/// change.
fn outermost(places: Vec<Place>) -> Vec<Vec<Step>> {
    let mut paths: Vec<Vec<Step>> = places.into_iter().map(|place| place.path).collect();
    paths.sort();
    let mut kept: Vec<Vec<Step>> = Vec::with_capacity(paths.len());
    for path in paths {
        if !kept.last().is_some_and(|outer| path.starts_with(outer)) {
            kept.push(path);
        }
    }
    let mut numbered: Vec<(usize, Vec<Step>)> = kept.into_iter().enumerate().collect();
    in_order_of_change(&mut numbered);
    numbered.into_iter().map(|(_, path)| path).collect()
}

/// The places of values of some type, with their numbers among all, in the order of change.
fn of_kind(
    places: Vec<Place>,
    test: impl Fn(Kind) -> bool,
) -> Result<(usize, Vec<Numbered>), Error> {
    let len = places.len();
    let mut wanted = Vec::new();
    for (at, place) in places.into_iter().enumerate() {
        if test(place.value.kind().map_err(OpError::from)?) {
            wanted.push((at, place.path));
        }
    }
    Ok((len, wanted))
}

#[cfg(test)]
mod tests;
