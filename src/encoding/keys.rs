//! The keys of all rows of a DB's column family.

use super::{CollectionId, Corrupt, ValueType, reader::Reader, score, tag};
use crate::base::slots;
use crate::base::time::UnixMs;
use smallvec::SmallVec;

/// A row's key; most need no allocation.
pub type RowKey = SmallVec<[u8; 64]>;

/// Bytes of `tag ‖ id`: the prefix that all rows of one map of a collection share.
pub const ELEMENT_PREFIX_LEN: usize = 9;

#[inline(always)]
fn build(tag: u8, parts: &[&[u8]]) -> RowKey {
    let mut key = RowKey::new();
    fill(&mut key, tag, parts);
    key
}

/// Fills a key in place: a key that is moved right after it was written in pieces would stall until
/// these stores have reached the processor's cache.
#[inline(never)]
fn fill(key: &mut RowKey, tag: u8, parts: &[&[u8]]) {
    key.push(tag);
    for part in parts {
        key.extend_from_slice(part);
    }
}

/// Where all meta rows of a DB begin, and where they end.
pub const METAS: ([u8; 1], [u8; 1]) = ([tag::META], [tag::META + 1]);

/// What stands in the keys of meta rows: their *place*, which is all behind the tag. The format row
/// of a database says which one it has; only the number of a slot depends on the user key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// The user key.
    #[default]
    Plain = 0,
    /// The slot of the user key, 2 bytes, and the user key: so the keys of a slot are one range.
    Slots = 1,
}

impl Layout {
    /// Whether the keys are in slots.
    pub fn with_slots(slots: bool) -> Layout {
        match slots {
            true => Layout::Slots,
            false => Layout::Plain,
        }
    }

    /// Its name between servers.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Plain => "plain",
            Layout::Slots => "slots",
        }
    }

    /// The layout of this number.
    pub(super) fn from_byte(byte: u8) -> Option<Layout> {
        [Layout::Plain, Layout::Slots]
            .into_iter()
            .find(|layout| *layout as u8 == byte)
    }

    /// The row of a key: `01 ‖ user key`, or `01 ‖ slot (2) ‖ user key`.
    #[inline(always)]
    pub fn meta(self, user_key: &[u8]) -> RowKey {
        match self {
            Layout::Plain => build(tag::META, &[user_key]),
            Layout::Slots => self.meta_in(slots::of_key(user_key), user_key),
        }
    }

    /// Where the rows of the keys in a slot begin that begin with a prefix.
    pub fn meta_in(self, slot: u16, prefix: &[u8]) -> RowKey {
        match self {
            Layout::Plain => build(tag::META, &[prefix]),
            Layout::Slots => build(tag::META, &[&slot.to_be_bytes(), prefix]),
        }
    }

    /// A range of meta rows that has all whose user keys begin with a prefix: in slots it has all rows.
    pub fn metas_with(self, prefix: &[u8]) -> (RowKey, RowKey) {
        let from = match self {
            Layout::Plain => build(tag::META, &[prefix]),
            Layout::Slots => build(tag::META, &[]),
        };
        let to = after_prefix(&from).unwrap_or_else(|| RowKey::from_slice(&METAS.1));
        (from, to)
    }

    /// The user key of a meta row.
    pub fn user_key(self, row_key: &[u8]) -> Result<&[u8], Corrupt> {
        self.key_at(place_of_meta(row_key)?)
    }

    /// The user key at a place.
    pub fn key_at(self, place: &[u8]) -> Result<&[u8], Corrupt> {
        let before = match self {
            Layout::Plain => 0,
            Layout::Slots => 2,
        };
        place.get(before..).ok_or(Corrupt("meta"))
    }

    /// The slot and the user key of a meta row that may be damaged; without slots it is 0.
    pub fn checked(self, row_key: &[u8]) -> Result<(u16, &[u8]), Corrupt> {
        let user_key = self.user_key(row_key)?;
        if self == Layout::Plain {
            return Ok((0, user_key));
        }
        let slot = slots::of_key(user_key);
        match row_key.get(1..3) == Some(&slot.to_be_bytes()) {
            true => Ok((slot, user_key)),
            false => Err(Corrupt("slot")),
        }
    }
}

/// The meta row at a place, or where those from there on begin.
pub fn meta_at(place: &[u8]) -> RowKey {
    build(tag::META, &[place])
}

