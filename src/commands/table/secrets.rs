//! Which arguments are secrets: MONITOR, the slow log and the server's log show
//! `(redacted)` in their place.
//!
//! The name of the command is not looked at: `rename-command` may have given it another
//! one. Requests may be wrong: what may be meant as a secret is covered, even if the command
//! takes it for something else.

use crate::base::num;
use crate::commands::args;
use crate::commands::table::registry::registry;
use crate::commands::table::spec::Secret;
use crate::state::config::{Flag, Param};

/// What is shown in place of a secret.
pub(in crate::commands) const REDACTED: &[u8] = b"(redacted)";

impl Secret {
    /// Calls `hide` with the index of every argument that is a secret, some of them twice.
    fn for_each(self, args: &[&[u8]], mut hide: impl FnMut(usize)) {
        let (mut secret, mut start) = (self, 0);
        // A command in a command in a command has the secrets of the innermost.
        while let Secret::Command(inner) = secret {
            start += inner;
            secret = args.get(start..).map_or(Secret::None, of_words);
        }
        let args = args.get(start..).unwrap_or_default();
        let mut hide = |at: usize| hide(start + at);
        match secret {
            Secret::None | Secret::Command(_) => {}
            Secret::From(first) | Secret::Users { first, .. } => {
                (first..args.len()).for_each(hide);
            }
            Secret::Options {
                first,
                names,
                words,
                end,
            } => {
                let (mut values_end, mut is_given) = (first, false);
                // An argument before the options may be missing.
                for (at, word) in args.iter().enumerate().skip(1) {
                    let is_end = || end.is_some_and(|end| args::is(word, end));
                    if at >= values_end && is_end() && is_given {
                        return;
                    }
                    let is_number = |arg: &&[u8]| num::parse_i64(arg).is_some();
                    if names.contains(&at) && args.get(at + 1).is_some_and(is_number) {
                        continue;
                    }
                    // A value is looked at too: the word before it may not be an option.
                    let option = words.iter().find(|(name, _)| args::is(word, name));
                    if let Some((_, values)) = option {
                        is_given = true;
                        values_end = values_end.max(at + 1 + values);
                        (at + 1..=at + values).for_each(&mut hide);
                    }
                }
            }
            Secret::Parameters(first) => {
                let is_secret = |name| Param::find(name).is_some_and(|p| p.has(Flag::Secret));
                let is_whole = args.len().saturating_sub(first).is_multiple_of(2);
                for at in (first..args.len()).filter(|at| is_secret(args[*at])) {
                    match is_whole {
                        true => hide(at + 1),
                        // A value of several words, perhaps.
                        false => (at + 1..args.len()).for_each(&mut hide),
                    }
                }
            }
        }
    }
}

/// The secrets of a command that is an argument. Of one that is not known everything is.
fn of_words(words: &[&[u8]]) -> Secret {
    let Some(name) = words.first() else {
        return Secret::None;
    };
    let Some(found) = registry().find(name) else {
        return Secret::From(1);
    };
    if found.subcommands.is_empty() || found.is_plain() {
        return found.command.secret;
    }
    match words.get(1).map(|sub| found.subcommand(sub)) {
        None => found.command.secret,
        Some(Some(sub)) => sub.command.secret,
        Some(None) => Secret::From(1),
    }
}

fn covered<'a>(secret: Secret, args: &[&'a [u8]], shown: impl Fn(usize) -> bool) -> Vec<&'a [u8]> {
    let mut out = args.to_vec();
    secret.for_each(args, |at| {
        if let Some(arg) = out.get_mut(at).filter(|_| !shown(at)) {
            *arg = REDACTED;
        }
    });
    out
}

/// The arguments of a command with its secrets covered.
pub fn visible<'a>(secret: Secret, args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    covered(secret, args, |_| false)
}

