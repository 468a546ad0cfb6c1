use super::*;
use crate::encoding::{CollectionId, system::KeyspaceId};
use crate::storage::tests::noise;
use std::os::unix::fs::FileExt;

/// Bytes of which LZ4 makes something else: some of the chunks it makes shorter, by different parts.
fn mixed(len: usize) -> Vec<u8> {
    let chunks = (0..len).step_by(CHUNK as usize).map(|at| {
        let len = (len - at).min(CHUNK as usize);
        let (random, repeated) = (noise(len), b"word ".repeat(len / 5 + 1));
        let share = match at / CHUNK as usize % 4 {
            0 => len / 4,
            1 => len,
            2 => 0,
            _ => len / 2,
        };
        [&random[..share], &repeated[..len - share]].concat()
    });
    chunks.collect::<Vec<_>>().concat()
}

fn open(dir: &tempfile::TempDir, segment_bytes: u64) -> Result<ValueLog> {
    let mut config = StorageConfig::for_tests(dir.path().to_owned());
    config.value_log_segment_bytes = segment_bytes;
    config.value_log_packed_min_bytes = 0;
    ValueLog::open(&config, 4, Box::new(|wanted| wanted.min(1 << 20)))
}

fn owner(id: u64) -> Owner {
    Owner::Base(KeyspaceId(7), CollectionId(id))
}

fn all(log: &ValueLog, at: &ValueRef) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    log.read(at, 0..at.len, &mut value, true)?;
    Ok(value)
}

/// Values that packing does not make shorter, and that it does.
const MAKERS: [fn(usize) -> Vec<u8>; 2] = [noise, mixed];

/// Lengths around the limits of chunks and of writes.
fn lengths() -> Vec<usize> {
    let (chunk, write) = (CHUNK as usize, PIECE_BYTES);
    vec![
        0,
        1,
        100,
        chunk - 1,
        chunk,
        chunk + 1,
        3 * chunk,
        write,
        3 * write + 17,
    ]
}

#[test]
fn values_are_read_as_they_were_appended_and_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(&dir, 1 << 20).unwrap();
    assert!(!dir.path().join(DIR).exists(), "made without a value");
    let mut kept = Vec::new();
    for round in 0..3 {
        for (len, make) in lengths()
            .into_iter()
            .flat_map(|len| MAKERS.map(|make| (len, make)))
        {
            let value = make(len);
            let (at, pin) = log.append(owner(round), &value).unwrap();
            assert_eq!(all(&log, &at).unwrap(), value);
            kept.push((at, value));
            drop(pin);
        }
        for (at, value) in &kept {
            assert_eq!(&all(&log, at).unwrap(), value);
            for _ in 0..5 {
                let from = fastrand::u64(..=at.len);
                let to = fastrand::u64(from..=at.len + 10);
                let mut part = b"before".to_vec();
                log.read(at, from..to, &mut part, true).unwrap();
                let wanted = &value[from as usize..to.min(at.len) as usize];
                assert_eq!(part.strip_prefix(b"before"), Some(wanted));
            }
        }
        log.sync().unwrap();
        let (segments, bytes) = (log.len(), log.bytes());
        log = open(&dir, 1 << 20).unwrap();
        assert_eq!((log.len(), log.bytes()), (segments, bytes));
    }
    assert!(log.len() > 3);
}

/// Once a sync took the mark away that its segment has bytes which it did not sync.
#[test]
fn a_sync_has_all_that_was_appended_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while running.load(Ordering::Acquire) {
                log.sync().unwrap();
            }
        });
        for id in 0..300 {
            let (at, _pin) = log.append(owner(id), &noise(20_000)).unwrap();
            log.sync().unwrap();
            let segment = log.segment(at.segment).unwrap();
            let synced = segment.synced() >= at.offset + stored_len(&at);
            if !synced {
                running.store(false, Ordering::Release);
            }
            assert!(synced, "value {id}");
        }
        running.store(false, Ordering::Release);
    });
}

