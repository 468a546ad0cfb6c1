//! The flags of `kedis_top`.

use crate::migrate::{Address, Endpoint, tls};
use clap::Parser;
use std::path::PathBuf;

/// Options of the tool.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "kedis_top",
    about = "Shows which types, prefixes and keys of a Kedis take most space, and which keys most time",
    version,
    disable_version_flag = true
)]
pub struct Options {
    /// Address of the server: host:port, [IPv6]:port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    pub addr: Address,
    /// ACL user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Password
    #[arg(
        long,
        value_name = "TEXT",
        env = "KEDIS_PASSWORD",
        hide_env_values = true
    )]
    pub password: Option<String>,
    /// Speak TLS
    #[arg(long)]
    pub tls: bool,
    /// File, or directory of files, with the authorities that certify the server; without it
    /// those of the system, and then the name in the certificate must be that of the host
    #[arg(
        long = "tls_ca",
        alias = "tls-ca",
        value_name = "PATH",
        requires = "tls"
    )]
    pub tls_ca: Option<PathBuf>,
    /// File with the certificate that is shown to the server
    #[arg(long = "tls_cert", alias = "tls-cert", value_name = "FILE", requires_all = ["tls", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// File with the private key of that certificate
    #[arg(long = "tls_key", alias = "tls-key", value_name = "FILE", requires_all = ["tls", "tls_cert"])]
    pub tls_key: Option<PathBuf>,
    /// Look at this DB only
    #[arg(long, value_name = "N")]
    pub db: Option<u16>,
    /// Look only at keys that begin with this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,
    /// What ends a part of a key
    #[arg(long, value_name = "TEXT", default_value = ":")]
    pub separator: String,
    /// Prefixes end at the first so many separators
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=8))]
    pub depth: u8,
    /// How many keys and prefixes are shown
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=128))]
    pub top: u8,
    /// Rows of a collection that are read to estimate its bytes; 0: all
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(0..=1_000_000_000))]
    pub samples: u32,
    /// Read so many rows a second at the most; 0: as many as possible
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000_000))]
    pub rate: u32,
    /// Show what the last scan has found, instead of a new one
    #[arg(long)]
    pub last: bool,
    /// Collect for so long which keys are used; 0: not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub hot: u32,
    /// Look at one command in so many for that; without it at about 1,000 commands a second
    #[arg(long = "hot_sample", alias = "hot-sample", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub hot_sample: Option<u32>,
    /// Print all as one JSON document
    #[arg(long)]
    pub json: bool,
    /// Show it again and again, with so many seconds in between, or as many as it took
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub watch: Option<u32>,
    /// Print version
    #[arg(long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

impl Options {
    /// The server, with the credentials.
    pub(super) fn server(&self) -> Endpoint {
        let settings = || tls(&self.tls_ca, &self.tls_cert, &self.tls_key);
        Endpoint {
            role: "server",
            address: self.addr.clone(),
            user: self.user.clone(),
            password: self.password.clone(),
            tls: self.tls.then(settings),
        }
    }

    /// The request for a scan.
    pub(super) fn start(&self) -> Vec<String> {
        let mut words = vec!["BIGKEYS".to_owned(), "START".to_owned()];
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        if let Some(db) = self.db {
            option("DB", db.to_string());
        }
        option("PREFIX", self.prefix.clone());
        option("SEPARATOR", self.separator.clone());
        option("DEPTH", self.depth.to_string());
        option("TOP", self.top.to_string());
        option("SAMPLES", self.samples.to_string());
        option("RATE", self.rate.to_string());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        let options = Options::try_parse_from(["t", "--db", "3", "--depth", "2"]).unwrap();
        let words = options.start().join(" ");
        assert_eq!(
            words,
            "BIGKEYS START DB 3 PREFIX  SEPARATOR : DEPTH 2 TOP 10 SAMPLES 1024 RATE 0"
        );
        for wrong in [
            "--depth=9",
            "--top=0",
            "--tls_key=x",
            "--watch=0",
            "--db=-1",
        ] {
            assert!(Options::try_parse_from(["t", wrong]).is_err(), "{wrong}");
        }
    }
}
