//! CF: Cuckoo filters.

use super::{EXISTS, Family, NOT_FOUND, int_within, letter, place_of};
use crate::base::num;
use crate::commands::table::spec::Group;
use crate::commands::{CmdResult, Command, Error, Flags, ReadCtx, WriteCtx};
use crate::storage::txn::events::Class;
use crate::types::OpError;
use crate::types::bloom::cuckoo::chunks::HEADER_LEN;
use crate::types::bloom::cuckoo::{Cuckoo, GROWN_TABLES_MAX, Inserted, Plan};

/// The filter that an addition creates, unless the configuration says otherwise.
const DEFAULT: Plan = Plan {
    capacity: 1024,
    bucket_size: 2,
    iterations: 20,
    expansion: 1,
};

const CAPACITY_MAX: i64 = 1 << 30;

/// The filter that an addition creates. An effect does not depend on the configuration: see
/// [`log_creation`].
fn usual(ctx: &WriteCtx<'_>) -> Plan {
    if ctx.txn.replays_rows() {
        return DEFAULT;
    }
    let config = ctx.server.config.load();
    Plan {
        capacity: config.cf_initial_size,
        bucket_size: config.cf_bucket_size,
        iterations: config.cf_max_iterations,
        expansion: config.cf_expansion_factor,
    }
}

/// States the creation of a filter that owes something to the configuration, in full; the
/// command itself follows, unless it has created the filter only.
fn log_creation(ctx: &mut WriteCtx<'_>, key: &[u8], plan: Plan, then: Option<&[&[u8]]>) {
    let capacity = plan.capacity.to_string();
    let numbers = [plan.bucket_size, plan.iterations, plan.expansion].map(|n| n.to_string());
    let mut effect: Vec<&[u8]> = vec![b"CF.RESERVE", key, capacity.as_bytes()];
    for (word, number) in ["BUCKETSIZE", "MAXITERATIONS", "EXPANSION"]
        .iter()
        .zip(&numbers)
    {
        effect.extend([word.as_bytes(), number.as_bytes()]);
    }
    ctx.txn.effect(ctx.db, &effect);
    if let Some(args) = then {
        ctx.txn.effect(ctx.db, args);
    }
}

/// A filter with this many tables takes no more items. One that its master has added to may have
/// more than this server's configuration says.
fn most_tables(ctx: &WriteCtx<'_>) -> usize {
    match ctx.txn.is_received() {
        true => GROWN_TABLES_MAX,
        false => {
            let most = ctx.server.config.load().cf_max_expansions as usize;
            most.min(GROWN_TABLES_MAX)
        }
    }
}

const TOO_LARGE: Error = Error::text("ERR Could not create filter");
const BAD_POSITION: Error = Error::text("Invalid position");

/// The number behind a word, if the word is there.
fn option(args: &[&[u8]], word: &str, (min, max): (i64, i64), default: u16) -> Result<u16, Error> {
    let Some(at) = place_of(word, args) else {
        return Ok(default);
    };
    let value = args.get(at + 1).and_then(|arg| num::parse_i64(arg));
    let value = value.ok_or_else(|| Error::owned(format!("Couldn't parse {word}")))?;
    match (min..=max).contains(&value) {
        true => Ok(value as u16),
        false => Err(Error::owned(format!(
            "{word}: value must be in the range [{min}, {max}]"
        ))),
    }
}

fn reserve(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.len().is_multiple_of(2) {
        return Err(Error::Arity("cf.reserve".into()));
    }
    let capacity = int_within(args[2], i64::MIN, i64::MAX, Error::text("Bad capacity"))?;
    let usual = usual(ctx);
    let iterations = option(args, "MAXITERATIONS", (1, 65_535), usual.iterations)?;
    let bucket_size = option(args, "BUCKETSIZE", (1, 255), usual.bucket_size)?;
    let expansion = option(args, "EXPANSION", (0, 32_768), usual.expansion)?;
    if !(i64::from(bucket_size) * 2..=CAPACITY_MAX).contains(&capacity) {
        return Err(Error::text(
            "Capacity must be in the range [2 * BUCKETSIZE, 1073741824]",
        ));
    }
    if Cuckoo::load(ctx.txn, ctx.db, args[1])?.is_some() {
        return Err(EXISTS);
    }
    let plan = Plan {
        capacity: capacity.unsigned_abs(),
        bucket_size,
        iterations,
        expansion,
    };
    let filter = Cuckoo::new(ctx.txn, plan).ok_or(TOO_LARGE)?;
    filter.save(ctx.txn, ctx.db, args[1])?;
    if usual != DEFAULT {
        log_creation(ctx, args[1], plan, None);
    }
    ctx.event(Class::MODULE, "cf.reserve", args[1]);
    ctx.reply.ok();
    Ok(())
}

