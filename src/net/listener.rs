//! The listening sockets, and what happens to a new connection before it is
//! handed to an IO thread.

use crate::base::recurring::Recurring;
use crate::state::clients::ClientFlags;
use crate::state::config::Config;
use crate::state::socket::Socket;
use crate::state::{ClientInfo, Message, Server};
use crate::sys::clock;
use crate::sys::listen::{
    address_at, advice, bind_tcp, bind_unix, may_be_missing, remove_socket_file,
};
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The parameter that names the address.
        parameter: &'static str,
        /// As configured.
        address: String,
        /// The error of the system.
        error: io::Error,
    },
    /// `bind` names one address several times.
    #[error("cannot listen on {0}: `bind` names it twice")]
    Twice(String),
    /// Nothing is left to listen on.
    #[error("there is no address to listen on: set `port` or `unixsocket`")]
    Nothing {
        /// The parameter to change.
        parameter: &'static str,
    },
}

impl ListenError {
    /// The parameter that causes the error.
    pub fn parameter(&self) -> &'static str {
        match self {
            ListenError::Bind { parameter, .. } | ListenError::Nothing { parameter } => parameter,
            ListenError::Twice(_) => "bind",
        }
    }
}

impl ListenError {
    /// What the administrator can do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            ListenError::Bind {
                parameter, error, ..
            } => advice(error.kind(), parameter.ends_with("unixsocket")),
            _ => "",
        }
    }
}

enum Listener {
    Tcp(TcpListener, Address),
    Unix(UnixListener, PathBuf),
}

/// A new connection.
enum Accepted {
    Plain(Socket),
    /// To be spoken to in TLS.
    Tls(mio::net::TcpStream),
}

/// A TCP address to listen on, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
    tls: bool,
}

impl Address {
    /// The addresses of a configuration, and whether each may be missing on this machine.
    fn all(config: &Config) -> Vec<(Address, bool)> {
        let ports = [(config.port, false), (config.tls_port, true)];
        let ports = ports.into_iter().filter(|(port, _)| *port != 0);
        let at = |(port, tls)| {
            let hosts = config.bind.iter();
            hosts.map(move |text| {
                let host = text.trim_start_matches('-').to_owned();
                (Address { host, port, tls }, text.starts_with('-'))
            })
        };
        ports.flat_map(at).collect()
    }

    /// The parameter that names the port.
    fn port_parameter(&self) -> &'static str {
        match self.tls {
            true => "tls-port",
            false => "port",
        }
    }
}

/// Binds these addresses. As in Redis, an optional address that the machine does not have is
/// skipped, and so is one of a protocol that it does not support. An address in use is an
/// error. Without `backlog` the sockets do not listen.
fn bind_all(
    wanted: &[(Address, bool)],
    backlog: Option<u32>,
) -> Result<Vec<Listener>, ListenError> {
    let mut bound = Vec::new();
    for (address, optional) in wanted {
        let Address { host, port, .. } = address;
        if has_bound(&bound, address_at(host, *port)) {
            return Err(ListenError::Twice(format!("{host}:{port}")));
        }
        match bind_tcp(host, *port, backlog) {
            Ok(listener) => bound.push(Listener::Tcp(listener, address.clone())),
            Err(error) if may_be_missing(&error, *optional) => {
                log::info!("not listening on {host}: {error}");
            }
            Err(error) => {
                let name = format!("{host}:{port}");
                let kind = error.kind();
                let in_use = kind == io::ErrorKind::AddrInUse;
                let is_port = in_use || kind == io::ErrorKind::PermissionDenied;
                return Err(ListenError::Bind {
                    parameter: match is_port {
                        true => address.port_parameter(),
                        false => "bind",
                    },
                    address: name,
                    error,
                });
            }
        }
    }
    Ok(bound)
}

/// Whether one of these sockets has the address.
fn has_bound(bound: &[Listener], there: io::Result<SocketAddr>) -> bool {
    let Ok(there) = there else {
        return false;
    };
    bound.iter().any(|listener| match listener {
        Listener::Tcp(l, _) => l.local_addr().is_ok_and(|addr| addr == there),
        Listener::Unix(..) => false,
    })
}

/// All listening sockets.
pub struct Listeners {
    all: Vec<Listener>,
    next_thread: usize,
    accept_fails: Recurring,
}

impl Listeners {
    /// Binds the configured addresses.
    ///
    /// # Errors
    /// An address cannot be bound; see [`bind_all`] for which may be left out.
    pub fn bind(config: &Config) -> Result<Listeners, ListenError> {
        let mut all = bind_all(&Address::all(config), Some(config.tcp_backlog))?;
        if let Some(path) = config.path(&config.unixsocket) {
            let bound = bind_unix(&path, config.unixsocketperm);
            let listener = bound.map_err(|error| ListenError::Bind {
                parameter: "unixsocket",
                address: path.display().to_string(),
                error,
            })?;
            all.push(Listener::Unix(listener, path));
        }
        if all.is_empty() {
            let has_port = config.port != 0 || config.tls_port != 0;
            let parameter = if has_port { "bind" } else { "port" };
            return Err(ListenError::Nothing { parameter });
        }
        Ok(Listeners {
            all,
            next_thread: 0,
            accept_fails: Recurring::default(),
        })
    }

