//! SORT and SORT_RO.
//!
//! The keys that BY and GET patterns name are not known in advance, so they are not locked.
//! SORT reads their committed values, and hides expired keys without deleting them. For the
//! same reason the binlog of SORT STORE holds the effect, the new list, and not the command.

use super::acl::check::{Place, may_read_every_key};
use super::args::Options;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx, registry};
use crate::base::slots;
use crate::commands::table::spec::Group;
use crate::state::{Server, Session};
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, View};
use crate::types::OpError;
use crate::types::definition::Sortable;
use crate::types::list::{End, List};
use crate::types::sort::{self, Element, Order, Pattern};
use std::ops::Range;

/// Maximum number of elements of one RPUSH in the binlog.
const LOGGED_ELEMENTS: usize = 512;

const DENIED_BY: Error =
    Error::text("ERR BY option of SORT denied due to insufficient ACL permissions.");
const DENIED_GET: Error =
    Error::text("ERR GET option of SORT denied due to insufficient ACL permissions.");
const BY_LEAVES_SLOT: Error = Error::text(
    "ERR BY option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots.",
);
const GET_LEAVES_SLOT: Error = Error::text(
    "ERR GET option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots.",
);

/// Whether the user of the client may read every key with the command.
fn may_read_any(
    server: &Server,
    session: &Session,
    db: DbIndex,
    args: &[&[u8]],
    command: &Command,
) -> bool {
    let place = Place {
        db,
        databases: server.engine.config.databases,
    };
    let found = registry().find(command.name.as_bytes());
    found.is_some_and(|found| may_read_every_key(&session.login, found, args, place))
}

struct Request<'a> {
    order: Order<'a>,
    /// The elements are not sorted (BY without `*`).
    unsorted: bool,
    offset: i64,
    count: i64,
    get: Vec<Pattern<'a>>,
    store: Option<&'a [u8]>,
    for_script: bool,
}

impl<'a> Request<'a> {
    /// `reads_any`: the user may read the keys that patterns name, which may be any. `in_cluster`:
    /// they must be in the slot of the key.
    fn parse(
        args: &'a [&'a [u8]],
        may_store: bool,
        in_cluster: bool,
        reads_any: impl Fn() -> bool,
    ) -> Result<Request<'a>, Error> {
        let leaves_slot = |pattern: &[u8]| {
            in_cluster && slots::of_pattern(pattern) != Some(slots::of_key(args[1]))
        };
        let mut request = Request {
            order: Order {
                alpha: false,
                up_to_nul: true,
                descending: false,
                by: None,
            },
            unsorted: false,
            offset: 0,
            count: -1,
            get: Vec::new(),
            store: None,
            for_script: false,
        };
        let mut options = Options::new(args, 2);
        while !options.is_empty() {
            if options.word("ASC") {
                request.order.descending = false;
            } else if options.word("DESC") {
                request.order.descending = true;
            } else if options.word("ALPHA") {
                request.order.alpha = true;
            } else if options.left() >= 3 && options.word("LIMIT") {
                request.offset = options.int()?;
                request.count = options.int()?;
            } else if options.left() >= 2 && may_store && options.word("STORE") {
                request.store = Some(options.value()?);
                request.order.up_to_nul = false;
            } else if options.left() >= 2 && options.word("BY") {
                let by = options.value()?;
                request.unsorted |= !by.contains(&b'*');
                if by.contains(&b'*') && leaves_slot(by) {
                    return Err(BY_LEAVES_SLOT);
                }
                if by.contains(&b'*') && !reads_any() {
                    return Err(DENIED_BY);
                }
                request.order.by = Some(Pattern::new(by));
            } else if options.left() >= 2 && options.word("GET") {
                let get = options.value()?;
                if get != b"#" && leaves_slot(get) {
                    return Err(GET_LEAVES_SLOT);
                }
                if !reads_any() {
                    return Err(DENIED_GET);
                }
                request.get.push(Pattern::new(get));
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(request)
    }

    /// The range of positions that LIMIT selects of `len` elements.
    fn window(&self, len: u64) -> Range<u64> {
        let start = u64::try_from(self.offset).unwrap_or(0).min(len);
        match u64::try_from(self.count) {
            Ok(count) => start..start.saturating_add(count).min(len),
            Err(_) => start..len,
        }
    }

    /// The selected elements, in order.
    fn run(
        &mut self,
        view: &mut View,
        db: DbIndex,
        source: Option<&dyn Sortable>,
    ) -> Result<Vec<Element>, Error> {
        let Some(source) = source else {
            return Ok(Vec::new());
        };
        let settled = self.store.is_some() || self.for_script;
        if self.unsorted && settled && !source.is_ordered() {
            // A stored list and the result of a script must not depend on the order on
            // disk.
            self.unsorted = false;
            self.order.alpha = true;
            self.order.by = None;
        }
        let len = source.len();
        let window = self.window(len);
        if self.unsorted {
            let direction = match self.order.descending {
                true => Direction::Backward,
                false => Direction::Forward,
            };
            return Ok(source.elements(view, window, direction)?);
        }
        let elements = source.elements(view, 0..len, Direction::Forward)?;
        let sorted = sort::sort(view, db, elements, self.order).map_err(|error| match error {
            OpError::NotFloat => {
                Error::text("ERR One or more scores can't be converted into double")
            }
            other => other.into(),
        })?;
        let (skip, take) = (window.start, window.end - window.start);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let take = usize::try_from(take).unwrap_or(usize::MAX);
        Ok(sorted.into_iter().skip(skip).take(take).collect())
    }

    fn replies(&self, elements: &[Element]) -> usize {
        elements.len() * self.get.len().max(1)
    }

    /// Calls `each` with the output for each element: the values of the GET patterns, or the
    /// element itself.
    fn outputs(
        &self,
        view: &mut View,
        db: DbIndex,
        elements: Vec<Element>,
        mut each: impl FnMut(Option<Vec<u8>>),
    ) -> CmdResult {
        for element in elements {
            for pattern in &self.get {
                each(pattern.resolve(view, db, &element)?);
            }
            if self.get.is_empty() {
                each(Some(element));
            }
        }
        Ok(())
    }
}

