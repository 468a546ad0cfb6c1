//! Limits the time and memory of a running script, and stops it.
//!
//! A stop cannot be caught: from then on each line of the script fails again.

use super::Halted;
use mlua::{Function, HookTriggers, Lua, VmState};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Instructions between two checks.
const CHECK_EVERY: u32 = 2_000;

/// Values, or pieces of [`PIECE`] bytes, that a Rust function processes between two
/// checks.
const WORK: usize = 10_000;
/// Bytes that count as one unit of work.
pub const PIECE: usize = 64;

thread_local! {
    /// Work until the next check. Calls share it: the interpreter makes hundreds of them before it
    /// checks by itself, and all may have a little less work than one check is made for.
    static LEFT: Cell<usize> = const { Cell::new(WORK) };
}

/// Counts the work of Rust functions for a script, and checks regularly whether the
/// script must stop. Lua's own functions count their work, too (see `patches`).
pub struct Work<'a> {
    lua: &'a Lua,
}

impl<'a> Work<'a> {
    /// The work of one call.
    pub fn new(lua: &'a Lua) -> Work<'a> {
        Work { lua }
    }

    /// Counts processed values or pieces of bytes.
    ///
    /// # Errors
    /// The script must stop.
    pub fn add(&self, units: usize) -> mlua::Result<()> {
        if let Some(left) = LEFT.get().checked_sub(units) {
            LEFT.set(left);
            return Ok(());
        }
        LEFT.set(WORK);
        let watch = self.lua.app_data_ref::<Rc<Watch>>();
        match watch.map(|watch| watch.clone()) {
            Some(watch) => watch.check(self.lua).map(|_| ()),
            None => Ok(()),
        }
    }
}

/// Why a script was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trip {
    /// It exceeded its time or memory.
    Time,
    /// Another thread ended it, by SCRIPT KILL or at shutdown.
    Killed,
    /// A command could not run.
    Halted,
}

/// Limits of a script.
#[derive(Debug, Default, Clone)]
pub struct Limits {
    /// Time limit.
    pub time: Option<Duration>,
    /// Set to true to kill the script.
    pub kill: Option<Arc<AtomicBool>>,
    /// Memory limit of the interpreter in bytes; exceeding it counts as [`Trip::Time`].
    pub memory: Option<usize>,
    /// Where each check records the bytes of the interpreter.
    pub used: Option<Arc<AtomicUsize>>,
}

/// Checks the limits of the running script.
#[derive(Default)]
pub struct Watch {
    until: Cell<Option<Instant>>,
    kill: RefCell<Option<Arc<AtomicBool>>>,
    memory: Cell<Option<usize>>,
    used: RefCell<Option<Arc<AtomicUsize>>>,
    tripped: Cell<Option<Trip>>,
    checks_every_line: Cell<bool>,
}

impl Watch {
    /// Has the interpreter call [`Watch::check`] regularly.
    pub fn install(self: &Rc<Watch>, lua: &Lua) -> mlua::Result<()> {
        lua.set_app_data(self.clone());
        let watch = self.clone();
        let triggers = HookTriggers::new().every_nth_instruction(CHECK_EVERY);
        lua.set_global_hook(triggers, move |lua, _| watch.check(lua))
    }

    /// A Lua function that checks, for functions that run long without a line of Lua.
    pub fn checker(self: &Rc<Watch>, lua: &Lua) -> mlua::Result<Function> {
        let watch = self.clone();
        lua.create_function(move |lua, ()| watch.check(lua).map(|_| ()))
    }

    /// Checks whether the script must stop.
    ///
    /// # Errors
    /// The script must stop.
    pub fn check(self: &Rc<Watch>, lua: &Lua) -> mlua::Result<VmState> {
        if let Some(used) = &*self.used.borrow() {
            used.store(lua.used_memory(), Ordering::Relaxed);
        }
        if self.tripped.get().is_none() {
            let killed = |flag: &Arc<AtomicBool>| flag.load(Ordering::Acquire);
            if self.kill.borrow().as_ref().is_some_and(killed) {
                self.trip(Trip::Killed);
            } else if self
                .until
                .get()
                .is_some_and(|until| Instant::now() >= until)
                || (self.memory.get()).is_some_and(|most| lua.used_memory() > most)
            {
                self.trip(Trip::Time);
            } else {
                return Ok(VmState::Continue);
            }
        }
        self.check_every_line(lua)?;
        Err(mlua::Error::runtime("the script was stopped"))
    }

    /// Has every line checked from now on.
    fn check_every_line(self: &Rc<Watch>, lua: &Lua) -> mlua::Result<()> {
        if self.checks_every_line.replace(true) {
            return Ok(());
        }
        let watch = self.clone();
        let triggers = HookTriggers::EVERY_LINE.every_nth_instruction(1);
        lua.set_global_hook(triggers, move |lua, _| watch.check(lua))
    }

    fn trip(&self, why: Trip) {
        self.tripped.set(Some(why));
    }

    /// Begins a script.
    pub fn start(self: &Rc<Watch>, lua: &Lua, limits: Limits) -> mlua::Result<()> {
        self.until
            .set(limits.time.map(|time| Instant::now() + time));
        self.memory.set(limits.memory);
        *self.kill.borrow_mut() = limits.kill;
        *self.used.borrow_mut() = limits.used;
        self.tripped.set(None);
        LEFT.set(WORK);
        match self.checks_every_line.replace(false) {
            true => self.install(lua),
            false => Ok(()),
        }
    }

    /// Ends a script.
    pub fn stop(&self) {
        self.until.set(None);
        self.memory.set(None);
        *self.kill.borrow_mut() = None;
        *self.used.borrow_mut() = None;
    }

    /// Why the script was stopped, if it was.
    pub(super) fn tripped(&self) -> Option<Trip> {
        self.tripped.get()
    }

    /// Stops the script because a command could not run. Returns the error to raise.
    pub(super) fn halt(self: &Rc<Watch>, lua: &Lua, _: Halted) -> mlua::Error {
        self.trip(Trip::Halted);
        match self.check_every_line(lua) {
            Ok(()) => mlua::Error::runtime("the script was stopped"),
            Err(error) => error,
        }
    }
}
