//! RESTORE of payloads of every type that are not what a server has dumped: other bytes, lengths
//! that lie, parts of modules' values out of their range. The checksums are right.
//!
//! Environment: `KEDIS_PAYLOADS_SEED`, `KEDIS_PAYLOADS` (payloads of each sample, 300).

use super::samples::{NOT_WHOLE, SAMPLES, Sample};
use super::{check_all, digest, make};
use crate::support::{Conn, Server, Value, env_number, seed};
use kedis::base::hash::crc64;
use kedis::rdb::decode::read_value;
use kedis::rdb::encode::Encoder;
use kedis::rdb::module::ModulePart;
use kedis::rdb::reader::Reader;
use kedis::rdb::{Dialect, Element, Error, kind};

/// Version and checksum behind the value.
const FOOTER: usize = 10;
/// Budget of the server.
const MAX_MEMORY: u64 = 256 << 20;
/// Most memory that it may take besides that.
const SPARE: u64 = 192 << 20;

/// A part of a module's value.
#[derive(Clone, Debug)]
enum Part {
    Begin(kedis::rdb::module::ModuleId),
    Unsigned(u64),
    Double(f64),
    Text(Vec<u8>),
}

/// Integers at the borders of what types hold.
const INTEGERS: &[u64] = &[
    0,
    1,
    2,
    7,
    64,
    255,
    256,
    65_535,
    1 << 20,
    (1 << 30) + 1,
    u32::MAX as u64,
    1 << 32,
    1 << 34,
    1 << 40,
    (1 << 53) + 1,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

const DOUBLES: &[f64] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-308,
    1e308,
    -1e308,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    4_294_967_296.0,
    1.8e19,
];

/// The parts of a module's value; `None` if it is read as elements of a type of Redis.
fn parts_of(body: &[u8]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut has_parts = true;
    let mut reader = Reader::new(&body[1..], 64 << 20);
    let read = read_value(&mut reader, kind::MODULE_2, Dialect::Redis, |element| {
        parts.push(match element {
            Element::Member { .. } => {
                has_parts = false;
                return Ok(());
            }
            Element::Module(ModulePart::Begin(id)) => Part::Begin(id),
            Element::Module(ModulePart::Unsigned(n)) => Part::Unsigned(n),
            Element::Module(ModulePart::Double(n)) => Part::Double(n),
            Element::Module(ModulePart::Text(text)) => Part::Text(text.to_vec()),
            other => panic!("{other:?}"),
        });
        Ok::<(), Error>(())
    });
    read.expect("what a server has dumped");
    has_parts.then_some(parts)
}

fn body_of(parts: &[Part]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::new(false), Vec::new());
    for part in parts {
        let part = match part {
            Part::Begin(id) => ModulePart::Begin(*id),
            Part::Unsigned(n) => ModulePart::Unsigned(*n),
            Part::Double(n) => ModulePart::Double(*n),
            Part::Text(text) => ModulePart::Text(text),
        };
        encoder.module_part(part, None, &mut out);
    }
    encoder.end_module(&mut out);
    out
}

/// A change of one part of a module's value.
fn change_part(rng: &mut fastrand::Rng, parts: &mut Vec<Part>) {
    if parts.len() < 2 {
        return;
    }
    // The heads matter most.
    let most = if rng.bool() {
        parts.len().min(16)
    } else {
        parts.len()
    };
    let at = rng.usize(1..most.max(2)).min(parts.len() - 1);
    match (&mut parts[at], rng.u8(..8)) {
        (_, 0) => _ = parts.remove(at),
        (_, 1) => {
            let again = parts[at].clone();
            parts.insert(at, again);
        }
        (Part::Unsigned(n), 2) => *n = n.wrapping_add(1),
        (Part::Unsigned(n), 3) => *n = n.wrapping_sub(1),
        (Part::Unsigned(n), _) => *n = INTEGERS[rng.usize(..INTEGERS.len())],
        (Part::Double(n), 2) => *n = -*n,
        (Part::Double(n), _) => *n = DOUBLES[rng.usize(..DOUBLES.len())],
        (Part::Text(text), 2) => text.clear(),
        (Part::Text(text), 3) => text.push(rng.u8(..)),
        (Part::Text(text), 4) => text.truncate(text.len() / 2),
        (Part::Text(text), _) if !text.is_empty() => {
            let at = rng.usize(..text.len());
            text[at] = rng.u8(..);
        }
        (part, _) => *part = Part::Unsigned(INTEGERS[rng.usize(..INTEGERS.len())]),
    }
}

