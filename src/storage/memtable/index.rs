//! The rows of one segment in order: a linked list, and a B-tree that finds the place of
//! a key in the list.
//!
//! A search in a skip list of 15,000 rows compares some 20 keys, each behind a pointer of
//! its own. A search in the tree reads three or four nodes. A node stores the common prefix
//! of its keys, and a *mark* of each key: the four bytes that follow the prefix. The keys
//! themselves are read only where marks are equal, or where the prefix is longer than what
//! a node stores.
//!
//! **One writer, any number of readers, no locks.** Rows are added, never changed or
//! removed, and the list is complete at any time. A node is changed in place under a
//! *seqlock*: its version is odd during a change, and a reader reads the node again if the
//! version is odd or has changed meanwhile. Such a reader may have seen a mixture of two
//! states, but all pointers in it are to rows and nodes that live as long as the index.
//!
//! A row is added to the list first, then to the tree. Readers do not depend on the second
//! step: the tree leads to a row before the wanted key, and the search walks the list from
//! there.

#![allow(unsafe_code)]

use super::row::{Key, Row, leading};
use super::sync::{AtomicPtr, AtomicU32, AtomicU64, Plain, fence, spin_loop, yield_now};
use crate::sys::prefetch;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::{array, hint, mem};

/// The most rows or children of a node. With 16 the tree has one level more and took the
/// same time. Under Miri and loom few rows make a deep tree.
const FAN_OUT: usize = match () {
    () if cfg!(loom) => 2,
    () if cfg!(miri) => 4,
    () => 32,
};

/// Words of the common prefix that a node stores: with them its head fills a cache line.
/// The rest of a longer prefix is read from a row.
const PREFIX_WORDS: usize = if cfg!(loom) { 1 } else { 5 };

/// Allocates memory for nodes and filters.
///
/// # Safety
/// The memory that it returns has no other user, and stays until the arena is dropped.
pub unsafe trait Arena {
    /// Allocates at least `bytes` bytes.
    fn allocate(&self, bytes: usize) -> NonNull<u8>;
}

/// A node of the tree: its rows if it is a leaf, otherwise its children.
#[repr(C, align(64))]
struct Node {
    /// Odd while the node changes.
    version: AtomicU32,
    count: AtomicU32,
    /// The length of the common prefix of its keys, in bytes.
    common: AtomicU32,
    leaf: bool,
    /// The row that is the lower bound of its keys. Null in the first node of a level, which
    /// has no bound.
    low: *mut Row,
    /// The first words of the common prefix.
    prefix: [AtomicU64; PREFIX_WORDS],
    /// The mark of each key.
    marks: [AtomicU32; FAN_OUT],
    /// Pointers to rows, or to child nodes, whose key is that of `low`. The first child's key
    /// is not used: all keys less than the second child's belong to the first child.
    slots: [AtomicPtr<u8>; FAN_OUT],
    /// Stands for `leaf` and `low`, which never change.
    constant: Plain,
}

impl Node {
    fn new(leaf: bool, low: *mut Row) -> Self {
        Node {
            version: AtomicU32::new(0),
            count: AtomicU32::new(0),
            common: AtomicU32::new(0),
            leaf,
            low,
            prefix: array::from_fn(|_| AtomicU64::new(0)),
            marks: array::from_fn(|_| AtomicU32::new(0)),
            slots: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            constant: Plain::written(),
        }
    }

    /// The first slot whose key is used.
    fn first_keyed(&self) -> usize {
        usize::from(!self.leaf)
    }

    fn len(&self) -> usize {
        (self.count.load(Relaxed) as usize).min(FAN_OUT)
    }

    fn slot(&self, at: usize) -> *mut u8 {
        self.slots[at % FAN_OUT].load(Acquire)
    }

