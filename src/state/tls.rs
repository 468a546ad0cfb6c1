//! The certificates and keys in use, which change while the server runs.

use super::config::{Config, TlsAuthClients};
use crate::tls::{
    Acceptor, CertificateFacts, ClientAuth, Connector, End, Identity, Link, SessionCache, Settings,
    TlsError, TlsSocket,
};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What both ends of connections in TLS are made with.
#[derive(Debug, Default)]
struct Ends {
    /// For clients; `None` without `tls-port`.
    acceptor: Option<Arc<Acceptor>>,
    /// For masters, and targets of MIGRATE; `None` without `tls-replication`.
    connector: Option<Arc<Connector>>,
}

impl Ends {
    fn new(config: &Config) -> Result<Ends, TlsError> {
        let settings = settings(config);
        let acceptor = (config.tls_port != 0).then(|| Acceptor::new(&settings));
        let connector = config.tls_replication.then(|| Connector::new(&settings));
        Ok(Ends {
            acceptor: acceptor.transpose()?.map(Arc::new),
            connector: connector.transpose()?.map(Arc::new),
        })
    }
}

/// What TLS is asked for. Files are relative to `dir`, as all others.
fn settings(config: &Config) -> Settings {
    let path = |path: &Path| config.path(path).unwrap_or_default();
    let identity = |certificate: &Path, key: &Path, passphrase: &[u8]| Identity {
        certificate: path(certificate),
        key: path(key),
        passphrase: passphrase.to_vec(),
    };
    let client = !config.tls_client_cert_file.as_os_str().is_empty();
    Settings {
        identity: identity(
            &config.tls_cert_file,
            &config.tls_key_file,
            &config.tls_key_file_pass.0,
        ),
        client_identity: client.then(|| {
            identity(
                &config.tls_client_cert_file,
                &config.tls_client_key_file,
                &config.tls_client_key_file_pass.0,
            )
        }),
        ca_file: path(&config.tls_ca_cert_file),
        ca_dir: path(&config.tls_ca_cert_dir),
        checks_name: false,
        client_auth: match config.tls_auth_clients {
            TlsAuthClients::No => ClientAuth::No,
            TlsAuthClients::Optional => ClientAuth::Optional,
            TlsAuthClients::Yes => ClientAuth::Yes,
        },
        protocols: *config.tls_protocols.meaning(),
        suites_13: config.tls_ciphersuites.meaning().clone(),
        suites_12: config.tls_ciphers.meaning().clone(),
        prefer_server_order: config.tls_prefer_server_ciphers,
        sessions: config.tls_session_caching.then_some(SessionCache {
            size: config.tls_session_cache_size as usize,
            timeout_s: config.tls_session_cache_timeout_s,
        }),
    }
}

/// The certificates in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InUse {
    /// That of the server (`tls-cert-file`).
    pub server: Option<CertificateFacts>,
    /// That which is shown to other servers instead (`tls-client-cert-file`).
    pub client: Option<CertificateFacts>,
    /// Of the authorities, the one that ends first.
    pub authority: Option<CertificateFacts>,
}

/// The state of TLS, shared by all threads. Connections keep what they were made with.
#[derive(Debug, Default)]
pub struct Tls {
    /// Held for no longer than a copy of a pointer takes.
    ends: RwLock<Ends>,
    /// When it was last looked whether files have changed.
    looked: Mutex<Option<Instant>>,
}

impl Tls {
    /// Reads the files that `config` names, for connections from now on.
    ///
    /// # Errors
    /// Something is missing or cannot be used; nothing has changed then.
    pub fn apply(&self, config: &Config) -> Result<(), TlsError> {
        let ends = Ends::new(config)?;
        *self.ends.write() = ends;
        Ok(())
    }

    /// Reads files that have changed, if `interval_s` (`tls-auto-reload-interval`) have passed since
    /// the last look; 0: never. If they cannot be used, what is in use stays so, and the log says
    /// why.
    pub fn renew_if_due(&self, interval_s: u64, now: Instant) {
        let mut looked = self.looked.lock();
        let since = now.duration_since(*looked.get_or_insert(now));
        if interval_s == 0 || since < Duration::from_secs(interval_s) {
            return;
        }
        *looked = Some(now);
        drop(looked);
        self.renew();
    }

    fn renew(&self) {
        self.renew_end("tls-port", |ends| &mut ends.acceptor);
        self.renew_end("tls-replication", |ends| &mut ends.connector);
    }

    fn renew_end<E: End>(&self, parameter: &str, end: fn(&mut Ends) -> &mut Option<Arc<E>>) {
        let Some(old) = end(&mut self.ends.write()).clone() else {
            return;
        };
        // No lock is held while files are read.
        if let Some(new) = old.renewed() {
            self.replace(parameter, end, &old, new);
        }
    }

    /// Puts what was made of changed files in the place of `old`, unless something else is there.
    fn replace<E: End>(
        &self,
        parameter: &str,
        end: fn(&mut Ends) -> &mut Option<Arc<E>>,
        old: &Arc<E>,
        new: Result<E, TlsError>,
    ) {
        match new {
            Ok(new) => {
                let mut ends = self.ends.write();
                let now = end(&mut ends);
                // Other settings may have come meanwhile, with files that were read later.
                if now.as_ref().is_some_and(|now| Arc::ptr_eq(now, old)) {
                    *now = Some(Arc::new(new));
                    log::info!("the files of {parameter} have changed and are in use");
                }
            }
            Err(error) if old.fails_anew() => {
                log::warn!("the files of {parameter} have changed and cannot be used: {error}");
            }
            Err(_) => {}
        }
    }

    /// The certificates in use.
    pub fn in_use(&self) -> InUse {
        let ends = self.ends.read();
        let acceptor = ends.acceptor.as_ref().map(|end| end.files());
        let connector = ends.connector.as_ref().map(|end| end.files());
        let both = [acceptor, connector];
        let mut authorities = both.into_iter().flatten();
        let shown = connector.and_then(|files| files.facts().own.clone());
        let (client, shared) = match connector {
            Some(files) if files.settings().client_identity.is_some() => (shown, None),
            _ => (None, shown),
        };
        InUse {
            server: acceptor
                .and_then(|files| files.facts().own.clone())
                .or(shared),
            client,
            authority: authorities.find_map(|files| files.facts().authority.clone()),
        }
    }

    /// Whether connections to other servers are in TLS.
    pub fn is_spoken_to_servers(&self) -> bool {
        self.ends.read().connector.is_some()
    }

    /// The server's end over an accepted connection.
    ///
    /// # Errors
    /// There is no certificate: `tls-port` was just changed.
    pub fn accept(
        &self,
        socket: mio::net::TcpStream,
    ) -> Result<TlsSocket<mio::net::TcpStream>, TlsError> {
        let acceptor = self.ends.read().acceptor.clone();
        acceptor.ok_or(TlsError::NoCertificate)?.accept(socket)
    }

    /// A connection to another server: in TLS with `tls-replication`, else as it is. `wanted` is
    /// asked from time to time whether to go on.
    ///
    /// # Errors
    /// The handshake fails or takes longer than `timeout`.
    pub fn connect(
        &self,
        socket: TcpStream,
        host: &str,
        timeout: Duration,
        wanted: impl Fn() -> bool,
    ) -> io::Result<Link> {
        let connector = self.ends.read().connector.clone();
        match connector {
            Some(connector) => connector.connect(socket, host, timeout, wanted),
            None => Ok(Link::Plain(socket)),
        }
    }
}

#[cfg(test)]
mod tests;
