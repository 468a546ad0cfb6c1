//! Parameters of the log.

use super::kind::ParamKind;
use super::lex::quote;
use super::types::LogLevel;
use super::value::{Field, Source, ValueError};

/// The modules that can have a level of their own: those of the package.
const MODULES: &[&str] = &[
    "base",
    "commands",
    "encoding",
    "exec",
    "jobs",
    "lua",
    "metrics",
    "migrate",
    "net",
    "rdb",
    "replication",
    "resp",
    "server",
    "state",
    "storage",
    "sys",
    "tls",
    "types",
];

/// Levels of single modules, in place of `loglevel`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLevels(pub Vec<(&'static str, LogLevel)>);

/// The one of these names that a word is.
fn one_of<'n>(names: &[&'n str], word: &[u8]) -> Result<&'n str, ValueError> {
    let found = names
        .iter()
        .find(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    found
        .copied()
        .ok_or_else(|| ValueError::Choice(names.join(", ")))
}

impl Field for LogLevels {
    fn assign(
        &mut self,
        _: &ParamKind,
        words: &[Vec<u8>],
        source: Source,
    ) -> Result<(), ValueError> {
        if words.iter().all(Vec::is_empty) {
            self.0.clear();
            return Ok(());
        }
        let mut levels = Vec::new();
        for pair in words.chunks(2) {
            let [module, level] = pair else {
                return Err(ValueError::Arity);
            };
            let module = one_of(MODULES, module)?;
            let mut wanted = LogLevel::Notice;
            wanted.assign(
                &ParamKind::Choice(LogLevel::NAMES),
                std::slice::from_ref(level),
                source,
            )?;
            levels.retain(|(other, _)| *other != module);
            levels.push((module, wanted));
        }
        self.0 = levels;
        Ok(())
    }

    fn text(&self, _: &ParamKind) -> Vec<u8> {
        let pairs = self.0.iter();
        let pairs: Vec<String> = pairs
            .map(|(module, level)| format!("{module} {}", level.name()))
            .collect();
        pairs.join(" ").into_bytes()
    }

    fn lines(&self, kind: &ParamKind) -> Vec<Vec<u8>> {
        match self.0.is_empty() {
            true => vec![quote(b"")],
            false => vec![self.text(kind)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_can_have_a_level() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(root.join("src/lib.rs")).unwrap();
        let names = str::lines(&text);
        let names = names.filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        // The others are not parts of a server.
        let modules: Vec<&str> = names
            .filter(|name| !["manual", "top"].contains(name))
            .collect();
        assert_eq!(modules, MODULES);
    }

    #[test]
    fn pairs_of_modules_and_levels() {
        let kind = ParamKind::Words("MODULE LEVEL ...");
        let parse = |text: &str| -> Result<String, ValueError> {
            let words: Vec<Vec<u8>> = text
                .split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect();
            let mut levels = LogLevels::default();
            levels.assign(&kind, &words, Source::Set)?;
            Ok(String::from_utf8(levels.text(&kind)).unwrap())
        };
        let taken = |text: &str| parse(text).unwrap_or_else(|error| error.to_string());
        assert_eq!(
            taken("net debug storage WARNING"),
            "net debug storage warning"
        );
        assert_eq!(taken("net debug net verbose"), "net verbose");
        assert_eq!(taken(""), "");
        assert_eq!(parse("net"), Err(ValueError::Arity));
        assert!(taken("network debug").contains("one of the following: base, commands"));
        assert!(taken("net loud").contains("one of the following: debug, verbose"));
    }
}
