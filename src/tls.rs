//! TLS, by rustls: sockets that speak it, and what certificates, keys and names of ciphers mean.
//!
//! - `settings` is what the configuration or a command line asks for, with the names that OpenSSL
//!   gives to protocols and ciphers; `files` reads certificates and keys.
//! - `names` reads whom a certificate is for, `facts` its number and when it ends.
//! - `server` and `client` make the two ends out of settings.
//! - `socket` is a stream in TLS over any byte stream; `link` is a connection to another server,
//!   in TLS or not.
//!
//! Certificates are checked as Redis checks them: a certificate must come from one of the
//! authorities of the settings, and the name in it is not compared with the name of the host,
//! unless the settings say so.

mod client;
mod facts;
mod files;
mod link;
mod names;
mod server;
mod settings;
mod socket;
#[cfg(test)]
mod tests;

pub use client::Connector;
pub use facts::CertificateFacts;
pub use files::{End, Facts, FileError, Files};
pub use link::{Link, Stream};
pub use names::{Name, NameField, names};
pub use server::Acceptor;
pub use settings::{ClientAuth, Identity, Protocols, SessionCache, Settings, SuiteNames};
pub use socket::TlsSocket;

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The server has no certificate.
    #[error("No tls-cert-file configured!")]
    NoCertificate,
    /// The server has no key.
    #[error("No tls-key-file configured!")]
    NoKey,
    /// Peers are to be verified, and no authority is known.
    #[error(
        "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, \
         tls-replication or tls-auth-clients are enabled!"
    )]
    NoAuthority,
    /// The key is not that of the certificate.
    #[error("the key in {key} does not belong to the certificate in {certificate}")]
    Mismatch {
        /// The file of the key.
        key: String,
        /// The file of the certificate.
        certificate: String,
    },
    /// The protocols and ciphers leave nothing to speak, or rustls refuses something else.
    #[error("{0}")]
    Rustls(#[from] rustls::Error),
    /// The authorities cannot be used to verify.
    #[error("{0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}
