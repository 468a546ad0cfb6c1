//! Checks that the rows of a data set from a master agree with each other.
//!
//! The meta row of a collection states how many rows it has, and the rows of a stream's groups and
//! consumers do so for what belongs to them. Replies take their lengths from these counts.
//! Comparing each statement with the rows found would take memory for every collection, so
//! statements and findings are added up instead: a statement adds a keyed hash of itself, a finding
//! subtracts the hash of the same words. The balance is zero if both sides agree, and otherwise
//! only with a probability of 2^-64. The key is random, so a sender cannot choose rows whose hashes
//! cancel out.
//!
//! Rows must come in the order of their keys, as a snapshot has them. So the rows of one
//! collection come together, and no row comes twice.
//!
//! A long string has no rows for stretches of zeros, so its rows are not counted.

use crate::base::hash::KeyedHash;
use crate::encoding::keys::Layout;
use crate::encoding::meta::decode_reclaim;
use crate::encoding::stream::{ConsumerRow, GroupRow, NO_CONSUMER, PendingRow, decode_number};
use crate::encoding::{Corrupt, MetaView, keys, tag};
use crate::storage::engine::{Db, Engine, Keyspace, random_bytes};
use crate::storage::full_sync::snapshot::DataSet;
use crate::storage::{DbIndex, Result, StorageError};
use rocksdb::ReadOptions;
use smallvec::SmallVec;

/// Lengths of the prefixes, after the tag, under which rows are counted together: an id, and the
/// numbers of the group and of the consumer that they belong to.
const OF_COLLECTION: usize = 8;
const OF_GROUP: usize = 16;
const OF_CONSUMER: usize = 24;

/// One balance for each number of a tag, so that the rows of each type are counted.
const BALANCES: usize = 1 + u8::MAX as usize;

/// The audit of one DB of a data set, up to some row.
#[derive(Debug)]
pub(in crate::storage) struct Audit {
    /// The hash of statements and findings.
    hash: KeyedHash,
    layout: Layout,
    /// The hash that orders members in the data set.
    order: KeyedHash,
    /// All collections have lower ids.
    next_id: u64,
    /// Statements less findings, by the tag of the rows that they are about.
    balances: [u64; BALANCES],
    /// The last rows, as far as they have one prefix.
    run: Run,
    last_key: Vec<u8>,
    words: Vec<u8>,
}

/// Consecutive rows that are counted together.
#[derive(Debug, Default)]
struct Run {
    tag: u8,
    prefix: SmallVec<[u8; OF_CONSUMER]>,
    rows: u64,
    /// For a list: the index of its first item.
    head: i64,
}

impl Audit {
    pub(in crate::storage) fn new(data_set: &DataSet, layout: Layout) -> Result<Audit> {
        Ok(Audit {
            layout,
            hash: KeyedHash::new(&random_bytes()?),
            order: KeyedHash::new(&data_set.hash_key),
            next_id: data_set.next_id,
            balances: [0; BALANCES],
            run: Run::default(),
            last_key: Vec::new(),
            words: Vec::new(),
        })
    }