/// The place of a meta row.
pub fn place_of_meta(row_key: &[u8]) -> Result<&[u8], Corrupt> {
    match row_key.split_first() {
        Some((&tag::META, place)) => Ok(place),
        _ => Err(Corrupt("meta")),
    }
}

/// `tag ‖ id`, the prefix of all element rows under `tag`.
pub fn element_prefix(tag: u8, id: CollectionId) -> RowKey {
    build(tag, &[&id.0.to_be_bytes()])
}

/// The [`element_prefix`] of a row's key; `None` if the row does not belong to a collection's map.
pub fn map_prefix(key: &[u8]) -> Option<&[u8]> {
    match key.first()? {
        &tag::META | &tag::TTL | &tag::RECLAIM | &tag::DUE => None,
        _ => key.get(..ELEMENT_PREFIX_LEN),
    }
}

/// The first key after all rows that begin with `tag ‖ id`.
pub fn element_end(tag: u8, id: CollectionId) -> RowKey {
    match id.0.checked_add(1) {
        Some(next) => build(tag, &[&next.to_be_bytes()]),
        None => build(tag + 1, &[]),
    }
}

/// `tag ‖ id ‖ h ‖ member`, for maps in hash order.
pub fn hashed(tag: u8, id: CollectionId, hash: u64, member: &[u8]) -> RowKey {
    build(tag, &[&id.0.to_be_bytes(), &hash.to_be_bytes(), member])
}

/// `tag ‖ id ‖ h`, where a scan in hash order starts.
pub fn hashed_from(tag: u8, id: CollectionId, hash: u64) -> RowKey {
    build(tag, &[&id.0.to_be_bytes(), &hash.to_be_bytes()])
}

/// Hash and member of a key that [`hashed`] made.
pub fn split_hashed(row_key: &[u8]) -> Result<(u64, &[u8]), Corrupt> {
    let mut r = Reader::new(row_key, "element");
    r.take(ELEMENT_PREFIX_LEN)?;
    Ok((r.u64()?, r.rest()))
}

/// `tag ‖ id ‖ index`, for list items and fragments. Signed indices keep their order.
pub fn indexed(tag: u8, id: CollectionId, index: i64) -> RowKey {
    let sortable = (index as u64) ^ (1 << 63);
    build(tag, &[&id.0.to_be_bytes(), &sortable.to_be_bytes()])
}

/// The row of the base of a long string: before all of its fragments.
pub fn base(id: CollectionId) -> RowKey {
    indexed(tag::FRAGMENT, id, BASE_INDEX)
}

/// The id of a string, if this is the key of its [`base`].
pub fn split_base(row_key: &[u8]) -> Option<CollectionId> {
    let (tag, rest) = row_key.split_first()?;
    let (id, index) = rest.split_first_chunk::<8>()?;
    let sortable = (BASE_INDEX as u64) ^ (1 << 63);
    let is_base = *tag == tag::FRAGMENT && *index == sortable.to_be_bytes();
    is_base.then(|| CollectionId(u64::from_be_bytes(*id)))
}

const BASE_INDEX: i64 = -1;

/// The index of a key that [`indexed`] made.
pub fn split_indexed(row_key: &[u8]) -> Result<i64, Corrupt> {
    let mut r = Reader::new(row_key, "element");
    r.take(ELEMENT_PREFIX_LEN)?;
    Ok((r.u64()? ^ (1 << 63)) as i64)
}

/// `0B ‖ id ‖ score ‖ member`.
pub fn by_score(id: CollectionId, score: f64, member: &[u8]) -> RowKey {
    build(
        tag::ZSET_SCORE,
        &[&id.0.to_be_bytes(), &score::encode(score), member],
    )
}

/// Score and member of a key that [`by_score`] made.
pub fn split_by_score(row_key: &[u8]) -> Result<(f64, &[u8]), Corrupt> {
    let mut r = Reader::new(row_key, "zset score");
    r.take(ELEMENT_PREFIX_LEN)?;
    Ok((score::decode(r.array()?), r.rest()))
}

/// `1D ‖ id ‖ integer`, for sorted ints.
pub fn sorted_int(id: CollectionId, n: u64) -> RowKey {
    build(tag::SORTED_INT, &[&id.0.to_be_bytes(), &n.to_be_bytes()])
}

