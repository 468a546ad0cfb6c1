//! The flags that the three tools share.

use crate::tls::{Identity, Settings};
use clap::Parser;
use std::path::PathBuf;
use std::str::FromStr;

/// Options of a tool.
#[derive(Debug, Clone, Parser)]
#[command(version, disable_version_flag = true)]
pub struct Options {
    /// Address of the source: host:port, [IPv6]:port
    #[arg(
        long = "src_addr",
        alias = "src-addr",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:6379"
    )]
    pub src_addr: Address,
    /// Address of the target
    #[arg(long = "dst_addr", alias = "dst-addr", value_name = "HOST:PORT")]
    pub dst_addr: Address,
    /// DBs to copy: a number, several with commas between them, or -1 for all
    #[arg(
        long = "src_db",
        alias = "src-db",
        value_name = "N",
        default_value = "-1",
        allow_hyphen_values = true
    )]
    pub src_db: Dbs,
    /// Where these DBs go, one for each in the same order; -1: to those of the same numbers
    #[arg(
        long = "dst_db",
        alias = "dst-db",
        value_name = "N",
        default_value = "-1",
        allow_hyphen_values = true
    )]
    pub dst_db: Dbs,
    /// ACL user at the source
    #[arg(long = "src_user", alias = "src-user", value_name = "NAME")]
    pub src_user: Option<String>,
    /// Password at the source
    #[arg(
        long = "src_password",
        alias = "src-password",
        value_name = "TEXT",
        env = "KEDIS_SRC_PASSWORD",
        hide_env_values = true
    )]
    pub src_password: Option<String>,
    /// ACL user at the target
    #[arg(long = "dst_user", alias = "dst-user", value_name = "NAME")]
    pub dst_user: Option<String>,
    /// Password at the target
    #[arg(
        long = "dst_password",
        alias = "dst-password",
        value_name = "TEXT",
        env = "KEDIS_DST_PASSWORD",
        hide_env_values = true
    )]
    pub dst_password: Option<String>,
    /// Speak TLS with the source
    #[arg(long = "src_tls", alias = "src-tls")]
    pub src_tls: bool,
    /// File, or directory of files, with the authorities that certify the source; without it
    /// those of the system, and then the name in the certificate must be that of the host
    #[arg(
        long = "src_tls_ca",
        alias = "src-tls-ca",
        value_name = "PATH",
        requires = "src_tls"
    )]
    pub src_tls_ca: Option<PathBuf>,
    /// File with the certificate that is shown to the source
    #[arg(long = "src_tls_cert", alias = "src-tls-cert", value_name = "FILE", requires_all = ["src_tls", "src_tls_key"])]
    pub src_tls_cert: Option<PathBuf>,
    /// File with the private key of that certificate
    #[arg(long = "src_tls_key", alias = "src-tls-key", value_name = "FILE", requires_all = ["src_tls", "src_tls_cert"])]
    pub src_tls_key: Option<PathBuf>,
    /// Speak TLS with the target
    #[arg(long = "dst_tls", alias = "dst-tls")]
    pub dst_tls: bool,
    /// File, or directory of files, with the authorities that certify the target; without it
    /// those of the system, and then the name in the certificate must be that of the host
    #[arg(
        long = "dst_tls_ca",
        alias = "dst-tls-ca",
        value_name = "PATH",
        requires = "dst_tls"
    )]
    pub dst_tls_ca: Option<PathBuf>,
    /// File with the certificate that is shown to the target
    #[arg(long = "dst_tls_cert", alias = "dst-tls-cert", value_name = "FILE", requires_all = ["dst_tls", "dst_tls_key"])]
    pub dst_tls_cert: Option<PathBuf>,
    /// File with the private key of that certificate
    #[arg(long = "dst_tls_key", alias = "dst-tls-key", value_name = "FILE", requires_all = ["dst_tls", "dst_tls_cert"])]
    pub dst_tls_key: Option<PathBuf>,
    /// Copy only keys that begin with this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,
    /// Keys that begin with OLD begin with NEW at the target
    #[arg(
        long = "rename-prefix",
        alias = "rename_prefix",
        value_name = "OLD=NEW"
    )]
    pub rename_prefix: Option<Rename>,
    /// Connections that write the copy at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallel: u16,
    /// Commands that are sent before their replies are read
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub pipeline: u32,
    /// Read from the source, and write to the target, so many MB a second at the most
    #[arg(
        long = "network_limit",
        alias = "network-limit",
        value_name = "MB/S",
        value_parser = parse_rate
    )]
    pub network_limit: Option<f64>,
    /// End once the target has what the source had when the copy was complete
    #[arg(long = "exit-when-synced", alias = "exit_when_synced")]
    pub exit_when_synced: bool,
    /// Compare all keys, report what differs, copy nothing; with
    /// --exit-when-synced: copy first
    #[arg(long)]
    pub verify: bool,
    /// Keep a checkpoint in this file, and go on from it if it is there; what comes
    /// from the source goes through FILE.rdb and FILE.stream
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Report commands that the target refuses, and go on
    #[arg(long = "keep-going", alias = "keep_going")]
    pub keep_going: bool,
    /// Append figures to this file once a second, as lines of JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Copy an RDB file instead of what a server has
    #[arg(
        long = "rdb_file",
        alias = "rdb-file",
        value_name = "FILE",
        conflicts_with_all = ["src_addr", "verify", "aof_file"]
    )]
    pub rdb_file: Option<PathBuf>,
    /// Replay an append-only file, or a manifest of several, instead of what a server has
    #[arg(
        long = "aof_file",
        alias = "aof-file",
        value_name = "FILE",
        conflicts_with_all = ["src_addr", "verify"]
    )]
    pub aof_file: Option<PathBuf>,
    /// Copy by SCAN and DUMP or the commands of each type, for a source that refuses
    /// PSYNC; follow its keyspace events if it gives them
    #[arg(long, conflicts_with_all = ["rdb_file", "aof_file"])]
    pub scan: bool,
    /// Copy what the source has now, and do not follow it
    #[arg(long = "src_from_rdb", alias = "src-from-rdb")]
    pub src_from_rdb: bool,
    /// Print version
    #[arg(long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

