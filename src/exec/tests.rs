//! Data sets of a master whose rows contradict each other. They used to be installed, and
//! replies were then shorter than announced.

use super::testing::Client;
use crate::base::time::UnixMs;
use crate::encoding::{MetaView, ValueType, tag};
use crate::storage::full_sync::snapshot::DataSet;
use crate::storage::full_sync::staging::Staging;
use crate::storage::{DbIndex, Engine, StorageError, Txn};
use std::ops::ControlFlow;
use std::sync::Arc;

const DB: DbIndex = DbIndex(0);

type Row = (Vec<u8>, Vec<u8>);

/// A data set with every type in rows, and with rows of deleted collections.
fn master() -> (DataSet, Vec<Row>) {
    let mut client = Client::with(|config| config.packed_max_entries = 2);
    for line in [
        "hset h a 1 b 2 c 3",
        "hset h2 a 1 b 2 c 3 d 4",
        "hpexpire h2 100000 fields 2 a b",
        "hset few a 1 b 2",
        "hpexpire few 100000 fields 1 a",
        "rpush l a b c d",
        "lpush l z",
        "sadd s a b c",
        "sadd packed a b",
        "zadd z 1 a 2 b 3 c",
        "set timed v px 100000",
        "setrange long 20000 end",
        "xadd x 1-1 f v",
        "xadd x 2-1 f v",
        "xadd x 3-1 f v",
        "xgroup create x g 0",
        "xgroup create x g2 0",
        "xreadgroup group g c count 2 streams x >",
        "xreadgroup group g d streams x >",
        "xack x g 1-1",
        "siadd i 1 2 3",
        "bf.reserve bloom 0.01 1000",
        "bf.madd bloom a b c",
        "cf.reserve cuckoo 2000",
        "cf.insert cuckoo items a b c",
        "cms.initbydim sketch 1000 2",
        "cms.incrby sketch a 1 b 2",
        "topk.reserve top 3",
        "topk.add top a b c d",
        "tdigest.create digest",
        "tdigest.add digest 1 2 3",
        "sadd dead a b c d",
        "zadd dead-too 1 a 2 b 3 c",
        "del dead dead-too",
    ] {
        let reply = client.run(line);
        assert_eq!(reply.as_error(), None, "{line}");
    }
    let numbers = "1000000,".repeat(1000);
    let reply = client.run(&format!("json.set j $ [{numbers}1]"));
    assert_eq!(reply.as_error(), None);
    client.check();
    let engine = client.server().engine.clone();
    let snapshot = engine.snapshot().unwrap();
    let mut rows = Vec::new();
    let each = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        Ok::<_, StorageError>(ControlFlow::Continue(()))
    };
    let scanned = snapshot.scan(DB, &[], &[0xFF], each).unwrap();
    assert!(scanned.is_continue());
    let in_rows = |kind: ValueType| {
        let metas = rows.iter().filter(|(key, _)| key[0] == tag::META);
        let mut metas = metas.map(|(_, row)| MetaView::decode(row).unwrap().meta);
        metas.any(|meta| meta.kind == kind && meta.rows)
    };
    let missing = ValueType::ALL.iter().find(|kind| !in_rows(**kind));
    assert_eq!(missing, None, "a type without rows in the data set");
    (snapshot.data_set.clone(), rows)
}

/// Stages the rows as a replica does, the second half in a chunk of its own.
fn take(engine: &Arc<Engine>, set: &DataSet, rows: &[Row]) -> Result<(), StorageError> {
    let mut staging = Staging::new(engine.clone());
    let (first, second) = rows.split_at(rows.len() / 2);
    for rows in [first, second] {
        let mut chunk = Vec::new();
        for part in rows.iter().flat_map(|(key, value)| [key, value]) {
            chunk.extend_from_slice(&(part.len() as u32).to_be_bytes());
            chunk.extend_from_slice(part);
        }
        staging.put(set, DB, &chunk)?;
    }
    staging.check()
}

/// Whether no other row refers to this one.
fn stands_alone((key, value): &Row) -> bool {
    let is_plain = || value.get(1) == Some(&0) && value.get(2..10) == Some(&[0; 8]);
    // Stretches of zeros have no rows, so nothing states how many there are.
    let in_pieces: [&[u8]; 6] = [b"long", b"bloom", b"cuckoo", b"sketch", b"top", b"digest"];
    match key[0] {
        tag::META => is_plain() || in_pieces.contains(&&key[1..]),
        tag::FRAGMENT
        | tag::BLOOM_PAGE
        | tag::CUCKOO_PAGE
        | tag::SKETCH_PAGE
        | tag::TOPK_PAGE
        | tag::TOPK_SLOT
        | tag::DIGEST_PAGE => true,
        _ => false,
    }
}

