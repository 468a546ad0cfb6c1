//! TDIGEST: t-digests. RedisBloom merges a digest when it is read; here a read changes nothing, so
//! `TDIGEST.INFO` counts merges otherwise, and of a digest that is read between additions an
//! estimate may differ within its error.

use super::{Family, int_within};
use crate::base::num;
use crate::commands::args::is;
use crate::commands::table::spec::Group;
use crate::commands::{CmdResult, Command, Error, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::encoding::ValueType;
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, View};
use crate::types::bloom::tdigest::TDigest;
use crate::types::bloom::tdigest::centroids::Centroids;

const DEFAULT_COMPRESSION: i64 = 100;

const NO_KEY: Error = Error::text("ERR T-Digest: key does not exist");
const WRONG_WORD: Error = Error::text("ERR T-Digest: wrong keyword");
const OVERFLOW: Error = Error::text("ERR T-Digest: overflow detected");

fn load(view: &mut View, db: DbIndex, key: &[u8]) -> Result<TDigest, Error> {
    TDigest::load(view, db, key)?.ok_or(NO_KEY)
}

fn compression_of(arg: &[u8]) -> Result<i64, Error> {
    let bad = Error::text("ERR T-Digest: error parsing compression parameter");
    let number = int_within(arg, i64::MIN, i64::MAX, bad)?;
    match number > 0 {
        true => Ok(number),
        false => Err(Error::text(
            "ERR T-Digest: compression parameter needs to be a positive integer",
        )),
    }
}

fn create(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if !matches!(args.len(), 2 | 4) {
        return Err(Error::Arity("tdigest.create".into()));
    }
    if TDigest::load(ctx.txn, ctx.db, args[1])?.is_some() {
        return Err(Error::text("ERR T-Digest: key already exists"));
    }
    let compression = match &args[2..] {
        [word, value] if is(word, "COMPRESSION") || is(value, "COMPRESSION") => {
            compression_of(value)?
        }
        [] => DEFAULT_COMPRESSION,
        _ => return Err(WRONG_WORD),
    };
    let digest = TDigest::new(ctx.txn, compression as f64);
    let mut digest = digest.ok_or(Error::text("ERR T-Digest: allocation failed"))?;
    digest.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "tdigest.create", args[1]);
    ctx.reply.ok();
    Ok(())
}

fn reset(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut digest = load(ctx.txn, ctx.db, args[1])?;
    digest.reset(ctx.txn, ctx.db)?;
    digest.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "tdigest.reset", args[1]);
    ctx.reply.ok();
    Ok(())
}

fn add(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut digest = load(ctx.txn, ctx.db, args[1])?;
    let mut values = Vec::with_capacity(args.len() - 2);
    for arg in &args[2..] {
        let value = num::parse_f64(arg);
        let value = value.ok_or(Error::text("ERR T-Digest: error parsing val parameter"))?;
        if !value.is_finite() {
            return Err(Error::text(
                "ERR T-Digest: val parameter needs to be a finite number",
            ));
        }
        values.push(value);
    }
    for value in values {
        digest
            .add(ctx.txn, ctx.db, value, 1)?
            .map_err(|_| OVERFLOW)?;
    }
    digest.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "tdigest.add", args[1]);
    ctx.reply.ok();
    Ok(())
}

/// The options of MERGE.
#[derive(Debug, Default)]
struct MergeOptions {
    compression: Option<i64>,
    replaces: bool,
}

impl MergeOptions {
    fn parse(args: &[&[u8]]) -> Result<MergeOptions, Error> {
        let mut options = MergeOptions::default();
        if args.is_empty() {
            return Ok(options);
        }
        if let Some(at) = super::place_of("COMPRESSION", args) {
            let value = args.get(at + 1);
            let value = value.ok_or_else(|| Error::Arity("tdigest.merge".into()))?;
            options.compression = Some(compression_of(value)?);
        }
        options.replaces = super::place_of("OVERRIDE", args).is_some();
        match options.compression.is_some() || options.replaces {
            true => Ok(options),
            false => Err(WRONG_WORD),
        }
    }
}