    /// The key of a slot; `None` if the slot was never filled, or its child has no bound.
    fn key(&self, at: usize) -> Option<Key<'_>> {
        let slot = self.slot(at);
        let row = match self.leaf {
            true => slot.cast::<Row>(),
            // SAFETY: what stands in a slot of such a node is null or a node, which
            // lives as long as this one.
            false => unsafe { slot.cast::<Node>().as_ref() }?.low,
        };
        // SAFETY: rows that the tree knows are whole and live as long as it.
        NonNull::new(row).map(|row| unsafe { Key::of(row) })
    }

    /// Compares the key with the common prefix, which has `common` bytes. A shorter key is
    /// padded with zeros, so it may compare as equal. Its mark is zero then, and among equal
    /// marks [`Self::rank`] compares whole keys, so the order is right. `None` if the node is
    /// seen to be changing.
    #[inline]
    fn compare_prefix(&self, key: Key, common: usize) -> Option<Ordering> {
        let mut left = common;
        for (at, prefix) in self.prefix.iter().enumerate() {
            if left == 0 {
                return Some(Ordering::Equal);
            }
            let prefix = prefix.load(Relaxed);
            let word = key.word(8 * at) & leading(left);
            if word != prefix {
                return Some(word.cmp(&prefix));
            }
            left = left.saturating_sub(8);
        }
        match left {
            0 => Some(Ordering::Equal),
            _ => self.compare_rest(key, common),
        }
    }

    /// As [`Self::compare_prefix`], for a prefix that is longer than what the node stores.
    #[cold]
    fn compare_rest(&self, key: Key, common: usize) -> Option<Ordering> {
        let first = self.key(self.first_keyed())?.user();
        let prefix = &first[..common.min(first.len())];
        let user = key.user();
        Some(user[..common.min(user.len())].cmp(prefix))
    }

    /// How many of the first `count` slots have keys less than this one. The first child is
    /// always counted. `None` if the node is seen to be changing.
    fn rank(&self, key: Key, count: usize) -> Option<usize> {
        let first = self.first_keyed();
        if count <= first {
            return Some(first);
        }
        let common = self.common.load(Relaxed) as usize;
        match self.compare_prefix(key, common)? {
            Ordering::Less => return Some(first),
            Ordering::Greater => return Some(count),
            Ordering::Equal => {}
        }
        let mark = key.mark(common);
        let less = |at: usize| self.marks[at % FAN_OUT].load(Relaxed) < mark;
        let mut at = first;
        let mut left = count - first;
        while left > 1 {
            let half = left / 2;
            at = hint::select_unpredictable(less(at + half - 1), at + half, at);
            left -= half;
        }
        at += usize::from(less(at));
        // Among equal marks the keys decide.
        let is_equal = |at: &usize| self.marks[at % FAN_OUT].load(Relaxed) == mark;
        let mut end = at + (at..count).take_while(is_equal).count();
        while at < end {
            let middle = at.midpoint(end);
            match self.key(middle)? < key {
                true => at = middle + 1,
                false => end = middle,
            }
        }
        Some(at)
    }

    /// As [`Self::rank`] among all slots, for the writer.
    fn rank_for_writer(&self, key: Key) -> usize {
        self.rank(key, self.len())
            .unwrap_or_else(|| unreachable!("nobody else changes nodes"))
    }

    /// The last slot whose key is less than this one; null if there is none.
    fn slot_before(&self, key: Key) -> *mut u8 {
        self.read(|count| match self.rank(key, count)? {
            0 => Some(ptr::null_mut()),
            rank => Some(self.slot(rank - 1)),
        })
    }

    /// The last slot; null if there is none.
    fn last_slot(&self) -> *mut u8 {
        self.read(|count| match count {
            0 => Some(ptr::null_mut()),
            _ => Some(self.slot(count - 1)),
        })
    }

    /// Reads the node under its seqlock: calls `look` with the number of slots until the node
    /// has not changed during the call, and returns what `look` found. `look` returns `None`
    /// if it sees that the node is changing.
    fn read(&self, look: impl Fn(usize) -> Option<*mut u8>) -> *mut u8 {
        for tries in 1_u64.. {
            let version = self.version.load(Acquire);
            if version.is_multiple_of(2)
                && let Some(found) = look(self.len())
            {
                fence(Acquire);
                if self.version.load(Relaxed) == version {
                    return found;
                }
            }
            match tries % 64 {
                // The writer may have been preempted.
                0 => yield_now(),
                _ => spin_loop(),
            }
        }
        unreachable!("a change ends")
    }

    /// Changes the node under its seqlock. For the writer.
    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        change();
        self.version.store(version.wrapping_add(2), Release);
    }

    /// Replaces the slots by `count` slots of another node, from `from` on. The other node may
    /// be this one.
    fn take(&self, other: &Node, from: usize, count: usize) {
        for at in 0..count {
            self.slots[at].store(other.slot(from + at), Release);
        }
        self.describe(count);
        self.count.store(count as u32, Relaxed);
    }

    /// Inserts a row or a child with this key at slot `at`. The node must not be full.
    fn put(&self, at: usize, slot: *mut u8, key: Key) {
        let count = self.len();
        let common = self.common.load(Relaxed) as usize;
        let fits = count > self.first_keyed()
            && key.user_len() >= common
            && self.compare_prefix(key, common) == Some(Ordering::Equal);
        for to in (at + 1..=count).rev() {
            self.slots[to].store(self.slots[to - 1].load(Relaxed), Release);
            self.marks[to].store(self.marks[to - 1].load(Relaxed), Relaxed);
        }
        self.slots[at].store(slot, Release);
        match fits {
            true => self.marks[at].store(key.mark(common), Relaxed),
            false => self.describe(count + 1),
        }
        self.count.store(count as u32 + 1, Relaxed);
    }

    /// Computes the common prefix and the marks of the first `count` slots.
    fn describe(&self, count: usize) {
        let first = self.first_keyed();
        if count <= first {
            return;
        }
        let (Some(low), Some(high)) = (self.key(first), self.key(count - 1)) else {
            unreachable!("slots of a node are filled");
        };
        let common = low.common_prefix(high);
        self.common.store(common as u32, Relaxed);
        for (at, word) in self.prefix.iter().enumerate() {
            let left = common.saturating_sub(8 * at);
            word.store(low.word(8 * at) & leading(left), Relaxed);
        }
        for at in first..count {
            let mark = self.key(at).map_or(0, |key| key.mark(common));
            self.marks[at].store(mark, Relaxed);
        }
    }
}

