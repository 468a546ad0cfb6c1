//! Logins by the certificates that clients have shown (`tls-auth-clients-user`).

use super::refusal;
use crate::state::acl::Login;
use crate::state::config::TlsAuthClientsUser;
use crate::state::{Server, Session};
use crate::tls::{NameField, names};

/// Logs a client in as the first user who may log in and has a name of the certificate. If there
/// is none, the client stays who it is, and ACL LOG has the last name.
pub fn log_in(server: &Server, session: &mut Session, certificate: &[u8]) {
    let field = match server.config.load().tls_auth_clients_user {
        TlsAuthClientsUser::Off => return,
        TlsAuthClientsUser::Cn => NameField::CommonName,
        TlsAuthClientsUser::Uri => NameField::Uri,
    };
    let mut last = None;
    for name in names(certificate, field) {
        if name.bytes.is_empty() {
            continue;
        }
        last = Some(name.bytes);
        let user = name.is_plain.then(|| server.users.get(name.bytes));
        if let Some(user) = user.flatten().filter(|user| user.rules().enabled) {
            session.log_in(Login::of(user), true);
            return;
        }
    }
    if let Some(name) = last {
        let refused = refusal::of_certificate(session, name);
        refusal::report(server, refused);
    }
}
