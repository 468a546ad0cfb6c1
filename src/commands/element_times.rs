//! Times of the elements of hashes and sets: commands that set, read and remove when single fields
//! or members expire. A [`Family`] says what differs between both.
//!
//! The binlog gets absolute effects that Redis knows, too (7.4 and later for fields, 8.12 and later
//! for members): `HPEXPIREAT` or `SPEXPIREAT` for elements whose time was set, `HPERSIST` or
//! `SPERSIST`, and `HDEL` or `SREM` for elements whose time is over.

use super::args::{self, Options};
use super::error::quoted;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::num;
use crate::base::time::UnixMs;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::encoding::ValueType;
use crate::lua::api::WRONG_NUMBER;
use crate::storage::View;
use crate::storage::txn::events::Class;
use crate::types::members::Members;

/// The latest time of an element, in Unix ms: that of Redis.
const MAX_MS: i64 = (1 << 46) - 1;

const NO_ELEMENT: i64 = -2;
const NO_TIME: i64 = -1;
pub(super) const NOT_MET: i64 = 0;
pub(super) const DONE: i64 = 1;
const DELETED: i64 = 2;

const NEGATIVE: Error = Error::text("ERR invalid expire time, must be >= 0");
const MANY_CONDITIONS: Error = Error::text("ERR Multiple condition flags specified");
const ONE_EXPIRY: Error =
    Error::text("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified");

/// What the commands on times of a type's elements say.
pub(super) struct Family {
    /// The type.
    pub kind: ValueType,
    class: Class,
    /// The word before the elements.
    word: &'static str,
    /// Whether the conditions may stand behind the elements, too.
    any_order: bool,
    /// The words for: none of the elements exist, all of them do.
    existence: [&'static str; 2],
    one_condition: &'static str,
    /// Commands of the binlog: elements expire at a time, do not expire, are removed.
    expire_at: &'static [u8],
    persist: &'static [u8],
    pub remove: &'static [u8],
    /// Events: elements got a time, lost it, were removed.
    got_time: &'static str,
    lost_time: &'static str,
    pub removed: &'static str,
    misplaced: &'static str,
    miscounted: &'static str,
    /// The number of elements is no number above 0.
    bad_number: &'static str,
    /// The same where a time is set.
    bad_number_to_set: &'static str,
}

/// Fields of hashes.
pub(super) static FIELDS: Family = Family {
    kind: ValueType::Hash,
    class: Class::HASH,
    word: "FIELDS",
    any_order: false,
    existence: ["FNX", "FXX"],
    one_condition: "ERR Only one of FXX or FNX arguments can be specified",
    expire_at: b"HPEXPIREAT",
    persist: b"HPERSIST",
    remove: b"HDEL",
    got_time: "hexpire",
    lost_time: "hpersist",
    removed: "hdel",
    misplaced: "ERR Mandatory argument FIELDS is missing or not at the right position",
    miscounted: "ERR The `numfields` parameter must match the number of arguments",
    bad_number: "ERR Number of fields must be a positive integer",
    bad_number_to_set: "ERR Parameter `numFields` should be greater than 0",
};

/// Members of sets.
pub(super) static MEMBERS: Family = Family {
    kind: ValueType::Set,
    class: Class::SET,
    word: "MEMBERS",
    any_order: true,
    existence: ["MNX", "MXX"],
    one_condition: "ERR Only one of MXX or MNX arguments can be specified",
    expire_at: b"SPEXPIREAT",
    persist: b"SPERSIST",
    remove: b"SREM",
    got_time: "sexpire",
    lost_time: "spersist",
    removed: "srem",
    misplaced: "ERR Mandatory argument MEMBERS is missing or not at the right position",
    miscounted: "ERR The `nummembers` parameter must match the number of arguments",
    bad_number: "ERR Number of members must be a positive integer",
    bad_number_to_set: "ERR Parameter `numMembers` should be greater than 0",
};

/// The family of a type whose elements have times.
pub(super) fn family_of(kind: ValueType) -> &'static Family {
    if kind == ValueType::Set {
        &MEMBERS
    } else {
        &FIELDS
    }
}

