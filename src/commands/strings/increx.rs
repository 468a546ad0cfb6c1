//! INCREX: a counter with bounds and an expiry.

use super::{CmdResult, Command, Error, FAST_GROWTH, UPDATE, When, WriteCtx, expire_ms, remove};
use super::{set_effect, string};
use crate::base::longdouble::{self, LongDouble};
use crate::base::num;
use crate::base::time::UnixMs;
use crate::commands::args::{self, Options};
use crate::commands::table::spec::Group;
use crate::encoding::meta::StringForm;
use crate::resp::Reply;
use crate::storage::txn::events::Class;
use crate::types::OpError;
use crate::types::string::Expiry;

const EXPIRIES: [(&str, When); 4] = [
    ("EX", When::Ex),
    ("PX", When::Px),
    ("EXAT", When::Exat),
    ("PXAT", When::Pxat),
];

/// What the options say of the expiry.
#[derive(Debug, Clone, Copy)]
enum Ttl<'a> {
    Kept,
    Persist,
    At(When, &'a [u8]),
}

/// The options, each as it was given.
#[derive(Debug)]
struct Given<'a> {
    by_int: Option<&'a [u8]>,
    by_float: Option<&'a [u8]>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    saturate: bool,
    ttl: Ttl<'a>,
    enx: bool,
}

impl<'a> Given<'a> {
    /// Unlike SET, no option may stand twice.
    fn parse(args: &'a [&'a [u8]]) -> Result<Given<'a>, Error> {
        let mut given = Given {
            by_int: None,
            by_float: None,
            lower: None,
            upper: None,
            saturate: false,
            ttl: Ttl::Kept,
            enx: false,
        };
        let mut options = Options::new(args, 2);
        while !options.is_empty() {
            given.take(&mut options)?;
        }
        if given.enx && matches!(given.ttl, Ttl::Kept) {
            return Err(Error::text("ERR ENX flag requires an expiration"));
        }
        Ok(given)
    }

    fn take(&mut self, options: &mut Options<'a>) -> Result<(), Error> {
        let is_kept = matches!(self.ttl, Ttl::Kept);
        let counts = self.by_int.is_some() || self.by_float.is_some();
        if !counts && options.word("BYINT") {
            self.by_int = Some(options.value()?);
        } else if !counts && options.word("BYFLOAT") {
            self.by_float = Some(options.value()?);
        } else if self.lower.is_none() && options.word("LBOUND") {
            self.lower = Some(options.value()?);
        } else if self.upper.is_none() && options.word("UBOUND") {
            self.upper = Some(options.value()?);
        } else if !self.saturate && options.word("SATURATE") {
            self.saturate = true;
        } else if !self.enx && !matches!(self.ttl, Ttl::Persist) && options.word("ENX") {
            self.enx = true;
        } else if is_kept && !self.enx && options.word("PERSIST") {
            self.ttl = Ttl::Persist;
        } else {
            let is_next = |(word, _): &&(&str, When)| is_kept && options.clone().word(word);
            let (_, when) = EXPIRIES.iter().find(is_next).ok_or(Error::Syntax)?;
            options.value()?;
            self.ttl = Ttl::At(*when, options.value()?);
        }
        Ok(())
    }
}

/// What is counted in: integers, or long doubles as those of INCRBYFLOAT.
trait Number: Copy + PartialOrd {
    const EVENT: &'static str;
    const FORM: StringForm;
    /// Behind the name of an option that is no such number.
    const REFUSAL: &'static str;
    /// What an absent key counts as.
    fn zero() -> Self;
    /// The bounds where none are given.
    fn limits() -> (Self, Self);
    fn parse(text: &[u8]) -> Option<Self>;
    /// The stored value, from its text.
    fn stored(text: &[u8]) -> Result<Self, Error>;
    /// The sum; beyond the type's limits it is `Err` of the limit.
    fn sum(self, by: Self) -> Result<Self, Self>;
    /// `self - from`, if the type can hold it.
    fn difference(self, from: Self) -> Result<Self, Error>;
    fn text(self) -> Vec<u8>;
    fn reply(self, reply: &mut Reply);
}

impl Number for i64 {
    const EVENT: &'static str = "incrby";
    const FORM: StringForm = StringForm::Given;
    const REFUSAL: &'static str = "is not an integer or out of range";

    fn zero() -> i64 {
        0
    }

    fn limits() -> (i64, i64) {
        (i64::MIN, i64::MAX)
    }

    fn parse(text: &[u8]) -> Option<i64> {
        num::parse_i64(text)
    }

    fn stored(text: &[u8]) -> Result<i64, Error> {
        args::int(text)
    }

    fn sum(self, by: i64) -> Result<i64, i64> {
        self.checked_add(by).ok_or(self.saturating_add(by))
    }

    fn difference(self, from: i64) -> Result<i64, Error> {
        self.checked_sub(from)
            .ok_or(Error::text("ERR applied increment would overflow"))
    }

    fn text(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    fn reply(self, reply: &mut Reply) {
        reply.int(self);
    }
}

impl Number for LongDouble {
    const EVENT: &'static str = "incrbyfloat";
    const FORM: StringForm = StringForm::Text;
    const REFUSAL: &'static str = "is not a valid float";

    fn zero() -> LongDouble {
        LongDouble::ZERO
    }

    fn limits() -> (LongDouble, LongDouble) {
        (LongDouble::largest().negated(), LongDouble::largest())
    }

    fn parse(text: &[u8]) -> Option<LongDouble> {
        LongDouble::parse(text)
    }

