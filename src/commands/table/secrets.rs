//! Which arguments are secrets: MONITOR, the slow log and the server's log show
//! `(redacted)` in their place.
//!
//! The name of the command is not looked at: `rename-command` may have given it another
//! one.

use crate::commands::args;
use crate::state::config::{Flag, Param};

/// What is shown in place of a secret.
const REDACTED: &[u8] = b"(redacted)";

/// Which arguments of a command are secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secret {
    /// None.
    None,
    /// Every argument from this index on.
    From(usize),
    /// The values of some options.
    Options {
        /// Index of the first option.
        first: usize,
        /// The words that a secret follows, and how many arguments behind each are secret.
        words: &'static [(&'static str, usize)],
        /// The word that ends the options.
        end: Option<&'static str>,
    },
    /// The values of parameters that the configuration keeps secret, in pairs of name and
    /// value from this index on.
    Parameters(usize),
}

impl Secret {
    /// Calls `hide` with the index of every argument that is a secret.
    fn for_each(self, args: &[&[u8]], mut hide: impl FnMut(usize)) {
        match self {
            Secret::None => {}
            Secret::From(first) => (first..args.len()).for_each(hide),
            Secret::Options { first, words, end } => {
                let mut at = first;
                while let Some(word) = args.get(at) {
                    if end.is_some_and(|end| args::is(word, end)) {
                        return;
                    }
                    let option = words.iter().find(|(name, _)| args::is(word, name));
                    let values = option.map_or(0, |(_, values)| *values);
                    (at + 1..=at + values).for_each(&mut hide);
                    at += 1 + values;
                }
            }
            Secret::Parameters(first) => {
                let names = args.iter().enumerate().skip(first).step_by(2);
                let is_secret = |name| Param::find(name).is_some_and(|p| p.has(Flag::Secret));
                let secret = names.filter(|(_, name)| is_secret(name));
                secret.for_each(|(at, _)| hide(at + 1));
            }
        }
    }
}

/// The arguments of a command with its secrets covered.
pub fn visible<'a>(secret: Secret, args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut shown = args.to_vec();
    secret.for_each(args, |at| {
        if let Some(arg) = shown.get_mut(at) {
            *arg = REDACTED;
        }
    });
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Command, registry};

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let found = registry().find(args[0]).unwrap();
        let command = args
            .get(1)
            .and_then(|sub| found.subcommand(sub))
            .unwrap_or(found)
            .command;
        shows(command, line, expected);
        let renamed = |line: &str| line.replacen(line.split(' ').next().unwrap(), "other", 1);
        shows(command, &renamed(line), &renamed(expected));
    }

    #[track_caller]
    fn shows(command: &Command, line: &str, expected: &str) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let shown: Vec<_> = visible(command.secret, &args)
            .into_iter()
            .map(String::from_utf8_lossy)
            .collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn passwords_are_covered() {
        check("auth secret", "auth (redacted)");
        check("AUTH user secret", "AUTH (redacted) (redacted)");
        check(
            "hello 3 auth user secret setname n",
            "hello 3 auth (redacted) (redacted) setname n",
        );
        check("hello 3", "hello 3");
        check(
            "config set maxmemory 1 REQUIREPASS x",
            "config set maxmemory 1 REQUIREPASS (redacted)",
        );
        check("config get requirepass", "config get requirepass");
        check("set masterauth plain", "set masterauth plain");
        check(
            "migrate h 1 k 0 9 copy auth secret",
            "migrate h 1 k 0 9 copy auth (redacted)",
        );
        check(
            "migrate h 1 k 0 9 AUTH2 user secret KEYS auth k",
            "migrate h 1 k 0 9 AUTH2 (redacted) (redacted) KEYS auth k",
        );
        check(
            "acl setuser u on >p",
            "acl setuser (redacted) (redacted) (redacted)",
        );
        check("acl getuser u", "acl getuser u");
    }

    /// A host or key of the name of the word that ends the options of MIGRATE ended them,
    /// and the password behind it was shown.
    #[test]
    fn what_stands_before_the_options_does_not_end_them() {
        check(
            "migrate h 1 keys 0 9 auth secret",
            "migrate h 1 keys 0 9 auth (redacted)",
        );
        check(
            "migrate KEYS 1 k 0 9 auth keys copy",
            "migrate KEYS 1 k 0 9 auth (redacted) copy",
        );
        check(
            "hello 3 auth auth auth setname n",
            "hello 3 auth (redacted) (redacted) setname n",
        );
    }
}
