//! The parser of paths: JSONPath as RedisJSON has it, and its legacy paths.
//!
//! A path that is `$` or begins with `$.` or `$[` is JSONPath and may select any number of
//! values. Every other path is a legacy path: `.` is the root, `.a` and `a` are members, and the
//! same selectors may follow; commands take its first value. What is calculated (`$.a + 1`,
//! `length($.a)`, `$.a.length()`, `$.a~`) is a projection, which commands that read allow.
//!
//! The parser calls itself for nested filters; [`DEPTH_MAX`] bounds that.

use super::ast::{Expr, Function, Operator, Path, Pattern, Segment, Select};
use super::read::Val;
use super::value::Value;
use crate::encoding::json::Item;

/// Most filters and parentheses inside each other.
const DEPTH_MAX: usize = 64;

/// Why a path cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPath {
    /// Where, from 1.
    pub at: usize,
    /// What was expected.
    pub expected: &'static str,
}

type Parsed<T> = Result<T, BadPath>;

impl Path {
    /// Whether a text is a legacy path.
    pub fn is_legacy_text(text: &[u8]) -> bool {
        !is_json_path(text)
    }

    /// Parses a path.
    ///
    /// # Errors
    /// Where it is wrong.
    pub fn parse(text: &[u8]) -> Parsed<Path> {
        let is_legacy = Path::is_legacy_text(text);
        let fixed = match text {
            _ if !is_legacy => text.to_vec(),
            b"." => b"$".to_vec(),
            [b'.', ..] => [b"$", text].concat(),
            _ => [b"$.", text].concat(),
        };
        let mut parser = Parser {
            text: &fixed,
            at: 0,
            depth: 0,
        };
        let (segments, projection) = match parser.sum()? {
            Expr::Root(segments) => (segments, None),
            projection => (Vec::new(), Some(projection)),
        };
        match parser.skip() {
            None => Ok(Path {
                segments,
                is_legacy,
                projection,
            }),
            Some(_) => Err(parser.expected("'.', '[', an operator or the end")),
        }
    }
}

/// Text from its first byte that is no space.
fn without_spaces(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| *byte != b' ');
    text.get(start.unwrap_or(text.len())..).unwrap_or_default()
}

/// Whether a path is JSONPath: it begins with `$`, a parenthesis or a function, perhaps behind a
/// sign.
fn is_json_path(text: &[u8]) -> bool {
    let begins = |text: &[u8]| {
        let is_root = matches!(text, [b'$'] | [b'$', b'.' | b'[' | b'~', ..]);
        is_root || text.first() == Some(&b'(')
    };
    match text {
        [b'-' | b'+', operand @ ..] => begins(without_spaces(operand)),
        [first, ..] if first.is_ascii_alphabetic() || *first == b'_' => {
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let len = text.iter().position(|byte| !is_name(byte));
            let behind = text.get(len.unwrap_or(text.len())..).unwrap_or_default();
            without_spaces(behind).first() == Some(&b'(')
        }
        _ => begins(text),
    }
}

