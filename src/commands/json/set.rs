//! Commands that set and remove values.

use super::{
    NEW_AT_ROOT, READ_ONLY, check_depth, edit_all, find, notify, outermost, parse_narrow,
    parse_path, parse_value, path_at, places,
};
use crate::commands::args;
use crate::commands::{CmdResult, Error, WriteCtx};
use crate::encoding::ValueType;
use crate::types::json::ast::Select;
use crate::types::json::narrow::FloatType;
use crate::types::json::{self, Doc, Kind, Path, Pieces, Step, Value};
use crate::types::{OpError, lookup};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    Missing,
    Existing,
    /// Like [`Condition::Always`], and the value is merged.
    Merge,
}

/// `FORMAT STRING` and `FORMAT JSON` say what is the case anyway.
fn check_input_format(format: &[u8]) -> Result<(), Error> {
    match format {
        b"STRING" | b"JSON" => Ok(()),
        _ => Err(Error::text("ERR wrong format")),
    }
}

pub fn set(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (mut condition, mut narrow) = (Condition::Always, None);
    let mut rest = args[4..].iter();
    while let Some(word) = rest.next() {
        let is_free = condition == Condition::Always;
        if args::is(word, "NX") && is_free {
            condition = Condition::Missing;
        } else if args::is(word, "XX") && is_free {
            condition = Condition::Existing;
        } else if args::is(word, "FORMAT") {
            check_input_format(rest.next().ok_or(Error::Arity("json.set".into()))?)?;
        } else if args::is(word, "FPHA") {
            let name = rest.next().ok_or(Error::Arity("json.set".into()))?;
            let found = FloatType::named(name);
            narrow = Some(found.ok_or(Error::text("ERR invalid FPHA type"))?);
        } else {
            return Err(Error::Syntax);
        }
    }
    let key = args[1];
    // The key's type, the value and the path are checked in this order.
    let doc = find(ctx.txn, ctx.db, key)?;
    let value = parse_narrow(ctx.txn, args[3], narrow)?;
    let path = path_into(doc.as_ref(), args[2], condition)?;
    let done = put(ctx, (key, doc), &path, (&value, args[3].len()), condition)?;
    reply_done(ctx, "json.set", key, done);
    Ok(())
}

/// Of the places of a path some or all were set.
#[derive(Clone, Copy, Default)]
struct Done {
    any: bool,
    all: bool,
}

fn reply_done(ctx: &mut WriteCtx<'_>, event: &'static str, key: &[u8], done: Done) {
    if done.any {
        notify(ctx, event, key);
    }
    match done.all {
        true => ctx.reply.ok(),
        false => ctx.reply.null(),
    }
}

/// The path at which something is set. Without a document only the root is one, whatever else
/// the path is.
fn path_into(doc: Option<&Doc>, text: &[u8], condition: Condition) -> Result<Path, Error> {
    match parse_path(text) {
        Err(_) if doc.is_none() => match condition {
            Condition::Existing => Ok(Path::root()),
            Condition::Always | Condition::Missing | Condition::Merge => Err(NEW_AT_ROOT),
        },
        path => path,
    }
}

fn put(
    ctx: &mut WriteCtx<'_>,
    (key, doc): (&[u8], Option<Doc>),
    path: &Path,
    (value, bytes): (&Value, usize),
    condition: Condition,
) -> Result<Done, Error> {
    let done = Done {
        any: true,
        all: true,
    };
    let Some(mut doc) = doc else {
        if condition == Condition::Existing {
            return Ok(Done::default());
        }
        if !path.is_root() {
            return Err(NEW_AT_ROOT);
        }
        json::put(ctx.txn, ctx.db, key, None, value)?;
        return Ok(done);
    };
    if path.is_root() {
        match condition {
            Condition::Missing => return Ok(Done::default()),
            Condition::Merge => {
                let paths: [&[Step]; 1] = [&[]];
                edit_all(
                    ctx,
                    &mut doc,
                    key,
                    (&paths, bytes),
                    &mut |editor, _, old, _| editor.merge(old, value, true),
                )?;
            }
            Condition::Always | Condition::Existing => {
                let old = lookup(ctx.txn, ctx.db, key, ValueType::Json)?;
                json::put(ctx.txn, ctx.db, key, old.as_ref(), value)?;
            }
        }
        return Ok(done);
    }
    let found = match condition {
        Condition::Missing => Vec::new(),
        Condition::Merge => {
            let places = places(ctx, &doc, path)?;
            places.into_iter().map(|place| place.path).collect()
        }
        Condition::Always | Condition::Existing => outermost(places(ctx, &doc, path)?),
    };
    match (found.is_empty(), condition) {
        (false, _) => set_places(ctx, &mut doc, key, (&found, bytes), (value, condition)),
        (true, Condition::Existing) => Ok(Done::default()),
        (true, _) => add(ctx, &mut doc, key, path, value),
    }
}

fn set_places(
    ctx: &mut WriteCtx<'_>,
    doc: &mut Doc,
    key: &[u8],
    (found, bytes): (&[Vec<Step>], usize),
    (value, condition): (&Value, Condition),
) -> Result<Done, Error> {
    let depth = value.depth();
    let fits = |path: &&[Step]| check_depth(path, depth).is_ok();
    let paths: Vec<&[Step]> = found.iter().map(Vec::as_slice).filter(fits).collect();
    if paths.is_empty() {
        return Ok(Done::default());
    }
    let there = edit_all(ctx, doc, key, (&paths, bytes), &mut |editor, at, old, _| {
        let is_root = paths[at].is_empty();
        match condition {
            Condition::Merge => editor.merge(old, value, is_root),
            _ => json::replace(editor, old, value, is_root).map(Some),
        }
    })?;
    let any = there.contains(&true);
    let all = paths.len() == found.len() && !there.contains(&false);
    Ok(Done {
        any,
        all: all || (any && condition == Condition::Merge),
    })
}

