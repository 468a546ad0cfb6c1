//! The manual: for people who run a server or write clients for it. How the server works
//! inside is described at the head of the [`crate`] and of its modules.
//!
//! Each page is a Markdown file in `src/manual`, which reads as well without rustdoc. The
//! table of parameters, the list of commands (see [`crate::commands::table::manual`]) and the list
//! of metrics are generated.

#[cfg(test)]
mod tests;

/// Pages and the files that they are in. Links between pages are written as `[text][page]`,
/// with the definition of `page` at the foot of the file. Markdown takes the first
/// definition of a link, so the ones here lead to modules where rustdoc renders the page.
macro_rules! pages {
    ($($page:ident = $file:literal;)*) => { $(
        #[doc = "[cache]: crate::manual::cache\n"]
        #[doc = "[changelog]: crate::manual::changelog\n"]
        #[doc = "[commands]: crate::manual::commands\n"]
        #[doc = "[configuration]: crate::manual::configuration\n"]
        #[doc = "[differences]: crate::manual::differences\n"]
        #[doc = "[durability]: crate::manual::durability\n"]
        #[doc = "[copies]: crate::manual::durability#backups\n"]
        #[doc = "[damaged-files]: crate::manual::durability#damaged-files\n"]
        #[doc = "[full-disk]: crate::manual::durability#a-disk-that-is-full-or-fails\n"]
        #[doc = "[glossary]: crate::manual::glossary\n"]
        #[doc = "[install]: crate::manual::install\n"]
        #[doc = "[json]: crate::manual::json\n"]
        #[doc = "[memory]: crate::manual::memory\n"]
        #[doc = "[metrics]: crate::manual::metrics\n"]
        #[doc = "[more-machines]: crate::manual::more_machines\n"]
        #[doc = "[moving-data]: crate::manual::moving_data\n"]
        #[doc = "[operations]: crate::manual::operations\n"]
        #[doc = "[values]: crate::manual::operations#the-value-log\n"]
        #[doc = "[replication]: crate::manual::replication\n"]
        #[doc = "[scripts]: crate::manual::scripts\n"]
        #[doc = "[security]: crate::manual::security\n"]
        #[doc = "[tls]: crate::manual::tls\n"]
        #[doc = "\n"]
        #[doc = include_str!(concat!("manual/", $file))]
        pub mod $page {}
    )* };
}

pages! {
    cache = "cache.md";
    changelog = "changelog.md";
    commands = "commands.md";
    configuration = "configuration.md";
    differences = "differences.md";
    durability = "durability.md";
    glossary = "glossary.md";
    install = "install.md";
    json = "json.md";
    memory = "memory.md";
    metrics = "metrics.md";
    more_machines = "more-machines.md";
    moving_data = "moving-data.md";
    operations = "operations.md";
    replication = "replication.md";
    scripts = "scripts.md";
    security = "security.md";
    tls = "tls.md";
}
