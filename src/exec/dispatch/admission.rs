//! Admission: whether the command exists, and whether this client may run it on this server
//! now.

use super::may_write;
use crate::base::slots::Slots;
use crate::commands::acl::check::{Denied, Place, check};
use crate::commands::acl::refusal;
use crate::commands::scripts::busy;
use crate::commands::table::registry::Registered;
use crate::commands::{Command, Error, Flags, Handler, Own};
use crate::exec::Executor;
use crate::lua::header::ScriptFlags;
use crate::state::PauseMode;
use crate::state::Session;
use crate::state::acl::Context;
use crate::state::clients::ClientFlags;
use crate::state::config::BusyScope;
use crate::state::replication::LinkPhase;
use crate::state::session::Traits;
use crate::storage::StorageError;
use std::sync::atomic::Ordering;

const MASTER_DOWN: Error =
    Error::text("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
const NO_STALE_FLAG: Error = Error::text(
    "MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' flag is not set on the script.",
);
const STALE_IN_SCRIPT: Error = Error::text("ERR Can not execute the command on a stale replica");
/// For MONITOR clients, which count as replicas as in Redis.
const NOT_WHILE_WATCHING: Error = Error::text("ERR Replica can't interact with the keyspace");
const LOADING: Error = Error::text("LOADING Redis is loading the dataset in memory");
const READONLY: Error = Error::text("READONLY You can't write against a read only replica.");

/// The error of a command in EXEC, whose user may not run it any more; the reason follows.
const LOST: &str = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: ";

/// What the user of a queued command has lost.
fn lost(denied: Denied) -> &'static str {
    match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => {
            "no permission to access one of the channels used as arguments to the command"
        }
        Denied::Db(_) => "no permission to access the database",
    }
}

/// The user of a client.
fn user_name(session: &Session) -> &[u8] {
    session.login.user().map_or(b"", |user| user.name())
}

/// Whether a command may add data.
pub(in crate::exec) fn may_grow(command: &Command) -> bool {
    command.flags.contains(Flags::DENYOOM)
}

/// Whether a command runs while data is loaded; commands on keys never do.
fn runs_while_loading(command: &Command) -> bool {
    command.flags.contains(Flags::LOADING)
        && !command.touches_keys()
        && !command.flags.contains(Flags::EXCLUSIVE)
}

