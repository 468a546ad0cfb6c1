//! Functions that mlua's safe interface cannot express: they raise any value as an
//! error, keep an error as it was raised, or check the arguments of standard functions.
//!
//! All functions here are called by Lua and may be left by Lua's `longjmp`, so they hold
//! no value with a destructor: what they hold goes through [`held`].
//! They access only the stack and the upvalues from
//! [`closure`].
#![allow(unsafe_code)]

use mlua::ffi;
use mlua::{Function, IntoLuaMulti, Lua, Result, lua_CFunction, lua_State};
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::mem::needs_drop;

/// With more arguments the stack has no room for processing them.
const MANY_ARGUMENTS: c_int = 200;
/// Most arguments: Rust can hold only a few thousand Lua values.
const MAX_ARGUMENTS: c_int = 4000;
/// Most values that fit Lua's stack.
const MAX_UNPACKED: i64 = 8000;
/// Deepest nesting of `coroutine.resume`.
const MAX_RESUMES: u32 = 64;
/// The error for writes to tables that all scripts share.
const READ_ONLY: &CStr = c"Attempt to modify a readonly table";

thread_local! {
    static RESUMES: Cell<u32> = const { Cell::new(0) };
}

/// A Lua function that runs `function` with these upvalues.
pub(super) fn closure(
    lua: &Lua,
    function: lua_CFunction,
    upvalues: impl IntoLuaMulti,
) -> Result<Function> {
    // SAFETY: all values on the stack become upvalues; only the closure is left.
    unsafe {
        lua.exec_raw(upvalues, |state| {
            let count = ffi::lua_gettop(state);
            ffi::lua_pushcclosure(state, function, count);
        })
    }
}

/// The value itself, which its owner keeps while it calls Lua. Values with a destructor do
/// not compile: `longjmp` would skip it.
#[inline(always)]
pub const fn held<T>(value: T) -> T {
    const { assert!(!needs_drop::<T>(), "longjmp would skip its destructor") };
    value
}

/// Resets the state of an interrupted script.
pub fn start() {
    RESUMES.set(0);
}

/// Calls upvalue 1 (or, if that is a table, its element 1) with upvalue 2 unless nil,
/// and the arguments. For a function in a table, more than [`MANY_ARGUMENTS`] are packed
/// into one table, and the tag, upvalue 2, is then negated. The callee returns `true`
/// and results, or `false`, an error value, and whether to prepend the position.
pub(super) unsafe extern "C-unwind" fn call_host(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua with upvalues from `closure`; see the module.
    unsafe {
        // Lua leaves room for some 20 values above the arguments.
        let mut args = held(ffi::lua_gettop(state));
        let (host, tag) = held((ffi::lua_upvalueindex(1), ffi::lua_upvalueindex(2)));
        if ffi::lua_type(state, host) == ffi::LUA_TTABLE {
            let packed = held(args > MANY_ARGUMENTS);
            if packed {
                ffi::lua_createtable(state, args, 0);
                ffi::lua_insert(state, 1);
                while args > 0 {
                    ffi::lua_rawseti(state, 1, args as _);
                    args -= 1;
                }
                args = 1;
            }
            ffi::lua_rawgeti(state, host, 1);
            ffi::lua_insert(state, 1);
            let tag = held(ffi::lua_tonumber(state, tag));
            ffi::lua_pushnumber(state, if packed { -tag } else { tag });
            ffi::lua_insert(state, 2);
            args += 1;
        } else {
            if args > MAX_ARGUMENTS {
                ffi::luaL_where(state, 1);
                ffi::lua_pushliteral(state, c"too many arguments");
                ffi::lua_concat(state, 2);
                ffi::lua_error(state)
            }
            ffi::lua_pushvalue(state, host);
            ffi::lua_insert(state, 1);
            if ffi::lua_type(state, tag) > ffi::LUA_TNIL {
                ffi::lua_pushvalue(state, tag);
                ffi::lua_insert(state, 2);
                args += 1;
            }
        }
        ffi::lua_call(state, args, ffi::LUA_MULTRET);
        if ffi::lua_toboolean(state, 1) != 0 {
            return ffi::lua_gettop(state) - 1;
        }
        if ffi::lua_toboolean(state, 3) != 0 {
            ffi::luaL_where(state, 1);
            ffi::lua_pushvalue(state, 2);
            ffi::lua_concat(state, 2);
        } else {
            ffi::lua_pushvalue(state, 2);
        }
        ffi::lua_error(state)
    }
}

