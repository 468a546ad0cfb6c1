//! The interface of a type of values. Operations that work on all types use the
//! [`Definition`] of the type, which [`super::table`] returns.

use super::source::Source;
use super::{OpError, OpResult, RestoreError};
use crate::base::time::UnixMs;
use crate::encoding::{CollectionId, Corrupt, Meta};
use crate::rdb::encode::Encoder;
use crate::rdb::{self, Element};
use crate::storage::{DbIndex, Direction, KeyMeta, Txn, View};
use sha1::{Digest, Sha1};
use smallvec::SmallVec;
use std::ops::{ControlFlow, Range};

/// Overhead of an element row in bytes, besides the element.
pub(super) const ROW_OVERHEAD: u64 = 24;

/// A value as stored in its meta row.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// Type, form and expiry.
    pub meta: Meta,
    /// The body of the meta row.
    pub body: &'a [u8],
}

impl<'a> Stored<'a> {
    /// The value of a key that was looked up.
    pub fn of(found: &'a KeyMeta) -> Stored<'a> {
        Stored {
            meta: found.meta,
            body: &found.body,
        }
    }
}

/// Called with each element, until it breaks.
pub type Each<'e> = &'e mut dyn FnMut(Element<'_>) -> OpResult<ControlFlow<()>>;

/// Called with the bytes written so far; may take them out of the buffer.
pub type Flush<'p> = &'p mut dyn FnMut(&mut Vec<u8>) -> OpResult<()>;

/// Destination of the RDB form of a value.
pub struct Output<'o> {
    /// The key to write between type and value; files have it, payloads do not.
    pub key: Option<&'o [u8]>,
    /// Encodes values.
    pub encoder: &'o mut Encoder,
    /// The buffer.
    pub out: &'o mut Vec<u8>,
    /// Called after each element.
    pub flush: Flush<'o>,
}

/// A SHA-1; zeros for a missing value.
pub type Hash = [u8; 20];

/// Most elements, and most bytes of an element, of a listpack.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Elements.
    pub entries: u64,
    /// Bytes.
    pub value_bytes: u64,
}

/// The limits of Redis' encodings.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For hashes.
    pub hash: Limit,
    /// For sets.
    pub set: Limit,
    /// Most members of an intset.
    pub intset_entries: u64,
    /// For sorted sets.
    pub zset: Limit,
    /// `list-max-listpack-size`: most elements, or, negative, the number of a size
    /// class.
    pub list_size: i32,
}

/// A type of values.
pub trait Definition: Sync {
    /// Calls `each` with all elements in the order of the RDB form; returns whether it
    /// broke.
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>>;

