//! Sockets that listen.

use mio::net::{TcpListener, UnixListener};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

/// Listens on a TCP address; `host` is as `bind` has it, without `-`. Without `backlog` the socket
/// only takes the address: clients are refused as before.
///
/// # Errors
/// What the system reports.
pub fn bind_tcp(host: &str, port: u16, backlog: Option<u32>) -> io::Result<TcpListener> {
    let address = address_at(host, port)?;
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    if let Some(backlog) = backlog {
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    }
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// The address of a host, as `bind` has it.
///
/// # Errors
/// The name cannot be looked up.
pub fn address_at(host: &str, port: u16) -> io::Result<SocketAddr> {
    let ip: IpAddr = match host {
        "*" => IpAddr::from([0, 0, 0, 0]),
        "::*" => IpAddr::from([0u16; 8]),
        _ => match host.parse() {
            Ok(ip) => ip,
            Err(_) => {
                let mut found = (host, port).to_socket_addrs()?;
                return found
                    .next()
                    .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into());
            }
        },
    };
    Ok(SocketAddr::new(ip, port))
}

/// Whether an address may be left out for this error: it is of a protocol that the system does not
/// support, or the machine does not have it and it is `optional`.
pub fn may_be_missing(error: &io::Error, optional: bool) -> bool {
    let unknown = [
        libc::ENOPROTOOPT,
        libc::EPROTONOSUPPORT,
        libc::ESOCKTNOSUPPORT,
        libc::EPFNOSUPPORT,
        libc::EAFNOSUPPORT,
    ];
    match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL) => optional,
        Some(code) => unknown.contains(&code),
        None => false,
    }
}

/// Listens on a Unix socket; permissions of 0 are left to the umask.
///
/// # Errors
/// What the system reports; another process listens there; a file is there that is no socket.
pub fn bind_unix(path: &Path, permissions: u32) -> io::Result<UnixListener> {
    if is_served(path) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    remove_socket_file(path);
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let listener = UnixListener::bind(path)?;
    if permissions != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions))?;
    }
    Ok(listener)
}

/// What the administrator can do about an address, or a path of a Unix socket, that cannot be bound.
pub fn advice(kind: io::ErrorKind, is_path: bool) -> &'static str {
    match (kind, is_path) {
        (io::ErrorKind::AddrInUse, true) => {
            "; another server listens there: stop it, or choose another path"
        }
        (io::ErrorKind::AddrInUse, false) => {
            "; another process listens there: stop it, or choose another port"
        }
        (io::ErrorKind::AlreadyExists, true) => {
            "; that is a file and no socket: move it away, or choose another path"
        }
        (io::ErrorKind::PermissionDenied, true) => {
            "; the user of this process must be able to write to that directory"
        }
        (io::ErrorKind::PermissionDenied, false) => {
            "; ports below 1024 need the capability CAP_NET_BIND_SERVICE: choose another port"
        }
        (io::ErrorKind::NotFound, true) => "; its directory must exist",
        (io::ErrorKind::AddrNotAvailable, _) => "; no interface of this machine has that address",
        _ => "",
    }
}

/// Whether a process listens on a socket file. Does not wait: a full queue also means yes.
fn is_served(path: &Path) -> bool {
    match mio::net::UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Removes the socket file of an earlier run.
pub fn remove_socket_file(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket && let Err(error) = std::fs::remove_file(path) {
        log::warn!("cannot remove {}: {error}", path.display());
    }
}
