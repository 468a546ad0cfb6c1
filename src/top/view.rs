//! The findings as text with bars.

use super::ask::Findings;
use super::findings::{Depth, Hot, Key, Measured, Space, by_prefix};
use crate::base::one_line::OneLine;
use std::fmt::Write;

/// Bounds of the width, in columns.
const NARROWEST: usize = 60;
const WIDEST: usize = 140;
/// Columns of the longest bar, at least and at most.
const BAR: (usize, usize) = (8, 40);

/// How the text looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) columns: usize,
    pub(super) colours: bool,
    /// How many rows a section has.
    pub(super) top: usize,
}

/// A row of a section.
struct Row {
    name: String,
    measure: u64,
    cells: Vec<String>,
}

/// The whole text.
pub(super) fn text(found: &Findings, look: Look) -> String {
    let mut out = String::new();
    let space = &found.space;
    let names = Names::of(space);
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "Kedis {} at {}: {} keys, {} elements, {} before compression",
        OneLine(&found.version),
        found.server,
        thousands(space.total.keys),
        thousands(space.total.elements),
        bytes(space.total.bytes),
    );
    let of_all = match space.prefix.as_slice() {
        b"" => String::new(),
        prefix => format!(" of keys that begin with {}", shown(prefix)),
    };
    let _ = writeln!(
        out,
        "Scan{of_all}: {}, {}; {} keys with estimated bytes (~)",
        OneLine(&space.state),
        duration(space.took_ms),
        thousands(space.estimated),
    );
    types(&mut out, space, look);
    for depth in &space.depths {
        prefixes(&mut out, depth, space, &names, look);
    }
    big(
        &mut out,
        "Biggest keys",
        &space.by_bytes,
        &names,
        look,
        |key| key.bytes,
    );
    let counted: Vec<Key> = space
        .by_elements
        .iter()
        .filter(|key| key.elements > 1)
        .cloned()
        .collect();
    big(
        &mut out,
        "Keys with most elements",
        &counted,
        &names,
        look,
        |key| key.elements,
    );
    if let Some(hot) = &found.hot {
        hot_keys(&mut out, hot, found, look);
    }
    out
}

/// Whether names need the number of their DB.
struct Names {
    many_dbs: bool,
}

impl Names {
    fn of(space: &Space) -> Names {
        let keys = space.by_bytes.iter().map(|key| key.db);
        let prefixes = space.depths.iter().flat_map(|depth| &depth.biggest);
        let mut dbs = keys.chain(prefixes.map(|prefix| prefix.db));
        Names {
            many_dbs: dbs.any(|db| db != 0),
        }
    }

    fn show(&self, db: u64, name: String) -> String {
        match self.many_dbs {
            true => format!("{db}: {name}"),
            false => name,
        }
    }
}

fn types(out: &mut String, space: &Space, look: Look) {
    let mut types = space.types.clone();
    types.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.bytes));
    let rows = types.iter().map(|(name, sums)| Row {
        name: shown(name.as_bytes()),
        measure: sums.bytes,
        cells: vec![
            thousands(sums.keys),
            thousands(sums.elements),
            bytes(sums.bytes),
            share(sums.bytes, space.total.bytes),
        ],
    });
    section(
        out,
        "Types",
        &["keys", "elements", "bytes", ""],
        rows.collect(),
        look,
    );
}

fn prefixes(out: &mut String, depth: &Depth, space: &Space, names: &Names, look: Look) {
    let cells = |sums: super::findings::Sums| {
        vec![
            thousands(sums.keys),
            thousands(sums.elements),
            bytes(sums.bytes),
            share(sums.bytes, space.total.bytes),
        ]
    };
    let mut rows = Vec::new();
    for prefix in depth.biggest.iter().take(look.top) {
        let name = match prefix.name == space.prefix {
            true => format!("{}(no separator)", shown(&prefix.name)),
            false => shown(&prefix.name),
        };
        rows.push(Row {
            name: names.show(prefix.db, name),
            measure: prefix.sums.bytes,
            cells: cells(prefix.sums),
        });
    }
    if depth.others > 0 {
        rows.push(Row {
            name: format!("({} others)", thousands(depth.others)),
            measure: depth.rest.bytes,
            cells: cells(depth.rest),
        });
    }
    let title = format!("Prefixes, depth {}", depth.depth);
    section(out, &title, &["keys", "elements", "bytes", ""], rows, look);
}

fn big(
    out: &mut String,
    title: &str,
    keys: &[Key],
    names: &Names,
    look: Look,
    by: fn(&Key) -> u64,
) {
    let rows = keys.iter().take(look.top).map(|key| Row {
        name: names.show(key.db, shown(&key.name)),
        measure: by(key),
        cells: vec![
            shown(key.kind.as_bytes()),
            thousands(key.elements),
            format!(
                "{}{}",
                if key.estimated { "~" } else { "" },
                bytes(key.bytes)
            ),
        ],
    });
    section(
        out,
        title,
        &["type", "elements", "bytes"],
        rows.collect(),
        look,
    );
}

