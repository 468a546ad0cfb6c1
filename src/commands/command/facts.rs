//! Compares the command table with facts that clients rely on, kept in
//! `tests/fixtures/commands.tsv`.

use super::super::{Flags, Handler, KeyFlags, KeySpec};
use super::{categories, describe};
use crate::commands::table::keys::{Begin, Find};
use crate::commands::table::migrated::{Migrated, Part};
use crate::commands::table::registry::{Registered, registry};
use crate::commands::table::spec::Group;
use std::collections::{BTreeMap, BTreeSet};

const FACTS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/commands.tsv"
));

/// Flags in the facts that the table does not have.
const UNKNOWN_FLAGS: [&str; 4] = [
    "experimental",
    "protected",
    "sentinel",
    "touches_arbitrary_keys",
];

/// Commands whose key specs are more exact than those of the facts, or whose keys only a
/// function finds.
const OTHER_SPECS: [&str; 2] = ["sort", "sort_ro"];

/// Commands of whose keys COMMAND INFO does not say all: the key of MIGRATE may be the beginning
/// of keys, and claims return entries.
const UNTOLD_FLAGS: [&str; 3] = ["migrate", "xautoclaim", "xclaim"];

type Row = BTreeMap<&'static str, String>;

fn facts() -> BTreeMap<&'static str, Vec<&'static str>> {
    FACTS
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("name\t"))
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            (fields[0], fields)
        })
        .collect()
}

fn sorted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let set: BTreeSet<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
    set.into_iter().collect::<Vec<_>>().join(",")
}

fn spec_text(spec: &KeySpec) -> String {
    let begin = match spec.begin {
        Begin::Index(index) => format!("i{index}"),
        Begin::Keyword(word, from) => format!("k{word}@{from}"),
        Begin::Unknown => "?".to_owned(),
    };
    let find = match spec.find {
        Find::Range { last, step, limit } => format!("range{last}/{step}/{limit}"),
        Find::KeyNum { at, first, step } => format!("keynum{at}/{first}/{step}"),
        Find::Unknown => "?".to_owned(),
    };
    let flags = describe::key_flag_names(spec.flags)
        .join("+")
        .to_uppercase();
    format!("{begin}:{find}:{}", sorted(flags.split('+')))
}

fn ours(registered: &'static Registered) -> Row {
    let command = registered.command;
    let mut flags = describe::flag_names(command);
    flags.retain(|name| *name != "movablekeys");
    if command.flags.contains(Flags::MAY_REPLICATE) {
        // Not among the flags that clients see.
        flags.push("may_replicate");
    }
    let specs: Vec<String> = command.keys.iter().map(spec_text).collect();
    Row::from([
        ("arity", command.arity.to_string()),
        ("since", command.since.to_owned()),
        ("group", command.group.name().replace('-', "_")),
        ("flags", sorted(flags)),
        ("categories", sorted(explicit_categories(registered))),
        ("keys", specs.join(" ")),
    ])
}