/// `(handler, function, ...)`: calls the function; returns `true` and its first result,
/// or `false` and the handler's result for the error.
pub(super) unsafe extern "C-unwind" fn call_protected(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        let args = held(ffi::lua_gettop(state) - 2);
        let status = held(ffi::lua_pcall(state, args, 1, 1));
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_insert(state, -2);
        2
    }
}

/// `pcall`, which returns the text of an error table with a text in `err`.
pub(super) unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        ffi::luaL_checkany(state, 1);
        ffi::lua_pushboolean(state, 1);
        ffi::lua_insert(state, 1);
        let args = held(ffi::lua_gettop(state) - 2);
        if ffi::lua_pcall(state, args, ffi::LUA_MULTRET, 0) != ffi::LUA_OK {
            ffi::lua_remove(state, 1);
            if ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
                ffi::lua_pushliteral(state, c"err");
                ffi::lua_rawget(state, -2);
                if ffi::lua_isstring(state, -1) != 0 {
                    ffi::lua_replace(state, -2);
                } else {
                    ffi::lua_settop(state, -2);
                }
            }
            ffi::lua_pushboolean(state, 0);
            ffi::lua_insert(state, 1);
        }
        ffi::lua_gettop(state)
    }
}

/// `xpcall`. The handler runs after the error has left the function, not where it was
/// raised as in Lua: there the script could no longer be stopped.
pub(super) unsafe extern "C-unwind" fn xpcall(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_insert(state, 1);
        let status = held(ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 0));
        if status == ffi::LUA_OK {
            ffi::lua_pushboolean(state, 1);
            ffi::lua_replace(state, 1);
            return ffi::lua_gettop(state);
        }
        ffi::lua_pcall(state, 1, 1, 0);
        ffi::lua_pushboolean(state, 0);
        ffi::lua_insert(state, 1);
        2
    }
}

/// Raises the error for a global that does not exist.
pub(super) unsafe extern "C-unwind" fn no_such_global(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        ffi::luaL_where(state, 1);
        ffi::lua_pushliteral(
            state,
            c"Script attempted to access nonexistent global variable '",
        );
        if ffi::lua_isstring(state, 2) != 0 {
            ffi::lua_pushvalue(state, 2);
        } else {
            ffi::lua_pushliteral(state, c"(null)");
        }
        ffi::lua_pushliteral(state, c"'");
        ffi::lua_concat(state, 4);
        ffi::lua_error(state)
    }
}

/// Raises the error for an assignment to a shared table.
pub unsafe extern "C-unwind" fn read_only(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        ffi::luaL_where(state, 1);
        ffi::lua_pushstring(state, READ_ONLY.as_ptr());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

/// Whether the first argument is a shared table. Then the table behind it, from upvalue
/// 2, is left on the stack.
unsafe fn is_shared(state: *mut lua_State) -> bool {
    // SAFETY: only called by the functions below.
    unsafe {
        if ffi::lua_type(state, 1) != ffi::LUA_TTABLE {
            return false;
        }
        ffi::lua_pushvalue(state, 1);
        ffi::lua_rawget(state, ffi::lua_upvalueindex(2));
        if ffi::lua_type(state, -1) == ffi::LUA_TNIL {
            ffi::lua_settop(state, -2);
            return false;
        }
        true
    }
}

/// Runs upvalue 1, a C function, in place of the running one.
unsafe fn call_original(state: *mut lua_State) -> c_int {
    // SAFETY: upvalue 1 is a function of Lua's own library, which uses no upvalues.
    unsafe {
        match held(ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1))) {
            Some(function) => function(state),
            None => 0,
        }
    }
}

