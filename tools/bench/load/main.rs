//! A load generator for servers that speak the Redis protocol (RESP2): one thread, little CPU
//! time per request, so that it can share a machine with the server that it measures.
//!
//! - Closed loop: each connection sends `--pipeline` requests together and sends the next ones
//!   after all replies. The latency of a request counts from when it was sent.
//! - Open loop (`--rate`): requests are due at fixed times, whatever the server does, and are
//!   spread over the connections in turn. The latency of a request counts from when it was due.
//!   So a server that stalls is charged with all requests that would have come meanwhile, not
//!   only with the one that was on its way ("coordinated omission").
//!
//! The result is one JSON object on standard output. Error replies are counted; a connection
//! that fails, or a reply that is not RESP2 or that nobody asked for, ends the program with
//! status 1.
//!
//! ```sh
//! cargo run --release --example load -- --seconds 10 --clients 64 --keys 1000000 get
//! cargo run --release --example load -- --seconds 10 --clients 64 --rate 10000 set
//! cargo run --release --example load -- --requests 500 HGETALL 'user:{key}'
//! ```

mod command;
mod drive;
mod figures;
mod histogram;
mod keys;
mod replies;

use clap::Parser;
use command::Command;
use drive::{Pace, Plan};
use figures::Figures;
use histogram::Histogram;
use keys::{Keys, Order};
use std::process::ExitCode;

/// Sends requests to a server, and prints rate and latencies as one JSON object.
#[derive(Parser)]
#[command(name = "load")]
struct Options {
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// Number of connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Requests of a connection that are sent together
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pipeline: u32,
    /// Open loop: requests in a second, over all connections
    #[arg(long, value_parser = positive, conflicts_with = "pipeline")]
    rate: Option<f64>,
    /// End after this time
    #[arg(long, value_parser = positive, required_unless_present = "requests")]
    seconds: Option<f64>,
    /// End after this number of requests
    #[arg(long)]
    requests: Option<u64>,
    /// How long to wait for outstanding replies at the end
    #[arg(long, default_value = "10", value_parser = positive)]
    grace: f64,
    /// Number of different keys
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=keys::MAX))]
    keys: u64,
    /// Number of the first key
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=keys::MAX))]
    from: u64,
    /// A key is this prefix and its number in twelve digits
    #[arg(long, default_value = "key:")]
    prefix: String,
    /// In which order keys are used
    #[arg(long, value_enum, default_value_t = Order::Uniform)]
    order: Order,
    /// Of `--order zipf`: the k-th most frequent key is used as often as 1 / k^EXPONENT
    #[arg(long, default_value = "0.99", value_parser = positive)]
    exponent: f64,
    /// Keys of one `mget`
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Size of a value; values are random bytes, which do not compress
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=keys::VALUE_MAX))]
    value_bytes: u32,
    /// A null in a reply is an error
    #[arg(long)]
    all_exist: bool,
    /// `get`, `set`, `incr`, `mget`, or the words of a command: `{key}` is the next key, `{same}`
    /// that key again, `{value}` a value
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// A positive number of at most a billion.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= 1e9 => Ok(number),
        _ => Err("must be a number above 0, up to 1,000,000,000".into()),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let keys = Keys::new(options.from, options.keys, options.order, options.exponent);
    let command = Command::new(
        &options.command,
        &options.prefix,
        options.count,
        options.value_bytes as usize,
        keys,
    );
    let plan = Plan {
        address: (options.host, options.port),
        clients: options.clients,
        pace: match options.rate {
            Some(rate) => Pace::Open {
                interval_ns: 1e9 / rate,
            },
            None => Pace::Closed {
                pipeline: options.pipeline,
            },
        },
        until_ns: options.seconds.map(nanoseconds),
        requests: options.requests,
        grace_ns: nanoseconds(options.grace),
        all_exist: options.all_exist,
    };
    match drive::run(&plan, command) {
        Ok(figures) => {
            println!("{}", json(&figures));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// The result; times in milliseconds, `rate` and `each_second` in replies per second.
fn json(figures: &Figures) -> String {
    let ms = |histogram: &Histogram, share| histogram.percentile(share) as f64 / 1e6;
    let all = &figures.all;
    let shares = [
        ("p50", 0.5),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("p99.99", 0.9999),
        ("max", 1.0),
    ];
    let latencies = shares.map(|(name, share)| format!("\"{name}\": {:.4}", ms(all, share)));
    let each = figures.each_second.iter();
    let each = each.map(|(count, p99_ns)| format!("[{count}, {:.4}]", *p99_ns as f64 / 1e6));
    format!(
        "{{\"requests\": {}, \"errors\": {}, \"first_error\": {}, \"unanswered\": {}, \
         \"seconds\": {:.4}, \"rate\": {:.1}, \"latency_ms\": {{\"mean\": {:.4}, {}}}, \
         \"each_second\": [{}]}}",
        all.count(),
        figures.errors,
        figures.first_error.as_deref().map_or("null".into(), quoted),
        figures.unanswered,
        figures.seconds,
        figures.rate(),
        all.mean() / 1e6,
        latencies.join(", "),
        each.collect::<Vec<_>>().join(", "),
    )
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            control if control < ' ' => out += &format!("\\u{:04x}", control as u32),
            other => out.push(other),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn options_are_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a\"b\\c\r"), r#""a\"b\\c\u000d""#);
    }

    #[test]
    fn the_result_is_one_object() {
        let mut figures = Figures::new(None);
        figures.note(
            1_000,
            Duration::from_millis(3).as_nanos() as u64,
            Some("ERR".into()),
        );
        figures.end(2_000_000_000);
        let text = json(&figures);
        assert!(
            text.starts_with(r#"{"requests": 1, "errors": 1, "first_error": "ERR", "unanswered": 0, "seconds": 2.0000, "rate": 0.5, "latency_ms": {"mean": 3.0000, "p50": 3.0"#),
            "{text}"
        );
        assert!(
            text.ends_with(r#""each_second": [[1, 3.0000], [0, 0.0000]]}"#),
            "{text}"
        );
    }
}
