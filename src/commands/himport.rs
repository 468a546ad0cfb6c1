//! HIMPORT: hashes that have the same fields, whose names are sent once. A client names a list of
//! fields (a fieldset), and then sends the values of each hash alone. The fieldsets are the session's
//! (see [`crate::state::fieldsets`]), and a script begins with none; the binlog gets `HSET` with
//! fields and values.

use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, SessionCtx, WriteCtx};
use crate::base::time::UnixMs;
use crate::commands::table::spec::Group;
use crate::encoding::ValueType;
use crate::state::fieldsets::Fieldsets;
use crate::state::{Server, Session};
use crate::storage::txn::events::Class;
use crate::types::members::Members;

const UNKNOWN: Error = Error::text("ERR no such fieldset");
const REPEATED: Error = Error::text("ERR duplicate field name");
const OTHER_COUNT: Error = Error::text("ERR value count does not match the fieldset");

fn prepare(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let fields = &args[3..];
    let mut sorted = fields.to_vec();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(REPEATED);
    }
    let mut fieldsets = ctx.session.take_fieldsets();
    fieldsets.put(args[2], fields);
    ctx.session.set_fieldsets(fieldsets);
    ctx.reply.ok();
    Ok(())
}

fn discard(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut fieldsets = ctx.session.take_fieldsets();
    let existed = fieldsets.remove(args[2]);
    ctx.session.set_fieldsets(fieldsets);
    ctx.reply.int(i64::from(existed));
    Ok(())
}

fn discardall(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let count = discard_all(ctx.session, ctx.server);
    ctx.reply.int(count as i64);
    Ok(())
}

/// Removes all fieldsets of a client; returns how many it had.
pub(super) fn discard_all(session: &mut Session, server: &Server) -> usize {
    let fieldsets = session.take_fieldsets();
    session.set_fieldsets(Fieldsets::default());
    let count = fieldsets.len();
    server.chores.free(fieldsets, count);
    count
}

fn set(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (key, values) = (args[2], &args[4..]);
    let fieldset = ctx.session.fieldsets().get(args[3]).ok_or(UNKNOWN)?;
    if fieldset.field_count() != values.len() {
        return Err(OTHER_COUNT);
    }
    let existed = Members::load(ctx.txn, ctx.db, key, ValueType::Hash)?.is_some();
    let mut hash = Members::empty(ctx.db, ValueType::Hash);
    let mut effect = Vec::with_capacity(2 + 2 * values.len());
    effect.extend([b"HSET".as_slice(), key]);
    for (field, value) in fieldset.fields().zip(values) {
        hash.append(ctx.txn, field, value)?;
        effect.extend([field, value]);
    }
    hash.save_over(ctx.txn, key, UnixMs::NONE)?;
    ctx.event(Class::HASH, "hset", key);
    if existed {
        ctx.txn.effect(ctx.db, &[b"DEL", key]);
    }
    ctx.txn.effect(ctx.db, &effect);
    ctx.reply.ok();
    Ok(())
}

const OVERWRITE: &[KeySpec] = &[KeySpec::at(2, KeyFlags::OW.union(KeyFlags::UPDATE))];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[Command::container(
    "himport",
    -2,
    &[
        Command::session("discard", 3, discard)
            .syntax("fieldset-name")
            .doc(Group::Hash, "8.10.0", "Removes a fieldset"),
        Command::session("discardall", 2, discardall)
            .complexity("O(N), N: fieldsets of the connection")
            .doc(
                Group::Hash,
                "8.10.0",
                "Removes all fieldsets of the connection, and counts them",
            ),
        Command::session("prepare", -4, prepare)
            .syntax("fieldset-name field...")
            .complexity("O(N log N), N: fields")
            .flags(Flags::DENYOOM)
            .doc(
                Group::Hash,
                "8.10.0",
                "Gives a list of fields a name that holds for the connection",
            ),
        Command::write("set", -5, set)
            .syntax("key fieldset-name value...")
            .complexity("O(N), N: fields of the fieldset")
            .flags(Flags::DENYOOM)
            .keys(OVERWRITE)
            .doc(
                Group::Hash,
                "8.10.0",
                "Replaces a hash by one with the fields of a fieldset and the given values",
            ),
    ],
)
.categories(&["hash"])
.doc(Group::Hash, "8.10.0", "Hashes whose fields are sent once")];

#[cfg(test)]
mod tests;