    /// Takes the next rows.
    ///
    /// # Errors
    /// A row is not what it claims to be, or does not come after the one before.
    pub(in crate::storage) fn take<'a>(
        &mut self,
        rows: impl Iterator<Item = std::result::Result<(&'a [u8], &'a [u8]), Corrupt>>,
    ) -> Result<()> {
        let before = std::mem::take(&mut self.last_key);
        let mut last = before.as_slice();
        for row in rows {
            let (key, value) = row?;
            if key <= last {
                return Err(Corrupt("snapshot order").into());
            }
            last = key;
            self.row(key, value)?;
        }
        self.last_key = last.to_vec();
        Ok(())
    }

    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (tag, place) = key.split_first().ok_or(Corrupt("empty key"))?;
        match *tag {
            tag::META => return self.meta(self.layout.checked(key)?.1, value),
            tag::TTL => {
                let (expire_ms, user_key) = keys::split_ttl(key)?;
                self.found(tag::TTL, &[&expire_ms.0.to_be_bytes(), user_key]);
                return Ok(());
            }
            tag::DUE => {
                let (due_ms, user_key) = keys::split_due(key)?;
                self.found(tag::DUE, &[&due_ms.0.to_be_bytes(), user_key]);
                return Ok(());
            }
            tag::RECLAIM => {
                keys::split_reclaim(key)?;
                return Ok(decode_reclaim(value).map(drop)?);
            }
            // Stretches of zeros have no rows, so nothing states how many there are.
            tag::FRAGMENT
            | tag::BLOOM_PAGE
            | tag::CUCKOO_PAGE
            | tag::SKETCH_PAGE
            | tag::TOPK_PAGE
            | tag::TOPK_SLOT
            | tag::DIGEST_PAGE => return Ok(keys::split_indexed(key).map(drop)?),
            tag::ZSET_MEMBER => {
                self.hashed(key)?;
                let (id, _) = split(place, OF_COLLECTION)?;
                let score: [u8; 8] = value.try_into().map_err(|_| Corrupt("zset score"))?;
                let member = keys::split_hashed(key)?.1;
                self.found(tag::ZSET_SCORE, &[PAIR, id, &score, member]);
            }
            tag::ZSET_SCORE => {
                keys::split_by_score(key)?;
                self.stated(tag::ZSET_SCORE, &[PAIR, place]);
            }
            tag::STREAM_GROUP => self.group(place, value)?,
            tag::STREAM_CONSUMER => self.consumer(place, value)?,
            tag::STREAM_CONSUMER_NAME => {
                let (group, name) = split(place, OF_GROUP)?;
                let number = decode_number(value)?.to_be_bytes();
                self.found(tag::STREAM_CONSUMER_NAME, &[PAIR, group, &number, name]);
            }
            tag::STREAM_PENDING => {
                let (group, entry) = split(place, OF_GROUP)?;
                let owner = PendingRow::decode(value)?.consumer.to_be_bytes();
                self.stated(tag::STREAM_OWNED, &[PAIR, group, &owner, entry]);
            }
            tag::STREAM_OWNED => self.found(tag::STREAM_OWNED, &[PAIR, place]),
            tag::FIELD_TIME => {
                self.hashed(key)?;
                let (id, place) = split(place, OF_COLLECTION)?;
                self.found(tag::FIELD_DUE, &[PAIR, id, value, place]);
            }
            tag::SET_MEMBER => {
                self.hashed(key)?;
                if !value.is_empty() {
                    let (id, place) = split(place, OF_COLLECTION)?;
                    self.found(tag::MEMBER_DUE, &[PAIR, id, value, place]);
                }
            }
            tag::FIELD_DUE | tag::MEMBER_DUE => {
                keys::split_element_due(key)?;
                self.stated(*tag, &[PAIR, place]);
            }
            tag if tag::HASHED.contains(&tag) => self.hashed(key)?,
            _ => {}
        }
        self.count(*tag, key, place)
    }

    fn meta(&mut self, user_key: &[u8], row: &[u8]) -> Result<()> {
        let found = MetaView::decode(row)?;
        let expire_ms = found.meta.expire_ms;
        if expire_ms.is_some() {
            self.stated(tag::TTL, &[&expire_ms.0.to_be_bytes(), user_key]);
        }
        let due_ms = found.meta.due_ms;
        if due_ms.is_some() {
            self.stated(tag::DUE, &[&due_ms.0.to_be_bytes(), user_key]);
        }
        if !found.meta.rows {
            return Ok(());
        }
        let id = found.id()?;
        if id.0 >= self.next_id {
            return Err(Corrupt("collection id").into());
        }
        let id = id.0.to_be_bytes();
        for stated in found.meta.kind.statements(found.body)? {
            let head = stated.positions.map_or(0, |positions| positions.start);
            self.stated_count(stated.tag, &[&id], stated.rows, head);
        }
        Ok(())
    }

    /// Checks that a row stands where the hash of its member puts it.
    fn hashed(&self, key: &[u8]) -> Result<()> {
        let (hash, member) = keys::split_hashed(key)?;
        match self.order.hash(member) == hash {
            true => Ok(()),
            false => Err(Corrupt("member position").into()),
        }
    }

    fn group(&mut self, place: &[u8], value: &[u8]) -> Result<()> {
        let group = GroupRow::decode(value)?;
        let (id, number) = (split(place, OF_COLLECTION)?.0, group.number.to_be_bytes());
        for (tag, rows) in [
            (tag::STREAM_CONSUMER, group.consumers),
            (tag::STREAM_CONSUMER_NAME, group.consumers),
            (tag::STREAM_PENDING, group.pending),
            (
                tag::STREAM_TIMED,
                if group.timed { group.pending } else { 0 },
            ),
        ] {
            self.stated_count(tag, &[id, &number], rows, 0);
        }
        let released = [id, &number, &NO_CONSUMER.to_be_bytes()];
        self.stated_count(tag::STREAM_OWNED, &released, group.released, 0);
        Ok(())
    }

    fn consumer(&mut self, place: &[u8], value: &[u8]) -> Result<()> {
        let consumer = ConsumerRow::decode(value)?;
        let (group, number) = split(place, OF_GROUP)?;
        self.stated_count(tag::STREAM_OWNED, &[group, number], consumer.pending, 0);
        let words = [PAIR, group, number, &consumer.name];
        self.stated(tag::STREAM_CONSUMER_NAME, &words);
        Ok(())
    }

    fn count(&mut self, tag: u8, key: &[u8], place: &[u8]) -> Result<()> {
        let of = match tag {
            tag::STREAM_CONSUMER
            | tag::STREAM_CONSUMER_NAME
            | tag::STREAM_PENDING
            | tag::STREAM_TIMED => OF_GROUP,
            tag::STREAM_OWNED => OF_CONSUMER,
            _ => OF_COLLECTION,
        };
        let (prefix, _) = split(place, of)?;
        let index = match tag {
            tag::LIST_ITEM => keys::split_indexed(key)?,
            _ => 0,
        };
        if self.run.tag != tag || self.run.prefix.as_slice() != prefix {
            self.end_run();
            self.run = Run {
                tag,
                prefix: SmallVec::from_slice(prefix),
                rows: 0,
                head: index,
            };
        }
        if tag == tag::LIST_ITEM && index.abs_diff(self.run.head) != self.run.rows {
            return Err(Corrupt("list position").into());
        }
        self.run.rows += 1;
        Ok(())
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        if run.rows > 0 {
            let (rows, head) = (run.rows.to_be_bytes(), run.head.to_be_bytes());
            self.found(run.tag, &[COUNT, &run.prefix, &rows, &head]);
        }
    }

    /// Adds the statement that so many rows begin with `tag` and `prefix`; a list's first index is
    /// `head`.
    fn stated_count(&mut self, tag: u8, prefix: &[&[u8]], rows: u64, head: i64) {
        if rows > 0 {
            let prefix = prefix.concat();
            let (rows, head) = (rows.to_be_bytes(), head.to_be_bytes());
            self.stated(tag, &[COUNT, &prefix, &rows, &head]);
        }
    }

    fn stated(&mut self, tag: u8, words: &[&[u8]]) {
        let hash = self.hash_of(words);
        if let Some(balance) = self.balances.get_mut(usize::from(tag)) {
            *balance = balance.wrapping_add(hash);
        }
    }

    fn found(&mut self, tag: u8, words: &[&[u8]]) {
        let hash = self.hash_of(words);
        if let Some(balance) = self.balances.get_mut(usize::from(tag)) {
            *balance = balance.wrapping_sub(hash);
        }
    }

    fn hash_of(&mut self, words: &[&[u8]]) -> u64 {
        self.words.clear();
        for word in words {
            self.words.extend_from_slice(word);
        }
        let hash = self.hash.hash(&self.words);
        self.words.clear();
        self.words.shrink_to(WORDS_KEPT);
        hash
    }

    /// Ends the audit after all rows, which are in `keyspace` by now.
    ///
    /// # Errors
    /// [`StorageError::Disagrees`] if a statement differs from the rows.
    pub(in crate::storage) fn finish(
        mut self,
        engine: &Engine,
        db: DbIndex,
        keyspace: &Keyspace,
    ) -> Result<()> {
        self.end_run();
        let dead = self.take_dead(engine, keyspace)?;
        for (tag, (balance, dead)) in self.balances.into_iter().zip(dead).enumerate() {
            if balance != dead {
                return Err(StorageError::Disagrees {
                    db: db.0,
                    what: about(tag as u8),
                });
            }
        }
        Ok(())
    }

    /// The balances of the dead collections that wait for reclaim: no meta row states their counts.
    fn take_dead(&self, engine: &Engine, keyspace: &Keyspace) -> Result<[u64; BALANCES]> {
        let mut dead = Audit {
            layout: self.layout,
            hash: self.hash.clone(),
            order: self.order.clone(),
            next_id: self.next_id,
            balances: [0; BALANCES],
            run: Run::default(),
            last_key: Vec::new(),
            words: Vec::new(),
        };
        let mut queue = rows_in(engine, keyspace, &[tag::RECLAIM], &[tag::RECLAIM + 1]);
        while let Some((key, value)) = queue.item() {
            let id = keys::split_reclaim(key)?;
            for &tag in decode_reclaim(value)?.0.element_tags() {
                let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
                let mut rows = rows_in(engine, keyspace, &from, &to);
                while let Some((key, value)) = rows.item() {
                    dead.row(key, value)?;
                    rows.next();
                }
                rows.status()?;
                dead.end_run();
            }
            queue.next();
        }
        queue.status()?;
        Ok(dead.balances)
    }
}

