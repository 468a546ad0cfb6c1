//! The table of commands.
//!
//! | file | what it is for |
//! |---|---|
//! | [`spec`] | what a row says |
//! | [`syntax`] | the arguments of a command, as rows write them |
//! | [`registry`] | the rows of all families together, by name |
//! | [`names`] | what clients call commands: `rename-command` |
//! | [`secrets`] | which arguments nobody else may see |
//! | [`help`] | the replies of HELP |
//! | [`manual`] | the command list of the manual |

pub mod help;
#[cfg(test)]
mod manual;
pub mod names;
pub mod registry;
pub mod secrets;
pub mod spec;
pub mod syntax;
