//! Whether a user may run a command: its number, the keys, channels and DBs that it uses.

use crate::commands::command::categories;
use crate::commands::table::keys::{KeyFlags, KeySpec, Keys};
use crate::commands::table::registry::Registered;
use crate::commands::table::spec::{Channels, Dbs};
use crate::commands::{Command, Error, Flags};
use crate::state::acl::{Access, Login, Reason, Rules, Selector};
use crate::storage::DbIndex;

/// Where a command runs.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The selected DB.
    pub db: DbIndex,
    /// How many DBs there are.
    pub databases: u16,
}

/// What a user lacks for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// A DB; the index of the argument that names it, if one does.
    Db(Option<usize>),
    /// The command.
    Command,
    /// The key at this index of the arguments.
    Key(usize),
    /// The channel at this index.
    Channel(usize),
}

impl Denied {
    /// Of several selectors, that which lacks the least is reported.
    fn rank(self) -> (u8, usize) {
        match self {
            Denied::Db(at) => (0, at.unwrap_or(0)),
            Denied::Command => (1, 0),
            Denied::Key(at) => (2, at),
            Denied::Channel(at) => (3, at),
        }
    }

    /// The reason, for ACL LOG.
    pub fn reason(self) -> Reason {
        match self {
            Denied::Db(_) => Reason::Database,
            Denied::Command => Reason::Command,
            Denied::Key(_) => Reason::Key,
            Denied::Channel(_) => Reason::Channel,
        }
    }

