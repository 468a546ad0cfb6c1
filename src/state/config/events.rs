//! The set of keyspace events that `notify-keyspace-events` names.

use super::kind::ParamKind;
use super::value::{Field, Source, ValueError};
use crate::storage::txn::events::Class;

/// Which keyspace events are published, as a set of the letters that name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotifyEvents(u16);

impl NotifyEvents {
    /// `g`: commands of no one type.
    pub const GENERIC: NotifyEvents = NotifyEvents(Class::GENERIC.bits());
    /// `$`: strings.
    pub const STRING: NotifyEvents = NotifyEvents(Class::STRING.bits());
    /// `l`: lists.
    pub const LIST: NotifyEvents = NotifyEvents(Class::LIST.bits());
    /// `s`: sets.
    pub const SET: NotifyEvents = NotifyEvents(Class::SET.bits());
    /// `h`: hashes.
    pub const HASH: NotifyEvents = NotifyEvents(Class::HASH.bits());
    /// `z`: sorted sets.
    pub const ZSET: NotifyEvents = NotifyEvents(Class::ZSET.bits());
    /// `x`: a key expired.
    pub const EXPIRED: NotifyEvents = NotifyEvents(Class::EXPIRED.bits());
    /// `e`: a key was evicted (`max-disk`).
    pub const EVICTED: NotifyEvents = NotifyEvents(Class::EVICTED.bits());
    /// `t`: streams.
    pub const STREAM: NotifyEvents = NotifyEvents(Class::STREAM.bits());
    /// `d`: keys of a module's type; here JSON.
    pub const MODULE: NotifyEvents = NotifyEvents(Class::MODULE.bits());
    /// `n`: a key was created. Not part of `A`.
    pub const NEW: NotifyEvents = NotifyEvents(Class::NEW.bits());
    /// `K`: publish to `__keyspace@<db>__:<key>`.
    pub(in crate::state) const KEYSPACE: NotifyEvents = NotifyEvents(1 << 11);
    /// `E`: publish to `__keyevent@<db>__:<event>`.
    pub(in crate::state) const KEYEVENT: NotifyEvents = NotifyEvents(1 << 12);
    /// `m`: a key was accessed that does not exist. Not part of `A`.
    pub const KEY_MISS: NotifyEvents = NotifyEvents(Class::KEY_MISS.bits());
    /// `A`: all of `g$lshzxetd`.
    pub const ALL: NotifyEvents = NotifyEvents((1 << 10) - 1);

    /// The letters, in the order of output.
    const LETTERS: [(u8, NotifyEvents); 14] = [
        (b'g', Self::GENERIC),
        (b'$', Self::STRING),
        (b'l', Self::LIST),
        (b's', Self::SET),
        (b'h', Self::HASH),
        (b'z', Self::ZSET),
        (b'x', Self::EXPIRED),
        (b'e', Self::EVICTED),
        (b't', Self::STREAM),
        (b'd', Self::MODULE),
        (b'n', Self::NEW),
        (b'K', Self::KEYSPACE),
        (b'E', Self::KEYEVENT),
        (b'm', Self::KEY_MISS),
    ];

    /// Whether all of `events` are in the set.
    pub fn contains(self, events: NotifyEvents) -> bool {
        self.0 & events.0 == events.0
    }

    /// The classes of published events; empty without a channel for them.
    pub fn classes(self) -> Class {
        match self.is_silent() {
            true => Class::empty(),
            false => Class::from_bits_truncate(self.0),
        }
    }

    /// Whether nothing is published: no channel or no event.
    pub fn is_silent(self) -> bool {
        let channels = Self::KEYSPACE.0 | Self::KEYEVENT.0;
        self.0 & channels == 0 || self.0 & !channels == 0
    }
}

impl Field for NotifyEvents {
    fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
        let mut events = NotifyEvents::default();
        for letter in words.first().ok_or(ValueError::Arity)? {
            let known = Self::LETTERS.iter().find(|(known, _)| known == letter);
            events.0 |= match (letter, known) {
                (b'A', _) => Self::ALL.0,
                (_, Some((_, event))) => event.0,
                _ => {
                    return Err(ValueError::Special(
                        "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.",
                    ));
                }
            };
        }
        *self = events;
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        let all = self.contains(Self::ALL);
        let mut out = Vec::new();
        if all {
            out.push(b'A');
        }
        // Redis omits an `n` beside `A`. It is kept here, so that the text always reads back as
        // the same set.
        out.extend(
            Self::LETTERS
                .iter()
                .filter(|(_, event)| self.contains(*event))
                .filter(|(_, event)| !(all && Self::ALL.contains(*event)))
                .map(|(letter, _)| *letter),
        );
        out
    }
}
