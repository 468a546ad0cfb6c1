//! The table of RedisJSON's commands.

use super::{arrays, change, numbers, read, set};
use crate::commands::table::migrated::{Migrated, Part};
use crate::commands::table::spec::Group;
use crate::commands::{Command, Flags, KeyFlags, KeySpec};

const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const READ_ALL: &[KeySpec] = &[KeySpec::range(
    1,
    -2,
    1,
    KeyFlags::RO.union(KeyFlags::ACCESS),
)];
const DEBUG: &[KeySpec] = &[
    KeySpec::after("MEMORY", 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
    KeySpec::after("FIELDS", 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
];
const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
const UPDATE_ALL: &[KeySpec] = &[KeySpec::range(
    1,
    -1,
    3,
    KeyFlags::RW.union(KeyFlags::UPDATE),
)];
const CHANGE: &[KeySpec] = &[KeySpec::at(
    1,
    KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE),
)];
const DELETE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))];

/// Paths and values take as long to parse as they are.
const PARSES: Flags = Flags::PARSES;
const ADDS: Flags = PARSES.union(Flags::DENYOOM);

const ONE: &str =
    "O(levels of the path), O(N) if it can select several values, N: values of the document";
const SIZE: &str = "O(N), N: size of what is read or written";

/// The rows of JSON.*.
pub const COMMANDS: &[Command] = &[
    Command::write("json.arrappend", -3, arrays::append)
        .syntax("key path value...")
        .complexity(ONE)
        .flags(ADDS)
        .keys(CHANGE)
        .doc(Group::Json, "1.0.0", "Adds values at the end of an array"),
    Command::read("json.arrindex", -4, arrays::find_index)
        .syntax("key path value [range=(start:int [stop:int])]")
        .complexity("O(N), N: elements of the array")
        .flags(PARSES)
        .keys(READ)
        .doc(
            Group::Json,
            "1.0.0",
            "Returns the first index of a value in an array",
        ),
    Command::write("json.arrinsert", -5, arrays::insert)
        .syntax("key path index:int value...")
        .complexity(ONE)
        .flags(ADDS)
        .keys(CHANGE)
        .doc(
            Group::Json,
            "1.0.0",
            "Adds values to an array in front of an index",
        ),
    Command::read("json.arrlen", -2, read::arrlen)
        .syntax("key [path]")
        .complexity(ONE)
        .flags(PARSES)
        .keys(READ)
        .doc(Group::Json, "1.0.0", "Counts the elements of an array"),
    Command::write("json.arrpop", -2, arrays::pop)
        .syntax("key [FORMAT format=(STRINGS|EXPAND1|EXPAND)] [place=(path [index:int])]")
        .complexity(ONE)
        .flags(PARSES)
        .keys(CHANGE)
        .doc(
            Group::Json,
            "1.0.0",
            "Removes an element of an array and returns it",
        ),
    Command::write("json.arrtrim", 5, arrays::trim)
        .syntax("key path start:int stop:int")
        .complexity("O(N), N: elements removed")
        .flags(PARSES)
        .keys(CHANGE)
        .doc(Group::Json, "1.0.0", "Keeps a range of an array"),
    Command::write("json.clear", -2, change::clear)
        .syntax("key [path]")
        .complexity("O(N), N: values removed")
        .flags(PARSES)
        .keys(CHANGE)
        .doc(
            Group::Json,
            "2.0.0",
            "Empties arrays and objects, and sets numbers to 0",
        ),
    Command::read("json.debug", -2, read::debug)
        .syntax("subcommand=(MEMORY|FIELDS|HELP) [key] [path]")
        .complexity(SIZE)
        .flags(PARSES)
        .keys(DEBUG)
        .doc(
            Group::Json,
            "1.0.0",
            "Returns how much memory a value takes, or how many values it has",
        ),
    Command::write("json.del", -2, set::del)
        .syntax("key [path]")
        .complexity("O(N), N: size of what is removed")
        .flags(PARSES)
        .keys(DELETE)
        .doc(Group::Json, "1.0.0", "Removes values"),
    Command::write("json.forget", -2, set::del)
        .syntax("key [path]")
        .complexity("O(N), N: size of what is removed")
        .flags(PARSES)
        .keys(DELETE)
        .doc(
            Group::Json,
            "1.0.0",
            "Removes values; JSON.DEL does the same",
        ),
    Command::read("json.get", -2, read::get)
        .syntax(
            "key [INDENT indent] [NEWLINE newline] [SPACE space] \
             [FORMAT format=(STRING|EXPAND1|EXPAND)] [path...]",
        )
        .complexity(SIZE)
        .flags(PARSES)
        .keys(READ)
        .doc(Group::Json, "1.0.0", "Returns values as text"),
    Command::write("json.merge", -4, set::merge)
        .syntax("key path value [FORMAT format=(STRING|JSON)]")
        .complexity(SIZE)
        .flags(ADDS)
        .keys(UPDATE)
        .doc(
            Group::Json,
            "2.6.0",
            "Merges a value into others: its members are set, or removed if they are null",
        ),
    Command::read("json.mget", -3, read::mget)
        .syntax("key... path")
        .complexity(SIZE)
        .flags(PARSES)
        .keys(READ_ALL)
        .doc(
            Group::Json,
            "1.0.0",
            "Returns values of several documents as text",
        ),
    Command::write("json.mset", -4, set::mset)
        .syntax("triplet=(key path value)...")
        .complexity(SIZE)
        .flags(ADDS)
        .keys(UPDATE_ALL)
        .migrated(Migrated::Keys(Part::FewerTriplets))
        .doc(Group::Json, "2.6.0", "Sets values of several documents"),
    Command::write("json.numincrby", 4, numbers::incrby)
        .syntax("key path number:double")
        .complexity(ONE)
        .flags(PARSES)
        .keys(CHANGE)
        .doc(Group::Json, "1.0.0", "Adds to numbers"),
    Command::write("json.nummultby", 4, numbers::multby)
        .syntax("key path number:double")
        .complexity(ONE)
        .flags(PARSES)
        .keys(CHANGE)
        .doc(Group::Json, "1.0.0", "Multiplies numbers"),
    Command::write("json.numpowby", 4, numbers::powby)
        .syntax("key path number:double")
        .complexity(ONE)
        .flags(PARSES)
        .keys(CHANGE)
        .doc(Group::Json, "1.0.0", "Raises numbers to a power"),
    Command::read("json.objkeys", -2, read::objkeys)
        .syntax("key [path]")
        .complexity("O(N), N: members of the object")
        .flags(PARSES)
        .keys(READ)
        .doc(Group::Json, "1.0.0", "Lists the keys of an object"),
    Command::read("json.objlen", -2, read::objlen)
        .syntax("key [path]")
        .complexity(ONE)
        .flags(PARSES)
        .keys(READ)
        .doc(Group::Json, "1.0.0", "Counts the members of an object"),
    Command::read("json.resp", -2, read::reply_resp)
        .syntax("key [path]")
        .complexity(SIZE)
        .flags(PARSES)
        .keys(READ)
        .doc(
            Group::Json,
            "1.0.0",
            "Returns values in types of the protocol",
        ),
    Command::write("json.set", -4, set::set)
        .syntax(
            "key path value [condition=(NX|XX)] [FPHA type=(BF16|FP16|FP32|FP64)] \
             [FORMAT format=(STRING|JSON)]",
        )
        .complexity(SIZE)
        .flags(ADDS)
        .keys(UPDATE)
        .doc(Group::Json, "1.0.0", "Sets a value"),
    Command::write("json.strappend", -3, change::strappend)
        .syntax("key [path] value")
        .complexity("O(N), N: length of the string")
        .flags(ADDS)
        .keys(CHANGE)
        .doc(Group::Json, "1.0.0", "Adds text at the end of a string"),
    Command::read("json.strlen", -2, read::strlen)
        .syntax("key [path]")
        .complexity(ONE)
        .flags(PARSES)
        .keys(READ)
        .doc(
            Group::Json,
            "1.0.0",
            "Returns the length of a string in bytes",
        ),
    Command::write("json.toggle", 3, change::toggle)
        .syntax("key path")
        .complexity(ONE)
        .flags(PARSES)
        .keys(CHANGE)
        .doc(Group::Json, "2.0.0", "Turns true into false and back"),
    Command::read("json.type", -2, read::type_of)
        .syntax("key [path]")
        .complexity(ONE)
        .flags(PARSES)
        .keys(READ)
        .doc(Group::Json, "1.0.0", "Returns the type of values"),
];