/// The integer of a key that [`sorted_int`] made.
pub fn split_sorted_int(row_key: &[u8]) -> Result<u64, Corrupt> {
    let mut r = Reader::new(row_key, "sorted ints");
    r.take(ELEMENT_PREFIX_LEN)?;
    r.u64()
}

/// `0C ‖ expire ms ‖ user key`.
pub fn ttl(expire_ms: UnixMs, user_key: &[u8]) -> RowKey {
    build(tag::TTL, &[&expire_ms.0.to_be_bytes(), user_key])
}

/// `0C ‖ expire ms`, where a scan of the TTL index starts or ends.
pub fn ttl_from(expire_ms: UnixMs) -> RowKey {
    build(tag::TTL, &[&expire_ms.0.to_be_bytes()])
}

/// Expiry and user key of a TTL row.
pub fn split_ttl(row_key: &[u8]) -> Result<(UnixMs, &[u8]), Corrupt> {
    let mut r = Reader::new(row_key, "TTL");
    r.take(1)?;
    Ok((UnixMs(r.u64()?), r.rest()))
}

/// `2F ‖ due ms ‖ user key`.
pub fn due(due_ms: UnixMs, user_key: &[u8]) -> RowKey {
    build(tag::DUE, &[&due_ms.0.to_be_bytes(), user_key])
}

/// `2F ‖ due ms`, where a scan of the index of keys with timed elements starts or ends.
pub fn due_from(due_ms: UnixMs) -> RowKey {
    build(tag::DUE, &[&due_ms.0.to_be_bytes()])
}

/// Time and user key of a row that [`due`] made.
pub fn split_due(row_key: &[u8]) -> Result<(UnixMs, &[u8]), Corrupt> {
    let mut r = Reader::new(row_key, "due");
    r.take(1)?;
    Ok((UnixMs(r.u64()?), r.rest()))
}

/// `tag ‖ id ‖ expire ms ‖ place`: an element in the index by expiry of its collection. `place` is
/// what follows the id in the key of the element's row: `h ‖ member`.
pub fn element_due(tag: u8, id: CollectionId, expire_ms: UnixMs, place: &[u8]) -> RowKey {
    build(
        tag,
        &[&id.0.to_be_bytes(), &expire_ms.0.to_be_bytes(), place],
    )
}

/// `tag ‖ id ‖ expire ms`, where a scan of that index starts or ends.
pub fn element_due_from(tag: u8, id: CollectionId, expire_ms: UnixMs) -> RowKey {
    element_due(tag, id, expire_ms, &[])
}

/// Expiry and place of a row that [`element_due`] made.
pub fn split_element_due(row_key: &[u8]) -> Result<(UnixMs, &[u8]), Corrupt> {
    let mut r = Reader::new(row_key, "element due");
    r.take(ELEMENT_PREFIX_LEN)?;
    Ok((UnixMs(r.u64()?), r.rest()))
}

/// `tag ‖ id ‖ place`: the row of the element at a place.
pub fn placed(tag: u8, id: CollectionId, place: &[u8]) -> RowKey {
    build(tag, &[&id.0.to_be_bytes(), place])
}

/// What follows the id in the key of an element's row.
pub fn place_of(row_key: &[u8]) -> &[u8] {
    row_key.get(ELEMENT_PREFIX_LEN..).unwrap_or_default()
}

/// The member at a place of the form `h ‖ member`.
pub fn member_at(place: &[u8]) -> &[u8] {
    place.get(8..).unwrap_or_default()
}

/// `0F ‖ id`.
pub fn reclaim(id: CollectionId) -> RowKey {
    build(tag::RECLAIM, &[&id.0.to_be_bytes()])
}

/// The id of a reclaim row.
pub fn split_reclaim(row_key: &[u8]) -> Result<CollectionId, Corrupt> {
    let mut r = Reader::new(row_key, "reclaim");
    r.take(1)?;
    Ok(CollectionId(r.u64()?))
}

