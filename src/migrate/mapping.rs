//! Which DBs and keys are copied, and where they go.

use super::options::{Dbs, Options, Rename};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Prefix of all markers.
pub const MARKER_PREFIX: &[u8] = b"kedis:migration:";

/// Which DBs and keys are copied, and under which names.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// The target of each DB; `None`: all DBs, each to the same number.
    dbs: Option<BTreeMap<u64, u64>>,
    prefix: Vec<u8>,
    rename: Option<Rename>,
}

impl Mapping {
    /// The mapping that the flags describe.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub fn new(options: &Options) -> Result<Mapping, String> {
        let dbs: Option<BTreeMap<u64, u64>> = match (&options.src_db, &options.dst_db) {
            (Dbs::All, Dbs::All) => None,
            (Dbs::All, Dbs::Some(_)) => {
                return Err("--dst_db N needs --src_db N: several DBs can't become one".into());
            }
            (Dbs::Some(from), Dbs::All) => Some(from.iter().map(|db| (*db, *db)).collect()),
            (Dbs::Some(from), Dbs::Some(to)) if from.len() == to.len() => {
                Some(from.iter().copied().zip(to.iter().copied()).collect())
            }
            _ => return Err("--src_db and --dst_db name different numbers of DBs".into()),
        };
        if let (Some(dbs), Dbs::Some(from)) = (&dbs, &options.src_db) {
            let mut targets: Vec<u64> = dbs.values().copied().collect();
            targets.sort_unstable();
            targets.dedup();
            if targets.len() != from.len() {
                return Err("a DB is named twice".into());
            }
        }
        Ok(Mapping {
            dbs,
            prefix: options.prefix.clone().into_bytes(),
            rename: options.rename_prefix.clone(),
        })
    }

    /// The target of a DB; `None` if the DB is not copied.
    pub fn db(&self, db: u64) -> Option<u64> {
        match &self.dbs {
            None => Some(db),
            Some(dbs) => dbs.get(&db).copied(),
        }
    }

    /// The copied DBs and their targets; `None` if all are copied.
    pub fn dbs(&self) -> Option<&BTreeMap<u64, u64>> {
        self.dbs.as_ref()
    }

    /// The DB of the target that holds the marker.
    pub fn home(&self) -> u64 {
        let targets = self.dbs.iter().flat_map(|dbs| dbs.values().copied());
        targets.min().unwrap_or(0)
    }

    /// The key's name at the target; `None` if it is not copied.
    pub fn key<'k>(&self, key: &'k [u8]) -> Option<Cow<'k, [u8]>> {
        if !key.starts_with(&self.prefix) || key.starts_with(MARKER_PREFIX) {
            return None;
        }
        if let Some(rename) = &self.rename
            && let Some(rest) = key.strip_prefix(rename.old.as_slice())
        {
            return Some([rename.new.as_slice(), rest].concat().into());
        }
        Some(key.into())
    }

    /// Whether a key keeps its name although `--rename-prefix` may give another key the
    /// same.
    pub fn is_ambiguous(&self, key: &[u8]) -> bool {
        self.rename.as_ref().is_some_and(|rename| {
            !key.starts_with(&rename.old)
                && key.starts_with(&rename.new)
                && self.key(key).is_some()
                && [&rename.old, key.get(rename.new.len()..).unwrap_or_default()]
                    .concat()
                    .starts_with(&self.prefix)
        })
    }

    /// The key at the source with this name at the target; `None` if no copied key has
    /// it.
    pub fn source_key(&self, name: &[u8]) -> Option<Vec<u8>> {
        let renamed = self.rename.as_ref().and_then(|rename| {
            let rest = name.strip_prefix(rename.new.as_slice())?;
            Some([rename.old.as_slice(), rest].concat())
        });
        let same = Some(name.to_vec());
        let mut candidates = renamed.into_iter().chain(same);
        candidates.find(|key| self.key(key).is_some_and(|to| to == name))
    }

    /// Whether all keys of a copied DB are copied, under their own names.
    pub fn is_whole(&self) -> bool {
        self.prefix.is_empty() && self.rename.is_none()
    }

    /// Whether all keys of a copied DB are copied.
    pub fn has_all_keys(&self) -> bool {
        self.prefix.is_empty()
    }

    /// Prefix of the copied keys at the source.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Prefixes of which each copied key has one at the target.
    pub fn target_prefixes(&self) -> Vec<Vec<u8>> {
        let Some(Rename { old, new }) = &self.rename else {
            return vec![self.prefix.clone()];
        };
        // Keys with the prefix but without OLD keep their names.
        match self.prefix.strip_prefix(old.as_slice()) {
            Some(rest) => vec![[new.as_slice(), rest].concat()],
            None if old.starts_with(&self.prefix) => vec![self.prefix.clone(), new.clone()],
            None => vec![self.prefix.clone()],
        }
    }

    /// The whole mapping in one line, for comparison.
    pub fn describe(&self) -> String {
        let dbs = match &self.dbs {
            None => "all".to_owned(),
            Some(dbs) => {
                let pairs: Vec<String> = dbs
                    .iter()
                    .map(|(from, to)| format!("{from}:{to}"))
                    .collect();
                pairs.join(",")
            }
        };
        let (old, new) = match &self.rename {
            Some(Rename { old, new }) => (old.as_slice(), new.as_slice()),
            None => Default::default(),
        };
        format!(
            "dbs={dbs} prefix={} rename={}={}",
            self.prefix.escape_ascii(),
            old.escape_ascii(),
            new.escape_ascii()
        )
    }
}

