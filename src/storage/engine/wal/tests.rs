use super::*;

fn fragment(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let [low, high] = (bytes.len() as u16).to_le_bytes();
    let covered = [&[kind], bytes].concat();
    let sum = checksum(&covered).to_le_bytes();
    [&sum[..], &[low, high, kind], bytes].concat()
}

fn record(sequence: u64, rows: u32, len: usize) -> Vec<u8> {
    let head = [&sequence.to_le_bytes()[..], &rows.to_le_bytes()].concat();
    [head, vec![b'x'; len]].concat()
}

/// A file with so many records of three rows, of 90 to some 40,000 bytes; and where each
/// of them ends.
fn file(records: u64) -> (Vec<u8>, Vec<u64>) {
    let (mut file, mut ends) = (Vec::new(), Vec::new());
    for n in 0..records {
        let bytes = record(100 + 3 * n, 3, if n % 7 == 6 { 40_000 } else { 90 });
        let mut rest = bytes.as_slice();
        let mut kinds = [FIRST, FULL];
        loop {
            let left = BLOCK - file.len() % BLOCK;
            if left < HEADER {
                file.extend(vec![0; left]);
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(left - HEADER));
            file.extend(fragment(kinds[usize::from(later.is_empty())], now));
            kinds = [MIDDLE, LAST];
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        ends.push(file.len() as u64);
    }
    (file, ends)
}

fn scan_bytes(bytes: &[u8]) -> Scan {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000007.log");
    std::fs::write(&path, bytes).unwrap();
    scan(&path).unwrap()
}

#[test]
fn a_whole_file_is_read_to_its_end() {
    let (bytes, ends) = file(50);
    let found = scan_bytes(&bytes);
    assert_eq!(found.intact, *ends.last().unwrap());
    assert_eq!((found.fault, found.records_after), (None, 0));
    assert_eq!(found.sequences, Some((100, 250)));
    assert_eq!(scan_bytes(&[]), Scan::default());
}

#[test]
fn a_file_that_was_being_written_ends_with_its_last_whole_record() {
    let (bytes, ends) = file(20);
    for len in (0..bytes.len()).step_by(97) {
        let found = scan_bytes(&bytes[..len]);
        let whole = ends.iter().filter(|end| **end <= len as u64);
        let last = whole.clone().next_back().copied().unwrap_or(0);
        // Padding of a block may follow it.
        assert!((last..last + HEADER as u64).contains(&found.intact));
        assert_eq!(found.records_after, 0, "{len}");
        let next = 100 + 3 * whole.count() as u64;
        assert_eq!(found.sequences.map_or(100, |(_, next)| next), next, "{len}");
    }
}

#[test]
fn zeros_at_the_end_are_no_fault_and_in_the_middle_are() {
    let (bytes, ends) = file(40);
    for zeros in [1, 100, 3 * BLOCK] {
        let found = scan_bytes(&[bytes.as_slice(), &vec![0; zeros]].concat());
        assert_eq!((found.intact, found.fault), (ends[39], None));
    }
    let mut holed = bytes.clone();
    holed[ends[3] as usize..][..BLOCK].fill(0);
    let found = scan_bytes(&holed);
    assert_eq!(found.intact, ends[3]);
    assert!(
        found.fault.is_some() && found.records_after > 0,
        "{found:?}"
    );
}

#[test]
fn a_bit_that_changed_is_found_wherever_it_is() {
    let (bytes, ends) = file(14);
    for at in (0..bytes.len()).step_by(61) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        let found = scan_bytes(&changed);
        let before = ends.iter().filter(|end| **end <= at as u64).count();
        let end = if before == 0 { 0 } else { ends[before - 1] };
        assert!(found.intact < ends[before], "{at}: {found:?}");
        assert!(found.intact >= end, "{at}: {found:?}");
    }
}

#[test]
fn files_are_known_by_their_names() {
    let number = |name| number(Path::new(name));
    assert_eq!(number("/a/000012.log"), Some(12));
    for name in ["/a/LOG", "/a/x12.log", "/a/.log", "/a/000012.sst", "/"] {
        assert_eq!(number(name), None);
    }
}
