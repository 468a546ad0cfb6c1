//! Translation of the stream's commands for the target: other key names, another DB, or
//! nothing.
//!
//! Relative expiry becomes absolute, and expiry in the near future is postponed (see
//! [`kept_until`]): a key must not expire at the target while the stream may still
//! contain commands for it. The source deletes expired keys.

use super::copy::{MAX_STRING, kept_elements, kept_until};
use super::elements::{Abilities, Maker};
use super::mapping::MARKER_PREFIX;
use super::mapping::Mapping;
use super::stats::Stats;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::commands::table::migrated::{Migrated, Part, PopEnd, Time, TtlPlace};
use crate::commands::without_times::{Timeless, without_times};
use crate::commands::{Command, registry};
use crate::rdb::decode::read_value;
use crate::rdb::reader::Reader;
use crate::rdb::{self, Element, payload};
use crate::resp::encode::command;
use std::borrow::Cow;
use std::sync::Arc;

/// The translation of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Rewritten<'a> {
    /// The command is dropped.
    Nothing,
    /// The same command in this DB.
    Same(u64),
    /// Another command in this DB.
    Command(u64, Vec<Cow<'a, [u8]>>),
    /// Several commands in this DB, encoded, and their number.
    Commands(u64, Vec<u8>, usize),
    /// All copied keys in these DBs are deleted; an empty list: in all DBs.
    Clear(Vec<u64>),
    /// Two DBs are swapped.
    Swap(u64, u64),
}

/// Why a command cannot be carried over.
pub type Why = &'static str;

const NEEDS_VALUE: Why = "it takes from a key or DB that is not copied";
const AMBIGUOUS: Why = "its key keeps a name that --rename-prefix gives to another one";
const UNKNOWN: Why = "which of its arguments are keys is not known here";
const TIMES: Why = "the target keeps no such times of elements; --keep-going leaves such times out";
const MALFORMED: Why = "it is malformed";

/// Translates commands of the source's stream for the target.
#[derive(Debug, Clone)]
pub struct Rewriter {
    /// Names of DBs and keys.
    pub mapping: Mapping,
    /// Abilities of the target.
    pub abilities: Abilities,
    /// Whether field expiry that the target does not support is dropped instead of being
    /// an error.
    pub keep_going: bool,
    /// Where dropped expiry is counted.
    pub stats: Arc<Stats>,
}

