//! Runs the commands of an append-only file, as a replica runs those of its master: keys do not
//! expire meanwhile, and a transaction is one unit. Nothing of it is written to the binlog.

use crate::encoding::binlog::Position;
use crate::exec::{ApplyError, Executor};
use crate::resp::{Input, Limits, Parser, Progress};
use crate::state::clients::ClientFlags;
use crate::state::{ClientInfo, Server, Session};
use crate::storage::engine::history::Following;
use crate::sys::clock;
use smallvec::SmallVec;
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;
/// Most bytes of a transaction: it is buffered until its EXEC is read.
const MAX_TRANSACTION: usize = 1 << 30;

const LIMITS: Limits = Limits {
    max_bulk_len: u32::MAX as usize,
    authenticated: true,
};

/// Why an append-only file is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(io::Error),
    /// The file contains something other than commands.
    #[error(
        "this is no command of an append-only file; redis-check-aof --fix, on a copy, cuts the file there"
    )]
    Malformed,
    /// The file ends within a command or transaction; the bytes of that which are there.
    #[error("the file ends within a command or transaction, of which {0} bytes are there")]
    Truncated(usize),
    /// A transaction is too long.
    #[error("a transaction has more than {MAX_TRANSACTION} bytes")]
    Transaction,
    /// MULTI within a transaction, or EXEC outside.
    #[error("{0} stands where there can be none")]
    Misplaced(&'static str),
    /// A command cannot be run here.
    #[error("the command {command} is one that this server {why}")]
    NotHere {
        /// The command's name.
        command: String,
        /// The reason, as the end of a sentence about this server.
        why: &'static str,
    },
    /// A command fails here.
    #[error("{command} failed: {error}")]
    Failed {
        /// The command's name.
        command: String,
        /// The error reply.
        error: String,
    },
    /// The database fails.
    #[error("{0}")]
    Apply(String),
}

impl From<ApplyError> for LogError {
    fn from(error: ApplyError) -> LogError {
        match error {
            ApplyError::NotHere { command, why } => LogError::NotHere { command, why },
            ApplyError::Diverged { command, error } => LogError::Failed { command, error },
            ApplyError::NoRoom => LogError::Apply("the disk has no room for it".into()),
            error => LogError::Apply(error.to_string()),
        }
    }
}

type Words<'a> = SmallVec<[&'a [u8]; 8]>;

/// The commands of one file.
pub struct Commands {
    executor: Executor,
    session: Session,
    input: Input,
    parser: Parser,
    /// The offset in the file of the first unprocessed byte.
    at: u64,
    /// Bytes from there on that belong to a transaction whose EXEC has not been read.
    begun: usize,
    in_transaction: bool,
    count: u64,
}

impl Commands {
    /// Commands from offset `at` of a file on.
    pub fn new(server: &Arc<Server>, following: Following, at: u64) -> Commands {
        let mut executor = Executor::new(server.clone());
        executor.receive_rows(following);
        executor.end_with(server.loading.cancellation());
        let info = ClientInfo::new(
            server.clients.new_id(),
            "append-only file".to_owned(),
            String::new(),
            -1,
            usize::MAX,
            clock::unix_ms(),
            ClientFlags::MASTER,
        );
        Commands {
            executor,
            session: Session::of_server(Arc::new(info)),
            input: Input::default(),
            parser: Parser::new(),
            at,
            begun: 0,
            in_transaction: false,
            count: 0,
        }
    }

    /// The offset of the next command in the file.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// How many commands have run.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Reads once and runs the complete commands. Returns whether there may be more.
    pub(super) fn run_some(&mut self, source: &mut impl Read) -> Result<bool, LogError> {
        let read = self.input.read_from(source, READ_BYTES);
        if read.map_err(LogError::Io)? == 0 {
            return Ok(false);
        }
        self.executor.start_tick();
        let mut input = std::mem::take(&mut self.input);
        let mut used = 0;
        let done = self.run_whole(input.waiting(), &mut used);
        input.consume(used);
        self.at += used as u64;
        self.input = input;
        done?;
        self.commit()?;
        Ok(true)
    }

