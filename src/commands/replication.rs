//! REPLICAOF, FAILOVER, ROLE, WAIT and WAITAOF, and the commands that a replica sends to its
//! master: REPLCONF, PSYNC, SYNC.
//!
//! The handlers set the desired state and report the current one. The threads of
//! `replication` follow the master and feed the replicas.

use super::args::{self, Options};
use super::blocking::timeout_in_ms;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::base::num;
use crate::commands::table::migrated::Migrated;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::encoding::ROWS_VERSION;
use crate::encoding::binlog::{Offset, Position};
use crate::encoding::keys::Layout;
use crate::resp::Reply;
use crate::state::Server;
use crate::state::clients::ClientFlags;
use crate::state::config::{Config, MasterAddr, words};
use crate::state::node::Node;
use crate::state::replication::{Announcement, Failover, Feeding, Filter, LinkPhase, Psync};
use crate::state::request::Request;
use crate::state::waiters::AckWait;
use crate::state::waiters::{Awaited, Wanted};
use crate::storage::StorageError;
use crate::types::OpError;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The value of `REPLCONF capa` with which a replica announces that it reads rows of this
/// format version.
pub fn dialect() -> String {
    format!("{DIALECT}{ROWS_VERSION}")
}

const DIALECT: &str = "kedis";

/// The value of `REPLCONF capa` with which a tool announces that it reads sets whose members have
/// times. Redis ignores values that it does not know.
pub const SET_TIMES: &str = "set-times";

/// A replica that gets this reads no rows, but what any Redis sends.
const OTHER_LAYOUT: Error = Error::text(
    "ERR the master and the replica differ in cluster-enabled, and so do their rows: they speak as Redis does",
);

const ZERO_OR_ONE: Error = Error::text("ERR value is out of range, value must between 0 and 1");

/// Longest address that a replica may announce.
const MAX_ANNOUNCED_IP: usize = 255;
/// Longest run id that a replica may announce.
const MAX_ANNOUNCED_ID: usize = 64;

/// Follows another master, or none, and stores that in the configuration.
pub fn follow(server: &Server, master: Option<MasterAddr>) -> Result<(), StorageError> {
    let noted = master.clone();
    server.replication.follow(master, || match &noted {
        Some(_) => Ok(()),
        // The new history begins before the first write.
        None => server.engine.begin_history(),
    })?;
    if noted.is_some() {
        server.unblock_all();
    }
    note_master(server, noted);
    Ok(())
}

/// Stores in the configuration which master this server follows.
pub fn note_master(server: &Server, master: Option<MasterAddr>) {
    let done = server.config.update(|config| {
        Ok::<_, std::convert::Infallible>(Config {
            replicaof: master,
            ..config.clone()
        })
    });
    let Ok(_) = done;
}

fn replicaof(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if ctx.server.replication.desired().failover.is_some() {
        return Err(Error::text("ERR REPLICAOF not allowed while failing over."));
    }
    if args::is(args[1], "NO") && args::is(args[2], "ONE") {
        if ctx.server.replication.is_replica() {
            follow(ctx.server, None)?;
            log::info!(
                "MASTER MODE enabled (user request from {})",
                ctx.session.info.addr
            );
        }
        ctx.reply.ok();
        return Ok(());
    }
    if ctx.session.info.flags().contains(ClientFlags::REPLICA) {
        return Err(Error::text(
            "ERR Command is not valid when client is a replica.",
        ));
    }
    let port = num::parse_i64(args[2]).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(Error::text("ERR Invalid master port"))?;
    let host = String::from_utf8_lossy(args[1]).into_owned();
    let master = MasterAddr { host, port };
    let current = ctx.server.replication.desired().master.clone();
    let is_same = |current: MasterAddr| {
        current.port == master.port && current.host.eq_ignore_ascii_case(&master.host)
    };
    if current.is_some_and(is_same) {
        ctx.reply.simple("OK Already connected to specified master");
        return Ok(());
    }
    log::info!(
        "REPLICAOF {}:{} enabled (user request from {})",
        master.host,
        master.port,
        ctx.session.info.addr
    );
    follow(ctx.server, Some(master))?;
    ctx.reply.ok();
    Ok(())
}

