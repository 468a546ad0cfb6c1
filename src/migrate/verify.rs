//! Compares both sides, key by key.
//!
//! Values are compared by digests that depend on the type: the order of a list counts,
//! the order of a set or hash does not, nor does the encoding. Small values are read
//! with DUMP if both sides have it.
//!
//! The source may be written to during the comparison: keys that differ are compared
//! again a few times before they are reported.

use super::conn::Conn;
use super::copy::{GRACE_MS, MAX_STRING};
use super::error::{Result, shown};
use super::mapping::Mapping;
use super::options::Options;
use super::peers::{has_command, keyspaces, scan};
use super::stats::{Phase, Stats};
use super::values::{Part, Shape, Values, Way};
use super::{Stop, sleep};
use crate::base::time::UnixMs;
use crate::encoding::stream::StreamId;
use crate::rdb::decode::read_value;
use crate::rdb::reader::Reader;
use crate::rdb::{self, Element, ElementTimes, StreamPart, payload};
use crate::sys::clock;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a key that differs is compared again.
const RECHECKS: usize = 4;
/// Delay before each of these comparisons.
const RECHECK_DELAY: Duration = Duration::from_millis(500);
/// Tolerance for expiry times if a server only reports relative ones.
const DRIFT_MS: u64 = 1000;
/// Most keys that are reported one by one; later ones are only counted.
const MAX_REPORTED: u64 = 1000;
/// Most keys that are kept for another comparison.
const MAX_SUSPECTS: usize = 100_000;

/// A key's place: DB and name at the source, DB and name at the target.
type Place = (u64, Vec<u8>, u64, Vec<u8>);

/// The value of a key on both sides.
type Pair = (Option<Seen>, Option<Seen>);

/// What is compared of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    kind: String,
    elements: i64,
    digest: u128,
    /// Expiry in Unix ms; 0: none.
    expire_ms: UnixMs,
}

/// Compares all copied keys; returns how many differ.
pub fn compare(
    options: &Options,
    mapping: &Mapping,
    stop: &Stop,
    stats: &Arc<Stats>,
) -> Result<u64> {
    let mut source = Conn::new(&options.source(), stop)?;
    source.limit_reading(options.network_limit);
    let source = Values::new(source, mapping.prefix())?;
    let prefixes = mapping.target_prefixes();
    let prefix = prefixes.first().map_or(&b""[..], Vec::as_slice);
    let mut target = Values::new(Conn::new(&options.target(), stop)?, prefix)?;
    let [field_times, member_times] = [
        has_command(&mut target.conn, "HPEXPIREAT")? || !options.keep_going,
        has_command(&mut target.conn, "SPEXPIREAT")? || !options.keep_going,
    ];
    let mut compare = Compare {
        rules: Rules {
            way: match source.has_dump && target.has_dump {
                true => Way::Dump,
                false => Way::Typed,
            },
            field_times,
            member_times,
            drift_ms: match source.has_expiretime && target.has_expiretime {
                true => 0,
                false => DRIFT_MS,
            },
        },
        source,
        target,
        mapping,
        stop,
        stats,
        suspects: BTreeSet::new(),
        reported: 0,
        is_first_check: true,
    };
    stats.set_phase(Phase::Comparing);
    stats.keys.store(0, Ordering::Relaxed);
    stats.errors.store(0, Ordering::Relaxed);
    stats.keys_expected.store(0, Ordering::Relaxed);
    stats.left_out.store(0, Ordering::Relaxed);
    stats.timed_values.store(0, Ordering::Relaxed);
    stats.timed_elements.store(0, Ordering::Relaxed);
    compare.run(options)?;
    let (keys, different) = (stats.keys.load(Ordering::Relaxed), compare.reported);
    let lost = stats.element_times();
    if lost != ElementTimes::default() {
        log::warn!("at the source, {lost}; these times were not compared");
    }
    match different {
        0 => log::info!("compared {keys} keys: all are equal"),
        _ => log::error!("compared {keys} keys: {different} differ"),
    }
    Ok(different)
}

/// What counts as a difference.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// How small values are read: only digests of the same way can be compared.
    way: Way,
    /// Whether times of fields count.
    field_times: bool,
    /// Whether times of members count.
    member_times: bool,
    /// Tolerance for the expiry of keys.
    drift_ms: u64,
}

