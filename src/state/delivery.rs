//! Queues of messages to clients: published messages, invalidations, MONITOR lines.
//!
//! Every IO thread has one queue, to which all threads may append; it moves the messages from
//! there to its clients' output. Nothing is dropped from a queue and no thread blocks on one,
//! so both limits depend on the bytes in the queue:
//!
//! - Messages share their bytes among all recipients. When a queue exceeds the hard limit of
//!   `client-output-buffer-limit pubsub`, clients that have more than the limit queued for
//!   themselves are to be closed, and messages for them alone are dropped.
//! - A queue with more than [`BUSY_WORK`] bytes to copy, or with half of that limit, is busy, and
//!   clients that would add to it have to wait: so a publisher that is faster than the IO thread
//!   does not overrun a subscriber that reads as fast as it can. This does not hold if the thread
//!   has taken nothing for [`STUCK_MS`], since it may be inside a long command.

use super::client_id::ClientId;
use crate::base::time::{AtomicUnixMs, UnixMs};
use crate::sys::clock;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A queue is busy beyond so many bytes to copy: each byte counts once per recipient.
const BUSY_WORK: usize = 8 << 20;
/// A queue is not busy if its thread has taken nothing for so long.
const STUCK_MS: u64 = 1000;
/// Bytes that an entry counts besides its message.
const ENTRY_BYTES: usize = 64;

/// How the bytes of a message become output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Written unchanged.
    Plain,
    /// A RESP3 push; an array for a client that speaks RESP2.
    Message,
    /// A RESP3 push; omitted for a client that speaks RESP2.
    Push,
}

/// The recipients of a message; all belong to one thread.
#[derive(Debug, Clone)]
pub enum Recipients {
    /// One client.
    One(ClientId),
    /// Several, in ascending order.
    Many(Arc<Vec<ClientId>>),
}

impl Recipients {
    /// All recipients.
    pub fn as_slice(&self) -> &[ClientId] {
        match self {
            Recipients::One(client) => std::slice::from_ref(client),
            Recipients::Many(clients) => clients,
        }
    }

    /// The recipients for which `stays` is true; `None` if there are none.
    fn retain(self, mut stays: impl FnMut(ClientId) -> bool) -> Option<Recipients> {
        match self {
            Recipients::One(client) => stays(client).then_some(self),
            Recipients::Many(clients) if clients.iter().all(|client| stays(*client)) => {
                Some(Recipients::Many(clients))
            }
            Recipients::Many(clients) => {
                let left: Vec<ClientId> = clients.iter().copied().filter(|c| stays(*c)).collect();
                (!left.is_empty()).then(|| Recipients::Many(Arc::new(left)))
            }
        }
    }
}

/// A message for clients of one thread.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Its recipients.
    pub to: Recipients,
    /// The bytes.
    pub bytes: Arc<[u8]>,
    /// How the bytes become output.
    pub form: Form,
}

impl Delivery {
    /// Appends the message to the output of a client.
    pub fn write(&self, resp3: bool, output: &mut Vec<u8>) {
        match self.form {
            Form::Message if !resp3 => {
                // Only the type in front differs between the two.
                output.push(b'*');
                output.extend_from_slice(self.bytes.get(1..).unwrap_or_default());
            }
            Form::Push if !resp3 => {}
            _ => output.extend_from_slice(&self.bytes),
        }
    }

    /// Bytes that the message adds to the memory of a queue.
    fn bytes(&self) -> usize {
        self.bytes.len() + ENTRY_BYTES
    }

    /// Bytes that are copied to deliver the message.
    fn work(&self) -> usize {
        self.bytes() * self.to.as_slice().len()
    }
}

/// The results of an append.
#[derive(Debug, Default)]
pub struct Pushed {
    /// The queue was empty, so its thread has to be woken.
    pub wake: bool,
    /// Clients with too many queued bytes. Their messages have been removed.
    pub too_slow: Vec<ClientId>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Delivery>,
    bytes: usize,
    work: usize,
    /// Bytes that may be queued for one client; 0: no limit.
    limit: usize,
    /// The size at which the bytes per client are added up next.
    sweep_at: usize,
}