/// How an addition answers.
#[derive(Clone, Copy)]
struct Answers {
    /// Only items that are not there are added.
    unique: bool,
    /// An array, one element for each item.
    many: bool,
    event: &'static str,
}

fn insert_items(
    ctx: &mut WriteCtx<'_>,
    args: &[&[u8]],
    items: &[&[u8]],
    create: Option<Plan>,
    answers: Answers,
) -> CmdResult {
    let key = args[1];
    let found = Cuckoo::load(ctx.txn, ctx.db, key)?;
    let created = create.filter(|_| found.is_none());
    let mut changed = found.is_none();
    let mut filter = match (found, create) {
        (Some(filter), _) => filter,
        (None, Some(plan)) => Cuckoo::new(ctx.txn, plan).ok_or(TOO_LARGE)?,
        (None, None) => return Err(NOT_FOUND),
    };
    if filter.table_count() >= most_tables(ctx) {
        return Err(Error::text("Maximum expansions reached"));
    }
    let Answers {
        unique,
        many,
        event,
    } = answers;
    if many {
        ctx.reply.array(items.len());
    }
    for (at, item) in items.iter().enumerate() {
        let tables = filter.table_count();
        let inserted = filter.insert(ctx.txn, ctx.db, item, unique);
        let inserted =
            inserted.inspect_err(|_| filter.ask_for(ctx.txn, ctx.db, &items[at + 1..], !unique))?;
        changed |= inserted == Inserted::Added || filter.table_count() != tables;
        match inserted {
            // Of INSERTNX the reply can also be -1, so it is no truth value.
            Inserted::Added if unique && many => ctx.reply.int(1),
            Inserted::Present if unique && many => ctx.reply.int(0),
            Inserted::Added => ctx.reply.boolean(true),
            Inserted::Present => ctx.reply.boolean(false),
            Inserted::Full if !many => ctx.reply.error("Filter is full"),
            Inserted::Stuck if !many => ctx.reply.error("ERR Insufficient memory"),
            Inserted::Full | Inserted::Stuck if ctx.reply.resp3 && !unique => {
                ctx.reply.boolean(false);
            }
            Inserted::Full | Inserted::Stuck => ctx.reply.int(-1),
        }
    }
    if changed {
        filter.save(ctx.txn, ctx.db, key)?;
        ctx.event(Class::MODULE, event, key);
    }
    if let Some(plan) = created
        && usual(ctx) != DEFAULT
    {
        log_creation(ctx, key, plan, Some(args));
    }
    Ok(())
}

fn add(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let answers = Answers {
        unique: false,
        many: false,
        event: "cf.add",
    };
    let plan = usual(ctx);
    insert_items(ctx, args, &args[2..], Some(plan), answers)
}

fn add_nx(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let answers = Answers {
        unique: true,
        many: false,
        event: "cf.addnx",
    };
    let plan = usual(ctx);
    insert_items(ctx, args, &args[2..], Some(plan), answers)
}

fn insert(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let answers = Answers {
        unique: false,
        many: true,
        event: "cf.insert",
    };
    insert_with_options(ctx, args, answers)
}

fn insert_nx(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let answers = Answers {
        unique: true,
        many: true,
        event: "cf.insertnx",
    };
    insert_with_options(ctx, args, answers)
}

/// Options are told from each other by their first letters, as RedisBloom does.
fn insert_with_options(ctx: &mut WriteCtx<'_>, args: &[&[u8]], answers: Answers) -> CmdResult {
    let arity = || Error::Arity(answers.event.into());
    let (mut plan, mut create, mut at) = (usual(ctx), true, 2);
    loop {
        let word = *args.get(at).ok_or_else(arity)?;
        match letter(word, 0) {
            b'i' => break,
            b'c' => {
                let value = args.get(at + 1).ok_or_else(arity)?;
                let bad = Error::text("Bad capacity");
                int_within(value, i64::MIN, i64::MAX, bad)?;
                let outside =
                    Error::text("Capacity must be in the range [cf-bucket-size * 2, 1073741824]");
                let least = 2 * i64::from(plan.bucket_size);
                let capacity = int_within(value, least, CAPACITY_MAX, outside)?;
                plan.capacity = capacity.unsigned_abs();
                at += 2;
            }
            b'n' => {
                create = false;
                at += 1;
            }
            _ => return Err(Error::text("Unknown argument received")),
        }
    }
    let items = args.get(at + 1..).unwrap_or_default();
    if items.is_empty() {
        return Err(arity());
    }
    insert_items(ctx, args, items, create.then_some(plan), answers)
}

