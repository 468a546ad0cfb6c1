//! The subscriptions of one client.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The kind of name in a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// A channel.
    Channel,
    /// All channels that match a pattern.
    Pattern,
    /// A shard channel: a name space of its own.
    Shard,
}

/// All kinds; the number of a kind is its index.
pub(super) const KINDS: [SubscriptionKind; 3] = [
    SubscriptionKind::Channel,
    SubscriptionKind::Pattern,
    SubscriptionKind::Shard,
];

/// The name of a channel or a pattern.
pub type Name = Arc<[u8]>;

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub struct Subscriptions(pub(super) [BTreeSet<Name>; 3]);

impl Subscriptions {
    /// The names of a kind.
    pub fn names(&self, kind: SubscriptionKind) -> &BTreeSet<Name> {
        &self.0[kind as usize]
    }

    /// The count in confirmations: shard channels separately, channels and patterns together.
    pub fn count(&self, kind: SubscriptionKind) -> usize {
        let len = |kind| self.names(kind).len();
        match kind {
            SubscriptionKind::Shard => len(SubscriptionKind::Shard),
            SubscriptionKind::Channel | SubscriptionKind::Pattern => {
                len(SubscriptionKind::Channel) + len(SubscriptionKind::Pattern)
            }
        }
    }

    /// The number of all names.
    pub fn len(&self) -> usize {
        self.0.iter().map(BTreeSet::len).sum()
    }

    /// Whether there are no subscriptions.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeSet::is_empty)
    }
}
