//! Copies what a Kedis has to a Redis or Valkey, and follows it: see [`kedis::migrate`].

use kedis::migrate::Tool;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    Tool::KEDIS_TO_REDIS.main()
}
