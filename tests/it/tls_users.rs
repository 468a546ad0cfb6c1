//! Logins by the certificates of clients (`tls-auth-clients-user`).

use crate::support::tls::{Authority, TlsServer};
use crate::support::{Conn, Value, wait_for};
use rcgen::string::{BmpString, Ia5String};
use rcgen::{DnType, DnValue, SanType};
use std::time::Duration;

/// As whom a connection with this certificate acts.
fn who(tls: &TlsServer, authority: &Authority, file: &str) -> String {
    tls.connect_as(authority, file).cmd("ACL WHOAMI").text()
}

fn by(conn: &mut Conn, field: &str) {
    let set = conn.call(&["CONFIG", "SET", "tls-auth-clients-user", field]);
    assert_eq!(set, Value::ok());
}

fn allow(conn: &mut Conn, user: &str, rules: &str) {
    let rules = rules.split(' ');
    let words: Vec<&str> = ["ACL", "SETUSER", user].into_iter().chain(rules).collect();
    assert_eq!(conn.call(&words), Value::ok());
}

/// Reason, user and count of the newest entry of ACL LOG.
fn logged(conn: &mut Conn) -> Option<(String, String, i64)> {
    let Value::Array(entries) = conn.cmd("ACL LOG 1") else {
        panic!("no array");
    };
    let Some(Value::Array(fields)) = entries.first() else {
        return None;
    };
    let field = |name: &str| {
        let at = fields.iter().position(|field| *field == Value::bulk(name));
        &fields[at.unwrap() + 1]
    };
    let text = |name: &str| field(name).text();
    Some((text("reason"), text("username"), field("count").int()))
}

#[test]
fn clients_are_logged_in_by_the_common_name_of_their_certificate() {
    let authority = Authority::new();
    let tls = TlsServer::start(&authority, &["--tls-auth-clients-user", "CN"]);
    let mut admin = tls.server.connect();
    assert_eq!(who(&tls, &authority, "client"), "default");
    let expected = Some(("tls-cert".to_owned(), "client".to_owned(), 1));
    assert_eq!(logged(&mut admin), expected);
    allow(&mut admin, "client", "on ~mine:* +@all -flushall");
    let mut conn = tls.connect(&authority);
    assert_eq!(conn.cmd("ACL WHOAMI"), Value::bulk("client"));
    assert_eq!(conn.cmd("SET mine:key value"), Value::ok());
    for refused in ["SET key value", "FLUSHALL"] {
        let refused = conn.cmd(refused);
        assert!(
            refused.error().unwrap().starts_with("NOPERM"),
            "{refused:?}"
        );
    }
    assert!(conn.cmd("CLIENT INFO").text().contains("user=client"));
    // RESET makes it a new connection, which is that of the default user.
    assert_eq!(conn.cmd("RESET"), Value::simple("RESET"));
    assert_eq!(conn.cmd("ACL WHOAMI"), Value::bulk("default"));
    // A password is asked of those alone who are not logged in.
    let set = admin.cmd("CONFIG SET requirepass secret");
    assert_eq!(set, Value::ok());
    assert_eq!(who(&tls, &authority, "client"), "client");
    let stranger = tls.connect_as(&authority, "server").cmd("PING");
    assert!(stranger.error().unwrap().starts_with("NOAUTH"));
    // A user who is turned off or gone is no user.
    let mut held = tls.connect(&authority);
    assert_eq!(held.cmd("ACL WHOAMI"), Value::bulk("client"));
    assert_eq!(admin.cmd("AUTH secret"), Value::ok());
    allow(&mut admin, "client", "off");
    let set = admin.call(&["CONFIG", "SET", "requirepass", ""]);
    assert_eq!(set, Value::ok());
    assert_eq!(who(&tls, &authority, "client"), "default");
    allow(&mut admin, "client", "on");
    assert_eq!(who(&tls, &authority, "client"), "client");
    // Whoever is connected stays so until the user is gone.
    assert_eq!(held.cmd("ACL WHOAMI"), Value::bulk("client"));
    assert_eq!(admin.cmd("ACL DELUSER client"), Value::Int(1));
    assert!(held.closed_within(Duration::from_secs(10)));
    assert_eq!(who(&tls, &authority, "client"), "default");
    let denied = admin.info_number("stats", "acl_access_denied_tls_cert");
    assert_eq!(denied, 4);
    // Nobody is logged in where that is not asked, or no certificate is.
    allow(&mut admin, "client", "on ~* +@all");
    by(&mut admin, "off");
    assert_eq!(who(&tls, &authority, "client"), "default");
    by(&mut admin, "CN");
    assert_eq!(admin.cmd("CONFIG SET tls-auth-clients no"), Value::ok());
    assert_eq!(who(&tls, &authority, "client"), "default");
    let again = admin.info_number("stats", "acl_access_denied_tls_cert");
    assert_eq!(again, denied);
}

