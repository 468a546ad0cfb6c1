//! Commands for arrays.

use super::change::reply_ints;
use super::format::{ReplyForm, expand};
use super::{
    BAD_FORMAT, NO_FORMAT_IN_RESP2, NO_PATH, Numbered, TOO_DEEP, check_depth, edit_all, expected,
    in_order_of_change, load, no_path_or, notify, of_kind, open, parse_operand, parse_path,
    parse_value, places, selected,
};
use crate::base::num;
use crate::commands::args;
use crate::commands::{CmdResult, Error, ReadCtx, WriteCtx};
use crate::resp::Reply;
use crate::storage::View;
use crate::types::OpError;
use crate::types::json::text::{self, Format};
use crate::types::json::{Doc, Kind, Path, Pieces, Rows, Step, Val, Value};
use std::ops::ControlFlow;

fn index(arg: &[u8]) -> Result<i64, Error> {
    num::parse_i64(arg).ok_or(Error::text("Couldn't parse as integer"))
}

fn parse_values(view: &View, args: &[&[u8]]) -> Result<Vec<Value>, Error> {
    args.iter().map(|arg| parse_value(view, arg)).collect()
}

fn bytes(args: &[&[u8]]) -> usize {
    args.iter().map(|arg| arg.len()).sum()
}

/// The arrays that a path selects, in the order of change, and the number of all selected values.
fn arrays(ctx: &WriteCtx<'_>, doc: &Doc, path: &Path) -> Result<(usize, Vec<Numbered>), Error> {
    let places = places(ctx, doc, path)?;
    let (len, mut wanted) = of_kind(places, |kind| kind == Kind::Array)?;
    in_order_of_change(&mut wanted);
    Ok((len, wanted))
}

fn check_depths(wanted: &[Numbered], values: &[Value]) -> Result<(), Error> {
    let depth = values.iter().map(Value::depth).max().unwrap_or(0);
    let fits = |(_, path): &Numbered| check_depth(path, depth + 1).is_ok();
    match wanted.iter().all(fits) {
        true => Ok(()),
        false => Err(TOO_DEEP),
    }
}

/// Replaces a part of each array. `part` says which for an array of so many elements: where it
/// begins and ends, or an error; `values` come in its place. Returns the new lengths.
fn splice_all(
    ctx: &mut WriteCtx<'_>,
    doc: &mut Doc,
    key: &[u8],
    (len, wanted): (usize, &[Numbered]),
    (values, bytes): (&[Value], usize),
    part: &dyn Fn(i64) -> Result<(i64, i64), Error>,
) -> Result<Vec<Option<i64>>, Error> {
    let mut results = vec![None; len];
    let paths: Vec<&[Step]> = wanted.iter().map(|(_, path)| path.as_slice()).collect();
    let mut failed = None;
    edit_all(
        ctx,
        doc,
        key,
        (&paths, bytes),
        &mut |editor, at, array, max| {
            let len = Val::whole(array.into()).len(editor)? as i64;
            let (from, to) = match part(len) {
                Ok(part) => part,
                Err(error) => {
                    failed = Some(error);
                    return Ok(None);
                }
            };
            let added = editor.put_all(values)?;
            results[wanted[at].0] = Some(len - (to - from) + added.len() as i64);
            editor.splice(array, from as u64, (to - from) as u64, &added, max)
        },
    )?;
    failed.map_or(Ok(results), Err)
}

pub fn append(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.len() < 4 {
        return Err(Error::Arity("json.arrappend".into()));
    }
    let (key, values) = (args[1], parse_values(ctx.txn, &args[3..])?);
    let mut doc = open(ctx, key)?;
    let path = parse_path(args[2])?;
    let (len, wanted) = arrays(ctx, &doc, &path)?;
    check_depths(&wanted, &values)?;
    let mut results = vec![None; len];
    if !wanted.is_empty() {
        let at_end = |len| Ok((len, len));
        results = splice_all(
            ctx,
            &mut doc,
            key,
            (len, &wanted),
            (&values, bytes(&args[3..])),
            &at_end,
        )?;
        notify(ctx, "json.arrappend", key);
    }
    reply_ints(ctx, &path, &results, "not an array")
}