/// The message queue of one thread.
#[derive(Debug, Default)]
pub struct Deliveries {
    queue: Mutex<Queue>,
    waiting: AtomicBool,
    busy: AtomicBool,
    /// When messages were last taken, Unix ms.
    taken_ms: AtomicUnixMs,
}

impl Deliveries {
    /// Appends messages; `limit` is the number of bytes that may be queued for one client (0:
    /// no limit).
    pub fn push(&self, batch: impl IntoIterator<Item = Delivery>, limit: usize) -> Pushed {
        let mut queue = self.queue.lock();
        let mut pushed = Pushed::default();
        let was_empty = queue.entries.is_empty();
        queue.limit = limit;
        for delivery in batch {
            queue.bytes += delivery.bytes();
            queue.work += delivery.work();
            queue.entries.push_back(delivery);
        }
        if queue.entries.is_empty() {
            return pushed;
        }
        if limit > 0 && queue.bytes > queue.sweep_at.max(limit) {
            pushed.too_slow = queue.sweep(limit);
            queue.sweep_at = queue.bytes.saturating_add(limit / 4);
        }
        if was_empty {
            self.taken_ms.store(clock::unix_ms(), Ordering::Relaxed);
        }
        pushed.wake = was_empty;
        self.waiting.store(true, Ordering::Release);
        self.busy.store(queue.is_long(), Ordering::Release);
        pushed
    }

    /// Takes messages from the front until these are `budget` bytes to copy, or all.
    pub fn take(&self, budget: usize) -> Vec<Delivery> {
        let mut taken = Vec::new();
        if self.is_empty() {
            return taken;
        }
        let mut queue = self.queue.lock();
        let mut work = 0;
        while work < budget
            && let Some(delivery) = queue.entries.pop_front()
        {
            work += delivery.work();
            queue.bytes -= delivery.bytes();
            taken.push(delivery);
        }
        queue.work -= work;
        self.taken_ms.store(clock::unix_ms(), Ordering::Relaxed);
        self.note(&mut queue);
        taken
    }

    /// Takes all messages for one client, wherever they are in the queue.
    pub fn take_for(&self, client: ClientId) -> Vec<Delivery> {
        let mut taken = Vec::new();
        if !self.is_empty() {
            let mut queue = self.queue.lock();
            queue.retain(|c| c != client, |delivery| taken.push(delivery.clone()));
            self.note(&mut queue);
        }
        taken
    }

    fn note(&self, queue: &mut Queue) {
        if queue.entries.is_empty() {
            queue.sweep_at = 0;
        }
        self.waiting
            .store(!queue.entries.is_empty(), Ordering::Release);
        self.busy.store(queue.is_long(), Ordering::Release);
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        !self.waiting.load(Ordering::Acquire)
    }

    /// Whether clients that would add to the queue should wait.
    pub fn is_busy(&self, now_ms: UnixMs) -> bool {
        self.busy.load(Ordering::Acquire)
            && now_ms.since(self.taken_ms.load(Ordering::Relaxed)) < STUCK_MS
    }
}

impl Queue {
    fn is_long(&self) -> bool {
        self.work > BUSY_WORK || (self.limit > 0 && self.bytes > self.limit / 2)
    }

    /// Removes the messages for clients with more than `limit` bytes; returns these clients.
    fn sweep(&mut self, limit: usize) -> Vec<ClientId> {
        let mut waiting: FxHashMap<ClientId, usize> = FxHashMap::default();
        for delivery in &self.entries {
            for client in delivery.to.as_slice() {
                *waiting.entry(*client).or_default() += delivery.bytes();
            }
        }
        waiting.retain(|_, bytes| *bytes > limit);
        if !waiting.is_empty() {
            self.retain(|client| !waiting.contains_key(&client), |_| {});
        }
        waiting.into_keys().collect()
    }

