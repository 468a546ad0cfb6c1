//! The notation in which a row states the arguments of its command, and the arguments as
//! COMMAND DOCS returns them.
//!
//! ```text
//! name                 a value; its kind is key or pattern if that is its name, else string
//! name:kind            a value; kinds: string, key, int, double, time, pattern
//! WORD                 a word that is given as it is
//! name=WORD            the same, if its name is not the word in lower case
//! WORD name            a value behind a word; the value may be a group
//! name=(a b)           several arguments, one after another
//! name=(a|b)           one of several
//! [a]                  may be left out
//! a...                 may be given several times, but the word before it only once
//! (WORD a)...          the same, and the word each time
//! ```
//!
//! Behind a name or a group there may be, in this order: `{text}`, the text to show in place
//! of the name; `#1`, the index of the key spec that finds the keys it stands for (without it,
//! the first key belongs to spec 0, the second one to spec 1, and so on); `@7.0.0`, the
//! version that added it; `!7.0.0`, the version that deprecated it.

/// The kind of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// Any bytes.
    String,
    /// An integer.
    Integer,
    /// A floating-point number.
    Double,
    /// A key.
    Key,
    /// A glob pattern.
    Pattern,
    /// A Unix time in s or ms.
    UnixTime,
    /// A word that is given as it is.
    PureToken,
    /// One of the parts.
    OneOf,
    /// All parts, in order.
    Block,
}

impl ArgKind {
    /// The name in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        match self {
            ArgKind::String => "string",
            ArgKind::Integer => "integer",
            ArgKind::Double => "double",
            ArgKind::Key => "key",
            ArgKind::Pattern => "pattern",
            ArgKind::UnixTime => "unix-time",
            ArgKind::PureToken => "pure-token",
            ArgKind::OneOf => "oneof",
            ArgKind::Block => "block",
        }
    }

    fn parse(name: &str) -> Option<ArgKind> {
        Some(match name {
            "string" => ArgKind::String,
            "int" => ArgKind::Integer,
            "double" => ArgKind::Double,
            "key" => ArgKind::Key,
            "pattern" => ArgKind::Pattern,
            "time" => ArgKind::UnixTime,
            _ => return None,
        })
    }
}

/// One argument, or a group of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: ArgKind,
    /// The text to show in place of the name.
    pub display: Option<&'static str>,
    /// The index of the key spec that finds the keys it stands for.
    pub key_spec: Option<usize>,
    /// The word in front of the value, or the word that is the argument.
    pub token: Option<&'static str>,
    /// The version of Redis that added it, if the command is older.
    pub since: Option<&'static str>,
    /// The version of Redis that deprecated it.
    pub deprecated_since: Option<&'static str>,
    /// Whether the argument may be left out.
    pub optional: bool,
    /// Whether the argument may be given several times.
    pub multiple: bool,
    /// Whether the word is given each time too.
    pub multiple_token: bool,
    /// The parts of a group.
    pub parts: Vec<Argument>,
}

