//! One command as COMMAND INFO and COMMAND DOCS describe it.

use super::super::{Command, Flags, KeyFlags, KeySpec};
use super::categories;
use crate::commands::table::keys::{Begin, Find};
use crate::commands::table::registry::Registered;
use crate::commands::table::spec::Group;
use crate::commands::table::syntax::{ArgKind, Argument};
use crate::resp::Reply;

/// Names of the flags in replies.
const FLAG_NAMES: [(Flags, &str); 18] = [
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_MONITOR, "skip_monitor"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::ALLOW_BUSY, "allow_busy"),
    (Flags::MOVABLE_KEYS, "movablekeys"),
    (Flags::ASKING, "asking"),
    (Flags::SENTINEL, ""),
];

/// Names of what happens to keys.
const KEY_FLAG_NAMES: [(KeyFlags, &str); 11] = [
    (KeyFlags::RO, "RO"),
    (KeyFlags::RW, "RW"),
    (KeyFlags::OW, "OW"),
    (KeyFlags::RM, "RM"),
    (KeyFlags::ACCESS, "access"),
    (KeyFlags::UPDATE, "update"),
    (KeyFlags::INSERT, "insert"),
    (KeyFlags::DELETE, "delete"),
    (KeyFlags::NOT_KEY, "not_key"),
    (KeyFlags::INCOMPLETE, "incomplete"),
    (KeyFlags::VARIABLE_FLAGS, "variable_flags"),
];

/// First key, last key and step, as clients used them before Redis had key specs. Zeros
/// if the keys cannot be described that way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LegacyRange {
    pub first: i64,
    pub last: i64,
    pub step: i64,
    /// Whether there are keys that the range does not cover.
    pub movable: bool,
}

/// First key, last key and step of a spec that is a range. The last key counts from the
/// command's name, or from the end if negative.
fn plain_range(spec: &KeySpec) -> Option<(i64, i64, i64)> {
    match (spec.begin, spec.find) {
        (Begin::Index(first), Find::Range { last, step, .. }) => {
            let first = first as i64;
            let last = last as i64;
            let last = if last >= 0 { first + last } else { last };
            Some((first, last, step as i64))
        }
        _ => None,
    }
}

pub(super) fn legacy_range(specs: &[KeySpec]) -> LegacyRange {
    let incomplete = specs.iter().any(|s| s.flags.contains(KeyFlags::INCOMPLETE));
    if let [only] = specs
        && let Some((first, last, step)) = plain_range(only)
    {
        return LegacyRange {
            first,
            last,
            step,
            movable: incomplete,
        };
    }
    let mut range = LegacyRange {
        movable: incomplete,
        ..LegacyRange::default()
    };
    for spec in specs {
        // Several specs make one range if each begins where the one before ended.
        match plain_range(spec) {
            Some((first, last, 1)) if range.first == 0 || range.last == first - 1 => {
                if range.first == 0 {
                    range.first = first;
                    range.step = 1;
                }
                range.last = last;
            }
            _ => range.movable = true,
        }
    }
    range
}