    /// Removes recipients from all entries; calls `removed` for each entry that had some of
    /// them.
    fn retain(&mut self, stays: impl Fn(ClientId) -> bool, mut removed: impl FnMut(&Delivery)) {
        let entries = std::mem::take(&mut self.entries);
        (self.bytes, self.work) = (0, 0);
        for mut delivery in entries {
            if !delivery.to.as_slice().iter().all(|client| stays(*client)) {
                removed(&delivery);
            }
            if let Some(left) = delivery.to.retain(&stays) {
                delivery.to = left;
                self.bytes += delivery.bytes();
                self.work += delivery.work();
                self.entries.push_back(delivery);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_many(clients: &[u64], bytes: &[u8]) -> Delivery {
        let clients = clients.iter().map(|id| ClientId(*id)).collect();
        Delivery {
            to: Recipients::Many(Arc::new(clients)),
            bytes: bytes.into(),
            form: Form::Message,
        }
    }

    fn bytes_of(deliveries: &[Delivery]) -> Vec<&[u8]> {
        deliveries.iter().map(|d| &*d.bytes).collect()
    }

    #[test]
    fn what_was_appended_comes_out_in_order_and_by_budget() {
        let queue = Deliveries::default();
        assert!(queue.is_empty());
        assert!(queue.push([to_many(&[1], b">a")], 0).wake);
        assert!(!queue.push([to_many(&[1, 2], b">b")], 0).wake);
        assert!(!queue.push([to_many(&[2], b">c")], 0).wake);
        assert_eq!(bytes_of(&queue.take(1)), [b">a"]);
        assert!(!queue.is_empty());
        assert_eq!(bytes_of(&queue.take(usize::MAX)), [b">b", b">c"]);
        assert!(queue.is_empty());
        assert!(queue.push([to_many(&[1], b">d")], 0).wake);
    }

    #[test]
    fn one_client_can_be_served_out_of_turn() {
        let queue = Deliveries::default();
        queue.push(
            [
                to_many(&[1], b">a"),
                to_many(&[1, 2], b">b"),
                to_many(&[2], b">c"),
            ],
            0,
        );
        assert_eq!(bytes_of(&queue.take_for(ClientId(1))), [b">a", b">b"]);
        assert!(queue.take_for(ClientId(1)).is_empty());
        let rest = queue.take(usize::MAX);
        assert_eq!(bytes_of(&rest), [b">b", b">c"]);
        assert!(rest.iter().all(|d| d.to.as_slice() == [ClientId(2)]));
    }

    #[test]
    fn only_clients_with_too_much_queued_are_removed() {
        let queue = Deliveries::default();
        let value = [b'v'; 1000];
        let mut too_slow = Vec::new();
        for _ in 0..15 {
            too_slow.extend(queue.push([to_many(&[1], &value)], 10_000).too_slow);
        }
        queue.push([to_many(&[1, 2], b">last")], 10_000);
        assert_eq!(too_slow, [ClientId(1)]);
        let left = queue.take(usize::MAX);
        assert_eq!(left.len(), 6);
        assert_eq!(left.last().map(|d| d.to.as_slice().len()), Some(2));
    }

    #[test]
    fn a_queue_with_much_to_copy_is_busy_unless_its_thread_is_stuck() {
        let queue = Deliveries::default();
        let now_ms = clock::unix_ms();
        let value = vec![b'v'; 1 << 20];
        queue.push([to_many(&[1, 2, 3], &value)], 0);
        assert!(!queue.is_busy(now_ms));
        queue.push((0..3).map(|_| to_many(&[1, 2, 3], &value)), 0);
        assert!(queue.is_busy(now_ms));
        assert!(!queue.is_busy(now_ms + STUCK_MS + 1000));
        queue.take(6 << 20);
        assert!(!queue.is_busy(now_ms));
        queue.push([to_many(&[1], &value)], 3 << 20);
        assert!(queue.is_busy(now_ms));
    }

    #[test]
    fn forms() {
        let mut delivery = to_many(&[1], b">2\r\n");
        let write = |delivery: &Delivery, resp3| {
            let mut output = Vec::new();
            delivery.write(resp3, &mut output);
            output
        };
        assert_eq!(write(&delivery, true), b">2\r\n");
        assert_eq!(write(&delivery, false), b"*2\r\n");
        delivery.form = Form::Push;
        assert_eq!(write(&delivery, true), b">2\r\n");
        assert_eq!(write(&delivery, false), b"");
        delivery.form = Form::Plain;
        assert_eq!(write(&delivery, false), b">2\r\n");
    }
}
