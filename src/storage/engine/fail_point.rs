//! Places where tests make the process end or an operation fail.

use crate::storage::{Result, StorageError};
#[cfg(test)]
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A place where a test can make the process abort, an operation fail, or each pass take long:
/// `KEDIS_FAIL_POINT=name:count[:error|:slow]`. Compiled to nothing without debug assertions.
pub fn fail_point(name: &str) -> Result<()> {
    if cfg!(debug_assertions) {
        pass(name)
    } else {
        Ok(())
    }
}

struct FailPoint {
    name: String,
    /// Passes left until it acts.
    left: AtomicU64,
    /// Fail the operation instead of ending the process.
    error: bool,
    /// Delay each pass, and fail nothing.
    slow: bool,
}

/// What a test does at a fail point, by its name.
#[cfg(test)]
type AtFailPoint = (&'static str, Box<dyn FnOnce()>);

#[cfg(test)]
thread_local! {
    static AT_FAIL_POINT: RefCell<Option<AtFailPoint>> = RefCell::default();
}

/// Calls `act` when this thread passes the fail point `name` for the next time.
#[cfg(test)]
pub(in crate::storage) fn at_fail_point(name: &'static str, act: impl FnOnce() + 'static) {
    AT_FAIL_POINT.set(Some((name, Box::new(act))));
}

#[cfg(test)]
fn act_at(name: &str) {
    let is_here = |at: &mut (&str, _)| at.0 == name;
    let here = AT_FAIL_POINT.with_borrow_mut(|at| at.take_if(is_here));
    if let Some((_, act)) = here {
        act();
    }
}

/// Ends the process, or fails the operation, the count-th time that `name` is passed.
fn pass(name: &str) -> Result<()> {
    #[cfg(test)]
    act_at(name);
    static POINT: OnceLock<Option<FailPoint>> = OnceLock::new();
    let Some(point) = POINT.get_or_init(parse_fail_point) else {
        return Ok(());
    };
    if point.name != name {
        return Ok(());
    }
    if point.slow {
        std::thread::sleep(SLOW);
        return Ok(());
    }
    if point.left.fetch_sub(1, Ordering::Relaxed) != 1 {
        return Ok(());
    }
    if point.error {
        return Err(StorageError::Format(format!("fail point {name}")));
    }
    std::process::abort()
}

/// The delay of a `slow` fail point.
const SLOW: Duration = Duration::from_millis(100);

fn parse_fail_point() -> Option<FailPoint> {
    let text = std::env::var("KEDIS_FAIL_POINT").ok()?;
    let mut parts = text.split(':');
    let name = parts.next()?.to_owned();
    let left = parts.next()?.parse().ok()?;
    let action = parts.next();
    Some(FailPoint {
        name,
        left: AtomicU64::new(left),
        error: action == Some("error"),
        slow: action == Some("slow"),
    })
}