/// Parses the arguments of a command.
///
/// # Errors
/// The rest of the text, from the mistake on.
pub fn parse(text: &'static str) -> Result<Vec<Argument>, &'static str> {
    let mut parser = Parser {
        left: text,
        keys: 0,
    };
    let arguments = parser.sequence()?;
    match parser.left {
        "" => Ok(arguments),
        left => Err(left),
    }
}

struct Parser {
    left: &'static str,
    /// Keys so far.
    keys: usize,
}

type Parsed<T> = Result<T, &'static str>;

impl Parser {
    /// Takes this text if it is next.
    fn take(&mut self, text: &str) -> bool {
        match self.left.strip_prefix(text) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, text: &str) -> Parsed<()> {
        match self.take(text) {
            true => Ok(()),
            false => Err(self.left),
        }
    }

    /// Takes characters as long as they fit: at least one.
    fn run(&mut self, fits: impl Fn(char) -> bool) -> Parsed<&'static str> {
        let end = self.left.find(|c| !fits(c)).unwrap_or(self.left.len());
        let (run, left) = self.left.split_at(end);
        if run.is_empty() {
            return Err(self.left);
        }
        self.left = left;
        Ok(run)
    }

    fn sequence(&mut self) -> Parsed<Vec<Argument>> {
        let mut arguments = Vec::new();
        while !self.left.is_empty() {
            arguments.push(self.argument()?);
            if !self.take(" ") {
                break;
            }
        }
        Ok(arguments)
    }

    fn argument(&mut self) -> Parsed<Argument> {
        let optional = self.take("[");
        let mut argument = match self.take("(") {
            true => {
                let mut each = self.one()?;
                self.expect(")...")?;
                each.multiple = true;
                each.multiple_token = true;
                each
            }
            false => self.one()?,
        };
        if self.take("...") {
            argument.multiple = true;
        }
        if optional {
            self.expect("]")?;
            argument.optional = true;
        }
        Ok(argument)
    }

    /// One argument with the word in front of it.
    fn one(&mut self) -> Parsed<Argument> {
        let word = self.word()?;
        let is_token = !word.contains(|c: char| c.is_ascii_lowercase());
        if !is_token || self.left.starts_with([':', '=']) {
            return self.named(word);
        }
        let next = self.left.strip_prefix(' ');
        if next.is_some_and(|next| next.starts_with(|c: char| c.is_ascii_lowercase())) {
            self.expect(" ")?;
            let name = self.word()?;
            let mut value = self.named(name)?;
            value.token = Some(word);
            return Ok(value);
        }
        let mut argument = leaf(word.to_ascii_lowercase(), ArgKind::PureToken);
        argument.token = Some(word);
        self.notes(argument)
    }

    fn word(&mut self) -> Parsed<&'static str> {
        self.run(|c| c.is_ascii_alphanumeric() || "-_~*$\"".contains(c))
    }

    /// The rest of an argument behind its name.
    fn named(&mut self, name: &str) -> Parsed<Argument> {
        let name = name.to_owned();
        if !self.take("=") {
            let kind = match self.take(":") {
                true => ArgKind::parse(self.run(|c| c.is_ascii_lowercase())?).ok_or(self.left)?,
                false => match name.as_str() {
                    "key" => ArgKind::Key,
                    "pattern" => ArgKind::Pattern,
                    _ => ArgKind::String,
                },
            };
            return self.notes(leaf(name, kind));
        }
        if !self.take("(") {
            let mut argument = leaf(name, ArgKind::PureToken);
            argument.token = Some(self.run(|c| !" |)]@".contains(c))?);
            return self.notes(argument);
        }
        let mut parts = self.sequence()?;
        let mut kind = ArgKind::Block;
        while self.take("|") {
            kind = ArgKind::OneOf;
            parts.push(self.argument()?);
        }
        self.expect(")")?;
        let group = Argument {
            parts,
            ..leaf(name, kind)
        };
        self.notes(group)
    }

    fn notes(&mut self, mut argument: Argument) -> Parsed<Argument> {
        if self.take("{") {
            argument.display = Some(self.run(|c| c != '}')?);
            self.expect("}")?;
        }
        let stated = match self.take("#") {
            true => {
                let digits = self.run(|c| c.is_ascii_digit())?;
                Some(digits.parse().map_err(|_| digits)?)
            }
            false => None,
        };
        argument.key_spec = stated;
        if argument.kind == ArgKind::Key {
            argument.key_spec = stated.or(Some(self.keys));
            self.keys += 1;
        }
        if self.take("@") {
            argument.since = Some(self.version()?);
        }
        if self.take("!") {
            argument.deprecated_since = Some(self.version()?);
        }
        Ok(argument)
    }

    fn version(&mut self) -> Parsed<&'static str> {
        let end = self.left.find("...").unwrap_or(self.left.len());
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let end = self.left[..end].find(|c| !is_part(c)).unwrap_or(end);
        let (version, left) = self.left.split_at(end);
        self.left = left;
        match version {
            "" => Err(left),
            _ => Ok(version),
        }
    }
}

