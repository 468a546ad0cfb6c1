//! A JSON value in memory, as it is parsed from text.

use super::narrow::FloatType;
use crate::encoding::json::{Item, put_item, put_text};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Containers may be nested one less than this.
pub const MAX_DEPTH: usize = 128;

/// Bytes that a value in a document takes at most while it is parsed: lists of values grow by half
/// their size or more.
pub(super) const PARSED_BYTES: usize = 64;
/// The same of a key besides its text and its value.
pub(super) const PARSED_KEY_BYTES: usize = 48;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// null.
    Null,
    /// true or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above `i64::MAX`.
    Large(u64),
    /// A finite number with a fraction or an exponent, or out of the range of 64 bits.
    Float(f64),
    /// A string.
    Text(String),
    /// An array.
    Array(Vec<Value>),
    /// An object; no key stands there twice.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Parses text. Of members with the same key the last one counts, at the place of the
    /// first.
    ///
    /// # Errors
    /// What is wrong, and where; also if containers are nested [`MAX_DEPTH`] deep.
    pub fn parse(text: &[u8]) -> Result<Value, String> {
        Value::parse_narrow(text, None)
    }

    /// The same; arrays of numbers are rounded to a type of floats.
    ///
    /// # Errors
    /// As above; also if a number of such an array is too large for the type.
    pub fn parse_narrow(text: &[u8], narrow: Option<FloatType>) -> Result<Value, String> {
        let text = std::str::from_utf8(text)
            .map_err(|_| "ERR Couldn't parse as UTF-8 string".to_owned())?;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = Values(narrow).deserialize(&mut deserializer);
        let value = value.map_err(|error| error.to_string())?;
        deserializer.end().map_err(|error| error.to_string())?;
        Ok(value)
    }

    /// Bytes that the value of a text takes at most while it is parsed.
    pub fn bytes_of(text: &[u8]) -> u64 {
        let is_separator = |byte: &&u8| matches!(byte, b',' | b':' | b'[' | b'{');
        let values = text.iter().filter(is_separator).count();
        (text.len() + values * PARSED_BYTES) as u64
    }

    /// A number as a float.
    fn float(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Large(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// Writes the value in line, whatever its size.
    pub(super) fn in_line(&self, out: &mut Vec<u8>) {
        let mut inner = Vec::new();
        let item = match self {
            Value::Null => Item::Null,
            Value::Bool(value) => Item::Bool(*value),
            Value::Int(value) => Item::Int(*value),
            Value::Large(value) => Item::Large(*value),
            Value::Float(value) => Item::Float(*value),
            Value::Text(text) => Item::Text(text.as_bytes()),
            Value::Array(values) => {
                values.iter().for_each(|value| value.in_line(&mut inner));
                Item::Array(&inner)
            }
            Value::Object(members) => {
                for (key, value) in members {
                    put_text(key.as_bytes(), &mut inner);
                    value.in_line(&mut inner);
                }
                Item::Object(&inner)
            }
        };
        put_item(item, out);
    }

    /// An object of some members; see [`Value::parse`] for those that have the same key.
    pub fn object(members: Vec<(String, Value)>) -> Value {
        Value::Object(without_repeats(members))
    }

    /// How deep containers are nested; 0 for a scalar.
    pub fn depth(&self) -> usize {
        match self {
            Value::Array(values) => 1 + values.iter().map(Value::depth).max().unwrap_or(0),
            Value::Object(members) => 1 + members.iter().map(|(_, v)| v.depth()).max().unwrap_or(0),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Large(_)
            | Value::Float(_)
            | Value::Text(_) => 0,
        }
    }
}

/// Deserializes a value; arrays of numbers are rounded to the type.
#[derive(Clone, Copy)]
struct Values(Option<FloatType>);

impl<'de> DeserializeSeed<'de> for Values {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// The elements of an array that may be rounded: a first element that is a number begins it, and
/// one that is no number ends it, so that the values in front of it are no shorter than their
/// type has them.
struct Narrow {
    of: Option<FloatType>,
    values: Vec<Value>,
}

impl Narrow {
    fn push<E: serde::de::Error>(&mut self, value: Value) -> Result<(), E> {
        let (Some(of), number) = (self.of, value.float()) else {
            self.values.push(value);
            return Ok(());
        };
        match number {
            Some(number) => {
                let rounded = of.round(number);
                let rounded = rounded
                    .ok_or_else(|| E::custom(format_args!("value out of range for {of}")))?;
                self.values.push(Value::Float(rounded));
            }
            None => {
                self.of = None;
                self.values.push(value);
            }
        }
        Ok(())
    }

    fn end(self) -> Value {
        let Narrow { of, mut values } = self;
        if let Some(of) = of {
            for value in &mut values {
                if let Value::Float(number) = value {
                    *number = of.shortest(*number);
                }
            }
        }
        Value::Array(values)
    }
}

impl<'de> Visitor<'de> for Values {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Large(value), Value::Int))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        match value.is_finite() {
            true => Ok(Value::Float(value)),
            false => Err(E::custom("number out of range")),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut array = Narrow {
            of: self.0,
            values: Vec::new(),
        };
        while let Some(value) = seq.next_element_seed(self)? {
            array.push(value)?;
        }
        Ok(array.end())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members: Vec<(String, Value)> = Vec::new();
        while let Some(key) = map.next_key()? {
            members.push((key, map.next_value_seed(self)?));
        }
        u32::try_from(members.len()).map_err(|_| A::Error::custom("an object is too large"))?;
        Ok(Value::object(members))
    }
}

