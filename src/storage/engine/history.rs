//! Which history this database holds, so that replicas of diverged histories
//! are told apart from those that only lag.
//!
//! A history has an id; a binlog position means something only together with
//! one. A server that begins to write on its own begins a new history: a server with
//! its first write after a start, and a replica that is promoted. It continues the one
//! before, which is kept as an ancestor with the position up to which it was
//! the same. So a restored backup, a copied directory or a machine that lost
//! its last seconds can never be taken for the history that it left.
//!
//! A replica keeps the id of its master. Its own commits are in no binlog; it holds the master's
//! rows alone. A replica of a Redis has a history of its own: see
//! [`crate::storage::engine::upstream`].

use crate::encoding::binlog::Position;
use crate::encoding::system::Ancestor;

/// A history of writes: its id, and those it continues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// 40 hexadecimal digits.
    pub id: String,
    /// What it continues, the latest last.
    pub ancestors: Vec<Ancestor>,
}

impl History {
    /// Whether this history, which goes up to `end`, contains all of the history `id` up to the
    /// position `next`.
    pub fn contains(&self, id: &str, next: Position, end: Position) -> bool {
        if id == self.id {
            return next <= end;
        }
        let mut ancestors = self.ancestors.iter();
        ancestors.any(|a| a.id == id && next <= a.end.min(end))
    }
}

/// Identifies a period during which this server follows a master. Rows that were received in an
/// earlier period are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Following(pub(in crate::storage) u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    #[test]
    fn a_history_contains_first_parts_of_itself_and_of_its_ancestors() {
        let history = History {
            id: id('c'),
            ancestors: vec![
                Ancestor {
                    id: id('a'),
                    end: Position(10),
                },
                Ancestor {
                    id: id('b'),
                    end: Position(20),
                },
            ],
        };
        let has = |digit, next| history.contains(&id(digit), Position(next), Position(30));
        assert!(has('c', 30) && !has('c', 31));
        assert!(has('b', 20) && !has('b', 21));
        assert!(has('a', 10) && !has('a', 11));
        assert!(!has('d', 1));
        assert!(!history.contains(&id('b'), Position(20), Position(19)));
    }
}
