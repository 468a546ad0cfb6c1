//! LATENCY: slow events and the latency distribution of commands.

use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::commands::table::help;
use crate::commands::table::registry::{Registered, registry};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::resp::Reply;
use crate::state::latency::{History, Sample};
use crate::state::stats::CommandStats;
use std::fmt::Write;

/// Columns of a graph.
const GRAPH_WIDTH: usize = 80;

fn latest(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let all = ctx.server.latency.all();
    ctx.reply.array(all.len());
    for (class, history) in all {
        let last = history.samples.back().copied();
        let last = last.unwrap_or(Sample { unix_s: 0, ms: 0 });
        ctx.reply.array(4);
        ctx.reply.bulk(class.as_bytes());
        ctx.reply.int(last.unix_s as i64);
        ctx.reply.int(last.ms as i64);
        ctx.reply.int(history.max_ms as i64);
    }
    Ok(())
}

fn history(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let class = args.get(2).copied().unwrap_or_default();
    let samples = match ctx.server.latency.history(class) {
        Some((_, history)) => history.samples,
        None => Default::default(),
    };
    ctx.reply.array(samples.len());
    for sample in samples {
        ctx.reply.array(2);
        ctx.reply.int(sample.unix_s as i64);
        ctx.reply.int(sample.ms as i64);
    }
    Ok(())
}

fn reset(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let named = args.get(2..).unwrap_or_default();
    let forgotten = ctx.server.latency.reset(named);
    ctx.reply.int(forgotten as i64);
    Ok(())
}

