//! Patterns of Lua 5.1: `string.find`, `match`, `gmatch`, `gsub`.
//!
//! Lua's own matcher cannot be interrupted, and short patterns can keep it busy for
//! ever. This one regularly checks whether the script must stop.
//!
//! [`Matcher`] is safe Rust and depends only on Lua's syntax; the four functions around
//! it follow the rules of [`super::raw`], so what they hold passes through [`held`]. As in
//! Lua 5.1, a zero byte ends a pattern.
#![allow(unsafe_code)]

use super::raw::held;
use mlua::{ffi, lua_State};
use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::ptr;

/// Longest pattern: matching recurses once for every item.
const MAX_PATTERN: usize = 4096;
/// Most captures of a pattern.
const MAX_CAPTURES: usize = 32;
/// Steps between two checks whether the script must stop: some 100 µs.
const CHECK_EVERY: u32 = 100_000;
/// Characters with a special meaning in patterns.
const SPECIALS: &[u8] = b"^$*+?.([%-";

/// Why a match ended with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The pattern is invalid.
    Malformed(&'static CStr),
    /// The script must stop; the error is on Lua's stack.
    Stopped,
}

type Matched<T> = Result<T, Fault>;

/// The content of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// The parenthesis is still open.
    Open,
    /// The position only.
    Position,
    /// This many bytes.
    Bytes(usize),
}

#[derive(Debug, Clone, Copy)]
struct Capture {
    start: usize,
    held: Held,
}

/// Matches a pattern at positions of a text.
pub struct Matcher<'a, L> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: [Capture; MAX_CAPTURES],
    level: usize,
    steps: u32,
    check: L,
}