/// The filter of a key; none if the key holds another type.
fn find(ctx: &mut ReadCtx<'_>, key: &[u8]) -> Result<Option<Cuckoo>, Error> {
    match Cuckoo::load(ctx.view, ctx.db, key) {
        Err(OpError::WrongType) => Ok(None),
        found => Ok(found?),
    }
}

fn check(ctx: &mut ReadCtx<'_>, filter: Option<&Cuckoo>, item: &[u8]) -> CmdResult {
    let found = match filter {
        Some(filter) => filter.contains(ctx.view, ctx.db, item)?,
        None => false,
    };
    ctx.reply.boolean(found);
    Ok(())
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
            filter.ask_for(ctx.view, ctx.db, &args[at + 1..], false);
        }
        found?;
    }
    Ok(())
}

fn count(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let count = match find(ctx, args[1])? {
        Some(filter) => filter.count(ctx.view, ctx.db, args[2])?,
        None => 0,
    };
    ctx.reply.int(count as i64);
    Ok(())
}

/// The filter of a key that is to change; the error for a missing one and for another type.
fn load_to_change(ctx: &mut WriteCtx<'_>, key: &[u8], missing: Error) -> Result<Cuckoo, Error> {
    match Cuckoo::load(ctx.txn, ctx.db, key) {
        Ok(None) | Err(OpError::WrongType) => Err(missing),
        Ok(Some(filter)) => Ok(filter),
        Err(error) => Err(error.into()),
    }
}

fn del(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut filter = load_to_change(ctx, args[1], Error::text("Not found"))?;
    let deleted = filter.delete(ctx.txn, ctx.db, args[2])?;
    if deleted {
        filter.save(ctx.txn, ctx.db, args[1])?;
        ctx.event(Class::MODULE, "cf.del", args[1]);
    }
    ctx.reply.boolean(deleted);
    Ok(())
}

fn compact(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let missing = Error::text("Cuckoo filter was not found");
    let mut filter = load_to_change(ctx, args[1], missing)?;
    filter.compact(ctx.txn, ctx.db, true)?;
    filter.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "cf.compact", args[1]);
    ctx.reply.ok();
    Ok(())
}

/// The filter of a key that must exist.
fn load(ctx: &mut ReadCtx<'_>, key: &[u8]) -> Result<Cuckoo, Error> {
    Cuckoo::load(ctx.view, ctx.db, key)?.ok_or(NOT_FOUND)
}

fn scan_dump(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let cursor = int_within(args[2], 0, i64::MAX, BAD_POSITION)?;
    let filter = load(ctx, args[1])?;
    let piece = match cursor {
        _ if filter.items == 0 => None,
        0 => Some((1, filter.header())),
        cursor => filter.chunk(ctx.view, ctx.db, cursor)?,
    };
    ctx.reply.array(2);
    match piece {
        Some((next, bytes)) => {
            ctx.reply.int(next);
            ctx.reply.bulk(&bytes);
        }
        None => {
            ctx.reply.int(0);
            ctx.reply.null();
        }
    }
    Ok(())
}

fn load_chunk(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let found = Cuckoo::load(ctx.txn, ctx.db, args[1]);
    let cursor = int_within(args[2], i64::MIN, i64::MAX, BAD_POSITION)?;
    if cursor == 0 {
        return Err(BAD_POSITION);
    }
    let filter = match found? {
        Some(_) if cursor == 1 => return Err(EXISTS),
        Some(mut filter) => {
            if !filter.load_chunk(ctx.txn, ctx.db, cursor, args[3])? {
                return Err(Error::text("Couldn't load chunk!"));
            }
            filter
        }
        None if cursor != 1 => return Err(NOT_FOUND),
        None if args[3].len() != HEADER_LEN => return Err(Error::text("Invalid header")),
        None => {
            Cuckoo::from_header(ctx.txn, args[3]).ok_or(Error::text("Couldn't create filter!"))?
        }
    };
    filter.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "cf.loadchunk", args[1]);
    ctx.reply.ok();
    Ok(())
}

fn info(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let filter = load(ctx, args[1])?;
    let tables = filter.table_count() as u64;
    let fields = [
        // Structures of RedisBloom and slots.
        ("Size", 40 + 16 * tables + filter.slots()),
        ("Number of buckets", filter.buckets),
        ("Number of filters", tables),
        ("Number of items inserted", filter.items),
        ("Number of items deleted", filter.deletes),
        ("Bucket size", filter.bucket_size.into()),
        ("Expansion rate", filter.expansion.into()),
        ("Max iterations", filter.iterations.into()),
    ];
    ctx.reply.map(fields.len());
    for (name, value) in fields {
        ctx.reply.simple(name);
        ctx.reply.int(value as i64);
    }
    Ok(())
}