/// Guards a function that changes its first argument.
pub(super) unsafe extern "C-unwind" fn guarded_write(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        if is_shared(state) {
            ffi::lua_pushstring(state, READ_ONLY.as_ptr());
            ffi::lua_error(state)
        }
        call_original(state)
    }
}

/// Guards a function that reads its first argument without metamethods.
pub(super) unsafe extern "C-unwind" fn guarded_read(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        if is_shared(state) {
            ffi::lua_replace(state, 1);
        }
        call_original(state)
    }
}

/// `pairs`: upvalue 3 is `next`.
pub unsafe extern "C-unwind" fn pairs(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::lua_settop(state, 1);
        if is_shared(state) {
            ffi::lua_settop(state, 1);
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
        } else {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        }
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}

/// `getmetatable`: upvalue 3 has the result for each shared table, and, at 1, for
/// strings.
pub(super) unsafe extern "C-unwind" fn getmetatable(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TSTRING {
            ffi::lua_rawgeti(state, ffi::lua_upvalueindex(3), 1);
            return 1;
        }
        if is_shared(state) {
            ffi::lua_pushvalue(state, 1);
            ffi::lua_rawget(state, ffi::lua_upvalueindex(3));
            return 1;
        }
        call_original(state)
    }
}

/// `unpack`: counts the values without the overflow of Lua's version.
pub(super) unsafe extern "C-unwind" fn unpack(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        let first = held(ffi::luaL_optinteger(state, 2, 1) as c_int);
        let last = held(if ffi::lua_type(state, 3) > ffi::LUA_TNIL {
            ffi::luaL_checkinteger(state, 3) as c_int
        } else {
            ffi::lua_objlen(state, 1) as c_int
        });
        if i64::from(last) - i64::from(first) >= MAX_UNPACKED {
            ffi::luaL_where(state, 1);
            ffi::lua_pushliteral(state, c"too many results to unpack");
            ffi::lua_concat(state, 2);
            ffi::lua_error(state)
        }
        call_original(state)
    }
}

/// `coroutine.resume` with limited nesting: coroutines have Lua stacks of their own, but
/// share the thread's stack.
pub unsafe extern "C-unwind" fn resume(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        if ffi::lua_type(state, 1) != ffi::LUA_TTHREAD {
            return call_original(state);
        }
        if RESUMES.get() >= MAX_RESUMES {
            ffi::lua_settop(state, 0);
            ffi::lua_pushboolean(state, 0);
            ffi::lua_pushliteral(state, c"C stack overflow");
            return 2;
        }
        RESUMES.set(RESUMES.get() + 1);
        let results = held(call_original(state));
        RESUMES.set(RESUMES.get().saturating_sub(1));
        results
    }
}

/// The function that `coroutine.wrap` returns: upvalue 1 is the guarded `resume`,
/// upvalue 2 the coroutine.
pub unsafe extern "C-unwind" fn wrapped(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        let args = held(ffi::lua_gettop(state));
        ffi::luaL_checkstack(state, 3, std::ptr::null());
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, 2);
        ffi::lua_call(state, args + 1, ffi::LUA_MULTRET);
        if ffi::lua_toboolean(state, 1) != 0 {
            return ffi::lua_gettop(state) - 1;
        }
        ffi::lua_settop(state, 2);
        if ffi::lua_isstring(state, 2) != 0 {
            ffi::luaL_where(state, 1);
            ffi::lua_insert(state, -2);
            ffi::lua_concat(state, 2);
        }
        ffi::lua_error(state)
    }
}

/// `coroutine.wrap`: upvalue 1 is `coroutine.create`, upvalue 2 the guarded `resume`.
pub unsafe extern "C-unwind" fn wrap(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        if call_original(state) != 1 {
            return 0;
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, -2);
        ffi::lua_pushcclosure(state, wrapped, 2);
        1
    }
}