/// The kernel reports an error once, and may have dropped the pages.
#[test]
fn after_a_failed_sync_all_fail_until_the_bytes_are_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    let (at, _pin) = log.append(owner(1), &noise(20_000)).unwrap();
    let (there, aside) = (dir.path().join(DIR), dir.path().join("aside"));
    std::fs::rename(&there, &aside).unwrap();
    assert!(log.sync().is_err(), "the directory cannot be opened");
    std::fs::rename(&aside, &there).unwrap();
    assert!(
        log.sync().is_err(),
        "the disk is well again, and has not all"
    );
    log.recover().unwrap();
    log.sync().unwrap();
    let segment = log.segment(at.segment).unwrap();
    assert_eq!(segment.synced(), segment.end());
}

#[test]
fn records_are_walked_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    let mut appended = Vec::new();
    for (id, len) in (0..).zip(lengths()) {
        let owner = owner(id);
        for make in MAKERS {
            let (at, _pin) = log.append(owner, &make(len)).unwrap();
            appended.push(Record { owner, at });
        }
    }
    let segment = log.segment(1).unwrap();
    let (mut walked, mut records) = (Vec::new(), Records::default());
    while let Some(record) = records.next(&segment).unwrap() {
        assert_eq!(records.last_len(), stored_len(&record.at));
        walked.push(record);
    }
    assert_eq!(walked, appended);
}

#[test]
fn what_the_binlog_alone_refers_to_has_segments_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(&dir, 16 << 10).unwrap();
    let mut kept = Vec::new();
    for id in 0..40 {
        let value = mixed(5_000);
        for owner in [owner(id), Owner::Binlog] {
            kept.push((owner, log.append(owner, &value).unwrap().0, value.clone()));
        }
        let row = log.append_row(&value).unwrap().0;
        assert_eq!(row.packed, 0);
        kept.push((Owner::Binlog, row, value));
    }
    for _start in 0..2 {
        for (owner, at, value) in &kept {
            assert_eq!(&all(&log, at).unwrap(), value);
            assert_eq!(log.segment(at.segment).unwrap().holds(), Holds::of(*owner));
        }
        let holds = |wanted| {
            let segments = log.segments.read();
            let found = segments.values().filter(|found| found.holds() == wanted);
            found.count()
        };
        assert!(holds(Holds::Values) > 2 && holds(Holds::Binlog) > 4);
        log = open(&dir, 16 << 10).unwrap();
    }
}

/// A file with another name is that of a copy, and another server may append to it.
#[cfg(target_os = "linux")]
#[test]
fn space_is_given_back_unless_a_file_has_another_name() {
    use std::os::unix::fs::MetadataExt;
    const TAKEN: u64 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    let value = noise(5000);
    let (at, _pin) = log.append(owner(1), &value).unwrap();
    let segment = log.segment(at.segment).unwrap();
    segment.preallocate(TAKEN);
    let taken = || std::fs::metadata(segment.path()).unwrap().blocks() * 512;
    assert!(taken() >= TAKEN);
    let copy = dir.path().join("copy");
    std::fs::hard_link(segment.path(), &copy).unwrap();
    let later = open(&dir, 1 << 30).unwrap();
    assert!(
        taken() >= TAKEN,
        "it is opened before the database is locked"
    );
    later.take_over(None).unwrap();
    assert!(taken() >= TAKEN);
    std::fs::remove_file(copy).unwrap();
    later.take_over(None).unwrap();
    assert!(taken() < TAKEN);
    assert_eq!(all(&later, &at).unwrap(), value);
}

/// What a crash leaves behind the last whole record is not read, and no record is lost.
#[test]
fn an_end_that_is_torn_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    let (first, second) = (noise(5000), noise(70_000));
    let (at_first, _pin) = log.append(owner(1), &first).unwrap();
    let (at_second, _pin) = log.append(owner(2), &second).unwrap();
    let path = segment::path(&dir.path().join(DIR), 1);
    let whole = std::fs::read(&path).unwrap();
    for len in [
        0,
        10,
        FILE_HEAD as usize,
        at_second.offset as usize + 3,
        whole.len() - 1,
    ] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let log = open(&dir, 1 << 30).unwrap();
        let keeps_first = len > at_second.offset as usize;
        assert_eq!(all(&log, &at_first).is_ok(), keeps_first, "{len}");
        assert!(all(&log, &at_second).is_err(), "{len}");
        let (at, _pin) = log.append(owner(3), &first).unwrap();
        assert_eq!(at.segment, 2, "{len}");
        assert_eq!(all(&log, &at).unwrap(), first);
        std::fs::remove_file(segment::path(&dir.path().join(DIR), 2)).unwrap();
    }
    // The whole length, but the last bytes never got to the disk.
    let mut torn = whole.clone();
    let end = torn.len();
    torn[end - 100..].fill(0);
    std::fs::write(&path, torn).unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    assert_eq!(all(&log, &at_first).unwrap(), first);
    assert!(all(&log, &at_second).is_err());
}

