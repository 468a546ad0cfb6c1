//! As whom a connection acts.

use super::rules::Rules;
use super::users::{User, Users};
use std::cell::RefCell;
use std::sync::Arc;

/// As whom a connection acts.
#[derive(Debug, Clone)]
pub struct Login {
    /// `None`: the server itself, which may do everything: the stream of a master, for example.
    user: Option<Arc<User>>,
    /// The user's rules when they were last needed, and their version. Other threads use the
    /// same rules, so they are not counted for each command.
    known: RefCell<Option<(u64, Arc<Rules>)>>,
}

impl Login {
    /// The server itself.
    pub(in crate::state) fn superuser() -> Login {
        Login {
            user: None,
            known: RefCell::new(None),
        }
    }

    /// This user.
    pub fn of(user: Arc<User>) -> Login {
        Login {
            user: Some(user),
            known: RefCell::new(None),
        }
    }

    /// A new connection.
    pub fn of_new_client(users: &Users) -> Login {
        Login::of(users.default_user().clone())
    }

    /// The user, unless it is the server itself.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Whether a connection that has just been made need not log in.
    pub fn is_open(&self) -> bool {
        self.user.as_ref().is_none_or(|user| user.is_open())
    }

    /// Whether everything is permitted.
    pub fn is_unrestricted(&self) -> bool {
        self.user.as_ref().is_none_or(|user| user.is_unrestricted())
    }

    /// Calls `f` with the rules in force; `None`: everything is permitted.
    pub fn with_rules<T>(&self, f: impl FnOnce(Option<&Rules>) -> T) -> T {
        let Some(user) = &self.user else {
            return f(None);
        };
        let mut known = self.known.borrow_mut();
        // Read before the rules, so that these are no older.
        let version = user.version();
        match &*known {
            Some((seen, _)) if *seen == version => {}
            _ => *known = Some((version, user.rules())),
        }
        f(known.as_ref().map(|(_, rules)| &**rules))
    }
}
