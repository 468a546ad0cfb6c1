//! What the server says of its keys, decoded from the replies of BIGKEYS and HOTKEYS.

use crate::migrate::{Error, Result};
use crate::resp::Value;
use std::collections::BTreeMap;

/// Sums over keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) keys: u64,
    pub(super) elements: u64,
    pub(super) bytes: u64,
}

/// A prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) db: u64,
    pub(super) name: Vec<u8>,
    pub(super) sums: Sums,
}

/// The prefixes of a depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Depth {
    pub(super) depth: u64,
    pub(super) biggest: Vec<Prefix>,
    pub(super) others: u64,
    pub(super) rest: Sums,
}

/// A big key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) db: u64,
    pub(super) kind: String,
    pub(super) name: Vec<u8>,
    /// Bytes of the whole name.
    pub(super) name_bytes: u64,
    pub(super) bytes: u64,
    pub(super) elements: u64,
    pub(super) estimated: bool,
}

/// What a scan has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) state: String,
    pub(super) error: String,
    pub(super) began_ms: u64,
    pub(super) took_ms: u64,
    pub(super) expected: u64,
    pub(super) scanned: u64,
    pub(super) rows: u64,
    pub(super) prefix: Vec<u8>,
    pub(super) separator: Vec<u8>,
    pub(super) total: Sums,
    pub(super) estimated: u64,
    pub(super) types: Vec<(String, Sums)>,
    pub(super) depths: Vec<Depth>,
    pub(super) by_bytes: Vec<Key>,
    pub(super) by_elements: Vec<Key>,
}

/// A name and what it measures.
pub(super) type Measured = (Vec<u8>, u64);

/// What a collection of hot keys has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hot {
    pub(super) active: bool,
    pub(super) began_ms: u64,
    pub(super) took_ms: u64,
    /// One command in so many was looked at.
    pub(super) sample: u64,
    /// Of all commands with keys.
    pub(super) all_us: u64,
    pub(super) all_bytes: u64,
    /// Of the commands that were looked at.
    pub(super) by_cpu: Vec<Measured>,
    pub(super) by_net: Vec<Measured>,
}

/// The fields of a map, which is an array of names and values in RESP2.
struct Fields<'v> {
    of: &'static str,
    values: BTreeMap<&'v [u8], &'v Value>,
}

impl<'v> Fields<'v> {
    fn of(of: &'static str, value: &'v Value) -> Result<Fields<'v>> {
        let values = pairs(of, value)?.into_iter().collect();
        Ok(Fields { of, values })
    }

    fn get(&self, name: &str) -> Result<&'v Value> {
        let found = self.values.get(name.as_bytes()).copied();
        found.ok_or_else(|| unexpected(self.of, name))
    }

    fn int(&self, name: &str) -> Result<u64> {
        let number = self.get(name)?.as_i64();
        let number = number.and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| unexpected(self.of, name))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let bytes = self.get(name)?.as_bytes();
        let bytes = bytes.ok_or_else(|| unexpected(self.of, name))?;
        Ok(bytes.to_vec())
    }

    fn text(&self, name: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes(name)?).into_owned())
    }

    fn list(&self, name: &str) -> Result<&'v [Value]> {
        let list = self.get(name)?.as_slice();
        list.ok_or_else(|| unexpected(self.of, name))
    }

    fn sums(&self) -> Result<Sums> {
        Ok(Sums {
            keys: self.int("keys")?,
            elements: self.int("elements")?,
            bytes: self.int("bytes")?,
        })
    }
}

fn unexpected(of: &str, what: &str) -> Error {
    Error::Refused(format!("unexpected reply to {of}: {what}"))
}

