//! The nodes of the cluster that this server is, or is a replica of, as clients see them.
//!
//! There is one master, which owns all slots, and its replicas. A replica announces itself as a
//! node with REPLCONF; its master sends all that it knows to its replicas, whenever that changes.
//! So each of them can tell clients of all.

use super::Server;
use super::clients::{ClientFlags, ClientInfo};
use super::config::Config;
use super::node::Node;
use super::replication::{Feeding, LinkPhase, Replica};
use crate::base::time::UnixMs;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// How far the port of a node's bus is above its own, as clients expect it.
const BUS_ABOVE: u32 = 10_000;

/// All nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// The owner of the slots.
    pub master: Node,
    /// Its replicas.
    pub replicas: Vec<Node>,
}

impl Nodes {
    /// All of them, the master first.
    pub fn all(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(&self.master).chain(&self.replicas)
    }

    /// The lines that a master sends to its replicas.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for node in self.all() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", node.line());
        }
        text
    }
}

/// The address without the port, of `ip:port` or `[ip]:port`.
fn ip_of(address: &str) -> &str {
    let ip = address.rsplit_once(':').map_or("", |(ip, _)| ip);
    let ip = ip.trim_matches(['[', ']']);
    // Of a client that has come over IPv4 to a socket of IPv6.
    ip.strip_prefix("::ffff:").unwrap_or(ip)
}

fn first_set<T: PartialEq + Default>(choices: impl IntoIterator<Item = T>) -> T {
    let none = T::default();
    let mut choices = choices.into_iter();
    choices.find(|choice| *choice != none).unwrap_or(none)
}

impl Server {
    /// Whether a client has connected to the port for TLS.
    pub fn speaks_tls(&self, client: &ClientInfo) -> bool {
        let tls_port = self.config.load().tls_port;
        let port = client.laddr.rsplit_once(':').map(|(_, port)| port);
        tls_port != 0 && port.and_then(|port| port.parse().ok()) == Some(tls_port)
    }

    /// This server as a node, for a client or, if there is none, for another node, which knows the
    /// address.
    pub fn own_node(&self, client: Option<&ClientInfo>) -> Node {
        let config = self.config.load();
        let reached = match client {
            Some(client) if !client.flags().contains(ClientFlags::UNIX_SOCKET) => {
                ip_of(&client.laddr)
            }
            _ => "",
        };
        let is_replica = self.replication.is_replica();
        Node {
            id: self.engine.node_id(),
            ip: first_set([
                config.cluster_announce_ip.as_str(),
                config.replica_announce_ip.as_str(),
                reached,
            ])
            .to_owned(),
            hostname: config.cluster_announce_hostname.0.clone(),
            port: first_set([
                config.cluster_announce_port,
                plain_port(&config),
                config.port,
            ]),
            tls_port: first_set([config.cluster_announce_tls_port, config.tls_port]),
            bus_port: first_set([
                u32::from(config.cluster_announce_bus_port),
                u32::from(config.cluster_port),
                u32::from(config.first_port()) + BUS_ABOVE,
            ]),
            is_online: !is_replica || self.replication.link.phase() == LinkPhase::Connected,
            is_connected: true,
            offset: self.engine.binlog.range().next_position.offset().0,
            heard_ms: UnixMs::NONE,
        }
    }

    /// All nodes, as they are shown to a client or told to another node.
    pub fn cluster_nodes(&self, client: Option<&ClientInfo>) -> Nodes {
        let own = self.own_node(client);
        let connected = self.replication.replicas();
        let connected = connected.iter().filter_map(|replica| node_of(replica));
        let master = self.replication.desired().master.clone();
        let Some(address) = master else {
            return Nodes {
                master: own,
                replicas: connected.collect(),
            };
        };
        let link = &self.replication.link;
        // The one that has told of the others does not know where it was reached.
        let told = link.nodes().into_iter().map(|mut node| {
            if node.ip.is_empty() {
                node.ip.clone_from(&address.host);
            }
            if node.port_for(false) == 0 {
                node.port = address.port;
            }
            node
        });
        let mut told = told.collect::<Vec<Node>>().into_iter();
        let mut master = told.next().unwrap_or_else(|| Node {
            // It is no node, or has not told of itself yet.
            id: self.engine.replication_id(),
            ip: address.host.clone(),
            port: address.port,
            bus_port: u32::from(address.port) + BUS_ABOVE,
            ..Node::default()
        });
        master.is_online = true;
        master.is_connected = link.phase() == LinkPhase::Connected;
        master.offset = link.master_next.load(Ordering::Relaxed).offset().0;
        master.heard_ms = link.heard_ms.load(Ordering::Relaxed);
        let mut replicas: Vec<Node> = told.filter(|node| node.id != own.id).collect();
        replicas.push(own);
        for node in connected {
            if replicas.iter().all(|known| known.id != node.id) {
                replicas.push(node);
            }
        }
        Nodes { master, replicas }
    }

    /// The error that sends a client with a key of this slot to the master.
    pub fn moved(&self, slot: u16, client: &ClientInfo) -> String {
        let master = self.cluster_nodes(Some(client)).master;
        let kind = self.config.load().cluster_preferred_endpoint_type;
        let port = master.port_for(self.speaks_tls(client));
        format!("MOVED {slot} {}:{port}", master.endpoint(kind))
    }
}

/// The port that is announced to masters, unless it is one for TLS.
fn plain_port(config: &Config) -> u16 {
    match config.tls_replication {
        true => 0,
        false => config.replica_announce_port,
    }
}

/// A connected replica as a node, if it is one.
fn node_of(replica: &Replica) -> Option<Node> {
    let mut node = replica.node.clone()?;
    if node.ip.is_empty() {
        node.ip.clone_from(&replica.ip);
    }
    node.is_online = replica.feeding() == Feeding::Online;
    node.is_connected = true;
    node.offset = replica.acked.load(Ordering::Relaxed).offset().0;
    node.heard_ms = replica.acked_ms.load(Ordering::Relaxed);
    Some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_client_is_that_of_its_socket() {
        assert_eq!(ip_of("127.0.0.1:6379"), "127.0.0.1");
        assert_eq!(ip_of("[::1]:6379"), "::1");
        assert_eq!(ip_of("[::ffff:10.0.0.1]:6379"), "10.0.0.1");
        assert_eq!(ip_of(""), "");
    }
}
