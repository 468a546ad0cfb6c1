//! The rules of users as texts: of ACL SETUSER, of `user` lines and of ACL files.

use crate::commands::command::categories;
use crate::commands::table::registry::{Registered, registry};
use crate::commands::table::secrets::REDACTED;
use crate::state::acl::{Access, KeyPattern, PasswordHash, Pattern, Rules, Selector};
use crate::state::config::words;
use std::collections::BTreeSet;

/// Why a rule is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// There is no such command or category.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// It has no meaning.
    #[error("Syntax error")]
    Syntax,
    /// A pattern of keys when all are allowed.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    /// A pattern of channels when all are allowed.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    /// A password that is to be removed is none of the user's.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// It is no hash.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
    )]
    BadHash,
    /// A first argument of a subcommand.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgOfSubcommand,
    /// A DB that no server can have.
    #[error("The provided database ID is out of range")]
    DbOutOfRange,
}

/// What the configuration decides of rules.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Whether new users and selectors may use all channels (`acl-pubsub-default`).
    pub all_channels: bool,
}

impl Defaults {
    /// Those of a configuration.
    pub fn of(config: &crate::state::config::Config) -> Defaults {
        Defaults {
            all_channels: config.acl_pubsub_default == "allchannels",
        }
    }

    /// A new user.
    pub fn user(self) -> Rules {
        Rules::new(registry().len(), self.all_channels)
    }
}

/// Whether a name has a character that the lines of ACL files cannot hold.
pub(super) fn is_bad_name(name: &[u8]) -> bool {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b || *byte == 0;
    name.iter().any(is_space)
}

/// A rule as errors show it. That of a password is a sign and `(redacted)`, as the logs have it in
/// place of secrets; a selector that may hold one, by mistake, is nothing else.
pub(super) fn shown(rule: &[u8]) -> Vec<u8> {
    const SIGNS: &[u8] = b"<>#!";
    match rule {
        [sign, _, ..] if SIGNS.contains(sign) => [&[*sign], REDACTED].concat(),
        // Between quotes a sign may be escaped.
        [b'(', inner @ ..]
            if inner
                .iter()
                .any(|byte| SIGNS.contains(byte) || *byte == b'\\') =>
        {
            REDACTED.to_vec()
        }
        rule => rule.to_vec(),
    }
}

/// A name that no user can have as errors show it: words that were meant as rules may be part of it.
pub(super) fn shown_name(name: &[u8]) -> Vec<u8> {
    let mut words = name.split(|byte| is_bad_name(&[*byte]));
    let first = words.next().unwrap_or_default();
    match shown(first) == first && words.all(|word| shown(word) == word) {
        true => name.to_vec(),
        false => [&shown(first), b" ...".as_slice()].concat(),
    }
}

/// Joins the words of selectors that stand in several arguments.
///
/// # Errors
/// The word with an opening parenthesis that nothing closes.
pub(super) fn join_selectors<W: AsRef<[u8]>>(words: &[W]) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut joined: Vec<Vec<u8>> = Vec::with_capacity(words.len());
    // The first word of the selector that is open, and the selector so far.
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words.iter().map(AsRef::as_ref) {
        match &mut open {
            None if word.starts_with(b"(") && !word.ends_with(b")") => {
                open = Some((word, word.to_vec()));
            }
            None => joined.push(word.to_vec()),
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                if word.ends_with(b")")
                    && let Some((_, selector)) = open.take()
                {
                    joined.push(selector);
                }
            }
        }
    }
    match open {
        Some((first, _)) => Err(first.to_vec()),
        None => Ok(joined),
    }
}