/// The place of a row in a leaf, valid as long as the leaf has this version.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    leaf: NonNull<Node>,
    version: u32,
    rank: usize,
}

/// The rows of a segment in order.
pub struct Index<A> {
    /// The head of the list, before all rows.
    head: Row,
    root: AtomicPtr<Node>,
    arena: A,
}

impl<A: Arena> Index<A> {
    /// An index without rows.
    pub fn new(arena: A) -> Self {
        let index = Index {
            head: Row {
                next: AtomicPtr::new(ptr::null_mut()),
                written: Plain::written(),
                key: [],
            },
            root: AtomicPtr::new(ptr::null_mut()),
            arena,
        };
        let root = index.node(true, ptr::null_mut());
        index.root.store(ptr::from_ref(root).cast_mut(), Release);
        index
    }

    /// Adds a row; its link need not be set.
    ///
    /// # Safety
    /// The row is whole, has a key that no other row has, and stays until the index is
    /// dropped. No other thread adds one meanwhile.
    pub unsafe fn insert(&self, row: NonNull<Row>) {
        // SAFETY: by the contract.
        let key = unsafe { Key::of(row) };
        let old = self.root();
        let Some(right) = self.add(old, key, row) else {
            return;
        };
        let root = self.node(false, ptr::null_mut());
        root.slots[0].store(address(old), Release);
        root.slots[1].store(address(right), Release);
        root.describe(2);
        root.count.store(2, Relaxed);
        self.root.store(ptr::from_ref(root).cast_mut(), Release);
    }

    /// Appends the places of rows with these keys to `places`. The searches descend the tree
    /// together, level by level: the node that one of them reads next is prefetched while the
    /// others run, and so is the memory that [`Self::insert_at`] will change.
    ///
    /// # Safety
    /// No other thread adds a row meanwhile.
    pub unsafe fn places(&self, keys: &[Key], places: &mut Vec<Place>) {
        let mut nodes: SmallVec<[&Node; 16]> = keys.iter().map(|_| self.root()).collect();
        // All leaves are equally deep.
        while nodes.first().is_some_and(|node| !node.leaf) {
            for (node, key) in nodes.iter_mut().zip(keys) {
                let slot = node.slot(node.rank_for_writer(*key) - 1);
                // SAFETY: it is a filled slot of a node that is not a leaf.
                *node = unsafe { self.child(slot) };
                prefetch::to_write(*node);
            }
        }
        for (leaf, key) in nodes.iter().zip(keys) {
            let rank = leaf.rank_for_writer(*key);
            if let Some(before) = rank.checked_sub(1) {
                prefetch::line_to_write(leaf.slot(before));
            }
            places.push(Place {
                leaf: NonNull::from_ref(*leaf),
                version: leaf.version.load(Relaxed),
                rank,
            });
        }
    }

