//! Commands in a form that can be pasted into redis-cli.

/// An argument in redis-cli's quoting; without quotes if none are needed.
pub fn quote(bytes: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-+.:*[](){}<>#=/,?!@^$%&|".contains(b);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return shorten(String::from_utf8_lossy(bytes).into_owned());
    }
    let mut out = String::from("\"");
    for &b in bytes {
        match b {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            0x20..=0x7e => out.push(char::from(b)),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out.push('"');
    shorten(out)
}

/// Shortens very long arguments.
fn shorten(text: String) -> String {
    const LONGEST: usize = 2000;
    if text.len() <= LONGEST {
        return text;
    }
    let head: String = text.chars().take(120).collect();
    format!("{head}...({} characters)", text.len())
}

/// A whole command on one line.
pub fn line(command: &[Vec<u8>]) -> String {
    let words: Vec<String> = command.iter().map(|arg| quote(arg)).collect();
    words.join(" ")
}
