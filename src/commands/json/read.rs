//! Commands that read documents.

use super::format::{ReplyForm, expand, resp};
use super::{
    BAD_FORMAT, Found, NO_FORMAT_IN_RESP2, NO_KEY, NO_PATH, expected, found, is_legacy_at, load,
    no_path_or, parse_path, path_at, selected,
};
use crate::commands::args;
use crate::commands::{CmdResult, Error, ReadCtx};
use crate::types::OpError;
use crate::types::json::text::{Format, Writer};
use crate::types::json::{Doc, Kind, Path, Rows, Val};
use std::ops::ControlFlow;

struct GetOptions<'a> {
    form: ReplyForm,
    format: Format<'a>,
    paths: Vec<&'a [u8]>,
}

/// Longer arguments are paths.
const LONGEST_WORD: usize = 8;

fn get_options<'a>(args: &'a [&'a [u8]], resp3: bool) -> Result<GetOptions<'a>, Error> {
    let mut options = GetOptions {
        form: ReplyForm::String,
        format: Format::default(),
        paths: Vec::with_capacity(1),
    };
    let mut rest = args.iter().skip(2);
    while let Some(arg) = rest.next() {
        let is = |word| arg.len() <= LONGEST_WORD && args::is(arg, word);
        let mut value = || rest.next().copied().ok_or(Error::Arity("json.get".into()));
        if is("FORMAT") {
            if !resp3 && options.paths.is_empty() {
                return Err(NO_FORMAT_IN_RESP2);
            }
            let form = value()?;
            if args::is(form, "STRINGS") {
                return Err(BAD_FORMAT);
            }
            options.form = ReplyForm::named(form)?;
        } else if is("INDENT") {
            options.format.indent = value()?;
        } else if is("NEWLINE") {
            options.format.newline = value()?;
        } else if is("SPACE") {
            options.format.space = value()?;
        } else if !is("NOESCAPE") {
            options.paths.push(arg);
        }
    }
    if options.paths.is_empty() {
        options.paths.push(b".");
    }
    Ok(options)
}

pub fn get(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let options = get_options(args, ctx.reply.resp3)?;
    let Some(doc) = load(ctx, args[1])? else {
        ctx.reply.null();
        return Ok(());
    };
    let rows = doc.rows(ctx.view);
    if options.form.is_expanded() && ctx.reply.resp3 {
        let paths: Result<Vec<Path>, Error> =
            options.paths.iter().map(|path| parse_path(path)).collect();
        let paths = paths?;
        ctx.reply.array(paths.len());
        for path in &paths {
            let values = found(&rows, &doc, path, false)?.into_values();
            ctx.reply.array(values.len());
            for value in &values {
                expand(ctx.reply, &rows, value, options.form, options.format)?;
            }
        }
        return Ok(());
    }
    let mut out = Vec::new();
    match &options.paths[..] {
        [path] => {
            let path = parse_path(path)?;
            write_selected(&rows, &doc, &path, path.is_legacy, options.format, &mut out)?;
        }
        paths => {
            let all_legacy = paths.iter().all(|path| Path::is_legacy_text(path));
            let mut writer = Writer::new(&rows, options.format, &mut out);
            writer.begin(b'{');
            let mut is_empty = true;
            for (at, text) in paths.iter().enumerate() {
                // Of several paths those that are none are left out.
                let Ok(path) = parse_path(text) else { continue };
                if paths[..at].contains(text) {
                    continue;
                }
                let found = found(&rows, &doc, &path, all_legacy)?;
                writer.next(is_empty);
                is_empty = false;
                writer.key(text);
                match found {
                    Found::First(value) => writer.selected(&value.ok_or(NO_PATH)?)?,
                    Found::All(values) => writer.array(values.iter())?,
                }
            }
            writer.end(b'}', is_empty);
        }
    }
    ctx.reply.bulk(&out);
    Ok(())
}

fn write_selected(
    rows: &dyn Rows,
    doc: &Doc,
    path: &Path,
    is_legacy: bool,
    format: Format<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let found = found(rows, doc, path, is_legacy)?;
    let mut writer = Writer::new(rows, format, out);
    match found {
        Found::First(value) => writer.selected(&value.ok_or(NO_PATH)?)?,
        Found::All(values) => writer.array(values.iter())?,
    }
    Ok(())
}

pub fn mget(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (keys, path) = match args {
        [_, keys @ .., path] => (keys, parse_path(path)),
        _ => return Err(Error::Arity("json.mget".into())),
    };
    ctx.reply.array(keys.len());
    for key in keys {
        let doc = match Doc::load(ctx.view, ctx.db, key) {
            Ok(doc) => doc,
            Err(OpError::WrongType) => None,
            Err(error) => return Err(error.into()),
        };
        let (Some(doc), Ok(path)) = (doc, &path) else {
            ctx.reply.null();
            continue;
        };
        let rows = doc.rows(ctx.view);
        let mut out = Vec::new();
        match write_selected(
            &rows,
            &doc,
            path,
            path.is_legacy,
            Format::default(),
            &mut out,
        ) {
            Err(Error::Op(OpError::NoSuchPath)) => {
                ctx.reply.null();
                continue;
            }
            written => written?,
        }
        ctx.reply.bulk(&out);
    }
    Ok(())
}

pub(super) fn type_of(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (doc, is_legacy) = (load(ctx, args[1])?, is_legacy_at(args, 2));
    // A legacy path that is none selects nothing.
    let values = match (doc, path_at(args, 2)) {
        (None, _) => None,
        (Some(_), Err(_)) if is_legacy => None,
        (Some(doc), path) => Some(selected(&doc.rows(ctx.view), &doc, &path?)?),
    };
    if ctx.reply.resp3 {
        ctx.reply.array(1);
    }
    let Some(values) = values else {
        ctx.reply.null();
        return Ok(());
    };
    if !is_legacy {
        ctx.reply.array(values.len());
        for value in &values {
            ctx.reply.bulk(kind_of(value)?.name().as_bytes());
        }
        return Ok(());
    }
    match values.first() {
        Some(value) => ctx.reply.bulk(kind_of(value)?.name().as_bytes()),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn kind_of(value: &Val) -> Result<Kind, Error> {
    Ok(value.kind().map_err(OpError::from)?)
}

/// Replies a number for each value of some type, and null for the others.
fn reply_lens(ctx: &mut ReadCtx<'_>, doc: &Doc, path: &Path, kind: Kind) -> CmdResult {
    let rows = doc.rows(ctx.view);
    let values = selected(&rows, doc, path)?;
    ctx.reply.array(values.len());
    for value in &values {
        match kind_of(value)? == kind {
            true => ctx.reply.int(value.len(&rows)? as i64),
            false => ctx.reply.null(),
        }
    }
    Ok(())
}

/// The first value of a legacy path.
fn first(ctx: &mut ReadCtx<'_>, doc: &Doc, path: &Path) -> Result<Option<Val>, Error> {
    let values = selected(&doc.rows(ctx.view), doc, path)?;
    Ok(values.into_iter().next())
}

pub(super) fn strlen(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (doc, is_legacy) = (load(ctx, args[1])?, is_legacy_at(args, 2));
    match doc {
        Some(doc) if !is_legacy => reply_lens(ctx, &doc, &path_at(args, 2)?, Kind::Text),
        Some(doc) => {
            let value = first(ctx, &doc, &path_at(args, 2)?)?.ok_or(NO_PATH)?;
            if kind_of(&value)? != Kind::Text {
                return Err(expected("string"));
            }
            ctx.reply.int(value.len(&doc.rows(ctx.view))? as i64);
            Ok(())
        }
        None if is_legacy => {
            ctx.reply.null();
            Ok(())
        }
        None => Err(NO_KEY),
    }
}

pub(super) fn arrlen(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (doc, is_legacy) = (load(ctx, args[1])?, is_legacy_at(args, 2));
    match doc {
        Some(doc) if !is_legacy => reply_lens(ctx, &doc, &path_at(args, 2)?, Kind::Array),
        Some(doc) => {
            let value = first(ctx, &doc, &path_at(args, 2)?)?.ok_or(NO_PATH)?;
            if kind_of(&value)? != Kind::Array {
                return Err(no_path_or("not an array"));
            }
            ctx.reply.int(value.len(&doc.rows(ctx.view))? as i64);
            Ok(())
        }
        None if is_legacy => {
            ctx.reply.null();
            Ok(())
        }
        None => Err(NO_KEY),
    }
}

pub(super) fn objlen(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (doc, is_legacy) = (load(ctx, args[1])?, is_legacy_at(args, 2));
    match doc {
        Some(doc) if !is_legacy => reply_lens(ctx, &doc, &path_at(args, 2)?, Kind::Object),
        Some(doc) => {
            // A path that is none selects nothing.
            let path = path_at(args, 2);
            let value = path.map_or(Ok(None), |path| first(ctx, &doc, &path))?;
            match value {
                Some(value) if kind_of(&value)? == Kind::Object => {
                    ctx.reply.int(value.len(&doc.rows(ctx.view))? as i64);
                }
                Some(_) => return Err(expected("object")),
                None => ctx.reply.null(),
            }
            Ok(())
        }
        None if is_legacy => {
            ctx.reply.null();
            Ok(())
        }
        None => Err(no_path_or("not an object")),
    }
}

fn reply_keys(ctx: &mut ReadCtx<'_>, doc: &Doc, value: &Val) -> CmdResult {
    let rows = doc.rows(ctx.view);
    ctx.reply.array(value.len(&rows)? as usize);
    value
        .each_member(&rows, &mut |key, _| {
            ctx.reply.bulk(key);
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    Ok(())
}

pub(super) fn objkeys(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some(doc) = load(ctx, args[1])? else {
        if !is_legacy_at(args, 2) {
            return Err(NO_KEY);
        }
        ctx.reply.null();
        return Ok(());
    };
    let is_legacy = is_legacy_at(args, 2);
    let values = match path_at(args, 2) {
        // A legacy path that is none selects nothing.
        Err(_) if is_legacy => Vec::new(),
        path => selected(&doc.rows(ctx.view), &doc, &path?)?,
    };
    if is_legacy {
        return match values.first() {
            Some(value) if kind_of(value)? == Kind::Object => reply_keys(ctx, &doc, value),
            Some(_) => Err(no_path_or("not an object")),
            None => {
                ctx.reply.null();
                Ok(())
            }
        };
    }
    ctx.reply.array(values.len());
    for value in &values {
        match kind_of(value)? {
            Kind::Object => reply_keys(ctx, &doc, value)?,
            _ => ctx.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn reply_resp(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some(doc) = load(ctx, args[1])? else {
        ctx.reply.null();
        return Ok(());
    };
    let path = path_at(args, 2)?;
    let rows = doc.rows(ctx.view);
    let values = match found(&rows, &doc, &path, path.is_legacy)? {
        Found::First(value) => return Ok(resp(ctx.reply, &rows, &value.ok_or(NO_PATH)?)?),
        Found::All(values) => values,
    };
    ctx.reply.array(values.len());
    for value in &values {
        resp(ctx.reply, &rows, value)?;
    }
    Ok(())
}

/// Bytes of a value: its form in line, and the rows that hold the rest of it.
fn memory_of(rows: &dyn Rows, value: &Val) -> Result<i64, Error> {
    let mut bytes = value.bytes().len() as i64;
    let mut add = |more: Result<i64, Error>| more.map(|more| bytes += more);
    match kind_of(value)? {
        Kind::Array => {
            let mut failed = Ok(());
            value
                .each_element(rows, &mut |_, element| {
                    failed = add(memory_of(rows, &element));
                    Ok(match failed {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    })
                })
                .map(drop)?;
            failed?;
        }
        Kind::Object => {
            let mut failed = Ok(());
            value
                .each_member(rows, &mut |key, member| {
                    let more = memory_of(rows, &member);
                    failed = add(more.map(|more| more + key.len() as i64));
                    Ok(match failed {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    })
                })
                .map(drop)?;
            failed?;
        }
        Kind::Text => bytes = bytes.max(value.len(rows)? as i64),
        Kind::Null | Kind::Bool | Kind::Int | Kind::Large | Kind::Float => {}
    }
    Ok(bytes)
}

/// Values inside of a value and itself, as RedisJSON 1 counted them.
fn fields_of(rows: &dyn Rows, value: &Val) -> Result<i64, OpError> {
    let mut count = 1;
    value
        .each_element(rows, &mut |_, element| {
            count += fields_of(rows, &element)?;
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    value
        .each_member(rows, &mut |_, member| {
            count += fields_of(rows, &member)?;
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    Ok(count)
}

pub fn debug(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let word = args[1];
    if args::is(word, "HELP") {
        ctx.reply.array(2);
        ctx.reply
            .bulk(b"MEMORY <key> [path] - reports memory usage");
        ctx.reply.bulk(b"HELP                - this message");
        return Ok(());
    }
    let (memory, fields) = (args::is(word, "MEMORY"), args::is(word, "FIELDS"));
    if !memory && !fields {
        return Err(Error::text(
            "ERR unknown subcommand - try `JSON.DEBUG HELP`",
        ));
    }
    let key = args.get(2).ok_or(Error::Arity("json.debug".into()))?;
    let Some(doc) = load(ctx, key)? else {
        match is_legacy_at(args, 3) {
            true => ctx.reply.int(0),
            false => ctx.reply.array(0),
        }
        return Ok(());
    };
    let path = path_at(args, 3)?;
    let rows = doc.rows(ctx.view);
    let measure = |value: &Val| match memory {
        true => memory_of(&rows, value),
        false => Ok(fields_of(&rows, value)?),
    };
    let values = selected(&rows, &doc, &path)?;
    if path.is_legacy {
        ctx.reply.int(measure(values.first().ok_or(NO_PATH)?)?);
        return Ok(());
    }
    ctx.reply.array(values.len());
    for value in &values {
        ctx.reply.int(measure(value)?);
    }
    Ok(())
}