struct Compare<'c> {
    source: Values,
    target: Values,
    rules: Rules,
    mapping: &'c Mapping,
    stop: &'c Stop,
    stats: &'c Arc<Stats>,
    suspects: BTreeSet<Place>,
    reported: u64,
    is_first_check: bool,
}

impl Compare<'_> {
    fn run(&mut self, options: &Options) -> Result<()> {
        let dbs = self.dbs()?;
        if self.mapping.has_all_keys() {
            let known = keyspaces(&mut self.source.conn)?;
            let compared = known
                .iter()
                .filter(|known| dbs.iter().any(|(from, _)| *from == known.db));
            let keys = compared.map(|known| known.keys).sum();
            self.stats.keys_expected.store(keys, Ordering::Relaxed);
        }
        // First direction: the keys of the source.
        for (from, to) in &dbs {
            let mut scanner = Conn::new(&options.source(), self.stop)?;
            let prefix = self.mapping.prefix().to_vec();
            let (stop, mapping) = (self.stop, self.mapping);
            scan(&mut scanner, *from, &prefix, stop, |_, keys| {
                let places = keys.into_iter().filter_map(|key| {
                    let name = mapping.key(&key)?.into_owned();
                    Some((*from, key, *to, name))
                });
                let places: Vec<Place> = places.collect();
                self.stats
                    .keys
                    .fetch_add(places.len() as u64, Ordering::Relaxed);
                let different = self.differences(&places)?;
                self.suspect(different)?;
                Ok(true)
            })?;
        }
        // Second direction: keys that only the target has.
        for (from, to) in &dbs {
            for prefix in self.mapping.target_prefixes() {
                let mut scanner = Conn::new(&options.target(), self.stop)?;
                let (stop, mapping) = (self.stop, self.mapping);
                scan(&mut scanner, *to, &prefix, stop, |_, names| {
                    let places = names.into_iter().filter_map(|name| {
                        let key = mapping.source_key(&name)?;
                        Some((*from, key, *to, name))
                    });
                    let places: Vec<Place> = places.collect();
                    let keys: Vec<Vec<u8>> = places.iter().map(|place| place.1.clone()).collect();
                    self.source.select(*from)?;
                    let missing: BTreeSet<_> = self.source.missing(&keys)?.into_iter().collect();
                    let missing = places
                        .into_iter()
                        .filter(|place| missing.contains(&place.1));
                    let missing = missing.collect();
                    self.suspect(missing)?;
                    Ok(true)
                })?;
            }
        }
        self.recheck(RECHECKS)?;
        let left = std::mem::take(&mut self.suspects);
        for place in left {
            self.report(&place)?;
        }
        Ok(())
    }

    /// The DBs to compare, at the source and at the target.
    fn dbs(&mut self) -> Result<Vec<(u64, u64)>> {
        if let Some(dbs) = self.mapping.dbs() {
            return Ok(dbs.iter().map(|(from, to)| (*from, *to)).collect());
        }
        let mut dbs = BTreeSet::new();
        for side in [&mut self.source, &mut self.target] {
            dbs.extend(keyspaces(&mut side.conn)?.iter().map(|known| known.db));
        }
        Ok(dbs.into_iter().map(|db| (db, db)).collect())
    }

    fn suspect(&mut self, places: Vec<Place>) -> Result<()> {
        self.suspects.extend(places);
        if self.suspects.len() > MAX_SUSPECTS {
            self.recheck(1)?;
            self.is_first_check = true;
            // Keys that still differ now are reported at once, to bound memory.
            for place in std::mem::take(&mut self.suspects) {
                self.report(&place)?;
            }
        }
        Ok(())
    }

    fn recheck(&mut self, times: usize) -> Result<()> {
        self.is_first_check = false;
        for _ in 0..times {
            if self.suspects.is_empty() {
                return Ok(());
            }
            sleep(RECHECK_DELAY, self.stop);
            let suspects: Vec<Place> = std::mem::take(&mut self.suspects).into_iter().collect();
            for places in suspects.chunks(500) {
                self.stop.check()?;
                for same_dbs in places.chunk_by(|a, b| (a.0, a.2) == (b.0, b.2)) {
                    let different = self.differences(same_dbs)?;
                    self.suspects.extend(different);
                }
            }
        }
        Ok(())
    }

    /// The places whose values differ. All must be of one pair of DBs.
    fn differences(&mut self, places: &[Place]) -> Result<Vec<Place>> {
        let Some((from, _, to, _)) = places.first() else {
            return Ok(Vec::new());
        };
        let (from, to) = (*from, *to);
        let pairs = self.read_both(from, to, places)?.into_iter().zip(places);
        let rules = self.rules;
        let different = pairs.filter(|((a, b), _)| !are_equal(a.as_ref(), b.as_ref(), rules));
        Ok(different.map(|(_, place)| place.clone()).collect())
    }

    /// Reads keys of one pair of DBs on both sides.
    fn read_both(&mut self, from: u64, to: u64, places: &[Place]) -> Result<Vec<Pair>> {
        let keys: Vec<&[u8]> = places.iter().map(|place| place.1.as_slice()).collect();
        let names: Vec<&[u8]> = places.iter().map(|place| place.3.as_slice()).collect();
        self.source.select(from)?;
        self.target.select(to)?;
        let mut source = self.source.shapes(&keys)?;
        let mut target = self.target.shapes(&names)?;
        for pair in source.iter_mut().zip(&mut target) {
            if let (Some(a), Some(b)) = pair {
                // The sizes of a value differ between servers, so both must be small.
                let is_small = a.is_small && b.is_small;
                (a.is_small, b.is_small) = (is_small, is_small);
            }
        }
        let (source, timed) = seen(&mut self.source, &keys, &source, self.rules)?;
        if self.is_first_check {
            timed
                .into_iter()
                .for_each(|fields| self.stats.lost_times(fields));
        }
        let (target, _) = seen(&mut self.target, &names, &target, self.rules)?;
        Ok(source.into_iter().zip(target).collect())
    }

    /// Compares a key once more and reports it if it still differs.
    fn report(&mut self, place: &Place) -> Result<()> {
        let (from, key, to, _) = place;
        let pair = self
            .read_both(*from, *to, std::slice::from_ref(place))?
            .pop();
        let (a, b) = pair.unwrap_or_default();
        if are_equal(a.as_ref(), b.as_ref(), self.rules) {
            return Ok(());
        }
        self.reported += 1;
        self.stats.errors.fetch_add(1, Ordering::Relaxed);
        if self.reported > MAX_REPORTED {
            return Ok(());
        }
        let what = match (a, b) {
            (Some(a), None) => format!("a {} that the target does not have", a.kind),
            (None, Some(b)) => format!("a {} that only the target has", b.kind),
            (Some(a), Some(b)) if a.kind != b.kind => format!("{} here, {} there", a.kind, b.kind),
            (Some(a), Some(b)) if a.elements != b.elements => {
                format!("{} of {} here, of {} there", a.kind, a.elements, b.elements)
            }
            (Some(a), Some(b)) if a.digest != b.digest => format!("{}s that differ", a.kind),
            (Some(a), Some(b)) => {
                format!("expires at {} here, at {} there", a.expire_ms, b.expire_ms)
            }
            (None, None) => return Ok(()),
        };
        log::error!("DB {from} key {:?}: {what}", shown(key));
        Ok(())
    }
}

