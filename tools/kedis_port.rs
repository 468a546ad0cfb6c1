//! Copies what a Kedis has to another, and follows it: see [`kedis::migrate`].

use kedis::migrate::{Server, Tool};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let tool = Tool {
        name: "kedis_port",
        about: "Copies what a Kedis has to another, and follows it",
        source: Server::Kedis,
        target: Server::Kedis,
    };
    tool.main()
}
