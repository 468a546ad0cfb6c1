//! What is asked for: files, protocols and ciphers, by the names that OpenSSL gives them.

use rustls::CipherSuite as Id;
use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use rustls::version::{TLS12, TLS13};
use std::path::PathBuf;
use std::sync::Arc;

/// A certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// File of the certificate, followed by those of the authorities between, in PEM.
    pub certificate: PathBuf,
    /// File of its private key, in PEM.
    pub key: PathBuf,
    /// Passphrase of that file, if it is encrypted.
    pub passphrase: Vec<u8>,
}

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// They must.
    #[default]
    Yes,
    /// They may; one that is shown must be valid.
    Optional,
    /// They are not asked.
    No,
}

/// How many sessions are kept to be resumed, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCache {
    /// Sessions; 0 is no limit in Redis, and a large one here.
    pub size: usize,
    /// Seconds.
    pub timeout_s: u64,
}

/// Versions of the protocol; none named means all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Protocols {
    /// TLS 1.2.
    pub tls12: bool,
    /// TLS 1.3.
    pub tls13: bool,
}

impl Protocols {
    /// Reads names such as `TLSv1.2 TLSv1.3`, in any case.
    ///
    /// # Errors
    /// A name is not known, or is that of a version that is not spoken because it is not secure.
    pub fn parse(text: &str) -> Result<Protocols, String> {
        let mut protocols = Protocols::default();
        for name in text.split_ascii_whitespace() {
            match name.to_ascii_lowercase().as_str() {
                "tlsv1.2" => protocols.tls12 = true,
                "tlsv1.3" => protocols.tls13 = true,
                "tlsv1" | "tlsv1.1" => {
                    return Err(format!(
                        "{name} is not secure and not spoken; TLSv1.2 and TLSv1.3 are"
                    ));
                }
                _ => return Err(format!("unknown protocol {name}: TLSv1.2 or TLSv1.3")),
            }
        }
        Ok(protocols)
    }

    fn versions(self) -> Vec<&'static SupportedProtocolVersion> {
        let all = self == Protocols::default();
        let mut versions = Vec::new();
        if self.tls13 || all {
            versions.push(&TLS13);
        }
        if self.tls12 || all {
            versions.push(&TLS12);
        }
        versions
    }
}

/// The ciphers of TLS 1.3, by the names of its specification, which OpenSSL uses too.
const SUITES_13: &[(&str, Id)] = &[
    ("TLS_AES_256_GCM_SHA384", Id::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", Id::TLS13_AES_128_GCM_SHA256),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        Id::TLS13_CHACHA20_POLY1305_SHA256,
    ),
];

/// The ciphers of TLS 1.2, by OpenSSL's names.
const SUITES_12: &[(&str, Id)] = &[
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        Id::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        Id::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        Id::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        Id::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        Id::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        Id::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Words of OpenSSL's cipher strings that mean all that is secure.
const ALL: &[&str] = &["DEFAULT", "ALL", "HIGH"];

/// Names of ciphers in order of preference; none named means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SuiteNames(Vec<Id>);

impl SuiteNames {
    /// Reads the names of ciphers of TLS 1.3, with colons between.
    ///
    /// # Errors
    /// A name is not known; the text says which are.
    pub fn of_13(text: &str) -> Result<SuiteNames, String> {
        SuiteNames::parse(text, SUITES_13)
    }

    /// Reads OpenSSL's names of ciphers of TLS 1.2, with colons between. `DEFAULT`, `HIGH` and
    /// `ALL` are all; words that take ciphers away (`!aNULL`) change nothing, since what they
    /// name is never spoken, unless they name one that is.
    ///
    /// # Errors
    /// As [`SuiteNames::of_13`].
    pub fn of_12(text: &str) -> Result<SuiteNames, String> {
        SuiteNames::parse(text, SUITES_12)
    }

    fn parse(text: &str, known: &[(&str, Id)]) -> Result<SuiteNames, String> {
        let find = |word: &str| {
            let found = known.iter().find(|(name, _)| *name == word);
            found.map(|(_, id)| *id)
        };
        let mut chosen: Vec<Id> = Vec::new();
        let mut removed: Vec<Id> = Vec::new();
        let words = text.split([':', ',', ' ']).filter(|word| !word.is_empty());
        for word in words {
            if let Some(away) = word.strip_prefix(['!', '-']) {
                removed.extend(find(away));
            } else if ALL.contains(&word) {
                chosen.extend(known.iter().map(|(_, id)| *id));
            } else if let Some(id) = find(word) {
                chosen.push(id);
            } else {
                let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "unknown cipher {word}: there are {}",
                    names.join(", ")
                ));
            }
        }
        if chosen.is_empty() && !removed.is_empty() {
            chosen.extend(known.iter().map(|(_, id)| *id));
        }
        chosen.retain(|id| !removed.contains(id));
        if chosen.is_empty() && !text.trim().is_empty() {
            return Err("no cipher is left".to_owned());
        }
        Ok(SuiteNames(chosen))
    }

    /// The place of a cipher in the order of preference; `None` if it is not wanted.
    fn place(&self, id: Id) -> Option<usize> {
        match self.0.is_empty() {
            true => Some(0),
            false => self.0.iter().position(|wanted| *wanted == id),
        }
    }
}

/// What both ends need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// The certificate that is shown.
    pub identity: Identity,
    /// The certificate that is shown to servers, if it is another one.
    pub client_identity: Option<Identity>,
    /// File of the authorities' certificates, in PEM; empty for none.
    pub ca_file: PathBuf,
    /// Directory of such files; empty for none.
    pub ca_dir: PathBuf,
    /// Whether the name in a server's certificate must be that of the host.
    pub checks_name: bool,
    /// Whether clients must show a certificate.
    pub client_auth: ClientAuth,
    /// Versions of the protocol.
    pub protocols: Protocols,
    /// Ciphers of TLS 1.3.
    pub suites_13: SuiteNames,
    /// Ciphers of TLS 1.2.
    pub suites_12: SuiteNames,
    /// Whether the order of ciphers is the server's, not the client's.
    pub prefer_server_order: bool,
    /// Sessions that are kept; `None` for none.
    pub sessions: Option<SessionCache>,
}

impl Settings {
    /// The ciphers in their order, and everything else that is calculated.
    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = rustls::crypto::ring::default_provider();
        let place = |id: Id| match SUITES_13.iter().any(|(_, known)| *known == id) {
            true => self.suites_13.place(id),
            false => self.suites_12.place(id),
        };
        let suites = &mut provider.cipher_suites;
        suites.retain(|suite| place(suite.suite()).is_some());
        // Stable: the order of the library stands where none is asked for.
        suites.sort_by_key(|suite| place(suite.suite()));
        Arc::new(provider)
    }

    /// The versions to speak.
    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        self.protocols.versions()
    }

    /// Whether any authority is named.
    pub(super) fn has_authority(&self) -> bool {
        !self.ca_file.as_os_str().is_empty() || !self.ca_dir.as_os_str().is_empty()
    }
}
