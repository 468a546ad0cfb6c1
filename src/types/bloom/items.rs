//! Reads of values whose rows follow from the items that a command names.

use crate::storage::View;
use crate::types::OpResult;
use std::ops::ControlFlow;

/// Most parts that are asked for at once, behind one that was not in memory.
const ASKED_MAX: usize = 1 << 10;

/// Calls `read` for each part of a value, until it breaks; returns whether it did. The parts must
/// not depend on each other: behind one that is not in memory the others are read, too, so that all
/// that the command lacks is asked for in one round.
///
/// # Errors
/// The first error of `read`.
pub fn read_each<T>(
    view: &View,
    parts: impl IntoIterator<Item = T>,
    mut read: impl FnMut(T) -> OpResult<ControlFlow<()>>,
) -> OpResult<bool> {
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        match read(part) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(true),
            Err(error) => {
                for part in parts.take(ASKED_MAX) {
                    if !view.has_cold_reads() || view.has_many_cold_reads() {
                        break;
                    }
                    // Its errors are met again.
                    let _ = read(part);
                }
                return Err(error);
            }
        }
    }
    Ok(false)
}

/// Asks for what a command needs of the items behind one whose rows were not in memory. `read` reads
/// what belongs to an item.
pub(super) fn ask_for<'i, T>(
    view: &View,
    items: impl IntoIterator<Item = &'i [u8]>,
    read: impl Fn(&[u8]) -> OpResult<T>,
) {
    for item in items.into_iter().take(ASKED_MAX) {
        if !view.has_cold_reads() || view.has_many_cold_reads() {
            return;
        }
        // Its errors are met again.
        let _ = read(item);
    }
}