    /// The number of elements that [`Definition::walk`] visits, as stored in the value. For values
    /// of modules it says nothing: their parts are not counted.
    fn count(&self, stored: Stored<'_>) -> OpResult<u64>;

    /// Writes `type ‖ value` in the RDB form, with the key in between if there is one.
    fn write(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        to: Output<'_>,
    ) -> OpResult<()> {
        to.encoder
            .begin(stored.meta.kind, self.count(stored)?, to.key);
        to.encoder.has_times(stored.meta.due_ms);
        self.walk(source, db, stored, &mut |element| {
            to.encoder.element(element, to.out).map_err(miscounted)?;
            (to.flush)(to.out)?;
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        to.encoder.end(to.out).map_err(miscounted)?;
        (to.flush)(to.out)
    }

    /// Begins a value under `key`, which must not exist.
    fn build<'k>(&self, txn: &mut Txn, db: DbIndex, key: &'k [u8])
    -> OpResult<Box<dyn Build + 'k>>;

    /// The name of Redis' encoding for the value (OBJECT ENCODING).
    fn encoding(
        &self,
        view: &mut View,
        db: DbIndex,
        found: &KeyMeta,
        limits: &Limits,
    ) -> OpResult<&'static str>;

    /// Bytes of an element's rows. `None`: this and later parts are not counted.
    fn row_bytes(&self, element: &Element<'_>) -> Option<u64> {
        Some(element.bytes() as u64 + ROW_OVERHEAD)
    }

    /// Approximate bytes of a value's rows before compression, extrapolated from the
    /// first `samples` elements (0: all).
    fn rows_bytes(
        &self,
        view: &mut View,
        db: DbIndex,
        found: &KeyMeta,
        samples: u64,
    ) -> OpResult<u64> {
        let stored = Stored::of(found);
        let rows = stored.meta.kind.stated_rows(stored.body)?;
        let (mut seen, mut seen_bytes) = (0u64, 0u64);
        self.walk(view, db, stored, &mut |element| {
            let Some(bytes) = self.row_bytes(&element) else {
                return Ok(ControlFlow::Break(()));
            };
            seen += 1;
            seen_bytes += bytes;
            Ok(match samples == 0 || seen < samples {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })
        .map(drop)?;
        let average = seen_bytes as f64 / seen.max(1) as f64;
        Ok((average * rows.max(seen) as f64) as u64)
    }

    /// A digest of the value as clients see it, independent of its encoding. The order
    /// of elements does not count.
    fn digest(&self, view: &mut View, db: DbIndex, found: &KeyMeta) -> OpResult<Hash> {
        let mut sum = Hash::default();
        let now_ms = view.expiry_now_ms();
        self.walk(view, db, Stored::of(found), &mut |element| {
            if element.is_over(now_ms) {
                return Ok(ControlFlow::Continue(()));
            }
            mix(&mut sum, &digest_of(&element));
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        Ok(sum)
    }

    /// The value under a key of this type, for SORT; `None` if there is no such key.
    ///
    /// # Errors
    /// `WrongType`: SORT does not take values of this type.
    fn sortable<'k>(
        &self,
        _view: &mut View,
        _db: DbIndex,
        _key: &'k [u8],
    ) -> OpResult<Option<Box<dyn Sortable + 'k>>> {
        Err(OpError::WrongType)
    }

    /// The value that a look-up has found, for ZUNION, ZINTER and ZDIFF.
    ///
    /// # Errors
    /// `WrongType`: these do not take values of this type.
    fn scored(&self, _view: &View, _db: DbIndex, _found: KeyMeta) -> OpResult<Box<dyn Scored>> {
        Err(OpError::WrongType)
    }
}

/// A value whose elements SORT can order.
// A value without elements does not exist, so `len` is never 0.
#[allow(clippy::len_without_is_empty)]
pub trait Sortable {
    /// How many elements it has.
    fn len(&self) -> u64;

    /// Whether its own order means something.
    fn is_ordered(&self) -> bool;

    /// Copies of the elements at some positions of its own order, or of the reverse of that
    /// (unless it has no order).
    fn elements(
        &self,
        view: &mut View,
        range: Range<u64>,
        direction: Direction,
    ) -> OpResult<Vec<Vec<u8>>>;
}

/// A member, copied out.
pub type Member = SmallVec<[u8; 32]>;

/// What walks call with score and member of each element.
pub type EachScored<'e> = &'e mut dyn FnMut(f64, &[u8]) -> OpResult<()>;

/// Puts the next elements of a walk into the list, in place of what is there; says whether
/// there were any.
pub type NextScored<'w> = Box<dyn FnMut(&mut View, &mut Vec<(f64, Member)>) -> OpResult<bool> + 'w>;

/// A value whose members have scores.
// A missing key counts as a value without members; callers compare lengths only.
#[allow(clippy::len_without_is_empty)]
pub trait Scored {
    /// How many members it has.
    fn len(&self) -> u64;

    /// The score of a member.
    fn score(&self, view: &mut View, member: &[u8]) -> OpResult<Option<f64>>;

    /// Calls `each` with all members.
    fn for_each(&self, view: &mut View, each: EachScored<'_>) -> OpResult<()>;

    /// A walk over all members, some at a time.
    fn walk(&self) -> NextScored<'_>;
}

/// The result of [`Build::add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The element is new.
    New,
    /// The element existed already.
    Repeated,
    /// The element has expired and is left out.
    Over,
    /// The part is not counted as an element.
    Uncounted,
}

/// A value under construction.
pub trait Build {
    /// Adds the next element.
    ///
    /// # Errors
    /// The element has the wrong type, or is not allowed at this place.
    fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<Added, RestoreError>;

    /// The collection id of the rows, if the elements stand in rows.
    fn collection(&self) -> Option<CollectionId>;

    /// Tags whose rows must be as many as the added elements; otherwise an element was
    /// added twice. Empty: [`Build::add`] detects repetitions itself.
    fn counted_tags(&self) -> &'static [u8];

    /// Writes the key.
    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError>;
}

/// Calls `each` with the items of a packed body, until it breaks; returns whether it
/// did.
pub(super) fn each_packed<T>(
    packed: impl Iterator<Item = Result<T, Corrupt>>,
    mut each: impl FnMut(T) -> OpResult<ControlFlow<()>>,
) -> OpResult<ControlFlow<()>> {
    for item in packed {
        let next = each(item?)?;
        if next.is_break() {
            return Ok(next);
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The number of items of a packed body.
pub(super) fn count_packed<T>(packed: impl Iterator<Item = Result<T, Corrupt>>) -> OpResult<u64> {
    let mut count = 0;
    for item in packed {
        item?;
        count += 1;
    }
    Ok(count)
}

/// The error for an element of the wrong type, for [`Build::add`].
pub(super) fn of_another_type() -> RestoreError {
    rdb::Error::Corrupt("an element of another type").into()
}

/// The error for a collection that differs from its stored count.
pub(super) fn miscounted(_: rdb::Error) -> super::OpError {
    Corrupt("collection count").into()
}

/// A hash of several parts, which distinguishes ("a", "bc") from ("ab", "c").
pub fn sha1(parts: &[&[u8]]) -> Hash {
    let mut hasher = Sha1::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Adds a hash to a sum that is independent of the order.
pub(super) fn mix(into: &mut Hash, other: &Hash) {
    for (a, b) in into.iter_mut().zip(other) {
        *a ^= b;
    }
}

/// The digest of one element.
fn digest_of(element: &Element<'_>) -> Hash {
    match *element {
        Element::String(bytes)
        | Element::Item(bytes)
        | Element::Member {
            member: bytes,
            expire_ms: UnixMs::NONE,
        } => sha1(&[bytes, b""]),
        Element::Member { member, .. } => sha1(&[member, b"expires"]),
        Element::Scored(score, member) => sha1(&[member, &crate::encoding::score::encode(score)]),
        Element::Field {
            field,
            value,
            expire_ms,
        } => match expire_ms {
            UnixMs::NONE => sha1(&[field, value]),
            _ => sha1(&[field, value, b"expires"]),
        },
        Element::Stream(_) => sha1(&[]),
        Element::Module(part) => {
            let (kind, number, bytes) = part.digested();
            sha1(&[&[kind], &number, bytes])
        }
    }
}

/// The byte strings of an element: of a field its name and value.
fn texts<'a>(element: &Element<'a>) -> [Option<&'a [u8]>; 2] {
    match *element {
        Element::String(bytes) | Element::Item(bytes) | Element::Member { member: bytes, .. } => {
            [Some(bytes), None]
        }
        Element::Scored(_, member) => [Some(member), None],
        Element::Field { field, value, .. } => [Some(field), Some(value)],
        Element::Stream(_) | Element::Module(_) => [None, None],
    }
}

/// Whether a collection has at most `most` elements, and all their byte strings pass a
/// test.
pub(super) fn all_elements(
    definition: &dyn Definition,
    view: &mut View,
    db: DbIndex,
    found: &KeyMeta,
    most: u64,
    test: impl Fn(&[u8]) -> bool,
) -> OpResult<bool> {
    let stored = Stored::of(found);
    if stored.meta.rows && stored.meta.kind.stated_rows(stored.body)? > most {
        return Ok(false);
    }
    let (mut entries, mut all) = (0, true);
    definition
        .walk(view, db, stored, &mut |element| {
            entries += 1;
            all &= texts(&element).into_iter().flatten().all(&test);
            Ok(match all {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })
        .map(drop)?;
    Ok(all && entries <= most)
}

/// Whether a collection is within the limit of a listpack.
pub(super) fn is_within(
    definition: &dyn Definition,
    view: &mut View,
    db: DbIndex,
    found: &KeyMeta,
    limit: Limit,
) -> OpResult<bool> {
    let fits = |element: &[u8]| element.len() as u64 <= limit.value_bytes;
    all_elements(definition, view, db, found, limit.entries, fits)
}
