use super::*;
use crate::tls::CertificateFacts;
use rcgen::{CertificateParams, KeyPair, SerialNumber};
use std::fs;
use std::path::PathBuf;

/// Files of a certificate in a directory.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let dir = tempfile::tempdir().unwrap();
        Files { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A certificate with its key in PEM, in this order.
    fn made(serial: u8) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(&[serial]));
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Puts new files in the places of old ones.
    fn certify(&self, name: &str, serial: u8) {
        let (certificate, key) = Files::made(serial);
        for (end, text) in [("key", key), ("crt", certificate)] {
            self.replace(&format!("{name}.{end}"), &text);
        }
    }

    fn replace(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }

    fn config(&self, name: &str) -> Config {
        Config {
            tls_port: 1,
            tls_auth_clients: TlsAuthClients::No,
            tls_cert_file: self.path(&format!("{name}.crt")),
            tls_key_file: self.path(&format!("{name}.key")),
            ..Config::default()
        }
    }
}

fn serial(tls: &Tls) -> Option<String> {
    tls.in_use()
        .server
        .map(|known: CertificateFacts| known.serial)
}

fn is(tls: &Tls, expected: &str) {
    assert_eq!(serial(tls).as_deref(), Some(expected));
}

/// A file that is seen to have changed is read while CONFIG SET names another one. What was read
/// of the old one must not take the place of the new settings.
#[test]
fn settings_that_come_while_files_are_read_stay() {
    let files = Files::new();
    files.certify("first", 1);
    files.certify("second", 2);
    let tls = Tls::default();
    tls.apply(&files.config("first")).unwrap();
    is(&tls, "01");
    let old = tls.ends.read().acceptor.clone().unwrap();
    files.certify("first", 3);
    let new = old.renewed().expect("a change");
    tls.apply(&files.config("second")).unwrap();
    is(&tls, "02");
    tls.replace("tls-port", |ends| &mut ends.acceptor, &old, new);
    is(&tls, "02");
    // What comes later is seen.
    files.certify("second", 4);
    tls.renew();
    is(&tls, "04");
}

#[test]
fn files_that_cannot_be_used_change_nothing() {
    let files = Files::new();
    files.certify("server", 1);
    let tls = Tls::default();
    tls.apply(&files.config("server")).unwrap();
    tls.renew();
    is(&tls, "01");
    files.replace("server.crt", "half a certificate");
    tls.renew();
    is(&tls, "01");
    assert!(tls.apply(&files.config("server")).is_err());
    is(&tls, "01");
    files.certify("server", 2);
    tls.renew();
    is(&tls, "02");
}

#[test]
fn certificates_in_use_are_told_by_what_they_are_for() {
    let files = Files::new();
    for (name, serial) in [("server", 1), ("client", 2), ("authority", 3)] {
        files.certify(name, serial);
    }
    let serials = |config: &Config| {
        let tls = Tls::default();
        tls.apply(config).unwrap();
        let known = tls.in_use();
        [known.server, known.client, known.authority]
            .map(|known| known.map_or("none".to_owned(), |known| known.serial))
    };
    assert_eq!(serials(&Config::default()), ["none", "none", "none"]);
    let mut config = files.config("server");
    config.tls_ca_cert_file = files.path("authority.crt");
    assert_eq!(serials(&config), ["01", "none", "none"]);
    config.tls_auth_clients = TlsAuthClients::Yes;
    assert_eq!(serials(&config), ["01", "none", "03"]);
    config.tls_client_cert_file = files.path("client.crt");
    config.tls_client_key_file = files.path("client.key");
    assert_eq!(serials(&config), ["01", "none", "03"]);
    config.tls_replication = true;
    assert_eq!(serials(&config), ["01", "02", "03"]);
    config.tls_port = 0;
    assert_eq!(serials(&config), ["none", "02", "03"]);
    config.tls_client_cert_file = PathBuf::new();
    assert_eq!(serials(&config), ["01", "none", "03"]);
}

#[test]
fn files_are_looked_at_as_often_as_was_asked() {
    let files = Files::new();
    files.certify("server", 1);
    let tls = Tls::default();
    tls.apply(&files.config("server")).unwrap();
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    tls.renew_if_due(3, at(0));
    files.certify("server", 2);
    for (interval_s, ms) in [(3, 2_999), (0, 3_000), (0, 100_000)] {
        tls.renew_if_due(interval_s, at(ms));
        is(&tls, "01");
    }
    tls.renew_if_due(3, at(100_000));
    is(&tls, "02");
    files.certify("server", 3);
    tls.renew_if_due(3, at(102_999));
    is(&tls, "02");
    tls.renew_if_due(1, at(102_999));
    is(&tls, "03");
}
