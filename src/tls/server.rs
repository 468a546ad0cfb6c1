//! The end that accepts: certificate, verification of clients, sessions to resume.

use super::facts::CertificateFacts;
use super::files::{End, Files, authorities, certified_key};
use super::settings::{ClientAuth, SessionCache, Settings};
use super::{TlsError, TlsSocket};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache,
    StoresServerSessions, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Sessions that are kept where no number is given.
const MANY_SESSIONS: usize = 1 << 20;

/// Makes the server's end of connections, out of settings and of files as they were when it was
/// made.
#[derive(Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    files: Files,
}

impl Acceptor {
    /// Reads the files.
    ///
    /// # Errors
    /// Something is missing, cannot be read, or does not fit together.
    pub fn new(settings: &Settings) -> Result<Acceptor, TlsError> {
        let mut files = Files::of(settings);
        if settings.identity.certificate.as_os_str().is_empty() {
            return Err(TlsError::NoCertificate);
        }
        if settings.identity.key.as_os_str().is_empty() {
            return Err(TlsError::NoKey);
        }
        let provider = settings.provider();
        let key = certified_key(&settings.identity, &provider)?;
        files.facts.own = key.cert.first().and_then(|own| CertificateFacts::of(own));
        let versions = settings.versions();
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(&versions)?;
        let builder = match settings.client_auth {
            ClientAuth::No => builder.with_no_client_auth(),
            auth => {
                let (roots, authority) = authorities(settings)?;
                files.facts.authority = authority;
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier: Arc<dyn ClientCertVerifier> = match auth {
                    ClientAuth::Optional => verifier.allow_unauthenticated().build()?,
                    _ => verifier.build()?,
                };
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(Always(Arc::new(key))));
        config.ignore_client_order = settings.prefer_server_order;
        match settings.sessions {
            Some(cache) => config.session_storage = Arc::new(Sessions::new(cache)),
            None => {
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
            }
        }
        Ok(Acceptor {
            config: Arc::new(config),
            files,
        })
    }

    /// The server's end over an accepted connection.
    ///
    /// # Errors
    /// rustls refuses the settings, which [`Acceptor::new`] has taken.
    pub fn accept<T: Read + Write>(&self, stream: T) -> Result<TlsSocket<T>, TlsError> {
        let end = ServerConnection::new(self.config.clone())?;
        Ok(TlsSocket::new(stream, end.into()))
    }
}

impl End for Acceptor {
    fn make(settings: &Settings) -> Result<Acceptor, TlsError> {
        Acceptor::new(settings)
    }

    fn files(&self) -> &Files {
        &self.files
    }
}

/// Shows one certificate whatever name the client asks for.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Sessions that end with time. The time stands before the session's bytes.
#[derive(Debug)]
struct Sessions {
    kept: Arc<ServerSessionMemoryCache>,
    timeout_s: u64,
}

impl Sessions {
    fn new(cache: SessionCache) -> Sessions {
        // The library allocates room for all of them at once.
        let size = match cache.size {
            0 => MANY_SESSIONS,
            size => size.min(MANY_SESSIONS),
        };
        Sessions {
            kept: ServerSessionMemoryCache::new(size),
            timeout_s: cache.timeout_s,
        }
    }

    fn fresh(&self, mut stored: Vec<u8>) -> Option<Vec<u8>> {
        let session = stored.split_off(8);
        let since_s = u64::from_be_bytes(stored.try_into().ok()?);
        (now_s().saturating_sub(since_s) <= self.timeout_s).then_some(session)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut stored = now_s().to_be_bytes().to_vec();
        stored.extend_from_slice(&value);
        self.kept.put(key, stored)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.kept.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.kept.take(key)?)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