impl Options {
    /// Whether the source is a file.
    pub(super) fn is_offline(&self) -> bool {
        self.rdb_file.is_some() || self.aof_file.is_some()
    }

    /// The source, with its credentials.
    pub fn source(&self) -> Endpoint {
        Endpoint {
            role: "source",
            address: self.src_addr.clone(),
            user: self.src_user.clone(),
            password: self.src_password.clone(),
            tls: self
                .src_tls
                .then(|| tls(&self.src_tls_ca, &self.src_tls_cert, &self.src_tls_key)),
        }
    }

    /// The target, with its credentials.
    pub fn target(&self) -> Endpoint {
        Endpoint {
            role: TARGET,
            address: self.dst_addr.clone(),
            user: self.dst_user.clone(),
            password: self.dst_password.clone(),
            tls: self
                .dst_tls
                .then(|| tls(&self.dst_tls_ca, &self.dst_tls_cert, &self.dst_tls_key)),
        }
    }
}

/// Where the system keeps the certificates of the authorities that it trusts.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs";

/// What TLS needs, with these files if they are named.
pub fn tls(ca: &Option<PathBuf>, certificate: &Option<PathBuf>, key: &Option<PathBuf>) -> Settings {
    let path = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
    let authorities = ca.clone().unwrap_or_else(|| SYSTEM_AUTHORITIES.into());
    let (ca_file, ca_dir) = match authorities.is_dir() {
        true => (PathBuf::new(), authorities),
        false => (authorities, PathBuf::new()),
    };
    Settings {
        identity: Identity {
            certificate: path(certificate),
            key: path(key),
            passphrase: Vec::new(),
        },
        ca_file,
        ca_dir,
        checks_name: ca.is_none(),
        ..Settings::default()
    }
}

/// The role of the server that data are written to.
pub(super) const TARGET: &str = "target";

/// A server with credentials.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `source`, `target`, or `server` if there is only one.
    pub role: &'static str,
    /// Where it is.
    pub address: Address,
    /// The ACL user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// What TLS needs, if it is spoken.
    pub tls: Option<Settings>,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.role, self.address)
    }
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || format!("{text:?} is no HOST:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        if host.is_empty() || bare.is_none() && host.contains(':') {
            return Err(wrong());
        }
        Ok(Address {
            host: host.to_owned(),
            port,
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// All DBs, or a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dbs {
    /// `-1`.
    All,
    /// These; never empty.
    Some(Vec<u64>),
}

impl FromStr for Dbs {
    type Err = String;

    fn from_str(text: &str) -> Result<Dbs, String> {
        if text == "-1" {
            return Ok(Dbs::All);
        }
        let numbers: Result<Vec<u64>, _> = text.split(',').map(|n| n.trim().parse()).collect();
        match numbers {
            Ok(numbers) => Ok(Dbs::Some(numbers)),
            Err(_) => Err(format!("{text:?} is neither numbers of DBs nor -1")),
        }
    }
}

/// A replacement of a prefix of key names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// Prefix at the source.
    pub old: Vec<u8>,
    /// Prefix at the target.
    pub new: Vec<u8>,
}

impl FromStr for Rename {
    type Err = String;

    fn from_str(text: &str) -> Result<Rename, String> {
        let (old, new) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is no OLD=NEW"))?;
        Ok(Rename {
            old: old.into(),
            new: new.into(),
        })
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("a number of MB a second, above 0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = |text: &str| text.parse::<Address>();
        let shown = |text| parse(text).map(|a| (a.host.clone(), a.port, a.to_string()));
        let whole = |host: &str, port, text: &str| Ok((host.to_owned(), port, text.to_owned()));
        assert_eq!(
            shown("db.example:7"),
            whole("db.example", 7, "db.example:7")
        );
        assert_eq!(shown("[::1]:6379"), whole("::1", 6379, "[::1]:6379"));
        for wrong in ["", "host", ":1", "::1:6379", "host:", "host:70000", "[]:1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn flags_are_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        let parsed = Options::try_parse_from(["t", "--dst_addr", "h:1", "--src_db", "-1"]);
        assert_eq!(parsed.map(|o| o.src_db).ok(), Some(Dbs::All));
        let parsed = Options::try_parse_from(["t", "--dst_addr", "h:1", "--src_db", "3,1"]);
        assert_eq!(parsed.map(|o| o.src_db).ok(), Some(Dbs::Some(vec![3, 1])));
    }
}
