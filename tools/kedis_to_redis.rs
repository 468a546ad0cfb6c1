//! Copies what a Kedis has to a Redis or Valkey, and follows it: see [`kedis::migrate`].

use kedis::migrate::{Server, Tool};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let tool = Tool {
        name: "kedis_to_redis",
        about: "Copies what a Kedis has to a Redis or Valkey, and follows it",
        source: Server::Kedis,
        target: Server::Redis,
    };
    tool.main()
}