fn hot_keys(out: &mut String, hot: &Hot, found: &Findings, look: Look) {
    let whose = match (found.hot_of_another, hot.active) {
        (false, _) => "",
        (true, true) => "; another client collects them",
        (true, false) => "; another client has collected them",
    };
    let _ = writeln!(
        out,
        "\nHot keys in {}, of one command in {}{whose}",
        duration(hot.took_ms),
        thousands(hot.sample),
    );
    let separator = &found.space.separator;
    type Unit = fn(u64) -> String;
    let lists: [(&str, &[Measured], Unit); 2] = [
        ("processor time", &hot.by_cpu, |us| duration(us / 1000)),
        ("bytes of requests and replies", &hot.by_net, bytes),
    ];
    for (what, keys, unit) in lists {
        let whole: u64 = keys.iter().map(|(_, measure)| measure).sum();
        let rows = |list: &[Measured], empty: &str| {
            let row = |(name, measure): &Measured| Row {
                name: match name.as_slice() {
                    b"" => empty.to_owned(),
                    name => shown(name),
                },
                measure: *measure,
                cells: vec![unit(*measure), share(*measure, whole)],
            };
            list.iter().take(look.top).map(row).collect::<Vec<_>>()
        };
        let of_prefixes = rows(&by_prefix(keys, separator), "(no separator)");
        section(
            out,
            &format!("Hot keys by {what}"),
            &["", ""],
            rows(keys, "\"\""),
            look,
        );
        section(
            out,
            &format!("Their prefixes by {what}"),
            &["", ""],
            of_prefixes,
            look,
        );
    }
}

/// Writes a title and rows of a name, a bar and cells, which are aligned to the right.
fn section(out: &mut String, title: &str, heads: &[&str], rows: Vec<Row>, look: Look) {
    let columns = look.columns.clamp(NARROWEST, WIDEST);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(heads.get(column).map_or(0, |head| head.len()))
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let of_cells: usize = widths.iter().map(|width| width + 2).sum();
    let free = columns.saturating_sub(of_cells + 1);
    let longest = rows.iter().map(|row| row.name.chars().count()).max();
    let of_name = longest.unwrap_or(0).max(title.len());
    let of_name = of_name.min(free.saturating_sub(BAR.0)).max(title.len());
    let of_bar = free.saturating_sub(of_name).clamp(BAR.0, BAR.1);
    let cells = |cells: &mut dyn Iterator<Item = &str>| -> String {
        let aligned = cells
            .zip(&widths)
            .map(|(cell, width)| format!("  {cell:>width$}"));
        aligned.collect()
    };
    let heads = cells(&mut heads.iter().copied());
    let title = format!("{title:of_name$} {:of_bar$}{heads}", "");
    let _ = writeln!(out, "\n{}", paint(look, "1", title.trim_end()));
    if rows.is_empty() {
        out.push_str("(none)\n");
    }
    let most = rows.iter().map(|row| row.measure).max().unwrap_or(0).max(1);
    for row in &rows {
        let filled = u128::from(row.measure) * of_bar as u128;
        let filled = filled.div_ceil(u128::from(most)) as usize;
        let bar = format!("{:of_bar$}", "#".repeat(filled));
        let name = cut(&row.name, of_name);
        let cells = cells(&mut row.cells.iter().map(String::as_str));
        let _ = writeln!(out, "{name:of_name$} {}{cells}", paint(look, "36", &bar));
    }
}

fn paint(look: Look, colour: &str, text: &str) -> String {
    match look.colours {
        true => format!("\u{1b}[{colour}m{text}\u{1b}[0m"),
        false => text.to_owned(),
    }
}

/// A name for display, without control characters.
fn shown(name: &[u8]) -> String {
    OneLine(String::from_utf8_lossy(name)).to_string()
}

/// The first characters of a text that is too long.
fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => {
            let kept: String = text.chars().take(most.saturating_sub(1)).collect();
            format!("{kept}…")
        }
        false => text.to_owned(),
    }
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = n as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    match unit {
        "B" => format!("{n} B"),
        unit => format!("{value:.1} {unit}"),
    }
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

fn duration(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{ms} ms"),
        _ => format!("{:.1} s", ms as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |name: &str, measure, cell: &str| Row {
            name: name.to_owned(),
            measure,
            cells: vec![cell.to_owned()],
        };
        vec![
            row("user:", 1000, "1,000"),
            row(
                "a-name-that-is-much-too-long-for-the-width-of-the-terminal",
                500,
                "500",
            ),
            row("none", 0, "0"),
            row("least", 1, "1"),
        ]
    }

    #[test]
    fn rows_fit_into_the_width() {
        for columns in [0, 60, 80, 100, 500] {
            let look = Look {
                columns,
                colours: false,
                top: 10,
            };
            let mut out = String::new();
            section(&mut out, "Title", &["keys"], rows(), look);
            let lines: Vec<&str> = out.lines().skip(1).collect();
            assert_eq!(lines.len(), 5);
            assert!(
                lines[0].starts_with("Title") && lines[0].ends_with("keys"),
                "{out}"
            );
            let most = columns.clamp(NARROWEST, WIDEST);
            for line in &lines {
                assert!(line.chars().count() <= most, "{columns}: {line}");
            }
            let bar = |line: &str| line.matches('#').count();
            let whole = bar(lines[1]);
            assert!((BAR.0..=BAR.1).contains(&whole), "{out}");
            assert_eq!(bar(lines[2]), whole.div_ceil(2), "{out}");
            assert_eq!((bar(lines[3]), bar(lines[4])), (0, 1), "{out}");
        }
    }

    #[test]
    fn colours_add_nothing_that_is_seen() {
        let look = |colours| Look {
            columns: 80,
            colours,
            top: 10,
        };
        let [mut plain, mut coloured] = [String::new(), String::new()];
        section(&mut plain, "Title", &["keys"], rows(), look(false));
        section(&mut coloured, "Title", &["keys"], rows(), look(true));
        assert!(!plain.contains('\u{1b}') && coloured.contains('\u{1b}'));
        let seen = ["\u{1b}[1m", "\u{1b}[36m", "\u{1b}[0m"]
            .iter()
            .fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(seen, plain);
    }

    #[test]
    fn figures_have_units() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(123_456), "123,456");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(duration(9_999), "9999 ms");
        assert_eq!(duration(12_340), "12.3 s");
        assert_eq!(shown(b"a\x1b[2J"), "a\\u{1b}[2J");
    }
}