fn leaf(name: String, kind: ArgKind) -> Argument {
    Argument {
        name,
        kind,
        display: None,
        key_spec: None,
        token: None,
        since: None,
        deprecated_since: None,
        optional: false,
        multiple: false,
        multiple_token: false,
        parts: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table::registry::{Registered, registry};

    fn parsed(text: &'static str) -> Vec<Argument> {
        parse(text).unwrap_or_else(|left| panic!("{text:?}: no meaning from {left:?} on"))
    }

    #[test]
    fn values_words_and_groups() {
        let arguments =
            parsed("key [how=(NX|XX)@2.0.0] [LIMIT limit=(offset:int count:int)] PLAIN");
        let names: Vec<&str> = arguments.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["key", "how", "limit", "plain"]);
        let kinds: Vec<ArgKind> = arguments.iter().map(|a| a.kind).collect();
        assert_eq!(
            kinds,
            [
                ArgKind::Key,
                ArgKind::OneOf,
                ArgKind::Block,
                ArgKind::PureToken
            ]
        );
        assert_eq!(arguments[0].key_spec, Some(0));
        assert_eq!(arguments[1].since, Some("2.0.0"));
        assert_eq!(arguments[1].parts[1].token, Some("XX"));
        assert!(arguments[1].optional && !arguments[3].optional);
        assert_eq!(arguments[2].token, Some("LIMIT"));
        assert_eq!(arguments[2].parts[1].kind, ArgKind::Integer);
    }

    #[test]
    fn what_may_be_given_several_times() {
        let arguments = parsed("[key@6.2.0...] [(GET get:pattern{pattern})...] [ID:string...]");
        assert!(arguments.iter().all(|a| a.multiple && a.optional));
        let tokens: Vec<bool> = arguments.iter().map(|a| a.multiple_token).collect();
        assert_eq!(tokens, [false, true, false]);
        assert_eq!(arguments[0].since, Some("6.2.0"));
        assert_eq!(arguments[1].display, Some("pattern"));
        assert_eq!(
            (arguments[2].name.as_str(), arguments[2].token),
            ("ID", None)
        );
    }

    #[test]
    fn words_that_are_signs() {
        let arguments = parsed(r#"op=(equal==|about=~) id=(auto-id=*|id) key=(key|none="")"#);
        let tokens = |i: usize| -> Vec<Option<&str>> {
            arguments[i].parts.iter().map(|part| part.token).collect()
        };
        assert_eq!(tokens(0), [Some("="), Some("~")]);
        assert_eq!(tokens(1), [Some("*"), None]);
        assert_eq!(tokens(2), [None, Some("\"\"")]);
    }

    #[test]
    fn what_has_no_meaning_is_told() {
        for text in [
            "[key", "a=(b", "a=(b|)", "key#", "a@", "a:b", "(A b)", "a ]", "a{}",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    /// The lowest number of words that an argument takes, and whether it always takes so many.
    fn least(argument: &Argument) -> (usize, bool) {
        if argument.optional {
            return (0, false);
        }
        let parts: Vec<_> = argument.parts.iter().map(least).collect();
        let (least, fixed) = match argument.kind {
            ArgKind::PureToken => (0, true),
            ArgKind::OneOf => {
                let least = parts.iter().map(|part| part.0).min().unwrap_or(0);
                (least, parts.iter().all(|part| *part == (least, true)))
            }
            ArgKind::Block => (
                parts.iter().map(|part| part.0).sum(),
                parts.iter().all(|part| part.1),
            ),
            _ => (1, true),
        };
        let token = usize::from(argument.token.is_some());
        (least + token, fixed && !argument.multiple)
    }

    /// QUIT takes any arguments, and looks at none; HOTKEYS START says itself which are missing.
    const TAKE_FEWER: [&str; 2] = ["quit", "hotkeys|start"];

    /// RedisJSON registers one argument fewer than the command needs.
    const REGISTERED_WITH_FEWER: (&str, i16) = ("json.arrappend", 1);

    fn all() -> impl Iterator<Item = (&'static Registered, usize)> {
        registry().iter().flat_map(|command| {
            let subs = command.told_subcommands().into_iter().map(|sub| (sub, 2));
            std::iter::once((command, 1)).chain(subs)
        })
    }

    #[test]
    fn arguments_and_arity_agree() {
        let mut differences = Vec::new();
        for (command, names) in all() {
            let row = command.command;
            if !row.subcommands.is_empty() || TAKE_FEWER.contains(&command.full_name.as_str()) {
                continue;
            }
            let counts: Vec<_> = command.arguments.iter().map(least).collect();
            let least = names + counts.iter().map(|count| count.0).sum::<usize>();
            let fixed = counts.iter().all(|count| count.1);
            let (fewer, by) = REGISTERED_WITH_FEWER;
            let by = if command.full_name == fewer { by } else { 0 };
            let arity = (least as i16 - by) * if fixed { 1 } else { -1 };
            if row.arity != arity {
                differences.push(format!("{}: {} {arity}", command.full_name, row.arity));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }

    #[test]
    fn arguments_and_key_specs_agree() {
        fn keys(arguments: &[Argument], found: &mut Vec<usize>) {
            for argument in arguments {
                found.extend(argument.key_spec);
                keys(&argument.parts, found);
            }
        }
        for (command, _) in all() {
            let mut found = Vec::new();
            keys(&command.arguments, &mut found);
            let specs = command.command.keys.len();
            let name = &command.full_name;
            assert!(found.iter().all(|spec| *spec < specs), "{name}: {found:?}");
        }
    }
}
