//! What one user may do.

use super::password::PasswordHash;
use super::pattern::{Access, Pattern};
use crate::state::config::quote_always;
use std::collections::{BTreeMap, BTreeSet};

/// A set of commands, by their numbers in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSet(Box<[u64]>);

impl CommandSet {
    /// All of `commands` commands, or none.
    pub fn new(commands: usize, all: bool) -> CommandSet {
        let word = if all { u64::MAX } else { 0 };
        CommandSet(vec![word; commands.div_ceil(64)].into())
    }

    /// Whether a command is in the set.
    pub fn has(&self, index: usize) -> bool {
        let word = self.0.get(index / 64).copied().unwrap_or(0);
        word >> (index % 64) & 1 == 1
    }

    /// Adds or removes a command.
    pub fn set(&mut self, index: usize, on: bool) {
        if let Some(word) = self.0.get_mut(index / 64) {
            let bit = 1 << (index % 64);
            match on {
                true => *word |= bit,
                false => *word &= !bit,
            }
        }
    }

    /// Adds all commands, or removes all.
    pub fn fill(&mut self, on: bool) {
        self.0.fill(if on { u64::MAX } else { 0 });
    }
}

/// Keys, and what may be done with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    /// Which keys.
    pub pattern: Pattern,
    /// What may be done with them.
    pub access: Access,
}

/// Permissions that belong together: a command is allowed if one selector of its user has all
/// that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The commands.
    pub commands: CommandSet,
    /// Whether all commands are allowed, and none was taken away since.
    pub all_commands: bool,
    /// Whether the rules of commands begin with all of them, so that commands of later versions
    /// are allowed too.
    pub begins_with_all: bool,
    /// The rules of commands since all were allowed or none: a sign, and the name of a command
    /// or an `@` and that of a category.
    pub command_rules: Vec<String>,
    /// Commands that are allowed with certain words as the first argument only.
    pub first_args: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Whether all keys are allowed.
    pub all_keys: bool,
    /// The keys.
    pub keys: Vec<KeyPattern>,
    /// Whether all channels are allowed.
    pub all_channels: bool,
    /// The channels.
    pub channels: Vec<Pattern>,
    /// The DBs; `None`: all.
    pub dbs: Option<BTreeSet<u32>>,
}

impl Selector {
    /// Permits nothing but all DBs, on a server of `commands` commands; all channels too, if
    /// `acl-pubsub-default` says so.
    pub fn new(commands: usize, all_channels: bool) -> Selector {
        Selector {
            commands: CommandSet::new(commands, false),
            all_commands: false,
            begins_with_all: false,
            command_rules: Vec::new(),
            first_args: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
            dbs: None,
        }
    }

    /// Whether it permits everything.
    fn is_unrestricted(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels && self.dbs.is_none()
    }

    /// Allows all commands, or none.
    pub fn set_all_commands(&mut self, on: bool) {
        self.commands.fill(on);
        self.all_commands = on;
        self.begins_with_all = on;
        self.command_rules.clear();
        self.first_args.clear();
    }

    /// Whether a command may be run with these arguments (its name is the first).
    pub fn allows_command(&self, index: usize, args: &[&[u8]]) -> bool {
        self.commands.has(index)
            || self.first_args.get(&index).is_some_and(|words| {
                let first = args.get(1).copied().unwrap_or_default();
                words.iter().any(|word| word.eq_ignore_ascii_case(first))
            })
    }

    /// Whether a key may be used in this way.
    pub fn allows_key(&self, key: &[u8], access: Access) -> bool {
        let allows =
            |known: &KeyPattern| known.access.contains(access) && known.pattern.matches(key);
        self.all_keys || self.keys.iter().any(allows)
    }

    /// Whether all keys that begin with this one may be used in this way.
    pub fn allows_prefix(&self, beginning: &[u8], access: Access) -> bool {
        let allows =
            |known: &KeyPattern| known.access.contains(access) && known.pattern.covers(beginning);
        self.all_keys || self.keys.iter().any(allows)
    }

