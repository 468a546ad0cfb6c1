//! The findings as a JSON document.

use super::ask::Findings;
use super::findings::{Depth, Hot, Key, Measured, Prefix, Sums, by_prefix};
use serde_json::{Map, Value, json};

/// The document.
pub(super) fn document(found: &Findings) -> Value {
    let space = &found.space;
    let types = space.types.iter().map(|(name, sums)| {
        let mut of = of_sums(sums);
        of.insert("type".into(), json!(name));
        Value::Object(of)
    });
    let mut document = json!({
        "server": found.server,
        "kedis_version": found.version,
        "scan": {
            "state": space.state,
            "began_unix_ms": space.began_ms,
            "duration_ms": space.took_ms,
            "keys_scanned": space.scanned,
            "rows_read": space.rows,
            "keys_estimated": space.estimated,
        },
        "total": of_sums(&space.total),
        "types": types.collect::<Vec<_>>(),
        "prefixes": space.depths.iter().map(of_depth).collect::<Vec<_>>(),
        "biggest_by_bytes": space.by_bytes.iter().map(of_key).collect::<Vec<_>>(),
        "biggest_by_elements": space.by_elements.iter().map(of_key).collect::<Vec<_>>(),
    });
    if let (Some(hot), Value::Object(fields)) = (&found.hot, &mut document) {
        fields.insert("hot".into(), of_hot(hot, found));
    }
    document
}

fn of_sums(sums: &Sums) -> Map<String, Value> {
    let mut fields = Map::new();
    for (name, value) in [
        ("keys", sums.keys),
        ("elements", sums.elements),
        ("bytes", sums.bytes),
    ] {
        fields.insert(name.into(), json!(value));
    }
    fields
}

/// Adds a name: as text, and in hexadecimal digits if it is none.
fn put_name(fields: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if text.as_bytes() != bytes {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        fields.insert(format!("{name}_hex"), json!(hex));
    }
    fields.insert(name.into(), json!(text));
}

fn of_prefix(prefix: &Prefix) -> Value {
    let mut fields = of_sums(&prefix.sums);
    fields.insert("db".into(), json!(prefix.db));
    put_name(&mut fields, "prefix", &prefix.name);
    Value::Object(fields)
}

fn of_depth(depth: &Depth) -> Value {
    json!({
        "depth": depth.depth,
        "biggest": depth.biggest.iter().map(of_prefix).collect::<Vec<_>>(),
        "other_prefixes": depth.others,
        "rest": of_sums(&depth.rest),
    })
}

fn of_key(key: &Key) -> Value {
    let mut fields = Map::new();
    put_name(&mut fields, "key", &key.name);
    for (name, value) in [
        ("db", json!(key.db)),
        ("type", json!(key.kind)),
        ("key_bytes", json!(key.name_bytes)),
        ("bytes", json!(key.bytes)),
        ("elements", json!(key.elements)),
        ("estimated", json!(key.estimated)),
    ] {
        fields.insert(name.into(), value);
    }
    Value::Object(fields)
}

fn of_hot(hot: &Hot, found: &Findings) -> Value {
    let list = |list: &[Measured], name: &str, measure: &str| {
        let one = |(key, value): &Measured| {
            let mut fields = Map::new();
            put_name(&mut fields, name, key);
            fields.insert(measure.into(), json!(value));
            Value::Object(fields)
        };
        Value::Array(list.iter().map(one).collect())
    };
    let separator = &found.space.separator;
    json!({
        "began_unix_ms": hot.began_ms,
        "duration_ms": hot.took_ms,
        "running": hot.active,
        "of_another_client": found.hot_of_another,
        "one_command_in": hot.sample,
        "all_commands_us": hot.all_us,
        "all_commands_bytes": hot.all_bytes,
        "keys_by_us": list(&hot.by_cpu, "key", "us"),
        "keys_by_bytes": list(&hot.by_net, "key", "bytes"),
        "prefixes_by_us": list(&by_prefix(&hot.by_cpu, separator), "prefix", "us"),
        "prefixes_by_bytes": list(&by_prefix(&hot.by_net, separator), "prefix", "bytes"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_have_their_bytes() {
        let mut fields = Map::new();
        put_name(&mut fields, "key", b"a\xFF");
        put_name(&mut fields, "prefix", "ä".as_bytes());
        let text = Value::Object(fields).to_string();
        assert_eq!(
            text,
            "{\"key\":\"a\u{fffd}\",\"key_hex\":\"61ff\",\"prefix\":\"ä\"}"
        );
    }
}
