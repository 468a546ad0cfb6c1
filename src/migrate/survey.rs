//! Checks before a copy: what would end it in the middle, as far as it can be known
//! beforehand. DBs that the target does not have, field expiry that it does not support,
//! and, in append-only files, commands that cannot be translated.
//!
//! A server is checked by its INFO; files are read once more. Later causes, in the
//! stream or under a prefix, end the tool when they occur.

use super::Stop;
use super::aof::{self, AofFeed};
use super::conn::{Conn, Dbs};
use super::copy::{MAX_STRING, times_refused};
use super::error::{Error, Result, shown_command};
use super::follow::MAX_ARG_LEN;
use super::options::Options;
use super::peers::keyspaces;
use super::psync::Feed;
use super::rewrite::{Rewriter, Rewritten};
use super::stats::Stats;
use crate::base::num;
use crate::rdb::file::{Entry, FileReader};
use crate::rdb::{self, Element};
use crate::resp::{Limits, Parser, Progress};
use crate::sys::clock;
use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

/// The checks; omitted with `--keep-going`.
pub struct Survey<'s> {
    /// The rewriter of the copy, with counters of its own.
    rewriter: Rewriter,
    dbs: Dbs,
    /// DBs already checked.
    known: BTreeSet<u64>,
    stop: &'s Stop,
}

impl<'s> Survey<'s> {
    /// `None` with `--keep-going`.
    pub fn new(options: &Options, rewriter: &Rewriter, stop: &'s Stop) -> Option<Survey<'s>> {
        (!options.keep_going).then(|| Survey {
            rewriter: Rewriter {
                stats: Arc::new(Stats::default()),
                ..rewriter.clone()
            },
            dbs: Dbs::new(&options.target(), stop),
            known: BTreeSet::new(),
            stop,
        })
    }

    /// # Errors
    /// The target does not have the DB to which keys of the source would go.
    fn check_db(&mut self, from: u64, to: u64) -> Result<()> {
        if !self.known.insert(to) {
            return Ok(());
        }
        match self.dbs.refusal(to)? {
            None => Ok(()),
            Some(error) => Err(Error::Refused(format!(
                "DB {from} of the source goes to DB {to}, and the target refused \"SELECT {to}\": {error}; nothing was copied"
            ))),
        }
    }

    /// Checks a source server.
    pub fn server(&mut self, source: &mut Conn) -> Result<()> {
        let mapping = self.rewriter.mapping.clone();
        for (from, to) in mapping.dbs().into_iter().flatten() {
            source.ask(&["SELECT", &from.to_string()])?;
            self.check_db(*from, *to)?;
        }
        for found in keyspaces(source)? {
            let Some(to) = mapping.db(found.db) else {
                continue;
            };
            self.check_db(found.db, to)?;
            let (db, hashes) = (found.db, found.timed_hashes);
            let is_lossy = hashes > 0 && !self.rewriter.abilities.field_times;
            // INFO does not say which keys these are.
            if is_lossy && mapping.has_all_keys() {
                return Err(Error::Refused(format!(
                    "in DB {db} of the source, elements of {hashes} hashes or sets have times of their own, which the target does not keep: nothing was copied; --keep-going takes such values without these times"
                )));
            }
        }
        Ok(())
    }

    /// Checks files; the first may begin with an RDB preamble.
    pub fn files(&mut self, files: &[PathBuf]) -> Result<()> {
        let (mut first, mut rest) = (None, files);
        if let [base, others @ ..] = files
            && aof::begins_with_rdb(base)?
        {
            (first, rest) = (Some(self.rdb_file(aof::open(base)?)?), others);
        }
        if first.is_none() && rest.is_empty() {
            return Ok(());
        }
        let stats = self.rewriter.stats.clone();
        self.commands(&mut AofFeed::new(first, rest, &stats))
    }

    /// Checks an RDB file; returns the source, which stands behind it.
    fn rdb_file<R: BufRead>(&mut self, source: R) -> Result<R> {
        let mut at = 0;
        let failed = |error, at| Error::Rdb {
            what: format!("RDB file, byte {at}"),
            error,
        };
        let file = FileReader::open(source, MAX_STRING);
        let mut file = file.map_err(|error| failed(error, at))?;
        let mut db = 0;
        loop {
            self.stop.check()?;
            at = file.position();
            match file.next().map_err(|error| failed(error, at))? {
                Entry::SelectDb(next) => db = next,
                Entry::Key(head) => {
                    let to = self.rewriter.mapping.db(db);
                    let is_copied = self.rewriter.mapping.key(file.key()).is_some();
                    if let Some(to) = to.filter(|_| is_copied) {
                        self.check_db(db, to)?;
                    }
                    let abilities = self.rewriter.abilities;
                    let looks = to.is_some() && is_copied;
                    let mut is_lossy = false;
                    let read = file.value(head, |element: Element<'_>| {
                        is_lossy |= looks && element.has_time() && !abilities.keep_time(&element);
                        Ok::<(), rdb::Error>(())
                    });
                    match read {
                        Ok(_) | Err(rdb::Error::Empty) => {}
                        Err(error) => return Err(failed(error, at)),
                    }
                    if is_lossy {
                        return Err(times_refused(file.key()));
                    }
                }
                Entry::End => return Ok(file.into_inner()),
                _ => {}
            }
        }
    }