/// Applies one rule.
///
/// # Errors
/// The rule is not accepted. It may have been applied in part.
pub fn apply(rules: &mut Rules, rule: &[u8], defaults: Defaults) -> Result<(), RuleError> {
    match rule.to_ascii_lowercase().as_slice() {
        b"" => return Ok(()),
        b"on" => rules.enabled = true,
        b"off" => rules.enabled = false,
        b"skip-sanitize-payload" => rules.sanitizes = false,
        b"sanitize-payload" => rules.sanitizes = true,
        b"nopass" => {
            rules.no_password = true;
            rules.passwords.clear();
        }
        b"resetpass" => {
            rules.no_password = false;
            rules.passwords.clear();
        }
        b"clearselectors" => rules.selectors.clear(),
        b"reset" => *rules = defaults.user(),
        _ => match rule {
            [b'>', password @ ..] => add_password(rules, PasswordHash::of(password)),
            [b'#', hash @ ..] => {
                let hash = PasswordHash::parse(hash).ok_or(RuleError::BadHash)?;
                add_password(rules, hash);
            }
            [b'<', password @ ..] => remove_password(rules, PasswordHash::of(password))?,
            [b'!', hash @ ..] => {
                let hash = PasswordHash::parse(hash).ok_or(RuleError::BadHash)?;
                remove_password(rules, hash)?;
            }
            [b'(', inner @ .., b')'] => {
                let mut selector = Selector::new(registry().len(), defaults.all_channels);
                let words = words(inner).map_err(|_| RuleError::Syntax)?;
                // As in Redis: quotes are looked at before rules.
                if words.clone().any(|word| word.is_err()) {
                    return Err(RuleError::Syntax);
                }
                for rule in words.flatten() {
                    permit(&mut selector, &rule)?;
                }
                rules.selectors.push(selector);
            }
            rule => permit(&mut rules.root, rule)?,
        },
    }
    Ok(())
}

fn add_password(rules: &mut Rules, hash: PasswordHash) {
    if !rules.passwords.contains(&hash) {
        rules.passwords.push(hash);
    }
    rules.no_password = false;
}

fn remove_password(rules: &mut Rules, hash: PasswordHash) -> Result<(), RuleError> {
    let known = rules.passwords.iter().position(|known| *known == hash);
    rules
        .passwords
        .remove(known.ok_or(RuleError::NoSuchPassword)?);
    Ok(())
}

/// Applies a rule about commands, keys, channels or DBs.
fn permit(selector: &mut Selector, rule: &[u8]) -> Result<(), RuleError> {
    match rule.to_ascii_lowercase().as_slice() {
        b"allkeys" | b"~*" => {
            selector.all_keys = true;
            selector.keys.clear();
        }
        b"resetkeys" => {
            selector.all_keys = false;
            selector.keys.clear();
        }
        b"allchannels" | b"&*" => {
            selector.all_channels = true;
            selector.channels.clear();
        }
        b"resetchannels" => {
            selector.all_channels = false;
            selector.channels.clear();
        }
        b"alldbs" => selector.dbs = None,
        b"resetdbs" => selector.dbs = Some(BTreeSet::new()),
        b"allcommands" | b"+@all" => selector.set_all_commands(true),
        b"nocommands" | b"-@all" => selector.set_all_commands(false),
        [b'd', b'b', b'=', dbs @ ..] => selector.dbs = Some(parse_dbs(dbs)?),
        [sign @ (b'+' | b'-'), b'@', category @ ..] => {
            permit_category(selector, category, *sign == b'+')?;
        }
        [b'+', ..] => permit_command(selector, &rule[1..])?,
        [b'-', name @ ..] => {
            let found = find(name).ok_or(RuleError::Unknown)?;
            set_command(selector, found, false);
            note_rule(selector, &found.full_name, false);
        }
        [b'~', ..] => permit_keys(selector, Access::all(), &rule[1..])?,
        [b'%', ..] => {
            if selector.all_keys {
                return Err(RuleError::AllKeys);
            }
            let (access, pattern) = parse_access(&rule[1..])?;
            permit_keys(selector, access, pattern)?;
        }
        [b'&', ..] => {
            let pattern = &rule[1..];
            if selector.all_channels {
                return Err(RuleError::AllChannels);
            }
            if is_bad_name(pattern) {
                return Err(RuleError::Syntax);
            }
            if !selector
                .channels
                .iter()
                .any(|known| known.text() == pattern)
            {
                selector.channels.push(Pattern::new(pattern));
            }
        }
        _ => return Err(RuleError::Syntax),
    }
    Ok(())
}

/// What stands between the `%` and the `~` of a rule, and the pattern behind it.
fn parse_access(rule: &[u8]) -> Result<(Access, &[u8]), RuleError> {
    let (mut access, mut rest) = (Access::empty(), rule);
    while let [letter, later @ ..] = rest {
        rest = later;
        let meant = match letter.to_ascii_uppercase() {
            b'R' => Access::READ,
            b'W' => Access::WRITE,
            b'~' => break,
            _ => return Err(RuleError::Syntax),
        };
        if access.contains(meant) {
            return Err(RuleError::Syntax);
        }
        access |= meant;
    }
    match access.is_empty() {
        true => Err(RuleError::Syntax),
        false => Ok((access, rest)),
    }
}