#[test]
fn bytes_that_changed_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    let value = noise(100_000);
    let (at, _pin) = log.append(owner(1), &value).unwrap();
    let (other, _pin) = log.append(owner(1), &value).unwrap();
    let path = segment::path(&dir.path().join(DIR), 1);
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    let place = at.offset + RECORD_HEAD + 50_000;
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 1], place).unwrap();
    assert!(all(&log, &at).is_err());
    let mut part = Vec::new();
    log.read(&at, 0..CHUNK, &mut part, true).unwrap();
    assert_eq!(part, &value[..CHUNK as usize], "another chunk is intact");
    assert!(log.read(&at, 40_000..40_001, &mut part, true).is_err());
    assert_eq!(part.len(), CHUNK as usize, "nothing is appended then");
    // The same bytes at the wrong place.
    let mut copy = vec![0; record_len(at.len) as usize];
    file.read_exact_at(&mut copy, other.offset).unwrap();
    file.write_all_at(&copy, at.offset).unwrap();
    assert!(all(&log, &at).is_err());
    assert_eq!(all(&log, &other).unwrap(), value);
}

#[test]
fn segments_are_closed_once_all_who_appended_are_done() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 10_000).unwrap();
    let numbers = |log: &ValueLog| -> Vec<u64> {
        log.closed().iter().map(|segment| segment.number).collect()
    };
    let (first, pin) = log.append(owner(1), &noise(6000)).unwrap();
    let (_, later) = log.append(owner(2), &noise(6000)).unwrap();
    assert_eq!(numbers(&log), [0; 0], "the turn has not ended");
    drop(pin);
    assert_eq!(numbers(&log), [1]);
    drop(later);
    assert_eq!(numbers(&log), [1], "it gets more records");
    assert!(!log.remove(2).unwrap(), "the newest stays");
    assert!(log.remove(1).unwrap());
    assert!(log.remove(1).unwrap());
    assert!(all(&log, &first).is_err());
    log.sync().unwrap();
    drop(log);
    let log = open(&dir, 10_000).unwrap();
    let (at, _pin) = log.append(owner(3), b"x").unwrap();
    assert_eq!(at.segment, 3, "numbers are not used twice");
}

#[test]
fn a_failed_write_leaves_no_hole() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    let value = noise(1000);
    let (first, _pin) = log.append(owner(1), &value).unwrap();
    let segment = log.segment(1).unwrap();
    // As if the disk had taken a part of a record.
    segment.write(&noise(500), segment.end()).unwrap();
    let (second, _pin) = log.append(owner(2), &value).unwrap();
    assert_eq!(second.offset, first.offset + record_len(1000));
    log.sync().unwrap();
    log.write_again().unwrap();
    log.sync().unwrap();
    for at in [first, second] {
        assert_eq!(all(&log, &at).unwrap(), value);
    }
}

#[test]
fn what_can_be_packed_takes_less() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    let mut stored = 0;
    for len in lengths() {
        let (at, _pin) = log.append(owner(1), &mixed(len)).unwrap();
        assert_eq!(at.packed > 0, len >= 100, "{len}");
        assert!(stored_len(&at) <= record_len(at.len));
        stored += stored_len(&at);
        let (at, _pin) = log.append(owner(1), &noise(len)).unwrap();
        assert_eq!(at.packed, 0, "{len}");
        stored += record_len(len as u64);
    }
    assert_eq!(log.bytes(), FILE_HEAD + stored);
    // What begins like something else can be longer than if it were not packed.
    let value = [vec![0; CHUNK as usize], noise(800 * CHUNK as usize)].concat();
    let (at, _pin) = log.append(owner(1), &value).unwrap();
    assert!(u64::from(at.packed) > at.len - CHUNK);
    assert_eq!(ValueRef::decode(&at.encode()), Ok(at));
    assert_eq!(all(&log, &at).unwrap(), value);
    let zeros = vec![0; 10 * PIECE_BYTES];
    let (at, _pin) = log.append(owner(1), &zeros).unwrap();
    assert!(u64::from(at.packed) < at.len / 100);
}

