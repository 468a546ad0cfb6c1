//! Refusals: entries of ACL LOG, and lines of the audit log.

use super::audit;
use super::check::Denied;
use crate::commands::client;
use crate::commands::table::registry::Registered;
use crate::resp::Reply;
use crate::state::acl::log::Entry;
use crate::state::acl::{Context, Reason, Refused};
use crate::state::{Server, Session};
use crate::sys::clock;

/// A command that a client was denied.
pub fn of_command(
    session: &Session,
    found: &Registered,
    args: &[&[u8]],
    denied: Denied,
    context: Context,
) -> Refused {
    let user = session.login.user();
    let object = denied.object(found, args);
    Refused {
        username: user.map_or_else(Vec::new, |user| user.name().to_vec()),
        ..refused(session, &found.full_name, denied.reason(), object, context)
    }
}

/// A command of a client that has not logged in.
pub fn of_stranger(session: &Session, found: &Registered) -> Refused {
    let name = found.full_name.as_str();
    let top = Context::TopLevel;
    refused(session, name, Reason::Login, name.as_bytes(), top)
}

/// What a session was refused, as nobody.
fn refused(
    session: &Session,
    command: &str,
    reason: Reason,
    object: &[u8],
    context: Context,
) -> Refused {
    let info = &session.info;
    Refused {
        reason,
        context,
        object: object.to_vec(),
        username: Vec::new(),
        command: command.to_owned(),
        client: client::describe(info),
        client_id: info.id,
        addr: info.addr.clone(),
        at_ms: clock::unix_ms(),
    }
}

/// A login that failed, by a command that the client called `called`.
pub(in crate::commands) fn of_login(
    session: &Session,
    command: &str,
    called: &[u8],
    username: &[u8],
    context: Context,
) -> Refused {
    Refused {
        username: username.to_vec(),
        ..refused(session, command, Reason::Auth, called, context)
    }
}

/// A certificate whose name is that of no user.
pub(super) fn of_certificate(session: &Session, name: &[u8]) -> Refused {
    Refused {
        username: name.to_vec(),
        ..refused(session, "", Reason::Certificate, b"", Context::TopLevel)
    }
}

/// Counts a refusal, and adds it to ACL LOG and the audit log.
pub fn report(server: &Server, refused: Refused) {
    let stats = &server.stats;
    let config = server.config.load();
    audit::refused(&server.audit, &config, &refused);
    let counter = match refused.reason {
        // ACL LOG of Redis does not have them.
        Reason::Login => return,
        Reason::Auth => &stats.auth_failures,
        Reason::Command => &stats.denied_commands,
        Reason::Key => &stats.denied_keys,
        Reason::Channel => &stats.denied_channels,
        Reason::Database => &stats.denied_dbs,
        Reason::Certificate => &stats.denied_certificates,
    };
    counter.add(1);
    let max_len = usize::try_from(config.acllog_max_len).unwrap_or(usize::MAX);
    server.acl_log.add(refused, max_len);
}

/// Writes the reply of ACL LOG.
pub(super) fn write(reply: &mut Reply, entries: &[Entry]) {
    let now_ms = clock::unix_ms();
    reply.array(entries.len());
    for entry in entries {
        let last = &entry.last;
        reply.map(10);
        reply.bulk(b"count");
        reply.int(entry.count as i64);
        for (name, text) in [
            ("reason", last.reason.name().as_bytes()),
            ("context", last.context.name().as_bytes()),
            ("object", &last.object),
            ("username", &last.username),
        ] {
            reply.bulk(name.as_bytes());
            reply.bulk(text);
        }
        reply.bulk(b"age-seconds");
        reply.double(now_ms.since(last.at_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(last.client.as_bytes());
        for (name, number) in [
            ("entry-id", entry.id),
            ("timestamp-created", entry.created_ms.0),
            ("timestamp-last-updated", last.at_ms.0),
        ] {
            reply.bulk(name.as_bytes());
            reply.int(number as i64);
        }
    }
}