fn permit_keys(selector: &mut Selector, access: Access, pattern: &[u8]) -> Result<(), RuleError> {
    if selector.all_keys {
        return Err(RuleError::AllKeys);
    }
    if is_bad_name(pattern) {
        return Err(RuleError::Syntax);
    }
    let mut known = selector.keys.iter_mut();
    match known.find(|known| known.pattern.text() == pattern) {
        Some(known) => known.access |= access,
        None => selector.keys.push(KeyPattern {
            pattern: Pattern::new(pattern),
            access,
        }),
    }
    Ok(())
}

fn parse_dbs(list: &[u8]) -> Result<BTreeSet<u32>, RuleError> {
    let number = |word: &[u8]| {
        let (sign, digits) = match word {
            [sign @ (b'+' | b'-'), digits @ ..] => (Some(*sign), digits),
            digits => (None, digits),
        };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(RuleError::Syntax);
        }
        let text = std::str::from_utf8(digits).map_err(|_| RuleError::Syntax)?;
        let number: i64 = text.parse().map_err(|_| RuleError::DbOutOfRange)?;
        match (sign, u32::try_from(number)) {
            (Some(b'-'), _) if number != 0 => Err(RuleError::DbOutOfRange),
            (_, Ok(number)) if i32::try_from(number).is_ok() => Ok(number),
            _ => Err(RuleError::DbOutOfRange),
        }
    };
    list.split(|byte| *byte == b',').map(number).collect()
}

/// The command or subcommand of this name, `config|get` for example.
fn find(name: &[u8]) -> Option<&'static Registered> {
    let mut parts = name.split(|byte| *byte == b'|');
    let command = registry().find(parts.next()?)?;
    match (parts.next(), parts.next()) {
        (None, _) => Some(command),
        (Some(subcommand), None) => command.told_subcommand(subcommand),
        _ => None,
    }
}

fn permit_command(selector: &mut Selector, name: &[u8]) -> Result<(), RuleError> {
    let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
        let found = find(name).ok_or(RuleError::Unknown)?;
        set_command(selector, found, true);
        note_rule(selector, &found.full_name, true);
        return Ok(());
    };
    let (command, argument) = (&name[..bar], &name[bar + 1..]);
    let found = find(command).ok_or(RuleError::Unknown)?;
    if command.contains(&b'|') {
        return Err(RuleError::FirstArgOfSubcommand);
    }
    if argument.is_empty() || is_bad_name(argument) {
        return Err(RuleError::Syntax);
    }
    if found.told_subcommands().is_empty() {
        // As in Redis: a command without subcommands, with this first argument only.
        let argument = std::str::from_utf8(argument).map_err(|_| RuleError::Syntax)?;
        let argument = argument.to_ascii_lowercase();
        let words = selector.first_args.entry(found.index).or_default();
        // As the rule itself, it stands where it was given last.
        words.retain(|word| *word != argument.as_bytes());
        words.push(argument.clone().into_bytes());
        note_rule(selector, &format!("{}|{argument}", found.full_name), true);
    } else {
        let found = find(name).ok_or(RuleError::Unknown)?;
        set_command(selector, found, true);
        note_rule(selector, &found.full_name, true);
    }
    Ok(())
}

fn permit_category(selector: &mut Selector, name: &[u8], on: bool) -> Result<(), RuleError> {
    let mut known = categories::ALL.into_iter();
    let category = known.find(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    let category = category.ok_or(RuleError::Unknown)?;
    note_rule(selector, &format!("@{category}"), on);
    for found in registry().iter() {
        if categories::has(found.command, category) {
            set_command(selector, found, on);
        }
        for sub in found.told_subcommands() {
            if categories::has(sub.command, category) {
                set_command(selector, sub, on);
            }
        }
    }
    Ok(())
}

/// Allows or forbids a command with its subcommands.
fn set_command(selector: &mut Selector, found: &Registered, on: bool) {
    let subcommands = found.told_subcommands().into_iter().map(|sub| sub.index);
    for index in std::iter::once(found.index).chain(subcommands) {
        selector.commands.set(index, on);
        selector.first_args.remove(&index);
    }
    selector.all_commands &= on;
}

/// Keeps a rule about commands for replies and files, in place of earlier ones about the same
/// command or its subcommands.
fn note_rule(selector: &mut Selector, rule: &str, on: bool) {
    let rule = rule.to_ascii_lowercase();
    selector.command_rules.retain(|known| {
        let known = known.get(1..).unwrap_or_default();
        let rest = known.strip_prefix(&*rule);
        !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
    });
    let sign = if on { '+' } else { '-' };
    selector.command_rules.push(format!("{sign}{rule}"));
}

#[cfg(test)]
mod tests;
