//! The replies of the HELP subcommands.

use crate::commands::Error;
use crate::resp::Reply;

/// The usage of a subcommand, and the lines that say what it does.
pub type Topic = (&'static str, &'static [&'static str]);

/// Writes the help of a container: its usage, its subcommands, and HELP itself.
pub fn write(reply: &mut Reply, container: &str, topics: &[Topic]) {
    let mut lines = vec![format!(
        "{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    )];
    let own: Topic = ("HELP", &["Print this help."]);
    for (usage, about) in topics.iter().chain([&own]) {
        lines.push((*usage).to_owned());
        lines.extend(about.iter().map(|line| format!("    {line}")));
    }
    reply.array(lines.len());
    for line in lines {
        reply.simple(&line);
    }
}

/// The error of a subcommand that is unknown or does not take these arguments.
pub(in crate::commands) fn mistaken(args: &[&[u8]]) -> Error {
    let word = |at: usize| String::from_utf8_lossy(args.get(at).copied().unwrap_or_default());
    let (container, subcommand) = (word(0).to_ascii_uppercase(), word(1));
    Error::owned(format!(
        "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try {container} HELP."
    ))
}
