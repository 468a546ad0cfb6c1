//! When an IO thread does a sync that its parked ticks wait for (`appendfsync always`, see
//! [`crate::storage::engine::durability`]).

/// Polls after which the sync is done although there is other work. 50 clients that SET, × the
/// rate of Redis: 0.80 after one poll, 0.99 after two or four, 0.96 after twenty.
const POLLS_MAX: u32 = 4;

#[derive(Default)]
pub(super) struct OwedSync {
    /// Polls since the sync is owed. Parked ticks cannot be counted instead: clients that only
    /// read park none, and could delay the sync for ever.
    polls: u32,
}

impl OwedSync {
    /// Called after a poll; returns whether the sync that this thread `owes` is to be done now.
    /// `idle`: there is no other work.
    pub fn is_due(&mut self, owes: bool, idle: bool) -> bool {
        self.polls = if owes { self.polls + 1 } else { 0 };
        let is_due = owes && (idle || self.polls >= POLLS_MAX);
        if is_due {
            self.polls = 0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_when_there_is_nothing_else_to_do() {
        let mut owed = OwedSync::default();
        assert!(owed.is_due(true, true));
        assert!(!owed.is_due(true, false));
        assert!(owed.is_due(true, true));
    }

    /// However long other clients keep the thread busy.
    #[test]
    fn it_is_done_after_a_few_polls() {
        let mut owed = OwedSync::default();
        for _ in 0..3 {
            let due: Vec<bool> = (0..POLLS_MAX).map(|_| owed.is_due(true, false)).collect();
            assert_eq!(due, [false, false, false, true]);
        }
    }

    #[test]
    fn polls_before_it_was_owed_do_not_count() {
        let mut owed = OwedSync::default();
        for _ in 0..10 {
            assert!(!owed.is_due(false, true));
            assert!(!owed.is_due(true, false));
        }
    }
}