impl Rewriter {
    /// Translates a command that the source ran in `db`.
    ///
    /// # Errors
    /// The command cannot be translated.
    pub fn rewrite<'a>(
        &self,
        db: u64,
        args: &[&'a [u8]],
        now_ms: UnixMs,
    ) -> Result<Rewritten<'a>, Why> {
        let command = find(args);
        // A target that has all keys by the same names takes an unknown command as it is.
        let migrated = command.map_or(Migrated::Keys(Part::NeedsAll), |known| known.migrated);
        match migrated {
            Migrated::Keys(part) => self.keys(db, command, part, args),
            Migrated::Expiring(expiry) => self.expiring(db, command, expiry, args, now_ms),
            Migrated::ExpiringPairs => self.expiring_pairs(db, args, now_ms),
            Migrated::Payload => self.payload(db, command, args, now_ms),
            Migrated::CopiedKey => self.copy_key(db, args),
            Migrated::MovedKey => self.move_key(db, args),
            Migrated::ClearedDb => Ok(self.flush_db(db)),
            Migrated::ClearedDbs => Ok(self.flush_all(db)),
            Migrated::SwappedDbs => self.swap(args),
            Migrated::Message => Ok(Rewritten::Same(self.mapping.home())),
            Migrated::Script => Ok(
                match self.mapping.dbs().is_none() && self.mapping.is_whole() {
                    true => Rewritten::Same(db),
                    false => Rewritten::Nothing,
                },
            ),
            Migrated::Nothing => Ok(Rewritten::Nothing),
        }
    }

    /// A command of which only the names of its keys may be others.
    fn keys<'a>(
        &self,
        db: u64,
        command: Option<&Command>,
        part: Part,
        args: &[&'a [u8]],
    ) -> Result<Rewritten<'a>, Why> {
        let Some(to) = self.mapping.db(db) else {
            return Ok(Rewritten::Nothing);
        };
        if let Some(timeless) = without_times(args)
            && !self.abilities.keep_times(timeless.kind)
        {
            return self.timeless(to, args, timeless);
        }
        self.rename(command, part, to, args)
    }

    /// A command with a time to live.
    fn expiring<'a>(
        &self,
        db: u64,
        command: Option<&Command>,
        expiry: TtlPlace,
        args: &[&'a [u8]],
        now_ms: UnixMs,
    ) -> Result<Rewritten<'a>, Why> {
        let Some(to) = self.mapping.db(db) else {
            return Ok(Rewritten::Nothing);
        };
        let Some(timed) = with_time(expiry, args, now_ms)? else {
            return self.rename(command, Part::NeedsAll, to, args);
        };
        // The keys are at the same indices.
        let args: Vec<&[u8]> = timed.iter().map(AsRef::as_ref).collect();
        let named = match self.rename(command, Part::NeedsAll, to, &args)? {
            Rewritten::Same(_) => timed,
            Rewritten::Command(_, args) => owned(args),
            Rewritten::Nothing
            | Rewritten::Commands(..)
            | Rewritten::Clear(_)
            | Rewritten::Swap(..) => return Ok(Rewritten::Nothing),
        };
        Ok(match expiry {
            TtlPlace::BehindKey(_) => Rewritten::Command(to, named),
            TtlPlace::BeforeValue(_) | TtlPlace::Option => self.plain_set(to, named),
        })
    }

    /// MSETEX as a SET for each copied key, which targets of any version accept: it is in the
    /// stream because its condition was met.
    fn expiring_pairs<'a>(
        &self,
        db: u64,
        args: &[&'a [u8]],
        now_ms: UnixMs,
    ) -> Result<Rewritten<'a>, Why> {
        let Some(to) = self.mapping.db(db) else {
            return Ok(Rewritten::Nothing);
        };
        let count = args.get(1).and_then(|n| num::parse_u64(n));
        let end = count.and_then(|n| usize::try_from(n).ok()?.checked_mul(2)?.checked_add(2));
        let data = end.and_then(|end| Some((args.get(2..end)?, args.get(end..)?)));
        let (pairs, options) = data.ok_or(MALFORMED)?;
        let is_met =
            |word: &&&[u8]| word.eq_ignore_ascii_case(b"nx") || word.eq_ignore_ascii_case(b"xx");
        let options: Vec<&[u8]> = options
            .iter()
            .filter(|word| !is_met(word))
            .copied()
            .collect();
        let (mut out, mut commands) = (Vec::new(), 0);
        for pair in pairs.chunks_exact(2) {
            let set = [b"SET".as_slice(), pair[0], pair[1]];
            let set: Vec<&[u8]> = set.iter().chain(&options).copied().collect();
            match self.expiring(db, find(&set), TtlPlace::Option, &set, now_ms)? {
                Rewritten::Same(_) => command(&mut out, &set),
                Rewritten::Command(_, args) => command(&mut out, &args),
                Rewritten::Commands(_, several, n) => {
                    out.extend_from_slice(&several);
                    commands += n - 1;
                }
                Rewritten::Nothing | Rewritten::Clear(_) | Rewritten::Swap(..) => continue,
            }
            commands += 1;
        }
        Ok(match commands {
            0 => Rewritten::Nothing,
            _ => Rewritten::Commands(to, out, commands),
        })
    }

    /// A command with a payload.
    fn payload<'a>(
        &self,
        db: u64,
        command: Option<&Command>,
        args: &[&'a [u8]],
        now_ms: UnixMs,
    ) -> Result<Rewritten<'a>, Why> {
        let Some(to) = self.mapping.db(db) else {
            return Ok(Rewritten::Nothing);
        };
        match self.restore(to, args, now_ms)? {
            Some(made) => Ok(made),
            None => self.rename(command, Part::NeedsAll, to, args),
        }
    }

    /// A command that sets times of elements, without the times.
    fn timeless<'a>(
        &self,
        to: u64,
        args: &[&'a [u8]],
        timeless: Timeless<'a>,
    ) -> Result<Rewritten<'a>, Why> {
        let key = args.get(1).and_then(|key| self.mapping.key(key));
        if key.is_none() {
            return Ok(Rewritten::Nothing);
        }
        if timeless.elements > 0 && !self.keep_going {
            return Err(TIMES);
        }
        self.stats.lost_times(timeless.elements);
        let Some(command) = timeless.command else {
            return Ok(Rewritten::Nothing);
        };
        let named = self.rename(find(&command), Part::NeedsAll, to, &command)?;
        Ok(match named {
            Rewritten::Same(to) => {
                Rewritten::Command(to, command.into_iter().map(Cow::Borrowed).collect())
            }
            other => other,
        })
    }

    fn flush_db<'a>(&self, db: u64) -> Rewritten<'a> {
        match self.mapping.db(db) {
            None => Rewritten::Nothing,
            Some(to) if self.mapping.has_all_keys() => {
                Rewritten::Command(to, vec![Cow::Borrowed(b"FLUSHDB")])
            }
            Some(to) => Rewritten::Clear(vec![to]),
        }
    }

    fn flush_all<'a>(&self, db: u64) -> Rewritten<'a> {
        match self.mapping.dbs() {
            None if self.mapping.has_all_keys() => {
                Rewritten::Command(db, vec![Cow::Borrowed(b"FLUSHALL")])
            }
            // The DBs of the source are unknown here: all DBs with keys.
            None => Rewritten::Clear(Vec::new()),
            Some(dbs) => Rewritten::Clear(dbs.values().copied().collect()),
        }
    }

    fn swap<'a>(&self, args: &[&[u8]]) -> Result<Rewritten<'a>, Why> {
        let number = |at: usize| {
            args.get(at)
                .and_then(|n| num::parse_u64(n))
                .ok_or(MALFORMED)
        };
        let (a, b) = (number(1)?, number(2)?);
        match (self.mapping.db(a), self.mapping.db(b)) {
            (None, None) => Ok(Rewritten::Nothing),
            (Some(a), Some(b)) if self.mapping.has_all_keys() => Ok(Rewritten::Swap(a, b)),
            (Some(_), Some(_)) => Err("it swaps DBs of which only some keys are copied"),
            _ => Err("it swaps a DB that is copied with one that is not"),
        }
    }

    fn move_key<'a>(&self, db: u64, args: &[&'a [u8]]) -> Result<Rewritten<'a>, Why> {
        let &[_, key, other] = args else {
            return Err(MALFORMED);
        };
        let other = num::parse_u64(other).ok_or(MALFORMED)?;
        let Some(key) = self.mapping.key(key) else {
            return Ok(Rewritten::Nothing);
        };
        match (self.mapping.db(db), self.mapping.db(other)) {
            (Some(from), Some(to)) => Ok(Rewritten::Command(
                from,
                vec![
                    Cow::Borrowed(b"MOVE"),
                    key,
                    to.to_string().into_bytes().into(),
                ],
            )),
            (Some(from), None) => Ok(Rewritten::Command(from, vec![Cow::Borrowed(b"DEL"), key])),
            (None, Some(_)) => Err(NEEDS_VALUE),
            (None, None) => Ok(Rewritten::Nothing),
        }
    }

    fn copy_key<'a>(&self, db: u64, args: &[&'a [u8]]) -> Result<Rewritten<'a>, Why> {
        let [_, from, to, options @ ..] = args else {
            return Err(MALFORMED);
        };
        let (mut other, mut rewritten) = (db, Vec::new());
        let mut options = options.iter();
        while let Some(option) = options.next() {
            if option.eq_ignore_ascii_case(b"db") {
                let number = options.next().and_then(|n| num::parse_u64(n));
                other = number.ok_or(MALFORMED)?;
            } else {
                rewritten.push(Cow::Borrowed(*option));
            }
        }
        let source = self.mapping.db(db).zip(self.mapping.key(from));
        let target = self.mapping.db(other).zip(self.mapping.key(to));
        let ((db, from), (other, to)) = match (source, target) {
            (_, None) => return Ok(Rewritten::Nothing),
            (None, Some(_)) => return Err(NEEDS_VALUE),
            (Some(source), Some(target)) => (source, target),
        };
        let mut args = vec![Cow::Borrowed(&b"COPY"[..]), from, to];
        if db != other {
            args.push(Cow::Borrowed(b"DB"));
            args.push(other.to_string().into_bytes().into());
        }
        args.extend(rewritten);
        Ok(Rewritten::Command(db, args))
    }

    /// A SET in a form that targets of any version accept.
    fn plain_set<'a>(&self, to: u64, args: Vec<Cow<'a, [u8]>>) -> Rewritten<'a> {
        let timed = args.len().checked_sub(2).filter(|at| *at >= 3);
        let Some(at) = timed.filter(|at| {
            !self.abilities.set_pxat && args.get(*at).is_some_and(|w| w.as_ref() == b"PXAT")
        }) else {
            return Rewritten::Command(to, args);
        };
        let mut out = Vec::new();
        command(&mut out, args.get(..at).unwrap_or_default());
        let (key, at_ms) = (args.get(1), args.get(at + 1));
        let (key, at_ms) = (key.map_or(&b""[..], |k| k), at_ms.map_or(&b""[..], |t| t));
        command(&mut out, &[b"PEXPIREAT".as_slice(), key, at_ms]);
        Rewritten::Commands(to, out, 2)
    }

    /// A payload as commands that create its value, which servers of all versions
    /// accept; `None` if its type is unknown here.
    fn restore<'a>(
        &self,
        to: u64,
        args: &[&[u8]],
        now_ms: UnixMs,
    ) -> Result<Option<Rewritten<'a>>, Why> {
        let [_, key, ttl, payload, options @ ..] = args else {
            return Err(MALFORMED);
        };
        if self.mapping.is_ambiguous(key) {
            return Err(AMBIGUOUS);
        }
        let Some(key) = self.mapping.key(key) else {
            return Ok(Some(Rewritten::Nothing));
        };
        let ttl = num::parse_u64(ttl).ok_or(MALFORMED)?;
        let is_absolute = options.iter().any(|o| o.eq_ignore_ascii_case(b"absttl"));
        let expire_ms = match (ttl, is_absolute) {
            (0, _) => UnixMs::NONE,
            (at_ms, true) => UnixMs(at_ms),
            (ttl_ms, false) => now_ms + ttl_ms,
        };
        let Ok(opened) = payload::open(payload) else {
            return Ok(None);
        };
        if opened.value_type().is_err() {
            return Ok(None);
        }
        let mut maker = Maker::new(self.abilities);
        let expire_ms = kept_until(expire_ms, now_ms);
        maker.begin(&key, expire_ms, true, kept_elements(now_ms));
        let mut reader = Reader::new(opened.value, MAX_STRING);
        let read = read_value(
            &mut reader,
            opened.kind,
            opened.dialect,
            |element: Element<'_>| {
                maker.add(element);
                Ok::<(), rdb::Error>(())
            },
        );
        if read.is_err() {
            return Ok(None);
        }
        maker.end();
        let lost = maker.lost_times();
        if lost > 0 && !self.keep_going {
            return Err(TIMES);
        }
        self.stats.lost_times(lost);
        Ok(Some(Rewritten::Commands(to, maker.out, maker.commands)))
    }

    /// The command with the keys' names at the target.
    fn rename<'a>(
        &self,
        command: Option<&Command>,
        part: Part,
        to: u64,
        args: &[&'a [u8]],
    ) -> Result<Rewritten<'a>, Why> {
        if self.mapping.is_whole() {
            let is_marker = args
                .get(1)
                .is_some_and(|key| key.starts_with(MARKER_PREFIX));
            return Ok(match is_marker {
                true => Rewritten::Nothing,
                false => Rewritten::Same(to),
            });
        }
        let command = command.ok_or(UNKNOWN)?;
        let indices = command.key_indices(args).ok_or(UNKNOWN)?;
        if indices.is_empty() {
            return Err(UNKNOWN);
        }
        let mut renamed: Vec<Cow<'a, [u8]>> = args.iter().map(|arg| Cow::Borrowed(*arg)).collect();
        let mut inside = Vec::with_capacity(indices.len());
        for index in &indices {
            let key = args.get(*index).copied();
            if key.is_some_and(|key| self.mapping.is_ambiguous(key)) {
                return Err(AMBIGUOUS);
            }
            let key = key.and_then(|key| self.mapping.key(key));
            inside.push(key.is_some());
            if let (Some(key), Some(place)) = (key, renamed.get_mut(*index)) {
                *place = key;
            }
        }
        if inside.iter().all(|is_in| *is_in) {
            return Ok(Rewritten::Command(to, renamed));
        }
        if !inside.contains(&true) {
            return Ok(Rewritten::Nothing);
        }
        match part_of(part, &renamed, &indices, &inside) {
            Some(args) => Ok(Rewritten::Command(to, args)),
            None => {
                let mut writes_inside = false;
                command.for_each_written_key(args, |key| {
                    writes_inside |= self.mapping.key(key).is_some();
                });
                match writes_inside {
                    true => Err(NEEDS_VALUE),
                    false => Ok(Rewritten::Nothing),
                }
            }
        }
    }
}

