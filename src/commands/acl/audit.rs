//! Lines of the audit log.
//!
//! A line is the time in UTC, `refused` or `done`, and pairs of a name and a value. Bytes from
//! clients stand in double quotes, escaped as in the output of MONITOR.

use crate::commands::Command;
use crate::commands::table::secrets::{self, REDACTED};
use crate::state::acl::{Context, Reason, Refused};
use crate::state::audit::Audit;
use crate::state::commandlog::{Bounds, shorten};
use crate::state::config::{Config, quote_always};
use crate::state::{Server, Session};
use crate::sys::clock;

/// How much of a command a line has.
const BOUNDS: Bounds = Bounds {
    args: 32,
    arg_bytes: 128,
};

/// Bytes of a user's name in a line. A client chooses the name with which it tries to log in, and the
/// rest of the line must have room.
const NAME_BYTES: usize = 256;

fn put(line: &mut Vec<u8>, name: &str, value: impl AsRef<[u8]>) {
    line.push(b' ');
    line.extend_from_slice(name.as_bytes());
    line.push(b'=');
    line.extend_from_slice(value.as_ref());
}

/// The beginning of a line: time, event, context, user, client and address.
fn begin(event: &str, at: String, context: Context, user: &[u8], session: (u64, &str)) -> Vec<u8> {
    let mut line = at.into_bytes();
    line.push(b' ');
    line.extend_from_slice(event.as_bytes());
    put(&mut line, "context", context.name());
    let bounds = Bounds {
        arg_bytes: NAME_BYTES,
        ..BOUNDS
    };
    let shown = shorten(&[user], bounds);
    shown.iter().for_each(|user| {
        put(&mut line, "user", quote_always(user));
    });
    put(&mut line, "client", session.0.to_string());
    put(&mut line, "addr", quote_always(session.1.as_bytes()));
    line
}

/// Adds a refusal to the audit log.
pub(super) fn refused(audit: &Audit, config: &Config, refused: &Refused) {
    if !audit.is_on() {
        return;
    }
    let mut line = begin(
        "refused",
        refused.at_ms.utc(),
        refused.context,
        &refused.username,
        (refused.client_id.0, &refused.addr),
    );
    put(&mut line, "reason", refused.reason.name());
    if !refused.command.is_empty() {
        put(&mut line, "command", refused.command.as_bytes());
    }
    let is_data = matches!(refused.reason, Reason::Key | Reason::Channel);
    let object = match is_data && config.hide_user_data_from_log {
        true => REDACTED,
        false => &refused.object,
    };
    if is_data || refused.reason == Reason::Database {
        let shown = shorten(&[object], BOUNDS);
        shown.iter().for_each(|object| {
            put(&mut line, "object", quote_always(object));
        });
    }
    audit.add(line);
}

/// The line of an administrative command that has run, if there is to be one. The server itself,
/// which carries out what its master sends, leaves none.
pub fn done(
    server: &Server,
    session: &Session,
    full_name: &str,
    (command, args): (&Command, &[&[u8]]),
    context: Context,
) -> Option<Vec<u8>> {
    let user = session.login.user().filter(|_| server.audit.is_on())?;
    let info = &session.info;
    let mut line = begin(
        "done",
        clock::unix_ms().utc(),
        context,
        user.name(),
        (info.id.0, &info.addr),
    );
    put(&mut line, "command", full_name);
    let mut shown = secrets::audited(command.secret, args);
    if server.config.load().hide_user_data_from_log {
        // Keys, or what is done with them.
        let first = match command.keys.is_empty() {
            true => command.data_from,
            false => Some(1),
        };
        let first = first.unwrap_or(usize::MAX);
        shown.iter_mut().skip(first).for_each(|arg| *arg = REDACTED);
    }
    put(&mut line, "args", []);
    for (n, arg) in shorten(&shown, BOUNDS).iter().enumerate() {
        if n > 0 {
            line.push(b' ');
        }
        line.extend(quote_always(arg));
    }
    Some(line)
}