fn are_equal(a: Option<&Seen>, b: Option<&Seen>, rules: Rules) -> bool {
    let (a, b) = match (a, b) {
        (None, None) => return true,
        (Some(a), Some(b)) => (a, b),
        // A key that has just expired may still exist on one side.
        (Some(one), None) | (None, Some(one)) => return is_nearly_over(one.expire_ms),
    };
    let is_same_time = a.expire_ms == b.expire_ms
        || is_nearly_over(a.expire_ms) && is_nearly_over(b.expire_ms)
        || a.expire_ms.is_some()
            && b.expire_ms.is_some()
            && a.expire_ms.0.abs_diff(b.expire_ms.0) <= rules.drift_ms;
    is_same_time && (&a.kind, a.elements, a.digest) == (&b.kind, b.elements, b.digest)
}

/// Whether the expiry is so near that the tool may have postponed it.
fn is_nearly_over(expire_ms: UnixMs) -> bool {
    expire_ms.is_some() && expire_ms < clock::unix_ms() + GRACE_MS
}

/// Reads the values with these shapes; returns also the number of elements with times that do not
/// count.
fn seen(
    side: &mut Values,
    keys: &[&[u8]],
    shapes: &[Option<Shape>],
    rules: Rules,
) -> Result<(Vec<Option<Seen>>, Vec<u64>)> {
    let there = keys.iter().zip(shapes).enumerate();
    let there: Vec<(usize, (&[u8], &Shape))> = there
        .filter_map(|(at, (key, shape))| Some((at, (*key, shape.as_ref()?))))
        .collect();
    let asked: Vec<(&[u8], &Shape)> = there.iter().map(|(_, asked)| *asked).collect();
    let mut digests: Vec<Digest> = asked.iter().map(|_| Digest::new(rules)).collect();
    side.read(&asked, rules.way, |at, part| {
        if let Some(digest) = digests.get_mut(at) {
            digest.add(&part);
        }
        Ok(())
    })?;
    let mut seen = vec![None; keys.len()];
    let mut timed = Vec::with_capacity(there.len());
    for ((at, (_, shape)), digest) in there.into_iter().zip(digests) {
        timed.push(digest.timed_elements);
        if let Some(place) = seen.get_mut(at).filter(|_| !digest.is_gone) {
            *place = Some(Seen {
                kind: shape.kind.clone(),
                elements: shape.len,
                digest: digest.total(),
                expire_ms: shape.expire_ms,
            });
        }
    }
    Ok((seen, timed))
}

