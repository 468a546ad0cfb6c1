//! What cannot be said through mlua's safe interface: functions that raise any
//! value as an error, calls that keep the error as it was raised, and standard
//! functions with a look at their arguments first.
//!
//! All functions here are called by Lua and may leave by Lua's `longjmp`, so
//! none of them holds a value with a destructor: what they hold goes through [`held`].
//! They touch nothing but the stack and the upvalues that [`closure`] gave them.
#![allow(unsafe_code)]

use mlua::ffi;
use mlua::{Function, IntoLuaMulti, Lua, Result, lua_CFunction, lua_State};
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::mem::needs_drop;

/// More arguments than this leave no room on Lua's stack for what is done to them.
const MANY_ARGUMENTS: c_int = 200;
/// More arguments than this are refused: Rust can hold a few thousand Lua values.
const MAX_ARGUMENTS: c_int = 4000;
/// More values than this do not fit Lua's stack.
const MAX_UNPACKED: i64 = 8000;
/// How deep coroutines may resume each other.
const MAX_RESUMES: u32 = 64;
/// What is said of an attempt to change what is shared by all scripts.
const READ_ONLY: &CStr = c"Attempt to modify a readonly table";

thread_local! {
    static RESUMES: Cell<u32> = const { Cell::new(0) };
}

/// A Lua function that runs `function` with these upvalues.
pub fn closure(
    lua: &Lua,
    function: lua_CFunction,
    upvalues: impl IntoLuaMulti,
) -> Result<Function> {
    // SAFETY: all that is on the stack becomes upvalues; the closure is left.
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

/// Forgets what an interrupted script left behind.
pub fn start() {
    RESUMES.set(0);
}

/// Calls upvalue 1 (or, if that is a table, what stands in it at 1) with
/// upvalue 2, unless nil, and the arguments; many of them for a function in a
/// table come in one more table, and the tag, upvalue 2, is negative then. It answers `true` and results, or
/// `false`, an error value, and whether the position belongs before it.
pub unsafe extern "C-unwind" fn call_host(state: *mut lua_State) -> c_int {
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

/// `(handler, function, ...)`: calls the function; `true` and its first result,
/// or `false` and what the handler made of the error.
pub unsafe extern "C-unwind" fn call_protected(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        let args = held(ffi::lua_gettop(state) - 2);
        let status = held(ffi::lua_pcall(state, args, 1, 1));
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_insert(state, -2);
        2
    }
}

/// `pcall`, which of a table with a text in `err` returns that text.
pub unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
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

/// `xpcall`. The handler runs after the error has left the function and not, as
/// in Lua, where it was raised: there the script could no longer be stopped.
pub unsafe extern "C-unwind" fn xpcall(state: *mut lua_State) -> c_int {
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

/// The error for a global that is not there.
pub unsafe extern "C-unwind" fn no_such_global(state: *mut lua_State) -> c_int {
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

/// The error for an assignment to what is shared by all scripts.
pub unsafe extern "C-unwind" fn read_only(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        ffi::luaL_where(state, 1);
        ffi::lua_pushstring(state, READ_ONLY.as_ptr());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

/// Whether the first argument is shared by all scripts (upvalue 2 knows what
/// stands behind it, which is left on the stack then).
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
unsafe fn go_on(state: *mut lua_State) -> c_int {
    // SAFETY: upvalue 1 is a function of Lua's own library, which uses no upvalues.
    unsafe {
        match held(ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1))) {
            Some(function) => function(state),
            None => 0,
        }
    }
}

/// A function that changes its first argument.
pub unsafe extern "C-unwind" fn changing(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        if is_shared(state) {
            ffi::lua_pushstring(state, READ_ONLY.as_ptr());
            ffi::lua_error(state)
        }
        go_on(state)
    }
}

/// A function that reads its first argument without metamethods.
pub unsafe extern "C-unwind" fn reading(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        if is_shared(state) {
            ffi::lua_replace(state, 1);
        }
        go_on(state)
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

/// `getmetatable`: of what is shared, what upvalue 3 knows of it; of strings,
/// what it knows at 1.
pub unsafe extern "C-unwind" fn getmetatable(state: *mut lua_State) -> c_int {
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
        go_on(state)
    }
}

/// `unpack`: counts the values without an overflow, as Lua's own does not.
pub unsafe extern "C-unwind" fn unpack(state: *mut lua_State) -> c_int {
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
        go_on(state)
    }
}

/// `coroutine.resume`: coroutines have a stack of their own for Lua, but share
/// the thread's.
pub unsafe extern "C-unwind" fn resume(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        if ffi::lua_type(state, 1) != ffi::LUA_TTHREAD {
            return go_on(state);
        }
        if RESUMES.get() >= MAX_RESUMES {
            ffi::lua_settop(state, 0);
            ffi::lua_pushboolean(state, 0);
            ffi::lua_pushliteral(state, c"C stack overflow");
            return 2;
        }
        RESUMES.set(RESUMES.get() + 1);
        let results = held(go_on(state));
        RESUMES.set(RESUMES.get().saturating_sub(1));
        results
    }
}

/// What `coroutine.wrap` returns: upvalue 1 is the guarded `resume`, upvalue 2
/// the coroutine.
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

/// `coroutine.wrap`: upvalue 1 is `coroutine.create`, upvalue 2 the guarded
/// `resume`.
pub unsafe extern "C-unwind" fn wrap(state: *mut lua_State) -> c_int {
    // SAFETY: see `call_host`.
    unsafe {
        if go_on(state) != 1 {
            return 0;
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, -2);
        ffi::lua_pushcclosure(state, wrapped, 2);
        1
    }
}
