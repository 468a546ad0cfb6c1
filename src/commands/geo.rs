//! Positions on the globe: sorted sets whose scores are the numbers of positions, and searches
//! in areas.
//!
//! A search reads the cells that cover its area ([`crate::base::geohash`]), not the whole sorted
//! set. The effect of GEOADD is ZADD with the resulting scores.

use super::args::{self, Options};
use super::table::spec::Group;
use super::zsets::store_stated;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::geohash::{self, Area, Position, Shape};
use crate::resp::Reply;
use crate::storage::View;
use crate::storage::txn::events::Class;
use crate::types::OpResult;
use crate::types::zset::{self, AddRule, Added, Edit, Member, Point, Zset};
use std::cmp::Ordering;
use std::ops::ControlFlow;

const UNKNOWN_MEMBER: Error = Error::text("ERR could not decode requested zset member");

/// Sorted searches with COUNT hold at least so many members before they drop the farthest.
const KEPT: usize = 64;

/// The position in two arguments, longitude and latitude.
fn position(longitude: &[u8], latitude: &[u8]) -> Result<Position, Error> {
    let (longitude, latitude) = (args::float(longitude)?, args::float(latitude)?);
    Position::new(longitude, latitude).ok_or_else(|| {
        Error::owned(format!(
            "ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"
        ))
    })
}

/// The length in m of a unit.
fn unit_m(arg: &[u8]) -> Result<f64, Error> {
    Ok(match () {
        () if args::is(arg, "M") => 1.0,
        () if args::is(arg, "KM") => 1000.0,
        () if args::is(arg, "FT") => 0.3048,
        () if args::is(arg, "MI") => 1609.34,
        () => {
            let text = "ERR unsupported unit provided. please use M, KM, FT, MI";
            return Err(Error::text(text));
        }
    })
}

fn length(arg: &[u8], refusal: Error) -> Result<f64, Error> {
    args::float(arg).map_err(|_| refusal)
}