fn names<F: Copy>(table: &[(F, &'static str)], has: impl Fn(F) -> bool) -> Vec<&'static str> {
    let set = table
        .iter()
        .filter(|(flag, name)| !name.is_empty() && has(*flag));
    set.map(|(_, name)| *name).collect()
}

/// The flags in the replies of COMMAND.
pub(super) fn flag_names(command: &Command) -> Vec<&'static str> {
    let mut flags = command.flags;
    if legacy_range(command.keys).movable {
        flags |= Flags::MOVABLE_KEYS;
    }
    let mut all = Vec::new();
    if command.is_write() {
        all.push("write");
    }
    // CLUSTER tells of keys and is no reading command to Redis.
    if command.is_read() && command.group != Group::Cluster {
        all.push("readonly");
    }
    all.extend(names(&FLAG_NAMES, |flag| flags.contains(flag)));
    all
}

/// The names of a key spec's flags.
pub(super) fn key_flag_names(flags: KeyFlags) -> Vec<&'static str> {
    names(&KEY_FLAG_NAMES, |flag| flags.contains(flag))
}

fn statuses(reply: &mut Reply, names: &[&str]) {
    reply.set(names.len());
    for name in names {
        reply.simple(name);
    }
}

/// The reply of COMMAND INFO for one command.
pub(super) fn info(reply: &mut Reply, registered: &'static Registered) {
    let command = registered.command;
    let range = legacy_range(command.keys);
    reply.array(10);
    reply.bulk(registered.full_name.as_bytes());
    reply.int(i64::from(command.arity));
    statuses(reply, &flag_names(command));
    reply.int(range.first);
    reply.int(range.last);
    reply.int(range.step);
    let categories: Vec<String> = categories::of(command)
        .iter()
        .map(|name| format!("@{name}"))
        .collect();
    let categories: Vec<&str> = categories.iter().map(String::as_str).collect();
    statuses(reply, &categories);
    reply.set(command.tips.len());
    for tip in command.tips {
        reply.bulk(tip.name().as_bytes());
    }
    reply.set(command.keys.len());
    for spec in command.keys {
        key_spec(reply, spec);
    }
    let subs = registered.told_subcommands();
    match subs.len() {
        0 => reply.set(0),
        some => reply.array(some),
    }
    for sub in subs {
        info(reply, sub);
    }
}

fn key_spec(reply: &mut Reply, spec: &KeySpec) {
    reply.map(3);
    reply.bulk(b"flags");
    statuses(reply, &key_flag_names(spec.flags));
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => typed(reply, "index", &[("index", index as i64)]),
        Begin::Keyword(word, from) => {
            typed_header(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            reply.int(from as i64);
        }
        Begin::Unknown => typed(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => typed(
            reply,
            "range",
            &[
                ("lastkey", last as i64),
                ("keystep", step as i64),
                ("limit", limit as i64),
            ],
        ),
        Find::KeyNum { at, first, step } => typed(
            reply,
            "keynum",
            &[
                ("keynumidx", at as i64),
                ("firstkey", first as i64),
                ("keystep", step as i64),
            ],
        ),
        Find::Unknown => typed(reply, "unknown", &[]),
    }
}

fn typed_header(reply: &mut Reply, kind: &str, fields: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields);
}

fn typed(reply: &mut Reply, kind: &str, fields: &[(&str, i64)]) {
    typed_header(reply, kind, fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.int(*value);
    }
}

/// The reply of COMMAND DOCS for one command.
pub(super) fn docs(reply: &mut Reply, registered: &'static Registered) {
    let command = registered.command;
    let subs = registered.told_subcommands();
    let deprecated = command.deprecated;
    let mut doc_flags = Vec::new();
    if deprecated.is_some() {
        doc_flags.push("deprecated");
    }
    if command.is_internal {
        doc_flags.push("syscmd");
    }
    let fields = 4 + usize::from(!doc_flags.is_empty());
    let fields = fields + 2 * usize::from(deprecated.is_some());
    let fields = fields + usize::from(!command.history.is_empty());
    let fields = fields + usize::from(!registered.arguments.is_empty());
    reply.map(fields + usize::from(!subs.is_empty()));
    text(reply, "summary", command.summary);
    text(reply, "since", command.since);
    text(reply, "group", command.group.name());
    text(reply, "complexity", command.complexity);
    if !doc_flags.is_empty() {
        reply.bulk(b"doc_flags");
        statuses(reply, &doc_flags);
    }
    if let Some(deprecated) = deprecated {
        text(reply, "deprecated_since", deprecated.since);
        text(reply, "replaced_by", deprecated.replaced_by);
    }
    if !command.history.is_empty() {
        reply.bulk(b"history");
        reply.set(command.history.len());
        for (version, change) in command.history {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(change.as_bytes());
        }
    }
    if !registered.arguments.is_empty() {
        reply.bulk(b"arguments");
        arguments(reply, &registered.arguments);
    }
    if subs.is_empty() {
        return;
    }
    reply.bulk(b"subcommands");
    reply.map(subs.len());
    for sub in subs {
        reply.bulk(sub.full_name.as_bytes());
        docs(reply, sub);
    }
}

fn text(reply: &mut Reply, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

fn arguments(reply: &mut Reply, all: &[Argument]) {
    reply.array(all.len());
    for argument in all {
        let is_group = matches!(argument.kind, ArgKind::OneOf | ArgKind::Block);
        let texts = [
            ("name", Some(argument.name.as_str())),
            ("type", Some(argument.kind.name())),
            (
                "display_text",
                (!is_group).then(|| argument.display.unwrap_or(&argument.name)),
            ),
        ];
        let more_texts = [
            ("token", argument.token),
            ("since", argument.since),
            ("deprecated_since", argument.deprecated_since),
        ];
        let flags: Vec<&str> = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ]
        .into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
        .collect();
        let given = |texts: &[(&str, Option<&str>)]| {
            texts.iter().filter(|(_, value)| value.is_some()).count()
        };
        let fields = given(&texts) + given(&more_texts);
        let fields = fields + usize::from(argument.key_spec.is_some());
        reply.map(fields + usize::from(!flags.is_empty()) + usize::from(is_group));
        for (name, value) in texts {
            if let Some(value) = value {
                text(reply, name, value);
            }
        }
        if let Some(spec) = argument.key_spec {
            reply.bulk(b"key_spec_index");
            reply.int(spec as i64);
        }
        for (name, value) in more_texts {
            if let Some(value) = value {
                text(reply, name, value);
            }
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            statuses(reply, &flags);
        }
        if is_group {
            reply.bulk(b"arguments");
            arguments(reply, &argument.parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RO: KeyFlags = KeyFlags::RO;

    #[track_caller]
    fn check(specs: &[KeySpec], expected: (i64, i64, i64, bool)) {
        let range = legacy_range(specs);
        assert_eq!(
            (range.first, range.last, range.step, range.movable),
            expected
        );
    }

    #[test]
    fn ranges_as_old_clients_know_them() {
        check(&[], (0, 0, 0, false));
        check(&[KeySpec::at(1, RO)], (1, 1, 1, false));
        check(&[KeySpec::range(1, -1, 2, RO)], (1, -1, 2, false));
        check(&[KeySpec::at(1, RO), KeySpec::at(2, RO)], (1, 2, 1, false));
        check(
            &[KeySpec::at(2, RO), KeySpec::range(3, -1, 1, RO)],
            (2, -1, 1, false),
        );
        check(
            &[KeySpec::at(1, RO), KeySpec::numkeys(2, RO)],
            (1, 1, 1, true),
        );
        check(&[KeySpec::numkeys(1, RO)], (0, 0, 0, true));
        check(&[KeySpec::at(1, RO), KeySpec::unknown(RO)], (1, 1, 1, true));
    }
}