#[test]
fn clients_are_logged_in_by_a_uri_of_their_certificate() {
    let authority = Authority::new();
    let audit = authority.file("audit.log");
    let flags = ["--tls-auth-clients-user", "URI", "--audit-log", &audit];
    let tls = TlsServer::start(&authority, &flags);
    let mut admin = tls.server.connect();
    let uri = |text: &str| SanType::URI(Ia5String::try_from(text).unwrap());
    authority.certify_with("several", |params| {
        params.distinguished_name.push(DnType::CommonName, "client");
        let names = ["urn:user:first", "urn:user:second\0x", "urn:user:third"];
        params.subject_alt_names = names.map(uri).to_vec();
    });
    for user in ["client", "urn:user:second"] {
        allow(&mut admin, user, "on ~* +@all");
    }
    assert_eq!(who(&tls, &authority, "several"), "default");
    let last = "urn:user:third".to_owned();
    assert_eq!(logged(&mut admin), Some(("tls-cert".into(), last, 1)));
    wait_for("a line of the audit log", || {
        let text = std::fs::read_to_string(&audit).unwrap();
        let words = ["refused", "user=\"urn:user:third\"", "reason=tls-cert"];
        let is_it = |line: &str| words.iter().all(|word| line.contains(word));
        text.lines().any(is_it)
    });
    allow(&mut admin, "urn:user:third", "on ~* +@all");
    assert_eq!(who(&tls, &authority, "several"), "urn:user:third");
    allow(&mut admin, "urn:user:first", "on ~* +@all");
    assert_eq!(who(&tls, &authority, "several"), "urn:user:first");
    allow(&mut admin, "urn:user:first", "off");
    assert_eq!(who(&tls, &authority, "several"), "urn:user:third");
    by(&mut admin, "CN");
    assert_eq!(who(&tls, &authority, "several"), "client");
}

/// Names that look like that of a user to somebody who reads them carelessly.
#[test]
fn names_that_are_not_quite_those_of_a_user_log_nobody_in() {
    let authority = Authority::new();
    let audit = authority.file("audit.log");
    let flags = ["--tls-auth-clients-user", "CN", "--audit-log", &audit];
    let tls = TlsServer::start(&authority, &flags);
    let mut admin = tls.server.connect();
    for user in ["admin", "admi"] {
        allow(&mut admin, user, "on ~* +@all");
    }
    allow(&mut admin, "disabled", "off ~* +@all");
    let long = "\u{e9}".repeat(20_000);
    let two = BmpString::try_from("\u{6164}\u{6d69}").unwrap();
    let texts = [
        "admin\0attacker",
        "admin\0",
        "\0admin",
        "Admin",
        "admin ",
        "disabled",
        &long,
    ];
    let hostile = texts.map(DnValue::from).into_iter();
    for (round, value) in hostile.chain([DnValue::BmpString(two)]).enumerate() {
        authority.certify_with("hostile", |params| {
            params.distinguished_name.push(DnType::CommonName, value);
        });
        assert_eq!(who(&tls, &authority, "hostile"), "default", "{round}");
        let denied = admin.info_number("stats", "acl_access_denied_tls_cert");
        assert_eq!(denied, round as u64 + 1);
        let (reason, user, _) = logged(&mut admin).unwrap();
        assert_eq!(reason, "tls-cert");
        assert!(!user.is_empty() && user.len() <= 1024);
    }
    let denied = admin.info_number("stats", "acl_access_denied_tls_cert");
    // A long name has left room for what stands behind it.
    let refused = || {
        let text = std::fs::read_to_string(&audit).unwrap();
        let lines = text.lines().filter(|line| line.contains(" refused "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for("lines of the audit log", || {
        refused().len() as u64 == denied
    });
    for line in refused() {
        assert!(line.len() < 2048, "{line}");
        assert!(line.contains(" addr=\"127.0.0.1:"), "{line}");
        assert!(line.ends_with(" reason=tls-cert"), "{line}");
    }
    // No name at all, and an empty one, are nothing to record.
    authority.certify_with("hostile", |_| ());
    assert_eq!(who(&tls, &authority, "hostile"), "default");
    authority.certify("", "hostile");
    assert_eq!(who(&tls, &authority, "hostile"), "default");
    let now = admin.info_number("stats", "acl_access_denied_tls_cert");
    assert_eq!(now, denied);
    // Of several names the first counts, and no other is looked at.
    for (first, second, expected) in [("guest", "admin", "default"), ("admin", "guest", "admin")] {
        authority.certify_with("hostile", |params| {
            let names = &mut params.distinguished_name;
            names.push(DnType::CommonName, first);
            names.push(DnType::CustomDnType(vec![2, 5, 4, 3]), second);
        });
        assert_eq!(who(&tls, &authority, "hostile"), expected);
    }
}
