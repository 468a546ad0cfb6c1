//! The library `bit`: operations on the bits of 32-bit integers.

use super::host::{Args, Returned, function};
use mlua::{Lua, Table};

/// Adding this moves the nearest integer, modulo 2^32, into the low bits of the sum.
const TO_BITS: f64 = 6_755_399_441_055_744.0;

fn bits(args: &Args<'_>, i: usize) -> Returned<u32> {
    Ok((args.number(i)? + TO_BITS).to_bits() as u32)
}

fn signed(bits: u32) -> f64 {
    f64::from(bits as i32)
}

/// The library's table.
pub fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let one = |name, run: fn(u32) -> u32| -> mlua::Result<()> {
        let run = function(lua, name, move |args| Ok(signed(run(bits(args, 1)?))))?;
        table.raw_set(name, run)
    };
    one("tobit", |a| a)?;
    one("bnot", |a| !a)?;
    one("bswap", u32::swap_bytes)?;
    let shift = |name, run: fn(u32, u32) -> u32| -> mlua::Result<()> {
        let run = function(lua, name, move |args| {
            let (a, by) = (bits(args, 1)?, bits(args, 2)?);
            Ok(signed(run(a, by & 31)))
        })?;
        table.raw_set(name, run)
    };
    shift("lshift", |a, by| a << by)?;
    shift("rshift", |a, by| a >> by)?;
    shift("arshift", |a, by| (a as i32 >> by) as u32)?;
    shift("rol", u32::rotate_left)?;
    shift("ror", u32::rotate_right)?;
    let many = |name, run: fn(u32, u32) -> u32| -> mlua::Result<()> {
        let run = function(lua, name, move |args| {
            let mut all = bits(args, 1)?;
            for i in 2..=args.len() {
                all = run(all, bits(args, i)?);
            }
            Ok(signed(all))
        })?;
        table.raw_set(name, run)
    };
    many("band", |a, b| a & b)?;
    many("bor", |a, b| a | b)?;
    many("bxor", |a, b| a ^ b)?;
    table.raw_set("tohex", function(lua, "tohex", tohex)?)?;
    Ok(table)
}

fn tohex(args: &Args<'_>) -> Returned<String> {
    let number = bits(args, 1)?;
    let digits = if args.len() > 1 {
        bits(args, 2)? as i32
    } else {
        8
    };
    let count = digits.unsigned_abs().min(8) as usize;
    let all = match digits < 0 {
        true => format!("{number:08X}"),
        false => format!("{number:08x}"),
    };
    Ok(all[8 - count..].to_owned())
}
