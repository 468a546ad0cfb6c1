//! Certificates for servers and clients of a test, and connections with them.

use super::conn::Conn;
use super::server::{Port, Server, free_port};
use kedis::tls::{Connector, Identity, Settings};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use std::fs;
use std::path::PathBuf;

/// An authority and what it has certified, as files of a directory.
pub struct Authority {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one, which has certified `server` and `client`.
    pub fn new() -> Authority {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.path().join("ca.crt"), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let authority = Authority { dir, issuer };
        authority.certify("server", "server");
        authority.certify("client", "client");
        authority
    }

    /// Writes a certificate for `name` to the files `file.crt` and `file.key`; new files take the
    /// places of old ones.
    pub fn certify(&self, name: &str, file: &str) {
        self.certify_with(file, |params| {
            params.distinguished_name.push(DnType::CommonName, name);
        });
    }

    /// The same with anything in the certificate; it has no common name.
    pub fn certify_with(&self, file: &str, change: impl FnOnce(&mut CertificateParams)) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.replace(&format!("{file}.key"), &key.serialize_pem());
        self.replace(&format!("{file}.crt"), &certificate.pem());
    }

    /// Puts a new file in the place of one of this name.
    pub fn replace(&self, name: &str, content: &str) {
        let new = self.dir.path().join("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path of a file, as an argument.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The flags of a server that listens on `port` too.
    pub fn flags(&self, port: &Port) -> Vec<String> {
        let flags = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", self.file("server.crt")),
            ("--tls-key-file", self.file("server.key")),
            ("--tls-ca-cert-file", self.file("ca.crt")),
        ];
        let flags = flags.into_iter();
        flags
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect()
    }

    /// What a client connects with: the certificate `name`, or none.
    pub fn connector(&self, name: Option<&str>) -> Connector {
        let path = |end: &str| name.map(|name| self.path(&format!("{name}.{end}")));
        let settings = Settings {
            identity: Identity {
                certificate: path("crt").unwrap_or_default(),
                key: path("key").unwrap_or_default(),
                passphrase: Vec::new(),
            },
            ca_file: self.path("ca.crt"),
            ..Settings::default()
        };
        Connector::new(&settings).unwrap()
    }

    /// redis-cli's flags for the same.
    pub fn cli_flags(&self) -> [String; 7] {
        [
            "--tls".to_owned(),
            "--cacert".to_owned(),
            self.file("ca.crt"),
            "--cert".to_owned(),
            self.file("client.crt"),
            "--key".to_owned(),
            self.file("client.key"),
        ]
    }
}

/// A server that listens for TLS, too.
pub struct TlsServer {
    pub server: Server,
    pub port: Port,
}

impl TlsServer {
    /// Our server with further flags.
    pub fn start(authority: &Authority, extra: &[&str]) -> TlsServer {
        TlsServer::with(authority, extra, Server::start)
    }

    /// A server that `start` starts with the flags it is given.
    pub fn with(
        authority: &Authority,
        extra: &[&str],
        start: impl FnOnce(&[&str]) -> Server,
    ) -> TlsServer {
        let port = free_port();
        let flags = authority.flags(&port);
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        flags.extend_from_slice(extra);
        let server = start(&flags);
        TlsServer { server, port }
    }

    /// Its address for TLS.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", *self.port)
    }

    /// A connection in TLS, with the client's certificate.
    pub fn connect(&self, authority: &Authority) -> Conn {
        self.connect_as(authority, "client")
    }

    /// A connection in TLS, with the certificate of this file.
    pub fn connect_as(&self, authority: &Authority, file: &str) -> Conn {
        Conn::open_tls(&self.address(), &authority.connector(Some(file))).unwrap()
    }
}
