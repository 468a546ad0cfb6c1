//! What a replica says of itself before it asks its master for data.

use super::peer::{End, Peer};
use super::redis::refused;
use super::{Dialect, Follower};
use crate::commands::replication::{SET_TIMES, dialect};
use crate::encoding::keys::Layout;
use std::sync::atomic::Ordering;

/// Valkey writes RDB files in the format of its replica's announced version. This is the
/// first version whose format contains everything that can be read here.
const FILES_OF_VALKEY: &[u8] = b"9.0.0";

impl Follower<'_> {
    /// Handshake; returns the master's dialect.
    pub(super) fn shake_hands(&self, peer: &mut Peer<'_>) -> Result<Dialect, End> {
        let config = self.server.config.load();
        let pong = peer.ask(&[b"PING"])?;
        let locked = ["-NOAUTH", "-NOPERM", "-ERR operation not permitted"];
        if pong.starts_with('-') && !locked.iter().any(|text| pong.starts_with(text)) {
            return Err(refused("PING", &pong));
        }
        if !config.masterauth.0.is_empty() {
            let user = config.masteruser.as_bytes();
            let password: &[u8] = config.masterauth.0.as_ref();
            let answer = match user {
                b"" => peer.ask(&[b"AUTH", password])?,
                user => peer.ask(&[b"AUTH", user, password])?,
            };
            if answer.starts_with('-') {
                log::warn!("Unable to AUTH to MASTER: {answer}");
                return Err(refused("AUTH", &answer));
            }
        }
        let port = match config.replica_announce_port {
            0 if config.tls_replication && config.tls_port != 0 => config.tls_port.into(),
            0 => self.server.port.load(Ordering::Relaxed),
            port => port.into(),
        };
        let port = port.to_string();
        let ip = config.replica_announce_ip.as_bytes();
        let dialect = dialect();
        let mut options: Vec<Vec<&[u8]>> = vec![vec![b"listening-port", port.as_bytes()]];
        if !ip.is_empty() {
            options.push(vec![b"ip-address", ip]);
        }
        options.push(vec![b"capa", b"eof", b"capa", b"psync2"]);
        options.push(vec![b"version", FILES_OF_VALKEY]);
        let reads_rows = self.shares_layout(peer)?;
        options.push(match reads_rows {
            true => vec![b"capa", dialect.as_bytes()],
            false => vec![b"capa", SET_TIMES.as_bytes()],
        });
        for words in options {
            let answer = self.replconf(peer, &words)?;
            if answer.starts_with('-') {
                // Old masters answer so, and can be followed all the same.
                log::debug!("the master refused REPLCONF: {answer}");
            }
        }
        // Only Kedis knows this option.
        let run_id = self.server.run_id.as_bytes();
        let dialect = match self.replconf(peer, &[b"run-id", run_id])?.as_str() {
            "+OK" if reads_rows => Dialect::Kedis,
            _ => Dialect::Redis,
        };
        if config.cluster_enabled && dialect == Dialect::Kedis {
            let line = self.server.own_node(None).line();
            let answer = self.replconf(peer, &[b"cluster-node", line.as_bytes()])?;
            if answer.starts_with('-') {
                log::debug!("the master does not list nodes: {answer}");
            }
        }
        Ok(dialect)
    }

    /// Whether the rows of the master, if it is a Kedis, have the layout of the rows here. If not, it
    /// is followed like a Redis, whose data set and stream know no rows.
    fn shares_layout(&self, peer: &mut Peer<'_>) -> Result<bool, End> {
        let layout = self.server.engine.layout;
        let answer = self.replconf(peer, &[b"layout", layout.name().as_bytes()])?;
        Ok(match layout {
            // A build that does not know the option has this layout.
            Layout::Plain => !answer.starts_with("-ERR the master and the replica differ"),
            Layout::Slots => answer == "+OK",
        })
    }

    fn replconf(&self, peer: &mut Peer<'_>, words: &[&[u8]]) -> Result<String, End> {
        let args: Vec<&[u8]> = [&b"REPLCONF"[..]]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        let answer = peer.ask(&args)?;
        match answer.starts_with("-NOAUTH") {
            true => Err(refused("REPLCONF", &answer)),
            false => Ok(answer),
        }
    }
}
