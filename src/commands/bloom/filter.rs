//! BF: scaling Bloom filters.

use super::{EXISTS, Family, NOT_FOUND, int_within, letter, place_of};
use crate::base::num;
use crate::commands::args::is;
use crate::commands::table::spec::Group;
use crate::commands::{CmdResult, Command, Error, Flags, ReadCtx, WriteCtx};
use crate::storage::txn::events::Class;
use crate::types::OpError;
use crate::types::bloom::filter::chunks::ChunkError;
use crate::types::bloom::filter::{Added, Filter, Plan};

/// The filter that an addition creates, unless the configuration says otherwise.
const DEFAULT: Plan = Plan {
    capacity: 100,
    error_rate: 0.01,
    expansion: 2,
    scales: true,
};

/// The filter that an addition creates. An effect does not depend on the configuration: see
/// [`log_creation`].
fn usual(ctx: &WriteCtx<'_>) -> Plan {
    if ctx.txn.replays_rows() {
        return DEFAULT;
    }
    let config = ctx.server.config.load();
    let expansion = config.bf_expansion_factor;
    Plan {
        capacity: config.bf_initial_size,
        error_rate: config.bf_error_rate.0,
        expansion,
        scales: expansion != 0,
    }
}

/// The plan of a filter to create. The expansion of a filter that never expands cannot be
/// stated, so it does not depend on the configuration either.
fn settled(mut plan: Plan, usual: Plan) -> Plan {
    if usual != DEFAULT && !plan.scales && plan.expansion != 0 {
        plan.expansion = DEFAULT.expansion;
    }
    plan
}

/// States the creation of a filter that owes something to the configuration, in full; the
/// command itself follows, unless it has created the filter only.
fn log_creation(ctx: &mut WriteCtx<'_>, key: &[u8], plan: Plan, then: Option<&[&[u8]]>) {
    let (rate, capacity) = (plan.error_rate.to_string(), plan.capacity.to_string());
    let expansion = plan.expansion.to_string();
    let mut effect: Vec<&[u8]> = vec![b"BF.RESERVE", key, rate.as_bytes(), capacity.as_bytes()];
    match plan.scales || plan.expansion == 0 {
        true => effect.extend([b"EXPANSION".as_slice(), expansion.as_bytes()]),
        false => effect.push(b"NONSCALING"),
    }
    ctx.txn.effect(ctx.db, &effect);
    if let Some(args) = then {
        ctx.txn.effect(ctx.db, args);
    }
}

/// Higher error rates are lowered to this one.
const ERROR_RATE_MAX: f64 = 0.25;
const CAPACITY_MAX: i64 = 1 << 30;
const EXPANSION_MAX: i64 = 1 << 15;

/// A filter of RESERVE has at most this many arguments.
const RESERVE_MAX: usize = 7;

const TOO_LARGE: Error = Error::text("ERR could not create filter");
const BAD_DATA: Error = Error::text("ERR received bad data");

impl From<ChunkError> for Error {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Bad => BAD_DATA,
            ChunkError::NoLink => Error::text("ERR invalid offset - no link found"),
            ChunkError::TooBig => Error::text("ERR invalid chunk - Too big for current filter"),
        }
    }
}

/// An error rate between 0 and 1; the first error for what is no number, the second for others.
fn error_rate(arg: &[u8], no_number: Error, outside: Error) -> Result<f64, Error> {
    let rate = num::parse_f64(arg).ok_or(no_number)?;
    match rate > 0.0 && rate < 1.0 {
        true => Ok(rate.min(ERROR_RATE_MAX)),
        false => Err(outside),
    }
}