/// The unit and the origin of a time.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    ms: i64,
    from_now: bool,
}

const SECONDS: Unit = Unit {
    ms: 1000,
    from_now: true,
};
const MILLISECONDS: Unit = Unit {
    ms: 1,
    from_now: true,
};
const UNIX_SECONDS: Unit = Unit {
    ms: 1000,
    from_now: false,
};
const UNIX_MILLISECONDS: Unit = Unit {
    ms: 1,
    from_now: false,
};

/// The time that an argument means.
pub(super) fn moment(arg: &[u8], unit: Unit, now_ms: UnixMs, name: &str) -> Result<UnixMs, Error> {
    let time = args::int(arg)?;
    if time < 0 {
        return Err(NEGATIVE);
    }
    let start_ms = match unit.from_now {
        true => now_ms.as_i64(),
        false => 0,
    };
    let at_ms = time
        .checked_mul(unit.ms)
        .and_then(|ms| ms.checked_add(start_ms))
        .filter(|ms| *ms <= MAX_MS)
        .and_then(|ms| u64::try_from(ms).ok());
    // 0 is no time at all.
    at_ms
        .map(|ms| UnixMs(ms.max(1)))
        .ok_or_else(|| Error::owned(format!("ERR invalid expire time in '{name}' command")))
}

/// The unit that one of the words EX, PX, EXAT and PXAT means, if it comes next.
pub(super) fn unit_word(options: &mut Options<'_>) -> Option<Unit> {
    let units = [
        ("EX", SECONDS),
        ("PX", MILLISECONDS),
        ("EXAT", UNIX_SECONDS),
        ("PXAT", UNIX_MILLISECONDS),
    ];
    let found = units.into_iter().find(|(word, _)| options.word(word));
    found.map(|(_, unit)| unit)
}

/// The time that a command gives to the elements that it writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NewTime {
    None,
    Kept,
    At(UnixMs),
}

/// The conditions of a command that writes elements, and the time that it gives to them.
pub(super) struct Terms {
    /// Whether all elements must exist, or none of them.
    must_exist: Option<bool>,
    /// Whether the key must exist (XX), or not (NX): words of Valkey.
    key_must_exist: Option<bool>,
    pub time: NewTime,
}

impl Terms {
    pub fn none() -> Terms {
        Terms {
            must_exist: None,
            key_must_exist: None,
            time: NewTime::None,
        }
    }

