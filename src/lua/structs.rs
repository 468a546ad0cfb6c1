//! The library `struct`: numbers and strings in the memory layout of C.

use super::host::{Args, Raise, Returned, add_result, function};
use mlua::{Lua, MultiValue, Table, Value};

/// Largest integer, in bytes.
const MAX_INTEGER: usize = 32;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
/// The alignment of `!` without a number.
const MAX_ALIGN: usize = 8;

/// A format string, read option by option.
struct Format<'a> {
    args: &'a Args<'a>,
    rest: &'a [u8],
    big: bool,
    align: usize,
}

impl<'a> Format<'a> {
    fn new(args: &'a Args<'a>, format: &'a [u8]) -> Format<'a> {
        let end = format.iter().position(|b| *b == 0).unwrap_or(format.len());
        Format {
            args,
            rest: &format[..end],
            big: false,
            align: 1,
        }
    }

    /// The next option and its size in bytes.
    fn next(&mut self) -> Returned<Option<(u8, usize)>> {
        self.args.work.add(1)?;
        let Some((&option, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        self.rest = rest;
        let size = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > MAX_INTEGER {
                    return Err(Raise::at(format!(
                        "integral size {size} is larger than limit of {MAX_INTEGER}"
                    )));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((option, size)))
    }

    /// The number at the front of the rest, or `default`.
    fn number(&mut self, default: usize) -> Returned<usize> {
        if !self.rest.first().is_some_and(u8::is_ascii_digit) {
            return Ok(default);
        }
        let mut number = 0usize;
        while let Some((&digit, rest)) = self.rest.split_first()
            && digit.is_ascii_digit()
        {
            number = number * 10 + usize::from(digit - b'0');
            if number > i32::MAX as usize {
                return Err(Raise::at("integral size overflow"));
            }
            self.rest = rest;
        }
        Ok(number)
    }

    /// Bytes of padding before an option at `at`.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.align);
        (size - (at & (size - 1))) & (size - 1)
    }

    fn control(&mut self, option: u8) -> Returned<()> {
        match option {
            b' ' => {}
            b'>' => self.big = true,
            b'<' => self.big = false,
            b'!' => {
                let align = self.number(MAX_ALIGN)?;
                if !align.is_power_of_two() {
                    return Err(Raise::at(format!("alignment {align} is not a power of 2")));
                }
                self.align = align;
            }
            other => {
                let text = format!("invalid format option '{}'", char::from(other));
                return Err(self.args.bad(1, &text));
            }
        }
        Ok(())
    }

    fn in_order(&self, bytes: &mut [u8]) {
        if self.big {
            bytes.reverse();
        }
    }
}

/// The library's table.
pub fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", function(lua, "pack", pack)?)?;
    table.raw_set("unpack", function(lua, "unpack", unpack)?)?;
    table.raw_set("size", function(lua, "size", size)?)?;
    Ok(table)
}

fn pack(args: &Args<'_>) -> Returned<mlua::String> {
    let format = args.string(1)?;
    let format = format.as_bytes();
    let mut format = Format::new(args, &format);
    let mut out = Vec::new();
    let mut arg = 2;
    while let Some((option, mut size)) = format.next()? {
        out.resize(out.len() + format.padding(out.len(), option, size), 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = args.number(arg)?;
                arg += 1;
                // Numbers out of range are truncated to 64 bits, as by a cast in C.
                let value = match number {
                    ..0.0 => number as i64 as u64,
                    TWO_TO_64.. => 0,
                    _ => number as u64,
                };
                let mut bytes = [0; MAX_INTEGER];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                let bytes = &mut bytes[..size];
                format.in_order(bytes);
                out.extend_from_slice(bytes);
            }
            b'x' => out.push(0),
            b'f' => {
                let mut bytes = (args.number(arg)? as f32).to_le_bytes();
                arg += 1;
                format.in_order(&mut bytes);
                out.extend_from_slice(&bytes);
            }
            b'd' => {
                let mut bytes = args.number(arg)?.to_le_bytes();
                arg += 1;
                format.in_order(&mut bytes);
                out.extend_from_slice(&bytes);
            }
            b'c' | b's' => {
                let text = args.string(arg)?;
                arg += 1;
                let text = text.as_bytes();
                if size == 0 {
                    size = text.len();
                }
                let Some(text) = text.get(..size) else {
                    return Err(args.bad(arg, "string too short"));
                };
                out.extend_from_slice(text);
                if option == b's' {
                    out.push(0);
                }
            }
            other => format.control(other)?,
        }
    }
    Ok(args.lua.create_string(&out)?)
}

