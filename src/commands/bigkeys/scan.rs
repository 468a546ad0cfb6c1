//! The thread of BIGKEYS.

use crate::state::bigkeys::{Adding, BigKeys, Found, Plan, State};
use crate::storage::{DbIndex, Engine};
use crate::types::OpResult;
use crate::types::space::Reading;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Niceness of the thread. Where all processors are busy, those that serve clients come first.
#[cfg(target_os = "linux")]
const NICE: i32 = 19;
/// How far a scan may be ahead of its rate before it sleeps.
const AHEAD: Duration = Duration::from_millis(5);

/// Keeps a scan to its rate.
struct Pace<'a> {
    adding: &'a Adding<'a>,
    rate: u64,
    /// When the next row is due.
    due: Instant,
}

impl Pace<'_> {
    /// Notes rows that were read, and sleeps if that was too early. Returns whether to go on.
    fn pass(&mut self, rows: u64) -> ControlFlow<()> {
        let is_stopped = match self.rate {
            0 => self.adding.is_stopped(),
            rate => {
                let now = Instant::now();
                // What was late is not made up for.
                self.due = self.due.max(now) + Duration::from_secs_f64(rows as f64 / rate as f64);
                match self.due.saturating_duration_since(now) > AHEAD {
                    true => self.adding.sleep_until(self.due),
                    false => self.adding.is_stopped(),
                }
            }
        };
        match is_stopped {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Runs the scan that has begun.
pub(super) fn run(engine: &Engine, scans: &BigKeys, plan: &Plan) {
    // Elsewhere it would be that of the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICE) {
        log::debug!("BIGKEYS keeps its priority: {error}");
    }
    let adding = scans.adding();
    let end = match scan(engine, plan, &adding) {
        Ok(ControlFlow::Continue(())) => State::Done,
        Ok(ControlFlow::Break(())) => State::Stopped,
        Err(error) => {
            log::error!("BIGKEYS: {error}");
            State::Failed(error.to_string())
        }
    };
    adding.ends(end);
}

/// Adds all keys; breaks if the scan was stopped.
fn scan(engine: &Engine, plan: &Plan, adding: &Adding<'_>) -> OpResult<ControlFlow<()>> {
    let snapshot = engine.snapshot()?;
    let wanted = |db: DbIndex| plan.db.is_none_or(|only| only == db);
    let dbs = || snapshot.dbs().filter(|(db, _)| wanted(*db));
    adding.expect(dbs().map(|(_, counts)| counts.keys).sum());
    let layout = snapshot.layout();
    let pace = std::cell::RefCell::new(Pace {
        adding,
        rate: plan.rate,
        due: Instant::now(),
    });
    for (db, _) in dbs() {
        let mut reading = Reading {
            snapshot: &snapshot,
            db,
            samples: plan.samples,
            pace: &mut |rows| pace.borrow_mut().pass(rows),
        };
        let (from, to) = layout.metas_with(&plan.prefix);
        let each = |row_key: &[u8], row: &[u8]| -> OpResult<_> {
            let key = layout.user_key(row_key)?;
            if !key.starts_with(&plan.prefix) {
                adding.pass(1, None);
                return Ok((reading.pace)(1));
            }
            let Some(space) = reading.of(row_key, row)? else {
                return Ok(ControlFlow::Break(()));
            };
            let found = Found {
                db,
                key,
                kind: space.kind,
                bytes: space.bytes,
                elements: space.elements,
                estimated: space.estimated,
            };
            adding.pass(space.rows, Some(found));
            Ok((reading.pace)(1))
        };
        if snapshot.scan(db, &from, &to, each)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
