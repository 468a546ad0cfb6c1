//! The filters of CLIENT LIST and CLIENT KILL: which clients a command is about.
//!
//! A client fits if it fits all filters. A filter that is given twice holds as it was given
//! last, but the numbers of several `ID` add up. `NOT-` before a filter's name makes it
//! fit the other clients.

use super::super::args::{self, Options};
use super::super::{Error, SessionCtx};
use super::Class;
use super::flags::flag_letters;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::state::acl::User;
use crate::state::clients::ClientFlags;
use crate::state::{ClientId, ClientInfo, Server};
use crate::sys::clock;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The letters that CLIENT LIST may show as flags, in either line of servers.
const KNOWN_FLAGS: &[u8] = b"OSMPxbtRBdcuAUreTIiEN";

/// One property of a client.
#[derive(Debug)]
enum Test<'a> {
    Id(Vec<ClientId>),
    Class(Class),
    Addr(&'a [u8]),
    Laddr(&'a [u8]),
    Ip(&'a [u8]),
    User(Arc<User>),
    Name(&'a [u8]),
    LibName(&'a [u8]),
    LibVer(&'a [u8]),
    Flags(&'a [u8]),
    Capa(&'a [u8]),
    Db(u32),
}

impl Test<'_> {
    fn fits(&self, client: &ClientInfo) -> bool {
        // A text that was not set equals nothing.
        let is = |own: &[u8], wanted: &[u8]| !own.is_empty() && own == wanted;
        match self {
            Test::Id(ids) => ids.contains(&client.id),
            Test::Class(class) => Class::of(client) == *class,
            Test::Addr(addr) => client.addr.as_bytes() == *addr,
            Test::Laddr(addr) => client.laddr.as_bytes() == *addr,
            Test::Ip(ip) => is_at(client.addr.as_bytes(), ip),
            Test::User(user) => client.acts_as(user),
            Test::Name(name) => is(&client.names.lock().name, name),
            Test::LibName(name) => is(&client.names.lock().lib_name, name),
            Test::LibVer(version) => is(&client.names.lock().lib_ver, version),
            Test::Flags(letters) => {
                let own = flag_letters(client);
                letters.iter().all(|l| own.as_bytes().contains(l))
            }
            Test::Capa(letters) => {
                letters.is_empty() || client.flags().contains(ClientFlags::TAKES_REDIRECT)
            }
            Test::Db(db) => client.db.load(Ordering::Relaxed) == *db,
        }
    }
}

/// Whether `addr` is `ip:port` or `[ip]:port`. A Unix socket has port 0 and no IP address.
fn is_at(addr: &[u8], ip: &[u8]) -> bool {
    let addr = addr.strip_prefix(b"[").unwrap_or(addr);
    let Some(rest) = addr.strip_prefix(ip) else {
        return false;
    };
    let rest = rest.strip_prefix(b"]").unwrap_or(rest);
    matches!(rest, [b':', first, ..] if *first != b'0')
}

/// The filters of one command.
#[derive(Debug, Default)]
pub(super) struct Filter<'a> {
    /// With each, whether `NOT-` was before it.
    tests: Vec<(bool, Test<'a>)>,
    min_age_s: Option<u64>,
    min_idle_s: Option<u64>,
    spare_me: bool,
}

/// Where filters are given: the commands differ in the errors for numbers of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    List,
    Kill,
}

impl<'a> Filter<'a> {
    /// The filters in the arguments from the third on.
    pub(super) fn parse(
        ctx: &SessionCtx<'_>,
        args: &'a [&'a [u8]],
        command: For,
    ) -> Result<Filter<'a>, Error> {
        let mut filter = Filter {
            spare_me: command == For::Kill,
            ..Filter::default()
        };
        let mut options = Options::new(args, 2);
        while let Some(word) = options.peek() {
            options.value()?;
            filter.take(ctx.server, word, &mut options, command)?;
        }
        Ok(filter)
    }

    /// A filter by the address alone, which does not spare the caller.
    pub(super) fn by_address(addr: &'a [u8]) -> Filter<'a> {
        Filter {
            tests: vec![(false, Test::Addr(addr))],
            ..Filter::default()
        }
    }

    fn take(
        &mut self,
        server: &Server,
        word: &[u8],
        options: &mut Options<'a>,
        command: For,
    ) -> Result<(), Error> {
        let word = word.to_ascii_lowercase();
        let (not, name) = match word.strip_prefix(b"not-") {
            Some(rest) => (true, rest),
            None => (false, word.as_slice()),
        };
        let test = match name {
            b"id" => Test::Id(numbers(options, command)?),
            b"type" => Test::Class(Class::parse(options.value()?)?),
            b"addr" => Test::Addr(options.value()?),
            b"laddr" => Test::Laddr(options.value()?),
            b"ip" => Test::Ip(options.value()?),
            b"user" => Test::User(user(server, options.value()?)?),
            b"name" => Test::Name(options.value()?),
            b"lib-name" => Test::LibName(options.value()?),
            b"lib-ver" => Test::LibVer(options.value()?),
            b"flags" => Test::Flags(letters(options.value()?, "flags", KNOWN_FLAGS, not)?),
            b"capa" => Test::Capa(letters(options.value()?, "capa", b"r", not)?),
            b"db" => Test::Db(db(server, options.value()?, not)?),
            b"maxage" if !not => {
                self.min_age_s = Some(seconds(options.value()?, "maxage")?);
                return Ok(());
            }
            b"idle" if !not => {
                self.min_idle_s = Some(seconds(options.value()?, "idle")?);
                return Ok(());
            }
            b"skipme" if !not => {
                self.spare_me = match options.value()? {
                    word if args::is(word, "YES") => true,
                    word if args::is(word, "NO") => false,
                    _ => return Err(Error::Syntax),
                };
                return Ok(());
            }
            _ => return Err(Error::Syntax),
        };
        self.put(not, test);
        Ok(())
    }

    fn put(&mut self, not: bool, mut test: Test<'a>) {
        let kind = std::mem::discriminant(&test);
        let same = |(n, t): &(bool, Test<'a>)| *n == not && std::mem::discriminant(t) == kind;
        if let Some(at) = self.tests.iter().position(same) {
            let (_, old) = self.tests.swap_remove(at);
            if let (Test::Id(ids), Test::Id(more)) = (&mut test, old) {
                ids.splice(..0, more);
            }
        }
        self.tests.push((not, test));
    }

    /// The clients that fit, by number; if the only filter is `ID`, in its order.
    pub(super) fn clients(&self, ctx: &SessionCtx<'_>) -> Vec<Arc<ClientInfo>> {
        let (me, now_ms) = (ctx.session.info.id, clock::unix_ms());
        let mut clients = match self.tests.as_slice() {
            [(false, Test::Id(ids))] => {
                let found = ids.iter().filter_map(|id| ctx.server.clients.get(*id));
                found.collect()
            }
            _ => ctx.server.clients.all(),
        };
        clients.retain(|client| self.fits(client, me, now_ms));
        clients
    }

    fn fits(&self, client: &ClientInfo, me: ClientId, now_ms: UnixMs) -> bool {
        let age_s = now_ms.since(client.created_ms) / 1000;
        let idle_s = now_ms.since(client.active_ms.load(Ordering::Relaxed)) / 1000;
        self.tests
            .iter()
            .all(|(not, test)| test.fits(client) != *not)
            && self.min_age_s.is_none_or(|min| age_s >= min)
            && self.min_idle_s.is_none_or(|min| idle_s >= min)
            && !(self.spare_me && client.id == me)
    }
}

/// The numbers of clients up to the next filter. LIST takes any number; one that no client can
/// have selects none.
fn numbers(options: &mut Options<'_>, command: For) -> Result<Vec<ClientId>, Error> {
    let wrong = match command {
        For::List => Error::text("ERR Invalid client ID"),
        For::Kill => Error::text("ERR client-id should be greater than 0"),
    };
    if options.is_empty() {
        return Err(Error::Syntax);
    }
    let mut ids = Vec::new();
    let mut count = 0;
    while let Some(arg) = options.peek() {
        let Some(id) = num::parse_i64(arg) else {
            if count == 0 || (command == For::List && !is_filter(arg)) {
                return Err(wrong);
            }
            break;
        };
        options.value()?;
        count += 1;
        match u64::try_from(id) {
            Ok(id) if id > 0 => ids.push(ClientId(id)),
            _ if command == For::Kill => return Err(wrong),
            _ => {}
        }
    }
    Ok(ids)
}

/// Whether a word may be the name of a filter rather than a mistaken number.
fn is_filter(word: &[u8]) -> bool {
    const NAMES: [&[u8]; 15] = [
        b"id",
        b"type",
        b"addr",
        b"laddr",
        b"ip",
        b"user",
        b"name",
        b"lib-name",
        b"lib-ver",
        b"flags",
        b"capa",
        b"db",
        b"maxage",
        b"idle",
        b"skipme",
    ];
    let word = word.to_ascii_lowercase();
    let name = word.strip_prefix(b"not-").unwrap_or(&word);
    NAMES.contains(&name)
}

fn user(server: &Server, name: &[u8]) -> Result<Arc<User>, Error> {
    let missing = || Error::Bytes([b"ERR No such user '", name, b"'"].concat());
    server.users.get(name).ok_or_else(missing)
}

/// How filters are named in errors.
fn title(name: &str, not: bool) -> String {
    match not {
        true => format!("NOT-{}", name.to_ascii_uppercase()),
        false => name.to_owned(),
    }
}

fn letters<'a>(given: &'a [u8], name: &str, known: &[u8], not: bool) -> Result<&'a [u8], Error> {
    if given.iter().all(|letter| known.contains(letter)) {
        return Ok(given);
    }
    let place = match not {
        true => format!("the {} filter", title(name, true)),
        false => "the provided filter".to_owned(),
    };
    let given = String::from_utf8_lossy(given);
    Err(Error::owned(format!(
        "ERR Unknown {name} found in {place}: {given}"
    )))
}

fn db(server: &Server, value: &[u8], not: bool) -> Result<u32, Error> {
    let name = if not { "NOT-DB" } else { "DB" };
    let number = integer(value, name, i64::from(i32::MIN)..=i64::from(i32::MAX))?;
    let count = server.engine.config.databases;
    match u32::try_from(number) {
        Ok(db) if db < u32::from(count) => Ok(db),
        _ => Err(Error::owned(format!(
            "ERR {name} number should be between 0 and {}",
            count - 1
        ))),
    }
}

fn integer(value: &[u8], name: &str, bounds: RangeInclusive<i64>) -> Result<i64, Error> {
    let number = num::parse_i64(value).filter(|n| bounds.contains(n));
    number.ok_or_else(|| Error::owned(format!("ERR {name} is not an integer or out of range")))
}

fn seconds(value: &[u8], name: &str) -> Result<u64, Error> {
    let number = integer(value, name, i64::MIN..=i64::MAX)?;
    match u64::try_from(number) {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err(Error::owned(format!("ERR {name} should be greater than 0"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ip_address_is_what_stands_before_the_port() {
        for (addr, ip, fits) in [
            ("127.0.0.1:4000", "127.0.0.1", true),
            ("127.0.0.1:4000", "127.0.0", false),
            ("127.0.0.10:4000", "127.0.0.1", false),
            ("[::1]:4000", "::1", true),
            ("[::1]:4000", "::", false),
            ("/run/kedis.sock:0", "/run/kedis.sock", false),
        ] {
            assert_eq!(is_at(addr.as_bytes(), ip.as_bytes()), fits, "{addr} {ip}");
        }
    }
}