/// The kinds of statements: how many rows there are, or that two rows say the same in different
/// orders.
const COUNT: &[u8] = b"c";
const PAIR: &[u8] = b"p";

/// The most bytes of the buffer of words that are kept from row to row.
const WORDS_KEPT: usize = 4096;

fn split(place: &[u8], at: usize) -> Result<(&[u8], &[u8])> {
    Ok(place.split_at_checked(at).ok_or(Corrupt("element"))?)
}

/// What the rows of a tag are, in words.
fn about(tag: u8) -> &'static str {
    match tag {
        tag::HASH_FIELD => "fields of hashes",
        tag::LIST_ITEM => "items of lists",
        tag::SET_MEMBER => "members of sets",
        tag::ZSET_MEMBER | tag::ZSET_SCORE => "members of sorted sets",
        tag::TTL => "keys with an expiry",
        tag::FIELD_TIME | tag::FIELD_DUE => "times of fields",
        tag::MEMBER_DUE => "times of members",
        tag::DUE => "keys with timed elements",
        tag::STREAM_ENTRY => "entries of streams",
        tag::STREAM_GROUP => "groups of streams",
        tag::STREAM_CONSUMER | tag::STREAM_CONSUMER_NAME => "consumers of streams",
        tag::SORTED_INT => "integers of sorted ints",
        tag::STREAM_PENDING | tag::STREAM_OWNED | tag::STREAM_TIMED => "pending entries of streams",
        tag::STREAM_IID | tag::STREAM_IID_ORDER => "idempotent ids of streams",
        tag::STREAM_PRODUCER | tag::STREAM_PRODUCER_NAME => "producers of streams",
        tag::JSON_NODE => "parts of JSON documents",
        _ => "elements of values",
    }
}

fn rows_in<'e>(
    engine: &'e Engine,
    keyspace: &Keyspace,
    from: &[u8],
    to: &[u8],
) -> rocksdb::DBRawIteratorWithThreadMode<'e, Db> {
    let mut read = ReadOptions::default();
    read.set_total_order_seek(true);
    read.fill_cache(false);
    read.set_iterate_upper_bound(to);
    let mut rows = engine.db.raw_iterator_cf_opt(&keyspace.cf, read);
    rows.seek(from);
    rows
}