/// A change of the bytes.
fn change_bytes(rng: &mut fastrand::Rng, body: &mut Vec<u8>) {
    if body.is_empty() {
        return;
    }
    // What stands at the beginning says what follows.
    let most = if rng.bool() {
        body.len().min(60)
    } else {
        body.len()
    };
    let at = rng.usize(..most);
    match rng.u8(..10) {
        0 => body.truncate(at.max(1)),
        1 => _ = body.remove(at),
        2 => body.insert(at, rng.u8(..)),
        // Lengths of 32 and of 64 bits.
        3 => _ = body.splice(at..at + 1, [0x80, 0xFF, 0xFF, 0xFF, 0xF0]),
        4 => _ = body.splice(at..at + 1, [0x81, 0, 0, 0, 1, 0, 0, 0, 0]),
        5 => {
            _ = body.splice(
                at..at + 1,
                [0x81, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
            )
        }
        6 => body[at] ^= 1 << rng.u8(..8),
        7 => body[at] = [0, 1, 0x7F, 0x80, 0xC3, 0xFF][rng.usize(..6)],
        _ => body[at] = rng.u8(..),
    }
}

fn sealed(body: &[u8], version: &[u8]) -> Vec<u8> {
    let mut payload = [body, version].concat();
    let crc = crc64(0, &payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

/// Restores payloads that differ from that of a sample; returns how many were taken.
fn try_sample(conn: &mut Conn, rng: &mut fastrand::Rng, sample: &Sample, payloads: u64) -> u64 {
    make(conn, sample, "dumped");
    let dumped = conn.must("DUMP dumped").bytes().to_vec();
    conn.must("DEL dumped");
    let (body, footer) = dumped.split_at(dumped.len() - FOOTER);
    let is_module = body[0] == kind::MODULE_2;
    let parts = is_module.then(|| parts_of(body)).flatten();
    let mut taken = 0;
    for n in 0..payloads {
        let mut body = match &parts {
            Some(parts) if rng.bool() => {
                let mut parts = parts.clone();
                for _ in 0..rng.u8(1..3) {
                    change_part(rng, &mut parts);
                }
                body_of(&parts)
            }
            _ => {
                let mut body = body.to_vec();
                for _ in 0..rng.u8(1..4) {
                    change_bytes(rng, &mut body);
                }
                body
            }
        };
        if n == 0 {
            body = dumped[..dumped.len() - FOOTER].to_vec();
        }
        let payload = sealed(&body, &footer[..2]);
        let shown = || {
            let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}: {hex}", sample.key)
        };
        let restored = conn.call(&[b"RESTORE", &b"k"[..], b"0", &payload]);
        if let Value::Error(text) = &restored {
            assert!(n > 0, "{}: {restored:?}", shown());
            // Nothing is left of it.
            let text = String::from_utf8_lossy(text);
            assert!(text.starts_with("ERR") || text.starts_with("OOM"), "{text}");
            assert_eq!(conn.must("DBSIZE"), Value::Int(0), "{}", shown());
            continue;
        }
        assert_eq!(restored, Value::ok(), "{}", shown());
        // All fields of a hash may be over.
        if conn.must("EXISTS k") == Value::Int(0) {
            continue;
        }
        taken += 1;
        let again = conn.cmd("DUMP k");
        assert!(matches!(again, Value::Bulk(_)), "{again:?} {}", shown());
        let restored = conn.call(&[b"RESTORE", &b"again"[..], b"0", again.bytes()]);
        assert_eq!(restored, Value::ok(), "{}", shown());
        // What other streams hold besides may not go into a payload, either.
        let is_whole = !NOT_WHOLE.contains(&sample.key) && conn.must("TYPE k").text() != "stream";
        if is_whole {
            assert_eq!(digest(conn, "k"), digest(conn, "again"), "{}", shown());
        }
        // It can be read and changed, if it still has the type.
        for line in [
            sample.read.replace("{k}", "k"),
            sample.change("k", 1),
            sample.change("k", 2),
            "MEMORY USAGE k SAMPLES 0".to_owned(),
        ] {
            let reply = conn.cmd(&line);
            assert!(
                !matches!(reply, Value::Lost(_)),
                "{line}: {reply:?} {}",
                shown()
            );
        }
        conn.must("DEL k again");
    }
    assert_eq!(conn.must("DBSIZE"), Value::Int(0));
    taken
}

#[test]
fn changed_payloads_are_refused_or_taken_as_a_whole() {
    let budget = MAX_MEMORY.to_string();
    let flags = ["--enable-debug-command", "yes", "--maxmemory", &budget];
    let server = Server::start(&flags);
    let mut rng = fastrand::Rng::with_seed(seed("KEDIS_PAYLOADS_SEED"));
    let payloads = env_number("KEDIS_PAYLOADS", 300);
    let mut conn = server.connect();
    for sample in SAMPLES {
        let taken = try_sample(&mut conn, &mut rng, sample, payloads);
        println!("{}: {taken} of {payloads} taken", sample.key);
        assert!(taken > 0 && taken < payloads, "{}", sample.key);
    }
    check_all(&mut conn);
    let peak = server.peak_rss();
    assert!(peak < MAX_MEMORY + SPARE, "{peak} bytes at the most");
}

/// CVE-2026-25243, CVE-2026-63639: pending entries of a group that belong to several consumers, to
/// none, or to consumers that name what the group does not have.
#[test]
fn a_pending_entry_belongs_to_one_consumer() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut conn = server.connect();
    for n in 1..=4 {
        conn.must(&format!("XADD stream {n}-77 field value"));
    }
    conn.must("XGROUP CREATE stream group 0");
    for consumer in ["first", "second"] {
        let read = format!("XREADGROUP GROUP group {consumer} COUNT 2 STREAMS stream >");
        conn.must(&read);
    }
    let dumped = conn.must("DUMP stream").bytes().to_vec();
    let (body, footer) = dumped.split_at(dumped.len() - FOOTER);
    let id = |ms: u64| [ms.to_be_bytes(), 77u64.to_be_bytes()].concat();
    // An id stands among the entries of the group, and behind them among those of a consumer. In
    // the entries of the stream it stands in another form.
    let places = |ms: u64| -> Vec<usize> {
        let windows = body.windows(16).enumerate();
        let found = windows.filter(|(_, bytes)| *bytes == id(ms));
        found.map(|(at, _)| at).collect()
    };
    let mut tried = 0;
    for (at, of) in [1, 2, 3, 4].into_iter().flat_map(|ms| {
        let found = places(ms);
        assert!(found.len() >= 2, "{found:?}");
        found.into_iter().map(move |at| (at, ms))
    }) {
        for other in (1..=5).filter(|other| *other != of) {
            let mut body = body.to_vec();
            body[at..at + 16].copy_from_slice(&id(other));
            let payload = sealed(&body, &footer[..2]);
            let restored = conn.call(&[b"RESTORE", &b"k"[..], b"0", &payload]);
            tried += 1;
            let shown = format!("{other} instead of {of} at {at}: {restored:?}");
            // The first place may be the node of the entries, and then says something else.
            if restored == Value::ok() {
                let pending = conn.must("XPENDING k group - + 10").items().to_vec();
                let ids: Vec<String> = pending.iter().map(|one| one.items()[0].text()).collect();
                assert_eq!(ids, ["1-77", "2-77", "3-77", "4-77"], "{shown}");
                conn.must("DEL k");
            }
            assert_eq!(conn.must("EXISTS k"), Value::Int(0), "{shown}");
        }
    }
    assert!(tried >= 4 * 2 * 4, "{tried}");
    // As it was, it is taken.
    let restored = conn.call(&[b"RESTORE", &b"k"[..], b"0", &dumped]);
    assert_eq!(restored, Value::ok());
    for consumer in ["first", "second"] {
        let read = format!("XREADGROUP GROUP group {consumer} STREAMS k 0");
        let entries = conn.must(&read).items()[0].items()[1].items().len();
        assert_eq!(entries, 2);
    }
    check_all(&mut conn);
}