fn reserve(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.len() > RESERVE_MAX {
        return Err(Error::Arity("bf.reserve".into()));
    }
    let error_rate = error_rate(
        args[2],
        Error::text("ERR bad error rate"),
        Error::text("ERR error rate must be in the range (0.000000, 1.000000)"),
    )?;
    let bad = Error::text("ERR bad capacity");
    int_within(args[3], i64::MIN, i64::MAX, bad)?;
    let outside = Error::text("ERR capacity must be in the range [1, 1073741824]");
    let capacity = int_within(args[3], 1, CAPACITY_MAX, outside)?;
    let usual = usual(ctx);
    let mut plan = Plan {
        capacity: capacity.unsigned_abs(),
        error_rate,
        ..usual
    };
    plan.scales &= place_of("NONSCALING", args).is_none();
    if let Some(at) = place_of("EXPANSION", args) {
        let word = args.get(at + 1).ok_or(Error::text("ERR no expansion"))?;
        let bad = Error::text("ERR bad expansion");
        let expansion = int_within(word, i64::MIN, i64::MAX, bad)?;
        if expansion == 0 {
            plan.scales = false;
        } else if !plan.scales {
            return Err(Error::text("Nonscaling filters cannot expand"));
        }
        let outside = Error::text("ERR expansion must be in the range [0, 32768]");
        plan.expansion = int_within(word, 0, EXPANSION_MAX, outside)? as u32;
    }
    if Filter::load(ctx.txn, ctx.db, args[1])?.is_some() {
        return Err(EXISTS);
    }
    let plan = settled(plan, usual);
    let filter = Filter::new(ctx.txn, plan).ok_or(TOO_LARGE)?;
    filter.save(ctx.txn, ctx.db, args[1])?;
    if usual != DEFAULT {
        log_creation(ctx, args[1], plan, None);
    }
    ctx.event(Class::MODULE, "bf.reserve", args[1]);
    ctx.reply.ok();
    Ok(())
}

/// Adds items; replies an array unless there is `one`.
fn add_items(
    ctx: &mut WriteCtx<'_>,
    args: &[&[u8]],
    items: &[&[u8]],
    create: Option<Plan>,
    event: &'static str,
    one: bool,
) -> CmdResult {
    let key = args[1];
    let usual = usual(ctx);
    let create = create.map(|plan| settled(plan, usual));
    let found = Filter::load(ctx.txn, ctx.db, key)?;
    let created = create.filter(|_| found.is_none());
    let mut changed = found.is_none();
    let mut filter = match (found, create) {
        (Some(filter), _) => filter,
        (None, Some(plan)) => Filter::new(ctx.txn, plan).ok_or(TOO_LARGE)?,
        (None, None) => return Err(NOT_FOUND),
    };
    let mark = ctx.reply.begin();
    let mut count = 0;
    for item in items {
        count += 1;
        let added = filter.add(ctx.txn, ctx.db, item);
        match added.inspect_err(|_| filter.ask_for(ctx.txn, ctx.db, &items[count..]))? {
            Added::New => {
                changed = true;
                ctx.reply.boolean(true);
            }
            Added::Present => ctx.reply.boolean(false),
            Added::Stuck => ctx.reply.error("ERR problem inserting into filter"),
            Added::Full => {
                ctx.reply.error("ERR non scaling filter is full");
                break;
            }
        }
    }
    if !one {
        ctx.reply.end_array(mark, count);
    }
    if changed {
        filter.save(ctx.txn, ctx.db, key)?;
        ctx.event(Class::MODULE, event, key);
    }
    if let Some(plan) = created
        && usual != DEFAULT
    {
        log_creation(ctx, key, plan, Some(args));
    }
    Ok(())
}

fn add(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let plan = usual(ctx);
    add_items(ctx, args, &args[2..], Some(plan), "bf.add", true)
}

fn madd(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let plan = usual(ctx);
    add_items(ctx, args, &args[2..], Some(plan), "bf.madd", false)
}

/// Options are told from each other by their first letters, as RedisBloom does.
fn insert(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let arity = || Error::Arity("bf.insert".into());
    let (mut plan, mut create, mut at) = (usual(ctx), true, 2);
    let mut may_scale = true;
    loop {
        let word = *args.get(at).ok_or_else(arity)?;
        let value = || args.get(at + 1).copied().ok_or_else(arity);
        match letter(word, 0) {
            b'i' => break,
            b'e' if letter(word, 1) == b'r' => {
                let bad = || Error::text("Bad error rate");
                plan.error_rate = error_rate(value()?, bad(), bad())?;
                at += 2;
            }
            b'e' => {
                let bad = Error::text("Bad expansion");
                plan.expansion = int_within(value()?, 0, EXPANSION_MAX, bad)? as u32;
                at += 2;
            }
            b'c' => {
                let bad = Error::text("Bad capacity");
                plan.capacity = int_within(value()?, 1, CAPACITY_MAX, bad)?.unsigned_abs();
                at += 2;
            }
            b'n' => {
                match letter(word, 2) {
                    b'c' => create = false,
                    _ => may_scale = false,
                }
                at += 1;
            }
            _ => return Err(Error::text("Unknown argument received")),
        }
    }
    let items = args.get(at + 1..).unwrap_or_default();
    if items.is_empty() {
        return Err(arity());
    }
    plan.scales &= may_scale && plan.expansion != 0;
    let create = create.then_some(plan);
    add_items(ctx, args, items, create, "bf.insert", false)
}

