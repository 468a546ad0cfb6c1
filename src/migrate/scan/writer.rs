//! Writes values of the source to the target's connections.

use super::super::Stop;
use super::super::copy::{MAX_STRING, times_refused};
use super::super::elements::TimeRule;
use super::super::error::{Error, Result, shown};
use super::super::lanes::{Lane, refused};
use super::super::rewrite::Rewriter;
use super::super::stats::Stats;
use super::super::values::{Part, Shape, Values, Way};
use crate::base::hash::crc64;
use crate::base::time::UnixMs;
use crate::encoding::ValueType;
use crate::rdb::decode::read_value;
use crate::rdb::reader::Reader;
use crate::rdb::{self, Element, kind, payload};
use crate::sys::clock;
use std::sync::Arc;

/// Copies keys of one DB of the source.
pub struct Writer<'w> {
    rewriter: &'w Rewriter,
    stop: &'w Stop,
    stats: &'w Arc<Stats>,
    lanes: &'w mut [Lane],
    /// The DB at the target.
    to: Option<u64>,
    /// Keys whose values were gone or had changed type when they were read.
    pub changed: Vec<Vec<u8>>,
    /// The lane that has received the beginning of the current value.
    begun: Option<usize>,
    /// The bytes of a string received so far.
    text: Option<Vec<u8>>,
    /// Payloads of unknown types or versions; these values are read with commands.
    unread: Vec<usize>,
}