    /// Whether every key may be used in this way.
    pub fn allows_all_keys(&self, access: Access) -> bool {
        let allows = |known: &KeyPattern| known.access.contains(access) && known.pattern.is_any();
        self.all_keys || self.keys.iter().any(allows)
    }

    /// Whether a channel may be used. A pattern of channels must stand among the rules as it is.
    pub fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        let allows = |known: &Pattern| match is_pattern {
            true => known.text() == name,
            false => known.matches(name),
        };
        self.all_channels || self.channels.iter().any(allows)
    }

    /// Whether a DB may be used.
    pub fn allows_db(&self, db: u16) -> bool {
        let dbs = self.dbs.as_ref();
        dbs.is_none_or(|dbs| dbs.contains(&u32::from(db)))
    }

    /// The rules of commands, as ACL SETUSER takes them.
    pub fn commands_text(&self) -> String {
        let first = match self.begins_with_all {
            true => "+@all",
            false => "-@all",
        };
        let rules = self.command_rules.iter().map(String::as_str);
        let words: Vec<&str> = std::iter::once(first).chain(rules).collect();
        words.join(" ")
    }

    fn key_words(&self) -> Vec<Vec<u8>> {
        if self.all_keys {
            return vec![b"~*".to_vec()];
        }
        let words = self.keys.iter().map(|known| {
            let sign: &[u8] = match (
                known.access.contains(Access::READ),
                known.access.contains(Access::WRITE),
            ) {
                // `~*` would be the flag, behind which no pattern may stand.
                (true, true) if known.pattern.is_any() => b"%RW~",
                (true, true) => b"~",
                (true, false) => b"%R~",
                (false, _) => b"%W~",
            };
            [sign, known.pattern.text()].concat()
        });
        words.collect()
    }

    /// The rules of keys, as ACL SETUSER takes them.
    pub fn keys_text(&self) -> Vec<u8> {
        self.key_words().join(&b' ')
    }

    fn channel_words(&self) -> Vec<Vec<u8>> {
        if self.all_channels {
            return vec![b"&*".to_vec()];
        }
        let words = self.channels.iter();
        words.map(|known| [b"&", known.text()].concat()).collect()
    }

    /// The rules of channels, as ACL SETUSER takes them.
    pub fn channels_text(&self) -> Vec<u8> {
        self.channel_words().join(&b' ')
    }

    /// The rule of the DBs; empty: none may be used.
    pub fn dbs_text(&self) -> String {
        match &self.dbs {
            None => "alldbs".to_owned(),
            Some(dbs) if dbs.is_empty() => String::new(),
            Some(dbs) => {
                let dbs: Vec<String> = dbs.iter().map(u32::to_string).collect();
                format!("db={}", dbs.join(","))
            }
        }
    }

    /// All rules, as ACL SETUSER takes them. That all DBs may be used is not said, so that
    /// servers without such rules understand the others.
    fn words(&self) -> Vec<Vec<u8>> {
        let mut words = self.key_words();
        if !self.all_channels {
            words.push(b"resetchannels".to_vec());
        }
        words.extend(self.channel_words());
        match &self.dbs {
            None => {}
            Some(dbs) if dbs.is_empty() => words.push(b"resetdbs".to_vec()),
            Some(_) => words.push(self.dbs_text().into_bytes()),
        }
        let commands = self.commands_text();
        words.extend(commands.split(' ').map(|word| word.as_bytes().to_vec()));
        words
    }

    /// All rules in parentheses. Between them words may be quoted.
    fn inner_text(&self) -> Vec<u8> {
        let quoted = |word: Vec<u8>| {
            let is_special = word.iter().any(|byte| b"\"'\\".contains(byte));
            match is_special || word.ends_with(b")") {
                true => quote_always(&word),
                false => word,
            }
        };
        let words: Vec<Vec<u8>> = self.words().into_iter().map(quoted).collect();
        [b"(", &*words.join(&b' '), b")"].concat()
    }
}

