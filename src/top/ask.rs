//! Asks the server for the findings.

use super::findings::{Hot, Space, progress};
use super::options::Options;
use crate::migrate::{Conn, Error, Result, Stop, sleep};
use crate::resp::Value;
use std::time::Duration;

/// Time between two questions how far the server is.
const POLL: Duration = Duration::from_millis(200);
/// The most keys of a collection that the server reports.
const HOT_KEYS: &str = "64";

/// The field of INFO with the commands that the server runs in a second.
const RATE: &str = "instantaneous_ops_per_sec";
/// How many of them are looked at: a command that is takes about a microsecond more, so that
/// the collection takes about a thousandth of a processor, whatever the load.
const HOT_COMMANDS: u64 = 1000;

/// What a server has told.
#[derive(Debug, Clone)]
pub(super) struct Findings {
    pub(super) server: String,
    pub(super) version: String,
    pub(super) space: Space,
    /// The hot keys; `None` if they were not asked for.
    pub(super) hot: Option<Hot>,
    /// Whether another client had begun the collection of hot keys.
    pub(super) hot_of_another: bool,
}

/// Called with the keys scanned and those expected.
pub(super) type Progress<'p> = &'p mut dyn FnMut(u64, u64);

/// Asks for everything.
pub(super) fn findings(
    conn: &mut Conn,
    options: &Options,
    stop: &Stop,
    tell: Progress<'_>,
) -> Result<Findings> {
    let info = conn.info("server")?;
    let server = options.addr.to_string();
    let Some(version) = info.get("kedis_version").map(str::to_owned) else {
        return Err(Error::Refused(format!(
            "the server {server} is no Kedis. Of a Redis or Valkey, redis-cli shows big keys \
             with --bigkeys and --memkeys, and hot keys with --hotkeys"
        )));
    };
    // Keys are collected while the scan runs.
    let collection = match options.hot {
        0 => None,
        _ => Some(begin_collection(conn, options)?),
    };
    let space = space(conn, options, stop, tell)?;
    let (hot, hot_of_another) = match collection {
        None => (None, false),
        Some(Collection::Own { began_ms }) => (end_collection(conn, began_ms, stop)?, false),
        Some(Collection::OfAnother) => (collected(conn)?, true),
    };
    Ok(Findings {
        server,
        version,
        space,
        hot,
        hot_of_another,
    })
}

/// The client that has begun a collection of hot keys.
enum Collection {
    Own { began_ms: u64 },
    OfAnother,
}

/// What is collected by now.
fn collected(conn: &mut Conn) -> Result<Option<Hot>> {
    Hot::decode(&conn.ask(&["HOTKEYS", "GET"])?)
}

/// Begins a collection that ends by itself, unless another client's runs.
fn begin_collection(conn: &mut Conn, options: &Options) -> Result<Collection> {
    let sample = match options.hot_sample {
        Some(sample) => u64::from(sample),
        None => conn.info("stats")?.number(RATE).unwrap_or(0) / HOT_COMMANDS,
    };
    let (seconds, sample) = (options.hot.to_string(), sample.max(1).to_string());
    let words = [
        "HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "COUNT", HOT_KEYS, "DURATION", &seconds,
        "SAMPLE", &sample,
    ];
    let begun = conn.ask(&words);
    let running = collected(conn)?.filter(|hot| hot.active);
    match (begun, running) {
        (Ok(_), Some(hot)) => Ok(Collection::Own {
            began_ms: hot.began_ms,
        }),
        // Somebody has ended it at once.
        (Ok(_), None) => Ok(Collection::OfAnother),
        (Err(_), Some(_)) => Ok(Collection::OfAnother),
        (Err(error), None) => Err(error),
    }
}

/// Waits for the end of the own collection, and leaves nothing of it to the server.
fn end_collection(conn: &mut Conn, began_ms: u64, stop: &Stop) -> Result<Option<Hot>> {
    loop {
        let found = collected(conn)?;
        match found {
            Some(hot) if hot.active && hot.began_ms == began_ms => {
                stop.check()?;
                sleep(POLL, stop);
            }
            Some(hot) if hot.began_ms == began_ms => {
                // The server refuses that if another has begun by now.
                conn.ask_maybe(&["HOTKEYS", "RESET"])?;
                return Ok(Some(hot));
            }
            // Another client's has taken its place.
            other => return Ok(other),
        }
    }
}

/// Has the server scan its keys, or waits for a scan that runs.
fn space(conn: &mut Conn, options: &Options, stop: &Stop, tell: Progress<'_>) -> Result<Space> {
    let mut own = None;
    if !options.last {
        match conn.ask(&options.start()) {
            Ok(_) => own = Some(progress(&conn.ask(&["BIGKEYS", "STATUS"])?)?.3),
            Err(Error::Refused(error)) if error.contains("already in progress") => {
                log::info!("another client has begun a scan: waiting for that one");
            }
            Err(error) => return Err(error),
        }
    }
    loop {
        let reply = conn.ask(&["BIGKEYS", "STATUS"])?;
        if reply == Value::Null {
            let none = "no scan has run since the start of the server: leave --last out";
            return Err(Error::Refused(none.to_owned()));
        }
        let (state, scanned, expected, began_ms) = progress(&reply)?;
        if !["starting", "running"].contains(&state.as_str()) {
            break;
        }
        tell(scanned, expected);
        sleep(POLL, stop);
        if let Err(stopped) = stop.check() {
            if own == Some(began_ms) {
                conn.ask_maybe(&["BIGKEYS", "STOP"])?;
            }
            return Err(stopped);
        }
    }
    let space = Space::decode(&conn.ask(&["BIGKEYS", "GET"])?)?;
    match space.state.as_str() {
        "failed" => Err(Error::Refused(format!("the scan failed: {}", space.error))),
        _ => Ok(space),
    }
}