/// Computes the digest of a value from its parts.
struct Digest {
    rules: Rules,
    now_ms: UnixMs,
    sum: Sum,
    text: Option<SipHasher13>,
    /// Digests of unordered elements; a set, because a scan may return one twice.
    unordered: BTreeSet<u128>,
    /// Number of elements with times that do not count.
    timed_elements: u64,
    /// Whether the value was deleted during the read.
    is_gone: bool,
}

impl Digest {
    fn new(rules: Rules) -> Digest {
        Digest {
            rules,
            now_ms: clock::unix_ms(),
            sum: Sum::default(),
            text: None,
            unordered: BTreeSet::new(),
            timed_elements: 0,
            is_gone: false,
        }
    }

    fn add(&mut self, part: &Part<'_>) {
        match part {
            Part::Payload(payload) => self.payload(payload),
            Part::Text(text) => self.text.get_or_insert_with(start).write(text),
            Part::Element(element) => self.element(*element),
            Part::End => {}
            Part::Gone => self.is_gone = true,
        }
    }

    /// Adds a payload; an unknown one by its bytes.
    fn payload(&mut self, bytes: &[u8]) {
        let read = payload::open(bytes).and_then(|opened| {
            let mut reader = Reader::new(opened.value, MAX_STRING);
            let (kind, dialect) = (opened.kind, opened.dialect);
            read_value(&mut reader, kind, dialect, |element: Element<'_>| {
                self.element(element);
                Ok::<(), rdb::Error>(())
            })
        });
        if read.is_err() {
            self.unordered.clear();
            self.sum = Sum::default();
            self.sum.add(Element::String(bytes));
        }
    }

    fn element(&mut self, element: Element<'_>) {
        match element {
            Element::Field {
                field,
                value,
                expire_ms,
            } => {
                if let Some(expire_ms) = self.time(expire_ms, self.rules.field_times) {
                    self.unordered.insert(element_digest(Element::Field {
                        field,
                        value,
                        expire_ms,
                    }));
                }
            }
            Element::Member { member, expire_ms } => {
                if let Some(expire_ms) = self.time(expire_ms, self.rules.member_times) {
                    let element = Element::Member { member, expire_ms };
                    self.unordered.insert(element_digest(element));
                }
            }
            Element::Scored(..) => {
                self.unordered.insert(element_digest(element));
            }
            Element::Stream(StreamPart::Pending { id, deliveries, .. })
                if self.rules.way == Way::Typed =>
            {
                // The delivery time is not known exactly.
                self.sum.add(Element::Stream(StreamPart::Pending {
                    id,
                    delivered_ms: 0,
                    deliveries,
                }));
            }
            Element::String(_) | Element::Item(_) | Element::Stream(_) | Element::Module(_) => {
                self.sum.add(element);
            }
        }
    }

    /// The time of an element as it is compared; `None` if it is over: such elements do not count,
    /// whether they are removed yet or not.
    fn time(&mut self, expire_ms: UnixMs, counts: bool) -> Option<UnixMs> {
        self.timed_elements += u64::from(expire_ms.is_some() && !counts);
        match expire_ms {
            UnixMs::NONE => Some(UnixMs::NONE),
            at_ms if at_ms <= self.now_ms => None,
            at_ms => Some(if counts { at_ms } else { UnixMs::NONE }),
        }
    }

    fn total(&self) -> u128 {
        let text = self.text.as_ref().map(|text| text.finish128().as_u128());
        let unordered = self.unordered.iter();
        let total = unordered.fold(self.sum.total, |sum, digest| sum.wrapping_add(*digest));
        text.unwrap_or(total)
    }
}