impl Executor {
    /// The checks before a command runs.
    pub(in crate::exec) fn admit(
        &self,
        session: &Session,
        args: &[&[u8]],
    ) -> Result<&'static Registered, Error> {
        let found = self.resolve(args)?;
        let refuse = |error: Error| {
            self.server.stats.per_command[found.index].rejected.add(1);
            Err(error)
        };
        if !found.command.takes(args.len()) {
            return refuse(Error::Arity(found.full_name.as_str().into()));
        }
        let locked_out = !session.authenticated && !self.server.users.default_user().is_open();
        if locked_out && !found.command.flags.contains(Flags::NO_AUTH) {
            if self.server.audit.is_on() {
                refusal::report(&self.server, refusal::of_stranger(session, found));
            }
            return refuse(Error::text("NOAUTH Authentication required."));
        }
        if !session.is_script
            && let Err(denied) = self.check_permissions(session, found, args)
        {
            return refuse(self.deny(session, found, args, denied));
        }
        let queued = Self::queued(session, found.command);
        let mut writes = found.command.is_write() || queued.writes;
        if !writes && self.may_refuse_writes() {
            writes = self.writes(found.command, args);
        }
        if self.thread.config.cluster_enabled
            && let Err(error) = self.check_slots(session, found, args, writes)
        {
            return refuse(error);
        }
        if writes && self.server.engine.has_failed() {
            return refuse(StorageError::Failed.into());
        }
        let grows = may_grow(found.command) || queued.grows;
        // A script that has written is not refused, and commands of a master or a log were
        // checked before.
        let is_received = self.txn.is_received();
        let is_exempt = is_received || session.is_script && session.wrote.get();
        if grows && !is_exempt && self.server.engine.disk.is_low() {
            return refuse(StorageError::NoRoom.into());
        }
        if self.thread.config.busy_reply_scope == BusyScope::All
            && !session.is_script
            && !found.command.flags.contains(Flags::ALLOW_BUSY)
            && let Some(script) = self.server.workers.longest()
            && self.is_slow(&script)
        {
            return refuse(busy(script.is_function));
        }
        let subscribed = !session.resp3 && !session.subscriptions.is_empty();
        if subscribed && !found.command.flags.contains(Flags::SUBSCRIBED) {
            return refuse(Error::owned(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                found.full_name
            )));
        }
        if let Err(error) = self.check_role(session, found.command, args, writes) {
            return refuse(error);
        }
        let loads = self.server.loading.is_on();
        if loads && !is_received && !runs_while_loading(found.command) {
            return refuse(LOADING);
        }
        if session.info.flags().contains(ClientFlags::MONITOR)
            && (may_write(found.command) || found.command.is_read())
        {
            return refuse(NOT_WHILE_WATCHING);
        }
        match Self::check_inside_multi(session, found.command) {
            Ok(()) => Ok(found),
            Err(error) => refuse(error),
        }
    }

    /// Whether the user of a client may run a command.
    fn check_permissions(
        &self,
        session: &Session,
        found: &Registered,
        args: &[&[u8]],
    ) -> Result<(), Denied> {
        if session.login.is_unrestricted() {
            return Ok(());
        }
        let place = Place {
            db: session.next_db(),
            databases: self.server.engine.config.databases,
        };
        check(&session.login, found, args, place)
    }

    /// Reports that a request was denied. Returns the error for its client.
    #[cold]
    fn deny(&self, session: &Session, found: &Registered, args: &[&[u8]], denied: Denied) -> Error {
        let context = match session.multi() {
            Some(_) => Context::Multi,
            None => Context::TopLevel,
        };
        let last_command = &session.info.last_command;
        last_command.store(found.index as u32, Ordering::Relaxed);
        let refused = refusal::of_command(session, found, args, denied, context);
        refusal::report(&self.server, refused);
        denied.error(user_name(session), found)
    }

    /// Checks a command that runs in a unit, or again: its user may have lost permissions since
    /// the request was admitted.
    ///
    /// # Errors
    /// The error for the client, without its code if it is a script.
    pub(in crate::exec) fn permit(
        &mut self,
        session: &Session,
        found: &Registered,
        args: &[&[u8]],
        context: Context,
    ) -> Result<(), Error> {
        let Err(denied) = self.check_permissions(session, found, args) else {
            return Ok(());
        };
        let refused = refusal::of_command(session, found, args, denied, context);
        self.tick.record.denied(&self.server, refused);
        if !self.in_unit() {
            self.tick.record.count(&self.server);
        }
        let name = user_name(session);
        Err(match context {
            Context::TopLevel => denied.error(name, found),
            Context::Multi => Error::owned(format!("{LOST}{}", lost(denied))),
            Context::Lua => {
                let text = denied.text(name, found);
                Error::Bytes([b"NOPERM ACL failure in script: ", &*text].concat())
            }
        })
    }

    /// Whether the user of a client may run a command that a script asks about.
    pub(in crate::exec) fn may_run(
        &self,
        session: &Session,
        found: &Registered,
        args: &[&[u8]],
    ) -> bool {
        self.check_permissions(session, found, args).is_ok()
    }

    /// The traits of the queued commands if this is EXEC: a reason to refuse one of them may
    /// have arisen since it was queued.
    pub(in crate::exec) fn queued(session: &Session, command: &Command) -> Traits {
        match session.multi() {
            Some(multi) if command.is_own(Own::Exec) => multi.traits,
            _ => Traits::default(),
        }
    }

    /// The traits of a command that EXEC checks once more.
    pub(in crate::exec) fn traits(&self, command: &Command, args: &[&[u8]]) -> Traits {
        Traits {
            writes: self.writes(command, args),
            may_replicate: self.may_replicate(command, args),
            grows: may_grow(command),
            needs_master: self.needs_master(command, args),
            slots: match self.thread.config.cluster_enabled {
                true => command.slots(args),
                false => Slots::None,
            },
        }
    }

    /// Whether a replica without a link to its master refuses the command if
    /// `replica-serve-stale-data` is off. Scripts without flags, and those that there are not, are
    /// refused when they are to run.
    fn needs_master(&self, command: &Command, args: &[&[u8]]) -> bool {
        let declared = || self.declared(command, args);
        match command.handler {
            Handler::Own(Own::Script(_)) => {
                declared().is_some_and(|flags| !flags.contains(ScriptFlags::ALLOW_STALE))
            }
            _ => !command.flags.contains(Flags::STALE),
        }
    }

    /// Whether the data of a replica may be old, which `replica-serve-stale-data` forbids to show.
    fn is_stale(&self) -> bool {
        let link = &self.server.replication.link;
        !self.thread.config.replica_serve_stale_data && link.phase() != LinkPhase::Connected
    }

    /// Refuses a script or function with these flags on a replica whose data may be old.
    pub(in crate::exec) fn check_stale(&self, flags: Option<ScriptFlags>) -> Result<(), Error> {
        let is_replica = || self.server.replication.is_replica() && !self.txn.is_received();
        match flags {
            _ if !self.is_stale() || !is_replica() => Ok(()),
            Some(flags) if flags.contains(ScriptFlags::ALLOW_STALE) => Ok(()),
            Some(_) => Err(NO_STALE_FLAG),
            None => Err(MASTER_DOWN),
        }
    }

    /// The server may have become a replica between admission and the locks. It cannot between
    /// the locks and the commit.
    pub(in crate::exec) fn check_still_master(&self) -> Result<(), Error> {
        let read_only = self.thread.config.replica_read_only && !self.txn.is_received();
        match self.server.engine.is_following() && read_only {
            true => Err(READONLY),
            false => Ok(()),
        }
    }

    /// Whether a pause of writes holds the command back. A script may declare that it does not
    /// write.
    pub(in crate::exec) fn may_replicate(&self, command: &Command, args: &[&[u8]]) -> bool {
        match self.declared(command, args) {
            Some(flags) => !flags.contains(ScriptFlags::NO_WRITES),
            None => may_write(command),
        }
    }

    fn may_refuse_writes(&self) -> bool {
        self.server.engine.has_failed()
            || self.server.replication.is_replica()
            || self.thread.config.min_replicas_to_write > 0
    }

    /// Whether a command writes, according to its table row or to the flags of the script that
    /// it runs.
    pub(in crate::exec) fn writes(&self, command: &Command, args: &[&[u8]]) -> bool {
        let declared = || self.declared(command, args);
        command.is_write() || declared().is_some_and(|f| !f.contains(ScriptFlags::NO_WRITES))
    }

    /// Refuses what a replica does not run, and writes on a master with too few replicas.
    fn check_role(
        &self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
        writes: bool,
    ) -> Result<(), Error> {
        if self.txn.is_received() {
            // A script in the master's stream must have the same effect as there.
            return Ok(());
        }
        let replication = &self.server.replication;
        let config = &self.thread.config;
        let is_replica = match session.is_script {
            true => session.began_on_replica,
            false => replication.is_replica(),
        };
        if is_replica {
            if self.redirects(session, command, writes) {
                return self.redirect();
            }
            if writes && config.replica_read_only {
                return Err(READONLY);
            }
            let needs_master =
                || self.needs_master(command, args) || Self::queued(session, command).needs_master;
            if self.is_stale() && needs_master() {
                return Err(match session.is_script {
                    true => STALE_IN_SCRIPT,
                    false => MASTER_DOWN,
                });
            }
        } else if config.min_replicas_to_write > 0
            && config.min_replicas_max_lag_s > 0
            && writes
            && !(session.is_script && session.wrote.get())
        {
            // A script that has written is not refused.
            let good = replication.good_replicas(config.min_replicas_max_lag_s, self.tick.now_ms);
            if good < config.min_replicas_to_write as usize {
                return Err(Error::text("NOREPLICAS Not enough good replicas to write."));
            }
        }
        Ok(())
    }

    /// Whether a replica sends this command to its master: of a client that takes redirections,
    /// writes, and reads unless READONLY allows them.
    fn redirects(&self, session: &Session, command: &Command, writes: bool) -> bool {
        let flags = session.info.flags();
        let takes = flags.contains(ClientFlags::TAKES_REDIRECT);
        if session.is_script || !takes || self.thread.config.cluster_enabled {
            return false;
        }
        let reads = command.is_read() && command.touches_keys();
        writes || reads && !flags.contains(ClientFlags::READS_REPLICA)
    }

    /// The error that names the master. While a failover goes on that would send the client
    /// there and back, so its command is held back.
    fn redirect(&self) -> Result<(), Error> {
        let desired = self.server.replication.desired();
        match &desired.master {
            Some(master) if !desired.hands_over() => Err(Error::owned(master.redirection())),
            _ => Ok(()),
        }
    }

    /// Whether a failover must end before it is known where the command is to run.
    fn waits_for_failover(&self, session: &Session, command: &Command, args: &[&[u8]]) -> bool {
        let replication = &self.server.replication;
        if !replication.is_replica() {
            return false;
        }
        let may_leave = session.info.flags().contains(ClientFlags::TAKES_REDIRECT)
            || self.thread.config.cluster_enabled;
        if !may_leave {
            return false;
        }
        let writes = self.writes(command, args) || Self::queued(session, command).writes;
        let leaves = self.redirects(session, command, writes)
            || self.waits_to_move(session, command, args, writes);
        leaves && replication.desired().hands_over()
    }

    /// The command that `args` name, or its subcommand.
    pub(in crate::exec) fn resolve(&self, args: &[&[u8]]) -> Result<&'static Registered, Error> {
        let name = args.first().copied().unwrap_or_default();
        let Some(found) = self.thread.names.find(name) else {
            return Err(Error::unknown_command(args));
        };
        let Some(sub) = args.get(1).filter(|_| !found.subcommands.is_empty()) else {
            if matches!(found.command.handler, Handler::Container) {
                return Err(Error::Arity(found.full_name.as_str().into()));
            }
            return Ok(found);
        };
        match found.subcommand(sub) {
            // The handler of a plain command reports unknown subcommands itself.
            Some(sub) if !sub.is_part || sub.command.takes(args.len()) => Ok(sub),
            _ if found.is_plain() => Ok(found),
            _ => Err(Error::UnknownSubcommand {
                command: name.to_vec(),
                subcommand: sub.to_vec(),
            }),
        }
    }

    pub(super) fn is_paused(&self, session: &Session, command: &Command, args: &[&[u8]]) -> bool {
        if self.waits_for_failover(session, command, args) {
            return true;
        }
        let Some(pause) = self.server.pause_at(self.tick.now_ms) else {
            return false;
        };
        match pause.mode {
            PauseMode::All => true,
            PauseMode::Writes => {
                self.may_replicate(command, args) || Self::queued(session, command).may_replicate
            }
        }
    }

    /// Whether a command would send messages to clients of a thread that has too many queued.
    pub(super) fn is_held_back(&self, session: &Session, command: &Command) -> bool {
        if !self.tick.swamped {
            return false;
        }
        let notifies = !self.txn.wanted_events().is_empty() || self.server.tracking.clients() > 0;
        match command.is_own(Own::Exec) {
            // Which of the queued commands publish is not recorded.
            true => Self::queued(session, command).may_replicate,
            false => {
                let sends = notifies || command.flags.contains(Flags::PUBSUB);
                sends && may_write(command)
            }
        }
    }
}