/// The categories that do not follow from flags, or that the row names itself.
fn explicit_categories(registered: &'static Registered) -> Vec<&'static str> {
    const BY_FLAGS: [&str; 8] = [
        "read",
        "write",
        "fast",
        "slow",
        "blocking",
        "admin",
        "dangerous",
        "pubsub",
    ];
    let command = registered.command;
    let all = categories::of(command);
    let stated = |name: &&str| !BY_FLAGS.contains(name) || command.categories.contains(name);
    all.into_iter().filter(|name| stated(name)).collect()
}

fn theirs(fields: &[&'static str]) -> Row {
    let field = |i: usize| fields.get(i).copied().unwrap_or_default();
    let flags = field(4).split(',').filter(|f| !UNKNOWN_FLAGS.contains(f));
    let specs: Vec<String> = field(6)
        .split(' ')
        .filter(|spec| !spec.is_empty())
        .map(|spec| {
            let (place, flags) = spec.rsplit_once(':').unwrap_or((spec, ""));
            format!("{place}:{}", sorted(flags.split('+')))
        })
        .collect();
    Row::from([
        ("arity", field(1).to_owned()),
        ("since", field(3).to_owned()),
        ("group", field(2).to_owned()),
        ("flags", sorted(flags)),
        ("categories", sorted(field(5).split(','))),
        ("keys", specs.join(" ")),
    ])
}

/// All rows of the registry, subcommands included.
fn all() -> Vec<&'static Registered> {
    registry()
        .iter()
        .flat_map(|command| std::iter::once(command).chain(command.subcommands.values()))
        .collect()
}

#[test]
fn the_table_agrees_with_the_facts() {
    let facts = facts();
    let mut differences = Vec::new();
    for registered in all().into_iter().filter(|each| !each.is_part) {
        let Some(fields) = facts.get(registered.full_name.as_str()) else {
            continue;
        };
        let (ours, theirs) = (ours(registered), theirs(fields));
        for (what, value) in &ours {
            let exempt = *what == "keys" && OTHER_SPECS.contains(&registered.command.name);
            let expected = theirs.get(what).map(String::as_str).unwrap_or_default();
            if value != expected && !exempt {
                differences.push(format!(
                    "{} {what}: {value:?}, should be {expected:?}",
                    registered.full_name
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn rows_are_complete_and_consistent() {
    for registered in all() {
        let command = registered.command;
        let name = &registered.full_name;
        assert!(!command.summary.is_empty(), "{name} has no summary");
        assert!(!command.summary.ends_with('.'), "{name}: no full stop");
        assert_eq!(command.name, command.name.to_lowercase(), "{name}");
        assert_ne!(command.arity, 0, "{name}");
        let is_container = matches!(command.handler, Handler::Container);
        assert!(
            !is_container || !command.subcommands.is_empty(),
            "{name} has no subcommands"
        );
        let writes = command.keys.iter().any(|spec| {
            spec.flags
                .intersects(KeyFlags::OW | KeyFlags::RM | KeyFlags::INSERT | KeyFlags::DELETE)
        });
        assert!(!writes || command.is_write(), "{name} says it writes keys");
        let keyless = matches!(command.handler, Handler::Session(_));
        let names_keys = |spec: &KeySpec| !spec.flags.contains(KeyFlags::NOT_KEY);
        assert!(
            !keyless || !command.keys.iter().any(names_keys) || command.group == Group::Scripting,
            "{name} has keys that its handler cannot touch"
        );
        for spec in command.keys {
            let is_untold = UNTOLD_FLAGS.iter().any(|untold| *untold == name);
            let varies = spec.flags.contains(KeyFlags::VARIABLE_FLAGS) || is_untold;
            assert!(varies || spec.flags_of.is_none(), "{name}: flags of keys");
            assert!(
                spec.flags_of.is_some() || !spec.flags.contains(KeyFlags::VARIABLE_FLAGS),
                "{name}: flags of keys"
            );
        }
        match command.migrated {
            Migrated::Keys(Part::NeedsAll) | Migrated::Nothing | Migrated::Message => {}
            Migrated::Keys(_) => {
                let many = |spec: &KeySpec| !matches!(spec.find, Find::Range { last: 0, .. });
                let has_several = command.keys.len() > 1 || command.keys.iter().any(many);
                assert!(has_several, "{name} has no part of its keys");
            }
            Migrated::Expiring(_) | Migrated::Payload | Migrated::MovedKey => {
                let keys: Vec<String> = command.keys.iter().map(spec_text).collect();
                let is_one = keys.len() == 1 && keys[0].starts_with("i1:range0/1/0:");
                assert!(is_one, "{name}: {keys:?} is not one key behind the name");
            }
            Migrated::ExpiringPairs => {
                let keys: Vec<String> = command.keys.iter().map(spec_text).collect();
                let counted = keys.len() == 1 && keys[0].starts_with("i1:keynum0/1/2:");
                assert!(counted, "{name}: {keys:?} are not counted pairs");
            }
            Migrated::CopiedKey => assert_eq!(command.keys.len(), 2, "{name}"),
            Migrated::ClearedDb
            | Migrated::ClearedDbs
            | Migrated::SwappedDbs
            | Migrated::Script => assert!(command.keys.is_empty(), "{name} has keys"),
        }
        if command.flags.contains(Flags::DENYOOM) {
            // What it takes is its client's.
            let is_kept = name == "himport|prepare";
            let takes = command.is_write() || is_kept;
            assert!(takes, "{name} takes memory but does not write");
        }
    }
}