    /// Takes the condition or time that comes next; returns whether one did. `missing` is the
    /// error if the time ends behind its unit.
    pub fn take(
        &mut self,
        options: &mut Options<'_>,
        family: &Family,
        now_ms: UnixMs,
        (name, missing): (&'static str, Error),
    ) -> Result<bool, Error> {
        let [none, all] = family.existence;
        let wants_none = options.word(none);
        if wants_none || options.word(all) {
            if self.must_exist.replace(!wants_none).is_some() {
                return Err(Error::text(family.one_condition));
            }
            return Ok(true);
        }
        let wants_no_key = options.word("NX");
        if wants_no_key || options.word("XX") {
            if self.key_must_exist.replace(!wants_no_key).is_some() {
                return Err(Error::Syntax);
            }
            return Ok(true);
        }
        let keeps = options.word("KEEPTTL");
        let unit = if keeps { None } else { unit_word(options) };
        if !keeps && unit.is_none() {
            return Ok(false);
        }
        if self.time != NewTime::None {
            return Err(ONE_EXPIRY);
        }
        self.time = match unit {
            None => NewTime::Kept,
            Some(unit) => {
                let at = options.value().map_err(|_| missing)?;
                NewTime::At(moment(at, unit, now_ms, name)?)
            }
        };
        Ok(true)
    }

    /// Whether the conditions are met.
    pub(super) fn are_met(
        &self,
        view: &View,
        value: &Members,
        elements: Elements<'_>,
    ) -> Result<bool, Error> {
        if self.key_must_exist == Some(value.is_empty()) {
            return Ok(false);
        }
        let Some(must_exist) = self.must_exist else {
            return Ok(true);
        };
        for element in elements {
            if value.contains(view, element)? != must_exist {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The error for an argument that is none of a command's words.
pub(super) fn unknown_argument(word: &[u8]) -> Error {
    Error::Bytes([b"ERR unknown argument: ", quoted(word, usize::MAX)].concat())
}

/// A number of elements, from 1 on.
pub(super) fn number(arg: &[u8]) -> Option<usize> {
    let number = num::parse_i64(arg).and_then(|n| i32::try_from(n).ok());
    number
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| *n > 0)
}

/// Elements of a hash or set.
pub(super) type Elements<'a> = &'a [&'a [u8]];

impl Family {
    /// `FIELDS n field…`, which must be all that is left.
    pub fn elements<'a>(&self, options: &mut Options<'a>) -> Result<Elements<'a>, Error> {
        self.last_elements(options, self.bad_number)
    }

    fn last_elements<'a>(
        &self,
        options: &mut Options<'a>,
        bad_number: &'static str,
    ) -> Result<Elements<'a>, Error> {
        if !options.word(self.word) {
            return Err(Error::text(self.misplaced));
        }
        let number = options.value().unwrap_or_default();
        let number = match num::parse_i64(number) {
            Some(n) if n > 0 => n.unsigned_abs(),
            _ => return Err(Error::text(bad_number)),
        };
        let left = options.left();
        match left as u64 == number {
            true => options.values(left),
            false => Err(Error::text(self.miscounted)),
        }
    }

    /// `MEMBERS n member…` behind which more may follow, if its word comes next.
    pub(super) fn some_elements<'a>(
        &self,
        options: &mut Options<'a>,
        found: &mut Option<Elements<'a>>,
        bad_number: &'static str,
    ) -> Result<bool, Error> {
        if !options.word(self.word) {
            return Ok(false);
        }
        if found.is_some() {
            let text = format!("ERR {} keyword specified multiple times", self.word);
            return Err(Error::owned(text));
        }
        let number = number(options.value()?).ok_or(Error::text(bad_number))?;
        if number > options.left() {
            return Err(Error::text(WRONG_NUMBER));
        }
        *found = Some(options.values(number)?);
        Ok(true)
    }

    /// The error if the word before the elements is nowhere.
    pub fn missing(&self) -> Error {
        Error::owned(format!("ERR missing {} argument", self.word))
    }

    /// The condition on elements, and the elements.
    fn conditional<'a>(&self, args: &'a [&'a [u8]]) -> Result<(Condition, Elements<'a>), Error> {
        let mut options = Options::new(args, 3);
        if !self.any_order {
            let condition = Condition::parse(&mut options).unwrap_or(Condition::None);
            let elements = self.last_elements(&mut options, self.bad_number_to_set)?;
            return Ok((condition, elements));
        }
        let (mut condition, mut is_one, mut elements) = (Condition::None, true, None);
        while let Some(word) = options.peek() {
            if args::is(word, self.word) && elements.is_none() && options.left() < 3 {
                return Err(Error::owned(format!(
                    "ERR {0} requires at least num{1} and one {2} argument",
                    self.word,
                    self.word.to_ascii_lowercase(),
                    self.word.trim_end_matches('S').to_ascii_lowercase()
                )));
            }
            if self.some_elements(&mut options, &mut elements, self.bad_number_to_set)? {
                continue;
            }
            let Some(new) = Condition::parse(&mut options) else {
                return Err(unknown_argument(word));
            };
            is_one &= condition == Condition::None || condition == new;
            condition = new;
        }
        let elements = elements.ok_or_else(|| self.missing())?;
        match is_one {
            true => Ok((condition, elements)),
            false => Err(MANY_CONDITIONS),
        }
    }

    /// Notes an event of this type.
    pub fn event(&self, ctx: &mut WriteCtx<'_>, event: &'static str, key: &[u8]) {
        ctx.event(self.class, event, key);
    }

