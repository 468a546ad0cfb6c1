//! Kind and abilities of the two servers, and their keys.

use super::Server;
use super::Stop;
use super::conn::{Conn, Info};
use super::elements::Abilities;
use super::error::{Error, Result};
use super::mapping::{Mapping, pattern};
use super::options::Endpoint;
use crate::base::num;
use crate::resp::Value;

/// COUNT of one SCAN step.
const SCAN_COUNT: &str = "1000";

/// INFO of a server, if it is of the wanted kind.
pub(super) fn check_server(conn: &mut Conn, endpoint: &Endpoint, wanted: Server) -> Result<Info> {
    let about = conn.info("all")?;
    let kind = match (about.get("kedis_version"), about.get("redis_version")) {
        (Some(_), _) => Server::Kedis,
        (None, Some(_)) => Server::Redis,
        _ => {
            return Err(Error::Refused(format!(
                "the {endpoint} does not say what it is: INFO has no redis_version"
            )));
        }
    };
    match kind == wanted {
        true => Ok(about),
        false => Err(Error::Refused(format!(
            "the {endpoint} is a {kind}, and this tool wants a {wanted}: from Redis to Kedis it is redis_to_kedis, from Kedis to Redis kedis_to_redis, between two Kedis kedis_port"
        ))),
    }
}

/// Abilities of a target.
pub(super) fn abilities(target: &mut Conn, about: &Info) -> Result<Abilities> {
    let version = about.get("redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Ok(Abilities {
        set_pxat: version >= (6, 2),
        stream_counters: version >= (7, 0),
        field_times: has_command(target, "HPEXPIREAT")?,
        member_times: has_command(target, "SPEXPIREAT")?,
    })
}

/// Whether a server has a command; false if it refuses COMMAND INFO.
pub(super) fn has_command(conn: &mut Conn, name: &str) -> Result<bool> {
    let info = conn.ask_maybe(&["COMMAND", "INFO", name])?;
    let info = info.as_ref().and_then(Value::as_slice);
    Ok(info.is_some_and(|info| !matches!(info, [Value::Null] | [])))
}

/// A DB in INFO.
#[derive(Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// The DB.
    pub db: u64,
    /// Number of keys.
    pub keys: u64,
    /// Hashes with field expiry.
    pub timed_hashes: u64,
}

impl Keyspace {
    /// Parses a line such as `db0:keys=1,expires=0,avg_ttl=0,subexpiry=0`.
    fn parse(line: &str) -> Option<Keyspace> {
        let (db, figures) = line.strip_prefix("db")?.split_once(':')?;
        let figure = |names: &[&str]| {
            let mut figures = figures.split(',').filter_map(|one| one.split_once('='));
            let found = figures.find(|(name, _)| names.contains(name));
            found.and_then(|(_, n)| num::parse_u64(n.as_bytes()))
        };
        Some(Keyspace {
            db: num::parse_u64(db.as_bytes())?,
            keys: figure(&["keys"])?,
            // The names in Redis and in Valkey.
            timed_hashes: figure(&["subexpiry", "keys_with_volatile_items"]).unwrap_or(0),
        })
    }
}

/// The DBs of a server that have keys.
pub fn keyspaces(conn: &mut Conn) -> Result<Vec<Keyspace>> {
    let info = conn.info("keyspace")?;
    Ok(info.lines().filter_map(Keyspace::parse).collect())
}

/// Calls `each` with the keys of a DB that begin with `prefix`, a few at a time, until
/// it returns false. Leaves the connection in any DB.
pub fn scan(
    conn: &mut Conn,
    db: u64,
    prefix: &[u8],
    stop: &Stop,
    mut each: impl FnMut(&mut Conn, Vec<Vec<u8>>) -> Result<bool>,
) -> Result<()> {
    let mut cursor = 0;
    loop {
        stop.check()?;
        // `each` may have selected another DB.
        conn.ask(&["SELECT", &db.to_string()])?;
        let (next, keys) = scan_step(conn, cursor, prefix)?;
        cursor = next;
        if !keys.is_empty() && !each(conn, keys)? || cursor == 0 {
            return Ok(());
        }
    }
}

/// One SCAN step in the connection's DB: the next cursor, and the keys that begin with
/// `prefix`.
pub(super) fn scan_step(
    conn: &mut Conn,
    cursor: u64,
    prefix: &[u8],
) -> Result<(u64, Vec<Vec<u8>>)> {
    let malformed = || Error::Refused("unexpected reply to SCAN".into());
    let (cursor, matching) = (cursor.to_string(), pattern(prefix));
    let args: [&[u8]; 6] = [
        b"SCAN",
        cursor.as_bytes(),
        b"MATCH",
        &matching,
        b"COUNT",
        SCAN_COUNT.as_bytes(),
    ];
    let Value::Array(answer) = conn.ask(&args)? else {
        return Err(malformed());
    };
    let Ok([next, Value::Array(keys)]) = <[Value; 2]>::try_from(answer) else {
        return Err(malformed());
    };
    let keys = keys.into_iter().map(|key| match key {
        Value::Bulk(key) => Ok(key),
        _ => Err(malformed()),
    });
    let keys: Vec<Vec<u8>> = keys.collect::<Result<_>>()?;
    let next = next.as_bytes().and_then(num::parse_u64);
    Ok((next.ok_or_else(malformed)?, keys))
}

/// Whether the target has no key that a copy could write.
pub fn is_free(target: &mut Conn, mapping: &Mapping, stop: &Stop) -> Result<bool> {
    for db in target_dbs(target, mapping)? {
        for prefix in mapping.target_prefixes() {
            let mut found = false;
            scan(target, db, &prefix, stop, |_, _| {
                found = true;
                Ok(false)
            })?;
            if found {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The DBs of the target to which keys are copied.
fn target_dbs(target: &mut Conn, mapping: &Mapping) -> Result<Vec<u64>> {
    match mapping.dbs() {
        Some(dbs) => Ok(dbs.values().copied().collect()),
        None => Ok(keyspaces(target)?.iter().map(|known| known.db).collect()),
    }
}

/// Removes all keys from the target that the copy could have written, in these DBs or in
/// all.
pub(super) fn clear_keys(
    target: &mut Conn,
    mapping: &Mapping,
    dbs: Option<&[u64]>,
    stop: &Stop,
) -> Result<()> {
    let dbs = match dbs {
        Some(dbs) => dbs.to_vec(),
        None => target_dbs(target, mapping)?,
    };
    for db in dbs {
        if mapping.has_all_keys() {
            target.ask(&["SELECT", &db.to_string()])?;
            target.ask(&["FLUSHDB"])?;
            continue;
        }
        for prefix in mapping.target_prefixes() {
            scan(target, db, &prefix, stop, |target, keys| {
                let mut unlink: Vec<&[u8]> = vec![b"UNLINK"];
                unlink.extend(keys.iter().map(Vec::as_slice));
                target.ask(&unlink)?;
                Ok(true)
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_info() {
        let parsed = |line| Keyspace::parse(line).map(|k| (k.db, k.keys, k.timed_hashes));
        let plain = "db0:keys=12,expires=1,avg_ttl=0";
        assert_eq!(parsed(plain), Some((0, 12, 0)));
        let redis = "db15:keys=1,expires=0,avg_ttl=0,subexpiry=2";
        assert_eq!(parsed(redis), Some((15, 1, 2)));
        let valkey = "db3:keys=1,expires=0,avg_ttl=0,keys_with_volatile_items=7";
        assert_eq!(parsed(valkey), Some((3, 1, 7)));
        for other in ["# Keyspace", "", "db:keys=1", "db1:expires=0"] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }
}
