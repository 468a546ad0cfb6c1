//! Which arguments are secrets: MONITOR, the slow log and the server's log
//! show `(redacted)` for them.
//!
//! A command's row names one of the functions here. They look at arguments alone: the first
//! one is whatever name `rename-command` has given the command.

use crate::commands::Command;
use crate::commands::args;
use crate::state::config::{Flag, Param};

/// What stands for a secret.
const REDACTED: &[u8] = b"(redacted)";

/// The arguments of a command with secrets covered.
pub fn visible<'a>(command: &Command, args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let Some(is_secret) = command.secret else {
        return args.to_vec();
    };
    let show = |(i, arg): (usize, &&'a [u8])| match is_secret(args, i) {
        true => REDACTED,
        false => *arg,
    };
    args.iter().enumerate().map(show).collect()
}

/// Of `AUTH [user] password`.
pub(in crate::commands) fn of_auth(_args: &[&[u8]], index: usize) -> bool {
    index > 0
}

/// Of `HELLO 3 AUTH user password SETNAME name`.
pub(in crate::commands) fn of_hello(args: &[&[u8]], index: usize) -> bool {
    let is_auth = |back: usize| {
        let at = index.checked_sub(back).filter(|at| *at > 1);
        at.and_then(|at| args.get(at))
            .is_some_and(|word| args::is(word, "AUTH"))
    };
    is_auth(1) || is_auth(2)
}

/// Of `MIGRATE host port key db timeout … AUTH password` or `… AUTH2 user password`.
pub(in crate::commands) fn of_migrate(args: &[&[u8]], index: usize) -> bool {
    let follows = |back: usize, word: &str| {
        let at = index.checked_sub(back).filter(|at| *at > 5);
        let keys = args.iter().position(|arg| args::is(arg, "KEYS"));
        at.filter(|at| keys.is_none_or(|keys| *at < keys.max(6)))
            .and_then(|at| args.get(at))
            .is_some_and(|arg| args::is(arg, word))
    };
    follows(1, "AUTH") || follows(1, "AUTH2") || follows(2, "AUTH2")
}

/// Of `CONFIG SET name value …`.
pub(in crate::commands) fn of_config_set(args: &[&[u8]], index: usize) -> bool {
    let name = match index >= 3 && index % 2 == 1 {
        true => args.get(index - 1),
        false => None,
    };
    name.and_then(|name| Param::find(name))
        .is_some_and(|param| param.has(Flag::Secret))
}

/// Of `ACL SETUSER user rule …`: passwords, and what a user may do.
pub(in crate::commands) fn of_acl_setuser(_args: &[&[u8]], index: usize) -> bool {
    index > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry;

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
        // By any other name.
        let renamed = |line: &str| line.replacen(line.split(' ').next().unwrap(), "other", 1);
        shows(command, &renamed(line), &renamed(expected));
    }

    #[track_caller]
    fn shows(command: &Command, line: &str, expected: &str) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let shown: Vec<_> = visible(command, &args)
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
    }
}