fn graph(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let class = args.get(2).copied().unwrap_or_default();
    let Some((name, history)) = ctx.server.latency.history(class) else {
        let class = String::from_utf8_lossy(class);
        return Err(Error::owned(format!(
            "ERR No samples available for event '{class}'"
        )));
    };
    let text = draw(name, &history);
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// A bar chart of the newest samples; the height of a bar is the latency.
fn draw(name: &str, history: &History) -> String {
    const ROWS: u64 = 4;
    let skip = history.samples.len().saturating_sub(GRAPH_WIDTH);
    let samples: Vec<u64> = history.samples.iter().skip(skip).map(|s| s.ms).collect();
    let high = samples.iter().copied().max().unwrap_or(0);
    let low = samples.iter().copied().min().unwrap_or(0);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{name} - high {high} ms, low {low} ms (all time high {} ms)",
        history.max_ms
    );
    let _ = writeln!(text, "{}", "-".repeat(GRAPH_WIDTH));
    for row in (1..=ROWS).rev() {
        let line: String = samples
            .iter()
            .map(|ms| {
                let height = (ms.saturating_sub(low) * ROWS).div_ceil((high - low).max(1));
                if height.max(1) >= row { '#' } else { ' ' }
            })
            .collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn doctor(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let threshold_ms = ctx.server.config.load().latency_monitor_threshold_ms;
    let all = ctx.server.latency.all();
    let text = if threshold_ms == 0 && all.is_empty() {
        "Latency is not monitored: latency-monitor-threshold is 0. Set it, in \
         milliseconds, with CONFIG SET, and ask again later.\n"
            .to_owned()
    } else if all.is_empty() {
        format!("No event has taken {threshold_ms} ms or longer.\n")
    } else {
        diagnose(&all)
    };
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn diagnose(all: &[(&'static str, History)]) -> String {
    let mut text = String::from("Events that took long:\n\n");
    for (class, history) in all {
        let count = history.samples.len().max(1) as u64;
        let sum: u64 = history.samples.iter().map(|s| s.ms).sum();
        let _ = writeln!(
            text,
            "{class}: {} slow seconds, on average {} ms, at worst {} ms",
            history.samples.len(),
            sum / count,
            history.max_ms,
        );
    }
    if all.iter().any(|(class, _)| class.contains("command")) {
        text.push_str(
            "\nSLOWLOG GET shows which commands were slow. Commands over many elements, \
             such as KEYS or large ranges, are best cut into parts.\n",
        );
    }
    text.push_str(
        "\nINFO rocksdb shows whether writes are held up by compactions; slow disks \
         show first under appendfsync always.\n",
    );
    text
}

fn histogram(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let named = args.get(2..).unwrap_or_default();
    let mut chosen: Vec<&'static Registered> = Vec::new();
    let all = || registry().iter();
    let with_subs =
        |command: &'static Registered| std::iter::once(command).chain(command.told_subcommands());
    if named.is_empty() {
        chosen.extend(all().flat_map(with_subs));
    }
    for name in named {
        let mut parts = name.splitn(2, |byte| *byte == b'|');
        let found = registry().find(parts.next().unwrap_or_default());
        match (found, parts.next()) {
            (Some(command), Some(sub)) => chosen.extend(command.told_subcommand(sub)),
            (Some(command), None) => chosen.extend(with_subs(command)),
            (None, _) => {}
        }
    }
    let stats = &ctx.server.stats.per_command;
    // Without `latency-tracking` all buckets are empty.
    let has_some = |stats: &CommandStats| stats.latency.iter().any(|bucket| bucket.get() > 0);
    chosen.retain(|command| stats.get(command.index).is_some_and(has_some));
    ctx.reply.map(chosen.len());
    for command in chosen {
        ctx.reply.bulk(command.full_name.as_bytes());
        if let Some(stats) = stats.get(command.index) {
            distribution(ctx.reply, stats);
        }
    }
    Ok(())
}

/// The number of calls, and the cumulative histogram with powers of two of microseconds as
/// upper bounds.
fn distribution(reply: &mut Reply, stats: &CommandStats) {
    let mut buckets = Vec::new();
    let mut total = 0;
    for (i, bucket) in stats.latency.iter().enumerate() {
        let count = bucket.get();
        total += count;
        if count > 0 {
            buckets.push((1i64 << i, total));
        }
    }
    reply.map(2);
    reply.bulk(b"calls");
    reply.int(total as i64);
    reply.bulk(b"histogram_usec");
    reply.map(buckets.len());
    for (below_us, count) in buckets {
        reply.int(below_us);
        reply.int(count as i64);
    }
}

const HELP: &[help::Topic] = &[
    ("DOCTOR", &["What the slow events suggest."]),
    ("GRAPH <event>", &["The slow events of a class, drawn."]),
    (
        "HISTOGRAM [<command-name> ...]",
        &["How many calls of commands were faster than 1, 2, 4, ... microseconds."],
    ),
    (
        "HISTORY <event>",
        &["The slow events of a class: Unix time and milliseconds."],
    ),
    ("LATEST", &["The last slow event of every class."]),
    (
        "RESET [<event> ...]",
        &["Forget the events of some classes (default: of all)."],
    ),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "LATENCY", HELP);
    Ok(())
}

const HELPS: Flags = Flags::LOADING.union(Flags::STALE);
const ADMIN: Flags = HELPS.union(Flags::ADMIN).union(Flags::NOSCRIPT);

const fn row(command: Command, since: &'static str, summary: &'static str) -> Command {
    command.doc(Group::Server, since, summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("doctor", 2, doctor)
            .complexity("O(N), N: events")
            .flags(ADMIN)
            .tips(&[
                Tip::NondeterministicOutput,
                Tip::RequestAllNodes,
                Tip::ResponseSpecial,
            ]),
        "2.8.13",
        "Returns advice from the slow events",
    ),
    row(
        Command::session("graph", 3, graph)
            .syntax("event")
            .complexity("O(N), N: entries of the event, at most 160")
            .flags(ADMIN)
            .tips(&[
                Tip::NondeterministicOutput,
                Tip::RequestAllNodes,
                Tip::ResponseSpecial,
            ]),
        "2.8.13",
        "Returns a graph of the slow events of a class",
    ),
    row(
        Command::session("help", 2, help).flags(HELPS),
        "2.8.13",
        "Lists the subcommands",
    ),
    row(
        Command::session("histogram", -2, histogram)
            .syntax("[command:string...]")
            .complexity("O(N), N: commands asked for")
            .flags(ADMIN)
            .tips(&[
                Tip::NondeterministicOutput,
                Tip::RequestAllNodes,
                Tip::ResponseSpecial,
            ]),
        "7.0.0",
        "Returns how long commands take, as a cumulative distribution",
    ),
    row(
        Command::session("history", 3, history)
            .syntax("event")
            .complexity("O(N), N: entries of the event, at most 160")
            .flags(ADMIN)
            .tips(&[
                Tip::NondeterministicOutput,
                Tip::RequestAllNodes,
                Tip::ResponseSpecial,
            ]),
        "2.8.13",
        "Returns the slow events of a class",
    ),
    row(
        Command::session("latest", 2, latest)
            .complexity("O(N), N: events")
            .flags(ADMIN)
            .tips(&[
                Tip::NondeterministicOutput,
                Tip::RequestAllNodes,
                Tip::ResponseSpecial,
            ]),
        "2.8.13",
        "Returns the last slow event of every class",
    ),
    row(
        Command::session("reset", -2, reset)
            .syntax("[event...]")
            .complexity("O(N), N: events")
            .flags(ADMIN)
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAggSum]),
        "2.8.13",
        "Deletes the recorded slow events",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[row(
    Command::container("latency", -2, SUBCOMMANDS),
    "2.8.13",
    "Commands about slow events",
)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_of_any_history() {
        let mut history = History::default();
        assert!(draw("command", &history).starts_with("command - high 0 ms"));
        for unix_s in 0..200 {
            history.samples.push_back(Sample {
                unix_s,
                ms: unix_s % 7,
            });
        }
        history.max_ms = 99;
        let text = draw("command", &history);
        assert!(text.lines().all(|line| line.len() <= GRAPH_WIDTH));
        assert!(text.contains("all time high 99 ms"));
    }
}
