//! Prefetches the data of a connection's next requests while earlier ones run.
//!
//! There are two steps for each key, and the second needs what the first one fetches
//! ([`crate::exec::Executor::prefetch_place`]): so each is made some requests before its result
//! is needed.

use crate::resp::glance;

/// How many requests before its own the first step of a key is made.
const FIRST: usize = 8;
/// How many requests before its own the second step is made.
const SECOND: usize = 4;
/// Longer keys and requests are not prefetched: parsing them is work, which is repeated when an
/// earlier request is tried again.
const KEY_MAX: usize = 256;
const REQUEST_MAX: usize = 16 << 10;

/// The requests in one piece of input. `E` is the result of the first step.
#[derive(Debug, Default)]
pub struct LookAhead<E> {
    /// For the latest parsed requests: the offset, and the result of the first step.
    seen: [(usize, E); FIRST],
    /// How many requests were parsed, had their second step, and have run.
    parsed: usize,
    fetched: usize,
    passed: usize,
    /// The offset of the next request to parse.
    end: usize,
    /// The next request has no key, is too long, or is incomplete.
    is_stopped: bool,
}

impl<E: Copy> LookAhead<E> {
    /// Makes the due steps, before the request in front of offset `next` runs.
    #[inline]
    pub fn advance(
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
            self.is_stopped = false;
        }
        while self.passed < self.parsed && self.seen[self.passed % FIRST].0 < next {
            self.passed += 1;
        }
        self.fetched = self.fetched.max(self.passed);
        while self.fetched < self.parsed.min(self.passed + SECOND) {
            second(self.seen[self.fetched % FIRST].1);
            self.fetched += 1;
        }
        while !self.is_stopped && self.parsed < self.passed + FIRST {
            let found = next_key(&input[self.end..]);
            match found.and_then(|(key, len)| Some((first(key)?, len))) {
                Some((expected, len)) => {
                    self.seen[self.parsed % FIRST] = (self.end, expected);
                    self.parsed += 1;
                    self.end += len;
                }
                None => self.is_stopped = true,
            }
        }
    }
}

/// The second argument of the next request, if it may be a key, and the length of the request.
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

    /// The steps that are made before each of the requests at `starts` runs.
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
            ahead.advance(input.as_bytes(), next, key, |key| {
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
        // The incomplete request does not run.
        let starts = [0, len, 2 * len, third, third + len];
        let none = || (vec![], vec![]);
        let expected = [(vec![1], vec![]), none(), (vec![2], vec![]), none()];
        assert_eq!(steps(&input, &starts)[..4], expected);
    }
}