/// The command of these arguments, if it is known here.
fn find(args: &[&[u8]]) -> Option<&'static Command> {
    let found = registry().find(args.first()?)?;
    let subcommand = args.get(1).and_then(|word| found.subcommand(word));
    Some(subcommand.unwrap_or(found).command)
}

/// The command with its expiry absolute and postponed; `None` if it has no expiry.
fn with_time<'a>(
    expiry: TtlPlace,
    args: &[&'a [u8]],
    now_ms: UnixMs,
) -> Result<Option<Vec<Cow<'a, [u8]>>>, Why> {
    let until = |n: &[u8], time: Time| {
        let n = num::parse_i64(n).ok_or(MALFORMED)?.max(0).unsigned_abs();
        let at_ms = kept_until(time.at_ms(n, now_ms).max(UnixMs(1)), now_ms);
        Ok::<_, Why>(Cow::Owned(at_ms.to_string().into_bytes()))
    };
    let arg = |at: usize| args.get(at).copied().ok_or(MALFORMED);
    let word = |word: &'static [u8]| Cow::Borrowed(word);
    match expiry {
        TtlPlace::BehindKey(time) => {
            let at_ms = until(arg(2)?, time)?;
            Ok(Some(vec![word(b"PEXPIREAT"), arg(1)?.into(), at_ms]))
        }
        TtlPlace::BeforeValue(time) => {
            let (key, value) = (arg(1)?.into(), arg(3)?.into());
            let at_ms = until(arg(2)?, time)?;
            Ok(Some(vec![word(b"SET"), key, value, word(b"PXAT"), at_ms]))
        }
        TtlPlace::Option if args.len() < 5 => Ok(None),
        TtlPlace::Option => {
            let mut out: Vec<Cow<'a, [u8]>> = Vec::with_capacity(args.len());
            out.extend(args.iter().take(3).map(|arg| Cow::Borrowed(*arg)));
            let (mut options, mut found) = (args.iter().skip(3), None);
            let mut is_conditional = false;
            while let Some(option) = options.next() {
                // It is in the stream because its condition was met; the target's value may
                // be another one, and its version may not know the condition.
                if is_condition(option) {
                    is_conditional = true;
                    options.next().ok_or(MALFORMED)?;
                    continue;
                }
                match Time::of_option(option) {
                    Some(time) => {
                        let n = options.next().ok_or(MALFORMED)?;
                        found = Some(until(n, time)?);
                    }
                    None => out.push(Cow::Borrowed(*option)),
                }
            }
            match found {
                Some(at_ms) => out.extend([word(b"PXAT"), at_ms]),
                None if !is_conditional => return Ok(None),
                None => {}
            }
            Ok(Some(out))
        }
    }
}

