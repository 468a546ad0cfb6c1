//! Commands that change strings, booleans and containers where they are.

use super::{
    Error, WriteCtx, edit_all, expected, no_path_or, notify, of_kind, open, parse_operand,
    parse_path, path_at, places,
};
use crate::commands::CmdResult;
use crate::encoding::json::{Item, item, put_item};
use crate::types::OpError;
use crate::types::json::{Kind, Path, Rows, Step, Val, Value};

/// Replies one number for each value; of a legacy path the last one alone.
pub(super) fn reply_ints(
    ctx: &mut WriteCtx<'_>,
    path: &Path,
    results: &[Option<i64>],
    otherwise: &str,
) -> CmdResult {
    if path.is_legacy {
        let last = results.iter().flatten().last();
        ctx.reply.int(*last.ok_or_else(|| no_path_or(otherwise))?);
        return Ok(());
    }
    ctx.reply.array(results.len());
    for result in results {
        match result {
            Some(result) => ctx.reply.int(*result),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn toggle(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let mut doc = open(ctx, key)?;
    let path = parse_path(args[2])?;
    let (len, wanted) = of_kind(places(ctx, &doc, &path)?, |kind| kind == Kind::Bool)?;
    let mut results = vec![None; len];
    if !wanted.is_empty() {
        let paths: Vec<&[Step]> = wanted.iter().map(|(_, path)| path.as_slice()).collect();
        edit_all(ctx, &mut doc, key, (&paths, 0), &mut |_, at, old, _| {
            let now = item(old)? == Item::Bool(false);
            results[wanted[at].0] = Some(i64::from(now));
            let mut out = Vec::new();
            put_item(Item::Bool(now), &mut out);
            Ok(Some(out))
        })?;
        notify(ctx, "json.toggle", key);
    }
    if !path.is_legacy {
        return reply_ints(ctx, &path, &results, "");
    }
    match results.iter().flatten().last() {
        Some(1) => ctx.reply.bulk(b"true"),
        Some(_) => ctx.reply.bulk(b"false"),
        None => return Err(no_path_or("not a bool")),
    }
    Ok(())
}

pub(super) fn strappend(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let mut doc = open(ctx, key)?;
    let (path, text) = match args {
        [_, _, text] => (Path::root(), *text),
        _ => (parse_path(args[2])?, args[3]),
    };
    let (len, wanted) = of_kind(places(ctx, &doc, &path)?, |kind| kind == Kind::Text)?;
    let mut results = vec![None; len];
    if !wanted.is_empty() {
        let Value::Text(more) = parse_operand(ctx.txn, text)? else {
            return Err(expected("string"));
        };
        let paths: Vec<&[Step]> = wanted.iter().map(|(_, path)| path.as_slice()).collect();
        edit_all(
            ctx,
            &mut doc,
            key,
            (&paths, text.len()),
            &mut |editor, at, old, _| {
                let old = Val::whole(old.into());
                editor.hold(old.len(editor)?)?;
                let mut text = old.text(editor)?.unwrap_or_default();
                text.extend_from_slice(more.as_bytes());
                results[wanted[at].0] = Some(text.len() as i64);
                editor.free(old.bytes())?;
                let mut out = Vec::new();
                editor.put_text(&text, &mut out);
                Ok(Some(out))
            },
        )?;
        notify(ctx, "json.strappend", key);
    }
    reply_ints(ctx, &path, &results, "not a string")
}

pub fn clear(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.len() > 3 {
        return Err(Error::Arity("json.clear".into()));
    }
    let key = args[1];
    let mut doc = open(ctx, key)?;
    let path = path_at(args, 2)?;
    let mut wanted = Vec::new();
    let found = places(ctx, &doc, &path)?;
    {
        let rows = doc.rows(ctx.txn);
        for place in found {
            let kind = place.value.kind().map_err(OpError::from)?;
            let is_full = match kind {
                Kind::Array | Kind::Object => place.value.len(&rows)? > 0,
                Kind::Int | Kind::Large | Kind::Float => place.value.float()? != Some(0.0),
                Kind::Null | Kind::Bool | Kind::Text => false,
            };
            if is_full {
                wanted.push(place.path);
            }
        }
    }
    let mut cleared = 0;
    if !wanted.is_empty() {
        let paths: Vec<&[Step]> = wanted.iter().map(Vec::as_slice).collect();
        let there = edit_all(ctx, &mut doc, key, (&paths, 0), &mut |editor, _, old, _| {
            let empty = match Val::whole(old.into()).kind()? {
                Kind::Array => Item::Array(b""),
                Kind::Object => Item::Object(b""),
                _ => Item::Int(0),
            };
            editor.free(old)?;
            let mut out = Vec::new();
            put_item(empty, &mut out);
            Ok(Some(out))
        })?;
        cleared = there.iter().filter(|there| **there).count() as i64;
        notify(ctx, "json.clear", key);
    }
    ctx.reply.int(cleared);
    Ok(())
}
