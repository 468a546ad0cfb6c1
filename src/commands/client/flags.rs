//! The letters by which CLIENT LIST shows the flags of a client.

use crate::state::ClientInfo;
use crate::state::clients::ClientFlags;

/// Letters of the flags before `d`, which is no flag, in the order of Redis.
const EARLY_LETTERS: [(ClientFlags, char); 9] = [
    (ClientFlags::REPLICA, 'S'),
    (ClientFlags::MASTER, 'M'),
    (ClientFlags::MONITOR, 'O'),
    (ClientFlags::PUBSUB, 'P'),
    (ClientFlags::MULTI, 'x'),
    (ClientFlags::BLOCKED, 'b'),
    (ClientFlags::TRACKING, 't'),
    (ClientFlags::TRACKING_BROKEN, 'R'),
    (ClientFlags::TRACKING_BCAST, 'B'),
];

/// Letters of the flags after `d`.
const LATE_LETTERS: [(ClientFlags, char); 6] = [
    (ClientFlags::CLOSE_AFTER_REPLY, 'c'),
    (ClientFlags::UNIX_SOCKET, 'U'),
    (ClientFlags::READS_REPLICA, 'r'),
    (ClientFlags::NO_EVICT, 'e'),
    (ClientFlags::NO_TOUCH, 'T'),
    (ClientFlags::IMPORT_SOURCE, 'I'),
];

/// The flags of a client, as its line shows them.
pub(super) fn flag_letters(client: &ClientInfo) -> String {
    let flags = client.flags();
    let letters = |all: &[(ClientFlags, char)]| -> String {
        let set = all.iter().filter(|(flag, _)| flags.contains(*flag));
        set.map(|(_, letter)| letter).collect()
    };
    let mut text = letters(&EARLY_LETTERS);
    if client.exec_fails() {
        text.push('d');
    }
    text.push_str(&letters(&LATE_LETTERS));
    if text.is_empty() {
        text.push('N');
    }
    text
}
