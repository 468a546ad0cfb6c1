use super::*;

/// The rows of the tables in `src/lib.rs`: the text of the lock, and what it says it is taken
/// under.
fn documented() -> Vec<(String, String)> {
    let cells = |line: &'static str| {
        let row = line.strip_prefix("//! | ")?.strip_suffix(" |")?;
        let mut cells = row.split(" | ");
        let number: usize = cells.next()?.parse().ok()?;
        let (lock, _guards, under) = (cells.next()?, cells.next()?, cells.next()?);
        assert_eq!(cells.next(), None, "row {number} has more cells");
        Some((number, lock.to_owned(), under.to_owned()))
    };
    let rows: Vec<_> = include_str!("../../lib.rs")
        .lines()
        .filter_map(cells)
        .collect();
    let numbers: Vec<usize> = rows.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=rows.len()).collect::<Vec<_>>());
    rows.into_iter()
        .map(|(_, lock, under)| (lock, under))
        .collect()
}

/// The locks that the last column of a row names: what stands before its first full stop,
/// as `nothing`, `any of the above` or numbers of rows.
fn allowed(row: usize, under: &str) -> u64 {
    let list = under.split('.').next().unwrap_or_default();
    match list {
        "nothing" => return 0,
        "any of the above" => return (1 << row) - 1,
        _ => {}
    }
    let number = |text: &str| -> u64 {
        let number = text.trim().parse();
        number.unwrap_or_else(|_| panic!("row {} is taken under {text:?}", row + 1))
    };
    let mut set = 0;
    for part in list.split(", ") {
        let (first, last) = part.split_once(" to ").unwrap_or((part, part));
        for n in number(first)..=number(last) {
            set |= 1 << (n - 1);
        }
    }
    set
}

/// Neither the tables of `src/lib.rs` nor the one that is checked can be changed alone.
#[test]
fn what_is_checked_is_what_is_documented() {
    let rows = documented();
    assert_eq!(rows.len(), LOCKS);
    for (at, ((lock, under), row)) in rows.iter().zip(TABLE).enumerate() {
        let rest = lock.strip_prefix(row.name);
        let is_name = rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()));
        assert!(is_name, "row {}: {lock:?} is not {:?}", at + 1, row.name);
        let (said, checked) = (allowed(at, under), ALLOWED[at]);
        let numbers = |set: u64| (1..=LOCKS).filter(move |n| set & (1 << (n - 1)) != 0);
        assert_eq!(
            numbers(said).collect::<Vec<_>>(),
            numbers(checked).collect::<Vec<_>>(),
            "row {}, {lock}",
            at + 1
        );
    }
}

#[cfg(debug_assertions)]
mod checked {
    use super::*;
    use parking_lot::Condvar;
    use std::time::Duration;

    const FLUSH: u8 = Lock::Flush as u8;
    const COMMIT: u8 = Lock::Commit as u8;
    const KEYSPACES: u8 = Lock::Keyspaces as u8;

    #[test]
    fn what_the_table_allows_is_taken_and_let_go() {
        let (flush, commit) = (Mutex::<_, FLUSH>::new(1), Mutex::<_, COMMIT>::new(2));
        let map = RwLock::<_, KEYSPACES>::new(3);
        for _ in 0..2 {
            let mut outer = flush.lock();
            let inner = commit.lock();
            drop(commit.try_lock());
            *outer += *inner;
            drop(inner);
            drop(outer);
            let _commit = commit.lock();
            let _map = map.read();
        }
        MutexGuard::unlock_fair(commit.lock());
        // Nothing is held any more.
        check(Lock::Unstalled);
        assert_eq!(*flush.lock(), 5);
    }

    #[test]
    #[should_panic(
        expected = "order of locks: `Durability::flush` must not be taken under commit lock"
    )]
    fn a_lock_above_one_that_is_held_is_not_taken() {
        let (flush, commit) = (Mutex::<_, FLUSH>::new(()), Mutex::<_, COMMIT>::new(()));
        let _commit = commit.lock();
        let _flush = flush.lock();
    }

    #[test]
    #[should_panic(expected = "`Families::keyspaces` must not be taken under `Durability::flush`")]
    fn nor_one_below_it_that_the_table_does_not_allow() {
        let flush = Mutex::<_, FLUSH>::new(());
        let map = RwLock::<_, KEYSPACES>::new(());
        let _flush = flush.lock();
        let _map = map.write();
    }

    #[test]
    #[should_panic(
        expected = "`Families::keyspaces` must not be taken under `Families::keyspaces`"
    )]
    fn nobody_reads_under_a_lock_that_he_reads_under() {
        let map = RwLock::<_, KEYSPACES>::new(());
        let _once = map.read();
        let _twice = map.read();
    }

    #[test]
    fn one_that_is_tried_needs_no_order_and_is_held() {
        let (flush, commit) = (Mutex::<_, FLUSH>::new(()), Mutex::<_, COMMIT>::new(()));
        let _commit = commit.lock();
        let flush = flush.try_lock().unwrap();
        let wrong = std::panic::catch_unwind(|| check(Lock::Keyspaces));
        assert!(
            wrong.is_err(),
            "it is not allowed under `Durability::flush`"
        );
        drop(flush);
        check(Lock::Keyspaces);
    }

    #[test]
    fn a_second_one_of_a_row_is_taken_beside_the_first() {
        const SET: u8 = Lock::RowCacheSet as u8;
        let (first, second) = (Mutex::<_, SET>::new(1), Mutex::<_, SET>::new(2));
        let first = first.lock();
        let other = second.lock_beside(&first);
        drop(first);
        assert!(std::panic::catch_unwind(|| check(Lock::RowCacheSet)).is_err());
        drop(other);
        check(Lock::RowCacheSet);
    }

    #[test]
    #[should_panic(expected = "a thread waits under `Replication::desired` and gate")]
    fn who_waits_for_a_change_holds_nothing_else() {
        let desired = Mutex::<_, { Lock::DesiredMaster as u8 }>::new(());
        let at_most = Duration::from_millis(1);
        MutexGuard::wait_for(&mut desired.lock(), &Condvar::new(), at_most);
        enter(Lock::Gate);
        MutexGuard::wait_for(&mut desired.lock(), &Condvar::new(), at_most);
    }
}