fn replconf(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let mut options = Options::new(args, 1);
    while !options.is_empty() {
        let option = options.value()?;
        let value = options.value()?;
        if !replconf_option(ctx, option, value)? {
            return Ok(());
        }
    }
    ctx.reply.ok();
    Ok(())
}

/// Returns whether there will be a reply.
fn replconf_option(ctx: &mut SessionCtx<'_>, option: &[u8], value: &[u8]) -> Result<bool, Error> {
    let announced = ctx.session.announced.get_or_insert_default();
    match option.to_ascii_lowercase().as_slice() {
        b"listening-port" => {
            let port = args::int(value)?;
            announced.port = u16::try_from(port).map_err(|_| OpError::NotInteger)?;
        }
        b"ip-address" => {
            if value.len() > MAX_ANNOUNCED_IP {
                return Err(Error::owned(format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
                    value.len()
                )));
            }
            announced.ip = String::from_utf8_lossy(value).into_owned();
        }
        b"run-id" => {
            if value.len() > MAX_ANNOUNCED_ID {
                return Err(Error::Syntax);
            }
            announced.run_id = String::from_utf8_lossy(value).into_owned();
        }
        b"capa" => {
            announced.eof |= value == b"eof";
            announced.set_times |= value == SET_TIMES.as_bytes();
            let format = value.strip_prefix(DIALECT.as_bytes());
            let format = format.and_then(num::parse_i64);
            if let Some(format) = format.and_then(|n| u32::try_from(n).ok()) {
                announced.format = Some(format);
            }
        }
        // Only an attached replica sends this, and its feeder reads it.
        b"ack" | b"fack" => return Ok(false),
        // Only a master sends this, and the link thread reads it.
        b"getack" => return Ok(false),
        b"rdb-only" => {
            announced.rdb_only = match args::int(value)? {
                0 => false,
                1 => true,
                _ => return Err(ZERO_OR_ONE),
            }
        }
        b"rdb-filter-only" => {
            let missing = |_| Error::text("ERR Missing rdb-filter-only values");
            let words = words(value).map_err(missing)?;
            if let Some(error) = words.clone().find_map(Result::err) {
                return Err(missing(error));
            }
            let filter = announced.filter.insert(Filter::default());
            for word in words.flatten() {
                if !args::is(&word, "functions") {
                    let message = [b"ERR Unsupported rdb-filter-only option: ", &*word].concat();
                    return Err(Error::Bytes(message));
                }
                filter.functions = true;
            }
        }
        b"version" => {}
        b"layout" => {
            let layouts = [Layout::Plain, Layout::Slots];
            let layout = layouts.into_iter().find(|l| value == l.name().as_bytes());
            announced.layout = layout;
            if layout != Some(ctx.server.engine.layout) {
                return Err(OTHER_LAYOUT);
            }
        }
        b"cluster-node" => {
            let node = std::str::from_utf8(value).ok().and_then(Node::parse);
            announced.node = Some(node.ok_or(Error::Syntax)?);
        }
        _ => {
            let message = [b"ERR Unrecognized REPLCONF option: ", option].concat();
            return Err(Error::Bytes(message));
        }
    }
    Ok(true)
}

