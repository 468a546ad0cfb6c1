//! Commands that calculate.

use super::{
    Error, WriteCtx, edit_all, no_path_or, notify, of_kind, open, parse_operand, parse_path, places,
};
use crate::commands::CmdResult;
use crate::encoding::json::{Item, item};
use crate::storage::View;
use crate::types::json::text::put_float;
use crate::types::json::{self, Kind, Step, Value, replace};

#[derive(Clone, Copy)]
enum Operation {
    Add,
    Multiply,
    Power,
}

pub(super) fn incrby(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    calculate(ctx, args, Operation::Add, "json.numincrby")
}

pub(super) fn multby(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    calculate(ctx, args, Operation::Multiply, "json.nummultby")
}

pub(super) fn powby(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    calculate(ctx, args, Operation::Power, "json.numpowby")
}

fn float_of(item: Item<'_>) -> f64 {
    match item {
        Item::Int(number) => number as f64,
        Item::Large(number) => number as f64,
        Item::Float(number) => number,
        _ => f64::NAN,
    }
}

/// Integers stay integers as long as both are.
fn result(old: Item<'_>, operation: Operation, by: &Value) -> Result<Value, Error> {
    if let (Item::Int(old), Value::Int(by)) = (old, by) {
        let (old, by) = (i128::from(old), i128::from(*by));
        let exact = match operation {
            Operation::Add => old.checked_add(by),
            Operation::Multiply => old.checked_mul(by),
            Operation::Power => u32::try_from(by).ok().and_then(|by| old.checked_pow(by)),
        };
        let exact = exact.and_then(|exact| i64::try_from(exact).ok());
        return exact
            .map(Value::Int)
            .ok_or(Error::text("ERR numeric overflow"));
    }
    let old = float_of(old);
    let by = match by {
        Value::Int(by) => *by as f64,
        Value::Large(by) => *by as f64,
        Value::Float(by) => *by,
        _ => f64::NAN,
    };
    let float = match operation {
        Operation::Add => old + by,
        Operation::Multiply => old * by,
        Operation::Power => old.powf(by),
    };
    match float.is_finite() {
        true => Ok(Value::Float(float)),
        false => Err(Error::text("ERR result is not a number")),
    }
}

fn parse_number(view: &View, text: &[u8]) -> Result<Value, Error> {
    match parse_operand(view, text)? {
        value @ (Value::Int(_) | Value::Large(_) | Value::Float(_)) => Ok(value),
        _ => Err(Error::text("bad input number")),
    }
}

fn calculate(
    ctx: &mut WriteCtx<'_>,
    args: &[&[u8]],
    operation: Operation,
    event: &'static str,
) -> CmdResult {
    let key = args[1];
    let mut doc = open(ctx, key)?;
    let path = parse_path(args[2])?;
    let (len, wanted) = of_kind(places(ctx, &doc, &path)?, Kind::is_number)?;
    let mut results: Vec<Option<Value>> = vec![None; len];
    if !wanted.is_empty() {
        let by = parse_number(ctx.txn, args[3])?;
        let paths: Vec<&[Step]> = wanted.iter().map(|(_, path)| path.as_slice()).collect();
        let mut failed = None;
        edit_all(
            ctx,
            &mut doc,
            key,
            (&paths, 0),
            &mut |editor, at, old, max| match result(item(old)?, operation, &by) {
                Ok(new) => {
                    let bytes = replace(editor, old, &new, max != 0 && paths[at].is_empty())?;
                    results[wanted[at].0] = Some(new);
                    Ok(Some(bytes))
                }
                Err(error) => {
                    failed = Some(error);
                    Ok(None)
                }
            },
        )?;
        if let Some(failed) = failed {
            return Err(failed);
        }
        notify(ctx, event, key);
        if is_of_powers(operation, &results) {
            for (at, path) in &wanted {
                log_value(ctx, key, path, results[*at].as_ref());
            }
        }
    }
    reply(ctx, path.is_legacy, &results)
}

/// Whether powers of floats were calculated: processors and libraries round them differently,
/// so the results are logged, and not the command.
fn is_of_powers(operation: Operation, results: &[Option<Value>]) -> bool {
    let is_float = |result: &Option<Value>| matches!(result, Some(Value::Float(_)));
    matches!(operation, Operation::Power) && results.iter().any(is_float)
}

fn log_value(ctx: &mut WriteCtx<'_>, key: &[u8], path: &[Step], value: Option<&Value>) {
    let mut number = Vec::new();
    put_text(value, &mut number);
    let path = json::text_of_path(path);
    let effect = [&b"JSON.SET"[..], key, &path, &number];
    ctx.txn.effect(ctx.db, &effect);
}

fn put_text(value: Option<&Value>, out: &mut Vec<u8>) {
    match value {
        Some(Value::Int(number)) => {
            out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes());
        }
        Some(Value::Float(number)) => put_float(*number, out),
        _ => out.extend_from_slice(b"null"),
    }
}

fn reply(ctx: &mut WriteCtx<'_>, is_legacy: bool, results: &[Option<Value>]) -> CmdResult {
    if ctx.reply.resp3 {
        ctx.reply.array(results.len());
        for result in results {
            match result {
                Some(Value::Int(number)) => ctx.reply.int(*number),
                Some(Value::Float(number)) => ctx.reply.double(*number),
                _ => ctx.reply.null(),
            }
        }
        return Ok(());
    }
    let mut out = Vec::new();
    if is_legacy {
        let last = results.iter().flatten().last();
        let last = last.ok_or_else(|| no_path_or("does not contains a number"))?;
        put_text(Some(last), &mut out);
    } else {
        out.push(b'[');
        for (at, result) in results.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            put_text(result.as_ref(), &mut out);
        }
        out.push(b']');
    }
    ctx.reply.bulk(&out);
    Ok(())
}
