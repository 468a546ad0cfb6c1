//! CLIENT KILL.

use super::super::args::{self, Options};
use super::super::connection::DEFAULT_USER;
use super::super::{CmdResult, Error, SessionCtx};
use super::Class;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::state::ClientId;
use crate::state::{ClientInfo, Message};
use crate::sys::clock;

/// Which clients to close: those that match all given options.
#[derive(Debug, Default)]
struct Filter<'a> {
    id: Option<ClientId>,
    class: Option<Class>,
    addr: Option<&'a [u8]>,
    laddr: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    min_age_s: Option<u64>,
    spare_me: bool,
}

impl<'a> Filter<'a> {
    fn parse(args: &[&'a [u8]]) -> Result<Filter<'a>, Error> {
        let mut filter = Filter {
            spare_me: true,
            ..Filter::default()
        };
        if !Options::new(args, 2).left().is_multiple_of(2) {
            return Err(Error::Syntax);
        }
        for pair in args.get(2..).unwrap_or_default().chunks_exact(2) {
            if let [option, value] = pair {
                filter.take(option, value)?;
            }
        }
        Ok(filter)
    }

    fn take(&mut self, option: &[u8], value: &'a [u8]) -> Result<(), Error> {
        match option.to_ascii_lowercase().as_slice() {
            b"id" => {
                self.id = Some(ClientId(positive(
                    value,
                    "ERR client-id should be greater than 0",
                )?))
            }
            b"type" => self.class = Some(Class::parse(value)?),
            b"addr" => self.addr = Some(value),
            b"laddr" => self.laddr = Some(value),
            b"user" => {
                if value != DEFAULT_USER.as_bytes() {
                    let user = String::from_utf8_lossy(value);
                    return Err(Error::owned(format!("ERR No such user '{user}'")));
                }
                self.user = Some(value);
            }
            b"maxage" => {
                num::parse_i64(value)
                    .ok_or(Error::text("ERR maxage is not an integer or out of range"))?;
                self.min_age_s = Some(positive(value, "ERR maxage should be greater than 0")?);
            }
            b"skipme" if args::is(value, "YES") => self.spare_me = true,
            b"skipme" if args::is(value, "NO") => self.spare_me = false,
            _ => return Err(Error::Syntax),
        }
        Ok(())
    }

    fn fits(&self, client: &ClientInfo, me: ClientId, now_ms: UnixMs) -> bool {
        let age_s = now_ms.since(client.created_ms) / 1000;
        let names = client.names.lock();
        self.id.is_none_or(|id| id == client.id)
            && self.class.is_none_or(|class| class == Class::of(client))
            && self.addr.is_none_or(|addr| addr == client.addr.as_bytes())
            && self
                .laddr
                .is_none_or(|addr| addr == client.laddr.as_bytes())
            && self.user.is_none_or(|user| user == names.user.as_bytes())
            && self.min_age_s.is_none_or(|min| age_s >= min)
            && !(self.spare_me && client.id == me)
    }
}

fn positive(value: &[u8], refusal: &'static str) -> Result<u64, Error> {
    num::parse_i64(value)
        .filter(|n| *n > 0)
        .and_then(|n| u64::try_from(n).ok())
        .ok_or(Error::text(refusal))
}

pub(super) fn kill(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    // The old form, `CLIENT KILL ip:port`, does not skip the caller.
    let old_form = args.len() == 3;
    let filter = match old_form {
        true => Filter {
            addr: args.get(2).copied(),
            ..Filter::default()
        },
        false => Filter::parse(args)?,
    };
    let me = ctx.session.info.id;
    let now_ms = clock::unix_ms();
    let mut clients = ctx.server.clients.all();
    clients.retain(|client| filter.fits(client, me, now_ms));
    for client in &clients {
        if client.id == me {
            ctx.session.close_after_reply = true;
        } else {
            ctx.server.post(client.id, Message::Kill(client.id));
        }
        // Its thread closes it a little later; CLIENT LIST must not show it from now on.
        ctx.server.clients.remove(client.id);
    }
    match (old_form, clients.len()) {
        (false, killed) => ctx.reply.int(killed as i64),
        (true, 0) => return Err(Error::text("ERR No such client")),
        (true, _) => ctx.reply.ok(),
    }
    Ok(())
}
