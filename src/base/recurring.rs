//! Recurring errors, which should be logged once.

use std::fmt::Display;

/// The last error that was logged.
#[derive(Debug, Default)]
pub struct Recurring(Option<String>);

impl Recurring {
    /// Whether this error differs from the last one, or is the first.
    pub fn is_news(&mut self, error: &impl Display) -> bool {
        let text = error.to_string();
        let news = self.0.as_ref() != Some(&text);
        self.0 = Some(text);
        news
    }

    /// Notes a success: the next error is news.
    pub fn over(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_news_until_it_comes_back() {
        let mut errors = Recurring::default();
        let news: Vec<bool> = ["a", "a", "b", "b", "a"].map(|e| errors.is_news(&e)).into();
        assert_eq!(news, [true, false, true, false, true]);
        errors.over();
        assert!(errors.is_news(&"a"));
    }
}
