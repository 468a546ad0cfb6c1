//! Streams as commands. A small stream becomes one RESTORE. A larger one, or one for a
//! target before Redis 7, becomes XADD for each entry, XSETID for its state, XGROUP for
//! groups and consumers, XCLAIM for pending entries. A pending entry whose stream entry
//! was deleted is left out of a large stream: only a payload can hold one (before Redis
//! 7, XCLAIM creates it).

use super::Maker;
use crate::encoding::packed;
use crate::encoding::stream::StreamId;
use crate::rdb::encode::Encoder;
use crate::rdb::stream::{Filling, Writer};
use crate::rdb::{StreamPart, StreamState, payload};

/// Ids in one command at the most.
const MAX_IDS: usize = 256;
/// Largest stream in bytes that becomes one RESTORE, not counting its last part.
const MAX_PAYLOAD: usize = 1 << 20;

/// A stream that may still become one RESTORE.
#[derive(Default)]
struct Small {
    encoder: Encoder,
    writer: Writer,
    filling: Filling,
    nodes: u64,
    /// The value, without its head.
    body: Vec<u8>,
    /// Bytes of the entries so far; the writer has not yet written all of them to
    /// `body`.
    bytes: usize,
}

impl Small {
    /// Adds the next part; returns whether the stream is still small.
    fn part(&mut self, part: StreamPart<'_>) -> bool {
        if let StreamPart::Entry { fields, .. } = part {
            self.nodes += u64::from(self.filling.begins_node(fields.len()));
            self.bytes += fields.len();
        }
        let written = self.writer.part(&mut self.encoder, part, &mut self.body);
        written.is_ok() && self.bytes.max(self.body.len()) <= MAX_PAYLOAD
    }

    /// The payload of the whole stream.
    fn payload(mut self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.body.len() + 32);
        Writer::begin(&mut self.encoder, self.nodes, None, &mut whole);
        whole.append(&mut self.body);
        payload::seal(&mut whole);
        whole
    }
}

/// Turns the parts of a stream into commands.
#[derive(Default)]
pub struct StreamMaker {
    /// Whether a part has been added.
    begun: bool,
    small: Option<Small>,
    /// The equivalent commands and their number, held back while the stream is small.
    held: (Vec<u8>, usize),
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// Delivery time and count of the group's pending entries, ordered by id.
    pending: Vec<(StreamId, i64, u64)>,
    /// Pending entries of the consumer with the same time and count of deliveries.
    claimed: Vec<StreamId>,
    known: (i64, u64),
}

impl StreamMaker {
    /// Adds the next part of the stream under `key`.
    pub fn part(&mut self, maker: &mut Maker, key: &[u8], part: StreamPart<'_>) {
        if !self.begun {
            self.begun = true;
            self.small = maker.abilities().stream_counters.then(Small::default);
        }
        let Some(small) = &mut self.small else {
            return self.command(maker, key, part);
        };
        let is_small = small.part(part);
        maker.swap_commands(&mut self.held);
        self.command(maker, key, part);
        maker.swap_commands(&mut self.held);
        if !is_small {
            self.small = None;
            let (bytes, commands) = std::mem::take(&mut self.held);
            maker.out.extend_from_slice(&bytes);
            maker.commands += commands;
        }
    }

