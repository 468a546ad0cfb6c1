//! The table of commands.
//!
//! | file | what it is for |
//! |---|---|
//! | [`spec`] | the row of a command |
//! | [`keys`] | in a row: key specs, which say where the keys are |
//! | `slots` | in which slots the keys are |
//! | [`syntax`] | in a row: the arguments, for COMMAND DOCS |
//! | [`tips`] | in a row: what proxies have to know |
//! | [`secrets`] | in a row: which arguments are not shown to others |
//! | [`migrated`] | in a row: what the migration tools make of the command |
//! | [`registry`] | the rows of all families, by name |
//! | [`names`] | the names that `rename-command` gives commands |
//! | [`help`] | the replies of HELP |
//! | [`manual`] | the command list of the manual |

pub mod help;
pub mod keys;
#[cfg(test)]
mod manual;
pub mod migrated;
pub mod names;
pub mod registry;
pub mod secrets;
mod slots;
pub mod spec;
pub mod syntax;
pub mod tips;