/// The same for the audit log, which tells which users are concerned.
pub fn audited<'a>(secret: Secret, args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    covered(secret, args, |at| match secret {
        Secret::Users { first, names } => (first..first.saturating_add(names)).contains(&at),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Command;

    fn row_of(args: &[&[u8]]) -> &'static Command {
        let found = registry().find(args[0]).unwrap();
        let sub = args.get(1).and_then(|sub| found.subcommand(sub));
        sub.unwrap_or(found).command
    }

    #[track_caller]
    fn hides(line: &str) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let shown = visible(row_of(&args).secret, &args);
        assert!(args.contains(&&b"secret"[..]));
        assert!(!shown.contains(&&b"secret"[..]), "{shown:?}");
    }

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let command = row_of(&args);
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
        check("acl getuser u", "acl getuser (redacted)");
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
            "hello 3 auth auth auth",
            "hello 3 auth (redacted) (redacted)",
        );
    }

    /// Without the timeout, and behind the keys, the password was shown.
    #[test]
    fn options_in_wrong_places_are_covered() {
        for (line, expected) in [
            ("migrate h 1 k 0 auth p", "migrate h 1 k 0 auth (redacted)"),
            ("migrate h 1 k auth p 7", "migrate h 1 k auth (redacted) 7"),
            ("migrate h 1 auth p 0 9", "migrate h 1 auth (redacted) 0 9"),
            ("migrate h auth p k 0 9", "migrate h auth (redacted) k 0 9"),
            ("migrate auth p h 1 0 9", "migrate auth (redacted) h 1 0 9"),
            (
                "migrate h 1 k 0 auth2 u p copy",
                "migrate h 1 k 0 auth2 (redacted) (redacted) copy",
            ),
            (
                "migrate h 1 e 0 9 keys a b auth p",
                "migrate h 1 e 0 9 keys a b auth (redacted)",
            ),
            (
                "migrate h 1 e 0 9 copy keys a auth2 u p",
                "migrate h 1 e 0 9 copy keys a auth2 (redacted) (redacted)",
            ),
            (
                "migrate h 1 e 0 9 keys auth keys c",
                "migrate h 1 e 0 9 keys auth (redacted) c",
            ),
            // Hosts and keys of that name.
            (
                "migrate auth 1 auth 0 9 copy",
                "migrate auth 1 auth 0 9 copy",
            ),
            (
                "migrate auth2 1 auth2 0 9 auth p keys auth auth2 a b",
                "migrate auth2 1 auth2 0 9 auth (redacted) keys auth auth2 a b",
            ),
        ] {
            check(line, expected);
        }
    }

    /// A name that is also the word of an option had the secret behind the real one shown, and
    /// so had a request that is wrong.
    #[test]
    fn what_may_be_meant_as_a_secret_is_covered() {
        for line in [
            "hello auth u secret",
            "hello 3 setname auth auth u secret",
            "hello 3 setname auth u secret",
            "hello 3 auth auth secret",
            "migrate h 1 k 0 9 copy auth auth secret",
            "migrate h 1 k 0 9 auth2 auth secret",
            "migrate h 1 k 0 9 auth2 keys secret keys k",
            "config set maxmemory requirepass secret",
            "config set requirepass several secret",
            "config set maxmemory requirepass secret 1",
            "config set Tls-Key-File-Pass secret",
            "acl setuser u secret",
        ] {
            hides(line);
        }
    }

    #[test]
    fn commands_in_commands_keep_their_secrets() {
        for line in [
            "command getkeys auth secret",
            "command getkeysandflags AUTH u secret",
            "command getkeys hello 3 auth u secret",
            "command getkeys config set requirepass secret",
            "command getkeys config nosuch secret",
            "command getkeys nosuch secret",
            "command getkeys acl setuser u secret",
            "command getkeys command getkeys command getkeysandflags auth secret",
            "command getkeys acl dryrun u auth secret",
            "acl dryrun u auth secret",
            "acl dryrun u Migrate h 1 k 0 9 auth secret",
            "acl dryrun u command getkeys auth secret",
        ] {
            hides(line);
        }
        for line in [
            "command getkeys set k v",
            "command getkeys config get requirepass",
            "acl dryrun u get k",
            "acl dryrun u debug object k",
            "command getkeys",
        ] {
            check(line, line);
        }
        let deep = "command getkeys ".repeat(100_000) + "auth secret";
        hides(&deep);
    }

    #[test]
    fn the_audit_log_names_users() {
        for (line, expected) in [
            ("acl setuser u on >p", "acl setuser u (redacted) (redacted)"),
            ("acl deluser u v", "acl deluser u v"),
            ("acl getuser u", "acl getuser u"),
            ("auth u p", "auth (redacted) (redacted)"),
        ] {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let shown = audited(row_of(&args).secret, &args);
            assert_eq!(shown.join(&b' '), expected.as_bytes());
        }
    }
}