    /// States that elements expire at `at_ms`.
    pub(super) fn state_times(
        &self,
        ctx: &mut WriteCtx<'_>,
        key: &[u8],
        at_ms: UnixMs,
        elements: Elements<'_>,
    ) {
        let mut digits = itoa::Buffer::new();
        let at_ms = digits.format(at_ms.0).as_bytes();
        self.state_counted(ctx, &[self.expire_at, key, at_ms], elements);
    }

    /// States that elements do not expire.
    pub(super) fn state_lost(&self, ctx: &mut WriteCtx<'_>, key: &[u8], elements: Elements<'_>) {
        self.state_counted(ctx, &[self.persist, key], elements);
    }

    fn state_counted(&self, ctx: &mut WriteCtx<'_>, command: &[&[u8]], elements: Elements<'_>) {
        let mut digits = itoa::Buffer::new();
        let count = digits.format(elements.len()).as_bytes();
        let command = [command, &[self.word.as_bytes(), count]].concat();
        state(ctx, &command, elements);
    }

    /// Saves a value elements of which got a time, or were deleted because that is over.
    pub(super) fn finish_times(
        &self,
        ctx: &mut WriteCtx<'_>,
        key: &[u8],
        value: Members,
        elements: Elements<'_>,
        changed: Elements<'_>,
        at_ms: Option<UnixMs>,
    ) -> CmdResult {
        if changed.is_empty() {
            return drop_over(ctx, key, value, elements);
        }
        let event = if at_ms.is_none() {
            self.removed
        } else {
            self.got_time
        };
        self.event(ctx, event, key);
        value.save(ctx.txn, key)?;
        match at_ms {
            None => state(ctx, &[self.remove, key], changed),
            Some(at_ms) => self.state_times(ctx, key, at_ms, changed),
        }
        Ok(())
    }

    /// Saves a value elements of which have lost their time.
    pub(super) fn finish_persist(
        &self,
        ctx: &mut WriteCtx<'_>,
        key: &[u8],
        value: Members,
        elements: Elements<'_>,
        persisted: Elements<'_>,
    ) -> CmdResult {
        if persisted.is_empty() {
            return drop_over(ctx, key, value, elements);
        }
        self.event(ctx, self.lost_time, key);
        value.save(ctx.txn, key)?;
        self.state_lost(ctx, key, persisted);
        Ok(())
    }

    /// Notes the event of elements that got a time beside another change.
    pub(super) fn got_time(&self, ctx: &mut WriteCtx<'_>, key: &[u8]) {
        self.event(ctx, self.got_time, key);
    }
}

/// States what was done with elements: `command element…`.
pub(super) fn state(ctx: &mut WriteCtx<'_>, command: &[&[u8]], elements: Elements<'_>) {
    if !elements.is_empty() {
        ctx.txn.effect(ctx.db, &[command, elements].concat());
    }
}

/// Ends a command that has changed nothing: those of its elements go whose time is over.
pub(super) fn drop_over(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    mut value: Members,
    elements: Elements<'_>,
) -> CmdResult {
    value.drop_over(ctx.txn, elements)?;
    ctx.txn.no_effect();
    Ok(value.save(ctx.txn, key)?)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    Nx,
    Xx,
    Gt,
    Lt,
}

impl Condition {
    /// The condition that comes next, if one does.
    fn parse(options: &mut Options<'_>) -> Option<Condition> {
        let words = [
            ("NX", Condition::Nx),
            ("XX", Condition::Xx),
            ("GT", Condition::Gt),
            ("LT", Condition::Lt),
        ];
        let found = words.into_iter().find(|(word, _)| options.word(word));
        found.map(|(_, condition)| condition)
    }

    /// Whether an element that expires at `current_ms` may expire at `at_ms`. No time is later
    /// than any other.
    fn allows(self, current_ms: UnixMs, at_ms: UnixMs) -> bool {
        match self {
            Condition::None => true,
            Condition::Nx => !current_ms.is_some(),
            Condition::Xx => current_ms.is_some(),
            Condition::Gt => current_ms.is_some() && at_ms > current_ms,
            Condition::Lt => !current_ms.is_some() || at_ms < current_ms,
        }
    }
}