fn merge(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let key = args[1];
    let found = crate::types::lookup(ctx.txn, ctx.db, key, ValueType::TDigest)?;
    let old = TDigest::load(ctx.txn, ctx.db, key)?;
    let bad = Error::text("ERR T-Digest: error parsing numkeys");
    let numkeys = int_within(args[2], i64::MIN, i64::MAX, bad)?;
    let positive = usize::try_from(numkeys).ok().filter(|keys| *keys > 0);
    let numkeys = positive.ok_or(Error::text(
        "ERR T-Digest: numkeys needs to be a positive integer",
    ))?;
    let split = args[3..].split_at_checked(numkeys);
    let (sources, rest) = split.ok_or_else(|| Error::Arity("tdigest.merge".into()))?;
    let options = MergeOptions::parse(rest)?;
    let mut digests = Vec::with_capacity(numkeys + 1);
    for source in sources {
        digests.push(load(ctx.txn, ctx.db, source)?);
    }
    // Without a compression the digest keeps its own, or gets the highest of the others.
    let highest = digests.iter().map(|digest| digest.compression);
    let compression = match (options.compression, &old) {
        (Some(compression), _) => compression as f64,
        (None, Some(old)) if !options.replaces => old.compression,
        _ => highest.fold(0.0, f64::max),
    };
    if let Some(old) = old.filter(|_| !options.replaces) {
        digests.insert(0, old);
    }
    let merged = TDigest::new(ctx.txn, compression);
    let mut merged = merged.ok_or(Error::text(
        "ERR T-Digest: allocation of destination digest failed",
    ))?;
    for digest in digests {
        let centroids = digest.centroids(ctx.txn, ctx.db)?;
        merged
            .add_all(ctx.txn, ctx.db, &centroids)?
            .map_err(|_| OVERFLOW)?;
    }
    merged.save_over(ctx.txn, ctx.db, key, found.as_ref())?;
    ctx.event(Class::MODULE, "tdigest.merge", key);
    ctx.reply.ok();
    Ok(())
}

fn min(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let digest = load(ctx.view, ctx.db, args[1])?;
    ctx.reply.double(digest.least().unwrap_or(f64::NAN));
    Ok(())
}

fn max(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let digest = load(ctx.view, ctx.db, args[1])?;
    ctx.reply.double(digest.greatest().unwrap_or(f64::NAN));
    Ok(())
}

/// The numbers of a read, and the digest with its merged centroids. The key is looked up first.
fn read<T>(
    ctx: &mut ReadCtx<'_>,
    args: &[&[u8]],
    parse: impl Fn(&[u8]) -> Result<T, Error>,
) -> Result<(Vec<T>, TDigest, Centroids), Error> {
    let digest = load(ctx.view, ctx.db, args[1])?;
    let numbers = args[2..].iter().map(|arg| parse(arg));
    let numbers = numbers.collect::<Result<Vec<T>, Error>>()?;
    let centroids = digest.centroids(ctx.view, ctx.db)?;
    Ok((numbers, digest, centroids))
}

fn float(arg: &[u8], refusal: &'static str) -> Result<f64, Error> {
    num::parse_f64(arg).ok_or(Error::text(refusal))
}

/// A number from 0 to 1.
fn fraction(arg: &[u8], bad: &'static str, outside: &'static str) -> Result<f64, Error> {
    let number = float(arg, bad)?;
    match (0.0..=1.0).contains(&number) {
        true => Ok(number),
        false => Err(Error::text(outside)),
    }
}

fn doubles(ctx: &mut ReadCtx<'_>, values: &[f64]) {
    ctx.reply.array(values.len());
    for value in values {
        ctx.reply.double(*value);
    }
}

