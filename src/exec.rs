//! From a request to a reply: the dispatch ladder and the tick.
//!
//! An [`Executor`] belongs to one thread. A tick: [`Executor::start_tick`], any
//! number of [`Executor::run`], [`Executor::finish_tick`]; replies may be sent
//! only after that returned `Ok` (IO threads: [`Executor::end_tick`]). All writes of
//! a tick are one batch, bounded in bytes, commands and time: when
//! [`Executor::is_full`] says so, finish the tick and start another.
//!
//! | file | what it does |
//! |---|---|
//! | `dispatch` | the ladder, the tick |
//! | [`unit`] | several commands as one: EXEC, scripts |
//! | `transactions` | MULTI, EXEC, WATCH |
//! | `blocking` | clients that wait, and who serves them |
//! | `scripts` | EVAL, FCALL and their sisters |
//! | `lane` | requests that take long, on threads of their own |
//! | `populate` | DEBUG POPULATE |
//! | `record` | what is counted and shown of commands, once each |
//! | `monitor` | what MONITOR clients see |

mod apply;
mod blocking;
mod dispatch;
mod lane;
mod monitor;
mod populate;
mod record;
mod scripts;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
mod transactions;
mod unit;

pub use apply::ApplyError;
pub use dispatch::{Ended, Executor, Outcome, Parked};
pub use unit::{Scope, Stop};