fn set_times(
    ctx: &mut WriteCtx<'_>,
    args: &[&[u8]],
    family: &Family,
    unit: Unit,
    name: &str,
) -> CmdResult {
    let key = args[1];
    let value = Members::load(ctx.txn, ctx.db, key, family.kind)?;
    let at_ms = moment(args[2], unit, ctx.txn.now_ms(), name)?;
    let (condition, elements) = family.conditional(args)?;
    ctx.reply.array(elements.len());
    let Some(mut value) = value else {
        elements.iter().for_each(|_| ctx.reply.int(NO_ELEMENT));
        return Ok(());
    };
    // On a replica nothing is over by the local clock: the master deletes.
    let is_over = at_ms <= ctx.txn.over_when_set_ms();
    let mut changed = Vec::new();
    for element in elements {
        let answer = match value.time(ctx.txn, element)? {
            None => NO_ELEMENT,
            Some(current_ms) if !condition.allows(current_ms, at_ms) => NOT_MET,
            Some(_) if is_over => {
                value.remove(ctx.txn, element)?;
                DELETED
            }
            Some(_) => {
                value.set_time(ctx.txn, element, at_ms)?;
                DONE
            }
        };
        if answer > NOT_MET {
            changed.push(*element);
        }
        ctx.reply.int(answer);
    }
    let at_ms = (!is_over).then_some(at_ms);
    family.finish_times(ctx, key, value, elements, &changed, at_ms)
}

/// Replies for each element with `show` of its time and the current one, in ms.
fn reply_times(
    ctx: &mut ReadCtx<'_>,
    args: &[&[u8]],
    family: &Family,
    show: fn(UnixMs, UnixMs) -> u64,
) -> CmdResult {
    let value = Members::load(ctx.view, ctx.db, args[1], family.kind)?;
    let elements = family.elements(&mut Options::new(args, 2))?;
    ctx.reply.array(elements.len());
    for element in elements {
        let time = match &value {
            Some(value) => value.time(ctx.view, element)?,
            None => None,
        };
        ctx.reply.int(match time {
            None => NO_ELEMENT,
            Some(UnixMs::NONE) => NO_TIME,
            Some(at_ms) => i64::try_from(show(at_ms, ctx.view.now_ms())).unwrap_or(i64::MAX),
        });
    }
    Ok(())
}

fn persist(ctx: &mut WriteCtx<'_>, args: &[&[u8]], family: &Family) -> CmdResult {
    let key = args[1];
    let value = Members::load(ctx.txn, ctx.db, key, family.kind)?;
    let elements = family.elements(&mut Options::new(args, 2))?;
    ctx.reply.array(elements.len());
    let Some(mut value) = value else {
        elements.iter().for_each(|_| ctx.reply.int(NO_ELEMENT));
        return Ok(());
    };
    let mut persisted = Vec::new();
    for element in elements {
        ctx.reply.int(match value.time(ctx.txn, element)? {
            None => NO_ELEMENT,
            Some(UnixMs::NONE) => NO_TIME,
            Some(_) => {
                value.clear_time(ctx.txn, element)?;
                persisted.push(*element);
                DONE
            }
        });
    }
    family.finish_persist(ctx, key, value, elements, &persisted)
}

pub(super) const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];

/// How often an element may stand in what the commands write: its time, its old and new place in
/// the order of times, and the binlog.
pub(super) const PLACES: usize = 4;

/// What most rows say.
const fn row(
    command: Command,
    syntax: &'static str,
    complexity: &'static str,
    keys: &'static [KeySpec],
) -> Command {
    command
        .syntax(syntax)
        .complexity(complexity)
        .flags(Flags::FAST)
        .places(PLACES)
        .keys(keys)
}