    /// The command, key, channel or DB.
    pub fn object<'a>(self, found: &'a Registered, args: &[&'a [u8]]) -> &'a [u8] {
        let name = found.full_name.as_bytes();
        let arg = |at: usize| args.get(at).copied().unwrap_or_default();
        match self {
            Denied::Command | Denied::Db(None) => name,
            Denied::Key(at) | Denied::Channel(at) | Denied::Db(Some(at)) => arg(at),
        }
    }

    /// What the client is told. Names of keys and channels are not: an error may be seen by
    /// others than the one who sent them.
    pub fn text(self, user: &[u8], found: &Registered) -> Vec<u8> {
        match self {
            Denied::Command => no_command(user, found),
            Denied::Key(_) => b"No permissions to access a key".to_vec(),
            Denied::Channel(_) => b"No permissions to access a channel".to_vec(),
            Denied::Db(_) => b"No permissions to access database".to_vec(),
        }
    }

    /// What ACL DRYRUN says.
    pub(super) fn verbose_text(self, user: &[u8], found: &Registered, args: &[&[u8]]) -> Vec<u8> {
        let object = self.object(found, args);
        let denied = |before: &[u8], after: &[u8]| {
            let begin = b"User ".as_slice();
            [
                begin,
                user,
                b" has no permissions to access ",
                before,
                object,
                after,
            ]
            .concat()
        };
        match self {
            Denied::Command => no_command(user, found),
            Denied::Key(_) => denied(b"the '", b"' key"),
            Denied::Channel(_) => denied(b"the '", b"' channel"),
            Denied::Db(_) => denied(b"database ", b""),
        }
    }

    /// The error for a client.
    pub fn error(self, user: &[u8], found: &Registered) -> Error {
        Error::Bytes([b"NOPERM ", &*self.text(user, found)].concat())
    }
}

fn no_command(user: &[u8], found: &Registered) -> Vec<u8> {
    let (name, middle) = (
        found.full_name.as_bytes(),
        b" has no permissions to run the '",
    );
    [b"User ", user, middle.as_slice(), name, b"' command"].concat()
}

/// Whether `login` may run a command in a DB.
///
/// # Errors
/// What it lacks.
pub fn check(
    login: &Login,
    found: &Registered,
    args: &[&[u8]],
    place: Place,
) -> Result<(), Denied> {
    if login.is_unrestricted() {
        return Ok(());
    }
    login.with_rules(|rules| match rules {
        Some(rules) => check_rules(rules, found, args, place),
        None => Ok(()),
    })
}

/// Whether a user with these rules may run a command in a DB.
///
/// # Errors
/// What it lacks.
pub(super) fn check_rules(
    rules: &Rules,
    found: &Registered,
    args: &[&[u8]],
    place: Place,
) -> Result<(), Denied> {
    let mut denied = Denied::Db(None);
    for selector in rules.all_selectors() {
        match check_selector(selector, found, args, place) {
            Ok(()) => return Ok(()),
            Err(lacks) if lacks.rank() > denied.rank() => denied = lacks,
            Err(_) => {}
        }
    }
    Err(denied)
}

/// Whether a command may run that reads keys which its arguments do not name (SORT BY): one
/// selector must permit both the command and to read every key.
pub(in crate::commands) fn may_read_every_key(
    login: &Login,
    found: &Registered,
    args: &[&[u8]],
    place: Place,
) -> bool {
    let permits = |selector: &Selector| {
        selector.allows_all_keys(Access::READ)
            && check_selector(selector, found, args, place).is_ok()
    };
    login.is_unrestricted()
        || login.with_rules(|rules| rules.is_none_or(|rules| rules.all_selectors().any(permits)))
}

fn check_selector(
    selector: &Selector,
    found: &Registered,
    args: &[&[u8]],
    place: Place,
) -> Result<(), Denied> {
    let command = found.command;
    if selector.dbs.is_some() {
        check_dbs(selector, command, args, place)?;
    }
    if !selector.all_commands
        && !selector.allows_command(found.index, args)
        && !command.flags.contains(Flags::NO_AUTH)
    {
        return Err(Denied::Command);
    }
    if !selector.all_keys && !command.keys.is_empty() {
        check_keys(selector, command, args)?;
    }
    if !selector.all_channels {
        check_channels(selector, command, args)?;
    }
    Ok(())
}

/// What a command needs that does this with a key.
pub(super) fn access(command: &Command, flags: KeyFlags) -> Access {
    let changes = KeyFlags::INSERT | KeyFlags::DELETE | KeyFlags::UPDATE;
    let mut access = Access::empty();
    access.set(Access::READ, flags.contains(KeyFlags::ACCESS));
    access.set(Access::WRITE, flags.intersects(changes));
    if !access.is_empty() {
        return access;
    }
    // Commands of RedisBloom do not say what becomes of the value.
    let of_module = command.group.name() == "module";
    if flags.contains(KeyFlags::RW) {
        Access::all()
    } else if flags.intersects(KeyFlags::OW | KeyFlags::RM) {
        Access::WRITE
    } else if of_module {
        Access::READ
    } else {
        // Whether it is there, of which type, how long: any permission is enough.
        Access::empty()
    }
}

fn check_keys(selector: &Selector, command: &Command, args: &[&[u8]]) -> Result<(), Denied> {
    if let Some((at, flags)) = command.only_key() {
        return check_key(selector, command, args, (at, flags));
    }
    let mut keys = Keys::new();
    // The handler refuses arguments that do not fit; the keys found so far are checked.
    let _ = command.find_keys(args, &mut keys);
    let mut keys = keys.into_iter();
    keys.try_for_each(|key| check_key(selector, command, args, key))
}

/// Checks one key, with its index and what the command does with it.
#[inline]
fn check_key(
    selector: &Selector,
    command: &Command,
    args: &[&[u8]],
    (at, flags): (usize, KeyFlags),
) -> Result<(), Denied> {
    let key = args.get(at).copied().unwrap_or_default();
    let access = access(command, flags);
    let allowed = match flags.contains(KeyFlags::PREFIX) {
        true => selector.allows_prefix(key, access),
        false => selector.allows_key(key, access),
    };
    match allowed || flags.contains(KeyFlags::NOT_KEY) {
        true => Ok(()),
        false => Err(Denied::Key(at)),
    }
}

fn is_of_keys(spec: &KeySpec) -> bool {
    !spec.flags.contains(KeyFlags::NOT_KEY)
}

fn check_channels(selector: &Selector, command: &Command, args: &[&[u8]]) -> Result<(), Denied> {
    let (range, is_pattern) = match command.channels {
        Channels::None => return Ok(()),
        Channels::First => (1..2, false),
        Channels::All => (1..args.len(), false),
        Channels::Patterns => (1..args.len(), true),
    };
    for at in range {
        let name = args.get(at).copied().unwrap_or_default();
        if !selector.allows_channel(name, is_pattern) {
            return Err(Denied::Channel(at));
        }
    }
    Ok(())
}

/// Whether a command uses the selected DB.
fn uses_db(command: &Command) -> bool {
    let of_keys = ["keyspace", "read", "write"];
    command.keys.iter().any(is_of_keys) || of_keys.iter().any(|name| categories::has(command, name))
}

fn check_dbs(
    selector: &Selector,
    command: &Command,
    args: &[&[u8]],
    place: Place,
) -> Result<(), Denied> {
    let named = command.named_dbs(args);
    // The handler refuses DBs that do not exist.
    let mut named = named.iter().filter(|db| db.0 < place.databases);
    if let Some(denied) = named.find(|db| !selector.allows_db(db.0)) {
        let text = denied.0.to_string();
        let at = args.iter().rposition(|arg| *arg == text.as_bytes());
        return Err(Denied::Db(at));
    }
    let uses_own = match command.dbs {
        Dbs::All => {
            let mut all = 0..place.databases;
            return match all.all(|db| selector.allows_db(db)) {
                true => Ok(()),
                false => Err(Denied::Db(None)),
            };
        }
        Dbs::Selected | Dbs::Swapped => command.keys.iter().any(is_of_keys),
        Dbs::Second(_) | Dbs::None => uses_db(command),
    };
    match uses_own && !selector.allows_db(place.db.0) {
        true => Err(Denied::Db(None)),
        false => Ok(()),
    }
}
