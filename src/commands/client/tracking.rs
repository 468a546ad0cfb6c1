//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO: see [`crate::state::tracking`].

use super::super::args::{self, Options};
use super::super::{CmdResult, Error, SessionCtx};
use super::arg;
use crate::state::ClientId;
use crate::state::clients::ClientFlags;
use crate::state::session::TrackingOptions;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;

const SWITCH_OPT: Error = Error::text(
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
);

/// The options of CLIENT TRACKING.
#[derive(Debug, Default)]
struct Asked<'a> {
    redirect: u64,
    bcast: bool,
    noloop: bool,
    optin: bool,
    optout: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Asked<'a> {
    fn parse(ctx: &SessionCtx<'_>, args: &'a [&'a [u8]]) -> Result<Asked<'a>, Error> {
        let mut asked = Asked::default();
        let mut options = Options::new(args, 3);
        while !options.is_empty() {
            let has_value = options.left() > 1;
            if has_value && options.word("REDIRECT") {
                if asked.redirect != 0 {
                    return Err(Error::text(
                        "ERR A client can only redirect to a single other client",
                    ));
                }
                let id = u64::try_from(options.int()?).unwrap_or(0);
                if ctx.server.clients.get(ClientId(id)).is_none() {
                    return Err(Error::text(
                        "ERR The client ID you want redirect to does not exist",
                    ));
                }
                asked.redirect = id;
            } else if options.word("BCAST") {
                asked.bcast = true;
            } else if options.word("OPTIN") {
                asked.optin = true;
            } else if options.word("OPTOUT") {
                asked.optout = true;
            } else if options.word("NOLOOP") {
                asked.noloop = true;
            } else if has_value && options.word("PREFIX") {
                asked.prefixes.push(options.value()?);
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(asked)
    }

    /// Checks that the options are compatible with each other and with the client's
    /// current tracking mode.
    fn check(&self, ctx: &SessionCtx<'_>) -> CmdResult {
        let session = &*ctx.session;
        if !self.bcast && !self.prefixes.is_empty() {
            return Err(Error::text(
                "ERR PREFIX option requires BCAST mode to be enabled",
            ));
        }
        let flags = session.info.flags();
        let was_bcast = flags.contains(ClientFlags::TRACKING_BCAST);
        if session.tracking.is_some() && was_bcast != self.bcast {
            return Err(Error::text(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
            ));
        }
        if self.bcast && (self.optin || self.optout) {
            return Err(Error::text(
                "ERR OPTIN and OPTOUT are not compatible with BCAST",
            ));
        }
        if self.optin && self.optout {
            return Err(Error::text(
                "ERR You can't specify both OPTIN mode and OPTOUT mode",
            ));
        }
        if let Some(choice) = &session.tracking
            && (self.optin && choice.optout || self.optout && choice.optin)
        {
            return Err(SWITCH_OPT);
        }
        self.check_prefixes(ctx)
    }

    fn check_prefixes(&self, ctx: &SessionCtx<'_>) -> CmdResult {
        let refuse = |new: &[u8], what: &str, other: &[u8]| {
            let text = [
                b"ERR Prefix '",
                new,
                b"' overlaps with ",
                what.as_bytes(),
                b" prefix '",
                other,
                b"'. Prefixes for a single client must not overlap.",
            ];
            Err(Error::Bytes(text.concat()))
        };
        let overlapping = first_overlapping(&self.prefixes);
        for (i, new) in self.prefixes.iter().enumerate() {
            if let Some(choice) = &ctx.session.tracking
                && let Some(old) = overlapping_in(&choice.prefixes, new)
            {
                return refuse(new, "an existing", old);
            }
            if overlapping == Some(i)
                && let Some(other) = self.prefixes[i + 1..].iter().find(|o| overlap(new, o))
            {
                return refuse(new, "another provided", other);
            }
        }
        Ok(())
    }
}

fn overlap(a: &[u8], b: &[u8]) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// A prefix of `all` that overlaps with `new`. No two prefixes of `all` overlap.
fn overlapping_in<'a>(all: &'a BTreeSet<Box<[u8]>>, new: &[u8]) -> Option<&'a [u8]> {
    // If a prefix in `all` is a prefix of `new`, no other element sorts between the two.
    let (up_to, from) = (Bound::Included(new), Bound::Included(new));
    let before = all.range::<[u8], _>((Bound::Unbounded, up_to)).next_back();
    let after = all.range::<[u8], _>((from, Bound::Unbounded)).next();
    let mut near = before.into_iter().chain(after).map(|prefix| &**prefix);
    near.find(|prefix| overlap(prefix, new))
}

/// The index of the first prefix that overlaps with any other.
fn first_overlapping(prefixes: &[&[u8]]) -> Option<usize> {
    let mut sorted: Vec<(&[u8], usize)> = prefixes.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    // The stack of smaller elements that are prefixes of the current one.
    let mut shorter: Vec<(&[u8], usize)> = Vec::new();
    let mut first = None;
    for (prefix, index) in sorted {
        while shorter
            .pop_if(|(other, _)| !prefix.starts_with(other))
            .is_some()
        {}
        if let Some((_, other)) = shorter.last() {
            let both = index.min(*other);
            first = Some(first.map_or(both, |first: usize| first.min(both)));
        }
        shorter.push((prefix, index));
    }
    first
}

pub(super) fn tracking(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let asked = Asked::parse(ctx, args)?;
    if args::is(arg(args, 2), "ON") {
        asked.check(ctx)?;
        let mut flags = ClientFlags::TRACKING;
        flags.set(ClientFlags::TRACKING_BCAST, asked.bcast);
        flags.set(ClientFlags::TRACKING_NOLOOP, asked.noloop);
        let choice = TrackingOptions {
            optin: asked.optin,
            optout: asked.optout,
            caching: false,
            prefixes: asked.prefixes.iter().map(|p| Box::from(*p)).collect(),
        };
        let tracking = &ctx.server.tracking;
        tracking.start(ctx.session, flags, asked.redirect, choice);
    } else if args::is(arg(args, 2), "OFF") {
        let tracking = &ctx.server.tracking;
        tracking.tell_reader(ctx.server, &ctx.session.info, ctx.changes, ctx.outbox);
        tracking.stop(ctx.session);
    } else {
        return Err(Error::Syntax);
    }
    ctx.reply.ok();
    Ok(())
}

pub(super) fn caching(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some(choice) = &mut ctx.session.tracking else {
        return Err(Error::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    let (fits, refusal) = if args::is(arg(args, 2), "YES") {
        (
            choice.optin,
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        )
    } else if args::is(arg(args, 2), "NO") {
        (
            choice.optout,
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        )
    } else {
        return Err(Error::Syntax);
    };
    if !fits {
        return Err(Error::text(refusal));
    }
    choice.caching = true;
    ctx.reply.ok();
    Ok(())
}

pub(super) fn getredir(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.reply.int(redirect(ctx));
    Ok(())
}

/// The id of the client that gets the invalidations; 0: this client; −1: tracking is off.
fn redirect(ctx: &SessionCtx<'_>) -> i64 {
    match ctx.session.tracking {
        Some(_) => ctx.session.info.redirect.load(Ordering::Relaxed) as i64,
        None => -1,
    }
}

pub(super) fn trackinginfo(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let redirect = redirect(ctx);
    let flags = ctx.session.info.flags();
    let mut words = Vec::new();
    let mut prefixes = Vec::new();
    if let Some(choice) = &ctx.session.tracking {
        words.push("on");
        for (is, word) in [
            (flags.contains(ClientFlags::TRACKING_BCAST), "bcast"),
            (choice.optin, "optin"),
            (choice.optin && choice.caching, "caching-yes"),
            (choice.optout, "optout"),
            (choice.optout && choice.caching, "caching-no"),
            (flags.contains(ClientFlags::TRACKING_NOLOOP), "noloop"),
            (
                flags.contains(ClientFlags::TRACKING_BROKEN),
                "broken_redirect",
            ),
        ] {
            if is {
                words.push(word);
            }
        }
        prefixes.extend(choice.prefixes.iter());
    } else {
        words.push("off");
    }
    let reply = &mut *ctx.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(words.len());
    words.iter().for_each(|word| reply.bulk(word.as_bytes()));
    reply.bulk(b"redirect");
    reply.int(redirect);
    reply.bulk(b"prefixes");
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_prefixes_are_those_that_pairs_say() {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..500 {
            let words: Vec<Vec<u8>> = (0..rng.usize(..8))
                .map(|_| (0..rng.usize(..5)).map(|_| rng.u8(b'a'..=b'c')).collect())
                .collect();
            let prefixes: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let expected = (0..prefixes.len()).find(|i| {
                let others = prefixes.iter().skip(i + 1);
                others.into_iter().any(|other| overlap(prefixes[*i], other))
            });
            assert_eq!(first_overlapping(&prefixes), expected, "{prefixes:?}");
            let mut all: BTreeSet<Box<[u8]>> = BTreeSet::new();
            for prefix in &prefixes {
                let expected = all.iter().find(|old| overlap(old, prefix));
                let found = overlapping_in(&all, prefix);
                assert_eq!(found, expected.map(|old| &**old), "{prefixes:?}");
                if expected.is_none() {
                    all.insert((*prefix).into());
                }
            }
        }
    }
}
