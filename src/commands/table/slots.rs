//! In which slots the keys of a command are.

use super::keys::Keys;
use super::spec::Command;
use crate::base::slots::Slots;

impl Command {
    /// The slots of the keys, and of the shard channels, that the arguments name; none if they do
    /// not fit the specs of the keys.
    pub fn slots(&self, args: &[&[u8]]) -> Slots {
        if self.keys.is_empty() && self.more_keys.is_none() {
            return Slots::None;
        }
        if let Some((at, _)) = self.only_key() {
            return Slots::of(args.get(at).copied());
        }
        let mut keys = Keys::new();
        match self.find_keys(args, &mut keys) {
            Some(()) => Slots::of(keys.iter().filter_map(|(at, _)| args.get(*at).copied())),
            None => Slots::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::slots;
    use crate::commands::registry;

    fn of(line: &str) -> Slots {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        registry().find(args[0]).unwrap().command.slots(&args)
    }

    #[test]
    fn slots_are_those_of_all_keys() {
        let (a, b) = (slots::of_key(b"a"), slots::of_key(b"b"));
        assert_ne!(a, b);
        for (line, expected) in [
            ("ping", Slots::None),
            ("get a", Slots::One(a)),
            ("mget a {a}1 x{a}", Slots::One(a)),
            ("mget a b", Slots::Several),
            ("mset a b {a} b", Slots::One(a)),
            ("eval x 0 a b", Slots::None),
            ("eval x 1 a b", Slots::One(a)),
            ("eval x 2 a b", Slots::Several),
            ("eval x 5 a b", Slots::None),
            ("sort a by b get b", Slots::One(a)),
            ("sort a store b", Slots::Several),
            ("ssubscribe a b", Slots::Several),
            ("sunsubscribe", Slots::None),
            ("subscribe a b", Slots::None),
            ("spublish b a", Slots::One(b)),
            ("xread streams a {a}2 0 0", Slots::One(a)),
            ("zunionstore a 1 b", Slots::Several),
            ("georadius a 0 0 1 m store b", Slots::Several),
            ("pfmerge a", Slots::One(a)),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
        let args: [&[u8]; 8] = [b"migrate", b"h", b"1", b"", b"0", b"9", b"keys", b"a"];
        let migrate = registry().find(b"migrate").unwrap().command;
        assert_eq!(migrate.slots(&args), Slots::One(a));
    }
}
