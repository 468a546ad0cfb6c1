//! The nodes of the cluster that this server is, or is a replica of, as clients see them.
//!
//! There is one master, which owns all slots, and its replicas. A replica announces itself as a
//! node with REPLCONF; its master sends all that it knows to its replicas, whenever that changes.
//! So each of them can tell clients of all.

use super::Server;
use super::clients::{ClientFlags, ClientInfo};
use super::config::{Config, EndpointType};
use super::replication::{Feeding, LinkPhase, Replica};
use crate::base::num;
use crate::base::time::UnixMs;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Digits of the id of a node.
const ID_DIGITS: usize = 40;
/// Most nodes that a master may tell of.
const MAX_NODES: usize = 1000;
/// Longest name or address of a host.
const MAX_HOST: usize = 255;
/// How far the port of a node's bus is above its own, as clients expect it.
const BUS_ABOVE: u32 = 10_000;

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// 40 hexadecimal digits.
    pub id: String,
    /// Its address; empty if it is not known.
    pub ip: String,
    /// The name of its host, if it has announced one.
    pub hostname: String,
    /// Its port; 0 for none.
    pub port: u16,
    /// Its port for TLS; 0 for none.
    pub tls_port: u16,
    /// The port of its bus, which does not exist.
    pub bus_port: u32,
    /// Whether it has all data and follows the changes.
    pub is_online: bool,
    /// Whether there is a link to it.
    pub is_connected: bool,
    /// The replication offset up to which it is known to have all.
    pub offset: u64,
    /// When it was last heard of, Unix ms; 0 of this server itself.
    pub heard_ms: UnixMs,
}

impl Node {
    /// What others have to know of it, in one line.
    pub fn line(&self) -> String {
        format!(
            "{} {} {} {} {} {} {}",
            self.id,
            word(&self.ip),
            self.port,
            self.tls_port,
            self.bus_port,
            word(&self.hostname),
            u8::from(self.is_online)
        )
    }

    /// Reads such a line; `None` if it is none.
    pub fn parse(line: &str) -> Option<Node> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, ip, port, tls_port, bus_port, hostname, online] = words.as_slice() else {
            return None;
        };
        let number = |word: &str| num::parse_u64(word.as_bytes());
        let port_of = |word: &str| number(word).and_then(|port| u16::try_from(port).ok());
        let host = |word: &str| match word {
            "-" => Some(String::new()),
            word if word.is_empty() || word.len() > MAX_HOST => None,
            word => Some(word.to_owned()),
        };
        let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then_some(())?;
        Some(Node {
            id: (*id).to_owned(),
            ip: host(ip)?,
            hostname: host(hostname)?,
            port: port_of(port)?,
            tls_port: port_of(tls_port)?,
            bus_port: number(bus_port).and_then(|port| u32::try_from(port).ok())?,
            is_online: *online == "1",
            is_connected: true,
            ..Node::default()
        })
    }

    /// The port for a client that speaks TLS, or not: the other one if there is none.
    pub fn port_for(&self, tls: bool) -> u16 {
        let (first, second) = match tls {
            true => (self.tls_port, self.port),
            false => (self.port, self.tls_port),
        };
        if first == 0 { second } else { first }
    }

    /// Where clients are told to go.
    pub fn endpoint(&self, kind: EndpointType) -> &str {
        match kind {
            EndpointType::Ip => &self.ip,
            EndpointType::Hostname if self.hostname.is_empty() => "?",
            EndpointType::Hostname => &self.hostname,
            EndpointType::Unknown => "",
        }
    }
}

/// A name or address in a line.
fn word(host: &str) -> &str {
    let is_one = |host: &str| !host.contains(|c: char| c.is_whitespace() || c.is_control());
    match host {
        host if !host.is_empty() && host.len() <= MAX_HOST && is_one(host) => host,
        _ => "-",
    }
}

/// Reads lines of nodes, of which the first is the master; `None` if one is wrong, or if there
/// are too many.
pub fn parse_nodes(text: &[u8]) -> Option<Vec<Node>> {
    let text = std::str::from_utf8(text).ok()?;
    let nodes: Option<Vec<Node>> = text.lines().take(MAX_NODES + 1).map(Node::parse).collect();
    nodes.filter(|nodes| (1..=MAX_NODES).contains(&nodes.len()))
}

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
        let told = link.nodes();
        let mut told = told.into_iter();
        let mut master = told.next().unwrap_or_else(|| Node {
            // It is no node, or has not told of itself yet.
            id: self.engine.replication_id(),
            bus_port: u32::from(address.port) + BUS_ABOVE,
            ..Node::default()
        });
        if master.ip.is_empty() {
            master.ip = address.host;
        }
        if master.port_for(false) == 0 {
            master.port = address.port;
        }
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

    fn node() -> Node {
        Node {
            id: "0123456789".repeat(4),
            ip: "::1".into(),
            hostname: "a.example".into(),
            port: 6379,
            tls_port: 0,
            bus_port: 75_535,
            is_online: true,
            is_connected: true,
            ..Node::default()
        }
    }

    #[test]
    fn lines_read_back() {
        let bare = Node {
            ip: String::new(),
            hostname: String::new(),
            is_online: false,
            ..node()
        };
        for node in [node(), bare] {
            assert_eq!(Node::parse(&node.line()), Some(node));
        }
        let odd = Node {
            ip: "a b\n".into(),
            ..node()
        };
        assert_eq!(Node::parse(&odd.line()).unwrap().ip, "");
        let nodes = Nodes {
            master: node(),
            replicas: vec![node()],
        };
        let read = parse_nodes(nodes.text().as_bytes()).unwrap();
        assert_eq!(read, [node(), node()]);
    }

    #[test]
    fn other_lines_are_refused() {
        let id = "0".repeat(ID_DIGITS);
        let long = "h".repeat(MAX_HOST + 1);
        for line in [
            String::new(),
            format!("{id} - 1 2 3 -"),
            format!("{id} - 1 2 3 - 1 more"),
            format!("{id} - 65536 0 1 - 1"),
            format!("{id} - 1 -1 1 - 1"),
            format!("{id} {long} 1 1 1 - 1"),
            format!("{id}  1 1 1 - 1"),
            format!("{} - 1 1 1 - 1", "g".repeat(ID_DIGITS)),
            format!("{} - 1 1 1 - 1", "0".repeat(39)),
        ] {
            assert_eq!(Node::parse(&line), None, "{line}");
        }
        assert_eq!(parse_nodes(b""), None);
        let many = format!("{}\n", node().line()).repeat(MAX_NODES);
        assert!(parse_nodes(many.as_bytes()).is_some());
        let more = format!("{many}{}\n", node().line());
        assert_eq!(parse_nodes(more.as_bytes()), None);
        assert_eq!(parse_nodes(b"\xFF"), None);
    }

    #[test]
    fn the_address_of_a_client_is_that_of_its_socket() {
        assert_eq!(ip_of("127.0.0.1:6379"), "127.0.0.1");
        assert_eq!(ip_of("[::1]:6379"), "::1");
        assert_eq!(ip_of("[::ffff:10.0.0.1]:6379"), "10.0.0.1");
        assert_eq!(ip_of(""), "");
    }
}
