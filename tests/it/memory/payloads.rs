//! RESTORE of short payloads that become much in memory: what is made of them is lent before it is
//! made, or the command is refused.

use crate::support::{Server, Value};
use kedis::base::hash::crc64;
use kedis::rdb::kind;
use kedis::rdb::module::ModuleId;

const BUDGET: u64 = 256 << 20;
const MOST_PERCENT: u64 = 110;
/// The version of RDB in the footer.
const VERSION: [u8; 2] = [11, 0];

/// The opcode of a library of functions.
const FUNCTION: u8 = 245;

/// A length or number.
fn length(n: u64) -> Vec<u8> {
    match u32::try_from(n) {
        Ok(short) => [&[0x80][..], &short.to_be_bytes()].concat(),
        Err(_) => [&[0x81][..], &n.to_be_bytes()].concat(),
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [length(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A string of `n` times 264 bytes and one, which takes three bytes each.
fn compressed(n: usize) -> Vec<u8> {
    let packed = [&[0, b'a'][..], &[0xE0, 0xFF, 0].repeat(n)].concat();
    let lengths = [length(packed.len() as u64), length(n as u64 * 264 + 1)].concat();
    [&[0xC3][..], &lengths, &packed].concat()
}

fn json(version: u16, parts: &[&[u8]]) -> Vec<u8> {
    let id = ModuleId::new(b"ReJSON-RL", version);
    [&[kind::MODULE_2][..], &length(id.0), &parts.concat(), &[0]].concat()
}

/// An array of `n` nulls, as nodes of a tree.
fn json_tree(n: usize) -> Vec<u8> {
    let head = [&[2, 0x40, 0x40, 2][..], &length(n as u64)].concat();
    json(0, &[&head, &[2, 1].repeat(n)])
}

/// An object of `n` empty keys, as nodes of a tree.
fn json_members(n: usize) -> Vec<u8> {
    let head = [&[2, 0x20, 2][..], &length(n as u64)].concat();
    json(0, &[&head, &[2, 0x40, 0x80, 5, 0, 2, 1].repeat(n)])
}

/// An array of `n` nulls in CBOR.
fn json_cbor(n: usize) -> Vec<u8> {
    let count = (n as u32).to_be_bytes();
    let text = [&[0x9A][..], &count, &vec![0xF6; n]].concat();
    json(4, &[&[5], &string(&text)])
}

/// A stream with one node of `n` elements, which are no entries.
fn stream_node(n: usize) -> Vec<u8> {
    let len = (7 + 2 * n) as u32;
    let node = [
        &len.to_le_bytes()[..],
        &[0xFF, 0xFF],
        &[0, 1].repeat(n),
        &[0xFF],
    ];
    let key = string(&[0; 16]);
    [
        &[kind::STREAM_LISTPACKS_2, 1][..],
        &key,
        &string(&node.concat()),
    ]
    .concat()
}

/// A stream with a group of `n` consumers, of which the entries without a consumer are missing.
fn stream_consumers(n: usize) -> Vec<u8> {
    let state = [0; 9];
    let group = [1, 1, b'g', 0, 0, 0, 0];
    let consumer = [0; 18];
    [
        &[kind::STREAM_LISTPACKS_5][..],
        &state,
        &group,
        &length(n as u64),
        &consumer.repeat(n),
    ]
    .concat()
}

fn sealed(body: &[u8]) -> Vec<u8> {
    let payload = [body, &VERSION].concat();
    let crc = crc64(0, &payload).to_le_bytes();
    [&payload[..], &crc].concat()
}

#[test]
fn what_becomes_of_a_payload_stays_within_the_budget() {
    type Make = fn(usize) -> Vec<u8>;
    let string_of = |n: usize| [&[kind::STRING][..], &compressed(n)].concat();
    // How many are too many, and whether few of them are a value.
    let payloads: &[(&str, Make, usize, bool)] = &[
        ("a tree of nulls", json_tree, 8_000_000, true),
        ("a tree of members", json_members, 4_000_000, true),
        ("nulls in CBOR", json_cbor, 10_000_000, true),
        ("a compressed string", string_of, 1_000_000, true),
        ("a node of a stream", stream_node, 12_000_000, false),
        ("consumers of a stream", stream_consumers, 1_500_000, false),
    ];
    for (what, make, many, is_value) in payloads {
        let server = Server::start(&["--maxmemory", &BUDGET.to_string()]);
        let mut conn = server.connect();
        let mut restore = |n: usize| {
            let payload = sealed(&make(n));
            conn.call(&[b"RESTORE", &b"k"[..], b"0", &payload, b"REPLACE"])
        };
        let few = restore(1);
        match is_value {
            true => assert_eq!(few, Value::ok(), "{what}"),
            // It is refused for what it is.
            false => assert!(
                few.error().is_some_and(|text| text.starts_with("ERR Bad")),
                "{what}: {few:?}"
            ),
        }
        let error = restore(*many).error().unwrap_or_default();
        assert!(error.starts_with("OOM "), "{what}: {error:?}");
        let percent = server.peak_rss() * 100 / BUDGET;
        println!("{what}: {percent} % of the budget");
        assert!(
            percent <= MOST_PERCENT,
            "{what} took {percent} % of the budget"
        );
        server.connect().must("SET after v");
    }
}

/// The libraries of a payload are all held until they are loaded.
#[test]
fn libraries_of_a_payload_stay_within_the_budget() {
    let server = Server::start(&["--maxmemory", &BUDGET.to_string()]);
    let mut conn = server.connect();
    let mut restore = |libraries: usize, n: usize| {
        let library = [&[FUNCTION][..], &compressed(n)].concat();
        let payload = sealed(&library.repeat(libraries));
        conn.call(&[b"FUNCTION", &b"RESTORE"[..], &payload])
    };
    let error = restore(1, 1).error().unwrap_or_default();
    assert!(error.starts_with("ERR Missing library meta"), "{error:?}");
    let error = restore(10, 100_000).error().unwrap_or_default();
    assert!(error.starts_with("OOM "), "{error:?}");
    let percent = server.peak_rss() * 100 / BUDGET;
    assert!(percent <= MOST_PERCENT, "{percent} % of the budget");
}