/// The rows of a family: name of the elements in texts, syntax of the elements, name of each command.
macro_rules! rows {
    (
        $family:ident, $group:expr, $since:literal, $elements:literal, $syntax:literal,
        $expire:literal $pexpire:literal $expireat:literal $pexpireat:literal
        $ttl:literal $pttl:literal $expiretime:literal $pexpiretime:literal $persist:literal
    ) => {
        &[
            rows!(@set $family, $group, $since, $elements, $syntax, $expire, SECONDS,
                "seconds:int", "in seconds from now"),
            rows!(@set $family, $group, $since, $elements, $syntax, $pexpire, MILLISECONDS,
                "milliseconds:int", "in milliseconds from now"),
            rows!(@set $family, $group, $since, $elements, $syntax, $expireat, UNIX_SECONDS,
                "unix-time-seconds:time", "as a Unix time in seconds"),
            rows!(@set $family, $group, $since, $elements, $syntax, $pexpireat, UNIX_MILLISECONDS,
                "unix-time-milliseconds:time", "as a Unix time in milliseconds"),
            rows!(@get $family, $group, $since, $elements, $syntax, $ttl,
                "how many seconds are left until ", "", |at, now| at.since(now).div_ceil(1000))
            .tips(&[Tip::NondeterministicOutput]),
            rows!(@get $family, $group, $since, $elements, $syntax, $pttl,
                "how many milliseconds are left until ", "", UnixMs::since)
            .tips(&[Tip::NondeterministicOutput]),
            rows!(@get $family, $group, $since, $elements, $syntax, $expiretime,
                "when ", ", as a Unix time in seconds", |at, _| at.0.div_ceil(1000)),
            rows!(@get $family, $group, $since, $elements, $syntax, $pexpiretime,
                "when ", ", as a Unix time in milliseconds", |at, _| at.0),
            row(
                Command::write($persist, -5, |ctx, args| persist(ctx, args, &$family)),
                concat!("key ", $syntax),
                concat!("O(N), N: ", $elements, " named"),
                UPDATE,
            )
            .doc(
                $group,
                $since,
                concat!("Makes ", $elements, " stay that would expire"),
            ),
        ]
    };
    (
        @set $family:ident, $group:expr, $since:literal, $elements:literal, $syntax:literal,
        $name:literal, $unit:ident, $time:literal, $origin:literal
    ) => {
        row(
            Command::write($name, -6, |ctx, args| {
                set_times(ctx, args, &$family, $unit, $name)
            }),
            concat!("key ", $time, " [condition=(NX|XX|GT|LT)] ", $syntax),
            concat!("O(N), N: ", $elements, " named"),
            UPDATE,
        )
        .doc(
            $group,
            $since,
            concat!("Sets when ", $elements, " expire, ", $origin),
        )
    };
    (
        @get $family:ident, $group:expr, $since:literal, $elements:literal, $syntax:literal,
        $name:literal, $what:literal, $unit:literal, $show:expr
    ) => {
        row(
            Command::read($name, -5, |ctx, args| {
                reply_times(ctx, args, &$family, $show)
            }),
            concat!("key ", $syntax),
            concat!("O(N), N: ", $elements, " named"),
            READ,
        )
        .doc(
            $group,
            $since,
            concat!("Returns ", $what, $elements, " expire", $unit),
        )
    };
}

/// The rows of times of fields.
pub(super) const OF_FIELDS: &[Command] = rows!(
    FIELDS, Group::Hash, "7.4.0", "fields", "FIELDS fields=(numfields:int field...)",
    "hexpire" "hpexpire" "hexpireat" "hpexpireat"
    "httl" "hpttl" "hexpiretime" "hpexpiretime" "hpersist"
);

/// The rows of times of members.
pub(super) const OF_MEMBERS: &[Command] = rows!(
    MEMBERS, Group::Set, "8.12.0", "members", "MEMBERS members=(nummembers:int member...)",
    "sexpire" "spexpire" "sexpireat" "spexpireat"
    "sttl" "spttl" "sexpiretime" "spexpiretime" "spersist"
);

#[cfg(test)]
mod tests;