    /// Adds the commands of a part.
    fn command(&mut self, maker: &mut Maker, key: &[u8], part: StreamPart<'_>) {
        match part {
            StreamPart::Entry { id, fields } => {
                let id = id.to_string();
                let mut args: Vec<&[u8]> = vec![b"XADD", key, id.as_bytes()];
                args.extend(packed::items(fields).filter_map(Result::ok));
                maker.command(&args);
            }
            StreamPart::State(state) => set_state(maker, key, &state),
            StreamPart::Group {
                name, last, read, ..
            } => {
                self.claim(maker, key);
                self.pending.clear();
                self.group = name.to_vec();
                let (last, read) = (last.to_string(), read.unwrap_or(-1).to_string());
                let mut args: Vec<&[u8]> = vec![b"XGROUP", b"CREATE", key, name, last.as_bytes()];
                if maker.abilities().stream_counters {
                    args.extend([b"ENTRIESREAD".as_slice(), read.as_bytes()]);
                }
                maker.command(&args);
            }
            StreamPart::Pending {
                id,
                delivered_ms,
                deliveries,
            } => self.pending.push((id, delivered_ms, deliveries)),
            StreamPart::Consumers(_) => {}
            StreamPart::Consumer { name, .. } => {
                self.claim(maker, key);
                self.consumer = name.to_vec();
                if maker.abilities().set_pxat {
                    maker.command(&[b"XGROUP", b"CREATECONSUMER", key, &self.group, name]);
                }
            }
            StreamPart::Released(id) => {
                // Commands of Redis 7.0 cannot leave it without a consumer.
                self.consumer.clear();
                self.own(maker, key, id);
            }
            StreamPart::Owned(id) => self.own(maker, key, id),
            // Only servers that add entries need idempotent ids, and those of the source expire
            // within minutes.
            StreamPart::Idempotence { .. }
            | StreamPart::Producer(_)
            | StreamPart::Iid { .. }
            | StreamPart::IidCounts { .. } => {}
        }
    }

    /// Adds a pending entry of the current consumer.
    fn own(&mut self, maker: &mut Maker, key: &[u8], id: StreamId) {
        let at = self.pending.binary_search_by_key(&id, |(id, ..)| *id);
        let Some((_, ms, times)) = at.ok().and_then(|at| self.pending.get(at).copied()) else {
            return;
        };
        if self.known != (ms, times) || self.claimed.len() >= MAX_IDS {
            self.claim(maker, key);
            self.known = (ms, times);
        }
        self.claimed.push(id);
    }

    /// Ends the stream.
    pub fn end(&mut self, maker: &mut Maker, key: &[u8]) {
        match self.small.take() {
            Some(small) => maker.command(&[b"RESTORE", key, b"0", &small.payload()]),
            None => self.claim(maker, key),
        }
        *self = StreamMaker::default();
    }

    fn claim(&mut self, maker: &mut Maker, key: &[u8]) {
        if self.claimed.is_empty() {
            return;
        }
        let ids: Vec<String> = self.claimed.drain(..).map(|id| id.to_string()).collect();
        let (ms, times) = (self.known.0.to_string(), self.known.1.to_string());
        let mut args: Vec<&[u8]> = vec![b"XCLAIM", key, &self.group, &self.consumer, b"0"];
        args.extend(ids.iter().map(|id| id.as_bytes()));
        args.extend([b"TIME".as_slice(), ms.as_bytes()]);
        args.extend([b"RETRYCOUNT".as_slice(), times.as_bytes()]);
        args.extend([b"FORCE".as_slice(), b"JUSTID"]);
        maker.command(&args);
    }
}