fn quantile(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (quantiles, _, centroids) = read(ctx, args, |arg| {
        fraction(
            arg,
            "ERR T-Digest: error parsing quantile",
            "ERR T-Digest: quantile should be in [0,1]",
        )
    })?;
    doubles(ctx, &centroids.quantiles(&quantiles));
    Ok(())
}

fn cdf(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (values, _, centroids) = read(ctx, args, |arg| {
        float(arg, "ERR T-Digest: error parsing cdf")
    })?;
    let fractions: Vec<f64> = values
        .iter()
        .map(|value| centroids.fraction_up_to(*value))
        .collect();
    doubles(ctx, &fractions);
    Ok(())
}

/// Rounds to the next whole number, halves towards zero.
fn round_half_down(number: f64) -> f64 {
    match number.fract().abs() <= 0.5 {
        true => number.trunc(),
        false => number.trunc() + number.signum(),
    }
}

/// The ranks of values, or those from the other end: -2 without observations.
fn ranks(ctx: &mut ReadCtx<'_>, args: &[&[u8]], reverse: bool) -> CmdResult {
    let (values, digest, centroids) = read(ctx, args, |arg| {
        float(arg, "ERR T-Digest: error parsing value")
    })?;
    let size = digest.weight() as f64;
    ctx.reply.array(values.len());
    for value in values {
        let (Some(least), Some(greatest)) = (digest.least(), digest.greatest()) else {
            ctx.reply.int(-2);
            continue;
        };
        let (below, above) = match reverse {
            false => (-1.0, size),
            true => (size, -1.0),
        };
        let rank = if value < least {
            below
        } else if value > greatest {
            above
        } else {
            let up_to = centroids.fraction_up_to(value) * size;
            match reverse {
                false => round_half_down(up_to),
                true => (size - up_to.round()).round(),
            }
        };
        ctx.reply.int(rank as i64);
    }
    Ok(())
}

fn rank(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    ranks(ctx, args, false)
}

fn revrank(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    ranks(ctx, args, true)
}

/// The values at ranks, or at those from the other end.
fn values_at(ctx: &mut ReadCtx<'_>, args: &[&[u8]], reverse: bool) -> CmdResult {
    let (ranks, digest, centroids) = read(ctx, args, |arg| {
        let bad = Error::text("ERR T-Digest: error parsing rank");
        let rank = int_within(arg, i64::MIN, i64::MAX, bad)?;
        let negative = Error::text("ERR T-Digest: rank needs to be non negative");
        match rank >= 0 {
            true => Ok(rank as f64),
            false => Err(negative),
        }
    })?;
    let size = digest.weight() as f64;
    let value = |rank: &f64| {
        let (Some(least), Some(greatest)) = (digest.least(), digest.greatest()) else {
            return f64::NAN;
        };
        match reverse {
            false if *rank == 0.0 => least,
            true if *rank == 0.0 => greatest,
            false if *rank >= size => f64::INFINITY,
            true if *rank >= size => f64::NEG_INFINITY,
            false => centroids.quantile(rank / size),
            true => centroids.quantile((size - rank - 1.0) / size),
        }
    };
    let values: Vec<f64> = ranks.iter().map(value).collect();
    doubles(ctx, &values);
    Ok(())
}

fn byrank(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    values_at(ctx, args, false)
}

fn byrevrank(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    values_at(ctx, args, true)
}

fn trimmed_mean(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let digest = load(ctx.view, ctx.db, args[1])?;
    let low = float(args[2], "ERR T-Digest: error parsing low_cut_percentile")?;
    let high = float(args[3], "ERR T-Digest: error parsing high_cut_percentile")?;
    if ![low, high].iter().all(|cut| (0.0..=1.0).contains(cut)) {
        return Err(Error::text(
            "ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]",
        ));
    }
    if low >= high {
        return Err(Error::text(
            "ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile",
        ));
    }
    let centroids = digest.centroids(ctx.view, ctx.db)?;
    ctx.reply.double(centroids.trimmed_mean(low, high));
    Ok(())
}