/// The filter of a key; none if the key holds another type.
fn find(ctx: &mut ReadCtx<'_>, key: &[u8]) -> Result<Option<Filter>, Error> {
    match Filter::load(ctx.view, ctx.db, key) {
        Err(OpError::WrongType) => Ok(None),
        found => Ok(found?),
    }
}

fn exists(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let filter = find(ctx, args[1])?;
    check(ctx, filter.as_ref(), args[2])
}

fn mexists(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let filter = find(ctx, args[1])?;
    ctx.reply.array(args.len() - 2);
    for (at, item) in args.iter().enumerate().skip(2) {
        let found = check(ctx, filter.as_ref(), item);
        if let (Err(_), Some(filter)) = (&found, &filter) {
            filter.ask_for(ctx.view, ctx.db, &args[at + 1..]);
        }
        found?;
    }
    Ok(())
}

fn check(ctx: &mut ReadCtx<'_>, filter: Option<&Filter>, item: &[u8]) -> CmdResult {
    let found = match filter {
        Some(filter) => filter.contains(ctx.view, ctx.db, item)?,
        None => false,
    };
    ctx.reply.boolean(found);
    Ok(())
}

/// The filter of a key that must exist.
fn load(ctx: &mut ReadCtx<'_>, key: &[u8]) -> Result<Filter, Error> {
    Filter::load(ctx.view, ctx.db, key)?.ok_or(NOT_FOUND)
}

/// Bytes of the filter in memory, as RedisBloom counts them: structures of its own and bits.
fn memory_bytes(filter: &Filter) -> u64 {
    let bits: u64 = filter.links().iter().map(|link| link.bytes).sum();
    32 + 64 * filter.links().len() as u64 + bits
}

/// The fields of BF.INFO: the option that asks for it, and its name.
const FIELDS: [(&str, &str); 5] = [
    ("CAPACITY", "Capacity"),
    ("SIZE", "Size"),
    ("FILTERS", "Number of filters"),
    ("ITEMS", "Number of items inserted"),
    ("EXPANSION", "Expansion rate"),
];

fn info(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.len() > 3 {
        return Err(Error::Arity("bf.info".into()));
    }
    let filter = load(ctx, args[1])?;
    let values = [
        Some(filter.capacity()),
        Some(memory_bytes(&filter)),
        Some(filter.links().len() as u64),
        Some(filter.items),
        filter.expansion().map(u64::from),
    ];
    let mut fields = FIELDS.iter().zip(values);
    let Some(asked) = args.get(2) else {
        ctx.reply.map(FIELDS.len());
        for ((_, name), value) in fields {
            ctx.reply.simple(name);
            number_or_null(ctx, value);
        }
        return Ok(());
    };
    let found = fields.find(|((option, _), _)| is(asked, option));
    let ((_, name), value) = found.ok_or(Error::text("Invalid information value"))?;
    match ctx.reply.resp3 {
        true => {
            ctx.reply.map(1);
            ctx.reply.simple(name);
        }
        false => ctx.reply.array(1),
    }
    number_or_null(ctx, value);
    Ok(())
}

fn number_or_null(ctx: &mut ReadCtx<'_>, value: Option<u64>) {
    match value {
        Some(number) => ctx.reply.int(number as i64),
        None => ctx.reply.null(),
    }
}

fn card(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let filter = Filter::load(ctx.view, ctx.db, args[1])?;
    ctx.reply
        .int(filter.map_or(0, |filter| filter.items as i64));
    Ok(())
}

fn debug(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let filter = load(ctx, args[1])?;
    ctx.reply.array(1 + filter.links().len());
    ctx.reply.bulk(format!("size:{}", filter.items).as_bytes());
    for link in filter.links() {
        let line = format!(
            "bytes:{} bits:{} hashes:{} hashwidth:{} capacity:{} size:{} ratio:{}",
            link.bytes,
            link.bits(),
            link.hashes,
            filter.hash_width(),
            link.capacity,
            link.items,
            num::six_digits(link.error_rate),
        );
        ctx.reply.bulk(line.as_bytes());
    }
    Ok(())
}

