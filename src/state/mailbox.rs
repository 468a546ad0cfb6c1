//! Messages between threads: a bounded channel, a queue of deliveries to clients
//! (see [`super::delivery`]), and a Waker that ends the receiver's poll.

use super::client_id::ClientId;
use super::delivery::{Deliveries, Delivery};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use std::sync::Arc;

/// How many messages may wait for a thread.
pub const CAPACITY: usize = 16 * 1024;

/// A socket that was accepted, on its way to the thread that will own it.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(mio::net::TcpStream),
    /// A Unix socket.
    Unix(mio::net::UnixStream),
}

/// What one thread asks of another.
#[derive(Debug)]
pub enum Message {
    /// Serve this socket from now on.
    Serve(Socket, Arc<super::ClientInfo>),
    /// Close a client's connection.
    Kill(ClientId),
    /// The reply to a request that a client has waited for since its tick.
    Answer(ClientId, Box<[u8]>),
    /// Look again at clients that were paused.
    Resume,
    /// End the thread: commit, send what can be sent, close.
    Stop,
}

/// The sending end.
#[derive(Debug, Clone)]
pub struct Mailbox {
    sender: Sender<Message>,
    /// What waits for the thread's clients.
    pub deliveries: Arc<Deliveries>,
    waker: Arc<mio::Waker>,
}

impl Mailbox {
    /// A mailbox whose receiver polls with the poll that `waker` belongs to.
    pub fn new(waker: Arc<mio::Waker>) -> (Mailbox, Receiver<Message>) {
        let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
        let mailbox = Mailbox {
            sender,
            deliveries: Arc::default(),
            waker,
        };
        (mailbox, receiver)
    }

    /// Sends a message; waits while the mailbox is full. For the main thread
    /// only: IO threads that wait for each other could wait forever.
    pub fn send(&self, message: Message) {
        if self.sender.send(message).is_ok() {
            self.wake();
        }
    }

    /// Sends a message unless the mailbox is full; gives it back then.
    pub fn try_send(&self, message: Message) -> Result<(), Message> {
        match self.sender.try_send(message) {
            Ok(()) => {
                self.wake();
                Ok(())
            }
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => Err(message),
        }
    }

    /// Appends deliveries to the thread's clients, of which none may have more than
    /// `limit` bytes waiting; returns those that have. Wakes the thread unless it
    /// is the one that calls.
    pub fn deliver(&self, batch: Vec<Delivery>, limit: usize, own: bool) -> Vec<ClientId> {
        let pushed = self.deliveries.push(batch, limit);
        if pushed.wake && !own {
            self.wake();
        }
        pushed.too_slow
    }

    /// Ends the receiver's poll.
    pub fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            log::error!("cannot wake a thread: {error}");
        }
    }
}