    /// Whether the TCP addresses of the configuration could be bound now, and the directory of the
    /// Unix socket is there.
    ///
    /// # Errors
    /// As [`Listeners::bind`].
    pub fn check(config: &Config) -> Result<(), ListenError> {
        // A client that connects now would lose its connection when the socket is closed.
        bind_all(&Address::all(config), None)?;
        let path = config.path(&config.unixsocket).unwrap_or_default();
        match path.parent() {
            Some(folder) if !folder.is_dir() => Err(ListenError::Bind {
                parameter: "unixsocket",
                address: path.display().to_string(),
                error: io::ErrorKind::NotFound.into(),
            }),
            _ => Ok(()),
        }
    }

    /// Registers all sockets with the poll, under tokens from 0 on.
    pub fn register(&mut self, registry: &Registry) -> io::Result<()> {
        for (i, listener) in self.all.iter_mut().enumerate() {
            match listener {
                Listener::Tcp(l, _) => registry.register(l, Token(i), Interest::READABLE)?,
                Listener::Unix(l, _) => registry.register(l, Token(i), Interest::READABLE)?,
            }
        }
        Ok(())
    }

    /// Changes the TCP addresses to those of `config`. The Unix socket stays.
    ///
    /// # Errors
    /// An address cannot be bound; the sockets are as before.
    pub fn rebind(&mut self, config: &Config, registry: &Registry) -> Result<(), ListenError> {
        let wanted = Address::all(config);
        for (nth, (address, _)) in wanted.iter().enumerate() {
            if wanted[..nth].iter().any(|(earlier, _)| earlier == address) {
                let Address { host, port, .. } = address;
                return Err(ListenError::Twice(format!("{host}:{port}")));
            }
        }
        let mut kept = Vec::new();
        let mut leaving = Vec::new();
        for mut listener in self.all.drain(..) {
            deregister(&mut listener, registry);
            match &listener {
                Listener::Tcp(_, address) if !wanted.iter().any(|(w, _)| w == address) => {
                    leaving.push(listener);
                }
                _ => kept.push(listener),
            }
        }
        let has = |kept: &[Listener], address: &Address| {
            kept.iter()
                .any(|l| matches!(l, Listener::Tcp(_, a) if a == address))
        };
        let missing: Vec<_> = wanted
            .into_iter()
            .filter(|(address, _)| !has(&kept, address))
            .collect();
        let mut bound = bind_all(&missing, Some(config.tcp_backlog));
        if bound.is_err() && !leaving.is_empty() {
            // An old address may conflict with a new one, as `*` does with every address.
            let old: Vec<_> = leaving.drain(..).filter_map(address_of).collect();
            bound = bind_all(&missing, Some(config.tcp_backlog));
            if bound.is_err() {
                leaving = bind_all(&old, Some(config.tcp_backlog)).unwrap_or_else(|error| {
                    log::error!("cannot go back to the old address: {error}");
                    Vec::new()
                });
            }
        }
        let failed = match bound {
            Ok(new) => {
                kept.extend(new);
                None
            }
            Err(error) => {
                kept.append(&mut leaving);
                Some(error)
            }
        };
        self.all = kept;
        if let Err(error) = self.register(registry) {
            log::error!("cannot watch the listening sockets: {error}");
        }
        failed.map_or(Ok(()), Err)
    }

    /// Deregisters and closes all sockets.
    pub fn close(&mut self, registry: &Registry) {
        for listener in &mut self.all {
            deregister(listener, registry);
            if let Listener::Unix(_, path) = listener {
                remove_socket_file(path);
            }
        }
        self.all.clear();
    }

    /// The tokens of all sockets.
    pub fn tokens(&self) -> Vec<Token> {
        (0..self.all.len()).map(Token).collect()
    }

    /// The bound addresses, for the log.
    pub fn addresses(&self) -> Vec<String> {
        let name = |listener: &Listener| match listener {
            Listener::Tcp(l, _) => l
                .local_addr()
                .map_or_else(|e| e.to_string(), |a| a.to_string()),
            Listener::Unix(_, path) => path.display().to_string(),
        };
        self.all.iter().map(name).collect()
    }