pub fn insert(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (key, index) = (args[1], index(args[3])?);
    let values = parse_values(ctx.txn, &args[4..])?;
    let mut doc = open(ctx, key)?;
    let path = parse_path(args[2])?;
    let (len, wanted) = arrays(ctx, &doc, &path)?;
    let mut results = vec![None; len];
    if !wanted.is_empty() {
        check_depths(&wanted, &values)?;
        let before = |len: i64| {
            let at = if index < 0 {
                len.saturating_add(index)
            } else {
                index
            };
            match (0..=len).contains(&at) {
                true => Ok((at, at)),
                false => Err(Error::text("ERR index out of bounds")),
            }
        };
        results = splice_all(
            ctx,
            &mut doc,
            key,
            (len, &wanted),
            (&values, bytes(&args[4..])),
            &before,
        )?;
        notify(ctx, "json.arrinsert", key);
    }
    reply_ints(ctx, &path, &results, "not an array")
}

pub fn trim(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (key, start, stop) = (args[1], index(args[3])?, index(args[4])?);
    let mut doc = open(ctx, key)?;
    let path = parse_path(args[2])?;
    let (len, wanted) = arrays(ctx, &doc, &path)?;
    let mut results = vec![None; len];
    if !wanted.is_empty() {
        let kept = |len: i64| {
            let inside = |index: i64| match index {
                ..0 => len.saturating_add(index).max(0),
                _ => index.min(len - 1).max(0),
            };
            let from = if start < len { inside(start) } else { len };
            let to = inside(stop) + 1;
            if len == 0 || from >= to {
                (0, 0)
            } else {
                (from as u64, to as u64)
            }
        };
        let paths: Vec<&[Step]> = wanted.iter().map(|(_, path)| path.as_slice()).collect();
        edit_all(
            ctx,
            &mut doc,
            key,
            (&paths, 0),
            &mut |editor, at, array, max| {
                let len = Val::whole(array.into()).len(editor)?;
                let (from, to) = kept(len as i64);
                results[wanted[at].0] = Some((to - from) as i64);
                let nothing = Pieces::default();
                let cut = editor.splice(array, to, len - to, &nothing, max)?;
                let rest = cut.as_deref().unwrap_or(array);
                let done = editor.splice(rest, 0, from, &nothing, max)?;
                Ok(done.or(cut))
            },
        )?;
        notify(ctx, "json.arrtrim", key);
    }
    reply_ints(ctx, &path, &results, "not an array")
}

fn lens(ctx: &WriteCtx<'_>, doc: &Doc, wanted: &[Numbered]) -> Result<Vec<Option<i64>>, Error> {
    let rows = doc.rows(ctx.txn);
    let len_at = |path: &[Step]| -> Result<Option<i64>, Error> {
        let mut value = doc.root();
        for step in path {
            let inner = match step {
                Step::Key(key) => value.member(&rows, key)?,
                Step::Index(index) => value.element(&rows, *index)?,
            };
            let Some(inner) = inner else { return Ok(None) };
            value = inner;
        }
        Ok(Some(value.len(&rows)? as i64))
    };
    wanted.iter().map(|(_, path)| len_at(path)).collect()
}

struct PopOptions<'a> {
    form: ReplyForm,
    path: &'a [u8],
    index: i64,
}

