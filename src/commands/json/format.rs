//! Replies in the types of the protocol, and how JSON.GET and JSON.ARRPOP are told which.

use super::{BAD_FORMAT, Error};
use crate::encoding::json::Item;
use crate::resp::Reply;
use crate::types::OpResult;
use crate::types::json::text::{Format, Writer};
use crate::types::json::{Rows, Val};
use std::ops::ControlFlow;

/// How values are replied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyForm {
    /// As text.
    String,
    /// Each value as text.
    Strings,
    /// Scalars in types of the protocol, containers as text.
    Expand1,
    /// All in types of the protocol.
    Expand,
}

impl ReplyForm {
    /// The form with a name.
    pub fn named(name: &[u8]) -> Result<ReplyForm, Error> {
        match name {
            b"STRING" => Ok(ReplyForm::String),
            b"STRINGS" => Ok(ReplyForm::Strings),
            b"EXPAND1" => Ok(ReplyForm::Expand1),
            b"EXPAND" => Ok(ReplyForm::Expand),
            _ => Err(BAD_FORMAT),
        }
    }

    /// Whether values are more than text.
    pub(super) fn is_expanded(self) -> bool {
        matches!(self, ReplyForm::Expand1 | ReplyForm::Expand)
    }
}

/// Replies a value; see [`ReplyForm::Expand`].
pub(super) fn expand(
    reply: &mut Reply,
    rows: &dyn Rows,
    value: &Val,
    form: ReplyForm,
    format: Format<'_>,
) -> OpResult<()> {
    let is_deep = form == ReplyForm::Expand;
    match value.item()? {
        Item::Null => reply.null(),
        Item::Bool(value) => reply.boolean(value),
        Item::Int(number) => reply.int(number),
        Item::Large(number) => reply.double(number as f64),
        Item::Float(number) => reply.double(number),
        Item::Text(_) | Item::TextNode(..) if is_deep => {
            reply.bulk(&value.text(rows)?.unwrap_or_default());
        }
        Item::Array(_) | Item::ArrayNode(_) if is_deep => {
            reply.array(value.len(rows)? as usize);
            value
                .each_element(rows, &mut |_, element| {
                    expand(reply, rows, &element, form, format)?;
                    Ok(ControlFlow::Continue(()))
                })
                .map(drop)?;
        }
        Item::Object(_) | Item::ObjectNode(_) if is_deep => {
            reply.map(value.len(rows)? as usize);
            value
                .each_member(rows, &mut |key, member| {
                    reply.bulk(key);
                    expand(reply, rows, &member, form, format)?;
                    Ok(ControlFlow::Continue(()))
                })
                .map(drop)?;
        }
        Item::Text(_)
        | Item::TextNode(..)
        | Item::Array(_)
        | Item::ArrayNode(_)
        | Item::Object(_)
        | Item::ObjectNode(_) => {
            let mut out = Vec::new();
            Writer::new(rows, format, &mut out).value(value)?;
            reply.bulk(&out);
        }
    }
    Ok(())
}

/// Replies a value as JSON.RESP does.
pub fn resp(reply: &mut Reply, rows: &dyn Rows, value: &Val) -> OpResult<()> {
    match value.item()? {
        Item::Null => reply.null(),
        Item::Bool(true) => reply.simple("true"),
        Item::Bool(false) => reply.simple("false"),
        Item::Int(number) => reply.int(number),
        Item::Large(number) => reply.double(number as f64),
        Item::Float(number) => reply.double(number),
        Item::Text(_) | Item::TextNode(..) => {
            reply.bulk(&value.text(rows)?.unwrap_or_default());
        }
        Item::Array(_) | Item::ArrayNode(_) => {
            reply.array(1 + value.len(rows)? as usize);
            reply.simple("[");
            value
                .each_element(rows, &mut |_, element| {
                    resp(reply, rows, &element)?;
                    Ok(ControlFlow::Continue(()))
                })
                .map(drop)?;
        }
        Item::Object(_) | Item::ObjectNode(_) => {
            reply.array(1 + 2 * value.len(rows)? as usize);
            reply.simple("{");
            value
                .each_member(rows, &mut |key, member| {
                    reply.bulk(key);
                    resp(reply, rows, &member)?;
                    Ok(ControlFlow::Continue(()))
                })
                .map(drop)?;
        }
    }
    Ok(())
}
