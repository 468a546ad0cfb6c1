//! The libraries of scripts that decode data of clients.

use kedis::lua::{Failure, Halted, Host, Interpreter, Limits, Which};
use kedis::resp::{Reply, Value, decode};
use std::cell::RefCell;
use std::time::Duration;

/// Memory limit of an interpreter in bytes.
const MEMORY: usize = 32 << 20;
/// No decoder takes that long for an input of a few kilobytes.
const TIME: Duration = Duration::from_secs(5);

// Each script returns `refused`, or 1 if encoding and decoding the decoded value again gives
// an equal one: one of the same length, since the order of a table's keys is undefined.

const CJSON: &[u8] = b"local ok, value = pcall(cjson.decode, ARGV[1])
if not ok then return 'refused' end
local ok, text = pcall(cjson.encode, value)
if not ok then return 'refused' end
return #cjson.encode(cjson.decode(text)) == #text";

const CMSGPACK: &[u8] = b"local ok, value = pcall(cmsgpack.unpack, ARGV[1])
pcall(cmsgpack.unpack_one, ARGV[1])
pcall(cmsgpack.unpack_limit, ARGV[1], 2, 1)
if not ok then return 'refused' end
-- Tables that are nested too deeply become nil, as in Redis, and nil is in no table.
local ok, packed = pcall(function() return cmsgpack.pack(cmsgpack.unpack(cmsgpack.pack(value))) end)
if not ok then return 'refused' end
return #cmsgpack.pack(cmsgpack.unpack(packed)) == #packed";

/// The first line is the format.
const STRUCT: &[u8] = b"local format, data = string.match(ARGV[1], '^([^\\n]*)\\n(.*)$')
if not format then return 'refused' end
local sized, size = pcall(struct.size, format)
local found = {pcall(struct.unpack, format, data)}
pcall(struct.unpack, format, data, 2)
if not found[1] then return 'refused' end
pcall(struct.pack, format, unpack(found, 2))
return not sized or size <= #data";

thread_local! {
    static LUA: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

pub fn check_cjson(data: &[u8]) {
    run(CJSON, data);
}

pub fn check_cmsgpack(data: &[u8]) {
    run(CMSGPACK, data);
}

pub fn check_struct(data: &[u8]) {
    run(STRUCT, data);
}

/// A host without commands.
struct Nobody;

impl Host for Nobody {
    fn call(&mut self, _: &[&[u8]], _: &mut Reply) -> Result<(), Halted> {
        Err(Halted)
    }

    fn replicate(&mut self, _: bool) {}

    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        None
    }
}

fn run(script: &[u8], data: &[u8]) {
    LUA.with_borrow_mut(|lua| {
        let lua = lua.get_or_insert_with(|| {
            let mut lua = Interpreter::new(MEMORY, "7.4.0").expect("an interpreter");
            let compiled = lua.compile("fuzz", script, Limits::default());
            compiled.expect("a script without faults");
            lua
        });
        let limits = Limits {
            time: Some(TIME),
            ..Limits::default()
        };
        let mut reply = Reply::new(false);
        let which = Which::Script("fuzz");
        let done = lua.run(which, &[], &[data], limits, &mut Nobody, &mut reply);
        assert!(lua.tidy(), "the interpreter is of no more use");
        match done {
            Ok(()) => {
                let said = decode(&reply.buf).expect("a well-formed reply");
                let (said, _) = said.expect("a whole reply");
                let refused = said.as_bytes() == Some(b"refused");
                assert!(refused || said == Value::Int(1), "{said:?}");
            }
            // The script has reached its memory limit.
            Err(Failure::Error { text, .. }) if text == b"ERR not enough memory" => {}
            Err(failure) => panic!("{failure:?}"),
        }
    });
}
