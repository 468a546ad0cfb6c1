//! All command tables together, found by name.

use super::{Command, FAMILIES};
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// Commands by lower-case name.
pub type ByName = FxHashMap<&'static [u8], Registered>;

/// A command as it stands in the registry.
pub struct Registered {
    /// Its row.
    pub command: &'static Command,
    /// Its number: an index for statistics.
    pub index: usize,
    /// The whole name: `get`, `config|get`.
    pub full_name: String,
    /// Subcommands by lower-case name.
    pub subcommands: ByName,
}

/// See the module.
pub struct Registry {
    by_name: ByName,
    /// Rows in table order.
    order: Vec<&'static str>,
    len: usize,
}

/// Longest name of a command.
const MAX_NAME: usize = 32;

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// The registry.
pub fn registry() -> &'static Registry {
    REGISTRY.get_or_init(|| Registry::new(FAMILIES.iter().copied()))
}

impl Registry {
    fn new(tables: impl Iterator<Item = &'static [Command]>) -> Registry {
        let mut registry = Registry {
            by_name: FxHashMap::default(),
            order: Vec::new(),
            len: 0,
        };
        for command in tables.flatten() {
            let registered = registry.register(command, None);
            registry.order.push(command.name);
            let before = registry.by_name.insert(command.name.as_bytes(), registered);
            assert!(before.is_none(), "two commands named {}", command.name);
        }
        registry
    }

    fn register(&mut self, command: &'static Command, container: Option<&str>) -> Registered {
        let full_name = match container {
            Some(container) => format!("{container}|{}", command.name),
            None => command.name.to_owned(),
        };
        let index = self.len;
        self.len += 1;
        let subcommands = command
            .subcommands
            .iter()
            .map(|sub| (sub.name.as_bytes(), self.register(sub, Some(command.name))))
            .collect();
        Registered {
            command,
            index,
            full_name,
            subcommands,
        }
    }

    /// How many commands and subcommands there are: a bound of their indices.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The command of this name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<&Registered> {
        find_in(&self.by_name, name)
    }

    /// All commands, in table order; subcommands hang on theirs.
    pub fn iter(&self) -> impl Iterator<Item = &Registered> {
        self.order
            .iter()
            .filter_map(|name| self.by_name.get(name.as_bytes()))
    }

    /// All commands and subcommands by index.
    pub fn names(&self) -> Vec<&str> {
        let mut names = vec![""; self.len];
        for registered in self.iter() {
            names[registered.index] = &registered.full_name;
            for sub in registered.subcommands.values() {
                names[sub.index] = &sub.full_name;
            }
        }
        names
    }
}

impl Registered {
    /// The subcommand of this name, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Registered> {
        find_in(&self.subcommands, name)
    }
}

fn find_in<'a>(map: &'a ByName, name: &[u8]) -> Option<&'a Registered> {
    let mut lower = [0u8; MAX_NAME];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    map.get(&*lower)
}
