//! Streams as the commands that make them: XADD for each entry, XSETID for what
//! is known of the stream, XGROUP for groups and consumers, XCLAIM for what they
//! have not acknowledged.
//!
//! A pending entry that the stream itself has no more is left out: no command
//! makes one.

use super::elements::Maker;
use crate::encoding::packed;
use crate::encoding::stream::StreamId;
use crate::rdb::{StreamPart, StreamState};

/// Ids in one command at the most.
const MAX_IDS: usize = 256;

/// Makes the stream under construction.
#[derive(Debug, Default)]
pub struct StreamMaker {
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// What is known of the group's pending entries, in the order of their ids.
    pending: Vec<(StreamId, i64, u64)>,
    /// Entries of the consumer with the same time and number of deliveries.
    claimed: Vec<StreamId>,
    known: (i64, u64),
}

impl StreamMaker {
    /// Adds the next part of the stream under `key`.
    pub fn part(&mut self, maker: &mut Maker, key: &[u8], part: StreamPart<'_>) {
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
            StreamPart::Owned(id) => {
                let at = self.pending.binary_search_by_key(&id, |(id, ..)| *id);
                let Some((_, ms, times)) = at.ok().and_then(|at| self.pending.get(at).copied())
                else {
                    return;
                };
                if self.known != (ms, times) || self.claimed.len() >= MAX_IDS {
                    self.claim(maker, key);
                    self.known = (ms, times);
                }
                self.claimed.push(id);
            }
        }
    }

    /// Ends the stream.
    pub fn end(&mut self, maker: &mut Maker, key: &[u8]) {
        self.claim(maker, key);
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
        // An entry that is trimmed at once leaves an empty stream.
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
