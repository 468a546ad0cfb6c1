use super::*;
use crate::sys::pause::is_pause;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// An authority that certifies, with its files in a directory.
struct Authority {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.path().join("ca.crt"), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Authority { dir, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Certifies `name` and writes the files of it.
    fn certify(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let identity = Identity {
            certificate: self.path(&format!("{name}.crt")),
            key: self.path(&format!("{name}.key")),
            passphrase: Vec::new(),
        };
        fs::write(&identity.certificate, certificate.pem()).unwrap();
        fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }

    fn settings(&self, name: &str) -> Settings {
        Settings {
            identity: self.certify(name),
            ca_file: self.path("ca.crt"),
            ..Settings::default()
        }
    }
}

fn without_certificate(settings: &Settings) -> Settings {
    Settings {
        identity: Identity::default(),
        ..settings.clone()
    }
}

/// Both ends over a connection; the error of either.
fn connect(server: &Settings, client: &Settings) -> Result<(TlsSocket<TcpStream>, Link), String> {
    let acceptor = Acceptor::new(server).map_err(|error| error.to_string())?;
    let connector = Connector::new(client).map_err(|error| error.to_string())?;
    meet(&acceptor, &Arc::new(connector))
}

fn meet(
    acceptor: &Acceptor,
    connector: &Arc<Connector>,
) -> Result<(TlsSocket<TcpStream>, Link), String> {
    let text = |error: io::Error| error.to_string();
    let connector = connector.clone();
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(text)?;
    let address = listener.local_addr().map_err(text)?;
    let connecting = thread::spawn(move || {
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut link = connector.connect(socket, "anything", PATIENCE, || true)?;
        // In TLS 1.3 the server refuses a certificate after the client has finished.
        link.write_all(b"hello")?;
        let mut answer = [0; 5];
        link.read_exact(&mut answer)?;
        Ok::<_, io::Error>(link)
    });
    let (socket, _) = listener.accept().map_err(text)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(text)?;
    let mut socket = acceptor.accept(socket).map_err(|error| error.to_string())?;
    let mut greeting = [0; 5];
    let served = socket
        .read_exact(&mut greeting)
        .and_then(|()| socket.write_all(&greeting));
    if let Err(error) = served {
        drop(socket);
        let _ = connecting.join();
        return Err(error.to_string());
    }
    let link = connecting.join().unwrap().map_err(text)?;
    Ok((socket, link))
}

#[test]
fn both_versions_are_spoken_and_neither_end_takes_another() {
    let authority = Authority::new();
    let all = authority.settings("server");
    let only = |text: &str| Settings {
        protocols: Protocols::parse(text).unwrap(),
        ..all.clone()
    };
    for version in ["TLSv1.2", "TLSv1.3"] {
        connect(&all, &only(version)).unwrap();
        connect(&only(version), &all).unwrap();
    }
    let refused = connect(&only("TLSv1.2"), &only("TLSv1.3")).map(|_| ());
    assert!(refused.is_err());
    assert!(Protocols::parse("TLSv1.1").is_err());
    assert!(Protocols::parse("nonsense").is_err());
}

#[test]
fn clients_show_certificates_as_the_settings_ask() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.settings("server");
    let known = authority.settings("client");
    let nobody = without_certificate(&known);
    // Certified by another authority, and trusts that of the server.
    let unknown = Settings {
        identity: stranger.certify("client"),
        ..known.clone()
    };
    for (auth, takes_nobody, takes_unknown) in [
        (ClientAuth::Yes, false, false),
        (ClientAuth::Optional, true, false),
        (ClientAuth::No, true, true),
    ] {
        let server = Settings {
            client_auth: auth,
            ..server.clone()
        };
        let (socket, _link) = connect(&server, &known).unwrap();
        assert_eq!(socket.peer_certificate().is_some(), auth != ClientAuth::No);
        assert_eq!(connect(&server, &nobody).is_ok(), takes_nobody, "{auth:?}");
        assert_eq!(
            connect(&server, &unknown).is_ok(),
            takes_unknown,
            "{auth:?}"
        );
    }
}

