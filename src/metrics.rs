//! The figures of the server for Prometheus, and its health, over HTTP: one thread of its own.
//!
//! | file | what it does |
//! |---|---|
//! | `table` | the one table of metrics: name, type, labels, help, the field of INFO that is the same, and where the figure comes from. The manual's list is made from it |
//! | `scrape` | what several metrics need, read once for a scrape |
//! | `samples` | Prometheus' text format 0.0.4, and OpenMetrics 1.0 |
//! | `threads` | processor time of threads, by name |
//! | `health` | `/healthz` and `/readyz` |
//! | `http` | requests and responses |
//! | `serve` | the thread: sockets, bounds, time limits |
//! | `manual` | the list of metrics in the manual |
//!
//! INFO and the metrics read the same counters; `tests/it/metrics.rs` compares them.
//!
//! A scrape waits for nothing that commands hold for long, and holds up no command: it reads atomic
//! figures, RocksDB's levels as look-ups find them, and copies of a few words under locks that
//! guard no more than these. It locks the table of clients for 64 of them at a time. Figures that
//! need more, as those of RocksDB's properties under its mutex, are left to INFO. Neither shows which
//! blocks are pinned: RocksDB would look at every block of the cache, a million in 8 GB.

mod health;
mod http;
#[cfg(test)]
mod manual;
mod samples;
mod scrape;
mod serve;
mod table;
mod threads;

pub use serve::{Metrics, MetricsError};