fn debug(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let filter = load(ctx, args[1])?;
    let line = format!(
        "bktsize:{} buckets:{} items:{} deletes:{} filters:{} max_iterations:{} expansion:{}",
        filter.bucket_size,
        filter.buckets,
        filter.items,
        filter.deletes,
        filter.table_count(),
        filter.iterations,
        filter.expansion,
    );
    ctx.reply.bulk(line.as_bytes());
    Ok(())
}

const FAMILY: Family = Family {
    group: Group::Cuckoo,
    since: "1.0.0",
};

/// What an insertion costs.
const INSERTION: &str = "O(N * (T + I)), N: items, T: tables of the chain, I: iterations";
const LOOK_UP: &str = "O(N * T), N: items, T: tables of the chain";

/// The rows of CF.*.
pub const COMMANDS: &[Command] = &[
    FAMILY
        .write("cf.reserve", -3, reserve, "Creates a Cuckoo filter")
        .syntax(
            "key capacity:int [BUCKETSIZE bucketsize:int] [MAXITERATIONS maxiterations:int] \
             [EXPANSION expansion:int]",
        ),
    FAMILY
        .write(
            "cf.add",
            3,
            add,
            "Adds an item to a Cuckoo filter, which is created if there is none",
        )
        .syntax("key item")
        .complexity(INSERTION),
    FAMILY
        .write(
            "cf.addnx",
            3,
            add_nx,
            "Adds an item to a Cuckoo filter unless it seems to be there",
        )
        .syntax("key item")
        .complexity(INSERTION),
    FAMILY
        .write(
            "cf.insert",
            -4,
            insert,
            "Adds items to a Cuckoo filter, and says which one to create if there is none",
        )
        .syntax("key [CAPACITY capacity:int] [NOCREATE] items=ITEMS item...")
        .complexity(INSERTION),
    FAMILY
        .write(
            "cf.insertnx",
            -4,
            insert_nx,
            "Adds the items to a Cuckoo filter that do not seem to be there",
        )
        .syntax("key [CAPACITY capacity:int] [NOCREATE] items=ITEMS item...")
        .complexity(INSERTION),
    FAMILY
        .read(
            "cf.exists",
            3,
            exists,
            "Checks whether an item may be in a Cuckoo filter",
        )
        .syntax("key item")
        .complexity(LOOK_UP)
        .flags(Flags::FAST),
    FAMILY
        .read(
            "cf.mexists",
            -3,
            mexists,
            "Checks which items may be in a Cuckoo filter",
        )
        .syntax("key item...")
        .complexity(LOOK_UP)
        .flags(Flags::FAST),
    FAMILY
        .read(
            "cf.count",
            3,
            count,
            "Estimates how often an item was added to a Cuckoo filter",
        )
        .syntax("key item")
        .complexity(LOOK_UP)
        .flags(Flags::FAST),
    FAMILY
        .write(
            "cf.del",
            3,
            del,
            "Deletes an item from a Cuckoo filter once",
        )
        .syntax("key item")
        .complexity(LOOK_UP)
        .flags(Flags::FAST),
    FAMILY
        .write(
            "cf.compact",
            2,
            compact,
            "Moves items of a Cuckoo filter to older tables, and drops a table that becomes empty",
        )
        .syntax("key")
        .complexity("O(N), N: slots of all tables but the first")
        .internal()
        .flags(Flags::empty()),
    FAMILY
        .read(
            "cf.scandump",
            3,
            scan_dump,
            "Returns a Cuckoo filter in pieces",
        )
        .syntax("key iterator:int")
        .complexity("O(N), N: bytes of a piece")
        .flags(Flags::FAST),
    FAMILY
        .write(
            "cf.loadchunk",
            4,
            load_chunk,
            "Stores a piece of a Cuckoo filter that CF.SCANDUMP has returned",
        )
        .syntax("key iterator:int data")
        .complexity("O(N), N: bytes of the piece"),
    FAMILY
        .read("cf.info", 2, info, "Describes a Cuckoo filter")
        .syntax("key")
        .flags(Flags::FAST),
    FAMILY
        .read(
            "cf.debug",
            2,
            debug,
            "Describes a Cuckoo filter in one line",
        )
        .syntax("key")
        .flags(Flags::FAST)
        .internal(),
];