/// What one user may do, and how it logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Whether one can log in as this user.
    pub enabled: bool,
    /// Whether any password is right.
    pub no_password: bool,
    /// Whether payloads of RESTORE are checked in full. Here they always are.
    pub sanitizes: bool,
    /// The passwords.
    pub passwords: Vec<PasswordHash>,
    /// The permissions outside of parentheses.
    pub root: Selector,
    /// Those in parentheses.
    pub selectors: Vec<Selector>,
}

impl Rules {
    /// A new user, on a server of `commands` commands.
    pub fn new(commands: usize, all_channels: bool) -> Rules {
        Rules {
            enabled: false,
            no_password: false,
            sanitizes: true,
            passwords: Vec::new(),
            root: Selector::new(commands, all_channels),
            selectors: Vec::new(),
        }
    }

    /// The user `default` of a server whose configuration says nothing about it: it may do
    /// everything. `required` is `requirepass`.
    pub fn of_default_user(commands: usize, required: &[u8]) -> Rules {
        let mut rules = Rules::new(commands, true);
        rules.enabled = true;
        rules.root.set_all_commands(true);
        rules.root.all_keys = true;
        rules.require(required);
        rules
    }

    /// Makes this the only password; any is right if it is empty.
    pub fn require(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.no_password = password.is_empty();
        if !password.is_empty() {
            self.passwords.push(PasswordHash::of(password));
        }
    }

    /// Takes all permissions away, and the login.
    pub(super) fn permit_nothing(&mut self) {
        let root = &mut self.root;
        root.set_all_commands(false);
        root.all_keys = false;
        root.keys.clear();
        root.all_channels = false;
        root.channels.clear();
        self.selectors.clear();
        self.enabled = false;
    }

    /// All selectors.
    pub fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether everything is permitted.
    pub fn is_unrestricted(&self) -> bool {
        self.all_selectors().any(Selector::is_unrestricted)
    }

    /// Whether one logs in with this password.
    pub fn accepts(&self, password: &[u8]) -> bool {
        // The hash is computed in any case, so that the time does not tell which users exist
        // without a password or are off.
        let hash = PasswordHash::of(password);
        let known = hash.is_among(&self.passwords);
        self.enabled && (self.no_password || known)
    }

    /// Whether connections that have not logged in act as this user, if it is the default one.
    pub fn is_open(&self) -> bool {
        self.enabled && self.no_password
    }

    /// Whether a channel may be used.
    pub fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        self.all_selectors()
            .any(|selector| selector.allows_channel(name, is_pattern))
    }

    /// Whether all that `old` permits of channels is permitted as well, as far as that can be
    /// said without names.
    pub fn keeps_channels_of(&self, old: &Rules) -> bool {
        if self.all_selectors().any(|selector| selector.all_channels) {
            return true;
        }
        let mut before = old.all_selectors();
        before.all(|selector| {
            let mut channels = selector.channels.iter();
            !selector.all_channels && channels.all(|known| self.allows_channel(known.text(), true))
        })
    }

    /// The flags, as replies list them.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        if self.no_password {
            flags.push("nopass");
        }
        flags.push(match self.sanitizes {
            true => "sanitize-payload",
            false => "skip-sanitize-payload",
        });
        flags
    }

    /// All rules, as ACL SETUSER takes them.
    pub fn text(&self) -> Vec<u8> {
        let flags = self
            .flags()
            .into_iter()
            .map(|flag| flag.as_bytes().to_vec());
        let hash = |hash: &PasswordHash| format!("#{hash}").into_bytes();
        let words: Vec<Vec<u8>> = flags
            .chain(self.passwords.iter().map(hash))
            .chain(self.root.words())
            .chain(self.selectors.iter().map(Selector::inner_text))
            .collect();
        words.join(&b' ')
    }
}
