//! The list of metrics of the manual, made from the table.

use super::table::SUBJECTS;
use std::fmt::Write;

/// The list, in Markdown: tables by subject.
fn markdown_list() -> String {
    let mut text = String::new();
    for (title, metrics) in SUBJECTS {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "### {title}\n\n| Metric | Type | Labels | INFO | What it is |\n|---|---|---|---|---|"
        );
        for metric in *metrics {
            let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
            let info = match metric.info {
                "" => String::new(),
                field => format!("`{field}`"),
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {info} | {} |",
                metric.name,
                metric.kind.name(),
                labels.join(", "),
                metric.help
            );
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::check_manual;

    #[test]
    fn the_metrics_of_the_manual_are_up_to_date() {
        check_manual("metrics.md", "metrics", &markdown_list());
    }
}
