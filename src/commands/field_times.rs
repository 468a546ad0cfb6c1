//! Commands of newer servers that set expiry times of hash fields, as they appear in a
//! replication stream, reduced to what a server without such times can run. When such a
//! field expires, the source sends HDEL, so a target that follows it still removes the
//! field in time.

use crate::base::num;

/// A command without its field expiry times.
#[derive(Debug, PartialEq, Eq)]
pub struct Timeless<'a> {
    /// The command to run; `None` if the original only sets times.
    pub command: Option<Vec<&'a [u8]>>,
    /// How many fields lose their expiry time.
    pub fields: u64,
}

/// The command without field expiry times; `None` if it is malformed or not one of these
/// commands.
pub fn without_field_times<'a>(args: &[&'a [u8]]) -> Option<Timeless<'a>> {
    let (name, rest) = args.split_first()?;
    let is = |names: &[&str]| {
        let mut names = names.iter();
        names.any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    };
    if is(&["HEXPIRE", "HPEXPIRE", "HEXPIREAT", "HPEXPIREAT"]) {
        let (_, fields) = fields_of(rest)?;
        return Some(Timeless {
            command: None,
            fields: fields.len() as u64,
        });
    }
    if is(&["HPERSIST"]) {
        fields_of(rest)?;
        return Some(Timeless {
            command: None,
            fields: 0,
        });
    }
    if is(&["HGETDEL"]) {
        let (_, fields) = fields_of(rest)?;
        let mut delete: Vec<&[u8]> = vec![b"HDEL"];
        delete.extend(rest.first());
        delete.extend(fields);
        return Some(Timeless {
            command: Some(delete),
            fields: 0,
        });
    }
    let is_set = is(&["HSETEX"]);
    if !is_set && !is(&["HGETEX"]) {
        return None;
    }
    let (options, fields) = fields_of(rest)?;
    let mut options = options.iter();
    let has_time = options.any(|option| {
        let names: [&[u8]; 4] = [b"EX", b"PX", b"EXAT", b"PXAT"];
        names.iter().any(|name| option.eq_ignore_ascii_case(name))
    });
    let each = if is_set { 2 } else { 1 };
    // In a replication stream the condition (FNX, FXX) was met at the source.
    let command = is_set.then(|| {
        let mut set: Vec<&[u8]> = vec![b"HSET"];
        set.extend(rest.first());
        set.extend(fields);
        set
    });
    Some(Timeless {
        command,
        fields: if has_time {
            fields.len() as u64 / each
        } else {
            0
        },
    })
}

/// Some arguments of a command.
type Args<'a> = [&'a [u8]];

/// The options between the key and FIELDS, and the arguments after the number of fields.
fn fields_of<'b, 'a>(rest: &'b Args<'a>) -> Option<(&'b Args<'a>, &'b Args<'a>)> {
    let is_word = |arg: &&[u8]| arg.eq_ignore_ascii_case(b"FIELDS");
    // The key itself may be named FIELDS.
    let at = 1 + rest.get(1..)?.iter().position(is_word)?;
    let count = num::parse_u64(rest.get(at + 1)?)?;
    let fields = rest.get(at + 2..)?;
    let is_whole = count > 0 && (fields.len() as u64).is_multiple_of(count);
    is_whole.then_some((rest.get(1..at)?, fields))
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
        ] {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let found = without_field_times(&args).expect(line);
            let shown = found.command.map(|args| args.join(&b' '));
            let shown = shown.as_deref().map(String::from_utf8_lossy);
            assert_eq!(
                (shown.as_deref(), found.fields),
                (command, fields),
                "{line}"
            );
        }
        for line in [
            "HSET k f v",
            "HPEXPIREAT k 5 FIELDS x f",
            "HPEXPIREAT",
            "HEXPIRE k 5",
        ] {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(without_field_times(&args), None, "{line}");
        }
    }
}