fn set_state(maker: &mut Maker, key: &[u8], state: &StreamState) {
    if state.length == 0 {
        // An entry that is trimmed at once leaves an empty stream behind.
        let id = state.last.max(StreamId { ms: 0, seq: 1 }).to_string();
        maker.command(&[b"XADD", key, b"MAXLEN", b"0", id.as_bytes(), b"x", b"y"]);
    }
    let (last, deleted) = (state.last.to_string(), state.deleted.to_string());
    let added = state.added.to_string();
    let mut args: Vec<&[u8]> = vec![b"XSETID", key, last.as_bytes()];
    if maker.abilities().stream_counters {
        args.extend([b"ENTRIESADDED".as_slice(), added.as_bytes()]);
        if state.deleted <= state.last {
            args.extend([b"MAXDELETEDID".as_slice(), deleted.as_bytes()]);
        }
    }
    maker.command(&args);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::migrate::elements::{Abilities, TimeRule};
    use crate::rdb::decode::read_value;
    use crate::rdb::reader::Reader;
    use crate::rdb::{Element, Error};
    use crate::resp::parser::{Limits, Parser, Progress};

    const KEY: &[u8] = b"stream";

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    /// The commands that create a stream of `entries` entries, with one pending entry
    /// whose stream entry was deleted.
    fn commands(entries: u64, value_len: usize, stream_counters: bool) -> Vec<Vec<Vec<u8>>> {
        let mut maker = Maker::new(Abilities {
            set_pxat: true,
            stream_counters,
            field_times: false,
            member_times: false,
        });
        maker.begin(KEY, UnixMs::NONE, false, TimeRule::default());
        let mut fields = Vec::new();
        packed::put_bytes(&mut fields, b"field");
        packed::put_bytes(&mut fields, &vec![b'v'; value_len]);
        let mut add = |part| maker.add(Element::Stream(part));
        for n in 1..=entries {
            let (id, fields) = (id(n), fields.as_slice());
            add(StreamPart::Entry { id, fields });
        }
        add(StreamPart::State(StreamState {
            length: entries,
            first: id(1),
            last: id(entries + 1),
            deleted: id(entries + 1),
            added: entries + 1,
            groups: 1,
        }));
        add(StreamPart::Group {
            name: b"group",
            last: id(entries + 1),
            read: Some(entries as i64 + 1),
            pending: 2,
        });
        for n in [1, entries + 1] {
            add(StreamPart::Pending {
                id: id(n),
                delivered_ms: 7,
                deliveries: 2,
            });
        }
        add(StreamPart::Consumers(1));
        add(StreamPart::Consumer {
            name: b"consumer",
            seen_ms: 8,
            active_ms: 8,
            pending: 2,
        });
        add(StreamPart::Owned(id(1)));
        add(StreamPart::Owned(id(entries + 1)));
        maker.end();
        let limits = Limits {
            max_bulk_len: usize::MAX,
            authenticated: true,
        };
        let (mut rest, mut found) = (maker.out.as_slice(), Vec::new());
        while !rest.is_empty() {
            let mut parser = Parser::new();
            let Ok(Progress::Complete { consumed }) = parser.advance(rest, &limits) else {
                panic!("{}", rest.escape_ascii());
            };
            found.push(parser.args_of(rest).map(<[u8]>::to_vec).collect());
            rest = &rest[consumed..];
        }
        assert_eq!(found.len(), maker.commands);
        found
    }

    /// Pending entries whose stream entries were deleted used to be lost.
    #[test]
    fn a_small_stream_is_restored_with_all_that_is_pending() {
        let commands = commands(300, 20, true);
        let [restore] = commands.as_slice() else {
            panic!("{} commands", commands.len());
        };
        assert_eq!(
            restore[..3],
            [b"RESTORE".to_vec(), KEY.to_vec(), b"0".to_vec()]
        );
        let payload = payload::open(&restore[3]).unwrap();
        let (mut entries, mut owned) = (0, Vec::new());
        let mut reader = Reader::new(payload.value, u64::MAX);
        let read = read_value(&mut reader, payload.kind, payload.dialect, |element| {
            match element {
                Element::Stream(StreamPart::Entry { .. }) => entries += 1,
                Element::Stream(StreamPart::Owned(id)) => owned.push(id),
                _ => {}
            }
            Ok::<(), Error>(())
        });
        read.unwrap();
        assert_eq!((entries, owned), (300, vec![id(1), id(301)]));
    }

    #[test]
    fn a_large_stream_and_an_old_target_get_commands() {
        let made = [(3000, 1000, true), (300, 20, false)];
        for (entries, value_len, stream_counters) in made {
            let commands = commands(entries, value_len, stream_counters);
            let names: Vec<_> = commands.iter().map(|args| args[0].as_slice()).collect();
            let n = entries as usize;
            assert!(names[..n].iter().all(|name| *name == b"XADD"));
            let expected: [&[u8]; 4] = [b"XSETID", b"XGROUP", b"XGROUP", b"XCLAIM"];
            assert_eq!(names[n..], expected);
            let claimed = &commands[n + 3];
            assert!(claimed.contains(&b"1-0".to_vec()));
        }
    }
}
