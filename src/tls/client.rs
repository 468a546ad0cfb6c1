//! The end that connects: to masters, targets of MIGRATE, sources and targets of the tools.

use super::facts::CertificateFacts;
use super::files::{End, Files, authorities, certified_key};
use super::settings::Settings;
use super::{Link, TlsError, TlsSocket};
use crate::sys::pause::is_pause;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes the client's end of connections.
#[derive(Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    files: Files,
}

impl Connector {
    /// Reads the files.
    ///
    /// # Errors
    /// No authority is named, or a file cannot be used.
    pub fn new(settings: &Settings) -> Result<Connector, TlsError> {
        let mut files = Files::of(settings);
        let provider = settings.provider();
        let (roots, authority) = authorities(settings)?;
        files.facts.authority = authority;
        let roots = Arc::new(roots);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
        let verifier: Arc<dyn ServerCertVerifier> = match settings.checks_name {
            true => verifier.build()?,
            false => Arc::new(AnyName(verifier.build()?)),
        };
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder
            .with_protocol_versions(&settings.versions())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let identity = settings.client_identity.as_ref();
        let identity = identity.unwrap_or(&settings.identity);
        let config = match identity.certificate.as_os_str().is_empty() {
            true => builder.with_no_client_auth(),
            false => {
                let key = certified_key(identity, &provider)?;
                files.facts.own = key.cert.first().and_then(|own| CertificateFacts::of(own));
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
        };
        Ok(Connector {
            config: Arc::new(config),
            files,
        })
    }

    /// Shakes hands over a connection to `host`. `wanted` is asked whenever a read or write has
    /// timed out whether to go on, which the timeouts of the socket decide.
    ///
    /// # Errors
    /// The server shows no certificate that holds, speaks no TLS, or takes longer than `timeout`.
    pub fn connect(
        &self,
        socket: TcpStream,
        host: &str,
        timeout: Duration,
        wanted: impl Fn() -> bool,
    ) -> io::Result<Link> {
        // Only for servers that have several certificates; a name that cannot be one is left out.
        let name = ServerName::try_from(host.to_owned());
        let name = name.unwrap_or(ServerName::IpAddress(socket.peer_addr()?.ip().into()));
        let end = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        let mut socket = TlsSocket::new(socket, end.into());
        let deadline = Instant::now() + timeout;
        while socket.is_handshaking() {
            match socket.handshake() {
                Ok(()) => {}
                Err(error) if is_pause(&error) => {
                    if Instant::now() >= deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    if !wanted() {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Link::Tls(Box::new(socket)))
    }
}

impl End for Connector {
    fn make(settings: &Settings) -> Result<Connector, TlsError> {
        Connector::new(settings)
    }

    fn files(&self) -> &Files {
        &self.files
    }
}

/// Verifies as the library does, but accepts any name in the certificate, as Redis does.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The library looks at the name last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