impl<'a, L: FnMut() -> bool> Matcher<'a, L> {
    /// `check` returns whether to continue.
    pub fn new(text: &'a [u8], pattern: &'a [u8], check: L) -> Matcher<'a, L> {
        let closed = Capture {
            start: 0,
            held: Held::Open,
        };
        Matcher {
            text,
            pattern,
            captures: [closed; MAX_CAPTURES],
            level: 0,
            steps: 0,
            check,
        }
    }

    /// The end of a match that begins at `start`.
    fn match_at(&mut self, start: usize) -> Matched<Option<usize>> {
        self.level = 0;
        self.run(start, 0)
    }

    /// The number of captures of the last match.
    pub(super) fn captures(&self) -> usize {
        self.level
    }

    /// Position and bytes of a capture; no bytes for a position capture.
    pub(super) fn capture(&self, i: usize) -> Matched<(usize, Option<&'a [u8]>)> {
        let Some(capture) = self.captures[..self.level].get(i) else {
            return Err(Fault::Malformed(c"invalid capture index"));
        };
        match capture.held {
            Held::Open => Err(Fault::Malformed(c"unfinished capture")),
            Held::Position => Ok((capture.start, None)),
            Held::Bytes(len) => {
                let bytes = &self.text[capture.start..capture.start + len];
                Ok((capture.start, Some(bytes)))
            }
        }
    }

    /// Counts one step of work.
    fn step(&mut self) -> Matched<()> {
        self.steps += 1;
        if self.steps < CHECK_EVERY {
            return Ok(());
        }
        self.steps = 0;
        match (self.check)() {
            true => Ok(()),
            false => Err(Fault::Stopped),
        }
    }

    /// The byte of the pattern at `p`, 0 at the end.
    fn item(&self, p: usize) -> u8 {
        self.pattern.get(p).copied().unwrap_or(0)
    }

    /// Matches the pattern from `p` on at `s`.
    fn run(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        let (mut s, mut p) = (s, p);
        loop {
            self.step()?;
            match (self.item(p), self.item(p + 1)) {
                (0, _) => return Ok(Some(s)),
                (b'(', b')') => return self.open(s, p + 2, Held::Position),
                (b'(', _) => return self.open(s, p + 1, Held::Open),
                (b')', _) => return self.close(s, p + 1),
                (b'$', 0) => return Ok((s == self.text.len()).then_some(s)),
                (b'%', b'b') => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', b'f') => {
                    p += 2;
                    if self.item(p) != b'[' {
                        let why = c"missing '[' after '%f' in pattern";
                        return Err(Fault::Malformed(why));
                    }
                    let set = p..self.item_end(p)?;
                    let before = s.checked_sub(1).map_or(0, |s| self.text[s]);
                    let here = self.text.get(s).copied().unwrap_or(0);
                    if self.is_in_set(before, &set) || !self.is_in_set(here, &set) {
                        return Ok(None);
                    }
                    p = set.end;
                }
                (b'%', digit @ b'0'..=b'9') => match self.repeated(s, digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let one = p..self.item_end(p)?;
                    let next = one.end + 1;
                    match self.item(one.end) {
                        b'?' => {
                            if self.is_one(s, &one)
                                && let Some(end) = self.run(s + 1, next)?
                            {
                                return Ok(Some(end));
                            }
                            p = next;
                        }
                        b'*' => return self.most(s, &one),
                        b'+' if self.is_one(s, &one) => return self.most(s + 1, &one),
                        b'+' => return Ok(None),
                        b'-' => return self.fewest(s, &one),
                        _ if self.is_one(s, &one) => (s, p) = (s + 1, one.end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// The end of the pattern's item at `p`: a character, a class or a set.
    fn item_end(&self, p: usize) -> Matched<usize> {
        match self.item(p) {
            b'%' if self.item(p + 1) == 0 => {
                Err(Fault::Malformed(c"malformed pattern (ends with '%')"))
            }
            b'%' => Ok(p + 2),
            b'[' => {
                let mut p = p + 1;
                if self.item(p) == b'^' {
                    p += 1;
                }
                // A closing bracket in the first place belongs to the set.
                loop {
                    match self.item(p) {
                        0 => return Err(Fault::Malformed(c"malformed pattern (missing ']')")),
                        b'%' if self.item(p + 1) != 0 => p += 2,
                        _ => p += 1,
                    }
                    if self.item(p) == b']' {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte at `s` exists and matches this item.
    fn is_one(&self, s: usize, one: &Range<usize>) -> bool {
        let Some(&byte) = self.text.get(s) else {
            return false;
        };
        match self.item(one.start) {
            b'.' => true,
            b'%' => is_of_class(byte, self.item(one.start + 1)),
            b'[' => self.is_in_set(byte, one),
            literal => literal == byte,
        }
    }

    fn is_in_set(&self, byte: u8, set: &Range<usize>) -> bool {
        let last = set.end - 1;
        let wanted = self.item(set.start + 1) != b'^';
        let mut p = set.start + if wanted { 1 } else { 2 };
        while p < last {
            let item = self.item(p);
            if item == b'%' {
                if is_of_class(byte, self.item(p + 1)) {
                    return wanted;
                }
                p += 2;
            } else if self.item(p + 1) == b'-' && p + 2 < last {
                if (item..=self.item(p + 2)).contains(&byte) {
                    return wanted;
                }
                p += 3;
            } else {
                if item == byte {
                    return wanted;
                }
                p += 1;
            }
        }
        !wanted
    }

    /// As many repetitions as possible, then the rest of the pattern.
    fn most(&mut self, s: usize, one: &Range<usize>) -> Matched<Option<usize>> {
        let mut end = s;
        while self.is_one(end, one) {
            self.step()?;
            end += 1;
        }
        loop {
            if let Some(found) = self.run(end, one.end + 1)? {
                return Ok(Some(found));
            }
            if end == s {
                return Ok(None);
            }
            end -= 1;
        }
    }

    /// As few repetitions as possible, then the rest of the pattern.
    fn fewest(&mut self, s: usize, one: &Range<usize>) -> Matched<Option<usize>> {
        let mut end = s;
        loop {
            if let Some(found) = self.run(end, one.end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_one(end, one) {
                return Ok(None);
            }
            end += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, held: Held) -> Matched<Option<usize>> {
        let Some(capture) = self.captures.get_mut(self.level) else {
            return Err(Fault::Malformed(c"too many captures"));
        };
        *capture = Capture { start: s, held };
        self.level += 1;
        let found = self.run(s, p)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        let captures = &self.captures[..self.level];
        let Some(i) = captures.iter().rposition(|c| c.held == Held::Open) else {
            return Err(Fault::Malformed(c"invalid pattern capture"));
        };
        self.captures[i].held = Held::Bytes(s - self.captures[i].start);
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[i].held = Held::Open;
        }
        Ok(found)
    }

    /// `%b`: from one character to its closing counterpart.
    fn balanced(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        let (open, close) = (self.item(p), self.item(p + 1));
        if open == 0 || close == 0 {
            return Err(Fault::Malformed(c"unbalanced pattern"));
        }
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.text.len() {
            self.step()?;
            let byte = self.text[at];
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%1`: the same bytes as in a capture.
    fn repeated(&mut self, s: usize, digit: u8) -> Matched<Option<usize>> {
        let i = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let captures = &self.captures[..self.level];
        let Some(capture) = captures.get(i).filter(|c| c.held != Held::Open) else {
            return Err(Fault::Malformed(c"invalid capture index"));
        };
        let Held::Bytes(len) = capture.held else {
            return Ok(None);
        };
        let bytes = &self.text[capture.start..capture.start + len];
        Ok(self.text[s..].starts_with(bytes).then_some(s + len))
    }
}

/// Whether a byte belongs to the class of a letter after `%`.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        // As in C, including the vertical tab.
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}

/// Calls upvalue 1 of the functions here, which fails if the script must stop. The error
/// then remains on the stack.
unsafe fn may_continue(state: *mut lua_State) -> bool {
    // SAFETY: the functions below have reserved stack for this.
    unsafe {
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_pcall(state, 0, 0, 0) == ffi::LUA_OK
    }
}

/// A text argument, which lives as long as it is on the stack.
unsafe fn text<'a>(state: *mut lua_State, i: c_int) -> &'a [u8] {
    // SAFETY: Lua does not move the bytes while the value is on the stack, and the
    // callers keep it there.
    unsafe {
        let mut len = 0;
        let bytes = ffi::luaL_checklstring(state, i, &mut len);
        std::slice::from_raw_parts(bytes.cast(), len)
    }
}

/// The pattern up to the first zero byte; fails if it is too long.
unsafe fn checked_pattern(state: *mut lua_State, pattern: &[u8]) -> &[u8] {
    let end = held(memchr::memchr(0, pattern).unwrap_or(pattern.len()));
    if end > MAX_PATTERN {
        // SAFETY: called by the functions below, which hold no values with destructors.
        unsafe { fail(state, c"pattern too complex") }
    }
    &pattern[..end]
}

/// Raises an error with the position in the script prepended.
unsafe fn fail(state: *mut lua_State, why: &CStr) -> ! {
    // SAFETY: called by the functions below, which hold no values with destructors.
    unsafe {
        ffi::luaL_where(state, 1);
        ffi::lua_pushstring(state, why.as_ptr());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

/// The value of a match, or raises its error.
unsafe fn checked<T>(state: *mut lua_State, done: Matched<T>) -> T {
    match held(done) {
        Ok(value) => value,
        // SAFETY: called by the functions below, which hold no values with destructors.
        Err(Fault::Malformed(why)) => unsafe { fail(state, why) },
        // SAFETY: as above; the error is on the stack.
        Err(Fault::Stopped) => unsafe { ffi::lua_error(state) },
    }
}

unsafe fn push_bytes(state: *mut lua_State, bytes: &[u8]) {
    // SAFETY: the callers have reserved stack.
    unsafe { ffi::lua_pushlstring(state, bytes.as_ptr().cast(), bytes.len()) };
}

/// Pushes a capture, or the whole match as the first one of a pattern without captures.
unsafe fn push_capture<L: FnMut() -> bool>(
    state: *mut lua_State,
    matcher: &Matcher<'_, L>,
    i: usize,
    whole: &Range<usize>,
) {
    // SAFETY: the callers have reserved stack.
    unsafe {
        if i == 0 && matcher.captures() == 0 {
            return push_bytes(state, &matcher.text[whole.clone()]);
        }
        match checked(state, matcher.capture(i)) {
            (_, Some(bytes)) => push_bytes(state, bytes),
            (place, None) => ffi::lua_pushinteger(state, place as ffi::lua_Integer + 1),
        }
    }
}

/// Pushes all captures; without captures the whole match, if given.
unsafe fn push_captures<L: FnMut() -> bool>(
    state: *mut lua_State,
    matcher: &Matcher<'_, L>,
    whole: Option<&Range<usize>>,
) -> c_int {
    // SAFETY: at most 32 values, for which stack is reserved.
    unsafe {
        let count = held(matcher.captures().max(usize::from(whole.is_some())));
        ffi::luaL_checkstack(state, count as c_int, c"too many captures".as_ptr());
        for i in 0..count {
            push_capture(state, matcher, i, whole.unwrap_or(&(0..0)));
        }
        count as c_int
    }
}

/// The start of a search at `place`, which counts from 1, or from the end if it is
/// negative.
fn start_of(place: i64, len: usize) -> usize {
    let len = len as i64;
    let place = if place < 0 {
        place.saturating_add(len + 1)
    } else {
        place
    };
    (place - 1).clamp(0, len) as usize
}

unsafe fn search(state: *mut lua_State, find: bool) -> c_int {
    // SAFETY: called by Lua with upvalues from `closure`; nothing here has a destructor
    // when Lua is called, and the texts stay on the stack.
    unsafe {
        let (subject, whole_pattern) = held((text(state, 1), text(state, 2)));
        let place = held(ffi::luaL_optinteger(state, 3, 1) as i64);
        let mut start = held(start_of(place, subject.len()));
        ffi::luaL_checkstack(state, 8, ptr::null());
        let until_zero = held(whole_pattern.split(|byte| *byte == 0).next());
        let is_plain = held(|| {
            let pattern = until_zero.unwrap_or_default();
            !pattern.iter().any(|byte| SPECIALS.contains(byte))
        });
        if find && (ffi::lua_toboolean(state, 4) != 0 || is_plain()) {
            let Some(at) = memchr::memmem::find(&subject[start..], whole_pattern) else {
                ffi::lua_pushnil(state);
                return 1;
            };
            let first = held((start + at) as ffi::lua_Integer);
            ffi::lua_pushinteger(state, first + 1);
            ffi::lua_pushinteger(state, first + whole_pattern.len() as ffi::lua_Integer);
            return 2;
        }
        let pattern = held(checked_pattern(state, whole_pattern));
        let anchored = held(pattern.strip_prefix(b"^"));
        let pattern = held(anchored.unwrap_or(pattern));
        let mut matcher = held(Matcher::new(subject, pattern, || may_continue(state)));
        loop {
            if let Some(end) = checked(state, matcher.match_at(start)) {
                if !find {
                    return push_captures(state, &matcher, Some(&(start..end)));
                }
                ffi::lua_pushinteger(state, start as ffi::lua_Integer + 1);
                ffi::lua_pushinteger(state, end as ffi::lua_Integer);
                return 2 + push_captures(state, &matcher, None);
            }
            start += 1;
            if anchored.is_some() || start > subject.len() {
                ffi::lua_pushnil(state);
                return 1;
            }
        }
    }
}

/// `string.find`.
pub unsafe extern "C-unwind" fn find(state: *mut lua_State) -> c_int {
    // SAFETY: see `search`.
    unsafe { search(state, true) }
}

/// `string.match`.
pub(super) unsafe extern "C-unwind" fn match_(state: *mut lua_State) -> c_int {
    // SAFETY: see `search`.
    unsafe { search(state, false) }
}

/// The iterator of `string.gmatch`: upvalue 2 is the text, 3 the pattern, 4 the position
/// of the next search.
unsafe extern "C-unwind" fn next_match(state: *mut lua_State) -> c_int {
    // SAFETY: see `search`; the texts are upvalues and stay.
    unsafe {
        ffi::luaL_checkstack(state, 8, ptr::null());
        let subject = held(text(state, ffi::lua_upvalueindex(2)));
        let pattern = held(text(state, ffi::lua_upvalueindex(3)));
        let pattern = held(checked_pattern(state, pattern));
        let mut start = held(ffi::lua_tointeger(state, ffi::lua_upvalueindex(4)) as usize);
        let mut matcher = held(Matcher::new(subject, pattern, || may_continue(state)));
        while start <= subject.len() {
            if let Some(end) = checked(state, matcher.match_at(start)) {
                // An empty match must not be found again.
                let next = held(if end == start { end + 1 } else { end });
                ffi::lua_pushinteger(state, next as ffi::lua_Integer);
                ffi::lua_replace(state, ffi::lua_upvalueindex(4));
                return push_captures(state, &matcher, Some(&(start..end)));
            }
            start += 1;
        }
        0
    }
}

/// `string.gmatch`.
pub(super) unsafe extern "C-unwind" fn gmatch(state: *mut lua_State) -> c_int {
    // SAFETY: see `search`.
    unsafe {
        text(state, 1);
        text(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_pushinteger(state, 0);
        ffi::lua_pushcclosure(state, next_match, 4);
        1
    }
}

/// `string.gsub`.
pub(super) unsafe extern "C-unwind" fn gsub(state: *mut lua_State) -> c_int {
    // SAFETY: see `search`. The buffer is Lua's own, and plain memory to Rust.
    unsafe {
        let (subject, pattern) = held((text(state, 1), text(state, 2)));
        let kind = held(ffi::lua_type(state, 3));
        let at_most = held(subject.len() as ffi::lua_Integer + 1);
        let at_most = held(ffi::luaL_optinteger(state, 4, at_most));
        if !matches!(
            kind,
            ffi::LUA_TNUMBER | ffi::LUA_TSTRING | ffi::LUA_TFUNCTION | ffi::LUA_TTABLE
        ) {
            let expected = held(c"string/function/table expected");
            ffi::luaL_argerror(state, 3, expected.as_ptr());
        }
        let pattern = held(checked_pattern(state, pattern));
        let anchored = held(pattern.strip_prefix(b"^"));
        // The buffer keeps up to ten pieces of the result on the stack, too.
        ffi::luaL_checkstack(state, MAX_CAPTURES as c_int + 20, ptr::null());
        let pattern = held(anchored.unwrap_or(pattern));
        let mut matcher = held(Matcher::new(subject, pattern, || may_continue(state)));
        let mut buffer = held(std::mem::MaybeUninit::<ffi::luaL_Buffer>::uninit());
        let buffer = held(buffer.as_mut_ptr());
        ffi::luaL_buffinit(state, buffer);
        let (mut start, mut copied, mut count) = held((0, 0, 0));
        while count < at_most {
            let end = held(checked(state, matcher.match_at(start)));
            if let Some(end) = end {
                count += 1;
                add_bytes(buffer, &subject[copied..start]);
                add_value(state, buffer, &matcher, &(start..end), kind);
                copied = end;
            }
            match end {
                Some(end) if end > start => start = end,
                _ if start < subject.len() => start += 1,
                _ => break,
            }
            if anchored.is_some() {
                break;
            }
        }
        add_bytes(buffer, &subject[copied..]);
        ffi::luaL_pushresult(buffer);
        ffi::lua_pushinteger(state, count);
        2
    }
}

unsafe fn add_bytes(buffer: *mut ffi::luaL_Buffer, bytes: &[u8]) {
    // SAFETY: the buffer was initialized.
    unsafe { ffi::luaL_addlstring(buffer, bytes.as_ptr().cast(), bytes.len()) };
}

/// Appends the replacement of a match.
unsafe fn add_value<L: FnMut() -> bool>(
    state: *mut lua_State,
    buffer: *mut ffi::luaL_Buffer,
    matcher: &Matcher<'_, L>,
    whole: &Range<usize>,
    kind: c_int,
) {
    // SAFETY: called by `gsub`.
    unsafe {
        match kind {
            ffi::LUA_TFUNCTION => {
                ffi::lua_pushvalue(state, 3);
                let args = held(push_captures(state, matcher, Some(whole)));
                ffi::lua_call(state, args, 1);
            }
            ffi::LUA_TTABLE => {
                push_capture(state, matcher, 0, whole);
                ffi::lua_gettable(state, 3);
            }
            _ => return add_template(state, buffer, matcher, whole),
        }
        if ffi::lua_toboolean(state, -1) == 0 {
            ffi::lua_settop(state, -2);
            return add_bytes(buffer, &matcher.text[whole.clone()]);
        }
        if ffi::lua_isstring(state, -1) == 0 {
            ffi::luaL_where(state, 1);
            ffi::lua_pushliteral(state, c"invalid replacement value (a ");
            ffi::lua_pushstring(state, ffi::lua_typename(state, ffi::lua_type(state, -3)));
            ffi::lua_pushliteral(state, c")");
            ffi::lua_concat(state, 4);
            ffi::lua_error(state)
        }
        ffi::luaL_addvalue(buffer);
    }
}

/// Appends a template in which `%1` is a capture and `%0` the whole match.
unsafe fn add_template<L: FnMut() -> bool>(
    state: *mut lua_State,
    buffer: *mut ffi::luaL_Buffer,
    matcher: &Matcher<'_, L>,
    whole: &Range<usize>,
) {
    // SAFETY: called by `add_value`; the template stays on the stack.
    unsafe {
        let mut template = held(text(state, 3));
        while let Some(at) = memchr::memchr(b'%', template) {
            add_bytes(buffer, &template[..at]);
            match template.get(at + 1).copied().unwrap_or(0) {
                b'0' => add_bytes(buffer, &matcher.text[whole.clone()]),
                digit @ b'1'..=b'9' => {
                    push_capture(state, matcher, usize::from(digit - b'1'), whole);
                    ffi::luaL_addvalue(buffer);
                }
                other => add_bytes(buffer, &[other]),
            }
            template = template.get(at + 2..).unwrap_or_default();
        }
        add_bytes(buffer, template);
    }
}
