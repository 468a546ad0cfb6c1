//! The terminal that standard output is connected to.

use std::io::IsTerminal;

/// Whether standard output is a terminal.
pub fn is_there() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether what is written to the terminal may have colours: not with NO_COLOR or a dumb terminal.
pub fn has_colours() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
    is_there() && !is_set("NO_COLOR") && !is_dumb
}

/// Columns of the terminal: those that COLUMNS names, or what the terminal says.
pub fn columns() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok();
    let named = named.and_then(|text| text.parse().ok());
    named.or_else(asked).filter(|columns| *columns > 0)
}

fn asked() -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the pointer is valid for the call, and the request writes a `winsize`. A descriptor
    // that is no terminal is an error.
    #[allow(unsafe_code)]
    let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (done == 0).then_some(usize::from(size.ws_col))
}
