//! Certificates, keys and authorities, read from files in PEM.

use super::TlsError;
use super::facts::CertificateFacts;
use super::settings::{Identity, Settings};
use crate::sys::files::read_regular;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

fn bad(path: &Path, reason: impl ToString) -> FileError {
    FileError {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// The certificate of an identity with its key.
///
/// # Errors
/// A file cannot be read, holds no certificate or no key that can sign, or the passphrase is
/// wrong; key and certificate do not belong together.
pub(super) fn certified_key(
    identity: &Identity,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(&identity.certificate)?;
    let key = private_key(&identity.key, &identity.passphrase)?;
    let signing = provider.key_provider.load_private_key(key);
    let signing = signing.map_err(|error| bad(&identity.key, error))?;
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err(TlsError::Mismatch {
                key: identity.key.display().to_string(),
                certificate: identity.certificate.display().to_string(),
            })
        }
        // A certificate of the first version cannot be compared, but shown.
        _ => Ok(certified),
    }
}

/// Longest file, in bytes. Those with all authorities of the web are a quarter of that.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// The bytes of a file. Threads with connections read it when a client has named it.
fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    read_regular(path, FILE_MAX_BYTES).map_err(|error| bad(path, error))
}

/// All certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let text = read(path)?;
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| bad(path, error))?;
    match found.is_empty() {
        true => Err(bad(path, "there is no certificate in it")),
        false => Ok(found),
    }
}

/// The first private key of a file.
fn private_key(path: &Path, passphrase: &[u8]) -> Result<PrivateKeyDer<'static>, FileError> {
    let text = read(path)?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => encrypted_key(path, &text, passphrase),
        Err(error) => Err(bad(path, error)),
    }
}

/// A key in encrypted PKCS #8, which `openssl genpkey` and `openssl pkcs8` write.
fn encrypted_key(
    path: &Path,
    text: &[u8],
    passphrase: &[u8],
) -> Result<PrivateKeyDer<'static>, FileError> {
    const LABEL: &str = "ENCRYPTED PRIVATE KEY";
    let text = std::str::from_utf8(text).map_err(|_| bad(path, "there is no key in it"))?;
    let begin = text.find(&format!("-----BEGIN {LABEL}-----"));
    let begin = begin.ok_or_else(|| bad(path, "there is no key in it"))?;
    let (_, document) = pkcs8::SecretDocument::from_pem(text.get(begin..).unwrap_or_default())
        .map_err(|error| bad(path, error))?;
    let info = pkcs8::EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|error| bad(path, error))?;
    let wrong = "the passphrase does not open the key in it";
    let key = info.decrypt(passphrase).map_err(|_| bad(path, wrong))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// The authorities of the settings, at least one, and that of them whose certificate ends first.
///
/// # Errors
/// None are named, or what is named holds none.
pub(super) fn authorities(
    settings: &Settings,
) -> Result<(RootCertStore, Option<CertificateFacts>), TlsError> {
    if !settings.has_authority() {
        return Err(TlsError::NoAuthority);
    }
    let mut roots = RootCertStore::empty();
    let mut first = None;
    let mut note = |found: &[CertificateDer<'_>]| {
        let known = [first.take(), CertificateFacts::of_first_to_end(found)];
        first = known
            .into_iter()
            .flatten()
            .min_by_key(|known| known.not_after_s);
    };
    if !settings.ca_file.as_os_str().is_empty() {
        let found = certificates(&settings.ca_file)?;
        note(&found);
        for certificate in found {
            let added = roots.add(certificate);
            added.map_err(|error| bad(&settings.ca_file, error))?;
        }
    }
    if !settings.ca_dir.as_os_str().is_empty() {
        let unreadable = |error: io::Error| bad(&settings.ca_dir, error);
        for entry in fs::read_dir(&settings.ca_dir).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            // Such a directory has other files too, among them links with hashes for names.
            if path.is_file()
                && let Ok(found) = certificates(&path)
            {
                note(&found);
                roots.add_parsable_certificates(found);
            }
        }
        if roots.is_empty() {
            return Err(bad(&settings.ca_dir, "there is no certificate in it").into());
        }
    }
    Ok((roots, first))
}

/// What tells that a file is another one than before.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// Device, inode, bytes, and the time of the last change in seconds and nanoseconds; `None`
    /// if there is no such file.
    state: Option<(u64, u64, u64, i64, i64)>,
}

/// The files of settings as they are now. Two of them differ if a file has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamps(Vec<Stamp>);

impl Stamps {
    /// Looks at the files.
    fn of(settings: &Settings) -> Stamps {
        let identities = [Some(&settings.identity), settings.client_identity.as_ref()];
        let identities = identities.into_iter().flatten();
        let mut paths: Vec<&Path> = identities
            .flat_map(|identity| [identity.certificate.as_path(), identity.key.as_path()])
            .collect();
        paths.extend([settings.ca_file.as_path(), settings.ca_dir.as_path()]);
        let in_dir = fs::read_dir(&settings.ca_dir)
            .into_iter()
            .flatten()
            .flatten();
        let mut in_dir: Vec<PathBuf> = in_dir.map(|entry| entry.path()).collect();
        in_dir.sort();
        paths.extend(in_dir.iter().map(PathBuf::as_path));
        let named = paths
            .into_iter()
            .filter(|path| !path.as_os_str().is_empty());
        let stamp = |path: &Path| Stamp {
            path: path.to_owned(),
            state: fs::metadata(path).ok().as_ref().map(state),
        };
        Stamps(named.map(stamp).collect())
    }
}

/// Settings and the files that they name, as they were when something was made of them.
#[derive(Debug)]
pub struct Files {
    settings: Settings,
    stamps: Stamps,
    /// The files when they were last found to be unusable.
    unusable: Mutex<Option<Stamps>>,
    /// What stood in them.
    pub(super) facts: Facts,
}

/// Certificates that an end was made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its own.
    pub own: Option<CertificateFacts>,
    /// Of the authorities by which it checks others, the one that ends first.
    pub authority: Option<CertificateFacts>,
}

impl Files {
    /// Looks at the files. Before they are read: a change while they are read is seen later.
    pub(super) fn of(settings: &Settings) -> Files {
        Files {
            settings: settings.clone(),
            stamps: Stamps::of(settings),
            unusable: Mutex::new(None),
            facts: Facts::default(),
        }
    }

    /// Certificates that stood in them.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What they were asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// An end of connections, made of settings and of the files that they name.
pub trait End: Sized {
    /// Reads the files.
    ///
    /// # Errors
    /// Something is missing, cannot be read, or does not fit together.
    fn make(settings: &Settings) -> Result<Self, TlsError>;

    /// What it was made of.
    fn files(&self) -> &Files;

    /// An end of the same settings, if a file has changed.
    ///
    /// # Errors
    /// As [`End::make`], for the files as they are now.
    fn renewed(&self) -> Option<Result<Self, TlsError>> {
        let files = self.files();
        let changed = Stamps::of(&files.settings) != files.stamps;
        changed.then(|| Self::make(&files.settings))
    }

    /// Whether the files are others than at the last call: what is wrong with them is news.
    fn fails_anew(&self) -> bool {
        let files = self.files();
        let now = Stamps::of(&files.settings);
        let mut unusable = files.unusable.lock();
        let news = unusable.as_ref() != Some(&now);
        *unusable = Some(now);
        news
    }
}

fn state(file: &Metadata) -> (u64, u64, u64, i64, i64) {
    (
        file.dev(),
        file.ino(),
        file.len(),
        file.mtime(),
        file.mtime_nsec(),
    )
}
