//! Look-up of parameters by name.

use super::params::{PARAMS, Param};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Flags of the command line that are not parameters.
const ONCE: [&str; 6] = [
    "--load-rdb",
    "--accept-data-loss",
    "--repair",
    "--check-config",
    "--help",
    "--version",
];

impl Param {
    /// The parameter called `name`, by its own name or an alias, in any case.
    pub fn find(name: &[u8]) -> Option<&'static Param> {
        Self::find_named(name).map(|(_, param)| param)
    }

    /// As [`Param::find`], with the name or alias as the table writes it.
    pub(super) fn find_named(name: &[u8]) -> Option<(&'static str, &'static Param)> {
        static INDEX: LazyLock<HashMap<&'static str, &'static Param>> = LazyLock::new(|| {
            PARAMS
                .iter()
                .flat_map(|param| param.names().map(move |name| (name, param)))
                .collect()
        });
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        INDEX
            .get_key_value(name.as_str())
            .map(|(name, param)| (*name, *param))
    }

    /// The name, alias or [flag](ONCE) that is most similar to `name`, an unknown one.
    pub(super) fn similar_to(name: &str) -> Option<&'static str> {
        let name = &*name.to_ascii_lowercase().replace('_', "-");
        /// Minimal similarity, from 0 (nothing in common) to 1 (equal).
        const ENOUGH: f64 = 0.85;
        let names = PARAMS.iter().flat_map(Param::names).chain(ONCE);
        let likeness = |known: &'static str| {
            let likeness = strsim::jaro_winkler(known.trim_start_matches('-'), name);
            (likeness, known)
        };
        let best = names.map(likeness).max_by(|a, b| a.0.total_cmp(&b.0));
        best.filter(|(likeness, _)| *likeness > ENOUGH)
            .map(|(_, known)| known)
    }
}
