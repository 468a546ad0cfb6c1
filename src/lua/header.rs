//! The shebang line of a script or library: `#!lua name=… flags=…`.

bitflags::bitflags! {
    /// The flags of a script.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ScriptFlags: u8 {
        /// The script does not write.
        const NO_WRITES = 1;
        /// The script may run when memory is exhausted.
        const ALLOW_OOM = 1 << 1;
        /// The script may run on a replica without its master.
        const ALLOW_STALE = 1 << 2;
        /// The script must not run in a cluster.
        const NO_CLUSTER = 1 << 3;
        /// The script may use keys of several slots.
        const ALLOW_CROSS_SLOT_KEYS = 1 << 4;
    }
}

const NAMES: &[(&str, ScriptFlags)] = &[
    ("no-writes", ScriptFlags::NO_WRITES),
    ("allow-oom", ScriptFlags::ALLOW_OOM),
    ("allow-stale", ScriptFlags::ALLOW_STALE),
    ("no-cluster", ScriptFlags::NO_CLUSTER),
    ("allow-cross-slot-keys", ScriptFlags::ALLOW_CROSS_SLOT_KEYS),
];

impl ScriptFlags {
    /// The flag with this name.
    pub fn named(name: &[u8]) -> Option<ScriptFlags> {
        let mut names = NAMES.iter();
        let found = names.find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|(_, flag)| *flag)
    }

    /// The names of these flags.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let set = NAMES.iter().filter(move |(_, flag)| self.contains(*flag));
        set.map(|(name, _)| *name)
    }
}

/// The flags in the shebang line of a script for EVAL; `None` without such a line.
///
/// # Errors
/// The error reply.
pub fn script_flags(body: &[u8]) -> Result<Option<ScriptFlags>, Vec<u8>> {
    let Some(rest) = body.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let Some(end) = memchr::memchr(b'\n', rest) else {
        return Err(b"ERR Invalid script shebang".to_vec());
    };
    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    let mut words = line.split(|b| *b == b' ');
    let engine = words.next().unwrap_or_default();
    if engine != b"lua" {
        return Err([b"ERR Unexpected engine in script shebang: #!", engine].concat());
    }
    let mut flags = ScriptFlags::empty();
    for word in words.filter(|word| !word.is_empty()) {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err([b"ERR Unknown lua shebang option: ", word].concat());
        };
        for name in names.split(|b| *b == b',').filter(|name| !name.is_empty()) {
            match ScriptFlags::named(name) {
                Some(flag) => flags |= flag,
                None => return Err([b"ERR Unexpected flag in script shebang: ", name].concat()),
            }
        }
    }
    Ok(Some(flags))
}

/// The body of a script without the shebang; an empty line takes its place, so that line
/// numbers stay.
pub fn without_header(body: &[u8]) -> &[u8] {
    match body.starts_with(b"#!") {
        true => &body[memchr::memchr(b'\n', body).unwrap_or(body.len())..],
        false => body,
    }
}

/// The library's name in the shebang line.
///
/// # Errors
/// The error reply.
pub fn library_name(code: &[u8]) -> Result<&[u8], Vec<u8>> {
    let missing = || b"ERR Missing library metadata".to_vec();
    let rest = code.strip_prefix(b"#!").ok_or_else(missing)?;
    let end = memchr::memchr(b'\n', rest).ok_or_else(missing)?;
    let invalid = || b"ERR Invalid library metadata".to_vec();
    let words = words(&rest[..end]).ok_or_else(invalid)?;
    let mut words = words.into_iter();
    let engine = match rest.first() {
        Some(b' ') => &[][..],
        _ => words.next().ok_or_else(invalid)?,
    };
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err([b"ERR Engine '", engine, b"' not found"].concat());
    }
    let mut name = None;
    for word in words {
        let Some((key, value)) = word
            .split_at_checked(5)
            .filter(|(key, _)| key.eq_ignore_ascii_case(b"name="))
        else {
            return Err([b"ERR Invalid metadata value given: ", word].concat());
        };
        debug_assert_eq!(key.len(), 5);
        if name.replace(unquoted(value)).is_some() {
            let text = b"ERR Invalid metadata value, name argument was given multiple times";
            return Err(text.to_vec());
        }
    }
    let name = name.ok_or_else(|| b"ERR Library name was not given".to_vec())?;
    match is_name(name) {
        true => Ok(name),
        false => Err([b"ERR ", BAD_NAME.as_bytes()].concat()),
    }
}

/// The error text for an invalid name.
pub const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// Whether a library or function can have this name.
pub fn is_name(name: &[u8]) -> bool {
    let fits = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    !name.is_empty() && name.iter().all(fits)
}

/// Splits a line into words; quotes are kept. `None`: a quote is not closed.
fn words(line: &[u8]) -> Option<Vec<&[u8]>> {
    let mut words = Vec::new();
    let mut at = 0;
    while at < line.len() {
        if line[at].is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let start = at;
        let mut quote = None;
        while at < line.len() && (quote.is_some() || !line[at].is_ascii_whitespace()) {
            match (quote, line[at]) {
                (None, b'"' | b'\'') => quote = Some(line[at]),
                (Some(open), byte) if open == byte => quote = None,
                _ => {}
            }
            at += 1;
        }
        if quote.is_some() {
            return None;
        }
        words.push(&line[start..at]);
    }
    Some(words)
}

fn unquoted(value: &[u8]) -> &[u8] {
    for quote in [&b"\""[..], b"'"] {
        if let Some(inner) = value
            .strip_prefix(quote)
            .and_then(|v| v.strip_suffix(quote))
        {
            return inner;
        }
    }
    value
}