fn scan_dump(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let filter = load(ctx, args[1])?;
    let bad = Error::text("Second argument must be numeric");
    let cursor = int_within(args[2], i64::MIN, i64::MAX, bad)?;
    if cursor == 0 {
        ctx.reply.array(2);
        ctx.reply.int(1);
        ctx.reply.bulk(&filter.header());
        return Ok(());
    }
    let (next, bytes) = filter.chunk(ctx.view, ctx.db, cursor)?.unwrap_or_default();
    ctx.reply.array(2);
    ctx.reply.int(next);
    ctx.reply.bulk(&bytes);
    Ok(())
}

fn load_chunk(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let bad = Error::text("ERR Second argument must be numeric");
    let cursor = int_within(args[2], i64::MIN, i64::MAX, bad)?;
    let filter = match Filter::load(ctx.txn, ctx.db, args[1])? {
        Some(mut filter) => {
            filter.load_chunk(ctx.txn, ctx.db, cursor, args[3])??;
            filter
        }
        None if cursor == 1 => Filter::from_header(ctx.txn, args[3]).ok_or(BAD_DATA)?,
        None => return Err(NOT_FOUND),
    };
    filter.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "bf.loadchunk", args[1]);
    ctx.reply.ok();
    Ok(())
}

const FAMILY: Family = Family {
    group: Group::Bloom,
    since: "1.0.0",
};

/// The rows of BF.*.
pub const COMMANDS: &[Command] = &[
    FAMILY
        .write("bf.reserve", -4, reserve, "Creates a Bloom filter")
        .syntax("key error_rate:double capacity:int [EXPANSION expansion:int] [NONSCALING]"),
    FAMILY
        .write(
            "bf.add",
            3,
            add,
            "Adds an item to a Bloom filter, which is created if there is none",
        )
        .syntax("key item")
        .complexity("O(K), K: hashes of the last filter of the chain"),
    FAMILY
        .write(
            "bf.madd",
            -3,
            madd,
            "Adds items to a Bloom filter, which is created if there is none",
        )
        .syntax("key item...")
        .complexity("O(K * N), K: hashes of an item, N: items"),
    FAMILY
        .write(
            "bf.insert",
            -4,
            insert,
            "Adds items to a Bloom filter, and says which one to create if there is none",
        )
        .syntax(
            "key [CAPACITY capacity:int] [ERROR error:double] [EXPANSION expansion:int] \
             [NOCREATE] [NONSCALING] items=ITEMS item...",
        )
        .complexity("O(K * N), K: hashes of an item, N: items"),
    FAMILY
        .read(
            "bf.exists",
            3,
            exists,
            "Checks whether an item may have been added to a Bloom filter",
        )
        .syntax("key item")
        .complexity("O(K), K: hashes of all filters of the chain")
        .flags(Flags::FAST),
    FAMILY
        .read(
            "bf.mexists",
            -3,
            mexists,
            "Checks which items may have been added to a Bloom filter",
        )
        .syntax("key item...")
        .complexity("O(K * N), K: hashes of an item, N: items")
        .flags(Flags::FAST),
    FAMILY
        .read("bf.info", -2, info, "Describes a Bloom filter")
        .syntax("key [single_value=(CAPACITY|SIZE|FILTERS|ITEMS|EXPANSION)]")
        .flags(Flags::FAST),
    Family {
        since: "2.4.4",
        ..FAMILY
    }
    .read(
        "bf.card",
        2,
        card,
        "Returns how many items were added to a Bloom filter",
    )
    .syntax("key")
    .flags(Flags::FAST),
    FAMILY
        .read(
            "bf.debug",
            2,
            debug,
            "Describes the filters of the chain of a Bloom filter",
        )
        .syntax("key")
        .complexity("O(N), N: filters of the chain")
        .flags(Flags::FAST)
        .internal(),
    FAMILY
        .read(
            "bf.scandump",
            3,
            scan_dump,
            "Returns a Bloom filter in pieces",
        )
        .syntax("key iterator:int")
        .complexity("O(N), N: bytes of a piece")
        .flags(Flags::FAST),
    FAMILY
        .write(
            "bf.loadchunk",
            4,
            load_chunk,
            "Stores a piece of a Bloom filter that BF.SCANDUMP has returned",
        )
        .syntax("key iterator:int data")
        .complexity("O(N), N: bytes of the piece"),
];