/// The first key after all that begin with `prefix`, or `None` if there is none.
pub fn after_prefix(prefix: &[u8]) -> Option<RowKey> {
    let mut end = RowKey::from_slice(prefix);
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// The collection that an element row belongs to, and its type.
pub fn element(row_key: &[u8]) -> Option<(CollectionId, ValueType)> {
    let (tag, rest) = row_key.split_first()?;
    let mut kinds = ValueType::ALL.iter().copied();
    let kind = kinds.find(|kind| kind.element_tags().contains(tag))?;
    let id = rest.first_chunk::<8>()?;
    Some((CollectionId(u64::from_be_bytes(*id)), kind))
}

/// Whether `[from, to)` lies within the element rows of one collection.
pub fn is_one_map(from: &[u8], to: &[u8]) -> bool {
    map_prefix(from)
        .and_then(after_prefix)
        .is_some_and(|end| to <= end.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let id = CollectionId(0x0102);
        let id_hex = [0u8, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(Layout::Plain.meta(b"k").as_slice(), b"\x01k");
        // The slot of "a" is 15495.
        assert_eq!(Layout::Slots.meta(b"a").as_slice(), b"\x01\x3C\x87a");
        assert_eq!(Layout::Slots.meta(b"{a}b").as_slice(), b"\x01\x3C\x87{a}b");
        let mut want = vec![0x06];
        want.extend(id_hex);
        want.extend([0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert_eq!(indexed(tag::LIST_ITEM, id, -1).as_slice(), want);
        assert_eq!(
            ttl(UnixMs(0x1234), b"k").as_slice(),
            b"\x0C\0\0\0\0\0\0\x12\x34k"
        );
        assert_eq!(
            by_score(id, 0.0, b"m").as_slice(),
            b"\x0B\0\0\0\0\0\0\x01\x02\x80\0\0\0\0\0\0\0m"
        );
        let row_key = sorted_int(id, 258);
        assert_eq!(
            row_key.as_slice(),
            b"\x1D\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x01\x02"
        );
        assert_eq!(split_sorted_int(&row_key), Ok(258));
        assert_eq!(base(id), indexed(tag::FRAGMENT, id, -1));
        assert_eq!(split_base(&base(id)), Some(id));
        assert_eq!(split_base(&indexed(tag::FRAGMENT, id, 0)), None);
        assert_eq!(split_base(&indexed(tag::LIST_ITEM, id, -1)), None);
    }

    #[test]
    fn layouts_read_back_and_refuse_other_slots() {
        assert_eq!((Layout::Plain as u8, Layout::Slots as u8), (0, 1));
        for layout in [Layout::Plain, Layout::Slots] {
            assert_eq!(Layout::from_byte(layout as u8), Some(layout));
            for key in [&b""[..], b"a", b"\0\xFF"] {
                let row = layout.meta(key);
                assert_eq!(layout.user_key(&row), Ok(key));
                assert_eq!(layout.checked(&row).map(|(_, key)| key), Ok(key));
                assert_eq!(meta_at(place_of_meta(&row).unwrap()), row);
                assert!(METAS.0.as_slice() <= row.as_slice() && row.as_slice() < &METAS.1[..]);
            }
        }
        assert_eq!(Layout::from_byte(2), None);
        let slots = Layout::Slots;
        assert!(slots.checked(b"\x01\0\0a").is_err());
        assert!(slots.user_key(b"\x01\0").is_err());
        assert!(slots.user_key(b"\x02\0\0a").is_err());
    }

    #[test]
    fn keys_with_a_prefix_stand_in_one_range() {
        for layout in [Layout::Plain, Layout::Slots] {
            for prefix in [&b""[..], b"a", b"a\xFF", b"\xFF\xFF"] {
                let (from, to) = layout.metas_with(prefix);
                for rest in [&b""[..], b"\0", b"z", b"\xFF\xFF\xFF"] {
                    let row = layout.meta(&[prefix, rest].concat());
                    assert!(from <= row && row < to, "{layout:?} {prefix:?} {rest:?}");
                }
            }
        }
        let (from, to) = Layout::Plain.metas_with(b"b");
        assert!(Layout::Plain.meta(b"a\xFF") < from && to <= Layout::Plain.meta(b"c"));
    }

    #[test]
    fn prefixes_end_where_the_next_begins() {
        assert_eq!(after_prefix(b"a\xFF").as_deref(), Some(&b"b"[..]));
        assert_eq!(after_prefix(b"\xFF\xFF"), None);
        assert!(indexed(6, CollectionId(1), i64::MAX) < element_end(6, CollectionId(1)));
    }
}
