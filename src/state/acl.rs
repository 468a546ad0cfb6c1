//! Users and what they may do.
//!
//! | module | what it holds |
//! |---|---|
//! | [`rules`] | what one user may do: commands, keys, channels, DBs, passwords |
//! | [`pattern`] | patterns of keys and channels |
//! | [`password`] | hashes of passwords |
//! | [`users`] | all users, by name |
//! | [`login`] | as whom a connection acts |
//! | [`log`] | what was refused |
//!
//! A [`users::User`] stays the same as long as its name exists; a change replaces its
//! [`rules::Rules`] as a whole, and connections notice it with their next command. Commands are
//! known here by their numbers in the registry only: rules are made from texts in
//! [`crate::commands`].

pub mod log;
pub mod login;
pub mod password;
pub mod pattern;
pub mod rules;
pub mod users;

pub use log::{AclLog, Context, Reason, Refused};
pub use login::Login;
pub use password::PasswordHash;
pub use pattern::{Access, Pattern};
pub use rules::{CommandSet, KeyPattern, Rules, Selector};
pub use users::{User, Users};

/// The user of connections that have not logged in. It always exists.
pub const DEFAULT_USER: &str = "default";