/// The MATCH pattern for keys with this prefix.
pub fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for byte in prefix {
        if b"*?[]\\^-".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    pattern
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    pub fn mapping(flags: &[&str]) -> Result<Mapping, String> {
        let flags = ["tool", "--dst_addr", "h:1"].iter().chain(flags);
        Mapping::new(&Options::try_parse_from(flags).map_err(|e| e.to_string())?)
    }

    #[test]
    fn dbs_are_kept_apart() {
        let all = mapping(&[]).expect("flags");
        assert_eq!((all.db(7), all.home()), (Some(7), 0));
        let one = mapping(&["--src_db", "3"]).expect("flags");
        assert_eq!((one.db(3), one.db(0), one.home()), (Some(3), None, 3));
        let some = mapping(&["--src_db", "3,4", "--dst_db", "9,8"]).expect("flags");
        assert_eq!((some.db(3), some.db(4), some.home()), (Some(9), Some(8), 8));
        for wrong in [
            &["--dst_db", "1"][..],
            &["--src_db", "1,2", "--dst_db", "1"],
            &["--src_db", "1,2", "--dst_db", "1,1"],
            &["--src_db", "1,1"],
        ] {
            assert!(mapping(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_prefix_is_a_prefix() {
        let part = mapping(&["--prefix", "a:"]).expect("flags");
        assert_eq!(part.key(b"a:1").as_deref(), Some(&b"a:1"[..]));
        assert_eq!(part.key(b"xa:1"), None);
        let renamed = mapping(&["--prefix", "a", "--rename-prefix", "a:=b:"]).expect("flags");
        assert_eq!(renamed.key(b"a:1").as_deref(), Some(&b"b:1"[..]));
        assert_eq!(renamed.key(b"az").as_deref(), Some(&b"az"[..]));
        assert_eq!(renamed.target_prefixes(), [b"a".to_vec(), b"b:".to_vec()]);
        assert!(!renamed.is_ambiguous(b"b:1") && !renamed.is_ambiguous(b"a:1"));
        let open = mapping(&["--rename-prefix", "a:=b:"]).expect("flags");
        assert!(open.is_ambiguous(b"b:1") && !open.is_ambiguous(b"a:1"));
        let narrow = mapping(&["--prefix", "a:x", "--rename-prefix", "a:=b:"]).expect("flags");
        assert_eq!(narrow.target_prefixes(), [b"b:x".to_vec()]);
    }

    #[test]
    fn patterns_mean_themselves() {
        let key = b"a*[b]?\\^-c";
        assert!(crate::base::glob::matches(
            &pattern(key),
            b"a*[b]?\\^-cd",
            false
        ));
        assert!(!crate::base::glob::matches(&pattern(key), b"axb", false));
    }
}
