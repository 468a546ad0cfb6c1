//! Users in files: `user` lines of the configuration, and the file that `aclfile` names.

use super::rules::{self, Defaults, RuleError};
use crate::base::one_line::OneLine;
use crate::commands::table::registry::registry;
use crate::state::Server;
use crate::state::acl::users::Change;
use crate::state::acl::{DEFAULT_USER, Rules, User};
use crate::state::config::{Config, UserLines, read_bounded, replace_file};
use crate::sys::files::open_regular;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why the users of a configuration are not accepted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadUsers {
    /// The parameter to change.
    pub parameter: &'static str,
    /// The user, if it is one of the configuration.
    pub user: Option<String>,
    /// The reason.
    pub reason: String,
}

/// Users by name.
type ByName = BTreeMap<Vec<u8>, Rules>;

/// The default user that a configuration describes without `user` lines.
fn default_user(config: &Config) -> Rules {
    Rules::of_default_user(registry().len(), &config.requirepass.0)
}

/// The file of `aclfile`, if there is one.
pub(super) fn path(config: &Config) -> Option<PathBuf> {
    config.path(&config.aclfile)
}

/// Reads the users that a configuration describes, by `user` lines or by a file.
///
/// # Errors
/// The reason for which a server with this configuration must not start.
pub fn read_users(config: &Config) -> Result<BTreeMap<Vec<u8>, Rules>, BadUsers> {
    let mut users = from_lines(config)?;
    if let Some(path) = path(config) {
        let of_file = |reason| BadUsers {
            parameter: "aclfile",
            user: None,
            reason,
        };
        if !config.users.0.is_empty() {
            let reason = "users are described both by `user` lines and by `aclfile`: only one of them may be given";
            return Err(of_file(reason.to_owned()));
        }
        users = load(&path, config).map_err(|reason| {
            of_file(format!("Aborting startup because of ACL errors: {reason}"))
        })?;
    }
    users
        .entry(DEFAULT_USER.as_bytes().to_vec())
        .or_insert_with(|| default_user(config));
    Ok(users)
}

fn from_lines(config: &Config) -> Result<ByName, BadUsers> {
    let defaults = Defaults::of(config);
    let mut users = ByName::new();
    for (name, words) in &config.users.0 {
        let shown = String::from_utf8_lossy(name).into_owned();
        let bad = |reason| BadUsers {
            parameter: "user",
            user: Some(shown.clone()),
            reason,
        };
        if rules::is_bad_name(name) {
            return Err(bad("Spaces not allowed in ACL usernames".to_owned()));
        }
        // The word with the parenthesis may be a password, so it is not shown.
        let joined = rules::join_selectors(words)
            .map_err(|_| bad("Unmatched parenthesis in selector definition".to_owned()))?;
        let mut user = defaults.user();
        for rule in joined {
            // The rule may be a password, so it is not shown.
            rules::apply(&mut user, &rule, defaults).map_err(|error| {
                // It may stand where the name is missing.
                let name = rules::shown(name);
                let name = String::from_utf8_lossy(&name);
                bad(format!(
                    "Error loading an ACL rule for the user named '{name}': {error}"
                ))
            })?;
        }
        if !user.enabled {
            log::info!(
                "The user '{shown}' is disabled: its description has no 'on'. Make sure that this is intended."
            );
        }
        users.insert(name.clone(), user);
    }
    Ok(users)
}

/// Reads an ACL file.
fn load(path: &Path, config: &Config) -> Result<ByName, String> {
    let opening = |error: io::Error| {
        format!(
            "Error loading ACLs, opening file '{}': {error}",
            path.display()
        )
    };
    // A pipe or a terminal would make the server wait for others.
    let text = open_regular(path).and_then(read_bounded);
    let text = text.map_err(opening)?;
    parse(&text, &path.display().to_string(), Defaults::of(config))
}