/// The names and values of a map in the order sent.
fn pairs<'v>(of: &'static str, value: &'v Value) -> Result<Vec<(&'v [u8], &'v Value)>> {
    let name = |name: &'v Value| name.as_bytes().ok_or_else(|| unexpected(of, "no name"));
    match value {
        Value::Map(pairs) => pairs
            .iter()
            .map(|(key, value)| Ok((name(key)?, value)))
            .collect(),
        Value::Array(items) => {
            let pair = |pair: &'v [Value]| match pair {
                [key, value] => Ok((name(key)?, value)),
                _ => Err(unexpected(of, "an odd number of words")),
            };
            items.chunks(2).map(pair).collect()
        }
        _ => Err(unexpected(of, "no map")),
    }
}

const BIGKEYS: &str = "BIGKEYS";
const HOTKEYS: &str = "HOTKEYS GET";

/// How far a scan is: its state, the keys scanned and expected, when it began.
pub(super) fn progress(reply: &Value) -> Result<(String, u64, u64, u64)> {
    let fields = Fields::of(BIGKEYS, reply)?;
    Ok((
        fields.text("state")?,
        fields.int("keys-scanned")?,
        fields.int("keys-expected")?,
        fields.int("start-time-unix-ms")?,
    ))
}

impl Space {
    /// Reads the reply of BIGKEYS GET.
    pub(super) fn decode(reply: &Value) -> Result<Space> {
        let fields = Fields::of(BIGKEYS, reply)?;
        let types = pairs(BIGKEYS, fields.get("types")?)?;
        let of_type = |(name, sums): (&[u8], &Value)| -> Result<_> {
            let name = String::from_utf8_lossy(name).into_owned();
            Ok((name, Fields::of(BIGKEYS, sums)?.sums()?))
        };
        Ok(Space {
            state: fields.text("state")?,
            error: fields.text("error")?,
            began_ms: fields.int("start-time-unix-ms")?,
            took_ms: fields.int("duration-ms")?,
            expected: fields.int("keys-expected")?,
            scanned: fields.int("keys-scanned")?,
            rows: fields.int("rows-read")?,
            prefix: fields.bytes("prefix")?,
            separator: fields.bytes("separator")?,
            total: fields.sums()?,
            estimated: fields.int("keys-estimated")?,
            types: types.into_iter().map(of_type).collect::<Result<_>>()?,
            depths: fields
                .list("prefixes")?
                .iter()
                .map(depth)
                .collect::<Result<_>>()?,
            by_bytes: keys(&fields, "biggest-by-bytes", |key| key.bytes)?,
            by_elements: keys(&fields, "biggest-by-elements", |key| key.elements)?,
        })
    }
}

fn depth(value: &Value) -> Result<Depth> {
    let fields = Fields::of(BIGKEYS, value)?;
    let prefix = |value: &Value| -> Result<Prefix> {
        let fields = Fields::of(BIGKEYS, value)?;
        Ok(Prefix {
            db: fields.int("db")?,
            name: fields.bytes("prefix")?,
            sums: fields.sums()?,
        })
    };
    Ok(Depth {
        depth: fields.int("depth")?,
        biggest: fields
            .list("biggest")?
            .iter()
            .map(prefix)
            .collect::<Result<_>>()?,
        others: fields.int("other-prefixes")?,
        rest: Fields::of(BIGKEYS, fields.get("rest")?)?.sums()?,
    })
}

/// The keys of all types, those with most first.
fn keys(fields: &Fields<'_>, list: &str, by: fn(&Key) -> u64) -> Result<Vec<Key>> {
    let mut found = Vec::new();
    for (kind, keys) in pairs(BIGKEYS, fields.get(list)?)? {
        for key in keys.as_slice().ok_or_else(|| unexpected(BIGKEYS, list))? {
            let fields = Fields::of(BIGKEYS, key)?;
            found.push(Key {
                db: fields.int("db")?,
                kind: String::from_utf8_lossy(kind).into_owned(),
                name: fields.bytes("key")?,
                name_bytes: fields.int("key-bytes")?,
                bytes: fields.int("bytes")?,
                elements: fields.int("elements")?,
                estimated: fields.int("estimated")? > 0,
            });
        }
    }
    found.sort_by(|a, b| (by(b), &a.name, a.db).cmp(&(by(a), &b.name, b.db)));
    Ok(found)
}