    /// Called at the end of the file.
    pub fn end(&self) -> Result<(), LogError> {
        match self.input.waiting().len() {
            0 => Ok(()),
            bytes => Err(LogError::Truncated(bytes)),
        }
    }

    fn commit(&mut self) -> Result<(), LogError> {
        let done = self.executor.finish_tick();
        done.map_err(|error| LogError::Apply(error.to_string()))?;
        self.executor.server().engine.wait_as_writer();
        Ok(())
    }

    fn run_whole(&mut self, input: &[u8], used: &mut usize) -> Result<(), LogError> {
        loop {
            let rest = input.get(*used + self.begun..).unwrap_or_default();
            let Some(args) = self.next_command(rest)? else {
                return match self.in_transaction && self.begun + rest.len() > MAX_TRANSACTION {
                    true => Err(LogError::Transaction),
                    false => Ok(()),
                };
            };
            let (args, consumed) = args;
            self.begun += consumed;
            let is = |word: &[u8]| {
                args.first()
                    .is_some_and(|name| name.eq_ignore_ascii_case(word))
            };
            match (self.in_transaction, is(b"multi"), is(b"exec")) {
                (true, true, _) => return Err(LogError::Misplaced("MULTI")),
                (false, _, true) => return Err(LogError::Misplaced("EXEC")),
                (true, _, false) => continue,
                (false, true, _) => {
                    self.in_transaction = true;
                    continue;
                }
                (true, _, true) => {
                    self.in_transaction = false;
                    let whole = input.get(*used..*used + self.begun).unwrap_or_default();
                    self.run_transaction(whole)?;
                }
                // An annotation has no words.
                (false, ..) if args.is_empty() => {}
                (false, ..) => self.apply(&[&args])?,
            }
            *used += std::mem::take(&mut self.begun);
            if self.executor.is_full() {
                self.commit()?;
                self.executor.start_tick();
            }
        }
    }

    /// The words of the first command in `rest` and its length in bytes, if it is complete. An
    /// annotation has no words.
    fn next_command<'r>(&mut self, rest: &'r [u8]) -> Result<Option<(Words<'r>, usize)>, LogError> {
        match rest.first() {
            None => return Ok(None),
            Some(b'#') => {
                let end = memchr::memchr(b'\n', rest);
                return Ok(end.map(|end| (Words::new(), end + 1)));
            }
            Some(b'*') => {}
            Some(_) => return Err(LogError::Malformed),
        }
        match self.parser.advance(rest, &LIMITS) {
            Ok(Progress::Complete { consumed }) => {
                let args: Words<'_> = self.parser.args_of(rest).collect();
                self.parser.reset();
                match args.is_empty() {
                    true => Err(LogError::Malformed),
                    false => Ok(Some((args, consumed))),
                }
            }
            Ok(Progress::Incomplete) => Ok(None),
            Err(_) => Err(LogError::Malformed),
        }
    }

    /// Runs the commands of a transaction, from its MULTI to its EXEC.
    fn run_transaction(&mut self, whole: &[u8]) -> Result<(), LogError> {
        let mut commands: Vec<Words<'_>> = Vec::new();
        let mut rest = whole;
        while let Some((args, consumed)) = self.next_command(rest)? {
            if !args.is_empty() {
                commands.push(args);
            }
            rest = rest.get(consumed..).unwrap_or_default();
        }
        if let [_multi, inner @ .., _exec] = commands.as_slice() {
            let inner: Vec<&[&[u8]]> = inner.iter().map(SmallVec::as_slice).collect();
            self.apply(&inner)?;
        }
        Ok(())
    }

    fn apply(&mut self, commands: &[&[&[u8]]]) -> Result<(), LogError> {
        // There is no replication stream, so no offset in one.
        let applied =
            self.executor
                .apply_commands(&mut self.session, commands, Position::NONE, |_| {});
        self.count += commands.len() as u64;
        Ok(applied?)
    }
}
