//! What one client is subscribed to.

use std::collections::BTreeSet;
use std::sync::Arc;

/// What a subscription names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// A channel.
    Channel,
    /// All channels that match a pattern.
    Pattern,
    /// A shard channel: a name space of its own.
    Shard,
}

/// All kinds; a kind's number is its place.
pub const KINDS: [SubscriptionKind; 3] = [
    SubscriptionKind::Channel,
    SubscriptionKind::Pattern,
    SubscriptionKind::Shard,
];

/// The name of a channel or a pattern.
pub type Name = Arc<[u8]>;

/// What one client is subscribed to.
#[derive(Debug, Default)]
pub struct Subscriptions(pub(super) [BTreeSet<Name>; 3]);

impl Subscriptions {
    /// The names of a kind.
    pub fn names(&self, kind: SubscriptionKind) -> &BTreeSet<Name> {
        &self.0[kind as usize]
    }

    /// What confirmations count: shard channels for themselves, channels and
    /// patterns together.
    pub fn count(&self, kind: SubscriptionKind) -> usize {
        let len = |kind| self.names(kind).len();
        match kind {
            SubscriptionKind::Shard => len(SubscriptionKind::Shard),
            SubscriptionKind::Channel | SubscriptionKind::Pattern => {
                len(SubscriptionKind::Channel) + len(SubscriptionKind::Pattern)
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeSet::is_empty)
    }
}
