//! Copies what a Redis or Valkey has to a Kedis, and follows it: see [`kedis::migrate`].

use kedis::migrate::Tool;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    Tool::REDIS_TO_KEDIS.main()
}