    /// Checks that each command can be translated.
    fn commands(&mut self, feed: &mut AofFeed) -> Result<()> {
        let limits = Limits {
            max_bulk_len: MAX_ARG_LEN,
            authenticated: true,
        };
        let (mut parser, mut db) = (Parser::new(), 0);
        loop {
            self.stop.check()?;
            match parser.advance(feed.waiting(), &limits) {
                Ok(Progress::Complete { consumed }) => {
                    let bytes = feed.waiting().get(..consumed).unwrap_or_default();
                    let args: Vec<&[u8]> = parser.args_of(bytes).collect();
                    self.command(&mut db, &args)?;
                    parser.reset();
                    feed.consume(consumed);
                }
                Ok(Progress::Incomplete) => {
                    if !feed.fill()? {
                        return Ok(());
                    }
                }
                // The replay reports the error.
                Err(_) => return Ok(()),
            }
        }
    }

    fn command(&mut self, db: &mut u64, args: &[&[u8]]) -> Result<()> {
        let word = |word: &[u8]| args.first().is_some_and(|n| n.eq_ignore_ascii_case(word));
        if word(b"multi") || word(b"exec") {
            return Ok(());
        }
        if word(b"select") {
            if let Some(next) = args.get(1).and_then(|next| num::parse_u64(next)) {
                *db = next;
            }
            return Ok(());
        }
        let rewritten = self.rewriter.rewrite(*db, args, clock::unix_ms());
        let rewritten = rewritten.map_err(|why| Error::Unmappable {
            command: shown_command(args),
            why,
        })?;
        match rewritten {
            Rewritten::Same(to) | Rewritten::Command(to, _) | Rewritten::Commands(to, _, _) => {
                self.check_db(*db, to)
            }
            Rewritten::Nothing | Rewritten::Clear(_) | Rewritten::Swap(..) => Ok(()),
        }
    }
}

/// Warns if the source has more DBs than the target.
pub(super) fn compare_databases(source: &mut Conn, target: &mut Conn) -> Result<()> {
    let databases = |conn: &mut Conn| -> Result<Option<u64>> {
        let answer = conn.ask_maybe(&["CONFIG", "GET", "databases"])?;
        let answer = answer.as_ref().and_then(|answer| answer.as_slice());
        let number = answer.and_then(|pair| pair.get(1)?.as_bytes());
        Ok(number.and_then(num::parse_u64))
    };
    if let (Some(here), Some(there)) = (databases(source)?, databases(target)?)
        && here > there
    {
        log::warn!(
            "the source has {here} databases and the target {there}: the first write to one beyond ends the tool"
        );
    }
    Ok(())
}
