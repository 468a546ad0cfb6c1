//! What the next requests of a connection need is fetched from memory while those
//! before them run.
//!
//! There are two steps for each key, and the second needs what the first one fetches
//! ([`crate::exec::Executor::prefetch_place`]): so each is made some requests before its result
//! is needed.

use crate::resp::glance;

/// So many requests before its key is needed the first step is made.
const FIRST: usize = 8;
/// So many before, the second.
const SECOND: usize = 4;
/// Longer keys and longer requests are not looked at: that would be work, and be done
/// again where a request before them is tried again.
const KEY_MAX: usize = 256;
const REQUEST_MAX: usize = 16 << 10;

/// The requests in one piece of input. `E` is what the first step makes of a key. See
/// the module.
#[derive(Debug, Default)]
pub struct LookAhead<E> {
    /// Where each one begins that was looked at last, and what the first step has made.
    seen: [(usize, E); FIRST],
    /// How many were looked at, had their second step, and are not ahead any more.
    looked_at: usize,
    fetched: usize,
    passed: usize,
    /// Where the next one to look at begins.
    end: usize,
    /// There is no key in that one, or it is too long or not here as a whole.
    is_odd: bool,
}

impl<E: Copy> LookAhead<E> {
    /// The request before `next` is about to run: makes steps for some that come then.
    #[inline]
    pub fn go_on(
        &mut self,
        input: &[u8],
        next: usize,
        mut first: impl FnMut(&[u8]) -> Option<E>,
        mut second: impl FnMut(E),
    ) {
        if next == input.len() {
            return;
        }
        if self.end <= next {
            self.end = next;
            self.is_odd = false;
        }
        while self.passed < self.looked_at && self.seen[self.passed % FIRST].0 < next {
            self.passed += 1;
        }
        self.fetched = self.fetched.max(self.passed);
        while self.fetched < self.looked_at.min(self.passed + SECOND) {
            second(self.seen[self.fetched % FIRST].1);
            self.fetched += 1;
        }
        while !self.is_odd && self.looked_at < self.passed + FIRST {
            let found = next_key(&input[self.end..]);
            match found.and_then(|(key, len)| Some((first(key)?, len))) {
                Some((expected, len)) => {
                    self.seen[self.looked_at % FIRST] = (self.end, expected);
                    self.looked_at += 1;
                    self.end += len;
                }
                None => self.is_odd = true,
            }
        }
    }
}

/// The second argument of the next request, if it may be a key, and the length of
/// the request.
pub fn next_key(input: &[u8]) -> Option<(&[u8], usize)> {
    let input = &input[..input.len().min(REQUEST_MAX)];
    glance(input).filter(|(key, _)| key.len() <= KEY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn get(key: usize) -> String {
        format!("*2\r\n$3\r\nGET\r\n$2\r\n{key:02}\r\n")
    }

    /// Before the request that begins at each of `starts` runs, what steps are made.
    fn steps(input: &str, starts: &[usize]) -> Vec<(Vec<u32>, Vec<u32>)> {
        let mut ahead = LookAhead::default();
        let mut steps = Vec::new();
        for at in 0..starts.len() {
            let (first, second) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
            let next = starts.get(at + 1).copied().unwrap_or(input.len());
            let key = |key: &[u8]| {
                let key = std::str::from_utf8(key).ok()?.parse().ok()?;
                first.borrow_mut().push(key);
                Some(key)
            };
            ahead.go_on(input.as_bytes(), next, key, |key| {
                second.borrow_mut().push(key);
            });
            steps.push((first.into_inner(), second.into_inner()));
        }
        steps
    }

    #[test]
    fn each_key_has_its_steps_some_requests_before() {
        let input: String = (0..20).map(get).collect();
        let starts: Vec<usize> = (0..20).map(|i| i * get(0).len()).collect();
        let steps = steps(&input, &starts);
        assert_eq!(steps[0], ((1..=8).collect(), vec![]));
        assert_eq!(steps[1], (vec![9], vec![2, 3, 4, 5]));
        assert_eq!(steps[2], (vec![10], vec![6]));
        let (first, second): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
        assert_eq!(first.concat(), (1..20).collect::<Vec<_>>());
        assert_eq!(second.concat(), (2..20).collect::<Vec<_>>());
    }

    #[test]
    fn requests_without_a_key_and_parts_of_one_are_passed() {
        let (ping, part) = ("*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nGET\r\n$2\r\n9");
        let input = format!("{}{}{ping}{}{part}", get(0), get(1), get(2));
        let len = get(0).len();
        let third = 2 * len + ping.len();
        // The part does not run.
        let starts = [0, len, 2 * len, third, third + len];
        let none = || (vec![], vec![]);
        let expected = [(vec![1], vec![]), none(), (vec![2], vec![]), none()];
        assert_eq!(steps(&input, &starts)[..4], expected);
    }
}