/// Keeps of members with the same key the last value at the place of the first.
fn without_repeats(mut members: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let mut order: Vec<u32> = (0..members.len() as u32).collect();
    let key = |at: &u32| members.get(*at as usize).map(|(key, _)| key.as_str());
    order.sort_by(|a, b| key(a).cmp(&key(b)).then(a.cmp(b)));
    let repeats = order.chunk_by(|a, b| key(a) == key(b));
    let repeats: Vec<Vec<u32>> = repeats
        .filter(|same| same.len() > 1)
        .map(<[u32]>::to_vec)
        .collect();
    if repeats.is_empty() {
        return members;
    }
    let mut dropped = vec![false; members.len()];
    for same in repeats {
        if let [first, .., last] = same[..] {
            members.swap(first as usize, last as usize);
            same.iter()
                .skip(1)
                .for_each(|at| dropped[*at as usize] = true);
        }
    }
    let mut dropped = dropped.into_iter();
    members.retain(|_| !dropped.next().unwrap_or_default());
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_counts_at_the_place_of_the_first() {
        let parsed = Value::parse(br#"{"b":1,"a":2,"b":3,"c":4,"b":5,"c":6}"#);
        let member = |key: &str, value| (key.to_owned(), Value::Int(value));
        let expected = vec![member("b", 5), member("a", 2), member("c", 6)];
        assert_eq!(parsed, Ok(Value::Object(expected)));
    }

    #[test]
    fn numbers_keep_their_form() {
        for (text, value) in [
            ("1", Value::Int(1)),
            ("1.0", Value::Float(1.0)),
            ("1e2", Value::Float(100.0)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            ("9223372036854775807", Value::Int(i64::MAX)),
            ("9223372036854775808", Value::Large(1 << 63)),
            ("18446744073709551615", Value::Large(u64::MAX)),
            (
                "18446744073709551616",
                Value::Float(18_446_744_073_709_551_616.0),
            ),
        ] {
            assert_eq!(Value::parse(text.as_bytes()), Ok(value), "{text}");
        }
        for text in [
            "", "01", "1.", ".1", "+1", "NaN", "1e999", "[1,]", "{\"a\"}", "1 2", "'a'",
        ] {
            assert!(Value::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Value::parse(b"\"\xFF\"").is_err());
    }

    #[test]
    fn arrays_of_numbers_are_rounded() {
        for (text, rounded) in [
            ("[1,2.5,0.3]", "[1.0,2.5,0.3]"),
            (
                "{\"a\":[3.14159,[42.42]],\"b\":0.56789}",
                "{\"a\":[3.140625,[42.4]],\"b\":0.56789}",
            ),
            ("[0.1,null,0.1]", "[0.0999755859375,null,0.1]"),
            ("[null,3.14159]", "[null,3.14159]"),
            ("[]", "[]"),
        ] {
            let narrow = Value::parse_narrow(text.as_bytes(), Some(FloatType::F16));
            assert_eq!(narrow, Value::parse(rounded.as_bytes()), "{text}");
        }
        assert_eq!(
            Value::parse_narrow(b"[0.1,1e100,2]", Some(FloatType::F16)),
            Err("value out of range for F16 at line 1 column 11".to_owned())
        );
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        let deepest = Value::parse(&nested(MAX_DEPTH - 1)).map(|value| value.depth());
        assert_eq!(deepest, Ok(MAX_DEPTH - 1));
        assert!(Value::parse(&nested(MAX_DEPTH)).is_err());
        assert!(Value::parse(&vec![b'['; 1 << 20]).is_err());
    }
}