    /// Accepts connections on the socket with this token, up to
    /// `max-new-connections-per-cycle` or `max-new-tls-connections-per-cycle`, so that other
    /// sockets are served as well. Returns whether more may wait.
    pub fn accept(&mut self, token: Token, server: &Server) -> bool {
        let config = server.config.load();
        let most = match self.all.get(token.0) {
            Some(Listener::Tcp(_, address)) if address.tls => {
                config.max_new_tls_connections_per_cycle
            }
            _ => config.max_new_connections_per_cycle,
        };
        for _ in 0..most {
            let accepted = match self.all.get(token.0) {
                Some(Listener::Tcp(l, address)) => l.accept().map(|(s, peer)| {
                    let laddr = s
                        .local_addr()
                        .map_or_else(|_| String::new(), |a| a.to_string());
                    let local = peer.ip().to_canonical().is_loopback();
                    let socket = match address.tls {
                        true => Accepted::Tls(s),
                        false => Accepted::Plain(Socket::Tcp(s)),
                    };
                    (socket, peer.to_string(), laddr, local)
                }),
                Some(Listener::Unix(l, path)) => l.accept().map(|(s, _)| {
                    let name = format!("{}:0", path.display());
                    (Accepted::Plain(Socket::Unix(s)), name.clone(), name, true)
                }),
                None => return false,
            };
            match accepted {
                Ok((socket, addr, laddr, local)) => {
                    self.accept_fails.over();
                    self.welcome(socket, addr, laddr, local, server, &config);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // For instance out of descriptors: the connection stays in the queue of the
                    // kernel.
                    if self.accept_fails.is_news(&error) {
                        log::warn!("accept: {error}");
                    }
                    return false;
                }
            }
        }
        true
    }

    fn welcome(
        &mut self,
        accepted: Accepted,
        addr: String,
        laddr: String,
        local: bool,
        server: &Server,
        config: &Config,
    ) {
        if let Some(refusal) = refusal(config, server, local) {
            server.stats.rejected_connections.add(1);
            return refuse(accepted, refusal);
        }
        let socket = match accepted {
            Accepted::Plain(socket) => socket,
            Accepted::Tls(tcp) => match server.tls.accept(tcp) {
                Ok(socket) => Socket::Tls(Box::new(socket)),
                // Everyone can connect.
                Err(error) => return log::debug!("{addr}: {error}"),
            },
        };
        server.stats.connections.add(1);
        log::debug!("Accepted {addr}");
        if let Some(tcp) = socket.tcp()
            && let Err(error) = set_options(tcp, config.tcp_keepalive_s)
        {
            log::debug!("{addr}: {error}");
        }
        let flags = match &socket {
            Socket::Unix(_) => ClientFlags::UNIX_SOCKET,
            Socket::Tcp(_) | Socket::Tls(_) => ClientFlags::empty(),
        };
        let fd = socket.as_fd().as_raw_fd();
        let mailboxes = server.mailboxes();
        let thread = self.next_thread % mailboxes.len().max(1);
        self.next_thread = self.next_thread.wrapping_add(1);
        let id = server.clients.new_id();
        let now_ms = clock::unix_ms();
        let info = ClientInfo::new(id, addr, laddr, fd, thread, now_ms, flags);
        let info = Arc::new(info);
        server.clients.add(info.clone());
        if let Some(mailbox) = mailboxes.get(thread) {
            mailbox.send(Message::Serve(socket, info));
        }
    }
}

fn refusal(config: &Config, server: &Server, local: bool) -> Option<&'static str> {
    if server.clients.len() >= config.max_clients as usize {
        return Some("-ERR max number of clients reached\r\n");
    }
    let protected = config.protected_mode && server.users.default_user().is_open();
    (protected && !local).then_some(
        "-DENIED Kedis is running in protected mode: no password is set, so only \
         connections from this machine are taken. To connect from elsewhere set \
         `requirepass` to a password, or `protected-mode no` if the network around \
         the server is trusted.\r\n",
    )
}

/// Best effort: the peer may have disconnected, and must not block the main thread. In TLS
/// nothing can be said before the handshake, which a refused client is not worth.
fn refuse(accepted: Accepted, text: &str) {
    let Accepted::Plain(mut socket) = accepted else {
        return;
    };
    if let Err(error) = socket.write(text.as_bytes()) {
        log::debug!("cannot send the reason to a refused client: {error}");
    }
}

fn set_options(socket: &mio::net::TcpStream, keepalive_s: u64) -> io::Result<()> {
    socket.set_nodelay(true)?;
    if keepalive_s > 0 {
        let every = Duration::from_secs((keepalive_s / 3).max(1));
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(keepalive_s))
            .with_interval(every)
            .with_retries(3);
        SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}

fn deregister(listener: &mut Listener, registry: &Registry) {
    let gone = match listener {
        Listener::Tcp(l, _) => registry.deregister(l),
        Listener::Unix(l, _) => registry.deregister(l),
    };
    if let Err(error) = gone {
        log::debug!("deregister: {error}");
    }
}

/// Closes a socket. Returns its address for [`bind_all`].
fn address_of(listener: Listener) -> Option<(Address, bool)> {
    match listener {
        Listener::Tcp(_, address) => Some((address, false)),
        Listener::Unix(..) => None,
    }
}