/// Whether an option of SET compares the value: its operand follows.
fn is_condition(option: &[u8]) -> bool {
    let words: [&[u8]; 4] = [b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"];
    words.iter().any(|word| option.eq_ignore_ascii_case(word))
}

/// A command of which only some keys are copied, reduced to those; `None` if what it does to
/// them depends on the others.
fn part_of<'a>(
    part: Part,
    args: &[Cow<'a, [u8]>],
    indices: &[usize],
    inside: &[bool],
) -> Option<Vec<Cow<'a, [u8]>>> {
    let arg = |at: usize| args.get(at).cloned();
    let word = |word: &'static [u8]| Cow::Borrowed(word);
    let kept = indices.iter().zip(inside).filter(|(_, is_in)| **is_in);
    let kept = kept.map(|(at, _)| *at);
    let is_first = inside.first().is_some_and(|is_in| *is_in);
    match part {
        Part::NeedsAll => None,
        Part::FewerKeys => {
            let mut out = vec![arg(0)?];
            out.extend(kept.filter_map(arg));
            Some(out)
        }
        // MSETNX is in the stream because none of the keys was there.
        Part::FewerPairs => {
            let mut out = vec![word(b"MSET")];
            for at in kept {
                out.extend([arg(at)?, arg(at + 1)?]);
            }
            Some(out)
        }
        Part::FewerTriplets => {
            let mut out = vec![word(b"JSON.MSET")];
            for at in kept {
                out.extend([arg(at)?, arg(at + 1)?, arg(at + 2)?]);
            }
            Some(out)
        }
        Part::Renamed => is_first.then_some(vec![word(b"DEL"), arg(1)?]),
        Part::MovedMember => Some(match is_first {
            true => vec![word(b"SREM"), arg(1)?, arg(3)?],
            false => vec![word(b"SADD"), arg(2)?, arg(3)?],
        }),
        Part::MovedElement(end) => is_first.then_some(vec![word(pop_from(end, args)?), arg(1)?]),
        Part::MovedElements(end, count) => {
            let mut pop = vec![word(pop_from(end, args)?), arg(1)?];
            pop.extend(arg(count));
            is_first.then_some(pop)
        }
    }
}

