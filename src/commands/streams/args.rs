//! Arguments of the stream commands: IDs, ranges of IDs, and trimming options.

use crate::commands::args::{self, Options};
use crate::commands::error::quoted;
use crate::commands::{Error, WriteCtx};
use crate::resp::Reply;
use crate::types::stream::{Fields, Keep, NewId, References, Slack, StreamId, Trim};
use std::ops::Range;

const INVALID_ID: Error = Error::text("ERR Invalid stream ID specified as stream command argument");

/// Longest ID that is parsed, in bytes.
const ID_MAX: usize = 127;

/// LIMIT of approximate trimming: the default if `stream-node-max-entries` is 0, and the
/// maximum.
const LIMIT_DEFAULT: u64 = 10_000;
const LIMIT_MAX: u64 = 1_000_000;
/// Entries per node if `stream-node-max-entries` is 0 (no bound).
const NODE_ENTRIES_DEFAULT: u64 = 100;

/// A number as C's `strtoull` reads it: leading blanks and a plus sign are allowed.
fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `ms` and, if it is given, `-seq`.
fn split_id(arg: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    if arg.len() > ID_MAX {
        return None;
    }
    match arg.iter().position(|byte| *byte == b'-') {
        Some(dash) => Some((number(&arg[..dash])?, Some(&arg[dash + 1..]))),
        None => Some((number(arg)?, None)),
    }
}

/// The id `ms` or `ms-seq`, if it is one.
pub(super) fn parse_id(arg: &[u8], missing_seq: u64) -> Option<StreamId> {
    let (ms, seq) = split_id(arg)?;
    let seq = seq.map_or(Some(missing_seq), number)?;
    Some(StreamId { ms, seq })
}

/// An id whose sequence is 0 if it is not given.
pub fn id(arg: &[u8]) -> Result<StreamId, Error> {
    parse_id(arg, 0).ok_or(INVALID_ID)
}

/// Several ids.
pub fn ids(args: &[&[u8]]) -> Result<Vec<StreamId>, Error> {
    args.iter().map(|arg| id(arg)).collect()
}

/// An id, or `-` or `+` for the lowest and the highest.
pub(super) fn any_id(arg: &[u8], missing_seq: u64) -> Result<StreamId, Error> {
    match arg {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => parse_id(arg, missing_seq).ok_or(INVALID_ID),
    }
}

/// The ID of an exclusive bound, which has a parenthesis in front.
fn excluded(arg: &[u8]) -> Option<&[u8]> {
    arg.strip_prefix(b"(").filter(|id| !id.is_empty())
}

/// The first ID of a range.
pub(super) fn range_start(arg: &[u8]) -> Result<StreamId, Error> {
    let Some(before) = excluded(arg) else {
        return any_id(arg, 0);
    };
    let start = id(before)?.next();
    start.ok_or(Error::text("ERR invalid start ID for the interval"))
}

/// The last ID of a range.
pub(super) fn range_end(arg: &[u8]) -> Result<StreamId, Error> {
    let Some(after) = excluded(arg) else {
        return any_id(arg, u64::MAX);
    };
    let end = parse_id(after, u64::MAX).ok_or(INVALID_ID)?.previous();
    end.ok_or(Error::text("ERR invalid end ID for the interval"))
}

/// The options of XADD and XTRIM.
#[derive(Debug)]
pub struct AddOrTrim<'a> {
    /// NOMKSTREAM: a missing stream is not created.
    pub only_existing: bool,
    /// The trimming, if any, and the index of the argument with its threshold.
    pub trim: Option<(Trim, usize)>,
    /// The arguments of the trimming, from MAXLEN or MINID to the threshold.
    pub strategy: Range<usize>,
    /// What becomes of references to trimmed entries.
    pub references: References,
    /// For XADD: IDMP or IDMPAUTO.
    pub idempotent: Option<Idempotent<'a>>,
    /// For XADD: the ID of the entry, and the index of its argument.
    pub id: Option<(NewId, usize)>,
    /// The arguments that do not belong into the stated effect.
    pub unstated: Vec<Range<usize>>,
}

/// An entry that is added once, however often its producer tries.
#[derive(Debug)]
pub struct Idempotent<'a> {
    /// The name of the producer.
    pub producer: &'a [u8],
    /// The idempotent ID; `None`: it follows from fields and values.
    pub iid: Option<&'a [u8]>,
}