/// A session that goes on has no whole handshake, in which the certificate would come.
#[test]
fn the_certificate_of_a_client_is_known_in_a_session_that_goes_on() {
    let authority = Authority::new();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let settings = Settings {
            protocols: Protocols::parse(version).unwrap(),
            sessions: Some(SessionCache {
                size: 10,
                timeout_s: 300,
            }),
            ..authority.settings("server")
        };
        let acceptor = Acceptor::new(&settings).unwrap();
        let client = Settings {
            identity: authority.certify("client"),
            ..settings
        };
        let connector = Arc::new(Connector::new(&client).unwrap());
        for is_resumed in [false, true] {
            let (socket, _link) = meet(&acceptor, &connector).unwrap();
            assert_eq!(socket.is_resumed(), is_resumed, "{version}");
            let shown = socket.peer_certificate().unwrap();
            let [name] = names(shown, NameField::CommonName)[..] else {
                panic!("no name");
            };
            assert_eq!(name.bytes, b"client");
        }
    }
}

#[test]
fn servers_must_be_certified_and_named_only_if_that_is_asked() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.settings("server");
    let distrusting = Settings {
        ca_file: stranger.path("ca.crt"),
        ..server.clone()
    };
    assert!(connect(&server, &distrusting).is_err());
    let strict = Settings {
        checks_name: true,
        ..server.clone()
    };
    assert!(connect(&server, &strict).is_err());
    connect(&server, &server).unwrap();
}

/// A stream below that takes and gives few bytes at a time, and now and then none.
struct Slow {
    socket: TcpStream,
    step: usize,
    random: fastrand::Rng,
}

impl Read for Slow {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.random.bool() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let step = self.step.min(into.len());
        self.socket.read(&mut into[..step])
    }
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.random.bool() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let step = self.step.min(bytes.len());
        self.socket.write(&bytes[..step])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn bytes_arrive_as_they_were_sent_however_the_stream_below_cuts_them() {
    let authority = Authority::new();
    let settings = authority.settings("server");
    let acceptor = Acceptor::new(&settings).unwrap();
    for (step, room) in [(1, 3), (7, 70_000), (4096, 1), (70_000, 70_000)] {
        let sent: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        let connector = Connector::new(&settings).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let expected = sent.clone();
        let peer = thread::spawn(move || {
            let socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut link = connector
                .connect(socket, "server", PATIENCE, || true)
                .unwrap();
            link.write_all(&expected).unwrap();
            link.flush().unwrap();
            let mut back = vec![0; expected.len()];
            link.read_exact(&mut back).unwrap();
            assert!(back == expected, "step {step}");
        });
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let random = fastrand::Rng::with_seed(step as u64);
        let slow = Slow {
            socket,
            step,
            random,
        };
        let mut socket = acceptor.accept(slow).unwrap();
        let mut here = Vec::new();
        let mut buffer = vec![0; room];
        while here.len() < sent.len() {
            match socket.read(&mut buffer) {
                Ok(0) => panic!("the peer has gone"),
                Ok(n) => here.extend_from_slice(&buffer[..n]),
                Err(error) => assert!(is_pause(&error), "{error}"),
            }
        }
        assert!(here == sent, "step {step}");
        let mut rest = sent.as_slice();
        while !rest.is_empty() || socket.owes() {
            let done = match rest.is_empty() {
                true => socket.flush().map(|()| 0),
                false => socket.write(rest),
            };
            match done {
                Ok(n) => rest = &rest[n..],
                Err(error) => assert!(is_pause(&error), "{error}"),
            }
        }
        peer.join().unwrap();
    }
}

#[test]
fn what_is_no_tls_is_an_error() {
    let authority = Authority::new();
    let acceptor = Acceptor::new(&authority.settings("server")).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..300 {
        let mut bytes: Vec<u8> = match round % 3 {
            0 => b"PING\r\n".repeat(100),
            // A record of a handshake with anything in it.
            1 => vec![22, 3, 1, 0, random.u8(..)],
            _ => vec![22, 3, 3, random.u8(..), random.u8(..), 1, 0, 1],
        };
        bytes.extend((0..random.usize(..2000)).map(|_| random.u8(..)));
        let sent = bytes.clone();
        let mut socket = acceptor.accept(io::Cursor::new(bytes)).unwrap();
        let mut buffer = [0; 100];
        let mut read = socket.read(&mut buffer);
        while read.as_ref().is_ok_and(|n| *n > 0) {
            read = socket.read(&mut buffer);
        }
        assert!(matches!(read, Ok(0)) || read.is_err());
        if round % 3 == 0 {
            // What is written to such a stream is put over what was sent, or follows it.
            socket.close();
            assert!(*socket.stream().get_ref() == sent);
        }
        assert!(socket.is_handshaking());
    }
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let authority = Authority::new();
    let good = authority.settings("server");
    let other = authority.certify("other");
    let refuse = |settings: Settings| Acceptor::new(&settings).unwrap_err().to_string();
    let with = |identity: Identity| Settings {
        identity,
        ..good.clone()
    };
    let text = refuse(with(Identity {
        key: other.key.clone(),
        ..good.identity.clone()
    }));
    assert!(text.contains("does not belong"), "{text}");
    let text = refuse(with(Identity {
        certificate: authority.path("missing.crt"),
        ..good.identity.clone()
    }));
    assert!(text.contains("missing.crt"), "{text}");
    let text = refuse(with(Identity::default()));
    assert_eq!(text, "No tls-cert-file configured!");
    let text = refuse(Settings {
        ca_file: PathBuf::new(),
        ..good.clone()
    });
    assert!(text.starts_with("Either tls-ca-cert-file"), "{text}");
    let junk = authority.path("junk.crt");
    fs::write(&junk, "no certificate").unwrap();
    let text = refuse(Settings {
        ca_file: junk,
        ..good.clone()
    });
    assert!(text.contains("there is no certificate in it"), "{text}");
}