/// Sorts and replies.
fn answer(
    view: &mut View,
    reply: &mut crate::resp::Reply,
    db: DbIndex,
    source: Option<&dyn Sortable>,
    mut request: Request<'_>,
) -> CmdResult {
    let elements = request.run(view, db, source)?;
    reply.array(request.replies(&elements));
    request.outputs(view, db, elements, |value| match value {
        Some(value) => reply.bulk(&value),
        None => reply.null(),
    })
}

fn sort_ro(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let in_cluster = ctx.server.engine.config.cluster_enabled;
    let mut request = Request::parse(args, false, in_cluster, || {
        may_read_any(ctx.server, ctx.session, ctx.db, args, &SORT_RO)
    })?;
    request.for_script = ctx.session.is_script;
    let source = sort::open(ctx.view, ctx.db, args[1])?;
    ctx.view.count_reads();
    answer(ctx.view, ctx.reply, ctx.db, source.as_deref(), request)
}

fn sort(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let in_cluster = ctx.server.engine.config.cluster_enabled;
    let mut request = Request::parse(args, true, in_cluster, || {
        may_read_any(ctx.server, ctx.session, ctx.db, args, &SORT)
    })?;
    request.for_script = ctx.session.is_script;
    // Expired keys that are locked are deleted now; keys that patterns name must stay.
    let source = ctx.txn.counting(|txn| sort::open(txn, ctx.db, args[1]))?;
    let existed = match request.store {
        Some(key) => ctx.txn.lookup(ctx.db, key)?.is_some(),
        None => false,
    };
    let view = ctx.txn.reading();
    let Some(key) = request.store else {
        return answer(view, ctx.reply, ctx.db, source.as_deref(), request);
    };
    let elements = request.run(view, ctx.db, source.as_deref())?;
    let mut values = Vec::with_capacity(request.replies(&elements));
    request.outputs(view, ctx.db, elements, |value| {
        values.push(value.unwrap_or_default());
    })?;
    ctx.txn.writing();
    store(ctx, key, existed, &values)?;
    let stored = i64::try_from(values.len()).unwrap_or(i64::MAX);
    ctx.reply.int(stored);
    Ok(())
}

/// Replaces the value of the key by a list.
fn store(ctx: &mut WriteCtx<'_>, key: &[u8], existed: bool, values: &[Vec<u8>]) -> CmdResult {
    let mut list = List::replacing(ctx.txn, ctx.db, key)?;
    if existed {
        ctx.txn.effect(ctx.db, &[b"DEL", key]);
    }
    for chunk in values.chunks(LOGGED_ELEMENTS) {
        let items: Vec<&[u8]> = chunk.iter().map(Vec::as_slice).collect();
        list.push(ctx.txn, End::Tail, &items)?;
        let mut logged: Vec<&[u8]> = vec![b"RPUSH", key];
        logged.extend(items);
        ctx.txn.effect(ctx.db, &logged);
    }
    list.save(ctx.txn)?;
    if !values.is_empty() {
        ctx.event(Class::LIST, "sortstore", key);
    }
    Ok(())
}