/// Whether a path that selects nothing can be that of a new member.
fn check_addable(path: &Path) -> Result<(), Error> {
    if path.projection.is_some() {
        return Err(READ_ONLY);
    }
    match path.segments.last().map(|last| &last.select) {
        _ if !path.is_static() => Err(Error::text("Err wrong static path")),
        Some(Select::Indices(_)) => Err(Error::text("ERR array index out of range")),
        _ => Ok(()),
    }
}

/// Adds a member to an object.
fn add(
    ctx: &mut WriteCtx<'_>,
    doc: &mut Doc,
    key: &[u8],
    path: &Path,
    value: &Value,
) -> Result<Done, Error> {
    let (name, parents) = match path.segments.split_last() {
        Some((last, parents)) if path.is_static() && path.projection.is_none() => {
            match &last.select {
                Select::Keys(keys) => (&keys[0], parents),
                _ if !places(ctx, doc, path)?.is_empty() => return Ok(Done::default()),
                _ => return check_addable(path).map(|()| Done::default()),
            }
        }
        _ => return check_addable(path).map(|()| Done::default()),
    };
    let parent = {
        let rows = doc.rows(ctx.txn);
        let found = json::eval::places_of(&rows, &doc.root(), parents)?;
        let Some(parent) = found.into_iter().next() else {
            return Ok(Done::default());
        };
        let is_object = parent.value.kind().map_err(OpError::from)? == Kind::Object;
        if !is_object || parent.value.member(&rows, name)?.is_some() {
            return Ok(Done::default());
        }
        parent.path
    };
    if check_depth(&parent, value.depth() + 1).is_err() {
        return Ok(Done::default());
    }
    edit_all(
        ctx,
        doc,
        key,
        (&[&parent], 0),
        &mut |editor, _, object, max| {
            let value = editor.put(value)?;
            editor.set_member(object, name, &value, max)
        },
    )?;
    Ok(Done {
        any: true,
        all: true,
    })
}

pub fn merge(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    match args[4..] {
        [] => {}
        [word, format] if args::is(word, "FORMAT") => check_input_format(format)?,
        _ => return Err(Error::Syntax),
    }
    let key = args[1];
    let doc = find(ctx.txn, ctx.db, key)?;
    let value = parse_value(ctx.txn, args[3])?;
    let path = path_into(doc.as_ref(), args[2], Condition::Merge)?;
    let value = (&value, args[3].len());
    let done = put(ctx, (key, doc), &path, value, Condition::Merge)?;
    reply_done(ctx, "json.merge", key, done);
    Ok(())
}

pub fn mset(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (triplets, []) = args[1..].as_chunks::<3>() else {
        return Err(Error::Arity("json.mset".into()));
    };
    let mut parsed = Vec::with_capacity(triplets.len());
    for [key, path, value] in triplets {
        let doc = find(ctx.txn, ctx.db, key)?;
        let path = path_into(doc.as_ref(), path, Condition::Always)?;
        if !path.is_root() {
            let doc = doc.ok_or(NEW_AT_ROOT)?;
            if places(ctx, &doc, &path)?.is_empty() {
                check_addable(&path)?;
            }
        }
        parsed.push((*key, path, parse_value(ctx.txn, value)?));
    }
    let mut all = true;
    for ((key, path, value), [_, _, text]) in parsed.iter().zip(triplets) {
        let doc = find(ctx.txn, ctx.db, key)?;
        let value = (value, text.len());
        let done = match put(ctx, (key, doc), path, value, Condition::Always) {
            // An earlier triplet has removed the place.
            Err(Error::Text(_)) => Done::default(),
            done => done?,
        };
        if done.any {
            notify(ctx, "json.mset", key);
        }
        all &= done.all;
    }
    match all {
        true => ctx.reply.ok(),
        false => ctx.reply.null(),
    }
    Ok(())
}

pub(super) fn del(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let Some(mut doc) = find(ctx.txn, ctx.db, key)? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let path = path_at(args, 2)?;
    let mut removed = 1;
    let mut is_empty = path.is_root();
    if !is_empty {
        let found = outermost(places(ctx, &doc, &path)?);
        removed = found.len() as i64;
        is_empty = found.iter().any(Vec::is_empty);
        if !is_empty && removed > 0 {
            remove(ctx, &mut doc, key, &found)?;
            is_empty = doc.root().len(&doc.rows(ctx.txn))? == 0;
        }
    }
    if removed > 0 {
        notify(ctx, "json.del", key);
    }
    if is_empty {
        ctx.txn.delete_key(ctx.db, key)?;
    }
    ctx.reply.int(removed);
    Ok(())
}

fn remove(
    ctx: &mut WriteCtx<'_>,
    doc: &mut Doc,
    key: &[u8],
    found: &[Vec<Step>],
) -> Result<(), Error> {
    let split: Vec<(&Step, &[Step])> = found.iter().filter_map(|path| path.split_last()).collect();
    let parents: Vec<&[Step]> = split.iter().map(|(_, parent)| *parent).collect();
    edit_all(
        ctx,
        doc,
        key,
        (&parents, 0),
        &mut |editor, at, container, max| match split[at].0 {
            Step::Key(name) => editor.remove_member(container, name, max),
            Step::Index(index) => editor.splice(container, *index, 1, &Pieces::default(), max),
        },
    )?;
    Ok(())
}
