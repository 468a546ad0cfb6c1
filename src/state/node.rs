//! A node of a cluster, and how servers tell each other of nodes.

use super::config::EndpointType;
use crate::base::num;
use crate::base::time::UnixMs;

/// Digits of the id of a node.
const ID_DIGITS: usize = 40;
/// Most nodes that a master may tell of.
const MAX_NODES: usize = 1000;
/// Longest name or address of a host.
const MAX_HOST: usize = 255;
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
        let two = format!("{0}\n{0}\n", node().line());
        assert_eq!(parse_nodes(two.as_bytes()).unwrap(), [node(), node()]);
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
}