#[test]
fn packed_bytes_that_changed_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 30).unwrap();
    let value = mixed(4 * CHUNK as usize + 100);
    let (at, _pin) = log.append(owner(1), &value).unwrap();
    let path = segment::path(&dir.path().join(DIR), 1);
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(path).unwrap();
    let mut part = Vec::new();
    for place in 0..u64::from(at.packed) {
        let place = at.offset + RECORD_HEAD + place;
        if !place.is_multiple_of(97) && place < at.offset + stored_len(&at) - 20 {
            continue;
        }
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).unwrap();
        file.write_all_at(&[byte[0] ^ 4], place).unwrap();
        assert!(all(&log, &at).is_err(), "{place}");
        assert!(log.read(&at, 0..at.len, &mut part, true).is_err() && part.is_empty());
        file.write_all_at(&byte, place).unwrap();
    }
    assert_eq!(all(&log, &at).unwrap(), value);
    // A reference that does not fit.
    for packed in [1, 4, 5, 40, at.packed - 1, at.packed + 1] {
        let wrong = ValueRef { packed, ..at };
        assert!(all(&log, &wrong).is_err(), "{packed}");
    }
}

#[test]
fn few_files_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1000).unwrap();
    let values: Vec<_> = (0..40).map(|_| noise(900)).collect();
    let places = values
        .iter()
        .map(|value| log.append(owner(1), value).unwrap().0);
    let places: Vec<_> = places.collect();
    log.sync().unwrap();
    let check = |log: &ValueLog| {
        for _ in 0..3 {
            for (at, value) in places.iter().zip(&values) {
                assert_eq!(&all(log, at).unwrap(), value);
                let mut again = Vec::new();
                log.read(at, 0..at.len, &mut again, false).unwrap();
                assert_eq!(&again, value, "open files are read without waiting");
            }
        }
        assert!(log.files.len() <= 4, "{}", log.files.len());
    };
    check(&log);
    let closed = log.read(&places[0], 0..10, &mut Vec::new(), false);
    assert!(matches!(closed, Err(StorageError::NotInMemory)));
    log.fetch(&places[0]);
    log.read(&places[0], 0..10, &mut Vec::new(), false).unwrap();
    check(&open(&dir, 1000).unwrap());
}

/// A row that refers to a segment that is lost must not be given the bytes of another value.
#[test]
fn the_number_of_a_lost_segment_is_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, 1 << 20).unwrap();
    log.take_over(None).unwrap();
    let (lost, pin) = log.append(owner(1), b"lost").unwrap();
    drop(pin);
    log.sync().unwrap();
    log.list().unwrap();
    assert!(missing(dir.path()).unwrap().is_empty());
    drop(log);
    std::fs::remove_dir_all(dir.path().join(DIR)).unwrap();
    let told = missing(dir.path()).unwrap();
    assert_eq!(told, ["segment 1 of the value log is missing"]);
    // A start opens the log before it gives up what is missing, a repair after that.
    let early = open(&dir, 1 << 20).unwrap();
    forget_missing(dir.path()).unwrap();
    assert!(missing(dir.path()).unwrap().is_empty());
    for log in [early, open(&dir, 1 << 20).unwrap()] {
        log.take_over(None).unwrap();
        assert!(!log.may_have(&lost));
        assert!(all(&log, &lost).is_err());
        let (at, _pin) = log.append(owner(2), b"else").unwrap();
        assert!(at.segment > lost.segment && log.may_have(&at));
    }
    // Without a list, by the rows of the database.
    std::fs::remove_dir_all(dir.path().join(DIR)).unwrap();
    let log = open(&dir, 1 << 20).unwrap();
    log.take_over(Some(7)).unwrap();
    let (at, _pin) = log.append(owner(2), b"else").unwrap();
    assert_eq!(at.segment, 8);
}