impl Hot {
    /// Reads the reply of HOTKEYS GET; `None` if nothing was collected.
    pub(super) fn decode(reply: &Value) -> Result<Option<Hot>> {
        let found = match reply {
            Value::Null => return Ok(None),
            reply => reply.as_slice().and_then(<[Value]>::first),
        };
        let fields = Fields::of(
            HOTKEYS,
            found.ok_or_else(|| unexpected(HOTKEYS, "no array"))?,
        )?;
        // Another client may have asked for one of the two only.
        let list = |name: &str| match fields.values.contains_key(name.as_bytes()) {
            true => measured(fields.get(name)?),
            false => Ok(Vec::new()),
        };
        Ok(Some(Hot {
            active: fields.int("tracking-active")? > 0,
            began_ms: fields.int("collection-start-time-unix-ms")?,
            took_ms: fields.int("collection-duration-ms")?,
            sample: fields.int("sample-ratio")?.max(1),
            all_us: fields.int("all-commands-all-slots-us")?,
            all_bytes: fields.int("net-bytes-all-commands-all-slots")?,
            by_cpu: list("by-cpu-time-us")?,
            by_net: list("by-net-bytes")?,
        }))
    }
}

fn measured(list: &Value) -> Result<Vec<Measured>> {
    let number = |(name, value): (&[u8], &Value)| {
        let value = value.as_i64().and_then(|value| u64::try_from(value).ok());
        let value = value.ok_or_else(|| unexpected(HOTKEYS, "no number"))?;
        Ok((name.to_vec(), value))
    };
    pairs(HOTKEYS, list)?.into_iter().map(number).collect()
}

/// Adds up keys by the prefix that ends at their first separator, those with most first. Keys
/// without one count under the empty prefix.
pub(super) fn by_prefix(keys: &[Measured], separator: &[u8]) -> Vec<Measured> {
    let mut sums = BTreeMap::<&[u8], u64>::new();
    for (key, measure) in keys {
        let end = memchr::memmem::find(key, separator).map(|at| at + separator.len());
        let prefix = end.and_then(|end| key.get(..end)).unwrap_or_default();
        *sums.entry(prefix).or_default() += measure;
    }
    let mut sums: Vec<_> = sums
        .into_iter()
        .map(|(name, sum)| (name.to_vec(), sum))
        .collect();
    sums.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_keys_are_added_up_by_prefix() {
        let keys = [("a:1", 5), ("b", 7), ("a:2:x", 4), ("c::d", 1)];
        let keys = keys.map(|(key, measure)| (key.as_bytes().to_vec(), measure));
        let shown = |separator: &[u8]| {
            let sums = by_prefix(&keys, separator).into_iter();
            let sums = sums.map(|(name, sum)| (String::from_utf8(name).unwrap(), sum));
            sums.collect::<Vec<_>>()
        };
        let named = |name: &str, sum| (name.to_owned(), sum);
        assert_eq!(shown(b":"), [named("a:", 9), named("", 7), named("c:", 1)]);
        assert_eq!(shown(b"::"), [named("", 16), named("c::", 1)]);
    }

    #[test]
    fn replies_that_are_none_are_refused() {
        for reply in [
            Value::Int(1),
            Value::Null,
            Value::Array(vec![Value::Int(1)]),
        ] {
            assert!(Space::decode(&reply).is_err(), "{reply:?}");
            assert!(progress(&reply).is_err(), "{reply:?}");
        }
        assert_eq!(Hot::decode(&Value::Null).unwrap(), None);
        for reply in [
            Value::Int(1),
            Value::Array(vec![]),
            Value::Array(vec![Value::Null]),
        ] {
            assert!(Hot::decode(&reply).is_err(), "{reply:?}");
        }
    }
}