/// Finds the argument of STORE as the parser does; STORE may also be a pattern.
fn store_key(args: &[&[u8]], each: &mut dyn FnMut(usize)) {
    let mut found = None;
    let mut at = 2;
    while let Some(arg) = args.get(at) {
        let is = |word: &str| super::args::is(arg, word);
        if is("STORE") && at + 1 < args.len() {
            found = Some(at + 1);
        }
        at += match () {
            () if is("LIMIT") => 3,
            () if is("STORE") || is("BY") || is("GET") => 2,
            () => 1,
        };
    }
    if let Some(index) = found {
        each(index);
    }
}

const SOURCE: KeyFlags = KeyFlags::RO.union(KeyFlags::ACCESS);

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[SORT, SORT_RO];

const SORT: Command = Command::write("sort", -2, sort)
    .syntax(
        "key [BY by-pattern:pattern{pattern}#1] [LIMIT limit=(offset:int count:int)] \
             [(GET get-pattern:pattern{pattern}#1)...] [order=(ASC|DESC)] \
             [sorting=ALPHA] [STORE destination:key#2]",
    )
    .complexity("O(N + M log M), N: elements of the value, M: elements answered")
    .flags(Flags::DENYOOM.union(Flags::SLOW))
    .keys(&[
        KeySpec::at(1, SOURCE),
        KeySpec::unknown(SOURCE),
        KeySpec::unknown(KeyFlags::OW.union(KeyFlags::UPDATE)),
    ])
    .more_keys(store_key)
    .categories(&["set", "sortedset", "list", "dangerous"])
    .doc(
        Group::Generic,
        "1.0.0",
        "Returns or stores the elements of a list, set or sorted set in order",
    );
const SORT_RO: Command = Command::read("sort_ro", -2, sort_ro)
    .syntax(
        "key [BY by-pattern:pattern{pattern}#1] [LIMIT limit=(offset:int count:int)] \
             [(GET get-pattern:pattern{pattern}#1)...] [order=(ASC|DESC)] [sorting=ALPHA]",
    )
    .complexity("O(N + M log M), N: elements of the value, M: elements answered")
    .flags(Flags::SLOW)
    .keys(&[KeySpec::at(1, SOURCE), KeySpec::unknown(SOURCE)])
    .categories(&["set", "sortedset", "list", "dangerous"])
    .doc(
        Group::Generic,
        "7.0.0",
        "Returns the elements of a list, set or sorted set in order",
    );

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::testing::Client;
    use crate::resp::Value;

    fn bulks(items: &[&str]) -> Value {
        let bulk = |item: &&str| Value::Bulk(item.as_bytes().to_vec());
        Value::Array(items.iter().map(bulk).collect())
    }

    #[test]
    fn an_unsorted_list_is_walked_from_the_end_that_the_order_names() {
        let mut client = Client::new();
        client.run("rpush q 1 2 3 4 5");
        assert_eq!(
            client.run("sort q by nosort"),
            bulks(&["1", "2", "3", "4", "5"])
        );
        assert_eq!(
            client.run("sort q by nosort desc"),
            bulks(&["5", "4", "3", "2", "1"])
        );
        assert_eq!(
            client.run("sort q by nosort limit 1 2 desc"),
            bulks(&["4", "3"])
        );
    }

    /// Redis uses `strcoll` on C strings for replies and `memcmp` for STORE.
    #[test]
    fn texts_count_up_to_a_nul_unless_they_are_stored() {
        let mut client = Client::new();
        client.run("rpush q b\0z a\0z a\0b a");
        let collated = bulks(&["a\0z", "a\0b", "a", "b\0z"]);
        assert_eq!(client.run("sort q alpha"), collated);
        client.run("sort q alpha store sorted");
        let bytes = bulks(&["a", "a\0b", "a\0z", "b\0z"]);
        assert_eq!(client.run("lrange sorted 0 -1"), bytes);
    }

    #[test]
    fn the_stored_key_is_found_as_the_parser_finds_it() {
        for (line, expected) in [
            ("sort k", None),
            ("sort k store d", Some(3)),
            ("sort k by store store d", Some(5)),
            ("sort k get store desc", None),
            ("sort k store a store b", Some(5)),
            ("sort k limit 0 store", None),
            ("sort k store", None),
        ] {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let mut found = None;
            store_key(&args, &mut |index| found = Some(index));
            assert_eq!(found, expected, "{line}");
            if let Ok(request) = Request::parse(&args, true, false, || true) {
                assert_eq!(request.store, expected.map(|i: usize| args[i]), "{line}");
            }
        }
    }
}
