//! The names by which clients call commands. `rename-command` gives a command another name,
//! or takes its name away.

use crate::commands::table::registry::{Registered, registry};
use crate::state::config::Config;
use rustc_hash::{FxHashMap, FxHashSet};

/// The names that clients call commands by.
pub struct Names {
    /// Lower-case names that do not mean what the registry says: the command that they mean,
    /// or none.
    renamed: FxHashMap<Vec<u8>, Option<&'static Registered>>,
}

impl Names {
    /// The names in a server with this configuration.
    pub fn of(config: &Config) -> Names {
        let mut renamed = FxHashMap::default();
        for (name, new_name) in &config.renames.0 {
            let known = registry().find(name.as_bytes());
            let found = match known {
                Some(_) => {
                    renamed.entry(name.clone().into_bytes()).or_insert(None);
                    known
                }
                // An earlier line has given this name.
                None => renamed.insert(name.clone().into_bytes(), None).flatten(),
            };
            if !new_name.is_empty() {
                renamed.insert(new_name.clone().into_bytes(), found);
            }
        }
        Names { renamed }
    }

    /// The command with this name, in upper or lower case.
    pub fn find(&self, name: &[u8]) -> Option<&'static Registered> {
        if self.renamed.is_empty() {
            return registry().find(name);
        }
        match self.renamed.get(&name.to_ascii_lowercase()) {
            Some(found) => *found,
            None => registry().find(name),
        }
    }

    /// All commands that have a name, in table order, without the subcommands.
    pub fn iter(&self) -> impl Iterator<Item = &'static Registered> {
        let lost = |command: &&Registered| {
            let name = command.full_name.as_bytes();
            self.renamed.contains_key(name) && !self.has_another(command)
        };
        registry().iter().filter(move |command| !lost(command))
    }

    /// Whether the command has a new name.
    fn has_another(&self, command: &Registered) -> bool {
        let mut meant = self.renamed.values().flatten();
        meant.any(|found| found.index == command.index)
    }
}

/// Checks that each command that the configuration renames exists, and that no other command
/// has its new name.
///
/// # Errors
/// The name of the command, and the line of the configuration with the reason.
pub fn check_renames(config: &Config) -> Result<(), (String, String)> {
    let mut taken = FxHashSet::default();
    for (name, new_name) in &config.renames.0 {
        let is_known = registry().find(name.as_bytes()).is_some() || taken.remove(name);
        let reason = if !is_known {
            "there is no such command"
        } else if !new_name.is_empty() && !taken.insert(new_name) {
            "another command has this new name"
        } else {
            let exists = registry().find(new_name.as_bytes()).is_some();
            let mut leaving = config.renames.0.iter();
            let leaves = leaving.any(|(name, _)| name == new_name);
            match exists && !leaves {
                true => "a command has this new name",
                false => continue,
            }
        };
        let text = format!("rename-command {name} {new_name}: {reason}");
        return Err((name.clone(), text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_may_be_renamed() {
        let mut config = Config::default();
        for (from, to) in [("ping", "a"), ("a", "b"), ("get", "a")] {
            config.renames.0.push((from.to_owned(), to.to_owned()));
        }
        assert_eq!(check_renames(&config), Ok(()));
        let names = Names::of(&config);
        let found = |name: &[u8]| names.find(name).map(|found| found.full_name.as_str());
        assert_eq!((found(b"b"), found(b"a")), (Some("ping"), Some("get")));
        assert_eq!((found(b"ping"), found(b"get")), (None, None));
        config.renames.0.push(("c".to_owned(), "d".to_owned()));
        assert!(check_renames(&config).is_err());
    }

    /// The second of these lines took away the name that the first one gave.
    #[test]
    fn names_may_be_swapped() {
        let mut config = Config::default();
        for (from, to) in [("get", "set"), ("set", "get"), ("keys", "")] {
            config.renames.0.push((from.to_owned(), to.to_owned()));
        }
        assert_eq!(check_renames(&config), Ok(()));
        let names = Names::of(&config);
        let found = |name: &[u8]| names.find(name).map(|found| found.full_name.as_str());
        assert_eq!(found(b"GET"), Some("set"));
        assert_eq!(found(b"Set"), Some("get"));
        assert_eq!((found(b"keys"), found(b"del")), (None, Some("del")));
        assert_eq!(names.iter().count(), registry().iter().count() - 1);
    }
}