/// A circle, and the length of its unit in m.
fn circle(radius: &[u8], unit: &[u8]) -> Result<(Shape, f64), Error> {
    let radius = length(radius, Error::text("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(Error::text("ERR radius cannot be negative"));
    }
    Ok((Shape::Circle { radius }, unit_m(unit)?))
}

fn rectangle(width: &[u8], height: &[u8], unit: &[u8]) -> Result<(Shape, f64), Error> {
    let width = length(width, Error::text("ERR need numeric width"))?;
    let height = length(height, Error::text("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Error::text("ERR height or width cannot be negative"));
    }
    Ok((Shape::Rectangle { width, height }, unit_m(unit)?))
}

/// The polygon behind BYPOLYGON: the number of its corners, and their positions.
fn polygon(options: &mut Options<'_>) -> Result<(Shape, f64), Error> {
    let number = args::int(options.value()?).ok();
    let number = number.and_then(|number| i32::try_from(number).ok());
    let number = number.ok_or(Error::text("ERR invalid number of vertices"))?;
    let number = usize::try_from(number).unwrap_or(0);
    if number < 3 || options.left() / 2 < number {
        let text = "ERR GEOSEARCH BYPOLYGON must have at least 3 vertices";
        return Err(Error::text(text));
    }
    let pairs = options.values(2 * number)?.chunks_exact(2);
    let corners = pairs.map(|pair| position(pair[0], pair[1]));
    let corners = corners.collect::<Result<_, _>>()?;
    Ok((Shape::Polygon { corners }, 1.0))
}

fn geoadd(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 2);
    let (mut rule, mut count_changed) = (AddRule::default(), false);
    loop {
        match () {
            () if options.word("NX") => rule.only_new = true,
            () if options.word("XX") => rule.only_existing = true,
            () if options.word("CH") => count_changed = true,
            () => break,
        }
    }
    let data = options.values(options.left())?;
    let invalid = data.is_empty() || !data.len().is_multiple_of(3);
    if invalid || (rule.only_new && rule.only_existing) {
        return Err(Error::Syntax);
    }
    let points = data.chunks_exact(3);
    let points = points.map(|data| Ok((position(data[0], data[1])?.to_score(), data[2])));
    let points = points.collect::<Result<Vec<(f64, &[u8])>, Error>>()?;
    let mut edit = Edit::open(ctx.txn, ctx.db, args[1])?;
    let (mut new, mut changed) = (0, 0);
    let mut written: Vec<(String, &[u8])> = Vec::new();
    for (score, member) in points {
        match edit.add(ctx.txn, score, member, rule)? {
            Added::New(_) => new += 1,
            Added::Changed(_) => changed += 1,
            Added::Same(_) | Added::Refused => continue,
        }
        written.push((score.to_string(), member));
    }
    edit.save(ctx.txn)?;
    if !written.is_empty() {
        ctx.event(Class::ZSET, "zadd", args[1]);
        let mut effect: Vec<&[u8]> = vec![b"ZADD", args[1]];
        for (score, member) in &written {
            effect.extend([score.as_bytes(), member]);
        }
        ctx.txn.effect(ctx.db, &effect);
    }
    let counted = if count_changed { new + changed } else { new };
    ctx.reply.int(counted);
    Ok(())
}

/// A distance with four digits after the point.
fn write_distance(reply: &mut Reply, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

/// Longitude and latitude.
fn write_position(reply: &mut Reply, position: Position) {
    reply.array(2);
    for degrees in [position.longitude, position.latitude] {
        reply.double(degrees);
    }
}

fn geopos(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let zset = Zset::open(ctx.view, ctx.db, args[1])?;
    ctx.reply.array(args.len() - 2);
    for member in &args[2..] {
        match member_position(ctx.view, zset.as_ref(), member)? {
            Some(position) => write_position(ctx.reply, position),
            None => ctx.reply.null_array(),
        }
    }
    Ok(())
}

fn geohash(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let zset = Zset::open(ctx.view, ctx.db, args[1])?;
    ctx.reply.array(args.len() - 2);
    for member in &args[2..] {
        match member_position(ctx.view, zset.as_ref(), member)? {
            Some(position) => ctx.reply.bulk(&position.to_geohash()),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

fn geodist(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let unit_m = match args {
        [_, _, _, _] => 1.0,
        [_, _, _, _, unit] => unit_m(unit)?,
        _ => return Err(Error::Syntax),
    };
    let zset = Zset::open(ctx.view, ctx.db, args[1])?;
    let from = member_position(ctx.view, zset.as_ref(), args[2])?;
    let to = member_position(ctx.view, zset.as_ref(), args[3])?;
    match (from, to) {
        (Some(from), Some(to)) => write_distance(ctx.reply, from.distance_m(to) / unit_m),
        _ => ctx.reply.null(),
    }
    Ok(())
}

fn member_position(view: &View, zset: Option<&Zset>, member: &[u8]) -> OpResult<Option<Position>> {
    match zset {
        Some(zset) => zset.position(view, member),
        None => Ok(None),
    }
}

/// The order of a reply, by distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

impl Order {
    fn of(self, distance_m: f64, other_m: f64) -> Ordering {
        match self {
            Order::Nearest => distance_m.total_cmp(&other_m),
            Order::Farthest => other_m.total_cmp(&distance_m),
        }
    }

    /// Members at the same distance keep the order in which they were found.
    fn compare(self) -> impl Fn(&Found, &Found) -> Ordering {
        move |a, b| self.of(a.distance_m, b.distance_m)
    }
}

/// What a reply says of each member.
#[derive(Debug, Clone, Copy, Default)]
struct With {
    distance: bool,
    score: bool,
    position: bool,
}

impl With {
    fn any(self) -> bool {
        self.distance || self.score || self.position
    }

    fn write(self, reply: &mut Reply, area: &Area, point: Point<'_>) {
        if self.any() {
            let parts = [self.distance, self.score, self.position];
            reply.array(1 + parts.into_iter().filter(|part| *part).count());
        }
        reply.bulk(point.member);
        if self.distance {
            write_distance(reply, area.in_unit(point.distance_m));
        }
        if self.score {
            reply.int(geohash::integer(point.score));
        }
        if self.position {
            write_position(reply, point.position);
        }
    }
}

/// Where the result is stored.
#[derive(Debug, Clone, Copy)]
struct Destination<'a> {
    key: &'a [u8],
    /// Whether the scores are distances, in the unit of the search, instead of positions.
    distances: bool,
}

/// Where a search gets its centre from, and how it may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// GEORADIUS: a position in the arguments.
    Radius { stores: bool },
    /// GEORADIUSBYMEMBER: a member in the arguments.
    RadiusByMember { stores: bool },
    /// GEOSEARCH: options.
    Search,
    /// GEOSEARCHSTORE: options, and a key in front of that of the source.
    SearchStore,
}

impl Kind {
    fn is_search(self) -> bool {
        matches!(self, Kind::Search | Kind::SearchStore)
    }

    fn stores(self) -> bool {
        match self {
            Kind::Radius { stores } | Kind::RadiusByMember { stores } => stores,
            Kind::Search | Kind::SearchStore => false,
        }
    }

    /// Index of the first option.
    fn options_at(self) -> usize {
        match self {
            Kind::Radius { .. } => 6,
            Kind::RadiusByMember { .. } => 5,
            Kind::Search => 2,
            Kind::SearchStore => 3,
        }
    }
}

/// The word that named the centre.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Member,
    Position,
}

/// The arguments of a search.
struct Request<'a> {
    from: Option<From>,
    /// Absent if there is no source, whose member it would be.
    centre: Option<Position>,
    /// The shape, and the length of its unit in m.
    shape: Option<(Shape, f64)>,
    order: Option<Order>,
    count: Option<usize>,
    /// Whether the first members that are found will do.
    any: bool,
    with: With,
    destination: Option<Destination<'a>>,
}

impl<'a> Request<'a> {
    /// Parses the arguments. `zset` is the source, if it exists.
    fn parse(
        view: &View,
        args: &'a [&'a [u8]],
        kind: Kind,
        zset: Option<&Zset>,
    ) -> Result<Request<'a>, Error> {
        let mut request = Request {
            from: None,
            centre: None,
            shape: None,
            order: None,
            count: None,
            any: false,
            with: With::default(),
            destination: None,
        };
        match (kind, zset) {
            (Kind::Radius { .. }, _) => {
                request.centre = Some(position(args[2], args[3])?);
                request.shape = Some(circle(args[4], args[5])?);
            }
            (Kind::RadiusByMember { .. }, Some(zset)) => {
                let found = zset.position(view, args[2])?;
                request.centre = Some(found.ok_or(UNKNOWN_MEMBER)?);
                request.shape = Some(circle(args[3], args[4])?);
            }
            (Kind::SearchStore, _) => {
                request.destination = Some(Destination {
                    key: args[1],
                    distances: false,
                });
            }
            (Kind::RadiusByMember { .. }, None) | (Kind::Search, _) => {}
        }
        let mut options = Options::new(args, kind.options_at());
        while !options.is_empty() {
            let known = request.common_option(&mut options)?
                || (kind.stores() && request.store_option(&mut options)?)
                || (kind.is_search() && request.search_option(&mut options, kind, view, zset)?);
            if !known {
                return Err(Error::Syntax);
            }
        }
        request.check(args[0], kind)?;
        if request.count.is_some() && !request.any {
            request.order.get_or_insert(Order::Nearest);
        }
        Ok(request)
    }

    fn common_option(&mut self, options: &mut Options<'a>) -> Result<bool, Error> {
        match () {
            () if options.word("WITHDIST") => self.with.distance = true,
            () if options.word("WITHHASH") => self.with.score = true,
            () if options.word("WITHCOORD") => self.with.position = true,
            () if options.word("ANY") => self.any = true,
            () if options.word("ASC") => self.order = Some(Order::Nearest),
            () if options.word("DESC") => self.order = Some(Order::Farthest),
            () if options.left() >= 2 && options.word("COUNT") => {
                let count = options.int()?;
                if count <= 0 {
                    return Err(Error::COUNT_NOT_POSITIVE);
                }
                self.count = Some(usize::try_from(count).unwrap_or(usize::MAX));
            }
            () => return Ok(false),
        }
        Ok(true)
    }

    /// STORE and STOREDIST of GEORADIUS.
    fn store_option(&mut self, options: &mut Options<'a>) -> Result<bool, Error> {
        if options.left() < 2 {
            return Ok(false);
        }
        let distances = options.word("STOREDIST");
        if !distances && !options.word("STORE") {
            return Ok(false);
        }
        let key = options.value()?;
        self.destination = Some(Destination { key, distances });
        Ok(true)
    }

    /// The options of GEOSEARCH and GEOSEARCHSTORE.
    fn search_option(
        &mut self,
        options: &mut Options<'a>,
        kind: Kind,
        view: &View,
        zset: Option<&Zset>,
    ) -> Result<bool, Error> {
        if kind == Kind::SearchStore && options.word("STOREDIST") {
            if let Some(destination) = &mut self.destination {
                destination.distances = true;
            }
            return Ok(true);
        }
        let left = options.left();
        let may_be_from =
            |from: From| self.from.is_none_or(|old| old == from) && !self.is_polygon();
        let may_be =
            |fits: fn(&Shape) -> bool| self.shape.as_ref().is_none_or(|(old, _)| fits(old));
        match () {
            () if left >= 2 && may_be_from(From::Member) && options.word("FROMMEMBER") => {
                let member = options.value()?;
                self.from = Some(From::Member);
                if let Some(zset) = zset {
                    self.centre = Some(zset.position(view, member)?.ok_or(UNKNOWN_MEMBER)?);
                }
            }
            () if left >= 3 && may_be_from(From::Position) && options.word("FROMLONLAT") => {
                self.centre = Some(position(options.value()?, options.value()?)?);
                self.from = Some(From::Position);
            }
            () if left >= 3
                && may_be(|old| matches!(old, Shape::Circle { .. }))
                && options.word("BYRADIUS") =>
            {
                self.shape = Some(circle(options.value()?, options.value()?)?);
            }
            () if left >= 4
                && may_be(|old| matches!(old, Shape::Rectangle { .. }))
                && options.word("BYBOX") =>
            {
                let (width, height) = (options.value()?, options.value()?);
                self.shape = Some(rectangle(width, height, options.value()?)?);
            }
            () if left >= 3
                && self.from.is_none()
                && may_be(|old| matches!(old, Shape::Polygon { .. }))
                && options.word("BYPOLYGON") =>
            {
                self.shape = Some(polygon(options)?);
            }
            () => return Ok(false),
        }
        Ok(true)
    }

    fn is_polygon(&self) -> bool {
        matches!(self.shape, Some((Shape::Polygon { .. }, _)))
    }

    /// Refuses options that do not go together. `name` is that of the command.
    fn check(&self, name: &[u8], kind: Kind) -> CmdResult {
        if self.destination.is_some() && self.with.any() {
            let what = match kind.is_search() {
                true => "GEOSEARCHSTORE",
                false => "STORE option in GEORADIUS",
            };
            return Err(Error::owned(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let one_of = |words: &str| {
            let name = String::from_utf8_lossy(name);
            let text = format!("ERR exactly one of {words} can be specified for {name}");
            Err(Error::owned(text))
        };
        if kind.is_search() && self.from.is_none() && !self.is_polygon() {
            return one_of("FROMMEMBER or FROMLONLAT");
        }
        if kind.is_search() && self.shape.is_none() {
            return one_of("BYRADIUS and BYBOX");
        }
        if self.any && self.count.is_none() {
            let text = "ERR the ANY argument requires COUNT argument";
            return Err(Error::text(text));
        }
        Ok(())
    }

    /// The area that is searched. `None`: there is no source.
    fn area(&mut self) -> Option<Area> {
        match (self.shape.take()?, self.centre) {
            ((Shape::Polygon { corners }, _), _) => Some(Area::polygon(corners)),
            ((shape, unit_m), centre) => Some(Area::around(centre?, shape, unit_m)),
        }
    }

    /// Calls `each` with the members that are found, in order of the search. Without an order,
    /// their number is bounded.
    fn search(
        &self,
        view: &mut View,
        zset: &Zset,
        area: &Area,
        mut each: impl FnMut(Point<'_>),
    ) -> OpResult<()> {
        let mut left = self.count.filter(|_| self.any);
        zset.search(view, area, |point| {
            each(point);
            left = left.map(|left| left - 1);
            Ok(match left {
                Some(0) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            })
        })
    }

    /// The members that are found, in the order of the reply.
    fn collect(&self, view: &mut View, zset: &Zset, area: &Area) -> OpResult<Vec<Found>> {
        let mut found: Vec<Found> = Vec::new();
        let kept = self.count.unwrap_or(usize::MAX);
        let bound = kept.saturating_mul(2).max(KEPT);
        // The distance of the last that is kept, before which others must come.
        let mut last: Option<f64> = None;
        self.search(view, zset, area, |point| {
            let after = |order: Order| last.map(|last| order.of(point.distance_m, last).is_ge());
            if self.order.and_then(after) == Some(true) {
                return;
            }
            found.push(Found::new(point));
            if let Some(order) = self.order.filter(|_| found.len() >= bound) {
                found.sort_by(order.compare());
                found.truncate(kept);
                last = found.last().map(|found| found.distance_m);
            }
        })?;
        if let Some(order) = self.order {
            view.sort_by(&mut found, order.compare())?;
        }
        found.truncate(kept);
        Ok(found)
    }

    /// Replies with the members that are found.
    fn answer(mut self, view: &mut View, reply: &mut Reply, zset: Option<&Zset>) -> CmdResult {
        let (Some(zset), Some(area)) = (zset, self.area()) else {
            reply.array(0);
            return Ok(());
        };
        let with = self.with;
        if self.order.is_some() {
            let found = self.collect(view, zset, &area)?;
            reply.array(found.len());
            for found in &found {
                with.write(reply, &area, found.point());
            }
            return Ok(());
        }
        let mark = reply.begin();
        let mut written = 0;
        self.search(view, zset, &area, |point| {
            with.write(reply, &area, point);
            written += 1;
        })?;
        reply.end_array(mark, written);
        Ok(())
    }
}

/// A copy of a [`Point`].
struct Found {
    member: Member,
    score: f64,
    position: Position,
    distance_m: f64,
}

impl Found {
    fn new(point: Point<'_>) -> Found {
        Found {
            member: Member::from_slice(point.member),
            score: point.score,
            position: point.position,
            distance_m: point.distance_m,
        }
    }

    fn point(&self) -> Point<'_> {
        Point {
            member: &self.member,
            score: self.score,
            position: self.position,
            distance_m: self.distance_m,
        }
    }
}

fn read(ctx: &mut ReadCtx<'_>, args: &[&[u8]], kind: Kind) -> CmdResult {
    let zset = Zset::open(ctx.view, ctx.db, args[1])?;
    let request = Request::parse(ctx.view, args, kind, zset.as_ref())?;
    request.answer(ctx.view, ctx.reply, zset.as_ref())
}

fn write(ctx: &mut WriteCtx<'_>, args: &[&[u8]], kind: Kind) -> CmdResult {
    let source = args[if kind == Kind::SearchStore { 2 } else { 1 }];
    let zset = ctx.txn.counting(|txn| Zset::open(txn, ctx.db, source))?;
    let mut request = Request::parse(ctx.txn, args, kind, zset.as_ref())?;
    let Some(destination) = request.destination else {
        return request.answer(ctx.txn, ctx.reply, zset.as_ref());
    };
    let is_newer = request.is_polygon();
    let mut stored: Vec<(f64, Member)> = Vec::new();
    if let (Some(zset), Some(area)) = (&zset, request.area()) {
        let found = request.collect(ctx.txn, zset, &area)?;
        let score = |found: &Found| match destination.distances {
            true => area.in_unit(found.distance_m),
            false => found.score,
        };
        stored.extend(found.into_iter().map(|found| (score(&found), found.member)));
    }
    let scores =
        |(a, x): &(f64, Member), (b, y): &(f64, Member)| a.total_cmp(b).then_with(|| x.cmp(y));
    ctx.txn.sort_by(&mut stored, scores)?;
    match is_newer {
        true => store_stated(ctx, destination.key, &stored)?,
        false => zset::store(ctx.txn, ctx.db, destination.key, &stored)?,
    }
    if !stored.is_empty() {
        let event = match kind.is_search() {
            true => "geosearchstore",
            false => "georadiusstore",
        };
        ctx.event(Class::ZSET, event, destination.key);
    }
    ctx.reply.int(stored.len() as i64);
    Ok(())
}

fn geosearch(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read(ctx, args, Kind::Search)
}

fn geosearchstore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    write(ctx, args, Kind::SearchStore)
}

fn georadius(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    write(ctx, args, Kind::Radius { stores: true })
}

fn georadiusbymember(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    write(ctx, args, Kind::RadiusByMember { stores: true })
}

fn georadius_ro(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read(ctx, args, Kind::Radius { stores: false })
}

fn georadiusbymember_ro(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read(ctx, args, Kind::RadiusByMember { stores: false })
}

/// Finds the key of STORE or STOREDIST as the parser does, if the key specs find another one:
/// they take the first argument behind each word, and the last one counts.
fn stored_key(args: &[&[u8]], from: usize, each: &mut dyn FnMut(usize)) {
    let is = |at: usize, word: &str| args.get(at).is_some_and(|arg| args::is(arg, word));
    let mut found = None;
    let mut at = from;
    while at < args.len() {
        let stores = is(at, "STORE") || is(at, "STOREDIST");
        if stores && at + 1 < args.len() {
            found = Some(at + 1);
        }
        at += if stores || is(at, "COUNT") { 2 } else { 1 };
    }
    let by_spec = |word| (from..args.len()).find(|at| is(*at, word)).map(|at| at + 1);
    let by_specs = ["STORE", "STOREDIST"].map(by_spec);
    if let Some(at) = found
        && by_specs.into_iter().flatten().any(|by_spec| by_spec != at)
    {
        each(at);
    }
}

const READS: &[KeySpec] = &[KeySpec::at(1, SOURCE)];
const UPDATES: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
const SOURCE: KeyFlags = KeyFlags::RO.union(KeyFlags::ACCESS);
const DESTINATION: KeyFlags = KeyFlags::OW.union(KeyFlags::UPDATE);
const STORES: &[KeySpec] = &[KeySpec::at(1, DESTINATION), KeySpec::at(2, SOURCE)];

/// The rows of GEO*.
pub const COMMANDS: &[Command] = &[
    Command::write("geoadd", -5, geoadd)
        .places(3)
        .syntax(
            "key [condition=(NX|XX)@6.2.0] [change=CH@6.2.0] \
             data=(longitude:double latitude:double member)...",
        )
        .complexity("O(M log N), M: members named, N: members of the sorted set")
        .history(&[("6.2.0", "Added `CH`, `NX` and `XX`")])
        .flags(Flags::DENYOOM)
        .keys(UPDATES)
        .doc(
            Group::Geo,
            "3.2.0",
            "Adds members with their positions, or changes the positions",
        ),
    Command::read("geodist", -4, geodist)
        .syntax("key member1 member2 [unit=(m=M|km=KM|ft=FT|mi=MI)]")
        .keys(READS)
        .doc(
            Group::Geo,
            "3.2.0",
            "Returns the distance between two members",
        ),
    Command::read("geohash", -2, geohash)
        .syntax("key [member...]")
        .complexity("O(N), N: members named")
        .keys(READS)
        .doc(
            Group::Geo,
            "3.2.0",
            "Returns the positions of members as geohash strings",
        ),
    Command::read("geopos", -2, geopos)
        .syntax("key [member...]")
        .complexity("O(N), N: members named")
        .keys(READS)
        .doc(
            Group::Geo,
            "3.2.0",
            "Returns longitude and latitude of members",
        ),
    Command::read("geosearch", -7, geosearch)
        .syntax(
            "key from=(FROMMEMBER member|FROMLONLAT fromlonlat=(longitude:double latitude:double)) \
             by=(circle=(BYRADIUS radius:double unit=(m=M|km=KM|ft=FT|mi=MI))\
             |box=(BYBOX width:double height:double unit=(m=M|km=KM|ft=FT|mi=MI))\
             |polygon=(BYPOLYGON num-vertices:int vertices=(longitude:double latitude:double)...)) \
             [order=(ASC|DESC)] [count-block=(COUNT count:int [ANY])] \
             [WITHCOORD] [WITHDIST] [WITHHASH]",
        )
        .complexity(SEARCH_COMPLEXITY)
        .history(UNITS_HISTORY)
        .keys(READS)
        .doc(
            Group::Geo,
            "6.2.0",
            "Returns the members in a circle, a rectangle or a polygon",
        ),
    Command::write("geosearchstore", -8, geosearchstore)
        .syntax(
            "destination:key source:key \
             from=(FROMMEMBER member|FROMLONLAT fromlonlat=(longitude:double latitude:double)) \
             by=(circle=(BYRADIUS radius:double unit=(m=M|km=KM|ft=FT|mi=MI))\
             |box=(BYBOX width:double height:double unit=(m=M|km=KM|ft=FT|mi=MI))\
             |polygon=(BYPOLYGON num-vertices:int vertices=(longitude:double latitude:double)...)) \
             [order=(ASC|DESC)] [count-block=(COUNT count:int [ANY])] [STOREDIST]",
        )
        .complexity(SEARCH_COMPLEXITY)
        .history(UNITS_HISTORY)
        .flags(Flags::DENYOOM)
        .keys(STORES)
        .doc(
            Group::Geo,
            "6.2.0",
            "Stores the members in a circle, a rectangle or a polygon under another key",
        ),
    Command::write("georadius", -6, georadius)
        .syntax(
            "key longitude:double latitude:double radius:double unit=(m=M|km=KM|ft=FT|mi=MI) \
             [WITHCOORD] [WITHDIST] [WITHHASH] [count-block=(COUNT count:int [ANY@6.2.0])] \
             [order=(ASC|DESC)] \
             [store=(STORE storekey:key{key}#1|STOREDIST storedistkey:key{key}#2)]",
        )
        .complexity(SEARCH_COMPLEXITY)
        .history(RADIUS_HISTORY)
        .flags(Flags::DENYOOM)
        .keys(&[
            KeySpec::at(1, SOURCE),
            KeySpec::after("STORE", 6, DESTINATION),
            KeySpec::after("STOREDIST", 6, DESTINATION),
        ])
        .more_keys(|args, each| stored_key(args, 6, each))
        .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with `BYRADIUS`")
        .doc(
            Group::Geo,
            "3.2.0",
            "Returns or stores the members near a position",
        ),
    Command::write("georadiusbymember", -5, georadiusbymember)
        .syntax(
            "key member radius:double unit=(m=M|km=KM|ft=FT|mi=MI) \
             [WITHCOORD] [WITHDIST] [WITHHASH] [count-block=(COUNT count:int [ANY@6.2.0])] \
             [order=(ASC|DESC)] \
             [store=(STORE storekey:key{key}#1|STOREDIST storedistkey:key{key}#2)]",
        )
        .complexity(SEARCH_COMPLEXITY)
        .history(RADIUS_HISTORY)
        .flags(Flags::DENYOOM)
        .keys(&[
            KeySpec::at(1, SOURCE),
            KeySpec::after("STORE", 5, DESTINATION),
            KeySpec::after("STOREDIST", 5, DESTINATION),
        ])
        .more_keys(|args, each| stored_key(args, 5, each))
        .deprecated(
            "6.2.0",
            "`GEOSEARCH` and `GEOSEARCHSTORE` with `BYRADIUS` and `FROMMEMBER`",
        )
        .doc(
            Group::Geo,
            "3.2.0",
            "Returns or stores the members near a member",
        ),
    Command::read("georadius_ro", -6, georadius_ro)
        .syntax(
            "key longitude:double latitude:double radius:double unit=(m=M|km=KM|ft=FT|mi=MI) \
             [WITHCOORD] [WITHDIST] [WITHHASH] [count-block=(COUNT count:int [ANY@6.2.0])] \
             [order=(ASC|DESC)]",
        )
        .complexity(SEARCH_COMPLEXITY)
        .history(RADIUS_HISTORY)
        .keys(READS)
        .deprecated("6.2.0", "`GEOSEARCH` with `BYRADIUS`")
        .doc(Group::Geo, "3.2.10", "Returns the members near a position"),
    Command::read("georadiusbymember_ro", -5, georadiusbymember_ro)
        .syntax(
            "key member radius:double unit=(m=M|km=KM|ft=FT|mi=MI) \
             [WITHCOORD] [WITHDIST] [WITHHASH] [count-block=(COUNT count:int [ANY@6.2.0])] \
             [order=(ASC|DESC)]",
        )
        .complexity(SEARCH_COMPLEXITY)
        .history(RADIUS_HISTORY)
        .keys(READS)
        .deprecated("6.2.0", "`GEOSEARCH` with `BYRADIUS` and `FROMMEMBER`")
        .doc(Group::Geo, "3.2.10", "Returns the members near a member"),
];

const SEARCH_COMPLEXITY: &str = "O(N + log M), N: members in the cells around the area, \
     M: members of the sorted set";
const UNITS_HISTORY: &[(&str, &str)] = &[("7.0.0", "Units may be in upper case")];
const RADIUS_HISTORY: &[(&str, &str)] = &[
    ("6.2.0", "Added `ANY`"),
    ("7.0.0", "Units may be in upper case"),
];

#[cfg(test)]
mod tests;