impl<'w> Writer<'w> {
    /// A writer for a DB of the source.
    pub fn new(
        rewriter: &'w Rewriter,
        stop: &'w Stop,
        stats: &'w Arc<Stats>,
        lanes: &'w mut [Lane],
        db: u64,
    ) -> Writer<'w> {
        Writer {
            to: rewriter.mapping.db(db),
            rewriter,
            stop,
            stats,
            lanes,
            changed: Vec::new(),
            begun: None,
            text: None,
            unread: Vec::new(),
        }
    }

    /// Copies the keys that the source's DB has, and deletes the others from the target;
    /// returns how many exist.
    pub fn copy(&mut self, source: &mut Values, keys: &[Vec<u8>]) -> Result<u64> {
        let mapping = &self.rewriter.mapping;
        let mut copied: Vec<&[u8]> = Vec::with_capacity(keys.len());
        for key in keys {
            if mapping.is_ambiguous(key) {
                let shown = shown(key);
                return Err(Error::Refused(format!(
                    "key {shown:?} keeps a name that --rename-prefix gives to another one: name the keys to copy with --prefix"
                )));
            }
            if mapping.key(key).is_some() {
                copied.push(key);
            }
        }
        let shapes = source.shapes(&copied)?;
        for (key, _) in copied.iter().zip(&shapes).filter(|(_, s)| s.is_none()) {
            self.remove(key)?;
        }
        let there: Vec<(&[u8], &Shape)> = copied
            .iter()
            .zip(&shapes)
            .filter_map(|(key, shape)| Some((*key, shape.as_ref()?)))
            .collect();
        let way = match source.has_dump {
            true => Way::Dump,
            false => Way::Typed,
        };
        self.read(source, &there, way)?;
        let unread = std::mem::take(&mut self.unread);
        let unread: Vec<_> = unread
            .iter()
            .filter_map(|at| there.get(*at).copied())
            .collect();
        self.read(source, &unread, Way::Typed)?;
        Ok(there.len() as u64)
    }

    fn read(&mut self, source: &mut Values, keys: &[(&[u8], &Shape)], way: Way) -> Result<()> {
        // No command reads the values of a module's type.
        let numbered = keys.iter().copied().enumerate();
        let (known, others): (Vec<_>, Vec<_>) = numbered.partition(|(_, (_, shape))| {
            let known = [
                "string",
                "list",
                "set",
                "zset",
                "hash",
                "stream",
                "sortedint",
            ];
            known.contains(&shape.kind.as_str())
        });
        for (_, (key, shape)) in others {
            let command = format!("the key {:?}", shown(key));
            let error = format!("values of the type {} are not known", shape.kind);
            refused(command, error, false, self.rewriter.keep_going, self.stats)?;
        }
        let asked: Vec<(&[u8], &Shape)> = known.iter().map(|(_, asked)| *asked).collect();
        source.read(&asked, way, |at, part| match known.get(at) {
            Some((at, (key, shape))) => {
                // A value that was begun must be completed.
                self.stop.check_now()?;
                self.part(*at, key, shape, part)
            }
            None => Ok(()),
        })
    }

    /// The lane and the target's name of a key. A key always has the same lane, so its
    /// commands run in order.
    fn lane(&mut self, key: &[u8]) -> Result<Option<(usize, &mut Lane, Vec<u8>)>> {
        let (Some(name), Some(to)) = (self.rewriter.mapping.key(key), self.to) else {
            return Ok(None);
        };
        let name = name.into_owned();
        let at = (crc64(to, &name) % self.lanes.len().max(1) as u64) as usize;
        let Some(lane) = self.lanes.get_mut(at) else {
            return Ok(None);
        };
        lane.select(to)?;
        Ok(Some((at, lane, name)))
    }

    /// Deletes a key from the target.
    pub fn remove(&mut self, key: &[u8]) -> Result<()> {
        match self.lane(key)? {
            Some((_, lane, name)) => {
                lane.maker.command(&[b"DEL", &name]);
                lane.flush_full()
            }
            None => Ok(()),
        }
    }

    fn part(&mut self, at: usize, key: &[u8], shape: &Shape, part: Part<'_>) -> Result<()> {
        match part {
            Part::Payload(bytes) => {
                if !self.payload(key, shape, bytes)? {
                    self.unread.push(at);
                }
                Ok(())
            }
            Part::Text(text) => {
                self.text.get_or_insert_default().extend_from_slice(text);
                Ok(())
            }
            Part::Element(element) => self.element(key, shape, element),
            Part::End => {
                if let Some(text) = self.text.take() {
                    self.element(key, shape, Element::String(&text))?;
                }
                self.end()
            }
            Part::Gone => {
                self.text = None;
                self.changed.push(key.to_vec());
                self.end()
            }
        }
    }

    fn element(&mut self, key: &[u8], shape: &Shape, element: Element<'_>) -> Result<()> {
        if self.begun.is_none()
            && let Some((at, lane, name)) = self.lane(key)?
        {
            let rule = TimeRule {
                over_ms: clock::unix_ms(),
                not_before_ms: UnixMs::NONE,
            };
            lane.maker.begin(&name, shape.expire_ms, true, rule);
            self.begun = Some(at);
        }
        let Some(lane) = self.begun.and_then(|at| self.lanes.get_mut(at)) else {
            return Ok(());
        };
        lane.maker.add(element);
        if lane.maker.lost_times() > 0 && !self.rewriter.keep_going {
            return Err(times_refused(key));
        }
        lane.flush_long()
    }

    /// Ends the current value.
    fn end(&mut self) -> Result<()> {
        let begun = self.begun.take();
        let Some(lane) = begun.and_then(|at| self.lanes.get_mut(at)) else {
            return Ok(());
        };
        lane.maker.end();
        self.stats.lost_times(lane.maker.lost_times());
        lane.flush_full()
    }

    /// Sends a payload to the target; false if its type is unknown here, and so possibly
    /// at the target.
    fn payload(&mut self, key: &[u8], shape: &Shape, bytes: &[u8]) -> Result<bool> {
        let Ok(opened) = payload::open(bytes) else {
            return Ok(false);
        };
        let Ok(value_type) = opened.value_type() else {
            return Ok(false);
        };
        // Hashes and sets elements of which expire are copied element by element, so that the
        // expiry is counted or converted.
        if (kind::HASH_METADATA_PRE_GA..=kind::HASH_LISTPACK_EX).contains(&opened.kind)
            || opened.kind == kind::MODULE_2 && value_type == ValueType::Set
        {
            let mut reader = Reader::new(opened.value, MAX_STRING);
            let read = read_value(&mut reader, opened.kind, opened.dialect, |element| {
                self.element(key, shape, element).map_err(Ended::Error)
            });
            return match read {
                Ok(_) | Err(Ended::Rdb(rdb::Error::Empty)) => Ok(true),
                Err(Ended::Rdb(error)) => Err(Error::Rdb {
                    what: format!("key {:?}", shown(key)),
                    error,
                }),
                Err(Ended::Error(error)) => Err(error),
            };
        }
        let Some((_, lane, name)) = self.lane(key)? else {
            return Ok(true);
        };
        let mut digits = itoa::Buffer::new();
        let at_ms = digits.format(shape.expire_ms.0).as_bytes();
        lane.maker
            .command(&[b"RESTORE", &name, at_ms, bytes, b"REPLACE", b"ABSTTL"]);
        lane.flush_full()?;
        Ok(true)
    }
}

/// What ended the reading of a payload.
enum Ended {
    Rdb(rdb::Error),
    Error(Error),
}

impl From<rdb::Error> for Ended {
    fn from(error: rdb::Error) -> Self {
        Ended::Rdb(error)
    }
}