/// The users that the lines of a file describe.
///
/// # Errors
/// All that is wrong with it, in one line.
fn parse(text: &[u8], path: &str, defaults: Defaults) -> Result<ByName, String> {
    let (mut users, mut errors) = (ByName::new(), String::new());
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let number = number + 1;
        match parse_line(line, &format!("{path}:{number}"), defaults) {
            Ok((name, user)) => {
                let shown = String::from_utf8_lossy(name).into_owned();
                if users.insert(name.to_vec(), user).is_some() {
                    let error =
                        format!("WARNING: Duplicate user '{shown}' found on line {number}. ");
                    errors.push_str(&error);
                }
            }
            Err(error) => errors.push_str(&error),
        }
        if errors.len() > LONGEST_ERRORS {
            break;
        }
    }
    match errors.is_empty() {
        true => Ok(users),
        false => Err(errors
            + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"),
    }
}

/// Bytes of errors after which a file is read no further.
const LONGEST_ERRORS: usize = 16 << 10;

fn parse_line<'l>(
    line: &'l [u8],
    place: &str,
    defaults: Defaults,
) -> Result<(&'l [u8], Rules), String> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [b"user", name, words @ ..] = words.as_slice() else {
        return Err(format!(
            "{place} should start with user keyword followed by the username. "
        ));
    };
    if rules::is_bad_name(name) {
        let name = rules::shown_name(name);
        let name = OneLine(String::from_utf8_lossy(&name));
        return Err(format!(
            "'{place}: username '{name}' contains invalid characters. "
        ));
    }
    let joined = rules::join_selectors(words)
        .map_err(|_| format!("{place}: Unmatched parenthesis in selector definition. "))?;
    let (mut user, mut errors, mut is_wrong) = (defaults.user(), String::new(), false);
    for rule in joined {
        let rule = rule.trim_ascii();
        match rules::apply(&mut user, rule, defaults) {
            Ok(()) => {}
            // The name of a command or category is no secret, but a selector may hold one.
            Err(error @ RuleError::Unknown) => {
                let rule = rules::shown(rule);
                let rule = OneLine(String::from_utf8_lossy(&rule));
                errors += &format!("{place}: Error in applying operation '{rule}': {error}. ");
            }
            // Later rules may be wrong because of this one.
            Err(error) if !is_wrong => {
                is_wrong = true;
                errors += &format!("{place}: {error}. ");
            }
            Err(_) => {}
        }
    }
    match errors.is_empty() {
        true => Ok((name, user)),
        false => Err(errors),
    }
}

/// Replaces the users of a server by those of its ACL file.
///
/// # Errors
/// All that is wrong with the file; nothing has changed then.
pub(super) fn reload(
    server: &Server,
    path: &Path,
) -> Result<(Vec<Arc<User>>, Vec<Change>), String> {
    let config = server.config.load();
    let mut users = load(path, &config)?;
    users
        .entry(DEFAULT_USER.as_bytes().to_vec())
        .or_insert_with(|| default_user(&config));
    Ok(server.users.replace(users))
}

/// The line of a user.
pub(super) fn line(user: &User) -> Vec<u8> {
    line_of(user.name(), &user.rules())
}

fn line_of(name: &[u8], rules: &Rules) -> Vec<u8> {
    [b"user ", name, b" ", &*rules.text()].concat()
}

/// Writes the users into an ACL file, which is replaced as a whole or not at all.
pub(super) fn save(server: &Server, path: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    for user in server.users.all() {
        text.extend(line(&user));
        text.push(b'\n');
    }
    replace_file(path, &text)
}

/// The users of a server as the `user` lines of its configuration; none if they stand in a file
/// of their own, or if there is only the default user as the other parameters describe it.
pub(in crate::commands) fn as_lines(server: &Server, config: &Config) -> UserLines {
    let users = server.users.all();
    let is_usual = || users.len() == 1 && *users[0].rules() == default_user(config);
    if path(config).is_some() || is_usual() {
        return UserLines::default();
    }
    let lines = users
        .iter()
        .map(|user| (user.name().to_vec(), words(&user.rules())));
    UserLines(lines.collect())
}

/// The words of a `user` line behind the name.
fn words(rules: &Rules) -> Vec<Vec<u8>> {
    let text = rules.text();
    text.split(|byte| *byte == b' ').map(Vec::from).collect()
}

#[cfg(test)]
mod tests;