    /// As [`Self::insert`], without a search if the place is still valid.
    ///
    /// # Safety
    /// As of [`Self::insert`]. The place is one of this index, for the row's key, or for
    /// another key such that no row has a key between the two.
    pub(super) unsafe fn insert_at(&self, row: NonNull<Row>, place: Place) {
        // SAFETY: nodes live as long as their index.
        let leaf = unsafe { place.leaf.as_ref() };
        // Each change of a leaf changes its version. A split for a row that comes in order does
        // not change the leaf, which is full then.
        if leaf.version.load(Relaxed) != place.version || leaf.len() == FAN_OUT {
            // SAFETY: by the contract.
            return unsafe { self.insert(row) };
        }
        // SAFETY: by the contract.
        let key = unsafe { Key::of(row) };
        self.put_in_leaf(leaf, place.rank, key, row);
    }

    /// Adds a row below a node. Returns the node's new neighbour to the right if it was split.
    fn add(&self, node: &Node, key: Key, row: NonNull<Row>) -> Option<&Node> {
        let rank = node.rank_for_writer(key);
        if node.leaf {
            return self.put_in_leaf(node, rank, key, row);
        }
        // SAFETY: it is a filled slot of a node that is not a leaf.
        let child = unsafe { self.child(node.slot(rank - 1)) };
        let right = self.add(child, key, row)?;
        let Some(low) = NonNull::new(right.low) else {
            unreachable!("only the first node of a level has no bound");
        };
        // SAFETY: rows that the tree knows are whole.
        let key = unsafe { Key::of(low) };
        // The half of a node has more slots (but for loom's nodes of two), so a neighbour with
        // one slot was begun for a row at the end.
        let is_last = right.len() == 1;
        self.put_or_split(node, rank, address(right), key, low, is_last)
    }

    /// Adds a row at its place in a leaf. Returns the leaf's new neighbour to the right if it
    /// was split.
    fn put_in_leaf(&self, leaf: &Node, rank: usize, key: Key, row: NonNull<Row>) -> Option<&Node> {
        // Only the first leaf has rank 0: the first row of any other leaf is its lower bound.
        let before = match rank {
            0 => &raw const self.head,
            _ => leaf.slot(rank - 1).cast_const().cast::<Row>(),
        };
        let is_last = link(row, before);
        self.put_or_split(leaf, rank, row.as_ptr().cast(), key, row, is_last)
    }

    /// The first row.
    pub fn first(&self) -> Option<NonNull<Row>> {
        NonNull::new(self.head.next.load(Acquire))
    }

    /// The first row whose key is not less than this one.
    pub(super) fn at_or_after(&self, key: Key) -> Option<NonNull<Row>> {
        self.around(key).1
    }

    /// The last row whose key is less than this one.
    pub fn before(&self, key: Key) -> Option<NonNull<Row>> {
        self.real(self.around(key).0)
    }

    /// The last row whose key is not greater than this one.
    pub(super) fn at_or_before(&self, key: Key) -> Option<NonNull<Row>> {
        let (before, at) = self.around(key);
        // SAFETY: rows of the list are whole.
        at.filter(|row| unsafe { Key::of(*row) } == key)
            .or_else(|| self.real(before))
    }

    /// The last row.
    pub fn last(&self) -> Option<NonNull<Row>> {
        let mut at = self.descend(Node::last_slot);
        // SAFETY: rows of the list are whole.
        while let Some(next) = NonNull::new(unsafe { (*at).next.load(Acquire) }) {
            at = next.as_ptr();
        }
        self.real(at)
    }

