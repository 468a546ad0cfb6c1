//! The fieldsets of one client: lists of field names, to which HIMPORT SET gives values.
//!
//! A copy costs nothing until one of the two changes: EXEC keeps one, in case that it has to run again.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;

/// Bytes that count for a fieldset besides its name and its fields.
const OVERHEAD: usize = 64;

/// Field names in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fieldset {
    /// All names, one behind the other: few pieces of memory, which are freed fast.
    names: Arc<[u8]>,
    /// Where each ends.
    ends: Arc<[usize]>,
}

impl Fieldset {
    fn new(fields: &[&[u8]]) -> Fieldset {
        let mut end = 0;
        let ends = fields.iter().map(|field| {
            end += field.len();
            end
        });
        Fieldset {
            ends: ends.collect(),
            names: fields.concat().into(),
        }
    }

    /// The number of fields.
    pub fn field_count(&self) -> usize {
        self.ends.len()
    }

    /// The fields.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.names[..];
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let (field, others) = rest.split_at(end - start);
            (rest, start) = (others, *end);
            field
        })
    }

    fn memory(&self) -> usize {
        OVERHEAD + self.names.len() + self.ends.len() * size_of::<usize>()
    }
}

#[derive(Debug, Clone, Default)]
struct Sets {
    by_name: BTreeMap<Box<[u8]>, Fieldset>,
    bytes: usize,
}

/// The fieldsets of a client, by their names.
#[derive(Debug, Clone, Default)]
pub struct Fieldsets(Option<Arc<Sets>>);

impl Fieldsets {
    /// The fieldset of this name.
    pub fn get(&self, name: &[u8]) -> Option<&Fieldset> {
        self.0.as_ref()?.by_name.get(name)
    }

    /// Adds a fieldset, or replaces the one of this name.
    pub fn put(&mut self, name: &[u8], fields: &[&[u8]]) {
        self.remove(name);
        let sets = Arc::make_mut(self.0.get_or_insert_default());
        let set = Fieldset::new(fields);
        sets.bytes += name.len() + set.memory();
        sets.by_name.insert(name.into(), set);
    }

    /// Removes a fieldset; returns whether it existed.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        if self.get(name).is_none() {
            return false;
        }
        let Some(sets) = &mut self.0 else {
            return false;
        };
        let sets = Arc::make_mut(sets);
        let Some(set) = sets.by_name.remove(name) else {
            return false;
        };
        sets.bytes -= name.len() + set.memory();
        if sets.by_name.is_empty() {
            self.0 = None;
        }
        true
    }

    /// The number of fieldsets.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |sets| sets.by_name.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Their memory in bytes.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |sets| sets.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_as_it_was() {
        let mut sets = Fieldsets::default();
        assert!(sets.is_empty() && !sets.remove(b"a"));
        sets.put(b"a", &[b"f", b"", b"long field"]);
        let copy = sets.clone();
        sets.put(b"a", &[b"g"]);
        sets.put(b"b", &[b"h"]);
        let fields = |sets: &Fieldsets, name: &[u8]| {
            let set = sets.get(name).cloned();
            set.map(|set| set.fields().map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        let first = [b"f".to_vec(), Vec::new(), b"long field".to_vec()];
        assert_eq!(fields(&copy, b"a").as_deref(), Some(&first[..]));
        assert_eq!(fields(&sets, b"a"), Some(vec![b"g".to_vec()]));
        assert_eq!((sets.len(), copy.len()), (2, 1));
        assert!(fields(&copy, b"b").is_none());
    }

    /// A sum that only rose would close the connection of a client that replaces its fieldsets.
    #[test]
    fn memory_that_is_freed_does_not_count() {
        let mut sets = Fieldsets::default();
        sets.put(b"a", &[b"field".as_slice(); 10]);
        let bytes = sets.bytes();
        assert!(bytes > 50);
        for _ in 0..3 {
            sets.put(b"a", &[b"field".as_slice(); 10]);
            assert_eq!(sets.bytes(), bytes);
        }
        sets.put(b"b", &[b"field"]);
        assert!(sets.bytes() > bytes);
        assert!(sets.remove(b"b"));
        assert_eq!(sets.bytes(), bytes);
        assert!(sets.remove(b"a"));
        assert_eq!((sets.bytes(), sets.len(), sets.is_empty()), (0, 0, true));
    }
}