struct Parser<'p> {
    text: &'p [u8],
    at: usize,
    depth: usize,
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_`+#%$^/:".contains(&byte)
}

/// The words that are operators in filters.
const WORDS: &[(&[u8], Operator)] = &[
    (b"in", Operator::In),
    (b"nin", Operator::NotIn),
    (b"subsetof", Operator::SubsetOf),
    (b"anyof", Operator::AnyOf),
    (b"noneof", Operator::NoneOf),
    (b"sizeof", Operator::Size),
    (b"size", Operator::Size),
    (b"empty", Operator::Empty),
];

const SIGNS: &[(&[u8], Operator)] = &[
    (b">=", Operator::GreaterOrEqual),
    (b">", Operator::Greater),
    (b"<=", Operator::LessOrEqual),
    (b"<", Operator::Less),
    (b"==", Operator::Equal),
    (b"!=", Operator::NotEqual),
    (b"=~", Operator::Matches),
];

impl<'p> Parser<'p> {
    fn expected(&self, expected: &'static str) -> BadPath {
        let at = self.at + 1;
        BadPath { at, expected }
    }

    fn rest(&self) -> &'p [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    /// The next byte that is no space.
    fn skip(&mut self) -> Option<u8> {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
        self.peek()
    }

    fn takes(&mut self, token: &[u8]) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn demand(&mut self, token: &[u8], what: &'static str) -> Parsed<()> {
        match self.takes(token) {
            true => Ok(()),
            false => Err(self.expected(what)),
        }
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= DEPTH_MAX {
            return Err(self.expected("fewer nested filters"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Segments as long as there are any. A name before `(` is a function.
    fn segments(&mut self) -> Parsed<Vec<Segment>> {
        let mut segments = Vec::new();
        loop {
            let before = self.at;
            let segment = match self.skip() {
                Some(b'[') => self.bracket(false)?,
                Some(b'.') if self.rest().starts_with(b"..") => {
                    self.at += 2;
                    match self.skip() {
                        Some(b'[') => self.bracket(true)?,
                        _ => self.name(true)?,
                    }
                }
                Some(b'.') => {
                    self.at += 1;
                    match self.skip() {
                        Some(b'[') => self.bracket(false)?,
                        _ if self.is_call() => {
                            self.at = before;
                            return Ok(segments);
                        }
                        _ => self.name(false)?,
                    }
                }
                Some(byte) if segments.is_empty() && self.begins_name(byte) => self.name(false)?,
                _ => {
                    self.at = before;
                    return Ok(segments);
                }
            };
            segments.push(segment);
        }
    }

    /// Whether a first name without a dot stands here, and no operator.
    fn begins_name(&self, byte: u8) -> bool {
        self.word().is_none() && (byte == b'*' || is_literal(byte))
    }

    fn word(&self) -> Option<(usize, Operator)> {
        let end = |at: usize| {
            let after = self.rest().get(at);
            !after.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        let mut words = WORDS.iter();
        let found = words.find(|(word, _)| self.rest().starts_with(word) && end(word.len()));
        found.map(|(word, operator)| (word.len(), *operator))
    }

    fn is_call(&self) -> bool {
        let name = self.function_name();
        let behind = self.rest().get(name.len()..).unwrap_or_default();
        !name.is_empty() && without_spaces(behind).first() == Some(&b'(')
    }

    fn function_name(&self) -> &'p [u8] {
        let rest = self.rest();
        if !rest.first().is_some_and(u8::is_ascii_alphabetic) {
            return b"";
        }
        let ends = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
        let len = rest.iter().position(ends).unwrap_or(rest.len());
        rest.get(..len).unwrap_or_default()
    }

    fn name(&mut self, is_deep: bool) -> Parsed<Segment> {
        if self.takes(b"*") {
            let select = Select::All;
            return Ok(Segment { is_deep, select });
        }
        let rest = self.rest();
        let len = rest.iter().position(|byte| !is_literal(*byte));
        let name = rest.get(..len.unwrap_or(rest.len())).unwrap_or_default();
        if name.is_empty() {
            return Err(self.expected("<string> or '*'"));
        }
        self.at += name.len();
        let select = Select::Keys(vec![name.into()]);
        Ok(Segment { is_deep, select })
    }

    fn bracket(&mut self, is_deep: bool) -> Parsed<Segment> {
        self.demand(b"[", "'['")?;
        let select = match self.skip() {
            Some(b'*') => {
                self.at += 1;
                Select::All
            }
            Some(b'?') => {
                self.at += 1;
                Select::Filter(self.deeper(Parser::filter)?)
            }
            Some(b'\'' | b'"') => {
                let mut keys = vec![self.string()?.into()];
                while self.takes(b",") {
                    keys.push(self.string()?.into());
                }
                Select::Keys(keys)
            }
            _ => self.indices()?,
        };
        self.demand(b"]", "']'")?;
        Ok(Segment { is_deep, select })
    }

    fn indices(&mut self) -> Parsed<Select> {
        let first = match self.skip() {
            Some(b':') => None,
            _ => Some(self.number()?),
        };
        if !self.takes(b":") {
            let mut indices: Vec<i64> = first.into_iter().collect();
            while self.takes(b",") {
                self.skip();
                indices.push(self.number()?);
            }
            return Ok(Select::Indices(indices));
        }
        let end = match self.skip() {
            Some(b':' | b']') => None,
            _ => Some(self.number()?),
        };
        let step = match self.takes(b":") && self.skip() != Some(b']') {
            true => u64::try_from(self.number()?).unwrap_or_default(),
            false => 1,
        };
        match step {
            0 => Err(self.expected("a step above 0")),
            step => Ok(Select::Range(first, end, step)),
        }
    }

    /// An integer, or the nearest of 64 bits.
    fn number(&mut self) -> Parsed<i64> {
        let rest = self.rest();
        let (is_negative, digits) = match rest {
            [b'-', digits @ ..] => (true, digits),
            digits => (false, digits),
        };
        let len = digits.iter().position(|byte| !byte.is_ascii_digit());
        let digits = digits
            .get(..len.unwrap_or(digits.len()))
            .unwrap_or_default();
        if digits.is_empty() || (digits.len() > 1 && digits.starts_with(b"0")) {
            return Err(self.expected("an index, a string, '*' or a filter"));
        }
        self.at += digits.len() + usize::from(is_negative);
        let bound = if is_negative { i64::MIN } else { i64::MAX };
        Ok(digits
            .iter()
            .try_fold(0i64, |number, digit| {
                let digit = i64::from(digit - b'0');
                let digit = if is_negative { -digit } else { digit };
                number.checked_mul(10)?.checked_add(digit)
            })
            .unwrap_or(bound))
    }

    fn string(&mut self) -> Parsed<Vec<u8>> {
        let quote = match self.skip() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.expected("a string in quotes")),
        };
        self.at += 1;
        let mut string = Vec::new();
        loop {
            match (self.peek(), self.rest().get(1).copied()) {
                (Some(b'\\'), Some(next)) if next == quote || next == b'\\' => {
                    string.push(next);
                    self.at += 2;
                }
                (None | Some(b'\\'), _) => return Err(self.expected("the end of a string")),
                (Some(byte), _) if byte == quote => {
                    self.at += 1;
                    return Ok(string);
                }
                (Some(byte), _) => {
                    string.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    // Filters.

    fn filter(&mut self) -> Parsed<Expr> {
        let mut any = vec![self.all_of()?];
        while self.takes(b"||") {
            any.push(self.all_of()?);
        }
        Ok(match any.len() {
            1 => any.remove(0),
            _ => Expr::Any(any),
        })
    }

    fn all_of(&mut self) -> Parsed<Expr> {
        let mut all = vec![self.test()?];
        while self.takes(b"&&") {
            all.push(self.test()?);
        }
        Ok(match all.len() {
            1 => all.remove(0),
            _ => Expr::All(all),
        })
    }

    fn test(&mut self) -> Parsed<Expr> {
        if self.skip() == Some(b'!') && !self.rest().starts_with(b"!=") {
            self.at += 1;
            let inner = self.deeper(Parser::test)?;
            return Ok(Expr::Not(Box::new(inner)));
        }
        if !self.begins_filter() {
            return self.comparison();
        }
        self.at += 1;
        let inner = self.deeper(Parser::filter)?;
        self.demand(b")", "')'")?;
        Ok(inner)
    }

    /// Whether a parenthesis stands here that is a filter, and not the first term of a
    /// comparison: what follows its end tells.
    fn begins_filter(&self) -> bool {
        let (mut depth, mut quote, mut rest) = (0usize, None, self.rest());
        loop {
            rest = match (rest, quote) {
                ([b'\\', _, rest @ ..], Some(_)) => rest,
                ([byte, rest @ ..], Some(open)) => {
                    quote = (*byte != open).then_some(open);
                    rest
                }
                ([byte @ (b'\'' | b'"'), rest @ ..], None) => {
                    quote = Some(*byte);
                    rest
                }
                ([b'(', rest @ ..], None) => {
                    depth += 1;
                    rest
                }
                ([b')', rest @ ..], None) if depth == 1 => {
                    let next = without_spaces(rest).first();
                    return matches!(next, Some(b']' | b')' | b'&' | b'|'));
                }
                ([b')', rest @ ..], None) => {
                    depth = depth.saturating_sub(1);
                    rest
                }
                ([_, rest @ ..], None) if depth > 0 => rest,
                _ => return false,
            };
        }
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let left = self.sum()?;
        self.skip();
        let mut signs = SIGNS.iter();
        let sign = signs.find(|(sign, _)| self.rest().starts_with(sign));
        let sign = sign.map(|(sign, operator)| (sign.len(), *operator));
        let Some((len, operator)) = sign.or_else(|| self.word()) else {
            return match self.skip() {
                Some(b']' | b')' | b'&' | b'|') => Ok(Expr::Exists(Box::new(left))),
                _ => Err(self.expected("an operator")),
            };
        };
        self.at += len;
        let right = self.sum()?;
        let pattern = match operator {
            Operator::Matches => Pattern::of(&right),
            _ => None,
        };
        Ok(Expr::Compare(Box::new((left, right)), operator, pattern))
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.deeper(|parser| {
            let mut left = parser.product()?;
            while let Some(sign @ (b'+' | b'-')) = parser.skip() {
                parser.at += 1;
                let right = parser.product()?;
                left = Expr::Arithmetic(Box::new((left, right)), sign);
            }
            Ok(left)
        })
    }

    fn product(&mut self) -> Parsed<Expr> {
        let mut left = self.factor()?;
        while let Some(sign @ (b'*' | b'/' | b'%')) = self.skip() {
            self.at += 1;
            let right = self.factor()?;
            left = Expr::Arithmetic(Box::new((left, right)), sign);
        }
        Ok(left)
    }

    fn factor(&mut self) -> Parsed<Expr> {
        match self.skip() {
            Some(sign @ (b'-' | b'+')) => {
                self.at += 1;
                let operand = self.operand()?;
                let number = match (&operand, sign) {
                    (Expr::Literal(value), b'-') => match value.item() {
                        Ok(Item::Int(number)) => number.checked_neg(),
                        _ => None,
                    },
                    _ => None,
                };
                Ok(match number {
                    Some(number) => Expr::Literal(Val::scalar(&Value::Int(number))),
                    None => Expr::Sign(Box::new(operand), sign),
                })
            }
            _ => self.operand(),
        }
    }

    fn operand(&mut self) -> Parsed<Expr> {
        if self.skip() == Some(b'(') {
            self.at += 1;
            let inner = self.sum()?;
            self.demand(b")", "')'")?;
            return Ok(inner);
        }
        let mut term = self.term()?;
        if self.takes(b"~") {
            return Ok(Expr::Call(Function::Keys, vec![term], None));
        }
        // Functions behind a term, which is their first argument.
        loop {
            let before = self.at;
            let is_method = self.takes(b".") && {
                self.skip();
                self.is_call()
            };
            if !is_method {
                self.at = before;
                return Ok(term);
            }
            term = self.call(Some(term))?;
        }
    }

    /// A function and its arguments. Those in front of which it stands are terms.
    fn call(&mut self, first: Option<Expr>) -> Parsed<Expr> {
        let name = self.function_name();
        let function = Function::named(name);
        self.at += name.len();
        self.demand(b"(", "'('")?;
        let is_method = first.is_some();
        let mut arguments: Vec<Expr> = first.into_iter().collect();
        if !self.takes(b")") {
            loop {
                arguments.push(match is_method {
                    true => self.sum()?,
                    false => self.deeper(Parser::term)?,
                });
                if !self.takes(b",") {
                    break;
                }
            }
            self.demand(b")", "')'")?;
        }
        let pattern = match function {
            Function::Match | Function::Search => arguments.get(1).and_then(Pattern::of),
            _ => None,
        };
        Ok(Expr::Call(function, arguments, pattern))
    }

    fn term(&mut self) -> Parsed<Expr> {
        match self.skip() {
            Some(b'@') => {
                self.at += 1;
                Ok(Expr::Current(self.segments()?))
            }
            Some(b'$') => {
                self.at += 1;
                Ok(Expr::Root(self.segments()?))
            }
            Some(byte) if byte.is_ascii_alphabetic() && self.is_call() => self.call(None),
            _ => Ok(Expr::Literal(Val::scalar(&self.literal()?))),
        }
    }

    fn literal(&mut self) -> Parsed<Value> {
        for (word, value) in [
            (&b"true"[..], Value::Bool(true)),
            (b"false", Value::Bool(false)),
            (b"null", Value::Null),
        ] {
            if self.takes(word) {
                return Ok(value);
            }
        }
        match self.skip() {
            Some(b'\'' | b'"') => {
                let string = self.string()?;
                let string = String::from_utf8(string);
                Ok(Value::Text(string.map_err(|_| self.expected("UTF-8"))?))
            }
            Some(b'[') => self.deeper(|parser| {
                parser.at += 1;
                let mut values = Vec::new();
                if parser.takes(b"]") {
                    return Ok(Value::Array(values));
                }
                loop {
                    values.push(parser.literal()?);
                    if !parser.takes(b",") {
                        parser.demand(b"]", "']'")?;
                        return Ok(Value::Array(values));
                    }
                }
            }),
            Some(b'{') => self.deeper(|parser| {
                parser.at += 1;
                let mut members = Vec::new();
                if parser.takes(b"}") {
                    return Ok(Value::Object(members));
                }
                loop {
                    let key = String::from_utf8(parser.string()?);
                    let key = key.map_err(|_| parser.expected("UTF-8"))?;
                    parser.demand(b":", "':'")?;
                    members.push((key, parser.literal()?));
                    if !parser.takes(b",") {
                        parser.demand(b"}", "'}'")?;
                        return Ok(Value::object(members));
                    }
                }
            }),
            Some(b'-' | b'0'..=b'9') => self.decimal(),
            _ => Err(self.expected("a term of a filter")),
        }
    }

    fn decimal(&mut self) -> Parsed<Value> {
        let start = self.at;
        let integer = self.number()?;
        let digits = self.rest().iter().skip(1);
        let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
        if self.peek() == Some(b'.') && digits > 0 {
            self.at += 1 + digits;
        } else if integer != i64::MAX && integer != i64::MIN {
            return Ok(Value::Int(integer));
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let text = std::str::from_utf8(text).unwrap_or_default();
        Ok(match (text.parse(), text.parse()) {
            (Ok(integer), _) => Value::Int(integer),
            (_, Ok(float)) => Value::Float(float),
            _ => return Err(self.expected("a number")),
        })
    }
}