/// The command that pops from this end.
fn pop_from(end: PopEnd, args: &[Cow<'_, [u8]>]) -> Option<&'static [u8]> {
    let is_left = match end {
        PopEnd::Right => false,
        PopEnd::Named(at) => args.get(at)?.eq_ignore_ascii_case(b"left"),
    };
    Some(if is_left { b"LPOP" } else { b"RPOP" })
}

fn owned<'a>(args: Vec<Cow<'_, [u8]>>) -> Vec<Cow<'a, [u8]>> {
    let args = args.into_iter();
    args.map(|arg| Cow::Owned(arg.into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::mapping::tests::mapping;
    use super::*;

    const NOW: UnixMs = UnixMs(1_000_000);

    fn rewriter(flags: &[&str]) -> Rewriter {
        Rewriter {
            mapping: mapping(flags).expect("flags"),
            abilities: Abilities {
                set_pxat: true,
                stream_counters: true,
                field_times: false,
                member_times: false,
            },
            keep_going: flags.contains(&"--keep-going"),
            stats: Arc::default(),
        }
    }

    fn check(flags: &[&str], db: u64, command: &str, expected: &str) {
        let rewriter = rewriter(flags);
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let shown = match rewriter.rewrite(db, &args, NOW) {
            Ok(Rewritten::Nothing) => "nothing".to_owned(),
            Ok(Rewritten::Same(to)) => format!("{to}: the same"),
            Ok(Rewritten::Command(to, args)) => {
                let args: Vec<_> = args
                    .iter()
                    .map(|arg| String::from_utf8_lossy(arg))
                    .collect();
                format!("{to}: {}", args.join(" "))
            }
            Ok(Rewritten::Commands(to, _, commands)) => format!("{to}: {commands} commands"),
            Ok(Rewritten::Clear(dbs)) => format!("clear {dbs:?}"),
            Ok(Rewritten::Swap(a, b)) => format!("swap {a} {b}"),
            Err(_) => "impossible".to_owned(),
        };
        assert_eq!(shown, expected, "{flags:?} {db} {command}");
    }

    #[test]
    fn all_of_it() {
        let all: &[&str] = &[];
        check(all, 3, "RPUSH k a", "3: the same");
        check(all, 3, "MODULE.COMMAND k", "3: the same");
        check(all, 3, "PING", "nothing");
        check(all, 0, "SET kedis:migration:12 x", "nothing");
        check(all, 0, "FLUSHALL", "0: FLUSHALL");
        check(all, 1, "FLUSHDB", "1: FLUSHDB");
        check(all, 0, "SWAPDB 1 2", "swap 1 2");
        check(all, 0, "MOVE k 4", "0: MOVE k 4");
        check(all, 0, "FUNCTION LOAD x", "0: the same");
    }

    #[test]
    fn times_are_absolute_and_not_too_near() {
        let all: &[&str] = &[];
        check(all, 0, "EXPIRE k 100", "0: PEXPIREAT k 1100000");
        check(all, 0, "PEXPIREAT k 5", "0: PEXPIREAT k 1060000");
        check(all, 0, "PEXPIREAT k 9000000", "0: PEXPIREAT k 9000000");
        check(all, 0, "SETEX k 100 v", "0: SET k v PXAT 1100000");
        check(all, 0, "SET k v PXAT 7", "0: SET k v PXAT 1060000");
        check(all, 0, "SET k v EX 100 NX", "0: SET k v NX PXAT 1100000");
        check(all, 0, "SET k PX", "0: the same");
        check(all, 0, "SET k v KEEPTTL", "0: the same");
        check(
            &["--rename-prefix", "k=n"],
            0,
            "SET k v EX 100",
            "0: SET n v PXAT 1100000",
        );
    }

    /// The tool used to end at the first such command.
    #[test]
    fn what_a_condition_allowed_is_unconditional() {
        check(&[], 0, "SET k v IFEQ EX", "0: SET k v");
        check(&[], 0, "SET k v IFDNE x PX", "impossible");
        let timed = "0: SET k v PXAT 9000000";
        check(&[], 0, "SET k v IFNE PX PXAT 9000000", timed);
        check(&[], 0, "SET k v PXAT 9000000 IFEQ w", timed);
    }

    #[test]
    fn pairs_with_a_time_become_sets() {
        let flags: &[&str] = &["--rename-prefix", "a=c"];
        for (options, kept) in [
            (vec!["PXAT", "9000000", "NX"], vec!["PXAT", "9000000"]),
            (vec!["XX", "KEEPTTL"], vec!["KEEPTTL"]),
            (vec![], vec![]),
        ] {
            let args = [&["MSETEX", "2", "a", "1", "b", "2"], &options[..]].concat();
            let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
            let Ok(Rewritten::Commands(0, bytes, 2)) = rewriter(flags).rewrite(0, &args, NOW)
            else {
                panic!("{options:?}: not two commands");
            };
            let mut expected = Vec::new();
            command(&mut expected, &[&["SET", "c", "1"], &kept[..]].concat());
            command(&mut expected, &[&["SET", "b", "2"], &kept[..]].concat());
            assert_eq!(bytes, expected, "{options:?}");
        }
        let flags: &[&str] = &["--prefix", "a"];
        check(flags, 0, "MSETEX 2 a 1 b 2 EX 100", "0: 1 commands");
        check(flags, 0, "MSETEX 2 c 1 b 2", "nothing");
        check(&[], 0, "MSETEX 3 a 1 b 2", "impossible");
        check(&[], 0, "MSETEX 9223372036854775807 a 1", "impossible");
    }

    #[test]
    fn several_items_that_move_away_are_popped() {
        let flags: &[&str] = &["--prefix", "a"];
        check(flags, 0, "LMOVEM a b LEFT RIGHT COUNT 3 OBO", "0: LPOP a 3");
        check(flags, 0, "LMOVEM a b RIGHT RIGHT", "0: RPOP a");
        check(flags, 0, "LMOVEM b a LEFT RIGHT", "impossible");
    }

    #[test]
    fn times_of_fields_are_left_out_and_counted() {
        let keep: &[&str] = &["--keep-going"];
        let set = "HSETEX h PXAT 9000000 FIELDS 1 f v";
        check(&[], 0, "HPEXPIREAT h 9000000 FIELDS 1 f", "impossible");
        check(&[], 0, set, "impossible");
        check(&[], 0, "HPERSIST h FIELDS 1 f", "nothing");
        check(keep, 0, "HPEXPIREAT h 9000000 FIELDS 1 f", "nothing");
        check(keep, 0, set, "0: HSET h f v");
        check(&[], 0, "SEXPIRE s 5 MEMBERS 1 m", "impossible");
        let add = "SADDEX s MEMBERS 2 m n PXAT 9000000";
        check(keep, 0, add, "0: SADD s m n");
        check(keep, 0, "SPERSIST s MEMBERS 1 m", "nothing");
        let part: &[&str] = &["--prefix", "a", "--rename-prefix", "a=b", "--keep-going"];
        check(part, 0, "HSETEX a1 EX 5 FIELDS 1 f v", "0: HSET b1 f v");
        check(part, 0, "HSETEX x EX 5 FIELDS 1 f v", "nothing");
        let rewriter = rewriter(part);
        for line in ["HPEXPIREAT a 9 FIELDS 2 f g", "HPEXPIREAT x 9 FIELDS 1 f"] {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(rewriter.rewrite(0, &args, NOW), Ok(Rewritten::Nothing));
        }
        let lost = rewriter.stats.element_times();
        assert_eq!((lost.values, lost.elements), (1, 2));
    }

    #[test]
    fn one_db() {
        let one: &[&str] = &["--src_db", "3", "--dst_db", "5"];
        check(one, 3, "RPUSH k a", "5: the same");
        check(one, 0, "RPUSH k a", "nothing");
        check(one, 0, "FLUSHALL", "clear [5]");
        check(one, 3, "FLUSHDB", "5: FLUSHDB");
        check(one, 0, "FLUSHDB", "nothing");
        check(one, 0, "SWAPDB 1 2", "nothing");
        check(one, 0, "SWAPDB 1 3", "impossible");
        check(one, 3, "MOVE k 4", "5: DEL k");
        check(one, 4, "MOVE k 3", "impossible");
        check(one, 4, "MOVE k 1", "nothing");
        check(one, 3, "COPY a b DB 4", "nothing");
        check(one, 4, "COPY a b DB 3", "impossible");
        check(one, 3, "COPY a b REPLACE", "5: COPY a b REPLACE");
    }

    #[test]
    fn a_part_of_the_keys() {
        let part: &[&str] = &["--prefix", "a", "--rename-prefix", "a=b"];
        check(part, 0, "RPUSH a1 x", "0: RPUSH b1 x");
        check(part, 0, "RPUSH xa x", "nothing");
        check(part, 0, "MODULE.COMMAND a", "impossible");
        check(part, 0, "FLUSHDB", "clear [0]");
        check(part, 0, "DEL a1 x a2", "0: DEL b1 b2");
        check(part, 0, "MSET a1 1 x 2", "0: MSET b1 1");
        check(part, 0, "MSETNX x 2 a1 1", "0: MSET b1 1");
        check(part, 0, "RENAME a1 a2", "0: RENAME b1 b2");
        check(part, 0, "RENAME a1 x", "0: DEL b1");
        check(part, 0, "RENAME x a1", "impossible");
        check(part, 0, "SMOVE a1 x m", "0: SREM b1 m");
        check(part, 0, "SMOVE x a1 m", "0: SADD b1 m");
        check(part, 0, "LMOVE a1 x LEFT RIGHT", "0: LPOP b1");
        check(part, 0, "BLMOVE a1 x RIGHT LEFT 0", "0: RPOP b1");
        check(part, 0, "LMOVE x a1 LEFT RIGHT", "impossible");
        check(part, 0, "RPOPLPUSH a1 x", "0: RPOP b1");
        check(part, 0, "RPOPLPUSH x a1", "impossible");
        check(part, 0, "SUNIONSTORE x a1 a2", "nothing");
        check(part, 0, "SUNIONSTORE a1 x a2", "impossible");
        check(part, 0, "SUNIONSTORE a1 a2 a3", "0: SUNIONSTORE b1 b2 b3");
        check(part, 0, "COPY a1 x", "nothing");
        check(&["--rename-prefix", "a=b"], 0, "RPUSH b1 x", "impossible");
    }

    #[test]
    fn a_payload_becomes_commands() {
        let mut payload = Vec::new();
        crate::rdb::encode::Encoder::new(false).value_string(None, b"v", &mut payload);
        payload::seal(&mut payload);
        let rewriter = rewriter(&[]);
        let args: [&[u8]; 6] = [
            b"RESTORE", b"k", b"9000000", &payload, b"REPLACE", b"ABSTTL",
        ];
        let Ok(Rewritten::Commands(0, bytes, 2)) = rewriter.rewrite(0, &args, NOW) else {
            panic!("two commands");
        };
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", " ");
        assert!(
            text.contains("DEL") && text.contains("PXAT $7 9000000"),
            "{text}"
        );
        let args: [&[u8]; 4] = [b"RESTORE", b"k", b"0", b"?"];
        assert_eq!(rewriter.rewrite(0, &args, NOW), Ok(Rewritten::Same(0)));
        // As a node of a cluster gets it with a slot.
        let args: [&[u8]; 4] = [b"RESTORE-ASKING", b"k", b"0", &payload];
        let made = rewriter.rewrite(0, &args, NOW);
        assert!(matches!(made, Ok(Rewritten::Commands(0, _, 2))), "{made:?}");
    }

    /// SETEX was sent as a SET with PXAT to a target that does not know it.
    #[test]
    fn a_target_without_pxat_gets_two_commands() {
        let mut rewriter = rewriter(&[]);
        rewriter.abilities.set_pxat = false;
        for line in ["SET k v EX 100", "SETEX k 100 v", "PSETEX k 100000 v"] {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let Ok(Rewritten::Commands(0, bytes, 2)) = rewriter.rewrite(0, &args, NOW) else {
                panic!("{line}: not two commands");
            };
            let mut expected = Vec::new();
            command(&mut expected, &["SET", "k", "v"]);
            command(&mut expected, &["PEXPIREAT", "k", "1100000"]);
            assert_eq!(bytes, expected, "{line}");
        }
    }
}