    /// Descends the tree by the slot that `step` returns for each node. Returns the row in the
    /// leaf's slot, or the head if that is null.
    fn descend(&self, step: impl Fn(&Node) -> *mut u8) -> *const Row {
        let mut node = self.root();
        loop {
            let slot = step(node);
            if node.leaf {
                return match slot.is_null() {
                    true => &raw const self.head,
                    false => slot.cast_const().cast(),
                };
            }
            // SAFETY: `step` gives a slot of the node; the first one is filled from the start.
            node = unsafe { self.child(slot) };
        }
    }

    /// The last row before the key, which may be the head, and the row after it.
    fn around(&self, key: Key) -> (*const Row, Option<NonNull<Row>>) {
        let mut at = self.descend(|node| node.slot_before(key));
        loop {
            // SAFETY: rows of the list are whole.
            let next = NonNull::new(unsafe { (*at).next.load(Acquire) });
            match next {
                // SAFETY: as above.
                Some(row) if unsafe { Key::of(row) } < key => at = row.as_ptr(),
                _ => return (at, next),
            }
        }
    }

    /// The row, unless it is the head.
    fn real(&self, row: *const Row) -> Option<NonNull<Row>> {
        match ptr::eq(row, &raw const self.head) {
            true => None,
            false => NonNull::new(row.cast_mut()),
        }
    }

    fn root(&self) -> &Node {
        // SAFETY: there is a root from the start.
        unsafe { self.child(self.root.load(Acquire).cast()) }
    }

    /// The node that a slot points to.
    ///
    /// # Safety
    /// The slot is a filled one of a node of this index that is not a leaf, or its root.
    unsafe fn child(&self, slot: *mut u8) -> &Node {
        // SAFETY: those are nodes of the arena, which lives as long as the index.
        let node = unsafe { &*slot.cast_const().cast::<Node>() };
        node.constant.read();
        node
    }

    fn node(&self, leaf: bool, low: *mut Row) -> &Node {
        let align = mem::align_of::<Node>();
        let memory = self.arena.allocate(mem::size_of::<Node>() + align);
        let place = memory.as_ptr();
        // SAFETY: the memory is ours, and there is a node's room behind the first place
        // that is aligned for it.
        unsafe {
            let place = place.add(place.align_offset(align)).cast::<Node>();
            place.write(Node::new(leaf, low));
            &*place
        }
    }

    /// Inserts a row, or a child whose first row it is, into a node. Returns the node's new
    /// neighbour to the right if it was split. Until the parent has that neighbour, a search for
    /// one of its rows ends at the last row of this node and walks the list from there.
    fn put_or_split(
        &self,
        node: &Node,
        rank: usize,
        slot: *mut u8,
        key: Key,
        row: NonNull<Row>,
        is_last: bool,
    ) -> Option<&Node> {
        if node.len() < FAN_OUT {
            node.change(|| node.put(rank, slot, key));
            return None;
        }
        // So rows that come in order fill the nodes.
        if is_last {
            let right = self.node(node.leaf, row.as_ptr());
            right.put(0, slot, key);
            return Some(right);
        }
        let keep = FAN_OUT / 2;
        let low = match node.leaf {
            true => node.slot(keep).cast(),
            // SAFETY: it is a filled slot of a node that is not a leaf.
            false => unsafe { self.child(node.slot(keep)) }.low,
        };
        let right = self.node(node.leaf, low);
        right.take(node, keep, FAN_OUT - keep);
        if rank > keep {
            right.put(rank - keep, slot, key);
        }
        node.change(|| {
            node.take(node, 0, keep);
            if rank <= keep {
                node.put(rank, slot, key);
            }
        });
        Some(right)
    }
}

/// The pointer to a node as slots hold it.
fn address(node: &Node) -> *mut u8 {
    ptr::from_ref(node).cast_mut().cast()
}

/// Links a row behind another one. Returns whether it is the last one now.
fn link(row: NonNull<Row>, before: *const Row) -> bool {
    // SAFETY: both are rows of the index, or its head; the tree's are all in the list.
    unsafe {
        let next = (*before).next.load(Relaxed);
        (&raw mut (*row.as_ptr()).next).write(AtomicPtr::new(next));
        (*before).next.store(row.as_ptr(), Release);
        next.is_null()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
