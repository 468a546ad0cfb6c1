//! Commands that set times of hash fields or set members, as they appear in a replication stream,
//! reduced to what a server without such times can run. When such an element expires, the source
//! sends HDEL or SREM, so a target that follows it still removes the element in time.

use crate::base::num;
use crate::encoding::ValueType;

/// A command without its times of elements.
#[derive(Debug, PartialEq, Eq)]
pub struct Timeless<'a> {
    /// The type of the value.
    pub kind: ValueType,
    /// The command to run; `None` if the original only sets times.
    pub command: Option<Vec<&'a [u8]>>,
    /// How many elements lose their time.
    pub elements: u64,
}

/// What a command does besides setting times.
#[derive(Clone, Copy)]
enum Does {
    /// Nothing, and it sets times in any case.
    Times,
    /// Nothing, and it sets times if an option says so.
    Reads,
    /// What this command does, with that many arguments for each element.
    Command(&'static str, usize),
}

/// The commands of a type: its word before the elements, their names, and what they do.
struct Family {
    kind: ValueType,
    word: &'static str,
    commands: &'static [(&'static str, Does)],
}

const FAMILIES: [Family; 2] = [
    Family {
        kind: ValueType::Hash,
        word: "FIELDS",
        commands: &[
            ("HEXPIRE", Does::Times),
            ("HPEXPIRE", Does::Times),
            ("HEXPIREAT", Does::Times),
            ("HPEXPIREAT", Does::Times),
            ("HPERSIST", Does::Reads),
            ("HGETEX", Does::Reads),
            ("HGETDEL", Does::Command("HDEL", 1)),
            ("HSETEX", Does::Command("HSET", 2)),
        ],
    },
    Family {
        kind: ValueType::Set,
        word: "MEMBERS",
        commands: &[
            ("SEXPIRE", Does::Times),
            ("SPEXPIRE", Does::Times),
            ("SEXPIREAT", Does::Times),
            ("SPEXPIREAT", Does::Times),
            ("SPERSIST", Does::Reads),
            ("SADDEX", Does::Command("SADD", 1)),
        ],
    },
];

/// The command without times of elements; `None` if it is malformed or not one of these commands.
pub fn without_times<'a>(args: &[&'a [u8]]) -> Option<Timeless<'a>> {
    let (name, rest) = args.split_first()?;
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    let mut found = FAMILIES.iter().flat_map(|family| {
        let commands = family.commands.iter();
        commands.map(move |(name, does)| (family, *name, *does))
    });
    let (family, _, does) = found.find(|(_, name, _)| is(name))?;
    let each = match does {
        Does::Command(_, each) => each,
        Does::Times | Does::Reads => 1,
    };
    let Parts { count, words, data } = Parts::of(rest, family.word, each)?;
    let sets_times = words.iter().flat_map(|words| words.iter()).any(|word| {
        let units: [&[u8]; 4] = [b"EX", b"PX", b"EXAT", b"PXAT"];
        units.iter().any(|unit| word.eq_ignore_ascii_case(unit))
    });
    // In a replication stream the condition (FNX, FXX) was met at the source.
    let command = match does {
        Does::Command(name, _) => {
            let mut command: Vec<&[u8]> = vec![name.as_bytes()];
            command.extend(rest.first());
            command.extend(data);
            Some(command)
        }
        Does::Times | Does::Reads => None,
    };
    Some(Timeless {
        kind: family.kind,
        command,
        elements: match does {
            Does::Times => count,
            _ if sets_times => count,
            _ => 0,
        },
    })
}

/// Some arguments of a command.
type Args<'a> = [&'a [u8]];

/// The arguments behind the key.
struct Parts<'b, 'a> {
    /// How many elements there are.
    count: u64,
    /// What stands before and behind them.
    words: [&'b Args<'a>; 2],
    /// The elements, with what belongs to each.
    data: &'b Args<'a>,
}

impl<'b, 'a> Parts<'b, 'a> {
    fn of(rest: &'b Args<'a>, word: &str, each: usize) -> Option<Parts<'b, 'a>> {
        let is_word = |arg: &&[u8]| arg.eq_ignore_ascii_case(word.as_bytes());
        // The key itself may have the name of the word.
        let at = 1 + rest.get(1..)?.iter().position(is_word)?;
        let count = num::parse_u64(rest.get(at + 1)?).filter(|count| *count > 0)?;
        let len = usize::try_from(count).ok()?.checked_mul(each)?;
        let (data, behind) = rest.get(at + 2..)?.split_at_checked(len)?;
        let words = [rest.get(1..at)?, behind];
        Some(Parts { count, words, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_without_times() {
        for (line, command, fields) in [
            ("HPEXPIREAT k 1700000000000 FIELDS 2 f g", None, 2),
            ("hexpire FIELDS 5 NX FIELDS 1 f", None, 1),
            ("HPERSIST k FIELDS 1 f", None, 0),
            (
                "HSETEX k PXAT 7 FIELDS 2 f v g w",
                Some("HSET k f v g w"),
                2,
            ),
            ("HSETEX k FNX KEEPTTL FIELDS 1 f v", Some("HSET k f v"), 0),
            ("HGETEX k EX 5 FIELDS 1 f", None, 1),
            ("HGETDEL k FIELDS 2 f g", Some("HDEL k f g"), 0),
            ("HGETEX k PERSIST FIELDS 1 f", None, 0),
            ("SPEXPIREAT k 5 MEMBERS 2 a b", None, 2),
            ("SEXPIRE MEMBERS 5 MEMBERS 1 a NX", None, 1),
            ("SPERSIST k MEMBERS 1 a", None, 0),
            ("SADDEX k MEMBERS 2 a b PXAT 7", Some("SADD k a b"), 2),
            ("saddex k KEEPTTL MEMBERS 1 a", Some("SADD k a"), 0),
        ] {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let found = without_times(&args).expect(line);
            let shown = found.command.map(|args| args.join(&b' '));
            let shown = shown.as_deref().map(String::from_utf8_lossy);
            assert_eq!(
                (shown.as_deref(), found.elements),
                (command, fields),
                "{line}"
            );
        }
        for line in [
            "HSET k f v",
            "HPEXPIREAT k 5 FIELDS x f",
            "HPEXPIREAT",
            "HEXPIRE k 5",
            "SADDEX k MEMBERS 3 a b",
        ] {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(without_times(&args), None, "{line}");
        }
    }
}
