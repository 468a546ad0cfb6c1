//! The definition of strings; see [`crate::types::definition`].

use super::{Expiry, FRAGMENT_LEN, Long, base, set};
use crate::base::num;
use crate::encoding::meta::{Base, LongString, StringForm};
use crate::encoding::{CollectionId, tag};
use crate::rdb::Element;
use crate::rdb::encode::MAX_BUFFERED_BYTES;
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use crate::types::definition::{
    Added, Build, Definition, Each, Hash, Limits, Output, ROW_OVERHEAD, Stored, of_another_type,
    sha1,
};
use crate::types::pages::{EachPiece, Pages, each_piece};
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use std::ops::ControlFlow;

/// Longest string that Redis stores as `embstr`.
const EMBSTR_MAX: usize = 44;

/// Integers that Redis stores as shared objects.
const SHARED: std::ops::Range<i64> = 0..10_000;

/// The definition of strings.
pub struct StringType;

impl Definition for StringType {
    /// A long string is passed in pieces.
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        if !stored.meta.rows {
            return each(Element::String(stored.body));
        }
        let long = LongString::decode(stored.body)?;
        each_piece_of(source, db, long, &mut |piece| each(Element::String(piece)))
    }

    fn count(&self, _: Stored<'_>) -> OpResult<u64> {
        Ok(1)
    }

    /// A long string up to a limit is collected, so that it can be compressed; a longer
    /// one is written in pieces, uncompressed.
    fn write(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        to: Output<'_>,
    ) -> OpResult<()> {
        if !stored.meta.rows {
            to.encoder.value_string(to.key, stored.body, to.out);
            return (to.flush)(to.out);
        }
        let long = LongString::decode(stored.body)?;
        let len = long.len;
        source.will_make(len)?;
        if len <= MAX_BUFFERED_BYTES as u64 {
            let mut whole = Vec::new();
            each_piece_of(source, db, long, &mut |piece| {
                whole.extend_from_slice(piece);
                Ok(ControlFlow::Continue(()))
            })
            .map(drop)?;
            to.encoder.value_string(to.key, &whole, to.out);
            return (to.flush)(to.out);
        }
        to.encoder.begin_long_string(to.key, len, to.out);
        each_piece_of(source, db, long, &mut |piece| {
            to.out.extend_from_slice(piece);
            (to.flush)(to.out)?;
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)
    }

    fn build<'k>(&self, _: &mut Txn, db: DbIndex, key: &'k [u8]) -> OpResult<Box<dyn Build + 'k>> {
        Ok(Box::new(BuildString { db, key }))
    }

    fn encoding(
        &self,
        _: &mut View,
        _: DbIndex,
        found: &KeyMeta,
        _: &Limits,
    ) -> OpResult<&'static str> {
        Ok(match found.meta {
            meta if meta.rows || meta.form == StringForm::Raw => "raw",
            _ if integer(found).is_some() => "int",
            _ if found.body.len() <= EMBSTR_MAX => "embstr",
            _ => "raw",
        })
    }

    /// Extrapolated from `samples` fragments.
    fn rows_bytes(
        &self,
        view: &mut View,
        db: DbIndex,
        found: &KeyMeta,
        samples: u64,
    ) -> OpResult<u64> {
        let long = Long::of(found)?;
        if long.is_in_value_log() {
            return Ok(long.len() + ROW_OVERHEAD);
        }
        let (mut seen, mut seen_bytes, mut passed) = (0u64, 0u64, None);
        long.each(view, db, 0..long.len(), |offset, bytes| {
            seen += 1;
            seen_bytes += bytes.len() as u64 + ROW_OVERHEAD;
            if seen == samples {
                passed = Some(offset + bytes.len() as u64);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        // The rest is assumed to be as sparse as the part that was read.
        Ok(match passed {
            Some(passed) => (seen_bytes as f64 * long.len() as f64 / passed as f64) as u64,
            None => seen_bytes,
        })
    }

    fn digest(&self, view: &mut View, db: DbIndex, found: &KeyMeta) -> OpResult<Hash> {
        let mut whole = Vec::new();
        self.walk(view, db, Stored::of(found), &mut |element| {
            if let Element::String(piece) = element {
                whole.extend_from_slice(piece);
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        Ok(sha1(&[&whole]))
    }
}

/// A string that is being built; it arrives as one element.
struct BuildString<'k> {
    db: DbIndex,
    key: &'k [u8],
}

impl Build for BuildString<'_> {
    fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<Added, RestoreError> {
        let Element::String(value) = element else {
            return Err(of_another_type());
        };
        set(txn, self.db, self.key, value, Expiry::Clear)?;
        Ok(Added::New)
    }

    fn collection(&self) -> Option<CollectionId> {
        None
    }

    fn counted_tags(&self) -> &'static [u8] {
        &[]
    }

    fn finish(self: Box<Self>, _: &mut Txn) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// Whether Redis would store the value as a shared object.
pub fn is_shared(found: &KeyMeta) -> bool {
    integer(found).is_some_and(|number| SHARED.contains(&number))
}

/// The value as an integer, if Redis would store it as one.
fn integer(found: &KeyMeta) -> Option<i64> {
    let meta = &found.meta;
    let is_given = meta.kind == crate::encoding::ValueType::String
        && !meta.rows
        && meta.form == StringForm::Given;
    is_given.then(|| num::parse_i64(&found.body)).flatten()
}

/// Calls `each` with all bytes of a long string, in order and in pieces.
fn each_piece_of(
    source: &mut dyn Source,
    db: DbIndex,
    long: LongString,
    each: EachPiece<'_>,
) -> OpResult<ControlFlow<()>> {
    let mut from = 0;
    if long.base != Base::None {
        let all = 0..long.len;
        match base::each_part(source, db, long, all, &mut |_, part| each(part))? {
            ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
            ControlFlow::Continue(end) => from = end,
        }
    }
    each_piece(source, db, fragments(long.id), from..long.len, each)
}

/// The rows of a string in fragments.
fn fragments(id: CollectionId) -> Pages {
    Pages {
        tag: tag::FRAGMENT,
        id,
        page_len: FRAGMENT_LEN,
    }
}