#[test]
fn every_row_that_is_missing_or_doubled_or_elsewhere_is_found() {
    let (set, rows) = master();
    let replica = Client::new();
    let engine = replica.server().engine.clone();
    take(&engine, &set, &rows).expect("they agree");
    let of_dead = |key: &[u8]| {
        let mut dead = rows.iter().filter(|(key, _)| key[0] == tag::RECLAIM);
        key[0] != tag::META && dead.any(|(dead, _)| key.get(1..9) == dead.get(1..9))
    };
    let is_found = |changed: Vec<Row>, what: &str, row: &Row| {
        let taken = take(&engine, &set, &changed);
        let found = matches!(
            taken,
            Err(StorageError::Disagrees { .. } | StorageError::Corrupt(_))
        );
        assert!(found, "{what} {}: {taken:?}", row.0.escape_ascii());
    };
    for (at, row) in rows.iter().enumerate() {
        let is_dead = of_dead(&row.0) && row.0[0] != tag::RECLAIM;
        if !stands_alone(row) && !is_dead {
            let mut less = rows.clone();
            less.remove(at);
            is_found(less, "without", row);
        }
        let mut twice = rows.clone();
        twice.insert(at, row.clone());
        is_found(twice, "twice", row);
        // Moved to a collection that no key has.
        let is_of_a_key = [tag::META, tag::TTL, tag::DUE].contains(&row.0[0]);
        if !is_of_a_key && !stands_alone(row) && !is_dead {
            let mut strayed = rows.clone();
            strayed[at].0[2] ^= 1;
            strayed.sort();
            is_found(strayed, "strayed", row);
        }
    }
}

#[test]
fn what_collections_rows_say_is_compared() {
    let (set, rows) = master();
    let replica = Client::new();
    let engine = replica.server().engine.clone();
    let refused = |change: &dyn Fn(&mut Row), which: &[u8], why: &str| {
        let mut changed = rows.clone();
        let row = changed.iter_mut().find(|(key, _)| key.starts_with(which));
        change(row.expect("such a row"));
        changed.sort();
        let error = take(&engine, &set, &changed).expect_err(why).to_string();
        assert!(error.contains(why), "{why}: {error}");
    };
    let last = |row: &mut Row| *row.1.last_mut().unwrap() ^= 1;
    // The count of a set is bytes 8 to 16 of its body; the tail of a list is at the end.
    refused(&|row| row.1[25] += 1, b"\x01s", "members of sets");
    refused(&last, b"\x01l", "items of lists");
    // Another hash position, another index, another score.
    for tag in tag::HASHED {
        refused(&|row| row.0[9] ^= 0x80, &[tag], "member position");
    }
    refused(&|row| row.0[16] ^= 0x40, &[tag::LIST_ITEM], "list position");
    refused(&last, &[tag::ZSET_MEMBER], "sorted sets");
    refused(&last, &[tag::FIELD_TIME], "times of fields");
    refused(
        &|row| row.0[9] ^= 0x40,
        &[tag::FIELD_DUE],
        "times of fields",
    );
    refused(
        &|row| row.0[8] ^= 1,
        &[tag::DUE],
        "keys with timed elements",
    );
    refused(&|row| row.1[9] ^= 1, b"\x01timed", "with an expiry");
    refused(&last, &[tag::STREAM_CONSUMER], "consumers of streams");
    let next_id = DataSet {
        next_id: 1,
        ..set.clone()
    };
    let error = take(&engine, &next_id, &rows).unwrap_err().to_string();
    assert!(error.contains("collection id"), "{error}");
}

/// The old data set of the replica stays.
#[test]
fn a_data_set_that_does_not_agree_is_not_installed() {
    let (set, mut rows) = master();
    rows.retain(|(key, _)| key[0] != tag::SET_MEMBER);
    let mut replica = Client::new();
    replica.run("set old value");
    let engine = replica.server().engine.clone();
    let mut staging = Staging::new(engine.clone());
    for (key, value) in &rows {
        let mut chunk = Vec::new();
        for part in [key, value] {
            chunk.extend_from_slice(&(part.len() as u32).to_be_bytes());
            chunk.extend_from_slice(part);
        }
        staging.put(&set, DB, &chunk).unwrap();
    }
    let mut txn = Txn::new(engine);
    let following = txn
        .begin_following(UnixMs(1), |engine| Some(engine.begin_following()))
        .unwrap()
        .unwrap();
    let done = txn.install(staging, &set, following, UnixMs(1), || {});
    assert!(
        matches!(done, Err(StorageError::Disagrees { .. })),
        "{done:?}"
    );
    drop(txn);
    assert_eq!(replica.run("get old").as_bytes(), Some(&b"value"[..]));
    replica.check();
}
