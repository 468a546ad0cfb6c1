//! Reads and writes that may be tried again.

use std::io;

/// Whether a read or write has failed only for now: the socket does not block and is empty or
/// full, a blocking one has waited for its timeout, or a signal has come. `TimedOut` is none of
/// these: so the system calls a connection whose peer no longer answers.
pub fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn a_read_that_times_out_may_be_tried_again_and_one_of_a_dead_connection_not() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        assert!(is_pause(&socket.read(&mut [0]).unwrap_err()));
        socket.set_nonblocking(true).unwrap();
        assert!(is_pause(&socket.read(&mut [0]).unwrap_err()));
        let dead = io::Error::from_raw_os_error(libc::ETIMEDOUT);
        assert!(!is_pause(&dead));
    }
}
