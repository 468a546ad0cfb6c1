//! Shows which keys and prefixes of a Kedis take most space, and which keys most time: see
//! [`kedis::top`].

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    kedis::top::main()
}