/// Checks PSYNC FAILOVER: only this server's master may hand over to it.
fn check_take_over(server: &Server, id: &[u8]) -> CmdResult {
    if !server.replication.is_replica() {
        return Err(Error::text("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    // A Redis master sends its own replication id, not the id of the history that Kedis
    // keeps for its stream.
    let upstream = server.engine.upstream();
    let is_masters = upstream.is_some_and(|upstream| upstream.id.as_bytes() == id);
    if server.engine.replication_id().as_bytes() != id && !is_masters {
        return Err(Error::text(
            "ERR PSYNC FAILOVER replid must match my replid.",
        ));
    }
    Ok(())
}

/// What this client has announced. It stands for the next request as well, should this one be refused.
fn announcement(ctx: &SessionCtx<'_>) -> Announcement {
    ctx.session
        .announced
        .as_deref()
        .cloned()
        .unwrap_or_default()
}

/// SYNC: requests the data set and then the stream, as replicas before Redis 2.8 and tools
/// that fetch an RDB file do.
fn sync(ctx: &mut SessionCtx<'_>, _: &[&[u8]]) -> CmdResult {
    let announced = announcement(ctx);
    request_sync(
        ctx,
        Psync {
            id: "?".into(),
            next: None,
            is_sync: true,
            takes_over: false,
            announced: Announcement {
                format: None,
                ..announced
            },
        },
    )
}

fn psync(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let takes_over = args.get(3).is_some_and(|word| args::is(word, "FAILOVER"));
    if takes_over {
        check_take_over(ctx.server, args[1])?;
    }
    let Some(next) = num::parse_i64(args[2]) else {
        let addr = &ctx.session.info.addr;
        log::warn!("Replica {addr} asks for synchronization but with a wrong offset");
        return Err(Error::Op(OpError::NotInteger));
    };
    let announced = announcement(ctx);
    let layout = ctx.server.engine.layout;
    if announced.format.is_some() && announced.layout.unwrap_or_default() != layout {
        return Err(OTHER_LAYOUT);
    }
    if let Some(other) = announced.format
        && other != ROWS_VERSION
    {
        return Err(Error::owned(format!(
            "ERR the replica reads rows of format version {other}, this server has version {ROWS_VERSION}"
        )));
    }
    request_sync(
        ctx,
        Psync {
            id: String::from_utf8_lossy(args[1]).into_owned(),
            next: u64::try_from(next).ok().map(Position),
            is_sync: false,
            takes_over,
            announced,
        },
    )
}

fn request_sync(ctx: &mut SessionCtx<'_>, mut psync: Psync) -> CmdResult {
    let announced = &mut psync.announced;
    if announced.filter.is_some() {
        if !announced.eof {
            return Err(Error::text("ERR Filtered replica requires EOF capability"));
        }
        // A filtered data set is sent as an RDB file, not as rows.
        announced.format = None;
    }
    let replication = &ctx.server.replication;
    let stays_replica = replication.is_replica() && !psync.takes_over;
    if stays_replica && replication.link.phase() != LinkPhase::Connected {
        return Err(Error::text(
            "NOMASTERLINK Can't SYNC while not connected with my master",
        ));
    }
    if !ctx.server.engine.binlog.is_enabled() {
        return Err(Error::text(
            "ERR this server keeps no binlog (binlog-enabled no), so nobody can follow it",
        ));
    }
    ctx.session.psync = Some(Box::new(psync));
    Ok(())
}

fn failover(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let replication = &ctx.server.replication;
    let mut options = Options::new(args, 1);
    let (mut target, mut timeout_ms) = (None, None);
    let (mut force, mut abort) = (false, false);
    while !options.is_empty() {
        if timeout_ms.is_none() && options.left() > 1 && options.word("TIMEOUT") {
            let ms = options.int()?;
            if ms <= 0 {
                return Err(Error::text("ERR FAILOVER timeout must be greater than 0"));
            }
            timeout_ms = Some(ms.unsigned_abs());
        } else if target.is_none() && options.left() > 2 && options.word("TO") {
            let host = String::from_utf8_lossy(options.value()?).into_owned();
            target = Some((host, options.int()?));
        } else if options.word("FORCE") && !force {
            force = true;
        } else if args.len() == 2 && options.word("ABORT") {
            abort = true;
        } else {
            return Err(Error::Syntax);
        }
    }
    let mut desired = replication.desired();
    if abort {
        if desired.failover.is_none() {
            return Err(Error::text("ERR No failover in progress."));
        }
        drop(desired);
        end_failover(ctx.server)?;
        ctx.reply.ok();
        return Ok(());
    }
    if desired.failover.is_some() {
        return Err(Error::text("ERR FAILOVER already in progress."));
    }
    if desired.master.is_some() {
        return Err(Error::text(
            "ERR FAILOVER is not valid when server is a replica.",
        ));
    }
    let replicas = replication.replicas();
    if replicas.is_empty() {
        return Err(Error::text("ERR FAILOVER requires connected replicas."));
    }
    if force && (target.is_none() || timeout_ms.is_none()) {
        return Err(Error::text(
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
        ));
    }
    let mut chosen = None;
    if let Some((host, port)) = &target {
        let mut found = replicas.iter();
        let found = found.find(|r| r.ip == *host && i64::from(r.port) == *port);
        let found = found.ok_or(Error::text(
            "ERR FAILOVER target HOST and PORT is not a replica.",
        ))?;
        if found.feeding() != Feeding::Online {
            return Err(Error::text("ERR FAILOVER target replica is not online."));
        }
        chosen = Some(MasterAddr {
            host: found.ip.clone(),
            port: found.port,
        });
    }
    let now_ms = crate::sys::clock::unix_ms();
    desired.failover = Some(Failover {
        target: chosen,
        deadline_ms: timeout_ms.map(|ms| now_ms + ms),
        force,
        in_progress: false,
    });
    drop(desired);
    ctx.server.pause_for_failover(true);
    replication.look();
    log::info!("FAILOVER requested by {}", ctx.session.info.addr);
    ctx.reply.ok();
    Ok(())
}

/// Aborts a failover: this server is the master again.
pub fn end_failover(server: &Server) -> Result<(), StorageError> {
    let failover = server.replication.desired().failover.clone();
    if failover.is_some_and(|failover| failover.in_progress) {
        follow(server, None)?;
    }
    server.replication.set_failover(None);
    server.pause_for_failover(false);
    Ok(())
}

fn wait(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if ctx.server.replication.is_replica() {
        return Err(Error::text(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.",
        ));
    }
    let replicas = args::int(args[1])?;
    let timeout_ms = timeout_in_ms(args[2])?;
    wait_for_acks(ctx, args, replicas, None, timeout_ms);
    Ok(())
}

fn waitaof(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let here = args::int(args[1])?;
    if !(0..=1).contains(&here) {
        return Err(ZERO_OR_ONE);
    }
    let replicas = args::int_from(args[2], 0, Error::NOT_POSITIVE)?;
    let timeout_ms = timeout_in_ms(args[3])?;
    if ctx.server.replication.is_replica() {
        return Err(Error::text(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and are not propagated.",
        ));
    }
    wait_for_acks(ctx, args, replicas, Some(here == 1), timeout_ms);
    Ok(())
}

/// Replies immediately if enough replicas have acknowledged the client's writes; otherwise
/// blocks the client.
fn wait_for_acks(
    ctx: &mut SessionCtx<'_>,
    args: &[&[u8]],
    replicas: i64,
    synced: Option<bool>,
    timeout_ms: u64,
) {
    let server = ctx.server;
    let session = &mut *ctx.session;
    // In a script, WAIT is about the writes of the client before the script.
    let moved = match session.is_script {
        true => session.client_wrote && session.written_to != Position::MAX,
        false => session.wrote.take(),
    };
    if moved {
        session.written_to = server.engine.binlog.range().next_position;
    }
    let replicas = usize::try_from(replicas).unwrap_or(0);
    let wait = Arc::new(AckWait::new(ctx.session.written_to, replicas, synced));
    let synced_here = server.engine.synced_position();
    if server.replication.is_over(&wait, synced_here) || ctx.session.deny_blocking {
        ctx.reply.raw(&wait.reply());
        return;
    }
    let client = (ctx.session.db(), ctx.session.resp3);
    let wanted = Wanted {
        awaited: Awaited::Acks(wait.clone()),
        timeout_ms,
    };
    let now_ms = crate::sys::clock::unix_ms();
    let request = Request::new(args);
    let info = &ctx.session.info;
    let waiter = server.waiters.enter(info, client, request, wanted, now_ms);
    ctx.session.waiting = Some(waiter);
    server.replication.look_after(ctx.session.info.id, &wait);
    // Acknowledgements that arrived before the waiter was entered do not wake it: check again.
    server.end_ack_waits();
}

fn role(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let server = ctx.server;
    let master = server.replication.desired().master.clone();
    let next = server.engine.binlog.range().next_position;
    match master {
        Some(master) => {
            let next = server
                .replication
                .link
                .stream()
                .map_or(next, |(next, _)| next);
            replica_role(ctx.reply, server, &master, next.offset());
        }
        None => master_role(ctx.reply, server, next.offset()),
    }
    Ok(())
}

fn replica_role(reply: &mut Reply, server: &Server, master: &MasterAddr, offset: Offset) {
    let phase = server.replication.link.phase();
    reply.array(5);
    reply.bulk(b"slave");
    reply.bulk(master.host.as_bytes());
    reply.int(master.port.into());
    reply.bulk(phase.name().as_bytes());
    reply.int(match phase {
        LinkPhase::Connected => offset.as_i64(),
        _ => -1,
    });
}

fn master_role(reply: &mut Reply, server: &Server, offset: Offset) {
    let mut replicas = server.replication.replicas();
    replicas.retain(|replica| replica.feeding() == Feeding::Online);
    reply.array(3);
    reply.bulk(b"master");
    reply.int(offset.as_i64());
    reply.array(replicas.len());
    for replica in replicas {
        reply.array(3);
        reply.bulk(replica.ip.as_bytes());
        reply.bulk(replica.port.to_string().as_bytes());
        let acked = replica.acked.load(Ordering::Relaxed);
        reply.bulk(acked.offset().to_string().as_bytes());
    }
}

const LINK: Flags = Flags::ADMIN
    .union(Flags::NOSCRIPT)
    .union(Flags::LOADING)
    .union(Flags::STALE);
const FOLLOW: Flags = Flags::ADMIN
    .union(Flags::NOSCRIPT)
    .union(Flags::STALE)
    .union(Flags::NO_ASYNC_LOADING)
    .union(Flags::SLOW);

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::session("failover", -1, failover)
        .syntax("[TO target=(host port:int [FORCE])] [ABORT] [TIMEOUT milliseconds:int]")
        .flags(Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE))
        .doc(
            Group::Server,
            "6.2.0",
            "Hands the role of the master over to a replica that has caught up",
        ),
    Command::session("psync", -3, psync)
        .syntax("replicationid offset:int [FAILOVER]")
        .complexity("O(B), B: bytes of the snapshot")
        .flags(
            Flags::ADMIN
                .union(Flags::NOSCRIPT)
                .union(Flags::NO_ASYNC_LOADING)
                .union(Flags::NO_MULTI)
                .union(Flags::SLOW),
        )
        .doc(
            Group::Server,
            "2.8.0",
            "Requests the replication stream from a position on",
        ),
    Command::session("replconf", -1, replconf)
        .syntax("[data=(option value)...]")
        .flags(LINK.union(Flags::ALLOW_BUSY))
        .internal()
        .migrated(Migrated::Nothing)
        .doc(
            Group::Server,
            "3.0.0",
            "Sets properties of a replica's connection to its master",
        ),
    Command::session("replicaof", 3, replicaof)
        .syntax("args=(host-port=(host port:int)|no-one=(NO ONE))")
        .flags(FOLLOW)
        .doc(
            Group::Server,
            "5.0.0",
            "Makes the server a replica of another one, or a master",
        ),
    Command::session("role", 1, role)
        .flags(
            Flags::FAST
                .union(Flags::NOSCRIPT)
                .union(Flags::LOADING)
                .union(Flags::STALE)
                .union(Flags::SENTINEL),
        )
        .categories(&["admin", "dangerous"])
        .doc(
            Group::Server,
            "2.8.12",
            "Returns the role of the server and the state of its replication",
        ),
    Command::session("sync", 1, sync)
        .complexity("O(B), B: bytes of the snapshot")
        .flags(
            Flags::ADMIN
                .union(Flags::NOSCRIPT)
                .union(Flags::NO_ASYNC_LOADING)
                .union(Flags::NO_MULTI),
        )
        .doc(
            Group::Server,
            "1.0.0",
            "Requests an RDB file of the data set, and the stream after it",
        ),
    Command::session("wait", 3, wait)
        .syntax("numreplicas:int timeout:int")
        .flags(Flags::BLOCKING.union(Flags::SLOW))
        .categories(&["connection"])
        .tips(&[Tip::RequestAllShards, Tip::ResponseAggMin])
        .doc(
            Group::Generic,
            "3.0.0",
            "Waits until a number of replicas have the writes of this client",
        ),
    Command::session("waitaof", 4, waitaof)
        .syntax("numlocal:int numreplicas:int timeout:int")
        .flags(Flags::BLOCKING.union(Flags::SLOW))
        .categories(&["connection"])
        .tips(&[Tip::RequestAllShards, Tip::ResponseAggMin])
        .doc(
            Group::Generic,
            "7.2.0",
            "Waits until the writes of this client are on the disk of this server, of a number \
             of replicas, or both",
        ),
    Command::session("slaveof", 3, replicaof)
        .syntax("args=(host-port=(host port:int)|no-one=(NO ONE))")
        .flags(FOLLOW)
        .deprecated("5.0.0", "`REPLICAOF`")
        .doc(
            Group::Server,
            "1.0.0",
            "Makes the server a replica of another one, or a master",
        ),
];