impl<'a> Idempotent<'a> {
    /// Takes IDMP or IDMPAUTO with its values.
    fn take(options: &mut Options<'a>) -> Result<Option<Idempotent<'a>>, Error> {
        let (producer, iid, refusal) = if options.left() > 2 && options.word("IDMP") {
            let (producer, iid) = (options.value()?, options.value()?);
            if iid.is_empty() && !producer.is_empty() {
                return Err(Error::text("ERR IDMP requires a non-empty idempotent ID"));
            }
            (
                producer,
                Some(iid),
                "ERR IDMP requires a non-empty producer ID",
            )
        } else if options.left() > 1 && options.word("IDMPAUTO") {
            let refusal = "ERR IDMPAUTO requires a non-empty producer ID";
            (options.value()?, None, refusal)
        } else {
            return Ok(None);
        };
        match producer.is_empty() {
            true => Err(Error::text(refusal)),
            false => Ok(Some(Idempotent { producer, iid })),
        }
    }
}

impl<'a> AddOrTrim<'a> {
    /// Reads the arguments of XADD.
    pub(super) fn of_xadd(
        ctx: &WriteCtx<'_>,
        args: &'a [&'a [u8]],
    ) -> Result<AddOrTrim<'a>, Error> {
        AddOrTrim::parse(ctx, args, true)
    }

    /// Reads the arguments of XTRIM.
    pub(super) fn of_xtrim(
        ctx: &WriteCtx<'_>,
        args: &'a [&'a [u8]],
    ) -> Result<AddOrTrim<'a>, Error> {
        AddOrTrim::parse(ctx, args, false)
    }

    fn parse(ctx: &WriteCtx<'_>, args: &'a [&'a [u8]], xadd: bool) -> Result<AddOrTrim<'a>, Error> {
        let mut parsed = AddOrTrim {
            only_existing: false,
            trim: None,
            strategy: 0..0,
            references: References::Keep,
            idempotent: None,
            id: None,
            unstated: Vec::new(),
        };
        let mut has_references = false;
        let mut rule: Option<(Keep, bool, usize)> = None;
        let mut limit = None;
        let mut options = Options::new(args, 2);
        while let Some(arg) = options.peek() {
            let has_value = options.left() > 1;
            let start = args.len() - options.left();
            if xadd && arg == b"*" {
                parsed.id = Some((NewId::Now, start));
                break;
            } else if has_value && options.word("MAXLEN") {
                let approximate = is_approximate(&mut options, rule.is_some())?;
                let kept = options.int()?;
                let kept = u64::try_from(kept)
                    .map_err(|_| Error::text("ERR The MAXLEN argument must be >= 0."))?;
                let at = args.len() - options.left() - 1;
                rule = Some((Keep::Last(kept), approximate, at));
                parsed.strategy = start..at + 1;
            } else if has_value && options.word("MINID") {
                let approximate = is_approximate(&mut options, rule.is_some())?;
                let from = id(options.value()?)?;
                let at = args.len() - options.left() - 1;
                rule = Some((Keep::From(from), approximate, at));
                parsed.strategy = start..at + 1;
            } else if has_value && options.word("LIMIT") {
                let given = u64::try_from(options.int()?)
                    .map_err(|_| Error::text("ERR The LIMIT argument must be >= 0."))?;
                limit = Some(given);
                parsed.unstated.push(start..start + 2);
            } else if !has_references && let Some(references) = references(&mut options) {
                (has_references, parsed.references) = (true, references);
                parsed.unstated.push(start..start + 1);
            } else if xadd && options.word("NOMKSTREAM") {
                parsed.only_existing = true;
            } else if xadd && let Some(idempotent) = Idempotent::take(&mut options)? {
                if parsed.idempotent.replace(idempotent).is_some() {
                    return Err(Error::text("ERR IDMP/IDMPAUTO specified multiple times"));
                }
                parsed.unstated.push(start..args.len() - options.left());
            } else if xadd {
                parsed.id = Some((new_id(arg)?, start));
                break;
            } else {
                return Err(Error::Syntax);
            }
        }
        let is_auto = matches!(parsed.id, None | Some((NewId::Now, _)));
        if parsed.idempotent.is_some() && !is_auto {
            return Err(Error::text(
                "ERR IDMP/IDMPAUTO can be used only with auto-generated IDs",
            ));
        }
        if rule.is_none() && limit.is_some_and(|limit| limit > 0) {
            return Err(Error::text(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if rule.is_none() && !xadd {
            return Err(Error::text(
                "ERR syntax error, XTRIM must be called with a trimming strategy",
            ));
        }
        let approximate = rule.is_some_and(|(_, approximate, _)| approximate);
        let slack = slack(ctx, approximate, limit)?;
        parsed.trim = rule.map(|(keep, _, at)| (Trim { keep, slack }, at));
        Ok(parsed)
    }
}

/// Takes KEEPREF, DELREF or ACKED.
pub(super) fn references(options: &mut Options<'_>) -> Option<References> {
    let words = [
        ("KEEPREF", References::Keep),
        ("DELREF", References::Delete),
        ("ACKED", References::Acknowledged),
    ];
    let mut words = words.into_iter();
    words.find_map(|(word, references)| options.word(word).then_some(references))
}

/// Takes `numids id…` after IDS.
pub(super) fn counted_ids<'a>(
    options: &mut Options<'a>,
    refusal: Error,
    mismatch: Error,
) -> Result<&'a [&'a [u8]], Error> {
    let count = args::int_from(options.value()?, 1, refusal)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    match count <= options.left() {
        true => options.values(count),
        false => Err(mismatch),
    }
}

/// Takes `~` or `=` after MAXLEN or MINID; returns whether the trimming is approximate.
fn is_approximate(options: &mut Options<'_>, is_second: bool) -> Result<bool, Error> {
    if is_second {
        return Err(Error::text(
            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        ));
    }
    if options.left() > 1 {
        if options.word("~") {
            return Ok(true);
        }
        options.word("=");
    }
    Ok(false)
}

fn slack(
    ctx: &WriteCtx<'_>,
    approximate: bool,
    limit: Option<u64>,
) -> Result<Option<Slack>, Error> {
    let config = ctx.server.config.load();
    let node = match config.stream_node_max_entries {
        0 => NODE_ENTRIES_DEFAULT,
        entries => entries,
    };
    if ctx.txn.is_received() {
        // The master has already applied LIMIT and logged the result.
        return Ok(approximate.then_some(Slack { node, limit: 0 }));
    }
    match (approximate, limit) {
        (false, Some(_)) => Err(Error::text(
            "ERR syntax error, LIMIT cannot be used without the special ~ option",
        )),
        (false, None) => Ok(None),
        (true, Some(limit)) => Ok(Some(Slack { node, limit })),
        (true, None) => {
            let limit = match config.stream_node_max_entries.saturating_mul(100) {
                0 => LIMIT_DEFAULT,
                limit => limit.min(LIMIT_MAX),
            };
            Ok(Some(Slack { node, limit }))
        }
    }
}

fn new_id(arg: &[u8]) -> Result<NewId, Error> {
    if let Some((ms, Some(b"*"))) = split_id(arg) {
        return Ok(NewId::In(ms));
    }
    Ok(NewId::Given(id(arg)?))
}

/// The error for a missing key or group.
pub fn no_group(key: &[u8], group: &[u8], context: &str) -> Error {
    let (key, group) = (quoted(key, usize::MAX), quoted(group, usize::MAX));
    let parts: [&[u8]; 6] = [
        b"NOGROUP No such key '",
        key,
        b"' or consumer group '",
        group,
        b"'",
        context.as_bytes(),
    ];
    Error::Bytes(parts.concat())
}

/// The error for a stream without this group.
pub(super) fn no_group_of(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (quoted(key, usize::MAX), quoted(group, usize::MAX));
    let parts: [&[u8]; 5] = [
        b"NOGROUP No such consumer group '",
        group,
        b"' for key name '",
        key,
        b"'",
    ];
    Error::Bytes(parts.concat())
}

/// The text of an ID.
pub type IdText = smallvec::SmallVec<[u8; 64]>;

/// The text of an id.
pub(super) fn id_text(id: StreamId) -> IdText {
    let mut text = IdText::new();
    let mut digits = itoa::Buffer::new();
    text.extend_from_slice(digits.format(id.ms).as_bytes());
    text.push(b'-');
    text.extend_from_slice(digits.format(id.seq).as_bytes());
    text
}

/// Replies an id.
pub(super) fn reply_id(reply: &mut Reply, id: StreamId) {
    reply.bulk(&id_text(id));
}

/// Replies an entry: its id, and its fields and values.
pub(super) fn reply_entry(
    reply: &mut Reply,
    id: StreamId,
    fields: Fields<'_>,
) -> crate::types::OpResult<()> {
    reply.array(2);
    add_entry(reply, id, fields)
}

/// Replies the id, and the fields and values, of an entry.
pub(super) fn add_entry(
    reply: &mut Reply,
    id: StreamId,
    fields: Fields<'_>,
) -> crate::types::OpResult<()> {
    reply_id(reply, id);
    reply.array(fields.count()?);
    for item in fields.iter() {
        reply.bulk(item?);
    }
    Ok(())
}

/// Replies a count.
pub(super) fn reply_count(reply: &mut Reply, count: u64) {
    reply.int(i64::try_from(count).unwrap_or(i64::MAX));
}

/// The value of COUNT; 0 for zero and negative numbers.
pub fn count(options: &mut Options<'_>) -> Result<u64, Error> {
    let count = args::int(options.value()?)?;
    Ok(u64::try_from(count).unwrap_or(0))
}