    fn stored(text: &[u8]) -> Result<LongDouble, Error> {
        let value = LongDouble::parse(text).ok_or(OpError::NotFloat)?;
        match value.is_finite() {
            true => Ok(value),
            false => Err(Error::text("ERR value cannot be Infinity")),
        }
    }

    fn sum(self, by: LongDouble) -> Result<LongDouble, LongDouble> {
        // The bounds are compared with an infinite sum as with any other.
        Ok(self.add(by))
    }

    fn difference(self, from: LongDouble) -> Result<LongDouble, Error> {
        let difference = self.add(from.negated());
        match difference.is_finite() {
            true => Ok(difference),
            false => Err(Error::text("ERR applied increment would be Infinity")),
        }
    }

    fn text(self) -> Vec<u8> {
        self.to_human()
    }

    fn reply(self, reply: &mut Reply) {
        reply.double_text(&self.to_human());
    }
}

fn number<N: Number>(text: &[u8], what: &str) -> Result<N, Error> {
    N::parse(text).ok_or_else(|| Error::owned(format!("ERR {what} {}", N::REFUSAL)))
}

fn increx(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let given = Given::parse(args)?;
    match given.by_float {
        Some(text) => {
            let by: LongDouble = number(text, "Increment")?;
            if !by.is_finite() {
                return Err(Error::text("ERR BYFLOAT increment cannot be Infinity"));
            }
            count(ctx, args[1], by, &given)
        }
        None => {
            let by = given.by_int.map(|text| number::<i64>(text, "Increment"));
            count(ctx, args[1], by.unwrap_or(Ok(1))?, &given)
        }
    }
}

fn count<N: Number>(ctx: &mut WriteCtx<'_>, key: &[u8], by: N, given: &Given<'_>) -> CmdResult {
    let (mut lower, mut upper) = N::limits();
    if let Some(text) = given.lower {
        lower = number(text, "LBOUND")?;
    }
    if let Some(text) = given.upper {
        upper = number(text, "UBOUND")?;
    }
    if lower > upper {
        return Err(Error::text("ERR LBOUND can't be greater than UBOUND"));
    }
    let expiry = match given.ttl {
        Ttl::Kept => Expiry::Keep,
        Ttl::Persist => Expiry::Clear,
        Ttl::At(when, n) => Expiry::At(expire_ms(when, n, ctx.txn.now_ms(), "increx")?),
    };
    // A longer value cannot be a number, so it is not read.
    let whole = |len| match len <= longdouble::MAX_TEXT_LEN as u64 {
        true => 0..len,
        false => 0..0,
    };
    let stored = string::with_range(ctx.txn, ctx.db, key, whole, N::stored)?.transpose()?;
    let old = stored.unwrap_or(N::zero());
    ctx.reply.array(2);
    match applied(old, by, (lower, upper), given.saturate) {
        Some(new) => {
            let by = new.difference(old)?;
            new.reply(ctx.reply);
            by.reply(ctx.reply);
            store(ctx, key, new, expiry, given.enx)
        }
        None => {
            old.reply(ctx.reply);
            N::zero().reply(ctx.reply);
            Ok(())
        }
    }
}

/// The new value; `None` if it would be out of bounds.
fn applied<N: Number>(old: N, by: N, (lower, upper): (N, N), saturate: bool) -> Option<N> {
    let (sum, overflows) = match old.sum(by) {
        Ok(sum) => (sum, false),
        Err(limit) => (limit, true),
    };
    let is_out = overflows || sum < lower || sum > upper;
    match (is_out, saturate) {
        (false, _) => Some(sum),
        (true, false) => None,
        (true, true) if sum > upper => Some(upper),
        (true, true) if sum < lower => Some(lower),
        (true, true) => Some(sum),
    }
}

/// Writes the new value, and states it with the expiry that the key has then.
fn store<N: Number>(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    new: N,
    expiry: Expiry,
    enx: bool,
) -> CmdResult {
    let head = string::head(ctx.txn, ctx.db, key)?;
    let had_expiry = head
        .as_ref()
        .is_some_and(|old| old.meta.expire_ms != UnixMs::NONE);
    let expiry = match enx && had_expiry {
        true => Expiry::Keep,
        false => expiry,
    };
    if matches!(expiry, Expiry::At(ms) if ms <= ctx.txn.over_when_set_ms()) {
        return match head {
            Some(_) => remove(ctx, key),
            None => Ok(()),
        };
    }
    let text = new.text();
    string::set_over(ctx.txn, ctx.db, key, head.as_ref(), &text, N::FORM, expiry)?;
    set_effect(ctx, key, &text, expiry);
    ctx.event(Class::STRING, N::EVENT, key);
    match expiry {
        Expiry::At(_) => ctx.event(Class::GENERIC, "expire", key),
        Expiry::Clear if had_expiry => ctx.event(Class::GENERIC, "persist", key),
        Expiry::Clear | Expiry::Keep => {}
    }
    Ok(())
}

/// The rows of INCREX.
pub const COMMANDS: &[Command] = &[Command::write("increx", -2, increx)
    .syntax(
        "key [increment=(BYFLOAT float:double|BYINT integer:int)] [SATURATE] \
         [LBOUND lowerbound] [UBOUND upperbound] \
         [expiration=(EX seconds:int|PX milliseconds:int|EXAT unix-time-seconds:time|\
         PXAT unix-time-milliseconds:time|PERSIST)] [ENX]",
    )
    .flags(FAST_GROWTH)
    .keys(UPDATE)
    .doc(
        Group::String,
        "8.8.0",
        "Adds to a number within bounds and changes when its key expires; returns the new \
         value and what was added",
    )];

#[cfg(test)]
mod tests;
