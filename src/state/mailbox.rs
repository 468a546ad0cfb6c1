//! Messages between threads: a bounded channel, a queue of messages to clients (see
//! [`super::delivery`]), and a Waker that ends the receiver's poll.

use super::client_id::ClientId;
use super::delivery::{Deliveries, Delivery};
use super::socket::Socket;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use parking_lot::Mutex;
use std::sync::Arc;

/// Messages that a mailbox holds.
const CAPACITY: usize = 16 * 1024;

/// What the reads of the disk that are done were for.
#[derive(Debug)]
pub enum FinishedRead {
    /// The request of a client; there is at most one for each.
    Client(ClientId),
    /// The clients that wait for a key; the number is the thread's own.
    Key(u64),
}

/// Reads of the disk for a thread that are done.
#[derive(Debug, Default)]
pub struct FinishedReads(Mutex<Vec<FinishedRead>>);

impl FinishedReads {
    /// Takes them.
    pub fn take(&self) -> Vec<FinishedRead> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// A message from one thread to another.
#[derive(Debug)]
pub enum Message {
    /// Serve this socket.
    Serve(Socket, Arc<super::ClientInfo>),
    /// Close a client's connection.
    Kill(ClientId),
    /// Send a client the reply that it waits for.
    Answer(ClientId, Box<[u8]>),
    /// Run the requests of paused clients again.
    Resume,
    /// End the thread: commit, send what can be sent, close the connections.
    Stop,
}

/// The sending end.
#[derive(Debug, Clone)]
pub struct Mailbox {
    sender: Sender<Message>,
    /// Messages to the thread's clients.
    pub deliveries: Arc<Deliveries>,
    /// Reads of the disk for the thread that are done.
    pub finished_reads: Arc<FinishedReads>,
    waker: Arc<mio::Waker>,
}

impl Mailbox {
    /// A mailbox whose receiver polls with the poll of `waker`.
    pub fn new(waker: Arc<mio::Waker>) -> (Mailbox, Receiver<Message>) {
        let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
        let mailbox = Mailbox {
            sender,
            deliveries: Arc::default(),
            finished_reads: Arc::default(),
            waker,
        };
        (mailbox, receiver)
    }

    /// Sends a message; blocks while the mailbox is full. Not for IO threads: they could block
    /// each other for ever.
    pub fn send(&self, message: Message) {
        if self.sender.send(message).is_ok() {
            self.wake();
        }
    }

    /// Sends a message unless the mailbox is full; returns it then.
    pub(super) fn try_send(&self, message: Message) -> Result<(), Message> {
        match self.sender.try_send(message) {
            Ok(()) => {
                self.wake();
                Ok(())
            }
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => Err(message),
        }
    }

    /// Appends messages to the thread's clients, none of which may have more than `limit` bytes
    /// queued. Returns the clients that do. Wakes the thread unless it is the calling one.
    pub fn deliver(&self, batch: Vec<Delivery>, limit: usize, own: bool) -> Vec<ClientId> {
        let pushed = self.deliveries.push(batch, limit);
        if pushed.wake && !own {
            self.wake();
        }
        pushed.too_slow
    }

    /// Reports that reads of the disk are done.
    pub fn reads_are_done(&self, read: FinishedRead) {
        let mut finished = self.finished_reads.0.lock();
        finished.push(read);
        let is_first = finished.len() == 1;
        drop(finished);
        if is_first {
            self.wake();
        }
    }

    /// Ends the receiver's poll.
    pub fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            log::error!("cannot wake a thread: {error}");
        }
    }
}