fn info(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let digest = load(ctx.view, ctx.db, args[1])?;
    let capacity = digest.capacity() as i64;
    let fields = [
        ("Compression", digest.compression as i64),
        ("Capacity", capacity),
        ("Merged nodes", digest.merged as i64),
        ("Unmerged nodes", digest.unmerged as i64),
        ("Merged weight", digest.merged_weight),
        ("Unmerged weight", digest.unmerged_weight),
        ("Observations", digest.weight()),
        ("Total compressions", digest.compressions),
        // A structure of RedisBloom and the centroids.
        ("Memory usage", 80 + 16 * capacity),
    ];
    ctx.reply.map(fields.len());
    for (name, value) in fields {
        ctx.reply.simple(name);
        ctx.reply.int(value);
    }
    Ok(())
}

const FAMILY: Family = Family {
    group: Group::TDigest,
    since: "2.4.0",
};

/// What a read costs, besides what it is asked for.
const READ: &str = "O(C + N), C: compression, N: arguments";

/// The rows of TDIGEST.*.
pub const COMMANDS: &[Command] = &[
    FAMILY
        .write("tdigest.create", -2, create, "Creates a t-digest")
        .syntax("key [compression_block=(COMPRESSION compression:int)]"),
    FAMILY
        .write("tdigest.add", -3, add, "Adds observations to a t-digest")
        .syntax("key value:double...")
        .complexity("O(N), N: values"),
    FAMILY
        .write(
            "tdigest.reset",
            2,
            reset,
            "Removes all observations from a t-digest",
        )
        .syntax("key")
        .complexity("O(C), C: compression"),
    FAMILY
        .write("tdigest.merge", -4, merge, "Merges t-digests into one")
        .syntax(
            "destination-key:key numkeys:int source-key:key... \
             [compression_block=(COMPRESSION compression:int)] [OVERRIDE]",
        )
        .complexity("O(N * C), N: digests, C: compression")
        .keys(&[
            KeySpec::at(1, KeyFlags::RW),
            KeySpec::numkeys(2, KeyFlags::RO),
        ]),
    FAMILY
        .read(
            "tdigest.min",
            2,
            min,
            "Returns the least observation of a t-digest",
        )
        .syntax("key"),
    FAMILY
        .read(
            "tdigest.max",
            2,
            max,
            "Returns the greatest observation of a t-digest",
        )
        .syntax("key"),
    FAMILY
        .read(
            "tdigest.quantile",
            -3,
            quantile,
            "Estimates the values at quantiles",
        )
        .syntax("key quantile:double...")
        .complexity(READ),
    FAMILY
        .read(
            "tdigest.cdf",
            -3,
            cdf,
            "Estimates the fractions of the observations up to values",
        )
        .syntax("key value:double...")
        .complexity(READ),
    FAMILY
        .read(
            "tdigest.rank",
            -3,
            rank,
            "Estimates how many observations are below values",
        )
        .syntax("key value:double...")
        .complexity(READ),
    FAMILY
        .read(
            "tdigest.revrank",
            -3,
            revrank,
            "Estimates how many observations are above values",
        )
        .syntax("key value:double...")
        .complexity(READ),
    FAMILY
        .read(
            "tdigest.byrank",
            -3,
            byrank,
            "Estimates the values at ranks, from the least on",
        )
        .syntax("key rank:double...")
        .complexity(READ),
    FAMILY
        .read(
            "tdigest.byrevrank",
            -3,
            byrevrank,
            "Estimates the values at ranks, from the greatest on",
        )
        .syntax("key reverse_rank:double...")
        .complexity(READ),
    FAMILY
        .read(
            "tdigest.trimmed_mean",
            4,
            trimmed_mean,
            "Estimates the mean of the observations between two quantiles",
        )
        .syntax("key low_cut_quantile:double high_cut_quantile:double")
        .complexity("O(C), C: compression"),
    FAMILY
        .read("tdigest.info", 2, info, "Describes a t-digest")
        .syntax("key"),
];
