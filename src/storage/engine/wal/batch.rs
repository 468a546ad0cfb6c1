//! The rows that a record of the log writes: RocksDB's write batch.
//!
//! ```text
//! record  sequence number (8) ‖ count (4) ‖ rows
//! row     type (1) ‖ column family (varint), for some types ‖ key ‖ value or end of a range, for some types
//! ```
//!
//! Keys and values stand after their lengths, which are varints.

/// Types of rows, and what they have: a column family, and how many byte strings.
const TYPES: [(u8, bool, u8); 10] = [
    (0x00, false, 1),
    (0x01, false, 2),
    (0x02, false, 2),
    (0x03, false, 1),
    (0x04, true, 1),
    (0x05, true, 2),
    (0x06, true, 2),
    (0x0D, false, 0),
    (0x0E, true, 2),
    (0x0F, false, 2),
];
const PUT: [u8; 2] = [0x01, 0x05];
const HEAD: usize = 12;

/// Calls `each` with number of the column family, key and value of each row that a record puts, until
/// it returns false. Returns whether it did not. Rows after one of an unknown type are not visited.
pub(in crate::storage::engine) fn each_put(
    record: &[u8],
    mut each: impl FnMut(usize, &[u8], &[u8]) -> bool,
) -> bool {
    let mut rest = record.get(HEAD..).unwrap_or_default();
    while let Some((kind, after)) = rest.split_first() {
        rest = after;
        let Some((_, has_family, strings)) = TYPES.iter().find(|(known, ..)| known == kind) else {
            return true;
        };
        // Rows of the default family have no number.
        let family = match has_family {
            true => varint(&mut rest),
            false => Some(0),
        };
        let Some(family) = family else {
            return true;
        };
        let mut parts = [&[][..]; 2];
        for part in parts.iter_mut().take(usize::from(*strings)) {
            match string(&mut rest) {
                Some(bytes) => *part = bytes,
                None => return true,
            }
        }
        if PUT.contains(kind) && !each(family, parts[0], parts[1]) {
            return false;
        }
    }
    true
}

fn varint(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = varint(rest)?;
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rocksdb::WriteBatch;

    #[test]
    fn the_puts_of_a_batch_are_found() {
        let long = vec![b'x'; 300];
        let mut batch = WriteBatch::default();
        batch.put("key", &long);
        batch.delete("gone");
        batch.delete_range("a", "b");
        batch.merge("m", "n");
        batch.put(&long, "");
        let mut puts = Vec::new();
        let all = each_put(batch.data(), |family, key, value| {
            assert_eq!(family, 0);
            puts.push((key.to_vec(), value.to_vec()));
            true
        });
        assert!(all);
        assert_eq!(puts, [(b"key".to_vec(), long.clone()), (long, Vec::new())]);
        assert!(!each_put(batch.data(), |_, _, _| false));
        for len in 0..batch.data().len() {
            each_put(&batch.data()[..len], |_, _, _| true);
        }
        each_put(&[0xFF; 100], |_, _, _| true);
        each_put(&[0x01; 100], |_, _, _| true);
    }
}