fn start() -> SipHasher13 {
    SipHasher13::new_with_keys(0x6B65_6469_7320_746F, 0x6F6C_7320_6D6F_7665)
}

/// The digest of one element.
fn element_digest(element: Element<'_>) -> u128 {
    let mut hash = start();
    match element {
        Element::String(bytes) | Element::Item(bytes) => hash.write(bytes),
        Element::Member { member, expire_ms } => {
            hash.write(member);
            hash.write_u64(expire_ms.0);
        }
        Element::Scored(score, member) => {
            hash.write_u64((score + 0.0).to_bits());
            hash.write(member);
        }
        Element::Field {
            field,
            value,
            expire_ms,
        } => {
            hash.write_u64(field.len() as u64);
            hash.write(field);
            hash.write(value);
            hash.write_u64(expire_ms.0);
        }
        Element::Stream(part) => stream_part(&mut hash, part),
        Element::Module(part) => {
            let (kind, number, bytes) = part.digested();
            hash.write_u8(kind);
            hash.write(&number);
            hash.write(bytes);
        }
    }
    hash.finish128().as_u128()
}

/// What counts of a stream. Left out is what versions of Redis count differently, and
/// when a consumer was last active.
fn stream_part(hash: &mut SipHasher13, part: StreamPart<'_>) {
    let mut write_id = |id: StreamId| hash.write(&id.encode());
    match part {
        StreamPart::Entry { id, fields } => {
            write_id(id);
            hash.write(fields);
        }
        StreamPart::State(state) => {
            write_id(state.last);
            hash.write_u64(state.length);
            hash.write_u64(state.groups);
        }
        StreamPart::Group {
            name,
            last,
            pending,
            ..
        } => {
            write_id(last);
            hash.write_u64(pending);
            hash.write(name);
        }
        StreamPart::Pending {
            id,
            delivered_ms,
            deliveries,
        } => {
            write_id(id);
            hash.write_i64(delivered_ms);
            hash.write_u64(deliveries);
        }
        StreamPart::Consumers(count) => hash.write_u64(count),
        StreamPart::Consumer { name, pending, .. } => {
            hash.write_u64(pending);
            hash.write(name);
        }
        StreamPart::Owned(id) | StreamPart::Released(id) => write_id(id),
        // Not every target can hold these.
        StreamPart::Idempotence { .. }
        | StreamPart::Producer(_)
        | StreamPart::Iid { .. }
        | StreamPart::IidCounts { .. } => {}
    }
}

/// Combines elements; the order counts for lists, streams and values of modules only.
#[derive(Default)]
struct Sum {
    total: u128,
    items: u128,
}

impl Sum {
    fn add(&mut self, element: Element<'_>) {
        let digest = element_digest(element);
        match element {
            Element::String(_) => self.total = digest,
            Element::Item(_) | Element::Stream(_) | Element::Module(_) => {
                self.items += 1;
                let weight = self.items.wrapping_mul(2).wrapping_add(1);
                self.total = self.total.wrapping_add(digest.wrapping_mul(weight));
            }
            Element::Member { .. } | Element::Scored(..) | Element::Field { .. } => {
                self.total = self.total.wrapping_add(digest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(elements: &[Element<'_>]) -> u128 {
        let mut sum = Sum::default();
        for element in elements {
            sum.add(*element);
        }
        sum.total
    }

    #[test]
    fn order_counts_for_lists_alone() {
        let (a, b) = (Element::Item(b"a"), Element::Item(b"b"));
        assert_ne!(sum(&[a, b]), sum(&[b, a]));
        assert_ne!(sum(&[a, a]), sum(&[a]));
        let (a, b) = (Element::member(b"a"), Element::member(b"b"));
        assert_eq!(sum(&[a, b]), sum(&[b, a]));
        assert_ne!(sum(&[a, b]), sum(&[a]));
        let (a, b) = (Element::Scored(0.0, b"a"), Element::Scored(-0.0, b"a"));
        assert_eq!(sum(&[a]), sum(&[b]));
        let field = |field, value| Element::Field {
            field,
            value,
            expire_ms: UnixMs::NONE,
        };
        assert_ne!(sum(&[field(b"ab", b"c")]), sum(&[field(b"a", b"bc")]));
    }
}
