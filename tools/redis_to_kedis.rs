//! Copies what a Redis or Valkey has to a Kedis, and follows it: see [`kedis::migrate`].

use kedis::migrate::{Server, Tool};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let tool = Tool {
        name: "redis_to_kedis",
        about: "Copies what a Redis or Valkey has to a Kedis, and follows it",
        source: Server::Redis,
        target: Server::Kedis,
    };
    tool.main()
}
