//! Looks after a script that runs: how long, and whether it shall stop.
//!
//! A stop cannot be caught: from then on every line of the script fails again.

use super::Halted;
use mlua::{Function, HookTriggers, Lua, VmState};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Instructions between two looks at the clock.
const LOOK_EVERY: u32 = 2_000;

/// Values, or pieces of [`PIECE`] bytes, that a function of ours handles between two looks.
const WORK: usize = 10_000;
/// Bytes that count as one unit of work.
pub const PIECE: usize = 64;

/// Counts what a function of ours does for a script, and looks every so often whether the
/// script may go on. Lua counts its own functions (see `patches`).
pub struct Work<'a> {
    lua: &'a Lua,
    left: Cell<usize>,
}

impl<'a> Work<'a> {
    /// Of one call.
    pub fn new(lua: &'a Lua) -> Work<'a> {
        Work {
            lua,
            left: Cell::new(WORK),
        }
    }

    /// So many values, or pieces of bytes, are handled.
    ///
    /// # Errors
    /// The script must not go on.
    pub fn add(&self, units: usize) -> mlua::Result<()> {
        if let Some(left) = self.left.get().checked_sub(units) {
            self.left.set(left);
            return Ok(());
        }
        self.left.set(WORK);
        let watch = self.lua.app_data_ref::<Rc<Watch>>();
        match watch.map(|watch| watch.clone()) {
            Some(watch) => watch.look(self.lua).map(|_| ()),
            None => Ok(()),
        }
    }
}

/// Why a script was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trip {
    /// Its time was over, or it took too much memory.
    Time,
    /// Somebody wants it to end.
    Killed,
    /// A command could not be run.
    Halted,
}

/// What a script may take.
#[derive(Debug, Default, Clone)]
pub struct Limits {
    /// How long it may run.
    pub time: Option<Duration>,
    /// Set when it shall end.
    pub kill: Option<Arc<AtomicBool>>,
    /// Bytes that its interpreter may use; who takes more is stopped like who takes too long.
    pub memory: Option<usize>,
}

/// Counts the work of the script that runs, and stops it.
#[derive(Default)]
pub struct Watch {
    until: Cell<Option<Instant>>,
    kill: RefCell<Option<Arc<AtomicBool>>>,
    memory: Cell<Option<usize>>,
    tripped: Cell<Option<Trip>>,
    strict: Cell<bool>,
}

impl Watch {
    /// Makes the interpreter ask every so often.
    pub fn install(self: &Rc<Watch>, lua: &Lua) -> mlua::Result<()> {
        lua.set_app_data(self.clone());
        let watch = self.clone();
        let triggers = HookTriggers::new().every_nth_instruction(LOOK_EVERY);
        lua.set_global_hook(triggers, move |lua, _| watch.look(lua))
    }

    /// A function that looks, for what runs long without a line of Lua.
    pub fn looker(self: &Rc<Watch>, lua: &Lua) -> mlua::Result<Function> {
        let watch = self.clone();
        lua.create_function(move |lua, ()| watch.look(lua).map(|_| ()))
    }

    /// Looks whether the script may go on.
    ///
    /// # Errors
    /// It must not.
    pub fn look(self: &Rc<Watch>, lua: &Lua) -> mlua::Result<VmState> {
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
        self.tighten(lua)?;
        Err(mlua::Error::runtime("the script was stopped"))
    }

    /// Asks before every line from now on.
    fn tighten(self: &Rc<Watch>, lua: &Lua) -> mlua::Result<()> {
        if self.strict.replace(true) {
            return Ok(());
        }
        let watch = self.clone();
        let triggers = HookTriggers::EVERY_LINE.every_nth_instruction(1);
        lua.set_global_hook(triggers, move |lua, _| watch.look(lua))
    }

    fn trip(&self, why: Trip) {
        self.tripped.set(Some(why));
    }

    /// A script starts.
    pub fn start(self: &Rc<Watch>, lua: &Lua, limits: Limits) -> mlua::Result<()> {
        self.until
            .set(limits.time.map(|time| Instant::now() + time));
        self.memory.set(limits.memory);
        *self.kill.borrow_mut() = limits.kill;
        self.tripped.set(None);
        match self.strict.replace(false) {
            true => self.install(lua),
            false => Ok(()),
        }
    }

    /// The script is over.
    pub fn stop(&self) {
        self.until.set(None);
        self.memory.set(None);
        *self.kill.borrow_mut() = None;
    }

    /// Why the script was stopped, if it was.
    pub fn tripped(&self) -> Option<Trip> {
        self.tripped.get()
    }

    /// A command could not be run: the script ends. Returns the error for it.
    pub fn halt(self: &Rc<Watch>, lua: &Lua, _: Halted) -> mlua::Error {
        self.trip(Trip::Halted);
        match self.tighten(lua) {
            Ok(()) => mlua::Error::runtime("the script was stopped"),
            Err(error) => error,
        }
    }
}