fn pop_options<'a>(args: &'a [&'a [u8]], resp3: bool) -> Result<PopOptions<'a>, Error> {
    let (mut form, mut rest) = (ReplyForm::Strings, &args[2..]);
    if let [word, name, after @ ..] = rest
        && args::is(word, "FORMAT")
    {
        form = ReplyForm::named(name)?;
        if form == ReplyForm::String {
            return Err(BAD_FORMAT);
        }
        if !resp3 {
            return Err(NO_FORMAT_IN_RESP2);
        }
        rest = after;
    }
    let (path, index) = match rest {
        [] => (&b"."[..], i64::MAX),
        [path] => (*path, -1),
        [path, index, ..] => (*path, num::parse_i64(index).unwrap_or(-1)),
    };
    if Path::is_legacy_text(path) && form != ReplyForm::Strings {
        return Err(Error::text(
            "Legacy paths are supported only with FORMAT STRINGS",
        ));
    }
    Ok(PopOptions { form, path, index })
}

fn popped(rows: &dyn Rows, value: &Val, form: ReplyForm, resp3: bool) -> Result<Reply, OpError> {
    let mut reply = Reply::new(resp3);
    match form.is_expanded() && resp3 {
        true => expand(&mut reply, rows, value, form, Format::default())?,
        false => reply.bulk(&text::of(rows, value)?),
    }
    Ok(reply)
}

pub fn pop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let PopOptions { form, path, index } = pop_options(args, ctx.reply.resp3)?;
    let mut doc = open(ctx, key)?;
    let path = parse_path(path)?;
    let (len, wanted) = arrays(ctx, &doc, &path)?;
    if path.is_legacy && wanted.is_empty() {
        return Err(no_path_or("not an array"));
    }
    let mut results: Vec<Option<Reply>> = Vec::new();
    results.resize_with(len, || None);
    let before = lens(ctx, &doc, &wanted)?;
    if before.iter().any(|len| len.is_some_and(|len| len > 0)) {
        let resp3 = ctx.reply.resp3;
        let paths: Vec<&[Step]> = wanted.iter().map(|(_, path)| path.as_slice()).collect();
        edit_all(
            ctx,
            &mut doc,
            key,
            (&paths, 0),
            &mut |editor, at, array, max| {
                let value = Val::whole(array.into());
                let len = value.len(editor)? as i64;
                if len == 0 {
                    return Ok(None);
                }
                let index = match index {
                    ..0 => len.saturating_add(index).max(0),
                    _ => index.min(len - 1),
                } as u64;
                if let Some(element) = value.element(editor, index)? {
                    results[wanted[at].0] = Some(popped(editor, &element, form, resp3)?);
                }
                editor.splice(array, index, 1, &Pieces::default(), max)
            },
        )?;
        notify(ctx, "json.arrpop", key);
    }
    if path.is_legacy {
        let last = wanted.last().map(|(at, _)| *at);
        match last.and_then(|at| results[at].take()) {
            Some(reply) => ctx.reply.append(reply),
            None => ctx.reply.null(),
        }
        return Ok(());
    }
    ctx.reply.array(len);
    for result in results {
        match result {
            Some(reply) => ctx.reply.append(reply),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// The first index from `start` to before `end` (0: the end of the array) with an equal element;
/// -1 if there is none.
fn find(
    rows: &dyn Rows,
    array: &Val,
    wanted: &Val,
    (start, end): (i64, i64),
) -> Result<i64, OpError> {
    let len = array.len(rows)? as i64;
    if len == 0 {
        return Ok(-1);
    }
    let start = match start {
        ..0 => len.saturating_add(start).max(0),
        _ => start.min(len - 1),
    };
    let end = match end {
        0 => len,
        ..0 => len.saturating_add(end).max(0),
        _ => end.min(len),
    };
    let mut found = -1;
    array
        .each_element(rows, &mut |index, element| {
            let index = index as i64;
            if index >= end {
                return Ok(ControlFlow::Break(()));
            }
            if index >= start && element.equals(rows, wanted, rows)? {
                found = index;
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    Ok(found)
}

pub(super) fn find_index(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let start = args.get(4).map_or(Ok(0), |arg| index(arg))?;
    let end = args.get(5).map_or(Ok(0), |arg| index(arg))?;
    if args.len() > 6 {
        return Err(Error::Arity("json.arrindex".into()));
    }
    let doc = load(ctx, args[1])?;
    let wanted = Val::scalar(&parse_operand(ctx.view, args[3])?);
    let (doc, path) = (doc.ok_or(NO_PATH)?, parse_path(args[2])?);
    let rows = doc.rows(ctx.view);
    let values = selected(&rows, &doc, &path)?;
    let is_array =
        |value: &Val| Ok::<_, Error>(value.kind().map_err(OpError::from)? == Kind::Array);
    if path.is_legacy {
        let value = values.first().ok_or(NO_PATH)?;
        if !is_array(value)? {
            return Err(expected("array"));
        }
        ctx.reply.int(find(&rows, value, &wanted, (start, end))?);
        return Ok(());
    }
    ctx.reply.array(values.len());
    for value in &values {
        match is_array(value)? {
            true => ctx.reply.int(find(&rows, value, &wanted, (start, end))?),
            false => ctx.reply.null(),
        }
    }
    Ok(())
}