fn unpack(args: &Args<'_>) -> Returned<MultiValue> {
    let format = args.string(1)?;
    let format = format.as_bytes();
    let data = args.string(2)?;
    let data = data.as_bytes();
    let too_short = || args.bad(2, "data string too short");
    let mut format = Format::new(args, &format);
    let from = args.integer_or(3, 1)?;
    let mut at = match usize::try_from(from) {
        Ok(0) => return Err(args.bad(3, "offset must be 1 or greater")),
        Ok(from) => from - 1,
        Err(_) => return Err(too_short()),
    };
    let mut results: Vec<Value> = Vec::new();
    while let Some((option, mut size)) = format.next()? {
        at += format.padding(at, option, size);
        let field = |size: usize| {
            let end = at.checked_add(size)?;
            data.get(at..end)
        };
        let bytes = field(size).ok_or_else(too_short)?;
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = integer(bytes, format.big, option.is_ascii_lowercase());
                add_result(&mut results, Value::Number(number))?;
            }
            b'x' => {}
            b'f' => {
                let mut four = [0; 4];
                four.copy_from_slice(bytes);
                format.in_order(&mut four);
                add_result(&mut results, Value::Number(f32::from_le_bytes(four).into()))?;
            }
            b'd' => {
                let mut eight = [0; 8];
                eight.copy_from_slice(bytes);
                format.in_order(&mut eight);
                add_result(&mut results, Value::Number(f64::from_le_bytes(eight)))?;
            }
            b'c' => {
                let mut text = bytes;
                if size == 0 {
                    let previous = match results.pop() {
                        Some(value) => args.lua.coerce_number(value)?,
                        None => None,
                    };
                    let Some(previous) = previous else {
                        return Err(Raise::at("format 'c0' needs a previous size"));
                    };
                    size = previous as usize;
                    text = field(size).ok_or_else(too_short)?;
                }
                add_result(&mut results, Value::String(args.lua.create_string(text)?))?;
            }
            b's' => {
                let rest = data.get(at..).ok_or_else(too_short)?;
                let Some(end) = memchr::memchr(0, rest) else {
                    return Err(Raise::at("unfinished string in data"));
                };
                size = end + 1;
                add_result(
                    &mut results,
                    Value::String(args.lua.create_string(&rest[..end])?),
                )?;
            }
            other => format.control(other)?,
        }
        at += size;
    }
    add_result(&mut results, Value::Number((at + 1) as f64))?;
    Ok(results.into_iter().collect())
}

fn integer(bytes: &[u8], big: bool, signed: bool) -> f64 {
    let byte = |i: usize| match big {
        true => bytes[bytes.len() - 1 - i],
        false => bytes[i],
    };
    let mut value = 0u64;
    for i in 0..bytes.len().min(8) {
        value |= u64::from(byte(i)) << (8 * i);
    }
    if !signed {
        return value as f64;
    }
    if bytes.len() < 8 {
        let unused = 64 - 8 * bytes.len() as u32;
        return ((value << (unused & 63)) as i64 >> (unused & 63)) as f64;
    }
    value as i64 as f64
}

fn size(args: &Args<'_>) -> Returned<f64> {
    let format = args.string(1)?;
    let format = format.as_bytes();
    let mut format = Format::new(args, &format);
    let mut total = 0usize;
    while let Some((option, size)) = format.next()? {
        total += format.padding(total, option, size);
        match (option, size) {
            (b's', _) => return Err(args.bad(1, "option 's' has no fixed size")),
            (b'c', 0) => return Err(args.bad(1, "option 'c0' has no fixed size")),
            _ => {}
        }
        if !option.is_ascii_alphanumeric() {
            format.control(option)?;
        }
        total += size;
    }
    Ok(total as f64)
}
