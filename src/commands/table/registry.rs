//! The registry: the rows of all families, by name.

use crate::commands::table::syntax::{self, Argument};
use crate::commands::{Command, FAMILIES, Flags};
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// Commands by lower-case name.
pub type ByName = FxHashMap<&'static [u8], Registered>;

/// A row in the registry.
pub struct Registered {
    /// The row.
    pub command: &'static Command,
    /// The number of the command, from 0 on: the index of its statistics.
    pub index: usize,
    /// The name as COMMAND LIST has it: `get`, `config|get`.
    pub full_name: String,
    /// The arguments behind the name, parsed from the row.
    pub arguments: Vec<Argument>,
    /// Subcommands by lower-case name.
    pub subcommands: ByName,
    /// Whether it is a subcommand of a [`Flags::PLAIN`] command. It has the name and the number
    /// of that command.
    pub is_part: bool,
}

/// All commands, by name.
pub struct Registry {
    by_name: ByName,
    /// The names of the commands in table order.
    order: Vec<&'static str>,
    len: usize,
}

/// Bytes of the longest name of a command.
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
            let registered = registry.register(command);
            registry.order.push(command.name);
            let before = registry.by_name.insert(command.name.as_bytes(), registered);
            assert!(before.is_none(), "two commands named {}", command.name);
        }
        registry
    }

    fn register(&mut self, command: &'static Command) -> Registered {
        let index = self.next_index();
        let is_plain = command.flags.contains(Flags::PLAIN);
        let subcommands = command.subcommands.iter().map(|sub| {
            let (index, full_name) = match is_plain {
                true => (index, command.name.to_owned()),
                false => (self.next_index(), format!("{}|{}", command.name, sub.name)),
            };
            let registered = Registered {
                command: sub,
                index,
                full_name,
                arguments: arguments(sub),
                subcommands: ByName::default(),
                is_part: is_plain,
            };
            (sub.name.as_bytes(), registered)
        });
        Registered {
            command,
            index,
            full_name: command.name.to_owned(),
            arguments: arguments(command),
            subcommands: subcommands.collect(),
            is_part: false,
        }
    }

    fn next_index(&mut self) -> usize {
        self.len += 1;
        self.len - 1
    }

    /// The number of commands and subcommands. All indices are below it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no commands.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The command with this name, in upper or lower case.
    pub fn find(&self, name: &[u8]) -> Option<&Registered> {
        find_in(&self.by_name, name)
    }

    /// All commands in table order, without the subcommands.
    pub fn iter(&self) -> impl Iterator<Item = &Registered> {
        self.order
            .iter()
            .filter_map(|name| self.by_name.get(name.as_bytes()))
    }

    /// The full names of all commands and subcommands, by index.
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
    /// The subcommand with this name, in upper or lower case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Registered> {
        find_in(&self.subcommands, name)
    }

    /// Whether it is one command to clients, though it has subcommands here.
    pub fn is_plain(&self) -> bool {
        self.command.flags.contains(Flags::PLAIN)
    }

    /// The subcommand with this name, if clients know of it.
    pub(in crate::commands) fn told_subcommand(&self, name: &[u8]) -> Option<&Registered> {
        self.subcommand(name).filter(|sub| !sub.is_part)
    }

    /// The subcommands that clients know of, in table order.
    pub(in crate::commands) fn told_subcommands(&self) -> Vec<&Registered> {
        let told = self.subcommands.values().filter(|sub| !sub.is_part);
        let mut told: Vec<_> = told.collect();
        told.sort_by_key(|sub| sub.index);
        told
    }
}

fn arguments(command: &Command) -> Vec<Argument> {
    let name = command.name;
    syntax::parse(command.syntax)
        .unwrap_or_else(|left| panic!("the syntax of {name} has no meaning from {left:?} on"))
}

fn find_in<'a>(map: &'a ByName, name: &[u8]) -> Option<&'a Registered> {
    let mut lower = [0u8; MAX_NAME];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    map.get(&*lower)
}