#[test]
fn a_directory_of_authorities_may_hold_other_files() {
    let authority = Authority::new();
    fs::write(authority.path("README"), "these are authorities").unwrap();
    let good = authority.settings("server");
    let by_dir = Settings {
        ca_file: PathBuf::new(),
        ca_dir: authority.dir.path().to_owned(),
        ..good.clone()
    };
    connect(&by_dir, &by_dir).unwrap();
}

#[test]
fn changed_files_are_noticed() {
    let authority = Authority::new();
    let settings = authority.settings("server");
    let acceptor = Acceptor::new(&settings).unwrap();
    assert!(acceptor.renewed().is_none());
    replace(&settings.identity.certificate, b"half a certi");
    assert!(acceptor.renewed().unwrap().is_err());
    assert!(acceptor.fails_anew());
    assert!(!acceptor.fails_anew());
    let renewed = authority.certify("server");
    assert_eq!(renewed, settings.identity);
    assert!(acceptor.renewed().unwrap().is_ok());
}

/// As tools do that renew certificates: a new file in the place of the old one.
fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
fn a_key_may_be_encrypted() {
    let authority = Authority::new();
    let mut settings = authority.settings("server");
    let plain = fs::read(&settings.identity.key).unwrap();
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::pki_types::pem::PemObject;
    let der = PrivatePkcs8KeyDer::from_pem_slice(&plain).unwrap();
    let info = pkcs8::PrivateKeyInfoRef::try_from(der.secret_pkcs8_der()).unwrap();
    let sealed = info.encrypt(b"open sesame").unwrap();
    let ending = pkcs8::LineEnding::LF;
    let pem = sealed.to_pem("ENCRYPTED PRIVATE KEY", ending).unwrap();
    fs::write(&settings.identity.key, pem.as_bytes()).unwrap();
    let text = Acceptor::new(&settings).unwrap_err().to_string();
    assert!(text.contains("passphrase"), "{text}");
    settings.identity.passphrase = b"open sesame".to_vec();
    Acceptor::new(&settings).unwrap();
}

#[test]
fn ciphers_have_the_names_that_openssl_gives_them() {
    let authority = Authority::new();
    let good = authority.settings("server");
    let with = |suites_12: &str, suites_13: &str| Settings {
        suites_12: SuiteNames::of_12(suites_12).unwrap(),
        suites_13: SuiteNames::of_13(suites_13).unwrap(),
        ..good.clone()
    };
    let chacha = with("DEFAULT", "TLS_CHACHA20_POLY1305_SHA256");
    let aes = with("", "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384");
    connect(&chacha, &good).unwrap();
    connect(&aes, &good).unwrap();
    let only_13 = |settings: Settings| Settings {
        protocols: Protocols::parse("TLSv1.3").unwrap(),
        ..settings
    };
    assert!(connect(&only_13(chacha), &only_13(aes)).is_err());
    connect(
        &with("DEFAULT:!ECDHE-RSA-AES128-GCM-SHA256:!aNULL", ""),
        &good,
    )
    .unwrap();
    for wrong in ["AES128-SHA", "TLS_AES_128_GCM_SHA256", "!!"] {
        assert!(
            SuiteNames::of_12(wrong).is_err() || wrong == "!!",
            "{wrong}"
        );
    }
    assert!(SuiteNames::of_13("ECDHE-RSA-AES128-GCM-SHA256").is_err());
}
